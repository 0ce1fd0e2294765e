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
noise has a standard deviation of 0.015 B/(n epsilon) or more. Their releases are of version 2, and
all of these are asked for B/(200 n epsilon).

The largest estimate
--------------------
An effect lies within plus or minus B, and a release is off by its noise. One that is a hundred
times further away is neither.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from dpeffects.guarantee import Guarantee
from dpeffects.privacy.charges import Spend
from dpeffects.sites.release import SiteRelease
from dpeffects.sites.release_fields import version_of

_NUMBER = r"([-+0-9.e]+)"
_RANGE = re.compile(rf"\[{_NUMBER}, {_NUMBER}\]")
_SHOWN = 5e-6
"""Bounds are written with six digits: the largest relative error of an end."""
_LEAST, _CLIPPED = 0.5, 0.01
_MOST = 100.0
"""Times range plus noise: noise of so many standard deviations has a chance below 1e-60."""
_ROUNDED = 1e-8
"""Shares of a budget are rounded down, and totals shown as they were asked for, by less."""


def why_not(release: SiteRelease) -> str:
    """Say why a release cannot be what it says, or return an empty text."""
    guarantee = release.guarantee
    if reason := charges_add_up(release.spends, guarantee):
        return reason
    width = outcome_width(release)
    if width is None:
        return "it does not say the range of its outcome"
    clipped = version_of(release.released, release.sample) > 1
    least = _LEAST * (_CLIPPED if clipped else 1.0) * width / (release.n * guarantee.epsilon)
    noise = math.sqrt(release.released.noise_variance)
    if noise < least or noise == 0.0:
        return "it claims less noise than n, epsilon and the range of its outcome allow for"
    if abs(release.estimate) > _MOST * (_ends(release, 1.0) + noise):
        return "its estimate is far beyond the range of its outcome and its noise"
    return ""


def charges_add_up(spends: Sequence[Spend], guarantee: Guarantee) -> str:
    """Say why charges cannot be those behind a guarantee, or return an empty text."""
    if not spends:
        return "it lists no charges behind its guarantee"
    for name in ("epsilon", "delta"):
        if not _adds_up([getattr(x, name) for x in spends], getattr(guarantee, name)):
            return f"its charges do not add up to the {name} of its guarantee"
    return ""


def _adds_up(charges: Iterable[float], total: float) -> bool:
    return abs(math.fsum(charges) - total) <= _ROUNDED * total


def outcome_width(release: SiteRelease) -> float | None:
    """Width of the outcome's range, the first among the bounds, less what rounding may add."""
    width = _ends(release, -1.0)
    return max(0.0, width) if math.isfinite(width) else None


def _ends(release: SiteRelease, rounding: float) -> float:
    """Width of the range with so many times the rounding of its ends; NaN where there is none."""
    lower, upper = _written_range(release.bounds[0][1]) if release.bounds else (math.nan, math.nan)
    return upper - lower + rounding * _SHOWN * (abs(lower) + abs(upper))


@lru_cache(maxsize=1024)
def _written_range(words: str) -> tuple[float, float]:
    """The ends of a range in words; NaN where it is none."""
    written = _RANGE.fullmatch(words)
    try:
        return (float(written[1]), float(written[2])) if written else (math.nan, math.nan)
    except ValueError:
        return math.nan, math.nan
