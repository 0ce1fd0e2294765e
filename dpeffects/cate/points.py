"""Effects at chosen points.

A function answers at points too, and with noise in its objective it mostly has the least error.
Noise on the answers themselves (``noise="kernel"``) can do better for few points, above all without
a delta; ``noise="auto"`` compares what both promise, from public numbers. One record moves the
weights of the second stage, a Huber regression on features of norm at most 1, by at most
2 steepest / strength, and so the answers at query features Q by that times the largest singular
value of Q (claim 33).
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dpeffects.cate.asymptotic import PaperLearner
from dpeffects.cate.function import planned_strength, release_function, second_stage
from dpeffects.cate.nuisance import SHARES
from dpeffects.cate.options import CateOptions
from dpeffects.errors import OptionError
from dpeffects.estimators import _boosting, dp_ebm
from dpeffects.estimators.dp_ebm import DPEBMOptions
from dpeffects.inference.estimate import Estimate, Unavailable
from dpeffects.privacy.bounds import Declared
from dpeffects.privacy.curator import Curator
from dpeffects.privacy.guarantee import Noisy

FloatArray = npt.NDArray[np.float64]

_NO_VARIANCE = Unavailable("no sampling variance is released for effects at points")


def refuse_private_rows(at: Any, data: Any, names: Sequence[str]) -> None:
    """Refuse points that are rows of the private data: they are printed with the result.

    Points are public because the user says so, and a copy of a row cannot be told from a point
    that happens to be the same. So what is refused is what can be recognised: the data itself, a
    view of its memory, and rows that still carry their labels.
    """
    at, data = (x.frame if isinstance(x, Declared) else x for x in (at, data))
    if at is None or isinstance(at, Mapping):
        return
    if at is data or (isinstance(at, str | os.PathLike) and at == data):
        same = True
    else:
        same = _shares_memory(at, data, names) or _keeps_labels(at, data, names)
    if same:
        example = ", ".join(f"{name!r}: [...]" for name in names[:3])
        raise OptionError(
            "at holds rows of the private data, which would be printed with the result: write "
            f"points of your own, at={{{example}}}"
        )


def _shares_memory(at: Any, data: Any, names: Sequence[str]) -> bool:
    try:
        return any(np.may_share_memory(at[n].to_numpy(), data[n].to_numpy()) for n in names)
    except Exception:  # rows elsewhere, or other columns: they say so when they are read
        return False


def _keeps_labels(at: Any, data: Any, names: Sequence[str]) -> bool:
    """True where labels and values are those of the data, for numbers that few records share."""
    import pandas as pd

    if not (isinstance(at, pd.DataFrame) and isinstance(data, pd.DataFrame)):
        return False
    there = all(n in at.columns and n in data.columns for n in names)
    if not (there and data.index.is_unique and len(at) and at.index.isin(data.index).all()):
        return False
    rows = data.loc[at.index, list(names)]
    fine = any(rows[n].dtype.kind == "f" and (rows[n] % 1 != 0).all() for n in names)
    return fine and all(rows[n].tolist() == at[n].tolist() for n in names)


def shares() -> dict[str, float]:
    """Split of the budget."""
    return {**SHARES, "effect": 0.6}


def fit_points(
    curator: Curator, options: CateOptions, method: str, queries: FloatArray
) -> tuple[Estimate, ...]:
    """Release nuisances, then effects at encoded query rows."""
    learner, features = second_stage(curator, options, method)
    stretch = float(np.linalg.norm(features(queries), 2))
    planned = {
        "kernel": planned_strength(curator, learner, features, "kernel", stretch),
        "objective": planned_strength(curator, learner, features, "objective"),
    }
    way = options.noise if options.noise != "auto" else min(planned, key=lambda w: planned[w][1])
    if way == "objective":
        function = release_function(curator, learner, features, way)
        values = zip(function(queries), function.sd(queries, "noise"), strict=True)
        return tuple(Estimate(float(x), _NO_VARIANCE, gaussian=float(sd) ** 2) for x, sd in values)
    noisy = curator.effects_at(learner, features, queries, planned[way][0], "effect")
    return as_estimates(noisy, learner.nuisance.effect, learner.threshold)


def fit_claimed(
    curator: Curator, method: str, second_stage: Any, queries: FloatArray
) -> tuple[Estimate, ...]:
    """Release effects by the paper's finite release, whose guarantee is a claim."""
    learner = PaperLearner(method, second_stage, queries, curator.outcome_range)
    return as_estimates(curator.claimed_effects(learner, "effect"), 0.0, 1.0)


def fit_boosted(
    curator: Curator, options: DPEBMOptions, queries: FloatArray
) -> tuple[tuple[Estimate, ...], tuple[str, ...]]:
    """Release additive models, and read effects off them; also what to note."""
    effect = _boosting.released(curator, options.learner, options.clip)
    lower, upper = curator.outcome_range
    values = np.clip(effect(queries), lower - upper, upper - lower)
    note = dp_ebm.warning(effect)
    made = (Estimate(float(x), _NO_VARIANCE, gaussian=math.nan, caution=note) for x in values)
    return tuple(made), (f"{note}.",) if note else ()


def as_estimates(noisy: Noisy, average: float, unit: float) -> tuple[Estimate, ...]:
    """One estimate for each released value; its interval covers noise only."""
    scale = noisy.scale * unit
    laplace, gaussian = ((), scale**2) if noisy.gaussian else ((scale,), 0.0)
    return tuple(
        Estimate(average + unit * float(value), _NO_VARIANCE, laplace, gaussian)
        for value in noisy.value
    )
