"""Overlap and balance of the arms, without a look at outcomes: what `dp_balance` releases.

1. Counts, sums and squares of the covariates by arm (share "balance").
2. A propensity model with noise in its objective (share "propensity").
3. A histogram of its scores by arm (share "overlap").
4. The sums again, weighted by inverse propensities (share "adjusted"), where it pays.

Standardised mean differences follow from the sums. Covariates are on the scale u in [-1, 1]; a
standardised difference is the same on every scale. It is
(mean_1 - mean_0) / sqrt((s_1^2 + s_0^2) / 2), s the standard deviations of the arms before
weighting, so that both columns of a table have one denominator.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from dpeffects.arrays import FloatArray, IntArray
from dpeffects.design.arms import ARMS
from dpeffects.design.features import logits, unit_rows
from dpeffects.estimands import AVERAGES, ESTIMANDS
from dpeffects.estimators._checks import check_clip, check_flag, check_whole
from dpeffects.estimators.spec import Facts, MethodSpec, Options
from dpeffects.estimators.strengths import default_strength, weight_noise
from dpeffects.estimators.weighting import Propensity, propensity_model, relative_weights
from dpeffects.privacy.charges import Noisy
from dpeffects.privacy.curator import Curator
from dpeffects.privacy.logistic import sigmoid, unit_norm
from dpeffects.privacy.moments import WithSquares
from dpeffects.privacy.noise import LEAST_DELTA, gaussian_scale
from dpeffects.privacy.rows import Block, Cells, reads
from dpeffects.privacy.sets import COUNT, Box, entries

_SHARES = {"balance": 0.35, "propensity": 0.25, "overlap": 0.1, "adjusted": 0.3}
_WORTH = 0.1
"""Weighting is shown by default where noise moves a difference by less than this."""
_USUAL_WEIGHT, _USUAL_SD = 0.4, 0.58
"""Mean weight over the largest, and spread of a covariate on [-1, 1], that a plan assumes."""
_SURE = 2.0
"""A spread below this many standard deviations of its noise is no denominator."""


@dataclass(frozen=True)
class BalanceOptions(Options):
    """``adjusted``: whether balance after weighting is released too, None to choose; ``clip``:
    propensities are kept within [clip, 1 - clip] in the weights; ``bins``: of the histogram.
    """

    adjusted: bool | None = None
    clip: float = 0.1
    bins: int = 20

    def __post_init__(self) -> None:
        check_flag("adjusted", self.adjusted, optional=True)
        check_clip(self.clip)
        check_whole("bins", self.bins, 2, 200)

    def resolve(self, facts: Facts) -> BalanceOptions:
        """Decide from public numbers whether weighting is worth its price."""
        if self.adjusted is not None:
            return self
        m, price = facts.width - 1, _SHARES["adjusted"]
        epsilon, delta = price * facts.budget.epsilon, price * facts.budget.delta
        sd = math.sqrt(2.0) * 2.0 * (1 + m) / epsilon
        if delta > LEAST_DELTA:
            sd = min(
                sd, gaussian_scale(math.sqrt(max(4 * m, 2 + 2 * m)), epsilon, delta, 2 + 2 * m)
            )
        noise = math.sqrt(2.0) * sd / (_USUAL_WEIGHT * facts.n / 2.0) / _USUAL_SD
        return replace(self, adjusted=noise < _WORTH)


def shares(level: str, options: BalanceOptions) -> dict[str, float]:
    """Split of the budget; what weighting would cost goes to the others without it."""
    return {k: v for k, v in _SHARES.items() if options.adjusted or k != "adjusted"}


def uses_delta(options: BalanceOptions, facts: Facts) -> dict[str, float | None]:
    """Which shares can use a delta, and in how many entries a record moves their releases."""
    m = max(facts.width - 1, 1)
    return {
        "balance": entries(WithSquares(m, count=0.5), cells=2),
        "propensity": None,
        "overlap": entries(COUNT, cells=2),
        "adjusted": entries(_weighted_box(m), cells=2),
    }


@reads("covariates")
def _centred(rows: Block) -> FloatArray:
    """Covariates in [-1/2, 1/2], without the intercept."""
    return rows.covariates[:, 1:] - 0.5


def arm_covariates(curator: Curator, share: str) -> Noisy:
    """Release counts by arm and, of each covariate, sums of u and of (u^2 - 1/2) / 2.

    u is a covariate in [-1, 1]. Half a square costs a quarter of u itself, and is needed less
    exactly. One row for each arm (treated, control): the count, m sums, m half squares.
    """
    within = WithSquares(curator.width - 1, count=0.5)
    sums = curator.sums("covariates by arm", _centred, within, ARMS, share=share)
    return replace(sums, value=2.0 * sums.value, scale=2.0 * sums.scale)


@dataclass(frozen=True)
class WeightedCovariates:
    """A weight over the largest of its arm, and covariates in [-1, 1] times the weight."""

    model: Propensity
    estimand: str
    reads: ClassVar[tuple[str, ...]] = ("covariates", "treated")

    def __call__(self, rows: Block) -> tuple[FloatArray, ...]:
        """Columns of some rows."""
        weights = relative_weights(
            self.model, self.estimand, rows.treated, unit_rows(rows.covariates)
        )
        return (weights, *(weights * (2.0 * x - 1.0) for x in rows.covariates.T[1:]))


def _weighted_box(m: int) -> Box:
    return Box([0.0] + [-1.0] * m, [1.0] * (m + 1), centre=0.0)


@dataclass(frozen=True)
class ScoreBin:
    """Arm of a record, and bin of its score by a released model: treated records first."""

    weights: FloatArray
    cuts: FloatArray
    reads: ClassVar[tuple[str, ...]] = ("treated", "covariates")

    def __call__(self, rows: Block) -> IntArray:
        """Cells of some rows."""
        score = sigmoid(logits(rows.covariates, self.weights[1:], self.weights[0]))
        first = np.where(rows.treated, 0, len(self.cuts) + 1)
        return first + np.searchsorted(self.cuts, score)


def fit(curator: Curator, options: BalanceOptions, estimand: str) -> dict[str, Any]:
    """Release the four parts; return what a `Balance` holds of them."""
    covariates = arm_covariates(curator, "balance")
    first = differences(covariates, None, curator.n)
    offset = _log_odds(first, curator.n)
    epsilon, delta = curator.epsilon("propensity"), curator.delta("propensity")
    strength = default_strength(curator.n, curator.width, epsilon, delta)
    model = propensity_model(curator, strength, offset, "propensity").value
    edges = np.linspace(0.0, 1.0, options.bins + 1)
    on_rows = np.concatenate([[offset - 0.5 * model[1:].sum() / unit_norm(model.size)], _on(model)])
    bins = Cells(ScoreBin(on_rows, edges[1:-1]), 2 * options.bins)
    counts = curator.sums("histogram of scores", None, COUNT, bins, share="overlap")
    found = first
    if options.adjusted:
        within = Propensity.within(model, offset, ESTIMANDS[estimand].clip_limits(options.clip))
        row, box = WeightedCovariates(within, estimand), _weighted_box(curator.width - 1)
        weighted = curator.sums("weighted covariates by arm", row, box, ARMS, share="adjusted")
        found = differences(covariates, weighted, curator.n)
    return {
        "smd": tuple(found.raw.tolist()),
        "noise_sd": tuple(found.raw_sd.tolist()),
        "smd_adjusted": tuple(found.adjusted.tolist()) if options.adjusted else (),
        "noise_sd_adjusted": tuple(found.adjusted_sd.tolist()) if options.adjusted else (),
        "edges": tuple(edges.tolist()),
        "counts": tuple(tuple(arm) for arm in counts.value.reshape(2, -1).tolist()),
        "count_sd": math.sqrt(counts.variance),
        "treated": found.treated,
        "model_noise": _model_noise(model, curator, found),
    }


def _on(model: FloatArray) -> FloatArray:
    """Weights on rows of norm at most 1, as weights on rows in [0, 1]."""
    return np.asarray(model / unit_norm(model.size))


def _log_odds(found: Differences, n: int) -> float:
    """Log odds of treatment, kept away from the ends by the noise in the count."""
    treated, sd = found.treated
    least = min(max(sd, 1.0) / n, 0.5)
    share = min(max(treated / n, least), 1.0 - least)
    return math.log(share / (1.0 - share))


def _model_noise(model: FloatArray, curator: Curator, found: Differences) -> float:
    """Expected share of noise in the slopes of the propensity model.

    It is 1 where noise alone gives slopes of that size in one of twenty cases.
    """
    n, d = curator.n, curator.width
    epsilon, delta = curator.epsilon("propensity"), curator.delta("propensity")
    spread = min(max(found.spread, 1e-4), 0.25)
    noise = weight_noise(n, d, epsilon, delta, spread) ** 2 * (d - 1)
    size = float(np.sum(model[1:] ** 2))
    tail = 1.0 + 1.64 * math.sqrt(5.0 / (d - 1))  # squares of Laplace noise vary by sqrt(5)
    return noise / size if size > tail * noise else 1.0


@dataclass(frozen=True)
class Differences:
    """Differences of the columns and the standard deviations of their noise; NaN is not usable.

    ``treated`` is the number of treated records and the noise in it, ``spread`` the mean variance
    of a column in [0, 1].
    """

    raw: FloatArray
    raw_sd: FloatArray
    adjusted: FloatArray
    adjusted_sd: FloatArray
    treated: tuple[float, float]
    spread: float


def differences(covariates: Noisy, weighted: Noisy | None, n: int) -> Differences:
    """Return what the releases say about balance; ``weighted`` may not have been asked for."""
    parts = [_Part(covariates, 3)] + ([_Part(weighted, 2)] if weighted else [])
    correction = covariates.variance

    def spread(values: Sequence[FloatArray]) -> FloatArray:
        return _moments(values[0], n, correction)[1]

    def raw(values: Sequence[FloatArray]) -> FloatArray:
        means, variance = _moments(values[0], n, correction)
        return (means[0] - means[1]) / np.sqrt(np.maximum(variance, 1e-12))

    def adjusted(values: Sequence[FloatArray]) -> FloatArray:
        sums = values[1]
        means = sums[:, 1:] / np.maximum(sums[:, :1], 1.0)
        variance = _moments(values[0], n, correction)[1]
        return (means[0] - means[1]) / np.sqrt(np.maximum(variance, 1e-12))

    found = [part.noisy.value for part in parts]
    variance = spread(found)
    usable = variance > _SURE * _noise_sd(spread, parts[:1])
    missing = np.full(variance.size, math.nan)
    count = float(_sizes(covariates.value, n)[0, 0]), math.sqrt(covariates.variance / 2.0)
    made = Differences(
        np.where(usable, raw(found), missing),
        np.where(usable, _noise_sd(raw, parts[:1]), missing),
        missing,
        missing,
        count,
        float(np.clip(variance, 0.0, 1.0).mean()) / 4.0,
    )
    if weighted is None:
        return made
    return replace(
        made,
        adjusted=np.where(usable, adjusted(found), missing),
        adjusted_sd=np.where(usable, _noise_sd(adjusted, parts), missing),
    )


@dataclass(frozen=True)
class _Part:
    """A release with a row for each arm, and how many kinds of numbers a row holds.

    The first column is a kind of its own; the rest divides evenly among the others, one number for
    each covariate.
    """

    noisy: Noisy
    kinds: int

    def moved(self) -> list[tuple[int, slice]]:
        """Entries that belong together: a covariate's result depends on one number of each."""
        width = (self.noisy.value.shape[1] - 1) // (self.kinds - 1)
        starts = [1 + k * width for k in range(self.kinds - 1)]
        places = [slice(0, 1), *(slice(start, start + width) for start in starts)]
        return [(arm, place) for arm in (0, 1) for place in places]


def _noise_sd(of: Callable[[Sequence[FloatArray]], FloatArray], parts: list[_Part]) -> FloatArray:
    """Standard deviation of a result's noise: each released number moved by its own, both ways."""
    found = [part.noisy.value for part in parts]
    total = np.zeros(of(found).size)
    for k, part in enumerate(parts):
        sd = math.sqrt(part.noisy.variance)
        for place in part.moved():
            ends = []
            for side in (sd, -sd):
                values = [value.copy() for value in found]
                values[k][place] += side
                ends.append(of(values))
            total += ((ends[0] - ends[1]) / 2.0) ** 2
    return np.sqrt(total)


def _sizes(values: FloatArray, n: int) -> FloatArray:
    """Records by arm from both noisy counts, which have a known sum."""
    treated = min(max((values[0, 0] + n - values[1, 0]) / 2.0, 1.0), n - 1.0)
    return np.array([[treated], [n - treated]])


def _moments(values: FloatArray, n: int, correction: float) -> tuple[FloatArray, FloatArray]:
    """Means by arm and the average variance; a squared noisy mean is too large by its noise."""
    m = (values.shape[1] - 1) // 2
    size = _sizes(values, n)
    means = np.clip(values[:, 1 : m + 1] / size, -1.0, 1.0)
    squares = 2.0 * values[:, m + 1 :] / size + 0.5
    return means, np.mean(squares - means**2 + correction / size**2, axis=0)


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
    needs_intercept=True,  # the other columns are centred around it
)
"""It estimates no effect, so it is not among the methods that `methods` lists."""
