"""Noise that records: what a run drew, and how likely that was on either of two datasets.

A run is recorded, then replayed on the neighbouring dataset with the recorded draws as its
releases. Each run adds up the log-likelihood of what was released; the difference of the two is the
privacy loss of that release, the best score there is for telling the datasets apart (Neyman and
Pearson 1933). Whatever else the two runs show must be the same; where it is not, the neighbour
could not have released this, and the loss is infinite.

Three mechanisms do not release a value plus noise. A minimiser with noise in its objective has the
density of claim 21; the noise itself stays hidden. Noise by a smooth sensitivity has a private
scale (claim 15), a draw along a ladder private stairs (claim 34). Noise for matrices has a density
without a closed form: it is scored by the bound that claim 26 has for it, which is exact where the
noise has eigenvalues of one sign.

What each record adds to a penalised regression, in plain floats, for audits of its minimiser.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np

from dpeffects.arrays import BoolArray, FloatArray, IntArray
from dpeffects.inference.ladder_noise import stairs
from dpeffects.privacy import Block, NoisyValue, losses
from dpeffects.privacy.ladder import PARTS, TOP, Ladder
from dpeffects.privacy.noise import NoiseSource, flip_chance, triangles
from dpeffects.privacy.private_minimisation import Minimisation
from dpeffects.privacy.rows import Records


def by_record(fit: Minimisation, weights: FloatArray) -> Records:
    """Return rows, factors and curvatures at some weights, wherever the rows are.

    A row's gradient is its factor times the row, its Hessian the curvature times row row'; both
    are multiplied by what the row counts.
    """
    problem = fit.problem
    if isinstance(problem, losses.Huber):
        reads = [part for part in problem.terms.reads if part != "treated"]
        function = partial(_huber, problem=problem, weights=weights)
        return fit.curator._source.gather(function, *reads)
    function = partial(_logistic, problem=problem, weights=weights)
    return fit.curator._source.gather(function, *problem.reads)


def gradient(fit: Minimisation, weights: FloatArray) -> FloatArray:
    """Sum of the gradients of the losses."""
    rows, factors, _ = by_record(fit, weights)
    return np.asarray(factors @ rows)


def log_volume(fit: Minimisation, weights: FloatArray) -> float:
    """Logarithm of the determinant of the objective's second derivatives."""
    rows, _, curvatures = by_record(fit, weights)
    matrix = (rows.T * curvatures) @ rows + fit.problem.strength * np.eye(weights.size)
    return float(np.linalg.slogdet(matrix)[1])


def _logistic(block: Block, problem: losses.Logistic, weights: FloatArray) -> Records:
    rows = losses.whole_rows(block.covariates, True) / (
        2.0**losses.LOGISTIC_GRID * losses.unit_norm(problem.width)
    )
    chance = losses.sigmoid(rows @ weights + problem.offset)
    return rows, *_counted(block, chance - problem.cases(block), chance * (1.0 - chance))


def _huber(block: Block, problem: losses.Huber, weights: FloatArray) -> Records:
    whole, slopes, targets = losses.bounded_terms(problem, block)
    rows = whole * 2.0**-losses.HUBER_GRID
    if problem.by_arm:
        own = block.treated[:, None]
        rows = np.concatenate([rows * own, rows * ~own], axis=1)
    residual = targets - slopes * (rows @ weights)
    factors, curvatures = (
        -slopes * np.clip(residual, -1.0, 1.0),
        slopes**2 * (np.abs(residual) <= 1.0),
    )
    return rows, *_counted(block, factors, curvatures)


def _counted(block: Block, *values: FloatArray) -> Records:
    return tuple(x * block.weight for x in values) if block.weight.size else values


class Impossible(Exception):
    """The neighbour could not have released what was recorded."""


class RecordedNoise(NoiseSource):
    """Draws from another source, keeps the draws, and repeats them on the neighbour.

    ``log_likelihood`` is that of the releases of the run at hand; ``released`` holds the values of
    the recorded run that an attacker sees.
    """

    # The same for every run: a seed in the description would tell the two datasets apart.
    description = "recorded by an audit"
    void = ("recorded by an audit",)

    def __init__(self, source: NoiseSource) -> None:
        self._source = source
        self.record()

    def record(self) -> None:
        """Begin a run that draws."""
        self._tape: list[tuple[Any, Any]] = []
        self.released: list[FloatArray] = []
        self.replay()
        self._recording = True

    def replay(self) -> None:
        """Begin a run that repeats the draws of the last recorded one."""
        self._recording, self._position, self.log_likelihood = False, 0, 0.0
        self.has_released = False

    def finish(self) -> None:
        """Raise Impossible when the replayed run released less than the recorded one."""
        if self._position != len(self._tape):
            raise Impossible

    def laplace(self, values: IntArray, scale: float, sensitivity: int, epsilon: float) -> IntArray:
        """Discrete Laplace noise."""
        drawn = self._around("laplace", values, scale, sensitivity, epsilon)
        log_normaliser = values.size * math.log(math.tanh(0.5 / scale))
        self.log_likelihood += log_normaliser - float(np.abs((drawn - values) / scale).sum())
        return drawn

    def gaussian(self, values: IntArray, scale: float) -> IntArray:
        """Discrete Gaussian noise."""
        drawn = self._around("gaussian", values, scale)
        self.log_likelihood -= float((((drawn - values) / scale) ** 2).sum()) / 2.0
        return drawn

    def matrices(self, values: IntArray, scale: float, top: int) -> IntArray:
        """The difference of two Wisharts, scored by the sum of |eigenvalues| (claim 26)."""
        drawn = self._around("matrices", values, scale, top)
        d = triangles(values)[1]
        noise, upper = np.zeros((len(values), d, d)), np.triu_indices(d)
        noise[:, *upper] = (drawn - values) / scale
        size = np.abs(np.linalg.eigvalsh(noise, "U")).sum()
        self.log_likelihood -= float(size) / 2.0
        return drawn

    def cubes(self, values: IntArray, scale: float, width: int, epsilon: float) -> IntArray:
        """Noise of the shape of a cube."""
        drawn = self._around("cubes", values, scale, width, epsilon)
        self.log_likelihood -= float(np.abs((drawn - values) / scale).max(axis=1).sum())
        return drawn

    def flip(self, bits: BoolArray, epsilon: float) -> BoolArray:
        """Randomised response."""
        drawn = self._around("flip", bits, epsilon)
        chance, flipped = flip_chance(epsilon), int((drawn != bits).sum())
        kept = bits.size - flipped
        self.log_likelihood += flipped * math.log(chance) + kept * math.log1p(-chance)
        return drawn

    def respond(self, codes: IntArray, levels: int, epsilon: float) -> IntArray:
        """Generalised randomised response."""
        drawn = self._around("respond", codes, levels, epsilon)
        chance, moved = flip_chance(epsilon, levels), int((drawn != codes).sum())
        self.log_likelihood += moved * math.log(chance / (levels - 1))
        self.log_likelihood += (codes.size - moved) * math.log1p(-chance)
        return drawn

    def permutation(self, n: int) -> IntArray:
        """An order of the records, the same for both datasets: they differ at one place."""
        return self._next(("order", n), lambda: self._source.permutation(n))

    def smooth_laplace(self, private: Any, epsilon: float) -> float:
        """Laplace noise of a private scale, which is in the log-likelihood only."""
        lattice, rate = private.lattice, private.rate
        drawn: float = self._release(
            ("smooth", lattice, rate, private.unit, epsilon),
            lambda: self._source.smooth_laplace(private, epsilon),
        )
        scale = min(max(private.smooth, lattice.least), lattice.most) / rate
        self.log_likelihood -= abs(drawn / private.unit - private.value) / scale + math.log(scale)
        return drawn

    def along(self, ladder: Ladder) -> int:
        """One draw along a private ladder, which is in the log-likelihood only."""
        drawn: int = self._release(
            ("along", ladder.pace, ladder.ends), lambda: self._source.along(ladder)
        )
        self.log_likelihood += log_chance(ladder, drawn)
        return drawn

    def minimise(self, objective: Any, hidden: NoisyValue) -> FloatArray:
        """A minimiser with noise in its objective, which is not seen.

        Its log-density, up to a constant, is that of the noise that would make these weights the
        minimiser, times the change of volume (claims 21 and 23).
        """
        if self._recording:
            self.released.pop()
        weights = self._next("minimiser", lambda: self._source.minimise(objective, hidden))
        noise = gradient(objective, weights) + objective.problem.strength * weights
        size = float(noise @ noise) / (2.0 * hidden.scale) if hidden.gaussian else abs(noise).sum()
        self.log_likelihood += log_volume(objective, weights) - float(size) / hidden.scale
        return weights

    def _around(self, draw: str, values: Any, *public: Any) -> Any:
        """A draw around private values, of which the shape is public."""
        source = partial(getattr(self._source, draw), values, *public)
        return self._release((draw, values.shape, *public), source)

    def _release(self, kind: Any, draw: Callable[[], Any]) -> Any:
        drawn = self._next(kind, draw)
        self.has_released = True
        if self._recording:
            self.released.append(np.asarray(drawn, dtype=np.float64).reshape(-1))
        return drawn

    def _next(self, kind: Any, draw: Callable[[], Any]) -> Any:
        """Draw and keep, or return what was kept if it is of the same kind."""
        if self._recording:
            self._tape.append((kind, draw()))
        elif self._position >= len(self._tape) or self._tape[self._position][0] != kind:
            raise Impossible
        self._position += 1
        return self._tape[self._position - 1][1]


def log_chance(ladder: Ladder, step: int) -> float:
    """Logarithm of the chance that a step of the grid is drawn."""
    i = step - ladder.place - 1 if step > ladder.place else ladder.place - step
    widths, falls = stairs(ladder), float(ladder.pace.falls)
    ends, last = [*accumulate(widths)], len(widths)
    level = bisect_right(ends, i) if i < ends[-1] else last + (i - ends[-1]) // (PARTS * TOP)
    total = np.array(widths, np.float64) @ falls ** np.arange(last)
    total += PARTS * TOP * falls**last / (1.0 - falls)
    return level * math.log(falls) - math.log(2.0 * total)
