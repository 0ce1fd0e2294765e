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
from dpeffects.errors import OptionError, refusal
from dpeffects.estimators.arm_tables import TableOptions, fit_table, table_spec
from dpeffects.formula.expression import Column, Expression, Ordered
from dpeffects.inference import Unavailable, intervals, ordered_levels, ratio_of
from dpeffects.lazy import pd
from dpeffects.privacy.curator import Curator
from dpeffects.results.export import frame_of
from dpeffects.results.table_results import ARMS, TableEffects, TableRelease, Term, table_by_arm
from dpeffects.results.wording import percent, said
from dpeffects.summary import SHOWN, Table, printed

_SAID = said("ordinal")


@dataclass(frozen=True)
class OrdinalOptions(TableOptions):
    """{tables}"""

    def of_outcome(self, written: Expression) -> Expression:
        """The number of a record's level."""
        if not isinstance(written, Column):
            raise OptionError(refusal("dp_ordinal_needs"))
        return Ordered(written.name)


def fit(curator: Curator, options: OrdinalOptions, estimand: str) -> TableRelease:
    """Release the model of treatment, where there is one, and the table."""
    made = fit_table(OrdinalEffects, curator, options, estimand, curator.values[-1])
    return replace(made, named=_levels)


def _levels(own: Mapping[str, Any], estimation: Any) -> dict[str, Any]:
    return {"levels": estimation.design.outcome_levels}


TABLE = table_spec(name="ordinal_table", options=OrdinalOptions, fit=fit, **_SAID["spec"])


@dataclass(frozen=True)
class SuperiorityTerm(Term):
    """A probability of superiority, which is 0.5 without an effect."""

    @property
    def p_value(self) -> float | Unavailable:
        """Two-sided p-value of no effect."""
        above = replace(self.released, value=self.released.value - 0.5, possible=(-0.5, 0.5))
        return intervals.p_value(above)


@dataclass(frozen=True, repr=False, kw_only=True)
class OrdinalEffects(TableEffects, picture="report.plots.by_arm.levels"):
    """An outcome of ordered levels in two arms, from one noisy table.

    Its terms are risk differences of a level or a higher one ("at least mild"), the probability of
    superiority (that a treated record has a higher level than a control, plus half the probability
    of a tie, as in the Mann-Whitney test), and the common odds ratio of a higher level
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

    _titled = "Effects on an ordinal outcome, {0._private}"
    levels: tuple[str, ...]

    def terms(self) -> Sequence[Term]:
        """Differences in cumulative risks, probability of superiority, common odds ratio."""
        dist = self.arm_table.statistics(ordered_levels.at_least)
        differences = [
            Term(f"at least {level}", self._based(dist.estimate(k, possible=(-1.0, 1.0))))
            for k, level in enumerate(self.levels[1:])
        ]
        higher = self.arm_table.statistics(ordered_levels.probability_higher).estimate(
            possible=(0.0, 1.0)
        )
        chance = SuperiorityTerm("probability_higher", self._based(higher))
        sizes = self.arm_table.sizes
        odds = self.term("odds_ratio", lambda x: ordered_levels.log_odds_ratio(x, sizes), "log")
        return [*differences, chance, odds]

    def distribution(self, conf_level: float = 0.95) -> pd.DataFrame:
        """Proportions at each level by arm, each with its interval."""
        dist = self.arm_table.statistics(np.ravel)
        rows = []
        for k, (name, level) in enumerate((name, x) for name in ARMS for x in self.levels):
            term = Term(level, dist.estimate(k, possible=(0.0, 1.0)))
            interval = term.conf_int(conf_level)
            low, high = (np.nan, np.nan) if isinstance(interval, Unavailable) else tuple(interval)
            own = {"share": term.estimate, "conf_low": low, "conf_high": high}
            own["noise_ratio"] = ratio_of(term.released, share=True)
            rows.append({"arm": name, self.outcome: level} | own)
        return frame_of(rows)

    def _tables(self, conf_level: float) -> list[Table]:
        """Proportions at each level by arm, each with its interval."""
        found, count = self.distribution(conf_level).to_dict("records"), len(self.levels)
        rows = []
        for k, level in enumerate(self.levels[:SHOWN]):
            cells = [level]
            for row in (found[k], found[count + k]):
                ends = (percent(row[name], ".1f") for name in ("conf_low", "conf_high"))
                share = printed(percent(row["share"], ".1f"), row["noise_ratio"])
                cells += [share, " to ".join(ends)]
            rows.append(tuple(cells))
        title = f"Proportions at each level of {self.outcome}, from the lowest to the highest"
        return [table_by_arm(title, "level", rows, conf_level)]

    def _in_words(self, term: str) -> str:
        return str(_SAID["terms"].get(term, term))

    def _noted(self, conf_level: float) -> list[str]:
        count = len(self.levels)
        return [
            _SAID["terms_mean"].format(self.levels[0], self.levels[-1]),
            f"The table shows the first {SHOWN} of {count} levels; distribution() has all."
            if count > SHOWN
            else "",
            *self.notes,
        ]

    def _findings(self, conf_level: float) -> list[str]:
        found = self._said(conf_level)
        level = percent(conf_level, "g")
        return [_SAID["findings"].format(outcome=self.outcome, level=level, **found)]


@public_call(OfTables, method="ordinal_table", plot="draw the proportions at each level")
def dp_ordinal(
    formula: str, data: Any, *, epsilon: float, **more: Unpack[OfTables]
) -> OrdinalEffects:
    r"""Compare an ordinal outcome in two arms: cumulative risks, superiority, odds ratio.

    Parameters
    ----------
    formula
        ``"pain ~ treatment"``, or ``"pain ~ treatment | x1 + x2"``. Effects are adjusted for
        covariates by inverse probability weights of a released propensity model, unless treatment
        was randomised.
    bounds
        As in :func:`dp_ate`. The levels of the outcome are a list from the lowest to the highest,
        of texts or numbers: ``{"pain": ["none", "mild", "severe"]}``.
    {shared}

    Returns
    -------
    OrdinalEffects
        Risk differences of a level or a higher one ("at least mild"), the probability of
        superiority (Mann-Whitney), the common odds ratio (proportional odds), and the proportions
        at each level by arm.

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
