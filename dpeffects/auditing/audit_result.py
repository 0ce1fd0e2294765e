"""AuditResult: how much epsilon an attacker could be shown to learn, and by what."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

from dpeffects.results.export import JsonRecord, frame_of, plain
from dpeffects.summary import Shown

if TYPE_CHECKING:
    import pandas as pd


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
class AuditResult(Shown, JsonRecord, words="about_simulations"):
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

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        names = ("violated", "verdict", "tightness", "largest_loss")
        return super().to_dict() | {name: plain(getattr(self, name)) for name in names}

    def __repr__(self) -> str:
        return f"<dpeffects audit of {self.method}: {self.verdict}>"
