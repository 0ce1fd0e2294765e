"""QuantileEffects: distributions of the outcome in two arms, and the quantiles that they give."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

from dpeffects.arrays import FloatArray
from dpeffects.errors import OptionError
from dpeffects.inference.bins import Scale
from dpeffects.inference.estimate import Estimate, SamplingVariance, Unavailable
from dpeffects.inference.intervals import check_conf_level
from dpeffects.inference.quantiles import Distributions, Ends
from dpeffects.results.export import frame_of
from dpeffects.results.survival import ARMS, Inverted
from dpeffects.results.tabled import TableEffects

if TYPE_CHECKING:
    import pandas as pd


def check_quantiles(given: Any) -> tuple[float, ...]:
    """Shares of records, each above 0 and below 1, in the order given."""
    several = isinstance(given, Iterable) and not isinstance(given, str)
    entries = tuple(given) if several else (given,)
    fine = all(isinstance(x, int | float | np.number) and 0.0 < x < 1.0 for x in entries)
    if not fine or not 0 < len(entries) <= 100 or len(set(entries)) < len(entries):
        raise OptionError("quantiles are different shares above 0 and below 1, as [0.1, 0.5, 0.9]")
    return tuple(float(x) for x in entries)


@dataclass(frozen=True, repr=False, kw_only=True)
class QuantileEffects(TableEffects, words="about_quantiles", pictures="plots.by_arm"):
    """Quantiles of the outcome in two arms and their differences, from one noisy table.

    An effect at a quantile compares the two distributions: the median of what all records would
    have under treatment, minus the median under control. It is not the median of the effects of
    single records. Outcomes beyond the declared range count at its end, and so does a quantile
    there. Quantiles of whole numbers are whole numbers.

    Parameters
    ----------
    ends
        Upper ends of the bins of the table, but for the last, whose end is that of the range.
    lower, upper, whole
        The declared range of the outcome, and whether it has whole numbers only.
    asked
        The quantiles that `tidy` has; `quantiles` has any other.

    Examples
    --------
    >>> import dpeffects as dpe
    >>> data = dpe.simulate("cate_1", n=4000, seed=1)
    >>> fit = dpe.dp_qte("outcome ~ treatment | x1 + x2", data, epsilon=1, seed=1)
    >>> fit.tidy()["term"].tolist()[:2]
    ['quantile 0.1', 'quantile 0.25']
    >>> fit.quantiles(0.4).columns.tolist()[:4]
    ['quantile', 'treated', 'treated_low', 'treated_high']
    """

    ends: tuple[float, ...]
    lower: float
    upper: float
    whole: bool
    asked: tuple[float, ...]

    @cached_property
    def distributions(self) -> Distributions:
        """Both distributions, with the laws of what they give."""
        scale = Scale(self.lower, self.upper, self.whole)
        return Distributions(self.table, np.array(self.ends), scale)

    def quantiles(
        self,
        quantiles: float | Iterable[float] | None = None,
        conf_level: float = 0.95,
        *,
        simultaneous: bool = False,
    ) -> pd.DataFrame:
        """Quantiles of both arms and their differences, of whichever shares; this costs nothing.

        ``simultaneous``: intervals of each column hold for all quantiles at once.
        """
        p = self.asked if quantiles is None else check_quantiles(quantiles)
        z = self._z(p, conf_level, simultaneous)
        found = {name: self.distributions.quantile(arm, p, z) for arm, name in enumerate(ARMS)}
        found["difference"] = self.distributions.difference(p, z)
        columns: dict[str, Any] = {"quantile": list(p)}
        ratios = self.distributions.noise_ratios(p)
        for k, (name, ends) in enumerate(found.items()):
            columns |= {name: ends.value, f"{name}_low": ends.lower, f"{name}_high": ends.upper}
            columns[f"{name}_noise_ratio"] = ratios[k] if k < 2 else ratios.max(axis=0)
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        return frame_of(rows)

    def distribution(self, conf_level: float = 0.95) -> pd.DataFrame:
        """Shares of both arms with outcomes up to the ends of the bins.

        The bands hold for all of both distributions at once.
        """
        check_conf_level(conf_level)
        rows = []
        for name, ends in zip(ARMS, self.distributions.band(conf_level), strict=True):
            for value, share, low, high in zip(self.distributions.edges, *ends, strict=True):
                limits = {"share": share, "conf_low": low, "conf_high": high}
                rows.append({"arm": name, self.outcome: value} | limits)
        return frame_of(rows)

    def terms(self) -> Sequence[Inverted]:
        """Differences at the quantiles that were asked for."""
        return [self._term(p) for p in self.asked]

    def _term(self, p: float) -> Inverted:
        one = self.distributions.difference((p,), 1.0)
        error = float(one.upper[0] - one.lower[0]) / 2.0
        sampling: SamplingVariance | Unavailable
        sampling = SamplingVariance(error**2, 0.0, max(error**2, 1e-300))
        if self.whole:
            sampling = Unavailable("quantiles of whole numbers have no standard error")
        released = self._based(Estimate(float(one.value[0]), sampling))
        limits, reached = partial(self._limits, p), float(self._reached[self.asked.index(p)])
        noise = float(self.distributions.noise_ratios((p,)).max())
        return Inverted(f"quantile {p:g}", released, limits=limits, reached=reached, noise=noise)

    @cached_property
    def _reached(self) -> FloatArray:
        """How many standard errors intervals need to have zero; all are looked for together."""
        return self.distributions.reach(self.asked)

    def _limits(self, p: float, z: float) -> tuple[float, float]:
        found = self.distributions.difference((p,), z)
        return float(found.lower[0]), float(found.upper[0])

    def _z(self, p: Sequence[float], conf_level: float, simultaneous: bool) -> float:
        """How many standard errors an interval has to each side."""
        check_conf_level(conf_level)
        if simultaneous:
            return self.distributions.at_once(p).critical_value(conf_level)
        return NormalDist().inv_cdf(0.5 + conf_level / 2.0)

    def conf_int(self, conf_level: float = 0.95, *, simultaneous: bool = False) -> FloatArray:
        """Intervals, one row for each quantile; ``simultaneous``: they hold for all at once."""
        found = self._differences(conf_level, simultaneous)
        return np.column_stack([found.lower, found.upper])

    def _differences(self, conf_level: float, simultaneous: bool) -> Ends:
        z = self._z(self.asked, conf_level, simultaneous)
        return self.distributions.difference(self.asked, z)

    def tidy(self, conf_level: float = 0.95, *, simultaneous: bool = False) -> pd.DataFrame:
        """One row for each quantile asked for.

        ``simultaneous``: intervals hold for all at once, and p-values are adjusted for that.
        """
        frame = super().tidy(conf_level)
        if simultaneous:
            low, high = self.conf_int(conf_level, simultaneous=True).T
            frame = frame.assign(conf_low=low, conf_high=high)
        if simultaneous and not self.associated:
            law = self.distributions.at_once(self.asked)
            frame = frame.assign(p_value=[law.p_value(z) for z in self._reached.tolist()])
        return frame

    @property
    def doubts(self) -> str:
        """What nobody should overlook about the estimates; empty when all is well."""
        beyond = [f"{p:g}" for p in self.asked if self.distributions.beyond(p)]
        words = ""
        if beyond:
            words = f"AT AN END OF THE DECLARED RANGE, or beyond: quantile {', '.join(beyond)}"
        return "; ".join(filter(None, (super().doubts, words)))
