"""The finite release of paper 001 (Theorem 1, Lemmas 2 and 2b), as printed: an asymptotic claim.

Nuisances and second stage are any scikit-learn learners, fitted without noise. The noise follows
from the largest size of the influence function over all records that could be (`largest`). It is
not a proven guarantee at any n, and for flexible learners it is false (unproved/CLAIMS.md), so
`dp_cate` asks for ``accept_asymptotic=True``. `method="sample_aggregate"` takes any learner with an
exact guarantee.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpeffects.arrays import BoolArray, FloatArray, Interval
from dpeffects.design.features import spread_points
from dpeffects.errors import MissingExtraError, OptionError
from dpeffects.privacy import Curator, NoisyValue
from dpeffects.replication.unproved.sklearn_models import ModelTemplate, Predict, wrap_models
from dpeffects.replication.unproved.unproved_releases import claimed_effects

NAMED = ("random_forest", "neural_net")
_CLIP = 0.01
_POINTS, _ROWS, _CORNERS = 4096, 20_000, 12
"""To begin with: points that fill the cube, rows of the data, columns whose corners are tried."""
_KEPT, _ROUNDS, _TRIED, _ENTRIES = 32, 12, 8192, 2**23
"""Points that are improved, how often, and how many points, and entries of them, are tried."""
_CLIMBS, _STEPS, _DIFFERENCES, _APART = 4, 50, 20_000, 1e-6
"""Points that climb, by how many steps and differences at most, and how wide these are."""


def check(options: Any) -> None:
    """Refuse models that are neither a name that is known nor scikit-learn's; wrap them."""
    wrap_models(options)
    learner = options.second_stage
    if isinstance(learner, str) and learner in NAMED:
        return
    if isinstance(learner, str) or not (hasattr(learner, "fit") and hasattr(learner, "predict")):
        raise OptionError(
            f"second_stage={learner!r} has no fit and predict: pass a scikit-learn regressor, or "
            f"one of {', '.join(NAMED)}"
        )


def release(by_arm: bool, curator: Curator, options: Any, points: FloatArray) -> NoisyValue:
    """Release effects at points by the R-learner or the DR-learner, with the noise as claimed."""
    models, within = (options.outcome, options.propensity), curator.outcome_range
    paper = PaperLearner(by_arm, options.second_stage, points, within, *models)
    return claimed_effects(curator, paper, "effect")


def _require_sklearn() -> None:
    try:
        import sklearn  # noqa: F401
    except ImportError:
        raise MissingExtraError(
            'this learner needs scikit-learn: pip install "dpeffects[cate]"'
        ) from None


def _perceptron(kind: str, layers: tuple[int, ...]) -> ModelTemplate:
    """The paper's networks: ReLU, Adam with rate 0.01, batches of 128."""
    _require_sklearn()
    from sklearn import neural_network

    make = getattr(neural_network, f"MLP{kind}")
    options = {"learning_rate_init": 0.01, "batch_size": 128, "random_state": 0}
    return ModelTemplate(make(hidden_layer_sizes=layers, **options))


def _second_stage(learner: Any) -> ModelTemplate:
    """The second stage, by its name or as it was given."""
    if learner == "neural_net":
        return _perceptron("Regressor", (32, 32))
    _require_sklearn()
    from sklearn.ensemble import RandomForestRegressor

    named = isinstance(learner, str)
    return ModelTemplate(RandomForestRegressor(random_state=0) if named else learner)


def pseudo_outcomes(
    by_arm: bool, a: FloatArray, y: FloatArray, score: FloatArray, one: FloatArray, zero: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Pseudo-outcomes and weights of the paper's release (its equations 4 and 5).

    Of the R-learner residual outcome over residual treatment, weighted by the square of the latter;
    of the DR-learner the difference of the mean outcomes, and the weighted residual of the own one.
    """
    gap, own = a - score, np.where(a > 0.5, one, zero)
    if by_arm:
        return gap / (score * (1.0 - score)) * (y - own) + one - zero, np.ones(len(y))
    return (y - own) / gap + one - zero, gap**2


@dataclass(frozen=True)
class PaperLearner:
    """Fit both stages, answer at query rows, and find the largest influence.

    ``by_arm`` is False for the R-learner, True for the DR-learner. ``outcome`` is a model of the
    outcome given covariates and treatment, the last column, ``propensity`` one of the treatment; by
    default the paper's networks.
    """

    by_arm: bool
    second_stage: Any
    queries: FloatArray
    outcome_range: Interval
    outcome: ModelTemplate | None = None
    propensity: ModelTemplate | None = None

    def __call__(
        self, covariates: FloatArray, treated: BoolArray, outcome: FloatArray
    ) -> tuple[FloatArray, float]:
        """Answers at the queries, and the gross-error sensitivity."""
        x = covariates[:, 1:]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # convergence of small networks
            fitted = self._fit(x, treated, outcome)
            return fitted.effect(self.queries[:, 1:]), largest(fitted.most, x)

    def _fit(self, x: FloatArray, treated: BoolArray, outcome: FloatArray) -> _Fitted:
        a = treated.astype(np.float64)
        propensity = self.propensity or _perceptron("Classifier", (32,))
        mean = self.outcome or _perceptron("Regressor", (32,))
        chance = propensity.fitted(x, treated.astype(np.int64))
        arms = mean.fitted(np.column_stack([x, a]), outcome)
        first = _FirstStage(chance, arms)
        score, one, zero = first.nuisances(x)
        pseudo, weight = pseudo_outcomes(self.by_arm, a, outcome, score, one, zero)
        second, weighted = _second_stage(self.second_stage), not self.by_arm
        effect = second.fitted(x, pseudo, weight if weighted and second.takes_weight else None)
        scale = float(np.mean(score * (1 - score))) if weighted else 1.0
        return _Fitted(first, self.by_arm, effect, scale, self.outcome_range)


@dataclass(frozen=True)
class _FirstStage:
    """Fitted nuisances; nothing in it is private from the curator."""

    propensity: Predict
    mean: Predict

    def score(self, x: FloatArray) -> FloatArray:
        return np.clip(self.propensity(x), _CLIP, 1.0 - _CLIP)

    def nuisances(self, x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Propensities, and mean outcomes if treated and if not."""
        arms = (np.ones(len(x)), np.zeros(len(x)))
        one, zero = (self.mean(np.column_stack([x, arm])) for arm in arms)
        return self.score(x), one, zero


@dataclass(frozen=True)
class _Fitted:
    """Both stages."""

    first: _FirstStage
    by_arm: bool
    effect: Predict
    scale: float
    outcome_range: Interval

    def most(self, x: FloatArray) -> FloatArray:
        """Largest size of the influence function (Lemmas 2 and 2b) at covariates, over the rest.

        It is linear in the outcome, so an end of its range is largest.
        """
        known, effect, most = self.first.nuisances(x), self.effect(x), np.zeros(len(x))
        for arm in (0.0, 1.0):
            for end in self.outcome_range:
                a, y = np.full(len(x), arm), np.full(len(x), end)
                pseudo, weight = pseudo_outcomes(self.by_arm, a, y, *known)
                np.maximum(most, np.abs(weight * (pseudo - effect)) / self.scale, out=most)
        return most


def largest(size: Callable[[FloatArray], FloatArray], rows: FloatArray) -> float:
    """The largest value of a function on the unit cube that a search finds.

    It begins at the records, at points that fill the cube, and at its corners, where the columns
    are few. The best points are improved along one column after another, over all its range and
    close by, which functions with steps need (forests); then by the gradient (L-BFGS-B, as in the
    paper). Whatever is found is a value of the function, so it is never too large. It can be too
    small: functions with steps take their largest value in cells that no point may have hit.

    Examples
    --------
    >>> rows = np.array([[0.5, 0.5]])
    >>> round(largest(lambda x: 1 - (x[:, 0] - 0.3) ** 2 - (x[:, 1] - 0.8) ** 2, rows), 6)
    1.0
    """
    columns = rows.shape[1]
    points = max(64, min(_POINTS, _ENTRIES // max(columns, 1)))
    starts = [spread_points(points, columns), rows[: min(_ROWS, _ENTRIES // max(columns, 1))]]
    if columns <= _CORNERS:
        starts.append(np.array(np.meshgrid(*[[0.0, 1.0]] * columns)).reshape(columns, -1).T)
    best, values = _best(size, np.concatenate(starts))
    for k in range(_ROUNDS):
        found, sizes = _best(size, np.concatenate([best, _along_columns(best, k)]))
        done = k > 2 and not sizes[0] > values[0]
        best, values = found, sizes
        if done:
            break
    return max([float(values[0]), *(_climbed(size, start) for start in best[:_CLIMBS])])


def _best(
    size: Callable[[FloatArray], FloatArray], points: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """The points with the largest values, and these."""
    values = size(points)
    order = np.argsort(-values, kind="stable")[:_KEPT]
    return points[order], values[order]


def _along_columns(best: FloatArray, k: int) -> FloatArray:
    """Points that differ from the best ones in one column: anywhere, or closer in later rounds."""
    count, columns = best.shape
    tried = max(64, min(_TRIED, _ENTRIES // max(columns, 1)))
    points = best[np.arange(tried) % count]
    column = (np.arange(tried) // count + k * (tried // count)) % max(columns, 1)
    steps = (spread_points(tried, 1)[:, 0] + 0.618 * k) % 1.0
    near = points[np.arange(tried), column] + (4.0 * steps - 3.0) * 0.5 ** (1 + k)
    points[np.arange(tried), column] = np.where(steps < 0.5, (2.0 * steps) % 1.0, near)
    return np.clip(points, 0.0, 1.0)


def _climbed(size: Callable[[FloatArray], FloatArray], start: FloatArray) -> float:
    """A value that the gradient leads to."""
    from scipy.optimize import minimize

    columns = start.size

    def fall(x: FloatArray) -> tuple[float, FloatArray]:
        inward = np.where(x > 0.5, -_APART, _APART)
        values = -size(np.concatenate([x[None, :], x + np.diag(inward)]))
        return float(values[0]), (values[1:] - values[0]) / inward

    cube, steps = [(0.0, 1.0)] * columns, max(3, min(_STEPS, _DIFFERENCES // columns))
    found = minimize(
        fall, start, jac=True, method="L-BFGS-B", bounds=cube, options={"maxiter": steps}
    )
    return -float(found.fun)
