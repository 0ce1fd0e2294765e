"""Mean outcomes by arm, and an effect as a ratio, odds, lift or number needed to treat."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from dpeffects.errors import OptionError, not_among
from dpeffects.guarantee import alarm
from dpeffects.inference import Estimate, Interval, Means, Unavailable, scales
from dpeffects.inference import intervals as inference
from dpeffects.inference.intervals import NO_TEST
from dpeffects.lazy import pd
from dpeffects.results.export import AtALevel, effect_row, frame_of, or_nan
from dpeffects.results.numbers import number, with_ends
from dpeffects.results.words import capital, p_words, percent, related
from dpeffects.summary import Pairs, Shown, Summary, show, starred

SCALES = {
    "difference": "difference of means",
    "ratio": "ratio of means",
    "odds": "odds ratio",
    "lift": "lift",
    "nnt": "number needed to treat",
}
"""Scales of an effect, in words."""
ARMS = ("treated", "control")
NO_MEANS = Unavailable(
    "this method releases no mean outcomes; means=True in the call adds them out of a share of the "
    "budget"
)


NO_ERROR = Unavailable("on this scale there is none")


@dataclass(frozen=True)
class ScaledEffect(Shown, AtALevel):
    """An effect on a scale: a number, its interval, its p-value, and a sentence about them.

    ``scale`` is one of "difference", "ratio", "odds", "lift" (ratio less 1) and "nnt" (1 over the
    difference of two risks). An interval may end in infinity. That of a number needed to treat goes
    through infinity, where the difference may be zero: then ``through_infinity`` is True, and it
    has all numbers from its lower end up and all from its upper end down. Printing it gives the
    sentence.
    """

    scale: str
    estimate: float
    interval: Interval | Unavailable
    p_value: float | Unavailable
    words: str
    through_infinity: bool = False
    std_error: float | Unavailable = NO_ERROR
    about: Mapping[str, Any] = field(default_factory=dict)
    caution: str = ""
    conf_level: float = 0.95
    again: Callable[..., Any] | None = field(default=None, repr=False, compare=False)

    def tidy(self, conf_level: float | None = None) -> pd.DataFrame:
        """One row, with the columns of `Result.tidy`; what is not available is NaN."""
        found = self.at(conf_level)
        about = {**self.about} | ({} if self.scale == "difference" else {"scale": self.scale})
        values = found.estimate, found.std_error, found.p_value, found.interval
        return frame_of([effect_row(*values, **about)])

    def summary(self, form: str = "full", *, conf_level: float | None = None) -> Summary:
        """The same as a summary, with what nobody should overlook; it is short in any case."""
        return show(self.at(conf_level), form)

    def _summary(self) -> Summary:
        guarantee = str(self.about.get("guarantee", ""))
        void = f"NOT PRIVATE: {guarantee[6:]}" if guarantee.startswith("void") else ""
        rows = [
            (name.capitalize(), str(self.about.get(name, ""))) for name in ("estimand", "method")
        ]
        pairs = Pairs((("Found", self.words), *(row for row in rows if row[1])))
        title = f"The effect as {SCALES[self.scale]}"
        return Summary(title, starred((void, self.caution)), (pairs,))

    def __str__(self) -> str:
        mark = alarm(self.about.get("guarantee", "exact"))
        return f"*** {mark} ***\n{self.words}" if mark else self.words


_ALSO = {
    **dict.fromkeys(("rd", "risk difference"), "difference"),
    **dict.fromkeys(("rr", "risk ratio", "relative risk"), "ratio"),
    **dict.fromkeys(("or", "odds ratio"), "odds"),
}
"""What epidemiologists call the scales."""


def check_scale(scale: str) -> str:
    """Return one of the scales, which may be given by another name, such as "RR"."""
    if isinstance(scale, str):
        scale = _ALSO.get(scale.casefold().replace("_", " "), scale)
    if not isinstance(scale, str) or scale not in SCALES:
        raise OptionError(not_among("scale", scale, SCALES))
    return scale


def scaled_effect(
    released: Estimate, scale: str, conf_level: float, treatment: str, outcome: str, **about: Any
) -> ScaledEffect:
    """Put an effect on a scale; refuses scales that the outcome, as declared, does not have.

    ``about`` are further fields of the result.
    """
    inference.check_conf_level(conf_level)
    scale = check_scale(scale)
    means = None if scale == "difference" else _require(released.means, scale)
    value, ends = released.point, inference.interval(released, conf_level)
    p, through = inference.p_value(released), False
    if scale == "nnt":
        value, ends, through = _needed(value, ends)
    elif means is not None:
        found = (scales.odds if scale == "odds" else scales.ratio)(means, conf_level)
        less = 1.0 if scale == "lift" else 0.0
        value, ends = found.value - less, found.interval
        p = Unavailable(NO_TEST) if released.associated else found.p_value
        if less and not isinstance(ends, Unavailable):
            ends = Interval(ends.lower - less, ends.upper - less, conf_level)
    named = f"{capital(related(treatment, outcome, released.associated))}, {SCALES[scale]}"
    shown: tuple[float, Interval | Unavailable] = (value, ends)
    if scale == "nnt":
        named += f" for one {'fewer' if value < 0.0 and not through else 'more'} with {outcome} = 1"
        named += " (negative: for one fewer)" if through else ""
        if not through:  # numbers of people, whose sign words say
            shown = abs(value), ends
            if isinstance(ends, Interval):
                low, high = sorted(map(abs, ends))
                shown = abs(value), Interval(low, high, conf_level)
    words = _said(scale, named, *shown, p, through)
    if scale != "difference":
        about = about | {"std_error": NO_ERROR}
    given = {"treatment": treatment, "outcome": outcome, **about}
    again = partial(scaled_effect, released, scale, **given)
    made = (scale, value, ends, p, words, through)
    return ScaledEffect(*made, conf_level=conf_level, again=again, **about)


def _require(means: Means | None, scale: str) -> Means:
    """The means that a scale needs, with a range that has it."""
    if means is None:
        raise OptionError(f"{SCALES[scale]}: {NO_MEANS.reason}")
    low = means.possible[0] if means.possible else -math.inf
    if scale in ("odds", "nnt") and not scales.has_odds(means):
        raise OptionError(
            f"{SCALES[scale]} is for outcomes of 0 and 1, declared with the bounds (0, 1)"
        )
    if low < 0.0:
        raise OptionError(
            f"{SCALES[scale]} is for outcomes that cannot be negative, and the declared range of "
            f"this one begins at {number(low)}"
        )
    return means


def _needed(
    value: float, ends: Interval | Unavailable
) -> tuple[float, Interval | Unavailable, bool]:
    """1 over a difference and its interval, which goes through infinity where that has zero."""
    one = 1.0 / value if value else math.inf
    if isinstance(ends, Unavailable):
        return one, ends, False
    low, high = ends
    lower = 1.0 / high if high else math.inf
    upper = 1.0 / low if low else math.inf
    return one, Interval(lower, upper, ends.conf_level), low <= 0.0 <= high


def _said(
    scale: str,
    named: str,
    value: float,
    ends: Interval | Unavailable,
    p: float | Unavailable,
    through: bool,
) -> str:
    """One or two sentences."""
    none = isinstance(ends, Unavailable)
    said, low, high = (number(value, 4), "", "") if none else with_ends(value, *ends)
    undefined = math.isnan(value)
    text = f"{named}: {'not defined' if undefined else said.replace('inf', 'infinity')}"
    if isinstance(ends, Unavailable):
        return f"{text}; its interval is {ends}."
    level = f"{percent(ends.conf_level)} interval"
    if through:
        text += f"; {level}: {low} and more, through infinity (no effect), to {high} and beyond"
    else:
        text += f"; {level} from {low} to {high.replace('inf', 'infinity')}"
    if not isinstance(p, Unavailable):
        text += f"; p {p_words(p)}"
    return ". ".join([text, *_open_ends(scale, ends)]) + "."


def _open_ends(scale: str, ends: Interval) -> list[str]:
    """Say what an interval that does not end means."""
    if scale not in ("ratio", "odds", "lift"):
        return []
    found = []
    if ends.upper == math.inf:
        found.append("The control mean is not bounded away from zero")
        if scale == "odds":
            found[-1] += ", or the treated mean not from one"
    if ends.lower <= (-1.0 if scale == "lift" else 0.0):
        found.append("The treated mean is not bounded away from zero")
    return found


def mean_rows(
    means: Means, conf_level: float, arms: tuple[str, str] = ARMS
) -> list[dict[str, Any]]:
    """Mean outcomes of two arms with standard errors and intervals; what is not there is NaN."""
    rows = []
    for arm, treated in zip(arms, (True, False), strict=True):
        alone = scales.of_mean(means, treated)
        ends = scales.mean_interval(means, treated, conf_level)
        low, high = (math.nan, math.nan) if isinstance(ends, Unavailable) else ends
        error = or_nan(inference.std_error(alone))
        rows.append(
            {
                "arm": arm,
                "mean": alone.point,
                "std_error": error,
                "noise_ratio": scales.mean_noise(means, treated),
                "conf_low": low,
                "conf_high": high,
            }
        )
    return rows
