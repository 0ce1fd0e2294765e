"""Leaderboard: the runs, the cells they add up to, and who is best where."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dpeffects.lazy import pd
from dpeffects.leaderboard.candidates import Entry, entries
from dpeffects.leaderboard.cells import NEAR, cells_of, overall, places
from dpeffects.leaderboard.problems import Task, tasks
from dpeffects.results.export import READERS, JsonRecord, frame_of, plain
from dpeffects.results.numbers import figure
from dpeffects.results.words import percent
from dpeffects.simulations import pictures
from dpeffects.summary import Notes, Pairs, Shown, Summary, Table


@dataclass(frozen=True)
class Leaderboard(Shown, JsonRecord):
    """The runs of the leaderboard, and what they add up to.

    Parameters
    ----------
    runs
        A frame with one row a run.
    entries, tasks, repeats, seed
        As asked for.
    """

    runs: pd.DataFrame
    entries: tuple[Entry, ...]
    tasks: tuple[Task, ...]
    repeats: int
    seed: int

    def tidy(self) -> pd.DataFrame:
        """One row for each entry, data set and epsilon.

        ``error`` is the median over repeats of abs(estimate - truth) / abs(truth), ``mean_error``
        the mean; ``width`` is relative to the effect; ``rank`` and ``ratio`` (to the best) are
        among entries that protect records with a proved guarantee. What does not depend on epsilon
        has the epsilon infinity.
        """
        return self._cells.copy()

    @cached_property
    def _cells(self) -> pd.DataFrame:
        return cells_of(self.runs)

    def places(self) -> pd.DataFrame:
        """One row for each data set and epsilon: the best entry, the best of ours, their errors."""
        return places(self._cells)

    def overall(self) -> pd.DataFrame:
        """One row for each entry, over all its cells; the nearest to the best come first.

        ``ratio`` is the geometric mean of its error over that of the best.
        """
        return overall(self._cells).sort_values("ratio", kind="stable", ignore_index=True)

    def glance(self) -> pd.DataFrame:
        """One row: in which share of places one of ours is best, or within 10 % of the best."""
        best = self.places()
        share = float(best["near"].mean()) if len(best) else math.nan
        row = {"runs": len(self.runs), "places": len(best), "near": share}
        failed = int((self.runs["failure"] != "").sum())
        return frame_of([row | {"failed": failed, "seconds": float(self.runs["seconds"].sum())}])

    def gaps(self) -> pd.DataFrame:
        """One row for each entry and data set that has no figures, with the reason."""
        rows: list[dict[str, Any]] = [
            {"fit": entry.name, "data": task.name, "reason": entry.why_not(task)}
            for entry in self.entries
            for task in self.tasks
            if entry.why_not(task)
        ]
        bad = self.runs[self.runs["failure"] != ""]
        for (name, data), group in bad.groupby(["fit", "data"], sort=False):
            reason = group["failure"].mode().iloc[0]
            said = f"{len(group)} runs failed: {reason}"
            rows.append({"fit": name, "data": data, "reason": said})
        return frame_of(rows, ["fit", "data", "reason"])

    def plot(self, epsilon: float = 1.0, ax: Any = None) -> Any:
        """Draw how far each entry is from the best on each data set."""
        return pictures.leaderboard(self.tidy(), epsilon, ax=ax)

    def _summary(self) -> Summary:
        share = self.glance()["near"].iloc[0]
        about = [
            ("Data", ", ".join(task.name for task in self.tasks)),
            ("Repeats", f"{self.repeats}, seed {self.seed}"),
        ]
        if not math.isnan(share):
            about.append(("Ours near the best", f"{100 * share:.0f} % of places"))
        notes = (
            "Error: median of the relative error. Ranked: entries that protect records with a "
            "proved guarantee.",
            f"Near: best or within {100 * NEAR:.0f} % of the best. Ratio: geometric mean of the "
            "error over the best.",
            *_gaps(self.gaps()),
        )
        blocks = (Pairs(tuple(about)), _best(self.places()), _overall(self.overall()))
        return Summary("Leaderboard", "", (*blocks, Notes(notes)))


def _gaps(frame: pd.DataFrame) -> list[str]:
    """One line for each entry and reason."""
    return [
        f"{name} on {', '.join(group['data'])}: {reason}."
        for (name, reason), group in frame.groupby(["fit", "reason"], sort=False)
    ]


def _best(frame: pd.DataFrame) -> Table:
    columns = ("data", "epsilon", "best", "error", "best of ours", "error")
    rows = [
        (
            *(row["data"], f"{row['epsilon']:g}", row["best"], figure(row["error"], ".3g")),
            *(row["ours"], figure(row["ours_error"], ".3g")),
        )
        for row in frame.to_dict("records")
    ]
    return Table("Best in each place", columns, tuple(rows), "lrlrlr")


def _overall(frame: pd.DataFrame) -> Table:
    columns = ("entry", "guarantee", "level", "ratio", "near", "coverage", "seconds")
    rows = [
        (
            *(row["fit"], row["guarantee"], row["level"], figure(row["ratio"], ".3g")),
            f"{row['near']} of {row['cells']}",
            "n/a" if math.isnan(row["coverage"]) else percent(row["coverage"], ".0f"),
            f"{row['seconds']:.2g}",
        )
        for row in frame.to_dict("records")
    ]
    return Table("Entries", columns, tuple(rows), "lllrrrr")


@plain.register
def _(entry: Entry) -> str:
    return entry.name


@plain.register
def _(task: Task) -> str:
    return task.name


READERS |= {Entry: lambda name: entries()[name], Task: lambda name: tasks()[name]}


def listed() -> str:
    """Say in two tables which entries and which data there are."""
    from tabulate import tabulate

    methods = [(e.name, e.by, e.guarantee, e.level) for e in entries().values()]
    data = [
        (t.name, f"{t.n:,}", "randomised" if t.randomised else "observational")
        for t in tasks().values()
    ]
    first = tabulate(methods, ("entry", "by", "guarantee", "level"))
    align = ("left", "right", "left")
    return f"{first}\n\n{tabulate(data, ('data', 'n', 'treatment'), colalign=align)}"
