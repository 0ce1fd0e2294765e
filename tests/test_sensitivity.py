"""What confounding would do: published numbers, brute force, and what is said about it."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace

import numpy as np
import pytest

import dpeffects as dpe
from dpeffects.errors import DataError, OptionError
from dpeffects.guarantee import Guarantee
from dpeffects.inference.estimate import ErrorPart, Estimate, SamplingVariance, Unavailable
from dpeffects.results import SensitivityAnalysis
from dpeffects.results.sensitivity import approximate_risk_ratio, e_value, robustness_value
from tests.commands.shell import refused, run, write_files
from tests.reading import detexed
from tests.test_results import flat as flattened
from tests.test_results import make

BINARY = (("re78", "[0, 1]", "declared"),)
CLEAR = Estimate(0.3, SamplingVariance(0.0025, 0.0, 1.0), (0.01,), identification="adjusted")


def flat(found):
    """The full text of an analysis on one line."""
    return flattened(found.summary() if isinstance(found, SensitivityAnalysis) else found)


def fitted(estimate=CLEAR, **changes):
    return make(estimate, bounds=BINARY, **changes)


# --- formulas ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ratio", "expected", "digits"),
    [(3.9, 7.26, 2), (1.8, 3.0, 1), (1 / 3.9, 7.26, 2), (1.0, 1.0, 12)],
)
def test_e_values_of_vanderweele_and_ding(ratio, expected, digits):
    """Their example: infants' deaths and formula feeding, 3.9 (95 % from 1.8)."""
    assert round(e_value(ratio), digits) == expected


def test_an_e_value_is_the_least_that_both_risk_ratios_must_have():
    """Ding and VanderWeele's bound on what a confounder can do, searched on a grid."""

    def explained(with_treatment, with_outcome):
        return with_treatment * with_outcome / (with_treatment + with_outcome - 1.0)

    grid = np.linspace(1.0, 12.0, 1101)
    for ratio in (1.3, 2.0, 3.9):
        enough = [max(a, b) for a, b in itertools.product(grid, grid) if explained(a, b) >= ratio]
        assert min(enough) == pytest.approx(e_value(ratio), abs=0.011)


def test_the_ends_of_e_values():
    assert e_value(0.0) == e_value(math.inf) == math.inf
    assert approximate_risk_ratio(1e6) == math.inf
    assert approximate_risk_ratio(-1e6) == 0.0
    for ratio in (-1.0, math.nan):
        with pytest.raises(OptionError, match="risk ratio"):
            e_value(ratio)


def test_robustness_values_of_cinelli_and_hazlett():
    """Their study of Darfur: 0.097 with standard error 0.023 and 783 degrees of freedom."""
    estimate, error = 0.0973158, 0.0232564
    assert round(robustness_value(estimate, error, 783), 4) == 0.1388
    moved = estimate - 1.963 * error
    assert round(robustness_value(moved, error, 783), 3) == 0.076
    assert robustness_value(0.0, error, 783) == 0.0


def test_a_confounder_of_that_robustness_value_explains_a_regression_away():
    """A data set with such a confounder, and least squares with and without it."""
    rng = np.random.default_rng(4)
    n, share = 4000, 0.2
    identification, _ = np.linalg.qr(np.column_stack([np.ones(n), rng.normal(size=(n, 3))]))
    u, a, b = identification[:, 1:].T
    treatment = math.sqrt(share) * u + math.sqrt(1.0 - share) * a
    outcome = math.sqrt(share) * u + math.sqrt(1.0 - share) * b  # no effect but through u
    x = np.column_stack([np.ones(n), treatment])
    slope, left, *_ = np.linalg.lstsq(x, outcome, rcond=None)
    df = n - 2
    error = math.sqrt(left[0] / df / (treatment @ treatment))
    # u explains 20 % of treatment, and of what treatment leaves of the outcome this part:
    with_u = outcome - u * (u @ outcome)
    of_treatment = 1.0 - (treatment @ u) ** 2
    partial = 1.0 - (with_u @ with_u) / left[0]
    bias = math.sqrt(partial * (1.0 - of_treatment) / of_treatment) * error * math.sqrt(df)
    assert bias == pytest.approx(slope[1], rel=1e-9)
    value = robustness_value(slope[1], error, df)
    assert value / math.sqrt(1.0 - value) == pytest.approx(slope[1] / (error * math.sqrt(df)))


# --- the record ----------------------------------------------------------------------------------


def test_figures_follow_from_estimate_and_limit():
    fit = fitted()
    found = fit.sensitivity(outcome_sd=0.4)
    low, high = fit.conf_int()
    row = found.glance().iloc[0]
    assert row["tipping_bias"] == pytest.approx(0.3)
    assert row["tipping_bias_limit"] == pytest.approx(low)
    assert row["risk_ratio"] == pytest.approx(math.exp(0.91 * 0.3 / 0.4))
    assert row["e_value_limit"] == pytest.approx(e_value(math.exp(0.91 * low / 0.4)))
    assert row["robustness_value"] == pytest.approx(robustness_value(0.3, 0.05, 1000))
    mirrored = fitted(replace(CLEAR, value=-0.3)).sensitivity(outcome_sd=0.4)
    assert mirrored.limit == pytest.approx(-low)
    assert mirrored.glance()["e_value"][0] == pytest.approx(row["e_value"])
    narrow = fit.sensitivity(outcome_sd=0.4, conf_level=0.5)
    assert narrow.limit == fit.conf_int(0.5).lower
    assert high > 0.3


def test_an_interval_with_zero_needs_no_confounding():
    found = fitted(replace(CLEAR, value=0.05)).sensitivity()
    assert found.limit == 0.0
    row = found.glance().iloc[0]
    assert (row["tipping_bias_limit"], row["e_value_limit"]) == (0.0, 1.0)
    assert "without any confounding" in flat(found)


def test_two_numbers_give_the_bias_of_a_confounder():
    """A population in which treatment does nothing, counted person by person."""
    prevalence, adds = {1: 0.7, 0: 0.4}, 0.25
    means = {
        arm: np.mean([0.2 + adds * (person < 100 * share) for person in range(100)])
        for arm, share in prevalence.items()
    }
    confounded = fitted(replace(CLEAR, value=means[1] - means[0]))
    found = confounded.sensitivity(
        prevalence_difference=prevalence[1] - prevalence[0], confounder_effect=adds
    )
    assert found.stated == pytest.approx(0.075)
    shifted = found.tidy().set_index("term").loc["bias taken off"]
    assert shifted["estimate"] == pytest.approx(0.0, abs=1e-12)
    low, high = confounded.conf_int()
    assert tuple(shifted[["conf_low", "conf_high"]]) == pytest.approx((low - 0.075, high - 0.075))
    wide = found.tidy().set_index("term").loc["bias either way"]
    assert tuple(wide[["conf_low", "conf_high"]]) == pytest.approx((low - 0.075, high + 0.075))
    negative = confounded.sensitivity(bias=-0.075).interval(-0.075, either_way=True)
    assert tuple(negative) == pytest.approx((low - 0.075, high + 0.075))


def test_intervals_under_a_bias_stay_in_the_possible_range():
    found = fitted(replace(CLEAR, value=0.95, possible=(-1.0, 1.0))).sensitivity(bias=-0.5)
    assert found.interval(-0.5).upper == 1.0
    assert found.tidy()["estimate"].max() == 1.0
    assert found.interval(9.0).lower == -1.0


def test_where_the_standard_deviation_comes_from():
    fit = fitted()
    assert fit.sensitivity(outcome_sd=0.3).deviation == (0.3, "as given")
    released = fitted(
        replace(CLEAR, details={"standard deviation of the outcome": 0.35})
    ).sensitivity()
    assert released.deviation == (0.35, "as released")
    assert fit.sensitivity().deviation[0] == 0.25
    assert "0.25, a quarter of its range" in flat(fit.sensitivity())
    unknown = make(CLEAR, bounds=()).sensitivity()
    assert isinstance(unknown.e_value(0.3), Unavailable)
    assert "give outcome_sd" in flat(unknown)
    assert math.isnan(unknown.glance()["e_value"][0])


def test_a_risk_without_treatment_makes_risk_ratios_exact():
    found = fitted().sensitivity(control_risk=0.2)
    assert found.risk_ratio(0.3) == pytest.approx(2.5)
    assert found.e_value(-0.1) == pytest.approx(2.0 + math.sqrt(2.0))
    assert found.e_value(-0.2) == math.inf
    assert "a risk of 0.2 without treatment" in flat(found)
    assert SensitivityAnalysis.from_json(found.to_json()) == found


def test_a_robustness_value_is_left_out_where_it_is_not_known():
    assert isinstance(fitted(estimand="ATT").sensitivity().robustness_value(0.3), Unavailable)
    hardly = fitted(replace(CLEAR, sampling=SamplingVariance(1e-4, 1e-3, 1.0))).sensitivity()
    assert "robustness value is not available: the sampling variance is hardly" in flat(hardly)


def test_without_an_interval_only_the_estimate_is_looked_at():
    found = fitted(replace(CLEAR, sampling=Unavailable("not asked for"))).sensitivity(bias=0.1)
    assert isinstance(found.limit, Unavailable)
    row = found.glance().iloc[0]
    assert row["e_value"] > 1.0
    assert math.isnan(row["e_value_limit"])
    assert "not asked for: only the estimate is looked at" in flat(found)
    assert "There is no interval" in found.report().text
    assert found.tidy()["conf_low"].isna().all()


@pytest.mark.parametrize(
    ("identification", "words"),
    [
        ("unadjusted", "not that there is an effect"),
        ("adjusted", "confounders that are missing from the formula"),
        ("randomised", "if that was broken"),
        ("", "left after whatever was adjusted for"),
    ],
)
def test_what_the_numbers_are_about_is_said(identification, words):
    found = fitted(replace(CLEAR, identification=identification)).sensitivity()
    assert words in flat(found)
    assert words in found.report().text
    loud = "ASSOCIATION, NOT AN EFFECT" in str(found)
    assert loud == (identification == "unadjusted")


def test_a_guarantee_that_does_not_hold_is_loud():
    found = fitted(guarantee=Guarantee(1.0, void=("seeded",))).sensitivity()
    assert str(found).splitlines()[2] == "*** NOT PRIVATE: a seed was set ***"


def test_json_is_read_again_and_computed_again():
    found = fitted().sensitivity(prevalence_difference=0.1, confounder_effect=0.5)
    again = SensitivityAnalysis.from_json(found.to_json())
    assert again == found
    assert str(again) == str(found)
    document = found.to_dict() | {"e_value": 99.0}
    assert SensitivityAnalysis.from_dict(document).to_dict()["e_value"] == found.e_value(0.3)
    with pytest.raises(DataError):
        SensitivityAnalysis.from_json(json.dumps(document | {"outcome_sd": -1.0}))


def test_all_formats_and_a_record(tmp_path):
    found = fitted().sensitivity(bias=0.05)
    summary = found.summary()
    for text in (summary.as_html(), detexed(summary.as_latex()), summary.as_markdown()):
        assert "E-value" in text
        assert "Robustness" in text
    assert all(len(line) <= 80 for line in str(found).splitlines())
    assert "E-value" in found.report(tmp_path / "record.html").read_text()
    assert "E-value" in repr(found)
    assert flat(dpe.compare(found)).count("bias either way") == 1


def test_nothing_is_spent():
    ledger = dpe.Ledger(1.0)
    data = dpe.simulate("confounded", n=500, seed=1)
    fit = dpe.dp_ate("outcome ~ treatment", data, "diff_in_means", epsilon=0.5, ledger=ledger)
    before = ledger.spent
    fit.sensitivity(bias=0.1)
    assert ledger.spent == before


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"bias": "much"}, "bias must be a finite number"),
        ({"bias": math.inf}, "bias must be a finite number"),
        ({"bias": True}, "bias must be a finite number"),
        ({"prevalence_difference": 0.1}, "go together"),
        ({"confounder_effect": 0.1}, "go together"),
        ({"bias": 1.0, "prevalence_difference": 0.1, "confounder_effect": 1.0}, "not both"),
        ({"prevalence_difference": 1.1, "confounder_effect": 1.0}, "between -1 and 1"),
        ({"outcome_sd": 0.0}, "outcome_sd must be positive"),
        ({"control_risk": 1.0}, "between 0 and 1"),
        ({"conf_level": 95}, "conf_level"),
    ],
)
def test_bad_arguments(given, words):
    with pytest.raises(OptionError, match=words):
        fitted().sensitivity(**given)
    with pytest.raises(OptionError, match="outcome of 0 and 1"):
        make(CLEAR).sensitivity(control_risk=0.5)


# --- in a shell ----------------------------------------------------------------------------------


def test_the_command_gives_what_the_method_gives(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path)
    fit = fitted(replace(CLEAR, parts=(ErrorPart("clip", 0.001),)))
    (tmp_path / "effect.json").write_text(fit.to_json())
    given = ["--prevalence-difference", 0.1, "--confounder-effect", 0.5, "--conf-level", 0.9]
    code, out, err = run(capsys, "sensitivity", "effect.json", *given, "--format", "json")
    assert (code, err) == (0, "")
    found = fit.sensitivity(prevalence_difference=0.1, confounder_effect=0.5, conf_level=0.9)
    assert json.loads(out) == json.loads(found.to_json())
    more = ["--plot", "bias.png", "--record", "record.html"]
    code, out, _ = run(capsys, "sensitivity", "effect.json", "--bias", 0.05, *more)
    assert code == 0
    assert out.startswith(str(fit.sensitivity(bias=0.05).summary()))
    assert (tmp_path / "bias.png").stat().st_size > 1000
    assert "is not the JSON of a dpeffects result" in refused(capsys, "sensitivity", "bounds.toml")
    assert "cannot be read" in refused(capsys, "sensitivity", "none.json")
    assert "go together" in refused(capsys, "sensitivity", "effect.json", *given[:2])
    refused(capsys, "sensitivity", "effect.json", "--out", "effect.json", "--force")
    assert (tmp_path / "effect.json").read_text() == fit.to_json()


def test_what_a_confounder_must_add_has_the_digits_of_its_error():
    """The error of 0.3 is 0.052; over a difference in prevalence it is as much larger."""
    table = next(b for b in fitted().sensitivity().summary().blocks if "would need" in b.title)
    assert [row[1] for row in table.rows] == ["impossible", "impossible", "0.60", "0.300"]
