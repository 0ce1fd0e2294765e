"""Weighted sums of independent estimates, such as those of sites, and of their mean outcomes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from dpeffects.inference import scales
from dpeffects.inference.estimate import (
    ArmMeans,
    ErrorPart,
    Estimate,
    MeansPart,
    MeansVariance,
    Pair,
    Unavailable,
)
from dpeffects.inference.intervals import sampling_variance

_SINGLE = 12
"""Laplace terms that an interval has one by one; the others add up to about a normal one."""


def weighted(estimates: Sequence[Estimate], weights: Sequence[float]) -> Estimate:
    """The weighted sum of independent estimates that have means; weights add up to one.

    Possible biases of one name may have the same sign everywhere: they do not average out.
    """
    means = combined_means(estimates, weights, None)
    if means is None:
        raise ValueError("estimates without means have no weighted sum")
    ordered = sorted(means.laplace, key=lambda pair: -math.hypot(*pair))
    rest = tuple(_times(pair, math.sqrt(2.0)) for pair in ordered[_SINGLE:])
    means = replace(means, laplace=tuple(ordered[:_SINGLE]), gaussian=(*means.gaussian, *rest))
    biases: dict[str, float] = {}
    for x, w in zip(estimates, weights, strict=True):
        for part in x.parts:
            biases[part.name] = biases.get(part.name, 0.0) + w * math.sqrt(part.variance)
    return replace(
        means.combined(1.0, -1.0),
        means=means,
        parts=tuple(ErrorPart(name, sd**2) for name, sd in biases.items()),
        possible=estimates[0].possible,
        identification=estimates[0].identification,
    )


def combined_means(
    estimates: Sequence[Estimate], weights: Sequence[float], variance: float | None
) -> ArmMeans | None:
    """Weighted sums of the means of sites, which are independent; None where a site has none.

    As for effects, possible biases of one name are common to the sites. ``variance`` is the
    sampling variance of the combined effect, which may allow for weights that noise chose or for
    effects that differ: those of the means are larger by the same factor.
    """
    used = [(x.means, w) for x, w in zip(estimates, weights, strict=True) if w > 0.0]
    known = [(means, w) for means, w in used if means is not None]
    if not known or len(known) < len(used):
        return None
    made = ArmMeans(
        sum(w * x.treated for x, w in known),
        sum(w * x.control for x, w in known),
        _sampling(known),
        laplace=tuple(_times(pair, w) for x, w in known for pair in x.laplace),
        gaussian=tuple(_times(pair, w) for x, w in known for pair in x.gaussian),
        parts=_parts(known),
        possible=_possible(known),
    )
    difference = made.combined(1.0, -1.0)
    own = sampling_variance(difference)
    if variance is not None and not isinstance(own, Unavailable) and 0.0 < own < variance:
        made = made.scaled(variance / own)
    if (design := _design(known, made)) is None:
        return made
    made = replace(made, design=design)
    own = scales.variance_at(made, 1.0, -1.0, *scales.likely(made))
    factor = max(1.0, (variance or 0.0) / max(own, 1e-300))
    return replace(made, design=(factor * design[0], factor * design[1], factor * design[2]))


Known = list[tuple[ArmMeans, float]]


def _times(pair: Pair, w: float) -> Pair:
    return w * pair[0], w * pair[1]


def _sampling(known: Known) -> tuple[MeansVariance, ...] | Unavailable:
    found: list[MeansVariance] = []
    for means, w in known:
        if isinstance(means.sampling, Unavailable):
            return means.sampling
        found += [replace(part, variance=part.variance.times(w * w)) for part in means.sampling]
    return tuple(found)


def _parts(known: Known) -> tuple[MeansPart, ...]:
    """Noise of sites is independent; biases of one name add up, the first with the first."""
    found, biases = [], dict[tuple[str, int], Pair]()
    for means, w in known:
        seen: dict[str, int] = {}
        for part in means.parts:
            one, two = w * part.treated, w * part.control
            if part.noise:
                found.append(replace(part, treated=one, control=two))
            else:
                key = part.name, seen.setdefault(part.name, 0)
                seen[part.name] += 1
                before = biases.get(key, (0.0, 0.0))
                biases[key] = before[0] + one, before[1] + two
    return (*found, *(MeansPart(name, *pair) for (name, _), pair in biases.items()))


def _possible(known: Known) -> Pair | None:
    ends = [(x.possible, w) for x, w in known if x.possible is not None]
    if len(ends) < len(known):
        return None
    low, high = (sum(w * pair[k] for pair, w in ends) for k in (0, 1))
    first = ends[0][0]
    return first if all(pair == first for pair, _ in ends) else (low, high)


def _design(known: Known, made: ArmMeans) -> tuple[float, float, float] | None:
    """Factors of m (1 - m) of the combined means, where sites have risks of their own."""
    if any(x.design is None or x.possible != made.possible for x, _ in known):
        return None
    at = replace(made, design=(1.0, 1.0, 1.0))
    whole = scales.covariance_at(at, *scales.likely(at))
    parts = [(scales.covariance_at(x, *scales.likely(x)), w) for x, w in known]
    sums = [sum(w * w * found[k] for found, w in parts) for k in range(3)]
    one, zero, both = (s / max(v, 1e-300) for s, v in zip(sums, whole, strict=True))
    return (one, zero, both) if all(map(math.isfinite, (one, zero, both))) else None
