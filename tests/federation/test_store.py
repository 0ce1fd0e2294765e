"""The site's ledger: exact, paid before the draw, safe against crashes and other processes."""

from __future__ import annotations

import multiprocessing
import signal
import subprocess
import sys
import threading
from fractions import Fraction

import pytest

from dpeffects.errors import BudgetError, PolicyError, RefusalError
from dpeffects.ledgers import open_ledger, verify_ledger
from dpeffects.privacy.ledger import Terms
from dpeffects.services.gate import Store, answer
from dpeffects.services.gate.store import Price
from tests.federation.sites import policy, question


@pytest.fixture
def path(tmp_path):
    return tmp_path / "site.db"


def made(path, epsilon, delta=0.0):
    return Store.create(path, "hospital", epsilon, delta)


def test_tenths_add_up_exactly(path):
    store = made(path, epsilon=1.0, delta=3e-6)
    for i in range(10):
        store.reserve(f"q{i}", "hash", Price(0.1, 1e-7))
    assert store.spent == (1, Fraction(1, 10**6))
    with pytest.raises(RefusalError, match="total epsilon"):
        store.reserve("more", "hash", Price(2.0**-24))


def test_delta_is_counted_too(path):
    store = made(path, epsilon=9, delta=1e-6)
    store.reserve("a", "hash", Price(1, 1e-6))
    with pytest.raises(RefusalError, match="total delta"):
        store.reserve("b", "hash", Price(1, 1e-12))


@pytest.mark.parametrize("price", [Price(0.0), Price(-1.0), Price(float("nan")), Price(1, -1e-9)])
def test_a_price_is_positive(path, price):
    store = made(path, epsilon=1)
    with pytest.raises(BudgetError):
        store.reserve("a", "hash", price)
    assert store.spent == (0, 0)


def test_a_request_is_answered_once_and_for_good(path):
    store = made(path, epsilon=1)
    assert store.find("a", "hash") is None
    store.reserve("a", "hash", Price(0.5))
    store.finish("a", {"status": "ok", "value": 1.5})
    again = Store(path, epsilon=1)  # another process, another day
    assert again.find("a", "hash") == {"status": "ok", "value": 1.5}
    with pytest.raises(RefusalError, match="another question"):
        again.find("a", "other")
    with pytest.raises(RefusalError, match="answered already"):
        again.reserve("a", "hash", Price(0.5))
    with pytest.raises(BudgetError):
        again.finish("a", {"status": "ok", "value": 2.5})
    assert again.left == (0.5, 0.0)
    assert "sound, 3 entries, 1 charges" in verify_ledger(path)


def test_a_request_without_an_answer_is_lost(path):
    made(path, epsilon=1).reserve("a", "hash", Price(0.5))
    store = Store(path, epsilon=1)
    for call in (store.find, lambda *q: store.reserve(*q, Price(0.5))):
        with pytest.raises(RefusalError, match="lost"):
            call("a", "hash")
    assert store.spent == (Fraction(1, 2), 0)


def test_charges_that_protect_something_else_do_not_mix(path):
    store = made(path, epsilon=9)
    store.reserve("a", "hash", Price(1, terms=Terms("record")))
    with pytest.raises(RefusalError, match="something else"):
        store.reserve("b", "hash", Price(1, terms=Terms("outcome")))


def test_a_reply_is_json(path):
    store = made(path, epsilon=1)
    store.reserve("a", "hash", Price(0.5))
    for reply in ({"value": float("nan")}, {"value": {1, 2}}):
        with pytest.raises((TypeError, ValueError)):
            store.finish("a", reply)
    with pytest.raises(BudgetError, match="not waiting"):
        store.finish("b", {})


def test_many_requests_and_datasets_in_one_ledger(path):
    store = made(path, epsilon=50)
    other = Store.create(path, "clinic", 1.0)
    for i in range(60):
        store.reserve(f"q{i}", "hash", Price(0.5))
        store.finish(f"q{i}", {"value": i}) if i % 2 else None
    other.reserve("q1", "hash", Price(1.0))
    again = Store(path, 50, dataset="hospital")
    assert [again.find(f"q{i}", "hash") for i in (1, 59)] == [{"value": 1}, {"value": 59}]
    with pytest.raises(PolicyError, match="which dataset; it has hospital, clinic"):
        Store(path, 50)
    assert (again.spent, other.spent) == ((30, 0), (1, 0))
    assert "sound, 93 entries, 61 charges, 2 datasets" in verify_ledger(path)


def try_to_reserve(store, names):
    done = 0
    for name in names:
        try:
            store.reserve(name, "hash", Price(0.3))
            done += 1
        except RefusalError:
            pass
    return done


def test_threads_do_not_overspend(path):
    made(path, epsilon=1)
    counts, gate = [], threading.Barrier(8)

    def work(i):
        gate.wait()
        counts.append(try_to_reserve(Store(path, epsilon=1), [f"{i}-{j}" for j in range(3)]))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(counts) == 3
    assert Store(path, epsilon=1).spent[0] == Fraction(9, 10)


def in_a_process(arguments):
    path, i = arguments
    return try_to_reserve(Store(path, epsilon=1), ["shared", f"{i}-a", f"{i}-b"])


@pytest.mark.long
def test_processes_do_not_overspend(path):
    made(path, epsilon=1)
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        counts = pool.map(in_a_process, [(path, i) for i in range(6)], chunksize=1)
    assert sum(counts) == 3
    paid = [charge.label for charge in open_ledger(path).charges]
    assert len(paid) == len(set(paid)) == 3


KILLED = """
import os, signal, sys
from pathlib import Path
from dpeffects.services.gate import answers as site
from tests.federation.sites import policy, question

real = site.released

def dies(*args, request=None, **kwargs):
    if request is None:
        return real(*args, **kwargs)  # the rehearsal
    os.kill(os.getpid(), signal.SIGKILL)

site.released = dies
site.answer(question(), policy(Path(sys.argv[1])))
"""


def test_killed_between_payment_and_answer(tmp_path):
    """Budget is lost, privacy is not: the request is never drawn again."""
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], timeout=600)
    assert done.returncode == -signal.SIGKILL
    site = policy(tmp_path)
    assert site.store().spent == (Fraction(1, 2), 0)
    reply = answer(question(), site)
    assert reply["status"] == "refused"
    assert reply["reason"].startswith("lost")
    assert answer(question("q2"), site)["status"] == "ok"
    assert site.store().spent == (1, 0)
