"""Second moments of all columns, released once and kept: what `dp_moments` releases.

One matrix: the sum of zz' over records, z = (constant, treatment, outcomes and covariates, products
of treatment and subgroups). Each column is measured from a public centre and scaled by a public
size, such that no z is longer than the radius: no row is shortened, and regressions have no bias.
Indicators of a factor exclude each other, so that they are short together. Sizes make the noise in
products small against the spread that columns of each kind usually have.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpeffects.arrays import FloatArray
from dpeffects.design.columns import Design, intervals_of
from dpeffects.errors import OptionError
from dpeffects.estimators.spec import Contrasts, Facts, MethodSpec, Options
from dpeffects.formula import Formula, parse
from dpeffects.formula.expression import (
    Categorical,
    Cut,
    Factor,
    Missing,
    Spline,
    columns,
    is_binary,
)
from dpeffects.inference.regression import (
    ARM,
    INDICATOR,
    NUMBER,
    PRODUCT,
    MomentColumn,
    MomentMatrix,
)
from dpeffects.privacy.curator import Curator
from dpeffects.privacy.moments import Gram
from dpeffects.privacy.rows import Block
from dpeffects.privacy.sets import Box, entries
from dpeffects.results.moments import SPREAD, Moments, term_of

_SHARE = "moments"
_CONSTANT = 2.0
"""What the constant counts beside an indicator: means that are not in the middle need it."""
_MOST = 100
"""Columns of z, at most."""


@dataclass(frozen=True)
class MomentsOptions(Options):
    """``design``: "observational", or "randomised" where treatment was assigned by chance;
    ``factors``: what ``subgroups`` names, factors by whose levels effects are wanted.
    """

    design: str = "observational"
    factors: str | None = None

    def __post_init__(self) -> None:
        if self.design not in ("observational", "randomised"):
            raise OptionError(
                f'design must be "observational" or "randomised", got {self.design!r}'
            )

    def resolve(self, facts: Facts) -> Options:
        """Lay out the columns of z."""
        return PlannedMoments(self.design, self.factors, plan=Layout.of(facts, self.factors))


@dataclass(frozen=True, kw_only=True)
class PlannedMoments(MomentsOptions):
    """The options with the columns of z."""

    plan: Layout

    def shown(self) -> dict[str, Any]:
        """Options that print."""
        return {"design": self.design, "subgroups": self.factors}


@dataclass(frozen=True)
class Layout:
    """Columns of z after the constant, and which of the encoded ones they read.

    ``read`` are places among the encoded columns of those that are numbers or indicators, in order.
    """

    columns: tuple[MomentColumn, ...]
    read: tuple[int, ...]
    constant: float
    arms: int

    @classmethod
    def of(cls, facts: Facts, factors: str | None) -> Layout:
        """The layout for columns that are encoded like this."""
        treatment, *others = facts.treatment
        names = [f"{treatment}[T.{arm}]" for arm in others] or [treatment]
        arms = [MomentColumn(name, (treatment,), ARM, 1.0) for name in names]
        read = [j for j, k in enumerate(facts.values[:-1]) if k != 1]
        columns = _together([*arms, *(_column(facts, j) for j in read)])
        columns += _products(columns, arms, treatment, _terms(factors))
        if len(columns) >= _MOST:
            raise OptionError(f"moments of {len(columns)} columns: at most {_MOST - 1} are kept")
        constant, columns = _sized(columns)
        return cls(tuple(columns), tuple(read), constant, len(arms) + 1)

    @property
    def width(self) -> int:
        """Columns of z."""
        return len(self.columns) + 1

    @property
    def set(self) -> Gram:
        """The set that products of z lie in."""
        one = np.ones(self.width)
        return Gram(Box(-one, one, centre=0.0, radius=1.0))


def _column(facts: Facts, j: int) -> MomentColumn:
    """An encoded column; indicators of one term are one group."""
    encoded, factors = facts.encoded[j], [part.factor for part in facts.encoded[j].parts]
    number = MomentColumn(encoded.name, term_of(factors), NUMBER, 1.0, 0.5)
    if all(isinstance(factor, Categorical | Cut) for factor in factors):
        made_of = [{part.factor for part in x.parts} for x in facts.encoded]
        return replace(number, kind=INDICATOR, group=made_of.index(set(factors)))
    flags = all(isinstance(x, Categorical | Cut) or _flag(x) for x in factors)
    if flags or (len(factors) == 1 and facts.values[j] == 2 and not _filled(facts, factors[0])):
        return replace(number, kind=INDICATOR, group=j)
    return number


def _flag(factor: Factor) -> bool:
    """Whether a factor is 0 or 1 as it is written."""
    return not isinstance(factor, Categorical | Cut | Spline) and is_binary(factor)


def _filled(facts: Facts, factor: Factor) -> bool:
    """Whether missing values of a column may stand in the middle: there is an indicator of them."""
    flags = {part.factor for x in facts.encoded for part in x.parts}
    return any(Missing(name) in flags for name in columns(factor))


def _together(columns: list[MomentColumn]) -> list[MomentColumn]:
    """Indicators with centres that make those of one group short."""
    found = []
    for column in columns:
        same = _same(columns, column)
        shared = column.kind in (ARM, INDICATOR)
        found.append(replace(column, centre=1.0 / max(same, 2)) if shared else column)
    return found


def _same(columns: Sequence[MomentColumn], like: MomentColumn) -> int:
    """How many columns are of the same factor."""
    return sum((x.kind, x.group) == (like.kind, like.group) for x in columns)


def _terms(factors: str | None) -> list[tuple[str, ...]]:
    """Names of the factors by whose levels effects are wanted."""
    if factors is None:
        return []
    terms = parse(f"`an outcome` ~ `a treatment` | {factors}").terms
    return list(dict.fromkeys(map(term_of, terms)))


def _products(
    columns: Sequence[MomentColumn],
    arms: Sequence[MomentColumn],
    treatment: str,
    terms: Sequence[tuple[str, ...]],
) -> list[MomentColumn]:
    """Columns of arms times levels of factors."""
    found = []
    for group, term in enumerate(terms):
        own = [j for j, x in enumerate(columns, 1) if (x.term, x.kind) == (term, INDICATOR)]
        if not own or len(term) > 1:
            raise OptionError(
                f"subgroups: `{':'.join(term)}` is no factor with declared levels; of a number "
                "write cut(x, [...])"
            )
        for a, arm in enumerate(arms, 1):
            for j in own:
                name, both = f"{arm.name}:{columns[j - 1].name}", tuple(sorted((treatment, *term)))
                product = MomentColumn(name, both, PRODUCT, 1.0, group=group, parts=(a, j))
                found.append(product)
    return found


def _sized(columns: Sequence[MomentColumn]) -> tuple[float, list[MomentColumn]]:
    """The constant, and columns with sizes: squared lengths add up to no more than 1.

    A part of the length costs noise in all products. Where columns of a kind have the largest
    squared length r2 together, and m of them the variance v each, parts in proportion to
    sqrt(m r2 / v) have the least noise against the spread of the columns.
    """
    arms = sum(x.kind == ARM for x in columns)
    square, worth = [], []
    for column in columns:
        same = _same(columns, column)
        if column.kind == NUMBER:
            longest, variance, same = 0.25, SPREAD**2, 1
        elif column.kind == PRODUCT:
            longest, levels = _longest(arms), same // arms + 1
            variance = longest / arms / levels
        else:
            longest, variance = _longest(same), same / (same + 1.0) ** 2
        square.append(longest)
        worth.append(math.sqrt(longest / variance / same))
    room = (1.0 - math.sqrt(len(columns) + 1.0) / 2000.0) ** 2 / (_CONSTANT + sum(worth))
    counts = [1 if x.kind == NUMBER else _same(columns, x) for x in columns]
    sizes = [math.sqrt(room * w * m / s) for w, m, s in zip(worth, counts, square, strict=True)]
    sized = [replace(x, size=size) for x, size in zip(columns, sizes, strict=True)]
    return math.sqrt(room * _CONSTANT), sized


def _longest(indicators: int) -> float:
    """Largest squared length of indicators of one factor, from their common centre."""
    return 0.25 if indicators == 1 else 1.0 - 1.0 / indicators


@dataclass(frozen=True, eq=False)
class MomentRow:
    """z of a record."""

    layout: Layout

    @property
    def reads(self) -> tuple[str, ...]:
        """Arm and covariates."""
        return ("treated" if self.layout.arms == 2 else "arm", "covariates")

    def __call__(self, rows: Block) -> tuple[FloatArray, ...]:
        """Columns of some rows."""
        layout, arms = self.layout, self.layout.arms - 1
        arm = rows.treated if arms == 1 else rows.arm
        plain: list[FloatArray] = [(arm == a).astype(np.float64) for a in range(1, arms + 1)]
        plain += [rows.covariates[:, j] for j in layout.read]
        z = [np.full(rows.size, layout.constant)]
        for j, column in enumerate(layout.columns):
            if column.kind == PRODUCT:
                one, level = column.parts
                own = (plain[one - 1] - layout.columns[one - 1].centre) * plain[level - 1]
            else:
                own = plain[j] - column.centre
            z.append(column.size * own)
        return tuple(z)


@dataclass(frozen=True)
class Kept:
    """A released matrix, and what its columns are.

    ``read`` are places among the encoded columns of those after the arms. ``caution`` is what
    nobody should overlook.
    """

    matrix: MomentMatrix
    read: tuple[int, ...]
    options: PlannedMoments
    caution: str = ""

    def with_weights(self, unequal: float) -> Kept:
        """The same where records have weights, whose mean square is so many times their mean."""
        return replace(self, matrix=replace(self.matrix, unequal=max(unequal, 1.0)))

    def result(self, estimation: Any, about: Mapping[str, Any], notes: tuple[str, ...]) -> Moments:
        """The result of an estimation, with what all results say about themselves."""
        own = self.made(estimation.design, parse(estimation.request.formula))
        return Moments(notes=notes, **{**about, **own})

    def made(self, design: Design, asked: Formula) -> dict[str, Any]:
        """Fields of the result: columns have their ranges, terms their names."""
        ranges = design.encoding.ranges(intervals_of(design.bounds))
        columns, first = list(self.matrix.columns), len(self.matrix.places(ARM))
        for j, k in enumerate(self.read, first):
            low, high = ranges[k].tolist()
            columns[j] = replace(columns[j], low=low, high=high)
        matrix = replace(self.matrix, columns=tuple(columns))
        outcomes = [term_of([y]) for y in asked.outcomes]
        there = list(dict.fromkeys(x.term for x in columns[first:] if x.kind != PRODUCT))
        arms = design.columns.arms
        return {
            "outcome": ", ".join(":".join(y) for y in outcomes),
            "matrix": matrix,
            "outcomes": tuple(":".join(y) for y in outcomes if y in there),
            "covariates": tuple(":".join(x) for x in there if x not in outcomes),
            "arms": ("0", "1") if arms is None else tuple(map(str, arms)),
            "levels": {
                ":".join(x): _levels(design, matrix, x) for x in _terms(self.options.factors)
            },
            "stands_on": "randomised" if self.options.design == "randomised" else "",
            "warning": self.caution,
        }


def _levels(design: Design, matrix: MomentMatrix, term: tuple[str, ...]) -> tuple[str, ...]:
    """Names of the levels of a factor, the reference first."""
    (column, *_) = (x for x in matrix.columns if x.term == term)
    part = next(x.parts for x in design.encoding.columns if x.name == column.name)[0]
    match part.factor:
        case Categorical(_, levels):
            return tuple(map(str, levels or ()))
        case Cut():
            return tuple(part.factor.labels)
    return (f"{column.low:g}", f"{column.high:g}")


def fit(curator: Curator, options: PlannedMoments, estimand: str) -> Kept:
    """Release the matrix."""
    layout = options.plan
    noisy = curator.sums("second moments", MomentRow(layout), layout.set, share=_SHARE)
    matrix = MomentMatrix(
        columns=layout.columns,
        constant=layout.constant,
        entries=tuple(noisy.value.tolist()),
        variance=noisy.variance,
        n=float(curator.n),
        size_variance=curator.size_sd**2,
    )
    return Kept(matrix, layout.read, options)


def fit_arms(
    curator: Curator, options: PlannedMoments, estimand: str, contrasts: Contrasts
) -> Kept:
    """The same for more than two arms."""
    return fit(curator, options, estimand)


TABLE = MethodSpec(
    name="moments",
    title="second moments",
    about="dp_moments: one matrix of second moments; regressions, effects and balance from it",
    assumes="residuals have one variance, or one that is linear in the columns (see the notes)",
    estimands=("ATE",),
    levels=("sample",),
    options=MomentsOptions,
    shares=lambda level, options: {_SHARE: 1.0},
    fit=fit,
    fit_arms=fit_arms,
    uses_delta=lambda options, facts: {_SHARE: entries(options.plan.set)},
    variance_shares=(),
    needs_covariates=False,
    needs_intercept=True,
    tabled=True,
    several=True,
    citation="dpeffects (software): noisy second moments.",
)
