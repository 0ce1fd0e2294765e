"""Noise that is frozen: record one run, then replay its releases on neighbouring data.

On the second run every release returns what the first run drew, so that everything computed from
released values must come out the same, and the change of the true value under the noise is compared
with the declared sensitivity. That is what adaptive composition asks of every release.
"""

from __future__ import annotations

import numpy as np

from dpeffects.privacy import kernel, weighting
from dpeffects.privacy.noise import SeededNoise


class FrozenNoise:
    description = "frozen"
    void = ("frozen",)

    def __init__(self, seed: int = 0) -> None:
        self._inner = SeededNoise(seed)
        self.tape: list[tuple[str, np.ndarray, np.ndarray, int]] = []
        self.changes: list[tuple[str, float, int]] = []
        self._position: int | None = None
        self.solved: list[tuple[np.ndarray, np.ndarray]] = []
        self._solutions = 0
        self.orders: list[np.ndarray] = []
        self._ordered = 0

    def rewind(self) -> FrozenNoise:
        self._position, self._solutions, self._ordered, self.changes = 0, 0, 0, []
        return self

    def permutation(self, n):
        if self._position is None:
            self.orders.append(self._inner.permutation(n))
        self._ordered += 1
        return self.orders[-1 if self._position is None else self._ordered - 1]

    def laplace(self, values, scale, sensitivity, epsilon):
        assert sensitivity / scale <= epsilon
        if self._position is None:
            drawn = self._inner.laplace(values, scale, sensitivity, epsilon)
            self.tape.append(("laplace", values.copy(), drawn, sensitivity))
            return drawn
        return self._replay("laplace", values, sensitivity)

    def gaussian(self, values, scale):
        if self._position is None:
            drawn = self._inner.gaussian(values, scale)
            self.tape.append(("gaussian", values.copy(), drawn, scale))
            return drawn
        return self._replay("gaussian", values, scale)

    def flip(self, bits, epsilon):
        if self._position is None:
            drawn = self._inner.flip(bits, epsilon)
            self.tape.append(("flip", bits.copy(), drawn, 1))
            return drawn
        return self._replay("flip", bits, 1)

    def _replay(self, kind, values, sensitivity):
        was, before, drawn, declared = self.tape[self._position]
        self._position += 1
        assert (kind, values.shape, sensitivity) == (was, before.shape, declared)
        change = np.abs(values.astype(object) - before.astype(object)).sum() if values.size else 0
        self.changes.append((kind, float(change), declared))
        assert change <= declared, f"{kind}: moved by {change}, declared {declared}"
        return drawn

    def solution(self):
        """Whether this is the first run, and else what it solved at this point."""
        if self._position is None:
            return True, None, None
        self._solutions += 1
        return False, *self.solved[self._solutions - 1]

    def finished(self) -> bool:
        return self._position == len(self.tape)


def coupled(permutation, first, second):
    """The secret order of a second table that meets the records as `permutation` of the first did.

    The tables hold corresponding records (all equal, but for one) in the orders ``first`` and
    ``second``: row k of the first table is record ``first[k]``. For each permutation of the first
    table there is one such of the second, so both are equally likely.
    """
    return np.argsort(second)[np.asarray(first)[permutation]]


class _FrozenProblem:
    """Noise in an objective is not added to a value: it is what makes the weights a minimum.

    So on the second run the weights are those of the first, and what moves is the noise that they
    would take, which is the sum of the gradients at them.
    """

    def __init__(self, problem, noise: FrozenNoise) -> None:
        self._problem, self._noise = problem, noise

    def __getattr__(self, name):
        return getattr(self._problem, name)

    def solve(self, hidden):
        recording, weights, before = self._noise.solution()
        if recording:
            weights = self._problem.solve(hidden)
            self._noise.solved.append((weights, self._problem.gradient(weights)))
            return weights
        change = self._problem.gradient(weights) - before
        l1, l2 = self._problem.reach
        assert np.abs(change).sum() <= 2.0 * l1
        assert np.linalg.norm(change) <= 2.0 * l2
        return weights


_minimise = weighting.minimise


def _frozen_minimise(releaser, label, problem, share, noise="auto"):
    if isinstance(releaser._noise, FrozenNoise):
        problem = _FrozenProblem(problem, releaser._noise)
    return _minimise(releaser, label, problem, share, noise)


weighting.minimise = kernel.minimise = _frozen_minimise
