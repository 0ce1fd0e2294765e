"""Allotments: shares of a ledger for later calls, wherever the ledger is (claim L4)."""

import contextlib
import json
import os
import random
import signal
import sqlite3
import threading
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import dpeffects as dpe
from dpeffects.errors import BudgetError, LedgerError, OptionError, RefusalError
from dpeffects.guarantee import rows_of
from dpeffects.ledgers import create_ledger, open_ledger
from dpeffects.ledgers.memory import Ledger
from dpeffects.ledgers.transaction import Session
from dpeffects.privacy.budget import Budget, as_written
from dpeffects.privacy.charges import Charge
from dpeffects.privacy.ledger import Terms
from dpeffects.services.gate.store import Price, Store
from tests.killing import TERMS, a_charge

ABOUT = {"method": "diff_in_means", "formula": "y ~ t"}
TINY = 1e-15
CALL = ("earnings_1978 ~ treatment", dpe.load_data("lalonde"), "diff_in_means")


@pytest.fixture(params=["memory", "file", "server"])
def make(request, folder):
    """Makes one ledger, wherever it is."""

    def made(epsilon=1.0, delta=0.0, **agreed):
        if request.param == "memory":
            return Ledger(epsilon, delta, **agreed)
        if request.param == "file":
            return create_ledger(folder / "study.db", "nsw", epsilon=epsilon, delta=delta, **agreed)
        server = request.getfixturevalue("server")
        address = server.url(server.schema())
        return create_ledger(address, "nsw", epsilon=epsilon, delta=delta, **agreed)

    return made


def sound(ledger):
    """Held is what open calls and allotments have; a replay of all entries gives these totals."""
    if isinstance(ledger, Ledger):
        return True
    with ledger.transaction(write=False) as transaction:
        calls = [hold.left for _, hold in transaction.open_calls(ledger.dataset)]
        state = transaction.state(ledger.dataset)
    lefts = [*calls, *(part.left for part in state.allotments.values())]
    assert state.held == (sum(x[0] for x in lefts), sum(x[1] for x in lefts))
    assert all(x >= 0 for amounts in lefts for x in amounts)
    return "sound" in ledger.verify()


# --- what it may spend ------------------------------------------------------------------------


@pytest.mark.sampled(3)
def test_an_allotment_spends_its_share_and_no_more(make):
    ledger = make(delta=1e-5)
    secondary = ledger.allot("secondary", 0.3)
    assert secondary.remaining == (0.3, 3e-6)
    assert ledger.remaining == (0.7, 7e-6)
    for account, left in ((secondary, 0.3), (ledger, 0.7)):
        for epsilon, delta in ((left + TINY, 0.0), (0.1, left * 1e-5 * (1 + TINY))):
            with pytest.raises(BudgetError, match="is left"):
                account.reserve(Budget(epsilon, delta), TERMS, ABOUT)
            with pytest.raises(BudgetError, match="is left"):
                account.require(epsilon, delta)
        with pytest.raises(BudgetError, match="is left"):
            account.charge(a_charge("a", left + TINY), TERMS)
    assert ledger.charges == ()
    call = secondary.reserve(Budget(0.3, 3e-6), TERMS, ABOUT)
    call.charge(a_charge("a", 0.1), TERMS)
    with pytest.raises(BudgetError):
        call.charge(a_charge("b", 0.2 + TINY), TERMS)
    with pytest.raises(BudgetError, match=r"only \(0, 0\) is left in the allotment 'secondary'"):
        secondary.require(TINY)
    call.settle()
    assert secondary.spent == ledger.spent == (as_written(0.3), as_written(3e-6))
    own = ledger.reserve(Budget(0.7, 7e-6), TERMS, ABOUT)
    own.charge(a_charge("c", 0.7, 7e-6), TERMS)
    own.settle()
    assert ledger.spent == (1, as_written(1e-5))
    assert sound(ledger)


def test_charges_outside_calls(make):
    ledger = make()
    secondary = ledger.allot("secondary", 0.5)
    secondary.charge(a_charge("a", 0.25), TERMS)
    with pytest.raises(BudgetError):
        secondary.charge(a_charge("b", 0.25 + TINY), TERMS)
    secondary.charge(a_charge("b", 0.25), TERMS)
    with pytest.raises(BudgetError):
        secondary.charge(a_charge("c", 5e-324), TERMS)
    assert secondary.spent == ledger.spent == (Fraction(1, 2), 0)
    assert ledger.remaining == (0.5, 0.0)
    assert sound(ledger)


def test_exact_shares(make):
    """Ten tenths are the whole; a share that is no float is not rounded up."""
    ledger = make(0.7)
    for k in range(10):
        assert ledger.allot(f"tenth {k}", 0.1).remaining == (0.07, 0.0)
    assert ledger.remaining == (0.0, 0.0)
    with pytest.raises(BudgetError, match=r"allotments keep \(0\.7, 0\)"):
        ledger.allot("more", 1e-300)
    assert sound(ledger)


def test_no_more_than_is_left(make):
    """What was spent, what calls have reserved and what was allotted cannot be allotted again."""
    ledger = make()
    ledger.charge(a_charge("a", 0.25), TERMS)
    room = ledger.reserve(Budget(0.25), TERMS, ABOUT)
    ledger.allot("first", 0.25)
    for share in (0.25 + TINY, 1.0):
        with pytest.raises(BudgetError, match=r"only \(0\.25, 0\) is left"):
            ledger.allot("second", share)
    assert list(ledger.allotments) == ["first"]
    assert ledger.allot("second", 0.25).remaining == (0.25, 0.0)
    room.settle()
    assert ledger.remaining == (0.25, 0.0)
    assert sound(ledger)


def test_asking_again_gives_the_same(make):
    ledger = make()
    ledger.allot("secondary", 0.3).charge(a_charge("a", 0.125), TERMS)
    again = ledger.allot("secondary", 0.3)
    assert again.remaining == ledger.allotment("secondary").remaining == (0.175, 0.0)
    assert ledger.remaining == (0.7, 0.0)
    for share in (0.2, 0.30000000000000004, 1):
        with pytest.raises(OptionError, match=r"'secondary' is 0\.3 of the ledger, not") as caught:
            ledger.allot("secondary", share)
        assert "\n" not in str(caught.value)
    assert ledger.allot("other", np.float64(0.7)).remaining == (0.7, 0.0)
    assert sound(ledger)


@pytest.mark.parametrize("share", [0, -0.1, 1.0000001, np.nan, np.inf, True, None, "0.3", 1j])
def test_shares_that_are_none(make, share):
    ledger = make()
    with pytest.raises(OptionError, match="share must be above 0 and at most 1"):
        ledger.allot("secondary", share)
    assert ledger.allotments == {}


@pytest.mark.parametrize("name", ["", " ", " a", "a\nb", None, 3, ["a"], "a\ud800"])
def test_names_that_are_none(make, name):
    ledger = make()
    for act in (lambda: ledger.allot(name, 0.1), lambda: ledger.allotment(name)):
        with pytest.raises(OptionError, match="allotment"):
            act()
    with pytest.raises(OptionError):
        ledger.release(name)


def test_an_allotment_that_is_not_there(make):
    ledger = make()
    ledger.allot("secondary", 0.3)
    for act in (ledger.allotment, ledger.release):
        with pytest.raises(OptionError, match="no allotment 'primary'; it has secondary"):
            act("primary")
    assert not hasattr(ledger.allotment("secondary"), "allot")  # a share of a share is refused


def test_a_ledger_with_a_parent_refuses(make):
    whole = make()
    with pytest.raises(OptionError, match="allot a share of that one"):
        Ledger(1.0, parent=whole).allot("secondary", 0.3)
    own = Ledger(1.0, parent=whole.allot("secondary", 0.3))
    own.charge(a_charge("a", 0.25), TERMS)
    with pytest.raises(BudgetError, match="in the allotment 'secondary'"):
        own.charge(a_charge("b", 0.25), TERMS)
    assert whole.allotment("secondary").spent == own.spent == (Fraction(1, 4), 0)


def test_terms_are_those_of_the_ledger(make):
    ledger = make()
    secondary = ledger.allot("secondary", 0.3)
    ledger.charge(a_charge("a", 0.1), TERMS)
    patients = Terms(rows_of("patient_id"))
    with pytest.raises(BudgetError, match="do not add up"):
        secondary.reserve(Budget(0.1), patients, ABOUT)
    with pytest.raises(BudgetError, match="do not add up"):
        secondary.charge(a_charge("b", 0.1), patients)
    secondary.charge(a_charge("c", 0.1), Terms("record", void=("seeded",)))
    assert "VOID: seeded" in repr(ledger)
    agreed = make(unit="patient_id") if isinstance(ledger, Ledger) else None
    if agreed is not None:
        with pytest.raises(BudgetError, match="unit="):
            agreed.allot("secondary", 0.3).reserve(Budget(0.1), TERMS, ABOUT)


# --- giving back ------------------------------------------------------------------------------


def test_what_is_unspent_is_given_back(make):
    ledger = make()
    secondary = ledger.allot("secondary", 0.5)
    secondary.charge(a_charge("a", 0.125), TERMS)
    secondary.close()
    secondary.close()
    ledger.release("secondary")  # twice is once
    assert ledger.remaining == (0.875, 0.0)
    assert "(0.5, 0), spent (0.125, 0), released" in repr(secondary)
    for act in (
        lambda: secondary.charge(a_charge("b", 0.1), TERMS),
        lambda: secondary.reserve(Budget(0.1), TERMS, ABOUT),
        lambda: secondary.require(0.1),
        lambda: ledger.allotment("secondary"),
        lambda: ledger.allot("secondary", 0.5),
    ):
        with pytest.raises(BudgetError, match="was released"):
            act()
    ledger.charge(a_charge("c", 0.875), TERMS)
    assert ledger.remaining == (0.0, 0.0)
    assert sound(ledger)


@pytest.mark.parametrize("charged", [False, True])
@pytest.mark.parametrize("released", [False, True])
def test_a_call_that_is_open_keeps_its_reservation(make, charged, released):
    """What it gives back goes to the allotment, or to the ledger where that was released."""
    ledger = make()
    secondary = ledger.allot("secondary", 0.5)
    call = secondary.reserve(Budget(0.25), TERMS, ABOUT)
    if released:
        secondary.close()
        assert ledger.remaining == (0.75, 0.0)
    if charged:
        call.charge(a_charge("a", 0.125), TERMS)
    call.settle()
    call.settle()
    spent = 0.25 if charged else 0.0
    assert secondary.spent == ledger.spent == (spent, 0)
    assert secondary.remaining == (0.0 if released else 0.5 - spent, 0.0)
    assert ledger.remaining == (1 - spent if released else 0.5, 0.0)
    with pytest.raises(BudgetError, match="settled"):
        call.charge(a_charge("b", 0.125), TERMS)
    assert sound(ledger)


# --- against a model by brute force -----------------------------------------------------------


class Model:
    """What every call and allotment has, as lists; whatever is left follows from all of them."""

    def __init__(self):
        self.calls, self.shares, self.direct = [], {}, []

    def taken(self, name):
        calls = (call for call in self.calls if call["of"] == name)
        kept = sum(call["whole"] for call in calls if call["open"] or call["paid"])
        return kept + sum(price for of, price in self.direct if of == name)

    def left(self, name=""):
        if name:
            return self.shares[name][0] - self.taken(name)
        open_ones = [share for share, is_open in self.shares.values() if is_open]
        closed = [n for n, (_, is_open) in self.shares.items() if not is_open]
        return 1 - sum(open_ones) - sum(map(self.taken, closed)) - self.taken("")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(3))
def test_the_same_as_a_model(folder, seed):
    """Random steps; model, memory and file allow the same and have the same left."""
    chance, model = random.Random(seed), Model()
    ledgers = [Ledger(1.0), create_ledger(folder / "study.db", "x", epsilon=1.0)]
    calls: list[list] = []
    amounts = [Fraction(k, 128) for k in (1, 2, 3, 5, 8, 13)]

    def agree(act, allowed, *, on=ledgers):
        done = []
        for each in on:
            if allowed:
                done.append(act(each))
            else:
                with pytest.raises((BudgetError, OptionError)):
                    act(each)
        return done

    for step in range(150):
        what = chance.choice(["allot", "release", "reserve", "reserve", "direct", "pay", "settle"])
        price, names = chance.choice(amounts), [n for n, (_, o) in model.shares.items() if o]
        name = chance.choice(["", *names])

        def account(ledger, name=name):
            return ledger.allotment(name) if name else ledger

        if what == "allot":
            allowed, size, new = price <= model.left(), float(price), f"a{step}"
            agree(lambda x, new=new, size=size: x.allot(new, size), allowed)
            model.shares |= {new: (price, True)} if allowed else {}
        elif what == "release" and name and chance.random() < 0.3:
            agree(lambda x, name=name: x.release(name), True)
            model.shares[name] = (model.shares[name][0], False)
        elif what == "reserve":
            allowed, whole = price <= model.left(name), Budget(float(price))
            made = agree(lambda x, of=account, b=whole: of(x).reserve(b, TERMS, ABOUT), allowed)
            if allowed:
                model.calls.append({"of": name, "whole": price, "open": True, "paid": 0})
                calls.append(made)
        elif what == "direct":
            allowed, one = price <= model.left(name), a_charge("a", float(price))
            agree(lambda x, of=account, one=one: of(x).charge(one, TERMS), allowed)
            model.direct += [(name, price)] if allowed else []
        elif calls:
            k = chance.randrange(len(calls))
            call = model.calls[k]
            if what == "pay":
                allowed = call["open"] and price <= call["whole"] - call["paid"]
                one = a_charge("b", float(price))
                agree(lambda x, one=one: x.charge(one, TERMS), allowed, on=calls[k])
                call["paid"] += price if allowed else 0
            else:
                agree(lambda x: x.settle(), True, on=calls[k])
                call["open"] = False
        for ledger in ledgers:
            assert ledger.remaining == (float(model.left()), 0.0)
            for name, (_, is_open) in model.shares.items():
                left = float(model.left(name)) if is_open else 0.0
                assert ledger.allotments[name].left == (left, 0.0)
    assert len(model.shares) >= 5
    assert ledgers[0].spent == ledgers[1].spent
    assert ledgers[0].allotments == ledgers[1].allotments
    assert sound(ledgers[1])


# --- threads and processes --------------------------------------------------------------------


def test_threads_cannot_overspend_together(make):
    ledger, done = make(), []

    def draw(k):
        with contextlib.suppress(BudgetError):
            account = ledger.allot("secondary", 0.5) if k % 2 else ledger
            call = account.reserve(Budget(0.125), TERMS, ABOUT)
            call.charge(a_charge("a", 0.0625), TERMS)
            done.append(k % 2)
            call.settle()

    ledger.allot("secondary", 0.5)
    threads = [threading.Thread(target=draw, args=(k,)) for k in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == 4 * [0] + 4 * [1]
    assert ledger.spent == (1, 0)
    assert ledger.allotments["secondary"].left == ledger.remaining == (0.0, 0.0)
    assert sound(ledger)


def in_a_child(act):
    """Run ``act`` in a forked process, and return what it said."""
    out, into = os.pipe()
    pid = os.fork()
    if not pid:
        said = "nothing"
        try:
            said = str(act())
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(into, said.encode())
        os._exit(0)
    os.close(into)
    os.waitpid(pid, 0)
    with os.fdopen(out) as pipe:
        return pipe.read()


def test_a_later_process(address):
    create_ledger(address, "nsw", epsilon=1.0).allot("secondary", 0.3)

    def later():
        secondary = open_ledger(address).allotment("secondary")
        secondary.charge(a_charge("a", 0.25), TERMS)
        return secondary.remaining

    assert in_a_child(later) == "(0.05, 0.0)"
    assert in_a_child(later).startswith("BudgetError: this needs epsilon = 0.25")
    assert open_ledger(address).remaining == (0.7, 0.0)


def test_processes_that_fork(folder):
    ledger = create_ledger(folder / "study.db", "nsw", epsilon=1.0)
    secondary, memory = ledger.allot("secondary", 0.5), Ledger(1.0)
    held = memory.allot("secondary", 0.5)
    assert in_a_child(lambda: secondary.charge(a_charge("a", 0.25), TERMS)) == "None"
    assert secondary.remaining == (0.25, 0.0)
    for act in (
        lambda: held.charge(a_charge("a", 0.25), TERMS),
        lambda: held.reserve(Budget(0.25), TERMS, ABOUT),
        lambda: memory.allot("other", 0.5),
        lambda: memory.release("secondary"),
    ):
        assert in_a_child(act).startswith("LedgerError: this ledger is in the memory")


@pytest.mark.parametrize("charged", [False, True])
def test_a_process_that_dies_after_it_reserved(address, charged):
    ledger = create_ledger(address, "nsw", epsilon=1.0)
    secondary = ledger.allot("secondary", 0.5)
    pid = os.fork()
    if not pid:
        with contextlib.suppress(BaseException):
            call = open_ledger(address).allotment("secondary").reserve(Budget(0.25), TERMS, ABOUT)
            if charged:
                call.charge(a_charge("a", 0.125), TERMS)
            os.kill(os.getpid(), signal.SIGKILL)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == signal.SIGKILL
    assert secondary.remaining == (0.25, 0.0)
    with pytest.raises(BudgetError, match=r"open calls hold .*ledger settle"):
        secondary.require(0.5)
    ledger.settle()
    assert secondary.remaining == (0.25 if charged else 0.5, 0.0)
    assert ledger.remaining == (0.5, 0.0)
    assert sound(ledger)


def test_a_full_disk_makes_no_allotment(file, monkeypatch):
    ledger, real = create_ledger(file, "nsw", epsilon=1.0), Session.rows

    def full(self, sql, **values):
        if values.get("kind") == "allot":
            raise sqlite3.OperationalError("database or disk is full")
        return real(self, sql, **values)

    monkeypatch.setattr(Session, "rows", full)
    with pytest.raises(LedgerError, match="disk is full"):
        ledger.allot("secondary", 0.3)
    monkeypatch.setattr(Session, "rows", real)
    assert ledger.remaining == (1.0, 0.0)
    assert ledger.allotments == {}


def test_edits_are_noticed(file):
    """A forged allotment that is larger than what is left, or one that is released twice."""
    from dpeffects.ledgers.transaction import Transaction

    for kind, body in (
        ("allot", {"allotment": "more", "share": "4/5"}),
        ("allot", {"allotment": "secondary", "share": "3/10"}),
        ("release", {"allotment": "gone"}),
        ("release", {"allotment": "primary"}),
    ):
        Path(file).unlink(missing_ok=True)
        Path(f"{file}.seen").unlink(missing_ok=True)
        ledger = create_ledger(file, "nsw", epsilon=1.0)
        ledger.allot("secondary", 0.3)
        ledger.allot("gone", 0.1)
        ledger.release("gone")
        with ledger._store.session(write=True) as session:
            transaction = Transaction(session)
            transaction.add(kind, "nsw", body, transaction.state("nsw"))
        with pytest.raises(LedgerError, match=r"should have been refused"):
            ledger.verify()


# --- concentrated privacy, federations, whole calls -------------------------------------------


def gaussian(label, epsilon, scale):
    return Charge(
        label, "estimate", epsilon, 1e-8, "discrete Gaussian", (1.0,), (scale,), 4, alone=True
    )


def test_concentrated_privacy(address):
    """A share is one of rho; what Gaussian draws cost less goes back to the allotment."""
    ledger = create_ledger(address, "nsw", epsilon=3.0, delta=1e-5, composition="zcdp")
    whole = ledger.remaining[0]
    secondary = ledger.allot("secondary", 0.25)
    assert secondary.remaining == (pytest.approx(whole / 2, rel=1e-12), 1.25e-6)
    assert ledger.remaining[0] == pytest.approx(whole * 0.75**0.5, rel=1e-12)
    with pytest.raises(BudgetError, match="in the allotment"):
        secondary.reserve(Budget(secondary.remaining[0] * (1 + 1e-12)), TERMS, ABOUT)
    made = 0
    with contextlib.suppress(BudgetError):
        while made < 200:
            call = secondary.reserve(Budget(0.1, 1e-8), TERMS, ABOUT)
            call.charge(gaussian("a", 0.1, 20.0), TERMS)
            call.settle()
            made += 1
    state, share = ledger.state, Fraction(1, 4)
    assert state.used.first <= share * ledger.agreement.limits.first
    cost = Fraction(1, 800)  # rho of one draw; the last call needs room for 0.1^2 / 2
    room = share * ledger.agreement.limits.first - Fraction(1, 200)
    assert made == min(200, int(room / (cost * (1 + Fraction(1, 2**40)))) + 1)
    secondary.close()
    assert ledger.agreement.left(ledger.state) == ledger.agreement.limits.minus(state.used)
    assert "for one call" in " ".join(str(ledger.summary()).split())
    assert sound(ledger)


def test_parts_of_one_price_are_squared_together(address):
    """Outside calls, whichever account is charged: never less than the square of their sum."""
    ledger = create_ledger(address, "nsw", epsilon=3.0, delta=1e-5, composition="zcdp")
    secondary = ledger.allot("secondary", 0.5)
    part = Charge("a", "estimate", 0.1, 0.0, "discrete Laplace", (1.0,), (1.0,), 2)
    for account in (secondary, ledger, secondary):
        account.charge(part, TERMS)
    assert ledger.state.used.first == (3 * Fraction(0.1)) ** 2 / 2
    assert sound(ledger)


def test_a_federation_does_not_spend_what_is_allotted(address):
    ledger = create_ledger(address, "nsw", epsilon=1.0)
    ledger.allot("secondary", 0.5)
    store = Store(address, 1.0, dataset="nsw")
    store.reserve("one", "question", Price(0.5, terms=TERMS))
    with pytest.raises(RefusalError, match="total epsilon"):
        store.reserve("two", "question", Price(1e-6, terms=TERMS))
    ledger.release("secondary")
    store.reserve("three", "question", Price(0.5, terms=TERMS))
    assert sound(ledger)


def test_whole_calls(make):
    ledger = make(2.0)
    secondary = ledger.allot("secondary", 0.5)
    dataset = {} if isinstance(ledger, Ledger) else {"dataset": "nsw"}
    fit = dpe.dp_ate(*CALL, epsilon=0.75, ledger=secondary, **dataset)
    assert ledger.charges == fit.charges
    assert fit.allotment == "secondary"
    assert dpe.Result.from_json(fit.to_json()).allotment == "secondary"
    assert "allotment secondary of the ledger" in str(fit.summary())
    assert secondary.remaining == (0.25, 0.0)
    plain = dpe.dp_ate(*CALL, epsilon=1.0, ledger=ledger)
    older = {name: x for name, x in plain.to_dict().items() if name != "allotment"}
    assert plain.allotment == dpe.Result.from_dict(older).allotment == ""
    assert "allotment" not in str(plain.summary())
    for account in (secondary, ledger):
        with pytest.raises(BudgetError):
            dpe.dp_ate(CALL[0], object(), CALL[2], epsilon=0.5, ledger=account)
    with pytest.raises(
        OptionError,
        match=r"dataset='other' does not fit: the ledger is for 'nsw'|leave dataset out",
    ):
        dpe.dp_ate(*CALL, epsilon=0.1, ledger=secondary, dataset="other")
    by = dpe.dp_ate(*CALL, epsilon=0.25, ledger=secondary, by=["black == 1", "black == 0"])
    assert by.allotment == "secondary"
    assert secondary.remaining == (0.0, 0.0)
    assert sound(ledger)


def test_sites_do_not_share_one(make):
    secondary = make().allot("secondary", 0.5)
    with pytest.raises(OptionError, match=r"give one for each, ledger=\{"):
        dpe.dp_multisite(*CALL[:2], site="black", epsilon={0: 0.1, 1: 0.1}, ledger=secondary)


def test_records_and_statements_name_it(address, tmp_path):
    ledger = create_ledger(address, "nsw", epsilon=1.0)
    secondary = ledger.allot("secondary", 0.5)
    fit = dpe.dp_ate(*CALL, epsilon=0.25, ledger=secondary)
    secondary.charge(a_charge("by itself", 0.125), TERMS)
    ledger.charge(a_charge("of the ledger", 0.125), TERMS)
    fit.report(tmp_path / "record.html")
    record = json.loads((tmp_path / "record.json").read_text())
    answers = {row["check"]: row["answer"] for row in record["checklist"]}
    assert answers["The ledger"].startswith("Paid by its allotment secondary. ")
    assert record["result"]["allotment"] == "secondary"
    *first, last = ledger.to_frame()["allotment"]
    assert (set(first), last) == ({"secondary"}, "")
    said = " ".join(str(ledger.summary()).split())
    shown = "(0.5, 0), spent (0.375, 0), left (0.125, 0)"
    assert f"Allotment secondary 0.5 of the total: {shown}" in said
    for each in (repr(ledger), repr(secondary)):
        assert shown in each
    ledger.export(tmp_path / "ledger.json")
    assert json.loads((tmp_path / "ledger.json").read_text())["totals"]["allotments"] == {
        "secondary": ["1/2", ["1/8", "0/1"], ["3/8", "0/1"], True]
    }
