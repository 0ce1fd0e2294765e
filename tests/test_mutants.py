"""Mutants are made where they should be, and are killed by the tests that see them."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

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


@pytest.fixture
def runner(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    found = importlib.util.spec_from_file_location("mutants", BENCHMARKS / "mutants.py")
    module = importlib.util.module_from_spec(found)
    monkeypatch.setitem(sys.modules, "mutants", module)
    found.loader.exec_module(module)
    return module


def test_one_token_is_replaced_and_lines_stay(runner):
    source = MODULE.encode()
    found = {(x.line, x.before.strip(), x.after): x for x in runner.mutants("m.py", source)}
    assert {(line, old, " ".join(new.split())) for line, old, new in found} == {
        (3, "7", "8"),
        (6, "0", "1"),
        (8, "not", ""),
        (8, "and", "or"),
        (8, "is not", "is"),
        (10, "low", "None"),
        (12, ">", ">="),
        (14, "print(max(x, low))", "pass"),
        (14, "max", "min"),
        (15, "x", "None"),
    }
    for mutant in found.values():
        new = runner.mutated(source, mutant).decode()
        compile(new, "m.py", "exec")
        changed = [k for k, x in enumerate(new.splitlines(), 1) if x != MODULE.splitlines()[k - 1]]
        assert changed == [mutant.line]


PLANTED = """
import sys
sys.path.insert(0, sys.argv[1])
import mutants, json, pathlib
mutants.ROOT = pathlib.Path(sys.argv[2])
mutants.KEPT = mutants.ROOT / "kept.csv"
mutants.WHERE = ("dpeffects/m.py",)
test = "tests/test_m.py::test_m"
lines = mutants.Lines({("dpeffects/m.py", k): {test} for k in (2, 3, 4)} |
                      {("dpeffects/m.py", 1): {""}}, {test: 0.1})
mutants.collected(lambda tests: mutants.run(tests, lines, 99))
print(json.dumps(list(mutants.read().items())))
"""


@pytest.mark.long
def test_those_that_a_test_sees_are_killed(tmp_path):
    for folder in ("dpeffects", "tests"):
        (tmp_path / folder).mkdir()
    (tmp_path / "dpeffects" / "__init__.py").write_text("")
    (tmp_path / "pyproject.toml").write_text('[tool.mypy]\npackages = ["dpeffects"]\n')
    module = "TOP = 3\ndef least(x):\n    if x < 5:\n        return TOP\n    return 9\n"
    (tmp_path / "dpeffects" / "m.py").write_text(module)
    test = "from dpeffects.m import least\ndef test_m():\n    assert least(4) == 3\n"
    (tmp_path / "tests" / "test_m.py").write_text(test)
    command = [sys.executable, "-c", PLANTED, str(BENCHMARKS), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env={"PYTHONPATH": ""})
    found = dict(json.loads(done.stdout.splitlines()[-1]))
    killed = {name.removeprefix("dpeffects/m.py:"): row["killed"] for name, row in found.items()}
    own = "tests/test_m.py::test_m"
    assert killed == {
        "1:6 3 -> 4": "pytest",  # not in a function: seen by a process of its own
        "3:9 < -> <=": "",  # nothing asks for 5
        "3:11 5 -> 6": "",
        "4:15 TOP -> None": own,
        "5:11 9 -> None": "",
        "5:11 9 -> 10": "",
    }
