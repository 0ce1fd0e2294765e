"""A plan of a study: what every interval will be like, from public numbers alone.

The study is rehearsed on made-up records, so that the budget is divided, and noise chosen, as it
will be. In the place of the rehearsed sums come the expected ones (`expected`); standard errors,
intervals and all else then follow by the code that makes them of released sums.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dpeffects.abilities.study import StudyEffects
from dpeffects.design.bounds import Bounds
from dpeffects.errors import OptionError, checked_call
from dpeffects.estimators._checks import is_number
from dpeffects.formula import Formula
from dpeffects.formula.discrete import joined
from dpeffects.formula.expression import Number
from dpeffects.inference.estimate import Estimate
from dpeffects.inference.intervals import check_conf_level, std_error
from dpeffects.planning.expected import Planner
from dpeffects.planning.inverse import needed
from dpeffects.planning.rehearsal import Planned, Rehearsed, detectable
from dpeffects.planning.setting import (
    StudySetting,
    check_part,
    declared_bounds,
    known_names,
    read_formula,
    refuse_several,
)
from dpeffects.protocols import Protocol
from dpeffects.results.export import JsonRecord, frame_of, or_nan
from dpeffects.summary import Shown, noise_cells

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class PlannedEffect:
    """What to expect of one effect.

    ``single`` is the half-width of the interval for it alone, ``half_width`` that of the one which
    holds for all of its family at once: the outcomes on all records, or by all levels of a factor.
    """

    term: str
    subgroup: str
    level: str
    noise_sd: float
    std_error: float
    single: float
    half_width: float
    detectable: float


@dataclass(frozen=True)
class PlannedDifference:
    """Noise in a standardised difference of Table 1, before and after weighting; NaN for none."""

    variable: str
    level: str
    noise_sd: float
    weighted_noise_sd: float


@dataclass(frozen=True)
class StudyPlan(Shown, JsonRecord, words="about_plans"):
    """The expected accuracy of every effect of a study; print it, or ask it for the inverse.

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
    basis
        What will entitle differences to be called effects.
    noise
        Cells of the study's tables that will say "noise" in the place of a number.
    """

    setting: StudySetting
    effects: tuple[PlannedEffect, ...]
    baseline: tuple[PlannedDifference, ...]
    releases: tuple[tuple[str, str, str, float, float], ...]
    basis: str
    noise: tuple[str, ...] = ()

    def tidy(self) -> pd.DataFrame:
        """One row for each effect; ``subgroup`` and ``level`` are empty for all records.

        ``noise_sd`` is the standard deviation of the privacy noise, ``half_width`` that of the
        interval that holds for the whole family at once, ``single`` that of the one for this effect
        alone, ``detectable`` the smallest effect whose interval (for the family) excludes 0 with
        the wanted power: NaN where there is no test, because nothing is adjusted for.
        """
        return frame_of([vars(x) for x in self.effects])

    def baseline_frame(self) -> pd.DataFrame:
        """Noise in the standardised differences of Table 1, one row each."""
        return frame_of(
            [vars(x) for x in self.baseline], [f.name for f in fields(PlannedDifference)]
        )

    def shares_frame(self) -> pd.DataFrame:
        """What is released, with which noise, and at what price."""
        names = ["release", "share", "noise", "epsilon", "delta"]
        return frame_of([dict(zip(names, x, strict=True)) for x in self.releases], names)

    def needed(
        self, half_width: float | Mapping[str, float], *, of: str = "epsilon"
    ) -> pd.DataFrame:
        """Return the epsilon (or, with ``of="n"``, the records) for a wanted half-width.

        It is that of the intervals that hold for all outcomes at once, on all records; a mapping
        has one for each outcome that matters. NaN where no value up to 1,000 (or 10^8 records, by
        extrapolation) reaches it; the column reason says what stands in the way.
        """
        terms = [x.term for x in self.effects if not x.subgroup]
        wanted = half_width if isinstance(half_width, Mapping) else dict.fromkeys(terms, half_width)
        known_names("half_width", wanted, terms)
        planner = Planner(self.setting)

        def of_term(term: str) -> Callable[[float], Planned]:
            return partial(_at, planner, terms.index(term), of)

        return needed(self.setting, "term", wanted, of, of_term)

    __repr__ = Shown.__str__


def _at(planner: Planner, index: int, of: str, value: float) -> Planned:
    """The half-width with another epsilon or n, of the interval for all outcomes at once."""
    s = planner.setting
    n, epsilon = (round(value), s.epsilon) if of == "n" else (s.n, value)
    halves = []
    for fit in planner.expected(n, epsilon):
        each = 1.0 - (1.0 - s.conf_level) / len(fit.effects)
        one = replace(fit, labels=fit.labels[:1], effects=fit.effects[index : index + 1])
        low, high = one.conf_int(each)[0]
        halves.append((high - low) / 2.0)
    return Planned("study", half_width=float(np.median(halves)))


def _planned(fit: StudyEffects, setting: StudySetting) -> list[PlannedEffect]:
    """All effects of an expected study."""
    families: list[Any] = [("", fit), *((name, fit.by(name)) for name in fit.subgroups)]
    rows = []
    found: dict[Any, float] = {}  # effects with the same law
    for subgroup, family in families:
        ends = [family.conf_int(setting.conf_level, simultaneous=x) for x in (False, True)]
        single, together = ((x[:, 1] - x[:, 0]) / 2.0 for x in ends)
        for i, effect in enumerate(family.effects):
            label = family.labels[i] if subgroup else f"{family.labels[i]} | "
            term, _, level = label.rpartition(" | ")
            law = (effect.laplace, effect.gaussian, effect.sampling, effect.parts, effect.possible)
            if (subgroup, law) not in found:
                half = math.nan if fit.associated else float(together[i])
                found[subgroup, law] = _detectable(effect, half, setting.power)
            rows.append(
                PlannedEffect(
                    term,
                    subgroup,
                    level,
                    math.sqrt(effect.noise_variance),
                    or_nan(std_error(effect)),
                    float(single[i]),
                    float(together[i]),
                    found[subgroup, law],
                )
            )
    return rows


def _detectable(effect: Estimate, half_width: float, power: float) -> float:
    """The effect whose interval excludes 0 with this chance; errors have the law of an effect."""
    noise, error = math.sqrt(effect.noise_variance), or_nan(std_error(effect))
    variance = error**2 - 2.0 * math.fsum(x**2 for x in effect.laplace)
    law = Rehearsed(noise, error, half_width, half_width, error, max(variance, 0.0), effect.laplace)
    largest = effect.possible[1] if effect.possible else math.inf
    return detectable([law], power, largest)


def _differences(fit: StudyEffects) -> list[PlannedDifference]:
    """Noise in the standardised differences of Table 1."""
    found = []
    for row in fit.table1().to_dict("records"):
        noise = [row.get(name, math.nan) for name in ("smd_noise_sd", "smd_weighted_noise_sd")]
        found.append(PlannedDifference(row["variable"], row["level"], *noise))
    return found


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
    share_treated: float | Mapping[str, float] | None = None,
    subgroup_shares: Mapping[str, Mapping[str, float]] | None = None,
    confounding: float | None = None,
    covariate_sd: float | Mapping[str, float] | None = None,
    conf_level: float = 0.95,
    power: float = 0.8,
    contrasts: str = "reference",
    shares: Mapping[str, float] | None = None,
    **options: Any,
) -> StudyPlan:
    """Predict every interval of a study, without touching data.

    Parameters
    ----------
    formula
        As in :func:`dp_study`, or the study's `Protocol`, which says all that follows but ``n`` and
        what is expected.
    epsilon, subgroups, delta, bounds, design, contrasts, shares
        As in :func:`dp_study`. Every column needs declared bounds.
    n
        Number of records, or of units, that count.
    outcome_mean
        A guess of the mean of each outcome, by its name; by default the middle of its range. Of an
        outcome with two values it is the risk. A mean far from the middle makes noise in the sizes
        of the arms count.
    outcome_sd
        A guess of the standard deviation of each outcome within arms, by its name; by default a
        sixth of its range. An outcome with the range (0, 1) and no standard deviation has the two
        values 0 and 1.
    share_treated
        Share of treated records; by default arms are of the same size. Of more than two arms it is
        a mapping of names to shares.
    subgroup_shares
        Shares of the levels of each factor, as in ``{"sex": {"female": 0.3}}``; levels that are not
        named have equal parts of the rest.
    confounding, covariate_sd
        As in :func:`plan`.
    conf_level, power
        Of the intervals, and for the smallest detectable effects.
    **options
        Options of the method; ``print(dpe.methods("study"))`` describes them.

    Returns
    -------
    StudyPlan

    Notes
    -----
    Widths are those of intervals around estimates whose variances come out as expected. Outcomes
    are one family, and so are all outcomes at all levels of a factor. How near plans come to
    studies is in ``benchmarks/results/study.md``.

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
    """
    given = dict(locals())
    if isinstance(formula, Protocol):
        said = {"epsilon": epsilon, "delta": delta, "bounds": bounds, "subgroups": subgroups}
        for name, value in (said | options).items():
            if value or (name == "delta" and value != 0.0):
                raise OptionError(f"{name} is what the protocol says: leave it out")
        del given["options"]
        return plan_study(**given | _asked(formula))
    if epsilon is None:
        raise OptionError("epsilon must be given: the whole price of the study")
    refuse_several(epsilon, options, "call plan_study once for each")
    check_conf_level(conf_level)
    check_part("power", power)
    by_arm = dict(share_treated) if isinstance(share_treated, Mapping) else {}
    share = None if isinstance(share_treated, Mapping) else share_treated
    if share is not None:
        check_part("share_treated", share)
    joined(subgroups, "subgroups", crossed=False)
    by = (subgroups,) if isinstance(subgroups, str) else tuple(subgroups)
    parsed, used, known_bounds = _columns(formula, by, bounds)
    given |= {"subgroups": by, "share_treated": share, "arm_shares": by_arm}
    for name in ("outcome_mean", "outcome_sd"):
        given[name] = _numbers(name, given[name])
    given["subgroup_shares"] = _by_name("subgroup_shares", subgroup_shares)
    given["shares"] = dict(shares or {})
    del given["formula"], given["bounds"]
    setting = StudySetting.checked(parsed, known_bounds, used=used, **given)
    fits = Planner(setting).expected(n, setting.epsilon)
    known_names("subgroup_shares", setting.subgroup_shares, fits[0].subgroups)
    effects = zip(*(_planned(fit, setting) for fit in fits), strict=True)
    baseline = zip(*map(_differences, fits), strict=True)
    return StudyPlan(
        setting,
        tuple(map(_medians, effects)),
        tuple(map(_medians, baseline)),
        tuple((x.label, x.share, x.mechanism, x.epsilon, x.delta) for x in fits[0].spends),
        fits[0].stands_on,
        tuple(noise_cells(fits[0].tables(conf_level))),
    )


def _asked(protocol: Protocol) -> dict[str, Any]:
    """What a protocol says of a plan: who counts is in the number of records."""
    names = ("formula", "epsilon", "delta", "bounds", "subgroups", "design", "contrasts", "shares")
    found = {name: getattr(protocol, name) for name in names} | dict(protocol.options)
    checks = protocol.check_bounds
    return found | ({} if checks is None else {"check_bounds": checks})


def _columns(formula: str, by: Sequence[str], bounds: Any) -> tuple[Formula, Formula, Bounds]:
    """The formula of a study, that of all but its outcomes, and the bounds of all columns."""
    parsed, _ = read_formula(formula, bounds, several=True)
    text = " + ".join(by)
    joined = f"{parsed.source} {'+' if parsed.has_covariates else '|'} {text}" if text else formula
    whole, given = read_formula(joined, bounds, several=True)
    known, _ = declared_bounds(whole.with_outcomes_as_columns(), given, several=True)
    return parsed, replace(whole, outcome=Number(0.0), more_outcomes=()), known


def _by_name(what: str, given: Any) -> Mapping[str, Any]:
    if given is not None and not isinstance(given, Mapping):
        raise OptionError(f"{what} must be a mapping of names, got {given!r}")
    return dict(given or {})


def _numbers(what: str, given: Any) -> dict[str, float]:
    for name, value in (found := _by_name(what, given)).items():
        if not is_number(value):
            raise OptionError(f"{what}[{name!r}] must be a number, got {value!r}")
    return {name: float(value) for name, value in found.items()}
