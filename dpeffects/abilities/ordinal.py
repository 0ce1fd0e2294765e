"""`dp_ordinal`: an outcome of ordered levels in two arms, from one noisy table.

A record is in one cell: its arm and its level. All of it costs what one count does. Where treatment
was not randomised and the formula has covariates, records count by weights of a released propensity
model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Unpack

import numpy as np

from dpeffects.calls import OfTables, public_call, released
from dpeffects.errors import OptionError
from dpeffects.estimators.arm_tables import TableOptions, fit_table, table_spec
from dpeffects.formula.expression import Column, Expression, Ordered
from dpeffects.inference import Unavailable, intervals, ordered_levels, ratio_of
from dpeffects.lazy import pd
from dpeffects.privacy.curator import Curator
from dpeffects.results.export import frame_of
from dpeffects.results.tabled import ARMS, Tabled, TableEffects, Term, table_by_arm
from dpeffects.results.words import percent
from dpeffects.summary import SHOWN, Table, printed


@dataclass(frozen=True)
class OrdinalOptions(TableOptions):
    """{tables}"""

    def of_outcome(self, written: Expression) -> Expression:
        """The number of a record's level."""
        if not isinstance(written, Column):
            raise OptionError("dp_ordinal needs a column of levels: write pain ~ treatment")
        return Ordered(written.name)


def fit(curator: Curator, options: OrdinalOptions, estimand: str) -> Tabled:
    """Release the model of treatment, where there is one, and the table."""
    made = fit_table(OrdinalEffects, curator, options, estimand, curator.values[-1])
    return replace(made, named=_levels)


def _levels(own: Mapping[str, Any], estimation: Any) -> dict[str, Any]:
    return {"levels": estimation.design.outcome_levels}


TABLE = table_spec(
    name="ordinal_table",
    title="noisy table of arms and levels",
    about="dp_ordinal: one table of arm and level; cumulative risks, Mann-Whitney, odds ratio",
    options=OrdinalOptions,
    fit=fit,
    citation="dpeffects (software): noisy distributions by arm.",
)


@dataclass(frozen=True)
class Chance(Term):
    """A probability that is one half without effect."""

    @property
    def p_value(self) -> float | Unavailable:
        """Two-sided p-value of no effect."""
        above = replace(self.released, value=self.released.value - 0.5, possible=(-0.5, 0.5))
        return intervals.p_value(above)


@dataclass(frozen=True, repr=False, kw_only=True)
class OrdinalEffects(TableEffects, picture="report.plots.by_arm.levels"):
    """An outcome of ordered levels in two arms, from one noisy table.

    Its terms are differences in the share of records at a level or a higher one ("at least mild"),
    the probability that a treated record has a higher level than a control (ties count half; that
    of the Mann-Whitney test), and the odds ratio of a higher level, taken as the same at each level
    (proportional odds).

    Parameters
    ----------
    levels
        The declared levels, from the lowest to the highest.

    Examples
    --------
    >>> import dpeffects as dpe
    >>> import pandas as pd
    >>> pain = ["none", "mild", "severe", "mild"] * 250
    >>> data = pd.DataFrame({"t": [0, 1] * 500, "pain": pain})
    >>> levels = {"pain": ["none", "mild", "severe"]}
    >>> fit = dpe.dp_ordinal("pain ~ t", data, bounds=levels, epsilon=1, seed=1)
    >>> fit.tidy()["term"].tolist()
    ['at least mild', 'at least severe', 'probability_higher', 'odds_ratio']
    """

    _titled = "Private effects on ordered levels: {0.method_title} ({0.method})"
    levels: tuple[str, ...]

    def terms(self) -> Sequence[Term]:
        """Differences of cumulative risks, probability of a higher level, common odds ratio."""
        law = self.table.law(ordered_levels.at_least)
        differences = [
            Term(f"at least {level}", self._based(law.estimate(k, possible=(-1.0, 1.0))))
            for k, level in enumerate(self.levels[1:])
        ]
        higher = self.table.law(ordered_levels.probability_higher).estimate(possible=(0.0, 1.0))
        chance = Chance("probability_higher", self._based(higher))
        sizes = self.table.sizes
        odds = self.term("odds_ratio", lambda x: ordered_levels.log_odds_ratio(x, sizes), "log")
        return [*differences, chance, odds]

    def distribution(self, conf_level: float = 0.95) -> pd.DataFrame:
        """Shares of both arms at each level, each with its interval."""
        law = self.table.law(np.ravel)
        rows = []
        for k, (name, level) in enumerate((name, x) for name in ARMS for x in self.levels):
            term = Term(level, law.estimate(k, possible=(0.0, 1.0)))
            interval = term.conf_int(conf_level)
            low, high = (np.nan, np.nan) if isinstance(interval, Unavailable) else tuple(interval)
            own = {"share": term.estimate, "conf_low": low, "conf_high": high}
            own["noise_ratio"] = ratio_of(term.released, share=True)
            rows.append({"arm": name, self.outcome: level} | own)
        return frame_of(rows)

    def _tables(self, conf_level: float) -> list[Table]:
        """Shares of both arms at each level, each with its interval."""
        found, count = self.distribution(conf_level).to_dict("records"), len(self.levels)
        rows = []
        for k, level in enumerate(self.levels[:SHOWN]):
            cells = [level]
            for row in (found[k], found[count + k]):
                ends = (percent(row[name], ".1f") for name in ("conf_low", "conf_high"))
                share = printed(percent(row["share"], ".1f"), row["noise_ratio"])
                cells += [share, " to ".join(ends)]
            rows.append(tuple(cells))
        title = f"Levels of {self.outcome}, from the lowest on"
        return [table_by_arm(title, "level", rows, conf_level)]

    def _noted(self, conf_level: float) -> list[str]:
        count = len(self.levels)
        return [
            f"Levels go from {self.levels[0]} to {self.levels[-1]}. The probability is that of a "
            "treated record having a higher level than a control, ties counting half: 0.5 without "
            "effect. The odds ratio is that of a higher level, taken as the same at each level "
            "(proportional odds).",
            f"The first {SHOWN} of {count} levels; distribution() has all."
            if count > SHOWN
            else "",
            *self.notes,
        ]

    def _findings(self, conf_level: float) -> list[str]:
        said = self._said(conf_level)
        return [
            f"A treated record has a higher level of {self.outcome} than a control with "
            f"probability {said['probability_higher']}, ties counting half, and the common odds "
            f"ratio of a higher level is {said['odds_ratio']} "
            f"({percent(conf_level, 'g')} confidence intervals)."
        ]


@public_call(OfTables, method="ordinal_table", plot="draw the shares at each level")
def dp_ordinal(
    formula: str, data: Any, *, epsilon: float, **more: Unpack[OfTables]
) -> OrdinalEffects:
    r"""Compare an outcome of ordered levels in two arms, from one noisy table.

    Parameters
    ----------
    formula
        ``"pain ~ treatment"``, or ``"pain ~ treatment | x1 + x2"``. Covariates are adjusted for, by
        weights of a released propensity model, unless treatment was randomised.
    bounds
        As in :func:`dp_ate`. The levels of the outcome are a list from the lowest to the highest,
        of texts or numbers: ``{"pain": ["none", "mild", "severe"]}``.
    {shared}

    Returns
    -------
    OrdinalEffects
        Differences of cumulative risks ("at least mild"), the probability that a treated record has
        a higher level than a control one, a common odds ratio, and both distributions.

    Examples
    --------
    >>> import dpeffects as dpe
    >>> import pandas as pd
    >>> data = pd.DataFrame({"t": [0, 1] * 500, "grade": [1, 2, 3, 2] * 250})
    >>> fit = dpe.dp_ordinal(
    ...     "grade ~ t", data, bounds={"grade": [1, 2, 3]}, epsilon=1, design="randomised", seed=1
    ... )
    >>> fit.levels
    ('1', '2', '3')

    In a shell::

        dpeffects ordinal "pain ~ treated" trial.csv --epsilon 1 \
            --bounds bounds.toml --design randomised
        dpeffects ordinal "pain ~ treated | age + sex" patients.csv --epsilon 1 \
            --bounds bounds.toml
    """
    return released(TABLE, locals())
