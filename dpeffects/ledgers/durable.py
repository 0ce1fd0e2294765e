"""A ledger that outlives the process: `create_ledger`, `open_ledger`, `DurableLedger`.

Every charge is one transaction: read the totals, compare in exact arithmetic, add an entry, commit
to the disk; only then is noise drawn. A process that dies in between has paid for nothing, and
that is all that can happen (claim L1).
"""

from __future__ import annotations

import os
import platform
import unicodedata
from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

from dpeffects.errors import BudgetError, LedgerError, OptionError, checked_call, refusal
from dpeffects.lazy import pd
from dpeffects.ledgers.agreement import Agreement, payments, price_of, require_name
from dpeffects.ledgers.allotments import Divisible
from dpeffects.ledgers.chain import Address, Anchor, Chain, store_of
from dpeffects.ledgers.entry import NONE, LedgerEntry, State
from dpeffects.ledgers.loss_distributions import tight_epsilon
from dpeffects.ledgers.statement import OpenCall, Statement
from dpeffects.ledgers.transaction import EntryStore, Transaction
from dpeffects.privacy.budget import Budget
from dpeffects.privacy.charges import Charge
from dpeffects.privacy.ledger import Account, Terms
from dpeffects.summary import Summary, SummaryMixin, check_form


class DurableLedger(SummaryMixin, Divisible):
    """The privacy budget of one dataset, in a file or on a server. See `open_ledger`.

    It behaves as a `Ledger` does, and several processes may use it at once. Budget is reserved in
    one transaction when an estimation starts, so that it is refused before data is read or not at
    all. When it ends, well or not, all of it is spent if anything was charged, and refunded if
    nothing was: totals do not show how far a call came. A call that dies keeps its reservation
    until `settle` ends it in the same way.

    `allot` keeps a share of the budget for later calls, of this process or another: there
    ``open_ledger(address).allotment("secondary")`` is what they are charged to.

    Attributes
    ----------
    address, path
        Where the ledger is; its file, or None on a server.
    dataset, agreement
        Whose budget this is; what the dataset allows, and how charges add up.
    id
        Says which ledger this is: no other has the same, whatever its file is called.
    """

    def __init__(self, chain: Chain, opening: LedgerEntry) -> None:
        self._chain, self._store, self.transaction = chain, chain.store, chain.transaction
        self.address, self.path = chain.store.name, chain.store.path
        self.dataset = opening.dataset
        self.agreement = Agreement.read(opening.body)
        self.id = opening.digest[:16]

    @property
    def state(self) -> State:
        """Exact totals now."""
        with self.transaction(write=False) as transaction:
            return transaction.state(self.dataset)

    @property
    def charges(self) -> tuple[Charge, ...]:
        """All charges so far, in order."""
        return tuple(charge for entry in self.entries() for charge in payments(entry))

    def _change(self, kind: str, body: dict[str, Any], after: Callable[[State], State]) -> None:
        with self.transaction(write=True) as transaction:
            before = transaction.state(self.dataset)
            state = after(before)
            if state is not before:
                transaction.add(kind, self.dataset, body, state)

    def charge(self, charge: Charge, terms: Terms | None = None, *, allotment: str = "") -> None:
        """Record a charge, or refuse it. Call before the noise is drawn, never after."""
        self.charge_call(0, charge, terms, allotment)

    def charge_call(
        self, call: int, charge: Charge, terms: Terms | None, allotment: str = "", so_far: str = ""
    ) -> None:
        """Charge the reservation of a call, or what is left where ``call`` is 0.

        ``so_far`` is for errors: what the call has charged and drawn before.
        """
        try:
            with self.transaction(write=True, more=call > 0) as transaction:
                before = transaction.state(self.dataset)
                hold = transaction.hold(self.dataset, call) if call else None
                if call and hold is None:
                    raise BudgetError(refusal("reservation_call_was"))
                state, hold = self.agreement.charge(before, hold, charge, terms, allotment)
                body = {"charge": charge.to_dict(), "terms": terms} | _named(allotment)
                transaction.add("charge", self.dataset, body, state, hold, call)
        except LedgerError as error:
            raise LedgerError(f"{error}; no noise was drawn for this charge{so_far}") from error

    def reserve(
        self, budget: Budget, terms: Terms, about: Mapping[str, str], allotment: str = ""
    ) -> Account:
        """Reserve the whole budget of a call, or refuse it."""
        body = {
            "epsilon": budget.epsilon,
            "delta": budget.delta,
            "terms": terms,
            "about": {**about, "process": f"{platform.node()}:{os.getpid()}"},
        } | _named(allotment)
        with self.transaction(write=True, more=True) as transaction:
            before = transaction.state(self.dataset)
            state, hold = self.agreement.reserve(before, budget, terms, allotment)
            entry = transaction.add("reserve", self.dataset, body, state, hold)
        return Reservation(self, entry.number)

    def settle(self, *calls: int, reason: str = "by the curator") -> None:
        """End open calls; all of them if none is named.

        What a call has reserved is spent if it had charged anything, and refunded if not. This
        is safe at any time: a call that was alive after all is refused its next charge.
        """
        for call in calls or tuple(call.number for call in self.open_calls()):
            with self.transaction(write=True) as transaction:
                entry = transaction.entry(call)
                if entry is None or entry.kind != "reserve" or entry.dataset != self.dataset:
                    raise LedgerError(f"{self.dataset} has no call {call} in {self.address}")
                hold = transaction.hold(self.dataset, call)
                if hold is not None:
                    before = transaction.state(self.dataset)
                    state, hold = self.agreement.settle(before, hold)
                    transaction.add("settle", self.dataset, {"reason": reason}, state, hold, call)

    def open_calls(self) -> tuple[OpenCall, ...]:
        """Return the calls that still hold a reservation."""
        with self.transaction(write=False) as transaction:
            return self._open_calls(transaction)

    def _open_calls(self, transaction: Transaction) -> tuple[OpenCall, ...]:
        size = self.agreement.composition.largest_call
        return tuple(
            OpenCall(entry.number, *size(hold.left), entry.written, entry.body["about"])
            for entry, hold in transaction.open_calls(self.dataset)
        )

    def entries(self) -> list[LedgerEntry]:
        """Return all entries of this dataset, each checked against its digest."""
        with self.transaction(write=False) as transaction:
            return list(transaction.all(self.dataset))

    def verify(self, head: str | None = None) -> str:
        """Check the whole ledger, and say so in a line; see `verify_ledger`."""
        return self._chain.verify(head)

    def tight_epsilon(self, delta: float | None = None) -> float:
        """Return a tighter epsilon at ``delta`` for all charges so far (extra ``accounting``).

        See `dpeffects.ledgers.loss_distributions.tight_epsilon`. It is for reports: it does not
        decide what is refused.
        """
        return tight_epsilon(
            self.entries(), self.agreement.budget.delta if delta is None else delta
        )

    def statement(self) -> Statement:
        """Return totals, open calls and charges, all of the same moment."""
        with self.transaction(write=False) as transaction:
            return Statement(
                self.address,
                self.dataset,
                self.id,
                self.agreement,
                tuple(transaction.all(self.dataset)),
                self._open_calls(transaction),
            )

    def to_frame(self) -> pd.DataFrame:
        """One row a charge, oldest first."""
        return self.statement().to_frame()

    def export(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the charges to a .csv file, or the totals and all entries to a .json file."""
        self.statement().export(Path(path), overwrite=overwrite)

    def summary(self, form: str = "full") -> Summary:
        """Totals, what is left, open calls and charges; fewer of them where ``form="short"``."""
        whole = self.statement().summary()
        return whole.shortened() if check_form(form) == "short" else whole

    def __repr__(self) -> str:
        totals = self._totals(self.state)
        return f"DurableLedger({self.address!r}, dataset={self.dataset!r}, {totals})"

    __str__ = __repr__


def _named(allotment: str) -> dict[str, str]:
    return {"allotment": allotment} if allotment else {}


class Reservation(Account):
    """The part of a durable ledger that one call may charge."""

    def __init__(self, ledger: DurableLedger, call: int) -> None:
        self._ledger, self.call, self._paid = ledger, call, NONE

    def check(self, epsilon: Fraction, delta: Fraction, terms: Terms | None) -> None:
        """Nothing to check before a charge: the whole budget is reserved."""

    def charge(self, charge: Charge, terms: Terms | None = None) -> None:
        """Record a charge against the reservation, or refuse it."""
        self._ledger.charge_call(self.call, charge, terms, so_far=self._so_far)
        self._paid = self._paid.plus(price_of(charge))

    def settle(self) -> None:
        """End the reservation."""
        try:
            self._ledger.settle(self.call, reason="the call ended")
        except LedgerError as error:
            raise LedgerError(f"{error}{self._so_far}") from error

    @property
    def _so_far(self) -> str:
        epsilon, delta = map(float, self._paid)
        paid = f"charged epsilon {epsilon:.6g}, delta {delta:.3g}, and drawn what that pays for"
        return f"; before, the call has {paid if any(self._paid) else 'charged and drawn nothing'}"


@checked_call
def create_ledger(
    address: Address,
    dataset: str,
    *,
    epsilon: float,
    delta: float = 0.0,
    composition: str = "sum",
    unit: str | None = None,
    anchor: Address | None = None,
) -> DurableLedger:
    """Create a ledger for a dataset, or add a dataset to a study's ledger.

    Parameters
    ----------
    address
        A path (one SQLite file a study), or ``postgresql://user@host/database``.
    dataset
        A name for the data whose budget this is.
    epsilon, delta
        The total allowed, for good.
    composition
        "sum": epsilons and deltas add up. "zcdp": charges add up as concentrated privacy, which
        allows many more Gaussian releases at a given total (and about as many Laplace releases);
        it needs a delta.
    unit
        The column of persons, say, all of whose rows every call must protect
        (``dp_ate(..., unit="patient_id")``); calls that protect less are refused. Without it the
        first charge says what the ledger protects, and others are refused.
    anchor
        A second place, on another disk or server, as ``address`` is: the newest entry of the ledger
        is noted there before anything is drawn, and whoever opens the ledger later, by whatever
        call, is refused where it is older than that. It closes what a backup opens: a folder that
        is restored as a whole has its budget back, and nothing in it shows that.

    Returns
    -------
    DurableLedger

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> create_ledger(f"{folder.name}/study.db", "nsw", epsilon=3, delta=1e-5).remaining
    (3.0, 1e-05)
    """
    require_name("dataset", dataset)
    agreement = Agreement.make(epsilon, delta, composition, unit)
    store = store_of(address)
    if anchor is not None:
        _second_place(store, anchor)  # before there is a ledger that could be used without it
    store.create()
    with Chain(store).transaction(write=True) as transaction:
        for other in transaction.datasets():
            if _alike(other) == _alike(dataset):
                budget = Agreement.read(transaction.opening(other).body).budget
                raise LedgerError(
                    refusal("budget_exists", name=store.name, other=other, budget=budget)
                )
        transaction.add("dataset", dataset, agreement.body(), State())
    if anchor is not None:
        anchor_ledger(address, anchor)
    return open_ledger(address, dataset, anchor=anchor)


def _alike(name: str) -> str:
    """Two names with the same of this would be taken for one."""
    return "".join(unicodedata.normalize("NFKC", name).casefold().split())


def open_ledger(
    address: Address, dataset: str | None = None, *, anchor: Address | None = None
) -> DurableLedger:
    """Open a ledger that `create_ledger` made.

    Parameters
    ----------
    address
        A path, or ``postgresql://user@host/database``.
    dataset
        Which dataset's budget; needed where the ledger has several.
    anchor
        Where the anchor is, if not where the ledger says; see `create_ledger`.

    Returns
    -------
    DurableLedger

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> created = create_ledger(f"{folder.name}/study.db", "nsw", epsilon=3)
    >>> open_ledger(f"{folder.name}/study.db").dataset
    'nsw'
    """
    chain = Chain(_existing(address, dataset), anchor)
    with chain.transaction(write=False) as transaction:
        names = transaction.datasets()
        if dataset is None and len(names) == 1:
            dataset = names[0]
        if dataset not in names:
            asked = "say which dataset" if dataset is None else f"there is no dataset {dataset!r}"
            name = chain.store.name
            raise LedgerError(f"{name}: {asked}; it has {', '.join(names) or 'none yet'}")
        return DurableLedger(chain, transaction.opening(dataset))


def ledger_datasets(address: Address) -> tuple[str, ...]:
    """Return the names of the datasets in a ledger."""
    with Chain(_existing(address)).transaction(write=False) as transaction:
        return tuple(transaction.datasets())


def verify_ledger(
    address: Address, head: str | None = None, *, anchor: Address | None = None
) -> str:
    """Check a whole ledger, and say so in a line; raise LedgerError where it is not sound.

    Every entry must fit its digest and its predecessor, every total what the entries before it
    give, and no total may exceed what is allowed. A ledger that was set back to an earlier copy
    is sound in itself. It is noticed by the mark beside it, if that was not set back too, and by
    its anchor, if it has one (see `create_ledger`); else pass the ``head`` that an earlier check
    printed.

    Parameters
    ----------
    address, anchor
        As in :func:`open_ledger`.
    head
        The head that an earlier check printed.
    """
    return Chain(_existing(address), anchor).verify(head)


def anchor_ledger(address: Address, place: Address) -> None:
    """Note the newest entry of a ledger at a second place too, from here on.

    `create_ledger` does this for a new ledger. Use it for one that has no anchor yet, or whose
    anchor was lost or has moved, and only if you are sure that the ledger is the newest.
    """
    store = _existing(address)
    second = _second_place(store, place)
    with store.session(write=False) as session:
        book = Transaction(session)
        if (head := book.head()) is None:
            raise LedgerError(f"{store.name} has no dataset yet; create one before the anchor")
        first = book.opening(book.datasets()[0])
    named = str(second.path or second.name.replace(":***@", "@"))
    Anchor(second, first.digest).write(head.number, head.digest, more=False, make=True)
    with Chain(store, place).transaction(write=True) as book:
        if book.heads.anchor != named:
            book.add("anchor", first.dataset, {"anchor": named}, book.state(first.dataset))


def _second_place(store: EntryStore, place: Address) -> EntryStore:
    """Return the store of an anchor, made where there is none."""
    second = store_of(place)
    if len({os.path.realpath(x.path) if x.path else x.name for x in (store, second)}) == 1:
        raise OptionError("an anchor must be at another place than its ledger")
    second.create()
    return second


def _existing(address: Address, dataset: str | None = None) -> EntryStore:
    """Return the store of a ledger; where there is no file, say how to make one."""
    store = store_of(address)
    # os.path.exists, because Path.exists raises an error for names that no file can have
    if store.path is not None and not os.path.exists(store.path):
        name = dataset or "NAME"
        raise LedgerError(refusal("no_ledger", ledger=store.name, name=name))
    return store
