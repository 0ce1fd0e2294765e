"""Check a whole ledger by replaying it."""

from __future__ import annotations

from dataclasses import dataclass, field

from dpeffects.errors import DPEffectsError, LedgerError
from dpeffects.privacy.budget import Budget
from dpeffects.privacy.ledgers import rules
from dpeffects.privacy.ledgers.book import Book, Store
from dpeffects.privacy.ledgers.entries import START, Entry, Hold, State, read_terms
from dpeffects.privacy.ledgers.rules import Agreement


def verify(store: Store, head: str | None = None) -> str:
    """Check storage, chain and totals; say so in a line, or raise LedgerError."""
    with store.session(write=False) as session:
        faults = store.faults(session)
        if faults:
            raise LedgerError(f"{store.name} is not sound: {'; '.join(faults)}")
        book = Book(session)
        book.check_version()
        replay, last, seen = Replay(), START, head is None
        for number, entry in enumerate(book.all(), start=1):
            if entry.number != number or entry.previous != last:
                raise LedgerError(
                    f"{store.name} is not sound: entry {number} is missing or changed"
                )
            replay.follow(entry)
            last = entry.digest
            seen = seen or last == head
    if not seen:
        raise LedgerError(
            f"{store.name} does not hold the entry {head}: it was replaced or set back"
        )
    return (
        f"{store.name}: sound, {replay.entries} entries, {replay.charges} charges, "
        f"{len(replay.states)} dataset{'s' if len(replay.states) != 1 else ''}; head {last}"
    )


@dataclass
class Replay:
    """Totals from the events alone, compared with what each entry says."""

    agreements: dict[str, Agreement] = field(default_factory=dict)
    states: dict[str, State] = field(default_factory=dict)
    holds: dict[int, Hold] = field(default_factory=dict)
    entries: int = 0
    charges: int = 0

    def follow(self, entry: Entry) -> None:
        """Apply an entry, and compare."""
        try:
            state, hold = self._after(entry)
        except (DPEffectsError, KeyError) as error:
            raise LedgerError(f"entry {entry.number} should have been refused: {error}") from error
        if state != entry.state or hold != entry.hold:
            raise LedgerError(f"entry {entry.number} has totals that the entries do not give")
        self.states[entry.dataset] = state
        if hold is not None:
            self.holds[entry.call] = hold
        self.entries += 1
        self.charges += entry.kind == "charge"

    def _after(self, entry: Entry) -> tuple[State, Hold | None]:
        body = entry.body
        if entry.kind == "dataset" and entry.dataset not in self.states:
            self.agreements[entry.dataset] = Agreement.read(body)
            return State(), None
        agreement, state = self.agreements[entry.dataset], self.states[entry.dataset]
        if entry.kind == "reserve" and entry.call == entry.number:
            budget = Budget(body["epsilon"], body["delta"])
            return agreement.reserve(state, budget, read_terms(body["terms"]))
        hold = self.holds[entry.call] if entry.call else None
        if entry.kind == "charge":
            return agreement.charge(state, hold, *rules.read_charge(body))
        if entry.kind == "settle" and hold is not None and hold.open:
            return rules.settle(state, hold)
        raise LedgerError(f"{entry.kind} is out of place")
