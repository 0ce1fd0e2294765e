"""Processor time of a fresh process: of the import, of a first call with its summary, of commands.

Seconds of user and system time of the whole process, start and end of Python included, the least
of five runs. Run it where more is installed than dpeffects needs: nothing else may be loaded.
"""

from __future__ import annotations

import compileall
import os
import subprocess
import sys
from functools import cache

from harness import Part, Table, grid
from report import ROOT

EXTRAS = ("sklearn", "polars", "pyarrow", "duckdb", "matplotlib", "scipy", "statsmodels")
DATA = """
import numpy as np, pandas as pd, dpeffects as dpe
rng = np.random.default_rng(1)
columns = {"y": rng.random(2000), "t": rng.integers(0, 2, 2000), "x": rng.random(2000)}
data, bounds = pd.DataFrame(columns), {"y": (0, 1), "x": (0, 1)}
"""
ATE = 'print(dpe.dp_ate("y ~ t | x", data, {}epsilon=1, bounds=bounds).summary())'
CATE = """print(dpe.dp_cate("y ~ t | x", data, release="groups", by="cut(x, [0, 0.5, 1])",
    epsilon=1, bounds=bounds).summary())"""
STUDY = 'print(dpe.dp_study("y ~ t | x", data, epsilon=1, bounds=bounds).summary())'
PROGRAMS = {
    "nothing (Python alone)": "",
    "import numpy": "import numpy",
    "import pandas": "import pandas",
    "import pandas, narwhals": "import pandas, narwhals.stable.v2",
    "import pandas, narwhals, opendp": "import pandas, narwhals.stable.v2, opendp.measurements",
    "import dpeffects": "import dpeffects",
    "dp_ate, default": DATA + ATE.format(""),
    "dp_ate, default, in a trial": DATA + ATE.format("design='randomised', "),
    "dp_ate, private_ipw": DATA + ATE.format("method='private_ipw', "),
    "dp_cate by group": DATA + CATE,
    "dp_study": DATA + STUDY,
    "dpeffects --version": "import sys; from dpeffects.cli import main; main(['--version'])",
    "dpeffects --help": "import sys; from dpeffects.cli import main; main(['--help'])",
}


def once(code: str) -> float:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    before = os.times()
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, env=environment)
    after = os.times()
    return after.children_user + after.children_system - sum(before[2:4])


def loaded(code: str) -> str:
    """Which of the libraries that may be installed a process has loaded."""
    tail = f"\nimport sys; print(*[x for x in {EXTRAS!r} if x in sys.modules], sep=', ')"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", code + tail]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return done.stdout.splitlines()[-1]


@cache
def compiled() -> None:
    """As an installed package is."""
    compileall.compile_dir(ROOT / "dpeffects", quiet=1)


def run(people: int, noise: int, program: str):
    import dpeffects as dpe

    _ = dpe.dp_ate, dpe.dp_cate, dpe.dp_study  # what the figures depend on

    compiled()
    code = PROGRAMS[program]
    least = round(min(once(code) for _ in range(5)), 2)
    return {"processor seconds": least, "loads of others": loaded(code)}


TABLE = Table(
    "Fresh processes",
    (Part("", grid(program=PROGRAMS), run),),
    "Least of five runs each. The bars are 0.3 s for the import and 1 s for a first call. "
    "Installed are scikit-learn, polars, pyarrow, duckdb, matplotlib, scipy and statsmodels. "
    "pandas, which the data are in, takes more than half of a first call, and loads pyarrow where "
    "it is installed. Of the rest, narwhals and OpenDP take about a third, much of it for modules "
    "that a dependency of OpenDP loads.",
    alone=True,
    minutes=2,
)
