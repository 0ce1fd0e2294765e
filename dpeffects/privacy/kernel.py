"""What conditional effects need: functions of features of norm at most 1, released as weights.

Outcome functions and effect functions are Huber regressions (`huber`). Their targets and slopes are
computed record by record from released nuisances, so one record touches one term of the objective.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Self

import numpy as np

from dpeffects.privacy.bounds import Interval, clip
from dpeffects.privacy.erm import Weights, minimise, unit_rows
from dpeffects.privacy.features import Features, along, along_error
from dpeffects.privacy.guarantee import Noisy
from dpeffects.privacy.huber import Huber, Terms, chunks
from dpeffects.privacy.release import BoolArray, FloatArray, Holder, IntArray
from dpeffects.privacy.rows import Block, Totals, room, sums_by_cell
from dpeffects.privacy.sums import Grid
from dpeffects.privacy.weighting import Propensity

_WIDER = 1.0 + 1e-9
BINS = 8
"""Bins of the histograms that show how covariates spread over their declared ranges."""


@dataclass(frozen=True)
class Nuisance:
    """Released models of treatment and outcome, evaluated record by record.

    ``means`` are those of the (treated, control) arms. ``outcome`` is empty, or the weights of a
    function added to the mean outcome (``by_arm`` false), or of one for each arm, in units of
    ``threshold``. ``ends`` is the mean square of outcomes scaled to [-1, 1]: 1 if all are at an end
    of their range.
    """

    propensity: Propensity
    means: tuple[float, float]
    outcome_range: Interval
    features: Features
    outcome: FloatArray
    by_arm: bool
    threshold: float
    ends: float = 0.0

    @property
    def effect(self) -> float:
        """Difference of the means: what effect functions are shrunk towards."""
        return self.means[0] - self.means[1]

    def scores(self, covariates: FloatArray) -> FloatArray:
        """Propensities of encoded rows."""
        return self.propensity.scores(unit_rows(covariates))

    def outcomes(
        self, covariates: FloatArray, features: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Mean outcomes if treated and if not, within the range of the outcome.

        ``features`` are those of the records, which are computed once for several uses.
        """
        one, zero = (np.full(len(covariates), mean) for mean in self.means)
        if self.outcome.size and self.by_arm:
            half = self.outcome.size // 2
            one = one + self.threshold * along(features, self.outcome[:half])
            zero = zero + self.threshold * along(features, self.outcome[half:])
        elif self.outcome.size:
            common = self.threshold * along(features, self.outcome)
            one, zero = one + common, zero + common
        return clip(one, self.outcome_range), clip(zero, self.outcome_range)


@dataclass(frozen=True)
class Learner:
    """How a record enters the second stage: an R-learner (``weighted_residuals``) or a DR-learner.

    With propensity p, mean outcome m and arm means m_1, m_0, an R-learner fits (a - p) g(x) to
    y - m(x), a DR-learner g(x) to m_1 - m_0 + (a - p) (y - m_a) / (p (1 - p)); both less the
    average effect, in units of ``threshold``.
    """

    nuisance: Nuisance
    threshold: float
    weighted_residuals: bool

    @property
    def steepest(self) -> float:
        """Largest slope that a record can have."""
        model = self.nuisance.propensity
        return max(model.high, 1.0 - model.low) if self.weighted_residuals else 1.0

    def terms(
        self, covariates: FloatArray, treated: BoolArray, outcome: FloatArray, rows: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Slopes and targets of the records."""
        score = self.nuisance.scores(covariates)
        one, zero = self.nuisance.outcomes(covariates, rows)
        gap = treated - score
        if self.weighted_residuals:
            mean = score * one + (1.0 - score) * zero
            target = outcome - mean - gap * self.nuisance.effect
            return gap, target / self.threshold
        residual = outcome - np.where(treated, one, zero)
        pseudo = one - zero + gap / (score * (1.0 - score)) * residual
        return np.ones_like(gap), (pseudo - self.nuisance.effect) / self.threshold


@dataclass(frozen=True)
class OutcomeTerms:
    """How a record enters the outcome function: its outcome less the mean by the first models."""

    base: Nuisance

    def __call__(self, block: Block) -> Terms:
        """Features, slopes of 1, and targets."""
        base, treated = self.base, block.treated
        rows = _features(base.features, block)
        one, zero = base.outcomes(block.covariates, rows)
        if base.by_arm:
            mean = np.where(treated, one, zero)
        else:
            score = base.scores(block.covariates)
            mean = score * one + (1.0 - score) * zero
        return rows, np.ones(treated.size), (block.outcome - mean) / base.threshold


@dataclass(frozen=True)
class EffectTerms:
    """How a record enters the second stage."""

    learner: Learner
    features: Features

    def __call__(self, block: Block) -> Terms:
        """Features, slopes and targets."""
        rows = _features(self.learner.nuisance.features, block)
        slopes, targets = self.learner.terms(block.covariates, block.treated, block.outcome, rows)
        if self.features is not self.learner.nuisance.features:
            rows = _features(self.features, block)
        return rows, slopes, targets


class KernelReleases(Holder):
    """Releases of functions of the covariates."""

    def outcome_function(self, base: Nuisance, strength: float, share: str) -> Weights:
        """Release a function of the mean outcome, or one for each arm (claims 31, 22)."""
        terms = OutcomeTerms(base)
        problem = Huber(self._source, terms, base.features.size, strength, by_arm=base.by_arm)
        return minimise(self._releaser, "outcome function", problem, share)

    def effect_function(
        self, learner: Learner, features: Features, strength: float, way: str, share: str
    ) -> Weights:
        """Release an effect function by its weights, in units of the learner's threshold.

        ``way`` is "objective" (noise in the objective, claims 31 and 22) or "kernel" (noise on the
        weights, which is a Gaussian process with the features' kernel; claim 32).
        """
        problem = self._second_stage(learner, features, strength)
        if way == "objective":
            return minimise(self._releaser, "effect function", problem, share)
        size, bound = features.size, self._moves(problem)
        unit = 2.0 ** (math.floor(math.log2(bound)) - 20)
        noisy = self._releaser.release(
            "effect function",
            np.rint(problem.solve() / unit).astype(np.int64),
            math.ceil(math.sqrt(size) * bound / unit) + size,
            unit,
            l2=bound / unit + math.sqrt(size),
            share=share,
            claim=32,
        )
        return Weights(noisy.value, strength, math.sqrt(noisy.variance))

    def effects_at(
        self,
        learner: Learner,
        features: Features,
        queries: FloatArray,
        strength: float,
        share: str,
    ) -> Noisy:
        """Release effects at encoded query rows with independent noise (claim 33)."""
        problem = self._second_stage(learner, features, strength)
        at = features(queries)
        gram = at @ at.T if len(at) <= features.size else at.T @ at
        wider = 1.0 + max(1e-6, self.n * math.sqrt(len(at)) * along_error(features.size))
        widest = math.sqrt(max(float(np.linalg.eigvalsh(gram)[-1]), 0.0)) * wider + 1e-9
        l1 = min(float(np.linalg.norm(at, axis=1).sum()), math.sqrt(len(at)) * widest)
        l1 *= wider
        bound = self._moves(problem)
        unit = 2.0 ** (math.floor(math.log2(bound)) - 20)
        noisy = self._releaser.release(
            "effects at points",
            np.rint(along(at, problem.solve()) / unit).astype(np.int64),
            math.ceil(l1 * bound / unit) + len(at),
            unit,
            l2=widest * bound / unit + math.sqrt(len(at)),
            share=share,
            claim=33,
        )
        return noisy

    def effect_squares(
        self,
        learner: Learner,
        features: Features,
        weights: FloatArray,
        strength: float,
        share: str,
    ) -> Noisy:
        """Release sums of squared gradients and of second derivatives along rows (claim 34)."""
        problem = self._second_stage(learner, features, strength)
        grid = Grid.for_sum((0.0, problem.bend), self.n, self.epsilon(share), 2.0)
        noisy = self._releaser.release(
            "spread of residuals",
            problem.sum_squares(weights, grid),
            2 * grid.span,
            grid.unit,
            l2=math.sqrt(2.0) * grid.span,
            share=share,
            claim=34,
        )
        return Noisy(
            noisy.value + self.n * grid.middle, noisy.scale, noisy.spend, gaussian=noisy.gaussian
        )

    def covariate_histograms(self, share: str) -> Noisy:
        """Release counts of each covariate in equal bins of its declared range (claim 35)."""
        (counts,) = self._source.fold(_histograms, "covariates")
        width = len(counts)
        return self._releaser.release(
            "histograms of covariates",
            counts,
            2 * width,
            1.0,
            l2=math.sqrt(2.0 * width),
            share=share,
            claim=35,
        )

    def group_sums(self, learner: Learner, share: str) -> tuple[Noisy, Noisy]:
        """Release, by group, sums of slope times target and of squared slopes (claim 36).

        Their ratio is the least-squares effect in a group, in units of the threshold and less the
        average effect. Targets are clipped to [-1, 1] here.
        """
        steepest, epsilon = learner.steepest, self.epsilon(share) / 2
        grids = [Grid.for_sum((-x, x), self.n, epsilon) for x in (steepest, steepest**2)]
        sums = self._by_group(learner, None, grids)
        return (
            self._release_groups("sums by group", sums[0], grids[0], share, parts=2),
            self._release_groups("weights by group", sums[1], grids[1], share, parts=2),
        )

    def group_squares(self, learner: Learner, effects: FloatArray, share: str) -> Noisy:
        """Release, by group, sums of squared slope times residual (claim 36).

        A residual is the clipped target less slope times the group's released effect, which is
        within [-1, 1] in units of the threshold; it is clipped to [-1, 1] too.
        """
        largest = learner.steepest**2
        grid = Grid.for_sum((-largest, largest), self.n, self.epsilon(share))
        (squares,) = self._by_group(learner, np.clip(effects, -1.0, 1.0), [grid])
        return self._release_groups("squares by group", squares, grid, share)

    def _by_group(
        self, learner: Learner, effects: FloatArray | None, grids: list[Grid]
    ) -> IntArray:
        """Sums by group of encoded values; a record is in one group."""
        count = self._source.declared
        assert count is not None
        add = partial(_group_sums, learner=learner, effects=effects, grids=grids, count=count)
        return self._source.fold(add, "covariates", "outcome", "strata")[0]

    def _release_groups(
        self, label: str, sums: IntArray, grid: Grid, share: str, parts: int = 1
    ) -> Noisy:
        return self._releaser.release(
            label,
            sums,
            grid.span,
            grid.unit,
            share=share,
            claim=36,
            l2=float(grid.span),
            parts=parts,
        )

    def in_groups(self, index: IntArray, count: int) -> Self:
        """Return the same rows in groups: the group of each record, a function of that record."""
        rows = self._source.held("this step needs all rows at once")
        rows = replace(rows, strata=lambda: (index, count))
        return type(self)(rows, self._releaser, self._public)

    def _second_stage(self, learner: Learner, features: Features, strength: float) -> Huber:
        terms, steepest = EffectTerms(learner, features), learner.steepest * _WIDER
        return Huber(self._source, terms, features.size, strength, steepest)

    def _moves(self, problem: Huber) -> float:
        """L2 sensitivity of the weights (claim 32)."""
        return (2.0 * problem.steepest / problem.strength + 2.0 * problem.slack()) * _WIDER


def _features(features: Features, block: Block) -> FloatArray:
    """Features of a few records, until the next ones are asked for."""
    return features(block.covariates, room("features", block.treated.size, features.size))


def _histograms(block: Block) -> Totals:
    """Counts of each covariate by bin."""
    counts = []
    for column in block.covariates.T[1:]:
        bins = (np.clip(column, 0.0, 1.0) * BINS).astype(np.int64)
        counts.append(np.bincount(np.minimum(bins, BINS - 1), minlength=BINS))
    return (np.stack(counts),)


def _group_sums(
    block: Block, learner: Learner, effects: FloatArray | None, grids: list[Grid], count: int
) -> Totals:
    """Sums by group: of slope times target and squared slope, or of squares about the effects."""
    total = np.zeros((len(grids), count), dtype=np.int64)
    for some in chunks(block, learner.nuisance.features.size):
        rows = _features(learner.nuisance.features, some)
        slopes, targets = learner.terms(some.covariates, some.treated, some.outcome, rows)
        targets = np.clip(targets, -1.0, 1.0)
        if effects is None:
            values = [slopes * targets, slopes**2]
        else:
            residual = np.clip(targets - slopes * effects[some.strata], -1.0, 1.0)
            values = [(slopes * residual) ** 2]
        for sums, value, grid in zip(total, values, grids, strict=True):
            sums += sums_by_cell(grid.encode(value), some.strata, count)
    return (total,)
