"""Augmented inverse probability weighting without privacy, which adjusted estimates aim at."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from dpeffects.arrays import FloatArray


def reference(
    outcome: FloatArray,
    treated: npt.NDArray[np.bool_],
    rows: FloatArray,
    estimand: str = "ATE",
    **options: Any,
) -> tuple[float, float]:
    """Non-private augmented inverse probability weighting (statsmodels' models)."""
    import warnings

    import statsmodels.api as sm

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # separation and redundant columns still give predictions
        logit = sm.GLM(treated.astype(float), rows, family=sm.families.Binomial())
        score = np.asarray(logit.fit().predict(rows))  # by a pseudo-inverse: any columns will do
        m1, m0 = (
            np.asarray(sm.OLS(outcome[arm], rows[arm]).fit().predict(rows))
            for arm in (treated, ~treated)
        )
    score = np.clip(score, 0.01, 0.99)
    if estimand == "ATE":
        effect = m1 - m0 + np.where(treated, (outcome - m1) / score, (m0 - outcome) / (1 - score))
        return float(effect.mean()), float(effect.std() / math.sqrt(outcome.size))
    odds = score / (1 - score) if estimand == "ATT" else (1 - score) / score
    own = treated if estimand == "ATT" else ~treated
    other = m0 if estimand == "ATT" else m1
    part = np.where(own, outcome - other, -odds * (outcome - other)) / own.mean()
    value = float(part.mean()) * (1 if estimand == "ATT" else -1)
    return value, float(part.std() / math.sqrt(outcome.size))
