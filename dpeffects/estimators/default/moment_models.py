"""Noisy moments of covariates, outcome and treatment, and the linear models that they give.

1. Means and variances of the covariates are released, and columns standardised by them.
2. One matrix of products of z = (x, outcome, arm, constant) is released, x standardised, the others
   scaled. The arm is a point in one direction less than there are arms: for two of them, treatment
   less its share. Rows that are too long are shortened as a whole, which is weighted least squares.
   (Their weights depend a little on the outcome too, so that slopes come out a little flat; the sum
   at the end corrects for wrong slopes.)
3. The rest is post-processing: the covariance of x within arms, pulled to a multiple of the
   identity by as much as noise explains, slopes of the outcome, and the differences between two
   arms, which are slopes of the log odds of one against the other where covariates are normal in
   each arm.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from dpeffects.arrays import FloatArray, IntArray
from dpeffects.estimators.arm_sums import OfArm
from dpeffects.estimators.default.bends import Bends
from dpeffects.estimators.default.centres import Centres, residual
from dpeffects.estimators.default.posterior import NoisyMoments, Slopes, fit_slopes
from dpeffects.estimators.default.constants import LEVELS
from dpeffects.estimators.default.tails import Lengths, combined, combined_variance, limits
from dpeffects.estimators.row import row
from dpeffects.privacy.charges import Noisy
from dpeffects.privacy.curator import Asked, Curator
from dpeffects.privacy.rows import Block, RowFunction
from dpeffects.privacy.sets import Box, Cube
from dpeffects.privacy.tight_sets import Bins, Gram

OUTCOME, TREATMENT, CONSTANT = 0.7, 0.7, 0.25
"""Sizes of outcome, treatment and constant in z, against that of the covariates."""
LONG = 0.8
"""What the covariates add to the largest squared length of z, each: the size of all the rest."""
WEIGHT, WEIGHT_SD = 0.92, 0.08
"""Mean and standard deviation over studies of the mean weight of rows after shortening."""
_SCALE = 0.8, 1.0
"""The same of the mean variance of standardised covariates after shortening."""
CUT, _SQUARE = 2.5, (0.977, 1.297)
"""Where standardised columns are cut before they are multiplied, and the mean and the standard
deviation of the square of a normal column that is cut there."""
_NEAR, _CLOSE = 0.9, 0.05
"""A column is taken for a code of two values where less than this part of its records is closer to
its mean than a code could be: its square is a line, and products of codes may be none at all."""
LEAST = 0.02
"""Least variance of a direction, against the mean of all."""


def squared_radius(columns: int, randomised: bool) -> float:
    """Squared length of z, at most."""
    treatment = 0.0 if randomised else TREATMENT**2
    return LONG * columns * (1.0 + OUTCOME**2 + treatment + CONSTANT**2)


def directions(shares: FloatArray) -> FloatArray:
    """Points of the arms, (arm, direction), whose mean over the records is 0.

    There is one direction less than arms: for two of them, treatment less its share.
    """
    arms = len(shares)
    points = np.zeros((arms, arms - 1))
    for j in range(arms - 1):
        points[: j + 1, j], points[j + 1, j] = 1.0, -(j + 1.0)
    points = points / np.sqrt((points**2).sum(axis=0))
    points = points - shares @ points
    return np.asarray(points / math.sqrt(float((points**2).sum(axis=1).max())))


@dataclass(frozen=True, eq=False)
class Standard:
    """Covariates in [0, 1] to mean 0 and variance 1, by released means and variances.

    ``variance_sd`` is the standard deviation of the noise in the released variances; ``variances``
    are these as they came out, where columns are standardised by no less than a twentieth of their
    range. After the columns come squares and products of some of them, the ``bends``, of columns
    that are cut at 2.5 standard deviations; squares of normal columns have mean 0 and variance 1.
    """

    columns: IntArray
    means: FloatArray
    sds: FloatArray
    variance_sd: float = 0.0
    variances: FloatArray = field(default_factory=lambda: np.zeros(0))
    bends: Bends = ()
    reads: ClassVar[tuple[str, ...]] = ("covariates",)

    @property
    def size(self) -> int:
        """Number of columns, with those that bend."""
        return self.columns.size + len(self.bends)

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

    def _each(self, rows: Block) -> Iterator[FloatArray]:
        """One column after the other, each an array of its own."""
        cut, bending = {}, {j for pair in self.bends for j in pair}
        for k, mean, sd in zip(self.columns, self.means, self.sds, strict=True):
            column = rows.covariates[:, k] - mean
            column *= 1.0 / sd
            if k in bending:
                cut[k] = np.clip(column, -CUT, CUT)
            yield column
        for one, other in self.bends:
            column = cut[one] * cut[other]
            if one == other:
                column -= _SQUARE[0]
                column *= 1.0 / _SQUARE[1]
            yield column


@row("covariates")
def some_columns(rows: Block, columns: IntArray) -> FloatArray:
    """Some covariates."""
    return rows.covariates[:, columns]


@row("covariates")
def distance_classes(rows: Block, columns: IntArray, means: FloatArray) -> FloatArray:
    """Which of the lengths that are told apart the distances of covariates from means exceed."""
    off = -np.abs(rows.covariates[:, columns] - means)
    return np.searchsorted(-limits(1.0), off, side="left").astype(np.float64)


def varying_columns(curator: Curator) -> IntArray:
    """Columns that are not constant by declaration."""
    return np.flatnonzero(np.array(curator.values[:-1]) != 1)


def ask_means(curator: Curator, share: str) -> Asked:
    """Ask for the means of the covariates; indicators need no variances beside them."""
    columns = varying_columns(curator)
    cube = Cube(np.zeros(columns.size), np.ones(columns.size))
    part = 0.5 if (np.array(curator.values)[columns] != 2).any() else 1.0
    return Asked("means of covariates", some_columns(columns), cube, None, share, part)


def release_standard(curator: Curator, noisy: Noisy, share: str, bends: Bends = ()) -> Standard:
    """Release how far columns that are not indicators lie from their means.

    ``noisy`` are sums of all columns. Distances are read as lengths of residuals are, so that a
    range that is too wide costs little.
    """
    n, columns = curator.n, varying_columns(curator)
    prior, noise = 0.05, (noisy.sd / n) ** 2
    means = np.clip(0.5 + (noisy.value / n - 0.5) * prior / (prior + noise), 0.0, 1.0)
    variances = np.maximum(means * (1.0 - means), 0.01)
    other, unknown = np.flatnonzero(np.array(curator.values)[columns] != 2), 0.0
    codes = np.ones(columns.size, np.bool_)
    if other.size:
        counts = curator.sums(
            "distances of covariates from their means",
            distance_classes(columns[other], means[other]),
            Bins(other.size, LEVELS + 1),
            share=share,
            part=0.5,
        )
        by_column = counts.value.reshape(other.size, -1)
        found = [Lengths.read(n, 1.0, replace(counts, value=x)).mean_square() for x in by_column]
        variances[other], sds = np.array(found).T
        unknown = float(np.median(sds))
        # a code of two values is never close to its mean
        near = limits(1.0) < _NEAR * np.minimum(means, 1.0 - means)[other, None]
        close = (by_column[:, 1:] * near).sum(axis=1)
        codes[other] = close < _CLOSE * n + counts.sd * np.sqrt(near.sum(axis=1))
    two = set(columns[codes].tolist())
    bends = tuple(pair for pair in bends if not set(pair) <= two)
    return Standard(columns, means, np.sqrt(variances), unknown, variances, bends)


@row("covariates")
def moment_row(
    rows: Block,
    standard: Standard,
    residual: RowFunction,
    clip: float,
    arms: tuple[OfArm, ...],
    sizes: tuple[float, float, float],
) -> tuple[FloatArray, ...]:
    """z = (x, outcome, points of the arm, constant) of a record.

    ``arms`` has the points in each direction, none where arms were assigned by chance.
    """
    outcome, treatment, constant = sizes
    y = outcome * np.clip(residual(rows) / clip, -1.0, 1.0)
    points = (treatment * along(rows) for along in arms)
    return standard(rows), y, *points, np.full(rows.size, constant)


@dataclass(frozen=True)
class Models:
    """Linear models of outcome and arm in standardised covariates, for two arms.

    Outcomes are in units of the clip. ``covariance`` is that of x within arms.
    """

    n: int
    standard: Standard
    clip: float
    covariance: FloatArray
    outcome_variance: float
    outcome_slopes: FloatArray
    treatment_slopes: FloatArray
    slopes: Slopes

    @property
    def columns(self) -> int:
        """Number of covariates."""
        return self.standard.size


@dataclass(frozen=True, eq=False)
class ArmModels:
    """What the models of all pairs of arms have in common; outcomes in units of the clip.

    ``mean`` is that of x over all records. ``arms`` are how far each arm lies from it, as released,
    and ``turn`` what independent noise of the scale ``sd`` is multiplied by in them. ``offsets``
    are what the means of the outcome missed, ``unknown`` what is still not known of them.
    """

    n: int
    standard: Standard
    clip: float
    shares: FloatArray
    mean: FloatArray
    covariance: FloatArray
    vectors: FloatArray
    moments: NoisyMoments
    arms: FloatArray
    turn: FloatArray
    sd: float
    offsets: FloatArray
    unknown: FloatArray

    _pairs: dict[tuple[int, int], Models] = field(default_factory=dict)

    def pair(self, arm: int, other: int) -> Models:
        """The models of an arm against another."""
        if (arm, other) not in self._pairs:
            self._pairs[arm, other] = self._of_pair(arm, other)
        return self._pairs[arm, other]

    def _of_pair(self, arm: int, other: int) -> Models:
        noise = self.turn[arm] - self.turn[other]
        by_chance = float((1.0 / (self.n * self.shares[[arm, other]])).sum())
        slopes = fit_slopes(
            replace(
                self.moments,
                treatment=self.vectors.T @ (self.arms[arm] - self.arms[other]),
                treatment_noise=float(noise @ noise) * self.sd**2,
                treatment_sampling=self.moments.variances * by_chance,
            )
        )
        return Models(
            n=self.n,
            standard=self.standard,
            clip=self.clip,
            covariance=self.covariance,
            outcome_variance=self.moments.outcome_variance,
            outcome_slopes=self.vectors @ slopes.outcome,
            treatment_slopes=self.vectors @ slopes.treatment * bool(self.turn.size),
            slopes=slopes,
        )


def release_models(
    curator: Curator,
    standard: Standard,
    centres: Centres,
    clip: float,
    share: str,
    randomised: bool,
    squares: tuple[float, float],
) -> ArmModels:
    """Release the matrix, and read models from it.

    ``squares`` are the mean square of the clipped residuals, as far as it is known, and its sd.
    """
    p, n, pi = standard.size, curator.n, centres.shares
    along = directions(pi)[:, : 0 if randomised else None]
    length, radius = math.sqrt(LONG * p), math.sqrt(squared_radius(p, randomised))
    own, arm, one = sizes = (OUTCOME * length, TREATMENT * length, CONSTANT * length)
    points = tuple(OfArm(x) for x in along.T)
    row = moment_row(standard, residual(centres.means), clip, points, sizes)
    half = np.full(p + 2 + len(points), radius)
    box = Box(-half, half, centre=0.0, radius=radius)
    released = curator.sums("moments", row, Gram(box), share=share)
    matrix = np.zeros((half.size, half.size))
    matrix[np.triu_indices(half.size)] = released.value
    matrix = matrix + np.triu(matrix, 1).T
    # the matrix tells the weight of all rows too: by the squares of the points, or the constant
    spread_arms = along.T @ (pi[:, None] * along)
    known, unit = matrix[-1:, -1:], one**2
    if points:
        known, unit = matrix[p + 1 : -1, p + 1 : -1], arm**2 * float(np.trace(spread_arms))
    own_sd = math.sqrt(2.0 * len(known)) * released.sd / unit
    weight = min(max(float(np.trace(known)) / unit, 0.5 * n), n)
    total = combined(weight, own_sd, WEIGHT * n, WEIGHT_SD * n)
    matrix, sd = matrix / total, released.sd / total
    # slopes of x along the points: how far the arms lie from all records
    turn = np.linalg.inv(spread_arms) if points else spread_arms
    slopes = turn @ matrix[p + 1 : -1, :p] / arm
    trusted = [
        x * reliable(x, sd / arm * math.hypot(*t)) for x, t in zip(slopes, turn, strict=True)
    ]
    apart = along @ np.reshape(trusted, slopes.shape)
    mean = matrix[-1, :p] / one
    mean = mean * reliable(mean, sd / one)
    covariance, scale, kept = shrunk(matrix[:p, :p] - np.outer(mean, mean), sd)
    values, vectors = np.linalg.eigh(covariance - (pi[:, None] * apart).T @ apart)
    values = np.clip(values, LEAST * scale, p * scale)
    seen, noise = float(matrix[p, p]) / own**2, math.sqrt(2.0) * sd / own**2
    spread = combined_variance(seen, noise, (squares[0] / clip**2, squares[1] / clip**2))
    columns = np.column_stack([arm * along, np.full(len(pi), one)])
    told, told_sd = matrix[p, p + 1 :] / own, sd / own
    offsets, unknown = _offsets(told, told_sd, columns, pi, centres.unknown / clip)
    return ArmModels(
        n=n,
        standard=standard,
        clip=clip,
        shares=pi,
        mean=mean,
        covariance=(vectors * values) @ vectors.T,
        vectors=vectors,
        moments=NoisyMoments(
            variances=values,
            outcome=vectors.T @ matrix[:p, p] / own,
            treatment=np.zeros(p),
            outcome_noise=(sd / own) ** 2,
            treatment_noise=0.0,
            outcome_sampling=values * spread / n,
            treatment_sampling=np.zeros(p),
            entry_noise=kept * sd**2,
            outcome_variance=spread,
            scale=scale,
        ),
        arms=along @ slopes,
        turn=along @ turn,
        sd=sd / arm,
        offsets=offsets,
        unknown=clip * unknown,
    )


def _offsets(
    told: FloatArray, sd: float, columns: FloatArray, pi: FloatArray, prior: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """What the means of the arms missed, as the matrix tells it, and what is not known of it.

    ``told`` are products of the outcome with the ``columns`` of the arms and the constant.
    """
    design = (pi[:, None] * columns).T
    precision = design.T @ design / sd**2 + np.diag(1.0 / np.clip(prior, 1e-9, 0.5) ** 2)
    covariance = np.linalg.inv(precision)
    return covariance @ (design.T @ told) / sd**2, np.sqrt(np.diag(covariance))


def reliable(vector: FloatArray, sd: float) -> float:
    """Part of a vector's squared length that noise does not explain, of entries of about 1."""
    explained = vector.size * sd**2 / max(float(vector @ vector), 1e-300)
    return max(0.0, 1.0 - explained) / max(1.0, sd**2)


def shrunk(matrix: FloatArray, sd: float) -> tuple[FloatArray, float, float]:
    """A covariance matrix pulled to a multiple of the identity by as much as noise explains.

    Also that multiple, and the part of the rest that was kept.
    """
    p = len(matrix)
    mean = combined(float(np.trace(matrix)) / p, sd * math.sqrt(2.0 / p), *_SCALE)
    scale = min(max(mean, LEAST), 1.1)
    off = matrix - scale * np.eye(p)
    kept = max(0.0, 1.0 - p * (p + 1) * sd**2 / max(float((off**2).sum()), 1e-300))
    return scale * np.eye(p) + kept * off, scale, kept
