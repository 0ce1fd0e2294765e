"""Every ability at one size and epsilon 1: how often its intervals cover, and what privacy costs.

Widths and errors are over those of the same call without noise, on the same people.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import by_arm
import designs
import numpy as np
import studies
from harness import grid, over, percent
from known_truth import SE, Asked, covariates, part, table

import dpeffects as dpe

ROWS: dict[str, dict[str, str]] = {
    "clustered": {"cluster": "village"},
    "repeated": {"unit": "person"},
    "survey": {"weights": "weight"},
    "missing_outcomes": {"missing": "weight"},
}


def rows(people: int, kind: str, n: int) -> Asked:
    """Rows that do not count alike: of clusters and of people, with weights, with gaps."""
    made = dpe.simulate(kind, n, people)
    formula = f"outcome ~ treatment | {covariates(made)}"
    return Asked("dp_ate", formula, made, {"treatment": 0.1}, ROWS[kind])


@cache
def truth_of(kind: str) -> np.ndarray:
    frame = dpe.simulate(kind, 2_000_000, 10**6).frame
    columns = np.column_stack([np.ones(len(frame)), frame[["treatment", "x1", "x2", "x3"]]])
    return np.linalg.lstsq(columns, frame["outcome"].to_numpy(float), rcond=None)[0]


def moments(people: int, kind: str, n: int) -> Asked:
    """A regression of released moments."""
    truth = dict(zip(("treatment", "x1"), truth_of(kind)[1:3], strict=True))
    made, formula = dpe.simulate(kind, n, people), "outcome ~ treatment {} x1 + x2 + x3"

    read = lambda fit: fit.regression(formula.format("+"))  # noqa: E731
    return Asked("dp_moments", formula.format("|"), made, truth, {}, then=read)


LATE = {"outcome": "normal", "covariates": "none", "compliers": 0.4, "n": 5_000}
DID = {"units": 10_000, "treated": 0.5, "rho": 0.5, "outcome": "normal"}
RATE = {"events": "common", "treated": 0.5, "n": 5_000}
ABILITIES = {
    "dp_ate, clusters": (rows, {"kind": "clustered", "n": 8_000}),
    "dp_ate, units of several rows": (rows, {"kind": "repeated", "n": 20_000}),
    "dp_ate, weights": (rows, {"kind": "survey", "n": 10_000}),
    "dp_ate, missing outcomes": (rows, {"kind": "missing_outcomes", "n": 20_000}),
    "dp_cate, groups": (designs.groups, {"population": "linear", "n": 10_000}),
    "dp_late": (designs.late, LATE),
    "dp_did": (designs.did, DID),
    "dp_rate": (by_arm.rates, RATE),
    "dp_survival": (by_arm.survival, {"n": 5_000, "risk": 0.3}),
    "dp_qte": (by_arm.quantiles, {"outcome": "log-normal costs", "n": 10_000, "treated": 0.5}),
    "dp_ordinal, a trial": (by_arm.ordered, {"n": 5_000, "trial": True}),
    "dp_ordinal, a study": (by_arm.ordered, {"n": 20_000, "trial": False}),
    "dp_study, a trial": (studies.trial, {"kind": "rare", "n": 10_000, "outcomes": 4}),
    "dp_study, a study": (studies.adjusted, {"confounders": "confounded", "n": 20_000}),
    "dp_moments": (moments, {"kind": "confounded", "n": 20_000}),
    "dp_moments, an indicator": (moments, {"kind": "binary", "n": 20_000}),
}


def ask(people: int, ability: str, **more: Any) -> Asked:
    make, given = ABILITIES[ability]
    return make(people, **given)._replace(plain=None)


COLUMNS = {
    "covered": percent("covered"),
    "error over non-private": over("error", "plain"),
    "width over non-private": lambda x: round(x["width"].median() / x["plain width"].median(), 2),
}
TABLES = {
    "abilities": table(
        "Every ability: coverage and cost of privacy at epsilon 1",
        f"{SE} Intervals of `dp_study` hold for all outcomes at once, and cover more often each.",
        5,
        part("", ask, grid(ability=ABILITIES), COLUMNS, by=("term",), csv="abilities"),
    )
}
