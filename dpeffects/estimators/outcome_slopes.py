"""What baseline variables say about several outcomes: slopes from one noisy matrix of products.

Where records count by weights, what is left of an outcome after its prediction is what is
averaged. A difference of weighted means is then right where either the weights or the slopes are:
errors of one meet what the other leaves.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dpeffects.arrays import FloatArray, IntArray, symmetric
from dpeffects.estimators import constants as hand
from dpeffects.estimators.default.moment_models import reliable, shrunk
from dpeffects.estimators.default.standardisation import Standardiser
from dpeffects.estimators.row_functions import row
from dpeffects.privacy import Block, Box, Curator
from dpeffects.privacy.tight_domains import Gram, matrix_noise_sd

SHARE, PART = "slopes", 0.2
"""The share of the matrix, and its part of what weighted margins would have without it."""


def squared_radius(baseline: int, outcomes: int) -> float:
    """Squared length of a row, at most: baseline variables first, then outcomes."""
    own = hand.BESIDE**2 * hand.LENGTH * baseline
    return hand.LENGTH * baseline + own * (1.0 + hand.OUTCOMES_LONG * (outcomes - 1))


def worth(n: int, baseline: int, outcomes: int, epsilon: float) -> bool:
    """Whether public numbers say that slopes come out as more than noise."""
    if not 0 < baseline + outcomes <= 200 or not baseline:
        return False
    size = hand.BESIDE * math.sqrt(hand.LENGTH * baseline)
    sd = matrix_noise_sd(baseline + outcomes, squared_radius(baseline, outcomes), epsilon)
    return baseline * (sd / (n * size)) ** 2 < hand.EXPLAINED / hand.LONG_SDS**2


def slopes_within(baseline: int, outcomes: int) -> Gram:
    """The set that products of baseline variables and outcomes lie in."""
    radius = math.sqrt(squared_radius(baseline, outcomes))
    half = np.full(baseline + outcomes, radius)
    return Gram(Box(-half, half, centre=0.0, radius=radius))


@dataclass(frozen=True, eq=False)
class OutcomePredictions:
    """Predictions of outcomes: slopes times standardised columns, less a ``level``.

    ``slopes`` has a row for each outcome. ``missed`` is the part of what baseline variables
    explain that the slopes miss, as a mean square.
    """

    standard: Standardiser
    slopes: FloatArray
    missed: FloatArray
    level: FloatArray | float = 0.0

    def predicted(self, rows: Block) -> FloatArray:
        """Predictions for some rows; column by column, so that a row's value is its own."""
        total = np.zeros((rows.size, len(self.slopes)))
        for column, slopes in zip(self.standard(rows).T, self.slopes.T, strict=True):
            total += column[:, None] * slopes
        return total - self.level

    def around(self, means: FloatArray) -> OutcomePredictions:
        """The same, less what is predicted where columns have other means."""
        off = (means - self.standard.means) / self.standard.sds
        return replace(self, level=self.slopes[:, : off.size] @ off)


@row("treated", "covariates")
def slopes_row(
    rows: Block,
    standard: Standardiser,
    outcomes: IntArray,
    gone: IntArray,
    centres: FloatArray,
    clips: FloatArray,
    size: float,
) -> tuple[FloatArray, FloatArray]:
    """Standardised baseline variables, and residuals of the outcomes from the means of their arms.

    ``gone`` has the column that says where an outcome is missing, its own number where none does.
    """
    centre = np.where(rows.treated[:, None], centres[0], centres[1])
    y = np.clip((rows.covariates[:, outcomes] - 0.5 - centre) / clips, -1.0, 1.0)
    flagged = gone != outcomes
    y[:, flagged] *= 1.0 - rows.covariates[:, gone[flagged]]
    return standard(rows), size * y


def release_slopes(
    curator: Curator,
    standard: Standardiser,
    outcomes: IntArray,
    gone: IntArray,
    centres: FloatArray,
    variances: FloatArray,
) -> OutcomePredictions:
    """Release the matrix of products, and read slopes from it.

    Means and scales of the baseline variables, ``centres`` by arm and ``variances`` of the
    outcomes, on the scale from -1/2 to 1/2, are released already.
    """
    p, k = standard.size, outcomes.size
    size = hand.BESIDE * math.sqrt(hand.LENGTH * p)
    clips = np.clip(hand.LONG_SDS * np.sqrt(variances), 0.02, 1.0)
    products_of = slopes_row(standard, outcomes, gone, centres, clips, size)
    label = "products of baseline and outcomes"
    released = curator.sums(label, products_of, slopes_within(p, k), share=SHARE)
    matrix = symmetric(released.value / curator.n, p + k)
    sd = released.sd / curator.n
    covariance, scale, _ = shrunk(matrix[:p, :p], sd)
    values, vectors = np.linalg.eigh(covariance)
    inverse = (vectors / np.clip(values, hand.LEAST_DIRECTION * scale, None)) @ vectors.T
    slopes, missed = np.zeros((k, p)), np.ones(k)
    for j, products in enumerate((matrix[:p, p:] / size).T):
        kept = reliable(products, sd / size)
        slopes[j] = kept * clips[j] * (inverse @ products)
        noise = min(p * (sd / size) ** 2 / max(float(products @ products), 1e-300), 1.0)
        missed[j] = min((1.0 - kept) ** 2 + kept**2 * noise + hand.SLOPES_MISS, 1.0)
    return OutcomePredictions(standard, slopes, missed)
