"""Processor time of a fresh process: of the import, of a first call with its summary, of commands.

    python benchmarks/first_call.py    # a minute or two

Seconds of user and system time of the whole process, start and end of Python included, the least
of five runs. Run it where more is installed than dpeffects needs: nothing else may be loaded.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pandas as pd
from report import save

ROOT = Path(__file__).resolve().parents[1]
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
    "import dpeffects": "import dpeffects",
    "dp_ate, default": DATA + ATE.format(""),
    "dp_ate, default, in a trial": DATA + ATE.format("design='randomised', "),
    "dp_ate, private_ipw": DATA + ATE.format("method='private_ipw', "),
    "dp_cate by group": DATA + CATE,
    "dp_study": DATA + STUDY,
    "dpeffects --version": "import sys; from dpeffects.cli import main; main(['--version'])",
    "dpeffects --help": "import sys; from dpeffects.cli import main; main(['--help'])",
}


def seconds(code: str) -> float:
    """The least processor time of five runs."""
    return min(once(code) for _ in range(5))


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


def main() -> None:
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for name, code in PROGRAMS.items():
            row = {"a process that runs": name, "processor seconds": round(seconds(code), 2)}
            rows.append({**row, "loads of others": loaded(code)})
            print(rows[-1], flush=True)
    notes = (
        "Least of five runs each. pandas, which loads pyarrow where it is installed, is what the "
        "data are in. The bars are 0.3 s for the import and 1 s for a first call. "
        f"Load of the machine while this ran: {os.getloadavg()[0]:.0f} processes on "
        f"{os.cpu_count()} cores; installed are scikit-learn, polars, pyarrow, duckdb, matplotlib, "
        "scipy and statsmodels."
    )
    save("first_call", "Fresh processes", {"": pd.DataFrame(rows)}, notes)


if __name__ == "__main__":
    main()
