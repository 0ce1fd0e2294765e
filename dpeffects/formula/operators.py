"""The operators of a formula: from text to tokens, and from tokens to terms.

The rules are Wilkinson's, as in R: ``**`` binds before ``:``, that before ``*``, that before ``+``
and ``-``. Quoted text is hidden before the text gets here (`dpeffects.formula.factors`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import product
from typing import NamedTuple, TypeAlias

from dpeffects.formula.expression import Factor

Term: TypeAlias = tuple[Factor, ...]
Terms: TypeAlias = dict[frozenset[Factor], Term]
"""Terms in order, by the set of their factors: ``a:b`` and ``b:a`` are one term."""

MAX_TERMS = 10_000

_TOKEN = re.compile(
    r"(?P<space>\s+)|(?P<number>[0-9.]+(?![\w.]))|(?P<name>[\w.]+)|(?P<bracket>[()\[\]])|(?P<brace>{)"
    r"""|(?P<operator>(?:[^\w.()\[\]{'"\s]\s*)+)"""
)
_CLOSING = {"(": ")", "[": "]", "{": "}"}


class Token(NamedTuple):
    """A piece of a formula: a name, code (``log(x)``), a number, an operator or a bracket."""

    text: str
    kind: str

    @property
    def is_factor(self) -> bool:
        """Whether it stands for a factor."""
        return self.kind in ("name", "code")


def tokenise(text: str) -> list[Token]:
    """Cut a text into tokens; operators that follow one another are one token.

    Examples
    --------
    >>> [token.text for token in tokenise("log(a + 1) * b")]
    ['log(a + 1)', '*', 'b']
    """
    found, end = [], 0
    while end < len(text):
        match, start = _TOKEN.match(text, end), end
        if match is None:
            raise ValueError("a quote is not closed")
        kind, end = str(match.lastgroup), match.end()
        if kind == "brace":
            end = _closed(text, start)
            found.append(Token(text[start + 1 : end - 1], "code"))
        elif kind == "operator":
            found.append(Token("".join(match[0].split()), kind))
        elif kind == "name":
            while text[end : end + 1] in ("(", "["):
                kind, end = "code", _closed(text, end)
            found.append(Token(text[start:end], kind))
        elif kind != "space":
            found.append(Token(match[0], kind))
    return found


def _closed(text: str, start: int) -> int:
    """Return where what the bracket at ``start`` opens ends."""
    closing: list[str] = []
    for i in range(start, len(text)):
        if closing and text[i] == closing[-1]:
            closing.pop()
            if not closing:
                return i + 1
        elif text[i] in "([" or i == start:
            closing.append(_CLOSING[text[i]])
    raise ValueError("a bracket is not closed")


def expand(words: Iterable[str | Terms]) -> Terms:
    """Expand operators over terms: a word is terms, an operator, a bracket or an exponent.

    Operators stand between terms; whether brackets match is checked here.

    Examples
    --------
    >>> a, b = ({frozenset([x]): (x,)} for x in "ab")
    >>> list(expand([a, "*", b]).values())
    [('a',), ('b',), ('a', 'b')]
    """
    values: list[Terms] = []
    waiting: list[str] = []

    def apply() -> None:
        right, left = values.pop(), values.pop()
        values.append(_APPLIED[waiting.pop()](left, right))

    before: str | Terms = ""
    for word in words:
        if not isinstance(word, str):
            values.append(word)
        elif before == "**":
            values.append(_power(values.pop(), int(word)))
        elif word == "(":
            waiting.append(word)
        elif word == ")":
            while waiting and waiting[-1] != "(":
                apply()
            if not waiting:
                raise ValueError("a bracket is closed that was not opened")
            waiting.pop()
        elif word != "**":
            while waiting and _BINDS[waiting[-1]] >= _BINDS[word]:
                apply()
            waiting.append(word)
        before = word
    if "(" in waiting:
        raise ValueError("a bracket is not closed")
    while waiting:
        apply()
    return values[0]


_BINDS = {"(": 0, "+": 1, "-": 1, "*": 2, ":": 3}


def _sum(left: Terms, right: Terms) -> Terms:
    for key, term in right.items():  # in place: a formula may be a sum of thousands
        left.setdefault(key, term)
    return left


def _difference(left: Terms, right: Terms) -> Terms:
    for key in right:
        left.pop(key, None)
    return left


def _interaction(*sides: Terms) -> Terms:
    size = 1
    for side in sides:
        size = _checked(size * len(side))
    found: Terms = {}
    for terms in product(*(side.values() for side in sides)):
        term = tuple(dict.fromkeys(factor for each in terms for factor in each))
        found.setdefault(frozenset(term), term)
    return found


def _crossing(left: Terms, right: Terms) -> Terms:
    _checked(len(left) * len(right) + len(left) + len(right))
    return _sum(_sum(dict(left), right), _interaction(left, right))


def _power(terms: Terms, exponent: int) -> Terms:
    return _interaction(*[terms] * exponent)


def _checked(size: int) -> int:
    if size > MAX_TERMS:
        raise ValueError(f"more than {MAX_TERMS} terms; write fewer interactions")
    return size


_APPLIED: dict[str, Callable[[Terms, Terms], Terms]] = {
    "+": _sum,
    "-": _difference,
    "*": _crossing,
    ":": _interaction,
}
