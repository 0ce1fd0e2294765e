"""Survival of two arms from one noisy life table: what `dp_survival` releases.

A record is in one cell: its arm, the interval in which its time ended, and whether by the event.
All of it costs what one count does. Survival curves, restricted means, risks, the log-rank test and
a grouped hazard ratio are functionals of the table (`inference.life_table`). Where treatment was
not randomised and the formula has covariates, records count by weights of a released propensity
model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpeffects.errors import OptionError
from dpeffects.estimators._checks import is_number
from dpeffects.estimators._tables import (
    OutcomeCell,
    TableOptions,
    fit_table,
    table_delta,
    table_shares,
    table_spec,
)
from dpeffects.formula.expression import Expression, Survival
from dpeffects.privacy.curator import Curator
from dpeffects.results.survival import SurvivalEffects
from dpeffects.results.tabled import Tabled


@dataclass(frozen=True)
class SurvivalOptions(TableOptions):
    """``horizon``: until when records are followed; ``bins``: intervals of the life table, equally
    long, or their ends; ``design``: "observational", or "randomised" where treatment was assigned
    by chance; ``on_unadjusted``: "caution", or "error" to refuse, before anything is paid, a result
    of an observational study that is not adjusted; ``adjust``: whether covariates are adjusted for,
    None where there are any, treatment was not randomised, and a propensity model can be learnt;
    ``model_share``: part of the budget for that model, by default from public numbers.
    """

    horizon: float = 1.0
    bins: int | tuple[float, ...] = 12

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (is_number(self.horizon) and 0.0 < self.horizon < math.inf):
            raise OptionError(f"horizon must be a positive number, got {self.horizon!r}")
        whole = isinstance(self.bins, int) and not isinstance(self.bins, bool)
        if whole and not 2 <= self.bins <= 200:  # type: ignore[operator]
            raise OptionError(f"bins must be a whole number from 2 to 200, got {self.bins!r}")
        if not whole:
            self._check_ends()

    def _check_ends(self) -> None:
        ends = self.bins
        fine = isinstance(ends, tuple | list) and 2 <= len(ends) <= 200
        if not fine or not all(is_number(x) for x in ends):  # type: ignore[union-attr]
            raise OptionError("bins must be a number of intervals, or the ends of the intervals")
        inside = (0.0, *map(float, ends), float(self.horizon))  # type: ignore[arg-type]
        inside = tuple(dict.fromkeys(inside))
        if list(inside) != sorted(inside) or inside[-1] != float(self.horizon):
            raise OptionError("the ends of bins must increase from 0 to the horizon")

    @property
    def edges(self) -> tuple[float, ...]:
        """Ends of the intervals, the first of them 0."""
        if isinstance(self.bins, int):
            return tuple(self.horizon * k / self.bins for k in range(self.bins + 1))
        return tuple(dict.fromkeys((0.0, *map(float, self.bins), float(self.horizon))))

    def of_outcome(self, written: Expression) -> Expression:
        """The cell of the life table."""
        if not isinstance(written, Survival):
            raise OptionError("dp_survival needs times: write Surv(time, event) ~ treatment")
        return Survival(written.time, written.event, self.edges)


def fit(curator: Curator, options: SurvivalOptions, estimand: str) -> Tabled:
    """Release the model of treatment, where there is one, and the life table."""
    edges = options.edges
    cells = 2 * (len(edges) - 1) + 1
    about = (curator, options, estimand, OutcomeCell(), cells)
    return fit_table(SurvivalEffects, *about, events=range(1, cells - 1, 2), edges=edges)


TABLE = table_spec(
    name="life_table",
    title="noisy life table by arm",
    about=(
        "dp_survival: one table of arm, interval and event; survival, restricted means, risks, "
        "hazard ratio"
    ),
    assumes="censoring does not depend on what would have happened",
    options=SurvivalOptions,
    shares=table_shares,
    fit=fit,
    uses_delta=table_delta,
    citation="dpeffects (software): noisy life tables.",
)
