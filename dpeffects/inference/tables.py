"""Counts of records by arm and cell, released with noise, and the distribution of whatever they
give.

A record is in one cell of the table, so that the whole of it costs what one count does. Where
covariates are adjusted for, records count by their weights. Each arm of the table is then a
distribution over the cells: what all records would have under treatment, and under control.
Survival curves, quantiles, risks and ratios are functionals of the two.

The distribution of a functional is that of its linear part (the delta method): counts of a sample
are multinomial, and each has independent noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from dpeffects.arrays import FloatArray, OfArrays
from dpeffects.inference.estimate import ErrorPart, Estimate, SamplingVariance

Functional = Callable[[FloatArray], FloatArray]
"""From two distributions over the cells, (2, cells) for (treated, control), to some numbers."""
_STEP = 0.05
"""Step of numerical derivatives, in standard deviations of what is moved."""
_SINGLE = 12
"""Laplace terms that an interval has one by one; the others add up to about a normal one."""


def not_negative(values: FloatArray, total: float) -> FloatArray:
    """The closest numbers (least squares) that are not negative and have a known total.

    Examples
    --------
    >>> not_negative(np.array([5.0, -1.0, 2.0]), 5.0).tolist()
    [4.0, 0.0, 1.0]
    """
    falling = np.sort(values)[::-1]
    shifts = (np.cumsum(falling) - total) / np.arange(1, falling.size + 1)
    above = np.flatnonzero(falling > shifts)
    return np.asarray(np.maximum(values - shifts[above[-1] if above.size else 0], 0.0))


@dataclass(frozen=True)
class Confounding:
    """What weights by a released model leave of confounding, in a difference between arms.

    Variances are per unit of the squared mean deviation of what is compared: covariates explain
    little of a rare event. ``prior`` is that of the confounding before anything is seen. Weights
    remove the part ``kept`` of it, and leave a part whose mean square is ``part``; ``moved`` is the
    variance by noise in the slopes and by truncated weights. ``far`` says how far each arm is from
    the population.
    """

    prior: float
    kept: float = 0.0
    part: float = 1.0
    moved: float = 0.0
    far: tuple[float, float] = (0.5, 0.5)

    def left(
        self, unit: FloatArray, removed: FloatArray | None = None, error: FloatArray | None = None
    ) -> FloatArray:
        """Variances that are left in some numbers, whose squared mean deviations are ``unit``.

        ``removed`` is what the weights took away from each, where that is known, with a variance by
        sampling and noise of ``error``: it says how strong confounding is.
        """
        square, moved = self.prior * unit, self.moved * unit
        if removed is not None and error is not None:
            seen = self.kept**2 * square + error + moved
            pull = self.kept * square / np.maximum(seen, 1e-300)
            square = (pull * removed) ** 2 + square * (1.0 - self.kept * pull)
        return np.asarray(moved + self.part * square)


@dataclass(frozen=True, eq=False)
class ArmTable(OfArrays):
    """Released counts by arm and cell; they can come out negative.

    ``counts`` has the axes (treated and control, cells), and ``noise_variance`` is that of the
    noise in each count of an arm, Laplace unless ``gaussian``. Where records count by weights,
    ``unequal`` is the mean of squared weights over the mean weight, by arm; otherwise it is 1.
    ``confounding`` is what is left of it, None where treatment was randomised, and ``unadjusted``
    the table without weights, where it is released too. ``exact`` says that the sums of the arms
    are public, and that the counts add up to them.
    """

    counts: FloatArray
    noise_variance: tuple[float, float]
    unequal: tuple[float, float] = (1.0, 1.0)
    gaussian: bool = False
    confounding: Confounding | None = None
    unadjusted: ArmTable | None = None
    exact: bool = False

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
        return np.stack([not_negative(row, max(float(row.sum()), 0.0)) for row in self.counts])

    def with_weights(self, unequal: float) -> ArmTable:
        """The same where records have weights, whose mean square is so many times their mean."""
        one, other = (unequal * own for own in self.unequal)
        return replace(self, unequal=(one, other))

    def statistics(self, functional: Functional, stacked: bool = False) -> TableStatistics:
        """The distribution of some numbers that are made of the two distributions.

        ``stacked`` says that the functional takes pairs of distributions on leading axes too.
        """
        values = np.atleast_1d(np.asarray(functional(self.shares), float))
        gradient = self._by_share(functional, stacked)
        mean = np.einsum("rac,ac->ra", gradient, self.shares)
        moves = (gradient - mean[:, :, None]) / self.sizes[:, None]
        squares = self.plausible * np.array(self.unequal)[:, None]
        sampling = (moves * squares).reshape(values.size, -1) @ moves.reshape(values.size, -1).T
        noisy = moves * np.sqrt(self.noise_variance)[:, None]
        if self.exact:
            noisy = noisy - noisy.mean(axis=2, keepdims=True)
        none = np.zeros_like(sampling)
        dist = TableStatistics(
            values, sampling, noisy.reshape(values.size, -1), none, self.gaussian
        )
        if self.confounding is None:
            return dist
        influence = gradient - mean[:, :, None]
        return replace(dist, left=self._left(self.confounding, functional, influence, dist))

    def _left(
        self,
        about: Confounding,
        functional: Functional,
        influence: FloatArray,
        dist: TableStatistics,
    ) -> FloatArray:
        """Covariance of some numbers by confounding that the weights leave.

        It moves the distribution of each arm, by as much as its weights had to. Where the table
        without weights is there too, what they removed says how strong confounding is.
        """
        shares = self.plausible / self.sizes[:, None]
        part = np.square(about.far) / max(float(np.square(about.far).sum()), 1e-300)
        covariance = np.einsum("a,rac,ac,sac->rs", part, influence, shares, influence)
        unit = np.square(np.einsum("rac,ac->ra", np.abs(influence), shares)) @ part
        removed = error = None
        if self.unadjusted is not None:
            moves = influence / self.unadjusted.sizes[:, None]
            noise = np.square(moves).sum(axis=2) @ self.unadjusted.noise_variance
            removed = np.nan_to_num(functional(self.unadjusted.shares) - dist.values)
            error = noise + np.diag(dist.noise) + np.diag(dist.sampling) / 2.0
        scale = np.sqrt(about.left(unit, removed, error) / np.maximum(np.diag(covariance), 1e-300))
        return np.asarray(covariance * np.outer(scale, scale))

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


@dataclass(frozen=True, eq=False)
class TableStatistics:
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

    def estimate(self, i: int = 0, possible: tuple[float, float] | None = None) -> Estimate:
        """One number, ready for intervals and tests: its distribution has its largest noises."""
        variance, left = float(self.sampling[i, i]), float(self.left[i, i])
        scales = np.sort(np.abs(self.moves[i]))[::-1]
        single = scales[:0] if self.gaussian else scales[:_SINGLE] / math.sqrt(2.0)
        return Estimate(
            float(self.values[i]),
            SamplingVariance(variance, 0.0, max(variance, 1e-300)),
            laplace=tuple(float(x) for x in single if x > 0.0),
            gaussian=float((scales[single.size :] ** 2).sum()),
            parts=(ErrorPart("residual confounding from the shrunken model", left),)
            if left > 0.0
            else (),
            possible=possible,
        )
