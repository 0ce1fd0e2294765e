"""Least squares in each arm, with one draw of noise at the end (claims 34, 35).

1. As in `one_step`: the share of treated records, means by arm, a clip, means and variances of the
   covariates. Squares and products are added by a public rule (`bends`).
2. In each arm a regression of clipped residuals on all columns; the effect is the mean, over the
   records of the estimand, of what the two regressions predict. No noise is in it: whatever the
   columns span is adjusted for in full, and effects may vary along every one of them.
3. Three numbers of the regressions say what the estimate is worth: how many records it takes to
   make an arm singular, the leverage of the mean, and the squares of what is left.
4. ONE draw, whose noise follows from how far one record could move the estimate, on these data and
   on all that are few records away.

It needs some hundred records of the smaller arm for each column and unit of epsilon. Where
these are not there, what is left of the budget goes to `one_step`, whose models are pulled together by what
noise leaves of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpeffects.arrays import FloatArray
from dpeffects.estimands import ESTIMANDS
from dpeffects.estimators.default.bends import PRODUCTS, bends
from dpeffects.estimators.default.centres import Centres, LengthsAsked, release_centres, residual
from dpeffects.estimators.default.clipped_contrast import details
from dpeffects.estimators.default.levels import Spread, with_means
from dpeffects.estimators.default.moment_models import Standard, ask_means, release_standard
from dpeffects.estimators.default.one_step import OneStepOptions
from dpeffects.estimators.row import row
from dpeffects.estimators.spec import Contrasts
from dpeffects.inference.estimate import Effects, Estimate, Part, SamplingVariance
from dpeffects.privacy.curator import Curator
from dpeffects.privacy.ladder import PARTS, Ladder, Pace
from dpeffects.privacy.regression import LeastSquares, State
from dpeffects.privacy.rows import Block, RowFunction

_LENGTH = 0.7
"""Squared length to which rows are shortened, for each column. Noise at .5 to 1 was within 10 %."""
_CUT = 3.0
"""Where columns are cut, in standard deviations."""
_REACH = 2.0
"""Rows that the mean of the estimand is taken of are shortened to so many times that length."""
_SMOOTHING = (0.04, 0.07, 0.1, 0.14, 0.2, 0.28, 0.4)
"""Parts of the price of the draw that may pay for a ladder that widens."""
_PULL = 0.6
"""The largest |c'S^-1 w|, over the bound that leverage and room give: .34 to .66 in 40 designs."""
_SHARES = {
    "count": 0.02, "means": 0.04, "lengths": 0.06, "spread": 0.08,
    "room": 0.04, "leverage": 0.03, "squares": 0.04,
}  # fmt: skip


def shares(level: str, options: OneStepOptions) -> dict[str, float]:
    """Split of the budget: most of it goes to the one draw."""
    parts = {k: x for k, x in _SHARES.items() if k != "lengths" or options.clips}
    return {**parts, "estimate": 1.0 - sum(parts.values())}


@row("covariates")
def regression_row(
    rows: Block, standard: Standard, residual: RowFunction, radius: float
) -> tuple[FloatArray, ...]:
    """How much a row is shortened, the shortened row and residual, and the row."""
    x = np.clip(standard(rows), -_CUT, _CUT) if not standard.bends else standard(rows)
    lines = x[:, : standard.columns.size]
    np.clip(lines, -_CUT, _CUT, out=lines)
    squared = np.zeros(rows.size)
    for column in x.T:
        squared += column * column
    short = np.minimum(1.0, radius / np.sqrt(np.maximum(squared, 1e-12)))
    return short, x * short[:, None], short * residual(rows), x


@dataclass(frozen=True)
class Draw:
    """What the noise of a draw along a ladder is like: its smoothing, and a Laplace scale."""

    smoothing: float
    scale: float


def expected_draw(state: State, most: float, epsilon: float, smoothing: float) -> float:
    """Laplace scale with the same 95 % of the noise along the ladder of a state."""
    pace = Pace.of(epsilon, smoothing)
    ladder = Ladder.of(0.0, state.contrast()[:2048], (-most, most), pace)
    widths = np.asarray(ladder.rungs, np.float64)
    falls, first = float(pace.falls), pace.first / PARTS
    chances = widths * falls ** np.arange(widths.size)
    # within a rung a part is as likely as its beginning, the rest less
    inner = first / (first + (1.0 - first) * falls)
    chances = np.stack([chances * inner, chances * (1.0 - inner)], axis=1).ravel()
    ends = np.cumsum(np.stack([widths * first, widths * (1.0 - first)], axis=1).ravel())
    done = np.cumsum(chances / chances.sum())
    k = int(np.searchsorted(done, 0.95))
    begin, before = (ends[k - 1], done[k - 1]) if k else (0.0, 0.0)
    at = begin + (ends[k] - begin) * (0.95 - before) / (done[k] - before)
    return float(at) * 2.0 * most / 2**40 / math.log(20.0)


def fit_arms(
    curator: Curator, options: OneStepOptions, estimand: str, contrasts: Contrasts
) -> Effects:
    """Release the first stage, what the regressions are worth, and the draws."""
    n, centres = curator.n, release_centres(curator)
    about = LengthsAsked("lengths of residuals", residual(centres.means), centres.longest)
    clipped = [about.asked] if curator.has("lengths") else []
    sums, *counts = curator.several(ask_means(curator, "spread"), *clipped)
    smallest, epsilon = float(centres.sizes.min()), curator.epsilon("estimate") / len(contrasts)
    clip, bias, spread = centres.longest, 0.0, centres.most_variance
    if counts:
        lengths = about.read(n, *counts)
        unit = 2.0 * math.sqrt(2.0) * 4.0 / (smallest * epsilon)
        clip, bias, _ = lengths.clip(unit, centres)
        spread = min(lengths.mean_square, spread)
    degree = PRODUCTS if options.flexible is None else options.flexible
    standard = release_standard(curator, sums, "spread", bends(options.facts, degree))
    p, radius = standard.size, max(math.sqrt(_LENGTH * standard.size), 1.0)
    own = ESTIMANDS[estimand]
    target = None if own.of_treated and own.of_control else int(own.of_treated)
    fitted = LeastSquares(
        curator,
        regression_row(standard, residual(centres.means), radius),
        columns=p,
        radius=radius,
        clip=clip,
        reach=_REACH,
        target=target,
    )
    size = n if target is None else float(centres.sizes[0 if own.of_treated else 1])
    estimates = []
    for pair in contrasts:
        arms = (1, 0) if curator.arms == 2 else pair
        sizes, part = centres.sizes[list(pair)], 1.0 / len(contrasts)
        room_release = fitted.room(arms, share="room", part=part)
        room = max(float(room_release.value[0]), 2.5)
        weights = tuple((sizes.min() / sizes) ** 2)
        lev = fitted.leverage(arms, (1.0, 1.0), share="leverage", smoothing=0.1, part=part)
        leverage = math.exp(min(float(lev.value[0]), 0.0))
        flat = float((1.0 / sizes).sum())
        leverage = max(leverage, flat)
        sq = fitted.squares(
            arms, weights, float(n * clip**2), share="squares", smoothing=0.1, part=part
        )
        squares = float(sq.value[0]) / sizes.min() ** 2
        squares_max = spread * flat
        squares_v = float(np.clip(squares, 0.05 * squares_max, squares_max))
        # explained part of the residuals' variance, and the law of the draw
        explained = max(spread * (1.0 - squares_v / squares_max), 0.0)
        longest = clip + math.sqrt(1.1 * p * explained)
        margin = room_release.sd / 2.0
        state = State(
            max(room - margin, 2.5), _PULL * math.sqrt(leverage / room), longest, 0.3 * longest, size, _REACH
        )
        most = min(clip, centres.range)
        draws = [Draw(x, expected_draw(state, most, epsilon, x)) for x in _SMOOTHING]
        best = min(draws, key=lambda x: x.scale)
        drawn = fitted.contrast(
            "effect beside the means", arms, most, share="estimate", smoothing=best.smoothing, part=part
        )
        value = float(centres.means[pair[0]] - centres.means[pair[1]] + np.clip(drawn.value[0], -most, most))
        variance = squares_v * leverage / flat
        noise_v = variance * 0.15
        made = Estimate(
            value=value,
            sampling=SamplingVariance(variance, noise_v, centres.most_variance),
            laplace=(best.scale,),
            parts=(Part("clipped outcomes", bias**2),),
            possible=(-centres.range, centres.range),
            basis="adjusted",
            details={"room": room, "leverage": leverage * n, "squares": squares_v/squares_max, "clip": clip, "P": p, "longest": longest, "scale": best.scale, "var": variance, "smooth": best.smoothing, "bias": bias, "spread": spread},
        )
        state2 = fitted._state(arms)
        if state2:
            made.details.update(true_pull=state2.pull, f_pull=state.pull, true_res=state2.residual, true_room=state2.room, true_gap=state2.gap)
        estimates.append(made)
    return Effects(tuple(estimates), details=details(centres, clip, math.sqrt(spread)))
