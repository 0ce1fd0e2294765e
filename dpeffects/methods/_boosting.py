"""Effects from additive models: S-, T- and DR-learner, each stage on all records.

Which records a stage sees never depends on their values, and its number of records is n: the
library takes that number as public. In the model of an arm the records of the other arm are all at
the same place, left of every covariate, where they have one score and say nothing of the rest.

There is no R-learner: it needs weights, whose largest value and sum the library reads off the data.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dpeffects.privacy.boosting import Additive, RowFunction, Stage
from dpeffects.privacy.bounds import Interval
from dpeffects.privacy.curator import Curator

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

SHARES: dict[str, dict[str, float]] = {
    "s": {"outcome": 1.0},
    "t": {"treated": 0.5, "control": 0.5},
    "dr": {"propensity": 0.2, "treated": 0.2, "control": 0.2, "effect": 0.4},
}
_UNIT = (0.0, 1.0)
_GRID = (np.arange(62) + 0.5) / 62
"""Middles of the cells that the library's bins are made of."""


@dataclass(frozen=True)
class AdditiveEffect:
    """base + a curve for each covariate, on a grid; ``margins`` are the records' shares there.

    ``used`` are the encoded columns that vary. ``largest`` is the largest residual that was
    possible under a released model of outcomes or effects, in ranges of its target.
    """

    base: float
    used: list[int]
    curves: FloatArray
    margins: FloatArray
    largest: float

    def __call__(self, covariates: FloatArray) -> FloatArray:
        """Effects at encoded rows."""
        inside = covariates[:, self.used] * len(_GRID)
        cells = np.clip(inside.astype(np.int64), 0, len(_GRID) - 1)
        return np.asarray(self.base + self.curves[np.arange(len(self.used)), cells].sum(axis=1))

    @property
    def average(self) -> float:
        """Mean over the released margins."""
        return self.base + float((self.curves * self.margins).sum())


def released(curator: Curator, learner: str, clip: float) -> AdditiveEffect:
    """Release the stages of a learner."""
    return {"s": _s, "t": _t, "dr": _dr}[learner](curator, clip, curator.varying())


def _s(curator: Curator, clip: float, used: list[int]) -> AdditiveEffect:
    """One model with the treatment as a feature: a constant effect."""

    def features(x: FloatArray, t: BoolArray, y: FloatArray) -> FloatArray:
        return np.column_stack([t.astype(np.float64), x[:, used]])

    model = curator.boosted(Stage("outcome model", features, _scaled(curator), _UNIT), "outcome")
    none, one = model.term(0, np.array([0.0, 1.0]))
    nothing = np.zeros((len(used), len(_GRID)))
    return _effect(curator, float(one - none), nothing, nothing, _reach(model, _UNIT))


def _t(curator: Curator, clip: float, used: list[int]) -> AdditiveEffect:
    """A model for each arm."""
    one, none = (_arm(curator, arm, used) for arm in (True, False))
    at, every = _present(_GRID), range(len(used))
    curves = np.array([one.term(j, at) - none.term(j, at) for j in every])
    weights = np.array([one.density(j, at) + none.density(j, at) for j in every])
    largest = max(_reach(one, _UNIT), _reach(none, _UNIT))
    return _effect(curator, one.intercept - none.intercept, curves, weights, largest)


def _dr(curator: Curator, clip: float, used: list[int]) -> AdditiveEffect:
    """A model of doubly robust pseudo-outcomes."""

    def covariates(x: FloatArray, t: BoolArray, y: FloatArray) -> FloatArray:
        return x[:, used]

    def arms(x: FloatArray, t: BoolArray, y: FloatArray) -> FloatArray:
        return t.astype(np.float64)

    chances = curator.boosted(Stage("propensity model", covariates, arms, None), "propensity")
    models = [_arm(curator, arm, used) for arm in (True, False)]
    scaled, end = _scaled(curator), 1.0 + 1.0 / clip

    def pseudo(x: FloatArray, t: BoolArray, y: FloatArray) -> FloatArray:
        chance = 1.0 / (1.0 + np.exp(-np.clip(chances(x[:, used]), -30.0, 30.0)))
        e = np.clip(chance, clip, 1.0 - clip)
        one, none = (np.clip(model(_present(x[:, used])), 0.0, 1.0) for model in models)
        rest = scaled(x, t, y) - np.where(t, one, none)
        return np.asarray(one - none + np.where(t, 1.0 / e, -1.0 / (1.0 - e)) * rest)

    model = curator.boosted(Stage("effect model", covariates, pseudo, (-end, end)), "effect")
    curves = np.array([model.term(j, _GRID) for j in range(len(used))])
    weights = np.array([model.density(j, _GRID) for j in range(len(used))])
    largest = max(_reach(model, (-end, end)), *(_reach(arm, _UNIT) for arm in models))
    return _effect(curator, model.intercept, curves, weights, largest)


def _arm(curator: Curator, arm: bool, used: list[int]) -> Additive:
    """The outcome in one arm; records of the other are at 0, with the middle of the range."""
    scaled = _scaled(curator)

    def features(x: FloatArray, t: BoolArray, y: FloatArray) -> FloatArray:
        return np.where((t == arm)[:, None], _present(x[:, used]), 0.0)

    def target(x: FloatArray, t: BoolArray, y: FloatArray) -> FloatArray:
        return np.where(t == arm, scaled(x, t, y), 0.5)

    name = "treated" if arm else "control"
    return curator.boosted(Stage(f"outcome model, {name}", features, target, _UNIT), name)


def _present(x: FloatArray) -> FloatArray:
    """Where records of the arm are: right of 0, so that the library's first bin ends between."""
    return 0.1 + 0.9 * x


def _effect(
    curator: Curator, base: float, curves: FloatArray, weights: FloatArray, largest: float
) -> AdditiveEffect:
    """In units of the outcome; weights become shares."""
    lower, upper = curator.outcome_range
    shares = weights / np.maximum(weights.sum(axis=1, keepdims=True), 1e-12)
    scale = upper - lower
    return AdditiveEffect(scale * base, curator.varying(), scale * curves, shares, largest)


def _reach(model: Additive, interval: Interval) -> float:
    """The largest residual that is possible under a model, in ranges of the target."""
    (low, high), (lower, upper) = model.extremes(), interval
    return max(upper - low, high - lower) / (upper - lower)


def _scaled(curator: Curator) -> RowFunction:
    """Outcomes in [0, 1]."""
    lower, upper = curator.outcome_range
    return lambda x, t, y: np.asarray((y - lower) / (upper - lower))
