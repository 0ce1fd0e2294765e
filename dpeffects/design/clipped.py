"""How many values lay outside their declared ranges: released privately, by column if a call asks
for it, and as one count of records with such a value where that is cheap by public numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from dpeffects.arrays import BoolArray, Interval
from dpeffects.errors import OptionError, refusal
from dpeffects.privacy.curator import Curator
from dpeffects.privacy.domains import Cube
from dpeffects.privacy.rows import Block
from dpeffects.privacy.tight_domains import cube_noise_sd

SHARE, OUTSIDE = "check_bounds", "values outside declared ranges"
_EACH, _MOST = 0.02, 0.1
"""Proportion of the budget for each column, and for all at most, beside the method's own shares."""
_MANY = 0.05
"""Share of values outside a range from which on nobody should overlook it."""
_USELESS = 0.1
"""A check whose noise has this standard deviation, as a share of n, says nothing."""

_JOINT, _AFFORDED = 0.01, 5_000.0
"""Proportion of the budget for one count of records, and n times epsilon from which on a call that
did not ask has it. The noise there is 2.9 % of records (sd)."""
_FEW = 0.01
"""Share of records from which on, beyond three deviations of the noise, there is a warning. At the
least n times epsilon 0.6 % of calls with right bounds had one, all whose values were in other
units, and 98 % with 999 in 15 % of records; at four times that none, all, and 99 % with 5 %."""
_NAMED = 6
"""So many columns have a sentence each."""


def proportion(columns: int, asked: bool = True) -> float:
    """Return the proportion of the budget that a check of so many columns takes."""
    return min(_EACH * columns, _MOST) if asked else _JOINT


def affordable(n: int, epsilon: float) -> bool:
    """Whether one count of records is cheap beside what else a call releases."""
    return n * epsilon >= _AFFORDED


def refuse_useless(columns: int, epsilon: float, n: int, public_size: bool) -> None:
    """Refuse a check that public numbers say is mostly noise."""
    sd = cube_noise_sd(columns, 1.0 if public_size else 2.0, epsilon) / n
    if sd > _USELESS:
        facts = {"epsilon": epsilon, "columns": columns, "n": n}
        raise OptionError(refusal("useless_check", sd=_percent(sd), share=SHARE, **facts))


def _percent(share: float) -> str:
    return f"{100.0 * share:.2g} %"


@dataclass(frozen=True)
class OutOfRange:
    """1 for each value outside its range; what is missing is not outside."""

    lower: tuple[float, ...]
    upper: tuple[float, ...]
    reads: ClassVar[tuple[str, ...]] = ("covariates",)

    def __call__(self, rows: Block) -> BoolArray:
        """Which values of some rows are outside."""
        values = rows.covariates
        return (values < np.array(self.lower)) | (values > np.array(self.upper))


class AnyOutOfRange(OutOfRange):
    """1 for each record with a value outside its range."""

    def __call__(self, rows: Block) -> BoolArray:
        """Which of some rows have a value outside."""
        return np.asarray(super().__call__(rows).any(axis=1))


@dataclass(frozen=True)
class Clipped:
    """Shares of values outside their ranges, by column, with the deviation of the noise in each."""

    shares: Mapping[str, float] = field(default_factory=dict)
    sds: Mapping[str, float] = field(default_factory=dict)

    def __or__(self, other: Clipped) -> Clipped:
        return type(other)({**self.shares, **other.shares}, {**self.sds, **other.sds})

    @property
    def notes(self) -> tuple[str, ...]:
        """A sentence on each column; of many, only on those with more than noise explains."""
        loud = [n for n, share in self.shares.items() if share > 2.0 * self.sds[n]]
        named = self.shares if len(self.shares) <= _NAMED else loud
        others = len(self.shares) - len(named)
        rest = f"Of {others} other columns no more values were clipped than noise could make."
        each = (
            f"{name}: about {_percent(max(self.shares[name], 0.0))} of values lay outside the "
            f"declared range and were clipped to it (sd of the noise {_percent(self.sds[name])})."
            for name in named
        )
        return (*each, rest) if others else tuple(each)

    @property
    def warnings(self) -> str:
        """What nobody should overlook: many values outside, beyond what noise explains."""
        many = {n: x for n, x in self.shares.items() if x - 2.0 * self.sds[n] > _MANY}
        if not many:
            return ""
        each = ", ".join(f"{name} {_percent(share)}" for name, share in list(many.items())[:5])
        more = ", ..." if len(many) > 5 else ""
        return f"Many values clipped to the declared range: {each}{more}"


class ClippedRecords(Clipped):
    """Shares of records with a value outside its range, by the columns that were looked at."""

    notes = ()

    @property
    def warnings(self) -> str:
        """What nobody should overlook; nothing is said of records whose values are inside."""
        many = {n: x for n, x in self.shares.items() if x - 3.0 * self.sds[n] > _FEW}
        each = " and ".join(f"about {100.0 * min(x, 1.0):.0f} % ({n})" for n, x in many.items())
        advice = "check units and codes such as 999; check_bounds=True says which column it is"
        return f"Values clipped to declared ranges in {each} of records: {advice}" if many else ""


def release_clipped(
    curator: Curator, intervals: Mapping[str, Interval], n: int, public_size: bool, asked: bool
) -> Clipped:
    """Release how many values of the curator's columns, or records, lay outside their ranges.

    The columns stand in the place of covariates, as they are. Contributions are measured from 1/2
    where n is public, which halves the noise; from 0 where what rows count for is not.
    """
    lower, upper = (tuple(ends[k] for ends in intervals.values()) for k in (0, 1))
    count, function, label = len(intervals), OutOfRange(lower, upper), OUTSIDE
    if not asked:
        count, function, label = 1, AnyOutOfRange(lower, upper), f"records with {label}"
    within = Cube(np.full(count, 0.0 if public_size else -1.0), np.ones(count))
    noisy = curator.sums(label, function, within, share=SHARE)
    names = [*intervals]
    names = names if asked else [", ".join(names[:5]) + ", ..." * (len(names) > 5)]
    shares = dict(zip(names, (noisy.value / n).tolist(), strict=True))
    return (Clipped if asked else ClippedRecords)(shares, dict.fromkeys(names, noisy.sd / n))
