"""The rules of a durable ledger, as pure functions: totals before, what happens, totals after.

The ledger uses them inside a transaction, and `verify` replays all entries with them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Self

from dpeffects.errors import BudgetError
from dpeffects.privacy.budget import Budget, as_written
from dpeffects.privacy.guarantee import Spend
from dpeffects.privacy.ledger import Terms, refusal, require_like, require_positive
from dpeffects.privacy.ledgers.composition import Composition, composition
from dpeffects.privacy.ledgers.entries import Hold, Pair, State, read_terms


@dataclass(frozen=True)
class Agreement:
    """What a dataset allows, fixed when it is added to the ledger."""

    budget: Budget
    composition: Composition
    limits: Pair

    @classmethod
    def make(cls, epsilon: float, delta: float, name: str) -> Self:
        """Agree on a budget and a composition."""
        budget, rule = Budget(epsilon, delta), composition(name)
        return cls(budget, rule, rule.limits(budget))

    def body(self) -> dict[str, Any]:
        """Return the agreement for an entry."""
        return {
            "epsilon": self.budget.epsilon,
            "delta": self.budget.delta,
            "composition": self.composition.name,
            "limits": self.limits.text(),
        }

    @classmethod
    def read(cls, body: dict[str, Any]) -> Self:
        """Read what `body` wrote."""
        budget = Budget(body["epsilon"], body["delta"])
        return cls(budget, composition(body["composition"]), Pair.read(body["limits"]))

    def left(self, state: State) -> Pair:
        """Return what is neither used nor held."""
        return self.limits.minus(state.used).minus(state.held)

    def remaining(self, state: State) -> tuple[float, float]:
        """Return epsilon and delta of the largest call that fits, rounded down."""
        return self.composition.largest_call(self.left(state))

    def check(self, state: State, epsilon: Fraction, delta: Fraction, terms: Terms | None) -> None:
        """Raise BudgetError unless a call with this budget fits."""
        require_like(state.terms, terms)
        if not self.composition.of_call(epsilon, delta).within(self.left(state)):
            raise self._refusal(state, (epsilon, delta))

    def _refusal(self, state: State, needed: tuple[Fraction, Fraction]) -> BudgetError:
        error = refusal(needed, self.budget, self.remaining(state))
        if state.held.first > 0 or state.held.delta > 0:
            held = self.composition.largest_call(state.held)
            return BudgetError(
                f"{error}; open calls hold ({held[0]:.6g}, {held[1]:.3g}), which "
                "`dpeffects ledger settle` gives back if they are dead"
            )
        return error

    def reserve(self, state: State, budget: Budget, terms: Terms | None) -> tuple[State, Hold]:
        """Hold the whole budget of a call, or refuse it."""
        epsilon, delta = as_written(budget.epsilon), as_written(budget.delta)
        self.check(state, epsilon, delta, terms)
        cost = self.composition.of_call(epsilon, delta)
        return replace(state, held=state.held.plus(cost)), Hold(cost)

    def charge(
        self, state: State, hold: Hold | None, spend: Spend, terms: Terms | None
    ) -> tuple[State, Hold | None]:
        """Charge a call's reservation, or what is left where there is none; or refuse."""
        require_positive(spend)
        require_like(state.terms, terms)
        if hold is not None and not hold.open:
            raise BudgetError("the reservation of this call was settled; nothing was drawn")
        cost = self.composition.of_charge(spend, hold.joint if hold else state.joint)
        price = Pair(Fraction(spend.epsilon), Fraction(spend.delta))
        if hold is None and not cost.within(self.left(state)):
            raise self._refusal(state, price)
        if hold is not None and not cost.within(hold.left):
            raise refusal(price, self.budget, self.composition.largest_call(hold.left))
        together = Fraction(0) if spend.alone else price.first
        after = replace(
            state,
            spent=state.spent.plus(price),
            used=state.used.plus(cost),
            charges=state.charges + 1,
            terms=_joined(state.terms, terms),
        )
        if hold is None:
            return replace(after, joint=state.joint + together), None
        rest = Hold(hold.left.minus(cost), hold.joint + together)
        return replace(after, held=state.held.minus(cost)), rest


def settle(state: State, hold: Hold) -> tuple[State, Hold]:
    """Give back what a call has reserved and not used."""
    if not hold.open:
        return state, hold
    nothing = hold.left.minus(hold.left)
    return replace(state, held=state.held.minus(hold.left)), replace(hold, left=nothing, open=False)


def _joined(held: Terms | None, terms: Terms | None) -> Terms | None:
    """Terms of the first charge, with all that voids any."""
    if held is None or terms is None:
        return held or terms
    return held._replace(void=tuple(sorted({*held.void, *terms.void})))


def charge_body(spend: Spend, terms: Terms | None) -> dict[str, Any]:
    """Return a charge for an entry."""
    return {"spend": spend.to_dict(), "terms": terms}


def read_charge(body: dict[str, Any]) -> tuple[Spend, Terms | None]:
    """Read what `charge_body` wrote."""
    found = body["spend"]
    tuples = {name: tuple(found[name]) for name in ("sensitivity", "scale")}
    return Spend(**(found | tuples)), body["terms"] and read_terms(body["terms"])
