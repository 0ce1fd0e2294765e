"""Outcomes with two declared levels: the same answers as for a column of 0 and 1."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import dpeffects as dpe
from dpeffects.errors import BoundsError, DataError, ReleaseError
from tests.test_engines import csv, duckdb_relation, parquet, polars_eager, polars_lazy

N = 1500
BOUNDS = {"x": (0, 1)}
LEVELS = {"died": ["No", "Yes"], **BOUNDS}
CALLS = {
    "a trial": ("dp_ate", {"design": "randomised"}),
    "adjusted": ("dp_ate", {"epsilon": 4}),
    "weighting": ("dp_att", {"method": "private_ipw"}),
    "matching": ("dp_ate", {"method": "private_psm"}),
    "outcomes are private": ("dp_ate", {"method": "private_ipw", "level": "label"}),
    "complete records": ("dp_ate", {"missing": "complete"}),
    "a learner": ("dp_cate", {"release": "groups", "by": "cut(x, [0, 0.5, 1])"}),
    "a test": ("dp_randomisation_test", {"treated_share": 0.5}),
}


def frame():
    rng = np.random.default_rng(0)
    t = np.arange(N) % 2
    event = (rng.random(N) < 0.4 - 0.2 * t).astype(int)
    return pd.DataFrame(
        {"t": t, "x": rng.random(N), "event": event, "died": np.where(event, "Yes", "No")}
    )


def answer(outcome, data, bounds, function="dp_ate", given=None):
    """Estimates of a call, and nothing that has the name of the outcome."""
    call = {"epsilon": 1, "seed": 1, "bounds": bounds} | (given or {})
    formula = f"{outcome} ~ t" + ("" if function == "dp_randomisation_test" else " | x")
    fit = getattr(dpe, function)(formula, data, **call)
    return fit, fit.tidy().drop(columns=["outcome"], errors="ignore")


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_two_levels_are_0_and_1(call):
    data = frame().astype({"event": "Int64"})
    if "missing" in call[1]:
        data.loc[::3, ["died", "event"]] = None
    _, ours = answer("died", data, LEVELS, *call)
    _, theirs = answer("event", data, {"event": [0, 1], **BOUNDS}, *call)
    pd.testing.assert_frame_equal(ours, theirs)


def test_the_second_level_is_the_event_and_the_result_says_so():
    fit, table = answer("died", frame(), LEVELS)
    assert "died is 1 where it is Yes, and 0 where it is No." in fit.notes
    turned, _ = answer("died", frame(), {**LEVELS, "died": ["Yes", "No"]}, given={"epsilon": 1e6})
    exact, _ = answer("event", frame(), {"event": [0, 1], **BOUNDS}, given={"epsilon": 1e6})
    assert turned.estimate == pytest.approx(-exact.estimate, abs=1e-3)
    assert table["estimate"][0] < 0.0


@pytest.mark.parametrize("place", [csv, duckdb_relation, parquet, polars_eager, polars_lazy])
def test_on_engines(place, tmp_path):
    here, _ = answer("died", frame(), LEVELS)
    there, _ = answer("died", place(frame(), tmp_path), LEVELS)
    assert (there.estimate, there.std_error) == (here.estimate, here.std_error)


def test_a_value_that_is_no_level_is_refused_before_anything_is_paid():
    ledger = dpe.Ledger(1)
    with pytest.raises(DataError, match="that are not among its declared levels") as caught:
        dpe.dp_ate("died ~ t", frame(), epsilon=1, bounds={"died": ["no", "yes"]}, ledger=ledger)
    assert ledger.charges == ()
    assert "Yes" not in str(caught.value)
    with pytest.raises(BoundsError, match="use dp_ordinal"):
        dpe.dp_ate("died ~ t", frame(), epsilon=1, bounds={"died": ["No", "Yes", "?"]})


def test_a_plan_knows_them():
    about = {"n": 1000, "epsilon": 1, "method": "diff_in_means", "repeats": 2}
    plans = [dpe.plan("y ~ t", bounds={"y": known}, **about) for known in (["No", "Yes"], [0, 1])]
    one, other = (found.tidy() for found in plans)
    pd.testing.assert_frame_equal(one, other)


def sent(site, died=("No", "Yes"), t=(0, 1)):
    data = frame().assign(t=np.array(t)[frame()["t"]])
    known = {"died": list(died), **({} if t == (0, 1) else {"t": list(t)})}
    about = {"site": site, "epsilon": 1, "bounds": known, "design": "randomised"}
    return dpe.site_release("died ~ t", data, **about)


def test_sites_agree_on_the_event():
    ours = sent("north")
    assert dpe.combine([ours, sent("south")]).estimate < 0.0
    assert ours.bounds[0] == ("died", "[0, 1]", "declared")
    with pytest.raises(ReleaseError, match="'north' and 'west' differ in levels: died is 1 where"):
        dpe.combine([ours, sent("west", ["Yes", "No"])])


def test_sites_agree_on_who_is_treated():
    """Levels in another order turn the effect round."""
    ours = sent("north", t=("usual", "new"))
    assert "Treated records have t = new, control records t = usual." in ours.released.notes
    combined = dpe.combine([ours, sent("south"), sent("east", t=("usual", "new"))])
    assert combined.estimate < 0.0  # 0 and 1 need no words
    turned = dpe.site_release(
        "died ~ t",
        frame().assign(t=np.array(["usual", "new"])[frame()["t"]]),
        site="west",
        epsilon=1,
        bounds={"died": ["No", "Yes"], "t": ["new", "usual"]},
        design="randomised",
    )
    with pytest.raises(ReleaseError, match="declare them in the same order"):
        dpe.combine([ours, turned])


@pytest.mark.parametrize("values", [(0, 1), (0.0, 1.0), (False, True)], ids=str)
def test_sites_whose_zero_is_the_event_or_treated_are_not_combined_with_others(values):
    """A site that declares nothing has 0 and 1 in this order, and need not say so."""

    def of(site, **turned):
        data = frame()
        data["event"], data["t"] = (np.array(values)[data[name]] for name in ("event", "t"))
        known = {name: list(values[::-1]) for name in turned}
        known.setdefault("event", (0, 1))
        about = {"site": site, "epsilon": 1, "bounds": known, "design": "randomised"}
        return dpe.site_release("event ~ t", data, **about)

    ours = of("north")
    assert dpe.combine([ours, of("south")]).estimate < 0.0
    for west in (of("west", event=True), of("west", t=True)):
        for sites in ([ours, west], [west, ours]):
            with pytest.raises(
                ReleaseError, match="'north' and 'west' differ in levels: 0 and 1 as"
            ):
                dpe.combine(sites)


def test_levels_are_no_numbers_inside_of_a_function():
    with pytest.raises(BoundsError, match="has declared levels, which are no numbers here"):
        dpe.dp_ate("I(died >= 1) ~ t", frame(), epsilon=1, bounds={"died": ["No", "Yes"]})


@pytest.mark.parametrize("level", ["Yes\u00a0", "Yes\x1b[31m", "Y" * 20_000])
def test_a_level_that_cannot_be_printed_does_not_stop_a_site_that_has_paid(level):
    data, levels = frame(), ["No", level]
    data["died"], data["t"] = (np.array(levels)[data[name]] for name in ("event", "t"))
    about = {"epsilon": 1, "bounds": {"died": levels, "t": levels}, "design": "randomised"}
    sent = dpe.site_release("died ~ t", data, site="north", **about)
    assert dpe.SiteRelease.from_json(sent.to_json()) == sent
    turned = about | {"bounds": {"died": levels, "t": levels[::-1]}}
    other = dpe.site_release("died ~ t", data, site="west", **turned)
    with pytest.raises(ReleaseError, match="differ in levels: Treated records have t = "):
        dpe.combine([sent, other])


def test_tables_and_results_of_sites_that_turn_the_arms_round_are_not_combined():
    data = frame().assign(t=np.array(["usual", "new"])[frame()["t"]])
    known = {"North": ["usual", "new"], "West": ["new", "usual"]}
    about = {"epsilon": 1, "design": "randomised"}
    tables = {
        site: dpe.dp_ordinal("died ~ t", data, bounds={"died": ["No", "Yes"], "t": levels}, **about)
        for site, levels in known.items()
    }
    with pytest.raises(ReleaseError, match="'North' and 'West' differ in levels: Treated records"):
        dpe.combine_tables(tables)
    results = [
        dpe.SiteRelease.from_result(
            dpe.dp_ate("died ~ t", data, bounds={"died": ["No", "Yes"], "t": levels}, **about), site
        )
        for site, levels in known.items()
    ]
    with pytest.raises(ReleaseError, match="'North' and 'West' differ in levels: Treated records"):
        dpe.combine(results)
