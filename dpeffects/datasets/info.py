"""What is known about a data set before it is loaded, and how to load it."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dpeffects.design.bounds import Declared

INDICATOR = (0, 1)
"""The range of every 0/1 column."""


@dataclass(frozen=True)
class DataInfo:
    """The facts about one data set or simulator; ``print`` shows them as a card.

    Attributes
    ----------
    name, title
        The name to load it by, and what it is.
    kind
        ``"bundled"``, ``"optional"`` (needs ``dpeffects[data]``) or ``"simulator"``.
    rows
        Number of rows; for a simulator the default ``n``.
    outcome, treatment, covariates
        Column names. A frame may have more columns; the description says what they are.
    description, source, licence, citation
        What to know before using it, where it came from, and what to cite.

    Examples
    --------
    >>> from dpeffects.datasets import data_info
    >>> data_info("ist").formula
    'stroke_14_days ~ treatment'
    """

    name: str
    title: str
    kind: str
    rows: int
    outcome: str
    treatment: str
    covariates: tuple[str, ...]
    description: str
    source: str
    licence: str
    citation: str

    @property
    def formula(self) -> str:
        """The formula with every covariate, ready to use: ``"y ~ t | x1 + x2"``."""
        effect = f"{self.outcome} ~ {self.treatment}"
        return f"{effect} | {' + '.join(self.covariates)}" if self.covariates else effect

    def __str__(self) -> str:
        facts = {
            "kind": self.kind,
            "rows": f"{self.rows:,}",
            "outcome": self.outcome,
            "treatment": self.treatment,
            "covariates": ", ".join(self.covariates) or "none",
            "formula": self.formula,
            "source": self.source,
            "licence": self.licence,
            "cite": self.citation,
        }
        lines = [f"{self.name}: {self.title}"]
        lines += [_wrapped(f"  {label:<12}", value) for label, value in facts.items()]
        return "\n".join([*lines, "", _wrapped("  ", self.description)])


def _wrapped(lead: str, text: str) -> str:
    """Wrap ``text`` behind ``lead``, later lines indented to match."""
    return textwrap.fill(
        text, 88, initial_indent=lead, subsequent_indent=" " * len(lead), break_on_hyphens=False
    )


@dataclass(frozen=True)
class Dataset:
    """A data set that is always the same: its facts, and the function that loads it."""

    info: DataInfo
    load: Callable[[], Declared]


@dataclass(frozen=True)
class Simulator:
    """A data generating process: its facts, and the function that draws from it.

    ``draw(rng, n, *, option=...)`` takes a numpy Generator, the number of rows, and its options
    as keyword-only arguments with defaults.
    """

    info: DataInfo
    draw: Callable[..., Declared]


Entries = dict[str, Any]
"""Column name -> range or levels, as :func:`dpeffects.design.bounds.declare` takes it."""
