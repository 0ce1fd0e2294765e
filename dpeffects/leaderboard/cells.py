"""From runs to cells, and the rule of the ranking.

A cell is one entry on one data set at one epsilon. Its error is the *median* over repeats of
abs(estimate - truth) / abs(truth): the error that a user meets as often as not. A mean would rank
by the rare run whose noisy denominator comes near zero, or whose true effect does; it is shown
beside. A run that fails counts as an infinite error.

Entries that protect everything in a record with a proved guarantee are ranked against each other in
each pair of data and epsilon; the others are shown for orientation.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpeffects.lazy import pd
from dpeffects.leaderboard.candidates import OURS

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
