"""Summaries of plans."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dpeffects.inference.estimate import NO_EFFECT
from dpeffects.inference.hypotheses import EQUIVALENCE, Hypothesis
from dpeffects.planning import Plan, PlannedEffect, PlanSetting, StudyPlan, TermPlan
from dpeffects.results.numbers import figure, number, to_error
from dpeffects.results.words import percent
from dpeffects.summary import Notes, Pairs, Summary, Table, noted, starred, summarise


@summarise.register
def _(plan: Plan) -> Summary:
    s = plan.setting
    header = Pairs(
        (
            ("Formula", s.formula),
            ("Budget", f"epsilon = {number(s.epsilon)}, delta = {number(s.delta)}"),
            ("Records", f"n = {s.n}"),
            ("Design", s.design),
            ("Assumed", _assumed(s)),
            *_test_rows(s),
        )
    )
    usable = sorted((r for r in plan.rows if not r.reason), key=lambda r: r.half_width)
    columns = {
        "noise_sd": "noise sd",
        "std_error": "std. error",
        "half_width": "half-width",
        "detectable": "margin" if s.asked.alternative == EQUIVALENCE else "detectable",
    } | ({} if s.assumed is None else {"power": "power"})
    table = Table(
        f"Expected accuracy ({percent(s.conf_level)} intervals, {percent(s.power)} power)",
        ("method", *columns.values()),
        tuple((row.method, *_figures(row, columns)) for row in usable),
        "l" + "r" * len(columns),
    )
    split = Table(
        "Epsilon by share of the budget",
        ("method", "shares"),
        tuple((r.method, ", ".join(f"{k} {e:.3g}" for k, e in r.shares)) for r in usable),
        "ll",
    )
    notes = noted(f"{r.method}: {r.remark or r.reason}" for r in plan.rows if r.remark or r.reason)
    blocks = (header, table, split, *((notes,) if notes else ()))
    return Summary(f"Plan for the {s.estimand}: no data was touched", "", blocks)


@summarise.register
def _(plan: StudyPlan) -> Summary:
    s = plan.setting
    share = s.share_treated
    arms = "arms of the same size" if share is None else f"{100 * share:.3g} % treated"
    if s.arm_shares:
        arms = ", ".join(f"{100 * x:.3g} % {name}" for name, x in s.arm_shares.items())
    guessed = [f"mean of {name} {number(x)}" for name, x in s.outcome_mean.items()]
    guessed += [f"sd of {name} {number(x)}" for name, x in s.outcome_sd.items()]
    for name, given in s.subgroup_shares.items():
        guessed += [f"{100 * x:.3g} % {name} {level}" for level, x in given.items()]
    more = (("Subgroups", ", ".join(s.subgroups)),) if s.subgroups else ()
    header = Pairs(
        (
            ("Formula", s.formula),
            *more,
            ("Budget", f"epsilon = {number(s.epsilon)}, delta = {number(s.delta)}"),
            ("Records", f"n = {s.n}"),
            ("Design", s.design),
            ("Assumed", "; ".join([arms, *guessed])),
        )
    )
    levels = f"{percent(s.conf_level)} intervals for all at once, {percent(s.power)} power"
    tables = [_planned_table(f"All records ({levels})", plan, "")]
    factors = dict.fromkeys(x.subgroup for x in plan.effects if x.subgroup)
    tables += [_planned_table(f"By {name}", plan, name) for name in factors]
    if plan.baseline:
        weighted = any(x.weighted_noise_sd > 0.0 for x in plan.baseline)
        names = ("variable", "level", "noise sd", *(("weighted",) if weighted else ()))
        rows = [
            (x.variable, x.level, *(figure(y, ".3f") for y in (x.noise_sd, x.weighted_noise_sd)))
            for x in plan.baseline
        ]
        title = "Noise in the standardised differences of Table 1"
        short = tuple(row[: len(names)] for row in rows)
        tables.append(Table(title, names, short, "ll" + "r" * (len(names) - 2)))
    columns = ("release", "share", "noise", "epsilon", "delta")
    split = [(*x[:3], f"{x[3]:.3g}", f"{x[4]:.3g}") for x in plan.releases]
    tables.append(Table("What is released", columns, tuple(split), "lllrr"))
    alert = starred([NO_EFFECT] if plan.basis == "association" else [])
    others = [f"and {left} more, in noise"] if (left := len(plan.noise) - 25) > 0 else []
    said = f"Tables will say noise in the place of {'; '.join([*plan.noise[:25], *others])}."
    notes = [Notes((said,))] if plan.noise else []
    return Summary("Plan of a study: no data was touched", alert, (header, *tables, *notes))


def _planned_table(title: str, plan: StudyPlan, subgroup: str) -> Table:
    """Effects on all records, or by the levels of a factor."""
    figures = ("noise_sd", "std_error", "single", "half_width", "detectable")
    names = ("noise sd", "std. error", "alone", "half-width", "detectable")

    def row(x: PlannedEffect) -> tuple[str, ...]:
        return (x.term, *((x.level,) if subgroup else ()))

    rows = [(*row(x), *_figures(x, figures)) for x in plan.effects if x.subgroup == subgroup]
    first = ("outcome", "level") if subgroup else ("outcome",)
    return Table(title, (*first, *names), tuple(rows), "l" * len(first) + "r" * len(names))


@summarise.register
def _(plan: TermPlan) -> Summary:
    figures = ("estimate", "std_error", "half_width", "power")
    rows = [(t.term, *_figures(t, figures)) for t in plan.terms]
    title = f"Medians over {plan.runs} rehearsals ({percent(plan.conf_level)} intervals)"
    columns = ("term", "estimate", "std. error", "half-width", "power")
    table = Table(title, columns, tuple(rows), "lrrrr")
    return Summary("Plan, term by term: made-up data only", "", (table,))


def _test_rows(s: PlanSetting) -> tuple[tuple[str, str], ...]:
    """The test that is planned, where it is not the usual one, and the effect it is told for."""
    rows = []
    if s.asked != Hypothesis.asked():
        level = percent(1.0 - s.conf_level)
        rows.append(
            ("Test", f"{s.asked.name()}, at {level}: to be shown is that {s.asked.claim()}")
        )
    if s.assumed is not None:
        rows.append(("Effect", f"{number(s.assumed)}, which the column power is for"))
    return tuple(rows)


def _assumed(s: PlanSetting) -> str:
    """What the rehearsed records are like."""
    risk = f"outcome 0 or 1, risk {number(s.outcome_mean)}"
    measure = f"outcome mean {number(s.outcome_mean)}, sd {number(s.outcome_sd)}"
    parts = [f"{100 * s.share_treated:.3g} % treated", risk if s.two_valued else measure]
    if not s.covariates:
        return "; ".join(parts)
    parts.append(f"covariates explain {100 * s.r2:.3g} % of its variance (r2)")
    if s.design != "randomised":
        parts.append(f"log odds of treatment vary with them by {number(s.confounding)}")
    sds = [f"{name} {number(sd)}" for name, sd in s.covariate_sd.items()]
    if len(set(s.covariate_sd.values())) == 1:
        sds = [number(next(iter(s.covariate_sd.values())))]
    if sds:
        parts.append(f"sd of covariates, in ranges: {', '.join(sds)}")
    return "; ".join(parts)


def _figures(row: Any, names: Iterable[str]) -> tuple[str, ...]:
    """Planned figures, to three digits of the standard error: they are no estimates."""
    values = {name: getattr(row, name) for name in names}
    power = (f"{x:.2f}" for name, x in values.items() if name == "power")
    return (
        *to_error([x for name, x in values.items() if name != "power"], row.std_error, 3),
        *power,
    )
