"""The leaderboard: methods x data x epsilon, 50 samples each, against known effects.

    python benchmarks/leaderboard.py --workers 2              # everything; hours; it resumes
    python benchmarks/leaderboard.py --methods dpci --data ist # some entries, some data
    python benchmarks/leaderboard.py --table                  # only the tables, of what is on file

Takes the arguments of `dpeffects bench`. Runs are appended to results/leaderboard_runs.csv, which
is kept as .parquet and made of it where it is missing. Of all runs on file it makes
results/leaderboard.csv (one row a cell), .md and .png, and the table in docs/guide/accuracy.md. A
cell is one entry on one data set at one epsilon.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections.abc import Collection
from pathlib import Path

import numpy as np
import pandas as pd
from report import RESULTS, save

from dpeffects.cli.arguments import add_parameters, values_for
from dpeffects.evidence.leaderboard import Leaderboard, bench, entries, tasks
from dpeffects.evidence.leaderboard.benchmark import COLUMNS, FACTS, KEYS
from dpeffects.evidence.leaderboard.board import NEAR
from dpeffects.evidence.simulations.simulation import on_file

RUNS = RESULTS / "leaderboard_runs.csv"
KEPT = RUNS.with_suffix(".parquet")
PAGE = Path(__file__).resolve().parents[1] / "docs" / "guide" / "accuracy.md"
BAR, REPEATS = 0.8, 50
ABSENT = {
    "PrivSyn (Zhang et al. 2021)": (
        "the one package that can be installed does not give usable records (docs/baselines.md)"
    ),
    "covariate balancing weights (Ohnishi and Awan 2024)": (
        "an exact guarantee would cost 9 to 19 times the noise of the logistic regression in "
        "private_ipw (docs/baselines.md)"
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add_parameters(parser, bench)
    parser.add_argument("--table", action="store_true")
    given = parser.parse_args()
    if KEPT.exists() and not RUNS.exists():
        pd.read_parquet(KEPT).to_csv(RUNS, index=False, na_rep="nan")
    if not given.table:
        bench(**values_for(given, bench) | {"path": RUNS})
    render(on_record(given.seed or 0))


def on_record(seed: int) -> Leaderboard:
    """All runs on file, whoever asked for them."""
    runs = pd.DataFrame(on_file(RUNS, COLUMNS, KEYS), columns=COLUMNS)
    runs.to_parquet(KEPT, index=False, compression="zstd")
    runs = runs[(runs["seed"] == seed) & runs["fit"].isin(entries())]
    for name in FACTS:  # as they are now
        runs[name] = [getattr(entries()[fit], name) for fit in runs["fit"]]
    runs["data"] = pd.Categorical(runs["data"], list(tasks()))
    runs["fit"] = pd.Categorical(runs["fit"], list(entries()))
    runs = runs.sort_values(["data", "fit", "epsilon", "repeat"])
    runs = runs.astype({"data": str, "fit": str})
    kept = [tasks()[name] for name in runs["data"].unique()]
    return Leaderboard(
        runs, tuple(entries().values()), tuple(kept), int(runs["repeat"].max()) + 1, seed
    )


def render(board: Leaderboard) -> None:
    cells = board.tidy()
    cells.to_csv(RESULTS / "leaderboard.csv", index=False, float_format="%.5g")
    ax = board.plot()
    ax.figure.savefig(RESULTS / "leaderboard.png", dpi=130, bbox_inches="tight")
    epsilons = sorted(e for e in cells["epsilon"].unique() if math.isfinite(e))
    tables = {
        "Best with a proved guarantee for records": winners(board),
        "Where none of ours is within 10 % of the best": behind(board),
        "Over all cells": over_all(board),
    }
    for epsilon in epsilons:
        tables[f"Relative error, epsilon {epsilon:g}"] = wide(cells, "error", epsilon)
    tables |= {
        "Mean relative error, epsilon 1": wide(cells, "mean_error", 1.0),
        "Coverage of 95 % intervals, epsilon 1, %": wide(cells, "coverage", 1.0, 100.0),
        "Width of the intervals over the effect, epsilon 1": wide(cells, "width", 1.0),
        "Seconds of a call, epsilon 1": wide(cells, "seconds", 1.0),
        "Memory of a call, epsilon 1, MiB": wide(cells, "memory", 1.0),
        "Empty cells": empty(board),
        "Not there": pd.DataFrame(ABSENT.items(), columns=["baseline", "reason"]),
    }
    save("leaderboard", "Leaderboard", tables, notes(board))
    into_page(winners(board), samples(board, set(board.places()["best"])))


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


def behind(board: Leaderboard) -> pd.DataFrame:
    found = board.places()
    found = found[~found["near"]].drop(columns=["near", "n"])
    return found.assign(ratio=found["ours_error"] / found["error"]).round(3)


def over_all(board: Leaderboard) -> pd.DataFrame:
    table = board.overall()
    for name in ("coverage", "least_coverage"):
        table[name] = (100 * table[name]).round(0)
    table["seconds"] = [float(f"{x:.2g}") for x in table["seconds"]]
    runs = board.runs.groupby(["fit", "data", "epsilon"]).size().groupby("fit").agg(["min", "max"])
    spans = {fit: f"{a}" if a == b else f"{a} to {b}" for fit, a, b in runs.itertuples()}
    table["samples"] = table["fit"].map(spans)
    table = table.round({"ratio": 2, "memory": 0})
    return table.rename(columns={"fit": "entry", "least_coverage": "least coverage"})


def wide(cells: pd.DataFrame, value: str, epsilon: float, times: float = 1.0):
    """Rows are entries, columns data; what does not depend on epsilon stands in every table."""
    part = cells[cells["epsilon"].isin([epsilon, math.inf])]
    table = part.pivot_table(value, "fit", "data", "max", sort=False) * times
    table = table.reindex([name for name in entries() if name in table.index])
    shown = table.map(lambda x: "-" if not np.isfinite(x) else f"{x:.3g}")
    return shown.rename_axis(index="entry", columns=None).reset_index()


def empty(board: Leaderboard) -> pd.DataFrame:
    found = board.gaps().groupby(["fit", "reason"], sort=False)["data"].agg(", ".join)
    return found.reset_index()[["fit", "data", "reason"]].rename(columns={"fit": "entry"})


def samples(board: Leaderboard, fits: Collection[str] | None = None) -> str:
    kept = board.runs if fits is None else board.runs[board.runs["fit"].isin(fits)]
    runs = kept.groupby(["data", "fit", "epsilon"]).size()
    least, most = int(runs.min()), int(runs.max())
    return f"{least if least == most else f'{least} to {most}'} samples a cell"


def notes(board: Leaderboard) -> str:
    found, near = board.places(), 100 * board.glance()["near"].iloc[0]
    met = "reaches" if near >= 100 * BAR else "misses"
    return (
        f"{samples(board)}, seed {board.seed}. "
        f"In {near:.0f} % of {len(found)} places (data and epsilon) one of our methods is best or "
        f"within {100 * NEAR:.0f} % of the best, which {met} the bar of {100 * BAR:.0f} %.\n\n"
        "Error is the median over samples of |estimate - truth| / |truth|; a mean would rank by "
        "the rare sample in which a noisy denominator, or the truth, comes near zero. It has a "
        "standard error of about a sixth of itself at 50 samples; to answer zero would score 1. "
        "Ranked are entries that protect whole records with a proved guarantee; the others stand "
        "there for orientation, and those without any (guarantee none) are run once, not for each "
        "epsilon. Ratio is the geometric "
        "mean of an entry's error over that of the best ranked entry in the same place. Real data "
        "(lalonde, birthweight, ist, acic2016) is taken as a population: samples are drawn from "
        "its rows with replacement. All entries see the same samples. Entries that need a delta "
        "have 1e-5; those with an interval pay for it out of the same epsilon. Seconds (while both "
        "cores were busy) and memory (what a call adds to the peak of its process) are medians. "
        "Data and noise are seeded, so that every run can be repeated." + fewer(board)
    )


def fewer(board: Leaderboard) -> str:
    """Say that some entries are not done."""
    if board.runs.groupby(["data", "fit", "epsilon"]).size().min() >= REPEATS:
        return ""
    return (
        f" Entries with fewer samples than {REPEATS} (column samples) take seconds a call; the "
        "command goes on with them."
    )


def into_page(table: pd.DataFrame, said: str) -> None:
    """Put the table between its marks."""
    text = PAGE.read_text(encoding="utf-8")
    shown = f"{table.to_markdown(index=False)}\n\nMade of {said}."
    made = f"<!-- leaderboard -->\n{shown}\n<!-- end -->"
    found = re.sub(r"<!-- leaderboard -->.*?<!-- end -->", lambda _: made, text, flags=re.DOTALL)
    PAGE.write_text(found, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
