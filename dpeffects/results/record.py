"""Record: what every result says about itself, whatever it estimates."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from dpeffects.privacy.guarantee import Guarantee, Spend
from dpeffects.render import Shown
from dpeffects.results.export import frame_of
from dpeffects.results.release_record import Page, Part, write
from dpeffects.results.report import Report, paragraph

if TYPE_CHECKING:
    import pandas as pd

    from dpeffects.render import Summary

Bound = tuple[str, str, str]
"""Name, range or levels in words, and source: declared, dtype, public, private or data."""


class Reported(Shown):
    """Whatever was released: it writes its own paragraph and its release record."""

    def _paragraph(self, conf_level: float) -> str:
        raise NotImplementedError

    def _page(self, conf_level: float) -> Page:
        raise NotImplementedError

    @overload
    def report(self, path: None = None, *, conf_level: float | None = None) -> Report: ...

    @overload
    def report(
        self,
        path: str | PathLike[str],
        *,
        conf_level: float | None = None,
        overwrite: bool = False,
    ) -> Path: ...

    def report(
        self,
        path: str | PathLike[str] | None = None,
        *,
        conf_level: float | None = None,
        overwrite: bool = False,
    ) -> Report | Path:
        """Write about the release: a paragraph for a paper, or a record for a review board.

        Without a path, return the paragraph on methods and results. With a path that ends in
        ``.html``, write the release record there, its twin in JSON beside it, and return the path:
        summary, paragraph, all charges with the claims that prove them, bounds, options, versions
        and the checklist for review boards. All of it is public. ``conf_level`` is by default that
        of the summary.
        """
        level = getattr(self, "conf_level", 0.95) if conf_level is None else conf_level
        if path is None:
            return Report(self._paragraph(level))
        return write(self._page(level), path, overwrite)


@dataclass(frozen=True, repr=False, kw_only=True)
class Record(Reported):
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
        return frame_of([spend.to_dict() for spend in self.spends], columns)

    @property
    def caution(self) -> str:
        """What nobody should overlook, in a few words; empty when all is well."""
        return ""

    def summary(self) -> Summary:
        """Everything worth printing, as titled blocks."""
        raise NotImplementedError

    def _paragraph(self, conf_level: float) -> str:
        return paragraph(self, ())

    def _page(self, conf_level: float) -> Page:
        part = Part(
            site="",
            guarantee=self.guarantee,
            spends=self.spends,
            bounds=self.bounds,
            caution=self.caution,
            epsilon_asked=self.epsilon_asked,
            noise_source=self.noise_source,
        )
        return Page(
            summary=self.summary(),
            paragraph=self._paragraph(conf_level),
            parts=(part,),
            options=self.options,
            result=self.to_dict(),
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        raise NotImplementedError

    def to_json(self, indent: int | None = 2) -> str:
        """Return `to_dict` as JSON text, without NaN or infinity."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False, ensure_ascii=False)
