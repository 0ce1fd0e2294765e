"""Private matching with more than two arms: section V of paper 000, which leaves the steps open.

What is built: every record gets an outcome of every arm, its own or the mean of its N nearest
neighbours in that arm, and the mean of these over all records estimates what would be if all were
in that arm. So all contrasts are for the same population, all records, and they add up:
(a - b) + (b - c) = a - c. Neighbours in arm a are near in the generalised propensity score of arm
a, the chance to be in a given the covariates, which is all that has to be balanced for the mean of
arm a (Imbens 2000; Yang, Imbens, Cui, Faries and Kadziola 2016). It is one number for each arm, so
that matching stays a walk along a line. The scores come from a logistic regression of each arm
against all others; the paper names a multinomial one.

Label level: covariates and arms are public, one weighted sum of outcomes for each arm is released.
A record is in one of these sums, so all arms, and all contrasts, cost what one sum does; each is
released over its largest weight, so that its noise is that of its own arm. Sample level: models, a
vector of scores for each record, and its arm by generalised randomised response are released first,
and everything else uses these. The limit of equations 9-12, made feasible, is that of an arm
against all others, and the sensitivity follows from the weights that came out.

A released arm is a known mixture of true arms. With ``debias=True`` the means of the released arms
are multiplied by the inverse of the mixing; with two arms that is the division by the attenuation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpeffects.arrays import FloatArray, IntArray
from dpeffects.design.features import logits
from dpeffects.errors import EstimationError
from dpeffects.estimators._levels import with_design
from dpeffects.estimators.matching import Matches, feasible, match_into, match_limits, pairs
from dpeffects.estimators.row import row
from dpeffects.estimators.spec import Contrasts
from dpeffects.estimators.strengths import default_penalty
from dpeffects.inference.estimate import (
    NOISY_SCORE,
    Effects,
    Estimate,
    Means,
    MeansVariance,
    SamplingVariance,
    Unavailable,
)
from dpeffects.privacy.curator import Curator
from dpeffects.privacy.logistic import sigmoid
from dpeffects.privacy.matched import MatchedRecords
from dpeffects.privacy.minimise import propensity_weights, public_propensity_model
from dpeffects.privacy.noise import flip_chance
from dpeffects.privacy.rows import Block

COEFFICIENT = {"label": 0.01, "sample": 0.001}
"""The paper's c and h."""
TINY_PENALTY = 1e-6
"""At label level the model costs nothing, so the penalty is only a numerical safeguard."""
SCORE_NOISE = "scale of the noise on scores in [0, 1]"
MOST_SCORE_NOISE = 0.1
"""Scores with more noise than this have little of the propensities left."""
NOISY = (
    "The scores carry more noise than their range, so the matching adjusts for little: "
    "read this as a difference in means."
)
BIASED = "debias=False leaves a bias that no interval accounts for"
_SOME, _MOST = 0.05, 0.5
"""Parts of the variance of released scores that are noise: worth saying, and too much."""
_LEAST_SHARE = 0.1
"""Over the number of arms: the least share of the records that an arm is taken to have."""


@row("covariates")
def propensity_scores(rows: Block, weights: FloatArray) -> tuple[FloatArray, ...]:
    """1 / (1 + exp(-x'w)) for each row w of known weights: one for two arms, else for each arm."""
    return tuple(sigmoid(logits(rows.covariates, w)) for w in weights)


@dataclass(frozen=True)
class Inputs:
    """What matching works on: public or released, never private; and where outcomes are asked.

    ``arm`` says who is treated, or has the number of the arm. ``chance`` is that of another arm
    than the true one to be released; None where arms are public.
    """

    records: MatchedRecords
    scores: FloatArray
    arm: Any
    details: dict[str, Any]
    chance: float | None = None

    @property
    def level(self) -> str:
        """Whether covariates and arms are public."""
        return "label" if self.chance is None else "sample"

    @property
    def counts(self) -> IntArray:
        """Number of records of each arm."""
        return np.bincount(self.arm, minlength=self.records.arms)

    @property
    def mixing(self) -> FloatArray | None:
        """Chance of each released arm (row) given the true one (column), where arms are private."""
        return None if self.chance is None else mixing(self.records.arms, self.chance)


def release_inputs(curator: Curator, options: Any) -> Inputs:
    """Models and scores, and the arms; free where covariates and arms are public."""
    arms, penalty = curator.arms, options.penalty
    if curator.is_public("covariates"):
        models = [
            public_propensity_model(curator, penalty or TINY_PENALTY, centred=False, arm=arm)
            for arm in ([None] if arms == 2 else range(arms))
        ]
        weights = np.stack([model.value for model in models])
        records = MatchedRecords(curator, propensity_scores(weights))
        return Inputs(records, *records.public(), {})
    each = curator.epsilon("model") / (1 if arms == 2 else arms)
    penalty = penalty or default_penalty(curator.n, curator.width, each)
    weights = np.atleast_2d(propensity_weights(curator, penalty, "model").value)
    records = MatchedRecords(curator, propensity_scores(weights))
    scores = records.noisy_scores("scores")
    arm, chance = records.mixed_arms("treatment"), flip_chance(curator.epsilon("treatment"), arms)
    said = "a treatment is flipped" if arms == 2 else "an arm is replaced by another"
    details = {"ridge penalty": penalty, SCORE_NOISE: scores.scale}
    details[f"probability that {said}"] = chance
    return Inputs(records, scores.value, arm, details, chance)


def fit_arms(curator: Curator, options: Any, estimand: str, contrasts: Contrasts) -> Effects:
    """Scores, matches and one sum for each arm; the rest is post-processing."""
    label, n, inputs = curator.is_public("covariates"), curator.n, release_inputs(curator, options)
    if not inputs.counts.all():
        raise EstimationError(
            "an arm has no records among the released ones, so there is nobody to match (the "
            "budget is spent); use a larger epsilon or fewer arms"
        )
    matches, details = _matched(curator, options, inputs)
    weights = np.zeros(n)
    for arm, found in enumerate(matches):
        weights[inputs.arm == arm] = found.weight[inputs.arm == arm]
    most = np.array([found.weight.max() for found in matches])
    sums = inputs.records.contrast(
        "matched sums by arm", weights / most[inputs.arm], "estimate", inputs.arm
    )
    means, scales = sums.value * most / n, sums.scale * most / n
    asked = np.zeros((len(contrasts), curator.arms))
    for line, (arm, other) in zip(asked, contrasts, strict=True):
        line[arm], line[other] = 1.0, -1.0
    # what multiplies the means of released arms
    rows, by_shares, shares = asked, np.zeros(len(contrasts)), inputs.counts / n
    if inputs.mixing is not None and options.debias:
        rows = asked @ unmixing(shares, inputs.mixing)
        by_shares = _share_variance(asked, means, shares, inputs.mixing, n)
    reason = "variance=False was asked for" if label or options.debias else BIASED
    variances: Sequence[SamplingVariance | Unavailable] = [Unavailable(reason)] * len(contrasts)
    if curator.has("variance"):
        variances = _variances(curator, inputs, matches, rows, means, scales, by_shares)
    noisy, caution = _caution(inputs)
    notes = [NOISY.replace("this as a difference", "these as differences")] if noisy else []
    if not (label or options.debias):
        notes.append("Not debiased: the mixed arms shrink these estimates towards zero.")
    estimates = tuple(
        Estimate(
            value=float(row @ means),
            sampling=variance,
            laplace=tuple(float(x) for x in np.abs(row) * scales if x > 0.0),
            basis="association" if noisy else "",
            caution=caution,
        )
        for row, variance in zip(rows, variances, strict=True)
    )
    if inputs.mixing is None or options.debias:
        turn = np.eye(curator.arms) if inputs.mixing is None else unmixing(shares, inputs.mixing)
        estimates = tuple(
            replace(
                x, means=_means(curator, x, turn[[*pair]], means, scales, inputs.counts[[*pair]])
            )
            for x, pair in zip(estimates, contrasts, strict=True)
        )
    return Effects(estimates, tuple(notes), details={**inputs.details, **details})


def _means(
    curator: Curator,
    estimate: Estimate,
    turn: FloatArray,
    means: FloatArray,
    scales: FloatArray,
    sizes: IntArray,
) -> Means:
    """Means of two arms; the variance of their difference is divided by the sizes of the arms."""
    low, high = curator.outcome_range
    one, two = (low + (high - low) / 2.0 + turn @ means).tolist()
    part, own = float(sizes[1] / sizes.sum()), estimate.sampling
    made = Means(
        one,
        two,
        own if isinstance(own, Unavailable) else (MeansVariance(own, part, 1.0 - part),),
        laplace=tuple((float(a), float(b)) for a, b in (turn * scales).T),
        possible=(low, high),
    )
    return with_design(made, estimate, part) if curator.values[-1] == 2 else made


def _caution(inputs: Inputs) -> tuple[bool, str]:
    """Whether the scores are mostly noise, and what to say where they have some.

    The noise is known, and so is the variance of the released scores that it is in.
    """
    variance = 2.0 * inputs.details.get(SCORE_NOISE, 0.0) ** 2
    share = variance / max(float(inputs.scores.var(axis=0).min()), 1e-300)
    if share > _MOST:
        return True, NOISY_SCORE
    if share > _SOME:
        return False, f"PARTLY ADJUSTED: {share:.0%} of the scores' variance is privacy noise"
    return False, ""


def mixing(arms: int, chance: float) -> FloatArray:
    """Chance of each released arm (row) given the true one (column)."""
    other = chance / (arms - 1)
    return np.full((arms, arms), other) + (1.0 - chance - other) * np.eye(arms)


def unmixing(released: FloatArray, mixed: FloatArray) -> FloatArray:
    """Return the matrix that turns means of released arms to means of true ones.

    ``released`` are shares of released arms. The released arm b has the share P_ba q_a / r_b of
    records of arm a, for true shares q and r = P q; true shares are kept above 0.1 / arms.
    """
    true = np.maximum(np.linalg.solve(mixed, released), _LEAST_SHARE / len(released))
    joint = mixed * (true / true.sum())
    return np.asarray(np.linalg.inv(joint / joint.sum(axis=1, keepdims=True)))


def _share_variance(
    asked: FloatArray, means: FloatArray, shares: FloatArray, mixed: FloatArray, n: int
) -> FloatArray:
    """Variance of each contrast that comes with the released shares, by its slopes in them."""

    def effects(released: FloatArray) -> FloatArray:
        return asked @ unmixing(released, mixed) @ means

    steps = np.diag(np.sqrt(shares * (1.0 - shares) / n))
    slopes = np.stack(
        [(effects(shares + s) - effects(shares - s)) / (2.0 * s.sum()) for s in steps], axis=1
    )
    covariance = (np.diag(shares) - np.outer(shares, shares)) / n
    return np.asarray(np.sum(slopes @ covariance * slopes, axis=1))


def _matched(
    curator: Curator, options: Any, inputs: Inputs
) -> tuple[list[Matches], dict[str, Any]]:
    """Matches in each arm under its limit (equations 9-12, made feasible)."""
    level, wanted = inputs.level, options.neighbors
    matches, limits, short, raised = [], [], 0, False
    for arm, count in enumerate(inputs.counts.tolist()):
        members, scores, others = inputs.arm == arm, inputs.scores[:, arm], curator.n - count
        found = match_into(scores, members, wanted)
        used = int(found.used[members].max()) - 1
        if options.match_limit is None:
            limit, _ = match_limits(
                count,
                others,
                wanted,
                max(used, 1),
                curator.epsilon("estimate"),
                options.error_coefficient or COEFFICIENT[level],
                capped=level == "label",
            )
        else:
            (limit, _), _ = feasible((options.match_limit, 1), count, others)
            raised |= limit > options.match_limit
        if used > limit * wanted:
            found = match_into(scores, members, wanted, limit * wanted)
        matches.append(found)
        limits.append(str(limit))
        short += int((found.found[~members] < wanted).sum())
    details = {
        "match limit k by arm": ", ".join(limits)
        + (" (raised: the one given cannot serve everybody)" if raised else ""),
        "largest weight of a record": round(max(float(m.weight.max()) for m in matches), 4),
        "records with fewer matches than asked": short,
    }
    return matches, details


def _variances(
    curator: Curator,
    inputs: Inputs,
    matches: list[Matches],
    rows: FloatArray,
    means: FloatArray,
    scales: FloatArray,
    by_shares: FloatArray,
) -> list[SamplingVariance]:
    """Abadie and Imbens (2006) for contrasts of more than two arms.

    For coefficients g of the arms and imputed outcomes m_ia of record i, n^2 V = sum_i (sum_a g_a
    m_ia - tau)^2 + sum_j g_j^2 (c_j^2 - kappa2_j) sigma_j^2, where g_j is the coefficient of j's
    arm, c_j the weight of j and kappa2_j the sum of 1/|P(i)|^2 over the records it serves, itself
    among both; sigma_j^2 is half the squared difference within pairs of near scores of an arm. A
    single record of an arm has no pair.
    """
    n, arm = curator.n, inputs.arm
    lower, upper = curator.outcome_range
    size = np.maximum(np.abs(rows).sum(axis=1) / 2.0, np.abs(rows).max(axis=1))
    units = rows / size[:, None]
    partner, pair_weight, alone = np.full(n, -1, np.int32), np.zeros(n), np.zeros(curator.arms)
    for k, found in enumerate(matches):
        members = arm == k
        other = pairs(inputs.scores[:, k], members)
        extra = np.where(members, found.weight**2 - found.weight_sq, 0.0)
        paired = members & (other >= 0)
        partner[paired] = other[paired]
        covered = float(extra[paired].sum())
        stretch = float(extra.sum()) / covered if covered > 0.0 else 1.0
        alone[k] = 0.0 if covered > 0.0 else float(extra.sum())
        pair_weight[paired] = (extra + extra[other])[paired] * stretch
    weights = units[:, arm] ** 2 * pair_weight
    tables = [found.neighbours for found in matches]
    squares = inputs.records.imputed_squares(tables, units, partner, weights, "variance")
    effect = units @ means
    noise = 2.0 * np.sum((units * scales) ** 2, axis=1)
    # what no pair tells of is taken to be as large as it can be
    untold = (upper - lower) ** 2 / 4.0 * (units**2 @ alone) / n**2
    value = (squares.value - n * (effect**2 - noise)) / n**2 + untold
    around = np.hypot(squares.scale / n**2, 2.0 * effect * np.sqrt(noise / 2.0) / n)
    largest = (upper - lower) ** 2 * (n + weights.sum(axis=1) / 4.0) / n**2 + untold
    columns = (value * size**2 + by_shares, around * size**2, largest * size**2 + by_shares)
    return [SamplingVariance(*map(float, entry)) for entry in zip(*columns, strict=True)]
