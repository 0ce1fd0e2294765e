"""Sample and aggregate: any scikit-learn models, an exact guarantee.

The n records are put into a secret order and dealt to K blocks in turn. The whole estimator is
fitted in each block, its answer is clipped to a declared range of effects, and the mean of the K
answers is released. One record moves one answer, by at most the length R of the range, so the mean
moves by at most R / K, whatever the models are (claim 10).

The noise falls with the number of blocks, so blocks should be small; the models must still work in
them. Bias that is left in a block is left in the mean, and no interval shows it. ``blocks=None``
takes n / K = sqrt(d n epsilon / 80) records for a block with d columns, twice as many for models
other than the built-in ridge models; at least 10 records, at least 40 blocks where n allows it, and
then the next prime, so that no pattern in the order of the records (pairs, say) is one in a block.

The number 80 was chosen by measured bias and variance of the ridge models in blocks of 10 to 100
records (three simulations, 5 and 11 columns) and the variance of the noise. For n from 500 to
100,000 and epsilon from 0.3 to 3 the root mean squared error is 1.1 times that of the best size of
each setting on average, at most 2.9 times (where n and epsilon are largest and blocks larger than
they need be; with 120 it is 1.1 and 2.4). Bias is at most 0.45 standard errors where blocks have
two records or more for each column (0.9 with 120); where not, the summary's first lines say so.

Root mean squared errors in 0.001 of the outcome's range, epsilon 1, 4 to 30 runs; "ridge" are the
defaults, "narrow" has ``effect_range=(-0.5, 0.5)``, "trees" are single decision trees; boosted ones
were as good. In the last line no line in the covariates describes the confounding:

====================== ============= =========== ============ ===== ====== =====
data                   diff_in_means private_ipw private_aipw ridge narrow trees
====================== ============= =========== ============ ===== ====== =====
confounded, n = 2,000             79          67           79    43     36
confounded, n = 5,000             78          16           28    20     12
confounded, n = 20,000            78           8            4     9      5
binary, n = 20,000                66           5            5    12     10
U-shaped, n = 20,000              70          70           60    73           20
====================== ============= =========== ============ ===== ====== =====

The sampling variance is the variance between blocks over K, from a noisy sum of squares (claim 10).
Blocks in which the models fail, or which lack an arm, answer with the middle of the range: rare
treatments need larger blocks. A narrow ``effect_range`` divides the noise, and makes larger blocks
worth having.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from dpeffects.arrays import BoolArray, FloatArray, Interval
from dpeffects.errors import OptionError
from dpeffects.estimands import AVERAGES
from dpeffects.estimators._checks import check_choice, check_clip, check_whole, is_number
from dpeffects.estimators._learners import (
    ESTIMATOR_NAMES,
    BlockLearner,
    models_of,
    weights_of,
    wrap_models,
)
from dpeffects.estimators.spec import NO_CONFOUNDER, Facts, MethodSpec, Options
from dpeffects.inference.estimate import Estimate, SamplingVariance, Unavailable
from dpeffects.privacy.charges import Noisy
from dpeffects.privacy.curator import Curator
from dpeffects.privacy.parts import answer, by_block
from dpeffects.privacy.rows import Block, reads
from dpeffects.privacy.sets import Box

_LEAST_RECORDS = 4
_SMALL, _ENOUGH = 10, 40
"""By default blocks have no fewer records than _SMALL; _ENOUGH blocks tell a standard error."""
_COLUMNS = 2
"""With fewer records for each column than this, a fifth or more of the confounding may stay."""


@dataclass(frozen=True)
class SampleAggregateOptions(Options):
    """Options of sample and aggregate.

    ``outcome``: a regressor with scikit-learn's fit and predict, or a classifier with predict_proba
    for a binary outcome; by default a light ridge regression. ``propensity``: a classifier with
    predict_proba; by default a light ridge logistic regression. ``blocks``: the number of blocks,
    or None to choose it. ``effect_range``: (lower, upper) for the answer of a block, by default
    what the range of the outcome allows, (-B, B); it must not come from the data. ``estimator``:
    "aipw", "ipw" or "regression". ``clip``: propensities are kept within [clip, 1 - clip].
    ``crossfit``: whether models learn in one half of a block and predict in the other; by default
    unless both models are the built-in ones.

    Each block gets fresh copies of the models, and the global generators of numpy, Python and torch
    are set for it. The guarantee needs that a model carries nothing from one fit to the next beyond
    that: no generator, counter or cache in a module, a class, a closure or a file.
    """

    outcome: Any = None
    propensity: Any = None
    blocks: int | None = None
    effect_range: tuple[float, float] | None = None
    estimator: str = "aipw"
    clip: float = 0.05
    crossfit: bool | None = None

    def needs_memory(self) -> str:
        """Learners get their rows as arrays."""
        return "learners need the rows of their blocks as arrays"

    def __post_init__(self) -> None:
        check_choice("estimator", self.estimator, ESTIMATOR_NAMES)
        check_clip(self.clip)
        if not (self.crossfit is None or isinstance(self.crossfit, bool)):
            raise OptionError(f"crossfit must be True or False, got {self.crossfit!r}")
        if self.blocks is not None:
            check_whole("blocks", self.blocks, 2)
        if self.effect_range is not None:
            object.__setattr__(self, "effect_range", effect_interval(self.effect_range))
        wrap_models(self)
        for name in _UNUSED.get(self.estimator, ()):
            if getattr(self, name) is not None:
                raise OptionError(f'{name} has no meaning with estimator="{self.estimator}"')

    def check(self, n: int, smallest_arm: int | None) -> None:
        """Refuse blocks that are too many for the records."""
        most = n // _LEAST_RECORDS
        if most < 2:
            raise OptionError(f"sample_aggregate needs at least {2 * _LEAST_RECORDS} records")
        if self.blocks is not None and self.blocks > most:
            raise OptionError(
                f"blocks = {self.blocks} for {n} records: a block needs {_LEAST_RECORDS} records, "
                f"so at most {most} blocks"
            )

    def resolve(self, facts: Facts) -> SampleAggregateOptions:
        """Choose the blocks from public numbers, and try the models on made-up records."""
        learner = self.in_block("ATE")
        blocks = self.blocks or default_blocks(
            facts.n, facts.width, facts.budget.epsilon, learner.flexible
        )
        size = facts.n // blocks, facts.width
        try_models(lambda *rows: answer(learner, rows, 1), learner, size, "block")
        chosen: dict[str, Any] = {
            "outcome": learner.outcome,
            "propensity": learner.propensity,
            "crossfit": learner.crossfit,
            **dict.fromkeys(_UNUSED.get(self.estimator, ())),
        }
        return replace(self, blocks=blocks, **chosen)

    def in_block(self, estimand: str) -> BlockLearner:
        """What is computed in a block."""
        learner = BlockLearner(*models_of(self), self.estimator, estimand, self.clip)
        folds = learner.flexible if self.crossfit is None else self.crossfit
        return replace(learner, crossfit=folds)


_UNUSED = {"ipw": ("outcome",), "regression": ("propensity", "crossfit")}
"""Options without a meaning for an estimator."""


def effect_interval(given: Any) -> tuple[float, float]:
    """Return a range of effects as a user wrote it, checked."""
    pair = tuple(given) if isinstance(given, tuple | list) else ()
    if len(pair) != 2 or not all(is_number(x) and math.isfinite(x) for x in pair):
        raise OptionError(f"effect_range must be two numbers (lower, upper), got {given!r}")
    lower, upper = map(float, pair)
    if not lower < upper:
        raise OptionError(f"effect_range: lower must be below upper, got ({lower:g}, {upper:g})")
    if not 1e-50 <= upper - lower <= 1e50:
        raise OptionError(f"effect_range ({lower:g}, {upper:g}) is too narrow or too wide")
    return lower, upper


def default_blocks(n: int, d: int, epsilon: float, flexible: bool) -> int:
    """Number of blocks for n records with d columns; the module's docstring has the rule.

    Examples
    --------
    >>> default_blocks(5000, 11, 1.0, False), default_blocks(5000, 11, 1.0, True)
    (191, 97)
    """
    size = math.sqrt(d * n * epsilon / 80.0) * (2.0 if flexible else 1.0)
    size = max(_SMALL, min(size, n / _ENOUGH))
    blocks = max(2, math.ceil(n / size))
    while any(blocks % k == 0 for k in range(2, math.isqrt(blocks) + 1)):
        blocks += 1
    return blocks


def _made_up(records: int, width: int, binary: bool) -> tuple[FloatArray, BoolArray, FloatArray]:
    """Covariates, treatment and outcome of nobody: to try models on before data is touched."""
    index = np.arange(records)
    rows = np.modf(np.outer(index + 1.0, np.sqrt(np.arange(2.0, width + 2.0))))[0]
    return rows, index // 2 % 2 == 1, (index // 4 % 2).astype(np.float64) if binary else rows[:, 0]


def try_models(run: Callable[..., Any], models: Any, size: tuple[int, int], part: str) -> None:
    """Run once on made-up (records, columns): what fails here would fail in every part."""
    try:
        run(*_made_up(*size, models.outcome.classifies))
    except Exception as error:
        raise OptionError(
            f"{models.outcome} with {models.propensity} fails on {size[0]} made-up records, the "
            f"size of a {part} ({error}); take fewer {part}s or other models"
        ) from error


@reads("answers")
def _answers(rows: Block) -> FloatArray:
    return rows.answers


@dataclass(frozen=True)
class SquaredAnswer:
    """The square of an answer about the middle of its interval; 0 where there is none."""

    middle: float
    reads: ClassVar[tuple[str, ...]] = ("answers",)

    def __call__(self, rows: Block) -> FloatArray:
        """Squares of some blocks."""
        return np.nan_to_num((rows.answers - self.middle) ** 2, nan=0.0)


def mean_answer(
    answers: Curator, label: str, interval: Interval, share: str, size: int = 1
) -> Noisy:
    """Release the mean over blocks of ``size`` answers, clipped to an interval.

    A block in which the learner fails answers with the middle of the interval.
    """
    low, high = (np.full(size, end) for end in interval)
    return _mean(answers.sums(label, _answers, Box(low, high), share=share), answers.n)


def _mean(total: Noisy, blocks: int) -> Noisy:
    return replace(total, value=total.value / blocks, scale=total.scale / blocks)


def shares(level: str, options: SampleAggregateOptions) -> dict[str, float]:
    """Split of the budget."""
    return {"estimate": 0.8, "variance": 0.2}


def uses_delta(options: SampleAggregateOptions, facts: Facts) -> dict[str, float | None]:
    """Each release is one number."""
    return {"estimate": 1.0, "variance": 1.0}


def fit(curator: Curator, options: SampleAggregateOptions, estimand: str) -> Estimate:
    """Release the mean of the blocks' answers and of their squares."""
    lower, upper = curator.outcome_range
    interval = options.effect_range or (lower - upper, upper - lower)
    blocks = options.blocks or 2
    learner = options.in_block(estimand)
    answers = by_block(curator, learner, blocks, 1)
    mean = mean_answer(answers, "mean over blocks", interval, "estimate")
    records = curator.n // blocks
    few = records < _COLUMNS * curator.width * (2 if learner.flexible else 1)
    return Estimate(
        value=float(np.clip(float(mean), *interval)),
        sampling=_variance(answers, mean, interval, blocks),
        laplace=() if mean.gaussian else (mean.scale,),
        gaussian=mean.variance if mean.gaussian else 0.0,
        details={
            "records in a block": f"{records} or {records + 1}" if curator.n % blocks else records,
            "answers clipped to": f"[{interval[0]:.6g}, {interval[1]:.6g}]",
        },
        notes=(_BIAS.format(records=records),),
        caution=_FEW.format(records=records, width=curator.width) if few else "",
    )


_BIAS = (
    "Models are fitted in blocks of {records} records: what they miss at that size is in the "
    "estimate and not in the interval. A block without both arms answers with the middle of the "
    "range."
)
_FEW = "HARDLY ADJUSTED: blocks of {records} records for {width} columns"


def _variance(
    curator: Curator, mean: Noisy, interval: Interval, blocks: int
) -> SamplingVariance | Unavailable:
    """Variance between blocks over their number."""
    if not curator.has("variance"):
        return Unavailable("variance=False was asked for")
    half = (interval[1] - interval[0]) / 2.0
    within = Box(0, half**2)
    square = SquaredAnswer((interval[0] + interval[1]) / 2.0)
    squares = _mean(curator.sums("block squares", square, within, share="variance"), blocks)
    centre = float(np.clip(float(mean) - interval[0] - half, -half, half))
    # the square of a noisy mean is too large by the variance of the noise
    spread = float(squares) - centre**2 + mean.variance
    noise = math.sqrt(squares.variance / 2.0 + (2.0 * centre) ** 2 * mean.variance / 2.0)
    return SamplingVariance(spread / (blocks - 1), noise / (blocks - 1), half**2 / (blocks - 1))


def reference(
    y: FloatArray, treated: BoolArray, rows: FloatArray, *, estimand: str = "ATE", **options: Any
) -> tuple[float, float]:
    """The same estimator on all records at once, its standard error from influence values.

    Propensities are taken as known, as is usual; "regression" has the standard error of "aipw".
    """
    made = SampleAggregateOptions(**options)
    learner = made.in_block(estimand)
    value = float(learner(rows, treated, y)[0])
    if made.estimator == "regression":
        learner = replace(learner, estimator="aipw")
    terms = learner.nuisances(rows, treated, y).terms(estimand, treated, y)
    influence = terms - value * weights_of(estimand, treated)
    return value, float(np.sqrt(np.mean(influence**2) / len(y)))


SPEC = MethodSpec(
    name="sample_aggregate",
    title="sample and aggregate",
    about="any scikit-learn models, fitted in disjoint blocks; the mean of the answers gets noise",
    assumes=f"{NO_CONFOUNDER}; models learnt in one block fit",
    estimands=AVERAGES,
    levels=("sample",),
    options=SampleAggregateOptions,
    shares=shares,
    uses_delta=uses_delta,
    fit=fit,
    reference=reference,
    citation=(
        "Nissim, Raskhodnikova and Smith (2007), Smooth sensitivity and sampling in private data "
        "analysis."
    ),
)
