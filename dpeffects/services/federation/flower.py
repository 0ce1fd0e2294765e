"""How programs of Flower are started here: telemetry, update checks and installs are off."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from dpeffects.errors import MissingExtraError

QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
}
"""What keeps Flower from talking to anybody but the other side of this federation."""

_GRACE = 5.0
"""Seconds for a program to stop by itself."""


def environment_in(home: Path) -> dict[str, str]:
    """Return the environment of Flower's programs; ``home`` is their folder for state."""
    return {**os.environ, **QUIET, "FLWR_HOME": str(home.resolve()), "PATH": _path()}


def program(name: str) -> str:
    """Return the path of one of Flower's programs."""
    path = shutil.which(name, path=_path())
    if path is None:
        raise MissingExtraError(f'{name} is not installed: pip install "dpeffects[federation]"')
    return path


def _path() -> str:
    """Where programs are looked for: beside Python first."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])


def write_secret(path: Path, content: bytes = b"") -> Path:
    """Write what its owner alone can read.

    By default it is a fresh secret, with which Flower's processes on one machine know each other.
    """
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_bytes(content or uuid.uuid4().bytes + uuid.uuid4().bytes)
    return path


@contextmanager
def running(
    command: Sequence[str], environment: Mapping[str, str], log: Path | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program while the block lasts, and end it however the block ends.

    With a log, the program has a process group of its own and all of its children end with it.
    """
    own: dict[str, Any] = {}
    with ExitStack() as stack:
        if log is not None:
            out = stack.enter_context(log.open("wb"))
            own = {"stdout": out, "stderr": subprocess.STDOUT, "start_new_session": True}
        process = subprocess.Popen(command, env=environment, **own)
    send = partial(os.killpg, process.pid) if own else process.send_signal
    try:
        yield process
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                send(number)
            with suppress(subprocess.TimeoutExpired):
                process.wait(_GRACE)


def free_ports(count: int) -> list[int]:
    """Return ports of this machine that are free now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]


def stop_on_signal() -> None:
    """Turn SIGTERM to an exit that runs all clean-up."""

    def leave(number: int, frame: Any) -> NoReturn:
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, leave)
