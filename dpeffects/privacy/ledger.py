"""The ledger: charge first, then draw. In memory here; in a file or on a server in `ledgers`."""

from __future__ import annotations

import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

from dpeffects.errors import BudgetError
from dpeffects.privacy.budget import Budget, as_written
from dpeffects.privacy.guarantee import Spend


class Terms(NamedTuple):
    """What a charge protects: the unit, what is public beside n, and what voids it."""

    unit: str
    public: tuple[str, ...] = ()
    void: tuple[str, ...] = ()


class Account(ABC):
    """What calls are charged to: a ledger, or the part of one that a call has reserved."""

    @abstractmethod
    def check(self, epsilon: Fraction, delta: Fraction, terms: Terms | None) -> None:
        """Raise BudgetError unless this much is left on these terms; charges nothing."""

    @abstractmethod
    def charge(self, spend: Spend, terms: Terms | None = None) -> None:
        """Record a charge, or refuse it. Call before the noise is drawn, never after."""

    def reserve(self, budget: Budget, terms: Terms, about: Mapping[str, str]) -> Account:
        """Return an account that a call with this whole budget charges, or refuse it.

        ``about`` says in words what the call is (method, formula).
        """
        self.check(as_written(budget.epsilon), as_written(budget.delta), terms)
        return self

    def settle(self) -> None:
        """Give back what was reserved and not charged."""
        return

    def require(self, epsilon: float, delta: float = 0.0) -> None:
        """Raise BudgetError unless this much is left; charges nothing."""
        self.check(as_written(epsilon), as_written(delta), None)


class Ledger(Account):
    """A privacy budget for one dataset, kept over several calls (in memory).

    Charges add up by basic composition (claim 1), in exact arithmetic: no float rounding lets a
    tiny charge through for free. `open_ledger` has the same in a file that outlives the process.

    Parameters
    ----------
    epsilon, delta
        The total allowed.
    parent
        A ledger that is charged too, and first.
    terms
        What the charges protect; a ledger takes it from its first charge and refuses others,
        because an outcome-level and a record-level epsilon do not add up.

    Examples
    --------
    >>> ledger = Ledger(epsilon=1.0)
    >>> ledger.remaining
    (1.0, 0.0)
    """

    def __init__(
        self,
        epsilon: float,
        delta: float = 0.0,
        *,
        parent: Account | None = None,
        terms: Terms | None = None,
    ) -> None:
        self._allowed = Budget(epsilon, delta)
        self._spends: list[Spend] = []
        self._spent = (Fraction(0), Fraction(0))
        self._parent = parent
        self._terms = terms
        self._void: set[str] = set()
        self._lock = threading.RLock()

    @property
    def spends(self) -> tuple[Spend, ...]:
        """All charges so far, in order."""
        return tuple(self._spends)

    @property
    def spent(self) -> tuple[Fraction, Fraction]:
        """Exact totals of epsilon and delta."""
        return self._spent

    @property
    def remaining(self) -> tuple[float, float]:
        """What is left of epsilon and delta, rounded down; less than 1e-12 is shown as none."""
        epsilon, delta = self.spent
        return (
            shown(as_written(self._allowed.epsilon) - epsilon),
            shown(as_written(self._allowed.delta) - delta),
        )

    def check(self, epsilon: Fraction, delta: Fraction, terms: Terms | None) -> None:
        """Raise BudgetError unless this much is left on these terms; charges nothing."""
        require_like(self._terms, terms)
        if self._parent is not None:
            self._parent.check(epsilon, delta, self._terms)
        spent_epsilon, spent_delta = self.spent
        enough = spent_epsilon + epsilon <= as_written(self._allowed.epsilon)
        if not enough or spent_delta + delta > as_written(self._allowed.delta):
            raise refusal((epsilon, delta), self._allowed, self.remaining)

    def charge(self, spend: Spend, terms: Terms | None = None) -> None:
        """Record a charge, or refuse it. Call before the noise is drawn, never after."""
        require_positive(spend)
        with self._lock:
            self.check(Fraction(spend.epsilon), Fraction(spend.delta), terms)
            if self._parent is not None:
                self._parent.charge(spend, self._terms)
            self._terms = self._terms or terms
            self._void |= set(terms.void if terms else ())
            epsilon, delta = self._spent
            self._spent = (epsilon + Fraction(spend.epsilon), delta + Fraction(spend.delta))
            self._spends.append(spend)

    def cover(self, spend: Spend) -> None:
        """Name a release of other rows that charges made here pay for too (claim 26)."""
        price = f"{spend.epsilon:.3g}" + (f", {spend.delta:.3g}" if spend.delta else "")
        label = f"{spend.label}, other half ({price} covered by claim 26)"
        named = replace(spend, label=label, epsilon=0.0, delta=0.0, alone=False)
        with self._lock:
            self._spends.append(named)

    def __repr__(self) -> str:
        left = self.remaining
        return (
            f"Ledger(epsilon={self._allowed.epsilon:.6g}, delta={self._allowed.delta:.3g}, "
            f"{len(self._spends)} charges, left ({left[0]:.6g}, {left[1]:.3g})"
            + (f", VOID: {', '.join(sorted(self._void))})" if self._void else ")")
        )


def require_positive(spend: Spend) -> None:
    """Refuse a charge that is not a price."""
    epsilon, delta = spend.epsilon, spend.delta
    if not (epsilon >= 0 and delta >= 0 and 0 < epsilon + delta < math.inf):
        raise BudgetError(f"a charge must be positive, got {spend.epsilon}, {spend.delta}")


def require_like(held: Terms | None, terms: Terms | None) -> None:
    """Refuse charges that protect something else than those already here."""
    if terms and held and terms[:2] != held[:2]:
        raise BudgetError(
            f"this ledger holds charges for one {held.unit} "
            f"(public: {', '.join(held.public) or 'n only'}); a call for one "
            f"{terms.unit} (public: {', '.join(terms.public) or 'n only'}) does not add to "
            "them: give it a ledger of its own"
        )


def refusal(
    needed: tuple[Fraction, Fraction], allowed: Budget, left: tuple[float, float]
) -> BudgetError:
    """The error that says what is needed and what is left."""
    return BudgetError(
        f"this needs epsilon = {float(needed[0]):.6g}, delta = {float(needed[1]):.3g}, but of "
        f"({allowed.epsilon:.6g}, {allowed.delta:.3g}) only "
        f"({left[0]:.6g}, {left[1]:.3g}) is left"
    )


def shown(left: Fraction) -> float:
    """Return what is left as a number that a next call may ask for; below 1e-12, none.

    Examples
    --------
    >>> shown(Fraction(1, 10))
    0.1
    """
    if left <= Fraction(1, 10**12):
        return 0.0
    nearest = float(left)
    return nearest if as_written(nearest) <= left else math.nextafter(nearest, 0.0)
