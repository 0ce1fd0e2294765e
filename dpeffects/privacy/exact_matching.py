"""Exact matching on strata: what one record can do to it, and its releases (claims 13-19).

The estimate is f = (1/n) sum of w_i (y_i over treated, -y_i over controls) over the strata that
have both arms; all others contribute 0. A stratum with t treated and c controls has the weights

- "means": 1 + c/t for treated, 1 + t/c for controls, which is n_x times the difference in means;
- "round_robin": 1 + the number of records of the other arm that are dealt to a record in turn.

Everything that one record can do follows from the counts (t, c), so the smooth sensitivities are
functions of the distinct counts alone. Where the noise follows a smooth sensitivity, that is
private: it is released once by its logarithm, or not at all, and only what was released is ever
shown.

*Noise whose scale is private.* A value f gets noise (S / rate) X, where S is private, bounds what
one record can do to f, and ln S itself moves by at most beta between neighbours (Nissim,
Raskhodnikova and Smith 2007); X is a Laplace variable of scale 1. `excess` is the exact price of
that (claim 15). X is drawn on a lattice far finer than the public grid to which the sum is rounded,
so that the private spacing of the lattice cannot be seen (claim 16).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, partial
from typing import ClassVar

import numpy as np

from dpeffects.arrays import FloatArray, IntArray
from dpeffects.errors import OptionError
from dpeffects.privacy.budget import Share
from dpeffects.privacy.charges import NoisyValue
from dpeffects.privacy.curator import Curator
from dpeffects.privacy.domains import COUNT, Box, BoxGrid, IntTotals, Sensitivity, add_up
from dpeffects.privacy.rows import Block, GroupIndex, Rows, Totals, reads

LATTICE = 2**56
"""The Laplace variable of scale 1 is drawn in steps of 1 / LATTICE."""
LEAST_BETA = 1e-5
_TAIL = math.exp(-120.0)
"""More than the chance that a draw leaves 64 bits, which is exp(-128)."""
_BLOCK = 512
_TIGHT = 1.0 - 2.0**-20
"""Bounds are smoothed a little less than beta, so that rounding cannot exceed beta (claim 14)."""
_FINE = 2**20
"""Steps in which a sensitivity is resolved."""
_COARSE = 2**12
"""The same for the variance under private noise, whose values reach n^2."""


@dataclass(frozen=True)
class Smoothing:
    """Noise of scale S / ``rate`` for an S whose logarithm moves by at most ``beta``."""

    rate: float
    beta: float

    def certified(self, price: Share) -> bool:
        """True when the noise is (epsilon, delta)-private at this price (claim 15)."""
        fits = self.rate > 0 and self.beta >= LEAST_BETA and self.rate + self.beta <= price.epsilon
        return fits and excess(price.epsilon, self) <= price.delta


def excess(epsilon: float, smoothing: Smoothing) -> float:
    """Smallest delta for which the noise is (epsilon, delta)-private, if rate + beta <= epsilon.

    Examples
    --------
    The printed choice rate = epsilon / 2, beta = epsilon / (2 ln(2 / delta)) needs far less than
    the delta it is made for:

    >>> excess(1.0, Smoothing(0.5, 0.5 / math.log(2e5))) < 1e-7
    True
    """
    rate, beta = smoothing.rate, smoothing.beta
    growth = math.expm1(beta)
    near = math.exp(-(epsilon - rate + beta) / growth)
    far = math.exp(-(epsilon + rate + beta) / growth)
    return -math.expm1(-beta) / 2.0 * (near + far) * (1.0 + 1e-9)


def smooth_bound(levels: Callable[[FloatArray], FloatArray], beta: float, most: float) -> float:
    """max over k of exp(-k beta) levels(k), for levels that never exceed ``most`` (claim 14).

    ``levels`` takes an array of numbers of replaced records; it is asked in blocks, and no more
    than about log(most) / beta of them matter.
    """
    best, k, beta = 0.0, 0, beta * _TIGHT
    while math.exp(-k * beta) * most > best:
        steps = np.arange(k, k + _BLOCK, dtype=np.float64)
        shrunk = np.exp(-steps * beta) * np.minimum(levels(steps), most)
        best, k = max(best, float(shrunk.max())), k + _BLOCK
    return best * (1.0 + 2.0**-40)


@dataclass(frozen=True)
class Lattice:
    """The public grid of a value with private noise, for S between ``least`` and ``most``."""

    least: float
    most: float

    @property
    def blur(self) -> float:
        """Relative gap between the chances of a grid cell under the lattice and under Laplace."""
        return 2.0 ** (4 + self._bits) * (self.most / self.least) / LATTICE

    @property
    def _bits(self) -> int:
        """Steps of the grid are this many powers of two below the least noise scale."""
        return 4 if self.most / self.least < 2.0**32 else 1

    def usable(self, price: Share) -> Share:
        """What is left of a price once the blur is paid for (claim 16)."""
        blur = self.blur
        return Share(price.epsilon - 3.0 * blur, price.delta * (1.0 - blur) - _TAIL)

    def times(self, factor: float) -> Lattice:
        """The same for a value in steps, ``factor`` of them to one."""
        return Lattice(self.least * factor, self.most * factor)

    def release(self, value: int, smooth: float, rate: float, draw: int) -> Fraction:
        """Round value + (smooth / rate) (draw / LATTICE) to the public grid, exactly."""
        step = Fraction(2) ** (math.frexp(self.least / rate)[1] - 1 - self._bits)
        scale = Fraction(min(max(smooth, self.least), self.most)) / Fraction(rate)
        exact = value + scale * Fraction(draw, LATTICE)
        return math.floor(exact / step + Fraction(1, 2)) * step


@dataclass(frozen=True)
class SmoothlyNoisy:
    """A private value and its private smooth sensitivity, both in steps of size ``unit``."""

    value: int
    smooth: float
    unit: float
    lattice: Lattice
    smoothing: Smoothing
    steps: ClassVar[int] = LATTICE

    @property
    def rate(self) -> float:
        """The scale of the noise is the sensitivity divided by this."""
        return self.smoothing.rate

    def affordable(self, price: Share) -> bool:
        """True when the noise is private at this price (claims 15, 16)."""
        return self.smoothing.certified(self.lattice.usable(price))

    def with_noise(self, draw: int) -> float:
        """The value with noise, on the public grid."""
        return float(self.lattice.release(self.value, self.smooth, self.rate, draw)) * self.unit


@dataclass(frozen=True)
class StratumCounts:
    """Treated and control records of each occupied stratum; ``empty``: some stratum has none.

    Examples
    --------
    >>> counts = StratumCounts(np.array([50, 40]), np.array([50, 60]), empty=False)
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
class Sizes:
    """Records by cell: control and treated of the first stratum, of the second, and so on."""

    sizes: IntArray

    @property
    def others(self) -> IntArray:
        """Records in the other arm of each cell's stratum."""
        return self.sizes.reshape(-1, 2)[:, ::-1].reshape(-1)

    def contrast(self, sums: IntArray) -> int:
        """n f by "means" from the sums of values by cell; each arm is rounded down."""
        own, other = self.sizes, self.others
        both = (own > 0) & (other > 0)
        sums, own, other = sums[both], own[both], other[both]
        whole, rest = np.divmod(sums, own)
        # (own + other) sums / own, without a product that could overflow
        part = sums + other * whole + (other * rest) // own
        treated = np.flatnonzero(both) % 2 == 1
        return int(part[treated].sum() - part[~treated].sum())

    def dealt_contrast(self, cell: IntArray, values: IntArray) -> int:
        """n f by "round_robin": 1 + how often the other arm is dealt to a record, in order."""
        order = np.argsort(cell, kind="stable")
        starts = np.cumsum(self.sizes) - self.sizes
        own, other = self.sizes[cell], self.others[cell]
        rank = np.empty_like(cell)
        rank[order] = np.arange(cell.size) - starts[cell[order]]
        times = np.maximum(other - rank + own - 1, 0) // own
        weighted = values * np.where(other > 0, 1 + times, 0)
        return int(weighted[cell % 2 == 1].sum() - weighted[cell % 2 == 0].sum())

    def squares(
        self, sums: IntArray, squares: IntArray, half: int, weights: str, cap: float
    ) -> FloatArray:
        """Sum of squared weights times the variance within, by cell (claim 18).

        ``sums`` and ``squares`` are those of whole values of at most ``half``. Weights count up to
        ``cap``. A cell of one record has the largest variance, half^2.
        """
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


@reads("strata", "treated")
def _cell(block: Block) -> IntArray:
    return np.where(block.strata >= 0, 2 * block.strata + block.treated, -1)


class MatchedStrata:
    """Releases of exact matching on the strata of a curator; ``weights`` as above."""

    def __init__(self, curator: Curator, weights: str) -> None:
        self._curator, self._weights = _few_strata(curator), weights
        if curator.weighted:
            raise OptionError("exact matching needs records that count alike")
        self._cells = GroupIndex(_cell, 2 * self._curator.n_strata)
        _, sizes, _ = self._curator.exact_sums(None, COUNT, self._cells, rate=1.0)
        self._sizes, self.n = Sizes(sizes[:, 0]), curator.n
        pairs = self._sizes.sizes.reshape(-1, 2)
        missing = self._curator.n_strata < curator.n_strata
        empty = missing or bool((pairs.sum(axis=1) == 0).any())
        self._counts = StratumCounts(pairs[:, 1], pairs[:, 0], empty)

    def _contrast(self, grid: BoxGrid) -> int:
        if self._weights != "round_robin":
            add = partial(_cell_sums, grid=grid, cells=self._cells)
            return self._sizes.contrast(self._curator._source.fold(add, "outcome", "strata")[0])
        rows = self._curator._rows  # records are dealt in turn: the only thing that goes by order
        assert rows.strata is not None
        cell = self._cells.of(Block(rows.treated, strata=rows.strata()[0]))
        return self._sizes.dealt_contrast(cell, grid.whole(rows.outcome))

    def _outcome_grid(self, share: str) -> BoxGrid:
        box, rate = Box(*self._curator.outcome_range), self._curator.epsilon(share)
        return box.on(2 * self.n, rate)

    def log_sensitivity(
        self, share: str, beta: float, paper: bool = False, part: float = 1.0
    ) -> NoisyValue:
        """Release ln of the smooth sensitivity of n f / B (claim 17)."""
        value = self._counts.estimate_sensitivity(beta, self._weights, paper)
        return self._log("smooth sensitivity", value, beta, share, part)

    def log_variance_sensitivity(self, share: str, beta: float, part: float = 1.0) -> NoisyValue:
        """Release ln of the smooth sensitivity of n^2 V / B^2 (claims 17, 19)."""
        value = self._counts.variance_sensitivity(beta, self._weights)
        return self._log("smooth sensitivity of the variance", value, beta, share, part)

    def _log(self, label: str, value: float, beta: float, share: str, part: float) -> NoisyValue:
        unit = beta / _FINE
        steps = np.array([round(math.log(value) / unit)], dtype=np.int64)
        log = IntTotals(steps, Sensitivity.of_number(_FINE + 2), unit)
        return self._curator._releaser.release(label, log, share=share, claim=17, part=part)

    def difference(
        self, share: str, smoothing: Smoothing, shown: float | None, paper: bool = False
    ) -> NoisyValue:
        """Release f with noise by its smooth sensitivity (claims 13-16).

        ``shown``, a released value, stands for the private sensitivity of f in the ledger; None
        leaves its place empty.
        """
        grid = self._outcome_grid(share)
        span = grid.reach.same.l1
        smooth = self._counts.estimate_sensitivity(smoothing.beta, self._weights, paper)
        private = SmoothlyNoisy(
            self._contrast(grid),
            smooth * span + 4.0,  # rounding in two strata, two arms each
            grid.unit / self.n,
            difference_lattice(self.n, paper).times(span),
            smoothing,
        )
        return self._curator._releaser.smooth_laplace(
            "matched difference", private, shown, share=share, claim=15
        )

    def difference_globally(self, share: str) -> NoisyValue:
        """Release n f by its global sensitivity (n + 1) B (claim 13)."""
        grid = self._outcome_grid(share)
        most = (self.n + 1) * grid.reach.same.l1 + 4
        steps = IntTotals(np.array([self._contrast(grid)]), Sensitivity.of_number(most), grid.unit)
        return self._curator._releaser.release("matched difference", steps, share=share, claim=13)

    def variance(self, share: str, cap: float) -> NoisyValue:
        """Release n^2 V, weights counted up to a public or released ``cap`` >= 2 (claim 18)."""
        cap, grid = max(cap, 2.0), self._square_grid()
        unit = float(capped_sensitivity(np.array([cap]))[0]) * grid.reach.same.l1**2 / _FINE
        squares, moves = self._square_steps(grid, cap, unit), Sensitivity.of_number(_FINE + 5)
        steps = IntTotals(np.array([squares]), moves, unit * grid.unit**2)
        return self._curator._releaser.release("matching variance", steps, share=share, claim=18)

    def smooth_variance(self, share: str, smoothing: Smoothing, shown: float) -> NoisyValue:
        """Release n^2 V with noise by its own smooth sensitivity (claims 15, 16, 19)."""
        grid = self._square_grid()
        unit = grid.reach.same.l1**2 / _COARSE
        smooth = self._counts.variance_sensitivity(smoothing.beta, self._weights)
        private = SmoothlyNoisy(
            self._square_steps(grid, math.inf, unit),
            smooth * _COARSE * (1.0 + 2.0**-20) + 5.0,  # rounding of cells, and of their floats
            unit * grid.unit**2,
            variance_lattice(self.n).times(_COARSE),
            smoothing,
        )
        return self._curator._releaser.smooth_laplace(
            "matching variance", private, shown, share=share, claim=19
        )

    def _square_grid(self) -> BoxGrid:
        bits = min(14, (52 - math.ceil(math.log2(self.n))) // 2)
        return Box(*self._curator.outcome_range).with_bits(max(2, bits))

    def _square_steps(self, grid: BoxGrid, cap: float, unit: float) -> int:
        add = partial(_cell_sums, grid=grid, cells=self._cells)
        sums, squares = self._curator._source.fold(add, "outcome", "strata")
        half = int(grid.ends[1][0])
        cells = self._sizes.squares(sums, squares, half, self._weights, cap)
        return int(np.rint(cells / unit).astype(np.int64).sum())


def difference_lattice(n: int, paper: bool = False) -> Lattice:
    """Grid of a matched difference; its smooth sensitivity never leaves these limits."""
    least, most = (8.0, 4.0 * (n + 1)) if paper else (1.0, n + 1.0)
    return Lattice(least, 2.0 * most)


def variance_lattice(n: int) -> Lattice:
    """Grid of a smooth variance; its smooth sensitivity never leaves these limits."""
    least, most = capped_sensitivity(np.array([2.0, max(2.0, n)]))
    return Lattice(float(least), 2.0 * float(most))


def _few_strata(curator: Curator) -> Curator:
    """The same records with the strata that have any, where too many are declared to count."""
    rows = curator._source
    if curator.n_strata <= 4 * curator.n + 2**20 or not isinstance(rows, Rows):
        return curator
    assert rows.strata is not None
    occupied, index = np.unique(rows.strata()[0], return_inverse=True)
    few = replace(rows, strata=lambda: (index, int(occupied.size)))
    return Curator(few, curator._releaser, curator._public)


def _cell_sums(block: Block, grid: BoxGrid, cells: GroupIndex) -> Totals:
    """Sums of whole outcomes by cell, and of their squares where those stay below 2^31."""
    values = grid.project(block.outcome[:, None].copy())
    if grid.ends[1][0] <= 2**15:
        values = np.concatenate([values, values * values], axis=1)
    return tuple(add_up(values, cells.of(block), cells.size).T)
