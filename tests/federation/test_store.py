"""The site's ledger: exact, paid before the draw, safe against crashes and other processes."""

from __future__ import annotations

import multiprocessing
import signal
import sqlite3
import subprocess
import sys
import threading
from fractions import Fraction

import pytest

from dpeffects.errors import BudgetError, PolicyError, RefusalError
from dpeffects.federation import Store, answer
from dpeffects.federation.store import Price
from tests.federation.sites import policy, question


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.sqlite"


def test_tenths_add_up_exactly(path):
    store = Store(path, epsilon=1.0, delta=3e-6)
    for i in range(10):
        store.reserve(f"q{i}", "hash", Price(0.1, 1e-7))
    assert store.spent == (1, Fraction(1, 10**6))
    with pytest.raises(RefusalError, match="total epsilon"):
        store.reserve("more", "hash", Price(2.0**-24))


def test_delta_is_counted_too(path):
    store = Store(path, epsilon=9, delta=1e-6)
    store.reserve("a", "hash", Price(1, 1e-6))
    with pytest.raises(RefusalError, match="total delta"):
        store.reserve("b", "hash", Price(1, 1e-12))


@pytest.mark.parametrize("price", [Price(0.0), Price(-1.0), Price(float("nan")), Price(1, -1e-9)])
def test_a_price_is_positive(path, price):
    store = Store(path, epsilon=1)
    with pytest.raises(BudgetError):
        store.reserve("a", "hash", price)
    assert store.spent == (0, 0)


def test_a_request_is_answered_once_and_for_good(path):
    store = Store(path, epsilon=1)
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


def test_a_request_without_an_answer_is_lost(path):
    Store(path, epsilon=1).reserve("a", "hash", Price(0.5))
    store = Store(path, epsilon=1)
    for call in (store.find, lambda *q: store.reserve(*q, Price(0.5))):
        with pytest.raises(RefusalError, match="lost"):
            call("a", "hash")
    assert store.spent == (Fraction(1, 2), 0)


def test_charges_that_protect_something_else_do_not_mix(path):
    store = Store(path, epsilon=9)
    store.reserve("a", "hash", Price(1, terms="record"))
    with pytest.raises(RefusalError, match="something else"):
        store.reserve("b", "hash", Price(1, terms="outcome"))


def test_a_smaller_total_refuses_what_a_larger_one_allowed(path):
    Store(path, epsilon=2).reserve("a", "hash", Price(1.5))
    store = Store(path, epsilon=1)
    assert store.left == (0.0, 0.0)
    with pytest.raises(RefusalError):
        store.reserve("b", "hash", Price(0.1))


def test_a_file_that_is_no_ledger(path):
    path.write_text("not a database, but long enough to be taken for one" * 50)
    with pytest.raises(PolicyError, match="cannot be used"):
        Store(path, epsilon=1)


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
    Store(path, epsilon=1)
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


def test_processes_do_not_overspend(path):
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        counts = pool.map(in_a_process, [(path, i) for i in range(6)], chunksize=1)
    assert sum(counts) == 3
    rows = sqlite3.connect(path).execute("SELECT request FROM requests").fetchall()
    assert len(rows) == len(set(rows)) == 3


KILLED = """
import os, signal, sys
from pathlib import Path
from dpeffects.federation import site
from tests.federation.sites import policy, question

real = site.site_release

def dies(*args, request=None, **kwargs):
    if request is None:
        return real(*args, **kwargs)  # the rehearsal
    os.kill(os.getpid(), signal.SIGKILL)

site.site_release = dies
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
