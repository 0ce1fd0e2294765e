"""Matching that adjusts where everything is private: groups of a released score, one draw.

1. A propensity score out of private moments, an outcome model and a clip, all as in `one_step`.
2. Groups of records whose scores lie between the same limits, which are quantiles of the released
   score. The records of a group by arm are counted with noise; where noise hides them, the score
   itself says what share of the group an arm is. Everybody is matched with all records of the
   other arm in the same group, so nobody is left over: a full matching (Rosenbaum 1991; Hansen
   2004), by subclassification on the score (Rosenbaum and Rubin 1984).
3. ONE sum over all records gives the matched difference of residuals from the outcome model, which
   is added to what the model says: the bias correction of Abadie and Imbens (2011). Weights are
   those of a full matching: of a group with the share e of treated records, 1 / e and 1 / (1 - e)
   for all records, 1 and e / (1 - e) for the treated, 1 - e and e where `one_step` would use
   overlap weights. Its squares give the sampling variance.

So no record has one nearest neighbour. What is matched are groups, on a score with noise in it, and
two records of a group may differ in every covariate. What the score's noise leaves of the
confounding, and how wide groups are, the interval allows for as in `one_step`: by the error of the
outcome model along an imbalance of 15 %, of which ten groups leave 4.

More than two arms have groups of their own for each arm, of the chance to be in it (Yang, Imbens,
Cui, Faries and Kadziola 2016).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np

from dpeffects.arrays import FloatArray, IntArray
from dpeffects.estimators.arm_sums import ArmLookup
from dpeffects.estimators.default import one_step
from dpeffects.estimators.default.one_step import OneStepOptions
from dpeffects.estimators.default.propensity_score import PropensityScore
from dpeffects.estimators.option_checks import whole
from dpeffects.estimators.row_functions import row
from dpeffects.estimators.spec import MethodSpec
from dpeffects.privacy import COUNT, Block, Curator, GroupIndex, SumQuery

GROUPS, FEWEST = 10, 5
"""Matched groups: five leave 10 % of an imbalance along a normal score, ten 4, twenty 2. Errors
with each were within a quarter of each other on 18 populations, n 10,000, epsilon 1 and 3, and no
number was best: ten is a judgement. The interval does not know how many there are; with two it was
too short (0 to 9 of 14 held)."""
SHARE = 0.06
"""Proportion of the budget for counts of the groups: a judgement, as are the next two."""
_OFF = 0.3
"""How far the log odds of a group are from what the score says of it, over studies."""
_EVEN = 0.25
"""A group has at least this part of the records of an even one."""
_TITLE = "full matching in groups of a released propensity score"
_CITED = (
    "Rosenbaum and Rubin (1984), Reducing bias in observational studies using subclassification on "
    "the propensity score; Abadie and Imbens (2011), Bias-corrected matching estimators. The name "
    "is that of: "
)


@dataclass(frozen=True)
class MatchedOptions(OneStepOptions):
    """Options of matched groups, as `one_step` has them, and how many groups."""

    groups: int = whole(GROUPS, FEWEST, 100)

    def adapt(self, spec: MethodSpec) -> MethodSpec:
        """The record of the method, which says what is matched."""
        assumes, cited = one_step.SPEC.assumes, _CITED + spec.citation
        return replace(spec, title=_TITLE, assumes=assumes, citation=cited)

    def shown(self) -> dict[str, Any]:
        """What a call takes."""
        return {"groups": self.groups, "flexible": self.degree}

    def regrouped(self, curator: Curator, score: PropensityScore) -> PropensityScore:
        """The score with the released shares of the arms in its groups for chances."""
        return match_groups(curator, score, self.groups)


@dataclass(frozen=True, eq=False)
class PropensityScoreGroups(PropensityScore):
    """A score of which only the group of a record counts.

    ``limits`` are those of groups by the chance of an arm, ``found`` the released shares of that
    arm in them, a row for each arm; of two arms for the first.
    """

    limits: FloatArray = field(kw_only=True)
    found: FloatArray = field(kw_only=True)

    def kept(self, chances: FloatArray) -> FloatArray:
        """Shares of the arms in the groups that records with these chances are in."""
        fine, each = super().kept(chances), enumerate(zip(self.limits, self.found, strict=True))
        own = [found[_group(limits, fine[..., k])] for k, (limits, found) in each]
        own += [1.0 - own[0]] if len(own) == 1 else []
        return super().kept(np.stack(own, axis=-1))


def _group(limits: FloatArray, chances: FloatArray) -> IntArray:
    return np.searchsorted(limits, chances, side="right")


@row("covariates")
def matched_cell(
    rows: Block, score: PropensityScore, limits: FloatArray, arm: int, own: ArmLookup
) -> IntArray:
    """The group of a record by its chance of an arm, those outside that arm first."""
    inside = own.arm(rows) == arm
    return np.asarray(_group(limits, score.of(rows)[:, arm]) + (limits.size + 1) * inside)


def match_groups(curator: Curator, score: PropensityScore, count: int) -> PropensityScoreGroups:
    """Count the records of groups by arm; where noise hides them, shares are those of the score."""
    arms = range(1 if curator.arms == 2 else curator.arms)
    levels = np.arange(1, 2 * count) / (2.0 * count)
    chances, weights = score.chances, score.weights.ravel()
    points = np.stack([_quantiles(chances[..., k].ravel(), weights, levels) for k in arms])
    limits, middles = points[:, 1::2], points[:, ::2]
    part, own = Fraction(1, len(arms)), ArmLookup(score.shares)
    released = curator.several(
        *(
            SumQuery(
                "records of matched groups by arm",
                None,
                COUNT,
                GroupIndex(matched_cell(score, limits[k], k, own), 2 * count),
                "groups",
                part,
            )
            for k in arms
        )
    )
    outside, inside = np.stack([x.value.reshape(2, count) for x in released], axis=1)
    total = np.maximum(outside + inside, _EVEN * curator.n / count)
    spread = middles * (1.0 - middles)
    noise = released[0].variance * (1.0 - 2.0 * spread) / total**2
    prior = (_OFF * spread) ** 2 + spread / total
    seen = ((1.0 - middles) * inside - middles * outside) / total
    found = middles + prior / (prior + noise) * seen
    return PropensityScoreGroups(**vars(score), limits=limits, found=found)


def _quantiles(values: FloatArray, weights: FloatArray, levels: FloatArray) -> FloatArray:
    """Quantiles of typical records, between whom lines are drawn."""
    order = np.argsort(values)
    below = np.cumsum(weights[order]) - weights[order] / 2.0
    return np.interp(levels, below / weights.sum(), values[order])
