"""Sites whose effect is known: their records, what they send, and what one that lies may send.

The same generator makes the records of all: an outcome that is binary or a number, and a treatment
by chance or by strata. The true effect is 0.1, or normal around it.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace

import numpy as np
import pandas as pd

import dpeffects as dpe
from dpeffects.inference.estimate import SamplingVariance
from dpeffects.services.sites import SiteRelease, combine

EFFECT = 0.1
BOUNDS = {"y": (0, 1), "x1": (0, 1), "x2": (0, 1), "a": [0, 1], "b": [0, 1]}
DIFF = ("diff_in_means", "y ~ t", {})


def records(
    n: int, effect: float = EFFECT, binary: bool = False, strata: bool = False, seed=(0,)
) -> pd.DataFrame:
    """Records of one site, whose treatment depends on ``a`` in strata."""
    rng = np.random.default_rng([*seed, n, binary])
    x, (a, b) = rng.random((n, 2)), rng.integers(0, 2, (2, n))
    t = rng.random(n) < 1 / (1 + np.exp(0.2 - 0.6 * strata * (a - 0.5)))
    y = 0.2 + 0.15 * x[:, 0] + 0.1 * x[:, 1] + 0.1 * a + 0.05 * b + effect * t
    y = rng.random(n) < y if binary else (y + 0.3 * (rng.random(n) - 0.5)).clip(0, 1)
    frame = pd.DataFrame({"y": np.asarray(y, float), "t": t, "x1": x[:, 0], "x2": x[:, 1]})
    return frame.assign(a=a, b=b)


def released(people, noise, sizes, budgets, spread=0.0, how=DIFF, binary=False):
    """What sites send."""
    (method, formula, options), sent = how, []
    effects = EFFECT + np.random.default_rng([people, 7]).normal(0.0, spread, len(sizes))
    for j, (n, epsilon, effect) in enumerate(zip(sizes, budgets, effects, strict=True)):
        data = records(n, effect, binary, "|" in formula, [people, j])
        asked = {"epsilon": epsilon, "bounds": BOUNDS, "seed": noise + j, **options}
        sent.append(dpe.site_release(formula, data, site=f"site {j}", method=method, **asked))
    return sent


def judged(sites, rules):
    """What each rule makes of releases."""
    rows = []
    for rule in rules:
        fit = combine(sites, rule)
        low, high = fit.conf_int()
        row = {"rule": rule, "covered": low <= EFFECT <= high, "width": high - low}
        row |= {"error": abs(fit.estimate - EFFECT), "used": len(fit.used)}
        row |= {"rejected": fit.heterogeneity.p_value < 0.05}
        rows.append(row | {"named": any("site" in words for words in fit.named)})
    return rows


def lies(sites: list[SiteRelease]) -> dict[str, SiteRelease]:
    """The last site's release, made to say four other things."""
    *others, last = sites
    mean, own, none = combine(others, "ivw"), last.released, SamplingVariance(0.0, 0.0, 0.0)

    def says(value, **more):
        low = min(own.means.control, 1.0 - value)
        means = replace(own.means, treated=low + value, control=low)
        return replace(last, released=replace(own, value=value, means=means, **more))

    sly = says(mean.estimate + 2.5 * mean.std_error, sampling=none)
    sure = says(0.9, sampling=none)
    return {"sure": sure, "huge": replace(sure, n=10**6), "sly": sly, "plain": says(0.9)}


MOVED = ("value", "noise_scale", "variance", "laplace", "treated", "control")


def scaled(value, times: float, name: str = ""):
    """The numbers of an estimate a little larger, so that no two sites send the same."""
    if is_dataclass(value):
        own = ((x.name, getattr(value, x.name)) for x in fields(value) if x.init)
        return replace(value, **{name: scaled(x, times, name) for name, x in own})
    if isinstance(value, tuple):
        return tuple(scaled(x, times, name) for x in value)
    return value * times if isinstance(value, float) and name in MOVED else value
