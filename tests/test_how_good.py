"""The page "How good is it?": pictures show what is on file, and sentences follow it."""

from __future__ import annotations

import importlib
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "docs"))
how_good = importlib.import_module("steps.how_good")
WORDS = (ROOT / "docs/steps/how_good.md").read_text().split("\n## ")


@pytest.fixture
def results(tmp_path, monkeypatch):
    """A copy of all results, which the page reads; pictures are not laid out."""
    shutil.copytree(how_good.RESULTS, tmp_path / "results")
    monkeypatch.setattr(how_good, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(how_good.Figure, "savefig", lambda self, path, **_: path.write_text(""))
    return tmp_path / "results"


def said(name: str, folder: Path) -> str:
    """The section of a picture, in one line."""
    (words,) = (x for x in WORDS if f"{name}.svg" in x)
    return " ".join(how_good.section(words, folder).split())


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_errors_are_drawn_as_they_are_on_file():
    figure, _ = how_good.error()
    cells = pd.read_csv(how_good.RESULTS / "price.csv").query("design == 'trial' and n == 500")
    line = figure.axes[0].lines[0]
    for epsilon, drawn in zip(line.get_xdata(), line.get_ydata(), strict=True):
        errors = cells["error"][cells["epsilon"] == epsilon]
        assert drawn == pytest.approx(np.mean(errors**2) ** 0.5)


def test_seconds_and_faults_are_drawn_as_they_are_on_file():
    figure, _ = how_good.cost()
    cells = pd.read_csv(how_good.RESULTS / "scale.csv").dropna(subset="peer, CPU s")
    for ax in figure.axes:
        if name := ax.get_title(loc="left"):
            own = cells[cells["method"] == name]
            for line, column in zip(ax.lines, ("CPU s", "peer, CPU s"), strict=True):
                assert list(line.get_ydata()) == list(own[column])
    (ax,) = how_good.faults()[0].axes
    shown = dict(zip([x.get_text() for x in ax.get_yticklabels()], ax.lines[1::2], strict=False))
    rows = re.findall(r"^\| [a-z].*?\| +(\d+) \|", replays(), re.MULTILINE)
    assert shown["audits: lower bounds on epsilon"].get_xdata()[0] < 1000
    assert f"of {sum(map(int, rows)):,}" in [x.get_text()[2:] for x in ax.texts]


def replays() -> str:
    """The table of replays in memory, on engines and in files."""
    return (how_good.RESULTS / "replay.md").read_text().split("\n## ")[1]


def test_sentences_follow_the_results(results, tmp_path):
    before = {name: said(name, tmp_path) for name in ("peers", "cost")}
    board = pd.read_csv(results / "leaderboard.csv")
    at = (board["fit"] == "auto") & (board["data"] == "ist") & (board["epsilon"] == 1)
    best = board[(board["data"] == "ist") & (board["epsilon"] == 1)].query(
        "guarantee == 'exact' and level == 'sample' and fit != 'auto'"
    )
    board.loc[at, "error"] = 77 * best["error"].min()
    board.to_csv(results / "leaderboard.csv", index=False)
    assert "and 77.00 times on ist" in said("peers", tmp_path)
    assert "77.00" not in before["peers"]
    scale = pd.read_csv(results / "scale.csv")
    largest = scale["records"] == scale.dropna(subset="peer")["records"].max()
    at = scale.index[largest & (scale["method"] == "diff_in_means")][0]
    scale.loc[at, "CPU s"] = 99 * scale.loc[at, "peer, CPU s"]
    scale.to_csv(results / "scale.csv", index=False)
    assert "to 99.0 times" in said("cost", tmp_path)
    assert "99.0" not in before["cost"]


def test_what_failed_is_said(results, tmp_path):
    line = next(x for x in replays().splitlines() if x.startswith("| in memory "))
    cells = line.split("|")
    cells[4] = " 3 "
    assert "replays on neighbours" not in said("faults", tmp_path).partition("![")[0]
    change(results / "replay.md", line, "|".join(cells))
    assert re.search(r"3 of [\d,]+, replays on neighbours", said("faults", tmp_path))


def test_what_is_missing_is_named(results, tmp_path):
    (results / "late.md").unlink()
    change(results / "rates.md", "covered", "within")
    told = said("coverage", tmp_path)
    assert "instruments (late: late.md is not on file)" in told
    assert "rates (rates: no column 'covered')" in told
    change(results / "did.md", "## Parallel", "No table ")
    change(results / "coverage.md", "| trial  ", "| by lot ")
    assert said("coverage", tmp_path).endswith("**No picture**: default: trials.")
    (results / "scale.csv").unlink()
    assert said("cost", tmp_path) == "What do rows cost? **No picture**: scale.csv is not on file."
    board = pd.read_csv(results / "leaderboard.csv").drop(columns="guarantee")
    board.to_csv(results / "leaderboard.csv", index=False)
    assert said("peers", tmp_path) == "What do others do? **No picture**: guarantee."


def test_tables_of_earlier_code_are_marked(results, monkeypatch):
    path = results / "rates.md"
    change(path, path.read_text(), "# Rates\n\n2026-01-02\n")
    monkeypatch.setattr(how_good, "on_age", lambda page: "old" if "2026-01-02" in page else "")
    made = how_good.sources("<!-- sources -->\nx\n<!-- end -->")
    assert "\n1 of " in made
    assert re.search(r"\[rates\].*2026-01-02.*\*\*earlier\*\* \|", made)


@pytest.mark.long
def test_the_page_on_file_is_that_of_the_results(tmp_path):
    """`python benchmarks how_good` makes it anew."""
    made = "\n## ".join(how_good.section(x, tmp_path) for x in WORDS)
    shown = re.sub(
        r"(?<=<!-- sources -->\n).*(?=<!-- end -->)", "", how_good.PAGE.read_text(), flags=re.S
    )
    assert shown == made
    assert "No picture" not in made
    pictures = sorted(path.name for path in tmp_path.glob("*.svg"))
    assert pictures == sorted(path.name for path in how_good.PICTURES.glob("*.svg"))
    assert all(path.stat().st_size < 65_000 for path in how_good.PICTURES.glob("*.svg"))
