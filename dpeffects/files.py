"""Files that users write: data as CSV or Parquet, bounds in TOML.

Whatever is wrong with a file is one sentence, without anything that its rows hold.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpeffects.errors import BoundsError, DataError

if TYPE_CHECKING:
    import pandas as pd

CSV = (".csv", ".csv.gz")
PARQUET = (".parquet", ".pq")


# --- data -------------------------------------------------------------------------------------


def read_data(path: str, bounds: Mapping[str, Any] | None = None) -> pd.DataFrame:
    """Read a CSV or Parquet file; columns whose declared levels are texts are read as text.

    A CSV file has no types: that its numbers are whole is a fact about its rows. They are floats.
    """
    import pandas as pd

    names = column_names(path)
    if is_parquet(path):
        return _attempt(path, lambda: pd.read_parquet(path))
    texts = {
        name: str
        for name, bound in (bounds or {}).items()
        if name in names and isinstance(bound, list) and all(isinstance(v, str) for v in bound)
    }
    options: dict[str, Any] = {"encoding": "utf-8-sig", "dtype": texts, "low_memory": False}
    frame = _attempt(path, lambda: pd.read_csv(path, **options))
    if not isinstance(frame.index, pd.RangeIndex):
        raise DataError(f"{path}: rows have more fields than the header has names")
    whole = frame.select_dtypes("integer").columns
    return frame.astype(dict.fromkeys(whole, "float64"))


def column_names(path: str) -> list[str]:
    """Return the names in a file's header or schema, each once; no row is looked at."""
    import pandas as pd

    if is_parquet(path):
        names = [field.name for field in read_schema(path)]
    else:
        options: dict[str, Any] = {"encoding": "utf-8-sig", "dtype": str, "keep_default_na": False}
        head = _attempt(path, lambda: pd.read_csv(path, header=None, nrows=1, **options))
        names = [str(name) for name in head.iloc[0]]
    for name in names:
        if name and names.count(name) > 1:
            raise DataError(f"{path} has two columns named {name!r}")
    return names


def read_schema(path: str) -> Iterable[Any]:
    """Return the fields that a Parquet file declares; no row is read."""

    def schema() -> Any:
        from pyarrow.parquet import read_schema

        return read_schema(path)

    return _attempt(path, schema)


def is_parquet(path: str) -> bool:
    """True for Parquet, False for CSV, by the ending; other files are refused."""
    if path.lower().endswith(PARQUET):
        return True
    if path.lower().endswith(CSV):
        return False
    raise DataError(f"{path}: data is a .csv, .csv.gz or .parquet file")


def _attempt(path: str, read: Any) -> Any:
    """Read, or say what is wrong without quoting the file."""
    kind = "a Parquet file" if is_parquet(path) else "a CSV file"
    try:
        return read()
    except ImportError:
        raise DataError("reading Parquet needs pyarrow: pip install pyarrow") from None
    except UnicodeError:
        raise DataError(f"{path} cannot be read: it is not UTF-8 text") from None
    except OSError as error:
        why = error.strerror or f"it is not {kind}, or it is damaged"
        raise DataError(f"{path} cannot be read: {why}") from None
    except MemoryError:
        raise DataError(f"{path} cannot be read: it does not fit in memory") from None
    except Exception as error:  # of the parser, about the file
        empty = type(error).__name__ == "EmptyDataError"
        why = "it is empty" if empty else f"it is not {kind}, or it is damaged"
        raise DataError(f"{path} cannot be read: {why}") from None


# --- bounds -----------------------------------------------------------------------------------


def read_bounds(path: str) -> dict[str, Any]:
    """Read declared bounds from a TOML file.

    ``[bounds]`` holds ``age = {range = [18, 90]}`` for a range and
    ``region = {levels = ["N", "S"]}`` for levels.
    """
    try:
        found = tomllib.loads(Path(path).read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise BoundsError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeError:
        raise BoundsError(f"{path} is not TOML: it is not UTF-8 text") from None
    except (ValueError, RecursionError) as error:
        raise BoundsError(f"{path} is not TOML: {error}") from None
    table = found.get("bounds")
    if set(found) != {"bounds"} or not isinstance(table, dict):
        raise BoundsError(f"{path} must hold one table, [bounds]")
    return {name: bound(name, entry, f"{path}: ") for name, entry in table.items()}


def bound(name: str, entry: Any, where: str = "") -> Any:
    """Turn ``{range = [0, 1]}`` to a tuple and ``{levels = [...]}`` to a list."""
    if entry in ({}, {"range": []}, {"levels": []}):
        raise BoundsError(
            f"{where}{name!r} is not filled in; write what it could be, or delete the line"
        )
    kinds = {"range": tuple, "levels": list}
    if isinstance(entry, dict) and len(entry) == 1:
        kind, values = next(iter(entry.items()))
        if kind in kinds and isinstance(values, list):
            return kinds[kind](values)
    key = toml_key(name)
    raise BoundsError(
        f'bounds of {name!r}: write {key} = {{range = [0, 1]}} or {key} = {{levels = ["a", "b"]}}'
    )


def toml_key(name: str) -> str:
    """Return a name as a key of TOML.

    Examples
    --------
    >>> toml_key("age"), toml_key("age group")
    ('age', '"age group"')
    """
    if name.isascii() and name.replace("_", "").replace("-", "").isalnum():
        return name
    return toml_text(name)


def toml_text(text: str) -> str:
    """Return a text as a basic string of TOML."""
    import json

    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
