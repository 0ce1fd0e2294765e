"""Effects in several subsets out of one budget; nothing of other records shows in them."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest

import dpeffects as dpe
from dpeffects.design.table_reader import read
from dpeffects.errors import BudgetError, DPEffectsError, OptionError
from dpeffects.formula import parse
from dpeffects.formula.condition import by_level, exclude, holds, read_condition
from dpeffects.formula.expression import render
from dpeffects.ledgers import create_ledger, open_ledger
from dpeffects.ledgers.memory import Ledger, OneCall
from dpeffects.privacy.budget import Budget
from dpeffects.privacy.ledger import Terms
from tests.test_counting import BOUNDS, CALLS, COUNTING, FORMULA, IDS, frame, run

GIVEN = {"bounds": BOUNDS, "seed": 1}
THREE = {"a": "g == 'a'", "b": "g == 'b'", "c": "g == 'c'"}


def fit(data=None, epsilon=3.0, method="one_step", **given):
    data = frame() if data is None else data
    return dpe.dp_ate(FORMULA, data, method, epsilon=epsilon, **GIVEN | given)


# --- records outside -----------------------------------------------------------------------------


def elsewhere(data, outside, seed=7):
    """The same table with other outcomes, treatments and covariates outside of a subset."""
    rng, changed = np.random.default_rng(seed), data.copy()
    count = int(outside.sum())
    changed.loc[outside, "y"] = rng.choice([-50.0, 0.0, 1.0, 90.0], count)
    changed.loc[outside, "t"] = rng.integers(0, 2, count)
    changed.loc[outside, "x2"] = rng.choice([-9.0, 0.3, 9.0], count)
    changed.loc[outside, "w"] = rng.uniform(0, 9, count)
    changed.loc[outside, "village"] = [f"elsewhere {k}" for k in range(count)]
    return changed


@pytest.mark.sampled(13)
@pytest.mark.parametrize("call", CALLS, ids=IDS)
@pytest.mark.parametrize("asked", ["subset", "all", "cluster"])
def test_records_of_weight_zero_move_nothing(call, asked):
    """Claim 31 rests on it: bit by bit, whatever else is in them."""
    data, given = frame(), {**COUNTING[asked], "subset": "x1 >= 0.3"}
    if call[0] == "dp_ate":
        given["check_bounds"] = True
    expected = run(call, data, **given).to_dict()
    for outside in (data["x1"] < 0.3, data["x1"] == data["x1"].min()):
        assert run(call, elsewhere(data, outside), **given).to_dict() == expected


def test_nor_where_bounds_are_found():
    data = frame()
    given = {"epsilon": 8, "bounds": {}, "seed": 1, "subset": "x1 >= 0.3"}
    found = [
        dpe.dp_ate("y ~ t", table, "diff_in_means", **given).to_dict()
        for table in (data, elsewhere(data, data["x1"] < 0.3))
    ]
    assert found[0] == found[1]


# --- conditions ----------------------------------------------------------------------------------

ROWS = [
    {"x": np.array([x]), "g": np.array([g], object), "b": np.array([b])}
    for x in (-1.0, 0.0, 0.5, 1.0, 2.0, np.nan)
    for g in ("a", "b", "c", None)
    for b in (0.0, 1.0)
]
TEXTS = (
    *("x < 0", "x <= 0", "x > 0", "x >= 0", "x == 0", "x != 0", "x in [0, 1]", "x in [2, 3]"),
    *("g == 'a'", "g == 'b'", "g != 'a'", "g in ['a', 'b']", "g not in ['a', 'b']", "is_na(g)"),
    *("~is_na(g)", "b", "~b", "is_na(x)", "0 <= x & x < 1", "x + 1 < 0", "x + 1 >= 0"),
    *("g == 'a' & x < 1", "g == 'b' | x >= 1", "~(g == 'a' & x < 1)", "x < 0 | x > 1", "x > 1 & b"),
)


def test_conditions_that_exclude_each_other_have_no_row_in_common():
    conditions = [read_condition(text) for text in TEXTS]
    held = [[bool(holds(c, row)[0]) for row in ROWS] for c in conditions]
    found = 0
    for i, j in itertools.product(range(len(TEXTS)), repeat=2):
        if exclude(conditions[i], conditions[j]):
            found += 1
            assert not any(map(np.logical_and, held[i], held[j])), (TEXTS[i], TEXTS[j])
    assert found > 60
    for one, other in [("x < 0", "x >= 0"), ("g == 'a'", "g == 'b'"), ("b", "~b")]:
        assert exclude(read_condition(one), read_condition(other))


@pytest.mark.parametrize(
    "by", ["g", "cut(x1, [0, 0.2, 0.5, 1])", "g + cut(x2, [-1, 0, 1])", "flag"]
)
def test_groups_are_those_of_conditional_effects(by):
    """Each record is in one group, and the same as where `dp_cate` has groups."""
    data = frame(500).assign(flag=lambda d: d["x1"] > 0.7)
    table = read(data, parse(f"y ~ t | {by}"), {**BOUNDS, "x1": (0, 1)}, ())
    index, strata = table.batch.strata(table.design.grouping()), table.design.strata()
    columns = {name: data[name].to_numpy() for name in data}
    for k, choice in enumerate(itertools.product(*map(by_level, strata.factors))):
        texts = [read_condition(render(c)[0]) for c in choice]
        held = np.logical_and.reduce([holds(c, columns) for c in texts])
        np.testing.assert_array_equal(held, index == k)


# --- the price -----------------------------------------------------------------------------------


def spent(found, name):
    return sum(float(s.epsilon) for s in found.charges if s.label.startswith(f"{name}:"))


def test_disjoint_subsets_have_half_of_the_budget_each():
    ledger = Ledger(3)
    found = fit(by=THREE, ledger=ledger)
    assert found.disjoint
    assert [s.claim for s in ledger.charges] == [31]
    assert ledger.remaining == (0, 0)
    assert (found.guarantee.epsilon, sum(s.epsilon for s in found.charges)) == (3, 3)
    alone = fit(epsilon=1.5, subset="g == 'a'").charges
    named = [s for s in found.charges if s.label.startswith("a:")]
    assert [s.scale for s in named] == [s.scale for s in alone]
    assert all(s.covered and "claim 31" in s.label for s in named)


OTHERS = {
    "two": ({"low": "x1 < 0.5", "high": "x1 >= 0.5"}, {}, 2),
    "overlapping": ({"low": "x1 < 0.5", "high": "x1 > 0.4", "a": "g == 'a'"}, {}, 3),
    "units": (THREE, {"unit": "person"}, 3),
    "one": (["x1 < 0.5"], {}, 1),
}


@pytest.mark.parametrize(("by", "more", "parts"), OTHERS.values(), ids=OTHERS)
def test_other_subsets_divide_it(by, more, parts):
    ledger = Ledger(3)
    found = fit(by=by, ledger=ledger, **more)
    for name in found.labels:
        assert spent(found, name) == pytest.approx(3 / parts, rel=1e-9)
    assert ledger.remaining[0] < 1e-9
    assert sum(s.epsilon for s in found.charges) == pytest.approx(3, rel=1e-9)
    assert len(found.disjoint * found.labels) in (0, len(by))


def test_a_record_is_in_no_later_subset_even_if_texts_were_wrong(monkeypatch):
    """Privacy does not rest on what is read from texts."""
    monkeypatch.setattr("dpeffects.subsets.exclude", lambda one, other: True)
    found = fit(epsilon=1e6, by={"a": "x1 < 0.6", "b": "x1 < 2", "c": "x1 < 3"})
    sizes = [float(x) for x in found.details.values()]
    inside = int((frame()["x1"] < 0.6).sum())
    assert sizes[:2] == [inside, 3000 - inside]
    assert sizes[2] == 0


def test_parts_of_a_call_have_at_most_half():
    call = OneCall(Ledger(1), Budget(1), True)
    with pytest.raises(BudgetError):
        call.reserve(Budget(0.6), Terms("record"), {})


def test_ledgers_in_files_have_one_call(tmp_path):
    path = tmp_path / "ledger.db"
    create_ledger(path, epsilon=4, dataset="study")
    fit(by="g", ledger=path, dataset="study")
    assert open_ledger(path, "study").remaining == (1, 0)


BAD = {
    "a column": {"a": "g == 'a'", "b": "nobody == 1"},
    "a condition": ["x1 < 0.5", "x1 = 2"],
    "kinds": {"a": "g == 'a'", "b": 3},
    "twice": ["x1 < 0.5", "x1 < 0.5"],
    "none": [],
    "many": [f"x1 < {k}" for k in range(51)],
    "a number": 3,
    "terms": "x1 < 0.5 & g == 'a'",
    "not discrete": "x1",
    "levels": "village",
    "unknown": "nobody",
}


@pytest.mark.parametrize("by", BAD.values(), ids=BAD)
def test_everything_is_checked_before_the_first_charge(by, tmp_path):
    path = tmp_path / "ledger.db"
    create_ledger(path, "study", epsilon=4)
    for ledger in (Ledger(4), path):
        with pytest.raises(DPEffectsError) as refused:
            fit(by=by, ledger=ledger)
        assert "village 1" not in str(refused.value)
        left = ledger.remaining if isinstance(ledger, Ledger) else open_ledger(path).remaining
        assert left == (4, 0)


# --- what comes back -----------------------------------------------------------------------------


def test_effects_are_those_of_calls_for_each():
    data = frame()
    found = fit(data, epsilon=1e6, by="g + cut(x1, [0, 0.5, 1])")
    assert found.labels[0] == "g a, x1 [0, 0.5]"
    for effect, condition in zip(found.effects, found.subsets, strict=True):
        alone = fit(data, epsilon=1e6, subset=condition)
        assert effect.point == pytest.approx(alone.estimate, abs=1e-3)
    within = fit(data, epsilon=1e6, by=["x1 < 0.5"], subset="g == 'a'")
    assert within.estimates[0] == pytest.approx(found.estimates[0], abs=1e-3)


@pytest.mark.parametrize("function", ["dp_att", "dp_atc"])
def test_other_averages_have_subsets_too(function):
    call = getattr(dpe, function)
    found = call(FORMULA, frame(), "one_step", epsilon=3, by="g", **GIVEN)
    assert found.estimand == function[-3:].upper()


def test_noise_is_not_the_same_in_all():
    """With a seed too."""
    found = fit(by={"one": "x1 < 0.5", "two": "x1 < 0.5 & x1 < 2"})
    assert found.estimates[0] != found.estimates[1]


def test_a_result_with_subsets_is_shown_and_kept():
    found = fit(by=THREE)
    assert dpe.SubsetEffects.from_json(found.to_json()) == found
    frame_ = found.tidy()
    assert frame_["term"].tolist() == ["a", "b", "c"]
    wide = found.conf_int()
    narrow = found.conf_int(simultaneous=False)
    assert (wide[:, 0] < narrow[:, 0]).all()
    text = str(found.summary())
    assert "in 3 subsets" in text
    assert "a (g == 'a')" in text
    assert "(Bonferroni, 3 subsets)" in text
    assert "c (g == 'c'); disjoint." in str(found.report()).replace("\n", " ")
    for form in ("as_html", "as_latex", "as_markdown"):
        assert "in 3 subsets" in getattr(found.summary(), form)()
    alone = found.subset("b")
    assert alone.estimate == found.estimates[1]
    assert alone.sample["by"] == "subset g == 'b'"
    with pytest.raises(OptionError, match="a, b, c"):
        found.subset("d")


def test_differences_between_disjoint_subsets():
    found = fit(by=THREE)
    between = found.difference("a", "b")
    assert between.estimate == pytest.approx(found.estimates[0] - found.estimates[1])
    errors = found.tidy()["std_error"]
    assert between.std_error == pytest.approx(np.hypot(errors[0], errors[1]), rel=0.1)
    with pytest.raises(OptionError, match="share"):
        fit(by=["x1 < 0.5", "x1 < 0.6"]).difference("x1 < 0.5", "x1 < 0.6")


def test_a_subset_of_nobody_leaves_the_others():
    found = fit(by={"all": "x1 < 2", "nobody": "x1 > 2", "few": "x1 > 1.5"})
    assert np.isfinite(found.estimates[0])
    assert np.isnan(found.estimates[1:]).all()
    text = " ".join(str(found.summary()).split())
    assert "Standard errors and intervals of nobody" in text
    assert "nan" not in text
    assert dpe.SubsetEffects.from_json(found.to_json()).to_dict() == found.to_dict()


def test_more_than_two_arms_are_refused():
    ledger = dpe.Ledger(3)
    with pytest.raises(OptionError, match=r"two arms.*leave out by") as told:
        dpe.dp_ate("y ~ g | x1", frame(), epsilon=1, by=["x1 < 0.5"], ledger=ledger, **GIVEN)
    assert "use dp_ate" not in str(told.value)
    assert not ledger.charges


def test_pandas_frames_with_missing_values_in_the_subset():
    data = frame()
    data.loc[:99, "g"] = None
    found = dpe.dp_ate("y ~ t | x1", data, "one_step", epsilon=1e6, by=THREE, **GIVEN)
    sizes = [float(x) for x in found.details.values()]
    assert sizes == pd.Series(data["g"]).value_counts().reindex(["a", "b", "c"]).tolist()
