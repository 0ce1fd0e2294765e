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
from dpeffects.errors import OptionError, PrivacyError
from dpeffects.privacy.charges import NoisyValue
from dpeffects.privacy.curator import Curator, all_reads, values_of
from dpeffects.privacy.domains import Box, BoxGrid, IntTotals, Sensitivity, weigh
from dpeffects.privacy.release import Split
from dpeffects.privacy.rows import (
    MOST_ROWS,
    Block,
    ByRecord,
    Records,
    RowFunction,
    RowMetadata,
    Rows,
    Source,
    Summand,
    Totals,
    evaluate,
    rehearse,
)

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


class Changes(NamedTuple):
    """What a `View` makes of rows; its row functions are not trusted.

    A ``factor`` is brought into [0, 1], and only makes weights smaller (claim 29). Who is treated
    is who has more than 1/2. Another ``outcome`` lies within ``ends``, or is their middle where it
    is no number.
    """

    ends: Interval
    factor: RowFunction | None = None
    treatment: RowFunction | None = None
    matrix: RowFunction | None = None
    outcome: RowFunction | None = None

    def of(self, block: Block, about: RowMetadata) -> Block:
        """A block that is seen in another way."""
        made: dict[str, Any] = {}
        if about.weighted:
            weight = block.weight if block.weight.size else np.ones(block.size)
            if self.factor is not None:
                weight = row_weights(weight * row_weights(evaluate(self.factor, block, 1)[:, 0]))
            made["weight"] = weight
        if self.treatment is not None:
            made["treated"] = evaluate(self.treatment, block, 1)[:, 0] > 0.5
        if self.matrix is not None:
            matrix = evaluate(self.matrix, block, about.width, "units.matrix")
            made["covariates"] = matrix.copy(order="K")  # a view of a view has the same memory
        if self.outcome is not None:
            found, (low, high) = evaluate(self.outcome, block, 1, "units.outcome")[:, 0], self.ends
            made["outcome"] = np.clip(np.nan_to_num(found, nan=(low + high) / 2.0), low, high)
        return replace(block, **made)


@dataclass(frozen=True)
class View:
    """Rows seen in another way: with less weight, another treatment, outcome or covariates."""

    source: Source
    changes: Changes
    about: RowMetadata

    @classmethod
    def of(cls, source: Source, changes: Changes, **known: Any) -> View:
        """Rows with these changes, of which this is known; two arms, where it says who is treated.

        Rows with another outcome or other covariates alone count as they did.
        """
        about = source.about._replace(outcome_range=changes.ends, **known)
        alike = changes.factor is None and changes.treatment is None
        about = about._replace(weighted=about.weighted or not alike)
        arms = about.arms if changes.treatment is None else 2
        return cls(source, changes, about._replace(width=len(about.names), arms=arms))

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

    def in_memory(self, why: str) -> Rows:
        """Refuse: positions of rows say nothing here."""
        raise OptionError(f"{why}: leave out weights, subset, unit and more than two arms")

    def _through(self, function: Callable[[Block], T], parts: tuple[str, ...]) -> tuple[Any, ...]:
        """The function of the rows as they are, and what it reads of them."""
        matrix = self.changes.matrix if "covariates" in parts else None
        outcome = self.changes.outcome if "outcome" in parts else None
        made = {"covariates": matrix, "outcome": outcome}
        kept = [part for part in parts if made.get(part) is None]
        changes = self.changes._replace(matrix=matrix, outcome=outcome)
        seen = partial(_seen, function, changes, self.about)
        return seen, *dict.fromkeys([*kept, *all_reads(*changes[1:])])


def _seen(function: Callable[[Block], T], changes: Changes, about: RowMetadata, block: Block) -> T:
    return function(changes.of(block, about))


def seen_as(
    curator: Curator, factor: RowFunction | None = None, treatment: RowFunction | None = None
) -> Curator:
    """A curator of the same rows, seen in another way (`View`), which pays from the same shares.

    ``factor`` makes weights smaller, ``treatment`` says who is treated. What was released of ``n``
    is forgotten.
    """
    changes = Changes(curator.outcome_range, factor, treatment)
    view = View.of(curator._source, changes, names=curator.names, values=curator.values)
    return Curator(view, curator._releaser, frozenset())


def recoded(
    curator: Curator, matrix: RowFunction, names: tuple[str, ...], values: tuple[int, ...]
) -> Curator:
    """A curator of the same rows with other covariates, which pays from the same shares.

    ``values`` are how many each of them can take, and last the outcome. What was released of ``n``
    still holds, and what is made of public covariates alone is public (claim 5).
    """
    changes = Changes(curator.outcome_range, matrix=matrix)
    view = View.of(curator._source, changes, names=names, values=values)
    public = curator._public if set(matrix.reads) <= {"covariates"} else frozenset()
    return _as_large(Curator(view, curator._releaser, public), curator)


def with_outcome(
    curator: Curator, outcome: RowFunction, ends: Interval, values: int, split: Split, name: str
) -> Curator:
    """A curator of the same rows with another outcome, which pays from a part of the budget.

    ``ends`` are those of its range, ``values`` how many it can take, 0 for a continuum; charges
    have the ``name``. What was released of ``n`` still holds.
    """
    counts, changes = (*curator.values[:-1], values), Changes(ends, outcome=outcome)
    view = View.of(curator._source, changes, names=curator.names, values=counts)
    made = Curator(view, curator._releaser.for_part(split, name), frozenset())
    return _as_large(made, curator)


def _as_large(made: Curator, curator: Curator) -> Curator:
    """What was released of ``n`` is known of other rows of the same records."""
    made.n, made.size_sd = curator.n, curator.size_sd
    return made


@dataclass(frozen=True)
class TwoArms:
    """The rows of two of several arms, the first of them treated. Only the curator looks inside."""

    source: Source
    own: tuple[int, int]
    about: RowMetadata
    n_strata: None = None

    @classmethod
    def of(cls, source: Source, arms: tuple[int, int]) -> TwoArms:
        """Rows of these arms, which are counted."""
        about = source.about._replace(arms=2, weighted=False, most_rows=1)
        (count,) = cls(source, arms, about).fold(_size)
        return cls(source, arms, about._replace(n=int(count)))

    def fold(self, function: Summand, *parts: str) -> Totals:
        """Add up a function of blocks."""
        names = dict.fromkeys((*parts, "arm"))
        return self.source.fold(partial(_of_arms, function, self.own), *names)

    def gather(self, function: ByRecord, *parts: str) -> Records:
        """Refuse: places of records are those of all."""
        raise PrivacyError("records of two arms are added up, not handed out")

    def in_memory(self, why: str) -> Rows:
        """Refuse: they may be anywhere."""
        raise PrivacyError(f"{why}: records of two arms are added up")


def _of_arms(function: Summand, arms: tuple[int, int], block: Block) -> Totals:
    """What rows of two arms add; nothing, in the right shape, where a block has none of them."""
    keep = np.isin(block.arm, arms)
    some = block.some(keep if keep.any() else slice(0, 1))
    totals = function(replace(some, treated=some.arm == arms[0]))
    return totals if keep.any() else tuple(0 * total for total in totals)


def _size(block: Block) -> Totals:
    return (np.array(block.size),)


def release_size(curator: Curator, share: str, part: float = 1.0) -> NoisyValue:
    """Release what the weights of all rows add up to; from here on that is the curator's ``n``."""
    size = curator.sums("total weight", None, share=share, part=part)
    curator.n, curator.size_sd = max(round(float(size.value[0])), 1), size.sd
    return size


class SquaresOfSums(NamedTuple):
    """A released sum over groups of squares of their sums, and the bound that these are kept to."""

    total: NoisyValue
    bound: float


def _contributions(
    phi: RowFunction, grid: BoxGrid, names: tuple[str, ...], block: Block
) -> Records:
    """What each row adds, in steps and with its weight, and whose row it is."""
    weight = block.weight if block.weight.size else None
    steps = weigh(grid.project(values_of(phi, block, 1)), weight)
    return (steps[:, 0].astype(np.int64), *_names(names, block))


def squares_of_sums(
    curator: Curator,
    label: str,
    phi: RowFunction,
    within: Box,
    bound: float | None = None,
    *,
    share: str,
    part: float | Fraction = 1.0,
) -> SquaresOfSums:
    """Release the sum over units of the square of what each adds (claim 30 a).

    ``within`` is a box of one column; what a unit adds is measured from its centre. With a
    ``bound`` it is the sum over clusters, each of whose sums is kept within +-``bound`` (claim 30
    b). A unit of several rows is in one cluster: in the last of those that its rows name, by the
    rows that count.
    """
    times = 1.0 if bound is None else max(bound / float(within.half[0]), 1.0)
    sums, grid = _sums(curator, phi, within, _groups(curator, bound is not None), times)
    single = grid.reach.single.l1
    most = math.floor(times * single)
    more = math.ceil(2 * math.log2(most) + math.log2(curator.units)) - _TOP - 44
    shift = 44 + max(more, 0)
    fine = max(0, 30 - math.floor(math.log2(most)))  # so that small bounds have bits to lose
    squares = _squares(np.clip(sums, -most, most) << fine) >> (shift - 44)
    top = (most << fine) ** 2 >> shift
    if bound is None:
        moves = top + 1
    else:
        step = (4 * (most << fine) * (single << fine) >> shift) + 1
        moves = min(step, 2 * top) + 2
    unit = grid.unit**2 * 2.0 ** (shift - 2 * fine)
    total = IntTotals(squares.sum(keepdims=True), Sensitivity.of_number(moves), unit)
    noisy = curator._releaser.release(label, total, share=share, claim=30, part=part)
    return SquaresOfSums(noisy, most * grid.unit)


def cluster_count(curator: Curator, label: str, share: str, part: float | Fraction) -> NoisyValue:
    """Release how many clusters have rows that count: a unit moves it by one (claim 30 c)."""
    names = _groups(curator, True)
    clusters, *units = curator._source.gather(partial(_names, names), *names)
    if units:
        clusters = _of_units(clusters, np.unique(units[0], return_inverse=True)[1])
    count = np.array([np.unique(clusters[clusters != _NOWHERE]).size], np.int64)
    steps = IntTotals(count, Sensitivity.of_number(1), 1.0)
    return curator._releaser.release(label, steps, share=share, claim=30, part=part)


def _groups(curator: Curator, clusters: bool) -> tuple[str, ...]:
    """What rows are added up by: clusters, and units where these have several rows."""
    return ("cluster",) * clusters + ("unit",) * (curator.most_rows > 1)


_NOWHERE = np.iinfo(np.int64).min
"""The cluster of what does not count."""


def _names(names: tuple[str, ...], block: Block) -> Records:
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
    function = partial(_contributions, phi, grid, names)
    steps, *groups = curator._source.gather(function, *all_reads(phi), *names)
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


def _squares(values: IntArray) -> IntArray:
    """floor(x^2 / 2^44) for |x| < 2^44, in 64-bit integers."""
    size = np.abs(values)
    high, low = size >> 22, size & (2**22 - 1)
    return high * high + (((high * low << 1) + (low * low >> 22)) >> 22)
