"""A study as it is expected to be: rehearsed, with expected sums in the place of released ones."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpeffects.abilities.study import dp_study
from dpeffects.arrays import FloatArray
from dpeffects.design.bounds import Bounds, declare
from dpeffects.errors import OptionError, did_you_mean
from dpeffects.estimators._checks import is_number
from dpeffects.formula import parse
from dpeffects.formula.expression import source
from dpeffects.inference.joint import Margin, StudyColumn
from dpeffects.planning.made_up import ALIGNED, MadeUp, People, fitting, ranked
from dpeffects.planning.setting import (
    COVARIATE_SD,
    R2,
    R2_TWO_VALUED,
    PlanSetting,
    many,
    outcome_spread,
)
from dpeffects.results import StudyEffects

_NOBODYS = "outcome of nobody"
_RECORDS, _MOST_RECORDS = 200, 50_000
"""Records that are rehearsed: a few, but at most so many where weights depend on them."""
_REPEATS = 3
"""Rehearsals where weights depend on the records."""


@dataclass(frozen=True)
class StudySetting:
    """The study that is planned, and what is assumed about the data that nobody has touched.

    ``outcome_mean``, ``outcome_sd`` and ``subgroup_shares`` are as they were given;
    ``share_treated`` is None, and ``arm_shares`` empty, where arms are of the same size;
    ``covariate_sd`` has all numeric columns that are no outcomes, by name.
    """

    formula: str
    subgroups: tuple[str, ...]
    n: int
    epsilon: float
    delta: float
    bounds: Bounds
    design: str
    outcome_mean: Mapping[str, float]
    outcome_sd: Mapping[str, float]
    share_treated: float | None
    arm_shares: Mapping[str, float]
    subgroup_shares: Mapping[str, Mapping[str, float]]
    confounding: float
    covariate_sd: Mapping[str, float]
    conf_level: float
    power: float
    contrasts: str
    shares: Mapping[str, float]
    options: Mapping[str, Any]

    def by_arm(self, arms: Sequence[str]) -> FloatArray:
        """Shares of the arms, the treated before the controls where there are two."""
        share = self.share_treated
        if share is not None and len(arms) > 2:
            raise OptionError(f"share_treated has a share for each arm: {', '.join(arms)}")
        if share is not None:
            return np.array([share, 1.0 - share])
        return _shares("share_treated", self.arm_shares, arms)


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
        made = PlanSetting(
            formula=formula,
            n=n,
            epsilon=s.epsilon,
            delta=s.delta,
            bounds=bounds.only(parse(formula).columns),
            estimand="ATE",
            design=s.design,
            outcome_mean=0.5,
            outcome_sd=0.1,
            two_valued=False,
            share_treated=s.share_treated or 0.5,
            r2=0.0,
            confounding=s.confounding,
            covariate_sd=s.covariate_sd,
            conf_level=s.conf_level,
            power=s.power,
            repeats=None,
            options={},
        )
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
        """Part of an outcome's variance that the covariates explain."""
        return R2_TWO_VALUED * many(self._formula, self.setting.bounds) ** 2 if risk else R2

    def _level_shares(self, margin: Margin) -> FloatArray:
        given = self.setting.subgroup_shares.get(margin.factor, {})
        levels = [level.removeprefix(f"{margin.factor} ") for level in margin.levels]
        return _shares(f"subgroup_shares[{margin.factor!r}]", given, levels)

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


def known_names(what: str, given: Mapping[str, Any], known: Sequence[str]) -> None:
    """Refuse names that are none of these."""
    for name in given:
        if name not in known:
            hint = did_you_mean(str(name), known)
            raise OptionError(f"{what} names {name!r}; there are {', '.join(known)}.{hint}")


def _shares(what: str, given: Any, names: Sequence[str]) -> FloatArray:
    """Shares by name that sum to 1; those that are not given have equal parts of the rest."""
    if not isinstance(given, Mapping):
        raise OptionError(f"{what} must be a mapping of names to shares, got {given!r}")
    given = {str(name): share for name, share in given.items()}
    known_names(what, given, names)
    for share in given.values():
        if not (is_number(share) and 0.0 < share < 1.0):
            raise OptionError(f"{what} has shares between 0 and 1, got {share!r}")
    rest, left = 1.0 - math.fsum(given.values()), len(names) - len(given)
    if abs(rest) > 1e-6 if not left else rest <= 0.0:
        raise OptionError(f"{what} must have shares that sum to 1")
    return np.array([given.get(name, rest / max(left, 1)) for name in names], float)
