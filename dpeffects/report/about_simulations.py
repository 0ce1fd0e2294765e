"""Summaries of what is no release: plans, audits, simulation studies, the leaderboard."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from dpeffects.auditing.audit_result import AuditResult
from dpeffects.guarantee import column_of, protected
from dpeffects.inference.estimate import NO_EFFECT
from dpeffects.inference.hypotheses import EQUIVALENCE, Hypothesis
from dpeffects.leaderboard.board import Leaderboard
from dpeffects.leaderboard.cells import NEAR
from dpeffects.planning import Plan, PlannedEffect, PlanSetting, StudyPlan, TermPlan
from dpeffects.report.blocks import noted, percent, starred
from dpeffects.results.numbers import number, text_of, to_error
from dpeffects.simulations.result import Study
from dpeffects.summary import Notes, Pairs, Summary, Table, summarise

if TYPE_CHECKING:
    import pandas as pd


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
            (x.variable, x.level, *(_figure(y, ".3f") for y in (x.noise_sd, x.weighted_noise_sd)))
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


def _figure(value: float, form: str) -> str:
    return f"{value:{form}}" if math.isfinite(value) else "n/a"


@summarise.register
def _(audit: AuditResult) -> Summary:
    promised = f"epsilon = {audit.epsilon:g}" + (f", delta = {audit.delta:g}" * (audit.delta > 0))
    shares = [f"{h} of {n}" for h, n in zip(audit.hits, audit.trials, strict=True)]
    whose = f", for {protected(audit.unit)}" if column_of(audit.unit) else ""
    rows = [
        ("Promise", f"{promised} ({audit.guarantee}), {audit.level} level{whose}"),
        ("Verdict", audit.verdict),
        ("Tightness", f"{100 * audit.tightness:.0f} % of epsilon was shown to be lost"),
        ("Worst pair", audit.worst),
        ("Event", f"{audit.event}: {shares[0]} runs on one dataset, {shares[1]} on the other"),
        ("Options", text_of(audit.options) if audit.options else ""),
        ("Runs", f"{audit.runs}, of which {sum(audit.trials)} counted the event"),
        ("Noise", audit.noise),
    ]
    blocks = (
        Pairs(tuple(row for row in rows if row[1])),
        _pairs(audit),
        Notes(_audit_notes(audit)),
    )
    alert = starred((audit.verdict,)) if audit.violated else ""
    what = f" ({audit.estimand})" if audit.estimand else ""
    return Summary(f"Audit of {audit.method}{what}", alert, blocks)


def _pairs(audit: AuditResult) -> Table:
    rows = []
    for pair in audit.pairs:
        losses = [_figure(loss, ".3f") for loss in (pair.average_loss, pair.largest_loss)]
        mark = " *" if pair.name == audit.worst else ""
        runs = f"{pair.runs}" if pair.runs else "-"
        rows.append((pair.name + mark, pair.skipped or pair.about, runs, *losses))
    columns = ("neighbours", "what changes", "runs", "average loss", "largest loss")
    return Table("Pairs of neighbours (* the worst)", columns, tuple(rows), "llrrr")


def _audit_notes(audit: AuditResult) -> tuple[str, ...]:
    notes = [
        "The bound holds whatever the noise is; it says nothing about neighbours that were not "
        "tried. A low bound is no proof of privacy: the proofs are in privacy/PROOFS.md.",
        "A loss is the log of how much likelier a release was on its own dataset than on the "
        "neighbour, by the noise that was declared; inf: the neighbour cannot show the same.",
    ]
    if audit.delta == 0 and audit.largest_loss > audit.epsilon * (1.0 + 1e-6):
        notes.append(
            f"A run with a privacy loss of {number(audit.largest_loss)} was seen, above "
            "epsilon: some sensitivity is not covered, however rarely that shows."
        )
    return tuple(notes)


@summarise.register
def _(study: Study) -> Summary:
    about = Pairs(
        (
            ("Data", f"{study.data}, {study.repeats} repeats, seed {study.seed}"),
            ("Estimand", study.estimand),
            ("Intervals", percent(study.conf_level)),
        )
    )
    columns = ("fit", "n", "epsilon", "bias", "error", "relative", "coverage", "width", "runs")
    rows = [_line(row) for _, row in study.tidy().iterrows()]
    notes = ["Error is the root mean squared error; relative to the size of the true effect."]
    failures = study.runs.loc[study.runs["failure"] != "", "failure"]
    for reason, times in failures.value_counts().items():
        notes.append(f"{times} runs failed: {reason}")
    table = Table("Error and coverage", columns, tuple(rows), "lrrrrrrrr")
    return Summary("Simulation study", "", (about, table, Notes(tuple(notes))))


def _line(row: Any) -> tuple[str, ...]:
    bias, error, width = to_error((row["bias"], row["error"], row["width"]), row["error"], 3)
    covered = "n/a" if math.isnan(row["coverage"]) else percent(row["coverage"], ".1f")
    relative = _figure(row["relative_error"], ".3f")
    key = (row["fit"], str(row["n"]), f"{row['epsilon']:g}")
    return (*key, bias, error, relative, covered, width, str(row["runs"]))


@summarise.register
def _(board: Leaderboard) -> Summary:
    share = board.glance()["near"].iloc[0]
    about = [
        ("Data", ", ".join(task.name for task in board.tasks)),
        ("Repeats", f"{board.repeats}, seed {board.seed}"),
    ]
    if not math.isnan(share):
        about.append(("Ours near the best", f"{100 * share:.0f} % of places"))
    notes = (
        "Error: median of the relative error. Ranked: entries that protect records with a "
        "proved guarantee.",
        f"Near: best or within {100 * NEAR:.0f} % of the best. Ratio: geometric mean of the "
        "error over the best.",
        *_gaps(board.gaps()),
    )
    blocks = (Pairs(tuple(about)), _places(board.places()), _overall(board.overall()))
    return Summary("Leaderboard", "", (*blocks, Notes(notes)))


def _gaps(frame: pd.DataFrame) -> list[str]:
    """One line for each entry and reason."""
    return [
        f"{name} on {', '.join(group['data'])}: {reason}."
        for (name, reason), group in frame.groupby(["fit", "reason"], sort=False)
    ]


def _places(frame: pd.DataFrame) -> Table:
    columns = ("data", "epsilon", "best", "error", "best of ours", "error")
    rows = [
        (
            *(row["data"], f"{row['epsilon']:g}", row["best"], _figure(row["error"], ".3g")),
            *(row["ours"], _figure(row["ours_error"], ".3g")),
        )
        for row in frame.to_dict("records")
    ]
    return Table("Best in each place", columns, tuple(rows), "lrlrlr")


def _overall(frame: pd.DataFrame) -> Table:
    columns = ("entry", "guarantee", "level", "ratio", "near", "coverage", "seconds")
    rows = [
        (
            *(row["fit"], row["guarantee"], row["level"], _figure(row["ratio"], ".3g")),
            f"{row['near']} of {row['cells']}",
            "n/a" if math.isnan(row["coverage"]) else percent(row["coverage"], ".0f"),
            f"{row['seconds']:.2g}",
        )
        for row in frame.to_dict("records")
    ]
    return Table("Entries", columns, tuple(rows), "lllrrrr")
