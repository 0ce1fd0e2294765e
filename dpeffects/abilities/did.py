"""`dp_did`: how outcomes changed with and without treatment, in two periods or more.

What is compared are changes against the last period before treatment. They are outcomes like all
others: of two periods by any method for average effects, of more by the joint release of a study.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from numbers import Real
from typing import Any, ClassVar, Self

from dpeffects.calls import OfReleases, OfSplits, public_call
from dpeffects.design.bounds import SOURCES
from dpeffects.design.codebook import number_or_text
from dpeffects.design.frames import written_out
from dpeffects.design.panel import Panel, label, wide_of
from dpeffects.design.sample import AnalysisSample
from dpeffects.errors import OptionError, refusal
from dpeffects.estimators import get, table_methods
from dpeffects.estimators.spec import MethodSpec
from dpeffects.flow import Estimation
from dpeffects.formula import Formula, parse
from dpeffects.formula.expression import Binary, Clip, Expression, Survival, columns, shown, source
from dpeffects.guarantee import printed
from dpeffects.inference import intervals as inference
from dpeffects.inference.estimate import ErrorPart, Estimate, SamplingVariance, Unavailable
from dpeffects.request import Request, refuse_tables
from dpeffects.results.average import Result
from dpeffects.results.number_format import number
from dpeffects.results.result_base import ResultBase
from dpeffects.results.several import Labels, SimultaneousEffects
from dpeffects.results.wording import effect_table, p_words, said
from dpeffects.summary import Block

_LONG = "time", "start", "periods"
KNOWN_AS = "difference in differences"
_SAID = said("did")


def without_design(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options but for those that say whether to adjust: what rests on trends does not ask."""
    return {k: x for k, x in options.items() if k not in ("design", "on_unadjusted", "adjust")}


@dataclass(frozen=True, repr=False, kw_only=True)
class DidEffect(Result):
    """A difference in differences of two periods: the effect on the change of the outcome.

    Parameters
    ----------
    after, before
        The two outcomes whose difference is the change, as the formula has them.
    adjusted
        Whether parallel trends are assumed given the covariates only.
    estimand, method, ...
        The fields of `Result`.
    """

    estimand_label: ClassVar[str] = KNOWN_AS
    after: str
    before: str
    adjusted: bool = False

    @classmethod
    def of(cls, fit: Result, **more: Any) -> Self:
        """Return a result as a difference in differences."""
        own = {f.name: getattr(fit, f.name) for f in fields(Result)}
        return cls(**own | more)

    @property
    def assumes(self) -> str:
        """The identifying assumption: parallel trends, in a sentence."""
        return _SAID["parallel"] + _SAID["given"] * self.adjusted


@dataclass(frozen=True)
class PreTrends:
    """A test of parallel pre-trends: equal changes in both arms before treatment.

    Parameters
    ----------
    p_value
        P-value of the null hypothesis of equal changes in all periods: the smallest one, with a
        Bonferroni correction for the number of periods.
    largest
        The largest difference in a change before treatment inside the simultaneous intervals.
    periods
        How many periods there are before the reference.
    conf_level
        Level of ``largest``.
    """

    p_value: float
    largest: float
    periods: int
    conf_level: float

    def __str__(self) -> str:
        many = "1 period" if self.periods == 1 else f"{self.periods} periods"
        found = p_words(self.p_value), many, number(self.largest, 2), 100 * self.conf_level
        return str(_SAID["pretrends"].format(*found))


@dataclass(frozen=True, repr=False, kw_only=True)
class EventStudy(SimultaneousEffects, picture="report.plots.interval_plots.event_study"):
    """Differences in differences by period, all against the last period before treatment.

    Intervals hold, and p-values are adjusted, for all periods at once (Bonferroni), unless
    ``simultaneous=False`` is asked for. All of it follows from one joint release.

    Parameters
    ----------
    labels, effects
        Periods other than the reference, and the differences: before it they are pre-trends, after
        it effects.
    periods
        All periods, in their order.
    leads
        How many periods there are before the reference.
    """

    estimand_label: ClassVar[str] = KNOWN_AS
    periods: tuple[str, ...]
    leads: int

    @classmethod
    def of(cls, fit: SimultaneousEffects, *, trends: bool, **more: Any) -> Self:
        """Return the effects on changes as an event study.

        ``trends`` says that nothing is adjusted for, and nothing was said to be randomised.
        """
        own = {f.name: getattr(fit, f.name) for f in fields(ResultBase)}
        effects: tuple[Estimate, ...] = fit.effects
        if trends:
            effects = tuple(replace(effect, identification="") for effect in effects)
            own["options"] = without_design(fit.options)
        return cls(effects=effects, **own | more)

    @property
    def reference(self) -> str:
        """The last period before treatment."""
        return self.periods[self.leads]

    @property
    def assumes(self) -> str:
        """The identifying assumption: parallel trends, in a sentence."""
        if self.identification == "randomised":
            return ""
        return _SAID["parallel"] + _SAID["given"] * (self.identification == "adjusted")

    @property
    def estimate_warnings(self) -> str:
        """Warnings about the estimates: trends that differ before treatment."""
        found = self.pretrends()
        differ = isinstance(found, PreTrends) and found.p_value < 0.05
        return "; ".join(filter(None, (super().estimate_warnings, _SAID["not_parallel"] * differ)))

    def pretrends(self, conf_level: float = 0.95) -> PreTrends | Unavailable:
        """Test parallel pre-trends. It costs no privacy budget."""
        inference.check_conf_level(conf_level)
        if not self.leads:
            return Unavailable("not available with one period before treatment")
        early = self.effects[: self.leads]
        each = 1.0 - (1.0 - conf_level) / self.leads
        intervals = [inference.interval(effect, each) for effect in early]
        p_values = [inference.p_value(replace(effect, identification="")) for effect in early]
        known = [p for p in p_values if not isinstance(p, Unavailable)]
        if len(known) < self.leads:
            return Unavailable("no variance is released")
        ends = [abs(x) for pair in intervals if not isinstance(pair, Unavailable) for x in pair]
        return PreTrends(min(1.0, self.leads * min(known)), max(ends), self.leads, conf_level)

    @property
    def average(self) -> Estimate:
        """The mean effect over the periods under treatment.

        Its sampling variance is the mean of theirs, which is an upper limit: correlations between
        the errors of periods are not released.
        """
        return _average(self.effects[self.leads :])

    def period(self, period: object = None) -> DidEffect:
        """Return the effect in one period, not adjusted for multiplicity.

        By default it is `average`, the mean over the periods under treatment.
        """
        late = self.labels[self.leads :]
        label = late[0] if period is None else str(period)
        fit = self._one(label, "period", outcome=f"{self.outcome} to {label}")
        if period is None:
            fit = replace(fit, sample=self.sample)
        if period is None and len(late) > 1:
            label = f"mean of {', '.join(late)}"
            fit = replace(fit, released=self.average, outcome=f"{self.outcome} to the {label}")
        adjusted = self.identification == "adjusted"
        return DidEffect.of(fit, after=label, before=self.reference, adjusted=adjusted)

    def _glance(self) -> dict[str, Any]:
        found = self.pretrends()
        p = math.nan if isinstance(found, Unavailable) else found.p_value
        return super()._glance() | {"pretrends_p_value": p}

    @property
    def _what(self) -> str:
        return "differences in differences"

    def _blocks(self, conf_level: float, simultaneous: bool | None = None) -> Sequence[Block]:
        tables = super()._blocks(conf_level, simultaneous)
        several = len(self.labels) > self.leads + 1
        return [*([effect_table(self.period(), conf_level)] if several else []), *tables]

    def _reading(self, conf_level: float, simultaneous: bool | None) -> list[str]:
        return [*super()._reading(conf_level, simultaneous), self._pretrends(conf_level)]

    def _pretrends(self, conf_level: float) -> str:
        return f"Test of parallel pre-trends: {self.pretrends(conf_level)}"

    def _findings(self, conf_level: float) -> Sequence[str]:
        return [
            *super()._findings(conf_level),
            self._pretrends(conf_level),
            f"The estimates assume {self.assumes}." if self.assumes else "",
        ]

    @property
    def _named(self) -> Labels:
        here = {self.reference: f"{self.reference} (reference)"}
        names = ", ".join(here.get(name, name) for name in self.periods)
        return Labels("period", "by period", f"in {len(self.periods)} periods", "Periods", names)

    def __repr__(self) -> str:
        return self._head(f"of changes in {len(self.periods)} periods")


def _average(effects: Sequence[Estimate]) -> Estimate:
    """The mean of some effects, whose noise is independent and whose sampling errors may not be."""
    first, m = effects[0], len(effects)
    if m == 1:
        return first
    found = [x.sampling for x in effects]
    sampling: SamplingVariance | Unavailable = Unavailable("no variance is released")
    known = [x for x in found if isinstance(x, SamplingVariance)]
    if len(known) == m:
        # a mean of variances: no correlation of the errors makes it more
        sampling = SamplingVariance(
            sum(x.value for x in known) / m,
            math.hypot(*(x.noise_scale for x in known)) / m,
            max(x.largest for x in known),
        )
    return replace(
        first,
        value=sum(x.point for x in effects) / m,
        sampling=sampling,
        laplace=tuple(scale / m for x in effects for scale in x.laplace),
        gaussian=sum(x.gaussian for x in effects) / m**2,
        parts=tuple(_largest(part for x in effects for part in x.parts)),
        means=None,
    )


def _largest(parts: Iterable[ErrorPart]) -> Iterator[ErrorPart]:
    """The largest part of each name: a bias that effects may share."""
    found: dict[tuple[str, bool], ErrorPart] = {}
    for part in parts:
        known = found.get((part.name, part.noise), part)
        found[part.name, part.noise] = max(part, known, key=lambda x: x.variance)
    yield from found.values()


@dataclass(frozen=True)
class _Panel:
    """What a call compares: the outcome in each period, and which period is the reference.

    ``given`` are the other arguments, for one record each; changes are clipped to lie ``within``
    two numbers. ``made_of`` is the column of units, and ``words`` say what a record is, where the
    data are long.
    """

    given: dict[str, Any]
    formula: Formula
    outcomes: Mapping[str, Expression]
    reference: int
    within: tuple[float, float] | None
    made_of: str | None = None
    words: Mapping[str, str] = field(default_factory=dict)

    @property
    def changes(self) -> dict[str, Expression]:
        """Changes against the reference, by period."""
        before = list(self.outcomes.values())[self.reference]
        after = {name: x for name, x in self.outcomes.items() if x is not before}
        found: dict[str, Expression]
        found = {name: Binary("-", x, before) for name, x in after.items()}
        if self.within is None:
            return found
        return {name: Clip(x, *self.within) for name, x in found.items()}

    def released(self, estimand: str, method: str | MethodSpec) -> Any:
        """The result on the changes; without covariates there is nothing to adjust for."""
        given, formula = {**self.given, "method": method, "contrasts": None}, self.formula
        if self.by_trends(estimand, method):
            given["design"] = "randomised"
        first, *more = self.changes.values()
        text = str(replace(formula, outcome=first, more_outcomes=tuple(more)))
        request = Request.of_effect(estimand, **given | {"formula": text})
        fit = Estimation(replace(request, made_of=self.made_of)).result()
        return replace(fit, sample={**self.words, **fit.sample})

    def by_trends(self, estimand: str, method: str | MethodSpec) -> bool:
        """Whether the effect rests on parallel trends alone."""
        if self.formula.has_covariates or "design" in self.given:
            return False
        spec = method if isinstance(method, MethodSpec) else get(method, estimand)
        return "design" in {f.name for f in fields(spec.options)}


def _panel(given: dict[str, Any]) -> _Panel:
    """What a call compares; long data get one record for each unit."""
    before, asked = given.pop("before"), {name: given.pop(name) for name in _LONG}
    if before is None:
        return _from_long(given, **asked)
    if wrong := [name for name, value in asked.items() if value is not None]:
        raise OptionError(refusal("long_data_before", wrong=wrong[0]))
    listed = [before] if isinstance(before, str) else before
    if not isinstance(listed, list | tuple) or not all(isinstance(x, str) for x in listed):
        raise OptionError('before must be the name of a column, or names: before="y_2019"')
    earlier = [parse(f"{x} ~ `treatment of nobody`").outcome for x in listed]
    ids = [given[name] for name in ("unit", "cluster", "weights")]
    left_out = (*(name for x in earlier for name in columns(x)), *ids)
    formula = parse(written_out(given["formula"], given["data"], given["bounds"], left_out))
    outcomes = {source(x): _number(x) for x in (*earlier, *formula.outcomes)}
    if len(outcomes) < len(earlier) + len(formula.outcomes) or not earlier:
        raise OptionError("before must name other columns than the outcome, each once")
    return _Panel(given, formula, outcomes, len(earlier) - 1, _range(given.pop("change")))


def _number(outcome: Any) -> Expression:
    """An outcome that can be subtracted."""
    if not isinstance(outcome, Expression) or isinstance(outcome, Survival):
        raise OptionError(f"outcome {shown(outcome)} is not a number, so it has no change")
    return outcome


def _from_long(given: dict[str, Any], **asked: Any) -> _Panel:
    """The same for long data."""
    if asked["time"] is None:
        raise OptionError(refusal("did_before"))
    refuse_tables(asked)
    panel = Panel.asked(given.pop("unit"), **asked)
    if given.get("max_rows") is not None:
        raise OptionError("max_rows cannot be used with long data: each unit is one record")
    if given.get("level", "sample") != "sample":
        raise OptionError(refusal("unit_cannot_used"))
    bounds, left_out = given["bounds"], [panel.unit, panel.time, given["cluster"], given["weights"]]
    formula = parse(written_out(given["formula"], given["data"], bounds, left_out))
    if formula.more_outcomes:
        raise OptionError("long data must have one outcome, measured in several periods")
    counting = {name: given[name] for name in ("cluster", "missing", "weights", "subset")}
    sample = AnalysisSample.asked(formula, **counting)
    strict = any(sample.policies[name] == "error" for name in formula.outcome_columns)
    wide = wide_of(given["data"], formula, bounds, panel, sample, strict)
    given |= {"data": wide.data, "bounds": bounds if isinstance(bounds, str) else None}
    given["missing"] = wide.missing(given["missing"])
    outcome = _number(formula.outcome)
    outcomes = {label(x): wide.outcome(outcome, x) for x in panel.periods}
    words = f"each {printed(panel.unit)} is one record, with treatment as of {label(panel.start)}"
    words += f" and covariates as of {label(panel.reference)}" if formula.has_covariates else ""
    reference = panel.periods.index(panel.reference)
    within = _range(given.pop("change"))
    return _Panel(given, formula, outcomes, reference, within, panel.unit, {"panel": words})


def _range(change: Any) -> tuple[float, float] | None:
    """The declared range of a change."""
    if change is None:
        return None
    given = list(change) if isinstance(change, list | tuple) else []
    known = [x for x in given if isinstance(x, Real) and math.isfinite(x)]
    if len(known) != 2 or len(given) != 2 or not known[0] < known[1]:
        raise OptionError("change must be the range of the change, such as change=(-20, 20)")
    return float(known[0]), float(known[1])


def _in_two_periods(asked: _Panel, estimand: str) -> DidEffect:
    """The effect on one change."""
    method = asked.given.pop("method")
    fit = asked.released(estimand, method)
    if asked.by_trends(estimand, method):
        released = replace(fit.released, identification="")
        fit = replace(fit, released=released, options=without_design(fit.options))
    before, after = map(source, asked.outcomes.values())
    adjusted = asked.formula.has_covariates and not fit.associated
    return DidEffect.of(fit, after=after, before=before, adjusted=adjusted)


def _by_period(asked: _Panel, estimand: str) -> EventStudy:
    """The effects on several changes, from one joint release."""
    if asked.given.pop("method") != "auto":
        raise OptionError("method cannot be set here when there are more than two periods")
    if asked.given["variance"] is not True:
        raise OptionError("variance=False can only be used with two periods")
    method = table_methods()["study"]
    fit, formula = asked.released(estimand, method), asked.formula
    outcome, change = f"change of {source(formula.outcome)}", fit.sums.outcomes[0]
    read = {name for x in asked.outcomes.values() for name in columns(x)}
    sources = [of for name, _, of in fit.bounds if name in read]
    worst = max(sources, key=SOURCES.index, default="declared")
    bound = outcome, f"[{change.low:.6g}, {change.high:.6g}]", worst
    others = [x for x in fit.bounds if x[0] not in read]
    return EventStudy.of(
        replace(fit, formula=formula.source, outcome=outcome, bounds=(bound, *others)),
        labels=tuple(asked.changes),
        periods=tuple(asked.outcomes),
        leads=asked.reference,
        trends=asked.by_trends(estimand, method),
    )


class _OfDid(OfReleases, OfSplits, total=False):
    variance: bool
    cluster: str | None
    clusters: int | None


@public_call(
    _OfDid,
    plot="draw the effect, or the differences by period",
    before={"type": str, "nargs": "+", "help": "the outcome before treatment"},
    start={"type": number_or_text, "help": "the first period under treatment"},
    periods={"type": number_or_text, "nargs": "+", "help": "the periods, in their order"},
    change={"type": float, "nargs": 2, "help": "a range that changes lie in"},
)
def dp_did(
    formula: str,
    data: Any,
    method: str = "auto",
    *,
    before: str | Sequence[str] | None = None,
    time: str | None = None,
    unit: str | None = None,
    start: float | str | None = None,
    periods: Sequence[float | str] | None = None,
    change: tuple[float, float] | None = None,
    epsilon: float,
    estimand: str = "ATT",
    **more: Any,
) -> DidEffect | EventStudy:
    r"""Estimate a difference in differences, or an event study of more than two periods.

    Parameters
    ----------
    formula
        ``"y_after ~ treatment"``, or ``"y_after ~ treatment | x1 + x2"`` where parallel trends are
        assumed given the covariates only. With long data ``"y ~ treatment | x1"``.
    method
        One of :func:`methods`; it estimates the effect on the change of the outcome.
    before
        For wide data (one row per record): the outcome before treatment. If there are several, in
        their order, the last is the reference period.
    time
        For long data: the column of the period.
    unit
        The column of the unit (person). All rows of a unit are protected together, and n is the
        number of units.
    start
        The first period under treatment: by default the second of two.
    periods
        The periods, in their order: ``[2019, 2020]``. Rows of other periods are not read. They are
        declared because the periods in the data are private.
    change
        The declared range of changes, such as ``(-20, 20)``, where it is narrower than the bounds
        of the outcome imply; changes beyond it are clipped. With more than two periods the noise
        is proportional to it; with two periods a limit is found privately.
    estimand
        "ATT" (default), which parallel trends identify; "ATE" or "ATC".
    missing
        As in :func:`dp_ate`. In long data an outcome is missing where a unit has no row in a
        period, or more than one. Treatment is taken from the period ``start``, and covariates from
        the one before.
    bounds
        As in :func:`dp_ate`. Bounds of the outcome are those in every period.
    {shared}

    Returns
    -------
    DidEffect or EventStudy
        With two periods a `DidEffect`. With more an `EventStudy`: effects by period relative to
        the reference period, from one joint release, those before treatment as a test of parallel
        pre-trends.

    Examples
    --------
    >>> import dpeffects as dpe
    >>> nsw = dpe.load_data("lalonde")
    >>> formula, before = "earnings_1978 ~ treatment", "earnings_1975"
    >>> fit = dpe.dp_did(formula, nsw, before=before, epsilon=1, seed=1)
    >>> fit.outcome, fit.estimand
    ('I(earnings_1978 - earnings_1975)', 'ATT')

    In a shell::

        dpeffects did "earnings_1978 ~ treated" people.csv \
            --before earnings_1975 --epsilon 1 --bounds bounds.toml
        dpeffects did "y ~ t" visits.csv --time year --unit patient \
            --periods 2019 2020 --epsilon 1 --bounds bounds.toml
        dpeffects did "y ~ t" visits.csv --time year --unit patient --start 2020 \
            --periods 2017 2018 2019 2020 2021 --epsilon 1 --bounds bounds.toml \
            --plot periods.png
    """
    given = {name: x for name, x in locals().items() if name not in ("more", "estimand")}
    asked = _panel({**more, **given})
    return (_in_two_periods if len(asked.changes) == 1 else _by_period)(asked, estimand)
