"""Sample and aggregate: any scikit-learn models, an exact guarantee.

The number of treated records is released first. The n records are put into a secret order and dealt
to K blocks in turn. The whole estimator is fitted in each block that has both arms, its answer is
clipped to a declared range of effects of length R, and one release has the number of these blocks,
the sum of their answers and that of the squares. One record changes one answer, or makes a block
one that has none, so it moves the sum by at most R, whatever the models are; number and squares
come without further noise (claims 7 and 10). The estimate is sum over number.

The noise falls with the number of blocks, so blocks should be small; the models must still work in
them. Bias that is left in a block is left in the mean, and no interval shows it. ``blocks=None``
takes blocks in which the smaller arm, by its released number less a standard deviation of the
noise, has on average sqrt(d n epsilon / 320) records with d columns, twice as many for models other
than the built-in ridge models; at least 5, at least 40 blocks where that allows it, and then the
next prime, so that no pattern in the order of the records (pairs, say) is one in a block. K is so a
function of public and released numbers. The number 320 was chosen by measured bias and variance of
the ridge models in blocks of 10 to 100 records (three simulations, 5 and 11 columns) and the
variance of the noise.

With fewer than 5 records of an arm in an average block, or fewer than there are columns (twice as
many for other models), the first lines of the summary say so. Where even with half of the records
treated the noise alone would be as wide as the range of effects, the call is refused before
anything is charged.

The sampling variance is the variance between blocks over their number. Blocks in which the models
fail count as blocks without both arms. A narrow ``effect_range`` divides the noise, and makes
larger blocks worth having.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpeffects.arrays import BoolArray, FloatArray, Interval
from dpeffects.errors import OptionError
from dpeffects.estimands import AVERAGES
from dpeffects.estimators.arm_sums import treated_count
from dpeffects.estimators.option_checks import check_clip, checked, choice, flag, is_number, whole
from dpeffects.estimators.row_functions import row
from dpeffects.estimators.spec import NO_CONFOUNDER, MethodSpec, Options, PublicInfo
from dpeffects.inference.estimate import Estimate, SamplingVariance
from dpeffects.privacy import Block, Box, BoxWithSquares, Curator, GroupIndex, NoisyValue, reads
from dpeffects.privacy.sample_splits import answer, by_block
from dpeffects.replication.block_learner import ESTIMATOR_NAMES, BlockLearner, models_of, weights_of
from dpeffects.replication.unproved.sklearn_models import wrap_models

_LEAST_RECORDS = 4
_FEW, _ENOUGH = 5, 40
"""Fewer records of an arm in a block are too few; _ENOUGH blocks tell a standard error."""
_COUNTED = 0.375
"""Weight of a block in its own count: with it (claim 7), sum and squares need no more noise."""
_HOPELESS = 1.0
"""Noise sd, in lengths of the range of effects, from which nothing can come out."""


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
    blocks: int | None = whole(None, 2)
    effect_range: tuple[float, float] | None = None
    estimator: str = choice(*ESTIMATOR_NAMES)
    clip: float = checked(0.05, check_clip)
    crossfit: bool | None = flag(None)

    def needs_memory(self) -> str:
        """Learners get their rows as arrays."""
        return "learners need the rows of their blocks as arrays"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.effect_range is not None:
            object.__setattr__(self, "effect_range", effect_interval(self.effect_range))
        wrap_models(self)
        for name in _UNUSED.get(self.estimator, ()):
            if getattr(self, name) is not None:
                raise OptionError(f'{name} has no meaning with estimator="{self.estimator}"')

    def check(self, n: int, smallest_arm: int | None, arms: int = 2) -> None:
        """Refuse blocks that are too many for the records."""
        check_parts("sample_aggregate", "block", self.blocks, n)

    def resolve(self, facts: PublicInfo) -> SampleAggregateOptions:
        """Try the models on made-up records; refuse where noise would hide every effect."""
        learner = self.in_block("ATE")
        most = self.blocks or default_blocks(
            facts.n, facts.width, facts.budget.epsilon, learner.flexible
        )
        refuse_noise(facts, most, "blocks")
        size = facts.n // most, facts.width
        try_models(lambda *rows: answer(learner, rows, 1), learner, size, "block")
        chosen: dict[str, Any] = {
            "outcome": learner.outcome,
            "propensity": learner.propensity,
            "crossfit": learner.crossfit,
            **dict.fromkeys(_UNUSED.get(self.estimator, ())),
        }
        return replace(self, **chosen)

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


def default_blocks(
    n: int, d: int, epsilon: float, flexible: bool, smaller: float | None = None
) -> int:
    """Number of blocks for n records with d columns; the module's docstring has the rule.

    ``smaller`` is how many records the smaller arm has, by default half of them.

    Examples
    --------
    >>> default_blocks(5000, 11, 1.0, False), default_blocks(5000, 11, 1.0, False, smaller=500)
    (191, 41)
    """
    arm = math.sqrt(d * n * epsilon / 80.0) * (1.0 if flexible else 0.5)
    smaller = n / 2.0 if smaller is None else smaller
    arm = max(_FEW, min(arm, smaller / _ENOUGH))
    blocks = max(2, math.floor(smaller / arm))
    while any(blocks % k == 0 for k in range(2, math.isqrt(blocks) + 1)):
        blocks += 1
    return blocks


def check_parts(method: str, part: str, asked: int | None, n: int) -> None:
    """Refuse parts that are too many for the records."""
    most = n // _LEAST_RECORDS
    if most < 2:
        raise OptionError(f"{method} needs at least {2 * _LEAST_RECORDS} records")
    if asked is not None and asked > most:
        raise OptionError(
            f"{part}s = {asked} for {n} records: a {part} needs {_LEAST_RECORDS} records, "
            f"so at most {most} {part}s"
        )


def refuse_noise(facts: PublicInfo, parts: int, name: str) -> None:
    """Refuse, before the charge, what is nothing but noise even where half are treated."""
    noise = math.sqrt(2.0) / (parts * facts.budget.epsilon)
    if facts.budget.delta == 0.0 and noise > _HOPELESS:
        raise OptionError(
            f"with {parts} {name} of {facts.n} records and epsilon = {facts.budget.epsilon:g}, the "
            f"noise alone has a standard deviation of {noise:.2g} times the range of effects: "
            "nothing can come out, and nothing was charged. Take more records, a larger epsilon, a "
            'delta, or method="auto"'
        )


def released_arms(curator: Curator, share: str) -> tuple[float, float]:
    """Release the number of treated records; return it, and the smaller arm to reckon with.

    That is the smaller of the released arms less a standard deviation of the noise.
    """
    count = treated_count(curator, share)
    treated = min(max(float(count), 1.0), curator.n - 1.0)
    smaller = min(treated, curator.n - treated)
    return treated, min(max(smaller - count.sd, 1.0), curator.n / 2.0)


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
def without_answer(rows: Block) -> BoolArray:
    """0 for blocks with an answer and 1 for the others."""
    return np.asarray(np.isnan(rows.answers).any(axis=1))


ANSWERED = GroupIndex(without_answer, 1)
"""Blocks with an answer; the others are dropped."""


@row("answers")
def scaled_answer(rows: Block, interval: Interval) -> FloatArray:
    """Answers scaled from an interval to [-1/2, 1/2]."""
    low, high = interval
    return np.clip((rows.answers - low) / (high - low), 0.0, 1.0) - 0.5


@dataclass(frozen=True)
class MeanAnswer:
    """Mean and variance of the blocks' answers within an interval, by noisy sums.

    ``blocks`` is the noisy number of blocks with an answer; the other fields are released means of
    scaled answers (`scaled_answer`) and of their squares, and the noise of each sum.
    """

    interval: Interval
    blocks: float
    first: float
    second: float
    noise: NoisyValue

    @classmethod
    def released(cls, answers: Curator, label: str, interval: Interval, share: str) -> MeanAnswer:
        """Release number, sum and sum of squares at once (claims 7 and 10)."""
        scaled, within = scaled_answer(interval), BoxWithSquares(1, _COUNTED)
        noisy = answers.sums(label, scaled, within, ANSWERED, share=share)
        count, first, second = noisy.value[0]
        blocks = min(max(count / _COUNTED, 2.0), float(answers.n))
        centre = min(max(first / blocks, -0.5), 0.5)
        return cls(interval, blocks, centre, second / blocks + 0.125, noisy)

    @property
    def width(self) -> float:
        """Length of the interval."""
        return self.interval[1] - self.interval[0]

    @property
    def value(self) -> float:
        """The mean answer."""
        return self.interval[0] + self.width * (self.first + 0.5)

    @property
    def scales(self) -> tuple[float, float]:
        """Scale of the noise in the mean: of the sum, and by way of the number of blocks."""
        unit = self.width * self.noise.scale / self.blocks
        return unit, unit * abs(self.first) / _COUNTED

    @property
    def sampling(self) -> SamplingVariance:
        """Variance between blocks over their number."""
        sd = self.noise.sd / self.blocks
        # the square of a noisy mean is too large by the variance of its noise
        spread = self.second - self.first**2 + sd**2
        by_count = (0.125 - max(spread, 0.0) + self.first**2) / _COUNTED
        scale = sd * math.sqrt((1.0 + (2.0 * self.first) ** 2 + by_count**2) / 2.0)
        unit = self.width**2 / (self.blocks - 1.0)
        return SamplingVariance(unit * spread, unit * scale, unit / 4.0)


def mean_answer(
    answers: Curator, label: str, interval: Interval, share: str, size: int
) -> tuple[NoisyValue, float]:
    """Release the mean of ``size`` answers over blocks that have some; say how many have.

    Each is within the interval. With the weight that the number of blocks has here it needs no
    noise of its own: a block without answers moves less than one whose answers are others.
    """
    half = (interval[1] - interval[0]) / 2.0
    weight = half * min(float(size), math.sqrt(3.0 * size))
    low, high = (np.append(np.full(size, sign * half), weight) for sign in (-1.0, 1.0))
    middle, within = (interval[0] + interval[1]) / 2.0, Box(low, high, centre=np.zeros(size + 1))
    centred = centred_answers(size, middle, weight)
    total = answers.sums(label, centred, within, ANSWERED, share=share)
    blocks = min(max(total.value[0, -1] / weight, 1.0), float(answers.n))
    means = np.clip(total.value[0, :-1] / blocks, -half, half)
    return replace(total, value=middle + means, scale=total.scale / blocks), blocks


@row("answers")
def centred_answers(rows: Block, size: int, middle: float, constant: float) -> FloatArray:
    """So many answers about the middle of their interval, and a constant."""
    answers = rows.answers[:, :size]
    return np.column_stack([answers - middle, np.full(len(answers), constant)])


def budget_split(level: str, options: SampleAggregateOptions) -> dict[str, float]:
    """Split of the budget."""
    return {"count": 0.1, "estimate": 0.9}


def uses_delta(options: SampleAggregateOptions, facts: PublicInfo) -> dict[str, float | None]:
    """A record moves each release like one number."""
    return {"count": 1.0, "estimate": 1.0}


def fit(curator: Curator, options: SampleAggregateOptions, estimand: str) -> Estimate:
    """Release the treated count, then number, sum and squares of the blocks' answers."""
    lower, upper = curator.outcome_range
    possible = lower - upper, upper - lower
    interval = options.effect_range or possible
    learner = options.in_block(estimand)
    treated, smaller = released_arms(curator, "count")
    blocks = options.blocks or default_blocks(
        curator.n, curator.width, curator.epsilon("estimate"), learner.flexible, smaller
    )
    answers = by_block(curator, learner, blocks, 1)
    mean = MeanAnswer.released(answers, "answers of blocks", interval, "estimate")
    gaussian = mean.noise.gaussian
    return Estimate(
        value=mean.value,
        sampling=mean.sampling,
        laplace=() if gaussian else mean.scales,
        gaussian=sum(x**2 for x in mean.scales) if gaussian else 0.0,
        possible=possible,
        details={
            "treated, control records (noisy)": f"{treated:.0f}, {curator.n - treated:.0f}",
            **size_details(curator.n, blocks, "block"),
            "blocks with both arms (noisy)": f"{mean.blocks:.0f}",
            "answers clipped to": f"[{interval[0]:.6g}, {interval[1]:.6g}]",
        },
        notes=(_BIAS.format(records=curator.n // blocks),),
        warnings=small_parts(curator, learner.flexible, treated, blocks, "block"),
    )


def size_details(n: int, parts: int, name: str) -> dict[str, Any]:
    """How many parts there are, and of how many records."""
    records = n // parts
    return {
        f"{name}s": parts,
        f"records in a {name}": f"{records} or {records + 1}" if n % parts else records,
    }


def small_parts(curator: Curator, flexible: bool, treated: float, parts: int, name: str) -> str:
    """A warning: too few records of an arm in a block, or fewer than columns."""
    arms = {"treated": treated / parts, "control": (curator.n - treated) / parts}
    arm, least = min(arms.items(), key=lambda pair: pair[1])
    columns = curator.width * (2 if flexible else 1)
    if least < _FEW:
        return f"Too few {arm} records: about {least:.1f} in a {name}"
    if least < columns:
        return (
            f"Weak adjustment: about {least:.1f} {arm} records in a {name} for {curator.width} "
            "columns"
        )
    return ""


_BIAS = (
    "Models are fitted in blocks of {records} records: what they miss at that size is in the "
    "estimate and not in the interval. Blocks without both arms are left out."
)


def on_all(
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
    about="any scikit-learn models, fitted in disjoint blocks; noise is added to the mean estimate",
    assumes=f"{NO_CONFOUNDER}; models of one block are correctly specified",
    estimands=AVERAGES,
    levels=("sample",),
    options=SampleAggregateOptions,
    budget_split=budget_split,
    uses_delta=uses_delta,
    fit=fit,
    variance_shares=(),
    citation=(
        "Nissim, Raskhodnikova and Smith (2007), Smooth sensitivity and sampling in private data "
        "analysis."
    ),
)
