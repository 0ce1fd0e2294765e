"""Covariates as strata: every combination of the levels of discrete factors is one stratum."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpeffects.errors import FormulaError, OptionError, refusal, shorten
from dpeffects.formula import expression as ex
from dpeffects.formula.encoding import Arrays, Levels, columns_of, prepared, resolve
from dpeffects.formula.expression import Categorical, Column, Compare, Cut, Factor, Missing
from dpeffects.formula.parser import Formula, parse

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
    flags: tuple[Missing | None, ...]
    """The ``is_na(x)`` that is one more value, the last, of a factor of x alone."""

    @classmethod
    def build(cls, formula: Formula, levels: Levels, binary: Collection[str] = ()) -> Strata:
        """Collect the factors of all terms; an interaction adds nothing to its factors.

        ``binary`` names numeric columns that are 0 or 1 by their type or declared range. A factor
        that is not discrete is refused.
        """
        found = dict.fromkeys(resolve(f, levels) for f in formula.factors)
        alone = {ex.columns(f): f for f in reversed(found) if not isinstance(f, Missing)}
        joined: dict[Factor, Missing] = {
            alone[(flag.column,)]: flag
            for flag in found
            if isinstance(flag, Missing) and (flag.column,) in alone
        }
        factors = tuple(factor for factor in found if factor not in joined.values())
        flags = tuple(joined.get(factor) for factor in factors)
        sizes = tuple(
            _size(factor, binary) + (flag is not None)
            for factor, flag in zip(factors, flags, strict=True)
        )
        if math.prod(sizes) > MAX_STRATA:
            raise FormulaError(refusal("covariates_declare_too"))
        return cls(factors, sizes, flags)

    @property
    def count(self) -> int:
        """Number of strata, with records or without."""
        return math.prod(self.sizes)

    def labels(self) -> tuple[str, ...]:
        """Name of each stratum, in the order of `index`."""
        return tuple(", ".join(choice) for choice in product(*self.values()))

    def values(self) -> tuple[tuple[str, ...], ...]:
        """Names of the values of each factor."""
        parts = []
        for factor, size, flag in self._each():
            missing = [] if flag is None else [f"{flag.column} missing"]
            parts.append((*_values(factor, size - len(missing)), *missing))
        return tuple(parts)

    @property
    def words(self) -> str:
        """What makes the groups, and that they are crossed."""
        names = (x.column if isinstance(x, Categorical) else ex.source(x) for x in self.factors)
        return " x ".join(names) + ", crossed" * (len(self.factors) > 1)

    def _each(self) -> Iterator[tuple[Factor, int, Missing | None]]:
        return zip(self.factors, self.sizes, self.flags, strict=True)

    def index(self, columns: Arrays, codes: Arrays) -> NDArray[np.int64]:
        """Stratum of each record: its values as the digits of one number."""
        found: NDArray[np.int64] | None = None
        for factor, size, flag in self._each():
            digit = prepared(factor, columns, codes).astype(np.int64)
            if flag is not None:
                digit = np.where(ex.evaluate(flag, columns) > 0.0, size - 1, digit)
            found = digit if found is None else found * size + digit
        if found is None:
            raise FormulaError("strata need covariates after `|`")
        return found


def joined(given: Any, what: str, crossed: bool = True) -> str:
    """Terms that make groups, as one text: of a name or terms joined by ``+``, or a list of them.

    ``what`` is the argument that has them, and ``crossed`` says whether groups are combinations of
    the levels of all factors, as ``aggregate`` and ``group_by`` of R make them, or those of each.

    Examples
    --------
    >>> joined(["sex", "cut(age, [18, 65, 90])"], "by")
    'sex + cut(age, [18, 65, 90])'
    """
    named = [given] if isinstance(given, str) else given
    texts = isinstance(named, list | tuple) and all(isinstance(x, str) for x in named)
    if not (texts and all(map(str.strip, named)) and (named or not crossed)):
        raise OptionError(f"{what} must be terms{_GROUPED}, not {type(given).__name__}")
    for text in named:
        try:
            terms = parse(f"`an outcome` ~ `a treatment` | {text}").terms
        except FormulaError as error:
            raise OptionError(f"{what} takes discrete terms{_GROUPED}: {error}") from None
        if not terms:
            raise OptionError(f"{what}: `{shorten(text)}` names no column{_GROUPED}")
        if not crossed and any(len(term) > 1 for term in terms):
            raise OptionError(refusal("crossed_subgroups", what=what, text=shorten(text)))
    return " + ".join(named)


_GROUPED = ', such as "sex", ["sex", "region"], "cut(age, [18, 40, 65])" or "I(age >= 40)"'


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
    raise FormulaError(refusal("not_discrete", term=ex.shown(factor), name=name))
