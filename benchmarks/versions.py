"""Accuracy and processor time of this version beside those of another checkout.

    git worktree add /tmp/before 6b06f53
    python benchmarks/versions.py /tmp/before              # some 20 minutes on two idle cores
    python benchmarks/versions.py /tmp/before --repeats 2  # a quick look

Entries of the leaderboard run on the same samples with the same seeds in both versions: the table
has places (data, entry, epsilon) whose median relative error changed. Then calls on a million
records, in memory and from a Parquet file, in processes of their own, in turns; the table has the
least processor time of each. Finished runs are kept in the folder ``--runs``, and used again.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from report import save

HERE = Path(__file__).resolve().parents[1]
BOARD = """
import sys, warnings, dpeffects as dpe
warnings.simplefilter("ignore")
names = ["diff_in_means", "private_ipw", "private_psm", "private_psm_paper"]
names += ["sample_aggregate", "smooth_matching", "global_matching"]
data = ["lalonde", "birthweight", "confounded", "private_psm", "ihdp_a"]
board = dpe.bench(names, data, epsilon=[0.5, 2.0], repeats=int(sys.argv[2]))
board.runs.to_csv(sys.argv[1], index=False)
"""
CALL = """
import json, sys, time, numpy as np, pandas as pd, dpeffects as dpe
what, path, place = sys.argv[1:]
names = [f"x{i}" for i in range(10)]
full = "y ~ t | " + " + ".join(names)
strata = "y ~ t | cut(x0, [0, .25, .5, .75, 1]) + cut(x1, [0, .5, 1]) + cut(x2, [0, .5, 1])"
given = {"epsilon": 1, "bounds": dict.fromkeys([*names, "y"], (0, 1)), "seed": 1}
calls = {
    "diff_in_means": lambda d: dpe.dp_ate(full, d, "diff_in_means", **given),
    "private_ipw": lambda d: dpe.dp_ate(full, d, "private_ipw", **given),
    "one_step": lambda d: dpe.dp_ate(full, d, "one_step", **given),
    "smooth_matching": lambda d: dpe.dp_ate(strata, d, "smooth_matching", delta=1e-6, **given),
    "private_psm, label": lambda d: dpe.dp_ate(full, d, "private_psm", level="label", **given),
    "dp_balance": lambda d: dpe.dp_balance(full, d, adjusted=True, **given),
    "effects by group": lambda d: dpe.dp_cate(
        full, d, release="groups", by="cut(x0, [0, .5, 1])", **given
    ),
    "effect function": lambda d: dpe.dp_cate("y ~ t | x0 + x1", d, delta=1e-6, **given),
}
rng = np.random.default_rng(0)
small = pd.DataFrame(rng.random((2000, 11)), columns=[*names, "y"]).assign(t=np.arange(2000) % 2)
calls[what](small)
data = pd.read_parquet(path) if place == "memory" else path
start = time.process_time()
calls[what](data)
print(json.dumps(time.process_time() - start))
"""
CALLS = ["diff_in_means", "private_ipw", "one_step", "smooth_matching", "private_psm, label"]
CALLS += ["dp_balance", "effects by group", "effect function"]


def in_version(tree: Path, code: str, *arguments: object) -> str:
    """Run a program with the package of a checkout."""
    env = {**os.environ, "PYTHONPATH": str(tree)}
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(
        command, cwd=tree, env=env, check=True, capture_output=True, text=True
    ).stdout


def accuracy(trees: dict[str, Path], runs: Path, repeats: int) -> tuple[pd.DataFrame, str]:
    """Places of the leaderboard that changed, and how many did not."""
    boards = {}
    for name, tree in trees.items():
        path = runs / f"board_{name}.csv"
        if not path.exists():
            in_version(tree, BOARD, path, repeats)
        board = pd.read_csv(path)
        board["error"] = (board["estimate"] - board["truth"]).abs() / board["truth"].abs()
        boards[name] = board.groupby(["data", "fit", "epsilon"])["error"].median()
    table = pd.DataFrame(boards).reset_index()
    changed = ~np.isclose(table["before"], table["now"], rtol=1e-6)
    same = f"{int((~changed).sum())} of {len(table)} places have the same median error to 1e-6."
    return table[changed], same


def times(trees: dict[str, Path], runs: Path, repeats: int) -> pd.DataFrame:
    """Least processor seconds of each call, in turns."""
    path, data = runs / "times.csv", runs / "million.parquet"
    known = pd.read_csv(path).to_dict("records") if path.exists() else []
    done = {(r["call"], r["place"], r["version"], r["run"]) for r in known}
    if not data.exists():
        rng = np.random.default_rng(0)
        frame = pd.DataFrame(rng.random((10**6, 10)), columns=[f"x{i}" for i in range(10)])
        frame["t"] = (rng.random(10**6) < 0.3 + 0.4 * frame["x0"]).astype(int)
        frame["y"] = 0.5 * rng.random(10**6) + 0.25 * frame["x0"] + 0.1 * frame["t"]
        frame.to_parquet(data)
    for run in range(repeats):
        for call in CALLS:
            for place in ("file", "memory"):
                for version, tree in trees.items():
                    if (call, place, version, run) not in done:
                        seconds = json.loads(in_version(tree, CALL, call, data, place))
                        row = {"call": call, "place": place, "version": version, "run": run}
                        known.append(row | {"seconds": seconds})
                        pd.DataFrame(known).to_csv(path, index=False)
    least = pd.DataFrame(known).groupby(["call", "place", "version"])["seconds"].min()
    table = least.unstack("version").reset_index()
    table["ratio"] = (table["now"] / table["before"]).round(2)
    return table.round(3)[["call", "place", "before", "now", "ratio"]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before", type=Path, help="another checkout of this repository")
    parser.add_argument("--repeats", type=int, default=12, help="samples of the leaderboard")
    parser.add_argument("--times", type=int, default=2, help="runs of each call")
    parser.add_argument("--runs", type=Path, help="folder of finished runs")
    given = parser.parse_args()
    runs = given.runs or Path(tempfile.mkdtemp(prefix="dpeffects-versions-"))
    runs.mkdir(exist_ok=True)
    trees = {"before": given.before.resolve(), "now": HERE}
    places, same = accuracy(trees, runs, given.repeats)
    tables = {
        "Median relative error, where it changed": places.round(4),
        "Processor seconds, a million records": times(trees, runs, given.times),
    }
    save("versions", "Before and after the new kernel", tables, same)


if __name__ == "__main__":
    main()
