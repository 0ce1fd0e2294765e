"""Additive models by the DP-EBM of the library interpret, and their released numbers.

Features are continuous for the library, indicators too: its bins of categories are those that occur
in the data, which nobody pays for. Bounds of features and target are declared, the number of
records is public, and there are no weights: it reads nothing else off the data.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpeffects.arrays import BoolArray, FloatArray, Interval
from dpeffects.errors import BudgetError, MissingExtraError
from dpeffects.privacy import Budget, Curator, Share
from dpeffects.replication.unproved.unproved_releases import charge_library, library_seed, rows_of

LIBRARY = "interpret-core: DP-EBM"

RecordFunction = Callable[[FloatArray, BoolArray, FloatArray], FloatArray]
"""(covariates, treated, outcome) -> numbers, row by row: released values and constants inside."""


@dataclass(frozen=True)
class BoostingStage:
    """A model to fit: features in [0, 1] and a target, functions of a record and its position.

    ``interval`` is the declared range of the target, None where it is 0/1 and chances are wanted.
    """

    label: str
    features: RecordFunction
    target: RecordFunction
    interval: Interval | None


@dataclass(frozen=True)
class Additive:
    """A released additive model: for each feature its cuts, and scores and weights of its bins."""

    intercept: float
    cuts: tuple[FloatArray, ...]
    scores: tuple[FloatArray, ...]
    weights: tuple[FloatArray, ...]

    def term(self, j: int, x: FloatArray) -> FloatArray:
        """Scores of one feature."""
        return np.asarray(self.scores[j][np.searchsorted(self.cuts[j], x, side="right")])

    def density(self, j: int, x: FloatArray) -> FloatArray:
        """Records per length of one feature, up to a factor, by released weights."""
        widths = np.diff(np.concatenate([[0.0], self.cuts[j], [1.0]]))
        each = np.maximum(self.weights[j], 0.0) / widths
        return np.asarray(each[np.searchsorted(self.cuts[j], x, side="right")])

    def __call__(self, features: FloatArray) -> FloatArray:
        """Predictions; for chances, their logits."""
        out = np.full(len(features), self.intercept)
        for j in range(len(self.cuts)):
            out += self.term(j, features[:, j])
        return out

    def extremes(self) -> Interval:
        """Least and largest prediction that any record could get."""
        ends = [(float(s.min()), float(s.max())) for s in self.scores]
        return self.intercept + sum(e[0] for e in ends), self.intercept + sum(e[1] for e in ends)


def price_of_presence(price: Share) -> Share:
    """The price for the presence of a record at which replacing one costs ``price``.

    Examples
    --------
    >>> price_of_presence(Share(1.0, 1e-5)).epsilon
    0.5
    """
    half = price.epsilon / 2.0
    return Share(half, price.delta * (1.0 - 1e-12) / (1.0 + math.exp(min(half, 700.0))))


def require(budget: Budget) -> None:
    """Raise unless the library is there, and delta is one that its floats can hold."""
    _models()
    whole = Share(budget.epsilon, budget.delta)
    if whole.delta and price_of_presence(whole).delta < _LEAST_DELTA:
        usual = price_of_presence(Share(budget.epsilon, 1e-6)).delta >= _LEAST_DELTA
        advice = "a delta such as 1e-6" if usual else "an epsilon of at most 1300"
        raise BudgetError(
            f"dp_ebm: delta = {budget.delta:g} is too small for interpret at "
            f"epsilon = {budget.epsilon:g}: write {advice}"
        )


_LEAST_DELTA = 1e-290
"""Shares of it down to 1e-30 are still positive as floats."""


def _models() -> tuple[Any, Any]:
    try:
        from interpret import privacy
    except ImportError:
        raise MissingExtraError('dp_ebm needs interpret: pip install "dpeffects[ebm]"') from None
    return privacy.DPExplainableBoostingRegressor, privacy.DPExplainableBoostingClassifier


def boosted(curator: Curator, stage: BoostingStage, share: str) -> Additive:
    """Release an additive model of all records."""
    rows = rows_of(curator)
    features, target = np.clip(stage.features(*rows), 0.0, 1.0), stage.target(*rows)
    if stage.interval is not None:
        target = np.clip(target, *stage.interval)
    else:  # the library reads the classes off the data: now both are there
        features = np.concatenate([features, np.full((2, features.shape[1]), 0.5)])
        target = np.concatenate([target, [0.0, 1.0]])
    whole = charge_library(curator, stage.label, LIBRARY, share)
    price = price_of_presence(whole)
    return _fitted(stage.interval, features, target, price, library_seed(curator))


def _fitted(
    interval: Interval | None,
    features: FloatArray,
    target: FloatArray,
    price: Share,
    seed: int | None,
) -> Additive:
    regressor, classifier = _models()
    width = features.shape[1]
    asked: dict[str, Any] = {
        "feature_types": ["continuous"] * width,
        "privacy_bounds": np.tile([0.0, 1.0], (width, 1)),
        "epsilon": price.epsilon,
        "delta": price.delta,
        "random_state": seed,
        "n_jobs": 1,
    }
    if interval is None:
        model, target = classifier(**asked), target.astype(np.int64)
    else:
        lower, upper = interval
        model = regressor(privacy_target_min=lower, privacy_target_max=upper, **asked)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # of seeds: the result says so
        model.fit(features, target)
    return Additive(
        float(np.asarray(model.intercept_).reshape(-1)[0]),
        tuple(np.asarray(bins[0], dtype=np.float64) for bins in model.bins_),
        # first and last are for missing and unknown values, of which there are none
        tuple(np.asarray(s, dtype=np.float64)[1:-1] for s in model.term_scores_),
        tuple(np.asarray(w, dtype=np.float64)[1:-1] for w in model.bin_weights_),
    )
