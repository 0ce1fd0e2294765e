"""What a ledger says about a dataset at one moment: as text, frame and files."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from fractions import Fraction
from pathlib import Path
from typing import Any

from dpeffects import file_output
from dpeffects.errors import MissingExtraError, OptionError
from dpeffects.guarantee import protected
from dpeffects.lazy import pd
from dpeffects.ledgers.agreement import Agreement, payments
from dpeffects.ledgers.entry import LedgerEntry, State, read_stored, to_plain
from dpeffects.ledgers.loss_distributions import tight_epsilon
from dpeffects.privacy.budget import round_up
from dpeffects.privacy.charges import Charge
from dpeffects.privacy.ledger import Terms
from dpeffects.summary import Pairs, Summary, Table

COLUMNS = (
    *("entry", "call", "time", "method", "formula"),
    *(x.name for x in fields(Charge) if x.name != "alone"),
    *("unit", "public", "void", "allotment"),
)
_LISTED = 20
"""How many of the newest charges a summary lists."""


@dataclass(frozen=True)
class OpenCall:
    """A call that has reserved budget and has not ended: at work, or dead."""

    number: int
    epsilon: float
    delta: float
    since: str
    about: Mapping[str, str]


@dataclass(frozen=True)
class Statement:
    """Totals, open calls and charges of one dataset."""

    address: str
    dataset: str
    ledger_id: str
    agreement: Agreement
    entries: tuple[LedgerEntry, ...]
    open_calls: tuple[OpenCall, ...]

    @property
    def state(self) -> State:
        """The newest totals."""
        return self.entries[-1].state

    def charges(self) -> list[dict[str, Any]]:
        """Return one row a charge, with what its call was."""
        about = {e.number: e.body["about"] for e in self.entries if e.kind == "reserve"}
        return [
            _row(entry, charge, about.get(entry.call, {}))
            for entry in self.entries
            for charge in payments(entry)
        ]

    def to_frame(self) -> pd.DataFrame:
        """Return the charges as a pandas frame."""
        return pd.DataFrame(self.charges(), columns=list(COLUMNS))

    def export(self, path: Path, *, overwrite: bool) -> None:
        """Write the charges to a .csv file, or the totals and all entries to a .json file."""
        if path.suffix not in (".csv", ".json"):
            raise OptionError(f"a ledger is exported to a .csv or .json file, got {path.name!r}")
        text = self._json() if path.suffix == ".json" else self._csv()
        file_output.write(path, text, overwrite=overwrite, inputs=(self.address,))

    def _json(self) -> str:
        everything = {
            "ledger": self.address,
            "dataset": self.dataset,
            "id": self.ledger_id,
            "allowed": self.agreement.body(),
            "totals": self.state,
            "remaining": self.agreement.remaining(self.state),
            "charges": self.charges(),
            "entries": [entry.values() for entry in self.entries],
        }
        return json.dumps(everything, indent=2, default=to_plain) + "\n"

    def _csv(self) -> str:
        rows = [{k: _joined(x) for k, x in row.items()} for row in self.charges()]
        frame = pd.DataFrame(rows, columns=list(COLUMNS), dtype=object)
        return str(frame.to_csv(index=False, lineterminator="\r\n"))

    def summary(self) -> Summary:
        """Return totals, what is left, open calls and the newest charges."""
        terms = self.state.terms
        void = terms.void if terms else ()
        starred_warnings = f"*** SOME CHARGES PROTECT NOBODY: {', '.join(void)} ***" if void else ""
        title = f"Ledger {self.address}, dataset {self.dataset}"
        pairs = Pairs(tuple(self._pairs()))
        return Summary(title, starred_warnings, (pairs, *_table(self.charges())))

    def _pairs(self) -> Iterator[tuple[str, str]]:
        yield from self._totals()
        yield "Id", self.ledger_id
        for call in self.open_calls:
            what = ", ".join(filter(None, (call.about.get("method"), call.about.get("process"))))
            yield (
                f"Open call {call.number}",
                f"holds epsilon {call.epsilon:.6g}, delta {call.delta:.3g} since {call.since} "
                f"({what})",
            )
        if terms := self.agreement.terms(self.state):
            public = ", ".join(("n", *terms.public))
            yield "Protects", f"{protected(terms.unit)}; public: {public}"
        if self.state.charges:
            yield "Tighter", self._tighter()

    def _totals(self) -> Iterator[tuple[str, str]]:
        """What is allowed, spent and left, in a few words each."""
        rule, budget, state = self.agreement.composition, self.agreement.budget, self.state
        left = self.agreement.remaining(state)
        in_rho = rule.unit != "epsilon"
        limit = f" (by {rule.name}: {rule.unit} {float(self.agreement.limits.first):.6g})"
        used = f" ({rule.unit} {_up(state.used.first)})"
        yield (
            "Allowed",
            f"epsilon {budget.epsilon:.6g}, delta {budget.delta:.3g}{limit if in_rho else ''}",
        )
        yield (
            "Spent",
            f"epsilon {_up(state.spent.first)}, delta {_up(state.spent.delta, 3)} in "
            f"{state.charges} charge{'s' if state.charges != 1 else ''}{used if in_rho else ''}",
        )
        for_one = " for one call" if in_rho else ""
        yield "Left", f"epsilon {left[0]:.6g}, delta {left[1]:.3g}{for_one}"
        for name, now in self.agreement.allotments(state).items():
            yield f"Allotment {name}", f"{now.share:.6g} of the total{for_one}: {now}"

    def _tighter(self) -> str:
        delta = self.agreement.budget.delta
        if not delta:
            return "n/a at delta 0"
        try:
            epsilon = tight_epsilon(self.entries, delta)
        except MissingExtraError:
            return 'pip install "dpeffects[accounting]"'
        text = f"epsilon {epsilon:.6g}" if math.isfinite(epsilon) else "none"
        return f"{text} at delta {delta:.3g}, if budgets did not depend on results"


def _row(entry: LedgerEntry, charge: Charge, about: Mapping[str, str]) -> dict[str, Any]:
    terms = read_stored(Terms, entry.body.get("terms") or ("", (), ()))
    values = {
        "entry": entry.number,
        "call": entry.call or None,
        "time": entry.written,
        "method": about.get("method", ""),
        "formula": about.get("formula", ""),
        **charge.to_dict(),
        "unit": terms.unit,
        "public": list(terms.public),
        "void": list(terms.void),
        "allotment": entry.hold.allotment if entry.hold else entry.body.get("allotment", ""),
    }
    return {name: values[name] for name in COLUMNS}


def _table(rows: list[dict[str, Any]]) -> tuple[Table, ...]:
    if not rows:
        return ()
    columns = ["call", "UTC", "method", "label", "mechanism", "epsilon", "delta"]
    columns += [name for name in ("allotment", "void") if any(row[name] for row in rows)]
    listed = [
        row | {"UTC": row["time"][:16].replace("T", " "), "void": ", ".join(row["void"])}
        for row in rows[-_LISTED:]
    ]
    cells = tuple(tuple(_cell(row[c]) for c in columns) for row in listed)
    more = len(rows) > _LISTED
    title = f"Charges (the newest {_LISTED} of {len(rows)})" if more else "Charges"
    return (Table(title, tuple(columns), cells, "rllllrrll"[: len(columns)]),)


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def _joined(value: Any) -> Any:
    return "; ".join(map(str, value)) if isinstance(value, list) else value


def _up(value: Fraction, digits: int = 6) -> str:
    return f"{round_up(value):.{digits}g}"
