"""Run commands as a user does, and the files they need."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from dpeffects import cli
from dpeffects.cli import program as shell

ROOT = Path(cli.__file__).resolve().parents[2]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8", "COLUMNS": "80"}
FORMULA = "y ~ t | age + sex"
BOUNDS = """[bounds]
y = {range = [0, 1]}
age = {range = [18, 90]}
sex = {levels = ["f", "m"]}
"""
PROTOCOL = """\
formula = "y + I(age > 60) ~ t"
subgroups = ["sex"]
epsilon = 1
design = "randomised"

[bounds]
y = [0, 1]
age = [18, 90]
sex = ["f", "m"]
"""
ESTIMATE = ["data.csv", "--epsilon", "1", "--bounds", "bounds.toml"]


def study(n=2000, seed=5):
    """Records with whole numbers only, so that any machine reads the same file."""
    rng = np.random.default_rng(seed)
    age, sex, t = rng.integers(18, 91, n), rng.integers(0, 2, n), rng.integers(0, 2, n)
    y = (rng.integers(0, 100, n) < 30 + 20 * t + age // 4).astype(int)
    return pd.DataFrame({"y": y, "t": t, "age": age, "sex": np.where(sex, "m", "f")})


def write_files(folder):
    frame = study()
    frame.to_csv(folder / "data.csv", index=False)
    frame.to_csv(folder / "data.csv.gz", index=False)
    frame.assign(smoker=frame.t == 1).to_parquet(folder / "data.parquet")
    pd.DataFrame({"age": [20, 50], "sex": ["f", "m"]}).to_csv(folder / "points.csv", index=False)
    (folder / "bounds.toml").write_text(BOUNDS)
    (folder / "protocol.toml").write_text(PROTOCOL)
    return frame


def run(capsys, *arguments):
    """Exit code, what was printed, and the line on stderr."""
    capsys.readouterr()
    code = cli.main([str(argument) for argument in arguments])
    said = capsys.readouterr()
    return code, said.out, said.err


def refused(capsys, *arguments):
    """One line on stderr, nothing on stdout, exit code 2; return the line."""
    code, out, err = run(capsys, *arguments)
    assert code == 2, err
    assert out == ""
    assert err.startswith("dpeffects")
    assert err.endswith("\n")
    assert err.count("\n") == 1
    return err


def calling(monkeypatch, name, function):
    """Let a command call this function."""
    commands = [replace(x, function=function) if x.name == name else x for x in shell.COMMANDS]
    monkeypatch.setattr(shell, "COMMANDS", commands)


def program(*arguments, **given):
    """The same in a process of its own."""
    command = [sys.executable, "-m", "dpeffects", *map(str, arguments)]
    given = {"capture_output": True, "text": True, "env": ENVIRONMENT, **given}
    return subprocess.run(command, **given)
