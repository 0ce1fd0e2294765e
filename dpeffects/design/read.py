"""Frame + Formula + Bounds -> validated columns, then clipped and encoded rows.

``read`` looks at every row once, refuses what cannot be used, and completes the bounds from dtypes
and public columns; it says which ranges are still missing. Tables then clip and encode.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
import numpy.typing as npt

from dpeffects import dates
from dpeffects.arrays import FloatArray, IntArray
from dpeffects.design import engines
from dpeffects.design.bounds import Bounds, Declared, skeleton
from dpeffects.design.codebook import opened
from dpeffects.design.columns import (
    Columns,
    Design,
    codes,
    intervals_of,
    levels_of,
    missing_in,
    numbers,
    outside_levels,
    refuse_missing,
)
from dpeffects.design.engines import AnyFrame
from dpeffects.design.sample import Sample
from dpeffects.design.table import Table
from dpeffects.errors import BoundsError, DataError, listed, nearest, quoted
from dpeffects.files import by_declaration, is_text, kind_of
from dpeffects.formula import Formula, has_dot, parse
from dpeffects.formula.condition import values_in
from dpeffects.formula.discrete import Strata
from dpeffects.formula.encoding import MISSING_LEVEL, Encoding, with_missing
from dpeffects.formula.expression import (
    Categorical,
    Column,
    Cut,
    Missing,
    Ordered,
    Pair,
    Spline,
    Survival,
    Taken,
    columns,
    needs_domain,
    number_columns,
)
from dpeffects.formula.parser import dose_advice
from dpeffects.formula.ranges import clip


def read(
    data: Any,
    formula: Formula,
    bounds: Mapping[str, Any] | str | None,
    public: Iterable[str],
    *,
    attended: bool = True,
    sample: Sample | None = None,
    arguments: Mapping[str, Any] | None = None,
) -> Table:
    """Validate the columns that a formula needs and complete their bounds.

    ``public`` says whether "covariates" (or even the "outcome") are public, in which case their
    ranges and levels may be taken from the data at no cost. An empty arm is an error for the
    person who holds the data; a call that is not ``attended`` works with it.

    ``sample`` says which rows count, and by column what becomes of missing values: they are an
    "error" unless it says otherwise or the formula has ``is_na(x)``. With "indicator" a covariate
    gets a term ``is_na(x)`` or a further level; with "complete" and "weight" missing values come
    through, in rows that count as nothing: numbers as NaN, treatments and levels as the first.

    ``arguments`` are those of the call that may name columns of the formula beside its text.
    """
    sample = sample or Sample()
    missing = {k: how for k, how in sample.policies.items() if k in formula.columns}
    read_here = (*formula.columns, *sample.columns)
    frame, known, from_data = unpack(data, bounds, read_here)
    schema = frame.collect_schema()
    for name in formula.columns:
        naming = (key for key, given in (arguments or {}).items() if name in str(given))
        who = "the formula" if name in formula.source else next(naming, "an argument")
        require_columns([name], list(schema), who)
    lenient = formula.flags | {name for name, how in missing.items() if how != "error"}
    for name, what in sample.columns.items():
        require_columns([name], list(schema), what)
    text = is_text(data.frame if isinstance(data, Declared) else data)
    numbers_only = {} if sample.weights is None else {sample.weights: "number"}
    given, known = known, known.as_used(uses(formula, {} if text else schema) | numbers_only)
    formula = _with_levels(formula, known)
    if sample.weights is not None:
        sample = replace(sample, upper=_upper_weight(sample.weights, frame, known))
    kinds: dict[str, str] = {}
    if text:
        kinds = {**sample_kinds(sample, known), **kinds_of(formula, formula.columns, known)}
    kinds |= known.date_kinds(read_here)
    if kinds:
        frame = _with_dates(frame, known, read_here)
        try:
            frame = engines.typed(frame, kinds)
        except DataError:  # text in a column that a codebook names and does not declare
            known.refuse_blank(formula.columns)
            raise
    sample.check_types(frame.collect_schema(), given)
    lazy = isinstance(frame, nw.LazyFrame)
    rows = engines.rows_in(frame)
    if lazy and sample.cluster is not None:
        engines.refuse_unnamed(frame, sample.cluster)
    sizes = None if sample.unit is None else engines.unit_sizes(frame, sample)
    n = rows if sizes is None else sizes.names.size
    if n < 4:
        what = "rows" if sizes is None else f"values of {sample.unit!r}"
        raise DataError(f"the data has {n} {what}; at least 4 are needed")
    if lazy and from_data:
        raise BoundsError('bounds="from_data" needs rows in memory: declare bounds, or collect')
    indicated = [name for name, how in missing.items() if how == "indicator"]
    reader = _ColumnReader(frame, known, formula, lenient, indicated)
    free = "data" if from_data else None
    outcome_source = free or ("public" if "outcome" in public else None)
    timed = isinstance(formula.outcome, Survival)  # a cell of a life table, whatever the times are
    for name in formula.outcome_columns:
        if isinstance(formula.outcome, Ordered):
            reader.ordered_column(name, outcome_source)
        elif name not in _only_flagged(formula):
            reader.numeric_column(name, outcome_source, needs_range=not timed)
    covariate_source = free or ("public" if "covariates" in public else None)
    for name in formula.covariate_columns:
        reader.covariate(name, covariate_source)
    table = Table.checked(frame, reader.design(n), rows, (sample, sizes), kinds)
    if attended and not all(table.arm_counts):
        raise table.design.columns.empty_arm()
    return table


def strata_of(data: Any, formula: Formula, bounds: Any) -> Strata:
    """The groups that the covariates of a formula make, by declared levels; no row is read."""
    frame, known, _ = unpack(data, bounds, formula.columns)
    schema = frame.collect_schema()
    require_columns(formula.columns, list(schema), "by")
    text = is_text(data.frame if isinstance(data, Declared) else data)
    known = known.as_used(uses(formula, {} if text else schema))
    if text:
        frame = by_declaration(frame, kinds_of(formula, formula.columns, known))
    reader = _ColumnReader(frame, known, formula, formula.flags, ())
    for name in formula.covariate_columns:
        reader.covariate(name, None)
    return reader.design(1).strata()


def _with_levels(formula: Formula, known: Bounds) -> Formula:
    """Read an outcome with two declared levels as 0 and 1; the second is the event."""
    match formula.outcome:
        case Column(name) if known.is_levels(name) and len(known[name]) == 2:
            return replace(formula, outcome=Ordered(name))
    return formula


def _upper_weight(name: str, frame: AnyFrame, known: Bounds) -> float:
    """The declared upper bound of weights."""
    if name in known and not known.is_levels(name):
        lower, upper = known.interval(name)
        if lower >= 0.0 and upper > 0.0:
            return upper
    elif frame.collect_schema()[name] == nw.Boolean:
        return 1.0
    raise BoundsError(
        f"weights are from 0 to an upper bound that is declared: bounds={{{name!r}: (0, UPPER)}}"
    )


def sample_kinds(sample: Sample, known: Bounds) -> dict[str, str]:
    """What the columns of a CSV file that say who counts are read as."""
    kinds = {} if sample.weights is None else {sample.weights: "number"}
    if sample.subset is not None:
        values, numeric = values_in(sample.subset), number_columns(sample.subset)
        for name in columns(sample.subset):
            levels = list(known[name]) if name in known and known.is_levels(name) else None
            levels = levels or list(values.get(name, ()))
            kinds.setdefault(name, "number" if name in numeric else kind_of(levels))
    names = {name: "text" for name in (sample.unit, sample.cluster) if name is not None}
    return names | kinds


def uses(formula: Formula, schema: Mapping[str, Any]) -> dict[str, str]:
    """What formula and types make of columns: a "number", a "factor", or "" for either."""
    found = dict.fromkeys(formula.columns, "")
    found |= dict.fromkeys([*formula.outcome_columns, *_names_computed(formula)], "number")
    found |= dict.fromkeys(formula.treatment_columns, "number")
    if isinstance(formula.outcome, Ordered):
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


def _with_dates(frame: Any, known: Bounds, names: Iterable[str]) -> Any:
    """Check the types of columns that are declared with dates, and read those that are objects."""
    kinds, schema = known.date_kinds(names), frame.collect_schema()
    if isinstance(frame, nw.DataFrame):
        frame = dates.from_objects(frame, kinds)
    for name in kinds:
        dates.refuse_zone(name, schema[name])
        if not (dates.is_date(schema[name]) or schema[name] in (nw.String, nw.Object)):
            kind = type(schema[name]).__name__
            raise DataError(f"column {name!r} is declared with dates, but it is {kind}")
    return frame


def unpack(
    data: Any, bounds: Any, needed: Iterable[str] | None = None
) -> tuple[AnyFrame, Bounds, bool]:
    """A frame of any kind, what is declared about it, and whether the data may say the rest."""
    known = Bounds()
    if isinstance(data, Declared):
        data, known = data.frame, data.bounds
    data = engines.open_if_path(data)
    if nw.dependencies.is_pandas_dataframe(data) and data.columns.nlevels > 1:
        raise DataError(
            "the names of the columns have several levels: join them, as "
            'data.columns = data.columns.map("_".join) in pandas'
        )
    try:
        frame = nw.from_native(data)
        names = list(frame.collect_schema())
    except nw.exceptions.DuplicateError:
        names = [str(name) for name in getattr(data, "columns", ())]
        twice = dict.fromkeys(repr(name) for name in names if names.count(name) > 1)
        raise DataError(
            f"the data has two columns named {listed(twice) or 'alike'}: rename or drop one, as "
            "data.loc[:, ~data.columns.duplicated()] in pandas"
        ) from None
    except nw.exceptions.NarwhalsError as error:
        raise DataError(f"the frame cannot be read: {str(error).splitlines()[0]}") from None
    except TypeError:
        head = ', columns=["y", "t", "x"]' if isinstance(data, np.ndarray) else ""
        raise DataError(
            "data must be a frame (pandas, polars, pyarrow, Dask, Spark or a DuckDB relation) or "
            f"the path of a .parquet or .csv file, not {type(data).__name__}: make one, as "
            f"pandas.DataFrame(data{head})"
        ) from None
    odd = next((x for x in needed or () if x == "*" or x[:1] + x[-1:] == "^$"), None)
    if odd and (engine := frame.implementation.name.lower()) not in ("pandas", "dask"):
        raise DataError(f"{engine} takes the name {odd!r} as a pattern: rename the column")
    if len(names) == 1 and (mark := next((x for x in ";\t" if x in names[0]), "")):
        raise DataError(
            f"the data has one column, with {mark!r} in its name: the file is not separated by "
            f"commas; write commas, or pandas.read_csv(path, sep={mark!r})"
        )
    if isinstance(frame, nw.DataFrame):
        frame = _retyped(frame, set(needed or ()) & set(names))
    given = opened(bounds)
    if given is None or isinstance(given, str):
        return frame, known, given is not None
    return frame, known.updated(Bounds.of_columns(given, frame.collect_schema(), needed)), False


def written_out(formula: str, data: Any, bounds: Any, left_out: Iterable[str | None] = ()) -> str:
    """Return a formula in which the columns of the data with declared bounds replace a `.`.

    Those that are ``left_out`` (units, clusters, weights) are no covariates.
    """
    if not has_dot(formula):
        return formula
    frame, known, _ = unpack(data, bounds)
    there = set(frame.collect_schema()) - {name for name in left_out if isinstance(name, str)}
    return parse(formula, [name for name in known if name in there]).source


def require_columns(wanted: Iterable[str], names: Sequence[str], who: str) -> None:
    """Refuse columns that the data does not have."""
    there = set(names)
    for name in wanted:
        if name not in there:
            hint = nearest(name, names)
            raise DataError(f"{who} names a column {name!r} that the data does not have{hint}")


def _retyped(frame: nw.DataFrame[Any], names: Iterable[str]) -> nw.DataFrame[Any]:
    """Give bools and numbers a type that pandas keeps as objects because some are missing."""
    import pandas as pd

    native, schema = frame.to_native(), frame.schema
    if not isinstance(native, pd.DataFrame):
        return frame
    found: dict[str, Any] = {}
    for name in (n for n in names if schema[n] == nw.Object):
        kind = pd.api.types.infer_dtype(native[name], skipna=True)
        if kind == "boolean":
            found[name] = native[name].astype("boolean")
        elif kind in ("integer", "floating", "mixed-integer-float", "decimal"):
            found[name] = pd.to_numeric(native[name]).astype("Float64")
    return nw.from_native(native.assign(**found), eager_only=True) if found else frame


def is_number(dtype: Any) -> bool:
    """Whether a column holds numbers, or true and false."""
    return dtype.is_numeric() or dtype == nw.Boolean


def not_numeric(name: str, dtype: Any) -> str:
    """A dtype by its name alone: categories, which it would show, may be those of the data."""
    plain = f"column {name!r} must be numeric or bool, it is {type(dtype).__name__}"
    return plain + _as_numbers(name, dtype)


def _as_numbers(name: str, dtype: Any) -> str:
    """How to make numbers of a column of another type, row by row."""
    if isinstance(dtype, nw.Object):
        return f': write data["{name}"].astype(float), or .astype(bool) for true and false'
    if isinstance(dtype, nw.String):
        return (
            f': write pandas.to_numeric(data["{name}"]), with .str.replace(",", ".") before it for '
            f'decimal commas, or data["{name}"] == "yes" for 0 and 1'
        )
    if isinstance(dtype, nw.Duration):
        return f': write data["{name}"].dt.total_seconds() / 86400 for days'
    return f': write data["{name}"].astype(float), or .dt.to_timestamp() for periods'


def _arms(frame: AnyFrame, formula: Formula, known: Bounds) -> tuple[Any, ...] | None:
    """Levels of the treatment, control first, or None where it is bool or 0/1."""
    name, schema = formula.treatment_name, frame.collect_schema()
    if (computed := formula.computed_treatment) is not None:
        for column in number_columns(computed):
            if not is_number(schema[column]):
                raise DataError(not_numeric(column, schema[column]))
        return computed.labels if isinstance(computed, Cut) else None
    dtype = schema[name]
    levels = formula.treatment.levels if isinstance(formula.treatment, Categorical) else None
    if levels is None and name in known and known.is_levels(name):
        levels = tuple(known[name])
    if levels is None:
        levels = _schema_levels(name, dtype, frame)
    if levels is not None and len(levels) < 2:
        raise DataError(f"treatment {name!r} has one level; at least two are needed")
    if levels is None and not is_number(dtype):
        raise DataError(
            f"treatment {name!r} is not 0/1 or bool: declare its levels, control first, "
            f"with bounds={{'{name}': ['CONTROL', 'TREATED']}}"
            + (f" (or data[{name!r}].astype(bool) if it is that)" if dtype == nw.Object else "")
        )
    if levels is None and name in known and known.interval(name) != (0.0, 1.0):
        raise DataError(f"treatment {name!r} is declared with a range: {dose_advice(name)}")
    _check_kind(name, dtype, levels)
    return levels


def _check_kind(name: str, dtype: Any, levels: tuple[Any, ...] | None) -> None:
    """Refuse levels of another kind than the column: an engine would not compare them."""
    texts = [isinstance(level, str) for level in levels or ()]
    if texts and ((dtype == nw.String and not any(texts)) or (dtype.is_numeric() and all(texts))):
        raise outside_levels(name)


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
        raise BoundsError(
            f"the intervals of column {name!r} were cut outside the formula, perhaps at "
            "quantiles of the data; write cut(x, [0, 30, 60, 90]) in the formula instead"
        )
    return levels if frame.implementation.is_polars() else None


def _levels_found(column: nw.Series[Any]) -> tuple[Any, ...]:
    """Levels of a public column, in order."""
    try:
        return tuple(sorted(set(column.to_list())))
    except TypeError:
        raise DataError(f"column {column.name!r} mixes kinds of values: declare levels") from None


class _ColumnReader:
    """Collects columns and completes bounds while the formula is walked.

    Columns that are ``indicated`` get a term or a level for their missing values.
    """

    def __init__(
        self,
        frame: AnyFrame,
        known: Bounds,
        formula: Formula,
        lenient: frozenset[str],
        indicated: Iterable[str],
    ) -> None:
        self._frame, self._known, self._formula = frame, known, formula
        self._schema = frame.collect_schema()
        self._lenient, used = lenient, set(formula.covariate_columns)
        among = [name for name in indicated if name in used]
        self._formula = formula.with_indicators(n for n in among if not self._has_levels(n))
        self._further = set(among) - self._formula.flags
        self._arms = _arms(frame, formula, known)
        self._bounds = Bounds()
        self._numeric: list[str] = []
        self._levels: dict[str, tuple[Any, ...]] = {}
        self._missing: list[str] = []
        self._undeclared_levels: list[str] = []

    def covariate(self, name: str, source: str | None) -> None:
        """Read a covariate as numbers or as levels, as the formula and its dtype say."""
        if name in _only_flagged(self._formula):
            return
        dtype = self._schema[name]
        if dates.is_date(dtype) and not (name in self._known and self._known.is_levels(name)):
            raise dates.undeclared(name)
        levels = self._has_levels(name)
        strange = isinstance(dtype, nw.Duration | nw.Unknown)
        ranged = name in self._known and not self._known.is_levels(name)
        if (
            levels
            and (ranged or (strange and name not in self._known))
            and (name not in _names_in_c(self._formula))
        ):
            raise DataError(not_numeric(name, dtype))
        if levels and name in _names_computed(self._formula):
            raise DataError(f"column {name!r} is categorical, but a term uses it as a number")
        if levels:
            self._level_column(name, source)
        else:
            self.numeric_column(name, source)

    def _has_levels(self, name: str) -> bool:
        declared = name in self._known and self._known.is_levels(name)
        return declared or name in _names_in_c(self._formula) or not is_number(self._schema[name])

    def numeric_column(self, name: str, source: str | None, needs_range: bool = True) -> None:
        """Read numbers, and their range from a declaration, the dtype, or public data."""
        dtype = self._schema[name]
        if dates.is_date(dtype):
            raise dates.undeclared(name)
        levels = name in self._known and self._known.is_levels(name)
        if levels and name in _events(self._formula):
            level = quoted(self._known[name][-1])
            raise BoundsError(
                f"column {name!r} must be 0 or 1 here, without levels: write data[{name!r}] == "
                f"{level} in pandas, and leave it out of the bounds"
            )
        if levels and name in self._formula.outcome_columns:
            two = len(self._known[name]) == 2
            why = "which are no numbers here" if two else "and not two alone"
            raise BoundsError(
                f"outcome {name!r} has declared levels, {why}: use dp_ordinal for "
                f"levels in order, or write data[{name!r}] == {quoted(self._known[name][-1])} in "
                "pandas for one of them"
            )
        if not is_number(dtype):
            raise DataError(not_numeric(name, dtype))
        if levels:
            raise BoundsError(
                f"column {name!r} is used as a number: declare a range as a tuple, "
                f'bounds={{"{name}": (LOWER, UPPER)}}, not a list of levels'
            )
        self._numeric.append(name)
        whole = name in self._known.whole
        if name in self._known:
            ends, source = self._known.interval(name), self._known.source(name)
            if name in _events(self._formula) and ends != (0.0, 1.0):
                raise BoundsError(
                    f"column {name!r} must be 0 or 1, with the bounds (0, 1) or none: write a "
                    "comparison where it is a number"
                )
        elif dtype == nw.Boolean:
            ends, source = (0.0, 1.0), "dtype"
        elif written := ends_in_formula(name, self._formula):
            ends, source = written, "declared"
        elif not needs_range:
            return
        elif name in _events(self._formula):
            ends, source = (0.0, 1.0), "dtype"
        elif source is not None:
            values = numbers(self._in_memory(name))
            ends = (float(values.min()), float(values.max()))
        else:
            self._missing.append(name)
            return
        whole = whole or (dtype == nw.Boolean and tuple(ends) == (0.0, 1.0))
        self._bounds = self._bounds.with_interval(name, *ends, source=source, whole=whole)

    def ordered_column(self, name: str, source: str | None) -> None:
        """Read an outcome whose levels are declared in their order."""
        if name in self._known and not self._known.is_levels(name):
            raise BoundsError(
                f"the levels of {name!r} must be declared in their order, as a list: "
                f'bounds={{"{name}": ["none", "mild", "severe"]}}'
            )
        self._level_column(name, source)

    def _level_column(self, name: str, source: str | None) -> None:
        """Read levels from the formula, a declaration, the dtype, or public data."""
        dtype, known = self._schema[name], self._known
        levels: tuple[Any, ...]
        if name in self._formula.levels:
            levels, source = tuple(self._formula.levels[name]), "declared"
        elif name in known and known.is_levels(name):
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
        self._levels[name] = levels
        self._bounds = self._bounds.with_levels(name, levels, source=source)

    def _in_memory(self, name: str) -> nw.Series[Any]:
        """A public column, to read bounds from."""
        if isinstance(self._frame, nw.LazyFrame):
            raise BoundsError(
                f"declare the bounds of {name}: they are not read from a lazy frame. Add"
                + skeleton([name], [])
            )
        return self._frame[name].filter((~missing_in(self._frame[name])).tolist())

    def design(self, n: int) -> Design:
        """Put together what was found; raises where something cannot be used."""
        self._check_bounds()
        dated = {n: x for n, x in self._known.dates.items() if n in self._bounds}
        formula = self._formula
        whole = self._bounds.whole - formula.flags  # missing values are in the middle of the range
        bounds = replace(self._bounds, dates=dated, whole=whole)
        numeric = tuple(dict.fromkeys(self._numeric))
        flags = tuple(map(Missing, sorted(formula.flags)))
        columns = Columns(
            formula.treatment_name,
            self._arms,
            numeric,
            self._levels,
            self._lenient,
            flags,
            formula.computed_treatment,
            _events(formula),
            (formula.outcome,) if isinstance(formula.outcome, Ordered) else (),
            self._bounds.whole,
        )
        encoding = Encoding.build(formula, levels_of(formula, bounds))
        design = Design(formula, columns, bounds, tuple(self._missing), encoding, n)
        any_range = Bounds()
        for name in self._missing:
            any_range = any_range.with_interval(name, 0.0, 1.0, source="private")
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
            raise BoundsError(
                f"the levels of {listed(self._undeclared_levels)} must be declared: reading "
                f"them from the data would give away who is in it{objects}. Add"
                + skeleton(self._missing, self._undeclared_levels)
            )
        factors = (formula.outcome, *formula.factors)
        fixed = {name for factor in factors for name in needs_domain(factor)}
        blocked = [name for name in self._missing if name in fixed]
        if blocked:
            raise BoundsError(f"{_why_declared(blocked, formula)}. Add{skeleton(blocked, [])}")


def _why_declared(blocked: list[str], formula: Formula) -> str:
    names = listed(blocked)
    if isinstance(formula.outcome, Pair):
        return f"noise hides the largest that {names} can be, so that must be declared"
    return (
        f"{names} stands inside a function that is not defined everywhere, so its range must be "
        "declared"
    )


def _events(formula: Formula) -> tuple[str, ...]:
    """Columns that say whether a time ended in the event, or whether treatment was taken."""
    match formula.outcome:
        case Survival(_, Column(name)) | Taken(_, Column(name)):
            return (name,)
    return ()


def ends_in_formula(name: str, formula: Formula) -> tuple[float, float] | None:
    """Range that cut points or spline bounds give a column, if nothing else uses it."""
    ends: list[float] = []
    for factor in (f for f in formula.factors if name in number_columns(f)):
        if not isinstance(factor, Cut | Spline) or factor.x != Column(name):
            return None
        ends += factor.points if isinstance(factor, Cut) else (factor.lower, factor.upper)
    return (min(ends), max(ends)) if ends else None


def _names_computed(formula: Formula) -> set[str]:
    """Columns that some term computes with, so that they must be numbers."""
    plain = (Column, Categorical)
    computed = {n for f in formula.factors if not isinstance(f, plain) for n in number_columns(f)}
    numbers = {f.name for f in formula.factors if isinstance(f, Column)}
    return computed | (numbers & _names_in_c(formula))


def _only_flagged(formula: Formula) -> set[str]:
    """Columns that stand in is_na(...) and nowhere else."""
    if not formula.flags:
        return set()
    factors = (formula.outcome, formula.treatment, *formula.factors)
    read = {name for factor in factors for name in number_columns(factor)}
    return set(formula.flags) - read - _names_in_c(formula)


def _names_in_c(formula: Formula) -> set[str]:
    """Columns that stand in C(...)."""
    return {f.column for f in formula.factors if isinstance(f, Categorical)}


def queries(
    data: Any, formula: Formula, bounds: Bounds, encoding: Encoding | None = None
) -> tuple[FloatArray, dict[str, int]]:
    """Encode the covariates of rows that are not private, such as points to predict at.

    Returns the encoded matrix, and how many values of each column lay outside its bounds and were
    clipped to them. Values may be missing where the formula or the levels have a place for them.
    """
    levels = levels_of(formula, bounds)
    further = {name for name, found in levels.items() if found[-1:] == (MISSING_LEVEL,)}
    lenient = (formula.flags | further) & set(formula.covariate_columns)
    frame, _, _ = unpack(_as_frame(data, further), None, formula.covariate_columns)
    frame = frame.collect() if isinstance(frame, nw.LazyFrame) else frame
    if lacking := [name for name in formula.covariate_columns if name not in frame.columns]:
        raise DataError(f"the points have no column {lacking[0]!r}, which the formula has")
    kinds = kinds_of(formula, formula.covariate_columns, bounds) if is_text(data) else {}
    kinds |= bounds.date_kinds(formula.covariate_columns)
    frame = engines.typed(dates.from_objects(frame, kinds), kinds)
    refuse_missing(frame, [name for name in formula.covariate_columns if name not in lenient])
    flags = {x.key: missing_in(frame[x.column]) for x in map(Missing, formula.flags & lenient)}
    numeric: dict[str, npt.NDArray[Any]] = flags
    coded: dict[str, IntArray] = {}
    clipped: dict[str, int] = {}
    for name in formula.covariate_columns:
        column = frame[name]
        if name not in bounds:  # is_na(x) alone
            continue
        if bounds.is_levels(name):
            coded[name] = codes(column, levels[name], name in lenient)
            continue
        if not is_number(column.dtype):
            raise DataError(not_numeric(name, column.dtype))
        values = numbers(column, name in lenient).astype(np.float64)
        numeric[name] = clip(values, bounds.interval(name))
        if outside := int(np.count_nonzero((numeric[name] != values) & ~np.isnan(values))):
            clipped[name] = outside
    encoding = encoding or Encoding.build(formula, levels)
    return encoding.matrix(numeric, coded, intervals_of(bounds)), clipped


def _as_frame(data: Any, further: set[str]) -> Any:
    """A mapping of columns as a frame; anything else as it is.

    Columns with a ``further`` level for missing values may name it.
    """
    if not isinstance(data, Mapping):
        return data
    import pandas as pd

    try:
        given = {str(name): values for name, values in data.items()}
        for name in further & given.keys():
            values = np.atleast_1d(np.asarray(given[name], dtype=object))
            given[name] = [None if x == MISSING_LEVEL else x for x in values]
        columns = {name: np.atleast_1d(values) for name, values in given.items()}
        frame = pd.DataFrame({name: list(values) for name, values in columns.items()})
        nothing = [name for name in frame if frame[name].isna().all()]
        return frame.astype(dict.fromkeys(nothing, "float64"))
    except (TypeError, ValueError) as error:
        raise DataError(f"the columns do not make a frame: {error}") from None


def names(formula: Formula, bounds: Bounds) -> tuple[str, ...]:
    """Return the names of the encoded columns."""
    return Encoding.build(formula, levels_of(formula, bounds)).names
