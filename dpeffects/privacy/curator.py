"""The curator holds the rows and answers with released values. Methods hold no rows.

A method hands over a row function and the set that one record's contribution lies in; the curator
keeps it there, adds up, derives the sensitivity, charges, draws, in that order. Parts of a row that
the level declares public are handed out as they are, and cost nothing.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from copy import copy
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

import numpy as np

from dpeffects.arrays import FloatArray, IntArray
from dpeffects.errors import OptionError, PrivacyError, refusal
from dpeffects.privacy.budget import Budget
from dpeffects.privacy.charges import NoisyValue
from dpeffects.privacy.domains import COUNT, Domain, GridDomain, IntTotals, Sensitivity
from dpeffects.privacy.release import Releaser, Split
from dpeffects.privacy.rows import (
    ROWS,
    Block,
    GroupIndex,
    Phi,
    Records,
    RowFunction,
    Rows,
    Source,
    Totals,
    evaluate,
    rehearse,
)

Exact = tuple[GridDomain, IntArray, Sensitivity]
"""A grid, totals without noise, and how far one record moves them."""


class SumQuery(NamedTuple):
    """A release of sums: the arguments of `Curator.sums`."""

    label: str
    phi: Phi
    within: Domain = COUNT
    cells: GroupIndex | None = None
    share: str = ""
    part: float | Fraction = 1.0


class GroupedSum(NamedTuple):
    """Sums of a row function by cell, on the grid of a set of so many columns."""

    phi: Phi
    columns: int
    cells: GroupIndex | None
    grid: GridDomain

    def of(self, block: Block, index: IntArray | None) -> IntArray:
        """What a block adds, given its cells: a few rows at a time stay close to the processor."""
        phi, columns, cells, grid = self
        size, rows = cells.size if cells else 1, max(ROWS // columns, 2**12)
        total: IntArray | int = 0
        for start in range(0, block.size, rows):
            some = block.some(slice(start, start + rows)) if block.size > rows else block
            cell = None if index is None else index[start : start + rows]
            weight = some.weight if some.weight.size else None
            if phi is None and cell is not None and weight is None:
                total = total + np.bincount(cell, minlength=size + 1)[:size, None]
            else:
                total = total + grid.totals(values_of(phi, some, columns), cell, size, weight)
        return np.asarray(total)


class GroupedSums(tuple[GroupedSum, ...]):
    """Several sums, from one look at the rows."""

    def __call__(self, block: Block) -> Totals:
        """What a block adds to each; cells that several sums share are found once."""
        found = {id(x.cells): x.cells.of(block) if x.cells else None for x in self}
        return tuple(x.of(block, found[id(x.cells)]) for x in self)


_PARTS = {"treated": "treatment", "arm": "treatment", "strata": "covariates"}


class Curator:
    """Holds rows, ledger and noise. ``public`` names what is the same on neighbours.

    The order in which rows come may depend on what is in them. So whatever goes by position works
    on the rows in a secret order, drawn once, when it is first needed.

    Where rows have weights (claim 29) all sums have them, and ``n`` is what they add up to: the
    number of records, of units that count once each, or a number that was released
    (`units.release_size`), with noise of the standard deviation ``size_sd``. ``units`` is the
    public number of records or units.
    """

    def __init__(self, rows: Source, releaser: Releaser, public: frozenset[str]) -> None:
        self._source, self._releaser, self._public = rows, releaser, public
        about = rows.about
        self.n = self.units = about.n
        self.weighted, self.most_rows = about.weighted, about.most_rows
        if self.weighted and public:
            raise OptionError("rows with weights have nothing that is public")
        if self.most_rows > 1 and not self.weighted:
            raise OptionError("units of several rows need weights that add up to at most 1")
        self.width, self.outcome_range, self.arms = about.width, about.outcome_range, about.arms
        self.size_sd = 0.0
        self.values = about.values or (0,) * (self.width + 1)
        self.names = about.names or tuple(f"column {j}" for j in range(self.width))

    def has(self, share: str) -> bool:
        """True when the budget has a share of this name."""
        return share in self._releaser.split.shares

    def epsilon(self, share: str) -> float:
        """Return the epsilon of a named share."""
        return self._releaser.share(share).epsilon

    def delta(self, share: str) -> float:
        """Return the delta of a named share."""
        return self._releaser.share(share).delta

    def noise_sd(self, share: str, part: float = 1.0, sums: int = 1) -> float:
        """Standard deviation of the noise in each of some sums that a record moves by 1."""
        gaussian = share in self._releaser.split.mu
        return math.sqrt(sums if gaussian else 2 * sums**2) / self._releaser.rate(share, part)

    def is_public(self, what: str) -> bool:
        """True when "treatment", "covariates" or "outcome" is public in this call."""
        return what in self._public

    def left(self, budget: Budget, shares: Collection[str]) -> Budget:
        """What is left of a call's budget for these shares: not charged, nor for others to come."""
        return self._releaser.left(budget, shares)

    def with_split(self, split: Split) -> Curator:
        """A curator of the same rows that divides what is left of the budget anew (claim 1)."""
        made = copy(self)
        made._releaser = self._releaser.for_part(split, "")
        return made

    @property
    def n_strata(self) -> int:
        """Number of strata that the formula declares, with records or without."""
        strata = self._source.n_strata
        if strata is None:
            raise PrivacyError("this call has no strata")
        return strata

    # --- sums -----------------------------------------------------------------------------------

    def sums(
        self,
        label: str,
        phi: Phi,
        within: Domain = COUNT,
        cells: GroupIndex | None = None,
        *,
        share: str,
        part: float | Fraction = 1.0,
    ) -> NoisyValue:
        """Release sums of a row function by cell: (cells, columns), or (columns,) without cells.

        By cell they are sums of distances from the set's centre; without cells, of the values.
        ``phi`` None counts records (`COUNT`). The release costs ``part`` of the share.
        """
        return self.several(SumQuery(label, phi, within, cells, share, part))[0]

    def several(self, *asked: SumQuery) -> list[NoisyValue]:
        """Release several sums from one look at the rows, each as `sums` does."""
        rates = []
        for x in asked:
            if x.phi is None and x.within is not COUNT:
                raise OptionError("a set other than COUNT needs a row function")
            public = self._is_public(x.phi, x.cells)
            rates.append(1.0 if public else self._releaser.rate(x.share, x.part))
        exact = self._exact(asked, rates)
        return [self._released(x, *found) for x, found in zip(asked, exact, strict=True)]

    def _released(
        self, asked: SumQuery, grid: GridDomain, totals: IntArray, moves: Sensitivity
    ) -> NoisyValue:
        label, phi, within, cells, share, part = asked
        if self._is_public(phi, cells):
            noisy = NoisyValue((totals * grid.unit).astype(np.float64), 0.0)
        else:
            steps = IntTotals(totals, moves, grid.unit, grid.shape(self.units))
            noisy = self._releaser.release(label, steps, share=share, claim=within.claim, part=part)
        if cells is None:
            noisy = replace(noisy, value=noisy.value + grid.offset(self.n))
        return noisy

    def exact_sums(
        self, phi: Phi, within: Domain, cells: GroupIndex | None, *, rate: float, most: int = 30
    ) -> Exact:
        """Totals without noise, and how far one record moves them: for this folder and tests."""
        return self._exact([SumQuery("", phi, within, cells)], [rate], most)[0]

    def _exact(self, asked: Sequence[SumQuery], rates: list[float], most: int = 30) -> list[Exact]:
        """Totals of several sums, from one look at the rows."""
        summands = []
        for (_, phi, within, cells, _, _), rate in zip(asked, rates, strict=True):
            rehearse(phi, within.columns, cells, self.width)
            grid = within.on(self.units, rate, most, self.weighted)
            summands.append(GroupedSum(phi, within.columns, cells, grid))
        reads = all_reads(*(f for x in asked for f in (x.phi, x.cells)))
        totals = self._source.fold(GroupedSums(summands), *reads)
        exact = []
        for (_, _, cells, grid), total in zip(summands, totals, strict=True):
            moves = grid.reach.sensitivity(cells.size if cells else None, self._is_public(cells))
            exact.append((grid, total if cells else total[0], moves))
        return exact

    def _is_public(self, *functions: Phi | GroupIndex) -> bool:
        """What neighbours have in common; nothing, where rows have weights."""
        parts = {_PARTS.get(x, x) for x in all_reads(*functions)}
        return not self.weighted and parts <= self._public

    # --- values of single records -----------------------------------------------------------------

    def by_record(self, function: RowFunction) -> Records:
        """Values of each record from one look at the rows, in the secret order; for this folder.

        (An engine may hand out its rows in another order the next time.)
        """
        order = self._order
        return tuple(x[order] for x in self._source.gather(function, *function.reads))

    @cached_property
    def _order(self) -> IntArray:
        """The secret order of the records."""
        if self.weighted:
            raise OptionError("this step needs records that count alike")
        return self._releaser.permutation(self.n)

    @cached_property
    def _rows(self) -> Rows:
        """The rows in memory, for what needs them all at once, in the secret order."""
        rows = self._source.in_memory("this step needs all rows at once")
        return rows.reordered(self._order)

    def require_public(self, *names: str) -> None:
        """Refuse to hand out what is private in this call."""
        for what in names:
            if what not in self._public:
                raise PrivacyError(refusal("private_call_released", what=what))


def all_reads(*functions: Phi | GroupIndex) -> tuple[str, ...]:
    """The parts of a row that some functions read."""
    return tuple(dict.fromkeys(x for f in functions if f is not None for x in f.reads))


def values_of(phi: Phi, block: Block, columns: int) -> FloatArray:
    """Numbers of some rows; ones where records are counted."""
    return np.ones((block.size, columns)) if phi is None else evaluate(phi, block, columns)
