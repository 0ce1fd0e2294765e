"""What papers 000 and 004 prove about their own estimators, to call before spending anything.

Theorem 3 of paper 000 bounds the squared error of a matched sum (`matching_error_bound`).

In paper 004, Lemma 3 gives the bias that noise on the weights of a propensity model causes, and
Theorems 4 and 5 bound the chance of a wrong sign. They are about its mechanism (`private_ipw` with
``propensity="output", centre="none", split=True, noise="gaussian"``). Where a printed formula does
not follow from its proof, the default is what does follow, and ``as_printed=True`` is the paper's.

The bias depends on outcomes and covariates. Call it with simulated or public rows: computed from
private rows it is itself private and must not be published. `ipw_bias_bound` needs no rows.
"""

from __future__ import annotations

import math
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
    sd = ipw_noise_sd(epsilon, m, penalty, delta) if noise_sd is None else noise_sd
    x, w = np.asarray(rows, dtype=float), np.asarray(weights, dtype=float)
    y, t = np.asarray(outcome, dtype=float), np.asarray(treated).astype(bool)
    if not (x.ndim == 2 and x.shape == (y.size, w.size) and t.shape == y.shape):
        raise OptionError(
            "rows must be a matrix with a row for each outcome, a column for each weight"
        )
    if estimand not in ("ATE", "ATT", "ATC"):
        raise OptionError(f"estimand must be ATE, ATT or ATC, got {estimand!r}")
    if as_printed and clip is not None:
        raise OptionError("the printed formula has no clip")
    sign = np.where(t, 1.0, -1.0)
    counts = {"ATE": np.ones_like(t), "ATT": ~t, "ATC": t}[estimand]  # whose weights are noisy
    # a record's weight is 1 + odds against its own arm (ATE), or those odds (ATT, ATC)
    logit, spread = -sign * (x @ w), sd * np.linalg.norm(x, axis=1)
    if as_printed:
        change = np.exp(logit) * np.expm1(-sign * spread**2 / 2.0)
    elif clip is None:
        change = np.exp(logit) * np.expm1(spread**2 / 2.0)
    else:
        change = _mean_odds(logit, spread, clip) - _mean_odds(logit, 0.0 * spread, clip)
    return float(np.sum(sign * y * change * counts) / y.size)


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
