"""Private propensity-score matching: PrivATE (paper 000), with its gaps closed.

Phase 1 fits a logistic propensity model (equation 5), phase 2 finds each record's N nearest scores
in the opposite arm, phase 3 limits how often a record may serve as a match (equations 9-12) and
releases the matched contrast. At label level covariates and treatment are public and only the
contrast is noised; at sample level the model, every score and every treatment are released with
noise first, and everything after that uses the released values.

Where this differs from the paper, and why:

- Neighbours replace one record (the paper defines add/remove and proves replace-one).
- Covariates are scaled to [0, 1] by declared bounds; the intercept is a penalised column.
- A matching limit that cannot serve everybody is raised to the smallest that can, and the
  sensitivity is computed from the weights that came out: B max_j (1 + sum_i 1/|P(i)|). The
  printed (k + 1) B is false when neighbours run out.
- One draw for the difference of the two sums instead of one for each: they touch disjoint records,
  so the noise variance is that of the larger sum alone instead of their total.
- Randomised response attenuates the sample-level estimate by a factor that is known from released
  values. ``debias=True`` divides by it, and the noise with it; ``debias=False`` is the paper's.

With the paper's split, sample level puts Laplace noise of scale 20 / epsilon on scores in [0, 1]:
matching is then nearly random and the estimate is close to a noisy difference in means. It adjusts
for little; use it to reproduce the paper, or with a large epsilon.

More than two arms (section V of the paper): `_matched_arms`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpeffects.errors import EstimationError, OptionError
from dpeffects.estimators._checks import check_penalty
from dpeffects.estimators._matched_arms import (
    BIASED,
    COEFFICIENT,
    MOST_SCORE_NOISE,
    NOISY,
    SCORE_NOISE,
    Inputs,
    fit_arms,
    release_inputs,
)
from dpeffects.estimators.matching import Matches, feasible, match, match_limits, pairs
from dpeffects.estimators.spec import NO_CONFOUNDER, Facts, MethodSpec, Options
from dpeffects.inference.estimate import NOISY_SCORE, Estimate, SamplingVariance, Unavailable
from dpeffects.privacy.curator import Curator
from dpeffects.privacy.logistic import least_penalty


@dataclass(frozen=True)
class PrivatePSMOptions(Options):
    """Options of private matching.

    ``neighbors``: matches for each record (N). ``match_limit``: None for the adaptive limit of
    equations 9-12, or a whole number k, or a pair (treated, control; not with more than two arms):
    a record serves at most k * N times. ``error_coefficient``: c (label, 0.01) or h (sample,
    0.001) of those equations. ``penalty``: ridge penalty of the propensity model. ``debias``: undo
    the attenuation by randomised response (sample level only).
    """

    neighbors: int = 5
    match_limit: int | tuple[int, int] | None = None
    error_coefficient: float | None = None
    penalty: float | None = None
    debias: bool = True

    def memory_per_row(self, arms: int = 2, contrasts: int = 1) -> tuple[int, str]:
        """Score, treatment and outcome; sorting and matches take the rest of the bytes."""
        size = 160 + 24 * self.neighbors
        if arms > 2:
            size += (80 + 4 * self.neighbors) * arms + 24 * contrasts
        return size, "scores, treatments and outcomes, which are sorted"

    def __post_init__(self) -> None:
        _whole("neighbors", self.neighbors)
        if self.match_limit is not None:
            if isinstance(self.match_limit, list):
                object.__setattr__(self, "match_limit", tuple(self.match_limit))
            given = self.match_limit if isinstance(self.match_limit, tuple) else (self.match_limit,)
            if isinstance(self.match_limit, tuple) and len(given) != 2:
                raise OptionError("match_limit must be a whole number or a pair of them")
            for limit in given:
                _whole("match_limit", limit)
        check_penalty(self.penalty)
        value = self.error_coefficient
        if value is not None and not (_number(value) and value > 0):
            raise OptionError(f"error_coefficient must be a positive number, got {value!r}")
        if not isinstance(self.debias, bool):
            raise OptionError(f"debias must be True or False, got {self.debias!r}")

    def has_means(self, facts: Facts) -> bool:
        """More than two arms have a sum each, two arms one for both."""
        return facts.arms > 2 and (self.debias or facts.level == "label")

    def resolve(self, facts: Facts) -> Options:
        """With very many columns a tiny penalty cannot be fitted."""
        least = least_penalty(facts.width)
        if self.penalty is not None and self.penalty < least:
            raise OptionError(f"penalty must be at least {least:.3g} with {facts.width} columns")
        return self

    def check(self, n: int, smallest_arm: int | None, arms: int = 2) -> None:
        """Everybody must be able to find ``neighbors`` matches in every other arm."""
        if arms > 2 and isinstance(self.match_limit, tuple):
            raise OptionError(f"match_limit must be one whole number where there are {arms} arms")
        if n < arms * self.neighbors:
            raise OptionError(
                f"neighbors={self.neighbors} needs {arms * self.neighbors} rows, not {n}"
            )
        if smallest_arm is not None and smallest_arm < self.neighbors:
            raise OptionError(f"neighbors={self.neighbors}, but an arm has {smallest_arm} records")


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _whole(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise OptionError(f"{name} must be a whole number of at least 1, got {value!r}")


def shares(level: str, options: PrivatePSMOptions) -> dict[str, float]:
    """The paper's split 0.05 : 0.05 : 0.7 : 0.2 at sample level, and a share for the variance."""
    if level == "label":
        return {"estimate": 0.8, "variance": 0.2}
    paper = {"model": 0.05, "scores": 0.05, "treatment": 0.7, "estimate": 0.2}
    return {**paper, "variance": 0.05} if options.debias else paper


def fit(curator: Curator, options: PrivatePSMOptions, estimand: str) -> Estimate:
    """Algorithms 1-3: scores, matches, contrast."""
    inputs, factor = release_inputs(curator, options), (1.0, 0.0)
    if inputs.chance is not None:
        if not inputs.counts.all():
            raise EstimationError(
                "all released treatments are equal, so there is nobody to match (the budget is "
                "spent); use a larger epsilon or method='diff_in_means'"
            )
        factor = attenuation(float(inputs.arm.mean()), inputs.chance, curator.n)
        inputs.details["attenuation by the flips"] = factor[0]
    matches, details = _matched(curator, options, inputs)
    weights = np.where(inputs.arm, 1.0, -1.0) * (1.0 + matches.weight)
    contrast = inputs.records.contrast("matched difference", weights, "estimate")
    raw = Estimate(
        value=float(contrast) / curator.n,
        sampling=Unavailable("variance=False was asked for"),
        laplace=(contrast.scale / curator.n,),
        details={**inputs.details, **details},
    )
    if curator.has("variance"):
        raw = replace(raw, sampling=_variance(curator, inputs, matches, raw))
    return raw if inputs.chance is None else _correct_attenuation(raw, *factor, options)


def attenuation(released_share: float, flip: float, n: int) -> tuple[float, float]:
    """Return the factor by which flips shrink a difference between arms, and its standard error.

    With p = 1 - flip, true share q and released share r = q p + (1 - q)(1 - p), the difference
    between released arms is (2p - 1) q (1 - q) / (r (1 - r)) times that between true arms.
    ``r`` is released, so q and the factor are post-processing; q is kept within [0.05, 0.95].
    """

    def factor(r: float) -> float:
        q = min(max((r - flip) / (1.0 - 2.0 * flip), 0.05), 0.95)
        r = q * (1.0 - flip) + (1.0 - q) * flip
        return (1.0 - 2.0 * flip) * q * (1.0 - q) / (r * (1.0 - r))

    step = math.sqrt(released_share * (1.0 - released_share) / n)
    slope = (factor(released_share + step) - factor(released_share - step)) / 2.0
    return factor(released_share), abs(slope)


def _matched(
    curator: Curator, options: PrivatePSMOptions, inputs: Inputs
) -> tuple[Matches, dict[str, Any]]:
    """Phase 3: the matching limit (equations 9-12, made feasible) and the matches under it."""
    n_treated = int(inputs.arm.sum())
    arms = (n_treated, curator.n - n_treated)
    free = match(inputs.scores, inputs.arm, options.neighbors)
    if options.match_limit is None:
        limits = match_limits(
            *arms,
            options.neighbors,
            int(free.used.max()),
            curator.epsilon("estimate"),
            options.error_coefficient or COEFFICIENT[inputs.level],
            capped=inputs.level == "label",
        )
        raised = False
    else:
        given = options.match_limit
        limits, raised = feasible(given if isinstance(given, tuple) else (given, given), *arms)
    per_record = np.where(inputs.arm, *limits) * options.neighbors
    matches = free
    if (free.used > per_record).any():
        bound = (limits[0] * options.neighbors, limits[1] * options.neighbors)
        matches = match(inputs.scores, inputs.arm, options.neighbors, bound)
    details = {
        "match limit k (treated, control)": f"{limits[0]}, {limits[1]}"
        + (" (raised: the one given cannot serve everybody)" if raised else ""),
        "largest weight of a record": round(float(matches.weight.max()) + 1.0, 4),
        "records with fewer matches than asked": int((matches.found < options.neighbors).sum()),
    }
    return matches, details


def _variance(
    curator: Curator, inputs: Inputs, matches: Matches, raw: Estimate
) -> SamplingVariance:
    """Abadie and Imbens (2006): the variance of a matching estimator of a population effect.

    n^2 V = sum_i (d_i - tau)^2 + sum_j (c_j^2 - 1 - kappa2_j) sigma_j^2, where d_i is record i's
    matched difference, c_j its weight and kappa2_j the sum of 1/|P(i)|^2 over the records it
    serves; sigma_j^2 is half the squared difference within disjoint same-arm pairs of near scores.
    """
    n = curator.n
    lower, upper = curator.outcome_range
    weight = 1.0 + matches.weight
    extra = weight**2 - 1.0 - matches.weight_sq
    partner = pairs(inputs.scores, inputs.arm)
    paired = partner >= 0
    covered = float(extra[paired].sum())
    stretch = float(extra.sum()) / covered if covered > 0 else 1.0
    # what no pair tells of is taken to be as large as it can be
    untold = 0.0 if covered > 0 else (upper - lower) ** 2 / 4.0 * float(extra.sum()) / n**2
    pair_weight = np.where(paired, (extra + extra[partner]) * stretch, 0.0)
    squares = inputs.records.matched_squares(
        matches.neighbours, matches.found, partner, pair_weight, "variance"
    )
    square_of_effect = n * (raw.value**2 - raw.noise_variance)
    value = (float(squares) - square_of_effect) / n**2 + untold
    scale = math.hypot(squares.scale / n**2, 2.0 * raw.value * raw.laplace[0] / n)
    largest = (upper - lower) ** 2 * (n + float(pair_weight.sum()) / 4.0) / n**2 + untold
    return SamplingVariance(value, scale, largest)


def _correct_attenuation(
    raw: Estimate, a: float, a_sd: float, options: PrivatePSMOptions
) -> Estimate:
    """Undo the attenuation ``a`` by the flips, or say that it is there."""
    if noisy := float(raw.details[SCORE_NOISE]) > MOST_SCORE_NOISE:
        raw = replace(raw, caution=NOISY_SCORE, basis="association")
    better = "diff_in_means is more accurate for that."
    notes = (f"{NOISY} {better}",) if noisy else ()
    if not options.debias:
        note = "Not debiased: the flipped treatments shrink this estimate towards zero."
        return replace(raw, sampling=Unavailable(BIASED), notes=(*notes, note))
    value = raw.value / a
    sampling = raw.sampling
    if isinstance(sampling, SamplingVariance):
        from_factor = (value * a_sd / a) ** 2
        sampling = SamplingVariance(
            sampling.value / a**2 + from_factor,
            sampling.noise_scale / a**2,
            sampling.largest / a**2 + from_factor,
        )
    laplace = tuple(b / a for b in raw.laplace)
    return replace(raw, value=value, sampling=sampling, laplace=laplace, notes=notes)


SPEC = MethodSpec(
    name="private_psm",
    title="propensity-score matching",
    about="PrivATE: matching on a logistic propensity score with a limit on each record's weight",
    assumes=f"{NO_CONFOUNDER}; log odds of treatment are linear in its terms",
    estimands=("ATE",),
    levels=("sample", "label"),
    options=PrivatePSMOptions,
    shares=shares,
    fit=fit,
    fit_arms=fit_arms,
    citation=(
        "Yuan, Li, Du, Chen, Sun, Gao, He, Chen and Zhang, PrivATE: Differentially private "
        "average treatment effect estimation for observational data."
    ),
)
