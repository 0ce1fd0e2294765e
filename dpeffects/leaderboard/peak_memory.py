"""Memory that one run adds to its process: what its peak grows by."""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
from collections.abc import Iterator
from pathlib import Path

_SELF = Path("/proc/self")


@contextlib.contextmanager
def peak_growth() -> Iterator[list[float]]:
    """Give a list that gets the growth of the peak in MiB; NaN where the system does not tell.

    Processes that worked for it (their clocks went on) count with all that they had.

    Examples
    --------
    >>> with peak_growth() as grown:
    ...     block = bytearray(50 * 2**20)
    >>> grown[0] > 49 or grown[0] != grown[0]
    True
    """
    try:
        before, idle = _fresh(), _clocks()
    except (OSError, AttributeError):  # not Linux
        before, idle = math.nan, {}
    grown: list[float] = []
    try:
        yield grown
    finally:
        grown.append(math.nan if math.isnan(before) else round(_peak(idle) - before, 2))


def _fresh() -> float:
    """Give free memory back, start the peak of this process anew, and return it."""
    ctypes.CDLL(None).malloc_trim(0)
    (_SELF / "clear_refs").write_text("5")
    return _high(_SELF)


def _peak(idle: dict[str, str]) -> float:
    busy = [pid for pid, clock in _clocks().items() if idle.get(pid) != clock]
    return _high(_SELF) + sum(_high(Path("/proc") / pid) for pid in busy)


def _clocks() -> dict[str, str]:
    """Return the processes that this one has started, with the time they have worked."""
    pids = (_SELF / "task" / str(os.getpid()) / "children").read_text().split()
    clocks = {}
    for pid in pids:
        with contextlib.suppress(OSError):  # it has ended
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            clocks[pid] = " ".join(fields[11:13])  # user and system time
    return clocks


def _high(process: Path) -> float:
    with contextlib.suppress(OSError):  # it has ended
        for line in (process / "status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return float(line.split()[1]) / 2**10
    return 0.0
