"""Frames of any kind, opened: what can be read of their names and types, before any row is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np

from dpeffects.design import engines
from dpeffects.design.bounds import Bounds, DeclaredFrame
from dpeffects.design.codebook import opened
from dpeffects.design.engines import AnyFrame
from dpeffects.errors import DataError, listed, nearest, refusal
from dpeffects.formula import has_dot, parse
from dpeffects.formula.encoding import MISSING_LEVEL
from dpeffects.lazy import pd


def unpack(
    data: Any, bounds: Any, needed: Iterable[str] | None = None
) -> tuple[AnyFrame, Bounds, bool]:
    """A frame of any kind, what is declared about it, and whether the data may say the rest."""
    known = Bounds()
    if isinstance(data, DeclaredFrame):
        data, known = data.frame, data.bounds
    data = engines.open_if_path(data)
    if nw.dependencies.is_pandas_dataframe(data) and data.columns.nlevels > 1:
        raise DataError(refusal("several_levels"))
    try:
        frame = nw.from_native(data)
        names = list(frame.collect_schema())
    except nw.exceptions.DuplicateError:
        names = [str(name) for name in getattr(data, "columns", ())]
        twice = dict.fromkeys(repr(name) for name in names if names.count(name) > 1)
        raise DataError(refusal("named_twice", twice=listed(twice) or "alike")) from None
    except nw.exceptions.NarwhalsError as error:
        raise DataError(f"the data cannot be read: {str(error).splitlines()[0]}") from None
    except TypeError:
        head = ', columns=["y", "t", "x"]' if isinstance(data, np.ndarray) else ""
        raise DataError(refusal("no_frame", kind=type(data).__name__, head=head)) from None
    odd = next((x for x in needed or () if x == "*" or x[:1] + x[-1:] == "^$"), None)
    if odd and (engine := frame.implementation.name.lower()) not in ("pandas", "dask"):
        raise DataError(f"{engine} reads the column name {odd!r} as a pattern: rename the column")
    if len(names) == 1 and (mark := next((x for x in ";\t" if x in str(names[0])), "")):
        raise DataError(refusal("not_commas", mark=mark))
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


def as_frame(data: Any, further: set[str]) -> Any:
    """A mapping of columns as a frame; anything else as it is.

    Columns with a ``further`` level for missing values may name it.
    """
    if not isinstance(data, Mapping):
        return data
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


def is_number(dtype: Any) -> bool:
    """Whether a column holds numbers, or true and false."""
    return dtype.is_numeric() or dtype == nw.Boolean


def require_numbers(schema: Mapping[str, Any], names: Iterable[str]) -> None:
    """Refuse columns that are used as numbers and hold something else."""
    for name in names:
        if not is_number(schema[name]):
            raise DataError(not_numeric(name, schema[name]))


def not_numeric(name: str, dtype: Any) -> str:
    """A dtype by its name alone: categories, which it would show, may be those of the data."""
    own = f'data["{name}"]'
    how = f"{own}.astype(float), or .dt.to_timestamp() for periods"
    if isinstance(dtype, nw.Object):
        how = f"{own}.astype(float), or .astype(bool) for true and false"
    elif isinstance(dtype, nw.String):
        how = refusal("words_as_numbers", name=name)
    elif isinstance(dtype, nw.Duration):
        how = f"{own}.dt.total_seconds() / 86400 for days"
    kind = type(dtype).__name__
    return f"column {name!r} must be numeric or bool, it is {kind}: write {how}"
