"""Attack a mechanism: neighbours -> runs -> an event -> a lower bound on epsilon.

Runs on a pair of datasets are made in chunks that do not depend on the number of processes. A
reader can get every number out of a result, and every text.
"""

from __future__ import annotations

import dataclasses
import math
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from dpeffects.arrays import FloatArray
from dpeffects.errors import BoundsError, DataError, EstimationError, OptionError, checked_call
from dpeffects.estimators.option_checks import check_choice, check_whole, is_number
from dpeffects.evidence.auditing.audit_result import AuditResult, PairOutcome
from dpeffects.evidence.auditing.events import Runs, choose, foresee, lower_bound
from dpeffects.evidence.auditing.mechanisms import Mechanism, Run, mechanism
from dpeffects.evidence.auditing.pairs import BOUNDS, Neighbours, neighbours, own_pairs
from dpeffects.evidence.auditing.recording import Impossible, RecordedNoise
from dpeffects.evidence.simulations.simulation import run_tasks
from dpeffects.privacy.budget import Budget
from dpeffects.privacy.noise import SecureNoise
from dpeffects.progress import bar
from dpeffects.seeded import SeededNoise

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
            entries = [values[:_ENTRIES] for values in noise.released]
            names = _release_names(tuple(values.size for values in entries))
            shown.append(((*names, *outputs[0]), [*np.concatenate([*entries, outputs[1]])]))
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


_PILOT = 0.2
"""Part of the runs that look for the worst pair."""
_CHOOSE = 0.25
"""Part of the other runs that chooses the event; the rest counts it."""


@checked_call
def audit(
    method: str | Callable[[Any, Any], Any],
    *,
    epsilon: float,
    delta: float = 0.0,
    level: str | None = None,
    runs: int = 20_000,
    conf_level: float = 0.95,
    pairs: Sequence[tuple[Any, Any]] | None = None,
    library: bool = True,
    formula: str | None = None,
    bounds: Mapping[str, Any] | str | None = None,
    estimand: str = "ATE",
    variance: bool = True,
    budget_split: Mapping[str, float] | None = None,
    watch: str = "releases",
    noise: str = "seeded",
    workers: int = 1,
    seed: int | None = None,
    **options: Any,
) -> AuditResult:
    """Attack a method: run it many times on neighbours, and bound its true epsilon from below.

    The attacker knows both datasets and sees every release and everything in the result. A method
    with the guarantee it claims keeps the bound at most at epsilon; one that does not is found out
    where a pair of neighbours shows it.

    Parameters
    ----------
    method
        One of :func:`methods`, "r_learner" or "dr_learner" (conditional effects;
        "sample_aggregate" with ``estimand="CATE"``), or a function
        ``run(data, seed)`` that passes ``seed``, a source of noise that records, on to calls of
        this package and returns what it shows; that takes ``pairs``.
    epsilon, delta, level, estimand, variance, budget_split, **options
        As in :func:`dp_ate` or :func:`dp_cate`: what is promised, and how it is run. With
        ``unit="patient_id"`` neighbours differ in all rows of one patient; also ``max_rows``,
        ``cluster``, ``missing``, ``weights`` and ``subset`` have pairs of their own.
    runs
        How many runs on all pairs together. 20,000 can show about 0.93 of an epsilon of 1.
    conf_level
        Of the lower bound.
    pairs
        Neighbours of your own, ``[(frame, frame), ...]``, in the same order of rows.
    library
        Whether the library's neighbours are used too.
    formula, bounds
        For your own pairs. ``bounds="from_data"`` applies to the library too, and is found out.
    watch
        "releases" (the attacker sees all of them; every draw of a function of yours counts as
        one) or "returned" (only what a run returns).
    noise
        "seeded" (fast, from a generator of the audit's own) or "secure" (the package's own noise).
    workers
        Number of processes; more than one needs joblib (``pip install "dpeffects[study]"``).
    seed
        Makes the audit reproducible, whatever ``workers`` is.

    Returns
    -------
    AuditResult

    Examples
    --------
    >>> from dpeffects.evidence.auditing import audit
    >>> found = audit("diff_in_means", epsilon=1, level="label", variance=False, runs=2000, seed=1)
    >>> found.violated, 0.6 < found.lower < 1.0
    (False, True)

    In a shell::

        dpeffects audit private_psm --level sample --epsilon 1 --workers 2
        dpeffects audit diff_in_means --epsilon 1 --format json --seed 1
        # exit code: 0 the bound is at most epsilon, 1 VIOLATED, 2 it did not run
    """
    check_whole("runs", runs, 100)
    check_whole("workers", workers, 1)
    if not is_number(conf_level) or not 0.5 <= conf_level < 1.0:
        raise OptionError(f"conf_level must be at least 0.5 and below 1, got {conf_level!r}")
    check_choice("watch", watch, ("releases", "returned"))
    check_choice("noise", noise, ("seeded", "secure"))
    audited = mechanism(
        method, Budget(epsilon, delta), level, estimand, variance, budget_split, options
    )
    entropy = None if noise == "secure" else _entropy(seed)
    attack = _Attack(audited, float(delta), conf_level, watch == "releases", workers, entropy)
    evidence = attack.on(_all_pairs(audited, pairs, library, formula, bounds), runs)
    return AuditResult(
        method=audited.name,
        level=audited.level,
        estimand=audited.estimand,
        epsilon=float(epsilon),
        delta=float(delta),
        guarantee=audited.guarantee,
        conf_level=conf_level,
        noise=_SECURE if entropy is None else _SEEDED.format(entropy),
        seed=entropy,
        options=dict(options),
        unit=audited.unit,
        **evidence,
    )


_SECURE = "the package's own: OpenDP discrete noise, system entropy"
_SEEDED = "a seeded generator of the audit's own (seed {}), for speed"


@dataclass(frozen=True)
class _Attack:
    """How a mechanism is attacked: what is asked of the bound, where randomness comes from."""

    mechanism: Mechanism
    delta: float
    conf_level: float
    watched: bool
    workers: int
    entropy: int | None

    def on(self, pairs: Sequence[Neighbours], runs: int) -> dict[str, Any]:
        """Find the worst pair by a few runs on each, and give it the rest."""
        outcomes = [PairOutcome(p.name, p.about, skipped=misfit(self.mechanism, p)) for p in pairs]
        usable = [k for k, outcome in enumerate(outcomes) if not outcome.skipped]
        if not usable:
            raise OptionError(f"no pair of neighbours fits: {outcomes[0].skipped}")
        few = max(4, round(_PILOT * runs / (2 * len(usable)))) if len(usable) > 1 else 0
        pilots = {
            k: self._runs(pairs[k], (k, 0), few)
            for k in bar(usable if few else [], "looking for the worst pair")
        }
        rest = max(20, runs // 2 - few * len(pilots))
        worst = max(usable, key=lambda k: self._promise(pilots[k], rest)) if few else usable[0]
        last = self._runs(pairs[worst], (worst, 1), rest, "attacking it")
        for k in usable:
            parts = [pilots[k]] if few else []
            outcomes[k] = _outcome(pairs[k], [*parts, last] if k == worst else parts)
        return {
            **self._bound(last),
            "worst": pairs[worst].name,
            "pairs": tuple(outcomes),
            "runs": sum(outcome.runs for outcome in outcomes),
        }

    def _runs(self, pair: Neighbours, place: tuple[int, int], count: int, about: str = "") -> Runs:
        seed = None if self.entropy is None else (self.entropy, *place)
        return gather(self.mechanism, pair, count, seed, self.watched, self.workers, about)

    def _promise(self, runs: Runs, size: int) -> float:
        """How much a pair promises, by its losses or else by what was shown."""
        if runs.watched:
            return foresee(runs, size, self.delta, self.conf_level)[0]
        hits = choose(runs, size, self.delta, self.conf_level).hits(runs)
        return float(lower_bound(hits, runs.sizes, self.delta, 0.5))

    def _bound(self, runs: Runs) -> dict[str, Any]:
        """One part of the runs chooses an event, the other counts it."""
        counted = runs.part(_CHOOSE, 1.0)
        size = counted.sizes[0]
        event = choose(runs.part(0.0, _CHOOSE), size, self.delta, self.conf_level)
        hits, trials = event.hits(counted), (size, size)
        lower = float(lower_bound(hits, trials, self.delta, self.conf_level))
        return {"lower": lower, "event": str(event), "hits": hits, "trials": trials}


def _all_pairs(
    audited: Mechanism, pairs: Any, library: bool, formula: str | None, bounds: Any
) -> list[Neighbours]:
    """The user's own pairs and the library's, where they fit."""
    of_library = audited.formula is not None and formula is None
    own = own_pairs(
        () if pairs is None else pairs,
        formula,
        bounds or BOUNDS if of_library else bounds,
        audited.public,
        audited.sample.get("unit"),
    )
    listed = []
    if library and audited.formula is not None:
        listed = neighbours(audited.public, audited.sample)
    if bounds == "from_data":
        listed = [replace(pair, bounds=bounds) for pair in listed]
    if not own and not listed:
        raise OptionError("there is nothing to compare: give pairs=[(data, neighbour), ...]")
    return own + listed


def _entropy(seed: int | None) -> int:
    if seed is None:
        return int(np.random.SeedSequence().generate_state(1, np.uint64)[0])
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise OptionError(f"seed must be a non-negative integer, got {seed!r}")
    return int(seed)


def _outcome(pair: Neighbours, parts: Sequence[Runs]) -> PairOutcome:
    losses = np.concatenate([[*runs.loss[0], *-runs.loss[1]] for runs in parts])
    known = bool(losses.size) and not np.isnan(losses).any()
    return PairOutcome(
        pair.name,
        pair.about,
        runs=int(losses.size),
        average_loss=float(losses.mean()) if known else math.nan,
        largest_loss=float(losses.max()) if known else math.nan,
    )
