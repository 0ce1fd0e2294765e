"""What a centre can say of a site that it cannot refute: that it carries the result, or disagrees.

How far a site is from the others is measured by its own error, that of their mean, and how far
their effects differ between themselves (DerSimonian and Laird's variance without the site): one
site cannot excuse itself, and sites whose effects differ are not accused.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dpeffects.inference.estimate import Estimate
from dpeffects.inference.intervals import total_variance
from dpeffects.results.export import or_nan
from dpeffects.sites.notes import listed
from dpeffects.sites.weights import Floats

_MOST = 0.8
_CHANCE = 0.05
"""At most so many combinations of honest sites name one that disagrees, its errors being Laplace;
benchmarks/results/sites_liars.md has how many do."""


def named(
    sites: Sequence[str],
    weights: Floats,
    n: Floats,
    value: Floats,
    variance: Floats,
    *,
    by_n: bool = False,
    own: Floats | None = None,
) -> tuple[str, ...]:
    """Sentences on sites that nobody should overlook; estimates are (sites, effects).

    ``by_n`` says that weights follow the numbers of records, which then carry the result; ``own``
    are the variances of the sites' own errors, where they are not those of the first estimate.
    """
    if len(sites) < 2:
        return ()
    records, error = n / n.sum(), weights**2 * (variance[:, 0] if own is None else own)
    error = error / max(float(error.sum()), 1e-300)
    carried = np.where(by_n & (weights > 0.0), records, weights)
    far, most = _away(value, variance), math.log(value.size / _CHANCE) / math.sqrt(2.0)
    whom = "ALL OTHERS" if len(sites) > 2 else "EACH OTHER"
    cases = (
        (far > most, f"DISAGREES WITH {whom}, by {far.max():.1f} standard errors"),
        (carried > np.maximum(0.5, 2.0 * records), "CARRIES MORE THAN ITS RECORDS JUSTIFY"),
        (carried > _MOST, f"CARRIES THE RESULT, {carried.max():.0%} of it"),
        (error > np.maximum(0.9, 2.0 * weights), f"HAS {error.max():.0%} OF THE ERROR"),
    )
    return tuple(f"{listed(np.array(sites)[who])}: {words}" for who, words in cases if who.any())


def numbers(sent: Sequence[Sequence[Estimate]]) -> tuple[Floats, Floats]:
    """Estimates and their variances, one row a site; one that is not there is as large as any."""
    value = np.array([[x.value for x in own] for own in sent])
    variance = np.array([[or_nan(total_variance(x)) for x in own] for own in sent])
    return value, np.nan_to_num(variance, nan=1e100)


def _away(value: Floats, variance: Floats) -> Floats:
    """How many standard errors each site is from all others, in the effect where that is most."""
    unit = np.maximum(variance.min(axis=0), 1e-300)
    w, y = unit / np.maximum(variance, unit), (value - np.median(value, axis=0)) / np.sqrt(unit)
    total, square, first, second = map(_of_others, (w, w * w, w * y, w * y * y))
    mean, spread = first / total, square / total
    over = np.maximum(second - first * mean - (len(value) - 2), 0.0)
    tau2 = over / np.maximum(total - spread, 1e-300) if len(value) > 2 else 0.0
    found = np.abs(y - mean) / np.sqrt(1.0 / w + 1.0 / total + tau2 * (1.0 + spread / total))
    return np.asarray(found.max(axis=1))


def _of_others(x: Floats) -> Floats:
    """Sums over all sites but one, without loss of digits."""
    none = np.zeros((1, x.shape[1]))
    before, after = (np.vstack([none, np.cumsum(part, axis=0)[:-1]]) for part in (x, x[::-1]))
    return np.asarray(before + after[::-1])
