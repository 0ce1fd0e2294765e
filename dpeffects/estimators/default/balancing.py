"""Balancing weights at label level: covariates and treatment are public, outcomes are private.

Every adjusted difference is a sum of v_i y_i whose weights v_i follow from covariates and treatment
alone, so nothing is spent on adjusting. Weights are those of a logistic score, 1 + exp(line) for
the average over all records and exp(line) for that over the other arm, with lines in a basis: terms
of the formula, squares, products, and steps at quantiles, as many as records carry. They are
calibrated (Imai and Ratkovic 2014, Zhao 2019, Tan 2020): the arm's means of the basis are those of
the population. So the estimate is right where the log odds are a line in the basis, whatever the
outcomes are, and where outcomes are one, whatever the score is. The loss is convex, with a ridge;
Newton's method solves it by exact sums over public rows, which are the same on every engine. What
is paid for is one sum of weighted, clipped residuals: its noise is the largest weight times the
length of a residual. A cap bounds the noise and leaves some imbalance: of several caps, that with
the least noise, sampling variance and possible bias is taken, by public and released numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from dpeffects.arrays import BoolArray, FloatArray, IntArray, symmetric
from dpeffects.design.arms import ARMS
from dpeffects.errors import EstimationError
from dpeffects.estimands import ESTIMANDS
from dpeffects.estimators import constants as hand
from dpeffects.estimators.arm_sums import arm_cells
from dpeffects.estimators.default.arm_levels import Spread, with_means
from dpeffects.estimators.default.arm_summaries import ArmStats, release_centres, residual
from dpeffects.estimators.default.standardisation import some_columns, varying_columns
from dpeffects.estimators.default.tails import ClippedMeans, LengthQuery, ResidualLengths, uncut
from dpeffects.estimators.row_functions import row
from dpeffects.estimators.spec import Contrasts, PublicInfo
from dpeffects.inference.estimate import Effects, ErrorPart, Estimate, SamplingVariance, Unavailable
from dpeffects.privacy.charges import NoisyValue
from dpeffects.privacy.convex_solver import direction
from dpeffects.privacy.curator import Curator
from dpeffects.privacy.domains import COUNT, Box
from dpeffects.privacy.rows import Block, GroupIndex, RowFunction
from dpeffects.privacy.sample_splits import among_arms
from dpeffects.privacy.tight_domains import BoxWithSquares, Gram, norm_of_sum
from dpeffects.results import wording

_GRID = np.linspace(-3.0, 3.0, 241)
"""Places of steps, in standard deviations from the mean."""


def label_shares(options: Any, facts: PublicInfo) -> dict[str, float]:
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
        """How much less curves may vary than a line; steps along a column vary as one together."""
        each = len(self.steps) / max(len({j for j, _ in self.steps}), 1)
        numbers = len(self.columns), len(self.squares) + len(self.pairs), len(self.steps)
        return np.repeat([1.0, hand.RIDGE, each], numbers)

    def __call__(self, rows: Block) -> tuple[FloatArray, ...]:
        """The functions of some rows."""
        lines = [rows.covariates[:, j] - 0.5 for j in self.columns]
        both = zip(lines, self.centre, 3.0 * self.spread, strict=True)
        z = [np.clip((x - centre) / scale, -1.0, 1.0) for x, centre, scale in both]
        squares = [z[j] * z[j] for j in self.squares]
        steps = [(lines[j] > edge) - 0.5 for j, edge in self.steps]
        return (*lines, *squares, *(z[i] * z[j] for i, j in self.pairs), *steps)


@row("treated")
def arm_and_class(rows: Block, value: RowFunction, edges: FloatArray) -> IntArray:
    """How many of the edges a value exceeds; classes of the treated come first."""
    above = np.searchsorted(edges, np.ravel(value(rows)), side="left")
    return np.where(rows.treated, above, above + edges.size + 1)


def _by_class(curator: Curator, value: RowFunction, edges: FloatArray) -> FloatArray:
    """Public numbers of records by arm, and by how many of the edges a value exceeds."""
    cells = GroupIndex(arm_and_class(value, edges), 2 * (edges.size + 1))
    return curator.sums("classes", None, COUNT, cells, share="estimate").value.reshape(2, -1)


@row("covariates")
def values_and_squares(rows: Block, basis: Basis) -> tuple[FloatArray, ...]:
    """The functions of a basis, and their squares."""
    values = basis(rows)
    return (*values, *(x * x for x in values))


@dataclass(frozen=True, eq=False)
class BasisMoments:
    """Public sizes of the arms (treated, control), and means of 1 and a basis in them.

    ``spread`` are standard deviations of the basis over all records.
    """

    sizes: FloatArray
    means: FloatArray
    spread: FloatArray

    @classmethod
    def of(cls, curator: Curator, basis: Basis, sizes: FloatArray) -> BasisMoments:
        """Moments of a basis over public records."""
        q, one = basis.size, np.ones((2, 1))
        if not q:
            return cls(sizes, one, np.zeros(0))
        box = Box(-np.ones(2 * q), np.ones(2 * q))
        sums = curator.sums("balance", values_and_squares(basis), box, ARMS, share="estimate").value
        mean, squares = np.split(sums.sum(axis=0) / sizes.sum(), 2)
        spread = np.sqrt(np.maximum(squares - mean**2, 0.0))
        return cls(sizes, np.hstack([one, sums[:, :q] / sizes[:, None]]), spread)


def choose_basis(
    curator: Curator, sizes: FloatArray, flexible: int | None = None
) -> tuple[Basis, BasisMoments]:
    """Columns that vary; squares, products and steps of them while there are records for them.

    With ``flexible`` 0 nothing is added to the columns, with 1 at most squares, with 2 no steps.
    """
    columns = varying_columns(curator)
    lines = Basis(columns, np.zeros(columns.size), np.ones(columns.size))
    first = BasisMoments.of(curator, lines, sizes)
    varies = first.spread > 2e-3  # sums are rounded, by up to 5e-4
    columns, spread = columns[varies], first.spread[varies]
    centre = (sizes @ first.means[:, 1:] / sizes.sum())[varies]
    kinds = np.array(curator.values)[columns]
    more = tuple(int(j) for j in np.flatnonzero(kinds != 2))
    pairs = tuple((i, j) for j in range(columns.size) for i in range(j))
    basis = Basis(columns, centre, spread)
    room = min(float(sizes.min()) / hand.BASIS_RECORDS, hand.FUNCTIONS)
    for terms in ({"squares": more}, {"pairs": pairs})[:flexible]:
        larger = replace(basis, **terms)
        basis = larger if larger.size <= room else basis
    each = min((room - basis.size) / max(len(more), 1), hand.DENSE * math.sqrt(sizes.min()))
    for j in more if flexible is None and each >= 1.0 else ():
        places = centre[j] + spread[j] * _GRID
        counts = _by_class(curator, some_columns(columns[[j]]), places + 0.5)
        steps = [(j, float(places[k])) for k in _places(counts, int(each))]
        basis = replace(basis, steps=(*basis.steps, *steps))
    return basis, BasisMoments.of(curator, basis, sizes)


def _places(counts: FloatArray, number: int) -> list[int]:
    """After which classes of a column it steps: half at quantiles, half where shares treated jump.

    The latter one by one, as a tree would split. ``counts`` are (treated, control) by class.
    """
    total = np.cumsum(np.column_stack([counts.sum(axis=0), counts[0]]), axis=0)
    below, last = total[:-1, 0] / total[-1, 0], counts.shape[1] - 1
    wanted = np.linspace(0.0, 1.0, number // 2 + 2)[1:-1]
    found = set(np.abs(below[:, None] - wanted).argmin(axis=0).tolist())
    for _ in range(number - len(found)):
        ends = np.array([*sorted(found), last])
        after = np.searchsorted(ends, np.arange(last))
        start = np.where(after[:, None] > 0, total[ends[after - 1]], 0.0)
        (left, one), (right, other) = (total[:-1] - start).T, (total[ends[after]] - total[:-1]).T
        scale = np.maximum(left * right * (left + right), 1.0)
        found.add(int(np.argmax((one * right - other * left) ** 2 / scale)))
    return [k for k in sorted(found) if 0.0 < below[k] < 1.0]


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
        even = np.where(rows.treated, *(self.base / self.caps).tolist())
        return even + (1.0 - even) * np.exp(self.logs(rows.treated, self.basis(rows)))


@row()
def rooted(rows: Block, weights: BalancingWeights) -> tuple[FloatArray, ...]:
    """1 and the basis, times roots of exponentials over their tops; 0 where these are cut."""
    values = weights.basis(rows)
    logs = weights.logs(rows.treated, values)
    root = np.exp(0.5 * logs) * (logs < 0.0)
    return (root, *(root * x for x in values))


@row()
def weight_sums(rows: Block, weights: BalancingWeights) -> tuple[FloatArray, ...]:
    """Exponentials over their tops, times themselves, their logarithms, 1 and the basis."""
    values = weights.basis(rows)
    logs = weights.logs(rows.treated, values)
    tilt = np.exp(logs)
    return (tilt * tilt, tilt * np.maximum(logs, -100.0), tilt, *(tilt * x for x in values))


@dataclass(frozen=True, eq=False)
class BalancingProblem:
    """Exponentials with the least entropy and imbalance, in standardised columns of a basis.

    Minimises, over r in [0, top] of an arm's n_a records with mean 1, the mean of r log r plus
    (n_a / 2 ridge) times squared distances of the columns' means from their ``goal``: the means of
    those records of the population which are not in the arm. Its dual is the loss of a logistic
    score. ``standard`` turns (1, basis) into 1 and columns with mean 0 over the population and
    variance 1.
    """

    basis: Basis
    moments: BasisMoments
    standard: FloatArray
    ridge: FloatArray
    base: FloatArray
    goal: FloatArray

    @classmethod
    def of(
        cls, basis: Basis, moments: BasisMoments, estimand: str, everybody: Any = None
    ) -> BalancingProblem:
        """The problem of these moments, or of means and number of ``everybody`` in more arms."""
        own = ESTIMANDS[estimand]
        spread = np.where(moments.spread > 2e-3, moments.spread, np.inf)
        base = moments.sizes * np.array([own.of_treated, own.of_control])
        target, total = everybody or (base @ moments.means[:, 1:] / base.sum(), base.sum())
        base, standard = base / total, np.eye(basis.size + 1)
        standard[1:, 1:] = np.diag(1.0 / spread)
        standard[1:, 0] = -target / spread
        inside = base[:, None] * (moments.means @ standard.T)
        goal = (np.eye(1, basis.size + 1) - inside) / np.maximum(1.0 - base, 1e-9)[:, None]
        ridge = np.append(1e-9, hand.RIDGE * basis.penalties) / moments.sizes[:, None]
        return cls(basis, moments, standard, ridge, base, goal)

    def weights(self, at: FloatArray, tops: FloatArray) -> BalancingWeights:
        """Weights with these coefficients of (1, standardised columns), by arm."""
        return BalancingWeights(self.basis, at @ self.standard, tops, self.base)

    def look(self, curator: Curator, at: FloatArray, tops: FloatArray) -> DualEvaluation:
        """Sums over public rows that give the dual objective and its gradient."""
        weights, q, free = self.weights(at, tops), self.basis.size, self.base < 1.0
        low = np.append([0.0, -0.4, 0.0], -np.ones(q))
        box = Box(low, np.append([1.0, 0.0, 1.0], np.ones(q)), centre=0.0)
        sums = curator.sums("balance", weight_sums(weights), box, ARMS, share="estimate").value
        sums = sums * (tops / self.moments.sizes)[:, None]
        squares, entropy, means = sums[:, 0] * tops, sums[:, 1], sums[:, 2:]
        gradient = (means @ self.standard.T + self.ridge * at - self.goal) * free[:, None]
        # where r is cut from exp(u), its term is r + r u - r log r
        value = means[:, 0] * (1.0 - np.log(tops)) - entropy + (means * weights.lines).sum(axis=1)
        value += (at * (0.5 * self.ridge * at - self.goal)).sum(axis=1)
        size = float(np.abs(gradient).max())
        return DualEvaluation(at, means, squares, gradient, float(value[free].sum()), size)

    def hessian(self, curator: Curator, at: FloatArray, tops: FloatArray) -> FloatArray:
        """Second derivatives, by arm: products of the records whose weights are not cut."""
        products = _products(curator, rooted(self.weights(at, tops)), self.basis.size + 1, ARMS)
        products = products * (tops / self.moments.sizes)[:, None, None]
        ridges = np.stack([np.diag(ridge + 1e-10) for ridge in self.ridge])
        return np.asarray(self.standard @ products @ self.standard.T + ridges)

    def solve(self, curator: Curator, now: DualEvaluation, tops: FloatArray) -> DualEvaluation:
        """Newton's method with halved steps, for both arms in the same looks at the rows.

        Second derivatives are used again, those of other tops too, while the gradient falls
        quickly by them.
        """
        hessian, shrink = now.hessian, 1.0
        now = self.look(curator, now.at, tops)
        stop = hand.STOP / math.sqrt(self.moments.sizes.max())
        for _ in range(hand.LOOKS):
            if now.size <= stop:
                break
            hessian = self.hessian(curator, now.at, tops) if hessian is None else hessian
            step = direction(hessian, now.gradient.ravel())
            assert step is not None
            step = step.reshape(now.at.shape)
            found = self.look(curator, now.at - shrink * step, tops)
            if found.value > now.value - 1e-4 * shrink * float((now.gradient * step).sum()):
                shrink /= 2.0
                continue
            hessian = None if found.size > max(0.25 * now.size, stop) else hessian
            now, shrink = found, 1.0
        return replace(now, hessian=hessian)


@dataclass(frozen=True, eq=False)
class DualEvaluation:
    """What is known of the dual problem at some coefficients.

    ``means`` are those of exponentials, by themselves and times the basis, ``squares`` of their
    squares, by arm. ``hessian`` are second derivatives that may be used again.
    """

    at: FloatArray
    means: FloatArray
    squares: FloatArray
    gradient: FloatArray
    value: float
    size: float
    hessian: FloatArray | None = None


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
    def of(cls, problem: BalancingProblem, look: DualEvaluation, tops: FloatArray) -> CappedWeights:
        """Weights with what is left of the imbalance."""
        base, rest, sizes = problem.base, 1.0 - problem.base, problem.moments.sizes
        means = base[:, None] * problem.moments.means + rest[:, None] * look.means
        sums = np.maximum(means[:, 0], 1e-9)
        imbalance = (means / sums[:, None] @ problem.standard.T)[:, 1:]
        squares = base**2 + 2.0 * base * rest * look.means[:, 0] + rest**2 * look.squares
        weights = problem.weights(look.at, tops)
        return cls(weights, sizes, sums * sizes, squares / sums**2 / sizes, imbalance)

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
        return max(float(self.squares.sum() - 1.0 / self.sizes.sum()) - left, 0.0)


def designs(curator: Curator, problem: BalancingProblem, *, trial: bool) -> Iterator[CappedWeights]:
    """Weights for caps from loose to tight, each when asked for; in a trial even ones first."""
    sizes, base = problem.moments.sizes, problem.base
    even = base == 1.0  # the arm is the population itself
    look = problem.look(curator, np.zeros_like(problem.goal), np.ones(2))
    if trial:
        yield CappedWeights.of(problem, look, np.ones(2))
    none = np.where(even, 1.0, np.maximum(sizes, 2.0))
    look = problem.solve(curator, look, none)
    weights = problem.weights(look.at, none)
    edges = 2.0 ** (np.arange(-320.0, 0.0) / 8.0)
    last = [int(np.flatnonzero(x)[-1]) for x in _by_class(curator, weights, edges)]
    top = np.where(even, 1.0, np.append(edges, 1.0)[last] * weights.caps) / sizes
    tightest = hand.TIGHTEST / float(sizes.min())
    loosest = max(float(top.max()), tightest)
    steps = max(math.ceil(math.log(loosest / tightest) / math.log(1.5)), 1)
    for cap in np.geomspace(loosest, tightest, steps + 1).tolist():
        caps = np.minimum(cap, top) * sizes
        tops = np.where(even, 1.0, (caps - base) / np.maximum(1.0 - base, 1e-9))
        look = problem.solve(curator, look, tops)
        yield CappedWeights.of(problem, look, tops)


def _products(
    curator: Curator, row: RowFunction, columns: int, cells: GroupIndex | None = None
) -> FloatArray:
    """Public sums of products of columns in [-1, 1], as symmetric matrices by cell."""
    ends = np.ones(columns)
    ball = Box(-ends, ends, radius=1.001 * math.sqrt(columns))  # no row is that long
    sums = curator.sums("balance", row, Gram(ball), cells, share="estimate").value
    return symmetric(np.atleast_2d(sums), columns)


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
    pairs = zip(basis(rows), means.T, strict=True)
    centred = [x - np.where(rows.treated, *mean) for x, mean in pairs]
    cut = np.clip(residual(rows) / clip, -1.0, 1.0)
    turned = (zip(centred, weights, strict=True) for weights in turn.T.tolist())
    return tuple(cut * sum(x * weight for x, weight in each) for each in turned)


@row("treated")
def contribution(
    rows: Block, weights: RowFunction, residual: RowFunction, clips: FloatArray, factors: FloatArray
) -> FloatArray:
    """What a record adds to the estimate, from -1/2 to 1/2: its weight times its clipped residual.

    ``clips`` are (lowest, highest) residuals by arm; they are measured from their middle, as the
    weights of an arm have a known sum. ``factors`` of the arms have their signs.
    """
    low, high, middle = (np.where(rows.treated, *x) for x in (*clips.T, clips.mean(axis=1)))
    cut = np.clip(residual(rows), low, high) - middle
    return np.where(rows.treated, *factors) * weights(rows) * cut


@dataclass(frozen=True)
class BalancingInputs:
    """What is known before the weighted sum: numbers that its weights and its clip are chosen by.

    ``lengths`` are None where nothing is clipped; ``part`` is what is left of the estimate's share.
    ``spread`` is a variance of residuals to plan with, ``explained`` that part of it which the
    covariates explain within arms (0 where it is not known), with ``explained_sd`` of noise.
    """

    centres: ArmStats
    lengths: ResidualLengths | None
    part: float
    spread: float
    explained: float = 0.0
    explained_sd: float = 0.0


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
    target, ends = None, np.ones(basis.size)
    if everybody is not None and basis.size:
        sums = everybody.sums("balance", basis, Box(-ends, ends), share="estimate").value
        target = sums / everybody.n, everybody.n
    problem = BalancingProblem.of(basis, moments, estimand, target)
    released = release_explained(curator, problem, release_first(curator, sizes))
    tried = list[ClippedDesign]()
    for design in designs(curator, problem, trial=trial):
        tried.append(ClippedDesign.of(curator, design, released, trial=trial))
        if len(tried) > 1 + trial and tried[-1].error > tried[-2].error:
            break
    best = min(tried, key=lambda choice: choice.error)
    made = replace(weighted_sum(curator, best, released), **_said(problem, best, trial))
    if everybody is not None:  # the level of two arms is not that of all
        return made
    explained = min(released.explained / released.spread, 0.9)
    spread = Spread(released.spread, 1.0 / best.design.squares, explained)
    return with_means(made, released.centres, estimand, spread)


def release_first(curator: Curator, sizes: FloatArray) -> BalancingInputs:
    """Release means by arm, and lengths of residuals where they can tell a clip."""
    centres = release_centres(curator, means="means")
    part = lengths_part(2.0 * float(sizes.min()) * curator.epsilon("estimate"))
    if centres.two_valued:
        return BalancingInputs(centres, None, 1.0, centres.most_variance)
    typical = min((hand.TYPICAL_SD * centres.range) ** 2, centres.most_variance)
    if not part:
        return BalancingInputs(centres, None, 1.0, typical)
    about = LengthQuery(residual(centres.means), centres.longest, centres, "estimate", part)
    lengths = about.read(curator.several(about.asked)[0])
    spread = min(lengths.mean_square()[0], centres.most_variance)
    return BalancingInputs(centres, lengths, 1.0 - part, spread)


def release_explained(
    curator: Curator, problem: BalancingProblem, known: BalancingInputs
) -> BalancingInputs:
    """Release how much the columns explain of the outcome, as the norm of its slopes."""
    columns, n, moments = problem.basis.columns.size, curator.n, problem.moments
    if not columns or not curator.has("variance"):
        return known
    lines = replace(problem.basis, squares=(), pairs=(), steps=())
    means = moments.means[:, 1 : columns + 1]
    within = _products(curator, lines, columns)[0] - (moments.sizes[:, None] * means).T @ means
    values, vectors = np.linalg.eigh(within / n)
    kept = values > max(1e-3 * values[-1], 1e-9)
    turn, size = vectors[:, kept] / np.sqrt(values[kept]), int(kept.sum())
    if not size:
        return known
    radius, clip = 1.5 * math.sqrt(size), known.centres.longest
    if known.lengths is not None:
        noise = 2.0 * radius * curator.noise_sd("variance") / n
        clip = known.lengths.clip(noise).length
    row = outcome_slopes(lines, residual(known.centres.means), clip, means, turn)
    ball = Box(np.full(size, -radius), np.full(size, radius), radius=radius)
    norm = norm_of_sum(curator, "outcome and covariates", row, ball, share="variance")
    root, sd = max(float(norm), 0.0) * clip / n, math.sqrt(norm.variance) * clip / n
    guessed = known.lengths is None and not known.centres.two_valued
    if guessed or sd**2 > hand.WORTH_A_WORD * known.spread:
        return known
    by_chance = size * known.spread / n + sd**2
    explained = min(max(root**2 - by_chance, 0.0), 0.9 * known.spread)
    return replace(known, explained=explained, explained_sd=2.0 * max(root, sd) * sd)


@dataclass(frozen=True)
class ClippedDesign:
    """A design with the clip that suits it, and what error is expected of both.

    ``clips`` are (lowest, highest) residuals by arm, ``cut`` what they do, ``imbalance`` the
    variance of what the weights leave.
    """

    design: CappedWeights
    clips: FloatArray
    cut: ClippedMeans
    imbalance: float
    error: float

    @classmethod
    def of(
        cls, curator: Curator, design: CappedWeights, known: BalancingInputs, *, trial: bool
    ) -> ClippedDesign:
        """The cap with the shortest interval to expect."""
        centres, lengths = known.centres, known.lengths
        clips = np.array(centres.outcome_range) - centres.means[:, None]
        noise = curator.noise_sd("estimate", known.part) * design.largest
        cut = uncut(centres) if lengths is None else lengths.clip(2.0 * noise, centres)
        clips = np.clip(clips, -cut.length, cut.length)
        imbalance = 0.0 if trial else known.spread / hand.RIDGE * design.left
        sampling = known.spread * float(design.squares.sum()) - known.explained * design.gain
        error = (noise * float(np.diff(clips).max())) ** 2 + sampling + imbalance
        return cls(design, clips, cut, imbalance, error + float((cut.unknown**2).sum()))


def weighted_sum(curator: Curator, choice: ClippedDesign, known: BalancingInputs) -> Estimate:
    """Release the sum of weighted residuals together with its squares (claim 7)."""
    design, centres, part = choice.design, known.centres, known.part
    largest, middles = design.weights.caps / design.totals, choice.clips.mean(axis=1)
    length = float((largest * np.diff(choice.clips)[:, 0]).max())
    factors = np.array([1.0, -1.0]) * largest / length
    row = contribution(design.weights, residual(known.centres.means), choice.clips, factors)
    label = "weighted sum and squares"
    noisy = curator.sums(label, row, BoxWithSquares(1), share="estimate", part=part)
    levels, cut = centres.means + middles + choice.cut.lost, choice.cut
    value = levels[0] - levels[1] + length * float(noisy.value[0])
    parts = (
        ErrorPart("winsorisation bias", float((cut.unknown**2).sum())),
        ErrorPart("remaining imbalance of the covariates", choice.imbalance),
        ErrorPart("the arm means", float((centres.missed(cut.beyond) ** 2).sum()), noise=True),
    )
    sampling: SamplingVariance | Unavailable = Unavailable("variance=False was asked for")
    if curator.has("variance"):
        sampling = _sampling(choice, known, length, noisy)
    return Estimate(
        value=float(np.clip(value, -centres.range, centres.range)),
        sampling=sampling,
        laplace=() if noisy.gaussian else (noisy.scale * length,),
        gaussian=noisy.variance * length**2 if noisy.gaussian else 0.0,
        parts=tuple(part for part in parts if part.variance > 0.0),
        possible=(-centres.range, centres.range),
    )


def _sampling(
    choice: ClippedDesign, known: BalancingInputs, length: float, noisy: NoisyValue
) -> SamplingVariance:
    """Squared weights times squared residuals, less what balance takes out of them."""
    centres, scale, design = known.centres, length**2, choice.design
    middles = choice.clips.mean(axis=1)
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


def _said(problem: BalancingProblem, choice: ClippedDesign, trial: bool) -> dict[str, Any]:
    """What a reader should know of the weights, all of it public."""
    design, lines, moments = choice.design, problem.basis.columns.size, problem.moments
    even = moments.means @ problem.standard.T
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
    said: dict[str, Any] = {
        "details": details,
        "identification": "randomised" if trial else "adjusted",
    }
    if not trial and after > hand.APART:
        hardly = "Weak adjustment" if after > 0.5 * before else "Partial adjustment"
        said["warnings"] = f"{hardly}: a covariate still differs by {after:.2g} standard deviations"
        said["notes"] = (wording.said("one_step")["unbalanced"],)
    return said
