"""The only randomness that releases have.

Every release is an array of integers on a public grid, so few samplers suffice: discrete Laplace
and discrete Gaussian noise on integers, randomised response on bits and levels, and what `shaped`
makes of the first two for matrices and cubes. ``SecureNoise`` draws them with OpenDP (exact
samplers, system entropy, no floating-point holes), and by itself responses of several levels and
the secret order in which a call works on its records. Noise that repeats itself is in
`dpeffects.seeded`.
"""

from __future__ import annotations

import math
import os
import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any, Protocol, runtime_checkable

import numpy as np

from dpeffects.arrays import BoolArray, FloatArray, IntArray
from dpeffects.errors import PrivacyError
from dpeffects.privacy.budget import Share, round_up
from dpeffects.privacy.charges import NoisyValue
from dpeffects.privacy.exact_samplers import Normals, cube_noise, wishart_difference
from dpeffects.privacy.ladder import Ladder
from dpeffects.roots import root

_SLACK = Fraction(1, 2**44)
"""Relative widening of a scale, so that rounding in OpenDP's own map cannot exceed epsilon."""
_BLOCK = 50_000
"""Vectors longer than this are drawn in blocks by several threads."""
_KEYS = 2**20
"""Keys of an order that are asked for at a time."""
LEAST_DELTA = 1e-90
"""With less, which only a huge epsilon leaves, Laplace noise is used."""
LEAST_SIGMA = 2.0**20
"""Discrete Gaussian noise is drawn on a grid at least this fine against its scale (claim 4)."""
MOST_ENTRIES = 50_000
"""Numbers with Gaussian noise that one call may release: each needs a little slack (claim 4)."""
_MOST_EPSILON = 700.0
"""exp() of more than this overflows; more epsilon changes nothing for a single bit."""


class SmoothValue(Protocol):
    """A private value whose noise has a private scale (`smooth`)."""

    @property
    def rate(self) -> float:
        """The scale of the noise is the sensitivity divided by this."""

    @property
    def steps(self) -> int:
        """Steps of 1 in which the Laplace variable is drawn."""

    def affordable(self, price: Share) -> bool:
        """True when its noise is private at this price."""

    def with_noise(self, draw: int) -> float:
        """The value with a Laplace variable of scale 1, drawn in ``steps``, on a public grid."""


class Objective(Protocol):
    """Something to minimise with noise inside (`minimise`)."""

    def solve(self, noise: FloatArray | None = None) -> FloatArray:
        """Minimise the objective plus noise'w."""


@runtime_checkable
class NoiseSource(Protocol):
    """Everything that is random in a call; an audit wraps one to record what is drawn.

    ``description`` says where the noise comes from, ``void`` why it protects nobody (empty when it
    does). The last three methods are the mechanisms whose release is not a value plus noise.
    """

    description: str
    void: tuple[str, ...]

    def laplace(self, values: IntArray, scale: float, sensitivity: int, epsilon: float) -> IntArray:
        """Add independent discrete Laplace noise to integers."""

    def gaussian(self, values: IntArray, scale: float) -> IntArray:
        """Add independent discrete Gaussian noise to integers."""

    def matrices(self, values: IntArray, scale: float, top: int) -> IntArray:
        """Add scale (GG' - HH'), rounded, to each row, an upper triangle; clip to +-top."""

    def cubes(self, values: IntArray, scale: float, width: int, epsilon: float) -> IntArray:
        """Add to each row v noise with P(v) proportional to exp(-max |v_j| / scale)."""

    def flip(self, bits: BoolArray, epsilon: float) -> BoolArray:
        """Flip each bit independently with probability 1 / (1 + exp(epsilon))."""

    def respond(self, codes: IntArray, levels: int, epsilon: float) -> IntArray:
        """Replace each code below ``levels`` by another one with chance `flip_chance`."""

    def permutation(self, n: int) -> IntArray:
        """Return a uniform order of n records, which nobody gets to see."""

    def smooth_laplace(self, private: SmoothValue, epsilon: float) -> float:
        """Add noise by a private smooth sensitivity, and round to the public grid (claim 16)."""
        draw = self.laplace(np.zeros(1, dtype=np.int64), float(private.steps), 1, epsilon)
        return private.with_noise(int(draw[0]))

    def below(self, n: int) -> int:
        """Return a uniform whole number from 0 to n - 1."""
        raise TypeError("this noise has no uniform numbers")

    def along(self, ladder: Ladder) -> int:
        """Draw a step of a ladder's grid (claim 34)."""
        return ladder.draw(self.below)

    def minimise(self, objective: Objective, hidden: NoisyValue) -> FloatArray:
        """Minimise with the noise drawn last in the objective (claim 21)."""
        return objective.solve(hidden.value)


@lru_cache(maxsize=1024)
def laplace_scale(sensitivity: int, epsilon: float) -> float:
    """Return a scale with sensitivity / scale <= epsilon, exactly (claim 2)."""
    return round_up(Fraction(sensitivity) / Fraction(epsilon) * (1 + _SLACK))


def matrix_scale(
    cells: int, d: int, squared_radius: int, records: int, epsilon: float
) -> tuple[float, int]:
    """Return a scale at which noise for matrices is private, and where they are cut (claim 27).

    A huge epsilon is not used up: the sampler is exact for scales that are not tiny.
    """
    most = (2.0**42 / (cells * d**1.5) - 2.0**20) / max(records, 1)
    if not (0 < squared_radius * records <= 2**57 and d <= 500 and cells <= 1000 and most > 0):
        raise PrivacyError("too many or too large matrices for exact noise; nothing drawn")
    scale = laplace_scale(squared_radius, min(epsilon, most, squared_radius))
    if not 1 <= scale <= 2**41:
        raise PrivacyError("the grid is too fine, or too coarse, for exact noise; nothing drawn")
    return scale, records * squared_radius + 2**20 * math.ceil(scale)


@lru_cache(maxsize=1024)
def gaussian_scale(sensitivity: float, epsilon: float, delta: float, size: int) -> float:
    """Return the standard deviation of the analytic Gaussian mechanism (claim 4).

    ``sensitivity`` is in L2; ``size`` is the number of entries, for the slack that the grid needs.
    It is never less than sensitivity / epsilon, which only a huge delta would allow, so that a
    ledger of concentrated privacy has reserved enough.
    """
    tight = epsilon - 2e-10 * size * max(1.0, epsilon / 300.0)
    if not (1e-100 < delta < 1.0 and tight > 0.0 and size <= 100_000):
        raise PrivacyError("Gaussian noise needs 0 < delta < 1 and an epsilon that is not tiny")

    def excess(log_sigma: float) -> float:
        ratio = math.exp(log_sigma)  # sigma / sensitivity
        one, other = 0.5 / ratio, tight * ratio
        gap = math.exp(_log_phi(one - other)) - math.exp(tight + _log_phi(-one - other))
        return gap - min(delta, 0.999) * (1.0 - 1e-5)

    ratio = math.exp(root(excess, math.log(1e-6), math.log(1e12), xtol=1e-13))
    return sensitivity * max(ratio, 1.0 / epsilon) * (1.0 + 1e-9)


def _log_phi(x: float) -> float:
    """Return the logarithm of the normal distribution function, to 1e-13 of the latter.

    scipy has it too, and takes half a second to load in every first call. Where the function is no
    number any more, by its asymptotic series, whose error is less than the first term left out.
    """
    if x > -35.0:
        return math.log(0.5 * math.erfc(-x / math.sqrt(2.0)))
    z = 1.0 / (x * x)
    series = 1.0 - z * (1.0 - 3.0 * z * (1.0 - 5.0 * z * (1.0 - 7.0 * z * (1.0 - 9.0 * z))))
    return -0.5 * x * x - math.log(-x * math.sqrt(2.0 * math.pi)) + math.log(series)


def flip_chance(epsilon: float, levels: int = 2) -> float:
    """Return the chance q that one of k levels turns to another one (claim 3).

    log((1 - q) (k - 1) / q) <= epsilon; where there are two levels it is the chance of a flip.
    """
    others = levels - 1
    exact = others / (others + math.exp(min(epsilon, _MOST_EPSILON)))
    return min(others / levels, exact * (1.0 + 1e-12))


class SecureNoise(NoiseSource):
    """Noise from OpenDP: exact integer samplers and system entropy."""

    description = "OpenDP discrete noise, system entropy"
    void: tuple[str, ...] = ()

    def laplace(self, values: IntArray, scale: float, sensitivity: int, epsilon: float) -> IntArray:
        """Add discrete Laplace noise; OpenDP's own privacy map must agree with the price."""
        _, metrics, measurements = _opendp()

        def mechanism(domain: Any) -> Any:
            made = measurements.make_laplace(domain, metrics.l1_distance(T="i64"), scale=scale)
            if not made.map(sensitivity) <= epsilon:
                raise PrivacyError("the noise library charges more than the ledger; nothing drawn")
            return made

        return _drawn(mechanism, values)

    def gaussian(self, values: IntArray, scale: float) -> IntArray:
        """Add discrete Gaussian noise."""
        _, metrics, measurements = _opendp()
        l2, scale = metrics.l2_distance(T=float), fine_enough(scale)
        return _drawn(lambda domain: measurements.make_gaussian(domain, l2, scale=scale), values)

    def matrices(self, values: IntArray, scale: float, top: int) -> IntArray:
        """Add a difference of Wisharts, rounded exactly."""

        def integers(count: int, fine: float) -> list[int]:
            return self.gaussian(np.zeros(count, np.int64), fine).tolist()

        normals = partial(Normals, integers=integers, bits=_random_bits)
        noise = wishart_difference(*triangles(values), Fraction(scale), normals)
        return np.clip(checked(values) + noise, -top, top).astype(np.int64)

    def cubes(self, values: IntArray, scale: float, width: int, epsilon: float) -> IntArray:
        """Add noise of the shape of a cube, exactly; OpenDP must agree with the price."""

        def laplace(count: int) -> list[int]:
            return self.laplace(np.zeros(count, np.int64), scale, width, epsilon).tolist()

        cells, columns = values.shape
        noise = cube_noise(cells, columns, laplace, secrets.randbelow)
        return np.clip(checked(values) + noise, -(2**62), 2**62).astype(np.int64)

    def below(self, n: int) -> int:
        """A uniform number from system entropy."""
        return secrets.randbelow(n)

    def flip(self, bits: BoolArray, epsilon: float) -> BoolArray:
        """Randomised response, by OpenDP's bit-vector mechanism (it flips with chance f / 2)."""
        domains, metrics, measurements = _opendp()
        mechanism = measurements.make_randomized_response_bitvec(
            domains.bitvector_domain(max_weight=1),
            metrics.discrete_distance(),
            f=2.0 * flip_chance(epsilon),
        )
        packed = mechanism(np.packbits(bits).tobytes())
        return np.unpackbits(np.frombuffer(packed, np.uint8), count=bits.size).astype(np.bool_)

    def respond(self, codes: IntArray, levels: int, epsilon: float) -> IntArray:
        """Generalised randomised response: a code goes round by a uniform number of places, or not.

        The chance is rounded up to a multiple of 2^-64.
        """
        least = math.ceil(Fraction(flip_chance(epsilon, levels)) * 2**64)
        drawn = np.frombuffer(os.urandom(8 * codes.size), dtype=np.uint64)
        out = codes.copy()
        for i in np.flatnonzero(drawn < np.uint64(least)):
            out[i] = (codes[i] + 1 + secrets.randbelow(levels - 1)) % levels
        return out

    def permutation(self, n: int) -> IntArray:
        """The order of independent random keys, and likewise among those whose keys are equal.

        A key has its record's number in its last bits, so that sorting keys sorts the records.
        """
        last = np.uint64(n.bit_length())
        keys = np.arange(n, dtype=np.uint64)
        for start in range(0, n, _KEYS):
            part = keys[start : start + _KEYS]
            part |= np.frombuffer(os.urandom(8 * part.size), dtype=np.uint64) >> last << last
        keys.sort()
        order = (keys & ((np.uint64(1) << last) - np.uint64(1))).astype(np.int64)
        keys >>= last
        equal = np.concatenate([[False], keys[1:] == keys[:-1]])[:n]
        for first in np.flatnonzero(equal[1:] & ~equal[:-1]):
            same = slice(int(first), int(np.searchsorted(keys, keys[first], side="right")))
            order[same] = order[same][self.permutation(same.stop - same.start)]
        return order


def _drawn(mechanism: Callable[[Any], Any], values: IntArray) -> IntArray:
    """Values with the noise of a library's mechanism, long vectors in blocks by several threads."""
    domains, _, _ = _opendp()

    def draw(part: IntArray) -> IntArray:
        domain = domains.vector_domain(domains.atom_domain(T="i64"), size=int(part.size))
        return np.asarray(mechanism(domain)(part), dtype=np.int64)

    values = checked(values)
    if values.size <= _BLOCK:
        return draw(values)
    blocks = np.array_split(values, math.ceil(values.size / _BLOCK))
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        return np.concatenate(list(pool.map(draw, blocks)))


def checked(values: IntArray) -> IntArray:
    """Whole numbers that noise of any size can be added to."""
    values = np.ascontiguousarray(values)
    fits = values.dtype == np.int64 and values.min(initial=0) >= -(2**60)
    if not (fits and values.max(initial=0) <= 2**60):
        raise PrivacyError("releases must be 64-bit integers below 2^60; nothing drawn")
    return values


def nonce() -> str:
    """Return 128 random bits as text, which nobody has drawn before: for entries of ledgers."""
    return secrets.token_hex(16)


def _random_bits(count: int, size: int) -> list[int]:
    """Whole numbers of ``size`` random bits, a multiple of 8."""
    raw, step = os.urandom(count * size // 8), size // 8
    return [int.from_bytes(raw[i : i + step], "little") for i in range(0, len(raw), step)]


def triangles(values: IntArray) -> tuple[int, int]:
    """How many upper triangles there are, and of how many columns."""
    return len(values), (math.isqrt(8 * values.shape[1] + 1) - 1) // 2


def fine_enough(scale: float) -> float:
    """A scale that is many steps of the grid (claim 4)."""
    if not scale >= LEAST_SIGMA:
        raise PrivacyError("the grid is too coarse for Gaussian noise; nothing drawn")
    return scale


def _opendp() -> tuple[Any, Any, Any]:
    """Return OpenDP's domains, metrics and measurements.

    Its prelude has them too, but loads scikit-learn and polars as well where they are installed,
    which takes seconds.
    """
    from opendp import domains, measurements, metrics
    from opendp.mod import enable_features

    enable_features("contrib")
    return domains, metrics, measurements
