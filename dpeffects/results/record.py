"""Record: what every result says about itself, whatever it estimates."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dpeffects.estimate import Unavailable
from dpeffects.privacy.guarantee import Guarantee, Spend

if TYPE_CHECKING:
    import pandas as pd

    from dpeffects.results.summary import Summary

Bound = tuple[str, str, str]
"""Name, range or levels in words, and source: declared, dtype, public, private or data."""


@dataclass(frozen=True, repr=False, kw_only=True)
class Record:
    """What was estimated and how, what is promised, and what was paid for it.

    Parameters
    ----------
    estimand
        "ATE", "ATT", "ATC" or "CATE".
    method, method_title
        Name of the method as typed, and in words.
    formula
        Source text of the formula.
    outcome, treatment
        Names of the two columns.
    n
        Number of records (public).
    guarantee, spends
        What is promised, and the charges that paid for it.
    epsilon_asked
        Budget the caller set; the spends never sum to more.
    level
        "sample" (whole records are private) or "label" (outcomes are).
    bounds
        Triples of name, range in words and source.
    noise_source
        Where the randomness came from.
    notes, details, options, citation
        Sentences for the reader, released or public values worth showing, the method's options,
        the paper to cite.
    """

    estimand: str
    method: str
    method_title: str
    formula: str
    outcome: str
    treatment: str
    n: int
    guarantee: Guarantee
    spends: tuple[Spend, ...] = ()
    epsilon_asked: float | None = None
    level: str = "sample"
    bounds: tuple[Bound, ...] = ()
    noise_source: str = ""
    notes: tuple[str, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    citation: str = ""

    def spends_frame(self) -> pd.DataFrame:
        """One row a charge: what was drawn, at what price, by which proved claim."""
        columns = [f.name for f in dataclasses.fields(Spend)]
        return frame([spend.to_dict() for spend in self.spends], columns)

    @property
    def caution(self) -> str:
        """What nobody should overlook, in a few words; empty when all is well."""
        return ""

    def summary(self) -> Summary:
        """Everything worth printing, as titled blocks."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        raise NotImplementedError

    def to_json(self, indent: int | None = 2) -> str:
        """Return `to_dict` as JSON text, without NaN or infinity."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False, ensure_ascii=False)

    def __str__(self) -> str:
        return str(self.summary())


def frame(rows: list[dict[str, Any]], columns: list[str] | None = None) -> pd.DataFrame:
    """Rows as a pandas frame."""
    import pandas as pd

    return pd.DataFrame(rows, columns=columns)


def plain(value: Any) -> Any:
    """Reduce a value to what JSON can hold."""
    if isinstance(value, Unavailable):
        return {"unavailable": value.reason}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(name): plain(entry) for name, entry in value.items()}
    if hasattr(value, "tolist"):  # numpy scalars and arrays
        return plain(value.tolist())
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {"value": None, "unavailable": f"not a finite number ({value})"}
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
