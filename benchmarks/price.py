"""Errors and widths of the default, beside those of the same call without noise."""

from __future__ import annotations

from typing import Any

from harness import Part, Row, Table, grid, median, percent, root

import dpeffects as dpe
from tests.populations import drawn

EPSILONS = (0.1, 0.3, 1.0, 3.0)


def run(people: int, noise: int, design: str, n: int, population: int) -> list[Row]:
    world = drawn(population, randomised=design == "trial")
    data = world.sample(n, people)
    given: dict[str, Any] = {"bounds": world.declared}
    given |= {"design": "randomised"} if design == "trial" else {}
    plain = dpe.reference(world.formula, data, "auto", **given)
    truth, sd, rows = world.truth["ATE"], data["y"].std(), []
    for k, epsilon in enumerate(EPSILONS):
        fit = dpe.dp_ate(world.formula, data, epsilon=epsilon, seed=noise + k, **given)
        low, high = fit.conf_int(0.95)
        off, without = (fit.estimate - truth) / sd, (plain.estimate - truth) / sd
        width = (high - low) / (2 * 1.96 * plain.std_error)
        told = {"width": width, "associated": fit.released.associated}
        rows.append({"epsilon": epsilon, "error": off, "without privacy": without} | told)
    return rows


CELLS = grid(design=("trial", "observational"), n=(500, 5000, 20_000), population=range(1, 6))
COLUMNS = {x: root(x) for x in ("error", "without privacy")}
COLUMNS |= {"width": median("width"), "associated": percent("associated", 0)}
NOTES = (
    "Five populations drawn at random (`drawn` in `tests/populations.py`), whose models are right. "
    "Errors are root mean squares, in standard deviations of the outcome; *width* is the median of "
    "the width of 95 % intervals over that without noise on the same sample; *associated* is the "
    "percentage of runs that call their result an association, since nothing was adjusted for."
)
TABLE = Table(
    "The default beside the same call without noise",
    (Part("", CELLS, run, COLUMNS, runs=60, by=("epsilon",), chunk=20, csv="price"),),
    NOTES,
    minutes=5,
)
