"""What a method hands back: released numbers and how noise enters them. No rows, no model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from dpeffects.errors import EstimationError


@dataclass(frozen=True)
class Unavailable:
    """A statistic that is not there, and why."""

    reason: str

    def __str__(self) -> str:
        return f"not available: {self.reason}"

    def __format__(self, spec: str) -> str:
        return str(self)

    def __iter__(self) -> Iterator[float]:
        raise EstimationError(str(self))

    def __float__(self) -> float:
        raise EstimationError(str(self))


@dataclass(frozen=True)
class SamplingVariance:
    """A privately released sampling variance.

    ``value`` is the released estimate (it can come out negative), ``noise_scale`` the Laplace scale
    of the noise inside it, ``largest`` a bound that follows from the declared ranges.
    """

    value: float
    noise_scale: float
    largest: float


@dataclass(frozen=True)
class Estimate:
    """A point estimate with everything needed to build an interval from it.

    ``laplace`` lists the scales of the independent Laplace terms in the estimate, after all
    post-processing (division by n, debiasing), and ``gaussian`` is the variance of its Gaussian
    noise; ``notes`` are sentences for the reader;
    ``details`` are public or released values worth showing (match limits, arm sizes);
    ``caution`` is what nobody should overlook, in a few words.
    """

    value: float
    sampling: SamplingVariance | Unavailable
    laplace: tuple[float, ...] = ()
    gaussian: float = 0.0
    notes: tuple[str, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
    caution: str = ""

    @property
    def noise_variance(self) -> float:
        """Variance of the privacy noise in the estimate."""
        return sum(2.0 * scale**2 for scale in self.laplace) + self.gaussian


@dataclass(frozen=True)
class Effects:
    """An estimate for each point or group, and sentences for the reader."""

    estimates: tuple[Estimate, ...]
    notes: tuple[str, ...] = ()
