"""Private propensity-score matching: PrivATE (paper 000), with its gaps closed.

Phase 1 fits a logistic propensity model (equation 5), phase 2 finds each record's N nearest scores
in the opposite arm, phase 3 limits how often a record may serve as a match (equations 9-12) and
releases the matched contrast. At label level covariates and treatment are public and only the
contrast is noised. At sample level the paper releases the model, every score and every treatment
with noise, and matches on these (``as_printed=True``); otherwise groups of a released score are
matched (`matched_groups`).

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
- At label level there are effects on treated and control records too: only these get matches.

With the paper's split, sample level puts Laplace noise of scale 20 / epsilon on scores in [0, 1]:
matching is then nearly random and the estimate is close to a noisy difference in means. It adjusts
for little; use it to reproduce the paper, or with a large epsilon.

More than two arms are section V of the paper, which leaves the steps open. Every record gets an
outcome of every arm, its own or the mean of its N nearest neighbours in that arm, and the mean of
these over all records estimates what would be if all were in that arm. So all contrasts are for the
same population, all records, and they add up: (a - b) + (b - c) = a - c. Two arms are a case of it.
Neighbours in arm a are near in the generalised propensity score of arm a, the chance to be in a
given the covariates, which is all that has to be balanced for the mean of arm a (Imbens 2000; Yang,
Imbens, Cui, Faries and Kadziola 2016). The scores come from a logistic regression of each arm
against all others; the paper names a multinomial one. A record is in one of the sums by arm, so all
of them, and all contrasts, cost what one sum does; each is released over its largest weight, so
that its noise is that of its own arm. Arms are released by generalised randomised response: a
released arm is a known mixture of true arms, and the means of the released arms are multiplied by
the inverse of the mixing, which with two arms is the division by the attenuation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from dpeffects.arrays import BoolArray, FloatArray, IntArray
from dpeffects.design.features import logits
from dpeffects.errors import EstimationError, OptionError
from dpeffects.estimands import AVERAGES, ESTIMANDS
from dpeffects.estimators import constants as hand
from dpeffects.estimators.default import one_step
from dpeffects.estimators.default.arm_summaries import between_arms
from dpeffects.estimators.option_checks import (
    between,
    check_positive,
    check_whole,
    checked,
    flag,
    whole,
)
from dpeffects.estimators.row_functions import row
from dpeffects.estimators.spec import NO_CONFOUNDER, Contrasts, MethodSpec, Options, PublicInfo
from dpeffects.inference.estimate import (
    NOISY_SCORE,
    ArmMeans,
    Effects,
    Estimate,
    MeansVariance,
    SamplingVariance,
    Unavailable,
)
from dpeffects.inference.intervals import sampling_variance
from dpeffects.inference.scales import likely, variance_at
from dpeffects.privacy import Block, Curator
from dpeffects.privacy.losses import least_penalty, sigmoid
from dpeffects.privacy.matched import MatchedRecords
from dpeffects.privacy.noise import flip_chance
from dpeffects.privacy.private_minimisation import propensity_weights, public_propensity_model
from dpeffects.replication.matched_groups import FEWEST, GROUPS, SHARE, MatchedOptions
from dpeffects.replication.nearest import Matches, feasible, match_into, match_limit, pairs

_COEFFICIENT = {"label": 0.01, "sample": 0.001}
"""The paper's c and h."""
_TINY_PENALTY = 1e-6
"""At label level the model costs nothing, so the penalty is only a numerical safeguard."""
_SCORE_NOISE = "scale of the noise on scores in [0, 1]"
_NOISY: str = (
    "The scores carry more noise than their range, so the matching adjusts for little: "
    "read this as a difference in means. diff_in_means is more accurate for that."
)
_OF_GROUPS = "groups", "flexible"
_NOT_DEBIASED = "Not debiased: the flipped treatments shrink this estimate towards zero."
_BIASED = "debias=False leaves a bias that no interval accounts for"


def _check_limit(name: str, value: Any) -> None:
    if isinstance(value, tuple) and len(value) != 2:
        raise OptionError(f"{name} must be a whole number or a pair of them")
    for limit in value if isinstance(value, tuple) else (value,):
        check_whole(name, limit, 1)


@dataclass(frozen=True)
class PrivatePSMOptions(Options):
    """Options of private matching.

    At sample level, ``groups``: matched groups of the released score, whose records are compared;
    ``flexible``: 0 adjusts for the formula's own terms alone, 1 for squares of its columns too, 2
    for their products too, None chooses by n, epsilon, delta and the number of columns.
    ``as_printed``: the algorithm of the paper instead, in which every record has its own matches,
    as it has at label level; all other options are for that.

    ``neighbors``: matches for each record (N). ``match_limit``: None for the adaptive limit of
    equations 9-12, or a whole number k, or a pair (treated, control; not with more than two arms):
    a record serves at most k * N times. ``error_coefficient``: c (label, 0.01) or h (sample,
    0.001) of those equations. ``penalty``: ridge penalty of the propensity model. ``debias``: undo
    the attenuation by randomised response (sample level, ``as_printed``).
    """

    neighbors: int = whole(5, 1)
    match_limit: int | tuple[int, int] | None = checked(None, _check_limit)
    error_coefficient: float | None = checked(None, check_positive)
    penalty: float | None = between(None, 1e-12, 1e12)
    debias: bool = flag(True)
    groups: int = whole(GROUPS, FEWEST, 100)
    flexible: int | None = whole(None, 0, 2)
    as_printed: bool = flag(False)

    def memory_per_row(self, arms: int, contrasts: int, level: str) -> tuple[int, str]:
        """Score, treatment and outcome; sorting and matches take the rest of the bytes."""
        if self._grouped(level):
            return 0, ""
        size = 160 + 24 * self.neighbors
        if arms > 2:
            size += (80 + 4 * self.neighbors) * arms + 24 * contrasts
        return size, "scores, treatments and outcomes, which are sorted"

    def __post_init__(self) -> None:
        if isinstance(self.match_limit, list):
            object.__setattr__(self, "match_limit", tuple(self.match_limit))
        super().__post_init__()

    def _grouped(self, level: str) -> bool:
        """Whether groups of a released score are matched, and no record has neighbours."""
        return level == "sample" and not self.as_printed

    def adapt(self, spec: MethodSpec) -> MethodSpec:
        """The paper has average effects over all records."""
        return replace(spec, estimands=("ATE",)) if self.as_printed else spec

    def shown(self) -> dict[str, Any]:
        """Groups are for what is not printed."""
        return {k: x for k, x in super().shown().items() if k not in _OF_GROUPS}

    def has_means(self, facts: PublicInfo) -> bool:
        """More than two arms have a sum each, two arms one for both."""
        return facts.arms > 2 and (self.debias or facts.level == "label")

    def resolve(self, facts: PublicInfo) -> Options:
        """Options of what is matched; with very many columns a tiny penalty cannot be fitted."""
        grouped = self._grouped(facts.level)
        for own in fields(self):
            if (own.name in _OF_GROUPS) != grouped and getattr(self, own.name) != own.default:
                single = 'matches of single records: as_printed=True, or level="label"'
                where = single if grouped else 'level="sample" without as_printed=True'
                raise OptionError(f"{own.name} is for {where}")
        if grouped:
            return MatchedOptions(groups=self.groups, flexible=self.flexible).resolve(facts)
        least = least_penalty(facts.width)
        if self.penalty is not None and self.penalty < least:
            raise OptionError(f"penalty must be at least {least:.3g} with {facts.width} columns")
        return self

    def check(self, n: int, smallest_arm: int | None, arms: int = 2) -> None:
        """Everybody must be able to find ``neighbors`` matches in every other arm."""
        if arms > 2 and isinstance(self.match_limit, tuple):
            raise OptionError(f"match_limit must be one whole number where there are {arms} arms")
        if smallest_arm is None and not self.as_printed:
            return
        if n < arms * self.neighbors:
            raise OptionError(
                f"neighbors={self.neighbors} needs {arms * self.neighbors} rows, not {n}"
            )
        if smallest_arm is not None and smallest_arm < self.neighbors:
            raise OptionError(f"neighbors={self.neighbors}, but an arm has {smallest_arm} records")


def budget_split(level: str, options: PrivatePSMOptions | MatchedOptions) -> dict[str, float]:
    """Those of `one_step` and of groups; or the paper's 0.05 : 0.05 : 0.7 : 0.2, and a variance."""
    if isinstance(options, PrivatePSMOptions):
        if level == "label":
            return {"estimate": 0.8, "variance": 0.2}
        if options.as_printed:
            paper = {"model": 0.05, "scores": 0.05, "treatment": 0.7, "estimate": 0.2}
            return {**paper, "variance": 0.05} if options.debias else paper
        options = MatchedOptions()
    return one_step.budget_split(level, options) | {"groups": SHARE}


@row("covariates")
def propensity_scores(rows: Block, weights: FloatArray) -> tuple[FloatArray, ...]:
    """1 / (1 + exp(-x'w)) for each row w of known weights: one for two arms, else for each arm."""
    return tuple(sigmoid(logits(rows.covariates, w)) for w in weights)


@dataclass(frozen=True)
class Inputs:
    """What matching works on: public or released, never private; and where outcomes are asked.

    ``scores`` has a column for each arm. ``arm`` is the number of a record's arm, of two 0 for
    treated records. ``chance`` is that of another arm than the true one to be released; None where
    arms are public. ``estimand`` says whose average is asked for.
    """

    records: MatchedRecords
    scores: FloatArray
    arm: IntArray
    details: dict[str, Any]
    chance: float | None = None
    estimand: str = "ATE"

    @property
    def asked(self) -> BoolArray:
        """Records over whom the effect is an average."""
        whose = ESTIMANDS[self.estimand].population(self.arm == 0, self.arm != 0)
        return np.asarray(whose)

    @property
    def counts(self) -> IntArray:
        """Number of records of each arm."""
        return np.bincount(self.arm, minlength=self.records.arms)

    @property
    def shares(self) -> FloatArray:
        """Shares of the arms."""
        return np.asarray(self.counts / self.records.n)


def release_inputs(curator: Curator, options: PrivatePSMOptions, estimand: str) -> Inputs:
    """Models and scores, and the arms; free where covariates and arms are public."""
    arms, penalty, details, chance = curator.arms, options.penalty, dict[str, Any](), None
    if curator.is_public("covariates"):
        models = [
            public_propensity_model(curator, penalty or _TINY_PENALTY, centred=False, arm=arm)
            for arm in ([None] if arms == 2 else range(arms))
        ]
        weights = np.stack([model.value for model in models])
        records = MatchedRecords(curator, propensity_scores(weights))
        scores, arm = records.public()
    else:
        each = curator.epsilon("model") / (1 if arms == 2 else arms)
        penalty = penalty or default_penalty(curator.n, curator.width, each)
        weights = np.atleast_2d(propensity_weights(curator, penalty, "model").value)
        records = MatchedRecords(curator, propensity_scores(weights))
        noisy = records.noisy_scores("scores")
        scores, arm = noisy.value, records.mixed_arms("treatment")
        chance = flip_chance(curator.epsilon("treatment"), arms)
        said = "a treatment is flipped" if arms == 2 else "an arm is replaced by another"
        details = {"ridge penalty": penalty, _SCORE_NOISE: noisy.scale}
        details[f"probability that {said}"] = chance
    arm = 1 - arm if arms == 2 else arm
    scores = np.broadcast_to(scores, (curator.n, arms))
    return Inputs(records, scores, arm, details, chance, estimand)


def uses_delta(
    options: PrivatePSMOptions | MatchedOptions, facts: PublicInfo
) -> dict[str, float | None]:
    """Shares with Gaussian noise, of groups alone: the paper has none."""
    return one_step.uses_delta(options, facts) if isinstance(options, MatchedOptions) else {}


def fit_arms(
    curator: Curator,
    options: PrivatePSMOptions | MatchedOptions,
    estimand: str,
    contrasts: Contrasts,
) -> Effects:
    """Matched groups; or algorithms 1-3: scores, matches, sums, and the rest post-processing."""
    if isinstance(options, MatchedOptions):
        return one_step.fit_arms(curator, options, estimand, contrasts)
    arms, inputs = curator.arms, release_inputs(curator, options, estimand)
    if not inputs.counts.all():
        raise EstimationError(
            "an arm has no records among the released ones, so there is nobody to match (the "
            "budget is spent); use a larger epsilon, fewer arms or method='diff_in_means'"
        )
    matches, details = _matched(curator, options, inputs)
    means, scales = _sums(inputs, matches)
    mixed, debias = mixing(arms, inputs.chance or 0.0), inputs.chance is None or options.debias
    mixture = mixture_of(inputs.shares, mixed)
    if inputs.chance is not None and arms == 2:
        inputs.details["attenuation by the flips"] = float(mixture[0, 0] - mixture[1, 0])
    turn = np.linalg.inv(mixture) if debias else np.eye(arms)
    # what multiplies the means of released arms
    rows = np.stack([between_arms(pair, np.ones(arms)) for pair in contrasts]) @ turn
    reason = "variance=False was asked for" if debias else _BIASED
    variances: Sequence[SamplingVariance | Unavailable] = [Unavailable(reason)] * len(rows)
    if curator.has("variance"):
        by_shares = share_variance(rows, turn @ means, inputs.shares, mixed, curator.n)
        variances = _variances(curator, inputs, matches, rows, means, scales, by_shares)
    noisy, warnings = _warnings(inputs)
    estimates = [
        Estimate(
            value=float(row @ means),
            sampling=variance,
            laplace=tuple(float(x) for x in np.abs(row) * scales if x > 0.0),
            identification="unadjusted" if noisy else "",
            warnings=warnings,
        )
        for row, variance in zip(rows, variances, strict=True)
    ]
    if arms > 2 and debias:
        for k, pair in enumerate(contrasts):
            two, sizes = turn[[*pair]], inputs.counts[[*pair]]
            made = _means(curator, estimates[k], two @ means, two * scales, sizes)
            estimates[k] = replace(estimates[k], means=made)
    notes = ((_NOISY, noisy), (_NOT_DEBIASED, not debias))
    return Effects(
        tuple(estimates),
        tuple(note for note, said in notes if said),
        details={**inputs.details, **details},
    )


def _matched(
    curator: Curator, options: PrivatePSMOptions, inputs: Inputs
) -> tuple[list[Matches], dict[str, Any]]:
    """Matches in each arm under its limit (equations 9-12, made feasible)."""
    label, wanted = inputs.chance is None, options.neighbors
    each = list(enumerate(inputs.counts.tolist()))
    inside = [inputs.arm == arm for arm, _ in each]
    matches = [match_into(inputs.scores[:, arm], inside[arm], wanted) for arm, _ in each]
    used = [int(found.used[x].max()) - 1 for found, x in zip(matches, inside, strict=True)]
    used = [max(used)] * 2 if len(used) == 2 else used  # the paper's M is that of both arms
    limits, raised = [], False
    for arm, count in each:
        others, given = curator.n - count, options.match_limit
        if given is None:
            limit = match_limit(
                count,
                others,
                wanted,
                max(used[arm], 1),
                curator.epsilon("estimate"),
                options.error_coefficient or _COEFFICIENT["label" if label else "sample"],
                capped=label,
            )
        else:
            own = given[arm] if isinstance(given, tuple) else given
            limit = feasible(own, count, others)
            raised |= limit > own
        if used[arm] > limit * wanted:
            scores = inputs.scores[:, arm]
            matches[arm] = match_into(scores, inside[arm], wanted, limit * wanted)
        limits.append(str(limit))
    if not (asked := inputs.asked).all():
        matches = [found.only(asked) for found in matches]
    short = [
        int((m.found[asked & ~x] < wanted).sum()) for m, x in zip(matches, inside, strict=True)
    ]
    whose = "(treated, control)" if len(each) == 2 else "by arm"
    details = {
        f"match limit k {whose}": ", ".join(limits)
        + (" (raised: the one given cannot serve everybody)" if raised else ""),
        "largest weight of a record": round(max(float(m.weight.max()) for m in matches), 4),
        "records with fewer matches than asked": sum(short),
    }
    return matches, details


def _sums(inputs: Inputs, matches: list[Matches]) -> tuple[FloatArray, FloatArray]:
    """Release the means of the arms, and say the scales of their noise.

    They are measured from the middle of the range, and for two arms from that of the second.
    """
    arm, weights = inputs.arm, np.stack([found.weight for found in matches])
    own, size = weights[inputs.arm, np.arange(arm.size)], np.count_nonzero(inputs.asked)
    if len(matches) == 2:
        signed = np.where(arm == 0, own, -own)
        sums = inputs.records.contrast("matched difference", signed, "estimate")
        most = np.eye(1, 2)[0]
    else:
        most = weights.max(axis=1)
        sums = inputs.records.contrast("matched sums by arm", own / most[arm], "estimate", arm)
    return sums.value * most / size, sums.scale * most / size


def mixing(arms: int, chance: float) -> FloatArray:
    """Chance of each released arm (row) given the true one (column)."""
    other = chance / (arms - 1)
    return np.full((arms, arms), other) + (1.0 - chance - other) * np.eye(arms)


def mixture_of(released: FloatArray, mixed: FloatArray) -> FloatArray:
    """Share of each true arm (column) among the records of a released one (row).

    ``released`` are shares of released arms. The released arm b has the share P_ba q_a / r_b of
    records of arm a, for true shares q and r = P q; true shares are kept above 0.1 / arms.
    """
    least, arms = hand.RARE / len(released), len(released)
    true = np.clip(np.linalg.solve(mixed, released), least, 1.0 - (arms - 1) * least)
    joint = mixed * (true / true.sum())
    return np.asarray(joint / joint.sum(axis=1, keepdims=True))


def share_variance(
    rows: FloatArray, means: FloatArray, shares: FloatArray, mixed: FloatArray, n: int
) -> FloatArray:
    """Variance of each contrast that comes with the released shares, by its slopes in them.

    ``rows`` multiply means of released arms, ``means`` are those of true ones.
    """
    covariance = (np.diag(shares) - np.outer(shares, shares)) / n
    values, vectors = np.linalg.eigh(covariance)
    total = np.zeros(len(rows))
    for step in (vectors * np.sqrt(np.maximum(values, 0.0))).T:
        moved = (mixture_of(shares + step, mixed) - mixture_of(shares - step, mixed)) / 2.0
        total += (rows @ moved @ means) ** 2
    return total


def _means(
    curator: Curator,
    estimate: Estimate,
    from_middle: FloatArray,
    scales: FloatArray,
    sizes: IntArray,
) -> ArmMeans:
    """Means of two arms; the variance of their difference is divided by the sizes of the arms."""
    low, high = curator.outcome_range
    one, two = (low + (high - low) / 2.0 + from_middle).tolist()
    part, own = float(sizes[1] / sizes.sum()), estimate.sampling
    made = ArmMeans(
        one,
        two,
        own if isinstance(own, Unavailable) else (MeansVariance(own, part, 1.0 - part),),
        laplace=tuple((float(a), float(b)) for a, b in scales.T),
        possible=(low, high),
    )
    return _with_design(made, estimate, part) if curator.values[-1] == 2 else made


def _with_design(means: ArmMeans, estimate: Estimate, part: float) -> ArmMeans:
    """Means of an outcome of two values, whose design is such that the variance comes out right.

    ``part`` is that of the treated mean in the variance of arms of equal risk.
    """
    bare, own = replace(means, design=(part, 1.0 - part, 0.0)), sampling_variance(estimate)
    if isinstance(own, Unavailable):
        return bare
    factor = own / max(variance_at(bare, 1.0, -1.0, *likely(bare)), 1e-300)
    return replace(means, design=(factor * part, factor * (1.0 - part), 0.0))


def _warnings(inputs: Inputs) -> tuple[bool, str]:
    """Whether the scores are mostly noise, and what to say where they have some.

    The noise is known, and so is the variance of the released scores that it is in.
    """
    variance = 2.0 * inputs.details.get(_SCORE_NOISE, 0.0) ** 2
    share = variance / max(float(inputs.scores.var(axis=0).min()), 1e-300)
    if share > hand.HARDLY:
        return True, NOISY_SCORE
    if share > hand.WORTH_A_WORD:
        return False, f"Partial adjustment: {share:.0%} of the scores' variance is privacy noise"
    return False, ""


def _variances(
    curator: Curator,
    inputs: Inputs,
    matches: list[Matches],
    rows: FloatArray,
    means: FloatArray,
    scales: FloatArray,
    by_shares: FloatArray,
) -> list[SamplingVariance]:
    """Abadie and Imbens (2006): variances of matching estimators of population effects.

    For coefficients g of the arms and imputed outcomes m_ia of record i, n^2 V = sum_i (sum_a g_a
    m_ia - tau)^2 + sum_j g_j^2 (c_j^2 - kappa2_j) sigma_j^2, where g_j is the coefficient of j's
    arm, c_j the weight of j and kappa2_j the sum of 1/|P(i)|^2 over the records it serves, itself
    among both; sigma_j^2 is half the squared difference within pairs of near scores of an arm. A
    single record of an arm has no pair.
    """
    n, arm = int(np.count_nonzero(inputs.asked)), inputs.arm
    lower, upper = curator.outcome_range
    size = np.maximum(np.abs(rows).sum(axis=1) / 2.0, np.abs(rows).max(axis=1))
    units = np.round(rows / size[:, None], 12)
    extra, partner = np.zeros(arm.size), np.full(arm.size, -1, np.int32)
    for k, found in enumerate(matches):
        inside = arm == k
        extra[inside] = (found.weight**2 - found.weight_sq)[inside]
        partner[inside] = pairs(inputs.scores[:, k], inside)[inside]
    paired, pool = partner >= 0, 0 * arm if len(matches) == 2 else arm
    whole, covered = np.bincount(pool, extra), np.bincount(pool, extra * paired)
    told = covered > 0.0
    stretch = np.divide(whole, covered, out=np.ones(len(whole)), where=told)
    weights = units[:, arm] ** 2 * np.where(paired, (extra + extra[partner]) * stretch[pool], 0.0)
    tables = [found.neighbours for found in matches]
    squares = inputs.records.imputed_squares(tables, units, partner, weights, "variance")
    effect = units @ means
    noise = 2.0 * np.sum((units * scales) ** 2, axis=1)
    # what no pair tells of is taken to be as large as it can be
    untold = (upper - lower) ** 2 / 4.0 * (units[:, arm] ** 2 @ (extra * ~told[pool])) / n**2
    value = (squares.value - n * (effect**2 - noise)) / n**2 + untold
    around = np.hypot(squares.scale / n**2, 2.0 * effect * np.sqrt(noise / 2.0) / n)
    largest = (upper - lower) ** 2 * (n + weights.sum(axis=1) / 4.0) / n**2 + untold
    columns = (value * size**2 + by_shares, around * size**2, largest * size**2 + by_shares)
    return [SamplingVariance(*map(float, entry)) for entry in zip(*columns, strict=True)]


def default_penalty(n: int, d: int, epsilon: float) -> float:
    """Return the ridge penalty at which noise on the weights moves a row's logit by about one.

    The noise of scale 2d / (n penalty epsilon) on d weights has a standard deviation of at most
    2 sqrt(2) d^1.5 / (n penalty epsilon) in the logit of a row in [0, 1]^d.
    """
    return min(1.0, max(1.0 / n, 2.0 * math.sqrt(2.0) * d**1.5 / (n * epsilon)))


SPEC = MethodSpec(
    name="private_psm",
    title="propensity-score matching",
    about="propensity score matching: strata of a released score, or PrivATE's neighbours where "
    "only outcomes are private or as_printed=True",
    assumes=f"{NO_CONFOUNDER}; the propensity logit is linear in its terms",
    estimands=AVERAGES,
    levels=("sample", "label"),
    options=PrivatePSMOptions,
    budget_split=budget_split,
    uses_delta=uses_delta,
    fit_arms=fit_arms,
    citation=(
        "Yuan, Li, Du, Chen, Sun, Gao, He, Chen and Zhang, PrivATE: Differentially private "
        "average treatment effect estimation for observational data."
    ),
)
