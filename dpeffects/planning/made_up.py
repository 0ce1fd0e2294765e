"""Made-up records that fit a formula, its bounds and what is assumed about the data."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from dpeffects.arrays import BoolArray, FloatArray, IntArray
from dpeffects.design.bounds import Bounds, Declared, declare
from dpeffects.design.read import read
from dpeffects.formula import parse
from dpeffects.formula.expression import Column, evaluate
from dpeffects.planning.setting import TWO_ENDED, PlanSetting, StudySetting, outcome_range

ALIGNED = 0.5
"""Correlation between what covariates say about the outcome and about treatment."""
_SHARED, _FACTORS = 0.5, 3
"""Part of a covariate that it has in common with others, by so many factors. Two then correlate by
0.25 (root of the mean square), in births by 0.3, in a registry of intensive care by 0.13. With
independent covariates half-widths of both came out as 0.7 to 0.85 of real ones (12 columns)."""
_GRID = 2001
_LEAST = 1e-3
"""Means of outcomes stay this far from the ends of their range, in ranges."""


class People(NamedTuple):
    """Records but for their outcomes; ``score`` is what covariates say about the outcome."""

    columns: dict[str, Any]
    treated: BoolArray
    score: FloatArray


class MadeUp:
    """Made-up records, with the same covariates and treatments for every method and effect.

    Covariates go together by a few factors that they share. They have a normal law, cut to their
    range, or one of two values, or levels of which the first is the most frequent, the second a
    quarter of that, the third a ninth, and so on. Two sums of the formula's encoded terms with
    random weights, correlated by 0.5, are what covariates say about outcome and treatment. The log
    odds of treatment are linear in one. Outcomes have a beta law on their range whose mean is
    linear in the other, and two values where that is assumed. By turns confounding goes up and
    down, so that what is left of it is in the spread of estimates and not in their mean.
    """

    def __init__(self, setting: PlanSetting | StudySetting) -> None:
        self.setting: Any = setting
        self.formula, self.bounds = parse(setting.formula), setting.bounds
        self.low, self.high = outcome_range(self.formula, self.bounds)
        self._people: dict[tuple[int, int], People] = {}

    @property
    def effects(self) -> tuple[float, float]:
        """The effects that leave the means of both arms within the range."""
        s = self.setting
        below, above = s.outcome_mean - self.low, self.high - s.outcome_mean
        treated, control = s.share_treated, 1.0 - s.share_treated
        least = -0.9 * min(above / treated, below / control)
        return least, 0.9 * min(below / treated, above / control)

    def records(self, n: int, seed: int, effect: float = 0.0) -> tuple[Declared, float]:
        """Make n records of a seed, with an effect; return them with the effect that they have.

        The outcome's mean is over both arms. An outcome that is no monotone function of one column
        has its columns spread evenly, and no effect.
        """
        import pandas as pd

        people = self.people(n, seed)
        rng = np.random.default_rng([seed, 1])
        effect = min(max(effect, self.effects[0]), self.effects[1])
        columns = self._as_columns(self._outcomes(people, effect, rng))
        if columns is None:
            columns, effect = self._spread_evenly(n, rng), 0.0
        columns = {k: fitting(k, x, self.bounds) for k, x in columns.items()}
        frame = pd.DataFrame({**people.columns, **columns})
        return declare(frame, self.bounds), effect

    def people(self, n: int, seed: int) -> People:
        """Make n records of a seed, but for their outcomes."""
        if (n, seed) not in self._people:
            self._people[n, seed] = self._made(n, seed)
        return self._people[n, seed]

    def _made(self, n: int, seed: int) -> People:
        import pandas as pd

        rng, s, formula = np.random.default_rng(seed), self.setting, self.formula
        names = formula.covariate_columns
        normals = _related(len(names), n, rng) if names else ()
        columns = {name: self._covariate(name, z) for name, z in zip(names, normals, strict=True)}
        index = tilt = np.zeros(n)
        if columns:
            others = {**self._arms(np.arange(n) % 2 == 1), **self._spread_evenly(n, rng)}
            frame = declare(pd.DataFrame({**columns, **others}), self.bounds)
            terms = read(frame, formula, None, ()).encode(None).in_memory("").covariates()
            index, tilt = _indices(terms, rng)
        log_odds = s.confounding * tilt * (-1.0) ** seed
        treated = rng.random(n) < _expit(log_odds + _offset(log_odds, s.share_treated or 0.5))
        treated[:2] = True, False  # both arms are there
        between = sum(np.mean(treated == arm) * index[treated == arm].mean() ** 2 for arm in (0, 1))
        index = index / math.sqrt(max(1.0 - between, 0.1))  # of variance 1 within arms
        return People({**columns, **self._arms(treated)}, treated, index)

    def _arms(self, treated: BoolArray) -> dict[str, Any]:
        name, bounds = self.formula.treatment_name, self.bounds
        if not (name in bounds and bounds.is_levels(name)):
            return {name: treated}
        return {name: self._levels(name, treated.astype(int))}

    def _levels(self, name: str, codes: IntArray) -> Any:
        """A column of levels, which is read fastest as pandas keeps it, where they are texts."""
        import pandas as pd

        levels = list(self.bounds[name])
        if all(isinstance(level, str) for level in levels):
            return pd.Categorical.from_codes(codes, pd.Index(levels))
        return np.array(levels, dtype=object)[codes]

    def _covariate(self, name: str, normal: FloatArray) -> Any:
        """A column that is as high within its law as a normal one."""
        bounds, at = self.bounds, NormalDist().inv_cdf
        if bounds.is_levels(name):
            estimand = getattr(self.setting, "estimand", "ATE")
            rarer = 0 if estimand == "CATE" else 2  # who asks for groups has them
            sizes = np.cumsum(1.0 / np.arange(1, len(bounds[name]) + 1) ** rarer)
            cuts = [at(share) for share in sizes[:-1] / sizes[-1]]
            return self._levels(name, np.searchsorted(cuts, normal))
        low, high = bounds.interval(name)
        sd = self.setting.covariate_sd[name]
        if sd > TWO_ENDED:
            at_top = (1.0 - math.sqrt(max(1.0 - 4.0 * sd**2, 0.0))) / 2.0
            return np.where(normal > at(1.0 - at_top), high, low)
        values = low + (high - low) * np.clip(0.5 + sd * normal, 0.0, 1.0)
        return fitting(name, values, bounds)

    def _outcomes(self, people: People, effect: float, rng: np.random.Generator) -> FloatArray:
        """Outcomes as the formula has them."""
        s, width = self.setting, self.high - self.low
        sd, r2 = s.outcome_sd / width, s.r2 if s.covariates else 0.0
        mean = (s.outcome_mean - self.low) / width + sd * math.sqrt(r2) * people.score
        mean = mean + effect / width * (people.treated - people.treated.mean())
        mean = np.clip(mean, _LEAST, 1.0 - _LEAST)
        if s.two_valued:
            return self.low + width * (rng.random(len(mean)) < mean)
        largest = float(np.mean(mean * (1.0 - mean)))
        precision = min(max(largest / (sd**2 * (1.0 - r2)) - 1.0, 0.05), 1e9)
        drawn = rng.beta(mean * precision, (1.0 - mean) * precision)
        return np.asarray(self.low + width * drawn)

    def _as_columns(self, outcome: FloatArray) -> dict[str, Any] | None:
        """The column that has these outcomes, by inverting the formula's; None where it cannot."""
        expression, names = self.formula.outcome, self.formula.outcome_columns
        if expression == Column(names[0]):
            return {names[0]: outcome}
        grid = np.linspace(*self.bounds.interval(names[0]), _GRID)
        with np.errstate(all="ignore"):
            values = evaluate(expression, {names[0]: grid}) if len(names) == 1 else grid * np.nan
        steps = np.diff(values)
        if not (np.all(steps > 0.0) or np.all(steps < 0.0)):
            return None
        order = np.argsort(values)
        return {names[0]: np.interp(outcome, values[order], grid[order])}

    def _spread_evenly(self, n: int, rng: np.random.Generator) -> dict[str, FloatArray]:
        bounds, names = self.bounds, self.formula.outcome_columns
        drawn = {name: rng.uniform(*bounds.interval(name), n) for name in names}
        return {name: fitting(name, values, bounds) for name, values in drawn.items()}


def ranked(score: FloatArray, r2: float, seed: list[int]) -> FloatArray:
    """Ranks of records, in (0, 1), that a score explains this part of."""
    noise = np.random.default_rng(seed).standard_normal(len(score))
    mixed = math.sqrt(r2) * score + math.sqrt(1.0 - r2) * noise
    return np.asarray((mixed.argsort().argsort() + 0.5) / len(score))


def _related(columns: int, n: int, rng: np.random.Generator) -> FloatArray:
    """Normal columns that share some factors, each by weights of its own."""
    weights = rng.standard_normal((columns, _FACTORS))
    weights *= np.sqrt(_SHARED / np.maximum((weights**2).sum(axis=1, keepdims=True), 1e-12))
    own = math.sqrt(1.0 - _SHARED) * rng.standard_normal((columns, n))
    return np.asarray(weights @ rng.standard_normal((_FACTORS, n)) + own)


def fitting(name: str, values: FloatArray, bounds: Bounds) -> FloatArray:
    """Values of a column; whole numbers where it is declared with these."""
    return np.rint(values) if name in bounds.whole else values


def _indices(terms: FloatArray, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """Two sums of the terms with mean 0 and variance 1, correlated by `ALIGNED`."""
    centred = terms - terms.mean(axis=0)
    sds = centred.std(axis=0)
    scaled = centred[:, sds > 1e-9] / sds[sds > 1e-9]
    if not scaled.shape[1]:
        return np.zeros(len(terms)), np.zeros(len(terms))
    first, other = (scaled @ rng.standard_normal((scaled.shape[1], 2))).T
    first = first / first.std()
    other = other - np.mean(first * other) * first
    if other.std() < 1e-6:  # there is one term only
        return first, first
    return first, ALIGNED * first + math.sqrt(1.0 - ALIGNED**2) * other / other.std()


def _expit(z: FloatArray) -> FloatArray:
    return np.asarray(1.0 / (1.0 + np.exp(-z)))


def _offset(log_odds: FloatArray, share: float) -> float:
    """What to add to log odds, so that this share is treated on average."""
    offset = math.log(share / (1.0 - share))
    for _ in range(20):
        chance = _expit(log_odds + offset)
        slope = max(float(np.mean(chance * (1.0 - chance))), 1e-6)
        offset += float(np.clip((share - chance.mean()) / slope, -1.0, 1.0))
    return offset
