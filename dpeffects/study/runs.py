"""The runs of a study, in batches that do not depend on the number of processes."""

from __future__ import annotations

import itertools
import math
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpeffects.datasets import simulate
from dpeffects.design.bounds import Declared
from dpeffects.effects import dp_atc, dp_ate, dp_att
from dpeffects.errors import DataError, DPEffectsError, OptionError
from dpeffects.progress import bar

Fit = Mapping[str, Any] | Callable[..., Any]
Maker = str | Callable[..., Any]

ESTIMATORS = {"ATE": dp_ate, "ATT": dp_att, "ATC": dp_atc}
_ROLES = ("treatment", "outcome", "mu0", "mu1")
SIZE = 10
KEYS = ["fit", "n", "epsilon", "repeat"]
COLUMNS = [
    *KEYS,
    *("truth", "estimate", "std_error", "conf_low", "conf_high", "caution", "failure", "seconds"),
]


@dataclass(frozen=True)
class Plan:
    """What is the same in all batches."""

    fits: dict[str, Fit]
    data: Maker
    options: dict[str, Any]
    formula: str | None
    estimand: str
    conf_level: float
    seed: int

    def make(self, n: int, repeat: int) -> tuple[Any, float]:
        """Draw a data set and its true effect."""
        seed = self.seed_of("data", n, repeat)
        if isinstance(self.data, str):
            made = simulate(self.data, n=n, seed=seed, **self.options)
        else:
            made = self.data(n, seed, **self.options)
        if isinstance(made, tuple):
            return made[0], float(made[1])
        return made, self._truth(made)

    def _truth(self, made: Any) -> float:
        frame = made.frame if isinstance(made, Declared) else made
        if not {"mu0", "mu1"} <= set(frame.columns):
            raise DataError('data needs the columns "mu0" and "mu1", or make a pair (data, truth)')
        effect = np.asarray(frame["mu1"], float) - np.asarray(frame["mu0"], float)
        if self.estimand == "ATE":
            return float(effect.mean())
        treated = np.asarray(frame["treatment"]).astype(bool)
        return float(effect[treated if self.estimand == "ATT" else ~treated].mean())

    def seed_of(self, *place: Any) -> int:
        """Return a seed for a place in the study."""
        words = [zlib.crc32(str(x).encode()) for x in place]
        return int(np.random.SeedSequence([self.seed, *words]).generate_state(1, np.uint64)[0])

    def fit(self, name: str, data: Any, epsilon: float, seed: int) -> Any:
        """Run one fit."""
        given = self.fits[name]
        if not isinstance(given, Mapping):
            return given(data, epsilon, seed)
        formula = given.get("formula", self.formula) or _formula(data)
        rest = {key: x for key, x in given.items() if key != "formula"}
        run = ESTIMATORS[self.estimand]
        return run(formula, data, **{"epsilon": epsilon, "seed": seed, **rest})


@dataclass(frozen=True)
class Batch:
    """Some repeats at one sample size: which fits at which epsilons are still to run."""

    plan: Plan
    n: int
    todo: Mapping[int, Sequence[tuple[str, float]]]

    def __call__(self) -> list[dict[str, Any]]:
        """Run; what fails is kept with its reason."""
        rows = []
        for repeat, tasks in self.todo.items():
            data, truth = self.plan.make(self.n, repeat)
            for name, epsilon in tasks:
                key = dict(zip(KEYS, (name, self.n, epsilon, repeat), strict=True))
                rows.append({**key, "truth": truth, **self._row(name, epsilon, repeat, data)})
        return rows

    def _row(self, name: str, epsilon: float, repeat: int, data: Any) -> dict[str, Any]:
        seed = self.plan.seed_of("noise", name, self.n, epsilon, repeat)
        start, row = time.perf_counter(), dict.fromkeys(COLUMNS[5:9], math.nan)
        failure = caution = ""
        try:
            fitted = self.plan.fit(name, data, epsilon, seed)
        except DPEffectsError as error:
            failure = f"{type(error).__name__}: {str(error).splitlines()[0]}"
        else:
            row, caution = _read(fitted, self.plan.conf_level)
        seconds = time.perf_counter() - start
        return {**row, "caution": caution, "failure": failure, "seconds": seconds}


def _read(fitted: Any, conf_level: float) -> tuple[dict[str, float], str]:
    """Take estimate, standard error and interval from a result, or from a number."""
    if not hasattr(fitted, "tidy"):
        return {**dict.fromkeys(COLUMNS[5:9], math.nan), "estimate": float(fitted)}, ""
    line = fitted.tidy(conf_level).iloc[0]
    return {name: float(line[name]) for name in COLUMNS[5:9]}, str(getattr(fitted, "caution", ""))


def batches_of(
    plan: Plan,
    sizes: Sequence[int],
    epsilons: Sequence[float],
    repeats: int,
    known: Iterable[Mapping[str, Any]],
    size: int = SIZE,
) -> Iterator[Batch]:
    """Cut what is not on file yet into batches of some repeats."""
    done = {key_of(row) for row in known}
    for n in sizes:
        for start in range(0, repeats, size):
            todo = {}
            for repeat in range(start, min(start + size, repeats)):
                pairs = itertools.product(plan.fits, epsilons)
                left = [(name, e) for name, e in pairs if (name, n, e, repeat) not in done]
                if left:
                    todo[repeat] = left
            if todo:
                yield Batch(plan, n, todo)


def run(
    batches: Sequence[Callable[[], list[dict[str, Any]]]], workers: int
) -> Iterator[list[dict[str, Any]]]:
    """Run batches, here or in several processes; they come in any order."""
    if workers == 1:
        finished: Iterable[Any] = (batch() for batch in batches)
    else:
        try:
            from joblib import Parallel, delayed
        except ImportError:
            raise OptionError("workers > 1 needs joblib: pip install joblib") from None
        pool = Parallel(n_jobs=workers, return_as="generator_unordered")
        finished = pool(delayed(batch)() for batch in batches)
    yield from bar(finished, "batches of the study", len(batches))


def key_of(row: Mapping[str, Any]) -> tuple[str, int, float, int]:
    """Return what names a run."""
    return str(row["fit"]), int(row["n"]), float(row["epsilon"]), int(row["repeat"])


def _formula(data: Any) -> str:
    names = list((data.frame if isinstance(data, Declared) else data).columns)
    return "outcome ~ treatment | " + " + ".join(x for x in names if x not in _ROLES)
