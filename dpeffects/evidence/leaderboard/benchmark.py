"""Run the leaderboard: entries x data x epsilons, repeated, in several processes.

Built on the batches of a simulation study: a sample is drawn once for all entries of a batch, seeds
depend on the names alone, and finished batches are appended to a file that the next start reads.

Memory that one run adds to its process: what its peak grows by.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from dpeffects.errors import OptionError, checked_call, did_you_mean
from dpeffects.evidence.leaderboard.board import Leaderboard
from dpeffects.evidence.leaderboard.candidates import Entry, entries
from dpeffects.evidence.leaderboard.problems import Task, tasks
from dpeffects.evidence.simulations import runs as study
from dpeffects.evidence.simulations.simulation import check_counts, numbers, on_file, run_batches
from dpeffects.results.export import frame_of

EPSILONS = (0.1, 0.5, 1.0, 2.0, 4.0)
FACTS = ["by", "guarantee", "level"]
COLUMNS = ["data", "seed", *study.COLUMNS, "memory", *FACTS]
KEYS = ["data", "seed", *study.KEYS]

Named = TypeVar("Named", Entry, Task)


@checked_call
def bench(
    methods: Sequence[str | Entry] | None = None,
    data: Sequence[str | Task] | None = None,
    *,
    epsilon: float | Sequence[float] = EPSILONS,
    repeats: int = 50,
    workers: int = 1,
    path: str | Path | None = None,
    seed: int = 0,
) -> Leaderboard:
    r"""Run entries of the leaderboard on its data, and rank them.

    Parameters
    ----------
    methods
        Names of entries (``dpeffects bench --list`` shows them), or your own
        `dpeffects.evidence.leaderboard.Entry`; by default all.
    data
        Names of data sets, or `dpeffects.evidence.leaderboard.Task` of your own; by default all.
    epsilon, repeats
        Budgets, and the number of samples.
    workers
        Number of processes; more than one needs joblib (``pip install "dpeffects[study]"``).
    path
        A CSV file that finished runs are appended to, and read from when this is started again.
    seed
        Of data and noise. The data is public, so seeded noise gives nothing away.

    Returns
    -------
    Leaderboard

    Examples
    --------
    >>> board = bench(["diff_in_means", "private_ipw"], ["lalonde"], epsilon=1.0, repeats=2)
    >>> len(board.runs), len(board.tidy())
    (4, 2)

    In a shell::

        dpeffects bench --list
        dpeffects bench --methods auto diff_in_means --data lalonde \
            --repeats 10
        dpeffects bench --workers 2 --path runs.csv     # everything; it resumes
    """
    chosen, drawn = _chosen(methods, entries(), Entry), _chosen(data, tasks(), Task)
    budgets = numbers("epsilon", epsilon, 0.0)
    check_counts(repeats, workers, seed)
    known = on_file(path, COLUMNS, KEYS)
    batches = [b for task in drawn for b in _batches(task, chosen, budgets, repeats, seed, known)]
    batches.sort(key=lambda batch: (batch.heavy, min(batch.todo)))
    rows = run_batches(batches, known, workers, path, COLUMNS)
    sizes = {task.name: task.n for task in drawn}
    asked = {entry.name: entry for entry in chosen}
    kept = [
        {**row, **facts_of(asked[row["fit"]])}
        for row in rows
        if (row["data"], row["n"]) in sizes.items()
        and row["fit"] in asked
        and row["seed"] == seed
        and row["repeat"] < repeats
        and (row["epsilon"] in budgets or math.isinf(row["epsilon"]))
    ]
    places, order = list(sizes), list(asked)
    kept.sort(
        key=lambda r: (places.index(r["data"]), order.index(r["fit"]), r["epsilon"], r["repeat"])
    )
    return Leaderboard(frame_of(kept, COLUMNS), tuple(chosen), tuple(drawn), repeats, seed)


@dataclass(frozen=True)
class BoardBatch(study.Batch):
    """A batch of a study, on one data set of the leaderboard."""

    task: Task
    entries: Mapping[str, Entry]
    seed: int

    @property
    def heavy(self) -> bool:
        """Whether its entries are."""
        return any(entry.heavy for entry in self.entries.values())

    def run(self, name: str, epsilon: float, repeat: int, data: Any) -> dict[str, Any]:
        """Run one entry, and say what it belongs to and what memory it took."""
        with peak_growth() as grown:
            row = super().run(name, epsilon, repeat, data)
        place = {"data": self.task.name, "seed": self.seed}
        return {**place, **row, "memory": grown[0], **facts_of(self.entries[name])}


def facts_of(entry: Entry) -> dict[str, str]:
    """Return what an entry says about itself."""
    return {name: getattr(entry, name) for name in FACTS}


def _batches(
    task: Task,
    chosen: Sequence[Entry],
    budgets: list[float],
    repeats: int,
    seed: int,
    known: Sequence[Mapping[str, Any]],
) -> Iterator[BoardBatch]:
    """Cut what is left on one data set to batches: light entries together, heavy ones alone."""
    done = [row for row in known if row["data"] == task.name and row["seed"] == seed]
    groups: dict[Any, dict[str, Entry]] = {}
    for entry in (entry for entry in chosen if not entry.release_inconsistency(task)):
        alone = entry.name if entry.heavy else ""
        groups.setdefault((entry.guarantee != "none", alone), {})[entry.name] = entry
    for (private, alone), group in groups.items():
        at, size = budgets if private else [math.inf], 1 if alone else study.SIZE
        fits = {name: partial(entry.fit, task) for name, entry in group.items()}
        design = study.StudyDesign(fits, task.make, study.seed_at(seed, "data set", task.name))
        for batch in study.batches_of(design, [task.n], at, repeats, done, size):
            yield BoardBatch(design, batch.n, batch.todo, task, group, seed)


def _chosen(
    asked: Sequence[str | Named] | None, known: Mapping[str, Named], kind: type[Named]
) -> list[Named]:
    """Return what is asked for by name, or brought along."""
    items = known if asked is None else [asked] if isinstance(asked, str | kind) else asked
    chosen: dict[str, Named] = {}
    for item in items:
        if isinstance(item, str) and item not in known:
            hint = did_you_mean(item, known)
            raise OptionError(f"the leaderboard has no {item!r}: {', '.join(known)}.{hint}")
        one = known[item] if isinstance(item, str) else item
        chosen[one.name] = one
    if not chosen:
        raise OptionError(f"give at least one of {', '.join(known)}")
    return list(chosen.values())


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
        ctypes.CDLL(None).malloc_trim(0)
        (_SELF / "clear_refs").write_text("5")  # the peak of this process starts anew
        before, idle = _high(_SELF), _clocks()
    except (OSError, AttributeError):  # not Linux
        before, idle = math.nan, {}
    grown: list[float] = []
    try:
        yield grown
    finally:
        grown.append(math.nan if math.isnan(before) else round(_peak(idle) - before, 2))


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
