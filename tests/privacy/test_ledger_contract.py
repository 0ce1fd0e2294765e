"""What every durable ledger keeps to, in a file and on a server: what is set back or damaged shows,
errors say what was charged and drawn, and no work grows with what is in the ledger."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest

import dpeffects as dpe
from dpeffects.cli.commands import make_parser
from dpeffects.cli.program import COMMANDS
from dpeffects.errors import DPEffectsError, LedgerError, PolicyError
from dpeffects.ledgers import (
    anchor_ledger,
    create_ledger,
    ledger_datasets,
    open_ledger,
    verify_ledger,
)
from dpeffects.ledgers.entry import COLUMNS
from dpeffects.ledgers.sqlite import SQLiteStore
from dpeffects.ledgers.transaction import Session
from dpeffects.privacy.budget import Budget
from dpeffects.privacy.noise import SecureNoise
from dpeffects.services.gate import Store, answer
from dpeffects.services.gate.store import Price
from tests.federation.sites import policy, question
from tests.killing import TERMS, ZEROS, a_charge

ROOT = Path(dpe.__file__).resolve().parents[1]
CALL = ("earnings_1978 ~ treatment", dpe.load_data("lalonde"), "diff_in_means")


def all_kinds(address):
    """A ledger with an entry of every kind: calls that ended and did not, requests, allotments."""
    ledger = create_ledger(address, "nsw", epsilon=100.0)
    store = Store(address, 100.0, dataset="nsw")
    ledger.allot("secondary", 0.25)
    for number in range(3):
        room = ledger.reserve(Budget(0.5), TERMS, {"method": "m"})
        room.charge(a_charge(f"a{number}", 0.25), TERMS)
        store.reserve(f"q{number}", "hash", Price(0.5))
        room.settle() if number < 2 else None
        store.finish(f"q{number}", {"value": number}) if number < 2 else None
    ledger.charge(a_charge("b", 0.25), TERMS)
    ledger.release("secondary")
    return ledger


class Copies:
    """Earlier states of what is at an address, to put back; a file with or without its mark."""

    def __init__(self, address, server=None):
        self.address, self.server, self.kept = str(address), server, {}
        if server is not None:
            self.schema = self.address.rpartition("%3D")[2]
            for table in ("entries", "anchors"):
                sql = f"CREATE TABLE {self.schema}.old_{table} AS TABLE {self.schema}.dpeffects_"
                server.sql(sql + table)
        else:
            names = (self.address, f"{self.address}.seen")
            self.kept = {n: Path(n).read_bytes() for n in names if Path(n).exists()}

    def put_back(self, mark=False):
        if self.server is None:
            name = f"{self.address}.seen" if mark else self.address
            Path(name).write_bytes(self.kept[name])
        elif not mark:
            for table in ("entries", "anchors"):
                table, old = f"{self.schema}.dpeffects_{table}", f"{self.schema}.old_{table}"
                self.server.sql(f"ALTER TABLE {table} DISABLE TRIGGER ALL")
                self.server.sql(f"DELETE FROM {table}")
                self.server.sql(f"INSERT INTO {table} SELECT * FROM {old}")
                self.server.sql(f"ALTER TABLE {table} ENABLE TRIGGER ALL")

    def remove(self, mark=False):
        if self.server is not None:
            self.server.sql(f"DELETE FROM {self.schema}.dpeffects_anchors")
        else:
            Path(f"{self.address}.seen" if mark else self.address).unlink()


@pytest.fixture
def place(request, folder):
    """Makes places for ledgers and anchors, and copies of what is there."""

    def make(kind, name):
        if kind == "file":
            return str(folder / name), Copies
        server = request.getfixturevalue("server")
        return server.url(server.schema()), lambda address: Copies(address, server)

    return make


# --- entries ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["file", "server"])
def test_no_two_entries_are_equal_by_chance(place, kind, monkeypatch):
    """Set back and spent again in the same way at the same moment: another chain, every time."""
    from dpeffects.ledgers import transaction

    class Clock:
        now = staticmethod(lambda zone: __import__("datetime").datetime(2026, 1, 1, tzinfo=zone))

    monkeypatch.setattr(transaction, "datetime", Clock)
    address, copies = place(kind, "study.db")
    ledger = all_kinds(address)
    early, heads = copies(address), set()
    for _ in range(5):
        early.put_back()
        early.put_back(mark=True)
        open_ledger(address).charge(a_charge("again", 0.25), TERMS)
        heads.add(verify_ledger(address).split()[-1])
    assert len(heads) == 5
    entries = open_ledger(address).entries()
    assert {entry.kind for entry in entries} >= {"dataset", "reserve", "charge", "settle", "reply"}
    assert len({entry.nonce for entry in entries}) == len(entries) > 15
    assert [entry.number for entry in entries] == list(range(1, len(entries) + 1))
    assert ledger.id not in {e.digest[:16] for e in all_kinds(place(kind, "b.db")[0]).entries()}


def test_every_writer_leaves_the_mark(folder, monkeypatch):
    """Scripts as sites do: after each thing that ends, the mark is the newest entry."""
    monkeypatch.chdir(folder)
    ledger = create_ledger("a.db", "nsw", epsilon=100.0)
    store = Store("a.db", 100.0)
    room = ledger.reserve(Budget(0.5), TERMS, {})
    room.charge(a_charge("a", 0.25), TERMS)

    def shell(line):
        args = make_parser(COMMANDS).parse_args(["ledger", *line.split()])
        args.run(args)

    acts = [
        room.settle,
        lambda: ledger.charge(a_charge("b", 0.25), TERMS),
        lambda: ledger.allot("x", 0.1),
        lambda: ledger.release("x"),
        lambda: store.reserve("q", "hash", Price(0.5)),
        lambda: store.finish("q", {}),
        lambda: dpe.dp_ate(*CALL, epsilon=1, ledger="a.db", dataset="nsw"),
        lambda: shell("allot a.db y 0.1"),
        lambda: shell("create a.db --dataset other --epsilon 1"),
        lambda: shell("anchor a.db anchor.db"),
    ]
    for act in acts:
        before = Path("a.db.seen").read_text()
        act()
        after = Path("a.db.seen").read_text()
        assert before != after
        assert after.split()[1] == verify_ledger("a.db").split()[-1]


# --- what was set back ------------------------------------------------------------------------


def said_in_security():
    """The table of SECURITY.md: (ledger, mark, anchor) -> what happens."""
    text = (ROOT / "SECURITY.md").read_text()
    table = text.split("| ledger | mark | anchor | what happens |")[1].split("\n\n")[0]
    found = {}
    for line in table.strip().splitlines()[1:]:
        *three, outcome = (cell.strip() for cell in line.strip("|").split("|"))
        for combination in itertools.product(*(cell.split(", ") for cell in three)):
            assert combination not in found
            found[combination] = outcome
    return found


SAID = said_in_security() if "| ledger | mark |" in (ROOT / "SECURITY.md").read_text() else {}
WAYS = [("file", "file"), ("file", "server"), ("server", "file"), ("server", "server")]


def test_the_table_is_complete():
    marks, anchors = ("as it was", "set back", "removed"), ("none", *("as it was", "set back"))
    every = set(itertools.product(marks[:2], marks, (*anchors, "removed")))
    assert set(SAID) == every
    assert len(every) == 24


@pytest.mark.sampled(5)
@pytest.mark.parametrize("stores", WAYS, ids="-".join)
def test_copies_that_are_put_back_are_refused_or_said_not_to_be(place, stores):
    """All combinations of ledger, mark and anchor, each opened in all ways."""
    for (ledger_is, mark_is, anchor_is), outcome in SAID.items():
        if "server" in stores and mark_is != "removed":
            continue  # a ledger on a server has no mark
        if anchor_is == "none" and stores[1] == "server":
            continue  # as with a file
        stem = "-".join((ledger_is, mark_is, anchor_is)).replace(" ", "_")
        address, copies = place(stores[0], f"{stem}.db")
        second, anchors = place(stores[1], f"{stem}.anchor")
        ledger = create_ledger(
            address, "nsw", epsilon=2.0, anchor=None if anchor_is == "none" else second
        )
        ledger.charge(a_charge("a", 0.5), TERMS)
        early = copies(address)
        early_anchor = anchors(second) if anchor_is != "none" else None
        ledger.charge(a_charge("b", 1.25), TERMS)
        if ledger_is == "set back":
            early.put_back()
        if mark_is == "set back":
            early.put_back(mark=True)
        if mark_is == "removed" and stores[0] == "file":
            early.remove(mark=True)
        if anchor_is == "set back":
            early_anchor.put_back()
        if anchor_is == "removed":
            early_anchor.remove()
        noticed = {name: refuses(way, address) for name, way in OPENINGS.items()}
        case = (stores, ledger_is, mark_is, anchor_is, noticed)
        assert set(noticed.values()) == {outcome == "refused"}, case
        if outcome == "**not noticed**":
            assert open_ledger(address).remaining == (1.5, 0.0), case  # the budget is back
            assert "would not show" in verify_ledger(address) or anchor_is == "set back", case
        if outcome.startswith("used"):
            again = open_ledger(address)
            again.charge(a_charge("c", 0.25), TERMS)
            newest = set(again._chain.known().values())
            assert newest == {(len(again.entries()), again.verify().split()[-1])}, case


OPENINGS = {
    "open_ledger": open_ledger,
    "verify_ledger": verify_ledger,
    "a site": lambda address: Store(address, 2.0),
    "a list": ledger_datasets,
    "a second dataset": lambda address: create_ledger(address, "nsw", epsilon=1.0),
}


def refuses(way, address):
    """Whether a ledger is refused because it was set back, or its anchor is not there."""
    try:
        way(address)
    except (LedgerError, PolicyError) as error:
        return "set back" in str(error) or "anchor" in str(error)
    return False


class Untouchable:
    """Data that must not be read."""

    def __getattr__(self, name):
        raise AssertionError(f"data was read: {name}")


CALLS = [
    name
    for name in dpe.__all__
    if inspect.isfunction(getattr(dpe, name))
    and "ledger" in inspect.signature(getattr(dpe, name)).parameters
    and "formula" in inspect.signature(getattr(dpe, name)).parameters
]
NEEDED = {
    "dp_late": {"instrument": "z"},
    "dp_rate": {"offset": "years"},
    "dp_survival": {"horizon": 3.0, "formula": "Surv(time, event) ~ t | x"},
    "dp_did": {"before": "y0"},
}


@pytest.mark.parametrize("anchored", [False, True])
def test_every_public_call_refuses_a_ledger_that_was_set_back(folder, anchored):
    """By its path alone, before data is read, whether the mark or the anchor knows better."""
    path = folder / "study.db"
    ledger = create_ledger(path, "x", epsilon=9, anchor=folder / "anchor.db" if anchored else None)
    early = Copies(path)
    ledger.charge(a_charge("a", 0.5), TERMS)
    early.put_back()
    early.put_back(mark=True) if anchored else None
    assert len(CALLS) >= 11
    for name in CALLS:
        given = {"formula": "y ~ t | x", "epsilon": 1, "ledger": path, **NEEDED.get(name, {})}
        with pytest.raises(LedgerError, match="set back"):
            getattr(dpe, name)(data=Untouchable(), **given)


@pytest.mark.parametrize("place", ["none/a.db", "a.db", "link.db", "a.db.seen", "text.csv"])
def test_without_its_anchor_there_is_no_ledger(folder, place):
    """The ledger was made before its anchor, and could be spent from where that had failed."""
    (folder / "link.db").symlink_to(folder / "a.db")
    (folder / "text.csv").write_text("y,t\n1,0\n")
    with pytest.raises(DPEffectsError):
        create_ledger(folder / "a.db", "x", epsilon=1.0, anchor=folder / place)
    assert not (folder / "a.db").exists()
    create_ledger(folder / "a.db", "x", epsilon=1.0, anchor=folder / "anchor.db")
    assert "not behind its anchor" in verify_ledger(folder / "a.db")


def test_an_anchor_is_somewhere_else_and_is_made_once(folder):
    path, place = folder / "a.db", folder / "anchor.db"
    ledger = create_ledger(path, "x", epsilon=1.0)
    with pytest.raises(DPEffectsError, match="another place"):
        anchor_ledger(path, path)
    anchor_ledger(path, place)
    anchor_ledger(path, place)  # twice is once
    assert "not behind its anchor" in verify_ledger(path)
    ledger.charge(a_charge("a", 0.5), TERMS)  # opened before it was there
    assert ledger._chain.anchor.read() == ledger._chain.seen
    place.rename(folder / "moved.db")
    with pytest.raises(LedgerError, match=r"anchor .*anchor\.db cannot be opened"):
        open_ledger(path)
    assert open_ledger(path, anchor=folder / "moved.db").remaining == (0.5, 0.0)
    create_ledger(folder / "b.db", "x", epsilon=1.0)
    with pytest.raises(LedgerError, match="has no anchor of this ledger"):
        open_ledger(folder / "b.db", anchor=folder / "moved.db")
    anchor_ledger(path, folder / "moved.db")
    ledger = open_ledger(path)
    assert ledger.remaining == (0.5, 0.0)
    early = Copies(path)
    ledger.charge(a_charge("b", 0.25), TERMS)
    early.put_back()
    early.put_back(mark=True)
    for act in (lambda: anchor_ledger(path, folder / "moved.db"), lambda: open_ledger(path)):
        with pytest.raises(LedgerError, match="set back"):
            act()


@pytest.mark.parametrize("kind", ["file", "server"])
def test_a_charge_that_cannot_be_anchored_is_not_drawn(place, folder, kind, monkeypatch):
    """An anchor that fails after the commit: charged and not drawn; before: not charged either."""
    from dpeffects.ledgers.chain import Anchor

    address, _ = place(kind, "a.db")
    ledger = create_ledger(address, "nsw", epsilon=3.0, anchor=folder / "anchor.db")
    monkeypatch.setattr(SecureNoise, "laplace", _never)

    def fails(*_):
        raise LedgerError("the anchor is away")

    for method, spent in (("read", 0), ("write", 0)):
        with monkeypatch.context() as patch:
            patch.setattr(Anchor, method, fails)
            with pytest.raises(LedgerError, match="anchor is away"):
                dpe.dp_ate(*CALL, epsilon=1, ledger=ledger)
        assert ledger.spent == (spent, 0)
    room = ledger.reserve(Budget(0.5), TERMS, {})
    with monkeypatch.context() as patch:
        patch.setattr(Anchor, "write", fails)
        with pytest.raises(LedgerError, match=r"\(charge\) is in the ledger; no noise was drawn"):
            room.charge(a_charge("a", 0.25), TERMS)
    assert ledger.spent == (Fraction(1, 4), 0)
    assert "sound" in verify_ledger(address)


def test_a_ledger_that_is_set_back_between_commit_and_anchor(folder, monkeypatch):
    """Another writer spends the same budget and is anchored first: the one before does not draw."""
    from dpeffects.ledgers.chain import Anchor

    path, real = folder / "a.db", Anchor.write
    ledger = create_ledger(path, "nsw", epsilon=1.0, anchor=folder / "anchor.db")
    early, turns = Copies(path), []

    def interrupted(self, *given):
        if turns and turns.pop() == "set back":
            early.put_back()
            early.put_back(mark=True)
            open_ledger(path).charge(a_charge("other", 0.25), TERMS)
        elif turns == [] and given[0] == 4:
            open_ledger(path).charge(a_charge("other", 0.25), TERMS)
        return real(self, *given)

    monkeypatch.setattr(Anchor, "write", interrupted)
    turns.append("set back")
    with pytest.raises(LedgerError, match="this process has seen: it was replaced or set back"):
        ledger.charge(a_charge("a", 1.0), TERMS)
    assert [s.label for s in open_ledger(path).charges] == ["other"]
    open_ledger(path).charge(a_charge("b", 0.25), TERMS)  # another is faster, and all is well
    assert [s.label for s in open_ledger(path).charges] == ["other", "b", "other"]


def _never(*_):
    raise AssertionError("noise was drawn")


# --- damage -----------------------------------------------------------------------------------


def edited(file, *statements):
    """Edit a copy by force, without the guards."""
    copy = Path(f"{file}.edited")
    shutil.copy(file, copy)
    with contextlib.closing(sqlite3.connect(copy, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous=OFF")
        for (name,) in connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'trigger'"
        ).fetchall():
            connection.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            connection.execute(statement)
        for name, action in SQLiteStore.triggers.items():
            connection.execute(f"CREATE TRIGGER {name} {action}")
    return copy


def test_every_edit_of_every_entry_is_noticed(file):
    """A character of any column changed, an entry removed, two exchanged, or the last ones cut."""
    entries = all_kinds(file).entries()
    edits, last = [], {entry.kind: entry.number for entry in entries}
    for number in range(1, len(entries) + 1):
        for column in COLUMNS[1:] if number in last.values() else ():
            value = "call + 1" if column == "call" else f"{column} || ' '"
            edit = f"UPDATE dpeffects_entries SET {column} = {value} WHERE number = ?"
            edits.append((edit, number))
        edits.append(("DELETE FROM dpeffects_entries WHERE number = ?", number))
        edits.append(("UPDATE dpeffects_entries SET number = -1 WHERE number = ?", number))
    noticed = 0
    for statement, number in edits:
        copy = edited(file, statement.replace("?", str(number)))
        cut = statement.startswith("DELETE") and number == len(entries)
        with pytest.raises(LedgerError) if not cut else contextlib.nullcontext():
            verify_ledger(copy)
            noticed -= 1
        noticed += 1
    assert noticed == len(edits) - 1 > 120
    swaps = 0
    for number in range(1, len(entries)):
        swap = f"UPDATE dpeffects_entries SET number = {{}} WHERE number = {number + 1}"
        moves = (f"UPDATE dpeffects_entries SET number = -1 WHERE number = {number}",)
        moves += (swap.format(number),)
        moves += (f"UPDATE dpeffects_entries SET number = {number + 1} WHERE number = -1",)
        with pytest.raises(LedgerError):
            verify_ledger(edited(file, *moves))
        swaps += 1
    assert swaps == len(entries) - 1
    # cut ends are older copies: the mark knows
    copy = edited(file, f"DELETE FROM dpeffects_entries WHERE number = {len(entries)}")
    shutil.copy(f"{file}.seen", f"{copy}.seen")
    with pytest.raises(LedgerError, match="set back"):
        verify_ledger(copy)


# --- full disks -------------------------------------------------------------------------------

TOLD = re.compile(r"entry (\d+) \((\w+)\) is (not )?in the ledger")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", ["file", "server"])
@pytest.mark.parametrize("when", ["before", "at the commit", "after the commit"])
def test_an_error_says_what_was_charged_and_drawn(place, kind, when, monkeypatch):
    """Whichever entry of a call cannot be written: reservation, charges, or its end."""
    drawn, real = [], SecureNoise.laplace
    monkeypatch.setattr(
        SecureNoise, "laplace", lambda self, *given: (drawn.append(1), real(self, *given))[1]
    )
    cases = 0
    for failing in itertools.count(1):
        address, _ = place(kind, f"{failing}.db")
        ledger = create_ledger(address, "nsw", epsilon=2.0)
        drawn.clear()
        said, left = [], [failing]
        with monkeypatch.context() as patch:
            fail_at(patch, type(ledger._store), left, when)
            with pytest.warns() if failing == 5 else contextlib.nullcontext() as warned:
                try:
                    dpe.dp_ate(*CALL, epsilon=1, ledger=ledger)
                except LedgerError as error:
                    said.append(str(error))
            said += [str(each.message) for each in warned or ()]
        if left[0] > 0:
            break
        cases += 1
        entries = open_ledger(address).entries()
        charges = [e for e in entries if e.kind == "charge"]
        assert len(drawn) == min(failing - 2, 3) if failing > 1 else not drawn
        assert len(drawn) <= len(charges)
        text = said[0]
        number, what, missing = TOLD.search(text).groups()
        held = [e for e in entries if e.number == int(number) and e.kind == what]
        assert bool(held) == (missing is None) == (when == "after the commit")
        assert "nothing was drawn" not in text
        if failing > 1:
            paid = sum(e.body["charge"]["epsilon"] for e in charges[: len(drawn)])
            before = "charged and drawn nothing" if not drawn else f"charged epsilon {paid:.6g}, "
            assert f"before, the call has {before}" in text
        assert ("no noise was drawn for this charge" in text) == (what == "charge")
        assert "sound" in verify_ledger(address)
    assert cases == 5


def fail_at(patch, kind, left, when):
    """Let the n-th entry that is added fail: at once, when it is committed, or just after."""
    session = kind.session

    @contextlib.contextmanager
    def failing(self, write, more=False):
        with session(self, write, more) as real:
            add = real.rows

            def rows(sql, **values):
                left[0] -= (added := sql.startswith("INSERT INTO dpeffects_entries"))
                if added and left[0] == 0 and when == "before":
                    raise LedgerError("the disk is full")
                return add(sql, **values)

            real.rows = rows
            before = left[0]
            yield real
            if before > 0 == left[0] and when == "at the commit":
                raise LedgerError("the disk is full")
        if before > 0 == left[0] and when == "after the commit":
            raise LedgerError("the disk is full")

    patch.setattr(kind, "session", failing)


# --- growth -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["file", "server"])
def test_no_work_grows_with_entries_calls_or_requests(place, kind, monkeypatch):
    """Rows that are read and bytes that are written, with 5 and with 50 of everything."""
    address, _ = place(kind, "a.db")
    ledger = create_ledger(address, "nsw", epsilon=1e6)
    store, original, found = Store(address, 1e6), Session.rows, []

    def counted(self, sql, **values):
        rows = original(self, sql, **values)
        found.append((len(rows), len(str(values))))
        return rows

    def work(act):
        found.clear()
        act()
        return sum(rows for rows, _ in found), max(size for _, size in found)

    monkeypatch.setattr(Session, "rows", counted)
    most = {}
    for size in (5, 45):
        for _ in range(size):
            room = ledger.reserve(Budget(0.5), TERMS, {"method": "m"})
            store.reserve(f"{size}.{room.call}", "hash", Price(0.5))
        acts = {
            "open": lambda: open_ledger(address),
            "charge": lambda: ledger.charge(a_charge("a"), TERMS),
            "reserve": lambda: ledger.reserve(Budget(0.5), TERMS, {"method": "m"}),
            "charge in a call": lambda room=room: room.charge(a_charge("a"), TERMS),
            "settle": room.settle,
            "find": lambda: store.find("new", "hash"),
            "request": lambda size=size: store.reserve(f"q{size}", "hash", Price(0.5)),
            "reply": lambda size=size: store.finish(f"q{size}", {}),
        }
        for name, act in acts.items():
            rows, written = work(act)
            most.setdefault(name, []).append((rows, written))
    for name, ((few, small), (many, large)) in most.items():
        assert many <= few + 4 <= 24, (name, most[name])  # four levels of a tree
        assert large <= small + 600 <= 2500, (name, most[name])  # sixteen numbers in each
    assert "sound" in ledger.verify()


# --- processes --------------------------------------------------------------------------------


@pytest.mark.sampled(2)
def test_killed_writers_with_an_anchor(address, folder):
    """Nothing is released that is not anchored, and no kill leaves a ledger that does not open."""
    command = [sys.executable, "-m", "tests.killing", "anchored", address, "16", "6", "40", "0.2"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["charges"] > 0
    assert [name for name in ZEROS if found.get(name)] == [], found
    assert found["sound"] == "sound"


# --- sites ------------------------------------------------------------------------------------


@pytest.mark.parametrize("stores", WAYS, ids="-".join)
def test_a_policy_names_a_ledger_and_an_anchor_anywhere(place, stores, tmp_path):
    """Paths are relative to the policy's file, and addresses of servers are as they are."""
    address, _ = place(stores[0], "site.db")
    second, anchors = place(stores[1], "anchor.db")
    create_ledger(address, "hospital", epsilon=2.0, anchor=second)
    names = {"ledger": address, "anchor": second}
    if stores == ("file", "file"):
        names = {name: os.path.relpath(value, tmp_path) for name, value in names.items()}
    north = policy(tmp_path, **names)
    assert answer(question(), north)["status"] == "ok"
    assert answer(question(), north)["status"] == "ok"  # the same again
    assert north.store().left == (1.5, 0.0)
    anchors(second).remove()
    assert "not ready" in answer(question("q2"), north)["reason"]
    with pytest.raises(PolicyError, match="anchor"):
        north.store()
