"""The wheel holds the package, its data and its proofs; the README's code runs."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def test_wheel_contents(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    for wanted in ("py.typed", "privacy/PROOFS.md", "_data/lalonde_nsw_dw.csv", "_data/README.md"):
        assert f"dpeffects/{wanted}" in names
    assert "dpeffects/federation/app/pyproject.toml" in names
    for path in [*(ROOT / "vignettes").glob("*.py"), *(ROOT / "data" / "papers").glob("*.csv")]:
        folder = "_vignettes" if path.suffix == ".py" else "_data/papers"
        assert f"dpeffects/{folder}/{path.name}" in names
    assert not [n for n in names if n.startswith(("tests/", "benchmarks/"))]


def test_sdist_contents(tmp_path):
    command = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as archive:
        names = {name.split("/", 1)[-1] for name in archive.getnames()}
    for wanted in ("pyproject.toml", "vignettes/weighting.py", "vignettes/ORDER", "data/README.md"):
        assert wanted in names
    assert {f"data/papers/{p.name}" for p in (ROOT / "data" / "papers").glob("*.csv")} <= names


def test_data_loads_from_the_wheel_alone(wheel, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path)
    code = (
        "import sys; sys.path.insert(0, '.'); import dpeffects as d;"
        "assert d.__file__.startswith(sys.argv[1]), d.__file__; print(len(d.load_data('lalonde')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.stdout.strip() == "445", done.stderr


def blocks(path):
    return re.findall(r"```python\n(.*?)```", path.read_text(), re.DOTALL)


@pytest.mark.parametrize("name", ["README.md", "data/README.md"])
def test_code_in_the_readme_runs(name, capsys, tmp_path, monkeypatch):
    """Blocks run in order and share their names, as a reader would type them."""
    monkeypatch.chdir(tmp_path)
    space: dict[str, object] = {}
    for block in blocks(ROOT / name):
        exec(compile(block, name, "exec"), space)


def test_quick_start_runs():
    done = subprocess.run(
        [sys.executable, str(ROOT / "vignettes" / "quick_start.py")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "Private average treatment effect" in done.stdout
    assert "Privacy budget" in done.stdout
