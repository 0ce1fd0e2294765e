"""What an estimate will be worth, from public numbers only: sizes, prices, declared types.

The forecast goes through the same steps as the estimate, with typical numbers in the place of
released ones. So what it compares are the intervals that users get.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dpeffects.estimators._moments import LONG, OUTCOME, TREATMENT, squared_radius
from dpeffects.estimators._posterior import Noisy2, fit_slopes, unadjusted_variance
from dpeffects.estimators.spec import Facts
from dpeffects.privacy.release import Split

_SD = 0.13
"""Standard deviation of a typical outcome within arms, in ranges; a two-valued one has 0.39."""
_COLUMN_VARIANCE = 0.0625
_EXPLAINED, _SELECTION, _ALIGNED = 0.3, 0.5, 0.8
"""Strength of typical confounding: see `_posterior`."""
_OVERLAP = 0.85
"""Mean of e(1 - e) against that of a flat score."""
_LONGEST_WEIGHT = 0.75


@dataclass(frozen=True)
class Forecast:
    """Expected standard errors, in ranges of the outcome, of one way to spend a budget."""

    noise: float
    sampling: float
    confounding: float

    @property
    def error(self) -> float:
        """All parts together."""
        return math.hypot(self.noise, self.sampling, self.confounding)


def _unit(split: Split, share: str) -> float:
    """Standard deviation of the noise in a sum that a record moves by 1."""
    if share in split.mu:
        return 1.0 / split.mu[share]
    return math.sqrt(2.0) / split.shares[share].epsilon


def _outcome(facts: Facts) -> tuple[float, float]:
    """Standard deviation and clip of a typical outcome."""
    if facts.values[-1] == 2:
        return 0.39, 0.7
    return _SD, 2.5 * _SD if facts.n * facts.budget.epsilon > 400 else 0.5


def forecast_contrast(facts: Facts, split: Split, randomised: bool) -> Forecast:
    """A clipped contrast."""
    sd, clip = _outcome(facts)
    noise = 4.0 * clip * _unit(split, "estimate") / facts.n
    guess = 0.0 if randomised else sd * math.sqrt(unadjusted_variance())
    return Forecast(noise, 2.0 * sd / math.sqrt(facts.n), guess)


def forecast_one_step(facts: Facts, split: Split, randomised: bool) -> Forecast:
    """Moments, models, and one sum."""
    n, (sd, clip) = facts.n, _outcome(facts)
    p = sum(k != 1 for k in facts.values[:-1])
    r2, length = squared_radius(p, randomised), math.sqrt(LONG * p)
    dimension = p + (2 if randomised else 3)
    if "models" in split.mu:
        entry = r2 / split.mu["models"]
        column = math.sqrt(p) / split.mu["spread"] if "spread" in split.mu else math.inf
    else:
        entry = math.sqrt(2.0 * (dimension + 1)) * r2 / split.shares["models"].epsilon
        column = math.inf
    half = 0.5 * split.shares["spread"].epsilon
    column = min(column * math.sqrt(2.0), math.sqrt((p + 1) * (p + 2) / 3.0) / half)
    lost = min((column / n) ** 2 / _COLUMN_VARIANCE, 1.0)
    lost += min((0.25 * column / n) ** 2 / _COLUMN_VARIANCE**2, 1.0)
    total = 0.95 * n / (1.0 + lost)
    entry /= total
    kept = 0.15**2 / (0.15**2 + entry**2)
    variance = (sd / clip) ** 2
    own = np.ones(p)
    outcome_noise = (entry / (OUTCOME * length)) ** 2
    treatment_noise = 0.0 if randomised else (2.0 * entry / (TREATMENT * length)) ** 2
    outcome_sampling, treatment_sampling = variance / n, 4.0 / n
    b2, a2 = _EXPLAINED * variance / p, _SELECTION / p
    size_b = math.sqrt(b2 + outcome_noise + outcome_sampling)
    size_a = math.sqrt(a2 + treatment_noise + treatment_sampling)
    aligned = _ALIGNED * math.sqrt(b2 * a2) / (size_b * size_a)
    signs = np.where(np.arange(p) % 2 == 0, 1.0, -1.0)
    across = aligned + math.sqrt(1.0 - aligned**2) * signs
    slopes = fit_slopes(
        Noisy2(
            variances=own,
            outcome=np.full(p, size_b),
            treatment=0.0 * own if randomised else size_a * across,
            outcome_noise=outcome_noise,
            treatment_noise=treatment_noise,
            outcome_sampling=np.full(p, outcome_sampling),
            treatment_sampling=np.full(p, treatment_sampling),
            entry_noise=kept * entry**2,
            outcome_variance=variance,
            scale=1.0,
        )
    )
    unexplained = 1.0 - _EXPLAINED * max(slopes.known[0], 0.0)
    if randomised:
        noise = 4.0 * clip * _unit(split, "estimate") / n
        return Forecast(noise, 2.0 * sd * math.sqrt(unexplained / n), 0.0)
    widest = 2.0 * clip * _LONGEST_WEIGHT / (0.25 * _OVERLAP)
    noise = widest * _unit(split, "estimate") / n
    sampling = 2.0 * sd * math.sqrt(1.15 * unexplained / n)
    return Forecast(noise, sampling, clip * math.sqrt(slopes.left_variance))


def split_of(
    facts: Facts, shares: Mapping[str, float], uses_delta: Mapping[str, float | None]
) -> Split:
    """How a budget would be divided."""
    return Split.of(facts.budget, shares, uses_delta)
