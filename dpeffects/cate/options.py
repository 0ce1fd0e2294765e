"""Options of conditional effects, and what follows from them and from public numbers."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any

from dpeffects.errors import OptionError
from dpeffects.methods.spec import Options
from dpeffects.privacy.features import Features, Fourier, Linear

KERNELS = ("auto", "gaussian", "additive")
STAGES = ("kernel", "linear")
WAYS = ("objective", "kernel")


@dataclass(frozen=True)
class CateOptions(Options):
    """Options of the R-learner and the DR-learner.

    ``kernel``: "gaussian" (one kernel on all covariates: any interaction), "additive" (a kernel for
    each column of the formula, as in a generalised additive model; interactions are written as
    terms), or "auto": "gaussian" for one or two columns, "additive" beyond. ``bandwidth``: of the
    kernel, as a share of the declared ranges. ``second_stage``: "kernel" or "linear".
    ``noise``: "objective" (least error) or "kernel" (the paper's Gaussian process, whose size is
    the same at every point). ``clip``: propensities are kept within [clip, 1 - clip].
    ``threshold``: of Huber's loss, as a share of the outcome's range (times 2 for a DR-learner,
    whose pseudo-outcomes are about twice as wide).
    """

    kernel: str = "auto"
    bandwidth: float = 0.35
    second_stage: Any = "kernel"
    noise: str = "objective"
    clip: float = 0.05
    threshold: float = 0.15

    def __post_init__(self) -> None:
        if self.kernel not in KERNELS:
            raise OptionError(f"kernel must be one of {KERNELS}, got {self.kernel!r}")
        if self.noise not in WAYS:
            raise OptionError(f'noise must be "objective" or "kernel", got {self.noise!r}')
        _between("bandwidth", self.bandwidth, 0.05, 10.0)
        _between("clip", self.clip, 0.001, 0.4)
        _between("threshold", self.threshold, 0.005, 2.0)

    def features(self, width: int) -> Features:
        """Return the features for this many encoded columns, the intercept among them."""
        if self.second_stage == "linear":
            return Linear(width)
        return self.smooth(width)

    def smooth(self, width: int) -> Fourier:
        """Return the features of the kernel."""
        covariates = width - 1
        joint = self.kernel == "gaussian" or (self.kernel == "auto" and covariates <= 2)
        make = Fourier.gaussian if joint else Fourier.additive
        return make(covariates, self.bandwidth)


def _between(name: str, value: Any, low: float, high: float) -> None:
    number = isinstance(value, Real) and not isinstance(value, bool)
    if not number or not low <= value <= high:
        raise OptionError(f"{name} must be between {low:g} and {high:g}, got {value!r}")
