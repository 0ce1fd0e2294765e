"""What a method hands back: released numbers and how noise enters them. No rows, no model."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

from dpeffects.errors import EstimationError, advised, refusal

SHARE = "share of records"
"""Which detail says how many of the records an effect is about, or their weight."""


@dataclass(frozen=True)
class Unavailable:
    """A statistic that is not there, and why: whoever computes with it is told the reason."""

    reason: str

    def __str__(self) -> str:
        return f"not available: {self.reason}"

    def __format__(self, spec: str) -> str:
        return str(self)

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise EstimationError(str(self))

    __iter__ = __len__ = __getitem__ = __array__ = __float__ = __round__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = __neg__ = __abs__ = _refuse
    __add__ = __sub__ = __mul__ = __truediv__ = __pow__ = _refuse
    __radd__ = __rsub__ = __rmul__ = __rtruediv__ = _refuse


@dataclass(frozen=True, slots=True)
class SamplingVariance:
    """A privately released sampling variance.

    ``value`` is the released estimate (it can come out negative), ``noise_scale`` the Laplace scale
    of the noise inside it, ``largest`` a bound that follows from the declared ranges.
    """

    value: float
    noise_scale: float
    largest: float

    def times(self, factor: float, relative: float = 0.0) -> SamplingVariance:
        """The same times a factor; ``relative`` is the scale of the noise in that, over it."""
        value, scale = factor * self.value, factor * self.noise_scale
        scale = math.hypot(scale, relative * value) if relative else scale
        return SamplingVariance(value, scale, factor * self.largest)

    @classmethod
    def total(cls, variances: Iterable[SamplingVariance]) -> SamplingVariance:
        """That of the sum of independent errors."""
        found = list(variances)
        scale = math.hypot(*(x.noise_scale for x in found))
        return cls(sum((x.value for x in found), 0.0), scale, sum(x.largest for x in found))


@dataclass(frozen=True, slots=True)
class ErrorPart:
    """A further part of an error: its name for the reader, and its variance.

    ``noise`` says that privacy noise is its cause, by way of a released model or centre. Otherwise
    it is a possible bias, such as that of clipped outcomes, which the interval allows for.
    """

    name: str
    variance: float
    noise: bool = False


@dataclass(frozen=True)
class Influence:
    """How an estimate adds up over rows: about the sum of ``term`` - ``mean`` over ``size``.

    ``term`` is a row function with values from ``low`` to ``high``; ``shares`` are those of the two
    arms in all rows.
    """

    term: Any
    low: float
    high: float
    mean: float
    size: float
    shares: tuple[float, ...] = (0.5, 0.5)

    @property
    def uneven(self) -> float:
        """Spread of the influence in the smaller arm, over that in all rows: 1 in equal arms."""
        shares = [max(share, 0.02) for share in self.shares]
        return max(1.0 / (min(shares) * math.sqrt(sum(1.0 / share for share in shares))), 1.0)


IDENTIFICATIONS = advised("identifications")
"""How an estimate is identified as an effect, or that it is not."""
NO_EFFECT = refusal("association")
UNADJUSTED = "NOT ADJUSTED: the difference is an effect only if treatment was randomised"
NOISY_SCORE = "Weak adjustment: the propensity scores are mostly privacy noise"
"""Warnings about the adjustment, which a summary shows first."""


def with_another(*warning_lines: str) -> str:
    """Cautions as one text."""
    return "; ".join(filter(None, warning_lines))


Pair = tuple[float, float]
"""A number for the treated mean, and one for the control mean."""


@dataclass(frozen=True, slots=True)
class MeansVariance:
    """A released variance, and how it enters those of both means, and their covariance."""

    variance: SamplingVariance
    treated: float
    control: float
    both: float = 0.0

    def of(self, treated: float, control: float) -> float:
        """How often it is in the variance of a combination of the means with these factors."""
        own = treated**2 * self.treated + control**2 * self.control
        return max(own + 2.0 * treated * control * self.both, 0.0)


@dataclass(frozen=True, slots=True)
class MeansPart:
    """A further part of the error of both means, as `ErrorPart`: signed standard deviations
    of it."""

    name: str
    treated: float
    control: float
    noise: bool = False


@dataclass(frozen=True, slots=True)
class ArmMeans:
    """The two mean outcomes that an estimate compares, and their joint distribution.

    ``treated`` less ``control`` is the estimate. ``laplace`` has the scale of each independent
    Laplace term in either mean, with its sign, and ``gaussian`` the standard deviations of Gaussian
    terms; ``parts`` are further parts of the error, independent of each other. ``possible`` is the
    range of the outcome.

    Where the outcome has two values, the variance of a mean m in [0, 1] is m (1 - m) times a known
    factor: 1 over the size of its arm, or more where records have weights. ``design`` are the
    factors of the treated and of the control mean, and that of their covariance.

    Examples
    --------
    >>> own = MeansVariance(SamplingVariance(0.04, 0.0, 1.0), 0.5, 0.5)
    >>> means = ArmMeans(3.0, 2.0, (own,), laplace=((0.1, 0.0), (0.0, 0.2)))
    >>> half = means.combined(1.0, -0.5)
    >>> half.value, half.laplace
    (2.0, (0.1, 0.1))
    """

    treated: float
    control: float
    sampling: tuple[MeansVariance, ...] | Unavailable
    laplace: tuple[Pair, ...] = ()
    gaussian: tuple[Pair, ...] = ()
    parts: tuple[MeansPart, ...] = ()
    possible: Pair | None = None
    design: tuple[float, float, float] | None = None

    def combined(self, treated: float, control: float, variance: float | None = None) -> Estimate:
        """Estimate ``treated`` times the treated mean plus ``control`` times the control mean.

        So (1, -r) is for the hypothesis that their ratio is r, and (1, 0) for the treated mean
        alone. ``variance`` is the sampling variance where that is known.
        """

        def scale(pair: Pair) -> float:
            return abs(treated * pair[0] + control * pair[1])

        sampling: SamplingVariance | Unavailable
        if isinstance(self.sampling, Unavailable):
            sampling = self.sampling
        elif variance is not None:
            sampling = SamplingVariance(variance, 0.0, variance)
        else:
            found = [(x.of(treated, control), x.variance) for x in self.sampling]
            sampling = SamplingVariance.total(x.times(k) for k, x in found if k)
        parts = (ErrorPart(x.name, scale((x.treated, x.control)) ** 2, x.noise) for x in self.parts)
        return Estimate(
            value=treated * self.treated + control * self.control,
            sampling=sampling,
            laplace=tuple(x for x in map(scale, self.laplace) if x > 0.0),
            gaussian=sum((scale(pair) ** 2 for pair in self.gaussian), 0.0),
            parts=tuple(part for part in parts if part.variance > 0.0),
        )

    def scaled(self, factor: float, relative: float = 0.0) -> ArmMeans:
        """The same with sampling variances that are so many times larger.

        ``relative`` is the scale of the noise in the factor, over it.
        """
        sampling, design = self.sampling, self.design
        if not isinstance(sampling, Unavailable):
            sampling = tuple(
                replace(x, variance=x.variance.times(factor, relative)) for x in sampling
            )
        if design is not None:
            design = (factor * design[0], factor * design[1], factor * design[2])
        return replace(self, sampling=sampling, design=design)


def _confounds(part: ErrorPart | MeansPart) -> bool:
    """Whether a part allows for confounding, by its name: that is no error of an association."""
    return "confounding" in part.name and not part.noise


@dataclass(frozen=True, slots=True)
class Estimate:
    """A point estimate with everything needed to build an interval from it.

    ``laplace`` lists the scales of the independent Laplace terms in the estimate, after all
    post-processing (division by n, debiasing), and ``gaussian`` is the variance of its Gaussian
    noise, NaN where the noise is not known or its scale is private;
    ``parts`` are further parts of its error, normal and independent of the others;
    ``possible`` is the range that an effect can have by the declared bounds, to which an interval
    is cut; ``identification`` is one of `IDENTIFICATIONS`, or empty where the method's own words
    say it; ``notes`` are sentences for the reader;
    ``details`` are public or released values worth showing (match limits, arm sizes);
    ``warnings`` are to be shown first; ``influence`` says how rows make
    the estimate, for variances by cluster and unit; ``means`` are the two mean outcomes that it
    compares, where the method releases what says them.

    Parts for confounding are errors of an effect. Where the identification is "unadjusted" they
    are put aside, in ``allowed``: the interval is that of the association.
    """

    value: float
    sampling: SamplingVariance | Unavailable
    laplace: tuple[float, ...] = ()
    gaussian: float = 0.0
    parts: tuple[ErrorPart, ...] = ()
    possible: tuple[float, float] | None = None
    identification: str = ""
    notes: tuple[str, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
    warnings: str = ""
    influence: Influence | None = field(default=None, repr=False, compare=False)
    means: ArmMeans | None = None
    allowed: tuple[ErrorPart, ...] = ()

    def __post_init__(self) -> None:
        if self.identification and self.identification not in IDENTIFICATIONS:
            raise ValueError(
                f"identification must be one of {', '.join(IDENTIFICATIONS)}, "
                f"got {self.identification!r}"
            )
        if not self.associated:
            return
        if aside := tuple(filter(_confounds, self.parts)):
            kept = tuple(part for part in self.parts if not _confounds(part))
            object.__setattr__(self, "parts", kept)
            object.__setattr__(self, "allowed", (*self.allowed, *aside))
        if self.means is not None and any(map(_confounds, self.means.parts)):
            parts = tuple(part for part in self.means.parts if not _confounds(part))
            object.__setattr__(self, "means", replace(self.means, parts=parts))

    def as_effect(self) -> Estimate:
        """The same with what is allowed for confounding, as an effect's interval has it."""
        return replace(self, identification="", parts=(*self.parts, *self.allowed), allowed=())

    @property
    def point(self) -> float:
        """The estimate as it is shown: within the possible range, which the truth is in too."""
        if self.possible is None or math.isnan(self.value):
            return self.value
        low, high = self.possible
        return min(max(self.value, low), high)

    @property
    def final_noise_variance(self) -> float:
        """Variance of the noise that was added last, to the estimate itself."""
        return sum([2.0 * scale**2 for scale in self.laplace]) + self.gaussian

    @property
    def noise_variance(self) -> float:
        """Variance of the privacy noise in the estimate, by whatever way it came in."""
        return self.final_noise_variance + sum([p.variance for p in self.parts if p.noise])

    @property
    def bias_variance(self) -> float:
        """What the interval allows for possible biases, as a variance."""
        return sum([part.variance for part in self.parts if not part.noise])

    @property
    def associated(self) -> bool:
        """Whether nothing entitles the estimate to be called an effect."""
        return self.identification == "unadjusted"

    def less(self, other: Estimate) -> Estimate:
        """How much larger this one is than another, whose errors are independent of its own."""
        a, b = self.sampling, other.sampling
        sampling: SamplingVariance | Unavailable = Unavailable("one of the two has none")
        if not (isinstance(a, Unavailable) or isinstance(b, Unavailable)):
            sampling = SamplingVariance.total([a, b])
        ends = [x.possible or (-math.inf, math.inf) for x in (self, other)]
        return replace(
            self,
            value=self.point - other.point,
            sampling=sampling,
            laplace=(*self.laplace, *other.laplace),
            gaussian=self.gaussian + other.gaussian,
            parts=(*self.parts, *other.parts),
            possible=(ends[0][0] - ends[1][1], ends[0][1] - ends[1][0]),
            details={},
            means=None,
        )

    @property
    def warning_lines(self) -> tuple[str, ...]:
        """Warnings: that the estimate is no effect, if so, and those of the method."""
        return tuple(filter(None, (NO_EFFECT if self.associated else "", self.warnings)))


@dataclass(frozen=True)
class Effects:
    """An estimate for each point, group or contrast of arms, and sentences for the reader.

    ``overlap_weighted`` says that records count by p (1 - p) in each group; ``details`` are public
    or released values worth showing.
    """

    estimates: tuple[Estimate, ...]
    notes: tuple[str, ...] = ()
    overlap_weighted: bool = False
    details: Mapping[str, Any] = field(default_factory=dict)

    def with_warnings(self, warnings: str) -> Effects:
        """The same with one more warning, for each of them."""
        each = (replace(x, warnings=with_another(x.warnings, warnings)) for x in self.estimates)
        return replace(self, estimates=tuple(each))
