"""Public functions beyond averages: survival, quantiles, ordered levels, rates, a test for trials.

Each releases one table, or two sums, by a method of its own, and goes through `dpeffects.flow` as
all others do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from dpeffects.errors import checked_call
from dpeffects.estimators import table_methods
from dpeffects.flow import Estimation, Request
from dpeffects.ledgers import Address
from dpeffects.privacy.ledger import Account
from dpeffects.results import RandomisationTest


@checked_call
def dp_randomisation_test(
    formula: str,
    data: Any,
    *,
    epsilon: float,
    treated_share: float | None = None,
    treated: int | None = None,
    alternative: str = "two-sided",
    bounds: Any = None,
    shares: Mapping[str, float] | None = None,
    ledger: Account | Address | None = None,
    dataset: str | None = None,
    seed: int | None = None,
) -> RandomisationTest:
    """Test whether a randomised treatment changes anybody's outcome, which is 0 or 1.

    The p-value is exact in samples of any size, with any epsilon: it rests on the assignment of
    treatment and on the noise, whose laws are known, and on nothing else.

    Parameters
    ----------
    formula, data, epsilon, bounds, shares, ledger, dataset, seed
        As in :func:`dp_ate`. The outcome is 0 or 1 by its declaration: a boolean column, one with
        the bounds [0, 1], or a comparison, ``"I(weeks > 3) ~ t"``. No covariates are read.
    treated_share
        The chance with which each record was treated, independently of all others.
    treated
        Instead: how many records were treated, where that was fixed, or is public. The test is
        then conditional on it, and more powerful where the outcome is neither rare nor frequent.
    alternative
        "two-sided": treatment changes somebody's outcome; "greater": it raises somebody's; "less".

    Returns
    -------
    RandomisationTest

    Notes
    -----
    Two numbers are released: how many outcomes are 1, with a quarter of epsilon, and the sum of
    (t - p)(y - c). Under the null hypothesis their law is known but for the former, over which the
    p-value is maximised, within a confidence set (`dpeffects.inference.randomisation`). Persons
    with several rows, weights, subsets and missing values are refused, because the assignment of
    treatment is one of records: leave out rows first, where whether they are left out does not
    depend on anything that is private.

    Examples
    --------
    >>> import dpeffects as dpe
    >>> trial = dpe.load_data("lalonde")
    >>> found = dpe.dp_randomisation_test(
    ...     "I(earnings_1978 > 0) ~ treatment", trial, epsilon=1, treated=185, seed=1
    ... )
    >>> 0 < found.p_value < 1
    True
    """
    request = Request.of_effect("ATE", method=table_methods()["randomisation_test"], **locals())
    return cast(RandomisationTest, Estimation(request).result())
