"""Two arms with covariates of a kind, and how large noise is in reruns on the same records."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

import dpeffects as dpe

KINDS = ("normal", "correlated", "indicators", "skewed")


def columns(
    kind: str, n: int, m: int, share: float = 0.5, seed: int = 0
) -> tuple[str, pd.DataFrame, dict[str, Any]]:
    """A formula, records and bounds; covariates move the log odds of treatment."""
    rng = np.random.default_rng([seed, n, m])
    names = [f"x{j}" for j in range(m)]
    bound: Any = (-3, 3)
    if kind == "indicators":
        x, bound = (rng.random((n, m)) < np.linspace(0.2, 0.7, m)).astype(int), [0, 1]
    elif kind == "skewed":
        x, bound = rng.beta(1, 6, (n, m)), (0, 1)
    else:
        x = rng.normal(size=(n, m))
        if kind == "correlated":
            x = 0.9 * rng.normal(size=(n, 1)) + 0.44 * x
    index = ((x - x.mean(axis=0)) / x.std(axis=0)).sum(axis=1)
    odds = np.log(share / (1 - share)) + 0.6 * index / index.std()
    data = pd.DataFrame(x, columns=names).assign(t=(rng.random(n) < 1 / (1 + np.exp(-odds))) * 1)
    return f"y ~ t | {' + '.join(names)}", data, dict.fromkeys(names, bound)


def noise(
    made: tuple[str, pd.DataFrame, dict[str, Any]], runs: int, **given: Any
) -> dict[str, tuple[float, float, float]]:
    """Noise in reruns (root mean square over columns), that stated over it, and the part missing.

    Before and after weighting; columns that are missing in a fifth of the runs are left out.
    """
    formula, data, bounds = made
    found = [dpe.dp_balance(formula, data, bounds=bounds, seed=k, **given) for k in range(runs)]
    result = {}
    for name in ("", "_adjusted"):
        values = np.array([run.tidy()[f"smd{name}"] for run in found], float)
        stated = np.array([run.tidy()[f"noise_sd{name}"] for run in found], float)
        missing = np.isnan(values)
        own = missing.mean(axis=0) < 0.2
        real = np.sqrt(np.nanvar(values[:, own], axis=0, ddof=1).mean()) if own.any() else np.nan
        said = np.sqrt(np.nanmean(stated[:, own] ** 2)) if own.any() else np.nan
        result[name] = float(real), float(said / real), float(missing.mean())
    return result
