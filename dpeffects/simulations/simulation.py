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

from dpeffects.errors import OptionError, checked_call
from dpeffects.estimands import AVERAGES
from dpeffects.estimators.option_checks import check_choice, check_whole
from dpeffects.results.export import frame_of
from dpeffects.simulations.file import on_file, run_batches
from dpeffects.simulations.result import Study
from dpeffects.simulations.runs import COLUMNS, Fit, Maker, StudyDesign, batches_of, key_of


@checked_call
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
        "auto", "delta": 1e-5}``), or a function ``fit(data, epsilon, seed)`` that returns
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
        Number of processes; more than one needs joblib (``pip install "dpeffects[study]"``).
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
    sizes, epsilons = numbers("n", n, 4), numbers("epsilon", epsilon, 0.0)
    _check_fits(fits)
    check_choice("estimand", estimand, AVERAGES)
    check_counts(repeats, workers, seed)
    design = StudyDesign(dict(fits), data, seed, estimand, conf_level, formula, options)
    known = on_file(path)
    batches = list(batches_of(design, sizes, epsilons, repeats, known))
    rows = run_batches(batches, known, workers, path)
    asked = set(itertools.product(design.fits, sizes, epsilons, range(repeats)))
    order = list(design.fits)
    kept = sorted(
        (row for row in rows if key_of(row) in asked),
        key=lambda row: (order.index(row["fit"]), *key_of(row)[1:]),
    )
    name = data if isinstance(data, str) else getattr(data, "__name__", type(data).__name__)
    return Study(frame_of(kept, COLUMNS), name, estimand, conf_level, repeats, seed)


def _check_fits(fits: Mapping[str, Fit]) -> None:
    if not fits:
        raise OptionError('give fits, for example {"means": {"method": "diff_in_means"}}')
    for name, fit in fits.items():
        if not (isinstance(fit, Mapping) or callable(fit)):
            raise OptionError(f"fit {name!r} must be a dict of arguments or a function")
        if isinstance(fit, Mapping) and {"epsilon", "seed"} & set(fit):
            raise OptionError(f"fit {name!r}: epsilon and seed are set by the study")


def check_counts(repeats: Any, workers: Any, seed: Any) -> None:
    """Refuse what is not a count, and a seed that is none."""
    check_whole("repeats", repeats, 1)
    check_whole("workers", workers, 1)
    check_whole("seed", seed, 0)


def numbers(name: str, given: Any, least: float) -> list[Any]:
    """Return one number or several as a list of numbers above ``least`` (n: from it on)."""
    values = list(given) if isinstance(given, Sequence | np.ndarray) else [given]
    ok = values and all(
        isinstance(x, int | float | np.number) and not isinstance(x, bool) for x in values
    )
    if isinstance(given, str) or not ok or not all(least < x + (name == "n") for x in values):
        raise OptionError(f"{name} must be a positive number or several, got {given!r}")
    return [float(x) for x in values] if name == "epsilon" else [int(x) for x in values]
