"""The accuracy to expect of any call, by simulating it: one row for each of its terms."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpeffects.errors import OptionError, refusal
from dpeffects.estimators.option_checks import check_whole
from dpeffects.inference.intervals import check_conf_level
from dpeffects.lazy import pd
from dpeffects.progress import bar
from dpeffects.results.export import frame_of
from dpeffects.results.wording import percent
from dpeffects.services.planning.plan_tables import PlannedRows, planned_table
from dpeffects.summary import Block


@dataclass(frozen=True)
class PlannedTerm:
    """The accuracy of one term: medians over simulations, and how often it is significant."""

    term: str
    estimate: float
    std_error: float
    half_width: float
    power: float


@dataclass(frozen=True, repr=False)
class TermPlan(PlannedRows):
    """The expected accuracy of each term of a result, over ``runs`` simulations."""

    terms: tuple[PlannedTerm, ...]
    runs: int
    conf_level: float
    _title = "Plan by term, from simulated records (no data were used)"

    def tidy(self) -> pd.DataFrame:
        """One row for each term; the power of a term without a test is NaN."""
        return frame_of([vars(term) for term in self.terms])

    def _blocks(self) -> Iterable[Block]:
        level = percent(self.conf_level)
        title = f"Medians over {self.runs} simulations ({level} confidence intervals)"
        tested = any(one.power == one.power for one in self.terms)
        figures = ("estimate", "std_error", "half_width", *(["power"] if tested else []))
        yield planned_table(title, self.terms, {"term": "term"}, figures)


def rehearse(call: Callable[[int], Any], *, runs: int = 20, conf_level: float = 0.95) -> TermPlan:
    """Predict the accuracy of a call by simulation: standard errors, half-widths and power by term.

    For functions that :func:`plan` does not cover: survival, quantiles, rates, tests, effects on
    other scales. Only simulated data are used.

    Parameters
    ----------
    call
        A function of a seed that simulates a study as you expect it to be, runs the call on it, and
        returns its result, or any frame with the columns of ``tidy()``.
    runs
        Number of simulated studies.
    conf_level
        Level of the intervals; power is that of tests at the level 1 - ``conf_level``.

    Examples
    --------
    >>> import dpeffects as dpe
    >>> def study(seed):
    ...     data = dpe.simulate("survival", n=2000, seed=seed)
    ...     asked = {"horizon": 1.0, "epsilon": 1, "seed": seed, "design": "randomised"}
    ...     return dpe.dp_survival("Surv(time, event) ~ treatment", data, **asked)
    >>> found = dpe.rehearse(study, runs=3).tidy()
    >>> list(found)
    ['term', 'estimate', 'std_error', 'half_width', 'power']
    """
    check_whole("runs", runs, 2, 10_000)
    check_conf_level(conf_level)
    frames = [_rows(call(seed), conf_level) for seed in bar(range(runs), "simulating")]
    names = list(dict.fromkeys(str(name) for frame in frames for name in frame["term"]))
    return TermPlan(tuple(_planned(name, frames, conf_level) for name in names), runs, conf_level)


def _rows(result: Any, conf_level: float) -> pd.DataFrame:
    if not hasattr(result, "tidy") and not hasattr(result, "iterrows"):
        raise OptionError(refusal("call_return_result", kind=type(result).__name__))
    frame = result if hasattr(result, "iterrows") else result.tidy(conf_level)
    lacking = {"term", "estimate", "std_error", "conf_low", "conf_high", "p_value"} - {*frame}
    if lacking:
        raise OptionError(f"call returns a result, or a frame with the columns {sorted(lacking)}")
    return frame


def _planned(name: str, frames: list[pd.DataFrame], conf_level: float) -> PlannedTerm:
    rows = [row for frame in frames for row in frame[frame["term"] == name].to_dict("records")]
    half = [(row["conf_high"] - row["conf_low"]) / 2.0 for row in rows]
    p_values = np.array([row["p_value"] for row in rows], float)
    known = p_values[~np.isnan(p_values)]
    return PlannedTerm(
        name,
        float(np.median([row["estimate"] for row in rows])),
        float(np.median([row["std_error"] for row in rows])),
        float(np.median(half)),
        float(np.mean(known < 1.0 - conf_level)) if known.size else float("nan"),
    )
