"""`dp_late`: the effect of a treatment among compliers, by an instrument.

The instrument z takes the place of the treatment, and whatever the default method does (`auto`) is
done twice, on the same rows with another outcome each time:

1. The effect of z on treatment d: the first stage. Its price is small, as what noise in it does to
   the result is multiplied by how far step 2 misses.
2. A pilot: one sum of outcomes, with the weights of step 1. Over the first stage it gives an effect
   among compliers, tau_0, that is about right.
3. The effect of z on y - tau_0 d, with most of the budget: it is small, and what it is over the
   first stage corrects tau_0.
4. The covariance of the two, by the product of what a record adds to either. It says how errors
   of both go together in intervals that reach far from tau_0.

`dpeffects.inference.compliers` has the interval.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Unpack

import numpy as np

from dpeffects.arrays import FloatArray, Interval
from dpeffects.calls import OfSplits, OfUnits, public_call, released
from dpeffects.errors import FormulaError, OptionError, refusal
from dpeffects.estimands import LATE
from dpeffects.estimators import constants as hand
from dpeffects.estimators.arm_sums import ArmLookup
from dpeffects.estimators.arm_tables import table_spec
from dpeffects.estimators.default import clipped_contrast, one_step
from dpeffects.estimators.default.arm_summaries import clipped_term, residual
from dpeffects.estimators.default.auto import AutoOptions
from dpeffects.estimators.default.clipped_contrast import ClippedContrastOptions, StudyOptions
from dpeffects.estimators.default.one_step import OneStepOptions
from dpeffects.estimators.option_checks import check_column, checked
from dpeffects.estimators.row_functions import row
from dpeffects.estimators.spec import MethodSpec, Options, PublicInfo
from dpeffects.formula import Formula, parse
from dpeffects.formula import expression as ex
from dpeffects.inference import intervals, scales
from dpeffects.inference.compliers import STRONG, Wald
from dpeffects.inference.estimate import Estimate, Influence, Unavailable
from dpeffects.privacy import Block, Box, Budget, Curator, Share, Split
from dpeffects.privacy.units import with_outcome
from dpeffects.results.export import or_nan
from dpeffects.results.number_format import to_error
from dpeffects.results.table_results import TableEffects, TableRelease, Term
from dpeffects.results.wording import p_words, percent, said, with_limits
from dpeffects.summary import NAMED

_SHARES = {"pilot": 0.05, "first_stage": 0.18, "effect": 0.75, "covariance": 0.02}
"""Split of the budget where the instrument was randomised,"""
_ADJUSTED = {"pilot": 0.1, "first_stage": 0.28, "effect": 0.6, "covariance": 0.02}
"""and where covariates are adjusted for, which makes the first stage dearer."""
_SAID = said("late")


Plan = tuple[MethodSpec, Options, PublicInfo]
"""How an effect of the instrument is estimated."""


@dataclass(frozen=True)
class LateOptions(StudyOptions):
    """``instrument``: the column of the instrument, 0 or 1; ``design``: "observational" where the
    instrument is as good as random given the covariates of the formula, "randomised" where it was
    randomised; ``on_unadjusted``: "warn", or "error" to refuse, before anything is charged, a
    result that cannot be adjusted for the covariates.
    """

    instrument: str = checked("", check_column)

    def of_formula(self, written: Formula) -> Formula:
        """The instrument in the place of the treatment, which becomes a part of the outcome."""
        if not self.instrument.strip():
            raise OptionError('the instrument is missing: write instrument="z"')
        outcome, taken = self.of_outcome(written.outcome), written.treatment
        if isinstance(taken, ex.Categorical | ex.Cut) or not (
            isinstance(taken, ex.Column) or ex.is_binary(taken)
        ):
            raise OptionError(refusal("late_treatment", treatment=ex.shown(taken)))
        if self.instrument in written.columns:
            raise OptionError(refusal("instrument_also_formula", instrument=self.instrument))
        return replace(
            written, outcome=ex.WithTreatment(outcome, taken), treatment=ex.Column(self.instrument)
        )

    def resolve(self, facts: PublicInfo) -> Options:
        """Keep the facts that plans are made by."""
        if facts.arms > 2:
            raise OptionError(refusal("instrument_two_levels"))
        return self.made_for(facts)

    @property
    def study(self) -> str:
        """The design: without covariates nothing is adjusted for, and nothing is to be."""
        plain = self.facts is not None and not self.facts.columns
        return "randomised" if plain else self.design

    def facts_of(self, price: Share, values: int) -> PublicInfo:
        """The facts of an analysis with this price, of an outcome with so many values."""
        own = (*self.facts.values[:-1], values)
        # a hair less than the share, so that rounding never makes it more
        budget = Budget(price.epsilon * (1.0 - 1e-12), price.delta * (1.0 - 1e-12))
        # grouped: what each row adds to both analyses is needed for their covariance
        known = {"tops": (), "indicator": False, "grouped": True}
        return replace(self.facts, budget=budget, values=own, **known)

    def of_residual(self, price: Share) -> Plan:
        """How the effect on the residual is estimated: as the default does, by sums over rows."""
        facts = replace(self.facts_of(price, 2 if self.facts.two_valued else 0), grouped=True)
        chosen = AutoOptions(self.study, self.on_unadjusted).resolve(facts)
        return chosen.method, chosen.own, facts

    def of_first(self, price: Share, method: MethodSpec) -> Plan:
        """How the first stage is estimated: adjusted, where the effect on the residual is."""
        facts = self.facts_of(price, 2)
        if self.study == "randomised":
            chosen = AutoOptions(self.study).resolve(facts)
            return chosen.method, chosen.own, facts
        if method is one_step.SPEC:
            return method, one_step.planned(OneStepOptions(self.study), facts)[0], facts
        plain = ClippedContrastOptions(self.study)
        return clipped_contrast.SPEC, clipped_contrast.planned(plain, facts)[0], facts

    def check_split(self, facts: PublicInfo, shares: Mapping[str, Share]) -> None:
        """Refuse what cannot be adjusted, where that was asked for."""
        method, _, _ = self.of_residual(shares["effect"])
        self.of_first(shares["first_stage"], method)


def budget_split(level: str, options: LateOptions) -> dict[str, float]:
    """Split of the budget: most of it for the effect on the residual."""
    return dict(_SHARES if options.study == "randomised" else _ADJUSTED)


def uses_delta(options: Any, facts: PublicInfo) -> dict[str, float | None]:
    """Both analyses can use a delta, which they divide by themselves."""
    return dict.fromkeys(("first_stage", "effect"))


@dataclass(frozen=True)
class OutcomeMinusTreatment:
    """The outcome less a multiple of the treatment: a row function of both as one number."""

    ends: Interval
    factor: float
    own: float = 1.0
    reads: tuple[str, ...] = field(default=("outcome",), init=False)

    def __call__(self, rows: Block) -> FloatArray:
        """Values of some rows."""
        first, taken = ex.WithTreatment.apart(rows.outcome)
        low, high = self.ends
        return self.own * (low + (high - low) * first) - self.factor * taken

    @property
    def range(self) -> Interval:
        """What it lies in."""
        low, high = (self.own * end for end in self.ends)
        return low - max(self.factor, 0.0), high - min(self.factor, 0.0)


TAKEN = OutcomeMinusTreatment((0.0, 1.0), -1.0, 0.0)
"""Whether treatment was taken."""


@dataclass(frozen=True, eq=False)
class WeightedOutcome:
    """What a record adds to a sum of an outcome, over the largest that it can be."""

    outcome: OutcomeMinusTreatment
    term: Any
    largest: float
    mean: float = 0.0

    @classmethod
    def of(cls, outcome: OutcomeMinusTreatment, influence: Influence) -> WeightedOutcome:
        """What a record adds to an estimate, from the mean."""
        largest = max(abs(influence.low), abs(influence.high)) + abs(influence.mean)
        return cls(outcome, influence.term, largest, influence.mean)

    @property
    def reads(self) -> tuple[str, ...]:
        """What outcome and term read."""
        return tuple(dict.fromkeys(("outcome", *self.term.reads)))

    def __call__(self, rows: Block) -> FloatArray:
        """Values of some rows, within [-1, 1]."""
        seen = replace(rows, outcome=np.clip(self.outcome(rows), *self.outcome.range))
        return np.asarray((self.term(seen.only(self.term.reads)) - self.mean) / self.largest)


@row()
def product(rows: Block, one: WeightedOutcome, other: WeightedOutcome) -> FloatArray:
    """What a record adds to two estimates, each less its mean and over the largest: the product."""
    return one(rows) * other(rows)


def fit(curator: Curator, options: LateOptions, estimand: str) -> TableRelease:
    """Release the first stage, a pilot, the effect on the residual, and their covariance."""
    plan = options.of_residual(_price(curator, "effect"))
    of_first = options.of_first(_price(curator, "first_stage"), plan[0])
    first, by_taken = _fitted(curator, TAKEN, "first stage", of_first)
    ends = options.facts.tops[0], options.facts.tops[1]
    start = _pilot(curator, ends, first, by_taken)
    outcome = OutcomeMinusTreatment(ends, start)
    residual, by_outcome = _fitted(curator, outcome, "effect", plan)
    one, other = WeightedOutcome.of(outcome, by_outcome), WeightedOutcome.of(TAKEN, by_taken)
    largest = one.largest * other.largest / curator.n**2
    both = product(one, other)
    noisy = curator.sums("products of residuals", both, Box(-1.0, 1.0), share="covariance")
    width = ends[1] - ends[0]
    table = Wald(
        replace(residual, details={}, notes=(), warnings="", means=None),
        replace(first, details={}, notes=(), warnings=""),
        float(noisy) * largest,
        noisy.scale * largest,
        start,
        (-width, width),
    )
    made = {
        "arm_table": table,
        "instrument": options.instrument,
        "identification": residual.identification,
        "method_warnings": residual.warnings,
    }
    return TableRelease(LateEffect, made, details=residual.details)


def _price(curator: Curator, share: str) -> Share:
    return Share(curator.epsilon(share), curator.delta(share))


def _fitted(
    curator: Curator, outcome: OutcomeMinusTreatment, name: str, plan: Plan
) -> tuple[Estimate, Influence]:
    """Estimate the effect of the instrument on an outcome, and how it adds up over rows."""
    method, options, facts = plan
    shares, able = method.budget_split(facts.level, options), method.uses_delta(options, facts)
    split = Split.of(facts.budget, shares, able)
    seen = with_outcome(curator, outcome, outcome.range, facts.values[-1], split, name)
    found: Estimate = method.fit(seen, options, "ATE")
    assert found.influence is not None
    return replace(found, influence=None), found.influence


def _pilot(curator: Curator, ends: Interval, first: Estimate, influence: Influence) -> float:
    """An effect among compliers that is about right, pulled to 0 by what is not known of it."""
    middle, half = sum(ends) / 2.0, (ends[1] - ends[0]) / 2.0
    weight = influence.term.given["weight"]
    if isinstance(weight, ArmLookup):
        reach = float(np.abs(weight.numbers).max())
    else:
        reach = float(weight.given["largest"].numbers.max()) / weight.given["mass"]
    flat = clipped_term(residual(np.full(2, middle)), weight, half)
    row = WeightedOutcome(OutcomeMinusTreatment(ends, 0.0), flat, half * reach)
    sums = curator.sums("weighted outcomes", row, Box(-1.0, 1.0), share="pilot")
    unit = reach / 2.0 / curator.n  # in ranges of the outcome
    noise = (unit * sums.sd) ** 2 + reach**2 / (16.0 * curator.n)
    least = first.noise_variance + first.bias_variance + 1.0 / curator.n
    found = unit * float(sums) * first.value
    found /= first.value**2 + least + noise / hand.EFFECT_SD**2
    return 2.0 * half * min(max(found, -1.0), 1.0)


TABLE = table_spec(
    name="late",
    estimands=(LATE.name,),
    levels=("sample",),
    options=LateOptions,
    budget_split=budget_split,
    fit=fit,
    uses_delta=uses_delta,
    **_SAID["spec"],
)


class _OfCompliers:
    """The effect among compliers, with the confidence set of Fieller's method."""

    arm_table: Wald

    @property
    def estimate(self) -> float:
        """The effect among compliers, within the declared range."""
        return self.arm_table.value

    @property
    def std_error(self) -> float | Unavailable:
        """Its standard error by the delta method; the confidence interval does not use it."""
        return self.arm_table.std_error

    def conf_int(self, conf_level: float = 0.95) -> intervals.Interval:
        """From the lowest to the highest effect in the confidence set; see `region`."""
        pieces = self.arm_table.region(conf_level)
        return intervals.Interval(pieces[0].lower, pieces[-1].upper, conf_level)


@dataclass(frozen=True)
class LateTerm(_OfCompliers, Term):
    """The effect among compliers among other terms."""

    arm_table: Wald = field(kw_only=True)

    @property
    def p_value(self) -> float | Unavailable:
        """P-value of no effect among compliers, by the test that the confidence set inverts."""
        return (
            Unavailable(intervals.NO_TEST) if self.released.associated else self.arm_table.no_effect
        )


@dataclass(frozen=True, repr=False, kw_only=True)
class LateEffect(_OfCompliers, TableEffects):  # type: ignore[misc]
    """The effect among compliers (LATE, CACE), from two released effects of an instrument.

    Parameters
    ----------
    arm_table
        The effect of the instrument on the outcome minus a multiple of treatment, its effect on
        treatment (first stage), and their errors.
    instrument
        The column of the instrument.

    Examples
    --------
    >>> import dpeffects as dpe
    >>> import numpy as np, pandas as pd
    >>> z = np.arange(4000) % 2
    >>> d = z * (np.arange(4000) % 5 < 3)
    >>> data = pd.DataFrame({"z": z, "d": d, "y": 0.2 + 0.5 * d})
    >>> fit = dpe.dp_late("y ~ d", data, instrument="z", bounds={"y": (0, 1)}, epsilon=4, seed=1)
    >>> fit.tidy()["term"].tolist()
    ['late', 'first_stage', 'reduced_form', 'always_takers', 'never_takers']
    """

    arm_table: Wald  # type: ignore[assignment]
    instrument: str = ""

    @cached_property
    def p_value(self) -> float | Unavailable:
        """P-value of no effect among compliers, consistent with `conf_int`."""
        return self.terms()[0].p_value

    def region(self, conf_level: float = 0.95) -> tuple[intervals.Interval, ...]:
        """The confidence set by Fieller's method, as one interval or two."""
        return self.arm_table.region(conf_level)

    def shape(self, conf_level: float = 0.95) -> str:
        """The shape of the confidence set: "interval", "half", "outside" or "everything".

        "half" is bounded by the data on one side only; "outside" consists of two intervals, with
        the effects between them rejected; "everything" is the whole declared range, as happens
        with a weak instrument.
        """
        pieces, (low, high) = self.region(conf_level), self.arm_table.possible
        open_ends = (pieces[0].lower <= low) + (pieces[-1].upper >= high)
        if len(pieces) > 1:
            return "outside"
        return ("interval", "half", "everything")[open_ends]

    def terms(self) -> Sequence[Term]:
        """LATE, first stage, reduced form, and shares of always-takers and never-takers."""
        table, based = self.arm_table, self._based
        reduced = based(table.at(0.0))
        found = [
            LateTerm("late", reduced, arm_table=table),
            Term("first_stage", based(table.first)),
            Term("reduced_form", reduced),
        ]
        if (means := table.first.means) is not None:
            always = scales.of_mean(means, treated=False)
            never = replace(means.combined(-1.0, 0.0), possible=(0.0, 1.0))
            never = replace(never, value=1.0 + never.value)
            found += [
                Term("always_takers", based(always), tested=False),
                Term("never_takers", based(never), tested=False),
            ]
        return found

    @property
    def estimate_warnings(self) -> str:
        """Warnings about the estimates; empty where there are none."""
        weak = _SAID["weak"] if self.arm_table.weak else ""
        return "; ".join(filter(None, (super().estimate_warnings, weak)))

    def __repr__(self) -> str:
        return self._head(f"of {self.treatment} on {self.outcome}, by {self.instrument}")

    def _in_words(self, term: str) -> str:
        return str(_SAID["terms"].get(term, super()._in_words(term)))

    def _after(self, place: str) -> str:
        among = " among compliers"
        by = f"{among}, with the instrument {self.instrument}"
        return {"title": by, "paragraph": among}.get(place, "")

    def _headed(self, conf_level: float) -> dict[str, str]:
        words = _SAID[self.shape(conf_level)]
        found = {
            "Assumes": self._assumptions(),
            "First stage": self._first_stage(conf_level),
            "Confidence set": f"{self._pieces(conf_level)} (Fieller). {words}" if words else "",
        }
        return {name: text for name, text in found.items() if text}

    def _findings(self, conf_level: float) -> list[str]:
        p, level = self.p_value, percent(conf_level)
        tested = "" if isinstance(p, Unavailable) else f"; p {p_words(p)}"
        return [
            f"It assumes that {self._assumptions()}.",
            _SAID["stage"].format(self, self._first_stage(conf_level)),
            _SAID["found"].format(self._cells()[0], level, self._pieces(conf_level), tested),
            _SAID[self.shape(conf_level)],
        ]

    def _assumptions(self) -> str:
        """The assumptions that identify the effect among compliers."""
        by_chance = self.options.get("design") == "randomised"
        how = "was randomised" if by_chance else f"is as good as random{self._given()}"
        return str(_SAID["assumptions"].format(self, how))

    def _given(self) -> str:
        """The covariates given which the instrument is as good as random."""
        try:
            terms = [":".join(map(ex.source, term)) for term in parse(self.formula).terms]
        except FormulaError:  # a result that was read may hold any text
            terms = []
        if not terms:
            return ""
        if len(terms) > NAMED:
            return f" given the {len(terms)} covariates"
        return f" given {' and '.join(filter(None, (', '.join(terms[:-1]), terms[-1])))}"

    def _first_stage(self, conf_level: float) -> str:
        """How strongly the instrument changes treatment, in words."""
        strength = self.arm_table.strength
        if isinstance(strength, Unavailable):
            return str(strength)
        row = self.terms()[1].row(conf_level)
        how = "WEAK: F statistic" if self.arm_table.weak else "F statistic"
        asked = f" (at least {STRONG**2:.0f} is needed)" if self.arm_table.weak else ""
        size = f"{strength**2:.0f}" if 10.0 <= strength**2 < 1e6 else f"{strength**2:.2g}"
        return f"{with_limits(row)}; {how} about {size}{asked}"

    def _pieces(self, conf_level: float) -> str:
        """The interval, piece by piece."""
        ends = [end for piece in self.region(conf_level) for end in piece]
        _, *texts = self._cells(ends)
        pairs = zip(texts[::2], texts[1::2], strict=True)
        return " and ".join(f"{low} to {high}" for low, high in pairs)

    def _cells(self, ends: Sequence[float] = ()) -> tuple[str, ...]:
        return to_error((self.estimate,), or_nan(self.std_error), ends=ends)


class _OfLate(OfUnits, OfSplits, total=False):
    design: str
    on_unadjusted: str


@public_call(_OfLate, method="late", plot="draw the terms", design={"help": "of the instrument"})
def dp_late(
    formula: str, data: Any, *, instrument: str, epsilon: float, **more: Unpack[_OfLate]
) -> LateEffect:
    r"""Estimate the effect among compliers (LATE, CACE) with an instrumental variable.

    Compliers take the treatment if the instrument is 1 and not if it is 0: they follow their
    assignment or encouragement. The estimate is the Wald ratio: the effect of the instrument on the
    outcome (reduced form) divided by its effect on treatment (first stage). It assumes that the
    instrument is as good as random given the covariates, affects the outcome only through
    treatment (exclusion restriction), and that there are no defiers (monotonicity).

    Parameters
    ----------
    formula
        ``"y ~ d"``, or ``"y ~ d | x1 + x2"``: outcome, treatment taken, covariates. Treatment is a
        column of 0 and 1, or a comparison, ``"y ~ I(visits > 0)"``.
    instrument
        The column of the instrument: 0 and 1, or two levels named in bounds, the reference first.
    design
        "observational" where the instrument is as good as random given the covariates, which are
        adjusted for; "randomised" where it was randomised: covariates then only reduce the
        variance. Without covariates there is no difference.
    bounds
        As in :func:`dp_ate`. The range of the outcome must be declared.
    {shared}

    Returns
    -------
    LateEffect
        The effect among compliers with a confidence set that is valid with a weak instrument too
        (Fieller), the first stage with its F statistic, the reduced form, and shares of
        always-takers and never-takers.

    Examples
    --------
    >>> import dpeffects as dpe
    >>> import numpy as np, pandas as pd
    >>> rng = np.random.default_rng(1)
    >>> z, complier = rng.integers(0, 2, 5000), rng.random(5000) < 0.6
    >>> d = z * complier
    >>> y = np.clip(0.4 + 0.2 * d + 0.15 * rng.normal(size=5000), 0, 1)
    >>> trial = pd.DataFrame({"z": z, "d": d, "y": y})
    >>> fit = dpe.dp_late("y ~ d", trial, instrument="z", bounds={"y": (0, 1)}, epsilon=1, seed=1)
    >>> low, high = fit.conf_int()
    >>> low < 0.2 < high, fit.shape()
    (True, 'interval')

    In a shell::

        dpeffects late "y ~ interactive" trial.csv --instrument invited --epsilon 1 \
            --bounds bounds.toml --design randomised
        dpeffects late "y ~ interactive | age + sex" patients.csv --instrument near \
            --epsilon 1 --bounds bounds.toml --format html --out late.html
    """
    return released(TABLE, locals(), "LATE")
