"""Linear models and scores for more than two arms, from one noisy matrix of moments.

The matrix has a column for each arm in the place of the treatment. It tells how far the covariates
of each arm lie from those of all records; the covariance within arms and the slopes of the outcome
are those of all arms together. Where covariates are normal in each arm, the chance of an arm is
proportional to its share times exp(x'slopes), slopes the covariance's inverse times the difference
from the first arm. Generalised overlap weights (Li and Li 2019), the harmonic mean of all chances
over that of the own arm, never exceed 1, and all arms are weighted to the same records: those who
could have been in any of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import ClassVar

import numpy as np

from dpeffects.arrays import FloatArray
from dpeffects.estimators._centres import Centres, Residual
from dpeffects.estimators._moments import (
    CONSTANT,
    LEAST,
    LONG,
    OUTCOME,
    SPREAD,
    TREATMENT,
    WEIGHT,
    WEIGHT_SD,
    Models,
    Standard,
    combined,
    reliable,
    shrunk,
    squared_radius,
)
from dpeffects.estimators._posterior import NoisyMoments, fit_slopes
from dpeffects.privacy.charges import Noisy
from dpeffects.privacy.curator import Asked, Curator
from dpeffects.privacy.moments import Gram
from dpeffects.privacy.rows import Block
from dpeffects.privacy.sets import Box

_NODES = 256
"""Typical records of each arm that averages over scores are taken at."""
_CUT = 2.5
"""Indices are cut at this many of their standard deviations."""
_RARE = 0.01
"""Part of the records of an arm whose weights are cut."""
_NEVER = 1e-12
"""The least chance of an arm that is counted with."""


@dataclass(frozen=True, eq=False)
class _ArmRow:
    """z = (x, outcome, a column for each arm, constant) of a record."""

    standard: Standard
    residual: Residual
    clip: float
    shares: FloatArray | None
    sizes: tuple[float, float, float]
    reads: ClassVar[tuple[str, ...]] = ("arm", "outcome", "covariates")

    def __call__(self, rows: Block) -> tuple[FloatArray, ...]:
        """Rows of z; arms are left out where they were assigned by chance."""
        outcome, treatment, constant = self.sizes
        y = outcome * np.clip(self.residual(rows) / self.clip, -1.0, 1.0)
        ones = np.full(rows.size, constant)
        if self.shares is None:
            return self.standard(rows), y, ones
        columns = [((rows.arm == k) - pi) * treatment for k, pi in enumerate(self.shares)]
        return self.standard(rows), y, *columns, ones


@dataclass(frozen=True, eq=False)
class ArmModels:
    """Linear models of outcome and arm in standardised covariates; outcomes in units of the clip.

    ``from_all`` is how far the covariates of each arm are from those of all records, as released,
    with the standard deviations ``from_all_sd`` of its noise; ``moments`` is what all pairs of arms
    have in common. ``offsets`` and ``unknown`` are those of `Models`.
    """

    n: int
    standard: Standard
    clip: float
    shares: FloatArray
    mean: FloatArray
    covariance: FloatArray
    vectors: FloatArray
    moments: NoisyMoments
    from_all: FloatArray
    from_all_sd: FloatArray
    offsets: FloatArray
    unknown: FloatArray

    def pair(self, arm: int, other: int) -> Models:
        """The models of an arm against another."""
        pair = [arm, other]
        between = self.from_all[arm] - self.from_all[other]
        by_chance = float((1.0 / (self.n * self.shares[pair])).sum())
        slopes = fit_slopes(
            replace(
                self.moments,
                treatment=self.vectors.T @ between,
                treatment_noise=float((self.from_all_sd[pair] ** 2).sum()),
                treatment_sampling=self.moments.variances * by_chance,
            )
        )
        treatment = self.vectors @ slopes.treatment * bool(self.from_all_sd.any())
        shift = self.covariance @ treatment
        pi = float(self.shares[arm] / self.shares[pair].sum())
        return Models(
            n=self.n,
            standard=self.standard,
            clip=self.clip,
            centres=self.mean + np.stack([(1.0 - pi) * shift, -pi * shift]),
            covariance=self.covariance,
            outcome_variance=self.moments.outcome_variance,
            outcome_slopes=self.vectors @ slopes.outcome,
            treatment_slopes=treatment,
            slopes=slopes,
            offsets=self.offsets[pair],
            unknown=self.unknown[pair],
        )


def release_arm_models(
    curator: Curator,
    standard: Standard,
    centres: Centres,
    clip: float,
    share: str,
    randomised: bool,
) -> ArmModels:
    """Release the matrix, and read models from it."""
    p, n, pi = standard.columns.size, curator.n, centres.shares
    length, radius = math.sqrt(LONG * p), math.sqrt(squared_radius(p, randomised))
    # columns of the arms together are as long as the one of two arms, at most
    longest = math.sqrt(float((1.0 - 2.0 * pi).max() + pi @ pi))
    sizes = (OUTCOME * length, TREATMENT * length / longest, CONSTANT * length)
    residual = Residual(centres.means)
    row = _ArmRow(standard, residual, clip, None if randomised else pi, sizes)
    half = np.full(p + 2 + (0 if randomised else len(pi)), radius)
    box = Box(-half, half, centre=0.0, radius=radius)
    released = curator.sums("moments", row, Gram(box), share=share)
    matrix = np.zeros((half.size, half.size))
    matrix[np.triu_indices(half.size)] = released.value
    matrix = matrix + np.triu(matrix, 1).T
    of_arms = slice(p + 1, half.size - 1)
    known, unit, entries = matrix[-1, -1], sizes[2] ** 2, 1
    if not randomised:
        known, entries = np.trace(matrix[of_arms, of_arms]), len(pi)
        unit = sizes[1] ** 2 * float(pi @ (1.0 - pi))
    own_sd = math.sqrt(2.0 * entries) * released.sd / unit
    weight = min(max(float(known) / unit, 0.5 * n), n)
    total = combined(weight, own_sd, WEIGHT * n, WEIGHT_SD * n)
    matrix, sd = matrix / total, released.sd / total

    from_all = np.zeros((len(pi), p))
    from_all_sd = np.zeros(len(pi))
    if not randomised:
        from_all = matrix[of_arms, :p] / sizes[1] / pi[:, None]
        from_all_sd = sd / sizes[1] / pi
    mean = matrix[-1, :p] / sizes[2]
    mean = mean * reliable(mean, sd / sizes[2])
    covariance, scale, kept = shrunk(matrix[:p, :p] - np.outer(mean, mean), sd)
    real = np.stack([x * reliable(x, s) for x, s in zip(from_all, from_all_sd, strict=True)])
    covariance = covariance - (pi[:, None] * real).T @ real
    values, vectors = np.linalg.eigh(covariance)
    values = np.clip(values, LEAST * scale, p * scale)
    seen = float(matrix[p, p]) / sizes[0] ** 2
    spread = combined(seen, math.sqrt(2.0) * sd / sizes[0] ** 2, *SPREAD)
    spread = min(max(spread, 0.01), 0.6)
    moments = NoisyMoments(
        variances=values,
        outcome=vectors.T @ matrix[:p, p] / sizes[0],
        treatment=np.zeros(p),
        outcome_noise=(sd / sizes[0]) ** 2,
        treatment_noise=0.0,
        outcome_sampling=values * spread / n,
        treatment_sampling=np.zeros(p),
        entry_noise=kept * sd**2,
        outcome_variance=spread,
        scale=scale,
    )
    told, told_sd = matrix[p, p + 1 :] / sizes[0], sd / sizes[0]
    offsets, unknown = _offsets(told, told_sd, sizes, pi, centres.unknown / clip)
    return ArmModels(
        n=n,
        standard=standard,
        clip=clip,
        shares=pi,
        mean=mean,
        covariance=(vectors * values) @ vectors.T,
        vectors=vectors,
        moments=moments,
        from_all=from_all,
        from_all_sd=from_all_sd,
        offsets=offsets,
        unknown=clip * unknown,
    )


def _offsets(
    told: FloatArray,
    sd: float,
    sizes: tuple[float, float, float],
    pi: FloatArray,
    prior: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """What the means of the arms missed, as the matrix tells it, and what is not known of it.

    ``told`` are products of the outcome with the columns of the arms, if any, and the constant.
    """
    of_arms = (np.diag(pi) - np.outer(pi, pi)) * sizes[1]
    design = np.vstack([of_arms[: len(told) - 1], pi * sizes[2]])
    precision = design.T @ design / sd**2 + np.diag(1.0 / np.clip(prior, 1e-9, 0.5) ** 2)
    covariance = np.linalg.inv(precision)
    return covariance @ (design.T @ told) / sd**2, np.sqrt(np.diag(covariance))


# --- the chances of the arms ----------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ArmScore:
    """Chances of the arms, proportional to exp(constant + x'slopes), and none below ``least``.

    ``index`` has x'slopes of typical records: (arm of the record, record, arm of the slopes);
    ``shares`` are those of the arms.
    """

    standard: Standard
    constants: FloatArray
    slopes: FloatArray
    least: float
    shares: FloatArray
    index: FloatArray

    def of(self, rows: Block) -> FloatArray:
        """Chances of some rows to be in each arm, a column each."""
        index = [self.standard.index(rows, slopes) for slopes in self.slopes]
        return _chances(np.stack(index, axis=-1) + self.constants, self.least)

    @property
    def chances(self) -> FloatArray:
        """Chances of typical records."""
        return _chances(self.index + self.constants, self.least)

    @property
    def weights(self) -> FloatArray:
        """How many records a typical one stands for: (arm, record)."""
        arms, nodes, _ = self.index.shape
        return np.repeat(self.shares[:, None] / nodes, nodes, axis=1).reshape(arms, nodes)

    @property
    def overlap(self) -> float:
        """Mean of the harmonic mean of the chances, over their number."""
        return float((self.weights * harmonic(self.chances)).sum())

    @property
    def explained(self) -> float:
        """Part of who gets which arm that the score explains; of two arms, of the variance."""
        chances = _chances(self.index + self.constants, _NEVER)
        return 1.0 - float((self.weights * harmonic(chances)).sum() / harmonic(self.shares))

    def sizes(self, n: int) -> FloatArray:
        """Records of equal weight that those of each arm are worth."""
        own = np.stack([harmonic(x) / x[:, k] for k, x in enumerate(self.chances)])
        return np.asarray(n / (self.weights * (own / self.overlap) ** 2).sum(axis=1))

    @property
    def largest(self) -> FloatArray:
        """Largest weight of each arm that is not cut."""
        chances, flat = self.chances, harmonic(self.shares) / self.shares
        own = np.stack([harmonic(x) / x[:, k] for k, x in enumerate(chances)])
        return np.minimum(np.maximum(np.quantile(own, 1.0 - _RARE, axis=1), flat), 1.0)

    @property
    def from_mean(self) -> FloatArray:
        """Slopes less their mean over the arms: along them the chance of an arm rises."""
        return np.asarray(self.slopes - self.shares @ self.slopes)

    @property
    def positions(self) -> tuple[FloatArray, FloatArray]:
        """Where typical records are along that, (arm of the slopes, arm, record), and the cuts."""
        along = np.moveaxis(self.index - (self.index @ self.shares)[..., None], -1, 0)
        mean = (self.weights * along).sum(axis=(1, 2), keepdims=True)
        sds = np.sqrt((self.weights * (along - mean) ** 2).sum(axis=(1, 2)))
        cuts = _CUT * np.maximum(sds, 0.1)
        return np.clip(along / cuts[:, None, None], -1.0, 1.0), cuts


def _chances(logits: FloatArray, least: float) -> FloatArray:
    """Chances from logarithms, the last axis that of the arms; sums one by one."""
    top = logits.max(axis=-1, keepdims=True)
    raised = np.exp(logits - top)
    total = np.zeros(raised.shape[:-1])
    for k in range(raised.shape[-1]):
        total = total + raised[..., k]
    return np.maximum(raised / total[..., None], least)


def harmonic(chances: FloatArray) -> FloatArray:
    """1 over the sum of inverse chances: e (1 - e) for two arms."""
    total = np.zeros(chances.shape[:-1])
    for k in range(chances.shape[-1]):
        total = total + 1.0 / chances[..., k]
    return 1.0 / total


def arm_score(models: ArmModels, slopes: FloatArray, clip: float) -> ArmScore:
    """Chances with these slopes whose means are the shares of the arms."""
    pi, arms = models.shares, len(models.shares)
    spread = slopes @ models.covariance @ slopes.T
    values, vectors = np.linalg.eigh(spread)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    shift = models.covariance @ slopes.T
    centres = models.mean[:, None] + shift - (shift @ pi)[:, None]
    index = (centres.T @ slopes.T)[:, None, :] + _normal(arms) @ root.T
    score = ArmScore(models.standard, np.log(pi), slopes, 2.0 * clip / arms, pi, index)
    for _ in range(30):
        means = (score.weights[..., None] * _chances(index + score.constants, 0.0)).sum(axis=(0, 1))
        score = replace(score, constants=score.constants + np.log(pi / means))
    return score


def _normal(columns: int) -> FloatArray:
    """Points that are spread like independent normal variables: a fixed sequence."""
    root = 2.0
    for _ in range(60):
        root = (1.0 + root) ** (1.0 / (columns + 1.0))
    steps = root ** -np.arange(1.0, columns + 1.0)
    uniform = (0.5 + np.arange(1.0, _NODES + 1.0)[:, None] * steps) % 1.0
    inverse = np.vectorize(NormalDist().inv_cdf)
    points = inverse(np.clip(uniform, 1e-4, 1.0 - 1e-4))
    return np.asarray((points - points.mean(axis=0)) / points.std(axis=0))


@dataclass(frozen=True, eq=False)
class _ArmNewton:
    """Gradient of the log likelihood along all indices, which are cut, and the constants."""

    score: ArmScore
    cut: float
    reads: ClassVar[tuple[str, ...]] = ("arm", "covariates")

    def __call__(self, rows: Block) -> tuple[FloatArray, ...]:
        """Terms of some rows: along the indices within [-1, 1], the others in [-1/2, 1/2]."""
        chances, score = self.score.of(rows), self.score
        along, constants = np.zeros(rows.size), []
        for k, slopes in enumerate(score.slopes):
            off = (rows.arm == k) - chances[:, k]
            constants.append(0.5 * off)
            index = score.standard.index(rows, slopes)
            along = along + off * np.clip(index / self.cut, -0.5, 0.5)
        return along, *constants[1:]


def _cut(score: ArmScore) -> float:
    """Indices are cut at this, on both sides, over 2: two of them differ by it at most."""
    sds = (score.index * score.weights[..., None]).sum(axis=(0, 1))
    sds = np.sqrt((score.weights[..., None] * (score.index - sds) ** 2).sum(axis=(0, 1)))
    return 2.0 * _CUT * max(float(sds.max()), 0.1)


def ask_calibration(score: ArmScore) -> Asked:
    """Ask for the gradient of one private Newton step."""
    ends = np.append(1.0, np.full(len(score.shares) - 1, 0.5))
    term = _ArmNewton(score, _cut(score))
    return Asked("calibration of the score", term, Box(-ends, ends), None, "calibration")


def calibrated(score: ArmScore, n: int, noisy: Noisy) -> ArmScore:
    """One Newton step for the scale of all slopes and the constants."""
    cut, chances, index = _cut(score), score.chances, score.index
    along = np.clip(index / cut, -0.5, 0.5)
    weights = score.weights[..., None]

    def covariance(one: FloatArray, other: FloatArray) -> float:
        """Mean over records of the covariance over arms, by their chances."""
        centred = other - (chances * other).sum(axis=-1, keepdims=True)
        return float((weights * chances * one * centred).sum())

    arms = len(score.shares)
    units = [np.broadcast_to(np.eye(arms)[k], index.shape) for k in range(1, arms)]
    rows, columns = (along, *(0.5 * unit for unit in units)), (index, *units)
    curvature = n * np.array([[covariance(one, other) for other in columns] for one in rows])
    if cut <= 0.2 * _CUT * 1.01:  # nothing to scale; it is paid for all the same
        return score
    step = np.linalg.lstsq(curvature, noisy.value, rcond=None)[0]
    sd = noisy.sd / max(float(curvature[0, 0]), 1e-9)
    step = step * 0.04 / (0.04 + sd**2)
    factor = 1.0 + float(np.clip(step[0], -0.4, 0.6))
    moves = np.append(0.0, np.clip(step[1:], -0.3, 0.3))
    return replace(
        score,
        constants=score.constants + moves,
        slopes=factor * score.slopes,
        index=factor * index,
    )
