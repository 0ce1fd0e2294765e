"""How long residuals are: a posterior over a family of tails, by the distribution of released
counts.

Counts of residuals by arm, sign and length are released with noise of known distribution. A family
of tails (normal, Laplace and Student's, of any scale, with or without some records further out)
says what to expect of them; how well each member fits gives its weight, on each side of each arm
for itself. A clip, what it takes off the mean of each arm, the variance of the residuals and how
many are beyond a clip are averages with these weights. An effect that only few records have makes
long residuals on one side of one arm: what a clip takes off them does not cancel.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import product
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.special import erfcx, ndtr, stdtr

from dpeffects.arrays import FloatArray, Int8Array, IntArray
from dpeffects.estimators import constants as hand
from dpeffects.estimators.arm_sums import ArmLookup
from dpeffects.estimators.default.arm_summaries import ArmStats
from dpeffects.estimators.row_functions import row
from dpeffects.privacy.charges import NoisyValue
from dpeffects.privacy.curator import SumQuery
from dpeffects.privacy.domains import COUNT
from dpeffects.privacy.rows import Block, GroupIndex, RowFunction


def limits(longest: float) -> FloatArray:
    """Lengths that are told apart, each shorter by the root of 2 than the one before."""
    return np.asarray(longest * 2.0 ** (-np.arange(hand.LEVELS) / 2.0))


def shorter(values: FloatArray, limits: FloatArray) -> Int8Array:
    """How many of the limits are longer than values are from 0: faster than a search."""
    lengths = np.abs(values)
    found = np.zeros_like(lengths, np.int8)  # small and in the same order, so fast
    for limit in limits:
        found += (lengths < limit).view(np.int8)
    return found


@dataclass(frozen=True, eq=False)
class TailFamily:
    """Each of some tails with each way to lie further out: parts ``few`` of the records do.

    ``tails`` and their mean ``excess`` are given at ``lengths`` in units of the longest, once for
    the records' own and once for those further out; members are mixtures of the two. The last are
    those of records in the middle of each class of lengths.
    ``classes`` are chances of the lengths that are told apart, ``prior`` logarithms of weights,
    ``widths`` how much more is in excess where records are at the far end of their class.
    """

    lengths: FloatArray
    few: FloatArray
    tails: tuple[FloatArray, ...]
    excess: tuple[FloatArray, ...]
    classes: FloatArray
    prior: FloatArray
    widths: FloatArray

    @classmethod
    @cache
    def of_all(cls) -> TailFamily:
        """Scales, shapes and outliers, each with each; it depends on constants alone."""
        x, scales = np.linspace(0.0, 1.0, 401) ** 3, 2.0 ** np.linspace(-7.5, -0.3, 37)
        z = x / scales[:, None]
        shapes = np.stack(
            [2.0 * ndtr(-z), np.exp(-math.sqrt(2.0) * z)]
            + [2.0 * stdtr(df, -unit * z) for df, unit in ((3, math.sqrt(3.0)), (2, 1.3))]
        )
        last = shapes[..., -1:]  # nothing is longer than the longest
        own = ((shapes - last) / (1.0 - last)).reshape(-1, x.size)
        usual = -0.5 * (np.log(scales * hand.LONGEST / hand.TYPICAL_SD) / hand.LOG_SPREAD) ** 2
        ways = [((0.0, 1.0), 0.0), *product(*hand.FAR_OUT)]  # the first is that none are
        near, far, few = np.array([(*ends, part) for ends, part in ways]).T
        tails = own, np.clip((far[:, None] - x) / (far - near)[:, None], 0.0, 1.0)
        some = np.repeat([1.0 - hand.SOME_FAR, hand.SOME_FAR / (few.size - 1)], [1, few.size - 1])
        prior = np.add.outer(np.log(some), np.tile(usual, len(shapes))).ravel()
        areas = (np.diff(x) * 0.5 * (tail[:, 1:] + tail[:, :-1]) for tail in tails)
        one, other = (np.pad(y[:, ::-1].cumsum(axis=1)[:, ::-1], ((0, 0), (0, 1))) for y in areas)
        at, far_at = (np.stack([np.interp(limits(1.0), x, y) for y in each]) for each in tails)
        longer = (at + few[:, None, None] * (far_at[:, None] - at)).reshape(prior.size, -1)
        longer = np.pad(longer, ((0, 0), (1, 1)), constant_values=((0, 0), (0.0, 1.0)))
        classes: Any = np.diff(longer, axis=1).astype(np.float32)  # twice as fast
        middle: Any = np.append(np.minimum(limits(2.0**0.25), 1.0), 0.0)[:, None]
        single = 1.0 * (middle > x), np.maximum(middle - x, 0.0)
        ends = np.concatenate([[1.0], limits(1.0), [0.0]])
        widths = -np.diff(np.maximum(ends[:, None] - x, 0.0), axis=0)
        return cls(x, few, (*tails, single[0]), (one, other, single[1]), classes, prior, widths)

    def of_terms(
        self, off: float, clip: float, relative: FloatArray, part: FloatArray
    ) -> TailFamily:
        """The family of residuals, which may be ``off`` and are clipped, times a weight.

        A ``part`` of the records has each weight. Tails are parts of all weight.
        """
        x, mass = self.lengths, part * relative

        def weighted(off: float) -> FloatArray:
            kept = np.minimum(x / relative[:, None], clip)
            at = np.searchsorted(x, np.clip(kept - off, 0.0, 1.0))
            moved = np.zeros((x.size, x.size))
            np.add.at(moved, (at, np.arange(x.size)), mass[:, None])
            return moved

        tail, excess = weighted(off) / mass.sum(), weighted(0.0)
        return replace(
            self,
            tails=tuple(x @ tail for x in self.tails),
            excess=tuple(x @ excess for x in self.excess),
            widths=self.widths @ excess,
        )

    def moments(
        self, read: FloatArray, own: FloatArray, further: FloatArray, middle: FloatArray
    ) -> FloatArray:
        """Mean of what is linear in tails, and its variance over all members.

        What is ``read`` are weights of members, and the part of the records in each class that no
        member explains, with its variance.
        """
        ends = self.prior.size, self.prior.size + len(middle)
        weights, odd, odd_variance = np.split(read, ends, axis=-1)
        few, each = self.few, weights.reshape(*weights.shape[:-1], self.few.size, -1)
        all_own, both = each.sum(axis=-1), np.swapaxes((few * (1.0 - few))[:, None] * each, -1, -2)
        mean = (1.0 - few) @ each @ own + few * all_own @ further
        square = (1.0 - few) ** 2 @ each @ own**2 + few**2 * all_own @ further**2
        variance = square + 2.0 * (both @ further * own).sum(axis=-2) - mean**2
        variance = np.maximum(variance, 0.0) + odd_variance @ middle**2
        return np.stack([np.maximum(mean + odd @ middle, 0.0), variance])

    def log_fits(self, sizes: FloatArray, unsure: FloatArray, counts: NoisyValue) -> FloatArray:
        """How well members fit counts of residuals by length, as logarithms.

        There are counts for each of some ``sizes``, which are ``unsure`` by a part of them.
        """
        seen = (sizes, hand.MISFIT**2 + unsure**2, counts.value)
        size, off, value = (np.asarray(x, self.classes.dtype) for x in seen)
        expected = size[..., None, None] * self.classes
        chance = expected * (1.0 - self.classes) + off[..., None, None] * expected**2 + 1e-6
        return log_density(value[..., None, :] - expected, chance, counts).sum(axis=-1)


def log_density(off: FloatArray, variance: FloatArray, counts: NoisyValue) -> FloatArray:
    """Logarithm of the density of a released count's error: normal chance plus its own noise."""
    if counts.gaussian:
        total = variance + counts.variance
        return np.asarray(-0.5 * (off**2 / total + np.log(2.0 * math.pi * total)))
    sd = np.sqrt(variance)
    scale = np.maximum(counts.scale, 1e-4 * sd)
    off, ratio = np.abs(off), sd / scale
    out = 0.5 * ratio**2 - off / scale - np.log(2.0 * scale)
    z = off / sd
    near = z < ratio + 9.0  # further out, floats do not see the normal part
    z, ratio = z[near], ratio[near]
    sides = sum(erfcx((ratio + sign * z) / math.sqrt(2.0)) for sign in (1.0, -1.0))
    out[near] = np.log(sides) - 0.5 * z**2 - np.log(4.0 * scale[near])
    return np.asarray(out)


class ClippedMeans(NamedTuple):
    """A clip of residuals; the rest by arm: what it takes off the mean, what is not known of that
    as a standard deviation, and the part of the records that are longer.
    """

    length: float
    lost: FloatArray
    unknown: FloatArray
    beyond: FloatArray


def uncut(centres: ArmStats, times: float = 1.0) -> ClippedMeans:
    """The longest residual there is, or some ``times`` that: nothing is cut."""
    return ClippedMeans(times * centres.longest, *np.zeros((3, len(centres.shares))))


@dataclass(frozen=True, eq=False)
class ResidualLengths:
    """Residuals up to ``longest``: how likely each member of the family of tails is.

    What is ``found`` are, by arm and side, the weights of members and what none explains, what is
    ``seen`` parts of the records in each class: residuals above and below 0 have tails of their
    own, and a ``part`` of the records of their arm. A unit of
    what is cut off an arm moves its mean by ``reach``. ``families`` are those of the arms,
    ``shares`` their parts of all records.
    """

    longest: float
    shares: FloatArray
    found: FloatArray
    seen: FloatArray
    parts: FloatArray
    families: tuple[TailFamily, ...]
    reach: FloatArray

    def of_terms(
        self, off: float, clip: float, largest: FloatArray, *weights: FloatArray
    ) -> ResidualLengths:
        """Lengths of clipped residuals times weights, over the ``largest`` of their arm.

        ``weights`` and their chances are by arm.
        """
        off, clip, arms = off / self.longest, clip / self.longest, range(len(largest))
        terms = (self.families[k].of_terms(off, clip, *(x[k] for x in weights)) for k in arms)
        return replace(self, families=tuple(terms), reach=largest)

    @classmethod
    def read(
        cls,
        sizes: FloatArray,
        longest: float,
        counts: NoisyValue,
        before: Self | None = None,
        unseen: float = 0.0,
    ) -> Self:
        """The posterior, given noisy counts by arm, side and length, from long to short.

        Arms have about so many records. What the counts of all arms and sides say together is half
        of what each is taken for before its own are seen. Other residuals of the same outcome may
        have been read ``before``: records that were far out then are far out still. A part of the
        variance of the noise stands for what is ``unseen``: tails may have it all the same.
        """
        family, arms = TailFamily.of_all(), len(sizes)
        own = replace(counts, value=counts.value.reshape(arms, 2, -1))
        sides, noise = own.value.sum(axis=2), 2.0 * own.value.shape[-1] * counts.variance
        prior = (hand.ROUGH * sizes) ** 2
        more = (sides[:, 0] - sides[:, 1]) * prior / (prior + noise)
        parts = 0.5 + np.multiply.outer(np.clip(more / sizes, -0.9, 0.9), [0.5, -0.5])
        unsure = np.sqrt(prior * noise / (prior + noise)) / sizes
        total = NoisyValue(own.value.sum(axis=(0, 1)), counts.sd * (2.0 * arms) ** 0.5, None, True)
        usual = _posterior(family.prior, family.log_fits(sizes.sum(), np.zeros(()), total))
        usual = np.log(hand.SHARED * usual + (1.0 - hand.SHARED) * _posterior(family.prior))
        if before is not None:
            usual = usual + before.far_out
        about, unsure = sizes[:, None] * parts, 0.5 * unsure[:, None] / parts
        weights = _posterior(usual, family.log_fits(about, unsure, own))
        seen, unit = weights @ family.classes, 1.0 / about[..., None]
        odd, variance = unit * own.value - seen, unit**2 * counts.variance
        # what is far more than noise is seen, whatever the family says
        kept = np.maximum(1.0 - hand.LONG_SDS**2 * variance / np.maximum(odd**2, 1e-30), 0.0)
        odd, shares = np.maximum(kept * odd, -seen), sizes / sizes.sum()
        odd_variance = np.maximum(kept, unseen) * variance
        found = np.concatenate([weights, odd, odd_variance], axis=-1)
        return cls(longest, shares, found, seen + odd, parts, (family,) * arms, np.ones(arms))

    @property
    def far_out(self) -> FloatArray:
        """How much likelier each way to lie far out is than before it was seen, as logarithms."""
        prior, few = TailFamily.of_all().prior, TailFamily.of_all().few.size
        each = self.found[..., : prior.size], _posterior(prior)
        now, then = (x.reshape(*x.shape[:-1], few, -1).sum(axis=-1) for x in each)
        return np.repeat(np.log(np.maximum(now, 1e-300) / then), prior.size // few, axis=-1)

    @cached_property
    def _cut(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """What each clip does by arm: whom it reaches, and what it takes off the mean.

        The variance of that is one by the roughness of tails alone, and one by all that is unknown.
        """
        sides = self.parts[..., None] * self.longest * self.reach[:, None, None]
        each = list(zip(self.families, self.found, strict=True))
        tails = np.stack([family.moments(x, *family.tails)[0] for family, x in each])
        excess, unknown = np.stack(
            [family.moments(x, *family.excess) for family, x in each], axis=1
        )
        within = np.stack([x @ y.widths for x, y in zip(self.seen, self.families, strict=True)])
        rough = (hand.ROUGH * excess) ** 2
        each_variance = np.stack([rough, rough + unknown + hand.EVENLY * within**2])
        variance = (sides**2 * each_variance).sum(axis=2)
        lost = -np.diff(sides * excess, axis=1)[:, 0]
        return (self.parts[..., None] * tails).sum(axis=1), lost, variance

    def clip(
        self,
        noise_per_length: float,
        centres: ArmStats | None = None,
        groups: int = 1,
        known: bool = True,
        cautious: bool = True,
    ) -> ClippedMeans:
        """The clip with the least error, what it takes off the means, and whom it reaches.

        ``noise_per_length`` is the noise in the estimate for each unit of the clip. Residuals
        beyond the clip do not correct the ``centres``, nor do those that are as close to it as
        centres may be off; terms are off already. All long residuals may be in one of some
        ``groups``. What is taken off is ``known`` where it is added back, as far as it is more than
        what is not known of it; elsewhere, with terms, it is an error. Not to be ``cautious`` is to
        believe what is likely of tails.
        """
        clips, (beyond, lost, variances) = self.longest * self.families[0].lengths, self._cut
        variance = variances[int(cautious)]
        missed = np.zeros_like(lost)
        if centres:
            closer = zip(beyond, (known * centres.unknown).tolist(), strict=True)
            beyond = np.stack([np.interp(clips - off, clips, x, left=1.0) for x, off in closer])
            missed = centres.missed(beyond.T).T
        back = (known and groups == 1) * lost**2 / (lost**2 + variance + 1e-300)
        variance, lost = groups**2 * (variance + ((1.0 - back) * lost) ** 2), back * lost
        # of a difference of two arms, on average
        error = 2.0 * (variance + missed**2).mean(axis=0) + (noise_per_length * clips) ** 2
        k = 1 + int(np.argmin(error[1:]))
        return ClippedMeans(float(clips[k]), lost[:, k], np.sqrt(variance[:, k]), beyond[:, k])

    def mean_square(self, clip: float = math.inf) -> tuple[float, float]:
        """Mean square of the clipped residuals, and the standard deviation of what is not known."""
        family = TailFamily.of_all()
        inside = np.minimum(family.lengths, clip / self.longest)
        squares = 0.5 * self.longest**2 * np.diff(inside**2)
        areas = np.append(squares, 0.0) + np.append(0.0, squares)
        tails = (tail @ areas[:, None] for tail in family.tails)
        mean, variance = family.moments(self.found, *tails)[..., 0]
        part = self.shares[:, None] * self.parts
        return float((part * mean).sum()), math.sqrt(float((part**2 * variance).sum()))


def _posterior(prior: FloatArray, fits: FloatArray | float = 0.0) -> FloatArray:
    """Chances that add up to 1, of their logarithms."""
    sums = prior + fits
    chances = np.exp(sums - sums.max(axis=-1, keepdims=True))
    return np.asarray(chances / chances.sum(axis=-1, keepdims=True))


@row()
def length_class(
    rows: Block, residual: RowFunction, limits: FloatArray, arms: ArmLookup
) -> IntArray:
    """Which of the lengths in ``limits`` (from long to short) a residual exceeds first.

    By arm, residuals above 0 before those below.
    """
    values = residual(rows)
    own = shorter(values, np.nextafter(limits, np.inf))
    return (2 * arms.arm(rows) + (values <= 0.0)) * (limits.size + 1) + own


@dataclass(frozen=True)
class LengthQuery:
    """Residuals up to ``longest`` whose lengths are released, and out of which share."""

    residual: RowFunction
    longest: float
    centres: ArmStats
    share: str = "lengths"
    part: float = 1.0
    unseen: float = 0.0
    label: str = "sizes of residuals"

    @property
    def asked(self) -> SumQuery:
        """What the curator is asked for: how many residuals of an arm have which sign and length.

        A record is in one cell, so that it costs no more than lengths alone.
        """
        told_apart, shares = limits(self.longest), self.centres.shares
        classes = length_class(self.residual, told_apart, ArmLookup(shares))
        cells = GroupIndex(classes, 2 * shares.size * (told_apart.size + 1))
        return SumQuery(self.label, None, COUNT, cells, self.share, self.part)

    def read(self, counts: NoisyValue, before: ResidualLengths | None = None) -> ResidualLengths:
        """The answer, in the light of lengths of other residuals."""
        return ResidualLengths.read(self.centres.sizes, self.longest, counts, before, self.unseen)


def combined(one: float, sd: float, other: float, other_sd: float) -> float:
    """Mean of two numbers by their precisions."""
    return (one / sd**2 + other / other_sd**2) / (1.0 / sd**2 + 1.0 / other_sd**2)


def combined_variance(seen: float, noise: float, prior: tuple[float, float]) -> float:
    """A variance that was released with noise, and what else is known of it: mean and sd.

    Noise does not make it less than what the latter can be.
    """
    mean, sd = prior
    return max(combined(seen, noise, mean, max(sd, 1e-9 * mean)), mean**2 / (mean + sd))
