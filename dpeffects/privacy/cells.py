"""Strata by their counts: how one record can move exact matching on them.

The estimate is f = (1/n) sum of w_i (y_i over treated, -y_i over controls) over the strata that
have both arms; all others contribute 0. A stratum with t treated and c controls has the weights

- "means": 1 + c/t for treated, 1 + t/c for controls, which is n_x times the difference in means;
- "round_robin": 1 + the number of records of the other arm that are dealt to a record in turn.

Everything that one record can do follows from the counts (t, c), so the smooth sensitivities are
functions of the distinct counts alone: claims 13, 14, 18 and 19 of PROOFS.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from dpeffects.privacy.rows import sums_by_cell
from dpeffects.privacy.smooth import smooth_bound

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Counts:
    """Treated and control records of each occupied stratum; ``empty``: some stratum has none.

    Examples
    --------
    >>> counts = Counts(np.array([50, 40]), np.array([50, 60]), empty=False)
    >>> counts.estimate_sensitivity(beta=1.0)  # doctest: +ELLIPSIS
    4.96...
    >>> counts.estimate_sensitivity(beta=0.01) > 10  # few records away from worse
    True
    """

    treated: IntArray
    control: IntArray
    empty: bool

    @property
    def n(self) -> int:
        """Number of records."""
        return int(self.treated.sum() + self.control.sum())

    @cached_property
    def _worst(self) -> tuple[FloatArray, FloatArray, float]:
        """Larger and smaller arms that matter, and the largest stratum with one arm (or -1).

        A stratum matters only if no other has both a larger arm at least as large and a smaller
        arm at most as large.
        """
        large = np.maximum(self.treated, self.control)
        small = np.minimum(self.treated, self.control)
        lone = float(large[small == 0].max(initial=0 if self.empty else -1))
        large, small = large[small > 0], small[small > 0]
        order = np.lexsort((-large, small))
        large, small = large[order], small[order]
        before = np.maximum.accumulate(np.concatenate([[0], large]))[:-1]
        keep = large > before
        return large[keep].astype(np.float64), small[keep].astype(np.float64), lone

    def ratios(self, k: FloatArray, whole: bool = False) -> tuple[FloatArray, FloatArray]:
        """Largest c/t (or t/c) of a stratum with both arms, and c/(t+1), k replacements away.

        -1 stands for "none". ``whole`` rounds up, for round-robin weights.
        """
        large, small, lone = self._worst
        k = k[:, None]
        leave = ((large + k) / np.maximum(small - k, 1.0)).max(axis=1, initial=-1.0)
        join = ((large + k) / (np.maximum(small - k, 0.0) + 1.0)).max(axis=1, initial=-1.0)
        k = k[:, 0]
        if lone >= 0:
            leave = np.maximum(leave, np.where((k >= 1) & (lone + k >= 2), lone + k - 1.0, -1.0))
            join = np.maximum(join, np.where(lone + k >= 1, lone + k, -1.0))
        return (np.ceil(leave), np.ceil(join)) if whole else (leave, join)

    def estimate_sensitivity(
        self, beta: float, weights: str = "means", paper: bool = False
    ) -> float:
        """Smooth sensitivity of n f / B for an outcome of range B (claims 13, 14).

        ``paper`` gives 4 (1 + max R_x), the printed bound.
        """
        most = float(self.n + 1)

        def levels(k: FloatArray) -> FloatArray:
            leave, join = self.ratios(k, whole=weights == "round_robin")
            return (1.0 + leave) + (1.0 + join)

        if paper:
            return smooth_bound(self._printed, beta, 4.0 * most)
        return smooth_bound(levels, beta, most)

    def _printed(self, k: FloatArray) -> FloatArray:
        """4 (1 + R^(k)); R gains 1 for k >= min(t, c) >= 1, where the printed one is not smooth."""
        large, small, lone = self._worst
        ratio = np.ceil((large + k[:, None] + 1.0) / np.maximum(small - k[:, None], 1.0))
        worst = ratio.max(axis=1, initial=0.0)
        return 4.0 * (1.0 + (np.maximum(worst, lone + k) if lone >= 0 else worst))

    def variance_sensitivity(self, beta: float, weights: str = "means") -> float:
        """Smooth sensitivity of n^2 V / B^2, V the sampling variance (claim 19)."""

        def levels(k: FloatArray) -> FloatArray:
            leave, _ = self.ratios(k + 1.0, whole=weights == "round_robin")
            return capped_sensitivity(np.clip(1.0 + leave, 2.0, self.n))

        return smooth_bound(levels, beta, float(capped_sensitivity(np.array([self.n]))[0]))


def capped_sensitivity(cap: FloatArray) -> FloatArray:
    """Sensitivity of n^2 V / B^2 when weights count up to ``cap`` >= 2 (claim 18)."""
    return 1.75 * cap**2 - 0.5 * cap + 2.0


@dataclass(frozen=True)
class Strata:
    """Counts by stratum and arm, and what matching makes of sums by cell.

    Cells are control and treated of the first stratum, of the second, and so on: ``cell`` is twice
    the stratum, plus one for treated records. It is None where the rows are not in memory;
    "round_robin" weights need it.
    """

    counts: Counts
    cell: IntArray | None = None

    @classmethod
    def of(cls, index: IntArray, declared: int, treated: BoolArray) -> Strata:
        """Count records by stratum and arm; strata without records are dropped."""
        if declared > 4 * index.size + 2**20:  # too many to count one by one
            found, index = np.unique(index, return_inverse=True)
            size = int(found.size)
        else:
            size = declared
        cell = 2 * index + treated
        made = cls.counted(np.bincount(cell, minlength=2 * size))
        counts = Counts(made.counts.treated, made.counts.control, True)
        return cls(counts if size < declared else made.counts, cell)

    @classmethod
    def counted(cls, sizes: IntArray) -> Strata:
        """Strata by the sizes of their cells alone."""
        pairs = sizes.reshape(-1, 2)
        return cls(Counts(pairs[:, 1], pairs[:, 0], bool((pairs.sum(axis=1) == 0).any())))

    @cached_property
    def sizes(self) -> IntArray:
        """Records in each cell: control and treated of the first stratum, of the second, ..."""
        return np.stack([self.counts.control, self.counts.treated], axis=1).reshape(-1)

    @property
    def others(self) -> IntArray:
        """Records in the other arm of each cell's stratum."""
        return self.sizes.reshape(-1, 2)[:, ::-1].reshape(-1)

    def sums(self, values: IntArray) -> IntArray:
        """Exact sums by cell of integers below 2^31."""
        assert self.cell is not None
        return sums_by_cell(values, self.cell, self.sizes.size)

    def contrast(self, values: IntArray, weights: str) -> int:
        """n f in units of the values; "means" rounds each arm of a stratum down."""
        if weights == "round_robin":
            assert self.cell is not None
            values = values * self._dealt(self.cell)
            return int(values[self.cell % 2 == 1].sum() - values[self.cell % 2 == 0].sum())
        return self.contrast_of(self.sums(values))

    def contrast_of(self, sums: IntArray) -> int:
        """n f by "means" from the sums of values by cell."""
        own, other = self.sizes, self.others
        both = (own > 0) & (other > 0)
        sums, own, other = sums[both], own[both], other[both]
        whole, rest = np.divmod(sums, own)
        # (own + other) sums / own, without a product that could overflow
        part = sums + other * whole + (other * rest) // own
        treated = np.flatnonzero(both) % 2 == 1
        return int(part[treated].sum() - part[~treated].sum())

    def _dealt(self, cell: IntArray) -> IntArray:
        """Round-robin weight of each record: 1 + how often the other arm is dealt to it."""
        order = np.argsort(cell, kind="stable")
        starts = np.cumsum(self.sizes) - self.sizes
        own, other = self.sizes[cell], self.others[cell]
        rank = np.empty_like(cell)
        rank[order] = np.arange(cell.size) - starts[cell[order]]
        times = np.maximum(other - rank + own - 1, 0) // own
        return np.where(other > 0, 1 + times, 0)

    def squares(self, values: IntArray, half: int, weights: str, cap: float) -> FloatArray:
        """Sum of squared weights times the variance within, by cell (claim 18).

        Weights count up to ``cap``. A cell of one record has the largest variance, half^2, where
        |values| <= half.
        """
        return self.squares_of(self.sums(values), self.sums(values * values), half, weights, cap)

    def squares_of(
        self, sums: IntArray, squares: IntArray, half: int, weights: str, cap: float
    ) -> FloatArray:
        """The same from the sums of values and of their squares by cell."""
        used = self.sizes > 0
        own, other = self.sizes[used], self.others[used]
        whole, rest = np.divmod(sums[used], own)
        # squares - sums^2 / own, in whole numbers but for the last term
        within = squares[used] - whole * whole * own - 2 * whole * rest - rest * rest / own
        spread = np.where(own > 1, within / np.maximum(own - 1, 1), float(half) ** 2)
        if weights == "round_robin":
            times, more = np.divmod(other, own)
            load = more * np.minimum(2.0 + times, cap) ** 2
            load += (own - more) * np.minimum(1.0 + times, cap) ** 2
        else:
            load = own * np.minimum(1.0 + other / own, cap) ** 2
        return np.asarray(load * spread)
