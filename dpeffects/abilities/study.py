"""`dp_study`: several outcomes, subgroups and Table 1 out of one budget, in one joint release.

Outcomes and baseline variables are columns on the scale z from -1/2 to 1/2. One margin has, by arm,
the number of records, the sums of all outcomes and of their squares; others have the same by arm
and level of each factor of subgroups, and for the baseline variables (`estimators/margins.py`).

Where treatment was not randomised, and there are baseline variables, records count by weights of
one released propensity model, for all outcomes at once (`_tables.Adjustment`). What is averaged
then is what released slopes on the baseline variables leave of an outcome (`outcome_slopes`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from functools import cached_property, partial
from typing import Any, ClassVar, Unpack

import numpy as np

from dpeffects import calls, errors, estimands, flow
from dpeffects.arrays import IntArray
from dpeffects.design.columns import Design, intervals_of
from dpeffects.estimators import arm_sums, arm_tables
from dpeffects.estimators import constants as hand
from dpeffects.estimators.default.clipped_contrast import refuse_unadjusted
from dpeffects.estimators.default.polynomial_terms import bends, bent
from dpeffects.estimators.margins import ArmByLevel, MarginQuery, Residuals, cube, margins
from dpeffects.estimators.outcome_slopes import PART, SHARE, release_slopes, slopes_within, worth
from dpeffects.estimators.spec import Contrasts, Options, PublicInfo
from dpeffects.formula.discrete import joined
from dpeffects.formula.expression import Categorical, Cut, source
from dpeffects.inference import COUNTED, Unavailable, check_conf_level, noise_ratio
from dpeffects.inference.estimate import Estimate, with_another
from dpeffects.inference.interaction import interaction
from dpeffects.inference.joint import JointSums, Margin, StudyColumn, agreeing
from dpeffects.inference.range_ends import arms_warning
from dpeffects.inference.table_one import OVERALL, arm_sizes, table_one, unlike, variable_name
from dpeffects.lazy import pd
from dpeffects.privacy import Curator, GroupIndex, entries
from dpeffects.privacy.units import seen_as
from dpeffects.results import average, export, result_base, several, table_results, wording
from dpeffects.results.number_format import number, to_error
from dpeffects.results.result_base import NamedTable
from dpeffects.results.scaled import mean_rows
from dpeffects.summary import NAMED, NOISE, SHOWN, Table, draw, printed

_UNWEIGHTED = Fraction(1, 3)
"""Part of that for their means without weights, where there are means with weights too: these have
more noise, because the largest weight counts as one record."""
_BASELINE_SQUARES = Fraction(3, 10)
"""Part of a pure price for the squares of baseline variables, which differences are divided by."""
_SAID = wording.said("study")

# --- options ------------------------------------------------------------------------------------

_TYPICAL = PublicInfo(1000, 1, None, "sample", values=(1, 0, 0), outcomes=1)  # type: ignore[arg-type]


@dataclass(frozen=True)
class JointOptions(arm_tables.TableOptions):
    """``design``: "observational", or "randomised" where treatment was assigned by chance.

    ``on_unadjusted``: "warn", or "error" to refuse, before anything is paid, a result of an
    observational study that is not adjusted. ``adjust``: whether baseline variables are adjusted
    for, None where there are any, treatment was not randomised, and a propensity model can be
    learnt. ``model_share``: part of the budget for that model, by default from public numbers.
    ``flexible``: 0 adjusts for the baseline variables as they are written, 1 for their squares too,
    2 for their products too; None chooses by n, epsilon, delta and the number of columns.
    """

    confounded: ClassVar[float] = hand.CONFOUNDED
    facts: PublicInfo = field(default=_TYPICAL, init=False)
    """What choices were made by, once they are made."""

    def resolve(self, facts: PublicInfo) -> Options:
        """Decide whether to adjust; refuse what is too much."""
        if facts.outcomes > 500:
            raise errors.OptionError(f"a study can have at most 500 outcomes, not {facts.outcomes}")
        if facts.arms > 2:
            if self.adjust:
                raise errors.OptionError(errors.refusal("adjust_two_arms"))
            refuse_unadjusted(self, "more than two arms are not adjusted", "Compare two arms")
            return self.made_for(facts, adjust=False)
        return super().resolve(facts)

    @property
    def baseline(self) -> PublicInfo:
        """The facts of the baseline variables: outcomes are columns that nothing is said of."""
        outcomes = 1 + self.facts.released
        values = (*(1,) * outcomes, *self.facts.values[outcomes:])
        return replace(self.facts, values=values)

    def noise_of(self, facts: PublicInfo) -> float:
        """Pure noise of a weighted sum of one of the outcomes."""
        columns, part = facts.released + 1, hand.OUTCOMES if facts.groups else 1.0
        return math.sqrt((columns + 1) * (columns + 2) / 6.0) / part

    @property
    def slopes(self) -> int:
        """How far slopes of the outcomes bend, released beside the weights; -1 for no slopes."""
        facts = self.facts
        if not self.adjust or facts is _TYPICAL:
            return -1
        price = facts.budget.epsilon * PART * arm_tables.table_budget("sample", self)["table"]
        columns = {k: bent(self.baseline, k).columns for k in range(self.degree, -1, -1)}
        able = (k for k, p in columns.items() if worth(facts.n, p, facts.outcomes, price))
        return next(able, -1)


def budget_split(level: str, options: JointOptions) -> dict[str, float]:
    """Split of the budget between outcomes, subgroups and baseline variables."""
    facts = options.facts
    found = {"outcomes": hand.OUTCOMES}
    if facts.groups:
        found["subgroups"] = 1.0 - hand.OUTCOMES
    if baseline := _baseline_count(facts) * (2 if options.adjust else 1):
        usual, least, most = hand.BASELINE
        part = usual * (baseline / max(facts.released, 1)) ** (2.0 / 3.0)
        found["baseline"] = min(max(part, least), most)
    if not options.adjust:
        return found
    about = arm_tables.table_budget(level, options)
    if options.slopes >= 0:
        about[SHARE] = PART * about["table"]
        about["table"] -= about[SHARE]
    table = about.pop("table") / sum(found.values())
    return about | {name: table * part for name, part in found.items()}


def _baseline_count(facts: PublicInfo) -> int:
    """Columns of baseline variables, all but the intercept and the outcomes."""
    return max(len(facts.values) - 2 - facts.released, 0)


def uses_delta(options: JointOptions, facts: PublicInfo) -> dict[str, float | None]:
    """All shares can use a delta, where Gaussian noise is less than that of a cube."""
    outcomes = entries(cube(facts.released + 1), 2)
    found: dict[str, float | None] = {"outcomes": outcomes}
    if options.adjust:
        found |= {"model": None, "unadjusted": outcomes}
        columns = bent(options.baseline, options.slopes).columns
        found[SHARE] = entries(slopes_within(max(columns, 1), max(facts.outcomes, 1)))
    if facts.groups:
        found["subgroups"] = len(facts.groups) * outcomes
    if baseline := _baseline_count(facts):
        found["baseline"] = entries(cube(baseline), 2)
    return found


# --- the release --------------------------------------------------------------------------------


def _completed(missing: tuple[int, ...], own: Mapping[str, Any], estimation: Any) -> dict[str, Any]:
    """Columns with their names and ranges, and margins that agree; then effects.

    ``missing`` says for each outcome which column tells where it is missing, 0 where none does.
    """
    design, found, parts = estimation.design, own["sums"], list[Margin]()
    if found.groups:
        strata = estimation.groups.design.strata()
        for x, margin, levels in zip(strata.factors, found.groups, strata.values(), strict=True):
            name = x.column if isinstance(x, Categorical) else source(x)
            parts.append(replace(margin, factor=name, levels=levels))
    n = float(design.n) if estimation.size is None else None
    whole, *parts = agreeing(found.whole, parts, n if found.unadjusted is None else None)
    plain = found.unadjusted and agreeing(found.unadjusted, (), n)[0]
    arms = tuple(map(str, design.columns.arms or ("control", "treated")))
    columns, released = study_columns(design), whole.sums.shape[2]
    sums = replace(
        found,
        arms=arms if len(arms) > 2 else arms[::-1],
        contrasts=estimation.contrasts or ((0, 1),),
        outcomes=tuple(replace(x, missing=k - 1) for x, k in zip(columns, missing, strict=False)),
        whole=whole,
        groups=tuple(parts),
        baseline_columns=columns[released:],
        baseline=found.baseline and found.baseline.of_sizes((plain or whole).sizes),
        weighted_baseline=found.weighted_baseline and found.weighted_baseline.of_sizes(whole.sizes),
        unadjusted=plain,
    )
    return {
        "outcome": together(sums.outcomes),
        "labels": sums.labels,
        "effects": tuple(
            replace(effect, identification=own["identification"]) for effect in sums.effects()
        ),
        "sums": sums,
        "subgroups": tuple(margin.factor for margin in parts),
    }


def together(outcomes: Sequence[StudyColumn]) -> str:
    """Name the outcomes of a study together."""
    return outcomes[0].name if len(outcomes) == 1 else f"{len(outcomes)} outcomes"


def study_columns(design: Design) -> tuple[StudyColumn, ...]:
    """The encoded columns of a design but the intercept, with their ranges in units of the data."""
    ranges, found = design.encoding.ranges(intervals_of(design.bounds)).tolist(), []
    for column, (low, high), values in zip(
        design.encoding.columns, ranges, design.values[:-1], strict=True
    ):
        made = StudyColumn(column.name, low, high, values == 2)
        if len(column.parts) == 1 and isinstance(column.parts[0].factor, Categorical | Cut):
            factor, index = column.parts[0].factor, column.parts[0].index
            levels = factor.labels if isinstance(factor, Cut) else factor.levels or ()
            variable = source(factor.x) if isinstance(factor, Cut) else factor.column
            level, first = str(levels[index]), str(levels[0])
            name = variable if set(levels) == {0, 1} else made.name  # "died", not "died[T.1]"
            made = replace(made, name=name, variable=variable, level=level, first=first)
        found.append(made)
    return tuple(found[1:])


@dataclass(frozen=True, eq=False)
class _Release:
    """What margins are asked for: those of the outcomes, and those of baseline variables."""

    curator: Curator
    options: JointOptions
    prefix: str = ""
    left: Residuals | None = None

    @property
    def gone(self) -> IntArray:
        """For each released column, the one that says where it is missing, or its own number."""
        found = np.arange(1, self.options.facts.released + 1)
        own = np.array(self.options.facts.missing, np.int64)
        found[: own.size] = np.where(own > 0, own, found[: own.size])
        return found

    def outcomes(
        self, share: str, level: int | None = None, price: Fraction = Fraction(1)
    ) -> MarginQuery:
        """The outcomes by arm, or by arm and level of a factor."""
        facts, arms = self.options.facts, self.curator.arms
        columns = np.arange(1, facts.released + 1)
        label, shape = f"{self.prefix}outcomes by arm", (arms, 1)
        cells = arm_sums.arm_cells(self.curator)
        if level is not None:
            label, levels = f"{label} and factor {level + 1}", facts.groups[level]
            below = math.prod(facts.groups[level + 1 :])
            cells = GroupIndex(ArmByLevel(arms, levels, below), arms * levels)
            shape = arms, levels
        about = (label, columns, cells, shape, share, price)
        return MarginQuery(self.curator, *about, gone=self.gone, left=self.left)

    def baseline(self, price: Fraction) -> list[MarginQuery]:
        """The baseline variables by arm, where there are any."""
        curator, first = self.curator, self.options.facts.released + 1
        columns = np.arange(first, curator.width)
        label = f"{self.prefix}baseline variables by arm"
        cells, shape, part = arm_sums.arm_cells(curator), (curator.arms, 1), _BASELINE_SQUARES
        asked = MarginQuery(
            curator, label, columns, cells, shape, "baseline", price, part, counted=False
        )
        return [asked] if columns.size else []


def fit(
    curator: Curator, options: JointOptions, estimand: str, contrasts: Contrasts = ()
) -> table_results.TableRelease:
    """Release all margins from one look at the rows; which arms are compared is post-processing.

    Where records count by weights, one look more is for the outcomes and the baseline variables
    without weights, and some are for the model.
    """
    facts, plain = options.facts, _Release(curator, options)
    adjustment = unadjusted = own_baseline = top = None
    price, counted = Fraction(1), plain
    if options.adjust:
        price = _UNWEIGHTED
        unadjusted, own_baseline = margins([plain.outcomes("unadjusted"), *plain.baseline(price)])
        adjustment = _adjustment(curator, options, estimand, unadjusted)
        assert adjustment is not None
        left = _left(plain, adjustment, unadjusted, own_baseline)
        seen, top, price = seen_as(curator, adjustment.weight), adjustment.weight.largest, 1 - price
        counted = _Release(seen, options, "weighted ", left)
    groups = [
        counted.outcomes("subgroups", g, Fraction(1, len(facts.groups)))
        for g in range(len(facts.groups))
    ]
    asked = [counted.outcomes("outcomes"), *groups, *counted.baseline(price)]
    found = margins(asked)
    if top is not None:
        found = [margin.times(top) for margin in found]
    whole, parts, baseline = found[0], found[1 : len(groups) + 1], (*found[len(groups) + 1 :], None)
    sums = JointSums(
        (),
        (),
        (),
        whole,
        tuple(parts),
        baseline=baseline[0] if adjustment is None else own_baseline,
        weighted_baseline=None if adjustment is None else baseline[0],
        normal=asked[0].gaussian or facts.released + 1 >= 5,  # a cube's tails then are no heavier
        unequal=() if adjustment is None else adjustment.unequal,
        confounding=arm_tables.confounding_left(options, adjustment),
        unadjusted=unadjusted,
        missed=() if counted.left is None else tuple(counted.left.fitted.missed.tolist()),
    )
    made = arm_tables.tabled(StudyEffects, options, adjustment, sums=sums)
    return replace(made, named=partial(_completed, facts.missing))


def _adjustment(
    curator: Curator, options: JointOptions, estimand: str, unadjusted: Margin
) -> arm_tables.Adjustment | None:
    """Release a propensity model of the baseline variables."""
    facts, seen = options.facts, copy(curator)
    seen.values = options.baseline.values
    means, sizes = unadjusted.means()[:, 0], unadjusted.records
    own = np.clip(unadjusted.squares[:, 0] / sizes - means**2, 1e-4, 0.25)
    deviation = math.sqrt(2.0 / math.pi) * float(np.sqrt(own[:, : facts.outcomes]).mean())
    price = curator.noise_sd("outcomes") / curator.noise_sd("unadjusted")
    noise_sd = price * math.sqrt(float(unadjusted.noise[1, 0]))
    return arm_tables.adjusted(seen, options, estimand, deviation, noise_sd)


def _left(
    plain: _Release, adjustment: arm_tables.Adjustment, whole: Margin, baseline: Margin
) -> Residuals | None:
    """Release slopes of the outcomes, where there is a share for them."""
    curator, options, facts = plain.curator, plain.options, plain.options.facts
    if not curator.has(SHARE):
        return None
    k, score = facts.outcomes, adjustment.standard
    able = bends(options.baseline, options.slopes)
    standard = replace(score, bends=tuple(x for x in score.bends if x in able))
    means, sizes = whole.means()[:, 0, :k], whole.records
    own = np.clip(whole.squares[:, 0, :k] / sizes - means**2, 1e-3, 0.25)
    fitted = release_slopes(
        curator,
        standard,
        np.arange(1, k + 1),
        plain.gone[:k],
        means,
        (own * sizes).sum(axis=0) / sizes.sum(),
    )
    if standard.size < score.size:
        fitted = replace(fitted, missed=np.maximum(fitted.missed, hand.STRAIGHT_SLOPES_MISS))
    target = estimands.ESTIMANDS[adjustment.estimand]
    if not (target.of_treated and target.of_control):
        arm = baseline.means()[0 if target.of_treated else 1, 0] + 0.5
        fitted = fitted.around(arm[standard.columns - facts.released - 1])
    two = np.array([curator.values[j] == 2 for j in range(1, k + 1)])
    return Residuals(fitted, k, two)


TABLE = arm_tables.table_spec(
    name="study",
    levels=("sample",),
    options=JointOptions,
    budget_split=budget_split,
    uses_delta=uses_delta,
    fit=fit,
    fit_arms=fit,
    uses_outcome=False,
    needs_intercept=True,
    several=True,
    **_SAID["spec"],
)


# --- the result ---------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False, kw_only=True)
class StudyEffects(
    several.IdentificationMixin,
    several.SimultaneousEffects,
    picture="report.plots.several_outcomes.of_study",
):
    """Effects on several outcomes, in subgroups too, and the baseline variables by arm.

    All of it follows from one joint release. Intervals hold, and p-values are adjusted, for all
    outcomes at once (Bonferroni), unless ``simultaneous=False`` is asked for.

    Parameters
    ----------
    labels, effects
        Names of the outcomes (and of the arms compared, where there are more than two), and the
        estimates on all records.
    sums
        The released numbers. What else they give is post-processing: it costs nothing.
    subgroups
        The factors that make subgroups, as they were written.
    identification, method_warnings
        How effects are identified, and the warnings of the method.
    """

    _titled = "{0._what} on {0.outcome}, {0._private}"
    sums: JointSums
    subgroups: tuple[str, ...] = ()
    identification: str = ""
    method_warnings: str = ""

    @property
    def estimate_warnings(self) -> str:
        """Warnings about the estimates; empty where there are none."""
        ends = (arms_warning(self._about(i)[0].name, x.means) for i, x in enumerate(self.effects))
        return with_another(super().estimate_warnings, *self._at_ends(ends), *self._imbalanced)

    def _based(self, estimate: Estimate) -> Estimate:
        warnings = with_another(estimate.warnings, self.method_warnings, *self._imbalanced)
        return replace(super()._based(estimate), warnings=warnings)

    @cached_property
    def _imbalanced(self) -> list[str]:
        """Warn where arms that were declared to be randomised differ by more than chance."""
        declared = self.identification == "randomised" and "weights" not in self.sample
        row = unlike(list(table_one(self.sums)), self.sizes) if declared else None
        told = _SAID["unlike"].format
        return [told(variable_name(row["variable"], row["level"]), **row)] if row else []

    @property
    def _missing(self) -> str:
        return "available" if any(x.missing >= 0 for x in self.sums.outcomes) else super()._missing

    @property
    def outcomes(self) -> tuple[str, ...]:
        """Names of the outcomes."""
        return tuple(column.name for column in self.sums.outcomes)

    @property
    def sizes(self) -> dict[str, float]:
        """Numbers of records by arm, with noise; they are not negative and add up."""
        return dict(zip(self.sums.arms, arm_sizes(self.sums)[0].tolist(), strict=True))

    def effect_on(self, label: str) -> average.Result:
        """The effect on one outcome as a `Result`, not adjusted for multiplicity.

        For example, ``fit.effect_on("died").effect("ratio")`` is a risk ratio.
        """
        found = self._one(label, "outcome")
        column, pair = self._about(self.labels.index(errors.spelled(label, self.labels)))
        arms = [self.sums.arms[arm] for arm in pair]
        compared = "" if len(self.sums.arms) == 2 else f" ({' - '.join(arms)})"
        about: dict[str, Any] = {"outcome": column.name, "treatment": self.treatment + compared}
        return replace(found, released=self._based(found.released), **about)

    def by(self, subgroup: str) -> several.SubsetEffects:
        """Effects on all outcomes in the subgroups of a factor, with simultaneous intervals.

        Where several sites were combined, ``fit.by("site")`` has the effects at each site.
        """
        labels, effects, levels = [], [], []
        subgroup = errors.spelled(subgroup, self.subgroups)
        if subgroup in self.subgroups:
            within = self.sums.effects_by_level(self.subgroups.index(subgroup))
        elif subgroup == "site" and self.sums.sites:
            each = (site.effects() for site in self.sums.sites)
            within = zip(self.sums.site_names, each, strict=True)
        else:
            known = ", ".join(self.subgroups) or "no subgroups"
            raise errors.OptionError(f"this study has no subgroups by {subgroup!r}; it has {known}")
        for level, found in within:
            labels += [f"{label} | {level}" for label in self.labels]
            effects += [self._based(effect) for effect in found]
            levels += [level] * len(found)
        about = {f.name: getattr(self, f.name) for f in fields(result_base.ResultBase)}
        if any(map(_percent, self.sums.outcomes)):
            about["notes"] = (_SAID["proportions"], *self.notes)
        return several.SubsetEffects(
            **about,
            labels=tuple(labels),
            effects=tuple(effects),
            subsets=tuple(levels),
            disjoint=False,  # effects on two outcomes share their records
        )

    def interactions(
        self, conf_level: float = 0.95, *, simultaneous: bool = True, most: int | None = None
    ) -> pd.DataFrame:
        """P for interaction: is the effect on an outcome the same in all subgroups of a factor?

        One row for each outcome and factor: the two levels whose effects differ most clearly
        (``one``, ``other``), the difference of their effects with its interval, and the p-value of
        the null hypothesis of equal effects at all levels. Interval and p-value have a Bonferroni
        correction for the number of pairs of levels and, with ``simultaneous=True``, for the
        number of outcomes and factors. ``most`` limits the effects that are tested, in the order
        of `labels`.
        """
        check_conf_level(conf_level)
        count = len(self.labels) * len(self.subgroups) if simultaneous else 1
        each = 1.0 - (1.0 - conf_level) / max(count, 1)
        rows = []
        for g, factor in enumerate(self.subgroups):
            found = list(self.sums.effects_by_level(g, apart=True))
            levels = [level for level, _ in found]
            for i, label in enumerate(self.labels[:most]):
                test = interaction(levels, [self._based(effects[i]) for _, effects in found])
                if test is None:
                    continue
                own, ends = test.difference, test.conf_int(each)
                low, high = (math.nan, math.nan) if isinstance(ends, Unavailable) else ends
                p = float(np.minimum(1.0, count * export.or_nan(test.p_value)))
                found_by = label, factor, test.one, test.other
                rows.append((*found_by, own.point, low, high, p, math.sqrt(own.noise_variance)))
        columns = ["term", "subgroup", "one", "other", "difference", "conf_low", "conf_high"]
        return export.frame_of(rows, [*columns, "p_value", "noise_sd"])

    def table1(self) -> pd.DataFrame:
        """Baseline variables by arm (Table 1), with standardised mean differences and noise.

        One row for each variable or level of a factor. For each arm, and overall: the number of
        records (``treated_n``), the mean or, where ``share`` is True, the proportion of those
        records in their arm (``treated_mean``), the standard deviation of the variable
        (``treated_sd``, NaN where it is mostly noise) and that of the privacy noise in the mean
        (``treated_noise_sd``). Then ``smd``, the difference treated minus control divided by the
        square root of the mean of both variances (of more than two arms, the largest between two
        of them), the standard deviation of its noise, and whether it is within 1.96 of these
        (``smd_within_noise``); the same after weighting, where records were weighted. A number
        whose ``noise_ratio`` is above 1 is mostly noise, and not printed. Noise is privacy noise
        alone, without sampling error. Proportions of the levels of a factor add up to 1.
        ``table("table1")`` has the table as it is printed.
        """
        rows = list(table_one(self.sums))
        return export.frame_of(rows, list(rows[0]) if rows else ["variable", "level", "share"])

    def plot(  # type: ignore[override]  # a factor first, as of one covariate in CATE
        self,
        by: str | Sequence[str] | None = None,
        *,
        conf_level: float = 0.95,
        simultaneous: bool | None = None,
        kind: str = "forest",
        most: int | None = 30,
        ax: Any = None,
    ) -> Any:
        """Draw the effects with their intervals, or Table 1's differences; return the axes.

        Parameters
        ----------
        by
            A factor of subgroups, or a list of them: effects at each level below those on all
            records, and the p-value of the interaction.
        conf_level, simultaneous
            Level of the intervals, and whether they are simultaneous (Bonferroni), the default.
        kind
            "forest" (effects) or "love" (standardised differences of baseline variables, sorted).
        most
            How many differences of Table 1 are drawn, the largest first; None draws all.
        ax
            Axes to draw on; by default those of a new figure.
        """
        given = {k: x for k, x in locals().items() if k != "self"}
        return draw(self, **given | {"simultaneous": self._at_once(simultaneous)})

    def _about(self, i: int) -> tuple[StudyColumn, tuple[int, int]]:
        """The outcome of an effect, and the arms that it compares."""
        outcome, pair = divmod(i, len(self.sums.contrasts))
        return self.sums.outcomes[outcome], self.sums.contrasts[pair]

    def _mean_rows(self, conf_level: float) -> list[dict[str, Any]]:
        """Each outcome and arm once, in the order of the arms."""
        found: dict[tuple[str, str], dict[str, Any]] = {}
        for i, effect in enumerate(self.effects):
            column, pair = self._about(i)
            one, other = (self.sums.arms[arm] for arm in pair)
            if effect.means is not None:
                for row in mean_rows(effect.means, conf_level, (one, other)):
                    found.setdefault((column.name, row["arm"]), {"term": column.name} | row)
        order = [(name, arm) for name in self.outcomes for arm in self.sums.arms]
        return [found[key] for key in order if key in found]

    def _frame(self, rows: Sequence[dict[str, Any]]) -> pd.DataFrame:
        """Effects as a frame, each with its own outcome."""
        frame = super()._frame(rows)
        frame["outcome"] = [self._about(i)[0].name for i in range(len(rows))]
        return frame

    def _glance(self) -> dict[str, Any]:
        counts = {"outcomes": len(self.outcomes), "arms": len(self.sums.arms)}
        return super()._glance() | counts | {"subgroups": len(self.subgroups)}

    def __repr__(self) -> str:
        return self._head(f"on {self.outcome}")

    # --- words ----------------------------------------------------------------------------------

    @property
    def _named(self) -> several.Labels:
        return several.Labels("outcome", "by outcome", "", "", "")

    @property
    def _subject(self) -> str:
        """What was estimated, with the outcomes by name where they are few."""
        names = self.outcomes
        said = ", ".join(names) if len(names) <= NAMED else f"{len(names)} outcomes"
        if self.associated:
            return f"the association of {self.treatment} with {said}"
        return f"the {wording.called(self)} of {self.treatment} on {said}"

    def _headed(self, conf_level: float) -> dict[str, str]:
        names, noise = self.outcomes, number(arm_sizes(self.sums)[1], 2)
        more = f", ... ({len(names)} outcomes)" if len(names) > NAMED else ""
        arms = [f"{arm} {size}" for arm, size in zip(self.sizes, _sizes(self), strict=True)]
        about = {
            "Outcomes": ", ".join(names[:NAMED]) + more,
            "Arms": f"{', '.join(arms)} records (noise SD {noise})",
        }
        if self.sums.baseline_columns and not self.associated and self.sums.unadjusted is None:
            about["Adjusted for"] = _SAID["table1_only"]
        if self.subgroups:
            alone = " (each factor by itself)" if len(self.subgroups) > 1 else ""
            about["Subgroups"] = ", ".join(self.subgroups) + alone
        return about

    def _blocks(self, conf_level: float, simultaneous: bool | None = None) -> Sequence[Table]:
        return [table for _, table, _ in self._shown(conf_level, simultaneous)]

    def _noted(self, conf_level: float, simultaneous: bool | None = None) -> Sequence[str]:
        made = self._shown(conf_level, simultaneous)
        first = _SAID["digits"]
        return (first, *dict.fromkeys(note for _, _, own in made for note in own), *self.notes)

    def _shown(self, conf_level: float, simultaneous: bool | None) -> list[NamedTable]:
        """The tables of the summary, which are made once for blocks and notes."""
        asked = conf_level, self._at_once(simultaneous)
        if asked not in self._known:
            self._known[asked] = list(self._apart(*asked, SHOWN))
        return self._known[asked]

    @cached_property
    def _known(self) -> dict[tuple[float, bool], list[NamedTable]]:
        return {}

    def _apart(
        self, conf_level: float, simultaneous: bool = True, most: int | None = None, **asked: Any
    ) -> Iterator[NamedTable]:
        """Tables in reading order, with at most so many effects."""
        yield from super()._apart(conf_level, most=most, simultaneous=simultaneous)
        if len(self.sums.arms) > 2:
            yield _means(self, conf_level, most)
        if self.subgroups:
            tests = self.interactions(conf_level, simultaneous=simultaneous, most=most)
            for factor in self.subgroups:
                p_values = tests[tests["subgroup"] == factor]["p_value"].tolist()
                yield _by_level(self, factor, p_values, conf_level, simultaneous, most)
        if self.sums.baseline is not None:
            yield _table1(self, most)

    def _headline(
        self, conf_level: float = 0.95, simultaneous: bool = True, **asked: Any
    ) -> wording.Lines:
        rows = self._in_points(conf_level, simultaneous)
        between = "with" if self.associated else "on"
        of = f"{self.treatment}{wording.versus(self)} {between} {self.outcome}"
        what = f"{wording.called(self, many=True)} of {of}"
        return wording.estimates(rows, what, conf_level, at_once=simultaneous)

    def _in_points(self, conf_level: float, simultaneous: bool = True) -> list[dict[str, Any]]:
        """Rows of `tidy` for sentences: risk differences are in percentage points."""
        found = self.tidy(conf_level, simultaneous=simultaneous).to_dict("records")
        pairs = zip(found, self._row_labels(found), strict=True)
        points = wording.PER_CENT, ", percentage points"
        return [wording.scaled(row, x) | {"term": x.replace(*points)} for row, x in pairs]

    def _findings(self, conf_level: float) -> Sequence[str]:
        rows = self._in_points(conf_level)
        what = "Associations" if self.associated else "Effects"
        sizes = zip(self.sizes, _sizes(self), strict=True)
        known = ", ".join(f"{arm} {size}" for arm, size in sizes if size != NOISE)
        return [
            f"Records by arm, with privacy noise: {known}." if known else "",
            f"{what} by outcome ({wording.percent(conf_level)} confidence intervals): "
            f"{wording.listed(rows)}.",
            self._family_words(conf_level),
            _subgroup_sentence(self),
            _baseline_sentence(self),
            wording.noise_sentence(rows),
        ]


def _sizes(fit: StudyEffects) -> list[str]:
    """Numbers of records by arm."""
    sizes, noise = arm_sizes(fit.sums)
    return [printed(f"{x:.0f}", noise_ratio(noise, value=max(x, COUNTED))) for x in sizes]


def _percent(column: StudyColumn) -> bool:
    """Whether an outcome is 0 or 1, so that its means are said in per cent."""
    return column.two_valued and (column.low, column.high) == (0.0, 1.0)


def _named(label: str, column: StudyColumn) -> str:
    return f"{label}, %" if _percent(column) else label


def _means(fit: StudyEffects, conf_level: float, most: int | None) -> NamedTable:
    """Mean outcomes by arm, where there are more than two."""
    frame = fit.means_at(conf_level)
    rows = []
    if not isinstance(frame, Unavailable):
        for column in fit.sums.outcomes[:most]:
            own = frame[frame["term"] == column.name]
            factor = 100.0 if _percent(column) else 1.0
            error = factor * float(own["std_error"].max())
            cells = to_error([factor * x for x in own["mean"]], error)
            shown = map(printed, cells, own["noise_ratio"])
            rows.append((_named(column.name, column), *shown))
    table = Table("Means by arm", ("outcome", *fit.sums.arms), tuple(rows), "l" + "r" * len(cells))
    return "means", table, ()


def _by_level(
    fit: StudyEffects,
    factor: str,
    p_values: Sequence[float],
    conf_level: float,
    simultaneous: bool,
    most: int | None,
) -> NamedTable:
    """Effects at the levels of a factor, and the test whether they differ."""
    effects = fit.by(factor)
    names, total = fit.labels[:most], len(effects.labels)
    kept = [i for i in range(total) if i % len(fit.labels) < len(names)]
    parts = "labels", "effects", "subsets"
    own: Any = {x: tuple(getattr(effects, x)[i] for i in kept) for x in parts}
    effects = replace(effects, **own)
    level = 1.0 - (1.0 - conf_level) * len(kept) / total if simultaneous else conf_level
    shown = effects.tidy(level, simultaneous=simultaneous).to_dict("records")
    rows = []
    for i, label in enumerate(names):
        column, _ = fit._about(i)
        for k, row in enumerate(shown[i :: len(names)]):
            name = "" if k else _named(label, column)
            p = "" if k or i >= len(p_values) else wording.p_text(p_values[i])
            where = effects.subsets[i + k * len(names)]
            value, _, *ends = wording.effect_cells(wording.scaled(row, _named("", column)))
            rows.append((name, where, value, *ends, p))
    what = "Associations" if fit.associated else "Effects"
    limits = wording.limits(conf_level)
    columns = "outcome", "subgroup", "difference", *limits, "P for interaction"
    over = "pairs, outcomes and factors" if simultaneous else "pairs"
    notes = (
        _SAID["subgroups"].format(wording.percent(conf_level)) if simultaneous else "",
        _SAID["interaction"].format(over),
        wording.narrower(fit.identification == "randomised", "dp_study"),
    )
    table = Table(f"{what} by {factor}", columns, tuple(rows), "llrrrr")
    return f"by {factor}", table, tuple(filter(None, notes))


def _table1(fit: StudyEffects, most: int | None) -> NamedTable:
    """Baseline variables by arm."""
    frame, arms = fit.table1(), (*fit.sums.arms, OVERALL)
    weighted = "smd_weighted" in frame
    heads = [*_sizes(fit), f"{sum(fit.sizes.values()):.0f}"]
    rows = [("N", *heads, number(arm_sizes(fit.sums)[1], 2), *("",) * (4 if weighted else 2))]
    for row in frame.to_dict("records")[:most]:
        cells, noise = _described(row, arms)
        kinds = ("smd", "smd_weighted") if weighted else ("smd",)
        pairs = [wording.difference_cells(row[kind], row[f"{kind}_noise_sd"]) for kind in kinds]
        differences = [cell for pair in pairs for cell in pair]
        rows.append((variable_name(row["variable"], row["level"]), *cells, noise, *differences))
    after = ("weighted SMD", "noise SD of the weighted SMD") if weighted else ()
    columns = ("variable", *arms, "noise SD", "SMD", "noise SD of the SMD", *after)
    how = "the largest between two arms" if len(arms) > 3 else f"{arms[0]} minus {arms[1]}"
    before = " before weighting" if weighted else ""
    notes = [_SAID["table1"], _SAID["smd"].format(how, before), wording.DAGGER]
    if most is not None and len(frame) > most:
        notes.append(f"The first {most} of {len(frame)} baseline rows; table1() has them all.")
    title = "Table 1. Baseline variables by arm"
    table = Table(title, columns, tuple(rows), "l" + "r" * (len(columns) - 1))
    return "table1", table, tuple(notes)


def _described(row: Any, arms: Sequence[str]) -> tuple[list[str], str]:
    """Numbers and percentages, or means and standard deviations, by arm; the largest noise."""
    noise = max(row[f"{arm}_noise_sd"] for arm in arms)
    if row["share"]:
        cells = []
        for arm in arms:
            own, n = 100.0 * row[f"{arm}_noise_sd"], row[f"{arm}_n"]
            size = n / row[f"{arm}_mean"] if row[f"{arm}_mean"] > 0.0 else 1.0
            (count,) = to_error([n], max(own * size / 100.0, 1.0), 1)
            (share,) = to_error([100.0 * row[f"{arm}_mean"]], max(own, 0.1), 1)
            cells.append(printed(f"{count} ({share}%)", row[f"{arm}_noise_ratio"]))
        return cells, f"{number(100.0 * noise, 2)}%" if noise < 1.0 else "over 100%"
    cells = []
    for arm in arms:
        spread, ratio = row[f"{arm}_sd"], row[f"{arm}_noise_ratio"]
        least = spread / 100.0 if spread > 0.0 else noise
        error = max(row[f"{arm}_noise_sd"], least)
        mean, sd = to_error([row[f"{arm}_mean"], spread], error, 1)
        cell = printed(f"{mean} ({sd})", 2.0 * math.isnan(spread), f"{mean} ({NOISE})")
        cells.append(printed(cell, ratio))
    return cells, number(noise, 2)


def _subgroup_sentence(fit: StudyEffects) -> str:
    """Say which effect differs most clearly between subgroups."""
    tests = fit.interactions(most=SHOWN).to_dict("records")
    if not tests:
        return ""
    known = [row for row in tests if not math.isnan(row["p_value"])]
    where = f"Effects were also estimated in subgroups by {' and by '.join(fit.subgroups)}"
    if not known:
        return f"{where}."
    row, count = min(known, key=lambda row: row["p_value"]), len(fit.labels) * len(fit.subgroups)
    count_words = f"{count} test{'' if count == 1 else 's'}"
    smallest = row["term"], row["subgroup"], wording.p_words(row["p_value"])
    return str(_SAID["tests"].format(where, count_words, *smallest))


def _baseline_sentence(fit: StudyEffects) -> str:
    """Say how far the arms differ at the start."""
    rows = fit.table1().to_dict("records")
    known = [row for row in rows if row["smd_noise_ratio"] <= 1.0]
    if not known:
        return ""
    row = max(known, key=lambda row: abs(row["smd"]))
    name = variable_name(row["variable"], row["level"])
    after = [row for row in rows if row.get("smd_weighted_noise_ratio", math.nan) <= 1.0]
    left = max((abs(row["smd_weighted"]) for row in after), default=None)
    weighted = "" if left is None else f" After weighting, the largest is {left:.2f}."
    found = len(known), len(rows), row["smd"], name, number(row["smd_noise_sd"], 2)
    return f"{_SAID['largest'].format(*found)}{weighted}"


# --- the call -----------------------------------------------------------------------------------


class _OfStudy(calls.OfReleases, calls.OfAdjustment, total=False):
    unit: str | None
    contrasts: str


@calls.public_call(_OfStudy, method="study")
def dp_study(
    formula: str,
    data: Any,
    *,
    subgroups: str | Sequence[str] = (),
    estimand: str = "ATE",
    epsilon: float,
    **more: Unpack[_OfStudy],
) -> StudyEffects:
    r"""Estimate effects on several outcomes, in subgroups too, with Table 1, in one joint release.

    Parameters
    ----------
    formula
        ``"pain + walking + died ~ treatment | age + sex"``: outcomes, the treatment, and baseline
        variables. Baseline variables are compared between the arms in Table 1. Effects are adjusted
        for them in an observational study; in a trial (``design="randomised"``) only with
        ``adjust=True``.
    subgroups
        Discrete terms, each of which defines subgroups by itself: ``"sex"``, or
        ``["sex", "cut(age, [18, 65, 100])"]``. They are not crossed.
    estimand
        "ATE", "ATT" or "ATC": average effects in all records, the treated or the controls.
    contrasts
        Of more than two arms: "reference" (each with the first) or "pairwise".
    missing
        As in :func:`dp_ate`, by column. "available", for outcomes: available-case analysis; each
        outcome is compared among the records in which it is observed, which assumes that it is
        missing at random within an arm.
    {shared}

    Returns
    -------
    StudyEffects
        Effects by outcome with simultaneous (Bonferroni) confidence intervals, effects in
        subgroups, and baseline variables by arm. Numbers of records in subgroups add up to those
        of all records.

    Notes
    -----
    All numbers come from one joint release: the noise is scaled to what one record can change in
    all columns together. For twenty outcomes the noise is about half of that of twenty calls of
    :func:`dp_ate` with a twentieth of the budget each; for one outcome `dp_ate` has less. With
    ``delta`` > 0 the noise is Gaussian where that is less.

    Where effects are adjusted, records are weighted by inverse probabilities of treatment from one
    released propensity model of the baseline variables, the same for all outcomes and subgroups.
    The outcomes are residuals from released regression slopes on these variables (augmented
    inverse probability weighting): an error of the weights matters only where the slopes are wrong
    too. For about three outcomes, calls of `dp_ate` with a third of epsilon each have less error.

    Examples
    --------
    >>> import dpeffects as dpe
    >>> trial = dpe.load_data("lalonde")
    >>> fit = dpe.dp_study(
    ...     "earnings_1978 + I(earnings_1978 > 0) ~ treatment | age + black",
    ...     trial, subgroups="married", epsilon=2, design="randomised", seed=1,
    ... )
    >>> fit.labels
    ('earnings_1978', 'I(earnings_1978 > 0)')

    In a shell::

        dpeffects study "pain + died ~ treated | age + sex" trial.csv --epsilon 1 \
            --subgroups sex "cut(age, [18, 65, 100])" --design randomised \
            --bounds bounds.toml --plot forest.png
        dpeffects protocol-template trial.csv --out protocol.toml
        dpeffects study trial.csv --protocol protocol.toml --record result_base.html
        dpeffects study north.csv --protocol protocol.toml --site North \
            --sign North.private.pem --ledger north.db --out north.json
    """
    given = dict(locals())
    return flow.Estimation(study_request(**given.pop("more"), **given)).result()


def study_request(
    formula: str,
    data: Any,
    *,
    subgroups: str | Sequence[str] = (),
    estimand: str = "ATE",
    **arguments: Any,
) -> flow.Request:
    """What the arguments of :func:`dp_study` ask for."""
    if "method" in arguments:
        raise errors.OptionError("method cannot be set here: leave it out")
    spec, by = TABLE, joined(subgroups, "subgroups", crossed=False) or None
    return replace(flow.Request.of_effect(estimand, formula, data, spec, **arguments), by=by)
