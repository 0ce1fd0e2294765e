"""The only randomness of the package.

Every release is an array of integers on a public grid, so two samplers suffice: discrete Laplace
noise on integers, and randomised response on bits. ``SecureNoise`` draws both with OpenDP (exact
samplers, system entropy, no floating-point holes). ``SeededNoise`` repeats itself, which makes a
run reproducible and therefore not private; it says so.
"""

from __future__ import annotations

import math
import os
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from dpeffects.errors import OptionError, PrivacyError
from dpeffects.privacy.budget import round_up

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

_SLACK = Fraction(1, 2**44)
"""Relative widening of a scale, so that rounding in OpenDP's own map cannot exceed epsilon."""
_BLOCK = 50_000
"""Vectors longer than this are drawn in blocks by several threads."""
_MOST_EPSILON = 700.0
"""exp() of more than this overflows; more epsilon changes nothing for a single bit."""


class NoiseSource(Protocol):
    """What the curator needs to draw noise."""

    @property
    def description(self) -> str:
        """Where the noise comes from, in words."""

    @property
    def void(self) -> tuple[str, ...]:
        """Reasons why this noise protects nobody; empty when it does."""

    def laplace(self, values: IntArray, scale: float, sensitivity: int, epsilon: float) -> IntArray:
        """Add independent discrete Laplace noise to integers."""

    def flip(self, bits: BoolArray, epsilon: float) -> BoolArray:
        """Flip each bit independently with probability 1 / (1 + exp(epsilon))."""


def laplace_scale(sensitivity: int, epsilon: float) -> float:
    """Return a scale with sensitivity / scale <= epsilon, exactly (claim 2)."""
    return round_up(Fraction(sensitivity) / Fraction(epsilon) * (1 + _SLACK))


def flip_chance(epsilon: float) -> float:
    """Return the chance q of a flip with log((1 - q) / q) <= epsilon (claim 3)."""
    exact = 1.0 / (1.0 + math.exp(min(epsilon, _MOST_EPSILON)))
    return min(0.5, exact * (1.0 + 1e-12))


class SecureNoise:
    """Noise from OpenDP: exact integer samplers and system entropy."""

    description = "OpenDP discrete noise, system entropy"
    void: tuple[str, ...] = ()

    def laplace(self, values: IntArray, scale: float, sensitivity: int, epsilon: float) -> IntArray:
        """Add discrete Laplace noise; OpenDP's own privacy map must agree with the price."""
        dp = _opendp()
        values = _checked(values)

        def draw(part: IntArray) -> IntArray:
            domain = dp.vector_domain(dp.atom_domain(T="i64"), size=int(part.size))
            mechanism = dp.m.make_laplace(domain, dp.l1_distance(T="i64"), scale=scale)
            if not mechanism.map(sensitivity) <= epsilon:
                raise PrivacyError("the noise library charges more than the ledger; nothing drawn")
            return np.asarray(mechanism(part), dtype=np.int64)

        if values.size <= _BLOCK:
            return draw(values)
        blocks = np.array_split(values, math.ceil(values.size / _BLOCK))
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            return np.concatenate(list(pool.map(draw, blocks)))

    def flip(self, bits: BoolArray, epsilon: float) -> BoolArray:
        """Randomised response, by OpenDP's bit-vector mechanism (it flips with chance f / 2)."""
        dp = _opendp()
        mechanism = dp.m.make_randomized_response_bitvec(
            dp.bitvector_domain(max_weight=1), dp.discrete_distance(), f=2.0 * flip_chance(epsilon)
        )
        packed = mechanism(np.packbits(bits).tobytes())
        return np.unpackbits(np.frombuffer(packed, np.uint8), count=bits.size).astype(np.bool_)


class SeededNoise:
    """Reproducible noise for teaching, tests and simulations. It protects nobody."""

    void = ("seeded",)

    def __init__(self, seed: int) -> None:
        if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
            raise OptionError(f"seed must be a non-negative integer, got {seed!r}")
        self.description = f"seeded generator (seed {seed})"
        self._generator = np.random.default_rng(int(seed))

    def laplace(self, values: IntArray, scale: float, sensitivity: int, epsilon: float) -> IntArray:
        """Discrete Laplace noise, as the difference of two geometric variables."""
        values = _checked(values)
        chance = -math.expm1(-1.0 / scale)
        up, down = self._generator.geometric(chance, size=(2, *values.shape))
        return values + (up - down)

    def flip(self, bits: BoolArray, epsilon: float) -> BoolArray:
        """Randomised response from the seeded generator."""
        return bits ^ (self._generator.random(bits.shape) < flip_chance(epsilon))


def noise_source(seed: int | None) -> NoiseSource:
    """Return secure noise, or seeded noise when a seed is given."""
    return SecureNoise() if seed is None else SeededNoise(seed)


def _checked(values: IntArray) -> IntArray:
    values = np.ascontiguousarray(values)
    if values.dtype != np.int64 or (values.size and np.abs(values).max() > 2**60):
        raise PrivacyError("releases must be 64-bit integers below 2^60; nothing drawn")
    return values


def _opendp() -> Any:
    import opendp.prelude as dp

    dp.enable_features("contrib")
    return dp
