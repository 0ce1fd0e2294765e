"""Counts of records by arm and cell, released with noise, and the law of whatever they give.

A record is in one cell of the table, so that the whole of it costs what one count does. Where
covariates are adjusted for, records count by their weights. Each arm of the table is then a
distribution over the cells: what all records would have under treatment, and under control.
Survival curves, quantiles, risks and ratios are functionals of the two.

The law of a functional is that of its linear part (the delta method): counts of a sample are
multinomial, and each has independent noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dpeffects.arrays import FloatArray
from dpeffects.inference.estimate import Estimate, Part, SamplingVariance

Functional = Callable[[FloatArray], FloatArray]
"""From two distributions over the cells, (2, cells) for (treated, control), to some numbers."""
_STEP = 0.05
"""Step of numerical derivatives, in standard deviations of what is moved."""
_SINGLE = 12
"""Laplace terms that an interval has one by one; the others add up to about a normal one."""


@dataclass(frozen=True, eq=False)
class ArmTable:
    """Released counts by arm and cell; they can come out negative.

    ``counts`` has the axes (treated and control, cells), and ``noise_variance`` is that of the
    noise in each count of an arm, Laplace unless ``gaussian``. Where records count by weights,
    ``unequal`` is the mean of squared weights over the mean weight, by arm; otherwise it is 1.
    ``left`` is what noise and shrinkage of a propensity model leave of the confounding: a variance,
    in units of the variance that the average over one record has.
    """

    counts: FloatArray
    noise_variance: tuple[float, float]
    unequal: tuple[float, float] = (1.0, 1.0)
    gaussian: bool = False
    left: float = 0.0

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ArmTable):
            return NotImplemented
        names = ("noise_variance", "unequal", "gaussian", "left")
        same = all(getattr(self, name) == getattr(other, name) for name in names)
        return same and np.array_equal(self.counts, other.counts)

    __hash__ = None  # type: ignore[assignment]

    @property
    def sizes(self) -> FloatArray:
        """Records of each arm, or their weights; at least one."""
        return np.maximum(self.counts.sum(axis=1), 1.0)

    @cached_property
    def shares(self) -> FloatArray:
        """Two distributions over the cells as released: entries are not always within [0, 1]."""
        return self.counts / self.sizes[:, None]

    @cached_property
    def plausible(self) -> FloatArray:
        """The counts moved to the nearest that are not negative, with the same sums."""
        return np.stack([_not_negative(row) for row in self.counts])

    def law(self, functional: Functional, stacked: bool = False) -> TableLaw:
        """The law of some numbers that are made of the two distributions.

        ``stacked`` says that the functional takes pairs of distributions on leading axes too.
        """
        values = np.atleast_1d(np.asarray(functional(self.shares), float))
        gradient = self._by_share(functional, stacked)
        mean = np.einsum("rac,ac->ra", gradient, self.shares)
        moves = (gradient - mean[:, :, None]) / self.sizes[:, None]
        squares = self.plausible * np.array(self.unequal)[:, None]
        sampling = (moves * squares).reshape(values.size, -1) @ moves.reshape(values.size, -1).T
        noisy = moves * np.sqrt(self.noise_variance)[:, None]
        left = self.left / max(float(np.sum(1.0 / self.sizes)), 1e-300) * sampling
        return TableLaw(values, sampling, noisy.reshape(values.size, -1), left, self.gaussian)

    def _by_share(self, functional: Functional, stacked: bool) -> FloatArray:
        """Derivatives by the entries of the two distributions: (numbers, 2, cells)."""
        at, sizes = self.shares, self.sizes[:, None]
        noise = np.array(self.noise_variance)[:, None]
        spread = (np.abs(at) + 1.0 / sizes) / sizes + noise / sizes**2
        steps = np.maximum(_STEP * np.sqrt(spread), 1e-7).ravel()
        moved = np.diag(steps).reshape(steps.size, *at.shape)
        if stacked:
            change = functional(at + moved) - functional(at - moved)
        else:
            pairs = [(functional(at + move), functional(at - move)) for move in moved]
            change = np.array([np.atleast_1d(np.subtract(*pair)) for pair in pairs])
        found: FloatArray = np.nan_to_num(change / (2.0 * steps[:, None])).T
        return found.reshape(-1, *at.shape)


def together(tables: Sequence[ArmTable]) -> ArmTable:
    """Tables of disjoint groups of records, such as sites, as one.

    Within each group both arms count for all of its records, so that groups that differ in their
    outcomes and in how many are treated do not confound the two.
    """
    sizes = np.array([table.sizes for table in tables])
    total = sizes.sum(axis=1)
    factor = total[:, None] / sizes
    counts = sum(f[:, None] * table.counts for f, table in zip(factor, tables, strict=True))
    noise = factor**2 * np.array([table.noise_variance for table in tables])
    squares = factor**2 * sizes * np.array([table.unequal for table in tables])
    one, other = noise.sum(axis=0).tolist()
    first, second = (squares.sum(axis=0) / (factor * sizes).sum(axis=0)).tolist()
    left = float(((total / total.sum()) ** 2) @ [table.left for table in tables])
    gaussian = all(table.gaussian for table in tables)
    return ArmTable(np.asarray(counts), (one, other), (first, second), gaussian, left)


def _not_negative(counts: FloatArray) -> FloatArray:
    """The nearest counts with the same sum that are not negative; none where the sum is not."""
    total = float(counts.sum())
    if total <= 0.0:
        return np.zeros_like(counts)
    down = np.sort(counts)[::-1]
    over = (np.cumsum(down) - total) / np.arange(1, counts.size + 1)
    last = int(np.flatnonzero(down > over)[-1])
    return np.maximum(counts - over[last], 0.0)


@dataclass(frozen=True, eq=False)
class TableLaw:
    """Numbers made of a table, with the errors of each by sampling and by noise.

    ``sampling`` is a covariance matrix; ``moves`` says by how much a standard deviation of the
    noise in each count moves each number; ``left`` is the covariance that is allowed for
    confounding that the weights leave.
    """

    values: FloatArray
    sampling: FloatArray
    moves: FloatArray
    left: FloatArray
    gaussian: bool = False

    @property
    def noise(self) -> FloatArray:
        """Covariance matrix of the privacy noise."""
        return self.moves @ self.moves.T

    @property
    def covariance(self) -> FloatArray:
        """Covariance matrix of all errors."""
        return self.sampling + self.noise + self.left

    @property
    def sd(self) -> FloatArray:
        """Standard errors."""
        return np.sqrt(np.maximum(np.diag(self.covariance), 0.0))

    def estimate(self, i: int = 0, possible: tuple[float, float] | None = None) -> Estimate:
        """One of the numbers, ready for intervals and tests: its law has its largest noises."""
        variance, left = float(self.sampling[i, i]), float(self.left[i, i])
        scales = np.sort(np.abs(self.moves[i]))[::-1]
        single = scales[:0] if self.gaussian else scales[:_SINGLE] / math.sqrt(2.0)
        return Estimate(
            float(self.values[i]),
            SamplingVariance(variance, 0.0, max(variance, 1e-300)),
            laplace=tuple(float(x) for x in single if x > 0.0),
            gaussian=float((scales[single.size :] ** 2).sum()),
            parts=(Part("confounding left by the model", left),) if left > 0.0 else (),
            possible=possible,
        )
