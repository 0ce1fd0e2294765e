"""The processes that answer: they hold the data, and the server does not.

Each answers one question after another, within limits on memory and time, and ends when its server
does. It inherits the lock of the office: as long as it lives, no other server begins, so whatever
was being answered by a server that is gone is being drawn by nobody, and may be drawn anew.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dpeffects.errors import DPEffectsError
from dpeffects.services.gate.answers import NOT_READY, result_of
from dpeffects.services.gate.policy import Policy
from dpeffects.services.gate.question import Question
from dpeffects.services.office.desk import Asked, Desk
from dpeffects.services.office.structured_logs import log_as_json

START, TRIES, PAUSE = 120.0, 3, 5.0
"""Seconds for a process to start; how often one may die of a request; seconds until an office that
was not ready tries again."""
CLASS = 0.25
"""Answers are seen this many seconds after the start, or twice, four times, ... as many."""
TOO_LONG = "this request took more time than the office gives to one; its budget is spent"
DIED = "this request could not be computed; its budget is spent"
_MOST_PLANS = 200
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
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


class AnsweringProcess:
    """A process that runs a function of this module for each line that it is sent."""

    def __init__(self, work: str, policy: Path, lock: int) -> None:
        paths = [str(Path(__file__).parents[3]), *filter(None, sys.path)]
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", f"from {__name__} import main; main()", work, policy],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **_ONE_THREAD, "PYTHONPATH": os.pathsep.join(paths)},
            pass_fds=(lock,),
            start_new_session=True,  # a key that stops the server ends nothing that has begun
        )
        self.pid = self._process.pid
        self.n = int(self._line(START) or 0)
        """Number of records."""

    def ask(self, task: Any, seconds: float) -> Any:
        """Return what comes of a task; None where the process died, TimeoutError after so long."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(task).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            return None
        return self._line(seconds)

    def _line(self, seconds: float) -> Any:
        assert self._process.stdout is not None
        late = threading.Event()

        def end() -> None:
            late.set()
            self._process.kill()

        timer = threading.Timer(seconds, end)
        timer.start()
        try:
            line = self._process.stdout.readline()
        finally:
            timer.cancel()
        if line.endswith(b"\n"):
            return json.loads(line)
        if late.is_set():
            raise TimeoutError
        return None

    def kill(self) -> None:
        """End the process; who waits for it sees that it has died."""
        self._process.kill()

    def end(self) -> None:
        """End the process, and wait until it has."""
        self._process.kill()
        self._process.communicate()


class Pool:
    """Threads that take requests from the desk, each with a process that answers them."""

    def __init__(self, desk: Desk, lock: int, workers: int = 1) -> None:
        self._desk, self._lock = desk, lock
        self._ending, self._ended = threading.Event(), threading.Event()
        self._wake = threading.Event()
        self._planning = threading.Lock()
        self._processes: dict[str, AnsweringProcess] = {}
        self._planned: dict[str, dict[str, Any]] = {}
        names = [f"answering {k}" for k in range(workers)]
        self._threads = [
            threading.Thread(target=self._serve, args=(name,), name=name) for name in names
        ]

    def start(self) -> None:
        """Queue again what an earlier server left, and begin when the data has been read."""
        self._desk.requeue()
        self._desk.n = self._of(self._threads[0].name).n
        for thread in self._threads:
            thread.start()

    def wake(self) -> None:
        """Say that there may be a request."""
        self._wake.set()

    def stop(self, grace: float) -> None:
        """Finish what is being answered, within a time; what is not is answered after a restart."""
        self._ending.set()
        self._wake.set()
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
            return {"error": "other plans are being made; try again in a minute"}
        try:
            task = {"question": question, "n": self._desk.n}
            planned = self._of("plan").ask(task, self._desk.folder.policy().max_seconds)
        except TimeoutError:
            planned = None
        finally:
            self._planning.release()
        if planned is None:
            self._forget("plan")
            return {"error": "this plan takes more time or memory than the office gives to one"}
        if len(self._planned) >= _MOST_PLANS:
            self._planned.clear()
        return self._planned.setdefault(question, dict(planned))

    # --- in the threads

    def _serve(self, name: str) -> None:
        while not self._ending.is_set():
            try:
                if not self._desk.n:
                    self._desk.n = self._of(name).n
                asked = self._desk.claim() if self._desk.n else None
                if asked is not None:
                    self._answer(name, asked)
                    continue
                self._wake.wait(1.0 if self._desk.n else PAUSE)
                self._wake.clear()
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
        if self._ended.wait(time_class(taken) - taken):  # before the next one, too
            return
        self._desk.finish(asked.id, reply)
        about = {"request": asked.id, "status": reply["status"], "seconds": time_class(taken)}
        _log.info("answered", extra=about)

    def _reply(self, name: str, asked: Asked) -> dict[str, Any] | None:
        for _ in range(TRIES):
            try:
                reply = self._of(name).ask(asked.question, self._seconds())
            except TimeoutError:
                self._forget(name)
                return {"status": "refused", "reason": TOO_LONG, "paid": True}
            if reply is not None:
                return dict(reply)
            self._forget(name)
            if self._ending.is_set():
                return None
            _log.warning("a worker died", extra={"request": asked.id})
        return {"status": "refused", "reason": DIED, "paid": True}

    def _seconds(self) -> float:
        """What a request may take: it is tried on made-up records, for the policy's time, first."""
        return 60.0 + 4.0 * self._desk.folder.policy().max_seconds

    def _of(self, name: str) -> AnsweringProcess:
        if name not in self._processes:
            work = "plan" if name == "plan" else "answer"
            made = AnsweringProcess(work, self._desk.folder.policy_file, self._lock)
            self._processes[name] = made
        return self._processes[name]

    def _forget(self, name: str) -> None:
        if (process := self._processes.pop(name, None)) is not None:
            process.end()


# --- in the process


def main() -> None:
    """Do one task after another, until the server ends."""
    work, path = sys.argv[1:3]
    with os.fdopen(os.dup(1), "wb") as out, os.fdopen(os.dup(2), "w") as log, _silence():
        log_as_json(log, logging.WARNING)  # when exactly an answer was there is nobody's business
        policy = Policy.read(path)
        _say(out, _begin(work, policy))
        _limit(policy.max_memory)
        for line in sys.stdin.buffer:
            _say(out, WORK[work](json.loads(line), Path(path)))


def _begin(work: str, policy: Policy) -> int:
    """Load what is needed before there are limits; return the number of records."""
    import dpeffects.services.gate.releases
    import dpeffects.services.planning.plans  # noqa: F401

    try:
        return len(policy.load()) if work == "answer" else 0
    except DPEffectsError as error:
        _log.error("the data cannot be used: %s", error)
        return 0


def answer_one(question: str, policy: Path) -> dict[str, Any]:
    """Answer a question under the policy as it is now."""
    return result_of(Question.from_json(question), Policy.read(policy), again=True)


def plan_one(task: dict[str, Any], policy: Path) -> dict[str, Any]:
    """Plan from the number of records and the codebook; no row is read."""
    try:
        made = _plan(Question.from_json(task["question"]), Policy.read(policy), task["n"])
        return {"html": made.summary().as_html()}
    except DPEffectsError as error:
        return {"error": str(error)}
    except Exception:
        return {"error": "this cannot be planned"}


def _plan(question: Question, policy: Policy, n: int) -> Any:
    """A plan of an average effect; of another call, what it gives on made-up records."""
    from dpeffects import plan, rehearse
    from dpeffects.design.bounds import Bounds, DeclaredFrame
    from dpeffects.services.gate.releases import released

    if question.call == "dp_ate":
        asked = {name: getattr(question, name) for name in ("method", "estimand", "delta")}
        asked |= {"epsilon": question.epsilon, "bounds": policy.bounds, **question.options}
        return plan(question.formula, n=n, **asked)
    frame, bounds = policy.layout.made_up(n), Bounds.declared(policy.bounds)
    made_up = DeclaredFrame(frame, bounds, interactive=False)
    arguments = policy.grant(question).arguments
    return rehearse(
        lambda seed: released(question.formula, made_up, seed=seed, **arguments), runs=3
    )


WORK: dict[str, Callable[[Any, Path], dict[str, Any]]] = {"answer": answer_one, "plan": plan_one}


@contextmanager
def _silence() -> Iterator[None]:
    """Nothing that a library prints is taken for an answer, or is read in a log."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    yield


def _limit(megabytes: int) -> None:
    """Let this process take so much more memory than it has now."""
    import resource

    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = now + megabytes * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (most if hard < 0 else min(most, hard), hard))


def _say(out: Any, reply: Any) -> None:
    out.write(json.dumps(reply).encode() + b"\n")
    out.flush()
