"""Margins: numbers of records, sums of columns and of their squares, by arm, or by arm and level.

Columns are on the scale z from -1/2 to 1/2. A record moves all columns of a margin at once. So pure
noise has the shape of a cube (claim 28): for twenty columns it is less than half of what twenty
Laplace releases would have. With a delta the noise is Gaussian where that is less, and squares and
counts then cost nothing, because whoever moves a column far moves its square little (claim 7).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dpeffects.arrays import BoolArray, FloatArray, IntArray
from dpeffects.design.columns import Design
from dpeffects.errors import OptionError, refusal
from dpeffects.estimators import constants as hand
from dpeffects.estimators.outcome_slopes import OutcomePredictions
from dpeffects.estimators.row_functions import row
from dpeffects.formula import Formula
from dpeffects.formula.expression import Categorical, Missing, columns, number_columns, source
from dpeffects.inference.joint import ROOM, Margin
from dpeffects.privacy import (
    COUNT,
    Block,
    BoxWithSquares,
    Cube,
    Curator,
    GroupIndex,
    NoisyValue,
    SumQuery,
)
from dpeffects.privacy.domains import Domain


def cube(columns: int, half: float = 0.5) -> Cube:
    """The set of so many columns of one width."""
    middle = np.full(columns, 0.0)
    return Cube(middle - half, middle + half)


@dataclass(frozen=True, eq=False)
class Residuals:
    """What is left of outcomes, the columns up to ``last``, after their predictions.

    Those of two values need more room than they had: they are at the ends of their range.
    """

    fitted: OutcomePredictions
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
    left: Residuals | None = None,
) -> tuple[FloatArray, ...]:
    """Some covariates less 1/2, after a constant 1/2 if ``counted``: within [-1/2, 1/2].

    ``gone`` has the column that says where each is missing, its own number where none does: what is
    missing is 0. ``left`` says what is left of outcomes after their predictions.
    """
    z = _centred(rows, columns, gone, left)
    return (np.full(rows.size, 0.5), z) if counted else (z,)


@row("covariates")
def centred_squares(
    rows: Block, columns: IntArray, gone: IntArray, left: Residuals | None = None
) -> FloatArray:
    """Squares of such columns less 1/8: within [-1/8, 1/8]."""
    z = _centred(rows, columns, gone, left)
    return np.subtract(np.multiply(z, z, out=z), 0.125, out=z)  # no memory is asked for


def _centred(rows: Block, columns: IntArray, gone: IntArray, left: Residuals | None) -> FloatArray:
    first, last = columns[0], columns[-1] + 1  # a slice is faster than a list of columns
    some = slice(first, last) if last - first == columns.size else columns
    z: FloatArray = rows.covariates[:, some] - 0.5
    if left is not None:
        z = left(rows, z, columns)
    for j in np.flatnonzero(gone != columns):
        z[:, j] *= 1.0 - rows.covariates[:, gone[j]]
    return z


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
class MarginQuery:
    """Ask for a margin of some columns, and read it from what is released.

    ``gone`` has the column that says where each is missing, its own number where none does.
    ``price`` is the part of the share that it costs, ``squared`` the part of it for squares, by
    default from public numbers. Without ``counted`` the sizes are not released: they are known from
    another margin. ``left`` says what is left of outcomes after their predictions.
    """

    curator: Curator
    label: str
    columns: IntArray
    cells: GroupIndex
    shape: tuple[int, int]
    share: str
    price: Fraction = Fraction(1)
    squared: Fraction | None = None
    counted: bool = True
    gone: IntArray | None = None
    left: Residuals | None = None

    @property
    def gaussian(self) -> bool:
        """Whether noise is Gaussian, so that squares and counts cost nothing."""
        return bool(self.curator.delta(self.share))

    @property
    def two_valued(self) -> BoolArray:
        """Which columns have two values, so that their squares are known."""
        two = np.array([self.curator.values[j] == 2 for j in self.columns])
        return two if self.left is None else two & (self.columns > self.left.last)

    @property
    def _gone(self) -> IntArray:
        return self.columns if self.gone is None else self.gone

    @property
    def _squared(self) -> Fraction:
        """Part of a pure price for the squares."""
        count = int((~self.two_valued).sum())
        if not count:
            return Fraction()
        if self.squared is not None:
            return self.squared
        usual, at, least, most = hand.MARGIN_SQUARES
        epsilon = self.curator.epsilon(self.share) * float(self.price)
        part = usual * (at * epsilon / count) ** (1.0 / 3.0)
        return Fraction(min(max(part, least), most)).limit_denominator(1000)

    @property
    def _constant(self) -> float:
        """The constant beside columns with their squares, which adds nothing to a move (claim 7).

        In one cell k columns and squares move by k in squared L2, in two by 2 (17/64 k + c^2).
        """
        k = self.columns.size
        return min(math.sqrt(k * 15.0 / 64.0), 2.0) if self.counted else 0.0

    @property
    def asked(self) -> list[SumQuery]:
        """What the curator is asked for."""
        share, cells = self.share, self.cells
        within: Domain
        if self.gaussian:
            within = BoxWithSquares(self.columns.size, self._constant)
            phi = centred_columns(self.columns, self._gone, left=self.left)
            return [SumQuery(self.label, phi, within, cells, share, self.price)]
        part, other = self._squared, ~self.two_valued
        rest = self.price * (1 - part - self._count_part)
        in_cube = self.counted and not self._count_part
        phi = centred_columns(self.columns, self._gone, in_cube, self.left)
        found = [SumQuery(self.label, phi, cube(self.columns.size + in_cube), cells, share, rest)]
        if part:
            squares, label = cube(int(other.sum()), 0.125), f"squares of {self.label}"
            phi_2 = centred_squares(self.columns[other], self._gone[other], self.left)
            found.append(SumQuery(label, phi_2, squares, cells, share, self.price * part))
        if self._count_part:
            label, price = f"numbers of records, {self.label}", self.price * self._count_part
            found.append(SumQuery(label, None, COUNT, cells, share, price))
        return found

    @property
    def _count_part(self) -> Fraction:
        """Part of the price for counts of their own: what makes rare outcomes best known.

        An error of a size multiplies how far a mean is from the middle of its range.
        """
        k = self.columns.size
        if self.gaussian or not self.counted or k < hand.MANY_MARGINS:
            return Fraction()
        relative = (2.4 / k**2) ** (1.0 / 3.0)
        return Fraction(relative / (1.0 + relative)).limit_denominator(1000)

    def read(self, released: Sequence[NoisyValue], sizes: FloatArray | None = None) -> Margin:
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
        elif self._squared:
            found, square = released[1].value.reshape(*self.shape, -1), released[1].variance
            squares[..., other] = found + sizes[..., None] / 8.0
        return Margin(sizes, sums, squares, np.array([of_size, first.variance, square]))


def margins(asked: Sequence[MarginQuery]) -> list[Margin]:
    """Release margins from one look at the rows; the first says how many records there are."""
    wanted = [margin.asked for margin in asked]
    released = iter(asked[0].curator.several(*(x for margin in wanted for x in margin)))
    found: list[Margin] = []
    for margin, own in zip(asked, wanted, strict=True):
        sizes = None if margin.counted else found[0].sizes
        found.append(margin.read([next(released) for _ in own], sizes))
    return found


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
                refusal("joint_outcome", outcome=source(factor), names=", ".join(own))
            )
        found.append(flags[own[0]] if own else 0)
    return tuple(found)
