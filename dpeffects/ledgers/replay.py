"""Check a whole ledger by replaying its entries."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

from dpeffects.errors import DPEffectsError, LedgerError
from dpeffects.ledgers.agreement import Agreement, payments, read_charge
from dpeffects.ledgers.entry import START, Heads, Hold, LedgerEntry, State, read_terms
from dpeffects.ledgers.transaction import Transaction
from dpeffects.ledgers.tree import Node
from dpeffects.privacy.budget import Budget


@dataclass
class Replay:
    """Totals from the events alone, compared with what each entry says."""

    agreements: dict[str, Agreement] = field(default_factory=dict)
    states: dict[str, State] = field(default_factory=dict)
    holds: dict[int, Hold] = field(default_factory=dict)
    heads: Heads = field(default_factory=Heads)
    nodes: dict[tuple[str, str], Node] = field(default_factory=dict)
    requests: dict[tuple[str, str], int] = field(default_factory=dict)
    digests: set[str] = field(default_factory=set)
    last: str = START
    entries: int = 0
    charges: int = 0

    @classmethod
    def of(cls, transaction: Transaction) -> Replay:
        """Replay all entries, or raise LedgerError where they do not fit together."""
        replay = cls()
        for entry in transaction.all():
            replay.follow(entry)
        return replay

    def follow(self, entry: LedgerEntry) -> None:
        """Apply an entry, and compare."""
        tree = "requests" if entry.kind in ("request", "reply") else "calls"
        try:
            state, hold = self._after(entry)
            heads, nodes = self.heads.after(lambda _, place: self.nodes[tree, place], entry)
        except (DPEffectsError, KeyError) as error:
            raise LedgerError(f"entry {entry.number} should have been refused: {error}") from error
        if (state, hold, heads, nodes) != (entry.state, entry.hold, entry.heads, entry.nodes):
            raise LedgerError(f"entry {entry.number} has totals that the entries do not give")
        self.states[entry.dataset], self.heads, self.last = state, heads, entry.digest
        self.nodes |= {(tree, place): node for place, node in nodes.items()}
        self.digests.add(entry.digest)
        if hold is not None:
            self.holds[entry.call] = hold
        self.entries += 1
        self.charges += len(payments(entry))

    def _after(self, entry: LedgerEntry) -> tuple[State, Hold | None]:
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
        if entry.kind == "anchor":
            return state, None
        if entry.kind in ("request", "reply"):
            return self._asked(entry, agreement, state), None
        hold = self.holds[entry.call] if entry.call else None
        if entry.kind == "charge":
            return agreement.charge(state, hold, *read_charge(body), allotment)
        if entry.kind == "settle" and hold is not None and hold.open:
            return agreement.settle(state, hold)
        raise LedgerError(f"{entry.kind} is out of place")

    def _asked(self, entry: LedgerEntry, agreement: Agreement, state: State) -> State:
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
