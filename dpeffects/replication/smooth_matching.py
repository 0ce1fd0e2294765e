"""Exact matching on strata with smooth sensitivity: SmoothDPMatching (papers 002 and 003).

Records are matched within strata of discrete covariates (numbers enter by declared cut points:
``cut(age, [0, 30, 50, 90])``). One record can do little to the estimate where every stratum has
many records of both arms, and much where a stratum has few; the noise follows the data in hand by
way of a smooth sensitivity S. Three releases, each from its own share: ln S, the estimate with
noise of scale S / rate, and the sampling variance. ``variance=False`` is the paper's Algorithm 2:
the estimate has all of the budget, and nothing else is released. The scale of its noise is private
then, and stands nowhere, so there is no standard error, and no interval of the noise alone either.

Where this differs from the paper, and why:

- Outcomes are centred, which changes no matched difference, and what a record does when it leaves
  a stratum is added to what it does when it joins another: 4 B / n for balanced strata where the
  paper has 12 B / n. ``paper_constants=True`` keeps the paper's bound and its noise.
- ``matching="means"`` compares means by stratum (weights 1 + c/t), ``"round_robin"`` is the
  paper's. Means never have more noise or variance, and do not depend on the order of the records.
- The paper spends epsilon / 2 on the shift of the estimate and the rest on the change of S; both
  together need less (claim 15). The part that S gets is chosen from n and the declared number of
  strata: the fewer records to a stratum, the more.
- The noise on ln S is Laplace: Gaussian noise, which the paper's Lemma 1 has and
  ``sensitivity_noise="gaussian"`` gives, has more than twice the standard deviation. The variance
  of the estimate's noise takes the square of S, so what is corrected for is E[exp(2 noise)], which
  is 1 / (1 - 4 b^2) for Laplace and exp(2 sigma^2) for Gaussian noise. (The lemma corrects S, and
  leaves its square too large by exp(sigma^2).) Gaussian noise is the analytic mechanism, because
  the printed sigma holds for an epsilon below 1 only.
- The variance is that within arms of strata. Weights in it count up to a cap made from the released
  S, so its noise is known and pure (claim 18). ``variance_noise="smooth"`` gives it a smooth
  sensitivity of its own as the paper does, which takes strata of thousands to be of use.

At (epsilon, delta) = (1, 1e-5) the scale of the noise in 20 strata with arms of 1,000 is 4.4 B / n
(means), 6.6 B / n (round robin) and 24 B / n (the paper).

A declared stratum without records, or with one arm, is a few records away from a large weight. Do
not declare combinations that cannot occur, and cut coarsely: both arms of every stratum should
have some 150 / epsilon records, below which the noise grows fast.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np

from dpeffects.errors import BudgetError
from dpeffects.estimators.option_checks import choice, flag
from dpeffects.estimators.spec import MethodSpec, Options, PublicInfo
from dpeffects.inference.estimate import Estimate, SamplingVariance, Unavailable
from dpeffects.privacy import Curator, NoisyValue, Share
from dpeffects.privacy.exact_matching import (
    LEAST_BETA,
    Lattice,
    MatchedStrata,
    Smoothing,
    StratumCounts,
    difference_lattice,
    variance_lattice,
)

CITATION = (
    "Koga, Chaudhuri and Page, Differentially private multi-site treatment effect estimation."
)
ONE_ARM = (
    "The effect is that of the strata with both arms: a stratum with one arm counts as no effect."
)
GIVEN = "Standard error and interval are for the covariates and treatments at hand."
_LOG_SHARE = "smooth sensitivity"
_RATES = [r / 20 for r in range(4, 19)]
_LEAST_CAP = 3.0
_MOST_BETA = 5.0
_MOST_LOG_NOISE = 0.15
"""ln S is released with Laplace noise of at most this scale, or Gaussian noise of the same
variance: beta gives way to it."""
_SCALE_IS_PRIVATE = (
    "The scale of the noise follows the strata at hand and is private. All of the budget went to "
    "the estimate, so nothing says how large its error is, not even the part that is noise."
)


@dataclass(frozen=True)
class StrataOptions(Options):
    """``matching``: "means" (differences in means by stratum) or "round_robin" (the paper's)."""

    matching: str = choice("means", "round_robin")

    def needs_memory(self) -> str:
        """Round robin deals records in their order."""
        return (
            'matching="round_robin" goes by the order of rows' if self.matching != "means" else ""
        )


@dataclass(frozen=True)
class SmoothMatchingOptions(StrataOptions):
    """Options of matching with smooth sensitivity.

    ``matching``: "means" (differences in means by stratum) or "round_robin" (the paper's).
    ``paper_constants``: the paper's larger bound and noise. ``variance_noise``: "capped" or
    "smooth" (a smooth sensitivity for the variance too). ``sensitivity_noise``: the noise on the
    logarithm of a smooth sensitivity, "laplace" or "gaussian" (the paper's).
    """

    paper_constants: bool = flag(False)
    variance_noise: str = choice("capped", "smooth")
    sensitivity_noise: str = choice("laplace", "gaussian")


def budget_split(level: str, options: SmoothMatchingOptions) -> dict[str, float]:
    """Split of the budget; the smooth sensitivity of the variance shares with the other one."""
    return {"estimate": 0.7, _LOG_SHARE: 0.2, "variance": 0.1}


def uses_delta(options: SmoothMatchingOptions, facts: PublicInfo) -> dict[str, float | None]:
    """A smooth sensitivity has a delta of its own, and Gaussian noise on its logarithm another."""
    smooth = ("estimate", "variance") if options.variance_noise == "smooth" else ("estimate",)
    gaussian = {_LOG_SHARE: math.inf} if options.sensitivity_noise == "gaussian" else {}
    return dict.fromkeys(smooth) | gaussian


def fit(curator: Curator, options: SmoothMatchingOptions, estimand: str) -> Estimate:
    """Release ln S, then the estimate, then its variance; or the estimate alone."""
    weights, paper = options.matching, options.paper_constants
    lower, upper = curator.outcome_range
    twice = options.variance_noise == "smooth" and curator.has("variance")
    part = 0.5 if twice else 1.0
    smoothing = _smoothing(curator, options, part)
    strata = MatchedStrata(curator, weights)
    public = {"strata declared": curator.n_strata, "smoothing beta": smoothing.beta}
    if not curator.has(_LOG_SHARE):
        alone = strata.difference("estimate", smoothing, None, paper)
        return Estimate(
            value=float(alone),
            sampling=Unavailable("variance=False was asked for, and the noise scale is private"),
            gaussian=math.nan,
            notes=(ONE_ARM, _SCALE_IS_PRIVATE),
            details=public,
        )
    for_variance = None
    if twice:  # the share of the variance is divided in the same way
        noise = partial(_guess(curator).variance_sensitivity, weights=weights)
        limits = variance_lattice(curator.n)
        for_variance = _least_noise(curator, "variance", limits, 0.5, noise)
    log_s = strata.log_sensitivity(_LOG_SHARE, smoothing.beta, paper, part)
    sensitivity = (
        _corrected(log_s, difference_lattice(curator.n, paper)) * (upper - lower) / curator.n
    )
    difference = strata.difference("estimate", smoothing, sensitivity, paper)
    sampling: SamplingVariance | Unavailable
    if for_variance is not None:
        sampling = _smooth_variance(curator, strata, for_variance)
    else:
        # S / 2 is about the largest weight; two noise scales more keep the cap from biting
        above = math.exp(float(log_s) + 2.0 * log_s.scale) / (4.0 if paper else 2.0)
        sampling = capped_variance(curator, strata, _cap(curator, above, difference.variance))
    return Estimate(
        value=float(difference),
        sampling=sampling,
        laplace=(difference.scale,),
        notes=(ONE_ARM, GIVEN),
        details=public | {"smooth sensitivity, as released": sensitivity},
    )


def capped_variance(curator: Curator, strata: MatchedStrata, cap: float) -> SamplingVariance:
    """Release the sampling variance, given covariates and treatments, with capped weights.

    The weights of all records sum to 2n at most, so their squares to at most 2n times the cap.
    """
    n = curator.n
    lower, upper = curator.outcome_range
    released = strata.variance("variance", cap)
    largest = cap * (upper - lower) ** 2 / (2.0 * n)
    return SamplingVariance(float(released) / n**2, released.scale / n**2, largest)


def _cap(curator: Curator, above: float, noise_variance: float) -> float:
    """Return a cap for the weights in the variance, from released and public numbers.

    No lower than the weights can be (``above``) unless the noise in the variance would then exceed
    a tenth of the known noise variance and a quarter of a typical sampling variance, B^2 / (3n).
    """
    n, (lower, upper) = curator.n, curator.outcome_range
    bearable = 0.1 * noise_variance * (n / (upper - lower)) ** 2 + 0.25 * n / 3.0
    enough = math.sqrt(bearable * curator.epsilon("variance") / 1.75)
    return min(max(min(above, enough), _LEAST_CAP), float(n))


def _corrected(log_s: NoisyValue, limits: Lattice) -> float:
    """Return an S whose square is right on average, within the limits that S must keep."""
    inside = min(max(math.exp(float(log_s)), limits.least), limits.most)
    if log_s.gaussian:
        return inside * math.exp(-(log_s.scale**2))
    return inside * math.sqrt(1.0 - 4.0 * min(log_s.scale, 0.25) ** 2)


def _smoothing(curator: Curator, options: SmoothMatchingOptions, part: float) -> Smoothing:
    """Divide the share of the estimate between its shift and the change of S."""
    lattice, paper = difference_lattice(curator.n, options.paper_constants), options.paper_constants
    if not paper:
        noise = partial(_guess(curator).estimate_sensitivity, weights=options.matching)
        return _least_noise(curator, "estimate", lattice, part, noise)
    price = lattice.usable(Share(curator.epsilon("estimate"), curator.delta("estimate")))
    half = _choices(curator, price, part, [0.5])[0]
    # the printed beta is too large for its delta where epsilon is far above 10
    beta = price.epsilon / (2.0 * math.log(2.0 / price.delta))
    return Smoothing(half.rate, min(beta, half.beta))


def _smooth_variance(
    curator: Curator, strata: MatchedStrata, smoothing: Smoothing
) -> SamplingVariance | Unavailable:
    """Release the variance by its own smooth sensitivity, after the logarithm of that."""
    n, (lower, upper) = curator.n, curator.outcome_range
    log_s = strata.log_variance_sensitivity(_LOG_SHARE, smoothing.beta, 0.5)
    sensitivity = _corrected(log_s, variance_lattice(n)) * (upper - lower) ** 2
    released = strata.smooth_variance("variance", smoothing, sensitivity)
    # weights are at most n and sum to 2n at most, so their squares to 2n^2
    largest = (upper - lower) ** 2 / 2.0
    if released.scale / n**2 > largest:
        return Unavailable(
            "the noise of the variance exceeds any variance there can be; use "
            'variance_noise="capped", or larger strata'
        )
    return SamplingVariance(float(released) / n**2, released.scale / n**2, largest)


def _guess(curator: Curator) -> StratumCounts:
    """Counts to tune the noise by, from public numbers: arms of a fifth of the average size."""
    small = max(curator.n // (10 * curator.n_strata), 1)
    rest = max(curator.n // 2 - small, 1)
    return StratumCounts(np.array([small, rest]), np.array([small, rest]), empty=False)


def _least_noise(
    curator: Curator, share: str, lattice: Lattice, part: float, sensitivity: Callable[..., float]
) -> Smoothing:
    """The choice with the least noise, for a sensitivity that depends on beta."""
    price = lattice.usable(Share(curator.epsilon(share), curator.delta(share)))
    choices = _choices(curator, price, part, _RATES)
    return min(choices, key=lambda choice: sensitivity(choice.beta) / choice.rate)


@lru_cache(maxsize=256)
def widest(price: Share, rate: float) -> Smoothing | None:
    """Return the largest beta that a price allows beside a rate; None where there is none.

    Examples
    --------
    >>> widest(Share(1.0, 1e-5), 0.5).beta > 1.5 * 0.5 / math.log(2e5)
    True
    """
    low, high = LEAST_BETA, min(price.epsilon - rate, _MOST_BETA)
    if not Smoothing(rate, low).certified(price):
        return None
    for _ in range(60):  # excess() grows with beta
        middle = (low + high) / 2.0
        low, high = (middle, high) if Smoothing(rate, middle).certified(price) else (low, middle)
    return Smoothing(rate, low)


def _choices(
    curator: Curator, price: Share, part: float, rates: Iterable[float]
) -> list[Smoothing]:
    """Return what a price allows, with a beta that the noise on ln S can follow."""
    limit = math.inf
    if curator.has(_LOG_SHARE):
        limit = _MOST_LOG_NOISE * math.sqrt(2.0) / curator.noise_sd(_LOG_SHARE, part)
    found = [widest(price, price.epsilon * rate) for rate in rates]
    made = [Smoothing(f.rate, min(f.beta, limit)) for f in found if f is not None]
    if not made or limit < LEAST_BETA:
        raise BudgetError("epsilon or delta is too small for a smooth sensitivity")
    return made


SPEC = MethodSpec(
    name="smooth_matching",
    title="exact matching on strata, smooth sensitivity",
    about="differences in means within strata of discrete covariates; noise by smooth sensitivity",
    assumes="treatment was as good as random within each stratum",
    estimands=("ATE",),
    levels=("sample",),
    options=SmoothMatchingOptions,
    budget_split=budget_split,
    uses_delta=uses_delta,
    fit=fit,
    citation=CITATION,
    needs_strata=True,
    needs_delta=True,
    variance_shares=("variance", _LOG_SHARE),
    smooth=True,
)
