"""Durable ledgers: the same in a file and on a server, whoever dies, whatever the disk does."""

import contextlib
import json
import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpeffects as dpe
from dpeffects.errors import BudgetError, DPEffectsError, LedgerError, OptionError
from dpeffects.guarantee import rows_of
from dpeffects.ledgers import (
    create_ledger,
    ledger_datasets,
    open_ledger,
    verify_ledger,
)
from dpeffects.ledgers.memory import Ledger
from dpeffects.ledgers.transaction import Session
from dpeffects.privacy.budget import Budget, Share
from dpeffects.privacy.domains import IntTotals, Sensitivity
from dpeffects.privacy.ledger import CallLedger, Terms
from dpeffects.privacy.release import Releaser, Split
from tests.killing import TERMS, ZEROS, a_charge

ROOT = Path(__file__).resolve().parents[2]
ABOUT = {"method": "diff_in_means", "formula": "y ~ t"}


class Untouchable:
    """Data that must not be read."""

    def __getattr__(self, name):
        raise AssertionError(f"data was read: {name}")


class TestBothBackends:
    """What a ledger promises, wherever it is."""

    def test_charges_outlive_the_object(self, address):
        create_ledger(address, "nsw", epsilon=1.0, delta=1e-5).charge(
            a_charge("a", 0.25, 1e-6), TERMS
        )
        again = open_ledger(address)
        assert again.charges == (a_charge("a", 0.25, 1e-6),)
        assert again.spent == (Fraction(0.25), Fraction(1e-6))
        assert again.remaining == (0.75, pytest.approx(9e-6))
        assert "1 charges, left (0.75, 9e-06)" in repr(again)

    def test_overspending_is_refused_and_says_what_is_left(self, address):
        ledger = create_ledger(address, "nsw", epsilon=1.0)
        ledger.charge(a_charge("a", 0.75))
        with pytest.raises(BudgetError, match=r"only \(0\.25, 0\) is left"):
            ledger.charge(a_charge("b", 0.5))
        with pytest.raises(BudgetError):
            ledger.require(0.3)
        ledger.require(0.25)
        assert len(ledger.charges) == 1

    def test_arithmetic_is_exact(self, address):
        ledger = create_ledger(address, "nsw", epsilon=1.0)
        for _ in range(9):
            ledger.charge(a_charge("a", 0.1))
        with pytest.raises(BudgetError):
            ledger.charge(a_charge("a", 0.1))  # ten times the float 0.1 is above one
        exact = create_ledger(address, "other", epsilon=1.0)
        exact.charge(a_charge("a", 1.0))
        with pytest.raises(BudgetError):
            exact.charge(a_charge("tiny", 1e-300))  # 1.0 + 1e-300 == 1.0 in floats
        with pytest.raises(BudgetError):
            exact.charge(a_charge("tiny", 0.0, 5e-324))

    def test_decimals_mean_what_they_say(self, address):
        ledger = create_ledger(address, "nsw", epsilon=0.3)
        for _ in range(3):
            room = ledger.reserve(Budget(0.1), TERMS, ABOUT)
            room.charge(a_charge("a", Budget(0.1).shares({"a": 1})["a"].epsilon), TERMS)
            room.settle()
        assert ledger.remaining == (0.0, 0.0)
        with pytest.raises(BudgetError):
            ledger.require(1e-6)

    @pytest.mark.parametrize("epsilon", [0.0, -0.5, float("nan"), float("inf")])
    def test_a_charge_is_a_positive_number(self, address, epsilon):
        ledger = create_ledger(address, "nsw", epsilon=1.0)
        with pytest.raises(BudgetError):
            ledger.charge(a_charge("a", epsilon))
        assert ledger.charges == ()

    def test_only_like_charges_add_up(self, address):
        ledger = create_ledger(address, "nsw", epsilon=2.0)
        Ledger(1.0, parent=ledger, terms=Terms("record")).charge(a_charge("a", 0.5))
        labels = Terms("outcome", ("covariates", "treatment"))
        with pytest.raises(BudgetError, match="ledger of its own"):
            ledger.reserve(Budget(0.1), labels, ABOUT)
        with pytest.raises(BudgetError, match="ledger of its own"):
            ledger.charge(a_charge("b", 0.5), labels)
        assert "VOID" not in repr(ledger)
        ledger.charge(a_charge("c", 0.5), Terms("record", void=("seeded",)))
        assert "VOID: seeded" in repr(ledger)
        assert ledger.remaining == (1.0, 0.0)  # what protects nobody counts too

    def test_units_are_not_mixed(self, address):
        """Neither in a first charge nor by a second process that reserved before it."""
        ledger = create_ledger(address, "nsw", epsilon=2.0)
        patients = Terms(rows_of("patient_id"))
        first = ledger.reserve(Budget(0.5), patients, ABOUT)
        second = open_ledger(address).reserve(Budget(0.5), TERMS, ABOUT)
        first.charge(a_charge("a", 0.5), patients)
        with pytest.raises(BudgetError, match="k rows at k times its epsilon"):
            second.charge(a_charge("b", 0.5), TERMS)
        second.settle()
        with pytest.raises(BudgetError, match="rows of one patient_id may be of several clinic"):
            open_ledger(address).reserve(Budget(0.1), Terms(rows_of("clinic")), ABOUT)
        first.settle()
        assert ledger.remaining == (1.5, 0.0)
        assert "everything about one patient_id, in however many rows" in str(ledger.summary())
        assert set(ledger.to_frame()["unit"]) == {"all rows of one patient_id"}
        assert "sound" in ledger.verify()

    @pytest.mark.parametrize("unit", ["patient_id", 'Patient "no"\n\ud800' + 300 * "x"])
    def test_a_unit_can_be_agreed_on(self, address, unit):
        create_ledger(address, "nsw", epsilon=2.0, unit=unit)
        ledger = open_ledger(address)
        assert ledger.agreement.unit == unit
        assert "in however many rows" in " ".join(str(ledger.summary()).split())
        with pytest.raises(BudgetError, match="unit="):
            ledger.reserve(Budget(0.5), TERMS, ABOUT)
        call = ledger.reserve(Budget(0.5), Terms(rows_of(unit)), ABOUT)
        call.charge(a_charge("a", 0.5), Terms(rows_of(unit)))
        call.settle()
        assert "sound" in ledger.verify()
        assert "unit" not in create_ledger(address, "other", epsilon=1.0).agreement.body()
        with pytest.raises(OptionError, match="name of a column"):
            create_ledger(address, "third", epsilon=1.0, unit="")
        assert ledger_datasets(address) == ("nsw", "other")

    def test_several_datasets(self, address):
        create_ledger(address, "nsw", epsilon=1.0)
        create_ledger(address, "ihdp", epsilon=2.0).charge(a_charge("a", 0.5))
        assert ledger_datasets(address) == ("nsw", "ihdp")
        assert open_ledger(address, "nsw").remaining == (1.0, 0.0)
        assert open_ledger(address, "ihdp").remaining == (1.5, 0.0)
        with pytest.raises(LedgerError, match="which dataset; it has nsw, ihdp"):
            open_ledger(address)
        with pytest.raises(LedgerError, match="'x'; it has nsw, ihdp"):
            open_ledger(address, "x")
        with pytest.raises(
            LedgerError, match="already has a budget for nsw: epsilon = 1, delta = 0"
        ):
            create_ledger(address, "nsw", epsilon=100.0)

    def test_a_reservation_keeps_its_place(self, address):
        """The second call is refused when it begins, not in the middle; the first one is not."""
        ledger = create_ledger(address, "nsw", epsilon=1.0)
        first = ledger.reserve(Budget(0.6), TERMS, ABOUT)
        with pytest.raises(BudgetError, match=r"only \(0\.4, 0\).*open calls hold \(0\.6, 0\)"):
            open_ledger(address).reserve(Budget(0.5), TERMS, ABOUT)
        second = open_ledger(address).reserve(Budget(0.4), TERMS, ABOUT)
        first.charge(a_charge("a", 0.3), TERMS)
        second.charge(a_charge("b", 0.375), TERMS)
        with pytest.raises(BudgetError):
            first.charge(a_charge("c", 0.4), TERMS)  # more than it has left
        first.settle()
        second.settle()
        assert ledger.remaining == (0.0, 0.0)  # what a call has begun to spend is spent
        assert ledger.spent == (1, 0)
        assert ledger.open_calls() == ()

    def test_a_settled_call_may_not_charge(self, address):
        ledger = create_ledger(address, "nsw", epsilon=1.0)
        room = ledger.reserve(Budget(1.0), TERMS, ABOUT)
        room.charge(a_charge("a", 0.25), TERMS)
        (call,) = ledger.open_calls()
        assert (call.epsilon, call.about["method"]) == (0.75, "diff_in_means")
        ledger.settle(call.number)
        assert ledger.remaining == (0.0, 0.0)
        with pytest.raises(BudgetError, match="settled"):
            room.charge(a_charge("b", 0.25), TERMS)
        room.settle()
        ledger.settle(call.number)  # twice is once
        assert ledger.remaining == (0.0, 0.0)
        with pytest.raises(LedgerError, match="no call 999"):
            ledger.settle(999)

    def test_threads_cannot_overspend_together(self, address):
        create_ledger(address, "nsw", epsilon=1.0)
        done = []

        def draw():
            with contextlib.suppress(BudgetError):
                open_ledger(address).charge(a_charge("a", 0.3))
                done.append(1)

        threads = [threading.Thread(target=draw) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(done) == len(open_ledger(address).charges) == 3

    @pytest.mark.sampled(7)
    @pytest.mark.parametrize("kind", ["calls", "allotment", "site"])
    @pytest.mark.parametrize(("kills", "charges"), [(40, 10_000), (24, 20)])
    def test_killed_writers(self, address, kind, kills, charges):
        """Eight processes, some dozens of kills: no release without a charge, no charge lost."""
        command = [sys.executable, "-m", "tests.killing", kind, address, str(kills), "8"]
        done = subprocess.run(
            [*command, str(charges), "0.2"], cwd=ROOT, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        assert found["charges"] > 0
        assert [found[name] for name in ZEROS if found.get(name)] == [], found
        assert found["sound"] == "sound"

    def test_a_charge_stays_when_the_process_dies_before_the_draw(self, address):
        ledger = create_ledger(address, "nsw", epsilon=1.0)

        class Deadly:
            void, description = (), ""

            def laplace(self, *_):
                os.kill(os.getpid(), signal.SIGKILL)

        pid = os.fork()
        if not pid:
            with contextlib.suppress(BaseException):
                room = ledger.reserve(Budget(0.5), TERMS, ABOUT)
                call = CallLedger(Budget(0.5), room, TERMS)
                releaser = Releaser(Split.of(Budget(0.5), {"a": 1}), call, Deadly())
                zero = IntTotals(np.zeros(1, np.int64), Sensitivity(1, 1.0), 1.0)
                releaser.laplace("x", zero, Share(0.5), share="a", claim=2)
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == signal.SIGKILL
        assert [s.label for s in open_ledger(address).charges] == ["x"]
        ledger.settle()
        assert ledger.remaining == (0.5, 0.0)

    def test_the_clock_does_not_matter(self, address, monkeypatch):
        ledger = create_ledger(address, "nsw", epsilon=1.0)
        from dpeffects.ledgers import transaction

        for year in (2031, 1971, 2026):

            class Clock:
                @staticmethod
                def now(zone, year=year):
                    import datetime

                    return datetime.datetime(year, 1, 1, tzinfo=zone)

            monkeypatch.setattr(transaction, "datetime", Clock)
            ledger.charge(a_charge(str(year), 0.1))
        assert [s.label for s in ledger.charges] == ["2031", "1971", "2026"]
        assert "sound" in ledger.verify()

    def test_verify_says_what_there_is(self, address):
        ledger = create_ledger(address, "nsw", epsilon=1.0)
        ledger.charge(a_charge("a", 0.1))
        ledger.reserve(Budget(0.5), TERMS, ABOUT).charge(a_charge("b", 0.2), TERMS)
        said = ledger.verify()
        assert "sound, 4 entries, 2 charges, 1 dataset; no anchor, so that a folder" in said
        assert said == verify_ledger(address)
        head = said.split()[-1]
        ledger.charge(a_charge("c", 0.1))
        assert "sound" in ledger.verify(head)
        with pytest.raises(
            LedgerError, match=r"replaced (by another one or by an older copy|or set back)"
        ):
            ledger.verify("f" * 64)

    def test_a_whole_call(self, address):
        nsw = dpe.load_data("lalonde")
        create_ledger(address, "nsw", epsilon=2.0)
        call = ("earnings_1978 ~ treatment", nsw, "diff_in_means")
        fit = dpe.dp_ate(*call, epsilon=1.5, ledger=address, dataset="nsw")
        ledger = open_ledger(address)
        assert ledger.charges == fit.charges
        assert ledger.open_calls() == ()
        frame = ledger.to_frame()
        assert set(frame["method"]) == {"diff_in_means"}
        assert set(frame["formula"]) == {"earnings_1978 ~ treatment"}
        assert frame["call"].nunique() == 1
        with pytest.raises(BudgetError, match=r"needs epsilon = 1, .*\(0\.5, 0\) is left"):
            dpe.dp_ate(call[0], Untouchable(), call[2], epsilon=1, ledger=address)
        assert "sound" in ledger.verify()

    def test_a_call_that_fails_before_its_first_charge_costs_nothing(self, address):
        nsw = dpe.load_data("lalonde")
        ledger = create_ledger(address, "nsw", epsilon=1.0)
        with pytest.raises(DPEffectsError):
            dpe.dp_ate("nope ~ treatment", nsw, "diff_in_means", epsilon=1.0, ledger=ledger)
        assert ledger.remaining == (1.0, 0.0)
        assert ledger.open_calls() == ()
        dpe.dp_ate(
            "earnings_1978 ~ treatment", nsw, "diff_in_means", epsilon=1.0, ledger=ledger, seed=1
        )
        assert ledger.remaining == (0.0, 0.0)
        assert "VOID: seeded" in repr(ledger)

    def test_conditional_effects(self, address):
        data = dpe.simulate("cate_1", n=3000, seed=1)
        ledger = create_ledger(address, "sim", epsilon=1.0, delta=1e-5)
        fit = dpe.dp_cate(
            "outcome ~ treatment | x1 + x2", data, epsilon=1, delta=1e-5, ledger=address
        )
        *drawn, rest = ledger.charges
        assert tuple(drawn) == fit.charges
        assert rest.label == "rest of the call"  # shares of delta that no draw has used
        assert ledger.remaining == (0.0, 0.0)
        assert ledger.open_calls() == ()

    def test_exports(self, address, tmp_path):
        ledger = create_ledger(address, "nsw", epsilon=1.0, delta=1e-5)
        room = ledger.reserve(Budget(0.5), TERMS, ABOUT)
        room.charge(a_charge("means", 0.25), TERMS)
        ledger.export(tmp_path / "a.csv")
        header, line = (tmp_path / "a.csv").read_text().splitlines()
        assert header.startswith("entry,call,time,method,formula,label,share,epsilon")
        assert "diff_in_means,y ~ t,means,estimate,0.25" in line
        ledger.export(tmp_path / "a.json")
        found = json.loads((tmp_path / "a.json").read_text())
        assert found["totals"]["spent"] == ["1/4", "0/1"]
        assert found["remaining"] == [0.5, 1e-5]
        assert len(found["entries"]) == 3
        with pytest.raises(OptionError, match="csv"):
            ledger.export(tmp_path / "a.txt")
        with pytest.raises(OptionError, match="cannot be written"):
            ledger.export(tmp_path / "no" / "a.csv")
        text = " ".join(str(ledger.summary()).split())
        for piece in ("Left", "epsilon 0.5", "Open call 2", "one record", "means"):
            assert piece in text


# --- files ------------------------------------------------------------------------------------


def as_nobody(act):
    """Run ``act`` as a user whom permissions bind, and return what it raised."""
    out, into = os.pipe()
    pid = os.fork()
    if not pid:
        said = ""
        try:
            if os.getuid() == 0:
                os.setgid(65534)
                os.setuid(65534)
            act()
        except DPEffectsError as error:
            said = f"{type(error).__name__}: {error}"
        except BaseException as error:
            said = f"unexpected {error!r}"
        os.write(into, said.encode())
        os._exit(0)
    os.close(into)
    os.waitpid(pid, 0)
    with os.fdopen(out) as pipe:
        return pipe.read()


def test_addresses(folder, monkeypatch):
    monkeypatch.chdir(folder)
    create_ledger("study.db", "a", epsilon=1.0)
    create_ledger(Path("study.db"), "b", epsilon=1.0)
    create_ledger("sqlite:///study.db", "c", epsilon=1.0)
    create_ledger(f"sqlite:///{folder}/study.db", "d", epsilon=1.0)
    create_ledger("odd name?#%.db", "e", epsilon=1.0).charge(a_charge("x"))
    assert ledger_datasets("study.db") == ("a", "b", "c", "d")
    files = [name + end for name in ("odd name?#%.db", "study.db") for end in ("", ".seen")]
    assert sorted(p.name for p in folder.iterdir()) == files
    for bad in ("", "sqlite://", ":memory:", "mysql://x/y"):
        with pytest.raises(OptionError):
            open_ledger(bad)
    for name in ("", " ", 3, "a\nb"):
        with pytest.raises(OptionError):
            create_ledger("study.db", name, epsilon=1.0)


def test_a_missing_file_says_how_to_create_it(folder):
    with pytest.raises(LedgerError, match=r"dpeffects ledger create .*study\.db --dataset nsw"):
        dpe.dp_ate(
            "y ~ t",
            Untouchable(),
            "diff_in_means",
            epsilon=1,
            ledger=folder / "study.db",
            dataset="nsw",
        )
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("ledger", [3, Ledger, b"study.db"])
def test_a_ledger_is_a_ledger_or_an_address(ledger):
    with pytest.raises(OptionError, match="path or a URL"):
        dpe.dp_ate("y ~ t", Untouchable(), "diff_in_means", epsilon=1, ledger=ledger)


def test_a_dataset_names_a_budget_in_a_file(file):
    ledger = create_ledger(file, "nsw", epsilon=1.0)
    for given_ledger in (None, Ledger(1.0), ledger):
        with pytest.raises(OptionError, match=r"dataset=.* does not fit: the ledger is "):
            dpe.dp_ate(
                "y ~ t",
                Untouchable(),
                "diff_in_means",
                epsilon=1,
                ledger=given_ledger,
                dataset="x",
            )


def test_a_read_only_file(file, folder):
    create_ledger(file, "nsw", epsilon=1.0).charge(a_charge("a"))
    os.chmod(file, 0o444)
    said = as_nobody(lambda: open_ledger(file).charge(a_charge("b")))
    assert said.startswith("LedgerError")
    assert "read-only" in said
    assert as_nobody(lambda: open_ledger(file).summary()) == ""
    assert as_nobody(lambda: verify_ledger(file)) == ""
    assert len(open_ledger(file).charges) == 1


def test_a_read_only_folder(file, folder):
    create_ledger(file, "nsw", epsilon=1.0)
    os.chmod(file, 0o666)
    os.chmod(folder, 0o555)
    said = as_nobody(lambda: open_ledger(file).charge(a_charge("b")))
    assert said.startswith("LedgerError")
    assert "folder" in said
    said = as_nobody(lambda: create_ledger(folder / "new.db", "nsw", epsilon=1.0))
    assert said.startswith("LedgerError")
    assert "folder" in said
    os.chmod(folder, 0o777)
    assert open_ledger(file).charges == ()


def test_a_full_disk(file):
    """The file may not grow: the charge is refused, and those before it stay."""
    ledger = create_ledger(file, "nsw", epsilon=100.0)
    for _ in range(5):
        ledger.charge(a_charge("a"))

    def act():
        limit = os.path.getsize(file) + 4096
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        for _ in range(100):
            ledger.charge(a_charge("b"))
            print("drawn", flush=True)

    os.chmod(file, 0o666)
    said = as_nobody(act)
    assert said.startswith("LedgerError")
    assert "(charge) is not in the ledger; no noise was drawn for this charge" in said
    again = open_ledger(file)
    assert 5 <= len(again.charges) < 105
    assert "sound" in again.verify()
    again.charge(a_charge("c"))


def test_a_full_file_system(folder):
    """The same on a file system of its own, where one can be mounted."""
    mounted = folder / "small"
    mounted.mkdir()
    options = ["-t", "tmpfs", "-o", "size=128k", "tmpfs", str(mounted)]
    if (
        not shutil.which("mount")
        or subprocess.run(["mount", *options], capture_output=True).returncode
    ):
        pytest.skip("cannot mount a small file system")
    try:
        ledger = create_ledger(mounted / "study.db", "nsw", epsilon=100.0)
        drawn = []

        def fill():
            for _ in range(500):
                ledger.charge(a_charge("a"))
                drawn.append(1)

        with pytest.raises(LedgerError, match="full"):
            fill()
        assert len(ledger.charges) == len(drawn) > 0
        assert "sound" in ledger.verify()
    finally:
        subprocess.run(["umount", str(mounted)], check=True)


def test_a_full_disk_during_a_call(file, monkeypatch):
    """A charge that cannot be written stops the call before its draw; what was held stays held."""
    ledger = create_ledger(file, "nsw", epsilon=1.0)
    add = Session.rows

    def full(self, sql, **values):
        if values.get("kind") in ("charge", "settle"):
            raise sqlite3.OperationalError("database or disk is full")
        return add(self, sql, **values)

    monkeypatch.setattr(Session, "rows", full)
    monkeypatch.setattr("dpeffects.privacy.noise.SecureNoise.laplace", _never)
    nsw = dpe.load_data("lalonde")
    with (
        pytest.warns(UserWarning, match="stays reserved"),
        pytest.raises(LedgerError, match="before, the call has charged and drawn nothing"),
    ):
        dpe.dp_ate("earnings_1978 ~ treatment", nsw, "diff_in_means", epsilon=1, ledger=file)
    monkeypatch.setattr(Session, "rows", add)
    assert ledger.charges == ()
    assert ledger.remaining == (0.0, 0.0)
    ledger.settle()
    assert ledger.remaining == (1.0, 0.0)


def _never(*_):
    raise AssertionError("noise was drawn")


def test_a_damaged_file(file):
    create_ledger(file, "nsw", epsilon=1.0).charge(a_charge("a"))
    whole = Path(file).read_bytes()
    Path(file).write_bytes(whole[:100] + os.urandom(4000) + whole[4100:])
    with pytest.raises(LedgerError, match=r"damaged|not a ledger"):
        open_ledger(file).charge(a_charge("b"))
    Path(file).write_text("not a database at all, but a text of some length" * 100)
    with pytest.raises(LedgerError, match="not a ledger"):
        open_ledger(file)
    Path(file).write_bytes(b"")
    with pytest.raises(LedgerError, match="not a ledger"):
        open_ledger(file)


def test_another_database_is_not_a_ledger(file):
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE people (name TEXT)")
    with pytest.raises(LedgerError, match="not a ledger"):
        open_ledger(file)


def test_another_version_is_refused(file):
    ledger = create_ledger(file, "nsw", epsilon=1.0)
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE dpeffects_version SET version = 99")
    connection.close()
    for act in (lambda: open_ledger(file), lambda: ledger.charge(a_charge("a")), ledger.verify):
        with pytest.raises(LedgerError, match="version 99"):
            act()


def test_a_ledger_in_use_for_too_long(file, monkeypatch):
    ledger = create_ledger(file, "nsw", epsilon=1.0)
    monkeypatch.setattr("dpeffects.ledgers.sqlite.WAIT", 0.1)
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(LedgerError, match="in use by others"):
        ledger.charge(a_charge("a"))
    assert ledger.charges == ()  # readers are let in
    other.execute("ROLLBACK")
    other.close()
    ledger.charge(a_charge("a"))


def test_entries_cannot_be_edited(file):
    ledger = create_ledger(file, "nsw", epsilon=1.0)
    ledger.charge(a_charge("a"))
    edits = (
        "DELETE FROM dpeffects_entries",
        "UPDATE dpeffects_entries SET state = ''",
        "INSERT OR REPLACE INTO dpeffects_entries SELECT * FROM dpeffects_entries",
        "INSERT INTO dpeffects_entries SELECT 9, nonce, kind, dataset, call, body, state, hold, "
        "written, previous, heads, nodes, digest FROM dpeffects_entries LIMIT 1",
    )
    with contextlib.closing(sqlite3.connect(file)) as connection:
        for edit in edits:
            with pytest.raises(sqlite3.IntegrityError, match="only added to"):
                connection.execute(edit)
    assert "sound" in ledger.verify()


def _tamper(file, *statements):
    """Edit a ledger by force: its guards are taken away and put back."""
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as connection:
        guards = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'")
        guards = guards.fetchall()
        for name, _ in guards:
            connection.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            connection.execute(statement)
        for _, sql in guards:
            connection.execute(sql)


EDITS = {
    "a smaller charge": """UPDATE dpeffects_entries SET body = replace(body, '0.1', '0.01')
        WHERE number = 3""",
    "a larger budget": """UPDATE dpeffects_entries SET body = replace(body, '1.0', '9.0')
        WHERE number = 1""",
    "other totals": """UPDATE dpeffects_entries SET state =
        (SELECT state FROM dpeffects_entries WHERE number = 1) WHERE number = 3""",
    "a charge less": "DELETE FROM dpeffects_entries WHERE number = 2",
    "another time": "UPDATE dpeffects_entries SET written = '' WHERE number = 2",
}


@pytest.mark.parametrize("edit", EDITS)
def test_edits_are_noticed(file, edit):
    ledger = create_ledger(file, "nsw", epsilon=1.0)
    for _ in range(3):
        ledger.charge(a_charge("a"))
    _tamper(file, EDITS[edit])
    with pytest.raises(LedgerError, match=r"changed|missing"):
        verify_ledger(file)


def test_edits_that_matter_are_noticed_by_the_next_charge(file):
    create_ledger(file, "nsw", epsilon=1.0).charge(a_charge("a"))
    _tamper(file, "UPDATE dpeffects_entries SET state = replace(state, '/', '0/') WHERE number = 2")
    with pytest.raises(LedgerError, match="entry 2 of the ledger was changed"):
        open_ledger(file).charge(a_charge("b"))


def test_missing_guards_are_noticed(file):
    create_ledger(file, "nsw", epsilon=1.0)
    with contextlib.closing(sqlite3.connect(file)) as connection:
        connection.execute("DROP TRIGGER dpeffects_no_delete")
    with pytest.raises(LedgerError, match="dpeffects_no_delete is gone"):
        verify_ledger(file)


def test_a_forged_entry_is_noticed(file):
    """Digests can be made up, totals that follow the rules cannot exceed what is allowed."""
    from dataclasses import replace

    from dpeffects.ledgers.transaction import Transaction

    ledger = create_ledger(file, "nsw", epsilon=1.0)
    ledger.charge(a_charge("a", 0.9))
    charge = ledger.entries()[-1]
    with ledger._store.session(write=True) as session:
        Transaction(session).add("charge", "nsw", charge.body, replace(charge.state, charges=2))
    with pytest.raises(LedgerError, match="should have been refused"):
        verify_ledger(file)


def test_a_file_that_was_set_back_is_noticed_by_who_wrote_to_it(file, tmp_path):
    ledger = create_ledger(file, "nsw", epsilon=1.0)
    ledger.charge(a_charge("a", 0.5))
    shutil.copy(file, tmp_path / "old.db")
    ledger.charge(a_charge("b", 0.5))
    head = ledger.verify().split()[-1]
    shutil.copy(tmp_path / "old.db", file)
    with pytest.raises(
        LedgerError, match=r"replaced (by another one or by an older copy|or set back)"
    ):
        ledger.charge(a_charge("c", 0.5))
    with pytest.raises(
        LedgerError, match=r"replaced (by another one or by an older copy|or set back)"
    ):
        verify_ledger(file, head)


def test_a_file_that_was_deleted_is_not_made_again(file, folder):
    ledger = create_ledger(file, "nsw", epsilon=1.0)
    os.remove(file)
    with pytest.raises(LedgerError, match="cannot be opened"):
        ledger.charge(a_charge("a"))
    assert [p.name for p in folder.iterdir()] == ["study.db.seen"]


def test_a_write_ahead_log_made_by_others_is_no_harm(file):
    ledger = create_ledger(file, "nsw", epsilon=1.0)
    with contextlib.closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
    ledger.charge(a_charge("a"))
    assert len(open_ledger(file).charges) == 1


def test_processes_that_fork_share_nothing(file):
    """Threads charge while the process forks; every charge of parent and child is there."""
    ledger = create_ledger(file, "nsw", epsilon=100.0)
    stop = threading.Event()
    made = []

    def charge_on():
        while not stop.is_set():
            ledger.charge(a_charge("parent"))
            made.append(1)

    thread = threading.Thread(target=charge_on)
    thread.start()
    for _ in range(5):
        pid = os.fork()
        if not pid:
            with contextlib.suppress(BaseException):
                ledger.charge(a_charge("child"))
            os._exit(0)
        os.waitpid(pid, 0)
    stop.set()
    thread.join()
    labels = [s.label for s in ledger.charges]
    assert labels.count("child") == 5
    assert labels.count("parent") == len(made)
    assert "sound" in ledger.verify()


def test_charges_stay_fast_as_they_grow_many(file):
    """A charge reads the newest totals only: its work does not grow with the entries."""
    ledger = create_ledger(file, "nsw", epsilon=1e6)
    statements = []
    original = Session.rows

    def counted(self, sql, **values):
        rows = original(self, sql, **values)
        statements.append(len(rows))
        return rows

    Session.rows = counted
    try:
        work = []
        for _ in range(60):
            statements.clear()
            ledger.charge(a_charge("a"))
            work.append((len(statements), sum(statements)))
    finally:
        Session.rows = original
    assert len(set(work[2:])) == 1


# --- a server ---------------------------------------------------------------------------------


def test_a_server_that_crashes_keeps_its_charges(server):
    address = server.url(server.schema())
    ledger = create_ledger(address, "nsw", epsilon=1.0)
    ledger.charge(a_charge("a"))
    server.crash()
    with pytest.raises(LedgerError, match="cannot be reached"):
        ledger.charge(a_charge("b"))
    server.start()
    assert [s.label for s in ledger.charges] == ["a"]
    ledger.charge(a_charge("c"))
    assert "sound" in ledger.verify()


def test_entries_on_a_server_cannot_be_edited(server):
    import psycopg

    schema = server.schema()
    ledger = create_ledger(server.url(schema), "nsw", epsilon=1.0)
    ledger.charge(a_charge("a"))
    for edit in (
        f"DELETE FROM {schema}.dpeffects_entries",
        f"UPDATE {schema}.dpeffects_entries SET state = ''",
        f"TRUNCATE {schema}.dpeffects_entries",
    ):
        with pytest.raises(psycopg.Error):
            server.sql(edit)
    assert "sound" in ledger.verify()
    server.sql(f"DROP TRIGGER dpeffects_only_added_to ON {schema}.dpeffects_entries")
    with pytest.raises(LedgerError, match="is gone"):
        ledger.verify()
    server.sql(f"UPDATE {schema}.dpeffects_entries SET written = ''")
    with pytest.raises(LedgerError, match="changed"):
        ledger.charge(a_charge("b"))


def test_a_user_who_may_only_add(server):
    """The least permission that calls need is to read and to add."""
    schema = server.schema()
    create_ledger(server.url(schema), "nsw", epsilon=1.0)
    role = f"{schema}_analyst"
    server.sql(f"CREATE ROLE {role} LOGIN")
    server.sql(f"GRANT USAGE ON SCHEMA {schema} TO {role}")
    server.sql(f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role}")
    address = server.url(schema).replace("tester@", f"{role}@")
    with pytest.raises(LedgerError, match="may not be used by this user"):
        open_ledger(address).charge(a_charge("a"))
    server.sql(f"GRANT INSERT ON {schema}.dpeffects_entries TO {role}")
    open_ledger(address).charge(a_charge("a"))
    assert len(open_ledger(address).charges) == 1


def test_addresses_of_servers(server):
    with pytest.raises(LedgerError, match="not a ledger"):
        open_ledger(server.url("nowhere"))
    with pytest.raises(LedgerError, match="cannot be reached") as caught:
        open_ledger("postgresql://somebody:secret@127.0.0.1:9/none")
    assert "secret" not in str(caught.value)


def test_a_server_in_use_for_too_long(server, monkeypatch):
    from dpeffects.ledgers import postgresql as module

    address = server.url(server.schema())
    ledger = create_ledger(address, "nsw", epsilon=1.0)
    with ledger._store.session(write=True):
        monkeypatch.setattr(module, "WAIT", 1)
        with pytest.raises(LedgerError, match="in use by others"):
            open_ledger(address).charge(a_charge("a"))
    ledger.charge(a_charge("a"))


# --- exact arithmetic -------------------------------------------------------------------------


@settings(max_examples=15, deadline=None)
@given(st.lists(st.floats(1e-12, 0.7), min_size=1, max_size=8), st.floats(0.1, 2.0))
def test_the_same_decisions_as_in_memory(charges, total):
    import tempfile

    with tempfile.TemporaryDirectory() as made:
        ledger = create_ledger(f"{made}/study.db", "x", epsilon=total)
        memory = Ledger(total)
        for epsilon in charges:
            outcomes = []
            for account in (ledger, memory):
                try:
                    account.charge(a_charge("a", epsilon))
                    outcomes.append(True)
                except BudgetError:
                    outcomes.append(False)
            assert outcomes[0] == outcomes[1]
        assert ledger.spent == memory.spent
        assert ledger.remaining == memory.remaining
        assert ledger.charges == memory.charges
        assert "sound" in ledger.verify()
