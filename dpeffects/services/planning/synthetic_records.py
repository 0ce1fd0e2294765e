"""Made-up records that fit a formula, its bounds and what is assumed about the data."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from dpeffects.arrays import BoolArray, FloatArray, IntArray
from dpeffects.design.bounds import Bounds, DeclaredFrame, declare
from dpeffects.design.table_reader import read
from dpeffects.estimators.weighting.propensity import level_of
from dpeffects.formula.expression import Column, evaluate, source
from dpeffects.privacy.losses import sigmoid
from dpeffects.services.planning.setting import (
    TWO_ENDED,
    OutcomeAssumptions,
    PlanSetting,
    outcome_range,
    with_terms,
)

ALIGNED = 0.5
"""Correlation between what covariates say about the outcome and about treatment."""
_SHARED, _SHARED_IF_CUT, _FACTORS = 0.5, 0.8, 3
"""Part of a covariate that it has in common with others, by so many factors; of one that is cut in
two or into levels there is more, because cutting takes some away. Two then correlate by
0.25 (root of the mean square), in births by 0.3, in a registry of intensive care by 0.13. With
independent covariates half-widths of both came out as 0.7 to 0.85 of real ones (12 columns)."""
_GRID = 2001
_NOBODYS = "outcome of nobody"
_LEAST = 1e-3
"""Means of outcomes stay this far from the ends of their range, in ranges."""


class People(NamedTuple):
    """Records but for their outcomes; ``score`` is what covariates say about the outcome."""

    columns: dict[str, Any]
    treated: BoolArray | IntArray
    score: FloatArray


class SyntheticRecords:
    """Made-up records, with the same covariates and treatments for every method and effect.

    Covariates go together by a few factors that they share. They have a normal distribution, cut to
    their range, or one of two values, or levels of which the first is the most frequent, the second
    a quarter of that, the third a ninth, and so on. Two sums of the formula's encoded terms with
    random weights, correlated by 0.5, are what covariates say about outcome and treatment. The log
    odds of treatment are linear in one. Outcomes have a beta distribution on their range whose
    mean is linear in the other, and two values where that is assumed. By turns confounding goes up
    and down, so that what is left of it is in the spread of estimates and not in their mean. More
    than two arms are cut from what makes two.
    """

    def __init__(self, setting: PlanSetting, *, columns: bool = False) -> None:
        """``columns``: outcomes are the columns that they are made of."""
        self.setting, self.bounds = setting, setting.bounds
        formula = with_terms(setting.parsed, setting.subgroups)
        if columns:
            first, *others = map(Column, formula.outcome_columns)
            formula = replace(formula, outcome=first, more_outcomes=tuple(others))
        self.formula = formula
        self.dists = [self._dist(outcome) for outcome in formula.outcomes]
        share, levels = setting.treated_share or 0.5, self.bounds.get(formula.treatment_name, ())
        two = np.array([1.0 - share, share])
        self.shares = setting.arms([str(x) for x in levels]) if len(levels) > 2 else two
        self._people: dict[tuple[int, int], People] = {}

    def _dist(self, outcome: Any) -> OutcomeAssumptions:
        """What an outcome is taken to be like; of levels there are the first and the last."""
        levels = isinstance(outcome, Column) and self.bounds.is_levels(outcome.name)
        ends = (0.0, 1.0) if levels else outcome_range(outcome, self.bounds)
        return self.setting.assumptions(source(outcome), *ends, levels)

    @property
    def effects(self) -> tuple[float, float]:
        """The effects that leave the means of both arms within the range."""
        dist, (_, treated, *_) = self.dists[0], self.shares
        below, above = dist.mean - dist.low, dist.high - dist.mean
        least = -0.9 * min(above / treated, below / (1.0 - treated))
        return least, 0.9 * min(below / treated, above / (1.0 - treated))

    def records(self, n: int, seed: int, effect: float = 0.0) -> tuple[DeclaredFrame, float]:
        """Make n records of a seed, with an effect; return them with the effect that they have.

        The outcome's mean is over both arms. An outcome that is no monotone function of one column
        has its columns spread evenly, and no effect.
        """
        import pandas as pd

        people = self.people(n, seed)
        rng = np.random.default_rng([seed, 1])
        effect = min(max(effect, self.effects[0]), self.effects[1])
        columns: dict[str, Any] = {}
        for outcome, dist in zip(self.formula.outcomes, self.dists, strict=True):
            found = self._as_columns(outcome, _outcomes(dist, people, effect, rng))
            effect = 0.0 if found is None else effect
            columns |= self._spread_evenly(n, rng) if found is None else found
        frame = pd.DataFrame({**columns, **people.columns})
        return declare(frame, self.bounds), effect

    def people(self, n: int, seed: int) -> People:
        """Make n records of a seed, but for their outcomes."""
        if (n, seed) not in self._people:
            others = {key: made for key, made in self._people.items() if key[0] == n}
            self._people = {**others, (n, seed): self._made(n, seed)}
        return self._people[n, seed]

    def _made(self, n: int, seed: int) -> People:
        import pandas as pd

        rng, s = np.random.default_rng(seed), self.setting
        formula = replace(self.formula, outcome=Column(_NOBODYS), more_outcomes=())
        names = formula.covariate_columns
        shared = [_SHARED_IF_CUT if self._cut(name) else _SHARED for name in names]
        normals = _related(np.array(shared), n, rng) if names else ()
        columns = {name: self._covariate(name, z) for name, z in zip(names, normals, strict=True)}
        index = tilt = np.zeros(n)
        if columns:
            bounds = self.bounds.with_interval(_NOBODYS, 0.0, 1.0, source="declared")
            others = {_NOBODYS: rng.random(n), **self._arms(np.arange(n) % len(self.shares))}
            frame = pd.DataFrame({**columns, **others})
            made = read(declare(frame, bounds.only(formula.columns)), formula, None, ())
            index, tilt = _indices(made.encode(None).in_memory("").covariates(), rng)
        arms = _drawn_arms(self.shares, s.confounding * tilt * (-1.0) ** seed, rng)
        within = [arms == arm for arm in range(len(self.shares))]
        between = sum(np.mean(own) * index[own].mean() ** 2 for own in within)
        index = index / math.sqrt(max(1.0 - between, 0.1))  # of variance 1 within arms
        return People({**columns, **self._arms(arms)}, arms, index)

    def _arms(self, arms: BoolArray | IntArray) -> dict[str, Any]:
        name, bounds = self.formula.treatment_name, self.bounds
        if not (name in bounds and bounds.is_levels(name)):
            return {name: arms == 1}
        return {name: self._levels(name, arms.astype(int))}

    def _levels(self, name: str, codes: IntArray) -> Any:
        """A column of levels, which is read fastest as pandas keeps it, where they are texts."""
        import pandas as pd

        levels = list(self.bounds[name])
        if all(isinstance(level, str) for level in levels):
            return pd.Categorical.from_codes(codes, pd.Index(levels))
        return np.array(levels, dtype=object)[codes]

    def _cut(self, name: str) -> bool:
        """Whether a column has levels, or both ends of its range and nothing between."""
        return self.bounds.is_levels(name) or self.setting.covariate_sd[name] > TWO_ENDED

    def _covariate(self, name: str, normal: FloatArray) -> Any:
        """A column that is as high within its distribution as a normal one."""
        bounds, at = self.bounds, NormalDist().inv_cdf
        if bounds.is_levels(name):
            rarer = 0 if self.setting.estimand == "CATE" else 2  # who asks for groups has them
            sizes = np.cumsum(1.0 / np.arange(1, len(bounds[name]) + 1) ** rarer)
            cuts = [at(share) for share in sizes[:-1] / sizes[-1]]
            return self._levels(name, np.searchsorted(cuts, normal))
        low, high = bounds.interval(name)
        sd = self.setting.covariate_sd[name]
        if self._cut(name):
            at_top = (1.0 - math.sqrt(max(1.0 - 4.0 * sd**2, 0.0))) / 2.0
            return np.where(normal > at(1.0 - at_top), high, low)
        values = low + (high - low) * np.clip(0.5 + sd * normal, 0.0, 1.0)
        return fitting(name, values, bounds)

    def _as_columns(self, written: Any, outcome: FloatArray) -> dict[str, Any] | None:
        """The column that has these outcomes, by inverting the formula's; None where it cannot."""
        names, bounds = self.formula.outcome_columns, self.bounds
        if isinstance(written, Column) and bounds.is_levels(written.name):
            most = len(bounds[written.name]) - 1
            return {written.name: self._levels(written.name, np.rint(outcome * most).astype(int))}
        if isinstance(written, Column):
            return {written.name: fitting(written.name, outcome, bounds)}
        grid = np.linspace(*bounds.interval(names[0]), _GRID)
        with np.errstate(all="ignore"):
            values = evaluate(written, {names[0]: grid}) if len(names) == 1 else grid * np.nan
        steps = np.diff(values)
        if not (np.all(steps > 0.0) or np.all(steps < 0.0)):
            return None
        order = np.argsort(values)
        found = np.interp(outcome, values[order], grid[order])
        return {names[0]: fitting(names[0], found, bounds)}

    def _spread_evenly(self, n: int, rng: np.random.Generator) -> dict[str, FloatArray]:
        bounds, names = self.bounds, self.formula.outcome_columns
        drawn = {name: rng.uniform(*bounds.interval(name), n) for name in names}
        return {name: fitting(name, values, bounds) for name, values in drawn.items()}


def _outcomes(
    dist: OutcomeAssumptions, people: People, effect: float, rng: np.random.Generator
) -> FloatArray:
    """Outcomes as the formula has them."""
    width, arms = dist.high - dist.low, people.treated
    sd = dist.sd / width
    mean = (dist.mean - dist.low) / width + sd * math.sqrt(dist.r2) * people.score
    mean = mean + effect / width * (arms - arms.mean())
    mean = np.clip(mean, _LEAST, 1.0 - _LEAST)
    if dist.two_valued:
        return dist.low + width * (rng.random(len(mean)) < mean)
    largest = float(np.mean(mean * (1.0 - mean)))
    precision = min(max(largest / (sd**2 * (1.0 - dist.r2)) - 1.0, 0.05), 1e9)
    drawn = rng.beta(mean * precision, (1.0 - mean) * precision)
    return np.asarray(dist.low + width * drawn)


def _drawn_arms(shares: FloatArray, log_odds: FloatArray, rng: np.random.Generator) -> Any:
    """Arms of these shares by their numbers: two by the log odds of the second, more in a row."""
    drawn = rng.random(len(log_odds))
    if len(shares) == 2:
        treated = drawn < sigmoid(log_odds + level_of(log_odds, float(shares[1])))
        treated[:2] = True, False  # both arms are there
        return treated
    rank = (log_odds - np.log(1.0 / np.maximum(drawn, 1e-300) - 1.0)).argsort().argsort()
    return np.searchsorted(np.cumsum(shares)[:-1], (rank + 0.5) / len(rank))


def _related(shared: FloatArray, n: int, rng: np.random.Generator) -> FloatArray:
    """Normal columns that share some factors, each by weights and a part of its own."""
    weights, shared = rng.standard_normal((len(shared), _FACTORS)), shared[:, None]
    weights *= np.sqrt(shared / np.maximum((weights**2).sum(axis=1, keepdims=True), 1e-12))
    own = np.sqrt(1.0 - shared) * rng.standard_normal((len(shared), n))
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
