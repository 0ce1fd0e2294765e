"""How Flower's programs are started here: telemetry, update checks and installs are off."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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


def environment(home: Path) -> dict[str, str]:
    """Return the environment of Flower's programs; ``home`` is their folder for state."""
    beside = str(Path(sys.executable).parent)
    path = os.pathsep.join([beside, os.environ.get("PATH", os.defpath)])
    return {**os.environ, **QUIET, "FLWR_HOME": str(home.resolve()), "PATH": path}


def program(name: str) -> str:
    """Return the path of one of Flower's programs."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise MissingExtraError(f'{name} is not installed: pip install "dpeffects[federation]"')
    return found


def write_secret(path: Path) -> Path:
    """Write a fresh secret, with which Flower's processes on one machine know each other."""
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_bytes(uuid.uuid4().bytes + uuid.uuid4().bytes)
    return path


@contextmanager
def running(command: Sequence[str], home: Path, **kwargs: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program while the block lasts, and end it however the block ends."""
    process = subprocess.Popen(command, env=environment(home), **kwargs)
    try:
        yield process
    finally:
        end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """Ask a program to stop, then make it."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
    process.wait()


def stop_on_signal() -> None:
    """Turn SIGTERM to an exit that runs all clean-up."""

    def leave(number: int, frame: Any) -> NoReturn:
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, leave)
