"""``"age >= 18 & sex == 'f'"``: which rows belong to a subset, as plain data.

A condition is read as a factor of a formula is (`dpeffects.formula.factors`): with `ast`, against
an allow-list, and nothing is run. ``&``, ``|`` and ``~`` are other words for ``and``, ``or`` and
``not`` and bind as loosely as these do, as in `pandas.DataFrame.query`. Logic is that of SQL: a
comparison with a missing value is unknown, so is its negation, and what is unknown is outside.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpeffects.arrays import BoolArray
from dpeffects.errors import DataError, FormulaError, advised, refusal, shorten
from dpeffects.formula import expression as ex
from dpeffects.formula import factors
from dpeffects.formula.expression import All, AnyOf, Compare, Condition, Level, Missing, Not, OneOf
from dpeffects.lazy import pd

Arrays: TypeAlias = Mapping[str, NDArray[Any]]

MAX_LENGTH = 20_000


def values_in(condition: Condition) -> dict[str, tuple[Level, ...]]:
    """Values that columns are compared with by ``==``, ``!=`` and ``in``, by column."""
    found: dict[str, tuple[Level, ...]] = {}
    for node in ex.walk(condition):
        if isinstance(node, OneOf):
            both = (*found.get(node.column, ()), *node.levels)
            found[node.column] = tuple(dict.fromkeys(both))
    return found


def holds(condition: Condition, columns: Arrays) -> BoolArray:
    """Which rows a condition holds for, row by row; False where it is unknown.

    Numbers are arrays of floats with NaN for missing values, others arrays of objects with None.

    Examples
    --------
    >>> holds(read_condition("~(age < 18)"), {"age": np.array([17.0, 18.0, np.nan])})
    array([False,  True, False])
    """
    with np.errstate(all="ignore"):
        return _truth(condition, columns)[0]


def _truth(condition: Condition, columns: Arrays) -> tuple[BoolArray, BoolArray]:
    """Where it is true, and where it is false."""
    match condition:
        case Not(x):
            true, false = _truth(x, columns)
            return false, true
        case All(parts) | AnyOf(parts):
            trues, falses = zip(*(_truth(part, columns) for part in parts), strict=True)
            one, other = (np.all, np.any) if isinstance(condition, All) else (np.any, np.all)
            return one(trues, axis=0), other(falses, axis=0)
        case Missing(name):
            missing = _missing(_array(name, columns))
            return missing, ~missing
        case OneOf(name, levels):
            values = _array(name, columns)
            true, known = _one_of(name, values, levels), ~_missing(values)
        case Compare(op, left, right):
            numbers = {name: _numbers(name, columns) for name in ex.number_columns(left)}
            flags = {x.key: _missing(_array(x.column, columns)) for x in ex.flags(left)}
            value = ex.evaluate(left, numbers | flags)
            true = ex.COMPARISONS[op](value, right.value)
            known = ~np.any([np.isnan(x) for x in (value, *numbers.values())], axis=0)
    return true & known, ~true & known


def _one_of(name: str, values: NDArray[Any], levels: tuple[Level, ...]) -> BoolArray:
    if values.dtype.kind in "fiub":
        if any(isinstance(level, str) for level in levels):
            raise DataError(f"column {name!r} holds numbers: compare it with a number")
        return np.any([values == level for level in levels], axis=0)
    wanted = set(levels)
    return np.fromiter((_is_in(value, wanted) for value in values), bool, len(values))


def _array(name: str, columns: Arrays) -> NDArray[Any]:
    if name not in columns:
        raise DataError(f"the data has no column {name!r}")
    return np.asarray(columns[name])


def _numbers(name: str, columns: Arrays) -> NDArray[np.float64]:
    values = _array(name, columns)
    if values.dtype.kind not in "fiub":
        raise DataError(refusal("compared_as_number", name=name))
    return values.astype(np.float64, copy=False)


def _missing(values: NDArray[Any]) -> BoolArray:
    return np.asarray(pd.isna(values), dtype=np.bool_)


def _is_in(value: Any, wanted: set[Level]) -> bool:
    try:
        return value in wanted
    except TypeError:  # lists and the like are no levels
        return False


# --- from text

_EXAMPLE = "write a condition such as age >= 18 & sex == 'f', with other names in backticks"
_MISSING = "write is_na(x) for a missing value, and ~is_na(x) for one that is there"
_FORBIDDEN = {
    "#": "a condition has no comments; remove `#`",
    "%": "`%` is not available; compute it beforehand and give it as a column",
}


class _ConditionReader(factors.FactorReader):
    """A factor reader that knows conditions too."""

    what = "subset"

    def condition(self, node: ast.expr, depth: int = 0) -> Condition:
        if depth > factors.MAX_DEPTH:
            self.refuse(f"more than {factors.MAX_DEPTH} levels of nesting; compute it beforehand")
        match node:
            case ast.BoolOp(op=op, values=values):
                parts = tuple(self.condition(value, depth + 1) for value in values)
                return All(parts) if isinstance(op, ast.And) else AnyOf(parts)
            case ast.UnaryOp(op=ast.Not(), operand=x):
                return Not(self.condition(x, depth + 1))
            case ast.Compare(left=left, ops=ops, comparators=others):
                ends = pairwise([left, *others])
                pairs = [self.pair(a, op, b) for op, (a, b) in zip(ops, ends, strict=True)]
                return pairs[0] if len(pairs) == 1 else All(tuple(pairs))
            case ast.Call(func=ast.Name(id="is_na"), args=[x], keywords=[]):
                return Missing(self.named(x, "is_na() takes a column"))
            case ast.Call(func=ast.Name(id="I"), args=[x], keywords=[]):
                return self.condition(x, depth + 1)
            case ast.Name(id=name) if not isinstance(self.quotes.value(name), str):
                return OneOf(self.column(name).name, (True,))
            case ast.Constant():
                self.refuse("it names no column; write a condition such as age >= 18")
        self.of_column(node)  # which has its own advice
        self.refuse("compare it with a number, as x > 0")

    def pair(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> Condition:
        """One comparison; of a chain, two neighbours."""
        if any(isinstance(x, ast.Constant) and x.value is None for x in (left, right)):
            self.refuse(_MISSING)
        if isinstance(op, ast.In | ast.NotIn):
            name = self.named(left, "in compares a column with values, as x in ['a', 'b']")
            found = OneOf(name, tuple(dict.fromkeys(self.level(x) for x in self.items(right))))
            if not found.levels:
                self.refuse("there is no value in the list")
            return found if isinstance(op, ast.In) else Not(found)
        if type(op) not in factors.COMPARISON:
            self.refuse(f"compare with < <= > >= == != or in; {_MISSING}")
        symbol = factors.COMPARISON[type(op)]
        if self.is_literal(left):
            left, symbol, right = right, factors.MIRRORED[symbol], left
        self.check_sides(left, right)
        if type(op) in factors.EQUALITY and isinstance(left, ast.Name):
            found = OneOf(self.column(left.id).name, (self.level(right),))
            return found if symbol == "==" else Not(found)
        if self.text_of(right) is not None:
            self.refuse("text has no order, and is compared with a column alone: list its values")
        return Compare(symbol, self.of_column(left), ex.Number(self.number(right)))

    def check_sides(self, left: ast.expr, right: ast.expr) -> None:
        """Refuse what is no comparison with a literal value, and say what was meant."""
        if self.is_literal(left):
            self.refuse("two values are compared; compare a column with a value, as age >= 18")
        if isinstance(right, ast.List | ast.Tuple | ast.Set):
            self.refuse("write x in [...] for several values")
        if self.is_literal(right):
            return
        if isinstance(right, ast.Name):
            name = self.column(right.id).name
            if name.lower() in ("nan", "na", "null", "none", "nat"):
                self.refuse(_MISSING)
            if name.lower() in ("true", "false"):
                self.refuse(f"write {name.title()}")
            self.refuse(refusal("two_columns_compared", name=name))
        self.of_column(right)
        self.refuse("compare with a number: write x - z > 0 for x > z")

    def is_literal(self, node: ast.expr) -> bool:
        return self.text_of(node) is not None or self.literal(node) is not None

    def level(self, node: ast.expr) -> Level:
        if isinstance(node, ast.Name) and self.text_of(node) is None:
            self.refuse(f"text stands in quotes: {self.column(node.id).name!r}")
        return super().level(node)

    def method(self, node: ast.Attribute) -> NoReturn:
        if node.attr in advised("conditions"):
            self.refuse(advised("conditions")[node.attr])
        super().method(node)

    def call(self, node: ast.Call, depth: int) -> ex.Expression:
        if isinstance(node.func, ast.Name) and node.func.id in ("C", "cut", "bs"):
            self.refuse(f"`{node.func.id}` is for formulas; compare the column, as 18 <= x <= 65")
        return super().call(node, depth)

    def unknown(self, name: str) -> NoReturn:
        known = advised("conditions")
        if name in known or name.lower() in ("is_na", "is.na", "ismissing", "is_missing"):
            self.refuse(known.get(name, _MISSING))
        super().unknown(name)


def read_condition(text: str) -> Condition:
    """Read which rows belong to a subset.

    Row-wise numbers are compared with a number, columns with a text, a number or True and False, or
    with a list of them after ``in`` and ``not in``; ``is_na(x)`` finds missing values. Conditions
    are joined by ``&``, ``|``, ``~`` or ``and``, ``or``, ``not``. A column alone holds where it is
    True or 1. Names that are not plain words stand in backticks.

    Examples
    --------
    >>> c = read_condition("age >= 18 & sex == 'f' | ~is_na(dose)")
    >>> ex.render(c)[0], ex.columns(c)
    ("age >= 18 & sex == 'f' | ~is_na(dose)", ('age', 'sex', 'dose'))
    >>> read_condition("sex = 'f'")
    Traceback (most recent call last):
    dpeffects.errors.FormulaError: subset `sex = 'f'`: write == to compare
    """
    if not isinstance(text, str):
        raise FormulaError(refusal("subset_text", kind=type(text).__name__))
    if len(text) > MAX_LENGTH:
        raise FormulaError(refusal("condition_may_characters", max_length=MAX_LENGTH))
    bare, quotes = factors.unquote(text, _FORBIDDEN)
    reader = _ConditionReader(text.strip(), "python", quotes)
    for pattern, advice in advised("signs").items():
        if re.search(pattern, bare):
            reader.refuse(advice)
    words = bare.replace("&", " and ").replace("|", " or ").replace("~", " not ")
    try:
        tree = ast.parse(words.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        reader.refuse(_EXAMPLE)
    with factors.translated(text):
        found = reader.condition(tree)
    texts = {
        name for name, values in values_in(found).items() if any(isinstance(v, str) for v in values)
    }
    if both := sorted(texts.intersection(ex.number_columns(found))):
        reader.refuse(f"`{shorten(both[0])}` is compared with a number and with text")
    return found


# --- subsets without a row in common


def exclude(one: Condition, other: Condition) -> bool:
    """Say whether two conditions never hold for one row, as far as their texts show it.

    Examples
    --------
    >>> young, old = read_condition("age < 40"), read_condition("age >= 40 & sex == 'f'")
    >>> exclude(young, old), exclude(young, read_condition("sex == 'f'"))
    (True, False)
    """
    for a, b in ((one, other), (other, one)):
        if isinstance(a, AnyOf):
            return all(exclude(part, b) for part in a.parts)
    return any(_apart(a, b) or _apart(b, a) for a in _at_once(one) for b in _at_once(other))


def _at_once(condition: Condition) -> Iterator[Condition]:
    """Conditions that all hold where this one does."""
    if not isinstance(condition, All):
        yield condition
        return
    for part in condition.parts:
        yield from _at_once(part)


def _apart(one: Condition, other: Condition) -> bool:
    match one, other:
        case OneOf(a, levels), OneOf(b, others):
            return a == b and set(levels).isdisjoint(others)
        case OneOf(a, levels), Not(OneOf(b, others)):
            return a == b and set(levels) <= set(others)
        case OneOf(a, levels), Compare(op, ex.Column(b), right):
            numbers = all(isinstance(level, int | float) for level in levels)
            holds = ex.COMPARISONS[op]
            return a == b and numbers and not any(holds(level, right.value) for level in levels)
        case Compare(op, x, a), Compare(other_op, z, b):
            ends = op[0] == "<" and other_op[0] == ">" and x == z
            meet = a.value == b.value and not (op == "<=" and other_op == ">=")
            return ends and (meet or a.value < b.value)
        case OneOf(a, _), Missing(b):
            return a == b
    return other == Not(one)


def by_level(factor: ex.Factor) -> tuple[Condition, ...]:
    """A condition for each value of a discrete factor, in the order of its levels.

    Examples
    --------
    >>> [ex.render(c)[0] for c in by_level(ex.Cut(ex.Column("age"), (18.0, 40.0, 65.0)))]
    ['age <= 40', 'age > 40']
    """
    match factor:
        case ex.Categorical(column, levels):
            return tuple(OneOf(column, (level,)) for level in levels or ())
        case ex.Cut(x, points):
            above = [Compare(">", x, ex.Number(p)) for p in points[1:-1]]
            below = [Compare("<=", x, ex.Number(p)) for p in points[1:-1]]
            inner = (All(pair) for pair in zip(above[:-1], below[1:], strict=True))
            return (*below[:1], *inner, *above[-1:])
        case Missing() | Compare():
            return Not(factor), factor
    column = ex.columns(factor)[0]
    return Not(OneOf(column, (True,))), OneOf(column, (True,))
