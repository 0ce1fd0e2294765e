"""Every vignette runs from start to end in its quick mode, in an empty folder, from the wheel."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from dpeffects.errors import OptionError
from dpeffects.replication.vignettes import list_vignettes, run_vignette, vignette_path

ROOT = Path(__file__).resolve().parents[1]
NAMES = sorted(path.stem for path in (ROOT / "vignettes").glob("*.py"))


@pytest.fixture(scope="session")
def installed(wheel, tmp_path_factory):
    """The folder that the wheel puts in place: nothing of the checkout is in it."""
    folder = tmp_path_factory.mktemp("installed")
    zipfile.ZipFile(wheel).extractall(folder)
    return folder


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_it_runs(name, installed, tmp_path):
    pytest.importorskip("matplotlib")
    env = {**os.environ, "MPLBACKEND": "Agg", "PYTHONPATH": str(installed)}
    script = installed / "dpeffects" / "_vignettes" / f"{name}.py"
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip()


def test_all_are_listed():
    assert sorted(list_vignettes().index) == NAMES
    assert all(list_vignettes()["title"])


def test_a_name_that_is_not_there():
    with pytest.raises(OptionError, match="Did you mean 'weighting'"):
        vignette_path("wieghting")


def test_figures_are_saved(tmp_path, monkeypatch, capsys):
    plt = pytest.importorskip("matplotlib.pyplot")
    plt.figure()  # one that somebody left open
    (tmp_path / "ORDER").write_text("two\n")
    (tmp_path / "two.py").write_text(
        '"""Two figures."""\nimport sys\nimport matplotlib.pyplot as plt\n'
        "plt.plot([1, 2])\nplt.show()\nplt.plot([2, 1])\nprint(sys.argv[1:])\n"
    )
    monkeypatch.setattr("dpeffects.replication.vignettes._folder", lambda: tmp_path)
    figures = tmp_path / "not" / "there"
    run_vignette("two", figures, full=("figure_2",))
    assert sorted(path.name for path in figures.glob("*.png")) == ["two_1.png", "two_2.png"]
    assert "['--full', 'figure_2']" in capsys.readouterr().out


PAGE = '''"""
A page
======

It begins with ``words``.
"""

import inspect

import matplotlib.pyplot as plt

# %%
# First
# -----
# See :doc:`weighting` first.

plt.plot([1, 2])  # nobody shows it

# %%
# Second
# ------

# a comment of the code
print("line", inspect.currentframe().f_lineno)
'''


def test_prose_output_and_figures_come_in_order(tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib")
    (tmp_path / "ORDER").write_text("page\n")
    (tmp_path / "page.py").write_text(PAGE)
    monkeypatch.setattr("dpeffects.replication.vignettes._folder", lambda: tmp_path)
    run_vignette("page", tmp_path)
    said = [line for line in capsys.readouterr().out.splitlines() if line]
    assert said == [
        "A page",
        "======",
        "It begins with `words`.",
        "First",
        "-----",
        "See weighting first.",
        f"[figure: {tmp_path / 'page_1.png'}]",
        "Second",
        "------",
        f"line {PAGE.splitlines().index('# a comment of the code') + 2}",
    ]
