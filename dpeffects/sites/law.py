"""The law of a combination's error, from the laws of the sites' errors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from dpeffects.estimate import Estimate, Unavailable
from dpeffects.inference import Law, path, plausible_variances, tail_weights

Floats = npt.NDArray[np.float64]

_EXACT = 40
"""Sites whose error enters with its own law; what the others add is normal all but exactly."""
_ROWS = 4096


@dataclass(frozen=True)
class Errors:
    """The sites' errors: plausible sampling variances with their weights, and the noise.

    ``sampling`` and ``weights`` have one row for each site, ``mean`` and ``spread`` are the mean
    and the variance of the plausible sampling variance.
    """

    released: Floats
    scale: Floats
    largest: Floats
    gaussian: Floats
    laplace: tuple[tuple[float, ...], ...]
    mean: Floats
    spread: Floats

    @classmethod
    def of(cls, estimates: Sequence[Estimate]) -> Errors:
        """Read what the sites released; every one has a sampling variance."""
        released, scale, largest = np.array(
            [
                (s.value, s.noise_scale, s.largest)
                for s in (e.sampling for e in estimates)
                if not isinstance(s, Unavailable)
            ],
            dtype=float,
        ).T.reshape(3, -1)
        mean, spread = np.empty_like(scale), np.empty_like(scale)
        for i in range(0, scale.size, _ROWS):
            rows = slice(i, i + _ROWS)
            v, p = plausible_variances(released[rows], scale[rows], largest[rows])
            mean[rows] = (v * p).sum(axis=1)
            spread[rows] = (v**2 * p).sum(axis=1) - mean[rows] ** 2
        return cls(
            released=released,
            scale=scale,
            largest=largest,
            gaussian=np.array([e.gaussian for e in estimates], dtype=float),
            laplace=tuple(e.laplace for e in estimates),
            mean=mean,
            spread=np.maximum(spread, 0.0),
        )

    @property
    def variance(self) -> Floats:
        """Total private variance of each site."""
        return self.mean + self.gaussian + _moment(self.laplace, 2)

    @property
    def excess(self) -> Floats:
        """Excess kurtosis of each site's error, its variance being uncertain."""
        fourth = 12.0 / 2.0 * _moment(self.laplace, 4) + 3.0 * self.spread
        return fourth / self.variance**2

    def part(self, index: npt.NDArray[np.int64]) -> Errors:
        """Return some of the sites."""
        arrays = ("released", "scale", "largest", "gaussian", "mean", "spread")
        cut = {name: getattr(self, name)[index] for name in arrays}
        return replace(self, laplace=tuple(self.laplace[j] for j in index), **cut)


def _moment(laplace: Sequence[Sequence[float]], power: int) -> Floats:
    """2 sum(b^power) for each site: the variance for 2, a sixth of the fourth cumulant for 4."""
    return np.array([2.0 * sum(b**power for b in scales) for scales in laplace], dtype=float)


class SumLaw(Law):
    """The law of sum(w_j e_j) for independent errors e_j of the sites.

    Its characteristic function is the product of the sites' ones, each an average over the
    site's plausible sampling variances times the factors of its noise.
    """

    def __init__(self, errors: Errors, weights: Floats) -> None:
        share = weights**2 * errors.variance
        order = np.argsort(-share, kind="stable")
        rest = float(share[order[_EXACT:]].sum())
        index = order[:_EXACT]
        index = index[share[index] > 0.0]
        self.nodes = self.kernel = np.empty(0, dtype=complex)
        self.unit = math.sqrt(float(share.sum()))
        if self.unit == 0.0:
            return
        own, w = errors.part(index), weights[index] / self.unit
        v, p = plausible_variances(own.released, own.scale, own.largest)
        v, normal = v * w[:, None] ** 2, rest / self.unit**2 + float(w**2 @ own.gaussian)
        scales = np.array([b * wj for bs, wj in zip(own.laplace, w, strict=True) for b in bs])
        matters = np.where(p > 1e-13, v, 0.0).max(axis=1)
        widest = math.sqrt(normal + float(matters.sum()) + 2.0 * float(scales @ scales))
        nodes = path(widest, float(scales.max(initial=0.0)))
        log_phi = -0.5 * normal * nodes**2
        for scale in scales:
            log_phi -= np.log1p((scale * nodes) ** 2)
        phi = np.exp(log_phi)
        for vj, pj in zip(v, p, strict=True):
            phi *= pj @ np.exp(np.multiply.outer(-0.5 * vj, nodes**2))
        kernel = tail_weights() * phi
        keep = np.abs(kernel) > 1e-18
        self.nodes, self.kernel = nodes[keep], kernel[keep]


@dataclass(frozen=True)
class StudentLaw:
    """Student's t with ``df`` degrees of freedom times ``scale``."""

    scale: float
    df: int

    def tail(self, x: float) -> float:
        """Return the probability of an error above ``x``, for x >= 0."""
        from scipy.special import stdtr

        return float(stdtr(self.df, -x / self.scale))

    def upper_point(self, tail: float) -> float:
        """Return the x >= 0 exceeded with probability ``tail``."""
        from scipy.special import stdtrit

        return self.scale * float(stdtrit(self.df, 1.0 - tail))
