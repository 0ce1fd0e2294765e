"""The processes that answer: they hold the data (`answering_process`), and the server does not.

Each answers one question after another, within limits on memory and time, and ends when its server
does. It inherits the lock of the office: as long as it lives, no other server begins, so whatever
was being answered by a server that is gone is being drawn by nobody, and may be drawn anew.
"""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path
from typing import Any

from dpeffects.services.gate.answers import NOT_READY, with_result
from dpeffects.services.gate.question import Question
from dpeffects.services.limited_process import LimitedProcess
from dpeffects.services.office.desk import Asked, Desk

TRIES, PAUSE, PLANS = 3, 5.0, 200
"""How often a process may die of a request; seconds until an office that was not ready tries again;
plans that are remembered."""
CLASS = 0.25
"""Answers are seen this many seconds after the start, or twice, four times, ... as many: the first
of these after what is usual for the question and n. So the time tells of these, and of rows only
where they take longer than that."""
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
        locked = {"pass_fds": (lock,) * (work != "plan"), "start_new_session": True}
        super().__init__(f"{__name__}_process", work, str(policy), **locked)
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
        self._claiming, self._held = threading.Lock(), dict[str, str]()
        names = [f"answering {k}" for k in range(workers)]
        self._threads = [threading.Thread(target=self._serve, args=(x,), name=x) for x in names]

    def start(self) -> None:
        """Begin when the data has been read, with what an earlier server left."""
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
        policy = self._desk.folder.policy()
        if (known := repr((question, policy))) in self._planned:
            return self._planned[known]
        if not self._planning.acquire(timeout=PAUSE):
            return {"error": _BUSY}
        try:
            task = {"question": question, "n": self._desk.n}
            planned = self._of("plan").ask(task, policy.max_seconds)
        except TimeoutError:
            planned = None
        finally:
            self._planning.release()
        if planned is None:
            self._forget("plan")
            return {"error": _TOO_LARGE}
        if len(self._planned) >= PLANS:
            self._planned.clear()
        return self._planned.setdefault(known, planned)

    # --- in the threads

    def _serve(self, name: str) -> None:
        while not self._ending.is_set():
            try:
                self._desk.n = self._desk.n or self._of(name).n
                asked = self._claim(name) if self._desk.n else None
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

    def _claim(self, name: str) -> Asked | None:
        """Take a request, and hold it until the next: one whose thread fails is taken again."""
        with self._claiming:
            self._held.pop(name, None)
            if (asked := self._desk.claim(tuple(self._held.values()))) is not None:
                self._held[name] = asked.id
        return asked

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
            process = self._of(name)
            try:
                reply: dict[str, Any] | None = process.ask(asked.question, seconds)
            except TimeoutError:
                self._forget(name)
                return self._kept(asked, TOO_LONG)
            if reply is not None:
                return reply
            self._forget(name)
            if self._ending.is_set():
                return None
            _log.warning("a worker died", extra={"request": asked.id})
        return self._kept(asked, DIED)

    def _kept(self, asked: Asked, reason: str) -> dict[str, Any]:
        """What the ledger has of a request whose process is gone, or why there is no answer."""
        question = Question.from_json(asked.question)
        store = self._desk.folder.policy().store()
        if reply := store.find(question.request, question.digest, again=True):
            return with_result(reply)
        return {"status": "refused", "reason": reason, "paid": True}

    def _of(self, name: str) -> AnsweringProcess:
        if name not in self._processes:
            work, policy = name.partition(" ")[0], self._desk.folder.policy_file
            self._processes[name] = AnsweringProcess(work, policy, self._lock)
        return self._processes[name]

    def _forget(self, name: str) -> None:
        if (process := self._processes.pop(name, None)) is not None:
            process.end()
