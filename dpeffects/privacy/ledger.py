"""The ledger: charge first, then draw. The only mutable thing in the package."""

from __future__ import annotations

import threading
from fractions import Fraction
from typing import NamedTuple

from dpeffects.errors import BudgetError
from dpeffects.privacy.budget import Budget, as_written, round_down
from dpeffects.privacy.guarantee import Spend


class Terms(NamedTuple):
    """What a charge protects: the unit, what is public beside n, and what voids it."""

    unit: str
    public: tuple[str, ...] = ()
    void: tuple[str, ...] = ()


class Ledger:
    """A privacy budget for one dataset, kept over several calls (in memory).

    Charges add up by basic composition (claim 1), in exact arithmetic: no float rounding lets a
    tiny charge through for free.

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
        parent: Ledger | None = None,
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
            _shown(as_written(self._allowed.epsilon) - epsilon),
            _shown(as_written(self._allowed.delta) - delta),
        )

    def require(self, epsilon: float, delta: float = 0.0) -> None:
        """Raise BudgetError unless this much is left; charges nothing."""
        self._require(as_written(epsilon), as_written(delta))

    def _require(self, epsilon: Fraction, delta: Fraction) -> None:
        if self._parent is not None:
            self._parent._match(self._terms)
            self._parent._require(epsilon, delta)
        spent_epsilon, spent_delta = self.spent
        enough = spent_epsilon + epsilon <= as_written(self._allowed.epsilon)
        if not enough or spent_delta + delta > as_written(self._allowed.delta):
            left = self.remaining
            raise BudgetError(
                f"this needs epsilon = {float(epsilon):.6g}, delta = {float(delta):.3g}, but of "
                f"({self._allowed.epsilon:.6g}, {self._allowed.delta:.3g}) only "
                f"({left[0]:.6g}, {left[1]:.3g}) is left"
            )

    def _match(self, terms: Terms | None) -> None:
        """Refuse charges that protect something else than those already here."""
        if terms and self._terms and terms[:2] != self._terms[:2]:
            raise BudgetError(
                f"this ledger holds charges for one {self._terms.unit} "
                f"(public: {', '.join(self._terms.public) or 'n only'}); a call for one "
                f"{terms.unit} (public: {', '.join(terms.public) or 'n only'}) does not add to "
                "them: give it a ledger of its own"
            )

    def charge(self, spend: Spend, terms: Terms | None = None) -> None:
        """Record a charge, or refuse it. Call before the noise is drawn, never after."""
        if not (spend.epsilon > 0 or spend.delta > 0) or spend.epsilon < 0 or spend.delta < 0:
            raise BudgetError(f"a charge must be positive, got {spend.epsilon}, {spend.delta}")
        with self._lock:
            self._match(terms)
            self._require(Fraction(spend.epsilon), Fraction(spend.delta))
            if self._parent is not None:
                self._parent.charge(spend, self._terms)
            self._terms = self._terms or terms
            self._void |= set(terms.void if terms else ())
            epsilon, delta = self._spent
            self._spent = (epsilon + Fraction(spend.epsilon), delta + Fraction(spend.delta))
            self._spends.append(spend)

    def __repr__(self) -> str:
        left = self.remaining
        return (
            f"Ledger(epsilon={self._allowed.epsilon:.6g}, delta={self._allowed.delta:.3g}, "
            f"{len(self._spends)} charges, left ({left[0]:.6g}, {left[1]:.3g})"
            + (f", VOID: {', '.join(sorted(self._void))})" if self._void else ")")
        )


def _shown(left: Fraction) -> float:
    return round_down(left) if left > Fraction(1, 10**12) else 0.0
