"""What is planned, and what is assumed about the data that nobody has touched."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np

from dpeffects.arrays import FloatArray
from dpeffects.design.bounds import Bounds, skeleton
from dpeffects.design.codebook import EmptyDeclaration, opened
from dpeffects.design.design_builder import ends_in_formula, uses
from dpeffects.errors import (
    BoundsError,
    BudgetError,
    OptionError,
    did_you_mean,
    listed,
    quoted,
    refusal,
)
from dpeffects.estimators.option_checks import check_between, check_choice, check_whole, is_number
from dpeffects.formula import Formula, parse
from dpeffects.formula.expression import Column, Expression, Survival, source
from dpeffects.formula.ranges import range_of
from dpeffects.inference.hypotheses import Hypothesis
from dpeffects.inference.intervals import check_conf_level
from dpeffects.privacy.budget import Budget
from dpeffects.results.number_format import number
from dpeffects.results.wording import percent
from dpeffects.summary import Pairs

R2, R2_TWO_VALUED = 0.2, 0.05
"""Part of the outcome's variance that covariates explain, of a measure and of a risk. On the
bundled data it is 0.03 to 0.47, in the populations of the tests 0.01 to 0.05 for a risk."""
CONFOUNDING = 0.7
"""Standard deviation of the log odds of treatment, as of smoking in the births data."""
_FEW_COLUMNS = 6
"""Columns, after encoding, that these are typical of; more of them say more (`many`)."""
COVARIATE_SD, INDICATOR_SD = 0.17, 0.4
"""Of a typical covariate, in ranges, and of an indicator that one record in five has."""
TWO_ENDED = 0.3
"""A covariate that spreads more than this, which is more than evenly, has the two ends only."""
_MOST = 10_000_000
"""Records that can be planned for."""
_ASSUMPTIONS = [
    "treated_share",
    "outcome_mean",
    "outcome_sd",
    "subgroup_shares",
    "r2",
    "confounding",
    "covariate_sd",
]
"""Arguments for what the data are taken to be like."""
_COUNTING = ("unit", "max_rows", "cluster", "clusters", "missing", "weights", "subset")


class OutcomeAssumptions(NamedTuple):
    """What an outcome is taken to be like: its range, its mean, and its spread within arms.

    ``r2`` is the part of its variance that covariates explain.
    """

    low: float
    high: float
    mean: float
    sd: float
    two_valued: bool
    r2: float


@dataclass(frozen=True, kw_only=True)
class PlanSetting:
    """What is planned: the call, and what is assumed about the data.

    ``outcome_mean`` and ``outcome_sd`` have what is known of outcomes by their names; ``r2`` is
    None where it follows from the outcome; ``treated_share`` is None, and ``arm_shares`` empty,
    where arms are of the same size; ``covariate_sd`` has all numeric columns that are no outcomes,
    by name; ``repeats`` is None where it follows from the number of records. ``stated`` are the
    arguments that were given for these, with the name of an entry in brackets. ``null``,
    ``alternative`` and ``margin`` are those of a test, and ``effect`` is the one that its power is
    told for.
    """

    formula: str
    n: int
    epsilon: float
    delta: float
    bounds: Bounds
    design: str
    outcome_mean: Mapping[str, float]
    outcome_sd: Mapping[str, float]
    treated_share: float | None
    confounding: float
    covariate_sd: Mapping[str, float]
    conf_level: float
    power: float
    options: Mapping[str, Any]
    r2: float | None = None
    estimand: str = "ATE"
    repeats: int | None = None
    null: float = 0.0
    alternative: str = "two-sided"
    margin: float | None = None
    effect: float | None = None
    subgroups: tuple[str, ...] = ()
    arm_shares: Mapping[str, float] = field(default_factory=dict)
    subgroup_shares: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    contrasts: str = "reference"
    budget_split: Mapping[str, float] = field(default_factory=dict)
    stated: tuple[str, ...] = ()

    @classmethod
    def checked(cls, formula: Formula, bounds: Bounds, **given: Any) -> Self:
        """A setting whose budget, numbers and names make sense; arms may have shares by name."""
        Budget(given["epsilon"], given["delta"])
        check_whole("n", given["n"], 4, _MOST)
        check_choice("design", given["design"], ("observational", "randomised"))
        check_conf_level(given["conf_level"])
        check_part("power", given["power"])
        given["stated"] = tuple(
            f"{name}[{entry}]" if entry else name
            for name in _ASSUMPTIONS
            if (value := given.get(name)) is not None
            for entry in (value if isinstance(value, Mapping) else [""])
        )
        if isinstance(share := given["treated_share"], Mapping):
            given |= {"treated_share": None, "arm_shares": dict(share)}
        elif share is not None:
            check_part("treated_share", share)
            given["treated_share"] = float(share)
        given |= {name: float(given[name]) for name in ("epsilon", "delta", "conf_level", "power")}
        used = with_terms(formula, given.get("subgroups", ()))
        confounding = confounding_of(given["design"], given["confounding"], formula, bounds)
        spread = covariate_spread(used, bounds, given["covariate_sd"])
        given |= {"confounding": confounding, "covariate_sd": spread}
        return cls(formula=formula.source, bounds=bounds, **given)

    @cached_property
    def parsed(self) -> Formula:
        """The formula, read."""
        return parse(self.formula)

    @property
    def asked(self) -> Hypothesis:
        """The hypothesis whose test is planned."""
        return Hypothesis.asked(self.null, self.alternative, margin=self.margin)

    @property
    def assumed(self) -> float | None:
        """The effect that power is told for; with a margin by default ``null``, else none."""
        return self.null if self.effect is None and self.margin is not None else self.effect

    @property
    def test_level(self) -> float:
        """Level of the two-sided interval that the test looks at one or both ends of."""
        one_sided = self.asked.alternative != "two-sided"
        return 2.0 * self.conf_level - 1.0 if one_sided else self.conf_level

    @property
    def covariates(self) -> bool:
        """Whether the formula has any."""
        return self.parsed.has_covariates

    @property
    def confounded(self) -> bool:
        """Whether what is not adjusted for is assumed to differ between the arms."""
        return bool(self.covariates and self.confounding)

    def assumptions(
        self, name: str, low: float, high: float, two_valued: bool = False, mean: Any = None
    ) -> OutcomeAssumptions:
        """What an outcome is taken to be like, whose mean may be known where none was given."""
        mean, sd = self.outcome_mean.get(name, mean), self.outcome_sd.get(name)
        spread = outcome_spread(low, high, mean, sd, two_valued)
        r2 = explained(spread[2], self.parsed, self.bounds) if self.r2 is None else self.r2
        return OutcomeAssumptions(low, high, *spread, r2 if self.covariates else 0.0)

    def arms(self, names: Sequence[str]) -> FloatArray:
        """Shares of the arms, the treated before the controls where there are two."""
        share = self.treated_share
        if share is not None and len(names) > 2:
            raise OptionError(f"treated_share needs a proportion for each arm: {', '.join(names)}")
        if share is not None:
            return np.array([share, 1.0 - share])
        return shares_by_name("treated_share", self.arm_shares, names)

    def header(self) -> Pairs:
        """What is planned, and what is assumed, in words."""
        rows = {"Formula": self.formula, "Subgroups": ", ".join(self.subgroups)}
        rows["Budget"] = f"epsilon = {number(self.epsilon)}, delta = {number(self.delta)}"
        rows |= {"Records": f"{self.n:,}", "Design": self.design}
        said = tuple(self._assumed())
        rows["Stated"] = "; ".join(text for _, text, stated in said if stated)
        rows["Assumed, not stated"] = "; ".join(text for _, text, stated in said if not stated)
        if self.asked != Hypothesis.asked():
            level, shown = percent(1.0 - self.conf_level), self.asked.claim()
            rows["Test"] = f"{self.asked.name()}, at {level}; alternative hypothesis: {shown}"
        if self.assumed is not None:
            mark = "; assumed, not stated" if self.effect is None else ""
            rows["Effect"] = f"{number(self.assumed)} (the power is for this effect{mark})"
        return Pairs(tuple((name, said) for name, said in rows.items() if said))

    @property
    def unstated(self) -> str:
        """Arguments that a default was taken for, because they were not stated."""
        names = [name for name, _, stated in self._assumed() if not stated]
        names += ["effect"] * (self.effect is None and self.assumed is not None)
        return ", ".join(dict.fromkeys(names))

    def _assumed(self) -> Iterator[tuple[str, str, bool]]:
        """What the simulated records are like: the argument, in words, and was it stated?"""
        shares = self.arm_shares if self.treated_share is None else {"treated": self.treated_share}
        for name, share in shares.items():
            yield "treated_share", f"{100 * share:.3g} % {name}", True
        if self.treated_share is None and math.fsum(shares.values()) < 1.0 - 1e-6:
            yield "treated_share", f"{'other ' * bool(shares)}arms of the same size", False
        for what, given in (("outcome_mean", self.outcome_mean), ("outcome_sd", self.outcome_sd)):
            for name, x in given.items():
                risk = "mean" if name in self.outcome_sd else "risk"
                word = "SD" if what == "outcome_sd" else risk
                yield what, f"{word} of {name} {number(x)}", f"{what}[{name}]" in self.stated
        for name in self.subgroups:
            levels = self.subgroup_shares.get(name, {})
            for level, x in levels.items():
                yield "subgroup_shares", f"{100 * x:.3g} % {name} {level}", True
            if math.fsum(levels.values()) < 1.0 - 1e-6:
                other = "other " * bool(levels)
                yield "subgroup_shares", f"{other}levels of {name} equally frequent", False
        if not self.covariates:
            return
        kinds = sorted({name not in self.outcome_sd for name in self.outcome_mean})
        usual = [explained(two_valued, self.parsed, self.bounds) for two_valued in kinds]
        parts = [f"{100 * x:.3g} %" for x in (usual if self.r2 is None else [self.r2])]
        explain = f"covariates explain {', of a risk '.join(parts)} of the outcome variance (r2)"
        yield "r2", explain, "r2" in self.stated
        if self.design != "randomised":
            spread = f"SD of the logit of the propensity score {number(self.confounding)}"
            yield "confounding", f"{spread} (confounding)", "confounding" in self.stated
        told = {n for n in self.covariate_sd if f"covariate_sd[{n}]" in self.stated}
        if "covariate_sd" in self.stated:
            told = {n for n in self.covariate_sd if self.bounds.interval(n) != (0.0, 1.0)}
        for known in (True, False):
            own = {n: sd for n, sd in self.covariate_sd.items() if (n in told) is known}
            sds = ", ".join(f"{name} {number(sd)}" for name, sd in own.items())
            sds = number(next(iter(own.values()))) if len({*own.values()}) == 1 else sds
            if own:
                said = f"SD of covariates as a fraction of their range {sds} (covariate_sd)"
                yield "covariate_sd", said, known


def with_terms(formula: Formula, terms: Sequence[str]) -> Formula:
    """A formula with further covariates."""
    mark = "+" if formula.has_covariates else "|"
    return parse(f"{formula.source} {mark} {' + '.join(terms)}") if terms else formula


def refuse_several(epsilon: Any, options: Mapping[str, Any], instead: str) -> None:
    """Refuse several epsilons, with what to write, and arguments that say which records count."""
    if np.ndim(epsilon):
        raise BudgetError(f"plan takes one epsilon, such as epsilon=1; for several {instead}")
    for name in options:
        if name in _COUNTING:
            raise OptionError(refusal("plan_sample", name=name))


def check_part(name: str, value: Any) -> None:
    """Refuse what is no number between 0 and 1."""
    if not (is_number(value) and 0.0 < value < 1.0):
        raise OptionError(f"{name} must be between 0 and 1, got {value!r}")


def known_names(what: str, given: Mapping[str, Any], known: Sequence[str]) -> None:
    """Refuse names that are none of these."""
    for name in given:
        if name not in known:
            hint = did_you_mean(str(name), known)
            there = listed(known or ["no entry"], 50)
            raise OptionError(refusal("no_entry", what=what, name=name, known=there, hint=hint))


def shares_by_name(what: str, given: Any, names: Sequence[str]) -> FloatArray:
    """Shares that sum to 1; those that are not given have equal parts of the rest."""
    if not isinstance(given, Mapping):
        raise OptionError(f"{what} must map names to proportions, got {quoted(given)}")
    given = {str(name): share for name, share in given.items()}
    known_names(what, given, names)
    for share in given.values():
        if not (is_number(share) and 0.0 < share < 1.0):
            raise OptionError(f"{what} must have proportions between 0 and 1, got {share!r}")
    rest, left = 1.0 - math.fsum(given.values()), len(names) - len(given)
    if abs(rest) > 1e-6 if not left else rest <= 0.0:
        raise OptionError(f"{what} must have proportions that sum to 1")
    return np.array([given.get(name, rest / max(left, 1)) for name in names], float)


def read_formula(formula: str, bounds: Any, *, several: bool = False) -> tuple[Formula, Bounds]:
    """Read a formula, and the bounds of its columns; `.` stands for those declared by name."""
    given = opened(bounds)
    if isinstance(given, str):
        raise BoundsError('bounds="from_data" needs data, and a plan has none: declare bounds')
    given = given or {}
    parsed = parse(formula, [n for n, x in given.items() if not isinstance(x, EmptyDeclaration)])
    if isinstance(parsed.outcome, Survival):
        raise OptionError("plan is for average effects; for dp_survival use rehearse(...)")
    if parsed.more_outcomes and not several:
        raise OptionError("plan is for one outcome; for several use plan_study")
    there = [n for n in parsed.columns if n not in given]
    texts = [n for n in given if isinstance(n, str)]  # what is not is refused with all others
    used = {n for n in texts if n in parsed.columns or any(fnmatchcase(x, n) for x in there)}
    used |= given.keys() - texts
    bounds = {n: x for n, x in given.items() if n in used}
    needed = given.only(used) if isinstance(given, Bounds) else bounds  # what is whole stays so
    known = Bounds.of_columns(needed, parsed.columns)
    days = {name: replace(bound, since="") for name, bound in known.entries.items()}
    return parsed, replace(known, entries=days)


def declared_bounds(
    formula: Formula, known: Bounds, *, several: bool = False
) -> tuple[Bounds, bool]:
    """Bounds of the formula's columns, declared or in the formula; is the outcome 0 or 1 by them?

    An outcome with the levels 0 and 1, or two in words, has two values. One with the range (0, 1)
    may have.
    ``several``: there may be more than two arms.
    """
    name = formula.outcome.name if isinstance(formula.outcome, Column) else ""
    levels = known[name] if name in known and known.is_levels(name) else ()
    two_valued = set(levels) == {0, 1} or tuple(map(type, levels)) == (str, str)
    if two_valued:
        known = known.with_interval(name, 0.0, 1.0, source="declared", whole=True)
    known = known.as_used(uses(formula, {}))
    for name, levels in formula.levels.items():
        known = known.with_levels(name, levels, source="declared")
    for name in formula.columns:
        if name not in known and (ends := ends_in_formula(name, formula)):
            known = known.with_interval(name, *ends, source="declared")
    arm = formula.treatment_name
    if (arm,) != formula.treatment_columns:
        raise OptionError(refusal("plan_simulates_treatment", arm=arm))
    if arm in known and known.is_levels(arm) and len(known[arm]) > 2 and not several:
        raise OptionError(f"plan compares two arms: declare two of the levels of {arm!r}")
    missing = [n for n in formula.columns if n not in known and n != arm]
    if missing:
        raise BoundsError(
            f"a plan needs declared bounds for {', '.join(missing)}. Add{skeleton(missing, [])}"
        )
    return known, two_valued


def outcome_range(outcome: Expression, bounds: Bounds) -> tuple[float, float]:
    """The range of the outcome as the formula has it."""
    intervals = {n: bounds.interval(n) for n in bounds if not bounds.is_levels(n)}
    try:
        return range_of(outcome, intervals)
    except KeyError:
        raise BoundsError(refusal("outcome_needs_range", outcome=source(outcome))) from None


def outcome_spread(
    low: float, high: float, mean: Any, sd: Any, two_valued: bool
) -> tuple[float, float, bool]:
    """Mean and standard deviation of the outcome within arms, and whether it has two values.

    With the range (0, 1) and no standard deviation it has; and with the largest that a mean allows.
    """
    mean = (low + high) / 2.0 if mean is None else mean
    if not (is_number(mean) and low < mean < high):
        raise OptionError(f"outcome_mean must be between {low:g} and {high:g}, got {mean!r}")
    largest = math.sqrt((mean - low) * (high - mean))
    if two_valued or (sd is None and (low, high) == (0.0, 1.0)):
        if sd is not None:
            raise OptionError(refusal("outcome_sd_needed"))
        return float(mean), largest, True
    sd = min((high - low) / 6.0, 0.9 * largest) if sd is None else sd
    if not (is_number(sd) and 0.0 < sd <= 1.01 * largest):
        raise OptionError(refusal("outcome_sd", largest=largest, sd=sd))
    at_ends = sd >= 0.98 * largest and (low, high) == (0.0, 1.0)
    return float(mean), largest if at_ends else float(sd), at_ends


def covariate_spread(formula: Formula, bounds: Bounds, given: Any) -> dict[str, float]:
    """Standard deviation of each numeric covariate, in parts of its range."""
    names = [n for n in formula.covariate_columns if not bounds.is_levels(n)]
    by_name = given if isinstance(given, Mapping) else {}
    usual = COVARIATE_SD if given is None or by_name is given else given
    flags = {n: INDICATOR_SD for n in names if bounds.interval(n) == (0.0, 1.0)}
    found = {**dict.fromkeys(names, usual), **flags, **by_name}
    for name, own in found.items():
        if name not in names:
            raise OptionError(f"covariate_sd names {name!r}, which is not a covariate with a range")
        check_between("covariate_sd", own, 0.001, 0.5)
    check_between("covariate_sd", usual, 0.001, 0.5)
    return {name: float(own) for name, own in found.items()}


def many(formula: Formula, bounds: Bounds) -> float:
    """How many times the usual is what covariates say about treatment, where there are many.

    In a registry of intensive care the log odds spread by 0.8 and 0.9 with 12 columns, and by 1.4
    with 63; the covariates explain 8, 11 and 20 % of the variance of a risk.
    """
    names = formula.covariate_columns
    columns = sum(len(bounds[n]) - 1 if bounds.is_levels(n) else 1 for n in names)
    return max(1.0, columns / _FEW_COLUMNS) ** 0.25


def explained(two_valued: bool, formula: Formula, bounds: Bounds) -> float:
    """Part of an outcome's variance within arms that the covariates explain."""
    return R2_TWO_VALUED * many(formula, bounds) ** 2 if two_valued else R2


def confounding_of(design_: str, given: Any, formula: Formula, bounds: Bounds) -> float:
    """How strongly treatment goes with the covariates: not at all in a trial."""
    if design_ == "randomised":
        if given:
            raise OptionError('design="randomised" has no confounding: leave confounding out')
        return 0.0
    value = CONFOUNDING * many(formula, bounds) if given is None else given
    check_between("confounding", value, 0.0, 10.0)
    return float(value) if formula.has_covariates else 0.0
