"""The processes that answer: they hold the data, and the server does not.

Each answers one question after another, within limits on memory and time, and ends when its server
does. It inherits the lock of the office: as long as it lives, no other server begins, so whatever
was being answered by a server that is gone is being drawn by nobody, and may be drawn anew.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from dpeffects.errors import DPEffectsError
from dpeffects.services.gate.answers import NOT_READY, result_of
from dpeffects.services.gate.policy import Policy
from dpeffects.services.gate.question import Question
from dpeffects.services.gate.trial_runs import rehearse
from dpeffects.services.limited_process import LimitedProcess, limit_memory, replies, tasks
from dpeffects.services.office.desk import Asked, Desk
from dpeffects.services.office.structured_logs import log_as_json

TRIES, PAUSE, PLANS = 3, 5.0, 200
"""How often a process may die of a request; seconds until an office that was not ready tries again;
plans that are remembered."""
CLASS, USUALLY = 0.25, (1.0, 3.0)
"""Answers are seen this many seconds after the start, or twice, four times, ... as many: the first
of these after a second and three times what the question took on made-up records. So the time tells
of the question and n, and of rows only where these take longer than that."""
TOO_LONG = "this request took more time than the office gives to one; its budget is spent"
DIED = "this request could not be computed; its budget is spent"
_BUSY = "other plans are being made; try again in a minute"
_TOO_LARGE = "this plan takes more time or memory than the office gives to one"
_log = logging.getLogger(__name__)


def time_class(seconds: float) -> float:
    """When something that took so long is seen: time tells a class, and no more.

    Examples
    --------
    >>> time_class(0.1), time_class(0.26), time_class(3.0)
    (0.25, 0.5, 4.0)
    """
    seen = CLASS
    while seen < seconds:
        seen *= 2
    return seen


class AnsweringProcess(LimitedProcess):
    """A process that answers or plans; it holds the lock, and outlives its server's terminal."""

    def __init__(self, work: str, policy: Path, lock: int) -> None:
        super().__init__(__name__, work, str(policy), pass_fds=(lock,), start_new_session=True)
        self.n = int(self.ready or 0)
        """Number of records."""


class Pool:
    """Threads that take requests from the desk, each with a process that answers them."""

    def __init__(self, desk: Desk, lock: int, workers: int = 1) -> None:
        self._desk, self._lock, self._planning = desk, lock, threading.Lock()
        self._ending, self._ended, self._wake = (threading.Event() for _ in range(3))
        self.wake = self._wake.set
        """Say that there may be a request."""
        self._processes: dict[str, AnsweringProcess] = {}
        self._planned: dict[str, dict[str, Any]] = {}
        names = [f"answering {k}" for k in range(workers)]
        self._threads = [threading.Thread(target=self._serve, args=(x,), name=x) for x in names]

    def start(self) -> None:
        """Queue again what an earlier server left, and begin when the data has been read."""
        self._desk.requeue()
        self._desk.n = self._of(self._threads[0].name).n
        for thread in self._threads:
            thread.start()

    def stop(self, grace: float) -> None:
        """Finish what is being answered, within a time; what is not is answered after a restart."""
        self._ending.set()
        self.wake()
        last = time.monotonic() + grace
        for thread in self._threads:
            thread.join(max(0.0, last - time.monotonic()))
        self._ended.set()
        for process in list(self._processes.values()):
            process.kill()
        for thread in self._threads:
            thread.join()
        for name in list(self._processes):
            self._forget(name)

    def plan(self, question: str) -> dict[str, Any]:
        """Plan a request in a process without data, one at a time: its summary, or an error."""
        if question in self._planned:
            return self._planned[question]
        if not self._planning.acquire(timeout=PAUSE):
            return {"error": _BUSY}
        try:
            task = {"question": question, "n": self._desk.n}
            planned = self._of("plan").ask(task, self._desk.folder.policy().max_seconds)
        except TimeoutError:
            planned = None
        finally:
            self._planning.release()
        if planned is None:
            self._forget("plan")
            return {"error": _TOO_LARGE}
        if len(self._planned) >= PLANS:
            self._planned.clear()
        return self._planned.setdefault(question, planned)

    # --- in the threads

    def _serve(self, name: str) -> None:
        while not self._ending.is_set():
            try:
                self._desk.n = self._desk.n or self._of(name).n
                asked = self._desk.claim() if self._desk.n else None
                if asked is not None:
                    self._answer(name, asked)
                elif self._desk.n:
                    self._wake.wait(1.0)
                    self._wake.clear()
                else:  # the data cannot be read
                    self._forget(name)
                    self._ending.wait(PAUSE)
            except Exception:  # such as a database that is away for a while
                _log.exception("a worker could not go on")
                self._ending.wait(PAUSE)

    def _answer(self, name: str, asked: Asked) -> None:
        began = time.monotonic()
        reply = self._reply(name, asked)
        if reply is None:  # the server ends
            return
        if reply.get("reason") == NOT_READY:
            _log.error("the data or the ledger cannot be used", extra={"request": asked.id})
            self._desk.requeue(asked.id)
            self._forget(name)
            self._ending.wait(PAUSE)
            return
        taken = time.monotonic() - began
        seen = time_class(max(taken, reply.get("seconds", 0.0)))
        if not self._ended.wait(seen - taken):  # the next one begins then, too
            self._desk.finish(asked.id, reply)
            about = {"request": asked.id, "status": reply["status"], "seconds": seen}
            _log.info("answered", extra=about)

    def _reply(self, name: str, asked: Asked) -> dict[str, Any] | None:
        # it is tried on made-up records first, for as long as the policy says, and then drawn
        seconds = 60.0 + 4.0 * self._desk.folder.policy().max_seconds
        for _ in range(TRIES):
            try:
                reply: dict[str, Any] | None = self._of(name).ask(asked.question, seconds)
            except TimeoutError:
                self._forget(name)
                return {"status": "refused", "reason": TOO_LONG, "paid": True}
            if reply is not None:
                return reply
            self._forget(name)
            if self._ending.is_set():
                return None
            _log.warning("a worker died", extra={"request": asked.id})
        return {"status": "refused", "reason": DIED, "paid": True}

    def _of(self, name: str) -> AnsweringProcess:
        if name not in self._processes:
            work, policy = name.partition(" ")[0], self._desk.folder.policy_file
            self._processes[name] = AnsweringProcess(work, policy, self._lock)
        return self._processes[name]

    def _forget(self, name: str) -> None:
        if (process := self._processes.pop(name, None)) is not None:
            process.end()


# --- in the process


def main() -> None:
    """Answer or plan one request after another, until the server ends."""
    work, path, log = sys.argv[1], Path(sys.argv[2]), os.fdopen(os.dup(2), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # what a library prints is not read in a log
    log_as_json(log, logging.WARNING)  # when exactly there was an answer is nobody's business
    with replies() as reply:
        n = _begin(work, Policy.read(path))
        reply(n)
        for task in tasks():
            if work == "plan":
                question = Question.from_json(task["question"])
                reply(plan_one(question, Policy.read(path), task["n"]))
            else:
                reply(answer_one(Question.from_json(task), Policy.read(path), n))


def _begin(work: str, policy: Policy) -> int:
    """Load what is needed, then set limits; return the number of records."""
    import dpeffects.services.gate.releases
    import dpeffects.services.planning.plans  # noqa: F401

    n = 0
    try:
        n = 0 if work == "plan" else len(policy.load())
    except DPEffectsError as error:
        _log.error("the data cannot be used: %s", error)
    limit_memory(policy.max_memory)
    return n


_tried: dict[str, float] = {}


def answer_one(question: Question, policy: Policy, n: int) -> dict[str, Any]:
    """Answer, and say how long that should have taken, from made-up records of the same number."""
    began, task = time.monotonic(), ""
    with suppress(DPEffectsError):  # the gate says what is wrong
        made_up = policy.task(question.formula, policy.grant(question), n)
        task = repr(made_up)
        rehearse(made_up)
    if len(_tried) >= PLANS:
        _tried.clear()
    usual = _tried.setdefault(task, time.monotonic() - began)
    reply = result_of(question, policy, again=True)
    return reply | {"seconds": USUALLY[0] + USUALLY[1] * usual}


def plan_one(question: Question, policy: Policy, n: int) -> dict[str, Any]:
    """Plan an average effect; of another call, say what it gives on made-up records.

    Both are made from the number of records and the codebook; no row is read.
    """
    import dpeffects as dpe
    from dpeffects.services.gate.releases import released

    try:
        granted = policy.grant(question).arguments
        if question.call == "dp_ate":
            asked = {x: getattr(question, x) for x in ("method", "estimand", "epsilon", "delta")}
            asked |= question.options
            made: Any = dpe.plan(question.formula, n=n, bounds=policy.bounds, **asked)
        else:
            data = policy.layout.declared(policy.layout.made_up(n))
            study = partial(released, question.formula, data, **granted)
            made = dpe.rehearse(lambda seed: study(seed=seed), runs=3)
        return {"html": made.summary().as_html()}
    except DPEffectsError as error:
        return {"error": str(error)}
    except Exception:
        return {"error": "this cannot be planned"}
