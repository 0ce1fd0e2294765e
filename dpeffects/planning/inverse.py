"""The epsilon, or the records, that a wanted half-width takes; and why none does."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from dpeffects.errors import OptionError
from dpeffects.estimators._checks import check_choice, is_number
from dpeffects.planning.rehearsal import Planned
from dpeffects.planning.setting import Setting
from dpeffects.progress import bar
from dpeffects.results.export import frame_of
from dpeffects.results.numbers import number
from dpeffects.roots import root

if TYPE_CHECKING:
    import pandas as pd

_FAR, _STRIDE = 20.0, math.log(4.0)
_RANGES = {"epsilon": (1e-3, 1e3), "n": (20.0, 2e5)}
_MOST = 1e8
"""Records, by extrapolation."""


def needed(
    setting: Setting,
    about: str,
    wanted: Mapping[str, float],
    of: str,
    at: Callable[[str], Callable[[float], Planned]],
    reasons: Mapping[str, str] = MappingProxyType({}),
) -> pd.DataFrame:
    """One row for each name: the epsilon, or the records, that its wanted half-width takes.

    ``at`` has for a name the figures at a value; names with ``reasons`` have none.
    """
    check_choice("of", of, ("epsilon", "n"))
    for width in wanted.values():
        if not (is_number(width) and width > 0.0):
            raise OptionError(f"half_width must be positive, got {width!r}")
    rows = []
    for name, width in bar(list(wanted.items()), "solving"):
        value, reason = math.nan, reasons.get(name, "")
        if not reason:
            value, reason = _Search(setting, at(name), width, of).solve()
        rows.append({about: name, of: value, "reason": reason})
    return frame_of(rows, [about, of, "reason"])


@dataclass(frozen=True)
class _Search:
    """The half-width against epsilon or n, on logarithmic scales."""

    setting: Setting
    at: Callable[[float], Planned]
    wanted: float
    of: str

    def excess(self, position: float) -> float:
        """Log of the half-width there over the wanted one."""
        width = self.at(math.exp(position)).half_width
        return min(math.log(width / self.wanted), _FAR) if width > 0 else _FAR

    def solve(self) -> tuple[float, str]:
        """Return the value, NaN if there is none, and what is to be said about it."""
        least, most = _RANGES[self.of]
        here = math.log(min(max(getattr(self.setting, self.of), least), most))
        gap = self.excess(here)
        if gap > 0 and (beyond := self.excess(math.log(most))) > 0:
            return self._unreached(beyond, self.at(most))
        while True:  # walk away from the plan's own value, until the wanted one is passed
            other = min(max(here + math.copysign(_STRIDE, gap), math.log(least)), math.log(most))
            if other == here:
                return least, f"and with less: {number(least)} is the least that was tried"
            beyond = self.excess(other)
            if (beyond > 0) != (gap > 0):
                break
            here, gap = other, beyond
        ends = {here: gap, other: beyond}

        def known(position: float) -> float:
            return ends[position] if position in ends else self.excess(position)

        found = math.exp(root(known, min(ends), max(ends), xtol=0.005))
        value = float(math.ceil(found)) if self.of == "n" else float(f"{found:.3g}")
        note = self.at(value).note
        return value, note if "not adjust" in note else ""

    def _unreached(self, gap: float, last: Planned) -> tuple[float, str]:
        """What stands in the way at the largest epsilon or n that was tried."""
        if last.reason:
            return math.nan, last.reason
        if math.isnan(last.half_width):
            return math.nan, "there is no interval for the effect"
        most, n = number(_RANGES[self.of][1]), self.setting.n
        width = number(float(f"{last.half_width:.3g}"))
        there = f"the half-width is {width} at {self.of} = {most}"
        if last.allows:
            why = f"it allows for confounding, and {last.note}"
            return math.nan, f"{there}, and more cannot help: {why}"
        if self.of == "n":
            needed = _RANGES["n"][1] * math.exp(2.0 * gap)  # half-widths fall with the root of n
            if needed <= _MOST:
                more = f"; {last.note}" if "will not adjust" in last.note else ""
                return float(math.ceil(needed)), f"by extrapolation: {there}{more}"
            return math.nan, f"{there}: it takes more than {number(_MOST)} records"
        needed = n * math.exp(2.0 * gap)
        return math.nan, (
            f"{there}, nearly all of it sampling error: more epsilon cannot help, and about "
            f"n = {number(float(f'{needed:.2g}'))} records are needed"
        )
