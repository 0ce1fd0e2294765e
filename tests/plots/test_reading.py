"""Pictures that can be read: whatever names and numbers come, text is whole and as written."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest

import dpeffects as dpe
from dpeffects.errors import OptionError
from dpeffects.inference.estimate import SHARE, Estimate, Unavailable
from dpeffects.report.plots import style as look
from tests.once import once

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.text import Text  # noqa: E402

INCOME = ("$11-$25k", "$26-$50k", "under_^{x}% of \\alpha and\nmuch more than a label has room for")
BOUNDS = {"y": (0, 1), "x": (0, 1), "income": list(INCOME)}
WIDE = 50


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


@cache
def people(n=6000):
    rng = np.random.default_rng(3)
    x = np.minimum(rng.exponential(0.15, n), 1.0)
    income = np.array(INCOME)[np.minimum(rng.geometric(0.6, n) - 1, 2)]
    t = rng.random(n) < 0.3 + 0.3 * (income == INCOME[0])
    y = np.clip(0.2 + 0.2 * t + 0.3 * x + 0.2 * rng.random(n), 0.0, 1.0)
    return pd.DataFrame({"y": y, "t": t, "x": x, "income": income})


@once
def function(**given):
    made = {"epsilon": 4, "delta": 1e-5, "bounds": BOUNDS, "method": "dr_learner", **given}
    return dpe.dp_cate("y ~ t | x + income", people(), **made)


@once
def groups(**given):
    made = {"epsilon": 4, "bounds": BOUNDS, "method": "dr_learner", **given}
    return dpe.dp_cate("y ~ t | x + income", people(), release="groups", by="income", **made)


def single(count, low=None, high=None):
    """Effects in so many groups, with ends of their intervals."""
    fit = groups()
    effects = tuple(replace(fit.effects[0], value=k / 10.0) for k in range(count))
    many = replace(fit, effects=effects, labels=tuple(f"region {k} $a$ $b$" for k in range(count)))
    if low is not None:
        ends = np.tile([[low, high]], (count, 1))
        object.__setattr__(many, "conf_int", lambda *_, **__: ends)
    return many


@once
def differences(adjusted=True):
    """Differences of many covariates, as a release with names that nobody would wish for."""
    found = dpe.dp_balance("y ~ t | x", people(), epsilon=2, bounds=BOUNDS, adjusted=True)
    rng = np.random.default_rng(5)
    smd = rng.normal(0.0, 0.2, WIDE)
    smd[7] = math.nan
    names = tuple(f"income[T.$11-$2{k}k]" + " and so on" * (k % 4) for k in range(WIDE))
    extra = (tuple(smd / 4), (0.05,) * WIDE) if adjusted else ((), ())
    noise, reasons = (0.03,) * WIDE, ("",) * WIDE
    return replace(
        found,
        terms=names,
        smd=tuple(smd),
        noise_sd=noise,
        reasons=reasons,
        smd_adjusted=extra[0],
        noise_sd_adjusted=extra[1],
    )


@once
def study():
    return dpe.dp_study(
        "y + I(y > 0.5) ~ t | x + income",
        people(),
        epsilon=4,
        delta=1e-6,
        bounds=BOUNDS,
        subgroups=["income"],
        design="randomised",
    )


def trial(**given):
    named = people().rename(columns={"y": "cost"}).assign(cost=lambda d: 1e6 * d["cost"])
    made = {"epsilon": 1, "bounds": {"cost": (0, 1e6)}, **given}
    return dpe.dp_ate("cost ~ t", named, "diff_in_means", **made)


def sites(count):
    names = [f"Hospital of St. ${k}_x^2$ and all of its wards, old and new" for k in range(count)]
    sent = [
        dpe.site_release("y ~ t", people(), site=name, bounds=BOUNDS, epsilon=1) for name in names
    ]
    absent = {f"a very far island, number ${k}$": "it did not answer" for k in range(4)}
    return dpe.combine(sent, "all", left_out=absent)


RUNS = pd.DataFrame(
    [
        {"epsilon": epsilon, "error": 1e5 / epsilon, "method": f"a method of a long name $x_{k}$"}
        for epsilon in (0.1, 1, 10)
        for k in range(6)
    ]
).assign(guarantee="asymptotic")
PICTURES = {
    "love": lambda: differences().plot(),
    "love, all": lambda: dpe.plots.love(differences(), most=None),
    "love of a study": lambda: study().plot(kind="love"),
    "overlap": lambda: differences().plot("overlap"),
    "curve": lambda: function().plot("x", at={"income": INCOME[2]}),
    "curve without bars": lambda: function(variance=False).plot("x"),
    "levels of a function": lambda: function().plot("income"),
    "groups": lambda: groups().plot(),
    "one group": lambda: single(1).plot(),
    "many groups": lambda: single(40).plot(),
    "too many groups": lambda: single(90).plot(),
    "endless intervals": lambda: single(3, -math.inf, math.inf).plot(),
    "half-endless intervals": lambda: single(3, 0.0, math.inf).plot(),
    "no intervals": lambda: groups(variance=False).plot(),
    "study": lambda: study().plot(),
    "study by income": lambda: study().plot(by="income"),
    "estimates": lambda: dpe.plots.estimate(
        trial(), trial(variance=False), names=["$a$ long name " * 5, "a_$b^c$\nd"]
    ),
    "seeded": lambda: trial(seed=1).plot(),
    "budget": lambda: dpe.plots.budget(study()),
    "sensitivity": lambda: trial().sensitivity(bias=1e5).plot(),
    "one site": lambda: sites(1).plot(),
    "many sites": lambda: sites(70).plot(),
    "errors": lambda: dpe.plots.errors(RUNS, reference=1e4, reference_name="paper of $y$ and $z$"),
    "ordinal": lambda: dpe.dp_ordinal(
        "income ~ t", people(), bounds=BOUNDS, epsilon=1, design="randomised"
    ).plot(),
    "quantiles": lambda: dpe.dp_qte(
        "cost ~ t",
        people().assign(cost=lambda d: 1e5 * d["x"] ** 3),
        bounds={"cost": (0, 1e5)},
        epsilon=4,
        design="randomised",
    ).plot(),
    "survival": lambda: dpe.dp_survival(
        "Surv(time, event) ~ treatment",
        dpe.simulate("survival", n=800, seed=1),
        horizon=360,
        epsilon=0.5,
        seed=1,
    ).plot(),
    "changes": lambda: dpe.dp_did(
        "earnings_1978 ~ treatment",
        dpe.load_data("lalonde"),
        before=["earnings_1974", "earnings_1975"],
        epsilon=2,
    ).plot(),
}


def texts(ax):
    return [text for text in ax.findobj(Text) if text.get_text() and text.get_visible()]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", PICTURES)
def test_nothing_is_cut_off_and_no_text_is_maths(name):
    ax = PICTURES[name]()
    figure = ax.figure
    figure.canvas.draw()
    box, (width, height) = figure.get_tightbbox(), figure.get_size_inches()
    assert -0.01 <= box.x0 < box.x1 <= width + 0.01
    assert -0.01 <= box.y0 < box.y1 <= height + 0.01
    assert 6.0 <= width <= 7.0
    assert height < 20.0
    for text in texts(ax):
        assert text._preprocess_math(text.get_text())[1] is False, text.get_text()
        assert "\\math" not in text.get_text()
    rows = [text.get_window_extent() for text in ax.get_yticklabels() if text.get_text()]
    inside = [box for box in rows if ax.bbox.y0 <= (box.y0 + box.y1) / 2 <= ax.bbox.y1]
    inside.sort(key=lambda box: box.y0)
    assert all(one.y1 <= two.y0 + 1 for one, two in itertools.pairwise(inside))


@pytest.mark.parametrize("adjusted", [True, False])
def test_love_is_sorted_and_says_what_it_leaves_out(adjusted):
    found = differences(adjusted)
    sizes = np.abs(found.smd)
    largest = [found.terms[k] for k in np.argsort(np.where(np.isnan(sizes), -1, sizes))[::-1]]
    ax = found.plot()
    labels = [text.get_text() for text in ax.get_yticklabels()]
    assert labels == [look.short(name) for name in largest[:30]]
    left = np.sort(sizes[~np.isnan(sizes)])[: WIDE - 31]
    assert f"20 more covariates not drawn, up to {left.max():.2g}" in ax.get_xlabel()
    assert "1 not available" in ax.get_xlabel().replace("\n", " ")
    if adjusted:
        assert f"and {left.max() / 4:.2g} after weighting" in ax.get_xlabel().replace("\n", " ")
    whole = found.plot(most=None)
    assert len(whole.get_yticklabels()) == WIDE
    assert "not drawn" not in whole.get_xlabel()
    assert whole.figure.get_size_inches()[1] > ax.figure.get_size_inches()[1]
    with pytest.raises(OptionError, match="most must be"):
        found.plot(most=0)
    of_study = study().plot(kind="love", most=1)
    assert len(of_study.get_yticklabels()) == 1
    assert "not drawn" in of_study.get_xlabel()


def test_no_bar_is_negative():
    found = differences()
    counts = np.array(found.counts)
    counts[:, :3] = -5.0
    ax = replace(found, counts=tuple(map(tuple, counts))).plot("overlap")
    heights = np.array([bar.get_height() for bar in ax.patches]).reshape(2, -1)
    assert (heights[0] >= 0.0).all()
    assert (heights[1] <= 0.0).all()  # controls are drawn downwards
    assert (heights[:, :3] == 0.0).all()
    assert (np.abs(heights) > 0.0).any()
    assert "negative ones set to 0" in ax.get_title(loc="left")


def test_bars_below_a_curve_are_the_released_histogram():
    fit = function()
    ax = fit.plot("x")
    shares = fit.records("x")
    assert shares["share"].sum() == pytest.approx(1.0)
    true = np.histogram(people()["x"], 8, (0.0, 1.0))[0] / len(people())
    assert np.abs(shares["share"] - true).max() < 0.05
    bars = [bar for bar in ax.patches if bar.get_transform().contains_branch(ax.transAxes)]
    bars = [bar for bar in bars if bar.get_gid() != "few"]
    heights = np.array([bar.get_height() for bar in bars])
    assert heights / heights.sum() == pytest.approx(shares["share"].to_numpy())
    assert [bar.get_x() for bar in bars] == pytest.approx(shares["low"].tolist())
    lowest = min(path.vertices[:, 1].min() for path in ax.collections[0].get_paths())
    top = ax.transAxes.inverted().transform(ax.transData.transform([(0.0, lowest)]))[0, 1]
    assert heights.max() < top  # bars do not cover the band
    first, last = fit.quantiles("x", [0.05, 0.95])
    pale = [patch.get_extents() for patch in ax.patches if patch.get_gid() == "few"]
    ends = ax.transData.transform([(first, 0.0), (last, 0.0)])[:, 0]
    assert [pale[0].x1, pale[1].x0] == pytest.approx(ends.tolist())
    none = function(variance=False)
    assert isinstance(none.records("x"), Unavailable)
    ax = none.plot("x")
    assert not ax.patches
    assert "was not released" in ax.get_title(loc="left").replace("\n", " ")


def test_shares_of_records_stand_beside_groups_and_levels():
    true = people()["income"].value_counts(normalize=True)
    levels = function().records("income").set_index("level")["share"]
    by_group = groups()
    for level in INCOME:
        (label,) = [k for k, name in enumerate(by_group.labels) if level in name]
        assert by_group.effects[label].details[SHARE] == pytest.approx(true[level], abs=0.05)
        assert levels[level] == pytest.approx(true[level], abs=0.05)
    for ax in (by_group.plot(), function().plot("income")):
        beside = [text.get_text() for text in ax.texts]
        assert beside[0] == "Records"
        assert sum(float(text.rstrip("%")) for text in beside[1:4]) == pytest.approx(100, abs=3)
    points = replace(
        by_group, effects=tuple(Estimate(0.1, Unavailable("none")) for _ in by_group.effects)
    )
    assert "was not released" in points.plot().get_title(loc="left").replace("\n", " ")


def test_an_endless_interval_is_an_arrow_to_the_edge():
    ax = single(2, 0.0, math.inf).plot()
    arrows = [text for text in ax.texts if text.get_gid() == "endless"]
    assert [arrow.xy for arrow in arrows] == [(1, 0), (1, 1)]
    ax = single(2, -math.inf, math.inf).plot()
    assert len([text for text in ax.texts if text.get_gid() == "endless"]) == 4


def test_large_numbers_have_their_thousands_apart():
    ax = trial().plot()
    ax.figure.canvas.draw()
    words = [text.get_text() for text in ax.get_xticklabels()]
    assert any(word.endswith(",000") for word in words)
    assert not any(len(word.split(",")[0].lstrip("\N{MINUS SIGN}")) > 3 for word in words)


def test_a_notebook_that_shows_figures_goes_on_to_show_them(monkeypatch):
    """Its backend turns itself on with the first figure, which may be one of ours."""
    make = plt.figure

    def first(*args, **given):
        matplotlib.rcParams["interactive"] = True
        return make(*args, **given)

    monkeypatch.setattr(plt, "figure", first)
    before = matplotlib.rcParams["interactive"]
    try:
        trial().plot()
        assert matplotlib.rcParams["interactive"] is True
    finally:
        matplotlib.rcParams["interactive"] = before


def test_maths_of_the_user_stays_maths():
    figure, ax = plt.subplots()
    own = ax.text(0.5, 0.5, "$x^2$")
    groups().plot(ax=ax)
    ax.set_xlabel("$y^2$")
    for text in (own, ax.xaxis.label):
        assert text._preprocess_math(text.get_text())[1] is True
    figure.canvas.draw()
