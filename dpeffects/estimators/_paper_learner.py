"""The finite release of paper 001 (Theorem 1, Lemmas 2 and 2b), as printed: an asymptotic claim.

Nuisances and second stage are any scikit-learn learners, fitted without noise. The noise follows
from the largest size of the influence function over all records that could be (L-BFGS-B from
several starts, as in the paper). It is not a proven guarantee at any n, and for flexible learners
it is false (unproved/CLAIMS.md), so `dp_cate` asks for ``accept_asymptotic=True``.
`method="sample_aggregate"` takes any learner with an exact guarantee.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from dpeffects.arrays import BoolArray, FloatArray, Interval
from dpeffects.design.features import spread_points
from dpeffects.errors import MissingExtraError, OptionError

Height = Callable[[FloatArray], FloatArray]
NAMED = ("random_forest", "neural_net")
_CLIP = 0.01
_STARTS, _NEAR, _RADII, _CLIMBS = 1024, 64, (0.1, 0.03, 0.01, 0.003), 3
"""The search for the largest influence: points, points around the best, how near, and climbs."""
_STEP = 1e-6
"""Step of numerical gradients."""


def check_second_stage(learner: Any) -> None:
    """Refuse what is neither a name that is known nor a scikit-learn learner."""
    if isinstance(learner, str) and learner in NAMED:
        return
    if isinstance(learner, str) or not (hasattr(learner, "fit") and hasattr(learner, "predict")):
        raise OptionError(
            f"second_stage={learner!r} has no fit and predict: pass a scikit-learn regressor, or "
            f"one of {', '.join(NAMED)}"
        )


def _require_sklearn() -> None:
    try:
        import sklearn  # noqa: F401
    except ImportError:
        raise MissingExtraError(
            'this learner needs scikit-learn: pip install "dpeffects[cate]"'
        ) from None


def _perceptron(kind: str, layers: tuple[int, ...]) -> Any:
    """The paper's networks: ReLU, Adam with rate 0.01, batches of 128."""
    _require_sklearn()
    from sklearn import neural_network

    make = getattr(neural_network, f"MLP{kind}")
    return make(hidden_layer_sizes=layers, learning_rate_init=0.01, batch_size=128, random_state=0)


def _unfitted(learner: Any) -> Any:
    """The second stage, by its name or as a copy of what was given."""
    _require_sklearn()
    from sklearn.base import clone
    from sklearn.ensemble import RandomForestRegressor

    if isinstance(learner, str):
        forest = RandomForestRegressor(random_state=0)
        return {"neural_net": _perceptron("Regressor", (32, 32)), "random_forest": forest}[learner]
    return clone(learner)


@dataclass(frozen=True)
class PaperLearner:
    """Fit both stages, answer at query rows, and find the largest influence.

    ``learner`` is the R-learner or the DR-learner (`_kernel_learner`).
    """

    learner: Any
    second_stage: Any
    queries: FloatArray
    outcome_range: Interval

    def __call__(
        self, covariates: FloatArray, treated: BoolArray, outcome: FloatArray
    ) -> tuple[FloatArray, float]:
        """Answers at the queries, and the gross-error sensitivity."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # convergence of small networks
            fitted = self._fit(covariates[:, 1:], treated, outcome)
            return fitted.effect(self.queries[:, 1:]), self._largest(fitted)

    def _fit(self, x: FloatArray, treated: BoolArray, outcome: FloatArray) -> _Fitted:
        a = treated.astype(np.float64)
        propensity = _perceptron("Classifier", (32,)).fit(x, treated)
        mean = _perceptron("Regressor", (32,)).fit(np.column_stack([x, a]), outcome)
        first = _Fitted(self.learner, propensity, mean, None, 1.0)
        pseudo, weight = first.pseudo(x, a, outcome)
        second, weighted = _unfitted(self.second_stage), self.learner.weighted_residuals
        taken = weighted and "sample_weight" in inspect.signature(second.fit).parameters
        second = second.fit(x, pseudo, **({"sample_weight": weight} if taken else {}))
        score = first.score(x)
        scale = float(np.mean(score * (1 - score))) if weighted else 1.0
        return replace(first, second=second, scale=scale)

    def _largest(self, fitted: _Fitted) -> float:
        """Largest influence over x in the unit cube, both arms and both ends of the outcome."""
        columns = self.queries.shape[1] - 1
        ends = self.outcome_range  # the influence is linear in y, so an end is largest
        heights = [partial(fitted.influence, arm=arm, y=y) for arm in (0.0, 1.0) for y in ends]
        best = [(value, x, height) for height in heights for value, x in _high(height, columns)]
        best = sorted(best, key=lambda found: -found[0])[:_CLIMBS]
        return max(best[0][0], *(_climb(height, x) for _, x, height in best))


def _high(height: Height, columns: int) -> list[tuple[float, FloatArray]]:
    """The highest of many points, then of points around those: a forest has no gradients."""
    tried = spread_points(_STARTS, columns)
    near = 2.0 * spread_points(_NEAR, columns) - 1.0
    for radius in (*_RADII, 0.0):
        values = height(tried)
        top = np.argsort(-values)[:2]
        starts = tried[top]
        tried = np.clip(np.vstack([starts, *(x + radius * near for x in starts)]), 0.0, 1.0)
    return list(zip(values[top].tolist(), starts, strict=True))


def _climb(height: Height, start: FloatArray) -> float:
    """L-BFGS-B, as in the paper; a gradient is one call for all its steps."""
    from scipy.optimize import minimize

    def downhill(x: FloatArray) -> tuple[float, FloatArray]:
        step = np.where(x < 0.5, _STEP, -_STEP)
        values = height(np.vstack([x, x + np.diag(step)]))
        return -float(values[0]), (values[0] - values[1:]) / step

    bounds = [(0.0, 1.0)] * len(start)
    return -float(minimize(downhill, start, jac=True, method="L-BFGS-B", bounds=bounds).fun)


@dataclass(frozen=True)
class _Fitted:
    """Fitted models; nothing in it is private from the curator."""

    learner: Any
    propensity: Any
    mean: Any
    second: Any
    scale: float

    def score(self, x: FloatArray) -> FloatArray:
        return np.clip(self.propensity.predict_proba(x)[:, 1], _CLIP, 1.0 - _CLIP)

    def effect(self, x: FloatArray) -> FloatArray:
        return np.asarray(self.second.predict(x), dtype=np.float64).reshape(len(x))

    def outcomes(self, x: FloatArray) -> list[FloatArray]:
        arms = (np.ones(len(x)), np.zeros(len(x)))
        return [np.asarray(self.mean.predict(np.column_stack([x, arm]))) for arm in arms]

    def pseudo(self, x: FloatArray, a: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
        pseudo, weight = self.learner.pseudo_outcomes(a, y, self.score(x), *self.outcomes(x))
        return pseudo, weight

    def influence(self, x: FloatArray, arm: float, y: float) -> FloatArray:
        """Size of the influence function (Lemmas 2 and 2b) of one arm and outcome, anywhere."""
        pseudo, weight = self.pseudo(x, np.full(len(x), arm), np.full(len(x), y))
        return np.asarray(np.abs(weight * (pseudo - self.effect(x))) / self.scale)
