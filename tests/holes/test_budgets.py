"""One budget a dataset: in memory, in a file, for scripts and for a federation."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import sqlite3
import sys
import threading
from fractions import Fraction
from pathlib import Path

import pandas as pd
import pytest

import dpeffects as dpe
from dpeffects.errors import (
    BoundsError,
    BudgetError,
    DPEffectsError,
    EstimationError,
    LedgerError,
    OptionError,
    PolicyError,
)
from dpeffects.ledgers import (
    create_ledger,
    ledger_datasets,
    open_ledger,
    verify_ledger,
)
from dpeffects.ledgers.memory import Ledger
from dpeffects.privacy.budget import Budget
from dpeffects.privacy.ledger import Terms
from dpeffects.privacy.noise import SecureNoise
from dpeffects.services.gate import answer
from dpeffects.services.gate import answers as site
from tests.damage import damaged_copies, totals
from tests.federation.sites import frame, policy, question
from tests.killing import TERMS, a_charge

CALL = ("earnings_1978 ~ treatment", dpe.load_data("lalonde"), "diff_in_means")


def fails_after(monkeypatch, draws):
    """Let noise fail after some draws: a call that ends in the middle."""
    left, real = [draws], SecureNoise.laplace

    def laplace(self, *given):
        left[0] -= 1
        if left[0] < 0:
            raise EstimationError("the call ends here")
        return real(self, *given)

    monkeypatch.setattr(SecureNoise, "laplace", laplace)


@pytest.fixture(params=["memory", "file", "zcdp"])
def ledger(request, tmp_path):
    if request.param == "memory":
        return Ledger(3.0, 1e-5)
    rule = "zcdp" if request.param == "zcdp" else "sum"
    return create_ledger(tmp_path / "a.db", "nsw", epsilon=3.0, delta=1e-5, composition=rule)


# --- whole budgets ----------------------------------------------------------------------------


def test_totals_do_not_show_where_a_call_failed(tmp_path, monkeypatch):
    """A call that failed after one draw had spent less than one that failed after two, and both
    less than one that ended well: what was left told how far the call came, which can depend on
    rows."""
    for make in (lambda i: Ledger(2.0), lambda i: create_ledger(tmp_path / f"{i}", "x", epsilon=2)):
        left = set()
        for draws in (0, 1, 2, 99):
            with monkeypatch.context() as patch:
                fails_after(patch, draws)
                account = make(draws)
                with contextlib.suppress(EstimationError):
                    dpe.dp_ate(*CALL, epsilon=1.5, ledger=account)
                left.add((account.remaining, account.spent))
        assert left == {((0.5, 0.0), (Fraction(3, 2), 0))}


def test_a_call_that_stops_under_concentrated_privacy_pays_all_it_had_reserved(tmp_path):
    """The cost of the charges made before a failure told where it was, by any composition."""
    left = set()
    for draws in (1, 2):
        account = create_ledger(
            tmp_path / f"{draws}", "x", epsilon=3, delta=1e-4, composition="zcdp"
        )
        room = account.reserve(Budget(0.4, 1e-5), TERMS, {})
        for number in range(draws):
            room.charge(a_charge(str(number), 0.1), TERMS)
        room.settle()
        assert account.state.used == account.agreement.composition.of_call(
            Fraction(2, 5), Fraction(1, 10**5)
        )
        left.add((account.remaining, account.spent))
        assert "sound" in account.verify()
    assert len(left) == 1


def test_a_call_that_ends_before_its_first_charge_costs_nothing(ledger):
    """Only what was begun is paid for: a mistake in a call is free."""
    before = ledger.remaining
    with pytest.raises(DPEffectsError):
        dpe.dp_ate("nope ~ treatment", *CALL[1:], epsilon=0.5, ledger=ledger)
    room = ledger.reserve(Budget(0.5), TERMS, {})
    assert ledger.remaining != before
    room.settle()
    assert ledger.remaining == before
    assert ledger.charges == ()


def test_an_interrupted_call_pays_its_whole_budget(monkeypatch):
    """Ctrl-C in the middle is an end as any other."""
    account, real = Ledger(2.0), SecureNoise.laplace

    def interrupted(self, *given):
        if account.charges[1:]:
            raise KeyboardInterrupt
        return real(self, *given)

    monkeypatch.setattr(SecureNoise, "laplace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        dpe.dp_ate(*CALL, epsilon=1.5, ledger=account)
    assert account.spent == (Fraction(3, 2), 0)


def test_a_ledger_prints_what_is_spent_reserved_and_left(ledger):
    fit = dpe.dp_ate(*CALL, epsilon=1.5, ledger=(account := Ledger(epsilon=2)))
    assert repr(account) == "Ledger(epsilon=2, delta=0, 3 charges, left (0.5, 0))"
    assert account.charges == fit.charges  # shares are rounded down, which is not worth a line
    account.reserve(Budget(0.25), Terms("record"), {})
    assert repr(account).endswith("left (0.25, 0), reserved (0.25, 0))")


def test_dead_calls_that_had_charged_are_spent(tmp_path):
    """`dpeffects ledger settle` gave back what a dead call had not charged."""
    ledger = create_ledger(tmp_path / "a.db", "nsw", epsilon=1.0)
    ledger.reserve(Budget(0.5), TERMS, {}).charge(a_charge("a", 0.125), TERMS)
    ledger.reserve(Budget(0.25), TERMS, {})
    assert ledger.remaining == (0.25, 0.0)
    ledger.settle()
    assert ledger.remaining == (0.5, 0.0)
    assert ledger.spent == (Fraction(1, 2), 0)
    assert [s.label for s in ledger.charges] == ["a", "rest of the call"]
    assert ledger.tight_epsilon(0.0) == 0.5
    assert "sound, 6 entries, 2 charges" in ledger.verify()


# --- threads and processes --------------------------------------------------------------------


def test_a_call_in_a_thread_is_refused_when_it_begins_or_not_at_all():
    """`Ledger.reserve` only looked: of 200 calls in 16 threads, some were refused in the middle."""
    account, failed, done, gate = Ledger(10.0), [], [], threading.Barrier(16)

    def work():
        gate.wait()
        for _ in range(12):
            try:
                room = account.reserve(Budget(0.1), TERMS, {})
            except BudgetError:
                continue
            try:
                for share in Budget(0.1).shares({"a": 1, "b": 2, "c": 3}).values():
                    room.charge(a_charge("x", share.epsilon), TERMS)
                done.append(1)
            except BudgetError as error:
                failed.append(error)
            room.settle()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert failed == []
    assert len(done) == 100
    assert account.spent == (10, 0)


def test_a_ledger_in_memory_is_of_one_process():
    """After a fork, every process had the whole budget to itself."""
    account = Ledger(1.0)
    room = account.reserve(Budget(0.5), TERMS, {})
    acts = [
        lambda: account.charge(a_charge("a"), TERMS),
        lambda: account.reserve(Budget(0.1), TERMS, {}),
        lambda: account.require(0.1),
        lambda: room.charge(a_charge("a"), TERMS),
        lambda: Ledger(0.5, parent=account).charge(a_charge("a"), TERMS),
        lambda: dpe.dp_ate(*CALL, epsilon=0.1, ledger=account),
    ]
    for number, act in enumerate(acts):
        pid = os.fork()
        if not pid:
            code = 1
            try:
                act()
            except LedgerError as error:
                code = 0 if "ledger in a file" in str(error) else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, number
    room.charge(a_charge("a"), TERMS)  # the process that made it goes on


def test_a_ledger_with_a_parent_reserves_in_both():
    parent = Ledger(1.0)
    child = Ledger(5.0, parent=parent)
    room = child.reserve(Budget(0.75), TERMS, {})
    assert parent.remaining == (0.25, 0.0)
    with pytest.raises(BudgetError):
        child.reserve(Budget(0.5), TERMS, {})
    room.charge(a_charge("a", 0.125), TERMS)
    room.settle()
    room.settle()  # twice is once
    assert (child.spent, parent.spent) == ((Fraction(3, 4), 0),) * 2
    with pytest.raises(BudgetError, match="settled"):
        room.charge(a_charge("a", 0.125), TERMS)


# --- names and files --------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["nsw ", " nsw", "n  sw", "nsw\u00a0", "re\u0301gion"])
def test_a_name_has_one_spelling(tmp_path, name):
    """ "nsw" and "nsw " were two datasets, each with the whole budget."""
    with pytest.raises(OptionError):
        create_ledger(tmp_path / "a.db", name, epsilon=1.0)


@pytest.mark.parametrize("name", ["nsw", "NSW", "n sw", "\uff4esw"])
def test_names_that_look_the_same_are_one_budget(tmp_path, name):
    create_ledger(tmp_path / "a.db", "nsw", epsilon=1.0)
    with pytest.raises(LedgerError, match="already has a budget for nsw"):
        create_ledger(tmp_path / "a.db", name, epsilon=1.0)
    with pytest.raises(LedgerError, match="it has nsw"):
        open_ledger(tmp_path / "a.db", "nsw ")
    assert ledger_datasets(tmp_path / "a.db") == ("nsw",)


def test_what_is_no_file_is_no_ledger(tmp_path):
    """Of a pipe, a device or a folder nothing can be read back."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "pipe", tmp_path / "folder", "/dev/zero", "/dev/null"):
        for act in (open_ledger, lambda p: create_ledger(p, "nsw", epsilon=1.0), verify_ledger):
            with pytest.raises(LedgerError, match="is not a file"):
                act(path)


def test_two_names_for_one_file(tmp_path, monkeypatch):
    """A journal belongs to a name: by a second one, what a killed writer left is not undone."""
    monkeypatch.chdir(tmp_path)
    ledger = create_ledger("a.db", "nsw", epsilon=1.0)
    os.symlink("a.db", "link.db")
    for name in ("link.db", tmp_path / "a.db", "./a.db", tmp_path / "." / "link.db"):
        open_ledger(name).charge(a_charge("a", 0.125))
    assert ledger.remaining == (0.5, 0.0)
    os.link("a.db", "hard.db")
    for name in ("a.db", "hard.db", "link.db"):
        with pytest.raises(LedgerError, match="hard link"):
            open_ledger(name)
    os.remove("hard.db")
    assert open_ledger("a.db").remaining == (0.5, 0.0)


def test_a_ledger_is_not_made_inside_another_file(tmp_path):
    """Tables were added to any SQLite file, a site's old ledger among them: a fresh budget."""
    with contextlib.closing(sqlite3.connect(tmp_path / "a.db")) as other:
        other.execute("CREATE TABLE requests (request TEXT)")
    with pytest.raises(LedgerError, match="is not a ledger; give the ledger a new file"):
        create_ledger(tmp_path / "a.db", "nsw", epsilon=1.0)


# --- damage -----------------------------------------------------------------------------------


def test_damage_is_noticed_or_does_not_matter(tmp_path):
    """A damaged index made a ledger forget charges, and other damage raised errors of all kinds."""
    right = totals(tmp_path / "sound.db", create=True)
    noticed = 0
    for path in damaged_copies(tmp_path / "sound.db", 300, random.Random(1)):
        try:
            found = totals(path)
        except LedgerError:
            noticed += 1
            continue
        assert found == right
    assert noticed > 0


def test_a_damaged_index_is_noticed(tmp_path):
    """Rows that an index does not list are there all the same."""
    totals(tmp_path / "a.db", create=True)
    with contextlib.closing(sqlite3.connect(tmp_path / "a.db", isolation_level=None)) as file:
        sql = "SELECT rootpage FROM sqlite_master WHERE name = 'dpeffects_numbers'"
        page = file.execute(sql).fetchone()[0]
        size = file.execute("PRAGMA page_size").fetchone()[0]
    content = bytearray((tmp_path / "a.db").read_bytes())
    empty = bytes([10, 0, 0, 0, 0, size >> 8, size & 255, 0])  # a leaf of an index with no rows
    content[(page - 1) * size : (page - 1) * size + 8] = empty
    (tmp_path / "a.db").write_bytes(bytes(content))
    with pytest.raises(LedgerError, match="damaged"):
        open_ledger(tmp_path / "a.db", "nsw")


# --- a federation -----------------------------------------------------------------------------


def test_a_script_and_a_federation_spend_from_one_budget(tmp_path):
    """Each had a ledger of its own, and neither counted what the other spent."""
    north = policy(tmp_path)
    call = {"epsilon": 1.25, "method": "diff_in_means", "bounds": {"y": (0, 1)}}
    assert answer(question(), north)["status"] == "ok"
    dpe.dp_ate("y ~ t", frame(), **call, ledger=north.ledger, dataset="hospital")
    assert north.store().left == (0.25, 0.0)
    refused = answer(question("q2"), north)
    assert refused["reason"] == "the total epsilon of this site does not cover the question"
    with pytest.raises(BudgetError):
        dpe.dp_ate("y ~ t", frame(), **call, ledger=north.ledger, dataset="hospital")
    assert answer(question("q3", epsilon=0.25), north)["status"] == "ok"
    assert open_ledger(north.ledger).remaining == (0.0, 0.0)
    assert "sound" in verify_ledger(north.ledger)


def empty(path):
    path.write_bytes(b"")


def fresh(path):
    path.unlink()
    mark = path.with_name(f"{path.name}.seen").rename(path.with_name("aside"))
    create_ledger(path, "hospital", epsilon=2.0)
    mark.rename(path.with_name(f"{path.name}.seen"))


def edited(path):
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as file:
        file.execute("DROP TRIGGER dpeffects_no_update")
        file.execute("UPDATE dpeffects_entries SET state = replace(state, '1/2', '-1000/1')")


def older(path):
    shutil.copy(path.with_name("copy"), path)


@pytest.mark.parametrize("what", [Path.unlink, empty, fresh, edited, older])
def test_a_ledger_that_is_not_the_one_is_refused(tmp_path, what):
    """A site whose ledger was missing, empty, new, edited or set back began again at zero."""
    north = policy(tmp_path)
    shutil.copy(north.ledger, north.ledger.with_name("copy"))
    assert answer(question(), north)["status"] == "ok"
    what(north.ledger)
    before = north.ledger.exists()
    site_again = type(north)(**vars(north))
    assert answer(question("q2"), site_again)["reason"] == site.NOT_READY
    assert answer(question(), site_again)["reason"] == site.NOT_READY
    assert north.ledger.exists() == before


def test_a_policy_names_its_ledger(tmp_path):
    """Moved to a new folder with a new ledger beside it, a site had a fresh budget."""
    made = create_ledger(tmp_path / "ledger.sqlite", "hospital", epsilon=2.0)
    assert answer(question(), policy(tmp_path, ledger_id=made.id))["status"] == "ok"
    north = policy(tmp_path, ledger_id="0" * 16)
    with pytest.raises(PolicyError, match=f"is {made.id}, not the one"):
        north.store()
    assert answer(question("q2"), north)["reason"] == site.NOT_READY


@pytest.mark.parametrize("total", [{"total_epsilon": 20.0}, {"total_delta": 1e-6}])
def test_an_edited_policy_does_not_raise_the_budget(tmp_path, total):
    """The totals were read from the policy alone."""
    policy(tmp_path)
    north = policy(tmp_path, **total)
    with pytest.raises(PolicyError, match="write these into the policy"):
        north.store()
    assert answer(question(), north)["reason"] == site.NOT_READY


def test_a_request_costs_what_a_call_of_its_price_costs(tmp_path):
    """By concentrated privacy too."""
    from dpeffects.services.gate import Store
    from dpeffects.services.gate.store import Price

    ledger = create_ledger(tmp_path / "a.db", "x", epsilon=3, delta=1e-4, composition="zcdp")
    Store(tmp_path / "a.db", 3, 1e-4).reserve("q", "hash", Price(0.5, 1e-6))
    assert ledger.state.used == ledger.agreement.composition.of_call(
        Fraction(1, 2), Fraction(1, 10**6)
    )
    assert ledger.spent == (Fraction(1, 2), Fraction(1, 10**6))
    assert [s.label for s in ledger.charges] == ["request q"]
    assert "sound" in ledger.verify()
    assert "request q" in str(ledger.summary())


@pytest.mark.parametrize(
    ("formula", "ends"),
    [("log(y) ~ t | x + z", (0, 1)), ("y ~ t | x + I(1 / z)", (0, 1)), ("y ~ t | x", (0, 1e-60))],
)
def test_declared_ranges_that_cannot_be_used_cost_nothing_where_others_are_found(formula, ends):
    """The search for the range of x used to be paid for first, and with it the whole call."""
    data = pd.DataFrame({"y": [0.5, 0.25] * 500, "t": [0, 1, 1, 0] * 250})
    data["x"], data["z"] = data["y"] * 3, data["y"]
    ledger = Ledger(8.0)
    with pytest.raises(BoundsError):
        dpe.dp_ate(
            formula, data, "private_ipw", epsilon=8, bounds={"y": ends, "z": (0, 1)}, ledger=ledger
        )
    assert ledger.remaining == (8.0, 0.0)
