"""Which numbers are mostly noise: tables and pictures say so in their place."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpeffects.inference.estimate import Estimate

OWN, RANGE = 1.0 / 3.0, 1.0 / 20.0
"""Parts of a number, and of the range it could have, that its noise is at most if it is printed. Of
counts of 1 to 10,000 with noise of any size 2.5 % of those printed are off by more than a half (13
% with a part of 1, 5.7 % with 1/2); of means 0.4 % by a tenth of the range (2.5 % with 1/10)."""
COUNTED, RARE, STANDARDISED = 1.5, 0.003, 2.0
"""Counts and shares are taken as this large at least: noise of half a record, or a tenth of a per
cent, is none. Standardised differences range from -1 to 1; beyond 0.1 arms are unbalanced."""


def noise_ratio(sd: Any, width: Any = math.inf, value: Any = math.inf, signed: bool = False) -> Any:
    """Return noise over the most that a printed number has, of one or several: above 1 if it hides.

    ``width`` is that of the range a number could have, ``value`` the number itself, where it has a
    zero of its own: a count, a share, a ratio. If ``signed`` it may be 0, and either part will do.
    """
    parts = RANGE * np.asarray(width), OWN * np.abs(value)
    most = np.fmax(*parts) if signed else np.minimum(*parts)
    return np.nan_to_num(sd / np.maximum(most, 1e-300))[()]


def ratio_of(estimate: Estimate, share: bool = False) -> float:
    """The same of an estimate, in its possible range; an effect may be 0, a rate not negative."""
    low, high = estimate.possible or (-math.inf, math.inf)
    counts = share or (low, high) == (0.0, math.inf)
    own = max(abs(estimate.point), share * RARE) if counts or low < 0.0 < high else math.inf
    sd, signed = math.sqrt(estimate.noise_variance), not counts and own < math.inf
    return float(noise_ratio(sd, high - low, own, signed))
