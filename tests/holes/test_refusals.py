"""What is refused, and when: before columns are made, before a charge, in one readable line."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd
import pytest

import dpeffects as dpe
from dpeffects.errors import BoundsError, BudgetError, DPEffectsError, FormulaError, OptionError
from dpeffects.estimators import proved
from dpeffects.formula import encoding, parse
from dpeffects.formula.encoding import Encoding, width_of
from tests.cases import each


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
        with pytest.raises(
            FormulaError, match=r"^term `.*` has \d+ columns, which makes"
        ) as refused:
            Encoding.build(parse(text), levels)
        assert len(str(refused.value)) < 300


def test_a_caller_may_allow_fewer_columns():
    """A site's policy has a smaller limit than the package, and counts columns the same way."""
    formula, levels = parse("y ~ t | a*b + x"), {"a": ("p", "q", "r"), "b": ("u", "v")}
    assert width_of(formula, levels) == len(Encoding.build(formula, levels).columns) == 7
    assert width_of(formula, levels, most=7) == 7
    with pytest.raises(
        FormulaError, match="term `a:b` has 2 columns, which makes 7 in all, and 6 are the most"
    ):
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
    assert not ledger.charges


BOUNDS = {"y": (0, 1), "x": (0, 1), "w": (0, 1)}
POINT = {"x": [0.3], "w": [0.2]}
EFFECTS = {"ATE": dpe.dp_ate, "ATT": dpe.dp_att, "ATC": dpe.dp_atc}


def doors():
    """Every public function that spends, as a function of formula and arguments."""
    for name, spec in proved().items():
        for estimand in spec.estimands:
            for level in spec.levels:
                yield partial(EFFECTS[estimand], data=frame(), method=name, level=level)
    for method in ("r_learner", "dr_learner", "sample_aggregate"):
        releases = {"function": {}, "points": {"at": POINT}, "groups": {"by": "I(w > 0.5)"}}
        for release, more in releases.items():
            if release == "points" or method != "sample_aggregate":
                yield partial(dpe.dp_cate, data=frame(), method=method, release=release, **more)
    for adjusted in (True, False):
        yield partial(dpe.dp_balance, data=frame(), adjusted=adjusted)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "covariates",
    [
        "cut(x, [0, 1])",
        "cut(x, [0, 1]) - 1",
        "cut(x, [0, 1]):cut(w, [0, 1])",
        "x - 1",
        "x - x",
        "- 1",
        "1",
        "I(x > 5) - 1",
        "I(0 * x)",
        "bs(10, knots=[5], lower_bound=0, upper_bound=20)",
        "cut(10, [0, 5, 20])",
        "bs(x, knots=[], degree=1, lower_bound=0, upper_bound=1)",
    ],
)
@each("ask", doors())
def test_odd_covariates_work_or_are_refused_before_a_charge(ask, covariates):
    """Covariates without a column beside the intercept spent the budget and ended in a
    ZeroDivisionError, a ValueError or an IndexError."""
    ledger = dpe.Ledger(10.0, 1e-3)
    message = ""
    try:
        ask(f"y ~ t | {covariates}", bounds=BOUNDS, epsilon=2.0, delta=1e-5, ledger=ledger)
    except DPEffectsError as refused:
        message = str(refused)
    assert bool(message) != bool(ledger.charges)
    assert "\n" not in message


@pytest.mark.parametrize("epsilon", [1e-6, 1e-3, 1e4])
def test_a_budget_that_the_library_cannot_use_is_refused_before_a_charge(epsilon):
    """DP-EBM charged an epsilon of one millionth and then failed in the library; above 1,400 the
    library's search for its noise overflowed without a word."""
    pytest.importorskip("interpret")
    ledger = dpe.Ledger(1e5, 1e-3)
    more = {"epsilon": epsilon, "delta": 1e-5, "bounds": BOUNDS, "ledger": ledger}
    with pytest.raises(BudgetError, match="dp_ebm"):
        dpe.dp_ate("y ~ t | x", frame(), "dp_ebm", accept_library=True, **more)
    more |= {"release": "points", "at": {"x": [0.5]}}
    with pytest.raises(BudgetError, match="dp_ebm"):
        dpe.dp_cate("y ~ t | x", frame(), "dp_ebm", accept_library=True, **more)
    assert not ledger.charges


def test_many_levels_are_not_quoted_in_full():
    """Messages quoted every one of twenty thousand levels."""
    levels = [f"ward {i}" for i in range(20_000)]
    data = frame().assign(g="ward 1")
    asks = (
        ("y ~ t | C(g, levels=['a', 'b'])", {"g": levels}),
        ("y ~ t | I(g + x)", {"g": levels}),
        ("y ~ g | x", {"g": levels}),
        ("y ~ t | x", {"x": set(levels)}),
        ("y ~ t | x", {"x": "-".join(levels)}),
        ("y ~ t | x", levels),
    )
    for formula, bounds in asks:
        given = bounds if isinstance(bounds, list) else {**BOUNDS, **bounds}
        with pytest.raises(DPEffectsError) as refused:
            dpe.dp_ate(formula, data, "private_ipw", epsilon=1, bounds=given)
        assert len(str(refused.value)) < 500


@pytest.mark.parametrize("ends", [(-1e308, 1e308), (-1.7e308, 1e307)])
def test_a_range_wider_than_floats_is_refused_where_it_is_declared(ends):
    """The width of such a range is infinite, and a plan with it failed in the arithmetic."""
    with pytest.raises(BoundsError, match="too wide"):
        dpe.declare(frame(), x=ends)
    with pytest.raises(BoundsError, match="too wide"):
        dpe.plan("y ~ t | x", n=1000, epsilon=1, bounds={"y": (0, 1), "x": ends})


@pytest.mark.parametrize(
    "given",
    [
        {"bounds": 5},
        {"bounds": [("y", (0, 1))]},
        {"outcome_sd": "x"},
        {"outcome_mean": "x"},
        {"treated_share": "half"},
        {"confounding": "none"},
        {"power": "high"},
        {"conf_level": [0.9]},
        {"repeats": 2.5},
        {"repeats": "ten"},
        {"estimand": "ATX"},
        {"estimand": ["ATE"]},
    ],
)
def test_arguments_of_a_plan(given):
    """A plan answered a wrong argument with a raw TypeError or ValueError."""
    more = {"n": 1000, "epsilon": 1, "bounds": {"y": (0, 1)}, "method": "diff_in_means"}
    with pytest.raises(DPEffectsError) as refused:
        dpe.plan("y ~ t", **{**more, **given})
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("ask", [dpe.dp_ate, dpe.dp_att, dpe.dp_atc])
def test_an_estimand_is_chosen_by_the_function(ask):
    """It was a raw TypeError about an argument given twice."""
    for asked, door in (("atc", "dp_atc"), ("ATT", "dp_att"), ("ATE", "dp_ate"), (3, "dp_ate")):
        own = ask.__name__ == door and asked != 3
        with pytest.raises(OptionError, match="leave estimand=.* out" if own else f"call {door}"):
            ask("y ~ t | x", frame(), epsilon=1, bounds=BOUNDS, estimand=asked)


def test_a_budget_that_promises_little_is_called_so():
    """A delta of one half and an epsilon of a million passed without a word."""
    more = {"bounds": BOUNDS, "seed": 1}
    groups = {"release": "groups", "by": "I(w > 0.5)"}
    for budget, words in (
        ({"epsilon": 1e6}, "Weak privacy: epsilon = 1e+06"),
        ({"epsilon": 1.0, "delta": 0.4}, "Weak privacy: delta = "),
        ({"epsilon": 1.0, "delta": 1 / 200}, "Weak privacy: delta = 0.005 is"),
    ):
        for fit in (
            dpe.dp_ate("y ~ t", frame(), "diff_in_means", **budget, **more),
            dpe.dp_cate("y ~ t | x", frame(), **groups, **budget, **more),
            dpe.dp_cate("y ~ t | x", frame(), **budget, **more),
            dpe.dp_balance("y ~ t | x", frame(), **budget, **more),
        ):
            if "delta" in budget and fit.guarantee.delta < (1 - 1e-9) / 200:
                assert "Weak privacy" not in str(
                    fit.summary()
                )  # no delta was spent, or not all of it
                continue
            assert words in fit.warnings
            head = str(fit.summary()).partition("\nFormula")[0]
            assert words in " ".join(head.split())
            assert words in type(fit).from_json(fit.to_json()).warnings
    usual = dpe.dp_ate("y ~ t", frame(), "diff_in_means", epsilon=10, delta=1e-5, **more)
    assert "Weak privacy" not in str(usual)


SECRET = 0.123456789


@each("name", ["epsilon", "delta", "seed", "clip", "level", "variance"])
@each("kind", ["Series", "DataFrame", "ndarray", "list"])
def test_a_column_in_the_place_of_an_option_is_not_quoted(name, kind):
    """A message ended with what was given instead of a number: a whole column of the data."""
    data = pd.DataFrame({"y": [SECRET, 0.5] * 20, "t": [0, 1] * 20, "x": [0.25, 0.75] * 20})
    column = {"Series": data["y"], "DataFrame": data, "ndarray": data["y"].to_numpy()}
    column["list"] = data["y"].tolist()
    given = {"epsilon": 1.0, "bounds": {"y": (0, 1), "x": (0, 1)}, name: column[kind]}
    with pytest.raises(dpe.DPEffectsError, match=f"must be .*, got {kind}") as caught:
        dpe.dp_ate("y ~ t | x", data, "private_ipw", **given)
    assert str(SECRET) not in str(caught.value)
