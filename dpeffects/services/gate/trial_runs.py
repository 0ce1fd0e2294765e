"""A question tried on made-up records, in a process of its own with limits on time and memory.

Whatever a question asks for, and however it fails, is seen here first: on records that are made up
from the policy and n, before the site pays for the question and looks at its data. The process is
kept for the next question, and ended when one goes beyond its limits.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from dpeffects.errors import DPEffectsError, EstimationError, PolicyError, RefusalError
from dpeffects.services.gate.records import SiteColumns

TOO_LARGE = "this question takes more time or memory than this site gives to one"
UNUSABLE = "this question cannot be computed"
_START = 120.0
"""Seconds for the process to start."""
_MOST_KNOWN = 1000
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


@dataclass(frozen=True)
class Rehearsal:
    """What is tried: arguments of `released`, on n made-up records, within limits."""

    formula: str
    arguments: Mapping[str, Any]
    layout: SiteColumns
    n: int
    seconds: int
    megabytes: int


def rehearse(task: Rehearsal) -> None:
    """Try a question; raise RefusalError where it fails, in words of the question and n only."""
    key = repr(task)
    with _lock:
        if key not in _known:
            reason = _tried(task)
            if reason == TOO_LARGE:  # it may have been a busy machine
                raise RefusalError(TOO_LARGE)
            if len(_known) >= _MOST_KNOWN:
                _known.clear()
            _known[key] = reason
        if _known[key]:
            raise RefusalError(_known[key])


_lock = threading.Lock()
_known: dict[str, str] = {}
"""Why a question was refused, or an empty text, by what was asked of what."""
_workers: dict[int, _Worker] = {}
"""The process of this process: one that was forked needs its own."""


def start() -> _Worker:
    """Start the process that tries, where none waits."""
    worker = _workers.get(os.getpid())
    if worker is None or not worker.alive:
        _workers.clear()
        worker = _workers[os.getpid()] = _Worker()
    return worker


def _tried(task: Rehearsal) -> str:
    answered = start().ask(task)
    if answered is None or answered == TOO_LARGE:
        _workers.pop(os.getpid()).end()
        return TOO_LARGE
    return answered


class _Worker:
    """A process that runs `main` below."""

    def __init__(self) -> None:
        paths = [str(Path(__file__).parents[3]), *filter(None, sys.path)]
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", f"from {__name__} import main; main()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **_ONE_THREAD, "PYTHONPATH": os.pathsep.join(paths)},
        )
        with self._within(_START):
            ready = self._line()
        if ready is None:
            self.end()
            raise PolicyError("the process that tries questions did not start")

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, task: Rehearsal) -> str | None:
        """Return why the question is refused, an empty text, or None where there was no answer."""
        assert self._process.stdin is not None
        with self._within(task.seconds):
            try:
                pickle.dump(task, self._process.stdin)
                self._process.stdin.flush()
            except OSError:
                return None
            return self._line()

    def _line(self) -> str | None:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        return str(json.loads(line)) if line.endswith(b"\n") else None

    @contextmanager
    def _within(self, seconds: float) -> Iterator[None]:
        """End the process after so many seconds, whether it does not listen or does not answer."""
        timer = threading.Timer(seconds, self._process.kill)
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


# --- in the process that tries


def main() -> None:
    """Try what is asked for, one task after another, until nobody asks any more."""
    with os.fdopen(os.dup(1), "wb") as out:
        os.dup2(2, 1)  # nothing that a library prints is taken for an answer
        import dpeffects.services.gate.releases  # noqa: F401  before the limits

        _say(out, "ready")
        while True:
            try:
                task = pickle.load(sys.stdin.buffer)
            except EOFError:
                return
            _limit(task.megabytes)
            _say(out, _reason(task))


def _reason(task: Rehearsal) -> str:
    """Why the question fails on made-up records, or an empty text."""
    from dpeffects.design.bounds import Bounds, DeclaredFrame
    from dpeffects.services.gate.releases import released

    try:
        frame, bounds = task.layout.made_up(task.n), Bounds.declared(task.layout.bounds)
        data = DeclaredFrame(frame, bounds, interactive=False)
        released(task.formula, data, seed=0, **task.arguments)
    except EstimationError:
        return ""  # the luck of the noise on records that mean nothing
    except DPEffectsError as error:
        return str(error) or UNUSABLE
    except MemoryError:
        return TOO_LARGE
    except Exception:
        return UNUSABLE
    return ""


def _limit(megabytes: int) -> None:
    """Let this process take so much more memory than it has now, where the system can."""
    try:
        import resource

        now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except (ImportError, OSError):
        return
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = now + megabytes * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (most if hard < 0 else min(most, hard), hard))


def _say(out: BinaryIO, text: str) -> None:
    out.write(json.dumps(text).encode() + b"\n")
    out.flush()
