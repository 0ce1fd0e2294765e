"""benchmarks/coverage.py: a small run, and its page from cells that are made up."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import pandas as pd
import pytest

import dpeffects as dpe
from dpeffects.estimators import proved

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
averages, coverage, harness = map(import_module, ("averages", "coverage", "harness"))
RIGHT = "confounded, models right"


@pytest.mark.long
def test_a_small_run_has_a_cell_for_every_method(tmp_path):
    given = {"small": True, "folder": tmp_path, "cache": tmp_path / "cache", "workers": 0}
    assert harness.evidence("coverage", **given)
    cells = pd.read_csv(tmp_path / "coverage.csv").set_index("method")
    assert sorted(cells.index) == sorted(proved())
    assert (cells["cover80"] <= cells["cover95"]).all()
    assert (cells["cover95"] <= cells["cover99"]).all()
    page = (tmp_path / "coverage.md").read_text()
    assert all(f"| `{name}` " in page for name in proved())


def test_a_call_is_compared_with_the_truth_and_with_itself_without_privacy():
    data = dpe.load_data("lalonde")
    asked = ("earnings_1978 ~ treatment | age + education", data, "private_ipw")
    low, high = dpe.dp_ate(*asked, epsilon=4, seed=1).conf_int(0.8)
    given = {"epsilon": 4, "seed": 1, "levels": (0.8, 0.95), "peer": True}
    for truth, inside in ((low + 1, 1.0), (low - 1, 0.0), (high + 1, 0.0)):
        row = averages.compared(*asked, truth, **given)
        assert (row["refused"], row["cover80"], row["cover95"]) == (0.0, inside, 1.0)
        assert row["half_width"] > (high - low) / 2
    low, high = dpe.reference(*asked).conf_int()
    assert row["peer"] == pytest.approx((high - low) / 2)
    row = averages.compared("earnings_1978 ~ treatment", data, "auto", 0.0, epsilon=-1)
    assert row["refused"] == 1.0
    assert "epsilon" in row["said"]


def test_a_row_has_what_its_runs_say():
    """By hand: of four runs one is refused, one has no interval, and one is silent and off."""
    held = {"cover80": 1.0, "cover95": 1.0, "cover99": 1.0, "half_width": 2.0, "peer": 0.5}
    off = held | {"cover95": 0.0, "cover80": 0.0, "half_width": 4.0, "peer": 0.25}
    made = {"refused": 0.0, "associated": 0.0, "absent": 0.0}
    runs = [
        {**made, **held, "warned": 1.0, "said": "Little of it", "error": 1.0, "rejected": 0.0},
        {**made, **off, "warned": 0.0, "said": "", "error": -3.0, "rejected": 1.0, "assumes": "-"},
        {**made, "absent": 1.0, "warned": 1.0, "said": "Little of it"},
        {"refused": 1.0, "said": "n is too small"},
    ]
    frame = pd.DataFrame(runs)
    frame.attrs = {"population": "three confounders", "method": "auto"}
    row = coverage.summed(frame)
    assert (row["refused"], row["absent"], row["warned"]) == (0.25, pytest.approx(1 / 3), 2 / 3)
    assert (row["cover95"], row["silent"], row["rejected"]) == (0.5, 0.0, 0.5)
    assert (row["half_width"], row["bias"], row["width"]) == (3.0, -1.0, pytest.approx(8.0))
    assert (row["said"], row["assumes"]) == ("Little of it", "-")
    assert row["design"] == "confounded, models right"


def test_the_page_pools_runs_and_tells_silent_cells_from_announced_ones():
    """By hand: (100 * 0.95 + 50 * 0.5 + 50 * 0.8) / 200 = 0.8 hold; widths are 1, 2 and 4."""
    about = {"part": "grid", "method": "auto", "level": "sample", "estimand": "ATE", "delta": 0.0}
    about |= {"n": 300, "refused": 0.0, "absent": 0.0, "associated": 0.0, "rejected": 0.04}
    about |= {"half_width": 1.0, "assumes": "that the models are right", "design": RIGHT}
    cells = pd.DataFrame(
        [
            {"population": "a", "runs": 100, "cover95": 0.95, "warned": 0.0, "silent": 0.95},
            {"population": "b", "runs": 50, "cover95": 0.5, "warned": 0.0, "silent": 0.5},
            {"population": "c", "runs": 100, "cover95": 0.8, "warned": 1.0, "said": "LITTLE OF IT"},
        ]
    ).assign(**about, epsilon=1.0, cover80=0.8, cover99=0.99, bias=3.0, spread=2.0)
    cells["width"], cells.loc[2, "refused"] = [1.0, 2.0, 4.0], 0.5
    tables = coverage.page(cells)
    short = tables["In short"].iloc[0]
    assert (short["method"], short[RIGHT]) == ("`auto`", "80.0 / 80.0 / 99.0")
    assert (short["cells"], short["below 90 %"], short["warning"], short["silent"]) == (3, 2, 1, 1)
    wide = tables["By design"].iloc[0]
    assert (wide["runs"], wide["95 %"], wide["type I error"]) == (200, "80.0", "4.0")
    assert wide["width over that without privacy"] == 2.0
    assert wide["least cell"] == "50.0 (b, n 300, eps 1)"
    low = tables["Cells below 90 %"]
    assert low["population"].tolist() == ["b", "c"]
    assert low["why"].tolist() == ["silent", "warning"]
    assert low["bias over sd"].tolist() == [1.5, 1.5]
