"""Tables of evidence: what a benchmark declares, and the one loop that runs all of them.

A benchmark is a module with a `TABLE`: parts with cells, a function that makes one run of a cell,
and what a row says of all runs of it. Here are samples, seeds, workers, resuming and time limits.

Seeds of people and of noise have nothing in common. Those of people are 0, 1, 2, ... in every cell,
so that methods and epsilons are compared on the same samples; those of noise differ between cells,
but for the values of the parameters that a part calls ``alike``.

Finished runs are kept in benchmarks/.cache, as long as the code that they depend on is the same.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
import pandas as pd
import report

HERE = Path(__file__).resolve().parent
CACHE = HERE / ".cache"
sys.path.insert(1, str(HERE.parent))  # for the populations of tests
OWN = ("harness.py", "report.py", "__main__.py")
APART: set[str] = set()
"""Files that were imported by processes of their own."""
Cell = dict[str, Any]
Row = Mapping[str, Any]
Summary = Callable[[pd.DataFrame], Any]


class Bar(NamedTuple):
    """A promise, what was measured, and the cells that miss it."""

    promise: str
    measured: str
    misses: Sequence[str] = ()


@dataclass(frozen=True)
class Part:
    """One table of a page.

    ``run(people, noise, **cell)`` makes one run of a cell, whose parameters are numbers and words,
    and returns its numbers by name, or several such rows. ``columns`` make a row of the runs of a
    cell, their means by default; a function makes it as a whole. A cell may say how many ``runs``
    it has, in the place of those of the part. Where a run has several rows, ``by`` names what they
    differ in, and there is a row for each. Of ``cells`` the ``small`` ones are for a quick look
    (the first two by default). ``csv`` names a file of results for the rows, ``chunk`` is how many
    runs a worker makes at a time.
    """

    title: str
    cells: Sequence[Cell]
    run: Callable[..., Row | list[Row]]
    columns: Mapping[str, Summary] | Callable[[pd.DataFrame], Row] | None = None
    runs: int = 1
    small: Sequence[Cell] = ()
    alike: tuple[str, ...] = ()
    by: tuple[str, ...] = ()
    chunk: int = 5
    csv: str = ""

    def rows(self, cell: Cell, runs: pd.DataFrame) -> list[Row]:
        if not self.by:
            return [self.row(cell, runs)]
        groups = runs.groupby(list(self.by), sort=False)
        return [self.row(cell | dict(zip(self.by, x, strict=True)), own) for x, own in groups]

    def row(self, cell: Cell, runs: pd.DataFrame) -> Row:
        runs.attrs = cell  # for columns that depend on it
        if callable(self.columns):
            return cell | self.columns(runs)
        if self.columns is not None:
            return cell | {name: make(runs) for name, make in self.columns.items()}
        return cell | {x: common(runs[x]) for x in runs}


@dataclass(frozen=True)
class Table:
    """A page of results, or several parts of one.

    ``page`` makes the tables that are shown, by their headings, of the rows of the parts; ``bars``
    the promises on top of them. ``minutes`` is what a run may take; one that is stopped says so.
    Where time or memory is measured every run has a process ``alone``. ``after`` does something
    with the tables and rows of a page that goes to the results, such as a table in the guide.
    """

    title: str
    parts: tuple[Part, ...]
    notes: str | Callable[..., str] = ""
    lead: str = ""
    minutes: float = 5.0
    alone: bool = False
    page: Callable[..., dict[str, pd.DataFrame]] | None = None
    bars: Callable[..., list[Bar]] | None = None
    after: Callable[..., None] | None = None


def common(values: pd.Series) -> Any:
    """The number that all runs have, or their mean; the first of different words."""
    words = not pd.api.types.is_numeric_dtype(values)
    same = values.nunique(dropna=False) == 1 and values.dtype != bool
    return values.iloc[0] if words or same else values.mean()


def grid(**values: Iterable[Any]) -> list[Cell]:
    """All combinations of parameters, the last one changing fastest."""
    return [dict(zip(values, x, strict=True)) for x in itertools.product(*values.values())]


# What a row says of the runs of a cell


def percent(name: str, digits: int = 1) -> Summary:
    return lambda runs: round(100.0 * runs[name].mean(), digits)


def mean(name: str, digits: int = 3) -> Summary:
    return lambda runs: rounded(runs[name].mean(), digits)


def median(name: str, digits: int = 3) -> Summary:
    return lambda runs: rounded(runs[name].median(), digits)


def root(name: str, digits: int = 3) -> Summary:
    """The root of the mean square."""
    return lambda runs: rounded(rms(runs[name]), digits)


def over(name: str, other: str, digits: int = 2) -> Summary:
    """The root of the mean square of a number over that of another one."""
    return lambda runs: round(rms(runs[name]) / rms(runs[other]), digits)


def first(name: str) -> Summary:
    return lambda runs: runs[name].iloc[0]


def rms(values: Any) -> float:
    return float(np.sqrt(np.mean(np.square(np.asarray(values, float)))))


def rounded(value: float, digits: int = 3) -> float:
    """A number with so many significant digits."""
    return float(f"{value:.{digits}g}")


def standard_error(runs: int, share: float = 0.95) -> str:
    """Points of the standard error of a coverage."""
    return f"{100 * math.sqrt(share * (1 - share) / max(runs, 1)):.1f}"


# Runs


def names() -> list[str]:
    """Tables of all modules: a module has a `TABLE` of its own name, or `TABLES` by name."""
    return sorted(known())


@cache
def known() -> dict[str, str]:
    """The module of each table."""
    found = {}
    for file in sorted(HERE.glob("*.py")):
        text = file.read_text(encoding="utf-8")
        if "\nTABLE = " in text:
            found[file.stem] = file.stem
        elif "\nTABLES = " in text:
            found |= dict.fromkeys(import_module(file.stem).TABLES, file.stem)
    return found


def find(name: str) -> Table:
    module = import_module(known().get(name, name))
    return module.TABLES[name] if hasattr(module, "TABLES") else module.TABLE


class Kept:
    """Runs of a table on file, by part, cell and number, and the code that they depend on."""

    def __init__(self, name: str, folder: Path) -> None:
        self.path, self.code = folder / f"{name}.jsonl", folder / f"{name}.code"
        self.rows: dict[tuple[int, str, int], list[Row]] = {}
        self.files: set[str] = set()
        self.seconds = 0.0
        folder.mkdir(exist_ok=True)
        known = json.loads(self.code.read_text()) if self.code.exists() else {}
        if known and known["digest"] == report.digest(known["files"]):
            self.files = set(known["files"])
            for line in self.path.read_text().splitlines() if self.path.exists() else ():
                if line.endswith("]"):  # written to its end
                    part, cell, run, seconds, rows = json.loads(line)
                    self.rows[part, cell, run] = rows
                    self.seconds += seconds
        else:
            self.path.unlink(missing_ok=True)

    def add(self, part: int, cell: str, found: list[tuple[int, float, list[Row]]], files: set[str]):
        if files - self.files:
            self.files |= files
            said = {"digest": report.digest(self.files), "files": sorted(self.files)}
            self.code.write_text(json.dumps(said))
        with self.path.open("a") as out:
            for run, seconds, rows in found:
                out.write(f"\n{json.dumps([part, cell, run, seconds, rows], default=float)}")
                self.rows[part, cell, run] = rows
                self.seconds += seconds


def chunk(name: str, part: int, cell: Cell, runs: list[int]) -> tuple[Any, ...]:
    """Make some runs of a cell, in a worker; each with its seconds, and what it imported."""
    warnings.simplefilter("ignore")
    asked, found = find(name).parts[part], []
    for run in runs:
        start = time.process_time()
        rows = asked.run(run, noise_seed(name, asked, cell, run), **without(cell, "runs"))
        rows = [dict(x) for x in (rows if isinstance(rows, list) else [rows])]
        found.append((run, round(time.process_time() - start, 3), rows))
    files = report.imported("dpeffects/", "benchmarks/", "tests/")
    return part, key(cell), found, {x for x in (*files, *APART) if Path(x).name not in OWN}


def apart(function: Callable[..., Any], *given: Any) -> Any:
    """Call a function in a process of its own, so that its peak memory is its own."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        found, files = pool.submit(told, function, *given).result()
    APART.update(files)
    return found


def told(function: Callable[..., Any], *given: Any) -> tuple[Any, list[str]]:
    return function(*given), report.imported("dpeffects/", "benchmarks/", "tests/")


def noise_seed(name: str, part: Part, cell: Cell, run: int) -> int:
    own = without(cell, *part.alike)
    return crc32(f"noise {name} {part.title} {key(own)} {run}".encode())


def key(cell: Cell) -> str:
    return json.dumps(without(cell, "runs"), sort_keys=True)


def without(cell: Cell, *some: str) -> Cell:
    return {x: value for x, value in cell.items() if x not in some}


def left(parts: Sequence[Part], kept: Kept) -> Iterator[tuple[int, Cell, list[int]]]:
    """What is not on file yet; all cells have some runs before any has all."""
    made = [
        (start / most, k, i, range(start, min(start + part.chunk, most)))
        for k, part in enumerate(parts)
        for i, cell in enumerate(part.cells)
        for most in [cell.get("runs", part.runs)]
        for start in range(0, most, part.chunk)
    ]
    for _, k, i, runs in sorted(made, key=lambda x: x[:3]):
        cell = parts[k].cells[i]
        missing = [run for run in runs if (k, key(cell), run) not in kept.rows]
        if missing:
            yield k, cell, missing


def with_runs(part: Part, runs: int) -> Part:
    cells = [{**cell, "runs": runs} if "runs" in cell else cell for cell in part.cells]
    return replace(part, runs=runs, cells=cells)


def measure(
    name: str, parts: Sequence[Part], kept: Kept, workers: int, minutes: float, alone: bool
) -> bool:
    """Make the runs that are missing, and return whether the time was enough."""
    end = time.monotonic() + 60.0 * minutes
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    if workers == 0:
        for task in left(parts, kept):
            if time.monotonic() > end:
                return False
            kept.add(*chunk(name, *task))
        return True
    flying: set[Future[Any]] = set()
    workers, most = (1, 1) if alone else (workers, None)
    context = get_context("spawn")
    with ProcessPoolExecutor(workers, context, max_tasks_per_child=most) as pool:
        for task in itertools.chain(left(parts, kept), [None]):
            late = time.monotonic() > end
            while flying and (task is None or late or len(flying) > workers):
                done, flying = wait(flying, return_when=FIRST_COMPLETED)
                for found in done:
                    kept.add(*found.result())
            if task is None or late:
                return task is None
            flying.add(pool.submit(chunk, name, *task))
    return True


def rows(parts: Sequence[Part], kept: Kept) -> tuple[list[pd.DataFrame], str]:
    """Rows of all parts, and how many runs cells have."""
    made, said = [], []
    for k, part in enumerate(parts):
        found: list[Row] = []
        counts = []
        for cell in part.cells:
            most = cell.get("runs", part.runs)
            runs = [x for n in range(most) if (x := kept.rows.get((k, key(cell), n))) is not None]
            counts.append((len(runs), most))
            if any(runs):
                about = cell | {"runs": len(runs)} if "runs" in cell else cell
                found += part.rows(about, pd.DataFrame([row for rows in runs for row in rows]))
        made.append(pd.DataFrame(found))
        if any(asked > 1 for _, asked in counts) or any(n < asked for n, asked in counts):
            said.append(f"{part.title or 'all'}: {span(n for n, _ in counts)}")
            if any(n < asked for n, asked in counts):
                said[-1] += f" of {span(asked for _, asked in counts)}"
    return made, f"Runs a cell: {'; '.join(said)}." if said else ""


def span(counts: Iterable[int]) -> str:
    found = sorted(counts)
    return f"{found[0]}" if found[0] == found[-1] else f"{found[0]} to {found[-1]}"


def pages(table: Table, made: list[pd.DataFrame]) -> tuple[dict[str, pd.DataFrame], str]:
    """Tables of a page by their headings, promises first, and the notes below."""
    titles = [part.title for part in table.parts]
    tables = table.page(*made) if table.page else dict(zip(titles, made, strict=True))
    notes = table.notes(*made) if callable(table.notes) else table.notes
    if table.bars:
        bars = table.bars(*made)
        held = [
            (b.promise, b.measured, f"{len(b.misses)} miss" if b.misses else "yes") for b in bars
        ]
        names = ["promise", "measured", "held"]
        tables = {"Promises": pd.DataFrame(held, columns=names), **tables}
        if misses := [line for bar in bars for line in bar.misses]:
            notes = "Cells that miss a bar:\n\n- " + "\n- ".join(misses) + f"\n\n{notes}"
    return {x: frame for x, frame in tables.items() if len(frame)}, notes


def evidence(
    name: str,
    runs: int | None = None,
    minutes: float | None = None,
    workers: int = 2,
    small: bool = False,
    folder: Path = report.RESULTS,
    cache: Path = CACHE,
) -> bool:
    """Make a page, and return whether there was time for all of its runs.

    A small one has few cells with two runs each, and is kept nowhere but in ``folder``.
    """
    table = find(name)
    parts = list(table.parts)
    if small:
        parts = [replace(x, cells=x.small or x.cells[:2]) for x in parts]
    if most := runs or 2 * small:
        parts = [with_runs(x, most) if x.runs > 1 else x for x in parts]
    kept = Kept(name, cache)
    done = measure(name, parts, kept, workers, minutes or table.minutes, table.alone)
    made, said = rows(parts, kept)
    if not all(map(len, made)):
        print(f"{name}: the time was too short for every part, and its page is as it was.")
        return False
    for part, frame in zip(parts, made, strict=True):
        if part.csv:
            frame.to_csv(folder / f"{part.csv}.csv", index=False, float_format="%.6g")
    lead = f"**Stopped after {minutes or table.minutes:g} minutes.** {said}" if not done else said
    tables, notes = pages(table, made)
    report.save(
        name,
        table.title,
        tables,
        notes,
        folder,
        "\n\n".join(x for x in (lead, table.lead) if x),
        f"make evidence TABLE={name}" + (f" RUNS={runs}" if runs else ""),
        [x for x in kept.files if x.startswith("dpeffects/")],
        kept.seconds,
    )
    if table.after and folder == report.RESULTS:
        table.after(tables, *made)
    return done
