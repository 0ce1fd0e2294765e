"""Summary of an effect on a scale."""

from __future__ import annotations

from dpeffects.report.blocks import starred
from dpeffects.results.scaled import SCALES, ScaledEffect
from dpeffects.summary import Pairs, Summary, summarise


@summarise.register
def _(found: ScaledEffect) -> Summary:
    guarantee = str(found.about.get("guarantee", ""))
    void = f"NOT PRIVATE: {guarantee[6:]}" if guarantee.startswith("void") else ""
    rows = [(name.capitalize(), str(found.about.get(name, ""))) for name in ("estimand", "method")]
    pairs = Pairs((("Found", found.words), *(row for row in rows if row[1])))
    title = f"The effect as {SCALES[found.scale]}"
    return Summary(title, starred((void, found.caution)), (pairs,))
