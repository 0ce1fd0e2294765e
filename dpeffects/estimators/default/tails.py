"""How long residuals are: a posterior over a family of tails, by the law of released counts.

Counts of residuals by length are released with noise of known law. A family of tails (normal,
Laplace and Student's, of any scale, with or without some records further out) says what to expect
of them; how well each member fits gives its weight. A clip, what it cuts off, the variance of the
residuals and how many are beyond a clip are averages with these weights.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import product

import numpy as np
from scipy.special import log_ndtr, ndtr, stdtr

from dpeffects.arrays import FloatArray, IntArray
from dpeffects.estimators import constants as hand
from dpeffects.estimators.default.centres import Centres
from dpeffects.estimators.row import row
from dpeffects.privacy.charges import Noisy
from dpeffects.privacy.curator import Asked, Curator
from dpeffects.privacy.rows import Block, Cells, RowFunction
from dpeffects.privacy.sets import COUNT


def limits(longest: float) -> FloatArray:
    """Lengths that are told apart, each shorter by the root of 2 than the one before."""
    return np.asarray(longest * 2.0 ** (-np.arange(hand.LEVELS) / 2.0))


@dataclass(frozen=True, eq=False)
class Family:
    """Tails at ``lengths`` in units of the longest, (member, length), and their mean excesses.

    ``classes`` are chances of the lengths that are told apart, ``prior`` logarithms of weights.
    ``squares`` are those of what a clip at each length but 0 cuts off, and of what lies beyond it.
    """

    lengths: FloatArray
    tails: FloatArray
    excess: FloatArray
    classes: FloatArray
    prior: FloatArray
    squares: tuple[FloatArray, FloatArray]

    @classmethod
    @cache
    def of_all(cls) -> Family:
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
        near, far, few = np.array([(*ends, part) for ends, part in product(*hand.FAR_OUT)]).T
        outside = np.clip((far[:, None] - x) / (far - near)[:, None], 0.0, 1.0)
        mixed = (1.0 - few[:, None, None]) * own + few[:, None, None] * outside[:, None]
        tails = np.concatenate([own, mixed.reshape(-1, x.size)])
        some = np.repeat([1.0 - hand.SOME_FAR, *(hand.SOME_FAR / far.size,) * far.size], len(own))
        areas = np.diff(x) * 0.5 * (tails[:, 1:] + tails[:, :-1])
        excess = np.pad(np.cumsum(areas[:, ::-1], axis=1)[:, ::-1], ((0, 0), (0, 1)))
        at = np.stack([np.interp(limits(1.0), x, tail) for tail in tails])
        longer = np.pad(at, ((0, 0), (1, 1)), constant_values=((0, 0), (0.0, 1.0)))
        prior = np.tile(usual, len(tails) // usual.size) + np.log(some)
        squares = excess[:, 1:] ** 2, (excess[:, 1:] + x[1:] * tails[:, 1:]) ** 2
        return cls(x, tails, excess, np.diff(longer, axis=1), prior, squares)


def log_density(off: FloatArray, variance: FloatArray, counts: Noisy) -> FloatArray:
    """Logarithm of the density of a released count's error: normal chance plus its own noise."""
    if counts.gaussian:
        total = variance + counts.variance
        return np.asarray(-0.5 * (off**2 / total + np.log(2.0 * math.pi * total)))
    sd = np.sqrt(variance)
    scale = np.maximum(counts.scale, 1e-4 * sd)
    ratio = sd / scale
    sides = (log_ndtr(sign * off / sd - ratio) - sign * off / scale for sign in (1.0, -1.0))
    return np.asarray(0.5 * ratio**2 - np.log(2.0 * scale) + np.logaddexp(*sides))


@dataclass(frozen=True, eq=False)
class Lengths:
    """Residuals up to ``longest``: how likely each member of the family of tails is."""

    longest: float
    weights: FloatArray

    @classmethod
    def read(cls, n: int, longest: float, counts: Noisy, before: Lengths | None = None) -> Lengths:
        """The posterior, given noisy counts of ``n`` residuals by length, from long to short.

        Other residuals of the same outcome may have been read ``before``: records that were far out
        then are far out still.
        """
        family = Family.of_all()
        prior = family.prior if before is None else family.prior + before.far_out
        expected = n * family.classes
        chance = expected * (1.0 - family.classes) + (hand.MISFIT * expected) ** 2
        off = counts.value.reshape(-1) - expected
        fits = prior + log_density(off, np.maximum(chance, 1e-6), counts).sum(axis=1)
        weights = np.exp(fits - fits.max())
        return cls(longest, weights / weights.sum())

    @property
    def far_out(self) -> FloatArray:
        """How much likelier each way to lie far out is than before it was seen, as logarithms."""
        prior, outliers = np.exp(Family.of_all().prior), (1 + math.prod(map(len, hand.FAR_OUT)), -1)
        now, then = (x.reshape(outliers).sum(axis=1) / x.sum() for x in (self.weights, prior))
        return np.repeat(np.log(np.maximum(now, 1e-300) / then), prior.size // then.size)

    def clip(
        self, noise_per_length: float, centres: Centres | None = None, groups: int = 1
    ) -> tuple[float, float, float]:
        """The clip with the least noise and bias, that bias, and the part of residuals beyond it.

        ``noise_per_length`` is the noise in the estimate for each unit of the clip. Residuals
        beyond the clip do not correct the ``centres``, nor do those that are as close to it as
        centres may be off. Long residuals may all be in a small arm, or
        in one of some ``groups``, with an effect that is far from the others; and those of an arm
        with a larger mean may be longer in proportion to it. (Outcomes with two values are not
        clipped: the effect may live in the rarer one.)
        """
        family, one, stretch = Family.of_all(), groups * self.longest, 0.0
        if centres:
            one, stretch = one * centres.unevenness, centres.stretch
        cut_off, beyond = self._cut_off(stretch)
        clips, bias = self.longest * family.lengths[1:], one**2 * cut_off
        error = (noise_per_length * clips) ** 2 + bias
        if centres:
            off = float(centres.unknown.max())
            beyond = np.interp(clips - off, clips, beyond, left=1.0)
            error += (centres.missed(beyond) ** 2).sum(axis=1)
        k = int(np.argmin(error))
        return float(clips[k]), math.sqrt(float(bias[k])), float(beyond[k])

    @lru_cache(maxsize=64)  # noqa: B019 - few and small
    def _cut_off(self, stretch: float) -> tuple[FloatArray, FloatArray]:
        """Mean squares of the bias by each clip, over the longest, and the parts beyond it."""
        family = Family.of_all()
        cut_off, beyond = family.squares
        most = np.maximum(cut_off, (stretch / hand.ONE_SIDED) ** 2 * beyond)
        return hand.ONE_SIDED**2 * (self.weights @ most), self.weights @ family.tails[:, 1:]

    def beyond(self, clip: float) -> float:
        """The chance that a residual is longer than a clip."""
        return self._at(clip, Family.of_all().tails)

    def exceeded_by(self, part: float) -> float:
        """The length that this part of the residuals exceed."""
        family = Family.of_all()
        return self.longest * float(
            np.interp(-part, -(self.weights @ family.tails), family.lengths)
        )

    def excess(self, clip: float) -> float:
        """What a clip cuts off residuals, on average over all of them."""
        return self.longest * self._at(clip, Family.of_all().excess)

    def _at(self, clip: float, values: FloatArray) -> float:
        lengths = Family.of_all().lengths
        return float(np.interp(clip / self.longest, lengths, self.weights @ values))

    def mean_square(self, clip: float = math.inf) -> tuple[float, float]:
        """Mean square of the clipped residuals, and the standard deviation of what is not known."""
        family = Family.of_all()
        inside = np.minimum(family.lengths, clip / self.longest)
        squares = 0.5 * self.longest**2 * np.diff(inside**2)
        each = family.tails @ (np.append(squares, 0.0) + np.append(0.0, squares))
        mean = float(self.weights @ each)
        return mean, math.sqrt(float(self.weights @ (each - mean) ** 2))


@row()
def length_class(rows: Block, residual: RowFunction, limits: FloatArray) -> IntArray:
    """Which of the lengths in ``limits`` (from long to short) a residual exceeds first."""
    return np.searchsorted(-limits, -np.abs(residual(rows)), side="right")


@dataclass(frozen=True)
class LengthsAsked:
    """Residuals up to ``longest`` whose lengths are released, and out of which share."""

    label: str
    residual: RowFunction
    longest: float
    share: str = "lengths"
    part: float = 1.0

    @property
    def asked(self) -> Asked:
        """What the curator is asked for: how many residuals have which length."""
        told_apart = limits(self.longest)
        cells = Cells(length_class(self.residual, told_apart), told_apart.size + 1)
        return Asked(self.label, None, COUNT, cells, self.share, self.part)

    def read(self, n: int, counts: Noisy, before: Lengths | None = None) -> Lengths:
        """The answer, in the light of lengths of other residuals."""
        return Lengths.read(n, self.longest, counts, before)

    def released(self, curator: Curator) -> Lengths:
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
