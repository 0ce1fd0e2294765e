"""One-step estimator: private moments, linear models, then one weighted sum of clipped residuals.

1. As in `clipped_contrast`: the share of treated records, means by arm, a clip.
2. One noisy matrix of moments gives linear models of the outcome and of the log odds of treatment
   (`_moments`), and what noise leaves unknown of both (`_posterior`). Noise in one model does no
   harm where the other is right; what noise in both leaves of the confounding is expected,
   subtracted, and its variance is a line of the standard error.
3. Constant and scale of the score are corrected by one private Newton step.
4. ONE sum over all records, of clipped residuals from the outcome model with overlap weights,
   corrects the effect that the models give. The largest of these weights is a fraction of the
   largest inverse probability, and so is the noise.

5. With the same look at the rows: how the effect varies along the score (`_variation`), which
   makes of it the average over all, treated or control records, and whether the score bends where
   the formula has lines (`_curves`).

At label level covariates and treatment are public: the weights cost nothing (`_balancing`).

More than two arms have one matrix of moments, and one weighted sum for each arm (`_arm_models`,
`_weighted_arms`). Whether scores bend is not checked then; the interval allows for what is usual.

With ``design="randomised"`` there is nothing to correct for: weights are those of the arms, and
the covariates make residuals, and so the interval, shorter.

What carries it, and what does not, by the error relative to the whole (four populations, epsilon
1): moments alone without the sum 1.5; Laplace noise by entry in place of the matrix noise 1.5;
declared ranges without private centring and scaling of covariates 1.2, up to 3; inverse
probabilities in place of overlap weights 1.06; no adjusting 5.5.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dpeffects.arrays import FloatArray
from dpeffects.errors import OptionError
from dpeffects.estimands import AVERAGES
from dpeffects.estimators._centres import Centres, LengthsAsked, Residual, release_centres
from dpeffects.estimators._checks import check_between, check_choice
from dpeffects.estimators._curves import Curves, CurvesAsked
from dpeffects.estimators._forecast import BY_ARM, Forecast, forecast_one_step
from dpeffects.estimators._levels import Spread, arm_means, by_arm, with_means
from dpeffects.estimators._moments import (
    Models,
    Standard,
    ask_means,
    release_models,
    release_standard,
)
from dpeffects.estimators._variation import VariationAsked, Varying
from dpeffects.estimators.clipped_contrast import (
    ClippedContrastOptions,
    TotalAsked,
    clips,
    details,
)
from dpeffects.estimators.spec import NO_CONFOUNDER, Contrasts, Facts, MethodSpec
from dpeffects.inference.estimate import Effects, Estimate, Influence, Part
from dpeffects.privacy.budget import Budget
from dpeffects.privacy.charges import Noisy
from dpeffects.privacy.curator import Asked, Curator
from dpeffects.privacy.logistic import sigmoid
from dpeffects.privacy.release import Split
from dpeffects.privacy.rows import Block
from dpeffects.privacy.sets import Box

if TYPE_CHECKING:
    from dpeffects.estimators._arm_models import ArmModels, ArmScore
    from dpeffects.estimators._weighted_arms import ArmResiduals

_MODELS = (0.14, 0.2, 0.28, 0.36, 0.44, 0.52, 0.6, 0.68, 0.74)
"""Shares of the moments that are compared."""
_FIRST = (0.1, 0.16, 0.24, 0.36)
"""Proportions for the first stage that are compared: the fewer records, the more it needs."""
_POOLS = ("none", "models", "all")
"""Which shares have Gaussian noise, where there is a delta."""
MOST_COLUMNS, _MOST_POOLED = 450, 250
"""Covariates that the noise of a matrix is proved for, and those that can have Gaussian noise."""
_TYPICAL = Facts(1000, 10, Budget(1.0), "label", values=(1, *(0,) * 9, 0))
"""For which splits of the budget are listed."""
_CUT = 2.5
"""The score's index is cut at this many of its standard deviations in the Newton step."""
_WEIGHTS_OFF = 0.04
"""Relative error of the sum of the weights of an arm."""
_WRONG_SCORE = 0.3
"""Error of the score's slopes by its shape, which normal covariates in each arm would give it, in
units of the slopes: it meets what is not known of the outcome's slopes."""
_SECOND_ORDER = 1.5
"""Variance of what noise in the models does, over what it does to first order."""
_HARDLY, _NOTHING = 0.25, 0.1
"""Where less than this part of either model is known, the result says that it hardly adjusts, and
that it is an association."""
_APART = 0.6
"""Where the score explains more than this part of who is treated, the arms hardly overlap."""


@dataclass(frozen=True)
class OneStepOptions(ClippedContrastOptions):
    """Options of the one-step estimator.

    ``design``: "observational", or "randomised" where treatment was assigned by chance. This method
    always adjusts, so ``on_unadjusted`` changes nothing: where the models come out as nothing but
    noise, the result is called an association. ``first``: proportion of the budget for the number
    of treated records, the means and the lengths of residuals, or None to choose it.
    ``clip``: propensity scores are kept within [clip, 1 - clip], or to at least half of the share
    of the smallest arm where that is less. ``models``: proportion of the
    budget for the moments, or None to choose it. ``pool``: which shares get Gaussian noise where
    there is a delta: "none", "models", "all", or None to choose.
    """

    clip: float = 0.05
    models: float | None = None
    pool: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_between("clip", self.clip, 0.01, 0.45)
        if self.models is not None:
            check_between("models", self.models, 0.05, 0.85)
        if self.pool is not None:
            check_choice("pool", self.pool, _POOLS)

    def has_means(self, facts: Facts) -> bool:
        """Sums by arm are released, but for contrasts that have their parts of the budget."""
        return facts.arms == 2 or facts.level == "sample"

    def resolve(self, facts: Facts) -> OneStepOptions:
        """Choose what goes to the moments, and which noise, by the forecast."""
        return planned(self, facts)[0]


@dataclass(frozen=True, kw_only=True)
class PlannedOneStep(OneStepOptions):
    """The options with every choice made, for the facts that they were made by."""

    facts: Facts

    def shown(self) -> dict[str, Any]:
        """At label level there is only the design to choose."""
        return {"design": self.design} if self.facts.level == "label" else super().shown()


@lru_cache(maxsize=256)
def planned(options: OneStepOptions, facts: Facts) -> tuple[PlannedOneStep, Forecast]:
    """The options with every choice made, and what to expect of them."""
    given = {f.name: getattr(options, f.name) for f in fields(OneStepOptions)}
    plain = PlannedOneStep(**given, facts=facts)
    if facts.level == "label":
        return plain, Forecast(math.nan, math.nan, math.nan)
    columns = facts.columns
    if columns > MOST_COLUMNS:
        raise OptionError(f"one_step takes up to {MOST_COLUMNS} covariates, not {columns}")
    able = facts.budget.delta and columns <= _MOST_POOLED
    if options.pool not in (None, "none") and columns > _MOST_POOLED:
        raise OptionError(f"Gaussian noise is for up to {_MOST_POOLED} covariates, not {columns}")
    pools = (options.pool,) if options.pool else _POOLS if able else _POOLS[:1]
    plans = []
    for pool in pools:
        tried = replace(plain, pool=pool, first=options.first or _FIRST[1])
        for _ in range(2):  # first the moments, then the first stage, then the moments again
            if options.models is None:
                tried = _best([replace(tried, models=x) for x in _MODELS], facts)
            if options.first is None:
                tried = _best([replace(tried, first=x) for x in _FIRST], facts)
        plans.append((tried, _expected(tried, facts)))
    return min(plans, key=lambda plan: plan[1].error)


def _best(choices: list[PlannedOneStep], facts: Facts) -> PlannedOneStep:
    return min(choices, key=lambda options: _expected(options, facts).error)


@lru_cache(maxsize=2048)
def _expected(options: PlannedOneStep, facts: Facts) -> Forecast:
    """What to expect of a way to divide the budget."""
    if options.pool == "none" and facts.budget.delta:  # pure noise is the same
        pure = replace(facts, budget=Budget(facts.budget.epsilon))
        return _expected(replace(options, facts=pure), pure)
    split = Split.of(facts.budget, shares(facts.level, options), uses_delta(options, facts))
    return forecast_one_step(facts, split, options.randomised)


def shares(level: str, options: OneStepOptions) -> dict[str, float]:
    """Split of the budget: what the moments leave is divided in fixed proportions."""
    if level == "label":
        from dpeffects.estimators._balancing import label_shares

        return label_shares(options, getattr(options, "facts", _TYPICAL))
    models = options.models or _MODELS[3]
    means = 0.3 * (options.first or _FIRST[0])
    first = {"count": means, "means": means}
    if clips(options):
        first["lengths"] = 4.0 * means / 3.0
    rest = {"spread": 0.08, "estimate": 0.42}
    if not options.randomised:
        rest |= {"calibration": 0.03, "variation": 0.03}
        if not _indicators_only(options) and not _several_arms(options):
            rest["curves"] = 0.03
    part = max(1.0 - models - sum(first.values()), 0.05) / sum(rest.values())
    return first | {name: part * x for name, x in rest.items()} | {"models": models}


def _several_arms(options: OneStepOptions) -> bool:
    """True for more than two arms, whose scores are not held against curves."""
    facts = getattr(options, "facts", None)
    return facts is not None and facts.arms > 2


def _indicators_only(options: OneStepOptions) -> bool:
    """True where no column can bend, by declared types."""
    facts = getattr(options, "facts", None)
    return facts is not None and set(facts.values[:-1]) <= {1, 2}


def uses_delta(options: OneStepOptions, facts: Facts) -> dict[str, float | None]:
    """Shares with Gaussian noise, as chosen; none at label level."""
    names = tuple(shares(facts.level, options)) if options.pool == "all" else ("spread", "models")
    return dict.fromkeys(names if options.pool not in (None, "none") else (), math.inf)


@dataclass(frozen=True)
class _Score:
    """Log odds of treatment, constant + x'slopes, and what the released moments say of them.

    The index x'slopes is normal in each arm: ``nodes`` of a quadrature for (treated, control).
    """

    constant: float
    slopes: FloatArray
    clip: float
    weights: FloatArray
    index: FloatArray
    sd: float
    means: FloatArray

    @property
    def values(self) -> FloatArray:
        """Scores at the nodes."""
        return np.clip(sigmoid(self.constant + self.index), self.clip, 1.0 - self.clip)

    def of(self, rows: Block, standard: Standard) -> FloatArray:
        """Scores of some rows."""
        e = sigmoid(self.constant + standard.index(rows, self.slopes))
        return np.clip(e, self.clip, 1.0 - self.clip)

    @property
    def overlap(self) -> float:
        """Mean of e(1 - e)."""
        return float((self.weights * self.values * (1.0 - self.values)).sum())

    @property
    def explained(self) -> float:
        """Part of the variance of treatment that the score explains."""
        share, e = float(self.weights[0].sum()), sigmoid(self.constant + self.index)
        return 1.0 - float((self.weights * e * (1.0 - e)).sum()) / (share * (1.0 - share))

    def sizes(self, n: int) -> FloatArray:
        """Records of equal weight that (treated, control) records are worth."""
        weights = np.stack([1.0 - self.values[0], self.values[1]]) / self.overlap
        return np.asarray(n / (self.weights * weights**2).sum(axis=1))

    @property
    def largest(self) -> float:
        """Largest weight 1 - e of treated or e of control records that is not cut."""
        far = self.constant + self.means + np.array([-2.576, 2.576]) * self.sd
        e = np.clip(sigmoid(far), self.clip, 1.0 - self.clip)
        pi = float(self.weights[0].sum())
        return min(1.0 - self.clip, max(1.0 - float(e[0]), float(e[1]), 0.5, pi, 1.0 - pi))


_NODES, _NODE_WEIGHTS = np.polynomial.hermite_e.hermegauss(24)
_NODE_WEIGHTS = _NODE_WEIGHTS / _NODE_WEIGHTS.sum()


def _score(models: Models, slopes: FloatArray, pi: float, clip: float) -> _Score:
    """A score with these slopes whose mean is the share of treated records."""
    sd = math.sqrt(max(float(slopes @ models.covariance @ slopes), 0.0))
    means = models.centres @ slopes
    index = means[:, None] + sd * _NODES
    weights = np.array([[pi], [1.0 - pi]]) * _NODE_WEIGHTS
    constant = math.log(pi / (1.0 - pi)) - float((weights * index).sum())
    for _ in range(20):  # Newton steps for the log odds of the mean, however rare an arm is
        e, other = sigmoid(constant + index), sigmoid(-constant - index)
        mean, rest = float((weights * e).sum()), float((weights * other).sum())
        slope = max(float((weights * e * other).sum()) / (mean * rest), 0.1)
        constant += math.log(pi / (1.0 - pi) * rest / mean) / slope
    return _Score(constant, slopes, clip, weights, index, sd, means)


@dataclass(frozen=True, eq=False)
class _NewtonTerm:
    """Gradient of the log likelihood along the cut index and the constant."""

    models: Models
    score: _Score
    reads: ClassVar[tuple[str, ...]] = ("treated", "covariates")

    def __call__(self, rows: Block) -> tuple[FloatArray, FloatArray]:
        """Terms of some rows, within [-1, 1] and [-1/2, 1/2]."""
        index = self.models.standard.index(rows, self.score.slopes)
        off = rows.treated - sigmoid(self.score.constant + index)
        cut = _CUT * max(self.score.sd, 0.1)
        return off * (np.clip(index, -cut, cut) / cut), 0.5 * off


def _ask_calibration(models: Models, score: _Score) -> Asked:
    """Ask for the gradient of one private Newton step."""
    ends = np.array([1.0, 0.5])
    term = _NewtonTerm(models, score)
    return Asked("calibration of the score", term, Box(-ends, ends), None, "calibration")


def _calibrated(score: _Score, n: int, noisy: Noisy) -> _Score:
    """One Newton step for the constant and the scale of the score."""
    if score.sd <= 0.1:  # nothing to scale; it is paid for all the same: the price is as asked
        return score
    cut, u = _CUT * score.sd, score.index
    gradient = noisy.value * np.array([1.0, 2.0])
    along = np.clip(u, -cut, cut) / cut
    e = sigmoid(score.constant + u)
    w = score.weights * e * (1.0 - e)
    curvature = n * np.array([[(w * along * u).sum(), (w * along).sum()], [(w * u).sum(), w.sum()]])
    step = np.linalg.lstsq(curvature, gradient, rcond=None)[0]
    sd = math.sqrt(noisy.variance) / max(float(curvature[0, 0]), 1e-9)
    step = step * 0.04 / (0.04 + sd**2)
    factor = 1.0 + float(np.clip(step[0], -0.4, 0.6))
    return replace(
        score,
        constant=score.constant + float(np.clip(step[1], -0.3, 0.3)),
        slopes=factor * score.slopes,
        index=factor * score.index,
        sd=factor * score.sd,
        means=factor * score.means,
    )


@dataclass(frozen=True, eq=False)
class _FromModel:
    """The outcome less what the model of its arm predicts: level + x'slopes."""

    standard: Standard
    slopes: FloatArray
    levels: FloatArray

    @property
    def reads(self) -> tuple[str, ...]:
        """Who is treated, or the number of the arm."""
        return "treated" if len(self.levels) == 2 else "arm", "outcome", "covariates"

    def __call__(self, rows: Block) -> FloatArray:
        """Residuals of some rows."""
        if len(self.levels) > 2:
            level = self.levels[rows.arm]
        else:
            level = np.where(rows.treated, self.levels[0], self.levels[1])
        return rows.outcome - level - self.standard.index(rows, self.slopes)


@dataclass(frozen=True, eq=False)
class _WeightedTerm:
    """Clipped residuals with overlap weights, 1 - e for treated and -e for control records."""

    residual: _FromModel
    score: _Score
    clip: float
    reads: ClassVar[tuple[str, ...]] = ("treated", "outcome", "covariates")

    def __call__(self, rows: Block) -> FloatArray:
        """Terms of some rows."""
        score = self.score
        e = score.of(rows, self.residual.standard)
        weight = np.minimum(np.where(rows.treated, 1.0 - e, e), score.largest) / score.overlap
        clipped = np.clip(self.residual(rows), -self.clip, self.clip)
        return np.where(rows.treated, weight, -weight) * clipped


@dataclass(frozen=True, eq=False)
class Stage:
    """What is known before the weighted sum: models of outcome and treatment, and a clip.

    ``bias`` is what the clip may do, ``beyond`` the part of residuals that are longer.
    """

    centres: Centres
    models: Models
    residual: _FromModel
    score: _Score
    clip: float
    bias: float = 0.0
    beyond: float = 0.0

    @property
    def difference(self) -> float:
        """The effect by the models alone."""
        return float(self.residual.levels[0] - self.residual.levels[1])

    @property
    def details(self) -> dict[str, Any]:
        """What is worth showing."""
        sd = self.models.clip * math.sqrt(self.models.outcome_variance)
        return details(self.centres, self.clip, sd) | _known(self.models)


def release_stage(
    curator: Curator,
    randomised: bool,
    least: float,
    reach: Callable[[_Score], float],
    groups: int = 1,
) -> Stage:
    """Release centres, moments and calibration.

    ``reach`` is how far one unit of a residual moves the estimate of one of some ``groups``, times
    its records, given the score.
    """
    n = curator.n
    centres = release_centres(curator)
    unit = curator.noise_sd("estimate") / n
    clip, first = centres.longest, 0.0
    about_means = LengthsAsked("lengths of residuals", Residual(centres.means), clip, part=0.4)
    clipped = [about_means.asked] if curator.has("lengths") else []
    sums, *counts = curator.several(ask_means(curator, "spread"), *clipped)
    if counts:
        clip, _, first = about_means.read(n, *counts).clip(4.0 * unit, centres)
    standard = release_standard(curator, sums, "spread")
    models = release_models(curator, standard, centres, clip, "models", randomised)
    centres = replace(centres, unknown=np.hypot(models.unknown, centres.missed(first)))
    slopes = clip * models.outcome_slopes
    levels = centres.means + clip * models.offsets - models.centres @ slopes
    residual = _FromModel(standard, slopes, levels)
    least = min(least, 0.5 * centres.share, 0.5 * (1.0 - centres.share))
    score = _score(models, models.treatment_slopes, centres.share, least)
    stage = Stage(centres, models, residual, score, 1.25 * centres.longest)
    about_model = LengthsAsked("lengths from the model", residual, stage.clip, part=0.6)
    clipped = [about_model.asked] if clipped else []
    scaled = [] if randomised else [_ask_calibration(models, score)]
    answers = curator.several(*scaled, *clipped)
    if scaled:
        stage = replace(stage, score=_calibrated(score, n, answers[0]))
    if clipped:
        second, bias, beyond = about_model.read(n, answers[-1]).clip(
            2.0 * groups * reach(stage.score) * unit, centres, groups
        )
        stage = replace(stage, clip=second, bias=bias, beyond=beyond)
    return stage


def fit(curator: Curator, options: OneStepOptions, estimand: str) -> Estimate:
    """Release centres, moments, calibration and the sum; the rest is post-processing."""
    if curator.is_public("covariates"):
        from dpeffects.estimators._balancing import fit_label

        return fit_label(curator, options, estimand)
    n, randomised = curator.n, options.randomised
    stage = release_stage(curator, randomised, options.clip, lambda s: s.largest / s.overlap)
    centres, models, score = stage.centres, stage.models, stage.score
    pi = centres.share
    top = stage.clip * score.largest / score.overlap
    term = _WeightedTerm(stage.residual, score, stage.clip)
    terms, bends = TotalAsked(term, -top, top), CurvesAsked.of(curator, models, score)
    varies = VariationAsked(term, top, models, score)
    checks = [] if randomised else [varies.asked, *bends.asked]
    released, *checked = curator.several(terms.asked, *checks)
    total = terms.read(n, released)
    value = stage.difference + total.mean
    parts = [Part("clipped outcomes", stage.bias**2)]
    weights_off = 0.0 if randomised else _WEIGHTS_OFF
    parts.append(centres.noise_part(total.mean, weights_off, beyond=stage.beyond))
    varying = None
    if not randomised:
        varying = varies.read(checked[0], total.mean, total.variance)
        curves = bends.read(curator, *checked[1:])
        value += varying.more(estimand) - models.clip * models.slopes.left
        parts += [*confounding(models, curves), *(part for part, _ in varying.errors(estimand))]
    estimate = total.estimate(
        value,
        centres,
        parts,
        basis=basis(models, options),
        details=stage.details,
        caution=centres.with_caution("" if randomised else caution(models, curves, score)),
        influence=Influence(term, -top, top, total.mean, float(n), (pi, 1.0 - pi)),
    )
    variance = models.clip**2 * float(models.outcome_variance)
    spread = Spread(variance, score.sizes(n), min(models.slopes.explained, 0.9))
    whose = "ATE" if randomised else estimand
    return with_means(estimate, centres, whose, spread, varies=varying or Varying.nowhere())


@dataclass(frozen=True, eq=False)
class _ArmStage:
    """What is known of more than two arms before the weighted sums: models, scores, and a clip.

    ``bias`` is what the clip may do, ``beyond`` the part of residuals that are longer.
    """

    centres: Centres
    models: ArmModels
    residual: _FromModel
    score: ArmScore
    clip: float
    bias: float = 0.0
    beyond: float = 0.0


def fit_arms(
    curator: Curator, options: OneStepOptions, estimand: str, contrasts: Contrasts
) -> Effects:
    """The same steps for more than two arms, with one weighted sum for each of them."""
    if curator.is_public("covariates"):
        from dpeffects.estimators._balancing import fit_label_arms

        return fit_label_arms(curator, options, estimand, contrasts)
    from dpeffects.estimators._weighted_arms import WeightedArms

    stage = _arm_scores(curator, options, _arm_models(curator, options))
    centres, models = stage.centres, stage.models
    terms = WeightedArms(centres, models, stage.score, stage.residual, stage.clip)
    found = terms.read(*curator.several(*terms.asked(curator, not options.randomised)))
    estimates = tuple(_between(stage, found, options, arm, other) for arm, other in contrasts)
    spread = models.clip * math.sqrt(models.moments.outcome_variance)
    worst = min((models.pair(*pair) for pair in contrasts), key=lambda m: min(m.slopes.known))
    about = details(centres, stage.clip, spread) | _known(worst)
    return Effects(estimates, details=about)


def _arm_models(curator: Curator, options: OneStepOptions) -> _ArmStage:
    """Release centres, a clip and moments, which give models of the outcome and the arms."""
    from dpeffects.estimators._arm_models import arm_score, release_arm_models

    n, randomised, centres = curator.n, options.randomised, release_centres(curator)
    arms, clip, first = curator.arms, centres.longest, 0.0
    about_means = LengthsAsked("lengths of residuals", Residual(centres.means), clip, part=0.4)
    clipped = [about_means.asked] if curator.has("lengths") else []
    sums, *counts = curator.several(ask_means(curator, "spread"), *clipped)
    if counts:
        noise = arms * _noise_by_arm(curator)
        clip, _, first = about_means.read(n, *counts).clip(noise, centres)
    standard = release_standard(curator, sums, "spread")
    models = release_arm_models(curator, standard, centres, clip, "models", randomised)
    others = [models.pair(arm, 0) for arm in range(1, arms)]
    outcome = clip * np.mean([other.outcome_slopes for other in others], axis=0)
    slopes = np.stack([np.zeros(standard.columns.size), *(x.treatment_slopes for x in others)])
    shifts = slopes @ models.covariance
    levels = centres.means + clip * models.offsets
    levels = levels - (models.mean + shifts - centres.shares @ shifts) @ outcome
    residual = _FromModel(standard, outcome, levels)
    score = arm_score(models, slopes, min(options.clip, 0.5 * float(centres.shares.min())))
    centres = replace(centres, unknown=np.hypot(models.unknown, centres.missed(first)))
    return _ArmStage(centres, models, residual, score, 1.25 * centres.longest)


def _arm_scores(curator: Curator, options: OneStepOptions, stage: _ArmStage) -> _ArmStage:
    """Calibrate the scores, and choose a clip by the lengths of residuals from the model."""
    from dpeffects.estimators._arm_models import ask_calibration, calibrated

    n, centres = curator.n, stage.centres
    about_model = LengthsAsked("lengths from the model", stage.residual, stage.clip, part=0.6)
    clipped = [about_model.asked] if curator.has("lengths") else []
    scaled = [] if options.randomised else [ask_calibration(stage.score)]
    answers = curator.several(*scaled, *clipped)
    if scaled:
        stage = replace(stage, score=calibrated(stage.score, n, answers[0]))
    if not clipped:
        return stage
    reach = math.sqrt(float(np.mean(stage.score.largest**2))) / stage.score.overlap
    lengths = about_model.read(n, answers[-1])
    clip, bias, beyond = lengths.clip(reach * _noise_by_arm(curator), centres)
    return replace(stage, clip=clip, bias=bias, beyond=beyond)


def _noise_by_arm(curator: Curator) -> float:
    """Noise in a difference of two sums by arm over n, for each unit of their clip."""
    return 2.0 * math.sqrt(2.0) * BY_ARM * curator.noise_sd("estimate") / curator.n


def _between(
    stage: _ArmStage, found: ArmResiduals, options: OneStepOptions, arm: int, other: int
) -> Estimate:
    """The effect of an arm against another."""
    centres, pair, randomised = stage.centres, [arm, other], options.randomised
    model, most = stage.models.pair(arm, other), centres.range
    means = stage.residual.levels + found.means + found.more
    value = float(means[arm] - means[other])
    relative = np.minimum(1.0, centres.share_sd / centres.shares[pair])
    off = np.hypot(relative, 0.0 if randomised else _WEIGHTS_OFF)
    by_centres = (centres.unknown[pair] * off) ** 2 + (relative * found.means[pair]) ** 2
    by_centres += centres.missed(stage.beyond)[pair] ** 2
    parts = [Part("clipped outcomes", stage.bias**2)]
    parts.append(Part("sizes and means of the arms", float(by_centres.sum()), noise=True))
    if not randomised:
        value -= model.clip * model.slopes.left
        parts += [*confounding(model, Curves(missed=math.inf)), *found.parts(pair)]
    scales = found.scales[pair]
    estimate = Estimate(
        value=min(max(value, -most), most),
        sampling=found.variance(pair),
        laplace=() if found.gaussian else tuple(scales.tolist()),
        gaussian=float(scales @ scales) if found.gaussian else 0.0,
        parts=tuple(part for part in parts if part.variance > 0.0),
        possible=(-most, most),
        basis=basis(model, options),
        caution=centres.with_caution("" if randomised else caution(model, Curves(), stage.score)),
        influence=found.influence(pair),
    )
    # what is left of the confounding is taken off both arms
    means[pair] += np.array([0.5, -0.5]) * (estimate.value - float(means[arm] - means[other]))
    explained = model.slopes.explained * model.clip**2 * model.outcome_variance / centres.n
    sampling = by_arm(pair, found.sampling, found.sampling_sd, found.largest, explained)
    noise, sizes = (found.scales, found.gaussian), stage.score.sizes(centres.n)
    made = arm_means(pair, means, centres, estimate, sampling, *noise, sizes)
    return replace(estimate, means=made)


def confounding(models: Models, curves: Curves) -> list[Part]:
    """What noise in the models, and curves, may leave."""
    slopes, squared, covariance = models.slopes, models.clip**2, models.covariance
    a, spread = models.treatment_slopes, models.outcome_variance
    unknown = float(slopes.outcome_variance @ np.linalg.eigvalsh(covariance)) / models.columns
    missed = _WRONG_SCORE**2 * float(a @ covariance @ a) * unknown
    moved = min(_SECOND_ORDER * slopes.noise_variance, slopes.left_variance)
    curved = curves.left_variance(spread, slopes.explained, slopes.selection)
    rest = slopes.vague * (slopes.left_variance - moved) + missed
    return [
        Part("models", squared * slopes.vague * moved, noise=True),
        Part("confounding left by noise in the models", squared * rest),
        Part("confounding by curves", squared * curved),
    ]


def basis(models: Models, options: OneStepOptions) -> str:
    """Models that are nothing but noise adjust for nothing."""
    if options.randomised:
        return "randomised"
    return "adjusted" if min(models.slopes.known) >= _NOTHING else "association"


def _known(models: Models) -> dict[str, str]:
    """How much of the models is not noise."""
    names = (f"part of the {x} model that is not noise" for x in ("outcome", "treatment"))
    shown = (f"{100.0 * max(x, 0.0):.0f} %" for x in models.slopes.known)
    return dict(zip(names, shown, strict=True))


def caution(models: Models, curves: Curves, score: _Score | ArmScore) -> str:
    """What nobody should overlook."""
    found, apart = curves.caution, ""
    if score.explained > _APART:
        apart = (
            f"HARDLY ANY OVERLAP: the covariates explain about {100.0 * score.explained:.0f} % of "
            "who is treated, so few records have a counterpart in another arm; the interval does "
            "not allow for that"
        )
    if min(models.slopes.known) < _HARDLY:
        found = "HARDLY ADJUSTED: the models are mostly noise"
        found += "" if apart else "; the interval allows for what is left"
    return "; ".join(filter(None, (apart, found)))


SPEC = MethodSpec(
    name="one_step",
    title="one-step, from private moments",
    about="private moments give linear models; one weighted sum of residuals corrects them",
    assumes=f"{NO_CONFOUNDER}; outcome and log odds of treatment are linear in its terms",
    estimands=AVERAGES,
    levels=("sample", "label"),
    options=OneStepOptions,
    shares=shares,
    uses_delta=uses_delta,
    fit=fit,
    fit_arms=fit_arms,
    citation="dpeffects (software): one-step estimation from private moments.",
)
