"""One-step estimator: private moments, linear models, then one weighted sum of clipped residuals.

1. As in `clipped_contrast`: the share of treated records, means by arm, a clip.
2. One noisy matrix of moments gives linear models of the outcome and of the log odds of treatment
   (`moment_models`), and what noise leaves unknown of both (`posterior`). Noise in one model does
   no harm where the other is right; what noise in both leaves of the confounding is expected,
   subtracted, and its variance is a line of the standard error.
3. Constant and scale of the score are corrected by one private Newton step.
4. ONE sum over all records, of clipped residuals from the outcome model with the weights of the
   estimand, corrects the effect that the models give. Its terms are cut where noise and what is
   not known of what the cut leaves out are least together. Where few records or noise forbid these
   weights, overlap weights take their place.
5. With the same look at the rows: how the effect varies along the score, by a line and a U
   (`variation`), which makes of it the average over all, treated or control records; how many more
   terms are cut at one end than at the other, which tells what the cut took off; and whether the
   score bends where the formula has lines (`curves`).

At label level covariates and treatment are public: the weights cost nothing (`balancing`).

More than two arms have one matrix of moments, and one weighted sum for each arm (`arm_terms`).
Whether scores bend is not checked then; the interval allows for what is usual.

With ``design="randomised"`` there is nothing to correct for: weights are those of the arms, and
the covariates make residuals, and so the interval, shorter.

What carries it, and what does not, by the error relative to the whole (four populations, epsilon 1,
with overlap weights throughout): moments alone without the sum 1.5; Laplace noise by entry in place
of the matrix noise 1.5; declared ranges without private centring and scaling of covariates 1.2, up
to 3; no adjusting 5.5.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, ClassVar

import numpy as np

from dpeffects.arrays import FloatArray
from dpeffects.errors import OptionError, refusal
from dpeffects.estimands import AVERAGES
from dpeffects.estimators import constants as hand
from dpeffects.estimators.arm_sums import ArmLookup
from dpeffects.estimators.default.arm_levels import Spread, arm_means, by_arm, with_means
from dpeffects.estimators.default.arm_summaries import (
    ArmStats,
    clipped_term,
    release_centres,
    residual,
)
from dpeffects.estimators.default.arm_terms import ArmTerms, combination, noise_between
from dpeffects.estimators.default.clipped_contrast import ClippedContrastOptions, details
from dpeffects.estimators.default.effect_variation import (
    ClippingQuery,
    EffectVariation,
    EffectVariationQuery,
)
from dpeffects.estimators.default.forecast import Forecast, forecast_one_step
from dpeffects.estimators.default.moment_models import ArmModels, Models, release_models
from dpeffects.estimators.default.polynomial_terms import Bends, added_words, bends, bent
from dpeffects.estimators.default.propensity_score import (
    PropensityScore,
    ask_calibration,
    calibrated,
    score_of,
)
from dpeffects.estimators.default.score_curvature import CurvatureQuery, ScoreCurvature
from dpeffects.estimators.default.standardisation import Standardiser, ask_means, release_standard
from dpeffects.estimators.default.tails import ClippedMeans, LengthQuery, ResidualLengths, uncut
from dpeffects.estimators.option_checks import between, choice, whole
from dpeffects.estimators.row_functions import row
from dpeffects.estimators.spec import NO_CONFOUNDER, Contrasts, MethodSpec, PublicInfo
from dpeffects.inference.estimate import Effects, ErrorPart, Estimate, Unavailable, with_another
from dpeffects.privacy.budget import Budget
from dpeffects.privacy.curator import Curator
from dpeffects.privacy.release import Split
from dpeffects.privacy.rows import Block, RowFunction
from dpeffects.results.wording import said

_POOLS = "none", "models", "all"
"""Which shares have Gaussian noise, where there is a delta."""
_TYPICAL = PublicInfo(1000, 10, Budget(1.0), "label", values=(1, *(0,) * 9, 0))
"""For which splits of the budget are listed."""
_SAID = said("one_step")


@dataclass(frozen=True)
class OneStepOptions(ClippedContrastOptions):
    """Options of the one-step estimator.

    ``design``: "observational", or "randomised" where treatment was assigned by chance. This method
    always adjusts, so ``on_unadjusted`` changes nothing: where the models come out as nothing but
    noise, the result is called an association. ``first_stage``: proportion of the budget for the
    number of treated records, the means and the lengths of residuals, or None to choose it.
    ``clip``: propensity scores are kept within [clip, 1 - clip], or to at least half of the share
    of the smallest arm where that is less. ``model_share``: proportion of the
    budget for the moments, or None to choose it. ``pool``: which shares get Gaussian noise where
    there is a delta: "none", "models", "all", or None to choose. ``flexible``: 0 adjusts for the
    formula's own terms alone, 1 for squares of its columns too, 2 for their products too; None
    chooses by n, epsilon, delta and the number of columns, and at label level, where covariates
    are public, has steps too.
    """

    instead: ClassVar[str] = ""
    clip: float = between(0.05, 0.01, 0.45)
    model_share: float | None = between(None, 0.05, 0.85)
    pool: str | None = choice(None, *_POOLS)
    flexible: int | None = whole(None, 0, 2)

    def has_means(self, facts: PublicInfo) -> bool:
        """Sums by arm are released, but for contrasts that have their parts of the budget."""
        return facts.arms == 2 or facts.level == "sample"

    def resolve(self, facts: PublicInfo) -> OneStepOptions:
        """Choose what goes to the moments, and which noise, by the forecast."""
        return planned(self, facts)[0]

    def regrouped(self, curator: Curator, score: PropensityScore) -> PropensityScore:
        """The score whose chances the weights are made of."""
        return score

    def shown(self) -> dict[str, Any]:
        """At label level there are only the design and the curves to choose."""
        label = self.facts is not None and self.facts.level == "label"
        own = super().shown()
        return {name: own[name] for name in ("design", "flexible")} if label else own


@lru_cache(maxsize=256)
def planned(options: OneStepOptions, facts: PublicInfo) -> tuple[OneStepOptions, Forecast]:
    """The options with every choice made, and what to expect of them."""
    if facts.level == "label":
        return options.made_for(facts), Forecast(math.nan, math.nan, math.nan)
    known, facts = facts, bent(facts, options.made_for(facts).degree)
    columns = facts.columns
    if columns > hand.MOST_COLUMNS:
        more = f"{hand.MOST_COLUMNS} covariates, not {columns}{options.instead}"
        raise OptionError(f"one_step can use at most {more}")
    able = facts.budget.delta and columns <= hand.MOST_POOLED
    if options.pool not in (None, "none") and columns > hand.MOST_POOLED:
        raise OptionError(refusal("pooled_covariates", most=hand.MOST_POOLED, columns=columns))
    pools = (options.pool,) if options.pool else _POOLS if able else _POOLS[:1]
    plans = []
    for pool in pools:
        tried = options.made_for(
            facts, pool=pool, first_stage=options.first_stage or hand.SHARES[1]
        )
        for _ in range(2):  # first the moments, then the first stage, then the moments again
            if options.model_share is None:
                tried = _best([tried.made_for(facts, model_share=x) for x in hand.SHARES], facts)
            if options.first_stage is None:
                tried = _best(
                    [tried.made_for(facts, first_stage=x) for x in hand.SHARES[:4]], facts
                )
        plans.append((tried, _expected(tried, facts)))
    best, forecast = min(plans, key=lambda plan: plan[1].error)
    return best.made_for(known), forecast


def _best(choices: list[OneStepOptions], facts: PublicInfo) -> OneStepOptions:
    return min(choices, key=lambda options: _expected(options, facts).error)


@lru_cache(maxsize=2048)
def _expected(options: OneStepOptions, facts: PublicInfo) -> Forecast:
    """What to expect of a way to divide the budget."""
    if options.pool == "none" and facts.budget.delta:  # pure noise is the same
        pure = replace(facts, budget=Budget(facts.budget.epsilon))
        return _expected(options.made_for(pure), pure)
    split = Split.of(facts.budget, budget_split(facts.level, options), uses_delta(options, facts))
    return forecast_one_step(facts, split, options.randomised)


def budget_split(level: str, options: OneStepOptions) -> dict[str, float]:
    """Split of the budget: what the moments leave is divided in fixed proportions."""
    if level == "label":
        from dpeffects.estimators.default.balancing import label_shares

        return label_shares(options, options.facts or _TYPICAL)
    models = options.model_share or hand.SHARES[3]
    means = 0.3 * (options.first_stage or hand.SHARES[0])
    first = {"count": means, "means": means}
    if options.clips:
        first["lengths"] = 2.0 * means
    first["spread"] = hand.SPREAD_SHARE
    rest = {"estimate": 0.42}
    if not options.randomised:
        rest |= {"calibration": 0.03, "variation": 0.03}
        facts = options.facts
        if facts is None or (facts.arms == 2 and not set(facts.values[:-1]) <= {1, 2}):
            rest["curves"] = 0.06  # columns that can bend
        if options.clips and facts and facts.n * facts.budget.epsilon >= hand.ONE_END[-1]:
            rest["cut"] = 0.15
    part = max(1.0 - models - sum(first.values()), 0.05) / sum(rest.values())
    return first | {name: part * x for name, x in rest.items()} | {"models": models}


def uses_delta(options: OneStepOptions, facts: PublicInfo) -> dict[str, float | None]:
    """Shares with Gaussian noise, as chosen; none at label level."""
    names = (
        tuple(budget_split(facts.level, options)) if options.pool == "all" else ("spread", "models")
    )
    return dict.fromkeys(names if options.pool not in (None, "none") else (), math.inf)


@row("outcome")
def from_model(
    rows: Block, standard: Standardiser, slopes: FloatArray, levels: ArmLookup
) -> FloatArray:
    """The outcome less what the model of its arm predicts: level + x'slopes."""
    return np.asarray(rows.outcome - levels(rows) - standard.index(rows, slopes))


@dataclass(frozen=True, eq=False)
class Stage:
    """What is known before the weighted sums: models of outcome and arms, and a clip.

    ``levels`` are what the outcome model says of each arm. ``cut`` says what clips do: to
    residuals, or to these and to terms, which are at most the largest weight times its length.
    """

    centres: ArmStats
    models: ArmModels
    levels: FloatArray
    residual: RowFunction
    score: PropensityScore
    clip: float
    cut: ClippedMeans
    lengths: ResidualLengths | None = None

    def details(self, contrasts: Contrasts) -> dict[str, Any]:
        """What is worth showing; of several pairs of arms, the models that are known least."""
        sd = self.models.clip * math.sqrt(self.models.moments.outcome_variance)
        pairs = (self.models.pair(*pair).slopes.known for pair in contrasts)
        names = (f"signal in the {x} model (reliability)" for x in ("outcome", "treatment"))
        known = (f"{100.0 * max(x, 0.0):.0f} %" for x in min(pairs, key=min))
        return details(self.centres, self.clip, sd) | dict(zip(names, known, strict=True))


def release_stage(
    curator: Curator,
    randomised: bool,
    least: float,
    reach: Callable[[PropensityScore], float],
    groups: int = 1,
    added: Bends = (),
) -> Stage:
    """Release centres, moments and calibration.

    ``reach`` is how far one unit of a residual moves the estimate of one of some ``groups``, times
    its records, given the score.
    """
    n, arms, centres = curator.n, curator.arms, release_centres(curator)
    unit = 2.0 * noise_between(arms) * curator.noise_sd("estimate") / n
    first, unseen = uncut(centres), hand.UNSEEN * randomised
    query = partial(LengthQuery, centres=centres, unseen=unseen)
    about_means = query(residual(centres.means), first.length, part=0.25)
    clipped = [about_means.asked] if curator.has("lengths") else []
    sums, *counts = curator.several(ask_means(curator, "spread"), *clipped)
    lengths, squares = None, (centres.most_variance,) * 2
    if counts:
        lengths = about_means.read(counts[0])
        first = lengths.clip(hand.CELLS * arms * unit, centres, cautious=False)
        squares = lengths.mean_square(first.length)
    standard, clip = release_standard(curator, sums, "spread", added), first.length
    models = release_models(curator, standard, centres, clip, "models", randomised, squares)
    centres = replace(centres, unknown=np.hypot(models.unknown, centres.missed(first.beyond)))
    # all arms against the one with the most records
    reference = 1 if arms == 2 else int(np.argmax(centres.shares))
    others = {arm: models.pair(arm, reference) for arm in range(arms) if arm != reference}
    outcome = clip * np.mean([pair.outcome_slopes for pair in others.values()], axis=0)
    slopes = np.zeros((arms, standard.size))
    for arm, pair in others.items():
        slopes[arm] = pair.treatment_slopes
    # chances of straight log odds bend, and so do the moments: to second order by this much
    typical = centres.shares @ slopes
    slopes = slopes - np.stack([standard.product(x, 0.5 * x - typical) for x in slopes])
    shifts = slopes @ models.covariance
    levels = centres.means + clip * models.offsets
    levels = levels - (models.mean + shifts - centres.shares @ shifts) @ outcome
    from_levels = from_model(standard, outcome, ArmLookup(levels))
    least = min(least, 0.5 * float(centres.shares.min()))
    score = score_of(models, slopes, reference, least)
    longest, label = uncut(centres, 1.25), "sizes of model residuals"
    stage = Stage(centres, models, levels, from_levels, score, longest.length, longest)
    about_model = query(from_levels, stage.clip, label=label, part=0.75)
    clipped = [about_model.asked] if clipped else []
    scaled = [] if randomised else [ask_calibration(score)]
    answers = curator.several(*scaled, *clipped)
    if scaled:
        stage = replace(stage, score=calibrated(score, n, answers[0]))
    if clipped:
        read = about_model.read(answers[-1], lengths)
        cut = read.clip(groups * reach(stage.score) * unit, centres, groups)
        stage = replace(stage, clip=cut.length, cut=cut, lengths=read)
    return stage


def fit_arms(
    curator: Curator, options: OneStepOptions, estimand: str, contrasts: Contrasts
) -> Effects:
    """Release centres, moments, calibration and the sums; the rest is post-processing."""
    if curator.is_public("covariates"):
        from dpeffects.estimators.default.balancing import fit_label

        return fit_label(curator, options, estimand, contrasts)
    added = bends(options.facts, options.degree) if options.facts else ()
    stage = release_stage(curator, options.randomised, options.clip, _reach, added=added)
    first = stage.models.pair(*contrasts[0])
    check = CurvatureQuery(curator.values, first, stage.score)
    stage = replace(stage, score=options.regrouped(curator, stage.score))
    if not options.randomised:
        stage = _tilted(stage, estimand, curator, first)
    score, cut = stage.score, stage.cut
    top = min(stage.clip, cut.length) * score.largest / score.mass
    term = clipped_term(stage.residual, score.weight(), stage.clip, ArmLookup(top))
    terms = ArmTerms(stage.centres, term, -top, top, score.sizes(curator.n))
    along = EffectVariationQuery(first, score)
    bias = np.array([math.hypot(*cut.unknown)]) if curator.arms == 2 else cut.unknown
    ends = ClippingQuery(terms, bias) if curator.has("cut") else None
    checks = [] if options.randomised else [along.asked(curator, terms)]
    if checks and curator.arms == 2:
        checks += check.asked
    if ends:
        checks.append(ends.asked(curator))
    released, *checked = curator.several(terms.asked(curator), *checks)
    found = terms.read(released)
    at_ends, unknown = ends.read(checked.pop()) if ends else (np.zeros(1), bias**2)
    varying = along.read(checked[0], found) if checked else EffectVariation.nowhere()
    seen = check.read(curator.names, *checked[1:]) if curator.arms == 2 else None
    centres, randomised, arms = stage.centres, options.randomised, curator.arms
    sums, levels = found.means + at_ends, stage.levels + cut.lost

    def estimate(pair: list[int]) -> Estimate:
        """The effect of an arm against another."""
        models, c = stage.models.pair(*pair), combination(pair, arms)
        curves = seen or ScoreCurvature.usual(models.slopes.selection)
        varies = varying if randomised else replace(varying, combination=c)
        value = float(levels[pair[0]] - levels[pair[1]] + c @ sums)
        off = 0.0 if randomised else hand.WEIGHTS_OFF
        parts = [ErrorPart("winsorisation bias", float((c**2 * unknown).sum()))]
        parts.append(centres.noise_part(pair, found.means, off, beyond=cut.beyond))
        if not randomised:
            value += varies.more(estimand) - models.clip * models.slopes.left
            parts += confounding(models, curves)
            parts += [part for part, _ in varies.errors(estimand)]
        said = "" if randomised else warnings(models, curves, score, options.left_out)
        made = found.estimate(
            pair,
            value,
            parts,
            identification=identification(models, options),
            warnings=centres.with_warnings(said),
            influence=found.influence(pair),
        )
        variance, sizes = models.clip**2 * models.outcome_variance, score.sizes(centres.n)
        if not randomised:
            told = _unreached(stage, models.slopes.selection * math.sqrt(variance / _spread(made)))
            made = replace(made, warnings=with_another(made.warnings, told))
        if arms == 2:
            spread = Spread(float(variance), sizes, min(models.slopes.explained, 0.9))
            whose = "ATE" if randomised else estimand
            return with_means(made, centres, whose, spread, varies=varies)
        # what is left of the confounding is taken off both arms
        means = levels + sums
        if not randomised:
            means = means + varies.by_sum("ATE")
        means[pair] += np.array([0.5, -0.5]) * (made.value - float(c @ means))
        common = models.slopes.explained * variance / centres.n
        sampling = by_arm(pair, found.sampling, found.sampling_sd, found.largest, common)
        noise = found.scales, found.release.gaussian
        return replace(made, means=arm_means(pair, means, centres, made, sampling, *noise, sizes))

    estimates = tuple(estimate(list(pair)) for pair in contrasts)
    shown = added_words(options.facts, options.degree) if options.facts else {}
    return Effects(estimates, details=shown | stage.details(contrasts))


def _spread(made: Estimate) -> float:
    """Variance of an estimate, by all that is allowed for."""
    sampling = 0.0 if isinstance(made.sampling, Unavailable) else max(made.sampling.value, 0.0)
    return sampling + made.noise_variance + made.bias_variance


def _unreached(stage: Stage, selection: float) -> str:
    """What the first lines say where weights do not reach all records of the estimand.

    A strong U moves the average from that of overlap weights by about as much as confounding would,
    ``selection`` being in standard errors; and far records by the square of how far they are.
    """
    strong, cut = hand.CONFOUNDED * selection, float(stage.cut.beyond.mean()) + stage.score.cut
    if stage.score.tilt == "overlap" and strong > 1.0:
        few = "would be too noisy or would rest on too few records"
        return f"Overlap weights: inverse probability weights {few}; {_SAID['may_miss']}"
    told = f"Truncated weights: {100.0 * cut:.0f} % of the total weight is cut off; "
    far = stage.score.tilt != "overlap" and strong * hand.CUT**2 * cut > 1.0
    return told + _SAID["may_miss"] if far and cut >= 0.01 else ""  # less is printed as nothing


def _reach(score: PropensityScore) -> float:
    """How far one unit of a residual moves an average effect, times the records."""
    return math.sqrt(float(np.mean(score.largest**2))) / score.mass


def _tilted(stage: Stage, estimand: str, curator: Curator, models: Models) -> Stage:
    """Weights of the estimand, or overlap weights where noise or few records forbid those.

    With the latter the interval allows for effects that vary along the score, by what is released
    about them. Terms are cut where what that may leave out and noise are least together.
    """
    spread = stage.models.clip**2 * stage.models.moments.outcome_variance
    unit = 2.0 * noise_between(curator.arms) * curator.noise_sd("estimate") / curator.n
    off, found = float(stage.centres.unknown.max()), []
    for tilt in (estimand, "overlap"):
        score = replace(stage.score, tilt=tilt)
        reach, cut = _reach(score), stage.cut
        if stage.lengths:
            largest = score.largest / score.mass
            terms = stage.lengths.of_terms(off, stage.clip, largest, *score.relative)
            cut = terms.clip(unit * reach, stage.centres, known=False)
        error = spread * float((1.0 / score.sizes(curator.n)).sum())
        error += float((cut.unknown**2 + stage.centres.missed(cut.beyond) ** 2).sum())
        error += EffectVariationQuery(models, score).may_move(estimand)
        error += (unit * reach * min(cut.length, stage.clip)) ** 2
        found.append((error, replace(stage, score=score, cut=cut)))
    return min(found, key=lambda x: x[0])[1]


def confounding(models: Models, curves: ScoreCurvature) -> list[ErrorPart]:
    """What noise in the models, and curves, may leave."""
    slopes, squared, covariance = models.slopes, models.clip**2, models.covariance
    a, spread = models.treatment_slopes, models.outcome_variance
    unknown = float(slopes.outcome_variance @ np.linalg.eigvalsh(covariance)) / models.columns
    missed = hand.WRONG_SCORE**2 * float(a @ covariance @ a) * unknown
    moved = min(hand.SECOND_ORDER * slopes.noise_variance, slopes.left_variance)
    curved = curves.left_variance(spread, slopes.explained)
    # what squares and products remove of the confounding, and lines do not
    k = models.standard.columns.size
    across = covariance[:k, k:]
    bent = covariance[k:, k:] - across.T @ np.linalg.solve(covariance[:k, :k], across)
    curved += (hand.HIGHER * float(models.outcome_slopes[k:] @ bent @ a[k:])) ** 2
    rest = slopes.vague * (slopes.left_variance - moved) + missed
    return [
        ErrorPart("the models", squared * slopes.vague * moved, noise=True),
        ErrorPart("residual confounding from noise in the models", squared * rest),
        ErrorPart("residual confounding by non-linearity", squared * curved),
    ]


def identification(models: Models, options: OneStepOptions) -> str:
    """Models that are nothing but noise adjust for nothing."""
    if options.randomised:
        return "randomised"
    return "adjusted" if min(models.slopes.known) >= hand.NOTHING else "unadjusted"


def warnings(
    models: Models, curves: ScoreCurvature, score: PropensityScore, left_out: str = ""
) -> str:
    """Warnings about the adjustment."""
    found, apart = with_another(models.standard.warnings, left_out, curves.warnings), ""
    if score.explained > hand.ARMS_APART:
        apart = _SAID["overlap"].format(100.0 * score.explained)
    if min(models.slopes.known) < hand.HARDLY**2:
        hardly = "Weak adjustment: the models of outcome and treatment are mostly privacy noise"
        hardly += "" if apart else "; the interval allows for the confounding that is left"
        found = with_another(models.standard.warnings, hardly)
    return "; ".join(filter(None, (apart, found)))


SPEC = MethodSpec(
    name="one_step",
    title="one-step estimator from private moments",
    about="private moments give linear models; one weighted sum of residuals corrects them",
    assumes=f"{NO_CONFOUNDER}; outcome and log odds of treatment are linear in its terms "
    "and the columns added",
    estimands=AVERAGES,
    levels=("sample", "label"),
    options=OneStepOptions,
    budget_split=budget_split,
    uses_delta=uses_delta,
    fit_arms=fit_arms,
    citation="dpeffects (software): one-step estimation from private moments.",
)
