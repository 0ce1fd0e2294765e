"""Shares of a ledger that are kept for later calls, and what ledgers of several calls share."""

from __future__ import annotations

import math
import unicodedata
from abc import abstractmethod
from collections.abc import Mapping
from fractions import Fraction
from functools import reduce
from numbers import Real
from typing import NamedTuple, Self

from dpeffects.errors import BudgetError, OptionError
from dpeffects.guarantee import rows_of
from dpeffects.privacy.budget import Budget, as_written, round_up
from dpeffects.privacy.charges import Spend
from dpeffects.privacy.ledger import NONE, Account, Amounts, Terms, minus, plus


class Part(NamedTuple):
    """The totals of an allotment.

    ``share`` is its part of all that is allowed; ``left`` what calls may still reserve, as the
    ledger counts; ``spent`` plain sums; ``open`` is False once it was released.
    """

    share: Fraction
    left: Amounts
    spent: Amounts = NONE
    open: bool = True

    def less(self, cost: Amounts) -> Self:
        """After a call has reserved this much."""
        return self._replace(left=minus(self.left, cost))

    def after(self, price: Amounts) -> Self:
        """After this much was charged."""
        return self._replace(spent=plus(self.spent, price))

    def released(self) -> Self:
        """After what is left was given back."""
        return self._replace(left=NONE, open=False)


Parts = Mapping[str, Part]
"""Allotments by name."""


class Allotted(NamedTuple):
    """An allotment at one moment, in numbers to show: epsilon and delta each."""

    share: float
    size: tuple[float, float]
    spent: tuple[float, float]
    left: tuple[float, float]
    open: bool

    @classmethod
    def of(cls, part: Part, size: tuple[float, float], left: tuple[float, float]) -> Self:
        """What there is to show of the totals."""
        spent = (round_up(part.spent[0]), round_up(part.spent[1]))
        return cls(float(part.share), size, spent, left, part.open)

    def __str__(self) -> str:
        size, spent, left = (f"({x:.6g}, {d:.3g})" for x, d in self[1:4])
        return f"{size}, spent {spent}, " + (f"left {left}" if self.open else "released")


class Divisible(Account):
    """An account of which named shares can be kept for later calls."""

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
        self._hold(name, as_written(float(share)))
        return Allotment(self, name)

    def allotment(self, name: str) -> Allotment:
        """Return the account of an allotment that was made before, perhaps by another process."""
        open_part(self._parts, name)
        return Allotment(self, name)

    @property
    @abstractmethod
    def allotments(self) -> dict[str, Allotted]:
        """Size, spent and left of all allotments by name, also of those that were released."""

    @abstractmethod
    def release(self, name: str) -> None:
        """End an allotment: what is unspent is left again for calls to the ledger itself.

        Calls that are open keep what they have reserved. A second time does nothing; the name is
        not given again.
        """

    @property
    @abstractmethod
    def _parts(self) -> Parts:
        """Totals of all allotments."""

    @abstractmethod
    def _hold(self, name: str, share: Fraction) -> None:
        """Make an allotment where there is none; refuse another size, or more than is left."""

    @abstractmethod
    def check(
        self, epsilon: Fraction, delta: Fraction, terms: Terms | None, allotment: str = ""
    ) -> None:
        """Raise BudgetError unless this much is left on these terms; charges nothing."""

    @abstractmethod
    def charge(self, spend: Spend, terms: Terms | None = None, *, allotment: str = "") -> None:
        """Record a charge, or refuse it. Call before the noise is drawn, never after."""

    @abstractmethod
    def reserve(
        self, budget: Budget, terms: Terms, about: Mapping[str, str], allotment: str = ""
    ) -> Account:
        """Reserve the whole budget of a call, or refuse it."""


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
    def spent(self) -> Amounts:
        """Exact totals of epsilon and delta charged."""
        return self.ledger._parts[self.allotment_name].spent

    def check(self, epsilon: Fraction, delta: Fraction, terms: Terms | None) -> None:
        """Raise BudgetError unless this much is left on these terms; charges nothing."""
        self.ledger.check(epsilon, delta, terms, self.allotment_name)

    def charge(self, spend: Spend, terms: Terms | None = None) -> None:
        """Record a charge, or refuse it. Call before the noise is drawn, never after."""
        self.ledger.charge(spend, terms, allotment=self.allotment_name)

    def reserve(self, budget: Budget, terms: Terms, about: Mapping[str, str]) -> Account:
        """Reserve the whole budget of a call, or refuse it."""
        return self.ledger.reserve(budget, terms, about, self.allotment_name)

    def close(self) -> None:
        """Give back what is unspent; see `Ledger.release`."""
        self.ledger.release(self.allotment_name)

    def __repr__(self) -> str:
        now = self.ledger.allotments[self.allotment_name]
        return f"Allotment({self.allotment_name!r}, {now.share:.6g} of the ledger: {now})"


def rest_of_call(whole: Amounts, rest: Amounts) -> tuple[Spend, ...]:
    """Return what a call has not charged of its budget as a charge of its own.

    One that is negligible gets no line, but is in the totals too.
    """
    if all(map(negligible, rest, whole)):
        return ()
    epsilon, delta = round_up(rest[0]), round_up(rest[1])
    return (Spend("rest of the call", "rest", epsilon, delta, "none", (), (), 1),)


def negligible(rest: Fraction, whole: Fraction) -> bool:
    """Say whether this little is left because shares of a budget are rounded down."""
    return rest <= whole / 10**9


def kept_in(parts: Parts) -> Amounts:
    """What allotments have left, in sum."""
    return reduce(plus, (part.left for part in parts.values()), NONE)


def part_of(parts: Parts, name: str) -> Part:
    """Return the totals of an allotment."""
    require_name("allotment", name)
    if name not in parts:
        raise OptionError(
            f"the ledger has no allotment {name!r}; it has {', '.join(parts) or 'none'}"
        )
    return parts[name]


def open_part(parts: Parts, name: str) -> Part:
    """Return the totals of an allotment that calls may still charge."""
    part = part_of(parts, name)
    if not part.open:
        raise BudgetError(f"the allotment {name!r} was released, and pays for nothing any more")
    return part


def is_new(parts: Parts, name: str, share: Fraction) -> bool:
    """Say whether an allotment is still to be made; refuse another size of one that is there."""
    if name not in parts:
        return True
    if open_part(parts, name).share != share:
        size = float(parts[name].share)
        raise OptionError(f"the allotment {name!r} is {size} of the ledger, not {float(share)}")
    return False


def require_name(what: str, name: object) -> None:
    """Refuse what is no name, and names that look like another."""
    if not isinstance(name, str) or not name.strip() or not name.isprintable():
        raise OptionError(f"{what} must be a name, got {name!r}")
    plain = " ".join(unicodedata.normalize("NFC", name).split())
    if name != plain:
        raise OptionError(
            f"{what} {name!r} has spaces around it, several in a row, or letters that can be "
            f"written in another way: write {plain!r}"
        )


def agreed_terms(unit: str | None) -> Terms | None:
    """What every charge of a ledger must protect, where a column of units was agreed on."""
    if unit is None:
        return None
    if not (isinstance(unit, str) and unit):
        raise OptionError("unit must be the name of a column, as in dp_ate(..., unit=...)")
    return Terms(rows_of(unit))


def refusal(
    needed: Amounts,
    allowed: Budget,
    left: tuple[float, float],
    kept: tuple[float, float] = (0.0, 0.0),
    allotment: str = "",
) -> BudgetError:
    """The error that says what is needed, what is left, and what allotments keep."""
    return BudgetError(
        f"this needs epsilon = {float(needed[0]):.6g}, delta = {float(needed[1]):.3g}, but of "
        f"({allowed.epsilon:.6g}, {allowed.delta:.3g}) only "
        f"({left[0]:.6g}, {left[1]:.3g}) is left"
        + (f" in the allotment {allotment!r}" if allotment else "")
        + (f"; allotments keep ({kept[0]:.6g}, {kept[1]:.3g})" if any(kept) else "")
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
