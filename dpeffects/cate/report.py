"""The sentences about conditional effects."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from dpeffects.results.numbers import number, numbers
from dpeffects.results.report import paragraph

if TYPE_CHECKING:
    import pandas as pd

    from dpeffects.cate.results import CateEffects, CateFunction

_SHOWN = 6
_NOISE_ONLY = "an interval for the effect (the intervals below cover privacy noise only)"


def about_function(fit: CateFunction, conf_level: float) -> str:
    """Write the paragraph for an effect function."""
    rows = _records(fit.tidy(conf_level))
    covers = rows[0]["covers"]
    bands = (
        "The bands cover privacy noise, sampling error and shrinkage, and hold on average over "
        "points."
        if covers == "effect"
        else "The bands cover privacy noise only, not sampling error and shrinkage."
    )
    found = [
        "An effect function of the covariates was released, which can be asked for any of their "
        f"values; the average effect, released first, is {number(fit.function.average)}.",
        "Along each covariate, with the others midway, effects with pointwise "
        f"{_percent(conf_level)} bands are {_listed(rows)}.",
        f"{bands} {_noise(rows)}",
    ]
    return paragraph(fit, found, "" if covers == "effect" else _NOISE_ONLY)


def about_effects(fit: CateEffects, conf_level: float) -> str:
    """Write the paragraph for effects at points or by group."""
    rows = _records(fit.tidy(conf_level))
    groups = fit.kind == "groups"
    where = "by group" if groups else "at the points asked for"
    covers = (
        "The intervals cover sampling error and privacy noise, one group at a time and not all at "
        "once."
        if groups
        else "The intervals say where the fitted effects would be without privacy noise; they "
        "leave out sampling error and shrinkage, so they are no evidence for or against effects."
    )
    found = [
        f"Effects {where}, with {_percent(conf_level)} intervals, are {_listed(rows)}.",
        f"{covers} {_noise(rows)}",
    ]
    lost = [row for row in rows if math.isnan(row["conf_low"])]
    missing = f"an interval for {len(lost)} of {len(rows)} {fit.kind} (not available)"
    return paragraph(fit, found, missing if lost else "" if groups else _NOISE_ONLY)


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    return [dict(zip(frame.columns, row, strict=True)) for row in frame.itertuples(index=False)]


def _percent(level: float) -> str:
    return f"{100 * level:.4g} %"


def _listed(rows: list[dict[str, Any]]) -> str:
    parts = []
    for row in rows[:_SHOWN]:
        values = [row["estimate"], row["conf_low"], row["conf_high"]]
        if math.isnan(values[1]):
            parts.append(f"{number(values[0])} (no interval) for {row['term']}")
        else:
            effect, low, high = numbers(values)
            parts.append(f"{effect} (from {low} to {high}) for {row['term']}")
    more = f"; {len(rows) - _SHOWN} more are in tidy()" if len(rows) > _SHOWN else ""
    return "; ".join(parts) + more


def _noise(rows: list[dict[str, Any]]) -> str:
    sds = [row["noise_sd"] for row in rows]
    low, high = numbers((min(sds), max(sds)))
    words = f"{low}" if low == high else f"{low} to {high}"
    text = f"The standard deviation of the privacy noise is {words}"
    errors = [row["std_error"] for row in rows if not math.isnan(row["std_error"])]
    if not errors:
        return f"{text}; that of the sampling error is not known."
    low, high = numbers((min(errors), max(errors)))
    return f"{text}, that of the whole error {low if low == high else f'{low} to {high}'}."
