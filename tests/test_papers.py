"""Every item of the papers has a verdict, made from tables on file that say how they were made."""

from __future__ import annotations

import importlib
import re
import sys
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dpeffects.errors import DataError, OptionError
from dpeffects.replication.papers import (
    ClaimCheck,
    kept,
    made,
    paper_004,
    papers,
    spread,
    table,
    table_names,
    verdicts,
)
from dpeffects.replication.papers import verdict as register
from tests.cases import each

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("key", papers())
def test_every_item_has_a_verdict(key):
    judged = {row.item for row in verdicts(key).rows}
    assert sorted(set(papers()[key].items) - judged) == []


def test_every_claim_on_file_belongs_to_an_item():
    """A statement under an item that no paper has would be lost without a word."""
    file = Path(register.__file__).with_name("claims.toml").read_text(encoding="utf-8")
    written = {
        (item, claim["says"])
        for own in tomllib.loads(file).values()
        for item, listed in own.items()
        for claim in listed
    }
    read = {(claim.item, claim.says) for key in papers() for claim in register.claims(key)}
    assert written == read


@pytest.mark.sampled(5)
@pytest.mark.parametrize("key", papers())
def test_rows_are_whole_sentences(key):
    for row in verdicts(key).rows:
        assert row.printed, row
        assert row.measured or row.verdict == "cannot be checked", row
        assert row.why or row.verdict == "comes back", row
        assert not re.search(r"\bnan\b|\binf\b", row.measured), row


@pytest.mark.sampled(5)
@pytest.mark.parametrize("key", papers())
def test_a_paper_opens_with_a_screen_of_its_main_claims(key):
    """What it is about, each main claim under its verdict, a reason where it does not come back."""
    paper, found = papers()[key], verdicts(key)
    page = " ".join(found.opening().split())
    assert len(found.opening().splitlines()) <= 40
    assert page.startswith(" ".join(paper.about.split()))
    rows = {f"{row.item}: {row.printed}": row for row in found.rows}
    for main in paper.main:
        heading = rows[main].verdict
        place = page.index(main)
        assert page.rindex("What ", 0, place) == page.index(f"What {heading}")
        told = page[place + len(main) :].removeprefix(". ")
        assert (heading == "comes back") != told.startswith(rows[main].why.split(".")[0] or "?")


@each("name", table_names())
def test_tables_say_how_they_were_made(name):
    assert re.match(r"\d{4}-\d\d-\d\d; .+; python (vignettes/\w+\.py|-m tests\.\w+)", made(name))
    frame = table(name)
    assert len(frame)
    assert "runs" in frame or {"printed", "ours"} <= set(frame) or "cases" in frame, name
    if "runs" in frame and frame["runs"].min() > 1:
        assert any(column == "se" or column.endswith(" se") for column in frame), name


def test_every_table_belongs_to_a_paper():
    assert {name.split("_")[0] for name in table_names()} <= set(papers())


@pytest.mark.long
@pytest.mark.parametrize("name", ["replication", "corrections"])
def test_pages_are_those_of_the_tables(name, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "steps"))
    page = importlib.import_module(name)
    assert page.PAGE.read_text(encoding="utf-8") == page.text(), f"run python docs/steps/{name}.py"


def test_a_verdict_follows_its_table(tmp_path, monkeypatch):
    """The same claim, judged from two tables."""
    monkeypatch.setattr(
        "dpeffects.replication.papers.stored_tables._folder", lambda: tmp_path / "data" / "papers"
    )
    (tmp_path / "data").mkdir()
    monkeypatch.setattr(sys, "argv", ["page.py"])

    def below(most) -> ClaimCheck:
        error = table("004_figure_1")["error"].max()
        return ClaimCheck(f"largest {error:g}", bool(error < most), "because")

    monkeypatch.setattr(paper_004, "_below", below, raising=False)
    said = register.Claim("004", "Figure 1", "the error is below 1", "below", [1])
    monkeypatch.setattr(register, "claims", lambda key: [said])
    for error, verdict in ((0.5, "comes back"), (1.5, "does not")):
        kept("004_figure_1", lambda e=error: pd.DataFrame({"error": [e]}), again=True)
        (row,) = verdicts("004").rows
        assert (row.measured, row.verdict) == (f"largest {error:g}", verdict)
        assert f"largest {error:g}" in str(verdicts("004"))


def test_tables_are_made_only_when_asked(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "dpeffects.replication.papers.stored_tables._folder", lambda: tmp_path / "data" / "papers"
    )
    (tmp_path / "data").mkdir()
    frame = pd.DataFrame({"error": [1 / 3]})
    monkeypatch.setattr(sys, "argv", ["page.py", "--full"])
    with pytest.raises(DataError, match="on file"):
        kept("004_figure_1", lambda: frame)
    first = kept("004_figure_1", lambda: frame, again=True)
    assert first["error"][0] == pytest.approx(1 / 3, rel=1e-5)
    monkeypatch.setattr(sys, "argv", ["page.py", "--full", "figure_2"])
    again = kept("004_figure_1", lambda: frame + 1, again=True)
    pd.testing.assert_frame_equal(first, again)
    assert kept("004_figure_2", lambda: frame + 1, again=True)["error"][0] > 1
    assert made("004_figure_2").endswith("python vignettes/page.py --full")


def test_an_installed_package_is_not_written_to(tmp_path, monkeypatch):
    (tmp_path / "_data" / "papers").mkdir(parents=True)
    monkeypatch.setattr(
        "dpeffects.replication.papers.stored_tables._folder", lambda: tmp_path / "_data" / "papers"
    )
    monkeypatch.setattr(sys, "argv", ["page.py", "--full"])
    monkeypatch.chdir(tmp_path)
    frame = kept("004_figure_1", lambda: pd.DataFrame({"error": [1.5]}), again=True)
    assert frame["error"].tolist() == [1.5]
    assert [path.name for path in (tmp_path / "papers").iterdir()] == ["004_figure_1.csv"]
    assert not list((tmp_path / "_data" / "papers").iterdir())


def test_mistakes_are_named():
    with pytest.raises(OptionError, match="unknown paper '005'"):
        verdicts("005")
    with pytest.raises(DataError, match="no table"):
        table("000_figure_99")


def test_what_does_not_come_back_needs_a_reason(monkeypatch):
    monkeypatch.setattr(paper_004, "_never", lambda: ClaimCheck("0.3", False), raising=False)
    said = register.Claim("004", "Figure 1", "anything", "never")
    monkeypatch.setattr(register, "claims", lambda key: [said])
    with pytest.raises(ValueError, match="needs a reason"):
        verdicts("004")


@pytest.mark.long
def test_every_reason_on_file_is_given():
    """A key that no function has would be lost without a word."""
    given = {row.why for row in verdicts().rows}
    file = Path(register.__file__).with_name("verdicts.toml").read_text(encoding="utf-8")
    for own in tomllib.loads(file).values():
        assert [key for key, why in own.items() if not _said(why.format(**own), given)] == []


def _said(why, given):
    return any(why in other for other in given)


def test_spread_is_the_usual_standard_error():
    values = np.random.default_rng(1).normal(size=30)
    found = spread(values)
    assert found["se"] == pytest.approx(pd.Series(values).sem())
    assert (found["mean"], found["runs"]) == (pytest.approx(values.mean()), 30)
