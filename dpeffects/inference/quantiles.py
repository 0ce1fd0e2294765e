"""Quantiles of two distributions that a table of records by arm and bin gives.

A quantile is where the cumulative share of an arm reaches p: shares with noise, made increasing,
and interpolated within a bin. Its interval is that of the share, carried to the outcome (Woodruff
1952): from where the share is z standard errors below p to where it is as many above. So it needs
no density. Within a bin that is much denser than its neighbours, or less dense, nobody knows where
the records are (many may share one value), and the interval reaches to the end of the bin; below
`_WHOLE` standard errors it reaches a part of the way, so that p-values are graded too. An interval
for a difference has those of all pairs of shares that are together within z errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from dpeffects.arrays import BoolArray, FloatArray, IntArray
from dpeffects.inference.bins import OutcomeRange
from dpeffects.inference.noisy import noise_ratio
from dpeffects.inference.simultaneous import MaxNormalDistribution, critical_value, reach
from dpeffects.inference.tables import ArmTable

_UNEVEN = 2.0
"""A bin is uneven where a neighbour has so many times its density, or it that of the neighbour."""
_COARSE = 1.5
"""It is coarse where its share is so many standard errors."""
_FAR = 2.0
"""Beyond a ratio of both ends, distances from zero are interpolated by their logarithms."""
_WHOLE = 1.2
"""Standard errors from which on an interval reaches to the ends of such a bin: those at 80 % and
above do."""
_ANGLES = 13
"""Points of a quarter of an ellipse at which shares of both arms are tried."""


class IntervalLimits(NamedTuple):
    """Values with the ends of their intervals."""

    value: FloatArray
    lower: FloatArray
    upper: FloatArray


@dataclass(frozen=True, eq=False)
class Distributions:
    """Distributions of the outcome in two arms, (treated, control).

    ``ends`` are the upper ends of the bins, but for the last, whose end is that of the range.
    """

    table: ArmTable
    ends: FloatArray
    scale: OutcomeRange

    @cached_property
    def edges(self) -> FloatArray:
        """Upper ends of all bins."""
        return np.append(self.ends, self.scale.upper)

    @cached_property
    def cumulative(self) -> FloatArray:
        """Shares of records up to the end of each bin, increasing: (2, bins)."""
        from scipy.optimize import isotonic_regression

        raw = np.clip(np.cumsum(self.table.shares, axis=1)[:, :-1], 0.0, 1.0)
        rows = [isotonic_regression(row).x for row in raw]
        return np.column_stack([np.clip(np.stack(rows), 0.0, 1.0), np.ones(2)])

    def _bin(self, arm: int, p: FloatArray) -> tuple[IntArray, FloatArray]:
        """The bin in which an arm's share reaches p, and how far into it."""
        up = self.cumulative[arm]
        at = np.minimum(np.searchsorted(up, p, side="left"), up.size - 1)
        below = np.where(at > 0, up[at - 1], 0.0)
        share = up[at] - below
        into = np.divide(p - below, share, out=np.ones_like(p), where=share > 0.0)
        return at, np.clip(into, 0.0, 1.0)

    @cached_property
    def _smooth(self) -> list[Any]:
        """Smooth inverses of the cumulative shares of both arms, None where they have few steps."""
        from scipy.interpolate import PchipInterpolator

        found: list[Any] = []
        for up in self.cumulative:
            rising = np.append(np.diff(up) > 1e-12, True)
            steps = up[rising], self.edges[rising]
            found.append(PchipInterpolator(*steps) if rising.sum() > 2 else None)
        return found

    def _inverse(self, arm: int, p: FloatArray) -> tuple[FloatArray, IntArray]:
        """Where the cumulative share of an arm is p, and in which bin."""
        at, into = self._bin(arm, p)
        low, high = self.edges[np.maximum(at - 1, 0)], self.edges[at]
        found = low + into * (high - low)
        if (smooth := self._smooth[arm]) is not None:
            found = np.clip(smooth(np.clip(p, smooth.x[0], smooth.x[-1])), low, high)
        a, b = low - self.scale.anchor, high - self.scale.anchor
        near, far = np.minimum(np.abs(a), np.abs(b)), np.maximum(np.abs(a), np.abs(b))
        wide = (a * b > 0.0) & (far > _FAR * near)
        logs = [np.log(np.where(wide, np.abs(x), 1.0)) for x in (a, b)]
        away = np.sign(b) * np.exp((1.0 - into) * logs[0] + into * logs[1])
        found = np.where(wide, np.clip(self.scale.anchor + away, low, high), found)
        return np.where(self.scale.is_point(self.ends)[at], self.edges[at], found), at

    @cached_property
    def _uneven(self) -> BoolArray:
        """Bins whose density is far from that of a neighbour: (2, bins)."""
        widths = np.diff(self.edges, prepend=self.scale.lower)
        points = self.scale.is_point(self.ends)
        shares = np.diff(self.cumulative, axis=1, prepend=0.0)
        density = np.where(points, np.nan, shares / np.where(points, 1.0, widths))
        beyond = np.full((2, 1), np.nan)
        beside = np.hstack([beyond, density[:, :-1]]), np.hstack([density[:, 1:], beyond])
        low, high = np.fmin(beside[0], beside[1]), np.fmax(beside[0], beside[1])
        return np.asarray((density > _UNEVEN * low) | (high > _UNEVEN * density))

    def _errors(self, p: tuple[float, ...]) -> FloatArray:
        """Covariances of the cumulative shares where they are p: of treated, then of controls.

        The sampling error is that of a share of p; noise, and confounding that weights may leave,
        are those of the bins up to there.
        """
        if p not in self._known:
            found = [self._bin(arm, np.array(p)) for arm in (0, 1)]
            before = np.arange(self.edges.size)
            parts = [np.clip(at[:, None] + into[:, None] - before, 0.0, 1.0) for at, into in found]
            self._known[p] = self._covariance(np.array([p, p]), parts)
        return self._known[p]

    @cached_property
    def _known(self) -> dict[tuple[float, ...], FloatArray]:
        return {}

    def _covariance(self, p: FloatArray, parts: Sequence[FloatArray]) -> FloatArray:
        """Covariances of shares (2, k) of both arms that are made of parts of bins."""

        def shares(table: FloatArray) -> FloatArray:
            return np.concatenate([part @ row for part, row in zip(parts, table, strict=True)])

        dist, k = self.table.statistics(shares), p.shape[1]
        found = dist.noise + dist.left
        for arm, own in enumerate(p):
            sampling = np.minimum.outer(own, own) * (1.0 - np.maximum.outer(own, own))
            where = slice(arm * k, (arm + 1) * k)
            found[where, where] += sampling * self.table.unequal[arm] / self.table.sizes[arm]
        return np.asarray(found)

    def noise_ratios(self, p: Sequence[float]) -> FloatArray:
        """Noise in shares of both arms up to quantiles, (2, k), over the most of printed ones."""
        share, bins = np.asarray(p, float), self.edges.size
        below = np.stack([self._bin(arm, share)[0] + 1.0 for arm in (0, 1)])
        cells = below * (1.0 - share) ** 2 + (bins - below) * share**2
        by_arm = np.array(self.table.noise_variance) / self.table.sizes**2
        return np.asarray(noise_ratio(np.sqrt(cells * by_arm[:, None]), 1.0))

    def _ends(
        self, arm: int, p: FloatArray, errors: FloatArray, z: float | FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """The least and the most that an arm's quantiles can be, if its shares are just p."""
        value, at = self._inverse(arm, np.clip(p, 0.0, 1.0))
        shares = np.diff(self.cumulative[arm], prepend=0.0)
        coarse = self._uneven[arm][at] & (shares[at] > _COARSE * errors) & (at > 0)
        part = np.where(coarse, np.minimum(z / _WHOLE, 1.0), 0.0)
        low, high = self.edges[np.maximum(at - 1, 0)], self.edges[at]
        return self._shown(value - part * (value - low)), self._shown(value + part * (high - value))

    def _shown(self, values: FloatArray) -> FloatArray:
        """Quantiles of whole numbers are whole numbers."""
        return np.ceil(values - 1e-9) + 0.0 if self.scale.whole else values

    def _values(self, arm: int, p: FloatArray) -> FloatArray:
        return self._shown(self._inverse(arm, p)[0])

    def quantile(self, arm: int, p: Sequence[float], z: float) -> IntervalLimits:
        """Quantiles of an arm, with ends z standard errors of the share away."""
        errors, at = _sd(self._errors(tuple(p))).reshape(2, -1)[arm], np.asarray(p, float)
        value = self._values(arm, at)
        lower, _ = self._ends(arm, at - z * errors, errors, z)
        _, upper = self._ends(arm, at + z * errors, errors, z)
        return IntervalLimits(value, np.minimum(lower, value), np.maximum(upper, value))

    def difference(self, p: Sequence[float], z: float | FloatArray) -> IntervalLimits:
        """Quantiles of treated records minus those of controls.

        Shares of both arms that are together within z standard errors are tried. Their errors are
        independent, and a quantile grows with its share: so the least difference is on the quarter
        of an ellipse where treated shares are lower and those of controls higher, and intervals
        grow with z, which may be one for each quantile.
        """
        sd, at = _sd(self._errors(tuple(p))).reshape(2, -1), np.asarray(p, float)
        turn = np.linspace(0.0, np.pi / 2.0, _ANGLES)[:, None]
        moves = np.cos(turn), np.sin(turn)
        value = self._values(0, at) - self._values(1, at)
        low, high = (
            self._ends(0, at + sign * z * sd[0] * moves[0], sd[0], z)[side]
            - self._ends(1, at - sign * z * sd[1] * moves[1], sd[1], z)[1 - side]
            for side, sign in enumerate((-1.0, 1.0))
        )
        return IntervalLimits(
            value, np.minimum(low.min(axis=0), value), np.maximum(high.max(axis=0), value)
        )

    def reach(self, p: Sequence[float]) -> FloatArray:
        """How many standard errors intervals of differences need to have zero."""

        def limits(z: float | FloatArray) -> tuple[FloatArray, FloatArray]:
            found = self.difference(p, z)
            return found.lower, found.upper

        return reach(limits, 0.0, len(p))

    def at_once(self, p: Sequence[float]) -> MaxNormalDistribution:
        """The distribution of the largest error, in standard errors, of all these quantiles."""
        errors, k = self._errors(tuple(p)), len(p)
        sd = _sd(errors)
        correlation = errors / np.outer(sd, sd)
        return MaxNormalDistribution.of((correlation[:k, :k] + correlation[k:, k:]) / 2.0)

    def band(self, conf_level: float) -> tuple[IntervalLimits, IntervalLimits]:
        """Cumulative shares of both arms, with bands that hold everywhere in both at once."""
        k = self.ends.size
        sizes = self.table.sizes[:, None]  # two records more on each side, as Agresti and Coull
        p = (self.cumulative[:, :-1] * sizes + 2.0) / (sizes + 4.0)
        up_to = np.tri(k, k + 1)
        errors, found = self._covariance(p, (up_to, up_to)), []
        for arm, value in enumerate(self.cumulative):
            own = errors[arm * k : (arm + 1) * k, arm * k : (arm + 1) * k]
            z = critical_value(own, 1.0 - (1.0 - conf_level) / 2.0)
            reach = np.append(z * _sd(own), 0.0)
            ends = (np.clip(value + sign * reach, 0.0, 1.0) for sign in (-1.0, 1.0))
            found.append(IntervalLimits(value, *ends))
        return found[0], found[1]

    def beyond(self, p: float) -> bool:
        """Whether a quantile is at an end of the declared range, and may be beyond it.

        An end at zero is one that outcomes have, and so is that of a few whole numbers.
        """
        scale = self.scale
        if scale.whole and self.edges.size > scale.upper - scale.lower:
            return False
        limits = {scale.lower, scale.upper} - {0.0}
        return any(float(self.quantile(arm, (p,), 0.0).value[0]) in limits for arm in (0, 1))


def _sd(covariance: FloatArray) -> FloatArray:
    """Standard errors, never quite zero."""
    return np.asarray(np.sqrt(np.maximum(np.diag(covariance), 1e-300)))
