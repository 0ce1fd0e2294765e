"""Tables of evidence: seeds, resuming, time; pages that know their code; quoted numbers."""

from __future__ import annotations

import dataclasses
import importlib
import re
import sys
from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
sys.path.append(str(ROOT / "benchmarks"))
harness, report = map(importlib.import_module, ("harness", "report"))

MADE_UP = """
from harness import Part, Table, grid, mean

SEEN, BROKEN = [], []


def run(people, noise, n, epsilon):
    if len(SEEN) == 7 and not BROKEN:
        BROKEN.append(True)
        raise KeyboardInterrupt
    SEEN.append((n, epsilon, people, noise))
    return {"people": people, "noise": noise, "n times": n * people}


CELLS = grid(n=(10, 20), epsilon=(1.0, 2.0))
TABLE = Table(
    "Made up",
    (
        Part("Own noise", CELLS, run, {"times": mean("n times")}, runs=4, chunk=1, csv="own"),
        Part("The same noise", CELLS[:2], run, runs=2, alike=("epsilon",)),
    ),
)
"""


@pytest.fixture
def made_up(tmp_path, monkeypatch):
    """A benchmark, as a module that a run finds by its name."""
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "made_up.py").write_text(MADE_UP)
    monkeypatch.syspath_prepend(str(tmp_path / "benchmarks"))
    report._bare.cache_clear()
    monkeypatch.setattr(harness.report, "ROOT", tmp_path)
    yield importlib.import_module("made_up")
    del sys.modules["made_up"]


def make(folder: Path, **given) -> bool:
    given = {"workers": 0, "minutes": 60, "folder": folder, "cache": folder / "cache", **given}
    return harness.evidence("made_up", **given)


def test_people_are_shared_and_noise_is_not(made_up, tmp_path):
    made_up.BROKEN.append(True)
    assert make(tmp_path)
    own, same = made_up.SEEN[:16], made_up.SEEN[16:]
    own, same = (pd.DataFrame(x, columns=["n", "epsilon", "people", "noise"]) for x in (own, same))
    whole = pd.concat([own, same])
    alike = whole.groupby(["n", "people", "noise"]).size()
    assert sorted(whole["people"].unique()) == [0, 1, 2, 3]
    assert set(alike) == {1, 2}
    assert (alike == 2).sum() == 2  # one for each of two people: both epsilons have their noise


@pytest.mark.parametrize("kind", [object, "str"])
def test_words_of_runs_are_named_once(kind):
    runs = pd.DataFrame({"ledger": pd.Series(["sound", "sound"], dtype=kind), "kills": [6, 7]})
    assert harness.together(runs) == {"ledger": "sound", "kills": 13}


def test_a_run_goes_on_where_it_was_stopped(made_up, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        make(tmp_path)
    kept = next((tmp_path / "cache").glob("*.jsonl"))
    kept.write_text(kept.read_text()[:-3])  # and its last line was not written to the end
    assert make(tmp_path)
    assert len(made_up.SEEN) == 7 + 15  # six were finished, and one of them is not on file
    assert make(tmp_path)
    assert len(made_up.SEEN) == 22  # nothing was left
    rows = pd.read_csv(tmp_path / "own.csv")
    assert rows["times"].tolist() == [15, 15, 30, 30]  # 10 and 20 times the mean of 0, 1, 2, 3


@pytest.mark.parametrize(("line", "runs"), [("x = 2", 40), ("# words", 20)])
def test_other_code_starts_anew(made_up, tmp_path, line, runs):
    made_up.BROKEN.append(True)
    make(tmp_path)
    (tmp_path / "benchmarks" / "made_up.py").write_text(f"{MADE_UP}\n{line}\n")
    report._bare.cache_clear()
    make(tmp_path)
    assert len(made_up.SEEN) == runs


def test_the_list_of_names_needs_no_import(monkeypatch):
    """Or the code that one table depends on would be that of all."""
    monkeypatch.setattr(harness, "import_module", lambda name: pytest.fail(f"imports {name}"))
    harness.known.cache_clear()
    assert {"replay", "sites_liars", "rates"} <= set(harness.names())


def test_a_whole_run_takes_two_and_a_half_hours_at_most():
    assert sum(harness.find(name).minutes for name in harness.names()) <= 150


def test_time_that_is_up_is_said(made_up, tmp_path, monkeypatch):
    """A clock that ticks once a look: the first is the start, six more are before the end."""
    made_up.BROKEN.append(True)
    ticks = iter(range(1000))
    monkeypatch.setattr(harness.time, "monotonic", lambda: next(ticks))
    assert not make(tmp_path, minutes=0.1)
    page = (tmp_path / "made_up.md").read_text()
    assert "**Stopped after 0.1 minutes.**" in page
    assert "Own noise: 1 of 4" in page
    assert "The same noise: 0 to 2 of 2" in page or "The same noise: 2." in page
    assert len(made_up.SEEN) == 8  # four cells once, two twice at once


def test_a_run_that_fails_loses_nothing_else(made_up, tmp_path, capsys):
    """Of four cells one fails in one part: others are shown, and it alone is made again."""
    made_up.BROKEN.append(True)
    real = made_up.TABLE

    def fails(people, noise, n, epsilon):
        if n == 10 or people == 1:
            raise ValueError("a bad day")
        return {"people": people, "noise": noise, "n times": n * people}

    bad = dataclasses.replace(real.parts[0], run=fails)
    none = dataclasses.replace(real.parts[1], run=fails)
    made_up.TABLE = dataclasses.replace(real, parts=(bad, none), page=lambda own, same: {}[0])
    assert not make(tmp_path)
    page = (tmp_path / "made_up.md").read_text()
    assert "## Own noise" in page
    assert "## The same noise" not in page
    assert "parts failed" in page
    assert "a bad day" in capsys.readouterr().err
    made_up.TABLE = real
    assert make(tmp_path)
    assert len(made_up.SEEN) == 20 - 6  # three of four runs of two cells were made before


@pytest.mark.long
def test_workers_make_what_one_process_makes(tmp_path):
    """Of a table of the package, in processes of their own."""
    pages = []
    for workers in (0, 2):
        folder = tmp_path / str(workers)
        folder.mkdir()
        given = {"small": True, "folder": folder, "cache": folder / "cache"}
        assert harness.evidence("rates", workers=workers, **given)
        text = (folder / "rates.md").read_text()
        pages.append([line for line in text.splitlines() if line.startswith("|")])
    assert pages[0] == pages[1]
    assert len(pages[0]) == 8


# --- pages that know their code ----------------------------------------------------------------

SOURCE = '''"""Docstring."""

def size(x):  # a comment
    """What it says."""
    text = """# no comment"""

    return x + 1
'''


def test_what_code_does_is_what_counts():
    other = SOURCE.replace("Docstring", "Other words").replace("  # a comment", "\n    # more")
    assert report.bare(SOURCE) == report.bare(other)
    assert report.bare(SOURCE) != report.bare(SOURCE.replace("+ 1", "+ 2"))
    assert report.bare(SOURCE) != report.bare(SOURCE.replace("no comment", "none"))


def test_a_page_says_when_its_code_has_changed(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "ROOT", tmp_path)
    report._bare.cache_clear()
    (tmp_path / "a.py").write_text("x = 1\n")
    report.save("page", "Title", {"": pd.DataFrame({"x": [1]})}, folder=tmp_path, files=["a.py"])
    page = (tmp_path / "page.md").read_text()
    assert report.made_by(page)["modules"] == "a.py"
    assert report.on_age(page) == ""
    (tmp_path / "a.py").write_text("x = 2\n")
    report._bare.cache_clear()
    assert "Measured on earlier code" in report.on_age(page)
    report._bare.cache_clear()


def test_the_site_marks_a_page_of_earlier_code(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    pages = importlib.import_module("steps.pages")
    results = tmp_path / "benchmarks" / "results"
    results.mkdir(parents=True)
    for module in (report, pages):
        monkeypatch.setattr(module, "ROOT", tmp_path)
    report._bare.cache_clear()
    (tmp_path / "a.py").write_text("x = 1\n")
    report.save("page", "Title", {"": pd.DataFrame({"x": [1]})}, folder=results, files=["a.py"])
    assert "{warning}" not in pages._read("benchmarks/results/page.md")
    (tmp_path / "a.py").write_text("x = 2\n")
    report._bare.cache_clear()
    shown = pages._read("benchmarks/results/page.md")
    assert shown.startswith("# Title\n\n```{warning}\n**Measured on earlier code**")
    report._bare.cache_clear()


def test_every_page_on_file_says_what_made_it_or_is_marked():
    for path in RESULTS.glob("*.md"):
        said = report.made_by(path.read_text())
        if said.get("code", "unknown") == "unknown":
            assert "Measured on earlier code" in report.on_age(path.read_text())
        else:
            assert (ROOT / said["modules"].split(", ")[0]).suffix == ".py"
            assert re.fullmatch(r"[0-9a-f]{16}", said["code"])
            assert re.fullmatch(r"[0-9a-f]{8,}\+?", said["commit"])


READ = {
    "audit": ("case", "epsilon", "runs", "lower", "largest", "worst"),
    "cate": ("data", "case", "epsilon", "pehe", "covered"),
    "coverage": (
        *("part", "design", "method", "level", "population", "n", "epsilon", "runs"),
        *("refused", "absent", "cover95", "half_width"),
    ),
    "scale": ("method", "records", "CPU s", "peak MB", "peer", "peer, CPU s", "ratio of CPU s"),
    "seconds": ("method", "n", "seconds"),
    "sites_coverage": ("design", "rule", "covered"),
}
"""Columns that pages of the site and vignettes read."""


@pytest.mark.long
@pytest.mark.parametrize("name", harness.names())
def test_a_small_run_has_the_tables_of_the_page_on_file(name, tmp_path):
    given = {"small": True, "folder": tmp_path, "cache": tmp_path / "cache", "workers": 0}
    assert harness.evidence(name, minutes=600, **given)
    page, path = (tmp_path / f"{name}.md").read_text(), RESULTS / f"{name}.md"
    assert "\n| " in page
    for made in tmp_path.glob("*.csv"):
        assert set(READ.get(made.stem, ())) <= set(pd.read_csv(made).columns)
    assert name not in READ or (tmp_path / f"{name}.csv").exists()
    if path.exists() and "Made by `make evidence" in path.read_text():
        assert heads(page) - FAULTS <= heads(path.read_text())


FAULTS = {"mutant", "why"}
"""Columns of the mutants that live: a table that a page has only where there are any."""


def heads(page: str) -> set[str]:
    """Names of the columns of all tables."""
    lines = page.splitlines()
    rules = [k for k, line in enumerate(lines) if re.match(r"\|[-:|]+\|$", line)]
    return {cell.strip() for k in rules for cell in lines[k - 1].split("|")} - {"runs"}


# --- numbers that are quoted ---------------------------------------------------------------------

QUOTED = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
QUOTED += [*(ROOT / "docs" / "guide").glob("*.md"), *(ROOT / "docs" / "questions").glob("*.md")]
DERIVED = {
    ("balance.md", "balance", "15"): "1 - 0.851",
    ("conditional.md", "groups", "15"): "100 - 85.2",
    ("conditional.md", "cate", "2700"): "nine tenths of the records",
    ("engines.md", "scale", "10"): "columns of the file",
    ("sites.md", "sites_liars", "1.9"): "a width over another one",
}
"""Numbers that follow from a table without standing in it."""
NUMBER = re.compile(r"(?<![\w.,])\d+(?:,\d{3})*(?:\.\d+)?(?!\w|,\d|\.\d)")


def sentences(text: str) -> list[str]:
    """Sentences, items of lists and rows of tables that link to results."""
    blocks = re.split(r"\n\s*\n|\n(?=[-*|] )|\n(?=\d+\. )", text)
    each = [re.split(r"(?<=[.;:]) (?=[A-Z`\"])|(?<=\.\)) ", " ".join(x.split())) for x in blocks]
    return [sentence for block in each for sentence in block if "benchmarks/results/" in sentence]


def on_file(name: str) -> set[float]:
    """All numbers of a page of results and of its csv files."""
    files = [RESULTS / f"{name}.md", *RESULTS.glob(f"{name}*.csv")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in files if path.exists())
    return {float(x) for x in re.findall(r"\d+(?:\.\d+)?", re.sub(r"(?<=\d),(?=\d{3})", "", text))}


def unfounded(text: str, page: str) -> list[tuple[str, str, str]]:
    """Numbers beside a link to results that no number there rounds to."""
    missing = []
    for sentence in sentences(text):
        names = re.findall(r"benchmarks/results/(\w+)\.md", sentence)
        known = set().union(*map(on_file, names))
        words = re.sub(r"`[^`]*`", "", re.sub(r"\]\([^)]*\)", "]", sentence))
        for number in NUMBER.findall(words):
            value = float(number.replace(",", ""))
            digits = len(number.partition(".")[2])
            if not any(abs(round(x, digits) - value) < 1e-9 for x in known):
                missing += [(page, name, number.replace(",", "")) for name in names[:1]]
    return missing


def test_numbers_that_are_quoted_are_in_their_tables():
    found = [x for path in QUOTED for x in unfounded(path.read_text(), path.name)]
    assert [x for x in found if x not in DERIVED] == []
    assert set(DERIVED) <= set(found), "these stand in their tables by now"


def test_a_number_that_no_table_has_is_found():
    link = "([measured](../../benchmarks/results/cate.md))"
    assert unfounded(f"It is 0.58 at epsilon 1 {link}.", "x.md") == []
    assert unfounded(f"It is 0.583 at epsilon 1 {link}.", "x.md") == [("x.md", "cate", "0.583")]
