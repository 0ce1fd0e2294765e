"""What an estimate will be worth, from public numbers only: sizes, prices, declared types.

The forecast goes through the same steps as the estimate, with typical numbers in the place of
released ones. Intervals of users are wider where they are more cautious, or their data is not
typical: fewer treated, outcomes that spread less over their range.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import ndtr

from dpeffects.estimators import constants as hand
from dpeffects.estimators.default.arm_terms import noise_between
from dpeffects.estimators.default.moment_models import squared_radius
from dpeffects.estimators.default.posterior import NoisyMoments, fit_slopes, unadjusted_variance
from dpeffects.estimators.default.tails import ResidualLengths, limits
from dpeffects.estimators.spec import PublicInfo
from dpeffects.privacy.charges import NoisyValue
from dpeffects.privacy.release import Split
from dpeffects.privacy.tight_domains import cube_noise_sd, matrix_noise_sd


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

    def with_noise(self, times: float) -> float:
        """The same where outcomes spread less than is typical, so that noise counts for more."""
        return math.hypot(times * self.noise, self.sampling, self.confounding)


def _unit(split: Split, share: str) -> float:
    """Standard deviation of the noise in a sum that a record moves by 1."""
    if share in split.mu:
        return 1.0 / split.mu[share]
    if share not in split.shares:  # what is public costs nothing
        return 0.0
    return math.sqrt(2.0) / split.shares[share].epsilon


def outcome_sd(facts: PublicInfo) -> float:
    """Standard deviation of a typical outcome."""
    return hand.TWO_VALUED_SD if facts.two_valued else hand.TYPICAL_SD


def _clip(
    facts: PublicInfo, split: Split, per_length: float, unseen: float, part: float, groups: int
) -> tuple[float, float]:
    """The clip to expect, and what is not known of what it takes off, as a standard deviation.

    Noise is ``per_length`` for each unit of the clip, ``unseen`` as where lengths are read.
    """
    if facts.two_valued:
        return hand.LONGEST, 0.0
    unit, gaussian = _unit(split, "lengths") / part, "lengths" in split.mu
    unit = 2.0 ** (round(4.0 * math.log2(unit)) / 4.0)  # so that few are read
    read = _typical_lengths(facts.n / facts.arms, unit, gaussian, unseen)
    cut = read.clip(per_length, groups=groups)
    return max(cut.length, 2.0 * hand.TYPICAL_SD), math.sqrt(2.0) * float(cut.unknown[0])


@lru_cache(maxsize=256)
def _typical_lengths(n: float, unit: float, gaussian: bool, unseen: float) -> ResidualLengths:
    """What would be read of lengths of typical, normal residuals of an arm without any noise."""
    longer = np.append(2.0 * ndtr(-limits(hand.LONGEST) / hand.TYPICAL_SD), 1.0)
    scale = math.sqrt(2.0) * unit
    counts = NoisyValue(n / 2.0 * np.tile(np.diff(longer, prepend=0.0), 2), scale, None, gaussian)
    return ResidualLengths.read(np.array([n]), hand.LONGEST, counts, unseen=unseen)


def _by_centres(facts: PublicInfo, split: Split) -> float:
    """Error by noise in the shares of the arms times that in their means."""
    counted = 1.0 if facts.arms == 2 else 2.0
    share = min(facts.arms * counted * _unit(split, "count") / facts.n, 0.45)
    mean = facts.arms * _unit(split, "means") / facts.n
    return math.sqrt(2.0) * share * mean


def forecast_contrast(facts: PublicInfo, split: Split, randomised: bool) -> Forecast:
    """A clipped contrast."""
    sd, n, arms = outcome_sd(facts), facts.n, facts.arms
    per_length = 2.0 * arms * noise_between(arms) * _unit(split, "estimate") / n
    clip, bias = _clip(facts, split, per_length, hand.UNSEEN, 1.0, 1)
    noise = math.hypot(per_length * clip, bias, _by_centres(facts, split))
    guess = 0.0 if randomised else sd * math.sqrt(unadjusted_variance())
    return Forecast(noise, math.sqrt(2.0 * arms) * sd / math.sqrt(n), guess)


def forecast_one_step(facts: PublicInfo, split: Split, randomised: bool) -> Forecast:
    """Moments, models, and one sum; or one for each of some groups, which are taken as even."""
    n, sd, arms, groups = facts.n, outcome_sd(facts), facts.arms, math.prod(facts.groups)
    widest = arms * noise_between(arms) * (1.0 if randomised else hand.LONGEST_WEIGHT)
    if groups > 1:
        widest *= groups * (
            hand.BY_GROUP if randomised else math.sqrt(2.0) * hand.BY_GROUP * hand.INVERSE
        )
    per_length = 2.0 * widest * _unit(split, "estimate") / n
    clip, bias = _clip(facts, split, per_length, hand.UNSEEN * randomised, 0.75, groups)
    p = facts.columns
    r2, length = squared_radius(p, randomised), math.sqrt(hand.LENGTH * p)
    dimension = p + 2 + (0 if randomised else arms - 1)
    if "models" in split.mu:
        entry = r2 / split.mu["models"]
        column = math.sqrt(p) / split.mu["spread"] if "spread" in split.mu else math.inf
    else:
        entry = matrix_noise_sd(dimension, r2, split.shares["models"].epsilon)
        column = math.inf
    half = 0.5 * split.shares["spread"].epsilon
    column = min(column * math.sqrt(2.0), cube_noise_sd(p, 1.0, half))
    lost = min((column / n) ** 2 / hand.COLUMN_VARIANCE, 1.0)
    lost += min((0.25 * column / n) ** 2 / hand.COLUMN_VARIANCE**2, 1.0)
    total = 0.95 * n / (1.0 + lost)
    entry /= total
    kept = 0.15**2 / (0.15**2 + entry**2)
    variance = (sd / clip) ** 2
    outcome_noise = (entry / (hand.BESIDE * length)) ** 2
    between = math.sqrt(2.0 * arms * (arms - 1)) * entry
    treatment_noise = 0.0 if randomised else (between / (hand.BESIDE * length)) ** 2
    explained = hand.TWO_VALUED_EXPLAINED if facts.two_valued else hand.EXPLAINED
    b2, a2 = explained * variance / p, hand.SELECTION / p
    size_b = math.sqrt(b2 + outcome_noise + variance / n)
    size_a = 0.0 if randomised else math.sqrt(a2 + treatment_noise + 2.0 * arms / n)
    aligned = hand.ALIGNED * math.sqrt(b2 * a2) / (size_b * max(size_a, 1e-9))
    aligned = min(aligned, 1.0)
    across = math.sqrt(1.0 - aligned**2) * np.array([1.0, -1.0])
    slopes = fit_slopes(
        NoisyMoments(
            variances=np.ones(2),
            outcome=np.full(2, size_b),
            treatment=size_a * (aligned + across),
            outcome_noise=outcome_noise,
            treatment_noise=treatment_noise,
            outcome_sampling=np.full(2, variance / n),
            treatment_sampling=np.full(2, 2.0 * arms / n),
            entry_noise=kept * entry**2,
            outcome_variance=variance,
            scale=1.0,
            alike=p / 2.0,
        )
    )
    unexplained = 1.0 - explained * max(slopes.known[0], 0.0)
    noise = math.hypot(per_length * clip, bias, 0.5 * _by_centres(facts, split))
    weighted = 1.0 if randomised else 1.15
    sampling = math.sqrt(2.0 * arms * groups) * sd * math.sqrt(weighted * unexplained / n)
    left = 0.0 if randomised else clip * math.sqrt(slopes.left_variance)
    return Forecast(noise, sampling, left)
