"""The Infant Health and Development Program: the trial, and Hill's simulated outcomes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from dpeffects.datasets.files import read_bundled
from dpeffects.datasets.info import INDICATOR, DataInfo, Dataset, Entries, Simulator
from dpeffects.design.bounds import Declared, declare
from dpeffects.errors import OptionError

if TYPE_CHECKING:
    import pandas as pd

Array = npt.NDArray[np.float64]

_MEASURES: Entries = {
    "birth_weight": (500, 2_500),  # grams: viability to the trial's limit for entry
    "head_circumference": (20, 40),  # centimetres, at birth
    "weeks_preterm": (0, 16),  # weeks short of 40; 24 weeks is the limit of viability
    "birth_order": (1, 5),
    "neonatal_health": (40, 160),  # an index with mean 100 and standard deviation 16
    "mother_age": (12, 50),  # the childbearing years
}

_INDICATORS = (
    "female",
    "twin",
    "married",
    "mother_lt_hs",
    "mother_hs",
    "mother_some_college",
    "cigarettes",
    "first_born",
    "alcohol",
    "drugs",
    "worked_during",
    "prenatal",
    "site1",
    "site2",
    "site3",
    "site4",
    "site5",
    "site6",
    "site7",
)

_COVARIATES = (*_MEASURES, *_INDICATORS)
_BOUNDS: Entries = {
    "treatment": INDICATOR,
    **_MEASURES,
    **dict.fromkeys(_INDICATORS, INDICATOR),
}

_HILL = (
    "Hill (2011), Bayesian nonparametric modeling for causal inference, Journal of Computational "
    "and Graphical Statistics 20(1), 217-240."
)
_SOURCE = "PyPI econml 0.17.0, econml/data/ihdp/sim.csv"

# --- the trial --------------------------------------------------------------------------------

_RACE = ("mother_white", "mother_black", "mother_hispanic")


def _trial() -> Declared:
    frame = read_bundled("ihdp_trial_985.csv").dropna(ignore_index=True)
    bounds = {**_BOUNDS, **dict.fromkeys(("site8", *_RACE), INDICATOR)}
    # A test with mean 100 and standard deviation 16: almost four deviations either way.
    return declare(frame, bounds, iq_36_months=(40, 160))


_TRIAL_INFO = DataInfo(
    name="ihdp_trial",
    title="Home visits and child care for premature infants: the IHDP trial",
    kind="bundled",
    rows=908,
    outcome="iq_36_months",
    treatment="treatment",
    covariates=(*_COVARIATES, "mother_black", "mother_hispanic"),
    description=(
        "The randomised trial with its real outcome, the Stanford-Binet score at 36 months, "
        "declared to lie in 40 to 160 (its mean is 100, its standard deviation 16). The 77 of 985 "
        "children without a score (30 of them treated) are left out here, since missing values are "
        "not accepted. Sites 1 to 8 are indicators, site 8 the reference; likewise mother_white."
    ),
    source="PyPI econml 0.17.0, econml/data/ihdp/sim.csv; the score from example.csv beside it",
    licence="MIT",
    citation=(
        "Brooks-Gunn, Liaw and Klebanov (1992), Effects of early intervention on cognitive "
        "function of low birth weight preterm infants, Journal of Pediatrics 120(3), 350-359."
    ),
)

# --- Hill's response surfaces -----------------------------------------------------------------

# Moments known without the data: a standardised measure has mean 0 and variance 1, an indicator
# has mean 1/2 give or take and variance at most 1/4.
_MEAN = np.array([0.0] * len(_MEASURES) + [0.5] * len(_INDICATORS))
_VARIANCE = np.array([1.0] * len(_MEASURES) + [0.25] * len(_INDICATORS))
_FIRST_BORN = _COVARIATES.index("first_born")
_MEAN[_FIRST_BORN] += 1.0


def _design() -> tuple[pd.DataFrame, Array, npt.NDArray[np.bool_]]:
    """Return the covariates, Hill's x1..x25, and who is treated.

    The six measures are standardised; ``first_born`` is 1 or 2 there.
    """
    frame = read_bundled("ihdp_covariates.csv")
    x = frame[list(_COVARIATES)].to_numpy(dtype=np.float64)
    measures = x[:, : len(_MEASURES)]
    x[:, : len(_MEASURES)] = (measures - measures.mean(axis=0)) / measures.std(axis=0, ddof=1)
    x[:, _FIRST_BORN] += 1.0
    return frame, x, frame["treatment"].to_numpy() == 1


def _surface_a(rng: np.random.Generator, n: int) -> Declared:
    """Draw surface A: both arms linear and parallel, effect 4."""
    frame, x, treated = _design()
    beta = rng.choice(5, size=x.shape[1] + 1, p=[0.5, 0.2, 0.15, 0.1, 0.05]).astype(np.float64)
    mu0 = beta[0] + x @ beta[1:]
    centre = beta[0] + _MEAN @ beta[1:]
    reach = 3.0 * math.sqrt(_VARIANCE @ beta[1:] ** 2 + 1.0)
    bounds = _rounded(centre - reach, centre + 4.0 + reach)
    return _with_outcome(rng, n, frame, treated, mu0, mu0 + 4.0, bounds)


def _surface_b(rng: np.random.Generator, n: int) -> Declared:
    """Draw surface B: the untreated arm exponential, the effect on the treated 4."""
    frame, x, treated = _design()
    beta = rng.choice(5, size=x.shape[1] + 1, p=[0.6, 0.1, 0.1, 0.1, 0.1]) / 10.0
    mu0 = np.exp(beta[0] + (x + 0.5) @ beta[1:])
    linear = x @ beta[1:]
    omega = (linear - mu0)[treated].mean() - 4.0
    centre = beta[0] + (_MEAN + 0.5) @ beta[1:]
    variance = float(_VARIANCE @ beta[1:] ** 2)
    # Two deviations up on the log scale, or where the treated arm lies, with 3 for the noise.
    top = max(math.exp(centre + 2.0 * math.sqrt(variance)), math.exp(centre + variance / 2) + 4.0)
    return _with_outcome(rng, n, frame, treated, mu0, linear - omega, _rounded(-3.0, top + 3.0))


def _with_outcome(
    rng: np.random.Generator,
    n: int,
    frame: pd.DataFrame,
    treated: npt.NDArray[np.bool_],
    mu0: Array,
    mu1: Array,
    bounds: tuple[float, float],
) -> Declared:
    """Add the noisy outcome and both true means to the covariates."""
    if n != len(frame):
        raise OptionError(f"the IHDP covariates have {len(frame)} rows: leave n out")
    outcome = np.where(treated, mu1, mu0) + rng.normal(size=n)
    made = frame.assign(outcome=outcome, mu0=mu0, mu1=mu1)
    return declare(made, _BOUNDS, outcome=bounds, mu0=bounds, mu1=bounds)


def _rounded(lower: float, upper: float) -> tuple[float, float]:
    """Round outwards to multiples of five."""
    return 5.0 * math.floor(lower / 5.0), 5.0 * math.ceil(upper / 5.0)


def _ihdp() -> Declared:
    return _surface_a(np.random.default_rng(0), 747)


def _info(name: str, kind: str, title: str, description: str) -> DataInfo:
    return DataInfo(
        name=name,
        title=title,
        kind=kind,
        rows=747,
        outcome="outcome",
        treatment="treatment",
        covariates=_COVARIATES,
        description=description,
        source=f"covariates from {_SOURCE}; outcome simulated",
        licence="MIT",
        citation=_HILL,
    )


_ROWS = (
    "The covariates of the IHDP trial less the treated children of non-white mothers (139 treated, "
    "608 controls), so that the arms are no longer comparable. "
)
_TRUTH = "mu0 and mu1 are the true means without and with treatment. "
_RANGE = (
    "The outcome's range follows from the drawn coefficients and moments known beforehand "
    "(standardised measures, indicators), not from the outcomes, and is rounded outwards to "
    "multiples of five"
)

_A_TEXT = (
    _ROWS
    + "Response surface A: both arms are linear, parallel and 4 apart, with standard normal noise. "
    + _TRUTH
    + _RANGE
    + ": three standard deviations either way."
)

DATASETS = (
    Dataset(
        _info(
            "ihdp",
            "bundled",
            "Home visits for premature infants: IHDP with a simulated outcome",
            _A_TEXT + ' The same frame as simulate("ihdp_a", seed=0).',
        ),
        _ihdp,
    ),
    Dataset(_TRIAL_INFO, _trial),
)

SIMULATORS = (
    Simulator(
        _info("ihdp_a", "simulator", "IHDP covariates, Hill's response surface A", _A_TEXT),
        _surface_a,
    ),
    Simulator(
        _info(
            "ihdp_b",
            "simulator",
            "IHDP covariates, Hill's response surface B",
            _ROWS
            + "Response surface B: exponential without treatment, linear with it, so that effects "
            "differ between children; the effect on the treated is exactly 4, the average effect "
            "varies with the seed. "
            + _TRUTH
            + _RANGE
            + ": the exponential arm up to two standard deviations on the log scale. Beyond is a "
            "long tail, which is clipped. As in Hill's paper the intercept is drawn like the other "
            "coefficients.",
        ),
        _surface_b,
    ),
)
