"""`dp_moments`: one noisy matrix of second moments, kept for regressions, effects and balance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from dpeffects.calls import OfUnits, public_call, released
from dpeffects.errors import OptionError
from dpeffects.estimators.kept_moments import TABLE
from dpeffects.formula.discrete import joined
from dpeffects.results.moments import Moments


class _OfMoments(OfUnits, total=False):
    design: str


@public_call(_OfMoments, options=False)
def dp_moments(
    formula: str,
    data: Any,
    *,
    subgroups: str | Sequence[str] = (),
    epsilon: float,
    **more: Unpack[_OfMoments],
) -> Moments:
    r"""Release second moments once, and analyse them often: regressions, effects, balance.

    Parameters
    ----------
    formula
        ``"y1 + y2 ~ treatment | x1 + x2 + region"``: all columns that analyses may have, each
        outcome and covariate on either side of a regression. Every column adds noise to all. With
        the square of an outcome, ``y1 + I(y1**2) ~ ...``, residuals need not have one variance.
    subgroups
        Factors with declared levels, ``["sex", "region"]``, by whose levels effects are wanted, by
        those of each of them by itself.
    bounds
        As in :func:`dp_ate`. Noise in products is proportional to the ranges of both columns.
    unit, max_rows
        As in :func:`dp_ate`. Where units have several rows, each row counts as a part of its unit,
        and standard errors are those of as many units: too long rather than too short.
    {shared}

    Returns
    -------
    Moments
        ``regression("y1 ~ treatment + x1")``, ``effect("y1 ~ treatment | x1")``, ``effects_by``,
        ``balance()`` follow from it and cost nothing; ``worth`` says how large the noise is. It is
        saved as JSON, and moments of several sites add up.

    Notes
    -----
    The noise is one matrix for all products. With five covariates and epsilon 1 it is about as
    large as the sampling error of an effect at n = 100,000, and three times as large in slopes of
    numbers; ``worth`` has the figures for a call. For one effect :func:`dp_ate` is much better.

    Examples
    --------
    >>> import dpeffects as dpe
    >>> data = dpe.simulate("cate_1", n=20_000, seed=1)
    >>> kept = dpe.dp_moments("outcome ~ treatment | x1 + x2", data, epsilon=4, seed=1)
    >>> kept.regression("outcome ~ treatment + x1").fit.names
    ('(Intercept)', 'treatment', 'x1')

    In a shell::

        dpeffects moments "cost + died ~ treated | age + sex + region" patients.csv \
            --subgroups sex --epsilon 1 --bounds bounds.toml --out moments.json
        dpeffects moments "y ~ treated | age" patients.csv --epsilon 1 --delta 1e-6 \
            --bounds bounds.toml --format html --out moments.html
    """
    given = dict(locals())
    factors = joined(given.pop("subgroups"), "subgroups", crossed=False) or None
    missing = more["missing"]
    if "available" in (missing.values() if isinstance(missing, Mapping) else [missing]):
        raise OptionError('missing="available" is for dp_study: write "complete"')
    if factors is not None and isinstance(formula, str):
        given["formula"] += f"{' +' if '|' in formula else ' |'} {factors}"
    return released(TABLE, given | {"factors": factors})
