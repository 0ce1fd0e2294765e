"""``dpeffects ledger ...`` from a shell."""

import json
import re

import pytest

from dpeffects.cli.commands import make_parser
from dpeffects.cli.program import COMMANDS
from dpeffects.errors import DPEffectsError
from dpeffects.ledgers import open_ledger
from dpeffects.privacy.budget import Budget
from dpeffects.privacy.ledger import Terms
from tests.killing import spend


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Run a command in an empty folder and return what it prints."""
    monkeypatch.chdir(tmp_path)

    def act(line):
        args = make_parser(COMMANDS).parse_args(["ledger", *line.split()])
        args.run(args)
        return capsys.readouterr().out

    return act


def test_from_creation_to_export(run, tmp_path):
    said = run("create study.db --dataset nsw --epsilon 3 --delta 1e-5")
    assert said.startswith("DurableLedger('study.db', dataset='nsw', epsilon=3, delta=1e-05, 0")
    run("create study.db --dataset ihdp --epsilon 1 --delta 1e-6 --composition zcdp")
    room = open_ledger("study.db", "nsw").reserve(Budget(1.0), Terms("record"), {"method": "psm"})
    room.charge(spend("means", 0.25), Terms("record"))
    assert re.search(r"nsw +3 +1e-05 +2 +1e-05 +1\nihdp +1 +1e-06", run("list study.db"))
    shown = run("show study.db")
    assert "dataset nsw" in shown
    assert "dataset ihdp" in shown
    assert "Open call 3" in shown
    assert "dataset ihdp" not in run("show study.db --dataset nsw")
    said = run("verify study.db")
    assert "sound, 4 entries, 1 charges, 2 datasets" in said
    assert "left (2, 1e-05)" in run("settle study.db --dataset nsw --call 3")
    assert "left (2, 1e-05)" in run("settle study.db --dataset nsw --all")
    assert "sound" in run(f"verify study.db --head {said.split()[-1]}")
    assert run("export study.db out.json --dataset nsw") == "wrote out.json\n"
    assert json.loads((tmp_path / "out.json").read_text())["dataset"] == "nsw"
    run("export study.db out.csv --dataset nsw")
    assert "means" in (tmp_path / "out.csv").read_text()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("show nope.db", "there is no ledger nope.db"),
        ("create study.db --dataset nsw --epsilon -1", "epsilon must be positive"),
        ("create study.db --dataset x --epsilon 1 --composition zcdp", "needs a delta"),
        ("create no/where.db --dataset x --epsilon 1", "cannot be opened"),
        ("settle there.db", "--call NUMBER, or --all"),
        ("settle there.db --call 7", "no call 7"),
        ("show there.db --dataset x", "there is no dataset 'x'; it has nsw"),
        ("export there.db out.txt", ".csv or .json"),
        ("verify there.db --head abc", "set back"),
    ],
)
def test_errors_are_one_sentence(run, line, said):
    run("create there.db --dataset nsw --epsilon 1")
    with pytest.raises(DPEffectsError) as caught:
        run(line)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
