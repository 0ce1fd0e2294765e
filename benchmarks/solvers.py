"""Hard regressions: none may fail, and each must end near its minimiser in few looks at the rows.

    python benchmarks/solvers.py            # 3,600 problems, about 3 minutes
    python benchmarks/solvers.py --small    # 300 problems; keeps no table

Problems are those of `tests/privacy/nasty.py`: separable, nearly so, collinear, two distinct rows,
one treated record or none, noise in the objective of up to 10^4 times the strength (privacy needs
about 10^3 at most; more is solved too, but takes more looks). The distance from the minimiser is
bounded by the gradient in long doubles over the penalty; the share of it that is accounted for in
the sensitivity must be below 1.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from pathlib import Path

import numpy as np
import pandas as pd
from report import save

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from dpeffects.errors import DPEffectsError  # noqa: E402
from dpeffects.privacy.losses import Logistic  # noqa: E402
from dpeffects.privacy.rows import Rows  # noqa: E402
from tests.privacy import nasty, problems  # noqa: E402

PENALTIES = (1e-12, 1e-10, 1e-8, 1e-6, 1e-3, 1.0)
ClaimCheck = tuple[float, float]
"""Gradient norm at the result, and what is accounted for."""


class Counted(Rows):
    """Rows that count how often they are looked at."""

    looks = 0

    def fold(self, function, *parts):
        Counted.looks += 1
        return super().fold(function, *parts)


def counted(rows: Rows) -> Counted:
    return Counted(rows.outcome, rows.outcome_range, rows.treated, rows.covariates, rows.width)


def matching(rng: np.random.Generator, penalty: float) -> ClaimCheck:
    """Logistic regression on rows in [0, 1]^d (claim 20)."""
    t, x = nasty.treatment_and_rows(rng)
    problem = Logistic(x.shape[1], penalty, centred=False)
    w = problem.solve(counted(problems.held(x, t)))
    gradient = nasty.exact_gradient(nasty.fitted_rows(x, False), t, w, penalty)[0]
    spacing = (x.shape[1] / 4.0 + penalty) * 2.0**-51 * np.linalg.norm(w)
    size = float(np.linalg.norm(gradient.astype(float))) - spacing
    return size, problem.gradient_left(len(t))


def weighting(rng: np.random.Generator, penalty: float) -> ClaimCheck:
    """Logistic regression on rows of norm 1 with noise in the objective (claims 20, 22)."""
    t, x = nasty.treatment_and_rows(rng)
    n, d = x.shape
    noise = rng.laplace(size=d) * n * penalty * float(rng.choice([0.0, 1.0, 1e2, 1e4]))
    push, offset = float(np.linalg.norm(noise)), float(rng.choice([0.0, -2.0, 9.0]))
    problem = Logistic(d, n * penalty, offset)
    w = problem.solve(counted(problems.held(x, t)), noise)
    rows = nasty.fitted_rows(x, True)
    gradient = nasty.exact_gradient(rows, t, w, penalty, offset, noise / n)[0]
    spacing = (0.25 + penalty) * 2.0**-51 * np.linalg.norm(w)
    size = float(np.linalg.norm(gradient.astype(float))) - spacing
    return size, problem.solver_error(n, push) * penalty + 2.5e-15 * push / n


def effects(rng: np.random.Generator, penalty: float) -> ClaimCheck:
    """Huber regression with noise in the objective (claim 23); the penalty is 10^6 times larger."""
    n, d = int(rng.choice(nasty.SIZES)), int(rng.choice(nasty.WIDTHS))
    rows, slopes, targets = nasty.huber_terms(rng, n, d)
    noise = rng.laplace(size=d) * 1e6 * penalty * float(rng.choice([0.0, 1.0, 1e2, 1e4]))
    problem = problems.huber(rows, slopes, targets, 1e6 * penalty)
    w = problem.problem.solve(counted(problem.curator._source), noise)
    push = float(np.linalg.norm(noise))
    return nasty.huber_gradient(problem, w, noise), problem.solver_error(push) * problem.strength


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
                seen["share"].append(size / known)
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


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--small", action="store_true")
    given = parser.parse_args()
    table = pd.DataFrame(run(300 if given.small else 3600))
    if given.small:
        print(table.to_markdown(index=False))
    else:
        save("solvers", "Hard regressions", {"": table})


if __name__ == "__main__":
    main()
