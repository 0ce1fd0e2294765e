"""How charges add up against what a dataset allows: plain sums, or concentrated privacy.

A composition turns a charge, and the whole budget of a call before anything is known of its
charges, into a cost; the costs of a call's charges never sum to more than that of its budget.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from dpeffects.errors import BudgetError, OptionError, not_among, refusal
from dpeffects.ledgers.entry import Cost
from dpeffects.privacy.budget import Budget, as_written, round_down, round_up, written_below
from dpeffects.privacy.charges import Charge

_WIDER = 1 + Fraction(1, 2**40)
"""Covers the rounding of a sensitivity and a scale that are stored as floats."""


class Composition:
    """Epsilons and deltas add up (claim 1)."""

    name = "sum"
    unit = "epsilon"

    def limits(self, budget: Budget) -> Cost:
        """Return the largest total cost that keeps within the budget."""
        return Cost(*budget.exact)

    def of_call(self, epsilon: Fraction, delta: Fraction) -> Cost:
        """Return a cost that covers every call with this budget."""
        return Cost(epsilon, delta)

    def of_charge(self, charge: Charge, noncomposable_epsilon: Fraction) -> Cost:
        """Return the cost of a charge.

        ``noncomposable_epsilon`` is the epsilon of the charges before it, in the same call, that
        are part of a larger price.
        """
        return Cost(Fraction(charge.epsilon), Fraction(charge.delta))

    def largest_call(self, left: Cost) -> tuple[float, float]:
        """Return epsilon and delta, rounded down, of the largest call that this much covers."""
        return shown(left.first), shown(left.delta)


class Concentrated(Composition):
    """Rhos of zero-concentrated privacy add up, also where later calls depend on earlier ones.

    A charge (epsilon, delta) costs rho = epsilon^2 / 2 and delta; a Gaussian draw that stands
    alone costs half the square of sensitivity over scale, and no delta: its price holds only
    together with those of its call's other Gaussian draws. Half of the delta allowed covers the
    deltas, the other half turns the total rho to epsilon (claim L2).
    """

    name = "zcdp"
    unit = "rho"

    def limits(self, budget: Budget) -> Cost:
        """Return the largest rho, and half the delta."""
        if not budget.delta > 0:
            raise BudgetError('composition="zcdp" needs a delta, for example delta=1e-5')
        half = as_written(budget.delta) / 2
        return Cost(Fraction(largest_rho(budget.epsilon, round_down(half))), half)

    def of_call(self, epsilon: Fraction, delta: Fraction) -> Cost:
        """Return rho = epsilon^2 / 2, and delta."""
        return Cost(epsilon**2 / 2, delta)

    def of_charge(self, charge: Charge, noncomposable_epsilon: Fraction) -> Cost:
        """Return the rho of a charge; parts of one price are squared together."""
        epsilon, delta = Fraction(charge.epsilon), Fraction(charge.delta)
        if not charge.alone:
            together = noncomposable_epsilon + epsilon
            return Cost((together**2 - noncomposable_epsilon**2) / 2, delta)
        rho = gaussian_rho(charge)
        return Cost(epsilon**2 / 2, delta) if rho is None else Cost(rho, Fraction(0))

    def largest_call(self, left: Cost) -> tuple[float, float]:
        """Return the epsilon whose half square is left, and delta, rounded down."""
        epsilon = math.sqrt(2.0 * max(round_down(left.first), 0.0))
        while Fraction(epsilon) ** 2 / 2 > left.first and epsilon > 0:
            epsilon = math.nextafter(epsilon, 0.0)
        return shown(Fraction(epsilon)), shown(left.delta)


def gaussian_rho(charge: Charge) -> Fraction | None:
    """Return the rho of a composable Gaussian draw, rounded up; None for other charges."""
    if not (charge.alone and charge.mechanism == "discrete Gaussian"):
        return None
    if len(charge.sensitivity) != 1 or len(charge.scale) != 1:
        return None
    sensitivity, scale = charge.sensitivity[0], charge.scale[0]
    if not (0 < sensitivity < 1e6 * scale and scale < math.inf):
        return None
    return Fraction(round_up((Fraction(sensitivity) / Fraction(scale)) ** 2 / 2 * _WIDER))


def largest_rho(epsilon: float, delta: float) -> float:
    """Return a rho, close to the largest, whose concentrated privacy implies (epsilon, delta).

    Examples
    --------
    >>> round(largest_rho(3.0, 5e-6), 2)
    0.21
    """
    most = math.log(delta)
    low, _ = _bisected(lambda rho: log_delta(rho, epsilon) <= most, 0.0, epsilon + 1.0)
    if not low > 0:
        raise BudgetError(refusal("epsilon_delta_too", epsilon=epsilon, delta=delta))
    return low


def log_delta(rho: float, epsilon: float) -> float:
    """Return an upper bound on log(delta) such that rho implies (epsilon, delta) (claim L2).

    Every order above 1 gives a bound; a search by thirds finds a good one.
    """

    def bound(log_order: float) -> float:
        over = math.exp(log_order)  # order - 1
        order = 1.0 + over
        change = over * (order * rho - epsilon)
        rounding = 1e-9 + 1e-12 * over * (order * rho + epsilon)
        return change - over * math.log1p(1.0 / over) - math.log1p(over) + rounding

    low, high = -20.0, 30.0
    for _ in range(120):
        one, two = low + (high - low) / 3.0, high - (high - low) / 3.0
        low, high = (low, two) if bound(one) < bound(two) else (one, high)
    return bound((low + high) / 2.0)


def epsilon_of_rho(rho: float, delta: float) -> float:
    """Return an epsilon, close to the least, such that rho implies (epsilon, delta)."""
    if rho == 0:
        return 0.0
    most, top = math.log(delta), rho + 2.0 * math.sqrt(rho * math.log(1.0 / delta)) + 1e-6
    return _bisected(lambda epsilon: log_delta(rho, epsilon) > most, 0.0, top)[1]


def _bisected(holds: Callable[[float], bool], low: float, high: float) -> tuple[float, float]:
    """Numbers next to each other: it holds at the first, or up to there, and not at the second."""
    for _ in range(100):
        middle = (low + high) / 2.0
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low, high


COMPOSITIONS = {each.name: each for each in (Composition(), Concentrated())}


def find_composition(name: str) -> Composition:
    """Return a composition by its name."""
    if name not in COMPOSITIONS:
        raise OptionError(not_among("composition", name, COMPOSITIONS))
    return COMPOSITIONS[name]


def shown(left: Fraction) -> float:
    """Return what is left as a number that a next call may ask for; below 1e-12, none.

    Examples
    --------
    >>> shown(Fraction(1, 10))
    0.1
    """
    return 0.0 if left <= Fraction(1, 10**12) else written_below(left)
