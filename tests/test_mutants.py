"""Mutants are made where they should be, and are killed by the tests that see them."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pandas as pd
import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
MODULE = '''"""Docstring with 1 + 1."""

LIMIT: int = 7


def clipped(x: int | None, low: int = 0) -> int:
    """Return 1 < 2."""
    if not x and x is not None:
        return (
            low
        )
    if x > LIMIT:
        raise ValueError(f"{x - LIMIT} too many" + str(1 + 2))
    print(max(x, low))
    return x
'''


SIZES = """TOP = 5
def size(x: int) -> str:
    return "few" if x < TOP else "many"
def unused() -> str:
    return "none"
"""


@pytest.fixture
def runner(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    found = importlib.util.spec_from_file_location("mutants", BENCHMARKS / "mutants.py")
    module = importlib.util.module_from_spec(found)
    monkeypatch.setitem(sys.modules, "mutants", module)
    found.loader.exec_module(module)
    return module


def test_one_thing_is_replaced(runner):
    names = {x.name.removeprefix("m.py: ") for x in runner.mutants("m.py", MODULE.encode())}
    assert names == {
        "LIMIT: int = [7 -> 8]",
        "def clipped(x: int | None, low: int = [0 -> 1]) -> int:",
        "if [not x and x is not None -> (not x or x is not None)]:",
        "if [not x -> x] and x is not None:",
        "if not x and [x is not None -> (x is None)]:",
        "[return ( low ) -> return None]",
        "if [x > LIMIT -> (x >= LIMIT)]:",
        "[print(max(x, low)) -> pass]",
        "print([max -> min](x, low))",
        "[return x -> return None]",
    }


@pytest.mark.long
def test_those_that_a_test_sees_are_killed(runner, monkeypatch, tmp_path):
    used = "from dpeffects.m import size\ndef {0}():\n    assert {1}\n"
    files = {
        "dpeffects/__init__.py": "",
        "dpeffects/m.py": SIZES,
        "tests/test_m.py": used.format("test_m", "size(4) == 'few'"),
        "tests/more.py": used.format("test_more", "size(5) == 'many'"),
        "tests/commands/test_golden.py": "",
        "pyproject.toml": '[tool.mypy]\npackages = ["dpeffects"]\n',
        "kept.csv": "mutant,kind,killed,later\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(runner, "ROOT", tmp_path)
    monkeypatch.setattr(runner, "KEPT", tmp_path / "kept.csv")
    monkeypatch.setattr(runner, "WHERE", ("dpeffects/m.py",))
    for size in (2, 99):  # goes on where it stopped
        runner.attempt([], size)
        kept = pd.read_csv(tmp_path / "kept.csv", index_col="mutant", keep_default_na=False)
        assert len(kept) == min(size, 4)
    own, more = "tests/test_m.py::test_m", "tests/more.py::test_more"
    assert {name.removeprefix("dpeffects/m.py: "): by for name, by in kept["killed"].items()} == {
        "TOP = [5 -> 6]": "",  # nothing asks for 5
        'return "few" if [x < TOP -> (x <= TOP)] else "many"': "",
        '[return "few" if x < TOP else "many" -> return None]': own,
        '[return "none" -> return None]': "mypy",
    }
    runner.attempt(["tests/more.py"], 99)
    kept = pd.read_csv(tmp_path / "kept.csv", keep_default_na=False)
    assert (kept["killed"] + kept["later"]).isin([own, more, "mypy"]).all()
