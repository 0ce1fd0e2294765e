"""OrdinalEffects: an outcome of ordered levels in two arms, and what compares it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from dpeffects.inference import intervals as inference
from dpeffects.inference import ordinal
from dpeffects.inference.estimate import Unavailable
from dpeffects.inference.noisy import ratio_of
from dpeffects.results.export import frame_of
from dpeffects.results.survival import ARMS
from dpeffects.results.tabled import TableEffects, Term

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Chance(Term):
    """A probability that is one half without effect."""

    @property
    def p_value(self) -> float | Unavailable:
        """Two-sided p-value of no effect."""
        above = replace(self.released, value=self.released.value - 0.5, possible=(-0.5, 0.5))
        return inference.p_value(above)


@dataclass(frozen=True, repr=False, kw_only=True)
class OrdinalEffects(TableEffects, words="about_quantiles", pictures="plots.by_arm"):
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

    levels: tuple[str, ...]

    def terms(self) -> Sequence[Term]:
        """Differences of cumulative risks, probability of a higher level, common odds ratio."""
        law = self.table.law(ordinal.at_least)
        differences = [
            Term(f"at least {level}", self._based(law.estimate(k, possible=(-1.0, 1.0))))
            for k, level in enumerate(self.levels[1:])
        ]
        higher = self.table.law(ordinal.probability_higher).estimate(possible=(0.0, 1.0))
        chance = Chance("probability_higher", self._based(higher))
        return [*differences, chance, self._odds_ratio()]

    def _odds_ratio(self) -> Term:
        sizes = self.table.sizes
        return self.term("odds_ratio", lambda x: ordinal.log_odds_ratio(x, sizes), "log")

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
