"""A process of its own for what others ask, with limits on time and memory.

It is sent one task after another and writes a line of JSON in reply to each. It is kept for the
next task, and ended when one goes beyond its time.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

_START = 120.0
"""Seconds for the process to start."""
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class LimitedProcess:
    """A process that runs `main` of a module, which replies by `replies` and `tasks` below.

    ``ready`` is its first line, and None where it did not start. ``settings`` are those of `Popen`.
    """

    def __init__(self, module: str, *arguments: str, **settings: Any) -> None:
        paths = [str(Path(__file__).parents[2]), *filter(None, sys.path)]
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", f"from {module} import main; main()", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **_ONE_THREAD, "PYTHONPATH": os.pathsep.join(paths)},
            **settings,
        )
        self.pid, self.kill = self._process.pid, self._process.kill
        self.ready = self._reply(b"", _START)

    @property
    def alive(self) -> bool:
        """Whether it can be asked."""
        return self._process.poll() is None

    def ask(self, task: Any, seconds: float) -> Any:
        """Return what comes of a task; None where the process died, TimeoutError after so long."""
        return self._reply(pickle.dumps(task), seconds)

    def _reply(self, sent: bytes, seconds: float) -> Any:
        """Send and read; end the process where it does not listen or does not answer in time."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        late, line = threading.Event(), b""

        def end() -> None:
            late.set()
            self.kill()

        timer = threading.Timer(seconds, end)
        timer.start()
        with suppress(OSError):
            self._process.stdin.write(sent)
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        timer.cancel()
        if line.endswith(b"\n"):
            return json.loads(line)
        if late.is_set():
            raise TimeoutError
        return None

    def end(self) -> None:
        """End the process, and wait until it has."""
        self.kill()
        self._process.communicate()


# --- in the process


@contextmanager
def replies() -> Iterator[Callable[[Any], None]]:
    """Write replies where they are read; nothing that a library prints is taken for one."""
    with os.fdopen(os.dup(1), "w") as out:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        yield lambda reply: print(json.dumps(reply), file=out, flush=True)


def tasks() -> Iterator[Any]:
    """What is asked, one task after another, until nobody asks any more."""
    with suppress(EOFError):
        while True:
            yield pickle.load(sys.stdin.buffer)


def limit_memory(megabytes: int) -> None:
    """Let this process take so much more memory than it has now, where the system can."""
    try:
        import resource

        now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except (ImportError, OSError):
        return
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = now + megabytes * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (most if hard < 0 else min(most, hard), hard))
