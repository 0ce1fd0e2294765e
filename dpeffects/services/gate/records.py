"""A site's records, made to fit its policy value by value.

What a site answers must not depend on whether a record could be read. So every value is read by
itself, by a rule that looks at nothing else, and a value that cannot be used is replaced by one
that the policy gives: the middle of the range, the first level, control. How many were replaced is
for the operator, before the site answers anything (`Policy.check`).
"""

from __future__ import annotations

import csv
import gzip
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import numpy.typing as npt

from dpeffects.arrays import BoolArray
from dpeffects.design.bounds import Bounds, DeclaredFrame
from dpeffects.errors import DataError, PolicyError
from dpeffects.files import is_parquet
from dpeffects.lazy import pd

Values = Sequence[Any] | npt.NDArray[Any]

_WORDS = {"true": 1.0, "false": 0.0}


@dataclass(frozen=True)
class SiteColumns:
    """What a site's policy says about its columns: which there are, and what they may hold.

    A column that may be the treatment is 0/1, or has two declared levels, control first.
    """

    bounds: Mapping[str, Any]
    treatments: frozenset[str]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all columns."""
        return tuple(dict.fromkeys([*self.bounds, *sorted(self.treatments)]))

    def frame(self, columns: Mapping[str, Values]) -> tuple[pd.DataFrame, dict[str, int]]:
        """Make every value fit; return the frame, and how many of each column did not fit."""
        fitted, replaced = {}, {}
        for name in self.names:
            fitted[name], unusable = self._fit(name, columns[name])
            replaced[name] = int(np.count_nonzero(unusable))
        return pd.DataFrame(fitted), replaced

    def declared(self, frame: pd.DataFrame) -> DeclaredFrame:
        """Attach the bounds to a frame, for somebody who may not see it."""
        return DeclaredFrame(frame, Bounds.declared(self.bounds), interactive=False)

    def _fit(self, name: str, values: Values) -> tuple[Any, BoolArray]:
        bound = self.bounds.get(name)
        if isinstance(bound, list):
            codes = _codes(values, bound)
            levels = np.empty(len(bound), dtype=object)
            levels[:] = bound
            return levels[np.maximum(codes, 0)], codes < 0
        numbers = _numbers(values)
        if name in self.treatments and bound in (None, (0, 1)):
            return numbers == 1.0, (numbers != 0.0) & (numbers != 1.0)
        unusable = ~np.isfinite(numbers)
        lower, upper = bound or (0.0, 1.0)
        numbers[unusable] = lower / 2.0 + upper / 2.0
        return np.clip(numbers, lower, upper), unusable

    def made_up(self, n: int) -> pd.DataFrame:
        """Make up records that use the whole of every range and every level."""
        return self.frame({name: self._made_up(name, n) for name in self.names})[0]

    def _made_up(self, name: str, n: int) -> Values:
        bound = self.bounds.get(name)
        if isinstance(bound, list):
            return [bound[i % len(bound)] for i in range(n)]
        if name in self.treatments and bound in (None, (0, 1)):
            return np.arange(n) % 2
        lower, upper = bound or (0.0, 1.0)
        part = np.linspace(0.0, 1.0, n)
        return np.asarray(lower * (1.0 - part) + upper * part)


def read_columns(path: Path, names: Iterable[str]) -> dict[str, Values]:
    """Read some columns of a CSV or Parquet file as they are written there.

    Every line of a CSV file is a record, whatever it holds, and is read by itself: fields that are
    not there are missing values, bytes that are not UTF-8 are replaced, what is beyond the header
    is left out, and a quote that is not closed ends with its line.
    """
    names = tuple(names)
    if not path.is_file():
        raise PolicyError(f"{path} cannot be read: there is no such file")
    try:
        if is_parquet(str(path)):
            return _read_parquet(path, names)
        open_text = gzip.open if path.suffix.lower() == ".gz" else open
        with open_text(path, "rt", encoding="utf-8-sig", errors="replace", newline="\n") as file:
            return _read_csv(path, file, names)
    except (PolicyError, DataError) as error:
        raise PolicyError(str(error)) from None
    except OSError as error:
        raise PolicyError(f"{path} cannot be read: {error.strerror or 'damaged'}") from None
    except ImportError:
        raise PolicyError("reading Parquet needs pyarrow: pip install pyarrow") from None
    except Exception:  # of a library, about the file; its words could quote a value
        raise PolicyError(f"{path} cannot be read: it is damaged") from None


def _read_csv(path: Path, file: TextIO, names: Sequence[str]) -> dict[str, Values]:
    csv.field_size_limit(sys.maxsize)
    rows = map(_fields, file)
    header = next(rows, None)
    if header is None:
        raise PolicyError(f"{path} cannot be read: it is empty")
    places = _places(path, header, names)
    columns: dict[str, list[Any]] = {name: [] for name in names}
    for row in rows:
        for place, column in zip(places, columns.values(), strict=True):
            column.append(row[place] if place < len(row) else None)
    return dict(columns)


def _fields(line: str) -> list[str]:
    line = line.rstrip("\r\n").replace("\r", " ")
    return next(csv.reader([line])) if '"' in line else line.split(",")


def _read_parquet(path: Path, names: Sequence[str]) -> dict[str, Values]:
    import pyarrow.parquet as pq

    _places(path, pq.read_schema(path).names, names)
    table = pq.read_table(path, columns=list(names))
    return {name: _plain(table.column(name)) for name in names}


def _plain(column: Any) -> Values:
    """Numbers as an array, with NaN for what is missing; everything else as Python's own values.

    A value that Python has none for, such as text that is not UTF-8, is a missing value.
    """
    import pyarrow.types as types

    kind = column.type
    if types.is_floating(kind) or (types.is_integer(kind) and kind.bit_width <= 32):
        return np.asarray(column.to_numpy(), dtype=np.float64)
    return [_own(scalar) for scalar in column]


def _own(scalar: Any) -> Any:
    try:
        return scalar.as_py()
    except Exception:  # of the library, about this value
        return None


def _places(path: Path, header: Sequence[str], names: Sequence[str]) -> list[int]:
    for name in names:
        if (count := header.count(name)) != 1:
            what = "no column" if count == 0 else "two columns"
            raise PolicyError(f"{path} has {what} {name!r}, which the policy names")
    return [header.index(name) for name in names]


# --- one value at a time


def _numbers(values: Values) -> npt.NDArray[np.float64]:
    if isinstance(values, np.ndarray):
        return values.astype(np.float64)
    return np.fromiter((_number(value) for value in values), np.float64, len(values))


def _number(value: Any) -> float:
    """A value as a number, NaN for what is none; "true" and "false" are 1 and 0."""
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        pass
    return _WORDS.get(value.strip().lower(), np.nan) if isinstance(value, str) else np.nan


def _codes(values: Values, levels: Sequence[Any]) -> npt.NDArray[np.int64]:
    """Index of each value among the levels, -1 for what is none of them."""
    texts = any(isinstance(level, str) for level in levels)
    known = map(_text if texts else _number, levels)
    codes = {key: index for index, key in reversed(list(enumerate(known)))}
    keys: Iterable[Any] = map(_text, values) if texts else _numbers(values).tolist()
    return np.fromiter((codes.get(key, -1) for key in keys), np.int64, len(values))


def _text(value: Any) -> str:
    """A value as text without spaces around it; a whole number is written without a point."""
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value).strip()
