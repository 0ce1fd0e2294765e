"""Hard regressions: none may fail, and each must end near its minimiser in few looks at the rows.

Problems are those of `tests/privacy/nasty.py`: separable, nearly so, collinear, two distinct rows,
one treated record or none, noise in the objective of up to 10^4 times the strength (privacy needs
about 10^3 at most; more is solved too, but takes more looks). The distance from the minimiser is
bounded by the gradient in long doubles over the penalty; the share of it that is accounted for in
the sensitivity must be below 1.
"""

from __future__ import annotations

import numpy as np
from harness import Part, Table, grid

from dpeffects.errors import DPEffectsError
from dpeffects.privacy.losses import Logistic
from dpeffects.privacy.rows import Rows
from tests.privacy import nasty, problems

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


def run(people: int, noise: int, regression: str, penalty: float):
    Counted.looks = 0
    try:
        size, known = KINDS[regression](np.random.default_rng(noise), penalty)
    except DPEffectsError:
        return {"failed": 1.0}
    return {"failed": 0.0, "looks": Counted.looks, "share": size / known}


COLUMNS = {
    "problems": len,
    "failed": lambda runs: int(runs["failed"].sum()),
    "distance / accounted, max": lambda runs: round(runs["share"].max(), 3),
    "looks, median": lambda runs: int(runs["looks"].median()),
    "looks, max": lambda runs: int(runs["looks"].max()),
}
TABLE = Table(
    "Hard regressions",
    (Part("", grid(regression=KINDS, penalty=PENALTIES), run, COLUMNS, runs=200, chunk=50),),
    "The penalty of regressions of effects is 10^6 times larger.",
    minutes=2,
)
