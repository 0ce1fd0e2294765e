"""Slopes of two linear models from noisy moments, and the confounding that noise leaves in them.

Outcomes and treatment have slopes b and a along the covariates. What an adjustment by estimates of
both misses is the sum over directions of v (b - its estimate)(a - its estimate), v the variance in
a direction. Both slopes are seen with noise of known size; how strong they are, and how far they
point the same way, is not known. So that is averaged over a grid, by how well it fits what was
released. The average gives the estimates, the confounding to expect, and its variance.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from dpeffects.arrays import FloatArray
from dpeffects.estimators import constants as hand

_EXPLAINED = np.array([0.01, 0.03, 0.08, 0.16, 0.3, 0.5, 0.8])
"""Share of the outcome's variance that covariates explain,"""
_SELECTION = np.array([0.003, 0.02, 0.06, 0.14, 0.3, 0.6, 1.0, 1.8, 3.0, 5.0])
"""variance of the log odds of treatment along them,"""
_ALIGNED = np.array([-0.95, -0.8, -0.5, 0.0, 0.5, 0.8, 0.95])
"""and the correlation of the two sets of slopes: the grid."""
_BENDS = np.array([0.01, 0.1, 1.0])
"""Variance of slopes along squares and products, over that along the formula's own terms."""
_TYPICAL = (
    np.array([0.5, 0.7, 1.0, 1.2, 1.2, 1.0, 0.6]),
    np.array([0.8, 0.7, 0.8, 1.0, 1.2, 1.2, 1.0, 0.6, 0.4, 0.25]),
    np.array([0.3, 0.1, 0.06, 0.08, 0.06, 0.1, 0.3]),
    np.array([0.5, 0.25, 0.25]),
)
"""Weights of the grid before anything is seen, for the estimates."""
_CAUTIOUS = (
    np.array([0.2, 0.4, 0.8, 1.2, 1.4, 1.2, 0.8]),
    np.array([0.3, 0.4, 0.6, 1.0, 1.4, 1.5, 1.4, 1.0, 0.6, 0.4]),
    np.array([0.42, 0.05, 0.02, 0.02, 0.02, 0.05, 0.42]),
    np.array([1.0, 1.0, 1.0]),
)
"""The same for the interval, which strong and aligned confounding is what it has to survive."""


@dataclass(frozen=True)
class NoisyMoments:
    """Moments in uncorrelated directions: of covariates with the outcome, and between arms.

    ``variances`` are those of the covariates; ``outcome`` is variances times b plus privacy noise
    of variance ``outcome_noise`` and sampling error of variance ``outcome_sampling``, ``treatment``
    likewise with a. ``entry_noise`` is the variance of an entry of the covariance matrix, whose
    error enters both; ``outcome_variance`` is that within arms, and ``scale`` a typical variance of
    a covariate.
    """

    variances: FloatArray
    outcome: FloatArray
    treatment: FloatArray
    outcome_noise: float
    treatment_noise: float
    outcome_sampling: FloatArray
    treatment_sampling: FloatArray
    entry_noise: float
    outcome_variance: float
    scale: float
    alike: float = 1.0
    """How many directions each entry stands for."""
    lines: FloatArray | float = 1.0
    """Part of each direction that lies along the formula's own terms, not squares and products."""


@dataclass(frozen=True)
class Slopes:
    """Estimated slopes in each direction, their variances, and the confounding left by them.

    ``left_variance`` is the variance of what is left, with all that is not known;
    ``noise_variance`` the part of it by which privacy noise moves the estimate. ``explained`` and
    ``selection`` are averages over the grid.
    """

    outcome: FloatArray
    treatment: FloatArray
    outcome_variance: FloatArray
    treatment_variance: FloatArray
    left: float
    left_variance: float
    noise_variance: float
    explained: float
    selection: float
    prior: tuple[float, float]
    along_lines: float
    """Variance of the outcome's slopes along the formula's own terms, before they were seen."""

    @property
    def vague(self) -> float:
        """By how much variances are larger for the interval, where the models are hardly known.

        Then the strength of confounding is hardly known either; strong and aligned confounding at
        1,000 to 3,000 records and epsilon 0.5 to 1 asks for it.
        """
        one, other = (1.0 - max(x, 0.0) for x in self.known)
        return 1.0 + hand.VAGUE * one * other

    @property
    def known(self) -> tuple[float, float]:
        """Parts of the variance of outcome and treatment slopes that are known."""
        unknown = (self.outcome_variance.mean(), self.treatment_variance.mean())
        one, other = (1.0 - float(x) / p for x, p in zip(unknown, self.prior, strict=True))
        return one, other


@cache
def _grid(bends: bool = False) -> tuple[FloatArray, ...]:
    """Points of the grid, and logarithms of both sets of weights."""
    axes = _EXPLAINED, _SELECTION, _ALIGNED, _BENDS if bends else np.ones(1)
    points = [x.ravel() for x in np.meshgrid(*axes, indexing="ij")]
    for parts in (_TYPICAL, _CAUTIOUS):
        each = (*parts[:3], parts[3] if bends else np.ones(1))
        logs = np.meshgrid(*(np.log(x / x.sum()) for x in each), indexing="ij")
        points.append(np.sum(logs, axis=0).ravel())
    return tuple(points)


def fit_slopes(seen: NoisyMoments) -> Slopes:
    """Average over the grid of the slopes and of the confounding that they leave."""
    along = np.broadcast_to(seen.lines, seen.variances.shape)[:, None]
    explained, selection, aligned, bends, typical, cautious = _grid(bool((along < 1.0).any()))
    v, p = seen.variances[:, None], seen.variances.size * seen.alike
    strength = along + bends * (1.0 - along)
    strength = strength / (seen.scale * seen.alike * strength.sum(axis=0))
    own_b, own_a = explained * seen.outcome_variance * strength, selection * strength
    both = aligned * np.sqrt(own_b * own_a)
    blur = seen.entry_noise * p
    noise_b, noise_a = blur * own_b + seen.outcome_noise, blur * own_a + seen.treatment_noise
    m11 = v**2 * own_b + noise_b + seen.outcome_sampling[:, None]
    m22 = v**2 * own_a + noise_a + seen.treatment_sampling[:, None]
    m12 = (v**2 + blur) * both
    det = m11 * m22 - m12**2
    i11, i22, i12 = m22 / det, m11 / det, -m12 / det
    s, d = seen.outcome[:, None], seen.treatment[:, None]
    fits = -0.5 * (np.log(det) + i11 * s * s + 2.0 * i12 * s * d + i22 * d * d).sum(axis=0)
    fits = fits * seen.alike
    weight, careful = _weights(typical + fits), _weights(cautious + hand.TRUST * fits)
    k11, k12 = v * (own_b * i11 + both * i12), v * (own_b * i12 + both * i22)
    k21, k22 = v * (both * i11 + own_a * i12), v * (both * i12 + own_a * i22)
    at_b, at_a = k11 * s + k12 * d, k21 * s + k22 * d
    var_b = own_b - v * (k11 * own_b + k12 * both)
    var_a = own_a - v * (k21 * both + k22 * own_a)
    cov = both - v * (k11 * both + k12 * own_a)
    b, a = at_b @ weight, at_a @ weight
    off_b, off_a = at_b - b[:, None], at_a - a[:, None]
    left = seen.alike * (v * (cov + off_b * off_a)).sum(axis=0)
    spread = var_b * var_a + cov**2 + off_b**2 * var_a + off_a**2 * var_b + 2 * off_b * off_a * cov
    by_b = k11**2 * noise_b + k12**2 * noise_a + 2.0 * k11 * k12 * blur * both
    by_a = k21**2 * noise_b + k22**2 * noise_a + 2.0 * k21 * k22 * blur * both
    by_both = k11 * k21 * noise_b + k12 * k22 * noise_a + (k11 * k22 + k12 * k21) * blur * both
    moved = by_b * var_a + by_a * var_b + 2.0 * by_both * cov - by_b * by_a - by_both**2
    expected = float(weight @ left)
    variance = seen.alike * (v**2 * spread).sum(axis=0) + (left - expected) ** 2
    return Slopes(
        outcome=b,
        treatment=a,
        outcome_variance=(var_b + off_b**2) @ weight,
        treatment_variance=(var_a + off_a**2) @ weight,
        left=expected,
        left_variance=float(careful @ variance),
        noise_variance=seen.alike * float(careful @ (v**2 * np.maximum(moved, 0.0)).sum(axis=0)),
        explained=float(weight @ explained),
        selection=float(weight @ selection),
        prior=(float((own_b @ weight).mean()), float((own_a @ weight).mean())),
        along_lines=float(along[:, 0] @ own_b @ weight / along.sum()),
    )


def _weights(logs: FloatArray) -> FloatArray:
    weights = np.exp(logs - logs.max())
    return np.asarray(weights / weights.sum())


@cache
def unadjusted_variance(columns: int = 10) -> float:
    """Variance of the confounding of an unadjusted difference, per unit of outcome variance.

    It is what the interval's weights say before anything is seen. Nobody can know it: it is a
    guess from how strong confounding is in studies.
    """
    explained, selection, aligned, _, _, cautious = _grid()
    square = aligned**2 + (1.0 + aligned**2) / columns
    return float(_weights(cautious) @ (explained * selection * square))
