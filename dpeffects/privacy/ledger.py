"""What one call is charged to: charge first, then draw. Ledgers of several calls: `ledgers`."""

from __future__ import annotations

import math
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

from dpeffects.errors import BudgetError, LedgerError, refusal
from dpeffects.guarantee import protected, why_no_sum
from dpeffects.privacy.budget import Budget, as_written
from dpeffects.privacy.charges import Charge


class Terms(NamedTuple):
    """What a charge protects: the unit, what is public beside n, and what voids it."""

    unit: str
    public: tuple[str, ...] = ()
    void: tuple[str, ...] = ()


class Account(ABC):
    """What calls are charged to: a ledger, or the part of one that a call has reserved.

    A call reserves its whole budget before data is read. Its first charge is for the whole: what
    is left when the call ends, well or not, is booked as spent, so that totals do not show how far
    it came. A call that ends before its first charge has cost nothing.
    """

    allotment_name: str = ""
    """Of the allotment that is charged, where it is one."""

    @abstractmethod
    def check(self, epsilon: Fraction, delta: Fraction, terms: Terms | None) -> None:
        """Raise BudgetError unless this much is left on these terms; charges nothing."""

    @abstractmethod
    def charge(self, charge: Charge, terms: Terms | None = None) -> None:
        """Record a charge, or refuse it. Call before the noise is drawn, never after."""

    def reserve(self, budget: Budget, terms: Terms, about: Mapping[str, str]) -> Account:
        """Return an account that a call with this whole budget charges, or refuse it.

        ``about`` says in words what the call is (method, formula).
        """
        self.check(*budget.exact, terms)
        return self

    def settle(self) -> None:
        """End a reservation: if it was charged, its rest is spent; if not, it is given back."""
        return

    def require(self, epsilon: float, delta: float = 0.0) -> None:
        """Raise BudgetError unless this much is left; charges nothing."""
        self.check(as_written(epsilon), as_written(delta), None)


class InMemory:
    """Charges in the memory of one process, in order.

    Threads may share them; a process that was forked may not, because each would have the budget
    to itself.
    """

    def __init__(self) -> None:
        self._spends: list[Charge] = []
        self._lock, self._process = threading.RLock(), os.getpid()

    @property
    def charges(self) -> tuple[Charge, ...]:
        """All charges so far, in order."""
        return tuple(self._spends)

    def cover(self, charge: Charge) -> None:
        """Name a release of other rows that charges made here pay for too (claim 11)."""
        price = f"{charge.epsilon:.3g}" + (f", {charge.delta:.3g}" if charge.delta else "")
        label = f"{charge.label}, other half ({price} covered by claim 11)"
        named = replace(charge, label=label, epsilon=0.0, delta=0.0, alone=False)
        with self._lock:
            self._spends.append(named)

    def _require_own_process(self) -> None:
        if os.getpid() != self._process:
            raise LedgerError(refusal("forked"))


class CallLedger(InMemory, Account):
    """What a call may spend, and what it has spent.

    Charges add up by basic composition (claim 1), in exact arithmetic: no float rounding lets a
    tiny charge through for free. A ``parent`` is charged too, and first. ``spent`` has the exact
    totals of epsilon and delta.
    """

    def __init__(
        self, allowed: Budget, parent: Account | None = None, terms: Terms | None = None
    ) -> None:
        super().__init__()
        self._parent, self._terms = parent, terms
        self._allowed, self.spent = allowed.exact, (Fraction(0), Fraction(0))

    def check(self, epsilon: Fraction, delta: Fraction, terms: Terms | None) -> None:
        """Raise BudgetError unless this much is left on these terms; charges nothing."""
        self._require_own_process()
        require_like(self._terms, terms)
        if self._parent is not None:
            self._parent.check(epsilon, delta, self._terms)
        if self.spent[0] + epsilon > self._allowed[0] or self.spent[1] + delta > self._allowed[1]:
            needed = f"epsilon = {float(epsilon):.6g}, delta = {float(delta):.3g}"
            raise BudgetError(f"this needs {needed}, more than is left of the call's budget")

    def charge(self, charge: Charge, terms: Terms | None = None) -> None:
        """Record a charge, or refuse it. Call before the noise is drawn, never after."""
        price = exact_price(charge)
        with self._lock:
            self.check(*price, terms)
            if self._parent is not None:
                self._parent.charge(charge, self._terms or terms)
            self._terms = self._terms or terms
            self.spent = self.spent[0] + price[0], self.spent[1] + price[1]
            self._spends.append(charge)


def exact_price(charge: Charge) -> tuple[Fraction, Fraction]:
    """What a charge costs, exactly; refuses one that is not a price."""
    epsilon, delta = charge.epsilon, charge.delta
    if not (epsilon >= 0 and delta >= 0 and 0 < epsilon + delta < math.inf):
        raise BudgetError(f"a charge must be positive, got {charge.epsilon}, {charge.delta}")
    return Fraction(epsilon), Fraction(delta)


def require_like(held: Terms | None, terms: Terms | None) -> None:
    """Refuse charges that protect something else than those already here."""
    if terms and held and terms[:2] != held[:2]:
        old, new = (
            f"{protected(x.unit)} (public: {', '.join(x.public) or 'n only'})"
            for x in (held, terms)
        )
        why = why_no_sum(held.unit, terms.unit)
        raise BudgetError(f"this ledger protects {old}; this call protects {new}. {why}")
