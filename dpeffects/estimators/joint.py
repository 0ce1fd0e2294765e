"""Several outcomes, their subgroups and the baseline variables, in one joint release.

Outcomes and baseline variables are columns on the scale z from -1/2 to 1/2. One release has, by
arm, the number of records, the sums of all outcomes and of their squares; others have the same by
arm and level of each factor of subgroups, and for the baseline variables. A record moves all
columns of a release at once. So pure noise has the shape of a cube (claim 28): for twenty outcomes
it is less than half of what twenty Laplace releases would have. With a delta the noise is Gaussian
where that is less, and squares and counts then cost nothing, because whoever moves a column far
moves its square little (claim 7).

Where treatment was not randomised, and there are baseline variables, records count by weights of
one released propensity model, for all outcomes at once (`_tables.Adjustment`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from dpeffects.arrays import BoolArray, FloatArray, IntArray
from dpeffects.design.columns import Design, intervals_of
from dpeffects.errors import OptionError
from dpeffects.estimands import AVERAGES
from dpeffects.estimators._tables import TableOptions
from dpeffects.estimators.arm_sums import arm_cells
from dpeffects.estimators.clipped_contrast import refuse_unadjusted
from dpeffects.estimators.spec import Contrasts, Facts, MethodSpec
from dpeffects.formula.discrete import Strata
from dpeffects.formula.expression import Categorical, Cut, Factor, source
from dpeffects.inference.joint import JointSums, Margin, StudyColumn, agreeing
from dpeffects.privacy.charges import Noisy
from dpeffects.privacy.curator import Asked, Curator
from dpeffects.privacy.moments import WithSquares
from dpeffects.privacy.rows import Block, Cells
from dpeffects.privacy.sets import COUNT, Cube, Within, entries

_OUTCOMES, _SUBGROUPS = 0.7, 0.3
"""Proportions of the outcomes as a whole and in subgroups."""
_BASELINE = 0.1, 0.05, 0.25
"""Proportion of the baseline variables, where there are as many as outcomes; least and largest."""
SQUARES = Fraction(3, 20)
"""Part of pure noise's price that goes to squares, where a column needs them."""
_MANY = 30
"""From this many columns on, pure noise has counts of their own beside the cube: a record moves
them by less than a column of it would."""
NEARLY_NORMAL = 5
"""From this many columns on, noise of the shape of a cube has tails no heavier than normal ones."""
MOST_OUTCOMES = 500


@dataclass(frozen=True)
class JointOptions(TableOptions):
    """Options of a study.

    ``design``: "observational", or "randomised" where treatment was assigned by chance.
    ``on_unadjusted``: "caution", or "error" to refuse, before anything is paid, a result of an
    observational study that is not adjusted. ``adjust``: whether baseline variables are adjusted
    for, None where there are any, treatment was not randomised, and a propensity model can be
    learnt. ``model_share``: part of the budget for that model, by default from public numbers.
    """

    def resolve(self, facts: Facts) -> PlannedJoint:
        """Decide whether to adjust; refuse what is too much."""
        if facts.outcomes > MOST_OUTCOMES:
            raise OptionError(f"a study has up to {MOST_OUTCOMES} outcomes, not {facts.outcomes}")
        if self.adjust:
            raise OptionError("adjust=True is not there yet")
        refuse_unadjusted(self, "nothing is adjusted for", "Name baseline variables after `|`")
        return PlannedJoint(**{**vars(self), "adjust": False}, facts=facts)


@dataclass(frozen=True, kw_only=True)
class PlannedJoint(JointOptions):
    """The options with every choice made, for the facts that they were made by."""

    facts: Facts


_TYPICAL = Facts(1000, 1, None, "sample", values=(1, 0, 0), outcomes=1)  # type: ignore[arg-type]


def shares(level: str, options: JointOptions) -> dict[str, float]:
    """Split of the budget between outcomes, subgroups and baseline variables."""
    facts = getattr(options, "facts", _TYPICAL)
    found = {"outcomes": _OUTCOMES}
    if facts.groups:
        found["subgroups"] = _SUBGROUPS
    if baseline := _baseline_count(facts):
        usual, least, most = _BASELINE
        part = usual * (baseline / max(facts.outcomes, 1)) ** (2.0 / 3.0)
        found["baseline"] = min(max(part, least), most)
    return found


def _baseline_count(facts: Facts) -> int:
    """Columns of baseline variables, all but the intercept and the outcomes."""
    return max(len(facts.values) - 2 - facts.outcomes, 0)


def uses_delta(options: JointOptions, facts: Facts) -> dict[str, float | None]:
    """All shares can use a delta, where Gaussian noise is less than that of a cube."""
    outcomes = entries(_cube(facts.outcomes + 1), 2)
    found: dict[str, float | None] = {"outcomes": outcomes}
    if facts.groups:
        found["subgroups"] = len(facts.groups) * outcomes
    if baseline := _baseline_count(facts):
        found["baseline"] = entries(_cube(baseline), 2)
    return found


def _cube(columns: int, half: float = 0.5) -> Cube:
    middle = np.full(columns, 0.0)
    return Cube(middle - half, middle + half)


@dataclass(frozen=True, eq=False)
class CentredColumns:
    """Some covariates less 1/2, after a constant 1/2 if ``counted``."""

    columns: IntArray
    counted: bool = False
    reads: ClassVar[tuple[str, ...]] = ("covariates",)

    def __call__(self, rows: Block) -> tuple[FloatArray, ...]:
        """Columns of some rows, within [-1/2, 1/2]."""
        z = rows.covariates[:, self.columns] - 0.5
        return (np.full(rows.size, 0.5), z) if self.counted else (z,)


@dataclass(frozen=True, eq=False)
class CentredSquares:
    """Squares of covariates less 1/2, less 1/8."""

    columns: IntArray
    reads: ClassVar[tuple[str, ...]] = ("covariates",)

    def __call__(self, rows: Block) -> FloatArray:
        """Squares of some rows, within [-1/8, 1/8]."""
        z: FloatArray = rows.covariates[:, self.columns] - 0.5
        return z * z - 0.125


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


@dataclass(frozen=True, eq=False)
class MarginAsked:
    """Ask for a margin of some columns, and read it from what is released.

    ``price`` is the part of the share that it costs. Without ``counted`` the sizes are not
    released: they are known from another margin.
    """

    label: str
    columns: IntArray
    two_valued: BoolArray
    cells: Cells
    shape: tuple[int, int]
    share: str
    price: Fraction
    gaussian: bool
    counted: bool = True

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
    ) -> MarginAsked:
        """For columns of a curator's rows."""
        two = np.array([curator.values[j] == 2 for j in columns])
        gaussian = bool(curator.delta(share))
        return cls(label, columns, two, cells, shape, share, price, gaussian, counted)

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
            phi = CentredColumns(self.columns)
            return [Asked(self.label, phi, within, cells, share, self.price)]
        other = self.columns[~self.two_valued]
        part = SQUARES if other.size else Fraction()
        rest = self.price * (1 - part - self._count_part)
        in_cube = self.counted and not self._count_part
        phi = CentredColumns(self.columns, in_cube)
        found = [Asked(self.label, phi, _cube(self.columns.size + in_cube), cells, share, rest)]
        if other.size:
            squares, label = _cube(other.size, 0.125), f"squares of {self.label}"
            price = self.price * part
            found.append(Asked(label, CentredSquares(other), squares, cells, share, price))
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
        return Margin(sizes, sums, squares, (of_size, first.variance, square))


@dataclass(frozen=True, eq=False)
class Joint:
    """What the method hands back: margins of the ``outcomes`` and of baseline variables."""

    outcomes: int
    whole: Margin
    groups: tuple[Margin, ...] = ()
    baseline: Margin | None = None
    normal: bool = True
    unequal: tuple[float, ...] = ()
    basis: str = ""
    caution: str = ""

    def with_weights(self, unequal: float) -> Joint:
        """The same where records have weights, whose mean square is so many times their mean."""
        own = self.unequal or (1.0,) * len(self.whole.sizes)
        return replace(self, unequal=tuple(unequal * x for x in own))

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
        whole, *parts = agreeing(self.whole, parts, n)
        arms = tuple(map(str, design.columns.arms or ("control", "treated")))
        columns = study_columns(design)
        sums = JointSums(
            arms if len(arms) > 2 else arms[::-1],
            contrasts or ((0, 1),),
            columns[: self.outcomes],
            whole,
            tuple(parts),
            columns[self.outcomes :],
            self.baseline and replace(self.baseline, sizes=whole.sizes),
            normal=self.normal,
            unequal=self.unequal,
            known_total=n is not None,
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


def fit(curator: Curator, options: PlannedJoint, estimand: str) -> Joint:
    """Release all margins from one look at the rows."""
    facts = options.facts
    k = facts.outcomes
    outcomes, baseline = np.arange(1, k + 1), np.arange(k + 1, curator.width)
    arms, sizes = curator.arms, facts.groups
    whole = MarginAsked.of(
        curator, "outcomes by arm", outcomes, arm_cells(curator), (arms, 1), "outcomes"
    )
    asked = [whole]
    for g, levels in enumerate(sizes):
        cells = Cells(ArmByLevel(arms, levels, math.prod(sizes[g + 1 :])), arms * levels)
        label, price = f"outcomes by arm and factor {g + 1}", Fraction(1, len(sizes))
        shape = (arms, levels)
        asked.append(MarginAsked.of(curator, label, outcomes, cells, shape, "subgroups", price))
    if baseline.size:
        label, cells = "baseline variables by arm", arm_cells(curator)
        of = (cells, (arms, 1), "baseline")
        asked.append(MarginAsked.of(curator, label, baseline, *of, counted=False))
    wanted = [margin.asked for margin in asked]
    released = iter(curator.several(*(x for margin in wanted for x in margin)))
    answers = [[next(released) for _ in margin] for margin in wanted]
    margins = [m.read(a) for m, a in zip(asked, answers, strict=True) if m.share != "baseline"]
    found = None
    if baseline.size:
        found = asked[-1].read(answers[-1], margins[0].sizes)
    normal = whole.gaussian or k + 1 >= NEARLY_NORMAL
    basis = "randomised" if options.randomised else "association"
    return Joint(k, margins[0], tuple(margins[1:]), found, normal, basis=basis)


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
    needs_intercept=True,
    tabled=True,
    several=True,
)
