"""Ledgers in memory: of several calls, and of the parts of one call.

No proof of a release needs them: what a call draws is paid for on its own ledger, which charges
these too (`privacy.ledger`). What is allowed is decided as in a ledger that outlives the process
(`agreement`), by the sum of all charges.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from dpeffects.errors import BudgetError, OptionError, checked_call, refusal
from dpeffects.ledgers.agreement import Agreement, kept_in, rest_of_call
from dpeffects.ledgers.allotments import Divisible
from dpeffects.ledgers.entry import Hold, State
from dpeffects.privacy.budget import Budget, round_down
from dpeffects.privacy.charges import Charge
from dpeffects.privacy.ledger import Account, InMemory, Terms


class _OfLiveCalls(Agreement):
    """An agreement about calls of this process, none of which is dead."""

    def _open_calls(self, state: State) -> str:
        return ""


class Ledger(InMemory, Divisible):
    """A privacy budget for one dataset, kept over several calls (in memory).

    Charges add up by basic composition (claim 1), in exact arithmetic: no float rounding lets a
    tiny charge through for free. Threads may share one; a process that was forked may not, because
    each would have the budget to itself. `open_ledger` has the same in a file, which outlives the
    process and which processes may share. `allot` keeps a share for later calls, say those about
    secondary outcomes, and `release` gives back what they have not spent.

    Parameters
    ----------
    epsilon, delta
        The total allowed.
    parent
        A ledger that is charged too, and first.
    unit
        The column of persons, say, all of whose rows every call must protect (``dp_ate(...,
        unit="patient_id")``). Without it a ledger takes what it protects from its first charge.
        It refuses others, because an epsilon for outcomes, one for records and one for all rows of
        a person do not add up.
    terms
        The same in full, for this package.

    Examples
    --------
    >>> ledger = Ledger(epsilon=1.0)
    >>> ledger.remaining
    (1.0, 0.0)
    >>> secondary = ledger.allot("secondary", 0.3)
    >>> ledger.remaining
    (0.7, 0.0)
    """

    @checked_call
    def __init__(
        self,
        epsilon: float,
        delta: float = 0.0,
        *,
        parent: Account | None = None,
        unit: str | None = None,
        terms: Terms | None = None,
    ) -> None:
        super().__init__()
        self.agreement = _OfLiveCalls.make(epsilon, delta, "sum", unit)
        self._state, self._parent = State(terms=terms), parent

    @property
    def state(self) -> State:
        """Exact totals now."""
        return self._state

    def _change(self, kind: str, body: dict[str, Any], after: Callable[[State], State]) -> None:
        self._require_own_process()
        if kind == "allot" and self._parent is not None:
            raise OptionError(refusal("ledger_already_charges"))
        with self._lock:
            self._state = after(self._state)

    def check(
        self, epsilon: Fraction, delta: Fraction, terms: Terms | None, allotment: str = ""
    ) -> None:
        """Raise BudgetError unless this much is left on these terms; charges nothing."""
        self._require_own_process()
        if self._parent is not None:
            self._parent.check(epsilon, delta, self.agreement.terms(self._state) or terms)
        super().check(epsilon, delta, terms, allotment)

    def reserve(
        self, budget: Budget, terms: Terms, about: Mapping[str, str], allotment: str = ""
    ) -> Account:
        """Reserve the whole budget of a call, or refuse it."""
        with self._lock:
            self.check(*budget.exact, terms, allotment)
            above = self._parent.reserve(budget, terms, about) if self._parent else None
            self._state, hold = self.agreement.reserve(self._state, budget, terms, allotment)
        return MemoryReservation(self, hold, above)

    def charge(self, charge: Charge, terms: Terms | None = None, *, allotment: str = "") -> None:
        """Record a charge, or refuse it. Call before the noise is drawn, never after."""
        self._charge(charge, terms, allotment=allotment)

    def _charge(
        self,
        charge: Charge,
        terms: Terms | None,
        of: MemoryReservation | None = None,
        allotment: str = "",
    ) -> Hold | None:
        """Charge what a call has reserved, or what is left; what is charged too comes first."""
        self._require_own_process()
        hold, above = (of.hold, of.above) if of else (None, self._parent)
        with self._lock:
            state, hold = self.agreement.charge(self._state, hold, charge, terms, allotment)
            if above is not None:
                above.charge(charge, self.agreement.terms(self._state) or terms)
            self._state = state
            self._spends.append(charge)
        return hold

    def _settle(self, hold: Hold) -> Hold:
        with self._lock:
            self._state, ended = self.agreement.settle(self._state, hold)
            self._spends.extend(rest_of_call(hold.whole, hold.rest))
        return ended

    def __repr__(self) -> str:
        state = self._state
        held = state.held.minus(kept_in(state.allotments))
        reserved = f", reserved ({float(held[0]):.6g}, {float(held[1]):.3g})" if any(held) else ""
        return f"Ledger({self._totals(state, reserved)})"


class MemoryReservation(Account):
    """The part of a ledger in memory that one call may charge."""

    def __init__(self, ledger: Ledger, hold: Hold, above: Account | None) -> None:
        self._ledger, self.hold, self.above = ledger, hold, above
        self.allotment_name = hold.allotment

    def check(self, epsilon: Fraction, delta: Fraction, terms: Terms | None) -> None:
        """Nothing to check before a charge: the whole budget is reserved."""

    def charge(self, charge: Charge, terms: Terms | None = None) -> None:
        """Record a charge against the reservation, or refuse it."""
        with self._ledger._lock:
            charged = self._ledger._charge(charge, terms, self)
            self.hold = charged or self.hold

    def settle(self) -> None:
        """End the reservation; a second time does nothing."""
        with self._ledger._lock:
            if not self.hold.open:
                return
            self.hold = self._ledger._settle(self.hold)
        if self.above is not None:
            self.above.settle()


class OneCall(Account):
    """An account for the parts of one call, which reserves its whole budget once.

    Parts are charged as they go. With ``disjoint`` none may have more than half of the budget, and
    the first charge of any is for the whole: a record moves two parts at most (claim 31).
    """

    def __init__(self, account: Account | None, budget: Budget, disjoint: bool) -> None:
        self._account, self._budget = account, budget
        self.allotment_name = account.allotment_name if account else ""
        self._held: Account | None = None
        self.price: Charge | None = None
        if disjoint:
            epsilon, delta = map(round_down, budget.exact)
            label = "disjoint subsets, all together"
            self.price = Charge(
                label, "subsets", epsilon, delta, "parallel composition", (), (), 31
            )
        self._paid = False

    def check(self, epsilon: Fraction, delta: Fraction, terms: Terms | None) -> None:
        """Raise where a part of disjoint ones asks for more than half."""
        whole = self._budget.exact
        if self.price and (2 * epsilon > whole[0] or 2 * delta > whole[1]):
            raise BudgetError("each of several disjoint subsets gets at most half of the budget")

    def reserve(self, budget: Budget, terms: Terms, about: Mapping[str, str]) -> Account:
        """Reserve the whole for the first part."""
        self.check(*budget.exact, terms)
        if self._account is not None and self._held is None:
            self._held = self._account.reserve(self._budget, terms, about)
        return self

    def charge(self, charge: Charge, terms: Terms | None = None) -> None:
        """Charge what a part spends, or, for disjoint parts, the whole at once."""
        if self._held is not None and not (self.price and self._paid):
            self._held.charge(self.price or charge, terms)
            self._paid = True

    def end(self) -> None:
        """End the reservation; parts do not."""
        if self._held is not None:
            self._held.settle()
