"""Models of folds: any scikit-learn models, fitted in K folds, an exact guarantee.

The n records are put into a secret order and dealt to K folds in turn. Outcome and propensity
models are fitted in each fold, without noise; only the average effect that they give gets noise.
Predicted outcomes are clipped to the range of the outcome, propensities to [clip, 1 - clip], so
that one record, which changes the models of one fold in any way, moves the average by little.

``average="predictions"`` is the method of Lebeda, Even, Bellet and Josse (2025): the inverse
propensities and the mean outcomes of a record are averages over the K - 1 models that have not seen
it, and the effect is the mean of the records' terms (G-formula, IPW or AIPW). With B the range of
the outcome, c the clip and W = 1/c - 1/(1 - c), a changed record moves the mean by at most

========== ===================================================================================
regression 2 B (1/n + (n - m) / (n (K - 1))), about 2 B / K
ipw        B / (c n) + B W (n - m) / (2 n (K - 1)), about B W / (2 K)
aipw       2 B / (c n) + B (1/c + W (K - 2)/(K - 1)) (n - m) / (n (K - 1)), about B (1/c + W) / K
========== ===================================================================================

where m is the size of a fold (claim 25; all are attained). AIPW is not linear in the models: a
weight and the residual that it multiplies change together. A bound that moves one of them at a time
is about half of this. Outcomes are measured from the middle of their range, which halves the noise
of IPW.

``average="estimates"``, the default, takes the averages in the other order: the models of each fold
give an estimate over all records outside of the fold, the K estimates are clipped to the range of
effects, and their mean is released. It moves by at most 2 B / K + 2 B / (c n) (claim 25): for AIPW
with c = 0.1 about a tenth of the above. Averaged predictions are better models (without noise half
the error, measured), but that does not make up for ten times the noise. A narrow ``effect_range``
divides the noise further. A fold without both arms gives no estimate: the number of those that do
is released with their sum, at no further price, and the estimate is sum over number. With
``average="predictions"`` such a fold predicts the middle of the range. benchmarks/leaderboard.py
compares both with other methods.

The sampling variance, from a noisy sum of squares, is that of the terms over n. Residuals are part
of them, and show the error of the models; for the regression estimator, which has none, the
variance between the estimates of folds over K is added, and with averaged predictions there is no
variance at all.

The number of treated records is released first. Folds are as small as the blocks of
``sample_aggregate``, by the same rule for the released smaller arm, with the same words in the
first lines where an arm has too few records in a fold, and the same refusal. What models miss at
that size stays in the estimate; IPW suffers most, since inverse propensities by few records are too
large on average.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from dpeffects.arrays import BoolArray, FloatArray
from dpeffects.errors import EstimationError, OptionError
from dpeffects.estimators.option_checks import check_clip, checked, choice, whole
from dpeffects.estimators.spec import NO_CONFOUNDER, MethodSpec, Options, PublicInfo
from dpeffects.inference.estimate import Estimate, SamplingVariance, Unavailable
from dpeffects.privacy import Curator, NoisyValue
from dpeffects.privacy.sample_splits import ESTIMATORS, EffectTerms, Folds, isolated
from dpeffects.replication import sample_aggregate
from dpeffects.replication.block_learner import models_of
from dpeffects.replication.unproved.sklearn_models import ModelTemplate, wrap_models

_CLIP = 0.1


@dataclass(frozen=True)
class FoldModels:
    """What is fitted in a fold: propensity and mean outcomes, where the estimator needs them."""

    outcome: ModelTemplate
    propensity: ModelTemplate
    estimator: str

    @property
    def flexible(self) -> bool:
        """True unless both models are those of this package."""
        return not (self.outcome.built_in and self.propensity.built_in)

    def __call__(
        self, rows: FloatArray, treated: BoolArray, outcome: FloatArray
    ) -> Callable[[FloatArray], FloatArray]:
        """Fit; what is not needed predicts NaN, which stands for the middle of its range."""
        if treated.all() or not treated.any():
            raise EstimationError("a fold needs both arms")
        models: list[Callable[[FloatArray], FloatArray]] = [_nothing] * 3
        if self.estimator != "regression":
            models[0] = self.propensity.fitted(rows, treated.astype(np.int64))
        if self.estimator != "ipw":
            arms = (treated, ~treated)
            models[1:] = [self.outcome.fitted(rows[arm], outcome[arm]) for arm in arms]
        return lambda new: np.stack([model(new) for model in models])


def _nothing(rows: FloatArray) -> FloatArray:
    return np.full(len(rows), np.nan)


@dataclass(frozen=True)
class ModelFoldsOptions(Options):
    """Options of models of folds.

    ``outcome``: a regressor with scikit-learn's fit and predict, or a classifier with predict_proba
    for a binary outcome; by default a light ridge regression. ``propensity``: a classifier with
    predict_proba; by default a light ridge logistic regression. Both must predict row by row.
    ``folds``: their number, or None to choose it. ``average``: "estimates" (over folds) or
    "predictions" (the paper's). ``estimator``: "aipw", "ipw" or "regression" (the G-formula).
    ``effect_range``: (lower, upper) for the estimate of a fold, by default what the range of the
    outcome allows, (-B, B); it must not come from the data. ``clip``: propensities are kept within
    [clip, 1 - clip]; by default a tenth, or half of the released share of the smaller arm where
    that is less.

    Models get what those of ``sample_aggregate`` get, and may carry nothing from one fit to the
    next either.
    """

    outcome: Any = None
    propensity: Any = None
    folds: int | None = whole(None, 2)
    average: str = choice("estimates", "predictions")
    estimator: str = choice(*ESTIMATORS)
    effect_range: tuple[float, float] | None = None
    clip: float | None = checked(None, check_clip, 1e-6)

    def needs_memory(self) -> str:
        """Learners get their rows as arrays."""
        return "learners need the rows of their folds as arrays"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.effect_range is not None:
            if self.average == "predictions":
                raise OptionError('effect_range has no meaning with average="predictions"')
            object.__setattr__(
                self, "effect_range", sample_aggregate.effect_interval(self.effect_range)
            )
        for name, without in _WITHOUT.items():
            if self.estimator == without and getattr(self, name) is not None:
                raise OptionError(f'{name} has no meaning with estimator="{self.estimator}"')
        wrap_models(self)

    def check(self, n: int, smallest_arm: int | None, arms: int = 2) -> None:
        """Refuse folds that are too many for the records."""
        sample_aggregate.check_parts("model_folds", "fold", self.folds, n)

    def resolve(self, facts: PublicInfo) -> ModelFoldsOptions:
        """Try the models on made-up records; refuse where noise would hide every effect."""
        models = self.in_fold()
        most = self.folds or sample_aggregate.default_blocks(
            facts.n, facts.width, facts.budget.epsilon, models.flexible
        )
        if self.average == "estimates":
            sample_aggregate.refuse_noise(facts, most, "folds")
        size = facts.n // most, facts.width
        sample_aggregate.try_models(partial(_tried, models), models, size, "fold")
        used = {
            name: getattr(models, name)
            for name, without in _WITHOUT.items()
            if self.estimator != without
        }
        return replace(self, **used)

    def in_fold(self) -> FoldModels:
        """What is fitted in a fold."""
        return FoldModels(*models_of(self), self.estimator)


_WITHOUT = {"outcome": "ipw", "propensity": "regression"}
"""Which estimator has no use for a model."""


def _tried(models: FoldModels, rows: FloatArray, treated: BoolArray, outcome: FloatArray) -> None:
    with isolated(0):
        models(rows, treated, outcome)(rows)


def budget_split(level: str, options: ModelFoldsOptions) -> dict[str, float]:
    """Split of the budget; what has no variance does not pay for one."""
    if _blind(options):
        return {"count": 0.1, "estimate": 0.9}
    return {"count": 0.1, "estimate": 0.72, "variance": 0.18}


def fit(curator: Curator, options: ModelFoldsOptions, estimand: str) -> Estimate:
    """Release the treated count, then the average effect, and the squares for its variance."""
    lower, upper = curator.outcome_range
    possible = lower - upper, upper - lower
    interval = options.effect_range or possible
    models = options.in_fold()
    treated, smaller = sample_aggregate.released_arms(curator, "count")
    folds = options.folds or sample_aggregate.default_blocks(
        curator.n, curator.width, curator.epsilon("estimate"), models.flexible, smaller
    )
    clip = options.clip or min(_CLIP, 0.5 * smaller / curator.n)
    parts = Folds(curator, models, EffectTerms(options.estimator, clip), folds)
    details = {
        "treated, control records (noisy)": f"{treated:.0f}, {curator.n - treated:.0f}",
        **sample_aggregate.size_details(curator.n, folds, "fold"),
        "propensity scores truncated at": f"{clip:.3g}",
    }
    if options.average == "estimates":
        mean = _of_estimates(parts.mean_of_estimates("mean effect", interval, "estimate"), interval)
        details["folds with both arms (noisy)"] = f"{folds * mean.present:.0f}"
        failed = "Folds without both arms are left out."
    else:
        noisy = parts.mean_by_predictions("mean effect", "estimate")
        mean = FoldAverage(float(noisy), noisy, (noisy.scale,))
        failed = "Models of folds without both arms predict the middle of the range."
    gaussian = mean.noise.gaussian
    return Estimate(
        value=min(max(mean.value, interval[0]), interval[1]),
        sampling=_variance(curator, options, mean, interval, folds, parts),
        laplace=() if gaussian else mean.scales,
        gaussian=sum(x**2 for x in mean.scales) if gaussian else 0.0,
        possible=possible,
        details=details,
        notes=(_BIAS.format(records=curator.n // folds, failed=failed),),
        warnings=sample_aggregate.small_parts(curator, models.flexible, treated, folds, "fold"),
    )


_BIAS = (
    "Models are fitted in folds of {records} records: what they miss at that size is in the "
    "estimate and not in the interval. {failed}"
)


@dataclass(frozen=True)
class FoldAverage:
    """An average effect, its release, the scales of noise in it, and the share of folds in it."""

    value: float
    noise: NoisyValue
    scales: tuple[float, ...]
    present: float = 1.0

    @property
    def variance(self) -> float:
        """Variance of the noise."""
        return self.noise.variance * sum((x / self.noise.scale) ** 2 for x in self.scales)


def _of_estimates(noisy: NoisyValue, interval: tuple[float, float]) -> FoldAverage:
    """Mean over the folds with an estimate: sum over number, both noisy."""
    middle, half = (interval[0] + interval[1]) / 2.0, (interval[1] - interval[0]) / 2.0
    total, share = noisy.value
    present = min(max(share / half, 1e-3), 1.0)
    apart = min(max(total / present, -half), half)
    unit = noisy.scale / present
    return FoldAverage(middle + apart, noisy, (unit, unit * abs(apart) / half), present)


def _blind(options: ModelFoldsOptions) -> bool:
    return options.average == "predictions" and options.estimator == "regression"


def _variance(
    curator: Curator,
    options: ModelFoldsOptions,
    mean: FoldAverage,
    interval: tuple[float, float],
    folds: int,
    parts: Folds,
) -> SamplingVariance | Unavailable:
    """Second moments less the square of the mean, which is too large by its noise."""
    if _blind(options):
        return Unavailable("the error of the models does not show in averaged predictions")
    if not curator.has("variance"):
        return Unavailable("variance=False was asked for")
    squares, largest = parts.squares("squares", "variance")
    middle = sum(interval) / 2.0 if options.average == "estimates" else 0.0
    between = 1.0 / (folds * mean.present) if options.estimator == "regression" else 0.0
    part = 1.0 / curator.n + between
    centre = float(np.clip(mean.value, *interval)) - middle
    value = float(squares) / mean.present - part * (centre**2 - mean.variance)
    noise = squares.variance / mean.present**2 + (2.0 * centre * part) ** 2 * mean.variance
    return SamplingVariance(value, math.sqrt(noise / 2.0), largest)


SPEC = MethodSpec(
    name="model_folds",
    title="cross-fitted models",
    about="any scikit-learn models, cross-fitted; noise is added to the average effect",
    assumes=f"{NO_CONFOUNDER}; models of one fold are correctly specified",
    estimands=("ATE",),
    levels=("sample",),
    options=ModelFoldsOptions,
    budget_split=budget_split,
    fit=fit,
    citation=(
        "Lebeda, Even, Bellet and Josse (2025), Model agnostic differentially private causal "
        "inference."
    ),
)
