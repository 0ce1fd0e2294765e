"""Study: the runs of a simulation study, and what they add up to."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpeffects.lazy import pd
from dpeffects.results.export import JsonRecord, frame_of
from dpeffects.results.numbers import figure, to_error
from dpeffects.results.words import percent
from dpeffects.simulations import pictures
from dpeffects.simulations.runs import KEYS
from dpeffects.summary import Notes, Pairs, Shown, Summary, Table


@dataclass(frozen=True, repr=False)
class Study(Shown, JsonRecord):
    """The runs of a simulation study, and what they add up to.

    Parameters
    ----------
    runs
        A frame with one row a run: fit, n, epsilon, repeat, truth, estimate, std_error, conf_low,
        conf_high, caution, failure, seconds.
    data, estimand, conf_level, repeats, seed
        As asked for.
    """

    runs: pd.DataFrame
    data: str
    estimand: str
    conf_level: float
    repeats: int
    seed: int

    def __repr__(self) -> str:
        fits = ", ".join(self.runs["fit"].unique())
        return f"<dpeffects simulation study of {fits} on {self.data}, {len(self.runs)} runs>"

    def tidy(self) -> pd.DataFrame:
        """One row for each fit, sample size and epsilon.

        ``error`` is the root mean squared error, ``relative_error`` that over the size of the
        truth, ``coverage`` the share of intervals that hold the truth with its Monte Carlo
        standard error ``coverage_se``, ``width`` the median width.
        """
        rows = [
            dict(zip(KEYS[:3], key, strict=True)) | _measures(group)
            for key, group in self.runs.groupby(KEYS[:3], sort=False)
        ]
        return frame_of(rows)

    def glance(self) -> pd.DataFrame:
        """One row for the study."""
        failed = int((self.runs["failure"] != "").sum())
        row = {"data": self.data, "estimand": self.estimand, "repeats": self.repeats}
        seconds = float(self.runs["seconds"].sum())
        return frame_of([row | {"runs": len(self.runs), "failed": failed, "seconds": seconds}])

    def plot(self, y: str = "error", ax: Any = None) -> Any:
        """Draw a column of `tidy` against epsilon, a line for each fit and sample size."""
        frame = self.tidy()
        if frame["n"].nunique() > 1:
            frame["fit"] = frame["fit"] + ", n = " + frame["n"].astype(str)
        return pictures.errors(frame, x="epsilon", y=y, by="fit", ax=ax)

    def _summary(self) -> Summary:
        about = Pairs(
            (
                ("Data", f"{self.data}, {self.repeats} repeats, seed {self.seed}"),
                ("Estimand", self.estimand),
                ("Intervals", percent(self.conf_level)),
            )
        )
        columns = ("fit", "n", "epsilon", "bias", "error", "relative", "coverage", "width", "runs")
        rows = [_line(row) for _, row in self.tidy().iterrows()]
        notes = ["Error is the root mean squared error; relative to the size of the true effect."]
        failures = self.runs.loc[self.runs["failure"] != "", "failure"]
        for reason, times in failures.value_counts().items():
            notes.append(f"{times} runs failed: {reason}")
        table = Table("Error and coverage", columns, tuple(rows), "lrrrrrrrr")
        return Summary("Simulation study", "", (about, table, Notes(tuple(notes))))


def _line(row: Any) -> tuple[str, ...]:
    bias, error, width = to_error((row["bias"], row["error"], row["width"]), row["error"], 3)
    covered = "n/a" if math.isnan(row["coverage"]) else percent(row["coverage"], ".1f")
    relative = figure(row["relative_error"], ".3f")
    key = (row["fit"], str(row["n"]), f"{row['epsilon']:g}")
    return (*key, bias, error, relative, covered, width, str(row["runs"]))


def _measures(group: pd.DataFrame) -> dict[str, Any]:
    ok = group[group["failure"] == ""]
    off = (ok["estimate"] - ok["truth"]).to_numpy(float)
    known = ok.dropna(subset=["conf_low", "conf_high"])
    held = known["truth"].between(known["conf_low"], known["conf_high"]).to_numpy()
    covered = float(held.mean()) if len(known) else math.nan
    size = float(ok["truth"].abs().mean()) if len(ok) else math.nan
    error = float(np.sqrt((off**2).mean())) if len(ok) else math.nan
    return {
        "bias": float(off.mean()) if len(ok) else math.nan,
        "error": error,
        "relative_error": error / size if size else math.nan,
        "coverage": covered,
        "coverage_se": math.sqrt(covered * (1.0 - covered) / max(len(known), 1)),
        "width": float((known["conf_high"] - known["conf_low"]).median()),
        "std_error": float(ok["std_error"].median()),
        "seconds": float(group["seconds"].median()),
        "runs": len(group),
        "failed": len(group) - len(ok),
    }
