"""Results in words: what tables and sentences say of estimates."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dpeffects.errors import texts
from dpeffects.estimands import ESTIMANDS, LATE
from dpeffects.guarantee import printed as printed_name
from dpeffects.inference import Estimate, Interval, Unavailable, ratio_of
from dpeffects.inference.table_one import hidden, within_noise
from dpeffects.results.number_format import NOT_AVAILABLE, to_error, with_ends
from dpeffects.summary import MOST_ROWS, Table, printed

Lines = list[tuple[str, str]]
"""Names with what is said of them."""
EFFECTS, _SENTENCES = 40, 6
"""Effects in a table, and in a sentence."""
DAGGER = "† Not distinguishable from privacy noise: within 1.96 standard deviations of it."
PER_CENT = ", %"
"""How the label of a number ends that a journal prints in per cent."""
_SCALED = ("estimate", "std_error", "conf_low", "conf_high", "noise_sd", "mean")
_PLAIN, _LONG = (("0", "1"), ("0.0", "1.0"), ("False", "True")), 60
_ALIKE = 10.0
"""Errors that differ by less than this factor are shown to the same place."""


def said(module: str) -> dict[str, Any]:
    """Return what summaries of a kind of result say: a table of ``sentences.toml``."""
    return dict(texts("dpeffects.results", "sentences.toml")[module])


# --- numbers ------------------------------------------------------------------------------------


def percent(share: float, form: str = ".4g") -> str:
    """Return a share as a percentage.

    Examples
    --------
    >>> percent(0.95), percent(0.5, ".1f")
    ('95 %', '50.0 %')
    """
    return f"{100 * share:{form}} %"


def p_words(p: float) -> str:
    """Return a p-value for a sentence."""
    return "> 0.99" if p > 0.99 else "< 0.0001" if p < 1e-4 else f"= {p:.4f}"


def p_text(p: float | Unavailable) -> str:
    """Return a p-value for a table."""
    if isinstance(p, Unavailable) or math.isnan(p):
        return NOT_AVAILABLE
    return ">0.99" if p > 0.99 else "<0.0001" if p < 1e-4 else f"{p:.4f}"


def limits(conf_level: float) -> tuple[str, str]:
    """Return the heads of the two columns of an interval.

    Examples
    --------
    >>> limits(0.95)
    ('2.5 %', '97.5 %')
    """
    return percent((1 - conf_level) / 2), percent((1 + conf_level) / 2)


def effect_cells(row: Mapping[Any, Any], error: float | None = None) -> tuple[str, ...]:
    """Estimate, standard error and both ends of the interval of a row of `tidy`.

    They have two digits of the standard error, or of another ``error``. The interval of a
    suppressed estimate is shown, unless it is all that the declared bounds allow.
    """
    shown = (row["estimate"], row["std_error"])
    known = error_of(row) if error is None else error
    ends = row["conf_low"], row["conf_high"]
    value, *others = to_error(shown, known, ends=ends)
    if (ratio := row.get("noise_ratio", 0.0)) > 1.0 and ends == row.get("possible"):
        others[1:] = "not estimable", "not estimable"
    if row.get("through_infinity") is True:
        others[2] = f"inf to {others[2]}"
    return printed(value, ratio), *others


def p_of(row: Mapping[Any, Any]) -> float:
    """The p-value of a row of `tidy` as it is shown: NaN where its estimate is not shown either."""
    hidden = row.get("noise_ratio", 0.0) > 1.0
    return math.nan if hidden else float(row.get("p_value", math.nan))


def rows_of(result: Any, conf_level: float, **asked: Any) -> list[dict[Any, Any]]:
    """Rows of `tidy`, with what is known of how precise each estimate is, and of its range."""
    rows = result.tidy(conf_level, **asked).to_dict("records")
    own = [result.released] if hasattr(result, "released") else getattr(result, "effects", ())
    for row, one in zip(rows, own, strict=False):
        if isinstance(one, Estimate) and "scale" not in asked:
            row |= {"noise_ratio": ratio_of(one), "possible": one.possible}
    return list(rows)


def cells_of_rows(rows: Sequence[Mapping[Any, Any]]) -> list[tuple[str, ...]]:
    """The same of several rows, with as many decimals as each other where errors are alike."""
    errors = [x for x in map(error_of, rows) if math.isfinite(x) and x > 0.0]
    alike = errors and max(errors) < _ALIKE * min(errors)
    return [effect_cells(row, min(errors) if alike else None) for row in rows]


def scaled(row: Mapping[Any, Any], label: str) -> dict[Any, Any]:
    """A row of `tidy` as a journal prints it: in per cent where its label ends in ", %"."""
    factor = 100.0 if label.endswith(PER_CENT) else 1.0
    return {**row, **{name: factor * row[name] for name in _SCALED if name in row}}


def error_of(row: Mapping[Any, Any]) -> float:
    """The standard error of a row of `tidy`, or its privacy noise where there is none."""
    error = row["std_error"]
    return float(row.get("noise_sd", math.nan) if math.isnan(error) else error)


def with_limits(row: Mapping[Any, Any]) -> str:
    """An estimate of `tidy` with its interval, as it is said in a sentence."""
    ends = row["conf_low"], row["conf_high"]
    value, low, high = with_ends(row["estimate"], *ends, row["std_error"])
    value = "mostly noise" if math.isinf(row["estimate"]) else value
    if math.isnan(row["conf_low"]):
        return value
    if row["conf_high"] == math.inf:
        return f"{value} (at least {low})" if row["conf_low"] > 0.0 else f"{value} (without limits)"
    return f"{value} ({low} to {high})"


# --- what a number is ---------------------------------------------------------------------------


def words_of(estimand: str) -> str:
    """An estimand in words."""
    known = {**ESTIMANDS, LATE.name: LATE}
    return known[estimand].words if estimand in known else "effect"


def asked_for(result: Any) -> str:
    """Return the estimand in words, and whether this is an estimate of it."""
    words = f"{result.estimand}, {words_of(result.estimand)}"
    if getattr(result, "overlap_weighted", False):
        words += ", overlap-weighted in each group"
    return f"{words}; this is an association instead" if result.associated else words


def called(result: Any, many: bool = False) -> str:
    """Name an effect (or ``many``) by its estimand, or an association."""
    name, plural = words_of(result.estimand), "s" * many
    if result.associated:
        return f"unadjusted association{plural}"
    known = f"{name.replace('effect', f'effect{plural}', 1)} ({result.estimand})"
    return getattr(result, "estimand_label", "") or known


def relation(result: Any) -> str:
    """Name what the number is: an effect of treatment on outcome, or their association."""
    return related(result.treatment + versus(result), result.outcome, result.associated)


def versus(result: Any) -> str:
    """Which level of the treatment is compared with which, where they are not 1 and 0."""
    named = len(result.arms) == 2 and result.arms not in _PLAIN
    return " ({1} vs. {0})".format(*map(shown_level, result.arms)) if named else ""


def shown_level(level: object) -> str:
    """A declared level in a summary or a note, which a site can send; long ones are cut."""
    text = str(level)
    return text if text.isprintable() and len(text) <= _LONG else printed_name(text)


def related(treatment: str, outcome: str, associated: bool) -> str:
    """The same of their names."""
    between = "association of {} with {}" if associated else "effect of {} on {}"
    return between.format(treatment, outcome)


def effect_words(result: Any) -> str:
    """Name the effect of the treatment on the outcome, with its estimand."""
    if result.associated:
        return f"the {relation(result)}"
    what = words_of(result.estimand)
    return f"the {what} ({result.estimand}) of {relation(result).removeprefix('effect of ')}"


def with_whose(
    labels: Sequence[str], texts: Sequence[Sequence[str]], form: str, everybody: Sequence[str]
) -> list[str]:
    """Texts of several effects, each once, with their labels where not ``everybody`` has it.

    Examples
    --------
    >>> with_whose(["a", "b"], [["late", "noisy"], ["late"]], "{1}: {0}", ["a", "b"])
    ['late', 'a: noisy']
    """
    whose: dict[str, list[str]] = {}
    for label, own in zip(labels, texts, strict=True):
        for text in dict.fromkeys(own):
            whose.setdefault(text, []).append(label)
    return [
        text if set(everybody) <= set(own) else form.format(text, ", ".join(own))
        for text, own in whose.items()
    ]


def capital(text: str) -> str:
    """A text as the beginning of a title."""
    return text[0].upper() + text[1:]


def relation_title(result: Any, more: str = "") -> str:
    """Name what the numbers are, as the title of a table."""
    return capital(relation(result)) + more


# --- tables -------------------------------------------------------------------------------------


def effects_table(
    title: str,
    found: Sequence[Mapping[Any, Any]],
    conf_level: float,
    *heads: str,
    tested: bool = True,
) -> Table:
    """Return rows of `tidy` as a table; ``heads`` are those of label, estimate and error."""
    heads += ("", "estimate", "std. error")[len(heads) :]
    rows = []
    for row, cells in zip(found, cells_of_rows(found), strict=True):
        rows.append((row["term"], *cells, *((p_text(p_of(row)),) if tested else ())))
    columns = (*heads, *limits(conf_level), *(("p-value",) if tested else ()))
    return Table(title, columns, tuple(rows), "l" + "r" * (len(columns) - 1))


def effect_table(result: Any, conf_level: float) -> Table:
    """Return the line that everybody reads first: the effect, its error, interval and p-value."""
    name = "association" if result.associated else result.estimand
    row = rows_of(result, conf_level)[0] | {"term": name}
    row["noise_sd"] = math.sqrt(result.noise_variance)
    return effects_table(relation_title(result), [row], conf_level)


def means_block(result: Any, conf_level: float) -> tuple[Table, ...]:
    """Mean outcomes by arm, where they are released."""
    frame = result.means_at(conf_level)
    if isinstance(frame, Unavailable):
        return ()
    found = [
        row | {"estimate": row["mean"], "term": f"{row.get('term', '')} {row['arm']}".strip()}
        for row in frame.to_dict("records")
    ]
    adjusted = ", adjusted" * (result.identification == "adjusted")
    title = f"Means of {result.outcome} by arm{adjusted}"
    return (effects_table(title, found, conf_level, "arm", "mean", tested=False),)


def left_out(count: int) -> str:
    """Say how many effects of a table are not shown."""
    return f"The first {EFFECTS} of {count}; tidy() has them all." if count > EFFECTS else ""


# --- lines and sentences ------------------------------------------------------------------------


def headline(result: Any, conf_level: float = 0.95, **asked: Any) -> Lines:
    """What a short summary says of an effect."""
    rows = rows_of(result, conf_level, **asked)
    what = relation(result) + ("" if result.associated else f" ({result.estimand})")
    return estimates(rows, what, conf_level, at_once=asked.get("simultaneous", False))


def estimates(
    rows: Iterable[Mapping[Any, Any]], what: str, conf_level: float, at_once: bool = False
) -> Lines:
    """Estimates with intervals and p-values, from rows of `tidy`; of many, the first.

    ``at_once`` says that the intervals hold for all of them.
    """
    level, found = f"{percent(conf_level)} CI", list(rows)
    if len(found) == 1:
        return [("About", what), ("Estimate", _line(found[0], effect_cells(found[0]), f"{level} "))]
    most = MOST_ROWS if len(found) > MOST_ROWS + 1 else len(found)
    kind = "simultaneous " if at_once else ""
    of_what = " (of privacy noise only)" if found[0].get("covers") == "noise" else ""
    lines = [("About", f"{what}, with {kind}{level}s{of_what}")]
    pairs = zip(found[:most], cells_of_rows(found[:most]), strict=True)
    lines += [(str(row["term"]), _line(row, cells)) for row, cells in pairs]
    if left := len(found) - most:
        lines.append((f"and {left} more", "tidy() has them all"))
    return lines


def _line(row: Mapping[Any, Any], cells: tuple[str, ...], level: str = "") -> str:
    """An estimate with its interval and p-value."""
    value, _, low, high = cells
    interval = "no interval" if low == NOT_AVAILABLE else f"{level}{low} to {high}"
    interval = low if low == "not estimable" else interval
    p = p_of(row)
    return f"{value} ({interval})" + ("" if math.isnan(p) else f", p {p_words(p)}")


def listed(rows: Sequence[Mapping[Any, Any]]) -> str:
    """Effects with their intervals, from rows of `tidy`, for a sentence."""
    parts, first = [], rows[:_SENTENCES]
    for row, (effect, _, low, high) in zip(first, cells_of_rows(first), strict=True):
        ends = "no interval" if math.isnan(row["conf_low"]) else f"from {low} to {high}"
        parts.append(f"{effect} ({ends}) for {row['term']}")
    more = f"; {len(rows) - _SENTENCES} more are in tidy()" if len(rows) > _SENTENCES else ""
    return "; ".join(parts) + more


def noise_sentence(rows: Sequence[Mapping[Any, Any]]) -> str:
    """Say how large the privacy noise is, and the whole error."""
    text = f"The standard deviation of the privacy noise is {_range(r['noise_sd'] for r in rows)}"
    errors = [row["std_error"] for row in rows if not math.isnan(row["std_error"])]
    if not errors:
        return f"{text}; that of the sampling error is not known."
    return f"{text}, that of the whole error {_range(errors)}."


def _range(values: Iterable[float]) -> str:
    known = list(values)
    low, high = to_error((min(known), max(known)), min(known))
    return low if low == high else f"{low} to {high}"


def effect_sentence(
    estimate: float, error: float, interval: Interval, p: float | Unavailable
) -> str:
    """Estimate, standard error, interval and p-value."""
    value, se, low, high = to_error((estimate, error), error, ends=tuple(interval))
    significance = "" if isinstance(p, Unavailable) else f"; p {p_words(p)}"
    return (
        f"The estimate was {value} (standard error {se}; {percent(interval.conf_level)} confidence "
        f"interval from {low} to {high}{significance})."
    )


def missing_words(interval: Interval | Unavailable) -> str:
    """Say what is not there where there is no interval; empty where there is one."""
    if not isinstance(interval, Unavailable):
        return ""
    return f"standard error, interval and p-value ({interval})"


def split(sampling: float, noise: float, rest: str = "Sampling error", bias: float = 0.0) -> str:
    """Say how the error divides into sampling (or what the ``rest`` is called) and privacy.

    ``bias`` is the variance that is allowed for possible biases.
    """
    total = sampling + noise + bias
    share = 100 * noise / total if total > 0.0 else 0.0
    error = math.sqrt(total)
    sds = to_error((math.sqrt(sampling), math.sqrt(noise)), error)
    return (
        f"{rest} had a standard deviation of {sds[0]} and privacy noise one of {sds[1]}, "
        f"which is {share:.1f} % of the variance."
    )


def difference_cells(value: float, sd: float) -> tuple[str, str]:
    """A standardised difference, with a dagger where it is within its noise, and the noise."""
    text = "n/a" if math.isnan(value) else f"{round(value, 3) + 0.0:.3f}"
    text = f"{text}†" if within_noise(value, sd) else text
    return printed(text, hidden(value, sd)), f"{sd:.3f}" if math.isfinite(sd) else "n/a"


def narrower(randomised: bool | None, than: str) -> str:
    """Say which call has narrower intervals for one outcome by group ``than`` another.

    Empty where none has; None stands for a design that is not known.
    """
    call, where = 'dp_ate(by=..., design="randomised")', "Where treatment was randomised"
    if randomised is not None:
        where = "For one outcome by group"
    if randomised is False:
        call = 'dp_cate(release="groups", by=...)'
    return "" if call.startswith(than) else f"{where}, {call} usually has narrower intervals."
