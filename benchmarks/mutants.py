"""How many small faults in the code that privacy rests on `make test` finds.

    pip install pytest-cov
    python benchmarks/mutants.py cover /tmp/lines       # which test runs which line: half an hour
    python benchmarks/mutants.py run /tmp/lines         # about ten seconds for each mutant
    python benchmarks/mutants.py again tests/test_x.py  # those that live, by these files too
    python benchmarks/mutants.py page                   # the page from what is kept

A mutant has one token of a module replaced. Mutants are a random sample, in random order, so that a
run that was stopped is a sample too; a run goes on where the last one stopped. All tests are
collected once. Each mutant has a process that starts from there, with the code of the functions
that differ put into them, and runs the tests that run its line: one case of each test before
others, the quickest before others. Where no function differs, as in a constant, tests are run in a
copy of the tree; there ruff and mypy look at those that live. A mutant is killed by the first that
fails, or by taking far too long. What killed is run again without a mutant at the end.
"""

from __future__ import annotations

import argparse
import ast
import gc
import os
import random
import re
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, zip_longest
from pathlib import Path
from textwrap import shorten
from types import CodeType, FunctionType
from typing import Any

import pandas as pd
from report import RESULTS, save

ROOT = Path(__file__).resolve().parents[1]
READERS = ("read", "frames", "engines", "table", "columns", "clipped", "sample", "completed")
WHERE = (
    *(f"dpeffects/{folder}/*.py" for folder in ("privacy", "inference", "ledgers", "formula")),
    *(f"dpeffects/design/{name}.py" for name in READERS),
    "dpeffects/documents.py",
)
SEED, SIZE = 40, 300
KEPT, EXPLAINED = RESULTS / "mutants.csv", RESULTS / "mutants.toml"
ELSEWHERE = "in no function"
Codes = dict[CodeType, CodeType]
FIRST = 40
"""Tests that are run before the rest: four in five mutants live no longer."""
SECONDS = 60.0
"""Of tests as they took when lines were counted: what is later is not run, and kills nothing."""
PATIENCE, LEAST = 5, 40
"""A mutant may take so many times what its tests took, and at least so many seconds."""
MEMORY = 16 * 2**30
SWAPS = {
    **{ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "=="},
    **{ast.Is: "is not", ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in"},
    **{ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.FloorDiv: "*", ast.Mod: "*"},
    **{ast.Pow: "*", ast.BitAnd: "|", ast.BitOr: "&", ast.And: "or", ast.Or: "and"},
}
TOKEN = re.compile(rb"is\s+not\b|not\s+in\b|is\b|in\b|and\b|or\b|[<>=!]=|//|\*\*|[-+*/%<>&|]")
NAMES = {"min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum"}
WORDS = ("strict", "stacklevel")
"""Arguments that only tell where a mistake is ours."""


@dataclass(frozen=True)
class Mutant:
    """One token, or statement, of a file and what stands there instead."""

    file: str
    line: int
    column: int
    before: str
    after: str
    kind: str

    @property
    def name(self) -> str:
        old = shorten(self.before, 40) or self.before
        return f"{self.file}:{self.line}:{self.column} {old} -> {self.after or 'nothing'}"


def mutants(file: str, source: bytes) -> Iterator[Mutant]:
    """All mutants of a module: not of annotations, decorators, messages or `__repr__`."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def span(node: ast.AST) -> tuple[int, int]:
        first = starts[node.lineno - 1] + node.col_offset
        return first, starts[node.end_lineno - 1] + node.end_col_offset

    def made(start: int, end: int, after: str, kind: str) -> Mutant:
        line = source.count(b"\n", 0, start)
        before = source[start:end].decode()
        return Mutant(file, line + 1, start - starts[line], before, after, kind)

    def between(left: ast.AST, right: ast.AST, op: ast.AST, kind: str) -> Iterator[Mutant]:
        start, end = span(left)[1], span(right)[0]
        gap = re.sub(rb"#.*", lambda x: b" " * len(x[0]), source[start:end])
        if type(op) in SWAPS and (found := TOKEN.search(gap)):
            yield made(start + found.start(), start + found.end(), SWAPS[type(op)], kind)

    def own(node: ast.AST, inside: ast.AST | None) -> Iterator[Mutant]:
        match node:
            case ast.Compare():
                sides = [node.left, *node.comparators]
                for left, right, op in zip(sides, sides[1:], node.ops, strict=False):
                    yield from between(left, right, op, "comparison")
            case ast.BoolOp():
                for left, right in zip(node.values, node.values[1:], strict=False):
                    yield from between(left, right, node.op, "and, or, not")
            case ast.BinOp() if not (_text(node.left) or _text(node.right)):
                if inside is not None or not isinstance(node.op, ast.BitOr):  # no alias of types
                    yield from between(node.left, node.right, node.op, "arithmetic")
            case ast.AugAssign() if not _text(node.value):
                yield from between(node.target, node.value, node.op, "arithmetic")
            case ast.UnaryOp(op=ast.Not()):
                start = span(node)[0]
                yield made(start, start + len("not "), "", "and, or, not")
            case ast.Constant(value=bool()):
                yield made(*span(node), str(not node.value), "constant")
            case ast.Constant(value=int() | float()):
                after = 1 - node.value if node.value in (0, 1) else node.value + 1
                after = after if after != node.value else 2 * node.value
                yield made(*span(node), repr(after), "constant")
            case ast.Return(value=ast.AST()) if not _none(node.value) and not _none(inside.returns):
                yield made(*span(node.value), "None", "return")
            case ast.Expr(value=ast.Call()):
                yield made(*span(node), "pass", "statement")
            case ast.Name(id=name) | ast.Attribute(attr=name) if name in NAMES:
                end = span(node)[1]
                yield made(end - len(name), end, NAMES[name], "min, max")
            case ast.Break():
                yield made(*span(node), "continue", "statement")
            case ast.Continue():
                yield made(*span(node), "break", "statement")

    def walk(node: ast.AST, inside: ast.AST | None) -> Iterator[Mutant]:
        yield from own(node, inside)
        if isinstance(node, ast.FunctionDef | ast.Lambda):
            inside = node
        for field, value in ast.iter_fields(node):
            if field in ("annotation", "returns", "decorator_list"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST) and not _left_out(child):
                    yield from walk(child, inside)

    return walk(ast.parse(source), None)


def _text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or isinstance(getattr(node, "value", None), str)


def _none(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _left_out(node: ast.AST) -> bool:
    typed = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    shown = isinstance(node, ast.FunctionDef) and node.name == "__repr__"
    word = isinstance(node, ast.keyword) and node.arg in WORDS
    return typed or shown or word or isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr)


def mutated(source: bytes, mutant: Mutant) -> bytes:
    """The module with the mutant, of as many lines."""
    lines = source.splitlines(keepends=True)
    start = sum(map(len, lines[: mutant.line - 1])) + mutant.column
    old = mutant.before.encode()
    new = mutant.after.encode() + b"\n" * old.count(b"\n")
    return source[:start] + new + source[start + len(old) :]


@dataclass
class Lines:
    """Which tests run which lines of which file, and how long a test takes."""

    tests: dict[tuple[str, int], set[str]]
    seconds: dict[str, float]

    @classmethod
    def read(cls, place: str) -> Lines:
        """Read ``place``.data, as pytest-cov has made it, and ``place``.log."""
        tests, seconds = defaultdict(set), Counter()
        query = "select path, context, numbits from line_bits join file on file.id = file_id "
        with sqlite3.connect(f"{place}.data") as data:
            for path, test, bits in data.execute(query + "join context on context.id = context_id"):
                name = "dpeffects/" + path.rpartition("/dpeffects/")[2]
                for line in (8 * k + b for k, x in enumerate(bits) for b in range(8) if x >> b & 1):
                    tests[name, line].add(test.rpartition("|")[0])
        log = Path(f"{place}.log").read_text()
        for took, test in re.findall(r"^([\d.]+)s \w+ +(.+)$", log, re.M):
            seconds[test] += float(took)
        return cls(tests, seconds)

    def of(self, mutant: Mutant, source: bytes) -> list[str]:
        """The tests that run a statement or, of one that is run by importing, use its name."""
        around = [x for x in ast.walk(ast.parse(source)) if isinstance(x, ast.stmt)]
        around = [x for x in around if x.lineno <= mutant.line <= x.end_lineno][-1]
        end = around.body[0].lineno - 1 if hasattr(around, "body") else around.end_lineno
        found = self._running(mutant.file, range(around.lineno, max(end, around.lineno) + 1))
        if found == {""}:
            target = getattr(around, "targets", [getattr(around, "target", around)])[0]
            name = getattr(target, "id", getattr(target, "name", ""))
            code = enumerate(source.decode().splitlines(), 1)
            uses = [line for line, text in code if re.search(rf"\b{name}\b", text)]
            found = self._running(mutant.file, uses)
        cases, ranked = Counter(), []
        for test in sorted(found - {""}, key=lambda x: (self.seconds.get(x, 0.0), x)):
            function = test.partition("[")[0]
            ranked.append((cases[function], len(ranked), test))
            cases[function] += 1
        until = accumulate(self.seconds.get(test, 0.0) for *_, test in sorted(ranked))
        return [x for (*_, x), took in zip(sorted(ranked), until, strict=True) if took <= SECONDS]

    def _running(self, file: str, lines: Iterable[int]) -> set[str]:
        return set().union(*(self.tests.get((file, line), set()) for line in lines))


class Tests:
    """All tests, collected once: each mutant is tried in a process that starts from there."""

    def __init__(self, use: Callable[[Tests], None]) -> None:
        self.use, self.items, self.log = use, {}, Path(tempfile.mkdtemp()) / "failed"
        self.copy = self.log.with_name("copy")

    def pytest_runtestloop(self, session: Any) -> bool:
        gc.unfreeze()
        self.items = {item.nodeid: item for item in session.items}
        aside = shutil.ignore_patterns(".git", ".venv*", "_build", "__pycache__")
        shutil.copytree(ROOT, self.copy, ignore=aside)
        self.use(self)
        return True

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            with self.log.open("a") as log:
                log.write(report.nodeid + "\n")

    def failing(self, names: list[str], seconds: float, codes: Codes | None = None) -> list[str]:
        """Which tests fail, or the first where ``codes`` replace others; "time" if it lasts."""
        self.log.write_text("")
        if not (child := os.fork()):
            try:
                self._child(names, LEAST + int(PATIENCE * seconds), codes)
            finally:
                os._exit(0)
        status = os.waitpid(child, 0)[1]
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # what it has started
        return self.log.read_text().splitlines() + ["time"] * os.WIFSIGNALED(status)

    def _child(self, names: list[str], seconds: int, codes: Codes | None) -> None:
        os.setsid()
        for stream in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        signal.alarm(PATIENCE * seconds)
        if codes is not None:
            functions = [x for x in gc.get_objects() if isinstance(x, FunctionType)]
            functions = [x for x in functions if x.__code__ in codes]
            self.log.write_text("" if functions else ELSEWHERE)
            for function in functions:
                function.__code__ = codes[function.__code__]
        order = {name: k // FIRST for k, name in enumerate(names)}
        items = [item for name, item in self.items.items() if name in order]
        items.sort(key=lambda item: order[item.nodeid])
        for item, after in zip_longest(items, items[1:]):
            if codes is not None and self.log.stat().st_size:
                return
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)

    def killer(self, mutant: Mutant, names: list[str], seconds: float) -> str:
        """What kills a mutant: a test, time, ruff or mypy."""
        source = (ROOT / mutant.file).read_bytes()
        names = [x for x in self.items if x.startswith(f"{mutant.file}::")] + names  # doctests
        made = partial(compile, filename=mutant.file, mode="exec", dont_inherit=True)
        killed = self.failing(names, seconds, swapped(made(source), made(mutated(source, mutant))))
        if killed == ["time"] and self.failing(names, seconds):
            killed = []  # nor do they pass without it
        if killed and killed != [ELSEWHERE]:
            return killed[0]
        pytest = ["pytest", "-xq", "-p", "no:cacheprovider", "--doctest-modules", *names]
        ways = [pytest] * bool(names and killed) + [["ruff", "check", "-q", mutant.file], ["mypy"]]
        (self.copy / mutant.file).write_bytes(mutated(source, mutant))
        env = {**os.environ, "PYTHONPATH": str(self.copy), "PYTHONDONTWRITEBYTECODE": "1"}
        given = {"cwd": self.copy, "env": env, "capture_output": True, "text": True}
        try:
            for way in ways:
                limit = PATIENCE * (LEAST + PATIENCE * seconds)
                done = subprocess.run([sys.executable, "-m", *way], **given, timeout=limit)
                if done.returncode and "ERROR: not found" not in done.stderr:
                    return way[0]
        except subprocess.TimeoutExpired:
            return "time"
        finally:
            (self.copy / mutant.file).write_bytes(source)
        return ""


def swapped(old: CodeType, new: CodeType) -> Codes:
    """The code of each function of a module that differs, and what stands for it."""
    found = {} if old == new else {old: new}
    inner = [[x for x in code.co_consts if isinstance(x, CodeType)] for code in (old, new)]
    if len(inner[0]) == len(inner[1]):
        for pair in zip(*inner, strict=True):
            found |= swapped(*pair)
    return found


def sample() -> list[Mutant]:
    """All mutants in random order."""
    files = sorted({str(x.relative_to(ROOT)) for glob in WHERE for x in ROOT.glob(glob)})
    found = [mutant for file in files for mutant in mutants(file, (ROOT / file).read_bytes())]
    return random.Random(SEED).sample(found, len(found))


def read() -> dict[str, dict[str, Any]]:
    """What is kept, by the mutants' names."""
    if not KEPT.exists():
        return {}
    return pd.read_csv(KEPT, index_col="mutant", keep_default_na=False).to_dict("index")


def keep(rows: dict[str, dict[str, Any]]) -> None:
    pd.DataFrame.from_dict(rows, "index").rename_axis("mutant").to_csv(KEPT)


def run(tests: Tests, lines: Lines, size: int) -> None:
    """Try the mutants that were not tried, and leave out tests that fail without a mutant too."""
    wrong = {"any"}
    while wrong:
        kept = read()
        for mutant in sample()[:size]:
            if kept.get(mutant.name, {}).get("seconds", "") != "":
                continue
            start, names = time.perf_counter(), lines.of(mutant, (ROOT / mutant.file).read_bytes())
            names = [name for name in names if name in tests.items]
            by = tests.killer(mutant, names, sum(lines.seconds.get(x, 0.0) for x in names))
            took = round(time.perf_counter() - start, 1)
            kept[mutant.name] = {"kind": mutant.kind, "tests": len(names), "killed": by}
            kept[mutant.name] |= {"later": "", "seconds": took}
            keep(kept)
            print(mutant.name, "|", by or "lives", took, flush=True)
        killers = {row["killed"] for row in kept.values()} & set(tests.items)
        wrong = set(tests.failing([*killers], sum(lines.seconds.get(x, 0.0) for x in killers)))
        print("fail without a mutant:", wrong or "none", flush=True)
        tests.items = {name: item for name, item in tests.items.items() if name not in wrong}
        keep({name: row for name, row in kept.items() if row["killed"] not in wrong})


def again(tests: Tests, files: list[str]) -> None:
    """Try those that live with whole files of tests."""
    names, kept = [x for x in tests.items if x.partition("::")[0] in files], read()
    if failed := tests.failing(names, SECONDS):
        raise SystemExit(f"fail without a mutant: {failed}")
    for mutant in sample():
        row = kept.get(mutant.name, {"killed": "not tried"})
        if not (row["killed"] or row["later"]):
            row["later"] = tests.killer(mutant, names, SECONDS)
            keep(kept)
            print(mutant.name, "|", row["later"] or "lives", flush=True)


def page() -> None:
    rows = pd.DataFrame.from_dict(read(), "index").rename_axis("mutant").reset_index()
    rows["folder"] = rows["mutant"].str.extract(r"dpeffects/(\w+)")
    why = tomllib.loads(EXPLAINED.read_text()) if EXPLAINED.exists() else {}
    first, later = rows["killed"] != "", (rows["killed"] != "") | (rows["later"] != "")
    by = {"folder": "By place", "kind": "By what was changed"}
    tables = {}
    for column, heading in by.items():
        groups = pd.DataFrame({column: rows[column], "mutants": 1, "first": first, "now": later})
        table = groups.groupby(column).sum().reset_index()
        table["killed, %"] = (100 * table["now"] / table["mutants"]).round(1)
        tables[heading] = table
    live = rows[~later]
    tables["Those that live"] = pd.DataFrame(
        {
            "mutant": live["mutant"].str.replace("|", "\\|"),
            "why": [why.get(x, "not explained yet") for x in live["mutant"]],
        }
    )
    rest = int((rows["seconds"].astype(str) == "").sum())
    how = rows["killed"].where(
        rows["killed"].isin(["", "time", "import", "ruff", "mypy"]), "a test"
    )
    lead = (
        f"{len(rows)} mutants of {len(sample())}, a random sample (seed {SEED}): "
        f"{first.mean():.1%} were killed at first, {later.mean():.1%} are now, {len(live)} live. "
        "At first by: "
        + ", ".join(f"{name or 'nothing'} {n}" for name, n in how.value_counts().items())
        + f". Of tests that run a mutant's line the quickest were run, {SECONDS:.0f} s at most. "
        "Lines are those of the code that was mutated."
        + f" Of {rest} that live not all of these were run yet."
        * bool(rest)
    )
    save("mutants", "Small faults that `make test` finds", tables, lead=lead)


def collected(use: Callable[[Tests], None]) -> None:
    """Collect all tests and doctests, and use them."""
    import pytest

    os.chdir(ROOT)
    sys.path[0] = str(ROOT)  # benchmarks/coverage.py is not the library
    options = ["-qs", "-p", "no:cacheprovider", "--doctest-modules", "dpeffects", "tests"]
    pytest.main(options, plugins=[Tests(use)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("step", choices=["cover", "run", "again", "page"])
    parser.add_argument("given", nargs="*", help="the place of lines, or files of tests")
    parser.add_argument("--size", type=int, default=SIZE)
    args = parser.parse_args()
    if args.step == "cover":
        [place] = args.given
        options = ["-q", "-vv", "--durations=0", "--cov=dpeffects", "--cov-report="]
        with open(f"{place}.log", "w") as log:
            command = [sys.executable, "-m", "pytest", *options, "--cov-context=test"]
            env = {**os.environ, "COVERAGE_FILE": f"{place}.data"}
            subprocess.run(command, cwd=ROOT, env=env, stdout=log)
    elif args.step == "run":
        collected(partial(run, lines=Lines.read(*args.given), size=args.size))
    elif args.step == "again":
        collected(partial(again, files=args.given))
    page()


if __name__ == "__main__":
    main()
