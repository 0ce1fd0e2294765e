"""Made-up records that fit a formula and its bounds: a study rehearsed before it is touched."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpeffects.design.bounds import Bounds
from dpeffects.formula import Formula
from dpeffects.formula.expression import Column


def rehearsal(
    formula: Formula,
    bounds: Bounds,
    n: int,
    *,
    treated: float,
    selection: float,
    outcome_mean: float,
    outcome_sd: float,
    seed: int,
) -> dict[str, np.ndarray[Any, Any]]:
    """Columns with covariates spread evenly over their ranges and levels, and no effect.

    The log odds of treatment are a sum of the standardised covariates with standard deviation
    ``selection``. The outcome is normal with the given mean and standard deviation, clipped; a
    transformed outcome has its columns spread evenly.
    """
    rng = np.random.default_rng(seed)
    columns: dict[str, np.ndarray[Any, Any]] = {}
    for name in formula.columns:
        if name == formula.treatment_column:
            continue
        if bounds.is_levels(name):
            levels = list(bounds[name])
            columns[name] = np.array(levels, dtype=object)[rng.integers(0, len(levels), n)]
            continue
        low, high = bounds.interval(name)
        columns[name] = rng.uniform(low, high, n)
        if formula.outcome == Column(name):
            drawn = rng.normal(outcome_mean, outcome_sd, n)
            columns[name] = np.clip(drawn, low, high)
    arm = rng.random(n) < _propensity(columns, formula, treated, selection)
    arm[:2] = True, False  # both arms are there
    if formula.treatment_column in bounds and bounds.is_levels(formula.treatment_column):
        levels = list(bounds[formula.treatment_column])
        columns[formula.treatment_column] = np.array(levels, dtype=object)[arm.astype(int)]
    else:
        columns[formula.treatment_column] = arm
    return columns


def _propensity(
    columns: dict[str, np.ndarray[Any, Any]], formula: Formula, treated: float, selection: float
) -> np.ndarray[Any, Any]:
    total = np.zeros(len(next(iter(columns.values()))))
    for name in formula.covariate_columns:
        values = np.unique(columns[name], return_inverse=True)[1].astype(float)
        total += (values - values.mean()) / max(values.std(), 1e-12)
    logit = np.log(treated / (1.0 - treated)) + selection * total / max(total.std(), 1e-12)
    return np.asarray(1.0 / (1.0 + np.exp(-logit)))
