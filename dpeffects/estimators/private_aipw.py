"""Doubly robust effects from blocks of a private propensity score: our own estimator.

1. A logistic propensity model is released, and where n and the budget carry it a linear outcome
   regression for each arm, from noisy moments with a ridge as large as their noise.
2. Records are sorted into blocks of the propensity score; cuts come from a noisy histogram.
3. Counts and sums of residuals by arm and block are released. The effect is the average of the
   fitted difference m_1 - m_0 plus the weighted average over blocks of the difference in mean
   residuals: right if the outcome model is right, or if the blocks remove the confounding.
4. Blocks on a noisy score leave a share of the confounding, which public and released numbers
   tell; with the unblocked difference, which the same sums give, it is corrected for.

Releasing sums by block costs no more noise for each cell than releasing them by arm, so blocks are
cheaper than weights: an inverse probability weight of up to 1 / clip multiplies the noise for every
record, a block's noise grows only where the block is small.

What lost, by the relative error on the confounded simulation (n = 20,000, 10 covariates, epsilon 1,
25 to 30 samples): this design 0.03; inverse probability weights (`private_ipw`) 0.04; 10 blocks
without the correction 0.06, 5 blocks 0.12; blocks with an outcome regression always on, whose noisy
moments take a quarter of the budget, 0.09 to 0.13 (it pays from some 100,000 records); the
propensity model by output instead of objective perturbation 0.36; difference in means 0.78.

What adjusting costs and gains follows from public numbers. ``adjust="auto"`` compares, for each
number of blocks, the noise of the estimate with the confounding that would be left (`plan`), for
a bias of ``confounding`` times the range of the outcome. Where nothing beats the plain difference
in means, nothing is adjusted for, and the first lines of the summary say so.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from dpeffects.arrays import FloatArray
from dpeffects.design.arms import ARMS
from dpeffects.errors import OptionError
from dpeffects.estimands import AVERAGES, ESTIMANDS
from dpeffects.estimators import diff_in_means
from dpeffects.estimators._blocks import (
    CONTROL,
    TREATED,
    Blocks,
    Residual,
    block_counts,
    cuts_for,
    propensity,
    score_cells,
)
from dpeffects.estimators._checks import check_choice, check_whole, is_number
from dpeffects.estimators._outcome import OutcomeRegression, moment_set
from dpeffects.estimators._plan import MOST_LEFT, plan, regression_error, share_left
from dpeffects.estimators.spec import Facts, MethodSpec, Options
from dpeffects.inference.estimate import Estimate, SamplingVariance, Unavailable
from dpeffects.privacy.curator import Curator
from dpeffects.privacy.noise import MOST_ENTRIES
from dpeffects.privacy.sets import COUNT, Box, entries

_COUNTS = 1000
"""Counts that are released beside the moments of an outcome regression, at most."""


@dataclass(frozen=True)
class PrivateAIPWOptions(Options):
    """Options of the doubly robust estimator.

    ``adjust``: "auto" (by public numbers), "all" or "none". ``confounding``: the bias, as a share
    of the outcome's range, that "auto" wants to be safe from. ``blocks``: the number of blocks, or
    None to choose it. ``regression``: whether an outcome regression is fitted, or None to choose.
    """

    adjust: str = "auto"
    confounding: float = 0.05
    blocks: int | None = None
    regression: bool | None = None

    def __post_init__(self) -> None:
        check_choice("adjust", self.adjust, ("auto", "all", "none"))
        if not (is_number(self.confounding) and 0.0 <= self.confounding <= 1.0):
            raise OptionError(f"confounding must be between 0 and 1, got {self.confounding!r}")
        if self.blocks is not None:
            check_whole("blocks", self.blocks, 1, 50)
        if self.regression is not None and not isinstance(self.regression, bool):
            raise OptionError(f"regression must be True or False, got {self.regression!r}")

    def resolve(self, facts: Facts) -> PrivateAIPWOptions:
        """Choose the number of blocks and the regression from n, d and the budget."""
        blocks = 1 if self.adjust == "none" else self.blocks or self._planned(facts)
        regression = self.regression
        if regression is None:
            split = shares(facts.level, replace(self, blocks=blocks, regression=True))
            regression = blocks > 1 and regression_error(facts, split) < 0.35
        return replace(self, blocks=blocks, regression=regression and self.adjust != "none")

    def _planned(self, facts: Facts) -> int:
        plain, blocked = (
            shares(facts.level, replace(self, blocks=blocks, regression=False))
            for blocks in (1, None)
        )
        return plan(facts, self.confounding, plain, blocked, must_adjust=self.adjust == "all")


def shares(level: str, options: PrivateAIPWOptions) -> dict[str, float]:
    """Split of the budget for the plan that was made."""
    if options.blocks == 1 and not options.regression:
        return diff_in_means.shares(level, diff_in_means.DiffInMeansOptions())
    split = {"propensity": 0.28, "spread": 0.03, "blocks": 0.05, "counts": 0.14, "estimate": 0.3}
    split["variance"] = 0.2
    return {**split, "regression": 0.25} if options.regression else split


def uses_delta(options: PrivateAIPWOptions, facts: Facts) -> dict[str, float | None]:
    """Which shares can use a delta, and in how many entries a record moves their releases."""
    counts, d = entries(COUNT, cells=2), facts.width
    known: dict[str, float | None] = {"propensity": None, "blocks": counts, "counts": counts}
    if d * (d + 3) + _COUNTS <= MOST_ENTRIES:  # moments of both arms
        known["regression"] = entries(moment_set(d), cells=2)
    return known


def fit(curator: Curator, options: PrivateAIPWOptions, estimand: str) -> Estimate:
    """Release nuisances, cuts, counts and sums; the rest is post-processing."""
    if options.blocks == 1 and not options.regression:
        return _unadjusted(curator, options, estimand)
    lower, upper = curator.outcome_range
    half = (upper - lower) / 2.0
    weights, cuts, left, hidden = np.zeros(curator.width + 1), np.zeros(0), 0.0, 0.0
    if options.blocks and options.blocks > 1:
        weights, unreliable, hidden = propensity(curator)
        cuts = cuts_for(curator, weights, options.blocks)
        left = share_left(unreliable, len(cuts) + 1)
    regression = OutcomeRegression.fitted(curator, half) if options.regression else None
    models = regression.models if regression else np.zeros((2, curator.width + 1))
    counts = block_counts(curator, "counts by block", weights, cuts, "counts")
    residual = Residual(models, lower + half, half)
    cells = score_cells(weights, cuts)
    sums = curator.sums(
        "residual sums by block", residual, Box(-half, half), cells, share="estimate"
    )
    sums = replace(sums, value=sums.value.reshape(2, -1))
    blocks = Blocks.of(counts, sums, half, curator.n, estimand, left)
    plug = regression.effect(estimand) if regression else 0.0
    value = float(np.clip(plug + blocks.effect, -2.0 * half, 2.0 * half))
    laplace, gaussian = blocks.noise()
    hidden = hidden if left > MOST_LEFT else 0.0
    sampling = _variance(curator, residual, blocks, regression, estimand, hidden)
    return Estimate(
        value=value,
        sampling=sampling,
        laplace=laplace,
        gaussian=gaussian,
        details=_details(blocks, cuts, options, left),
        caution=_caution(len(cuts) + 1, left, options),
    )


def _caution(blocks: int, left: float, options: PrivateAIPWOptions) -> str:
    """What came out of the plan, where that is less than it promises."""
    if blocks == 1 and not options.regression:
        return "NOT ADJUSTED for covariates: no cut left enough records on both sides"
    if left > MOST_LEFT or blocks == 1:
        return "HARDLY ADJUSTED: the models are mostly noise or shrinkage"
    return ""


def _unadjusted(curator: Curator, options: PrivateAIPWOptions, estimand: str) -> Estimate:
    """The plain difference in means, which says that it is one."""
    why = "as asked" if options.adjust == "none" else "n and epsilon are too small for it"
    plain = diff_in_means.fit(curator, diff_in_means.DiffInMeansOptions(), estimand)
    note = 'Nothing was adjusted for. adjust="all" adjusts whatever it costs.'
    caution = f"NOT ADJUSTED for covariates: {why}"
    return replace(plain, caution=caution, notes=(*plain.notes, note))


def _variance(
    curator: Curator,
    residual: Residual,
    blocks: Blocks,
    regression: OutcomeRegression | None,
    estimand: str,
    hidden: float,
) -> SamplingVariance | Unavailable:
    """Residual variance by arm over the blocks, plus that of the fitted effects.

    Where the scores are taken for noise, log odds of treatment that vary by ``hidden`` may have
    gone unseen; correlated by 1/2 with the outcome they make a bias of half their product, which
    is allowed for as a variance.
    """
    if not curator.has("variance"):
        return Unavailable("variance=False was asked for")
    half, square = residual.half, replace(residual, squared=True)
    squares = curator.sums("residual squares by arm", square, Box(0, 1), ARMS, share="variance")
    rows = blocks.size.sum(axis=1)
    mean_square = (blocks.size * (blocks.mean / half) ** 2).sum(axis=1) / rows
    noise = (blocks.sums.variance / half**2 / blocks.size).sum(axis=1) / rows
    within = half**2 * (squares.value[:, 0] / rows + 0.5 - mean_square + noise)
    factor = (blocks.size * blocks.form**2).sum(axis=1)
    value = float(factor @ within) + blocks.allowance()
    value += (0.5 * hidden) ** 2 * max(float(within.mean()), 0.0)
    if regression:
        over = ESTIMANDS[estimand].population(rows[TREATED], rows[CONTROL])
        value += regression.effect_variance() / float(over)
    by_squares = squares.scale / rows
    by_sums = 2.0 * np.sqrt(mean_square) * math.sqrt(blocks.sums.variance / 2.0) / half / rows
    scale = half**2 * float(np.linalg.norm(factor * np.hypot(by_squares, by_sums)))
    return SamplingVariance(value, scale, half**2 * float(factor.sum()) + value)


def _details(
    blocks: Blocks, cuts: FloatArray, options: PrivateAIPWOptions, left: float
) -> dict[str, Any]:
    details: dict[str, Any] = {
        "treated, control records (noisy)": ", ".join(f"{x:.0f}" for x in blocks.size.sum(axis=1)),
        "outcome regression": "yes" if options.regression else "no",
    }
    if len(cuts):
        details["confounding that the blocks leave"] = f"{100 * left:.0f} %"
        details["of it corrected for"] = f"{100 * blocks.left:.0f} %"
        details["propensity score cut at"] = ", ".join(f"{c:.3f}" for c in cuts)
    return details


def reference(
    outcome: FloatArray,
    treated: npt.NDArray[np.bool_],
    rows: FloatArray,
    estimand: str = "ATE",
    **options: Any,
) -> tuple[float, float]:
    """Non-private augmented inverse probability weighting (statsmodels' models)."""
    import warnings

    import statsmodels.api as sm

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # separation and redundant columns still give predictions
        logit = sm.GLM(treated.astype(float), rows, family=sm.families.Binomial())
        score = np.asarray(logit.fit().predict(rows))  # by a pseudo-inverse: any columns will do
        m1, m0 = (
            np.asarray(sm.OLS(outcome[arm], rows[arm]).fit().predict(rows))
            for arm in (treated, ~treated)
        )
    score = np.clip(score, 0.01, 0.99)
    if estimand == "ATE":
        effect = m1 - m0 + np.where(treated, (outcome - m1) / score, (m0 - outcome) / (1 - score))
        return float(effect.mean()), float(effect.std() / math.sqrt(outcome.size))
    odds = score / (1 - score) if estimand == "ATT" else (1 - score) / score
    own = treated if estimand == "ATT" else ~treated
    other = m0 if estimand == "ATT" else m1
    part = np.where(own, outcome - other, -odds * (outcome - other)) / own.mean()
    value = float(part.mean()) * (1 if estimand == "ATT" else -1)
    return value, float(part.std() / math.sqrt(outcome.size))


SPEC = MethodSpec(
    name="private_aipw",
    title="doubly robust, by blocks",
    about="private propensity blocks and outcome regression; adjusts where it pays",
    estimands=AVERAGES,
    levels=("sample",),
    options=PrivateAIPWOptions,
    shares=shares,
    uses_delta=uses_delta,
    fit=fit,
    reference=reference,
    citation="dpeffects: blocked augmented inverse probability weighting (docs/architecture.md).",
)
