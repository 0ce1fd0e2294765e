"""Variances from squares of sums: of clusters, of units with several rows, of weighted rows.

A method says how its estimate adds up over rows (`Influence`). Rows of one cluster, or of one unit,
have much in common, so that the variance of the estimate is that of their sums. The squares of
these are released, once for all methods, and take the place of the method's own sampling variance.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np

from dpeffects.arrays import FloatArray
from dpeffects.estimators import constants as hand
from dpeffects.estimators.default.arm_summaries import squared
from dpeffects.estimators.row_functions import row
from dpeffects.inference.estimate import Effects, Estimate, Influence, SamplingVariance, Unavailable
from dpeffects.inference.intervals import sampling_variance
from dpeffects.inference.scales import likely, variance_at
from dpeffects.privacy import Block, Box, Curator, RowFunction
from dpeffects.privacy.units import cluster_count, squares_of_sums
from dpeffects.results.wording import said

SHARE = "clusters"
PROPORTIONS = {True: 0.25, False: 0.1}
"""Of the budget, for sums of clusters, and for those of units or weighted rows."""
_ROWS, _COUNTED = Fraction(1, 8), Fraction(1, 4)
"""Parts of the share for squares of rows, and for how many clusters there are where nobody
declared it."""
_FROM_BELOW = ", noisy and from below"
_FEW_CLUSTERS = "Few clusters: with about {:.0f} in an arm the interval may be too narrow"
_OF_MEANS: str = said("clusters")["means"]
_ARE_CUT = "CLUSTER SUMS ARE CUT: the interval is too short; declare fewer clusters with clusters="


@row()
def _from_mean(
    rows: Block, term: RowFunction, mean: float, longest: float = math.inf
) -> FloatArray:
    """An influence less its mean, cut at a length."""
    return np.clip(term(rows) - mean, -longest, longest)


def with_group_variances(
    curator: Curator, effects: Effects, by_cluster: bool, clusters: int | None
) -> Effects:
    """The same for several effects, each with its part of the share; clusters are counted once."""
    estimates, whole, details = effects.estimates, Fraction(1), dict(effects.details)
    if any(x.influence is None or isinstance(x.sampling, Unavailable) for x in estimates):
        return effects
    if by_cluster:
        details["clusters"] = f"{clusters}"
    if by_cluster and clusters is None:
        clusters, whole = math.ceil(_count(curator, None)), 1 - _COUNTED
        details["clusters"] = f"{clusters}{_FROM_BELOW}"
    part = whole / len(estimates)
    made = (with_group_variance(curator, x, by_cluster, clusters, part) for x in estimates)
    return replace(effects, estimates=tuple(made), details=details)


def with_group_variance(
    curator: Curator,
    estimate: Estimate,
    by_cluster: bool,
    clusters: int | None,
    part: Fraction = Fraction(1),
) -> Estimate:
    """An estimate whose sampling variance is that of sums of clusters or units.

    That by clusters has squares of their sums of cut rows, times what the cut took away. A variance
    of few sums is itself uncertain, as if it had more noise: that makes of the normal distribution
    about a t distribution.
    """
    influence, own = estimate.influence, estimate.sampling
    if influence is None or isinstance(own, Unavailable):
        return estimate
    size, largest = influence.size, _largest(influence)
    if not by_cluster:
        count = float(curator.units)
        term, box = _from_mean(influence.term, influence.mean), Box(-largest, largest)
        label = "squares of sums by unit"
        found = squares_of_sums(curator, label, term, box, share=SHARE, part=part)
        few = count / (max(count - 1.0, 1.0) * size**2)
        most = few * count * found.bound**2
        sampling = SamplingVariance(few * float(found.total), few * found.total.scale, most)
        return _with_variance(estimate, sampling)
    row_sd = size * math.sqrt(max(own.value, own.noise_scale, 1e-300) / curator.n)
    row_sd *= influence.uneven
    long = math.inf if curator.values[-1] == 2 else hand.LONG_SDS  # few ones are shared
    longest = max(min(long * row_sd, largest), 0.02 * largest)
    term = _from_mean(influence.term, influence.mean, longest)
    lost, whole = 1.0, part
    if longest < largest:
        part -= whole * _ROWS
        squares = curator.sums(
            "squares of cut rows",
            squared(term),
            Box(0.0, longest**2),
            share=SHARE,
            part=whole * _ROWS,
        )
        # rows over cut rows, where that is more than noise can make; rows of a cluster are half
        # as alike in what was cut off as in the rest
        noise = math.hypot(math.sqrt(2.0) * own.noise_scale * size**2, squares.sd)
        more = (own.value * size**2 - noise) / max(float(squares), squares.sd, 1e-300)
        lost = 0.5 + 0.5 * min(max(more, 1.0), hand.MOST_LOST)
    count, part = _count(curator, clusters), part - (whole * _COUNTED if clusters is None else 0)
    rows = max(curator.n / count, 1.0)
    bound = hand.CLUSTER_SDS * row_sd * math.sqrt(rows * (1.0 + hand.ALIKE * rows))
    bound = max(min(bound, 4.0 * rows * longest), longest)
    label, box = "squares of sums by cluster", Box(-longest, longest)
    found = squares_of_sums(curator, label, term, box, bound, share=SHARE, part=part)
    alike = 2.0 * count / (1.0 + influence.uneven**2)  # the smaller arm has most of the variance
    few = lost * alike / (max(alike - hand.FREEDOM_LOST, 1.0) * size**2)
    value = few * float(found.total)
    scale = math.hypot(few * found.total.scale, max(value, 0.0) * math.sqrt(2.0 / alike))
    most = few * count * found.bound**2
    warning_lines = [estimate.warnings]
    if float(found.total) / count > (found.bound / hand.CLUSTERS_CUT) ** 2:
        warning_lines.append(_ARE_CUT)
    if alike < hand.FEW_CLUSTERS:
        warning_lines.append(_FEW_CLUSTERS.format(alike / 2.0))
    known = "" if clusters else _FROM_BELOW
    said = () if estimate.means is None else (_OF_MEANS,)
    return replace(
        _with_variance(estimate, SamplingVariance(value, scale, most)),
        notes=(*estimate.notes, *said),
        warnings="; ".join(filter(None, warning_lines)),
        details={**estimate.details, "clusters": f"{count:.0f}{known}"},
    )


def _with_variance(estimate: Estimate, sampling: SamplingVariance) -> Estimate:
    """The estimate with another sampling variance; those of its means change by the same factor."""
    means, known = estimate.means, replace(estimate, sampling=sampling)
    if means is None:
        return known
    design, own = means.design, sampling_variance(estimate)
    if design is not None:
        own = variance_at(means, 1.0, -1.0, *likely(means))
    new = sampling_variance(known)
    if isinstance(own, Unavailable) or isinstance(new, Unavailable):
        return known
    factor = new / max(own, 1e-300)
    return replace(known, means=means.scaled(factor, sampling.noise_scale / max(new, 1e-300)))


@row("treated")
def _one(rows: Block) -> FloatArray:
    """One for each row."""
    return np.ones(rows.treated.size)


def effective_size(curator: Curator, size: float, share: str, part: float) -> float | None:
    """Kish's effective size, (sum of weights)^2 / (sum of their squares), by units."""
    label = "squares of weights"
    squares = squares_of_sums(curator, label, _one(), Box(-1.0, 1.0), share=share, part=part).total
    if float(squares) < 2.0 * squares.sd:
        return None
    return min(max(size**2 / float(squares), size), curator.units)


def _largest(influence: Influence) -> float:
    """The largest influence, measured from its mean."""
    largest = max(abs(influence.low), abs(influence.high))
    return min(largest + abs(influence.mean), 2.0 * largest)


def _count(curator: Curator, clusters: int | None) -> float:
    """How many clusters there are: as declared, or rather fewer than a noisy count says."""
    if clusters is not None:
        return float(clusters)
    noisy = cluster_count(curator, "number of clusters", share=SHARE, part=_COUNTED)
    counts = np.geomspace(2.0, max(curator.units, 3), 500)
    usual = np.log(counts / math.sqrt(curator.units)) / hand.LOG_SPREAD
    weight = np.exp(-np.abs(counts - float(noisy)) / max(noisy.scale, 1e-9) - 0.5 * usual**2)
    if not weight.sum() > 0.0:  # far from everything that is usual
        return float(np.clip(float(noisy), 2.0, counts[-1]))
    return float(counts[np.searchsorted(weight.cumsum(), 0.3 * weight.sum())])
