"""Simulated data in which the true effect is known.

Every frame has the columns ``mu0`` and ``mu1``, the mean outcome of each row without and with
treatment, so ``(mu1 - mu0).mean()`` is the true average effect; with three arms ``mu2`` too. Where
the outcome is a time to an event, its mean is that of the time until the event or the horizon.
All variables have bounded support, and the declared bounds are that, but for Hill's surfaces, which
are in `datasets.ihdp`.

A simulator ``draw(rng, n, *, option=...)`` takes a numpy Generator, the number of rows, and its
options as keyword-only arguments with defaults.

Hill's response surfaces on the covariates of the IHDP: outcomes whose means are known.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from dpeffects.arrays import FloatArray, IntArray, Interval
from dpeffects.datasets.descriptions import INDICATOR, catalogue, named, read_bundled, require_known
from dpeffects.design.bounds import DeclaredFrame, declare
from dpeffects.errors import DataError, OptionError, checked_call, did_you_mean
from dpeffects.lazy import pd


def _ihdp_design() -> tuple[pd.DataFrame, FloatArray, FloatArray, FloatArray]:
    """Return the frame, Hill's x1..x25, and their means and variances as known without the data.

    The six measures are standardised: mean 0 and variance 1. An indicator has mean 1/2 give or
    take and variance at most 1/4; ``first_born`` is 1 or 2 in Hill's design.
    """
    record, frame = catalogue()["ihdp"], read_bundled("ihdp_covariates.csv")
    names = record.info.covariates
    x = frame[list(names)].to_numpy(dtype=np.float64)
    measured = np.array([record.bounds[name] != INDICATOR for name in names])
    measures = x[:, measured]
    x[:, measured] = (measures - measures.mean(axis=0)) / measures.std(axis=0, ddof=1)
    first_born = np.array([name == "first_born" for name in names])
    x[:, first_born] += 1.0
    mean = np.where(measured, 0.0, 0.5) + first_born
    return frame, x, mean, np.where(measured, 1.0, 0.25)


def ihdp_a(rng: np.random.Generator, n: int) -> DeclaredFrame:
    """Draw surface A: both arms linear and parallel, effect 4."""
    frame, x, mean, variance = _ihdp_design()
    beta = rng.choice(5, size=x.shape[1] + 1, p=[0.5, 0.2, 0.15, 0.1, 0.05]).astype(np.float64)
    mu0 = beta[0] + x @ beta[1:]
    centre = beta[0] + mean @ beta[1:]
    spread = 3.0 * math.sqrt(variance @ beta[1:] ** 2 + 1.0)
    return _ihdp(rng, n, frame, mu0, mu0 + 4.0, (centre - spread, centre + 4.0 + spread))


def ihdp_b(rng: np.random.Generator, n: int) -> DeclaredFrame:
    """Draw surface B: the untreated arm exponential, the effect on the treated 4."""
    frame, x, mean, variance = _ihdp_design()
    beta = rng.choice(5, size=x.shape[1] + 1, p=[0.6, 0.1, 0.1, 0.1, 0.1]) / 10.0
    mu0 = np.exp(beta[0] + (x + 0.5) @ beta[1:])
    linear = x @ beta[1:]
    omega = (linear - mu0)[frame["treatment"].to_numpy() == 1].mean() - 4.0
    centre = beta[0] + (mean + 0.5) @ beta[1:]
    spread = float(variance @ beta[1:] ** 2)
    # Two deviations up on the log scale, or where the treated arm lies, with 3 for the noise.
    top = max(math.exp(centre + 2.0 * math.sqrt(spread)), math.exp(centre + spread / 2) + 4.0)
    return _ihdp(rng, n, frame, mu0, linear - omega, (-3.0, top + 3.0))


def _ihdp(
    rng: np.random.Generator,
    n: int,
    frame: pd.DataFrame,
    mu0: FloatArray,
    mu1: FloatArray,
    within: Interval,
) -> DeclaredFrame:
    """Add the noisy outcome and both means, within a range rounded outwards to fives."""
    if n != len(frame):
        raise OptionError(f"the IHDP covariates have {len(frame)} rows: leave n out")
    outcome = np.where(frame["treatment"] == 1, mu1, mu0) + rng.normal(size=n)
    rounded = 5.0 * math.floor(within[0] / 5.0), 5.0 * math.ceil(within[1] / 5.0)
    means = dict.fromkeys(("outcome", "mu0", "mu1"), rounded)
    made = frame.assign(outcome=outcome, mu0=mu0, mu1=mu1)
    return declare(made, {**catalogue()["ihdp"].bounds, **means})


def _sigmoid(z: FloatArray) -> FloatArray:
    return 1.0 / (1.0 + np.exp(-z))


def _bernoulli(rng: np.random.Generator, p: FloatArray) -> IntArray:
    return (rng.random(len(p)) < p).astype(np.int64)


def _check_between(name: str, value: float, lower: float, upper: float) -> None:
    if not lower <= value <= upper:
        raise OptionError(f"{name} must be between {lower:g} and {upper:g}, got {value!r}")


def _support(lower: float, upper: float, effect: float) -> Interval:
    """Return the support of an untreated outcome, extended by the effect of treatment."""
    return lower + min(effect, 0.0), upper + max(effect, 0.0)


def _declared(
    covariates: FloatArray | Mapping[str, npt.NDArray[Any]],
    treatment: IntArray,
    outcome: npt.NDArray[Any],
    mu0: FloatArray,
    effect: FloatArray | float,
    outcome_range: Interval,
    bounds: Mapping[str, Any] | None = None,
) -> DeclaredFrame:
    """Return the frame and its bounds; columns of a matrix are x1, x2, ... within [0, 1]."""
    if isinstance(covariates, np.ndarray):
        covariates = {f"x{j + 1}": covariates[:, j] for j in range(covariates.shape[1])}
    means = {"mu0": mu0, "mu1": mu0 + effect}
    frame = pd.DataFrame({"treatment": treatment, "outcome": outcome, **covariates, **means})
    ranges = dict.fromkeys(("outcome", *means), outcome_range)
    inputs = bounds or dict.fromkeys(covariates, (0, 1))
    return declare(frame, {"treatment": INDICATOR, **ranges, **inputs})


# --- the papers' Synth ------------------------------------------------------------------------


def _private_psm(
    rng: np.random.Generator, n: int, *, covariates: int = 20, effect: float = 0.5
) -> DeclaredFrame:
    """Draw Synth of PrivATE (its appendix F)."""
    _check_between("covariates", covariates, 1, 1_000)
    _check_between("effect", effect, -1.0, 1.0)
    a = rng.uniform(-1.0, 1.0, covariates)
    b = rng.uniform(0.0, 0.4 / covariates, covariates)
    x = rng.random((n, covariates))
    treatment = _bernoulli(rng, _sigmoid((2.0 * x - 1.0) @ a))
    outcome = x @ b + effect * treatment + rng.uniform(0.0, 0.1, n)
    return _declared(x, treatment, outcome, x @ b + 0.05, effect, _support(0.0, 0.5, effect))


def _multisite(
    rng: np.random.Generator,
    n: int,
    *,
    levels: int = 100,
    effect: float = 0.5,
    imbalance: float | None = None,
    sites: tuple[float, ...] = (1, 1, 1),
) -> DeclaredFrame:
    """Draw Synth of Koga, Chaudhuri and Page (their section on experiments)."""
    _check_between("levels", levels, 2, 100_000)
    _check_between("effect", effect, -1.0, 1.0)
    drawn = rng.uniform(-1.0, 1.0)
    a = drawn if imbalance is None else imbalance
    b = rng.uniform(0.0, 0.4)
    values = np.linspace(0.0, 1.0, levels)
    x = values[rng.integers(levels, size=n)]
    treatment = _bernoulli(rng, _sigmoid(a * (2.0 * x - 1.0)))
    outcome = b * x + effect * treatment + rng.uniform(0.0, 0.1, n)
    names, site = _sites(rng, n, sites)
    support, bounds = _support(0.0, 0.5, effect), {"x": values.tolist(), "site": names}
    columns = {"x": x, "site": site}
    return _declared(columns, treatment, outcome, b * x + 0.05, effect, support, bounds)


def _sites(
    rng: np.random.Generator, n: int, shares: tuple[float, ...]
) -> tuple[list[str], npt.NDArray[np.str_]]:
    """Deal ``n`` rows out to sites at random, in sizes proportional to ``budget_split``."""
    weights = np.asarray(shares, dtype=np.float64)
    if weights.ndim != 1 or len(weights) < 2 or not (weights > 0).all():
        raise OptionError(f"sites must be two or more positive shares, got {shares!r}")
    names = [f"site_{j + 1}" for j in range(len(weights))]
    ends = np.round(np.cumsum(weights) / weights.sum() * n).astype(int)
    dealt = np.repeat(np.array(names), np.diff(ends, prepend=0))
    return names, rng.permutation(dealt)


# --- confounding that matters -----------------------------------------------------------------

_WEIGHTS = np.array([0.3, 0.2, 0.2, 0.1, 0.1, 0.1, 0.0, 0.0, 0.0, 0.0])
"""How much each covariate counts, both for being treated and for the outcome; sums to one."""
_SLOPE = 8.0
"""Slope of the propensity's logit in the weighted covariates: from -4 to 4 over their range."""


def _confounders(rng: np.random.Generator, n: int) -> tuple[FloatArray, FloatArray, IntArray]:
    """Return ten uniform covariates, their weighted sum in [0, 1], and the treatment."""
    x = rng.random((n, len(_WEIGHTS)))
    risk = x @ _WEIGHTS
    return x, risk, _bernoulli(rng, _sigmoid(_SLOPE * (risk - 0.5)))


def _confounded(rng: np.random.Generator, n: int, *, effect: float = 0.1) -> DeclaredFrame:
    """Draw a bounded outcome that rises with what makes treatment likely."""
    _check_between("effect", effect, -1.0, 1.0)
    x, risk, treatment = _confounders(rng, n)
    outcome = 0.7 * risk + effect * treatment + rng.uniform(0.0, 0.2, n)
    return _declared(x, treatment, outcome, 0.7 * risk + 0.1, effect, _support(0.0, 0.9, effect))


def _binary(rng: np.random.Generator, n: int, *, effect: float = -0.1) -> DeclaredFrame:
    """Draw a 0/1 outcome whose risk treatment shifts by ``effect``."""
    _check_between("effect", effect, -0.2, 0.2)
    x, risk, treatment = _confounders(rng, n)
    mu0 = 0.2 + 0.6 * risk
    outcome = _bernoulli(rng, mu0 + effect * treatment)
    return declare(_declared(x, treatment, outcome, mu0, effect, (0, 1)), outcome=INDICATOR)


def _three_arms(rng: np.random.Generator, n: int, *, effect: float = 0.2) -> DeclaredFrame:
    """Draw a treatment of three levels, and an outcome that rises with what makes it likely.

    Low treatment has half of the effect of high treatment.
    """
    _check_between("effect", effect, -1.0, 1.0)
    x = rng.random((n, 3))
    logits = np.stack([np.zeros(n), 2.0 * x[:, 0] - 1.0, 3.0 * (x[:, 0] + x[:, 1] - 1.0)], axis=1)
    arm = np.argmax(logits + rng.gumbel(size=(n, 3)), axis=1)
    mu0 = x @ np.array([0.3, 0.2, 0.1]) + 0.1
    means = {f"mu{k}": mu0 + effect * k / 2.0 for k in range(3)}
    outcome = mu0 + effect * arm / 2.0 + rng.uniform(-0.1, 0.1, n)
    levels = ["none", "low", "high"]
    columns = {f"x{j + 1}": x[:, j] for j in range(3)}
    frame = pd.DataFrame(
        {"treatment": np.array(levels)[arm], "outcome": outcome, **columns, **means}
    )
    ranges = dict.fromkeys(("outcome", *means), _support(0.0, 0.8, effect))
    return declare(frame, {"treatment": levels, **ranges, **dict.fromkeys(columns, (0, 1))})


# --- rows that have something in common, missing outcomes, surveys ------------------------------


def _share_of(rng: np.random.Generator, group: IntArray, icc: float) -> FloatArray:
    """Return what rows of one group have in common, and what they have not, within 0.3 of zero.

    The first column has the part ``icc`` of the variance of their sum.
    """
    _check_between("icc", icc, 0.0, 1.0)
    common = rng.uniform(-1.0, 1.0, int(group.max()) + 1)[group]
    parts = np.stack([common, rng.uniform(-1.0, 1.0, len(group))], axis=1)
    sizes = np.sqrt([icc, 1.0 - icc])
    return 0.3 * parts * sizes / sizes.sum()


def _study(
    x: FloatArray, treatment: IntArray, error: FloatArray, effect: float, **more: Any
) -> DeclaredFrame:
    """Return a frame whose effects rise with x1, to twice ``effect``, as its outcomes do.

    Columns of ``error`` are added up; those but the last belong to the mean of a row. ``more`` are
    further columns, each with its range.
    """
    _check_between("effect", effect, 0.0, 0.1)
    mu0 = 0.3 + x @ np.array([0.1, 0.1, 0.0]) + error[:, :-1].sum(axis=1)
    effects = 2.0 * effect * x[:, 0]
    outcome = mu0 + effects * treatment + error[:, -1]
    columns = {f"x{j + 1}": x[:, j] for j in range(3)} | {k: c[0] for k, c in more.items()}
    bounds = dict.fromkeys(("x1", "x2", "x3"), (0, 1)) | {k: c[1] for k, c in more.items()}
    return _declared(columns, treatment, outcome, mu0, effects, (0.0, 1.0), bounds)


def _assign(rng: np.random.Generator, x: FloatArray, randomised: bool, more: Any = 0.0) -> Any:
    """Return a treatment that is the likelier, the larger x1 and x2 are, unless it is random."""
    return _bernoulli(
        rng, _sigmoid((0.0 if randomised else 3.0) * (x[:, 0] + x[:, 1] - 1.0) + more)
    )


def _clustered(
    rng: np.random.Generator,
    n: int,
    *,
    clusters: int = 100,
    icc: float = 0.2,
    effect: float = 0.1,
    assigned: str = "record",
    randomised: bool = False,
) -> DeclaredFrame:
    """Draw villages of unequal size, whose people have something in common.

    With ``assigned="village"`` all people of a village are treated, or none, and x1 and x2 are the
    village's. Else people are, and the chance differs between villages too, for reasons that have
    nothing to do with the outcome.
    """
    _check_between("clusters", clusters, 2, n)
    if assigned not in ("record", "village"):
        raise OptionError(f"assigned must be 'record' or 'village', got {assigned!r}")
    sizes = rng.uniform(0.2, 1.8, clusters)
    village = rng.choice(clusters, n, p=sizes / sizes.sum())
    x, like = rng.random((n, 3)), rng.random((clusters, 3))
    if assigned == "village":
        x[:, :2] = like[village, :2]
        treatment = _assign(rng, like, randomised)[village]
    else:
        treatment = _assign(rng, x, randomised, more=4.0 * like[village, 2] - 2.0)
    error = _share_of(rng, village, icc)
    return _study(x, treatment, error, effect, village=(village, (0, clusters)))


def _repeated(
    rng: np.random.Generator,
    n: int,
    *,
    most: int = 8,
    icc: float = 0.2,
    effect: float = 0.1,
    randomised: bool = False,
) -> DeclaredFrame:
    """Draw people with 1 to ``most`` rows, the more the larger x1 is, all with the same treatment.

    Effects rise with x1 too: the mean over rows is not that over people.
    """
    _check_between("most", most, 1, 1_000)
    of_people = rng.random((n, 3))
    rows = 1 + rng.binomial(int(most) - 1, of_people[:, 0])
    person = np.repeat(np.arange(n), rows)[:n]
    treatment = _assign(rng, of_people, randomised)[person]
    error = _share_of(rng, person, icc)
    return _study(of_people[person], treatment, error, effect, person=(person, (0, n)))


def _missing_outcomes(
    rng: np.random.Generator, n: int, *, effect: float = 0.1, randomised: bool = False
) -> DeclaredFrame:
    """Draw outcomes of which a fifth is missing, by x1, x2 and treatment: at random given these."""
    x = rng.random((n, 3))
    treatment = _assign(rng, x, randomised)
    error = rng.uniform(-0.2, 0.2, (n, 1))
    study = _study(x, treatment, error, effect)
    absent = _sigmoid(-2.5 + 4.0 * (x[:, 0] - 0.5) - 2.0 * (x[:, 1] - 0.5) + 1.2 * treatment)
    kept = study.frame["outcome"].mask(_bernoulli(rng, absent) == 1)
    return declare(study.frame.assign(outcome=kept), study.bounds)


def _survey(
    rng: np.random.Generator, n: int, *, effect: float = 0.1, randomised: bool = False
) -> DeclaredFrame:
    """Draw a survey in which people with a large x1, and a large effect, are rarely asked.

    Weights are from 1 to 5. The effect in the population is the weighted mean of mu1 - mu0.
    """
    people = rng.random((8 * n + 100, 3))
    weight = 1.0 + 4.0 * people[:, 0]
    asked = np.flatnonzero(rng.random(len(people)) < 1.0 / weight)[:n]
    x, error = people[asked], rng.uniform(-0.2, 0.2, (n, 1))
    treatment = _assign(rng, x, randomised)
    return _study(x, treatment, error, effect, weight=(weight[asked], (0, 5)))


# --- times to an event -------------------------------------------------------------------------


def _survival(
    rng: np.random.Generator,
    n: int,
    *,
    hazard_ratio: float = 0.7,
    risk: float = 0.4,
    shape: float = 1.2,
    prognosis: float = 1.5,
    censoring: float = 0.3,
    horizon: float = 360.0,
    treated: float = 0.5,
    randomised: bool = False,
) -> DeclaredFrame:
    """Draw Weibull times to an event, censored at the horizon, or before it at a uniform time.

    mu0 and mu1 are mean times until the event or the horizon, by the incomplete gamma function.
    """
    from scipy.special import gamma, gammainc

    for name, value in {"risk": risk, "censoring": censoring, "treated": treated}.items():
        _check_between(name, value, 0.0, 1.0)
    _check_between("hazard_ratio", hazard_ratio, 0.01, 100.0)
    _check_between("shape", shape, 0.1, 10.0)
    x = rng.random((n, 3))
    odds = math.log(max(treated, 1e-12) / max(1.0 - treated, 1e-12))
    treatment = _assign(rng, x, randomised, more=odds)
    base = -math.log1p(-min(risk, 1.0 - 1e-12)) * np.exp(prognosis * (x[:, 0] + x[:, 1] - 1.0))
    hazards = {"0": base, "1": base * hazard_ratio}  # integrated until the horizon
    own = np.where(treatment == 1, hazards["1"], hazards["0"])
    until = horizon * (rng.exponential(size=n) / np.maximum(own, 1e-300)) ** (1.0 / shape)
    leaves = rng.random(n) < censoring
    last = np.where(leaves, horizon * rng.random(n), horizon)
    columns = {"time": np.minimum(until, last), "event": (until <= last).astype(np.int64)}
    columns |= {f"x{j + 1}": x[:, j] for j in range(3)}
    power = 1.0 / shape
    for arm, total in hazards.items():
        part = gamma(1.0 + power) * gammainc(power, total) / np.maximum(total, 1e-300) ** power
        columns[f"mu{arm}"] = np.where(total > 0.0, horizon * part, horizon)
    columns |= {f"risk{arm}": -np.expm1(-total) for arm, total in hazards.items()}
    times = dict.fromkeys(("time", "mu0", "mu1"), (0, horizon))
    shares = dict.fromkeys(("x1", "x2", "x3", "risk0", "risk1"), (0, 1))
    frame = pd.DataFrame({"treatment": treatment, **columns})
    return declare(frame, {"treatment": INDICATOR, "event": INDICATOR, **times, **shares})


# --- events in unequal times -------------------------------------------------------------------


def _rates(
    rng: np.random.Generator,
    n: int,
    *,
    rate: float = 0.2,
    ratio: float = 0.7,
    dispersion: float = 1.5,
    prognosis: float = 1.0,
    treated: float = 0.5,
    longest: float = 5.0,
    most: int = 10,
    randomised: bool = False,
) -> DeclaredFrame:
    """Draw counts of events in unequal times, by a beta-binomial distribution, ``most`` at most.

    Their variance is about ``dispersion`` times that of a Poisson distribution with the same mean.
    """
    _check_between("rate", rate, 0.0, 100.0)
    _check_between("ratio", ratio, 0.01, 100.0)
    _check_between("treated", treated, 0.0, 1.0)
    _check_between("most", most, 1, 1_000)
    _check_between("dispersion", dispersion, 1.0, max(0.9 * most, 1.0))
    x = rng.random((n, 3))
    odds = math.log(max(treated, 1e-12) / max(1.0 - treated, 1e-12))
    treatment = _assign(rng, x, randomised, more=odds)
    years = longest * np.where(rng.random(n) < 0.2 + 0.4 * x[:, 0], rng.random(n), 1.0)
    expected = rate * years * np.exp(prognosis * (x[:, 0] + x[:, 1] - 1.0))
    means = {f"mu{k}": np.minimum(expected * ratio**k, 0.9 * most) for k in (0, 1)}
    chance = np.where(treatment == 1, means["mu1"], means["mu0"]) / most
    if dispersion > 1.0 and most > 1:
        size = (most - 1.0) / (dispersion - 1.0) - 1.0
        chance = rng.beta(np.maximum(chance * size, 1e-12), (1.0 - chance) * size)
    columns = {"events": rng.binomial(int(most), chance), "years": years}
    columns |= {f"x{j + 1}": x[:, j] for j in range(3)} | means
    frame = pd.DataFrame({"treatment": treatment, **columns})
    bounds = dict.fromkeys(("x1", "x2", "x3"), (0, 1)) | dict.fromkeys(("mu0", "mu1"), (0, most))
    return declare(
        frame, {"treatment": INDICATOR, "events": (0, most), "years": (0, longest), **bounds}
    )


# --- effects that differ between people -------------------------------------------------------


def _theta(a: FloatArray, b: FloatArray) -> FloatArray:
    """Return the conditional effect exp(2 a) + 3 sin(4 b)."""
    return np.exp(2.0 * a) + 3.0 * np.sin(4.0 * b)


def _partially_linear(
    rng: np.random.Generator,
    x: FloatArray,
    beta: FloatArray,
    gamma: FloatArray,
    effect: FloatArray,
    within: Interval,
) -> DeclaredFrame:
    """Draw treatment 1{x . beta >= eta} and outcome effect * treatment + x . gamma + noise.

    eta and the noise are uniform on [-1, 1], so the propensity is (1 + x . beta) / 2, at most 1.
    """
    treatment = (x @ beta >= rng.uniform(-1.0, 1.0, len(x))).astype(np.int64)
    outcome = effect * treatment + x @ gamma + rng.uniform(-1.0, 1.0, len(x))
    return _declared(x, treatment, outcome, x @ gamma, effect, within)


def _cate_1(rng: np.random.Generator, n: int) -> DeclaredFrame:
    """Draw dataset 1 of the DP-CATE paper (its appendix H.1).

    x . gamma is in [0, 2], the noise in [-1, 1] and the effect in [1, 5.5], so the outcome is in
    [-1, 8.5] whatever gamma is. x . beta is at most 0.6: propensities are from 0.5 to 0.8.
    """
    beta, gamma = rng.uniform(0.0, 0.3, 2), rng.uniform(0.0, 1.0, 2)
    x = rng.random((n, 2))
    return _partially_linear(rng, x, beta, gamma, _theta(x[:, 0], x[:, 0]), (-1.0, 8.5))


def _cate_2(rng: np.random.Generator, n: int, *, support: int = 5) -> DeclaredFrame:
    """Draw dataset 2 of the DP-CATE paper (its appendix H.1).

    The paper does not say how many entries of beta and gamma differ from zero. With all 30,
    x . beta mostly exceeds 1 and nearly everybody is treated. So ``support`` coordinates, the same
    for both as in Oprescu et al., are drawn at random. With 5, propensities start at 0.5 and
    average 0.69. Over draws of beta 0.1% of records have one above 0.95, in nine draws of ten even
    fewer; in the worst of 2,000 draws it was 8%, with 3% of the records certain to be treated.

    x . gamma is in [0, support], the noise in [-1, 1] and the effect in [-1.3, 11] (exp(2 a) in
    [1, 7.4], 3 sin(4 b) in [-2.3, 3]), so the outcome is in [-2.3, support + 12] whatever gamma is.
    """
    width = 30
    if isinstance(support, bool) or not isinstance(support, int | np.integer):
        raise OptionError(f"support must be a whole number, got {support!r}")
    _check_between("support", support, 1, width)
    chosen = rng.choice(width, support, replace=False)
    beta, gamma = np.zeros(width), np.zeros(width)
    beta[chosen] = rng.uniform(0.0, 0.3, support)
    gamma[chosen] = rng.uniform(0.0, 1.0, support)
    x = rng.random((n, width))
    within = (-2.3, float(support + 12))
    return _partially_linear(rng, x, beta, gamma, _theta(x[:, 0], x[:, 1]), within)


# --- stand-ins for data sets of that paper that nobody may pass on -----------------------------


def _mimic_like(rng: np.random.Generator, n: int) -> DeclaredFrame:
    """Draw a table of the size and kind of MIMIC-III as the DP-CATE paper uses it.

    Vital signs and blood counts have usual means and spreads of intensive care, and a severity in
    common. Ventilation gets likelier with it, from 0.1 to 0.9.
    """
    severe, blood, *z = np.clip(rng.normal(size=(8, n)), -3.0, 3.0)
    count = np.clip(3.6 + 0.6 * blood, 1.5, 7.0)
    hematocrit = np.clip(31.0 + 4.5 * (0.9 * blood + 0.44 * z[0]), 15.0, 60.0)
    rate = np.clip(85.0 + 15.0 * (0.8 * z[1] + 0.6 * severe), 30.0, 200.0)
    breaths = np.clip(19.0 + 5.0 * (0.8 * z[2] + 0.6 * severe), 5.0, 60.0)
    age = np.clip(64.0 + 16.0 * z[3], 18.0, 90.0)
    covariates = {
        "heart_rate": rate,
        "sodium": np.clip(139.0 + 5.0 * z[4], 110.0, 170.0),
        "red_blood_cells": count,
        "glucose": np.clip(130.0 * np.exp(0.3 * z[5]), 30.0, 600.0),
        "hematocrit": hematocrit,
        "respiratory_rate": breaths,
        "age": age,
        "female": _bernoulli(rng, np.full(n, 0.44)),
    }
    logit = 0.8 * (breaths - 19.0) / 5.0 + 0.4 * (rate - 85.0) / 15.0
    logit += 0.2 * (age - 64.0) / 16.0 - 0.3 * (hematocrit - 31.0) / 4.5 - 0.4
    treatment = _bernoulli(rng, _sigmoid(np.clip(logit, -2.2, 2.2)))
    effect = 0.6 + 0.3 * np.tanh((hematocrit - 31.0) / 9.0) + 0.2 * np.tanh((breaths - 19.0) / 10.0)
    mu0 = 0.3 + 0.85 * count - 0.1 * np.tanh((age - 64.0) / 16.0)
    outcome = mu0 + effect * treatment + rng.uniform(-0.5, 0.5, n)
    bounds = catalogue()["mimic_like"].bounds
    ranges = {name: bounds[name] for name in covariates}
    return _declared(covariates, treatment, outcome, mu0, effect, bounds["outcome"], ranges)


def _tcga_like(
    rng: np.random.Generator, n: int, *, covariates: int = 4_000, effect: float = 1.0
) -> DeclaredFrame:
    """Draw a table of the size and kind of TCGA as the DP-CATE paper uses it.

    Expressions of genes share twelve factors, and spread the less the higher their number. The sum
    of the ten that spread most, standardised, decides on treatment and outcome.
    """
    _check_between("covariates", covariates, 10, 20_000)
    _check_between("effect", effect, -2.0, 2.0)
    columns: dict[str, FloatArray] = {}
    factors = rng.normal(size=(n, 12))
    spread = np.geomspace(4.0, 1.5, covariates)
    for start in range(0, covariates, step := 250):
        own = spread[start : start + step]
        loadings = rng.normal(size=(12, own.size)) / math.sqrt(12.0)
        mixed = 0.6 * (factors @ loadings) + 0.8 * rng.normal(size=(n, own.size))
        block = np.clip(8.0 + own * mixed, 0.0, 20.0)
        columns |= {f"gene_{start + j + 1}": block[:, j] for j in range(own.size)}
    total = sum(columns[f"gene_{j + 1}"] for j in range(10)) - 80.0
    score = np.clip(total / (4.0 * math.sqrt(10.0)), -3.0, 3.0)
    treatment = _bernoulli(rng, _sigmoid(np.clip(score, -2.2, 2.2)))
    mu0 = 5.0 + score
    outcome = mu0 + effect * treatment + rng.uniform(-1.0, 1.0, n)
    ranges = dict.fromkeys(columns, (0, 20))
    return _declared(columns, treatment, outcome, mu0, effect, _support(1.0, 9.0, effect), ranges)


SIMULATORS: dict[str, Callable[..., DeclaredFrame]] = {
    draw.__name__.removeprefix("_"): draw
    for draw in (
        *(_private_psm, _multisite, _confounded, _binary, _three_arms, _clustered, _repeated),
        *(_missing_outcomes, _survey, _survival, _rates, _cate_1, _cate_2, _mimic_like),
        *(_tcga_like, ihdp_a, ihdp_b),
    )
}


@checked_call
def simulate(name: str, n: int | None = None, seed: int = 0, **options: Any) -> DeclaredFrame:
    """Simulate data with a known effect, together with the declared bounds of all its columns.

    Parameters
    ----------
    name
        One of the names that :func:`list_data` shows as simulators.
    n
        Number of rows; by default that of ``data_info(name).rows``.
    seed
        The same seed gives the same frame.
    **options
        Options of the simulator, for example ``effect=0.2``; ``data_info(name)`` describes them.

    Returns
    -------
    Declared
        A pandas frame in ``.frame`` and its bounds in ``.bounds``. The columns ``mu0`` and ``mu1``
        hold the true mean of each row without and with treatment.

    Examples
    --------
    >>> from dpeffects.datasets import simulate
    >>> frame = simulate("confounded", n=500, seed=1, effect=0.05).frame
    >>> print(round((frame.mu1 - frame.mu0).mean(), 3))
    0.05
    """
    if name in named(simulated=False):
        raise DataError(f"{name!r} is not simulated: use load_data({name!r})")
    require_known(name, named(simulated=True))
    rows = catalogue()[name].info.rows if n is None else n
    for argument, value, least in (("n", rows, 2), ("seed", seed, 0)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
            raise OptionError(
                f"{argument} must be a whole number of at least {least}, got {value!r}"
            )
    draw = SIMULATORS[name]
    parameters = inspect.signature(draw).parameters.values()
    known = [option.name for option in parameters if option.kind is option.KEYWORD_ONLY]
    for option in options:
        if option not in known:
            takes = ", ".join(("n", "seed", *known))
            hint = did_you_mean(option, ("n", "seed", *known))
            raise OptionError(f"simulate({name!r}) has no option {option!r}, only {takes}.{hint}")
    return draw(np.random.default_rng(seed), rows, **options)
