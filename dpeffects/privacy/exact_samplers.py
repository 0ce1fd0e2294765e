"""Exact samplers for noise with the shape of what one record moves: matrices, and cubes.

No float takes part. A standard normal number is (Z + y) / FINE, Z a discrete Gaussian and y uniform
on [-1/2, 1/2), of which as many bits are drawn as the rounding of the matrix needs (claim 27).
"""

from __future__ import annotations

import decimal
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

FINE = 2**40
"""Steps in one unit of a normal number, before its further bits."""
_TOP = 2**63 - 1
"""Draws of the library that would be larger are this."""


@dataclass
class Normals:
    """Independent normal numbers, each in an interval that further bits narrow.

    ``integers(count, scale)`` draws discrete Gaussian numbers, ``bits(count, size)`` random bits.
    """

    count: int
    integers: Callable[[int, float], list[int]]
    bits: Callable[[int, int], list[int]]
    fine: int = FINE
    step: int = 64
    drawn: list[tuple[int, int, int]] = field(default_factory=list, init=False)
    rejected: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        while short := self.count - len(self.drawn):  # what is rejected is drawn anew
            self._propose(short)

    def _propose(self, count: int) -> None:
        fine, step = self.fine, self.step
        sure = 2**step - -(-(2**step) * 512 // fine) - 1  # v below it is below exp(-g): see _accept
        uniform = self.bits(2 * count, step)
        for z, y, v in zip(
            self.integers(count, float(fine + 1)), uniform[:count], uniform[count:], strict=True
        ):
            known = step
            if v >= sure or abs(z) > 16 * fine:
                while (accepted := self._accept(z, y, v, known)) is None:
                    more, again = self.bits(2, step)
                    y, v, known = y << step | more, v << step | again, known + step
                if not accepted:
                    self.rejected += 1
                    continue
            self.drawn.append((z, y, known))

    def _accept(self, z: int, y: int, v: int, known: int) -> bool | None:
        """v < exp(-g), or None if it is not known yet.

        2 g = (z + y)^2 / fine^2 - z^2 / (fine + 1)^2 + 1 / (4 (2 fine + 1)), never negative.
        """
        fine, middle = self.fine, abs(_middle(z, y, known))
        rest = Fraction(1, 4 * (2 * fine + 1)) - Fraction(z * z, (fine + 1) ** 2)
        low, high = (
            max(Fraction(u * u, (fine << known + 1) ** 2) + rest, Fraction(0)) / 2
            for u in (max(middle - 1, 0), middle + 1)
        )
        below, above = exp_bounds(low, high, 25 + known // 3)
        if Fraction(v + 1, 1 << known) <= below:
            return True
        return False if Fraction(v, 1 << known) >= above else None

    def to(self, least: int) -> tuple[list[int], int]:
        """Integers b and q: each number is within 1 / q of b / q; y has ``least`` bits, or more."""
        least = max(least, *(known for _, _, known in self.drawn))
        for i, (z, y, known) in enumerate(self.drawn):
            while known < least:
                y, known = y << self.step | self.bits(1, self.step)[0], known + self.step
            self.drawn[i] = z, y, known
        return [_middle(*each) for each in self.drawn], self.fine << least + 1


def _middle(z: int, y: int, known: int) -> int:
    """2^(known + 1) (z + y), within 1."""
    return (z << known + 1) + 2 * y + 1 - (1 << known)


def exp_bounds(low: Fraction, high: Fraction, digits: int) -> tuple[Fraction, Fraction]:
    """Rationals below exp(-high) and above exp(-low): `Decimal.exp` is rounded correctly."""
    with decimal.localcontext(decimal.Context(digits, Emin=-(10**9), Emax=10**9)) as context:
        context.rounding = decimal.ROUND_CEILING
        below = (-(decimal.Decimal(high.numerator) / high.denominator)).exp().next_minus()
        context.rounding = decimal.ROUND_FLOOR
        above = (-(decimal.Decimal(low.numerator) / low.denominator)).exp().next_plus()
    return Fraction(below), Fraction(above)


def wishart_difference(
    cells: int, d: int, scale: Fraction, normals: Callable[[int], Normals]
) -> Any:
    """Upper triangles of round(scale (GG' - HH')) by cell, G and H standard normal, d x (d + 1)."""
    columns = d + 1
    numbers, least = normals(2 * cells * d * columns), 64
    upper = np.triu_indices(d)
    while True:
        flat, q = numbers.to(least)
        b = np.array(flat, dtype=object).reshape(cells, 2, d, columns)
        middle = np.stack([g @ g.T - h @ h.T for g, h in b])
        size = np.abs(b).sum(axis=(1, 3))
        error = size[:, :, None] + size[:, None, :] + 2 * columns
        top, bottom = 2 * scale.numerator, scale.denominator * q * q
        low, high = ((top * (middle + e) + bottom) // (2 * bottom) for e in (-error, error))
        if (low == high).all():
            return low[:, *upper]
        least += numbers.step


def cube_noise(
    cells: int, p: int, laplace: Callable[[int], list[int]], below: Callable[[int], int]
) -> Any:
    """Whole numbers v by cell, P(v) proportional to exp(-max |v_j| / scale) (claim 28).

    ``laplace(count)`` draws discrete Laplace numbers of this scale, ``below(n)`` from 0 to n - 1.
    """

    def geometric(count: int) -> list[int]:
        drawn: list[int] = []
        while len(drawn) < count:
            drawn += [z for z in laplace(2 * count) if z >= 0]
        return [z if z < _TOP else z + geometric(1)[0] for z in drawn[:count]]

    def cube() -> list[int]:
        while True:
            r = sum(geometric(p + 1))
            if all(below(2 * (r + i)) <= 2 * r for i in range(1, p + 1)):
                return [below(2 * r + 1) - r for _ in range(p)]

    return np.array([cube() for _ in range(cells)], dtype=object)
