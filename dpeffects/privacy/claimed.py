"""Releases without a proof: noise by a claimed sensitivity, and none where all is public.

Results of the former are marked asymptotic, of the latter as not private.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TypeVar

import numpy as np

from dpeffects.privacy.guarantee import Noisy
from dpeffects.privacy.release import BoolArray, FloatArray, Holder

Estimator = Callable[[FloatArray, BoolArray, FloatArray], tuple[FloatArray, float]]
"""From covariates, treatment and outcome: answers, and their gross-error sensitivity."""
Answer = tuple[float, float]
"""A number and its gross-error sensitivity."""
T = TypeVar("T")


class ClaimedReleases(Holder):
    """Releases whose guarantee is a claim about large n, or none."""

    def claimed_effects(self, estimator: Estimator, share: str) -> Noisy:
        """Release answers with noise by paper 001, Theorem 1 (claim 37, which has no proof).

        The scale of the noise is computed from the data, and is shown.
        """
        answers, gross = estimator(self._covariates(), self._rows.treated, self._rows.outcome)
        return self._claimed("effects at points (claimed)", answers, gross, share)

    def claimed_moments(
        self,
        estimator: Callable[[FloatArray, BoolArray, FloatArray], Mapping[str, Answer]],
    ) -> dict[str, Noisy]:
        """Release numbers by the share that each is named after, with the same noise (claim 37).

        Numbers without a share are not released.
        """
        found = estimator(self._covariates(), self._rows.treated, self._rows.outcome)
        return {
            share: self._claimed(f"{share} (claimed)", np.array([value]), gross, share)
            for share, (value, gross) in found.items()
            if self.has(share)
        }

    def unprotected(self, function: Callable[[FloatArray, BoolArray, FloatArray], T]) -> T:
        """Return a function of the rows as it is: only where a call takes all of them as public."""
        for what in ("covariates", "treatment", "outcome"):
            self._require_public(what)
        rows = self._source.held("this step needs all rows at once")
        return function(rows.covariates(), rows.treated, rows.outcome)

    def _claimed(self, label: str, answers: FloatArray, gross: float, share: str) -> Noisy:
        price = self._releaser.share(share)
        rate = 5.0 * math.sqrt(2.0 * math.log(self.n) * math.log(2.0 / price.delta))
        sigma = max(gross, 1e-12) * rate / (price.epsilon * self.n)
        unit = sigma * 2.0**-24
        steps = np.clip(np.rint(answers / unit), -(2.0**56), 2.0**56).astype(np.int64)
        return self._releaser.claimed_gaussian(
            label, steps, sigma / unit, unit, share=share, claim=37
        )
