"""Noise that is frozen: record one run, then replay its releases on neighbouring data.

On the second run every release returns what the first run drew, so that everything computed from
released values must come out the same, and the change of the true value under the noise is compared
with the declared sensitivity. That is what adaptive composition asks of every release.
"""

from __future__ import annotations

import numpy as np

from dpeffects.privacy.noise import SeededNoise


class FrozenNoise:
    description = "frozen"
    void = ("frozen",)

    def __init__(self, seed: int = 0) -> None:
        self._inner = SeededNoise(seed)
        self.tape: list[tuple[str, np.ndarray, np.ndarray, int]] = []
        self.changes: list[tuple[str, float, int]] = []
        self._position: int | None = None

    def rewind(self) -> FrozenNoise:
        self._position, self.changes = 0, []
        return self

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

    def finished(self) -> bool:
        return self._position == len(self.tape)
