"""``dpeffects balance``: overlap and balance from a file."""

import pytest

import dpeffects as dpe
from tests.commands.shell import ESTIMATE, FORMULA, refused, run

DECLARED = {"y": (0, 1), "age": (18, 90), "sex": ["f", "m"]}


def test_record_and_plot(study, capsys):
    pytest.importorskip("matplotlib")
    more = ["--plot", "love.png", "--record", "balance.html"]
    code, out, err = run(capsys, "balance", FORMULA, *ESTIMATE, *more)
    assert (code, err) == (0, "")
    assert "Covariate balance and overlap, differentially private" in out
    assert (study / "love.png").read_bytes().startswith(b"\x89PNG")
    assert "</html>" in (study / "balance.html").read_text()


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--plot", "no/love.png"], "cannot be written"),
        (["--plot", "love.xyz"], ".png, .pdf, .svg"),
        (["--bins", 1], "bins must be"),
        (["--clip", "nan"], "clip must be"),
        (["--budget-split", "mine=1"], "has no share"),
        (["--out", "."], "it is a folder"),
    ],
)
def test_what_fails_before_the_draw_costs_nothing(study, capsys, more, words):
    ledger = dpe.create_ledger("study.db", "nsw", epsilon=2)
    assert words in refused(capsys, "balance", FORMULA, *ESTIMATE, "--ledger", "study.db", *more)
    assert ledger.spent == (0, 0)
