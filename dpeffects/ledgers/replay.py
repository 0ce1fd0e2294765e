"""Check a whole ledger, or bring one of layout version 1 up to date, by replaying its entries."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction

from dpeffects.errors import DPEffectsError, LedgerError
from dpeffects.ledgers.agreement import Agreement, payments, read_charge, refund
from dpeffects.ledgers.entry import (
    NONE,
    START,
    Entry,
    Heads,
    Hold,
    State,
    heads_after,
    read_terms,
)
from dpeffects.ledgers.transaction import VERSION, EntryStore, Transaction
from dpeffects.privacy.budget import Budget


def verify(store: EntryStore, head: str | None = None) -> str:
    """Check storage, chain and totals; say so in a line, or raise LedgerError."""
    with store.session(write=False) as session:
        store.require_sound(session)
        replay = Replay.of(Transaction(session))
    if head is not None and head not in replay.digests:
        raise LedgerError(
            f"{store.name} does not hold the entry {head}: it was replaced or set back"
        )
    return (
        f"{store.name}: sound, {replay.entries} entries, {replay.charges} charges, "
        f"{len(replay.states)} dataset{'s' if len(replay.states) != 1 else ''}; head {replay.last}"
    )


def upgrade(store: EntryStore) -> str:
    """Check all entries, add the columns and the heads of this version, and end open calls."""
    with store.session(write=True) as session:
        transaction = Transaction(session, check_version=False)
        versions = transaction.versions()
        if versions != [1]:
            transaction.check_version()
            return f"{store.name} has layout version {versions[0]} already"
        store.require_sound(session)
        store.upgrade_tables(session)
        replay = Replay.of(transaction)
        for number, (dataset, head) in enumerate(replay.heads.items()):
            if number == 0:
                state = replay.states[dataset]
                transaction.add("upgrade", dataset, {"from": 1}, state, heads=replay.heads)
            for call in head.calls:
                before = transaction.state(dataset)
                state, hold = replay.agreements[dataset].settle(before, replay.holds[call])
                body = {"reason": "open when the ledger was brought up to date"}
                transaction.add("settle", dataset, body, state, hold, call)
    return f"{store.name}: brought up to layout version {VERSION}, {replay.entries} entries checked"


@dataclass
class Replay:
    """Totals from the events alone, compared with what each entry says."""

    agreements: dict[str, Agreement] = field(default_factory=dict)
    states: dict[str, State] = field(default_factory=dict)
    holds: dict[int, Hold] = field(default_factory=dict)
    heads: Heads = field(default_factory=dict)
    requests: dict[tuple[str, str], int] = field(default_factory=dict)
    digests: set[str] = field(default_factory=set)
    last: str = START
    sealed: bool = False
    entries: int = 0
    charges: int = 0

    @classmethod
    def of(cls, transaction: Transaction) -> Replay:
        """Replay all entries, or raise LedgerError where they do not fit together."""
        replay = cls()
        for entry in transaction.all():
            replay.follow(entry)
        return replay

    def follow(self, entry: Entry) -> None:
        """Apply an entry, and compare."""
        try:
            state, hold = self._after(entry)
            heads = heads_after(self.heads, entry.number, entry.kind, entry.dataset, entry.call)
        except (DPEffectsError, KeyError) as error:
            raise LedgerError(f"entry {entry.number} should have been refused: {error}") from error
        stored = hold
        if hold is not None and not entry.heads:  # layout version 1
            stored = replace(hold, whole=NONE, paid=NONE)
        old = not entry.heads and not self.sealed
        if state != entry.state or stored != entry.hold or not (old or entry.heads == heads):
            raise LedgerError(f"entry {entry.number} has totals that the entries do not give")
        self.states[entry.dataset], self.heads, self.last = state, heads, entry.digest
        self.sealed = bool(entry.heads)
        self.digests.add(entry.digest)
        if hold is not None:
            self.holds[entry.call] = hold
        self.entries += 1
        self.charges += len(payments(entry))

    def _after(self, entry: Entry) -> tuple[State, Hold | None]:
        body = entry.body
        if entry.kind == "dataset" and entry.dataset not in self.states:
            self.agreements[entry.dataset] = Agreement.read(body)
            return State(), None
        agreement, state = self.agreements[entry.dataset], self.states[entry.dataset]
        allotment = body.get("allotment", "")
        if entry.kind == "allot" and allotment not in state.allotments:
            return agreement.allot(state, allotment, Fraction(body["share"])), None
        if entry.kind == "release" and state.allotments[allotment].open:
            return agreement.release(state, allotment), None
        if entry.kind == "reserve" and entry.call == entry.number:
            budget = Budget(body["epsilon"], body["delta"])
            return agreement.reserve(state, budget, read_terms(body["terms"]), allotment)
        if entry.kind == "upgrade" and not self.sealed:
            return state, None
        if entry.kind in ("request", "reply") and body["before"] == self.heads[entry.dataset].asked:
            return self._asked(entry, agreement, state), None
        hold = self.holds[entry.call] if entry.call else None
        if entry.kind == "charge":
            return agreement.charge(state, hold, *read_charge(body), allotment)
        if entry.kind == "settle" and hold is not None and hold.open:
            return (agreement.settle if entry.heads else refund)(state, hold)
        raise LedgerError(f"{entry.kind} is out of place")

    def _asked(self, entry: Entry, agreement: Agreement, state: State) -> State:
        """A request is paid for once, and a reply follows its request once."""
        body = entry.body
        key = (entry.dataset, body["request"])
        if entry.kind == "reply":
            if self.requests[key] != body["to"]:
                raise LedgerError("a reply is out of place")
            self.requests[key] = 0
            return state
        if key in self.requests:
            raise LedgerError("a request is there twice")
        self.requests[key] = entry.number
        return agreement.pay(
            state, Budget(body["epsilon"], body["delta"]), read_terms(body["terms"])
        )
