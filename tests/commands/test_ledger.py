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
from tests.commands.shell import ESTIMATE, refused
from tests.commands.shell import run as run_command
from tests.killing import a_charge


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
    room.charge(a_charge("means", 0.25), Terms("record"))
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


@pytest.mark.sampled(2)
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
        ("verify there.db --head abc", "replaced by another one or by an older copy"),
        ("allot there.db secondary 1.5", "share must be above 0 and at most 1"),
        ("allot there.db secondary 0.3 --dataset x", "there is no dataset 'x'"),
        ("release there.db secondary", "no allotment 'secondary'; it has none"),
    ],
)
def test_errors_are_one_sentence(run, line, said):
    run("create there.db --dataset nsw --epsilon 1")
    with pytest.raises(DPEffectsError) as caught:
        run(line)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_allotments(run, study, capsys):
    """Kept on one command line, spent on another, given back on a third."""
    run("create study.db --dataset nsw --epsilon 2")
    for _ in range(2):
        said = run("allot study.db secondary 0.5")
        assert "'secondary', 0.5 of the ledger: (1, 0), spent (0, 0), left (1, 0)" in said
    call = ["ate", "y ~ t", *ESTIMATE, "--method", "diff_in_means", "--ledger", "study.db"]
    call[call.index("--epsilon") + 1] = "0.75"
    code, out, err = run_command(capsys, *call, "--allotment", "secondary", "--dataset", "nsw")
    assert (code, err) == (0, "")
    assert "allotment secondary of the ledger" in out
    said = refused(capsys, *call, "--allotment", "secondary")
    assert "only (0.25, 0) is left in the allotment 'secondary'" in said
    assert "it has secondary" in refused(capsys, *call, "--allotment", "primary")
    assert "--ledger" in refused(capsys, *call[:-2], "--allotment", "secondary")
    assert "spent (0.75, 0), left (0.25, 0)" in run("show study.db")
    for _ in range(2):
        assert "left (1.25, 0)" in run("release study.db secondary")
    assert "was released" in refused(capsys, *call, "--allotment", "secondary")
    assert "sound" in run("verify study.db")
