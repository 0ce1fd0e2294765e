"""Differences in differences, of two periods or more: effects where trends are parallel."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self

from dpeffects.inference import intervals as inference
from dpeffects.inference.estimate import Estimate, Part, SamplingVariance, Unavailable
from dpeffects.results.average import Result
from dpeffects.results.numbers import number
from dpeffects.results.record import Record
from dpeffects.results.several import AtOnce, Labels

PARALLEL = (
    "parallel trends: without treatment, the mean outcome of the treated would have changed by as "
    "much as that of the controls"
)
"""What a difference in differences assumes."""
KNOWN_AS = "difference in differences"


def without_design(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options but for those that say whether to adjust: what rests on trends does not ask."""
    return {k: x for k, x in options.items() if k not in ("design", "on_unadjusted", "adjust")}


@dataclass(frozen=True, repr=False, kw_only=True)
class DidEffect(Result):
    """A private difference in differences: the effect on the change of the outcome.

    Parameters
    ----------
    after, before
        The two outcomes whose difference is the change, as the formula has them.
    adjusted
        Whether trends are taken as parallel for the same covariates only.
    estimand, method, ...
        The fields of `Result`.
    """

    known_as: ClassVar[str] = KNOWN_AS
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
        """What has to be true for this to be the effect of the treatment, in a sentence."""
        return f"{PARALLEL} with the same covariates" if self.adjusted else PARALLEL


@dataclass(frozen=True)
class PreTrends:
    """Whether changes before treatment were the same in both arms.

    Parameters
    ----------
    p_value
        Of the hypothesis that they were, in all periods: the smallest one, adjusted for their
        number.
    largest
        The largest difference in a change before treatment that all intervals together allow.
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
        many = "1 earlier period" if self.periods == 1 else f"{self.periods} earlier periods"
        return (
            f"p = {self.p_value:.4f} that both arms changed alike over {many}; differences of up "
            f"to {number(self.largest, 2)} are compatible with the release "
            f"({100 * self.conf_level:g} %). That none is found does not show parallel trends."
        )


@dataclass(frozen=True, repr=False, kw_only=True)
class EventStudy(AtOnce, pictures="plots.periods"):
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

    known_as: ClassVar[str] = KNOWN_AS
    periods: tuple[str, ...]
    leads: int

    @classmethod
    def of(cls, fit: AtOnce, *, trends: bool, **more: Any) -> Self:
        """Return the effects on changes as an event study.

        ``trends`` says that nothing is adjusted for, and nothing was said to be randomised.
        """
        own = {f.name: getattr(fit, f.name) for f in fields(Record)}
        effects: tuple[Estimate, ...] = fit.effects
        if trends:
            effects = tuple(replace(effect, basis="") for effect in effects)
            own["options"] = without_design(fit.options)
        return cls(effects=effects, **own | more)

    @property
    def reference(self) -> str:
        """The last period before treatment."""
        return self.periods[self.leads]

    @property
    def assumes(self) -> str:
        """What has to be true for these to be effects of the treatment, in a sentence."""
        if self.basis == "randomised":
            return ""
        return f"{PARALLEL} with the same covariates" if self.basis == "adjusted" else PARALLEL

    @property
    def doubts(self) -> str:
        """What nobody should overlook: trends that differ before treatment."""
        own = super().doubts
        found = self.pretrends() if self.leads else None
        if isinstance(found, PreTrends) and found.p_value < 0.05:
            trends = "TRENDS DIFFER BEFORE TREATMENT: they are not parallel there"
            return "; ".join(filter(None, (own, trends)))
        return own

    def pretrends(self, conf_level: float = 0.95) -> PreTrends | Unavailable:
        """Test whether both arms changed alike before treatment. Nothing is spent."""
        inference.check_conf_level(conf_level)
        if not self.leads:
            return Unavailable("there is one period before treatment")
        early = self.effects[: self.leads]
        each = 1.0 - (1.0 - conf_level) / self.leads
        intervals = [inference.interval(effect, each) for effect in early]
        p_values = [inference.p_value(replace(effect, basis="")) for effect in early]
        known = [p for p in p_values if not isinstance(p, Unavailable)]
        if len(known) < self.leads:
            return Unavailable("no variance is released")
        ends = [abs(x) for pair in intervals if not isinstance(pair, Unavailable) for x in pair]
        return PreTrends(min(1.0, self.leads * min(known)), max(ends), self.leads, conf_level)

    @property
    def average(self) -> Estimate:
        """The mean effect over the periods under treatment.

        Its sampling variance is the mean of theirs, which is what it can be at most: how errors
        of periods go together is not released.
        """
        return _average(self.effects[self.leads :])

    def one(self, period: object = None) -> DidEffect:
        """Return the effect of a period, with an interval for it alone.

        By default it is `average`, over the periods under treatment.
        """
        late = self.labels[self.leads :]
        label = late[0] if period is None else str(period)
        fit = self._one(label, "period", outcome=f"{self.outcome} to {label}")
        if period is None and len(late) > 1:
            label = f"mean of {', '.join(late)}"
            fit = replace(fit, released=self.average, outcome=f"{self.outcome} to the {label}")
        adjusted = self.basis == "adjusted"
        return DidEffect.of(fit, after=label, before=self.reference, adjusted=adjusted)

    def _glance(self) -> dict[str, Any]:
        found = self.pretrends()
        p = math.nan if isinstance(found, Unavailable) else found.p_value
        return super()._glance() | {"pretrends_p_value": p}

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


def _largest(parts: Iterable[Part]) -> Iterator[Part]:
    """The largest part of each name: a bias that effects may share."""
    found: dict[tuple[str, bool], Part] = {}
    for part in parts:
        known = found.get((part.name, part.noise), part)
        found[part.name, part.noise] = max(part, known, key=lambda x: x.variance)
    yield from found.values()
