"""``outcome ~ treatment | covariates``: from text to a frozen `Formula`. No data is seen.

Nothing in a formula is ever run. formulaic does run code while it parses (the arguments of a
left-hand ``bs(...)`` are evaluated), so it is used for two things only: to cut the text into
tokens, and to expand the operators ``+ - : * **`` over names that we made up. What stands between
them, the factors, is read here with `ast` against an allow-list into the trees of
`dpeffects.formula.expression` (`dpeffects.formula.factors`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from typing import Any, TypeAlias

from dpeffects.errors import FormulaError, advised, refusal, shorten
from dpeffects.formula import expression as ex
from dpeffects.formula.expression import Categorical, Column, Expression, Factor, Level
from dpeffects.formula.factors import Quotes, Token, read_factor, translated, unquote

Term: TypeAlias = tuple[Factor, ...]
Treatment: TypeAlias = Expression | Categorical | ex.Cut

MAX_LENGTH = 200_000
MAX_TERMS = 10_000
MAX_ORDER = 10


@dataclass(frozen=True)
class Formula:
    """A parsed formula: what is read from the data, and nothing of the data.

    ``source`` is the text as written. The outcome is a row-wise expression. The treatment is a
    column, a categorical with its levels or intervals between cut points, the first of them the
    reference, or an expression that is 0 or 1. ``terms`` are tuples of
    factors (several in an interaction), lower orders first; ``intercept`` says whether the
    covariates come with a column of ones. ``more_outcomes`` are those after the first, where a
    formula has several: ``y1 + y2 ~ t``.

    Examples
    --------
    >>> f = parse("log(y) ~ t | age*region + I(age**2)")
    >>> str(f)
    'log(y) ~ t | age + region + I(age ** 2) + age:region'
    >>> f.columns
    ('y', 't', 'age', 'region')
    """

    source: str = field(compare=False)
    outcome: Expression
    treatment: Treatment
    terms: tuple[Term, ...] = ()
    intercept: bool = True
    more_outcomes: tuple[Factor, ...] = ()

    def __post_init__(self) -> None:
        _ = self.levels  # raises on two level lists for one column
        _check_treatment(self.treatment)
        columns = self.treatment_columns, self.outcome_columns, self.covariate_columns
        roles = zip(("treatment", "outcome", "covariates"), columns, strict=True)
        for (role, own), (other, names) in combinations(roles, 2):
            if both := [name for name in own if name in names]:
                raise FormulaError(refusal("two_roles", role=role, name=both[0], other=other))
        if not self.terms and not self.intercept:
            raise FormulaError("no covariates and no intercept are left; write outcome ~ treatment")

    @property
    def outcomes(self) -> tuple[Factor, ...]:
        """All outcomes, in order."""
        return (self.outcome, *self.more_outcomes)

    @cached_property
    def outcome_columns(self) -> tuple[str, ...]:
        """Columns the outcomes are computed from."""
        return tuple(dict.fromkeys(name for y in self.outcomes for name in ex.columns(y)))

    @property
    def treatment_columns(self) -> tuple[str, ...]:
        """Columns the treatment is computed from."""
        return ex.columns(self.treatment)

    @property
    def treatment_name(self) -> str:
        """The name of the treatment's column, or how it is computed."""
        computed = self.computed_treatment
        return self.treatment_columns[0] if computed is None else ex.source(computed)

    @property
    def computed_treatment(self) -> Expression | ex.Cut | None:
        """The treatment, where it is computed; None where it is a column."""
        return None if isinstance(self.treatment, Column | Categorical) else self.treatment

    @cached_property
    def covariate_columns(self) -> tuple[str, ...]:
        """Columns the covariates are computed from, in order, each once."""
        return tuple(dict.fromkeys(name for x in self.factors for name in ex.columns(x)))

    @cached_property
    def factors(self) -> tuple[Factor, ...]:
        """The factors of all covariate terms, in order."""
        return tuple(factor for term in self.terms for factor in term)

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns: outcome, treatment, covariates."""
        return (*self.outcome_columns, *self.treatment_columns, *self.covariate_columns)

    @cached_property
    def flags(self) -> frozenset[str]:
        """Columns whose missing values the formula asks for, by ``is_na(x)``."""
        factors = (*self.outcomes, self.treatment, *self.factors)
        return frozenset(flag.column for factor in factors for flag in ex.flags(factor))

    def with_indicators(self, names: Iterable[str]) -> Formula:
        """Return the same with a term ``is_na(x)`` for each name that has none.

        Examples
        --------
        >>> str(parse("y ~ t | x + z + x:z").with_indicators(["x"]))
        'y ~ t | x + z + is_na(x) + x:z'
        """
        wanted = [(ex.Missing(name),) for name in dict.fromkeys(names)]
        more = [term for term in wanted if term not in self.terms]
        terms = tuple(sorted((*self.terms, *more), key=len))
        text = "".join(f" + {ex.source(factor)}" for (factor,) in more)
        return replace(self, source=self.source.rstrip() + text, terms=terms)

    def with_outcomes_as_columns(self, available: Iterable[str] = ()) -> Formula:
        """Return the same with its outcomes as first terms, and none left: columns like all others.

        After them come terms ``is_na(x)`` of columns that are not ``available`` for all records.

        Examples
        --------
        >>> str(parse("y1 + log(y2) ~ t | x").with_outcomes_as_columns())
        'I(0) ~ t | y1 + log(y2) + x'
        """
        flags = [x for x in map(ex.Missing, available) if x not in self.outcomes]
        first = [(y,) for y in (*self.outcomes, *flags)]
        terms = tuple(sorted((*first, *self.terms), key=len))
        nothing = ex.Number(0.0)
        return replace(self, outcome=nothing, more_outcomes=(), terms=terms, intercept=True)

    @property
    def has_covariates(self) -> bool:
        """Whether there is any covariate."""
        return bool(self.terms)

    @property
    def levels(self) -> dict[str, tuple[Level, ...]]:
        """Levels written in the formula, by column.

        Examples
        --------
        >>> parse("y ~ t | C(region, levels=['N', 'S'])").levels
        {'region': ('N', 'S')}
        """
        found: dict[str, tuple[Level, ...]] = {}
        for factor in (self.treatment, *self.more_outcomes, *self.factors):
            if not isinstance(factor, Categorical) or factor.levels is None:
                continue
            if found.setdefault(factor.column, factor.levels) != factor.levels:
                raise FormulaError(
                    refusal("levels_differ", term=ex.shown(factor), column=factor.column)
                )
        return found

    def __str__(self) -> str:
        outcomes = " + ".join(map(ex.source, self.outcomes))
        head = f"{outcomes} ~ {ex.source(self.treatment)}"
        terms = " + ".join(":".join(map(ex.source, term)) for term in self.terms)
        return f"{head}{' | ' if terms else ''}{terms}{'' if self.intercept else ' - 1'}"


def parse(text: str, declared: Sequence[str] | None = None) -> Formula:
    """Read ``outcome ~ treatment``, or ``outcome ~ treatment | covariates``.

    Covariates are joined by ``+``, interactions by ``:`` or ``*``; ``(a + b + c)**2`` gives all
    pairs; ``- 1`` drops the intercept. Names that are not plain words stand in backticks. ``.`` is
    the sum of all ``declared`` columns but outcome and treatment, and the source of the formula
    then has their names; ``. - x`` leaves one out. Any other text is a FormulaError that names the
    term and what to write.

    Examples
    --------
    >>> parse("y ~ t | a*b - 1").terms
    ((Column(name='a'),), (Column(name='b'),), (Column(name='a'), Column(name='b')))
    >>> parse("y ~ t | . - b", ["y", "a", "b", "c"]).source
    'y ~ t | a + c'
    >>> parse("y ~ t | scale(x)")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    dpeffects.errors.FormulaError: term `scale(x)`: `scale` is not available: covariates are ...
    """
    if not isinstance(text, str):
        raise FormulaError(refusal("no_formula", kind=type(text).__name__))
    if len(text) > MAX_LENGTH:
        raise FormulaError(f"the formula is longer than {MAX_LENGTH} characters")
    bare, quotes = unquote(text)
    if bare.count("~") != 1 or bare.count("|") > 1:
        wrong = "two_bars" if bare.count("|") > 1 else "no_tilde"
        raise FormulaError(refusal(wrong, text=shorten(text.strip())))
    left, _, right = bare.partition("~")
    middle, bar, rest = right.partition("|")
    outcome, *more = _outcomes(left, quotes)
    example = "t, C(t, levels=[reference, other]) or I(dose > 1)"
    treatment = _single(middle, "treatment", example, quotes)
    if isinstance(treatment, ex.Spline):
        raise FormulaError(f"treatment `{ex.shown(treatment)}`: {dose_advice(treatment)}")
    named = {name for factor in (outcome, treatment, *more) for name in ex.columns(factor)}
    others = [x for x in declared or () if x not in named]
    dot = None if declared is None else tuple(map(Column, others))
    intercept, terms, written_out = _expand(rest, quotes, dot) if bar else (True, (), False)
    formula = Formula(text, outcome, treatment, terms, intercept, tuple(more))
    return replace(formula, source=str(formula)) if written_out else formula


def has_dot(text: Any) -> bool:
    """Whether a `.` may stand among the covariates: one that is no part of a name or a number."""
    return isinstance(text, str) and bool(re.search(r"(?<!\w)\.(?!\w)", text.partition("|")[2]))


# --- the treatment


def dose_advice(treatment: Factor | str) -> str:
    """What to write where a treatment is neither 0 or 1 nor one of some arms."""
    dose = treatment if isinstance(treatment, str) else (*ex.columns(treatment), "dose")[0]
    name = ex.show_name(dose)
    return refusal("dose", name=name)


def _check_treatment(treatment: Treatment) -> None:
    """Refuse a treatment with less than two arms, and one that is a dose."""
    if isinstance(treatment, Categorical) and len(treatment.levels or ()) < 2:
        raise FormulaError(refusal("one_level", term=ex.shown(treatment), column=treatment.column))
    if isinstance(treatment, ex.Cut) and len(treatment.points) < 3:
        raise FormulaError(refusal("one_arm", term=ex.shown(treatment)))
    if not isinstance(treatment, Column | Categorical | ex.Cut) and not ex.is_binary(treatment):
        raise FormulaError(f"treatment `{ex.shown(treatment)}`: {dose_advice(treatment)}")


# --- the covariate part: operators

_OPERATORS = {"+", "-", "*", ":", "**"}


_FACTOR = r"[A-Za-z_]\w*(?:\([\w.,\s-]*(?:\[[\w.,\s-]*\])?\))?"
_WORD = re.compile(rf"{_FACTOR}|\+", re.ASCII)
_NAMES = re.compile(rf"\s*{_FACTOR}\s*(?:\+\s*{_FACTOR}\s*)*", re.ASCII)
_KINDS = {"+": "operator", ")": "python"}
"""Kinds of tokens, by their last sign, beside names."""


def _tokens(text: str, quotes: Quotes) -> list[Token]:
    """Cut a text into tokens; names and plain calls joined by `+` need no library to be loaded."""
    if _NAMES.fullmatch(text):
        return [Token(word, _KINDS.get(word[-1], "name")) for word in _WORD.findall(text)]
    from formulaic.parser.algos.tokenize import tokenize

    with translated(quotes.show(text)):
        return [Token(token.token, token.kind.value) for token in tokenize(text)]


def _single(text: str, role: str, example: str, quotes: Quotes) -> Factor:
    tokens = _tokens(text, quotes)
    if len(tokens) != 1 or not tokens[0].is_factor:
        if role == "outcome" and "," in text and "(" not in text:
            raise FormulaError(refusal("comma_outcomes", text=quotes.show(text)))
        advice = "a formula is `outcome ~ treatment | covariates`"
        if not tokens:
            advice += ", in single quotes in a shell, which runs what stands in backticks"
        if role == "treatment":
            named = [token.text for token in tokens if token.is_factor]
            advice = _treatment_advice([quotes.show(name) for name in named]) or advice
        if tokens and not set(text) & set("+-*:`"):
            advice += f"; a name with spaces stands in backticks, `{quotes.show(text).strip()}`"
        facts = {"role": role, "example": example, "advice": advice}
        raise FormulaError(refusal("one_expression", text=quotes.show(text), **facts))
    return read_factor(tokens[0], quotes)


def _treatment_advice(names: Sequence[str]) -> str:
    """What to write where a treatment stands among other terms."""
    if len(names) == 1:
        return f"write {names[0]} alone; numbers can be among covariates only"
    covariates = " + ".join(names[1:])
    return refusal("after_bar", name=names[0], covariates=covariates) if names else ""


def _outcomes(text: str, quotes: Quotes) -> list[Any]:
    """One outcome, or several joined by `+`; one of several may be a factor with levels."""
    tokens = _tokens(text, quotes)
    between = [token.text for token in tokens[1::2]]
    if len(tokens) < 3 or len(tokens) % 2 == 0 or set(between) != {"+"}:
        outcome = _single(text, "outcome", "y, log(y) or I(y2 - y1)", quotes)
        if isinstance(outcome, Categorical | ex.Cut | ex.Spline):
            shown = ex.shown(outcome)
            raise FormulaError(f"outcome `{shown}`: write one number a row, as I(y > 3)")
        return [outcome]
    if not all(token.is_factor for token in tokens[::2]):
        raise FormulaError(f"outcomes `{quotes.show(text)}`: write y1 + y2, without numbers")
    found = [read_factor(token, quotes) for token in tokens[::2]]
    for outcome in found:
        if isinstance(outcome, ex.Spline | ex.Survival):
            raise FormulaError(f"`{ex.shown(outcome)}` cannot be one of several outcomes")
        if found.count(outcome) > 1:
            raise FormulaError(f"the outcome `{ex.shown(outcome)}` is named twice; write it once")
    return found


def _expand(
    text: str, quotes: Quotes, dot: tuple[Column, ...] | None
) -> tuple[bool, tuple[Term, ...], bool]:
    """Expand the operators of the covariate part; formulaic sees made-up names only.

    Returns whether there is an intercept, the terms, and whether a `.` stood for some of them.
    """
    tokens = _tokens(text, quotes)
    _check_operators(tokens, quotes.show(text))
    names: dict[Factor, str] = {}
    words = []
    dots = [token for token in tokens if token.text == "."]
    if dots and not dot:
        raise FormulaError(refusal("no_dot"))
    for token in tokens:
        if token in dots:
            each = [names.setdefault(column, f"f{len(names)}") for column in dot or ()]
            words.append(f"({' + '.join(each)})")
        elif token.is_factor:
            factor = read_factor(token, quotes)
            if isinstance(factor, ex.Survival):
                raise FormulaError(f"`{ex.shown(factor)}` is for outcomes: write it before the `~`")
            words.append(names.setdefault(factor, f"f{len(names)}"))
        else:
            words.append(token.text)
    if len(words) % 2 and set(words[1::2]) <= {"+"} and set(words[::2]) <= set(names.values()):
        return True, tuple((factor,) for factor in names), False
    from formulaic.parser import DefaultFormulaParser

    with translated(quotes.show(text)):
        parser = DefaultFormulaParser()
        tree = parser.get_ast(" ".join(words))
        _check_size(tree, quotes.show(text))
        expanded = list(parser.get_terms_from_ast(tree, context={}).root)
    factors = {name: factor for factor, name in names.items()}
    terms = [tuple(factors[f.expr] for f in term.factors if f.expr != "1") for term in expanded]
    for term in terms:
        if len(term) > MAX_ORDER:
            raise FormulaError(f"`{quotes.show(text)}`: more than {MAX_ORDER} factors in one term")
    return () in terms, tuple(sorted((term for term in terms if term), key=len)), bool(dots)


def _check_operators(tokens: Sequence[Token], text: str) -> None:
    """Refuse what formulaic would read in its own way: `[a]`, `a / b`, `2:x`, `(- 1)`, `x - -z`."""
    if not tokens:
        raise FormulaError("there are no covariates after `|`; name them, or leave `|` out")
    words = ["", *(token.text for token in tokens), ""]
    depth = 0
    for i, token in enumerate(tokens):
        before, word, after = words[i : i + 3]
        depth += (word == "(") - (word == ")")
        if token.kind == "operator":
            advice = _operator_advice(before, word, after)
        elif token.kind == "context" and word in ("[", "]"):
            advice = "write round brackets"
        elif word != ")" and before and before not in (*_OPERATORS, "("):
            advice = "write + or : before it, and a name with spaces in backticks"
        elif token.kind == "value":
            advice = _value_advice(before, word, after, depth)
        else:
            advice = ""
        if advice:
            raise FormulaError(f"covariates `{text}`: `{word}` cannot stand there; {advice}")


def _operator_advice(before: str, word: str, after: str) -> str:
    if word not in _OPERATORS:
        known = [advice for c in word if (advice := advised("operators").get(c))]
        return known[0] if known else "write one operator between two terms"
    if before == "(" or (not before and word not in ("+", "-")):
        return "write a term before it, and - 1 outside brackets"
    if word == "**" and not re.fullmatch("[1-9]", after):
        return "the exponent is a number from 1 to 9; write I(x ** 2) for a square"
    if word == "**" and before != ")":
        return "write I(x ** 2) for a square, or (a + b)**2 for interactions"
    return ""


def _value_advice(before: str, word: str, after: str, depth: int) -> str:
    if word == ".":
        return "write an exponent" if before == "**" else ""
    if before == "**":
        return "write one exponent" if after == "**" else ""
    alone = depth == 0 and before in ("", "+", "-") and after in ("", "+", "-")
    if word in ("0", "1") and alone:
        return ""
    return "the only numbers are - 1, + 0 and + 1; covariates need no scaling"


def _check_size(tree: Any, text: str) -> None:
    """Refuse a formula that would expand to very many terms, before it is expanded."""
    nodes, todo = [], [tree]
    while todo:  # a loop, as a sum of a thousand terms is a thousand levels deep
        node = todo.pop()
        if hasattr(node, "operator"):
            nodes.append(node)
            todo.extend(node.args)
    sizes: dict[int, int] = {}
    for node in reversed(nodes):
        first, *others = (sizes.get(id(arg), 1) for arg in node.args)
        second = others[0] if others else 0
        sizes[id(node)] = {
            "*": first * second + first + second,
            ":": first * second,
            "**": first ** int(node.args[-1].token) if node.operator.symbol == "**" else 0,
        }.get(node.operator.symbol, first + second)
        if sizes[id(node)] > MAX_TERMS:
            raise FormulaError(f"`{text}`: more than {MAX_TERMS} terms; write fewer interactions")
