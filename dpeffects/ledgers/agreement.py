"""What a dataset allows, as pure functions: totals before, what happens, totals after.

The ledger uses them inside a transaction, and `verify` replays all entries with them.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import reduce
from typing import Any, NamedTuple, Self

from dpeffects.errors import BudgetError, LedgerError, OptionError, quoted, refusal
from dpeffects.guarantee import rows_of
from dpeffects.ledgers.composition import Composition, find_composition
from dpeffects.ledgers.entry import (
    NONE,
    AllotmentTotals,
    Cost,
    Hold,
    LedgerEntry,
    Parts,
    State,
    read_stored,
)
from dpeffects.privacy.budget import Budget
from dpeffects.privacy.charges import Charge
from dpeffects.privacy.ledger import Terms, exact_price, require_like


class Allotted(NamedTuple):
    """An allotment at one moment, in numbers to show: epsilon and delta each."""

    share: float
    size: tuple[float, float]
    spent: tuple[float, float]
    left: tuple[float, float]
    open: bool

    def __str__(self) -> str:
        size, spent, left = (f"({x:.6g}, {d:.3g})" for x, d in self[1:4])
        return f"{size}, spent {spent}, " + (f"left {left}" if self.open else "released")


@dataclass(frozen=True)
class Agreement:
    """What a dataset allows, fixed when it is added to the ledger.

    ``unit`` is the column all of whose rows every call must protect, where one was agreed on.
    """

    budget: Budget
    composition: Composition
    limits: Cost
    unit: str | None = None

    def __post_init__(self) -> None:
        agreed_terms(self.unit)

    @classmethod
    def make(cls, epsilon: float, delta: float, name: str, unit: str | None = None) -> Self:
        """Agree on a budget, a composition and perhaps a unit."""
        budget, rule = Budget(epsilon, delta), find_composition(name)
        return cls(budget, rule, rule.limits(budget), unit)

    def body(self) -> dict[str, Any]:
        """Return the agreement for an entry."""
        return {
            "epsilon": self.budget.epsilon,
            "delta": self.budget.delta,
            "composition": self.composition.name,
            "limits": self.limits,
        } | ({} if self.unit is None else {"unit": self.unit})

    def terms(self, state: State) -> Terms | None:
        """What charges must protect: as agreed, or as the first of them does."""
        return state.terms or agreed_terms(self.unit)

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> Self:
        """Read what `body` wrote."""
        try:
            budget = Budget(body["epsilon"], body["delta"])
            rule = find_composition(body["composition"])
            return cls(budget, rule, read_stored(Cost, body["limits"]), body.get("unit"))
        except (KeyError, TypeError, ValueError) as error:
            raise LedgerError("the budget of a dataset in this ledger cannot be read") from error

    def left(self, state: State, allotment: str = "") -> Cost:
        """Return what is neither used nor held, or what an allotment has left."""
        if allotment:
            return open_part(state.allotments, allotment).left
        return self.limits.minus(state.used).minus(state.held)

    def remaining(self, state: State) -> tuple[float, float]:
        """Return epsilon and delta of the largest call that fits, rounded down."""
        return self.composition.largest_call(self.left(state))

    def check(self, state: State, price: Cost, terms: Terms | None, allotment: str = "") -> None:
        """Raise BudgetError unless a call at this price fits."""
        require_like(self.terms(state), terms)
        if not self.composition.of_call(*price).within(self.left(state, allotment)):
            raise self._refusal(state, price, allotment)

    def _refusal(
        self, state: State, price: Cost, allotment: str = "", hold: Hold | None = None
    ) -> BudgetError:
        """Say what is needed, what is left, or is of a call, and what is kept for others."""
        shown, allowed = self.composition.largest_call, self.budget
        left = shown(hold.left if hold else self.left(state, allotment))
        kept = shown(NONE if hold or allotment else kept_in(state.allotments))
        return BudgetError(
            f"this needs epsilon = {float(price[0]):.6g}, delta = {float(price[1]):.3g}, but of "
            f"({allowed.epsilon:.6g}, {allowed.delta:.3g}) only "
            f"({left[0]:.6g}, {left[1]:.3g}) is left"
            + (f" in the allotment {allotment!r}" if allotment else "")
            + (f"; allotments keep ({kept[0]:.6g}, {kept[1]:.3g})" if any(kept) else "")
            + ("" if hold else self._open_calls(state))
        )

    def _open_calls(self, state: State) -> str:
        """What open calls hold, in words."""
        calls = state.held.minus(kept_in(state.allotments))
        if calls.first <= 0 and calls.delta <= 0:
            return ""
        held = self.composition.largest_call(calls)
        return (
            f"; open calls hold ({held[0]:.6g}, {held[1]:.3g}), which "
            "`dpeffects ledger settle` ends if they are dead"
        )

    def allot(self, state: State, name: str, share: Fraction) -> State:
        """Hold a share of all that is allowed; refuse another size, or more than is left."""
        if name in state.allotments:
            if (known := open_part(state.allotments, name).share) != share:
                sizes = f"{float(known)} of the ledger, not {float(share)}"
                raise OptionError(f"the allotment {name!r} is {sizes}")
            return state
        size = self._size(share)
        if not size.within(self.left(state)):
            raise self._refusal(state, Cost(*map(Fraction, self.composition.largest_call(size))))
        return replace(state, held=state.held.plus(size)).with_part(
            name, AllotmentTotals(share, size)
        )

    def release(self, state: State, name: str) -> State:
        """End an allotment; what it has left is held no more. A second time does nothing."""
        part = part_of(state.allotments, name)
        if not part.open:
            return state
        held = state.held.minus(part.left)
        return replace(state, held=held).with_part(name, part._replace(left=NONE, open=False))

    def _size(self, share: Fraction) -> Cost:
        return Cost(share * self.limits.first, share * self.limits.delta)

    def allotments(self, state: State) -> dict[str, Allotted]:
        """Return what there is to show of each allotment; sizes are those of one call."""
        shown = self.composition.largest_call
        found = {}
        for name, part in state.allotments.items():
            size, left = shown(self._size(part.share)), shown(part.left)
            found[name] = Allotted(float(part.share), size, part.spent.above(), left, part.open)
        return found

    def reserve(
        self, state: State, budget: Budget, terms: Terms | None, allotment: str = ""
    ) -> tuple[State, Hold]:
        """Hold the whole budget of a call, out of an allotment where it is of one, or refuse it."""
        whole = Cost(*budget.exact)
        self.check(state, whole, terms, allotment)
        cost = self.composition.of_call(*whole)
        hold = Hold(cost, whole=whole, allotment=allotment)
        if allotment:
            return state.with_part(allotment, state.allotments[allotment].less(cost)), hold
        return replace(state, held=state.held.plus(cost)), hold

    def pay(self, state: State, budget: Budget, terms: Terms | None) -> State:
        """Charge a whole budget at once, or refuse it."""
        _, hold = self.reserve(state, budget, terms)
        return _charged(state, hold.whole, hold.left, terms)

    def settle(self, state: State, hold: Hold) -> tuple[State, Hold]:
        """End a call. Its rest is spent after a first charge, and refunded before.

        By a composition other than the sum, charges can cost less than their part of the budget. A
        call that has charged all of its epsilon costs what its charges do; one that has not costs
        all that was reserved, wherever it ended.
        """
        after = replace(state, held=state.held.minus(hold.left))
        ended = replace(hold, left=NONE, open=False)
        if hold.paid == NONE:
            return _kept(after, hold, hold.left), ended
        stopped = not negligible(hold.rest.first, hold.whole.first)
        cost = hold.left if stopped else self.composition.of_call(*hold.rest)
        spent = state.spent.plus(hold.rest)
        charges = state.charges + len(rest_of_call(hold.whole, hold.rest))
        after = replace(after, spent=spent, used=state.used.plus(cost), charges=charges)
        return _kept(after, hold, hold.left.minus(cost)), ended

    def charge(
        self,
        state: State,
        hold: Hold | None,
        charge: Charge,
        terms: Terms | None,
        allotment: str = "",
    ) -> tuple[State, Hold | None]:
        """Charge a call's reservation, or what is left where there is none; or refuse."""
        exact_price(charge)
        require_like(self.terms(state), terms)
        if hold is not None and not hold.open:
            raise BudgetError(refusal("reservation_call_was"))
        before = (hold or state).noncomposable_epsilon
        cost = self.composition.of_charge(charge, before)
        price = price_of(charge)
        if not cost.within(hold.left if hold else self.left(state, allotment)):
            raise self._refusal(state, price, "" if hold else allotment, hold)
        noncomposable = before if charge.alone else before + price.first
        after = _charged(state, price, cost, terms)
        if hold is not None or allotment:
            after = replace(after, held=state.held.minus(cost))
        if name := hold.allotment if hold else allotment:
            part = state.allotments[name].after(price)
            after = after.with_part(name, part if hold else part.less(cost))
        if hold is None:
            return replace(after, noncomposable_epsilon=noncomposable), None
        rest = replace(
            hold,
            left=hold.left.minus(cost),
            noncomposable_epsilon=noncomposable,
            paid=hold.paid.plus(price),
        )
        return after, rest


def _kept(state: State, hold: Hold, back: Cost) -> State:
    """Totals after a call has ended: what it gives back stays with its allotment, if it is open."""
    if not hold.allotment:
        return state
    part = state.allotments[hold.allotment].after(hold.rest)
    if not part.open:
        return state.with_part(hold.allotment, part)
    state = state.with_part(hold.allotment, part.less(NONE.minus(back)))
    return replace(state, held=state.held.plus(back))


def _charged(state: State, price: Cost, cost: Cost, terms: Terms | None) -> State:
    """Totals after a charge; terms are those of the first charge, with all that voids any."""
    joined = state.terms or terms
    if state.terms and terms:
        joined = state.terms._replace(void=tuple(sorted({*state.terms.void, *terms.void})))
    return replace(
        state,
        spent=state.spent.plus(price),
        used=state.used.plus(cost),
        charges=state.charges + 1,
        terms=joined,
    )


def price_of(charge: Charge) -> Cost:
    """Return epsilon and delta of a charge, exactly."""
    return Cost(Fraction(charge.epsilon), Fraction(charge.delta))


def read_charge(body: Mapping[str, Any]) -> tuple[Charge, Terms | None]:
    """Read the body of an entry that charges."""
    return read_stored(Charge, body["charge"]), read_stored(Terms | None, body["terms"])


def payments(entry: LedgerEntry) -> tuple[Charge, ...]:
    """Return what was charged with an entry: by a call, for its rest, or for a request."""
    if entry.kind == "charge":
        return (read_charge(entry.body)[0],)
    if entry.kind == "settle" and entry.hold is not None:
        return rest_of_call(entry.hold.whole, entry.hold.rest)
    if entry.kind == "request":
        body = entry.body
        label = f"request {body['request']}"
        price = (body["epsilon"], body["delta"])
        return (Charge(label, "request", *price, "any", (), (), 1, alone=True),)
    return ()


def rest_of_call(whole: Cost, rest: Cost) -> tuple[Charge, ...]:
    """Return what a call has not charged of its budget as a charge of its own.

    One that is negligible gets no line, but is in the totals too.
    """
    if all(map(negligible, rest, whole)):
        return ()
    return (Charge("rest of the call", "rest", *rest.above(), "none", (), (), 1),)


def negligible(rest: Fraction, whole: Fraction) -> bool:
    """Say whether this little is left because shares of a budget are rounded down."""
    return rest <= whole / 10**9


def kept_in(parts: Parts) -> Cost:
    """What allotments have left, in sum."""
    return reduce(Cost.plus, (part.left for part in parts.values()), NONE)


def part_of(parts: Parts, name: str) -> AllotmentTotals:
    """Return the totals of an allotment."""
    require_name("allotment", name)
    if name not in parts:
        raise OptionError(
            refusal("ledger_no_allotment", name=name, known=", ".join(parts) or "none")
        )
    return parts[name]


def open_part(parts: Parts, name: str) -> AllotmentTotals:
    """Return the totals of an allotment that calls may still charge."""
    part = part_of(parts, name)
    if not part.open:
        raise BudgetError(f"the allotment {name!r} was released; nothing more can be charged to it")
    return part


def require_name(what: str, name: object) -> None:
    """Refuse what is no name, and names that look like another."""
    if not isinstance(name, str) or not name.strip() or not name.isprintable():
        raise OptionError(f"{what} must be a name, got {quoted(name)}")
    plain = " ".join(unicodedata.normalize("NFC", name).split())
    if name != plain:
        raise OptionError(refusal("ambiguous_name", what=what, name=name, plain=plain))


def agreed_terms(unit: str | None) -> Terms | None:
    """What every charge of a ledger must protect, where a column of units was agreed on."""
    if unit is None:
        return None
    if not (isinstance(unit, str) and unit):
        raise OptionError("unit must be the name of a column, as in dp_ate(..., unit=...)")
    return Terms(rows_of(unit))
