"""Ridge-penalised logistic regression and the sensitivity of its weights.

The objective is (1/n) sum log(1 + exp(-s_i x_i'w)) + (penalty/2) |w|^2 with s_i = +1 for treated
and -1 for control, rows in [0, 1]^d; the intercept is a column like any other and is penalised.

`Logistic` is the same problem on rows of norm at most 1 (`unit_rows`), with sums in place of means:
its ``strength`` is n times the penalty. It is what objective perturbation works on (claims 21, 22).

Sums over records are exact: each record's part of a gradient is rounded to 2^-44, and the Hessian,
which only steers the steps, is made of coarser integers that floats add up exactly. So the weights
do not depend on the order of the records, nor on how they are spread over blocks and machines.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Protocol

import numpy as np
import numpy.typing as npt

from dpeffects.errors import EstimationError, OptionError, PrivacyError
from dpeffects.privacy.budget import Share, round_down
from dpeffects.privacy.guarantee import Noisy
from dpeffects.privacy.noise import LEAST_DELTA, gaussian_scale
from dpeffects.privacy.release import Releaser
from dpeffects.privacy.rows import Block, Rows, Source, Totals
from dpeffects.privacy.sums import from_limbs, two_limbs

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

GRADIENT = 1e-9
"""The solver stops at a gradient of this norm or smaller; the sensitivity accounts for it."""
_TIGHT = 1e-12
_ACCOUNTED = 5e-12
"""`Logistic` stops at _TIGHT; the rest is for the rounding of a computed gradient."""
_STEPS = 200
_FINE = 44
"""A record's gradient is rounded to multiples of 2^-44: floats add up 2^9 of them exactly."""
_COARSE, _BEND = 14, 14
"""Bits of rows and second derivatives in the Hessian: floats add up 2^13 products exactly."""

VOLUME = 0.1
"""Largest part of epsilon that objective perturbation may pay for the change of volume."""
_SOLVER = 0.01
"""Part of a model's epsilon that covers an inexact solver and noise on a grid (claim 22)."""
_WIDER = 1.0 + 1e-9
SPREAD = 1.0 / 12.0
"""Variance of a covariate that spreads evenly over its declared range: a public stand-in."""


def fit_logistic(
    source: Source,
    penalty: float,
    *,
    unit: bool = False,
    offset: float = 0.0,
    tilt: FloatArray | None = None,
    stop: float = GRADIENT / 2,
    room: float = GRADIENT / 2,
) -> FloatArray:
    """Minimise the objective by Newton steps, to a computed gradient norm of at most ``stop``.

    ``offset`` is added to every logit and ``tilt``'w to the objective; ``unit`` fits `unit_rows`.
    The computed gradient is within ``room`` of the true one at the result, or there is none.
    """
    if not 1e-12 <= penalty < math.inf:
        raise OptionError(f"penalty must be at least 1e-12, got {penalty!r}")
    d = source.width
    weights = np.zeros(d)
    tilt = np.zeros(d) if tilt is None else tilt
    at = partial(_derivatives, source, penalty=penalty, unit=unit, offset=offset, tilt=tilt)
    gradient, hessian = at(weights)
    for _ in range(_STEPS):
        size = np.linalg.norm(gradient)
        if size <= stop + 1e-15 * float(np.linalg.norm(tilt)):
            if _rounding(weights, offset, 1.0 if unit else math.sqrt(d)) > room:
                break
            return weights
        step = np.linalg.solve(hessian, gradient)
        shrink = 1.0
        while True:  # the Newton direction lowers the gradient norm for a small enough step
            candidate = weights - shrink * step
            new_gradient, new_hessian = at(candidate)
            if np.linalg.norm(new_gradient) < size or shrink < 1e-8:
                break
            shrink /= 2.0
        weights, gradient, hessian = candidate, new_gradient, new_hessian
    raise EstimationError("the logistic regression did not converge; its weights were not released")


def _rounding(weights: FloatArray, offset: float, norm: float) -> float:
    """Distance of a computed mean gradient from the true one, for rows of at most this norm."""
    d = weights.size
    logit = (d + 2) * 2.0**-53 * (norm * float(np.linalg.norm(weights)) + abs(offset))
    return 1.01 * (norm * (logit / 4.0 + 2.0**-49) + math.sqrt(d) * 2.0 ** -(_FINE + 1))


def _derivatives(
    source: Source,
    weights: FloatArray,
    penalty: float,
    unit: bool,
    offset: float,
    tilt: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Gradient and Hessian of the mean loss, penalised and tilted."""
    n, d = source.n, weights.size
    terms = partial(logistic_terms, weights=weights, offset=offset, unit=unit)
    sums, bends = source.fold(terms, "covariates")
    gradient = from_limbs(sums, _FINE) / n
    hessian = from_limbs(bends, _BEND + 2 * _COARSE) / n
    return gradient + penalty * weights + tilt, hessian + penalty * np.eye(d)


def logistic_terms(block: Block, weights: FloatArray, offset: float, unit: bool) -> Totals:
    """What a block adds to gradient and Hessian, in exact integers as two limbs each."""
    rows = unit_rows(block.covariates) if unit else block.covariates
    chance = sigmoid(logits(rows, weights, offset))
    bend = np.floor(chance * (1.0 - chance) * 2.0**_BEND + 0.5)
    chance -= block.treated
    gradient = [_exact_sum(chance * column) for column in rows.T]
    coarse = np.floor(rows * 2.0**_COARSE + 0.5)
    hessian = np.zeros((weights.size, weights.size), dtype=np.int64)
    for start in range(0, len(rows), 2**13):
        part = coarse[start : start + 2**13]
        hessian += ((part * bend[start : start + 2**13, None]).T @ part).astype(np.int64)
    return two_limbs(np.array(gradient, dtype=np.int64)), two_limbs(hessian)


def _exact_sum(values: FloatArray) -> int:
    """Sum of numbers in [-1, 1], each rounded to a multiple of 2^-44."""
    steps = values * 2.0**_FINE
    steps += 0.5
    np.floor(steps, out=steps)
    parts = np.add.reduceat(steps, np.arange(0, steps.size, 2 ** (53 - _FINE)))
    return int(parts.astype(np.int64).sum())


def logits(rows: FloatArray, weights: FloatArray, offset: float = 0.0) -> FloatArray:
    """offset + rows'weights, column by column, so that a row's value is its own.

    (A product of matrices may add up a row in another order when its neighbours change.)
    """
    total = np.full(len(rows), offset)
    work = np.empty(len(rows))
    for column, weight in zip(rows.T, weights, strict=True):
        np.multiply(column, weight, out=work)
        total += work
    return total


def sigmoid(x: FloatArray) -> FloatArray:
    """1 / (1 + exp(-x)) without overflow."""
    positive = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0, positive) / (1.0 + positive)


def logistic_sensitivity(n: int, d: int, penalty: float) -> float:
    """L1 sensitivity of the weights (claim 9).

    2d / (n penalty) between the exact minimisers, plus 2 sqrt(d) GRADIENT / penalty because each
    of the two returned vectors is within GRADIENT / penalty of its minimiser.
    """
    return 2.0 * d / (n * penalty) + 2.0 * math.sqrt(d) * GRADIENT / penalty


def default_penalty(n: int, d: int, epsilon: float) -> float:
    """Return the ridge penalty at which the noise moves a row's logit by about one.

    The noise of scale 2d / (n penalty epsilon) on d weights has a standard deviation of at most
    2 sqrt(2) d^1.5 / (n penalty epsilon) in the logit of a row in [0, 1]^d. Public numbers only.
    """
    return min(1.0, max(1.0 / n, 2.0 * math.sqrt(2.0) * d**1.5 / (n * epsilon)))


def unit_norm(d: int) -> float:
    """Return what `unit_rows` divides by: the largest norm of a centred row, rounded up."""
    return math.sqrt(1.0 + (d - 1) / 4.0) * (1.0 + 1e-9)


def unit_rows(matrix: FloatArray) -> FloatArray:
    """Rows of norm at most 1: columns in [0, 1] centred at 1/2, the intercept as it is.

    Centring is a public map. It makes the intercept nearly uncorrelated with the rest, and halves
    the norm of the rest: without it the weights carry up to twice the noise.
    """
    rows = np.clip(matrix, 0.0, 1.0)
    rows[:, 1:] -= 0.5
    rows /= unit_norm(matrix.shape[1])
    return rows


def unit_l1(d: int) -> float:
    """Largest L1 norm of a row of `unit_rows`, a little more than sqrt(d) / sqrt(2) to sqrt(d)."""
    return (1.0 + (d - 1) / 2.0) / unit_norm(d) * (1.0 + 1e-9)


def held(rows: FloatArray, treated: BoolArray) -> Rows:
    """Covariates in [0, 1] and treatments as a source, without outcomes."""
    return Rows(np.zeros(len(rows)), (0.0, 1.0), treated, lambda: rows, rows.shape[1])


@dataclass(frozen=True)
class Logistic:
    """Logistic regression on rows of norm at most 1: sum of losses + (strength/2) |w|^2."""

    source: Source
    strength: float
    offset: float = 0.0

    @property
    def width(self) -> int:
        """Number of weights."""
        return self.source.width

    @property
    def rows(self) -> FloatArray:
        """The rows, in memory."""
        return unit_rows(self.source.held("an audit looks at all rows at once").covariates())

    @property
    def treated(self) -> BoolArray:
        """Who is treated, in memory."""
        return self.source.held("an audit looks at all rows at once").treated

    def solve(self, noise: FloatArray | None = None) -> FloatArray:
        """Minimise the objective plus noise'w; the result is within `slack` of the minimiser."""
        n = self.source.n
        return fit_logistic(
            self.source,
            self.strength / n,
            unit=True,
            offset=self.offset,
            tilt=None if noise is None else noise / n,
            stop=_TIGHT,
            room=_ACCOUNTED - _TIGHT,
        )

    def gradient(self, weights: FloatArray) -> FloatArray:
        """Sum of the gradients of the losses: what one record moves by less than 2 in norm."""
        score = sigmoid(self.rows @ weights + self.offset)
        return np.asarray((score - self.treated) @ self.rows)

    def slack(self, noise: float = 0.0) -> float:
        """L2 distance of a returned vector from the exact minimiser, at most (claim 20)."""
        return self.source.n * _ACCOUNTED / self.strength

    @property
    def reach(self) -> tuple[float, float]:
        """Largest L1 and L2 norm of one record's gradient."""
        return unit_l1(self.width), 1.0

    @property
    def bend(self) -> float:
        """Largest second derivative of one record's loss along its row."""
        return 0.25

    @property
    def corners(self) -> int:
        """Shifts that cover what one record can do to the noise (claim 21)."""
        return 3

    @property
    def claim(self) -> int:
        """The claim that proves noise in the objective."""
        return 21


class Problem(Protocol):
    """A penalised fit that `minimise` can release: `Logistic` or `Huber`."""

    @property
    def width(self) -> int:
        """Number of weights."""

    @property
    def rows(self) -> FloatArray:
        """Rows of norm at most 1, in memory."""

    @property
    def strength(self) -> float:
        """The penalty is half of this times the squared norm of the weights."""

    def solve(self, noise: FloatArray | None = None) -> FloatArray:
        """Minimise the objective plus noise'w."""

    def gradient(self, weights: FloatArray) -> FloatArray:
        """Sum of the gradients of the losses."""

    def slack(self, noise: float = 0.0) -> float:
        """L2 distance of a returned vector from the minimiser, for noise of at most this norm."""

    @property
    def reach(self) -> tuple[float, float]:
        """Largest L1 and L2 norm of one record's gradient."""

    @property
    def bend(self) -> float:
        """Largest second derivative of one record's loss along its row."""

    @property
    def corners(self) -> int:
        """Shifts that cover what one record can do to the noise."""

    @property
    def claim(self) -> int:
        """The claim that proves noise in the objective."""


def volume_price(strength: float, bend: float = 0.25) -> float:
    """Epsilon for the change of volume from noise to weights (claim 21), rounded up."""
    return math.log1p(bend / strength) * (1.0 + 1e-12)


def least_strength(epsilon: float, bend: float = 0.25) -> float:
    """Smallest strength whose change of volume costs at most a tenth of epsilon."""
    return bend / math.expm1(min(VOLUME * epsilon, 5.0)) * (1.0 + 1e-9)


def default_strength(n: int, d: int, epsilon: float, delta: float) -> float:
    """Return the strength that balances shrinkage against noise; public numbers only.

    With noise of variance s^2 in each gradient, information J about each weight and weights of
    variance theta^2, the mean squared error (s^2 + strength^2 theta^2) / (J + strength)^2 is least
    at strength = s^2 / (J theta^2). Logits of variance 1, spread evenly over d - 1 covariates, make
    J theta^2 = n e(1 - e) / (d - 1), with e(1 - e) about 0.2.
    """
    spent = (1.0 - VOLUME) * epsilon
    variance = 2.0 * (2.0 * unit_l1(d) / spent) ** 2
    if delta > LEAST_DELTA:
        variance = min(variance, gaussian_scale(2.0, spent, delta / 3.0, d) ** 2)
    return max(least_strength(epsilon), variance * max(d - 1, 1) / (0.2 * n))


@dataclass(frozen=True)
class Weights:
    """Released weights of a logistic regression on `unit_rows`.

    ``noise_sd`` is the standard deviation of each entry of the noise: in the gradient of the
    objective where ``inside`` is true, else in the weights themselves.
    """

    value: FloatArray
    strength: float
    noise_sd: float = 0.0
    inside: bool = False


def minimise(
    releaser: Releaser, label: str, problem: Problem, share: str, noise: str = "auto"
) -> Weights:
    """Release a minimiser by noise in its objective (claims 21, 22, 31).

    The share pays for three things: the noise, the change of volume from noise to weights, and a
    small noise on the result that covers an inexact solver and noise that lives on a grid.

    Mean squared error of propensities in units of 0.001, at three epsilons and delta = 0, on
    simulated logits of variance 0.75 (30 data sets each, 15 where n = 20,000), against noise on the
    weights (claim 20), both with the best of several strengths for each number, and against one
    propensity for all:

    ===== ======== =================== =================== ======
    d     n        here: 0.1, 0.5, 2   on the weights      flat
    ===== ======== =================== =================== ======
    3     500      34.0  13.3   2.9    33.6  27.1  14.6    34.4
    3     2,000    17.7   2.3   0.5    28.2  14.0   5.1    34.4
    3     20,000    0.5   0.0   0.0    10.4   2.8   1.0    34.5
    10    500      33.4  32.3  18.4    33.2  32.0  25.2    33.4
    10    2,000    32.6  18.7   3.5    32.0  24.3  12.5    33.1
    10    20,000    8.3   0.6   0.1    18.4   6.1   2.1    33.0
    25    500      32.7  32.5  30.5    32.8  32.7  31.6    32.8
    25    2,000    32.3  29.8  15.5    32.5  31.6  24.3    32.5
    25    20,000   27.3   4.9   0.6    28.2  15.5   5.4    32.8
    ===== ======== =================== =================== ======
    """
    d, whole = problem.width, releaser.share(share)
    volume, last = volume_price(problem.strength, problem.bend), _SOLVER * whole.epsilon
    epsilon = round_down(Fraction(whole.epsilon) - Fraction(volume) - Fraction(last))
    if epsilon <= 0:
        raise PrivacyError("the penalty is too small for noise in the objective; nothing drawn")
    delta = whole.delta * math.exp(-last / 2.0) / problem.corners * (1.0 - 1e-12)
    l1, l2 = (2.0 * reach * _WIDER for reach in problem.reach)
    variance, gaussian = 2.0 * (l1 / epsilon) ** 2, False
    if delta > LEAST_DELTA and noise != "laplace":
        sigma = gaussian_scale(l2, epsilon, delta, d)
        gaussian = sigma**2 < variance or noise == "gaussian"
        variance = sigma**2 if gaussian else variance
    delta = delta if gaussian else 0.0
    unit = 2.0 ** (math.floor(math.log2(variance) / 2.0) - 30)
    rest = round_down(Fraction(whole.delta) - Fraction(delta)) if gaussian else 0.0
    releaser.pay(f"{label}: volume", Share(volume, rest), share=share, claim=problem.claim)
    hidden = releaser.release(
        f"{label}: in the objective",
        np.zeros(d, dtype=np.int64),
        math.ceil(l1 / unit) + d,
        unit,
        l2=l2 / unit,
        share=share,
        claim=22,
        price=Share(epsilon, delta),
        noise="gaussian" if gaussian else "laplace",
        alone=False,
    )
    far = problem.slack(_largest(hidden, d)) + math.sqrt(d) * unit / (2.0 * problem.strength)
    far *= 1.01  # rounding of the penalty's and the noise's part of the gradient (claim 22)
    step = 2.0 ** (math.floor(math.log2(far)) - 8)
    released = releaser.release(
        f"{label}: solver",
        np.rint(releaser.solved(problem, hidden) / step).astype(np.int64),
        2 * (math.ceil(math.sqrt(d) * far * _WIDER / step) + d),
        step,
        share=share,
        claim=22,
        price=Share(last, 0.0),
        alone=False,
    )
    return Weights(released.value, problem.strength, math.sqrt(hidden.variance), inside=True)


def _largest(noise: Noisy, size: int) -> float:
    """Norm of the noise that is exceeded with a chance below exp(-700) (claim 31)."""
    if noise.gaussian:
        return noise.scale * (math.sqrt(size) + 40.0)
    return noise.scale * math.sqrt(size) * 720.0
