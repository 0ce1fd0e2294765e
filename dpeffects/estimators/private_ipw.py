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
  flat, and the result says so.

Geometric mean of the root mean squared errors in 27 settings (n 700 to 20,000, 2 to 24 covariates,
epsilon 0.2 to 2, 10 to 30 runs), in 0.001 of the outcome's range: 30 by default, 33 with
``propensity="output"``, 33 with ``centre="middle"``, 40 with ``split=True``, 54 with
``centre="none"``, 104 with all of the paper's choices.

The interval accounts for sampling, for noise in the sum, and for what noise and shrinkage in the
model do to the estimate; `methods._propensity` says how, and how often intervals cover.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from dpeffects.arrays import BoolArray, FloatArray, Interval
from dpeffects.design.features import unit_rows
from dpeffects.errors import OptionError
from dpeffects.estimands import AVERAGES, ESTIMANDS
from dpeffects.estimators import _propensity
from dpeffects.estimators._checks import check_choice, check_clip, check_penalty, is_number
from dpeffects.estimators._propensity import PropensityModel, Setting
from dpeffects.estimators.arm_sums import arm_sums, treated_count
from dpeffects.estimators.spec import NO_CONFOUNDER, Facts, MethodSpec, Options
from dpeffects.estimators.weighting import Propensity
from dpeffects.inference.estimate import Estimate, SamplingVariance, Unavailable
from dpeffects.privacy.budget import Budget
from dpeffects.privacy.charges import Noisy
from dpeffects.privacy.curator import Curator
from dpeffects.privacy.logistic import unit_norm
from dpeffects.privacy.moments import WithSquares
from dpeffects.privacy.parts import halves
from dpeffects.privacy.rows import Block
from dpeffects.privacy.sets import Box, entries

_SQUARES, _MOMENT = 0.5, 0.5
"""Parts of the share "variance": for the squares, and for the effect of noise in the model."""
_PARTS = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5)
"""Parts of the budget that the model may get (`plan` chooses), and how the rest is divided."""
_REST = {"counts": 0.09, "spread": 0.06, "centre": 0.11, "estimate": 0.54, "variance": 0.2}
_FIRST_HALF = {"counts": 0.08, "spread": 0.06, "model": 0.86}
_SHIFTS = "Not normalised: the estimate moves when all outcomes shift."
_HALVES = (
    "A random half of the rows fits the model, the other half estimates; the charges of the first "
    "cover both."
)


@dataclass(frozen=True)
class PrivateIPWOptions(Options):
    """Options of inverse probability weighting.

    ``clip``: propensities are kept within [clip, 1 - clip], for the ATT and the ATC on the side on
    which they divide. ``propensity``: "objective" (noise in the objective) or "output" (noise on
    the weights, the paper's). ``split``: fit the model on one half of the rows and estimate on the
    other, as in the paper. ``centre``: "arms" (outcomes less released means of the arms), "middle"
    (less the middle of their range) or "none" (as they are, the paper's). ``penalty``: ridge
    penalty of the model, on rows of norm 1 and the mean loss (the paper has 0.1); where it is too
    small for noise in the objective, the least that is not. ``model_share``: part of the budget for
    the model, by default from public numbers. ``noise``: "auto" (Gaussian where it is smaller and
    delta allows it), "laplace" or "gaussian" (the paper's).
    """

    clip: float = 0.1
    propensity: str = "objective"
    split: bool = False
    centre: str = "arms"
    penalty: float | None = None
    model_share: float | None = None
    noise: str = "auto"

    def __post_init__(self) -> None:
        check_clip(self.clip)
        check_penalty(self.penalty)
        if not isinstance(self.split, bool):
            raise OptionError(f"split must be True or False, got {self.split!r}")
        part = self.model_share
        if not (part is None or (_between(part, 0.0, 1.0) and not self.split)):
            raise OptionError(f"model_share must be between 0 and 1, without split, got {part!r}")
        for name, known in _CHOICES.items():
            check_choice(name, getattr(self, name), known)

    def resolve(self, facts: Facts) -> Options:
        """Choose the share of the model; refuse what level or budget does not allow."""
        if self.noise == "gaussian" and not facts.budget.delta > 0:
            raise OptionError('noise="gaussian" needs delta > 0, for example delta=1e-6')
        if facts.level == "label":
            if self.split or self.model_share is not None:
                raise OptionError("split and model_share have no meaning at label level")
            return self
        if facts.width < 2:
            raise OptionError("private_ipw needs an intercept beside one column: leave out - 1")
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
        setting = self.setting((facts.n, facts.n), facts.width, facts.budget.delta / 3.0)
        return replace(self, model_share=_propensity.plan(setting, prices)[0])

    def needs_memory(self) -> str:
        """Halves are made of rows in memory."""
        return "split=True divides the rows into halves" if self.split else ""

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
    if level == "label":
        whole = {"centre": 0.08, "estimate": 0.72, "variance": 0.2}
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
    the estimand and centres (c_1, c_0); ``minus`` = (treated, control) is taken off for the squares
    of residuals.
    """

    estimand: str
    model: Propensity
    centres: tuple[float, float]
    outcome_range: Interval
    minus: tuple[float, float] = (0.0, 0.0)
    reads: ClassVar[tuple[str, ...]] = ("outcome", "treated", "covariates")

    def arms(self) -> tuple[Interval, Interval]:
        """Intervals of what a treated and a control record can add."""
        a, b = ESTIMANDS[self.estimand].weights(np.array([self.model.low, self.model.high]))
        outcomes, (m1, m0) = np.array(self.outcome_range), self.minus
        treated = np.multiply.outer(a, outcomes - self.centres[0]) - m1  # extremes are at corners
        control = np.multiply.outer(b, self.centres[1] - outcomes) - m0
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
        return np.where(
            rows.treated,
            a * (rows.outcome - self.centres[0]) - self.minus[0],
            -b * (rows.outcome - self.centres[1]) - self.minus[1],
        )


@dataclass(frozen=True)
class WithinArm:
    """A score less the middle of what its arm can add: nobody changes arm where arms are public."""

    score: Score
    middles: tuple[float, float]
    reads: ClassVar[tuple[str, ...]] = Score.reads

    def __call__(self, rows: Block) -> FloatArray:
        """Values of some rows."""
        return self.score(rows) - np.where(rows.treated, *self.middles)


@dataclass(frozen=True)
class SquaredScore:
    """The square of a score."""

    score: Score
    reads: ClassVar[tuple[str, ...]] = Score.reads

    def __call__(self, rows: Block) -> FloatArray:
        """Squares of some rows."""
        return self.score(rows) ** 2


@dataclass(frozen=True)
class OutcomeMoment:
    """(y - centre of the arm) times each entry of the row of norm at most 1, times ``scale``."""

    centres: tuple[float, float]
    scale: FloatArray
    reads: ClassVar[tuple[str, ...]] = Score.reads

    def __call__(self, rows: Block) -> tuple[FloatArray, ...]:
        """Columns of some rows."""
        residual = rows.outcome - np.where(rows.treated, *self.centres)
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
    return {"model": None, "spread": entries(WithSquares(max(facts.width - 1, 1)))}


def fit(curator: Curator, options: PrivateIPWOptions, estimand: str) -> Estimate:
    """Algorithm 1: the model, then the weighted sum."""
    clipped = ESTIMANDS[estimand].clip_limits(options.clip)
    estimate, n = curator.epsilon("estimate"), curator.n
    records = ((n + 1) // 2, n // 2) if options.split else (n, n)

    def released(rows: Curator) -> tuple[PropensityModel, Noisy]:
        setting = options.setting(records, rows.width, rows.delta("model"))
        return _propensity.private_model(rows, setting, estimate, clipped)

    if curator.is_public("covariates"):
        model = _propensity.public_model(curator, options.penalty, clipped)
    elif options.split:
        second = {k: curator.epsilon(k) for k in shares("sample", options) if curator.has(k)}
        facts = Facts(n, curator.width, Budget(1.0), "sample")
        known = uses_delta(options, facts)
        (model, _), curator = halves(curator, _FIRST_HALF, second, released, known)
    else:
        return _estimate(curator, options, estimand, *released(curator))
    return _estimate(curator, options, estimand, model, treated_count(curator, "counts"))


def _centres(curator: Curator, options: PrivateIPWOptions, treated: float) -> tuple[float, float]:
    """Released means of the treated and the control arm, or the same constant for both."""
    lower, upper = curator.outcome_range
    middle = lower + (upper - lower) / 2.0
    if options.centre != "arms":
        constant = middle if options.centre == "middle" else 0.0
        return constant, constant
    sums = arm_sums(curator, "centre")
    sizes = np.array([treated, curator.n - treated])
    one, zero = np.clip(middle + sums.value / sizes, lower, upper)
    return float(one), float(zero)


def _estimate(
    curator: Curator,
    options: PrivateIPWOptions,
    estimand: str,
    model: PropensityModel,
    count: Noisy,
) -> Estimate:
    """Release the weighted sum; everything after that is post-processing."""
    n = float(curator.n)
    treated = n * _propensity.share_treated(curator, count)
    size = ESTIMANDS[estimand].population(treated, n - treated)
    centres = _centres(curator, options, treated)
    score = Score(estimand, model.propensity, centres, curator.outcome_range)
    total = _weighted_sum(curator, score, count)
    extra = float(total) / size
    by_count = 0.0 if estimand == "ATE" else abs(extra) / size
    terms = ((total, 1.0 / size), (count, by_count))
    return Estimate(
        value=centres[0] - centres[1] + extra,
        sampling=_variance(curator, score, model, extra, (total, size)),
        laplace=tuple(x.scale * f for x, f in terms if not x.gaussian and x.scale * f > 0),
        gaussian=sum(x.variance * f**2 for x, f in terms if x.gaussian),
        details={"treated records": round(treated), **model.details},
        notes=(
            *model.notes,
            *((_SHIFTS,) if options.centre != "arms" else ()),
            *((_HALVES,) if options.split else ()),
        ),
    )


def _weighted_sum(curator: Curator, score: Score, count: Noisy) -> Noisy:
    """Release the sum of a score over the records."""
    if not curator.is_public("treatment"):
        return curator.sums("weighted sum", score, Box(*score.interval()), share="estimate")
    middles = [(low + high) / 2.0 for low, high in score.arms()]
    half = max(high - low for low, high in score.arms()) / 2.0
    within = WithinArm(score, (middles[0], middles[1]))
    total = curator.sums("weighted sum", within, Box(-half, half), share="estimate")
    known = float(count) * middles[0] + (curator.n - float(count)) * middles[1]
    return replace(total, value=total.value + known)


def _variance(
    curator: Curator,
    score: Score,
    model: PropensityModel,
    extra: float,
    released: tuple[Noisy, float],
) -> SamplingVariance | Unavailable:
    """Mean square of the terms about the estimate, over n; and the error of the model."""
    if not curator.has("variance"):
        return Unavailable("variance=False was asked for")
    (total, size), n = released, curator.n
    own = ESTIMANDS[score.estimand]
    minus = (extra * own.of_treated, extra * own.of_control)
    about = replace(score, minus=minus)
    part = _SQUARES if model.noise_sd > 0 else 1.0
    top = max(abs(end) for end in about.interval())
    squares = curator.sums(
        "weighted squares", SquaredScore(about), Box(0, top**2), share="variance", part=part
    )
    value = float(squares) - total.variance / size  # the noise in the estimate adds its square
    noise = math.sqrt(squares.variance / 2.0) / size**2
    largest = top**2 * n / size**2
    if not model.noise_sd > 0:
        return SamplingVariance(value / size**2, noise, largest)
    row = OutcomeMoment(score.centres, model.scale)
    box = row.box(curator.outcome_range)
    moment = curator.norm_of_sum("outcome and covariates", row, box, share="variance", part=_MOMENT)
    lower, upper = curator.outcome_range
    most = (upper - lower) * model.steepest
    slope, spread = min(max(float(moment) / n, 0.0), most), min(moment.scale / n, most)
    error = model.noise_sd**2 + model.bias**2
    return SamplingVariance(
        value / size**2 + slope**2 * error,
        math.hypot(noise, 2.0 * max(slope, spread) * spread * error),
        largest + most**2 * error,
    )


def reference(
    outcome: FloatArray,
    treated: BoolArray,
    rows: FloatArray,
    *,
    estimand: str = "ATE",
    clip: float = 0.1,
    centre: str = "arms",
    **options: Any,
) -> tuple[float, float]:
    """Inverse probability weighting by statsmodels' logit, with the same clip and centres.

    The standard error takes the propensities as known, as the private one does.
    """
    import statsmodels.api as sm

    logit = sm.Logit(treated.astype(float), rows).fit(disp=0, maxiter=200)
    e = np.clip(np.asarray(logit.predict(rows)), *ESTIMANDS[estimand].clip_limits(clip))
    middle = (outcome.min() + outcome.max()) / 2.0 if centre == "middle" else 0.0
    arms = (outcome[treated].mean(), outcome[~treated].mean())
    one, zero = arms if centre == "arms" else (middle, middle)
    a, b = ESTIMANDS[estimand].weights(e)
    part = ESTIMANDS[estimand].population(1.0 * treated, 1.0 - treated)
    terms = np.where(treated, a * (outcome - one), -b * (outcome - zero))
    extra = terms.sum() / part.sum()
    variance = np.sum((terms - extra * part) ** 2) / part.sum() ** 2
    return float(one - zero + extra), math.sqrt(variance)


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
    reference=reference,
    citation=(
        "Lee, Gresele, Park and Muandet, Privacy-preserving causal inference via inverse "
        "probability weighting."
    ),
)
