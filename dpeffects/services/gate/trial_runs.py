"""A question tried on made-up records, in a process of its own with limits on time and memory.

Whatever a question asks for, and however it fails, is seen here first: on records that are made up
from the policy and n, before the site pays for the question and looks at its data. The process is
kept for the next question, and ended when one goes beyond its limits.
"""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from dpeffects.errors import DPEffectsError, EstimationError, PolicyError, RefusalError
from dpeffects.services.gate.records import SiteColumns
from dpeffects.services.limited_process import LimitedProcess, limit_memory, replies, tasks

TOO_LARGE = "this question takes more time or memory than this site gives to one"
UNUSABLE = "this question cannot be computed"
_MOST_KNOWN = 1000


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
_workers: dict[int, LimitedProcess] = {}
"""The process of this process: one that was forked needs its own."""


def start() -> LimitedProcess:
    """Start the process that tries, where none waits."""
    worker = _workers.get(os.getpid())
    if worker is None or not worker.alive:
        _workers.clear()
        worker = _workers[os.getpid()] = _started()
    return worker


def _tried(task: Rehearsal) -> str:
    worker, reason = start(), None
    with suppress(TimeoutError):
        reason = worker.ask(task, task.seconds)
    if reason in (None, TOO_LARGE):
        _workers.pop(os.getpid()).end()
        return TOO_LARGE
    return str(reason)


def _started() -> LimitedProcess:
    with suppress(TimeoutError):
        worker = LimitedProcess(__name__, stderr=subprocess.DEVNULL)
        if worker.ready:
            return worker
        worker.end()
    raise PolicyError("the process that tries questions did not start")


# --- in the process that tries


def main() -> None:
    """Try what is asked for."""
    with replies() as reply:
        import dpeffects.services.gate.releases  # noqa: F401  before the limits

        reply("ready")
        for task in tasks():
            limit_memory(task.megabytes)
            reply(_reason(task))


def _reason(task: Rehearsal) -> str:
    """Why the question fails on made-up records, or an empty text."""
    from dpeffects.services.gate.releases import released

    try:
        data = task.layout.declared(task.layout.made_up(task.n))
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
