"""The ledger: charge first, then draw. In memory here; in a file or on a server in `ledgers`."""

from __future__ import annotations

import math
import os
import threading
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from functools import reduce
from numbers import Real
from typing import NamedTuple, Self

from dpeffects.errors import BudgetError, LedgerError, OptionError, checked_call
from dpeffects.guarantee import column_of, protected, rows_of
from dpeffects.privacy.budget import Budget, as_written, round_down, round_up
from dpeffects.privacy.charges import Spend

Amounts = tuple[Fraction, Fraction]
"""Exact epsilon and delta."""
NONE: Amounts = (Fraction(0), Fraction(0))


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
    def charge(self, spend: Spend, terms: Terms | None = None) -> None:
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
        return self._replace(left=_minus(self.left, cost))

    def after(self, price: Amounts) -> Self:
        """After this much was charged."""
        return self._replace(spent=_plus(self.spent, price))

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


class Ledger(Divisible):
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
        self._allowed = Budget(epsilon, delta)
        self._spends: list[Spend] = []
        self._spent = self._held = NONE
        self._parent, self._terms = parent, terms or agreed_terms(unit)
        self._allotted: Parts = {}
        self._void: set[str] = set()
        self._lock = threading.RLock()
        self._process = os.getpid()

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
        """What is neither spent nor reserved, rounded down; less than 1e-12 is shown as none."""
        return _all_shown(self._left())

    def _left(self) -> Amounts:
        """What is left; read in this order, what goes from reserved to spent counts twice."""
        return _minus(_minus(self._allowed.exact, self._held), self._spent)

    def check(
        self, epsilon: Fraction, delta: Fraction, terms: Terms | None, allotment: str = ""
    ) -> None:
        """Raise BudgetError unless this much is left on these terms; charges nothing."""
        self._require_own_process()
        require_like(self._terms, terms)
        if self._parent is not None:
            self._parent.check(epsilon, delta, self._terms)
        if allotment:
            left = open_part(self._allotted, allotment).left
            self._require_room((epsilon, delta), left, allotment=allotment)
        else:
            self._require_room((epsilon, delta), self._left(), kept_in(self._allotted))

    def _require_room(
        self, price: Amounts, left: Amounts, kept: Amounts = NONE, allotment: str = ""
    ) -> None:
        if price[0] > left[0] or price[1] > left[1]:
            raise refusal(price, self._allowed, _all_shown(left), _all_shown(kept), allotment)

    @property
    def allotments(self) -> dict[str, Allotted]:
        """Size, spent and left of all allotments by name, also of those that were released."""
        return {
            name: Allotted.of(part, _all_shown(self._size(part.share)), _all_shown(part.left))
            for name, part in self._allotted.items()
        }

    @property
    def _parts(self) -> Parts:
        return self._allotted

    def _put(self, name: str, part: Part) -> None:
        """Change the totals of an allotment; who reads them has a mapping that stays as it is."""
        self._allotted = {**self._allotted, name: part}

    def _size(self, share: Fraction) -> Amounts:
        epsilon, delta = self._allowed.exact
        return share * epsilon, share * delta

    def _hold(self, name: str, share: Fraction) -> None:
        self._require_own_process()
        if self._parent is not None:
            raise OptionError("this ledger charges another one too: allot a share of that one")
        with self._lock:
            if is_new(self._allotted, name, share):
                self._require_room(self._size(share), self._left(), kept_in(self._allotted))
                self._held = _plus(self._held, self._size(share))
                self._put(name, Part(share, self._size(share)))

    def release(self, name: str) -> None:
        """End an allotment: what is unspent is left again for calls to the ledger itself.

        Calls that are open keep what they have reserved. A second time does nothing; the name is
        not given again.
        """
        self._require_own_process()
        with self._lock:
            part = part_of(self._allotted, name)
            self._held = _minus(self._held, part.left)
            self._put(name, part.released())

    def reserve(
        self, budget: Budget, terms: Terms, about: Mapping[str, str], allotment: str = ""
    ) -> Account:
        """Reserve the whole budget of a call, or refuse it."""
        self._require_own_process()
        with self._lock:
            self.check(*budget.exact, terms, allotment)
            above = self._parent.reserve(budget, terms, about) if self._parent else None
            if allotment:
                self._put(allotment, self._allotted[allotment].less(budget.exact))
            else:
                self._held = _plus(self._held, budget.exact)
        return Reserved(self, budget.exact, above, allotment)

    def charge(
        self,
        spend: Spend,
        terms: Terms | None = None,
        part: Reserved | None = None,
        *,
        allotment: str = "",
    ) -> None:
        """Record a charge, or refuse it. Call before the noise is drawn, never after.

        It is charged to ``part``, what a call has reserved, or else to what is left.
        """
        allotment = part.allotment_name if part else allotment
        require_positive(spend)
        self._require_own_process()
        price = (Fraction(spend.epsilon), Fraction(spend.delta))
        with self._lock:
            require_like(self._terms, terms)
            if part is None:
                self.check(*price, terms, allotment)
            elif not part.open:
                raise BudgetError("the reservation of this call was settled: it pays for no more")
            else:
                self._require_room(price, part.left)
            above = part.above if part else self._parent
            if above is not None:
                above.charge(spend, self._terms or terms)
            self._terms = self._terms or terms
            self._void |= set(terms.void if terms else ())
            self._spent = _plus(self._spent, price)
            self._spends.append(spend)
            if part is not None or allotment:
                self._held = _minus(self._held, price)
            if part is not None:
                part.left, part.charged = _minus(part.left, price), True
            if allotment:
                own = self._allotted[allotment].after(price)
                self._put(allotment, own if part else own.less(price))

    def _require_own_process(self) -> None:
        if os.getpid() != self._process:
            raise LedgerError(
                "this ledger is in the memory of the process that made it, and this one was forked "
                "from it: use a ledger in a file (dpeffects.create_ledger)"
            )

    def cover(self, spend: Spend) -> None:
        """Name a release of other rows that charges made here pay for too (claim 11)."""
        price = f"{spend.epsilon:.3g}" + (f", {spend.delta:.3g}" if spend.delta else "")
        label = f"{spend.label}, other half ({price} covered by claim 11)"
        named = replace(spend, label=label, epsilon=0.0, delta=0.0, alone=False)
        with self._lock:
            self._spends.append(named)

    def __repr__(self) -> str:
        with self._lock:
            left, held = self.remaining, _minus(self._held, kept_in(self._allotted))
        reserved = f", reserved ({float(held[0]):.6g}, {float(held[1]):.3g})" if any(held) else ""
        return (
            f"Ledger(epsilon={self._allowed.epsilon:.6g}, delta={self._allowed.delta:.3g}, "
            f"{len(self._spends)} charges, left ({left[0]:.6g}, {left[1]:.3g}){reserved}"
            + "".join(f", allotment {name} {now}" for name, now in self.allotments.items())
            + (f", VOID: {', '.join(sorted(self._void))})" if self._void else ")")
        )


class Reserved(Account):
    """The part of a ledger in memory that one call may charge."""

    def __init__(
        self, ledger: Ledger, whole: Amounts, above: Account | None, allotment: str = ""
    ) -> None:
        self._ledger, self.whole, self.above = ledger, whole, above
        self.allotment_name = allotment
        self.left, self.charged, self.open = whole, False, True

    def check(self, epsilon: Fraction, delta: Fraction, terms: Terms | None) -> None:
        """Nothing to check before a charge: the whole budget is reserved."""

    def charge(self, spend: Spend, terms: Terms | None = None) -> None:
        """Record a charge against the reservation, or refuse it."""
        self._ledger.charge(spend, terms, self)

    def settle(self) -> None:
        """End the reservation; a second time does nothing."""
        ledger = self._ledger
        with ledger._lock:
            if not self.open:
                return
            self.open, rest = False, self.left
            if self.charged:
                ledger._spent = _plus(ledger._spent, rest)
                ledger._spends.extend(rest_of_call(self.whole, rest))
            part = ledger._allotted.get(self.allotment_name)
            if part is not None and self.charged:
                ledger._put(self.allotment_name, part.after(rest))
            elif part is not None and part.open:  # it stays held
                ledger._put(self.allotment_name, part.less((-rest[0], -rest[1])))
                rest = NONE
            ledger._held = _minus(ledger._held, rest)
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
        self.price: Spend | None = None
        if disjoint:
            label, (epsilon, delta) = (
                "disjoint subsets, all together",
                map(round_down, budget.exact),
            )
            self.price = Spend(label, "subsets", epsilon, delta, "no draw", (), (), 31)
        self._paid = False

    def check(self, epsilon: Fraction, delta: Fraction, terms: Terms | None) -> None:
        """Raise where a part of disjoint ones asks for more than half."""
        if self.price and (
            2 * epsilon > self._budget.exact[0] or 2 * delta > self._budget.exact[1]
        ):
            raise BudgetError("a part of disjoint ones has at most half of the budget")

    def reserve(self, budget: Budget, terms: Terms, about: Mapping[str, str]) -> Account:
        """Reserve the whole for the first part."""
        self.check(*budget.exact, terms)
        if self._account is not None and self._held is None:
            self._held = self._account.reserve(self._budget, terms, about)
        return self

    def charge(self, spend: Spend, terms: Terms | None = None) -> None:
        """Charge what a part spends, or, for disjoint parts, the whole at once."""
        if self._held is not None and not (self.price and self._paid):
            self._held.charge(self.price or spend, terms)
            self._paid = True

    def end(self) -> None:
        """End the reservation; parts do not."""
        if self._held is not None:
            self._held.settle()


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


def _plus(one: Amounts, other: Amounts) -> Amounts:
    return one[0] + other[0], one[1] + other[1]


def _minus(one: Amounts, other: Amounts) -> Amounts:
    return one[0] - other[0], one[1] - other[1]


def _all_shown(left: Amounts) -> tuple[float, float]:
    return shown(left[0]), shown(left[1])


def kept_in(parts: Parts) -> Amounts:
    """What allotments have left, in sum."""
    return reduce(_plus, (part.left for part in parts.values()), NONE)


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


def require_positive(spend: Spend) -> None:
    """Refuse a charge that is not a price."""
    epsilon, delta = spend.epsilon, spend.delta
    if not (epsilon >= 0 and delta >= 0 and 0 < epsilon + delta < math.inf):
        raise BudgetError(f"a charge must be positive, got {spend.epsilon}, {spend.delta}")


def agreed_terms(unit: str | None) -> Terms | None:
    """What every charge of a ledger must protect, where a column of units was agreed on."""
    if unit is None:
        return None
    if not (isinstance(unit, str) and unit):
        raise OptionError("unit must be the name of a column, as in dp_ate(..., unit=...)")
    return Terms(rows_of(unit))


def require_like(held: Terms | None, terms: Terms | None) -> None:
    """Refuse charges that protect something else than those already here."""
    if terms and held and terms[:2] != held[:2]:
        old, new = (
            f"{protected(x.unit)} (public: {', '.join(x.public) or 'n only'})"
            for x in (held, terms)
        )
        raise BudgetError(
            f"this ledger protects {old}; this call protects {new}. {_mixed(held.unit, terms.unit)}"
        )


def _mixed(held: str, new: str) -> str:
    """Say what the sum of charges that protect different things would be worth."""
    columns = [column for column in map(column_of, (held, new)) if column]
    if not columns:
        return "The two do not add up: give the call a ledger of its own"
    if len(columns) == 2:
        why = (
            f"rows of one {columns[0]} may be of several {columns[1]}, so that the sum would be a "
            "promise for neither"
        )
    else:
        finer = "an outcome" if "outcome" in (held, new) else "a record"
        why = (
            f"what is spent to protect {finer} protects one {columns[0]} with k rows at k times "
            f"its epsilon only, and what is spent to protect one {columns[0]} protects a record "
            "only as long as it stays with its own, so that the sum would be a promise for neither"
        )
    return (
        f"The two do not add up: {why}. Give the call a ledger of its own, and report both; or ask "
        f"for the same unit in all calls (a ledger can be made for one: unit=...)"
    )


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
