"""One call on one sample: what it says against the truth, and what it says without privacy."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from harness import Row

import dpeffects as dpe
from dpeffects.errors import DPEffectsError
from dpeffects.inference.estimate import Unavailable

GUIDE = Path(__file__).resolve().parents[1] / "docs" / "guide" / "accuracy.md"
STANDING = "NOT ADJUSTED: an effect only where"
"""How a warning begins that a method has on every result: what it assumes, not what is broken."""


def compared(
    formula: str, data: Any, method: str, truth: float, estimand: str = "ATE", **given: Any
) -> Row:
    """Error, interval and warnings of a call; one that is refused says why.

    ``levels`` are those of the intervals. ``peer`` adds what the summary assumes, the half-width
    of the same call without privacy and whether that interval has the truth.
    """
    levels, peer = given.pop("levels", (0.95,)), given.pop("peer", False)
    call = f"dp_{estimand.lower()}"
    try:
        fit = getattr(dpe, call)(formula, data, method, **given)
    except DPEffectsError as error:
        return {"refused": 1.0, "said": beginning(str(error))}
    lines = [x for x in fit.released.warning_lines if not x.startswith(STANDING)]
    found = {"refused": 0.0, "warned": float(bool(lines)), "said": beginning("; ".join(lines))}
    found |= {"associated": float(fit.released.associated)}
    intervals = [fit.conf_int(level) for level in levels]
    if any(isinstance(x, Unavailable) for x in intervals):
        return found | {"absent": 1.0}
    for level, (low, high) in zip(levels, intervals, strict=True):
        found[f"cover{100 * level:g}"] = float(low <= truth <= high)
    low, high = intervals[levels.index(0.95)]
    found |= {"absent": 0.0, "half_width": (high - low) / 2, "error": fit.estimate - truth}
    found |= {"std_error": fit.std_error}
    if peer:
        above = re.search(
            r"^Assumes +(.*?)(?=^\S|\Z)", str(fit.summary()), re.MULTILINE | re.DOTALL
        )
        found["assumes"] = " ".join(above[1].split()) if above else "-"
        del given["epsilon"]
        plain = dpe.reference(formula, data, method, call=call, **given).conf_int()
        if not isinstance(plain, Unavailable):
            low, high = plain
            found |= {"peer": (high - low) / 2, "peer covers": float(low <= truth <= high)}
    return found


def beginning(warning: str) -> str:
    """The first words of a warning, without the numbers of one run."""
    return warning.split("; ")[0].split(":")[0][:90]


def geometric(ratios: pd.Series) -> float:
    return float(np.exp(np.log(ratios.dropna().astype(float)).mean()))


def over_peer(runs: pd.DataFrame) -> float:
    """The half-width over that without privacy: the geometric mean of the runs that have both."""
    return geometric(runs["half_width"] / runs["peer"]) if "peer" in runs else np.nan


def commonest(said: pd.Series) -> str:
    told = said[said.fillna("") != ""]
    return told.mode().iloc[0] if len(told) else ""


def into_guide(mark: str, text: str) -> None:
    """Put a text between its marks in the guide."""
    before, start, rest = GUIDE.read_text(encoding="utf-8").partition(f"<!-- {mark} -->\n")
    after = rest.partition("<!-- end -->")[2]
    GUIDE.write_text(f"{before}{start}{text}\n<!-- end -->{after}", encoding="utf-8")
