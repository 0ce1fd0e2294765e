"""Released means at an end of their declared range, as of values in another unit: all clipped.

Nothing is read but what was released and what is declared, so that this costs no privacy budget.
"""

from __future__ import annotations

import math

from dpeffects.errors import refusal
from dpeffects.inference.estimate import ArmMeans

_NEAR, _TOLD = 0.005, {"upper": 0.03, "lower": 0.02}
"""In parts of the range: how near an end a mean without noise has to be; and how far from it honest
means may be, which noise must not hide: more often near 0."""
_SHARES = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)


def end_warning(name: str, mean: float, noise: float, low: float, high: float) -> str:
    """Warn of a mean that is, but for its noise, at an end of its range; empty where it is not.

    A mean near 0 of what lies between 0 and 1 may be that of rare events.

    Examples
    --------
    >>> end_warning("weight", 4.99, 0.02, 0.0, 5.0)[:50]
    'The released mean of weight is at the upper end of'
    >>> end_warning("weight", 4.4, 0.02, 0.0, 5.0), end_warning("died", 0.004, 0.001, 0.0, 1.0)
    ('', '')
    """
    for end, gap in (("upper", high - mean), ("lower", mean - low)):
        most = min(max(2.5 * noise, _NEAR * (high - low)), _TOLD[end] * (high - low) - 2.0 * noise)
        if gap <= most < math.inf and (end, low, high) != ("lower", 0.0, 1.0):
            return refusal("range_end", name=name, end=end, low=f"{low:.6g}", high=f"{high:.6g}")
    return ""


def arms_warning(name: str, means: ArmMeans | None) -> str:
    """The same of the mean of two arms that has the least noise; two values have no unit."""
    if means is None or means.possible is None or means.design is not None:
        return ""
    mixed = [means.combined(share, 1.0 - share) for share in _SHARES]
    own = min(mixed, key=lambda x: x.noise_variance)
    return end_warning(name, own.value, math.sqrt(own.noise_variance), *means.possible)
