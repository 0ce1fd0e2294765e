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
