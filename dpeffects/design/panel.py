"""Long data to wide: rows of (unit, period) become one record for each unit.

A record is a function of the rows of its unit alone, so whoever protects records of the wide table
protects units of the long one, in however many rows (claim 33).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, TypeVar

import narwhals.stable.v2 as nw

from dpeffects.dates import is_date
from dpeffects.design import engines
from dpeffects.design.bounds import Bounds, DeclaredFrame
from dpeffects.design.design_builder import kinds_of, uses
from dpeffects.design.frames import is_number, require_columns, require_numbers, unpack
from dpeffects.design.sample import AnalysisSample, identifiers
from dpeffects.design.table_reader import sample_kinds
from dpeffects.errors import DataError, OptionError, listed, refusal
from dpeffects.files import is_text
from dpeffects.formula import Formula
from dpeffects.formula.expression import Column, Expression, Missing, mapped, show_number

Period = float | str
Tree = TypeVar("Tree", bound=Expression)


@dataclass(frozen=True)
class Panel:
    """Whose row it is, of which period, and from which period on some are treated.

    ``periods`` are in their order. The last one before ``start`` is the reference.
    """

    unit: str
    time: str
    periods: tuple[Period, ...]
    start: Period

    @classmethod
    def asked(cls, unit: Any, time: Any, periods: Any, start: Any) -> Panel:
        """Check what a call says about its periods."""
        for name, column in (("unit", unit), ("time", time)):
            if not (isinstance(column, str) and column):
                raise OptionError(refusal("long_data_needs", name=name))
        if unit == time:
            raise OptionError(f"unit and time are the same column {unit!r}")
        listable = isinstance(periods, Sequence | range) and not isinstance(periods, str | bytes)
        if not listable or not 2 <= len(periods) <= 20:
            raise OptionError(refusal("periods_list"))
        known = tuple(_period("periods", x) for x in periods)
        texts = sum(isinstance(x, str) for x in known)
        if texts not in (0, len(known)):
            raise OptionError("periods must be all numbers or all text")
        if len(set(known)) < len(known) or (not texts and list(known) != sorted(known)):
            raise OptionError("periods must be in increasing order, each named once")
        if start is None and len(known) > 2:
            raise OptionError("start is missing: write start=..., the first period under treatment")
        first = known[-1] if start is None and len(known) == 2 else _period("start", start)
        if first not in known[1:]:
            raise OptionError(refusal("start_one_periods"))
        return cls(unit, time, known, first)

    @property
    def reference(self) -> Period:
        """The last period before treatment."""
        return self.periods[self.periods.index(self.start) - 1]

    def names(self, column: str, taken: Iterable[str]) -> dict[Period, str]:
        """Names of a column in each period: ``y_2019``, or longer where that is taken."""
        found, others = {}, set(taken)
        for period in self.periods:
            name = f"{column}_{label(period)}"
            while name in others:
                name += "_"
            found[period] = name
            others.add(name)
        return found

    def is_in(self, period: Period, dtype: Any) -> nw.Expr:
        """Whether a row is of a period."""
        column = nw.col(self.time)
        if isinstance(period, str):
            found = (column if dtype == nw.String else column.cast(nw.String)) == period
        else:
            found = column.cast(nw.Float64) == period
        return found.fill_null(False)


def _period(what: str, value: Any) -> Period:
    number = isinstance(value, Real) or type(value).__name__ in ("bool", "bool_")
    if not isinstance(value, str) and not (number and math.isfinite(float(value))):
        raise OptionError(f"{what}: a period must be a number or text, got {type(value).__name__}")
    return value if isinstance(value, str) else float(value)


def label(period: Period) -> str:
    """A period as a person writes it."""
    return period if isinstance(period, str) else show_number(period)


@dataclass(frozen=True)
class Wide:
    """One record for each unit, with its bounds, and what the outcome is called in each period.

    ``once`` are the treatment and the covariates, which have one value for a unit.
    """

    data: DeclaredFrame
    names: Mapping[str, Mapping[Period, str]]
    once: tuple[str, ...]

    def outcome(self, outcome: Tree, period: Period) -> Tree:
        """Return the outcome of a period, as an expression of the wide columns."""
        return _renamed(outcome, {name: found[period] for name, found in self.names.items()})

    def missing(self, missing: Any) -> Any:
        """What becomes of missing values, by columns of the wide table.

        Where units without an outcome are left out, so are those without its row: they have no
        treatment or covariates either.
        """
        if not isinstance(missing, Mapping):
            return missing
        rows = {missing.get(name) for name in self.names} == {"complete"}
        found = dict.fromkeys(self.once, "complete") if rows else {}
        wide = {k: tuple(self.names[k].values()) if k in self.names else (k,) for k in missing}
        return found | {name: how for k, how in missing.items() for name in wide[k]}


def _renamed(tree: Any, names: Mapping[str, str]) -> Any:
    """An expression with other names of its columns."""

    def other(node: Any) -> Any:
        match node:
            case Column(name) | Missing(name):
                return type(node)(names.get(name, name))

    return mapped(tree, other)


def wide_of(
    data: Any, formula: Formula, bounds: Any, panel: Panel, sample: AnalysisSample, strict: bool
) -> Wide:
    """Put the rows of each unit together.

    Outcomes are those of each period. Treatment is that of the first period under treatment, and
    all other columns are those of the last period before. A period in which a unit has no row, or
    more than one, is missing: whatever is in it. ``strict`` refuses these.
    """
    read = tuple(dict.fromkeys([*formula.columns, *sample.columns]))
    frame, known, _ = unpack(data, bounds, read)
    schema = frame.collect_schema()
    require_columns(formula.columns, list(schema), "the formula")
    asked = {**sample.columns, panel.unit: "unit", panel.time: "time"}
    for name, what in asked.items():
        require_columns([name], list(schema), what)
    if both := {panel.unit, panel.time} & set(read):
        raise OptionError(refusal("column_units_periods", both=listed(sorted(both))))
    text = is_text(data.frame if isinstance(data, DeclaredFrame) else data)
    known = known.as_used(uses(formula, {} if text else schema))
    if text:
        frame = engines.typed(frame, _text_kinds(formula, known, panel, sample))
        schema = frame.collect_schema()
    _check_types(schema, formula, panel)
    taken = (*read, panel.unit, panel.time)
    names = {name: panel.names(name, taken) for name in formula.outcome_columns}
    for name, found in names.items():
        known = _copied(known, name, found.values(), schema[name] == nw.Boolean)
    once = dict.fromkeys((*formula.covariate_columns, *sample.columns), panel.reference)
    once |= dict.fromkeys(formula.treatment_columns, panel.start)
    wide = _pivoted(frame, panel, names, once, strict)
    return Wide(DeclaredFrame(wide.to_native(), known), names, formula.columns[len(names) :])


def _text_kinds(
    formula: Formula, known: Bounds, panel: Panel, sample: AnalysisSample
) -> dict[str, str]:
    """What the columns of a CSV file are read as; dates are read later."""
    kinds = {**sample_kinds(sample, known), **kinds_of(formula, formula.columns, known)}
    dated = known.date_kinds(kinds)
    kinds = {name: kind for name, kind in kinds.items() if name not in dated}
    return kinds | {panel.time: "text" if isinstance(panel.start, str) else "number"}


def _check_types(schema: Mapping[str, Any], formula: Formula, panel: Panel) -> None:
    """Refuse outcomes that are no numbers, and periods of another kind than their column."""
    require_numbers(schema, formula.outcome_columns)
    dtype = schema[panel.time]
    if is_date(dtype):
        raise DataError(refusal("column_contains_dates", time=panel.time))
    texts = dtype == nw.String or isinstance(dtype, nw.Enum | nw.Categorical)
    if isinstance(panel.start, str) != texts or not (texts or is_number(dtype)):
        kind = "text" if isinstance(panel.start, str) else "numbers"
        raise DataError(f"periods= are {kind}, but column {panel.time!r} is {type(dtype).__name__}")


def _copied(known: Bounds, name: str, names: Iterable[str], boolean: bool) -> Bounds:
    """Bounds in which the outcome of each period has those of the outcome."""
    for each in names:
        if name in known:
            entry = replace(known.entries[name], whole=False, since="")
            known = known.with_entry(each, entry)
        elif boolean:
            known = known.with_interval(each, 0.0, 1.0, source="dtype")
        if name in known.blank:
            known = replace(known, blank={**known.blank, each: known.blank[name]})
    return known


def _pivoted(
    frame: Any,
    panel: Panel,
    outcomes: Mapping[str, Mapping[Period, str]],
    once: Mapping[str, Period],
    strict: bool,
) -> Any:
    """One row for each unit, wherever the rows are; the same bits everywhere.

    Sums and maxima are of one value each, or are not used.
    """
    schema, unit = frame.collect_schema(), panel.unit
    frame = _nullable(frame.select(list(dict.fromkeys([unit, panel.time, *outcomes, *once]))))
    if isinstance(frame, nw.LazyFrame):
        engines.refuse_unnamed(frame, unit)
    else:  # lists are no groups in pandas and pyarrow
        names = identifiers(frame[unit])
        frame = frame.with_columns(nw.new_series(unit, names, backend=frame.implementation))
    count = {period: f"{unit} rows {k}" for k, period in enumerate(panel.periods)}
    made: dict[str, nw.Expr] = {}
    for period, name in count.items():
        there = panel.is_in(period, schema[panel.time])
        made[name] = there.cast(nw.Int64)
        for column, found in outcomes.items():
            made[found[period]] = nw.when(there).then(nw.col(column).cast(nw.Float64))
    values = [name for name in made if name not in count.values()]
    totals = [nw.col(name).sum() for name in count.values()]
    largest = [nw.col(name).max() for name in values]
    units = frame.with_columns(**made).group_by(unit).agg(*totals, *largest)
    if strict:
        _refuse_incomplete(units, panel, list(count.values()))
    alone = {
        found[period]: nw.when(nw.col(name) == 1).then(nw.col(found[period]))
        for period, name in count.items()
        for found in outcomes.values()
    }
    wide = units.select(unit, **alone)
    for period in dict.fromkeys(once.values()):
        there = panel.is_in(period, schema[panel.time])
        columns = [name for name, when in once.items() if when == period]
        rows = frame.filter(there).select([unit, *columns])
        single = units.filter(nw.col(count[period]) == 1).select(unit)
        wide = wide.join(rows.join(single, on=unit, how="inner"), on=unit, how="left")
    if (dask := frame.implementation.is_dask()) or frame.implementation.is_spark_like():
        plan = {"fuse": False} if dask else {}  # fusing steps takes longer than doing them
        with engines.hide_engine_errors(wide):
            return nw.from_native(wide.to_native().persist(**plan))  # rows change places once
    return wide


def _refuse_incomplete(units: Any, panel: Panel, counts: Sequence[str]) -> None:
    """Refuse units that have no row, or several, in a period."""
    ask = {name: (nw.col(name) != 1).cast(nw.Int64).sum() for name in counts}
    if any(engines.asked(units.lazy(), ask).values()):
        raise DataError(refusal("unbalanced_panel", unit=panel.unit))


def _nullable(frame: Any) -> Any:
    """Whole numbers and bools in types that may be missing, so that no value decides on a type."""
    if not (frame.implementation.is_pandas_like() or frame.implementation.is_dask()):
        return frame
    native = frame.to_native()
    known = {"i": "Int64", "u": "UInt64", "b": "boolean"}
    kinds = {name: known.get(getattr(x, "kind", ""), "") for name, x in native.dtypes.items()}
    plain = {
        name: kind
        for name, kind in kinds.items()
        if kind and not hasattr(native.dtypes[name], "numpy_dtype")
    }
    return nw.from_native(native.astype(plain)) if plain else frame
