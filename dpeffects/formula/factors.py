"""One factor of a formula: Python syntax in, an expression out, everything else refused.

Text in quotes is hidden first (`unquote`), because the tokeniser stumbles on it. A factor is read
with `ast` against an allow-list into the trees of `dpeffects.formula.expression`; nothing is run.
"""

from __future__ import annotations

import ast
import difflib
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from types import MappingProxyType
from typing import ClassVar, NamedTuple, NoReturn

from dpeffects.errors import FormulaError, advised, refusal, shorten
from dpeffects.formula import expression as ex

MAX_DEPTH = 100
MAX_NUMBER = 1e300


@contextmanager
def translated(text: str) -> Iterator[None]:
    """Turn whatever a parser raises into a FormulaError."""
    try:
        yield
    except FormulaError:
        raise
    except Exception as error:
        reason = getattr(error, "msg", None) or str(error).partition("\n")[0]
        reason = reason or type(error).__name__
        if "context marker" in reason:
            reason = "a bracket is not closed, or not opened"
        if text.strip().startswith("as."):  # `as` is a word of Python
            reason = advised("formula")["as"]
        raise FormulaError(f"`{shorten(text.strip())}` cannot be read: {reason}") from None


# --- quotes: formulaic stumbles on brackets in strings and on some names in backticks, so both are
# replaced by words that no formula may contain, and put back when a factor is read.

_QUOTED = re.compile(
    r"""(?P<prefix>\b[A-Za-z]{1,2})?(?P<string>'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*")"""
    r"""|`(?P<name>[^`]*)`""",
    re.DOTALL,
)


class Quotes:
    """Quoted text, replaced by words that no formula may contain."""

    def __init__(self) -> None:
        self.raw: list[str] = []
        self.values: list[ex.Column | str] = []

    def hide(self, match: re.Match[str]) -> str:
        """Keep a quoted text, and return the word that stands for it."""
        if match["prefix"]:
            raise FormulaError(f"`{shorten(match[0])}`: strings with a prefix are not available")
        if match["name"] == "":
            raise FormulaError("a name in backticks is empty")
        with translated(match[0]):
            value = (
                ast.literal_eval(match["string"]) if match["string"] else ex.Column(match["name"])
            )
        self.raw.append(match[0])
        self.values.append(value)
        return f" __{len(self.raw) - 1} "

    def value(self, name: str) -> ex.Column | str | None:
        """Return what a word stands for, None if it is not one of ours."""
        return self.values[int(name[2:])] if re.fullmatch(r"__\d+", name) else None

    def show(self, text: str, most: int = 120) -> str:
        """Put the quoted texts back, for a message."""
        back = re.sub(r" ?\b__(\d+)\b ?", lambda m: self.raw[int(m[1])], text)
        return shorten(back.strip(), most)


def unquote(text: str, forbidden: Mapping[str, str] = MappingProxyType({})) -> tuple[str, Quotes]:
    """Hide quoted text, and refuse symbols that have no place outside of it."""
    without = _QUOTED.sub(" ", text)
    for symbol, advice in {**advised("forbidden"), **forbidden}.items():
        if symbol in without:
            raise FormulaError(f"`{shorten(text.strip())}`: {advice}")
    if hidden := re.search(r"(?<!\w)__\w*", without):
        raise FormulaError(refusal("underscores", name=shorten(hidden[0])))
    if not unicodedata.is_normalized("NFKC", without):  # Python would read another name
        raise FormulaError(refusal("formula_letters_plain"))
    quotes = Quotes()
    return re.sub(r"\s", " ", _QUOTED.sub(quotes.hide, text)), quotes


# --- one factor: Python syntax in, expression out, the rest refused

_ARITHMETIC = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Pow: "**"}
EQUALITY = {ast.Eq: "==", ast.NotEq: "!="}
COMPARISON = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", **EQUALITY}
MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}

_SHAPES = ("C", "cut", "bs", "Surv")


class FactorReader:
    """One text as a factor; `dpeffects.formula.condition` adds what stands in conditions only."""

    what: ClassVar[str] = "term"

    def __init__(self, text: str, kind: str, quotes: Quotes) -> None:
        self.text, self.kind, self.quotes = text.strip(), kind, quotes

    def refuse(self, why: str) -> NoReturn:
        """Say what cannot be read, and what to write."""
        text = self.quotes.show(self.text)
        raise FormulaError(f"{self.what} `{text}`: {self.quotes.show(why, 500)}")

    def factor(self) -> ex.Factor:
        """The factor."""
        if self.kind == "name":
            return self.column(self.text)
        node: ast.expr = ast.parse(self.text, mode="eval").body
        shapes: dict[str, Callable[[ast.Call], ex.Factor]]
        shapes = {"C": self.categorical, "cut": self.cut, "bs": self.spline, "Surv": self.survival}
        match node:
            case ast.Call(func=ast.Name(id=name)) if name in shapes:
                return shapes[name](node)
        return self.of_column(node)

    def of_column(self, node: ast.expr) -> ex.Expression:
        """An expression that reads a column."""
        expr = self.expression(node)
        if not ex.columns(expr):
            self.refuse("it has no column; name one, or remove the term")
        return expr

    def column(self, name: str) -> ex.Column:
        """A column by its name, or by what stood in backticks."""
        value = self.quotes.value(name)
        if isinstance(value, str):
            self.refuse(refusal("string_in_formula"))
        if value is None and not re.fullmatch(r"[^\W\d][\w.]*", name):
            self.refuse("it is not a plain name; write it in backticks")
        return value or ex.Column(name)

    def expression(self, node: ast.expr, depth: int = 0) -> ex.Expression:
        """A row-wise expression."""
        if depth > MAX_DEPTH:
            self.refuse(f"more than {MAX_DEPTH} levels of nesting; compute it beforehand")
        match node:
            case ast.Name():
                return self.column(node.id)
            case ast.Constant():
                return ex.Number(self.number(node))
            case ast.UnaryOp(op=ast.USub() | ast.UAdd()):
                x = self.expression(node.operand, depth + 1)
                if isinstance(node.op, ast.UAdd):
                    return x
                return ex.Number(-x.value) if isinstance(x, ex.Number) else ex.Unary("-", x)
            case ast.BinOp() if type(node.op) in _ARITHMETIC:
                return self.arithmetic(node, depth + 1)
            case ast.Compare():
                return self.comparison(node, depth + 1)
            case ast.Call():
                return self.call(node, depth + 1)
            case ast.Attribute():
                self.refuse(f"a name with a dot stands in backticks here: `{ast.unparse(node)}`")
        self.refuse(
            advised("nodes").get(type(node).__name__)
            or f"only + - * / **, comparisons and these functions are available: {_allowed()}"
        )

    def arithmetic(self, node: ast.BinOp, depth: int) -> ex.Expression:
        """Two expressions and an operator."""
        op, left = _ARITHMETIC[type(node.op)], self.expression(node.left, depth)
        if op == "**":
            what = "an exponent is a literal number; write exp(x * 0.69) for a power of x"
            return ex.Binary(op, left, ex.Number(self.number(node.right, what)))
        return ex.Binary(op, left, self.expression(node.right, depth))

    def comparison(self, node: ast.Compare, depth: int) -> ex.Expression:
        """An expression compared with a number."""
        if len(node.ops) > 1 or type(node.ops[0]) not in COMPARISON:
            self.refuse("compare once with < <= > >= == !=; a product of two comparisons is `and`")
        op = COMPARISON[type(node.ops[0])]
        left = self.expression(node.left, depth)
        right = self.expression(node.comparators[0], depth)
        if isinstance(left, ex.Number):
            op, left, right = MIRRORED[op], right, left
        if not isinstance(right, ex.Number):
            self.refuse("compare with a number; write I(x - z > 0)")
        return ex.Compare(op, left, right)

    def call(self, node: ast.Call, depth: int) -> ex.Expression:
        """A function of an expression."""
        if isinstance(node.func, ast.Attribute):
            self.method(node.func)
        if not isinstance(node.func, ast.Name):
            self.refuse(f"only these functions are available: {_allowed()}")
        name = node.func.id
        if name == "Surv":
            self.refuse("`Surv(time, event)` stands alone before the `~`")
        if name in _SHAPES:
            self.refuse(f"`{name}(...)` makes several columns; write it as a term of its own")
        if name == "clip":
            return self.clip(node, depth)
        if name not in (*ex.FUNCTIONS, "I", "is_na"):
            self.unknown(name)
        if len(node.args) != 1 or node.keywords:
            self.refuse(f"`{name}` takes one argument; write {name}(x)")
        if name == "is_na":
            return ex.Missing(self.named(node.args[0], "is_na() takes a column"))
        x = self.expression(node.args[0], depth)
        return x if name == "I" else ex.Call(name, x)

    def clip(self, node: ast.Call, depth: int) -> ex.Clip:
        """clip(x, low, high)."""
        if len(node.args) != 3 or node.keywords:
            self.refuse("write clip(x, 0, 100)")
        low, high = (self.number(item) for item in node.args[1:])
        if not low < high:
            self.refuse("clip() takes the lower end first: clip(x, 0, 100)")
        return ex.Clip(self.expression(node.args[0], depth), low, high)

    def named(self, node: ast.expr, why: str) -> str:
        """The name of a column that stands alone."""
        column = self.expression(node)
        if not isinstance(column, ex.Column):
            self.refuse(why)
        return column.name

    def method(self, node: ast.Attribute) -> NoReturn:
        """Refuse a method, or a function of a module."""
        name = node.attr
        module = isinstance(node.value, ast.Name) and node.value.id in ("np", "numpy", "math")
        if module and name in ex.FUNCTIONS:
            self.refuse(f"write {name}(x) without the module")
        advice = advised("formula").get(name, f"the functions available are {_allowed()}")
        self.refuse(f"methods and modules are not available: {advice}")

    def unknown(self, name: str) -> NoReturn:
        """Refuse a function that is not known."""
        if name in advised("formula"):
            self.refuse(f"`{name}` is not available: {advised('formula')[name]}")
        near = difflib.get_close_matches(name, [*ex.FUNCTIONS, "clip", "is_na", *_SHAPES], n=1)
        hint = f"did you mean `{near[0]}`? " if near else ""
        self.refuse(f"unknown function `{name}`; {hint}Available: {_allowed()}")

    def categorical(self, node: ast.Call) -> ex.Categorical:
        """C(x), with or without levels."""
        if len(node.args) != 1 or any(k.arg != "levels" for k in node.keywords):
            self.refuse("contrasts are always against the first level; write C(x, levels=[...])")
        name = self.named(node.args[0], "C() takes a column; write cut(x, [...]) to group numbers")
        if not node.keywords:
            return ex.Categorical(name)
        levels = tuple(self.level(item) for item in self.items(node.keywords[0].value))
        if len(levels) < 2 or len(set(levels)) < len(levels):
            self.refuse("levels are at least two, all different")
        return ex.Categorical(name, levels)

    def survival(self, node: ast.Call) -> ex.Survival:
        """Surv(time, event)."""
        if len(node.args) != 2 or node.keywords:
            self.refuse("write Surv(time, event), times from the start of follow-up")
        time, event = (self.of_column(argument) for argument in node.args)
        if not (isinstance(event, ex.Column) or ex.is_binary(event)):
            self.refuse("the event is 0 or 1; write Surv(time, status == 2)")
        return ex.Survival(time, event)

    def cut(self, node: ast.Call) -> ex.Cut:
        """cut(x, points)."""
        if len(node.args) != 2 or node.keywords:
            self.refuse("write cut(x, [0, 30, 50, 90])")
        points = tuple(self.number(item) for item in self.items(node.args[1]))
        if len(points) < 2 or any(a >= b for a, b in pairwise(points)):
            self.refuse("the points of cut() are at least two, in increasing order")
        return ex.Cut(self.of_column(node.args[0]), points)

    def spline(self, node: ast.Call) -> ex.Spline:
        """bs(x, ...)."""
        given = {k.arg: k.value for k in node.keywords}
        optional = {"degree", "include_intercept"}
        required = {"knots", "lower_bound", "upper_bound"}
        if len(node.args) != 1 or not required <= given.keys() <= required | optional:
            self.refuse(
                f"knots and bounds would be read from the data; {advised('formula')['spline']}"
            )
        knots = tuple(self.number(item) for item in self.items(given["knots"]))
        lower, upper = self.number(given["lower_bound"]), self.number(given["upper_bound"])
        ends = (lower, *knots, upper)
        if any(a >= b for a, b in pairwise(ends)):
            self.refuse("knots lie between the two bounds, in increasing order")
        degree = self.number(given["degree"]) if "degree" in given else 3.0
        if degree not in range(1, 11):
            self.refuse("the degree of a spline is a whole number from 1 to 10")
        full = given.get("include_intercept", ast.Constant(False))
        if not (isinstance(full, ast.Constant) and isinstance(full.value, bool)):
            self.refuse("include_intercept is True or False")
        x = self.of_column(node.args[0])
        return ex.Spline(x, knots, lower, upper, int(degree), full.value)

    def items(self, node: ast.expr) -> list[ast.expr]:
        """The items of a list."""
        if not isinstance(node, ast.List | ast.Tuple):
            self.refuse("write the values out, as [1, 2, 3]")
        return node.elts

    def text_of(self, node: ast.expr) -> str | None:
        """A text in quotes; None for anything else."""
        value = self.quotes.value(node.id) if isinstance(node, ast.Name) else None
        return value if isinstance(value, str) else None

    def level(self, node: ast.expr) -> ex.Level:
        """A level of a column."""
        text = self.text_of(node)
        value = self.literal(node) if text is None else text
        if value is None:
            self.refuse("a level is a string, a number, True or False")
        return value

    def number(self, node: ast.expr, what: str = "write a number, as 2.5") -> float:
        """A number."""
        value = self.literal(node)
        if value is None or isinstance(value, bool):
            self.refuse(what)
        return float(value)

    def literal(self, node: ast.expr) -> int | float | bool | None:
        """A literal number, True or False; None for anything else."""
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
            value = self.literal(node.operand)
            return -value if value is not None and isinstance(node.op, ast.USub) else value
        if not (isinstance(node, ast.Constant) and isinstance(node.value, int | float)):
            return None
        if not abs(node.value) <= MAX_NUMBER:
            self.refuse("a number is too large")
        return node.value


def _allowed() -> str:
    return ", ".join([*ex.FUNCTIONS, "clip", "is_na", "I", *_SHAPES])


class Token(NamedTuple):
    """A piece of a formula, of one of the kinds that formulaic tells apart."""

    text: str
    kind: str

    @property
    def is_factor(self) -> bool:
        """Whether it stands for a factor: a name, or code such as ``log(x)``."""
        return self.kind in ("name", "python")


def read_factor(token: Token, quotes: Quotes) -> ex.Factor:
    """Read one factor from a token, or raise a FormulaError that says what to write instead."""
    with translated(quotes.show(token.text)):  # thousands of minus signs are nested too deeply
        return FactorReader(token.text, token.kind, quotes).factor()
