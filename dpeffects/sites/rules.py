"""Rules that combine sites, and the test whether the sites' effects differ."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dpeffects.sites.error_distribution import Errors
from dpeffects.sites.variance_inflation import inflation_ivw, inflation_mvagg
from dpeffects.sites.weights import Floats, all_sites, ivw, largest, mvagg


@dataclass(frozen=True)
class Rule:
    """How sites are combined.

    Parameters
    ----------
    name, words
        The rule as typed, and what it does.
    weights
        Weights from the sites' records and variances.
    inflation
        Where weights are chosen by noisy variances: a factor for each sampling variance.
    needs_variance, by_records, random_effects, median
        Whether every site needs a variance, weights follow the numbers of records, effects are
        taken to differ between sites, and weights are votes for a median.
    leaves_out
        Where sites can get no weight: why.
    """

    name: str
    words: str
    weights: Callable[[Floats, Floats], Floats]
    inflation: Callable[[Floats, Errors, Floats], Floats] | None = None
    needs_variance: bool = True
    by_records: bool = False
    random_effects: bool = False
    median: bool = False
    leaves_out: str = ""


def _one_vote(n: Floats, variance: Floats) -> Floats:
    return ivw(n, n / n)


RULES = {
    rule.name: rule
    for rule in (
        Rule("ivw", "by inverse variance", ivw, inflation_ivw),
        Rule(
            "mvagg",
            "by records, over the subset of sites with the least variance",
            mvagg,
            inflation_mvagg,
            by_records=True,
            leaves_out="using it would raise the variance of the combination",
        ),
        Rule("all", "by records, every site", all_sites, needs_variance=False, by_records=True),
        Rule(
            "largest",
            "only the site with most records",
            largest,
            needs_variance=False,
            leaves_out="it is not the site with most records",
        ),
        Rule(
            "random",
            "random effects: by inverse variance, what may lie between sites added",
            ivw,
            random_effects=True,
        ),
        Rule("robust", "the median of the sites, whatever one says", _one_vote, median=True),
    )
}


@dataclass(frozen=True)
class Heterogeneity:
    """Do the sites' effects differ by more than their errors?

    Parameters
    ----------
    q, df, p_value
        Cochran's Q, one less than the number of sites, and the p-value of no difference.
    tau2
        Variance between the sites' effects (DerSimonian and Laird), not below 0.
    i2
        Part of the variation of the estimates that is due to it, between 0 and 1.
    """

    q: float
    df: int
    p_value: float
    tau2: float
    i2: float


def heterogeneity(estimate: Floats, variance: Floats, excess: Floats) -> Heterogeneity:
    """Cochran's Q, its p-value, and DerSimonian and Laird's variance between sites.

    ``excess`` is the excess kurtosis of each site's error: 0 for a normal, 3 for a Laplace error.

    Notes
    -----
    With errors of unit variance z and P = I - uu', u_j^2 = w_j / sum(w), Q = z'Pz has mean J - 1
    and variance 2 (J - 1) + sum((1 - u_j^2)^2 excess_j). Its law is taken as that multiple of a
    chi-square which has this mean and variance; with normal errors it is the usual chi-square.
    """
    from scipy.special import gammaincc

    df = estimate.size - 1
    if df < 1:
        return Heterogeneity(0.0, 0, 1.0, 0.0, 0.0)
    unit = variance.min()
    w = unit / variance
    mean = float(w @ estimate / w.sum())
    q = float(w @ (estimate - mean) ** 2 / unit)
    spread = 2.0 * df + float(((1.0 - w / w.sum()) ** 2) @ excess)
    multiple = spread / (2.0 * df)  # Q ~ multiple * chi2(df / multiple)
    p = float(gammaincc(df / multiple / 2.0, q / multiple / 2.0))
    scale = float(w.sum() - w @ w / w.sum()) / unit
    tau2 = max(0.0, q - df) / scale if scale > 0.0 else 0.0
    return Heterogeneity(q, df, p, tau2, max(0.0, 1.0 - df / q) if q > 0.0 else 0.0)
