"""The notebook of the site: it was run from top to bottom, and its code still runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

PATH = Path(__file__).parents[1] / "docs" / "notebooks" / "whole_study.ipynb"
PICTURES, TABLES = 4, 5


def cells():
    notebook = json.loads(PATH.read_text(encoding="utf-8"))
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def shown(kind):
    outputs = [output for cell in cells() for output in cell["outputs"]]
    return [output for output in outputs if kind in output.get("data", {})]


def test_its_outputs_are_those_of_one_run():
    assert [cell["execution_count"] for cell in cells()] == list(range(1, len(cells()) + 1))
    kinds = {output["output_type"] for cell in cells() for output in cell["outputs"]}
    assert kinds <= {"execute_result", "display_data", "stream"}  # no errors
    streams = {o["name"] for cell in cells() for o in cell["outputs"] if "name" in o}
    assert streams <= {"stdout"}  # no warnings
    assert len(shown("image/png")) == PICTURES
    assert len(shown("text/html")) >= TABLES
    assert PATH.stat().st_size < 600_000


def test_nothing_of_the_machine_and_no_seed_is_in_it():
    text = PATH.read_text(encoding="utf-8")
    assert "NOT PRIVATE" not in text
    assert "seed=" not in text
    assert "/home/" not in text


@pytest.mark.long
def test_its_code_runs(monkeypatch, tmp_path):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.close("all")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    names: dict[str, object] = {}
    for cell in cells():
        exec("".join(cell["source"]), names)
    drawn = len(plt.get_fignums())
    plt.close("all")
    assert drawn == PICTURES
    low, high = names["weight"].conf_int()
    assert low < names["weight"].estimate < high
    assert names["ledger"].remaining[0] == 1
    assert (tmp_path / names["folder"].name / "record.html").exists()
