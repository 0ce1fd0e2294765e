"""Processor time of a fresh process: of the import, of a first call with its summary, of commands.

    python benchmarks/first_call.py                     # a minute or two
    python benchmarks/first_call.py other/bin/python    # in another environment too

Seconds of user and system time of the whole process, start and end of Python included, the least
of five runs. Run it where more is installed than dpeffects needs: nothing else may be loaded. The
other environment is one with dpeffects, scikit-learn and what they need.
"""

from __future__ import annotations

import compileall
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
_OTHER = ", in the other environment only scikit-learn and what dpeffects needs"


def seconds(code: str, python: str) -> float:
    """The least processor time of five runs."""
    return round(min(once(code, python) for _ in range(5)), 2)


def once(code: str, python: str) -> float:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    before = os.times()
    subprocess.run([python, "-c", code], check=True, capture_output=True, env=environment)
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
    rows, pythons = [], {"processor seconds": sys.executable}
    if sys.argv[1:]:
        pythons["with scikit-learn alone"] = str(Path(sys.argv[1]).absolute())
    compileall.compile_dir(ROOT / "dpeffects", quiet=1)  # as an installed package is
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for name, code in PROGRAMS.items():
            row = {where: seconds(code, python) for where, python in pythons.items()}
            rows.append({"a process that runs": name, **row, "loads of others": loaded(code)})
            print(rows[-1], flush=True)
    notes = (
        "Least of five runs each. The bars are 0.3 s for the import and 1 s for a first call. "
        "Installed are scikit-learn, polars, pyarrow, duckdb, matplotlib, scipy and statsmodels"
        f"{_OTHER if sys.argv[1:] else ''}. pandas, which the data are in, takes more than half of "
        "a first call, and loads pyarrow where it is installed. Of the rest, narwhals and OpenDP "
        "take about a third, much of it for modules that a dependency of OpenDP loads; what Python "
        "writes and compiles for some 140 frozen dataclasses a quarter (0.12 s), which only "
        "dataclasses of our own making would spare; choosing the method and dividing its "
        "budget, the releases, and the summary take 0.03 to 0.05 s each. "
        f"Load of the machine while this ran: {os.getloadavg()[0]:.0f} processes on "
        f"{os.cpu_count()} cores."
    )
    save("first_call", "Fresh processes", {"": pd.DataFrame(rows)}, notes)


if __name__ == "__main__":
    main()
