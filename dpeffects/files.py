"""Files that users write: data as CSV or Parquet, entries of TOML.

Whatever is wrong with a file is one sentence, without anything that its rows hold.

A CSV file has no types and no dialect, and guessing them would let one record decide how all others
are read. So there is one dialect (`scan`), in which a line is a record; a file in another is
refused by the number of its first line that is not so, and all readers agree on what is left. Its
columns are text, and become what formula and bounds declare (`by_declaration`), in the same way in
memory and on an engine: levels as text, numbers or bools, and numbers everywhere else.
"""

from __future__ import annotations

import csv
import gzip
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar, cast

import narwhals.stable.v2 as nw

from dpeffects import dates
from dpeffects.errors import DataError, advised, refusal, shorten
from dpeffects.lazy import pd

Frame = TypeVar("Frame", bound="nw.DataFrame[Any] | nw.LazyFrame[Any]")

_MARK = "text of a CSV file"
_TEXT: dict[str, Any] = {"header": 0, "index_col": False, "dtype": str, "low_memory": False}
_TEXT |= {"na_values": [""], "keep_default_na": False, "skip_blank_lines": False}
_TEXT |= {"encoding": "utf-8-sig", "sep": ",", "quotechar": '"', "doublequote": True}
_FIELD = rb'(?:"[^"\r\n\0]*+(?:""[^"\r\n\0]*+)*+"|[^",\r\n\0]*+)'
LONGEST = 2**20
"""Bytes of a line. Engines have limits of their own; DuckDB's is twice this."""
CSV = (".csv", ".csv.gz")
PARQUET = (".parquet", ".pq")


# --- data -------------------------------------------------------------------------------------


def read_data(path: str) -> pd.DataFrame:
    """Read a CSV or Parquet file.

    Columns of a CSV file are text, and the frame is marked, until a formula says what they are.
    """
    if is_parquet(path):
        column_names(path)
        return _attempt(path, lambda: pd.read_parquet(path))
    names = scan(path)
    frame = _attempt(path, lambda: pd.read_csv(path, names=names, **_TEXT))
    frame.attrs[_MARK] = True
    return frame


def is_text(data: Any) -> bool:
    """True for the path of a CSV file, and for a frame that was read from one."""
    if isinstance(data, str | os.PathLike):
        return os.fspath(data).lower().endswith(CSV)
    return bool(getattr(data, "attrs", None)) and data.attrs.get(_MARK) is True


def kind_of(bound: Any) -> str:
    """Return what a bound declares a column of a CSV file to be: "text", "number" or "bool"."""
    if not isinstance(bound, list) or not bound:
        return "number"
    if all(isinstance(level, bool) for level in bound):
        return "bool"
    return "text" if any(isinstance(level, str) for level in bound) else "number"


_NUMBER = r"^[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?$"


def by_declaration(frame: Frame, kinds: Mapping[str, str]) -> Frame:
    """Turn columns of text to what they are declared to be; what does not fit becomes missing.

    A number is digits, perhaps with a sign, a point and an exponent; true and false are 1 and 0.
    """
    schema = frame.collect_schema()
    columns = {name: _read(name, kinds[name]) for name in _texts(frame, kinds)}
    for name, kind in kinds.items():
        if kind.startswith(dates.KIND) and (dates.is_date(schema[name]) or name in columns):
            columns[name] = dates.days(name, schema[name], kind)
    return cast("Frame", frame.with_columns(**columns)) if columns else frame


def _texts(frame: nw.DataFrame[Any] | nw.LazyFrame[Any], kinds: Mapping[str, str]) -> list[str]:
    schema = frame.collect_schema()
    return [n for n, kind in kinds.items() if kind != "text" and schema[n] == nw.String]


def _read(name: str, kind: str) -> nw.Expr:
    text = nw.col(name).str.strip_chars().str.to_lowercase()
    number: nw.Expr = nw.when(text.str.contains(_NUMBER)).then(text)
    number = nw.when(text == "false").then(nw.lit("0")).otherwise(number)
    number = nw.when(text == "true").then(nw.lit("1")).otherwise(number).cast(nw.Float64)
    if kind == "number":
        return number
    return nw.when((number == 0.0) | (number == 1.0)).then(number == 1.0)


def unreadable(
    frame: nw.DataFrame[Any] | nw.LazyFrame[Any], kinds: Mapping[str, str]
) -> dict[str, nw.Expr]:
    """Return expressions that count, by column, the texts that `by_declaration` cannot read."""

    def count(name: str) -> nw.Expr:
        text = nw.col(name).str.strip_chars().str.to_lowercase()
        if kinds[name].startswith(dates.KIND):
            fits = text.str.contains(dates.TEXT) | (text == "")
        else:
            fits = text.str.contains(_NUMBER) | (text == "true") | (text == "false") | (text == "")
        return (~fits & ~nw.col(name).is_null()).cast(nw.Int64).sum()

    return {name: count(name) for name in _texts(frame, kinds)}


def refuse_text(counts: Mapping[str, int], kinds: Mapping[str, str]) -> None:
    """Refuse columns with text that is no number, or no date."""
    for name, count in counts.items():
        if count and kinds[name].startswith(dates.KIND):
            raise DataError(refusal("column_contains_text", name=name))
        if count:
            raise DataError(refusal("text_for_numbers", name=name))


def column_names(path: str) -> list[str]:
    """Return the names in a file's header or schema, each once; no row is looked at."""
    if is_parquet(path):
        names = [field.name for field in read_schema(path)]
    else:
        names = _attempt(path, lambda: _scanned(path, 0))
    seen: set[str] = set()
    for name in names:
        if name and name in seen:
            raise DataError(f"{path} has two columns named {shorten(name)!r}")
        seen.add(name)
    return names


def scan(path: str) -> list[str]:
    """Return a name for each column of a CSV file, once every line is seen to be in the dialect.

    Lines are UTF-8, not blank, and end as the header does (line feed, or carriage return and line
    feed). Fields are separated by commas, as many as in the header; one with commas or quotes is in
    quotes, with quotes in it doubled. What is empty is missing. A byte order mark may come first.
    """
    names = [name or f"Unnamed: {k}" for k, name in enumerate(column_names(path))]
    _attempt(path, lambda: _scanned(path, 2**20))
    return names


def _scanned(path: str, block: int) -> list[str]:
    """Names in the header; a ``block`` of lines at a time is looked at, of 0 bytes none."""
    with gzip.open(path) if path.lower().endswith(".gz") else open(path, "rb") as file:
        head = file.readline(LONGEST + 1).removeprefix(b"\xef\xbb\xbf")
        if not head:
            raise DataError(f"{path} cannot be read: it is empty")
        names = next(csv.reader([head.decode()]), [])
        end = rb"\r\n" if head.endswith(b"\r\n") else rb"\n"
        fields = rb"(?:%b,){%d}%b" % (_FIELD, max(len(names), 1) - 1, _FIELD)
        dialect = re.compile(rb"(?:(?=[^\r\n])(?!\xef\xbb\xbf)%b(?:%b|\Z))*+" % (fields, end))
        lines, number = [head], 1
        while lines:
            if not _fits(lines, dialect):
                number += next(k for k, one in enumerate(lines) if not _fits([one], dialect))
                shape = f"line {number} is not {len(names)} fields in a line of UTF-8, with commas"
                quotes = "between them, in double quotes where they hold commas or quotes"
                raise DataError(f"{path} cannot be read: {shape} {quotes}")
            number += len(lines)
            lines = file.readlines(block) if block else []
    return names


def _fits(lines: list[bytes], dialect: re.Pattern[bytes]) -> bool:
    text = b"".join(lines)
    try:
        text.decode()
    except UnicodeError:
        return False
    return max(map(len, lines)) <= LONGEST and dialect.fullmatch(text) is not None


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
    kind = "formula" if "~" in path else "another" if os.path.splitext(path)[1] else "bare"
    raise DataError(refusal("not_a_path", path=path, advice=advised("paths")[kind]))


def _attempt(path: str, read: Any) -> Any:
    """Read, or say what is wrong without quoting the file."""
    kind = "a Parquet file" if is_parquet(path) else "a CSV file"
    try:
        return read()
    except DataError:
        raise
    except ImportError:
        raise DataError("reading Parquet needs pyarrow: pip install pyarrow") from None
    except Exception as error:  # of the parser, about the file
        why = getattr(error, "strerror", "") or f"it is not {kind}, or it is damaged"
        known = {UnicodeError: "it is not UTF-8 text", MemoryError: "it does not fit in memory"}
        why = next((words for own, words in known.items() if isinstance(error, own)), why)
        why = "it is empty" if type(error).__name__ == "EmptyDataError" else why
        raise DataError(f"{path} cannot be read: {why}") from None


# --- TOML -------------------------------------------------------------------------------------


def read_toml(text: str | bytes, where: Any, error: type[Exception]) -> dict[str, Any]:
    """Read the text of a TOML file; ``where`` is its name, for messages."""
    import tomllib

    try:
        return tomllib.loads(text if isinstance(text, str) else text.decode("utf-8-sig"))
    except (ValueError, RecursionError) as reason:
        why = "it is not UTF-8 text" if isinstance(reason, UnicodeError) else reason
        raise error(f"{where} is not valid TOML: {why}") from None


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
