"""Least squares in each arm, with one draw of noise at the end (claims 34 to 36).

1. The share of treated records, means by arm, a clip, means and variances of the covariates, as in
   `one_step`. Squares and products of columns are added by a public rule (`bends`).
2. In each arm a regression of clipped residuals on all columns. The effect is the mean of what the
   two regressions predict, over the records of the estimand. There is no noise in it: what the
   columns span is adjusted for in full, and effects may vary along all of them.
3. Three numbers say what it is worth: how many records it takes to make an arm singular, the
   leverage of the mean that is predicted, and the squares of what the regressions leave.
4. ONE draw. Its noise follows from how far one record could move the estimate, on these data and
   on all that are few records away.

It takes some hundred records of the smaller arm, times epsilon, for each column. Where the released
share of treated records, or the room before an arm is singular, says that they are not there, or
rows belong to units or clusters, all that is left of the budget goes to `one_step`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from functools import lru_cache

import numpy as np

from dpeffects.arrays import FloatArray
from dpeffects.estimands import AVERAGES, ESTIMANDS
from dpeffects.estimators import constants as hand
from dpeffects.estimators.arm_sums import arm_counts, arm_sums
from dpeffects.estimators.default import one_step
from dpeffects.estimators.default.arm_levels import Spread, with_means
from dpeffects.estimators.default.arm_summaries import centres_of, residual
from dpeffects.estimators.default.clipped_contrast import details
from dpeffects.estimators.default.forecast import Forecast, outcome_sd
from dpeffects.estimators.default.one_step import OneStepOptions
from dpeffects.estimators.default.polynomial_terms import added_words, bends, bent, degree
from dpeffects.estimators.default.standardisation import Standardiser, ask_means, release_standard
from dpeffects.estimators.default.tails import LengthQuery, limits, uncut
from dpeffects.estimators.row_functions import row
from dpeffects.estimators.spec import NO_CONFOUNDER, STOOD_IN, Contrasts, MethodSpec, PublicInfo
from dpeffects.inference.estimate import (
    Effects,
    ErrorPart,
    Estimate,
    SamplingVariance,
    with_another,
)
from dpeffects.inference.ladder_noise import along_ladder, half_width
from dpeffects.privacy.charges import NoisyValue
from dpeffects.privacy.curator import Curator
from dpeffects.privacy.least_squares import MOST_PRODUCTS, LeastSquares, StepBounds
from dpeffects.privacy.release import Split
from dpeffects.privacy.rows import Block, RowFunction
from dpeffects.results.wording import said

_SHARES = {
    "count": 0.02,
    "means": 0.04,
    "lengths": 0.06,
    "spread": 0.08,
    "room": 0.08,
    "leverage": 0.03,
    "squares": 0.04,
    "estimate": 0.65,
}
"""Split of the budget. Error was flat from .6 to .75 for the draw."""


@row("covariates")
def regression_row(
    rows: Block, standard: Standardiser, residual: RowFunction, radius: float
) -> tuple[FloatArray, ...]:
    """How much a row is shortened, the shortened row and residual, and the row."""
    x, squared = standard(rows), np.zeros(rows.size)
    for column in x.T:
        squared += column * column
    short = np.minimum(1.0, radius / np.sqrt(np.maximum(squared, 1e-12)))
    return short, x * short[:, None], short * residual(rows), x


@dataclass(frozen=True)
class RegressionOptions(OneStepOptions):
    """Options of the regression by arm.

    ``flexible``: 0 adjusts for the formula's own terms alone, 1 for squares of its columns too, 2
    for their products too; None chooses by n, epsilon, delta and the number of columns.
    ``on_unadjusted`` changes nothing: this method always adjusts. ``first_stage``, ``clip``,
    ``model_share``,
    ``pool`` are those of "one_step", which is used where records do not carry the regression.
    """

    def resolve(self, facts: PublicInfo) -> RegressionOptions:
        """Columns are added by the facts; what stands in for it must be able to."""
        fallback_options(self, facts)
        return self.made_for(facts)

    def has_means(self, facts: PublicInfo) -> bool:
        """Sums by arm are released."""
        return facts.arms == 2


def fallback_options(options: OneStepOptions, facts: PublicInfo) -> OneStepOptions:
    """Options of `one_step`, with every choice made."""
    given = {x.name: getattr(options, x.name) for x in fields(OneStepOptions) if x.init}
    return OneStepOptions(**given).resolve(facts)


def budget_split(level: str, options: OneStepOptions) -> dict[str, float]:
    """Split of the budget: most of it goes to the one draw."""
    return {k: x for k, x in _SHARES.items() if k != "lengths" or options.clips}


def carried(facts: PublicInfo, smallest: float, columns: int, contrasts: int = 1) -> bool:
    """Whether the records of the smaller arm carry a regression on so many columns."""
    epsilon = min(float(facts.budget.epsilon) / contrasts, hand.USEFUL_EPSILON)
    able = not facts.grouped and facts.n * (columns + 1) ** 2 <= MOST_PRODUCTS
    return able and smallest * epsilon >= hand.REGRESSION_RECORDS * (columns + 1.0)


def enough(facts: PublicInfo, flexible: int | None = None) -> bool:
    """Whether public numbers say that records carry it, in arms of one size."""
    own = degree(facts) if flexible is None else flexible
    columns, contrasts = bent(facts, own).columns, max(facts.arms - 1, 1)
    able = facts.level == "sample" and (facts.arms == 2 or not facts.means)
    return able and carried(facts, facts.n / facts.arms, columns, contrasts)


def fit_arms(
    curator: Curator, options: OneStepOptions, estimand: str, contrasts: Contrasts
) -> Effects:
    """Release the first stage, what the regressions are worth, and one draw a contrast."""
    facts, counts = options.facts, arm_counts(curator, "count")
    known = counts.shares()
    added = bends(facts, options.degree)
    smallest = curator.n * float(known[0].min())
    if not carried(facts, smallest, facts.columns + len(added), len(contrasts)):
        return _instead(curator, options, estimand, contrasts)
    centres = centres_of(curator, known, arm_sums(curator, "means"))
    epsilon = curator.epsilon("estimate") / len(contrasts)
    from_means, unseen = residual(centres.means), hand.UNSEEN * options.randomised
    about = LengthQuery(from_means, centres.longest, centres, unseen=unseen)
    clipped = [about.asked] if curator.has("lengths") else []
    sums, *lengths = curator.several(ask_means(curator, "spread"), *clipped)
    cut, spread = uncut(centres), centres.most_variance
    if lengths:
        read = about.read(lengths[0])
        cut = read.clip(16.0 * math.sqrt(2.0) / (smallest * epsilon), centres)
        spread = min(read.mean_square(cut.length)[0], spread)
    standard, clip = release_standard(curator, sums, "spread", added), cut.length
    radius = max(math.sqrt(hand.LENGTH * standard.size), 1.0)
    own = ESTIMANDS[estimand]
    everybody = own.of_treated and own.of_control
    fitted = LeastSquares(
        curator,
        regression_row(standard, from_means, radius),
        columns=standard.size,
        radius=radius,
        clip=clip,
        reach=hand.REACH,
        target=None if everybody else int(own.of_treated),
    )
    rooms = {
        pair: fitted.room(_arms(curator, pair), share="room", part=1.0 / len(contrasts))
        for pair in contrasts
    }
    surely = min(float(x.value[0]) - hand.SURELY * x.scale for x in rooms.values())
    if surely * epsilon < hand.ROOM:
        return _instead(curator, options, estimand, contrasts)
    size = float(own.population(*centres.sizes)) if curator.arms == 2 else float(curator.n)
    part = 1.0 / len(contrasts)

    def estimate(pair: tuple[int, int], room: NoisyValue) -> Estimate:
        """Release what the regressions of two arms are worth, and their contrast."""
        arms, sizes = _arms(curator, pair), centres.sizes[list(pair)]
        few, even, about = float(sizes.min()), float((1.0 / sizes).sum()), float(room.value[0])
        longest = hand.LEVERAGE * (1.0 + math.sqrt(standard.size)) / few
        leverage = fitted.leverage(arms, size, longest, share="leverage", part=part)
        uneven = _posterior(leverage.value[0] / even, leverage.sd / even, hand.UNEVEN)
        weights = (few / sizes) ** 2
        squares = fitted.squares(arms, weights, hand.FIT * clip, share="squares", part=part)
        unit = spread * float(weights @ sizes)
        left = _posterior(squares.value[0] / unit, squares.sd / unit, 1.0 - hand.EXPLAINED)
        uneven, left = max(uneven, 1.0), min(max(left, 0.02), 1.0)
        leeway = StepBounds(
            max(about - room.sd / 2.0, 2.5),
            hand.PULL * math.sqrt(uneven * even / about),
            *_longest(clip, standard.size, (1.0 - left) * spread),
            size,
            hand.REACH,
        )
        most = min(clip, centres.range)
        smoothing, scale = draw_of(leeway, most, epsilon)
        drawn = fitted.contrast(
            "effect beside the means", arms, most, share="estimate", smoothing=smoothing, part=part
        )
        means, beside = (centres.means + cut.lost)[list(pair)], float(drawn.value[0])
        variance = left * spread * uneven * even
        noise = variance * math.hypot(leverage.sd / even / uneven, squares.sd / unit / left)
        bias = float((cut.unknown[list(pair)] ** 2).sum())
        return Estimate(
            value=float(means[0] - means[1]) + min(max(beside, -most), most),
            sampling=SamplingVariance(
                variance, min(noise, variance / 2.0) / math.sqrt(2.0), spread
            ),
            laplace=(scale,),
            parts=(ErrorPart("winsorisation bias", bias),) if bias else (),
            possible=(-centres.range, centres.range),
            identification="randomised" if options.randomised else "adjusted",
            warnings=with_another(standard.warnings, centres.with_warnings(options.left_out)),
        )

    estimates = [estimate(*each) for each in rooms.items()]
    if curator.arms == 2:
        spreads = Spread(spread, centres.sizes)
        estimates = [with_means(x, centres, estimand, spreads) for x in estimates]
    shown = added_words(facts, options.degree) | details(centres, clip, math.sqrt(spread))
    return Effects(tuple(estimates), details=shown)


def _arms(curator: Curator, pair: tuple[int, int]) -> tuple[int, int]:
    """Numbers of two arms in the rows: of two arms the first is the treated one, number 1."""
    return (1, 0) if curator.arms == 2 else pair


def _longest(clip: float, columns: int, explained: float) -> tuple[float, float]:
    """The longest residual from a prediction to expect, and how far predictions differ."""
    longest = clip + math.sqrt(1.1 * columns * explained)
    return longest, hand.GAP * longest


def _posterior(seen: float, sd: float, usual: float) -> float:
    """A number seen with noise, pulled to what is usual by as much as noise explains."""
    return float(usual + (seen - usual) / (1.0 + (sd / (hand.ROUGH * usual)) ** 2))


def draw_of(leeway: StepBounds, most: float, epsilon: float) -> tuple[float, float]:
    """The smoothing with the least noise, and the Laplace scale that has 95 % where it has."""
    ladder = leeway.contrast()
    halves = {
        x: half_width(*along_ladder(ladder, 2.0 * most, epsilon, x))
        for x in limits(0.5)[1:].tolist()  # from .35 down, each less by the root of 2
    }
    best = min(halves, key=lambda x: halves[x])
    return best, halves[best] / math.log(20.0)


def _instead(
    curator: Curator, options: OneStepOptions, estimand: str, contrasts: Contrasts
) -> Effects:
    """What is left of the budget, for `one_step`; the variance of clusters comes after it."""
    facts: PublicInfo = options.facts
    budget = curator.left(facts.budget, budget_split(facts.level, options))
    known = replace(facts, budget=budget)
    own = fallback_options(options, known)
    split = Split.of(
        budget, one_step.budget_split(facts.level, own), one_step.uses_delta(own, known)
    )
    found = one_step.fit_arms(curator.with_split(split), own, estimand, contrasts)
    shown = {STOOD_IN: one_step.SPEC.name, **found.details}
    return replace(found, details=shown, notes=(said("one_step")["instead"], *found.notes))


@lru_cache(maxsize=256)
def planned(options: OneStepOptions, facts: PublicInfo) -> tuple[RegressionOptions, Forecast]:
    """The options with every choice made, and what to expect of them in arms of one size."""
    own = RegressionOptions(options.design, flexible=options.flexible).resolve(facts)
    p, n = bent(facts, own.degree).columns, facts.n
    split = Split.of(facts.budget, budget_split(facts.level, own))
    epsilon, sd = split.shares["estimate"].epsilon, outcome_sd(facts)
    clip = hand.LONGEST if facts.two_valued else hand.LONG_SDS * sd
    left, uneven = 1.0 - hand.EXPLAINED, hand.UNEVEN
    even, room = 2.0 * facts.arms / n, 0.3 * n / facts.arms / (p + 1.0)
    pull = hand.PULL * math.sqrt(uneven * even / max(room, 1.0))
    leeway = StepBounds(
        max(room, 2.5), pull, *_longest(clip, p, (1.0 - left) * sd**2), n, hand.REACH
    )
    _, scale = draw_of(leeway, clip, epsilon / max(facts.arms - 1, 1))
    sampling = sd * math.sqrt(left * uneven * even)
    return own, Forecast(math.sqrt(2.0) * scale, sampling, 0.0)


SPEC = MethodSpec(
    name="regression",
    title="regression by arm",
    about="least squares in each arm, squares and products among its columns, and one draw",
    assumes=f"{NO_CONFOUNDER}; outcomes of each arm are linear in its terms and the columns added",
    estimands=AVERAGES,
    levels=("sample",),
    options=RegressionOptions,
    budget_split=budget_split,
    fit_arms=fit_arms,
    may_stop=True,
    citation="dpeffects (software): regression by arm with one draw of noise.",
)
