"""Blocks of a private propensity score: cuts, and the effect from released counts and sums.

A score is 1 / (1 + exp(-(1, x)'w)) for released weights w, the constant first; a block is a range
of scores between released cuts. So a record's block depends on the record alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dpeffects.arrays import FloatArray, IntArray
from dpeffects.design.features import logits
from dpeffects.estimands import ESTIMANDS
from dpeffects.estimators._plan import MOST_LEFT, weight_noise
from dpeffects.estimators.strengths import default_strength
from dpeffects.estimators.weighting import propensity_model
from dpeffects.privacy.charges import Noisy
from dpeffects.privacy.curator import Curator
from dpeffects.privacy.logistic import sigmoid, unit_norm
from dpeffects.privacy.rows import Block, Cells, reads
from dpeffects.privacy.sets import COUNT, Box

TREATED, CONTROL = 0, 1
_BINS = 20
_SIGN = np.array([[1.0], [-1.0]])
_P = "propensity"


@dataclass(frozen=True)
class ScoreCell:
    """Arm and block of a released score: treated records first."""

    weights: FloatArray
    cuts: FloatArray

    @property
    def reads(self) -> tuple[str, ...]:
        """Without cuts there is one block."""
        return ("treated", "covariates") if len(self.cuts) else ("treated",)

    def __call__(self, rows: Block) -> IntArray:
        """Cells of some rows."""
        cell = np.where(rows.treated, 0, len(self.cuts) + 1)
        if len(self.cuts):
            score = sigmoid(logits(rows.covariates, self.weights[1:], self.weights[0]))
            cell += np.searchsorted(self.cuts, score)
        return cell


@dataclass(frozen=True)
class Residual:
    """y - middle - (1, x)'m for the released model m of the record's arm; or its scaled square.

    ``models`` has a row for each arm (treated, control), the constant first. ``squared`` gives the
    square of the residual over ``half`` the range.
    """

    models: FloatArray
    middle: float
    half: float
    squared: bool = False

    @property
    def reads(self) -> tuple[str, ...]:
        """Without models the covariates are not read."""
        return ("outcome", "treated", "covariates") if self.models.any() else ("outcome",)

    def __call__(self, rows: Block) -> FloatArray:
        """Residuals of some rows."""
        residual = rows.outcome - self.middle
        if self.models.any():
            one, zero = (logits(rows.covariates, m[1:], m[0]) for m in self.models)
            residual = residual - np.where(rows.treated, one, zero)
        return (residual / self.half) ** 2 if self.squared else residual


def score_cells(weights: FloatArray, cuts: FloatArray) -> Cells:
    """Arms and blocks: those of treated records, then those of controls."""
    return Cells(ScoreCell(weights, cuts), 2 * (len(cuts) + 1))


def block_counts(
    curator: Curator, label: str, weights: FloatArray, cuts: FloatArray, share: str
) -> Noisy:
    """Release the number of (treated, control) records in each block."""
    counts = curator.sums(label, None, COUNT, score_cells(weights, cuts), share=share)
    return replace(counts, value=counts.value.reshape(2, -1))


@reads("covariates")
def _squared_norm(rows: Block) -> FloatArray:
    """Squared norm of the covariates, centred to [-1/2, 1/2], without the intercept."""
    squares = np.zeros(len(rows.covariates))
    for column in rows.covariates.T[1:]:
        squares += (np.clip(column, 0.0, 1.0) - 0.5) ** 2
    return squares


@reads("covariates")
def _centred(rows: Block) -> FloatArray:
    return rows.covariates[:, 1:] - 0.5 if rows.covariates.shape[1] > 1 else np.zeros(rows.size)


def covariate_spread(curator: Curator, share: str) -> tuple[Noisy, Noisy]:
    """Release sum |z|^2 and |sum z|, z the covariates centred to [-1/2, 1/2].

    Together they give the mean variance of a covariate. Each costs half of the share.
    """
    m = max(curator.width - 1, 1)
    half = np.full(m, 0.5)
    squares = curator.sums(
        "spread of covariates", _squared_norm, Box(0, m / 4.0), share=share, part=0.5
    )
    label = "centre of covariates"
    return squares, curator.norm_of_sum(label, _centred, Box(-half, half), share=share, part=0.5)


def propensity(curator: Curator) -> tuple[FloatArray, float, float]:
    """Released weights (constant first), how unreliable they are, and what noise may hide in them.

    Unreliable is the share of noise in the weights: its expected size, which depends on how far the
    covariates spread (released too), against the size of the weights that came out. Where noise
    alone gives weights of that size in one of twenty cases, they are taken for noise. Log odds of
    treatment that vary by ``hidden`` would then go unseen.
    """
    n, d = curator.n, curator.width
    epsilon, delta = curator.epsilon(_P), curator.delta(_P)
    model = propensity_model(curator, default_strength(n, d, epsilon, delta), 0.0, _P)
    squares, mean = covariate_spread(curator, "spread")
    centre = max(float(mean), 0.0) / n
    doubt = math.hypot(math.sqrt(squares.variance), 2.0 * centre * math.sqrt(mean.variance)) / n
    variance = float(squares) / n - centre**2 - 1.5 * doubt  # rather too little than too much
    spread = min(max(variance / max(d - 1, 1), 1e-4), 0.25)
    noise = weight_noise(n, d, epsilon, delta, spread)[0] ** 2 * max(d - 1, 1)
    size = float(np.sum(model.value[1:] ** 2))
    weights = np.concatenate([[-0.5 * model.value[1:].sum()], model.value]) / unit_norm(d)
    tail = 1.0 + 1.64 * math.sqrt(5.0 / max(d - 1, 1))  # squares of Laplace noise vary by sqrt(5)
    hidden = math.sqrt(tail * noise * spread) / unit_norm(d)
    return weights, noise / size if size > tail * noise else 1.0, hidden


def cuts_for(curator: Curator, weights: FloatArray, blocks: int) -> FloatArray:
    """Cuts at the quantiles of a noisy histogram, dropped where an arm would be nearly empty."""
    reach = np.abs(weights[2:]).sum() / 2.0  # scores that rows in [0, 1]^d can have
    middle = weights[0] + weights[1] + weights[2:].sum() / 2.0
    edges = sigmoid(middle + np.linspace(-0.8, 0.8, _BINS + 1) * reach)
    edges[[0, -1]] = 0.0, 1.0
    noisy = block_counts(curator, "histogram of scores", weights, edges[1:-1], "blocks")
    running = np.concatenate([np.zeros((2, 1)), np.cumsum(noisy.value, axis=1)], axis=1)
    total = np.maximum.accumulate(np.maximum(running.sum(axis=0), 0.0))
    cuts = np.interp(np.arange(1, blocks) / blocks, total / max(total[-1], 1.0), edges)
    least = max(20.0, 2.0 * noisy.scale)
    kept: list[float] = []
    last = np.zeros(2)
    for cut in cuts:
        here = np.array([np.interp(cut, edges, arm) for arm in running])
        if (here - last >= least).all() and (running[:, -1] - here >= least).all():
            kept.append(float(cut))
            last = here
    return np.array(kept)


@dataclass(frozen=True)
class Blocks:
    """Released counts and sums by arm and block, and the effect as a linear form in the sums.

    A share ``left`` of the confounding survives the blocks, so that plain = effect + bias and
    blocked = effect + left * bias, where plain is the difference without blocks. Both are known:
    effect = (blocked - left * plain) / (1 - left). ``form`` holds the coefficients of the sums.
    Where more than `MOST_LEFT` survives nothing is corrected, because that would be mostly noise.
    """

    size: FloatArray
    mean: FloatArray
    form: FloatArray
    effect: float
    left: float
    shift: float
    sums: Noisy
    counts: Noisy

    @classmethod
    def of(
        cls, counts: Noisy, sums: Noisy, half: float, n: int, estimand: str, left: float
    ) -> Blocks:
        size = np.maximum(counts.value, 1.0)
        size *= n / size.sum()
        by = ESTIMANDS[estimand].population(size[TREATED], size[CONTROL])
        blocked = by / by.sum() / size
        plain = np.ones_like(size) / size.sum(axis=1, keepdims=True)
        left = left if left <= MOST_LEFT else 0.0
        form = (blocked - left * plain) / (1.0 - left)
        mean = np.clip(sums.value / size, -half, half)
        effect, unblocked, within = (
            float(np.sum(_SIGN * f * size * mean)) for f in (form, plain, blocked)
        )
        return cls(size, mean, form, effect, left, unblocked - within, sums, counts)

    def noise(self) -> tuple[tuple[float, ...], float]:
        """Scales of the Laplace terms and variance of the Gaussian ones, by linearisation."""
        laplace: list[float] = []
        gaussian = 0.0
        for slopes, noisy in ((self.form, self.sums), (self.form * self.mean, self.counts)):
            scales = np.abs(slopes).reshape(-1) * noisy.scale
            if noisy.gaussian:
                gaussian += float(np.sum(scales**2))
            else:
                laplace += [float(b) for b in scales if b > 0]
        return tuple(laplace), gaussian

    def allowance(self) -> float:
        """Variance for the correction, which varies by about 0.7 of its size (Laplace, d = 10)."""
        return (0.7 * self.left / (1.0 - self.left) * self.shift) ** 2
