"""Many results of every kind that has an interval and a p-value, made of released numbers alone.

A result of each kind is released once, or built, and its released numbers are moved at random:
that is much cheaper than a call, and reaches what calls seldom do (means below zero, weak
instruments, arms without events).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import dpeffects as dpe
from dpeffects.guarantee import Guarantee
from dpeffects.inference.compliers import Wald
from dpeffects.inference.estimate import (
    ArmMeans,
    ErrorPart,
    Estimate,
    MeansPart,
    MeansVariance,
    SamplingVariance,
)
from dpeffects.inference.moment_regression import LinearFit
from dpeffects.inference.rates import ArmSums, RateTable
from dpeffects.inference.tables import ArmTable
from dpeffects.services.sites.combination import combine
from dpeffects.services.sites.rules import RULES
from tests.kinds_of_summaries import made
from tests.releases import release

ALPHAS = (0.01, 0.05, 0.2)
NULLS = {
    **dict.fromkeys(("rmst_ratio", "risk_ratio", "hazard_ratio", "rate_ratio", "odds_ratio"), 1.0),
    "probability_higher": 0.5,
}
"""Without effect a number is 0, but for these."""
SCALE_NULLS = {"difference": 0.0, "ratio": 1.0, "odds": 1.0, "lift": 0.0}


@dataclass(frozen=True)
class Stated:
    """What a result states at one level: whether its interval has the null, and its p-value."""

    what: str
    alpha: float
    has_null: bool
    p_value: float

    @property
    def one_law(self) -> bool:
        """P-value below alpha exactly where the interval, which is closed, lacks the null."""
        return (self.p_value < self.alpha) != self.has_null


ABOUT = {
    "estimand": "ATE",
    "method": "made_up",
    "method_title": "made up",
    "formula": "y ~ t",
    "outcome": "y",
    "treatment": "t",
    "n": 500,
    "guarantee": Guarantee(1.0),
}


def estimate(rng: np.random.Generator, width: float = 1.0) -> Estimate:
    """What a method may have released of an effect."""
    sd, scale = width * 10.0 ** rng.uniform(-2, 0.5, 2)
    laplace = tuple(rng.uniform(0, scale, int(rng.integers(0, 4))).tolist())
    spread = math.hypot(sd, *laplace)
    noisy = SamplingVariance(sd**2 + rng.laplace(0, sd**2), sd**2 * rng.uniform(0, 2), width**2)
    known = SamplingVariance(sd**2, 0.0, 4.0 * width**2)
    return Estimate(
        float(rng.normal(0, 3 * spread)),
        noisy if rng.random() < 0.5 else known,
        laplace=laplace,
        gaussian=float(rng.choice([0.0, scale**2])),
        parts=(ErrorPart("winsorisation bias", (0.3 * sd) ** 2),) if rng.random() < 0.3 else (),
        possible=(-width, width) if rng.random() < 0.7 else None,
    )


def means(rng: np.random.Generator, risks: bool) -> ArmMeans:
    """Two means that a method may have released, of risks or of amounts; noise may be large."""
    top = 1.0 if risks else 50.0
    true = top * 10.0 ** rng.uniform(-2.5, -0.05, 2) if rng.random() < 0.7 else (0.3 * top,) * 2
    sizes, noise = 10.0 ** rng.uniform(1.3, 4, 2), top * 10.0 ** rng.uniform(-4, -0.7)
    own = [(m * (top - m) if risks else m * top / 4) / k for m, k in zip(true, sizes, strict=True)]
    found = [
        rng.normal(m, math.sqrt(v)) + rng.laplace(0, noise) for m, v in zip(true, own, strict=True)
    ]
    variances = tuple(
        MeansVariance(SamplingVariance(v, 0.1 * v * rng.integers(0, 2), top**2), 1.0 - k, float(k))
        for k, v in enumerate(own)
    )
    return ArmMeans(
        *map(float, found),
        sampling=variances,
        laplace=((noise, 0.0), (0.0, noise)),
        parts=(MeansPart("winsorisation bias", 0.01 * top, 0.0),) if rng.random() < 0.2 else (),
        possible=(0.0, top),
        design=(1.0 / sizes[0], 1.0 / sizes[1], 0.0) if risks else None,
    )


def with_means(rng: np.random.Generator, risks: bool = True) -> Estimate:
    """An effect that compares two means."""
    pair = means(rng, risks)
    top = pair.possible[1]
    return replace(pair.combined(1.0, -1.0), possible=(-top, top), means=pair)


def _moved(rng: np.random.Generator, effect: Estimate) -> Estimate:
    """A released effect with another value."""
    sampling = effect.sampling
    spread = math.sqrt(max(sampling.value, sampling.noise_scale, 1e-12) + effect.noise_variance)
    return replace(effect, value=float(rng.normal(0, 2.5 * spread)))


def _table(rng: np.random.Generator, table: ArmTable) -> ArmTable:
    """Released counts, with other noise and somewhat other arms."""
    wave = np.exp(rng.normal(0, 0.25) * np.linspace(-1, 1, table.counts.shape[1]))
    counts = table.counts * np.stack([wave, np.ones_like(wave)])
    noise = rng.laplace(0, 1, counts.shape) * np.sqrt(table.noise_variance)[:, None] / 1.4
    return replace(table, counts=(counts + noise) * 10.0 ** rng.uniform(-1.0, 0.3))


def _rates(rng: np.random.Generator, table: RateTable) -> RateTable:
    events = tuple((10.0 ** rng.uniform(0, 3, 2)).tolist())
    time = tuple((np.array(events) * rng.uniform(5, 60, 2)).tolist())
    events = tuple((np.array(events) + rng.laplace(0, 5, 2)).tolist())
    sums = ArmSums(events, time, (5.0, 50.0), table.sums.gaussian)
    squares = tuple((np.abs(events) * rng.uniform(0.5, 2.0, 2)).tolist())
    return replace(table, sums=sums, squares=squares, squares_scale=(3.0, 3.0))


def _wald(rng: np.random.Generator) -> Wald:
    """Instruments of all strengths."""
    first = replace(estimate(rng, 0.2), possible=None, value=float(rng.choice([0.02, 0.1, 0.5])))
    residual = replace(estimate(rng, 0.2), possible=None)
    low, high = (-1.0, 1.0) if rng.random() < 0.7 else (-3.0, 5.0)
    return Wald(residual, first, 0.0, 0.0, float(rng.choice([0.0, 0.2])), (low, high))


def _fit(rng: np.random.Generator, fit: LinearFit) -> LinearFit:
    found = [fit.coefficient(name) for name in fit.names]
    spread = [math.sqrt(x.gaussian + x.sampling.value) for x in found]
    moved = rng.normal(0, 2.5, len(spread)) * spread
    return replace(fit, estimates=tuple(moved.tolist()))


def _average(rng: np.random.Generator) -> Any:
    return dpe.Result(released=estimate(rng), **ABOUT)


def _scaled(rng: np.random.Generator) -> Any:
    risks = bool(rng.random() < 0.7)
    return dpe.Result(released=with_means(rng, risks), **ABOUT)


def _did(rng: np.random.Generator) -> Any:
    return dpe.DidEffect(released=estimate(rng), after="2020", before="2019", **ABOUT)


def _combined(rng: np.random.Generator) -> Any:
    """Sites of the same call, whose means are moved."""
    template, rule = release("sites").releases[0], str(rng.choice(list(RULES)))
    sent, with_both = [], bool(rng.random() < 0.2)  # scales are slow
    for k in range(int(rng.integers(3 if RULES[rule].median else 1, 6))):  # a median is of three
        found = _moved(rng, template.released)
        value = min(max(found.value, -0.9), 0.9)
        pair = replace(found.means, treated=found.means.control + value)
        released = replace(found, value=value, means=pair if with_both else None)
        sent.append(replace(template, site=f"site {k}", released=released))
    return combine(sent, rule)


def _several(name: str) -> Callable[[np.random.Generator], Any]:
    """Effects that have no means, or a few that have them: scales are slow."""

    def make(rng: np.random.Generator) -> Any:
        fit = made(name)
        if rng.random() < 0.3 and name in ("arms", "subsets"):
            return replace(fit, effects=tuple(with_means(rng) for _ in fit.effects))
        moved = (replace(_moved(rng, effect), means=None) for effect in fit.effects)
        return replace(fit, effects=tuple(moved))

    return make


def _study(rng: np.random.Generator) -> Any:
    fit = made("study of three arms")
    effects = [replace(_moved(rng, x), means=None) for x in fit.effects]
    if rng.random() < 0.3:
        effects[0] = with_means(rng)
    return replace(fit, effects=tuple(effects))


def _tabled(name: str, other: Callable[[np.random.Generator, Any], Any]) -> Any:
    def make(rng: np.random.Generator) -> Any:
        return replace(made(name), arm_table=other(rng, made(name).arm_table))

    return make


def _whole(rng: np.random.Generator) -> Any:
    """Outcomes that heap at some whole numbers: bins of very unequal density."""
    ends = (0.0, 5.0, 10.0, 20.0, 40.0, 60.0, 100.0)
    counts = np.array([[300, 40, 200, 30, 160, 20, 60, 40]] * 2) * rng.uniform(0.6, 1.4, (2, 8))
    table = ArmTable(counts * 10.0 ** rng.uniform(-1, 1), (8.0, 8.0))
    fit, whole = made("quantiles"), bool(rng.random() < 0.7)
    made_of = {"arm_table": table, "ends": ends, "lower": 0.0, "upper": 200.0, "whole": whole}
    return replace(fit, **made_of)


KINDS: dict[str, tuple[type, Callable[[np.random.Generator], Any]]] = {
    "average": (dpe.Result, _average),
    "on scales": (dpe.Result, _scaled),
    "difference in differences": (dpe.DidEffect, _did),
    "event study": (dpe.EventStudy, _several("event study")),
    "arms": (dpe.ArmEffects, _several("arms")),
    "subsets": (dpe.SubsetEffects, _several("subsets")),
    "groups": (dpe.CateEffects, _several("groups")),
    "study": (dpe.StudyEffects, _study),
    "quantiles": (dpe.QuantileEffects, _tabled("quantiles", _table)),
    "quantiles of whole numbers": (dpe.QuantileEffects, _whole),
    "ordered levels": (dpe.OrdinalEffects, _tabled("ordered levels", _table)),
    "survival": (dpe.SurvivalEffects, _tabled("survival", _table)),
    "rates": (dpe.RateEffects, _tabled("rates", _rates)),
    "compliers": (
        dpe.LateEffect,
        lambda rng: replace(made("compliers"), arm_table=_wald(rng)),
    ),
    "regression": (
        dpe.Regression,
        lambda rng: replace(made("regression"), fit=_fit(rng, made("regression").fit)),
    ),
    "sites": (dpe.CombinedEffect, _combined),
}
"""By kind: its class, and how one is made."""


def stated(fit: Any, alpha: float) -> Iterator[Stated]:
    """All pairs of an interval and a p-value that a result states at one level."""
    level = 1.0 - alpha
    ways: list[dict[str, Any]] = [{}]
    if isinstance(fit, dpe.QuantileEffects) or hasattr(fit, "p_values"):
        ways = [{"simultaneous": True}, {"simultaneous": False}]
    for way in ways:
        for row in fit.tidy(level, **way).to_dict("records"):
            null = NULLS.get(row["term"], 0.0)
            yield from _row(row, alpha, f"{row['term']} {way}", null)
    for scale, null in SCALE_NULLS.items():
        if scale in _scales(fit):
            for row in fit.tidy(level, scale=scale).to_dict("records"):
                yield from _row(row, alpha, f"{scale} of {row['term']}", null)
    if hasattr(fit, "p_value") and not isinstance(fit, dpe.QuantileEffects):
        low, high = fit.conf_int(level)
        row = {"conf_low": low, "conf_high": high, "p_value": fit.p_value}
        yield from _row(row, alpha, "itself", 0.0)
    if "nnt" in _scales(fit) and hasattr(fit, "effect"):
        found = fit.effect("nnt", level)
        if isinstance(found.p_value, float):
            yield Stated("nnt", alpha, found.through_infinity, found.p_value)
    if isinstance(fit, dpe.StudyEffects):
        for row in fit.interactions(level).to_dict("records"):
            yield from _row(row, alpha, f"interaction {row['term']}", 0.0)
    if hasattr(fit, "test"):
        tests = fit.test(conf_level=level)
        for test in tests if isinstance(tests, dpe.Tests) else [tests]:
            yield from _row(test.row(), alpha, f"test {test.term}", 0.0)
    if isinstance(fit, dpe.SurvivalEffects):
        at = [0.4 * fit.horizon, 0.9 * fit.horizon]
        tables = fit.risk(at, level), fit.rmst(at[0], level)
        for row in (row for table in tables for row in table.to_dict("records")):
            yield from _row(
                row, alpha, f"{row['term']} at {row['time']:g}", NULLS.get(row["term"], 0.0)
            )


def _scales(fit: Any) -> tuple[str, ...]:
    """Scales but for the difference that a result has."""
    released = fit.effects[0] if hasattr(fit, "effects") else getattr(fit, "released", None)
    if released is None or released.means is None or released.means.possible[0] < 0.0:
        return ()
    risks = released.means.possible == (0.0, 1.0)
    return ("ratio", "lift", "odds", "nnt") if risks else ("ratio", "lift")


def _row(row: dict[str, Any], alpha: float, what: str, null: float) -> Iterator[Stated]:
    low, high, p = row["conf_low"], row["conf_high"], row["p_value"]
    if not any(map(math.isnan, (low, high, p))):
        yield Stated(what, alpha, low <= null <= high, p)
