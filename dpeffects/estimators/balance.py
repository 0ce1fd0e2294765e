"""Overlap and balance of the arms, without a look at outcomes: what `dp_balance` releases.

1. Counts and sums of the covariates by arm, then variances (share "balance").
2. A propensity model with noise in its objective (share "propensity").
3. A histogram of its scores by arm (share "overlap").
4. The sums again, weighted by inverse propensities (share "adjusted").

Steps 2 to 4 are left out where public numbers say that noise would drown them, and their shares go
to step 1. If the releases of step 1 say nothing, nothing further is released; that depends on
released values, so the guarantee is that of the whole budget all the same.

Standardised mean differences follow from the sums. Covariates are on the scale u in [-1, 1]; a
standardised difference is the same on every scale. It is
(mean_1 - mean_0) / sqrt((s_1^2 + s_0^2) / 2), s the standard deviations of the arms before
weighting, so that both columns of a table have one denominator. The variance of an indicator
follows from its mean; other columns have their squares released, and their variances are pulled
together as far as noise explains how they differ. Where noise does not let a small arm count as
much as the other in a variance, it counts less, down to its part of the records.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from dpeffects.arrays import BoolArray, FloatArray, IntArray, Interval
from dpeffects.design.arms import ARMS
from dpeffects.design.features import logits, unit_rows
from dpeffects.errors import OptionError
from dpeffects.estimands import AVERAGES, ESTIMANDS
from dpeffects.estimators._checks import check_clip, check_flag, check_whole
from dpeffects.estimators._moments import varying_columns
from dpeffects.estimators.row import row
from dpeffects.estimators.spec import Facts, MethodSpec, Options
from dpeffects.estimators.strengths import (
    TREATED_VARIANCE,
    default_strength,
    gradient_noise,
)
from dpeffects.estimators.weighting import Propensity, propensity_model, relative_weights
from dpeffects.inference.monotone import not_negative
from dpeffects.privacy.charges import Noisy
from dpeffects.privacy.curator import Curator
from dpeffects.privacy.logistic import sigmoid, unit_norm
from dpeffects.privacy.minimise import Weights
from dpeffects.privacy.moments import cube_noise_sd
from dpeffects.privacy.release import Split
from dpeffects.privacy.rows import Block, Cells
from dpeffects.privacy.sets import COUNT, Box, Cube, entries
from dpeffects.results.covariate_balance import FEW, HIGH, LOW, NO_SPREAD, ONE_VALUE, Balance
from dpeffects.results.tabled import Tabled

_SHARES = {"balance": 0.3, "propensity": 0.35, "overlap": 0.1, "adjusted": 0.25}
_SQUARES = 0.15, 0.4
"""Least and largest part of the share "balance" that variances get, where a column needs one."""
_KNOWN = 0.025
"""Noise in a variance, for covariates on [-1, 1], up to which more of the budget is spent on it.

It is also what decides whether a small arm counts as much as the other in the variance, or by its
records only."""
_UNLIKE = 0.6
"""How much variances differ between columns, against their mean: worth `_COLUMNS` of them."""
_COLUMNS = 4
_WORTH = 0.1
"""A propensity model and weighted differences are released by default where noise still moves
differences by less than this."""
_MOST = 0.5
"""Differences are refused where noise would move them by more than this."""
_LOGIT_VARIANCE = 1.0
"""Variance of true log odds of treatment: a model with more noise than that says nothing."""
_USUAL_WEIGHT, _USUAL_SD = 0.4, 0.5
"""Mean weight over the largest, and spread of a covariate on [-1, 1], that a forecast assumes."""
_SURE = 3.0
"""A spread or an arm below this many standard deviations of its noise is no denominator."""


@dataclass(frozen=True)
class BalanceOptions(Options):
    """``adjusted``: whether balance after weighting is released too, ``overlap``: whether a
    propensity model and the histogram of its scores are, None to choose; ``clip``: propensities are
    kept within [clip, 1 - clip] in the weights; ``bins``: of the histogram.
    """

    adjusted: bool | None = None
    overlap: bool | None = None
    clip: float = 0.1
    bins: int = 20

    def __post_init__(self) -> None:
        check_flag("adjusted", self.adjusted, optional=True)
        check_flag("overlap", self.overlap, optional=True)
        check_clip(self.clip)
        check_whole("bins", self.bins, 2, 200)
        if self.adjusted and self.overlap is False:
            raise OptionError("adjusted=True needs the propensity model: leave overlap=False out")

    def resolve(self, facts: Facts) -> BalanceOptions:
        """Decide from public numbers what is worth its price; refuse where nothing is."""
        if not _varying(facts):
            raise OptionError("there is nothing to compare: every covariate has one value")
        asked = self
        if asked.adjusted is None:
            trial = BalanceForecast.of(replace(asked, adjusted=True, overlap=True), facts)
            asked = replace(asked, adjusted=asked.overlap is not False and trial.weighted < _WORTH)
        if asked.overlap is None:
            trial = BalanceForecast.of(replace(asked, overlap=True), facts)
            worth = trial.model < _LOGIT_VARIANCE and trial.raw < _WORTH and trial.spread <= 1.0
            asked = replace(asked, overlap=asked.adjusted or worth)
        to_expect = BalanceForecast.of(asked, facts)
        if to_expect.raw > _MOST or to_expect.spread > 1.0:
            more = max(to_expect.raw / _MOST, to_expect.spread)
            raise OptionError(asked._refusal("differences", more, facts))
        if asked.adjusted and to_expect.weighted > _MOST:
            more = to_expect.weighted / _MOST
            raise OptionError(asked._refusal("weighted differences", more, facts))
        return asked

    def _refusal(self, what: str, more: float, facts: Facts) -> str:
        """Say what would be needed: noise goes down with n epsilon."""
        records, epsilon = math.ceil(facts.n * more), facts.budget.epsilon * more
        less = "adjusted=False, " if self.adjusted else "overlap=False, " if self.overlap else ""
        return (
            f"with n = {facts.n}, epsilon = {facts.budget.epsilon:g} and {_varying(facts)} "
            f"columns, standardised {what} would be nothing but noise; nothing was charged. About "
            f"{records} records or epsilon = {epsilon:.2g} would do; {less}fewer covariates or a "
            "delta help too"
        )


def _varying(facts: Facts) -> int:
    """Columns that are not constant by declaration."""
    return facts.columns if facts.values else facts.width - 1


@dataclass(frozen=True)
class BalanceForecast:
    """Noise to expect by public numbers.

    In a difference; in a weighted one; in the log odds, as a variance; and in the variance of a
    column that is no indicator, against the largest that can be worked with.
    """

    raw: float
    weighted: float
    model: float
    spread: float

    @classmethod
    def of(cls, options: BalanceOptions, facts: Facts) -> BalanceForecast:
        """Go through the steps with usual numbers in the place of released ones."""
        m, n = _varying(facts), facts.n
        split = Split.of(facts.budget, shares(facts.level, options), uses_delta(options, facts))

        def noise(share: str, columns: int, width: float) -> float:
            if share in split.mu:
                return width * math.sqrt(columns) / split.mu[share]
            return cube_noise_sd(columns, width, split.shares[share].epsilon)

        def difference(share: str) -> float:
            return math.sqrt(8.0) * noise(share, m + 1, 2.0) / (n * _USUAL_SD)

        power, squares = 0.5 if "balance" in split.mu else 1.0, m - facts.values[:-1].count(2)
        raw, by_sums, by_model, spread = difference("balance"), math.inf, math.inf, 0.0
        if squares:
            whole = noise("balance", squares, 1.0)
            part = _squares_part(whole, n, power)
            raw /= (1.0 - part) ** power
            each = math.hypot(whole / part**power, noise("balance", m + 1, 1.0)) / n
            pull = _Pull.of(np.full(squares, _USUAL_SD**2), np.full(squares, each))
            spread = _SURE * float(pull.unknown[0]) / _USUAL_SD**2
        if "propensity" in split.shares:
            gradient = gradient_noise(facts.width, *split.shares["propensity"])
            sd = _USUAL_SD / (2.0 * unit_norm(facts.width))
            by_model = gradient / (TREATED_VARIANCE * n * sd)
        if "adjusted" in split.shares:
            by_sums = difference("adjusted") / _USUAL_WEIGHT
        return cls(raw, math.hypot(by_sums, by_model), m * by_model**2, spread)


def shares(level: str, options: BalanceOptions) -> dict[str, float]:
    """Split of the budget; what is left out leaves its share to the others."""
    out = set() if options.adjusted else {"adjusted"}
    if options.overlap is False:
        out |= {"propensity", "overlap"}
    return {name: part for name, part in _SHARES.items() if name not in out}


def uses_delta(options: BalanceOptions, facts: Facts) -> dict[str, float | None]:
    """Which shares can use a delta, and in how many entries a record moves their releases."""
    cube = entries(_cube(max(_varying(facts), 1) + 1))
    return {
        "balance": cube,
        "propensity": None,
        "overlap": entries(COUNT, cells=2),
        "adjusted": cube,
    }


def _squares_part(noise: float, n: int, power: float) -> float:
    """Part of a share for variances; ``noise`` is that of a sum of squares at the whole share.

    It grows by 1 / part, or, if it is Gaussian, by the root of that: ``power`` is 1 or 1/2.
    """
    return float(np.clip((noise / (n * _KNOWN)) ** (1.0 / power), *_SQUARES))


@dataclass(frozen=True, eq=False)
class _Pull:
    """How variances of columns are pulled to the mean of all, as far as noise explains.

    ``unknown`` is what is not known of them afterwards, as standard deviations.
    """

    mean: float
    kept: FloatArray
    unknown: FloatArray

    @classmethod
    def of(cls, seen: FloatArray, noise: FloatArray) -> _Pull:
        """For variances with noise of these standard deviations."""
        k, mean = seen.size, max(float(seen.mean()), 0.0)
        between = max(float(np.sum((seen - mean) ** 2 - noise**2)), 0.0)
        between = (between + _COLUMNS * (_UNLIKE * mean) ** 2) / (k + _COLUMNS) + 1e-12
        kept = between / (between + noise**2)
        of_mean = float(np.mean(noise**2)) / k
        return cls(mean, kept, np.sqrt(kept * noise**2 + (1.0 - kept) ** 2 * of_mean))


def _cube(columns: int) -> Cube:
    return Cube(-np.ones(columns), np.ones(columns))


def _by_arm(curator: Curator, share: str, columns: int, least: float) -> Box:
    """The set of a weight from ``least`` to 1, and of columns in [-1, 1] beside it.

    Gaussian noise goes by the length of a move, to which the weight adds little.
    """
    if not curator.delta(share):
        return _cube(columns + 1)
    low = np.append(least, np.full(columns, -1.0))
    return Box(low, np.ones(columns + 1), centre=0.0)


@row("covariates")
def columns_by_arm(rows: Block, columns: IntArray) -> tuple[FloatArray, ...]:
    """1, and some covariates in [-1, 1]."""
    return np.ones(rows.size), 2.0 * rows.covariates[:, columns] - 1.0


@row("treated", "covariates")
def squares_of_columns(rows: Block, columns: IntArray, factors: tuple[float, float]) -> FloatArray:
    """Squares of covariates in [-1, 1], times factors for treated and control records."""
    u: FloatArray = 2.0 * rows.covariates[:, columns] - 1.0
    return u * u * np.where(rows.treated, *factors)[:, None]


@row("covariates", "treated")
def weighted_columns(
    rows: Block, model: Propensity, estimand: str, columns: IntArray
) -> tuple[FloatArray, ...]:
    """A weight over the largest of its arm, and covariates in [-1, 1] times the weight."""
    weights = relative_weights(model, estimand, rows.treated, unit_rows(rows.covariates))
    return weights, weights[:, None] * (2.0 * rows.covariates[:, columns] - 1.0)


@row("treated", "covariates")
def score_bin(rows: Block, weights: FloatArray, cuts: FloatArray) -> IntArray:
    """Arm of a record, and bin of its score by a released model: treated records first."""
    score = sigmoid(logits(rows.covariates, weights[1:], weights[0]))
    first = np.where(rows.treated, 0, len(cuts) + 1)
    return first + np.searchsorted(cuts, score)


def fit(curator: Curator, options: BalanceOptions, estimand: str) -> Tabled:
    """Release what is worth it; return what a `Balance` holds of it."""
    arms = release_arms(curator)
    smd, sd = arms.differences()
    released: dict[str, Any] = {
        "smd": arms.of_all(smd),
        "noise_sd": arms.of_all(sd),
        "reasons": arms.reasons,
        "treated": (arms.treated, arms.treated_sd),
    }
    if not (options.overlap and arms.usable.any()):
        return Tabled(Balance, released)
    offset = arms.log_odds
    price = curator.epsilon("propensity"), curator.delta("propensity")
    strength = default_strength(curator.n, curator.width, *price)
    weights = propensity_model(curator, strength, offset, "propensity")
    scores = release_scores(curator, weights.value, offset, options.bins)
    noise = ModelNoise.of(weights, arms, scores)
    released |= scores.released | {"model_noise": noise.share}
    if options.adjusted:
        limits = ESTIMANDS[estimand].clip_limits(options.clip)
        model = Propensity.within(weights.value, offset, limits)
        weighted = curator.sums(
            "weighted covariates by arm",
            weighted_columns(model, estimand, arms.columns),
            _by_arm(curator, "adjusted", arms.columns.size, 0.0),
            ARMS,
            share="adjusted",
        )
        smd, sd = arms.differences(weighted)
        sd = np.hypot(sd, scores.inside(limits) * noise.in_differences)
        known = weighted.value[:, 0].min() > _SURE * weighted.sd
        released["smd_adjusted"] = arms.of_all(smd, known)
        released["noise_sd_adjusted"] = arms.of_all(sd, known)
    return Tabled(Balance, released)


@dataclass(frozen=True, eq=False)
class Arms:
    """What is released of two arms: records, and sums and mean squares of columns in [-1, 1].

    ``sums`` has a row for treated and one for control records, ``weights`` are those of both arms
    in the mean square and the variance. The square of an indicator is known: it is 1. ``columns``
    are places among those of a record, the first of ``width``, the intercept, left out.
    """

    n: int
    width: int
    columns: IntArray
    treated: float
    treated_sd: float
    sums: FloatArray
    sums_sd: float
    weights: tuple[float, float]
    squares: FloatArray
    squares_sd: FloatArray
    pull: _Pull | None = None

    @property
    def both_there(self) -> bool:
        """Whether both arms have more records than noise could make."""
        return min(self.treated, self.n - self.treated) > _SURE * self.treated_sd

    @property
    def usable(self) -> BoolArray:
        """Whether columns vary by more than noise."""
        unknown = self.variance_noise
        if self.pull is not None:
            unknown[self.squares_sd > 0.0] = self.pull.unknown
        return np.asarray((self.variance > _SURE * unknown) & self.both_there)

    @property
    def log_odds(self) -> float:
        """Log odds of treatment, kept away from the ends by the noise in the count."""
        least = min(max(self.treated_sd, 1.0) / self.n, 0.5)
        share = min(max(self.treated / self.n, least), 1.0 - least)
        return math.log(share / (1.0 - share))

    @property
    def variance(self) -> FloatArray:
        """Mean of the variances in both arms."""
        return self._variance(self._inputs[0])

    @property
    def variance_noise(self) -> FloatArray:
        """Standard deviation of the noise in them."""
        return _noise_sd(self._variance, *self._inputs)

    def differences(self, weighted: Noisy | None = None) -> tuple[FloatArray, FloatArray]:
        """Standardised differences, and the standard deviation of their noise.

        With ``weighted`` sums by arm they are those of weighted records, but for the noise in the
        weights.
        """
        values, sds = self._inputs
        if weighted is not None:
            (one, zero), m = weighted.value, self.columns.size
            more = np.stack([np.full(m, one[0]), np.full(m, zero[0]), one[1:], zero[1:]])
            values = np.vstack([values, more])
            sds = np.vstack([sds, np.full((4, m), weighted.sd)])
        return self._difference(values), _noise_sd(self._difference, values, sds)

    def of_all(self, numbers: FloatArray, known: bool = True) -> tuple[float, ...]:
        """Numbers of the columns among those of all columns; NaN where they are not usable."""
        whole = np.full(self.width - 1, math.nan)
        whole[self.columns - 1] = np.where(self.usable & known, numbers, math.nan)
        return tuple(whole.tolist())

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why a column has no difference; empty where it has."""
        texts = [ONE_VALUE] * (self.width - 1)
        for column, usable in zip(self.columns, self.usable, strict=True):
            texts[column - 1] = "" if usable else NO_SPREAD if self.both_there else FEW
        return tuple(texts)

    @property
    def _inputs(self) -> tuple[FloatArray, FloatArray]:
        """Released numbers, one row a kind and one column a covariate, and their noise."""
        m = self.columns.size
        values = np.stack([np.full(m, self.treated), *self.sums, self.squares])
        sums = np.full(m, self.sums_sd)
        return values, np.stack([np.full(m, self.treated_sd), sums, sums, self.squares_sd])

    def _means(self, values: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Means and sizes by arm."""
        treated = np.clip(values[0], 1.0, self.n - 1.0)
        sizes = np.stack([treated, self.n - treated])
        return np.clip(values[1:3] / sizes, -1.0, 1.0), sizes

    def _variance(self, values: FloatArray) -> FloatArray:
        means, sizes = self._means(values)
        # the square of a noisy mean is too large by the variance of its noise
        squared = means**2 - (self.sums_sd / sizes) ** 2
        variance = values[3] - self.weights[0] * squared[0] - self.weights[1] * squared[1]
        if self.pull is not None:
            mean, own = self.pull.mean, self.squares_sd > 0.0
            variance[own] = mean + self.pull.kept * (variance[own] - mean)
        return np.asarray(variance)

    def _difference(self, values: FloatArray) -> FloatArray:
        means, _ = self._means(values)
        if len(values) > 4:
            means = values[6:8] / np.maximum(values[4:6], 1.0)
        return np.asarray((means[0] - means[1]) / np.sqrt(np.maximum(self._variance(values), 1e-9)))


def release_arms(curator: Curator, share: str = "balance") -> Arms:
    """Release counts and sums by arm, and mean squares of columns that are not indicators."""
    columns, n = varying_columns(curator), curator.n
    columns = columns[columns > 0]  # the first is the intercept
    m, other = columns.size, np.array(curator.values)[columns] != 2
    power, part = 0.5 if curator.delta(share) else 1.0, Fraction()
    if other.any():
        noise = curator.noise_sd(share) * math.sqrt(other.sum())
        if power == 1.0:
            noise = cube_noise_sd(int(other.sum()), 1.0, curator.epsilon(share))
        part = Fraction(_squares_part(noise, n, power))
    sums = curator.sums(
        "covariates by arm",
        columns_by_arm(columns),
        _by_arm(curator, share, m, 1.0),
        ARMS,
        share=share,
        part=1 - part,
    )
    one, zero = sums.value
    arms = Arms(
        n=n,
        width=curator.width,
        columns=columns,
        treated=min(max(float(one[0] + n - zero[0]) / 2.0, 0.0), float(n)),
        treated_sd=sums.sd / math.sqrt(2.0),
        sums=np.stack([one[1:], zero[1:]]),
        sums_sd=sums.sd,
        weights=(0.5, 0.5),
        squares=np.ones(m),
        squares_sd=np.zeros(m),
    )
    if not (other.any() and arms.both_there):
        return arms
    sizes = np.array([arms.treated, n - arms.treated])
    few, each = float(sizes.min()), math.hypot(noise / float(part) ** power, sums.sd)
    least = min(max(_KNOWN * few / each, few / n), 0.5)
    weights = np.where(sizes == few, least, 1.0 - least)
    most = float(np.max(weights / sizes))
    first, second = (weights / sizes / most).tolist()
    squares = curator.sums(
        "squares of covariates",
        squares_of_columns(columns[other], (first, second)),
        Cube(np.zeros(other.sum()), np.ones(other.sum())),
        share=share,
        part=part,
    )
    arms.squares[other], arms.squares_sd[other] = most * squares.value, most * squares.sd
    arms = replace(arms, weights=tuple(weights.tolist()))
    return replace(arms, pull=_Pull.of(arms.variance[other], arms.variance_noise[other]))


def _noise_sd(
    of: Callable[[FloatArray], FloatArray], values: FloatArray, sds: FloatArray
) -> FloatArray:
    """Standard deviation of a result's noise: each released number moved by its own, both ways."""
    total = np.zeros(values.shape[1])
    for k, sd in enumerate(sds):
        move = np.zeros(values.shape)
        move[k] = sd
        total += ((of(values + move) - of(values - move)) / 2.0) ** 2
    return np.sqrt(total)


@dataclass(frozen=True, eq=False)
class Scores:
    """The histogram of released scores: counts of both arms by bin, as released."""

    n: int
    edges: FloatArray
    counts: FloatArray
    count_sd: float

    @property
    def shown(self) -> FloatArray:
        """The closest counts that are not negative and add up to n."""
        return not_negative(self.counts.reshape(-1), self.n).reshape(2, -1)

    @property
    def information(self) -> float:
        """Mean of e(1 - e) over the records."""
        return max(self._mean(self._middles * (1.0 - self._middles)), 0.02)

    def inside(self, limits: Interval) -> float:
        """Share of records whose scores are not clipped at limits."""
        return self._mean((self._middles > limits[0]) & (self._middles < limits[1]))

    @property
    def _middles(self) -> FloatArray:
        return np.asarray(self.edges[:-1] + self.edges[1:]) / 2.0

    def _mean(self, values: Any) -> float:
        return float(self.shown.sum(axis=0) @ values) / self.n

    @property
    def released(self) -> dict[str, Any]:
        """Fields of a `Balance`."""
        far = (self.edges[1:] <= LOW + 1e-9) | (self.edges[:-1] >= HIGH - 1e-9)
        outside = min(max(float(self.counts[:, far].sum()) / self.n, 0.0), 1.0)
        return {
            "edges": tuple(self.edges.tolist()),
            "counts": tuple(tuple(arm) for arm in self.shown.tolist()),
            "count_sd": self.count_sd,
            "scores_outside": (outside, self.count_sd * math.sqrt(2.0 * far.sum()) / self.n),
        }


def release_scores(curator: Curator, model: FloatArray, offset: float, bins: int) -> Scores:
    """Release the histogram of the scores of a released model, on bins of one width."""
    edges = np.linspace(0.0, 1.0, bins + 1)
    on_rows = model / unit_norm(model.size)  # weights on rows in [0, 1]
    on_rows = np.concatenate([[offset - 0.5 * on_rows[1:].sum()], on_rows])
    cells = Cells(score_bin(on_rows, edges[1:-1]), 2 * bins)
    counts = curator.sums("histogram of scores", None, COUNT, cells, share="overlap")
    return Scores(curator.n, edges, counts.value.reshape(2, -1), counts.sd)


@dataclass(frozen=True, eq=False)
class ModelNoise:
    """What noise in a propensity model does.

    Noise b in the gradient moves the weights by (n v C + strength)^-1 b, with C the covariance of
    the covariates and v the mean of e(1 - e), and a weighted difference of the covariates by C
    times that. Where the penalty is small, this is b / (n v), however columns are correlated.
    Records whose scores are clipped have no part in it.

    ``in_differences`` are standard deviations in standardised differences, ``share`` is the
    expected share of noise in the log odds, 1 where noise alone gives log odds of that size in one
    of twenty cases.
    """

    in_differences: FloatArray
    share: float

    @classmethod
    def of(cls, weights: Weights, arms: Arms, scores: Scores) -> ModelNoise:
        """From the noise in the objective, and released variances and scores."""
        squared = unit_norm(weights.value.size) ** 2
        variance = np.clip(arms.variance, 1e-3, 1.0) / (4.0 * squared)
        information = arms.n * scores.information * variance
        noise = weights.noise_sd * np.sqrt(variance) / (information + weights.strength)
        m, total = noise.size, float(np.sum(noise**2))
        size = float(np.sum(variance * weights.value[arms.columns] ** 2))
        tail = 1.0 + 1.64 * math.sqrt(5.0 / m)  # squares of Laplace noise vary by sqrt(5)
        return cls(noise, total / size if size > tail * total else 1.0)


BALANCE = MethodSpec(
    name="dp_balance",
    title="overlap and balance",
    about="standardised differences of the covariates, and a histogram of propensities, by arm",
    estimands=AVERAGES,
    levels=("sample",),
    options=BalanceOptions,
    shares=shares,
    uses_delta=uses_delta,
    fit=fit,
    citation="",
    uses_outcome=False,
    may_stop=True,
    needs_intercept=True,  # the other columns are centred around it
)
"""It estimates no effect, so it is not among the methods that `methods` lists."""
