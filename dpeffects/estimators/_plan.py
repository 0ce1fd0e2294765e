"""What adjusting costs and gains, from public numbers: how many blocks, regression or not."""

from __future__ import annotations

import math
from collections.abc import Mapping

from dpeffects.estimators.spec import Facts
from dpeffects.estimators.strengths import SPREAD, TREATED_VARIANCE, VOLUME, default_strength
from dpeffects.privacy.budget import Budget
from dpeffects.privacy.logistic import unit_l1, unit_norm
from dpeffects.privacy.noise import LEAST_DELTA, gaussian_scale

_BLOCKS = (3, 5, 8, 12, 20)
MOST_LEFT = 0.7
"""A correction for more than this much surviving confounding would be mostly noise."""
_LOGIT_SD = 0.7
"""Spread of the true log odds of treatment that the plan assumes."""


Split = Mapping[str, float]
"""Proportions of a budget by share, as a method's ``shares`` has them."""


def price(split: Split, share: str, budget: Budget) -> tuple[float, float]:
    """Epsilon and delta that a share gets of a budget that is divided like this."""
    part = split[share] / sum(split.values())
    return part * budget.epsilon, part * budget.delta


def plan(
    facts: Facts, confounding: float, plain: Split, blocked: Split, *, must_adjust: bool
) -> int:
    """Number of blocks with the smallest expected error, in units of the outcome's range.

    ``plain`` and ``blocked`` are how the budget is divided without and with blocks.
    noise(K) is the standard deviation of the privacy noise with K equal blocks and equal arms; a
    bias of ``confounding`` shrinks by the reliability of the noisy log odds, and K blocks leave
    about 1.5 / K^1.7 of it (a tenth for five, Cochran 1968).
    """
    jitter, kept = weight_noise(facts.n, facts.width, *price(blocked, "propensity", facts.budget))
    jitter *= math.sqrt(max(facts.width - 1, 1) * SPREAD) / unit_norm(facts.width)
    unreliable = jitter**2 / (jitter**2 + (kept * _LOGIT_SD) ** 2)

    def error(blocks: int) -> float:
        split = plain if blocks == 1 else blocked
        one_sum = 1.0 / price(split, "estimate", facts.budget)[0]
        one_count = 0.5 / price(split, "counts", facts.budget)[0]
        noise = 4.0 * math.sqrt(blocks) * math.hypot(one_sum, one_count) / facts.n
        if blocks == 1:
            return math.hypot(noise, confounding)
        left = share_left(unreliable, blocks)
        if left > MOST_LEFT and not must_adjust:
            return math.inf
        left = min(left, MOST_LEFT)  # half of the correction is noise, and it stretches the rest
        return math.hypot(noise / (1.0 - left), confounding * 0.5 * left)

    candidates = _BLOCKS if must_adjust else (1, *_BLOCKS)
    return min(candidates, key=error)


def weight_noise(
    n: int, width: int, epsilon: float, delta: float, spread: float = SPREAD
) -> tuple[float, float]:
    """Expected noise in a propensity weight, and the factor by which the penalty shrinks it.

    ``spread`` is the variance of a covariate scaled to [0, 1], by default that of an even spread
    over its declared range; propensities are taken to be near 1/2.
    """
    spent = (1.0 - VOLUME) * epsilon
    noise = math.sqrt(2.0) * 2.0 * unit_l1(width) / spent
    if delta > LEAST_DELTA:
        noise = min(noise, gaussian_scale(2.0, spent, delta / 3.0, width))
    information = TREATED_VARIANCE * n * spread / unit_norm(width) ** 2
    strength = default_strength(n, width, epsilon, delta)
    return noise / (information + strength), information / (information + strength)


def regression_error(facts: Facts, split: Split) -> float:
    """Expected size of the noise in the moments against the moments themselves."""
    d, (eps, delta) = facts.width, price(split, "regression", facts.budget)
    noise = math.sqrt(2.0) * (d + 1 + 2 * math.sqrt(d)) / eps
    if delta > LEAST_DELTA:
        noise = min(noise, gaussian_scale(2.0 * math.sqrt(2.0), eps, delta, min(d * d, 100_000)))
    return 2.0 * noise * math.sqrt(2.0 * d) * 6.0 * d / facts.n


def share_left(unreliable: float, blocks: int) -> float:
    """Share of a confounding bias that blocks on an unreliable score leave."""
    return unreliable + (1.0 - unreliable) * min(1.0, 1.5 / blocks**1.7)
