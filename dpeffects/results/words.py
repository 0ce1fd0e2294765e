"""Numbers in words: what tables and sentences say of an estimate."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dpeffects.results.numbers import to_error, with_ends
from dpeffects.summary import printed


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
    return "< 0.0001" if p < 1e-4 else f"= {p:.4f}"


def effect_cells(row: Mapping[Any, Any], error: float | None = None) -> tuple[str, ...]:
    """Estimate, standard error and both ends of the interval of a row of `tidy`.

    They have two digits of the standard error, or of another ``error``. Where an estimate is mostly
    noise, its interval holds all the same.
    """
    shown = (row["estimate"], row["std_error"])
    known = error_of(row) if error is None else error
    value, *others = to_error(shown, known, ends=(row["conf_low"], row["conf_high"]))
    return printed(value, row.get("noise_ratio", 0.0)), *others


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
