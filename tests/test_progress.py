"""Bars: on a terminal only, never in what is returned or printed."""

from __future__ import annotations

import io
import sys

import pytest

import dpeffects as dpe
from dpeffects import progress
from dpeffects.progress import bar


class Terminal(io.StringIO):
    """Says that it is one."""

    def isatty(self):
        return True


@pytest.fixture
def open_terminal(monkeypatch):
    """Opened by the test itself: pytest takes stderr back between a fixture and its test."""
    pytest.importorskip("tqdm")

    def opened():
        made = Terminal()
        monkeypatch.setattr(sys, "stderr", made)
        monkeypatch.setattr(progress, "DELAY", 0.0)
        return made

    return opened


def test_nothing_is_shown_where_nobody_looks(capsys):
    items = [1, 2, 3]
    assert bar(items, "counting") is items
    assert capsys.readouterr() == ("", "")


def test_no_stderr_at_all(monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    assert list(bar(range(3), "counting")) == [0, 1, 2]


def test_a_terminal_gets_a_bar(open_terminal):
    terminal = open_terminal()
    assert list(bar(iter("abcd"), "counting", 4)) == list("abcd")
    shown = terminal.getvalue()
    assert "counting" in shown
    assert "/4" in shown
    assert shown.endswith("\r")  # it wipes itself out


def test_short_work_has_no_bar(open_terminal, monkeypatch):
    terminal = open_terminal()
    monkeypatch.setattr(progress, "DELAY", 60.0)
    assert list(bar(range(3), "counting")) == [0, 1, 2]
    assert "counting" not in terminal.getvalue()


def test_without_tqdm_there_is_no_bar(open_terminal, without):
    terminal = open_terminal()
    without("tqdm")
    items = [1, 2]
    assert bar(items, "counting") is items
    assert terminal.getvalue() == ""


@pytest.mark.long
def test_an_audit_shows_both_of_its_parts(open_terminal, capsys):
    terminal = open_terminal()
    given = {"epsilon": 1, "runs": 600, "seed": 1, "variance": False}
    seen = dpe.audit("diff_in_means", **given)
    shown = terminal.getvalue()
    assert "looking for the worst pair" in shown
    assert "attacking it" in shown
    assert capsys.readouterr().out == ""
    sys.stderr = io.StringIO()
    assert dpe.audit("diff_in_means", **given).to_dict() == seen.to_dict()


def test_plans_and_sites_have_bars(open_terminal):
    terminal = open_terminal()
    study = dpe.plan("y ~ t", n=400, epsilon=1, bounds={"y": (0, 1)}, repeats=1)
    study.across([0.5, 1.0])
    data = dpe.simulate("multisite", n=400, seed=1).frame.assign(site=["a", "b"] * 200)
    dpe.dp_multisite(
        "outcome ~ treatment",
        data,
        site="site",
        epsilon={"a": 1, "b": 1},
        method="diff_in_means",
        bounds={"outcome": (0, 1)},
    )
    for words in ("planning", "simulating", "sites"):
        assert words in terminal.getvalue()
