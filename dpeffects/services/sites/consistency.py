"""What a release says of itself, checked against its own public numbers.

A centre cannot see a site's data, so it cannot know whether a site tells the truth. It can know
that some releases are impossible, and a site with impossibly little noise would take all weight.

The least noise
---------------
Every estimate here is the difference of two arms, and each arm's part is an average of outcomes
with weights that sum to one, over at most n records. So some record has a weight of at least 1/n,
and its outcome, going from one end of the declared range B to the other, moves the estimate by at
least B/n. What hides a shift of B/n with the whole epsilon by Laplace noise has a scale of at least
B/(n epsilon), which is a standard deviation of 1.41 B/(n epsilon). Gaussian noise needs more for a
delta below 1/10. Of that standard deviation about a third is asked for, B/(2 n epsilon), so that
rounded bounds and estimates that shrink towards no effect never fail; what the methods of this
package add is several times as much, because arms are smaller than n and budgets are divided.

Methods that clip residuals around released means add noise for the clip instead of the range. Their
clips are at least 1/181 of the range, and the terms of their sums are twice as wide or more, so the
noise has a standard deviation of 0.015 B/(n epsilon) or more. Their releases have parts, a possible
range, a basis or means, and all with one of these are asked for B/(200 n epsilon).

The largest estimate
--------------------
An effect lies within plus or minus B, and a release is off by its noise: one that is further away
than twenty standard deviations of it is neither. So it is with both means, which are off by
possible biases too, with the sums of a study and with the counts of a table. What a site says is
possible is what its bounds say.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import lru_cache
from operator import attrgetter

import numpy as np

from dpeffects.abilities.moments import Moments
from dpeffects.guarantee import Guarantee
from dpeffects.inference.estimate import ArmMeans, Pair
from dpeffects.privacy.charges import Charge
from dpeffects.results.table_results import TableEffects
from dpeffects.services.sites.site_documents import SiteRelease, StudyRelease

_NUMBER = r"([-+0-9.e]+)"
_SHOWN = 5e-6
"""Bounds are written with six digits: the largest relative error of an end."""
_LEAST, _CLIPPED = 0.5, 0.01
_FAR = 20.0
"""Standard deviations of noise: more have a chance below 1e-12, and releases of all methods at n =
60 to 4,000 and epsilon 0.05 to 37 went 1.4 of them beyond the range."""
_ROUNDED = 1e-8
"""Shares of a budget are rounded down, and totals shown as they were asked for, by less."""


def release_inconsistency(release: SiteRelease) -> str:
    """Say why a release cannot be what it says, or return an empty text."""
    guarantee = release.guarantee
    if reason := _charges_add_up(release.charges, guarantee):
        return reason
    width = outcome_width(release)
    if width is None:
        return "it does not say the range of its outcome"
    told = release.released
    clipped = told.parts or told.possible or told.identification or told.means or release.sample
    least = _LEAST * (_CLIPPED if clipped else 1.0) * width / (release.n * guarantee.epsilon)
    noise = math.sqrt(told.noise_variance)
    if noise < least or noise == 0.0:
        return "it claims less noise than n, epsilon and the range of its outcome allow for"
    most = _ends(release, 1.0)
    if abs(release.estimate) > most + _FAR * noise:
        return "its estimate is far beyond the range of its outcome and its noise"
    low, high = told.possible or (-width, width)
    if max(-low, high) > most or min(-low, high) < width:
        return "the effects that it calls possible are not those of the range of its outcome"
    return "" if told.means is None else _why_not_means(told.means, release, noise)


def _why_not_means(means: ArmMeans, release: SiteRelease, noise: float) -> str:
    """Say why mean outcomes cannot be those behind an estimate, or return an empty text."""
    low, high = _written_range(release.bounds[0][1])
    rounded = _SHOWN * (abs(low) + abs(high))
    ends = means.possible or (low, high)
    if max(abs(ends[0] - low), abs(ends[1] - high)) > rounded:
        return "the range of its means is not that of its outcome"
    noisy = [(x.treated, x.control) for x in means.parts if x.noise]
    own = zip(*map(_squares, (means.laplace, means.gaussian, noisy)), strict=True)
    variances = [2.0 * laplace + gaussian + models for laplace, gaussian, models in own]
    biases = _squares([(x.treated, x.control) for x in means.parts if not x.noise])
    for mean, *errors in zip((means.treated, means.control), variances, biases, strict=False):
        far = _FAR * math.sqrt(sum(errors)) + rounded
        if not low - far <= mean <= high + far:
            return "a mean is far beyond the range of its outcome and its noise"
    if variances[2] < 0.5 * noise**2:
        return "its means have less noise than the difference between them"
    return ""  # how variable they are is as the effect's variance bears out: `combined_means`


def _squares(pairs: Sequence[Pair]) -> tuple[float, float, float]:
    """Sums of the squares of errors in both means, and in the difference between them."""
    one = other = between = 0.0
    for x, y in pairs:
        one, other, between = one + x * x, other + y * y, between + (x - y) ** 2
    return one, other, between


def study_inconsistency(release: StudyRelease) -> str:
    """Say why a study cannot be what it says, or return an empty text."""
    plain = release.sums.plain
    if reason := _charges_add_up(release.charges, release.guarantee):
        return reason
    noise = np.sqrt(plain.noise)
    if noise[1].min() < _LEAST / release.guarantee.epsilon:
        return "it claims less noise than its epsilon allows for"
    far = _FAR * (1.0 + noise.max())
    if plain.sizes.sum() > release.n + far:
        return "it has more records than it says"
    if (np.abs(plain.sums) > np.abs(plain.sizes)[..., None] / 2.0 + far).any():
        return "its sums are far beyond the ranges of their columns and its noise"
    return ""


def table_inconsistency(result: TableEffects) -> str:
    """Say why a table cannot be what it says, or return an empty text."""
    table = result.arm_table.unadjusted or result.arm_table
    noise = np.sqrt(np.maximum(table.noise_variance, 0.0))
    if noise.min() * result.guarantee.epsilon < _LEAST:
        return "it claims less noise than its epsilon allows for"
    far = _FAR * (1.0 + noise.max())
    if table.counts.sum() > result.n + far * math.sqrt(table.counts.size):
        return "it has more records than it says"
    return "it has a count far below zero" if table.counts.min() < -far else ""


def moments_inconsistency(result: Moments) -> str:
    """Say why moments cannot be what they say; each record's columns have a norm of at most 1."""
    matrix = result.matrix
    room, more = (result.n + _FAR * (1.0 + x**0.5) for x in (matrix.variance, matrix.size_variance))
    if max(map(abs, matrix.entries)) > room or not 0.0 < matrix.n <= more:
        return "its sums are those of more records than it says"
    # records that are as many, by their weights, as 1 to n of equal weight
    possible = 1.0 - _ROUNDED <= matrix.unequal <= max(more, 1.0)
    return "" if possible else "its weights are more unequal than weights can be"


def _charges_add_up(charges: Sequence[Charge], guarantee: Guarantee) -> str:
    """Say why charges cannot be those behind a guarantee, or return an empty text."""
    if not charges:
        return "it lists no charges behind its guarantee"
    for name in ("epsilon", "delta"):
        total = getattr(guarantee, name)
        if abs(math.fsum(map(attrgetter(name), charges)) - total) > _ROUNDED * total:
            return f"its charges do not add up to the {name} of its guarantee"
    return ""


def outcome_width(release: SiteRelease) -> float | None:
    """Width of the outcome's range, the first among the bounds, less what rounding may add."""
    return max(0.0, width) if math.isfinite(width := _ends(release, -1.0)) else None


def _ends(release: SiteRelease, rounding: float) -> float:
    """Width of the range with so many times the rounding of its ends; NaN where there is none."""
    lower, upper = _written_range(release.bounds[0][1]) if release.bounds else (math.nan, math.nan)
    return upper - lower + rounding * _SHOWN * (abs(lower) + abs(upper))


@lru_cache(maxsize=1024)
def _written_range(words: str) -> tuple[float, float]:
    """The ends of a range in words; NaN where it is none."""
    written = re.fullmatch(rf"\[{_NUMBER}, {_NUMBER}\]", words)
    try:
        return (float(written[1]), float(written[2])) if written else (math.nan, math.nan)
    except ValueError:
        return math.nan, math.nan
