"""Formulas, bounds, frames, options and files that nobody would write.

Whatever comes in, a call ends with a result or with one error of ours, and an error before the
first draw charges nothing. The number of examples is fixed, so a run takes seconds.
"""

from __future__ import annotations

import contextlib
import copy
import datetime
import decimal
import json
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import dpeffects as dpe
from dpeffects.audit import audit
from dpeffects.documents import checksum
from dpeffects.methods import proved
from dpeffects.privacy.noise import SeededNoise

bounded = settings(
    max_examples=120,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
METHODS = list(proved())
BOUNDS = {"y": (0, 1), "x": (0, 1), "g": ["a", "b"]}
N = 24


def frame(n=N, **columns):
    index = np.arange(n)
    base = {
        "y": (index % 5) / 4.0,
        "t": index % 2,
        "x": (index * 7 % 11) / 10.0,
        "g": np.where(index % 3, "a", "b"),
    }
    return pd.DataFrame({**base, **columns})


class Counting(SeededNoise):
    """Counts draws."""

    def __init__(self):
        super().__init__(1)
        self.draws = 0

    def laplace(self, *given):
        self.draws += 1
        return super().laplace(*given)

    def gaussian(self, *given):
        self.draws += 1
        return super().gaussian(*given)

    def flip(self, *given):
        self.draws += 1
        return super().flip(*given)


def survives(call, *args, **given):
    """Only our errors; nothing charged where nothing was drawn."""
    ledger, noise = dpe.Ledger(1e9, 0.5), Counting()
    given = {"ledger": ledger, "seed": noise, **given}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            fit = call(*args, **given)
        except dpe.DPEffectsError:
            assert noise.draws or ledger.spends == ()
            return None
    json.loads(fit.to_json())
    assert all(len(line) <= 80 for line in str(fit).splitlines())
    return fit


# --- formulas -----------------------------------------------------------------------------------

TOKENS = [
    *("y", "t", "x", "g", "z", "1", "0", "-1", "2.5", "1e400", "nan", "`x`", "`a b`", "'a'", ""),
    *("~", "|", "+", "-", "*", ":", "/", "**", "^", "%in%", "(", ")", ",", "[", "]", "{", "}", "="),
    *("log", "sqrt", "exp", "I", "C", "cut", "bs", "levels", "knots", "poly", "scale", "abs", "if"),
    *("cut(x, [0, 0.5, 1])", "C(g, levels=['a', 'b'])", "I(x**2)", "log(x + 1)", "y ~ t | ", " "),
    *("lambda", "__import__('os')", ".", "..", "\\", "\n", "#", "é", "\x00", "x" * 50, "1/0"),
]
formulas = st.one_of(
    st.lists(st.sampled_from(TOKENS), max_size=12).map("".join),
    st.lists(st.sampled_from(TOKENS), max_size=8).map(
        lambda parts: "y ~ t | x + " + " ".join(parts)
    ),
    st.text(max_size=20).map(lambda text: f"y ~ t | {text}"),
    st.text(max_size=30),
    st.one_of(st.none(), st.integers(), st.binary(max_size=5), st.lists(st.text(), max_size=2)),
)


@bounded
@given(formulas, st.sampled_from(METHODS))
def test_formulas(formula, method):
    survives(dpe.dp_ate, formula, frame(), method, epsilon=1, delta=1e-5, bounds=BOUNDS)


@bounded
@given(formulas)
def test_formulas_of_conditional_effects(formula):
    survives(dpe.dp_cate, formula, frame(), release="groups", by="g", epsilon=1, bounds=BOUNDS)


# --- bounds -------------------------------------------------------------------------------------

numbers = st.one_of(
    st.floats(),
    st.integers(-(10**400), 10**400),
    st.sampled_from([0, 1, -0.0, 5e-324, 1e308, -1e308, 1e16, 1e-16, 2**53]),
)
things = st.one_of(
    numbers,
    st.none(),
    st.booleans(),
    st.text(max_size=4),
    st.binary(max_size=3),
    st.just(np.float64(0.5)),
    st.just(decimal.Decimal("0.1")),
    st.just(datetime.date(2020, 1, 1)),
    st.just(object()),
)
entries = st.one_of(
    st.tuples(numbers, numbers),
    st.lists(things, max_size=4),
    st.tuples(things),
    st.tuples(things, things, things),
    st.sets(st.integers(), max_size=3),
    st.dictionaries(st.text(max_size=2), st.integers(), max_size=2),
    things,
    st.lists(st.sampled_from(["a", "b", "c"]), max_size=4),
)
bounds = st.one_of(
    st.dictionaries(st.sampled_from(["y", "x", "g", "t", "z", ""]), entries, max_size=5),
    st.dictionaries(things.filter(lambda v: not isinstance(v, bytes)), entries, max_size=2),
    st.sampled_from(["from_data", "from data", "", 3, [("y", (0, 1))], ()]),
)


@bounded
@given(bounds, st.sampled_from(METHODS), st.booleans())
def test_bounds(given_bounds, method, complete):
    if complete and isinstance(given_bounds, dict):
        given_bounds = {**BOUNDS, **given_bounds}
    formula = "y ~ t | g" if proved()[method].needs_strata else "y ~ t | x + g"
    survives(dpe.dp_ate, formula, frame(), method, epsilon=1, delta=1e-5, bounds=given_bounds)


@bounded
@given(bounds)
def test_declarations(given_bounds):
    with contextlib.suppress(dpe.DPEffectsError):
        dpe.declare(frame(), given_bounds)


# --- frames -------------------------------------------------------------------------------------


def column(elements):
    return st.lists(elements, min_size=N, max_size=N)


columns = st.one_of(
    column(st.floats()),
    column(st.floats(0, 1)),
    column(st.integers(0, 1)),
    column(st.booleans()),
    column(st.integers(-(10**30), 10**30)),
    column(st.sampled_from(["a", "b"])),
    column(st.sampled_from(["a", "b", None, 1, 2.5, float("nan")])),
    column(st.sampled_from([0, 1, None])).map(lambda v: pd.array(v, dtype="Int64")),
    column(st.sampled_from(["a", "b"])).map(pd.Categorical),
    column(st.sampled_from([0.0, 0.5, 1.0])).map(lambda v: pd.cut(pd.Series(v), [-1, 0.2, 2])),
    column(st.dates()).map(pd.to_datetime),
    column(st.complex_numbers(allow_nan=False)),
    column(st.just(decimal.Decimal("0.5"))),
    column(st.lists(st.integers(), max_size=1)),
    column(st.floats(0, 1, width=16)).map(lambda v: np.array(v, dtype=np.float16)),
    column(st.integers(0, 255)).map(lambda v: np.array(v, dtype=np.uint8)),
)
frames = st.dictionaries(st.sampled_from(["y", "t", "x", "g"]), columns, max_size=3).map(
    lambda made: frame(**made)
)
odd_frames = st.one_of(
    st.none(),
    st.integers(),
    st.just({"y": [1]}),
    st.just([[1, 2]]),
    st.just(np.zeros((5, 3))),
    st.just(pd.Series([1.0, 2.0])),
    st.integers(0, 5).map(lambda n: frame().iloc[:n]),
    st.just(pd.concat([frame(), frame()[["y"]]], axis=1)),  # a name twice
    st.just(frame().rename(columns={"x": 7})),
    st.just(frame().set_index("g")),
    st.just(frame().set_axis(pd.MultiIndex.from_product([["a"], ["y", "t", "x", "g"]]), axis=1)),
)


@bounded
@given(
    frames,
    st.sampled_from(METHODS),
    st.sampled_from([BOUNDS, {"y": (0, 1)}, None, "from_data"]),
    st.sampled_from([None, "label"]),
)
def test_frames(data, method, given_bounds, level):
    formula = "y ~ t | g" if proved()[method].needs_strata else "y ~ t | x + g"
    call = {"epsilon": 1, "delta": 1e-5, "bounds": given_bounds, "level": level}
    survives(dpe.dp_ate, formula, data, method, **call)


@bounded
@given(frames)
def test_frames_of_conditional_effects(data):
    survives(dpe.dp_cate, "y ~ t | x", data, release="groups", by="g", epsilon=1, bounds=BOUNDS)


@bounded
@given(odd_frames, st.sampled_from(METHODS))
def test_odd_frames(data, method):
    survives(dpe.dp_ate, "y ~ t | g", data, method, epsilon=1, delta=1e-5, bounds=BOUNDS)


# --- options ------------------------------------------------------------------------------------

NAMES = sorted(
    {f for spec in proved().values() for f in spec.options.__dataclass_fields__}
    | {"level", "variance", "shares", "neighbours", "release", "at", "by", "kernel", "clip"}
)
values = st.one_of(
    things,
    st.sampled_from(["private", "public", "sample", "label", "objective", "output", "arms", "all"]),
    st.sampled_from([1, 2, 5, 0.1, 0.5, True, False, None, (1, 2), [1, 2], "gaussian", "auto"]),
    st.dictionaries(st.sampled_from(["estimate", "variance", "counts", "z"]), numbers, max_size=2),
)
options = st.dictionaries(st.sampled_from(NAMES), values, max_size=3)
prices = st.fixed_dictionaries(
    {
        "epsilon": st.one_of(things, st.sampled_from([1, 0.1, 1e-9, 1e8])),
        "delta": st.one_of(things, st.sampled_from([0, 1e-5, 0.3, 1e-300])),
    }
)


@bounded
@given(st.sampled_from(METHODS), options, st.sampled_from(["dp_ate", "dp_att", "dp_atc"]))
def test_options(method, given_options, function):
    formula = "y ~ t | g" if proved()[method].needs_strata else "y ~ t | x"
    call = getattr(dpe, function)
    survives(call, formula, frame(), method, epsilon=1, delta=1e-5, bounds=BOUNDS, **given_options)


@bounded
@given(st.sampled_from(METHODS), prices)
def test_prices(method, price):
    formula = "y ~ t | g" if proved()[method].needs_strata else "y ~ t | x"
    fit = survives(dpe.dp_ate, formula, frame(), method, bounds=BOUNDS, **price)
    if fit is not None:
        assert fit.guarantee.epsilon <= float(price["epsilon"])
        assert fit.guarantee.delta <= float(price["delta"])


@bounded
@given(things, things, st.one_of(things, st.just(dpe.Ledger(0.5))))
def test_methods_ledgers_and_seeds(method, seed, ledger):
    assume(not isinstance(seed, int) or isinstance(seed, bool) or seed < 0)
    assume(ledger is not None or seed is not None)
    given_ = {"epsilon": 1, "bounds": BOUNDS}
    for change in ({"method": method}, {"seed": seed}, {"ledger": ledger}):
        survives(dpe.dp_ate, "y ~ t | x", frame(), **given_, **change)


@bounded
@given(options)
def test_options_of_conditional_effects(given_options):
    with_groups = {"release": "groups", "by": "g", **given_options}
    survives(dpe.dp_cate, "y ~ t | x", frame(), epsilon=1, bounds=BOUNDS, **with_groups)


@bounded
@given(
    st.dictionaries(
        st.sampled_from(["runs", "confidence", "watch", "noise", "workers", "seed", "pairs"]),
        values.filter(lambda v: not isinstance(v, int | float) or isinstance(v, bool)),
        min_size=1,
        max_size=2,
    )
)
def test_options_of_an_audit(given_options):
    with contextlib.suppress(dpe.DPEffectsError):
        audit("diff_in_means", **{"epsilon": 1, "runs": 100, "library": False, **given_options})


# --- files --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A released function as plain values, and where to write what was made of it."""
    fit = dpe.dp_cate("y ~ t | x + g", frame(), epsilon=5, bounds=BOUNDS, seed=1)
    folder = tmp_path_factory.mktemp("fuzz")
    fit.save(folder / "right.json")
    return json.loads((folder / "right.json").read_text()), folder / "wrong.json"


def places(value, here=()):
    """Paths to every entry of nested values."""
    if isinstance(value, dict):
        entries_ = value.items()
    elif isinstance(value, list):
        entries_ = list(enumerate(value))[:3]
    else:
        return [here]
    found = [here] if here else []
    for key, entry in entries_:
        found += places(entry, (*here, key))
    return found


junk = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**20), 10**20),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=5),
    st.just([]),
    st.just({}),
    st.just([1, [2, "x"]]),
)


@bounded
@given(st.data())
def test_files_of_functions(saved, data):
    right, path = saved
    wrong = copy.deepcopy(right)
    for _ in range(data.draw(st.integers(1, 2))):
        *way, last = data.draw(st.sampled_from(places(right)))
        inside = wrong
        try:
            for key in way:
                inside = inside[key]
            if data.draw(st.booleans()):
                inside[last] = data.draw(junk)
            else:
                del inside[last]
        except (KeyError, IndexError, TypeError):
            continue  # an earlier change took it away
    if data.draw(st.booleans()):
        wrong["checksum"] = checksum(wrong)
    path.write_text(json.dumps(wrong))
    with contextlib.suppress(dpe.DPEffectsError):
        fit = dpe.load_cate(path)
        assert json.loads(fit.to_json())
        assert np.isfinite(fit.effect({"x": [0.2, 0.8], "g": ["a", "b"]})).all()


@bounded
@given(st.one_of(st.text(max_size=30), st.sampled_from(["{}", "[]", "null", "{", "1e999", "NaN"])))
def test_files_that_are_something_else(saved, text):
    _, path = saved
    path.write_text(text, encoding="utf-8", errors="replace")
    with pytest.raises(dpe.DPEffectsError):
        dpe.load_cate(path)


@bounded
@given(frames, st.booleans())
def test_queries(saved, data, complete):
    right, path = saved
    path.write_text(json.dumps(right))
    fit = dpe.load_cate(path)
    query = data if complete else data[["x"]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with contextlib.suppress(dpe.DPEffectsError):
            assert np.isfinite(fit.effect(query)).all()
