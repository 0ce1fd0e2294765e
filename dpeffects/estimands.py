"""Estimands: over which records an effect is the average, and the weights that follow from it.

A new estimand is a record here; a method that has it names it in its `MethodSpec`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dpeffects.arrays import FloatArray


@dataclass(frozen=True)
class Estimand:
    """An effect, averaged over the treated records, the control records, or both.

    Examples
    --------
    >>> ESTIMANDS["ATT"].words, ESTIMANDS["ATT"].population(30, 70)
    ('average treatment effect on the treated', 30)
    >>> ESTIMANDS["ATE"].clip_limits(0.1), ESTIMANDS["ATT"].clip_limits(0.1)
    ((0.1, 0.9), (0.0, 0.9))
    """

    name: str
    words: str
    of_treated: bool = True
    of_control: bool = True
    conditional: bool = False

    def population(self, treated: Any, control: Any) -> Any:
        """What belongs to the population, of numbers (such as sizes) for the two arms."""
        return treated * self.of_treated + control * self.of_control

    def weights(self, propensity: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Weights of treated and of control records: chance of the population over that of the arm.

        An arm that is the population itself has weights of 1.
        """
        e, one = propensity, np.ones_like(propensity)
        chance = one if self.of_treated and self.of_control else e if self.of_treated else 1.0 - e
        return (
            chance / e if self.of_control else one,
            chance / (1.0 - e) if self.of_treated else one,
        )

    def clip_limits(self, clip: float) -> tuple[float, float]:
        """Where propensities are clipped: below for weights 1/p, above for weights 1/(1 - p)."""
        return clip if self.of_control else 0.0, 1.0 - clip if self.of_treated else 1.0


ESTIMANDS = {
    estimand.name: estimand
    for estimand in (
        Estimand("ATE", "average treatment effect"),
        Estimand("ATT", "average treatment effect on the treated", of_control=False),
        Estimand("ATC", "average treatment effect on the controls", of_treated=False),
        Estimand("CATE", "conditional average treatment effect", conditional=True),
    )
}
LATE = Estimand("LATE", "average treatment effect on the compliers")
"""Of those who are treated because of an instrument, and of no other method than `dp_late`."""
AVERAGES = tuple(name for name, estimand in ESTIMANDS.items() if not estimand.conditional)
