"""Data sets with declared bounds, and simulators of known effects."""

from __future__ import annotations

import inspect
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import numpy as np

from dpeffects.datasets import bundled, ihdp, optional, simulators
from dpeffects.datasets.info import DataInfo, Dataset, Simulator
from dpeffects.design.bounds import Declared
from dpeffects.errors import DataError, OptionError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["DataInfo", "data_info", "list_data", "load_data", "simulate"]

_DATASETS: dict[str, Dataset] = {
    entry.info.name: entry for entry in (*bundled.DATASETS, *ihdp.DATASETS, *optional.DATASETS)
}
_SIMULATORS: dict[str, Simulator] = {
    entry.info.name: entry for entry in (*simulators.SIMULATORS, *ihdp.SIMULATORS)
}
_INFOS: dict[str, DataInfo] = {
    **{name: entry.info for name, entry in _DATASETS.items()},
    **{name: entry.info for name, entry in _SIMULATORS.items()},
}


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
    if name in _SIMULATORS:
        raise DataError(f"{name!r} is simulated: use simulate({name!r})")
    if name not in _DATASETS:
        raise _unknown(name, list(_DATASETS))
    return _DATASETS[name].load()


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
    if name in _DATASETS:
        raise DataError(f"{name!r} is not simulated: use load_data({name!r})")
    if name not in _SIMULATORS:
        raise _unknown(name, list(_SIMULATORS))
    simulator = _SIMULATORS[name]
    rows = simulator.info.rows if n is None else n
    _check_whole("n", rows, 2)
    _check_whole("seed", seed, 0)
    known = [
        option.name
        for option in inspect.signature(simulator.draw).parameters.values()
        if option.kind is option.KEYWORD_ONLY
    ]
    for option in options:
        if option not in known:
            takes = ", ".join(known) or "no options"
            raise OptionError(f"simulate({name!r}) has no option {option!r}; it takes {takes}")
    return simulator.draw(np.random.default_rng(seed), rows, **options)


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
    if name not in _INFOS:
        raise _unknown(name, list(_INFOS))
    return _INFOS[name]


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
        for info in _INFOS.values()
    ]
    return pd.DataFrame(rows)


def _check_whole(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise OptionError(f"{name} must be a whole number of at least {least}, got {value!r}")


def _unknown(name: Any, names: list[str]) -> DataError:
    close = get_close_matches(str(name), names, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return DataError(f"there is no data set {name!r}.{hint} The names are {', '.join(names)}.")
