"""table(): the few lines of a result that a journal prints, and the other tables of a study.

One function makes the lines of every kind of result, from what `tidy` and `means_at` have: one line
for each number, or, where both arms of each effect have a mean, one line with both means beside the
effect. Below the table stands one paragraph: how many records, method, adjustment and guarantee.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from inspect import signature
from typing import Any

from dpeffects.errors import OptionError, advised, not_among, spelled
from dpeffects.estimators.weighting.missing_outcomes import OBSERVED
from dpeffects.inference import Unavailable, ratio_of
from dpeffects.report.blocks import adjusted_for, assumed, budget, size_words, starred_warnings
from dpeffects.results import several, wording
from dpeffects.results.average import Result
from dpeffects.results.number_format import NOT_AVAILABLE, number, to_error
from dpeffects.summary import Prose, Summary, Table, explained, noted, printed

Row = Mapping[Any, Any]
Lines = list[tuple[str, Row]]
"""What a journal calls a number, and its row of `tidy`."""


def table(fit: Any, name: str, conf_level: float, **asked: Any) -> Summary:
    """Return one of the tables of a result, by its name."""
    known = []
    for key, made in tables_of(fit, conf_level, **asked):
        if spelled(name, [key]) == key:
            return made
        known.append(key)
    raise OptionError(not_among("table", name, known) + advised("tables").get(str(name), ""))


def tables_of(fit: Any, conf_level: float = 0.95, **asked: Any) -> Iterator[tuple[str, Summary]]:
    """Make the tables of a result, each with its name; "results" first, and the budget last."""
    alert = starred_warnings(fit)
    for name, made, notes in fit._apart(conf_level, **asked):
        foot = (about(fit), *notes, fit._headed(conf_level).get("Interval", ""))
        below = Prose(" ".join(filter(None, foot))) if name == "results" else noted(notes)
        blocks = Table("", made.columns, made.rows, made.align, made.total), below
        yield name, explained(Summary(made.title, alert, tuple(filter(None, blocks))))
    if fit.charges:
        yield "budget", Summary("Privacy budget", alert, (budget(fit),))


def journal(
    fit: Any, conf_level: float, most: int | None = wording.EFFECTS, **asked: Any
) -> tuple[Table, tuple[str, ...]]:
    """Return the lines of a result, and notes on how to read them.

    What has no intervals, such as the balance of covariates, is shown as in its summary.
    """
    takes, kind = signature(fit.tidy).parameters, type(fit).__name__
    if not asked.keys() <= takes.keys():
        raise OptionError(f"simultaneous is for results with several effects, not {kind}")
    if "conf_level" not in takes:
        return next(x for x in fit._blocks(conf_level) if isinstance(x, Table)), ()
    found = fit.tidy(conf_level, **asked).to_dict("records")
    lines: Lines = [x for x in zip(fit._row_labels(found), found, strict=True) if x[0]][:most]
    means = _means(fit, conf_level)
    beside = [means.get(str(row["term"]), []) for _, row in lines]
    if wide := all(len(both) == 2 for both in beside):
        heads = (*(mean["arm"] for mean in beside[0]), "difference")
    else:
        heads, beside = ("estimate",), [[]] * len(found)
        lines = [*_arms(fit, means.get("", []), lines), *_compared(fit, lines, conf_level)]
    rows = [wording.scaled(row, label) for label, row in lines]
    many = isinstance(fit, several.SeveralEffects)
    alike = many and len({row["outcome"] for row in found}) == 1
    cells = wording.cells_of_rows(rows) if alike else map(wording.effect_cells, rows)
    shown: list[tuple[str, ...]] = [
        (label, *line(row, own)) for (label, _), row, own in zip(lines, rows, cells, strict=True)
    ]
    if wide:
        shown = [
            (own[0], *(_mean(wording.scaled(mean, own[0]), row) for mean in both), *own[1:])
            for own, row, both in zip(shown, rows, beside, strict=True)
        ]
    columns = (fit._named.each if many else "", *heads, f"{wording.percent(conf_level)} CI", "P")
    size = len(columns) - all(not own[-1] for own in shown)
    after = getattr(fit, "_after", None)
    title = (fit._subject or wording.effect_words(fit)).removeprefix("the ")
    title = wording.relation_title(fit, after("title")) if after else wording.capital(title)
    cut = tuple(own[:size] for own in shown)
    notes = tuple(_reading(fit, conf_level, found, most, **asked))
    return Table(title, columns[:size], cut, "l" + "r" * (size - 1)), notes


def line(row: Row, cells: Sequence[str]) -> tuple[str, str, str]:
    """Estimate, interval and p-value of a row of `tidy`, from its `effect_cells`."""
    value, _, low, high = cells
    ends = low if low == NOT_AVAILABLE else f"{low} to {high.replace('inf', 'infinity')}"
    return value, ends, wording.p_text(wording.p_of(row)).replace(NOT_AVAILABLE, "")


def about(fit: Any) -> str:
    """Records, method, what is adjusted for, and the guarantee, for the foot of a table."""
    guarantee, how = fit.guarantee, ""
    if fit._of_effects:
        known = adjusted_for(fit)
        how = f"adjusted for {known}" if known else f"assumes {assumed(fit)}"
        how = "unadjusted" if known.startswith("nothing") else how
    how = "treatment randomised" if fit.identification == "randomised" else how
    private = f"epsilon = {number(guarantee.epsilon)}, delta = {number(guarantee.delta, 3)}"
    private = f"privacy: {private}, unit of protection: {guarantee.unit}."
    observed = fit.details.get(OBSERVED)
    observed = observed and f"outcomes observed: {observed} of records (noisy)"
    size, by = f"n = {size_words(fit, always=True)}", f"{fit.method_title} ({fit.method})"
    alone = fit.sample.get("alone") and f"multiplicity {fit.sample['alone']}"
    return "; ".join(filter(None, (size, observed, by, how, alone, private)))


def _reading(
    fit: Any, conf_level: float, found: Sequence[Row], most: int | None, **asked: Any
) -> Iterator[str]:
    """Say what the lines leave out, and for what their intervals hold."""
    if most is not None and len(found) > most:
        yield f"The first {most} of {len(found)} effects; tidy() has them all."
    if all(row.get("covers") == "noise" for row in found):
        yield "Intervals are for privacy noise only, without sampling error."
    if isinstance(fit, several.SimultaneousEffects):
        yield fit._family_words(conf_level, asked.get("simultaneous"), fit._named.each)
        if fit.identification == "adjusted" and fit.effects[0].means:
            yield "Means by arm are adjusted for the covariates."
    elif asked.get("simultaneous"):
        yield "Intervals and p-values hold for all lines at once."


def _means(fit: Any, conf_level: float) -> dict[str, list[Row]]:
    """Rows of mean outcomes by the term of an effect, or by nothing."""
    frame = fit.means_at(conf_level) if hasattr(fit, "means_at") else Unavailable("")
    found: dict[str, list[Row]] = {}
    for row in [] if isinstance(frame, Unavailable) else frame.to_dict("records"):
        found.setdefault(str(row.get("term", "")), []).append(row)
    return found


def _mean(mean: Row, row: Row) -> str:
    (text,) = to_error([mean["mean"]], wording.error_of(row))
    return printed(text, mean["noise_ratio"])


def _arms(fit: Any, means: Sequence[Row], lines: Lines) -> Iterator[tuple[str, Row]]:
    """A line for the mean, or the risk, of each arm."""
    shares = any(label.endswith(wording.PER_CENT) for label, _ in lines)
    what = "adjusted " * (fit.identification == "adjusted") + ("risk" if shares else "mean")
    for row in means:
        label = f"{what}, {row['arm']}{wording.PER_CENT * shares}"
        yield label, {**row, "estimate": row["mean"], "p_value": math.nan}


def _compared(fit: Any, lines: Lines, conf_level: float) -> Iterator[tuple[str, Row]]:
    """The lines of effects; below the difference of two risks stands their ratio."""
    if not isinstance(fit, Result):
        yield from lines
        return
    ((label, row),) = lines
    yield label, {**row, "noise_ratio": ratio_of(fit.released)}
    if label.endswith(wording.PER_CENT):
        yield "risk ratio", fit.tidy(conf_level, scale="ratio").to_dict("records")[0]
