"""Many runs on a pair of datasets, in chunks that do not depend on the number of processes.

What a reader can get out of a result: every number in it, and every text.
"""

from __future__ import annotations

import dataclasses
import math
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from dpeffects.arrays import FloatArray
from dpeffects.auditing.events import Runs
from dpeffects.auditing.mechanisms import Mechanism, Run
from dpeffects.auditing.pairs import Neighbours
from dpeffects.auditing.recording import Impossible, RecordedNoise
from dpeffects.errors import BoundsError, DataError, EstimationError, OptionError
from dpeffects.privacy.noise import SecureNoise
from dpeffects.simulations.simulation import run_tasks
from dpeffects.unproved.seeded import SeededNoise

Outputs = tuple[tuple[str, ...], list[float]]
"""Names and numbers of everything that a run shows."""

CHUNK = 500
_ENTRIES = 64
"""Entries of one release that get a score of their own; the privacy loss uses all of them."""


@dataclass(frozen=True)
class Chunk:
    """Runs on one side of a pair, with noise of their own: seeded, or secure without a seed."""

    mechanism: Mechanism
    pair: Neighbours
    side: int
    count: int
    seed: int | None
    watched: bool

    def __call__(self) -> tuple[FloatArray, list[Outputs]]:
        """Return losses of the first dataset against the second, and everything shown."""
        runs = [_prepared(self.mechanism, self.pair, side) for side in (0, 1)]
        own, other = runs[self.side], runs[1 - self.side]
        noise = RecordedNoise(SecureNoise() if self.seed is None else SeededNoise(self.seed))
        losses, shown = np.full(self.count, np.nan), []
        for k in range(self.count):
            noise.record()
            outputs = _outputs(own, noise)
            shown.append(_with_releases(outputs, noise))
            if self.watched:
                losses[k] = _loss(noise, other, outputs)
        return losses if self.side == 0 else -losses, shown


def misfit(mechanism: Mechanism, pair: Neighbours) -> str:
    """Why a pair cannot be used with a mechanism (too few records, ...), or nothing."""
    try:
        for side in (0, 1):
            _outputs(_prepared(mechanism, pair, side), RecordedNoise(SeededNoise(0)))
    except (DataError, OptionError, BoundsError) as error:
        return str(error).splitlines()[0]
    return ""


def gather(
    mechanism: Mechanism,
    pair: Neighbours,
    count: int,
    seed: Sequence[int] | None,
    watched: bool,
    workers: int,
    about: str = "",
) -> Runs:
    """Run ``count`` times on each dataset of a pair; ``about`` names the bar that shows it."""
    sizes = [min(CHUNK, count - start) for start in range(0, count, CHUNK)]
    chunks = [
        Chunk(mechanism, pair, side, size, _seed(seed, side, k), watched)
        for side in (0, 1)
        for k, size in enumerate(sizes)
    ]
    done = list(run_tasks(chunks, workers if len(chunks) > 1 else 1, about))
    sides = done[: len(sizes)], done[len(sizes) :]
    first, second = (np.concatenate([losses for losses, _ in side]) for side in sides)
    names, *shown = _columns([[run for _, runs in side for run in runs] for side in sides])
    return Runs(names, (first, second), (shown[0], shown[1]))


def _seed(seed: Sequence[int] | None, *place: int) -> int | None:
    if seed is None:
        return None
    words = np.random.SeedSequence([*seed, *place]).generate_state(4, np.uint32)
    return int.from_bytes(words.tobytes(), "little")


def _prepared(mechanism: Mechanism, pair: Neighbours, side: int) -> Run:
    data = (pair.one, pair.other)[side]
    return mechanism.prepare(data, pair.formula or mechanism.formula, pair.bounds)


def _outputs(run: Run, noise: RecordedNoise) -> Outputs:
    """Everything a run shows; a failure after a release is shown too."""
    try:
        return leaves({"result": run(noise)})
    except (EstimationError, BoundsError) as error:
        if not noise.has_released:
            raise
        return leaves({"failure": str(error)})


def _with_releases(outputs: Outputs, noise: RecordedNoise) -> Outputs:
    """Put the first entries of each release before what a run shows."""
    entries = [values[:_ENTRIES] for values in noise.released]
    names = _release_names(tuple(values.size for values in entries))
    return (*names, *outputs[0]), [*np.concatenate([*entries, outputs[1]])]


@lru_cache
def _release_names(sizes: tuple[int, ...]) -> list[str]:
    return [
        f"release {k} [{j}]" if size > 1 else f"release {k}"
        for k, size in enumerate(sizes, 1)
        for j in range(size)
    ]


def _loss(noise: RecordedNoise, other: Run, shown: Outputs) -> float:
    """Privacy loss of the recorded run against the neighbour."""
    recorded = noise.log_likelihood
    noise.replay()
    try:
        names, numbers = _outputs(other, noise)
        noise.finish()
    except Impossible:
        return math.inf
    same = names == shown[0] and np.array_equal(numbers, shown[1], equal_nan=True)
    return recorded - noise.log_likelihood if same else math.inf


def _columns(sides: Sequence[Sequence[Outputs]]) -> tuple[tuple[str, ...], FloatArray, FloatArray]:
    """Names, and a matrix for each dataset; what a run did not show is NaN."""
    known = dict.fromkeys(names for side in sides for names, _ in side)
    columns = {name: k for k, name in enumerate(dict.fromkeys(n for names in known for n in names))}
    places = {names: [columns[name] for name in names] for names in known}
    first, second = (np.full((len(side), len(columns)), np.nan) for side in sides)
    for matrix, side in zip((first, second), sides, strict=True):
        for k, (names, numbers) in enumerate(side):
            matrix[k, places[names]] = numbers
    return tuple(columns), first, second


_NUMBER = re.compile(r"-?\d+\.?\d*(?:[eE][-+]?\d+)?")


def leaves(value: Any) -> tuple[tuple[str, ...], list[float]]:
    """Return names and numbers of everything inside a value; a text is a number too, by its hash.

    Examples
    --------
    >>> leaves({"estimate": 1.5, "arms": (3, 4)})
    (('estimate', 'arms[0]', 'arms[1]'), [1.5, 3.0, 4.0])
    """
    names: list[str] = []
    numbers: list[float] = []
    _walk("", value, names, numbers)
    return tuple(names), numbers


def _walk(name: str, value: Any, names: list[str], numbers: list[float]) -> None:
    if isinstance(value, int | float | np.number | np.bool_):
        names.append(name or "value")
        numbers.append(float(value))
    elif isinstance(value, str):
        hashed = _text(value)
        names += [name or "text", *(f"{name}, number {k}" for k in range(1, len(hashed)))]
        numbers += hashed
    elif isinstance(value, Mapping):
        for key, entry in value.items():
            _walk(f"{name}.{key}" if name else str(key), entry, names, numbers)
    elif isinstance(value, list | tuple):
        for k, entry in enumerate(value):
            _walk(f"{name}[{k}]", entry, names, numbers)
    elif isinstance(value, np.ndarray):
        _walk(name, value.reshape(-1).tolist(), names, numbers)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            inner = f"{name}.{field.name}" if name else field.name
            _walk(inner, getattr(value, field.name), names, numbers)


@lru_cache(maxsize=4096)
def _text(text: str) -> list[float]:
    """A hash of the text, and the numbers in it."""
    return [float(zlib.crc32(text.encode())), *(float(x) for x in _NUMBER.findall(text))]
