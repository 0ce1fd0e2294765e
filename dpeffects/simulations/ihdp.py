"""Hill's response surfaces on the covariates of the IHDP: outcomes whose means are known."""

from __future__ import annotations

import math

import numpy as np

from dpeffects.arrays import FloatArray, Interval
from dpeffects.datasets.descriptions import INDICATOR, catalogue, read_bundled
from dpeffects.design.bounds import Declared, declare
from dpeffects.errors import OptionError
from dpeffects.lazy import pd


def _ihdp_design() -> tuple[pd.DataFrame, FloatArray, FloatArray, FloatArray]:
    """Return the frame, Hill's x1..x25, and their means and variances as known without the data.

    The six measures are standardised: mean 0 and variance 1. An indicator has mean 1/2 give or
    take and variance at most 1/4; ``first_born`` is 1 or 2 in Hill's design.
    """
    record, frame = catalogue()["ihdp"], read_bundled("ihdp_covariates.csv")
    names = record.info.covariates
    x = frame[list(names)].to_numpy(dtype=np.float64)
    measured = np.array([record.bounds[name] != INDICATOR for name in names])
    measures = x[:, measured]
    x[:, measured] = (measures - measures.mean(axis=0)) / measures.std(axis=0, ddof=1)
    first_born = np.array([name == "first_born" for name in names])
    x[:, first_born] += 1.0
    mean = np.where(measured, 0.0, 0.5) + first_born
    return frame, x, mean, np.where(measured, 1.0, 0.25)


def ihdp_a(rng: np.random.Generator, n: int) -> Declared:
    """Draw surface A: both arms linear and parallel, effect 4."""
    frame, x, mean, variance = _ihdp_design()
    beta = rng.choice(5, size=x.shape[1] + 1, p=[0.5, 0.2, 0.15, 0.1, 0.05]).astype(np.float64)
    mu0 = beta[0] + x @ beta[1:]
    centre = beta[0] + mean @ beta[1:]
    spread = 3.0 * math.sqrt(variance @ beta[1:] ** 2 + 1.0)
    return _ihdp(rng, n, frame, mu0, mu0 + 4.0, (centre - spread, centre + 4.0 + spread))


def ihdp_b(rng: np.random.Generator, n: int) -> Declared:
    """Draw surface B: the untreated arm exponential, the effect on the treated 4."""
    frame, x, mean, variance = _ihdp_design()
    beta = rng.choice(5, size=x.shape[1] + 1, p=[0.6, 0.1, 0.1, 0.1, 0.1]) / 10.0
    mu0 = np.exp(beta[0] + (x + 0.5) @ beta[1:])
    linear = x @ beta[1:]
    omega = (linear - mu0)[frame["treatment"].to_numpy() == 1].mean() - 4.0
    centre = beta[0] + (mean + 0.5) @ beta[1:]
    spread = float(variance @ beta[1:] ** 2)
    # Two deviations up on the log scale, or where the treated arm lies, with 3 for the noise.
    top = max(math.exp(centre + 2.0 * math.sqrt(spread)), math.exp(centre + spread / 2) + 4.0)
    return _ihdp(rng, n, frame, mu0, linear - omega, (-3.0, top + 3.0))


def _ihdp(
    rng: np.random.Generator,
    n: int,
    frame: pd.DataFrame,
    mu0: FloatArray,
    mu1: FloatArray,
    within: Interval,
) -> Declared:
    """Add the noisy outcome and both means, within a range rounded outwards to fives."""
    if n != len(frame):
        raise OptionError(f"the IHDP covariates have {len(frame)} rows: leave n out")
    outcome = np.where(frame["treatment"] == 1, mu1, mu0) + rng.normal(size=n)
    rounded = 5.0 * math.floor(within[0] / 5.0), 5.0 * math.ceil(within[1] / 5.0)
    means = dict.fromkeys(("outcome", "mu0", "mu1"), rounded)
    made = frame.assign(outcome=outcome, mu0=mu0, mu1=mu1)
    return declare(made, {**catalogue()["ihdp"].bounds, **means})
