"""Clipped contrast: one weighted sum of clipped residuals. It adjusts for nothing.

1. The number of treated records and the mean outcome of each arm are released.
2. A histogram of the lengths of residuals gives a clip: the one whose noise and bias are least.
   Outcomes with two values are not clipped.
3. ONE sum over all records, of residuals over the share of their arm, with a minus for controls,
   corrects the difference of the means. Whatever the arm of a record, what it adds lies in one
   interval, so the sum costs half of what two sums would. Its squares come with it: who moves the
   sum far moves them little.

More than two arms have one sum each, of residuals and of their squares: a record is in one of them,
so that all of them, and all differences, cost a quarter more than that one sum.

With ``design="randomised"`` this is an effect. Otherwise it is an association, with its own
interval and no test: what an effect's interval allows for confounding is a guess, kept beside it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from dpeffects.arrays import FloatArray
from dpeffects.errors import OptionError
from dpeffects.estimands import AVERAGES
from dpeffects.estimators._centres import (
    Centres,
    Contrast,
    Residual,
    between_arms,
    release_centres,
    release_lengths,
)
from dpeffects.estimators._checks import check_between, check_choice
from dpeffects.estimators._forecast import BY_ARM, Forecast, forecast_contrast
from dpeffects.estimators._levels import Spread, arm_means, by_arm, with_means
from dpeffects.estimators._posterior import unadjusted_variance
from dpeffects.estimators.arm_sums import arm_cells
from dpeffects.estimators.spec import Contrasts, Facts, MethodSpec, Options
from dpeffects.inference.estimate import (
    Effects,
    Estimate,
    Influence,
    Means,
    Part,
    SamplingVariance,
)
from dpeffects.privacy.charges import Noisy
from dpeffects.privacy.curator import Asked, Curator
from dpeffects.privacy.moments import WithSquares
from dpeffects.privacy.release import Split
from dpeffects.privacy.rows import Block, RowFunction

_FIRST = (0.2, 0.28, 0.36, 0.44, 0.52)
"""Proportions for the first stage that are compared: the fewer records, the more it needs."""


@dataclass(frozen=True)
class StudyOptions(Options):
    """``design``: "observational", or "randomised" where treatment was assigned by chance.

    ``on_unadjusted``: "caution", or "error" to refuse, before anything is paid, a result of an
    observational study that is not adjusted.
    """

    design: str = "observational"
    on_unadjusted: str = "caution"

    def __post_init__(self) -> None:
        check_choice("design", self.design, ("observational", "randomised"))
        check_choice("on_unadjusted", self.on_unadjusted, ("caution", "error"))

    def has_means(self, facts: Facts) -> bool:
        """Sums by arm are released."""
        return True

    @property
    def randomised(self) -> bool:
        """True where treatment was assigned by chance."""
        return self.design == "randomised"


@dataclass(frozen=True)
class ClippedContrastOptions(StudyOptions):
    """``design``: "observational", or "randomised" where treatment was assigned by chance.

    ``on_unadjusted``: "caution", or "error" to refuse, before anything is paid, a result of an
    observational study that is not adjusted. ``first``: proportion of the budget for the number of
    treated records, the means and the lengths of residuals, or None to choose it.
    """

    first: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.first is not None:
            check_between("first", self.first, 0.05, 0.8)

    def resolve(self, facts: Facts) -> ClippedContrastOptions:
        """Refuse an unadjusted result where that was asked for."""
        refuse_unadjusted(self)
        return planned(self, facts)[0]


@dataclass(frozen=True, kw_only=True)
class PlannedContrast(ClippedContrastOptions):
    """The options with every choice made, for the facts that they were made by."""

    facts: Facts


def clips(options: Options) -> bool:
    """Whether residuals are clipped, so that their lengths are released: not of two values."""
    facts = getattr(options, "facts", None)
    return facts is None or not facts.two_valued


def refuse_unadjusted(
    options: Any,
    why: str = "clipped_contrast adjusts for nothing",
    instead: str = 'Use method="one_step" with covariates',
) -> None:
    """Refuse, before the charge, what would be an association."""
    if options.on_unadjusted == "error" and not options.randomised:
        raise OptionError(
            f'{why}, and on_unadjusted="error": nothing was charged. {instead}, or declare a trial '
            'as design="randomised"'
        )


@lru_cache(maxsize=256)
def planned(
    options: ClippedContrastOptions, facts: Facts
) -> tuple[ClippedContrastOptions, Forecast]:
    """The options with every choice made, and what to expect of them."""
    plans = []
    for first in (options.first,) if options.first else _FIRST:
        each = PlannedContrast(options.design, options.on_unadjusted, first, facts=facts)
        split = Split.of(facts.budget, shares(facts.level, each))
        plans.append((each, forecast_contrast(facts, split, options.randomised)))
    return min(plans, key=lambda plan: plan[1].error)


def shares(level: str, options: ClippedContrastOptions) -> dict[str, float]:
    """Split of the budget: a count only where the arms are private."""
    first = options.first or _FIRST[0]
    parts = {"count": 0.4 * first, "means": 0.4 * first, "lengths": 0.2 * first}
    if "treatment" in options.public(level):
        del parts["count"]
    if not clips(options):
        del parts["lengths"]
    return {**parts, "estimate": 1.0 - first}


def fit(curator: Curator, options: Any, estimand: str) -> Estimate:
    """Release counts, means, lengths and the sum; the rest is post-processing."""
    centres = release_centres(curator)
    pi = centres.shares
    signs, unit = np.array([1.0, -1.0]) / pi, curator.noise_sd("estimate") / curator.n
    clip, bias, beyond = centres.longest, 0.0, 0.0
    if curator.has("lengths"):
        lengths = release_lengths(
            curator, "lengths of residuals", Residual(centres.means), clip, share="lengths"
        )
        per_length = 2.0 / float(pi.min()) * unit
        clip, bias, beyond = lengths.clip(per_length, centres)
    middle, moves = _middle(centres, clip, signs, unit)
    term = Contrast(Residual(middle), signs, clip)
    terms = TotalAsked(term, *_ends(centres, middle, clip, signs))
    total = terms.read(curator.n, *curator.several(terms.asked))
    apart, unknown = float(moves @ np.abs(signs)), float(np.hypot(*(centres.unknown * signs)))
    half = math.sqrt(centres.share * (1.0 - centres.share))
    total = replace(
        total, between=(half * apart) ** 2, between_sd=2.0 * half**2 * abs(apart) * unknown
    )
    # residuals from the centres add up to their moves, but for what the sum corrects
    value = float(middle[0] - middle[1]) + total.mean
    correction = total.mean + float(moves[0] - moves[1])
    parts = [Part("clipped outcomes", bias**2)]
    parts.append(centres.noise_part(correction, moves=moves, beyond=beyond))
    spread = _outcome_variance(total, centres)
    if not options.randomised:
        guess = spread * unadjusted_variance()
        parts.append(Part("confounding, a guess", guess))
    estimate = total.estimate(
        value,
        centres,
        parts,
        basis="randomised" if options.randomised else "association",
        details=details(centres, clip, math.sqrt(spread)),
        caution=centres.with_caution("" if options.randomised else "NOT ADJUSTED for covariates"),
        influence=arm_influence(centres, signs, clip),
    )
    known = Spread(spread, centres.sizes, known=True)
    return with_means(estimate, centres, estimand, known, unadjusted=True)


def arm_influence(centres: Centres, signs: FloatArray, clip: float = math.inf) -> Influence:
    """What rows add to a difference of means: residuals from the means of their arms."""
    term = Contrast(Residual(centres.means), signs, clip)
    ends = _ends(centres, centres.means, clip, signs)
    shares = tuple((1.0 / np.abs(signs[signs != 0.0])).tolist())
    return Influence(term, *ends, mean=0.0, size=float(centres.n), shares=shares)


def fit_arms(curator: Curator, options: Any, estimand: str, contrasts: Contrasts) -> Effects:
    """Release counts, means, lengths and one sum for each arm; the rest is post-processing."""
    centres = release_centres(curator)
    unit = curator.noise_sd("estimate") * (1.0 if curator.is_public("treatment") else BY_ARM)
    clip, bias, beyond = centres.longest, 0.0, 0.0
    if curator.has("lengths"):
        lengths = release_lengths(
            curator, "lengths of residuals", Residual(centres.means), clip, share="lengths"
        )
        squared = (unit / centres.sizes) ** 2
        both = np.mean([squared[arm] + squared[other] for arm, other in contrasts])
        clip, bias, beyond = lengths.clip(2.0 * math.sqrt(float(both)), centres)
    middle, moves = _middles(centres, clip, unit)
    found = ArmMeans.released(curator, centres, middle, clip)
    spread = found.outcome_variance
    errors = _by_sizes_and_means(centres, found.means - middle + moves, moves, beyond)
    estimates = []
    for arm, other in contrasts:
        parts = [Part("clipped outcomes", bias**2)]
        parts.append(Part("sizes and means of the arms", errors[arm] + errors[other], noise=True))
        if not options.randomised:
            parts.append(Part("confounding, a guess", spread * unadjusted_variance()))
        estimate = found.difference(
            [arm, other],
            parts,
            basis="randomised" if options.randomised else "association",
            caution=centres.with_caution(
                "" if options.randomised else "NOT ADJUSTED for covariates"
            ),
            influence=arm_influence(
                centres, between_arms([arm, other], 1.0 / centres.shares), clip
            ),
        )
        estimates.append(replace(estimate, means=found.pair([arm, other], estimate)))
    return Effects(tuple(estimates), details=details(centres, clip, math.sqrt(spread)))


def _by_sizes_and_means(
    centres: Centres, corrections: FloatArray, moves: FloatArray, beyond: float
) -> FloatArray:
    """Variances of the means of the arms by noise in their sizes and in what they start from.

    A relative error of a size multiplies what the sum adds to the centre of the arm.
    """
    relative = np.minimum(1.0, centres.share_sd / centres.shares)
    by_size = relative**2 * (corrections**2 + moves**2)
    return by_size + (centres.unknown * relative) ** 2 + centres.missed(beyond) ** 2


def _middles(centres: Centres, clip: float, unit: float) -> tuple[FloatArray, FloatArray]:
    """Centres of the residuals of each arm, as `_middle` has them, and how far they were moved."""
    if clip < 0.999 * centres.longest:
        return centres.moved_to_middle(0.0)
    low, high = centres.outcome_range
    relative = np.minimum(1.0, centres.share_sd / centres.shares)
    tried = [centres.moved_to_middle(part) for part in np.linspace(0.0, 1.0, 9)]
    errors = [
        (2.0 * np.maximum(high - middle, middle - low) * unit / centres.sizes) ** 2
        + (relative * moves) ** 2
        for middle, moves in tried
    ]
    best, arms = np.argmin(errors, axis=0), np.arange(len(relative))
    middle, moves = (np.stack(each)[best, arms] for each in zip(*tried, strict=True))
    return middle, moves


def _ends(
    centres: Centres, middle: FloatArray, clip: float, signs: FloatArray
) -> tuple[float, float]:
    """The interval that a record's term lies in, whatever its arm."""
    low, high = centres.outcome_range
    ends = signs * np.stack([np.maximum(-clip, low - middle), np.minimum(clip, high - middle)])
    return float(ends.min()), float(ends.max())


def _middle(
    centres: Centres, clip: float, signs: FloatArray, unit: float
) -> tuple[FloatArray, FloatArray]:
    """Centres of the residuals: the means, or closer to the middle of the range.

    Where nothing is clipped, that makes the interval of a term, and so the noise, smaller.
    """

    def error(part: float) -> float:
        middle, moves = centres.moved_to_middle(part)
        low, high = _ends(centres, middle, clip, signs)
        return (unit * (high - low)) ** 2 + centres.noise_part(0.0, moves=moves).variance

    clipped = clip < 0.999 * centres.longest
    return centres.moved_to_middle(0.0 if clipped else min(np.linspace(0.0, 1.0, 9), key=error))


def details(centres: Centres, clip: float, outcome_sd: float) -> dict[str, Any]:
    """What is worth showing of the first stage."""
    low, high = centres.outcome_range
    whose = "treated, control records" if len(centres.shares) == 2 else "records by arm"
    shown: dict[str, Any] = {
        f"{whose} (noisy)": ", ".join(f"{x:.0f}" for x in centres.sizes),
        "outcome sd": outcome_sd,
    }
    if clip < (high - low) / 2.0:
        shown["residuals clipped at"] = f"{clip:.4g}"
    return shown


@dataclass(frozen=True, eq=False)
class Within:
    """Residuals clipped to the length of their arm, over twice that: within [-1/2, 1/2]."""

    residual: Residual
    halves: FloatArray

    @property
    def reads(self) -> tuple[str, ...]:
        """What the residual reads."""
        return self.residual.reads

    def __call__(self, rows: Block) -> FloatArray:
        """Terms of some rows."""
        half = self.halves[rows.arm]
        return np.clip(self.residual(rows) / (2.0 * half), -0.5, 0.5)


@dataclass(frozen=True, eq=False)
class ArmMeans:
    """Released means of outcomes by arm, within ``halves`` of ``middle``, and of their squares."""

    centres: Centres
    middle: FloatArray
    halves: FloatArray
    release: Noisy

    @classmethod
    def released(
        cls, curator: Curator, centres: Centres, middle: FloatArray, clip: float
    ) -> ArmMeans:
        """Release the sums."""
        low, high = centres.outcome_range
        halves = np.minimum(clip, np.maximum(high - middle, middle - low))
        row, cells = Within(Residual(middle), halves), arm_cells(curator)
        label = "sums of residuals and squares by arm"
        noisy = curator.sums(label, row, WithSquares(1), cells, share="estimate")
        return cls(centres, middle, halves, noisy)

    @property
    def _first(self) -> FloatArray:
        return np.asarray(self.release.value[:, 0] / self.centres.sizes)

    @property
    def means(self) -> FloatArray:
        """Mean outcomes of the arms."""
        return np.asarray(self.middle + 2.0 * self.halves * self._first)

    @property
    def variances(self) -> tuple[FloatArray, FloatArray]:
        """Variances of outcomes within arms, as released, and the sd of the noise in them."""
        noise, shares = self.release.sd / self.centres.sizes, self.centres.shares
        second = self.release.value[:, 1] / self.centres.sizes + 0.125  # squares from 1/8
        size = np.minimum(self.centres.share_sd / shares, 1.0) / 8.0
        sd = np.hypot(noise * np.hypot(1.0, np.minimum(2.0 * np.abs(self._first), 1.0)), size)
        scale = 4.0 * self.halves**2
        return scale * (second - self._first**2 + noise**2), scale * sd

    @property
    def outcome_variance(self) -> float:
        """Variance of outcomes within all arms, pulled to a typical one by its noise."""
        seen, sd = self.variances
        shares = self.centres.shares
        return _pulled_variance(float(shares @ seen), math.hypot(*(shares * sd)), self.centres)

    def pair(self, pair: list[int], estimate: Estimate) -> Means | None:
        """Means of two arms, whose difference is an estimate."""
        centres, release, sizes = self.centres, self.release, self.centres.sizes
        seen, sd = (x / sizes for x in self.variances)
        sampling = by_arm(pair, seen, sd, self.halves**2 / sizes)
        scales = release.scale * 2.0 * self.halves / sizes
        return arm_means(
            pair, self.means, centres, estimate, sampling, scales, release.gaussian, sizes
        )

    def difference(self, pair: list[int], parts: list[Part], **about: Any) -> Estimate:
        """The mean of an arm less that of another."""
        sizes, most = self.centres.sizes[pair], self.centres.range
        seen, sd = (x[pair] / sizes for x in self.variances)
        scales = self.release.scale * 2.0 * self.halves[pair] / sizes
        gaussian, means = self.release.gaussian, self.means[pair]
        largest = float((self.halves[pair] ** 2 / sizes).sum())
        return Estimate(
            value=float(np.clip(means[0] - means[1], -most, most)),
            sampling=SamplingVariance(float(seen.sum()), math.hypot(*sd) / math.sqrt(2.0), largest),
            laplace=() if gaussian else tuple(scales.tolist()),
            gaussian=float((scales**2).sum()) if gaussian else 0.0,
            parts=tuple(part for part in parts if part.variance > 0.0),
            possible=(-most, most),
            **about,
        )


@dataclass(frozen=True, eq=False)
class _Scaled:
    """A row function from [low, low + width] to [-1/2, 1/2]."""

    function: RowFunction
    low: float
    width: float

    @property
    def reads(self) -> tuple[str, ...]:
        """What the function reads."""
        return self.function.reads

    def __call__(self, rows: Block) -> FloatArray:
        """Scaled values."""
        scaled: FloatArray = (self.function(rows) - self.low) / self.width - 0.5
        return scaled


@dataclass(frozen=True)
class Total:
    """A released mean of terms within [low, low + width], and the mean of their squares.

    ``between`` is the variance between arms that is known of the terms, with the standard deviation
    ``between_sd``: the arms have the sizes that they have, so it is no error of the mean.
    """

    n: int
    low: float
    width: float
    release: Noisy
    between: float = 0.0
    between_sd: float = 0.0

    @property
    def mean(self) -> float:
        """Mean of the terms."""
        return self.low + self.width * (float(self.release.value[0]) / self.n + 0.5)

    @property
    def variance(self) -> float:
        """Variance of a term within arms, as released: it can come out negative."""
        first, second = self.release.value / self.n
        own = float(second - first**2) + self.release.variance / self.n**2
        return own * self.width**2 - self.between

    @property
    def sampling(self) -> SamplingVariance:
        """Sampling variance of the mean, and the noise in it as one Laplace term."""
        sd = math.sqrt(self.release.variance) / self.n
        slope = min(2.0 * abs(float(self.release.value[0])) / self.n, 1.0)
        sd = math.hypot(self.width**2 * sd * math.hypot(1.0, slope), self.between_sd)
        scale = sd / math.sqrt(2.0)
        return SamplingVariance(
            self.variance / self.n, scale / self.n, self.width**2 / 4.0 / self.n
        )

    def estimate(self, value: float, centres: Centres, parts: list[Part], **about: Any) -> Estimate:
        """An estimate whose noise is that of this mean, and of further parts."""
        scale, most = self.release.scale * self.width / self.n, centres.range
        gaussian = self.release.gaussian
        parts = [*parts, centres.size_part(self.low + self.width / 2.0 - self.mean)]
        return Estimate(
            value=min(max(value, -most), most),
            sampling=self.sampling,
            laplace=() if gaussian else (scale,),
            gaussian=scale**2 if gaussian else 0.0,
            parts=tuple(part for part in parts if part.variance > 0.0),
            possible=(-most, most),
            **about,
        )


@dataclass(frozen=True, eq=False)
class TotalAsked:
    """Terms within [low, high], whose sum is released together with that of their squares."""

    term: RowFunction
    low: float
    high: float
    share: str = "estimate"

    @property
    def asked(self) -> Asked:
        """What the curator is asked for."""
        scaled = _Scaled(self.term, self.low, self.high - self.low)
        return Asked("sum of residuals and squares", scaled, WithSquares(1), None, self.share)

    def read(self, n: int, noisy: Noisy) -> Total:
        """The answer."""
        return Total(n, self.low, self.high - self.low, noisy)


def _outcome_variance(total: Total, centres: Centres) -> float:
    """Variance of outcomes within arms: the released one, pulled to a typical one by its noise."""
    k = centres.share * (1.0 - centres.share)
    seen, noise = total.variance * k, total.sampling.noise_scale * total.n * math.sqrt(2.0) * k
    return _pulled_variance(seen, noise, centres)


def _pulled_variance(seen: float, noise: float, centres: Centres) -> float:
    most = centres.most_variance
    typical = most if centres.two_valued else min((0.15 * centres.range) ** 2, most)
    pulled = (seen / noise**2 + typical / typical**2) / (1.0 / noise**2 + 1.0 / typical**2)
    return min(max(pulled, (0.02 * centres.range) ** 2), most)


SPEC = MethodSpec(
    name="clipped_contrast",
    title="clipped contrast",
    about="one weighted sum of clipped residuals; unadjusted, sharper than a difference in means",
    assumes="treatment was randomised",
    estimands=AVERAGES,
    levels=("sample", "label"),
    options=ClippedContrastOptions,
    shares=shares,
    fit=fit,
    fit_arms=fit_arms,
    variance_shares=(),
    uses_covariates=False,
    citation="dpeffects (software): clipped contrast.",
)
