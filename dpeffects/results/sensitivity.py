"""SensitivityAnalysis: how sensitive an effect is to unmeasured confounding.

All of it is computed from released numbers, so nothing is spent.

How strong confounding must be to explain an estimate away: numbers in, numbers out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Real
from typing import Any

from dpeffects.errors import OptionError
from dpeffects.inference import Interval, SamplingVariance, Unavailable, ratio_of, scales
from dpeffects.inference import intervals as inference
from dpeffects.lazy import pd
from dpeffects.results import wording
from dpeffects.results.export import effect_row, frame_of, or_nan, plain
from dpeffects.results.number_format import NOT_AVAILABLE, number, to_error, with_error
from dpeffects.results.result_base import SingleEstimateResult
from dpeffects.results.wording import Lines, asked_for, estimates, limits, percent, relation, said
from dpeffects.summary import Block, Summary, Table, draw, show

OUTCOME_SD = "standard deviation of the outcome"
"""Where the details of a method have the standard deviation of outcomes, if it was released."""
_DIFFERENCES = (0.1, 0.25, 0.5, 1.0)
"""By how much the prevalence of a confounder may differ between the arms."""
_FIGURES = ("tipping_bias", "risk_ratio", "e_value", "robustness_value")
_SAID = said("sensitivity")
_RANGE = re.compile(r"\[([-+0-9.e]+), ([-+0-9.e]+)\]")


@dataclass(frozen=True, repr=False, kw_only=True)
class SensitivityAnalysis(SingleEstimateResult, picture="report.plots.diagnostics.sensitivity"):
    """Sensitivity of an effect to unmeasured confounding; made by ``fit.sensitivity()``.

    Parameters
    ----------
    released
        What the method released.
    bias
        The stated bias, in units of the outcome, or None.
    prevalence_difference, confounder_effect
        The two numbers that the stated bias is the product of, or None.
    outcome_sd, control_risk, conf_level
        As given to ``fit.sensitivity()``.
    estimand, method, ...
        The fields of `ResultBase`.

    Examples
    --------
    >>> import dpeffects as dpe
    >>> nsw = dpe.load_data("lalonde")
    >>> fit = dpe.dp_ate("earnings_1978 ~ treatment", nsw, "diff_in_means", epsilon=1, seed=1)
    >>> fit.sensitivity(bias=500).interval(500) == fit.conf_int()
    False
    """

    _computed = ("warnings",)
    _titled = "Sensitivity to confounding of the {0._relation}"
    _released = False
    bias: float | None = None
    prevalence_difference: float | None = None
    confounder_effect: float | None = None
    outcome_sd: float | None = None
    control_risk: float | None = None
    conf_level: float = 0.95

    def __post_init__(self) -> None:
        inference.check_conf_level(self.conf_level)
        names = ("bias", "prevalence_difference", "confounder_effect", "outcome_sd", "control_risk")
        for name in names:
            value = getattr(self, name)
            real = isinstance(value, Real) and not isinstance(value, bool)
            if not (value is None or (real and math.isfinite(value))):
                raise OptionError(f"{name} must be a finite number, got {value!r}")
        pair = (self.prevalence_difference, self.confounder_effect)
        if (pair[0] is None) != (pair[1] is None):
            raise OptionError("prevalence_difference and confounder_effect go together")
        if self.bias is not None and pair[0] is not None:
            raise OptionError("give bias, or prevalence_difference and confounder_effect, not both")
        if pair[0] is not None and abs(pair[0]) > 1.0:
            raise OptionError(f"prevalence_difference lies between -1 and 1, got {pair[0]!r}")
        if self.outcome_sd is not None and self.outcome_sd <= 0.0:
            raise OptionError(f"outcome_sd must be positive, got {self.outcome_sd!r}")
        if self.control_risk is not None and not 0.0 < self.control_risk < 1.0:
            raise OptionError(f"control_risk lies between 0 and 1, got {self.control_risk!r}")
        if self.control_risk is not None and self.outcome_range not in (None, (0.0, 1.0)):
            raise OptionError("control_risk is for an outcome of 0 and 1")

    # --- what is looked at ------------------------------------------------------------------------

    @property
    def limit(self) -> float | Unavailable:
        """The limit of the interval that is nearest to no effect; 0 where the interval has it."""
        whole = self.interval(0.0)
        if isinstance(whole, Unavailable):
            return whole
        return max(whole.lower, 0.0) if self.estimate > 0.0 else min(whole.upper, 0.0)

    @property
    def outcome_range(self) -> tuple[float, float] | None:
        """The range of the outcome, where it is known."""
        for name, text, _ in self.bounds:
            written = _RANGE.fullmatch(text)
            if name == self.outcome and written:
                return float(written[1]), float(written[2])
        return None

    @property
    def deviation(self) -> tuple[float, str] | Unavailable:
        """Standard deviation of the outcome, and where it comes from."""
        if self.outcome_sd is not None:
            return self.outcome_sd, "as given"
        released = self.released.details.get(OUTCOME_SD)
        if isinstance(released, Real) and 0.0 < float(released) < math.inf:
            return float(released), "as released"
        if self.outcome_range is None:
            return Unavailable("the outcome's standard deviation is not known: give outcome_sd")
        low, high = self.outcome_range
        return (high - low) / 4.0, "a quarter of its range, for want of a released one"

    # --- what it takes to explain it away ---------------------------------------------------------

    @cached_property
    def risks(self) -> scales.ScaleComparison | None:
        """The ratio of both released risks, with its interval; None where there are none."""
        means = self.released.means
        known = means is not None and scales.has_odds(means) and self.control_risk is None
        return scales.ratio(means, self.conf_level) if known and means is not None else None

    @property
    def approximate(self) -> bool:
        """Whether risk ratios are approximate, for want of risks."""
        return self.risks is None and self.control_risk is None

    def risk_ratio(self, effect: float) -> float | Unavailable:
        """The risk ratio of an effect, to the released risk of controls or ``control_risk``.

        It is approximate where there is neither, or the outcome is not one of 0 and 1.
        """
        if not math.isfinite(effect):
            return Unavailable("the estimate is not a finite number")
        control, means = self.control_risk, self.released.means
        if self.risks is not None and means is not None:
            control = min(max(means.control, 0.0), 1.0)
        if control == 0.0:
            return Unavailable("the released risk of controls is not above zero")
        if control is not None:
            return min(max(control + effect, 0.0), 1.0) / control
        known = self.deviation
        if isinstance(known, Unavailable):
            return known
        return approximate_risk_ratio(effect / known[0])

    @property
    def risk_ratio_limit(self) -> float | Unavailable:
        """The limit of the interval of the risk ratio that is nearest to 1; 1 where it has 1."""
        ends = None if self.risks is None else self.risks.interval
        if isinstance(ends, Interval):
            return max(ends.lower, 1.0) if self.estimate > 0.0 else min(ends.upper, 1.0)
        limit = self.limit if ends is None else ends
        return limit if isinstance(limit, Unavailable) else self.risk_ratio(limit)

    def e_value(self, effect: float) -> float | Unavailable:
        """The E-value of an effect."""
        return _e_value(self.risk_ratio(effect))

    def robustness_value(self, effect: float) -> float | Unavailable:
        """Cinelli and Hazlett's robustness value, from the sampling error and n."""
        sampling = self.released.sampling
        if self.estimand != "ATE":
            return Unavailable("a robustness value is for the coefficient of a regression, an ATE")
        if isinstance(sampling, SamplingVariance) and sampling.value < sampling.noise_scale:
            return Unavailable("the sampling variance is hardly known")
        variance = inference.sampling_variance(self.released)
        if isinstance(variance, Unavailable):
            return variance
        if not (math.isfinite(effect) and variance > 0.0):
            return Unavailable("there is no sampling error")
        return robustness_value(effect, math.sqrt(variance), self.n)

    # --- under a stated strength ------------------------------------------------------------------

    @property
    def stated(self) -> float | None:
        """The stated bias, in units of the outcome."""
        if self.prevalence_difference is not None and self.confounder_effect is not None:
            return self.prevalence_difference * self.confounder_effect
        return self.bias

    def interval(self, bias: float, *, either_way: bool = False) -> Interval | Unavailable:
        """Interval for the effect if confounding added ``bias`` to the estimate.

        ``either_way`` is for a bias of at most this size, in whatever direction.
        """
        whole = inference.interval(self.released, self.conf_level)
        if isinstance(whole, Unavailable):
            return whole
        below, above = (abs(bias), -abs(bias)) if either_way else (bias, bias)
        low, high = self.released.possible or (-math.inf, math.inf)
        ends = [min(max(x, low), high) for x in (whole.lower - below, whole.upper - above)]
        return Interval(ends[0], ends[1], self.conf_level)

    # --- frames, JSON, pictures -------------------------------------------------------------------

    def readings(self) -> list[tuple[str, float, float, Interval | Unavailable]]:
        """Each reading of the estimate: its name, the bias, the estimate and the interval then."""
        bias = self.stated
        found = [("as released", 0.0, self.estimate, self.interval(0.0))]
        if bias is not None:
            low, high = self.released.possible or (-math.inf, math.inf)
            shifted = min(max(self.estimate - bias, low), high)
            found.append(("bias taken off", bias, shifted, self.interval(bias)))
            widened = self.interval(bias, either_way=True)
            found.append(("bias either way", abs(bias), self.estimate, widened))
        return found

    def tidy(self, conf_level: float | None = None) -> pd.DataFrame:
        """One row for the effect as released, and two under the stated bias."""
        if conf_level is not None:
            return replace(self, conf_level=conf_level).tidy()
        about = {name: getattr(self, name) for name in ("outcome", "estimand", "method")}
        about |= {"guarantee": self.guarantee.status}
        error = inference.std_error(self.released)
        none = Unavailable("no test")
        rows = [
            effect_row(estimate, error, none, interval, term=name, **about) | {"bias": bias}
            for name, bias, estimate, interval in self.readings()
        ]
        return frame_of(rows)

    def _glance(self) -> dict[str, Any]:
        """The release, and what it takes to explain it away."""
        return super()._glance() | {k: or_nan(x) for k, x in self.figures().items()}

    def figures(self) -> dict[str, float | Unavailable]:
        """What moves the estimate, and the limit of its interval, to no effect."""
        found: dict[str, float | Unavailable] = {}
        ratios = self.risk_ratio(self.estimate), self.risk_ratio_limit
        ends = ("", self.estimate, ratios[0]), ("_limit", self.limit, ratios[1])
        for end, value, ratio in ends:
            figures: tuple[float | Unavailable, ...] = (value,) * len(_FIGURES)
            if not isinstance(value, Unavailable):
                robust = self.robustness_value(value)
                figures = (abs(value), ratio, _e_value(ratio), robust)
            found |= {name + end: x for name, x in zip(_FIGURES, figures, strict=True)}
        return found

    def plot(self, *, ax: Any = None) -> Any:
        """Draw estimate and interval against the bias; return the axes (matplotlib)."""
        return draw(self, ax=ax)

    def to_dict(self, conf_level: float = 0.95) -> dict[str, Any]:
        """Plain values for JSON; what is not available is ``{"unavailable": reason}``."""
        names = ("reading", "bias", "estimate", "conf_int")
        readings = [dict(zip(names, reading, strict=True)) for reading in self.readings()]
        return plain({"readings": readings, **self.figures()}) | super().to_dict()

    def __repr__(self) -> str:
        found = self.e_value(self.estimate)
        shown = "not available" if isinstance(found, Unavailable) else number(found, 3)
        value = with_error(self.estimate, inference.std_error(self.released))
        return self._line(f"sensitivity of {self.estimand} {value}, E-value {shown}")

    # --- in words ---------------------------------------------------------------------------------

    def summary(self, form: str = "full") -> Summary:
        """All results as titled tables; the main ones with ``form="short"``."""
        return show(self, form, conf_level=self.conf_level)

    @property
    def _relation(self) -> str:
        return relation(self)

    @property
    def _subject(self) -> str:
        return f"the sensitivity to confounding of the {self._relation} ({self.estimand})"

    def _headed(self, conf_level: float) -> Mapping[str, str]:
        return {
            "Estimand": asked_for(self),
            "Method": self.method,
            "Records": f"{self.n:,}",
            "Guarantee": self.guarantee.sentence(),
            "Budget": "nothing more was spent: computed from released numbers",
            **dict.fromkeys(("Adjusted for", "Assumes", "Units", "Analysis sample"), ""),
        }

    def _blocks(self, conf_level: float) -> Sequence[Block]:
        found = replace(self, conf_level=conf_level)
        tables = (found._tipping(), found._confounders(), found._stated())
        return [table for table in tables if table]

    def _tipping(self) -> Table:
        """What it takes to explain the estimate away, and to move its interval to zero."""
        figures, (low, high), rows = self.figures(), limits(self.conf_level), []
        for name, value, end in (
            ("estimate", self.estimate, ""),
            (f"{low if self.estimate > 0.0 else high} limit", self.limit, "_limit"),
        ):
            bias, *ratios, share = (figures[name + end] for name in _FIGURES)
            part = "n/a" if isinstance(share, Unavailable) else percent(share, ".1f")
            rows.append((name, self._text(value), self._text(bias), *map(_short, ratios), part))
        columns = ("", "value", "bias to zero", "risk ratio", "E-value", "robustness value")
        return Table(
            "Confounding that would explain the effect away", columns, tuple(rows), "lrrrrr"
        )

    def _confounders(self) -> Table | None:
        """Effects that binary confounders would need, by their prevalence in arms."""
        if not math.isfinite(self.estimate):
            return None
        targets = {"for the estimate": abs(self.estimate)}
        if not isinstance(self.limit, Unavailable):
            targets["for the limit"] = abs(self.limit)
        low, high = self.outcome_range or (-math.inf, math.inf)
        rows = []
        for difference in _DIFFERENCES:
            needed = [x / difference for x in targets.values()]
            texts = zip(self._cells(needed, (), difference), needed, strict=True)
            shown = (text if x <= high - low else "impossible" for text, x in texts)
            rows.append((number(difference), *shown))
        title = f"Effect on {self.outcome} that a binary confounder would need for that"
        columns = ("difference in prevalence", *targets)
        return Table(title, columns, tuple(rows), "l" + "r" * len(targets))

    def _stated(self) -> Table | None:
        """Estimate and interval under the stated bias."""
        if self.stated is None:
            return None
        rows = []
        for name, bias, estimate, interval in self.readings():
            ends = (math.nan, math.nan) if isinstance(interval, Unavailable) else tuple(interval)
            rows.append((name, number(bias, 4), *self._cells((estimate,), ends)))
        columns = ("", "bias", "estimate", *limits(self.conf_level))
        return Table("Effect under the given confounding", columns, tuple(rows), "lrrrr")

    def _noted(self, conf_level: float) -> Sequence[str]:
        found = replace(self, conf_level=conf_level)
        limit, robust = found.limit, found.figures()["robustness_value"]
        notes = [_SAID["means"][self.released.identification], self._ratios]
        if isinstance(limit, Unavailable):
            notes.append(f"The interval is {limit}: only the estimate is looked at.")
        elif limit == 0.0:
            notes.append("The interval includes zero already, without any confounding.")
        notes.append(_SAID["e_value"])
        unknown = isinstance(robust, Unavailable)
        notes.append(f"The robustness value is {robust}." if unknown else _SAID["robustness"])
        if self.prevalence_difference is not None:
            given = number(self.prevalence_difference), number(self.confounder_effect)
            notes.append(_SAID["confounder"].format(*given, self.outcome))
        return notes

    def _headline(self, conf_level: float = 0.95, **asked: Any) -> Lines:
        found = replace(self, conf_level=conf_level)
        rows = estimates(wording.rows_of(self, conf_level), relation(self), conf_level)
        figures, about = found.figures(), " (approximate)" if self.approximate else ""
        for name, end in (("estimate", ""), ("interval", "_limit")):
            bias, e_value = (figures[f"{figure}{end}"] for figure in ("tipping_bias", "e_value"))
            takes = f"a bias of {self._text(bias)}, or confounding of E-value "
            takes += f"{_short(e_value)}{about}"
            if bias == 0.0:
                takes = "nothing: it includes zero already"
            if not end and ratio_of(self.released) > 1.0:
                takes = "nothing: it is mostly privacy noise"
            rows.append((f"Moves the {name} to zero", takes))
        return rows

    def _findings(self, conf_level: float) -> Sequence[str]:
        found = replace(self, conf_level=conf_level)
        figures, level, value = found.figures(), percent(conf_level), self._text(self.estimate)
        limit = figures["tipping_bias_limit"]
        if isinstance(limit, Unavailable):
            text = f"There is no interval ({limit})."
        elif limit == 0.0:
            text = f"The {level} interval includes zero already."
        else:
            e_value = _short(figures["e_value_limit"])
            text = _SAID["limit"].format(self._text(limit), level, e_value)
        return [
            _SAID["away"].format(value, _short(figures["e_value"])),
            text,
            *(
                _SAID["biased"].format(number(bias), name, *self._cells((), tuple(interval)))
                for name, bias, _, interval in found.readings()[1:]
                if not isinstance(interval, Unavailable)
            ),
            self._ratios,
            _SAID["means"][self.released.identification],
        ]

    @property
    def _ratios(self) -> str:
        """How risk ratios were found."""
        if self.control_risk is not None:
            return str(_SAID["given_risk"].format(number(self.control_risk)))
        if not self.approximate:
            return str(_SAID["released_risks"])
        known = self.deviation
        if isinstance(known, Unavailable):
            return f"Risk ratios and E-values are {known}."
        return str(_SAID["approximate"].format(number(known[0], 3), known[1]))

    def _cells(
        self, values: Sequence[float], ends: tuple[float, ...], per: float = 1.0
    ) -> tuple[str, ...]:
        """Numbers in units of the outcome, to two digits of the standard error over ``per``."""
        return to_error(values, or_nan(inference.std_error(self.released)) / per, ends=ends)

    def _text(self, value: float | Unavailable) -> str:
        return self._cells((), (or_nan(value),))[0]


def _short(value: float | Unavailable) -> str:
    """A number of which three digits are enough."""
    return NOT_AVAILABLE if isinstance(value, Unavailable) else number(value, 3)


def _e_value(ratio: float | Unavailable) -> float | Unavailable:
    return ratio if isinstance(ratio, Unavailable) else e_value(ratio)


PER_DEVIATION = 0.91
"""The log of a risk ratio for each standard deviation of a difference in means."""


def e_value(risk_ratio: float) -> float:
    """E-value of a risk ratio (VanderWeele and Ding, Annals of Internal Medicine 2017).

    The least risk ratio that an unmeasured confounder must have with treatment and with outcome,
    both, given the measured ones, to turn no effect into this one.

    Examples
    --------
    >>> round(e_value(3.9), 2), round(e_value(1 / 3.9), 2), e_value(1.0)
    (7.26, 7.26, 1.0)
    """
    if not risk_ratio >= 0.0:
        raise OptionError(f"a risk ratio is not negative, got {risk_ratio!r}")
    if risk_ratio in (0.0, math.inf):
        return math.inf
    away = max(risk_ratio, 1.0 / risk_ratio)
    return away + math.sqrt(away) * math.sqrt(away - 1.0)


def approximate_risk_ratio(deviations: float) -> float:
    """Risk ratio that a standardised difference in means is about as strong as: exp(0.91 d).

    Examples
    --------
    >>> round(approximate_risk_ratio(0.5), 3)
    1.576
    """
    exponent = PER_DEVIATION * deviations
    return math.exp(exponent) if exponent < 700.0 else math.inf


def robustness_value(bias: float, std_error: float, df: float) -> float:
    """Robustness value (Cinelli and Hazlett, JRSS B 2020), between 0 and 1.

    A confounder that explains this part of what is left of the variance of both, treatment and
    outcome, shifts the coefficient of a linear regression by ``bias``; ``std_error`` is that of the
    coefficient, with ``df`` degrees of freedom.

    Examples
    --------
    >>> round(robustness_value(0.097, 0.0232, 783), 3)  # their example, on attitudes in Darfur
    0.139
    """
    f = abs(bias) / (std_error * math.sqrt(df))
    return 2.0 * f / (math.sqrt(f * f + 4.0) + f)  # (sqrt(f^4 + 4 f^2) - f^2) / 2, without loss
