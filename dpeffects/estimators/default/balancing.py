"""Balancing weights at label level: covariates and treatment are public, outcomes are private.

Every weighted difference of outcomes, adjusted by a regression or not, is a sum of v_i y_i whose
weights v_i follow from covariates and treatment alone. So here nothing is spent on adjusting. The
weights of an arm are those of a logistic score, 1 + exp(line) for the average over all records and
exp(line) for that over the other arm, where lines are in a basis of the covariates: terms of the
formula, squares, products, and steps at quantiles, as many as records carry. They are calibrated
(Imai and Ratkovic 2014, Zhao 2019, Tan 2020): the arm's means of the basis are those of the
population. So the estimate is right where the log odds are a line in the basis, whatever outcomes
are, and where outcomes are one, whatever the score is. The loss is convex and has a ridge, so that
it has a minimum; Newton's method finds it by exact sums over public rows, which are free and the
same on every engine. What is paid for is one sum of weighted, clipped residuals: its noise is the
largest weight times the length of a residual.

A cap bounds the noise and leaves some imbalance. Several caps are solved, from loose to tight;
which of them, and which clip, has the least noise, sampling variance and possible bias is decided
by public and released numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from dpeffects.arrays import BoolArray, FloatArray, IntArray
from dpeffects.design.arms import ARMS
from dpeffects.errors import EstimationError
from dpeffects.estimands import ESTIMANDS
from dpeffects.estimators.arm_sums import arm_cells
from dpeffects.estimators.default.centres import (
    Centres,
    Lengths,
    LengthsAsked,
    release_centres,
    residual,
)
from dpeffects.estimators.default.levels import Spread, with_means
from dpeffects.estimators.default.moment_models import varying_columns
from dpeffects.estimators.row import row
from dpeffects.estimators.spec import Contrasts, Facts
from dpeffects.inference.estimate import Effects, Estimate, Part, SamplingVariance, Unavailable
from dpeffects.privacy.charges import Noisy
from dpeffects.privacy.curator import Curator
from dpeffects.privacy.descent import direction
from dpeffects.privacy.parts import among_arms
from dpeffects.privacy.rows import Block, Cells, RowFunction
from dpeffects.privacy.sets import COUNT, Box
from dpeffects.privacy.tight_sets import Gram, WithSquares, norm_of_sum

_COARSE = 0.03
"""Noise in a count of lengths, over all records, beyond which nothing is clipped by it."""
_RIDGE = 3.0
"""Variance of a residual over that of a slope along an imbalance, by which both are weighed."""
_CURVES = 3.0
"""Squares, products, and all steps along a column, are believed to vary so many times less."""
_RECORDS = 12
"""Records of the smaller arm for each function of the basis, before curves are added to it."""
_DENSE = 0.15
"""Steps along a column, over the root of the smaller arm's records: what lies between two steps is
off by one over their number in both score and outcome. 10 steps at n 10,000 left a step population
covered in 28 of 30 runs."""
_MOST = 100
"""Functions of the basis, before curves are added to it: time goes by its square."""
_GRID = np.linspace(-3.0, 3.0, 241)
"""Places of steps, in standard deviations from the mean."""
_TYPICAL = 0.15
"""Standard deviation of outcomes in an arm, over their range, where it is not known yet."""
_RATIO = 1.5
"""From one cap to the next, at most: expected errors of two such differ by a few per cent."""
_TIGHTEST = 1.25
"""The tightest cap is this many times an even weight in the smaller arm."""
_LOOKS = 8
"""Looks at the rows for each cap, at most; what imbalance they leave is measured, not assumed."""
_STOP = 0.01
"""Imbalance, over the standard deviation that chance gives a mean, at which nothing is gained."""
_QUICK = 0.25
"""By so much the gradient falls where second derivatives are used again."""
_EDGES = 2.0 ** (np.arange(1, 8 * 40) / 8.0)
"""Classes of weights, to find the largest."""
_UNKNOWN = 0.03
"""Noise in what covariates explain, over the variance of residuals, beyond which it is unknown."""
_MARKED = 0.1
"""A difference between an arm and its population, in standard deviations, that is worth a word."""


def label_shares(options: Any, facts: Facts) -> dict[str, float]:
    """Split of the budget, by records times epsilon: at first nearly all is for the estimate.

    From a thousand on a clip can be known, for which means are needed; with more, the more columns
    there are, how much the covariates explain. More records need smaller shares for the same
    accuracy. All change slowly, so that more epsilon is never less for the estimate.
    """
    records = max(facts.n * facts.budget.epsilon, 1e-9)
    if facts.arms > 2:  # those of two arms, and the part of a contrast
        records *= 2.0 / (facts.arms * (facts.arms - 1))
    means = 0.04 + _ramp(records, 800.0, 1200.0) * min(0.12, 100.0 / records)
    root = math.sqrt(max(facts.width, 1))
    variance = 0.02 + _ramp(records, 600.0 * root, 900.0 * root) * min(0.2, 150.0 * root / records)
    return {"means": means, "variance": variance, "estimate": 1.0 - means - variance}


def lengths_part(records: float) -> float:
    """Part of the estimate's share for lengths of residuals, by records times its epsilon."""
    part = _ramp(records, 800.0, 1200.0) * min(0.25, max(300.0 / max(records, 1e-9), 0.03))
    return math.floor(256.0 * part) / 256.0  # such that the rest of the share is exact


def _ramp(value: float, start: float, end: float) -> float:
    return min(max((value - start) / (end - start), 0.0), 1.0)


# --- the basis ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Basis:
    """Functions of encoded covariates to [-1, 1]: columns, squares, products and steps.

    ``centre`` and ``spread`` standardise the ``columns`` that curves are made of; they are cut off
    at three standard deviations. ``squares`` and ``pairs`` say of which columns there are such,
    ``steps`` which column steps up where.
    """

    columns: IntArray
    centre: FloatArray
    spread: FloatArray
    squares: tuple[int, ...] = ()
    pairs: tuple[tuple[int, int], ...] = ()
    steps: tuple[tuple[int, float], ...] = ()
    reads: ClassVar[tuple[str, ...]] = ("covariates",)

    @property
    def size(self) -> int:
        """Number of functions."""
        return len(self.columns) + len(self.squares) + len(self.pairs) + len(self.steps)

    @property
    def penalties(self) -> FloatArray:
        """How much less the slopes of curves may vary; steps along a column share one variance."""
        each = len(self.steps) / max(len({j for j, _ in self.steps}), 1)
        numbers = len(self.columns), len(self.squares) + len(self.pairs), len(self.steps)
        return np.repeat([1.0, _CURVES, _CURVES * each], numbers)

    def __call__(self, rows: Block) -> tuple[FloatArray, ...]:
        """The functions of some rows."""
        lines = [rows.covariates[:, j] - 0.5 for j in self.columns]
        used = sorted({*self.squares, *(j for pair in self.pairs for j in pair)})
        z = {
            j: np.clip((lines[j] - self.centre[j]) / (3.0 * self.spread[j]), -1.0, 1.0)
            for j in used
        }
        squares = [z[j] * z[j] for j in self.squares]
        steps = [(lines[j] > edge) - 0.5 for j, edge in self.steps]
        return (*lines, *squares, *(z[i] * z[j] for i, j in self.pairs), *steps)


@row("covariates")
def column_class(rows: Block, column: int, edges: FloatArray) -> IntArray:
    """How many of the edges a covariate exceeds."""
    return np.searchsorted(edges, rows.covariates[:, column] - 0.5, side="left")


@row("covariates")
def values_and_squares(rows: Block, basis: Basis) -> tuple[FloatArray, ...]:
    """The functions of a basis, and their squares."""
    values = basis(rows)
    return (*values, *(x * x for x in values))


@dataclass(frozen=True, eq=False)
class BasisMoments:
    """Public means and variances of a basis by arm (treated, control)."""

    sizes: FloatArray
    means: FloatArray
    variances: FloatArray

    @classmethod
    def of(cls, curator: Curator, basis: Basis, sizes: FloatArray) -> BasisMoments:
        """Moments of a basis over public records."""
        q = basis.size
        if not q:
            return cls(sizes, np.zeros((2, 0)), np.zeros((2, 0)))
        box = Box(-np.ones(2 * q), np.ones(2 * q))
        sums = curator.sums("balance", values_and_squares(basis), box, ARMS, share="estimate").value
        sums = sums / sizes[:, None]
        return cls(sizes, sums[:, :q], np.maximum(sums[:, q:] - sums[:, :q] ** 2, 0.0))

    @property
    def with_constant(self) -> FloatArray:
        """Means of 1 and the functions."""
        return np.column_stack([np.ones(2), self.means])

    @property
    def spread(self) -> FloatArray:
        """Standard deviations over all records."""
        share = self.sizes / self.sizes.sum()
        gap = (self.means[0] - self.means[1]) ** 2
        return np.asarray(np.sqrt(share @ self.variances + share[0] * share[1] * gap))

    def target(self, estimand: str) -> FloatArray:
        """Means over the population of an estimand."""
        own = ESTIMANDS[estimand]
        weights = self.sizes * np.array([own.of_treated, own.of_control])
        return np.asarray(weights @ self.means / weights.sum())


def choose_basis(
    curator: Curator, sizes: FloatArray, flexible: int | None = None
) -> tuple[Basis, BasisMoments]:
    """Columns that vary; squares, products and steps of them while there are records for them.

    With ``flexible`` 0 nothing is added to the columns, with 1 at most squares, with 2 no steps.
    """
    columns = varying_columns(curator)
    lines = Basis(columns, np.zeros(columns.size), np.ones(columns.size))
    first = BasisMoments.of(curator, lines, sizes)
    varies = first.spread > 1e-4
    columns, spread = columns[varies], first.spread[varies]
    centre = (sizes @ first.means / sizes.sum())[varies]
    kinds = np.array(curator.values)[columns]
    more = tuple(int(j) for j in np.flatnonzero(kinds != 2))
    pairs = tuple((i, j) for j in range(columns.size) for i in range(j))
    basis, room = Basis(columns, centre, spread), min(float(sizes.min()) / _RECORDS, _MOST)
    for terms in ({"squares": more}, {"pairs": pairs})[:flexible]:
        larger = replace(basis, **terms)
        basis = larger if larger.size <= room else basis
    each = min((room - basis.size) / max(len(more), 1), _DENSE * math.sqrt(sizes.min()))
    if flexible is None and each >= 1.0:
        steps = [(j, x) for j in more for x in _quantiles(curator, basis, j, int(each))]
        basis = replace(basis, steps=tuple(steps))
    return basis, BasisMoments.of(curator, basis, sizes)


def _quantiles(curator: Curator, basis: Basis, j: int, number: int) -> list[float]:
    """Places that cut a public column into parts of about the same size; fewer where it has ties.

    Where the arms are some of more, their places are those of their own records.
    """
    places = basis.centre[j] + basis.spread[j] * _GRID
    cells = Cells(column_class(int(basis.columns[j]), places), places.size + 1)
    counts = curator.sums("quantiles", None, COUNT, cells, share="estimate").value[:, 0]
    below = np.cumsum(counts)[:-1] / counts.sum()
    wanted = np.arange(1, number + 1) / (number + 1.0)
    found = np.unique(np.abs(below[:, None] - wanted).argmin(axis=0))
    return [float(places[k]) for k in found if 0.0 < below[k] < 1.0]


# --- the weights ----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class BalancingWeights:
    """Weights of (treated, control) records: a part ``base``, the same for all, and exponentials.

    The rest, 1 less the base, is multiplied by exp(line), cut at ``tops``, where ``lines`` has a
    constant and a slope for each function of the basis, by arm; an even weight is 1. With the
    share of the arm as its base this is the share over a probability whose log odds are a line.
    """

    basis: Basis
    lines: FloatArray
    tops: FloatArray
    base: FloatArray
    reads: ClassVar[tuple[str, ...]] = ("treated", "covariates")

    @property
    def caps(self) -> FloatArray:
        """The largest weights."""
        return np.asarray(self.base + (1.0 - self.base) * self.tops)

    def logs(self, treated: BoolArray, values: tuple[FloatArray, ...]) -> FloatArray:
        """Logarithms of exponentials over their tops, column by column: at most 0."""
        total, other = (np.full(treated.size, x) for x in self.lines[:, 0] - np.log(self.tops))
        for value, (slope, against) in zip(values, self.lines[:, 1:].T.tolist(), strict=True):
            total += value * slope
            other += value * against
        return np.minimum(np.where(treated, total, other), 0.0)

    def __call__(self, rows: Block) -> FloatArray:
        """Weights of some rows, over their caps."""
        even = self.base / self.caps
        tilt = np.exp(self.logs(rows.treated, self.basis(rows)))
        return np.where(rows.treated, *even) + np.where(rows.treated, *(1.0 - even)) * tilt


@row()
def within_cap(rows: Block, weights: BalancingWeights) -> IntArray:
    """The arm (0 or 1) of a record whose weight is not at its cap; 2 for the others."""
    logs = weights.logs(rows.treated, weights.basis(rows))
    return np.where(logs < 0.0, np.where(rows.treated, 0, 1), 2)


@row()
def rooted(rows: Block, weights: BalancingWeights) -> tuple[FloatArray, ...]:
    """1 and the functions of the basis, times roots of exponentials over their tops."""
    values = weights.basis(rows)
    root = np.exp(0.5 * weights.logs(rows.treated, values))
    return (root, *(root * x for x in values))


@row()
def weight_class(rows: Block, weights: BalancingWeights, edges: FloatArray) -> IntArray:
    """How many of the edges a weight exceeds; classes of the treated come first."""
    weight = weights(rows) * np.where(rows.treated, *weights.caps)
    above = np.searchsorted(edges, weight, side="left")
    return np.where(rows.treated, above, above + edges.size + 1)


@row()
def weight_sums(rows: Block, weights: BalancingWeights) -> tuple[FloatArray, ...]:
    """Exponentials over their tops, times themselves, their logarithms, 1 and the basis."""
    values = weights.basis(rows)
    logs = weights.logs(rows.treated, values)
    tilt = np.exp(logs)
    return (tilt * tilt, tilt * np.maximum(logs, -100.0), tilt, *(tilt * x for x in values))


@dataclass(frozen=True, eq=False)
class Problem:
    """Exponentials with the least entropy and imbalance, in standardised columns of a basis.

    Minimises, over r in [0, top] of an arm's n_a records with mean 1, the mean of r log r plus
    (n_a / 2 ridge) times the squared distance of each column's mean from its ``goal``: that of the
    records of the population which are not in the arm. In the dual this is the loss whose minimum
    is the odds of treatment where their logarithm is a line in the basis. ``standard`` turns
    (1, basis) into 1 and columns with mean 0 over the population and variance 1.
    """

    basis: Basis
    moments: BasisMoments
    standard: FloatArray
    ridge: FloatArray
    base: FloatArray
    goal: FloatArray

    @classmethod
    def of(
        cls,
        basis: Basis,
        moments: BasisMoments,
        estimand: str,
        everybody: tuple[FloatArray, float] | None = None,
    ) -> Problem:
        """The problem of weights that balance these moments."""
        own, spread = ESTIMANDS[estimand], np.maximum(moments.spread, 1e-6)
        base = moments.sizes * np.array([own.of_treated, own.of_control])
        target, total = everybody or (moments.target(estimand), float(base.sum()))
        base = base / total
        standard = np.eye(basis.size + 1)
        standard[1:, 1:] = np.diag(1.0 / spread)
        standard[1:, 0] = -target / spread
        means = moments.with_constant @ standard.T
        rest = np.maximum(1.0 - base, 1e-9)[:, None]
        goal = (np.eye(1, basis.size + 1) - base[:, None] * means) / rest
        ridge = np.append(1e-9, _RIDGE * basis.penalties)
        return cls(basis, moments, standard, ridge / moments.sizes[:, None], base, goal)

    @property
    def sizes(self) -> FloatArray:
        """Records by arm."""
        return self.moments.sizes

    @property
    def even(self) -> BoolArray:
        """Which arm is the population itself: its weights are 1."""
        return np.asarray(self.base == 1.0)

    def start(self) -> FloatArray:
        """Even weights, as coefficients of (1, standardised columns) by arm."""
        return np.zeros((2, self.basis.size + 1))

    def weights(self, at: FloatArray, tops: FloatArray) -> BalancingWeights:
        """Weights with these coefficients."""
        return BalancingWeights(self.basis, at @ self.standard, tops, self.base)

    def look(self, curator: Curator, at: FloatArray, tops: FloatArray) -> _Look:
        """Sums over public rows that give the dual objective and its gradient, by arm."""
        weights, q = self.weights(at, tops), self.basis.size
        low = np.append([0.0, -0.4, 0.0], -np.ones(q))
        box = Box(low, np.append([1.0, 0.0, 1.0], np.ones(q)), centre=0.0)
        sums = curator.sums("balance", weight_sums(weights), box, ARMS, share="estimate").value
        sums = sums * tops[:, None] / self.sizes[:, None]
        squares, entropy, means = sums[:, 0] * tops, sums[:, 1], sums[:, 2:]
        gradient = means @ self.standard.T + self.ridge * at - self.goal
        # where r is cut from exp(u), its term is r + r u - r log r
        value = means[:, 0] * (1.0 - np.log(tops)) - entropy + (means * weights.lines).sum(axis=1)
        value += (at * (0.5 * self.ridge * at - self.goal)).sum(axis=1)
        return _Look(at, means, squares, gradient, value)

    def hessian(self, curator: Curator, at: FloatArray, tops: FloatArray) -> FloatArray:
        """Second derivatives, by arm: products of the records whose weights are not cut."""
        weights = self.weights(at, tops)
        products = _products(
            curator, rooted(weights), self.basis.size + 1, Cells(within_cap(weights), 2)
        )
        inside = self.standard @ (products * (tops / self.sizes)[:, None, None]) @ self.standard.T
        return np.asarray(inside + np.stack([np.diag(ridge + 1e-10) for ridge in self.ridge]))

    def solve(self, curator: Curator, now: _Look, tops: FloatArray) -> _Look:
        """Newton's method with halved steps, for both arms in the same looks at the rows.

        Second derivatives are used again, those of other tops too, while the gradient falls
        quickly by them.
        """
        hessian, free = now.hessian, ~self.even
        now, stop = self.look(curator, now.at, tops), _STOP / np.sqrt(self.sizes)
        steps, shrink = np.zeros_like(now.at), np.zeros(2)
        for _ in range(_LOOKS):
            size = np.abs(now.gradient).max(axis=1)
            starts = free & (shrink == 0.0) & (size > stop)
            if not (starts | (shrink > 0.0)).any():
                break
            if starts.any() and hessian is None:
                hessian = self.hessian(curator, now.at, tops)
            for arm in np.flatnonzero(starts).tolist():
                assert hessian is not None
                steps[arm], shrink[arm] = direction(hessian[arm], now.gradient[arm]), 1.0
            found = self.look(curator, now.at - shrink[:, None] * steps, tops)
            falls = 1e-4 * shrink * (now.gradient * steps).sum(axis=1)
            taken = (shrink > 0.0) & ((found.value <= now.value - falls) | (shrink < 1e-3))
            slow = np.abs(found.gradient).max(axis=1) > np.maximum(_QUICK * size, stop)
            hessian = None if (slow & (shrink > 0.0)).any() else hessian
            now, shrink = now.where(taken, found), np.where(taken, 0.0, shrink / 2.0)
        return replace(now, hessian=hessian)


@dataclass(frozen=True, eq=False)
class _Look:
    """What is known of the dual problem at some coefficients, by arm.

    ``means`` are those of exponentials and of exponentials times the basis, ``squares`` of their
    squares. ``hessian`` are second derivatives that may be used again.
    """

    at: FloatArray
    means: FloatArray
    squares: FloatArray
    gradient: FloatArray
    value: FloatArray
    hessian: FloatArray | None = None

    def where(self, taken: BoolArray, other: _Look) -> _Look:
        """The other's numbers in the arms where it is taken."""
        both = [(getattr(self, f.name), getattr(other, f.name)) for f in fields(self)[:-1]]
        return _Look(*(np.where(taken.reshape(2, *[1] * (a.ndim - 1)), b, a) for a, b in both))


@dataclass(frozen=True, eq=False)
class CappedWeights:
    """Weights for a cap, and what is public of them.

    ``totals`` are the sums of the weights by arm, ``squares`` the sums of squared weights that add
    up to 1, ``imbalance`` the standardised differences between arms and population.
    """

    weights: BalancingWeights
    sizes: FloatArray
    totals: FloatArray
    squares: FloatArray
    imbalance: FloatArray

    @classmethod
    def of(cls, problem: Problem, weights: BalancingWeights, look: _Look) -> CappedWeights:
        """Weights with what is left of the imbalance."""
        base, rest = problem.base, 1.0 - problem.base
        means = base[:, None] * problem.moments.with_constant + rest[:, None] * look.means
        sums = np.maximum(means[:, 0], 1e-9)
        imbalance = (means / sums[:, None] @ problem.standard.T)[:, 1:]
        squares = base**2 + 2.0 * base * rest * look.means[:, 0] + rest**2 * look.squares
        squares = squares / sums**2 / problem.sizes
        return cls(weights, problem.sizes, sums * problem.sizes, squares, imbalance)

    @property
    def largest(self) -> float:
        """The largest weight that a record can have, where the weights of an arm add up to 1."""
        return float((self.weights.caps / self.totals).max())

    @property
    def left(self) -> float:
        """Squared imbalance of both arms, curves counting less."""
        return float((self.imbalance**2 / self.weights.basis.penalties).sum())

    @property
    def gain(self) -> float:
        """How much of a variance that covariates explain the balance takes out of the estimate's.

        Effects that differ between records, by as much as outcomes do, are sampled with all
        records; and what imbalance is left lies in any direction.
        """
        lines = self.weights.basis.columns.size
        left = float((self.imbalance[:, :lines] ** 2).sum()) / max(lines, 1)
        everybody = 1.0 / self.sizes.sum()
        return max(float(self.squares.sum()) - everybody - left, 0.0)


def designs(curator: Curator, problem: Problem, *, trial: bool) -> Iterator[CappedWeights]:
    """Weights for caps from loose to tight, each solved when asked for; in a trial even at last."""
    sizes, even, base = problem.sizes, problem.even, problem.base
    none = np.where(even, 1.0, np.maximum(sizes, 2.0))
    even_weights = problem.look(curator, problem.start(), np.ones(2))
    if trial:
        yield CappedWeights.of(problem, problem.weights(even_weights.at, np.ones(2)), even_weights)
    look = problem.solve(curator, even_weights, none)
    top = _largest(curator, problem.weights(look.at, none)) / sizes
    tightest = _TIGHTEST / float(sizes.min())
    loosest = max(float(top.max()), tightest)
    steps = max(math.ceil(math.log(loosest / tightest) / math.log(_RATIO)), 1)
    for k in range(steps + 1):
        cap = loosest * (tightest / loosest) ** (k / steps)
        tops = (np.minimum(cap, top) * sizes - base) / np.maximum(1.0 - base, 1e-9)
        tops = np.where(even, 1.0, tops)
        look = problem.solve(curator, look, tops)
        yield CappedWeights.of(problem, problem.weights(look.at, tops), look)


def _products(
    curator: Curator, row: RowFunction, columns: int, cells: Cells | None = None
) -> FloatArray:
    """Public sums of products of columns in [-1, 1], as symmetric matrices by cell."""
    ends = np.ones(columns)
    ball = Box(-ends, ends, radius=1.001 * math.sqrt(columns))  # no row is that long
    sums = np.atleast_2d(curator.sums("balance", row, Gram(ball), cells, share="estimate").value)
    matrices, (first, second) = np.zeros((len(sums), columns, columns)), np.triu_indices(columns)
    matrices[:, first, second] = matrices[:, second, first] = sums
    return matrices


def _largest(curator: Curator, weights: BalancingWeights) -> FloatArray:
    """The largest weight of each arm, to the next edge."""
    classes = Cells(weight_class(weights, _EDGES), 2 * (_EDGES.size + 1))
    counts = curator.sums("weights", None, COUNT, classes, share="estimate").value
    by_arm = counts.reshape(2, -1)
    return np.array([_EDGES[min(np.flatnonzero(c)[-1], _EDGES.size - 1)] for c in by_arm])


# --- what is released -----------------------------------------------------------------------------


@row("treated")
def outcome_slopes(
    rows: Block,
    basis: Basis,
    residual: RowFunction,
    clip: float,
    means: FloatArray,
    turn: FloatArray,
) -> tuple[FloatArray, ...]:
    """Clipped residuals times uncorrelated columns: sums of them are slopes of the outcome.

    ``turn`` makes columns of variance 1, uncorrelated within arms, of those less their arm's mean.
    Residuals are in units of the clip.
    """
    values = basis(rows)[: len(turn)]
    centred = [x - np.where(rows.treated, *m) for x, m in zip(values, means.T, strict=False)]
    cut = np.clip(residual(rows) / clip, -1.0, 1.0)
    columns = []
    for weights in turn.T:
        total = np.zeros(rows.size)
        for x, weight in zip(centred, weights, strict=True):
            total += x * weight
        columns.append(total * cut)
    return tuple(columns)


@row("treated")
def contribution(
    rows: Block,
    weights: BalancingWeights,
    residual: RowFunction,
    clips: FloatArray,
    factors: FloatArray,
) -> FloatArray:
    """What a record adds to the estimate, from -1/2 to 1/2: its weight times its clipped residual.

    ``clips`` are (lowest, highest) residuals by arm; they are measured from their middle, as the
    weights of an arm have a known sum. ``factors`` of the arms have their signs.
    """
    low, high, middle = (np.where(rows.treated, *x) for x in (*clips.T, clips.mean(axis=1)))
    cut = np.clip(residual(rows), low, high) - middle
    return np.where(rows.treated, *factors) * weights(rows) * cut


@dataclass(frozen=True)
class Released:
    """What is known before the weighted sum: numbers that its weights and its clip are chosen by.

    ``lengths`` are None where nothing is clipped; ``part`` is what is left of the estimate's share.
    ``spread`` is a variance of residuals to plan with, ``explained`` that part of it which the
    covariates explain within arms (0 where it is not known), with ``explained_sd`` of noise.
    """

    centres: Centres
    lengths: Lengths | None
    part: float
    spread: float
    explained: float = 0.0
    explained_sd: float = 0.0

    @property
    def residual(self) -> RowFunction:
        """The outcome less the mean of its arm."""
        return residual(self.centres.means)


def fit_label(curator: Curator, options: Any, estimand: str, contrasts: Contrasts) -> Effects:
    """Effects between two arms, or more: then each contrast has its part of the budget.

    Both arms of such a contrast are brought to the means of all records.
    """
    if curator.arms == 2:
        one = fit_pair(curator, options, estimand)
        return Effects((one,), one.notes, details=one.details)
    part = Fraction(1, len(contrasts))
    estimates = tuple(
        fit_pair(among_arms(curator, pair, part), options, estimand, curator) for pair in contrasts
    )
    sizes = curator.sums("arms", None, COUNT, arm_cells(curator), share="estimate").value[:, 0]
    about = {"records by arm": ", ".join(f"{size:.0f}" for size in sizes)}
    notes = dict.fromkeys(note for estimate in estimates for note in estimate.notes)
    return Effects(estimates, tuple(notes), details=about)


def fit_pair(
    curator: Curator, options: Any, estimand: str, everybody: Curator | None = None
) -> Estimate:
    """Release means, lengths and one weighted sum, whose weights are solved in public.

    ``everybody`` has the records of more arms, where the effect is the average over all of them.
    """
    curator.require_public("treatment", "covariates")
    sizes = curator.sums("arms", None, COUNT, ARMS, share="estimate").value[:, 0]
    if not sizes.all():
        raise EstimationError("an arm has no records: there is no effect to estimate")
    trial, flexible = options.design == "randomised", options.flexible
    basis, moments = choose_basis(curator, sizes, 2 if trial and flexible is None else flexible)
    target = None
    if everybody is not None and basis.size:
        box = Box(-np.ones(basis.size), np.ones(basis.size))
        means = everybody.sums("balance", basis, box, share="estimate").value / everybody.n
        target = means, everybody.n
    problem = Problem.of(basis, moments, estimand, target)
    released = release_explained(curator, problem, moments, release_first(curator, sizes))
    choices = list[Choice]()
    for design in designs(curator, problem, trial=trial):
        choices.append(Choice.of(curator, design, released, trial=trial))
        if len(choices) > 1 + trial and choices[-1].error > choices[-2].error:
            break
    best = min(choices, key=lambda choice: choice.error)
    made = replace(weighted_sum(curator, best, released), **_said(problem, moments, best, trial))
    if everybody is not None:  # the level of two arms is not that of all
        return made
    explained = min(released.explained / released.spread, 0.9)
    spread = Spread(released.spread, 1.0 / best.design.squares, explained)
    return with_means(made, released.centres, estimand, spread)


def release_first(curator: Curator, sizes: FloatArray) -> Released:
    """Release means by arm, and lengths of residuals where they can tell a clip."""
    centres = release_centres(curator, means="means")
    part = lengths_part(2.0 * float(sizes.min()) * curator.epsilon("estimate"))
    if centres.two_valued:
        return Released(centres, None, 1.0, centres.most_variance)
    typical = Released(
        centres, None, 1.0, min((_TYPICAL * centres.range) ** 2, centres.most_variance)
    )
    if not part:
        return typical
    from_means, label = residual(centres.means), "lengths of residuals"
    noisy = LengthsAsked(label, from_means, centres.longest, "estimate", part).released(curator)
    if noisy.sd[0] > _COARSE * curator.n:
        return replace(typical, part=1.0 - part)
    # lengths are counted as the shortest of their class, and are about even in its logarithm
    spread = max(noisy.mean_square / math.log(2.0), (0.02 * centres.range) ** 2)
    return Released(centres, noisy, 1.0 - part, min(spread, centres.most_variance))


def release_explained(
    curator: Curator, problem: Problem, moments: BasisMoments, known: Released
) -> Released:
    """Release how much the columns explain of the outcome, as the norm of its slopes."""
    columns, n = problem.basis.columns.size, curator.n
    if not columns or not curator.has("variance"):
        return known
    lines = replace(problem.basis, squares=(), pairs=(), steps=())
    means = moments.means[:, :columns]
    within = _products(curator, lines, columns)[0] - (moments.sizes[:, None] * means).T @ means
    values, vectors = np.linalg.eigh(within / n)
    kept = values > max(1e-3 * values[-1], 1e-9)
    turn, size = vectors[:, kept] / np.sqrt(values[kept]), int(kept.sum())
    if not size:
        return known
    radius, clip = 1.5 * math.sqrt(size), known.centres.longest
    if known.lengths is not None:
        noise = 2.0 * radius * curator.noise_sd("variance") / n
        clip, _, _ = known.lengths.clip(noise)
    row = outcome_slopes(lines, known.residual, clip, means, turn)
    ball = Box(np.full(size, -radius), np.full(size, radius), radius=radius)
    norm = norm_of_sum(curator, "outcome and covariates", row, ball, share="variance")
    root, sd = max(float(norm), 0.0) * clip / n, math.sqrt(norm.variance) * clip / n
    guessed = known.lengths is None and not known.centres.two_valued
    if guessed or sd**2 > _UNKNOWN * known.spread:
        return known
    by_chance = size * known.spread / n + sd**2
    explained = min(max(root**2 - by_chance, 0.0), 0.9 * known.spread)
    return replace(known, explained=explained, explained_sd=2.0 * max(root, sd) * sd)


@dataclass(frozen=True)
class Choice:
    """A design with the clip that suits it, and what error is expected of both.

    ``clips`` are (lowest, highest) residuals by arm, ``bias`` what they may do, ``beyond`` the part
    of the records that they reach, ``imbalance`` the variance of what the weights leave.
    """

    design: CappedWeights
    clips: FloatArray
    bias: float
    beyond: float
    imbalance: float
    error: float

    @classmethod
    def of(cls, curator: Curator, design: CappedWeights, known: Released, *, trial: bool) -> Choice:
        """The cap with the shortest interval to expect."""
        centres, lengths = known.centres, known.lengths
        low, high = centres.outcome_range
        clips = np.column_stack([low - centres.means, high - centres.means])
        noise = curator.noise_sd("estimate", known.part) * design.largest
        bias = beyond = 0.0
        if lengths is not None:
            clip, bias, beyond = lengths.clip(2.0 * noise, centres)
            clips = np.clip(clips, -clip, clip)
        imbalance = 0.0 if trial else known.spread / _RIDGE * design.left
        sampling = known.spread * float(design.squares.sum()) - known.explained * design.gain
        error = (noise * float(np.diff(clips).max())) ** 2 + bias**2 + sampling + imbalance
        return cls(design, clips, bias, beyond, imbalance, error)


def weighted_sum(curator: Curator, choice: Choice, known: Released) -> Estimate:
    """Release the sum of weighted residuals together with its squares (claim 7)."""
    design, centres, part = choice.design, known.centres, known.part
    largest, middles = design.weights.caps / design.totals, choice.clips.mean(axis=1)
    length = float((largest * np.diff(choice.clips)[:, 0]).max())
    factors = np.array([1.0, -1.0]) * largest / length
    row = contribution(design.weights, known.residual, choice.clips, factors)
    within, label = WithSquares(1), "weighted sum and squares"
    noisy = curator.sums(label, row, within, share="estimate", part=part)
    value = centres.means[0] - centres.means[1] + middles[0] - middles[1]
    value += length * float(noisy.value[0])
    by_means = float((centres.missed(choice.beyond) ** 2).sum())
    parts = (
        Part("clipped outcomes", choice.bias**2),
        Part("imbalance left by the weights", choice.imbalance),
        Part("means", by_means, noise=True),
    )
    return Estimate(
        value=float(np.clip(value, -centres.range, centres.range)),
        sampling=_sampling(curator, choice, middles, length, noisy, known),
        laplace=() if noisy.gaussian else (noisy.scale * length,),
        gaussian=noisy.variance * length**2 if noisy.gaussian else 0.0,
        parts=tuple(part for part in parts if part.variance > 0.0),
        possible=(-centres.range, centres.range),
    )


def _sampling(
    curator: Curator,
    choice: Choice,
    middles: FloatArray,
    length: float,
    noisy: Noisy,
    known: Released,
) -> SamplingVariance | Unavailable:
    """Squared weights times squared residuals, less what balance takes out of them."""
    if not curator.has("variance"):
        return Unavailable("variance=False was asked for")
    centres, scale, design = known.centres, length**2, choice.design
    squares, noise = float(noisy.value[1]) * scale, math.sqrt(noisy.variance / 2.0) * scale
    if centres.two_valued:  # squares from the middle of the range are all the same
        squares, noise = float(design.squares.sum()) * centres.range**2 / 4.0, 0.0
    # Weights move the mean of the residuals of an arm towards that of all records, and squared
    # weights about twice as far: squares from the middle of the clips are off by that.
    moved = float(middles[0] - middles[1] + length * noisy.value[0])
    others = np.array([design.sizes[1], -design.sizes[0]]) / design.sizes.sum()
    slope = 4.0 * float(middles @ (others / design.sizes)) if choice.imbalance else 0.0
    squares += slope * moved
    # residuals have mean 0 in both arms otherwise, but for the noise in the means
    by_means = 2.0 * np.abs(middles) * centres.unknown * design.squares
    value = squares - float(middles**2 @ design.squares) - known.explained * design.gain
    spread = float(by_means @ by_means) + (known.explained_sd * design.gain) ** 2
    spread += slope**2 * noisy.variance * scale
    most = centres.most_variance + centres.range * float(centres.unknown.max())
    largest = min(most, centres.range**2 / 4.0) * float(design.squares.sum())
    return SamplingVariance(value, math.sqrt(noise**2 + spread / 2.0), largest)


def _said(problem: Problem, moments: BasisMoments, choice: Choice, trial: bool) -> dict[str, Any]:
    """What a reader should know of the weights, all of it public."""
    design, lines = choice.design, problem.basis.columns.size
    even = moments.with_constant @ problem.standard.T
    before = float(np.abs(even[:, 1 : lines + 1]).max(initial=0.0))
    after = float(np.abs(design.imbalance[:, :lines]).max(initial=0.0))
    details = {
        "treated records": int(moments.sizes[0]),
        "control records": int(moments.sizes[1]),
        "functions of the covariates that are balanced": problem.basis.size,
        "largest difference from the population, in sds, before": round(before, 4),
        "largest difference from the population, in sds, after": round(after, 4),
        "records that the weights are worth (treated, control)": ", ".join(
            f"{1.0 / x:.0f}" for x in design.squares
        ),
    }
    caution, notes = "", list[str]()
    if not trial and after > _MARKED:
        hardly = "HARDLY ADJUSTED" if after > 0.5 * before else "ADJUSTED IN PART"
        caution = f"{hardly}: the arms still differ by {after:.2g} standard deviations"
        notes.append(
            "No weights balance the arms better at an acceptable noise: they overlap too little, "
            "or the budget is too small. The interval allows for it."
        )
    basis = "randomised" if trial else "adjusted"
    return {"details": details, "caution": caution, "notes": tuple(notes), "basis": basis}
