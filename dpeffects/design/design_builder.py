"""What formula, declarations and types say of each column: a `Design`, with ranges still missing.

Nothing is read from rows but for public columns, and for ``bounds="from_data"``, which voids the
guarantee.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import narwhals.stable.v2 as nw

from dpeffects import dates
from dpeffects.design.bounds import Bound, Bounds, skeleton
from dpeffects.design.columns import Columns, Design, levels_of, missing_in, numbers
from dpeffects.design.engines import AnyFrame
from dpeffects.design.frames import is_number, not_numeric, require_numbers
from dpeffects.errors import BoundsError, DataError, listed, quoted, refusal
from dpeffects.files import kind_of
from dpeffects.formula import Formula
from dpeffects.formula import expression as ex
from dpeffects.formula.encoding import Encoding, with_missing
from dpeffects.formula.parser import dose_advice


def completed(
    frame: AnyFrame,
    known: Bounds,
    formula: Formula,
    n: int,
    *,
    lenient: frozenset[str],
    indicated: Iterable[str] = (),
    outcome: str | None = None,
    covariates: str | None = None,
) -> Design:
    """Complete what is declared; raises where something cannot be used.

    Columns that are ``lenient`` may have missing values, those that are ``indicated`` get a term or
    a level for them. ``outcome`` and ``covariates`` say why their values may be looked at: they are
    "public", or the "data" is to say everything.
    """
    reader = _ColumnReader(frame, known, formula, lenient, indicated)
    timed = isinstance(formula.outcome, ex.Survival)  # a cell of a table, whatever the times are
    for name in formula.outcome_columns:
        if isinstance(formula.outcome, ex.Ordered):
            reader.ordered_column(name, outcome)
        elif name not in _only_flagged(formula):
            reader.numeric_column(name, outcome, needs_range=not timed)
    for name in formula.covariate_columns:
        reader.covariate(name, covariates)
    return reader.design(n)


class _ColumnReader:
    """Collects columns and completes bounds while the formula is walked."""

    def __init__(
        self,
        frame: AnyFrame,
        known: Bounds,
        formula: Formula,
        lenient: frozenset[str],
        indicated: Iterable[str],
    ) -> None:
        self._frame, self._known, self._schema = frame, known, frame.collect_schema()
        self._factors, self._events = _names_in_c(formula), _events(formula)
        among = [name for name in indicated if name in formula.covariate_columns]
        self._formula = formula.with_indicators(n for n in among if not self._has_levels(n))
        self._lenient, self._further = lenient, set(among) - self._formula.flags
        self._flagged, self._computed = _only_flagged(self._formula), _names_computed(formula)
        self._arms = _arms(frame, formula, known)
        self._entries: dict[str, Bound] = {}
        self._numeric: list[str] = []
        self._missing: list[str] = []
        self._undeclared_levels: list[str] = []

    def covariate(self, name: str, source: str | None) -> None:
        """Read a covariate as numbers or as levels, as the formula and its dtype say."""
        if name in self._flagged:
            return
        dtype, known = self._schema[name], self._known
        if dates.is_date(dtype) and not known.is_levels(name):
            raise dates.undeclared(name)
        if not self._has_levels(name):
            self.numeric_column(name, source)
            return
        strange = isinstance(dtype, nw.Duration | nw.Unknown) and name not in known
        ranged = name in known and not known.is_levels(name)
        if (ranged or strange) and name not in self._factors:
            raise DataError(not_numeric(name, dtype))
        if name in self._computed:
            raise DataError(refusal("column_categorical_but", name=name))
        self._level_column(name, source)

    def _has_levels(self, name: str) -> bool:
        numeric = is_number(self._schema[name])
        return self._known.is_levels(name) or name in self._factors or not numeric

    def numeric_column(self, name: str, source: str | None, needs_range: bool = True) -> None:
        """Read numbers, and their range from a declaration, the dtype, or public data."""
        dtype, entry = self._schema[name], self._known.entries.get(name)
        if dates.is_date(dtype):
            raise dates.undeclared(name)
        if entry is not None and entry.levels:
            self._refuse_levels(name, entry)
        require_numbers(self._schema, [name])
        self._numeric.append(name)
        binary = (0.0, 1.0)
        if entry is not None:
            if name in self._events and entry.values != binary:
                raise BoundsError(refusal("event_bounds", name=name))
        elif dtype == nw.Boolean:
            entry = Bound(binary, "dtype")
        elif written := ends_in_formula(name, self._formula):
            entry = Bound(written)
        elif not needs_range:
            return
        elif name in self._events:
            entry = Bound(binary, "dtype")
        elif source is not None:
            values = numbers(self._in_memory(name))
            entry = Bound((float(values.min()), float(values.max())), source)
        else:
            self._missing.append(name)
            return
        whole = entry.whole or (dtype == nw.Boolean and entry.values == binary)
        self._entries[name] = replace(entry, whole=whole)

    def _refuse_levels(self, name: str, entry: Bound) -> None:
        """Refuse declared levels of a column that must hold numbers."""
        last = quoted(entry.values[-1])
        if name in self._events:
            raise BoundsError(refusal("event_levels", name=name, last=last))
        if name in self._formula.outcome_columns:
            two = len(entry.values) == 2
            why = "which are no numbers here" if two else "and not two alone"
            raise BoundsError(refusal("outcome_levels", name=name, why=why, last=last))
        if is_number(self._schema[name]):
            raise BoundsError(refusal("number_levels", name=name))

    def ordered_column(self, name: str, source: str | None) -> None:
        """Read an outcome whose levels are declared in their order."""
        if name in self._known and not self._known.is_levels(name):
            raise BoundsError(refusal("ordered_range", name=name))
        self._level_column(name, source)

    def _level_column(self, name: str, source: str | None) -> None:
        """Read levels from the formula, a declaration, the dtype, or public data."""
        dtype, known = self._schema[name], self._known
        levels: tuple[Any, ...]
        if name in self._formula.levels:
            levels, source = tuple(self._formula.levels[name]), "declared"
        elif known.is_levels(name):
            levels, source = tuple(known[name]), known.source(name)
        elif written := _schema_levels(name, dtype, self._frame):
            levels, source = written, "dtype"
        elif dtype == nw.Boolean:
            levels, source = (False, True), "dtype"
        elif source is not None:
            levels = _levels_found(self._in_memory(name))
        else:
            self._undeclared_levels.append(name)
            return
        _check_kind(name, dtype, levels)
        levels = with_missing(levels) if name in self._further else levels
        self._entries[name] = Bound(levels, source, levels=True)

    def _in_memory(self, name: str) -> nw.Series[Any]:
        """A public column, to read bounds from."""
        if isinstance(self._frame, nw.LazyFrame):
            raise BoundsError(refusal("lazy_bounds", name=name, write=skeleton([name], [])))
        return self._frame[name].filter((~missing_in(self._frame[name])).tolist())

    def design(self, n: int) -> Design:
        """Put together what was found; raises where something cannot be used."""
        self._check_bounds()
        formula, entries = self._formula, self._entries
        columns = Columns(
            formula.treatment_name,
            self._arms,
            tuple(dict.fromkeys(self._numeric)),
            {name: tuple(entry.values) for name, entry in entries.items() if entry.levels},
            self._lenient,
            tuple(map(ex.Missing, sorted(formula.flags))),
            formula.computed_treatment,
            self._events,
            (formula.outcome,) if isinstance(formula.outcome, ex.Ordered) else (),
            Bounds(entries).whole,
        )
        # missing values are in the middle of the range
        filled = {name: replace(entries[name], whole=False) for name in formula.flags & {*entries}}
        bounds = Bounds(entries | filled)
        encoding = Encoding.build(formula, levels_of(formula, bounds))
        design = Design(formula, columns, bounds, tuple(self._missing), encoding, n)
        any_range = Bounds(dict.fromkeys(self._missing, Bound((0.0, 1.0), "private")))
        _ = design.with_bounds(any_range).recipe  # raises where a declared range cannot be used
        return design

    def _check_bounds(self) -> None:
        """Check what is left to find; levels cannot be found privately."""
        formula = self._formula
        self._known.refuse_blank((*self._missing, *self._undeclared_levels))
        if self._undeclared_levels:
            untyped = [n for n in self._undeclared_levels if self._schema[n] == nw.Object]
            objects = f" (or data[{untyped[0]!r}].astype(bool) if it is that)" if untyped else ""
            texts = [n for n in self._undeclared_levels if self._schema[n] == nw.String]
            if texts and not untyped:
                objects = f" (or pandas.to_numeric(data[{texts[0]!r}]) if it is a number)"
            facts = {"names": listed(self._undeclared_levels), "objects": objects}
            write = skeleton(self._missing, self._undeclared_levels)
            raise BoundsError(refusal("undeclared_levels", write=write, **facts))
        factors = (formula.outcome, *formula.factors)
        fixed = {name for factor in factors for name in ex.needs_domain(factor)}
        blocked = [name for name in self._missing if name in fixed]
        if blocked:
            raise BoundsError(f"{_why_declared(blocked, formula)}. Add{skeleton(blocked, [])}")


def _why_declared(blocked: list[str], formula: Formula) -> str:
    names = listed(blocked)
    if isinstance(formula.outcome, ex.Pair):
        return f"the largest possible value of {names} must be declared"
    return f"{names} is inside a function that is not defined everywhere; declare its range"


def _arms(frame: AnyFrame, formula: Formula, known: Bounds) -> tuple[Any, ...] | None:
    """Levels of the treatment, control first, or None where it is bool or 0/1."""
    name, schema = formula.treatment_name, frame.collect_schema()
    if (computed := formula.computed_treatment) is not None:
        require_numbers(schema, ex.number_columns(computed))
        return computed.labels if isinstance(computed, ex.Cut) else None
    dtype = schema[name]
    levels = formula.treatment.levels if isinstance(formula.treatment, ex.Categorical) else None
    if levels is None and known.is_levels(name):
        levels = tuple(known[name])
    if levels is None:
        levels = _schema_levels(name, dtype, frame)
    if levels is not None and len(levels) < 2:
        raise DataError(f"treatment {name!r} has one level; declare two or more, control first")
    if levels is None and not is_number(dtype):
        objects = f" (or data[{name!r}].astype(bool) if it is that)" if dtype == nw.Object else ""
        raise DataError(refusal("treatment_levels", name=name) + objects)
    if levels is None and name in known and known.interval(name) != (0.0, 1.0):
        raise DataError(f"treatment {name!r} is declared with a range: {dose_advice(name)}")
    _check_kind(name, dtype, levels)
    return levels


def _check_kind(name: str, dtype: Any, levels: tuple[Any, ...] | None) -> None:
    """Refuse levels of another kind than the column: an engine would not compare them."""
    texts = [isinstance(level, str) for level in levels or ()]
    if texts and ((dtype == nw.String and not any(texts)) or (dtype.is_numeric() and all(texts))):
        raise DataError(refusal("levels_kind", name=name, kind="text" if any(texts) else "numbers"))


def _schema_levels(name: str, dtype: Any, frame: AnyFrame) -> tuple[Any, ...] | None:
    """Levels of an Enum of polars, which its maker wrote into the schema.

    Categories of pandas do not count, ordered or not: `astype("category")`, `cut` and `qcut` learn
    them from the data, and nobody can tell those from categories that were written down. DuckDB
    makes an ENUM of them. An Enum of polars is never made without a list.
    """
    if not isinstance(dtype, nw.Enum):
        return None
    levels = tuple(dtype.categories)
    if not all(isinstance(level, str | int | float | bool) for level in levels):
        raise BoundsError(refusal("cut_outside", name=name))
    return levels if frame.implementation.is_polars() else None


def _levels_found(column: nw.Series[Any]) -> tuple[Any, ...]:
    """Levels of a public column, in order."""
    try:
        return tuple(sorted(set(column.to_list())))
    except TypeError:
        raise DataError(refusal("column_values_several", name=column.name)) from None


def uses(formula: Formula, schema: Mapping[str, Any]) -> dict[str, str]:
    """What formula and types make of columns: a "number", a "factor", or "" for either."""
    found = dict.fromkeys(formula.columns, "")
    found |= dict.fromkeys([*formula.outcome_columns, *_names_computed(formula)], "number")
    found |= dict.fromkeys(formula.treatment_columns, "number")
    if isinstance(formula.outcome, ex.Ordered):
        found[formula.outcome.column] = "factor"
    factors = {formula.treatment_name, *_names_in_c(formula)} & found.keys()
    types = {name: schema[name] for name in formula.columns if name in schema}
    factors |= {n for n, x in types.items() if not (x.is_numeric() or x == nw.Boolean)}
    return found | dict.fromkeys(factors, "factor")


def kinds_of(formula: Formula, names: Iterable[str], known: Bounds) -> dict[str, str]:
    """What the columns of a CSV file are read as: levels as they are declared, else numbers."""
    levels = {name: list(known[name]) for name in known if known.is_levels(name)}
    levels |= {name: list(found) for name, found in formula.levels.items()}
    undeclared = (_names_in_c(formula) - set(levels)) | (_only_flagged(formula) - set(known))
    return {n: "text" if n in undeclared else kind_of(levels.get(n)) for n in names}


def _events(formula: Formula) -> tuple[str, ...]:
    """Columns that say whether a time ended in the event, or whether treatment was taken."""
    match formula.outcome:
        case ex.Survival(_, ex.Column(name)) | ex.WithTreatment(_, ex.Column(name)):
            return (name,)
    return ()


def ends_in_formula(name: str, formula: Formula) -> tuple[float, float] | None:
    """Range that cut points or spline bounds give a column, if nothing else uses it."""
    ends: list[float] = []
    for factor in (f for f in formula.factors if name in ex.number_columns(f)):
        if not isinstance(factor, ex.Cut | ex.Spline) or factor.x != ex.Column(name):
            return None
        ends += factor.points if isinstance(factor, ex.Cut) else (factor.lower, factor.upper)
    return (min(ends), max(ends)) if ends else None


def _names_computed(formula: Formula) -> set[str]:
    """Columns that some term computes with, so that they must be numbers."""
    plain = (ex.Column, ex.Categorical)
    others = (f for f in formula.factors if not isinstance(f, plain))
    computed = {name for factor in others for name in ex.number_columns(factor)}
    numbers = {f.name for f in formula.factors if isinstance(f, ex.Column)}
    return computed | (numbers & _names_in_c(formula))


def _only_flagged(formula: Formula) -> set[str]:
    """Columns that stand in is_na(...) and nowhere else."""
    if not formula.flags:
        return set()
    factors = (formula.outcome, formula.treatment, *formula.factors)
    read = {name for factor in factors for name in ex.number_columns(factor)}
    return set(formula.flags) - read - _names_in_c(formula)


def _names_in_c(formula: Formula) -> set[str]:
    """Columns that stand in C(...)."""
    return {f.column for f in formula.factors if isinstance(f, ex.Categorical)}
