"""Covariate terms to columns in [0, 1]: dummies, splines and interactions, by R's rules.

A categorical factor drops its first level where the rest of the model already spans it, and keeps
all levels where it does not: ``a`` beside an intercept has one column less than levels, ``a`` after
``- 1`` has them all. Everything here follows from the formula, the declared levels and the declared
bounds; rows only flow through `Encoding.matrix`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import product
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpeffects.errors import BoundsError, DataError, FormulaError, refusal, shorten
from dpeffects.formula import expression as ex
from dpeffects.formula.expression import Categorical, Column, Cut, Factor, Interval, Level, Spline
from dpeffects.formula.parser import Formula, Term
from dpeffects.formula.ranges import clip, range_of

MAX_COLUMNS = 10_000
"""Columns that covariates may have; they are counted before any is made."""

Levels: TypeAlias = Mapping[str, tuple[Level, ...]]
Arrays: TypeAlias = Mapping[str, NDArray[Any]]
Floats: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True)
class FactorColumn:
    """One column of one factor; `index` counts levels, intervals or basis functions."""

    factor: Factor
    index: int = 0


@dataclass(frozen=True)
class EncodedColumn:
    """A column of the matrix: the product of its parts (none for the intercept)."""

    name: str
    parts: tuple[FactorColumn, ...] = ()


@dataclass(frozen=True)
class Encoding:
    """How covariate terms become the columns of a matrix.

    Examples
    --------
    >>> from dpeffects.formula import parse
    >>> e = Encoding.build(parse("y ~ t | age + region"), {"region": ("N", "S", "W")})
    >>> e.names
    ('Intercept', 'age', 'region[T.S]', 'region[T.W]')
    >>> age, region = np.array([20.0, 70.0]), np.array([0, 2])
    >>> e.matrix({"age": age}, {"region": region}, {"age": (20, 120)})
    array([[1. , 0. , 0. , 0. ],
           [1. , 0.5, 0. , 1. ]])
    """

    columns: tuple[EncodedColumn, ...]

    @classmethod
    def build(cls, formula: Formula, levels: Levels) -> Encoding:
        """Lay out the columns of a formula's covariates; the first level is the reference."""
        found = [EncodedColumn("Intercept")] if formula.intercept else []
        for term in _layout(formula, levels):
            found.extend(_term_columns(term))
        return cls(tuple(found))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns, in order."""
        return tuple(column.name for column in self.columns)

    @cached_property
    def numeric_columns(self) -> tuple[str, ...]:
        """Data columns read as numbers."""
        return tuple(dict.fromkeys(n for f in self.factors for n in ex.number_columns(f)))

    @cached_property
    def factors(self) -> tuple[Factor, ...]:
        """The factors of all columns, each once."""
        parts = (part.factor for column in self.columns for part in column.parts)
        return tuple(dict.fromkeys(parts))

    def ranges(self, bounds: Mapping[str, Interval]) -> Floats:
        """Smallest and largest value of each column, before scaling: an array of shape (d, 2).

        Examples
        --------
        >>> from dpeffects.formula import parse
        >>> Encoding.build(parse("y ~ t | x:z - 1"), {}).ranges({"x": (-1, 2), "z": (0, 3)})
        array([[-3.,  6.]])
        """
        known = {factor: range_of(factor, bounds) for factor in self.factors}
        found = np.ones((len(self.columns), 2))
        for j, column in enumerate(self.columns):
            if column.parts:
                found[j] = reduce(_times, (known[part.factor] for part in column.parts))
                if not np.isfinite(found[j, 1] - found[j, 0]):
                    raise BoundsError(refusal("term_declared_bounds", name=shorten(column.name)))
        return found

    def values(self, whole: Mapping[str, int]) -> tuple[int, ...]:
        """How many values each column could take; 0 for a continuum.

        ``whole``: how many whole numbers are within the bounds, for columns that hold no others.

        Examples
        --------
        >>> from dpeffects.formula import parse
        >>> e = Encoding.build(parse("y ~ t | age + kids + region"), {"region": ("N", "S")})
        >>> e.values({"kids": 6})
        (1, 0, 6, 2)
        """

        def of(part: FactorColumn) -> int:
            if isinstance(part.factor, Categorical | Cut | ex.Compare | ex.Missing):
                return 2
            return whole.get(part.factor.name, 0) if isinstance(part.factor, Column) else 0

        found = [[of(part) for part in column.parts] for column in self.columns]
        # products of indicators are indicators
        return tuple(
            1 if not k else k[0] if len(k) == 1 else 2 if set(k) == {2} else 0 for k in found
        )

    def matrix(
        self,
        columns: Arrays,
        codes: Arrays,
        bounds: Mapping[str, Interval] | Floats,
        out: Floats | None = None,
        rows: int | None = None,
    ) -> Floats:
        """Encode rows; every column is clipped to its range and scaled by it to [0, 1].

        The intercept stays 1; a column whose range has no width is 0. ``columns`` are numbers
        without missing values, clipped to ``bounds``, which may be given as `ranges` makes them;
        ``codes`` are positions in levels. ``out`` is an array to fill, ``rows`` the number of rows
        where there is no column to count.
        """
        ranges = bounds if isinstance(bounds, np.ndarray) else self.ranges(bounds)
        out = self.raw_matrix(columns, codes, out, rows)
        for j, column in enumerate(self.columns):
            values, (lower, upper) = out[:, j], ranges[j]
            if all(isinstance(part.factor, Categorical | Cut) for part in column.parts):
                continue  # 0 or 1 already, the intercept among them
            if lower == upper:
                values[:] = 0.0
                continue
            if (lower, upper) != (0.0, 1.0):
                values -= lower
                values /= upper - lower
            elif all(isinstance(part.factor, Column) for part in column.parts):
                continue  # clipped before
            # Clipped last: rounding above must not carry a value out of [0, 1].
            clip(values, (0.0, 1.0), values)
        return out

    def raw_matrix(
        self, columns: Arrays, codes: Arrays, out: Floats | None = None, rows: int | None = None
    ) -> Floats:
        """Encode rows without clipping or scaling; arguments as for `matrix`."""
        lengths = {len(array) for array in (*columns.values(), *codes.values())}
        lengths |= set() if rows is None else {rows}
        if len(lengths) != 1:
            raise DataError(f"columns must have one common length, not {sorted(lengths)}")
        if out is None:
            out = np.empty((lengths.pop(), len(self.columns)), order="F")
        work: dict[Factor, NDArray[Any]] = {}
        for j, column in enumerate(self.columns):
            # Columns of one term share their factors; keep the work of that term only.
            work = {part.factor: work[part.factor] for part in column.parts if part.factor in work}
            if not column.parts:
                out[:, j] = 1.0
            for k, part in enumerate(column.parts):
                if part.factor not in work:
                    work[part.factor] = prepared(part.factor, columns, codes)
                ready = work[part.factor]
                if isinstance(part.factor, Categorical | Cut):
                    ready = ready == part.index
                elif isinstance(part.factor, Spline):
                    ready = ready[:, part.index]
                out[:, j] = out[:, j] * ready if k else ready
        return out


MISSING_LEVEL = "(missing)"
"""The last level of a column whose missing values are a level of their own."""


def with_missing(levels: tuple[Level, ...]) -> tuple[Level, ...]:
    """Levels, and one more for missing values.

    Examples
    --------
    >>> with_missing(("N", "S"))
    ('N', 'S', '(missing)')
    """
    return levels if levels[-1:] == (MISSING_LEVEL,) else (*levels, MISSING_LEVEL)


def width_of(formula: Formula, levels: Levels, most: int = MAX_COLUMNS) -> int:
    """Return how many columns a formula's covariates have, without making any.

    A formula with more than ``most`` is refused by the term that makes too many.

    Examples
    --------
    >>> from dpeffects.formula import parse
    >>> width_of(parse("y ~ t | age * region"), {"region": ("N", "S", "W")})
    6
    """
    sizes = (_term_width(term) for term in _layout(formula, levels, most))
    return formula.intercept + sum(sizes)


def _layout(formula: Formula, levels: Levels, most: int = MAX_COLUMNS) -> list[_Coded]:
    """Code the terms, and count their columns before any is made."""
    terms = [
        tuple(dict.fromkeys(resolve(factor, levels) for factor in term)) for term in formula.terms
    ]
    # `region` and `C(region)` may turn out to be the same term once levels are known.
    distinct = {frozenset(term): term for term in terms}
    found, total = [], int(formula.intercept)
    for term in _coded(distinct.values(), formula.intercept):
        total += _term_width(term)
        if total > most:
            names = (f.column if isinstance(f, Categorical) else ex.shown(f, 60) for f, _ in term)
            name = shorten(":".join(names))
            raise FormulaError(
                refusal("too_wide", term=name, width=_term_width(term), total=total, most=most)
            )
        found.append(term)
    return found


def _term_width(term: _Coded) -> int:
    return math.prod(columns_of(factor) - reduced for factor, reduced in term)


def columns_of(factor: Factor) -> int:
    """Columns of a factor, before one may go."""
    match factor:
        case Categorical(_, levels):
            return len(levels or ())
        case Cut(_, points):
            return len(points) - 1
        case Spline(include_intercept=full):
            return _basis_size(factor) - (not full)
    return 1


def _basis_size(spline: Spline) -> int:
    return len(spline.knots) + spline.degree + 1


def resolve(factor: Factor, levels: Levels) -> Factor:
    """A factor with its declared levels: a plain column that has some is categorical."""
    if isinstance(factor, Column) and factor.name in levels:
        return Categorical(factor.name, tuple(levels[factor.name]))
    if not isinstance(factor, Categorical):
        return factor
    declared = tuple(levels[factor.column]) if factor.column in levels else factor.levels
    if declared is None:
        raise BoundsError(refusal("term_levels", term=ex.shown(factor), column=factor.column))
    if factor.levels is not None and declared not in (factor.levels, with_missing(factor.levels)):
        raise BoundsError(refusal("term_bounds_declares", factor=ex.shown(factor)))
    return Categorical(factor.column, declared)


_Coded: TypeAlias = tuple[tuple[Factor, bool], ...]  # factor, and whether its first column goes


def _coded(terms: Collection[Term], intercept: bool) -> Iterator[_Coded]:
    """Choose for each categorical factor between all its levels and all but the first.

    A term with categorical factors spans the products of each factor's contrasts or nothing. What
    earlier terms have not spanned yet is joined up again, ``b + a:b`` (contrasts of a) making all
    levels of a. This is R's rule, with one difference that formulaic makes too: R gives ``a:b``
    without its main effects one column too many.
    """
    spanned: set[frozenset[int]] = {frozenset()} if intercept else set()
    numbers: dict[Factor, int] = {}  # which are compared much faster than factors
    for term in terms:
        codes = [numbers.setdefault(factor, len(numbers)) for factor in term]
        factors = dict(zip(codes, term, strict=True))
        spans = {  # the intercept
            k: isinstance(x, Categorical | Cut) or (isinstance(x, Spline) and x.include_intercept)
            for k, x in factors.items()
        }
        choices = [(code, None) if spans[code] else (code,) for code in codes]
        pieces = [tuple(c for c in piece if c is not None) for piece in product(*choices)]
        pieces = [piece for piece in pieces if frozenset(piece) not in spanned]
        spanned.update(map(frozenset, pieces))
        for whole in _joined([tuple((c, spans[c]) for c in piece) for piece in pieces]):
            yield tuple((factors[code], reduced) for code, reduced in whole)


_Piece: TypeAlias = tuple[tuple[int, bool], ...]


def _joined(pieces: list[_Piece]) -> list[_Piece]:
    """Join ``x`` and ``x:(a without its first level)`` to ``x:a``, as long as there are any."""
    joined: dict[frozenset[tuple[int, bool]], tuple[int, _Piece]] = {}
    for place, piece in enumerate(sorted(pieces, key=len)):
        while True:
            less = [(frozenset(piece) - {pair}, pair) for pair in piece if pair[1]]
            found = [(joined[other][0], other, pair) for other, pair in less if other in joined]
            if not found:
                break
            _, other, extra = min(found, key=lambda one: one[0])  # the first that was kept
            del joined[other]
            piece = tuple((code, reduced and (code, reduced) != extra) for code, reduced in piece)
        joined[frozenset(piece)] = (place, piece)
    return [piece for _, piece in joined.values()]


def _term_columns(term: _Coded) -> list[EncodedColumn]:
    labelled = [_labels(factor, reduced) for factor, reduced in term]
    choices = product(*reversed(labelled))  # the first factor runs fastest, as in R
    pairs = (zip(*reversed(choice), strict=True) for choice in choices)
    return [EncodedColumn(":".join(labels), parts) for labels, parts in pairs]


def _labels(factor: Factor, reduced: bool) -> list[tuple[str, FactorColumn]]:
    match factor:
        case Categorical(column, levels):
            base, names = column, [str(level) for level in levels or ()]
        case Cut():
            base, names = ex.source(factor), list(factor.labels)
        case Spline():
            first = 0 if factor.include_intercept and not reduced else 1
            name = ex.source(factor)
            return [
                (f"{name}[{i}]", FactorColumn(factor, i)) for i in range(first, _basis_size(factor))
            ]
        case Column(name):
            return [(name, FactorColumn(factor))]
        case _:
            return [(ex.source(factor), FactorColumn(factor))]
    mark = "T." if reduced else ""
    labels = [(f"{base}[{mark}{name}]", FactorColumn(factor, i)) for i, name in enumerate(names)]
    return labels[1:] if reduced else labels


def _times(a: Interval, b: Interval) -> Interval:
    corners = [x * y for x in a for y in b]
    return min(corners), max(corners)


def prepared(factor: Factor, columns: Arrays, codes: Arrays) -> NDArray[Any]:
    """What all columns of a factor need: codes, a spline basis, or the values themselves."""
    match factor:
        case Categorical(column, levels):
            if column not in codes:
                raise DataError(f"the data has no categorical column `{column}`")
            found = np.asarray(codes[column])
            if found.size and not 0 <= found.min() <= found.max() < len(levels or ()):
                raise DataError(f"a code of `{column}` is not one of its levels")
            return found
        case Cut(x, points):
            # Codes of right-closed intervals; what lies outside falls into the end ones.
            return np.searchsorted(np.array(points[1:-1]), ex.evaluate(x, columns), side="left")
        case Spline():
            return _basis(factor, ex.evaluate(factor.x, columns))
    return ex.evaluate(factor, columns)


def _basis(spline: Spline, x: Floats) -> Floats:
    from scipy.interpolate import BSpline

    ends = np.ones(spline.degree + 1)
    knots = np.concatenate([spline.lower * ends, spline.knots, spline.upper * ends])
    basis = BSpline(knots, np.eye(_basis_size(spline)), spline.degree)
    return np.asarray(basis(np.clip(x, spline.lower, spline.upper)), dtype=np.float64)
