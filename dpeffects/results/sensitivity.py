"""SensitivityAnalysis: what confounding that was not adjusted for would do to an effect.

All of it is computed from released numbers, so nothing is spent.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Real
from typing import TYPE_CHECKING, Any

from dpeffects.errors import OptionError
from dpeffects.inference import explained_away, scales
from dpeffects.inference import intervals as inference
from dpeffects.inference.estimate import SamplingVariance, Unavailable
from dpeffects.inference.intervals import Interval
from dpeffects.results.export import effect_row, frame_of, or_nan, plain
from dpeffects.results.numbers import number, with_error
from dpeffects.results.record import OneEstimate
from dpeffects.summary import draw

if TYPE_CHECKING:
    import pandas as pd

OUTCOME_SD = "outcome sd"
"""Where the details of a method have the standard deviation of outcomes, if it was released."""
_RANGE = re.compile(r"\[([-+0-9.e]+), ([-+0-9.e]+)\]")


@dataclass(frozen=True, repr=False, kw_only=True)
class SensitivityAnalysis(OneEstimate, words="about_sensitivity", pictures="plots.confounding"):
    """What unmeasured confounding would do to an effect; made by ``fit.sensitivity()``.

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
        The fields of `Record`.

    Examples
    --------
    >>> import dpeffects as dpe
    >>> nsw = dpe.load_data("lalonde")
    >>> fit = dpe.dp_ate("earnings_1978 ~ treatment", nsw, "diff_in_means", epsilon=1, seed=1)
    >>> fit.sensitivity(bias=500).interval(500) == fit.conf_int()
    False
    """

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
            _check_number(name, getattr(self, name))
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
    def risks(self) -> scales.Compared | None:
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
        return explained_away.approximate_risk_ratio(effect / known[0])

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
        return explained_away.robustness_value(effect, math.sqrt(variance), self.n)

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
        names = ("tipping_bias", "risk_ratio", "e_value", "robustness_value")
        found: dict[str, float | Unavailable] = {}
        ratios = self.risk_ratio(self.estimate), self.risk_ratio_limit
        ends = ("", self.estimate, ratios[0]), ("_limit", self.limit, ratios[1])
        for end, value, ratio in ends:
            figures: tuple[float | Unavailable, ...] = (value,) * len(names)
            if not isinstance(value, Unavailable):
                robust = self.robustness_value(value)
                figures = (abs(value), ratio, _e_value(ratio), robust)
            found |= {name + end: x for name, x in zip(names, figures, strict=True)}
        return found

    def plot(self, *, ax: Any = None) -> Any:
        """Draw estimate and interval against the bias; return the axes (matplotlib)."""
        return draw(self, ax=ax)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; what is not available is ``{"unavailable": reason}``."""
        names = ("reading", "bias", "estimate", "conf_int")
        readings = [dict(zip(names, reading, strict=True)) for reading in self.readings()]
        computed = {"caution": self.caution, "readings": readings, **self.figures()}
        return {name: plain(value) for name, value in computed.items()} | super().to_dict()

    def __repr__(self) -> str:
        found = self.e_value(self.estimate)
        shown = "not available" if isinstance(found, Unavailable) else number(found, 3)
        value = with_error(self.estimate, inference.std_error(self.released))
        return (
            f"<dpeffects sensitivity of {self.estimand} {value}, "
            f"E-value {shown}, {self.guarantee.line(self.n)}>"
        )


def _e_value(ratio: float | Unavailable) -> float | Unavailable:
    return ratio if isinstance(ratio, Unavailable) else explained_away.e_value(ratio)


def _check_number(name: str, value: Any) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        raise OptionError(f"{name} must be a finite number, got {value!r}")
