"""Confidence intervals by a claimed guarantee: AIPW with noise by its influence function.

Schroeder, Hartenstein and Feuerriegel (2025) add Gaussian noise to an AIPW estimate and to its
variance, each by the gross-error sensitivity of its influence function: the largest influence that
a record could have on the fitted models, 5 sqrt(2 ln(n) ln(2/delta)) / (epsilon n) times. Nuisances
are cross-fitted without noise, and the interval holds the sampling error and the noise.

The guarantee is a claim about large n and **not proved**: an influence function says what an
infinitesimal change does, and leaves out that a changed record also changes the models of other
records, and the scale of the noise itself (unproved/CLAIMS.md). With models that a single
record can change, it is false at any n; the tests have a pair. It is here to be compared with, and
runs only with ``accept_asymptotic=True``. For any models with an exact guarantee there are
``sample_aggregate`` and ``model_folds``, which also need less noise: on the confounded simulation
with n = 2,000 and epsilon 1 (delta 1e-5), root mean squared errors are 0.52 here, and 0.04 there.

Where the papers leave it open: records are dealt to folds in turn, the largest influence is that
over 1,024 points spread over the declared ranges and over the records, for both arms and both ends
of the outcome; predicted outcomes are clipped to the range of the outcome, propensities to
[clip, 1 - clip].
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpeffects.arrays import BoolArray, FloatArray, Interval
from dpeffects.design.features import spread_points
from dpeffects.errors import OptionError
from dpeffects.estimators.option_checks import check_clip, checked, whole
from dpeffects.estimators.spec import NO_CONFOUNDER, MethodSpec, Options, PublicInfo
from dpeffects.inference.estimate import Estimate, SamplingVariance, Unavailable
from dpeffects.privacy.curator import Curator
from dpeffects.privacy.sample_splits import EffectTerms, isolated
from dpeffects.replication.block_learner import models_of
from dpeffects.replication.model_folds import FoldModels
from dpeffects.replication.unproved.sklearn_models import wrap_models
from dpeffects.replication.unproved.unproved_releases import Answer, claimed_moments

_POINTS = 1024
_LEAST_RECORDS = 10


@dataclass(frozen=True)
class CrossFitted:
    """AIPW by cross-fitted models: the mean, its variance, and their gross-error sensitivities."""

    models: FoldModels
    folds: int
    clip: float
    outcome_range: Interval

    def __call__(
        self, rows: FloatArray, treated: BoolArray, outcome: FloatArray
    ) -> dict[str, Answer]:
        """The estimate and its sampling variance, each with the largest influence."""
        n = len(outcome)
        terms, ends = np.empty(n), []
        for own, predict in self._fitted(rows, treated, outcome):
            terms[own] = self._terms(predict(rows[own]), treated[own], outcome[own])
            ends.append(self._extremes(predict, rows))
        low, high = np.min(ends), np.max(ends)
        mean = float(terms.mean())
        variance = float(terms.var())
        largest = float(max(high - mean, mean - low))
        # the influence on a variance is (term - mean)^2 - variance
        return {
            "estimate": (mean, largest),
            "variance": (variance / n, max(largest**2 - variance, variance) / n),
        }

    def _fitted(
        self, rows: FloatArray, treated: BoolArray, outcome: FloatArray
    ) -> Iterator[tuple[slice, Callable[[FloatArray], FloatArray]]]:
        for fold in range(self.folds):
            other = np.arange(len(rows)) % self.folds != fold
            with isolated(fold), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                predict = self.models(rows[other], treated[other], outcome[other])
                yield slice(fold, None, self.folds), predict

    def _terms(
        self, predicted: FloatArray, treated: BoolArray, outcome: FloatArray | float
    ) -> FloatArray:
        e = np.clip(predicted[0], self.clip, 1.0 - self.clip)
        nuisances = np.stack(
            [1.0 / e, 1.0 / (1.0 - e), *np.clip(predicted[1:], *self.outcome_range)]
        )
        return EffectTerms("aipw", self.clip).of(treated, np.asarray(outcome), nuisances)

    def _extremes(
        self, predict: Callable[[FloatArray], FloatArray], rows: FloatArray
    ) -> tuple[float, float]:
        """Smallest and largest term that a record could have."""
        spread = spread_points(_POINTS, rows.shape[1])
        spread[:, np.ptp(rows, axis=0) == 0.0] = rows[0, np.ptp(rows, axis=0) == 0.0]
        points = np.concatenate([spread, rows])
        predicted = predict(points)
        found = [
            self._terms(predicted, np.full(len(points), arm), end)
            for arm in (True, False)
            for end in self.outcome_range
        ]
        return float(np.min(found)), float(np.max(found))


@dataclass(frozen=True)
class DpciOptions(Options):
    """Options of claimed intervals.

    ``outcome``: a regressor with scikit-learn's fit and predict, or a classifier with predict_proba
    for a binary outcome; by default a light ridge regression. ``propensity``: a classifier with
    predict_proba; by default a light ridge logistic regression. ``folds``: parts for cross-fitting.
    ``clip``: propensities are kept within [clip, 1 - clip].
    """

    outcome: Any = None
    propensity: Any = None
    folds: int = whole(5, 2)
    clip: float = checked(0.1, check_clip, 1e-6)

    def needs_memory(self) -> str:
        """Learners get their rows as arrays."""
        return "learners need the rows of their folds as arrays"

    def __post_init__(self) -> None:
        super().__post_init__()
        wrap_models(self)

    def check(self, n: int, smallest_arm: int | None, arms: int = 2) -> None:
        """Refuse folds that are too small."""
        if n < _LEAST_RECORDS * self.folds:
            raise OptionError(
                f"dpci with {self.folds} folds needs {_LEAST_RECORDS * self.folds} records; "
                f"there are {n}"
            )

    def resolve(self, facts: PublicInfo) -> DpciOptions:
        """Name the models."""
        models = self.models()
        return replace(self, outcome=models.outcome, propensity=models.propensity)

    def models(self) -> FoldModels:
        """What is fitted."""
        return FoldModels(*models_of(self), "aipw")


def budget_split(level: str, options: DpciOptions) -> dict[str, float]:
    """Split of the budget: the paper's halves."""
    return {"estimate": 0.5, "variance": 0.5}


def fit(curator: Curator, options: DpciOptions, estimand: str) -> Estimate:
    """Release the estimate and its variance."""
    learner = CrossFitted(options.models(), options.folds, options.clip, curator.outcome_range)
    found = claimed_moments(curator, learner)
    mean = found["estimate"]
    sampling: SamplingVariance | Unavailable = Unavailable("variance=False was asked for")
    if "variance" in found:
        lower, upper = curator.outcome_range
        largest = ((upper - lower) / options.clip) ** 2 / curator.n
        variance = found["variance"]
        sampling = SamplingVariance(float(variance), variance.scale / math.sqrt(2.0), largest)
    return Estimate(value=float(mean), sampling=sampling, gaussian=mean.variance, notes=(_CLAIM,))


_CLAIM = (
    "The scale of the noise is computed from the data and shown, and the guarantee is a claim "
    "about large n: sample_aggregate and model_folds have an exact one."
)


SPEC = MethodSpec(
    name="dpci",
    title="claimed confidence intervals",
    about="cross-fitted AIPW, noise by an estimated sensitivity; claimed guarantee not proved",
    assumes=f"{NO_CONFOUNDER}; the models are correctly specified",
    estimands=("ATE",),
    levels=("sample",),
    options=DpciOptions,
    budget_split=budget_split,
    uses_delta=lambda options, facts: dict.fromkeys(budget_split(facts.level, options)),
    fit=fit,
    citation=(
        "Schroeder, Hartenstein and Feuerriegel (2025), PrivATE: differentially private confidence "
        "intervals for average treatment effects."
    ),
    guarantee="asymptotic",
    needs_delta=True,
)
