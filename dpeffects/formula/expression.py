"""Row-wise expressions as plain data: what a term of a formula may compute.

A factor such as ``log(1 + x)`` becomes a small tree of frozen dataclasses. The tree is row-wise by
construction (no node can look at another row), knows its range from the declared bounds of its
columns, and is evaluated here on numpy arrays. It is never Python code, so another engine can walk
the same tree.

To add a row-wise function, add one line to `FUNCTIONS`: its name, a numpy ufunc, the lower end of
its domain if it has one, and ``even=True`` if it is even and increasing on the positive half-line
(otherwise it must be increasing everywhere it is defined), ``rounded=True`` if IEEE arithmetic
rounds it correctly. Parsing, ranges, domain checks, the
printed formula and the error messages read the table.
"""

from __future__ import annotations

import keyword
import math
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpeffects.errors import DataError, shorten

Level: TypeAlias = str | int | float | bool
Interval: TypeAlias = tuple[float, float]


@dataclass(frozen=True)
class Column:
    """A column of the data, by name."""

    name: str


@dataclass(frozen=True)
class Number:
    """A literal number."""

    value: float


@dataclass(frozen=True)
class Unary:
    """Minus an expression."""

    op: str
    x: Expression


@dataclass(frozen=True)
class Binary:
    """Two expressions joined by ``+ - * /`` or ``**``; an exponent is always a Number."""

    op: str
    left: Expression
    right: Expression


@dataclass(frozen=True)
class Compare:
    """An expression compared with a number: 1 where it holds, else 0."""

    op: str
    left: Expression
    right: Number


@dataclass(frozen=True)
class Call:
    """A function named in `FUNCTIONS`, applied to an expression."""

    function: str
    x: Expression


_BESIDE = "\0"


@dataclass(frozen=True)
class Clip:
    """An expression that is brought between two numbers."""

    x: Expression
    low: float
    high: float


def is_flag(key: str) -> bool:
    """Whether a key of arrays is that of ``is_na(x)`` or levels: no column has such a name."""
    return key.startswith(_BESIDE)


@dataclass(frozen=True)
class Missing:
    """1 where a column has no value, else 0; the column may be of any type."""

    column: str

    @property
    def key(self) -> str:
        """Under which `evaluate` finds which values are missing."""
        return f"{_BESIDE}is_na {self.column}"


@dataclass(frozen=True)
class Survival:
    """A time and whether it ended in the event: the number of the cell of a life table.

    2 b for a record whose time was cut short in the interval (edges[b], edges[b + 1]], 2 b + 1 for
    one with the event there, and one number more for those still there at the last edge. The edges
    are those that the call asks for.
    """

    time: Expression
    event: Expression
    edges: tuple[float, ...] = ()

    @property
    def cells(self) -> int:
        """Number of cells."""
        return 2 * (len(self.edges) - 1) + 1

    def cell(self, time: NDArray[Any], event: NDArray[Any]) -> NDArray[np.float64]:
        """Cells of some rows."""
        died, after, last = event > 0.5, np.zeros(time.shape, np.int16), self.edges[-1]
        for edge in self.edges[1:-1]:  # faster than a binary search, as is arithmetic than `where`
            after += time > edge
        inside = (time < last) | ((time == last) & died)
        top = self.cells - 1
        return np.asarray(inside * (2 * after + died - top) + top, np.float64)


@dataclass(frozen=True)
class Ordered:
    """A column whose levels are declared in their order: the number of a row's level, from 0.

    ``count`` is how many levels there are.
    """

    column: str
    count: int = 0

    @property
    def key(self) -> str:
        """Under which `evaluate` finds the numbers of the levels."""
        return f"{_BESIDE}level {self.column}"


PAIR = 2.0**26
"""Steps of each number of a `Pair`."""


@dataclass(frozen=True)
class Pair:
    """Two numbers of a row as one: whole steps of the first, times `PAIR`, plus those of the other.

    Neither is negative. Steps are parts of the largest that they can be, which are ``tops``.
    """

    first: Expression
    second: Expression
    tops: tuple[float, float] = (1.0, 1.0)

    def together(self, first: NDArray[Any], second: NDArray[Any]) -> NDArray[np.float64]:
        """The two numbers of some rows as one."""
        pairs = zip((first, second), self.tops, strict=True)
        steps = [np.rint(np.clip(x / top, 0.0, 1.0) * (PAIR - 1.0)) for x, top in pairs]
        return np.asarray(steps[0] * PAIR + steps[1])

    @staticmethod
    def apart(together: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Both numbers, each as a part of its largest."""
        first, second = np.divmod(together, PAIR)
        return first / (PAIR - 1.0), second / (PAIR - 1.0)


@dataclass(frozen=True)
class WithTreatment(Pair):
    """An outcome and whether treatment was taken, where another column is compared by arm.

    ``tops`` are the ends of the range of the outcome.
    """

    def together(self, first: NDArray[Any], second: NDArray[Any]) -> NDArray[np.float64]:
        """Steps of the outcome above the lower end of its range, and whether it was taken."""
        low, high = self.tops
        return Pair.together(Pair(self.first, self.second), (first - low) / (high - low), second)


@dataclass(frozen=True)
class Categorical:
    """A column of levels, the first of them the reference; None if declared with the bounds."""

    column: str
    levels: tuple[Level, ...] | None = None


@dataclass(frozen=True)
class Cut:
    """An expression sorted into right-closed intervals between fixed points."""

    x: Expression
    points: tuple[float, ...]

    @property
    def labels(self) -> tuple[str, ...]:
        """One label an interval; the lowest point belongs to the first."""
        ends = [show_number(p) for p in self.points]
        pairs = enumerate(pairwise(ends))
        return tuple(f"{'(' if i else '['}{a}, {b}]" for i, (a, b) in pairs)


@dataclass(frozen=True)
class Spline:
    """A B-spline basis with fixed knots and bounds."""

    x: Expression
    knots: tuple[float, ...]
    lower: float
    upper: float
    degree: int = 3
    include_intercept: bool = False


@dataclass(frozen=True)
class OneOf:
    """Whether a column has one of some values."""

    column: str
    levels: tuple[Level, ...]


@dataclass(frozen=True)
class Not:
    """The opposite of a condition; unknown where that is."""

    x: Condition


@dataclass(frozen=True)
class All:
    """Several conditions at once."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True)
class AnyOf:
    """At least one of several conditions."""

    parts: tuple[Condition, ...]


Expression: TypeAlias = (
    Column | Number | Unary | Binary | Compare | Call | Clip | Missing | Survival | Pair | Ordered
)
Factor: TypeAlias = Expression | Categorical | Cut | Spline
Condition: TypeAlias = Compare | Missing | OneOf | Not | All | AnyOf
"""What holds for the rows of a subset (`dpeffects.formula.condition`)."""
Tree: TypeAlias = Factor | Condition


@dataclass(frozen=True)
class Function:
    """A row-wise function: how it is computed, where it is defined, what to write elsewhere."""

    apply: Callable[[Any], Any]
    lower: float = -math.inf
    closed: bool = False
    even: bool = False
    rounded: bool = False  # correctly, on every machine
    instead: str = ""


_POSITIVE = "declare a positive lower bound, or write log(1 + x) for an x that is never negative"

FUNCTIONS: dict[str, Function] = {
    "log": Function(np.log, lower=0.0, instead=_POSITIVE),
    "log2": Function(np.log2, lower=0.0, instead=_POSITIVE.replace("log", "log2")),
    "log10": Function(np.log10, lower=0.0, instead=_POSITIVE.replace("log", "log10")),
    "log1p": Function(np.log1p, lower=-1.0, instead="declare a lower bound above -1"),
    "sqrt": Function(
        np.sqrt, lower=0.0, closed=True, rounded=True, instead="declare a lower bound of 0 or more"
    ),
    "exp": Function(np.exp),
    "expm1": Function(np.expm1),
    "abs": Function(np.abs, even=True),
}
OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "**": operator.pow,
}
COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


def walk(tree: Tree) -> Iterator[Tree]:
    """Yield the tree and every one inside it, outermost first."""
    yield tree
    for value in tree.parts if isinstance(tree, All | AnyOf) else vars(tree).values():
        if isinstance(value, Tree):
            yield from walk(value)


def mapped(tree: Tree, function: Callable[[Tree], Any]) -> Any:
    """The tree with others in the place of those for which a function has another than None."""
    if (found := function(tree)) is not None:
        return found
    inside = {k: mapped(x, function) for k, x in vars(tree).items() if isinstance(x, Tree)}
    return replace(tree, **inside)


def columns(tree: Tree) -> tuple[str, ...]:
    """Names of the columns a factor or a condition reads, in order, each once.

    Examples
    --------
    >>> columns(Binary("+", Column("x"), Call("log", Column("z"))))
    ('x', 'z')
    """
    names = {
        node.name if isinstance(node, Column) else node.column: None
        for node in walk(tree)
        if isinstance(node, Column | Categorical | Missing | Ordered | OneOf)
    }
    return tuple(names)


def number_columns(tree: Tree) -> tuple[str, ...]:
    """Names of the columns that a factor or a condition computes with, each once."""
    return tuple({node.name: None for node in walk(tree) if isinstance(node, Column)})


def flags(tree: Tree) -> tuple[Missing, ...]:
    """The ``is_na(x)`` inside a factor or a condition, each once."""
    return tuple({node: None for node in walk(tree) if isinstance(node, Missing)})


# How tightly each kind of node binds when printed; Python's own order.
_BINDING = {"+": 1, "-": 1, "*": 2, "/": 2, "**": 4}
_OR, _AND, _MINUS, _ATOM = -2, -1, 3, 5


def source(factor: Factor) -> str:
    """Text that parses back to the same factor, also as a term of a formula.

    Examples
    --------
    >>> source(Binary("**", Column("x"), Number(2)))
    'I(x ** 2)'
    >>> source(Cut(Column("birth year"), (1900.0, 1950.0, 2000.0)))
    'cut(`birth year`, [1900, 1950, 2000])'
    """
    match factor:
        case Categorical(column, levels):
            return f"C({show_name(column)}{'' if levels is None else f', levels={list(levels)!r}'})"
        case Cut(x, points):
            return f"cut({render(x)[0]}, {_list(points)})"
        case Spline():
            lower, upper = show_number(factor.lower), show_number(factor.upper)
            return (
                f"bs({render(factor.x)[0]}, knots={_list(factor.knots)}, degree={factor.degree}, "
                f"lower_bound={lower}, upper_bound={upper}, "
                f"include_intercept={factor.include_intercept})"
            )
        case Column() | Call() | Clip() | Missing() | Survival() | Pair() | Ordered():
            return render(factor)[0]
    return f"I({render(factor)[0]})"


def shown(factor: Factor, most: int = 120) -> str:
    """`source` for a message: long lists are cut short."""
    return shorten(source(factor), most)


def render(expr: Expression | Condition) -> tuple[str, int]:
    """Text of an expression or a condition, and how tightly its outermost operator binds."""

    def child(node: Expression | Condition, least: int) -> str:
        text, binding = render(node)
        return text if binding >= least else f"({text})"

    match expr:
        case Column(name) | Ordered(name):
            return show_name(name), _ATOM
        case Missing(name):
            return f"is_na({show_name(name)})", _ATOM
        case Number(value):
            return show_number(value), _MINUS if value < 0 else _ATOM
        case Unary(op, x):
            return f"{op}{child(x, _MINUS)}", _MINUS
        case Call(function, x):
            return f"{function}({render(x)[0]})", _ATOM
        case Clip(x, low, high):
            return f"clip({render(x)[0]}, {show_number(low)}, {show_number(high)})", _ATOM
        case Compare(op, left, right):
            return f"{child(left, 1)} {op} {show_number(right.value)}", 0
        case OneOf():
            return _show_levels(expr, "==", "in"), 0
        case Not(OneOf() as x):
            return _show_levels(x, "!=", "not in"), 0
        case Not(x):
            return f"~{child(x, _ATOM)}", 0
        case All(parts):
            return " & ".join(child(part, 0) for part in parts), _AND
        case AnyOf(parts):
            return " | ".join(child(part, _AND) for part in parts), _OR
        case Survival(time, event):
            return f"Surv({render(time)[0]}, {render(event)[0]})", _ATOM
        case WithTreatment(first):
            return render(first)
        case Pair(first, second):
            return f"{child(first, 2)} / {child(second, 3)}", 2
    least = _BINDING[expr.op]
    if expr.op == "**":  # binds to the right, and its exponent is a number
        return f"{child(expr.left, _ATOM)} ** {child(expr.right, _MINUS)}", least
    return f"{child(expr.left, least)} {expr.op} {child(expr.right, least + 1)}", least


def _show_levels(condition: OneOf, one: str, several: str) -> str:
    name, levels = show_name(condition.column), list(condition.levels)
    return f"{name} {several} {levels!r}" if len(levels) > 1 else f"{name} {one} {levels[0]!r}"


def show_name(name: str) -> str:
    """A column as a formula names it."""
    plain = name.isidentifier() and not keyword.iskeyword(name) and not name.startswith("__")
    return name if plain else f"`{name}`"


def show_number(value: float) -> str:
    """A number as a person writes it."""
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(float(value))


def _list(values: tuple[float, ...]) -> str:
    return f"[{', '.join(map(show_number, values))}]"


def evaluate(expr: Expression, columns: Mapping[str, NDArray[Any]]) -> NDArray[np.float64]:
    """Value of an expression, row by row.

    A plain column is returned as it is, without a copy.

    Examples
    --------
    >>> evaluate(Compare(">", Column("x"), Number(1)), {"x": np.array([0.0, 2.0])})
    array([0., 1.])
    """
    match expr:
        case Column(name):
            if name not in columns:
                raise DataError(f"the data has no numeric column `{name}`")
            return np.asarray(columns[name], dtype=np.float64)
        case Missing() | Ordered():
            return np.asarray(columns[expr.key], dtype=np.float64)
        case Number(value):
            return np.asarray(value, dtype=np.float64)
        case Unary(_, x):
            return np.asarray(-evaluate(x, columns))
        case Call(function, x):
            return np.asarray(FUNCTIONS[function].apply(evaluate(x, columns)))
        case Clip(x, low, high):
            return np.asarray(np.clip(evaluate(x, columns), low, high))
        case Compare(op, left, right):
            return np.asarray(COMPARISONS[op](evaluate(left, columns), right.value), np.float64)
        case Survival(time, event):
            return expr.cell(evaluate(time, columns), evaluate(event, columns))
        case Pair(first, second):
            return expr.together(evaluate(first, columns), evaluate(second, columns))
        case Binary("**", left, Number(value)):
            # A Python number: numpy then squares by multiplication, twenty times faster than pow.
            return np.asarray(evaluate(left, columns) ** value)
    a, b = evaluate(expr.left, columns), evaluate(expr.right, columns)
    return np.asarray(OPERATORS[expr.op](a, b))


_MOST_PARTS = 12


def is_binary(expr: Expression) -> bool:
    """Whether an expression is 0 or 1 for all rows, whatever its columns hold.

    It is made of comparisons and ``is_na(x)``, and 0 or 1 for everything that these can be.

    Examples
    --------
    >>> high, old = Compare(">", Column("x"), Number(1)), Compare(">", Column("z"), Number(9))
    >>> is_binary(Binary("*", high, old)), is_binary(Binary("+", high, old))
    (True, False)
    """
    parts: dict[Tree, Column] = {}

    def hidden(node: Tree) -> Any:
        there = isinstance(node, Compare | Missing)
        return parts.setdefault(node, Column(f"\0{len(parts)}")) if there else None

    whole = mapped(expr, hidden)
    if not 0 < len(parts) <= _MOST_PARTS or set(number_columns(whole)) != {
        part.name for part in parts.values()
    }:
        return False
    each = np.indices((2,) * len(parts)).reshape(len(parts), -1)
    with np.errstate(all="ignore"):
        values = evaluate(whole, {x.name: each[k] for k, x in enumerate(parts.values())})
    return bool(np.isin(values, (0.0, 1.0)).all())


def needs_domain(factor: Factor) -> set[str]:
    """Columns that need declared bounds: inside a function that is not defined everywhere, or of
    which the largest counts.

    Examples
    --------
    >>> needs_domain(Binary("/", Column("x"), Column("z")))
    {'z'}
    """
    found: set[str] = set()
    for node in walk(factor):
        match node:
            case Call(function, x) if FUNCTIONS[function].lower > -math.inf:
                found.update(number_columns(x))
            case Binary("/", _, right):
                found.update(number_columns(right))
            case Pair():
                found.update(number_columns(node))
            case Binary("**", left, Number(p)) if p < 0 or p != int(p):
                found.update(number_columns(left))
    return found
