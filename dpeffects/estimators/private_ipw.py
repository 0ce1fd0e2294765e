"""Inverse probability weighting with a private propensity model: PP-IPW (paper 004).

A logistic propensity model is released first, then one sum of outcomes weighted by its clipped
propensities. With centres c_1, c_0 and released propensities e, the estimate of the ATE is

    c_1 - c_0 + (1/n) sum_i [ t_i (y_i - c_1) / e_i  -  (1 - t_i) (y_i - c_0) / (1 - e_i) ];

the ATT has weights 1 and e / (1 - e), the ATC (1 - e) / e and 1 (Appendix F).

Where this differs from the paper, and why:

- Covariates are scaled by declared bounds, not by the largest norm in the data, and centred; the
  intercept is one of the columns scaled to norm 1. It is shrunk towards the noisy share of treated.
- Noise goes into the objective of the regression (``propensity="objective"``), not onto its weights
  ("output", the paper's): `privacy.minimise.minimise` has the measurements.
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
  variances of the covariates (`_propensity.plan`): where a model cannot be learnt it is left nearly
  flat, and the result says so before the estimate.
- The clip follows from released numbers: the share of treated records and the model say how far
  propensities reach, and the price how much noise a lower clip would cost. A number that is given
  is used as it is. How many records are beyond the clip is released, and said before the estimate
  where it is more than a few per cent: weighting is then truncated.
- What a penalty left of the confounding is estimated from what the weights removed, and taken off
  (`_weighting_error`), as far as noise allows; not with ``centre="middle"`` or "none".

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
from typing import Any, ClassVar

import numpy as np

from dpeffects.arrays import FloatArray, Interval
from dpeffects.design.features import unit_rows
from dpeffects.errors import OptionError
from dpeffects.estimands import AVERAGES, ESTIMANDS
from dpeffects.estimators import _propensity
from dpeffects.estimators._arm_terms import BY_ARM
from dpeffects.estimators._centres import Centres, centres_of
from dpeffects.estimators._checks import check_choice, check_clip, check_penalty, is_number
from dpeffects.estimators._ipw_arms import ArmExtras, ArmWeighting, clips
from dpeffects.estimators._levels import Spread, arm_means, by_arm, with_means
from dpeffects.estimators._propensity import (
    LINEAR,
    NOTHING,
    PropensityModel,
    Setting,
    beyond_clip,
    caution_about,
    clipped_share,
)
from dpeffects.estimators._weighting_error import WeightingError, reweighted
from dpeffects.estimators.arm_sums import arm_sums, share_sd, share_treated, treated_count
from dpeffects.estimators.spec import NO_CONFOUNDER, Contrasts, Facts, MethodSpec, Options
from dpeffects.estimators.weighting import Propensity, propensity_model
from dpeffects.inference.estimate import (
    Effects,
    Estimate,
    Influence,
    Part,
    SamplingVariance,
    Unavailable,
)
from dpeffects.privacy.budget import Budget
from dpeffects.privacy.charges import Noisy
from dpeffects.privacy.curator import Asked, Curator
from dpeffects.privacy.logistic import unit_norm
from dpeffects.privacy.minimise import Weights
from dpeffects.privacy.moments import WithSquares
from dpeffects.privacy.parts import halves
from dpeffects.privacy.rows import Block
from dpeffects.privacy.sets import COUNT, Box

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
_TYPICAL_SD = 0.15
"""Standard deviation of outcomes, in ranges of the outcome, where it is not released."""
_EXPLAINED, _MOST_EXPLAINED = 0.3, 0.7
"""Part of the variance of outcomes that covariates explain before anything is seen, and at most:
what they have in common with correlated covariates looks like more."""
_FAR_SD = 0.29
"""Distance of outcomes from a fixed centre, in ranges, before anything is seen."""
_ROUGH = 0.2
"""Relative error of a sampling variance that takes residuals as independent of weights."""
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
class PrivateIPWOptions(Options):
    """Options of inverse probability weighting.

    ``clip``: propensities are kept within [clip, 1 - clip], for the ATT and the ATC on the side on
    which they divide; None chooses it from released numbers. ``propensity``: "objective" (noise in
    the objective) or "output" (noise on the weights, the paper's). ``split``: fit the model on one
    half of the rows and estimate on the other, as in the paper. ``centre``: "arms" (outcomes less
    released means of the arms), "middle" (less the middle of their range) or "none" (as they are,
    the paper's). ``penalty``: ridge penalty of the model, on rows of norm 1 and the mean loss (the
    paper has 0.1); where it is too small for noise in the objective, the least that is not.
    ``model_share``: part of the budget for the model, by default from public numbers. ``noise``:
    "auto" (Gaussian where it is smaller and delta allows it), "laplace" or "gaussian" (the
    paper's). ``as_printed``: Algorithm 1 of the paper, which sets all of these but ``clip`` and
    ``penalty`` (0.1 each unless given), gives its two steps all of the budget, and has no interval.
    """

    clip: float | None = None
    propensity: str = "objective"
    split: bool = False
    centre: str = "arms"
    penalty: float | None = None
    model_share: float | None = None
    noise: str = "auto"
    as_printed: bool = False

    def __post_init__(self) -> None:
        if self.clip is not None:
            check_clip(self.clip)
        check_penalty(self.penalty)
        for name in ("split", "as_printed"):
            if not isinstance(getattr(self, name), bool):
                raise OptionError(f"{name} must be True or False, got {getattr(self, name)!r}")
        part = self.model_share
        if not (part is None or (_between(part, 0.0, 1.0) and not self.split)):
            raise OptionError(f"model_share must be between 0 and 1, without split, got {part!r}")
        for name, known in _CHOICES.items():
            check_choice(name, getattr(self, name), known)
        if self.as_printed:
            for name in ("propensity", "split", "centre", "noise", "model_share"):
                usual, printed = getattr(PrivateIPWOptions, name), _PRINTED.get(name)
                if getattr(self, name) not in (usual, printed):
                    raise OptionError(f"as_printed=True sets {name}; leave one of them out")

    def resolve(self, facts: Facts) -> Options:
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
        splits = {p: shares(facts.level, replace(self, model_share=p)) for p in parts}
        prices = {
            p: (_price(split, "model", facts.budget), _price(split, "estimate", facts.budget))
            for p, split in splits.items()
        }
        if facts.arms > 2:  # each has a model of its own, and a sum
            apart = BY_ARM * math.sqrt(2.0)
            prices = {p: (one / facts.arms, other / apart) for p, (one, other) in prices.items()}
        setting = self.setting((facts.n, facts.n), facts.width, facts.budget.delta / 3.0)
        return replace(self, model_share=_propensity.plan(setting, prices)[0])

    def needs_memory(self) -> str:
        """Halves are made of rows in memory."""
        halves = self.split or self.as_printed
        return "split=True divides the rows into halves" if halves else ""

    def has_means(self, facts: Facts) -> bool:
        """Centres of the arms are released, unless told otherwise."""
        return self.centre == "arms" and not self.as_printed

    def setting(self, records: tuple[int, int], d: int, delta: float) -> Setting:
        """What the choice of the model's price and strength goes by."""
        return Setting(records, d, delta, self.clip, self.propensity, self.noise, self.penalty)


def _price(split: Mapping[str, float], share: str, budget: Budget) -> float:
    """Epsilon that a share gets of a budget that is divided like this."""
    return split[share] / sum(split.values()) * budget.epsilon


_CHOICES = {
    "propensity": ("objective", "output"),
    "centre": ("arms", "middle", "none"),
    "noise": ("auto", "laplace", "gaussian"),
}


def _between(value: Any, low: float, high: float) -> bool:
    return is_number(value) and low < value < high


def shares(level: str, options: PrivateIPWOptions) -> dict[str, float]:
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


@dataclass(frozen=True)
class Score:
    """What one record adds to an inverse-probability-weighted sum, given released values.

    A treated record adds a (y - c_1), a control record -b (y - c_0), with the weights a and b of
    the estimand and centres (c_1, c_0).
    """

    estimand: str
    model: Propensity
    centres: tuple[float, float]
    outcome_range: Interval
    reads: ClassVar[tuple[str, ...]] = ("outcome", "treated", "covariates")

    def arms(self) -> tuple[Interval, Interval]:
        """Intervals of what a treated and a control record can add."""
        a, b = ESTIMANDS[self.estimand].weights(np.array([self.model.low, self.model.high]))
        outcomes = np.array(self.outcome_range)
        treated = np.multiply.outer(a, outcomes - self.centres[0])  # extremes are at corners
        control = np.multiply.outer(b, self.centres[1] - outcomes)
        return (
            (float(treated.min()), float(treated.max())),
            (float(control.min()), float(control.max())),
        )

    def interval(self) -> Interval:
        """Interval of what any record can add."""
        (low1, high1), (low0, high0) = self.arms()
        return min(low1, low0), max(high1, high0)

    def __call__(self, rows: Block) -> FloatArray:
        """Return what each record adds: a function of that record and of released values."""
        a, b = ESTIMANDS[self.estimand].weights(self.model.scores(unit_rows(rows.covariates)))
        one, zero = self.centres
        return np.where(rows.treated, a * (rows.outcome - one), -b * (rows.outcome - zero))


@dataclass(frozen=True)
class WithinArm:
    """A score less the middle of what a record of its arm can add, over the width of that."""

    score: Score
    middles: tuple[float, float]
    width: float
    reads: ClassVar[tuple[str, ...]] = Score.reads

    @classmethod
    def of(cls, score: Score, public: bool) -> WithinArm:
        """Where arms are public, nobody changes arm; elsewhere both have one interval."""
        arms = score.arms() if public else (score.interval(),) * 2
        middles = [(low + high) / 2.0 for low, high in arms]
        return cls(score, (middles[0], middles[1]), max(high - low for low, high in arms))

    def __call__(self, rows: Block) -> FloatArray:
        """Values of some rows, within [-1/2, 1/2]."""
        return (self.score(rows) - np.where(rows.treated, *self.middles)) / self.width


def _from_centre(rows: Block, centres: tuple[float, ...]) -> FloatArray:
    """Outcomes less the centre of the arm."""
    if len(centres) > 2:
        return np.asarray(rows.outcome - np.array(centres)[rows.arm])
    return rows.outcome - np.where(rows.treated, *centres)


@dataclass(frozen=True)
class SquaredResidual:
    """The square of the distance from the centre of the arm."""

    centres: tuple[float, ...]

    @property
    def reads(self) -> tuple[str, ...]:
        """Who is treated, or the number of the arm."""
        return "outcome", "treated" if len(self.centres) == 2 else "arm"

    def box(self, outcome_range: Interval) -> Box:
        """What a record can add."""
        return Box(0, max(abs(end - c) for end in outcome_range for c in self.centres) ** 2)

    def __call__(self, rows: Block) -> FloatArray:
        """Squares of some rows."""
        off = _from_centre(rows, self.centres)
        return off * off


@dataclass(frozen=True)
class OutcomeMoment:
    """(y - centre of the arm) times each entry of the row of norm at most 1, times ``scale``."""

    centres: tuple[float, ...]
    scale: FloatArray

    @property
    def reads(self) -> tuple[str, ...]:
        """Covariates, and what `SquaredResidual` reads."""
        return *SquaredResidual(self.centres).reads, "covariates"

    def __call__(self, rows: Block) -> tuple[FloatArray, ...]:
        """Columns of some rows."""
        residual = _from_centre(rows, self.centres)
        entries = unit_rows(rows.covariates).T
        return tuple(residual * x * factor for x, factor in zip(entries, self.scale, strict=True))

    def box(self, outcome_range: Interval) -> Box:
        """What a record can add."""
        largest = max(abs(end - c) for end in outcome_range for c in self.centres)
        corner = np.concatenate([[1.0], np.full(self.scale.size - 1, 0.5)])
        half = largest * np.abs(self.scale) * corner / unit_norm(self.scale.size)
        return Box(-half, half)


def uses_delta(options: PrivateIPWOptions, facts: Facts) -> dict[str, float | None]:
    """Which shares can use a delta; the paper's noise is Gaussian everywhere."""
    if options.noise == "laplace":
        return {}
    if options.noise == "gaussian":
        return {**dict.fromkeys(_REST, math.inf), "model": None}
    return {"model": None}


def fit(curator: Curator, options: PrivateIPWOptions, estimand: str) -> Estimate:
    """Algorithm 1: the model, then the weighted sum."""
    if options.as_printed:
        return _as_printed(curator, options, estimand)
    estimate, n = curator.epsilon("estimate"), curator.n
    records = ((n + 1) // 2, n // 2) if options.split else (n, n)

    def released(rows: Curator) -> tuple[PropensityModel, Noisy]:
        setting = options.setting(records, rows.width, rows.delta("model"))
        return _propensity.private_model(rows, setting, estimate)

    if curator.is_public("covariates"):
        model = _propensity.public_model(curator, options.penalty)
    elif options.split:
        second = {k: curator.epsilon(k) for k in shares("sample", options) if curator.has(k)}
        facts = Facts(n, curator.width, Budget(1.0), "sample")
        known = uses_delta(options, facts)
        (model, _), curator = halves(curator, _FIRST_HALF, second, released, known)
    else:
        return _estimate(curator, options, estimand, *released(curator))
    return _estimate(curator, options, estimand, model, treated_count(curator, "counts"))


def _as_printed(curator: Curator, options: PrivateIPWOptions, estimand: str) -> Estimate:
    """Algorithm 1 with all of the budget for each of its two steps, and nothing beside them."""
    shares = {"model": 1.0}, {"estimate": 1.0}

    def released(rows: Curator) -> Weights:
        strength = rows.n * (options.penalty or 0.0)
        return propensity_model(rows, strength, 0.0, "model", options.propensity, options.noise)

    known: dict[str, float | None] = {"model": None, "estimate": math.inf}
    weights, other = halves(curator, *shares, released, known)
    limits = ESTIMANDS[estimand].clip_limits(options.clip or 0.0)
    model = Propensity.within(weights.value, 0.0, limits)
    row = WithinArm.of(Score(estimand, model, (0.0, 0.0), other.outcome_range), public=False)
    total = other.sums("weighted sum", row, Box(-0.5, 0.5), share="estimate")
    kept = _propensity.kept_slopes(weights.strength, curator.width, (curator.n + 1) // 2)
    own = ESTIMANDS[estimand]
    by_n = "" if own.of_treated and own.of_control else "treated" if own.of_treated else "control"
    said = (_BY_N.format(estimand, by_n) if by_n else "", caution_about(kept, 0.0))
    return Estimate(
        value=row.middles[0] + row.width * float(total) / other.n,
        sampling=Unavailable("Algorithm 1 as printed releases no variance"),
        gaussian=total.variance * (row.width / other.n) ** 2,
        basis="adjusted" if kept >= NOTHING else "association",
        details={
            "strength of the ridge penalty": weights.strength,
            "propensities within": f"[{model.low:.4g}, {model.high:.4g}]",
            "slopes kept by the propensity model": f"{100.0 * kept:.0f} %",
        },
        caution="; ".join(filter(None, said)),
        notes=(LINEAR, _SHIFTS, _HALVES),
    )


def _centres(
    curator: Curator, options: PrivateIPWOptions, shares: FloatArray, sd: float
) -> Centres:
    """Released means of the arms, or the same constant for all."""
    lower, upper = curator.outcome_range
    middle, n = lower + (upper - lower) / 2.0, curator.n
    if options.centre == "arms":
        centres = centres_of(curator, shares, sd, arm_sums(curator, "centre"))
        by_size = (centres.means - middle) * sd * n / centres.sizes  # sizes divide the sums
        return replace(centres, unknown=np.hypot(centres.unknown, by_size))
    constant = np.full(len(shares), middle if options.centre == "middle" else 0.0)
    none, two_valued = np.zeros(len(shares)), curator.values[-1] == 2
    about = (curator.outcome_range, two_valued, curator.size_sd)
    return Centres(n, shares, sd, constant, none, none, *about)


def _estimate(
    curator: Curator,
    options: PrivateIPWOptions,
    estimand: str,
    model: PropensityModel,
    count: Noisy,
) -> Estimate:
    """Release centres and the weighted sum; everything after that is post-processing."""
    if options.clip is None:
        limits = model.limits(estimand, curator.noise_sd("estimate") / curator.n)
    else:
        limits = ESTIMANDS[estimand].clip_limits(options.clip)
    propensity, share = model.within(limits), share_treated(curator, count)
    shares = np.array([share, 1.0 - share])
    centres = _centres(curator, options, shares, share_sd(curator, count))
    means = (float(centres.means[0]), float(centres.means[1]))
    score = Score(estimand, propensity, means, curator.outcome_range)
    row = WithinArm.of(score, curator.is_public("treatment"))
    asked = [
        Asked("weighted sum and squares", row, WithSquares(1), None, "estimate"),
        Asked("records beyond the clip", None, COUNT, beyond_clip(propensity), "overlap"),
    ]
    asked += _ask_squares(curator, means, model)
    released, beyond, *squares = curator.several(*asked)
    total = WeightedSum(row, centres, released)
    clipped, lost = clipped_share(curator.n, beyond, *model.beyond(estimand, limits))
    spread, spread_sd = _spread(centres, *squares)
    weight = float(model.mean_square_weights(estimand, limits).sum()) / curator.n
    sampling = total.sampling(weight * spread, weight * spread_sd)
    error = WeightingError(
        estimand,
        model,
        centres,
        extra=total.extra,
        noise=total.noise_variance,
        moved=_moved_by_model(curator, model, centres, spread, options.centre == "arms"),
        lost=lost,
        spread=spread,
        sampling=max(sampling.value, 0.0),
        centred=options.centre == "arms",
    )
    scale, most = (1.0 + error.further) * total.scale, centres.range
    estimate = Estimate(
        value=means[0] - means[1] + (1.0 + error.further) * total.extra,
        sampling=sampling if squares else Unavailable("variance=False was asked for"),
        laplace=() if released.gaussian else (scale,),
        gaussian=scale**2 if released.gaussian else 0.0,
        parts=(*error.parts(), *total.by_size(1.0 + error.further)),
        possible=(-most, most),
        basis="adjusted" if model.kept >= NOTHING else "association",
        details={
            "treated records": round(centres.sizes[0]),
            **model.details,
            "propensities within": f"[{propensity.low:.4g}, {propensity.high:.4g}]",
            "records beyond the clip": f"{100.0 * clipped:.1f} %",
            "slopes kept by the propensity model": f"{100.0 * model.kept:.0f} %",
        },
        caution=caution_about(model.kept, clipped),
        influence=total.influence(1.0 + error.further),
        notes=(
            LINEAR,
            *((_SHIFTS,) if options.centre != "arms" else ()),
            *((_HALVES,) if options.split else ()),
        ),
    )
    sizes = curator.n / model.mean_square_weights(estimand, limits)
    return with_means(estimate, centres, estimand, Spread(spread, sizes))


def _ask_squares(curator: Curator, means: tuple[float, ...], model: PropensityModel) -> list[Asked]:
    """Squares of residuals, where a variance is wanted."""
    if not curator.has("variance"):
        return []
    squared, part = SquaredResidual(means), _SQUARES if model.noise_sd.any() else 1.0
    box = squared.box(curator.outcome_range)
    return [Asked("squares of residuals", squared, box, None, "variance", part)]


def fit_arms(
    curator: Curator, options: PrivateIPWOptions, estimand: str, contrasts: Contrasts
) -> Effects:
    """Models of more than two arms, then a weighted sum for each of them."""
    weighting = _arm_weighting(curator, options)
    models, centres = weighting.models, weighting.centres
    means, arm_public = tuple(centres.means.tolist()), curator.is_public("treatment")
    row = weighting.row(curator.noise_sd("estimate") * (1.0 if arm_public else BY_ARM))
    asked = [*weighting.asked(curator, row), *_ask_squares(curator, means, models[0])]
    released, beyond, *squares = curator.several(*asked)
    extras = ArmExtras(row, centres, released)
    clipped, lost = weighting.lost(beyond)
    spread, spread_sd = _spread(centres, *squares)
    weights = weighting.mean_square_weights() / curator.n
    sampling, sampling_sd = extras.sampling(weights * spread, weights * spread_sd)
    noisiest = max(models, key=lambda model: float(model.noise_sd.max()))
    moved = _moved_by_model(curator, noisiest, centres, spread, options.centre == "arms")
    estimates, most = [], centres.range
    for arm, other in contrasts:
        pair = [arm, other]
        model, two = weighting.pair(arm, other)
        error = WeightingError(
            "ATE",
            model,
            two,
            extra=float(extras.values[arm] - extras.values[other]),
            noise=float(extras.noise_variances[pair].sum()),
            moved=moved * float((weighting.far[pair] ** 2).sum()),
            lost=float(lost[pair].sum()),
            spread=spread,
            sampling=max(float(sampling[pair].sum()), 0.0),
            centred=options.centre == "arms",
            far=weighting.far[pair],
        )
        scales = (1.0 + error.further) * extras.scales[pair]
        estimate = Estimate(
            value=float(two.means[0] - two.means[1]) + (1.0 + error.further) * error.extra,
            sampling=extras.variance(pair, sampling, sampling_sd)
            if squares
            else Unavailable("variance=False was asked for"),
            laplace=() if released.gaussian else tuple(scales.tolist()),
            gaussian=float(scales @ scales) if released.gaussian else 0.0,
            parts=(*error.parts(), *extras.by_size(pair, 1.0 + error.further)),
            possible=(-most, most),
            basis="adjusted" if model.kept >= NOTHING else "association",
            caution=caution_about(model.kept, float(clipped[pair].max())),
            influence=extras.influence(pair, 1.0 + error.further),
        )
        own = centres.means + (1.0 + error.further) * extras.values
        noise = (1.0 + error.further) * extras.scales, released.gaussian
        sizes = curator.n / weighting.mean_square_weights()
        both = (
            estimate.sampling
            if isinstance(estimate.sampling, Unavailable)
            else by_arm(pair, sampling, sampling_sd, extras.largest)
        )
        made = arm_means(pair, own, centres, estimate, both, *noise, sizes)
        estimates.append(replace(estimate, means=made))
    kept = min(model.kept for model in models)
    details = {
        "records by arm": ", ".join(f"{size:.0f}" for size in centres.sizes),
        "propensities at least, by arm": ", ".join(f"{x.low:.4g}" for x in row.models),
        "records beyond the clip, by arm": ", ".join(f"{100.0 * x:.1f} %" for x in clipped),
        "slopes kept by the propensity models": f"{100.0 * kept:.0f} %",
        **models[0].details,
    }
    notes = (LINEAR, *((_SHIFTS,) if options.centre != "arms" else ()))
    return Effects(tuple(estimates), notes, details=details)


def _arm_weighting(curator: Curator, options: PrivateIPWOptions) -> ArmWeighting:
    """Release models, sizes and centres of the arms."""
    n, sd = curator.n, 0.0
    if curator.is_public("covariates"):
        models = _propensity.public_arm_models(curator, options.penalty)
    else:
        setting = options.setting((n, n), curator.width, curator.delta("model") / curator.arms)
        models, sd = _propensity.private_arm_models(curator, setting, curator.epsilon("estimate"))
    shares = np.array([float(model.scores.mean()) for model in models])
    limits = clips(models, curator.noise_sd("estimate") / n)
    if options.clip is not None:
        limits = ((options.clip, 1.0),) * curator.arms
    return ArmWeighting(models, limits, _centres(curator, options, shares / shares.sum(), sd))


@dataclass(frozen=True)
class WeightedSum:
    """A released sum of scores, each over the width of its interval, and of their squares."""

    row: WithinArm
    centres: Centres
    release: Noisy

    @property
    def _size(self) -> float:
        """Records that the effect is the average over."""
        return float(ESTIMANDS[self.row.score.estimand].population(*self.centres.sizes))

    @property
    def scale(self) -> float:
        """Scale of the noise in `extra`."""
        return self.release.scale * self.row.width / self._size

    @property
    def noise_variance(self) -> float:
        """Variance of the noise in `extra`."""
        return self.release.variance * (self.row.width / self._size) ** 2

    @property
    def extra(self) -> float:
        """The sum of scores over the size of the population."""
        known = float(self.centres.sizes @ self.row.middles)
        return (self.row.width * float(self.release.value[0]) + known) / self._size

    def by_size(self, factor: float) -> tuple[Part, ...]:
        """What noise in the number of records does to ``factor`` times `extra`."""
        distance = (self.row.middles[1] - self.extra) * self.centres.n / self._size
        part = self.centres.size_part(factor * distance)
        return (part,) if part.variance else ()

    def influence(self, factor: float) -> Influence:
        """What rows add to the estimate, which has ``factor`` times `extra` in it."""
        low, high = self.row.score.interval()
        mean = min(max(self.extra * self._size / self.centres.n, low), high)
        shares = tuple(self.centres.shares.tolist())
        return Influence(self.row.score, low, high, mean, self._size / factor, shares)

    def sampling(self, value: float, sd: float) -> SamplingVariance:
        """Mean square of the scores about the estimate, over n.

        What squares of residuals say of it, ``value`` with noise ``sd``, has less noise, but takes
        residuals as independent of weights: both count by their precision.
        """
        size, width, middles = self._size, self.row.width, np.array(self.row.middles)
        estimand, average = self.row.score.estimand, self.extra**2 - self.noise_variance
        from_middle = 2.0 * float(middles @ reweighted(estimand, self.centres.share))
        squares = width**2 * float(self.release.value[1]) + from_middle * self.extra * size
        squares -= float(self.centres.sizes @ middles**2)
        # scores of an arm that is the population itself add up to 0, those of two to the average
        squares += (-1.0 if size == self.centres.n else 1.0) * average * size
        own_sd = self.release.sd * width * math.hypot(width, from_middle) / size**2
        other_sd = math.hypot(sd, _ROUGH * value)
        precision = 1.0 / max(own_sd, 1e-300) ** 2, 1.0 / max(other_sd, 1e-300) ** 2
        both = (squares / size**2 * precision[0] + value * precision[1]) / sum(precision)
        largest = max(abs(end) for end in self.row.score.interval()) ** 2 * self.centres.n
        return SamplingVariance(both, math.sqrt(0.5 / sum(precision)), largest / size**2)


def _spread(centres: Centres, *squares: Noisy) -> tuple[float, float]:
    """Mean square of residuals from their centres, pulled to a typical one by its noise.

    And what is not known of it, as a standard deviation.
    """
    typical = min((_TYPICAL_SD * centres.range) ** 2, centres.most_variance)
    if not squares:
        return typical, typical
    seen, noise = float(squares[0]) / centres.n, squares[0].variance / centres.n**2
    both = 1.0 / (1.0 / noise + 1.0 / typical**2)
    pulled = both * (seen / noise + 1.0 / typical)
    return min(max(pulled, (0.02 * centres.range) ** 2), centres.longest**2), math.sqrt(both)


def _moved_by_model(
    curator: Curator, model: PropensityModel, centres: Centres, spread: float, centred: bool
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
    level = (_FAR_SD * centres.range * float(scale[0]) / norm) ** 2
    prior = _EXPLAINED * float(by_column.mean()) + level
    if not curator.has("variance"):
        return largest**2 * prior
    row = OutcomeMoment(tuple(centres.means.tolist()), scale)
    box = row.box(curator.outcome_range)
    moment = curator.norm_of_sum("outcome and covariates", row, box, share="variance", part=_MOMENT)
    seen, noise = float(moment) / curator.n, moment.variance / curator.n**2
    both = 1.0 / (1.0 / noise + 1.0 / prior)
    mean = both * (seen / noise + math.sqrt(prior) / prior)
    square = mean**2 + both - float(by_column.sum()) / curator.n
    most = _MOST_EXPLAINED * float(by_column.max()) + 4.0 * level
    second_order = 1.0 + model.noise_variance
    return largest**2 * second_order * min(max(square, 0.0), most)


SPEC = MethodSpec(
    name="private_ipw",
    title="inverse probability weighting",
    about="PP-IPW: a private logistic propensity model, then one weighted sum of outcomes",
    assumes=f"{NO_CONFOUNDER}; log odds of treatment are linear in its terms",
    estimands=AVERAGES,
    levels=("sample", "label"),
    options=PrivateIPWOptions,
    shares=shares,
    uses_delta=uses_delta,
    fit=fit,
    fit_arms=fit_arms,
    needs_intercept=True,  # the other columns are centred around it
    citation=(
        "Lee, Gresele, Park and Muandet, Privacy-preserving causal inference via inverse "
        "probability weighting."
    ),
)
