"""What a site was asked, what it paid and what it answered, in the ledger of its data.

A thin layer over a durable ledger (`dpeffects.create_ledger`): requests and replies are entries
beside the charges of scripts, in the same file, under the same digests and totals, so what a
federation and a script spend on one dataset adds up. A request pays its whole price in one
transaction before anything is drawn, and its reply is kept before it is sent. A request that was
paid for and never answered stays paid for and is never drawn again: a crash loses budget, not
privacy. Who knows that the process which drew died unseen may have it drawn ``again``, unpaid:
there is one reply to a request in the ledger, and no other was ever shown.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from fractions import Fraction
from typing import Any, NamedTuple

from dpeffects.errors import BudgetError, LedgerError, OptionError, PolicyError, RefusalError
from dpeffects.ledgers import Address, create_ledger, open_ledger
from dpeffects.ledgers.transaction import Transaction as Book
from dpeffects.privacy.budget import Budget, as_written
from dpeffects.privacy.ledger import Terms, require_like
from dpeffects.services.document_checks import refused


class Price(NamedTuple):
    """What a request costs, and what that protects: charges of other terms do not add up."""

    epsilon: float
    delta: float = 0.0
    terms: Terms = Terms("record")


class Store:
    """The ledger of a site over all questions, safe against crashes and concurrent processes.

    It opens a ledger that is there, and never makes one: a ledger that is missing, empty, damaged,
    of another dataset or budget, or set back is a PolicyError.

    Parameters
    ----------
    address
        The ledger: a path, or ``postgresql://user@host/database``.
    epsilon, delta
        Totals over all requests and scripts, ever; they must be those of the ledger.
    dataset
        Which dataset's budget; needed where the ledger has several.
    ledger_id
        What ``dpeffects ledger create`` printed; another ledger is refused.
    anchor
        Where the ledger's anchor is, if not where the ledger says.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> store = Store.create(Path(tempfile.mkdtemp()) / "site.db", "hospital", epsilon=1.0)
    >>> store.reserve("q1", "hash", Price(0.5))
    >>> store.finish("q1", {"status": "ok"})
    >>> store.find("q1", "hash"), store.left
    ({'status': 'ok'}, (0.5, 0.0))
    """

    def __init__(
        self,
        address: Address,
        epsilon: float,
        delta: float = 0.0,
        *,
        dataset: str | None = None,
        ledger_id: str | None = None,
        anchor: Address | None = None,
    ) -> None:
        with self._ready():
            self._ledger = open_ledger(address, dataset, anchor=anchor)
        total = self._ledger.agreement.budget
        if (total.epsilon, total.delta) != (epsilon, delta):
            raise PolicyError(
                f"the policy's totals are epsilon = {epsilon:g}, delta = {delta:g}, and the ledger "
                f"{self._ledger.address} allows {total.epsilon:g}, {total.delta:g} for "
                f"{self._ledger.dataset}, for good: write these into the policy"
            )
        if ledger_id is not None and ledger_id != self._ledger.id:
            raise PolicyError(
                f"the ledger {self._ledger.address} is {self._ledger.id}, not the one that the "
                f"policy names, {ledger_id}: put that one back"
            )

    @classmethod
    def create(cls, address: Address, dataset: str, epsilon: float, delta: float = 0.0) -> Store:
        """Make the ledger of a site, once, and open it."""
        create_ledger(address, dataset, epsilon=epsilon, delta=delta)
        return cls(address, epsilon, delta, dataset=dataset)

    def find(self, request: str, question: str, again: bool = False) -> dict[str, Any] | None:
        """Return the stored reply, or None for a request that is new, or may be drawn ``again``.

        Raises RefusalError when the request is known with another question, or was reserved and
        has no reply.
        """
        with self._book(write=False) as book:
            return self._find(book, request, question, again)

    def reserve(self, request: str, question: str, price: Price, again: bool = False) -> None:
        """Pay for a new request, or refuse. Call before anything is drawn."""
        budget = Budget(price.epsilon, price.delta)
        with self._book(write=True) as book:
            if self._find(book, request, question, again) is not None:
                raise RefusalError("this request has been answered already")
            if book.asked(self._ledger.dataset, request) is not None:
                return  # paid for before
            state = book.state(self._ledger.dataset)
            try:
                after = self._ledger.agreement.pay(state, budget, price.terms)
            except BudgetError:
                raise self._refusal(book, price) from None
            body = {"request": request, "question": question, **price._asdict()}
            book.add("request", self._ledger.dataset, body, after)

    def finish(self, request: str, reply: Mapping[str, Any]) -> None:
        """Keep the reply to a reserved request; it can be kept once."""
        json.dumps(reply, allow_nan=False)
        with self._book(write=True) as book:
            latest = book.asked(self._ledger.dataset, request)
            if latest is None or latest.kind == "reply":
                raise BudgetError(f"request {request!r} is not waiting for a reply")
            body = {"request": request, "to": latest.number, "reply": dict(reply)}
            state = book.state(self._ledger.dataset)
            book.add("reply", self._ledger.dataset, body, state)

    @property
    def spent(self) -> tuple[Fraction, Fraction]:
        """Exact totals of epsilon and delta so far, of requests and of scripts."""
        with self._ready():
            return self._ledger.spent

    @property
    def left(self) -> tuple[float, float]:
        """What is left of epsilon and delta, rounded down."""
        with self._ready():
            return self._ledger.remaining

    def _find(self, book: Book, request: str, question: str, again: bool) -> dict[str, Any] | None:
        latest = book.asked(self._ledger.dataset, request)
        if latest is None:
            return None
        entry = book.entry(latest.body["to"]) if latest.kind == "reply" else latest
        if entry is None or entry.body["question"] != question:
            raise RefusalError("this request id was used for another question")
        if latest.kind == "request":
            if again:
                return None
            raise RefusalError(
                "lost: this request is paid for but was never answered, and is not drawn again; "
                "ask with a new request id"
            )
        reply: dict[str, Any] = latest.body["reply"]
        return reply

    def _refusal(self, book: Book, price: Price) -> RefusalError:
        """Say which total does not cover a price, and no amount."""
        agreement, state = self._ledger.agreement, book.state(self._ledger.dataset)
        try:
            require_like(agreement.terms(state), price.terms)
        except BudgetError:
            return RefusalError("this site's ledger holds charges that protect something else")
        cost = agreement.composition.of_call(as_written(price.epsilon), as_written(price.delta))
        name = "epsilon" if cost.first > agreement.left(state).first else "delta"
        return RefusalError(f"the total {name} of this site does not cover the question")

    @contextmanager
    def _book(self, write: bool) -> Iterator[Book]:
        """Begin a transaction on the ledger."""
        with self._ready(), self._ledger.transaction(write) as book:
            yield book

    def _ready(self) -> AbstractContextManager[None]:
        """A ledger that cannot be used is a site that is not ready."""
        return refused(PolicyError, "the site's ledger cannot be used: ", LedgerError, OptionError)
