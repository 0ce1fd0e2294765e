"""Wrong units are noticed by every public call whose n and epsilon carry it; right ones are none.

The rule is public: n times epsilon, and whether all records count.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import dpeffects as dpe
from dpeffects.design.clipped import ClippedRecords
from tests.calls import CALLS, PLAIN
from tests.contract.test_every_call import SITES
from tests.neighbours import BOUNDS, Pair, frame
from tests.replay import Frozen, replay

N, EPSILON = 800, 6.25
COUNTING = {"unit", "subset", "weights", "missing", "max_rows", "check_bounds", "by"}
LABEL = "records with values outside declared ranges"


def _first_of_each():
    """A call of each function, method and level that declares bounds, and where all count."""
    seen = set()
    for name, call in CALLS.items():
        key = (call.function, call.method, call.given.get("level"), call.given.get("release"))
        plain = not COUNTING & set(call.given) and "y" in call.declared
        numbers = call.formula != "g ~ t" and call.function not in SITES
        if plain and numbers and key not in seen:
            seen.add(key)
            yield name


NAMES = list(_first_of_each())


def records(**scaled):
    data = frame(N, 1)
    return data.assign(**{name: data[name] * factor for name, factor in scaled.items()})


def called(name, data, **more):
    call = CALLS[name]
    given = {**call.given, "epsilon": max(call.given.get("epsilon", 1.0), EPSILON), **more}
    return replace(call, given=given).run(data, Frozen(3), Pair("", data, data, 0, BOUNDS))


def said(fit):
    text = str(fit)
    return text if "Values clipped" in text else fit.to_json()


@pytest.mark.sampled(11)
@pytest.mark.parametrize("name", NAMES)
def test_wrong_units_are_noticed_and_right_ones_are_not(name):
    """Kilograms declared as (0, 1) gave an effect with a small p-value and no warning."""
    scaled = records(y=100, x1=100, x2=100, z=100)
    assert "Values clipped" in said(called(name, scaled))
    assert "Values clipped" not in said(called(name, records()))


def test_there_is_a_call_of_every_function():
    functions = {CALLS[name].function for name in NAMES}
    assert functions >= {CALLS[name].function for name in CALLS} - {*SITES}


@pytest.mark.parametrize(
    ("n", "epsilon", "more", "checked"),
    [
        (800, 6.25, {}, True),
        (800, 6.2, {}, False),
        (800, 6.25, {"check_bounds": False}, False),
        (800, 12.5, {"subset": "x1 > 0.1"}, True),
        (800, 12.5, {"missing": "complete"}, True),
        (800, 12.4, {"subset": "x1 > 0.1"}, False),
        (800, 12.4, {"missing": "complete"}, False),
    ],
)
def test_the_rule_is_public(n, epsilon, more, checked):
    given = {"method": "one_step", "bounds": BOUNDS, "epsilon": epsilon, "seed": 1, **more}
    fit = dpe.dp_ate(PLAIN, frame(n, 1), **given)
    assert (LABEL in [charge.label for charge in fit.charges]) is checked
    price = [float(charge.epsilon) for charge in fit.charges if charge.label == LABEL]
    assert sum(price) <= 0.01 * epsilon


def test_the_caution_comes_first_and_the_plan_knows_the_price():
    data = records(x1=100)
    fit = dpe.dp_ate(PLAIN, data, "one_step", bounds=BOUNDS, epsilon=8, seed=1)
    above, about, _ = str(fit).partition("About ")
    assert "Warning: Values clipped" in above
    assert about
    planned = dpe.plan(PLAIN, n=N, epsilon=8, bounds=BOUNDS, method="one_step")
    assert "check_bounds 0.0" in str(planned)
    public = dpe.dp_ate(PLAIN, data, "one_step", bounds=BOUNDS, level="label", epsilon=1, seed=1)
    assert "in about 99 % (x1, x2)" in public.warnings  # for nothing: covariates are public


@pytest.mark.parametrize("how", ["complete", "weight"])
def test_wrong_units_are_noticed_where_outcomes_are_missing(how):
    """Calls that leave records out had no count of them, and no word."""
    for factor, expected in ((100, True), (1, False)):
        data = frame(3000, 1).assign(y=lambda x, factor=factor: factor * x["y"])
        data.loc[::7, "y"] = np.nan
        given = {"bounds": BOUNDS, "epsilon": 8, "seed": 1, "missing": {"y": how}}
        fit = dpe.dp_ate(PLAIN, data, "one_step", **given)
        assert ("Values clipped to declared ranges" in fit.warnings) is expected


def test_neighbours_move_the_count_by_one():
    one, other = (records() for _ in range(2))
    other.loc[5, ["y", "x1", "x2"]] = 1e9, -1e300, np.inf

    def call(data, noise):
        given = {"bounds": BOUNDS, "epsilon": EPSILON, "ledger": noise.ledger(), "seed": noise}
        return dpe.dp_ate(PLAIN, data, "diff_in_means", **given).to_json()

    found = replay(call, one, other)
    assert not found.violations
    assert found.largest == 1.0


def test_right_bounds_have_a_caution_in_less_than_one_call_of_a_hundred():
    """At the least n times epsilon: noise that is 2.86 % of records."""
    noise = np.random.default_rng(0).laplace(0.0, 0.0286 / np.sqrt(2.0), 4000)
    assert sum(bool(ClippedRecords({"y": x}, {"y": 0.0286}).warnings) for x in noise) < 40


# --- ranges that were searched for ----------------------------------------------------------------


def test_a_search_that_lost_many_values_says_so():
    """Of values of both signs those below zero were lost, and an effect had the wrong sign."""
    rng = np.random.default_rng(4)
    n = 1000
    y = np.where(rng.random(n) < 0.2, -1, 1) * np.exp(rng.normal(9, 1.6, n))
    heavy = pd.DataFrame({"y": y, "t": np.arange(n) % 2})
    usual = heavy.assign(y=rng.normal(100, 20, n))
    for data, epsilon, expected in ((heavy, 0.6, True), (heavy, 30, False), (usual, 0.6, False)):
        fit = dpe.dp_ate("y ~ t", data, "diff_in_means", epsilon=epsilon, seed=1)
        assert ("Values clipped to ranges found privately" in fit.warnings) is expected
