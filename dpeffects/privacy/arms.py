"""Counts and sums by arm."""

from __future__ import annotations

import numpy as np

from dpeffects.privacy.guarantee import Noisy
from dpeffects.privacy.release import Holder
from dpeffects.privacy.sums import Grid


class ArmReleases(Holder):
    """Releases about the two arms as wholes."""

    def treated_count(self, share: str) -> Noisy:
        """Release the number of treated records; free where treatment is public (claim 6)."""
        count = self._source.by_arm("count")[:1]
        if self.is_public("treatment"):
            return Noisy(count.astype(np.float64), 0.0)
        return self._releaser.release("treated count", count, 1, 1.0, share=share, claim=6)

    def arm_sums(self, share: str) -> Noisy:
        """Release the sums of y - middle over (treated, control) (claim 7)."""
        grid = Grid.for_sum(self.outcome_range, self.n, self.epsilon(share))
        sums = self._source.by_arm("sum", grid)
        return self._releaser.release(
            "outcome sums by arm", sums, grid.span, grid.unit, share=share, claim=7
        )

    def arm_squares(self, share: str) -> Noisy:
        """Release the sums of z^2 - 1/2 over (treated, control) (claim 7).

        z is the outcome scaled to [-1, 1]; centring the square halves what one record can do when
        it moves from one arm to the other.
        """
        grid = Grid.for_sum((0.0, 1.0), self.n, self.epsilon(share))
        sums = self._source.by_arm("square", grid)
        return self._releaser.release(
            "outcome squares by arm", sums, grid.span, grid.unit, share=share, claim=7
        )
