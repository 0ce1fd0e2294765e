"""Noise by a sensitivity that is claimed, not proved. Results of it are marked asymptotic."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from dpeffects.privacy.guarantee import Noisy
from dpeffects.privacy.release import BoolArray, FloatArray, Holder

Estimator = Callable[[FloatArray, BoolArray, FloatArray], tuple[FloatArray, float]]
"""From covariates, treatment and outcome: answers, and their gross-error sensitivity."""


class ClaimedReleases(Holder):
    """Releases whose guarantee is a claim about large n."""

    def claimed_effects(self, estimator: Estimator, share: str) -> Noisy:
        """Release answers with noise by paper 001, Theorem 1 (claim 37, which has no proof).

        The scale of the noise is computed from the data, and is shown.
        """
        answers, gross = estimator(self._covariates(), self._rows.treated, self._rows.outcome)
        price = self._releaser.share(share)
        rate = 5.0 * math.sqrt(2.0 * math.log(self.n) * math.log(2.0 / price.delta))
        sigma = max(gross, 1e-12) * rate / (price.epsilon * self.n)
        unit = sigma * 2.0**-24
        steps = np.clip(np.rint(answers / unit), -(2.0**56), 2.0**56).astype(np.int64)
        return self._releaser.claimed_gaussian(
            "effects at points (claimed)", steps, sigma / unit, unit, share=share, claim=37
        )
