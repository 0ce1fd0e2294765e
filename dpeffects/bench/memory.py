"""Peak memory of one run, in a process that does nothing else."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path


def peak(entry: str, task: str, epsilon: float, seed: int) -> float:
    """Return the peak in MiB of a fresh Python that runs an entry once; NaN where unknown."""
    command = [sys.executable, "-m", "dpeffects.bench.memory", entry, task, str(epsilon), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        return float(done.stdout.split()[-1])
    except (IndexError, ValueError):
        return math.nan


def _here() -> float:
    """Return the peak of this process and of those it started, in MiB."""
    own = Path("/proc/self/status")
    if not own.exists():
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak / (2**20 if sys.platform == "darwin" else 2**10)
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return sum(_high(path) for path in (own, *(Path(f"/proc/{pid}/status") for pid in children)))


def _high(status: Path) -> float:
    lines = status.read_text().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 2**10


def _main(entry: str, task: str, epsilon: str, seed: str) -> None:
    from dpeffects.bench.entries import Bound, entries
    from dpeffects.bench.tasks import tasks

    data, _ = tasks()[task].make(tasks()[task].n, int(seed))
    Bound(entries()[entry], tasks()[task])(data, float(epsilon), int(seed))
    print(round(_here(), 1))


if __name__ == "__main__":
    _main(*sys.argv[1:])
