"""How long residuals are: a posterior over a family of tails, by the distribution of released
counts.

Counts of residuals by length are released with noise of known distribution. A family of tails
(normal,
Laplace and Student's, of any scale, with or without some records further out) says what to expect
of them; how well each member fits gives its weight. A clip, what it cuts off, the variance of the
residuals and how many are beyond a clip are averages with these weights.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from itertools import product

import numpy as np
from scipy.special import erfcx, ndtr, stdtr

from dpeffects.arrays import FloatArray, Int8Array, IntArray
from dpeffects.estimators import constants as hand
from dpeffects.estimators.default.arm_summaries import ArmStats
from dpeffects.estimators.row_functions import row
from dpeffects.privacy.charges import NoisyValue
from dpeffects.privacy.curator import Curator, SumQuery
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
    the records' own and once for those further out; members are mixtures of the two.
    ``classes`` are chances of the lengths that are told apart, ``prior`` logarithms of weights.
    """

    lengths: FloatArray
    few: FloatArray
    tails: tuple[FloatArray, FloatArray]
    excess: tuple[FloatArray, FloatArray]
    classes: FloatArray
    prior: FloatArray

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
        at = (np.stack([np.interp(limits(1.0), x, tail) for tail in each]) for each in tails)
        longer = np.pad(_mixed(few, *at), ((0, 0), (1, 1)), constant_values=((0, 0), (0.0, 1.0)))
        return cls(x, few, tails, (one, other), np.diff(longer, axis=1), prior)

    def of_terms(self, off: float, relative: FloatArray, part: FloatArray) -> TailFamily:
        """The family of residuals, which may be ``off``, times a weight.

        A ``part`` of the records has each weight. Tails are parts of all weight.
        """
        x, mass = self.lengths, part * relative

        def weighted(off: float) -> FloatArray:
            at = np.searchsorted(x, np.clip(x / relative[:, None] - off, 0.0, 1.0))
            moved = np.zeros((x.size, x.size))
            np.add.at(moved, (at, np.arange(x.size)), mass[:, None])
            return moved

        (one, other), tail = self.tails, weighted(off) / mass.sum()
        (own, further), excess = self.excess, weighted(0.0)
        return replace(
            self, tails=(one @ tail, other @ tail), excess=(own @ excess, further @ excess)
        )

    def mean(self, weights: FloatArray, own: FloatArray, further: FloatArray) -> FloatArray:
        """Mean over all members of what is linear in their tails."""
        each = weights.reshape(self.few.size, -1)
        kept, moved = (1.0 - self.few) @ each, self.few * each.sum(axis=1)
        return np.asarray(kept @ own + moved @ further)

    @lru_cache(maxsize=16)  # noqa: B019 - few and small
    def expected(self, n: int) -> tuple[FloatArray, FloatArray]:
        """Counts to expect of ``n`` residuals by length, and their variance by chance."""
        expected = n * self.classes
        chance = expected * (1.0 - self.classes) + (hand.MISFIT * expected) ** 2
        return expected, np.maximum(chance, 1e-6)


def _mixed(few: FloatArray, own: FloatArray, further: FloatArray) -> FloatArray:
    """What is linear in tails, of mixtures: each of ``own`` with each that lies ``further``."""
    part = few[:, None, None]
    mixed = (1.0 - part) * own
    mixed += part * further[:, None]
    return np.asarray(mixed.reshape(-1, own.shape[1]))


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


@dataclass(frozen=True, eq=False)
class ResidualLengths:
    """Residuals up to ``longest``: how likely each member of the family of tails is."""

    longest: float
    weights: FloatArray
    family: TailFamily = field(default_factory=TailFamily.of_all)

    def of_terms(self, off: float, *weights: FloatArray) -> ResidualLengths:
        """Lengths of residuals times ``weights``, over the largest, and their chances."""
        return replace(self, family=self.family.of_terms(off / self.longest, *weights))

    @classmethod
    def read(
        cls, n: int, longest: float, counts: NoisyValue, before: ResidualLengths | None = None
    ) -> ResidualLengths:
        """The posterior, given noisy counts of ``n`` residuals by length, from long to short.

        Other residuals of the same outcome may have been read ``before``: records that were far out
        then are far out still.
        """
        family = TailFamily.of_all()
        prior = family.prior if before is None else family.prior + before.far_out
        expected, chance = family.expected(n)
        off = counts.value.reshape(-1) - expected
        fits = prior + log_density(off, chance, counts).sum(axis=1)
        weights = np.exp(fits - fits.max())
        return cls(longest, weights / weights.sum())

    @property
    def far_out(self) -> FloatArray:
        """How much likelier each way to lie far out is than before it was seen, as logarithms."""
        prior, outliers = np.exp(TailFamily.of_all().prior), (TailFamily.of_all().few.size, -1)
        now, then = (x.reshape(outliers).sum(axis=1) / x.sum() for x in (self.weights, prior))
        return np.repeat(np.log(np.maximum(now, 1e-300) / then), prior.size // then.size)

    def clip(
        self,
        noise_per_length: float,
        centres: ArmStats | None = None,
        groups: int = 1,
        reach: float = 0.0,
    ) -> tuple[float, float, float]:
        """The clip with the least noise and bias, that bias, and the part of residuals beyond it.

        ``noise_per_length`` is the noise in the estimate for each unit of the clip. Residuals
        beyond the clip do not correct the ``centres``, nor do those that are as close to it as
        centres may be off. Long residuals may all be in a small arm, or
        in one of some ``groups``, with an effect that is far from the others; and those of an arm
        with a larger mean may be longer in proportion to it. (Outcomes with two values are not
        clipped: the effect may live in the rarer one.) Of terms, ``reach`` is the largest weight.
        """
        family, one, stretch = self.family, groups * self.longest, 0.0
        clips, beyond = self.longest * family.lengths, family.mean(self.weights, *family.tails)
        grows, falls = (noise_per_length * clips) ** 2, np.zeros_like(clips)
        if centres and reach:
            one *= reach * min(1.0 + centres.one_sided / hand.ONE_SIDED, 1.0 / hand.ONE_SIDED)
        elif centres:
            one *= max(1.0, hand.SMALL_ARM / float(centres.shares.min())) ** 2
            stretch = centres.stretch
            beyond = np.interp(clips - float(centres.unknown.max()), clips, beyond, left=1.0)
        if centres:
            falls = (centres.missed(beyond, bool(reach)) ** 2).sum(axis=1)
        # the bias falls too: between most of some clips there can be none that is better
        some = np.append(np.arange(1, clips.size, step := 8), clips.size - 1)
        bias = one**2 * self._cut_off(stretch, some)
        best, least = (falls[some] + bias + grows[some]).min(), (falls[some] + bias)[1:]
        some = 1 + np.flatnonzero(np.repeat(least + grows[some[:-1]] <= best, step))
        bias = one**2 * self._cut_off(stretch, some)
        k = int(np.argmin(falls[some] + bias + grows[some]))
        return float(clips[some[k]]), math.sqrt(float(bias[k])), float(beyond[some[k]])

    def _cut_off(self, stretch: float, at: IntArray) -> FloatArray:
        """Mean squares of the bias by clips at some of the lengths, over the longest."""
        family = self.family
        excess = [x.take(at, axis=1) for x in family.excess]
        most = _mixed(family.few, *(hand.ONE_SIDED * x for x in excess))
        if stretch:
            tails = (family.lengths[at] * x.take(at, axis=1) for x in family.tails)
            longer = (stretch * (x + y) for x, y in zip(excess, tails, strict=True))
            np.maximum(most, _mixed(family.few, *longer), out=most)
        return np.asarray(self.weights @ np.square(most, out=most))

    def mean_square(self, clip: float = math.inf) -> tuple[float, float]:
        """Mean square of the clipped residuals, and the standard deviation of what is not known."""
        family = self.family
        inside = np.minimum(family.lengths, clip / self.longest)
        squares = 0.5 * self.longest**2 * np.diff(inside**2)
        areas = np.append(squares, 0.0) + np.append(0.0, squares)
        each = _mixed(family.few, *((tail @ areas)[:, None] for tail in family.tails))[:, 0]
        mean = float(self.weights @ each)
        return mean, math.sqrt(float(self.weights @ (each - mean) ** 2))


@row()
def length_class(rows: Block, residual: RowFunction, limits: FloatArray) -> Int8Array:
    """Which of the lengths in ``limits`` (from long to short) a residual exceeds first."""
    return shorter(residual(rows), np.nextafter(limits, np.inf))


@dataclass(frozen=True)
class LengthQuery:
    """Residuals up to ``longest`` whose lengths are released, and out of which share."""

    label: str
    residual: RowFunction
    longest: float
    share: str = "lengths"
    part: float = 1.0

    @property
    def asked(self) -> SumQuery:
        """What the curator is asked for: how many residuals have which length."""
        told_apart = limits(self.longest)
        cells = GroupIndex(length_class(self.residual, told_apart), told_apart.size + 1)
        return SumQuery(self.label, None, COUNT, cells, self.share, self.part)

    def read(
        self, n: int, counts: NoisyValue, before: ResidualLengths | None = None
    ) -> ResidualLengths:
        """The answer, in the light of lengths of other residuals."""
        return ResidualLengths.read(n, self.longest, counts, before)

    def released(self, curator: Curator) -> ResidualLengths:
        """Release how many residuals have which length."""
        return self.read(curator.n, curator.several(self.asked)[0])


def combined(one: float, sd: float, other: float, other_sd: float) -> float:
    """Mean of two numbers by their precisions."""
    return (one / sd**2 + other / other_sd**2) / (1.0 / sd**2 + 1.0 / other_sd**2)


def combined_variance(seen: float, noise: float, prior: tuple[float, float]) -> float:
    """A variance that was released with noise, and what else is known of it: mean and sd.

    Noise does not make it less than what the latter can be.
    """
    mean, sd = prior
    return max(combined(seen, noise, mean, max(sd, 1e-9 * mean)), mean**2 / (mean + sd))
