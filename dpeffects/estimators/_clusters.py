"""Variances from squares of sums: of clusters, of units with several rows, of weighted rows.

A method says how its estimate adds up over rows (`Influence`). Rows of one cluster, or of one unit,
have much in common, so that the variance of the estimate is that of their sums. The squares of
these are released, once for all methods, and take the place of the method's own sampling variance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from dpeffects.arrays import FloatArray
from dpeffects.inference.estimate import Estimate, Influence, SamplingVariance, Unavailable
from dpeffects.privacy.curator import Curator
from dpeffects.privacy.rows import Block
from dpeffects.privacy.sets import Box
from dpeffects.privacy.units import cluster_count, squares_by_cluster, squares_by_unit

SHARE = "clusters"
PROPORTION = 0.15
_COUNTED = 0.1
"""Part of the share that counts the clusters, where nobody declared how many there are."""
_SPREAD, _COMMON = 4.0, 0.25
"""A sum of a cluster is kept within so many standard deviations, for rows that have this
correlation."""
_CUT = 2.2
"""Sums whose root mean square is above the bound over this are cut noticeably."""
_FEW = 30
_FEW_CLUSTERS = "FEW CLUSTERS: with about {:.0f} of them the interval is too short"
_ARE_CUT = "CLUSTER SUMS ARE CUT: the interval is too short; declare fewer clusters with clusters="


@dataclass(frozen=True, eq=False)
class _FromMean:
    """An influence less its mean."""

    influence: Influence

    @property
    def reads(self) -> tuple[str, ...]:
        """What the influence reads."""
        return tuple(self.influence.term.reads)

    def __call__(self, rows: Block) -> FloatArray:
        """Values of some rows."""
        found: FloatArray = self.influence.term(rows) - self.influence.mean
        return found


def with_group_variance(
    curator: Curator, estimate: Estimate, by_cluster: bool, clusters: int | None
) -> Estimate:
    """An estimate whose sampling variance is that of sums of clusters or units."""
    influence, own = estimate.influence, estimate.sampling
    if influence is None or isinstance(own, Unavailable):
        return estimate
    size, largest = influence.size, max(abs(influence.low), abs(influence.high))
    largest = min(largest + abs(influence.mean), 2.0 * largest)
    term, box = _FromMean(influence), Box(-largest, largest)
    caution, details = estimate.caution, dict(estimate.details)
    if by_cluster:
        count, part = _count(curator, clusters), _COUNTED if clusters is None else 0.0
        rows = max(curator.n / count, 1.0)
        row_sd = size * math.sqrt(max(own.value, own.noise_scale, 1e-300) / curator.n)
        row_sd = min(max(row_sd, 0.02 * largest), largest)
        bound = _SPREAD * row_sd * math.sqrt(rows * (1.0 + _COMMON * rows))
        bound = max(min(bound, 4.0 * rows * largest), largest)
        label = "squares of sums by cluster"
        found = squares_by_cluster(curator, label, term, box, bound, share=SHARE, part=1.0 - part)
        mean_square = float(found.total) / count
        if mean_square > (found.bound / _CUT) ** 2:
            caution = "; ".join(filter(None, (caution, _ARE_CUT)))
        if count < _FEW:
            caution = "; ".join(filter(None, (caution, _FEW_CLUSTERS.format(count))))
        details["clusters"] = f"{count:.0f}" + ("" if clusters else ", noisy and from below")
    else:
        label, count = "squares of sums by unit", float(curator.units)
        found = squares_by_unit(curator, label, term, box, share=SHARE)
    few = count / max(count - 1.0, 1.0)
    sampling = SamplingVariance(
        few * float(found.total) / size**2,
        few * found.total.scale / size**2,
        few * count * found.bound**2 / size**2,
    )
    return replace(estimate, sampling=sampling, caution=caution, details=details)


def _count(curator: Curator, clusters: int | None) -> float:
    """How many clusters there are: as declared, or at least, by a noisy count."""
    if clusters is not None:
        return float(clusters)
    noisy = cluster_count(curator, "number of clusters", share=SHARE, part=_COUNTED)
    return max(float(noisy) - noisy.sd, 2.0)
