"""Summary, tables and paragraph about a study: what the reader of a paper sees."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from dpeffects.inference.estimate import Unavailable
from dpeffects.inference.joint import StudyColumn
from dpeffects.inference.noisy import COUNTED, noise_ratio
from dpeffects.inference.scales import mean_noise
from dpeffects.inference.table_one import MISSING, arm_sizes
from dpeffects.report.about_balance import difference_cells
from dpeffects.report.about_records import headline
from dpeffects.report.blocks import alert, budget, header, of_record
from dpeffects.report.paragraph import paragraph
from dpeffects.results.numbers import number, to_error
from dpeffects.results.study import OVERALL, StudyEffects
from dpeffects.results.words import (
    Lines,
    called,
    estimates,
    limits,
    listed,
    noise_sentence,
    p_cell,
    p_words,
    percent,
)
from dpeffects.summary import (
    NOISE,
    Block,
    Pairs,
    Summary,
    Table,
    describe,
    noted,
    printed,
    summarise,
    tabulate,
)

SHOWN = 25
"""Effects and baseline rows in a summary."""
_NAMED = 8
"""Outcomes in a header."""
_DIGITS = 3
"""Digits of a standard deviation that a mean is shown to at most."""

Made = tuple[str, Table, tuple[str, ...]]
"""A table with its name, and notes that belong to it."""


@summarise.register
def _(fit: StudyEffects, conf_level: float = 0.95, simultaneous: bool = True) -> Summary:
    made = list(_tables(fit, conf_level, simultaneous, SHOWN))
    notes = dict.fromkeys(note for _, _, own in made for note in own)
    title = f"{_title(fit)}: {fit.method_title} ({fit.method})"
    return of_record(fit, title, [table for _, table, _ in made], notes, _header(fit))


@tabulate.register
def _(fit: StudyEffects, conf_level: float = 0.95, simultaneous: bool = True) -> dict[str, Summary]:
    tables = {}
    for name, table, notes in _tables(fit, conf_level, simultaneous, None):
        plain = Table("", table.columns, table.rows, table.align, table.total)
        blocks: list[Block] = [plain]
        if block := noted(notes):
            blocks.append(block)
        tables[name] = Summary(table.title, alert(fit), tuple(blocks))
    if fit.spends:
        tables["budget"] = Summary("Privacy budget", alert(fit), (budget(fit),))
    return tables


@headline.register
def _(fit: StudyEffects, conf_level: float = 0.95, simultaneous: bool = True) -> Lines:
    rows = []
    for i, row in enumerate(fit.tidy(conf_level, simultaneous=simultaneous).to_dict("records")):
        column, _ = fit._about(i)
        factor = 100.0 if _percent(column) else 1.0
        scaled = ("estimate", "std_error", "conf_low", "conf_high", "noise_sd")
        numbers = {name: factor * row[name] for name in scaled}
        rows.append(row | numbers | {"term": _named(row["term"], column)})
    what = f"{called(fit)}s of {fit.treatment}"
    return estimates(rows, what, conf_level, at_once=simultaneous)


def _tables(
    fit: StudyEffects, conf_level: float, simultaneous: bool, most: int | None
) -> Iterator[Made]:
    """Tables in reading order, with at most so many effects."""
    yield _results(fit, conf_level, simultaneous, most)
    if len(fit.sums.arms) > 2:
        yield _means(fit, conf_level, most)
    if fit.subgroups:
        tests = fit.interactions(conf_level, simultaneous=simultaneous, most=most)
        for factor in fit.subgroups:
            p_values = tests[tests["subgroup"] == factor]["p_value"].tolist()
            yield _by_level(fit, factor, p_values, conf_level, simultaneous, most)
    if fit.sums.baseline is not None:
        yield _table1(fit, most)


def _title(fit: StudyEffects) -> str:
    return f"Private {called(fit)}s on {_counted(len(fit.outcomes), 'outcome')}"


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _header(fit: StudyEffects) -> Pairs:
    formula, *rows = header(fit).rows
    names = fit.outcomes
    more = f", ... ({len(names)} outcomes)" if len(names) > _NAMED else ""
    about = [formula, ("Outcomes", ", ".join(names[:_NAMED]) + more), ("Arms", _arms(fit))]
    if fit.subgroups:
        alone = ", each by itself" if len(fit.subgroups) > 1 else ""
        about.append(("Subgroups", ", ".join(fit.subgroups) + alone))
    return Pairs((*about, *rows))


def _arms(fit: StudyEffects) -> str:
    """Arms with their sizes, and the noise in these."""
    texts = [f"{arm} {size}" for arm, size in zip(fit.sizes, _sizes(fit), strict=True)]
    return f"{', '.join(texts)} records (noise sd {_short(arm_sizes(fit.sums)[1])})"


def _sizes(fit: StudyEffects) -> list[str]:
    """Numbers of records by arm."""
    sizes, noise = arm_sizes(fit.sums)
    return [printed(f"{x:.0f}", noise_ratio(noise, value=max(x, COUNTED))) for x in sizes]


def _short(value: float) -> str:
    return number(value, 2)


def _percent(column: StudyColumn) -> bool:
    """Whether an outcome is 0 or 1, so that its means are said in per cent."""
    return column.two_valued and (column.low, column.high) == (0.0, 1.0)


def _named(label: str, column: StudyColumn) -> str:
    return f"{label}, %" if _percent(column) else label


def _cells(row: Any, column: StudyColumn, known: Sequence[float] = ()) -> tuple[str, ...]:
    """Numbers of a row of `tidy`, up to two digits of their error, in per cent for 0 and 1."""
    factor = 100.0 if _percent(column) else 1.0
    error = row["std_error"] if math.isfinite(row["std_error"]) else row["noise_sd"]
    values, ends = (
        [factor * x for x in numbers]
        for numbers in ((*known, row["estimate"]), (row["conf_low"], row["conf_high"]))
    )
    cells = to_error(values, factor * error, ends=ends)
    return *cells[:-3], printed(cells[-3], row["noise_ratio"]), *cells[-2:]


def _results(fit: StudyEffects, conf_level: float, simultaneous: bool, most: int | None) -> Made:
    """The line that everybody reads first, for each outcome."""
    two, rows = len(fit.sums.arms) == 2, []
    shown = fit.tidy(conf_level, simultaneous=simultaneous).to_dict("records")
    for i, row in enumerate(shown[:most]):
        column, _ = fit._about(i)
        means = fit.effects[i].means
        known = (means.treated, means.control) if two and means else ()
        cells = _cells(row, column, known)
        if known and means:
            ratios = [mean_noise(means, treated) for treated in (True, False)]
            cells = (*map(printed, cells, ratios), *cells[2:])
        rows.append((_named(row["term"], column), *cells, p_cell(row)))
    arms = fit.sums.arms if two else ()
    columns = ("outcome", *arms, "difference", *limits(conf_level), "p-value")
    what = "Associations with" if fit.associated else "Effects of"
    title = f"{what} {fit.treatment} by outcome"
    notes = [fit._family_words(conf_level, simultaneous, "effect")]
    if most is not None and len(shown) > most:
        notes.append(f"The first {most} of {len(shown)} effects; tidy() has them all.")
    notes.append("Numbers are shown to two digits of their standard error; tidy() has all digits.")
    if fit.basis == "adjusted":
        notes.append("Means by arm are adjusted for the baseline variables.")
    if any(map(_percent, fit.sums.outcomes)):
        notes.append("%: of an outcome that is 0 or 1, means and differences are in per cent.")
    table = Table(title, columns, tuple(rows), "l" + "r" * (len(columns) - 1))
    return "results", table, tuple(filter(None, notes))


def _means(fit: StudyEffects, conf_level: float, most: int | None) -> Made:
    """Mean outcomes by arm, where there are more than two."""
    frame = fit.means_at(conf_level)
    rows = []
    if not isinstance(frame, Unavailable):
        for column in fit.sums.outcomes[:most]:
            own = frame[frame["term"] == column.name]
            factor = 100.0 if _percent(column) else 1.0
            error = factor * float(own["std_error"].max())
            cells = to_error([factor * x for x in own["mean"]], error)
            shown = map(printed, cells, own["noise_ratio"])
            rows.append((_named(column.name, column), *shown))
    table = Table("Means by arm", ("outcome", *fit.sums.arms), tuple(rows), "l" + "r" * len(cells))
    return "means", table, ()


def _by_level(
    fit: StudyEffects,
    factor: str,
    p_values: Sequence[float],
    conf_level: float,
    simultaneous: bool,
    most: int | None,
) -> Made:
    """Effects at the levels of a factor, and the test whether they differ."""
    effects = fit.by(factor)
    names, total = fit.labels[:most], len(effects.labels)
    kept = [i for i in range(total) if i % len(fit.labels) < len(names)]
    effects = replace(
        effects,
        labels=tuple(effects.labels[i] for i in kept),
        effects=tuple(effects.effects[i] for i in kept),
        subsets=tuple(effects.subsets[i] for i in kept),
    )
    level = 1.0 - (1.0 - conf_level) * len(kept) / total if simultaneous else conf_level
    shown = effects.tidy(level, simultaneous=simultaneous).to_dict("records")
    rows = []
    for i, label in enumerate(names):
        column, _ = fit._about(i)
        for k, row in enumerate(shown[i :: len(names)]):
            name = "" if k else _named(label, column)
            p = "" if k or i >= len(p_values) else p_cell({"p_value": p_values[i]})
            where = effects.subsets[i + k * len(names)]
            rows.append((name, where, *_cells(row, column), p))
    what = "Associations" if fit.associated else "Effects"
    columns = ("outcome", "subgroup", "difference", *limits(conf_level), "interaction p")
    notes = []
    if simultaneous:
        notes.append(
            "Intervals in subgroups hold at once for all outcomes and subgroups of one factor."
        )
    adjusted = ", and for that of outcomes and factors" if simultaneous else ""
    notes.append(
        "Interaction p: of the same effect in all subgroups of a factor, adjusted for the number "
        f"of their pairs{adjusted}; interactions() has the differences."
    )
    table = Table(f"{what} by {factor}", columns, tuple(rows), "llrrrr")
    return f"by {factor}", table, tuple(notes)


def _table1(fit: StudyEffects, most: int | None) -> Made:
    """Baseline variables by arm."""
    frame, arms = fit.table1(), (*fit.sums.arms, OVERALL)
    weighted = "smd_weighted" in frame
    heads = [*_sizes(fit), f"{sum(fit.sizes.values()):.0f}"]
    rows = [("N", *heads, _short(arm_sizes(fit.sums)[1]), *("",) * (4 if weighted else 2))]
    for row in frame.to_dict("records")[:most]:
        cells, noise = _described(row, arms)
        kinds = ("smd", "smd_weighted") if weighted else ("smd",)
        pairs = [difference_cells(row[kind], row[f"{kind}_noise_sd"]) for kind in kinds]
        differences = [cell for pair in pairs for cell in pair]
        rows.append((_variable(row), *cells, noise, *differences))
    after = ("weighted", "its noise") if weighted else ()
    columns = ("variable", *arms, "noise sd", "SMD", "its noise", *after)
    how = "the largest between two arms" if len(arms) > 3 else f"{arms[0]} less {arms[1]}"
    notes = [
        "Table 1 has means (standard deviations), or numbers (%), up to the first digit of their "
        "noise; noise sd is the largest of a row, for numbers (%) that of the percentage.",
        f"SMD: standardised mean difference, {how}, over the root of the mean of both variances"
        f"{', before weighting' if weighted else ''}. In brackets: perhaps nothing but noise. "
        "Sampling error is not in the noise.",
    ]
    if most is not None and len(frame) > most:
        notes.append(f"The first {most} of {len(frame)} baseline rows; table1() has them all.")
    title = "Table 1. Baseline variables by arm"
    table = Table(title, columns, tuple(rows), "l" + "r" * (len(columns) - 1))
    return "table1", table, tuple(notes)


def _variable(row: Any) -> str:
    missing = row["level"] == MISSING
    return f"{row['variable']}{': ' if missing else ' '}{row['level']}".strip()


def _described(row: Any, arms: Sequence[str]) -> tuple[list[str], str]:
    """Numbers and percentages, or means and standard deviations, by arm; the largest noise."""
    noise = max(row[f"{arm}_noise_sd"] for arm in arms)
    if row["share"]:
        cells = []
        for arm in arms:
            own, n = 100.0 * row[f"{arm}_noise_sd"], row[f"{arm}_n"]
            size = n / row[f"{arm}_mean"] if row[f"{arm}_mean"] > 0.0 else 1.0
            (count,) = to_error([n], max(own * size / 100.0, 1.0), 1)
            (share,) = to_error([100.0 * row[f"{arm}_mean"]], max(own, 0.1), 1)
            cells.append(printed(f"{count} ({share}%)", row[f"{arm}_noise_ratio"]))
        return cells, f"{_short(100.0 * noise)}%" if noise < 1.0 else "over 100%"
    cells = []
    for arm in arms:
        spread, ratio = row[f"{arm}_sd"], row[f"{arm}_noise_ratio"]
        least = spread / 10.0 ** (_DIGITS - 1) if spread > 0.0 else noise
        error = max(row[f"{arm}_noise_sd"], least)
        mean, sd = to_error([row[f"{arm}_mean"], spread], error, 1)
        cell = printed(f"{mean} ({sd})", 2.0 * math.isnan(spread), f"{mean} ({NOISE})")
        cells.append(printed(cell, ratio))
    return cells, _short(noise)


@describe.register
def _(fit: StudyEffects, conf_level: float) -> str:
    rows = fit.tidy(conf_level).to_dict("records")
    what = "Associations" if fit.associated else "Effects"
    sizes = zip(fit.sizes, _sizes(fit), strict=True)
    known = ", ".join(f"{size} records in {arm}" for arm, size in sizes if size != NOISE)
    findings = [
        f"The arms have about {known}." if known else "",
        f"{what} by outcome, with {percent(conf_level)} intervals, are {listed(rows)}.",
        fit._family_words(conf_level),
        _subgroup_sentence(fit),
        _baseline_sentence(fit),
        noise_sentence(rows),
    ]
    return paragraph(fit, findings, "", _subject(fit))


def _subject(fit: StudyEffects) -> str:
    """What was estimated, with the outcomes by name where they are few."""
    names = fit.outcomes
    said = ", ".join(names) if len(names) <= _NAMED else f"{len(names)} outcomes"
    if fit.associated:
        return f"the association of {fit.treatment} with {said}"
    return f"the {called(fit)} ({fit.estimand}) of {fit.treatment} on {said}"


def _subgroup_sentence(fit: StudyEffects) -> str:
    """Say which effect differs most clearly between subgroups."""
    tests = fit.interactions(most=SHOWN).to_dict("records")
    if not tests:
        return ""
    known = [row for row in tests if not math.isnan(row["p_value"])]
    where = f"Effects were also estimated by {' and by '.join(fit.subgroups)}"
    if not known:
        return f"{where}."
    row = min(known, key=lambda row: row["p_value"])
    return (
        f"{where}; of {_counted(len(fit.labels) * len(fit.subgroups), 'test')} whether they differ "
        f"between subgroups, the smallest adjusted p-value is that of {row['term']} by "
        f"{row['subgroup']}, p {p_words(row['p_value'])}."
    )


def _baseline_sentence(fit: StudyEffects) -> str:
    """Say how far the arms differ at the start."""
    rows = fit.table1().to_dict("records")
    known = [row for row in rows if row["smd_noise_ratio"] <= 1.0]
    if not known:
        return ""
    row = max(known, key=lambda row: abs(row["smd"]))
    name = " ".join(filter(None, (row["variable"], row["level"])))
    after = [row for row in rows if row.get("smd_weighted_noise_ratio", math.nan) <= 1.0]
    left = max((abs(row["smd_weighted"]) for row in after), default=None)
    weighted = "" if left is None else f" After weighting none is above {left:.2f}."
    return (
        f"Of {_counted(len(rows), 'baseline variable')} or levels, the largest standardised "
        f"difference between arms is {row['smd']:.2f}, of {name}; its privacy noise has a standard "
        f"deviation of {_short(row['smd_noise_sd'])}.{weighted}"
    )
