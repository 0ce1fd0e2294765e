"""`dp_qte`: quantiles of two arms from one noisy table of records by arm and bin.

A small part of the budget first counts records on a grid that has no scale of its own, so that the
bins of the table are where the records are (`inference.bins`). A record is in one bin of each. All
quantiles, and both distributions, follow from the table (`inference.quantiles`). Where treatment
was not randomised and the formula has covariates, records count by weights of a released propensity
model.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Unpack, cast

import numpy as np

from dpeffects.arrays import FloatArray, IntArray
from dpeffects.calls import OfTables, public_call, released
from dpeffects.errors import OptionError, refusal
from dpeffects.estimators import arm_tables, spec
from dpeffects.estimators import constants as hand
from dpeffects.estimators.option_checks import between, check_bins, checked
from dpeffects.estimators.row_functions import row
from dpeffects.inference import Estimate, SamplingVariance, Unavailable, check_conf_level
from dpeffects.inference.bins import MOST, OutcomeRange, number_of_bins, place
from dpeffects.inference.quantiles import Distributions
from dpeffects.inference.tables import ArmTable
from dpeffects.lazy import pd
from dpeffects.privacy import COUNT, Block, Curator, GroupIndex, entries
from dpeffects.results.export import frame_of
from dpeffects.results.number_format import with_ends
from dpeffects.results.table_results import (
    ARMS,
    TableEffects,
    TableRelease,
    TestInversionTerm,
    normal,
    table_by_arm,
)
from dpeffects.results.wording import percent, said
from dpeffects.summary import Table, printed

_SAID = said("quantile")


def check_quantiles(given: Any) -> tuple[float, ...]:
    """Shares of records, each above 0 and below 1, in the order given."""
    several = isinstance(given, Iterable) and not isinstance(given, str)
    entries = tuple(given) if several else (given,)
    fine = all(isinstance(x, int | float | np.number) and 0.0 < x < 1.0 for x in entries)
    if not fine or not 0 < len(entries) <= 100 or len(set(entries)) < len(entries):
        raise OptionError(refusal("quantiles_different_numbers"))
    return tuple(float(x) for x in entries)


@dataclass(frozen=True)
class QuantileOptions(arm_tables.TableOptions):
    """``quantiles``: probabilities, around which most bins are; others can be asked for later.

    ``bins``: their number, by default from public and released numbers; or their ends, which are
    then public. ``location_share``: part of the budget for finding where the bins should be, by
    default 0.18, and 0 where the ends are given or the outcome has few whole numbers.

    {tables}
    """

    quantiles: tuple[float, ...] = (0.1, 0.25, 0.5, 0.75, 0.9)
    bins: int | tuple[float, ...] | None = checked(None, check_bins, 4, 500)
    location_share: float | None = between(None, 0.0, 1.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "quantiles", check_quantiles(self.quantiles))
        if self.bins is not None and not isinstance(self.bins, int):
            object.__setattr__(self, "bins", tuple(map(float, self.bins)))

    def resolve(self, facts: spec.PublicInfo) -> spec.Options:
        """Decide whether a first stage is needed, and whether to adjust."""
        found = cast(QuantileOptions, super().resolve(facts))
        known = isinstance(self.bins, tuple) or 0 < facts.values[-1] <= MOST
        share = hand.SQUARES if self.location_share is None else self.location_share
        if not known and not 0.0 < share < 1.0:
            raise OptionError("location_share must be above 0 and below 1 where bins are not given")
        return found.made_for(facts, location_share=0.0 if known else share)


def budget_split(level: str, options: QuantileOptions) -> dict[str, float]:
    """Split of the budget: a part says where the bins are, unless that is known."""
    part = hand.SQUARES if options.location_share is None else options.location_share
    others = {name: (1.0 - part) * x for name, x in arm_tables.table_budget(level, options).items()}
    return {"place": part, **others} if part else others


def uses_delta(options: QuantileOptions, facts: spec.PublicInfo) -> dict[str, float | None]:
    """Shares that can use a delta: a record moves two counts."""
    return {"place": entries(COUNT, cells=2), **arm_tables.table_delta(options, facts)}


@row("outcome")
def outcome_bin(rows: Block, ends: FloatArray) -> IntArray:
    """The bin of an outcome: the number of ends that are below it."""
    return np.searchsorted(ends, rows.outcome, side="left").astype(np.int64)


def fit(curator: Curator, options: QuantileOptions, estimand: str) -> TableRelease:
    """Release where records are, a model of treatment where there is one, and the table."""
    lower, upper = map(float, curator.outcome_range)
    scale = OutcomeRange(lower, upper, 0 < curator.values[-1] == int(upper - lower) + 1)
    adjustment = arm_tables.adjusted(curator, options, estimand)
    ends = _ends(curator, options, scale, adjustment)
    bins = outcome_bin(ends)
    own: dict[str, Any] = {
        "arm_table": arm_tables.release_table(curator, options, bins, ends.size + 1, adjustment),
        "ends": tuple(ends.tolist()),
        "lower": scale.lower,
        "upper": scale.upper,
        "whole": scale.whole,
        "asked": options.quantiles,
    }
    return arm_tables.tabled(QuantileEffects, options, adjustment, **own)


def _ends(
    curator: Curator,
    options: QuantileOptions,
    scale: OutcomeRange,
    adjustment: arm_tables.Adjustment | None,
) -> FloatArray:
    """Ends of the bins: those given, each whole number, or where a first stage has records."""
    if isinstance(options.bins, tuple):
        return scale.with_fixed(np.array(options.bins))
    if not curator.has("place"):
        return scale.each()
    grid = scale.grid()
    cells = GroupIndex(arm_tables.arm_and_bin(outcome_bin(grid), grid.size + 1), 2 * grid.size + 2)
    found = curator.sums("where outcomes are, by arm", None, COUNT, cells, share="place")
    seen = ArmTable(found.value.reshape(2, -1), (found.variance, found.variance))
    top = 1.0 if adjustment is None else float(adjustment.weight.largest.max())
    noise = (2.0 * top * curator.noise_sd("table")) ** 2
    bins = options.bins or number_of_bins(float(seen.sizes.min()), noise)
    apart = 0.02 if adjustment is None else 0.02 + hand.CONFOUNDED_RISK / 2.0
    return place(scale, grid, seen.plausible, options.quantiles, bins, apart)


TABLE = arm_tables.table_spec(
    name="quantile_table",
    options=QuantileOptions,
    budget_split=budget_split,
    fit=fit,
    uses_delta=uses_delta,
    **_SAID["spec"],
)


@dataclass(frozen=True, repr=False, kw_only=True)
class QuantileEffects(TableEffects, picture="report.plots.by_arm.distributions"):
    """Quantiles of the outcome in two arms and their differences, from one noisy table.

    A quantile treatment effect compares the two distributions: the median of the outcome under
    treatment minus the median under control. It is not the median of individual effects. Outcomes
    beyond the declared range are clipped to its ends, and so are quantiles. Quantiles of whole
    numbers are whole numbers.

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

    _titled = "Quantile treatment effects (QTE), {0._private}"
    ends: tuple[float, ...]
    lower: float
    upper: float
    whole: bool
    asked: tuple[float, ...]

    @cached_property
    def distributions(self) -> Distributions:
        """Both distributions, with the distributions of what they give."""
        scale = OutcomeRange(self.lower, self.upper, self.whole)
        return Distributions(self.arm_table, np.array(self.ends), scale)

    def quantiles(
        self,
        quantiles: float | Iterable[float] | None = None,
        conf_level: float = 0.95,
        *,
        simultaneous: bool = False,
    ) -> pd.DataFrame:
        """Any quantiles of both arms and their differences, at no cost in privacy budget.

        ``simultaneous``: intervals of each column are simultaneous for all quantiles.
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
        """Distribution functions of both arms at the ends of the bins.

        The confidence bands are simultaneous for both distributions.
        """
        check_conf_level(conf_level)
        rows = []
        for name, ends in zip(ARMS, self.distributions.band(conf_level), strict=True):
            for value, share, low, high in zip(self.distributions.edges, *ends, strict=True):
                limits = {"share": share, "conf_low": low, "conf_high": high}
                rows.append({"arm": name, self.outcome: value} | limits)
        return frame_of(rows)

    def terms(self) -> Sequence[TestInversionTerm]:
        """Differences at the quantiles that were asked for."""
        return [self._term(p) for p in self.asked]

    def _term(self, p: float) -> TestInversionTerm:
        one = self.distributions.difference((p,), 1.0)
        error = float(one.upper[0] - one.lower[0]) / 2.0
        sampling: SamplingVariance | Unavailable
        sampling = SamplingVariance(error**2, 0.0, max(error**2, 1e-300))
        if self.whole:
            sampling = Unavailable("quantiles of whole numbers have no standard error")
        released = self._based(Estimate(float(one.value[0]), sampling))
        limits, reached = partial(self._limits, p), float(self._reached[self.asked.index(p)])
        noise = float(self.distributions.noise_ratios((p,)).max())
        return TestInversionTerm(
            f"quantile {p:g}", released, limits=limits, reached=reached, noise=noise
        )

    @cached_property
    def _reached(self) -> FloatArray:
        """How many standard errors intervals need to have zero; all are looked for together."""
        return self.distributions.reach(self.asked)

    def _limits(self, p: float, z: float) -> tuple[float, float]:
        found = self.distributions.difference((p,), z)
        return float(found.lower[0]), float(found.upper[0])

    def _z(self, p: Sequence[float], conf_level: float, simultaneous: bool) -> float:
        """How many standard errors an interval has to each side."""
        if simultaneous:
            return self.distributions.at_once(p).critical_value(check_conf_level(conf_level))
        return normal(conf_level)

    def conf_int(self, conf_level: float = 0.95, *, simultaneous: bool = False) -> FloatArray:
        """Intervals, one row for each quantile; ``simultaneous`` intervals are for all of them."""
        z = self._z(self.asked, conf_level, simultaneous)
        found = self.distributions.difference(self.asked, z)
        return np.column_stack([found.lower, found.upper])

    def tidy(self, conf_level: float = 0.95, *, simultaneous: bool = False) -> pd.DataFrame:
        """One row for each quantile asked for.

        ``simultaneous``: intervals are simultaneous for all quantiles, with adjusted p-values.
        """
        frame = super().tidy(conf_level)
        if simultaneous:
            low, high = self.conf_int(conf_level, simultaneous=True).T
            frame = frame.assign(conf_low=low, conf_high=high)
        if simultaneous and not self.associated:
            dist = self.distributions.at_once(self.asked)
            frame = frame.assign(p_value=[dist.p_value(z) for z in self._reached.tolist()])
        return frame

    @property
    def estimate_warnings(self) -> str:
        """Warnings about the estimates; empty where there are none."""
        beyond = ", ".join(f"{p:g}" for p in self.asked if self.distributions.beyond(p))
        words = _SAID["beyond"].format(beyond) if beyond else ""
        return "; ".join(filter(None, (super().estimate_warnings, words)))

    def _tables(self, conf_level: float) -> list[Table]:
        """Quantiles of both arms, each with its interval."""
        rows = []
        for each in self.quantiles(conf_level=conf_level).to_dict("records"):
            cells = [f"{each['quantile']:g}"]
            for arm in ARMS:
                value, low, high = with_ends(each[arm], each[f"{arm}_low"], each[f"{arm}_high"])
                cells += [printed(value, each[f"{arm}_noise_ratio"]), f"{low} to {high}"]
            rows.append(tuple(cells))
        return [table_by_arm(f"Quantiles of {self.outcome}", "quantile", rows, conf_level)]

    def _noted(self, conf_level: float) -> list[str]:
        return [_SAID["whole"] if self.whole else "", _SAID["effects"], *self.notes]

    def _findings(self, conf_level: float) -> list[str]:
        said = self._said(conf_level).items()
        parts = "; ".join(f"{term.removeprefix('quantile ')}: {text}" for term, text in said)
        return [
            f"Quantile treatment effects on {self.outcome}, treated minus control "
            f"({percent(conf_level, 'g')} confidence intervals): {parts}."
        ]


class _OfQuantiles(OfTables, total=False):
    bins: int | Sequence[float] | None
    location_share: float | None


@public_call(
    _OfQuantiles,
    method="quantile_table",
    plot="draw both distributions",
    quantiles={"type": float, "nargs": "+", "help": "probabilities; 0.5: median"},
)
def dp_qte(
    formula: str,
    data: Any,
    *,
    quantiles: float | Sequence[float] = (0.1, 0.25, 0.5, 0.75, 0.9),
    epsilon: float,
    **more: Unpack[_OfQuantiles],
) -> QuantileEffects:
    r"""Estimate quantile treatment effects: quantiles of the outcome in two arms, compared.

    Parameters
    ----------
    formula
        ``"outcome ~ treatment"``, or ``"outcome ~ treatment | x1 + x2"``. Effects are adjusted for
        covariates by inverse probability weights of a released propensity model, unless treatment
        was randomised.
    quantiles
        Probabilities, 0.5 for the median. The histogram is finest around these quantiles; the
        result can give others at no cost in privacy budget.
    bounds
        As in :func:`dp_ate`. The range of the outcome may be wide: a part of epsilon is used to
        find where the outcomes are.
    {shared}

    Returns
    -------
    QuantileEffects
        Quantiles of both arms with their differences, and both distribution functions.

    Examples
    --------
    >>> import dpeffects as dpe
    >>> import pandas as pd
    >>> data = pd.DataFrame({"t": [0, 1] * 1000, "cost": [i**2 / 40 for i in range(2000)]})
    >>> fit = dpe.dp_qte(
    ...     "cost ~ t", data, quantiles=0.5, bounds={"cost": (0, 1e6)}, epsilon=1,
    ...     design="randomised", seed=1,
    ... )
    >>> bool(20_000 < fit.quantiles()["control"][0] < 30_000)  # 25,000
    True

    In a shell::

        dpeffects qte "cost ~ treated" trial.csv --quantiles 0.5 0.9 --epsilon 1 \
            --bounds bounds.toml --design randomised --plot distributions.png
        dpeffects qte "cost ~ treated | age + sex" patients.csv --epsilon 1 \
            --bounds bounds.toml --format html --out quantiles.html
    """
    return released(TABLE, locals())
