"""Simulation studies: methods x sample sizes x epsilons, repeated, in several processes.

Data comes from a simulator whose true effect is known. Every repeat draws data once for each sample
size and gives it to all fits, so fits are compared on the same data. Seeds depend on the study's
seed, the sample size and the repeat alone: neither the number of processes nor an interruption
changes a number. With ``path`` every finished batch is appended to a CSV file, and a study that is
started again goes on from there.

Study: the runs of a simulation study, and what they add up to.

Runs on file: appended as they finish, read when a study is started again.

Independent tasks, run here or in several processes.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from dpeffects import errors, estimands, file_output, progress, summary
from dpeffects.estimators.option_checks import check_choice, check_whole
from dpeffects.evidence.simulations import pictures
from dpeffects.evidence.simulations.runs import (
    COLUMNS,
    KEYS,
    Maker,
    Minimisation,
    StudyDesign,
    batches_of,
    key_of,
)
from dpeffects.lazy import pd
from dpeffects.results.export import JsonDocument, frame_of
from dpeffects.results.number_format import figure, to_error
from dpeffects.results.wording import percent

T = TypeVar("T")


def run_tasks(
    tasks: Sequence[Callable[[], T]], workers: int, about: str = "", *, ordered: bool = True
) -> Iterable[T]:
    """Run tasks, and give their results as they come, with a bar if ``about`` says what is done.

    Examples
    --------
    >>> list(run_tasks([lambda: 1, lambda: 2], workers=1))
    [1, 2]
    """
    results: Iterable[T] = (task() for task in tasks)
    if workers > 1:
        try:
            from joblib import Parallel, delayed
        except ImportError:
            raise errors.MissingExtraError(
                'workers > 1 needs joblib: pip install "dpeffects[study]"'
            ) from None
        order = "generator" if ordered else "generator_unordered"
        results = Parallel(n_jobs=workers, return_as=order)(delayed(task)() for task in tasks)
    return progress.bar(results, about, len(tasks)) if about else results


def run_batches(
    batches: Sequence[Callable[[], list[dict[str, Any]]]],
    known: Iterable[dict[str, Any]],
    workers: int,
    path: str | Path | None,
    columns: Sequence[str] = COLUMNS,
) -> list[dict[str, Any]]:
    """Run batches, append their runs to the file, and return them with those already known.

    Runs that lacked a library are not kept on file: they are tried again the next time.
    """
    rows = list(known)
    for done in run_tasks(batches, workers, "batches of the study", ordered=False):
        rows += done
        if path is not None:
            lacking = errors.MissingExtraError.__name__
            append(path, [r for r in done if not str(r["failure"]).startswith(lacking)], columns)
    return rows


def on_file(
    path: str | Path | None, columns: Sequence[str] = COLUMNS, keys: Sequence[str] = KEYS
) -> list[dict[str, Any]]:
    """Read the runs of a file with these columns, if there is one; ``keys`` name a run."""
    if path is None:
        return []
    if not _exists(path):
        file_output.check(path)  # before hours of runs that could not be kept
        return []
    content = _content(path, columns)
    try:
        found = pd.read_csv(
            BytesIO(content),
            dtype={"fit": str, "warnings": str, "failure": str},
            keep_default_na=False,
            na_values=["nan"],
        )
    except ValueError:
        raise _another(path) from None
    rows = found.drop_duplicates(list(keys)).to_dict("records")
    return [{str(name): x for name, x in row.items()} for row in rows]


def _exists(path: str | Path) -> bool:
    try:
        return Path(path).exists()
    except (OSError, TypeError, ValueError):
        raise errors.OptionError(f"{path!r} is not the path of a file") from None


def _content(path: str | Path, columns: Sequence[str], *, head_only: bool = False) -> bytes:
    """Whole lines of a file of runs; of another file the first line is read, and nothing changed.

    Where a run was stopped while it wrote, its last line does not count and is cut off.
    """
    wanted = ",".join(columns).encode()
    try:
        with Path(path).open("rb") if Path(path).is_file() else BytesIO() as file:  # no pipes
            head = file.readline(len(wanted) + 2)
            if head.rstrip(b"\r\n") != wanted or not head.endswith(b"\n"):
                raise _another(path)
            content = head + (b"" if head_only else file.read())
        if not content.endswith(b"\n"):
            content = content[: content.rfind(b"\n") + 1]
            os.truncate(path, len(content))
    except OSError as error:
        raise errors.OptionError(f"{path} cannot be read: {error.strerror}") from None
    return content


def _another(path: str | Path) -> errors.OptionError:
    return errors.OptionError(f"{path} is not a file of a study: give another path")


def append(path: str | Path, rows: list[dict[str, Any]], columns: Sequence[str] = COLUMNS) -> None:
    """Add finished runs to a file; one that has come there since is another study's, or none."""
    fresh = not _exists(path)
    if not fresh:
        _content(path, columns, head_only=True)
    frame_of(rows, list(columns)).to_csv(
        path, mode="a", header=fresh, index=False, na_rep="nan", compression=None
    )


@dataclass(frozen=True, repr=False)
class SimulationStudy(summary.SummaryMixin, JsonDocument):
    """The runs of a simulation study, and what they add up to.

    Parameters
    ----------
    runs
        A frame with one row a run: fit, n, epsilon, repeat, truth, estimate, std_error, conf_low,
        conf_high, warning, failure, seconds.
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

        ``error`` is the root mean squared error, ``relative_error`` the same divided by the size of
        the truth, ``coverage`` the share of intervals that contain the truth, with its Monte Carlo
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

    def _summary(self) -> summary.Summary:
        about = summary.Pairs(
            (
                ("Data", f"{self.data}, {self.repeats} repeats, seed {self.seed}"),
                ("Estimand", self.estimand),
                ("Confidence level", percent(self.conf_level)),
            )
        )
        columns = (
            *("fit", "n", "epsilon", "bias", "RMSE", "relative RMSE"),
            *("coverage", "median width", "runs"),
        )
        rows = [_line(row) for _, row in self.tidy().iterrows()]
        notes = [
            "RMSE: root mean squared error. Relative RMSE: RMSE over the true effect. Coverage: "
            "share of confidence intervals that contain the truth, with its Monte Carlo standard "
            "error where given."
        ]
        failures = self.runs.loc[self.runs["failure"] != "", "failure"]
        for reason, times in failures.value_counts().items():
            notes.append(f"{times} runs failed: {reason}")
        table = summary.Table(
            "Error and coverage of confidence intervals", columns, tuple(rows), "lrrrrrrrr"
        )
        return summary.Summary("Simulation study", "", (about, table, summary.Notes(tuple(notes))))


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


@errors.checked_call
def simulate_study(
    fits: Mapping[str, Minimisation],
    data: Maker,
    *,
    n: int | Sequence[int],
    epsilon: float | Sequence[float],
    repeats: int = 100,
    formula: str | None = None,
    estimand: str = "ATE",
    conf_level: float = 0.95,
    seed: int = 0,
    workers: int = 1,
    path: str | Path | None = None,
    **options: Any,
) -> SimulationStudy:
    """Repeat fits on simulated data, and measure their error and the coverage of their intervals.

    Parameters
    ----------
    fits
        Names with what to run: the arguments of :func:`dp_ate` as a dict (``{"method":
        "auto", "delta": 1e-5}``), or a function ``fit(data, epsilon, seed)`` that returns
        a result, or just a number.
    data
        A simulator's name (see :func:`list_data`), or a function ``make(n, seed)`` that returns a
        frame with columns ``mu0`` and ``mu1``, the mean outcomes without and with treatment, or a
        pair of a frame and the true effect. ``options`` go to either.
    n, epsilon
        Sample sizes and budgets; every combination is run.
    repeats
        Number of data sets for each sample size.
    formula
        By default ``outcome ~ treatment |`` all other columns.
    estimand, conf_level
        "ATE", "ATT" or "ATC", and the level of the intervals.
    seed
        Of data and noise. Results of a study are simulated, so seeded noise gives nothing away.
    workers
        Number of processes; more than one needs joblib (``pip install "dpeffects[study]"``).
    path
        A CSV file that finished runs are appended to, and read from when the study is started
        again.

    Returns
    -------
    Study

    Examples
    --------
    >>> study = simulate_study(
    ...     {"means": {"method": "diff_in_means"}}, "confounded", n=500, epsilon=1.0, repeats=4
    ... )
    >>> study.runs.shape
    (4, 12)
    >>> study.tidy()["runs"].tolist()
    [4]
    """
    sizes, epsilons = numbers("n", n, 4), numbers("epsilon", epsilon, 0.0)
    _check_fits(fits)
    check_choice("estimand", estimand, estimands.AVERAGES)
    check_counts(repeats, workers, seed)
    design = StudyDesign(dict(fits), data, seed, estimand, conf_level, formula, options)
    known = on_file(path)
    batches = list(batches_of(design, sizes, epsilons, repeats, known))
    rows = run_batches(batches, known, workers, path)
    asked = set(itertools.product(design.fits, sizes, epsilons, range(repeats)))
    order = list(design.fits)
    kept = sorted(
        (row for row in rows if key_of(row) in asked),
        key=lambda row: (order.index(row["fit"]), *key_of(row)[1:]),
    )
    name = data if isinstance(data, str) else getattr(data, "__name__", type(data).__name__)
    return SimulationStudy(frame_of(kept, COLUMNS), name, estimand, conf_level, repeats, seed)


def _check_fits(fits: Mapping[str, Minimisation]) -> None:
    if not fits:
        raise errors.OptionError('give fits, for example {"means": {"method": "diff_in_means"}}')
    for name, fit in fits.items():
        if not (isinstance(fit, Mapping) or callable(fit)):
            raise errors.OptionError(f"fit {name!r} must be a dict of arguments or a function")
        if isinstance(fit, Mapping) and {"epsilon", "seed"} & set(fit):
            raise errors.OptionError(f"fit {name!r}: epsilon and seed are set by the study")


def check_counts(repeats: Any, workers: Any, seed: Any) -> None:
    """Refuse what is not a count, and a seed that is none."""
    check_whole("repeats", repeats, 1)
    check_whole("workers", workers, 1)
    check_whole("seed", seed, 0)


def numbers(name: str, given: Any, least: float) -> list[Any]:
    """Return one number or several as a list of numbers above ``least`` (n: from it on)."""
    values = list(given) if isinstance(given, Sequence | np.ndarray) else [given]
    ok = values and all(
        isinstance(x, int | float | np.number) and not isinstance(x, bool) for x in values
    )
    if isinstance(given, str) or not ok or not all(least < x + (name == "n") for x in values):
        raise errors.OptionError(f"{name} must be a positive number or several, got {given!r}")
    return [float(x) for x in values] if name == "epsilon" else [int(x) for x in values]
