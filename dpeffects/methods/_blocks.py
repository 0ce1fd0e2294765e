"""Blocks of a private propensity score: cuts, and the effect from released counts and sums."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dpeffects.methods._plan import MOST_LEFT, logit_noise, share_left
from dpeffects.privacy.curator import Curator
from dpeffects.privacy.erm import default_strength, unit_norm
from dpeffects.privacy.guarantee import Noisy

FloatArray = npt.NDArray[np.float64]

TREATED, CONTROL = 0, 1
_BINS = 64
_SIGN = np.array([[1.0], [-1.0]])
_P = "propensity"


def propensity(curator: Curator) -> tuple[FloatArray, float]:
    """Released weights of the encoded covariates, constant first, and the noise in the log odds."""
    n, d = curator.n, curator.width
    epsilon, delta = curator.epsilon(_P), curator.delta(_P)
    model = curator.propensity_model(default_strength(n, d, epsilon, delta), 0.0, _P)
    weights = np.concatenate([[-0.5 * model.value[1:].sum()], model.value]) / unit_norm(d)
    return weights, logit_noise(n, d, epsilon, delta)[0]


def cuts_for(
    curator: Curator, weights: FloatArray, blocks: int, noise: float
) -> tuple[FloatArray, float]:
    """Cuts at the quantiles of a noisy histogram, and the share of confounding they leave.

    A cut is dropped where an arm would be nearly empty. What is left is the noise in the log odds
    against their spread in the histogram, and what so many blocks cannot remove (see `plan`).
    """
    edges = np.linspace(0.0, 1.0, _BINS + 1)
    noisy = curator.block_counts("histogram of scores", weights, edges[1:-1], "blocks")
    counts = np.maximum(noisy.value, 0.0)
    running = np.concatenate([np.zeros((2, 1)), np.cumsum(counts, axis=1)], axis=1)
    total = running.sum(axis=0)
    cuts = np.interp(np.arange(1, blocks) / blocks, total / max(total[-1], 1.0), edges)
    least = max(20.0, 4.0 * noisy.scale)
    kept: list[float] = []
    last = np.zeros(2)
    for cut in cuts:
        here = np.array([np.interp(cut, edges, arm) for arm in running])
        if (here - last >= least).all() and (running[:, -1] - here >= least).all():
            kept.append(float(cut))
            last = here
    middle = (edges[1:] + edges[:-1]) / 2.0
    logits = np.log(middle / (1.0 - middle))
    mass = np.where(counts.sum(axis=0) > 2.0 * noisy.scale, counts.sum(axis=0), 0.0)
    mass = mass / max(mass.sum(), 1.0)
    spread = float(mass @ logits**2 - (mass @ logits) ** 2)
    return np.array(kept), share_left(noise**2 / max(spread, noise**2, 1e-12), len(kept) + 1)


@dataclass(frozen=True)
class Blocks:
    """Released counts and sums by arm and block, and the effect as a linear form in the sums.

    A share ``left`` of the confounding survives the blocks, so that plain = effect + bias and
    blocked = effect + left * bias, where plain is the difference without blocks. Both are known:
    effect = (blocked - left * plain) / (1 - left). ``form`` holds the coefficients of the sums.
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
        by = {"ATE": size.sum(axis=0), "ATT": size[TREATED], "ATC": size[CONTROL]}[estimand]
        blocked = by / by.sum() / size
        plain = np.ones_like(size) / size.sum(axis=1, keepdims=True)
        left = min(left, MOST_LEFT)
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
