"""What papers 000 and 004 prove about their own estimators, to call before spending anything.

Theorem 3 of paper 000 bounds the squared error of a matched sum (`matching_error_bound`).

In paper 004, Lemma 3 gives the bias that noise on the weights of a propensity model causes,
Corollary 7 and Lemma 6 bound how far it moves the estimate, Theorems 4 and 5 (8 to 11 for the ATT
and the ATC) the chance of a wrong sign. They are about the paper's mechanism (`private_ipw` with
``as_printed=True``). Where a printed formula does not follow from its proof, the default is what
does follow, and ``as_printed=True`` is the paper's.

What depends on outcomes and covariates is to be called with simulated or public rows: computed from
private rows it is itself private and must not be published. `ipw_bias_bound` needs no rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpeffects.arrays import FloatArray
from dpeffects.errors import OptionError


def matching_error_bound(
    epsilon: float,
    match_limit: int,
    *,
    used: Any,
    neighbors: int,
    outcome_range: float,
    as_printed: bool = False,
) -> float:
    """Bound the squared error of a matched sum of outcomes at label level (Theorem 3, paper 000).

    The sum is over the potential outcomes of everybody under one treatment, and its error is
    against matching without a limit. It has two parts: Laplace noise of scale
    (match_limit + 1) outcome_range / epsilon, and neighbours that were replaced because the nearer
    ones had served match_limit times neighbors times.

    Parameters
    ----------
    epsilon
        Price of the sum.
    match_limit
        The limit k; a record serves at most k times ``neighbors`` others.
    used
        How often each record of the arm is a match when there is no limit. It is a function of
        scores and treatments, which are public at label level.
    neighbors
        Matches for each record (N).
    outcome_range
        Largest less smallest outcome (B).
    as_printed
        Count replaced neighbours as appendix D does, beyond ``match_limit`` uses of a record. The
        limit is k N uses, so that counts too many wherever N > 1: the bound is true and loose.

    Returns
    -------
    float
        The bound on the mean of the squared error of the sum; divide by n squared for an average.

    Notes
    -----
    The bound holds in whatever order records are served, if everybody gets at least one match. A
    record that is not full at the end has turned nobody away, so it serves at least as much as
    without a limit; what full records lose, the sum of max(0, used - k N) / N, is all the weight
    that moves, and moved weight changes the sum by at most outcome_range.

    The noise is that of the paper, which protects an outcome only if everybody finds N matches
    (`private_psm` computes its noise from the weights that came out).

    Examples
    --------
    >>> arm = {"used": [7, 2, 0], "neighbors": 5, "outcome_range": 1.0}
    >>> round(matching_error_bound(1.0, 1, **arm), 2)
    8.16
    >>> round(matching_error_bound(1.0, 1, **arm, as_printed=True), 2)
    9.96
    """
    _check_positive(
        epsilon=epsilon, match_limit=match_limit, neighbors=neighbors, outcome_range=outcome_range
    )
    times = np.asarray(used, dtype=float)
    if not ((times >= 0.0) & np.isfinite(times)).all():
        raise OptionError("used must be counts of how often each record is a match")
    most = match_limit if as_printed else match_limit * neighbors
    replaced = float(np.maximum(times - most, 0.0).sum())
    noise = 2.0 * ((match_limit + 1.0) * outcome_range / epsilon) ** 2
    return noise + (replaced / neighbors * outcome_range) ** 2


def ipw_noise_sd(epsilon: float, m: int, penalty: float, delta: float) -> float:
    """Standard deviation of the paper's noise on each weight (definition 2).

    It is 2 sqrt(2 log(1.25 / delta)) / (epsilon m penalty), for rows of norm at most 1; the
    classical Gaussian mechanism that it comes from asks for epsilon < 1.

    Examples
    --------
    >>> round(ipw_noise_sd(0.5, 1000, 0.1, 1e-6), 4)
    0.212
    """
    _check_positive(epsilon=epsilon, m=m, penalty=penalty)
    _check_between("delta", delta, 1)
    return 2.0 * math.sqrt(2.0 * math.log(1.25 / delta)) / (epsilon * m * penalty)


def _noise_sd(epsilon: float, m: int, penalty: float, delta: float, given: float | None) -> float:
    if given is None:
        return ipw_noise_sd(epsilon, m, penalty, delta)
    if not 0 <= given < math.inf:
        raise OptionError(f"noise_sd must be a number that is not negative, got {given!r}")
    return given


def _check_positive(**numbers: float) -> None:
    for name, value in numbers.items():
        if not (value > 0 and math.isfinite(value)):
            raise OptionError(f"{name} must be a positive number, got {value!r}")


def _check_between(name: str, value: float, most: float) -> None:
    if not 0 < value < most:
        raise OptionError(f"{name} must be between 0 and {most:g}, got {value!r}")


def ipw_bias(
    epsilon: float,
    m: int,
    penalty: float,
    delta: float,
    *,
    outcome: Any,
    treated: Any,
    rows: Any,
    weights: Any,
    estimand: str = "ATE",
    clip: float | None = None,
    noise_sd: float | None = None,
    as_printed: bool = False,
) -> float:
    """Bias of inverse probability weighting by noise on the propensity weights (Lemma 3).

    This is g(epsilon, m, n, lambda, delta) of the paper: the mean, over the noise, of the estimate
    with noisy weights, less the estimate with the weights given.

    Parameters
    ----------
    epsilon, delta
        Price of the propensity model.
    m
        Records that it is fitted on; n is the number of ``rows``.
    penalty
        Its ridge penalty, lambda in the paper.
    outcome, treated, rows, weights
        Records of the second step, simulated or public, and the weights of the model.
    estimand
        "ATE", or "ATT" and "ATC" as in Appendix F, which divide by n.
    clip
        Keep propensities, with and without noise, within [clip, 1 - clip]. The paper's formula has
        no clip; its Theorems 4 and 5 assume one.
    noise_sd
        Standard deviation of the noise on each weight, in place of the paper's.
    as_printed
        Equation 8 as it is printed, with (-1)^t in the exponent. The proof has a log-normal mean,
        ``exp(sigma^2 |x|^2 / 2)``, in both arms, so that sign is wrong for treated records.

    Returns
    -------
    float

    Examples
    --------
    >>> import numpy as np
    >>> x = np.array([[0.6, 0.8], [0.6, -0.8], [0.6, 0.1]])
    >>> case = dict(outcome=[1.0, 2.0, 1.5], treated=[1, 0, 1], rows=x, weights=[0.1, 0.5])
    >>> round(ipw_bias(0.5, 500, 0.1, 1e-6, **case), 5)
    -0.00969
    >>> round(ipw_bias(0.5, 500, 0.1, 1e-6, **case, as_printed=True), 5)
    -0.07734
    """
    sd = _noise_sd(epsilon, m, penalty, delta, noise_sd)
    if as_printed and clip is not None:
        raise OptionError("the printed formula has no clip")
    noisy = _Terms.of(outcome, treated, rows, weights, estimand)
    logit, spread = noisy.logit, sd * noisy.norms
    if as_printed:
        change = np.exp(logit) * np.expm1(-noisy.sign * spread**2 / 2.0)
    elif clip is None:
        change = np.exp(logit) * np.expm1(spread**2 / 2.0)
    else:
        change = _mean_odds(logit, spread, clip) - _mean_odds(logit, 0.0 * spread, clip)
    return float(np.sum(noisy.sign * noisy.outcome * change) / noisy.n)


@dataclass(frozen=True)
class _Terms:
    """The records whose weights are noisy: all for the ATE, one arm for the ATT and the ATC.

    A record's weight is 1 + odds against its own arm (ATE), or those odds (ATT, ATC); ``logit`` is
    the logarithm of these odds, and a noise z of the model's weights adds -sign x'z to it.
    """

    n: int
    outcome: FloatArray
    sign: FloatArray
    rows: FloatArray
    logit: FloatArray

    @classmethod
    def of(cls, outcome: Any, treated: Any, rows: Any, weights: Any, estimand: str) -> _Terms:
        """Check the shapes, and choose the records."""
        x, w = np.asarray(rows, dtype=float), np.asarray(weights, dtype=float)
        y, t = np.asarray(outcome, dtype=float), np.asarray(treated).astype(bool)
        if not (x.ndim == 2 and x.shape == (y.size, w.size) and t.shape == y.shape):
            raise OptionError(
                "rows must be a matrix with a row for each outcome, a column for each weight"
            )
        if estimand not in ("ATE", "ATT", "ATC"):
            raise OptionError(f"estimand must be ATE, ATT or ATC, got {estimand!r}")
        if not (y.size and all(np.isfinite(values).all() for values in (x, w, y))):
            raise OptionError("there must be a record, and outcome, rows and weights be finite")
        noisy = {"ATE": np.ones_like(t), "ATT": ~t, "ATC": t}[estimand]
        sign = np.where(t, 1.0, -1.0)
        return cls(y.size, y[noisy], sign[noisy], x[noisy], (-sign * (x @ w))[noisy])

    @property
    def norms(self) -> FloatArray:
        """Norms of the rows."""
        return np.asarray(np.linalg.norm(self.rows, axis=1))

    @property
    def alpha(self) -> FloatArray:
        """The paper's alpha_i: what the noise in a record's weight multiplies."""
        return self.sign * self.outcome * np.exp(self.logit)


def _mean_odds(logit: FloatArray, spread: FloatArray, clip: float) -> FloatArray:
    """Mean of the clipped odds at logit + spread N, N standard normal.

    The log-normal between its limits, and the masses beyond them, in closed form.
    """
    _check_between("clip", clip, 0.5)
    from scipy.special import ndtr

    top = math.log((1.0 - clip) / clip)
    safe = np.maximum(spread, 1e-300)
    low, high = (-top - logit) / safe, (top - logit) / safe
    inside = np.exp(logit + spread**2 / 2.0) * (ndtr(high - spread) - ndtr(low - spread))
    return np.asarray(math.exp(-top) * ndtr(low) + inside + math.exp(top) * ndtr(-high))


def ipw_bias_bound(
    epsilon: float, m: int, penalty: float, delta: float, *, largest_outcome: float, clip: float
) -> float:
    """Largest size of `ipw_bias` over all rows of norm at most 1, clipped; needs no data.

    Examples
    --------
    >>> round(ipw_bias_bound(0.5, 20_000, 0.1, 1e-6, largest_outcome=1.0, clip=0.1), 5)
    0.03627
    """
    sd = ipw_noise_sd(epsilon, m, penalty, delta)
    _check_between("clip", clip, 0.5)
    top = math.log((1.0 - clip) / clip)
    # the odds move most for some logit within the limits or a little beyond, and some row's norm
    logit = np.linspace(-top - 8.0 * sd, top + 8.0 * sd, 2001)
    still = _mean_odds(logit, 0.0 * logit, clip)
    moved = [_mean_odds(logit, np.full_like(logit, sd * k / 8.0), clip) for k in range(1, 9)]
    return abs(largest_outcome) * float(np.abs(np.array(moved) - still).max())


def ipw_error_probability(
    distance: float,
    epsilon: float,
    m: int,
    penalty: float,
    delta: float,
    *,
    outcome: Any,
    treated: Any,
    rows: Any,
    weights: Any,
    estimand: str = "ATE",
    noise_sd: float | None = None,
    as_printed: bool = False,
) -> float:
    """Bound the chance that noise in the model moves an estimate by ``distance`` (Corollary 7).

    Parameters
    ----------
    distance
        Delta of the corollary, in units of the outcome.
    epsilon, m, penalty, delta, outcome, treated, rows, weights, estimand, noise_sd
        As for `ipw_bias`; propensities are not clipped.
    as_printed
        The size of g as printed, over the distance. The proof puts the size of a mean where
        Markov's inequality has the mean of a size, so errors that cancel count for nothing.

    Returns
    -------
    float
        At most 1. By default the mean square of the error, which has a closed form, over the
        squared distance (Chebyshev).

    Examples
    --------
    >>> import numpy as np
    >>> x = np.array([[0.6, 0.8], [0.6, -0.8], [0.6, 0.1]])
    >>> case = dict(outcome=[1.0, 2.0, 1.5], treated=[1, 0, 1], rows=x, weights=[0.1, 0.5])
    >>> round(ipw_error_probability(0.5, 0.5, 500, 0.1, 1e-6, **case), 3)
    0.428
    >>> round(ipw_error_probability(0.5, 0.5, 500, 0.1, 1e-6, **case, as_printed=True), 3)
    0.155
    """
    _check_positive(distance=distance)
    sd = _noise_sd(epsilon, m, penalty, delta, noise_sd)
    given = {"outcome": outcome, "treated": treated, "rows": rows, "weights": weights}
    with np.errstate(over="ignore", invalid="ignore"):
        if as_printed:
            given |= {"estimand": estimand, "noise_sd": sd, "as_printed": True}
            found = abs(ipw_bias(epsilon, m, penalty, delta, **given)) / distance
        else:
            square = _mean_square(_Terms.of(**given, estimand=estimand), sd)
            found = max(square, 0.0) / distance / distance
    return found if found < 1.0 else 1.0  # also where it is beyond floats


def _mean_square(noisy: _Terms, sd: float) -> float:
    """Mean over the noise z of (sum_i alpha_i (exp(-s_i x_i'z) - 1) / n)^2, s the sign.

    Of a product of two factors it is exp(|s_i x_i + s_j x_j|^2 sd^2 / 2) - b_i - b_j + 1, with
    b_i = exp(|x_i|^2 sd^2 / 2): log-normal means.
    """
    x, alpha = noisy.rows * noisy.sign[:, None] * sd, noisy.alpha / noisy.n
    half, total = (noisy.norms * sd) ** 2 / 2.0, 0.0
    for start in range(0, len(x), 1000):  # so that memory grows with n, not with its square
        own = slice(start, start + 1000)
        both = np.expm1(half[own, None] + half + x[own] @ x.T)
        both -= np.expm1(half[own, None]) + np.expm1(half)
        total += float(alpha[own] @ both @ alpha)
    return total


def ipw_noise_range(
    chance: float,
    epsilon: float,
    m: int,
    penalty: float,
    delta: float,
    *,
    outcome: Any,
    treated: Any,
    rows: Any,
    weights: Any,
    estimand: str = "ATE",
    noise_sd: float | None = None,
    as_printed: bool = False,
) -> float:
    """How far apart two draws of the model's noise can put the estimate (eta of Lemma 6).

    Parameters
    ----------
    chance
        gamma of the lemma: two estimates are within eta of each other but for this probability.
    epsilon, m, penalty, delta, outcome, treated, rows, weights, estimand, noise_sd
        As for `ipw_bias`; propensities are not clipped.
    as_printed
        The paper's: 2 sinh(zeta) times the mean of y exp(-+ w'x), zeta from the *sum* of the
        entries of the noise. That sum bounds no x'z, outcomes of either sign cancel, and gamma is
        for one of two draws.

    Returns
    -------
    float
        By default the mean of abs(y) exp(-+ w'x) 2 sinh(zeta norm(x)): zeta bounds the norm of the
        noise, or all of its products with the rows over their norms, whichever is smaller, in
        both draws.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.array([[0.6, 0.8], [0.6, -0.8], [0.6, 0.1]])
    >>> case = dict(outcome=[1.0, 2.0, 1.5], treated=[1, 0, 1], rows=x, weights=[0.1, 0.5])
    >>> round(ipw_noise_range(0.05, 0.5, 1000, 0.1, 1e-6, **case), 3)
    1.115
    >>> round(ipw_noise_range(0.05, 0.5, 1000, 0.1, 1e-6, **case, as_printed=True), 3)
    2.055
    """
    _check_between("chance", chance, 1)
    sd = _noise_sd(epsilon, m, penalty, delta, noise_sd)
    noisy = _Terms.of(outcome, treated, rows, weights, estimand)
    size = noisy.rows.shape[1]
    if as_printed:
        zeta = sd * math.sqrt(2.0 * size * math.log(2.0 / chance))
        with np.errstate(over="ignore"):
            return float(2.0 * np.sinh(zeta) * np.sum(noisy.sign * noisy.alpha) / noisy.n)
    from scipy.special import chdtri, ndtri

    one = -math.expm1(0.5 * math.log1p(-chance))  # so that two independent draws are within
    by_norm = math.sqrt(chdtri(size, one))
    by_row = -float(ndtri(one / (2.0 * max(len(noisy.rows), 1))))
    reach = sd * min(by_norm, by_row) * noisy.norms
    with np.errstate(over="ignore"):
        return float(np.sum(np.abs(noisy.alpha) * 2.0 * np.sinh(reach)) / noisy.n)


def ipw_bound(largest_outcome: float, clip: float, *, as_printed: bool = False) -> float:
    """Largest size eta of an estimate with propensities clipped to [clip, 1 - clip].

    A record is in one arm, so its term is at most largest_outcome / clip, and so is their mean.
    Appendix B counts every record in both arms and prints twice that.

    Examples
    --------
    >>> ipw_bound(1.0, 0.1), ipw_bound(1.0, 0.1, as_printed=True)
    (10.0, 20.0)
    """
    _check_between("clip", clip, 0.5)
    return (2.0 if as_printed else 1.0) * abs(largest_outcome) / clip


def wrong_sign_probability(
    effect: float,
    bias: float,
    bound: float,
    noise_sd: float = 0.0,
    *,
    both: bool = False,
    partial: float | None = None,
    as_printed: bool = False,
) -> float:
    """Bound the chance that noise turns the sign of an estimate (Theorems 4 and 5).

    Parameters
    ----------
    effect
        The estimate without noise.
    bias
        What noise in the propensity model adds to it on average: `ipw_bias`.
    bound
        Largest size of the estimate with a noisy model: `ipw_bound`.
    noise_sd
        Standard deviation of Gaussian noise on the estimate itself; 0 for Theorem 4.
    both
        The event of Theorem 5: the sign is wrong before and after that noise. By default only the
        sign of what is released matters.
    partial
        The estimate with a noisy model, which Theorem 5 as printed takes as known.
    as_printed
        The paper's formulas: exp(-2 u^2) with u = (effect + bias) / bound in Theorem 4, and that
        times ``Phi(|partial| / noise_sd)`` in Theorem 5.

    Returns
    -------
    float
        1 where the bias turns the sign on average.

    Notes
    -----
    The proof of Theorem 4 puts ``bound`` where Hoeffding's inequality has the length of the
    interval, twice that; Hoeffding gives exp(-u^2 / 2) only. The printed bound is true all the
    same, because a variable within [-bound, bound] is below 0 with a chance of at most 1 - u, and
    1 - u <= exp(-2 u^2). Theorem 5 as printed has a random quantity in its bound.

    The default is the largest chance of all estimates within [-bound, bound] that have the mean
    effect + bias: no bound that knows only these can be smaller. Without noise it is 1 - u.

    Examples
    --------
    >>> round(wrong_sign_probability(0.5, 0.01, 0.8), 4)
    0.3625
    >>> round(wrong_sign_probability(0.5, 0.01, 0.8, as_printed=True), 4)
    0.4436
    """
    if not (bound > 0 and noise_sd >= 0):
        raise OptionError("bound must be positive and noise_sd not negative")
    mean = math.copysign(1.0, effect) * (effect + bias)
    if as_printed:
        first = math.exp(-2.0 * (mean / bound) ** 2)
        if noise_sd == 0.0:
            return first
        if partial is None:
            raise OptionError("Theorem 5 as printed needs partial, the estimate with a noisy model")
        return first * 0.5 * (1.0 + math.erf(abs(partial) / (noise_sd * math.sqrt(2.0))))
    return 1.0 if mean <= 0.0 else _worst_case(min(mean / bound, 1.0), noise_sd / bound, both)


def _worst_case(mean: float, sd: float, both: bool) -> float:
    """Largest chance of a wrong sign over variables within [-1, 1] of this mean.

    Given the variable, the chance is h(x) = Phi(-x / sd) (0 for x > 0 where ``both`` must be
    wrong). The largest mean of h is its concave envelope, and h is concave below 0 and convex
    above, so the worst variable has two values, 1 and another, or is constant.
    """
    from scipy.special import ndtr

    def chance(x: FloatArray) -> FloatArray:
        wrong = ndtr(-x / sd) if sd > 0 else (x <= 0) * 1.0
        return np.asarray(np.where(both & (x > 0), 0.0, wrong))

    x = np.concatenate([np.linspace(-1.0, 0.0, 20_001), np.linspace(0.0, mean, 2_001)])
    x = x[x < 1.0]
    weight = (1.0 - mean) / (1.0 - x)
    at = chance(np.array([1.0]))[0]
    return float(np.max(weight * chance(x) + (1.0 - weight) * at, initial=at))
