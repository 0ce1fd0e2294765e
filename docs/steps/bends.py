"""What the check for curves of `one_step` sees: computed for the page "Which method" by its build.

Records are made up: normal columns, log odds of treatment of variance ``LINES`` along them, and one
bend. A call says what the check has of the budget; the distribution of its noise says the rest.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

import dpeffects as dpe
from dpeffects.estimators import constants as hand
from dpeffects.estimators.default.score_curvature import (
    bent_terms,
    density,
    spike_and_slab,
    variances,
)
from dpeffects.privacy.charges import NoisyValue

COLUMNS, LINES = 5, 0.5
NAMES = [f"x{k + 1}" for k in range(COLUMNS)]
FORMULA = f"y ~ t | {' + '.join(NAMES)}"
BOUNDS = dict.fromkeys(NAMES, (-3, 3)) | {"y": (-6, 6)}
CELLS = ((2_000, 1.0), (10_000, 1.0), (40_000, 1.0), (100_000, 1.0), (10_000, 4.0))
KINDS = {"square": (0, 0), "product": (0, 1), "step": (0, -1)}
FAR, MOST = 5.0, 2.0
"""Sums are looked for up to the first, and bends to the second, in sds of the log odds."""


def shape(kind: str, x: np.ndarray) -> np.ndarray:
    """A bend of normal columns, free of a line, of variance 1."""
    first, second = x[:, 0], x[:, 1]
    step = np.sign(first) - math.sqrt(2.0 / math.pi) * first
    of = {"square": (first**2 - 1.0) / math.sqrt(2.0), "product": first * second}
    return of.get(kind, step / math.sqrt(1.0 - 2.0 / math.pi))


def records(n: int, seed: int, kind: str = "square", bend: float = 0.0) -> pd.DataFrame:
    """Made-up records whose log odds of treatment have a bend of this standard deviation."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, COLUMNS))
    odds = math.sqrt(LINES / COLUMNS) * x.sum(axis=1) + bend * shape(kind, x)
    t = rng.random(n) < 1.0 / (1.0 + np.exp(-odds))
    y = 0.3 * x.sum(axis=1) + t + rng.normal(size=n)
    return pd.DataFrame(x, columns=NAMES).assign(t=t.astype(int), y=y).clip(-6, 6)


def call(frame: pd.DataFrame, epsilon: float, **more) -> dpe.Result:
    """The effect by the method that has the check."""
    return dpe.dp_ate(FORMULA, frame, "one_step", epsilon=epsilon, bounds=BOUNDS, **more)


def seen_bend(noise: NoisyValue, unit: np.ndarray, error: np.ndarray, chance: float) -> np.ndarray:
    """Sums that are named with a probability of 80 %, in ``unit``, which is that of a bend of 1.

    ``error`` is what they have beside their noise, ``chance`` how likely a term bends before it is
    seen.
    """
    low, high = np.zeros(len(unit)), FAR * unit
    for _ in range(20):  # where a term is as likely as it takes
        middle = 0.5 * (low + high)
        tried = NoisyValue(middle, noise.scale, None, noise.gaussian, noise.unit_variance)
        named = spike_and_slab(tried, error, math.sqrt(hand.CURVE) * unit, chance)[0] > 0.5
        low, high = np.where(named, low, middle), np.where(named, middle, high)
    reach = np.hypot(error, noise.sd)[:, None] * np.linspace(-8.0, 8.0, 801)
    weights = density(reach, np.broadcast_to(error[:, None], reach.shape), tried)
    below = np.cumsum(weights, axis=1) / weights.sum(axis=1, keepdims=True)
    fifth = np.take_along_axis(reach, (below < 0.2).sum(axis=1)[:, None], axis=1)[:, 0]
    return (high - fifth) / unit


def moved(kind: str, bend: float, x: np.ndarray) -> tuple[float, float]:
    """Mean of the residual of treatment from its straight score times the term, and the overlap."""
    odds = math.sqrt(LINES / COLUMNS) * x.sum(axis=1)
    e = 1.0 / (1.0 + np.exp(-odds - bend * shape(kind, x)))
    design, b = np.column_stack([np.ones(len(x)), x]), np.zeros(COLUMNS + 1)
    for _ in range(6):
        p = 1.0 / (1.0 + np.exp(-design @ b))
        b += np.linalg.solve((design.T * (p * (1.0 - p))) @ design, design.T @ (e - p))
    one, other = np.clip(x[:, :2].T / hand.CUT, -1.0, 1.0)
    term = {"square": 2.0 * one**2 - 1.0, "product": np.clip(hand.CUT * one * other, -1.0, 1.0)}
    own = term.get(kind, np.sign(one) - 2.0 * one)
    return float(np.mean((e - p) * own)), float(np.mean(p * (1.0 - p)))


def power(n: int, epsilon: float, flexible: int | None = None) -> dict[str, float]:
    """The least bend of each kind that is named with a probability of 80 %, NaN if none is.

    It is a standard deviation of the log odds; kinds that the columns have already are left out.
    """
    fit = call(records(n, 1), epsilon, seed=1, flexible=flexible)
    added = fit.details.get("terms added", "")
    pairs = [(j, k) for j in range(COLUMNS) for k in range(j, COLUMNS)]
    known = [(j, k) for j, k in pairs if ("square" if j == k else "product") in added]
    terms = bent_terms(np.zeros(COLUMNS + 1), np.arange(COLUMNS), known)
    (charge,) = (charge for charge in fit.charges if charge.share == "curves")
    k, x = len(terms), np.random.default_rng(2).normal(size=(20_000, COLUMNS))
    noise = NoisyValue(np.zeros(k), 2.0 / charge.epsilon, None, False, (k + 1) * (k + 2) / 3.0)
    overlap, v = moved("square", 0.0, x)[1], variances(terms)
    slopes = (hand.WRONG_SCORE**2) * LINES / COLUMNS
    error = n * np.sqrt(overlap * v / n + hand.SKEWED * overlap**2 * slopes)
    chance = min(hand.USUAL_CURVES * LINES / (hand.CURVE * k), 0.5)
    least = seen_bend(noise, n * overlap * np.sqrt(v), error, chance) * overlap * np.sqrt(v)
    tried, found = np.linspace(0.0, MOST, 41), {}
    for kind, term in KINDS.items():
        at = np.flatnonzero((terms == term).all(axis=1))
        if at.size:
            means = [moved(kind, bend, x)[0] for bend in tried]
            large = np.flatnonzero(np.array(means) >= least[at[0]])
            found[kind] = float(tried[large[0]]) if large.size else math.nan
    return found


def table() -> pd.DataFrame:
    """One row for each n and epsilon, as the public rule has them."""
    rows = []
    for n, epsilon in CELLS:
        found = power(n, epsilon)
        words = {x: f"{b:.2f}" if b == b else "none" for x, b in found.items()}
        own = {f"{kind}s": words.get(kind, "a column") for kind in KINDS}
        rows.append({"n": f"{n:,}", "epsilon": f"{epsilon:g}", **own})
    return pd.DataFrame(rows)
