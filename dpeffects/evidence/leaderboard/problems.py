"""The data of the leaderboard: each draws samples whose true effect is known.

Real data is taken as a population: a sample is drawn from its rows with replacement, and the truth
is the effect in the file, so that the coverage of an interval means something. In a trial that
effect is the difference in means, in observational data it is what AIPW gives without privacy; both
are of outcomes clipped to their declared range. Simulated data brings its truth along.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np

from dpeffects.datasets import data_info, load_data, simulate
from dpeffects.design.bounds import DeclaredFrame, declare
from dpeffects.design.table_reader import read
from dpeffects.errors import DPEffectsError
from dpeffects.evidence.simulations.nonprivate import reference
from dpeffects.formula import parse
from dpeffects.privacy.rows import Rows
from dpeffects.replication.sample_aggregate import on_all


@dataclass(frozen=True)
class Task:
    """One data set of the leaderboard.

    Parameters
    ----------
    name
        Its name.
    n
        Size of a sample.
    formula
        With all covariates.
    make
        ``make(n, seed)`` returns a sample with declared bounds, and the true effect.
    strata
        A formula whose covariates are few and discrete, for methods that match on strata; empty
        where there is none.
    randomised
        Whether treatment was randomised.
    """

    name: str
    n: int
    formula: str
    make: Callable[[int, int], tuple[Any, float]]
    strata: str = ""
    randomised: bool = False

    @property
    def covariates(self) -> bool:
        """Whether there are any."""
        return "|" in self.formula


@cache
def _population(name: str, randomised: bool) -> tuple[DeclaredFrame, float]:
    """Return a data set and the effect in it."""
    data, info = load_data(name), data_info(name)
    if {"mu0", "mu1"} <= set(data.frame.columns):
        return data, _known(data)
    return data, (unadjusted if randomised else adjusted)(info.formula, data)


def unadjusted(formula: str, data: Any, *_: Any) -> float:
    """Return the difference in means of outcomes within the declared range."""
    return float(reference(formula, data, "diff_in_means").estimate)


def adjusted(formula: str, data: Any, *_: Any) -> float:
    """Return AIPW by light ridge models of all records: a level without rows does not stop it."""
    rows = read(data, parse(formula), None, ("outcome", "covariates", "treatment")).encode()
    assert isinstance(rows, Rows)
    return on_all(rows.outcome, rows.treated, rows.covariates())[0]


def _known(data: DeclaredFrame) -> float:
    return float(np.mean(data.frame["mu1"] - data.frame["mu0"]))


def _drawn(name: str, randomised: bool, n: int, seed: int) -> tuple[DeclaredFrame, float]:
    """Draw n rows of a data set with replacement."""
    data, truth = _population(name, randomised)
    rows = np.random.default_rng(seed).integers(len(data.frame), size=n)
    return declare(data.frame.iloc[rows].reset_index(drop=True), data.bounds), truth


def _simulated(name: str, n: int, seed: int) -> tuple[DeclaredFrame, float]:
    data = simulate(name, n=n, seed=seed)
    return data, _known(data)


def _in_one_stratum(n: int, seed: int) -> tuple[DeclaredFrame, float]:
    """Draw from the stroke trial, with a covariate that is the same for everybody."""
    data, truth = _drawn("ist", True, n, seed)
    return declare(data.frame.assign(everybody=0), {**data.bounds, "everybody": [0, 1]}), truth


def _task(name: str, make: Callable[..., Any], strata: str = "", *, trial: bool = False) -> Task:
    info = data_info(name)
    return Task(name, info.rows, info.formula, make, strata, trial)


def _indicators(*names: str) -> str:
    return " + ".join(f"C({name}, levels=[0, 1])" for name in names)


_LALONDE = f"earnings_1978 ~ treatment | {_indicators('black', 'married', 'no_degree')}"
_BIRTHS = (
    f"outcome ~ treatment | {_indicators('prenatal_first_trimester', 'married', 'first_baby')}"
    " + cut(mage, [12, 20, 30, 50])"
)
_IST = "stroke_14_days ~ treatment | everybody"


@cache
def tasks() -> dict[str, Task]:
    """Return the data of the leaderboard by name; ACIC 2016 only where the extra "data" is there.

    Examples
    --------
    >>> tasks()["lalonde"].n
    445
    """
    listed = [
        _task("lalonde", partial(_drawn, "lalonde", True), _LALONDE, trial=True),
        *(_task(name, partial(_simulated, name)) for name in ("ihdp_a", "ihdp_b", "private_psm")),
        _task("birthweight", partial(_drawn, "birthweight", False), _BIRTHS),
        *(
            [_task("acic2016", partial(_drawn, "acic2016", False))]
            if _installed("acic2016")
            else []
        ),
        _task("ist", _in_one_stratum, _IST, trial=True),
        _task("confounded", partial(_simulated, "confounded")),
    ]
    return {task.name: task for task in listed}


def _installed(name: str) -> bool:
    try:
        load_data(name)
    except DPEffectsError:
        return False
    return True
