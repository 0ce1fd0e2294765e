"""Inverse probability weighting with a private propensity model: PP-IPW (paper 004).

A logistic propensity model is released first, then one sum of outcomes weighted by its clipped
propensities. With centres c_1, c_0 and released propensities e, the estimate of the ATE is

    c_1 - c_0 + (1/n) sum_i [ t_i (y_i - c_1) / e_i  -  (1 - t_i) (y_i - c_0) / (1 - e_i) ];

the ATT has weights 1 and e / (1 - e), the ATC (1 - e) / e and 1 (Appendix F).

Where this differs from the paper, and why:

- Covariates are scaled by declared bounds, not by the largest norm in the data, and centred; the
  intercept is one of the columns scaled to norm 1. It is shrunk towards the noisy share of treated.
- Noise goes into the objective of the regression (``propensity="objective"``), not onto its weights
  ("output", the paper's): `privacy.private_minimisation.minimise` has the measurements.
- Propensities are clipped before they divide anything; the paper's sensitivity is false without it.
  Where the released model cannot reach the clip within the declared ranges, its own reach bounds
  the weights. The noise is for the exact length of the interval of a record's term.
- Outcomes are centred at released means of the arms (``centre="arms"``). The Horvitz-Thompson mean
  of the paper (``centre="none"``; "middle" centres at the middle of the range) moves when all
  outcomes shift and when the model's intercept is a little off; this one does not, and it tends to
  the difference in means where the model is flat.
- The paper's ATT and ATC divide by n, which estimates P(T = 1) ATT and P(T = 0) ATC; these divide
  by the private number of treated or control records.
- ``split=False`` uses all rows for both steps and adds up the prices. ``split=True`` is the
  paper's: one half of the rows, in a secret order, fits the model and the other half estimates,
  each for the whole budget, because no record is in both.
- The model's part of the budget follows from public numbers, the penalty from these and released
  variances of the covariates (`propensity.plan`): where a model cannot be learnt it is left nearly
  flat, and the result says so before the estimate.
- The clip follows from released numbers: the share of treated records and the model say how far
  propensities reach, and the price how much noise a lower clip would cost. A number that is given
  is used as it is. How many records are beyond the clip is released, and said before the estimate
  where it is more than a few per cent: weighting is then truncated.
- What a penalty left of the confounding is estimated from what the weights removed, and taken off
  (`weighting_error`), as far as noise allows; not with ``centre="middle"`` or "none".

The interval has parts for sampling, for noise in the sum, in the model, in the share of treated
records and in the centres, for truncated weights, and for the confounding that a penalty left, as
strong as it is cautious to believe. It holds where the log odds of treatment are linear in the
terms of the formula and no confounder is missing. Where a model is nearly flat there is an
allowance for confounding alone, which is a guess; below a tenth of its slopes the result is called
an association.

``as_printed=True`` is Algorithm 1 itself: the model has all of the budget on one half of the rows,
the weighted sum all of it on the other half, and nothing else is released, so that there is no
interval. What still differs, because the paper's guarantee rests on it: rows are scaled by declared
bounds (an intercept among the columns), propensities are clipped, at 0.1 unless told otherwise, and
Gaussian noise is that of the analytic mechanism, which is smaller. The halves are equally large,
and an estimate beyond what the declared bounds allow is cut to it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from dpeffects.arrays import FloatArray, IntArray, Interval
from dpeffects.design.features import logits, unit_rows
from dpeffects.errors import OptionError
from dpeffects.estimands import AVERAGES, ESTIMANDS
from dpeffects.estimators import constants as hand
from dpeffects.estimators import option_checks, spec
from dpeffects.estimators.arm_sums import ArmLookup, arm_counts, arm_sums
from dpeffects.estimators.default.arm_levels import Spread, arm_means, by_arm, with_means
from dpeffects.estimators.default.arm_summaries import (
    ArmStats,
    centres_of,
    clipped_term,
    residual,
    squared,
)
from dpeffects.estimators.default.arm_terms import ArmTerms, ArmTotals, combination, scaled
from dpeffects.estimators.default.standardisation import ask_means, release_standard
from dpeffects.estimators.row_functions import row
from dpeffects.estimators.weighting.inverse_weights import PropensityFunction, propensity_model
from dpeffects.estimators.weighting.propensity import (
    LINEAR,
    PropensityEstimate,
    Setting,
    WeightSpreads,
    clipped_share,
    fitted_model,
    kept_slopes,
    plan,
    reweighted,
    warnings_about,
    within_clip,
)
from dpeffects.inference.estimate import (
    Effects,
    ErrorPart,
    Estimate,
    Influence,
    SamplingVariance,
    Unavailable,
)
from dpeffects.privacy import (
    COUNT,
    Block,
    Box,
    Budget,
    Curator,
    GroupIndex,
    NoisyValue,
    RowFunction,
    SumQuery,
)
from dpeffects.privacy.losses import sigmoid, unit_norm
from dpeffects.privacy.private_minimisation import Coefs
from dpeffects.privacy.sample_splits import halves
from dpeffects.privacy.tight_domains import norm_of_sum
from dpeffects.replication.weighting_error import WeightingError

_SQUARES, _MOMENT = 0.5, 0.5
"""Parts of the share "variance": for squares of residuals, and for the effect of noise in the
model."""
_PARTS = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5)
"""Parts of the budget that the model may get (`plan` chooses), and how the rest is divided."""
_REST = {
    "counts": 0.09,
    "spread": 0.06,
    "centre": 0.11,
    "overlap": 0.03,
    "estimate": 0.55,
    "variance": 0.16,
}
_FIRST_HALF = {"counts": 0.08, "spread": 0.06, "model": 0.86}
_MOST_EXPLAINED = 0.7
"""The most of the variance of outcomes that covariates are taken to explain: what they have in
common with correlated covariates looks like more."""
_ROUGH = 0.2
"""Relative error of a sampling variance that takes residuals as independent of weights."""
_LABELS = "weighted sum and squares", "weighted sums and squares by arm"
_SHIFTS = "Not normalised: the estimate moves when all outcomes shift."
_PRINTED: dict[str, Any] = {
    "propensity": "output",
    "split": True,
    "centre": "none",
    "penalty": 0.1,
    "noise": "gaussian",
    "clip": 0.1,
}
"""Algorithm 1 of the paper; its clip is ours."""
_BY_N = "divided by n, as printed in Appendix F: this is the {} times the share of {} records"
_HALVES = (
    "A random half of the rows fits the model, the other half estimates; the charges of the first "
    "cover both."
)


@dataclass(frozen=True)
class PrivateIPWOptions(spec.Options):
    """Options of inverse probability weighting.

    ``clip``: propensity scores are kept within [clip, 1 - clip], for the ATT only to at
    most 1 - clip and for the ATC only to at least clip; None chooses it from released numbers.
    ``propensity``: "objective" (noise in the objective) or "output" (noise on the weights, the
    paper's). ``split``: fit the model on one half of the rows and estimate on the other, as in the
    paper. ``centre``: "arms" (outcomes less released means of the arms), "middle" (less the middle
    of their range) or "none" (as they are, the paper's). ``penalty``: ridge penalty of the model,
    on rows of norm 1 and the mean loss (the paper has 0.1); where it is too small for noise in the
    objective, the least that is not.
    ``model_share``: part of the budget for the model, by default from public numbers. ``noise``:
    "auto" (Gaussian where it is smaller and delta allows it), "laplace" or "gaussian" (the
    paper's). ``as_printed``: Algorithm 1 of the paper, which sets all of these but ``clip`` and
    ``penalty`` (0.1 each unless given), gives its two steps all of the budget, and has no interval.
    """

    clip: float | None = option_checks.checked(None, option_checks.check_clip)
    propensity: str = option_checks.choice("objective", "output")
    split: bool = option_checks.flag(False)
    centre: str = option_checks.choice("arms", "middle", "none")
    penalty: float | None = option_checks.between(None, 1e-12, 1e12)
    model_share: float | None = None
    noise: str = option_checks.choice("auto", "laplace", "gaussian")
    as_printed: bool = option_checks.flag(False)

    def __post_init__(self) -> None:
        super().__post_init__()
        part = self.model_share
        if not (
            part is None or (option_checks.is_number(part) and 0.0 < part < 1.0 and not self.split)
        ):
            raise OptionError(f"model_share must be between 0 and 1, without split, got {part!r}")
        if self.as_printed:
            for name in ("propensity", "split", "centre", "noise", "model_share"):
                usual, printed = getattr(PrivateIPWOptions, name), _PRINTED.get(name)
                if getattr(self, name) not in (usual, printed):
                    raise OptionError(f"as_printed=True sets {name}; leave one of them out")

    def resolve(self, facts: spec.PublicInfo) -> spec.Options:
        """Choose the share of the model; refuse what level or budget does not allow."""
        given = {k: v for k, v in (("clip", self.clip), ("penalty", self.penalty)) if v}
        printed = replace(self, **{**_PRINTED, **given}) if self.as_printed else self
        if printed != self:
            return printed.resolve(facts)
        if self.noise == "gaussian" and not facts.budget.delta > 0:
            raise OptionError('noise="gaussian" needs delta > 0, for example delta=1e-6')
        if facts.arms > 2 and self.split:
            raise OptionError("split and as_printed compare two arms, as the paper does")
        if facts.width < 2:
            raise OptionError("private_ipw needs a covariate with more than one value")
        if facts.level == "label":
            if self.split or self.model_share is not None:
                raise OptionError("split and model_share have no meaning at label level")
            return self
        if self.split and facts.n < 4:
            raise OptionError(f"split=True needs at least 4 rows, not {facts.n}")
        if self.split:
            return self
        parts = _PARTS if self.model_share is None else (self.model_share,)
        splits = {p: budget_split(facts.level, replace(self, model_share=p)) for p in parts}
        prices = {
            p: (_price(split, "model", facts.budget), _price(split, "estimate", facts.budget))
            for p, split in splits.items()
        }
        if facts.arms > 2:  # all but one have a model of their own, and each a sum
            apart = hand.BY_ARM * math.sqrt(2.0)
            prices = {
                p: (one / (facts.arms - 1), other / apart) for p, (one, other) in prices.items()
            }
        setting = self.setting((facts.n, facts.n), facts.width, facts.budget.delta / 3.0)
        return replace(self, model_share=plan(setting, prices)[0])

    def needs_memory(self) -> str:
        """Halves are made of rows in memory."""
        halves = self.split or self.as_printed
        return "split=True divides the rows into halves" if halves else ""

    def has_means(self, facts: spec.PublicInfo) -> bool:
        """Centres of the arms are released, unless told otherwise."""
        return self.centre == "arms" and not self.as_printed

    def setting(self, records: tuple[int, int], d: int, delta: float = 0.0) -> Setting:
        """What the choice of the model's price and strength goes by."""
        return Setting(records, d, self.clip, delta, self.propensity, self.noise, self.penalty)


def _price(split: Mapping[str, float], share: str, budget: Budget) -> float:
    """Epsilon that a share gets of a budget that is divided like this."""
    return split[share] / sum(split.values()) * budget.epsilon


def budget_split(level: str, options: PrivateIPWOptions) -> dict[str, float]:
    """Split of the budget; the model's part is chosen from public numbers.

    With ``split`` the model has the whole budget on its half of the rows, and these divide the
    whole budget on the other half.
    """
    if options.as_printed:
        return {"estimate": 1.0}
    if level == "label":
        whole = {"centre": 0.1, "estimate": 0.82, "variance": 0.08}
    elif options.split:
        whole = {name: rest for name, rest in _REST.items() if name != "spread"}
    else:
        part = options.model_share or _PARTS[-2]
        whole = {"model": part, **{name: (1.0 - part) * rest for name, rest in _REST.items()}}
    if options.centre != "arms":
        del whole["centre"]
    return whole


@row("covariates")
def arm_weight(
    rows: Block, models: tuple[PropensityFunction, ...], estimand: str, arms: ArmLookup
) -> FloatArray:
    """Weights by inverse chances: of two arms those of the estimand, with a minus for controls."""
    units, arm = unit_rows(rows.covariates), arms.arm(rows)
    if len(models) == 1:
        a, b = ESTIMANDS[estimand].weights(models[0].scores(units))
        return np.where(arm == 0, a, -b)
    chance = np.ones(rows.size)
    for k, model in enumerate(models):
        chance = np.where(arm == k, model.scores(units), chance)
    return 1.0 / chance


@row("covariates")
def own_beyond_clip(
    rows: Block, models: tuple[PropensityFunction, ...], arms: ArmLookup
) -> IntArray:
    """The arm of a record whose own chance is below the clip; the number of arms for others."""
    units, arm = unit_rows(rows.covariates), arms.arm(rows)
    cell = np.full(rows.size, len(models), np.int64)
    for k, model in enumerate(models):
        e = sigmoid(logits(units, model.weights, model.offset))
        cell = np.where((arm == k) & (e < model.low * (1.0 - 1e-9)), k, cell)
    return cell


@row("covariates")
def outcome_moment(rows: Block, residual: RowFunction, scale: FloatArray) -> tuple[FloatArray, ...]:
    """Residuals times each entry of the row of norm at most 1, times ``scale``."""
    off, entries = residual(rows), unit_rows(rows.covariates).T
    return tuple(off * x * factor for x, factor in zip(entries, scale, strict=True))


def moment_box(longest: float, scale: FloatArray) -> Box:
    """What a record can add to moments of residuals that are no longer than this."""
    corner = np.concatenate([[1.0], np.full(scale.size - 1, 0.5)])
    half = longest * np.abs(scale) * corner / unit_norm(scale.size)
    return Box(-half, half)


def uses_delta(options: PrivateIPWOptions, facts: spec.PublicInfo) -> dict[str, float | None]:
    """Which shares can use a delta; the paper's noise is Gaussian everywhere."""
    if options.noise == "laplace":
        return {}
    if options.noise == "gaussian":
        return {**dict.fromkeys(_REST, math.inf), "model": None}
    return {"model": None}


def released_models(
    curator: Curator, setting: Setting, estimate: float
) -> tuple[tuple[PropensityEstimate, ...], FloatArray, float]:
    """Release the shares of the arms, the spread of covariates, and the models.

    Two arms have one model, of treatment; each of more has one against all others. All are free
    where covariates and treatment are public. ``estimate`` is the epsilon that the estimate will
    have, for the balance of the two. Also the shares, and what noise leaves unknown of them.
    """
    known = arm_counts(curator, "counts").shares()
    columns = _spreads(curator, "spread")
    arms = (None,) if curator.arms == 2 else range(curator.arms)
    how = (curator, setting, estimate, known, columns)
    return tuple(fitted_model(*how, "model", arm) for arm in arms), *known


def _spreads(curator: Curator, share: str) -> WeightSpreads:
    """Release means and variances of the covariates; free where these are public."""
    (sums,) = curator.several(ask_means(curator, share))
    standard = release_standard(curator, sums, share)
    means, spreads, unknown = np.full((3, curator.width - 1), [[0.5], [0.002], [0.0]])
    at = standard.columns - 1
    means[at], unknown[at] = standard.means, standard.variance_sd
    least = np.clip(unknown[at] / 2.0, 1e-5, 0.002)
    spreads[at] = np.maximum(standard.variances, least)
    return WeightSpreads(means, spreads, unknown)


def fit_arms(
    curator: Curator, options: PrivateIPWOptions, estimand: str, contrasts: spec.Contrasts
) -> Effects:
    """Models of the arms, then weighted sums."""
    n, arms = curator.n, curator.arms
    if options.as_printed:
        return _as_printed(curator, options, estimand)
    price, records = curator.epsilon("estimate"), (n, n)

    def released(rows: Curator) -> tuple[tuple[PropensityEstimate, ...], FloatArray, float]:
        return released_models(rows, options.setting(records, rows.width), price)

    if options.split:
        records = ((n + 1) // 2, n // 2)
        second = {k: curator.epsilon(k) for k in budget_split("sample", options) if curator.has(k)}
        known = uses_delta(options, spec.PublicInfo(n, curator.width, Budget(1.0), "sample"))
        (models, _, _), curator = halves(curator, _FIRST_HALF, second, released, known)
        arm_shares, sd = arm_counts(curator, "counts").shares()
    else:
        models, arm_shares, sd = released(curator)
    if options.clip is None:
        noise = curator.noise_sd("estimate") / curator.n
        limits = tuple(model.limits(_population(arms, estimand), noise) for model in models)
    else:
        own = ESTIMANDS[estimand].clip_limits(options.clip) if arms == 2 else (options.clip, 1.0)
        limits = (own,) * len(models)
    centres = _centres(curator, options, arm_shares, sd)
    weighting = Weighting(estimand, models, limits, centres, curator.is_public("treatment"))
    return _effects(curator, options, weighting, contrasts)


def _population(arms: int, estimand: str) -> str:
    """Whom a model weights to: an arm of several is weighted to the records of the others."""
    return estimand if arms == 2 else "ATC"


def _as_printed(curator: Curator, options: PrivateIPWOptions, estimand: str) -> Effects:
    """Algorithm 1 with all of the budget for each of its two steps, and nothing beside them."""
    shares = {"model": 1.0}, {"estimate": 1.0}

    def released(rows: Curator) -> Coefs:
        strength = rows.n * (options.penalty or 0.0)
        return propensity_model(rows, strength, 0.0, "model", options.propensity, options.noise)

    known: dict[str, float | None] = {"model": None, "estimate": math.inf}
    weights, other = halves(curator, *shares, released, known)
    limits = ESTIMANDS[estimand].clip_limits(options.clip or 0.0)
    model = PropensityFunction.within(weights.value, 0.0, limits)
    zero = np.zeros(2)
    low, high = weighted_ends((model,), estimand, zero, other.outcome_range)
    middle, width = (low.min() + high.max()) / 2.0, high.max() - low.min()
    weight = arm_weight((model,), estimand, ArmLookup(zero))
    row = scaled(
        clipped_term(residual(zero), weight, math.inf),
        ArmLookup(np.full(2, middle)),
        ArmLookup(np.full(2, width)),
    )
    total = other.sums("weighted sum", row, Box(-0.5, 0.5), share="estimate")
    kept = kept_slopes(weights.strength, curator.width, (curator.n + 1) // 2)
    own = ESTIMANDS[estimand]
    by_n = "" if own.of_treated and own.of_control else "treated" if own.of_treated else "control"
    said = (_BY_N.format(estimand, by_n) if by_n else "", warnings_about(kept, 0.0))
    estimate = Estimate(
        value=float(middle + width * float(total) / other.n),
        sampling=Unavailable("Algorithm 1 as printed releases no variance"),
        gaussian=total.variance * float(width / other.n) ** 2,
        identification="adjusted" if kept >= hand.NOTHING else "unadjusted",
        warnings="; ".join(filter(None, said)),
    )
    details = {
        "ridge penalty": weights.strength,
        "propensity scores truncated to": f"[{model.low:.4g}, {model.high:.4g}]",
        "propensity coefficients shrunk to": f"{100.0 * kept:.0f} %",
    }
    return Effects((estimate,), (LINEAR, _SHIFTS, _HALVES), details=details)


def _centres(
    curator: Curator, options: PrivateIPWOptions, shares: FloatArray, sd: float
) -> ArmStats:
    """Released means of the arms, or the same constant for all."""
    lower, upper = curator.outcome_range
    middle, n = lower + (upper - lower) / 2.0, curator.n
    if options.centre == "arms":
        centres = centres_of(curator, (shares, sd), arm_sums(curator, "centre"))
        by_size = (centres.means - middle) * sd * n / centres.sizes  # sizes divide the sums
        return replace(centres, unknown=np.hypot(centres.unknown, by_size))
    constant = np.full(len(shares), middle if options.centre == "middle" else 0.0)
    about = np.zeros(len(shares)), curator.outcome_range, curator.values[-1] == 2, curator.size_sd
    return ArmStats(n, shares, sd, constant, *about)


@dataclass(frozen=True, eq=False)
class Weighting:
    """Released models of the arms with their clips, and centres of their outcomes.

    Two arms have one model; each of more has one against all others. ``public`` says that nobody
    changes arm.
    """

    estimand: str
    models: tuple[PropensityEstimate, ...]
    limits: tuple[Interval, ...]
    centres: ArmStats
    public: bool = False

    @property
    def arms(self) -> int:
        """Number of arms."""
        return len(self.centres.shares)

    @cached_property
    def propensities(self) -> tuple[PropensityFunction, ...]:
        """The models, clipped."""
        return tuple(m.within(x) for m, x in zip(self.models, self.limits, strict=True))

    @property
    def size(self) -> float:
        """Records that the effect is the average over."""
        if self.arms > 2:
            return float(self.centres.n)
        return float(ESTIMANDS[self.estimand].population(*self.centres.sizes))

    @property
    def far(self) -> FloatArray:
        """How far each of more than two arms is from all records."""
        return np.asarray(1.0 - self.centres.shares)

    def terms(self, unit: float) -> ArmTerms:
        """What a record adds; ``unit`` is the noise in a sum that a record moves by 1."""
        low, high = weighted_ends(
            self.propensities, self.estimand, self.centres.means, self.centres.outcome_range
        )
        if self.arms > 2:
            low, high = self._from_middles(low, high, unit)
        elif self.public:  # nobody changes arm
            middle, half = (low + high) / 2.0, float((high - low).max()) / 2.0
            low, high = middle - half, middle + half
        else:
            low, high = np.full(2, low.min()), np.full(2, high.max())
        weight = arm_weight(self.propensities, self.estimand, ArmLookup(self.centres.shares))
        term = clipped_term(residual(self.centres.means), weight, math.inf)
        worth, labels = self.centres.n / self.mean_square_weights, _LABELS
        return ArmTerms(self.centres, term, low, high, worth, self.public, labels)

    def _from_middles(
        self, least: FloatArray, most: FloatArray, unit: float
    ) -> tuple[FloatArray, FloatArray]:
        """Intervals about what a record of the arm can add.

        Measured from its middle the interval is shortest; but then the error of the size of the arm
        multiplies that middle.
        """
        sd = self.centres.n * self.centres.share_sd
        tried = np.stack([part * (least + most) / 2.0 for part in np.linspace(0.0, 1.0, 9)])
        halves = np.maximum(most - tried, tried - least)
        best = np.argmin((2.0 * unit * halves) ** 2 + (sd * tried) ** 2, axis=0)
        middle, half = (x[best, np.arange(self.arms)] for x in (tried, halves))
        return middle - half, middle + half

    @property
    def asked_beyond(self) -> SumQuery:
        """How many records are beyond the clip, by arm if there are more than two."""
        label, cells = (
            "records beyond the propensity limits",
            GroupIndex(within_clip(self.propensities[0]), 1),
        )
        if self.arms > 2:
            row = own_beyond_clip(self.propensities, ArmLookup(self.centres.shares))
            label, cells = f"{label} by arm", GroupIndex(row, self.arms)
        return SumQuery(label, None, COUNT, cells, "overlap")

    def beyond(self, noisy: NoisyValue) -> tuple[FloatArray, FloatArray]:
        """Shares of the records beyond the clip, and the weight that they lack, by model."""
        two, whom = self.arms == 2, _population(self.arms, self.estimand)
        sizes = np.array([float(self.centres.n)]) if two else self.centres.sizes
        far = np.ones(1) if two else self.far
        counts, found = noisy.value[:, 0], []
        for model, limits, size, apart, count in zip(
            self.models, self.limits, sizes, far, counts, strict=True
        ):
            expected, lost = model.beyond(whom, limits)
            found.append(clipped_share(size, replace(noisy, value=count), expected, apart * lost))
        clipped, lost_by_model = np.array(found).T
        return clipped, lost_by_model

    @cached_property
    def mean_square_weights(self) -> FloatArray:
        """Means over all records of the squared weights of each arm, over the population's size."""
        if self.arms == 2:
            (model,), (limits,) = self.models, self.limits
            a, b, _ = model.clipped(self.estimand, limits)
            return np.array([np.mean(model.scores * a**2), np.mean((1.0 - model.scores) * b**2)])
        pairs = zip(self.models, self.limits, strict=True)
        return np.array([np.mean(m.scores / np.clip(m.scores, *x) ** 2) for m, x in pairs])

    def pair(self, arm: int, other: int) -> tuple[PropensityEstimate, ArmStats]:
        """What is known of the models and centres of two arms, together."""
        if self.arms == 2:
            return self.models[0], self.centres
        one, two, pair = self.models[arm], self.models[other], [arm, other]
        model = replace(
            one,
            kept_slopes=(one.kept_slopes + two.kept_slopes) / 2.0,
            penalised=(one.penalised + two.penalised) / 2.0,
            level_sd=math.sqrt((one.level_sd**2 + two.level_sd**2) / 2.0),
        )
        names = ("shares", "means", "unknown")
        some = {name: getattr(self.centres, name)[pair] for name in names}
        return model, replace(self.centres, **some)


def weighted_ends(
    models: tuple[PropensityFunction, ...],
    estimand: str,
    centres: FloatArray,
    outcome_range: Interval,
) -> tuple[FloatArray, FloatArray]:
    """The intervals of what records of each arm can add."""
    if len(models) == 1:
        a, b = ESTIMANDS[estimand].weights(np.array([models[0].low, models[0].high]))
        weights = np.stack([a, -b])
    else:
        weights = np.array([[1.0 / model.high, 1.0 / model.low] for model in models])
    from_centre = np.array(outcome_range) - centres[:, None]
    ends = weights[:, :, None] * from_centre[:, None, :]  # extremes are at corners
    return ends.min(axis=(1, 2)), ends.max(axis=(1, 2))


def _effects(
    curator: Curator, options: PrivateIPWOptions, weighting: Weighting, contrasts: spec.Contrasts
) -> Effects:
    """Release the weighted sums; everything after that is post-processing."""
    centres, arms, n = weighting.centres, curator.arms, curator.n
    models, size, centred = weighting.models, weighting.size, options.centre == "arms"
    unit = curator.noise_sd("estimate")
    terms = weighting.terms(unit if weighting.public else hand.BY_ARM * unit)
    asked = [terms.asked(curator), weighting.asked_beyond]
    from_centre = residual(centres.means)
    if curator.has("variance"):
        part = _SQUARES if models[0].noise_sd.any() else 1.0
        box = Box(0, _longest(centres) ** 2)
        squares_of = squared(from_centre)
        asked.append(SumQuery("squares of residuals", squares_of, box, None, "variance", part))
    released, beyond, *squares = curator.several(*asked)
    found, (clipped, lost) = terms.read(released), weighting.beyond(beyond)
    spread, spread_sd = _spread(centres, *squares)
    extras, scales = found.means * n / size, found.scales * n / size
    rough = weighting.mean_square_weights / n
    rough = rough.sum(keepdims=True) if arms == 2 else rough
    own = _about_estimate(weighting, found) if arms == 2 else (found.sampling, found.sampling_sd)
    sampling, sampling_sd = _both(*own, rough * spread, rough * spread_sd)
    largest = np.maximum(-terms.low, terms.high)
    largest = largest.max(keepdims=True) if arms == 2 else largest
    most_variance = found.records * (largest / size) ** 2
    noisiest = max(models, key=lambda model: float(model.noise_sd.max()))
    moved = _moved_by_model(curator, noisiest, centres, spread, centred)
    estimates, most = [], centres.range
    for pair in (list(x) for x in contrasts):
        c, (model, two) = combination(pair, arms), weighting.pair(*pair)
        which = [0] if arms == 2 else pair
        far = None if arms == 2 else weighting.far[pair]
        error = WeightingError(
            weighting.estimand,
            model,
            two,
            extra=float(c @ extras),
            noise=float(c**2 @ (released.sd * terms.widths / size) ** 2),
            moved=moved if far is None else moved * float((far**2).sum()),
            lost=float(lost[which].sum()),
            spread=spread,
            sampling=max(float(c**2 @ sampling), 0.0),
            centred=centred,
            far=far,
        )
        more = 1.0 + error.further
        noise = more * scales[which]
        variance: SamplingVariance | Unavailable = Unavailable("variance=False was asked for")
        if squares:
            sd = math.hypot(*sampling_sd[which]) / math.sqrt(2.0)
            bound = float(c**2 @ most_variance)
            variance = SamplingVariance(float(c**2 @ sampling), sd, bound)
        by_size = _by_size(weighting, terms, pair, extras, more)
        estimate = Estimate(
            value=float(two.means[0] - two.means[1]) + more * error.extra,
            sampling=variance,
            laplace=() if released.gaussian else tuple(noise.tolist()),
            gaussian=float(noise @ noise) if released.gaussian else 0.0,
            parts=(*error.parts(), *((by_size,) if by_size.variance else ())),
            possible=(-most, most),
            identification="adjusted" if model.kept >= hand.NOTHING else "unadjusted",
            warnings=warnings_about(model.kept, float(clipped[which].max())),
            influence=_influence(weighting, found, pair, more),
        )
        worth = n / weighting.mean_square_weights
        if arms == 2:
            spread_of = Spread(spread, worth)
            estimates.append(with_means(estimate, centres, weighting.estimand, spread_of))
            continue
        both = (
            variance
            if isinstance(variance, Unavailable)
            else by_arm(pair, sampling, sampling_sd, most_variance)
        )
        means, noises = centres.means + more * extras, more * scales
        made = arm_means(pair, means, centres, estimate, both, noises, released.gaussian, worth)
        estimates.append(replace(estimate, means=made))
    notes = (LINEAR, *((_SHIFTS,) if not centred else ()), *((_HALVES,) if options.split else ()))
    return Effects(tuple(estimates), notes, details=_details(weighting, clipped))


def _longest(centres: ArmStats) -> float:
    """The longest residual that a record can have."""
    low, high = centres.outcome_range
    return float(np.maximum(np.abs(low - centres.means), np.abs(high - centres.means)).max())


def _details(weighting: Weighting, clipped: FloatArray) -> dict[str, Any]:
    """What is worth showing."""
    models, sizes = weighting.models, weighting.centres.sizes
    counted: dict[str, Any] = {"treated records": round(sizes[0])}
    if weighting.arms > 2:
        counted = {"records by arm": ", ".join(f"{size:.0f}" for size in sizes)}
    within = ", ".join(f"[{x.low:.4g}, {x.high:.4g}]" for x in weighting.propensities)
    return {
        **counted,
        **models[0].details,
        "propensity scores truncated to": within,
        "records beyond the propensity limits": ", ".join(f"{100.0 * x:.1f} %" for x in clipped),
        "propensity coefficients shrunk to": f"{100.0 * min(x.kept for x in models):.0f} %",
    }


def _influence(weighting: Weighting, found: ArmTotals, pair: list[int], times: float) -> Influence:
    """What rows add to an estimate that has ``times`` the sums in it."""
    own, centres = found.influence(pair), weighting.centres
    low, high = own.low, own.high
    if weighting.arms == 2:
        ends = weighted_ends(
            weighting.propensities, weighting.estimand, centres.means, centres.outcome_range
        )
        low, high = float(ends[0].min()), float(ends[1].max())
    mean = min(max(own.mean, low), high)
    return replace(own, low=low, high=high, mean=mean, size=weighting.size / times)


def _by_size(
    weighting: Weighting, terms: ArmTerms, pair: list[int], extras: FloatArray, times: float
) -> ErrorPart:
    """What noise in the numbers of records does, where sums are not measured from 0."""
    centres = weighting.centres
    if weighting.arms == 2:
        distance = (float(terms.middles[1]) - float(extras[0])) * centres.n / weighting.size
        return centres.size_part(times * distance)
    by_size = times * terms.middles[pair] * centres.share_sd
    return ErrorPart("the arm sizes", float(by_size @ by_size), noise=True)


def _about_estimate(weighting: Weighting, found: ArmTotals) -> tuple[FloatArray, FloatArray]:
    """Mean square of the terms of two arms about the estimate, over n, and the sd of its noise."""
    centres, size, terms = weighting.centres, weighting.size, found.asked
    (width,), (_, second), middles = terms.widths, found.release.value, terms.middles
    extra = float(found.means[0]) * centres.n / size
    average = extra**2 - found.release.variance * (width / size) ** 2
    from_middle = 2.0 * float(middles @ reweighted(weighting.estimand, centres.share))
    squares = width**2 * float(second) + from_middle * extra * size
    squares -= float(centres.sizes @ middles**2)
    # terms of an arm that is the population itself add up to 0, those of two to the average
    squares += (-1.0 if size == centres.n else 1.0) * average * size
    sd = found.release.sd * width * math.hypot(width, from_middle)
    return np.array([squares]) / size**2, np.array([sd]) / size**2


def _both(
    own: FloatArray, own_sd: FloatArray, rough: FloatArray, rough_sd: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Sampling variances, and standard deviations of the noise in them.

    What squares of residuals say of them, ``rough``, has less noise, but takes residuals as
    independent of weights: both count by their precision.
    """
    precision = 1.0 / np.maximum(own_sd, 1e-300) ** 2
    other = 1.0 / np.maximum(np.hypot(rough_sd, _ROUGH * rough), 1e-300) ** 2
    both = precision + other
    return (own * precision + rough * other) / both, np.sqrt(1.0 / both)


def _spread(centres: ArmStats, *squares: NoisyValue) -> tuple[float, float]:
    """Mean square of residuals from their centres, pulled to a typical one by its noise.

    And what is not known of it, as a standard deviation.
    """
    typical = min((hand.TYPICAL_SD * centres.range) ** 2, centres.most_variance)
    if not squares:
        return typical, typical
    seen, noise = float(squares[0]) / centres.n, squares[0].variance / centres.n**2
    both = 1.0 / (1.0 / noise + 1.0 / typical**2)
    pulled = both * (seen / noise + 1.0 / typical)
    return min(max(pulled, (0.02 * centres.range) ** 2), centres.longest**2), math.sqrt(both)


def _moved_by_model(
    curator: Curator, model: PropensityEstimate, centres: ArmStats, spread: float, centred: bool
) -> float:
    """Variance by noise in the model: what outcomes have in common with covariates, times it.

    An error z of the weights moves the estimate by the mean of (y - centre) x'z, to first order.
    The norm of that mean, each entry times the sd of its z, is released.
    """
    if not model.noise_sd.any():
        return 0.0
    sds = np.concatenate([[0.0 if centred else model.noise_sd[0]], model.noise_sd[1:]])
    largest, d = float(sds.max()), sds.size
    scale, norm = sds / largest, unit_norm(d)
    by_column = spread * model.spreads * (scale[1:] / norm) ** 2
    level = (math.sqrt(hand.EVENLY) * centres.range * float(scale[0]) / norm) ** 2
    prior = hand.EXPLAINED * float(by_column.mean()) + level
    if not curator.has("variance"):
        return largest**2 * prior
    row, box = outcome_moment(residual(centres.means), scale), moment_box(_longest(centres), scale)
    label = "outcome and covariates"
    moment = norm_of_sum(curator, label, row, box, share="variance", part=_MOMENT)
    seen, noise = float(moment) / curator.n, moment.variance / curator.n**2
    both = 1.0 / (1.0 / noise + 1.0 / prior)
    mean = both * (seen / noise + math.sqrt(prior) / prior)
    square = mean**2 + both - float(by_column.sum()) / curator.n
    most = _MOST_EXPLAINED * float(by_column.max()) + 4.0 * level
    second_order = 1.0 + model.noise_variance
    return largest**2 * second_order * min(max(square, 0.0), most)


SPEC = spec.MethodSpec(
    name="private_ipw",
    title="inverse probability weighting",
    about="PP-IPW: a private logistic propensity model, then one weighted sum of outcomes",
    assumes=f"{spec.NO_CONFOUNDER}; the propensity logit is linear in its terms",
    estimands=AVERAGES,
    levels=("sample", "label"),
    options=PrivateIPWOptions,
    budget_split=budget_split,
    uses_delta=uses_delta,
    fit_arms=fit_arms,
    needs_intercept=True,  # the other columns are centred around it
    citation=(
        "Lee, Gresele, Park and Muandet, Privacy-preserving causal inference via inverse "
        "probability weighting."
    ),
)
