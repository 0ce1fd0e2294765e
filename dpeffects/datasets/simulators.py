"""Simulated data in which the true effect is known.

Every frame has the columns ``mu0`` and ``mu1``, the mean outcome of each row without and with
treatment, so ``(mu1 - mu0).mean()`` is the true average effect. All variables have bounded
support, and the declared bounds are that support.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from dpeffects.datasets.info import INDICATOR, DataInfo, Entries, Simulator
from dpeffects.design.bounds import Declared, declare
from dpeffects.errors import OptionError

Array = npt.NDArray[np.float64]


def _sigmoid(z: Array) -> Array:
    return 1.0 / (1.0 + np.exp(-z))


def _bernoulli(rng: np.random.Generator, p: Array) -> npt.NDArray[np.int64]:
    return (rng.random(len(p)) < p).astype(np.int64)


def _columns(x: Array) -> dict[str, Array]:
    return {f"x{j + 1}": x[:, j] for j in range(x.shape[1])}


def _check_between(name: str, value: float, lower: float, upper: float) -> None:
    if not lower <= value <= upper:
        raise OptionError(f"{name} must be between {lower:g} and {upper:g}, got {value!r}")


def _support(lower: float, upper: float, effect: float) -> tuple[float, float]:
    """Return the support of an untreated outcome, extended by the effect of treatment."""
    return lower + min(effect, 0.0), upper + max(effect, 0.0)


def _declared(
    covariates: Mapping[str, npt.NDArray[Any]],
    treatment: npt.NDArray[np.int64],
    outcome: npt.NDArray[Any],
    means: tuple[Array, Array],
    bounds: Entries,
    outcome_range: tuple[float, float],
) -> Declared:
    import pandas as pd

    mu0, mu1 = means
    frame = pd.DataFrame(
        {"treatment": treatment, "outcome": outcome, **covariates, "mu0": mu0, "mu1": mu1}
    )
    ranges = dict.fromkeys(("outcome", "mu0", "mu1"), outcome_range)
    return declare(frame, {"treatment": INDICATOR, **ranges, **bounds})


# --- the papers' Synth ------------------------------------------------------------------------


def _private_psm(
    rng: np.random.Generator, n: int, *, covariates: int = 20, effect: float = 0.5
) -> Declared:
    """Draw Synth of PrivATE (its appendix F)."""
    _check_between("covariates", covariates, 1, 1_000)
    _check_between("effect", effect, -1.0, 1.0)
    a = rng.uniform(-1.0, 1.0, covariates)
    b = rng.uniform(0.0, 0.4 / covariates, covariates)
    x = rng.random((n, covariates))
    treatment = _bernoulli(rng, _sigmoid((2.0 * x - 1.0) @ a))
    mu0 = x @ b + 0.05
    outcome = x @ b + effect * treatment + rng.uniform(0.0, 0.1, n)
    columns = _columns(x)
    bounds: Entries = dict.fromkeys(columns, (0, 1))
    support = _support(0.0, 0.5, effect)
    return _declared(columns, treatment, outcome, (mu0, mu0 + effect), bounds, support)


def _multisite(
    rng: np.random.Generator,
    n: int,
    *,
    levels: int = 100,
    effect: float = 0.5,
    imbalance: float | None = None,
    sites: tuple[float, ...] = (1, 1, 1),
) -> Declared:
    """Draw Synth of Koga, Chaudhuri and Page (their section on experiments)."""
    _check_between("levels", levels, 2, 100_000)
    _check_between("effect", effect, -1.0, 1.0)
    drawn = rng.uniform(-1.0, 1.0)
    a = drawn if imbalance is None else imbalance
    b = rng.uniform(0.0, 0.4)
    values = np.linspace(0.0, 1.0, levels)
    x = values[rng.integers(levels, size=n)]
    treatment = _bernoulli(rng, _sigmoid(a * (2.0 * x - 1.0)))
    mu0 = b * x + 0.05
    outcome = b * x + effect * treatment + rng.uniform(0.0, 0.1, n)
    names, site = _sites(rng, n, sites)
    columns = {"x": x, "site": site}
    bounds: Entries = {"x": values.tolist(), "site": names}
    support = _support(0.0, 0.5, effect)
    return _declared(columns, treatment, outcome, (mu0, mu0 + effect), bounds, support)


def _sites(
    rng: np.random.Generator, n: int, shares: tuple[float, ...]
) -> tuple[list[str], npt.NDArray[np.str_]]:
    """Deal ``n`` rows out to sites at random, in sizes proportional to ``shares``."""
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


def _confounders(rng: np.random.Generator, n: int) -> tuple[Array, Array, npt.NDArray[np.int64]]:
    """Return ten uniform covariates, their weighted sum in [0, 1], and the treatment."""
    x = rng.random((n, len(_WEIGHTS)))
    risk = x @ _WEIGHTS
    return x, risk, _bernoulli(rng, _sigmoid(_SLOPE * (risk - 0.5)))


def _confounded(rng: np.random.Generator, n: int, *, effect: float = 0.1) -> Declared:
    """Draw a bounded outcome that rises with what makes treatment likely."""
    _check_between("effect", effect, -1.0, 1.0)
    x, risk, treatment = _confounders(rng, n)
    mu0 = 0.7 * risk + 0.1
    outcome = 0.7 * risk + effect * treatment + rng.uniform(0.0, 0.2, n)
    columns = _columns(x)
    bounds: Entries = dict.fromkeys(columns, (0, 1))
    support = _support(0.0, 0.9, effect)
    return _declared(columns, treatment, outcome, (mu0, mu0 + effect), bounds, support)


def _binary(rng: np.random.Generator, n: int, *, effect: float = -0.1) -> Declared:
    """Draw a 0/1 outcome whose risk treatment shifts by ``effect``."""
    _check_between("effect", effect, -0.2, 0.2)
    x, risk, treatment = _confounders(rng, n)
    mu0 = 0.2 + 0.6 * risk
    outcome = _bernoulli(rng, mu0 + effect * treatment)
    columns = _columns(x)
    bounds: Entries = dict.fromkeys(columns, (0, 1))
    return _declared(columns, treatment, outcome, (mu0, mu0 + effect), bounds, (0, 1))


# --- effects that differ between people -------------------------------------------------------


def _theta(a: Array, b: Array) -> Array:
    """Return the conditional effect exp(2 a) + 3 sin(4 b)."""
    return np.exp(2.0 * a) + 3.0 * np.sin(4.0 * b)


def _partially_linear(
    rng: np.random.Generator,
    x: Array,
    beta: Array,
    gamma: Array,
    effect: Array,
    outcome_range: tuple[float, float],
) -> Declared:
    """Draw treatment 1{x . beta >= eta} and outcome effect * treatment + x . gamma + noise.

    eta and the noise are uniform on [-1, 1], so the propensity is (1 + x . beta) / 2, at most 1.
    """
    n = len(x)
    treatment = (x @ beta >= rng.uniform(-1.0, 1.0, n)).astype(np.int64)
    mu0 = x @ gamma
    outcome = effect * treatment + mu0 + rng.uniform(-1.0, 1.0, n)
    columns = _columns(x)
    bounds: Entries = dict.fromkeys(columns, (0, 1))
    return _declared(columns, treatment, outcome, (mu0, mu0 + effect), bounds, outcome_range)


def _cate_1(rng: np.random.Generator, n: int) -> Declared:
    """Draw dataset 1 of the DP-CATE paper (its appendix H.1).

    x . gamma is in [0, 2], the noise in [-1, 1] and the effect in [1, 5.5], so the outcome is in
    [-1, 8.5] whatever gamma is. x . beta is at most 0.6: propensities are from 0.5 to 0.8.
    """
    beta, gamma = rng.uniform(0.0, 0.3, 2), rng.uniform(0.0, 1.0, 2)
    x = rng.random((n, 2))
    return _partially_linear(rng, x, beta, gamma, _theta(x[:, 0], x[:, 0]), (-1.0, 8.5))


_CATE_2_COVARIATES = 30


def _cate_2(rng: np.random.Generator, n: int, *, support: int = 5) -> Declared:
    """Draw dataset 2 of the DP-CATE paper (its appendix H.1).

    The paper does not say how many entries of beta and gamma differ from zero. With all 30,
    x . beta mostly exceeds 1 and nearly everybody is treated. So ``support`` coordinates, the same
    for both as in Oprescu et al., are drawn at random. With 5, propensities start at 0.5 and
    average 0.69. Over draws of beta 0.1% of records have one above 0.95, in nine draws of ten even
    fewer; in the worst of 2,000 draws it was 8%, with 3% of the records certain to be treated.

    x . gamma is in [0, support], the noise in [-1, 1] and the effect in [-1.3, 11] (exp(2 a) in
    [1, 7.4], 3 sin(4 b) in [-2.3, 3]), so the outcome is in [-2.3, support + 12] whatever gamma is.
    """
    p = _CATE_2_COVARIATES
    if isinstance(support, bool) or not isinstance(support, int | np.integer):
        raise OptionError(f"support must be a whole number, got {support!r}")
    _check_between("support", support, 1, p)
    chosen = rng.choice(p, support, replace=False)
    beta, gamma = np.zeros(p), np.zeros(p)
    beta[chosen] = rng.uniform(0.0, 0.3, support)
    gamma[chosen] = rng.uniform(0.0, 1.0, support)
    x = rng.random((n, p))
    outcome_range = (-2.3, float(support + 12))
    return _partially_linear(rng, x, beta, gamma, _theta(x[:, 0], x[:, 1]), outcome_range)


def _info(
    name: str, title: str, rows: int, covariates: tuple[str, ...], description: str, citation: str
) -> DataInfo:
    return DataInfo(
        name=name,
        title=title,
        kind="simulator",
        rows=rows,
        outcome="outcome",
        treatment="treatment",
        covariates=covariates,
        description=description + " mu0 and mu1 are the true means.",
        source="simulated",
        licence="MIT",
        citation=citation,
    )


_X10 = tuple(f"x{j}" for j in range(1, 11))
_DP_CATE = (
    "Differentially private learners for heterogeneous treatment effects (DP-CATE), appendix H.1; "
    "after Oprescu, Syrgkanis and Wu (2019), Orthogonal random forest for causal inference, "
    "International Conference on Machine Learning."
)

SIMULATORS = (
    Simulator(
        _info(
            "private_psm",
            "Synth of the PrivATE paper",
            1_000,
            tuple(f"x{j}" for j in range(1, 21)),
            "Uniform covariates on [0, 1]; treatment with probability sigmoid(a . (2x - 1)), "
            "outcome b . x + effect * treatment + noise. The paper leaves the ranges open and "
            "refers to the one-covariate original; here a_j is uniform on [-1, 1], b_j on "
            "[0, 0.4 / covariates] and the noise on [0, 0.1], which keeps the outcome in [0, 1]. "
            "Options: covariates=20, effect=0.5.",
            "Yuan, Li, Du, Chen, Sun, Gao, He, Chen and Zhang, PrivATE: Differentially private "
            "average treatment effect estimation for observational data, appendix F.",
        ),
        _private_psm,
    ),
    Simulator(
        _info(
            "multisite",
            "Synth of the multi-site paper",
            10_000,
            ("x",),
            "One covariate, uniform on `levels` equally spaced values from 0 to 1, declared as "
            "levels so that rows can be matched exactly; treatment with probability "
            "sigmoid(a (2x - 1)), a uniform on [-1, 1] or set by `imbalance`; outcome "
            "b x + effect * treatment + noise with b uniform on [0, 0.4] and noise on [0, 0.1], "
            "so within [0, 1]. The column `site` deals the rows out at random in proportion to "
            "`sites`. Options: levels=100, effect=0.5, imbalance=None, sites=(1, 1, 1).",
            "Koga, Chaudhuri and Page (2024), Differentially private multi-site treatment effect "
            "estimation, IEEE Conference on Secure and Trustworthy Machine Learning.",
        ),
        _multisite,
    ),
    Simulator(
        _info(
            "confounded",
            "Bounded outcome, strong confounding",
            20_000,
            _X10,
            "Ten uniform covariates of which six count, by the same weights for treatment "
            "(logistic, propensities from 0.02 to 0.98) and outcome. The difference in means is "
            "off by more than half of the effect. The outcome lies in [0, 1] by construction. "
            "Option: effect=0.1.",
            "dpeffects.",
        ),
        _confounded,
    ),
    Simulator(
        _info(
            "binary",
            "Binary outcome, strong confounding",
            20_000,
            _X10,
            "The covariates and treatment of 'confounded' with a 0/1 outcome: the risk rises from "
            "0.2 to 0.8 with the covariates and treatment shifts it by the effect. The difference "
            "in means hides more than half of the effect. Option: effect=-0.1.",
            "dpeffects.",
        ),
        _binary,
    ),
    Simulator(
        _info(
            "cate_1",
            "Dataset 1 of the DP-CATE paper, effects that differ",
            3_000,
            ("x1", "x2"),
            "Two uniform covariates on [0, 1]; the effect is exp(2 x1) + 3 sin(4 x1), from 1 to "
            "5.45 with mean 4.43 and standard deviation 1.15. Treatment is 1 where beta . x "
            "reaches a draw from [-1, 1], outcome effect * treatment + gamma . x + noise on "
            "[-1, 1], with beta_j uniform on [0, 0.3] and gamma_j on [0, 1]. Propensities are "
            "from 0.5 to 0.8.",
            _DP_CATE,
        ),
        _cate_1,
    ),
    Simulator(
        _info(
            "cate_2",
            "Dataset 2 of the DP-CATE paper, effects that differ",
            3_000,
            tuple(f"x{j}" for j in range(1, _CATE_2_COVARIATES + 1)),
            "As 'cate_1' with 30 covariates and the effect exp(2 x1) + 3 sin(4 x2), from -1.27 to "
            "10.39 with mean 4.43. beta and gamma are zero outside `support` coordinates drawn at "
            "random; the paper leaves their number open, and with all 30 nearly everybody is "
            "treated. With 5, propensities start at 0.5 and average 0.69, and 0.1% of records "
            "have one above 0.95 (up to 8% in an unlucky draw of beta). Option: support=5.",
            _DP_CATE,
        ),
        _cate_2,
    ),
)
