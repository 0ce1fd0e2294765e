"""What a release will cost in accuracy, before any data is touched.

A plan is a dress rehearsal: each method runs on made-up records that fit the formula and the
declared bounds (`datasets.rehearsal`), with the noise it would use. So every method can be planned,
also those that choose from n and epsilon what to do, and the figures are those of the method.
What the rehearsal cannot know (how covariates really spread, how outcomes vary) is an argument.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dpeffects.datasets.rehearsal import rehearsal
from dpeffects.design import read as design
from dpeffects.design.bounds import Bounds, skeleton
from dpeffects.effects import estimate_effect
from dpeffects.errors import BoundsError, DPEffectsError, OptionError
from dpeffects.estimands import AVERAGES
from dpeffects.estimators import get, proved
from dpeffects.estimators._checks import check_choice, check_whole, is_number
from dpeffects.formula import Formula, parse
from dpeffects.formula.expression import source
from dpeffects.formula.ranges import range_of
from dpeffects.inference.estimate import Unavailable
from dpeffects.privacy.budget import Budget
from dpeffects.progress import bar
from dpeffects.render import Notes, Pairs, Shown, Summary, Table
from dpeffects.results.export import frame_of
from dpeffects.results.numbers import number

if TYPE_CHECKING:
    import pandas as pd

    from dpeffects.results import Result


@dataclass(frozen=True)
class Setting:
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
class Plan(Shown):
    """The expected accuracy of each method; print it, plot it, or ask it for the inverse.

    ``noise_sd`` is the standard deviation of the privacy noise, ``half_width`` that of the interval
    around the estimate, ``detectable`` the smallest effect found with the wanted power.
    """

    setting: Setting
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

    def summary(self) -> Summary:
        """Everything worth printing, as titled blocks."""
        s = self.setting
        header = Pairs(
            (
                ("Formula", s.formula),
                ("Budget", f"epsilon = {number(s.epsilon)}, delta = {number(s.delta)}"),
                ("Records", f"n = {s.n}"),
                (
                    "Assumed",
                    f"{100 * s.treated:.3g} % treated, log odds of treatment vary with covariates "
                    f"by {number(s.selection)}; outcome mean {number(s.outcome_mean)}, "
                    f"sd {number(s.outcome_sd)}; covariates "
                    "spread evenly over their declared ranges and levels; no effect",
                ),
            )
        )
        usable = sorted((r for r in self.rows if not r.reason), key=lambda r: r.half_width)
        table = Table(
            f"Expected accuracy ({100 * s.conf_level:g} % intervals, {100 * s.power:g} % power)",
            ("method", "noise sd", "std. error", "half-width", "detectable"),
            tuple(
                (r.method, *map(_four, (r.noise_sd, r.std_error, r.half_width, r.detectable)))
                for r in usable
            ),
            "lrrrr",
        )
        split = Table(
            "Epsilon by share of the budget",
            ("method", "shares"),
            tuple((r.method, ", ".join(f"{k} {e:.3g}" for k, e in r.shares)) for r in usable),
            "ll",
        )
        notes = tuple(f"{r.method}: {r.reason}" for r in self.rows if r.reason)
        blocks = (header, table, split, *((Notes(notes),) if notes else ()))
        return Summary(f"Plan for the {s.estimand}: no data was touched", "", blocks)

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
        found = [
            {"method": r.method, of: _solve(self.setting, r.method, half_width, of)}
            for r in bar([row for row in self.rows if not row.reason], "solving")
        ]
        return frame_of(found, ["method", of])

    @property
    def outcome(self) -> str:
        """The outcome as the formula has it."""
        return source(parse(self.setting.formula).outcome)

    def against(self, epsilons: Sequence[float]) -> pd.DataFrame:
        """Noise and half-width of each usable method at several epsilons, one row each."""
        wanted = [(r.method, float(e)) for r in self.rows if not r.reason for e in epsilons]
        found = [
            _rehearsed(self.setting, method, epsilon=epsilon)
            for method, epsilon in bar(wanted, "rehearsing")
        ]
        return frame_of(
            [
                {"method": m, "epsilon": e, "noise_sd": r.noise_sd, "half_width": r.half_width}
                for (m, e), r in zip(wanted, found, strict=True)
            ],
            ["method", "epsilon", "noise_sd", "half_width"],
        )

    def plot(self, epsilons: Sequence[float] | None = None, ax: Any = None) -> Any:
        """Draw the half-width against epsilon; return the axes (matplotlib)."""
        from dpeffects import plots

        return plots.half_width(self, epsilons, ax=ax)

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
        "ATE", "ATT" or "ATC".
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
    if isinstance(n, bool) or not isinstance(n, int) or n < 4:
        raise OptionError(f"n must be a whole number of at least 4 records, got {n!r}")
    if n > _MOST:
        raise OptionError(f"n is at most {_MOST} here; beyond, half-widths fall with the root of n")
    check_whole("repeats", repeats, 1)
    check_choice("estimand", estimand, AVERAGES)
    for name, value in (("treated", treated), ("conf_level", conf_level), ("power", power)):
        if not (is_number(value) and 0.0 < value < 1.0):
            raise OptionError(f"{name} must be between 0 and 1, got {value!r}")
    if not (is_number(selection) and 0.0 <= selection <= 10.0):
        raise OptionError(f"selection must be between 0 and 10, got {selection!r}")
    guess = (high - low) / 6.0 if outcome_sd is None else outcome_sd
    if not (is_number(guess) and 0.0 < guess <= (high - low) / 2.0):
        raise OptionError(f"outcome_sd must be positive and at most half the range, got {guess!r}")
    mean = (low + high) / 2.0 if outcome_mean is None else outcome_mean
    if not (is_number(mean) and low <= mean <= high):
        raise OptionError(f"outcome_mean must be within [{low:g}, {high:g}], got {mean!r}")
    if method is None and options:
        raise OptionError("options belong to a method: name one with method=...")
    setting = Setting(
        parsed.source,
        n,
        float(epsilon),
        float(delta),
        declared,
        estimand,
        float(mean),
        float(guess),
        float(treated),
        float(selection),
        float(conf_level),
        float(power),
        repeats,
        options,
    )
    names = [method] if method else [s.name for s in proved().values() if estimand in s.estimands]
    rows = [_row(setting, name, single=method is not None) for name in bar(names, "planning")]
    return Plan(setting, tuple(rows))


def _row(setting: Setting, method: str, *, single: bool) -> Planned:
    spec = get(method)
    spec.check_estimand(setting.estimand)
    if spec.needs_delta and not setting.delta:
        return Planned(method, reason="needs a delta")
    try:
        return _rehearsed(setting, method)
    except DPEffectsError as error:
        if single:
            raise
        return Planned(method, reason=str(error).splitlines()[0])


def _rehearsed(
    setting: Setting, method: str, *, epsilon: float | None = None, n: int | None = None
) -> Planned:
    """Average over rehearsals; medians, because a noisy variance has a long tail."""
    runs = [_run(setting, method, epsilon, n, seed) for seed in range(setting.repeats)]
    noise = math.sqrt(float(np.median([run.noise_variance for run in runs])))
    shares: dict[str, float] = {}
    for spend in (spend for spend in runs[0].spends if not spend.covered):
        shares[spend.share] = shares.get(spend.share, 0.0) + spend.epsilon
    split = tuple(shares.items())
    errors = [run.std_error for run in runs if not isinstance(run.std_error, Unavailable)]
    widths = [
        (interval.upper - interval.lower) / 2.0
        for run in runs
        if not isinstance(interval := run.conf_int(setting.conf_level), Unavailable)
    ]
    if not widths:
        return Planned(method, noise, shares=split)
    error, width = float(np.median(errors)), float(np.median(widths))
    return Planned(method, noise, error, width, width + _quantile(setting.power) * error, split)


def _run(setting: Setting, method: str, epsilon: float | None, n: int | None, seed: int) -> Result:
    import pandas as pd

    parsed = parse(setting.formula)
    data = pd.DataFrame(
        rehearsal(
            parsed,
            setting.bounds,
            n or setting.n,
            treated=setting.treated,
            selection=setting.selection,
            outcome_mean=setting.outcome_mean,
            outcome_sd=setting.outcome_sd,
            seed=seed,
        )
    )
    return estimate_effect(
        setting.estimand,
        setting.formula,
        data,
        method,
        epsilon=setting.epsilon if epsilon is None else epsilon,
        delta=setting.delta,
        bounds=_as_given(setting.bounds),
        seed=seed,
        **setting.options,
    )


_FAR, _STRIDE = 20.0, math.log(4.0)


def _solve(setting: Setting, method: str, wanted: float, of: str) -> float:
    """Solve on logarithmic scales, where the half-width is nearly a line, to half a per cent."""

    def above(position: float) -> float:
        value = math.exp(position)
        try:
            if of == "epsilon":
                found = _rehearsed(setting, method, epsilon=value).half_width
            else:
                found = _rehearsed(setting, method, n=round(value)).half_width
        except DPEffectsError:
            return _FAR
        return min(math.log(found / wanted), _FAR) if found > 0 else _FAR

    least, most = (1e-3, 1e3) if of == "epsilon" else (20.0, 2e5)
    end = min(max(setting.epsilon if of == "epsilon" else setting.n, least), most)
    here = math.log(end)
    gap = above(here)
    while True:  # walk away from the plan's own value, until the wanted one is passed
        other = min(max(here + math.copysign(_STRIDE, gap), math.log(least)), math.log(most))
        if other == here and gap > 0:
            return _extrapolated(gap, most) if of == "n" else math.nan
        if other == here:
            return least
        beyond = above(other)
        if (beyond > 0) != (gap > 0):
            break
        here, gap = other, beyond
    low, high = (here, other) if gap > 0 else (other, here)
    ends = {low: max(gap, beyond), high: min(gap, beyond)}
    from scipy.optimize import brentq

    root = math.exp(brentq(lambda u: ends[u] if u in ends else above(u), low, high, xtol=0.005))
    return float(math.ceil(root)) if of == "n" else float(f"{root:.3g}")


def _extrapolated(gap: float, n: float) -> float:
    """Beyond what is rehearsed, half-widths fall with the root of n."""
    needed = n * math.exp(2.0 * gap)
    return float(math.ceil(needed)) if needed <= 1e8 else math.nan


def _declared(formula: Formula, bounds: Mapping[str, Any] | None) -> Bounds:
    if isinstance(bounds, str):
        raise BoundsError("a plan has no data to read bounds from: declare them")
    if not (bounds is None or isinstance(bounds, Mapping)):
        raise BoundsError("bounds must map column names to ranges or levels")
    known = Bounds.declared(bounds)
    for name, levels in formula.levels.items():
        known = known.with_levels(name, levels, source="declared")
    for name in formula.columns:
        if name not in known and (ends := design.ends_in_formula(name, formula)):
            known = known.with_interval(name, *ends, source="declared")
    kept = [n for n in formula.columns if n in known]
    missing = [n for n in formula.columns if n not in known and n != formula.treatment_column]
    if missing:
        raise BoundsError(
            f"a plan needs declared bounds for {', '.join(missing)}. Add\n{skeleton(missing, [])}"
        )
    return Bounds(
        {n: known[n] for n in kept},
        {n: known.source(n) for n in kept},
        frozenset(n for n in kept if known.is_levels(n)),
    )


def _as_given(bounds: Bounds) -> dict[str, Any]:
    """Bounds as a user writes them: tuples are ranges, lists are levels."""
    return {n: list(bounds[n]) if bounds.is_levels(n) else tuple(bounds[n]) for n in bounds}


def _outcome_range(formula: Formula, bounds: Bounds) -> tuple[float, float]:
    intervals = {n: bounds.interval(n) for n in bounds if not bounds.is_levels(n)}
    try:
        return range_of(formula.outcome, intervals)
    except KeyError:
        raise BoundsError(
            f"the outcome {source(formula.outcome)} needs a range: (LOWER, UPPER)"
        ) from None


def _quantile(p: float) -> float:
    from scipy.special import ndtri

    return float(ndtri(p))


def _four(value: float) -> str:
    return "n/a" if math.isnan(value) else f"{value:.4g}"
