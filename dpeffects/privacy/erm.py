"""Ridge-penalised logistic regression and the sensitivity of its weights.

The objective is (1/n) sum log(1 + exp(-s_i x_i'w)) + (penalty/2) |w|^2 with s_i = +1 for treated
and -1 for control, rows in [0, 1]^d; the intercept is a column like any other and is penalised.

`Logistic` is the same problem on rows of norm at most 1 (`unit_rows`), with sums in place of means:
its ``strength`` is n times the penalty. It is what objective perturbation works on (claims 21, 22).

Rows are rounded to multiples of 2^-16 before they are fitted, a record's residual to one of 2^-44,
and its second derivative, which steers the steps, to one of 2^-13: whole numbers so small
that products of matrices add them up exactly, in floats. So the weights do not depend on the order
of the records, nor on how they are spread over blocks and machines.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Protocol

import numpy as np
import numpy.typing as npt

from dpeffects.errors import OptionError, PrivacyError
from dpeffects.privacy.budget import Share, round_down
from dpeffects.privacy.descent import descend, direction
from dpeffects.privacy.guarantee import Noisy
from dpeffects.privacy.noise import LEAST_DELTA, gaussian_scale
from dpeffects.privacy.release import Releaser
from dpeffects.privacy.rows import (
    Block,
    Source,
    Totals,
    exact_dots,
    exact_products,
    room,
    weight_bits,
)
from dpeffects.privacy.sums import from_limbs, two_limbs

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

GRADIENT = 1e-9
"""The solver stops at half of this gradient norm; the rest is for rounding (`accounted`)."""
_TIGHT = 4e-12
"""`Logistic` stops at a smaller gradient."""
_LOOKS = 40
"""A problem that takes more looks at the rows is a hard one."""
_GRID = 16
"""Rows are fitted as multiples of 2^-16."""
_HIGH, _FINE = 22, 44
"""A residual is rounded to a multiple of 2^-44, in two parts of 22 bits."""
_BEND = 13
"""A second derivative, at most 1/4, is rounded to a multiple of 2^-13."""
_FINE_BENDS = (_BEND, 28, 43)
"""For hard problems what is left is rounded to 2^-28, and again to 2^-43."""
_FLOATS = 2.0**-52
"""Rounding of the penalty's and the tilt's part of a gradient, relative to their norms."""

VOLUME = 0.1
"""Largest part of epsilon that objective perturbation may pay for the change of volume."""
_SOLVER = 0.01
"""Part of a model's epsilon that covers an inexact solver and noise on a grid (claim 22)."""
_WIDER = 1.0 + 1e-9
TREATED_VARIANCE = 0.2
"""Variance e(1 - e) of a treatment of chance e that is not far from 1/2: a public stand-in."""
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
) -> FloatArray:
    """Minimise the objective by Newton steps, whatever the rows are.

    ``offset`` is added to every logit and ``tilt``'w to the objective; ``unit`` fits `unit_rows`.
    The result is within `accounted` / penalty of the minimiser (claims 9, 20).
    """
    d = source.width
    least = least_penalty(d, unit=unit)
    if not least <= penalty < math.inf:
        raise OptionError(f"penalty must be at least {least:g}, got {penalty!r}")
    tilt = np.zeros(d) if tilt is None else tilt
    push, scale = float(np.linalg.norm(tilt)), _scale(d, unit)
    top = scale.largest_weights(penalty, offset, push)
    enough = max(stop, 4.0 * scale.rounding(2.0 * top, offset)) + 1e-15 * push
    at = partial(_derivatives, source, penalty=penalty, unit=unit, offset=offset, tilt=tilt)
    weights = _quickly(at, np.zeros(d), scale.norm, enough)
    if weights is None or not float(np.linalg.norm(weights)) <= 2.0 * top:
        weights = _carefully(source, penalty, unit, offset, tilt, enough)
    size = float(np.linalg.norm(weights))
    return weights if size <= top else weights * (top / size)


def _carefully(
    source: Source,
    penalty: float,
    unit: bool,
    offset: float,
    tilt: FloatArray,
    enough: float,
) -> FloatArray:
    """Solve a hard problem, on the rows before they are divided by their norm.

    So weights are those that multiply whole numbers, but for a power of two, in all their bits.
    """
    d = source.width
    norm, scale, push = unit_norm(d) if unit else 1.0, _scale(d, unit), np.linalg.norm(tilt)

    def at(weights: FloatArray, tail: FloatArray) -> tuple[FloatArray, FloatArray]:
        gradient, hessian = _derivatives(
            source,
            weights,
            penalty * norm**2,
            unit,
            offset,
            tilt * norm,
            bends=_FINE_BENDS,
            tail=tail,
        )
        return gradient, direction(hessian, gradient)

    def noise(size: float) -> float:
        by_penalty = _FLOATS * (penalty * norm * size + float(push))
        return norm * (scale.rounding(norm * size, offset) + by_penalty)

    curve = 1.01 * norm**2 * (scale.norm**2 / 4.0 + penalty)
    return norm * descend(at, d, norm * enough, noise, curve)


def _quickly(
    at: Callable[[FloatArray], tuple[FloatArray, FloatArray]],
    weights: FloatArray,
    norm: float,
    enough: float,
) -> FloatArray | None:
    """Newton steps by a coarse Hessian, which do for all but hard problems; None for these.

    The last step is not followed by another look at the rows where Taylor's theorem already says
    enough.
    """
    gradient, hessian = at(weights)
    looks = 1
    while looks < _LOOKS:
        size = float(np.linalg.norm(gradient))
        step = direction(hessian, gradient)
        if min(size, _after(step, gradient, hessian, norm)) <= enough:
            return weights if size <= enough else weights - step
        shrink = 1.0
        while looks < _LOOKS:  # the direction lowers the gradient norm for a small enough step
            candidate = weights - shrink * step
            new_gradient, new_hessian = at(candidate)
            looks += 1
            if np.linalg.norm(new_gradient) < size:
                break
            shrink /= 2.0
        weights, gradient, hessian = candidate, new_gradient, new_hessian
    return None


def _after(step: FloatArray, gradient: FloatArray, hessian: FloatArray, norm: float) -> float:
    """Largest norm of the mean gradient after a step, from what is known before it (claim 20)."""
    size = norm * float(np.linalg.norm(step))
    missed = float(np.linalg.norm(gradient - hessian @ step))
    return 1.01 * (missed + norm * (2.0 ** -(_BEND + 1) * size + size**2 / 20.0))


@dataclass(frozen=True)
class _Scale:
    """Largest L2 and L1 norm of a row of d entries."""

    d: int
    norm: float
    l1: float

    def rounding(self, size: float, offset: float) -> float:
        """Distance of a computed mean gradient from the true one, at weights of this norm."""
        left_out = self.l1 * 2.0 ** (-2 * weight_bits(self.d, _GRID)) * size
        each = left_out / 4.0 + 2.0**-48 + 2.0**-53 * abs(offset) + 2.0 ** -(_FINE + 1)
        return 1.01 * self.norm * each

    def largest_weights(self, penalty: float, offset: float, push: float) -> float:
        """Norm that no minimiser exceeds, for a tilt of at most the norm ``push``.

        The objective there is no larger than at 0, and the gradient of the penalty is no larger
        than the rest.
        """
        loss = 2.0 * penalty * (math.log(2.0) + abs(offset))
        steep = min(push + math.sqrt(push**2 + loss), self.norm + push)
        return 1.001 * steep / penalty


def _scale(d: int, unit: bool) -> _Scale:
    return _Scale(d, 1.0, unit_l1(d)) if unit else _Scale(d, math.sqrt(d), float(d))


def least_penalty(d: int, *, unit: bool = False) -> float:
    """Smallest penalty that can be fitted with d columns: 1e-12 for up to 512 of them.

    Below, rounding of the largest weights could outweigh the penalty (claim 20).
    """
    scale = _scale(d, unit)
    return max(1e-12, 16.0 * (scale.rounding(1.0, 0.0) - scale.rounding(0.0, 0.0)))


def accounted(
    d: int, penalty: float, stop: float, *, unit: bool, offset: float = 0.0, push: float = 0.0
) -> float:
    """Norm of the true mean gradient where `fit_logistic` ends, at most; from public numbers.

    Parts that are proportional to the tilt are left out: `minimise` has room for them.
    """
    scale = _scale(d, unit)
    far = scale.rounding(2.0 * scale.largest_weights(penalty, offset, push), offset)
    return max(2.0 * stop, stop + far, 5.0 * far)


def _derivatives(
    source: Source,
    weights: FloatArray,
    penalty: float,
    unit: bool,
    offset: float,
    tilt: FloatArray,
    bends: tuple[int, ...] = (_BEND,),
    tail: FloatArray | None = None,
) -> tuple[FloatArray, FloatArray]:
    """Gradient and Hessian of the mean loss, penalised and tilted.

    With a ``tail``, which is what floats leave out of the weights, these are weights of rows that
    are not divided by `unit_norm`.
    """
    n, d = source.n, weights.size
    scale = 2.0**_GRID * (unit_norm(d) if unit and tail is None else 1.0)
    terms = partial(
        logistic_terms,
        weights=weights / scale,
        offset=offset,
        unit=unit,
        bends=bends,
        tail=0.0 if tail is None else tail / scale,
    )
    sums = from_limbs(source.fold(terms, "covariates")[0], 0)
    gradient = (sums[:, -2] * 2.0**-_HIGH + sums[:, -1] * 2.0**-_FINE) / (n * scale)
    hessian = penalty * np.eye(d)
    for k, bits in enumerate(bends):
        part = sums[:, k * d : (k + 1) * d]
        hessian = part * 2.0**-bits / (n * scale**2) + hessian
    return gradient + penalty * weights + tilt, hessian


def logistic_terms(
    block: Block,
    weights: FloatArray,
    offset: float,
    unit: bool,
    bends: tuple[int, ...] = (_BEND,),
    tail: FloatArray | float = 0.0,
) -> Totals:
    """What a block adds to Hessian and gradient, as two limbs.

    ``weights`` are those of `whole_rows`. Second derivatives are rounded to the first of ``bends``
    bits (d columns), what is left to the next (d more); the gradient has a high and a low part.
    """
    d, size = weights.size, block.treated.size
    rows = whole_rows(block.covariates, unit, room("rows", size, d))
    chance = sigmoid(exact_dots(rows, weights, _GRID, tail) + offset)
    terms = room("terms", size, len(bends) * d + 2)
    bend = (1.0 - chance) * chance
    for k, bits in enumerate(bends):
        part = _rounded(bend.copy(), bits)
        np.multiply(rows, part[:, None], out=terms[:, k * d : (k + 1) * d])
        bend -= part * 2.0**-bits
    chance -= block.treated
    terms[:, -2] = _rounded(chance.copy(), _HIGH)
    chance -= terms[:, -2] * 2.0**-_HIGH
    terms[:, -1] = _rounded(chance, _FINE)
    widest = 2 * _GRID + (_BEND - 2 if len(bends) == 1 else _FINE_BENDS[1] - _BEND - 1)
    return (two_limbs(exact_products(rows, terms, widest)),)


def _rounded(values: FloatArray, bits: int) -> FloatArray:
    """Multiples of 2^-bits as whole numbers, in place."""
    values *= 2.0**bits
    values += 0.5
    return np.floor(values, out=values)


def whole_rows(matrix: FloatArray, unit: bool, out: FloatArray | None = None) -> FloatArray:
    """Rows as whole multiples of 2^-16: as they are in [-1, 1], or centred as in `unit_rows`."""
    rows = np.fmin(matrix, 1.0, out=out)  # a clip that has a number for what is none
    np.fmax(rows, 0.0 if unit else -1.0, out=rows)
    rows *= 2.0**_GRID
    rows += 0.5
    if unit:
        rows[:, 1:] -= 2.0 ** (_GRID - 1)
    return np.floor(rows, out=rows)


def logits(rows: FloatArray, weights: FloatArray, offset: float = 0.0) -> FloatArray:
    """offset + rows'weights, column by column, so that a row's value is its own."""
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

    2d / (n penalty) between the exact minimisers, plus 2 sqrt(d) g / penalty because each of the
    two returned vectors is within g / penalty of its minimiser; g is GRADIENT but for many columns.
    """
    g = accounted(d, penalty, GRADIENT / 2, unit=False)
    return 2.0 * d / (n * penalty) + 2.0 * math.sqrt(d) * g / penalty


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
    rows = np.fmax(np.fmin(matrix, 1.0), 0.0)
    rows[:, 1:] -= 0.5
    rows /= unit_norm(matrix.shape[1])
    return rows


def unit_l1(d: int) -> float:
    """Largest L1 norm of a row of `unit_rows`, a little more than sqrt(d) / sqrt(2) to sqrt(d)."""
    return (1.0 + (d - 1) / 2.0) / unit_norm(d) * (1.0 + 1e-9)


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
        """The rows as they are fitted, in memory."""
        matrix = self.source.held("an audit looks at all rows at once").covariates()
        return whole_rows(matrix, unit=True) / (2.0**_GRID * unit_norm(self.width))

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
        )

    def gradient(self, weights: FloatArray) -> FloatArray:
        """Sum of the gradients of the losses: what one record moves by less than 2 in norm."""
        score = sigmoid(self.rows @ weights + self.offset)
        return np.asarray((score - self.treated) @ self.rows)

    def slack(self, noise: float = 0.0) -> float:
        """L2 distance of a returned vector from the exact minimiser, at most (claim 20)."""
        n = self.source.n
        known = {"offset": self.offset, "push": noise / n}
        gradient = accounted(self.width, self.strength / n, _TIGHT, unit=True, **known)
        return n * gradient / self.strength

    def largest_weights(self, noise: float = 0.0) -> float:
        """Norm that no minimiser exceeds, for noise of at most this norm (claim 20)."""
        n = self.source.n
        return _scale(self.width, True).largest_weights(self.strength / n, self.offset, noise / n)

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

    def largest_weights(self, noise: float = 0.0) -> float:
        """Norm that no minimiser exceeds, for noise of at most this norm."""

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
    J theta^2 = n e(1 - e) / (d - 1), with e(1 - e) about `TREATED_VARIANCE`.
    """
    spent = (1.0 - VOLUME) * epsilon
    variance = 2.0 * (2.0 * unit_l1(d) / spent) ** 2
    if delta > LEAST_DELTA:
        variance = min(variance, gaussian_scale(2.0, spent, delta / 3.0, d) ** 2)
    return max(least_strength(epsilon), variance * max(d - 1, 1) / (TREATED_VARIANCE * n))


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
    largest = _largest(hidden, d)
    far = problem.slack(largest) + math.sqrt(d) * unit / (2.0 * problem.strength)
    far *= 1.01  # rounding of the penalty's and the noise's part of the gradient (claim 22)
    step = 2.0 ** (math.floor(math.log2(far)) - 8)
    top = 1.01 * problem.largest_weights(largest)  # so that steps are 64-bit integers (claim 22)
    solution = np.clip(releaser.solved(problem, hidden), -top, top)
    released = releaser.release(
        f"{label}: solver",
        np.rint(solution / step).astype(np.int64),
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
