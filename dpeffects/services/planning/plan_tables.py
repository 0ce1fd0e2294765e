"""What all plans have: one table, one inverse (what a half-width takes), one set of words."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, ClassVar

from dpeffects.errors import OptionError, checked_call, quoted
from dpeffects.estimators.option_checks import check_choice, is_number
from dpeffects.guarantee import Guarantee
from dpeffects.lazy import pd
from dpeffects.progress import bar
from dpeffects.results.export import JsonDocument, frame_of
from dpeffects.results.number_format import number, to_error
from dpeffects.roots import root
from dpeffects.services.planning.rehearsal import MOST_RECORDS, PlannedMethod
from dpeffects.services.planning.setting import PlanSetting, known_names
from dpeffects.summary import Block, Summary, SummaryMixin, Table, noted, starred

_FAR, _STRIDE = 20.0, math.log(4.0)
_RANGES = {"epsilon": (1e-3, 1e3), "n": (20.0, 1e8)}
_EXACT, _ROUNDED = 0.002, 0.003
"""Relative error of a value that is found, and of a half-width as tables show it."""
COLUMNS = {
    "sampling_se": "sampling SE",
    "noise_sd": "privacy-noise SD",
    "bias_sd": "bias allowance",
    "std_error": "total SE",
    "half_width": "half-width",
    "unadjusted": "half-width, unadjusted for multiplicity",
}
"""Figures of plans, as tables call them."""


class PlannedRows(SummaryMixin, JsonDocument):
    """Expected figures in rows, which a plan shows as tables: print it."""

    _title: ClassVar[str]
    _blocks: Callable[..., Iterable[Block]]
    """What it has to say."""

    def _summary(self) -> Summary:
        return Summary(self._title.format(self), self._starred(), tuple(self._blocks()))

    def _starred(self) -> str:
        return ""

    __repr__ = SummaryMixin.__str__


def weak(setting: PlanSetting, epsilon: float) -> str:
    """What a fit with that epsilon would warn of."""
    return Guarantee(epsilon, setting.delta).warnings(setting.n)


class Invertible(PlannedRows):
    """Plans that can be solved for the epsilon, or the number of records, of a half-width."""

    setting: PlanSetting
    _about: ClassVar[str]
    """What has a half-width."""
    _reasons: Callable[..., Mapping[str, str]]
    """Names that have a half-width, with the reasons of those that have none."""
    _figures_at: Callable[..., Callable[[str, float], PlannedMethod]]
    """Figures of a name with another epsilon or n."""

    def _starred(self) -> str:
        return starred((weak(self.setting, self.setting.epsilon),))

    @checked_call
    def required(
        self, half_width: float | Mapping[str, float], *, of: str = "epsilon"
    ) -> pd.DataFrame:
        """Return the epsilon (or, with ``of="n"``, the number of records) for a half-width.

        ``half_width`` is a number, or a mapping with one for each method or outcome; for a study
        it is that of the simultaneous intervals for all outcomes, in all records. The search goes
        from the plan's own value outwards: a method that adjusts for more as its budget grows may
        reach the half-width at a smaller value too, without adjusting. A plan with the value found
        has the half-width, to the digits that are shown. The result is NaN where no epsilon up to
        1,000 (or 10^8 records, by extrapolation) reaches it; the column note says why, or what to
        know about the value found. The column ``assumed`` names the arguments that were not stated.
        """
        reasons = self._reasons()
        wanted = (
            half_width if isinstance(half_width, Mapping) else dict.fromkeys(reasons, half_width)
        )
        known_names("half_width", wanted, list(reasons))
        check_choice("of", of, ("epsilon", "n"))
        for width in wanted.values():
            if not (is_number(width) and width > 0.0):
                what = f"{quoted(width)} ({type(width).__name__})"
                raise OptionError(f"half_width must be a positive number, got {what}")
        rows, at = [], self._figures_at(of)
        for name, width in bar(list(wanted.items()), "solving"):
            value, reason = math.nan, reasons[name]
            if not reason:
                value, reason = _Search(self.setting, cache(partial(at, name)), width, of).solve()
            rows.append((name, value, reason, self.setting.unstated))
        return frame_of(rows, [self._about, of, "note", "assumed"])


def planned_table(
    title: str, rows: Iterable[Any], texts: Mapping[str, str], figures: Sequence[str], **called: str
) -> Table:
    """A table of planned rows: texts, and figures to three digits of the standard error.

    They are no estimates. A figure may be ``called`` by another name.
    """
    names = [(COLUMNS | called).get(name, name) for name in figures]
    cells = [(*(getattr(row, name) for name in texts), *_figures(row, figures)) for row in rows]
    return Table(
        title, (*texts.values(), *names), tuple(cells), "l" * len(texts) + "r" * len(names)
    )


def _figures(row: Any, names: Iterable[str]) -> tuple[str, ...]:
    values = {name: getattr(row, name) for name in names}
    power = (f"{values.pop('power'):.2f}",) if "power" in values else ()
    return (*to_error(list(values.values()), row.std_error, 3), *power)


def needed_blocks(needed: pd.DataFrame, width: float) -> list[Block]:
    """What `required` found, in words."""
    found = list(needed.itertuples(index=False, name=None))
    rows = tuple((name, number(x) if x == x else "not reachable") for name, x, *_ in found)
    about, of = map(str, needed.columns[:2])
    notes = noted(f"{name}: {why}" for name, _, why, _ in found if why)
    table = Table(f"Required for a half-width of {number(width)}", (about, of), rows, "lr")
    return [table, notes] if notes else [table]


@dataclass(frozen=True)
class _Search:
    """The half-width against epsilon or n, on logarithmic scales: ``at`` another one of them."""

    setting: PlanSetting
    at: Callable[[float], PlannedMethod]
    wanted: float
    of: str

    def excess(self, value: float) -> float:
        """Log of the half-width there over the wanted one."""
        width = self.at(value).half_width
        return min(math.log(width / self.wanted), _FAR) if width > 0 else _FAR

    def shown(self, position: float) -> float:
        """The epsilon of three digits, or the whole n, at a position or next above it."""
        value = math.exp(position)
        step = 1.0 if self.of == "n" else 10.0 ** (math.floor(math.log10(value)) - 2)
        return float(f"{math.ceil(round(value / step, 6)) * step:.9g}")

    def solve(self) -> tuple[float, str]:
        """Return the value, NaN if there is none, and what is to be said about it."""
        least, most = _RANGES[self.of]
        own = float(min(max(getattr(self.setting, self.of), least), most))
        tried = {own: self.excess(own)}
        here, gap = math.log(own), tried[own]
        if abs(gap) <= _ROUNDED:
            return own, self._remark(own)
        if gap > 0 and (beyond := self.excess(most)) > 0:
            return self._unreached(beyond, self.at(most))
        while True:  # walk away from the plan's own value, until the wanted one is passed
            other = min(max(here + math.copysign(_STRIDE, gap), math.log(least)), math.log(most))
            if other == here:
                return least, f"and with less: {number(least)} is the least that was tried"
            tried[self.shown(other)] = beyond = self.excess(self.shown(other))
            if (beyond > 0) != (gap > 0):
                break
            here, gap = other, beyond
        ends = {here: gap, other: beyond}

        def known(position: float) -> float:
            value = self.shown(position)
            tried[value] = ends[position] if position in ends else self.excess(value)
            return tried[value]

        root(known, min(ends), max(ends), xtol=_EXACT)
        value = min(x for x, gap in tried.items() if gap <= _ROUNDED)
        return value, self._remark(value)

    def _remark(self, value: float) -> str:
        note = self.at(value).note
        far = "by extrapolation" if self.of == "n" and value > MOST_RECORDS else ""
        known = note if "not adjust" in note else ""
        warned = weak(self.setting, value) if self.of == "epsilon" else ""
        return "; ".join(filter(None, (far, known, warned)))

    def _unreached(self, gap: float, last: PlannedMethod) -> tuple[float, str]:
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
            return math.nan, f"{there}: it takes more than that"
        needed = n * math.exp(2.0 * gap)
        return math.nan, (
            f"{there}, nearly all of it sampling error: more epsilon cannot help, and about "
            f"n = {number(float(f'{needed:.2g}'))} records are needed"
        )
