"""From the columns of some rows to what the curator works on, row by row.

`Design` is what a formula, types and declarations say; `Columns` reads a frame in memory:
treatment, numbers, codes of levels. `Recipe` clips and encodes them. `Columns` and `Recipe` are
plain data, so that they can travel to where the rows are (`dpeffects.design.engines`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import compress
from typing import Any, Self

import narwhals.stable.v2 as nw
import numpy as np
import numpy.typing as npt

from dpeffects.arrays import BoolArray, FloatArray, IntArray
from dpeffects.design.bounds import Bounds
from dpeffects.errors import BoundsError, DataError, FormulaError, listed, refusal, shorten
from dpeffects.formula import Formula
from dpeffects.formula import expression as ex
from dpeffects.formula.discrete import Strata
from dpeffects.formula.encoding import MISSING_LEVEL, Arrays, Encoding, prepared, with_missing
from dpeffects.formula.ranges import clip, range_of
from dpeffects.lazy import pd

_ALL = (-math.inf, math.inf)
_NARROWEST = 1e-50
"""Least range of an outcome, one over the largest: fourth powers of it are still numbers."""


@dataclass(frozen=True)
class Design:
    """What formula, types and declarations say; ``missing`` are ranges that nobody declared."""

    formula: Formula
    columns: Columns
    bounds: Bounds
    missing: tuple[str, ...]
    encoding: Encoding
    n: int

    @property
    def width(self) -> int:
        """Number of encoded columns; it depends on the formula and the levels only."""
        return len(self.encoding.columns)

    @cached_property
    def values(self) -> tuple[int, ...]:
        """How many values each encoded column, and last the outcome, could take by declaration.

        1 for a constant, 2 for an indicator, 0 for a continuum.
        """
        ends = {name: self.bounds.interval(name) for name in self.bounds.whole}
        counts = {name: int(upper - lower) + 1 for name, (lower, upper) in ends.items()}
        outcome = self.formula.outcome
        outcome = outcome.first if isinstance(outcome, ex.WithTreatment) else outcome
        last = counts.get(outcome.name, 0) if isinstance(outcome, ex.Column) else 0
        last = 2 if isinstance(outcome, ex.Missing | ex.Compare) else last
        last = outcome.cells if isinstance(outcome, ex.Survival) else last
        last = len(self.bounds[outcome.column]) if isinstance(outcome, ex.Ordered) else last
        return (*self.encoding.values(counts), last)

    @property
    def outcome_levels(self) -> tuple[str, ...]:
        """Names of the declared levels of an ordered outcome, from the lowest on."""
        outcome = self.formula.outcome
        levels = self.bounds[outcome.column] if isinstance(outcome, ex.Ordered) else ()
        return tuple(f"{x:g}" if isinstance(x, float) else str(x) for x in levels)

    @property
    def indicator(self) -> bool:
        """Whether the outcome is 0 or 1, by its declared type and range or as a comparison."""
        return self.values[-1] == 2 and self.recipe.outcome_range == (0.0, 1.0)

    @property
    def declared(self) -> tuple[str, ...]:
        """Columns of outcome and covariates whose ranges somebody declared."""
        known = {*self.formula.outcome_columns, *self.formula.covariate_columns}
        ranges = [x for x in self.columns.numeric if x in self.bounds and x in known]
        return tuple(x for x in ranges if self.bounds.source(x) == "declared")

    def strata(self) -> Strata:
        """Read the covariates as strata; raises where one is not discrete."""
        numeric, bounds = self.columns.numeric, self.bounds
        known = [n for n in numeric if n in bounds]
        binary = [n for n in known if bounds.source(n) == "dtype"]
        binary += [n for n in known if n in bounds.whole and bounds.interval(n) == (0.0, 1.0)]
        return Strata.build(self.formula, levels_of(self.formula, bounds), binary)

    def grouping(self) -> Recipe:
        """How rows find their group, where the covariates make the groups."""
        none = Encoding(())
        return Recipe(ex.Number(0.0), intervals_of(self.bounds), (0.0, 1.0), none, self.strata())

    def require_covariates(self) -> None:
        """Refuse covariates that make no column beside the intercept."""
        if self.width > self.formula.intercept:
            return
        terms = " + ".join(":".join(map(ex.shown, term)) for term in self.formula.terms)
        raise FormulaError(refusal("empty_covariates", terms=shorten(terms)))

    def with_bounds(self, found: Bounds) -> Self:
        """Return the same with ranges that were missing."""
        if not self.missing:
            return self
        return replace(self, bounds=self.bounds.updated(found), missing=())

    @property
    def tops(self) -> tuple[float, ...]:
        """The largest that both numbers of a `Pair` can be; none of another outcome.

        Where it says whether treatment was taken: the ends of the range of the outcome.
        """
        outcome, found = self.formula.outcome, list[float]()
        if isinstance(outcome, ex.WithTreatment):
            return _usable(range_of(outcome.first, intervals_of(self.bounds)))
        for term in (outcome.first, outcome.second) if isinstance(outcome, ex.Pair) else ():
            lower, upper = range_of(term, intervals_of(self.bounds))
            if not (lower >= 0.0 and _NARROWEST <= upper <= 1.0 / _NARROWEST and lower < upper):
                ends = {"lower": lower, "upper": upper}
                raise BoundsError(refusal("from_zero", term=ex.shown(term), **ends))
            found.append(upper)
        return tuple(found)

    def check_widths(self) -> None:
        """Refuse columns whose squares would be no numbers, where all are known to be released."""
        if self.missing:
            return
        ranges = self.encoding.ranges(intervals_of(self.bounds)).tolist()
        for column, ends in zip(self.encoding.columns[1:], ranges[1:], strict=True):
            if ends[0] < ends[1]:
                _usable(ends, f"`{column.name}`")

    @cached_property
    def recipe(self) -> Recipe:
        """How rows are clipped and encoded; raises when a range cannot be used."""
        intervals, outcome = intervals_of(self.bounds), self.formula.outcome
        if isinstance(outcome, ex.Ordered):
            outcome = replace(outcome, count=self.values[-1])
        lower, upper = (0.0, 1.0)
        if self.formula.outcome_columns:  # else the call reads no outcome
            lower, upper = _usable(range_of(outcome, intervals))
        ranges = self.encoding.ranges(intervals)
        try:
            discrete = self.strata()
        except FormulaError:  # a covariate that is not discrete
            discrete = None
        if isinstance(outcome, ex.Pair):
            outcome = replace(outcome, tops=(self.tops[0], self.tops[1]))
        return Recipe(outcome, intervals, (lower, upper), self.encoding, discrete, ranges)


def _usable(ends: tuple[float, float], what: str = "the outcome") -> tuple[float, float]:
    """The range of an outcome, or another column that sums are made of."""
    lower, upper = ends
    if not _NARROWEST <= upper - lower <= 1.0 / _NARROWEST:
        raise BoundsError(refusal("declared_range_too", what=what, lower=lower, upper=upper))
    return ends


def intervals_of(bounds: Bounds) -> dict[str, tuple[float, float]]:
    """Ranges of the numeric columns."""
    return {name: bounds.interval(name) for name in bounds if not bounds.is_levels(name)}


def levels_of(formula: Formula, bounds: Bounds) -> dict[str, tuple[Any, ...]]:
    """Levels of the columns that have them; those in the formula come first."""
    levels = {name: tuple(bounds[name]) for name in bounds if bounds.is_levels(name)}
    written = formula.levels.items()
    return {**levels, **{k: x for k, x in written if levels.get(k) != with_missing(x)}}


@dataclass(frozen=True)
class Columns:
    """How the columns that a formula needs are read.

    ``arms`` are the levels of the treatment, the reference first; None where it is bool or 0/1.
    ``lenient`` columns may have missing values: numbers are then NaN, and codes those of the level
    for missing values, or else 0. ``flags`` say which values are missing. ``computed`` is the
    treatment where it is not a column.
    """

    treatment: str
    arms: tuple[Any, ...] | None
    numeric: tuple[str, ...]
    levels: Mapping[str, tuple[Any, ...]]
    lenient: frozenset[str] = frozenset()
    flags: tuple[ex.Missing, ...] = ()
    computed: ex.Expression | ex.Cut | None = None
    events: tuple[str, ...] = ()
    """Columns that are 0 or 1, or missing."""
    ordered: tuple[ex.Ordered, ...] = ()
    """The outcome, where its levels are declared in order."""
    whole: frozenset[str] = frozenset()
    """Columns of whole numbers."""

    @property
    def treatment_reads(self) -> tuple[str, ...]:
        """Columns that the treatment is made of."""
        return (self.treatment,) if self.computed is None else ex.columns(self.computed)

    @property
    def arm_count(self) -> int:
        """Number of levels of the treatment."""
        return 2 if self.arms is None else len(self.arms)

    def arm(self, frame: nw.DataFrame[Any]) -> npt.NDArray[Any]:
        """Number of each record's arm; who is not in the first is treated."""
        if self.computed is not None:
            return self._computed(frame, self.computed)
        name, lenient = self.treatment, self.treatment in self.lenient
        if self.arms is not None:
            return codes(frame[name], self.arms, lenient)
        values = _plain(frame[name], lenient)
        known = np.nan_to_num(values) if lenient else values
        if values.dtype != np.bool_ and not ((known == 0) | (known == 1)).all():
            raise DataError(refusal("not_two_arms", name=name, dose=ex.show_name(name)))
        return np.asarray(values == 1)

    def _computed(self, frame: nw.DataFrame[Any], treatment: ex.Expression | ex.Cut) -> IntArray:
        """Arms that are computed, as covariates are; the first where a number is missing."""
        flags = {x.key: missing_in(frame[x.column]) for x in self.flags if x in ex.walk(treatment)}
        names = ex.number_columns(treatment)
        values = {n: numbers(frame[n], n in self.lenient).astype(np.float64) for n in names}
        with np.errstate(all="ignore"):
            found = prepared(treatment, values | flags, {}).astype(np.int64)
        for name in names:
            if ex.Missing(name).key not in flags:
                found[np.isnan(values[name])] = 0
        return found

    def empty_arm(self) -> DataError:
        """What to say where an arm has no records."""
        arms = {2: "two", 3: "three"}.get(self.arm_count, str(self.arm_count))
        return DataError(refusal("empty_arm", name=self.treatment, arms=arms))

    def numbers(self, frame: nw.DataFrame[Any], names: Iterable[str]) -> dict[str, Any]:
        """Numeric columns, in plain types, and which values are missing where that is asked."""
        names = set(names)
        wanted = [name for name in self.numeric if name in names]
        flags = {x.key: missing_in(frame[x.column]) for x in self.flags if x.column in names}
        found = {name: numbers(frame.get_column(name), name in self.lenient) for name in wanted}
        for name in set(self.events) & found.keys():
            if not ((found[name] == 0) | (found[name] == 1) | np.isnan(found[name])).all():
                raise DataError(refusal("event_codes", name=name, shown=ex.show_name(name)))
        for name in self.whole & found.keys():
            if (np.floor(values := found[name]) < values).any():
                raise DataError(refusal("not_whole", name=name))
        for x in (x for x in self.ordered if x.column in names):
            found[x.key] = codes(frame[x.column], self.levels[x.column], x.column in self.lenient)
        return found | flags

    def read(self, frame: nw.DataFrame[Any], names: Iterable[str]) -> tuple[Arrays, Arrays]:
        """Numbers and codes of some columns."""
        names = tuple(names)
        return self.numbers(frame, names), self.codes(frame, names)

    def codes(self, frame: nw.DataFrame[Any], names: Iterable[str]) -> dict[str, IntArray]:
        """Columns of levels, as indices into their levels."""
        numbered = {x.column for x in self.ordered}
        wanted = (name for name in names if name in self.levels and name not in numbered)
        return {n: codes(frame[n], self.levels[n], n in self.lenient) for n in wanted}


def numbers(column: nw.Series[Any], lenient: bool = False) -> npt.NDArray[Any]:
    """Values as they are stored where that is a plain type: blocks of them are converted later.

    Missing values, which only a ``lenient`` column has, are NaN.
    """
    values = _plain(column, lenient)
    with np.errstate(all="ignore"):
        sound = math.isfinite(values.sum())  # then all values are
    if not sound and (np.isinf(values) if lenient else ~np.isfinite(values)).any():
        raise DataError(refusal("column_contains_infinite", name=column.name))
    return values


def _plain(column: nw.Series[Any], lenient: bool) -> npt.NDArray[Any]:
    wide = column.dtype in (nw.Int128, nw.UInt128)  # numpy has no such integers
    values = (column.cast(nw.Float64) if wide else column).to_numpy()
    if values.dtype.kind in "fiub":
        return values
    if lenient:
        values = np.where(missing_in(column), np.nan, values)
    return values.astype(np.float64)


def codes(column: nw.Series[Any], levels: Sequence[Any], lenient: bool = False) -> IntArray:
    """Index of each value among the declared levels; where it is missing, that of its level."""
    values, there = column.to_list(), np.ones(len(column), dtype=np.bool_)
    if lenient:
        there = ~missing_in(column)
        values = list(compress(values, there))
    kind = object if column.dtype == nw.String else None
    try:
        known, given = (pd.Index(list(x), dtype=kind) for x in (present(levels), values))
        found = np.asarray(known.get_indexer(given))
    except TypeError:  # lists and the like are no levels
        found = np.array([-1])
    if (found < 0).any():
        raise outside_levels(column.name)
    coded = np.full(len(there), len(levels) - 1 if levels[-1] == MISSING_LEVEL else 0, np.int64)
    coded[there] = found
    return coded


def present(levels: Sequence[Any]) -> Sequence[Any]:
    """Levels that values have: text does not stand beside numbers for the missing ones."""
    others = levels[:-1]
    text = any(isinstance(level, str) for level in others)
    return levels if text or levels[-1] != MISSING_LEVEL else others


def missing_in(column: nw.Series[Any]) -> BoolArray:
    """Which values are null or NaN."""
    if column.dtype.is_float():  # as numbers, nulls are NaN
        return np.isnan(np.asarray(column.to_numpy(), np.float64))
    return np.asarray(column.is_null().to_numpy(), dtype=np.bool_)


def refuse_missing(frame: nw.DataFrame[Any], names: Iterable[str]) -> None:
    """Refuse nulls and NaN by column."""
    if bad := [name for name in names if missing_in(frame[name]).any()]:
        each = listed(f'"{name}": "complete"' for name in bad)
        raise DataError(refusal("missing_values", names=listed(bad), each=each))


def outside_levels(name: str) -> DataError:
    """What to say of a column with values that nobody declared."""
    return DataError(refusal("outside_levels", name=name))


@dataclass(frozen=True)
class Recipe:
    """From the columns of some rows to their outcomes, covariates and strata.

    ``ranges`` are those of the encoded columns, made once for all blocks.
    """

    outcome_term: ex.Expression
    intervals: Mapping[str, tuple[float, float]]
    outcome_range: tuple[float, float]
    encoding: Encoding
    discrete: Strata | None
    ranges: FloatArray = field(default_factory=lambda: np.zeros((0, 2)), compare=False)

    def reads(self, parts: Iterable[str]) -> tuple[str, ...]:
        """Columns that parts of a block are made of."""
        of = {"outcome": (self.outcome_term,), "covariates": self.encoding.factors}
        of["strata"] = self.discrete.factors if self.discrete else ()
        factors = (factor for part in parts for factor in of[part])
        return tuple(dict.fromkeys(name for factor in factors for name in ex.columns(factor)))

    @property
    def width(self) -> int:
        """Number of encoded covariates."""
        return len(self.encoding.columns)

    def outcome(self, numeric: Arrays, size: int) -> FloatArray:
        """Outcomes, clipped to their range; zeros where the call reads none."""
        if not ex.columns(self.outcome_term):
            return np.zeros(size)
        inside = self._clipped(numeric, ex.number_columns(self.outcome_term))
        with np.errstate(all="ignore"):  # what overflows or is undefined is clipped
            made = ex.evaluate(self.outcome_term, inside)
        return made if isinstance(self.outcome_term, ex.Column) else clip(made, self.outcome_range)

    def covariates(self, numeric: Arrays, coded: Arrays, out: FloatArray) -> FloatArray:
        """Encoded covariates, written to ``out``."""
        inside = self._clipped(numeric, self.encoding.numeric_columns)
        with np.errstate(all="ignore"):
            return self.encoding.matrix(inside, coded, self.ranges, out, len(out))

    def strata(self, numeric: Arrays, coded: Arrays) -> IntArray:
        """Stratum of each row."""
        assert self.discrete is not None
        names = {name for factor in self.discrete.factors for name in ex.number_columns(factor)}
        with np.errstate(all="ignore"):
            return self.discrete.index(self._clipped(numeric, names), coded)

    def _clipped(self, numeric: Arrays, names: Iterable[str]) -> dict[str, Any]:
        """Numbers within their ranges, missing ones in the middle, and which these are."""
        inside = {
            n: clip(np.asarray(numeric[n], np.float64), self.intervals.get(n, _ALL)) for n in names
        }
        return inside | {k: x for k, x in numeric.items() if ex.is_flag(k)}
