"""Simulation studies: methods x sample sizes x epsilons, repeated, in several processes.

Data comes from a simulator whose true effect is known. Every repeat draws data once for each sample
size and gives it to all fits, so fits are compared on the same data. Seeds depend on the study's
seed, the sample size and the repeat alone: neither the number of processes nor an interruption
changes a number. With ``path`` every finished batch is appended to a CSV file, and a study that is
started again goes on from there.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dpeffects.errors import OptionError
from dpeffects.results.export import frame_of
from dpeffects.study.file import append, on_file
from dpeffects.study.result import Study
from dpeffects.study.runs import COLUMNS, ESTIMATORS, Fit, Maker, Plan, batches_of, key_of, run


def simulate_study(
    fits: Mapping[str, Fit],
    data: Maker,
    *,
    n: int | Sequence[int],
    epsilon: float | Sequence[float],
    repeats: int = 100,
    formula: str | None = None,
    estimand: str = "ATE",
    conf_level: float = 0.95,
    seed: int = 0,
    workers: int = 1,
    path: str | Path | None = None,
    **options: Any,
) -> Study:
    """Repeat fits on simulated data, and measure their error and the coverage of their intervals.

    Parameters
    ----------
    fits
        Names with what to run: the arguments of :func:`dp_ate` as a dict (``{"method":
        "private_aipw", "delta": 1e-5}``), or a function ``fit(data, epsilon, seed)`` that returns
        a result, or just a number.
    data
        A simulator's name (see :func:`list_data`), or a function ``make(n, seed)`` that returns a
        frame with columns ``mu0`` and ``mu1``, the mean outcomes without and with treatment, or a
        pair of a frame and the true effect. ``options`` go to either.
    n, epsilon
        Sample sizes and budgets; every combination is run.
    repeats
        Number of data sets for each sample size.
    formula
        By default ``outcome ~ treatment |`` all other columns.
    estimand, conf_level
        "ATE", "ATT" or "ATC", and the level of the intervals.
    seed
        Of data and noise. Results of a study are simulated, so seeded noise gives nothing away.
    workers
        Number of processes; more than one needs joblib (``pip install joblib``).
    path
        A CSV file that finished runs are appended to, and read from when the study is started
        again.

    Returns
    -------
    Study

    Examples
    --------
    >>> study = simulate_study(
    ...     {"means": {"method": "diff_in_means"}}, "confounded", n=500, epsilon=1.0, repeats=4
    ... )
    >>> study.runs.shape
    (4, 12)
    >>> study.tidy()["runs"].tolist()
    [4]
    """
    plan = Plan(dict(fits), data, options, formula, estimand, conf_level, seed)
    sizes, epsilons = numbers("n", n, 4), numbers("epsilon", epsilon, 0.0)
    _check(plan, repeats, workers)
    known = on_file(path)
    batches = list(batches_of(plan, [int(x) for x in sizes], epsilons, repeats, known))
    rows = list(known)
    for done in run(batches, workers):
        rows += done
        if path is not None:
            append(path, done)
    wanted = set(itertools.product(plan.fits, map(int, sizes), epsilons, range(repeats)))
    kept = sorted(
        (row for row in rows if key_of(row) in wanted),
        key=lambda row: (list(plan.fits).index(row["fit"]), *key_of(row)[1:]),
    )
    return Study(frame_of(kept, COLUMNS), _called(data), estimand, conf_level, repeats, seed)


def _called(data: Maker) -> str:
    return data if isinstance(data, str) else getattr(data, "__name__", type(data).__name__)


def numbers(name: str, given: Any, least: float) -> list[Any]:
    """Return one number or several as a list of numbers above ``least`` (n: from it on)."""
    found = list(given) if isinstance(given, Sequence | np.ndarray) else [given]
    ok = found and all(
        isinstance(x, int | float | np.number) and not isinstance(x, bool) for x in found
    )
    if isinstance(given, str) or not ok or not all(least < x + (name == "n") for x in found):
        raise OptionError(f"{name} must be a positive number or several, got {given!r}")
    return [float(x) for x in found] if name == "epsilon" else [int(x) for x in found]


def _check(plan: Plan, repeats: int, workers: int) -> None:
    if not plan.fits:
        raise OptionError('give fits, for example {"means": {"method": "diff_in_means"}}')
    for name, fit in plan.fits.items():
        if not (isinstance(fit, Mapping) or callable(fit)):
            raise OptionError(f"fit {name!r} must be a dict of arguments or a function")
        if isinstance(fit, Mapping) and {"epsilon", "seed"} & set(fit):
            raise OptionError(f"fit {name!r}: epsilon and seed are set by the study")
    if plan.estimand not in ESTIMATORS:
        raise OptionError(f"estimand must be one of {', '.join(ESTIMATORS)}")
    checked(plan.seed, repeats=repeats, workers=workers)


def checked(seed: Any = 0, **counts: Any) -> None:
    """Refuse what is not a count, and a seed that is none."""
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise OptionError(f"seed must be a non-negative integer, got {seed!r}")
    for name, value in counts.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise OptionError(f"{name} must be a whole number of at least 1, got {value!r}")
