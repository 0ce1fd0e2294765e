"""Values that leave the range of their term: no row may move a release by more than its range.

The range of a term is computed from declared bounds, its values by arrays; the two may differ in
the last bit, and a bit is enough for a root of a negative number.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dpeffects as dpe
from dpeffects.design import columns as recipe
from dpeffects.errors import BoundsError
from dpeffects.estimators import proved
from dpeffects.formula import parse
from dpeffects.formula.discrete import Strata
from dpeffects.formula.encoding import Encoding
from dpeffects.formula.expression import Binary, Call, Column, Number, Unary, evaluate
from dpeffects.formula.ranges import clip, range_of
from tests.privacy.bare import magnitude_counts
from tests.replay import replay

NASTY = [math.nan, math.inf, -math.inf, 1e308, -1e308, 5e-324, 0.0, -0.0]
bounded = settings(
    max_examples=300,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)


def test_clip_is_total():
    """A NaN went through the clip, and one record moved a sum without any limit."""
    for interval in [(0.0, 1.0), (-3.0, 9.0), (1e-300, 2e-300), (-1e300, 1e300)]:
        found = clip(np.array(NASTY), interval)
        assert ((found >= interval[0]) & (found <= interval[1])).all()
    assert clip(np.array([math.nan]), (2.0, 6.0))[0] == 4.0
    assert clip(np.array([math.nan]), (-math.inf, math.inf))[0] == 0.0
    assert clip(np.zeros(0), (0.0, 1.0)).size == 0


@pytest.mark.filterwarnings("error:invalid value encountered in cast")
def test_magnitudes_of_what_is_no_number():
    """The private search for a range has a bin for every float, so a count moves by one."""
    for value in NASTY:
        counts = magnitude_counts(np.array([value]))
        assert (counts.sum(), counts.max()) == (1, 1)


TERMS = "x + z + x:z + I(x / z) + log(x) + sqrt(x) + I(x ** 3) + bs(x, knots=[1], lower_bound=0.5, "
TERMS += "upper_bound=2) + cut(x, [0, 1, 2]) + I(x > 1) + g:x + abs(z)"


def test_encoded_rows_are_finite():
    """Covariates are within [0, 1] and strata among the declared ones, whatever a row holds."""
    encoding = Encoding.build(parse(f"y ~ t | {TERMS}"), {"g": ("a", "b")})
    some = np.array(NASTY)
    codes = {"g": np.arange(some.size) % 2}
    with np.errstate(all="ignore"):
        rows = encoding.matrix({"x": some, "z": some[::-1]}, codes, {"x": (0.5, 2), "z": (1, 3)})
    assert np.isfinite(rows).all()
    assert rows.min() >= 0.0
    assert rows.max() <= 1.0
    strata = Strata.build(parse("y ~ t | cut(x, [0, 1, 2]) + I(z > 1) + g"), {"g": ("a", "b")})
    index = strata.index({"x": some, "z": some[::-1]}, codes)
    assert ((index >= 0) & (index < strata.count)).all()


def frame(n=60):
    rng = np.random.default_rng(3)
    x1 = rng.random(n)
    y = rng.uniform(0.05, 1.0, n)
    y[7] = 0.0
    t = rng.random(n) < 0.5
    return pd.DataFrame({"y": y, "t": t, "x1": x1, "g": rng.choice(list("abc"), n)})


@pytest.mark.sampled(3)
@pytest.mark.filterwarnings("error:invalid value encountered in cast")
@pytest.mark.parametrize("name", proved())
def test_an_undefined_outcome_moves_a_release_within_its_sensitivity(name, monkeypatch):
    """A record whose outcome was a root of a negative number in the last bit moved the release
    "outcome regression" by 1.8e19 steps, against a declared sensitivity of 4.0e11."""

    def broken(term, columns):
        """A term whose value at the lower end is NaN, as a root of minus one ulp is."""
        found = np.array(evaluate(term, columns))
        found[found == 0.0] = math.nan
        return found

    monkeypatch.setattr(recipe.ex, "evaluate", broken)
    data = frame()
    other = data.assign(y=np.where(data["y"] == 0.0, 0.9, data["y"]))
    formula = "y ~ t | g + cut(x1, [0, 0.5, 1])"
    more = {"bounds": {"y": (0, 1), "g": list("abc")}, "epsilon": 1.0}
    more["delta"] = 1e-5 if proved()[name].needs_delta else 0.0
    found = replay(lambda data, _: dpe.dp_ate(formula, data, name, **more), data, other)
    assert not found.violations


@pytest.mark.parametrize("power", [2.0, 3.0, 0.5, 1.7, -1.0, -2.5])
def test_a_power_is_enclosed(power):
    """Ranges came from powers of single numbers and values from powers of arrays, which differ in
    the last bit for some bases: a root of the difference was defined or not, depending on rows."""
    bases = np.random.default_rng(1).uniform(0.3, 9.0, 3000)
    values = bases**power
    for base, value in zip(bases, values, strict=True):
        lower, upper = range_of(Binary("**", Column("x"), Number(power)), {"x": (base, base + 1)})
        assert lower <= value <= upper


def test_the_root_of_a_difference_that_rounding_decides_is_refused():
    """With y = 3.254 the term was NaN on some machines, and so a site answered or not."""
    data = pd.DataFrame({"y": [3.254, 4.0, 4.2, 5.0], "t": [0, 1, 0, 1]})
    ledger = dpe.Ledger(1.0)
    for outcome in (
        "I((y**3 - 34.455031064)**0.5)",
        "I(((abs(y - 4.2) + 3.254)**3 - 34.455031064)**0.5)",
    ):
        with pytest.raises(BoundsError, match="declare a lower bound of 0 or more"):
            dpe.dp_ate(
                f"{outcome} ~ t",
                data,
                "diff_in_means",
                epsilon=1,
                bounds={"y": (3.254, 5)},
                ledger=ledger,
            )
    assert not ledger.charges


def expressions():
    numbers = st.floats(-50, 50, allow_nan=False).map(lambda v: Number(round(v, 3)))
    powers = st.sampled_from([2.0, 3.0, 0.5, 1.5, -1.0, -0.5, 4.0]).map(Number)
    leaves = st.one_of(st.just(Column("x")), st.just(Column("z")), numbers)

    def more(inner):
        pairs = st.tuples(st.sampled_from("+-*/"), inner, inner)
        names = st.sampled_from(["log", "log2", "log10", "log1p", "sqrt", "exp", "expm1", "abs"])
        return st.one_of(
            pairs.map(lambda p: Binary(*p)),
            st.tuples(inner, powers).map(lambda p: Binary("**", *p)),
            st.tuples(names, inner).map(lambda p: Call(*p)),
            inner.map(lambda x: Unary("-", x)),
        )

    return st.recursive(leaves, more, max_leaves=8)


ends = st.tuples(st.floats(-20, 20, allow_nan=False), st.floats(0.001, 30, allow_nan=False)).map(
    lambda pair: (pair[0], pair[0] + pair[1])
)


@bounded
@given(expressions(), ends, ends, st.integers(0, 2**30))
def test_values_of_a_term_lie_in_its_range(term, x, z, seed):
    """Whatever term was accepted for the declared bounds, its values are finite and within."""
    try:
        lower, upper = range_of(term, {"x": x, "z": z})
    except BoundsError:
        return
    rng = np.random.default_rng(seed)
    columns = {
        name: np.concatenate([[a, b, a, b, np.nextafter(a, b)], rng.uniform(a, b, 40)])
        for name, (a, b) in (("x", x), ("z", z))
    }
    columns["z"][2:4] = columns["z"][1], columns["z"][0]
    values = np.broadcast_to(evaluate(term, columns), 45)
    assert np.isfinite(values).all()
    assert values.min() >= lower
    assert values.max() <= upper
