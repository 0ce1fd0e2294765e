"""What every result says about itself, whatever it estimates."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, overload

from dpeffects.design.clipped import OUTSIDE
from dpeffects.errors import advised
from dpeffects.guarantee import Guarantee
from dpeffects.inference.estimate import Estimate
from dpeffects.inference.intervals import check_conf_level
from dpeffects.lazy import pd
from dpeffects.privacy.charges import Charge
from dpeffects.results.export import READERS, JsonDocument, frame_of, plain, read
from dpeffects.results.wording import Lines, headline
from dpeffects.summary import Block, Named, Report, Summary, SummaryMixin, Table, named, of_report

Bound = tuple[str, str, str]
"""Name, range or levels in words, and source: declared, dtype, public, private or data."""
NamedTable = tuple[str, Table, tuple[str, ...]]
"""A table with its name, and notes that belong to it."""
_BOUND = ("name", "range", "source")


class ReportableResult(SummaryMixin, JsonDocument):
    """A released result: printing it shows the short summary, ``summary()`` has everything.

    ``explain()`` says the same in plain sentences, ``report()`` writes a paragraph for a paper or
    a release record for a review board.
    """

    def explain(self) -> Summary:
        """Explain the result in plain sentences, with what can be done about each warning."""
        explained: Summary = of_report("release_summary").explain(self)
        return explained

    def __str__(self) -> str:
        return self.summary("short").as_text()

    @overload
    def report(self, path: None = None, *, conf_level: float | None = None) -> Report: ...

    @overload
    def report(
        self, path: str | PathLike[str], *, conf_level: float | None = None, overwrite: bool = False
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
        ``.html``, ``.tex``, ``.md``, ``.txt`` or, with ``pip install "dpeffects[word]"``,
        ``.docx``, write the release record there, its twin in JSON beside it, and return the path.
        It is a document for a review board, and several formats of it can stand side by side;
        tables for a manuscript are ``table()``. The record has
        summary, paragraph, all charges with the claims that prove them, bounds, options, versions
        and the checklist for review boards. All of it is public. ``conf_level`` is by default that
        of the summary.
        """
        default = getattr(self, "conf_level", 0.95)
        level = default if conf_level is None else conf_level
        write: Callable[..., Report | Path] = of_report("review_record").write_about
        return write(self, path, level, overwrite)


class Coefficients(Named):
    """What `tidy` and n say, under the names that users of statsmodels know."""

    @property
    def params(self) -> pd.Series:
        """Estimates by term."""
        return _by_term(self, "params", "estimate")

    @property
    def bse(self) -> pd.Series:
        """Standard errors by term; what is not available is NaN."""
        return _by_term(self, "bse", "std_error")

    @property
    def pvalues(self) -> pd.Series:
        """P-values by term, as in `tidy`; what is not available is NaN."""
        return _by_term(self, "pvalues", "p_value")

    @property
    def nobs(self: Any) -> int:
        """Number of records, or of persons: n."""
        return int(self.n)

    @classmethod
    def _elsewhere(cls, name: str) -> str:
        if name in vars(Coefficients):
            return ", it is no estimate of effects: see tidy()"
        words = advised("results").get(name.casefold())
        return f": write {words}" if words else ""


def _by_term(result: Any, name: str, column: str) -> pd.Series:
    """A column of `tidy`, by term."""
    table = result.tidy()
    if column not in table:
        raise AttributeError(name)  # answered by __getattr__
    return table.set_index("term")[column].rename(None)


@dataclass(frozen=True)
class Payment:
    """One guarantee and what was paid for it: a whole result, or a site of a combination."""

    n: int
    guarantee: Guarantee
    charges: tuple[Charge, ...]
    bounds: tuple[Bound, ...]
    estimate_warnings: str = ""
    site: str = ""
    epsilon_requested: float | None = None
    noise_source: str = ""
    allotment: str = ""


@dataclass(frozen=True, repr=False, kw_only=True)
class ResultBase(ReportableResult, Coefficients, words="report.release_summary"):
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
        Number of records, or of persons where several rows are one person's (public).
    guarantee, charges
        What is promised, and the charges that paid for it.
    epsilon_requested
        The privacy budget that was requested; the charges never sum to more.
    level
        "sample" (whole records are private, or all rows of a person) or "label" (outcomes are).
    bounds
        Triples of name, range in words and source.
    noise_source
        Where the randomness came from.
    notes, details, options, citation
        Sentences for the reader, released or public values worth showing, the method's options,
        the paper to cite.
    sample
        The analysis sample in words, by the argument that asked for it: units, a subset, weights,
        missing values, clusters.
    allotment
        The allotment of a ledger that was charged (`Ledger.allot`), or empty.
    arms
        Levels of the treatment, the reference first.
    """

    _at_level: ClassVar[Mapping[str, str]] = {}
    """What is written beside the fields at a level of confidence, and the methods that give it."""
    estimand: str
    method: str
    method_title: str
    formula: str
    outcome: str
    treatment: str
    n: int
    guarantee: Guarantee
    charges: tuple[Charge, ...] = ()
    epsilon_requested: float | None = None
    level: str = "sample"
    bounds: tuple[Bound, ...] = ()
    noise_source: str = ""
    notes: tuple[str, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    citation: str = ""
    sample: Mapping[str, str] = field(default_factory=dict)
    allotment: str = ""
    arms: tuple[str, ...] = ()

    @property
    def identification(self) -> str:
        """One of `IDENTIFICATIONS`, or empty where the method's own assumptions say it."""
        return ""

    @property
    def assumes(self) -> str:
        """What has to be true for the intervals to hold, where the method does not say it."""
        return ""

    @property
    def associated(self) -> bool:
        """Whether this is an association: not adjusted for, and not declared to be randomised."""
        return self.identification == "unadjusted"

    @property
    def warnings(self) -> str:
        """All warnings, joined by semicolons; empty where there are none."""
        return "; ".join(filter(None, (self.estimate_warnings, self.guarantee.warnings(self.n))))

    @property
    def estimate_warnings(self) -> str:
        """Warnings about the estimates; empty where there are none."""
        return ""

    def _at_ends(self, ends: Iterable[str]) -> Iterable[str]:
        """Warnings of means at an end of a range, unless the call counted what lay outside."""
        return () if self._range_checked else dict.fromkeys(ends)

    @property
    def _range_checked(self) -> bool:
        """Whether the call counted what lay outside the declared ranges, if there are any."""
        counted = any(OUTSIDE in x.label for x in self.charges)
        return counted or not any(text.startswith("[") for _, text, _ in self.bounds)

    @property
    def _missing(self) -> str:
        """The policy by which missing outcomes are taken to be missing at random, if any is."""
        return "weight" if "missing, weight" in self.sample else ""

    def charges_frame(self) -> pd.DataFrame:
        """One row a charge: what was drawn, at what price, by which proved claim."""
        columns = [f.name for f in dataclasses.fields(Charge)]
        return frame_of([charge.to_dict() for charge in self.charges], columns)

    def glance(self) -> pd.DataFrame:
        """One row for the release: its size, method and guarantee."""
        return frame_of([self._glance()])

    def _glance(self) -> dict[str, Any]:
        return {
            "n": self.n,
            "method": self.method,
            "level": self.level,
            "epsilon": float(self.guarantee.epsilon),
            "delta": float(self.guarantee.delta),
            "guarantee": self.guarantee.status,
            "warnings": self.warnings,
            "unit": self.guarantee.unit,
        }

    def to_dict(self, conf_level: float = 0.95) -> dict[str, Any]:
        """Plain values for JSON.

        What is not available is ``{"unavailable": reason}``; a number that is not finite is that
        with ``"value": None`` beside it.
        """
        bounds = [dict(zip(_BOUND, bound, strict=True)) for bound in self.bounds]
        found = {name: plain(getattr(self, x)(conf_level)) for name, x in self._at_level.items()}
        return found | super().to_dict() | {"bounds": bounds}

    def table(
        self,
        name: str = "results",
        *,
        conf_level: float | None = None,
        simultaneous: bool | None = None,
    ) -> Summary:
        """Return a table for a manuscript: the few lines that a journal prints, and a footnote.

        It is printed, and has ``as_latex()``, ``as_html()``, ``as_markdown()`` and
        ``as_docx("table.docx")``. ``report("paper.docx")`` is another document: the release record
        for a review board.

        Parameters
        ----------
        name
            "results", or "budget" for the privacy budget. Of a study also "table1", "by sex" for
            each factor of subgroups, and "means" where there are more than two arms.
        conf_level
            Level of the confidence intervals, by default that of the summary.
        simultaneous
            Of several effects: whether intervals and p-values hold for all of them at once
            (Bonferroni), by default as in ``tidy()``.

        Examples
        --------
        >>> import dpeffects as dpe
        >>> ist = dpe.load_data("ist")
        >>> call = {"design": "randomised", "epsilon": 1, "seed": 1}
        >>> fit = dpe.dp_ate("stroke_14_days ~ treatment", ist, **call)
        >>> [row[0] for row in fit.table().blocks[0].rows]
        ['risk, treated, %', 'risk, control, %', 'risk difference, %', 'risk ratio']
        """
        level = getattr(self, "conf_level", 0.95) if conf_level is None else conf_level
        asked = {} if simultaneous is None else {"simultaneous": simultaneous}
        made: Summary = of_report("journal_table").table(
            self, name, check_conf_level(level), **asked
        )
        return made

    def _summary(self, **asked: Any) -> Any:
        return named(f"{self._words}.whole")(self, **asked)

    def _brief(self, **asked: Any) -> Any:
        return named(f"{self._words}.brief")(self, **asked)

    # What it has to say of itself, in plain words: `report` asks for it, and has the formats.

    _titled: ClassVar[str] = "{0.method_title}, {0._private}"
    """The title of its summary."""
    _verb: ClassVar[str] = "estimated"
    _of_effects: ClassVar[bool] = True
    """Whether its numbers compare those who were treated with others."""
    _released: ClassVar[bool] = True
    """Whether its summary says how it was released: not where it is computed from another one."""

    @property
    def _private(self) -> str:
        """How a title ends."""
        return f"{'not ' * (self.guarantee.kind == 'none')}differentially private"

    @property
    def _subject(self) -> str:
        """What the paragraph is about; empty where it is the effect."""
        return ""

    def _line(self, what: str) -> str:
        """A line about what this is, with its guarantee."""
        return f"<dpeffects {what}, {self.guarantee.line(self.n)}>"

    def _head(self, what: str) -> str:
        """A line about effects."""
        name = "association" if self.associated else self.estimand
        return self._line(f"{name} {what}, {self.method}")

    @property
    def _paid(self) -> tuple[Payment, ...]:
        """Whom a review board asks about: this release, or all that it is made of."""
        own = (self.n, self.guarantee, self.charges, self.bounds, self.estimate_warnings)
        return (Payment(*own, "", self.epsilon_requested, self.noise_source, self.allotment),)

    def _headed(self, conf_level: float) -> Mapping[str, str]:
        """Lines for the head of the summary, by their names; empty ones are left out there."""
        return {}

    def _blocks(self, conf_level: float) -> Sequence[Block]:
        """What stands below the head."""
        return ()

    def _noted(self, conf_level: float) -> Sequence[str]:
        """Notes on how to read the numbers, and all others."""
        return self.notes

    def _row_labels(self, rows: Sequence[Mapping[Any, Any]]) -> list[str]:
        """What a journal calls the rows of `tidy`: empty for what it leaves out, and with ", %" at
        the end for what it has in per cent.
        """
        return [str(row["term"]) for row in rows]

    def _apart(self, conf_level: float, **asked: Any) -> Iterable[NamedTable]:
        """The tables of a paper, each with its name and its notes; "results" is the first."""
        yield "results", *of_report("journal_table").journal(self, conf_level, **asked)

    def _headline(self, conf_level: float = 0.95, **asked: Any) -> Lines:
        """What the short summary says first."""
        return headline(self, conf_level, **asked)

    def _findings(self, conf_level: float) -> Sequence[str]:
        """Sentences about the numbers."""
        return ()

    def _lacks(self, conf_level: float) -> str:
        """What is not there of the estimates; empty when all is."""
        return ""


def _read_bound(value: Any) -> Bound:
    if not isinstance(value, Mapping):
        raise ValueError("bounds are objects with name, range and source")
    name, text, source = (read(str, value[key]) for key in _BOUND)
    return name, text, source


READERS[Bound] = _read_bound


@dataclass(frozen=True, repr=False, kw_only=True)
class SingleEstimateResult(ResultBase):
    """What is known of one released estimate."""

    released: Estimate

    @property
    def estimate(self) -> float:
        """The released effect, within the range that an effect can have."""
        return self.released.point

    @property
    def identification(self) -> str:
        """How the effect is identified: one of `IDENTIFICATIONS`, or empty."""
        return self.released.identification

    @property
    def estimate_warnings(self) -> str:
        """Warnings about the estimates; empty where there are none."""
        return "; ".join(self.released.warning_lines)
