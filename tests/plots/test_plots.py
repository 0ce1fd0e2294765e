"""Pictures by their artists: what is drawn are the numbers of the results."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import polars as pl
import pytest

import dpeffects as dpe
from dpeffects.errors import DataError, MissingExtraError, OptionError
from dpeffects.inference.estimate import ErrorPart, Estimate, SamplingVariance, Unavailable
from dpeffects.report.plots import style as look

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.colors import to_rgb  # noqa: E402

NSW = dpe.load_data("lalonde")
TRIAL = "earnings_1978 ~ treatment"
CATE = "outcome ~ treatment | x1 + g"
CATE_BOUNDS = {"outcome": (0, 1), "x1": (0, 1), "g": ["a", "b", "c"]}
RUNS = pd.DataFrame(
    {
        "epsilon": [0.5, 0.5, 0.5, 2.0, 0.5, 2.0],
        "error": [0.2, 0.4, 0.9, 0.1, 0.3, 0.05],
        "method": list("aaaabb"),
    }
)
CELLS = pd.DataFrame(
    [
        ("one", "a", 1.0, "exact", "sample", 0.2),
        ("one", "b", 1.0, "exact", "sample", 0.1),
        ("one", "c", math.inf, "none", "none", 0.05),
        ("two", "a", 1.0, "exact", "sample", 0.3),
        ("two", "b", 1.0, "exact", "sample", 0.9),
        ("two", "d", 1.0, "exact", "label", 0.6),
        ("two", "a", 4.0, "exact", "sample", 0.1),
    ],
    columns=["data", "fit", "epsilon", "guarantee", "level", "error"],
)


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def trial(**given):
    return dpe.dp_ate(
        TRIAL, NSW, "diff_in_means", **{"epsilon": 1, "design": "randomised", **given}
    )


def cate(**given):
    rng = np.random.default_rng(0)
    x, g = rng.random(800), rng.choice(list("abc"), 800)
    t = rng.random(800) < 0.5
    y = np.clip(0.3 + 0.2 * t * x + 0.3 * rng.random(800), 0, 1)
    data = pd.DataFrame({"outcome": y, "treatment": t, "x1": x, "g": g})
    made = {"epsilon": 2, "delta": 1e-5, "bounds": CATE_BOUNDS, **given}
    return dpe.dp_cate(CATE, data, **made)


def combined(seed=None, rule="ivw"):
    sent = [
        dpe.site_release(
            "outcome ~ treatment",
            dpe.simulate("multisite", n=n, seed=k),
            site=f"site {k}",
            method="diff_in_means",
            epsilon=epsilon,
            seed=None if seed is None else seed + k,
        )
        for k, (n, epsilon) in enumerate([(3000, 1), (1000, 1), (500, 0.1)])
    ]
    return dpe.combine(sent, rule, left_out={"Isles": "it did not answer"})


def balance(**given):
    data = dpe.simulate("confounded", n=4000, seed=1)
    made = {"epsilon": 2, "adjusted": True, "bins": 10, **given}
    return dpe.dp_balance("outcome ~ treatment | x1 + x2 + x3", data, **made)


def plan():
    bounds = {"y": (0, 1)}
    return dpe.plan("y ~ t", n=500, epsilon=1, bounds=bounds, repeats=2, method="diff_in_means")


def named(ax, gid):
    return [artist for artist in ax.get_children() if artist.get_gid() == gid]


def status_warning(ax):
    return " ".join(text.get_text() for text in named(ax, "dpeffects-warnings")).replace("\n", " ")


PICTURES = {
    "estimate": lambda ax=None, **g: dpe.plots.estimate(trial(**g), ax=ax),
    "fit.plot": lambda ax=None, **g: trial(**g).plot(ax=ax),
    "budget": lambda ax=None, **g: dpe.plots.budget(trial(**g), ax=ax),
    "curve": lambda ax=None, **g: dpe.plots.curve(cate(**g), ax=ax),
    "cate.plot": lambda ax=None, **g: cate(**g).plot("g", ax=ax),
    "groups": lambda ax=None, **g: cate(release="groups", by="g", **g).plot(ax=ax),
    "forest": lambda ax=None, **g: combined(**g).plot(ax=ax),
    "love": lambda ax=None, **g: balance(**g).plot(ax=ax),
    "overlap": lambda ax=None, **g: balance(**g).plot("overlap", ax=ax),
    "sensitivity": lambda ax=None, **g: trial(**g).sensitivity(bias=500).plot(ax=ax),
    "half_width": lambda ax=None: plan().plot((0.5, 2.0), ax=ax),
    "errors": lambda ax=None: dpe.plots.errors(RUNS, ax=ax),
    "leaderboard": lambda ax=None: dpe.plots.leaderboard(CELLS, ax=ax),
}
WITHOUT_FIT = ("half_width", "errors", "leaderboard")


@pytest.mark.sampled(13)
@pytest.mark.parametrize("name", PICTURES)
def test_every_picture_returns_its_axes_and_changes_no_setting(name):
    before = dict(matplotlib.rcParams)
    made = PICTURES[name]()
    assert made.figure.axes == [made]
    _, given = plt.subplots()
    assert PICTURES[name](ax=given) is given
    assert dict(matplotlib.rcParams) == before
    made.figure.canvas.draw()
    given.figure.canvas.draw()  # nothing is left to the settings at the time of drawing
    assert dict(matplotlib.rcParams) == before
    assert made.get_xlabel()


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", [n for n in PICTURES if n not in WITHOUT_FIT])
def test_a_guarantee_that_does_not_hold_stands_out(name):
    assert "NOT PRIVATE" not in status_warning(PICTURES[name]())
    ax = PICTURES[name](seed=1)
    ax.set_title("a title of mine")
    if ax.get_legend():
        ax.legend(handles=[])
    assert "NOT PRIVATE: a seed was set" in status_warning(ax)
    (text,) = named(ax, "dpeffects-warnings")
    ax.figure.canvas.draw()
    inside, box = ax.get_window_extent(), text.get_window_extent()
    assert inside.y0 <= box.y0 <= box.y1 <= inside.y1 + 1


def test_an_asymptotic_claim_and_a_caution_stand_out():
    fit = trial()
    guarantee = dpe.Guarantee(1.0, kind="asymptotic")
    claimed = type(fit)(**{**vars(fit), "guarantee": guarantee})
    assert (
        status_warning(dpe.plots.estimate(claimed))
        == "ASYMPTOTIC CLAIM, NOT A PROVEN GUARANTEE AT THIS N"
    )
    both = dpe.plots.estimate(fit, claimed, names=["one", "two"])
    assert status_warning(both) == "two: ASYMPTOTIC CLAIM, NOT A PROVEN GUARANTEE AT THIS N"
    said = "CLIPPED VALUES: check units; one column is skewed; BELOW ZERO"
    warned = replace(fit, released=replace(fit.released, warnings=said))
    assert status_warning(warned.plot()) == "CLIPPED VALUES; BELOW ZERO"  # and nothing else
    marked = dpe.plots.errors(RUNS.assign(guarantee=["exact"] * 4 + ["asymptotic"] * 2))
    assert status_warning(marked) == "b: ASYMPTOTIC CLAIM, NOT A PROVEN GUARANTEE AT THIS N"


def test_no_alarm_covers_the_data():
    ax = dpe.plots.errors(RUNS.assign(guarantee="void: seeded"))
    ax.figure.canvas.draw()
    (text,) = named(ax, "dpeffects-warnings")
    whiskers = RUNS.groupby(["method", "epsilon"])["error"].quantile(0.75)
    highest = ax.transData.transform([(1.0, whiskers.max())])[0, 1]
    assert text.get_window_extent().y0 > highest


def test_estimates_are_split_into_their_parts():
    fits = trial(), trial(epsilon=4), trial(variance=False)
    ax = dpe.plots.estimate(*fits, conf_level=0.9, names=["one", "four", "none"])
    assert [t.get_text() for t in ax.get_yticklabels()] == ["one", "four", "none"]
    for row, line in enumerate(named(ax, "estimate")):
        assert line.get_xdata()[0] == fits[row].estimate
        assert line.get_ydata()[0] == row
    whole, alone = named(ax, "whole"), named(ax, "sampling")
    assert len(whole) == len(alone) == 2
    for fit, outer, inner in zip(fits, whole, alone, strict=False):
        table = fit.tidy(0.9)
        assert outer.get_xdata() == pytest.approx(table[["conf_low", "conf_high"]].iloc[0])
        low, high = inner.get_xdata()
        assert outer.get_xdata()[0] < low < fit.estimate < high < outer.get_xdata()[1]
    shares = [
        np.ptp(i.get_xdata()) / np.ptp(o.get_xdata()) for o, i in zip(whole, alone, strict=True)
    ]
    assert shares[0] < shares[1]  # more epsilon, less of the interval is noise
    (noise,) = named(ax, "noise")
    assert noise.get_xdata()[0] < fits[2].estimate
    words = [t.get_text() for t in ax.get_legend().get_texts()]
    assert words[:2] == ["Sampling error alone", "90% CI: sampling error and privacy noise"]
    zero = [line for line in ax.lines if set(np.asarray(line.get_xdata())) == {0.0}]
    assert zero


def test_the_sampling_part_is_the_normal_one_where_the_variance_is_known():
    fit = trial(epsilon=1e6)
    (inner,) = named(fit.plot(), "sampling")
    half = 1.959964 * np.sqrt(fit.sampling_variance)
    assert np.ptp(inner.get_xdata()) / 2 == pytest.approx(half, rel=1e-4)


def test_possible_biases_have_a_bar_of_their_own():
    released = Estimate(5.0, SamplingVariance(4.0, 0.0, 99.0), (), 1.0)
    parts = (ErrorPart("model", 3.0, noise=True), ErrorPart("clip", 8.0))
    ax = replace(trial(), released=replace(released, parts=parts)).plot()
    widths = [np.ptp(named(ax, gid)[0].get_xdata()) for gid in ("sampling", "with noise", "whole")]
    assert widths == pytest.approx(2 * 1.959964 * np.sqrt([4.0, 8.0, 16.0]), rel=1e-5)
    words = [t.get_text() for t in ax.get_legend().get_texts()]
    assert words[1:] == [
        "Sampling error and privacy noise",
        "95% CI: sampling error, privacy noise and possible bias",
    ]
    plain = replace(trial(), released=released).plot()
    assert not named(plain, "with noise")


def test_an_association_is_labelled_as_one():
    fit = replace(trial(), released=replace(trial().released, identification="unadjusted"))
    ax = fit.plot()
    assert ax.get_xlabel().startswith("Association of treatment with earnings_1978")
    assert "ASSOCIATION, NOT AN EFFECT" in status_warning(ax)


def corners(contour):
    """Points of a contour line."""
    return np.concatenate([path.vertices for path in contour.get_paths() if len(path.vertices)])


def test_contours_are_those_of_the_estimate_less_the_bias():
    """A confounder adds the product of its prevalence difference and its effect on the outcome."""
    fit = replace(trial(), released=replace(trial().released, value=2000.0))
    assert fit.estimate == 2000.0
    found = fit.sensitivity(prevalence_difference=0.3, confounder_effect=1000.0)
    ax = found.plot()
    (zero,) = named(ax, "zero")
    assert np.prod(corners(zero), axis=1) == pytest.approx(2000.0, rel=1e-3)
    grey = ax.collections[0]
    assert len(grey.levels) > 3
    for level, path in zip(grey.levels, grey.get_paths(), strict=True):
        x, y = path.vertices.T
        assert x * y == pytest.approx(2000.0 - level, abs=5.0)
    (stated,) = named(ax, "stated")
    assert (*stated.get_xdata(), *stated.get_ydata()) == (0.3, 1000.0)
    words = [text.get_text() for text in ax.get_legend().get_texts()]
    assert "Stated confounder: estimate 17" in words[-1]  # 2000 - 0.3 x 1000
    x, y = corners(zero)[5]
    again = fit.sensitivity(prevalence_difference=x, confounder_effect=y)
    assert again.tidy()["estimate"][1] == pytest.approx(0.0, abs=2.0)


def test_the_line_of_the_limit_is_where_the_interval_reaches_zero():
    released = replace(trial(epsilon=100).released, value=-9000.0)
    fit = replace(trial(epsilon=100), released=released)
    found = fit.sensitivity(bias=-500.0)
    assert found.limit < 0.0
    ax = found.plot()
    for gid, bias in (("limit", found.limit), ("stated", -500.0)):
        (line,) = named(ax, gid)
        assert np.prod(corners(line), axis=1) == pytest.approx(bias, rel=1e-2)
    assert found.interval(found.limit).upper == pytest.approx(0.0, abs=1e-6)


def test_where_there_is_no_limit_there_is_no_line():
    within = replace(trial(), released=replace(trial().released, value=1.0)).sensitivity()
    ax = within.plot()
    assert not named(ax, "limit")
    words = [text.get_text() for text in ax.get_legend().get_texts()]
    assert words[1:] == ["95% CI includes 0 without a confounder"]
    blind = trial(variance=False).sensitivity(bias=-300.0).plot()
    assert not named(blind, "limit")
    assert named(blind, "zero")


@pytest.mark.parametrize(("prevalence", "effect"), [(-0.3, 1000.0), (0.3, -1000.0)])
def test_the_other_value_of_a_confounder_is_the_same_confounder(prevalence, effect):
    given = {"prevalence_difference": prevalence, "confounder_effect": effect}
    (stated,) = named(trial().sensitivity(**given).plot(), "stated")
    assert (*stated.get_xdata(), *stated.get_ydata()) == (0.3, -1000.0)


def test_budget_bars_are_the_charges():
    fit = dpe.dp_ate(f"{TRIAL} | age", NSW, "private_ipw", epsilon=1, delta=1e-5)
    ax = dpe.plots.budget(fit)
    widths = [bar.get_width() for bar in ax.patches]
    assert sum(widths) == pytest.approx(1.0, abs=1e-6)
    by_share = fit.charges_frame().groupby("share")["epsilon"].sum()
    labels = [t.get_text() for t in ax.get_yticklabels()]
    (model,) = [w for w, label in zip(widths, labels, strict=True) if label == "propensity model"]
    assert model == pytest.approx(by_share["model"])
    delta = sum(charge.delta for charge in fit.charges)
    assert f"delta {delta:.3g}" in ax.get_title(loc="left")
    texts = [text.get_text() for text in ax.texts]
    assert sum(f"({100 * w:.1f}%)" in t for w, t in zip(widths, texts, strict=True)) == len(widths)
    with pytest.raises(OptionError, match="no charges"):
        dpe.plots.budget(type(fit)(**{**vars(fit), "charges": ()}))


def test_half_widths_are_those_of_the_plan():
    study = plan()
    ax = study.plot((0.5, 1.0, 2.0))
    (line,) = ax.lines
    assert line.get_ydata()[1] == study.rows[0].half_width
    assert line.get_label() == "diff_in_means"
    assert "units of y" in ax.get_ylabel()
    noise = dpe.plots.half_width(study, [1.0], what="noise_sd")
    assert noise.lines[0].get_ydata()[0] == study.rows[0].noise_sd
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    with pytest.raises(OptionError, match="what must be"):
        dpe.plots.half_width(study, what="width")


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame], ids=["pandas", "polars"])
def test_errors_are_medians_of_runs(make):
    reference = pd.DataFrame({"epsilon": [2.0, 0.5], "error": [0.2, 0.6]})
    ax = dpe.plots.errors(make(RUNS.to_dict("list")), reference=reference)
    one, two, paper = ax.lines
    assert one.get_ydata().tolist() == [0.4, 0.1]
    assert two.get_ydata().tolist() == [0.3, 0.05]
    assert paper.get_ydata().tolist() == [0.6, 0.2]
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["a", "b", "paper"]
    assert [t.get_text() for t in ax.get_xticklabels()] == ["0.5", "2"]
    flat = dpe.plots.errors(RUNS, reference=0.3, reference_name="flat")
    assert flat.lines[-1].get_ydata()[0] == 0.3
    with pytest.raises(OptionError, match="'epsilon'"):
        dpe.plots.errors(RUNS.drop(columns="epsilon"))
    with pytest.raises(DataError, match="positive"):
        dpe.plots.errors(RUNS.assign(error=0.0))
    with pytest.raises(DataError, match="frame"):
        dpe.plots.errors({"epsilon": 1})


def test_the_leaderboard_shows_distances_from_the_best():
    ax = dpe.plots.leaderboard(CELLS, epsilon=1)
    names = [text.get_text() for text in ax.get_yticklabels()]
    # geometric means: a sqrt(2 x 1), b sqrt(1 x 3), c 0.5, d 2
    assert names == ["c (not private)", "a", "b", "d (label level)"]
    drawn, hollow = {}, set()
    for marks, data in zip(ax.collections, ("one", "two"), strict=True):
        for (x, y), face in zip(marks.get_offsets(), marks.get_facecolors(), strict=True):
            drawn[data, names[int(y)][0]] = pytest.approx(x)
            hollow |= {names[int(y)][0]} if to_rgb(face) == (1.0, 1.0, 1.0) else set()
    far = {("one", "a"): 2.0, ("one", "b"): 1.0, ("one", "c"): 0.5}
    assert drawn == far | {("two", "a"): 1.0, ("two", "b"): 3.0, ("two", "d"): 2.0}
    assert hollow == {"c", "d"}
    with pytest.raises(OptionError, match="epsilon 7"):
        dpe.plots.leaderboard(CELLS, epsilon=7)
    with pytest.raises(DataError, match="'level'"):
        dpe.plots.leaderboard(CELLS.drop(columns="level"))


def test_curves_are_those_of_the_function():
    fit = cate()
    ax = dpe.plots.curve(fit, "x1", at={"g": "b"}, conf_level=0.8)
    table = fit.curve("x1", at={"g": "b"}, conf_level=0.8)
    assert ax.lines[0].get_ydata().tolist() == table["effect"].tolist()
    corners = ax.collections[0].get_paths()[0].vertices
    assert corners[:, 1].max() == pytest.approx(table["conf_high"].max())
    assert corners[:, 1].min() == pytest.approx(table["conf_low"].min())
    assert "80% CI" in ax.get_title(loc="left")
    assert "g = b" in ax.get_title(loc="left")
    assert ax.get_ylabel() == "Effect of treatment on outcome"
    levels = fit.plot("g")
    assert [t.get_text() for t in levels.get_yticklabels()] == ["a", "b", "c"]


@pytest.mark.parametrize("given", [{"release": "groups", "by": "g"}, {"release": "points"}])
def test_single_effects_are_intervals(given):
    at = {"x1": [0.2, 0.5, 0.9], "g": ["a", "b", "c"]}
    fit = cate(**given, **({"at": at} if given["release"] == "points" else {}), epsilon=8)
    ax = fit.plot(0.9, simultaneous=True)
    table = fit.tidy(0.9, simultaneous=True)
    (known,) = named(ax, "known")
    assert known.get_xdata().tolist() == table["estimate"].tolist()
    ends = np.array([line.get_xdata() for line in named(ax, "interval")])
    assert ends == pytest.approx(table[["conf_low", "conf_high"]].to_numpy())
    assert [t.get_text() for t in ax.get_yticklabels()] == list(fit.labels)
    with pytest.raises(OptionError, match="effect functions"):
        dpe.plots.curve(fit, "x1")


def test_effects_without_an_interval_are_hollow():
    fit = cate(release="groups", by="g", variance=False)
    ax = fit.plot()
    (unknown,) = named(ax, "unknown")
    assert len(unknown.get_xdata()) == 3
    assert unknown.get_markerfacecolor() == "white"


def test_a_forest_has_all_sites_and_a_diamond():
    found = combined()
    ax = found.plot(0.9)
    sites = named(ax, "site")
    assert [line.get_xdata()[0] for line in sites] == [r.estimate for r in found.releases]
    sizes = [line.get_markersize() for line, w in zip(sites, found.weights, strict=True) if w > 0]
    weights = [w for w in found.weights if w > 0]
    assert np.argsort(sizes).tolist() == np.argsort(weights).tolist()
    for line, weight in zip(sites, found.weights, strict=True):
        assert (line.get_marker() == "s") == (weight > 0)
    for line, release in zip(named(ax, "interval"), found.releases, strict=True):
        low, high = dpe.combine([release], "largest").conf_int(0.9)
        assert line.get_xdata() == pytest.approx([low, high], rel=1e-6)
    (diamond,) = named(ax, "combined")
    across = diamond.get_xy()[:, 0]
    assert (across.min(), across.max()) == pytest.approx(tuple(found.conf_int(0.9)))
    labels = [t.get_text() for t in ax.get_yticklabels()]
    assert labels == ["site 0", "site 1", "site 2", "Combined (ivw)"]
    caption = ax.get_title(loc="left")
    assert f"Q = {found.heterogeneity.q:.3g}" in caption
    assert "no release from Isles" in caption
    weights_shown = [t.get_text() for t in ax.texts if t.get_text().endswith("%")]
    assert weights_shown[0] == f"{100 * found.weights[0]:.1f}%"


def test_a_forest_without_an_interval():
    sent = dpe.site_release(
        TRIAL, NSW, site="one", method="diff_in_means", epsilon=1, variance=False
    )
    found = dpe.combine([sent], "all")
    assert isinstance(found.conf_int(), Unavailable)
    ax = found.plot()
    assert named(ax, "interval") == []
    assert "not available" in ax.get_title(loc="left")


def test_love_shows_every_difference_and_its_noise():
    found = balance()
    table = found.tidy()
    ax = found.plot()
    assert [t.get_text() for t in ax.get_yticklabels()] == ["x1", "x2", "x3"]
    for which in ("", "_adjusted"):
        drawn = sorted(
            (round(float(y)), float(x))
            for kind in ("within", "beyond")
            for line in named(ax, f"{kind}{which}")
            for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)
        )
        assert [x for _, x in drawn] == pytest.approx(table[f"smd{which}"])
        inside = sum(len(line.get_xdata()) for line in named(ax, f"within{which}"))
        assert inside == table[f"within_noise{which}"].sum()
    ends = np.array([path.vertices[:, 0] for path in ax.collections[0].get_paths()])
    assert np.ptp(ends, axis=1) / 2 == pytest.approx(1.96 * table["noise_sd"].to_numpy())
    lone = balance(adjusted=False).plot("love")
    assert len(lone.get_legend().get_texts()) == 2
    with pytest.raises(OptionError, match="love"):
        found.plot("violin")


def test_overlap_bars_are_shares_of_the_arms():
    found = balance()
    ax = found.plot("overlap")
    heights = np.array([bar.get_height() for bar in ax.patches])
    sizes = (found.treated[0], found.n - found.treated[0])
    for arm, side in enumerate((1, -1)):
        wanted = side * np.maximum(found.counts[arm], 0) / sizes[arm]
        assert heights[10 * arm : 10 * arm + 10] == pytest.approx(wanted)
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["Treated", "Control"]


def luminance(color):
    """Relative luminance (WCAG)."""
    rgb = np.array(to_rgb(color))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def contrast(one, two):
    dark, light = sorted((luminance(one), luminance(two)))
    return (light + 0.05) / (dark + 0.05)


def test_series_differ_in_grey():
    """The first four by luminance alone; all by luminance, or else by line and marker."""
    styles = [look.series(k) for k in range(12)]
    for one, two in itertools.combinations(styles[:4], 2):
        assert contrast(one.color, two.color) > 1.7
    for one, two in itertools.combinations(styles, 2):
        apart = contrast(one.color, two.color) > 1.7
        assert apart or (one.linestyle != two.linestyle and one.marker != two.marker)
    assert len({style.marker for style in styles}) == 12


@pytest.mark.parametrize(
    ("one", "two"),
    [(look.INK, look.YELLOW), (look.INK, look.RED), (look.FILL, look.PALE), (look.ALARM, "white")],
)
def test_parts_of_a_picture_differ_in_grey(one, two):
    assert contrast(one, two) > 2.0


def test_without_matplotlib_the_extra_is_named(without):
    fit = trial()
    without("matplotlib")
    with pytest.raises(MissingExtraError, match=r"dpeffects\[plot\]"):
        fit.plot()


def test_mistakes_are_named():
    with pytest.raises(OptionError, match="at least one fit"):
        dpe.plots.estimate()
    with pytest.raises(OptionError, match="2 labels"):
        dpe.plots.estimate(trial(), trial(), names=["one"])
    empty = SimpleNamespace(charges=(), guarantee=dpe.Guarantee(1.0))
    with pytest.raises(OptionError, match="nothing to draw"):
        dpe.plots.budget(empty)
