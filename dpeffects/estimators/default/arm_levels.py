"""Mean outcomes by arm, from an effect and a level: post-processing of what is released anyway.

Write p for the share of treated records. The mean of all outcomes is

    E[Y] = E[Y(0)] + p ATT = E[Y(1)] - (1 - p) ATC,

so that it and the effects give both means over all records. Over treated records the treated mean
is the one observed, and the other is that less the effect on the treated; over control records
likewise. Sums of outcomes by arm are released with little noise for other purposes, and their noise
is common to both means: it does not touch the difference.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dpeffects.arrays import FloatArray
from dpeffects.design.arms import ARMS, TREATED, Outcome
from dpeffects.estimands import ESTIMANDS
from dpeffects.estimators import constants as hand
from dpeffects.estimators.arm_sums import counts_of
from dpeffects.estimators.default.arm_summaries import ArmStats, centres_of
from dpeffects.estimators.default.effect_variation import EffectVariation
from dpeffects.inference.estimate import (
    ArmMeans,
    Estimate,
    MeansPart,
    MeansVariance,
    Pair,
    SamplingVariance,
    Unavailable,
)
from dpeffects.inference.intervals import sampling_variance
from dpeffects.inference.scales import likely, variance_at
from dpeffects.privacy.curator import Curator, SumQuery
from dpeffects.privacy.domains import COUNT, Box

SHARE, PROPORTION = "means", 0.1
"""The share that ``means=True`` adds, where a method releases no level, and its proportion."""


@dataclass(frozen=True)
class Spread:
    """What sampling variances of means follow from.

    ``variance`` is that of outcomes within arms, ``explained`` the part of it that the covariates
    explain and an adjustment takes out. ``sizes`` are records of equal weight that the arms are
    worth. ``known`` says that nothing but these sizes makes the variance of the effect.
    """

    variance: float
    sizes: FloatArray
    explained: float = 0.0
    known: bool = False


def with_means(
    estimate: Estimate,
    centres: ArmStats,
    estimand: str,
    spread: Spread,
    *,
    unadjusted: bool = False,
    varies: EffectVariation | None = None,
) -> Estimate:
    """The estimate with the two means that it compares, where sums of outcomes were released.

    ``unadjusted``: they are the means of the arms, whatever the estimand. ``varies`` is how the
    effect varies, where that was released.
    """
    if centres.sums is None:
        return estimate
    whose = "ATE" if unadjusted else estimand
    own, share = ESTIMANDS[whose], centres.share
    everybody = own.of_treated and own.of_control
    weights = (1.0 - share, share) if everybody else (float(own.of_control), float(own.of_treated))
    level, laplace, gaussian, parts = _level(centres, whose)
    effect = float(estimate.value)
    treated, control = level + weights[0] * effect, level - weights[1] * effect
    off = centres.share_sd * effect  # the difference stays
    if everybody:
        parts.append(MeansPart("the treated share", -off, -off, noise=True))
    named = set()
    if varies is not None:
        treated += weights[0] * (varies.more("ATC") - varies.more(estimand))
        control -= weights[1] * (varies.more("ATT") - varies.more(estimand))
        for (part, one), (_, sd) in zip(varies.errors("ATC"), varies.errors(estimand), strict=True):
            named.add(part.name)  # what is not in the effect is in both means
            parts.append(MeansPart(part.name, weights[0] * one, weights[0] * one - sd, part.noise))
    elif not unadjusted:
        low, (one, zero) = centres.outcome_range[0], centres.means.tolist()
        apart = abs(one - effect - zero) / max(abs(control - low), 0.02 * centres.range)
        vague = hand.VARYING * min(apart, 1.0) * math.prod(weights) * effect
        parts.append(MeansPart("effect heterogeneity", vague, vague))
    for part in estimate.parts:
        if part.name not in named:
            sd = math.sqrt(part.variance)
            parts.append(MeansPart(part.name, weights[0] * sd, -weights[1] * sd, part.noise))
    normal = math.sqrt(estimate.gaussian)
    means = ArmMeans(
        treated,
        control,
        _sampling(estimate, centres, spread, weights, unadjusted),
        laplace=(*laplace, *((weights[0] * b, -weights[1] * b) for b in estimate.laplace)),
        gaussian=(*gaussian, (weights[0] * normal, -weights[1] * normal)) if normal else gaussian,
        parts=tuple(part for part in parts if part.treated or part.control),
        possible=centres.outcome_range,
    )
    if centres.two_valued:
        means = replace(means, design=_design(estimate, means, centres, whose, spread))
    return replace(estimate, means=means)


def _level(
    centres: ArmStats, estimand: str
) -> tuple[float, tuple[Pair, ...], tuple[Pair, ...], list[MeansPart]]:
    """A released mean over the records of an estimand, and the noise in it."""
    assert centres.sums is not None
    own, sums, n = ESTIMANDS[estimand], centres.sums, float(centres.n)
    middle = sum(centres.outcome_range) / 2.0
    if own.of_treated and own.of_control:
        from_middle, scales = float(sums.value.sum()) / n, [sums.scale / n] * len(sums.value)
        off = from_middle * centres.size_sd / n
    else:
        arm = 0 if own.of_treated else 1
        size = float(centres.sizes[arm])
        from_middle, scales = float(sums.value[arm]) / size, [sums.scale / size]
        off = from_middle * centres.share_sd * n / size
    pairs = tuple((scale, scale) for scale in scales if scale > 0.0)
    part = MeansPart("the number of records analysed", off, off, noise=True)
    laplace, gaussian = ((), pairs) if sums.gaussian else (pairs, ())
    return middle + from_middle, laplace, gaussian, [part]


def _sampling(
    estimate: Estimate, centres: ArmStats, spread: Spread, weights: Pair, unadjusted: bool
) -> tuple[MeansVariance, ...] | Unavailable:
    """Variances of both means; that of their difference is the estimate's own."""
    own, (one, other) = estimate.sampling, weights
    if isinstance(own, Unavailable):
        return own
    if unadjusted:  # arms of equal variance
        return (MeansVariance(own, 1.0 - centres.share, centres.share),)
    if one and other:
        level = _known(float(spread.variance) / centres.n)
        return (
            MeansVariance(own, one**2, other**2, -one * other),
            MeansVariance(level, 1.0, 1.0, 1.0),
        )
    # over the treated the treated mean is the one observed: it shares what covariates explain
    size = float(centres.sizes[0 if other else 1])
    alone = (1.0 - spread.explained) * spread.variance / size
    rest = replace(own, value=own.value - alone, largest=max(own.largest - alone, 0.0))
    observed = MeansVariance(_known(alone), other, one)
    common = MeansVariance(_known(spread.explained * spread.variance / size), 1.0, 1.0, 1.0)
    return observed, MeansVariance(rest, one, other), common


def _known(variance: float) -> SamplingVariance:
    return SamplingVariance(variance, 0.0, variance)


def _design(
    estimate: Estimate, means: ArmMeans, centres: ArmStats, estimand: str, spread: Spread
) -> tuple[float, float, float]:
    """Factors of m (1 - m) in the variances of both means, and in their covariance.

    Residuals that go with the weights make the variance of the effect another than sizes alone say:
    the released one counts by its precision.
    """
    one, other = (1.0 / spread.sizes).tolist()
    if spread.known:
        return one, other, 0.0
    explained, own = spread.explained, ESTIMANDS[estimand]
    bare = replace(means, design=(one, other, 0.0))
    expected = (1.0 - explained) * variance_at(bare, 1.0, -1.0, *likely(bare))
    factor, released = 1.0, estimate.sampling
    if isinstance(released, SamplingVariance) and expected > 0.0:
        seen = released.value / expected
        sd = math.sqrt(2.0) * released.noise_scale / expected
        factor += (seen - 1.0) * hand.ROUGH**2 / (hand.ROUGH**2 + sd**2)
        factor = max(factor, 0.3)
    kept, n = (1.0 - explained) * factor, float(centres.n)
    if own.of_treated and own.of_control:
        common = explained / n
        return kept * one + common, kept * other + common, common
    size = float(centres.sizes[0 if own.of_treated else 1])
    alone, common = (1.0 - explained) / size, explained / size
    rest = max(kept * (one + other) - alone, 0.25 * kept * (one + other)) + common
    pair = (1.0 / size, rest) if own.of_treated else (rest, 1.0 / size)
    return *pair, common


def by_arm(
    pair: Sequence[int],
    values: FloatArray,
    sds: FloatArray,
    largest: FloatArray,
    common: float = 0.0,
) -> tuple[MeansVariance, ...]:
    """Variances of the means of two arms, with noise of these ``sds``; they share no records.

    ``common`` is a variance that all have in common.
    """
    found = [
        SamplingVariance(float(values[k]), float(sds[k]) / math.sqrt(2.0), float(largest[k]))
        for k in pair
    ]
    apart = MeansVariance(found[0], 1.0, 0.0), MeansVariance(found[1], 0.0, 1.0)
    return (*apart, MeansVariance(_known(common), 1.0, 1.0, 1.0)) if common else apart


def arm_means(
    pair: Sequence[int],
    values: FloatArray,
    centres: ArmStats,
    estimate: Estimate,
    sampling: tuple[MeansVariance, ...] | Unavailable,
    scales: FloatArray,
    gaussian: bool,
    sizes: FloatArray,
) -> ArmMeans | None:
    """Means of two of several arms, whose ``values`` are right but for a common error.

    The released mean of all outcomes is in the place of that of the arms, weighted by their shares.
    ``scales`` are those of the noise in ``values``.
    """
    if centres.sums is None:
        return None
    level, laplace, normal, parts = _level(centres, "ATE")
    arm, other = pair
    moved = values - centres.shares @ values + level
    turn = np.eye(len(values)) - centres.shares
    noise = tuple(
        (float(turn[arm, b] * x), float(turn[other, b] * x)) for b, x in enumerate(scales)
    )
    apart = centres.share_sd * float(np.abs(values - centres.shares @ values).max())
    parts.append(MeansPart("the arm sizes", apart, apart, noise=True))
    for part in estimate.parts:
        half = math.sqrt(part.variance / 2.0)
        parts += [MeansPart(part.name, half, 0.0, part.noise)]
        parts += [MeansPart(part.name, 0.0, half, part.noise)]
    one, two = (1.0 / sizes[list(pair)]).tolist()
    return ArmMeans(
        float(moved[arm]),
        float(moved[other]),
        sampling,
        laplace=laplace if gaussian else (*laplace, *noise),
        gaussian=(*normal, *noise) if gaussian else normal,
        parts=tuple(part for part in parts if part.treated or part.control),
        possible=centres.outcome_range,
        design=(one, two, 0.0) if centres.two_valued else None,
    )


def with_released_means(curator: Curator, estimate: Estimate, estimand: str) -> Estimate:
    """The estimate of a method that releases no level, with means around one that is released."""
    count, sums = curator.several(
        SumQuery("treated count", None, COUNT, TREATED, SHARE, hand.COUNT),
        SumQuery(
            "outcome sums by arm",
            Outcome(),
            Box(*curator.outcome_range),
            ARMS,
            SHARE,
            1.0 - hand.COUNT,
        ),
    )
    counts = counts_of(curator, replace(count, value=count.value[0]))
    centres = centres_of(curator, counts.shares(), replace(sums, value=sums.value[:, 0]))
    own, share = sampling_variance(estimate), centres.share
    even = 1.0 / (centres.n * share * (1.0 - share))
    spread = centres.most_variance
    if not isinstance(own, Unavailable):
        spread = min(own / even, spread)
    return with_means(estimate, centres, estimand, Spread(spread, centres.sizes))
