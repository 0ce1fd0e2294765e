"""AuditResult: how much epsilon an attacker could be shown to learn, and by what."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from dpeffects.guarantee import column_of, protected
from dpeffects.lazy import pd
from dpeffects.results.export import JsonRecord, frame_of
from dpeffects.results.numbers import figure, number, text_of
from dpeffects.summary import Notes, Pairs, Shown, Summary, Table, starred


@dataclass(frozen=True)
class PairOutcome:
    """What runs on one pair of neighbours showed.

    ``average_loss`` and ``largest_loss`` are privacy losses, the logarithms of how much likelier a
    release was on its own dataset than on the neighbour, by the noise that was declared; NaN where
    runs were not watched. ``skipped`` says why a pair was not run.
    """

    name: str
    about: str
    runs: int = 0
    average_loss: float = math.nan
    largest_loss: float = math.nan
    skipped: str = ""


@dataclass(frozen=True)
class AuditResult(Shown, JsonRecord):
    """A lower bound on the true epsilon of a mechanism, and where it was found.

    Parameters
    ----------
    lower
        The true epsilon is at least this, with the stated confidence.
    worst, event
        The pair of neighbours and the event that show it: ``event`` happened in ``hits[0]`` of
        ``trials[0]`` runs on its own dataset and in ``hits[1]`` of ``trials[1]`` on the other.
    pairs
        One outcome for each pair of neighbours.
    unit
        What neighbours differ in: "record", "outcome", or, say, "all rows of one patient_id".
    """

    _computed = ("violated", "verdict", "tightness", "largest_loss")
    method: str
    level: str
    estimand: str
    epsilon: float
    delta: float
    guarantee: str
    lower: float
    conf_level: float
    runs: int
    worst: str
    event: str
    hits: tuple[int, int]
    trials: tuple[int, int]
    pairs: tuple[PairOutcome, ...]
    noise: str
    seed: int | None
    options: Mapping[str, Any] = field(default_factory=dict)
    unit: str = "record"

    @property
    def violated(self) -> bool:
        """True when the bound is above the epsilon that is promised."""
        return self.lower > self.epsilon

    @property
    def tightness(self) -> float:
        """The bound as a share of epsilon; about 0.93 is the most that 20,000 runs can show."""
        return self.lower / self.epsilon

    @property
    def largest_loss(self) -> float:
        """Largest privacy loss of a single run; at most epsilon where delta is 0."""
        known = [p.largest_loss for p in self.pairs if not math.isnan(p.largest_loss)]
        return max(known, default=math.nan)

    @property
    def verdict(self) -> str:
        """The outcome in words."""
        sure = f"with {100 * self.conf_level:.4g} % confidence"
        if self.violated:
            return f"VIOLATED: true epsilon is at least {self.lower:.3g} {sure}"
        return f"consistent with epsilon = {self.epsilon:g}: it is at least {self.lower:.3g} {sure}"

    def tidy(self) -> pd.DataFrame:
        """One row for each pair of neighbours."""
        return frame_of([asdict(pair) | {"worst": pair.name == self.worst} for pair in self.pairs])

    def glance(self) -> pd.DataFrame:
        """One row for the audit."""
        left = ("pairs", "options", "hits", "trials")
        row = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in left}
        row |= {"violated": self.violated, "tightness": self.tightness}
        return frame_of([row | {"largest_loss": self.largest_loss, "verdict": self.verdict}])

    def _summary(self) -> Summary:
        promised = f"epsilon = {self.epsilon:g}" + (f", delta = {self.delta:g}" * (self.delta > 0))
        shares = [f"{h} of {n}" for h, n in zip(self.hits, self.trials, strict=True)]
        whose = f", for {protected(self.unit)}" if column_of(self.unit) else ""
        rows = [
            ("Promise", f"{promised} ({self.guarantee}), {self.level} level{whose}"),
            ("Verdict", self.verdict),
            ("Tightness", f"{100 * self.tightness:.0f} % of epsilon was shown to be lost"),
            ("Worst pair", self.worst),
            ("Event", f"{self.event}: {shares[0]} runs on one dataset, {shares[1]} on the other"),
            ("Options", text_of(self.options) if self.options else ""),
            ("Runs", f"{self.runs}, of which {sum(self.trials)} counted the event"),
            ("Noise", self.noise),
        ]
        blocks = (
            Pairs(tuple(row for row in rows if row[1])),
            _pairs(self),
            Notes(_notes(self)),
        )
        alert = starred((self.verdict,)) if self.violated else ""
        what = f" ({self.estimand})" if self.estimand else ""
        return Summary(f"Audit of {self.method}{what}", alert, blocks)

    def __repr__(self) -> str:
        return f"<dpeffects audit of {self.method}: {self.verdict}>"


def _pairs(audit: AuditResult) -> Table:
    rows = []
    for pair in audit.pairs:
        losses = [figure(loss, ".3f") for loss in (pair.average_loss, pair.largest_loss)]
        mark = " *" if pair.name == audit.worst else ""
        runs = f"{pair.runs}" if pair.runs else "-"
        rows.append((pair.name + mark, pair.skipped or pair.about, runs, *losses))
    columns = ("neighbours", "what changes", "runs", "average loss", "largest loss")
    return Table("Pairs of neighbours (* the worst)", columns, tuple(rows), "llrrr")


def _notes(audit: AuditResult) -> tuple[str, ...]:
    notes = [
        "The bound holds whatever the noise is; it says nothing about neighbours that were not "
        "tried. A low bound is no proof of privacy: the proofs are in privacy/PROOFS.md.",
        "A loss is the log of how much likelier a release was on its own dataset than on the "
        "neighbour, by the noise that was declared; inf: the neighbour cannot show the same.",
    ]
    if audit.delta == 0 and audit.largest_loss > audit.epsilon * (1.0 + 1e-6):
        notes.append(
            f"A run with a privacy loss of {number(audit.largest_loss)} was seen, above "
            "epsilon: some sensitivity is not covered, however rarely that shows."
        )
    return tuple(notes)
