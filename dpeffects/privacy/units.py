"""Rows that do not count alike: weights, units of several rows, sums of clusters (claims 29, 30).

A row's weight is from 0 to 1, and the weights of the rows of one unit add up to at most 1. So what
a unit adds to a sum is a weighted mean of contributions and of 0: it moves the sum no further than
one record would.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np

from dpeffects.arrays import BoolArray, FloatArray, IntArray, Interval
from dpeffects.errors import OptionError
from dpeffects.privacy.charges import Noisy
from dpeffects.privacy.curator import Curator, all_reads, values_of
from dpeffects.privacy.release import Split
from dpeffects.privacy.rows import (
    MOST_ROWS,
    Block,
    ByRecord,
    Cells,
    Phi,
    Records,
    RowFunction,
    Rows,
    Source,
    Summand,
    Totals,
    evaluate,
    rehearse,
)
from dpeffects.privacy.sets import Box, BoxGrid, Sensitivity, Steps

_SQUARE_BITS = 43
"""Sums of clusters are below 2^43 steps, so that their squares are made of 64-bit integers."""
_TOP = 56

T = TypeVar("T")


@dataclass(frozen=True)
class UnitSizes:
    """How many rows with a weight each unit has: ``names`` in rising order, ``rows`` of each."""

    names: IntArray
    rows: IntArray

    @classmethod
    def of(cls, unit: IntArray, counts: BoolArray) -> UnitSizes:
        """Count the rows of units, those that count; a unit may have none."""
        names, place = np.unique(unit, return_inverse=True)
        return cls(names, np.bincount(place, counts, names.size).astype(np.int64))

    def of_rows(self, unit: IntArray) -> IntArray:
        """For each row, how many its unit has."""
        return self.rows[np.searchsorted(self.names, unit)]


def row_weights(
    own: FloatArray, rows: IntArray | None = None, max_rows: int | None = None
) -> FloatArray:
    """Weights in steps of 2^-16 (claim 29): ``own`` within [0, 1], divided among a unit's rows.

    Each unit counts once, or, with ``max_rows``, each row counts 1/max_rows, unless its unit has
    more: then these share what ``max_rows`` have. What is no number counts as nothing.
    """
    inside = np.clip(np.nan_to_num(own, nan=0.0, posinf=1.0, neginf=0.0), 0.0, 1.0)
    each: IntArray | int = MOST_ROWS
    if rows is not None:
        each = MOST_ROWS // np.maximum(rows, max_rows or 1)
    return np.floor(inside * each) / MOST_ROWS


@dataclass(frozen=True)
class View:
    """Rows seen in another way: with less weight, another treatment, outcome or covariates.

    Its row functions are not trusted: a ``factor`` is brought into [0, 1], and only makes weights
    smaller (claim 29). Who is treated is who has more than 1/2. Another ``outcome`` lies within
    ``ends``, or is their middle where it is no number. Rows with another outcome alone count as
    they did.
    """

    source: Source
    factor: RowFunction | None = None
    treatment: RowFunction | None = None
    matrix: RowFunction | None = None
    names: tuple[str, ...] = ()
    values: tuple[int, ...] = ()
    outcome: RowFunction | None = None
    ends: Interval | None = None

    @property
    def weighted(self) -> bool:
        """Whether rows have weights."""
        return self.outcome is None or self.source.weighted

    @property
    def arms(self) -> int:
        """Number of arms: two, where it is said who is treated."""
        return self.source.arms if self.treatment is None else 2

    @property
    def n(self) -> int:
        """Number of records or units."""
        return self.source.n

    @property
    def most_rows(self) -> int:
        """Rows of a unit that can have a weight."""
        return self.source.most_rows

    @property
    def width(self) -> int:
        """Number of encoded covariates."""
        return len(self.names)

    @property
    def outcome_range(self) -> Interval:
        """Range that outcomes are clipped to."""
        return self.ends or self.source.outcome_range

    @property
    def n_strata(self) -> int | None:
        """Number of strata."""
        return self.source.n_strata

    def fold(self, function: Summand, *parts: str) -> Totals:
        """Add up a function of blocks that are seen this way."""
        return self.source.fold(*self._through(function, parts))

    def gather(self, function: ByRecord, *parts: str) -> Records:
        """A few values of each record."""
        return self.source.gather(*self._through(function, parts))

    def in_engine(self, phi: Phi, grid: Any, cells: Cells | None) -> None:
        """An engine has no words for weights."""

    def in_memory(self, why: str) -> Rows:
        """Refuse: positions of rows say nothing here."""
        raise OptionError(f"{why}: leave out weights, subset, unit and more than two arms")

    def _through(self, function: Callable[[Block], T], parts: tuple[str, ...]) -> tuple[Any, ...]:
        """The function of the rows as they are, and what it reads of them."""
        matrix = self.matrix if "covariates" in parts else None
        outcome = self.outcome if "outcome" in parts else None
        made = {"covariates": matrix, "outcome": outcome}
        kept = [part for part in parts if made.get(part) is None]
        own = (self.factor, self.treatment, matrix, outcome)
        changes = _Changes(*own, self.outcome_range, self.width, self.weighted)
        return partial(_seen, function, changes), *dict.fromkeys([*kept, *all_reads(*own)])


def seen_as(
    curator: Curator,
    factor: RowFunction | None = None,
    treatment: RowFunction | None = None,
    covariates: tuple[RowFunction, tuple[str, ...], tuple[int, ...]] | None = None,
) -> Curator:
    """A curator of the same rows, seen in another way (`View`), which pays from the same shares.

    ``factor`` makes weights smaller, ``treatment`` says who is treated, ``covariates`` makes
    others, with their names and numbers of values. What was released of ``n`` is forgotten.
    """
    matrix, names, values = covariates or (None, curator.names, curator.values)
    view = View(curator._source, factor, treatment, matrix, names, values)
    return Curator(view, curator._releaser, frozenset())


def with_outcome(
    curator: Curator, outcome: RowFunction, ends: Interval, values: int, split: Split, name: str
) -> Curator:
    """A curator of the same rows with another outcome, which pays from a part of the budget.

    ``ends`` are those of its range, ``values`` how many it can take, 0 for a continuum; charges
    have the ``name``. What was released of ``n`` still holds.
    """
    counts = (*curator.values[:-1], values)
    view = View(curator._source, names=curator.names, values=counts, outcome=outcome, ends=ends)
    made = Curator(view, curator._releaser.for_part(split, name), frozenset())
    made.n, made.size_sd = curator.n, curator.size_sd
    return made


class _Changes(NamedTuple):
    """What a `View` makes of a block."""

    factor: RowFunction | None
    treatment: RowFunction | None
    matrix: RowFunction | None
    outcome: RowFunction | None
    ends: Interval
    width: int
    weighted: bool


def _seen(function: Callable[[Block], T], changes: _Changes, block: Block) -> T:
    """A function of a block that is seen in another way."""
    factor, treatment, matrix, outcome, (low, high), width, weighted = changes
    made: dict[str, Any] = {}
    if weighted:
        weight = block.weight if block.weight.size else np.ones(block.size)
        if factor is not None:
            weight = row_weights(weight * row_weights(evaluate(factor, block, 1)[:, 0]))
        made["weight"] = weight
    if treatment is not None:
        made["treated"] = evaluate(treatment, block, 1)[:, 0] > 0.5
    if matrix is not None:
        made["covariates"] = evaluate(matrix, block, width, "units.matrix")
    if outcome is not None:
        found = evaluate(outcome, block, 1, "units.outcome")[:, 0]
        made["outcome"] = np.clip(np.nan_to_num(found, nan=(low + high) / 2.0), low, high)
    return function(replace(block, **made))


class SquaresOfSums(NamedTuple):
    """A released sum over groups of squares of their sums, and the bound that these are kept to."""

    total: Noisy
    bound: float


@dataclass(frozen=True, eq=False)
class _Contribution:
    """What each row adds, in steps, and whose row it is: kernel code, so it gets a whole block."""

    phi: RowFunction
    grid: BoxGrid
    names: tuple[str, ...]

    @property
    def reads(self) -> tuple[str, ...]:
        """The parts of a row that are needed."""
        return (*all_reads(self.phi), *self.names)

    def __call__(self, block: Block) -> Records:
        """Steps with their weights, then names of groups."""
        steps = self.grid.project(values_of(self.phi, block, 1))[:, 0]
        if block.weight.size:
            steps = steps * (block.weight * MOST_ROWS)
        return (steps.astype(np.int64), *_names(block, self.names))


def squares_by_unit(
    curator: Curator,
    label: str,
    phi: RowFunction,
    within: Box,
    *,
    share: str,
    part: float | Fraction = 1.0,
) -> SquaresOfSums:
    """Release the sum over units of the square of what each adds (claim 30 a).

    ``within`` is a box of one column; what a unit adds is measured from its centre.
    """
    has_units = curator._source.most_rows > 1
    sums, grid = _sums(curator, phi, within, ("unit",) if has_units else (), 1.0)
    return _released(curator, label, sums, grid, None, share, part)


def squares_by_cluster(
    curator: Curator,
    label: str,
    phi: RowFunction,
    within: Box,
    bound: float,
    *,
    share: str,
    part: float | Fraction = 1.0,
) -> SquaresOfSums:
    """Release the sum over clusters of squared sums, each sum kept within +-``bound`` (claim 30 b).

    A unit of several rows is in one cluster: in the last of those that its rows name, by the rows
    that count.
    """
    names = ("cluster", "unit") if curator._source.most_rows > 1 else ("cluster",)
    times = max(bound / float(within.half[0]), 1.0)
    sums, grid = _sums(curator, phi, within, names, times)
    return _released(curator, label, sums, grid, times, share, part)


def cluster_count(curator: Curator, label: str, *, share: str, part: float | Fraction) -> Noisy:
    """Release how many clusters have rows that count: a unit moves it by one (claim 30 c)."""
    has_units = curator._source.most_rows > 1
    names = ("cluster", "unit") if has_units else ("cluster",)
    clusters, *units = curator._source.gather(_Names(names), *names)
    if units:
        clusters = _of_units(clusters, np.unique(units[0], return_inverse=True)[1])
    count = np.array([np.unique(clusters[clusters != _NOWHERE]).size], np.int64)
    steps = Steps(count, Sensitivity.of_number(1), 1.0)
    return curator._releaser.release(label, steps, share=share, claim=30, part=part)


@dataclass(frozen=True)
class _Names:
    reads: tuple[str, ...]

    def __call__(self, block: Block) -> Records:
        return _names(block, self.reads)


_NOWHERE = np.iinfo(np.int64).min
"""The cluster of what does not count."""


def _names(block: Block, names: tuple[str, ...]) -> Records:
    """Units or clusters of rows."""
    found = {name: getattr(block, name) for name in names}
    if "cluster" in names and block.weight.size:
        found["cluster"] = np.where(block.weight > 0.0, block.cluster, _NOWHERE)
    return tuple(found.values())


def _sums(
    curator: Curator, phi: RowFunction, within: Box, names: tuple[str, ...], times: float
) -> tuple[IntArray, BoxGrid]:
    """Sums of contributions by unit, then by cluster, in steps."""
    rehearse(phi, 1, None, curator.width)
    most = _SQUARE_BITS - math.ceil(math.log2(times)) - (16 if curator.weighted else 0)
    if most < 6:
        raise OptionError("the bound of a cluster's sum is too many times that of one record")
    grid = within.on(curator.units, 1.0, min(most, 30), curator.weighted)
    function = _Contribution(phi, grid, names)
    steps, *groups = curator._source.gather(function, *function.reads)
    if "unit" in names:
        units = np.unique(groups.pop(), return_inverse=True)[1]
        steps = _by_place(steps, units)
        groups = [_of_units(group, units) for group in groups]
    if groups:
        steps = _by_place(steps, np.unique(groups[0], return_inverse=True)[1])
    return steps, grid


def _by_place(steps: IntArray, place: IntArray) -> IntArray:
    sums = np.zeros(int(place.max(initial=-1)) + 1, np.int64)
    np.add.at(sums, place, steps)
    return sums


def _of_units(cluster: IntArray, place: IntArray) -> IntArray:
    """The cluster of each unit: the last that its rows name."""
    last = np.full(int(place.max(initial=-1)) + 1, _NOWHERE)
    np.maximum.at(last, place, cluster)
    return last


def _released(
    curator: Curator,
    label: str,
    sums: IntArray,
    grid: BoxGrid,
    times: float | None,
    share: str,
    part: float | Fraction,
) -> SquaresOfSums:
    """Release squares; ``times`` is the bound over what a unit adds, None for units themselves."""
    single = grid.reach.single.l1
    bound = math.floor((times or 1.0) * single)
    more = math.ceil(2 * math.log2(bound) + math.log2(curator.units)) - _TOP - 44
    shift = 44 + max(more, 0)
    fine = max(0, 30 - math.floor(math.log2(bound)))  # so that small bounds have bits to lose
    squares = _squares(np.clip(sums, -bound, bound) << fine) >> (shift - 44)
    top = (bound << fine) ** 2 >> shift
    if times is None:
        moves = top + 1
    else:
        step = (4 * (bound << fine) * (single << fine) >> shift) + 1
        moves = min(step, 2 * top) + 2
    unit = grid.unit**2 * 2.0 ** (shift - 2 * fine)
    total = Steps(squares.sum(keepdims=True), Sensitivity.of_number(moves), unit)
    noisy = curator._releaser.release(label, total, share=share, claim=30, part=part)
    return SquaresOfSums(noisy, bound * grid.unit)


def _squares(values: IntArray) -> IntArray:
    """floor(x^2 / 2^44) for |x| < 2^44, in 64-bit integers."""
    size = np.abs(values)
    high, low = size >> 22, size & (2**22 - 1)
    return high * high + (((high * low << 1) + (low * low >> 22)) >> 22)
