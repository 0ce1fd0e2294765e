"""Cells of a simulation: samples of populations, and a file that keeps every finished cell."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.populations import POPULATIONS, Population, drawn

STUDIES, RANDOMISED = "studies drawn at random", "trials drawn at random"
"""Names that stand for another population in every run."""


@lru_cache(maxsize=300)
def sample(name: str, n: int, seed: int) -> tuple[Population, pd.DataFrame]:
    """A population, and n of its records."""
    made = name in (STUDIES, RANDOMISED)
    population = drawn(seed, name == RANDOMISED) if made else POPULATIONS[name]
    return population, population.sample(n, seed)


def on_file(path: Path, *columns: str) -> pd.DataFrame:
    return (
        pd.read_csv(path, dtype={"commit": str})
        if path.exists()
        else pd.DataFrame(columns=list(columns))
    )


def keep(
    path: Path, cells: Iterable[NamedTuple], measure: Callable[..., NamedTuple], workers: int = 1
) -> None:
    """Measure the cells that are not on file yet, and write each when it is finished.

    Cells on the same samples should be next to each other.
    """
    left = list(dict.fromkeys(cells))
    kept = on_file(path)
    if left and len(kept):
        known = set(kept[list(left[0]._fields)].itertuples(index=False, name=None))
        left = [cell for cell in left if tuple(cell) not in known]
    if workers == 1:
        write(path, zip(left, map(measure, left), strict=True))
        return
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        write(path, zip(left, pool.map(measure, left), strict=True))


def write(path: Path, found: Iterable[tuple[NamedTuple, NamedTuple]]) -> None:
    for cell, values in found:
        row = {**cell._asdict(), **values._asdict()}
        short = {k: float(f"{x:.6g}") if isinstance(x, float) else x for k, x in row.items()}
        pd.DataFrame([short]).to_csv(path, mode="a", header=not path.exists(), index=False)
        print(*short.values(), flush=True)
