"""Tables of evidence: what a benchmark declares, and the one loop that runs all of them.

A benchmark is a module with a `TABLE`: parts with cells, a function that makes one run of a cell,
and what a row says of all runs of it. Here are samples, seeds, workers, resuming and time limits.

Seeds of people and of noise have nothing in common. Those of people are 0, 1, 2, ... in every cell,
so that methods and epsilons are compared on the same samples; those of noise differ between cells,
but for the values of the parameters that a part calls ``alike``.

Finished runs are kept in benchmarks/.cache, as long as the code that they depend on is the same.
"""

from __future__ import annotations

import ast
import itertools
import json
import math
import os
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from multiprocessing import get_context, parent_process
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
SE_300 = round(100 * math.sqrt(0.95 * 0.05 / 300), 1)
"""The standard error of a coverage of 95 % in 300 runs."""


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


def together(runs: pd.DataFrame) -> Row:
    """Counts of all runs added up, medians of times, words that there are."""
    row = {}
    for name, values in runs.items():
        if not pd.api.types.is_numeric_dtype(values):
            row[name] = ", ".join(sorted(set(values.dropna().astype(str))))
        else:
            row[name] = rounded(values.median()) if name.endswith(", s") else values.sum()
    return row


def rms(values: Any) -> float:
    return float(np.sqrt(np.mean(np.square(np.asarray(values, float)))))


def rounded(value: float, digits: int = 3) -> float:
    """A number with so many significant digits."""
    return float(f"{value:.{digits}g}")


# Runs


def names() -> list[str]:
    """Tables of all modules: a module has a `TABLE` of its own name, or `TABLES` by name."""
    return sorted(known())


@cache
def known() -> dict[str, str]:
    """The module of each table, found without importing it where the names can be read."""
    found = {}
    for file in sorted(HERE.glob("*.py")):
        assigned = [x for x in ast.parse(file.read_text("utf-8")).body if isinstance(x, ast.Assign)]
        made = {ast.unparse(x.targets[0]): x.value for x in assigned}
        if "TABLE" in made:
            found[file.stem] = file.stem
        elif "TABLES" in made:
            written = isinstance(made["TABLES"], ast.Dict) and all(made["TABLES"].keys)
            of = made["TABLES"].keys if written else import_module(file.stem).TABLES
            found |= {ast.literal_eval(x) if written else x: file.stem for x in of}
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
    """Make some runs of a cell, in a worker; each with its seconds, and what it imported.

    A run that fails is not kept, so that it is made again; what it said is told.
    """
    warnings.simplefilter("ignore")
    asked, found, failed = find(name).parts[part], [], ""
    for run in runs:
        start = seconds()
        try:
            rows = asked.run(run, noise_seed(name, asked, cell, run), **without(cell, "runs"))
        except Exception:
            failed = f"{name}, {key(cell)}, run {run}:\n{traceback.format_exc()}"
            continue
        rows = [dict(x) for x in (rows if isinstance(rows, list) else [rows])]
        found.append((run, round(seconds() - start, 3), rows))
    files = report.imported("dpeffects/", "benchmarks/", "tests/")
    files = {x for x in (*files, *APART) if Path(x).name not in OWN}
    return (part, key(cell), found, files), failed


def seconds() -> float:
    """Of processors, for this process and those that it waited for."""
    return sum(os.times()[:4])


def follow() -> None:
    """End with the process that started this one."""
    parent = parent_process()
    threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()


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
    """A part with more runs, or fewer, if it says how many it has."""
    cells = [{**cell, "runs": runs} if "runs" in cell else cell for cell in part.cells]
    return replace(part, runs=runs if part.runs > 1 else 1, cells=cells)


def measure(
    name: str, parts: Sequence[Part], kept: Kept, workers: int, minutes: float, alone: bool
) -> tuple[bool, int]:
    """Make the runs that are missing; return whether time was enough, and how many failed."""
    tasks, failed = list(left(parts, kept)), 0
    flying: set[Future[Any]] = set()
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    start = told = time.monotonic()
    with started(min(workers, 1) if alone else workers, 1 if alone else None) as submit:
        for k, task in enumerate([*tasks, None]):
            now = time.monotonic()
            late = now > start + 60.0 * minutes
            while flying and (task is None or late or len(flying) > workers):
                ready, flying = wait(flying, return_when=FIRST_COMPLETED)
                for found, error in (x.result() for x in ready):
                    kept.add(*found)
                    failed += bool(error)
                    print(error, end="", file=sys.stderr, flush=True)
            if task is None or late:
                break
            if now - told > 30.0:
                past, told = (now - start) / 60.0, now
                rest = min(past / k * (len(tasks) - k), minutes - past)
                print(f"{name}: {k} of {len(tasks)}, about {rest:.0f} minutes left", flush=True)
            flying.add(submit(chunk, name, *task))
    return task is None, failed


@contextmanager
def started(workers: int, most: int | None) -> Iterator[Callable[..., Future[Any]]]:
    """Workers that make so many tasks each; without any, a task is made at once."""

    def at_once(function: Callable[..., Any], *given: Any) -> Future[Any]:
        made: Future[Any] = Future()
        made.set_result(function(*given))
        return made

    if workers == 0:
        yield at_once
        return
    how = {"max_tasks_per_child": most, "initializer": follow}
    with ProcessPoolExecutor(workers, get_context("spawn"), **how) as pool:
        yield pool.submit


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
                found += part.rows(about, pd.DataFrame(itertools.chain(*runs)))
        made.append(pd.DataFrame(found))
        have, asked = map(span, zip(*counts, strict=True))
        if have != asked or asked != "1":
            asked = f" of {asked}" if have != asked else ""
            said.append(f"{part.title or 'all'}: {have}{asked}")
    return made, f"Runs a cell: {'; '.join(said)}." if said else ""


def span(counts: Iterable[int]) -> str:
    ends = sorted({min(counts := list(counts)), max(counts)})
    return " to ".join(map(str, ends))


def pages(table: Table, made: list[pd.DataFrame]) -> tuple[dict[str, pd.DataFrame], str]:
    """Tables of a page by their headings, promises first, and the notes below."""
    titles = [part.title for part in table.parts]
    tables = table.page(*made) if table.page else dict(zip(titles, made, strict=True))
    notes = table.notes(*made) if callable(table.notes) else table.notes
    if table.bars:
        bars = table.bars(*made)
        held = [
            (x.promise, x.measured, f"{len(x.misses)} miss" if x.misses else "yes") for x in bars
        ]
        tables = {"Promises": pd.DataFrame(held, columns=["promise", "measured", "held"]), **tables}
        if misses := [line for bar in bars for line in bar.misses]:
            notes = "Cells that miss a bar:\n\n- " + "\n- ".join(misses) + f"\n\n{notes}"
    return tables, notes


def evidence(
    name: str,
    runs: int | None = None,
    minutes: float | None = None,
    workers: int = 2,
    small: bool = False,
    folder: Path = report.RESULTS,
    cache: Path = CACHE,
) -> bool:
    """Make a page, and return whether all of its runs were made.

    A small one has few cells with two runs each, and is kept nowhere but in ``folder``.
    """
    table, kept = find(name), Kept(name, cache)
    parts, minutes = table.parts, minutes or table.minutes
    if small:
        parts = [replace(x, cells=x.small or x.cells[:2]) for x in parts]
    if most := runs or 2 * small:
        parts = [with_runs(x, most) for x in parts]
    in_time, failed = measure(name, parts, kept, workers, minutes, table.alone)
    made, said = rows(parts, kept)
    if not any(map(len, made)):
        print(f"{name}: there is no run, and its page is as it was.")
        return False
    for part, frame in zip(parts, made, strict=True):
        if part.csv and len(frame):
            frame.to_csv(folder / f"{part.csv}.csv", index=False, float_format="%.6g")
    lead = [f"**Stopped after {minutes:g} minutes.**"] * (not in_time)
    lead = [" ".join([*lead, *[f"**{failed} parts failed.**"] * bool(failed), said])]
    try:
        tables, notes = pages(table, made)
    except Exception:  # of a page that needs what is missing
        if in_time and not failed:
            raise
        tables, notes = {x.title: frame for x, frame in zip(parts, made, strict=True)}, ""
    page = report.save(
        name,
        table.title,
        {x: frame for x, frame in tables.items() if len(frame)},
        notes,
        folder,
        "\n\n".join(x for x in (*lead, table.lead) if x),
        f"make evidence TABLE={name}" + (f" RUNS={runs}" if runs else ""),
        [x for x in kept.files if x.startswith("dpeffects/")],
        kept.seconds,
    )
    print(page if small else f"{name}: {folder / name}.md, {said or 'one run a cell.'}", flush=True)
    if table.after and folder == report.RESULTS and all(map(len, made)):
        table.after(tables, *made)
    return in_time and not failed
