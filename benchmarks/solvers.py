"""Hard regressions: none may fail, and each must end near its minimiser in few looks at the rows.

    python benchmarks/solvers.py                     # 3,600 problems, about 3 minutes
    python benchmarks/solvers.py --small             # 300 problems; keeps no table
    python benchmarks/solvers.py --before 3881d4f    # and failures at another commit, 10 minutes

Problems are those of `tests/privacy/nasty.py`: separable, nearly so, collinear, two distinct rows,
one treated record or none, noise in the objective of up to 10^4 times the strength (privacy needs
about 10^3 at most; more is solved too, but takes more looks). The distance from the minimiser is
bounded by the gradient in long doubles over the penalty; the share of it that is accounted for in
the sensitivity must be below 1.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from report import save

ROOT = Path(__file__).resolve().parents[1]
OTHER = sys.argv[sys.argv.index("--solvers") + 1] if "--solvers" in sys.argv else str(ROOT)
sys.path.insert(0, OTHER)

from dpeffects.errors import DPEffectsError  # noqa: E402
from dpeffects.privacy import erm  # noqa: E402
from dpeffects.privacy.rows import Rows  # noqa: E402

sys.path.insert(0, str(ROOT))  # problems are always those of this checkout
from tests.privacy import nasty, problems  # noqa: E402

PENALTIES = (1e-12, 1e-10, 1e-8, 1e-6, 1e-3, 1.0)
BEFORE = 1800
"""Problems that are tried at another commit, where failures may take long."""


Found = tuple[float, Callable[[], float]]
"""Gradient norm at the result, and what is accounted for."""


class Counted(Rows):
    """Rows that count how often they are looked at."""

    looks = 0

    def fold(self, function, *parts):
        Counted.looks += 1
        return super().fold(function, *parts)


def counted(rows: Rows) -> Counted:
    return Counted(rows.outcome, rows.outcome_range, rows.treated, rows.covariates, rows.width)


def matching(rng: np.random.Generator, penalty: float) -> Found:
    """Logistic regression on rows in [0, 1]^d (claim 20)."""
    t, x = nasty.treatment_and_rows(rng)
    w = erm.fit_logistic(counted(problems.held(x, t)), penalty)
    gradient = nasty.exact_gradient(nasty.fitted_rows(x, False), t, w, penalty)[0]
    spacing = (x.shape[1] / 4.0 + penalty) * 2.0**-51 * np.linalg.norm(w)
    size = float(np.linalg.norm(gradient.astype(float))) - spacing
    return size, lambda: erm.accounted(x.shape[1], penalty, erm.GRADIENT / 2, unit=False)


def weighting(rng: np.random.Generator, penalty: float) -> Found:
    """Logistic regression on rows of norm 1 with noise in the objective (claims 20, 22)."""
    t, x = nasty.treatment_and_rows(rng)
    n, d = x.shape
    noise = rng.laplace(size=d) * n * penalty * float(rng.choice([0.0, 1.0, 1e2, 1e4]))
    push, offset = float(np.linalg.norm(noise)), float(rng.choice([0.0, -2.0, 9.0]))
    problem = erm.Logistic(counted(problems.held(x, t)), n * penalty, offset)
    w = problem.solve(noise)
    rows = nasty.fitted_rows(x, True)
    gradient = nasty.exact_gradient(rows, t, w, penalty, offset, noise / n)[0]
    spacing = (0.25 + penalty) * 2.0**-51 * np.linalg.norm(w)
    size = float(np.linalg.norm(gradient.astype(float))) - spacing
    return size, lambda: problem.slack(push) * penalty + 2.5e-15 * push / n


def effects(rng: np.random.Generator, penalty: float) -> Found:
    """Huber regression with noise in the objective (claim 23); the penalty is 10^6 times larger."""
    n, d = int(rng.choice(nasty.SIZES)), int(rng.choice(nasty.WIDTHS))
    rows, slopes, targets = nasty.huber_terms(rng, n, d)
    noise = rng.laplace(size=d) * 1e6 * penalty * float(rng.choice([0.0, 1.0, 1e2, 1e4]))
    problem = problems.huber(rows, slopes, targets, 1e6 * penalty)
    object.__setattr__(problem, "source", counted(problem.source))
    w = problem.solve(noise)
    push = float(np.linalg.norm(noise))
    return nasty.huber_gradient(problem, w, noise), lambda: problem.slack(push) * problem.strength


KINDS = {"matching (claim 20)": matching, "weighting (20, 22)": weighting, "effects (23)": effects}


def run(count: int) -> list[dict]:
    """Solve problems of each kind and penalty; the same ones for the same count or a smaller."""
    found = []
    for number, (kind, solve) in enumerate(KINDS.items()):
        for penalty in PENALTIES:
            seen, start = defaultdict(list), time.perf_counter()
            for k in range(count // (len(KINDS) * len(PENALTIES))):
                Counted.looks = 0
                rng = np.random.default_rng([number, PENALTIES.index(penalty), k])
                try:
                    size, known = solve(rng, penalty)
                except DPEffectsError:
                    seen["failed"].append(1)
                    continue
                seen["looks"].append(Counted.looks)
                if str(ROOT) == OTHER:
                    seen["share"].append(size / known())
            looks = seen["looks"]
            found.append(
                {
                    "regression": kind,
                    "penalty": penalty * (1e6 if solve is effects else 1.0),
                    "problems": len(looks) + len(seen["failed"]),
                    "failed": len(seen["failed"]),
                    "distance / accounted, max": round(max(seen["share"], default=np.nan), 3),
                    "looks, median": int(np.median(looks)),
                    "looks, max": max(looks),
                    "seconds": round(time.perf_counter() - start, 1),
                }
            )
    return found


def before(commit: str) -> pd.DataFrame:
    """Problems and failures of the solvers at another commit."""
    with tempfile.TemporaryDirectory() as folder:
        tar = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=True)
        subprocess.run(["tar", "-x", "-C", folder], input=tar.stdout, check=True)
        command = [sys.executable, __file__, "--solvers", folder]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    return pd.DataFrame(json.loads(done.stdout))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--before", metavar="COMMIT")
    parser.add_argument("--solvers", metavar="FOLDER", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.solvers:
        print(json.dumps(run(BEFORE)))
        return
    table = pd.DataFrame(run(300 if given.small else 3600))
    if given.before:
        old = before(given.before)
        table["problems before"] = old["problems"]
        table["failed before"] = old["failed"]
    if given.small:
        print(table.to_markdown(index=False))
    else:
        save("solvers", "Hard regressions", {"": table})


if __name__ == "__main__":
    main()
