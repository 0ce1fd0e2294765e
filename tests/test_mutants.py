"""Mutants are made where they should be, and are killed by the tests that see them."""

from __future__ import annotations

import pytest

from tests import mutants

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


def test_one_thing_is_replaced():
    names = {x.name.removeprefix("m.py: ") for x in mutants.mutants("m.py", MODULE.encode())}
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
def test_those_that_a_test_sees_are_killed(monkeypatch, tmp_path):
    used = "from dpeffects.m import size\ndef {0}():\n    assert {1}\n"
    files = {
        "dpeffects/__init__.py": "",
        "dpeffects/m.py": SIZES,
        "tests/test_m.py": used.format("test_m", "size(4) == 'few'"),
        "tests/more.py": used.format("test_more", "size(5) == 'many'"),
        "tests/commands/test_golden.py": "",
        "pyproject.toml": '[tool.mypy]\npackages = ["dpeffects"]\n',
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    monkeypatch.setattr(mutants, "WHERE", ("dpeffects/m.py",))
    copy, made = mutants.Copy(), mutants.sample()

    def killed(tests):
        return {name.split(": ", 1)[1]: copy.killer(x, tests) for name, x in made.items()}

    own, more = "tests/test_m.py::test_m", "tests/more.py::test_more"
    assert killed(mutants.importing("dpeffects/m.py")) == {
        "TOP = [5 -> 6]": "",  # nothing asks for 5
        'return "few" if [x < TOP -> (x <= TOP)] else "many"': "",
        '[return "few" if x < TOP else "many" -> return None]': own,
        '[return "none" -> return None]': "mypy",
    }
    assert set(killed(["tests/more.py"]).values()) == {more, "mypy"}
