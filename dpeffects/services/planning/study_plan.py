"""A plan of a study: what every interval will be like, from public numbers alone.

The study is rehearsed on made-up records, so that the budget is divided, and noise chosen, as it
will be. In the place of the rehearsed sums come the expected ones (`_Planner`); standard errors,
intervals and all else then follow by the code that makes them of released sums.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any

import numpy as np

from dpeffects.abilities.study import StudyEffects, dp_study
from dpeffects.arrays import FloatArray
from dpeffects.design.bounds import Bounds
from dpeffects.errors import OptionError, checked_call, quoted, refusal
from dpeffects.estimators.option_checks import is_number
from dpeffects.formula import Formula
from dpeffects.formula.discrete import joined
from dpeffects.inference.estimate import NO_EFFECT, Estimate
from dpeffects.inference.intervals import std_error
from dpeffects.inference.joint import Margin, StudyColumn
from dpeffects.lazy import pd
from dpeffects.report.journal_table import tables_of
from dpeffects.results.export import frame_of, or_nan
from dpeffects.results.number_format import figure
from dpeffects.results.wording import percent
from dpeffects.services.planning.plan_tables import Invertible, planned_table
from dpeffects.services.planning.rehearsal import PlannedMethod, Rehearsed, mde
from dpeffects.services.planning.setting import (
    COVARIATE_SD,
    OutcomeAssumptions,
    PlanSetting,
    declared_bounds,
    known_names,
    read_formula,
    refuse_several,
    shares_by_name,
    with_terms,
)
from dpeffects.services.planning.synthetic_records import ALIGNED, SyntheticRecords
from dpeffects.services.protocols import Protocol
from dpeffects.summary import Block, Notes, Table, noise_cells, starred

_RELEASED = ("release", "share", "noise", "epsilon", "delta")
_SHOWN = 25
"""Cells that will say noise, in a summary."""
_RECORDS, _MOST_RECORDS = 200, 50_000
"""Records that are rehearsed: a few, but at most so many where weights depend on them."""
_REPEATS = 3
"""Rehearsals where weights depend on the records."""


@dataclass(frozen=True)
class PlannedEffect:
    """What to expect of one effect.

    ``half_width`` is that of the simultaneous confidence interval for its family: the outcomes in
    all records, or in all levels of a factor. ``unadjusted`` is the half-width of the interval that
    is not adjusted for multiplicity.
    """

    term: str
    subgroup: str
    level: str
    noise_sd: float
    std_error: float
    unadjusted: float
    half_width: float
    mde: float


@dataclass(frozen=True)
class PlannedDifference:
    """Noise in a standardised difference of Table 1, before and after weighting; NaN for none."""

    variable: str
    level: str
    noise_sd: float
    weighted_noise_sd: float


@dataclass(frozen=True, repr=False)
class StudyPlan(Invertible):
    """The expected accuracy of every effect of a study: print it, or ask `required`.

    Parameters
    ----------
    setting
        The study, and what is assumed.
    effects
        One for each outcome (and contrast), on all records and in each subgroup.
    baseline
        Noise in the standardised differences of Table 1.
    releases
        What is released: the label, the share of the budget, the noise and its price.
    identification
        How effects will be identified: "adjusted", "randomised" or "unadjusted".
    noise
        Cells of the study's tables that will be mostly noise, and not printed.
    """

    setting: PlanSetting
    effects: tuple[PlannedEffect, ...]
    baseline: tuple[PlannedDifference, ...]
    releases: tuple[tuple[str, str, str, float, float], ...]
    identification: str
    noise: tuple[str, ...] = ()
    _title = "Plan of a study, from simulated records (no data were used)"
    _about = "term"

    def tidy(self) -> pd.DataFrame:
        """One row for each effect; ``subgroup`` and ``level`` are empty for all records.

        ``noise_sd`` is the standard deviation of the privacy noise, ``half_width`` the half-width
        of the simultaneous confidence interval, ``unadjusted`` that of the interval not adjusted
        for multiplicity, ``mde`` the minimum detectable effect: the smallest whose simultaneous
        interval excludes 0 with the wanted power, NaN where there is no test, because nothing is
        adjusted for.
        """
        return frame_of([vars(x) for x in self.effects])

    def baseline_frame(self) -> pd.DataFrame:
        """Noise in the standardised differences of Table 1, one row each."""
        return frame_of(
            [vars(x) for x in self.baseline], [f.name for f in fields(PlannedDifference)]
        )

    def budget_frame(self) -> pd.DataFrame:
        """What is released, with which noise, and at what price."""
        return frame_of(list(self.releases), list(_RELEASED))

    def _reasons(self) -> dict[str, str]:
        return {x.term: "" for x in self.effects if not x.subgroup}

    def _figures_at(self, of: str) -> Callable[[str, float], PlannedMethod]:
        """The half-width of the simultaneous interval for all outcomes."""
        planner, terms, s = _Planner(self.setting), list(self._reasons()), self.setting

        @cache
        def halves(n: int, epsilon: float) -> FloatArray:
            ends = [
                x.conf_int(s.conf_level, simultaneous=True) for x in planner.expected(n, epsilon)
            ]
            return np.asarray(np.median(np.diff(ends, axis=2)[..., 0] / 2.0, axis=0))

        def at(term: str, value: float) -> PlannedMethod:
            found = halves(round(value), s.epsilon) if of == "n" else halves(s.n, value)
            return PlannedMethod("study", half_width=float(found[terms.index(term)]))

        return at

    def _starred(self) -> str:
        return starred([NO_EFFECT] if self.identification == "unadjusted" else [])

    def _blocks(self) -> Iterable[Block]:
        s = self.setting
        yield s.header()
        levels = f"{percent(s.conf_level)} confidence intervals"
        called = {
            "half_width": "half-width, simultaneous",
            "mde": f"MDE ({percent(s.power)} power)",
        }
        figures = ("noise_sd", "std_error", "unadjusted", "half_width", "mde")
        for factor in dict.fromkeys(x.subgroup for x in self.effects):
            title = f"By {factor}" if factor else f"All records ({levels})"
            texts = {"term": "outcome"} | ({"level": "level"} if factor else {})
            rows = [x for x in self.effects if x.subgroup == factor]
            yield planned_table(title, rows, texts, figures, **called)
        if self.baseline:
            weighted = any(x.weighted_noise_sd > 0.0 for x in self.baseline)
            names = ("variable", "level", "noise SD", "noise SD, weighted")
            names = names[: 4 if weighted else 3]  # type: ignore[assignment]
            cells = [
                (x.variable, x.level, figure(x.noise_sd, ".3f"), figure(x.weighted_noise_sd, ".3f"))
                for x in self.baseline
            ]
            title = "Privacy noise in the standardised mean differences of Table 1"
            yield Table(title, names, tuple(x[: len(names)] for x in cells), "llrr"[: len(names)])
        split = ((*x[:3], f"{x[3]:.3g}", f"{x[4]:.3g}") for x in self.releases)
        yield Table("Privacy budget", _RELEASED, tuple(split), "lllrr")
        if self.noise:
            left = len(self.noise) - _SHOWN
            others = [f"and {left} more, in .noise"] if left > 0 else []
            said = "; ".join([*self.noise[:_SHOWN], *others])
            yield Notes((f"Expected to be mostly noise, and not printed: {said}.",))


# --- what is expected ---------------------------------------------------------------------------


class _Planner:
    """Rehearses a study, and puts expected sums in the place of those that it released."""

    def __init__(self, setting: PlanSetting) -> None:
        self.setting, self._made = setting, SyntheticRecords(setting, columns=True)
        self.expected = cache(self._expected)

    def _expected(self, n: int, epsilon: float) -> list[StudyEffects]:
        """The study as expected with so many records and this epsilon, once or several times.

        Where records may count by weights, these depend on what the records are like.
        """
        weighs = self.setting.design != "randomised" and self.setting.covariates
        records, repeats = (min(n, _MOST_RECORDS), _REPEATS) if weighs else (_RECORDS, 1)
        fits = [self._rehearsed(records, epsilon, seed) for seed in range(repeats)]
        return [self._as_expected(fit, n) for fit in fits]

    def _rehearsed(self, n: int, epsilon: float, seed: int) -> StudyEffects:
        s = self.setting
        names = ("subgroups", "design", "contrasts", "delta")
        asked: dict[str, Any] = {name: getattr(s, name) for name in names}
        asked |= {"epsilon": epsilon, "budget_split": s.budget_split or None, "seed": seed}
        records, _ = self._made.records(n, seed)
        return dp_study(s.formula, records, **asked, **s.options)

    def _as_expected(self, fit: StudyEffects, n: int) -> StudyEffects:
        """The result with expected sums, and what follows from them.

        Where records count by weights, what they add up to is as in the rehearsal.
        """
        sums, dists = fit.sums, self.outcome_assumptions(fit.sums.outcomes)
        dist = np.array([((x.mean - x.low) / w - 0.5, (x.sd / w) ** 2) for x, w in dists])
        plain = counted = n * self.setting.arms(sums.arms)
        if sums.unadjusted is not None:
            counted = np.maximum(sums.whole.sizes[:, 0], 1.0) * (n / fit.n)
        groups = [_expected(x, counted, dist, self._level_shares(x)) for x in sums.groups]
        # how far arms are apart by confounding, before weights, as `plan` has it
        crude = self.setting.confounding * ALIGNED * np.sqrt([x.r2 for x, _ in dists] * dist[:, 1])
        own = self._baseline_laws(sums.baseline_columns)
        sums = replace(
            sums,
            whole=_expected(sums.whole, counted, dist),
            groups=tuple(groups),
            baseline=sums.baseline and _expected(sums.baseline, plain, own),
            weighted_baseline=sums.weighted_baseline
            and _expected(sums.weighted_baseline, counted, own),
            unadjusted=sums.unadjusted and _expected(sums.unadjusted, plain, dist, apart=crude),
        )
        effects = tuple(replace(x, identification=fit.identification) for x in sums.effects())
        return replace(fit, n=n, sums=sums, effects=effects)

    def _level_shares(self, margin: Margin) -> FloatArray:
        given = self.setting.subgroup_shares.get(margin.factor, {})
        levels = [level.removeprefix(f"{margin.factor} ") for level in margin.levels]
        return shares_by_name(f"subgroup_shares[{margin.factor!r}]", given, levels)

    def outcome_assumptions(
        self, columns: Sequence[StudyColumn]
    ) -> list[tuple[OutcomeAssumptions, float]]:
        """What each outcome is taken to be like, and its width."""
        s, names, found = self.setting, [column.name for column in columns], []
        for what, given in (("outcome_mean", s.outcome_mean), ("outcome_sd", s.outcome_sd)):
            known_names(what, given, names)
        for c in columns:
            mean = _usual_risk(c, columns) if c.two_valued else None
            found.append((s.assumptions(c.name, c.low, c.high, c.two_valued, mean), c.width))
        return found

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
    dist: FloatArray,
    by_level: FloatArray | float = 1.0,
    apart: FloatArray | float = 0.0,
) -> Margin:
    """A margin with the sums that are expected of arms and levels of these sizes.

    ``dist`` has means and variances of the columns; two arms are so far ``apart``.
    """
    sizes, (means, variances) = np.outer(by_arm, by_level), dist.T
    sides = np.linspace(0.5, -0.5, len(by_arm))[:, None, None] * apart
    own = means + sides
    each = sizes[..., None]
    return replace(margin, sizes=sizes, sums=each * own, squares=each * (variances + own**2))


# --- the plan -----------------------------------------------------------------------------------


def _planned(fit: StudyEffects, setting: PlanSetting) -> list[PlannedEffect]:
    """All effects of an expected study."""
    families: list[Any] = [("", fit), *((name, fit.by(name)) for name in fit.subgroups)]
    rows = []
    found: dict[Any, float] = {}  # effects with the same distribution
    for subgroup, family in families:
        ends = [family.conf_int(setting.conf_level, simultaneous=x) for x in (False, True)]
        unadjusted, together = ((x[:, 1] - x[:, 0]) / 2.0 for x in ends)
        for i, effect in enumerate(family.effects):
            label = family.labels[i] if subgroup else f"{family.labels[i]} | "
            term, _, level = label.rpartition(" | ")
            dist = (effect.laplace, effect.gaussian, effect.sampling, effect.parts, effect.possible)
            if (subgroup, dist) not in found:
                half = math.nan if fit.associated else float(together[i])
                found[subgroup, dist] = _detectable(effect, half, setting.power)
            rows.append(
                PlannedEffect(
                    term,
                    subgroup,
                    level,
                    math.sqrt(effect.noise_variance),
                    or_nan(std_error(effect)),
                    float(unadjusted[i]),
                    float(together[i]),
                    found[subgroup, dist],
                )
            )
    return rows


def _detectable(effect: Estimate, half_width: float, power: float) -> float:
    """The effect whose interval excludes 0 with this power, by the distribution of its error."""
    noise, error = math.sqrt(effect.noise_variance), or_nan(std_error(effect))
    variance = error**2 - 2.0 * math.fsum(x**2 for x in effect.laplace)
    dist = Rehearsed(
        noise, error, half_width, half_width, error, max(variance, 0.0), effect.laplace
    )
    largest = effect.possible[1] if effect.possible else math.inf
    return mde([dist], power, largest)


def _differences(fit: StudyEffects) -> list[PlannedDifference]:
    """Noise in the standardised differences of Table 1."""
    names = ("smd_noise_sd", "smd_weighted_noise_sd")
    return [
        PlannedDifference(row["variable"], row["level"], *(row.get(x, math.nan) for x in names))
        for row in fit.table1().to_dict("records")
    ]


def _medians(rows: Sequence[Any]) -> Any:
    """One row of several rehearsals: medians of numbers; texts are the same in all."""
    entries = zip(*(vars(row).values() for row in rows), strict=True)
    return type(rows[0])(*(x[0] if isinstance(x[0], str) else float(np.median(x)) for x in entries))


@checked_call
def plan_study(
    formula: str | Protocol,
    *,
    n: int,
    epsilon: float | None = None,
    delta: float = 0.0,
    bounds: Any = None,
    subgroups: str | Sequence[str] = (),
    design: str = "observational",
    outcome_mean: Mapping[str, float] | None = None,
    outcome_sd: Mapping[str, float] | None = None,
    treated_share: float | Mapping[str, float] | None = None,
    subgroup_shares: Mapping[str, Mapping[str, float]] | None = None,
    confounding: float | None = None,
    covariate_sd: float | Mapping[str, float] | None = None,
    conf_level: float = 0.95,
    power: float = 0.8,
    contrasts: str = "reference",
    budget_split: Mapping[str, float] | None = None,
    **options: Any,
) -> StudyPlan:
    r"""Predict the accuracy of every effect of a study, without touching data.

    Parameters
    ----------
    formula
        As in :func:`dp_study`, or the study's `Protocol`, which contains all other arguments but
        ``n`` and the expected figures.
    epsilon, subgroups, delta, bounds, design, contrasts, budget_split
        As in :func:`dp_study`. Every column needs declared bounds.
    n
        Number of records, or units, in the analysis.
    outcome_mean
        Expected mean of each outcome, by its name; by default the middle of its range. For a 0/1
        outcome it is the risk. If a mean is far from the middle, privacy noise in the arm sizes
        adds to the error.
    outcome_sd
        Expected standard deviation of each outcome within arms, by its name; by default a sixth of
        its range. An outcome with the range (0, 1) and no standard deviation is a 0/1 outcome.
    treated_share
        Proportion of treated records; by default arms are of the same size. For more than two arms
        it is a mapping of names to proportions.
    subgroup_shares
        Proportions of the levels of each factor, as in ``{"sex": {"female": 0.3}}``; levels that
        are not named have equal parts of the rest.
    confounding, covariate_sd
        As in :func:`plan`.
    conf_level, power
        Of the intervals, and for the minimum detectable effects (MDE).
    **options
        Options of the method; ``print(dpe.methods("study"))`` describes them.

    Returns
    -------
    StudyPlan

    Notes
    -----
    Half-widths are those of intervals whose released variances are as expected. Outcomes in all
    records are one family of simultaneous intervals, and all outcomes at all levels of a factor are
    another. How close plans are to real studies is in ``benchmarks/results/study.md``.

    Examples
    --------
    >>> import dpeffects as dpe
    >>> study = dpe.plan_study(
    ...     "pain + died ~ treatment", n=5000, epsilon=1, design="randomised",
    ...     bounds={"pain": (0, 100), "died": (0, 1)},
    ...     outcome_sd={"pain": 20}, outcome_mean={"died": 0.1},
    ... )
    >>> study.tidy()["half_width"].round(3).tolist()
    [1.323, 0.02]

    In a shell::

        dpeffects plan-study "pain + died ~ t | age" --n 5000 --epsilon 1 \
            --bounds bounds.toml --design randomised --outcome-sd pain=12 \
            --outcome-mean died=0.1
        dpeffects plan-study "pain + died ~ t" --n 5000 --epsilon 1 \
            --bounds bounds.toml --design randomised --half-width 0.05
        dpeffects plan-study protocol.toml --n 5000 --outcome-sd pain=12
    """
    given = dict(locals())
    if isinstance(formula, Protocol):
        said = {"epsilon": epsilon, "delta": delta, "bounds": bounds, "subgroups": subgroups}
        for name, value in (said | options).items():
            if value or (name == "delta" and value != 0.0):
                raise OptionError(f"{name} is given by the protocol: leave it out")
        del given["options"]
        return plan_study(**given | _asked(formula))
    if epsilon is None:
        raise OptionError(refusal("epsilon_missing_write"))
    refuse_several(epsilon, options, "call plan_study once for each")
    joined(subgroups, "subgroups", crossed=False)
    given["subgroups"] = (subgroups,) if isinstance(subgroups, str) else tuple(subgroups)
    for name in ("outcome_mean", "outcome_sd"):
        given[name] = _numbers(name, given[name])
    for name in ("subgroup_shares", "budget_split"):
        given[name] = _by_name(name, given[name])
    del given["formula"], given["bounds"]
    parsed, known = _columns(formula, given["subgroups"], bounds)
    setting = PlanSetting.checked(parsed, known, **given)
    planner = _Planner(setting)
    fits = planner.expected(n, setting.epsilon)
    known_names("subgroup_shares", setting.subgroup_shares, fits[0].subgroups)
    effects = zip(*(_planned(fit, setting) for fit in fits), strict=True)
    baseline = zip(*map(_differences, fits), strict=True)
    columns = fits[0].sums.outcomes
    dists = {
        x.name: y for x, (y, _) in zip(columns, planner.outcome_assumptions(columns), strict=True)
    }
    means = {name: dist.mean for name, dist in dists.items()}
    sds = {name: dist.sd for name, dist in dists.items() if not dist.two_valued}
    return StudyPlan(
        replace(setting, outcome_mean=means, outcome_sd=sds | dict(setting.outcome_sd)),
        tuple(map(_medians, effects)),
        tuple(map(_medians, baseline)),
        tuple((x.label, x.share, x.mechanism, x.epsilon, x.delta) for x in fits[0].charges),
        fits[0].identification,
        tuple(noise_cells(dict(tables_of(fits[0], conf_level)))),
    )


def _asked(protocol: Protocol) -> dict[str, Any]:
    """What a protocol says of a plan: who counts is in the number of records."""
    names = (
        "formula",
        "epsilon",
        "delta",
        "bounds",
        "subgroups",
        "design",
        "contrasts",
        "budget_split",
    )
    found = {name: getattr(protocol, name) for name in names} | dict(protocol.options)
    checks = protocol.check_bounds
    return found | ({} if checks is None else {"check_bounds": checks})


def _columns(formula: str, by: Sequence[str], bounds: Any) -> tuple[Formula, Bounds]:
    """The formula of a study, and the bounds of all columns."""
    parsed, _ = read_formula(formula, bounds, several=True)
    whole, given = read_formula(with_terms(parsed, by).source, bounds, several=True)
    known, _ = declared_bounds(whole.with_outcomes_as_columns(), given, several=True)
    return parsed, known


def _by_name(what: str, given: Any) -> Mapping[str, Any]:
    if given is not None and not isinstance(given, Mapping):
        raise OptionError(refusal("map_names_values", what=what, got=quoted(given)))
    return dict(given or {})


def _numbers(what: str, given: Any) -> dict[str, float]:
    for name, value in (found := _by_name(what, given)).items():
        if not is_number(value):
            raise OptionError(f"{what}[{name!r}] must be a number, got {quoted(value)}")
    return {name: float(value) for name, value in found.items()}
