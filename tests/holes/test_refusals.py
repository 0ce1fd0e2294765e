"""What is refused, and when: before columns are made, before a charge, in one readable line."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import dpeffects as dpe
from dpeffects.errors import FormulaError
from dpeffects.formula import encoding, parse
from dpeffects.formula.encoding import Encoding, width_of


def frame(n=200):
    rng = np.random.default_rng(5)
    columns = {"y": rng.random(n), "t": np.arange(n) % 2, "x": rng.random(n), "w": rng.random(n)}
    return pd.DataFrame(columns)


def points(count):
    return ", ".join(map(str, range(count)))


WIDE = f"y ~ t | cut(x, [{points(800)}]):cut(w, [{points(800)}])"


def test_columns_are_counted_before_they_are_made(monkeypatch):
    """A question with an interaction of two long cuts kept a site busy for a minute and four
    gigabytes before it was refused, at no charge."""

    def made(term):
        raise AssertionError("columns of a refused formula were made")

    monkeypatch.setattr(encoding, "_term_columns", made)
    for text, levels in (
        (WIDE, {}),
        ("y ~ t | a:b", dict.fromkeys("ab", tuple(range(20_000)))),
        ("y ~ t | a*b*c*d*e", dict.fromkeys("abcde", tuple(range(50)))),
    ):
        with pytest.raises(FormulaError, match=r"^term `.*`: \d+ columns, which makes") as refused:
            Encoding.build(parse(text), levels)
        assert len(str(refused.value)) < 300


def test_a_caller_may_allow_fewer_columns():
    """A site's policy has a smaller limit than the package, and counts columns the same way."""
    formula, levels = parse("y ~ t | a*b + x"), {"a": ("p", "q", "r"), "b": ("u", "v")}
    assert width_of(formula, levels) == len(Encoding.build(formula, levels).columns) == 7
    assert width_of(formula, levels, most=7) == 7
    with pytest.raises(FormulaError, match="term `a:b`: 2 columns, which makes 7 in all, and 6"):
        width_of(formula, levels, most=6)


def test_an_interaction_of_ten_factors_is_coded():
    """Choosing between all levels and all but the first took minutes for ten factors."""
    names = [f"g{i}" for i in range(10)]
    formula = parse(f"y ~ t | {':'.join(names)}")
    assert width_of(formula, dict.fromkeys(names, ("a", "b"))) == 2**10


@pytest.mark.parametrize(
    "covariates",
    [
        "(a + b + c + d + e + f + g + h)**20",
        "x**1000000000",
        "(a + b + c + d + e + f + g + h + i + j + k)**4",
        "*".join("abcdefghijklmn"),
        "x + " * 300_000 + "x",
        "I(" + "(" * 3000 + "x" + ")" * 3000 + ")",
        "I(x ** " + "-" * 1012 + "1)",
        "cut(x, [" + "-" * 1012 + "1, 2])",
        "I(" + "x + " * 2000 + "x)",
        "I(" + "x < " * 2000 + "1)",
        "C(g, levels=[" + points(1500) + ", 'b)",
        "log(" * 1000 + "x" + ")" * 1000,
        "`a`" * 2000,
    ],
)
def test_expansions_and_deep_nesting_are_refused_in_one_line(covariates):
    """Some ended in a RecursionError, others in a message of thousands of characters."""
    with pytest.raises(FormulaError) as refused:
        parse(f"y ~ t | {covariates}")
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 600


def test_public_functions_refuse_wide_formulas_before_a_charge():
    """Every door counts columns before it makes any, and before it charges."""
    data = frame(6)
    ledger = dpe.Ledger(10.0, 1e-3)
    more = {"epsilon": 1.0, "bounds": {"y": (0, 1)}, "ledger": ledger}
    for ask in (
        lambda: dpe.dp_ate(WIDE, data, "private_ipw", **more),
        lambda: dpe.dp_cate(WIDE, data, **more),
        lambda: dpe.dp_cate("y ~ t | x", data, release="groups", by=WIDE.partition("|")[2], **more),
        lambda: dpe.dp_balance(WIDE, data, **more),
    ):
        with pytest.raises(dpe.DPEffectsError):
            ask()
    assert not ledger.spends
