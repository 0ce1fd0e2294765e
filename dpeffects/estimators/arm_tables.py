"""The release of a table by arm: counts, or weights by a released propensity score.

Where treatment was not randomised and the formula has covariates, a propensity model is released
first, as that of `private_ipw`, and a record counts by its weight over the largest that one of its
arm can have. It is in one cell either way, so that the table costs what one count does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from dpeffects.arrays import FloatArray, IntArray
from dpeffects.design.arms import ARMS, ArmByCell
from dpeffects.design.features import unit_rows
from dpeffects.errors import OptionError, refusal
from dpeffects.estimands import AVERAGES, ESTIMANDS
from dpeffects.estimators import constants as hand
from dpeffects.estimators.arm_sums import arm_counts
from dpeffects.estimators.default import polynomial_terms as _bends
from dpeffects.estimators.default.clipped_contrast import (
    NO_COVARIATES,
    TOO_LITTLE,
    StudyOptions,
    refuse_unadjusted,
)
from dpeffects.estimators.default.posterior import unadjusted_variance
from dpeffects.estimators.default.standardisation import Standardiser, some_columns, unit_columns
from dpeffects.estimators.option_checks import between, flag, whole
from dpeffects.estimators.row_functions import RowPartial, row
from dpeffects.estimators.spec import MethodSpec, Options, PublicInfo
from dpeffects.estimators.weighting import propensity
from dpeffects.estimators.weighting.inverse_weights import PropensityFunction, relative_weights
from dpeffects.inference.estimate import with_another
from dpeffects.inference.tables import ArmTable, Confounding
from dpeffects.privacy import COUNT, Block, Box, Curator, GroupIndex, RowFunction, SumQuery, entries
from dpeffects.results.result_base import ResultBase
from dpeffects.results.table_results import TableEffects, TableRelease

_REST = {"counts": 0.06, "spread": 0.15, "unadjusted": 0.1, "overlap": 0.02, "table": 0.67}
"""and how the rest is divided: with .06 for the spread of columns, restricted means of four
straight populations were off by 1.15 times as much as with .12 or .18, and where ranges are 5 times
too wide by 1.4 and 1.6 times (n 10,000, epsilon 1)."""


_RECORDS = "records by arm and cell"
_AS_THEY_ARE = some_columns(slice(None))


@dataclass(frozen=True)
class TableOptions(StudyOptions):
    """``design``: "observational", or "randomised" where treatment was assigned by chance.

    ``on_unadjusted``: "warn", or "error" to refuse, before anything is paid, a result of an
    observational study that is not adjusted. ``adjust``: whether covariates are adjusted for, None
    where there are any, treatment was not randomised, and a propensity model can be learnt.
    ``model_share``: part of the budget for that model, by default from public numbers.
    ``flexible``: 0 adjusts for the formula's own terms alone, 1 for squares of its columns too, 2
    for their products too; None chooses by n, epsilon, delta and the number of columns.
    """

    confounded: ClassVar[float] = hand.CONFOUNDED_RISK
    adjust: bool | None = flag(None)
    model_share: float | None = between(None, 0.05, 0.9)
    flexible: int | None = whole(None, 0, 2)

    def __init_subclass__(cls) -> None:
        """Options of other tables have these words, where theirs say ``{tables}``."""
        cls.__doc__ = (cls.__doc__ or "").replace("{tables}", TableOptions.__doc__ or "").rstrip()

    def resolve(self, facts: PublicInfo) -> Options:
        """Decide whether to adjust, and at what price; refuse more than two arms."""
        if facts.arms > 2:
            raise OptionError(refusal("call_two_arms"))
        known = self.made_for(facts)
        able = known.baseline.columns > 0
        if self.adjust and not able:
            raise OptionError("adjust=True needs covariates: write y ~ t | x1 + x2")
        wanted = not self.randomised if self.adjust is None else self.adjust
        if not (able and wanted):
            lacks, instead = NO_COVARIATES
            refuse_unadjusted(self, "nothing is adjusted for" if able else lacks, instead)
            return self.made_for(facts, adjust=False)
        if facts.level == "label":
            if self.model_share is not None:
                raise OptionError('model_share cannot be used with level="label": leave it out')
            return self.made_for(facts, adjust=True)
        part, kept = known._model(facts)
        if kept >= hand.NOTHING or self.adjust:
            return self.made_for(facts, adjust=True, model_share=part)
        refuse_unadjusted(self, *TOO_LITTLE)
        return self.made_for(facts, adjust=False)

    def noise_of(self, facts: PublicInfo) -> float:
        """Noise of what is compared, over that of one weighted sum that has all of the price."""
        return hand.CELLS

    def _model(self, facts: PublicInfo) -> tuple[float, float]:
        """The model's part of the budget, and what it is expected to keep of its slopes."""
        parts = hand.SHARES[:5] if self.model_share is None else (self.model_share,)
        epsilon, noise = facts.budget.epsilon, self.noise_of(facts)
        prices = {p: (p * epsilon, (1.0 - p) * _REST["table"] * epsilon / noise) for p in parts}
        delta, width = facts.budget.delta / 3.0, 1 + _bends.bent(self.baseline, self.degree).columns
        setting = _setting(facts.n, width, self.confounded, delta)
        part, strength = propensity.plan(setting, prices)
        kept = propensity.kept_slopes(strength, width, facts.n)
        return part, min(1.0, hand.UNDO * kept)


def _setting(n: int, width: int, confounded: float, delta: float = 0.0) -> propensity.Setting:
    return propensity.Setting((n, n), width, hand.RARE, delta, confounded=confounded)


def table_budget(level: str, options: TableOptions) -> dict[str, float]:
    """Split of the budget: the table has all of it where no model is released."""
    if not options.adjust or level == "label":
        return {"table": 1.0}
    part = options.model_share or hand.SHARES[3]
    return {"model": part, **{name: (1.0 - part) * rest for name, rest in _REST.items()}}


def table_delta(options: Any, facts: PublicInfo) -> dict[str, float | None]:
    """Shares that can use a delta: a record moves two counts."""
    return {"model": None} | dict.fromkeys(("unadjusted", "table"), entries(COUNT, cells=2))


table_spec = partial(
    MethodSpec,
    estimands=AVERAGES,
    levels=("sample", "label"),
    budget_split=table_budget,
    uses_delta=table_delta,
    variance_shares=(),
    needs_covariates=False,
    tabled=True,
)
"""The record of a method that releases a table of both arms."""


@row("treated")
def arm_and_bin(rows: Block, bins: RowPartial, count: int) -> IntArray:
    """Cells of a table by arm and bin; none where a bin is not one of so many."""
    inside = bins(rows)
    fine = (inside >= 0) & (inside < count)
    return np.where(fine, np.where(rows.treated, 0, count) + inside, -1)


@dataclass(frozen=True, eq=False)
class TableWeight:
    """The weight of a record over the largest that one of its arm can have."""

    model: PropensityFunction
    estimand: str
    columns: RowFunction = _AS_THEY_ARE
    reads: ClassVar[tuple[str, ...]] = ("treated", "covariates")

    def __call__(self, rows: Block) -> FloatArray:
        """Weights of some rows, within [0, 1]."""
        units = unit_rows(self.columns(rows))
        return relative_weights(self.model, self.estimand, rows.treated, units)

    @property
    def largest(self) -> FloatArray:
        """Largest weights of treated and of control records."""
        ends = np.array([self.model.low, self.model.high])
        return np.array([float(w.max()) for w in ESTIMANDS[self.estimand].weights(ends)])


@dataclass(frozen=True, eq=False)
class Adjustment:
    """A released propensity model, its scores within the limits of the weights, and what they miss.

    ``clipped`` is the share of records whose propensities are beyond the limits, ``lost`` that of
    the weight that they lack.
    """

    model: propensity.PropensityEstimate
    score: PropensityFunction
    standard: Standardiser
    options: TableOptions
    estimand: str
    clipped: float
    lost: float

    @property
    def weight(self) -> TableWeight:
        """What a record counts for."""
        return TableWeight(self.score, self.estimand, unit_columns(self.standard))

    @property
    def unequal(self) -> tuple[float, float]:
        """Mean squares of weights over their means, by arm, as the model has them."""
        e = self.model.scores
        kept = np.clip(e, self.score.low, self.score.high)
        pairs = zip(ESTIMANDS[self.estimand].weights(kept), (e, 1.0 - e), strict=True)
        one, other = (float((share * w**2).sum() / (share * w).sum()) for w, share in pairs)
        return one, other

    @property
    def confounding(self) -> Confounding:
        """What noise, shrinkage and clip of the model leave of confounding."""
        model, d = self.model, self.model.spreads.size
        kept = model.kept * max(1.0 - hand.TRUNCATED * self.lost, 0.0)
        far = propensity.reweighted(self.estimand, float(model.scores.mean()))
        noise = model.noise_variance * (1.0 + model.noise_variance)
        level = abs(float(far[0] - far[1])) * model.level_sd
        return Confounding(
            prior=unadjusted_variance(max(d, 2)),
            kept=kept,
            part=(1.0 - kept) ** 2 + model.kept_sd**2 + level**2,
            moved=hand.EXPLAINED * noise / d,
            far=(float(far[0]), float(far[1])),
        )

    @property
    def details(self) -> dict[str, Any]:
        """What is worth showing of the model."""
        return {
            **_bends.added_words(self.options.baseline, self.options.degree),
            **self.model.details,
            "propensity scores truncated to": f"[{self.score.low:.4g}, {self.score.high:.4g}]",
            "records beyond the propensity limits": f"{100.0 * self.clipped:.1f} %",
            "propensity coefficients shrunk to": f"{100.0 * self.model.kept:.0f} %",
        }


def adjusted(
    curator: Curator,
    options: TableOptions,
    estimand: str,
    deviation: float = 0.5,
    noise_sd: float | None = None,
) -> Adjustment | None:
    """Release a model, where there is to be one; free where covariates and treatment are public.

    ``deviation`` is the mean deviation of what is compared, in ranges of the outcome. The
    smaller it is, the less truncated weights matter, and the more noise does. ``noise_sd`` is
    the standard deviation of that in a weighted sum, by default what a table has.
    """
    if not options.adjust:
        return None
    if noise_sd is None:
        noise_sd = hand.CELLS * curator.noise_sd("table")
        estimate = curator.epsilon("table") / hand.CELLS
    else:
        estimate = math.sqrt(2.0) / noise_sd
    known = arm_counts(curator, "counts").shares()
    added = _bends.bends(options.baseline, options.degree)
    curator, standard = propensity.standardised(curator, "spread", added)
    setting = _setting(curator.n, curator.width, options.confounded)
    how = setting, estimate, known, propensity.WeightSpreads.of(standard)
    model = propensity.fitted_model(curator, *how, "model")
    noise = 0.5 / deviation * noise_sd / curator.n
    limits = model.limits(estimand, noise, hand.LEAST_DEPTH)
    score = model.within(limits)
    label = "records beyond the propensity limits"
    cells = GroupIndex(propensity.within_clip(score), 1)
    beyond = curator.sums(label, None, COUNT, cells, share="overlap")
    found = propensity.clipped_share(curator.n, beyond, *model.beyond(estimand, limits))
    return Adjustment(model, score, standard, options, estimand, *found)


def release_table(
    curator: Curator,
    options: TableOptions,
    bins: RowPartial | None,
    count: int,
    adjustment: Adjustment | None,
    unadjusted: ArmTable | None = None,
) -> ArmTable:
    """Release counts by arm and bin, out of the share "table"; by weights, where it adjusts.

    ``bins`` is a row function to 0..count - 1, None where outcomes are numbers of cells;
    ``unadjusted`` is the table without weights, where it was released before. Otherwise it is now,
    if there is a share of that name.
    """
    cells, left = _cells(bins, count), confounding_left(options, adjustment)
    if adjustment and unadjusted is None and curator.has("unadjusted"):
        unadjusted = _released(curator, cells, "unadjusted")
    table = _released(curator, cells, "table", adjustment)
    return replace(table, unadjusted=unadjusted, confounding=left)


def _cells(bins: RowPartial | None, count: int) -> GroupIndex:
    return GroupIndex(ArmByCell(count) if bins is None else arm_and_bin(bins, count), 2 * count)


def _released(
    curator: Curator, cells: GroupIndex, share: str, adjustment: Adjustment | None = None
) -> ArmTable:
    """Release a table of records that count alike, or by weights.

    Where the sizes of its arms are public, its counts add up to them.
    """
    asked, top = SumQuery(_RECORDS, None, COUNT, cells, share), np.ones(2)
    if adjustment is not None:
        weight, within = adjustment.weight, Box(0.0, 1.0, centre=0.0)
        asked = SumQuery(f"weights of {_RECORDS}", weight, within, cells, share)
        top = weight.largest
    (found,) = curator.several(asked)
    one, other = (found.variance * top**2).tolist()
    counts = found.value.reshape(2, -1) * top[:, None]
    table = ArmTable(counts, (one, other), gaussian=found.gaussian)
    if adjustment is not None:
        table = replace(table, unequal=adjustment.unequal)
    every_record = isinstance(cells.function, ArmByCell)
    if not (curator.is_public("treatment") and every_record) or curator.weighted:
        return table
    (found,) = curator.several(asked._replace(label="sizes of the arms", cells=ARMS))
    lacking = top * found.value[:, 0] - counts.sum(axis=1)
    return replace(table, counts=counts + lacking[:, None] / counts.shape[1], exact=True)


def fit_table(
    kind: type[TableEffects],
    curator: Curator,
    options: TableOptions,
    estimand: str,
    count: int,
    *,
    events: Sequence[int] = (),
    **own: Any,
) -> TableRelease:
    """Release the model of treatment, where there is one, and the table.

    Outcomes are numbers of cells, 0..count - 1; ``events`` are those of an event that may be rare;
    ``own`` are further fields of the result.
    """
    unadjusted, deviation = None, 0.5
    if curator.has("unadjusted"):
        unadjusted = _released(curator, _cells(None, count), "unadjusted")
    if unadjusted and events:  # which may be as frequent as noise lets it be
        noise = math.sqrt(len(events) * sum(unadjusted.noise_variance))
        seen = max(float(unadjusted.counts[:, list(events)].sum()), 0.0) + noise
        share = min(seen / float(unadjusted.sizes.sum()), 0.5)
        deviation = 2.0 * share * (1.0 - share)
    adjustment = adjusted(curator, options, estimand, deviation)
    table = release_table(curator, options, None, count, adjustment, unadjusted)
    return tabled(kind, options, adjustment, arm_table=table, **own)


def confounding_left(options: TableOptions, adjustment: Adjustment | None) -> Confounding | None:
    """What is left of confounding: in a trial none, but noise in a model moves estimates there too.

    Of an association all of it may be left: the guess is kept beside its interval, not in it.
    """
    if adjustment is None:
        return None if options.randomised else Confounding(unadjusted_variance())
    found = adjustment.confounding
    return replace(found, prior=0.0) if options.randomised else found


def tabled(
    kind: type[ResultBase], options: TableOptions, adjustment: Adjustment | None, **own: Any
) -> TableRelease:
    """What a method hands back: with what differences rest on, a warning, notes and details."""
    if adjustment is None:
        method_warnings = "" if options.randomised else "NOT ADJUSTED: covariates were not used"
        identification = "randomised" if options.randomised else "unadjusted"
        return TableRelease(
            kind, {**own, "identification": identification, "method_warnings": method_warnings}
        )
    kept, identification, method_warnings = adjustment.model.kept, "randomised", ""
    if not options.randomised:
        identification = "adjusted" if kept >= hand.NOTHING else "unadjusted"
        of_model = propensity.warnings_about(kept, adjustment.clipped, adjustment.lost)
        method_warnings = with_another(adjustment.standard.warnings, of_model, options.left_out)
    fields = {**own, "identification": identification, "method_warnings": method_warnings}
    return TableRelease(kind, fields, (propensity.LINEAR,), adjustment.details)
