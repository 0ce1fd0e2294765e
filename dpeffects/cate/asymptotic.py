"""The finite release of paper 001 (Theorem 1, Lemmas 2 and 2b), as printed: an asymptotic claim.

Nuisances and second stage are any scikit-learn learners, fitted without noise. The noise follows
from the largest size of the influence function over all records that could be (L-BFGS-B from
several starts, as in the paper). It is not a proven guarantee at any n, and for flexible learners
it is false (PROOFS.md, claim 37), so `dp_cate` asks for ``accept_asymptotic=True``.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dpeffects.errors import MissingExtraError, OptionError
from dpeffects.privacy.bounds import Interval
from dpeffects.privacy.features import spread_points

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

NAMED = ("random_forest", "neural_net")
NEEDS_OPT_IN = (
    "second_stage={!r} has no exact release: the paper's noise is an asymptotic claim, not a "
    "proven guarantee at this n, and one record can move such a learner by many times that noise. "
    'Use method="sample_aggregate" for any learner with an exact guarantee, or '
    "accept_asymptotic=True to reproduce the paper"
)
_STARTS = 64
_CLIP = 0.01


def check_learner(learner: Any, role: str) -> None:
    """Refuse what is not a scikit-learn learner."""
    if isinstance(learner, str) or not (hasattr(learner, "fit") and hasattr(learner, "predict")):
        raise OptionError(
            f"{role}={learner!r} has no fit and predict: pass a scikit-learn regressor"
            + (f", or one of {', '.join(NAMED)}" if role == "second_stage" else "")
        )


def _sklearn() -> Any:
    try:
        import sklearn
    except ImportError:
        raise MissingExtraError(
            'this learner needs scikit-learn: pip install "dpeffects[cate]"'
        ) from None
    return sklearn


def _clone(learner: Any) -> Any:
    _sklearn()
    from sklearn.base import clone

    return clone(learner)


def _perceptron(kind: str, layers: tuple[int, ...]) -> Any:
    """The paper's networks: ReLU, Adam with rate 0.01, batches of 128."""
    _sklearn()
    from sklearn import neural_network

    make = getattr(neural_network, f"MLP{kind}")
    return make(hidden_layer_sizes=layers, learning_rate_init=0.01, batch_size=128, random_state=0)


def _second(learner: Any) -> Any:
    if learner == "neural_net":
        return _perceptron("Regressor", (32, 32))
    if learner == "random_forest":
        _sklearn()
        from sklearn.ensemble import RandomForestRegressor

        return RandomForestRegressor(random_state=0)
    return _clone(learner)


@dataclass(frozen=True)
class PaperLearner:
    """Fit both stages, answer at query rows, and find the largest influence."""

    method: str
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
        made = _Fitted(self.method, propensity, mean, None, 1.0)
        pseudo, weight = made.pseudo(x, a, outcome)
        second = _second(self.second_stage)
        weighted = self.method == "r_learner" and _takes_weights(second)
        second = second.fit(x, pseudo, sample_weight=weight) if weighted else second.fit(x, pseudo)
        score = made.score(x)
        scale = float(np.mean(score * (1 - score))) if self.method == "r_learner" else 1.0
        return _Fitted(self.method, propensity, mean, second, scale)

    def _largest(self, fitted: _Fitted) -> float:
        """Largest influence over x in the unit cube, both arms and both ends of the outcome."""
        from scipy.optimize import minimize

        columns = self.queries.shape[1] - 1
        best, starts = 0.0, spread_points(_STARTS, columns)
        for arm in (0.0, 1.0):
            for y in self.outcome_range:  # the influence is linear in y, so an end is largest

                def size(x: FloatArray, arm: float = arm, y: float = y) -> float:
                    return -float(fitted.influence(x[None, :], np.array([arm]), np.array([y]))[0])

                values = fitted.influence(
                    starts, np.full(len(starts), arm), np.full(len(starts), y)
                )
                for start in starts[np.argsort(-values)[:2]]:
                    found = minimize(size, start, method="L-BFGS-B", bounds=[(0, 1)] * columns)
                    best = max(best, float(values.max()), -float(found.fun))
        return best


@dataclass(frozen=True)
class _Fitted:
    """Fitted models; nothing in it is private from the curator."""

    method: str
    propensity: Any
    mean: Any
    second: Any
    scale: float

    def score(self, x: FloatArray) -> FloatArray:
        return np.clip(self.propensity.predict_proba(x)[:, 1], _CLIP, 1.0 - _CLIP)

    def effect(self, x: FloatArray) -> FloatArray:
        return np.asarray(self.second.predict(x), dtype=np.float64).reshape(len(x))

    def outcomes(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        ones, zeros = np.ones(len(x)), np.zeros(len(x))
        return (
            np.asarray(self.mean.predict(np.column_stack([x, ones]))),
            np.asarray(self.mean.predict(np.column_stack([x, zeros]))),
        )

    def pseudo(self, x: FloatArray, a: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Pseudo-outcomes and weights (equations 4 and 5)."""
        score, (one, zero) = self.score(x), self.outcomes(x)
        gap, own = a - score, np.where(a > 0.5, one, zero)
        if self.method == "r_learner":
            return (y - own) / gap + one - zero, gap**2
        return gap / (score * (1.0 - score)) * (y - own) + one - zero, np.ones(len(x))

    def influence(self, x: FloatArray, a: FloatArray, y: FloatArray) -> FloatArray:
        """Size of the influence function (Lemmas 2 and 2b)."""
        pseudo, weight = self.pseudo(x, a, y)
        return np.asarray(np.abs(weight * (pseudo - self.effect(x))) / self.scale)


def _takes_weights(learner: Any) -> bool:
    import inspect

    return "sample_weight" in inspect.signature(learner.fit).parameters
