"""Rows that stay where they are: polars lazy frames, DuckDB, Parquet files, Dask and Spark.

An engine is asked for one thing, a function of batches of rows (`run`), which DuckDB and polars
feed in bounded memory, and which Dask and Spark run where the partitions are; a frame in memory is
one batch. Only integers come back, and they add up the same in every order: two engines with the
same seed give the same numbers. Sums of an engine's own are never used.
"""

from __future__ import annotations

import glob
import os
import pickle
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np

from dpeffects import files as read_files
from dpeffects.design.sample import AnalysisSample, identifiers
from dpeffects.errors import DataError, DPEffectsError, OptionError, refusal
from dpeffects.privacy.rows import ROWS, Records, Totals, added, joined
from dpeffects.privacy.units import UnitSizes

AnyFrame = nw.DataFrame[Any] | nw.LazyFrame[Any]
OnBatch = Callable[[nw.DataFrame[Any]], Totals]
"""From a frame in memory, which has rows, to integers."""
Combine = Callable[[Iterable[Totals]], Totals]
"""`added`, or `joined` where values of each record are asked for."""

_BATCH, _ENTRIES = 4 * ROWS, 2**20
_THREADS = os.cpu_count() or 1


def open_if_path(data: Any) -> Any:
    """A path to Parquet or CSV files as a lazy frame; anything else as it is."""
    if not isinstance(data, str | os.PathLike):
        return data
    path = os.fspath(data)
    parquet = read_files.is_parquet(path)
    files = [path] if Path(path).exists() else sorted(glob.glob(path, recursive=True))
    if not files:
        raise DataError(f"there is no file {path!r}")
    headers = [] if parquet else [read_files.scan(file) for file in files]
    if any(names != headers[0] for names in headers):
        raise DataError(f"{path!r}: the files have different headers")
    try:
        return _with_duckdb([glob.escape(file) for file in files], headers)
    except ImportError:
        pass
    except Exception as error:
        why = error if isinstance(error, DataError) else type(error).__name__
        raise DataError(f"{path!r} cannot be read ({why})") from None
    try:
        import polars as pl
    except ImportError:
        raise OptionError(refusal("no_reader")) from None
    if not headers:
        return pl.scan_parquet(files, hive_partitioning=False, glob=False)
    said: dict[str, Any] = {"has_header": False, "skip_lines": 1, "eol_char": "\n", "glob": False}
    said |= {"separator": ",", "quote_char": '"', "null_values": [""], "encoding": "utf8"}
    return pl.scan_csv(files, schema=dict.fromkeys(headers[0], pl.String), **said)


def _with_duckdb(files: Sequence[str], headers: Sequence[Sequence[str]]) -> Any:
    """Files that were scanned, as text; or Parquet files, if they declare the same."""
    import duckdb

    if not headers:
        kinds = {str((one.columns, one.types)) for one in map(duckdb.read_parquet, files)}
        if len(kinds) > 1:
            raise DataError("the files have different columns or types")
        # several threads, and reading ahead, would hold whole groups of rows at once
        held = duckdb.connect().execute("SET threads = 1; SET disable_parquet_prefetching = true")
        return held.read_parquet(files, hive_partitioning=False, union_by_name=False)
    names = headers[0]
    if len({name.lower() for name in names}) < len(names):
        raise DataError(refusal("duckdb_cannot_tell"))
    said: dict[str, Any] = {"header": True, "auto_detect": False, "strict_mode": True}
    said |= {"sep": ",", "quotechar": '"', "escapechar": '"', "comment": "", "skiprows": 0}
    said |= {"na_values": [""], "allow_quoted_nulls": True, "null_padding": False}
    said |= {"compression": "gzip" if files[0].lower().endswith(".gz") else "none"}
    said |= {"encoding": "utf-8", "max_line_size": 2 * read_files.LONGEST}
    said |= {"hive_partitioning": False, "union_by_name": False, "ignore_errors": False}
    return duckdb.read_csv(files, columns=dict.fromkeys(names, "VARCHAR"), **said)


def memory() -> int:
    """Bytes of memory of this machine."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows does not say
        return 2**34


def typed(frame: read_files.Frame, kinds: Mapping[str, str]) -> read_files.Frame:
    """Read text, of a CSV file or of dates, as it is declared; refuse what does not fit."""
    if questions := read_files.unreadable(frame, kinds):
        read_files.refuse_text(asked(frame.lazy(), questions), kinds)
    return read_files.by_declaration(frame, kinds)


def rows_in(frame: AnyFrame) -> int:
    """Number of rows: Parquet files know it."""
    if isinstance(frame, nw.DataFrame):
        return len(frame)
    return int(asked(frame, {"n": nw.len()})["n"])


def unit_sizes(frame: AnyFrame, sample: AnalysisSample) -> UnitSizes:
    """How many rows the units of a frame have, from one look at it."""
    found = run(frame, sample.read_columns, partial(_units_of, sample=sample), joined)
    return UnitSizes.of(found[0], found[1].astype(np.bool_))


def _units_of(frame: nw.DataFrame[Any], sample: AnalysisSample) -> Records:
    assert sample.unit is not None
    return identifiers(frame[sample.unit]), sample.own(frame) > 0.0


def refuse_unnamed(frame: nw.LazyFrame[Any], column: str) -> None:
    """Refuse names of units that cannot be used, before anything is released."""
    run(frame, [column], partial(_looked_at, column=column))


def _looked_at(frame: nw.DataFrame[Any], column: str) -> Totals:
    return (identifiers(frame[column])[:0],)


def asked(frame: nw.LazyFrame[Any], ask: Mapping[str, nw.Expr]) -> dict[str, Any]:
    """One row of sums, made by the engine."""
    named = {f"q{k}": expression for k, expression in enumerate(ask.values())}
    with hide_engine_errors(frame):
        found = frame.select(**named).collect()
        return dict(zip(ask, (found[name].to_list()[0] for name in named), strict=True))


def run(
    frame: AnyFrame, names: Iterable[str], function: OnBatch, combine: Combine = added
) -> Totals:
    """Combine a function of the frame's rows, batch by batch or partition by partition."""
    if isinstance(frame, nw.DataFrame):
        return function(frame)
    implementation, work = frame.implementation, partial(_on_batch, function=function)
    with hide_engine_errors(frame):
        native: Any = frame.select(wanted := list(dict.fromkeys(names))).to_native()
        rows = min(_BATCH, max(_ENTRIES // len(wanted), ROWS // 8))
        if implementation.is_duckdb():
            results = _streamed(native.to_arrow_reader(rows), work)
        elif implementation.is_polars():
            results = _streamed(native.collect_batches(chunk_size=rows), work)
        elif implementation.is_dask():
            results = _on_dask(native, work)
        else:
            results = _on_spark(native, work, combine)
        return combine(result for result in results if result is not None)


_Work = Callable[[Any], Totals | None]
"""From a native frame in memory to integers; None where it has no rows."""


def _on_batch(native: Any, function: OnBatch) -> Totals | None:
    if type(native).__name__ == "RecordBatch":
        import pyarrow as pa

        native = pa.Table.from_batches([native])
    frame = nw.from_native(native, eager_only=True)
    return function(frame) if len(frame) else None


def _streamed(batches: Iterable[Any], work: _Work) -> Iterator[Totals | None]:
    """Work on a few batches at a time, so that memory does not grow with the rows."""
    waiting: deque[Future[Totals | None]] = deque()
    with ThreadPoolExecutor(_THREADS) as pool:
        for batch in batches:
            waiting.append(pool.submit(work, batch))
            if len(waiting) > 2 * _THREADS:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _on_dask(native: Any, work: _Work) -> Iterator[Totals | None]:
    from dask import compute, delayed

    yield from compute(*map(delayed(work), native.to_delayed()))


def _on_spark(native: Any, work: _Work, combine: Combine) -> Iterator[Totals | None]:
    rows = native.mapInArrow(partial(_spark_partition, work=work, combine=combine), "totals binary")
    yield from (pickle.loads(row.totals) for row in rows.collect())


def _spark_partition(batches: Iterator[Any], work: _Work, combine: Combine) -> Iterator[Any]:
    import pyarrow as pa

    found = [result for result in map(work, batches) if result is not None]
    if found:
        yield pa.record_batch([pa.array([pickle.dumps(combine(found))])], names=["totals"])


@contextmanager
def hide_engine_errors(frame: nw.LazyFrame[Any]) -> Iterator[None]:
    """Errors of an engine may quote values of the data: only their kind is passed on."""
    try:
        yield
    except DPEffectsError:
        raise
    except Exception as error:
        engine, kind = frame.implementation.value, type(error).__name__
        raise DataError(refusal("engine_failed", engine=engine, error=kind)) from None
