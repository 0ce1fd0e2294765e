"""DR-learner with private nuisances: a regression on doubly robust pseudo-outcomes.

With propensity p(x) and mean outcomes m_1(x), m_0(x) of the arms it fits g(x) to
m_1 - m_0 + (a - p) (y - m_a) / (p (1 - p)). By group it is the mean effect. It has less error than
the R-learner where overlap is good.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dpeffects.arrays import FloatArray
from dpeffects.estimators import constants as hand
from dpeffects.estimators.learners import r_learner
from dpeffects.estimators.weighting.inverse_weights import Propensity
from dpeffects.privacy.losses import sigmoid, unit_norm


@dataclass(frozen=True)
class DRLearner(r_learner.RLearner):
    """Slopes are 1, and residuals are divided by propensities."""

    weighted_residuals = False

    def smallest_divisor(self, propensity: Propensity) -> float:
        """The smallest chance of an arm, for all but 1 % of covariates spread evenly.

        Targets beyond are clipped; the corners of the declared ranges would ask for far more noise.
        """
        norm = unit_norm(propensity.weights.size)
        middle = propensity.offset + float(propensity.weights[0]) / norm
        slopes = float(np.linalg.norm(propensity.weights[1:])) / norm
        reach = hand.CUT * math.sqrt(hand.EVENLY) * slopes
        low, high = sigmoid(np.array([middle - reach, middle + reach]))
        return min(max(float(low), propensity.low), 1.0 - min(float(high), propensity.high))

    def widening(self, share: float, propensity: Propensity) -> float:
        """About twice, and for outcomes at the ends of their range up to 1 / propensity times."""
        widest = 1.0 / self.smallest_divisor(propensity)
        return max(2.0, 2.0 + (widest - 2.0) * min(share, 1.0))

    def squared_slope(self, propensity: Propensity) -> float:
        """Slopes are 1."""
        return 1.0

    def pseudo_outcomes(
        self, a: FloatArray, y: FloatArray, score: FloatArray, one: FloatArray, zero: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Difference of the mean outcomes, and the weighted residual of the own one."""
        gap, own = a - score, np.where(a > 0.5, one, zero)
        return gap / (score * (1.0 - score)) * (y - own) + one - zero, np.ones(len(y))


SPEC = replace(
    r_learner.SPEC,
    name="dr_learner",
    title="DR-learner with private nuisances",
    about="a function of the covariates from pseudo-outcomes; less error where overlap is good",
    fit=DRLearner().fit,
)
