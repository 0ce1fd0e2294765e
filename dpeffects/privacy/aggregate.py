"""Sample and aggregate: any estimator, fitted in disjoint blocks of records, averaged with noise.

In the secret order of the records, place i is in block i mod K. One record is in one block, so that
it moves one of K answers, and the answers are clipped to a declared interval. All that is asked of
the estimator is that what it answers in a block is a function of that block.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from dpeffects.errors import EstimationError, OptionError, PrivacyError
from dpeffects.privacy.bounds import Interval
from dpeffects.privacy.guarantee import Noisy
from dpeffects.privacy.noise import fixed_generator
from dpeffects.privacy.release import BoolArray, FloatArray, Holder, IntArray
from dpeffects.privacy.sums import Grid
from dpeffects.progress import bar

BlockAnswer = Callable[[FloatArray, BoolArray, FloatArray], npt.ArrayLike]
"""(covariates in [0, 1]^d, treated, outcome) of a block -> numbers.

What it keeps in itself is copied for each block. It must keep nothing elsewhere from one call to
the next: in a closure or a default argument, a class or a module, a file (claim 38).
"""


def answer(
    learner: BlockAnswer,
    rows: tuple[FloatArray, BoolArray, FloatArray],
    size: int,
    block: int = 0,
) -> FloatArray:
    """Return what a learner says of one block: a function of these rows and of the block's number.

    The learner is copied, and global generators (`fixed_generator`) are set by the block's number,
    so that nothing is carried over from other blocks. Warnings are silenced. Raises whatever the
    learner raises, and `EstimationError` where it does not return ``size`` finite numbers.
    """
    with warnings.catch_warnings(), np.errstate(all="ignore"), fixed_generator(block):
        warnings.simplefilter("ignore")
        found = np.asarray(copy.deepcopy(learner)(*rows), dtype=np.float64)
    if found.shape != (size,) or not np.isfinite(found).all():
        raise EstimationError(f"a learner must return {size} finite numbers")
    return found


class AggregateReleases(Holder):
    """Releases of averages over blocks."""

    _answered: tuple[IntArray, Grid] | None = None

    def block_answers(
        self,
        label: str,
        learner: BlockAnswer,
        blocks: int,
        interval: Interval,
        size: int,
        share: str,
    ) -> Noisy:
        """Release the mean over blocks of ``size`` answers, clipped to an interval (claim 38).

        A block in which the learner fails answers with the middle of the interval.
        """
        if not (2 <= blocks <= self.n and size >= 1 and interval[0] < interval[1]):
            raise OptionError("blocks must be from 2 to n, and the interval must not be empty")
        grid = Grid.for_sum(interval, blocks, self.epsilon(share), float(size))
        steps = self._steps(learner, blocks, size, grid)
        self._answered = steps, grid
        return self._mean(label, steps, grid, 1.0, share, claim=38)

    def block_squares(self, label: str, share: str) -> Noisy:
        """Release the mean over blocks of the squares of the last answers (claim 39).

        Squares are taken about the middle of the interval.
        """
        if self._answered is None:
            raise PrivacyError("no block has answered yet; nothing drawn")
        steps, answers = self._answered
        blocks, size = steps.shape
        grid = Grid.for_sum((0.0, 1.0), blocks, self.epsilon(share), float(size))
        squares = grid.encode((steps / 2.0**answers.bits) ** 2)
        half = (answers.upper - answers.lower) / 2.0
        return self._mean(label, squares, grid, half**2, share, claim=39)

    def _mean(
        self, label: str, steps: IntArray, grid: Grid, factor: float, share: str, *, claim: int
    ) -> Noisy:
        """Release the mean over blocks (the rows of ``steps``), times a public factor."""
        blocks, size = steps.shape
        noisy = self._releaser.release(
            label,
            steps.sum(axis=0),
            size * grid.span,
            factor * grid.unit / blocks,
            share=share,
            claim=claim,
            l2=math.sqrt(size) * grid.span,
        )
        return replace(noisy, value=noisy.value + factor * grid.middle)

    def _steps(self, learner: BlockAnswer, blocks: int, size: int, grid: Grid) -> IntArray:
        """Encoded answers, a row for each block; zero, the middle, where the learner fails."""
        x, treated, outcome = self._covariates(), self._rows.treated, self._rows.outcome
        steps = np.zeros((blocks, size), dtype=np.int64)
        for block in bar(range(blocks), "blocks"):
            own = slice(block, None, blocks)
            rows = x[own].copy(), treated[own].copy(), outcome[own].copy()
            try:
                found = answer(learner, rows, size, block)
            except (Exception, SystemExit):
                continue  # nothing may fail because of what is in a block
            steps[block] = grid.encode(found)
        return steps
