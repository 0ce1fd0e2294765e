"""A study as it is expected to be: rehearsed, with expected sums in the place of released ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dpeffects.abilities.study import StudyEffects, dp_study
from dpeffects.arrays import FloatArray
from dpeffects.design.bounds import declare
from dpeffects.formula import parse
from dpeffects.formula.expression import source
from dpeffects.inference.joint import Margin, StudyColumn
from dpeffects.planning.made_up import ALIGNED, MadeUp, People, fitting, ranked
from dpeffects.planning.setting import (
    COVARIATE_SD,
    StudySetting,
    explained,
    known_names,
    outcome_spread,
    shares_by_name,
)

_NOBODYS = "outcome of nobody"
_RECORDS, _MOST_RECORDS = 200, 50_000
"""Records that are rehearsed: a few, but at most so many where weights depend on them."""
_REPEATS = 3
"""Rehearsals where weights depend on the records."""


class Planner:
    """Rehearses a study, and puts expected sums in the place of those that it released."""

    def __init__(self, setting: StudySetting) -> None:
        self.setting, self._formula = setting, parse(setting.formula)
        self._known: dict[tuple[int, float], list[StudyEffects]] = {}

    @property
    def weighs(self) -> bool:
        """Whether records may count by weights, which depend on what they are like."""
        return self.setting.design != "randomised" and self._formula.has_covariates

    def expected(self, n: int, epsilon: float) -> list[StudyEffects]:
        """The study as expected with so many records and this epsilon, once or several times."""
        if (n, epsilon) not in self._known:
            records = min(n, _MOST_RECORDS) if self.weighs else _RECORDS
            fits = [
                self._rehearsed(records, epsilon, seed)
                for seed in range(_REPEATS if self.weighs else 1)
            ]
            self._known[n, epsilon] = [self._as_expected(fit, n) for fit in fits]
        return self._known[n, epsilon]

    def _rehearsed(self, n: int, epsilon: float, seed: int) -> StudyEffects:
        s = self.setting
        return dp_study(
            s.formula,
            self._records(n, seed),
            subgroups=s.subgroups,
            epsilon=epsilon,
            delta=s.delta,
            design=s.design,
            contrasts=s.contrasts,
            shares=s.shares or None,
            seed=seed,
            **s.options,
        )

    def _records(self, n: int, seed: int) -> Any:
        """Made-up records: covariates and treatments as a plan has them, outcomes of any kind."""
        import pandas as pd

        bounds, arm = self.setting.bounds, self._formula.treatment_name
        people = self._people(n, seed)
        columns, score = dict(people.columns), people.score
        for k, name in enumerate(self._formula.outcome_columns):
            columns[name] = self._outcome(name, score, [seed, 2, k])
        if arm in bounds and bounds.is_levels(arm) and len(bounds[arm]) > 2:
            arms = ranked(score, 0.0, [seed, 3]) * len(bounds[arm])
            columns[arm] = np.array(list(bounds[arm]), dtype=object)[arms.astype(int)]
        return declare(pd.DataFrame(columns), bounds)

    def _outcome(self, name: str, score: FloatArray, seed: list[int]) -> Any:
        """An outcome that covariates explain as much of as a plan takes them to."""
        s, values = self.setting, list(self.setting.bounds[name])
        named = s.bounds.is_levels(name)
        levels = named or (values == [0, 1] and name not in s.outcome_sd)
        rank = ranked(score, self._explained(levels), seed)
        if not levels:
            low, high = self._usual(name)
            return fitting(name, low + (high - low) * rank, s.bounds)
        risk = s.outcome_mean.get(name, 0.5)
        codes = rank > 1.0 - risk if len(values) == 2 else rank * len(values)
        return np.array(values, dtype=object if named else int)[codes.astype(int)]

    def _usual(self, name: str) -> tuple[float, float]:
        """An interval of the outcome's mean and standard deviation, where these were given."""
        low, high = self.setting.bounds.interval(name)
        half = math.sqrt(3.0) * self.setting.outcome_sd.get(name, (high - low) / 6.0)
        middle = self.setting.outcome_mean.get(name, (low + high) / 2.0)
        ends = max(low, middle - half), min(high, middle + half)
        return ends if low < ends[1] and ends[0] < high else (low, high)

    def _people(self, n: int, seed: int) -> People:
        s = self.setting
        terms = [":".join(map(source, term)) for term in self._formula.terms]
        right = " + ".join((*terms, *s.subgroups))
        formula = f"`{_NOBODYS}` ~ {source(self._formula.treatment)}"
        formula = f"{formula} | {right}" if right else formula
        bounds = s.bounds.with_interval(_NOBODYS, 0.0, 1.0, source="declared")
        made = replace(s, formula=formula, bounds=bounds.only(parse(formula).columns))
        return MadeUp(made).people(n, seed)

    def _as_expected(self, fit: StudyEffects, n: int) -> StudyEffects:
        """The result with expected sums, and what follows from them.

        Where records count by weights, what they add up to is as in the rehearsal.
        """
        sums, law = fit.sums, self._outcome_laws(fit.sums.outcomes)
        plain = counted = n * self.setting.by_arm(sums.arms)
        if sums.unadjusted is not None:
            counted = np.maximum(sums.whole.sizes[:, 0], 1.0) * (n / fit.n)
        groups = (
            _expected(margin, counted, law, self._level_shares(margin)) for margin in sums.groups
        )
        own = self._baseline_laws(sums.baseline_columns)
        sums = replace(
            sums,
            whole=_expected(sums.whole, counted, law),
            groups=tuple(groups),
            baseline=sums.baseline and _expected(sums.baseline, plain, own),
            weighted_baseline=sums.weighted_baseline
            and _expected(sums.weighted_baseline, counted, own),
            unadjusted=sums.unadjusted
            and _expected(sums.unadjusted, plain, law, apart=self._crude(sums.outcomes, law)),
        )
        effects = tuple(replace(x, basis=fit.stands_on) for x in sums.effects())
        return replace(fit, n=n, sums=sums, effects=effects)

    def _crude(self, columns: Sequence[StudyColumn], law: FloatArray) -> FloatArray:
        """How far arms are apart by confounding, before weights, as `plan` has it."""
        r2 = np.array([self._explained(c.two_valued) for c in columns])
        return self.setting.confounding * ALIGNED * np.sqrt(r2 * law[:, 1])

    def _explained(self, risk: bool) -> float:
        return explained(risk, self._formula, self.setting.bounds)

    def _level_shares(self, margin: Margin) -> FloatArray:
        given = self.setting.subgroup_shares.get(margin.factor, {})
        levels = [level.removeprefix(f"{margin.factor} ") for level in margin.levels]
        return shares_by_name(f"subgroup_shares[{margin.factor!r}]", given, levels)

    def _outcome_laws(self, columns: Sequence[StudyColumn]) -> FloatArray:
        """Mean and variance of each outcome on the scale from -1/2 to 1/2, one row each."""
        s, names, found = self.setting, [column.name for column in columns], []
        for what, given in (("outcome_mean", s.outcome_mean), ("outcome_sd", s.outcome_sd)):
            known_names(what, given, names)
        for c in columns:
            mean = s.outcome_mean.get(c.name, _usual_risk(c, columns) if c.two_valued else None)
            sd = s.outcome_sd.get(c.name)
            mean, sd, _ = outcome_spread(c.low, c.high, mean, sd, c.two_valued)
            found.append(((mean - c.low) / c.width - 0.5, (sd / c.width) ** 2))
        return np.array(found)

    def _baseline_laws(self, columns: Sequence[StudyColumn]) -> FloatArray:
        """The same of the baseline variables."""
        found = []
        for c in columns:
            if c.two_valued:
                risk = _usual_risk(c, columns)
                found.append((risk - 0.5, risk * (1.0 - risk)))
            else:
                found.append((0.0, self.setting.covariate_sd.get(c.name, COVARIATE_SD) ** 2))
        return np.array(found).reshape(-1, 2)


def _usual_risk(column: StudyColumn, columns: Sequence[StudyColumn]) -> float:
    """A half, or that of a level where all levels are equally frequent."""
    if not column.variable:
        return 0.5
    return 1.0 / (1 + sum(c.variable == column.variable for c in columns))


def _expected(
    margin: Margin,
    by_arm: FloatArray,
    law: FloatArray,
    by_level: FloatArray | float = 1.0,
    apart: FloatArray | float = 0.0,
) -> Margin:
    """A margin with the sums that are expected of arms and levels of these sizes.

    ``law`` has means and variances of the columns; two arms are so far ``apart``.
    """
    sizes, (means, variances) = np.outer(by_arm, by_level), law.T
    sides = np.linspace(0.5, -0.5, len(by_arm))[:, None, None] * apart
    own = means + sides
    each = sizes[..., None]
    return replace(margin, sizes=sizes, sums=each * own, squares=each * (variances + own**2))
