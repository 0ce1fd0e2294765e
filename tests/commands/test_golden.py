"""What commands print is what is kept in tests/golden, to the letter."""

import pytest

from tests.commands.golden import CASES, FOLDER, output


@pytest.mark.parametrize("name", CASES)
def test_output_is_as_kept(name, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    kept = (FOLDER / f"{name}.txt").read_text(encoding="utf-8")
    assert output(name) == kept, "if this change is wanted: python -m tests.commands.golden"


def test_nothing_else_is_kept():
    assert {path.stem for path in FOLDER.iterdir()} == set(CASES)
