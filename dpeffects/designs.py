"""Public functions for designs in which treatment itself was not assigned: instruments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from dpeffects.estimators import table_methods
from dpeffects.flow import Estimation, Request
from dpeffects.ledgers import Address
from dpeffects.privacy.ledger import Account
from dpeffects.results import LateEffect


def dp_late(
    formula: str,
    data: Any,
    *,
    instrument: str,
    epsilon: float,
    delta: float = 0.0,
    design: str = "observational",
    bounds: Any = None,
    shares: Mapping[str, float] | None = None,
    unit: str | None = None,
    max_rows: int | None = None,
    missing: str | Mapping[str, str] = "error",
    weights: str | None = None,
    subset: str | None = None,
    check_bounds: bool = False,
    ledger: Account | Address | None = None,
    dataset: str | None = None,
    seed: int | None = None,
    **options: Any,
) -> LateEffect:
    """Estimate the effect of a treatment among compliers, by an instrument (LATE, Wald).

    Compliers are those who take the treatment because of the instrument: because they were
    assigned to it, or encouraged. The estimate is the effect of the instrument on the outcome over
    its effect on treatment. It holds where the instrument is as good as random given the
    covariates, changes the outcome only through treatment, and makes nobody do the opposite.

    Parameters
    ----------
    formula
        ``"y ~ d"``, or ``"y ~ d | x1 + x2"``: outcome, treatment taken, covariates. Treatment is a
        column of 0 and 1, or a comparison, ``"y ~ I(visits > 0)"``.
    instrument
        The column of the instrument: 0 and 1, or two levels named in bounds, the reference first.
    design
        "observational" where the instrument is as good as random given the covariates, which are
        adjusted for; "randomised" where it was assigned by chance: then covariates make the
        interval shorter. Without covariates there is no difference.
    data, epsilon, delta, bounds, shares, ledger, dataset, seed
        As in :func:`dp_ate`. The range of the outcome must be declared.
    unit, max_rows, missing, weights, subset, check_bounds
        As in :func:`dp_ate`.
    **options
        Options of the method; ``print(dpe.methods("late"))`` describes them.

    Returns
    -------
    LateEffect
        The effect among compliers with an interval that also holds where the instrument is weak
        (Fieller), the first stage, the reduced form, and shares of those who always or never take
        the treatment.

    Examples
    --------
    >>> import dpeffects as dpe
    >>> import numpy as np, pandas as pd
    >>> rng = np.random.default_rng(1)
    >>> z, complier = rng.integers(0, 2, 5000), rng.random(5000) < 0.6
    >>> d = z * complier
    >>> y = np.clip(0.4 + 0.2 * d + 0.15 * rng.normal(size=5000), 0, 1)
    >>> trial = pd.DataFrame({"z": z, "d": d, "y": y})
    >>> fit = dpe.dp_late("y ~ d", trial, instrument="z", bounds={"y": (0, 1)}, epsilon=1, seed=1)
    >>> low, high = fit.conf_int()
    >>> low < 0.2 < high, fit.shape()
    (True, 'interval')
    """
    given = {**locals(), **options}
    del given["options"]
    request = Request.of_effect("LATE", method=table_methods()["late"], **given)
    return cast(LateEffect, Estimation(request).result())
