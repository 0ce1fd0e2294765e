"""Leaderboard: the runs, the cells they add up to, and who is best where.

From runs to cells, and the rule of the ranking.

A cell is one entry on one data set at one epsilon. Its error is the *median* over repeats of
abs(estimate - truth) / abs(truth): the error that a user meets as often as not. A mean would rank
by the rare run whose noisy denominator comes near zero, or whose true effect does; it is shown
beside. A run that fails counts as an infinite error.

Entries that protect everything in a record with a proved guarantee are ranked against each other in
each pair of data and epsilon; the others are shown for orientation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dpeffects.evidence.leaderboard.candidates import OURS, Entry, entries
from dpeffects.evidence.leaderboard.problems import Task, tasks
from dpeffects.evidence.simulations import pictures
from dpeffects.lazy import pd
from dpeffects.results.export import READERS, JsonDocument, frame_of, plain
from dpeffects.results.number_format import figure
from dpeffects.results.wording import percent
from dpeffects.summary import Notes, Pairs, Summary, SummaryMixin, Table


@dataclass(frozen=True)
class Leaderboard(SummaryMixin, JsonDocument):
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
            {"fit": entry.name, "data": task.name, "reason": entry.release_inconsistency(task)}
            for entry in self.entries
            for task in self.tasks
            if entry.release_inconsistency(task)
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
            about.append(("dpeffects near the best", f"{100 * share:.0f} % of settings"))
        notes = (
            "Setting: a data set with an epsilon. Error: median of the absolute relative error. "
            "Ranked are methods that protect whole records with a proved guarantee.",
            f"Near the best: error at most {100 * NEAR:.0f} % above the smallest. Error ratio: "
            "geometric mean of the error divided by the smallest error.",
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
    columns = ("data", "epsilon", "best", "error", "best of dpeffects", "error")
    rows = [
        (
            *(row["data"], f"{row['epsilon']:g}", row["best"], figure(row["error"], ".3g")),
            *(row["ours"], figure(row["ours_error"], ".3g")),
        )
        for row in frame.to_dict("records")
    ]
    return Table("Best method in each setting", columns, tuple(rows), "lrlrlr")


def _overall(frame: pd.DataFrame) -> Table:
    heads = ("error ratio", "near the best", "coverage", "seconds")
    columns = ("method", "guarantee", "level", *heads)
    rows = [
        (
            *(row["fit"], row["guarantee"], row["level"], figure(row["ratio"], ".3g")),
            f"{row['near']} of {row['cells']}",
            "n/a" if math.isnan(row["coverage"]) else percent(row["coverage"], ".0f"),
            f"{row['seconds']:.2g}",
        )
        for row in frame.to_dict("records")
    ]
    return Table("Methods", columns, tuple(rows), "lllrrrr")


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


PLACE = ["data", "epsilon"]
NEAR = 0.1
"""Within this share of the best error, an entry is as good as the best."""


def cells_of(runs: pd.DataFrame) -> pd.DataFrame:
    """Return one row a cell: errors, intervals, seconds, memory, and its rank.

    ``error`` and ``mean_error`` are median and mean of the relative error, ``bias`` is the mean of
    the signed one, ``width`` the median width of the 95 % intervals relative to the effect.
    ``seconds`` and ``memory`` (MiB that a call adds to the peak of its process) are medians, so a
    first call, which loads libraries, does not count. ``ratio`` is the error over that of the best
    ranked entry on the same data and epsilon.
    """
    keys = ["data", "n", "fit", "epsilon", "by", "guarantee", "level"]
    rows = [
        dict(zip(keys, key, strict=True)) | _measures(group)
        for key, group in runs.groupby(keys, sort=False)
    ]
    cells = pd.DataFrame(rows)
    ranked = cells[_competes(cells)]
    best = ranked.groupby(PLACE)["error"].min()
    cells["rank"] = ranked.groupby(PLACE)["error"].rank(method="min")
    found = [best.get(key, math.nan) for key in cells[PLACE].itertuples(index=False, name=None)]
    cells["ratio"] = cells["error"] / np.asarray(found, float)
    return cells


def _competes(cells: pd.DataFrame) -> Any:
    return (cells["guarantee"] == "exact") & (cells["level"] == "sample")


def _measures(group: pd.DataFrame) -> dict[str, Any]:
    off = ((group["estimate"] - group["truth"]) / group["truth"].abs()).to_numpy(float)
    failed = (group["failure"] != "").to_numpy()
    size = np.where(failed, math.inf, np.abs(off))
    known = group.dropna(subset=["conf_low", "conf_high"])
    held = known["truth"].between(known["conf_low"], known["conf_high"])
    width = (known["conf_high"] - known["conf_low"]) / known["truth"].abs()
    fine = off[~failed]
    return {
        "error": float(np.median(size)),
        "mean_error": float(np.abs(fine).mean()) if len(fine) else math.nan,
        "bias": float(fine.mean()) if len(fine) else math.nan,
        "coverage": float(held.mean()) if len(known) else math.nan,
        "width": float(width.median()),
        "seconds": float(group["seconds"].median()),
        "memory": float(group["memory"].median()),
        "runs": len(group),
        "failed": int(failed.sum()),
        "intervals": len(known),
    }


def places(cells: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each data and epsilon: the best, and the best of ours.

    ``near`` says whether one of ours is best, or within 10 % of the best.
    """
    rows = []
    for (data, epsilon), group in cells[_competes(cells)].groupby(PLACE, sort=False):
        order = group.sort_values("error", kind="stable")
        ours = order[order["by"] == OURS]
        first, mine = order.iloc[0], ours.iloc[0] if len(ours) else None
        row = {"data": data, "n": first["n"], "epsilon": epsilon}
        row |= {"best": first["fit"], "error": first["error"]}
        row |= {"ours": "" if mine is None else mine["fit"]}
        row |= {"ours_error": math.inf if mine is None else mine["error"]}
        row["near"] = bool(row["ours_error"] <= (1.0 + NEAR) * row["error"])
        rows.append(row)
    return pd.DataFrame(rows)


def overall(cells: pd.DataFrame) -> pd.DataFrame:
    """Return one row an entry: how far it is from the best, over all its cells."""
    grouped = cells.groupby(["fit", "by", "guarantee", "level"], sort=False)
    return grouped.agg(
        ratio=("ratio", _geometric_mean),
        best=("rank", lambda rank: int((rank == 1).sum())),
        near=("ratio", lambda ratio: int((ratio <= 1.0 + NEAR).sum())),
        cells=("error", "size"),
        coverage=("coverage", "median"),
        least_coverage=("coverage", "min"),
        seconds=("seconds", "median"),
        memory=("memory", "max"),
    ).reset_index()


def _geometric_mean(ratio: pd.Series) -> float:
    kept = ratio[np.isfinite(ratio) & (ratio > 0.0)]
    return float(np.exp(np.log(kept).mean())) if len(kept) else math.nan
