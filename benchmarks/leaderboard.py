"""The leaderboard: methods x data x epsilon on the same samples, against known effects.

It makes results/leaderboard.csv (one row a cell), .md and .png, and the table in
docs/guide/accuracy.md. A cell is one entry on one data set at one epsilon. `dpeffects bench` does
the same for entries and data of one's own.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from averages import into_guide
from harness import Part, Table
from report import RESULTS

from dpeffects.evidence.leaderboard import Leaderboard, bench, entries, tasks
from dpeffects.evidence.leaderboard.board import NEAR
from dpeffects.evidence.leaderboard.candidates import Entry

BAR, MANY, SOME, FEW = 0.8, 25, 8, 2
"""The promise, and samples: of most entries, of those that fit models in blocks, of libraries."""
EPSILONS = (0.1, 0.5, 1.0, 4.0)


def samples_of(entry: Entry) -> int:
    return FEW if entry.guarantee == "library" else SOME if entry.heavy else MANY


def run(people: int, noise: int, data: str, fit: str):
    """All epsilons on one sample, which is the same for all entries."""
    made = bench(fit, data, epsilon=EPSILONS, repeats=1, seed=people).runs
    return made.assign(repeat=people).drop(columns=["data", "fit"]).to_dict("records")


def board_of(runs: pd.DataFrame) -> Leaderboard:
    words = {x: runs[x].fillna("") for x in ("warnings", "failure")}
    runs = runs.assign(**words, seed=0, repeat=runs["repeat"].astype(int))
    kept = [tasks()[name] for name in tasks() if name in set(runs["data"])]
    return Leaderboard(runs, tuple(entries().values()), tuple(kept), runs["repeat"].max() + 1, 0)


def page(runs: pd.DataFrame) -> dict[str, pd.DataFrame]:
    board = board_of(runs)
    cells = board.tidy()
    epsilons = sorted(e for e in cells["epsilon"].unique() if math.isfinite(e))
    return {
        "Best with a proved guarantee for records": winners(board),
        "Over all cells": over_all(board),
        **{f"Relative error, epsilon {e:g}": wide(cells, "error", e) for e in epsilons},
        "Coverage of 95 % intervals, epsilon 1, %": wide(cells, "coverage", 1.0, 100.0),
        "Width of the intervals over the effect, epsilon 1": wide(cells, "width", 1.0),
        "Seconds of a call, epsilon 1": wide(cells, "seconds", 1.0),
        "Empty cells": empty(board),
        "Matching over the default: errors": matching(cells),
    }


def after(tables: dict[str, pd.DataFrame], runs: pd.DataFrame) -> None:
    """Write the cells and the picture, and put the best into the guide."""
    board = board_of(runs)
    board.tidy().to_csv(RESULTS / "leaderboard.csv", index=False, float_format="%.5g")
    board.plot().figure.savefig(RESULTS / "leaderboard.png", dpi=130, bbox_inches="tight")
    best = board.runs[board.runs["fit"].isin(board.places()["best"])]
    made = f"Made of {span(best.groupby(['data', 'fit', 'epsilon']).size())} samples a cell."
    into_guide("leaderboard", f"{winners(board).to_markdown(index=False)}\n\n{made}")


def winners(board: Leaderboard) -> pd.DataFrame:
    """Rows are data, columns epsilons, cells the best ranked entry with its error."""
    found = board.places()
    found["cell"] = [
        f"{best} {error:.3g}" for best, error in zip(found["best"], found["error"], strict=True)
    ]
    table = found.pivot(index=["data", "n"], columns="epsilon", values="cell").fillna("-")
    table = table.loc[list(dict.fromkeys(zip(found["data"], found["n"], strict=True)))]
    table.columns = [f"epsilon {e:g}" for e in table.columns]
    return table.reset_index()


def over_all(board: Leaderboard) -> pd.DataFrame:
    table = board.overall()
    for name in ("coverage", "least_coverage"):
        table[name] = (100 * table[name]).round(0)
    table["seconds"] = [float(f"{x:.2g}") for x in table["seconds"]]
    runs = board.runs.groupby(["fit", "data", "epsilon"]).size()
    table["samples"] = table["fit"].map(runs.groupby("fit").agg(span))
    table = table.round({"ratio": 2, "memory": 0})
    return table.rename(columns={"fit": "entry", "least_coverage": "least coverage"})


def wide(cells: pd.DataFrame, value: str, epsilon: float, times: float = 1.0):
    """Rows are entries, columns data; what does not depend on epsilon stands in every table."""
    part = cells[cells["epsilon"].isin([epsilon, math.inf])]
    table = part.pivot_table(value, "fit", "data", "max", sort=False) * times
    table = table.reindex([name for name in entries() if name in table.index])
    shown = table.map(lambda x: "-" if not np.isfinite(x) else f"{x:.3g}")
    return shown.rename_axis(index="entry", columns=None).reset_index()


def matching(cells: pd.DataFrame) -> pd.DataFrame:
    """Errors of `private_psm` over those of `auto`; the data by records times epsilon."""
    key = ["data", "n", "epsilon"]
    both = cells.pivot_table("error", key, "fit")[["private_psm", "auto"]].dropna()
    ratio = (both["private_psm"] / both["auto"]).round(2).rename("ratio").reset_index()
    ratio.insert(3, "n epsilon", (ratio["n"] * ratio["epsilon"]).astype(int))
    return ratio.sort_values("n epsilon")


def empty(board: Leaderboard) -> pd.DataFrame:
    found = board.gaps().groupby(["fit", "reason"], sort=False)["data"].agg(", ".join)
    return found.reset_index()[["fit", "data", "reason"]].rename(columns={"fit": "entry"})


def span(runs: pd.Series) -> str:
    return f"{runs.min()}" if runs.min() == runs.max() else f"{runs.min()} to {runs.max()}"


def notes(runs: pd.DataFrame) -> str:
    board = board_of(runs)
    found, near = board.places(), 100 * board.glance()["near"].iloc[0]
    met = "reaches" if near >= 100 * BAR else "misses"
    return (
        f"In {near:.0f} % of {len(found)} places (data and epsilon) one of our methods is best or "
        f"within {100 * NEAR:.0f} % of the best, which {met} the bar of {100 * BAR:.0f} %.\n\n"
        "Error is the median over samples of |estimate - truth| / |truth|; a mean would rank by "
        "the rare sample in which a noisy denominator, or the truth, comes near zero. To answer "
        "zero would score 1. Ranked are entries that protect whole records with a proved "
        "guarantee; the others stand there for orientation, and those without any (guarantee none) "
        "are run once, not for each epsilon. Ratio is the geometric mean of an entry's error over "
        "that of the best ranked entry in the same place. Real data (lalonde, birthweight, ist, "
        "acic2016) is taken as a population: samples are drawn from its rows with replacement. "
        f"All entries see the same samples, {MANY} of them; those that fit models in blocks the "
        f"first {SOME}, those of other libraries the first {FEW}. Entries that need a delta have "
        "1e-5; those with an interval pay for it out of the same epsilon. Seconds (while both "
        "cores were busy) and memory (what a call adds to the peak of its process) are medians. "
        "PrivSyn and covariate balancing weights are not there (docs/baselines.md)."
    )


CELLS = [
    {"data": data, "fit": name, "runs": samples_of(entry)}
    for data in tasks()
    for name, entry in entries().items()
]
SMALL = [
    x
    for x in CELLS
    if x["data"] in ("lalonde", "ihdp_a")
    and x["fit"] in ("auto", "private_psm", "diff_in_means", "plain_means")
]
TABLE = Table(
    "Leaderboard",
    (Part("", CELLS, run, runs=MANY, by=("epsilon", "repeat"), small=SMALL, chunk=1),),
    notes,
    page=page,
    after=after,
    minutes=13,
)
