"""benchmarks/coverage.py: a small run, and its page from cells that are made up."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from dpeffects.estimators import proved

ROOT = Path(__file__).parents[1]


def run(*arguments: str) -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "coverage.py"), "--small", *arguments]
    subprocess.run(command, check=True, capture_output=True, cwd=ROOT)


@pytest.mark.long
def test_a_small_run_has_a_cell_for_every_method(tmp_path):
    run("--folder", str(tmp_path))
    cells = pd.read_csv(tmp_path / "coverage_small.csv").set_index("method")
    assert sorted(cells.index) == sorted(proved())
    assert (cells["cover80"] <= cells["cover95"]).all()
    assert (cells["cover95"] <= cells["cover99"]).all()
    page = (tmp_path / "coverage_small.md").read_text()
    assert all(f"| `{name}` " in page for name in proved())


@pytest.mark.long
def test_the_page_pools_runs_and_tells_silent_cells_from_announced_ones(tmp_path):
    """By hand: (100 * 0.95 + 50 * 0.5 + 50 * 0.8) / 200 = 0.8 hold."""
    about = {"part": "grid", "method": "auto", "level": "sample", "estimand": "ATE", "delta": 0.0}
    about |= {"n": 300, "refused": 0.0, "absent": 0.0, "associated": 0.0, "rejected": 0.04}
    about |= {"design": "confounded, models right", "half_width": 1.0, "noise": 1.0}
    about |= {"assumes": "that the models are right"}
    cells = pd.DataFrame(
        [
            {"population": "a", "runs": 100, "cover95": 0.95, "warned": 0.0, "silent": 0.95},
            {"population": "b", "runs": 50, "cover95": 0.5, "warned": 0.0, "silent": 0.5},
            {"population": "c", "runs": 100, "cover95": 0.8, "warned": 1.0, "said": "LITTLE OF IT"},
        ]
    ).assign(**about, epsilon=1.0, cover80=0.8, cover99=0.99, bias=3.0, spread=2.0)
    cells.loc[2, "refused"] = 0.5
    cells.to_csv(tmp_path / "coverage_small.csv", index=False)
    run("--table", "--folder", str(tmp_path))
    page = (tmp_path / "coverage_small.md").read_text()
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines()]
    short = next(line for line in lines if line and line[0] == "`auto`")
    assert short == ["`auto`", "-", "80.0 / 80.0 / 99.0", "-", "-", "3", "2", "1", "0", "0", "1"]
    low = [line[2:] for line in lines if line and line[:2] == ["confounded, models right", "auto"]]
    low = [line for line in low if line[0] in ("b", "c")]
    assert [line[:4] for line in low] == [
        ["b", "300 / 1: 50.0", "1", "none"],
        ["c", "300 / 1: 80.0", "0", "LITTLE OF IT (100%)"],
    ]
    assert "off by 3 on average, 1.5 sd" in low[0][4]
