"""A distribution of many columns from noisy tables of few: what the worker fits to releases.

Everything here works on released tables, so that nothing in it matters for privacy. It runs in the
generators' own environment and needs numpy only. The library's own optimiser compiles a program for
every new set of tables, which takes minutes; this one does the same steps (mirror descent on the
tables' potentials, exact sums along a tree) in milliseconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Clique = tuple[str, ...]

_LEAST = 1e-200


class Tree:
    """Columns in an order of elimination, each with the later ones that it is tied to.

    Column v is summed out of the table over v and its ``later`` columns; what is left goes to the
    table of the first of those.
    """

    def __init__(self, sizes: Mapping[str, int], cliques: Iterable[Clique]) -> None:
        self.sizes = dict(sizes)
        ties: dict[str, set[str]] = {name: set() for name in sizes}
        for clique in cliques:
            for name in clique:
                ties[name] |= set(clique) - {name}
        self.order: list[str] = []
        later: dict[str, set[str]] = {}
        cost = {name: self.cells((name, *ties[name])) for name in ties}
        while cost:
            name = min(cost, key=cost.__getitem__)
            del cost[name]
            self.order.append(name)
            later[name] = ties[name]
            for other in ties[name]:
                ties[other] = (ties[other] | ties[name]) - {name, other}
            for other in later[name]:
                cost[other] = self.cells((other, *ties[other]))
        place = {name: k for k, name in enumerate(self.order)}
        self.place = place
        self.later = {name: tuple(sorted(later[name], key=place.__getitem__)) for name in later}

    def cells(self, names: Iterable[str]) -> int:
        """Cells of the table over some columns."""
        return math.prod(self.sizes[name] for name in names)

    @property
    def size(self) -> int:
        """Cells of all tables."""
        return sum(self.cells((name, *self.later[name])) for name in self.order)

    def shape(self, within: str, names: Iterable[str]) -> tuple[int, ...]:
        """Shape of a table over some columns, to be multiplied into that of ``within``."""
        kept = set(names)
        return tuple(self.sizes[n] if n in kept else 1 for n in (within, *self.later[within]))

    def axes(self, within: str, names: Iterable[str]) -> tuple[int, ...]:
        """Axes of the table of ``within`` that are not among some columns; axis 0 is the batch."""
        kept = set(names)
        return tuple(k for k, n in enumerate((within, *self.later[within]), 1) if n not in kept)

    def sorted(self, names: Iterable[str]) -> Clique:
        """Columns in the order of elimination: the first one's table has them all, if any has."""
        return tuple(sorted(names, key=self.place.__getitem__))

    @cached_property
    def steps(self) -> list[tuple[str, str | None, tuple[int, ...], tuple[int, ...]]]:
        """Column, where its sum goes, the shape there, and the axes summed on the way back."""
        found = []
        for name in self.order:
            rest = self.later[name]
            to = rest[0] if rest else None
            shape = self.shape(to, rest) if to else ()
            found.append((name, to, shape, self.axes(to, rest) if to else ()))
        return found

    def calibrated(
        self, tables: Mapping[str, Floats], conditional: bool = False
    ) -> dict[str, Floats]:
        """Tables of the distribution proportional to a product of tables, summed to the batch.

        Each table has a first axis, the batch: several distributions at once. Totals over a batch
        are kept, so that a batch of indicators gives a joint distribution.
        """
        work = dict(tables)
        given: dict[str, Floats] = {}
        batch = None
        for name, to, shape, _ in self.steps:
            table = work[name]
            total = table.sum(axis=1)
            given[name] = table / np.maximum(total, _LEAST)[:, None]
            if to is None:
                batch = total if batch is None else batch * total
            else:
                total = total / max(float(total.max()), _LEAST)
                work[to] = work[to] * total.reshape(len(total), *shape)
        if conditional:
            return given
        assert batch is not None
        weight = batch / max(float(batch.sum()), _LEAST)
        out: dict[str, Floats] = {}
        for name, to, _, axes in reversed(self.steps):
            if to is None:
                out[name] = given[name] * weight[:, None]
            else:
                out[name] = given[name] * out[to].sum(axis=axes)[:, None]
        return out


class Measured:
    """A noisy table over some columns, and the standard deviation of its noise."""

    def __init__(self, tree: Tree, clique: Clique, values: Floats, sd: float) -> None:
        self.clique = tree.sorted(clique)
        shaped = values.reshape([tree.sizes[name] for name in clique])
        self.values = shaped.transpose([clique.index(name) for name in self.clique])
        self.home = self.clique[0]
        self.shape = (1, *tree.shape(self.home, self.clique))
        self.axes = tree.axes(self.home, self.clique)
        self.weight = 1.0 / sd**2

    def residual(self, tables: Mapping[str, Floats], n: float) -> Floats:
        """What the tables say, less what was measured."""
        return n * tables[self.home].sum(axis=self.axes)[0] - self.values


class FittedDistribution:
    """The distribution whose tables are nearest to the measured ones, for n records.

    ``potentials``, by clique and with its columns in alphabetical order, start the next fit.
    """

    def __init__(
        self,
        sizes: Mapping[str, int],
        measured: Sequence[tuple[Clique, Floats, float]],
        n: float,
        start: Mapping[Clique, Floats] | None = None,
        steps: int = 50,
    ) -> None:
        self.n = n
        self.tree = Tree(sizes, [clique for clique, _, _ in measured])
        seen = [Measured(self.tree, *m) for m in measured]
        theta = {m.clique: np.zeros(m.values.shape) for m in seen}
        for clique, table in (start or {}).items():
            theta[self.tree.sorted(clique)] = _turned(table, clique, self.tree.sorted(clique))
        self._theta = self._descend(theta, seen, steps)
        self.tables = self.tree.calibrated(self._local(self._theta))
        self._seen: dict[Clique, dict[str, Floats]] = {}

    @property
    def cliques(self) -> list[Clique]:
        """Columns of the measured tables."""
        return list(self._theta)

    @property
    def potentials(self) -> dict[Clique, Floats]:
        """Logarithms of the factors."""
        return self._theta

    def _local(self, theta: Mapping[Clique, Floats]) -> dict[str, Floats]:
        """Products of factors, each in the table of the column that is eliminated first."""
        logs = {
            v: np.zeros((1, *self.tree.shape(v, (v, *self.tree.later[v])))) for v in self.tree.order
        }
        for clique, table in theta.items():
            home = clique[0]
            logs[home] = logs[home] + table.reshape(1, *self.tree.shape(home, clique))
        return {v: np.exp(table - table.max()) for v, table in logs.items()}

    def _descend(
        self, theta: dict[Clique, Floats], seen: Sequence[Measured], steps: int
    ) -> dict[Clique, Floats]:
        """Mirror descent: each factor moves against its residual, steps grow while they help."""

        def look(theta: Mapping[Clique, Floats]) -> tuple[float, dict[Clique, Floats]]:
            tables = self.tree.calibrated(self._local(theta))
            loss, slope = 0.0, {clique: np.zeros(table.shape) for clique, table in theta.items()}
            for m in seen:
                rest = m.residual(tables, self.n)
                loss += 0.5 * m.weight * float((rest * rest).sum())
                slope[m.clique] += m.weight * rest
            return loss, slope

        rate = 1.0 / (self.n * sum(m.weight for m in seen) / len(self.tree.order))
        loss, slope = look(theta)
        for _ in range(steps):
            moved = {clique: theta[clique] - rate * slope[clique] for clique in theta}
            new, new_slope = look(moved)
            if new < loss:
                theta, slope, rate = moved, new_slope, rate * 1.5
                if loss - new < 1e-6 * loss:
                    break
                loss = new
            else:
                rate *= 0.4
        return theta

    def project(self, names: Clique) -> Floats:
        """Expected counts over some columns, in their order."""
        order = self.tree.sorted(names)
        if set(order[1:]) <= set(self.tree.later[order[0]]):
            table = self.tables[order[0]].sum(axis=self.tree.axes(order[0], names))[0]
            return self.n * _turned(table, order, names)
        *known, last = names
        joint = self._joint(tuple(known))[last]
        table = joint.sum(axis=self.tree.axes(last, (last,)))
        return self.n * table.reshape([self.tree.sizes[name] for name in names])

    def _joint(self, known: Clique) -> dict[str, Floats]:
        """Tables for every combination of the values of some columns, in a batch."""
        if known not in self._seen:
            sizes = [self.tree.sizes[name] for name in known]
            local = self._local(self._theta)
            for name, values in zip(known, np.indices(sizes).reshape(len(sizes), -1), strict=True):
                is_value = values[:, None] == np.arange(self.tree.sizes[name])
                shape = (len(values), *self.tree.shape(name, (name,)))
                local[name] = local[name] * is_value.reshape(shape)
            self._seen[known] = self.tree.calibrated(local)
        return self._seen[known]

    def sample(self, uniform: Floats) -> dict[str, npt.NDArray[np.int64]]:
        """Make records of numbers in [0, 1), a row each with as many numbers as columns.

        A column is made given those that are eliminated later.
        """
        given = self.tree.calibrated(self._local(self._theta), conditional=True)
        drawn: dict[str, npt.NDArray[np.int64]] = {}
        for name, u in zip(reversed(self.tree.order), uniform.T, strict=True):
            later = tuple(drawn[other] for other in self.tree.later[name])
            chances = np.moveaxis(given[name][0], 0, -1)[later]
            sums = np.broadcast_to(chances.cumsum(axis=-1), (len(u), self.tree.sizes[name]))
            drawn[name] = (u[:, None] * sums[:, -1:] > sums[:, :-1]).sum(axis=1)
        return drawn


def _turned(table: Floats, order: Clique, wanted: Clique) -> Floats:
    return table.transpose([order.index(name) for name in wanted])
