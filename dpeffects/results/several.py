"""Results with several effects: by group, at points, between arms, in subsets."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from dpeffects.arrays import FloatArray
from dpeffects.errors import OptionError, checked_call, not_among, spelled
from dpeffects.estimands import ESTIMANDS
from dpeffects.inference import Effects, Estimate, Hypothesis, Unavailable, ratio_of, scales
from dpeffects.inference import intervals as inference
from dpeffects.inference.estimate import NO_EFFECT, with_another
from dpeffects.lazy import pd
from dpeffects.results import wording
from dpeffects.results.average import Result
from dpeffects.results.export import TIDY, effect_row, frame_of, or_nan, plain
from dpeffects.results.hypothesis_test import Test, Tests, facts_tested
from dpeffects.results.result_base import ResultBase
from dpeffects.results.scaled import NO_ERROR, NO_MEANS, check_scale, mean_rows, scaled_effect
from dpeffects.summary import Block, Summary, draw, each_warning, show


@dataclass(frozen=True, repr=False, kw_only=True)
class SeveralRows(ResultBase):
    """What results with more than one row in `tidy` have in common."""

    def summary(self, form: str = "full", *, conf_level: float = 0.95) -> Summary:
        """All results as titled tables; the main ones with ``form="short"``."""
        return show(self, form, conf_level=conf_level)

    def _frame(self, rows: Sequence[dict[str, Any]]) -> pd.DataFrame:
        """Effects as a frame whose first columns are those of `Result.tidy`."""
        about = {"outcome": self.outcome, "estimand": self._estimand, "method": self.method}
        about["guarantee"] = self.guarantee.status
        complete = [dict.fromkeys(TIDY, math.nan) | row | about for row in rows]
        return frame_of(complete, None if complete else list(TIDY))

    @property
    def _estimand(self) -> str:
        """What the rows of a frame are estimates of."""
        return self.estimand


class IdentificationMixin:
    """How the method identifies the numbers, with its ``method_warnings``."""

    identification: str
    method_warnings: str

    @property
    def estimate_warnings(self) -> str:
        """Warnings about the estimates; empty where there are none."""
        none = NO_EFFECT if self.identification == "unadjusted" else ""
        return with_another(none, self.method_warnings)

    def _based(self, estimate: Estimate) -> Estimate:
        return replace(estimate, identification=self.identification)


class Labels(NamedTuple):
    """What the effects of a result are for, in words: one ("contrast"), all, and their names."""

    each: str
    by: str
    among: str
    name: str
    all: str


@dataclass(frozen=True, repr=False, kw_only=True)
class SeveralEffects(SeveralRows, picture="report.plots.interval_plots.contrasts"):
    """One `Estimate` for each label: an arm, a subset, a group, a period, an outcome, a point.

    Intervals and p-values are for one effect at a time, or for the family of all of them.
    """

    _family: ClassVar[bool] = False
    labels: tuple[str, ...]
    effects: tuple[Estimate, ...]

    @property
    def estimate_warnings(self) -> str:
        """Warnings about the estimates, with whose they are where some have none of them."""
        told = [each_warning(*effect.warning_lines) for effect in self.effects]
        known = [x for x, e in zip(self.labels, self.effects, strict=True) if e.value == e.value]
        return with_another(*wording.with_whose(self.labels, told, "{0} (only {1})", known))

    @property
    def _named(self) -> Labels:
        """What the labels are."""
        raise NotImplementedError

    @property
    def _noise_only(self) -> bool:
        """Whether intervals are for privacy noise only, and not for the effect."""
        return False

    def _row_labels(self, rows: Sequence[Mapping[Any, Any]]) -> list[str]:
        """A subset that has no means, as it has too few records, is in the unit of the others."""
        risks = [scales.is_risk(x.means) if x.means else None for x in self.effects]
        alike = {*risks} == {True, None}
        pairs = zip(rows, [alike or risk for risk in risks], strict=True)
        return [f"{row['term']}, %" if share else str(row["term"]) for row, share in pairs]

    def _at(self, i: int) -> dict[str, Any]:
        """Columns of a frame that say what effect i is for, beside its label."""
        return {}

    @property
    def estimates(self) -> FloatArray:
        """The released effects."""
        return np.array([effect.point for effect in self.effects])

    def _at_once(self, simultaneous: bool | None) -> bool:
        """Whether numbers are to hold for all effects at once, by default as the kind of result."""
        return self._family if simultaneous is None else simultaneous

    def _share(self, conf_level: float, simultaneous: bool | None) -> tuple[int, float]:
        """For how many effects an interval is, and its own level (Bonferroni)."""
        inference.check_conf_level(conf_level)
        count = len(self.effects) if self._at_once(simultaneous) else 1
        return count, 1.0 - (1.0 - conf_level) / count

    def conf_int(self, conf_level: float = 0.95, *, simultaneous: bool | None = None) -> FloatArray:
        """Intervals, one row each; ``simultaneous``: they hold for all at once (Bonferroni).

        By default so do those of arms, subsets, periods and outcomes, and not those of groups and
        points. At points they are for what the effect would be if the same computation, with the
        same penalties and thresholds, had drawn no noise: no sampling variance is released there.
        """
        _, each = self._share(conf_level, simultaneous)
        interval_of = inference.noise_interval if self._noise_only else inference.interval
        around: dict[Any, tuple[float, ...]] = {}  # points share one distribution
        out = np.empty((len(self.effects), 2))
        for i, effect in enumerate(self.effects):
            dist = (effect.laplace, effect.gaussian, effect.sampling, effect.parts)
            if dist not in around:
                interval = interval_of(replace(effect, value=0.0, possible=None), each)
                missing = (math.nan, math.nan)
                around[dist] = missing if isinstance(interval, Unavailable) else tuple(interval)
            low, high = effect.possible or (-math.inf, math.inf)
            out[i] = np.clip(np.add(around[dist], effect.point), low, high)
        return out

    def p_values(self, *, simultaneous: bool | None = None) -> FloatArray:
        """Two-sided p-values of no effect; ``simultaneous`` adjusts them for their number.

        They go with `conf_int`: below 1 - conf_level where the interval is to one side of zero.
        What is not available is NaN.
        """
        found = np.array([or_nan(inference.p_value(effect)) for effect in self.effects])
        return np.minimum(1.0, found * (len(found) if self._at_once(simultaneous) else 1))

    @checked_call
    def test(
        self,
        null: float = 0.0,
        alternative: str = "two-sided",
        *,
        equivalence: tuple[float, float] | None = None,
        margin: float | None = None,
        conf_level: float = 0.95,
        simultaneous: bool | None = None,
    ) -> Tests:
        """Test each effect; arguments as in `Result.test`. Nothing is spent.

        ``simultaneous`` adjusts p-values and intervals for their number (Bonferroni), by default
        as in `conf_int`.
        """
        asked = Hypothesis.asked(null, alternative, equivalence, margin)
        about = facts_tested(self, self.method, self.guarantee.status)
        count, _ = self._share(conf_level, simultaneous)
        pairs = zip(self.labels, self.effects, strict=True)
        return Tests(
            tuple(
                Test.of(x, asked, conf_level=conf_level, tests=count, **about | {"term": label})
                for label, x in pairs
            )
        )

    def tidy(
        self,
        conf_level: float = 0.95,
        *,
        simultaneous: bool | None = None,
        scale: str = "difference",
    ) -> pd.DataFrame:
        """One row for each effect, its name in ``term``; what is not available is NaN.

        ``covers`` says what the interval is for: the effect, or privacy noise only. An estimate
        whose ``noise_ratio`` is above 1 is mostly noise.

        ``scale`` is one of those of `Result.effect`. Outcomes that do not have it are NaN: a number
        that can be negative has no ratio.
        """
        scale = check_scale(scale)
        if scale != "difference":
            return self._frame(self._scaled(scale, *self._share(conf_level, simultaneous)))
        intervals = self.conf_int(conf_level, simultaneous=simultaneous).tolist()
        p_values = self.p_values(simultaneous=simultaneous).tolist()
        covers = "noise" if self._noise_only else "effect"
        rows = []
        for i, (label, effect) in enumerate(zip(self.labels, self.effects, strict=True)):
            low, high = intervals[i]
            interval = inference.Interval(low, high, conf_level)
            error = inference.std_error(effect)
            row = effect_row(effect.point, error, p_values[i], interval, term=label)
            row |= {"noise_sd": math.sqrt(effect.noise_variance), "covers": covers}
            row["noise_ratio"] = ratio_of(effect)
            rows.append(self._at(i) | row)
        return self._frame(rows)

    def _scaled(self, scale: str, count: int, each: float) -> list[dict[str, Any]]:
        """Rows of effects on another scale, which at least one of them has."""
        rows, refused = [], []
        for label, effect in zip(self.labels, self.effects, strict=True):
            try:
                found = scaled_effect(effect, scale, each, self.treatment, self.outcome)
            except OptionError as error:
                refused.append(error)
                rows.append(effect_row(math.nan, NO_ERROR, NO_ERROR, NO_ERROR, term=label))
                continue
            p = float(np.minimum(1.0, count * or_nan(found.p_value)))
            row = effect_row(found.estimate, NO_ERROR, p, found.interval, term=label)
            rows.append(row | found._scaled)
        if len(refused) == len(rows):
            raise refused[0]
        return [row | {"scale": scale} for row in rows]

    def plot(
        self, conf_level: float = 0.95, *, simultaneous: bool | None = None, ax: Any = None
    ) -> Any:
        """Draw the effects with their intervals; return the axes (matplotlib)."""
        at_once = self._at_once(simultaneous)
        return draw(self, conf_level=conf_level, simultaneous=at_once, ax=ax)

    def summary(
        self, form: str = "full", *, conf_level: float = 0.95, simultaneous: bool | None = None
    ) -> Summary:
        """All results as titled tables; the main ones with ``form="short"``."""
        at_once = self._at_once(simultaneous)
        return show(self, form, conf_level=conf_level, simultaneous=at_once)

    def to_dict(self, conf_level: float = 0.95) -> dict[str, Any]:
        """Plain values for JSON; each effect has its label and its interval beside it."""
        document = super().to_dict(conf_level)
        intervals = self.conf_int(conf_level).tolist()
        released = zip(self.labels, self.effects, intervals, strict=True)
        for entry, (label, effect, interval) in zip(document["effects"], released, strict=True):
            entry |= {"label": label, "estimate": entry["value"], "conf_int": plain(interval)}
            entry["noise_variance"] = plain(effect.noise_variance)
        return document


@dataclass(frozen=True, repr=False, kw_only=True)
class SimultaneousEffects(SeveralEffects):
    """Average effects whose intervals hold, and p-values are adjusted, for all at once."""

    _titled = "{0._what} {0._named.among}, {0._private}"
    _family: ClassVar[bool] = True

    @property
    def identification(self) -> str:
        """How the effects are identified; associations do not count where others are effects."""
        found = [x.identification for x in self.effects if x.identification]
        return min(found, key="unadjusted".__eq__, default="")

    def effect_conf_int(
        self, conf_level: float = 0.95, *, simultaneous: bool | None = None
    ) -> FloatArray:
        """Intervals for effects, where these are associations: they allow for confounding."""
        effects = tuple(effect.as_effect() for effect in self.effects)
        return replace(self, effects=effects).conf_int(conf_level, simultaneous=simultaneous)

    @property
    def means(self) -> pd.DataFrame | Unavailable:
        """Mean outcomes by arm, with 95 % intervals; see `means_at`."""
        return self.means_at()

    def means_at(self, conf_level: float = 0.95) -> pd.DataFrame | Unavailable:
        """Mean outcomes by arm: columns arm, mean, std_error, conf_low and conf_high.

        Each interval is for one mean, not for all at once.
        """
        inference.check_conf_level(conf_level)
        rows = self._mean_rows(conf_level)
        return frame_of(rows) if rows else NO_MEANS

    def _mean_rows(self, conf_level: float) -> list[dict[str, Any]]:
        """Rows of means by label and arm."""
        return [
            {"term": label} | row
            for label, effect in zip(self.labels, self.effects, strict=True)
            if effect.means is not None
            for row in mean_rows(effect.means, conf_level)
        ]

    @property
    def _what(self) -> str:
        """What these are, as in the title."""
        return wording.called(self, many=True)

    @property
    def _subject(self) -> str:
        return f"{wording.effect_words(self)} {self._named.among}"

    def _headed(self, conf_level: float) -> Mapping[str, str]:
        return {"Estimand": wording.asked_for(self), self._named.name: self._named.all}

    def _blocks(self, conf_level: float, simultaneous: bool | None = None) -> Sequence[Block]:
        title = wording.relation_title(self, f", {self._named.by}")
        rows = wording.rows_of(self, conf_level, simultaneous=simultaneous)[: wording.EFFECTS]
        effects = wording.effects_table(title, rows, conf_level, self._named.each)
        return effects, *wording.means_block(self, conf_level)

    def _noted(self, conf_level: float, simultaneous: bool | None = None) -> Sequence[str]:
        return [*self._reading(conf_level, simultaneous), *self.notes]

    def _reading(self, conf_level: float, simultaneous: bool | None) -> list[str]:
        """Notes on how to read the numbers."""
        family = self._family_words(conf_level, simultaneous, self._named.each)
        why = [[f" are {x.sampling}."] * isinstance(x.sampling, Unavailable) for x in self.effects]
        told = wording.with_whose(self.labels, why, " of {1}{0}", self.labels)
        missing = [f"Standard errors and intervals{text}" for text in told]
        by_group = "groups" in self.details
        other = wording.narrower(self.identification == "randomised", "dp_ate") if by_group else ""
        return [family, *missing, wording.left_out(len(self.labels)), other]

    def _family_words(
        self, conf_level: float, simultaneous: bool | None = None, each: str = "effect"
    ) -> str:
        """For how many effects intervals and p-values hold at once."""
        if all(isinstance(effect.sampling, Unavailable) for effect in self.effects):
            return ""
        if not self._at_once(simultaneous):
            what = "Intervals" if self.associated else "Intervals and p-values"
            return f"{what} are for one {each} each and not adjusted for multiplicity."
        p = "" if self.associated else ", and p-values are adjusted for multiplicity"
        count, level = len(self.labels), wording.percent(conf_level, "g")
        if count == 1:
            return ""
        return f"Simultaneous {level} confidence intervals (Bonferroni, {count} {each}s){p}."

    def _findings(self, conf_level: float) -> Sequence[str]:
        labels, rows = self._named, self.tidy(conf_level).to_dict("records")
        what = "Associations" if self.associated else "Effects"
        return [
            f"The {labels.name.lower()} are {labels.all.replace(' (reference)', '')}. {what} "
            f"{labels.by}, with {wording.percent(conf_level)} intervals, are "
            f"{wording.listed(rows)}.",
            self._whose,
            self._family_words(conf_level),
            wording.noise_sentence(rows),
        ]

    @property
    def _whose(self) -> str:
        """Whose averages these are, in a sentence."""
        return ""

    def _lacks(self, conf_level: float) -> str:
        why = self.effects[0].sampling
        return f"standard errors and intervals ({why})" if isinstance(why, Unavailable) else ""

    def _one(self, label: str, what: str, **changes: Any) -> Result:
        """One of the effects as a `Result`."""
        if (label := spelled(label, self.labels)) not in self.labels:
            raise OptionError(not_among(what, label, self.labels))
        about = {f.name: getattr(self, f.name) for f in fields(ResultBase)} | changes
        if len(self.labels) > 1:
            alone = f"not adjusted for (one of {len(self.labels)} effects)"
            about["sample"] = {**about["sample"], "alone": alone}
        return Result(released=self.effects[self.labels.index(label)], **about)


@dataclass(frozen=True, repr=False, kw_only=True)
class ArmEffects(SimultaneousEffects):
    """Average effects between more than two arms: one for each contrast, out of one budget.

    Intervals hold, and p-values are adjusted, for all contrasts at once (Bonferroni), unless
    ``simultaneous=False`` is asked for.

    Parameters
    ----------
    contrasts
        "reference" (each arm against the first) or "pairwise" (each against each).
    labels, effects
        ``"high - none"`` for the effect of the first arm against the second, and its estimate.

    Examples
    --------
    >>> import dpeffects as dpe
    >>> data = dpe.simulate("three_arms", n=2000, seed=1)
    >>> fit = dpe.dp_ate(
    ...     "outcome ~ treatment | x1 + x2", data, "private_psm", level="label", epsilon=2, seed=1
    ... )
    >>> fit.tidy()["term"].tolist(), fit.conf_int().shape
    (['low - none', 'high - none'], (2, 2))
    """

    contrasts: str

    @classmethod
    def _made(cls, released: Effects, estimation: Any, about: dict[str, Any]) -> Self:
        """The result of an estimation, with what all results say about themselves."""
        names = about["arms"]
        return cls(
            contrasts=estimation.request.contrasts,
            labels=tuple(f"{names[a]} - {names[b]}" for a, b in estimation.contrasts),
            effects=tuple(map(estimation.completed, released.estimates)),
            details=released.details,
            **about | {"notes": (*released.notes, *about["notes"])},
        )

    def contrast(self, label: str) -> Result:
        """One of the effects as a `Result`, with an interval for it alone.

        So that, for example, ``fit.contrast("high - none").sensitivity()`` can be asked.
        """
        return self._one(label, "contrast", treatment=f"{self.treatment} ({label})")

    def _mean_rows(self, conf_level: float) -> list[dict[str, Any]]:
        """Each arm once, in the order of the arms."""
        found: dict[str, dict[str, Any]] = {}
        others = 1 if self.contrasts == "reference" else len(self.arms)
        pairs = [(a, b) for b in range(others) for a in range(b + 1, len(self.arms))]
        for (arm, other), effect in zip(pairs, self.effects, strict=True):
            if effect.means is not None:
                names = self.arms[arm], self.arms[other]
                for row in mean_rows(effect.means, conf_level, names):
                    found.setdefault(row["arm"], row)
        return [found[name] for name in self.arms if name in found]

    @property
    def _whose(self) -> str:
        return "" if self.associated else "All of them are averages over the records of all arms."

    def _headed(self, conf_level: float) -> Mapping[str, str]:
        rows = dict(super()._headed(conf_level))
        average = ESTIMANDS[self.estimand].words
        asked = rows["Estimand"].replace(average, f"{average} over the records of all arms", 1)
        return rows | {"Estimand": asked}

    @property
    def _named(self) -> Labels:
        names = ", ".join((f"{self.arms[0]} (reference)", *self.arms[1:]))
        return Labels("contrast", "between arms", f"between {len(self.arms)} arms", "Arms", names)

    def __repr__(self) -> str:
        return self._head(f"{len(self.labels)} contrasts of {len(self.arms)} arms")


@dataclass(frozen=True, repr=False, kw_only=True)
class SubsetEffects(SimultaneousEffects):
    """Average effects in several subsets, out of one budget.

    Intervals hold, and p-values are adjusted, for all subsets at once (Bonferroni), unless
    ``simultaneous=False`` is asked for.

    Parameters
    ----------
    subsets
        The conditions of the subsets.
    disjoint
        Whether no record can be in two of them.
    labels, effects
        Names of the subsets, and their estimates.

    Examples
    --------
    >>> import dpeffects as dpe
    >>> data = dpe.simulate("cate_1", n=4000, seed=1)
    >>> by = {"low": "x1 < 0.5", "high": "x1 >= 0.5"}
    >>> fit = dpe.dp_ate("outcome ~ treatment | x1 + x2", data, epsilon=2, by=by, seed=1)
    >>> fit.tidy()["term"].tolist(), fit.disjoint
    (['low', 'high'], True)
    """

    subsets: tuple[str, ...]
    disjoint: bool

    def subset(self, label: str) -> Result:
        """One of the effects as a `Result`, with an interval for it alone."""
        conditions = dict(zip(self.labels, self.subsets, strict=True))
        sample = {**self.sample, "by": f"subset {conditions.get(label, label)}"}
        return self._one(label, "subset", sample=sample)

    def difference(self, one: str, other: str) -> Result:
        """How much larger the effect is in one subset than in another that is disjoint from it."""
        if not self.disjoint:
            raise OptionError("subsets that may share records have no simple difference")
        first, second = (self.subset(label).released for label in (one, other))
        contrast = f"{self.treatment} ({one} - {other})"
        released = first.less(second)
        about: dict[str, Any] = {"treatment": contrast, "sample": {}, "arms": ()}
        return replace(self.subset(one), released=released, **about)

    @property
    def _named(self) -> Labels:
        pairs = zip(self.labels, self.subsets, strict=True)
        names = "; ".join(a if a == b else f"{a} ({b})" for a, b in pairs)
        more = "; disjoint" if self.disjoint else ""
        among = f"in {len(self.labels)} subsets"
        return Labels("subset", "by subset", among, "Subsets", names + more)

    def __repr__(self) -> str:
        return self._head(self._named.among)
