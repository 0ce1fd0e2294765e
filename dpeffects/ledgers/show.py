"""A ledger as text, frame and files."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable
from fractions import Fraction
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpeffects import writing
from dpeffects.errors import MissingExtraError, OptionError
from dpeffects.ledgers.entries import Entry, State, read_terms
from dpeffects.ledgers.rules import Agreement, payments
from dpeffects.privacy.budget import round_up
from dpeffects.privacy.guarantee import Spend
from dpeffects.summary import Pairs, Summary, Table

if TYPE_CHECKING:
    import pandas as pd

    from dpeffects.ledgers.durable import DurableLedger

COLUMNS = (
    "entry",
    "call",
    "time",
    "method",
    "formula",
    "label",
    "share",
    "epsilon",
    "delta",
    "mechanism",
    "sensitivity",
    "scale",
    "claim",
    "unit",
    "public",
    "void",
)
_SHOWN = 20
"""How many of the newest charges a summary lists."""


def charges(entries: Iterable[Entry]) -> list[dict[str, Any]]:
    """Return one row a charge, with what its call was."""
    about: dict[int, dict[str, str]] = {0: {}}
    rows = []
    for entry in entries:
        if entry.kind == "reserve":
            about[entry.number] = entry.body["about"]
        rows += [_row(entry, spend, about.get(entry.call, {})) for spend in payments(entry)]
    return rows


def _row(entry: Entry, spend: Spend, about: dict[str, str]) -> dict[str, Any]:
    given = entry.body.get("terms")
    terms = read_terms(given) if given else None
    found = {
        "entry": entry.number,
        "call": entry.call or None,
        "time": entry.written,
        "method": about.get("method", ""),
        "formula": about.get("formula", ""),
        **spend.to_dict(),
        "unit": terms.unit if terms else "",
        "public": list(terms.public) if terms else [],
        "void": list(terms.void) if terms else [],
    }
    return {name: found[name] for name in COLUMNS}


def to_frame(entries: Iterable[Entry]) -> pd.DataFrame:
    """Return the charges as a pandas frame."""
    import pandas as pd

    return pd.DataFrame(charges(entries), columns=list(COLUMNS))


def export(ledger: DurableLedger, path: Path, *, overwrite: bool) -> None:
    """Write the charges to a .csv file, or the totals and all entries to a .json file."""
    if path.suffix not in (".csv", ".json"):
        raise OptionError(f"a ledger is exported to .csv or .json, got {path.name!r}")
    entries = ledger.entries()
    text = StringIO(newline="")
    if path.suffix == ".json":
        text.write(json.dumps(_everything(ledger, entries), indent=2) + "\n")
    else:
        writer = csv.DictWriter(text, COLUMNS)
        writer.writeheader()
        for row in charges(entries):
            writer.writerow(
                {k: "; ".join(map(str, v)) if isinstance(v, list) else v for k, v in row.items()}
            )
    writing.write(path, text.getvalue(), overwrite=overwrite, inputs=(ledger.address,))


def _everything(ledger: DurableLedger, entries: list[Entry]) -> dict[str, Any]:
    state = entries[-1].state
    return {
        "ledger": ledger.address,
        "dataset": ledger.dataset,
        "id": ledger.id,
        "allowed": ledger.agreement.body(),
        "totals": json.loads(state.text()),
        "remaining": list(ledger.agreement.remaining(state)),
        "charges": charges(entries),
        "entries": [entry.values() for entry in entries],
    }


def totals(agreement: Agreement, state: State) -> dict[str, str]:
    """Return what is allowed, spent, reserved and left, in a few words each."""
    rule, budget = agreement.composition, agreement.budget
    found = {
        "Allowed": f"epsilon {budget.epsilon:.6g}, delta {budget.delta:.3g}",
        "Spent": f"epsilon {_up(state.spent.first)}, delta {_up(state.spent.delta, 3)} "
        f"in {state.charges} charge{'s' if state.charges != 1 else ''}",
    }
    if rule.unit != "epsilon":
        limit, used = agreement.limits.first, state.used.first
        found["Allowed"] += f" (by {rule.name}: {rule.unit} {float(limit):.6g})"
        found["Spent"] += f" ({rule.unit} {_up(used)})"
    left = agreement.remaining(state)
    found["Left"] = f"epsilon {left[0]:.6g}, delta {left[1]:.3g}"
    if rule.unit != "epsilon":
        found["Left"] += " for one call"
    return found


def summary(ledger: DurableLedger) -> Summary:
    """Return totals, what is left, open calls and the newest charges."""
    entries = ledger.entries()
    state = entries[-1].state
    pairs = totals(ledger.agreement, state) | {"Id": ledger.id}
    for call in ledger.open_calls():
        what = ", ".join(filter(None, (call.about.get("method"), call.about.get("process"))))
        pairs[f"Open call {call.number}"] = (
            f"holds epsilon {call.epsilon:.6g}, delta {call.delta:.3g} since {call.since} ({what})"
        )
    if state.terms:
        known = ", ".join(("n", *state.terms.public))
        pairs["Protects"] = f"one {state.terms.unit}; public: {known}"
    if state.charges:
        pairs["Tighter"] = _tighter(ledger)
    void = state.terms.void if state.terms else ()
    alert = f"*** SOME CHARGES PROTECT NOBODY: {', '.join(void)} ***" if void else ""
    title = f"Ledger {ledger.address}, dataset {ledger.dataset}"
    return Summary(title, alert, (Pairs(tuple(pairs.items())), *_table(charges(entries))))


def _table(rows: list[dict[str, Any]]) -> tuple[Table, ...]:
    if not rows:
        return ()
    columns = ["call", "UTC", "method", "label", "mechanism", "epsilon", "delta", "void"]
    if not any(row["void"] for row in rows):
        columns.remove("void")
    shown = [
        row | {"UTC": row["time"][:16].replace("T", " "), "void": ", ".join(row["void"])}
        for row in rows[-_SHOWN:]
    ]
    cells = tuple(tuple(_cell(row[c]) for c in columns) for row in shown)
    more = len(rows) > _SHOWN
    title = f"Charges (the newest {_SHOWN} of {len(rows)})" if more else "Charges"
    return (Table(title, tuple(columns), cells, "rllllrrl"[: len(columns)]),)


def _tighter(ledger: DurableLedger) -> str:
    delta = ledger.agreement.budget.delta
    if not delta:
        return "n/a at delta 0"
    try:
        epsilon = ledger.tight(delta)
    except MissingExtraError:
        return 'pip install "dpeffects[accounting]"'
    text = f"epsilon {epsilon:.6g}" if math.isfinite(epsilon) else "none"
    return f"{text} at delta {delta:.3g}, if budgets did not depend on results"


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def _up(value: Fraction, digits: int = 6) -> str:
    return f"{round_up(value):.{digits}g}"
