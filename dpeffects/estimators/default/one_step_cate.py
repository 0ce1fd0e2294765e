"""One-step estimator by group: linear models from private moments, corrected in each group.

1. As in `one_step`: centres, moments, linear models of the outcome and of the log odds of
   treatment, calibration, a clip.
2. Sums by group and arm of clipped residuals over the probability of their arm correct the effect
   that the models give. Their squares, weights and counts come with them. A record is in one group
   and one arm, so all of them cost less than two sums over all records.
3. Residuals of an arm are divided by its weight: where the score is off in a group, its arms weigh
   unlike, and what their outcomes have in common would not cancel. How unlike is taken as far as
   noise does not explain it. Where treatment was assigned by chance, both arms weigh the same but
   for chance, and have one sum, with a minus for controls.

The effect in a group is the average over its records. What noise in the models leaves of the
confounding is expected, subtracted, and allowed for as in `one_step`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from dpeffects.arrays import FloatArray, IntArray
from dpeffects.errors import OptionError
from dpeffects.estimators import constants as hand
from dpeffects.estimators.arm_sums import at_end
from dpeffects.estimators.default import one_step
from dpeffects.estimators.default.one_step import OneStepOptions, Stage
from dpeffects.estimators.default.polynomial_terms import added_words, bends
from dpeffects.estimators.default.propensity_score import PropensityScore
from dpeffects.estimators.default.score_curvature import CurvatureQuery
from dpeffects.estimators.learners.first_stage import group
from dpeffects.estimators.row_functions import row
from dpeffects.estimators.spec import PublicInfo
from dpeffects.inference import with_another
from dpeffects.inference.estimate import Effects, ErrorPart, Estimate, SamplingVariance, Unavailable
from dpeffects.privacy.curator import Curator, SumQuery
from dpeffects.privacy.domains import Box
from dpeffects.privacy.rows import Block, GroupIndex, reads

_NO_VARIANCE = Unavailable("too few records in the group for its noise")


@dataclass(frozen=True)
class OneStepGroupsOptions(OneStepOptions):
    """Options of the one-step estimator by group.

    ``design``: "observational", or "randomised" where treatment was assigned by chance. ``clip``:
    propensity scores are kept within [clip, 1 - clip]. ``first_stage``, ``model_share``:
    proportions of the
    budget for the means and lengths that everything starts from, and for the moments, or None to
    choose them. ``pool``: which shares get Gaussian noise where there is a delta: "none", "models",
    "all", or None to choose. ``flexible``: 0 adjusts for the formula's own terms alone, 1 for
    squares of its columns too, 2 for their products too; None chooses by n, epsilon, delta and the
    number of columns. ``on_unadjusted`` changes nothing: this method always adjusts.
    """

    instead: ClassVar[str] = ': write method="dr_learner"'
    release: str = "groups"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.release != "groups":
            raise OptionError('method="one_step" needs release="groups"')


def budget_split(level: str, options: OneStepOptions) -> dict[str, float]:
    """Split of the budget: as for an average, but how effects vary is in the sums by group."""
    split = one_step.budget_split(level, options)
    split["estimate"] += split.pop("variation", 0.0) + split.pop("cut", 0.0)
    return split


def uses_delta(options: OneStepOptions, facts: PublicInfo) -> dict[str, float | None]:
    """Shares with Gaussian noise, as for an average."""
    named = one_step.uses_delta(options, facts)
    return {name: x for name, x in named.items() if name not in ("variation", "cut")}


@row("treated", "outcome", "covariates")
def group_residuals(rows: Block, stage: Stage, most: float, signed: bool) -> tuple[FloatArray, ...]:
    """Clipped residuals over the probability of their arm, within [-1/2, 1/2], and their squares.

    Then weights over ``most``, the largest inverse probability that is not cut, and ones. Signed
    residuals have a minus for controls.
    """
    e = stage.score.of(rows)[:, 0]
    weight = np.minimum(1.0 / np.where(rows.treated, e, 1.0 - e), most) / most
    half = weight * np.clip(stage.residual(rows) / (2.0 * stage.clip), -0.5, 0.5)
    if signed:
        half = np.where(rows.treated, half, -half)
    return half, half * half, hand.WEIGHED * weight, np.full(rows.size, hand.COUNTED)


_WITHIN = Box([-0.5, 0.0, 0.0, hand.COUNTED], [0.5, 0.25, hand.WEIGHED, hand.COUNTED], centre=0.0)


@reads("strata", "treated")
def group_and_arm(block: Block) -> IntArray:
    """The group of each record and its arm, treated first."""
    return 2 * block.strata + 1 - block.treated


def fit(curator: Curator, options: OneStepOptions, points: None) -> Effects:
    """Release the models, then sums by group and arm; the rest is post-processing."""
    groups, randomised = curator.n_strata, options.randomised
    sums_each = hand.BY_GROUP if randomised else math.sqrt(2.0) * hand.BY_GROUP
    added = bends(options.facts, options.degree) if options.facts else ()

    def reach(score: PropensityScore) -> float:
        return sums_each / (1.0 - float(score.largest[0]))

    stage = one_step.release_stage(curator, randomised, options.clip, reach, groups, added)
    models, score = stage.models.pair(0, 1), stage.score
    heaviest = 1.0 / (1.0 - float(score.largest[0]))
    terms = group_residuals(stage, heaviest, randomised)
    label = "residuals, squares and sizes by group"
    cells = GroupIndex(group, groups) if randomised else GroupIndex(group_and_arm, 2 * groups)
    check = CurvatureQuery(curator.values, models, score)
    checks = [] if randomised else check.asked
    sums, *checked = curator.several(SumQuery(label, terms, _WITHIN, cells, "estimate"), *checks)
    bias, left, warnings = float((stage.cut.unknown**2).sum()), 0.0, ""
    parts = [ErrorPart("winsorisation bias", bias)]
    if not randomised:
        curves = check.read(curator.names, *checked)
        left = models.clip * models.slopes.left
        warnings = one_step.warnings(models, curves, score, options.left_out)
        parts += one_step.confounding(models, curves)
    centres = stage.centres
    warnings = with_another(centres.with_warnings(warnings), at_end(curator, centres.sums))
    # by group: sums of residuals, squares, weights, ones, by arm or of both together
    by_group = sums.value.reshape(groups, -1, 4).transpose(0, 2, 1)
    unknown = float(models.slopes.treatment_variance.mean())
    off = math.sqrt(hand.GROUP_OFF**2 + hand.GROUP_FAR * unknown / 4.0)

    def estimate(values: FloatArray) -> Estimate:
        """The effect in one group: mean residuals of its arms, added to what the models say.

        Each arm weighs about as much as the group has records; how far from it is taken as far as
        noise does not explain it: up to ``off``, over the records.
        """
        unit = 2.0 * heaviest * stage.clip
        residuals, squares, weights, ones = values
        arms, even = residuals.size, stage.centres.n / groups
        noise = math.sqrt(arms) * sums.sd / hand.COUNTED
        known = (hand.UNEVEN_GROUPS * even) ** 2 / ((hand.UNEVEN_GROUPS * even) ** 2 + noise**2)
        size_sd = math.sqrt(known) * noise
        size = max(even + known * (float(ones.sum()) / hand.COUNTED - even), size_sd, 1.0)
        relative, off_sd = np.ones(arms), 0.0
        if arms == 2:  # otherwise both arms weigh the same, but for chance
            unit_weight = heaviest / hand.WEIGHED / size
            kept = off**2 / (off**2 + (unit_weight * sums.sd) ** 2)
            relative = np.clip(1.0 + kept * (unit_weight * weights - 1.0), 0.5, 1.5)
            off_sd = off * math.sqrt(1.0 - kept)
        sizes = size * relative
        means, scales = unit * residuals / sizes, unit * sums.scale / sizes
        effect = float(means @ np.array([1.0, -1.0])[:arms])
        by_size, by_off = effect * size_sd / size, off_sd * math.hypot(*means)
        own = [stage.centres.noise_part((0, 1), np.array([effect]), beyond=stage.cut.beyond)]
        own.append(ErrorPart("the group size", by_size**2, noise=True))
        own.append(ErrorPart("imprecise weights in the group", by_off**2))
        sampling: SamplingVariance | Unavailable = _NO_VARIANCE
        if size >= hand.SURE * size_sd:
            by_arm = (unit / sizes) ** 2
            variance = by_arm * squares - (means**2 - by_arm * sums.variance) / sizes
            sd = sums.sd * math.hypot(*by_arm)
            largest = float((by_arm * size).sum()) / 4.0
            sampling = SamplingVariance(float(variance.sum()), sd / math.sqrt(2.0), largest)
        most, (one, other) = stage.centres.range, stage.levels + stage.cut.lost
        value = float(one - other) + effect - left
        return Estimate(
            value=min(max(value, -most), most),
            sampling=sampling,
            laplace=() if sums.gaussian else tuple(scales.tolist()),
            gaussian=float(scales @ scales) if sums.gaussian else 0.0,
            parts=tuple(part for part in (*parts, *own) if part.variance > 0.0),
            possible=(-most, most),
            warnings=warnings,
        )

    shown = added_words(options.facts, options.degree) if options.facts else {}
    return Effects(tuple(map(estimate, by_group)), details=shown | stage.details(((0, 1),)))


SPEC = replace(
    one_step.SPEC,
    title="one-step estimator by group, from private moments",
    about="effects by group: linear models from private moments, corrected by one sum a group",
    estimands=("CATE",),
    levels=("sample",),
    options=OneStepGroupsOptions,
    budget_split=budget_split,
    uses_delta=uses_delta,
    fit=fit,
    fit_arms=None,
    needs_intercept=True,
)
