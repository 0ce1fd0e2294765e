"""Memory that one run adds to a process that holds the data and does nothing else."""

from __future__ import annotations

import contextlib
import math
import os
import subprocess
import sys
from pathlib import Path

_SELF = Path("/proc/self")


def peak(entry: str, task: str, epsilon: float, seed: int) -> float:
    """Return the growth of the peak in MiB in a fresh Python that runs an entry; NaN if unknown."""
    code = "import sys; from dpeffects.bench.memory import measure; measure(*sys.argv[1:])"
    command = [sys.executable, "-c", code, entry, task, str(epsilon), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        return float(done.stdout.split()[-1])
    except (IndexError, ValueError):
        return math.nan


def _high() -> float:
    """Return the peak of this process and of those that it started, in MiB."""
    if not (_SELF / "status").exists():
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak / (2**20 if sys.platform == "darwin" else 2**10)
    started = (_SELF / "task" / str(os.getpid()) / "children").read_text().split()
    return _field(_SELF, "VmHWM") + sum(_field(Path("/proc") / pid, "VmHWM") for pid in started)


def _field(process: Path, name: str) -> float:
    lines = (process / "status").read_text().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(name)) / 2**10


def _forget() -> None:
    """Start the peak of this process anew, where the system can."""
    with contextlib.suppress(OSError):
        (_SELF / "clear_refs").write_text("5")


def measure(entry: str, task: str, epsilon: str, seed: str) -> None:
    """Print the growth in this process."""
    from dpeffects.bench.entries import Bound, entries
    from dpeffects.bench.tasks import tasks

    data, _ = tasks()[task].make(tasks()[task].n, int(seed))
    _forget()
    before = _high()
    Bound(entries()[entry], tasks()[task])(data, float(epsilon), int(seed))
    print(round(_high() - before, 1))
