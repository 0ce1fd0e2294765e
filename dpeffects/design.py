"""Frame + Formula + Bounds -> validated columns, then clipped and encoded rows.

``read`` looks at every row once, refuses what cannot be used, and completes the bounds from dtypes
and public columns; it says which ranges are still missing. ``encode`` clips and encodes.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
import numpy.typing as npt

from dpeffects.errors import BoundsError, DataError
from dpeffects.formula import Formula
from dpeffects.formula.encoding import Encoding
from dpeffects.formula.expression import (
    Categorical,
    Column,
    Cut,
    Spline,
    columns,
    evaluate,
    needs_domain,
)
from dpeffects.formula.ranges import range_of
from dpeffects.formula.strata import Strata
from dpeffects.privacy.bounds import Bounds, Declared, clip, skeleton
from dpeffects.privacy.curator import Rows

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Table:
    """Validated private columns, not yet clipped.

    ``missing`` names numeric columns whose range nobody declared.
    """

    n: int
    numeric: Mapping[str, FloatArray]
    codes: Mapping[str, IntArray]
    treated: BoolArray
    bounds: Bounds
    missing: tuple[str, ...]


def read(
    data: Any, formula: Formula, bounds: Mapping[str, Any] | str | None, public: Iterable[str]
) -> Table:
    """Validate the columns that a formula needs and complete their bounds.

    ``public`` says whether "covariates" (or even the "outcome") are public, in which case their
    ranges and levels may be taken from the data at no cost.
    """
    frame, known, from_data = _unpack(data, bounds)
    names = list(frame.columns)
    _require_columns(formula.columns, names, "the formula")
    if isinstance(bounds, Mapping):
        _require_columns(bounds, names, "bounds")
    if len(frame) < 4:
        raise DataError(f"the data has {len(frame)} rows; at least 4 are needed")
    _refuse_missing(frame, formula.columns)
    free = "data" if from_data else None
    treated = _treatment(frame[formula.treatment_column], formula, known)
    reader = _Reader(frame, known, formula)
    outcome_source = free or ("public" if "outcome" in public else None)
    for name in formula.outcome_columns:
        reader.numeric_column(name, outcome_source)
    covariate_source = free or ("public" if "covariates" in public else None)
    for name in formula.covariate_columns:
        reader.covariate(name, covariate_source)
    return reader.table(treated)


def _unpack(data: Any, bounds: Any) -> tuple[nw.DataFrame[Any], Bounds, bool]:
    known = Bounds()
    if isinstance(data, Declared):
        data, known = data.frame, data.bounds
    try:
        frame = nw.from_native(data, eager_only=True)
        _ = frame.schema
    except nw.exceptions.NarwhalsError as error:
        raise DataError(f"the frame cannot be read: {str(error).splitlines()[0]}") from None
    except TypeError:
        raise DataError(
            "data must be a pandas, polars or pyarrow frame held in memory, not "
            f"{type(data).__module__}.{type(data).__name__}; read a file with pandas.read_csv, "
            "make a frame of a dict with pandas.DataFrame, collect a lazy frame"
        ) from None
    if isinstance(bounds, str):
        if bounds != "from_data":
            raise BoundsError(f'bounds must be a mapping or "from_data", got {bounds!r}')
        return frame, known, True
    if bounds is not None and not isinstance(bounds, Mapping):
        raise BoundsError(f"bounds must map column names to ranges or levels, got {bounds!r}")
    return frame, known.updated(Bounds.declared(bounds)), False


def _require_columns(wanted: Iterable[str], names: Sequence[str], who: str) -> None:
    for name in wanted:
        if name not in names:
            close = difflib.get_close_matches(str(name), [str(n) for n in names], 1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise DataError(f"{who} names a column {name!r} that the data does not have{hint}")


def _refuse_missing(frame: nw.DataFrame[Any], names: Sequence[str]) -> None:
    """Refuse nulls and NaN by column: dropping rows would change n, which is public."""
    bad = [name for name in names if _has_missing(frame[name])]
    if bad:
        raise DataError(
            f"missing values in {', '.join(bad)}: dropping rows silently would change n, which is "
            "public. Drop or impute them by a rule that looks at one row at a time"
        )


def _has_missing(column: nw.Series[Any]) -> bool:
    if bool(column.is_null().any()):
        return True
    return column.dtype.is_float() and bool(column.is_nan().any())


def _treatment(column: nw.Series[Any], formula: Formula, known: Bounds) -> BoolArray:
    """Read a treatment as bool: bool, 0/1, or two declared levels of which the first is control."""
    name = formula.treatment_column
    levels = formula.treatment.levels if isinstance(formula.treatment, Categorical) else None
    if levels is None and name in known and known.is_levels(name):
        levels = tuple(known[name])
    if levels is None and isinstance(column.dtype, nw.Enum):
        levels = _enum_levels(column)
    if levels is not None:
        if len(levels) != 2:
            raise DataError(f"treatment {name!r} has {len(levels)} levels; exactly two are needed")
        treated = _codes(column, levels).astype(np.bool_)
    elif column.dtype == nw.Boolean:
        treated = column.to_numpy().astype(np.bool_)
    elif column.dtype.is_numeric():
        values = column.to_numpy()
        if not np.isin(values, (0, 1)).all():
            raise DataError(
                f"treatment {name!r} must be 0/1, bool, or two declared levels, control first: "
                f"bounds={{'{name}': [CONTROL, TREATED]}}"
            )
        treated = values.astype(np.bool_)
    else:
        raise DataError(
            f"treatment {name!r} is not 0/1 or bool: declare its two levels, control first, "
            f"with bounds={{'{name}': ['CONTROL', 'TREATED']}}"
        )
    if treated.all() or not treated.any():
        raise DataError(f"treatment {name!r}: one of the two arms is empty")
    return treated


def _enum_levels(column: nw.Series[Any]) -> tuple[Any, ...]:
    """Levels of an ordered categorical or Enum, which its maker wrote down."""
    assert isinstance(column.dtype, nw.Enum)
    levels = tuple(column.dtype.categories)
    if not all(isinstance(level, str | int | float | bool) for level in levels):
        raise BoundsError(
            f"the intervals of column {column.name!r} were cut outside the formula, perhaps at "
            "quantiles of the data; write cut(x, [0, 30, 60, 90]) in the formula instead"
        )
    return levels


def _levels_found(column: nw.Series[Any]) -> tuple[Any, ...]:
    """Levels of a public column, in order."""
    try:
        return tuple(sorted(set(column.to_list())))
    except TypeError:
        raise DataError(f"column {column.name!r} mixes kinds of values: declare levels") from None


def _codes(column: nw.Series[Any], levels: Sequence[Any]) -> IntArray:
    """Index of each value among the declared levels."""
    import pandas as pd

    try:
        codes = np.asarray(pd.Index(list(levels)).get_indexer(pd.Index(column.to_list())))
    except TypeError:  # lists and the like are no levels
        codes = np.array([-1])
    if (codes < 0).any():
        raise DataError(
            f"column {column.name!r} has values outside its declared levels; add the missing "
            'level or recode it, for example as "other" (a range is a tuple: (18, 90))'
        )
    return codes.astype(np.int64)


class _Reader:
    """Collects columns and completes bounds while the formula is walked."""

    def __init__(self, frame: nw.DataFrame[Any], known: Bounds, formula: Formula) -> None:
        self._frame, self._known, self._formula = frame, known, formula
        self._bounds = Bounds()
        self._numeric: dict[str, FloatArray] = {}
        self._codes: dict[str, IntArray] = {}
        self._missing: list[str] = []
        self._undeclared_levels: list[str] = []

    def covariate(self, name: str, source: str | None) -> None:
        """Read a covariate as numbers or as levels, as the formula and its dtype say."""
        dtype = self._frame[name].dtype
        levels = (
            name in _names_in_c(self._formula)
            or (name in self._known and self._known.is_levels(name))
            or not (dtype.is_numeric() or dtype == nw.Boolean)
        )
        if levels and name in _names_computed(self._formula):
            raise DataError(f"column {name!r} is categorical, but a term uses it as a number")
        if levels:
            self._level_column(name, source)
        else:
            self.numeric_column(name, source)

    def numeric_column(self, name: str, source: str | None) -> None:
        """Read numbers, and their range from a declaration, the dtype, or public data."""
        column = self._frame[name]
        if not (column.dtype.is_numeric() or column.dtype == nw.Boolean):
            raise DataError(f"column {name!r} must be numeric or bool, it is {column.dtype}")
        if name in self._known and self._known.is_levels(name):
            raise BoundsError(
                f"column {name!r} is used as a number: declare a range as a tuple, "
                f'bounds={{"{name}": (LOWER, UPPER)}}, not a list of levels'
            )
        values = column.to_numpy().astype(np.float64)
        if not np.isfinite(values).all():
            raise DataError(f"column {name!r} holds infinite values")
        self._numeric[name] = values
        if name in self._known:
            self._bounds = self._bounds.with_interval(
                name, *self._known.interval(name), source=self._known.source(name)
            )
        elif column.dtype == nw.Boolean:
            self._bounds = self._bounds.with_interval(name, 0.0, 1.0, source="dtype")
        elif ends := ends_in_formula(name, self._formula):
            self._bounds = self._bounds.with_interval(name, *ends, source="declared")
        elif source is not None:
            self._bounds = self._bounds.with_interval(
                name, float(values.min()), float(values.max()), source=source
            )
        else:
            self._missing.append(name)

    def _level_column(self, name: str, source: str | None) -> None:
        """Read levels from the formula, a declaration, the dtype, or public data."""
        column, known = self._frame[name], self._known
        levels: tuple[Any, ...]
        if name in self._formula.levels:
            levels, source = tuple(self._formula.levels[name]), "declared"
        elif name in known and known.is_levels(name):
            levels, source = tuple(known[name]), known.source(name)
        elif isinstance(column.dtype, nw.Enum):
            levels, source = _enum_levels(column), "dtype"
        elif column.dtype == nw.Boolean:
            levels, source = (False, True), "dtype"
        elif source is not None:
            levels = _levels_found(column)
        else:
            self._undeclared_levels.append(name)
            return
        self._codes[name] = _codes(column, levels)
        self._bounds = self._bounds.with_levels(name, levels, source=source)

    def table(self, treated: BoolArray) -> Table:
        """Check what is left to find; levels cannot be found privately."""
        formula = self._formula
        if self._undeclared_levels:
            raise BoundsError(
                f"the levels of {', '.join(self._undeclared_levels)} must be declared: reading "
                "them from the data would give away who is in it. Add\n"
                + skeleton(self._missing, self._undeclared_levels)
            )
        factors = [formula.outcome, *(f for term in formula.terms for f in term)]
        fixed = {name for factor in factors for name in needs_domain(factor)}
        blocked = [name for name in self._missing if name in fixed]
        if blocked:
            raise BoundsError(
                f"{', '.join(blocked)} stands inside a function that is not defined everywhere, "
                f"so its range must be declared. Add\n{skeleton(blocked, [])}"
            )
        table = Table(
            treated.size, self._numeric, self._codes, treated, self._bounds, tuple(self._missing)
        )
        if not table.missing:
            _ranges(table, formula, table.bounds)
        return table


def ends_in_formula(name: str, formula: Formula) -> tuple[float, float] | None:
    """Range that cut points or spline bounds give a column, if nothing else uses it."""
    uses = [f for term in formula.terms for f in term if name in columns(f)]
    ends: list[float] = []
    for factor in uses:
        if not isinstance(factor, Cut | Spline) or factor.x != Column(name):
            return None
        if isinstance(factor, Cut):
            ends += factor.points
        else:
            ends += [factor.lower, factor.upper]
    return (min(ends), max(ends)) if ends else None


def _names_computed(formula: Formula) -> set[str]:
    """Columns that some term computes with, so that they must be numbers."""
    plain = (Column, Categorical)
    factors = [f for term in formula.terms for f in term if not isinstance(f, plain)]
    both = {f.name for term in formula.terms for f in term if isinstance(f, Column)}
    return {n for f in factors for n in columns(f)} | (both & _names_in_c(formula))


def _names_in_c(formula: Formula) -> set[str]:
    """Columns that stand in C(...)."""
    return {f.column for term in formula.terms for f in term if isinstance(f, Categorical)}


def _ranges(table: Table, formula: Formula, bounds: Bounds) -> tuple[float, float]:
    """Range of the outcome; raises when it or a covariate's range cannot be used."""
    intervals = {name: bounds.interval(name) for name in bounds if not bounds.is_levels(name)}
    lower, upper = (0.0, 1.0)
    if formula.outcome_columns:  # else the call reads no outcome
        lower, upper = range_of(formula.outcome, intervals)
    if not 1e-100 <= upper - lower <= 1e100:
        raise BoundsError(
            f"the range of the outcome, [{lower:g}, {upper:g}], is too narrow or too wide"
        )
    _encoding(formula, bounds).ranges(intervals)
    return lower, upper


def _encoding(formula: Formula, bounds: Bounds) -> Encoding:
    levels = {name: tuple(bounds[name]) for name in bounds if bounds.is_levels(name)}
    return Encoding.build(formula, {**levels, **formula.levels})


def strata(table: Table, formula: Formula) -> Strata:
    """Read the covariates as strata; raises where one is not discrete."""
    bounds = table.bounds
    levels = {name: tuple(bounds[name]) for name in bounds if bounds.is_levels(name)}
    binary = [n for n in table.numeric if n in bounds and bounds.source(n) == "dtype"]
    return Strata.build(formula, {**levels, **formula.levels}, binary)


def encode(table: Table, formula: Formula, bounds: Bounds) -> Rows:
    """Clip every column to its bounds; the covariates are encoded when first asked for."""
    intervals = {name: bounds.interval(name) for name in bounds if not bounds.is_levels(name)}
    clipped = {name: clip(values, intervals[name]) for name, values in table.numeric.items()}
    outcome_range = _ranges(table, formula, bounds)
    encoding = _encoding(formula, bounds)
    read = bool(formula.outcome_columns)
    return Rows(
        outcome=clip(
            evaluate(formula.outcome, clipped) if read else np.zeros(table.n), outcome_range
        ),
        outcome_range=outcome_range,
        treated=table.treated,
        covariates=cache(lambda: encoding.matrix(clipped, table.codes, intervals)),
        width=len(encoding.names),
        strata=cache(
            lambda: (
                (found := strata(table, formula)).index(clipped, table.codes),
                found.count,
            )
        ),
    )


def queries(data: Any, formula: Formula, bounds: Bounds) -> tuple[FloatArray, dict[str, int]]:
    """Encode the covariates of rows that are not private, such as points to predict at.

    Returns the encoded matrix, and how many values of each column lay outside its bounds and were
    clipped to them.
    """
    frame, _, _ = _unpack(_as_frame(data), None)
    _require_columns(formula.covariate_columns, frame.columns, "the formula")
    _refuse_missing(frame, formula.covariate_columns)
    numeric: dict[str, FloatArray] = {}
    codes: dict[str, IntArray] = {}
    clipped: dict[str, int] = {}
    for name in formula.covariate_columns:
        column = frame[name]
        if bounds.is_levels(name):
            codes[name] = _codes(column, tuple(bounds[name]))
            continue
        if not (column.dtype.is_numeric() or column.dtype == nw.Boolean):
            raise DataError(f"column {name!r} must be numeric or bool, it is {column.dtype}")
        values, interval = column.to_numpy().astype(np.float64), bounds.interval(name)
        if not np.isfinite(values).all():
            raise DataError(f"column {name!r} holds infinite values")
        numeric[name] = clip(values, interval)
        if outside := int(np.count_nonzero(numeric[name] != values)):
            clipped[name] = outside
    intervals = {name: bounds.interval(name) for name in bounds if not bounds.is_levels(name)}
    matrix = _encoding(formula, bounds).matrix(numeric, codes, intervals)
    return matrix, clipped


def _as_frame(data: Any) -> Any:
    """A mapping of columns as a frame; anything else as it is."""
    if not isinstance(data, Mapping):
        return data
    import pandas as pd

    try:
        columns = {str(name): np.atleast_1d(values) for name, values in data.items()}
        return pd.DataFrame({name: list(values) for name, values in columns.items()})
    except (TypeError, ValueError) as error:
        raise DataError(f"the columns do not make a frame: {error}") from None


def raw_rows(table: Table, formula: Formula) -> tuple[FloatArray, FloatArray]:
    """Outcome and covariates as they are, for the non-private reference only."""
    encoding = _encoding(formula, table.bounds)
    return evaluate(formula.outcome, table.numeric), encoding.raw_matrix(table.numeric, table.codes)


def names(formula: Formula, bounds: Bounds) -> tuple[str, ...]:
    """Return the names of the encoded columns."""
    return _encoding(formula, bounds).names


def width(table: Table, formula: Formula) -> int:
    """Return the number of encoded columns; it depends on the formula and the levels only."""
    return len(_encoding(formula, table.bounds).names)
