"""Coverage and half-widths of three and four arms, on populations that nothing was built on.

    git worktree add /tmp/before 1a614008
    python benchmarks/arms_held_out.py /tmp/before   # a few minutes on two cores

Trials with uneven arms and confounded records, with arms whose outcomes vary alike or not at all
alike ("unlike": standard deviations of .03, .25 and .08), drawn from other generators than those of
`three_arms.py`. Both versions see the same records and have the same seeds. "ratio" is the mean
half-width of intervals, one by one, over that of the version before.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

HERE = Path(__file__).resolve().parents[1]
LEVELS = np.array(list("abcd"))
EFFECTS = np.array([0.0, 0.08, -0.05, 0.03])
UNLIKE = np.array([0.03, 0.25, 0.08, 0.15])
TRIALS = {"trial, uneven": [0.7, 0.2, 0.1], "trial, unlike": [0.34, 0.33, 0.33]}
TRIALS |= {"trial, four arms": [0.4, 0.3, 0.2, 0.1]}
OTHERS = {"confounded": 3, "confounded, unlike": 3, "confounded, four arms": 4}
SIZES = ((3000, 1.0, 0.0), (12_000, 2.0, 0.0), (5000, 1.0, 1e-6))


def drawn(kind: str, n: int, seed: int) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Records of a population, and the bounds of their columns."""
    rng = np.random.default_rng(7_000_000 + seed)
    x1, x2 = rng.random(n), rng.uniform(-1.0, 1.0, n)
    if kind in TRIALS:
        chances = np.tile(TRIALS[kind], (n, 1))
    else:
        odds = [0.0 * x1, 1.2 * (x1 - 0.5) + 0.5 * x2, -1.0 * (x1 - 0.5) - 1.0 + 0.3 * x2]
        odds = np.exp(np.stack([*odds, 0.8 * x2 - 0.5][: OTHERS[kind]], axis=1))
        chances = odds / odds.sum(axis=1, keepdims=True)
    arms = chances.shape[1]
    arm = np.minimum((rng.random(n)[:, None] > chances.cumsum(axis=1)).sum(axis=1), arms - 1)
    unlike = "unlike" in kind
    noise = (UNLIKE[arm] if unlike else 0.12) * rng.normal(size=n)
    y = 0.35 + 0.15 * x1 + 0.05 * x2 + EFFECTS[arm] + noise
    ends = (-0.5, 1.5) if unlike else (0, 1)
    data = pd.DataFrame({"y": np.clip(y, *ends), "arm": LEVELS[arm], "x1": x1, "x2": x2})
    return data, {"y": ends, "arm": LEVELS[:arms].tolist(), "x1": (0, 1), "x2": (-1, 1)}


def cell(kind: str, method: str, size: tuple[int, float, float], runs: int) -> tuple[float, float]:
    """How often intervals cover, and their mean half-width."""
    import dpeffects as dpe

    n, epsilon, delta = size
    trial, found = kind in TRIALS, []
    for seed in range(runs):
        data, bounds = drawn(kind, n, seed)
        given = {"epsilon": epsilon, "delta": delta, "bounds": bounds, "seed": seed}
        given |= {"design": "randomised"} if trial else {}
        fit = dpe.dp_ate("y ~ arm" if trial else "y ~ arm | x1 + x2", data, method, **given)
        truth = EFFECTS[1 : len(bounds["arm"])]
        low, high = fit.conf_int(simultaneous=False).T
        found.append(np.stack([(low <= truth) & (truth <= high), (high - low) / 2.0]))
    covers, half_width = np.array(found).mean(axis=(0, 2))
    return float(covers), float(half_width)


def cells() -> list[tuple[str, str, tuple[int, float, float]]]:
    """All of them, by population, method and size."""
    trials = [(kind, "clipped_contrast") for kind in TRIALS]
    others = [(kind, method) for kind in OTHERS for method in ("one_step", "private_ipw")]
    return [(*which, size) for which in (*trials, *others) for size in SIZES]


def of_version(tree: Path, runs: int) -> Any:
    """Start the version of a checkout, which prints what its cells are."""
    env = {**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, "--runs", str(runs)]
    return subprocess.Popen(command, cwd=tree, env=env, stdout=subprocess.PIPE, text=True)


def main() -> None:
    """Run both versions, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("before", nargs="?", type=Path)
    parser.add_argument("--runs", type=int, default=40)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    if asked.before is None:
        print(json.dumps([cell(*which, asked.runs) for which in cells()]))
        return
    from report import save

    started = [of_version(tree, asked.runs) for tree in (asked.before, HERE)]
    before, after = (np.array(json.loads(version.communicate()[0])) for version in started)
    rows = [
        {
            "population": kind,
            "method": method,
            "records": size[0],
            "epsilon": size[1],
            "delta": size[2],
            "covers before": f"{100 * b[0]:.1f} %",
            "covers": f"{100 * a[0]:.1f} %",
            "half-width": f"{a[1]:.4f}",
            "ratio": f"{a[1] / b[1]:.3f}",
        }
        for (kind, method, size), b, a in zip(cells(), before, after, strict=True)
    ]
    ratio, covers = (after[:, 1] / before[:, 1]).mean(), after[:, 0].mean()
    note = f"{asked.runs} draws a cell. On average intervals cover {100 * covers:.1f} % and are "
    note += f"{ratio:.3f} times as wide as before."
    title = "Three and four arms on populations that nothing was built on"
    save("arms_held_out", title, {"": pd.DataFrame(rows)}, note)


if __name__ == "__main__":
    main()
