"""Workers and servers that are killed at any moment: nothing paid is lost, nothing drawn twice."""

import json
import os
import random
import signal
import threading
import time
from collections import Counter
from pathlib import Path

import httpx
import pytest

from dpeffects.errors import OptionError
from dpeffects.services.gate.answers import NOT_READY, result_of
from dpeffects.services.gate.question import Question
from dpeffects.services.gate.store import Price
from dpeffects.services.office import answering as module
from dpeffects.services.office import answering_process as process_module
from dpeffects.services.office.answering import Pool, time_class
from dpeffects.services.office.desk import Asked
from tests.office.offices import Running, Server, asked, until


class Process:
    """A process that replies what it is told to, None where it dies."""

    def __init__(self, *replies):
        self.replies, self.n, self.ended = list(replies), 400, 0

    def ask(self, task, seconds):
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply

    def end(self):
        self.ended += 1

    kill = end


@pytest.fixture
def pool(tmp_path, monkeypatch):
    running = Running(tmp_path, approval="never")
    monkeypatch.setattr(module, "PAUSE", 0.01)
    monkeypatch.setattr(module, "CLASS", 0.001)
    made = Pool(running.desk, 0)
    made.running = running
    yield made
    running.database.close()


def test_time_tells_classes():
    assert [time_class(x) for x in (0.0, 0.25, 0.2501, 0.9, 100.0)] == [0.25, 0.25, 0.5, 1.0, 128.0]


def test_a_request_whose_worker_dies_is_asked_again(pool, monkeypatch):
    request = pool.running.ask()["id"]
    worker = Process(None, None, {"status": "ok", "kind": "Result", "result": {}})
    monkeypatch.setattr(pool, "_of", lambda name: worker)
    pool._answer("answering 0", pool.running.desk.claim())
    assert pool.running.desk.counts() == {"answered": 1}
    assert pool.running.desk.state(pool.running.person("anna"), request)["result"] == {}


def test_a_request_that_kills_its_workers_ends(pool, monkeypatch):
    pool.running.ask()
    monkeypatch.setattr(pool, "_of", lambda name: Process(None))
    pool._answer("answering 0", pool.running.desk.claim())
    assert pool.running.desk.counts() == {"failed": 1}


@pytest.mark.parametrize("ends", [[None] * 3, [TimeoutError()]])
def test_an_answer_in_the_ledger_is_given_though_its_process_died(pool, monkeypatch, ends):
    """The last of the processes died when its reply was kept, and before it was sent."""
    request, claimed = pool.running.ask()["id"], pool.running.desk.claim()
    question, policy = Question.from_json(claimed.question), pool.running.desk.folder.policy()
    worker, reply = Process(*ends), {}

    def dies(task, seconds):
        if len(worker.replies) == 1:
            reply.update(result_of(question, policy, again=True))
        return Process.ask(worker, task, seconds)

    worker.ask = dies
    monkeypatch.setattr(pool, "_of", lambda name: worker)
    pool._answer("answering 0", claimed)
    state = pool.running.desk.state(pool.running.person("anna"), request)
    assert (state["status"], state["result"]) == ("answered", reply["result"])


def test_a_request_that_takes_too_long_ends(pool, monkeypatch):
    request = pool.running.ask()["id"]
    worker = Process(TimeoutError())
    pool._processes["answering 0"] = worker
    pool._answer("answering 0", pool.running.desk.claim())
    assert worker.ended == 1
    state = pool.running.desk.state(pool.running.person("anna"), request)
    assert (state["status"], state["reason"]) == ("failed", module.TOO_LONG)


def test_a_process_that_does_not_start_is_no_fault_of_the_request(pool, monkeypatch):
    pool.running.ask()

    def slow(name):
        raise TimeoutError

    monkeypatch.setattr(pool, "_of", slow)
    with pytest.raises(TimeoutError):
        pool._answer("answering 0", pool.running.desk.claim())
    assert pool.running.desk.counts() == {"running": 1}


def test_an_office_that_is_not_ready_tries_again(pool, monkeypatch):
    pool.running.ask()
    monkeypatch.setattr(
        pool, "_of", lambda name: Process({"status": "refused", "reason": NOT_READY})
    )
    asked = pool._claim("answering 0")
    pool._answer("answering 0", asked)
    assert pool._claim("answering 0") == asked


def test_what_a_database_that_was_away_did_not_take_is_answered_later(pool, monkeypatch):
    requests = [pool.running.ask(epsilon=0.1 + k / 100)["id"] for k in range(3)]
    finish, claim, failures = pool.running.desk.finish, pool.running.desk.claim, []

    def once(work):
        def call(*given):
            if work is claim:
                work(*given)  # its answer is what was lost
            if len(failures) < 3:
                failures.append(given)
                raise OSError("the database is away")
            return work(*given)

        return call

    monkeypatch.setattr(pool.running.desk, "finish", once(finish))
    monkeypatch.setattr(pool.running.desk, "claim", once(claim))
    reply = {"status": "ok", "kind": "Result", "result": {}}
    monkeypatch.setattr(pool, "_reply", lambda *_: reply)
    monkeypatch.setattr(pool, "_of", lambda name: Process())
    thread = threading.Thread(target=pool._serve, args=("answering 0",))
    thread.start()
    until(lambda: pool.running.desk.counts() == {"answered": 3})
    pool._ending.set()
    pool.wake()
    thread.join()
    assert len(failures) == 3
    assert len(requests) == 3


def test_what_another_worker_is_answering_is_left_to_it(pool):
    one, two = (pool.running.ask(epsilon=0.1 + k / 100)["id"] for k in range(2))
    assert pool._claim("answering 0").id == one
    assert pool._claim("answering 1").id == two
    assert pool._claim("answering 2") is None
    assert pool._claim("answering 0").id == one


@pytest.mark.parametrize("work", ["claim", "finish"])
def test_a_database_that_goes_away_loses_no_request(pool, monkeypatch, work):
    # what it was asked to do may have been done
    desk, lost = pool.running.desk, [True]
    do, reply = getattr(desk, work), {"status": "ok", "kind": "Result", "result": {}}

    def goes_away(*given):
        done = do(*given) if work == "claim" or not lost else None
        if lost:
            lost.clear()
            raise ConnectionError
        return done

    monkeypatch.setattr(desk, work, goes_away)
    monkeypatch.setattr(pool, "_of", lambda name: Process(reply))
    pool.running.ask()
    pool._threads[0].start()
    try:
        until(lambda: desk.counts() == {"answered": 1}, 20.0)
    finally:
        pool.stop(1.0)


def test_an_answer_is_seen_at_the_end_of_its_class(pool, monkeypatch):
    waited = []
    pool.running.ask()
    monkeypatch.setattr(pool._ended, "wait", lambda seconds: waited.append(seconds))
    monkeypatch.setattr(module, "CLASS", 0.5)
    reply = {"status": "ok", "kind": "Result", "result": {}}
    monkeypatch.setattr(pool, "_reply", lambda *_: time.sleep(0.1) or reply)
    pool._answer("answering 0", pool.running.desk.claim())
    assert 0.2 < waited[0] < 0.41


def test_when_an_answer_is_seen_comes_from_made_up_records(pool, monkeypatch):
    seen = []
    monkeypatch.setattr(pool._ended, "wait", lambda seconds: seen.append(seconds))
    monkeypatch.setattr(module, "CLASS", 0.25)
    for k, slow in enumerate((0.0, 0.1, 0.2)):  # rows that take longer
        pool.running.ask(epsilon=0.1 + k / 100)
        reply = {"status": "ok", "kind": "Result", "result": {}, "seconds": 1.3}
        monkeypatch.setattr(pool, "_reply", lambda *_, t=slow, r=reply: time.sleep(t) or r)
        began = time.monotonic()
        pool._answer("answering 0", pool.running.desk.claim())
        seen[-1] += time.monotonic() - began
    assert seen == pytest.approx([2.0] * 3, abs=0.2)


def test_a_plan_is_made_anew_when_the_policy_has_changed(pool):
    pool._processes["plan"] = Process({"html": "one"}, {"html": "two"})
    question = pool.running.desk.question("ageing", asked()).to_json()
    assert [pool.plan(question)["html"] for _ in range(2)] == ["one"] * 2
    policy = pool.running.folder.policy_file
    policy.write_text(policy.read_text().replace("range = [0, 1]", "range = [0, 2]"))
    assert pool.plan(question)["html"] == "two"


def test_one_server_at_a_time(running):
    lock = running.folder.lock()
    with pytest.raises(OptionError, match="is running"):
        running.folder.lock(wait=0.2)
    os.close(lock)
    os.close(running.folder.lock(wait=0.2))


# --- with processes


@pytest.fixture
def alive(tmp_path):
    """An office with workers."""
    running = Running(tmp_path, approval="never", epsilon=50.0, grace_seconds=20.0)
    lock = running.folder.lock()
    pool = Pool(running.desk, lock, 1)
    pool.start()
    running.pool = pool
    yield running
    pool.stop(5.0)
    os.close(lock)
    running.database.close()


def entries(running):
    kinds = Counter()
    for entry in running.desk.ledger().entries():
        if entry.kind in ("request", "reply"):
            kinds[entry.kind, entry.body["request"]] += 1
    return kinds


@pytest.mark.long
def test_what_was_paid_and_not_answered_is_drawn_once_more_and_not_paid_again(alive):
    # what a worker leaves that is killed in its draw
    question = alive.desk.question("ageing", asked())
    alive.folder.policy().store().reserve(question.request, question.digest, Price(0.2))
    assert alive.ask()["id"] == question.request
    alive.pool.wake()
    until(lambda: alive.desk.counts() == {"answered": 1})
    assert set(entries(alive).values()) == {1}
    assert alive.desk.budget()["dataset"]["epsilon"]["spent"] == pytest.approx(0.2)


@pytest.mark.long
def test_workers_that_are_killed_lose_nothing_and_draw_nothing_twice(alive):
    asked_for = [alive.ask(epsilon=0.1 + k * 1e-6)["id"] for k in range(12)]
    alive.pool.wake()
    chance, done = random.Random(1), threading.Event()

    def kill():
        while not done.wait(chance.uniform(0.5, 4.0)):
            for process in list(alive.pool._processes.values()):
                os.kill(process.pid, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        time.sleep(15.0)
    finally:
        done.set()
        killer.join()
    until(lambda: not {"queued", "running"} & alive.desk.counts().keys(), 240.0)
    person, answered = alive.person("anna"), 0
    replies = {}
    for entry in alive.desk.ledger().entries():
        if entry.kind == "reply":
            replies[entry.body["request"]] = entry.body["reply"]
    assert max(entries(alive).values()) == 1
    for request in asked_for:
        state = alive.desk.state(person, request)
        assert state["status"] in ("answered", "failed")  # failed: killed three times
        if state["status"] == "answered":
            answered += 1
            assert replies[request]["release"] == state["result"]
    assert answered
    assert "sound" in alive.desk.ledger().verify()


@pytest.mark.long
def test_workers_have_limits_and_no_rows_in_the_server(alive):
    process = alive.pool._processes["answering 0"]
    limits = Path(f"/proc/{process.pid}/limits").read_text()
    (line,) = [line for line in limits.splitlines() if line.startswith("Max address space")]
    assert "unlimited" not in line.split()[3]
    assert alive.desk.n == process.n == 400
    for fd in (1, 2):
        target = os.readlink(f"/proc/{process.pid}/fd/{fd}")
        assert target == "/dev/null"


@pytest.mark.long
def test_plans_need_no_data(alive, monkeypatch):
    question = alive.desk.question("ageing", asked()).to_json()
    made = alive.pool.plan(question)
    for name, process in alive.pool._processes.items():  # a plan keeps no other server away
        fds = Path(f"/proc/{process.pid}/fd")
        held = {os.readlink(fd).rpartition("/")[2] for fd in fds.iterdir() if fd.exists()}
        assert ("office.lock" in held) is (name != "plan")
    assert "<table" in made["html"]
    assert alive.pool.plan(question) is made
    other = alive.desk.question("ageing", asked("dp_qte", quantiles=[0.5])).to_json()
    assert "quantile 0.5" in alive.pool.plan(other)["html"]
    broken = Question.from_json(question).to_dict() | {"formula": "y ~ nothing"}
    assert "nothing" in alive.pool.plan(json.dumps(broken))["error"]


@pytest.mark.long
def test_a_server_that_is_killed_answers_after_its_restart(tmp_path):
    running = Running(tmp_path, approval="never")
    token = running.accounts.token("test", "anna", "ageing")
    head = {"authorization": f"Bearer {token}"}
    server = Server(running).ready()
    where = f"{server.address}/api/datasets/registry/requests"
    ids = [
        httpx.post(where, json=asked(epsilon=e), headers=head).json()["id"] for e in (0.1, 0.2, 0.3)
    ]
    server.end(signal.SIGKILL)
    assert running.desk.counts().keys() & {"queued", "running"}
    again = Server(running).ready()
    for request in ids:
        state: dict = {}
        last = time.monotonic() + 60
        while state.get("status") != "answered" and time.monotonic() < last:
            page = f"{again.address}/api/requests/{request}?wait=20"
            state = httpx.get(page, headers=head, timeout=60).json()
        assert state["status"] == "answered"
    assert set(entries(running).values()) == {1}
    again.end(signal.SIGTERM)
    log = (running.folder.path / "log").read_text()
    assert "Application shutdown complete" in log
    assert token not in log
    assert "y ~ t" not in log
    assert not [line for line in log.splitlines() if line and not json.loads(line)]
    running.database.close()


@pytest.mark.long
def test_a_stopped_server_leaves_no_process(tmp_path):
    running = Running(tmp_path, approval="never")
    server = Server(running).ready()
    running.ask()
    until(lambda: "queued" not in running.desk.counts(), 30.0)
    server.end(signal.SIGKILL)
    os.close(running.folder.lock(wait=60.0))  # the worker ends when its server does
    running.database.close()


def test_tasks_are_questions(pool):
    pool.running.ask()
    task = pool.running.desk.claim()
    assert isinstance(task, Asked)
    assert Question.from_json(task.question).request == task.id


def test_what_is_usual_is_without_the_start_of_processes(running, monkeypatch):
    clock = [0.0]

    def takes(seconds, *_):
        clock[0] += seconds

    monkeypatch.setattr(process_module.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(process_module.trial_runs, "start", lambda: takes(30.0))
    monkeypatch.setattr(process_module.trial_runs, "rehearse", lambda task: takes(0.5))
    monkeypatch.setattr(process_module, "result_of", lambda *_, again: {"status": "ok"})
    question = running.desk.question("ageing", asked())
    reply = process_module.answer_one(question, running.folder.policy(), 400)
    assert reply == {"status": "ok", "seconds": 1.0 + 3.0 * 0.5}
