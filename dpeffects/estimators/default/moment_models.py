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
from dataclasses import dataclass, field, replace

import numpy as np

from dpeffects.arrays import FloatArray, symmetric
from dpeffects.estimators import constants as hand
from dpeffects.estimators.arm_sums import ArmLookup
from dpeffects.estimators.default.arm_summaries import ArmStats, residual
from dpeffects.estimators.default.posterior import NoisyMoments, Slopes, fit_slopes
from dpeffects.estimators.default.standardisation import Standardiser
from dpeffects.estimators.default.tails import combined, combined_variance
from dpeffects.estimators.row_functions import row
from dpeffects.privacy.curator import Curator
from dpeffects.privacy.domains import Box
from dpeffects.privacy.rows import Block, RowFunction
from dpeffects.privacy.tight_domains import Gram


def squared_radius(columns: int, randomised: bool) -> float:
    """Squared length of z, at most."""
    treatment = 0.0 if randomised else hand.BESIDE**2
    return hand.LENGTH * columns * (1.0 + hand.BESIDE**2 + treatment + hand.ONE**2)


def directions(shares: FloatArray) -> FloatArray:
    """Points of the arms, (arm, direction), whose mean over the records is 0.

    There is one direction less than arms: for two of them, treatment less its share.
    """
    arms, k = len(shares), np.arange(1, len(shares))[:, None]
    points = ((np.tri(arms - 1, arms) - k * np.eye(arms - 1, arms, 1)) / np.sqrt(k * (k + 1))).T
    points = points - shares @ points
    return np.asarray(points / math.sqrt(float((points**2).sum(axis=1).max())))


@row("covariates")
def moment_row(
    rows: Block,
    standard: Standardiser,
    residual: RowFunction,
    clip: float,
    arms: tuple[ArmLookup, ...],
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
    standard: Standardiser
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
    standard: Standardiser
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
        if (arm, other) in self._pairs:
            return self._pairs[arm, other]
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
        self._pairs[arm, other] = Models(
            n=self.n,
            standard=self.standard,
            clip=self.clip,
            covariance=self.covariance,
            outcome_variance=self.moments.outcome_variance,
            outcome_slopes=self.vectors @ slopes.outcome,
            treatment_slopes=self.vectors @ slopes.treatment * bool(self.turn.size),
            slopes=slopes,
        )
        return self._pairs[arm, other]


def release_models(
    curator: Curator,
    standard: Standardiser,
    centres: ArmStats,
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
    length, radius = math.sqrt(hand.LENGTH * p), math.sqrt(squared_radius(p, randomised))
    own, arm, one = sizes = (hand.BESIDE * length, hand.BESIDE * length, hand.ONE * length)
    points = tuple(ArmLookup(x) for x in along.T)
    row = moment_row(standard, residual(centres.means), clip, points, sizes)
    half = np.full(p + 2 + len(points), radius)
    box = Box(-half, half, centre=0.0, radius=radius)
    released = curator.sums("moments", row, Gram(box), share=share)
    matrix = symmetric(released.value, half.size)
    # the matrix tells the weight of all rows too: by the squares of the points, or the constant
    spread_arms = along.T @ (pi[:, None] * along)
    known, unit = matrix[-1:, -1:], one**2
    if points:
        known, unit = matrix[p + 1 : -1, p + 1 : -1], arm**2 * float(np.trace(spread_arms))
    own_sd = math.sqrt(2.0 * len(known)) * released.sd / unit
    weight = min(max(float(np.trace(known)) / unit, 0.5 * n), n)
    total = combined(weight, own_sd, hand.WEIGHT * n, (1.0 - hand.WEIGHT) * n)
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
    values = np.clip(values, hand.LEAST_DIRECTION * scale, p * scale)
    seen, noise = float(matrix[p, p]) / own**2, math.sqrt(2.0) * sd / own**2
    spread = combined_variance(seen, noise, (squares[0] / clip**2, squares[1] / clip**2))
    columns = np.column_stack([arm * along, np.full(len(pi), one)])
    # what the means of the arms missed: products of the outcome with these columns tell it
    told, told_sd = matrix[p, p + 1 :] / own, sd / own
    design, prior = (pi[:, None] * columns).T, np.clip(centres.unknown / clip, 1e-9, 0.5)
    missed = np.linalg.inv(design.T @ design / told_sd**2 + np.diag(1.0 / prior**2))
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
            lines=np.minimum((vectors[: standard.columns.size] ** 2).sum(axis=0), 1.0),
        ),
        arms=along @ slopes,
        turn=along @ turn,
        sd=sd / arm,
        offsets=missed @ (design.T @ told) / told_sd**2,
        unknown=clip * np.sqrt(np.diag(missed)),
    )


def reliable(vector: FloatArray, sd: float) -> float:
    """Part of a vector's squared length that noise does not explain, of entries of about 1."""
    explained = vector.size * sd**2 / max(float(vector @ vector), 1e-300)
    return max(0.0, 1.0 - explained) / max(1.0, sd**2)


def shrunk(matrix: FloatArray, sd: float) -> tuple[FloatArray, float, float]:
    """A covariance matrix pulled to a multiple of the identity by as much as noise explains.

    Also that multiple, and the part of the rest that was kept.
    """
    p = len(matrix)
    mean = combined(float(np.trace(matrix)) / p, sd * math.sqrt(2.0 / p), hand.LENGTH, hand.LENGTH)
    scale = min(max(mean, hand.LEAST_DIRECTION), 1.1)
    off = matrix - scale * np.eye(p)
    kept = max(0.0, 1.0 - p * (p + 1) * sd**2 / max(float((off**2).sum()), 1e-300))
    return scale * np.eye(p) + kept * off, scale, kept
