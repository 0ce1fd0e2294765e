"""R-learner with private nuisances: residuals of the outcome on residuals of the treatment.

With propensity p(x) and mean outcome m(x) it fits (a - p(x)) g(x) to y - m(x). By group it weights
records by p (1 - p), which is the mean effect where it does not vary within the group. It is
careful where overlap is poor: records with little of it weigh little. The DR-learner has other
slopes and targets, and the rest in common with it: a Huber regression on a kernel's features.

After the first stage (`first_stage`) a record has a slope s and a target r, and the second stage
regresses r on s g(x), shrunk towards the difference of the means of the arms. That is not adjusted
for anything, so the function is shrunk towards its own average afterwards, as far as noise allows
(`EffectFunction.recentred`): nothing has to be released for it. What is released:

- a function: the weights of g, with noise in the objective or on the weights (claims 22, 23, 24).
- points: with noise in its objective a function mostly has the least error at points too. Noise on
  the answers (``noise="kernel"``) can do better for few points, above all without a delta;
  ``noise="auto"`` compares what both promise, from public numbers. One record moves the weights by
  at most 2 steepest / strength, and so the answers at query features Q by that times the largest
  singular value of Q (claim 24).
- groups: the effect in a group is the least-squares one, sum of s r / sum of s^2 over its records.
  Both sums are released for all groups at once; a record is in one group, so they cost no more
  than one sum of each (claim 5).
- the finite release of the paper at points (`replication.unproved.paper_learner`), where
  ``second_stage`` is any other learner.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import numpy as np

from dpeffects.arrays import FloatArray
from dpeffects.design.features import AdditiveWaves, Features, Fourier, Linear
from dpeffects.errors import OptionError, refusal
from dpeffects.estimators import constants as hand
from dpeffects.estimators.learners import first_stage as _first
from dpeffects.estimators.option_checks import between, choice, whole
from dpeffects.estimators.spec import NO_CONFOUNDER, MethodSpec, Options, PublicInfo
from dpeffects.estimators.weighting.inverse_weights import covering_noise, least_strength
from dpeffects.inference.estimate import (
    SHARE,
    Effects,
    ErrorPart,
    Estimate,
    SamplingVariance,
    Unavailable,
    with_another,
)
from dpeffects.privacy import Box, Curator, GroupIndex, NoisyValue, Share, entries
from dpeffects.privacy.losses import Huber
from dpeffects.privacy.private_minimisation import minimise, noisy_predictions, noisy_weights
from dpeffects.privacy.tight_domains import Histogram
from dpeffects.results.effect_function import EffectFunction
from dpeffects.results.feature_moments import BINS, shape_of
from dpeffects.results.wording import said

RELEASES = {
    "function": {"effect": 0.52, "spread": 0.03, "variance": 0.05},
    "points": {"effect": 0.6},
    "groups": {"effect": 0.42, "variance": 0.18},
}
"""What can be released, and the proportions of the budget for the second stage."""
STAGES = "kernel", "linear"
_GROUP_BOX = Box([-1.0, 0.0], [1.0, 1.0], centre=0.0)
"""Both sums of a group in one release, each over its largest size."""

MODELS = "the models of treatment and outcome"
_SAID = said("r_learner")
NO_VARIANCE = Unavailable("no sampling variance is released for effects at points")


@dataclass(frozen=True)
class KernelLearnerOptions(Options):
    """Options of the R-learner and the DR-learner.

    ``release``: "function", "points" or "groups". ``kernel``: "gaussian" (one kernel on all
    covariates: any interaction), "additive" (a kernel for each column of the formula, as in a
    generalised additive model; interactions are written as terms), or "auto": "gaussian" for one or
    two columns, "additive" beyond. ``bandwidth``: of the kernel, as a share of the declared ranges.
    ``second_stage``: "kernel" or "linear"; at points also "random_forest", "neural_net" or any
    scikit-learn regressor, for the paper's finite release (``accept_asymptotic=True``).
    ``noise``: "objective" (noise in the objective of the regression, least error), "kernel" (noise
    on its result: for a function the paper's Gaussian process, whose size is the same everywhere,
    for points independent noise by their Gram matrix), or "auto": "objective" for a function, what
    promises less error for points. ``clip``: propensities are kept within [clip, 1 - clip].
    ``threshold``: of Huber's loss, as a share of the outcome's range, or None to choose it by how
    much of the outcome lies at the ends of its range (released): 0.15 for a bell in the middle, 1
    for a binary outcome, where anything less would turn means into medians. ``design``:
    "observational", or "randomised" where treatment was assigned by chance: then there is no
    propensity model, and intervals allow for no confounding. ``outcome`` and ``propensity``: models
    of the paper's finite release, a scikit-learn regressor (or a classifier with predict_proba) of
    the outcome given covariates and treatment, and a classifier of the treatment; by default the
    paper's networks of one layer. Three choices that the paper makes, by default made from public
    numbers: ``penalty`` is lambda in the second stage, the mean of Huber's losses + (lambda / 2)
    |w|^2, which for residuals up to ``lipschitz`` is half of the paper's mean of squares + lambda
    |g|^2; ``n_features`` is the number of random features, an even one, of the Gaussian kernel (64)
    or of the additive kernel along each covariate (6); ``lipschitz`` is the Lipschitz constant of
    the loss in units of the outcome, the threshold of Huber's loss as it is, in place of
    ``threshold``; the weight of a record, at most 1, multiplies it.
    """

    kernel: str = choice("auto", "gaussian", "additive")
    bandwidth: float = between(0.35, 0.05, 10.0)
    second_stage: Any = "kernel"
    noise: str = choice("auto", "objective", "kernel")
    clip: float = between(0.05, 0.001, 0.4)
    threshold: float | None = between(None, 0.005, 2.0)
    design: str = choice("observational", "randomised")
    penalty: float | None = between(None, 1e-6, 1e6)
    n_features: int | None = whole(None, 2, 2000)
    lipschitz: float | None = between(None, 1e-9, 1e9)
    outcome: Any = None
    propensity: Any = None
    release: str = choice(*RELEASES)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.lipschitz is not None and self.threshold is not None:
            raise OptionError("threshold and lipschitz cannot be given together: both set the loss")
        if self.n_features is not None and self.n_features % 2:
            raise OptionError(f"n_features must be even, got {self.n_features}")
        if self.as_in_paper:
            _printed().check(self)
            if self.release != "points":
                raise OptionError(refusal("second_stage_needs", second_stage=self.second_stage))
        elif not (self.outcome is None and self.propensity is None):
            raise OptionError(refusal("finite_models"))

    @property
    def as_in_paper(self) -> bool:
        """True for the paper's finite release, whose guarantee is a claim."""
        return not (isinstance(self.second_stage, str) and self.second_stage in STAGES)

    @property
    def randomised(self) -> bool:
        """Whether treatment was assigned by chance."""
        return self.design == "randomised"

    def adapt(self, spec: MethodSpec) -> MethodSpec:
        """The paper's finite release has another guarantee, and needs a delta."""
        if not self.as_in_paper:
            return spec
        title = f"{spec.title.split()[0].rstrip(',')}, paper's finite release"
        return replace(spec, title=title, guarantee="asymptotic", needs_delta=True)

    def needs_memory(self) -> str:
        """Learners of the paper's release get their rows as arrays."""
        return "these learners need rows in memory" if self.as_in_paper else ""

    def shown(self) -> dict[str, Any]:
        """The paper's release has its models, and no other option."""
        options = super().shown()
        own = ("second_stage", "outcome", "propensity")
        return {name: options[name] for name in own} if self.as_in_paper else options

    def features(self, width: int) -> Features:
        """Return the features for this many encoded columns, the intercept among them."""
        return Linear(width) if self.second_stage == "linear" else self.smooth(width)

    def smooth(self, width: int) -> Fourier | AdditiveWaves:
        """Return the features of the kernel."""
        covariates = width - 1
        joint = self.kernel == "gaussian" or (self.kernel == "auto" and covariates <= 2)
        make, usual = (Fourier.gaussian, 64) if joint else (AdditiveWaves.gaussian, 6)
        return make(covariates, self.bandwidth, (self.n_features or usual) // 2)

    def check_split(self, facts: PublicInfo, shares: Mapping[str, Share]) -> None:
        """Refuse a penalty with which the noise in the objective cannot be paid for."""
        objective = self.noise == "objective" or (self.noise, self.release) == ("auto", "function")
        if self.penalty is None or self.release == "groups" or not objective:
            return
        least = _payable(shares["effect"].epsilon) / facts.n
        if self.penalty < least:
            raise OptionError(
                refusal("penalty_least", least=least, n=facts.n, penalty=self.penalty)
            )


def _payable(epsilon: float) -> float:
    """Smallest strength that leaves half of an effect's epsilon for noise in the objective."""
    return least_strength(epsilon, (1.0 + 1e-6) ** 2, 0.5)


def budget_split(level: str, options: KernelLearnerOptions) -> dict[str, float]:
    """Split of the budget."""
    if options.as_in_paper:
        return {"effect": 1.0}
    split = {**_first.SHARES, **RELEASES[options.release]}
    return {k: x for k, x in split.items() if k != "propensity" or not options.randomised}


def uses_delta(options: KernelLearnerOptions, facts: PublicInfo) -> dict[str, float | None]:
    """Regressions have a delta of their own; sums by group and histograms are vectors."""
    if options.as_in_paper:
        return {"effect": None}
    of_groups = entries(_GROUP_BOX, cells=2) if options.release == "groups" else None
    bins = entries(Histogram(max(facts.width - 1, 1), BINS))
    return {"propensity": None, "outcome": None, "effect": of_groups, "spread": bins}


def _printed() -> Any:
    """The release as the paper prints it: a claim, in a wing, and so found by its name."""
    return import_module("dpeffects.replication.unproved.paper_learner")


def fit(
    curator: Curator,
    options: KernelLearnerOptions,
    points: FloatArray | None,
    *,
    by_arm: bool = False,
) -> EffectFunction | Effects:
    """Release the nuisances, then the second stage; the rest is post-processing.

    ``by_arm`` is that of `Nuisance`: False for the R-learner, True for the DR-learner.
    """
    if options.as_in_paper:
        noisy = _printed().release(by_arm, curator, options, points)
        return Effects(at_points(noisy, 0.0, 1.0), (_SAID["claimed"],))
    smooth = options.smooth(curator.width)
    nuisance = _first.first_stage(
        curator, smooth, options.clip, by_arm=by_arm, randomised=options.randomised
    )
    (lower, upper), smallest = nuisance.outcome_range, nuisance.smallest_divisor
    if options.release == "groups":
        # residuals are clipped at the outcome's range, or half of it where none is at its ends
        unit = (upper - lower) * max(0.5, min(1.25 * nuisance.ends, 1.0))
        return _groups(curator, _first.Learner(nuisance, unit / smallest))
    share = options.threshold
    if share is None:
        share = max(_first.threshold_for(nuisance.ends), hand.THRESHOLD)
    threshold = share * (upper - lower)
    if by_arm:  # targets are about twice as wide, and up to 1 / propensity times at the ends
        threshold *= max(2.0, 2.0 + (1.0 / smallest - 2.0) * min(share, 1.0))
    learner = _first.Learner(nuisance, options.lipschitz or threshold)
    features = smooth if options.second_stage == "kernel" else options.features(curator.width)
    strength = None if options.penalty is None else options.penalty * curator.n
    stage = SecondStage(curator, learner, features, strength)
    if points is not None:
        return stage.at(points, options.noise)
    return stage.function("kernel" if options.noise == "kernel" else "objective")


@dataclass(frozen=True, eq=False)
class SecondStage:
    """The regression of the second stage: a learner's terms on features.

    ``strength`` is the penalty where it is given.
    """

    curator: Curator
    learner: _first.Learner
    features: Features
    strength: float | None = None

    @property
    def information(self) -> float:
        """Sum of squared slopes that is planned for."""
        return self.curator.n * self.learner.squared_slope

    @property
    def spread(self) -> float:
        """Standard deviation of effects that is planned for, in units of the threshold."""
        lower, upper = self.curator.outcome_range
        return hand.EFFECT_SD * (upper - lower) / self.learner.threshold

    def planned(self, perturbation: str, stretch: float = 1.0) -> tuple[float, float]:
        """Penalty and expected squared error, from numbers that are known.

        ``stretch`` multiplies the noise on the result, for points that are released together.
        """
        epsilon, delta = self.curator.epsilon("effect"), self.curator.delta("effect")
        steepest, size = self.learner.steepest, self.features.size
        noise = covering_noise((steepest * math.sqrt(size), steepest), epsilon, delta, size)
        inside = perturbation == "objective"
        return _first.planned_penalty(
            self.features,
            information=self.information,
            noise=stretch * noise,
            spread=self.spread,
            least=least_strength(epsilon, steepest**2 * (1.0 + 1e-6)) if inside else 0.0,
            strength=self.strength,
        )

    def problem(self, strength: float) -> Huber:
        """The regression with a penalty."""
        terms = _first.effect_terms(self.learner, self.features)
        return Huber(terms, self.features.size, strength, self.learner.steepest * (1.0 + 1e-9))

    def function(self, perturbation: str) -> EffectFunction:
        """Release the weights, and what bands need."""
        curator, learner, nuisance = self.curator, self.learner, self.learner.nuisance
        strength, _ = self.planned(perturbation)
        problem = self.problem(strength)
        release = minimise if perturbation == "objective" else noisy_weights
        weights = release(curator, "effect function", problem, "effect")
        information = variation = None
        margins, margin_sd = np.full((curator.width - 1, BINS), 1.0 / BINS), 0.0
        if curator.has("variance"):
            bins = Histogram(curator.width - 1, BINS)
            counts = curator.sums(
                "histograms of covariates", _first.covariate_bins, bins, share="spread"
            )
            margins, margin_sd = _margins(counts, curator.n)
            row = _first.effect_squares(problem.terms, weights.value)
            box = Box(np.zeros(2), np.full(2, problem.hessian_bound))
            squares = curator.sums("spread of residuals", row, box, share="variance")
            least, most = 0.02 * curator.n, learner.steepest**2 * curator.n
            variation, information = (float(np.clip(x, least, most)) for x in squares.value)
        function = EffectFunction(
            features=self.features,
            weights=weights.value,
            average=nuisance.difference,
            unit=learner.threshold,
            strength=strength,
            noise_sd=weights.noise_sd,
            inside=weights.inside,
            information=information,
            variation=variation,
            margins=margins,
            margin_sd=margin_sd,
            spread=self.spread,
            usual=hand.INSIDE * self.information,
            n=curator.n,
            nuisance_sd=nuisance.noise_sd,
            confounding=nuisance.left * nuisance.confounding,
            warnings=_warnings(nuisance),
        )
        return function.recentred(nuisance.difference_sd, nuisance.confounding)

    def at(self, points: FloatArray, noise: str) -> Effects:
        """Release effects at points, by a function or by noise on the answers."""
        at, nuisance = self.features(points), self.learner.nuisance
        planned = {
            "kernel": self.planned("kernel", float(np.linalg.norm(at, 2))),
            "objective": self.planned("objective"),
        }
        payable = _payable(self.curator.epsilon("effect"))
        if self.strength is not None and self.strength < payable:
            planned["objective"] = self.strength, math.inf
        best = min(planned, key=lambda perturbation: planned[perturbation][1])
        perturbation, warnings = best if noise == "auto" else noise, _warnings(nuisance)
        if perturbation == "objective":
            function = self.function(perturbation)
            found = zip(function(points), function.sd(points, "noise"), strict=True)
            return Effects(
                tuple(
                    Estimate(float(x), NO_VARIANCE, gaussian=float(sd) ** 2, warnings=warnings)
                    for x, sd in found
                )
            )
        problem = self.problem(planned[perturbation][0])
        noisy = noisy_predictions(self.curator, "effects at points", problem, at, "effect")
        even = np.full((self.curator.width - 1, BINS), 1.0 / BINS)
        shape = shape_of(self.features, even, hand.INSIDE * self.information, problem.strength)
        carried = nuisance.difference_sd * (1.0 - at @ shape.response)
        models = ErrorPart(MODELS, nuisance.noise_sd**2, noise=True)
        effects = at_points(noisy, nuisance.difference, self.learner.threshold)
        made = []
        for effect, sd in zip(effects, carried.tolist(), strict=True):
            parts = (ErrorPart("the arm means", sd**2, noise=True), models)
            made.append(replace(effect, parts=parts, warnings=warnings))
        return Effects(tuple(made), (_SAID["towards"],))


def _groups(curator: Curator, learner: _first.Learner) -> Effects:
    """Release sums by group, and squares of their residuals."""
    groups, top = GroupIndex(_first.group, curator.n_strata), learner.steepest
    both = curator.sums(
        "sums and weights by group", _first.group_terms(learner), _GROUP_BOX, groups, share="effect"
    )
    tops, weights = (
        replace(both, value=both.value[:, k] * unit, scale=both.scale * unit)
        for k, unit in enumerate((top, top**2))
    )
    size = np.maximum(weights.value, weights.scale)
    ratio = np.clip(tops.value / size, -1.0, 1.0)
    squares = None
    if curator.has("variance"):
        row, largest = _first.group_squares(learner, ratio), Box(0.0, top**2, centre=0.0)
        squares = curator.sums("squares by group", row, largest, groups, share="variance")
        squares = replace(squares, value=squares.value[:, 0])
    unit, nuisance = learner.threshold, learner.nuisance
    share = np.maximum(weights.value, 0.0)
    share = share / max(share.sum(), 1e-9)
    parts = (
        ErrorPart(MODELS, nuisance.noise_sd**2, noise=True),
        ErrorPart(
            "residual confounding from the shrunken models",
            (nuisance.left * nuisance.confounding) ** 2,
        ),
    )

    def effect(g: int) -> Estimate:
        """The effect in one group: its noise by linearisation, its variance from squares."""
        scales = unit * np.array([tops.scale, weights.scale * abs(ratio[g])]) / size[g]
        sampling: SamplingVariance | Unavailable
        if weights.value[g] < hand.SURE * weights.sd:
            sampling = Unavailable("too few records in the group for its noise")
        elif squares is None:
            sampling = Unavailable("variance=False was asked for")
        else:
            factor = unit**2 / size[g] ** 2
            largest = factor * top**2 * max(float(size[g]), 1.0) * 4.0
            scale = squares.scale / np.sqrt(2.0) if squares.gaussian else squares.scale
            sampling = SamplingVariance(
                factor * float(squares.value[g]), factor * float(scale), float(largest)
            )
        return Estimate(
            nuisance.difference + unit * float(ratio[g]),
            sampling,
            laplace=() if tops.gaussian else tuple(x for x in scales.tolist() if x > 0.0),
            gaussian=float((scales**2).sum()) if tops.gaussian else 0.0,
            parts=parts,
            details={SHARE: float(share[g])},
            warnings=_warnings(nuisance),
        )

    effects = tuple(effect(g) for g in range(ratio.size))
    return Effects(effects, overlap_weighted=not learner.nuisance.by_arm)


def at_points(noisy: NoisyValue, average: float, unit: float) -> tuple[Estimate, ...]:
    """One estimate for each released value; its interval covers noise only."""
    scale = noisy.scale * unit
    laplace, gaussian = ((), scale**2) if noisy.gaussian else ((scale,), 0.0)
    return tuple(
        Estimate(average + unit * float(value), NO_VARIANCE, laplace, gaussian)
        for value in noisy.value
    )


def _warnings(nuisance: _first.Nuisance) -> str:
    """Say it where both models are shrunk so far that they hardly adjust."""
    return with_another(_SAID["hardly"] * (nuisance.left > 1.0 - hand.HARDLY), nuisance.end)


def _margins(counts: NoisyValue, n: int) -> tuple[FloatArray, float]:
    """Shares of records by bin, pulled to even ones by as much as noise explains.

    And the standard deviation of what is not known of them then.
    """
    noisy, noise = counts.value.reshape(-1, BINS) / n, counts.variance / n**2
    uneven = np.mean((noisy - 1.0 / BINS) ** 2, axis=1, keepdims=True) - noise
    uneven = np.maximum(uneven, 16.0 / (hand.CORNER * BINS) ** 2)
    pull = uneven / (uneven + noise)
    shares = np.maximum(1.0 / BINS + pull * (noisy - 1.0 / BINS), 0.002)
    unknown = np.mean(pull**2 * noise + ((1.0 - pull) * hand.UNEVEN_BINS) ** 2)
    return np.asarray(shares / shares.sum(axis=1, keepdims=True)), math.sqrt(float(unknown))


SPEC = MethodSpec(
    name="r_learner",
    title="R-learner with private nuisances",
    about="a function of the covariates from residuals; careful where overlap is poor",
    assumes=f"{NO_CONFOUNDER}; log odds of treatment are linear in its terms",
    estimands=("CATE",),
    levels=("sample",),
    options=KernelLearnerOptions,
    budget_split=budget_split,
    uses_delta=uses_delta,
    fit=fit,
    citation=(
        "Schröder, Melnychuk and Feuerriegel (2025), Differentially private learners for "
        "heterogeneous treatment effects."
    ),
    variance_shares=("variance", "spread"),
    needs_intercept=True,
)
