"""A budget and its named shares. All arithmetic is exact; shares round down."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from numbers import Real
from typing import Any, NamedTuple

from dpeffects.errors import BudgetError, quoted, refusal

LEAST = Fraction(1, 2**24)
"""Smallest epsilon of a share: less gives noise that drowns everything and grids that overflow."""


def round_down(value: Fraction) -> float:
    """Return the largest float that is not above ``value``.

    Examples
    --------
    >>> from fractions import Fraction
    >>> Fraction(round_down(Fraction(1, 10))) <= Fraction(1, 10)
    True
    """
    nearest = float(value)
    return nearest if Fraction(nearest) <= value else math.nextafter(nearest, -math.inf)


def round_up(value: Fraction) -> float:
    """Return the smallest float that is not below ``value``."""
    nearest = float(value)
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, math.inf)


class Share(NamedTuple):
    """A named part of a budget."""

    epsilon: float
    delta: float = 0.0

    def times(self, part: float | Fraction) -> Share:
        """A part of it, rounded down."""
        return Share(*(round_down(Fraction(x) * Fraction(part)) for x in self))


@lru_cache(maxsize=1024)
def as_written(value: float) -> Fraction:
    """Return the number a user wrote: 0.1 means one tenth, not the nearest binary fraction.

    Examples
    --------
    >>> as_written(0.1) * 3 == as_written(0.3)
    True
    """
    return Fraction(repr(float(value)))


def written_below(value: Fraction) -> float:
    """Return a float that is, as it is written, not above ``value``, and next to it."""
    nearest = float(value)
    return nearest if as_written(nearest) <= value else math.nextafter(nearest, -math.inf)


@dataclass(frozen=True)
class Budget:
    """Total epsilon and delta of one call.

    Examples
    --------
    >>> Budget(1.0).shares({"estimate": 3, "variance": 1})["estimate"]
    Share(epsilon=0.75, delta=0.0)
    """

    epsilon: float
    delta: float = 0.0

    def __post_init__(self) -> None:
        _check("epsilon", self.epsilon)
        _check("delta", self.delta)
        if not 0 < self.epsilon <= 1e9:
            raise BudgetError(refusal("epsilon_positive_at", epsilon=self.epsilon))
        if self.epsilon < LEAST:
            raise BudgetError(refusal("epsilon_too_small", epsilon=self.epsilon))
        if not 0 <= self.delta < 1:
            raise BudgetError(refusal("delta_range", delta=self.delta))
        object.__setattr__(self, "epsilon", float(self.epsilon))
        object.__setattr__(self, "delta", float(self.delta))

    @property
    def exact(self) -> tuple[Fraction, Fraction]:
        """Epsilon and delta as they were written."""
        return as_written(self.epsilon), as_written(self.delta)

    def shares(self, proportions: Mapping[str, float]) -> dict[str, Share]:
        """Divide epsilon and delta by proportions, rounding each share down (claim 1)."""
        total = sum(Fraction(p) for p in proportions.values())
        if total <= 0:
            raise BudgetError("the proportions of budget_split sum to zero")
        epsilon, delta = self.exact
        parts = {name: Fraction(p) / total for name, p in proportions.items()}
        for name, part in parts.items():
            if epsilon * part < LEAST:
                raise BudgetError(refusal("share_epsilon_too", name=name, epsilon=self.epsilon))
        return {
            name: Share(round_down(epsilon * part), round_down(delta * part))
            for name, part in parts.items()
        }


def _check(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, Real) or value != value:
        example = "1" if name == "epsilon" else "1e-6"
        raise BudgetError(f"{name} must be a number, such as {name}={example}, got {quoted(value)}")
