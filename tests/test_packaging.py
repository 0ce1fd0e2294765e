"""The wheel and the sdist are whole and work where nothing else is; the quick start runs."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import dpeffects

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.long
def test_wheel_contents(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    for wanted in ("py.typed", "privacy/PROOFS.md", "_data/lalonde_nsw_dw.csv", "_data/README.md"):
        assert f"dpeffects/{wanted}" in names
    assert "dpeffects/services/federation/app/pyproject.toml" in names
    for path in [*(ROOT / "vignettes").glob("*.py"), *(ROOT / "data" / "papers").glob("*.csv")]:
        folder = "_vignettes" if path.suffix == ".py" else "_data/papers"
        assert f"dpeffects/{folder}/{path.name}" in names
    assert not [n for n in names if n.startswith(("tests/", "benchmarks/"))]
    assert wheel.name == f"dpeffects-{dpeffects.__version__}-py3-none-any.whl"


def run(*command, cwd, **more):
    done = subprocess.run([*map(str, command)], cwd=cwd, capture_output=True, text=True, **more)
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
    return done.stdout


@pytest.mark.long
def test_the_sdist_makes_the_same_wheel_and_its_tests_run(wheel, tmp_path):
    run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", tmp_path, cwd=ROOT)
    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as archive:
        safe = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # since 3.11.4
        archive.extractall(tmp_path, **safe)
    source = next(path for path in tmp_path.iterdir() if path.is_dir())
    command = [sys.executable, "-m", "pip", "wheel", source, "--no-deps", "--no-build-isolation"]
    run(*command, "--quiet", "-w", tmp_path, cwd=tmp_path)
    one, two = (zipfile.ZipFile(path) for path in (wheel, next(tmp_path.glob("*.whl"))))
    assert set(one.namelist()) == set(two.namelist())
    assert [name for name in one.namelist() if one.read(name) != two.read(name)] == []
    code = "import dpeffects; print(dpeffects.__file__)"
    assert run(sys.executable, "-c", code, cwd=source).startswith(str(source))
    tests = [
        "tests/test_condition.py",
        "tests/test_release.py",
        "dpeffects/replication/vignettes.py",
    ]
    run(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests, cwd=source)


ALONE = """
import sys
from importlib.util import find_spec

import dpeffects as dpe
from dpeffects.replication.papers import table, table_names

assert dpe.__file__.startswith(sys.argv[1]), dpe.__file__
assert not any(map(find_spec, ("matplotlib", "sklearn", "polars", "duckdb", "flwr", "pytest")))
sets = dpe.list_data().query("kind == 'bundled'")
assert all(len(dpe.load_data(name)) == rows for name, rows in zip(sets["name"], sets["rows"]))
assert all(table(name).size for name in table_names())
print(*sets["name"])
"""


@pytest.mark.long
def test_the_wheel_in_an_empty_environment(wheel, tmp_path):
    """Only what `pip install dpeffects` brings: no extras, no compiler, another folder."""
    run(sys.executable, "-m", "venv", "--without-pip", "alone", cwd=tmp_path)
    bin_folder = tmp_path / "alone" / ("Scripts" if sys.platform == "win32" else "bin")
    pip = [sys.executable, "-m", "pip", "--python", bin_folder / "python", "install", "--quiet"]
    run(*pip, "--no-compile", "--only-binary", ":all:", wheel, cwd=tmp_path)
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    alone = {"cwd": tmp_path, "env": env}
    sets = run(bin_folder / "python", "-W", "error", "-c", ALONE, tmp_path / "alone", **alone)
    assert {"lalonde", "birthweight", "ist", "ihdp"} <= set(sets.split())
    command = bin_folder / "dpeffects"
    assert run(command, "--version", **alone) == f"dpeffects {dpeffects.__version__}\n"
    assert "Privacy budget" in run(command, "vignette", "quick_start", **alone)
    done = subprocess.run(
        [command, "vignette", "weighting"], capture_output=True, text=True, **alone
    )
    assert done.returncode == 2
    assert done.stderr.endswith('needs matplotlib: pip install "dpeffects[plot]"\n')


@pytest.mark.long
def test_an_estimate_from_the_wheel_without_unpacking_it(wheel, tmp_path):
    code = """
import pandas as pd, dpeffects as dpe
data = pd.DataFrame({"y": [0, 1] * 100, "t": [0, 0, 1, 1] * 50})
print(dpe.__file__, dpe.dp_ate("y ~ t", data, epsilon=1, bounds={"y": (0, 1)}))
"""
    shown = run(sys.executable, "-c", code, cwd=tmp_path, env={**os.environ, "PYTHONPATH": wheel})
    assert shown.startswith(str(wheel))


def test_quick_start_runs():
    done = subprocess.run(
        [sys.executable, str(ROOT / "vignettes" / "quick_start.py")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "Average treatment effect (ATE), differentially private" in done.stdout
    assert "Privacy budget" in done.stdout
