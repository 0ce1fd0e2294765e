"""Formulas: what is read, what is refused and with which words, and that nothing is ever run."""

import builtins
import os
import re

import pytest
from formulaic.parser import DefaultFormulaParser
from formulaic.parser.algos.tokenize import tokenize
from hypothesis import given, settings
from hypothesis import strategies as st

from dpeffects.errors import FormulaError
from dpeffects.formula import Formula, parse
from dpeffects.formula.expression import Binary, Call, Categorical, Column, Cut, Number, Spline
from dpeffects.formula.factors import Quotes
from dpeffects.formula.parser import _NAMES, _tokens
from tests.cases import each

SPLINE = "bs(x, knots=[1, 2], lower_bound=0, upper_bound=5)"

# text, normalised text
READ = [
    ("y ~ t", "y ~ t"),
    ("y~t|1", "y ~ t"),
    ("y ~ t | 1 + x", "y ~ t | x"),
    ("y ~ t | x1 + x2", "y ~ t | x1 + x2"),
    ("y ~ t | x - 1", "y ~ t | x - 1"),
    ("y ~ t | x + 0", "y ~ t | x - 1"),
    ("y ~ t | 0 + x", "y ~ t | x - 1"),
    ("y ~ t | -1 + x", "y ~ t | x - 1"),
    ("y ~ t |\n  x +\n  z", "y ~ t | x + z"),
    ("y ~ t | b:a + a", "y ~ t | a + b:a"),
    ("y ~ t | a*b", "y ~ t | a + b + a:b"),
    ("y ~ t | a*b*c - a:b:c", "y ~ t | a + b + c + a:b + a:c + b:c"),
    ("y ~ t | (a + b + c)**2", "y ~ t | a + b + c + a:b + a:c + b:c"),
    ("y ~ t | (a + (b - b)):c", "y ~ t | a:c"),
    ("y ~ t | x:x + x", "y ~ t | x"),
    ("log(y) ~ t | log( 1+x )", "log(y) ~ t | log(1 + x)"),
    ("I(y2-y1) ~ t | I(x**2) + {x*z}", "I(y2 - y1) ~ t | I(x ** 2) + I(x * z)"),
    ("I(y > 3) ~ t", "I(y > 3) ~ t"),
    ("y ~ t | I(x**2) + {x ** 2} + I(I(x)**2)", "y ~ t | I(x ** 2)"),
    ("y ~ C(t, levels=['no', 'yes'])", "y ~ C(t, levels=['no', 'yes'])"),
    (
        "y ~ t | C(g) + C(h, levels=[1, -2.5, False])",
        "y ~ t | C(g) + C(h, levels=[1, -2.5, False])",
    ),
    ("y ~ t | C(g, levels=('a)', '(b', \"it's\"))", "y ~ t | C(g, levels=['a)', '(b', \"it's\"])"),
    ("y ~ t | cut(age, [0, 30, 90.5])", "y ~ t | cut(age, [0, 30, 90.5])"),
    (
        f"y ~ t | {SPLINE}",
        "y ~ t | bs(x, knots=[1, 2], degree=3, lower_bound=0, upper_bound=5, "
        "include_intercept=False)",
    ),
    ("`the y` ~ `1t` | `a b`:`a-b` + log(`a b`)", "`the y` ~ `1t` | log(`a b`) + `a b`:`a-b`"),
    ("y ~ t | log(`a b c` + `a b`)", "y ~ t | log(`a b c` + `a b`)"),
    ("y ~ t | log(`class`) + class", "y ~ t | log(`class`) + `class`"),
    ("y ~ t | `a ~ b | c`", "y ~ t | `a ~ b | c`"),
    ("y ~ t | Sepal.Length", "y ~ t | `Sepal.Length`"),
    ("y ~ t | `__x__`", "y ~ t | `__x__`"),
    ("y ~ t | x__0:`a b` + log(x__9)", "y ~ t | log(x__9) + x__0:`a b`"),
    ("y ~ t | größe", "y ~ t | größe"),
]


@each(("text", "normalised"), READ)
def test_reads(text, normalised):
    formula = parse(text)
    assert str(formula) == normalised
    assert formula.source == text
    assert parse(normalised) == formula


def test_parts():
    formula = parse("log(y + z) ~ C(t, levels=[0, 1]) | C(g, levels=['a', 'b'])*x + log(x) - 1")
    assert formula.outcome == Call("log", Binary("+", Column("y"), Column("z")))
    assert formula.treatment == Categorical("t", (0, 1))
    g, x = Categorical("g", ("a", "b")), Column("x")
    assert formula.terms == ((g,), (x,), (Call("log", x),), (g, x))
    assert not formula.intercept
    assert formula.has_covariates
    assert formula.outcome_columns == ("y", "z")
    assert formula.treatment_name == "t"
    assert formula.covariate_columns == ("g", "x")
    assert formula.columns == ("y", "z", "t", "g", "x")
    assert formula.levels == {"t": (0, 1), "g": ("a", "b")}


def test_factors_of_several_columns():
    text = "bs(log(x), knots=[1], degree=2, lower_bound=-1, upper_bound=5, include_intercept=True)"
    (cut,), (spline,) = parse(f"y ~ t | cut(x + 1, [0, 1, 2]) + {text}").terms
    assert cut == Cut(Binary("+", Column("x"), Number(1)), (0, 1, 2))
    assert spline == Spline(Call("log", Column("x")), (1,), -1, 5, 2, True)


def test_no_covariates():
    formula = parse("y ~ t | 1")
    assert formula == parse("y ~ t")
    assert formula.terms == ()
    assert formula.intercept
    assert not formula.has_covariates


def test_a_thousand_covariates():
    names = [f"x{i}" for i in range(1000)]
    assert parse("y ~ t | " + " + ".join(names)).covariate_columns == tuple(names)


def test_a_formula_made_by_hand_is_checked_too():
    with pytest.raises(FormulaError, match="treatment `t` is also used in the covariates"):
        Formula("", Column("y"), Column("t"), ((Column("t"),),))


# covariate term, what the message must say
TERMS = [
    ("scale(x)", "declared bounds; write the column itself"),
    ("center(x)", "write the column itself"),
    ("standardize(x)", "write the column itself"),
    ("poly(x, 2)", r"write x \+ I\(x \*\* 2\)"),
    ("bs(x, df=4)", r"write bs\(x, knots="),
    ("bs(x)", "would be read from the data"),
    ("bs(x, knots=[1])", "would be read from the data"),
    ("bs(x, 4, knots=[1], lower_bound=0, upper_bound=2)", "write bs"),
    ("bs(x, knots=[1], lower_bound=0, upper_bound=2, **k)", "write bs"),
    ("bs(x, knots=[2, 1], lower_bound=0, upper_bound=3)", "increasing"),
    ("bs(x, knots=[1], lower_bound=1, upper_bound=3)", "between the two bounds"),
    ("bs(x, knots=k, lower_bound=0, upper_bound=3)", "write the values out"),
    ("bs(x, knots=[1], degree=0.5, lower_bound=0, upper_bound=3)", "degree"),
    ("bs(x, knots=[1], lower_bound=0, upper_bound=3, include_intercept=1)", "True or False"),
    ("cr(x, df=3)", "write bs"),
    ("cs(x)", "write bs"),
    ("lag(x)", "other rows"),
    ("shift(x, 1)", "other rows"),
    ("diff(x)", "other rows"),
    ("rank(x)", "other rows"),
    ("cumsum(x)", "other rows"),
    ("I(x - mean(x))", "write a public number"),
    ("max(x)", "write a public number"),
    ("hashed(x)", "write C"),
    ("x.mean()", "methods and modules are not available: a statistic"),
    ("I(x / x.max())", "methods and modules"),
    ("x.rank()", "other rows"),
    ("x.fillna(0)", "methods and modules"),
    ("np.log(x)", r"write log\(x\) without the module"),
    ("np.random.normal(x)", "methods and modules"),
    ("log(Sepal.Length)", "stands in backticks here: `Sepal.Length`"),
    ("x[0]", "subscripts"),
    ("log(x)[0]", "subscripts"),
    ("{lambda x: x}", "lambda"),
    ("I([x for x in y])", "comprehensions"),
    ("I(sum(x for x in y))", "write a public number"),
    ("{f'{x}'}", "prefix"),
    ("I(x == 'a')", "strings stand only in C"),
    ("'a'", "strings stand only in C"),
    ("I(x > 1 and x < 3)", r"write a product, as I\(\(x > 1\) \* \(x < 3\)\)"),
    ("I(not x)", r"only \+ - \* /"),
    ("I(1 < x < 3)", "compare once"),
    ("I(x in [1, 2])", "compare once"),
    ("I(x > z)", r"write I\(x - z > 0\)"),
    ("I(x if z else 0)", r"write I\(x > 3\)"),
    ("I(x & z)", r"only \+ - \* /"),
    ("I(x // 2)", r"only \+ - \* /"),
    ("I(x := 3)", r"only \+ - \* /|cannot be read"),
    ("I(2 ** x)", "literal number"),
    ("I(x ** z)", "literal number"),
    ("I(x, z)", r"`I` takes one argument"),
    ("log(x, 2)", r"`log` takes one argument; write log\(x\)"),
    ("log(x, base=2)", "takes one argument"),
    ("log(*x)", r"only \+ - \* /"),
    ("log()", "takes one argument"),
    ("lgo(x)", "unknown function `lgo`; did you mean `log`"),
    ("sin(x)", "Available: log, log2"),
    ("__import__('os')", "`__import__`"),
    ("I(x.__class__)", "`__class__`"),
    ("C(x)(3)", "only these functions"),
    ("C(x, 'Sum')", "write C"),
    ("C(x, contr.treatment('b'))", "contrasts are always against the first level"),
    ("C(x, levels=['a'])", "at least two"),
    ("C(x, levels=['a', 'a'])", "all different"),
    ("C(x, levels=[1, True])", "all different"),
    ("C(x, levels=[a, b])", "a level is a string"),
    ("C(x, levels=l)", "write the values out"),
    ("C(log(x), levels=[1, 2])", "takes a column"),
    ("log(C(x))", "a term of its own"),
    ("cut(x, 3)", "write the values out"),
    ("cut(x)", r"write cut\(x, \["),
    ("cut(x, [3, 1])", "increasing order"),
    ("cut(x, [1])", "at least two"),
    ("I(3)", "no column"),
    ("log(2)", "no column"),
    ("I(True + x)", "write a number"),
    ("I(x + 1j)", "write a number"),
    ("I(x + 1e999)", "too large"),
    ("I(x + [1])", "lists stand only"),
    ("2x", "write it in backticks"),
    ("1e3", "write it in backticks"),
    ("``", "empty"),
    (f"I({'-' * 200}x)", "levels of nesting"),
    (f"I({'(' * 250}x{')' * 250})", "cannot be read"),
]


@each(("term", "message"), TERMS)
@each("place", ["y ~ t | z + {}", "{} ~ t"])
def test_refuses_a_term(term, message, place):
    with pytest.raises(FormulaError, match=message):
        parse(place.format(term))


@pytest.mark.parametrize("term", ["scale(x)", "I(x - mean(`a b`))", "C(x, 'Sum')", "x.rank()"])
def test_the_message_names_the_term_as_written(term):
    with pytest.raises(FormulaError, match=re.escape(f"term `{term}`: ")):
        parse(f"y ~ t | z + {term}")


# formula, what the message must say
FORMULAS = [
    ("", "write outcome ~ treatment"),
    ("y", "write outcome ~ treatment"),
    ("y ~ t ~ x", "one `~`"),
    ("y ~ t | x | z", "at most one `|`"),
    ("y | x ~ t", "outcome must be exactly one"),
    ("~ t", "outcome must be exactly one"),
    ("y + y ~ t", "is named twice"),
    ("y + 1 ~ t", "without numbers"),
    ("y - z ~ t", "outcome must be exactly one"),
    ("1 ~ t", "outcome must be exactly one"),
    ("C(y) ~ t", "one number a row"),
    (f"{SPLINE} ~ t", "one number a row"),
    ("y ~ ", "treatment must be exactly one"),
    ("y ~ t + s | x", "treatment must be exactly one"),
    ("y ~ t - 1 | x", "treatment must be exactly one"),
    ("y ~ 1 | x", "treatment must be exactly one"),
    ("y ~ log(t) | x", "a treatment must be 0 or 1"),
    ("y ~ C(t)", "two levels or more; write C"),
    ("y ~ t | t", "treatment `t` is also used in the covariates"),
    ("y ~ t | x:log(t)", "treatment `t` is also used in the covariates"),
    ("log(t) ~ t", "treatment `t` is also used in the outcome"),
    ("y ~ t | x + I(y**2)", "outcome `y` is also used in the covariates"),
    ("y ~ t | C(g, levels=[1, 2]):x + C(g, levels=[2, 1])", "other levels elsewhere"),
    ("y ~ t | 0", "no covariates and no intercept"),
    ("y ~ t |", "no covariates after"),
    ("y ~ t | .", "declare the covariates"),
    ("y ~ t | . - x", "declare the covariates"),
    ("y ~ t | x**.", "the exponent is a number"),
    ("y ~ t | a / b", r"write a \+ a:b"),
    ("y ~ t | a^2", r"I\(a \*\* 2\)"),
    ("y ~ t | a %in% b", "write a:b"),
    ("y ~ t | x > 3", r"I\(x > 3\)"),
    ("y ~ t | 2:x", "covariates need no scaling"),
    ("y ~ t | x*1", "covariates need no scaling"),
    ("y ~ t | (0 + x)", "covariates need no scaling"),
    ("y ~ t | (- 1 + x)", "outside brackets"),
    ("y ~ t | a:-b", "one operator between"),
    ("y ~ t | a b", "before it"),
    ("y ~ t | a(b", "cannot be read"),
    ("y ~ t | (a", "cannot be read"),
    ("y ~ t | a)", "cannot be read"),
    ("y ~ t | a +", "cannot be read"),
    ("y ~ t | [a + b]", "round brackets"),
    ("y ~ t | [a ~ b]", "one `~`"),
    ("y ~ t | a**b", "from 1 to 9"),
    ("y ~ t | (a + b)**2**2", "one exponent"),
    ("y ~ t | (a + b)**99999999999", "from 1 to 9"),
    ("y ~ t | (a+b+c+d+e+f+g+h)**9", "terms; write fewer"),
    ("y ~ t | " + "*".join("abcdefghijklmnopqrs"), "terms; write fewer"),
    ("y ~ t | " + ":".join("abcdefghijk"), "more than 10 factors"),
    ("y ~ t | x # + z", "comments"),
    ("y ~ t | ﬁ", "letters that are not plain text"),
    ("y ~ t | 'open", "cannot be read"),
    ("y ~ t | `open", "backtick is not closed"),
    ("y ~ t | import os", "before it"),
    ("y ~ t" + " " * 200_001, "longer than"),
    (None, "got NoneType"),
]


@each(("text", "message"), FORMULAS)
def test_refuses_a_formula(text, message):
    with pytest.raises(FormulaError, match=message):
        parse(text)


CODE = [
    "__import__('os').system('touch {path}')",
    "open('{path}', 'w')",
    "I(open('{path}', 'w'))",
    "{{open('{path}', 'w')}}",
    "bs(open('{path}', 'w'))",
    "poly(open('{path}', 'w'))",
    "C(open('{path}', 'w'))",
    "C(x, levels=[open('{path}', 'w')])",
    "cut(x, [open('{path}', 'w')])",
    "I(x ** open('{path}', 'w'))",
    "eval(\"open('{path}', 'w')\")",
    "(lambda: open('{path}', 'w'))()",
]


@pytest.mark.parametrize("code", CODE)
@pytest.mark.parametrize("place", ["y ~ t | x + {}", "{} ~ t", "y ~ {} | x", "y ~ t | (x + {})**2"])
def test_nothing_is_run(code, place, tmp_path, monkeypatch):
    """formulaic alone runs `bs(open(...)) ~ t` and `poly(open(...)) ~ t` while it parses."""
    parse("y ~ t | x")  # imports what it needs before the traps are set
    path = tmp_path / "canary"
    ran = []
    for name in ("open", "eval", "exec"):
        monkeypatch.setattr(builtins, name, lambda *a, **k: ran.append(a))
    monkeypatch.setattr(os, "system", lambda *a: ran.append(a))
    with pytest.raises(FormulaError):
        parse(place.format(code.format(path=path)))
    monkeypatch.undo()
    assert not ran
    assert not path.exists()


def reads_or_refuses(text):
    try:
        formula = parse(text)
    except FormulaError:
        return
    assert parse(str(formula)) == formula


SYMBOLS = "~|+-*:/^.,=<>()[]{}%#\\;@$!'\"`éﬁ²\0\ud800\n 012"
WORDS = ["y", "t", "x", "z", "f", "log(", "C(", "I(", "cut(", "bs(", "levels=", "knots=", "**"]
WORDS += ["2.5", "1e9", "'a'", "`a`", "%in%", "lambda", "import", "__x__", " and ", " not ", " if "]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from([*SYMBOLS, *WORDS]), max_size=14))
def test_pieces_of_formulas_raise_formula_errors_only(pieces):
    reads_or_refuses("y ~ t | " + "".join(pieces))
    reads_or_refuses(" ".join(pieces))


@settings(max_examples=200, deadline=None)
@given(st.text(), st.text())
def test_random_text_raises_formula_errors_only(text, other):
    reads_or_refuses(text)
    reads_or_refuses(f"y ~ t | {text} + {other}")
    reads_or_refuses(f"y ~ t | log({text}) + C({other})")


@pytest.mark.parametrize("symbol", ["(", "-", "[", "{", "I(", "log(", "~", "x**", "x+", "'", "a:"])
def test_absurd_nesting(symbol):
    reads_or_refuses("y ~ t | " + symbol * 2000 + "x")
    with pytest.raises(FormulaError):
        parse("y ~ t | I(" + symbol * 2000 + "x)")


@given(
    names=st.lists(st.sampled_from(["a", "b2", "_c", "age", "X_1"]), min_size=1, max_size=6),
    plus=st.sampled_from(["+", " + ", " +\n"]),
)
def test_sums_of_names_are_read_as_by_formulaic(names, plus):
    """They are read without it, because it takes time to load."""
    text = plus.join(names)
    found = [(token.text, token.kind) for token in _tokens(text, Quotes())]
    assert found == [(token.token, token.kind.value) for token in tokenize(text)]
    terms = [str(term) for term in DefaultFormulaParser().get_terms(text)]
    formula = parse(f"y ~ t | {text}")
    assert ["1", *(term[0].name for term in formula.terms)] == terms
    assert formula.intercept


@each(
    "text", ["cut(x, [0, 0.5, 1])", " log( x ) + b_1", "f()+\n g(x , y2,-1e5 [ ]) + h", "a+ b([.])"]
)
def test_plain_calls_are_cut_as_the_library_cuts_them(text):
    cut = [(token.text, token.kind) for token in _tokens(text, Quotes())]
    assert _NAMES.fullmatch(text)  # by ourselves
    assert cut == [(token.token, token.kind.value) for token in tokenize(text)]
