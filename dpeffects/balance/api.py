"""dp_balance: do the arms overlap, and are their covariates balanced? Without a look at outcomes.

1. Counts, sums and squares of the covariates by arm (share "balance").
2. A propensity model with noise in its objective (share "propensity").
3. A histogram of its scores by arm (share "overlap").
4. The sums again, weighted by inverse propensities (share "adjusted"), where it pays.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from dpeffects.balance.smd import Differences, differences
from dpeffects.call import Ask, Call, refuse_tables
from dpeffects.design import read as design
from dpeffects.errors import OptionError
from dpeffects.estimators._plan import weight_noise
from dpeffects.estimators.spec import Facts
from dpeffects.formula import parse
from dpeffects.formula.expression import Number, source
from dpeffects.ledgers import Address
from dpeffects.privacy.budget import Budget
from dpeffects.privacy.curator import Curator
from dpeffects.privacy.erm import default_strength, unit_norm
from dpeffects.privacy.ledger import Account
from dpeffects.privacy.noise import LEAST_DELTA, gaussian_scale
from dpeffects.privacy.weighting import Propensity, limits
from dpeffects.results import Balance

FloatArray = npt.NDArray[np.float64]

_SHARES = {"balance": 0.35, "propensity": 0.25, "overlap": 0.1, "adjusted": 0.3}
_WORTH = 0.1
"""Weighting is shown by default where noise moves a difference by less than this."""
_USUAL_WEIGHT, _USUAL_SD = 0.4, 0.58
"""Mean weight over the largest, and spread of a covariate on [-1, 1], that a plan assumes."""
_MOST_BINS = 200


@dataclass(frozen=True)
class BalanceOptions:
    """What a user may choose, checked where it is made."""

    estimand: str
    adjusted: bool | None
    clip: float
    bins: int

    def __post_init__(self) -> None:
        if not isinstance(self.estimand, str) or self.estimand not in ("ATE", "ATT", "ATC"):
            raise OptionError(f"estimand must be ATE, ATT or ATC, got {self.estimand!r}")
        if self.adjusted is not None and not isinstance(self.adjusted, bool):
            raise OptionError(f"adjusted must be True, False or None, got {self.adjusted!r}")
        number = isinstance(self.clip, int | float) and not isinstance(self.clip, bool)
        if not number or not 0.0 < self.clip < 0.5:
            raise OptionError(f"clip must be between 0 and 0.5, got {self.clip!r}")
        whole = isinstance(self.bins, int) and not isinstance(self.bins, bool)
        if not whole or not 2 <= self.bins <= _MOST_BINS:
            raise OptionError(f"bins must be a whole number from 2 to {_MOST_BINS}")

    def shares(self) -> dict[str, float]:
        """Split of the budget; what weighting would cost goes to the others without it."""
        return {k: v for k, v in _SHARES.items() if self.adjusted or k != "adjusted"}


def dp_balance(
    formula: str,
    data: Any,
    *,
    epsilon: float,
    delta: float = 0.0,
    estimand: str = "ATE",
    bounds: Mapping[str, Any] | str | None = None,
    shares: Mapping[str, float] | None = None,
    ledger: Account | Address | None = None,
    dataset: str | None = None,
    seed: int | None = None,
    adjusted: bool | None = None,
    clip: float = 0.1,
    bins: int = 20,
) -> Balance:
    """Release how well two arms overlap and how their covariates are balanced.

    Parameters
    ----------
    formula, data, epsilon, delta, bounds, shares, ledger, dataset, seed
        As in :func:`dp_ate`. The outcome is not read: it may be missing from the data.
    estimand
        "ATE", "ATT" or "ATC": which weights the adjusted differences have.
    adjusted
        Whether balance after weighting is released too; None does so where n, the number of
        covariates and epsilon promise noise below 0.1 in it.
    clip
        Propensities are kept within [clip, 1 - clip] in the weights.
    bins
        Bins of the histogram of scores.

    Returns
    -------
    Balance

    Examples
    --------
    >>> import dpeffects as dpe
    >>> data = dpe.simulate("confounded", n=5000, seed=1)
    >>> found = dpe.dp_balance("outcome ~ treatment | x1 + x2", data, epsilon=2, seed=1)
    >>> found.tidy()["term"].tolist(), found.guarantee.status
    (['x1', 'x2'], 'void: seeded')
    """
    refuse_tables(epsilon=epsilon, delta=delta, seed=seed, dataset=dataset)
    refuse_tables(estimand=estimand, adjusted=adjusted, clip=clip, bins=bins)
    options = BalanceOptions(estimand, adjusted, clip, bins)
    parsed = parse(formula)
    if not parsed.has_covariates:
        y, t = source(parsed.outcome), parsed.treatment_column
        raise OptionError(f'balance needs covariates: write "{y} ~ {t} | x1 + x2"')
    # no outcome is read, and the intercept is what the other columns are centred around
    parsed = replace(parsed, outcome=Number(0.0), intercept=True)
    ask = Ask(Budget(epsilon, delta), bounds, shares, True, ledger, seed, dataset)
    with Call(parsed, ask, "sample", frozenset(), "dp_balance") as call:
        design.require_covariates(call.read(data), parsed)
        options = _settled(options, call.facts())
        curator = call.curator(options.shares())
        found = _released(curator, options)
    about = call.record("exact") | {"outcome": ""}
    return Balance(
        estimand=estimand,
        method="dp_balance",
        method_title="overlap and balance",
        terms=design.names(parsed, call.bounds)[1:],
        options={"adjusted": options.adjusted, "clip": clip, "bins": bins},
        notes=call.budget_notes(),
        **found,
        **about,
    )


def _settled(options: BalanceOptions, facts: Facts) -> BalanceOptions:
    """Decide from public numbers whether weighting is worth its price."""
    if options.adjusted is not None:
        return options
    m, price = facts.width - 1, _SHARES["adjusted"]
    epsilon, delta = price * facts.budget.epsilon, price * facts.budget.delta
    sd = math.sqrt(2.0) * 2.0 * (1 + m) / epsilon
    if delta > LEAST_DELTA:
        sd = min(sd, gaussian_scale(math.sqrt(max(4 * m, 2 + 2 * m)), epsilon, delta, 2 + 2 * m))
    noise = math.sqrt(2.0) * sd / (_USUAL_WEIGHT * facts.n / 2.0) / _USUAL_SD
    return replace(options, adjusted=noise < _WORTH)


def _released(curator: Curator, options: BalanceOptions) -> dict[str, Any]:
    """Ask the curator; everything after a release is post-processing."""
    covariates = curator.arm_covariates("balance")
    first = differences(covariates, None, curator.n)
    offset = _log_odds(first, curator.n)
    epsilon, delta = curator.epsilon("propensity"), curator.delta("propensity")
    strength = default_strength(curator.n, curator.width, epsilon, delta)
    model = curator.propensity_model(strength, offset, "propensity").value
    edges = np.linspace(0.0, 1.0, options.bins + 1)
    on_rows = np.concatenate([[offset - 0.5 * model[1:].sum() / unit_norm(model.size)], _on(model)])
    counts = curator.block_counts("histogram of scores", on_rows, edges[1:-1], "overlap")
    found = first
    if options.adjusted:
        within = Propensity.within(model, offset, limits(options.estimand, options.clip))
        weighted = curator.weighted_covariates(within, options.estimand, "adjusted")
        found = differences(covariates, weighted, curator.n)
    return {
        "smd": tuple(found.raw.tolist()),
        "noise_sd": tuple(found.raw_sd.tolist()),
        "smd_adjusted": tuple(found.adjusted.tolist()) if options.adjusted else (),
        "noise_sd_adjusted": tuple(found.adjusted_sd.tolist()) if options.adjusted else (),
        "edges": tuple(edges.tolist()),
        "counts": tuple(tuple(arm) for arm in counts.value.tolist()),
        "count_sd": math.sqrt(counts.variance),
        "treated": found.treated,
        "model_noise": _model_noise(model, curator, found),
    }


def _on(model: FloatArray) -> FloatArray:
    """Weights on rows of norm at most 1, as weights on rows in [0, 1]."""
    return np.asarray(model / unit_norm(model.size))


def _log_odds(found: Differences, n: int) -> float:
    """Log odds of treatment, kept away from the ends by the noise in the count."""
    treated, sd = found.treated
    least = min(max(sd, 1.0) / n, 0.5)
    share = min(max(treated / n, least), 1.0 - least)
    return math.log(share / (1.0 - share))


def _model_noise(model: FloatArray, curator: Curator, found: Differences) -> float:
    """Expected share of noise in the slopes of the propensity model.

    It is 1 where noise alone gives slopes of that size in one of twenty cases.
    """
    n, d = curator.n, curator.width
    epsilon, delta = curator.epsilon("propensity"), curator.delta("propensity")
    spread = min(max(found.spread, 1e-4), 0.25)
    noise = weight_noise(n, d, epsilon, delta, spread)[0] ** 2 * (d - 1)
    size = float(np.sum(model[1:] ** 2))
    tail = 1.0 + 1.64 * math.sqrt(5.0 / (d - 1))  # squares of Laplace noise vary by sqrt(5)
    return noise / size if size > tail * noise else 1.0
