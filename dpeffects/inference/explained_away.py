"""How strong confounding must be to explain an estimate away: numbers in, numbers out."""

from __future__ import annotations

import math

from dpeffects.errors import OptionError

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
