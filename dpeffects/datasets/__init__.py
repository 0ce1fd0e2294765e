"""Data sets with declared bounds, and simulators of known effects."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dpeffects.datasets.descriptions import DataInfo, catalogue
from dpeffects.datasets.loaders import load
from dpeffects.datasets.simulators import SIMULATORS
from dpeffects.design.bounds import Declared
from dpeffects.errors import DataError, OptionError, checked_call, did_you_mean

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["DataInfo", "data_info", "list_data", "load_data", "simulate"]


@checked_call
def load_data(name: str) -> Declared:
    """Load a data set together with the declared bounds of all its columns.

    Parameters
    ----------
    name
        One of the names that :func:`list_data` shows as bundled or optional.

    Returns
    -------
    Declared
        A pandas frame in ``.frame`` and its bounds in ``.bounds``.

    Examples
    --------
    >>> from dpeffects.datasets import load_data
    >>> lalonde = load_data("lalonde")
    >>> lalonde.frame.shape
    (445, 10)
    >>> lalonde.bounds["earnings_1978"]
    (0.0, 40000.0)
    """
    if name in SIMULATORS:
        raise DataError(f"{name!r} is simulated: use simulate({name!r})")
    _require_known(name, [other for other in catalogue() if other not in SIMULATORS])
    return load(name)


@checked_call
def simulate(name: str, n: int | None = None, seed: int = 0, **options: Any) -> Declared:
    """Simulate data with a known effect, together with the declared bounds of all its columns.

    Parameters
    ----------
    name
        One of the names that :func:`list_data` shows as simulators.
    n
        Number of rows; by default that of ``data_info(name).rows``.
    seed
        The same seed gives the same frame.
    **options
        Options of the simulator, for example ``effect=0.2``; ``data_info(name)`` describes them.

    Returns
    -------
    Declared
        A pandas frame in ``.frame`` and its bounds in ``.bounds``. The columns ``mu0`` and ``mu1``
        hold the true mean of each row without and with treatment.

    Examples
    --------
    >>> from dpeffects.datasets import simulate
    >>> frame = simulate("confounded", n=500, seed=1, effect=0.05).frame
    >>> print(round((frame.mu1 - frame.mu0).mean(), 3))
    0.05
    """
    if name in catalogue() and name not in SIMULATORS:
        raise DataError(f"{name!r} is not simulated: use load_data({name!r})")
    _require_known(name, list(SIMULATORS))
    rows = catalogue()[name].info.rows if n is None else n
    for argument, value, least in (("n", rows, 2), ("seed", seed, 0)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
            raise OptionError(
                f"{argument} must be a whole number of at least {least}, got {value!r}"
            )
    parameters = inspect.signature(SIMULATORS[name]).parameters.values()
    known = [option.name for option in parameters if option.kind is option.KEYWORD_ONLY]
    for option in options:
        if option not in known:
            takes = ", ".join(("n", "seed", *known))
            hint = did_you_mean(option, ("n", "seed", *known))
            raise OptionError(f"simulate({name!r}) has no option {option!r}, only {takes}.{hint}")
    return SIMULATORS[name](np.random.default_rng(seed), rows, **options)


def data_info(name: str) -> DataInfo:
    """Return the facts about a data set or simulator: size, formula, provenance, licence.

    Parameters
    ----------
    name
        One of the names that :func:`list_data` shows.

    Returns
    -------
    DataInfo
        Print it to read it.

    Examples
    --------
    >>> from dpeffects.datasets import data_info
    >>> info = data_info("birthweight")
    >>> info.rows, info.licence
    (4642, 'BSD-3-Clause')
    >>> info.formula
    'outcome ~ treatment | prenatal_first_trimester + married + mage + first_baby + medu'
    """
    _require_known(name, list(catalogue()))
    return catalogue()[name].info


def list_data() -> pd.DataFrame:
    """Return one row per data set and simulator.

    Returns
    -------
    pandas.DataFrame
        Columns name, kind, title, rows, outcome, treatment, covariates (their number), formula
        and licence.

    Examples
    --------
    >>> from dpeffects.datasets import list_data
    >>> list_data().query("kind == 'bundled'")["name"].tolist()
    ['lalonde', 'lalonde_cps', 'birthweight', 'ist', 'ihdp', 'ihdp_trial']
    """
    import pandas as pd

    fields = ("name", "kind", "title", "rows", "outcome", "treatment")
    rows = [
        {field: getattr(info, field) for field in fields}
        | {"covariates": len(info.covariates), "formula": info.formula, "licence": info.licence}
        for info in (record.info for record in catalogue().values())
    ]
    return pd.DataFrame(rows)


def _require_known(name: Any, names: list[str]) -> None:
    if name not in names:
        hint = did_you_mean(name, names)
        if Path(str(name)).suffix:
            hint = " A file of your own is read by pandas.read_csv(...)."
        raise DataError(f"there is no data set {name!r}.{hint} The names are {', '.join(names)}.")
