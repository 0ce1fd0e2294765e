"""Methods run on simulated records: what to expect of their intervals, and their power.

Every method goes the way that it goes on data, so what it chooses by n and epsilon, what it refuses
and what its intervals allow for is in the figures. The power of a test is that of the interval: it
excludes 0. Records have an effect near the one looked for, because that changes how a risk varies.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from dpeffects.effects import dp_cate, estimate_effect
from dpeffects.errors import DPEffectsError
from dpeffects.estimands import ESTIMANDS
from dpeffects.estimators import get
from dpeffects.estimators.spec import MethodSpec
from dpeffects.inference.estimate import Unavailable
from dpeffects.inference.hypotheses import EQUIVALENCE, Hypothesis
from dpeffects.inference.intervals import cdf
from dpeffects.inference.noisy import ratio_of
from dpeffects.results import Result
from dpeffects.results.export import or_nan
from dpeffects.roots import root
from dpeffects.services.planning.setting import PlanSetting
from dpeffects.services.planning.synthetic_records import SyntheticRecords

MOST_RECORDS, MOST_OF_LEARNERS = 200_000, 20_000
"""Records that are rehearsed, the latter by methods that fit models in blocks, which takes longer.
Errors with more are taken to fall with the root of n."""
_REPEATS, _RECORDS, _RECORDS_OF_LEARNERS, _VALUES = 12, 120_000, 6_000, 1_500_000
"""Rehearsals: so many, or fewer that have so many records, or values of covariates, in all."""
_FEW = 3
"""Rehearsals where there is no test to tell the power of."""
_PRIOR = 24
"""How many rehearsals the standard error of the method itself counts for, when the spread of the
estimates is told from a few."""

_ASTRAY = 1.3
"""Errors of so many standard errors are what is left of confounding: that is no test."""


@dataclass(frozen=True)
class PlannedMethod:
    """Expected accuracy of one method.

    ``reason`` says why there is none; ``chosen`` which method the default takes; ``note`` whether
    it will not adjust; ``allows`` whether its interval then allows for confounding.
    """

    method: str
    sampling_se: float = math.nan
    noise_sd: float = math.nan
    bias_sd: float = math.nan
    std_error: float = math.nan
    half_width: float = math.nan
    mde: float = math.nan
    power: float = math.nan
    budget_split: tuple[tuple[str, float], ...] = ()
    reason: str = ""
    chosen: str = ""
    note: str = ""
    allows: bool = False

    @property
    def remark(self) -> str:
        """What the method will do."""
        return "; ".join(filter(None, (self.chosen and f"chooses {self.chosen}", self.note)))


class Rehearsed(NamedTuple):
    """One simulated estimate: its interval, its error, and the distribution that it reports.

    ``margin`` is from the estimate down to the end of the interval.
    """

    noise_sd: float
    std_error: float
    half_width: float
    margin: float
    error: float
    variance: float
    laplace: tuple[float, ...] = ()
    sampling_se: float = math.nan
    bias_sd: float = math.nan

    @property
    def spread(self) -> float:
        """Standard deviation of the distribution."""
        return math.sqrt(self.variance + 2.0 * sum(scale**2 for scale in self.laplace))


def row(setting: PlanSetting, method: str, made: SyntheticRecords) -> PlannedMethod:
    """Rehearse a method."""
    spec = get(method, setting.estimand)
    spec.check_estimand(setting.estimand)
    if spec.needs_delta and not setting.delta:
        return PlannedMethod(spec.name, reason="needs a delta")
    asks = any(f.name == "design" for f in fields(spec.options))
    told = {"design": setting.design} if asks and setting.design == "randomised" else {}
    options = dict(setting.options) | told
    learns = bool(spec.options().needs_memory())
    n = min(setting.n, MOST_OF_LEARNERS if learns else MOST_RECORDS)
    unit = math.sqrt(n / setting.n)
    estimate: Callable[..., Any] = partial(estimate_effect, setting.estimand)
    if ESTIMANDS[setting.estimand].conditional:
        estimate = dp_cate
    results: list[Any] = []
    runs: list[Rehearsed] = []
    effect = setting.assumed or 0.0
    for seed in range(_repeats(made, n, learns)):
        records, effect_there = made.records(n, seed, effect)
        budget = {"epsilon": setting.epsilon, "delta": setting.delta, "seed": seed}
        result = estimate(setting.formula, records, spec.name, **budget, **options)
        results.append(result)
        runs += figures(result, effect_there, setting.conf_level, setting.test_level)
        note, tested = _note(setting, spec, results)
        if seed == 0 and setting.assumed is None:
            effect = _guess(runs, setting.power)
        if len(results) == _FEW and not tested:
            break
    allows = _most(str(_allows(result)) for result in results) == "True"
    if allows:
        unit = 1.0  # what is allowed for confounding does not fall with n
    median = partial(_median, runs, unit)
    planned = PlannedMethod(
        spec.name,
        noise_sd=median("noise_sd"),
        budget_split=_budget_split(results[0]),
        chosen=_most(result.options.get("chosen", "") for result in results),
        note=note,
        allows=allows,
    )
    if math.isnan(median("std_error")):  # an interval for the noise alone is none for the effect
        return planned
    others = ("sampling_se", "bias_sd", "std_error", "half_width")
    planned = replace(planned, **{name: median(name) for name in others})  # type: ignore[arg-type]
    if not tested:
        return planned
    if setting.confounded and stretch(runs, "std_error") > _ASTRAY:
        note = f"{note}; " if note else ""
        note += "adjusts only weakly: simulated errors exceed their standard errors"
        return replace(planned, note=note)
    found, chance = _tested(setting, runs, unit, made.dists[0].high - made.dists[0].low)
    return replace(planned, mde=found, power=chance)


def row_or_reason(setting: PlanSetting, method: str, made: SyntheticRecords) -> PlannedMethod:
    """Rehearse a method, or say why it would be refused."""
    try:
        return row(setting, method, made)
    except DPEffectsError as error:
        return PlannedMethod(method, reason=str(error).splitlines()[0])


def figures(
    result: Any, effect: float, conf_level: float, test_level: float | None = None
) -> list[Rehearsed]:
    """What a result says about its effects, one entry each; a test may look at another interval."""
    test_level = test_level or conf_level
    if isinstance(result, Result):
        interval, released = result.conf_int(conf_level), result.released
        low, high = (math.nan, math.nan) if isinstance(interval, Unavailable) else interval
        tested = result.conf_int(test_level)
        end = math.nan if isinstance(tested, Unavailable) else tested.lower
        noise = result.noise_variance - 2.0 * sum(scale**2 for scale in released.laplace)
        return [
            Rehearsed(
                noise_sd=math.sqrt(result.noise_variance),
                std_error=or_nan(result.std_error),
                half_width=(high - low) / 2.0,
                margin=result.estimate - end,
                error=result.estimate - effect,
                variance=or_nan(result.sampling_variance) + max(noise, 0.0),
                laplace=released.laplace,
                sampling_se=math.sqrt(max(or_nan(result.sampling_variance), 0.0)),
                bias_sd=math.sqrt(result.bias_variance),
            )
        ]
    frame = result.tidy(conf_level)
    low, high, error = frame["conf_low"], frame["conf_high"], frame["std_error"]
    half, off = (high - low) / 2.0, frame["estimate"] - effect
    margin = frame["estimate"] - result.tidy(test_level)["conf_low"]
    columns = (frame["noise_sd"], error, half, margin, off, error**2)
    return [Rehearsed(*entry) for entry in np.column_stack(columns).tolist()]


def _with_interval(runs: Sequence[Rehearsed]) -> list[Rehearsed]:
    return [run for run in runs if math.isfinite(run.margin) and run.spread > 0.0]


def stretch(runs: Sequence[Rehearsed], unit: str = "spread") -> float:
    """Size of the rehearsed errors, in units of the spread that the method gives for them."""
    known = _with_interval(runs)
    squares = [(run.error / getattr(run, unit)) ** 2 for run in known]
    return math.sqrt((_PRIOR + sum(squares)) / (_PRIOR + len(known)))


def _tested(
    setting: PlanSetting, runs: Sequence[Rehearsed], unit: float, width: float
) -> tuple[float, float]:
    """The effect that a test shows with the wanted power, and the power at the effect assumed.

    ``unit`` is the size of errors in those of the rehearsal. Of equivalence it is the smallest
    margin that is shown with the wanted power.
    """
    asked, assumed = setting.asked, setting.assumed
    found = math.nan if assumed is None else power(runs, asked, assumed, unit)
    if asked.alternative == EQUIVALENCE:
        off = abs((assumed or 0.0) - asked.null)

        def shown(margin: float) -> float:
            return power(runs, Hypothesis.asked(0.0, margin=margin), off, unit)

        return _least(shown, setting.power, width, rtol=1e-4), found
    base, sign = {"greater": (asked.low, 1.0), "less": (asked.high, -1.0)}.get(
        asked.alternative, (asked.null, 1.0)
    )
    away = unit * mde(runs, setting.power, (width - sign * base) / unit)
    return base + sign * away, found


def power(runs: Sequence[Rehearsed], asked: Hypothesis, effect: float, unit: float = 1.0) -> float:
    """Chance that a test shows what is to be shown; NaN where there is no interval.

    Errors have the distribution that the method gives, stretched to the spread of the simulated
    errors; what an interval reaches to either side of the estimate is rehearsed.
    """
    known = _with_interval(runs)
    if not known:
        return math.nan
    times = stretch(known)

    def below(x: float, run: Rehearsed) -> float:
        """Chance that an error is below a number of a run's own units."""
        if math.isinf(x):
            return float(x > 0.0)
        return float(cdf(x / times, run.variance, run.laplace))

    found = []
    for run in known:
        if asked.alternative == "two-sided":
            away = (effect - asked.null) / unit
            found.append(1.0 - below(run.margin - away, run) + below(-run.margin - away, run))
            continue
        first, last = (asked.low - effect) / unit, (asked.high - effect) / unit
        found.append(max(0.0, below(last - run.margin, run) - below(first + run.margin, run)))
    return math.fsum(found) / len(found)


def mde(runs: Sequence[Rehearsed], wanted: float, largest: float) -> float:
    """The effect whose interval excludes 0, below it, with this power; NaN beyond the largest."""
    chance = partial(power, runs, Hypothesis.asked(0.0, "greater"))
    return _least(chance, wanted, largest, xtol=1e-4 * _guess(_with_interval(runs), wanted))


def _least(
    chance: Callable[[float], float], wanted: float, largest: float, **tolerance: float
) -> float:
    """The least argument at which an increasing chance is as wanted; NaN beyond the largest."""
    if not chance(largest) >= wanted:
        return math.nan
    return root(lambda x: chance(x) - wanted, 1e-9 * largest, largest, **tolerance)


def _guess(runs: Sequence[Rehearsed], power: float) -> float:
    """Nearly the minimum detectable effect, by normal errors; 0 where there is no interval."""
    sizes = [run.margin + NormalDist().inv_cdf(power) * run.spread for run in runs]
    found = [size for size in sizes if math.isfinite(size)]
    return max(float(np.median(found)), 0.0) if found else 0.0


def _median(runs: Sequence[Rehearsed], unit: float, name: str) -> float:
    """Median of a figure, because a noisy variance has a long tail."""
    values = [x for run in runs if math.isfinite(x := getattr(run, name))]
    return unit * float(np.median(values)) if values else math.nan


def _budget_split(result: Any) -> tuple[tuple[str, float], ...]:
    """Epsilon by share of the budget."""
    shares: dict[str, float] = {}
    for charge in (charge for charge in result.charges if not charge.covered):
        shares[charge.share] = shares.get(charge.share, 0.0) + charge.epsilon
    return tuple(shares.items())


def _repeats(made: SyntheticRecords, n: int, learns: bool) -> int:
    values = n * max(len(made.formula.covariate_columns), 1)
    most = made.setting.repeats or min(_REPEATS, max(2, min(_RECORDS // n, _VALUES // values)))
    return min(most, max(1, _RECORDS_OF_LEARNERS // n)) if learns else most


def _note(setting: PlanSetting, spec: MethodSpec, results: Sequence[Any]) -> tuple[str, bool]:
    """What the method will do, and whether its interval is a test of an effect."""
    if not isinstance(results[0], Result):
        return _most(result.warnings for result in results), True
    unadjusted = sum(result.associated for result in results)
    if 2 * unadjusted > len(results):
        why = "n and epsilon are too small for this number of covariates"
        if not setting.covariates:
            why = "the formula has no covariates"
        elif not spec.uses_covariates:
            why = "this method never does"
        return f"will not adjust, because {why}: an unadjusted association, without a test", False
    if not spec.uses_covariates and setting.confounded:
        return "does not adjust: an association, unless treatment is randomised", False
    warnings = _most(result.released.warnings for result in results if not result.associated)
    some = f"not adjusted in {unadjusted} of {len(results)} simulations" if unadjusted else ""
    noisy = 2 * sum(ratio_of(result.released) > 1.0 for result in results) > len(results)
    noise = "the estimate will be mostly noise, and will not be printed" if noisy else ""
    return "; ".join(filter(None, (some, noise, warnings))), True


def _allows(result: Any) -> bool:
    """Whether a result that is not adjusted allows for confounding."""
    return isinstance(result, Result) and result.associated and result.bias_variance > 0.0


def _most(values: Iterable[str]) -> str:
    return Counter(values).most_common(1)[0][0]
