"""Releases of minimisers: noise in the objective, on the weights, on predictions.

A problem is a `Logistic` or a `Huber` regression: public numbers, and for the latter a row function
that is not trusted. A share pays with its own epsilon and delta.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from dpeffects.arrays import FloatArray, IntArray
from dpeffects.errors import OptionError, PrivacyError, refusal
from dpeffects.privacy.budget import Share, round_down
from dpeffects.privacy.charges import Charge, NoisyValue
from dpeffects.privacy.curator import Curator
from dpeffects.privacy.domains import IntTotals, Sensitivity
from dpeffects.privacy.exact import row_norms_squared
from dpeffects.privacy.losses import Huber, Logistic, along, along_error, on_grid
from dpeffects.privacy.noise import LEAST_DELTA, gaussian_scale, laplace_scale
from dpeffects.privacy.rows import rehearse

BalancingProblem = Logistic | Huber

_SOLVER = 0.01
"""Part of a model's epsilon that covers an inexact solver and noise on a grid (claim 22)."""
_WIDER = 1.0 + 1e-9


@dataclass(frozen=True)
class Minimisation:
    """A problem on a curator's rows, paid for by a share; audits look inside."""

    curator: Curator
    problem: BalancingProblem
    share: str

    def __post_init__(self) -> None:
        """Refuse what cannot be released, by public numbers."""
        known = replace(self.problem, rows=self.curator.most_rows)
        object.__setattr__(self, "problem", known)
        if self.share in self.curator._releaser.split.mu:
            raise PrivacyError("a minimiser needs a share with a delta of its own")
        if isinstance(self.problem, Huber):
            rehearse(self.problem.terms, self.problem.size + 2, None, self.curator.width)

    @property
    def volume(self) -> float:
        """Epsilon for the change of volume from noise to weights (claims 21, 29)."""
        bound, strength = self.problem.hessian_bound, self.problem.strength
        several = self.curator.most_rows > 1
        return bound / strength * _WIDER if several else volume_price(strength, bound)

    def noise(self, kind: str) -> str:
        """The kind of noise in an objective: that of units of several rows is not Gaussian."""
        if self.curator.most_rows == 1:
            return kind
        if kind == "gaussian":
            raise OptionError(refusal("noise_gaussian_cannot"))
        return "laplace"

    def solve(self, noise: FloatArray | None = None) -> FloatArray:
        """Minimise the objective plus noise'w."""
        return self.problem.solve(self.curator._source, noise)

    def price(self, part: Fraction) -> Share:
        """A part of the share, rounded down."""
        return self.curator._releaser.share(self.share).times(part)

    def draw(
        self, label: str, steps: IntTotals, claim: int, noise: str, part: Share | None = None
    ) -> NoisyValue:
        """Release with Laplace noise, or with Gaussian noise by the price's own delta.

        ``part`` is the price of one of several draws.
        """
        releaser = self.curator._releaser
        price = part or releaser.share(self.share)
        known: dict[str, Any] = {"share": self.share, "claim": claim, "alone": part is None}
        laplace = laplace_scale(steps.moves.l1, price.epsilon)
        sigma = _sigma(laplace, steps.moves.l2, price, steps.values.size, noise)
        if sigma is None:
            return releaser.laplace(label, steps, price, **known)
        return releaser.gaussian(label, steps, sigma, price, **known)


@dataclass(frozen=True)
class Coefs:
    """Released weights.

    ``noise_sd`` is the standard deviation of each entry of the noise: in the gradient of the
    objective where ``inside`` is true, else in the weights themselves.
    """

    value: FloatArray
    strength: float
    noise_sd: float = 0.0
    inside: bool = False


def propensity_weights(curator: Curator, penalty: float, share: str) -> NoisyValue:
    """Release the weights of a penalised logistic regression on rows in [0, 1]^d (claim 20).

    They move by 2d / (n penalty) between the exact minimisers, and by 2 sqrt(d) g / penalty more
    because each of the two returned vectors is within g / penalty of its minimiser. Where there
    are more than two arms, one row of weights for each: that arm against all others.
    """
    n, d = curator.units, curator.width
    arms: Iterable[int | None] = [None] if curator.arms == 2 else range(curator.arms)
    problems = [Logistic(d, penalty, centred=False, arm=arm) for arm in arms]
    fits = [Minimisation(curator, problem, share) for problem in problems]
    g = replace(problems[0], rows=curator.most_rows).gradient_left(n)
    bound = 2.0 * d / (n * penalty) + 2.0 * math.sqrt(d) * g / penalty
    solved = [fit.solve() for fit in fits]
    values, unit = _in_steps(solved[0] if len(fits) == 1 else np.stack(solved), bound)
    each = math.ceil(bound / unit) + 1 + d
    steps = IntTotals(values, Sensitivity(len(fits) * each, 0.0), unit)
    return fits[0].draw("propensity model", steps, 20, "laplace")


def public_propensity_model(
    curator: Curator,
    strength: float,
    offset: float = 0.0,
    centred: bool = True,
    arm: int | None = None,
) -> Coefs:
    """Fit a `Logistic` where covariates and treatment are declared public: no charge."""
    curator.require_public("treatment", "covariates")
    problem = Logistic(curator.width, strength, offset, centred, arm)
    return Coefs(problem.solve(curator._source), strength)


def minimise(
    curator: Curator,
    label: str,
    problem: BalancingProblem,
    share: str,
    noise: str = "auto",
    part: Fraction = Fraction(1),
) -> Coefs:
    """Release a minimiser by noise in its objective (claims 21, 22, 23).

    The ``part`` of the share pays for three things: the noise, the change of volume from noise to
    weights, and a small noise on the result that covers an inexact solver and noise that lives on a
    grid.

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
    fit, releaser = Minimisation(curator, problem, share), curator._releaser
    if curator.most_rows > 1:  # what units cost for the volume is linear (claim 29)
        least = 2.0 * problem.hessian_bound / fit.price(part).epsilon
        fit = Minimisation(curator, replace(problem, strength=max(problem.strength, least)), share)
    problem, noise = fit.problem, fit.noise(noise)
    n, d, strength, whole = curator.units, problem.width, problem.strength, fit.price(part)
    volume, last = fit.volume, _SOLVER * whole.epsilon
    epsilon = round_down(Fraction(whole.epsilon) - Fraction(volume) - Fraction(last))
    if epsilon <= 0:
        raise PrivacyError("the penalty is too small for noise in the objective; nothing drawn")
    delta = whole.delta * math.exp(-last / 2.0) / problem.gradient_shifts * (1.0 - 1e-12)
    l1, l2 = (2.0 * bound * _WIDER for bound in problem.gradient_bound)
    sigma = _sigma(l1 / epsilon, l2, Share(epsilon, delta), d, noise)
    delta = delta if sigma else 0.0
    variance = sigma**2 if sigma else 2.0 * (l1 / epsilon) ** 2
    unit = 2.0 ** (math.floor(math.log2(variance) / 2.0) - 30)
    moves = Sensitivity(math.ceil(l1 / unit) + d, l2 / unit)
    largest = largest_noise(sigma or laplace_scale(moves.l1, epsilon) * unit, d, bool(sigma))
    far = problem.solver_error(n, largest) + math.sqrt(d) * unit / (2.0 * strength)
    far *= 1.01  # rounding of the penalty's and the noise's part of the gradient (claim 22)
    step = 2.0 ** (math.floor(math.log2(far)) - 8)
    far_steps = 2 * (math.ceil(math.sqrt(d) * far * _WIDER / step) + d)
    top = 1.01 * problem.largest_weights(n, largest)  # so that steps are 64-bit integers (claim 22)

    rest = round_down(Fraction(whole.delta) - Fraction(delta)) if sigma else 0.0
    name, claim = f"{label}: Jacobian determinant", problem.claims[0]
    releaser.charge(Charge(name, share, volume, rest, "none (Jacobian)", (), (), claim))
    name, nothing = f"{label}: objective perturbation", np.zeros(d, np.int64)
    zeros = IntTotals(nothing, moves, unit)
    hidden = fit.draw(name, zeros, 22, "gaussian", Share(epsilon, delta))
    solution = np.clip(releaser.minimise_perturbed(fit, hidden), -top, top)
    values = np.rint(solution / step).astype(np.int64)
    weights = IntTotals(values, Sensitivity(far_steps, 0.0), step)
    released = fit.draw(f"{label}: solver tolerance", weights, 22, "laplace", Share(last))
    return Coefs(released.value, strength, math.sqrt(hidden.variance), inside=True)


def noisy_weights(
    curator: Curator,
    label: str,
    problem: BalancingProblem,
    share: str,
    noise: str = "auto",
    part: Fraction = Fraction(1),
) -> Coefs:
    """Release a minimiser by noise on its weights (claims 20, 24).

    On features of norm 1 that is a Gaussian process with the features' inner product.
    """
    fit, norms = Minimisation(curator, problem, share), (math.sqrt(problem.width), 1.0)
    noisy = _linear(fit, label, fit.solve(), norms, problem.claims[1], noise, part)
    return Coefs(noisy.value, problem.strength, math.sqrt(noisy.variance))


def noisy_predictions(
    curator: Curator, label: str, problem: Huber, at_rows: FloatArray, share: str
) -> NoisyValue:
    """Release predictions at public rows, which are put on the grid, with independent noise.

    Rows Q move by at most their largest singular value times what the weights move by (claim 24).
    """
    at, fit = on_grid(np.array(at_rows)), Minimisation(curator, problem, share)
    if not (row_norms_squared(at) <= 1.0).all():
        raise OptionError("rows to predict at must have norm at most 1")
    count, size = at.shape
    gram = at @ at.T if count <= size else at.T @ at
    wider = 1.0 + max(1e-6, curator.units * math.sqrt(count) * along_error(size))
    widest = math.sqrt(max(float(np.linalg.eigvalsh(gram)[-1]), 0.0)) * wider + 1e-9
    l1 = min(float(np.linalg.norm(at, axis=1).sum()), math.sqrt(count) * widest) * wider
    return _linear(fit, label, along(at, fit.solve()), (l1, widest), 24, "auto")


def _linear(
    fit: Minimisation,
    label: str,
    values: FloatArray,
    norms: tuple[float, float],
    claim: int,
    noise: str,
    part: Fraction = Fraction(1),
) -> NoisyValue:
    """Release a linear function of the weights; ``norms`` are its L1 and L2 for weights of norm 1.

    One record moves the weights by at most ``bound`` in L2 (claims 20, 24).
    """
    slope, error = fit.problem.gradient_bound[1], fit.problem.solver_error(fit.curator.units)
    bound = (2.0 * slope / fit.problem.strength + 2.0 * error) * _WIDER
    steps, unit = _in_steps(values, bound)
    l1, l2 = (size * bound / unit for size in norms)
    moves = Sensitivity(math.ceil(l1) + steps.size, l2 + math.sqrt(steps.size))
    price = None if part == 1 else fit.price(part)
    return fit.draw(label, IntTotals(steps, moves, unit), claim, noise, price)


def _in_steps(values: FloatArray, bound: float) -> tuple[IntArray, float]:
    """Values on a grid that is 2^20 times finer than what moves them, and its step."""
    unit = 2.0 ** (math.floor(math.log2(bound)) - 20)
    return np.rint(values / unit).astype(np.int64), unit


def _sigma(laplace: float, l2: float, price: Share, size: int, noise: str) -> float | None:
    """Scale of Gaussian noise; None where the price has no delta or Laplace noise is less."""
    if price.delta <= LEAST_DELTA or noise == "laplace":
        return None
    sigma = gaussian_scale(l2, *price, size)
    return sigma if sigma**2 < 2.0 * laplace**2 or noise == "gaussian" else None


def largest_noise(scale: float, size: int, gaussian: bool) -> float:
    """Norm of the noise that is exceeded with a chance below exp(-700) (claim 23)."""
    return scale * (math.sqrt(size) + 40.0 if gaussian else math.sqrt(size) * 720.0)


def volume_price(strength: float, hessian_bound: float = 0.25) -> float:
    """Epsilon for the change of volume from noise to weights (claim 21), rounded up."""
    return math.log1p(hessian_bound / strength) * (1.0 + 1e-12)
