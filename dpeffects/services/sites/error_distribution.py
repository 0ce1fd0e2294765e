"""The distribution of a combination's error, from the distributions of the sites' errors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from dpeffects.inference.estimate import Estimate, Unavailable
from dpeffects.inference.intervals import (
    SymmetricDistribution,
    path,
    plausible_variances,
    tail_weights,
)

Floats = npt.NDArray[np.float64]

_EXACT = 40
"""Sites whose error enters with its own distribution; the others add what is almost normal."""
_NOTHING = math.log(1e-20)
_ROWS = 512
"""Sites worked on at a time, so that their quadrature stays in the cache."""


@dataclass(frozen=True)
class SiteErrors:
    """The errors of several sites: a normal sampling error of uncertain variance, noise, bias.

    One entry a site. ``released``, ``scale`` and ``largest`` are the released sampling variance,
    the scale of the noise inside it and its bound; ``mean`` and ``spread`` the mean and variance of
    the sampling variances that this leaves plausible, ``slope`` the derivative of the mean by what
    was released. ``gaussian`` is the variance of all normal noise in the estimate, ``noise`` that
    of all noise and ``fourth`` the fourth cumulant of its Laplace part; ``bias`` is what is allowed
    for possible biases, as a variance.

    Sampling errors and noise of different sites are independent. Biases need not be: the same clip
    and the same formula err in the same direction everywhere. So they are taken as common to all
    sites, which is the cautious choice: their standard deviations add up, not their variances.
    """

    released: Floats
    scale: Floats
    largest: Floats
    gaussian: Floats
    laplace: tuple[tuple[float, ...], ...]
    noise: Floats
    fourth: Floats
    bias: Floats
    mean: Floats
    spread: Floats
    slope: Floats

    @classmethod
    def of(cls, estimates: Sequence[Estimate]) -> SiteErrors:
        """Read what the sites released; every one has a sampling variance."""
        known = [e.sampling for e in estimates if not isinstance(e.sampling, Unavailable)]
        released, scale, largest = (
            np.fromiter((getattr(s, name) for s in known), float, len(known))
            for name in ("value", "noise_scale", "largest")
        )
        moments = [_moments(released[i], scale[i], largest[i]) for i in parts(scale)]
        mean, spread, slope = np.concatenate([np.empty((3, 0)), *moments], axis=1)
        laplace = tuple(e.laplace for e in estimates)
        normal = [e.gaussian + sum(p.variance for p in e.parts if p.noise) for e in estimates]
        gaussian = np.array(normal, dtype=float)
        square, fourth = _power_sums(laplace)
        return cls(
            released=released,
            scale=scale,
            largest=largest,
            gaussian=gaussian,
            laplace=laplace,
            noise=gaussian + 2.0 * square,
            fourth=12.0 * fourth,
            bias=np.array([e.bias_variance for e in estimates], dtype=float),
            mean=mean,
            spread=spread,
            slope=slope,
        )

    @property
    def variance(self) -> Floats:
        """Total private variance of each site."""
        return self.mean + self.noise + self.bias

    def at_least(self, least: Floats) -> SiteErrors:
        """The same with sampling variances that are not below some."""
        low = self.mean < least
        if not low.any():
            return self
        new = dict.fromkeys(("released", "largest", "mean"), least)
        new |= dict.fromkeys(("scale", "spread", "slope"), np.zeros_like(least))
        raised: dict[str, Any] = {k: np.where(low, x, getattr(self, k)) for k, x in new.items()}
        return replace(self, **raised)

    def common_bias(self, weights: Floats) -> float:
        """Variance of the weighted sum of the biases, which are taken as common to all sites."""
        return float(weights @ np.sqrt(self.bias)) ** 2

    @property
    def excess(self) -> Floats:
        """Excess kurtosis of each site's error, the uncertainty of its variance included."""
        return (self.fourth + 3.0 * self.spread) / self.variance**2

    def plausible(self) -> tuple[Floats, Floats]:
        """Return plausible sampling variances and their weights, one row a site."""
        return plausible_variances(self.released, self.scale, self.largest)

    def part(self, index: npt.NDArray[np.int64]) -> SiteErrors:
        """Return some of the sites."""
        names = [f.name for f in fields(self) if f.name != "laplace"]
        arrays = {name: getattr(self, name)[index] for name in names}
        return SiteErrors(laplace=tuple(self.laplace[j] for j in index), **arrays)


def parts(sites: Floats | npt.NDArray[np.int64]) -> list[slice]:
    """Sites worked on at a time."""
    return [slice(i, i + _ROWS) for i in range(0, sites.size, _ROWS)]


def _moments(released: Floats, scale: Floats, largest: Floats) -> Floats:
    """Mean and variance of the plausible variance v, and the mean's derivative.

    By the released value r, a mean over the density prior(v) exp(-|r - v| / s) has the derivative
    cov(v, sign(v - r)) / s; where r is not among the possible variances the sign is constant.
    """
    v, p = plausible_variances(released, scale, largest, points=20)
    mean = (v * p).sum(axis=1)
    spread = ((v - mean[:, None]) ** 2 * p).sum(axis=1)
    side = np.where(v > released[:, None], p, -p)
    inside = (released > 0.0) & (released < largest) & (scale > 0.0)
    slope = np.ones_like(mean)
    np.divide((v * side).sum(axis=1) - mean * side.sum(axis=1), scale, out=slope, where=inside)
    slope[(released <= 0.0) | (released >= largest)] = 0.0
    return np.stack([mean, spread, slope])


def _power_sums(laplace: Sequence[Sequence[float]]) -> tuple[Floats, Floats]:
    """Sums of the squares and of the fourth powers of each site's Laplace scales."""
    site = np.repeat(np.arange(len(laplace)), [len(scales) for scales in laplace])
    square = np.fromiter(chain.from_iterable(laplace), dtype=float, count=site.size) ** 2
    sums = (np.bincount(site, x, len(laplace)) for x in (square, square**2))
    first, second = (total.astype(np.float64) for total in sums)
    return first, second


class WeightedSumDistribution(SymmetricDistribution):
    """The distribution of sum(w_j e_j) for independent errors e_j of the sites and common biases.

    Its characteristic function is the product of the sites' ones, each an average over the
    site's plausible sampling variances times the factors of its noise. ``factor`` multiplies the
    sampling variances. The attribute ``unit`` is the standard deviation.
    """

    def __init__(self, errors: SiteErrors, weights: Floats, factor: Floats | None = None) -> None:
        factor = np.ones_like(weights) if factor is None else factor
        share = weights**2 * (factor * errors.mean + errors.noise)
        bias = errors.common_bias(weights)
        order = np.argsort(-share, kind="stable")
        index = order[:_EXACT][share[order[:_EXACT]] > 0.0]
        self.nodes = self.kernel = np.empty(0, dtype=complex)
        self.unit = math.sqrt(float(share.sum()) + bias)
        if self.unit == 0.0:
            return
        own, w = errors.part(index), weights[index] / self.unit
        v, p = own.plausible()
        v = v * (factor[index] * w**2)[:, None]
        rest = (float(share[order[_EXACT:]].sum()) + bias) / self.unit**2
        normal = rest + float(w**2 @ own.gaussian)
        scales = np.array([b * wj for bs, wj in zip(own.laplace, w, strict=True) for b in bs])
        widest = float(np.where(p > 1e-13, v, 0.0).max(axis=1).sum()) + normal
        nodes = path(math.sqrt(widest + 2.0 * float(scales @ scales)), scales.max(initial=0.0))
        log_phi = -0.5 * normal * nodes**2
        for scale in scales:
            log_phi -= np.log1p((scale * nodes) ** 2)
        least = float(v.min(axis=1).sum())
        matters = (log_phi - 0.5 * least * nodes**2).real > _NOTHING
        nodes, phi = nodes[matters], np.exp(log_phi[matters])
        for vj, pj in zip(v, p, strict=True):
            phi *= pj @ np.exp(np.multiply.outer(-0.5 * vj, nodes**2))
        self.nodes, self.kernel = nodes, tail_weights()[matters] * phi
