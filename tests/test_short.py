"""Short summaries: of everything that has a summary, in about ten lines, warnings first."""

from __future__ import annotations

import copy
import pickle
import re

import pytest

import dpeffects as dpe
from dpeffects.errors import DPEffectsError, OptionError
from dpeffects.results.result_base import ReportableResult
from dpeffects.results.scaled import check_scale
from dpeffects.services.sites import CombinedEffect
from dpeffects.summary import Pairs, Prose, each_warning
from tests.cases import each
from tests.kinds_of_summaries import NAMES, made
from tests.reading import squeezed
from tests.releases import release


@each("name", NAMES)
def test_a_screen_with_the_cautions_first_and_a_name_of_one_line(name):
    result = made(name)
    full, short = result.summary(), result.summary("short")
    assert (short.title, short.starred_warnings) == (full.title, full.starred_warnings)
    lines = str(short).splitlines()
    assert max(map(len, lines)) <= 80
    most = 23 if isinstance(result, ReportableResult) else 30  # a screen has 24 lines
    assert len(lines) <= most + len(short.starred_warnings) // 50
    assert lines[-1].startswith("Full results: ")
    for render in ("as_html", "as_latex", "as_markdown"):
        assert "Full results" in getattr(short, render)()
    assert not [line for line in str(full).splitlines() if line.strip().startswith("%")]
    if not name.startswith(("plan", "comparison")):
        assert repr(result).startswith("<dpeffects ")
        assert "\n" not in repr(result)


@each("name", NAMES)
def test_a_release_in_about_ten_lines(name):
    result = made(name)
    if not isinstance(result, ReportableResult):
        return
    pairs, last = result.summary("short").blocks
    assert isinstance(pairs, Pairs)
    assert isinstance(last, Prose)
    assert len(pairs.rows) <= 12
    said = dict(pairs.rows)
    assert re.match(r"(n = )?[0-9,]+", said.get("Records") or said["Units"])
    holds = result.guarantee
    if isinstance(result, CombinedEffect):  # each site has its own
        assert "differential privacy" in said["Guarantee"]
        assert ("NOT at" in said["Guarantee"]) == bool(holds.void)
    else:
        assert said["Guarantee"] == holds.short()
        assert ("NOT PRIVATE" in said["Guarantee"]) == bool(holds.void)
    for form in ("full", "short"):
        with pytest.raises((OptionError, TypeError), match="conf_level"):
            result.summary(form, conf_level=7)


def _derived(result):
    """What follows from a result: tests, sensitivity, effects on scales."""
    yield result
    asked = [(name, ()) for name in ("test", "sensitivity", "summary")]
    for name, given in [*asked, *(("effect", (x,)) for x in ("difference", "ratio", "odds"))]:
        try:
            found = getattr(result, name)(*given)
        except (AttributeError, DPEffectsError):
            continue
        yield found


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", NAMES)
def test_everything_goes_to_another_process_and_says_there_whether_it_is_private(name):
    """Effects on scales and tests did not pickle, a sentence on a void effect did not say so."""
    void = getattr(getattr(made(name), "guarantee", None), "void", ())
    for one in _derived(made(name)):
        for other in (pickle.loads(pickle.dumps(one)), copy.deepcopy(one)):
            assert str(other) == str(one)
            if hasattr(one, "again"):
                assert str(other.conf_int(0.8)) == str(one.conf_int(0.8))
        assert not void or "NOT PRIVATE" in str(one)


def test_an_estimate_is_that_of_the_table():
    fit = release("randomised")
    said = dict(fit.summary("short").blocks[0].rows)
    (row,) = fit.summary().blocks[1].rows
    assert said["Estimate"].startswith(f"{row[1]} (95 % CI {row[3]} to {row[4]}), p ")
    assert said["Assumes"].startswith("treatment was randomised (declared")
    assert "90 % CI" in str(fit.summary("short", conf_level=0.9))


def test_units_are_said():
    """Rates are per 100 of the offset, restricted means and risks those until the horizon."""
    for name, words in (("rates", "per 100 of person-time (time)"), ("survival", "until 50")):
        for form in ("short", "full"):
            assert words in " ".join(str(made(name).summary(form)).split())
    times = [row[0] for row in made("survival").summary().blocks[2].rows]
    assert len({len(x.partition(".")[2]) for x in times}) == 1  # a column of one format


def test_a_table_of_tests_has_the_digits_of_the_table_of_effects():
    effects, tests = made("subsets").summary().blocks[1], made("tests").summary().blocks[1]
    assert [row[-2] for row in tests.rows] == [row[-1] for row in effects.rows]
    ends = [row[3:5] if row[-1] != "n/a" else ("n/a", "n/a") for row in effects.rows]
    assert ends.count(("n/a", "n/a")) <= 2  # associations, which are no tests of effects
    expected = [(*row[:2], *own) for row, own in zip(effects.rows, ends, strict=True)]
    assert [row[:4] for row in tests.rows] == expected


def test_one_is_not_many():
    alone = made("study without baseline")
    assert f"on {alone.outcome}," in repr(alone)
    assert "Simultaneous" not in str(alone)


def test_what_is_adjusted_for():
    said = {name: dict(made(name).summary("short").blocks[0].rows) for name in ("adjusted", "did")}
    assert said["adjusted"]["Adjusted for"] == "x and g (linear terms, 1 square, 1 product)"
    assert "Adjusted for" not in said["did"]
    assert "parallel trends" in said["did"]["Assumes"]
    nothing = dict(release("seeded").summary("short").blocks[0].rows)["Adjusted for"]
    assert nothing == "nothing (no covariates in the formula)"
    none = release("study without baseline").summary("short")
    assert "association, not an effect" in dict(none.blocks[0].rows)["Adjusted for"]
    assert "ASSOCIATION, NOT AN EFFECT" in none.starred_warnings


@each(
    ("outcome", "method", "epsilon", "level", "told"),
    [
        ("outcome", "one_step", 1, "sample", True),
        ("outcome", "one_step", 10, "label", True),
        ("outcome", "clipped_contrast", 2, "sample", False),
        ("outcome", "clipped_contrast", 2, "label", True),
        ("outcome", "diff_in_means", 1, "sample", False),
        ("married", "one_step", 1, "sample", False),
    ],
)
def test_effects_on_few_records_are_assumed_away_where_residuals_are_cut(
    outcome, method, epsilon, level, told
):
    """Four standard deviations of a count: of Laplace noise with sensitivity 2, at its price."""
    data = dpe.load_data("birthweight")
    call = {"level": level, "seed": 1}
    covariates = " | mage" * (method == "one_step")
    formula = f"{outcome} ~ treatment{covariates}"
    if not covariates:
        call |= {"design": "randomised"}
    fit = dpe.dp_ate(formula, data, method, epsilon=epsilon, **call)
    prices = [x.epsilon for x in fit.charges if x.label.endswith("residuals") and x.epsilon]
    rows = dict(fit.summary("short").blocks[0].rows)
    assert ("few records" in rows["Assumes"]) is told
    if told:
        most = 4.0 * 8.0**0.5 / max(prices)
        assert f"up to some {most:.0f} of an arm" in rows["Assumes"]


def test_many_effects_are_cut():
    fit = dpe.dp_ate(
        "y ~ t",
        made_of_groups(),
        "diff_in_means",
        by="g",
        epsilon=5,
        bounds={"y": (0, 1), "g": list("abcdefghij")},
        seed=1,
    )
    rows = fit.summary("short").blocks[0].rows
    assert ("and 5 more", "tidy() has them all") in rows
    assert len(rows) <= 12


def made_of_groups():
    import pandas as pd

    n = 2000
    groups = ["abcdefghij"[i % 10] for i in range(n)]
    return pd.DataFrame(
        {"y": [(i % 7) / 7 for i in range(n)], "t": [i % 2 for i in range(n)], "g": groups}
    )


@pytest.mark.parametrize("name", ["points", "function without variance"])
def test_intervals_of_noise_say_so(name):
    assert "of privacy noise only" in " ".join(str(release(name).summary("short")).split())


@pytest.mark.parametrize(
    ("form", "told"),
    [
        ("shrt", "; did you mean 'short'?"),
        ("Full", "; did you mean 'full'?"),
        (0.9, "; write summary(conf_level=0.9)"),
        (None, ""),
    ],
)
def test_other_forms_are_refused(form, told):
    for result in (release("seeded"), made("plan"), made("comparison")):
        with pytest.raises(OptionError) as refused:
            result.summary(form)
        assert str(refused.value) == f'summary must be "full" or "short", got {form!r}{told}'


def test_a_ledger_is_short_too(tmp_path):
    ledger = dpe.create_ledger(tmp_path / "study.db", dataset="people", epsilon=3)
    assert "Full results: " in str(ledger.summary("short"))
    assert squeezed(str(ledger.summary("short"))) != squeezed(str(ledger.summary()))


def test_a_warning_of_several_keeps_its_name_and_a_hint_is_given_once():
    assert each_warning("First: a; Second: b", "") == ["First: a", "Second: b"]
    with pytest.raises(AttributeError, match="did you mean") as found:
        made("adjusted").tabel  # noqa: B018
    assert found.value.name is None  # or Python adds a hint of its own


def test_a_number_needed_to_treat_has_its_usual_names():
    assert {check_scale(x) for x in ("NNT", "nnt", "number needed to treat")} == {"nnt"}
