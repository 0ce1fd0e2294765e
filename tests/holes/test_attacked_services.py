"""What an attack on sites, ledgers and outputs found: files that a careless hand gives them."""

from __future__ import annotations

import json
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpeffects as dpe
from dpeffects import file_output
from dpeffects.errors import LedgerError, OptionError, ReleaseError
from dpeffects.evidence.simulations.simulation import append, on_file
from dpeffects.services.federation import demo
from dpeffects.services.gate import Policy
from dpeffects.services.gate.answers import answer
from dpeffects.services.gate.store import Price, Store
from dpeffects.services.sites.consistency import release_inconsistency
from dpeffects.services.sites.signing import make_keys
from tests.commands.shell import ESTIMATE, FORMULA, refused, write_files
from tests.federation.sites import ENTRIES, N, frame, question
from tests.releases import BOUNDS
from tests.releases import frame as rows


def texts(odd):
    """A column of text, one of them with bytes that are no UTF-8 where ``odd``."""
    values = [b"N", b"S"] * (N // 2)
    values[3] = b"\xff\xfe" if odd else values[3]
    stored = pa.array(values, pa.binary())
    return pa.Array.from_buffers(pa.string(), N, stored.buffers())


def days(odd):
    """A column of dates, one of them after the last that Python has where ``odd``."""
    return pa.array([3_000_000 if odd and i == 5 else i for i in range(N)], pa.int32()).cast(
        pa.date32()
    )


@pytest.mark.parametrize(("column", "stored"), [("region", texts), ("x", days)])
def test_a_stored_value_that_python_does_not_have_is_no_reason_to_refuse(tmp_path, column, stored):
    """One record with bytes that are no text, or a date far away, made the site "not ready"."""
    status = []
    for odd in (False, True):
        folder = tmp_path / str(odd)
        folder.mkdir()
        plain = {name: pa.array(values) for name, values in frame().items()}
        pq.write_table(pa.table({**plain, column: stored(odd)}), folder / "data.parquet")
        policy = Policy.from_dict({**ENTRIES, "data": "data.parquet"}, folder)
        Store.create(policy.ledger, "hospital", epsilon=policy.total_epsilon)
        reply = answer(question(formula="y ~ t | region", method="auto"), policy)
        status.append((reply["status"], reply.get("reason")))
    assert status == [("ok", None)] * 2


@pytest.mark.parametrize("ending", ["-journal", "-wal", "-shm", ".seen"])
def test_a_ledger_is_not_made_where_another_keeps_its_journal(tmp_path, ending):
    """SQLite deleted a ledger called study.db-journal at the next charge to study.db."""
    path = tmp_path / "study.db"
    store = Store.create(path, "nsw", epsilon=1.0)
    with pytest.raises(LedgerError, match="another name"):
        dpe.create_ledger(f"{path}{ending}", "ihdp", epsilon=1.0)
    store.reserve("q1", "hash", Price(0.5))
    assert Store(path, 1.0).left == (0.5, 0.0)


def test_a_ledger_without_a_possible_name(tmp_path):
    """A NUL in the name was a raw ValueError."""
    with pytest.raises(OptionError, match="path or a URL"):
        dpe.create_ledger(f"{tmp_path}/a\0b", "nsw", epsilon=1.0)


def test_the_mark_of_a_ledger_is_not_overwritten(tmp_path):
    """An output could replace the file that says which entry of a site's ledger is the newest."""
    path = tmp_path / "study.db"
    Store.create(path, "nsw", epsilon=1.0).reserve("q1", "hash", Price(0.5))
    with pytest.raises(OptionError, match="never overwritten"):
        file_output.write(f"{path}.seen", "text", overwrite=True)
    assert Store(path, 1.0).left == (0.5, 0.0)


def test_the_name_of_a_folder_is_no_output(tmp_path):
    """An output to "results/" was written to a file called results."""
    with pytest.raises(OptionError, match="is a folder"):
        file_output.write(f"{tmp_path}/results/", "text")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["runs.csv.gz", "runs.zip", "runs.bz2"])
def test_runs_are_kept_as_text_whatever_the_file_is_called(tmp_path, name):
    """A study in runs.csv.gz was compressed and lost: its second batch was refused."""
    path = tmp_path / name
    for seed in (1, 2):
        append(path, [{"seed": seed, "value": 0.5}], ["seed", "value"])
    assert [row["seed"] for row in on_file(path, ["seed", "value"], ["seed"])] == [1, 2]


def test_keys_go_to_a_new_folder(tmp_path):
    """The example of the help and of the README failed where there was no folder yet."""
    private, public = make_keys("North", tmp_path / "keys")
    assert private.exists()
    assert public.exists()


def test_keys_are_made_in_pairs(tmp_path):
    """Where the public file was taken a private key was left without it."""
    (tmp_path / "North.pem").write_text("another's")
    with pytest.raises(ReleaseError, match="not overwritten"):
        make_keys("North", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["North.pem"]


def test_a_record_does_not_replace_a_release_beside_it(tmp_path):
    """The JSON of north.html went over the signed release north.json when told to overwrite."""
    call = {"method": "diff_in_means", "epsilon": 1.0, "bounds": BOUNDS}
    path = tmp_path / "north.json"
    dpe.site_release("y ~ t", rows(), site="North", **call).save(path)
    before = path.read_bytes()
    fit = dpe.combine([path], "all")
    with pytest.raises(OptionError, match="give the record another name"):
        fit.report(tmp_path / "north.html", overwrite=True)
    assert path.read_bytes() == before
    for _ in range(2):  # its own is replaced
        fit.report(tmp_path / "record.html", overwrite=True)
    assert json.loads((tmp_path / "record.json").read_text())["format"]


def test_a_record_that_cannot_be_written_costs_nothing(tmp_path, monkeypatch, capsys):
    """The file beside the record must be known to be free before the ledger is charged."""
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path)
    ledger = dpe.create_ledger("study.db", "nsw", epsilon=2)
    (tmp_path / "policy.json").write_text("{}")
    given = ["ate", FORMULA, *ESTIMATE, "--ledger", "study.db", "--dataset", "nsw"]
    assert "another name" in refused(capsys, *given, "--record", "policy.html", "--force")
    assert (tmp_path / "policy.json").read_text() == "{}"
    assert ledger.remaining == (2.0, 0.0)


def test_a_demo_does_not_write_over_a_site(tmp_path, capsys, monkeypatch):
    """The demo of a federation replaced data, policy and key in a folder that was in use."""
    home = tmp_path / "north"
    home.mkdir()
    (home / "data.csv").write_text("patients")
    monkeypatch.setattr(demo.flower, "program", lambda name: name)
    monkeypatch.setattr(demo.flower, "stop_on_signal", lambda: None)
    assert demo.main(["--folder", str(tmp_path)]) == 1
    assert "is not empty" in capsys.readouterr().err
    assert [path.name for path in home.iterdir()] == ["data.csv"]


def test_an_estimate_far_beyond_its_outcome_is_not_plausible():
    """A site with the effect 1e6 on an outcome between 0 and 1 was combined with the others."""
    call = {"method": "diff_in_means", "epsilon": 1.0, "bounds": BOUNDS}
    sent = [
        dpe.site_release("y ~ t", rows(seed=i), site=site, **call) for i, site in enumerate("AB")
    ]
    assert sum(dpe.combine(sent, "all").weights) == 1.0
    lie = replace(sent[0], released=replace(sent[0].released, value=1e6))
    with pytest.raises(ReleaseError, match="far beyond the range"):
        dpe.combine([lie, sent[1]])


def test_rounded_bounds_leave_room_for_an_effect():
    """The ends of a narrow range far from 0 are written alike; its releases are plausible."""
    call = {"method": "diff_in_means", "epsilon": 1e4, "bounds": BOUNDS}
    sent = dpe.site_release("I(y * 1000 + 1e9) ~ t", rows(), site="A", **call)
    assert release_inconsistency(sent) == ""
