"""Difference in means, by noisy counts and sums (papers 002/003, section III-A1).

The estimate is mean(y | treated) - mean(y | control). With outcomes centred at the middle of their
range, replacing one record changes the pair of arm sums by at most the range B in L1, whether or
not the record changes arm, so private arms pay only for the count of treated records:

- ``arms="private"`` (default): the number of treated records is released with noise.
- ``arms="public"``: assignment is public, as in a randomised trial with published arm sizes.

More than two arms are counted and added up together: a record is in one of them, so that all sums
cost what two do, and so do all differences between arms.

The paper releases sums of y^2 with sensitivity B^2 for the variance; centring makes it B^2 / 4.
The difference is unadjusted: it is an average treatment effect when treatment was randomised.
``design="randomised"`` says that it was, and where the formula has covariates, which are not read,
or ``design="observational"``, the difference is called an association.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpeffects.arrays import FloatArray
from dpeffects.estimators.arm_sums import arm_counts, arm_squares, arm_sums
from dpeffects.estimators.default.arm_levels import by_arm
from dpeffects.estimators.default.clipped_contrast import arm_influence
from dpeffects.estimators.option_checks import choice
from dpeffects.estimators.spec import Contrasts, MethodSpec, Options, PublicInfo
from dpeffects.inference.estimate import UNADJUSTED, ArmMeans, Effects, Unavailable
from dpeffects.privacy.curator import Curator

_IDENTIFICATIONS = {"observational": "unadjusted", "randomised": "randomised"}


@dataclass(frozen=True)
class DiffInMeansOptions(Options):
    """``arms``: "private" (the arm sizes get noise) or "public" (the treatment is public).

    ``design``: "randomised" where treatment was assigned by chance, "observational" where not; then
    the result is an association. None leaves it open, and the summary says so.
    """

    arms: str = choice("private", "public")
    design: str | None = choice(None, *_IDENTIFICATIONS)

    def has_means(self, facts: PublicInfo) -> bool:
        """Sums by arm are released."""
        return True

    def public(self, level: str) -> frozenset[str]:
        """Public arms make the treatment column public."""
        public = super().public(level)
        return public | {"treatment"} if self.arms == "public" else public


def budget_split(level: str, options: DiffInMeansOptions) -> dict[str, float]:
    """Split of the budget: counts only where the arms are private."""
    if "treatment" in options.public(level):
        return {"estimate": 0.8, "variance": 0.2}
    # an outcome far from the middle of its range needs a good count, one near it good sums
    return {"counts": 0.25, "estimate": 0.55, "variance": 0.2}


def fit_arms(
    curator: Curator, options: DiffInMeansOptions, estimand: str, contrasts: Contrasts
) -> Effects:
    """Release counts and sums by arm; everything after that is post-processing."""
    lower, upper = curator.outcome_range
    counts = arm_counts(curator, "counts")
    sizes = np.clip(counts.sizes, 1.0, curator.n - 1.0)
    sums = arm_sums(curator, "estimate")
    means = np.clip(sums.value / sizes, -(upper - lower) / 2, (upper - lower) / 2)
    variances = _variances(curator, means, sizes, sums.scale)
    details = _arm_sizes(sizes, counts.release.scale)
    levels, two_valued = lower + (upper - lower) / 2.0 + means, curator.values[-1] == 2
    estimates = []
    for pair in map(list, contrasts):
        # d(mean of an arm) / d(its size) = -mean / size
        slopes = means[pair, None] / sizes[pair, None] * counts.by_noise[pair]
        own = np.diag(sums.scale / sizes[pair])
        laplace = np.hstack([own, -counts.release.scale * slopes]).T
        (one, two), (share, other) = levels[pair].tolist(), (1.0 / sizes[pair]).tolist()
        both = ArmMeans(
            one,
            two,
            variances if isinstance(variances, Unavailable) else by_arm(pair, *variances),
            laplace=tuple((float(a), float(b)) for a, b in laplace if a or b),
            possible=(lower, upper),
            design=(share, other, 0.0) if two_valued else None,
        )
        estimate = replace(
            both.combined(1.0, -1.0),
            value=float(means[pair[0]] - means[pair[1]]),
            means=both,
            details=details,
            identification=_IDENTIFICATIONS.get(options.design or "", ""),
            warnings="" if options.design else UNADJUSTED,
            influence=arm_influence(
                levels, sizes / curator.n, curator.outcome_range, curator.n, pair
            ),
        )
        estimates.append(estimate)
    return Effects(tuple(estimates), details=details)


def _arm_sizes(sizes: FloatArray, scale: float) -> dict[str, Any]:
    known = f" (noise of scale {scale:.3g})" if scale else ""
    if len(sizes) > 2:
        return {f"records by arm{known}": ", ".join(f"{size:.0f}" for size in sizes)}
    return {f"treated records{known}": int(sizes[0]), f"control records{known}": int(sizes[1])}


def _variances(
    curator: Curator, means: FloatArray, sizes: FloatArray, sum_scale: float
) -> tuple[FloatArray, FloatArray, FloatArray] | Unavailable:
    """s^2 / n of each arm from noisy squares, on the scale z = (y - middle) / half.

    Also the standard deviations of the noise in them, and bounds.
    """
    if not curator.has("variance"):
        return Unavailable("variance=False was asked for")
    lower, upper = curator.outcome_range
    half = (upper - lower) / 2.0
    squares = arm_squares(curator, "variance")
    z, z_scale = means / half, sum_scale / half / sizes
    noise_in_square = 2.0 * z_scale**2  # E[noisy z^2] is too large by the variance of the noise
    spread = squares.value / sizes + 0.5 - z**2 + noise_in_square
    # noise of the squares and of the squared mean, as one Laplace term of the same variance
    scale = half**2 / sizes * np.hypot(squares.scale / sizes, 2.0 * z * z_scale)
    values = half**2 * spread / np.maximum(sizes - 1.0, 1.0)
    return values, math.sqrt(2.0) * scale, half**2 / sizes


SPEC = MethodSpec(
    name="diff_in_means",
    title="difference in means",
    about="noisy counts and sums by arm; unadjusted, for randomised treatment",
    assumes="treatment was randomised",
    estimands=("ATE",),
    levels=("sample", "label"),
    options=DiffInMeansOptions,
    budget_split=budget_split,
    fit_arms=fit_arms,
    uses_covariates=False,
    citation=(
        "Koga, Chaudhuri and Page, Differentially private multi-site treatment effect estimation."
    ),
)
