"""Several outcomes, their subgroups and the baseline variables, in one joint release.

Outcomes and baseline variables are columns on the scale z from -1/2 to 1/2. One release has, by
arm, the number of records, the sums of all outcomes and of their squares; others have the same by
arm and level of each factor of subgroups, and for the baseline variables. A record moves all
columns of a release at once. So pure noise has the shape of a cube (claim 28): for twenty outcomes
it is less than half of what twenty Laplace releases would have. With a delta the noise is Gaussian
where that is less, and squares and counts then cost nothing, because whoever moves a column far
moves its square little (claim 7).

Where treatment was not randomised, and there are baseline variables, records count by weights of
one released propensity model, for all outcomes at once (`_tables.Adjustment`). What is averaged
then is what released slopes on the baseline variables leave of an outcome (`_fitted`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from dpeffects.arrays import BoolArray, FloatArray, IntArray
from dpeffects.design.columns import Design, intervals_of
from dpeffects.errors import OptionError
from dpeffects.estimands import AVERAGES, ESTIMANDS
from dpeffects.estimators._fitted import (
    PART,
    SHARE,
    Fitted,
    release_slopes,
    slopes_entries,
    worth,
)
from dpeffects.estimators._propensity import LINEAR
from dpeffects.estimators._tables import (
    Adjustment,
    TableOptions,
    TableWeight,
    basis_of,
    confounding_left,
    table_shares,
)
from dpeffects.estimators.arm_sums import arm_cells
from dpeffects.estimators.clipped_contrast import refuse_unadjusted
from dpeffects.estimators.row import Row, row
from dpeffects.estimators.spec import Contrasts, Facts, MethodSpec, Options
from dpeffects.formula import Formula
from dpeffects.formula.discrete import Strata
from dpeffects.formula.expression import (
    Categorical,
    Cut,
    Factor,
    Missing,
    columns,
    number_columns,
    source,
)
from dpeffects.inference.joint import ROOM, JointSums, Margin, StudyColumn, agreeing
from dpeffects.inference.tables import Confounding
from dpeffects.privacy.charges import Noisy
from dpeffects.privacy.curator import Asked, Curator
from dpeffects.privacy.moments import WithSquares
from dpeffects.privacy.rows import Block, Cells
from dpeffects.privacy.sets import COUNT, Cube, Within, entries
from dpeffects.privacy.units import seen_as
from dpeffects.results.study import StudyEffects

_OUTCOMES, _SUBGROUPS = 0.7, 0.3
"""Proportions of the outcomes as a whole and in subgroups."""
_BASELINE = 0.1, 0.05, 0.25
"""Proportion of the baseline variables, where there are as many as outcomes; least and largest."""
_UNWEIGHTED = Fraction(1, 3)
"""Part of that for their means without weights, where there are means with weights too: these have
more noise, because the largest weight counts as one record."""
_SQUARES = 0.1, 5.0, 0.03, 0.12
"""Part of pure noise's price that goes to squares where columns need them: 0.1 with 5 columns at
epsilon 1, and by the third root of how many there are for each unit of epsilon; least and largest.
It makes intervals shortest within 3 % for 1 to 100 outcomes, 2,000 and 10,000 records, epsilon 0.5
to 4, and standard deviations of a sixth and a twentieth of the range."""
_BASELINE_SQUARES = Fraction(3, 10)
"""The same of baseline variables, which differences are divided by."""
_MANY = 30
"""From this many columns on, pure noise has counts of their own beside the cube: a record moves
them by less than a column of it would."""
NEARLY_NORMAL = 5
"""From this many columns on, noise of the shape of a cube has tails no heavier than normal ones."""
MOST_OUTCOMES = 500
_CONFOUNDED = 0.3
"""Bias without adjustment that the penalty of the model goes by: that of the outcome that is
confounded most, among several."""
_AT_RANDOM = (
    "An outcome is compared among the records that have it: within an arm, those that lack it are "
    "taken to be like these."
)


@dataclass(frozen=True)
class JointOptions(TableOptions):
    """``design``: "observational", or "randomised" where treatment was assigned by chance.

    ``on_unadjusted``: "caution", or "error" to refuse, before anything is paid, a result of an
    observational study that is not adjusted. ``adjust``: whether baseline variables are adjusted
    for, None where there are any, treatment was not randomised, and a propensity model can be
    learnt. ``model_share``: part of the budget for that model, by default from public numbers.
    """

    confounded: ClassVar[float] = _CONFOUNDED

    def resolve(self, facts: Facts) -> PlannedJoint:
        """Decide whether to adjust; refuse what is too much."""
        if facts.outcomes > MOST_OUTCOMES:
            raise OptionError(f"a study has up to {MOST_OUTCOMES} outcomes, not {facts.outcomes}")
        if facts.arms > 2:
            if self.adjust:
                raise OptionError(
                    "adjust=True compares two arms: name the two levels in bounds, and use their "
                    "rows"
                )
            refuse_unadjusted(self, "more than two arms are not adjusted", "Compare two arms")
            made: Options = replace(self, adjust=False)
        else:
            values = (1, *facts.values[facts.released + 1 :])
            made = super().resolve(replace(facts, width=len(values) - 1, values=values))
        return PlannedJoint(**{**vars(made), "facts": facts})

    def noise_of(self, facts: Facts) -> float:
        """Pure noise of a weighted sum of one of the outcomes."""
        columns, others = facts.released + 1, _SUBGROUPS if facts.groups else 0.0
        part = _OUTCOMES / (_OUTCOMES + others)
        return math.sqrt((columns + 1) * (columns + 2) / 6.0) / part


@dataclass(frozen=True, kw_only=True)
class PlannedJoint(JointOptions):
    """The options with every choice made, for the facts that they were made by."""

    facts: Facts

    @property
    def fits(self) -> bool:
        """Whether slopes of the outcomes are released beside the weights."""
        facts, part = self.facts, self.model_share or 0.4
        if not self.adjust:
            return False
        price = facts.budget.epsilon * (1.0 - part) * PART * 0.76
        return worth(facts.n, _varying(facts), facts.outcomes, price)


_TYPICAL = Facts(1000, 1, None, "sample", values=(1, 0, 0), outcomes=1)  # type: ignore[arg-type]


def shares(level: str, options: JointOptions) -> dict[str, float]:
    """Split of the budget between outcomes, subgroups and baseline variables."""
    facts = getattr(options, "facts", _TYPICAL)
    found = {"outcomes": _OUTCOMES}
    if facts.groups:
        found["subgroups"] = _SUBGROUPS
    if baseline := _baseline_count(facts) * (2 if options.adjust else 1):
        usual, least, most = _BASELINE
        part = usual * (baseline / max(facts.released, 1)) ** (2.0 / 3.0)
        found["baseline"] = min(max(part, least), most)
    if not options.adjust:
        return found
    about = table_shares(level, options)
    if getattr(options, "fits", False):
        about[SHARE] = PART * about["table"]
        about["table"] -= about[SHARE]
    table = about.pop("table") / sum(found.values())
    return about | {name: table * part for name, part in found.items()}


def _varying(facts: Facts) -> int:
    """Columns of baseline variables that are not constant by declaration."""
    return sum(x != 1 for x in facts.values[facts.released + 1 : -1])


def _baseline_count(facts: Facts) -> int:
    """Columns of baseline variables, all but the intercept and the outcomes."""
    return max(len(facts.values) - 2 - facts.released, 0)


def uses_delta(options: JointOptions, facts: Facts) -> dict[str, float | None]:
    """All shares can use a delta, where Gaussian noise is less than that of a cube."""
    outcomes = entries(_cube(facts.released + 1), 2)
    found: dict[str, float | None] = {"outcomes": outcomes}
    if options.adjust:
        found |= {"model": None, "unadjusted": outcomes}
        found[SHARE] = slopes_entries(max(_varying(facts), 1), max(facts.outcomes, 1))
    if facts.groups:
        found["subgroups"] = len(facts.groups) * outcomes
    if baseline := _baseline_count(facts):
        found["baseline"] = entries(_cube(baseline), 2)
    return found


def _cube(columns: int, half: float = 0.5) -> Cube:
    middle = np.full(columns, 0.0)
    return Cube(middle - half, middle + half)


@dataclass(frozen=True, eq=False)
class Left:
    """What is left of outcomes, the columns up to ``last``, after their predictions.

    Those of two values need more room than they had: they are at the ends of their range.
    """

    fitted: Fitted
    last: int
    two_valued: BoolArray

    def __call__(self, rows: Block, z: FloatArray, columns: IntArray) -> FloatArray:
        """Columns of some rows, within [-1/2, 1/2]."""
        own = columns <= self.last
        j = columns[own] - 1
        room = np.where(self.two_valued[j], ROOM, 1.0)
        z[:, own] = np.clip((z[:, own] - self.fitted.predicted(rows)[:, j]) / room, -0.5, 0.5)
        return z


@row("covariates")
def centred_columns(
    rows: Block,
    columns: IntArray,
    gone: IntArray,
    counted: bool = False,
    left: Left | None = None,
) -> tuple[FloatArray, ...]:
    """Some covariates less 1/2, after a constant 1/2 if ``counted``: within [-1/2, 1/2].

    ``gone`` has the column that says where each is missing, its own number where none does: what is
    missing is 0. ``left`` says what is left of outcomes after their predictions.
    """
    z = _centred(rows, columns, gone, left)
    return (np.full(rows.size, 0.5), z) if counted else (z,)


@row("covariates")
def centred_squares(
    rows: Block, columns: IntArray, gone: IntArray, left: Left | None = None
) -> FloatArray:
    """Squares of such columns less 1/8: within [-1/8, 1/8]."""
    z = _centred(rows, columns, gone, left)
    return z * z - 0.125


def _centred(rows: Block, columns: IntArray, gone: IntArray, left: Left | None) -> FloatArray:
    z: FloatArray = rows.covariates[:, columns] - 0.5
    if left is not None:
        z = left(rows, z, columns)
    flagged = gone != columns
    z[:, flagged] *= 1.0 - rows.covariates[:, gone[flagged]]
    return z


@row("covariates")
def baseline_columns(rows: Block, first: int) -> FloatArray:
    """The intercept and the covariates from column ``first`` on."""
    return np.delete(rows.covariates, np.arange(1, first), axis=1)


@row("treated")
def baseline_weight(rows: Block, columns: Row, weight: TableWeight) -> FloatArray:
    """The weight of a record by its baseline variables, over the largest of its arm."""
    return weight.of(rows.treated, columns(rows))


@dataclass(frozen=True)
class ArmByLevel:
    """Arm of a record by the level of one factor: ``below`` strata of later factors are one."""

    arms: int
    levels: int
    below: int

    @property
    def reads(self) -> tuple[str, ...]:
        """Arm and stratum."""
        return "treated" if self.arms == 2 else "arm", "strata"

    def __call__(self, rows: Block) -> IntArray:
        """Cells of some rows, arm by arm; of two arms treated records come first."""
        arm = 1 - rows.treated.astype(np.int64) if self.arms == 2 else rows.arm
        return arm * self.levels + rows.strata // self.below % self.levels


def _squared(columns: int, epsilon: float) -> Fraction:
    """Part of a pure price for the squares of so many columns."""
    usual, at, least, most = _SQUARES
    part = usual * (at * epsilon / max(columns, 1)) ** (1.0 / 3.0)
    return Fraction(min(max(part, least), most)).limit_denominator(1000)


@dataclass(frozen=True, eq=False)
class MarginAsked:
    """Ask for a margin of some columns, and read it from what is released.

    ``price`` is the part of the share that it costs, ``squared`` the part of it for squares.
    Without ``counted`` the sizes are not released: they are known from another margin.
    """

    label: str
    columns: IntArray
    gone: IntArray
    two_valued: BoolArray
    cells: Cells
    shape: tuple[int, int]
    share: str
    price: Fraction
    gaussian: bool
    squared: Fraction
    counted: bool = True
    left: Left | None = None

    @classmethod
    def of(
        cls,
        curator: Curator,
        label: str,
        columns: IntArray,
        cells: Cells,
        shape: tuple[int, int],
        share: str,
        price: Fraction = Fraction(1),
        counted: bool = True,
        gone: IntArray | None = None,
        left: Left | None = None,
    ) -> MarginAsked:
        """For columns of a curator's rows."""
        two = np.array([curator.values[j] == 2 for j in columns])
        if left is not None:
            two &= columns > left.last
        gone, gaussian = columns if gone is None else gone, bool(curator.delta(share))
        squared = _BASELINE_SQUARES
        if counted:
            squared = _squared(int((~two).sum()), curator.epsilon(share) * float(price))
        about = (cells, shape, share, price, gaussian, squared, counted, left)
        return cls(label, columns, gone, two, *about)

    @property
    def _constant(self) -> float:
        """The constant beside columns with their squares, which adds nothing to a move (claim 7).

        In one cell k columns and squares move by k in squared L2, in two by 2 (17/64 k + c^2).
        """
        k = self.columns.size
        return min(math.sqrt(k * 15.0 / 64.0), 2.0) if self.counted else 0.0

    @property
    def asked(self) -> list[Asked]:
        """What the curator is asked for."""
        share, cells = self.share, self.cells
        within: Within
        if self.gaussian:
            within = WithSquares(self.columns.size, self._constant)
            phi = centred_columns(self.columns, self.gone, left=self.left)
            return [Asked(self.label, phi, within, cells, share, self.price)]
        other = self.columns[~self.two_valued]
        part = self.squared if other.size else Fraction()
        rest = self.price * (1 - part - self._count_part)
        in_cube = self.counted and not self._count_part
        phi = centred_columns(self.columns, self.gone, in_cube, self.left)
        found = [Asked(self.label, phi, _cube(self.columns.size + in_cube), cells, share, rest)]
        if other.size:
            squares, label = _cube(other.size, 0.125), f"squares of {self.label}"
            phi_2 = centred_squares(other, self.gone[~self.two_valued], self.left)
            found.append(Asked(label, phi_2, squares, cells, share, self.price * part))
        if self._count_part:
            label, price = f"numbers of records, {self.label}", self.price * self._count_part
            found.append(Asked(label, None, COUNT, cells, share, price))
        return found

    @property
    def _count_part(self) -> Fraction:
        """Part of the price for counts of their own: what makes rare outcomes best known.

        An error of a size multiplies how far a mean is from the middle of its range.
        """
        k = self.columns.size
        if self.gaussian or not self.counted or k < _MANY:
            return Fraction()
        relative = (2.4 / k**2) ** (1.0 / 3.0)
        return Fraction(relative / (1.0 + relative)).limit_denominator(1000)

    def read(self, released: Sequence[Noisy], sizes: FloatArray | None = None) -> Margin:
        """The margin; ``sizes`` by arm and level where they are known."""
        k, of_size, first = self.columns.size, 0.0, released[0]
        values = first.value.reshape(*self.shape, -1)
        inside = self.counted and not self._count_part
        if sizes is None and inside:
            one = self._constant if self.gaussian else 0.5
            sizes, of_size = values[..., 0] / one, first.variance / one**2
        elif sizes is None:
            sizes, of_size = released[-1].value.reshape(self.shape), released[-1].variance
        sums, square = values[..., inside:][..., :k], first.variance
        squares = np.full(sums.shape, 0.25) * sizes[..., None]  # of indicators they are known
        other = ~self.two_valued
        if self.gaussian:
            squares[..., other] = values[..., inside + k :][..., other] + sizes[..., None] / 8.0
        elif other.any():
            found, square = released[1].value.reshape(*self.shape, -1), released[1].variance
            squares[..., other] = found + sizes[..., None] / 8.0
        return Margin(sizes, sums, squares, np.array([of_size, first.variance, square]))


@dataclass(frozen=True, eq=False)
class Joint:
    """What the method hands back: margins of the outcomes and of baseline variables.

    ``outcomes`` says for each outcome which column tells where it is missing, 0 where none does.
    ``unadjusted`` and ``weighted_baseline`` are there where records count by weights.
    """

    outcomes: tuple[int, ...]
    whole: Margin
    groups: tuple[Margin, ...] = ()
    baseline: Margin | None = None
    weighted_baseline: Margin | None = None
    normal: bool = True
    unequal: tuple[float, ...] = ()
    confounding: Confounding | None = None
    unadjusted: Margin | None = None
    missed: tuple[float, ...] = ()
    basis: str = ""
    caution: str = ""
    notes: tuple[str, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)

    def with_weights(self, unequal: float) -> Joint:
        """The same where records have weights, whose mean square is so many times their mean."""
        own = self.unequal or (1.0,) * len(self.whole.sizes)
        return replace(self, unequal=tuple(unequal * x for x in own))

    def result(
        self, estimation: Any, about: Mapping[str, Any], notes: tuple[str, ...]
    ) -> StudyEffects:
        """The result of an estimation, with what all results say about themselves."""
        design, groups = estimation.design, estimation.groups
        factors = None if groups is None else groups.design.strata()
        n = float(design.n) if estimation.size is None else None
        own = self.study(design, factors, n, estimation.contrasts)
        return StudyEffects(notes=(*self.notes, *notes), **{**about, **own})

    def study(
        self, design: Design, factors: Strata | None, n: float | None, contrasts: Contrasts
    ) -> dict[str, Any]:
        """Fields of `StudyEffects`: columns have names and ranges, and margins agree.

        ``n`` is the number of records where that is known.
        """
        names = zip(factors.factors, factors.values(), strict=True) if factors else ()
        parts = [
            replace(margin, factor=_named(factor), levels=levels)
            for margin, (factor, levels) in zip(self.groups, names, strict=True)
        ]
        whole, *parts = agreeing(self.whole, parts, n if self.unadjusted is None else None)
        plain = self.unadjusted and agreeing(self.unadjusted, (), n)[0]
        arms = tuple(map(str, design.columns.arms or ("control", "treated")))
        columns, released = study_columns(design), whole.sums.shape[2]
        sums = JointSums(
            arms if len(arms) > 2 else arms[::-1],
            contrasts or ((0, 1),),
            tuple(replace(x, missing=k - 1) for x, k in zip(columns, self.outcomes, strict=False)),
            whole,
            tuple(parts),
            columns[released:],
            self.baseline and self.baseline.of_sizes((plain or whole).sizes),
            self.weighted_baseline and self.weighted_baseline.of_sizes(whole.sizes),
            normal=self.normal,
            unequal=self.unequal,
            confounding=self.confounding,
            unadjusted=plain,
            missed=self.missed,
        )
        effects = tuple(replace(effect, basis=self.basis) for effect in sums.effects())
        return {
            "outcome": " + ".join(column.name for column in sums.outcomes),
            "labels": sums.labels,
            "effects": effects,
            "sums": sums,
            "subgroups": tuple(margin.factor for margin in parts),
            "stands_on": self.basis,
            "warning": self.caution,
            "details": self.details,
        }


def _named(factor: Factor) -> str:
    """A factor as a user writes it: a column of declared levels by its name."""
    return factor.column if isinstance(factor, Categorical) else source(factor)


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


def columns_missing(design: Design, asked: Formula) -> tuple[int, ...]:
    """For each encoded column of an outcome, the column that says where it is missing, or 0.

    Outcomes come first, and their columns are in no other term.
    """
    made_of = [x.parts[0].factor for x in design.encoding.columns if len(x.parts) == 1]
    # the intercept has no parts, and products come last
    flags = {x.column: j for j, x in enumerate(made_of, 1) if isinstance(x, Missing)}
    found = []
    for factor in made_of:
        known = factor in asked.outcomes or not isinstance(factor, Missing)
        if not (known and set(columns(factor)) <= set(asked.outcome_columns)):
            break
        read = (factor.column,) if isinstance(factor, Categorical) else number_columns(factor)
        own = [name for name in read if name in flags]
        if len(own) > 1:
            raise OptionError(
                f"outcome {source(factor)} is made of several columns that may be missing: write "
                f'missing="complete" for all but one of {", ".join(own)}'
            )
        found.append(flags[own[0]] if own else 0)
    return tuple(found)


@dataclass(frozen=True, eq=False)
class _Release:
    """What margins are asked for: those of the outcomes, and those of baseline variables."""

    curator: Curator
    facts: Facts
    prefix: str = ""
    left: Left | None = None

    @property
    def gone(self) -> IntArray:
        """For each released column, the one that says where it is missing, or its own number."""
        found = np.arange(1, self.facts.released + 1)
        own = np.array(self.facts.missing, np.int64)
        found[: own.size] = np.where(own > 0, own, found[: own.size])
        return found

    def outcomes(
        self, share: str, level: int | None = None, price: Fraction = Fraction(1)
    ) -> MarginAsked:
        """The outcomes by arm, or by arm and level of a factor."""
        facts, arms = self.facts, self.curator.arms
        columns = np.arange(1, facts.released + 1)
        label, shape = f"{self.prefix}outcomes by arm", (arms, 1)
        cells = arm_cells(self.curator)
        if level is not None:
            label, levels = f"{label} and factor {level + 1}", facts.groups[level]
            below = math.prod(facts.groups[level + 1 :])
            cells, shape = Cells(ArmByLevel(arms, levels, below), arms * levels), (arms, levels)
        about = (label, columns, cells, shape, share, price)
        return MarginAsked.of(self.curator, *about, gone=self.gone, left=self.left)

    def baseline(self, price: Fraction) -> list[MarginAsked]:
        """The baseline variables by arm, where there are any."""
        curator, columns = self.curator, np.arange(self.facts.released + 1, self.curator.width)
        about = (columns, arm_cells(curator), (curator.arms, 1), "baseline", price)
        label = f"{self.prefix}baseline variables by arm"
        return [MarginAsked.of(curator, label, *about, counted=False)] if columns.size else []

    def margins(self, asked: Sequence[MarginAsked]) -> list[Margin]:
        """Released from one look at the rows; the first says how many records there are."""
        wanted = [margin.asked for margin in asked]
        released = iter(self.curator.several(*(x for margin in wanted for x in margin)))
        found: list[Margin] = []
        for margin, own in zip(asked, wanted, strict=True):
            sizes = None if margin.counted else found[0].sizes
            found.append(margin.read([next(released) for _ in own], sizes))
        return found


def fit(curator: Curator, options: PlannedJoint, estimand: str) -> Joint:
    """Release all margins from one look at the rows.

    Where records count by weights, one look more is for the outcomes and the baseline variables
    without weights, and some are for the model.
    """
    facts, plain = options.facts, _Release(curator, options.facts)
    adjustment = unadjusted = own_baseline = top = None
    price, counted = Fraction(1), plain
    if options.adjust:
        price = _UNWEIGHTED
        unadjusted, *own = plain.margins([plain.outcomes("unadjusted"), *plain.baseline(price)])
        own_baseline = own[0]
        adjustment, weight = _adjustment(curator, facts, estimand, unadjusted)
        left = _left(plain, adjustment, estimand, unadjusted, own_baseline)
        seen, top, price = seen_as(curator, weight), adjustment.weight.largest, 1 - price
        counted = _Release(seen, facts, "weighted ", left)
    groups = [
        counted.outcomes("subgroups", g, Fraction(1, len(facts.groups)))
        for g in range(len(facts.groups))
    ]
    asked = [counted.outcomes("outcomes"), *groups, *counted.baseline(price)]
    found = counted.margins(asked)
    if top is not None:
        found = [margin.times(top) for margin in found]
    whole, parts, baseline = found[0], found[1 : len(groups) + 1], (*found[len(groups) + 1 :], None)
    basis, caution = basis_of(options, adjustment)
    return Joint(
        facts.missing,
        whole,
        tuple(parts),
        baseline[0] if adjustment is None else own_baseline,
        None if adjustment is None else baseline[0],
        asked[0].gaussian or facts.released + 1 >= NEARLY_NORMAL,
        () if adjustment is None else adjustment.unequal,
        confounding_left(options, adjustment),
        unadjusted,
        () if counted.left is None else tuple(counted.left.fitted.missed.tolist()),
        basis,
        caution,
        (*((LINEAR,) if adjustment else ()), *((_AT_RANDOM,) if any(facts.missing) else ())),
        adjustment.details if adjustment else {},
    )


def _adjustment(
    curator: Curator, facts: Facts, estimand: str, unadjusted: Margin
) -> tuple[Adjustment, Row]:
    """Release a propensity model of the baseline variables, and say what a record counts for."""
    columns = baseline_columns(facts.released + 1)
    kept = np.r_[0, facts.released + 1 : curator.width]
    about = tuple(curator.names[j] for j in kept), tuple(curator.values[j] for j in (*kept, -1))
    seen = seen_as(curator, covariates=(columns, *about))
    seen.n, seen.size_sd = curator.n, curator.size_sd
    means, sizes = unadjusted.means()[:, 0], unadjusted.records
    own = np.clip(unadjusted.squares[:, 0] / sizes - means**2, 1e-4, 0.25)
    deviation = math.sqrt(2.0 / math.pi) * float(np.sqrt(own[:, : facts.outcomes]).mean())
    price = curator.noise_sd("outcomes") / curator.noise_sd("unadjusted")
    noise_sd = price * math.sqrt(float(unadjusted.noise[1, 0]))
    found = Adjustment.released(seen, estimand, deviation, noise_sd, _CONFOUNDED)
    found = replace(found, kept=found.model.kept_of_score)
    return found, baseline_weight(columns, found.weight)


def _left(
    plain: _Release, adjustment: Adjustment, estimand: str, whole: Margin, baseline: Margin
) -> Left | None:
    """Release slopes of the outcomes, where there is a share for them."""
    curator, facts = plain.curator, plain.facts
    if not curator.has(SHARE):
        return None
    k, spreads = facts.outcomes, adjustment.model.spreads
    columns = np.arange(facts.released + 1, curator.width)
    varies = np.array([curator.values[j] for j in columns]) != 1
    means, sizes = whole.means()[:, 0, :k], whole.records
    own = np.clip(whole.squares[:, 0, :k] / sizes - means**2, 1e-3, 0.25)
    fitted = release_slopes(
        curator,
        columns[varies],
        adjustment.model.means[varies],
        np.sqrt(spreads[varies]),
        np.arange(1, k + 1),
        plain.gone[:k],
        means,
        (own * sizes).sum(axis=0) / sizes.sum(),
    )
    target = ESTIMANDS[estimand]
    if not (target.of_treated and target.of_control):
        arm = baseline.means()[0 if target.of_treated else 1, 0] + 0.5
        fitted = fitted.around(arm[varies])
    two = np.array([curator.values[j] == 2 for j in range(1, k + 1)])
    return Left(fitted, k, two)


def fit_arms(curator: Curator, options: PlannedJoint, estimand: str, contrasts: Contrasts) -> Any:
    """The same for more than two arms: which are compared is post-processing."""
    return fit(curator, options, estimand)


TABLE = MethodSpec(
    name="study",
    title="joint release of a study",
    about="several outcomes, subgroups and baseline variables, out of one release",
    assumes="",
    estimands=AVERAGES,
    levels=("sample",),
    options=JointOptions,
    shares=shares,
    uses_delta=uses_delta,
    fit=fit,
    fit_arms=fit_arms,
    citation="",
    uses_outcome=False,
    needs_covariates=False,
    needs_intercept=True,
    tabled=True,
    several=True,
)
