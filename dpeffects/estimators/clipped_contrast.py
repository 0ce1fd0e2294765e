"""Clipped contrast: one weighted sum of clipped residuals. It adjusts for nothing.

1. The number of treated records and the mean outcome of each arm are released.
2. A histogram of the lengths of residuals gives a clip: the one whose noise and bias are least.
   Outcomes with two values are not clipped.
3. ONE sum over all records, of residuals over the share of their arm, with a minus for controls,
   corrects the difference of the means. Whatever the arm of a record, what it adds lies in one
   interval, so the sum costs half of what two sums would. Its squares come with it: who moves the
   sum far moves them little.

With ``design="randomised"`` this is an effect. Otherwise it is an association: the interval has an
allowance for confounding, which is a guess, and there is no test.
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
from dpeffects.estimators import diff_in_means
from dpeffects.estimators._centres import (
    Centres,
    Residual,
    release_centres,
    release_lengths,
)
from dpeffects.estimators._checks import check_between, check_choice
from dpeffects.estimators._forecast import forecast_contrast
from dpeffects.estimators._posterior import unadjusted_variance
from dpeffects.estimators.spec import Facts, MethodSpec, Options
from dpeffects.inference.estimate import Estimate, Part, SamplingVariance
from dpeffects.privacy.charges import Noisy
from dpeffects.privacy.curator import Curator
from dpeffects.privacy.moments import WithSquares
from dpeffects.privacy.release import Split
from dpeffects.privacy.rows import Block, RowFunction

_FIRST = (0.2, 0.28, 0.36, 0.44, 0.52)
"""Proportions for the first stage that are compared: the fewer records, the more it needs."""


@dataclass(frozen=True)
class ClippedContrastOptions(Options):
    """``design``: "observational", or "randomised" where treatment was assigned by chance.

    ``on_unadjusted``: "caution", or "error" to refuse, before anything is paid, a result of an
    observational study that is not adjusted. ``first``: proportion of the budget for the number of
    treated records, the means and the lengths of residuals, or None to choose it.
    """

    design: str = "observational"
    on_unadjusted: str = "caution"
    first: float | None = None

    def __post_init__(self) -> None:
        check_choice("design", self.design, ("observational", "randomised"))
        if self.first is not None:
            check_between("first", self.first, 0.05, 0.8)
        check_choice("on_unadjusted", self.on_unadjusted, ("caution", "error"))

    @property
    def randomised(self) -> bool:
        """True where treatment was assigned by chance."""
        return self.design == "randomised"

    def resolve(self, facts: Facts) -> ClippedContrastOptions:
        """Refuse an unadjusted result where that was asked for."""
        refuse_unadjusted(self)
        return planned(self, facts)[0]


def refuse_unadjusted(options: Any, why: str = "clipped_contrast adjusts for nothing") -> None:
    """Refuse, before the charge, what would be an association."""
    if options.on_unadjusted == "error" and not options.randomised:
        raise OptionError(
            f'{why}, and on_unadjusted="error": nothing was charged. Use more epsilon, more '
            "records or fewer covariates, add a delta, or declare a trial as "
            'design="randomised"'
        )


@lru_cache(maxsize=256)
def planned(options: ClippedContrastOptions, facts: Facts) -> tuple[ClippedContrastOptions, float]:
    """The options with every choice made, and the expected standard error in outcome ranges."""
    plans = []
    for first in (options.first,) if options.first else _FIRST:
        each = replace(options, first=first)
        split = Split.of(facts.budget, shares(facts.level, each))
        plans.append((forecast_contrast(facts, split, options.randomised).error, first, each))
    error, _, best = min(plans)
    return best, error


def shares(level: str, options: ClippedContrastOptions) -> dict[str, float]:
    """Split of the budget."""
    first = options.first or _FIRST[0]
    means = 0.4 * first
    return {"count": means, "means": means, "lengths": 0.2 * first, "estimate": 1.0 - first}


def fit(curator: Curator, options: Any, estimand: str) -> Estimate:
    """Release counts, means, lengths and the sum; the rest is post-processing."""
    centres = release_centres(curator)
    residual = Residual(centres.means)
    lengths = release_lengths(
        curator, "lengths of residuals", residual, centres.longest, share="lengths"
    )
    pi = np.array([centres.share, 1.0 - centres.share])
    noise = 2.0 / float(pi.min()) * curator.noise_sd("estimate") / curator.n
    clip, bias = lengths.clip(noise, centres, centres.mean_length)
    signs = np.array([1.0, -1.0]) / pi
    low, high = centres.outcome_range
    shortest = np.maximum(-clip, low - centres.means)
    ends = signs * np.stack([shortest, np.minimum(clip, high - centres.means)])
    term = Contrast(residual, signs, clip)
    total = release_total(curator, term, float(ends.min()), float(ends.max()), "estimate")
    value = float(centres.means[0] - centres.means[1] + total.mean)
    parts = [Part("clipped outcomes", bias**2), centres.noise_part(total.mean)]
    if not options.randomised:
        guess = _outcome_variance(total, centres) * unadjusted_variance()
        parts.append(Part("confounding, a guess", guess))
    return total.estimate(
        value,
        centres,
        parts,
        basis="randomised" if options.randomised else "association",
        details=details(centres, clip),
        caution="" if options.randomised else "NOT ADJUSTED for covariates",
    )


def details(centres: Centres, clip: float) -> dict[str, Any]:
    """What is worth showing of the first stage."""
    low, high = centres.outcome_range
    shown: dict[str, Any] = {
        "treated, control records (noisy)": ", ".join(f"{x:.0f}" for x in centres.sizes)
    }
    if clip < (high - low) / 2.0:
        shown["residuals clipped at"] = f"{clip:.4g}"
    return shown


@dataclass(frozen=True, eq=False)
class Contrast:
    """Clipped residuals times the weight of their arm, with its sign."""

    residual: RowFunction
    signs: FloatArray
    clip: float

    @property
    def reads(self) -> tuple[str, ...]:
        """What the residual reads."""
        return self.residual.reads

    def __call__(self, rows: Block) -> FloatArray:
        """Terms of some rows."""
        clipped = np.clip(self.residual(rows), -self.clip, self.clip)
        return clipped * np.where(rows.treated, self.signs[0], self.signs[1])


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
    """A released mean of terms within [low, low + width], and the mean of their squares."""

    n: int
    low: float
    width: float
    release: Noisy

    @property
    def mean(self) -> float:
        """Mean of the terms."""
        return self.low + self.width * (float(self.release.value[0]) / self.n + 0.5)

    @property
    def noise_variance(self) -> float:
        """Variance of the noise in the mean."""
        return self.release.variance * (self.width / self.n) ** 2

    @property
    def variance(self) -> float:
        """Variance of a term, as released: it can come out negative."""
        first, second = self.release.value / self.n
        own = float(second - first**2) + self.release.variance / self.n**2
        return own * self.width**2

    @property
    def sampling(self) -> SamplingVariance:
        """Sampling variance of the mean, and the noise in it as one Laplace term."""
        sd = math.sqrt(self.release.variance) / self.n
        slope = min(2.0 * abs(float(self.release.value[0])) / self.n, 1.0)
        scale = self.width**2 * sd * math.hypot(1.0, slope) / math.sqrt(2.0)
        return SamplingVariance(
            self.variance / self.n, scale / self.n, self.width**2 / 4.0 / self.n
        )

    def estimate(self, value: float, centres: Centres, parts: list[Part], **about: Any) -> Estimate:
        """An estimate whose noise is that of this mean, and of further parts."""
        scale, most = self.release.scale * self.width / self.n, centres.range
        gaussian = self.release.gaussian
        return Estimate(
            value=min(max(value, -most), most),
            sampling=self.sampling,
            laplace=() if gaussian else (scale,),
            gaussian=scale**2 if gaussian else 0.0,
            parts=tuple(part for part in parts if part.variance > 0.0),
            possible=(-most, most),
            **about,
        )


def release_total(
    curator: Curator, term: RowFunction, low: float, high: float, share: str
) -> Total:
    """Release the sum of terms within [low, high] together with that of their squares."""
    scaled = _Scaled(term, low, high - low)
    noisy = curator.sums("sum of residuals and squares", scaled, WithSquares(1), share=share)
    return Total(curator.n, low, high - low, noisy)


def _outcome_variance(total: Total, centres: Centres) -> float:
    """Variance of outcomes within arms: the released one, pulled to a typical one by its noise."""
    k, most = centres.share * (1.0 - centres.share), centres.most_variance
    typical = most if centres.two_valued else min((0.15 * centres.range) ** 2, most)
    seen, noise = total.variance * k, total.sampling.noise_scale * total.n * math.sqrt(2.0) * k
    pulled = (seen / noise**2 + typical / typical**2) / (1.0 / noise**2 + 1.0 / typical**2)
    return min(max(pulled, (0.02 * centres.range) ** 2), most)


SPEC = MethodSpec(
    name="clipped_contrast",
    title="clipped contrast",
    about="one weighted sum of clipped residuals; unadjusted, sharper than a difference in means",
    estimands=AVERAGES,
    levels=("sample", "label"),
    options=ClippedContrastOptions,
    shares=shares,
    fit=fit,
    reference=diff_in_means.reference,
    variance_shares=(),
    uses_covariates=False,
    citation="dpeffects: clipped contrast (docs/architecture.md).",
)
