"""One call: what every public function does before its method runs, and after.

A `Call` is opened before data is read (an overspend is refused then), reads and validates the
data, divides the budget, finds bounds that nobody declared, hands out the curator, and in the end
says what was promised and paid. When it is closed, its ledger books the whole budget as spent if
anything was charged, and gets all of it back if nothing was: totals do not show how far it came.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np

from dpeffects.design import read as design
from dpeffects.design.engines import LazyRows, LazyTable
from dpeffects.errors import BoundsError, LedgerError, OptionError
from dpeffects.estimators.spec import Facts
from dpeffects.formula import Formula
from dpeffects.formula.expression import source
from dpeffects.formula.strata import Strata
from dpeffects.ledgers import Address, DurableLedger, open_ledger
from dpeffects.privacy.bounds import SOURCES, Bounds, records_needed, skeleton
from dpeffects.privacy.budget import Budget, Share, merge_shares
from dpeffects.privacy.curator import Curator, Releaser, find_bounds
from dpeffects.privacy.guarantee import Guarantee
from dpeffects.privacy.ledger import Account, Ledger, Terms
from dpeffects.privacy.noise import NoiseSource, noise_source
from dpeffects.privacy.rows import Rows

_BOUNDS_SHARE = 0.5
"""Proportion for finding bounds privately, beside the method's own shares, which sum to about 1."""

_FROM_DATA = ("bounds read from data",)
_NOT_OURS = {"library": "drawn by the library", "none": "none"}


@dataclass(frozen=True)
class Ask:
    """What a user asks for beside formula, data and method."""

    budget: Budget
    bounds: Mapping[str, Any] | str | None = None
    shares: Mapping[str, float] | None = None
    variance: bool = True
    ledger: Account | Address | None = None
    seed: int | NoiseSource | None = None
    dataset: str | None = None
    attended: bool = True
    """False: nobody who may see the data gets the errors, so none may depend on who is treated."""

    def __post_init__(self) -> None:
        if not isinstance(self.variance, bool):
            raise OptionError(f"variance must be True or False, got {self.variance!r}")


def refuse_tables(**arguments: Any) -> None:
    """Refuse a table or a column in the place of an option: messages quote what options hold."""
    for name, value in arguments.items():
        table = any(hasattr(value, hook) for hook in ("__array__", "__arrow_c_stream__"))
        many = isinstance(value, list | tuple | set) and len(value) > 20
        if many or (table and not isinstance(value, np.generic)):
            raise OptionError(f"{name} takes no table and no column, got {type(value).__name__}")


class Call:
    """A call at work: formula, data, ledger and noise belong together.

    Use it in a ``with`` statement: leaving it ends what a ledger has reserved for it.
    """

    table: design.Table | LazyTable
    bounds: Bounds
    outcome_range: tuple[float, float]
    _rows: Rows | LazyRows | None = None
    _split: Mapping[str, Share] | None = None

    def __init__(
        self, formula: Formula, ask: Ask, level: str, public: frozenset[str], method: str = ""
    ) -> None:
        self.formula, self.ask, self.level, self.public = formula, ask, level, public
        self.noise = noise_source(ask.seed)
        void = (*self.noise.void, *(_FROM_DATA if isinstance(ask.bounds, str) else ()))
        terms = Terms("outcome" if level == "label" else "record", tuple(sorted(public)), void)
        about = {"method": method, "formula": formula.source}
        account = _account(ask.ledger, ask.dataset)
        self._reserved = account.reserve(ask.budget, terms, about) if account else None
        budget = ask.budget
        self.ledger = Ledger(budget.epsilon, budget.delta, parent=self._reserved, terms=terms)

    def __enter__(self) -> Self:
        # Whatever the user has set: where numbers overflow depends on rows, and must not raise.
        self._arithmetic = np.errstate(all="ignore")
        self._arithmetic.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._arithmetic.__exit__(None, None, None)
        self.close()

    def close(self) -> None:
        """End the reservation (see `Account.settle`); failing that, it stays reserved."""
        if self._reserved is None:
            return
        try:
            self._reserved.settle()
        except LedgerError as failure:
            warnings.warn(f"budget stays reserved in the ledger: {failure}", stacklevel=3)

    def restart(self, noise: NoiseSource) -> None:
        """Begin again on the data that was read, with this noise and an account of its own."""
        self.noise = noise
        self.ledger = Ledger(self.ask.budget.epsilon, self.ask.budget.delta)

    def read(self, data: Any) -> design.Table | LazyTable:
        """Read and validate the columns of the formula."""
        self.table = design.read(
            data, self.formula, self.ask.bounds, self.public, attended=self.ask.attended
        )
        return self.table

    def facts(self) -> Facts:
        """Return what is public before anything is released."""
        width = design.width(self.table, self.formula)
        return Facts(self.table.n, width, self.ask.budget, self.level)

    def smallest_arm(self) -> int | None:
        """Return the size of the smaller arm where the treatment is public."""
        if "treatment" not in self.public:
            return None
        treated = self.table.treated_count()
        return min(treated, self.table.n - treated)

    def divide(self, proportions: Mapping[str, float]) -> Mapping[str, Share]:
        """Divide the budget, once; raises where public numbers say that it does not suffice."""
        wanted = dict(proportions)
        if not self.ask.variance:
            wanted.pop("variance", None)
        if self.table.missing:
            wanted["bounds"] = _BOUNDS_SHARE
        if self._split is None:  # an audit comes here many times
            self._split = self.ask.budget.shares(merge_shares(wanted, self.ask.shares))
            _require_records(self._split, self.table)
        return self._split

    def curator(
        self,
        proportions: Mapping[str, float],
        groups: tuple[design.Table | LazyTable, Strata] | None = None,
    ) -> Curator:
        """Divide the budget, find missing bounds, and encode the rows, in groups if given."""
        releaser = Releaser(self.divide(proportions), self.ledger, self.noise)
        missing = {name: partial(self.table.magnitudes, name) for name in self.table.missing}
        if missing or self._rows is None:
            self.bounds = self.table.bounds.updated(find_bounds(missing, releaser))
            self._rows = design.encode(self.table, self.formula, self.bounds)
            self.outcome_range = self._rows.outcome_range
        rows = design.grouped(self._rows, *groups) if groups else self._rows
        return Curator(rows, releaser, self.public)

    def record(self, kind: str) -> dict[str, Any]:
        """Return the fields of a result that do not depend on its method."""
        return {
            "guarantee": self._guarantee(kind),
            "spends": self.ledger.spends,
            "epsilon_asked": self.ask.budget.epsilon,
            "n": self.table.n,
            "formula": self.formula.source,
            "level": self.level,
            "bounds": self._bounds_shown(),
            "noise_source": _NOT_OURS.get(kind, self.noise.description),
            "outcome": source(self.formula.outcome),
            "treatment": self.formula.treatment_column,
        }

    def _guarantee(self, kind: str) -> Guarantee:
        if kind == "none":
            return Guarantee(math.inf, unit="nothing", public=(), kind=kind)
        from_data = any(source == "data" for source in self.bounds.sources.values())
        void = (*self.noise.void, *(_FROM_DATA if from_data else ()))
        epsilon, delta = self.ledger.spent
        asked = self.ask.budget.epsilon  # shares are rounded down, by less than anybody should read
        return Guarantee(
            epsilon=asked if float(epsilon) > asked * (1 - 1e-9) else float(epsilon),
            delta=float(delta),
            unit="outcome" if self.level == "label" else "record",
            public=("n", *sorted(self.public)),
            kind=kind,
            void=void,
        )

    def _bounds_shown(self) -> tuple[tuple[str, str, str], ...]:
        """Name, bound and source of each column; a transformed outcome as it is analysed."""
        formula, bounds = self.formula, self.bounds
        names = [n for n in formula.columns if n in bounds and n not in formula.outcome_columns]
        shown = [(name, bounds.describe(name), bounds.source(name)) for name in names]
        if not formula.outcome_columns:
            return tuple(shown)
        of_outcome = max((bounds.source(n) for n in formula.outcome_columns), key=SOURCES.index)
        text = f"[{self.outcome_range[0]:.6g}, {self.outcome_range[1]:.6g}]"
        return ((source(formula.outcome), text, of_outcome), *shown)

    def budget_notes(self) -> tuple[str, ...]:
        """Say where a budget promises little."""
        return self.ask.budget.cautions(self.table.n)

    def bounds_notes(self) -> tuple[str, ...]:
        """Say what a range of the outcome that was found privately does."""
        found = [self.bounds.source(name) for name in self.formula.outcome_columns]
        if "private" not in found:
            return ()
        return (
            "Outcomes beyond the privately found range are clipped to it, and the effect is that "
            "on the clipped outcome. Declare the range to avoid this and its cost.",
        )


def _account(ledger: Account | Address | None, dataset: str | None) -> Account | None:
    """Return the account to charge: the one given, or a dataset's in a file or on a server."""
    if isinstance(ledger, str | os.PathLike):
        return open_ledger(ledger, dataset)
    if ledger is not None and not isinstance(ledger, Account):
        raise OptionError(
            f"ledger must be a dpeffects.Ledger, a path or a URL, got {type(ledger).__name__}"
        )
    held = ledger.dataset if isinstance(ledger, DurableLedger) else None
    if not (dataset is None or isinstance(dataset, str)):
        raise OptionError(f"dataset must be a name, got {type(dataset).__name__}")
    if dataset is not None and dataset != held:
        raise OptionError(
            f"dataset={dataset!r} is for a ledger in a file or on a server"
            + (f"; this one is for {held!r}" if held else "")
        )
    return ledger


def _require_records(split: Mapping[str, Share], table: design.Table | LazyTable) -> None:
    """Refuse a private search for bounds that public numbers say would fail."""
    if not table.missing:
        return
    each = split["bounds"].epsilon / len(table.missing)
    needed = records_needed(2.0 / each)
    if table.n < needed:
        raise BoundsError(
            f"no bounds are declared for {', '.join(table.missing)}, and finding them privately "
            f"with epsilon = {each:.3g} each takes about {needed} records; there are {table.n}. "
            f"Declare what the variables could be:\n{skeleton(table.missing, [])}"
        )
