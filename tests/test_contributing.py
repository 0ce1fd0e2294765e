"""The walk through a new method, ability, estimand and plot in CONTRIBUTING.md works."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import numpy as np
import pytest

import dpeffects as dpe
from dpeffects.cli.commands import make_parser
from dpeffects.cli.estimates import by_blocks
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
    assert {e.claim for e in fit.charges if e.share != "check_bounds"} == {5}
    with pytest.raises(dpe.DPEffectsError, match="keep"):
        dpe.dp_ate("outcome ~ treatment", walked["data"], method=walked["SPEC"], epsilon=1, keep=7)


def test_the_new_ability_is_one_file_with_call_command_words_and_json(walked, capsys, tmp_path):
    fit, call = walked["shares"], walked["dp_above"]
    data = walked["trial"].frame
    above, treated = data["outcome"] > 0.5, data["treatment"] == 1
    error = fit.tidy().set_index("term").loc["difference", "std_error"]
    plain = above[treated].mean() - above[~treated].mean()
    assert fit.params["difference"] == pytest.approx(plain, abs=0.1 + 4 * error)
    assert type(fit).from_json(fit.to_json()).tidy().equals(fit.tidy())
    summary = fit.summary()
    for text in (summary.as_text(), summary.as_html(), summary.as_latex(), summary.as_markdown()):
        assert "shares above a limit" in text
    assert "above 0.5, of the controls" in fit.report().text
    assert fit.plot().get_figure() is not None
    parameters = inspect.signature(call).parameters
    assert {"limit", "delta", "unit", "missing", "ledger", "seed"} <= set(parameters)
    assert "weights, subset, check_bounds\n    As in :func:`dp_ate`." in call.__doc__
    with pytest.raises(dpe.DPEffectsError, match=r"limt.*Did you mean 'limit'"):
        call("outcome ~ treatment", data, limit=1, limt=2, epsilon=1)
    path = tmp_path / "trial.csv"
    data.to_csv(path, index=False)
    command = by_blocks("above", call)
    asked = ["above", "outcome ~ treatment", str(path), "--limit", "0.5", "--epsilon", "1"]
    args = make_parser([command]).parse_args([*asked, "--seed", "1"])
    assert not args.run(args)
    assert "Shares above a limit, differentially private" in capsys.readouterr().out
    assert "dpeffects above" in command.examples


def test_the_new_ability_takes_at_most_120_lines():
    (block,) = (text for text in BLOCKS if "def dp_above" in text)
    assert block.count("\n") <= 120


def test_the_new_estimand_is_named_where_results_are_shown(walked):
    assert walked["effect"].estimand == "AET"
    assert "average effect on those who took it" in str(walked["effect"].summary())


def test_the_new_plot_says_what_is_not_private(walked):
    axes = walked["axes"]
    assert len(axes.patches) == 2
    assert any("NOT PRIVATE" in text.get_text() for text in axes.texts + axes.figure.texts)
