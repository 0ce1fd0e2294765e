"""Points that effects are asked at: public, and so never rows of the data."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

import numpy as np

from dpeffects.dates import as_date
from dpeffects.design.bounds import DeclaredFrame
from dpeffects.errors import OptionError, refusal
from dpeffects.lazy import pd


def refuse_private_rows(at: Any, data: Any, names: Sequence[str]) -> None:
    """Refuse points that are rows of the private data: they are printed with the result.

    Points are public because the user says so, and a copy of a row cannot be told from a point
    that happens to be the same. So what is refused is what can be recognised: the data itself, a
    view of its memory, and rows that still carry their labels.
    """
    at, data = (x.frame if isinstance(x, DeclaredFrame) else x for x in (at, data))
    if at is None or isinstance(at, Mapping):
        return
    if at is data or (isinstance(at, str | os.PathLike) and at == data):
        same = True
    else:
        same = _shares_memory(at, data, names) or _keeps_labels(at, data, names)
    if same:
        example = ", ".join(f"{name!r}: [...]" for name in names[:3])
        raise OptionError(refusal("private_points", example=example))


def _shares_memory(at: Any, data: Any, names: Sequence[str]) -> bool:
    try:
        return any(np.may_share_memory(at[n].to_numpy(), data[n].to_numpy()) for n in names)
    except Exception:  # rows elsewhere, or other columns: they say so when they are read
        return False


def _keeps_labels(at: Any, data: Any, names: Sequence[str]) -> bool:
    """True where labels and values are those of the data, for numbers that few records share."""
    if not (isinstance(at, pd.DataFrame) and isinstance(data, pd.DataFrame)):
        return False
    there = all(n in at.columns and n in data.columns for n in names)
    if not (there and data.index.is_unique and len(at) and at.index.isin(data.index).all()):
        return False
    rows = data.loc[at.index, list(names)]
    fine = any(rows[n].dtype.kind == "f" and (rows[n] % 1 != 0).all() for n in names)
    return fine and all(rows[n].tolist() == at[n].tolist() for n in names)


def point_columns(at: Any, names: Sequence[str]) -> dict[str, list[Any]]:
    """Return the points as they were given, by column."""
    frame = pd.DataFrame({name: np.atleast_1d(np.asarray(at[name])) for name in names})
    there = {name: frame[name].astype(object).where(frame[name].notna(), None) for name in frame}
    return {str(name): [_day(x) for x in column.tolist()] for name, column in there.items()}


def _day(value: Any) -> Any:
    """A date as text; anything else as it is."""
    return str(as_date(value)) if isinstance(value, date) else value


def point_labels(columns: Mapping[str, Sequence[Any]]) -> tuple[str, ...]:
    """Name each point by its first covariates."""
    more = ", ..." if len(columns) > 3 else ""
    first = list(columns)[:3]
    rows = zip(*(columns[name] for name in first), strict=True)
    return tuple(
        ", ".join(f"{n} {_short(x)}" for n, x in zip(first, row, strict=True)) + more
        for row in rows
    )


def _short(value: Any) -> str:
    if value is None:
        return "missing"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
