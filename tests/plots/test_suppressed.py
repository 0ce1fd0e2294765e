"""A forest plot of a study writes one word in the place of a number that is too imprecise."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import dpeffects as dpe

pytest.importorskip("matplotlib")


def test_a_suppressed_effect_has_no_interval_beside_it():
    """It was printed as "suppressed (0 to 0)"."""
    rng, n = np.random.default_rng(1), 1000
    data = pd.DataFrame({"t": rng.integers(0, 2, n), "y": rng.integers(0, 2, n)})
    data["sex"] = rng.choice(["f", "m", "x"], n, p=[0.5, 0.49, 0.01])
    given = {"bounds": {"y": [0, 1], "sex": ["f", "m", "x"]}, "subgroups": "sex"}
    fit = dpe.dp_study("y ~ t", data, epsilon=1, design="randomised", seed=1, **given)
    figure = fit.plot(by="sex").figure
    texts = {text.get_text() for axes in figure.axes for text in axes.texts}
    assert "suppressed" in texts
    assert not {text for text in texts if "suppressed (" in text}


def people(n=1000):
    rng = np.random.default_rng(1)
    data = pd.DataFrame({"t": rng.integers(0, 2, n), "y": rng.random(n), "days": 1.0})
    return data.assign(event=rng.integers(0, 2, n))


CALL = {"bounds": {"y": (0, 1), "event": [0, 1], "days": (0, 9)}, "design": "randomised", "seed": 1}


def places(axes, name):
    """Where marks of a name stand, along the axis."""
    marks = [line.get_xdata()[0] for line in axes.lines if line.get_gid() == name]
    return [x for x in marks if not np.isnan(x)]


def test_an_estimate_that_is_suppressed_is_not_drawn():
    """It was drawn, although the guide said that it is left out."""
    for epsilon, drawn in ((0.01, 0), (10.0, 1)):
        fit = dpe.dp_ate("y ~ t", people(), "diff_in_means", epsilon=epsilon, **CALL)
        assert ("suppressed" in str(fit.summary("short"))) == (drawn == 0)
        assert len(places(fit.plot(), "estimate")) == drawn


def test_sensitivity_shows_no_estimate_that_is_suppressed():
    """It said 0, or whatever noise had made of it, and which bias would move that to zero."""
    call = CALL | {"design": "observational"}
    fit = dpe.dp_ate("y ~ t | days", people(), "one_step", epsilon=0.01, **call)
    assert "suppressed" in str(fit.summary("short"))
    text = " ".join(str(fit.sensitivity().summary("short")).split())
    assert "Estimate suppressed (" in text
    assert "Moves the estimate to zero nothing: it is mostly privacy noise" in text


def test_percentage_points_and_a_range_from_0_to_1_have_panels_of_their_own():
    """Both had one axis, on which the mean of numbers from 0 to 1 looked like no effect."""
    data = people().assign(y=lambda x: np.clip(x["y"] / 2 + 0.4 * x["t"], 0, 1))
    fit = dpe.dp_study("y + event + I(y > 0.5) ~ t", data, epsilon=10, **CALL)
    axes = fit.plot()
    assert len(axes.child_axes) == 2
    assert [x.get_xlabel() for x in axes.child_axes][1] == "Difference, percentage points"


def test_a_picture_of_rates_has_no_ratio_beside_differences():
    """It stood on the line of no effect, which is 1 for a ratio and 0 for the others."""
    fit = dpe.dp_rate("event ~ t", people(), offset="days", epsilon=5, **CALL)
    labels = [x.get_text() for x in fit.plot().get_yticklabels()]
    assert labels == ["rate treated", "rate control", "rate difference"]
