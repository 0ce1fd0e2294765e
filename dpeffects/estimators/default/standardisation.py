"""Covariates in standard units, and the squares and products that are added to them.

Means of the columns are released, then the mean logarithm of how far records lie from them, which
gives the scale: it takes little noise to hide, and a range that is much too wide costs little.
Where noise does not drown it, how many records lie how far on either side gives the shape. Squares
are taken of columns that are cut, and made free of a line by the released skewness, so that no
column is close to a combination of the others.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from dpeffects.arrays import FloatArray, Int8Array, IntArray
from dpeffects.estimators import constants as hand
from dpeffects.estimators.default.polynomial_terms import Bends
from dpeffects.estimators.default.tails import combined, limits, shorter
from dpeffects.estimators.row_functions import row
from dpeffects.privacy.charges import NoisyValue
from dpeffects.privacy.curator import Curator, SumQuery
from dpeffects.privacy.domains import Cube
from dpeffects.privacy.rows import Block
from dpeffects.privacy.tight_domains import Histogram


def _square_of_normal() -> tuple[float, float]:
    """Mean and standard deviation of the square of a normal column that is cut at `hand.CUT`."""
    cut, inside = hand.CUT, math.erf(hand.CUT / math.sqrt(2.0))
    density = math.sqrt(2.0 / math.pi) * math.exp(-(cut**2) / 2.0)
    mean = inside - cut * density + cut**2 * (1.0 - inside)
    fourth = 3.0 * inside - (cut**3 + 3.0 * cut) * density + cut**4 * (1.0 - inside)
    return mean, math.sqrt(fourth - mean**2)


_SQUARE_MEAN, _SQUARE_SD = _square_of_normal()


@dataclass(frozen=True, eq=False)
class Standardiser:
    """Covariates in [0, 1] to mean 0 and variance 1, and then squares and products of some.

    ``variances`` are not the squares of ``sds`` where columns are not normal; ``variance_sd`` is
    what is not known of them, as standard deviations. The ``bends`` are products of columns that
    are cut; a square is free of its line, which has the slope ``skewness``. The ``warnings`` is
    about columns that fill too little of their ranges to be told from a point.
    """

    columns: IntArray
    means: FloatArray
    sds: FloatArray
    skewness: FloatArray = field(default_factory=lambda: np.zeros(0))
    variances: FloatArray = field(default_factory=lambda: np.zeros(0))
    variance_sd: FloatArray = field(default_factory=lambda: np.zeros(0))
    bends: Bends = ()
    warnings: str = ""
    reads: ClassVar[tuple[str, ...]] = ("covariates",)

    @property
    def size(self) -> int:
        """Number of columns, with those that bend."""
        return self.columns.size + len(self.bends)

    @property
    def ends(self) -> tuple[FloatArray, FloatArray]:
        """Where columns that are to lie within [0, 1] are cut, but for indicators.

        An indicator has the largest variance that a column of its mean can have.
        """
        reach = np.where(self.sds**2 < 0.999 * self.means * (1.0 - self.means), hand.CUT, np.inf)
        square = -_SQUARE_MEAN / _SQUARE_SD
        least = [square if one == other else -hand.CUT for one, other in self.bends]
        low = np.append(np.maximum(-self.means / self.sds, -reach), least)
        high = np.minimum((1.0 - self.means) / self.sds, reach)
        return low, np.append(high, np.full(len(self.bends), hand.CUT))

    def __call__(self, rows: Block) -> FloatArray:
        """Standardised columns of some rows."""
        out = np.empty((rows.size, self.size), order="F")
        for j, column in enumerate(self._each(rows)):
            out[:, j] = column
        return out

    def index(self, rows: Block, slopes: FloatArray) -> FloatArray:
        """x'slopes, column by column: a row's value is its own."""
        total = np.zeros(rows.size)
        for column, slope in zip(self._each(rows), slopes, strict=True):
            column *= slope
            total += column
        return total

    def product(self, one: FloatArray, other: FloatArray) -> FloatArray:
        """Slopes of the product of two lines, as far as there are columns for it."""
        out, at = np.zeros(self.size), {k: j for j, k in enumerate(self.columns.tolist())}
        for b, (i, j) in enumerate(((at[i], at[j]) for i, j in self.bends), self.columns.size):
            out[b] = one[i] * other[j] + one[j] * other[i]
            if i == j:
                out[i] += one[i] * other[i] * self.skewness[i]
                out[b] *= 0.5 * math.hypot(_SQUARE_SD, self.skewness[i])
        return out

    def _each(self, rows: Block) -> Iterator[FloatArray]:
        """One column after the other, each an array of its own."""
        cut, bending = {}, {k for pair in self.bends for k in pair}
        for k, mean, sd in zip(self.columns.tolist(), self.means, self.sds, strict=True):
            column = rows.covariates[:, k] - mean
            column *= 1.0 / sd
            if k in bending:
                cut[k] = np.clip(column, -hand.CUT, hand.CUT)
            yield column
        skewness = dict(zip(self.columns.tolist(), self.skewness, strict=False))
        for one, other in self.bends:
            column = cut[one] * cut[other]
            if one == other:
                column -= _SQUARE_MEAN + skewness[one] * cut[one]
                column *= 1.0 / math.sqrt(_SQUARE_SD**2 + skewness[one] ** 2)
            yield column


@row("covariates")
def some_columns(rows: Block, columns: IntArray | slice) -> FloatArray:
    """Some covariates."""
    return rows.covariates[:, columns]


@row("covariates")
def distance_classes(rows: Block, columns: IntArray, means: FloatArray) -> Int8Array:
    """Which lengths the distances of covariates from means exceed, from far below to far above."""
    off = rows.covariates[:, columns] - means
    length, most = shorter(off, limits(1.0)), 2 * limits(1.0).size
    return most - length - (off < 0.0).view(np.int8) * (most - 2 * length)  # a choice takes longer


@row("covariates")
def log_distances(rows: Block, columns: IntArray, means: FloatArray) -> FloatArray:
    """Logarithms of the distances of covariates from means, over that of the shortest."""
    off, shortest = np.abs(rows.covariates[:, columns] - means), float(limits(1.0)[-1])
    np.log(np.clip(off, shortest, 1.0, out=off), out=off)
    return np.asarray(off / math.log(shortest))


@row("covariates")
def unit_columns(rows: Block, standard: Standardiser) -> FloatArray:
    """A constant, and then standardised columns that are cut and scaled to [0, 1]."""
    low, high = standard.ends
    inside = np.clip((standard(rows) - low) / (high - low), 0.0, 1.0)
    return np.column_stack([np.ones(rows.size), inside])


def varying_columns(curator: Curator) -> IntArray:
    """Columns that are not constant by declaration."""
    return np.flatnonzero(np.array(curator.values[:-1]) != 1)


def ask_means(curator: Curator, share: str) -> SumQuery:
    """Ask for the means of the covariates; indicators need no distances from them."""
    columns = varying_columns(curator)
    cube = Cube(np.zeros(columns.size), np.ones(columns.size))
    part = 0.5 if (np.array(curator.values)[columns] != 2).any() else 1.0
    return SumQuery("means of covariates", some_columns(columns), cube, None, share, part)


def release_standard(
    curator: Curator, noisy: NoisyValue, share: str, bends: Bends = ()
) -> Standardiser:
    """Release how far columns that are not indicators lie from their means.

    ``noisy`` are sums of all columns.
    """
    n, columns = curator.n, varying_columns(curator)
    noise = (noisy.sd / n) ** 2
    pull = hand.MEAN_VARIANCE / (hand.MEAN_VARIANCE + noise)
    means = np.clip(0.5 + (noisy.value / n - 0.5) * pull, 0.0, 1.0)
    variances = np.maximum(means * (1.0 - means), 0.01)
    sds, skewness, unknown = np.sqrt(variances), np.zeros(columns.size), np.zeros(columns.size)
    other = np.flatnonzero(np.array(curator.values)[columns] != 2)
    codes, points = np.ones(columns.size, np.bool_), list[str]()
    if other.size:
        own_columns, classes = (columns[other], means[other]), 2 * limits(1.0).size + 1
        ends = Cube(np.zeros(other.size), np.ones(other.size))
        public = curator.is_public("covariates")
        clear = public or hand.CLEAR * curator.noise_sd(share, 0.25, 2 * other.size) < n
        label, part = "logarithms of covariate deviations", 0.25 if clear else 0.5
        asked = [SumQuery(label, log_distances(*own_columns), ends, None, share, part)]
        if clear:
            label = "distances of covariates from their means"
            within = Histogram(other.size, classes)
            asked += [SumQuery(label, distance_classes(*own_columns), within, None, share, part)]
        logs, *told = curator.several(*asked)
        usual, error = _typical(n, logs, math.sqrt(noise))
        sds[other] = usual = np.minimum(usual, sds[other])
        variances[other], codes[other] = usual**2, False
        unknown[other], closest = usual**2 * _rough(error), logs.value
        for counts in told:
            closest = counts.value.reshape(other.size, -1)[:, classes // 2]
            for j, own, sd in zip(other, counts.value.reshape(other.size, -1), usual, strict=True):
                found = replace(counts, value=own)
                margin = _margin(n, found, float(means[j]), math.sqrt(noise), float(sd), error)
                means[j], sds[j], skewness[j], codes[j], seen, unknown[j] = margin
                variances[j] = min(seen, variances[j])
        points = [curator.names[j] for j in columns[other[closest > hand.POINT * n]]]
    said = f"Ranges too wide: there is little adjustment for {', '.join(points)}" if points else ""
    two = set(columns[codes].tolist())
    bends = tuple(pair for pair in bends if not set(pair) <= two)
    return Standardiser(columns, means, sds, skewness, variances, unknown, bends, said)


def _typical(n: int, logs: NoisyValue, mean_sd: float) -> tuple[FloatArray, float]:
    """Standard deviations of columns with these sums of logarithms of distances; relative error.

    Those of a normal column have the mean log(sd) - .635, of an even one log(sd) - .451; the middle
    of both is taken. What noise can explain is pulled to what is usual; distances are from a mean
    with noise of its own.
    """
    unit = math.log(float(limits(1.0)[-1]))
    error = abs(unit) * logs.sd / n
    middle = 0.5 * math.log(hand.COLUMN_VARIANCE)
    kept = hand.LOG_SPREAD**2 / (hand.LOG_SPREAD**2 + error**2)
    seen = np.exp(middle + kept * (unit * logs.value / n + 0.543 - middle))
    return np.sqrt(np.maximum(seen**2 - mean_sd**2, 0.25 * seen**2)), error * math.sqrt(kept)


def _rough(error: float) -> float:
    """Relative error of the variance of a column whose scale has this one."""
    return min(math.hypot(hand.ROUGH, 2.0 * error), 1.0)


def _margin(
    n: int, counts: NoisyValue, mean: float, mean_sd: float, sd: float, error: float
) -> tuple[float, float, float, bool, float, float]:
    """Mean, scale, skewness of a column, whether it is a code, its variance and an error of that.

    ``counts`` are by distance from a released mean, from far below to far above.
    """
    lengths, half = limits(1.0), counts.value.size // 2
    below, above = counts.value[: half + 1].copy(), counts.value[half:][::-1].copy()
    below[-1] = above[-1] = counts.value[half] / 2.0
    code = float(below.max() + above.max()) > hand.CODE * n
    middle = np.append([lengths[0]], 0.5 * (lengths + np.append(lengths[1:], 0.0)))[: half + 1]
    if code:  # two values at distances a and b from their mean have the variance a b
        common, rare, distance = below, above, 1.0 - mean
        if below.max() < above.max():
            common, rare, distance = above, below, mean
        # noise alone makes a class of this size in one column of a hundred
        feigned = counts.sd / math.sqrt(2.0) * math.log(100.0 * rare.size)
        if rare.max() > feigned:
            distance = float(middle[rare.argmax()])
        sd = math.sqrt(float(middle[common.argmax()]) * distance)
    close = middle < min(2.0 * hand.LONG_SDS * sd, 1.0)
    apart = (above - below) / n * close
    noise = math.sqrt(2.0) * counts.sd / n
    shift, shift_sd = float(apart @ middle), noise * math.sqrt(float((middle * close) @ middle))
    moved = shift * mean_sd**2 / max(mean_sd**2 + shift_sd**2, 1e-300)  # 0 if public
    u = np.minimum(middle / sd, hand.CUT)
    third = float(apart @ (u**3 - 3.0 * u * shift / sd))
    third_sd = noise * math.sqrt(float((u**3 * close) @ u**3))
    skewness = third * hand.SKEWNESS**2 / (hand.SKEWNESS**2 + third_sd**2)
    square = middle**2 * close
    usual = sd**2, sd**2 * _rough(error)
    seen = float((above + below) @ square) / n, max(noise * math.hypot(*square), 1e-9)
    variance = combined(*seen, *usual)
    return (
        min(max(mean + moved, 0.0), 1.0),
        sd,
        min(max(skewness, -2.0), 2.0),
        code,
        max(variance - moved**2, 0.25 * sd**2),
        1.0 / math.hypot(1.0 / seen[1], 1.0 / usual[1]),
    )
