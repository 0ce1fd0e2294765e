"""Many runs on a pair of datasets, in chunks that do not depend on the number of processes."""

from __future__ import annotations

import math
import signal
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from threading import current_thread, main_thread
from typing import Any

import numpy as np
import numpy.typing as npt

from dpeffects.auditing.evidence import Runs
from dpeffects.auditing.leaves import leaves
from dpeffects.auditing.pairs import Pair
from dpeffects.auditing.targets import Run, Target
from dpeffects.auditing.watch import Impossible, Watch
from dpeffects.errors import BoundsError, DataError, EstimationError, OptionError
from dpeffects.privacy.noise import SecureNoise, SeededNoise
from dpeffects.progress import bar

FloatArray = npt.NDArray[np.float64]
Names = tuple[tuple[tuple[str, int], ...], tuple[str, ...]]
"""Labels and sizes of the releases, and names of what else was shown."""

CHUNK = 500
_ENTRIES = 64
"""Entries of one release that get a score of their own; the privacy loss uses all of them."""


@dataclass(frozen=True)
class Chunk:
    """Runs on one side of a pair, with noise of their own: seeded, or secure without a seed."""

    target: Target
    pair: Pair
    side: int
    count: int
    seed: int | None
    watched: bool


@dataclass(frozen=True)
class Batch:
    """What came of a chunk: losses of the first dataset against the second, and all shown."""

    loss: FloatArray
    shown: list[tuple[Names, FloatArray]]


def misfit(target: Target, pair: Pair) -> str:
    """Why a pair cannot be used with a target (too few records, ...), or nothing."""
    try:
        for frame in (pair.one, pair.other):
            run = target.ready(frame, pair.formula, pair.bounds)
            _outcome(run, Watch(SeededNoise(0)))
    except (DataError, OptionError, BoundsError) as error:
        return str(error).splitlines()[0]
    return ""


def gather(
    target: Target,
    pair: Pair,
    counts: int,
    seed: Sequence[int] | None,
    watched: bool,
    workers: int,
    about: str = "",
) -> Runs:
    """Run ``counts`` times on each dataset of a pair; ``about`` names the bar that shows it."""
    sizes = [min(CHUNK, counts - start) for start in range(0, counts, CHUNK)]
    chunks = [
        Chunk(target, pair, side, size, _seed(seed, side, k), watched)
        for side in (0, 1)
        for k, size in enumerate(sizes)
    ]
    if workers > 1 and len(chunks) > 1:
        with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
            with _deaf():  # an interrupt is for this process, which stops the others
                done: Iterable[Batch] = pool.map(run_chunk, chunks)
            batches = list(bar(done, about, len(chunks)) if about else done)
    else:
        batches = [run_chunk(chunk) for chunk in (bar(chunks, about) if about else chunks)]
    return joined(batches[: len(sizes)], batches[len(sizes) :])


@contextmanager
def _deaf() -> Iterator[None]:
    """Ignore interrupts; processes that are started meanwhile do so for good."""
    if current_thread() is not main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _seed(seed: Sequence[int] | None, *place: int) -> int | None:
    if seed is None:
        return None
    words = np.random.SeedSequence([*seed, *place]).generate_state(4, np.uint32)
    return int.from_bytes(words.tobytes(), "little")


def run_chunk(chunk: Chunk) -> Batch:
    """Run, and repeat on the neighbour where the runs are watched."""
    pair = chunk.pair
    runs = [chunk.target.ready(data, pair.formula, pair.bounds) for data in (pair.one, pair.other)]
    own, other = runs[chunk.side], runs[1 - chunk.side]
    watch = Watch(SecureNoise() if chunk.seed is None else SeededNoise(chunk.seed))
    losses, shown = np.full(chunk.count, np.nan), []
    for k in range(chunk.count):
        watch.record()
        names, numbers = _outcome(own, watch)
        released = tuple((label, min(value.size, _ENTRIES)) for label, value in watch.seen)
        values = [value[:_ENTRIES] for _, value in watch.seen]
        shown.append(((released, names), np.concatenate([*values, numbers])))
        if chunk.watched:
            losses[k] = _loss(watch, other, (names, numbers))
    return Batch(losses if chunk.side == 0 else -losses, shown)


def _loss(watch: Watch, other: Run, shown: tuple[tuple[str, ...], list[float]]) -> float:
    """Privacy loss of the recorded run against the neighbour."""
    recorded = watch.log_chance
    watch.repeat()
    try:
        names, numbers = _outcome(other, watch)
        watch.finished()
    except Impossible:
        return math.inf
    same = names == shown[0] and np.array_equal(numbers, shown[1], equal_nan=True)
    return recorded - watch.log_chance if same else math.inf


def _outcome(run: Run, watch: Watch) -> tuple[tuple[str, ...], list[float]]:
    """Everything a run shows; a failure after draws is shown too."""
    try:
        return leaves({"result": run(watch)})
    except (EstimationError, BoundsError) as error:
        if not watch.drew:
            raise
        return leaves({"failure": str(error)})


def joined(one: Iterable[Batch], other: Iterable[Batch]) -> Runs:
    """Put batches of both sides together; what a run did not show is NaN."""
    sides = [list(one), list(other)]
    kinds = dict.fromkeys(kind for side in sides for batch in side for kind, _ in batch.shown)
    columns: dict[str, int] = {}
    places = {
        kind: np.array([columns.setdefault(n, len(columns)) for n in _column_names(kind)], int)
        for kind in kinds
    }
    matrices: list[Any] = []
    for side in sides:
        rows = [row for batch in side for row in batch.shown]
        matrix = np.full((len(rows), len(columns)), np.nan)
        for k, (kind, values) in enumerate(rows):
            matrix[k, places[kind]] = values
        matrices.append(matrix)
    losses = [np.concatenate([batch.loss for batch in side]) for side in sides]
    return Runs(tuple(columns), (losses[0], losses[1]), (matrices[0], matrices[1]))


def _column_names(kind: Names) -> list[str]:
    released, rest = kind
    names: list[str] = []
    for label, size in released:
        names += [label] if size == 1 else [f"{label} [{j}]" for j in range(size)]
    seen: dict[str, int] = {}
    made = []
    for name in [*names, *rest]:  # a label may come twice
        seen[name] = seen.get(name, 0) + 1
        made.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return made
