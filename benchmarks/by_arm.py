"""Rates, survival, quantiles and levels from noisy tables of both arms, and a test."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, partial

import numpy as np
import pandas as pd
from harness import Part, Row, Summary, grid, mean, over, percent, rms, root
from known_truth import LOT, SE, Asked, of, part, table, typical
from scipy.special import expit
from scipy.stats import fisher_exact

import dpeffects as dpe

Array, Generator = np.ndarray, np.random.Generator

EVENTS = {
    "common": {"rate": 0.2},
    "rare": {"rate": 0.02, "most": 4},
    "overdispersed": {"rate": 0.2, "dispersion": 4.0},
}


def rates(people: int, events: str, treated: float, n: int) -> Asked:
    """A trial of 5,000, or a larger study."""
    lot = n == 5_000
    made = dpe.simulate("rates", n, people, treated=treated, randomised=lot, **EVENTS[events])
    one, zero = made.frame[["mu1", "mu0"]].sum() / made.frame["years"].sum()
    truth = {"rate_ratio": one / zero, "rate_difference": one - zero}
    formula = f"events ~ treatment{'' if lot else ' | x1 + x2 + x3'}"
    sums = made.frame.groupby("treatment")[["events", "years"]].sum()
    rate = sums["events"] / sums["years"]
    plain = {"rate_ratio": float(rate[1] / rate[0])} if lot else None
    return Asked(
        "dp_rate", formula, made, truth, {"offset": "years", **(LOT if lot else {})}, plain
    )


RATIO = {
    "ratio covered": of("rate_ratio", percent("covered")),
    "difference covered": of("rate_difference", percent("covered")),
    "error of ratio": of("rate_ratio", typical("error")),
    "without privacy": of("rate_ratio", typical("plain")),
}
TRIALS = grid(events=EVENTS, treated=(0.5, 0.1), n=[5_000])
STUDIES = grid(events=EVENTS, treated=[0.5], n=[20_000])

# --- survival -------------------------------------------------------------------------------------

TERMS = ("risk_difference", "rmst_difference", "risk_ratio", "rmst_ratio", "hazard_ratio")


def kaplan_meier_mean(frame: pd.DataFrame) -> float:
    """Restricted mean by the exact times."""
    frame = frame.sort_values("time")
    factors = 1.0 - frame["event"].to_numpy() / np.arange(len(frame), 0, -1)
    curve = np.concatenate([[1.0], np.cumprod(factors)])
    return float(curve @ np.diff(np.concatenate([[0.0], frame["time"], [1.0]])))


def survival(people: int, n: int, risk: float, treated: float = 0.5, shape: float = 1.0) -> Asked:
    """A trial with Weibull times, beside Kaplan-Meier curves of the exact times."""
    kind = {"risk": risk, "treated": treated, "shape": shape, "hazard_ratio": 0.6}
    always = {"prognosis": 0.0, "randomised": True, "horizon": 1.0, "censoring": 0.5}
    made = dpe.simulate("survival", n, people, **kind, **always)
    one, zero = (made.frame[[f"risk{k}", f"mu{k}"]].mean().to_numpy() for k in (1, 0))
    truth = dict(zip(TERMS, [*(one - zero), *(one / zero), 0.6], strict=True))
    arms = [kaplan_meier_mean(made.frame.query(f"treatment == {arm}")) for arm in (1, 0)]
    options, plain = {"horizon": 1.0, "bins": 10, **LOT}, {"rmst_difference": arms[0] - arms[1]}
    formula = "Surv(time, event) ~ treatment"
    return Asked("dp_survival", formula, made, truth, options, plain)


RMST = "the difference in restricted means, epsilon 1, 10 bins"
ERRORS = {
    "non-private": root("plain"),
    "private": root("error"),
    "ratio": over("error", "plain", 3),
}
ERRORS = {name: of("rmst_difference", make) for name, make in ERRORS.items()}
KINDS = ((0.3, 1.2), (0.5, 1.0), (0.5, 0.7), (0.5, 1.5), (0.8, 1.0))
SHAPES = [{"n": 5_000, "risk": x, "shape": y} for x, y in KINDS]
RISKS = grid(n=(2_000, 20_000), epsilon=(1.0, 4.0), risk=(0.02, 0.3), treated=(0.1, 0.5))
HELD = {x.replace("_", " "): of(x, percent("covered")) for x in TERMS}

# --- quantiles ------------------------------------------------------------------------------------

Q = (0.1, 0.25, 0.5, 0.75, 0.9)


def earnings(rng: Generator, t: Array) -> Array:
    """About as those of the NSW trial in 1978: many have none."""
    none = rng.random(t.size) < np.where(t, 0.25, 0.35)
    return np.where(none, 0.0, rng.gamma(1.3, 6000.0, t.size) * np.where(t, 1.1, 1.0))


OUTCOMES: dict[str, tuple[Callable[[Generator, Array], Array], tuple[float, float]]] = {
    "log-normal costs": (lambda r, t: np.exp(r.normal(7.6, 1.2, t.size) + 0.15 * t), (0, 1e6)),
    "earnings, a third zero": (earnings, (0, 200_000)),
    "t with 3 degrees": (lambda r, t: 2.0 * r.standard_t(3, t.size) + 0.5 * t, (-1000, 1000)),
    "narrow, far apart": (lambda r, t: r.normal(50.0, 5.0, t.size) + 30.0 * t, (0, 1000)),
    "visits (whole numbers)": (
        lambda r, t: r.negative_binomial(1.2, 0.2, t.size) + (r.random(t.size) < 0.2 * t),
        (0, 365),
    ),
}


def differences(y: Array, t: Array) -> dict[str, float]:
    """Of the quantiles of both arms."""
    one, other = (np.quantile(y[a], Q, method="inverted_cdf") for a in (t, ~t))
    return {f"quantile {q:g}": float(x) for q, x in zip(Q, one - other, strict=True)}


@cache
def quantile_truth(outcome: str) -> dict[str, float]:
    t = np.arange(4_000_000) % 2 == 0
    return differences(OUTCOMES[outcome][0](np.random.default_rng(99), t), t)


def quantiles(people: int, outcome: str, n: int, treated: float) -> Asked:
    """A trial with a wide declared range, beside the sample's own quantiles."""
    rng, (draw, ends) = np.random.default_rng([people, n]), OUTCOMES[outcome]
    t = rng.random(n) < treated
    y, truth = np.clip(draw(rng, t), *ends), quantile_truth(outcome)
    options = {"bounds": {"y": ends}, "quantiles": Q, **LOT}
    frame = pd.DataFrame({"y": y, "t": t})
    return Asked("dp_qte", "y ~ t", frame, truth, options, differences(y, t))


def over_own(runs: pd.DataFrame) -> str:
    """A quantile at a lump of records has no error without privacy."""
    own, plain = rms(runs["error"]), rms(runs["plain"])
    return f"{own / plain:.2f}" if 1e6 * plain > own else "-"


def each(summary: Summary) -> dict[str, Summary]:
    return {f"{q:g}": of(f"quantile {q:g}", summary) for q in Q}


SAMPLE, LARGE = "the sample's quantiles, n = 10,000, epsilon 1", {"n": 10_000, "treated": 0.5}
OWN = grid(outcome=OUTCOMES)
SIZES = [cell | size for cell in OWN for size in (LARGE, {"n": 2_000, "treated": 0.1})]


def ordered(people: int, n: int, trial: bool) -> Asked:
    """Four levels of a logistic variable that treatment shifts, and in a study a covariate too."""
    rng, cuts, shift = np.random.default_rng(people), np.array([-1.0, 0.5, 1.5]), 0.4
    x = rng.random(n)
    line, all_lines = (2.0 * (not trial) * (at - 0.5) for at in (x, np.linspace(0.0, 1.0, 2_001)))
    t = rng.random(n) < expit(line)
    y = ((line + shift * t + rng.logistic(size=n))[:, None] > cuts).sum(axis=1)
    one, other = (expit(all_lines[:, None] + a - cuts).mean(axis=0) for a in (shift, 0.0))
    truth = {f"at least {k + 1}": one[k] - other[k] for k in range(3)}
    truth |= {"odds_ratio": math.exp(shift)} if trial else {}
    options = {"bounds": {"y": [0, 1, 2, 3], "x": (0, 1)}, **(LOT if trial else {})}
    frame, formula = pd.DataFrame({"y": y, "t": t, "x": x}), f"y ~ t{' | x' * (not trial)}"
    return Asked("dp_ordinal", formula, frame, truth, options)


# --- the randomisation test -----------------------------------------------------------------------


def tested(people: int, noise: int, n: int, treated: float, epsilon: float, risks: str) -> Row:
    """Which tests of a trial reject: so many are treated, or each with a chance."""
    rng, found = np.random.default_rng([people, n]), {}
    low, high = map(float, risks.split(", "))
    given = {"epsilon": epsilon, "bounds": {"y": [0, 1]}, "seed": noise}
    for name in ("chance", "number"):
        t = (rng.random(n) if name == "chance" else rng.permutation(n) / n) < treated
        frame = pd.DataFrame({"y": (rng.random(n) < np.where(t, high, low)) * 1, "t": t})
        how = {"treated": int(t.sum())} if name == "number" else {"treated_share": treated}
        found[name] = dpe.dp_randomisation_test("y ~ t", frame, **how, **given).p_value
    counts = [[sum(frame["y"][a] == k) for k in (0, 1)] for a in (t, ~t)]
    found["Fisher"] = fisher_exact(counts)[1]
    return {name: float(p <= 0.05) for name, p in found.items()}


POWER = grid(n=[100], treated=[0.5], epsilon=[1.0], risks=["0.3, 0.6"])
POWER += grid(n=[200], treated=[0.5], epsilon=[0.3], risks=["0.3, 0.6"])
POWER += grid(n=[1_000], treated=[0.5], epsilon=[1.0], risks=["0.4, 0.5", "0.05, 0.1"])
POWER += grid(n=[1_000], treated=[0.2], epsilon=[1.0], risks=["0.2, 0.32"])
NULL = [cell | {"risks": "0.3, 0.3"} for cell in POWER[:2]]
TESTS = {name: mean(name) for name in ("Fisher", "number", "chance")}

TABLES = {
    "rates": table(
        "Rates: coverage of 95 % intervals",
        f"{SE} Counts are beta-binomial, follow-up is unequal. Errors of the ratio are medians, "
        "beside crude ones in trials, those of the same call without noise in studies.",
        3,
        part("Trials", rates, TRIALS, RATIO),
        part("Studies, adjusted for three covariates", rates, STUDIES, RATIO),
    ),
    "survival": table(
        "Survival from a noisy life table",
        f"{SE} Errors without privacy are those of Kaplan-Meier curves of the exact times. The "
        "bar for errors is a ratio of 1.06.",
        2.5,
        part(f"Root mean squared error of {RMST}", survival, SHAPES, ERRORS),
        part("Coverage of 95 % intervals, per cent", survival, RISKS, HELD),
    ),
    "quantiles": table(
        "Quantile effects from one noisy table",
        f"{SE} Treatment is randomised. A quantile at a lump of records is without error (-); the "
        "bar for the others is 1.25. Intervals of whole numbers cover more often than they claim.",
        2.5,
        part(f"Error over that of {SAMPLE}", partial(quantiles, **LARGE), OWN, each(over_own)),
        part("Coverage of 95 % intervals, epsilon 1", quantiles, SIZES, each(percent("covered"))),
    ),
    "randomisation_test": table(
        "The randomisation test",
        "`number` is the test with a fixed number of treated records, `chance` that where each was "
        "treated with a chance, `Fisher` is Fisher's exact test without privacy. The standard "
        "error of 5 % in 1,000 runs is 0.7 points, that of a power of 80 % in 400 runs is 2.",
        2,
        Part("How often it rejects at 5 % without an effect", NULL, tested, TESTS, 1000),
        Part("Power at 5 %", POWER, tested, TESTS, 400),
    ),
}
