"""Results that are made of one released table: it is kept, and whatever it gives costs nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from statistics import NormalDist
from typing import Any

import numpy as np

from dpeffects.arrays import FloatArray
from dpeffects.inference import Estimate, Unavailable, noise_ratio, ratio_of, with_another
from dpeffects.inference import intervals as inference
from dpeffects.inference.intervals import Interval, check_conf_level
from dpeffects.inference.simultaneous import reach, two_sided
from dpeffects.inference.tables import ArmTable, Confounding, Functional
from dpeffects.lazy import pd
from dpeffects.results import wording
from dpeffects.results.export import effect_row, or_nan
from dpeffects.results.result_base import ResultBase
from dpeffects.results.several import IdentificationMixin, SeveralRows
from dpeffects.summary import Block, Table, draw

ARMS = ("treated", "control")
_NORMAL = NormalDist()

Limits = Callable[[float], tuple[float, float]]
"""The ends of an interval for a number of standard errors."""


@dataclass(frozen=True)
class Term:
    """One number that a table gives: its name, and its estimate on the scale of its error.

    ``scale`` says where its error is about normal: "plain", as it is, or "log", of its logarithm.
    A term whose ``tested`` is False is no effect, such as the mean of one arm: there is nothing to
    test.
    """

    name: str
    released: Estimate
    scale: str = "plain"
    tested: bool = True

    def _shown(self, value: float) -> float:
        """A number on the scale of the error, as it is shown."""
        return math.exp(min(value, 700.0)) if self.scale == "log" else value

    @property
    def estimate(self) -> float:
        """The number."""
        return self._shown(self.released.point)

    @property
    def std_error(self) -> float | Unavailable:
        """Its standard error, by the delta method where the scale is logarithmic."""
        found = inference.std_error(self.released)
        if isinstance(found, Unavailable) or self.scale == "plain":
            return found
        return found * self.estimate

    def conf_int(self, conf_level: float = 0.95) -> Interval | Unavailable:
        """Its confidence interval: sampling error and noise."""
        found = inference.interval(self.released, conf_level)
        if isinstance(found, Unavailable):
            return found
        return Interval(self._shown(found.lower), self._shown(found.upper), conf_level)

    @property
    def p_value(self) -> float | Unavailable:
        """Two-sided p-value of no effect: a difference of 0, or a ratio of 1."""
        if not self.tested:
            return Unavailable("this is no effect")
        return inference.p_value(self.released)

    def row(self, conf_level: float = 0.95) -> dict[str, Any]:
        """The number as a row of `tidy`."""
        interval, p_value = self.conf_int(conf_level), or_nan(self.p_value)
        row = effect_row(self.estimate, self.std_error, p_value, interval, term=self.name)
        of_log = noise_ratio(math.sqrt(self.released.noise_variance), value=1.0)
        return row | {"noise_ratio": of_log if self.scale == "log" else ratio_of(self.released)}


@dataclass(frozen=True)
class TestInversionTerm(Term):
    """A number whose interval holds what a test does not reject.

    ``limits`` gives its ends for a number of standard errors; ``null`` is the value without effect,
    ``reached`` how many standard errors an interval needs to have it, where that is known, and
    ``noise`` its `noise_ratio`.
    """

    limits: Limits | None = None
    null: float = 0.0
    noise: float = 0.0
    reached: float | None = None

    @property
    def std_error(self) -> float | Unavailable:
        """Its standard error, by the delta method."""
        if self.limits is None:
            return Unavailable("a test statistic is in units of its standard error")
        found = super().std_error
        if isinstance(found, Unavailable) or math.isfinite(found):
            return found
        return Unavailable("an arm has no events beyond noise")

    def conf_int(self, conf_level: float = 0.95) -> Interval | Unavailable:
        """Its confidence interval: sampling error and noise."""
        if self.limits is None:
            return Unavailable("a test statistic has no interval")
        low, high = self.limits(normal(conf_level))
        return Interval(low, high, conf_level)

    @cached_property
    def p_value(self) -> float | Unavailable:
        """Two-sided p-value of no effect: one less the level whose interval ends there."""
        if not self.tested or self.released.associated:
            return super().p_value
        if self.limits is None:
            return two_sided(abs(self.estimate))
        if self.reached is not None:
            return two_sided(self.reached)
        return two_sided(float(reach(self.limits, self.null)[0]))

    def row(self, conf_level: float = 0.95) -> dict[str, Any]:
        """The number as a row of `tidy`; its statistic is that of the test, if there is one."""
        row, p = super().row(conf_level), self.p_value
        z = math.nan if isinstance(p, Unavailable) else -_NORMAL.inv_cdf(max(p, 1e-300) / 2.0)
        signed = math.copysign(z, self.estimate - self.null)
        return row | {"statistic": signed, "noise_ratio": self.noise}


def normal(conf_level: float) -> float:
    """How many standard errors an interval has to each side."""
    return _NORMAL.inv_cdf(0.5 + check_conf_level(conf_level) / 2.0)


def _no_names(own: Mapping[str, Any], estimation: Any) -> dict[str, Any]:
    return {}


@dataclass(frozen=True)
class TableRelease:
    """What a method hands back: the class of the result, its own fields, notes and details.

    ``named`` gives fields that have names and ranges of the columns of an estimation.
    """

    kind: type[ResultBase]
    fields: Mapping[str, Any]
    notes: tuple[str, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
    named: Callable[[Mapping[str, Any], Any], Mapping[str, Any]] = _no_names

    def with_weights(self, unequal: float) -> TableRelease:
        """The same where records have weights, whose mean square is so many times their mean."""
        own = {name: x for name, x in self.fields.items() if hasattr(x, "with_weights")}
        own = {name: x.with_weights(unequal) for name, x in own.items()}
        return replace(self, fields={**self.fields, **own})

    def with_warnings(self, warnings: str) -> TableRelease:
        """The same with one more warning, or with a note where the result has no warnings."""
        for name in {"method_warnings", "clipped"} & {f.name for f in fields(self.kind)}:
            all_of_them = with_another(self.fields.get(name, ""), warnings)
            return replace(self, fields={**self.fields, name: all_of_them})
        return replace(self, notes=(*self.notes, *filter(None, [warnings])))

    def result(self, estimation: Any, about: Mapping[str, Any], notes: tuple[str, ...]) -> Any:
        """The result of an estimation, with what all results say about themselves."""
        own = {**self.fields, **about, "details": self.details}
        own |= self.named(self.fields, estimation)
        return self.kind(notes=(*self.notes, *notes), **own)


class TermResult(SeveralRows):
    """Numbers by their names, each with the distribution of its error."""

    def terms(self) -> Sequence[Term]:
        """The numbers that `tidy` and the summary have."""
        raise NotImplementedError

    def conf_int(self, conf_level: float = 0.95) -> FloatArray:
        """Intervals, one row for each term of `tidy`."""
        found = [term.conf_int(conf_level) for term in self.terms()]
        none = (math.nan, math.nan)
        return np.array([none if isinstance(x, Unavailable) else tuple(x) for x in found])

    def tidy(self, conf_level: float = 0.95) -> pd.DataFrame:
        """One row for each number, its name in ``term``; what is not available is NaN."""
        return self._frame([term.row(conf_level) for term in self.terms()])


@dataclass(frozen=True, repr=False, kw_only=True)
class TableEffects(IdentificationMixin, TermResult, picture="report.plots.interval_plots.terms"):
    """Numbers that are all made of one noisy table of records by arm.

    Parameters
    ----------
    arm_table
        The released counts. What else they give is post-processing: it costs nothing.
    identification
        What entitles differences to be called effects: one of `IDENTIFICATIONS`.
    method_warnings
        Warnings of the method.
    allowed
        Of associations, what an effect's interval would allow for confounding: a guess, which
        `effect_conf_int` has, and no other interval.
    """

    arm_table: ArmTable
    identification: str = ""
    method_warnings: str = ""
    allowed: Confounding | None = None

    def __post_init__(self) -> None:
        aside = getattr(self.arm_table, "confounding", None)
        if self.associated and aside is not None:
            object.__setattr__(self, "allowed", aside)
            object.__setattr__(self, "arm_table", replace(self.arm_table, confounding=None))

    def term(
        self,
        name: str,
        functional: Functional,
        scale: str = "plain",
        possible: tuple[float, float] | None = None,
        tested: bool = True,
    ) -> Term:
        """A number that the table gives, by a functional of the two distributions over cells."""
        dist = self.arm_table.statistics(functional)
        return Term(name, self._based(dist.estimate(possible=possible)), scale, tested)

    def effect_conf_int(self, conf_level: float = 0.95) -> FloatArray:
        """Intervals for effects, where these are associations: with `allowed` for confounding."""
        if self.allowed is None:
            return self.conf_int(conf_level)
        table = replace(self.arm_table, confounding=self.allowed)
        return replace(self, arm_table=table, identification="", allowed=None).conf_int(conf_level)

    def plot(self, conf_level: float = 0.95, *, ax: Any = None) -> Any:
        """Draw what the table gives; return the axes (matplotlib)."""
        return draw(self, conf_level=conf_level, ax=ax)

    def __repr__(self) -> str:
        return self._head(f"of {self.outcome}")

    def _in_words(self, term: str) -> str:
        """The name of a term of `tidy`, for people."""
        return term.replace("_", " ")

    def _row_labels(self, rows: Sequence[Mapping[Any, Any]]) -> list[str]:
        return [self._in_words(str(row["term"])) for row in rows]

    def _after(self, place: str) -> str:
        """What follows the name of the effect: in the "title" of its terms, in the "short" summary
        and in the "paragraph".
        """
        return ""

    @property
    def _subject(self) -> str:
        return wording.relation(self) + self._after("paragraph")

    def _blocks(self, conf_level: float) -> Sequence[Block]:
        """The terms of `tidy` with their intervals, and other tables."""
        rows = self.tidy(conf_level).to_dict("records")
        shown = [row | {"term": self._in_words(row["term"])} for row in rows]
        title = wording.relation_title(self, self._after("title"))
        terms = wording.effects_table(title, shown, conf_level, "term")
        return terms, *self._tables(conf_level)

    def _headline(self, conf_level: float = 0.95, **asked: Any) -> wording.Lines:
        """The numbers that compare the arms, before those of one arm."""
        tested = {term.name for term in self.terms() if term.tested}
        rows = self.tidy(conf_level).to_dict("records")
        named = [row | {"term": self._in_words(row["term"])} for row in rows]
        shown = [x for x, row in zip(named, rows, strict=True) if row["term"] in tested]
        what = wording.relation(self) + self._after("short")
        return wording.estimates(shown or rows, what, conf_level)

    def _tables(self, conf_level: float) -> Sequence[Table]:
        """Tables after that of the terms."""
        return ()

    def _findings(self, conf_level: float) -> Sequence[str]:
        """Sentences about the numbers."""
        rows = self.tidy(conf_level).to_dict("records")
        found = "; ".join(f"{self._in_words(str(x['term']))}: {_tested(x)}" for x in rows)
        return [f"Estimates, with {wording.percent(conf_level)} confidence intervals: {found}."]

    def _said(self, conf_level: float) -> dict[str, str]:
        """Estimates with their intervals, by term, as they are said in a sentence."""
        rows = self.tidy(conf_level).to_dict("records")
        return {row["term"]: wording.with_limits(row) for row in rows}


def _tested(row: Mapping[Any, Any]) -> str:
    p = row["p_value"]
    return wording.with_limits(row) + ("" if math.isnan(p) else f", p {wording.p_words(p)}")


def table_by_arm(
    title: str, first: str, rows: Iterable[tuple[str, ...]], conf_level: float
) -> Table:
    """A table of both arms: rows have a name, and a number and its interval for each arm."""
    each = f"{wording.percent(conf_level, 'g')} interval"
    return Table(title, (first, "treated", each, "control", each), tuple(rows), "lrrrr")
