"""k-anonymisation by microaggregation: what many data holders do instead, without any guarantee.

Covariates are the quasi-identifiers: records are put in groups of at least k that are near each
other (MDAV: Domingo-Ferrer and Torra 2005), and each record gets the mean covariates of its group.
Treatment and outcome are kept, as is the convention for what an analysis is about. Then an ordinary
effect estimate is computed from the anonymised table.

This is **not differential privacy**, for any k. Whoever knows all other records reads a record's
outcome from the estimate; groups themselves depend on all records; and outcomes in a group may be
all alike. The method is here to be compared with. It runs only with ``accept_none=True``, ignores
epsilon, charges nothing, and its results say so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dpeffects.arrays import BoolArray, FloatArray, IntArray
from dpeffects.errors import OptionError
from dpeffects.estimands import AVERAGES
from dpeffects.estimators.option_checks import check_clip, checked, choice, whole
from dpeffects.estimators.spec import NO_CONFOUNDER, MethodSpec, Options
from dpeffects.inference.estimate import Estimate, SamplingVariance
from dpeffects.privacy.curator import Curator
from dpeffects.replication.block_learner import ESTIMATOR_NAMES
from dpeffects.replication.sample_aggregate import on_all
from dpeffects.replication.unproved.sklearn_models import wrap_models
from dpeffects.replication.unproved.unproved_releases import unprotected

_LEAST_K = 2


@dataclass(frozen=True)
class KAnonymousOptions(Options):
    """Options of k-anonymisation.

    ``k``: the smallest size of a group. ``estimator``: "aipw", "ipw" or "regression".
    ``outcome``: a regressor with scikit-learn's fit and predict, or a classifier with predict_proba
    for a binary outcome; by default a light ridge regression. ``propensity``: a classifier with
    predict_proba; by default a light ridge logistic regression. ``clip``: propensities are kept
    within [clip, 1 - clip].
    """

    k: int = whole(5, _LEAST_K)
    estimator: str = choice(*ESTIMATOR_NAMES)
    outcome: Any = None
    propensity: Any = None
    clip: float = checked(0.05, check_clip)

    def public(self, level: str) -> frozenset[str]:
        """Everything: nothing is protected."""
        return frozenset({"covariates", "treatment", "outcome"})

    def needs_memory(self) -> str:
        """Groups are found among all rows."""
        return "groups of near records are found among all rows"

    def __post_init__(self) -> None:
        super().__post_init__()
        wrap_models(self)

    def check(self, n: int, smallest_arm: int | None, arms: int = 2) -> None:
        """Refuse groups larger than the data."""
        if n < self.k:
            raise OptionError(f"k = {self.k} for {n} records: take a smaller k")


def microaggregate(rows: FloatArray, k: int) -> IntArray:
    """Return a group for each row: MDAV, groups of k to 2k - 1 rows.

    The row farthest from the mean and the row farthest from that one get their k - 1 nearest, until
    fewer than 2k rows are left, which are one group. The time is quadratic in the number of rows.

    Examples
    --------
    >>> microaggregate(np.array([[0.0], [0.1], [0.9], [1.0], [0.95]]), 2).tolist()
    [0, 0, 1, 1, 1]
    """
    group = np.full(len(rows), -1, dtype=np.int64)
    left, made = np.arange(len(rows)), 0
    while len(left) >= 2 * k:
        far = rows[left[_distance(rows[left], rows[left].mean(axis=0)).argmax()]]
        opposite = rows[left[_distance(rows[left], far).argmax()]]
        for centre in (far, opposite):
            if len(left) >= 2 * k:  # else what is left is one group
                near = np.argsort(_distance(rows[left], centre), kind="stable")[:k]
                group[left[near]] = made
                left, made = np.delete(left, near), made + 1
    group[left] = made
    return group


def _distance(rows: FloatArray, centre: FloatArray) -> FloatArray:
    return np.asarray(((rows - centre) ** 2).sum(axis=1))


def anonymised(rows: FloatArray, k: int) -> FloatArray:
    """Rows replaced by the means of their groups, on columns scaled to the same spread."""
    spread = rows.std(axis=0)
    group = microaggregate(rows / np.where(spread > 0.0, spread, 1.0), k)
    sums = np.zeros((group.max() + 1, rows.shape[1]))
    np.add.at(sums, group, rows)
    return np.asarray((sums / np.bincount(group)[:, None])[group])


def budget_split(level: str, options: KAnonymousOptions) -> dict[str, float]:
    """Nothing is charged."""
    return {"estimate": 1.0}


def fit(curator: Curator, options: KAnonymousOptions, estimand: str) -> Estimate:
    """Estimate from the anonymised table, without noise."""

    def answer(rows: FloatArray, treated: BoolArray, outcome: FloatArray) -> tuple[float, float]:
        kept = ("estimator", "outcome", "propensity", "clip")
        given = {name: getattr(options, name) for name in kept}
        return on_all(outcome, treated, anonymised(rows, options.k), estimand=estimand, **given)

    value, error = unprotected(curator, answer)
    return Estimate(
        value=value,
        sampling=SamplingVariance(error**2, 0.0, error**2),
        notes=(NONE.format(k=options.k),),
    )


NONE = (
    "Covariates were averaged in groups of {k} records or more; treatment and outcome were kept. "
    "epsilon was not used: nothing was released under differential privacy."
)


SPEC = MethodSpec(
    name="k_anonymous",
    title="k-anonymised covariates",
    about="microaggregation: covariates averaged in groups of k records; no differential privacy",
    assumes=f"{NO_CONFOUNDER}; similar records have similar outcomes",
    estimands=AVERAGES,
    levels=("none",),
    options=KAnonymousOptions,
    budget_split=budget_split,
    fit=fit,
    citation=(
        "Domingo-Ferrer and Torra (2005), Ordinal, continuous and heterogeneous k-anonymity "
        "through microaggregation."
    ),
    guarantee="none",
)
