"""Releases without a proof: noise by a claimed sensitivity, and none where all is public.

Results of the former are marked asymptotic, of the latter as not private.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TypeVar

import numpy as np

from dpeffects.arrays import BoolArray, FloatArray
from dpeffects.privacy import Charge, Curator, NoisyValue, Share
from dpeffects.privacy.domains import IntTotals, Sensitivity

Estimator = Callable[[FloatArray, BoolArray, FloatArray], tuple[FloatArray, float]]
"""From covariates, treatment and outcome: answers, and their gross-error sensitivity."""
Answer = tuple[float, float]
"""A number and its gross-error sensitivity."""
T = TypeVar("T")


def claimed_effects(curator: Curator, estimator: Estimator, share: str) -> NoisyValue:
    """Release answers with noise by paper 001, Theorem 1, which has no proof.

    The scale of the noise is computed from the data, and is shown.
    """
    answers, gross = estimator(*rows_of(curator))
    return _claimed(curator, "effects at points (claimed)", answers, gross, share)


def claimed_moments(
    curator: Curator, estimator: Callable[[FloatArray, BoolArray, FloatArray], Mapping[str, Answer]]
) -> dict[str, NoisyValue]:
    """Release numbers by the share that each is named after, with the same noise.

    Numbers without a share are not released.
    """
    return {
        share: _claimed(curator, f"{share} (claimed)", np.array([value]), gross, share)
        for share, (value, gross) in estimator(*rows_of(curator)).items()
        if curator.has(share)
    }


def unprotected(curator: Curator, function: Callable[[FloatArray, BoolArray, FloatArray], T]) -> T:
    """Return a function of the rows as it is: only where a call takes all of them as public."""
    curator.require_public("covariates", "treatment", "outcome")
    rows = curator._source.in_memory("this step needs all rows at once")
    return function(rows.covariates(), rows.treated, rows.outcome)


def rows_of(curator: Curator) -> tuple[FloatArray, BoolArray, FloatArray]:
    """Covariates, treatments and outcomes in the secret order."""
    rows = curator._rows
    return rows.covariates(), rows.treated, rows.outcome


def charge_library(curator: Curator, label: str, library: str, share: str) -> Share:
    """Charge a share for what a library is going to draw, and return it."""
    price = curator._releaser.share(share)
    curator._releaser.charge(Charge(label, share, *price, library, (), (), 0))
    return price


def varying(curator: Curator) -> list[int]:
    """Return which encoded columns are not the same for every record, by what they mean."""
    values = curator._source.in_memory("this step needs all rows at once").values
    return [j for j in range(curator.width) if not values or values[j] != 1]


def library_seed(curator: Curator) -> int | None:
    """Return a seed for a library where this call repeats itself; None where it is private."""
    noise = curator._releaser._noise
    if not noise.void:
        return None
    drawn = noise.laplace(np.zeros(1, np.int64), 2.0**40, 1, 1.0)
    return abs(int(drawn[0])) % 2**31


def _claimed(
    curator: Curator, label: str, answers: FloatArray, gross: float, share: str
) -> NoisyValue:
    price = curator._releaser.share(share)
    rate = 5.0 * math.sqrt(2.0 * math.log(curator.n) * math.log(2.0 / price.delta))
    sigma = max(gross, 1e-12) * rate / (price.epsilon * curator.n)
    unit = sigma * 2.0**-24
    steps = np.clip(np.rint(answers / unit), -(2.0**56), 2.0**56).astype(np.int64)
    known = IntTotals(steps, Sensitivity(0, math.inf), unit)
    return curator._releaser.gaussian(
        label, known, sigma / unit, price, share=share, claim=0, alone=False
    )
