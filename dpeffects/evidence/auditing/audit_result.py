"""AuditResult: a statistical lower bound on epsilon, and the attack that gave it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from dpeffects.guarantee import column_of, protected
from dpeffects.lazy import pd
from dpeffects.results.export import JsonDocument, frame_of
from dpeffects.results.number_format import figure, number, text_of
from dpeffects.summary import Notes, Pairs, Summary, SummaryMixin, Table


@dataclass(frozen=True)
class PairOutcome:
    """Results of the runs on one pair of neighbouring datasets.

    ``average_loss`` and ``largest_loss`` are privacy losses: logarithms of likelihood ratios of a
    release on its own dataset and on the neighbour, under the declared noise; NaN where runs were
    not recorded. ``skipped`` says why a pair was not run.
    """

    name: str
    about: str
    runs: int = 0
    average_loss: float = math.nan
    largest_loss: float = math.nan
    skipped: str = ""


@dataclass(frozen=True)
class AuditResult(SummaryMixin, JsonDocument):
    """A lower bound on the true epsilon of a mechanism, and where it was found.

    Parameters
    ----------
    lower
        Lower confidence bound on the true epsilon, at the level ``conf_level``.
    worst, event
        The pair of neighbours and the event that give the bound: ``event`` happened in ``hits[0]``
        of ``trials[0]`` runs on one dataset and in ``hits[1]`` of ``trials[1]`` on the other.
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
        """True when the lower bound is above the declared epsilon."""
        return self.lower > self.epsilon

    @property
    def tightness(self) -> float:
        """The lower bound divided by epsilon; at most about 0.93 with 20,000 runs."""
        return self.lower / self.epsilon

    @property
    def largest_loss(self) -> float:
        """Largest privacy loss of a single run; at most epsilon where delta is 0."""
        known = [p.largest_loss for p in self.pairs if not math.isnan(p.largest_loss)]
        return max(known, default=math.nan)

    @property
    def verdict(self) -> str:
        """The conclusion in words."""
        bound = (
            f"lower bound on epsilon {self.lower:.3g} ({100 * self.conf_level:.4g} % confidence)"
        )
        if self.violated:
            return f"VIOLATED: {bound}, above the declared {self.epsilon:g}"
        return f"consistent with epsilon = {self.epsilon:g}: {bound}"

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
            ("Declared", f"{promised} ({self.guarantee}), {self.level} level{whose}"),
            ("Verdict", self.verdict),
            ("Tightness", f"the lower bound is {100 * self.tightness:.0f} % of epsilon"),
            ("Worst pair", self.worst),
            ("Event", f"{self.event}: {shares[0]} runs on one dataset, {shares[1]} on the other"),
            ("Options", text_of(self.options) if self.options else ""),
            ("Runs", f"{self.runs}, of which {sum(self.trials)} were used to test the event"),
            ("Noise", self.noise),
        ]
        blocks = (Pairs(tuple(row for row in rows if row[1])), _pairs(self), Notes(_notes(self)))
        starred_warnings = f"*** {self.verdict} ***" if self.violated else ""
        what = f" ({self.estimand})" if self.estimand else ""
        return Summary(f"Audit of {self.method}{what}", starred_warnings, blocks)

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
    return Table(
        "Pairs of neighbouring datasets (* gives the bound)", columns, tuple(rows), "llrrr"
    )


def _notes(audit: AuditResult) -> tuple[str, ...]:
    notes = [
        "The lower bound is valid for any noise distribution, and only for the pairs of neighbours "
        "that were tried. A low bound does not prove privacy: the proofs are in privacy/PROOFS.md.",
        "Privacy loss: logarithm of the likelihood ratio of a release on its own dataset and the "
        "neighbour, under the declared noise; inf: impossible on the neighbour.",
    ]
    if audit.delta == 0 and audit.largest_loss > audit.epsilon * (1.0 + 1e-6):
        notes.append(
            f"One run had a privacy loss of {number(audit.largest_loss)}, above epsilon: a "
            "sensitivity is too small, even if this is rare."
        )
    return tuple(notes)
