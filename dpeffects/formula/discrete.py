"""Covariates as strata: every combination of the levels of discrete factors is one stratum."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from dpeffects.errors import FormulaError
from dpeffects.formula import expression as ex
from dpeffects.formula.encoding import Arrays, Levels, columns_of, prepared, resolve
from dpeffects.formula.expression import Categorical, Column, Compare, Cut, Factor, Missing
from dpeffects.formula.parser import Formula

MAX_STRATA = 2**62


@dataclass(frozen=True)
class Strata:
    """Discrete factors and how many values each can take, from the formula and declared levels.

    Examples
    --------
    >>> from dpeffects.formula import parse
    >>> found = Strata.build(parse("y ~ t | cut(age, [0, 30, 90]) * g"), {"g": ("a", "b", "c")})
    >>> found.count
    6
    >>> found.index({"age": np.array([20.0, 60.0])}, {"g": np.array([2, 0])})
    array([2, 3])
    """

    factors: tuple[Factor, ...]
    sizes: tuple[int, ...]

    @classmethod
    def build(cls, formula: Formula, levels: Levels, binary: Collection[str] = ()) -> Strata:
        """Collect the factors of all terms; an interaction adds nothing to its factors.

        ``binary`` names numeric columns that are 0 or 1 by their type. A factor that is not
        discrete is refused.
        """
        found = dict.fromkeys(resolve(f, levels) for f in formula.factors)
        sizes = tuple(_size(factor, binary) for factor in found)
        if math.prod(sizes) > MAX_STRATA:
            raise FormulaError("the covariates declare too many strata; write fewer levels")
        return cls(tuple(found), sizes)

    @property
    def count(self) -> int:
        """Number of strata, with records or without."""
        return math.prod(self.sizes)

    def labels(self) -> tuple[str, ...]:
        """Name of each stratum, in the order of `index`."""
        parts = [
            _values(factor, size) for factor, size in zip(self.factors, self.sizes, strict=True)
        ]
        return tuple(", ".join(choice) for choice in product(*parts))

    def index(self, columns: Arrays, codes: Arrays) -> NDArray[np.int64]:
        """Stratum of each record: its values as the digits of one number."""
        found: NDArray[np.int64] | None = None
        for factor, size in zip(self.factors, self.sizes, strict=True):
            digit = prepared(factor, columns, codes).astype(np.int64)
            found = digit if found is None else found * size + digit
        if found is None:
            raise FormulaError("strata need covariates after `|`")
        return found


def _values(factor: Factor, size: int) -> list[str]:
    """What a factor can be, in words."""
    match factor:
        case Categorical(column, levels):
            return [f"{column} {level}" for level in levels or ()]
        case Cut(x, _):
            return [f"{ex.source(x)} {label}" for label in factor.labels]
    return [f"{ex.source(factor)} {bool(value)}" for value in range(size)]


def _size(factor: Factor, binary: Collection[str]) -> int:
    match factor:
        case Categorical() | Cut():
            return columns_of(factor)
        case Compare() | Missing():
            return 2
        case Column(name) if name in binary:
            return 2
    name = ex.columns(factor)[0] if ex.columns(factor) else "x"
    raise FormulaError(
        f"term `{ex.shown(factor)}`: matching on strata needs discrete covariates; write "
        f"cut({name}, [...]) with cut points that do not come from the data, I({name} == 1), or "
        f"declare its levels"
    )
