"""The walk through a new method, a new estimand and a new plot in CONTRIBUTING.md works."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import dpeffects as dpe
from dpeffects.estimands import ESTIMANDS

TEXT = (Path(__file__).resolve().parents[1] / "CONTRIBUTING.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```$", TEXT, flags=re.M | re.S)


@pytest.fixture(scope="module")
def walked():
    """Names that the blocks define, run one after the other as a reader would."""
    pytest.importorskip("matplotlib").use("Agg")
    before, names = dict(ESTIMANDS), {"__name__": __name__}
    try:
        for block in BLOCKS:
            exec(compile(block, "CONTRIBUTING.md", "exec", dont_inherit=True), names)
        yield names
    finally:
        ESTIMANDS.clear()
        ESTIMANDS.update(before)


def test_the_new_method_estimates_a_trimmed_difference(walked):
    data = walked["data"].frame
    treated = data["treatment"].to_numpy().astype(bool)
    outcome = np.clip(data["outcome"].to_numpy(), 0.1, 0.9)
    plain = outcome[treated].mean() - outcome[~treated].mean()
    fit = walked["trimmed"]
    assert fit.estimate == pytest.approx(plain, abs=6 * fit.noise_variance**0.5)
    assert {e.claim for e in fit.spends if e.share != "check_bounds"} == {5}
    with pytest.raises(dpe.DPEffectsError, match="keep"):
        dpe.dp_ate("outcome ~ treatment", walked["data"], method=walked["SPEC"], epsilon=1, keep=7)


def test_the_new_estimand_is_named_where_results_are_shown(walked):
    assert walked["effect"].estimand == "AET"
    assert "average effect on those who took it" in str(walked["effect"].summary())


def test_the_new_plot_says_what_is_not_private(walked):
    axes = walked["axes"]
    assert len(axes.patches) == 2
    assert any("NOT PRIVATE" in text.get_text() for text in axes.texts + axes.figure.texts)
