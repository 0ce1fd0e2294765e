"""A tighter epsilon for many charges than their sum (extra ``accounting``)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from fractions import Fraction
from functools import reduce
from typing import Any

from dpeffects.errors import BudgetError, MissingExtraError, refusal
from dpeffects.ledgers.agreement import payments, price_of
from dpeffects.ledgers.composition import Concentrated, epsilon_of_rho, gaussian_rho
from dpeffects.ledgers.entry import NONE, Cost, LedgerEntry
from dpeffects.privacy.budget import round_up
from dpeffects.privacy.charges import Charge

_GRID = 2e-5
"""Privacy losses are rounded up to this part of the plain sum of epsilons."""
_SLACK = 2e-5
"""Epsilon for each Gaussian charge, because its noise is discrete (claim 4, 1e5 entries)."""
_MOST_PRICES = 100
"""Beyond this many different prices, they are rounded up by at most 1 %."""


def tight_epsilon(entries: Iterable[LedgerEntry], delta: float) -> float:
    """Return an epsilon such that all charges together are (epsilon, delta)-private (claim L3).

    The least of three bounds: the plain sum, concentrated privacy, and privacy-loss distributions
    composed by ``dp-accounting``. Composable Gaussian draws enter with their sensitivity and
    scale, everything else by its price: parts of one price together, and Laplace draws too,
    because their noise is discrete and on vectors, and a small pure price loses almost nothing.

    The last two hold where budgets were planned, or chosen without looking at earlier results.
    For budgets chosen after looking, a bound has to be fixed beforehand: that is what
    ``create_ledger(..., composition="zcdp")`` does, and privacy-loss distributions of an adaptive
    sequence have no such theorem. So this number is reported and never used to allow a charge.
    """
    if not 0 <= delta < 1:
        raise BudgetError(f"delta must be in [0, 1), got {delta!r}")
    gaussian, prices = _events(entries)
    total = reduce(Cost.plus, [*map(price_of, gaussian), *prices], NONE)
    plain = round_up(total.first) if total.delta <= Fraction(delta) else math.inf
    others = (_concentrated, _by_distributions) if delta > 0 else ()
    return min([plain, *(bound(gaussian, prices, delta) for bound in others)])


def _events(entries: Iterable[LedgerEntry]) -> tuple[list[Charge], list[Cost]]:
    """Divide charges into Gaussian draws and prices; parts of a call's price are added up.

    So is the rest of its budget, which the call has paid and drawn nothing for.
    """
    gaussian: list[Charge] = []
    prices: list[Cost] = []
    noncomposable: dict[int, Cost] = {}
    for entry in entries:
        for charge in payments(entry):
            if gaussian_rho(charge) is not None:
                gaussian.append(charge)
            elif charge.alone:
                prices.append(price_of(charge))
            else:
                before = noncomposable.get(entry.call, NONE)
                noncomposable[entry.call] = before.plus(price_of(charge))
    return gaussian, [*prices, *noncomposable.values()]


def _concentrated(gaussian: list[Charge], prices: list[Cost], delta: float) -> float:
    rule = Concentrated()
    costs = [rule.of_charge(charge, Fraction(0)) for charge in gaussian]
    cost = reduce(Cost.plus, [*costs, *(rule.of_call(*price) for price in prices)], NONE)
    rest = Fraction(delta) - cost.delta
    return epsilon_of_rho(round_up(cost.first), float(rest) * (1 - 1e-12)) if rest > 0 else math.inf


def _by_distributions(gaussian: list[Charge], prices: list[Cost], delta: float) -> float:
    """Compose privacy-loss distributions; independent Gaussian draws are one Gaussian draw."""
    library, parameters = _library()
    total = sum(s.epsilon for s in gaussian) + float(sum(p[0] for p in prices))
    step = max(_GRID * total, 1e-12)
    parts = []
    rho = sum((gaussian_rho(s) or Fraction(0) for s in gaussian), Fraction(0))
    if rho > 0:
        scale = 1.0 / math.sqrt(2.0 * float(rho)) * (1.0 - 1e-12)
        parts.append(library.from_gaussian_mechanism(scale, value_discretization_interval=step))
    for (epsilon, paid), count in Counter(_rounded(prices)).items():
        one = library.from_privacy_parameters(parameters(epsilon, paid), step)
        parts.append(one.self_compose(count) if count > 1 else one)
    if not parts:
        return 0.0
    whole = reduce(lambda one, other: one.compose(other), parts)
    slack = _SLACK * len(gaussian)
    return float(whole.get_epsilon_for_delta(delta * math.exp(-slack) * (1.0 - 1e-5))) + slack


def _rounded(prices: list[Cost]) -> list[tuple[float, float]]:
    """Prices as floats, rounded up, to few different ones."""
    rounded = [price.above() for price in prices]
    if len(set(rounded)) <= _MOST_PRICES:
        return rounded

    def coarse(value: float) -> float:
        ratio = 1.01
        return ratio ** math.ceil(math.log(value) / math.log(ratio)) * (1 + 1e-9) if value else 0.0

    return [(max(x, coarse(x)), max(d, coarse(d))) for x, d in rounded]


def _library() -> tuple[Any, Any]:
    try:
        from dp_accounting.pld import privacy_loss_distribution
        from dp_accounting.pld.common import DifferentialPrivacyParameters
    except ModuleNotFoundError as error:
        raise MissingExtraError(refusal("tighter_extra")) from error
    return privacy_loss_distribution, DifferentialPrivacyParameters
