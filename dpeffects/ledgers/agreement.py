"""What a dataset allows, as pure functions: totals before, what happens, totals after.

The ledger uses them inside a transaction, and `verify` replays all entries with them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Self

from dpeffects.errors import BudgetError, LedgerError
from dpeffects.ledgers.allotments import (
    Allotted,
    Part,
    agreed_terms,
    is_new,
    kept_in,
    negligible,
    open_part,
    part_of,
    refusal,
    rest_of_call,
)
from dpeffects.ledgers.composition import Composition, find_composition
from dpeffects.ledgers.entry import NONE, Cost, Entry, Hold, State, read_terms
from dpeffects.privacy.budget import Budget, as_written
from dpeffects.privacy.charges import Spend
from dpeffects.privacy.ledger import Terms, exact_price, require_like


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
    def read(cls, body: dict[str, Any]) -> Self:
        """Read what `body` wrote."""
        try:
            budget = Budget(body["epsilon"], body["delta"])
            rule = find_composition(body["composition"])
            return cls(budget, rule, Cost.read(body["limits"]), body.get("unit"))
        except (KeyError, TypeError, ValueError) as error:
            raise LedgerError("the ledger has a dataset whose budget cannot be read") from error

    def left(self, state: State, allotment: str = "") -> Cost:
        """Return what is neither used nor held, or what an allotment has left."""
        if allotment:
            return Cost(*open_part(state.allotments, allotment).left)
        return self.limits.minus(state.used).minus(state.held)

    def remaining(self, state: State) -> tuple[float, float]:
        """Return epsilon and delta of the largest call that fits, rounded down."""
        return self.composition.largest_call(self.left(state))

    def check(
        self,
        state: State,
        epsilon: Fraction,
        delta: Fraction,
        terms: Terms | None,
        allotment: str = "",
    ) -> None:
        """Raise BudgetError unless a call with this budget fits."""
        require_like(self.terms(state), terms)
        if not self.composition.of_call(epsilon, delta).within(self.left(state, allotment)):
            raise self._refusal(state, (epsilon, delta), allotment)

    def _refusal(
        self, state: State, needed: tuple[Fraction, Fraction], allotment: str = ""
    ) -> BudgetError:
        shown, kept = self.composition.largest_call, Cost(*kept_in(state.allotments))
        left = shown(self.left(state, allotment))
        error = refusal(needed, self.budget, left, (0, 0) if allotment else shown(kept), allotment)
        return BudgetError(f"{error}{self._open_calls(state)}")

    def _open_calls(self, state: State) -> str:
        """What open calls hold, in words."""
        calls = state.held.minus(Cost(*kept_in(state.allotments)))
        if calls.first <= 0 and calls.delta <= 0:
            return ""
        held = self.composition.largest_call(calls)
        return (
            f"; open calls hold ({held[0]:.6g}, {held[1]:.3g}), which "
            "`dpeffects ledger settle` ends if they are dead"
        )

    def allot(self, state: State, name: str, share: Fraction) -> State:
        """Hold a share of all that is allowed; refuse another size, or more than is left."""
        if not is_new(state.allotments, name, share):
            return state
        size = self._size(share)
        if not size.within(self.left(state)):
            epsilon, delta = self.composition.largest_call(size)
            raise self._refusal(state, (Fraction(epsilon), Fraction(delta)))
        return replace(state, held=state.held.plus(size)).with_part(name, Part(share, size))

    def release(self, state: State, name: str) -> State:
        """End an allotment; what it has left is held no more."""
        part = part_of(state.allotments, name)
        held = state.held.minus(Cost(*part.left))
        return replace(state, held=held).with_part(name, part.released())

    def _size(self, share: Fraction) -> Cost:
        return Cost(share * self.limits.first, share * self.limits.delta)

    def allotments(self, state: State) -> dict[str, Allotted]:
        """Return what there is to show of each allotment; sizes are those of one call."""
        shown = self.composition.largest_call
        return {
            name: Allotted.of(part, shown(self._size(part.share)), shown(Cost(*part.left)))
            for name, part in state.allotments.items()
        }

    def reserve(
        self, state: State, budget: Budget, terms: Terms | None, allotment: str = ""
    ) -> tuple[State, Hold]:
        """Hold the whole budget of a call, out of an allotment where it is of one, or refuse it."""
        epsilon, delta = as_written(budget.epsilon), as_written(budget.delta)
        self.check(state, epsilon, delta, terms, allotment)
        cost = self.composition.of_call(epsilon, delta)
        hold = Hold(cost, whole=Cost(epsilon, delta), allotment=allotment)
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
        spend: Spend,
        terms: Terms | None,
        allotment: str = "",
    ) -> tuple[State, Hold | None]:
        """Charge a call's reservation, or what is left where there is none; or refuse."""
        exact_price(spend)
        require_like(self.terms(state), terms)
        if hold is not None and not hold.open:
            raise BudgetError("the reservation of this call was settled: it pays for no more")
        before = (hold or state).noncomposable_epsilon
        cost = self.composition.of_charge(spend, before)
        price = price_of(spend)
        if hold is None and not cost.within(self.left(state, allotment)):
            raise self._refusal(state, price, allotment)
        if hold is not None and not cost.within(hold.left):
            raise refusal(price, self.budget, self.composition.largest_call(hold.left))
        noncomposable = before if spend.alone else before + price.first
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
    state = state.with_part(hold.allotment, part.less((-back.first, -back.delta)))
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


def price_of(spend: Spend) -> Cost:
    """Return epsilon and delta of a charge, exactly."""
    return Cost(Fraction(spend.epsilon), Fraction(spend.delta))


def charge_body(spend: Spend, terms: Terms | None) -> dict[str, Any]:
    """Return a charge for an entry."""
    return {"spend": spend.to_dict(), "terms": terms}


def read_charge(body: dict[str, Any]) -> tuple[Spend, Terms | None]:
    """Read what `charge_body` wrote."""
    stored = body["spend"]
    tuples = {name: tuple(stored[name]) for name in ("sensitivity", "scale")}
    return Spend(**(stored | tuples)), body["terms"] and read_terms(body["terms"])


def payments(entry: Entry) -> tuple[Spend, ...]:
    """Return what was charged with an entry: by a call, for its rest, or for a request."""
    if entry.kind == "charge":
        return (read_charge(entry.body)[0],)
    if entry.kind == "settle" and entry.hold is not None:
        return rest_of_call(entry.hold.whole, entry.hold.rest)
    if entry.kind == "request":
        body = entry.body
        label = f"request {body['request']}"
        price = (body["epsilon"], body["delta"])
        return (Spend(label, "request", *price, "any", (), (), 1, alone=True),)
    return ()
