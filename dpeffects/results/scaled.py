"""Means by arm, and an effect as risk ratio, odds ratio or number needed to treat."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from dpeffects.errors import OptionError, advised, not_among, quoted, refusal
from dpeffects.guarantee import status_warning
from dpeffects.inference import ArmMeans, Estimate, Interval, Unavailable, scales
from dpeffects.inference import intervals as inference
from dpeffects.inference.intervals import NO_TEST
from dpeffects.lazy import pd
from dpeffects.results.export import IntervalResult, effect_row, frame_of, or_nan
from dpeffects.results.number_format import number, with_ends
from dpeffects.results.wording import capital, p_words, percent, related, said
from dpeffects.summary import Pairs, Summary, SummaryMixin, renderer, show, starred

SCALES: dict[str, str] = said("scaled")["scales"]
"""Scales of an effect, in words."""
_OF_RISKS = {"difference": "risk difference", "ratio": "risk ratio"}
ARMS = ("treated", "control")
_MEAN = ("arm", "mean", "std_error", "noise_ratio", "conf_low", "conf_high")
NO_MEANS = Unavailable(said("scaled")["no_means"])
NO_ERROR = Unavailable("on this scale there is none")


@dataclass(frozen=True)
class ScaledEffect(SummaryMixin, IntervalResult):
    """An effect on a scale: a number, its interval, its p-value, and a sentence about them.

    ``scale`` is one of "difference", "ratio", "odds", "lift" (ratio less 1) and "nnt" (1 over the
    difference of two risks). An interval may end in infinity. That of a number needed to treat goes
    through infinity, where the difference may be zero (Altman 1998): then ``through_infinity`` is
    True, and it has all numbers from its lower end up and all from its upper end down. Printing it
    gives the sentence.
    """

    scale: str
    estimate: float
    interval: Interval | Unavailable
    p_value: float | Unavailable
    words: str
    through_infinity: bool = False
    std_error: float | Unavailable = NO_ERROR
    about: Mapping[str, Any] = field(default_factory=dict)
    warnings: str = ""
    conf_level: float = 0.95
    recompute: Callable[..., Any] | None = field(default=None, repr=False, compare=False)

    def tidy(self, conf_level: float | None = None) -> pd.DataFrame:
        """One row, with the columns of `Result.tidy`; what is not available is NaN."""
        found = self.at(conf_level)
        values = found.estimate, found.std_error, found.p_value, found.interval
        return frame_of([effect_row(*values, **self.about) | found._scaled])

    @property
    def _scaled(self) -> dict[str, Any]:
        """What a row says of the scale, and of an interval that goes through infinity."""
        of_nnt = {"through_infinity": self.through_infinity} if self.scale == "nnt" else {}
        return {} if self.scale == "difference" else {"scale": self.scale} | of_nnt

    def summary(self, form: str = "full", *, conf_level: float | None = None) -> Summary:
        """The same as a summary, with the warnings; it is short in any case."""
        return show(self.at(conf_level), form)

    def _summary(self) -> Summary:
        guarantee = str(self.about.get("guarantee", ""))
        void = status_warning(guarantee) if guarantee.startswith("void") else ""
        rows = [
            (name.capitalize(), str(self.about.get(name, ""))) for name in ("estimand", "method")
        ]
        pairs = Pairs((("Result", self.words), *(row for row in rows if row[1])))
        title = f"The effect as {SCALES[self.scale]}"
        return Summary(title, starred((void, self.warnings)), (pairs,))

    def __str__(self) -> str:
        mark = status_warning(self.about.get("guarantee", "exact"))
        return f"*** {mark} ***\n" * bool(mark) + renderer("text").paragraph(self.words, 80)


def check_scale(scale: str) -> str:
    """Return one of the scales, which may be given by another name, such as "RR"."""
    name = "_".join(str(scale).casefold().split())
    if told := advised("other_scales").get(name):
        raise OptionError(f"scale must be one of {', '.join(SCALES)}, got {quoted(scale)}; {told}")
    if (known := advised("scales").get(name, name)) not in SCALES:
        raise OptionError(not_among("scale", scale, SCALES))
    return known


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
    of_risks = released.means is not None and scales.is_risk(released.means)
    called = _OF_RISKS.get(scale, SCALES[scale]) if of_risks else SCALES[scale]
    named = f"{capital(related(treatment, outcome, released.associated))}, {called}"
    shown, sides = (value, ends), ("fewer", "more") if value < 0.0 else ("more", "fewer")
    if scale == "nnt":  # numbers of people, whose sign words say
        named += f" for one {sides[0]} with {outcome} = 1"
        shown = abs(value), ends
        if isinstance(ends, Interval):
            low, high = map(abs, ends if value > 0.0 else reversed([*ends]))
            shown = abs(value), Interval(low, high, conf_level)
    words = _said(scale, named, shown, p, sides if through else ())
    if scale != "difference":
        about = about | {"std_error": NO_ERROR}
    given = {"treatment": treatment, "outcome": outcome, **about}
    recompute = partial(scaled_effect, released, scale, **given)
    made = (scale, value, ends, p, words, through)
    return ScaledEffect(*made, conf_level=conf_level, recompute=recompute, **about)


def _require(means: ArmMeans | None, scale: str) -> ArmMeans:
    """The means that a scale needs, with a range that has it."""
    if means is None:
        raise OptionError(f"{SCALES[scale]}: {NO_MEANS.reason}")
    if why := _lacking(means, scale):
        known = ", ".join(x for x in SCALES if not _lacking(means, x))
        raise OptionError(f"{SCALES[scale]} {why}. This outcome has: {known}")
    return means


def _lacking(means: ArmMeans, scale: str) -> str:
    """Why an outcome, as declared, does not have a scale; empty where it has."""
    if scale in ("odds", "nnt") and not scales.has_odds(means):
        return "is for outcomes of 0 and 1, declared as bounds [0, 1]"
    low = means.possible[0] if means.possible else -math.inf
    negative = scale != "difference" and low < 0.0
    return refusal("negative_outcome", low=number(low)) if negative else ""


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
    scale: str, named: str, shown: tuple[float, Any], p: float | Unavailable, sides: Sequence[str]
) -> str:
    """One or two sentences; both ``sides`` are named where the interval goes through infinity."""
    value, ends = shown
    said, low, high, undefined = number(value, 4), "", "", math.isnan(value)
    if not isinstance(ends, Unavailable):
        known = _relative(scale, value, ends.lower, ends.upper)
        said, low, high = with_ends(value, ends.lower, ends.upper, known)
    text = f"{named}: {'not defined' if undefined else said.replace('inf', 'infinity')}"
    if isinstance(ends, Unavailable):
        return f"{text}; its interval is {ends}."
    level = f"{percent(ends.conf_level)} confidence interval"
    to = f"for one {sides[0]}, through infinity (no effect), " if sides else ""
    other = f" for one {sides[1]}" if sides else ""
    text += f"; {level} from {low} {to}to {high.replace('inf', 'infinity')}{other}"
    if not isinstance(p, Unavailable):
        text += f"; p {p_words(p)}"
    return ". ".join([text, *_open_ends(scale, ends)]) + "."


def _relative(scale: str, value: float, low: float, high: float) -> float:
    """The lower end of a ratio, if it is small: rounded by the width, it would lose its digits."""
    width = (high if math.isfinite(high) else value) - low
    return low if scale in ("ratio", "odds") and 0.0 < 4.0 * low < width else math.nan


def _open_ends(scale: str, ends: Interval) -> list[str]:
    """Say what an interval that does not end means."""
    if scale not in ("ratio", "odds", "lift"):
        return []
    found = []
    if ends.upper == math.inf:
        found.append("A control mean of zero is not excluded")
        if scale == "odds":
            found[-1] += ", or a treated mean of one"
    if ends.lower <= (-1.0 if scale == "lift" else 0.0):
        found.append("A treated mean of zero is not excluded")
    return found


def mean_rows(
    means: ArmMeans, conf_level: float, arms: tuple[str, str] = ARMS
) -> list[dict[str, Any]]:
    """Mean outcomes of two arms with standard errors and intervals; what is not there is NaN."""
    rows = []
    for arm, treated in zip(arms, (True, False), strict=True):
        alone = scales.of_mean(means, treated)
        ends = scales.mean_interval(means, treated, conf_level)
        low, high = (math.nan, math.nan) if isinstance(ends, Unavailable) else ends
        error = or_nan(inference.std_error(alone))
        found = arm, alone.point, error, scales.mean_noise(means, treated), low, high
        rows.append(dict(zip(_MEAN, found, strict=True)))
    return rows
