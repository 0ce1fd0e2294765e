"""The environment of the generators: where it is, how it is made, and the process that runs in it.

dpmm pins old versions of numpy, pandas and OpenDP, so it cannot live beside this package.
``dpeffects synthetic-setup`` makes a virtual environment for it, once. The process is started when
it is first needed, and stays, because its imports take seconds.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from dpeffects.errors import EstimationError, MissingExtraError, OptionError

LIBRARY = "dpmm 0.1.9"
_HERE = Path(__file__).resolve().parent
_WORKER, _PINS = _HERE / "worker.py", _HERE / "requirements.txt"
_MISSING = (
    "synthetic records need an environment of their own: run `dpeffects synthetic-setup` once"
)
_started: dict[int, subprocess.Popen[str]] = {}


def folder() -> Path:
    """Where the environment is: DPEFFECTS_GENERATORS, or a folder in the user's cache."""
    chosen = os.environ.get("DPEFFECTS_GENERATORS")
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(chosen) if chosen else Path(cache) / "dpeffects" / LIBRARY.replace(" ", "-")


def _python() -> Path:
    return folder() / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def require() -> None:
    """Raise unless the environment is there."""
    if not _python().exists():
        raise MissingExtraError(_MISSING)


def make() -> Path:
    """Make the environment with pinned versions, and try it; returns its folder."""
    if sys.version_info[:2] not in ((3, 11), (3, 12)):
        raise OptionError(f"{LIBRARY} needs Python 3.11 or 3.12; this is {sys.version.split()[0]}")
    made = folder()
    steps = (
        [sys.executable, "-m", "venv", "--clear", str(made)],
        [str(_python()), "-m", "pip", "install", "--quiet", "-r", str(_PINS)],
        [str(_python()), "-c", "import dpmm.models.aim, dpmm.models.mst"],
    )
    for step in steps:
        done = subprocess.run(step, capture_output=True, text=True)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise OptionError(f"the environment in {made} could not be made: {last}")
    return made


def ask(request: dict[str, Any]) -> dict[str, Any]:
    """Send a request to the process, and return its answer."""
    process = _process()
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        answer = json.loads(process.stdout.readline())
    except (OSError, ValueError):
        _stop()
        raise EstimationError(f"the process of {LIBRARY} ended without an answer") from None
    if "error" in answer:
        raise EstimationError(f"{LIBRARY} failed with {answer['error']}")
    return dict(answer)


def _process() -> subprocess.Popen[str]:
    """The process of this process; after a fork each has its own."""
    found = _started.get(os.getpid())
    if found is None or found.poll() is not None:
        require()
        own = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
        found = subprocess.Popen(
            [str(_python()), str(_WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            # order of sets, and so of the library's draws, does not differ from run to run
            env={**own, "OPENBLAS_NUM_THREADS": "1", "PYTHONHASHSEED": "0"},
        )
        _started[os.getpid()] = found
        atexit.register(_stop)
    return found


def _stop() -> None:
    found = _started.pop(os.getpid(), None)
    if found is not None:
        found.kill()
        found.wait()
