"""Synthetic records by AIM or MST of the library dpmm, in an environment of its own.

Run as a script: one request a line on standard input, one answer a line on standard output, both
JSON. A request has ``codes`` (a list for each column), ``sizes`` (number of cells of each column),
``generator``, ``workload`` (lists of columns, for AIM), ``rho`` (for replacing a record) and
``seed`` (None, or a number for simulations: then nothing is private). The answer has the ``codes``
of as many synthetic records, the ``tables`` that were measured, and the rho that was ``spent``.

The library chooses tables and draws noise, and the price of each draw is added up here. What
happens to noisy tables is post-processing, and is done by `measured_tables.py`, because the
library's own takes minutes.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import pandas as pd
from dpmm.models import aim, mst
from dpmm.models.base.mechanisms import mechanism
from measured_tables import FittedDistribution, Floats, Tree

_IN_ROUNDS, _AT_LAST = 25, 400
_MOST_MEGABYTES = 1.0


class Marginal:
    """Expected counts, as the library reads them."""

    def __init__(self, values: Floats) -> None:
        self._values = values

    def datavector(self, flatten: bool = True) -> Floats:
        """All cells in a row."""
        return self._values.reshape(-1) if flatten else self._values


class NoisyModel:
    """A fitted distribution in the place of the library's own."""

    def __init__(self, domain: Any, fitted: FittedDistribution) -> None:
        self.domain, self.fitted, self.cliques = domain, fitted, fitted.cliques

    def project(self, names: Any) -> Marginal:
        """Expected counts over some columns."""
        return Marginal(self.fitted.project(tuple(names)))


class Engine:
    """Fits distributions to noisy tables in the place of the library's own engine."""

    rows = 0
    _last: FittedDistribution | None = None

    def __init__(self, domain: Any, iters: int = 0, warm_start: bool = False, **_: Any) -> None:
        self._domain, self._warm = domain, warm_start

    def estimate(self, measurements: Any) -> NoisyModel:
        """Fit to (query, values, standard deviation, columns)."""
        seen = [(tuple(names), np.asarray(y, float), float(sd)) for _, y, sd, names in measurements]
        sizes = {name: int(size) for name, size in self._domain.config.items()}
        start = self._last.potentials if self._last and self._warm else None
        steps = _IN_ROUNDS if self._warm else _AT_LAST
        self._last = FittedDistribution(sizes, seen, self.rows, start, steps)
        return NoisyModel(self._domain, self._last)


class Codes:
    """The records in the place of the library's own data set, which is slow at choosing columns."""

    def __init__(self, frame: Any, domain: Any) -> None:
        self.domain, self._columns = domain, {name: np.asarray(frame[name]) for name in domain}

    def project(self, names: Any) -> Codes:
        """Some columns."""
        return Codes(self._columns, self.domain.project(names))

    def datavector(self, flatten: bool = True) -> Floats:
        """Counts of all cells."""
        cells = np.ravel_multi_index(tuple(self._columns.values()), self.domain.shape)
        counts = np.bincount(cells, minlength=self.domain.size()).astype(np.float64)
        return counts if flatten else counts.reshape(self.domain.shape)


def _megabytes(domain: Any, cliques: Any) -> float:
    """Size of a fit; columns that are tied to no other are counted by themselves."""
    sizes = {name: int(size) for name, size in domain.config.items()}
    tied = {
        name: sizes.pop(name)
        for clique in cliques
        if len(clique) > 1
        for name in clique
        if name in sizes
    }
    cells = Tree(tied, [clique for clique in cliques if len(clique) > 1]).size
    return (cells + sum(sizes.values())) * 8 / 2**20


aim.FactoredInference = mst.FactoredInference = mechanism.FactoredInference = Engine
aim.hypothetical_model_size = _megabytes
mechanism.Dataset = Codes
# what the library is given as epsilon is rho already
mst.cdp_rho = mechanism.cdp_rho = lambda epsilon, delta: epsilon

# Replacing a record moves two cells of a table by 1, so noise costs twice its rho for presence; it
# moves a score by twice its sensitivity, so a choice costs four times its. AIM spends at most a
# tenth on choices, MST a third.
_REPLACING = {"aim": 0.9 * 2 + 0.1 * 4, "mst": (2 * 2 + 4) / 3}


class Draws:
    """What the library draws, by a seed or by itself, and the rho that replacing a record cost."""

    spent = 0.0
    state: np.random.RandomState | None = None

    @classmethod
    def start(cls, seed: int | None) -> None:
        """Begin a release."""
        cls.spent = 0.0
        cls.state = None if seed is None else np.random.RandomState(seed)

    @classmethod
    def noise(cls, sigma: float, size: Any = None) -> Any:
        """Noise of one table: two cells move by 1, 2 / (2 sigma^2)."""
        cls.spent += 1.0 / sigma**2
        if cls.state is None:
            return _noise_of_library(sigma=sigma, size=size)
        return cls.state.normal(0.0, sigma, size)

    @classmethod
    def choosing(cls, choose: Any) -> Any:
        """Add the price of a choice: scores move twice as far, (2 epsilon)^2 / 8."""

        def chosen(self: Any, scores: Any, epsilon: float, sensitivity: float) -> Any:
            cls.spent += epsilon**2 / 2.0
            return choose(self, scores, epsilon, sensitivity)

        return chosen


_noise_of_library = aim.gaussian_noise
aim.gaussian_noise = mst.gaussian_noise = mechanism.gaussian_noise = Draws.noise
for _generator in (aim.AIM, mst.MST):
    _generator.exponential_mechanism = Draws.choosing(_generator.exponential_mechanism)


def synthetic(asked: dict[str, Any]) -> dict[str, Any]:
    """Release noisy tables, and draw records from the distribution fitted to them."""
    frame = pd.DataFrame(asked["codes"])
    Engine.rows = len(frame)
    Draws.start(asked["seed"])
    shared = {"epsilon": asked["rho"] / _REPLACING[asked["generator"]], "delta": 0.5}
    shared |= {"domain": asked["sizes"], "n_jobs": 1, "prng": Draws.state}
    if asked["generator"] == "aim":
        made = aim.AIM(max_model_size=_MOST_MEGABYTES, **shared)
        made.fit(frame, W=[(tuple(names), 1.0) for names in asked["workload"]])
    else:
        made = mst.MST(compress=False, **shared)
        made.fit(frame)
    if Draws.spent > asked["rho"] * (1.0 + 1e-9):
        raise ArithmeticError("the library drew more than was paid for")
    fitted = made.model.fitted
    generator = np.random.default_rng(asked["seed"])
    drawn = fitted.sample(generator.random((len(frame), len(asked["sizes"]))))
    codes = {name: drawn[name].tolist() for name in asked["sizes"]}
    tables = [list(clique) for clique in fitted.cliques]
    return {"codes": codes, "tables": tables, "spent": Draws.spent}


def main() -> None:
    """Answer requests until there are none."""
    answers, sys.stdout = sys.stdout, sys.stderr  # what libraries print is no answer
    for line in sys.stdin:
        try:
            answer = synthetic(json.loads(line))
        except Exception as error:  # its text could hold values of the data
            answer = {"error": type(error).__name__}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
