"""Every vignette runs from start to end in its quick mode, in an empty folder, from the wheel."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from dpeffects.errors import OptionError
from dpeffects.vignettes import list_vignettes, run_vignette, vignette_path

ROOT = Path(__file__).resolve().parents[1]
NAMES = sorted(path.stem for path in (ROOT / "vignettes").glob("*.py"))


@pytest.fixture(scope="session")
def installed(wheel, tmp_path_factory):
    """The folder that the wheel puts in place: nothing of the checkout is in it."""
    folder = tmp_path_factory.mktemp("installed")
    zipfile.ZipFile(wheel).extractall(folder)
    return folder


@pytest.fixture(scope="module")
def runner(installed):
    """A process that has loaded the libraries, and runs each script in a fork of itself."""
    env = {**os.environ, "MPLBACKEND": "Agg", "PYTHONPATH": str(installed)}
    command = [sys.executable, str(ROOT / "tests" / "forked.py")]
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=env, **streams) as process:
        yield process
        process.stdin.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a system that forks")
@pytest.mark.parametrize("name", NAMES)
def test_it_runs(name, installed, runner, tmp_path):
    pytest.importorskip("matplotlib")
    script, folder = installed / "dpeffects" / "_vignettes" / f"{name}.py", tmp_path / "empty"
    folder.mkdir()
    print(json.dumps([str(script), str(folder)]), file=runner.stdin, flush=True)
    code = int(runner.stdout.readline())
    printed = folder.with_suffix(".printed").read_text(encoding="utf-8")
    assert code == 0, printed[-3000:]
    assert printed.strip()


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
    monkeypatch.setattr("dpeffects.vignettes._folder", lambda: tmp_path)
    figures = tmp_path / "not" / "there"
    run_vignette("two", figures, full=("figure_2",))
    assert sorted(path.name for path in figures.glob("*.png")) == ["two_1.png", "two_2.png"]
    assert "['--full', 'figure_2']" in capsys.readouterr().out
