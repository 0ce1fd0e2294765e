"""Small faults in the code that privacy rests on, each tried by what is to find it.

A mutant is a module with one operator, number, name, statement or returned value replaced. It is
tried in a copy of the tree: by ruff, by the tests that import the module and by kept outputs, and
by mypy. The first that fails, or takes too long, kills it. Mutants are a random sample of all.
"""

from __future__ import annotations

import ast
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
READERS = ("read", "frames", "engines", "table", "columns", "clipped", "sample", "completed")
WHERE = (
    *(f"dpeffects/{folder}/*.py" for folder in ("privacy", "inference", "ledgers", "formula")),
    *(f"dpeffects/design/{name}.py" for name in READERS),
    "dpeffects/documents.py",
)
SEED, PATIENCE = 40, 600.0
"""Of the sample; seconds that the tests of a mutant may take."""
PYTEST = ("pytest", "-q", "-p", "no:cacheprovider", "--doctest-modules")
PAIRS = [(ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq), (ast.Is, ast.IsNot)]
PAIRS += [(ast.In, ast.NotIn), (ast.Add, ast.Sub), (ast.Mult, ast.Div), (ast.And, ast.Or)]
PAIRS += [(ast.BitAnd, ast.BitOr), (ast.Break, ast.Continue)]
SWAPS = {ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult, ast.Pow: ast.Mult}
SWAPS |= {a: b for pair in PAIRS for a, b in (pair, pair[::-1])}
NAMES = {"min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum"}


@dataclass(frozen=True)
class Mutant:
    """A module in which ``after`` stands instead of ``source[start:end]``."""

    file: str
    source: bytes
    start: int
    end: int
    after: str
    kind: str

    @property
    def name(self) -> str:
        """The line with its change; the number of a line changes with others."""
        first, after = self.source.rfind(b"\n", 0, self.start) + 1, self.source[self.end :]
        before = " ".join(self.source[self.start : self.end].decode().split())
        head, tail = self.source[first : self.start].decode(), after.partition(b"\n")[0].decode()
        return f"{self.file}: {head.lstrip()}[{before[:60]} -> {self.after}]{tail.rstrip()}"


def changes(node: ast.AST, function: Any) -> Iterator[tuple[str, ast.AST]]:
    """What may stand instead of a node, and the kind of the change."""
    match node:
        case ast.Compare(left, ops, right):
            for k, op in enumerate(ops):
                swapped = SWAPS[type(op)]()
                yield "comparison", ast.Compare(left, [*ops[:k], swapped, *ops[k + 1 :]], right)
        case ast.BoolOp(op=op) | ast.BinOp(op=op) | ast.AugAssign(op=op) if type(op) in SWAPS:
            union = function is None and isinstance(op, ast.BitOr)  # of types
            if not union and not any(map(_text, ast.iter_child_nodes(node))):
                kind = "and, or, not" if isinstance(node, ast.BoolOp) else "arithmetic"
                yield kind, type(node)(**{**vars(node), "op": SWAPS[type(op)]()})
        case ast.UnaryOp(ast.Not(), operand):
            yield "and, or, not", operand
        case ast.Constant(bool() as value):
            yield "constant", ast.Constant(not value)
        case ast.Constant(int() | float() as value):
            new = 1 - value if value in (0, 1) else value + 1
            yield "constant", ast.Constant(new if new != value else 2 * value)
        case ast.Return(ast.AST() as value):
            if "None" not in (ast.unparse(value), ast.unparse(function.returns)):
                yield "return", ast.Return(ast.Constant(None))
        case ast.Name(name) if name in NAMES:
            yield "min, max", ast.Name(NAMES[name])
        case ast.Attribute(value, name) if name in NAMES:
            yield "min, max", ast.Attribute(value, NAMES[name])
        case ast.Expr(ast.Call()):
            yield "statement", ast.Pass()
        case ast.Break() | ast.Continue():
            yield "statement", SWAPS[type(node)]()


def _text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or isinstance(getattr(node, "value", None), str)


def left_out(node: ast.AST) -> bool:
    """Messages, and arguments that only tell where a mistake is ours."""
    shown = isinstance(node, ast.FunctionDef) and node.name == "__repr__"
    ours = isinstance(node, ast.keyword) and node.arg in ("strict", "stacklevel")
    return shown or ours or isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr)


def mutants(file: str, source: bytes) -> Iterator[Mutant]:
    """All mutants of a module."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def walk(node: Any, function: ast.AST | None) -> Iterator[Mutant]:
        for kind, new in changes(node, function):
            ends = starts[node.lineno - 1] + node.col_offset
            ends = ends, starts[node.end_lineno - 1] + node.end_col_offset
            after = ast.unparse(ast.fix_missing_locations(new))
            simple = isinstance(new, ast.stmt | ast.Constant | ast.Name | ast.Attribute)
            yield Mutant(file, source, *ends, after if simple else f"({after})", kind)
        function = node if isinstance(node, ast.FunctionDef | ast.Lambda) else function
        for field, value in ast.iter_fields(node):
            if field not in ("annotation", "returns", "decorator_list"):
                for child in value if isinstance(value, list) else [value]:
                    if isinstance(child, ast.AST) and not left_out(child):
                        yield from walk(child, function)

    return walk(ast.parse(source), None)


def sample() -> dict[str, Mutant]:
    """All mutants by their names, in random order."""
    files = sorted({str(x.relative_to(ROOT)) for glob in WHERE for x in ROOT.glob(glob)})
    found = [mutant for file in files for mutant in mutants(file, (ROOT / file).read_bytes())]
    return {mutant.name: mutant for mutant in random.Random(SEED).sample(found, len(found))}


def importing(file: str) -> list[str]:
    """The files of tests that import a module, and the test of outputs that are kept."""
    package, _, name = file.removesuffix(".py").replace("/", ".").rpartition(".")
    used = re.compile(rf"{package}\.{name}\b|from {package} import .*\b{name}\b")
    files = [x for x in ROOT.glob("tests/**/test_*.py") if used.search(x.read_text())]
    return ["tests/commands/test_golden.py", *(str(x.relative_to(ROOT)) for x in sorted(files))]


class Copy:
    """A copy of the tree in which mutants are tried."""

    def __init__(self) -> None:
        self.folder = tempfile.TemporaryDirectory()  # gone when this is
        self.place = Path(self.folder.name) / "copy"
        aside = shutil.ignore_patterns(".git", ".venv*", "_build", "__pycache__")
        shutil.copytree(ROOT, self.place, ignore=aside)

    def failing(self, *command: str) -> list[str]:
        """The tests that fail, or else the program; "time" if it takes too long."""
        env = {**os.environ, "PYTHONPATH": str(self.place), "PYTHONDONTWRITEBYTECODE": "1"}
        given = {"cwd": self.place, "env": env, "capture_output": True, "text": True}
        try:
            done = subprocess.run([sys.executable, "-m", *command], **given, timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            return ["time"]
        named = re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", done.stdout, re.M)
        return (named or [command[0]]) if done.returncode else []

    def killer(self, mutant: Mutant, tests: list[str]) -> str:
        """What kills a mutant, or nothing: nor has a test that fails without it."""
        path, source = self.place / mutant.file, mutant.source
        path.write_bytes(source[: mutant.start] + mutant.after.encode() + source[mutant.end :])
        pytest = [*PYTEST, "-x", mutant.file, *tests]
        ruff = ["ruff", "check", "--select", "F,B,RUF059", mutant.file]  # its style is not ours
        for command in (ruff, pytest, ["mypy"]):
            if found := self.failing(*command):
                break
        path.write_bytes(source)
        seen = command is pytest and found not in ([], ["time"])
        return "" if not found or (seen and self.failing(*PYTEST, found[0])) else found[0]
