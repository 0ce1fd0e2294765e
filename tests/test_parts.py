"""Parts of an error, ranges that an effect can have, and what entitles to the word effect."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

import dpeffects as dpe
from dpeffects.errors import DataError
from dpeffects.inference.estimate import (
    IDENTIFICATIONS,
    Effects,
    ErrorPart,
    Estimate,
    SamplingVariance,
    Unavailable,
)
from dpeffects.inference.intervals import interval, noise_interval, p_value, std_error
from dpeffects.results import CateEffects, Result
from dpeffects.summary import Table
from tests.reading import from_markdown, page, shown, tables
from tests.releases import release
from tests.test_results import flat, make

CLIP = ErrorPart("bias by clipped outcomes", 0.25)
MODEL = ErrorPart("noise in the models", 0.16, noise=True)
WHOLE = Estimate(0.5, SamplingVariance(0.36, 0.0, 9.0), (0.2,), 0.04, parts=(CLIP, MODEL))
"""Variances: sampling 0.36, final sum 0.08 + 0.04, model 0.16, clip 0.25: together 0.89."""


def of_normal(**changes):
    """An estimate whose error is normal, so that its distribution has a closed form."""
    return replace(WHOLE, laplace=(), **changes)


# --- the distribution -----------------------------------------------------------------------


def test_variances_of_the_parts_add_up():
    assert WHOLE.final_noise_variance == pytest.approx(0.12)
    assert WHOLE.noise_variance == pytest.approx(0.28)
    assert WHOLE.bias_variance == pytest.approx(0.25)
    assert std_error(WHOLE) ** 2 == pytest.approx(0.89)
    assert make(WHOLE).noise_share == pytest.approx(0.28 / 0.89)


def test_the_interval_has_all_parts_and_that_of_the_noise_only_noise():
    z, normal = 1.959963985, of_normal()
    assert interval(normal).upper - 0.5 == pytest.approx(z * math.sqrt(0.81))
    assert noise_interval(normal).upper - 0.5 == pytest.approx(z * math.sqrt(0.20))
    assert p_value(normal) == pytest.approx(2 * stats.norm.sf(0.5 / 0.9))


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_part_that_is_not_a_number_gives_no_interval(value):
    broken = replace(WHOLE, parts=(ErrorPart("model", value, True),))
    assert isinstance(interval(broken), Unavailable)
    assert isinstance(noise_interval(broken), Unavailable)


@pytest.mark.parametrize("value", [-1.7, -0.9, 0.0, 0.5, 1.4])
def test_estimate_and_intervals_lie_in_the_possible_range(value):
    cut = of_normal(value=value, possible=(-1.0, 1.0))
    assert cut.point == np.clip(value, -1.0, 1.0)
    for whole, cut_one in (
        (interval(replace(cut, value=cut.point, possible=None)), interval(cut)),
        (noise_interval(replace(cut, value=cut.point, possible=None)), noise_interval(cut)),
    ):
        assert tuple(cut_one) == tuple(np.clip(tuple(whole), -1.0, 1.0))
        assert cut_one.lower <= cut.point <= cut_one.upper
        assert cut_one.upper - cut_one.lower > 0.5  # an estimate outside leaves no empty interval
    assert make(cut).estimate == make(cut).tidy()["estimate"][0] == cut.point


def test_cutting_never_loses_the_truth():
    """An estimate that is moved into the range comes closer to every effect in it."""
    rng = np.random.default_rng(3)
    for truth in (-1.0, -0.4, 0.8, 1.0):
        for value in truth + rng.normal(0.0, 0.9, 200):
            plain = of_normal(value=value)
            low, high = interval(plain)
            below, above = interval(replace(plain, possible=(-1.0, 1.0)))
            assert below <= truth <= above or not low <= truth <= high


def test_effects_by_group_have_their_own_parts_and_are_cut():
    """Groups used to share a distribution by their noise and sampling variance alone."""
    effects = (of_normal(), of_normal(parts=()), of_normal(value=2.0, possible=(-1.0, 1.0)))
    groups = release("groups")
    fit = replace(groups, labels=("a", "b", "c"), effects=effects)
    assert isinstance(fit, CateEffects)
    half = 1.959963985 * np.sqrt([0.81, 0.40, 0.81])
    expected = [0.5 - half[0], 0.5 + half[0]], [0.5 - half[1], 0.5 + half[1]], [1 - half[2], 1.0]
    assert fit.conf_int() == pytest.approx(np.clip(expected, [[-9], [-9], [-1]], 9))
    assert fit.estimates.tolist() == [0.5, 0.5, 1.0]
    assert Effects(effects).estimates == effects


# --- what is shown -------------------------------------------------------------------------------


def error_table(fit):
    (found,) = [b for b in fit.summary().blocks if getattr(b, "title", "") == "Standard error"]
    assert isinstance(found, Table)
    return found


def test_every_part_has_its_line():
    rows = error_table(make(WHOLE)).rows
    variances = [0.36, 0.12, 0.25, 0.16, 0.89]
    assert [row[0] for row in rows] == [
        "sampling error",
        "privacy noise in the estimate",
        "allowance for bias by clipped outcomes",
        "privacy noise in noise in the models",
        "total",
    ]
    sds = [v**0.5 for v in variances]
    assert [float(row[1]) for row in rows] == pytest.approx(sds, abs=0.0051)
    shares = [float(row[2].removesuffix(" %")) for row in rows]
    assert shares == pytest.approx([100 * v / 0.89 for v in variances], abs=0.051)


def test_two_parts_are_both():
    assert [row[0] for row in error_table(make()).rows] == [
        "sampling error",
        "privacy noise",
        "total",
    ]


def test_without_a_sampling_variance_the_parts_are_still_shown():
    rows = error_table(make(replace(WHOLE, sampling=Unavailable("not asked for")))).rows
    assert rows[0][1] == "n/a"
    assert [float(row[1]) for row in rows[1:]] == pytest.approx([0.12**0.5, 0.5, 0.4], abs=0.0051)
    assert {row[2] for row in rows} == {"n/a"}


def test_the_lines_are_in_all_formats():
    summary = make(WHOLE).summary()
    for name, *_ in error_table(make(WHOLE)).rows:
        for tree in (page(summary.as_html()), from_markdown(summary.as_markdown())):
            assert any(name in row for table in tables(tree) for row in table)
        assert name in summary.as_latex()


def test_the_paragraph_names_the_biases_and_shares_of_all_parts():
    text = make(WHOLE).report().text
    assert "which is 31.5 % of the variance" in text  # 0.28 of 0.89
    allowed = (
        "allowance for possible bias (bias by clipped outcomes) with a standard deviation of 0.5"
    )
    assert allowed in text
    assert "noise in the models)" not in text
    assert "possible biases" not in make().report().text


def test_frames_and_json_have_the_parts():
    fit = make(replace(WHOLE, possible=(-3.0, 3.0), identification="adjusted"))
    row = fit.glance().iloc[0]
    assert row["noise_variance"] == pytest.approx(0.28)
    assert row["bias_variance"] == pytest.approx(0.25)
    assert row["identification"] == "adjusted"
    document = json.loads(fit.to_json())
    assert document["bias_variance"] == 0.25
    assert document["released"]["parts"][1] == {
        "name": "noise in the models",
        "variance": 0.16,
        "noise": True,
    }
    assert Result.from_json(fit.to_json()) == fit


def test_json_from_before_the_parts_is_read():
    document = make().to_dict()
    for name in ("parts", "possible", "identification"):
        del document["released"][name]
    del document["bias_variance"]
    assert str(Result.from_dict(document)) == str(make())


@pytest.mark.parametrize(
    "change",
    [
        {"identification": "certain"},
        {"parts": [{"name": "clip", "variance": -1.0, "noise": False}]},
        {"parts": [{"name": "clip", "variance": "much", "noise": False}]},
        {"parts": [{"variance": 1.0}]},
        {"possible": [1.0]},
    ],
)
def test_changed_parts_are_refused(change):
    document = make(WHOLE).to_dict()
    document["released"] |= change
    with pytest.raises(DataError):
        Result.from_json(json.dumps(document))


def test_a_note_says_what_was_cut():
    words, moved = "interval was truncated to [-1, 1]", "was set to its nearest end"
    narrow = Estimate(0.1, SamplingVariance(1e-4, 0.0, 1.0), (0.01,), possible=(-1.0, 1.0))
    assert words not in flat(make(narrow))
    assert words in flat(make(replace(WHOLE, possible=(-1.0, 1.0))))
    assert moved not in flat(make(replace(WHOLE, possible=(-1.0, 1.0))))
    outside = flat(make(replace(WHOLE, value=1.25, possible=(-1.0, 1.0))))
    assert words in outside
    assert f"The released estimate, 1.25, lies outside this range and {moved}" in outside


def test_comparisons_say_what_the_errors_hold_and_what_estimates_rest_on():
    plain, adjusted = make(), make(replace(WHOLE, identification="adjusted"))
    assert "possible bias" not in flat(dpe.compare(plain))
    assert "identification" not in flat(dpe.compare(plain))
    text = flat(dpe.compare(plain, adjusted))
    assert "They include sampling error, privacy noise and an allowance for possible bias." in text
    assert "identification adjusted" in text


# --- what entitles to the word effect ------------------------------------------------------------

ASSOCIATION = make(replace(WHOLE, value=9.0, identification="unadjusted"))


def test_an_association_is_called_one():
    lines = str(ASSOCIATION).splitlines()
    assert lines[0] == "Unadjusted association, differentially private"
    assert lines[2].startswith("*** ASSOCIATION, NOT AN EFFECT: nothing was adjusted for")
    text = flat(ASSOCIATION)
    assert "Association of treat with re78" in text
    assert "Effect of treat" not in text
    assert "association 9.0" in text
    paragraph = ASSOCIATION.report().text
    assert paragraph.startswith("The association of treat with re78 was estimated")
    assert "Warnings: ASSOCIATION, NOT AN EFFECT" in paragraph
    assert "evidence of an effect" not in paragraph
    assert "evidence of an association" in paragraph
    assert "average treatment effect (ATE) of" not in paragraph
    assert "association" in repr(ASSOCIATION)
    assert "ASSOCIATION, NOT AN EFFECT" in shown(page(ASSOCIATION.summary().as_html()))
    wide = make(replace(WHOLE, identification="unadjusted")).report().text
    assert "no evidence of an association, and associations from" in wide


def test_an_association_has_an_interval_and_no_p_value():
    missing = ASSOCIATION.p_value
    assert isinstance(missing, Unavailable)
    assert missing.reason.startswith("an association is no test of an effect: ")
    assert not isinstance(ASSOCIATION.conf_int(), Unavailable)
    row = ASSOCIATION.tidy().iloc[0]
    assert math.isnan(row["p_value"])
    assert row["conf_low"] < 9.0 < row["conf_high"]
    assert json.loads(ASSOCIATION.to_json())["p_value"] == {"unavailable": missing.reason}
    assert Result.from_json(ASSOCIATION.to_json()) == ASSOCIATION


def test_an_association_stands_out_in_comparisons_frames_and_records(tmp_path):
    assert "(1): ASSOCIATION, NOT AN EFFECT" in flat(dpe.compare(ASSOCIATION))
    assert ASSOCIATION.glance()["warnings"][0].startswith("ASSOCIATION, NOT AN EFFECT")
    record = ASSOCIATION.report(tmp_path / "record.html").read_text()
    assert "ASSOCIATION, NOT AN EFFECT" in shown(page(record))
    both = make(replace(WHOLE, identification="unadjusted", warnings="FEW RECORDS"))
    assert both.warnings.endswith("randomised; FEW RECORDS")


@pytest.mark.parametrize(
    ("identification", "above", "words", "condition"),
    [
        (
            "adjusted",
            "no confounder is missing from the formula; outcome and log odds of treatment are",
            "assumes that no confounder is missing from the formula, and models that are linear",
            "if treatment was as good as random given the covariates",
        ),
        (
            "randomised",
            'treatment was randomised (declared: design="randomised"); the interval makes no '
            "allowance for confounding",
            "Treatment was declared to be randomised",
            "if treatment was randomised.",
        ),
    ],
)
def test_what_an_effect_rests_on_is_said(identification, above, words, condition):
    fit = replace(make(replace(WHOLE, value=9.0, identification=identification)), method="one_step")
    assert f"Assumes {above}" in flat(fit).partition("std. error")[0]
    assert words in fit.report().text
    assert condition in fit.report().text
    assert not isinstance(fit.p_value, Unavailable)
    assert above not in flat(make())
    assert identification in IDENTIFICATIONS
