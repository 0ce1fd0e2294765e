"""Effects from any pair of scikit-learn models, in one block of records.

`BlockLearner` puts an outcome and a propensity model together to an average effect ("aipw", "ipw",
"regression"), or to effects at given rows of covariates ("dr_learner", "r_learner"). It is what a
method hands to the curator, which calls it with the rows of a block; it keeps nothing from one call
to the next.

Two small models with scikit-learn's interface, for use without scikit-learn.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from dpeffects.arrays import BoolArray, FloatArray
from dpeffects.errors import EstimationError, OptionError
from dpeffects.estimands import ESTIMANDS
from dpeffects.estimators.option_checks import check_choice
from dpeffects.privacy.losses import sigmoid
from dpeffects.replication.unproved.sklearn_models import ModelTemplate, Predict

_PENALTY = 0.01
"""Ridge penalty for each standardised column, against a sum over records. It is light because these
models are fitted in small blocks whose answers are averaged: variance goes, bias stays. In blocks
of 25 records with 11 columns 0.1 left a quarter of the confounding and 0.01 a tenth."""
_INTERCEPT = 10.0
"""Size of the constant column of the logistic model: its weight is hardly penalised."""
_FLAT = 1e-9
_STEPS = 50
_LEAP = 4.0
"""Newton's steps are cut so that no logit moves further."""


class _Standardised:
    """Columns scaled to mean 0 and variance 1; constant columns are dropped."""

    built_in = True

    def _learn(self, rows: FloatArray, weight: FloatArray) -> FloatArray:
        centre = weight @ rows / weight.sum()
        spread = np.sqrt(weight @ (rows - centre) ** 2 / weight.sum())
        self._kept = spread > _FLAT * (1.0 + np.abs(centre))
        self._centre, self._spread = centre[self._kept], spread[self._kept]
        return np.asarray((rows[:, self._kept] - self._centre) / self._spread)

    def _keep(self, constant: float, slopes: FloatArray) -> None:
        """Keep a line in the standardised columns as one in the columns as they are."""
        self._slopes = np.zeros(len(self._kept))
        self._slopes[self._kept] = slopes / self._spread
        self._constant = constant - float(self._centre @ (slopes / self._spread))

    def _line(self, rows: FloatArray) -> FloatArray:
        return self._constant + rows @ self._slopes

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class RidgeRegression(_Standardised):
    """Least squares with a light ridge penalty on standardised columns, none on the constant."""

    def fit(self, rows: FloatArray, target: FloatArray, sample_weight: object = None) -> Self:
        """Fit by the normal equations; weights count relative to their mean."""
        weight = np.ones(len(target)) if sample_weight is None else np.asarray(sample_weight)
        weight = weight / weight.mean()
        columns = self._learn(rows, weight)
        mean = float(weight @ target / weight.sum())
        width = columns.shape[1]
        weighted = (columns * weight[:, None]).T
        gram = weighted @ columns + _PENALTY * width * np.eye(width)
        self._keep(mean, np.linalg.solve(gram, weighted @ (target - mean)))
        return self

    def predict(self, rows: FloatArray) -> FloatArray:
        """Fitted means."""
        return self._line(rows)


class RidgeLogistic(_Standardised):
    """Logistic regression with a light ridge penalty on standardised columns."""

    classes_ = np.array([0, 1])

    def fit(self, rows: FloatArray, target: FloatArray) -> Self:
        """Fit 0/1 targets by Newton steps."""
        columns = self._learn(rows, np.ones(len(target)))
        penalty = _PENALTY * max(columns.shape[1], 1) / len(target)
        rows = np.column_stack([np.full(len(columns), _INTERCEPT), columns])
        one, weights = target == 1, np.zeros(rows.shape[1])
        for _ in range(_STEPS):
            chance = sigmoid(rows @ weights)
            gradient = (chance - one) @ rows / len(rows) + penalty * weights
            if np.linalg.norm(gradient) <= _FLAT:
                break
            bend = (rows * (chance * (1.0 - chance) / len(rows))[:, None]).T @ rows
            step = np.linalg.solve(bend + penalty * np.eye(len(bend)), gradient)
            weights = weights - step * min(1.0, _LEAP / np.abs(rows @ step).max())
        self._keep(_INTERCEPT * float(weights[0]), weights[1:])
        return self

    def predict_proba(self, rows: FloatArray) -> FloatArray:
        """Chances of 0 and of 1, a column each."""
        one = sigmoid(self._line(rows))
        return np.column_stack([1.0 - one, one])


ESTIMATOR_NAMES = ("aipw", "ipw", "regression")
AT_POINTS = {"dr_learner": False, "r_learner": True}
"""Learners of effects at points, and whether they weight by residuals of the treatment."""
_LEAST_IN_ARM = 2
"""Records of an arm that a half must have to learn from."""


def check_at_points(options: Any, method: str) -> None:
    """Check what learners of effects at points have: what is released, learner and second stage."""
    require_points(method, options.release)
    check_choice("learner", options.learner, tuple(AT_POINTS))
    if options.second_stage is not None:
        wrapped = ModelTemplate.regressor("second_stage", options.second_stage)
        object.__setattr__(options, "second_stage", wrapped)


def require_points(method: str, release: str) -> None:
    """Refuse releases other than points."""
    if release != "points":
        raise OptionError(f'method="{method}" is for release="points"')


def models_of(options: Any) -> tuple[ModelTemplate, ModelTemplate]:
    """Return the outcome and propensity models of options, the light ridge ones by default."""
    return (
        options.outcome or ModelTemplate(RidgeRegression()),
        options.propensity or ModelTemplate(RidgeLogistic()),
    )


@dataclass(frozen=True)
class Nuisances:
    """For each record: propensity, and mean outcomes if treated and if not."""

    propensity: FloatArray
    treated: FloatArray
    control: FloatArray

    def terms(self, estimand: str, treated: BoolArray, outcome: FloatArray) -> FloatArray:
        """What each record adds to the average effect, doubly robust with normalised weights.

        The effect is the mean; terms less the effect (of the part of the records that it is the
        average over) are its influence values.
        """
        part = weights_of(estimand, treated)
        a, b = ESTIMANDS[estimand].weights(self.propensity)
        a, b = a * treated, b * ~treated
        return np.asarray(
            part * (self.treated - self.control)
            + a / a.mean() * (outcome - self.treated)
            - b / b.mean() * (outcome - self.control)
        )


def weights_of(estimand: str, treated: BoolArray) -> FloatArray:
    """Weights, of mean 1, of the records that an effect is the average over."""
    kept = ESTIMANDS[estimand].population(1.0 * treated, 1.0 - treated)
    return np.asarray(kept / kept.mean())


@dataclass(frozen=True)
class BlockLearner:
    """Effects in a block: the average, or with ``queries`` (encoded rows) the effects at those.

    - "aipw": outcome models by arm, and residuals weighted by inverse propensities. "ipw": weighted
      means of the arms. "regression": outcome models by arm only.
    - "dr_learner": ``final``, by default a copy of ``outcome``, is fitted to the terms of "aipw".
      "r_learner": to residuals of the outcome over those of the treatment, weighted by the squares
      of the latter; where ``final`` takes no weights, "dr_learner" is used.

    With ``crossfit`` the models see one half of the block and predict in the other; halves go by
    position. Where a half lacks records of an arm, all records are used for both. Propensities are
    kept within [clip, 1 - clip]; predicted outcomes are left as they are, because clipping them
    biases every block the same way, while what they vary by is averaged over blocks.
    """

    outcome: ModelTemplate
    propensity: ModelTemplate
    estimator: str = "aipw"
    estimand: str = "ATE"
    clip: float = 0.05
    crossfit: bool = True
    queries: FloatArray | None = None
    final: ModelTemplate | None = None

    @property
    def flexible(self) -> bool:
        """True unless both models are those of this package."""
        return not (self.outcome.built_in and self.propensity.built_in)

    @property
    def size(self) -> int:
        """How many numbers a block answers with."""
        return 1 if self.queries is None else len(self.queries)

    def __call__(self, rows: FloatArray, treated: BoolArray, outcome: FloatArray) -> FloatArray:
        """Return the effects; raises where the block has one arm only."""
        if treated.all() or not treated.any():
            raise EstimationError("a block needs both arms")
        if self.queries is not None:
            return self._at_points(self.queries, rows, treated, outcome)
        if self.estimator == "regression":
            m1, m0 = (self._arm(rows, outcome, arm)(rows) for arm in (treated, ~treated))
            return np.array([np.mean(weights_of(self.estimand, treated) * (m1 - m0))])
        found = self.nuisances(rows, treated, outcome)
        return np.array([found.terms(self.estimand, treated, outcome).mean()])

    def nuisances(self, rows: FloatArray, treated: BoolArray, outcome: FloatArray) -> Nuisances:
        """Propensities and mean outcomes; those of "ipw" are the weighted means of the arms."""
        e = self._propensities(rows, treated)
        if self.estimator == "ipw":
            pairs = zip(ESTIMANDS[self.estimand].weights(e), (treated, ~treated), strict=True)
            means = [np.average(outcome, weights=weight * arm) for weight, arm in pairs]
            return Nuisances(e, *(np.full(len(e), mean) for mean in means))
        return Nuisances(
            e, *(self._outcomes(rows, treated, outcome, arm) for arm in (treated, ~treated))
        )

    def _propensities(self, rows: FloatArray, treated: BoolArray) -> FloatArray:
        target = treated.astype(np.int64)
        found = self._across(rows, treated, lambda i: self.propensity.fitted(rows[i], target[i]))
        return np.clip(found, *ESTIMANDS[self.estimand].clip_limits(self.clip))

    def _outcomes(
        self, rows: FloatArray, treated: BoolArray, outcome: FloatArray, used: BoolArray
    ) -> FloatArray:
        """Mean outcomes by models of the records in ``used``."""
        return self._across(rows, treated, lambda i: self._arm(rows, outcome, i & used))

    def _arm(self, rows: FloatArray, outcome: FloatArray, used: BoolArray) -> Predict:
        return self.outcome.fitted(rows[used], outcome[used])

    def _across(
        self, rows: FloatArray, treated: BoolArray, fit: Callable[[BoolArray], Predict]
    ) -> FloatArray:
        """Predictions for all records, with ``crossfit`` by models that did not see them."""
        found = np.empty(len(rows))
        for learn, predict in _folds(treated, self.crossfit):
            found[predict] = fit(learn)(rows[predict])
        return found

    def _at_points(
        self, queries: FloatArray, rows: FloatArray, treated: BoolArray, outcome: FloatArray
    ) -> FloatArray:
        """Fit the last stage to pseudo-outcomes and predict at the queries."""
        final = self.final or (
            ModelTemplate(RidgeRegression()) if self.outcome.classifies else self.outcome
        )
        if AT_POINTS[self.estimator] and final.takes_weight:
            everybody = np.ones(len(treated), dtype=np.bool_)
            gap = treated - self._propensities(rows, treated)
            rest = outcome - self._outcomes(rows, treated, outcome, everybody)
            return final.fitted(rows, rest / gap, gap**2)(queries)
        terms = self.nuisances(rows, treated, outcome).terms(self.estimand, treated, outcome)
        return final.fitted(rows, terms)(queries)


def _folds(treated: BoolArray, crossfit: bool) -> list[tuple[BoolArray, BoolArray]]:
    """Records to learn from and records to predict for.

    Two halves by position: the number of ones in its binary digits, even or odd. Halves are equal,
    and no pattern in the order of the records (pairs, say) makes them differ.
    """
    everybody = np.ones(len(treated), dtype=np.bool_)
    digits = np.arange(len(treated))
    for shift in (32, 16, 8, 4, 2, 1):
        digits ^= digits >> shift
    half = digits % 2 == 0
    counts = [np.count_nonzero(treated[f] == arm) for f in (half, ~half) for arm in (True, False)]
    if not crossfit or min(counts) < _LEAST_IN_ARM:
        return [(everybody, everybody)]
    return [(half, ~half), (~half, half)]
