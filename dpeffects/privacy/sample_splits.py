"""Releases of parts of the records: answers of a learner in blocks, two halves, two public arms;
averages by models of folds.

A model of a fold is fitted to the records of the fold, and gives average effects for the other
records. In the secret order of the records, place i is in fold i mod K. The models of a fold are
any function of the fold; their predictions, one row at a time, are kept within public ranges.
Outcomes and predicted outcomes are measured from the middle of their range, in units of half of it:
they lie in [-1, 1].
"""

from __future__ import annotations

import contextlib
import copy
import math
import random
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from dpeffects.arrays import BoolArray, FloatArray, Interval
from dpeffects.errors import EstimationError, OptionError, PrivacyError
from dpeffects.privacy.budget import Budget, round_down
from dpeffects.privacy.charges import NoisyValue
from dpeffects.privacy.curator import Curator
from dpeffects.privacy.domains import Box, BoxGrid, IntTotals, Sensitivity, bits_for
from dpeffects.privacy.ledger import CallLedger
from dpeffects.privacy.release import Releaser, Split
from dpeffects.privacy.rows import Rows
from dpeffects.privacy.units import TwoArms
from dpeffects.progress import bar

T = TypeVar("T")
Learner = Callable[[FloatArray, BoolArray, FloatArray], npt.ArrayLike]
"""(covariates in [0, 1]^d, treated, outcome) of a block of records -> numbers.

What it keeps in itself is copied for each block. It must keep nothing elsewhere from one call to
the next: in a closure or a default argument, a class or a module, a file (claim 10).
"""


def by_block(curator: Curator, learner: Learner, blocks: int, size: int) -> Curator:
    """Return a curator whose rows are a learner's answers in blocks of records (claim 10).

    In the secret order place i is in block i mod ``blocks``, so that one record moves one row.
    A block in which the learner fails answers with NaN.
    """
    if curator.weighted or not 2 <= blocks <= curator.n or size < 1:
        raise OptionError("blocks must be from 2 to n, of records that are units")
    answers = np.full((blocks, size), np.nan)
    matrix, rows = curator._rows.covariates(), curator._rows
    for block in bar(range(blocks), "blocks"):
        own = slice(block, None, blocks)
        try:
            part = matrix[own].copy(), rows.treated[own].copy(), rows.outcome[own].copy()
            answers[block] = answer(learner, part, size, block)
        except (Exception, SystemExit):
            continue  # nothing may fail because of what is in a block
    none = np.zeros(blocks)
    answered = Rows(none, (0.0, 0.0), none > 0, lambda: none[:, None], 1, answers=answers)
    return Curator(answered, curator._releaser, frozenset())


def answer(
    learner: Learner, rows: tuple[FloatArray, BoolArray, FloatArray], size: int, block: int = 0
) -> FloatArray:
    """Return what a learner says of one block: a function of these rows and of the block's number.

    The learner is copied, and global generators (`fixed_generator`) are set by the block's number,
    so that nothing is carried over from other blocks. Warnings are silenced. Raises whatever the
    learner raises, and `EstimationError` where it does not return ``size`` finite numbers.
    """
    with isolated(block):
        numbers = np.asarray(copy.deepcopy(learner)(*rows), dtype=np.float64)
    if numbers.shape != (size,) or not np.isfinite(numbers).all():
        raise EstimationError(f"a learner must return {size} finite numbers")
    return numbers


def halves(
    curator: Curator,
    first: Mapping[str, float],
    second: Mapping[str, float],
    run: Callable[[Curator], T],
    uses_delta: Mapping[str, float | None],
) -> tuple[T, Curator]:
    """Run releases on even places of the secret order, and return the odd ones (claim 11).

    ``first`` and ``second`` divide the budget of the call's shares named in ``second`` within
    each half. The even rows pay; what the odd rows release is covered by that, with the same
    budget.
    """
    curator._releaser.give_up_pool(second)
    whole = [curator._releaser.share(name) for name in second]
    epsilon = round_down(sum((Fraction(x.epsilon) for x in whole), Fraction()))
    delta = round_down(sum((Fraction(x.delta) for x in whole), Fraction()))
    before = curator._releaser.paid()
    split = Split.of(Budget(epsilon, delta), first, uses_delta)
    result = run(_half(curator, 0, curator._releaser.for_subset(split)))
    paid = [b - a for a, b in zip(before, curator._releaser.paid(), strict=True)]
    covered = Budget(*(round_down(x) * (1.0 - 2.0**-40) for x in paid))
    split = Split.of(covered, second, uses_delta)
    ledger = CallLedger(covered)
    return result, _half(curator, 1, curator._releaser.for_subset(split, ledger))


def _half(curator: Curator, start: int, releaser: Releaser) -> Curator:
    half = replace(curator._rows.reordered(np.arange(start, curator.n, 2)), strata=None)
    return Curator(half, releaser, curator._public)


def among_arms(curator: Curator, arms: tuple[int, int], part: Fraction) -> Curator:
    """Return the records of two of several arms, the first of them treated; arms are public.

    Neighbours have the same of them then. A part of each share pays for what is released.
    """
    curator.require_public("treatment")
    split = curator._releaser.split
    if split.mu:
        raise OptionError("a Gaussian pool is not divided between arms")
    shares = {name: share.times(part) for name, share in split.shares.items()}
    rows = TwoArms.of(curator._source, arms)
    return Curator(rows, curator._releaser.for_subset(Split(shares)), curator._public)


@contextlib.contextmanager
def isolated(part: int) -> Iterator[None]:
    """Fit and predict here: the part's number sets the global generators; nothing warns."""
    with warnings.catch_warnings(), np.errstate(all="ignore"), fixed_generator(part):
        warnings.simplefilter("ignore")
        yield


@contextlib.contextmanager
def fixed_generator(seed: int) -> Iterator[None]:
    """Set the global generators of numpy, Python and torch for a while, then give them back.

    Models without a random_state draw from them. None of the privacy rests on those draws, but what
    one block of records draws must not shift what the next one gets (claim 10). torch's are set
    where it is imported, on all devices.
    """
    numpys, pythons, torch = np.random.get_state(), random.getstate(), sys.modules.get("torch")  # noqa: NPY002
    np.random.seed(seed)  # noqa: NPY002
    random.seed(seed)
    try:
        with torch.random.fork_rng() if torch else contextlib.nullcontext():
            if torch:
                torch.manual_seed(seed)
            yield
    finally:
        np.random.set_state(numpys)  # noqa: NPY002
        random.setstate(pythons)


# --- folds ----------------------------------------------------------------------------------

Predict = Callable[[FloatArray], FloatArray]
"""Rows -> an array (3, rows): propensities, mean outcomes if treated, and if not; row by row."""
FoldLearner = Callable[[FloatArray, BoolArray, FloatArray], Predict]
"""(covariates in [0, 1]^d, treated, outcome) of a fold -> what its models predict.

It must keep nothing outside of itself from one call to the next, like a learner of blocks.
"""

ESTIMATORS = ("aipw", "ipw", "regression")
_MOST_FOLDS = 2**16
_ROUNDING = 1.0 + 1e-9
_SLACK = 2
"""Grid steps: one for rounding to the grid, one for what floats round before it."""


@dataclass(frozen=True)
class EffectTerms:
    """What each record adds to an average effect; ``clip`` is the smallest propensity of an arm.

    Examples
    --------
    >>> EffectTerms("aipw", 0.1).largest, EffectTerms("regression", 0.1).moved(4)
    (20.0, 1.0)
    """

    estimator: str
    clip: float

    @property
    def largest(self) -> float:
        """Largest size of a term."""
        return {"aipw": 2.0 / self.clip, "ipw": 1.0 / self.clip, "regression": 2.0}[self.estimator]

    @property
    def variance(self) -> float:
        """Where variances of terms are clipped: the largest by true models, and effects of 2."""
        weighted = 1.0 / (self.clip * (1.0 - self.clip))
        return {"aipw": 4.0 + weighted, "ipw": weighted, "regression": 4.0}[self.estimator]

    def moved(self, models: int) -> float:
        """How far one of so many models moves a term, where predictions are averaged (claim 25)."""
        most = 1.0 / self.clip
        spread = most - 1.0 / (1.0 - self.clip)
        if self.estimator == "regression":
            return 4.0 / models
        if self.estimator == "ipw":
            return spread / models
        return 2.0 * (most + spread * (1.0 - 1.0 / models)) / models

    def of(self, treated: BoolArray, outcome: FloatArray, nuisances: FloatArray) -> FloatArray:
        """Terms by inverse propensities of both arms, and mean outcomes of both (rows of four)."""
        a, b, one, zero = nuisances
        weight = np.where(treated, a, -b)
        if self.estimator == "ipw":
            return np.asarray(weight * outcome)
        if self.estimator == "regression":
            return np.asarray(one - zero)
        return np.asarray(one - zero + weight * (outcome - np.where(treated, one, zero)))


@dataclass(frozen=True)
class _Moves:
    """Numbers within an interval. One record changes one of them, and ``others`` by ``moved``.

    Where ``present`` is given, numbers that are not present are left out, and one record changes
    the presence of that one number alone.
    """

    values: FloatArray
    interval: Interval
    others: int
    moved: float
    present: BoolArray | None = None


class Folds:
    """Releases of averages by models of folds of a curator's records."""

    def __init__(
        self, curator: Curator, learner: FoldLearner, terms: EffectTerms, folds: int
    ) -> None:
        if not 2 <= folds <= min(curator.n, _MOST_FOLDS):
            raise OptionError(f"folds must be from 2 to n, and at most {_MOST_FOLDS}")
        self._curator, self._learner, self._terms, self._folds = curator, learner, terms, folds
        self.n, self._rows, self._range = curator.n, curator._rows, curator.outcome_range
        self._second: _Moves | None = None

    def mean_by_predictions(self, label: str, share: str) -> NoisyValue:
        """Release the mean of the records' terms, by averages of predictions (claim 25).

        Inverse propensities and mean outcomes of a record are averages over the models of the
        other folds.
        """
        terms, folds, half = self._terms, self._folds, _half_width(self._range)
        total = np.zeros((4, self.n))
        for own, nuisances, _ in self._nuisances():
            nuisances[:, own] = 0.0  # no record is predicted by models that saw it
            total += nuisances
        values = terms.of(*self._units(), total / (folds - 1))
        most, moved = terms.largest, terms.moved(folds - 1)
        others = self.n - self.n // folds
        top = most**2 / self.n
        self._second = _Moves(values**2 / self.n, (0.0, top), others, 2.0 * top * moved / most)
        return self._mean_of(label, _Moves(values, (-most, most), others, moved), half, share)

    def mean_of_estimates(self, label: str, interval: Interval, share: str) -> NoisyValue:
        """Release the mean of K estimates, each clipped to an interval (claim 25).

        The models of a fold give an estimate: the mean of the terms of all records outside of it.
        A fold whose models could not be fitted gives none. Two numbers are released: the sum of
        the distances of the estimates from the middle of the interval over K, and the share of
        folds with an estimate times half the length of the interval, which costs nothing more.
        """
        terms, folds, half = self._terms, self._folds, _half_width(self._range)
        low, high = interval[0] / half, interval[1] / half
        if not low < high:
            raise OptionError("the interval must not be empty")
        middle, reach, most = (low + high) / 2.0, (high - low) / 2.0, terms.largest
        far = most + abs(middle)
        means, squares, present = self._by_fold(middle, far)
        means = np.clip(means, low, high)
        fewest = self.n - math.ceil(self.n / folds)
        moved = 2.0 * most / fewest
        cap = terms.variance
        # residuals show the error of outcome models; without them, only other folds do
        parts = 1.0 / self.n, 1.0 / (folds - 1) if terms.estimator == "regression" else 0.0
        self._second = _Moves(
            present * (parts[0] * np.minimum(squares, cap) + parts[1] * (means - middle) ** 2),
            (0.0, parts[0] * cap + parts[1] * reach**2),
            folds - 1,
            parts[0] * min(cap, far**2 / fewest) + parts[1] * 2.0 * reach * moved,
        )
        moves = _Moves(means, (low, high), folds - 1, moved, present)
        return self._mean_of(label, moves, half, share)

    def squares(self, label: str, share: str) -> tuple[NoisyValue, float]:
        """Release second moments that belong to the last release, and say how large they can be.

        They are squares of terms over n; after `mean_of_estimates` by regression also squares of
        estimates over K - 1 (claim 25). Folds without an estimate add 0 to their mean.
        """
        if self._second is None:
            raise PrivacyError("there are no estimates yet; nothing drawn")
        factor = _half_width(self._range) ** 2
        noisy = self._mean_of(label, self._second, factor, share)
        return noisy, factor * self._second.interval[1]

    def _mean_of(self, label: str, what: _Moves, factor: float, share: str) -> NoisyValue:
        """Release a mean, times a public factor (claim 25)."""
        low, high = what.interval
        worst = 1.0 + what.others * min(1.0, what.moved / (high - low))
        bits = bits_for(len(what.values), self._curator.epsilon(share), worst)
        grid = Box(low, high).with_bits(bits)
        span = grid.reach.same.l1
        step = min(span, math.ceil(what.moved * grid.steps * _ROUNDING) + _SLACK)
        most, count = span + what.others * step, len(what.values)
        whole, moves = grid.whole(what.values), Sensitivity.of_number(most)
        if what.present is None:
            total, offset = whole.sum(keepdims=True), factor * float(grid.box.centre[0])
        else:  # an absent number moves by half a span, and its presence by the other half
            there = int(np.count_nonzero(what.present)) * (span // 2)
            total, offset = np.array([whole[what.present].sum(), there], np.int64), 0.0
        steps = IntTotals(total, moves, factor * grid.unit / count)
        noisy = self._curator._releaser.release(label, steps, share=share, claim=25)
        return replace(noisy, value=noisy.value + offset)

    def _by_fold(self, middle: float, far: float) -> tuple[FloatArray, FloatArray, BoolArray]:
        """Means of terms, and of their squares about the middle, over the records of other folds.

        Sums are those of integers, so that one record moves them by no more than its own term.
        Last, which folds have models.
        """
        terms = self._terms
        first = Box(-terms.largest, terms.largest).on(self.n, 1.0)
        second = Box(0.0, far**2).on(self.n, 1.0)
        means, present = [], []
        for own, nuisances, fitted in self._nuisances():
            values = terms.of(*self._units(), nuisances)
            parts = (first, values), (second, (values - middle) ** 2)
            means.append([_mean_outside(grid, part, own) for grid, part in parts])
            present.append(fitted)
        one, two = np.array(means).T
        return one, two, np.array(present, dtype=np.bool_)

    def _nuisances(self) -> Iterator[tuple[slice, FloatArray, bool]]:
        """For each fold its records, what its models say of all records, and if there are any.

        Whether models can be fitted depends on the fold alone; what they say, on each record too.
        """
        x, treated, outcome = self._rows.covariates(), self._rows.treated, self._rows.outcome
        range_, clip = self._range, self._terms.clip
        for fold in bar(range(self._folds), "folds"):
            own = slice(fold, None, self._folds)
            rows = x[own].copy(), treated[own].copy(), outcome[own].copy()
            found = predictions(self._learner, rows, x, fold)
            e, one, zero = np.full((3, self.n), np.nan) if found is None else found
            e = np.clip(_or(e, 0.5), clip, 1.0 - clip)
            said = [1.0 / e, 1.0 / (1.0 - e), _unit(one, range_), _unit(zero, range_)]
            yield own, np.stack(said), found is not None

    def _units(self) -> tuple[BoolArray, FloatArray]:
        return self._rows.treated, _unit(self._rows.outcome, self._range)


def predictions(
    learner: FoldLearner, rows: tuple[FloatArray, BoolArray, FloatArray], x: FloatArray, fold: int
) -> FloatArray | None:
    """Return what the models of a fold predict for all rows of x; None if they cannot be fitted.

    Nothing is carried over from other folds. NaN marks what could not be predicted.
    """
    with isolated(fold):
        try:
            predict = copy.deepcopy(learner)(*rows)
        except (Exception, SystemExit):  # nothing may fail because of what is in a fold
            return None
        return _predicted(predict, x)


def _predicted(predict: Predict, x: FloatArray) -> FloatArray:
    """Predict all rows at once, or where that fails row by row: no row may spoil another's."""
    try:
        return _three(predict(x.copy()), len(x))
    except (Exception, SystemExit):
        found = np.full((3, len(x)), np.nan)
        for i in range(len(x)):
            with contextlib.suppress(Exception, SystemExit):
                found[:, i : i + 1] = _three(predict(x[i : i + 1].copy()), 1)
        return found


def _three(found: object, n: int) -> FloatArray:
    array = np.asarray(found, dtype=np.float64)
    if array.shape != (3, n):
        raise EstimationError("models must predict three numbers for each row")
    return array


def _mean_outside(grid: BoxGrid, values: FloatArray, own: slice) -> float:
    """Mean of the values of other folds; sums are exact."""
    steps = grid.whole(values)
    total = int(steps.sum()) - int(steps[own].sum())
    return total / (len(values) - len(values[own])) * grid.unit + float(grid.box.centre[0])


def _half_width(interval: Interval) -> float:
    return (interval[1] - interval[0]) / 2.0


def _unit(outcome: FloatArray, interval: Interval) -> FloatArray:
    """Outcomes within [-1, 1]; the middle where there is none."""
    half = _half_width(interval)
    return np.clip(_or((outcome - interval[0] - half) / half, 0.0), -1.0, 1.0)


def _or(values: FloatArray, default: float) -> FloatArray:
    return np.where(np.isnan(values), default, values)
