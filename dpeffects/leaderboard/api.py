"""Run the leaderboard: entries x data x epsilons, repeated, in several processes.

Built on the batches of a simulation study: a sample is drawn once for all entries of a batch, seeds
depend on the names alone, and finished batches are appended to a file that the next start reads.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

from dpeffects.errors import MissingExtraError, OptionError
from dpeffects.leaderboard.board import Leaderboard
from dpeffects.leaderboard.entries import Bound, Entry, entries
from dpeffects.leaderboard.tasks import Task, tasks
from dpeffects.results.export import frame_of
from dpeffects.study import runs as study
from dpeffects.study.api import checked, numbers
from dpeffects.study.file import append, on_file

EPSILONS = (0.1, 0.5, 1.0, 2.0, 4.0)
FACTS = ["by", "guarantee", "level"]
COLUMNS = ["data", "seed", *study.COLUMNS, "memory", *FACTS]
KEYS = ["data", "seed", *study.KEYS]

Named = TypeVar("Named", Entry, Task)


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
    """Run entries of the leaderboard on its data, and rank them.

    Parameters
    ----------
    methods
        Names of entries (``dpeffects bench --list`` shows them), or your own
        `dpeffects.leaderboard.Entry`; by default all.
    data
        Names of data sets, or `dpeffects.leaderboard.Task` of your own; by default all.
    epsilon, repeats
        Budgets, and the number of samples.
    workers
        Number of processes; more than one needs joblib (``pip install joblib``).
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
    """
    chosen, drawn = _chosen(methods, entries(), Entry), _chosen(data, tasks(), Task)
    budgets = numbers("epsilon", epsilon, 0.0)
    checked(seed, repeats=repeats, workers=workers)
    known = on_file(path, COLUMNS, KEYS)
    works = [work for task in drawn for work in _works(task, chosen, budgets, repeats, seed, known)]
    works.sort(key=lambda work: (work.heavy, min(work.batch.todo)))
    rows = list(known)
    for done in study.run(works, workers):
        rows += done
        if path is not None:
            append(path, [row for row in done if not _missing(row)], COLUMNS)
    kept = _kept(rows, chosen, drawn, budgets, repeats, seed)
    return Leaderboard(frame_of(kept, COLUMNS), tuple(chosen), tuple(drawn), repeats, seed)


def _missing(row: Mapping[str, Any]) -> bool:
    """Whether a run only lacked a library: it is tried again when the file is read."""
    return str(row["failure"]).startswith(MissingExtraError.__name__)


@dataclass(frozen=True)
class Work:
    """A batch of a study, on one data set of the leaderboard."""

    task: Task
    entries: Mapping[str, Entry]
    batch: study.Batch
    seed: int
    memory: list[float]

    @property
    def heavy(self) -> bool:
        """Whether its entries are."""
        return any(entry.heavy for entry in self.entries.values())

    def __call__(self) -> list[dict[str, Any]]:
        """Run the batch, and say of each run what it belongs to and what memory it took."""
        self.memory.clear()
        place = {"data": self.task.name, "seed": self.seed}
        return [
            {**place, **row, "memory": used, **facts_of(self.entries[row["fit"]])}
            for row, used in zip(self.batch(), self.memory, strict=True)
        ]


def facts_of(entry: Entry) -> dict[str, str]:
    """Return what an entry says about itself."""
    return {name: getattr(entry, name) for name in FACTS}


def _works(
    task: Task,
    chosen: Sequence[Entry],
    budgets: list[float],
    repeats: int,
    seed: int,
    known: Sequence[Mapping[str, Any]],
) -> Iterator[Work]:
    """Cut what is left on one data set to batches: light entries together, heavy ones alone."""
    runnable = [entry for entry in chosen if not entry.why_not(task)]
    done = [row for row in known if row["data"] == task.name and row["seed"] == seed]
    groups: dict[Any, dict[str, Entry]] = {}
    for entry in runnable:
        alone = entry.name if entry.heavy else ""
        groups.setdefault((entry.guarantee != "none", alone), {})[entry.name] = entry
    for (private, alone), group in groups.items():
        at, size = budgets if private else [math.inf], 1 if alone else study.SIZE
        memory: list[float] = []
        plan = _plan(task, group, seed, memory)
        for batch in study.batches_of(plan, [task.n], at, repeats, done, size):
            yield Work(task, group, batch, seed, memory)


def _plan(task: Task, part: Mapping[str, Entry], seed: int, memory: list[float]) -> study.Plan:
    fits: dict[str, study.Fit] = {name: Bound(e, task, memory) for name, e in part.items()}
    plan = study.Plan(fits, task.make, {}, None, "ATE", 0.95, seed)
    return study.Plan(fits, task.make, {}, None, "ATE", 0.95, plan.seed_of("data set", task.name))


def _kept(
    rows: Sequence[Mapping[str, Any]],
    chosen: Sequence[Entry],
    drawn: Sequence[Task],
    budgets: Sequence[float],
    repeats: int,
    seed: int,
) -> list[dict[str, Any]]:
    """Return the runs that were asked for, in the order of the question."""
    sizes = {task.name: task.n for task in drawn}
    order = {entry.name: k for k, entry in enumerate(chosen)}
    facts = {entry.name: facts_of(entry) for entry in chosen}
    data = list(sizes)
    kept = [
        {**row, **facts[row["fit"]]}
        for row in rows
        if (row["data"], row["n"]) in sizes.items()
        and row["fit"] in order
        and row["seed"] == seed
        and row["repeat"] < repeats
        and (row["epsilon"] in budgets or math.isinf(row["epsilon"]))
    ]
    return sorted(
        kept,
        key=lambda r: (data.index(r["data"]), order[r["fit"]], r["epsilon"], r["repeat"]),
    )


def _chosen(
    given: Sequence[str | Named] | None, known: Mapping[str, Named], kind: type[Named]
) -> list[Named]:
    """Return what is asked for by name, or brought along."""
    wanted = list(known) if given is None else [given] if isinstance(given, str | kind) else given
    found: dict[str, Named] = {}
    for item in wanted:
        if isinstance(item, str) and item not in known:
            close = get_close_matches(item, list(known), 1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise OptionError(f"the leaderboard has no {item!r}: {', '.join(known)}.{hint}")
        one = known[item] if isinstance(item, str) else item
        found[one.name] = one
    if not found:
        raise OptionError(f"give at least one of {', '.join(known)}")
    return list(found.values())
