"""Plans: as wide as real intervals where columns are many, and no more work than they need."""

from __future__ import annotations

import json
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import dpeffects as dpe
from dpeffects.errors import BudgetError
from dpeffects.formula import expression, parse
from dpeffects.services.planning import rehearsal
from tests.cases import each

INDICATORS = (
    "married", "first_baby", "prenatal_first_trimester", "mhisp", "fhisp", "mrace", "frace",
    "foreign", "alcohol", "deadkids",
)  # fmt: skip
COVARIATES = {"mage": (10, 50), "fage": (0, 60), "medu": (0, 17), "fedu": (0, 17)}
COVARIATES |= {"nprenatal": (0, 40), "order": (0, 12), **dict.fromkeys(INDICATORS, (0, 1))}
OUTCOMES = {
    "lbweight": ([0, 1], {"outcome_mean": 0.06, "r2": 0.045}),
    "outcome": ((0, 6000), {"outcome_mean": 3360, "outcome_sd": 570, "r2": 0.08}),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("outcome", OUTCOMES)
def test_plans_with_many_columns_are_as_wide_as_real_intervals(outcome, delta):
    """On births, which have 16 covariates that go together; plans do not see them."""
    births = dpe.load_data("birthweight").frame.astype({"lbweight": int})
    declared, said = OUTCOMES[outcome]
    formula = f"{outcome} ~ treatment | {' + '.join(COVARIATES)}"
    given = {"epsilon": 1, "delta": delta, "bounds": {outcome: declared, **COVARIATES}}
    runs = [dpe.dp_ate(formula, births, seed=seed, **given).conf_int() for seed in range(5)]
    real = np.median([(run.upper - run.lower) / 2 for run in runs])
    said = {"treated_share": 0.19, "confounding": 0.9, **said}
    (row,) = dpe.plan(formula, n=len(births), method="auto", repeats=6, **said, **given).rows
    assert row.half_width == pytest.approx(real, rel=0.2)


def test_made_up_covariates_go_together_and_levels_are_uneven():
    bounds = {"y": (0, 1), "g": list("abcd"), **{f"x{k}": (0, 10) for k in range(8)}}
    formula = f"y ~ t | {' + '.join(name for name in bounds if name != 'y')}"
    setting = dpe.plan(formula, n=50, epsilon=1, bounds=bounds, method="auto", repeats=1).setting
    columns = rehearsal.SyntheticRecords(setting).people(5000, 0).columns
    related = np.corrcoef([columns[f"x{k}"] for k in range(8)])[np.triu_indices(8, 1)]
    assert 0.15 < np.sqrt(np.mean(related**2)) < 0.4
    shares = np.bincount(columns["g"].codes) / 5000
    assert shares[0] > 0.5
    assert shares[-1] < 0.1


@pytest.mark.parametrize("plan", [dpe.plan, dpe.plan_study])
@pytest.mark.parametrize("several", [[1, 3], (1.0, 3.0), np.array([1.0, 3.0])])
def test_several_epsilons_are_told_what_to_write(plan, several):
    with pytest.raises(BudgetError, match=r"one epsilon.*for several (write|call) plan") as told:
        plan("y ~ t", n=100, epsilon=several, bounds={"y": (0, 1)})
    assert "\n" not in str(told.value)


def test_what_several_epsilons_are_told_works():
    plan = dpe.plan(
        "y ~ t", n=100, epsilon=1, bounds={"y": (0, 1)}, method="diff_in_means", repeats=1
    )
    assert plan.across([1, 3])["epsilon"].tolist() == [1.0, 3.0]


@each("columns", [0, 1, 12, 50, 450])
@each("n", [100, 5735, 200_000])
@each("learns", [False, True])
def test_rehearsals_are_fewer_where_each_is_more_work(columns, n, learns):
    terms = f" | {' + '.join(f'x{k}' for k in range(columns))}" if columns else ""
    made = SimpleNamespace(formula=parse(f"y ~ t{terms}"), setting=SimpleNamespace(repeats=None))
    found = rehearsal._repeats(made, n, learns)
    assert 1 <= found <= 12
    assert found <= 2 or found * n * max(columns, 1) <= 1_500_000


def test_the_work_of_a_plan_is_linear_in_the_columns(monkeypatch):
    """Each column is looked up in the formula once, not once for every other column."""
    count = 0
    walk = expression.walk

    def counted(factor):
        nonlocal count
        count += 1
        return walk(factor)

    monkeypatch.setattr(expression, "walk", counted)
    found = []
    for columns in (40, 160):
        bounds = {"y": (0, 1), **{f"x{k}": (0, 1) for k in range(columns)}}
        formula = f"y ~ t | {' + '.join(name for name in bounds if name != 'y')}"
        count = 0
        dpe.plan(formula, n=50, epsilon=1, bounds=bounds, method="diff_in_means", repeats=1)
        found.append(count)
    assert found[1] < 6 * found[0], found


FIRST_PLOT = """
import json, sys
import pandas as pd
import dpeffects as dpe
data = pd.DataFrame({"y": [0.0, 0.2, 0.4, 0.6] * 50, "t": [0, 1] * 100})
fit = dpe.dp_ate("y ~ t", data, "diff_in_means", epsilon=1, seed=1, bounds={"y": (0, 1)})
before = set(sys.modules)
import matplotlib; matplotlib.use("Agg")
fit.plot()
print(json.dumps(sorted(set(sys.modules) - before)))
"""


@pytest.mark.long
def test_a_first_plot_loads_matplotlib_and_little_else():
    """Others take longer to load than the picture to draw."""
    done = subprocess.run(
        [sys.executable, "-c", FIRST_PLOT], capture_output=True, text=True, check=True
    )
    loaded = {name.partition(".")[0] for name in json.loads(done.stdout.splitlines()[-1])}
    assert "dpeffects" in loaded
    assert not loaded & {"scipy", "statsmodels", "sklearn", "seaborn", "opendp", "joblib", "polars"}
