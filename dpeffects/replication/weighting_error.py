"""The error of a weighted sum of outcomes: what noise, centres, clip and shrinkage do to it.

With centres c and sums of weights W of the arms, over the size of the population, the estimate is

    c_1 - c_0 + extra,  extra = (W_1 (m_1 - c_1) - W_0 (m_0 - c_0)),

m the weighted means of the arms. So an error u of a centre moves it by u (1 - W), which noise in
the model and truncated weights make other than 0, and c_0 - c_1 - extra is the confounding that
the weights removed. A penalty leaves a part 1 - k of the slopes of the model out, and so that
part of the confounding C in: what was removed is k C. The estimate therefore goes ``further`` by
a factor, chosen such that the error by noise and by what is left of C is least, for a C as large
as is cautious to believe before anything is seen (`posterior`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dpeffects.arrays import FloatArray
from dpeffects.estimands import ESTIMANDS
from dpeffects.estimators.default.arm_summaries import ArmStats
from dpeffects.estimators.default.posterior import unadjusted_variance
from dpeffects.estimators.weighting.propensity import PropensityEstimate, reweighted
from dpeffects.inference.estimate import ErrorPart

_FAR_SDS = 1.1
"""How far mean outcomes of records beyond the clip are from the mean, in standard deviations."""


@dataclass(frozen=True)
class WeightingError:
    """What is known of the error of an estimate by weighting, all of it released.

    ``extra`` is the weighted sum over the size of the population, ``noise`` the variance of the
    privacy noise in it, ``moved`` the variance by noise in the model, ``lost`` the part of the
    weights that a clip cut off, ``spread`` the variance of outcomes about their centres, and
    ``sampling`` the sampling variance. ``centred`` says that centres are means of the arms. ``far``
    is how far two of more arms, each with its own model, are from all records.
    """

    estimand: str
    model: PropensityEstimate
    centres: ArmStats
    extra: float
    noise: float
    moved: float
    lost: float
    spread: float
    sampling: float
    centred: bool
    far: FloatArray | None = None

    @property
    def _confounding(self) -> float:
        """Variance of the confounding C of an unadjusted difference, before anything is seen."""
        return self.spread * unadjusted_variance(max(self.model.spreads.size, 2))

    @property
    def _by_centres(self) -> float:
        """Variance of c_1 - c_0 about what the means of the arms are."""
        return float((self.centres.unknown**2).sum())

    @cached_property
    def further(self) -> float:
        """How much further than the weights to go, in parts of what they removed."""
        if not self.centred:
            return 0.0
        k, prior, by_sum = self.model.kept, self._confounding, self.noise + self.moved
        by_sum += self.model.kept_sd**2 * prior
        gain, price = (1.0 - k) * k * prior - by_sum, k * k * prior + by_sum + self._by_centres
        return min(max(gain / (price + self.sampling / 2.0), 0.0), 1.0)

    @property
    def _mean_square(self) -> float:
        """Mean square of C, after what was removed has been seen."""
        k, prior = self.model.kept, self._confounding
        if not self.centred:
            return prior
        error = self.noise + self.moved + self._by_centres + self.sampling / 2.0
        part = k * prior / (k * k * prior + error)
        return (part * self.extra) ** 2 + prior * (1.0 - k * part)

    def parts(self) -> tuple[ErrorPart, ...]:
        """Parts of the error beside the noise in the sum and the sampling error."""
        own, pi, beta = ESTIMANDS[self.estimand], self.centres.share, self.further
        size = float(own.population(pi, 1.0 - pi))
        more, mean_square = 1.0 + beta, self._mean_square
        # standard deviations of 1 - W for (treated, control)
        far = reweighted(self.estimand, pi) if self.far is None else self.far
        by_chance = far**2 / self.centres.sizes
        weights = np.sqrt((far * self.model.level_sd) ** 2 + by_chance + self.lost**2)
        off = np.hypot(more * weights, beta)
        by_centres = float(((off * self.centres.unknown) ** 2).sum())
        counted = 0.0 if size == 1.0 else self.centres.share_sd / size * more * self.extra
        # noise in the level of all weights meets what the means of the arms differ by confounding
        apart = 1.0 if size < 1.0 else abs(1.0 - 2.0 * pi)
        if self.far is not None:  # models of their own: each arm has a part of that
            apart = math.hypot(*self.far) / 2.0
        level = apart * more * self.model.level_sd * math.sqrt(mean_square)
        k = self.model.kept
        left = (1.0 - k - beta * k) ** 2 * self._confounding
        left += (more * self.model.kept_sd) ** 2 * mean_square
        found = (
            ErrorPart("the propensity model", more**2 * self.moved + level**2, noise=True),
            ErrorPart("the treated share and the arm means", by_centres + counted**2, noise=True),
            ErrorPart("truncated weights", (_FAR_SDS * self.lost) ** 2 * self.spread),
            ErrorPart("residual confounding from the shrunken model", left),
        )
        return tuple(part for part in found if part.variance > 0.0)
