"""What was paid (Spend) and what came out (Noisy)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Charge:
    """One charge: what was drawn, at what price, by which proved claim.

    ``sensitivity`` and ``scale`` have one entry for each noise scale used, in the units of the
    released value; ``claim`` is the number of the claim in PROOFS.md. ``alone`` is True where the
    charge is for one mechanism by itself, so that its noise can be composed with others'; a part
    of a larger price (claims 11, 22) counts by its price only. A release that other charges cover
    (claim 11) costs nothing here, and its label says what it would.
    """

    label: str
    share: str
    epsilon: float
    delta: float
    mechanism: str
    sensitivity: tuple[float, ...]
    scale: tuple[float, ...]
    claim: int
    alone: bool = False

    @property
    def covered(self) -> bool:
        """True for a release that other charges pay for (claim 11): no charge of its own."""
        return self.epsilon == 0.0 and self.delta == 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return vars(self) | {"sensitivity": list(self.sensitivity), "scale": list(self.scale)}


@dataclass(frozen=True)
class NoisyValue:
    """A released value: safe to look at, with the scale of the noise inside each entry.

    ``scale`` is that of Laplace noise, or the standard deviation of Gaussian noise; other noise
    says its variance at scale 1. In a matrix, ``sd`` and ``variance`` are those of an entry off the
    diagonal; on the diagonal the noise has twice the variance.
    """

    value: npt.NDArray[np.float64]
    scale: float
    charge: Charge | None = None
    gaussian: bool = False
    unit_variance: float | None = None

    def __float__(self) -> float:
        return float(self.value.reshape(-1)[0]) if self.value.size == 1 else math.nan

    @property
    def variance(self) -> float:
        """Variance of the noise in each entry (0 for a value that was public)."""
        known = (2.0, 1.0)[self.gaussian] if self.unit_variance is None else self.unit_variance
        return self.scale**2 * known

    @property
    def sd(self) -> float:
        """Standard deviation of the noise in each entry."""
        return math.sqrt(self.variance)
