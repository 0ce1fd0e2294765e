"""The p-value of a randomisation test for an outcome of 0 and 1, from two noisy numbers.

The sharp null hypothesis says that treatment changes nobody's outcome. Then the number M of
successes is what it would have been under any other assignment, and all that is random is the
assignment, whose distribution the design gives, and the noise, whose distribution is known: both
exactly. So the distribution of what was released is known but for M. Released are

    M' = M + noise,    T' = sum of (t - p)(y - c) + noise,

p being the chance, or the share, of treatment. Of M successes A are treated: A is binomial
where everybody was treated with chance p, and hypergeometric where a fixed number was. In the
latter case c does not matter, because the t - p add up to zero; it is 1/2, where a record moves the
sum least. In the former the sum varies by p (1 - p) [M (1 - c)^2 + (n - M) c^2], and c is 0, 1/2 or
1, as the released M' makes it vary least, noise included. With p = c = 1/2 the distribution does
not depend on M.

The statistic is W = T' / s(M'), s^2 the variance that T' would have if M was M'. Given M its
distribution is
that of a sum over the values that M' can have. The p-value is the largest over a confidence set of
M that fails with chance `GAMMA`, plus that chance (Berger and Boos 1994), so it is at most alpha
with chance at most alpha, in samples of any size. The statistic is nearly free of M, so that hardly
anything is lost by the largest.

References
----------
Berger and Boos (1994), P values maximized over a confidence set for the nuisance parameter, Journal
of the American Statistical Association 89. Fisher (1935), The design of experiments.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dpeffects.arrays import FloatArray, IntArray

GAMMA = 1e-4
"""Chance that the confidence set of the number of successes fails: no p-value is smaller."""
_LEFT_OUT = 1e-7
"""Chance of released numbers of successes that are not looked at; it counts as extreme."""
_MOST = 600
"""Numbers of successes that are looked at; those between them add a factor (`p_value`)."""
CENTRES = ("successes", "both", "failures")
"""Whose treatment counts in the sum: that of records with y - c not 0, for c = 0, 1/2 and 1."""


@dataclass(frozen=True)
class Assignment:
    """How treatment was assigned to ``n`` records: with chance, or to a share of, ``r`` / ``s``.

    ``fixed`` says that the number of treated records was fixed.
    """

    n: int
    r: int
    s: int
    fixed: bool

    @property
    def treated(self) -> int:
        """Number of treated records, where it was fixed; else about that."""
        return round(self.n * self.r / self.s)

    def scores(self, centre: str) -> tuple[int, int, int, int]:
        """What treated and control successes, treated and control failures add to the sum.

        They are s (t - p)(y - c), and twice that for c = 1/2: whole numbers, which noise on whole
        numbers is added to.
        """
        treated, control = self.s - self.r, -self.r
        of_success = (treated, control) if centre != "failures" else (0, 0)
        of_failure = (-treated, -control) if centre != "successes" else (0, 0)
        return (*of_success, *of_failure)

    def reach(self, centre: str) -> int:
        """How far one record moves the sum."""
        scores = self.scores(centre)
        return max(scores) - min(scores)

    def variance(self, successes: FloatArray, centre: str) -> FloatArray:
        """Variance of the sum over assignments."""
        n, m, each = self.n, successes, float(self.r * (self.s - self.r))
        if self.fixed:
            return 4.0 * each * m * (n - m) / max(n - 1, 1)
        return each * {"successes": m, "both": n + 0.0 * m, "failures": n - m}[centre]

    def sums(self, successes: int, centre: str) -> tuple[FloatArray, FloatArray]:
        """Sums that assignments give, and their chances; the rarest are left out."""
        n, m, r, s, p = self.n, successes, self.r, self.s, self.r / self.s
        if self.fixed:
            treated, chance = _hypergeometric(n, m, self.treated)
            return 2.0 * (float(s) * treated - float(r) * m), chance
        if centre == "both":  # successes that are treated, and failures that are not
            right, chance = _sum_of(_binomial(m, p), _binomial(n - m, 1.0 - p))
            return s * right - (float(s - r) * (n - m) + float(r) * m), chance
        of, sign = (m, 1.0) if centre == "successes" else (n - m, -1.0)
        treated, chance = _binomial(of, p)
        return sign * (s * treated - float(r) * of), chance


@dataclass(frozen=True)
class RandomisationStatistic:
    """W, as a function of what is released: the sum, in standard deviations by the number M'.

    Scales of discrete Laplace noise in whole numbers: ``unit`` is that of a sum which a record
    moves by 1, ``count`` that of the number of successes.
    """

    assignment: Assignment
    unit: float
    count: float

    @cached_property
    def step(self) -> int:
        """M' is rounded to multiples of this, much finer than its noise."""
        return max(1, math.floor(self.count / 2.0))

    def bucket(self, released: float) -> int:
        """Which multiple it is rounded to."""
        return math.floor((released + self.step // 2) / self.step)

    def scale(self, centre: str) -> float:
        """Scale of the noise in the sum."""
        return self.unit * self.assignment.reach(centre)

    def spreads(self, buckets: IntArray) -> tuple[IntArray, FloatArray]:
        """The centre for each rounded M', and the standard deviation of the sum with it.

        An effect moves all sums by the same, but that the one with both kinds counts double; the
        centre is that for which the sum tells an effect best.
        """
        taken = np.clip(buckets * float(self.step), 0.0, float(self.assignment.n))
        sd = np.stack(
            [
                np.sqrt(self.assignment.variance(taken, x) + 2.0 * self.scale(x) ** 2)
                for x in CENTRES
            ]
        )
        # the last digits of a scale must not decide a tie
        best = np.argmin(sd / np.array([[1.0], [2.0 - 1e-9], [1.0 - 1e-9]]), axis=0)
        if self.assignment.fixed:
            best = np.full_like(best, CENTRES.index("both"))
        return best, np.take_along_axis(sd, best[None], axis=0)[0]

    def centre(self, released: float) -> str:
        """The centre that a released number of successes leads to."""
        best, _ = self.spreads(np.array([self.bucket(released)]))
        return CENTRES[int(best[0])]

    def of(self, total: float, successes: float) -> float:
        """The statistic of a release."""
        _, sd = self.spreads(np.array([self.bucket(successes)]))
        return total / float(sd[0])


def p_value(
    statistic: RandomisationStatistic, total: float, successes: float, alternative: str
) -> float:
    """The p-value of no effect on anybody, from a released sum and number of successes.

    Where there are very many numbers of successes to look at, some are, and those between get a
    factor: one more success changes the chance of whatever is released by at most exp(epsilon),
    because that is what privacy says.

    Examples
    --------
    >>> trial = Assignment(n=100, r=1, s=2, fixed=True)
    >>> nearly_no_noise = RandomisationStatistic(trial, 1e-3, 1e-3)
    >>> round(p_value(nearly_no_noise, 20.0, 50.0, "two-sided"), 3)  # 30 of 50 against 20 of 50
    0.071
    """
    n, unit, count = statistic.assignment.n, statistic.unit, statistic.count
    half = math.ceil(_laplace_end(GAMMA, count))
    low, high = (min(max(math.floor(successes) + x, 0), n) for x in (-half, half))
    step = math.ceil((high - low + 1) / _MOST)
    looked_at = range(min(low + step // 2, high), high + 1, step)
    between = max(high - looked_at[-1], step // 2)
    more = math.exp(min(between * (1.0 / unit + 1.0 / count), 700.0))
    beyond = _Beyond(statistic, statistic.of(total, successes), alternative, (low, high))
    return min(1.0, more * max(map(beyond, looked_at)) + GAMMA)


class _Beyond:
    """Chance of a statistic that is as extreme as w, or more so, by the number of successes.

    ``between`` are the numbers of successes that will be asked for, by default all.
    """

    def __init__(
        self,
        statistic: RandomisationStatistic,
        w: float,
        alternative: str,
        between: tuple[int, int] | None = None,
    ) -> None:
        least, most = between or (0, statistic.assignment.n)
        self.statistic = statistic
        self.signs = {"greater": (1.0,), "less": (-1.0,)}.get(alternative, (1.0, -1.0))
        self.w = abs(w) if len(self.signs) == 2 else w * self.signs[0]
        self.far = math.ceil(_laplace_end(_LEFT_OUT, statistic.count))
        high = min(statistic.bucket(most + self.far), statistic.bucket(statistic.assignment.n) + 1)
        self.ends = low, high = max(statistic.bucket(least - self.far), 0), high
        self.best, sd = statistic.spreads(np.arange(low, high + 1))
        limits = self.w * sd
        # what was released is never below its own limit
        self.limits = np.ceil(limits - 1e-9 * np.abs(limits) - 1e-9)

    def __call__(self, successes: int) -> float:
        """That chance, for one number of successes."""
        statistic, count, step = self.statistic, self.statistic.count, self.statistic.step
        first, last = (statistic.bucket(successes + x) for x in (-self.far, self.far))
        ends = np.arange(first, last + 2) * step - step // 2 - successes
        chance = -np.diff(_laplace_tail(ends.astype(float), count))
        # numbers beyond 0 and n are rounded to these: their centres and limits are the same
        low, high = self.ends
        within = np.clip(np.arange(first, last + 1), low, high) - low
        best, limits = self.best[within], self.limits[within]
        found = len(self.signs) * _LEFT_OUT
        for code in set(best.tolist()):
            own, which = np.unique(limits[best == code], return_inverse=True)
            weight = np.bincount(which, chance[best == code])
            sums, each = statistic.assignment.sums(successes, CENTRES[code])
            left_out = max(0.0, 1.0 - float(each.sum()))
            for sign in self.signs:
                tails = _laplace_tail(own[:, None] - sign * sums, statistic.scale(CENTRES[code]))
                found += float(weight @ (tails @ each + left_out))
        return found


def _laplace_tail(x: FloatArray, scale: float) -> FloatArray:
    """Chance that discrete Laplace noise is at least a whole number."""
    one = 1.0 / (1.0 + math.exp(-1.0 / scale))
    up = x > 0.0
    size = one * np.exp(-np.where(up, x, 1.0 - x) / scale)
    return np.where(up, size, 1.0 - size)


def _laplace_end(chance: float, scale: float) -> float:
    """Where both tails of discrete Laplace noise together have no more than a chance."""
    return max(0.0, scale * math.log(2.0 / chance))


def _window(mean: float, sd: float, low: int, high: int) -> FloatArray:
    """Whole numbers that matter of a distribution with this mean and standard deviation."""
    far = 8.0 * sd + 12.0
    first, last = max(low, math.floor(mean - far)), min(high, math.ceil(mean + far))
    return np.arange(first, last + 1, dtype=float)


def _ways(of: float, some: FloatArray) -> FloatArray:
    """Logarithm of the number of ways to choose some of these."""
    from scipy.special import gammaln

    return np.asarray(gammaln(of + 1.0) - gammaln(some + 1.0) - gammaln(of - some + 1.0))


def _binomial(n: int, p: float) -> tuple[FloatArray, FloatArray]:
    """Values and chances of a binomial distribution."""
    k = _window(n * p, math.sqrt(n * p * (1.0 - p)), 0, n)
    return k, np.exp(_ways(n, k) + k * math.log(p) + (n - k) * math.log1p(-p))


def _hypergeometric(n: int, successes: int, treated: int) -> tuple[FloatArray, FloatArray]:
    """Values and chances of how many successes are treated, of a fixed number of treated.

    That of scipy takes a thousand times as long at n 100,000.
    """
    m, k = float(successes), float(treated)
    sd = math.sqrt(k * m / n * (1.0 - m / n) * (n - k) / max(n - 1, 1))
    a = _window(k * m / n, sd, max(0, treated + successes - n), min(treated, successes))
    return a, np.exp(_ways(m, a) + _ways(n - m, k - a) - _ways(n, np.array(k)))


def _sum_of(
    one: tuple[FloatArray, FloatArray], other: tuple[FloatArray, FloatArray]
) -> tuple[FloatArray, FloatArray]:
    """Values and chances of a sum of two independent whole numbers."""
    a, b = one[1], other[1]
    size = a.size + b.size - 1
    if min(a.size, b.size) < 64:
        chance = np.convolve(a, b)
    else:
        chance = np.fft.irfft(np.fft.rfft(a, size) * np.fft.rfft(b, size), size)
    return one[0][0] + other[0][0] + np.arange(size), np.maximum(chance, 0.0)
