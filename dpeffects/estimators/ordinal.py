"""An outcome of ordered levels in two arms, from one noisy table: what `dp_ordinal` releases.

A record is in one cell: its arm and its level. All of it costs what one count does. Where treatment
was not randomised and the formula has covariates, records count by weights of a released propensity
model.
"""

from __future__ import annotations

from dataclasses import dataclass

from dpeffects.errors import OptionError
from dpeffects.estimators._tables import (
    OutcomeCell,
    TableOptions,
    fit_table,
    table_delta,
    table_shares,
    table_spec,
)
from dpeffects.formula.expression import Column, Expression, Ordered
from dpeffects.privacy.curator import Curator
from dpeffects.results.ordinal import OrdinalEffects
from dpeffects.results.tabled import Tabled


@dataclass(frozen=True)
class OrdinalOptions(TableOptions):
    """``design``: "observational", or "randomised" where treatment was assigned by chance;
    ``on_unadjusted``: "caution", or "error" to refuse, before anything is paid, a result of an
    observational study that is not adjusted; ``adjust``: whether covariates are adjusted for, None
    where there are any, treatment was not randomised, and a propensity model can be learnt;
    ``model_share``: part of the budget for that model, by default from public numbers.
    """

    def of_outcome(self, written: Expression) -> Expression:
        """The number of a record's level."""
        if not isinstance(written, Column):
            raise OptionError("dp_ordinal needs a column of levels: write pain ~ treatment")
        return Ordered(written.name)


def fit(curator: Curator, options: OrdinalOptions, estimand: str) -> Tabled:
    """Release the model of treatment, where there is one, and the table."""
    levels = curator.values[-1]
    return fit_table(OrdinalEffects, curator, options, estimand, OutcomeCell(), levels)


TABLE = table_spec(
    name="ordinal_table",
    title="noisy table of arms and levels",
    about="dp_ordinal: one table of arm and level; cumulative risks, Mann-Whitney, odds ratio",
    options=OrdinalOptions,
    shares=table_shares,
    fit=fit,
    uses_delta=table_delta,
    citation="dpeffects (software): noisy distributions by arm.",
)
