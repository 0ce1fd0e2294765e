"""Releases of parts of the records: answers of a learner in blocks, two halves, two public arms."""

from __future__ import annotations

import copy
import random
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from fractions import Fraction
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from dpeffects.arrays import BoolArray, FloatArray
from dpeffects.errors import EstimationError, OptionError
from dpeffects.privacy.budget import Budget, round_down
from dpeffects.privacy.curator import Curator
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
    learner: Learner,
    rows: tuple[FloatArray, BoolArray, FloatArray],
    size: int,
    block: int = 0,
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


@contextmanager
def isolated(part: int) -> Iterator[None]:
    """Fit and predict here: the part's number sets the global generators; nothing warns."""
    with warnings.catch_warnings(), np.errstate(all="ignore"), fixed_generator(part):
        warnings.simplefilter("ignore")
        yield


@contextmanager
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
        with torch.random.fork_rng() if torch else nullcontext():
            if torch:
                torch.manual_seed(seed)
            yield
    finally:
        np.random.set_state(numpys)  # noqa: NPY002
        random.setstate(pythons)
