"""The default: chosen by public numbers, named, refused before a charge where that was asked."""

from __future__ import annotations

import math
import re

import numpy as np
import pandas as pd
import pytest

import dpeffects as dpe
from dpeffects.design.bounds import Bounds, DeclaredFrame
from dpeffects.errors import DPEffectsError, OptionError
from dpeffects.inference.estimate import Estimate
from dpeffects.privacy.budget import as_written
from dpeffects.services.sites.site_documents import begin_release

BOUNDS = {"y": (0, 1), "x1": (0, 1), "x2": (0, 1)}
FORMULA = "y ~ t | x1 + x2"


def sample(n=3000, seed=1, effect=0.1):
    """Confounded by both covariates, linearly."""
    rng = np.random.default_rng(seed)
    x = rng.random((n, 2))
    t = rng.random(n) < 1 / (1 + np.exp(-2.0 * (x[:, 0] - x[:, 1])))
    y = 0.2 + 0.3 * x[:, 0] - 0.1 * x[:, 1] + effect * t + 0.2 * rng.random(n)
    return pd.DataFrame({"y": y, "t": t, "x1": x[:, 0], "x2": x[:, 1]})


def fit(frame, formula=FORMULA, call=dpe.dp_ate, **more):
    more = {"epsilon": 1.0, "bounds": BOUNDS, "seed": 1, **more}
    return call(formula, frame, **more)


OWN = ("first_stage", "clip", "model_share", "pool")
REGRESSION = "regression by arm"


@pytest.mark.sampled(7)
@pytest.mark.parametrize("call", [dpe.dp_ate, dpe.dp_att, dpe.dp_atc])
@pytest.mark.parametrize(
    ("n", "chosen", "title"),
    [
        (3000, "one_step", "one-step estimator from private moments"),
        (20_000, "regression", REGRESSION),
    ],
)
def test_it_is_the_default_and_says_what_it_chose(call, n, chosen, title):
    made = fit(sample(n), call=call)
    assert (made.method, made.options["chosen"]) == ("auto", chosen)
    assert f"Method {title} ({chosen}, chosen by auto)" in " ".join(str(made.summary()).split())
    assert any(f"{chosen} was chosen" in note for note in made.released.notes)
    own = fit(sample(n), call=call, method=chosen, **{k: made.options[k] for k in OWN})
    assert own.estimate == made.estimate
    assert own.std_error == made.std_error


def test_where_the_budget_does_not_carry_an_adjustment_the_result_is_an_association():
    made = fit(sample(200), epsilon=0.1)
    assert made.options["chosen"] == "clipped_contrast"
    assert str(made).startswith("Unadjusted association, ")
    assert "(clipped_contrast, chosen by auto)" in " ".join(str(made.summary()).split())
    assert "ASSOCIATION" in str(made).splitlines()[3]
    assert made.released.identification == "unadjusted"


def widths(name, n, epsilon):
    ends = [fit(sample(n), epsilon=epsilon, method=name, seed=s).conf_int() for s in range(3)]
    return np.median([end.upper - end.lower for end in ends])


@pytest.mark.parametrize(("n", "epsilon"), [(985, 1.0), (400, 1.0), (5000, 0.15)])
def test_the_other_method_is_compared_by_what_its_call_would_print(n, epsilon):
    """It compared with an interval that was not printed: .22 of it was four times as wide."""
    (note,) = (x for x in fit(sample(n), epsilon=epsilon).notes if "was chosen" in x)
    times, other = re.search(r"expected to be ([0-9.]+) times as wide with (\w+)", note).groups()
    found = widths(other, n, epsilon) / widths("auto", n, epsilon)
    assert (float(times) > 1.0) == (found > 1.0)
    assert 1 / 3 < float(times) / found < 3
    assert other == "one_step"
    assert "(adjusted)" in note


def test_an_adjusted_effect_is_not_compared_with_an_unadjusted_one():
    """It said how wide the interval of an association would be, which answers another question."""
    made = fit(sample(3000), epsilon=1.0)
    assert made.identification == "adjusted"
    assert not any("clipped_contrast" in note for note in made.notes)
    trial = fit(sample(3000), epsilon=1.0, design="randomised")
    assert any("times as wide with" in note for note in trial.notes)


@pytest.mark.parametrize(("n", "epsilon"), [(985, 1.0), (907, 1.1), (200, 0.1), (5000, 0.15)])
@pytest.mark.parametrize("delta", [{}, {"delta": 1e-6}])
def test_it_says_what_an_adjustment_takes_and_calls_keep_it(n, epsilon, delta):
    """It said to add a delta, which changed nothing."""
    made = fit(sample(n), epsilon=epsilon, **delta)
    (note,) = (x for x in made.notes if "was chosen" in x)
    assert f"n x epsilon must be at least 1,000, and is {n * epsilon:.4g}" in note
    with_delta = fit(sample(n), epsilon=epsilon, delta=1e-6)
    assert ("delta =" in note) == (not delta and with_delta.identification == "adjusted")
    enough = float(re.search(r"With epsilon = ([0-9.]+) ", note)[1])
    assert fit(sample(n), epsilon=enough, **delta).identification == "adjusted"
    assert fit(sample(n), epsilon=0.9 * enough, **delta).identification == "unadjusted"
    with pytest.raises(OptionError, match="at least 1,000") as refused:
        fit(sample(n), epsilon=epsilon, on_unadjusted="error", **delta)
    assert f"With epsilon = {enough:.3g} " in str(refused.value)
    assert "delta" not in str(refused.value)


def test_where_covariates_are_too_many_a_delta_is_named_only_if_it_adjusts():
    names = [f"x{j}" for j in range(40)]
    frame = sample(3000).assign(**dict.fromkeys(names, 0.5))
    bounds, formula = dict.fromkeys(["y", *names], (0, 1)), f"y ~ t | {' + '.join(names)}"
    made = fit(frame, formula, bounds=bounds, epsilon=0.5)
    assert made.identification == "unadjusted"
    assert any("With delta = 1e-06 they would be" in note for note in made.notes)
    again = fit(frame, formula, bounds=bounds, epsilon=0.5, delta=1e-6)
    assert again.options["chosen"] == "one_step"


def test_a_trial_is_neither_adjusted_for_confounding_nor_cautioned():
    made = fit(sample(200), epsilon=0.1, design="randomised")
    assert made.released.identification == "randomised"
    assert not made.released.warnings
    assert not any("confounding" in part.name for part in made.released.parts)


def test_without_covariates_there_is_nothing_to_adjust_for():
    made = fit(sample(), "y ~ t", design="randomised", on_unadjusted="error")
    assert made.options["chosen"] == "clipped_contrast"


def test_a_delta_that_would_buy_much_is_mentioned():
    names = [f"x{j}" for j in range(40)]
    frame = sample(3000).assign(**dict.fromkeys(names, 0.5))
    bounds = dict.fromkeys(["y", *names], (0, 1))
    formula = f"y ~ t | {' + '.join(names)}"
    made = fit(frame, formula, bounds=bounds, epsilon=2)
    assert any("With delta = 1e-06" in note for note in made.released.notes)
    made = fit(frame, formula, bounds=bounds, epsilon=2, delta=1e-6)
    assert not any("With delta" in note for note in made.released.notes)


@pytest.mark.parametrize("design", ["observational", "randomised"])
def test_a_contrast_says_that_it_was_chosen_and_what_the_other_would_give(design):
    made = fit(sample(100), epsilon=0.1, design=design)
    (note,) = made.released.notes
    assert note.startswith("clipped_contrast was chosen by n, epsilon")
    assert "times as wide with one_step" in note


@pytest.mark.parametrize("formula", [FORMULA, "y ~ t"])
def test_an_unadjusted_result_is_refused_before_the_charge(formula):
    ledger = dpe.Ledger(5)
    with pytest.raises(OptionError, match="nothing was charged"):
        fit(sample(100), formula, epsilon=0.1, on_unadjusted="error", ledger=ledger)
    with pytest.raises(OptionError, match="adjusts for nothing"):
        fit(sample(), method="clipped_contrast", on_unadjusted="error", ledger=ledger)
    assert ledger.charges == ()
    assert ledger.spent == (0, 0)
    fit(sample(20_000), epsilon=4, on_unadjusted="error", ledger=ledger)
    assert float(ledger.spent[0]) == 4


@pytest.mark.sampled(11)
@pytest.mark.parametrize(("n", "epsilon"), [(60, 0.1), (1500, 1.0), (20_000, 4.0)])
@pytest.mark.parametrize("method", ["auto", "one_step", "clipped_contrast"])
def test_choices_depend_on_public_numbers_only(method, n, epsilon):
    """Other rows of the same number and bounds: the same options, labels and prices.

    Columns that are released to be constant have no squares, and nobody a regression by arm.
    """
    rng = np.random.default_rng(0)
    frames = [sample(n), sample(n, 7, -0.3), sample(n).sample(frac=1.0, random_state=1)]
    frames.append(pd.DataFrame({"y": 0.0, "t": rng.random(n) < 0.02, "x1": 1.0, "x2": 0.0}))
    frames[-1].loc[:1, "t"] = [True, False]
    made = [fit(frame, method=method, epsilon=epsilon) for frame in frames]
    assert all(one.options == made[0].options for one in made)
    prices = [[(s.label, s.epsilon, s.mechanism, s.scale) for s in one.charges] for one in made]
    if made[0].options.get("chosen") == "regression":  # scales are by released numbers of records
        prices = [[price[:3] for price in one] for one in prices]
    assert prices[0] == prices[1] == prices[2]
    released = len(prices[0]) if n < 20_000 else 2
    assert prices[3][:released] == prices[0][:released]
    assert sum(as_written(s.epsilon) for s in made[3].charges) <= as_written(epsilon)
    assert len({one.method_title for one in made[:3]}) == 1
    assert (made[3].method_title != made[0].method_title) == ("estimated by" in made[3].details)


@pytest.mark.parametrize(
    "options",
    [
        {"design": "trial"},
        {"design": None},
        {"on_unadjusted": "caution"},
        {"on_unadjusted": True},
        {"method": "one_step", "clip": 0.6},
        {"method": "one_step", "clip": "0.1"},
        {"method": "one_step", "model_share": 1.0},
        {"method": "one_step", "pool": "some"},
        {"method": "clipped_contrast", "first_stage": 1.0},
        {"chosen": "one_step"},
        {"why": ""},
        {"own": None},
    ],
    ids=str,
)
def test_bad_options(options):
    ledger = dpe.Ledger(5)
    with pytest.raises(OptionError):
        fit(sample(100), ledger=ledger, **options)
    assert ledger.charges == ()


# --- holes: nothing fails after a charge, and nothing but an estimate comes out ---------------


def hard(name):
    """Tables that a method meets rarely."""
    rng, frame = np.random.default_rng(3), sample(60, 3)
    match name:
        case "missing outcomes":
            frame.loc[rng.random(60) < 0.5, "y"] = np.nan
        case "no outcome at all":
            frame["y"] = np.nan
        case "infinite":
            frame.loc[:5, "x1"] = np.inf
        case "nobody treated":
            frame["t"] = False
        case "everybody treated":
            frame["t"] = True
        case "one treated":
            frame["t"] = np.arange(60) == 17
        case "constant":
            frame = frame.assign(x1=0.5, x2=1.0, y=0.25)
        case "one column twice":
            frame["x2"] = frame["x1"]
        case "treatment is a covariate":
            frame["x1"] = frame["t"].astype(float)
        case "outcome is a covariate":
            frame["x1"] = frame["y"]
        case "at the ends":
            frame = frame.assign(y=rng.integers(0, 2, 60), x1=rng.integers(0, 2, 60))
        case "far outside":
            frame = frame.assign(y=1e300, x1=-1e300)
    return frame


TABLES = [
    "missing outcomes",
    "no outcome at all",
    "infinite",
    "nobody treated",
    "everybody treated",
    "one treated",
    "constant",
    "one column twice",
    "treatment is a covariate",
    "outcome is a covariate",
    "at the ends",
    "far outside",
]
BUDGETS = [(1e-3, 0.0), (1.0, 0.0), (1e3, 0.0), (1.0, 1e-6), (1.0, 1e-300)]


def attempt(frame, formula=FORMULA, bounds=BOUNDS, **more):
    """An estimate, or a refusal that cost nothing."""
    ledger = dpe.Ledger(1e4, 0.1)
    given = {"site": "A", "ledger": ledger, **more}
    rows = DeclaredFrame(frame, Bounds.declared(bounds), interactive=False)
    try:
        sent = begin_release(formula, rows, **given).result()
    except DPEffectsError:
        assert ledger.charges == ()
        return
    released = sent.released
    assert isinstance(released, Estimate)
    assert math.isfinite(released.value)
    assert math.isfinite(sent.std_error)
    assert 0.0 <= sent.noise_variance < math.inf
    low, high = sent.conf_int()
    assert -1.0 <= low <= high <= 1.0
    assert float(ledger.spent[0]) == pytest.approx(given["epsilon"])


@pytest.mark.sampled(11)
@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("method", ["auto", "one_step", "clipped_contrast"])
@pytest.mark.parametrize("design", ["observational", "randomised"])
def test_hard_tables(table, method, design):
    for epsilon, delta in BUDGETS[1:4]:
        budget = {"epsilon": epsilon, "delta": delta, "seed": 1}
        attempt(hard(table), method=method, design=design, **budget)


@pytest.mark.sampled(7)
@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS)
@pytest.mark.parametrize("n", [4, 60])
@pytest.mark.parametrize("columns", [1, 50])
@pytest.mark.parametrize("method", ["auto", "one_step"])
def test_hard_sizes(epsilon, delta, n, columns, method):
    """More columns than records; hardly any budget, and almost no noise."""
    rng = np.random.default_rng(n)
    names = [f"z{j}" for j in range(columns)]
    frame = pd.DataFrame(rng.random((n, columns)), columns=names)
    frame["t"], frame["y"] = np.arange(n) % 3 == 0, rng.random(n)
    bounds = dict.fromkeys(["y", *names], (0, 1))
    formula = f"y ~ t | {' + '.join(names)}"
    budget = {"epsilon": epsilon, "delta": delta, "seed": 1}
    attempt(frame, formula, bounds=bounds, method=method, **budget)


def test_many_columns_with_a_delta():
    """More numbers than a pool of Gaussian noise takes."""
    rng = np.random.default_rng(0)
    names = [f"z{j}" for j in range(230)]
    frame = pd.DataFrame(rng.random((300, 230)), columns=names)
    frame["t"], frame["y"] = rng.random(300) < 0.5, rng.random(300)
    formula, bounds = f"y ~ t | {' + '.join(names)}", dict.fromkeys(["y", *names], (0, 1))
    attempt(frame, formula, bounds=bounds, method="one_step", epsilon=5, delta=1e-6, seed=1)


def test_the_reference_takes_columns_that_say_the_same():
    """A copy makes least squares singular: then one_step stands in for the regression by arm."""
    for method, near in (("auto", 1.0), ("one_step", 0.05)):
        one = dpe.reference("y ~ t | x1", sample(), method)
        copied = sample().assign(copy=lambda d: d["x1"])
        both = dpe.reference("y ~ t | x1 + copy", copied, method)
        assert both.estimate == pytest.approx(one.estimate, abs=near * one.std_error)


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("columns", [29, 30])
def test_the_public_rule_asks_for_no_more_columns_than_methods_take(columns, delta):
    """Thirty columns are 495 with all squares and products, and n epsilon would carry them."""
    rng, names = np.random.default_rng(0), [f"x{j}" for j in range(columns)]
    data = pd.DataFrame(rng.random((2000, columns)), columns=names)
    data = data.assign(t=rng.random(2000) < 0.5, y=rng.random(2000))
    call = {"epsilon": 1000, "delta": delta, "bounds": dict.fromkeys([*names, "y"], (0, 1))}
    made = dpe.dp_ate(f"y ~ t | {' + '.join(names)}", data, seed=1, **call)
    low, high = made.conf_int()
    assert low < 0.0 < high


@pytest.mark.parametrize(
    ("columns", "squares", "products"), [(10, 9_900, 127_000), (5, 3_500, 18_100)]
)
def test_records_times_epsilon_that_squares_and_products_take(columns, squares, products):
    """The figures of the guide's page on the default, to the next hundred or thousand."""
    rng, names = np.random.default_rng(3), [f"x{j}" for j in range(columns)]
    frame = pd.DataFrame(rng.random((2_000, columns)), columns=names)
    frame = frame.assign(t=rng.integers(0, 2, 2_000), y=rng.random(2_000))
    given = {"bounds": dict.fromkeys([*names, "y"], (0.0, 1.0)), "seed": 1}
    added = [
        dpe.dp_ate(
            f"y ~ t | {' + '.join(names)}", frame, epsilon=records / 2_000, **given
        ).details.get("terms added", "none")
        for records in (0.99 * squares, squares, 0.99 * products, products)
    ]
    pairs = columns * (columns - 1) // 2
    some, all_of_them = f"{columns} squares", f"{columns} squares, {pairs} products"
    assert added == ["none", some, some, all_of_them]
