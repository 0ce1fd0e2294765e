"""Noise that watches: what a run released, and how likely that was on either of two datasets.

A run is recorded, then repeated on the neighbouring dataset with the recorded draws as its
releases. Each run adds up the log-chance of what was released; the difference of the two is the
privacy loss of that release, the best score there is for telling the datasets apart (Neyman and
Pearson 1933). Whatever else the two runs show must be the same; where it is not, the neighbour
could not have released this, and the loss is infinite.

Two draws are not released as they are. Noise in an objective stays hidden: the released minimiser
has the density of claim 21. Noise by a smooth sensitivity has a private scale (claim 15).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from dpeffects.auditing.minimisers import by_record
from dpeffects.privacy.guarantee import Noisy
from dpeffects.privacy.minimise import Fit
from dpeffects.privacy.noise import BoolArray, IntArray, NoiseSource, SeededNoise, flip_chance
from dpeffects.privacy.release import FloatArray, Releaser


class Impossible(Exception):
    """The neighbour could not have released what was recorded."""


class Watch(SeededNoise):
    """Draws from a source, keeps the draws, and repeats them on the neighbour.

    ``log_chance`` is that of the releases of the run at hand; ``seen`` lists them with their labels
    while a run is recorded.
    """

    void = ("watched by an audit",)
    releaser: type[Releaser]

    def __init__(self, source: NoiseSource) -> None:
        # the same for every run: a seed in it would tell the two datasets apart
        self.description = "watched by an audit"
        self._source = source
        self.record()

    def record(self) -> None:
        """Begin a run that draws."""
        self._tape: list[tuple[Any, Any]] = []
        self._drawn_orders: list[IntArray] = []
        self._position = -1
        self.seen: list[tuple[str, FloatArray]] = []
        self._start()

    def repeat(self) -> None:
        """Begin a run that repeats the draws of the last recorded one."""
        self._position = 0
        self._start()

    def _start(self) -> None:
        self.log_chance, self._last, self._orders_used = 0.0, 0.0, 0
        self._pending: tuple[Fit, Noisy] | None = None

    @property
    def recording(self) -> bool:
        """True while a run draws."""
        return self._position < 0

    @property
    def drew(self) -> bool:
        """True once something was drawn in this run."""
        return self._position > 0 or (self.recording and bool(self._tape))

    def finished(self) -> None:
        """Raise Impossible when the repeated run released less than the recorded one."""
        if not self.recording and self._position != len(self._tape):
            raise Impossible

    def laplace(self, values: IntArray, scale: float, sensitivity: int, epsilon: float) -> IntArray:
        """Discrete Laplace noise."""
        drawn = self._next(
            ("laplace", values.shape),
            lambda: self._source.laplace(values, scale, sensitivity, epsilon),
        )
        unit = math.log(math.tanh(0.5 / scale))
        self._add(values.size * unit - float(np.abs((drawn - values) / scale).sum()))
        return drawn

    def gaussian(self, values: IntArray, scale: float) -> IntArray:
        """Discrete Gaussian noise."""
        drawn = self._next(("gaussian", values.shape), lambda: self._source.gaussian(values, scale))
        squares = float((((drawn - values) / scale) ** 2).sum())
        self._add(-values.size * math.log(scale) - squares / 2.0)
        return drawn

    def flip(self, bits: BoolArray, epsilon: float) -> BoolArray:
        """Randomised response."""
        drawn = self._next(("flip", bits.shape, epsilon), lambda: self._source.flip(bits, epsilon))
        chance, flipped = flip_chance(epsilon), int((drawn != bits).sum())
        self._add(flipped * math.log(chance) + (bits.size - flipped) * math.log1p(-chance))
        return drawn

    def permutation(self, n: int) -> IntArray:
        """An order of the records, the same for both datasets: they differ at one place."""
        if self.recording:
            self._drawn_orders.append(self._source.permutation(n))
        if self._orders_used == len(self._drawn_orders):
            raise Impossible
        self._orders_used += 1
        return self._drawn_orders[self._orders_used - 1]

    def show(self, label: str, noisy: Noisy) -> Noisy:
        """Note a release; its price, sensitivity and scale are public."""
        if self._pending is not None:
            self._take_back()
            self._add(_log_density(*self._pending, noisy.value))
            self._pending = None
        self.fact(noisy.spend)
        self.see(label, noisy.value)
        return noisy

    def see(self, label: str, value: Any) -> None:
        """Keep a released value for scores of its own."""
        if self.recording:
            self.seen.append((label, np.asarray(value, dtype=np.float64).reshape(-1)))

    def fact(self, fact: Any) -> None:
        """Note something that is shown without noise: it must be the same on the neighbour."""
        self._next(("fact", fact), lambda: None)

    def smooth(self, noisy: Noisy, value: float, scale: float, unit: float) -> Noisy:
        """A release with noise of a private scale, in steps of ``unit``."""
        self._take_back()
        released = float(self._next("smooth", lambda: noisy.value)[0])
        self._add(-abs(released / unit - value) / scale - math.log(scale))
        return Noisy(np.array([released]), noisy.scale, noisy.spend)

    def minimise_perturbed(self, fit: Fit, hidden: Noisy) -> FloatArray:
        """A minimiser with noise in its objective; the next release is made of it."""
        self._take_back()
        if self.recording:
            self.seen.pop()
        self._pending = (fit, hidden)
        return np.asarray(self._next("minimiser", lambda: fit.solve(hidden.value)))

    def _next(self, kind: Any, draw: Callable[[], Any]) -> Any:
        if self.recording:
            drawn = draw()
            self._tape.append((kind, drawn))
            return drawn
        if self._position >= len(self._tape) or self._tape[self._position][0] != kind:
            raise Impossible
        self._position += 1
        return self._tape[self._position - 1][1]

    def _add(self, log_chance: float) -> None:
        self._last = log_chance
        self.log_chance += log_chance

    def _take_back(self) -> None:
        self.log_chance -= self._last
        self._last = 0.0


class Watching(Releaser):
    """A releaser that tells its noise, a `Watch`, what becomes of each draw."""

    _noise: Watch

    def release(self, label: str, *args: Any, **kwargs: Any) -> Noisy:
        """Release and note."""
        return self._noise.show(label, super().release(label, *args, **kwargs))

    def claimed_gaussian(self, label: str, *args: Any, **kwargs: Any) -> Noisy:
        """Release and note."""
        return self._noise.show(label, super().claimed_gaussian(label, *args, **kwargs))

    def flip(self, label: str, bits: BoolArray, **kwargs: Any) -> BoolArray:
        """Release and note."""
        flipped = super().flip(label, bits, **kwargs)
        self._noise.see(label, flipped)
        return flipped

    def smooth_laplace(
        self, label: str, private: Any, lattice: Any, smoothing: Any, *args: Any, **kwargs: Any
    ) -> Noisy:
        """Release and note; the private scale is in the log-chance only."""
        noisy = super().smooth_laplace(label, private, lattice, smoothing, *args, **kwargs)
        value, smooth, unit = private
        scale = min(max(smooth, lattice.least), lattice.most) / smoothing.rate
        return self._noise.show(label, self._noise.smooth(noisy, float(value), scale, unit))

    def minimise_perturbed(self, problem: Any, hidden: Noisy) -> FloatArray:
        """Minimise and note."""
        return self._noise.minimise_perturbed(problem, hidden)


Watch.releaser = Watching


def _log_density(fit: Fit, hidden: Noisy, weights: FloatArray) -> float:
    """Log-density of a minimiser, up to a constant (claims 21 and 23).

    It is that of the noise that would make these weights the minimiser, times the change of volume.
    """
    rows, factors, curvatures = by_record(fit, weights)
    strength = fit.problem.strength
    tilt = factors @ rows + strength * weights
    volume = (rows.T * curvatures) @ rows + strength * np.eye(weights.size)
    size = float(tilt @ tilt) / (2.0 * hidden.scale) if hidden.gaussian else np.abs(tilt).sum()
    return float(np.linalg.slogdet(volume)[1] - size / hidden.scale)
