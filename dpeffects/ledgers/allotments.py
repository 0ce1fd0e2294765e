"""Shares of a ledger that are kept for later calls, and what ledgers of several calls share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from fractions import Fraction
from numbers import Real
from typing import Any

from dpeffects.errors import OptionError
from dpeffects.ledgers.agreement import Agreement, Allotted, open_part, require_name
from dpeffects.ledgers.entry import Cost, State
from dpeffects.privacy.budget import Budget, as_written
from dpeffects.privacy.charges import Charge
from dpeffects.privacy.ledger import Account, Terms


class Divisible(Account):
    """An account of several calls, of which named shares can be kept for later ones."""

    agreement: Agreement
    """What is allowed, and how charges add up."""

    @property
    @abstractmethod
    def state(self) -> State:
        """Exact totals now."""

    @abstractmethod
    def _change(self, kind: str, body: dict[str, Any], after: Callable[[State], State]) -> None:
        """Change the totals, where they change: "allot" or "release"."""

    @property
    def spent(self) -> Cost:
        """Exact totals of epsilon and delta charged."""
        return self.state.spent

    @property
    def remaining(self) -> tuple[float, float]:
        """What is left for a next call, rounded down; less than 1e-12 is shown as none."""
        return self.agreement.remaining(self.state)

    @property
    def allotments(self) -> dict[str, Allotted]:
        """Size, spent and left of all allotments by name, also of those that were released."""
        return self.agreement.allotments(self.state)

    def allot(self, name: str, share: float) -> Allotment:
        """Keep a share of the total allowed for later calls, and return the account of it.

        What is allotted is held, as reservations are: calls that are charged to the ledger itself
        cannot spend it, and calls with ``ledger=ledger.allot("secondary", 0.3)`` can spend that
        much and no more. Asking again for the same name and share gives the same allotment, so
        that scripts can be run again; another share is refused, and so is more than is left.

        Parameters
        ----------
        name
            Of the allotment, for statements and later processes: ``ledger.allotment(name)``.
        share
            Which part of the total epsilon, and of the total delta; 0.3 is three tenths. With
            ``composition="zcdp"`` it is that part of rho.

        Returns
        -------
        Allotment
        """
        require_name("allotment", name)
        number = isinstance(share, Real) and not isinstance(share, bool)
        if not (number and 0 < share <= 1):
            raise OptionError(f"share must be above 0 and at most 1, got {share!r}")
        exact = as_written(float(share))
        body = {"allotment": name, "share": exact}
        self._change("allot", body, lambda state: self.agreement.allot(state, name, exact))
        return Allotment(self, name)

    def allotment(self, name: str) -> Allotment:
        """Return the account of an allotment that was made before, perhaps by another process."""
        open_part(self.state.allotments, name)
        return Allotment(self, name)

    def release(self, name: str) -> None:
        """End an allotment: what is unspent is left again for calls to the ledger itself.

        Calls that are open keep what they have reserved. A second time does nothing; the name is
        not given again.
        """
        body = {"allotment": name}
        self._change("release", body, lambda state: self.agreement.release(state, name))

    def check(
        self, epsilon: Fraction, delta: Fraction, terms: Terms | None, allotment: str = ""
    ) -> None:
        """Raise BudgetError unless this much is left on these terms; charges nothing."""
        self.agreement.check(self.state, Cost(epsilon, delta), terms, allotment)

    @abstractmethod
    def charge(self, charge: Charge, terms: Terms | None = None, *, allotment: str = "") -> None:
        """Record a charge, or refuse it. Call before the noise is drawn, never after."""

    @abstractmethod
    def reserve(
        self, budget: Budget, terms: Terms, about: Mapping[str, str], allotment: str = ""
    ) -> Account:
        """Reserve the whole budget of a call, or refuse it."""

    def _totals(self, state: State, reserved: str = "") -> str:
        """Totals in a line of text."""
        allowed, left = self.agreement.budget, self.agreement.remaining(state)
        void = sorted(state.terms.void) if state.terms else ()
        kept = self.agreement.allotments(state).items()
        return (
            f"epsilon={allowed.epsilon:.6g}, delta={allowed.delta:.3g}, {state.charges} charges, "
            f"left ({left[0]:.6g}, {left[1]:.3g}){reserved}"
            + "".join(f", allotment {name} {now}" for name, now in kept)
            + (f", VOID: {', '.join(void)}" if void else "")
        )


class Allotment(Account):
    """A named share of a ledger for later calls, as in ``dp_ate(..., ledger=allotment)``.

    `Ledger.allot` and `DurableLedger.allot` make it. Its calls protect what those of its ledger do,
    and are charged to both (claim L4); `close` gives back what is unspent.

    Attributes
    ----------
    ledger, allotment_name
        The ledger, and the name of this share of it.

    Examples
    --------
    >>> from dpeffects import Ledger
    >>> ledger = Ledger(epsilon=1.0)
    >>> secondary = ledger.allot("secondary", 0.3)
    >>> secondary.remaining, ledger.remaining
    ((0.3, 0.0), (0.7, 0.0))
    """

    def __init__(self, ledger: Divisible, name: str) -> None:
        self.ledger, self.allotment_name = ledger, name

    @property
    def remaining(self) -> tuple[float, float]:
        """What is left for a next call, rounded down; less than 1e-12 is shown as none."""
        return self.ledger.allotments[self.allotment_name].left

    @property
    def spent(self) -> Cost:
        """Exact totals of epsilon and delta charged."""
        return self.ledger.state.allotments[self.allotment_name].spent

    def check(self, epsilon: Fraction, delta: Fraction, terms: Terms | None) -> None:
        """Raise BudgetError unless this much is left on these terms; charges nothing."""
        self.ledger.check(epsilon, delta, terms, self.allotment_name)

    def charge(self, charge: Charge, terms: Terms | None = None) -> None:
        """Record a charge, or refuse it. Call before the noise is drawn, never after."""
        self.ledger.charge(charge, terms, allotment=self.allotment_name)

    def reserve(self, budget: Budget, terms: Terms, about: Mapping[str, str]) -> Account:
        """Reserve the whole budget of a call, or refuse it."""
        return self.ledger.reserve(budget, terms, about, self.allotment_name)

    def close(self) -> None:
        """Give back what is unspent; see `Ledger.release`."""
        self.ledger.release(self.allotment_name)

    def __repr__(self) -> str:
        now = self.ledger.allotments[self.allotment_name]
        return f"Allotment({self.allotment_name!r}, {now.share:.6g} of the ledger: {now})"
