"""Several sites on one machine."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

import dpeffects as dpe
from dpeffects.errors import (
    BudgetError,
    DataError,
    EstimationError,
    FormulaError,
    OptionError,
)
from dpeffects.flow import Estimation
from dpeffects.services.sites import combine, dp_multisite, multisite, site_release

N = 900
RNG = np.random.default_rng(0)
DATA = pd.DataFrame(
    {
        "y": RNG.random(N),
        "t": RNG.integers(0, 2, N),
        "hospital": RNG.choice(["North", "South", "East"], N),
        "ward": RNG.integers(1, 3, N),
    }
)
BOUNDS = {"y": (0, 1)}
CALL = {"site": "hospital", "method": "diff_in_means", "bounds": BOUNDS, "seed": 1}
EACH = {"North": 1, "South": 2, "East": 0.5}


def run(data=DATA, formula="y ~ t", **arguments):
    return dp_multisite(formula, data, **({"epsilon": EACH} | CALL | arguments))


def test_it_is_each_sites_release_combined():
    fit = run(rule="ivw")
    assert [r.site for r in fit.releases] == ["North", "South", "East"]
    assert [r.guarantee.epsilon for r in fit.releases] == [1, 2, 0.5]
    assert [r.n for r in fit.releases] == [(DATA["hospital"] == s).sum() for s in EACH]
    north = site_release(
        "y ~ t",
        DATA[DATA["hospital"] == "North"],
        site="North",
        method="diff_in_means",
        epsilon=1,
        bounds=BOUNDS,
        seed=multisite._site_seed(1, "North"),
    )
    assert fit.releases[0] == north
    assert fit.estimate == combine(fit.releases, "ivw").estimate


def test_frames_of_all_kinds():
    expected = run().estimate
    declared = dpe.declare(DATA, y=(0, 1))
    assert run(declared, bounds=None).estimate == expected
    assert run(pl.from_pandas(DATA)).estimate == expected
    assert run(pl.from_pandas(DATA).to_arrow()).estimate == expected


def test_numbers_as_sites():
    fit = run(site="ward", epsilon={1: 1.0, 2: 1.0})
    assert [r.site for r in fit.releases] == ["1", "2"]


def test_one_budget_for_all_and_a_mapping_of_others():
    fit = run(epsilon=1, sites=["North", "South", "East"])
    assert {r.guarantee.epsilon for r in fit.releases} == {1}
    fit = run(
        method="smooth_matching",
        formula="y ~ t | ward",
        delta={"North": 1e-4, "South": 1e-5, "East": 1e-6},
        bounds={**BOUNDS, "ward": [1, 2]},
    )
    for release, delta in zip(fit.releases, (1e-4, 1e-5, 1e-6), strict=True):
        assert delta / 2 < release.guarantee.delta <= delta


def test_sites_have_noise_of_their_own():
    same = pd.concat([DATA.assign(hospital="A"), DATA.assign(hospital="B")])
    fit = run(same, epsilon={"A": 1, "B": 1})
    assert fit.releases[0].estimate != fit.releases[1].estimate
    assert fit.status == "void: seeded"
    again = run(same, epsilon={"A": 1, "B": 1})
    assert again.estimate == fit.estimate


def test_ledgers():
    ledgers = {site: dpe.Ledger(epsilon=2) for site in EACH}
    run(ledger=ledgers)
    assert ledgers["North"].remaining[0] == pytest.approx(1.0)
    assert ledgers["South"].remaining[0] == pytest.approx(0.0)
    with pytest.raises(OptionError, match="the sites have different records"):
        run(ledger=dpe.Ledger(epsilon=9))
    with pytest.raises(BudgetError, match="site 'South'"):
        run(ledger={site: dpe.Ledger(epsilon=1) for site in EACH})


def test_a_declared_site_without_records():
    fit = run(epsilon={**EACH, "West": 1})
    assert fit.left_out["West"] == "it has no records"


def test_a_site_whose_releases_allow_no_estimate(monkeypatch):
    real, size = Estimation.result, (DATA["hospital"] == "South").sum()

    def fails(estimation):
        if estimation.design.n == size:
            raise EstimationError("no stratum has both arms")
        return real(estimation)

    monkeypatch.setattr(Estimation, "result", fails)
    assert run().left_out["South"] == "no stratum has both arms (its budget is spent)"


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"epsilon": 1}, OptionError, "the sites are missing"),
        ({"epsilon": {"North": 1, "South": 1}}, DataError, "that is not in sites="),
        ({"site": "clinic"}, DataError, "no column 'clinic'"),
        ({"epsilon": 1, "sites": "North"}, OptionError, "list of names"),
        ({"epsilon": 1, "sites": []}, OptionError, "at least one"),
        ({"epsilon": 1, "sites": ["North", "North"]}, OptionError, "each once"),
        ({"delta": {"North": 0}}, OptionError, "delta has no entry for the site 'South'"),
        ({"seed": -1}, OptionError, "seed"),
        ({"seed": "x"}, OptionError, "seed"),
        ({"formula": "y t"}, FormulaError, "site 'North'"),
        ({"epsilon": dict.fromkeys(EACH, -1)}, BudgetError, "site 'North'"),
        ({"rule": "best"}, OptionError, "rule"),
        ({"data": [1, 2]}, DataError, "frame"),
    ],
)
def test_bad_input(arguments, error, words):
    with pytest.raises(error, match=words):
        run(**arguments)


@pytest.mark.parametrize(
    "wrong", [{"rule": "best"}, {"conf_level": 2}, {"delta": {"North": 0}}, {"seed": "x"}]
)
def test_nothing_is_spent_on_what_must_fail(wrong):
    ledgers = {site: dpe.Ledger(epsilon=2) for site in EACH}
    with pytest.raises(OptionError):
        run(ledger=ledgers, **wrong)
    assert ledgers["North"].remaining[0] == 2.0
