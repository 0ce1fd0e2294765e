"""Noise that repeats itself: a run is reproducible, therefore not private, and says so."""

from __future__ import annotations

import math

import numpy as np

from dpeffects.arrays import BoolArray, IntArray
from dpeffects.errors import OptionError, quoted
from dpeffects.privacy.noise import (
    NoiseSource,
    SecureNoise,
    checked,
    fine_enough,
    flip_chance,
    triangles,
)


class SeededNoise(NoiseSource):
    """Reproducible noise for teaching, tests and simulations. It protects nobody."""

    void = ("seeded",)

    def __init__(self, seed: int) -> None:
        if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
            raise OptionError(f"seed must be a non-negative integer, got {quoted(seed)}")
        self.description = f"seeded generator (seed {seed})"
        self._generator = np.random.default_rng(int(seed))
        self._orders = self._generator.spawn(1)[0]  # so that orders do not shift other draws

    def laplace(self, values: IntArray, scale: float, sensitivity: int, epsilon: float) -> IntArray:
        """Discrete Laplace noise, as the difference of two geometric variables."""
        values = checked(values)
        chance = -math.expm1(-1.0 / scale)
        up, down = self._generator.geometric(chance, size=(2, *values.shape))
        return values + (up - down)

    def gaussian(self, values: IntArray, scale: float) -> IntArray:
        """Gaussian noise, rounded to the grid."""
        noise = self._generator.normal(0.0, fine_enough(scale), values.shape)
        return checked(values) + np.rint(noise).astype(np.int64)

    def matrices(self, values: IntArray, scale: float, top: int) -> IntArray:
        """The difference of two Wisharts in floats, rounded to the grid."""
        cells, d = triangles(values)
        g = self._generator.normal(size=(cells, 2, d, d + 1))
        products = np.matmul(g, g.swapaxes(2, 3))[..., *np.triu_indices(d)]
        noise = np.rint(scale * (products[:, 0] - products[:, 1])).astype(np.int64)
        return np.clip(checked(values) + noise, -top, top)

    def cubes(self, values: IntArray, scale: float, width: int, epsilon: float) -> IntArray:
        """Noise of the shape of a cube in floats, rounded to the grid."""
        cells, p = values.shape
        radius = self._generator.gamma(p + 1, scale, (cells, 1))
        noise = radius * self._generator.uniform(-1.0, 1.0, (cells, p))
        return checked(values) + np.rint(noise).astype(np.int64)

    def flip(self, bits: BoolArray, epsilon: float) -> BoolArray:
        """Randomised response from the seeded generator."""
        return bits ^ (self._generator.random(bits.shape) < flip_chance(epsilon))

    def respond(self, codes: IntArray, levels: int, epsilon: float) -> IntArray:
        """Generalised randomised response from the seeded generator."""
        moved = self._generator.random(codes.shape) < flip_chance(epsilon, levels)
        return (codes + moved * self._generator.integers(1, levels, codes.shape)) % levels

    def below(self, n: int) -> int:
        """A uniform number, but for one part in 2^64."""
        return int.from_bytes(self._generator.bytes(n.bit_length() // 8 + 9), "little") % n

    def permutation(self, n: int) -> IntArray:
        """An order from a seeded generator of its own."""
        return self._orders.permutation(n)


def noise_source(seed: int | NoiseSource | None) -> NoiseSource:
    """Return secure noise, or noise that protects nobody: from a seed, or an audit's own."""
    if isinstance(seed, NoiseSource) and seed.void:
        return seed
    return SecureNoise() if seed is None else SeededNoise(seed)  # type: ignore[arg-type]
