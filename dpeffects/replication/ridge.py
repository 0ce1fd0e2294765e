"""Two small models with scikit-learn's interface, for use without scikit-learn."""

from __future__ import annotations

from typing import Self

import numpy as np

from dpeffects.arrays import FloatArray
from dpeffects.privacy.losses import sigmoid

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
