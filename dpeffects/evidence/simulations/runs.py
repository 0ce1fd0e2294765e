"""The runs of a study, in batches that do not depend on the number of processes."""

from __future__ import annotations

import itertools
import math
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from dpeffects.datasets import simulate
from dpeffects.design.bounds import DeclaredFrame
from dpeffects.effects import estimate_effect
from dpeffects.errors import DataError, DPEffectsError

Minimisation = Mapping[str, Any] | Callable[..., Any]
Maker = str | Callable[..., Any]

_ROLES = ("treatment", "outcome", "mu0", "mu1")
SIZE = 10
KEYS = ["fit", "n", "epsilon", "repeat"]
COLUMNS = [
    *KEYS,
    *("truth", "estimate", "std_error", "conf_low", "conf_high", "warnings", "failure", "seconds"),
]


@dataclass(frozen=True)
class StudyDesign:
    """What is the same in all batches."""

    fits: Mapping[str, Minimisation]
    data: Maker
    seed: int
    estimand: str = "ATE"
    conf_level: float = 0.95
    formula: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def draw(self, n: int, repeat: int) -> tuple[Any, float]:
        """Draw a data set and its true effect."""
        make = partial(simulate, self.data) if isinstance(self.data, str) else self.data
        data = make(n, seed_at(self.seed, "data", n, repeat), **self.options)
        if isinstance(data, tuple):
            return data[0], float(data[1])
        return data, self._truth(data)

    def _truth(self, data: Any) -> float:
        frame = data.frame if isinstance(data, DeclaredFrame) else data
        if not {"mu0", "mu1"} <= set(frame.columns):
            raise DataError('data needs the columns "mu0" and "mu1", or make a pair (data, truth)')
        effect = np.asarray(frame["mu1"], float) - np.asarray(frame["mu0"], float)
        if self.estimand == "ATE":
            return float(effect.mean())
        treated = np.asarray(frame["treatment"]).astype(bool)
        return float(effect[treated if self.estimand == "ATT" else ~treated].mean())

    def fit(self, name: str, data: Any, epsilon: float, seed: int) -> Any:
        """Run one fit."""
        fit = self.fits[name]
        if not isinstance(fit, Mapping):
            return fit(data, epsilon, seed)
        formula = fit.get("formula", self.formula) or _formula(data)
        arguments = {key: x for key, x in fit.items() if key != "formula"}
        arguments |= {"epsilon": epsilon, "seed": seed, "contrasts": None}
        return estimate_effect(self.estimand, formula, data, **arguments)


def seed_at(seed: int, *place: Any) -> int:
    """Return a seed for a place in a study."""
    words = [zlib.crc32(str(x).encode()) for x in place]
    return int(np.random.SeedSequence([seed, *words]).generate_state(1, np.uint64)[0])


@dataclass(frozen=True)
class Batch:
    """Some repeats at one sample size: which fits at which epsilons are still to run."""

    design: StudyDesign
    n: int
    todo: Mapping[int, Sequence[tuple[str, float]]]

    def __call__(self) -> list[dict[str, Any]]:
        """Run; what fails is kept with its reason."""
        rows = []
        for repeat, cells in self.todo.items():
            data, truth = self.design.draw(self.n, repeat)
            for name, epsilon in cells:
                key = dict(zip(KEYS, (name, self.n, epsilon, repeat), strict=True))
                rows.append({**key, "truth": truth, **self.run(name, epsilon, repeat, data)})
        return rows

    def run(self, name: str, epsilon: float, repeat: int, data: Any) -> dict[str, Any]:
        """Run one fit, and return what came of it."""
        seed = seed_at(self.design.seed, "noise", name, self.n, epsilon, repeat)
        start, row = time.perf_counter(), dict.fromkeys(COLUMNS[5:9], math.nan)
        failure = warnings = ""
        try:
            fitted = self.design.fit(name, data, epsilon, seed)
        except DPEffectsError as error:
            failure = f"{type(error).__name__}: {str(error).splitlines()[0]}"
        else:
            row, warnings = _read(fitted, self.design.conf_level)
        seconds = time.perf_counter() - start
        return {**row, "warnings": warnings, "failure": failure, "seconds": seconds}


def _read(fitted: Any, conf_level: float) -> tuple[dict[str, float], str]:
    """Take estimate, standard error and interval from a result, or from a number."""
    if not hasattr(fitted, "tidy"):
        return {**dict.fromkeys(COLUMNS[5:9], math.nan), "estimate": float(fitted)}, ""
    line = fitted.tidy(conf_level).iloc[0]
    return {name: float(line[name]) for name in COLUMNS[5:9]}, str(getattr(fitted, "warnings", ""))


def batches_of(
    design: StudyDesign,
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
                pairs = itertools.product(design.fits, epsilons)
                left = [(name, e) for name, e in pairs if (name, n, e, repeat) not in done]
                if left:
                    todo[repeat] = left
            if todo:
                yield Batch(design, n, todo)


def key_of(row: Mapping[str, Any]) -> tuple[str, int, float, int]:
    """Return what names a run."""
    return str(row["fit"]), int(row["n"]), float(row["epsilon"]), int(row["repeat"])


def _formula(data: Any) -> str:
    names = list((data.frame if isinstance(data, DeclaredFrame) else data).columns)
    return "outcome ~ treatment | " + " + ".join(x for x in names if x not in _ROLES)
