"""No type that one value decides: tables whose types differ because of one record.

Pairs are `tests.neighbours.TYPES`, in all kinds of frames. What a formula and declarations make of
two such tables (the design) is the same, and so is everything that leaves a call (see
`tests/replay.py`); or one of them is refused before the first charge. `test_replay.py` has every
call on some of these pairs as well, and `make evidence TABLE=replay` on all.
"""

from __future__ import annotations

import datetime
import itertools

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pytest

import dpeffects as dpe
from dpeffects.design.bounds import Bounds
from dpeffects.design.codebook import opened
from dpeffects.design.sample import AnalysisSample
from dpeffects.design.table_reader import read
from dpeffects.errors import BoundsError, DataError, DPEffectsError
from dpeffects.formula import parse
from tests.calls import CALLS, KINDS
from tests.neighbours import TYPES, frame, pair
from tests.replay import replay

FORMULAS = ["y ~ t | x1 + x2 + g", "x1 ~ t | y + cut(x2, [-1, 0, 1])", "y ~ g | t + z + I(x1 * x2)"]
WORDS = ["complete", "indicator", "weight", "error"]
FUNCTIONS = {call.function: name for name, call in reversed(CALLS.items())}
"""A call of every public function."""


def design(data, formula, bounds, word, term):
    """What is made of a table, or why not."""
    known = {name: bound for name, bound in bounds.items() if term or name != "d"}
    parsed = parse(f"{formula} + {term}" if term else formula)
    try:
        found = read(
            data, parsed, known, (), sample=AnalysisSample.asked(parsed, missing=word)
        ).design
    except DPEffectsError as error:
        return str(error)
    return found, found.values


@pytest.mark.sampled(5)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", TYPES)
def test_designs_are_those_of_declarations(name, kind):
    nasty, compared = pair(name, 60), 0
    tables = [KINDS[kind](table) for table in nasty.ordered()]
    words = WORDS[:3] if nasty.missing else WORDS[-1:]
    some = FORMULAS[:1] if kind in ("duckdb", "file") else FORMULAS  # these take longer
    for formula, word in itertools.product(some, words):
        one, other = (design(x, formula, nasty.bounds, word, nasty.term) for x in tables)
        if not (isinstance(one, str) or isinstance(other, str)):
            assert one == other, (formula, word)
            compared += 1
    assert compared


@pytest.mark.sampled(7)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_every_function_shows_the_same(function):
    call, first, answered = CALLS[FUNCTIONS[function]], list(FUNCTIONS).index(function), 0
    for k, name in enumerate(TYPES):
        kind = list(KINDS)[(first + k) % len(KINDS)] if k % 2 else ""
        word = WORDS[(first + k) % 3] if function == "dp_ate" else "complete"
        found = call.replay(name, kind, seed=k, word=word)
        assert not found.violations, (name, kind, word)
        answered += not found.refused
    assert answered


@pytest.mark.sampled(5)
@pytest.mark.parametrize("kind", KINDS)
def test_units_and_clusters_are_the_same_names_in_every_type(kind):
    """One name is no whole number, or all become floats, or text."""
    data = frame(60, 0).assign(u=np.arange(60) // 2, d=np.arange(60) // 6)
    other = data.assign(u=data["u"].replace(3, 33.5), d=data["d"].astype(float))
    other.loc[other["u"] == 33.5, ["y", "t", "d"]] = [0.5, True, 0.5]

    def call(table, noise):
        about = {"epsilon": 9.0, "bounds": {"y": (0, 1), "x1": (0, 1)}, "ledger": noise.ledger()}
        both = {"unit": "u", "max_rows": 2, "cluster": "d"}
        return dpe.dp_ate("y ~ t | x1", table, "one_step", seed=noise, **about, **both)

    found = replay(call, KINDS[kind](data), KINDS[kind](other))
    assert (found.violations, found.refused) == ((), "")


@pytest.mark.sampled(5)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("gap", [None, 0.5])
def test_rows_of_periods(kind, gap):
    rows = pd.DataFrame({"who": np.repeat(np.arange(40), 2), "year": [0, 1] * 40})
    rows["y"], rows["t"], rows["x"] = rows["who"] % 2, rows["who"] // 2 % 2, rows["who"] % 3
    other = rows.copy()
    for name in ("y", "x"):
        other[name] = pd.Series([*rows[name][:-1], gap])

    def call(table, noise):
        panel = {"unit": "who", "time": "year", "periods": [0, 1], "missing": "complete"}
        about = {"epsilon": 9.0, "bounds": {"y": (0, 1), "x": (0, 2)}, "ledger": noise.ledger()}
        return dpe.dp_did("y ~ t | x", table, seed=noise, **panel, **about)

    found = replay(call, KINDS[kind](rows), KINDS[kind](other))
    assert (found.violations, found.refused) == ((), "")


# --- what is declared -----------------------------------------------------------------------------


TWO = [[0, 1], [False, True], range(2), [0.0, 1.0]]


def risk(kind, bound, values=None, **given):
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"t": np.arange(400) % 2, "died": rng.integers(0, 2, 400)})
    if values is not None:
        data["died"] = values(data["died"])
    bounds = {} if bound is None else {"died": bound}
    return dpe.dp_ate("died ~ t", KINDS[kind](data), epsilon=1, bounds=bounds, seed=1, **given)


def test_two_values_are_declared_in_several_ways_or_bools():
    expected = risk("", range(2))
    for kind in KINDS:
        for bound in TWO:
            found = risk(kind, bound)
            assert found.charges == expected.charges, (kind, bound)
            assert found.estimate == expected.estimate
    of_bools = risk("", None, lambda x: x == 1)
    assert (of_bools.charges, of_bools.estimate) == (expected.charges, expected.estimate)
    assert risk("", (0, 1)).charges != expected.charges
    assert "isks of died = 1, in per cent, were" in expected.report().text
    assert "in per cent" not in risk("", (0, 1)).report().text


@pytest.mark.parametrize("kind", KINDS)
def test_other_numbers_than_the_declared_ones_are_refused(kind):
    ledger = dpe.Ledger(1.0)
    with pytest.raises(
        DataError, match="'died' is declared with whole numbers but contains others"
    ):
        risk(kind, [0, 1], lambda x: x * 0.5, method="diff_in_means", ledger=ledger)
    assert not ledger.charges


def test_the_note_says_how_to_declare_two_values():
    said = 'bounds={"died": [0, 1]}'
    assert said in " ".join(risk("", (0, 1)).notes)
    assert said not in " ".join(risk("", [0, 1]).notes)


def test_whole_numbers_are_ranges_levels_of_factors_and_lines_of_codebooks():
    data = frame(200, 0).assign(visits=np.arange(200) % 8)
    bounds = {"visits": range(11), "x1": (0, 1), "y": (0, 1)}
    found = dpe.dp_qte("visits ~ t", data, epsilon=1, bounds=bounds, design="randomised", seed=1)
    assert found.whole
    assert not dpe.dp_qte("visits ~ t", data, epsilon=1, bounds={"visits": (0, 10)}).whole
    of_levels = dpe.dp_ordinal("visits ~ t", data, epsilon=1, bounds=bounds, seed=1)
    assert len(of_levels.levels) == 11
    book = pd.DataFrame({"name": ["visits"], "min": [0], "max": [10], "whole": ["true"]})
    assert opened(book)["visits"] == range(11)
    protocol = dpe.Protocol("visits ~ t", epsilon=1, bounds={"visits": range(11)})
    assert dpe.Protocol.from_toml(protocol.to_toml()).bounds["visits"] == range(11)
    kept = Bounds.declared(bounds).as_used({"visits": "number"})
    assert kept.only(["visits"]).updated(Bounds()).whole == {"visits"}


def test_levels_that_duckdb_took_from_categories_are_learnt():
    data = frame(60, 0).assign(g=pd.Categorical(frame(60, 0)["g"]))
    bounds = {"y": (0, 1)}
    with pytest.raises(BoundsError, match="the levels of g must be declared"):
        dpe.dp_ate("y ~ t | g", duckdb.from_df(data), epsilon=1, bounds=bounds)


@pytest.mark.parametrize("make", [lambda x: x, lambda x: pl.from_pandas(x).lazy(), duckdb.from_df])
def test_a_gap_in_clusters_is_refused_before_the_charge(make):
    data = frame(60, 0).assign(c=[None, *np.arange(59) % 9])
    ledger, bounds = dpe.Ledger(9.0), {"y": (0, 1), "x1": (0, 1)}
    with pytest.raises(DataError, match=r'name these rows, as data\["c"\]'):
        dpe.dp_ate("y ~ t | x1", make(data), epsilon=9, cluster="c", bounds=bounds, ledger=ledger)
    assert not ledger.charges


@pytest.mark.parametrize("kind", ["", "polars", "polars in memory", "duckdb", "pyarrow"])
def test_lists_are_names_of_units(kind):
    rows = pd.DataFrame({"who": [[k // 2] for k in range(80)], "year": [0, 1] * 40})
    rows["y"], rows["t"] = 0.5, np.arange(80) // 2 % 2
    panel = {"unit": "who", "time": "year", "periods": [0, 1], "bounds": {"y": (0, 1)}}
    assert dpe.dp_did("y ~ t", KINDS[kind](rows), epsilon=9, **panel).n == 40


def test_names_that_floats_cannot_tell_apart_are_refused():
    data = frame(60, 0).assign(u=2.0**53 + np.arange(60))
    with pytest.raises(DataError, match="convert it to text"):
        dpe.dp_ate("y ~ t", data, epsilon=9, unit="u", bounds={"y": (0, 1)})


def test_dates_in_every_type():
    days = [datetime.date(2020, 1, 1 + k % 28) for k in range(60)]
    data, bounds = frame(60, 0), {"y": (0, 1), "d": ("2020-01-01", "2020-01-31")}
    made = [
        days,
        pd.to_datetime(days),
        [str(day) for day in days],
        pd.array(days, "date32[pyarrow]"),
    ]
    found = [
        dpe.dp_ate("y ~ t | d", data.assign(d=x), "one_step", epsilon=9, bounds=bounds, seed=1)
        for x in made
    ]
    assert len({fit.estimate for fit in found}) == 1
