"""Options of conditional effects, and what follows from them and from public numbers."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any

from dpeffects.errors import OptionError
from dpeffects.estimators.spec import Options
from dpeffects.privacy.features import Features, Fourier, Linear

KERNELS = ("auto", "gaussian", "additive")
STAGES = ("kernel", "linear")
WAYS = ("auto", "objective", "kernel")


@dataclass(frozen=True)
class CateOptions(Options):
    """Options of the R-learner and the DR-learner.

    ``kernel``: "gaussian" (one kernel on all covariates: any interaction), "additive" (a kernel for
    each column of the formula, as in a generalised additive model; interactions are written as
    terms), or "auto": "gaussian" for one or two columns, "additive" beyond. ``bandwidth``: of the
    kernel, as a share of the declared ranges. ``second_stage``: "kernel" or "linear".
    ``noise``: "objective" (noise in the objective of the regression, least error), "kernel" (noise
    on its result: for a function the paper's Gaussian process, whose size is the same everywhere,
    for points independent noise by their Gram matrix), or "auto": "objective" for a function, what
    promises less error for points. ``clip``: propensities are kept within [clip, 1 - clip].
    ``threshold``: of Huber's loss, as a share of the outcome's range, or None to choose it by how
    much of the outcome lies at the ends of its range (released): 0.15 for a bell in the middle, 1
    for a binary outcome, where anything less would turn means into medians.
    """

    kernel: str = "auto"
    bandwidth: float = 0.35
    second_stage: Any = "kernel"
    noise: str = "auto"
    clip: float = 0.05
    threshold: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.kernel, str) or self.kernel not in KERNELS:
            raise OptionError(f"kernel must be one of {KERNELS}, got {self.kernel!r}")
        if not isinstance(self.noise, str) or self.noise not in WAYS:
            raise OptionError(f"noise must be one of {WAYS}, got {self.noise!r}")
        _between("bandwidth", self.bandwidth, 0.05, 10.0)
        _between("clip", self.clip, 0.001, 0.4)
        if self.threshold is not None:
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
