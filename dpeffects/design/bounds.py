"""Ranges and levels: declared, known from the dtype, found privately, or (void) read from data."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dpeffects.arrays import Interval
from dpeffects.dates import KIND, as_date
from dpeffects.design.codebook import EmptyDeclaration, RangeOrLevels, is_pattern, matched, opened
from dpeffects.errors import BoundsError, listed, quoted, refusal, shorten
from dpeffects.privacy.curator import Curator
from dpeffects.privacy.domains import COUNT
from dpeffects.privacy.release import Releaser
from dpeffects.privacy.rows import Block, GroupIndex, Source, reads

Levels = tuple[Any, ...]

SOURCES = ("declared", "dtype", "public", "private", "data")
"""Where a bound can come from; "data" voids the guarantee, "public" means a public column."""

_EXPONENTS = range(-16, 41)
"""Powers of two whose bins make up the private histogram of magnitudes."""
BINS = 2 * len(_EXPONENTS) + 1
_MISS = 1e-3
"""Probability that some empty bin of a column passes the threshold."""
_NEXT = 3.0
"""A bin next to the range found so far joins it above this many noise scales."""
_LOST = 0.05
"""Share of values outside a range that was found, beyond three deviations of the noise, from which
on there is a warning. Of 4,989 searches that lost more than 15 % it found 4,976; 55,000 others had
none (1,000 to 9,275 records; bell-shaped, and heavy tails of both signs; epsilon 1/3 and 1)."""


@dataclass(frozen=True)
class Bound:
    """What a column could be, its range or its levels, and who says so.

    ``pair``: two numbers that are a range or levels, as the formula uses them. ``whole``: the range
    has whole numbers only, as ``range(18, 91)`` and bool columns have. ``since``: the range is in
    days since this date.
    """

    values: Interval | Levels
    source: str = "declared"
    levels: bool = False
    pair: bool = False
    whole: bool = False
    since: str = ""


@dataclass(frozen=True)
class Bounds(Mapping[str, "Interval | Levels"]):
    """Column name -> ``(lower, upper)`` or a tuple of levels, and where each came from.

    Examples
    --------
    >>> b = Bounds.declared({"y": (0, 1), "region": ["N", "S"]})
    >>> b["y"], b["region"], b.source("y")
    ((0.0, 1.0), ('N', 'S'), 'declared')
    """

    entries: Mapping[str, Bound] = field(default_factory=dict)
    blank: Mapping[str, str] = field(default_factory=dict)
    """Columns that a codebook names and does not declare, and what to say of them."""

    @classmethod
    def declared(cls, bounds: Mapping[str, Any] | None) -> Bounds:
        """Check what a user declared: a tuple for a range (`range` if whole), a list for levels."""
        if isinstance(bounds, Bounds):  # those of another frame, wherever they came from
            return bounds
        if bounds is not None and not isinstance(bounds, Mapping):
            raise BoundsError(refusal("bounds_shape", kind=quoted(bounds)))
        entries, blank = {}, {}
        for name, given in (bounds or {}).items():
            if not isinstance(name, str):
                raise BoundsError(f"bounds: a column name must be text, got {name!r}")
            if isinstance(given, EmptyDeclaration):
                blank[name] = given.why
            else:
                entries[name] = _read(name, given)
        return cls(entries, blank)

    @classmethod
    def of_columns(
        cls, bounds: Mapping[str, Any], names: Iterable[str], needed: Iterable[str] | None = None
    ) -> Bounds:
        """Bounds of the columns of a frame, with patterns looked up in it (see `matched`)."""
        by_column = matched(bounds, names, needed)
        return cls.declared(bounds if isinstance(bounds, Bounds) else by_column)

    def with_entry(self, name: str, entry: Bound) -> Bounds:
        """Return a copy with one more column."""
        return replace(self, entries={**self.entries, name: entry})

    def with_interval(
        self, name: str, lower: float, upper: float, *, source: str, whole: bool = False
    ) -> Bounds:
        """Return a copy with a numeric range for one more column."""
        return self.with_entry(name, Bound((float(lower), float(upper)), source, whole=whole))

    def with_levels(self, name: str, levels: Sequence[Any], *, source: str) -> Bounds:
        """Return a copy with the levels of one more column."""
        return self.with_entry(name, Bound(tuple(levels), source, levels=True))

    def updated(self, other: Bounds) -> Bounds:
        """Return a copy in which the entries of ``other`` win."""
        return Bounds({**self.entries, **other.entries}, {**self.blank, **other.blank})

    def as_used(self, uses: Mapping[str, str]) -> Bounds:
        """Return a copy in which two numbers mean what a formula makes of their column.

        Two numbers of a file are levels of a "factor" and a range of anything else (see `Pair`).
        Two levels that are numbers, the lower first, are a range of what must be a "number", and of
        whole numbers where nothing whole is between them, as 0 and 1. Whole numbers are levels of a
        "factor", but for 0 and 1, which a treatment is anyway.
        """
        found = self
        for name, use in uses.items():
            if (entry := self.entries.get(name)) is None:
                continue
            values, source = entry.values, entry.source
            if entry.pair:
                read = _read(name, list(values) if use == "factor" else tuple(values))
                found = found.with_entry(name, replace(read, source=source))
            elif use == "factor" and entry.whole and values != (0.0, 1.0):
                each = range(int(values[0]), int(values[1]) + 1)
                found = found.with_levels(name, each, source=source)
            elif use == "number" and entry.levels and _is_range(values):
                low, high = map(float, values)
                whole = low.is_integer() and high - low == 1.0
                found = found.with_interval(name, low, high, source=source, whole=whole)
        return found

    def only(self, names: Iterable[str]) -> Bounds:
        """Return those of some columns; of what is not declared there are none."""
        return Bounds({name: self.entries[name] for name in names if name in self})

    @property
    def dates(self) -> dict[str, str]:
        """Columns of dates, whose ranges are in days since this date."""
        return {name: entry.since for name, entry in self.entries.items() if entry.since}

    @property
    def whole(self) -> frozenset[str]:
        """Columns whose ranges have whole numbers only."""
        return frozenset(name for name, entry in self.entries.items() if entry.whole)

    def refuse_blank(self, names: Iterable[str]) -> None:
        """Refuse columns that a codebook names and does not declare."""
        for name in names:
            if name in self.blank:
                raise BoundsError(self.blank[name])

    def date_kinds(self, names: Iterable[str]) -> dict[str, str]:
        """What columns of dates are read as."""
        dates = self.dates
        return {name: KIND + dates[name] for name in names if name in dates}

    def is_levels(self, name: str) -> bool:
        """True when the column has levels, False when it has a range or nothing is known of it."""
        return name in self and self.entries[name].levels

    def interval(self, name: str) -> Interval:
        """Return the range of a numeric column."""
        entry = self.entries[name]
        if entry.levels:
            raise BoundsError(refusal("column_declared_levels", name=name))
        return float(entry.values[0]), float(entry.values[1])

    def source(self, name: str) -> str:
        """Return where the bound of a column came from."""
        return self.entries[name].source

    def describe(self, name: str) -> str:
        """Return the bound as a reader expects it: ``[0, 1]`` or ``N, S``."""
        entry = self.entries[name]
        if entry.levels:
            return ", ".join(str(level) for level in entry.values)
        if entry.since:
            first = date.fromisoformat(entry.since)
            return f"days from {first} to {first + timedelta(days=entry.values[1])}"
        return f"[{entry.values[0]:.6g}, {entry.values[1]:.6g}]"

    def __repr__(self) -> str:
        width = max(map(len, self), default=0)
        rows = [f"{name:<{width}}   {self.describe(name)}" for name in self]
        return "\n".join(rows) or "no bounds"

    def __getitem__(self, name: str) -> Interval | Levels:
        return self.entries[name].values

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)


def _date_range(name: str, given: tuple[Any, ...]) -> tuple[date, date] | None:
    """The first and the last of declared dates; None where both are no dates."""
    ends = [as_date(value) for value in given]
    if None in ends or len(ends) != 2:
        return None
    first, last = ends
    if not (first and last and first < last):
        raise BoundsError(f"bounds[{name!r}]: the first date must be before the last")
    return first, last


def _read(name: str, given: Any) -> Bound:
    """Check one declaration."""
    if isinstance(given, RangeOrLevels):
        return Bound(given, pair=True)
    if isinstance(given, tuple) and (ends := _date_range(name, given)):
        return Bound((0.0, float((ends[1] - ends[0]).days)), since=ends[0].isoformat())
    if isinstance(given, range) and given.step == 1 and given:
        return replace(_read(name, (given[0], given[-1])), whole=True)
    if wrong := _wrong_range(given) if isinstance(given, tuple) else _wrong_levels(given):
        raise BoundsError(f"bounds[{name!r}]: {wrong}")
    if isinstance(given, tuple):
        return Bound((float(given[0]), float(given[1])))
    return Bound(tuple(given), levels=True)


def _wrong_range(given: tuple[Any, ...]) -> str:
    """What is wrong with two numbers; empty where nothing is."""
    if len(given) != 2 or not all(map(_is_number, given)):
        return refusal("range_ends", got=shorten(repr(given), 60))
    lower, upper = map(_as_float, given)
    if not (math.isfinite(lower) and math.isfinite(upper)):
        return refusal("infinite_range", lower=lower, upper=upper)
    if lower >= upper:
        return f"the lower end must be below the upper end, got ({lower:g}, {upper:g})"
    wide = math.isinf(upper - lower)
    return "the range is too wide for floating point numbers" if wide else ""


def _wrong_levels(given: Any) -> str:
    """What is wrong with levels; empty where nothing is."""
    if isinstance(given, str | bytes) or not isinstance(given, Sequence | np.ndarray | set | range):
        return f"write (lower, upper) for a range or a list of levels, got {quoted(given)}"
    if isinstance(given, set | frozenset):
        return "write the levels as a list, reference first; a set has no order"
    if len(given) < 2:
        return "a list of levels needs at least two"
    try:
        return "" if len(set(given)) == len(given) else "a level is listed twice"
    except TypeError:
        return "levels must be strings, numbers or bools"


def _as_float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:  # a whole number beyond all floats
        return math.inf


def _is_range(levels: Any) -> bool:
    """Whether two levels could as well be the ends of a range."""
    plain = all(isinstance(x, bool | np.bool_) or _is_number(x) for x in levels)
    return plain and len(levels) == 2 and bool(levels[0] < levels[1])


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(
        value, bool | np.bool_
    )


@dataclass(frozen=True)
class DeclaredFrame:
    """A frame with its bounds attached; everything else is the frame's own.

    Made by :func:`declare`. Attribute access and indexing go to the frame, so
    ``declared.head()`` and ``declared["age"]`` work as on the frame itself; a part of the rows
    keeps the bounds.
    """

    frame: Any
    bounds: Bounds
    interactive: bool = True
    """False: nobody who may see the data gets the errors, so none may depend on who is treated."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("frame", "bounds", "interactive"):
            raise AttributeError(name)
        value = getattr(self.frame, name)
        if name in ("head", "tail", "sample", "query", "filter"):  # rows of the same columns
            return lambda *args, **kwargs: self._keep(value(*args, **kwargs))
        return value

    def _keep(self, part: Any) -> Any:
        return replace(self, frame=part) if isinstance(part, type(self.frame)) else part

    def __getitem__(self, key: Any) -> Any:
        return self._keep(self.frame[key])

    def __len__(self) -> int:
        return len(self.frame)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.frame)

    def __contains__(self, name: object) -> bool:
        return name in self.frame

    def __repr__(self) -> str:
        return f"{self.frame!r}\nDeclared bounds for {len(self.bounds)} columns"


def declare(frame: Any, bounds: Any = None, /, **columns: Any) -> DeclaredFrame:
    """Attach bounds to a frame once, so that every later call finds them.

    Parameters
    ----------
    frame
        Any frame that narwhals understands, or one already declared (new entries win).
    bounds
        ``{"age": (18, 90), "region": ["N", "S"]}``: a range for a number, a list for levels; or a
        codebook, as in :func:`dp_ate`. They must come from what the variable means, not from the
        data.
    **columns
        The same as keywords: ``declare(frame, age=(18, 90))``.

    Returns
    -------
    Declared

    Examples
    --------
    >>> import pandas as pd
    >>> d = declare(pd.DataFrame({"y": [0, 1]}), y=(0, 1))
    >>> d.bounds["y"], d.shape
    ((0.0, 1.0), (2, 1))
    """
    if isinstance(bounds, str) and bounds == "from_data":
        raise BoundsError(refusal("declare_cannot_take"))
    if isinstance(columns.get("bounds"), Mapping):
        raise BoundsError(refusal("declare_takes_bounds"))
    known = Bounds()
    if isinstance(frame, DeclaredFrame):
        frame, known = frame.frame, frame.bounds
    names = list(getattr(frame, "column_names", ())) or list(getattr(frame, "columns", ()))
    for given in (opened(bounds), columns):
        if given:
            if not names and any(map(is_pattern, given)):
                raise BoundsError(refusal("declare_takes_names"))
            made = Bounds.of_columns(given, names) if names else Bounds.declared(given)
            known = known.updated(made)
    return DeclaredFrame(frame, known)


def skeleton(numeric: Sequence[str], categorical: Sequence[str]) -> str:
    """Return a ready-to-paste ``bounds=`` for columns that need one: names only, no values.

    It stands in the line before it where it is short, else in lines of its own.
    """
    entries = [f'"{name}": (LOWER, UPPER)' for name in numeric]
    entries += [f'"{name}": ["LEVEL", "LEVEL"]' for name in categorical]
    if len(entries) <= 3:
        return f" bounds={{{', '.join(entries)}}}"
    return "\n".join(["\nbounds={", *(f"    {entry}," for entry in entries), "}"])


# --- the private search -----------------------------------------------------------------------


@reads("outcome")
def magnitude(rows: Block) -> npt.NDArray[np.float64]:
    """The bin of each value among signed powers of two; values stand in the place of outcomes.

    Bin 0 is [-2^40, -2^39) and beyond, the middle bin is around zero, the last (2^39, 2^40] and
    beyond. Bin edges are fixed. What is no number counts as zero.
    """
    half, top = len(_EXPONENTS), 2.0 ** _EXPONENTS[-1]
    values = np.clip(np.nan_to_num(rows.outcome, nan=0.0, posinf=top, neginf=-top), -top, top)
    mantissa, exponent = np.frexp(np.abs(values))  # exact; |x| = 2^k has mantissa 1/2
    exponent = np.where(mantissa == 0.5, exponent - 1, exponent)
    exponent = np.where(mantissa == 0.0, _EXPONENTS[0] - 1, exponent)
    return half + np.sign(values) * np.clip(exponent - _EXPONENTS[0] + 1, 0, half)


@dataclass(frozen=True)
class RoughSize:
    """The bin of each absolute value, ``step`` powers of two each; what is around 0 has one too."""

    step: int
    reads: ClassVar[tuple[str, ...]] = ("outcome",)

    def __call__(self, rows: Block) -> npt.NDArray[np.float64]:
        """Return the bin of each row."""
        return np.ceil(np.abs(magnitude(rows) - len(_EXPONENTS)) / self.step)


MAGNITUDES = GroupIndex(magnitude, BINS)
_SIZES = [GroupIndex(RoughSize(step), math.ceil(len(_EXPONENTS) / step) + 1) for step in (1, 2, 3)]
SEARCHES = tuple(zip((MAGNITUDES, *_SIZES), (8.0, 7.0, 4.0, 2.5), strict=True))
"""Bins from fine to coarse, and how many thresholds the records must be for them. With so many, and
1,000 columns each, the coarse ones found no range for 1 % at most of bell-shaped, flat, exponential
and t columns, counts, and those whose logarithms have sd 1 (12 % with sd 1.6 in steps of eight);
the ranges held 97 % or more of their records on average."""


def bins_for(n: int, epsilon: float, names: Sequence[str]) -> GroupIndex:
    """Return the bins that so many records fill, by public numbers alone; raises for too few."""
    scale = 2.0 * len(names) / epsilon
    for bins, times in SEARCHES:
        if n >= (needed := math.ceil(times * threshold(scale, bins.size))):
            return bins
    facts = {"epsilon": epsilon / len(names), "n": n, "write": skeleton(names, [])}
    raise BoundsError(refusal("too_few_to_find", names=", ".join(names), needed=needed, **facts))


def find_bounds(
    columns: Mapping[str, Source], releaser: Releaser, n: int | None, bins: GroupIndex
) -> tuple[Bounds, str]:
    """Find ranges of numeric columns by noisy histograms of magnitudes; with what to be careful of.

    A column is a source of rows whose outcomes are its values. Where all ``n`` of them count, the
    same histogram says how many are outside the range that it gave.
    """
    ranges, failed, part = Bounds(), [], Fraction(1, max(len(columns), 1))
    outside: list[str] = []
    for name, source in columns.items():
        counts = Curator(source, releaser, frozenset()).sums(
            f"bounds of {name}", None, COUNT, bins, share="bounds", part=part
        )
        values = counts.value[:, 0], counts.scale
        if (interval := interval_from_counts(*values)) is None:
            failed.append(name)
            continue
        ranges = ranges.with_interval(name, *interval, source="private")
        inside = counts.value[slice(*_occupied(*values)), 0]
        sd = counts.scale * math.sqrt(2.0 * inside.size)
        if n and (share := 1.0 - float(inside.sum()) / n) - 3.0 * sd / n > _LOST:
            outside.append(f"about {100.0 * share:.0f} % of {name}")
    if failed:
        write = skeleton(failed, [])
        raise BoundsError(refusal("nothing_found", names=listed(failed, 99), write=write))
    lost = f"Values clipped to ranges found privately: {', '.join(outside)}; declare them"
    lost = lost if outside else ""
    if bins is not MAGNITUDES:
        spent = releaser.share("bounds").epsilon
        price = f"with few records they are rough, at a cost of epsilon = {spent:.3g}"
        lost = "; ".join(
            [f"Coarse ranges of {', '.join(columns)}: {price}", lost or "declare them"]
        )
    return ranges, lost


def threshold(scale: float, bins: int = BINS) -> float:
    """Return the noisy count above which a bin is taken to be occupied.

    All empty bins stay below it with probability 0.999: bins * exp(-t / scale) / 2 = 0.001.
    """
    return scale * math.log(bins / (2.0 * _MISS))


def interval_from_counts(counts: npt.NDArray[np.float64], scale: float) -> Interval | None:
    """Read a range off noisy bin counts; None when no two edges pass the threshold.

    Bins next to the range need less evidence: a mistake there, 1 of 40, widens it by one bin and no
    more. Bins of sizes give ranges that are as wide on either side of 0.
    """
    first, end = _occupied(counts, scale)
    half = len(_EXPONENTS)
    reach = math.ceil(half / (counts.size - 1)) * (end - 1)
    ranks = (-reach, reach) if counts.size < BINS else (first - half, end - 1 - half)
    lower, upper = (_edges(rank)[side] for side, rank in enumerate(ranks))
    return (lower, upper) if first < end and lower < upper else None


def _occupied(counts: npt.NDArray[np.float64], scale: float) -> tuple[int, int]:
    """The first bin of the range and the one after it; of sizes the first is always in it."""
    occupied = np.flatnonzero(counts > threshold(scale, counts.size)).tolist() or [0, -1]
    first, end = occupied[0] if counts.size == BINS else 0, occupied[-1] + 1
    while end > first > 0 and counts[first - 1] > _NEXT * scale:
        first -= 1
    while first < end < counts.size and counts[end] > _NEXT * scale:
        end += 1
    return first, end


def _edges(rank: int) -> Interval:
    """Edges of the bin ``rank`` steps from zero."""
    if rank == 0:
        return 0.0, 0.0
    inner = 2.0 ** (abs(rank) + _EXPONENTS[0] - 2) if abs(rank) > 1 else 0.0
    outer = 2.0 ** (abs(rank) + _EXPONENTS[0] - 1)
    return (inner, outer) if rank > 0 else (-outer, -inner)
