"""Time and memory of private matching against plain nearest neighbours, in the same run.

Each call runs in a process of its own, so that its peak memory is its own. The peer is
scikit-learn's NearestNeighbors, 5 nearest both ways, on the same one-dimensional scores.
"""

from __future__ import annotations

import resource
import time

import numpy as np
import pandas as pd
from harness import Part, Table, apart, grid

NEIGHBOURS, COVARIATES = 5, 10
NAMES = [f"x{i}" for i in range(COVARIATES)]
FORMULA = "y ~ t | " + " + ".join(NAMES)
BOUNDS = dict.fromkeys([*NAMES, "y"], (0, 1))


def data(n: int) -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(1)
    x = rng.random((n, COVARIATES))
    score = 1 / (1 + np.exp(-(x - 0.5) @ np.linspace(-1, 1, COVARIATES)))
    t = rng.random(n) < score
    y = np.clip(0.4 * x[:, 0] + 0.1 * t + 0.4 * rng.random(n), 0, 1)
    frame = pd.DataFrame(x, columns=NAMES)
    frame["t"], frame["y"] = t, y
    return frame, score


def peer(n: int) -> float:
    from sklearn.neighbors import NearestNeighbors

    frame, score = data(n)
    one, other = score[frame["t"]][:, None], score[~frame["t"]][:, None]
    start = time.perf_counter()
    NearestNeighbors(n_neighbors=NEIGHBOURS).fit(one).kneighbors(other)
    NearestNeighbors(n_neighbors=NEIGHBOURS).fit(other).kneighbors(one)
    return time.perf_counter() - start


def ours(n: int, level: str) -> tuple[float, float]:
    """Seconds of the whole call, and of the noise in it. OpenDP is imported beforehand."""
    import dpeffects as dpe
    from dpeffects.privacy.noise import SecureNoise

    given = {"method": "private_psm", "epsilon": 1, "level": level, "bounds": BOUNDS}
    given["as_printed"] = True
    dpe.dp_ate(FORMULA, data(1000)[0], **given)
    frame, _ = data(n)
    spent = 0.0

    def timed(draw):
        def wrapped(*args):
            nonlocal spent
            start = time.perf_counter()
            out = draw(*args)
            spent += time.perf_counter() - start
            return out

        return wrapped

    SecureNoise.laplace = timed(SecureNoise.laplace)
    SecureNoise.flip = timed(SecureNoise.flip)
    start = time.perf_counter()
    dpe.dp_ate(FORMULA, frame, **given)
    return time.perf_counter() - start, spent


def measured(kind: str, n: int) -> tuple[float, float, float]:
    """Seconds, those of the noise, and the peak memory."""
    found = (peer(n), 0.0) if kind == "peer" else ours(n, kind)
    return (*found, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)


def run(people: int, noise: int, records: int):
    label, label_noise, label_peak = apart(measured, "label", records)
    sample, sample_noise, sample_peak = apart(measured, "sample", records)
    plain, _, plain_peak = apart(measured, "peer", records)
    return {
        "label level, s": round(label, 2),
        "of it noise, s": round(label_noise, 3),
        "peak GiB": round(label_peak, 2),
        "scikit-learn 5-NN both ways, s": round(plain, 2),
        "label / scikit-learn": round(label / plain, 2),
        "sample level without noise, s": round(sample - sample_noise, 2),
        "secure noise, s": round(sample_noise, 2),
        "sample peak GiB": round(sample_peak, 2),
        "scikit-learn peak GiB": round(plain_peak, 2),
    }


TABLE = Table(
    "Speed and memory of private matching",
    (
        Part(
            "",
            grid(records=(250_000, 500_000, 1_000_000, 5_000_000)),
            run,
            small=grid(records=[20_000]),
        ),
    ),
    f"Peak memory is that of the process, data of {COVARIATES} covariates included. Sample level "
    "draws two secure random numbers for each record.",
    page=lambda rows: {"": rows.set_index("records").T.reset_index(names="")},
    alone=True,
    minutes=4,
)
