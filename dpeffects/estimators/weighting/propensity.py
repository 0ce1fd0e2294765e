"""The propensity model of inverse probability weighting: its price, its clip, and its error.

Noise and a penalty leave two errors in the weights of a released model. Both are known as far as
the information matrix of the model is: its diagonal follows from the released variances of the
covariates, and products of covariates are not released. Covariates that crowd in a corner of their
declared ranges (incomes) tell little about treatment at the same price. Use ranges that fit, or
transform them (``sqrt``, ``log``, ``cut``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from statistics import NormalDist
from typing import Any

import numpy as np

from dpeffects.arrays import FloatArray, IntArray, Interval
from dpeffects.design.features import logits, unit_rows
from dpeffects.estimands import ESTIMANDS
from dpeffects.estimators import constants as hand
from dpeffects.estimators.default import standardisation as _standard
from dpeffects.estimators.default.polynomial_terms import Bends
from dpeffects.estimators.row_functions import row
from dpeffects.estimators.weighting.inverse_weights import (
    PropensityFunction,
    least_strength,
    propensity_model,
)
from dpeffects.privacy import Block, BoxWithSquares, Curator, NoisyValue
from dpeffects.privacy.losses import sigmoid, unit_l1, unit_norm
from dpeffects.privacy.noise import LEAST_DELTA, gaussian_scale
from dpeffects.privacy.private_minimisation import Coefs
from dpeffects.privacy.units import recoded
from dpeffects.results.wording import said
from dpeffects.roots import root

_SAID = said("propensity")
LINEAR = "The interval does not allow for curves, products or confounders not adjusted for."
_NODES = np.array([NormalDist().inv_cdf((k + 0.5) / 400) for k in range(400)])


@dataclass(frozen=True)
class PropensityEstimate:
    """Known weights of a model, and their error.

    ``noise_sd`` is the standard deviation of the noise in each weight, ``level_sd`` that in the log
    odds of an average record. ``penalised`` is the part of each slope that the penalty took, and
    ``kept_slopes`` what is there of it after mild shrinkage was undone.
    ``spreads`` are the variances of the covariates, with an error of ``spread_sd``, and ``scores``
    typical propensities, as many as they are likely: those of normal log odds with the right mean.
    """

    weights: FloatArray
    offset: float
    scores: FloatArray
    noise_sd: FloatArray
    level_sd: float
    spreads: FloatArray
    spread_sd: FloatArray
    penalised: FloatArray
    kept_slopes: FloatArray
    details: dict[str, Any]
    means: FloatArray = field(default_factory=lambda: np.zeros(0))
    """Means of the covariates in [0, 1]."""

    @property
    def kept(self) -> float:
        """The part that a penalty left of the slopes, on average over columns."""
        return float(self.kept_slopes.mean())

    @property
    def kept_sd(self) -> float:
        """How far that may be off for those that matter: their information is not well known."""
        slope = self.kept_slopes * self.penalised
        by_spread = slope * np.minimum(self.spread_sd / self.spreads, 1.0)
        differ = float(np.mean(by_spread**2) + self.kept_slopes.var())
        matter = max(hand.MATTER * self.kept_slopes.size, 1.0)
        return math.hypot(hand.VARIANCE_SD * float(slope.mean()), math.sqrt(differ / matter))

    @property
    def noise_variance(self) -> float:
        """Variance of the log odds over the records that noise in the slopes makes."""
        return float(self.spreads @ self.noise_sd[1:] ** 2) / unit_norm(self.weights.size) ** 2

    def within(self, limits: Interval) -> PropensityFunction:
        """The model with its propensities clipped."""
        return PropensityFunction.within(self.weights, self.offset, limits)

    def limits(self, estimand: str, noise: float, least_depth: float = 2.0) -> Interval:
        """The clip with the least noise and bias, where log odds that are not noise reach to.

        ``noise`` is that in the estimate for a largest weight of 1, in ranges of the outcome.
        Clips are compared that many or more standard deviations from the mean of the log odds: by
        default at least 19 of 20 records are to be within.
        """
        own, share = ESTIMANDS[estimand], float(self.scores.mean())
        log_odds = np.log(self.scores / (1.0 - self.scores))
        variance = float(log_odds.var())
        sd = math.sqrt(max(variance - self.noise_variance, 0.25 * variance))
        wider = replace(self, scores=typical_scores(share, hand.CORRELATED * sd))
        best = (math.inf, (0.0, 1.0))
        for depth in np.arange(least_depth, 4.05, 0.1):
            low, high = sigmoid(log_odds.mean() + depth * sd * np.array([-1.0, 1.0]))
            low, least = max(low, hand.LEAST_CLIP * share), hand.LEAST_CLIP * (1.0 - share)
            high = min(high, 1.0 - least)
            limits = (float(low) if own.of_control else 0.0, float(high) if own.of_treated else 1.0)
            a, b, lost = wider.clipped(estimand, limits)
            error = (noise * max(a.max(), b.max())) ** 2 + (hand.TYPICAL_SD * lost) ** 2
            best = min(best, (error, limits))
        return best[1]

    def clipped(self, estimand: str, limits: Interval) -> tuple[FloatArray, FloatArray, float]:
        """Weights by clipped propensities over the size of the population, and what they lack."""
        own, e = ESTIMANDS[estimand], self.scores
        size = float(np.mean(own.population(e, 1.0 - e)))
        (a, b), (full_a, full_b) = own.weights(np.clip(e, *limits)), own.weights(e)
        lost = np.mean(e * np.abs(full_a - a) + (1.0 - e) * np.abs(full_b - b))
        return a / size, b / size, float(lost) / size

    def beyond(self, estimand: str, limits: Interval) -> tuple[float, float]:
        """Shares to expect of records beyond the limits, and of the weight that they lack."""
        share = float(np.mean((self.scores < limits[0]) | (self.scores > limits[1])))
        return share, self.clipped(estimand, limits)[2]


@row("covariates")
def within_clip(rows: Block, model: PropensityFunction) -> IntArray:
    """0 for a record whose propensity is clipped, 1 for all others."""
    e = sigmoid(logits(unit_rows(rows.covariates), model.weights, model.offset))
    low, high = model.low * (1.0 - 1e-9), 1.0 - (1.0 - model.high) * (1.0 - 1e-9)
    return np.where((e < low) | (e > high), 0, 1)


@row("covariates")
def log_odds(rows: Block, model: PropensityFunction, middle: float, width: float) -> FloatArray:
    """Log odds of treatment, about ``middle`` and over ``width``: within [-1/2, 1/2]."""
    at = logits(unit_rows(rows.covariates), model.weights, model.offset)
    return np.asarray((at - middle) / width)


def typical_scores(share: float, sd: float) -> FloatArray:
    """Propensities with this mean whose log odds are normal with this standard deviation.

    Log odds that vary more are those of arms that hardly overlap in any case.
    """
    spread = min(sd, 10.0) * _NODES
    return np.clip(sigmoid(level_of(spread, share) + spread), 1e-12, 1.0 - 1e-12)


def level_of(log_odds: FloatArray, share: float) -> float:
    """What to add to log odds, so that their chances have this mean."""
    middle, far = math.log(share / (1.0 - share)), float(np.abs(log_odds).max(initial=0.0)) + 1e-9

    def gap(x: float) -> float:
        return float(sigmoid(x + log_odds).mean()) - share

    return root(gap, middle - far, middle + far, xtol=1e-15)


@dataclass(frozen=True)
class Setting:
    """What `plan` goes by: records of model and estimate, columns, and what the call chose."""

    records: tuple[int, int]
    d: int
    clip: float | None
    delta: float = 0.0
    way: str = "objective"
    noise: str = "auto"
    penalty: float | None = None
    spread: float = hand.EVENLY
    confounded: float = hand.CONFOUNDED_MEAN


def plan(setting: Setting, prices: Mapping[float, tuple[float, float]]) -> tuple[float, float]:
    """Choose a price of the model and its strength by the error they lead to.

    ``prices`` gives, for each part that the model may have, epsilon of the model and of the
    estimate. Only public or released numbers enter. A model that cannot be learnt at a price is
    best left flat: noise in it moves the estimate, and its reach asks for more noise.
    """
    (m, n), d, spread = setting.records, setting.d, setting.spread
    norm, inside = unit_norm(d), setting.way == "objective"
    clip = setting.clip or 0.5 * hand.LEAST_CLIP
    information = hand.TREATED_VARIANCE * m * spread / norm**2
    best = (math.inf, 0.0, 0.0)
    for part, (model, estimate) in prices.items():
        sd = 2.0 * math.sqrt(2.0) * (unit_l1(d) if inside else math.sqrt(d)) / model
        if setting.delta > LEAST_DELTA and setting.noise != "laplace":
            sd = min(sd, gaussian_scale(2.0, (1.0 - hand.VOLUME) * model, setting.delta / 3.0, d))
        strength = least_strength(model) * np.geomspace(1.0, 3e4, 120)
        kept = information / (information + strength)
        undo = np.minimum(1.0 / kept, hand.UNDO)
        noise = undo * sd / (strength + (information if inside else 0.0))
        signal = undo * kept * norm / math.sqrt((d - 1) * spread)
        reach = 0.4 * (d - 1) * np.hypot(noise, signal) / norm
        low = np.maximum(clip, 1.0 / (1.0 + np.exp(np.minimum(reach, 50.0))))
        errors = (
            1.15 * math.sqrt(2.0) / (low * estimate * n),  # noise in the weighted sum
            hand.SLOPE * math.sqrt(hand.EVENLY * spread) / norm * noise,
            setting.confounded * np.maximum(0.0, 1.0 - undo * kept),
        )
        total = errors[0] ** 2 + errors[1] ** 2 + errors[2] ** 2
        at = int(np.argmin(total))
        best = min(best, (float(total[at]), part, float(strength[at])))
    return best[1], best[2]


@dataclass(frozen=True)
class WeightSpreads:
    """Means and variances of the covariates in [0, 1], intercept left out.

    ``spread_sd`` is what is not known of the variances, as standard deviations.
    """

    means: FloatArray
    spreads: FloatArray
    spread_sd: FloatArray

    @classmethod
    def of(cls, standard: _standard.Standardiser) -> WeightSpreads:
        """Those of standardised columns that are scaled to [0, 1]."""
        (low, high), added = standard.ends, len(standard.bends)
        inside = np.minimum(standard.variances / standard.sds**2, 1.0)
        unknown = standard.variance_sd / standard.variances
        spreads = np.append(inside, np.full(added, hand.BENT_VARIANCE)) * (high - low) ** -2.0
        return cls(-low / (high - low), spreads, np.append(unknown, np.zeros(added)) * spreads)


def standardised(
    curator: Curator, share: str, bends: Bends
) -> tuple[Curator, _standard.Standardiser]:
    """Release where columns lie and how far they spread; a curator of rows in these units."""
    (sums,) = curator.several(_standard.ask_means(curator, share))
    standard = _standard.release_standard(curator, sums, share, bends)
    names = (curator.names[0], *(f"column {j}" for j in range(standard.size)))
    values = (1, *(0,) * standard.size, *curator.values[-1:])
    return recoded(curator, _standard.unit_columns(standard), names, values), standard


def fitted_model(
    curator: Curator,
    setting: Setting,
    estimate: float,
    known: tuple[FloatArray, float],
    columns: WeightSpreads,
    share: str,
    arm: int | None = None,
) -> PropensityEstimate:
    """Release a model of treatment, or of an arm against all others, given the shares of the arms.

    The strength of its penalty is as given, or by the error to expect.
    """
    (shares, sd), n = known, curator.n
    own, public = float(shares[arm or 0]), curator.is_public("covariates")
    strength = setting.penalty and n * setting.penalty
    if not public:
        parts = 1 if arm is None else curator.arms
        price, delta = curator.epsilon(share) / parts, curator.delta(share) / parts
        if strength is None:
            setting = replace(setting, delta=delta, spread=float(columns.spreads.mean()))
            strength = plan(setting, {1.0: (price, estimate)})[1]
        elif setting.way == "objective":
            strength = max(strength, least_strength(price))
    offset, how = math.log(own / (1.0 - own)), (setting.way, setting.noise, arm)
    model = with_error(
        propensity_model(curator, strength, offset, share, *how), n, own, sd, columns
    )
    if not public:
        return model
    norm = unit_norm(model.weights.size)
    middle = model.offset + float(model.weights[0]) / norm
    width = max(float(np.abs(model.weights[1:]).sum()) / norm, 1e-9)
    row = log_odds(model.within((0.0, 1.0)), middle, width)
    mean, square = curator.sums("log odds", row, BoxWithSquares(1), share=share).value / n
    spread = width * math.sqrt(max(float(square - mean**2), 0.0))
    return replace(model, scores=typical_scores(own, spread), details={})


def kept_slopes(strength: float, d: int, n: int) -> float:
    """The part that a penalty leaves of slopes, for covariates as spread as is usual: public."""
    information = hand.TREATED_VARIANCE * n * hand.EVENLY / unit_norm(d) ** 2
    return information / (information + strength)


def with_error(
    weights: Coefs, n: int, share: float, share_sd: float, columns: WeightSpreads
) -> PropensityEstimate:
    """Undo mild shrinkage, and say what noise and the shrinkage that is left can do."""
    norm, spreads = unit_norm(weights.value.size), columns.spreads

    def scores(slopes: FloatArray) -> FloatArray:
        sd = hand.CORRELATED * math.sqrt(float(spreads @ slopes**2)) / norm
        return typical_scores(share, sd)

    e = scores(weights.value[1:])
    weight = e * (1.0 - e) / np.sum(e * (1.0 - e))
    information = n * float(np.mean(e * (1.0 - e))) * np.append(1.0, spreads) / norm**2
    # slopes shrink along themselves, where there is less information than in all directions
    along = float(weight @ _NODES**2 - (weight @ _NODES) ** 2)
    shrunk = 1.0 + weights.strength / (information * np.append(1.0, np.full(spreads.size, along)))
    undo = np.minimum(shrunk, hand.UNDO)
    by_noise = undo / (information + weights.strength) if weights.inside else undo
    value = undo * weights.value
    value[0] -= (value - weights.value)[1:] @ (columns.means - 0.5)  # slopes turn about the means
    noise, kept = by_noise * weights.noise_sd, undo / shrunk
    by_share = (1.0 - float(kept[0])) * share_sd / (share * (1.0 - share))
    return PropensityEstimate(
        value,
        math.log(share / (1.0 - share)),
        scores(value[1:]),
        noise,
        math.hypot(float(noise[0]) / norm, by_share),
        spreads,
        columns.spread_sd,
        1.0 - 1.0 / shrunk[1:],
        kept[1:],
        {"ridge penalty": weights.strength},
        columns.means,
    )


def clipped_share(n: int, beyond: NoisyValue, expected: float, lost: float) -> tuple[float, float]:
    """Share of records beyond the clip, released and expected, and the weight that they lack."""
    noise, prior = (beyond.sd / n) ** 2, (0.02 + expected / 2.0) ** 2
    share = (float(beyond) / n * prior + expected * noise) / (prior + noise)
    share = min(max(share, 0.0), 1.0)
    return share, share * (min(lost / expected, 1.0) if expected > 0.005 else 0.5)


def warnings_about(kept: float, clipped: float, lost: float = 1.0) -> str:
    """Warnings about a model that keeps so much, and of weights cut so often.

    Weights that lose next to nothing are not worth a word: so it is where all scores are alike.
    """
    found = []
    if kept < hand.HARDLY:
        found.append(_SAID["hardly"].format(100.0 * kept))
    if clipped > hand.WORTH_A_WORD and lost > hand.WORTH_A_WORD * clipped:
        found.append(_SAID["truncated"].format(100.0 * clipped))
    return "; ".join(found)


def reweighted(estimand: str, share: float) -> FloatArray:
    """How far (treated, control) records are from the population: an arm that is it, not at all.

    It is the part of a confounding that the weights of the arm remove, and by how much they change
    with the log odds.
    """
    own = ESTIMANDS[estimand]
    if own.of_treated and own.of_control:
        return np.array([1.0 - share, share])
    return np.array([not own.of_treated, not own.of_control], float)
