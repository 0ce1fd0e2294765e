"""Whether an effect differs between the levels of a factor, from the released numbers.

Of all pairs of levels, the one whose effects differ by most standard deviations is tested by the
exact distribution of the difference, noise included. Its p-value times the number of pairs is that
of the hypothesis that the effect is the same at all levels (Bonferroni).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from dpeffects.inference.estimate import Estimate, Unavailable
from dpeffects.inference.intervals import Interval, interval, p_value


@dataclass(frozen=True)
class Interaction:
    """The difference of an effect between two levels of a factor that is clearest of ``pairs``."""

    one: str
    other: str
    difference: Estimate
    pairs: int

    @property
    def p_value(self) -> float | Unavailable:
        """Of the hypothesis that the effect is the same at all levels."""
        p = p_value(self.difference)
        return p if isinstance(p, Unavailable) else min(1.0, self.pairs * p)

    def conf_int(self, conf_level: float) -> Interval | Unavailable:
        """Of this difference; those of all pairs hold at once."""
        return interval(self.difference, 1.0 - (1.0 - conf_level) / self.pairs)


def interaction(levels: Sequence[str], effects: Sequence[Estimate]) -> Interaction | None:
    """Compare the effects at all levels of a factor; None where there is one level only.

    Examples
    --------
    >>> from dpeffects.inference.estimate import SamplingVariance
    >>> own = SamplingVariance(0.5, 0.0, 10.0)
    >>> found = interaction(["f", "m"], [Estimate(3.0, own), Estimate(1.04, own)])
    >>> found.one, found.other, round(found.p_value, 3)
    ('f', 'm', 0.05)
    """
    pairs = [
        (levels[a], levels[b], effects[a].less(effects[b]))
        for a, b in combinations(range(len(levels)), 2)
    ]
    if not pairs:
        return None
    return Interaction(*max(pairs, key=lambda pair: _clear(pair[2])), pairs=len(pairs))


def _clear(difference: Estimate) -> float:
    """How many standard deviations a difference is, about."""
    own = difference.sampling
    sampling = 0.0 if isinstance(own, Unavailable) else max(own.value, 0.0)
    variance = sampling + difference.noise_variance + difference.bias_variance
    return abs(difference.point) / math.sqrt(max(variance, 1e-300))
