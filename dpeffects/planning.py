"""What a release will cost in accuracy, before any data is touched.

A plan is a dress rehearsal: each method runs on made-up records that fit the formula and the
declared bounds (`made_up_records`), with the noise it would use. So every method can be planned,
also those that choose from n and epsilon what to do, and the figures are those of the method.
What the rehearsal cannot know (how covariates really spread, how outcomes vary) is an argument.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

from dpeffects.arrays import FloatArray
from dpeffects.design import read as design
from dpeffects.design.bounds import Bounds, Declared, declare, skeleton
from dpeffects.effects import dp_cate, estimate_effect
from dpeffects.errors import BoundsError, DPEffectsError, OptionError
from dpeffects.estimands import ESTIMANDS
from dpeffects.estimators import conditional_methods, get, proved
from dpeffects.estimators._checks import check_choice, check_whole, is_number
from dpeffects.formula import Formula, parse
from dpeffects.formula.expression import Column, source
from dpeffects.formula.ranges import range_of
from dpeffects.privacy.budget import Budget
from dpeffects.progress import bar
from dpeffects.results.export import JsonRecord, frame_of
from dpeffects.summary import Shown, draw

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class PlanSetting:
    """What is planned: the call, and what is assumed about the data."""

    formula: str
    n: int
    epsilon: float
    delta: float
    bounds: Bounds
    estimand: str
    outcome_mean: float
    outcome_sd: float
    treated: float
    selection: float
    conf_level: float
    power: float
    repeats: int
    options: Mapping[str, Any]


@dataclass(frozen=True)
class Planned:
    """Expected accuracy of one method; ``reason`` says why there is none."""

    method: str
    noise_sd: float = math.nan
    std_error: float = math.nan
    half_width: float = math.nan
    detectable: float = math.nan
    shares: tuple[tuple[str, float], ...] = ()
    reason: str = ""


@dataclass(frozen=True)
class Plan(Shown, JsonRecord):
    """The expected accuracy of each method; print it, plot it, or ask it for the inverse.

    ``noise_sd`` is the standard deviation of the privacy noise, ``half_width`` that of the interval
    around the estimate, ``detectable`` the smallest effect found with the wanted power.
    """

    setting: PlanSetting
    rows: tuple[Planned, ...]

    def tidy(self) -> pd.DataFrame:
        """One row a method; what is not available is NaN, and the column reason says why."""
        names = ("method", "noise_sd", "std_error", "half_width", "detectable", "reason")
        return frame_of([{name: getattr(row, name) for name in names} for row in self.rows])

    def shares_frame(self) -> pd.DataFrame:
        """Epsilon by method and share of the budget."""
        return frame_of(
            [
                {"method": row.method, "share": name, "epsilon": epsilon}
                for row in self.rows
                for name, epsilon in row.shares
            ],
            ["method", "share", "epsilon"],
        )

    def needed(self, half_width: float, *, of: str = "epsilon") -> pd.DataFrame:
        """Return the epsilon (or, with ``of="n"``, the records) for a wanted half-width.

        It is looked for from the plan's own value outwards: a method that adjusts for more as its
        budget grows may reach the half-width at a smaller one too, without adjusting. NaN
        where no value up to 1,000 (or 10^8 records, by extrapolation) reaches it.
        """
        if of not in ("epsilon", "n"):
            raise OptionError(f'of must be "epsilon" or "n", got {of!r}')
        if not half_width > 0:
            raise OptionError(f"half_width must be positive, got {half_width!r}")
        rows = [
            {"method": r.method, of: _solve(self.setting, r.method, half_width, of)}
            for r in bar([row for row in self.rows if not row.reason], "solving")
        ]
        return frame_of(rows, ["method", of])

    @property
    def outcome(self) -> str:
        """The outcome as the formula has it."""
        return source(parse(self.setting.formula).outcome)

    def against(self, epsilons: Sequence[float]) -> pd.DataFrame:
        """Noise and half-width of each usable method at several epsilons, one row each."""
        cells = [(r.method, float(e)) for r in self.rows if not r.reason for e in epsilons]
        rows = []
        for method, epsilon in bar(cells, "rehearsing"):
            row = _rehearsed(replace(self.setting, epsilon=epsilon), method)
            figures = {"noise_sd": row.noise_sd, "half_width": row.half_width}
            rows.append({"method": method, "epsilon": epsilon, **figures})
        return frame_of(rows, ["method", "epsilon", "noise_sd", "half_width"])

    def plot(self, epsilons: Sequence[float] | None = None, ax: Any = None) -> Any:
        """Draw the half-width against epsilon; return the axes (matplotlib)."""
        return draw(self, epsilons, ax=ax)

    __repr__ = Shown.__str__


_MOST = 10_000_000
"""Records that are rehearsed."""


def plan(
    formula: str,
    *,
    n: int,
    epsilon: float,
    delta: float = 0.0,
    bounds: Mapping[str, Any] | None = None,
    method: str | None = None,
    estimand: str = "ATE",
    outcome_mean: float | None = None,
    outcome_sd: float | None = None,
    treated: float = 0.5,
    selection: float = 0.7,
    conf_level: float = 0.95,
    power: float = 0.8,
    repeats: int = 10,
    **options: Any,
) -> Plan:
    """Predict what each method would give, without touching data.

    Parameters
    ----------
    formula, epsilon, delta, bounds
        As in :func:`dp_ate`; every column needs declared bounds.
    n
        Number of records.
    method
        One method, or None for all that can estimate the estimand.
    estimand
        "ATE", "ATT", "ATC", or "CATE": then figures are medians over groups, points, or the points
        along each covariate that a summary shows, as ``release``, ``at`` and ``by`` say.
    outcome_mean, outcome_sd
        A guess of the outcome's mean and standard deviation within arms; by default the middle and
        a sixth of its range. A mean far from the middle makes noise in the size of an arm count.
    treated
        Share of treated records.
    selection
        Standard deviation of the log odds of treatment that covariates explain; 0 in a trial.
    conf_level, power
        Of the interval, and for the smallest detectable effect.
    repeats
        Rehearsals to average over.
    **options
        Options of the method, when one is named.

    Returns
    -------
    Plan

    Examples
    --------
    >>> import dpeffects as dpe
    >>> study = dpe.plan("y ~ t", n=5000, epsilon=1, bounds={"y": (0, 1)}, method="diff_in_means")
    >>> study.rows[0].half_width < 0.02
    True
    """
    parsed = parse(formula)
    Budget(epsilon, delta)
    declared = _declared(parsed, bounds)
    low, high = _outcome_range(parsed, declared)
    mean = (low + high) / 2.0 if outcome_mean is None else outcome_mean
    sd = (high - low) / 6.0 if outcome_sd is None else outcome_sd
    check_whole("n", n, 4, _MOST)
    check_whole("repeats", repeats, 1)
    check_choice("estimand", estimand, tuple(ESTIMANDS))
    for name, share in (("treated", treated), ("conf_level", conf_level), ("power", power)):
        if not (is_number(share) and 0.0 < share < 1.0):
            raise OptionError(f"{name} must be between 0 and 1, got {share!r}")
    for name, value, least, most in (
        ("selection", selection, 0.0, 10.0),
        ("outcome_mean", mean, low, high),
        ("outcome_sd", sd, 0.0, (high - low) / 2.0),
    ):
        if not (is_number(value) and least <= value <= most):
            raise OptionError(f"{name} must be within [{least:g}, {most:g}], got {value!r}")
    if method is None and not set(options) <= {"release", "at", "by"}:
        raise OptionError("options belong to a method: name one with method=...")
    setting = PlanSetting(
        formula=parsed.source,
        n=n,
        epsilon=float(epsilon),
        delta=float(delta),
        bounds=declared,
        estimand=estimand,
        outcome_mean=float(mean),
        outcome_sd=float(sd),
        treated=float(treated),
        selection=float(selection),
        conf_level=float(conf_level),
        power=float(power),
        repeats=repeats,
        options=options,
    )
    if method is not None:
        return Plan(setting, (_row(setting, method),))
    kinds = conditional_methods() if ESTIMANDS[estimand].conditional else proved()
    names = [s.name for s in kinds.values() if estimand in s.estimands and s.guarantee == "exact"]
    return Plan(setting, tuple(_row_or_reason(setting, name) for name in bar(names, "planning")))


def _row(setting: PlanSetting, method: str) -> Planned:
    spec = get(method, setting.estimand)
    spec.check_estimand(setting.estimand)
    method = spec.name
    if spec.needs_delta and not setting.delta:
        return Planned(method, reason="needs a delta")
    return _rehearsed(setting, method)


def _row_or_reason(setting: PlanSetting, method: str) -> Planned:
    try:
        return _row(setting, method)
    except DPEffectsError as error:
        return Planned(method, reason=str(error).splitlines()[0])


def _rehearsed(setting: PlanSetting, method: str) -> Planned:
    """Run on made-up records; medians over repeats, because a noisy variance has a long tail."""
    estimate: Callable[..., Any] = partial(estimate_effect, setting.estimand)
    if ESTIMANDS[setting.estimand].conditional:
        estimate = dp_cate
    budget: dict[str, Any] = {"epsilon": setting.epsilon, "delta": setting.delta}
    runs = [
        estimate(
            setting.formula,
            made_up_records(setting, seed),
            method,
            **budget,
            seed=seed,
            **setting.options,
        )
        for seed in range(setting.repeats)
    ]
    shares: dict[str, float] = {}
    for spend in (spend for spend in runs[0].spends if not spend.covered):
        shares[spend.share] = shares.get(spend.share, 0.0) + spend.epsilon
    split = tuple(shares.items())
    effects = [_figures(run, setting.conf_level) for run in runs]
    columns = [x[np.isfinite(x)] for x in np.concatenate(effects).T]
    noise_sd, error, width = (float(np.median(x)) if x.size else math.nan for x in columns)
    if math.isnan(error):  # an interval for the noise alone is none for the effect
        return Planned(method, noise_sd, shares=split)
    detectable = width + NormalDist().inv_cdf(setting.power) * error
    return Planned(method, noise_sd, error, width, detectable, split)


def _figures(result: Any, conf_level: float) -> FloatArray:
    """Standard deviation of the noise, standard error and half-width, one row an effect."""
    frame = result.tidy(conf_level)
    if "noise_sd" not in frame:
        frame["noise_sd"] = math.sqrt(result.noise_variance)
    half = (frame["conf_high"] - frame["conf_low"]) / 2.0
    return np.column_stack([frame["noise_sd"], frame["std_error"], half])


def made_up_records(setting: PlanSetting, seed: int) -> Declared:
    """Covariates spread evenly over their ranges and levels, and no effect of treatment.

    The log odds of treatment are a sum of the standardised covariates with standard deviation
    ``selection``. The outcome is normal with the assumed mean and standard deviation, clipped; a
    transformed outcome has its columns spread evenly.
    """
    import pandas as pd

    rng, n = np.random.default_rng(seed), setting.n
    formula, bounds = parse(setting.formula), setting.bounds
    columns: dict[str, Any] = {}
    for name in formula.columns:
        if name == formula.treatment_column:
            continue
        if bounds.is_levels(name):
            columns[name] = _levels(bounds, name)[rng.integers(0, len(bounds[name]), n)]
            continue
        low, high = bounds.interval(name)
        columns[name] = rng.uniform(low, high, n)
        if formula.outcome == Column(name):
            drawn = rng.normal(setting.outcome_mean, setting.outcome_sd, n)
            columns[name] = np.clip(drawn, low, high)
    logit = np.zeros(n)
    for name in formula.covariate_columns:
        values = np.unique(columns[name], return_inverse=True)[1].astype(float)
        logit += (values - values.mean()) / max(values.std(), 1e-12)
    logit *= setting.selection / max(logit.std(), 1e-12)
    logit += math.log(setting.treated / (1.0 - setting.treated))
    arm = rng.random(n) < 1.0 / (1.0 + np.exp(-logit))
    arm[:2] = True, False  # both arms are there
    name = formula.treatment_column
    named = name in bounds and bounds.is_levels(name)
    columns[name] = _levels(bounds, name)[arm.astype(int)] if named else arm
    return declare(pd.DataFrame(columns), bounds)


def _levels(bounds: Bounds, name: str) -> Any:
    return np.array(list(bounds[name]), dtype=object)


_FAR, _STRIDE = 20.0, math.log(4.0)
_RANGES = {"epsilon": (1e-3, 1e3), "n": (20.0, 2e5)}


def _solve(setting: PlanSetting, method: str, half_width: float, of: str) -> float:
    """Solve on logarithmic scales, where the half-width is nearly a line, to half a per cent."""

    def excess(position: float) -> float:
        """Log of the half-width there over the wanted one."""
        value = math.exp(position)
        change: dict[str, Any] = {of: round(value) if of == "n" else value}
        try:
            row = _rehearsed(replace(setting, **change), method)
        except DPEffectsError:
            return _FAR
        return min(math.log(row.half_width / half_width), _FAR) if row.half_width > 0 else _FAR

    least, most = _RANGES[of]
    here = math.log(min(max(getattr(setting, of), least), most))
    gap = excess(here)
    while True:  # walk away from the plan's own value, until the wanted one is passed
        other = min(max(here + math.copysign(_STRIDE, gap), math.log(least)), math.log(most))
        if other == here:
            return least if gap <= 0 else _extrapolated(gap, most) if of == "n" else math.nan
        beyond = excess(other)
        if (beyond > 0) != (gap > 0):
            break
        here, gap = other, beyond
    from scipy.optimize import brentq

    ends = {here: gap, other: beyond}
    low, high = sorted(ends)
    root = math.exp(brentq(lambda u: ends[u] if u in ends else excess(u), low, high, xtol=0.005))
    return float(math.ceil(root)) if of == "n" else float(f"{root:.3g}")


def _extrapolated(gap: float, n: float) -> float:
    """Beyond what is rehearsed, half-widths fall with the root of n."""
    needed = n * math.exp(2.0 * gap)
    return float(math.ceil(needed)) if needed <= 1e8 else math.nan


def _declared(formula: Formula, bounds: Mapping[str, Any] | None) -> Bounds:
    """Bounds of the formula's columns: declared, or by what the formula says."""
    if isinstance(bounds, str):
        raise BoundsError("a plan has no data to read bounds from: declare them")
    if not (bounds is None or isinstance(bounds, Mapping)):
        raise BoundsError("bounds must map column names to ranges or levels")
    known = Bounds.declared({n: x for n, x in (bounds or {}).items() if n in formula.columns})
    for name, levels in formula.levels.items():
        known = known.with_levels(name, levels, source="declared")
    for name in formula.columns:
        if name not in known and (ends := design.ends_in_formula(name, formula)):
            known = known.with_interval(name, *ends, source="declared")
    missing = [n for n in formula.columns if n not in known and n != formula.treatment_column]
    if missing:
        raise BoundsError(
            f"a plan needs declared bounds for {', '.join(missing)}. Add\n{skeleton(missing, [])}"
        )
    return known


def _outcome_range(formula: Formula, bounds: Bounds) -> tuple[float, float]:
    intervals = {n: bounds.interval(n) for n in bounds if not bounds.is_levels(n)}
    try:
        return range_of(formula.outcome, intervals)
    except KeyError:
        raise BoundsError(
            f"the outcome {source(formula.outcome)} needs a range: (LOWER, UPPER)"
        ) from None
