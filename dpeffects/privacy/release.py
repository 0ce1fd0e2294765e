"""The one place where noise meets a value: charge the ledger, then draw."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from functools import cached_property

import numpy as np

from dpeffects.errors import PrivacyError
from dpeffects.privacy.budget import Share
from dpeffects.privacy.guarantee import Noisy, Spend
from dpeffects.privacy.ledger import Ledger
from dpeffects.privacy.noise import (
    LEAST_DELTA,
    LEAST_SIGMA,
    NoiseSource,
    Objective,
    flip_chance,
    gaussian_scale,
    laplace_scale,
)
from dpeffects.privacy.rows import (
    BoolArray,
    ByRecord,
    FloatArray,
    IntArray,
    Records,
    Rows,
    Source,
)
from dpeffects.privacy.smooth import Lattice, Smoothing

__all__ = ["BoolArray", "FloatArray", "Holder", "IntArray", "Objective", "Releaser", "Rows"]


class Releaser:
    """Charges the ledger, then draws: the one place where noise meets a value.

    ``alone`` is False where the charges also cover draws of other rows, which ``covering`` then
    names without a price (claim 26).
    """

    def __init__(
        self,
        shares: Mapping[str, Share],
        ledger: Ledger,
        noise: NoiseSource,
        alone: bool = True,
        covering: Ledger | None = None,
    ) -> None:
        self._shares, self._ledger, self._noise = dict(shares), ledger, noise
        self._alone, self._covering = alone, covering

    def has(self, share: str) -> bool:
        """True when the budget has a share of this name."""
        return share in self._shares

    def share(self, name: str) -> Share:
        """Return the epsilon and delta of a named share."""
        return self._shares[name]

    def release(
        self,
        label: str,
        values: IntArray,
        l1: int,
        unit: float,
        *,
        share: str,
        claim: int,
        l2: float | None = None,
        parts: int = 1,
        price: Share | None = None,
        noise: str = "auto",
        alone: bool = True,
    ) -> Noisy:
        """Release integers as multiples of ``unit``, with L1 sensitivity ``l1``.

        With an L2 sensitivity ``l2`` and a delta, Gaussian noise is used where its variance is
        smaller; that choice depends on public numbers only, and ``noise`` ("laplace",
        "gaussian") makes it beforehand. ``parts`` divides the share evenly among that many calls;
        ``price`` is the part of the share that this call pays, where parts are uneven. ``alone``
        is False where the draw is one step of a mechanism whose price is the sum of its steps.
        """
        price = price or self._shares[share].split(parts)
        scale = laplace_scale(l1, price.epsilon)
        if l2 is not None and price.delta > LEAST_DELTA and noise != "laplace":
            sigma = gaussian_scale(l2, price.epsilon, price.delta, values.size)
            if sigma**2 < 2.0 * scale**2 or noise == "gaussian":
                spend = Spend(
                    label, share, *price, "Gaussian", (l2 * unit,), (sigma * unit,), claim, alone
                )
                return self._gaussian(spend, values, sigma, unit)
        sensitivity, spread = (l1 * unit,), (scale * unit,)
        spend = Spend(
            label, share, price.epsilon, 0.0, "Laplace", sensitivity, spread, claim, alone
        )
        self._charge(spend)
        drawn = self._noise.laplace(values.reshape(-1), scale, l1, price.epsilon)
        return Noisy((drawn.reshape(values.shape) * unit).astype(np.float64), scale * unit, spend)

    def claimed_gaussian(
        self,
        label: str,
        values: IntArray,
        sigma: float,
        unit: float,
        *,
        share: str,
        claim: int,
    ) -> Noisy:
        """Release integers with Gaussian noise of a scale that no sensitivity of ours proves."""
        price = self._shares[share]
        spend = Spend(label, share, *price, "Gaussian, claimed", (), (sigma * unit,), claim)
        self._charge(spend)
        drawn = self._noise.gaussian(values.reshape(-1), sigma)
        return Noisy((drawn * unit).astype(np.float64), sigma * unit, spend, gaussian=True)

    def pay(self, label: str, price: Share, *, share: str, claim: int) -> None:
        """Charge what a mechanism costs beyond its noise; nothing is drawn."""
        self._charge(Spend(label, share, *price, "no draw", (), (), claim))

    def by_library(self, label: str, mechanism: str, *, share: str, claim: int) -> Share:
        """Charge a share for what a library is going to draw, and return it."""
        price = self._shares[share]
        self._charge(Spend(label, share, *price, mechanism, (), (), claim))
        return price

    def seed(self) -> int | None:
        """Return a seed for a library where this call repeats itself; None where it is private."""
        if not self._noise.void:
            return None
        drawn = self._noise.laplace(np.zeros(1, dtype=np.int64), 2.0**40, 1, 1.0)
        return abs(int(drawn[0])) % 2**31

    def permutation(self, n: int) -> IntArray:
        """Draw a secret order of n records; it is no release, and costs nothing."""
        return self._noise.permutation(n)

    def elsewhere(self, shares: Mapping[str, Share], ledger: Ledger | None = None) -> Releaser:
        """Return a releaser of a part of the rows, by default on the same ledger (claim 26).

        On a ledger of its own it is covered by the charges made here, and named beside them.
        """
        covering = None if ledger is None else self._ledger
        return type(self)(shares, ledger or self._ledger, self._noise, False, covering)

    def _charge(self, spend: Spend) -> None:
        self._ledger.charge(spend if self._alone else replace(spend, alone=False))
        if self._covering is not None:
            self._covering.cover(spend)

    def solved(self, objective: Objective, hidden: Noisy) -> FloatArray:
        """Minimise with hidden noise in the objective: what comes out is private still."""
        return self._noise.minimise(objective, hidden)

    def paid(self) -> tuple[Fraction, Fraction]:
        """Exact totals of epsilon and delta charged so far."""
        return self._ledger.spent

    def _gaussian(self, spend: Spend, values: IntArray, sigma: float, unit: float) -> Noisy:
        finer = 2 ** max(0, math.ceil(math.log2(LEAST_SIGMA / sigma)))
        if int(np.abs(values).max(initial=0)) * finer > 2**60:
            raise PrivacyError("a value is too large for its grid; nothing drawn")
        self._charge(spend)
        drawn = self._noise.gaussian(values.reshape(-1) * finer, sigma * finer)
        value = (drawn.reshape(values.shape) * (unit / finer)).astype(np.float64)
        return Noisy(value, sigma * unit, spend, gaussian=True)

    def smooth_laplace(
        self,
        label: str,
        private: tuple[int, float, float],
        lattice: Lattice,
        smoothing: Smoothing,
        shown: float,
        *,
        share: str,
        claim: int,
    ) -> Noisy:
        """Release a value with noise by its smooth sensitivity (claims 15, 16).

        ``private`` is the value, its smooth sensitivity (both in steps) and the public size of a
        step; ``shown``, a released value, stands for the private sensitivity wherever it is shown.
        """
        price = self._shares[share]
        if not smoothing.certified(lattice.usable(price)):
            raise PrivacyError("the smooth sensitivity needs more than its share; nothing drawn")
        value, smooth, unit = private
        spread = shown / smoothing.rate
        spend = Spend(label, share, *price, "smooth Laplace", (shown,), (spread,), claim)
        self._charge(spend)
        rate = smoothing.rate
        released = self._noise.smooth_laplace(value, smooth, lattice, rate, price.epsilon)
        return Noisy(np.array([float(released) * unit]), spread, spend)

    def flip(self, label: str, bits: BoolArray, *, share: str, claim: int) -> BoolArray:
        """Release bits by randomised response; a record owns one bit."""
        epsilon = self._shares[share].epsilon
        spend = Spend(
            label,
            share,
            epsilon,
            0.0,
            "randomised response",
            (1.0,),
            (flip_chance(epsilon),),
            claim,
            alone=True,
        )
        self._charge(spend)
        return self._noise.flip(bits, epsilon)


class Holder:
    """Holds the rows. The families of primitives derive from it; only they look inside.

    The order in which rows come may depend on what is in them. So whatever goes by position works
    on the rows in a secret order, drawn once, when it is first needed.
    """

    def __init__(self, rows: Source, releaser: Releaser, public: frozenset[str]) -> None:
        self._source, self._releaser, self._public = rows, releaser, public
        self.n = rows.n
        self.width = rows.width
        self.outcome_range = rows.outcome_range

    def has(self, share: str) -> bool:
        """True when the budget has a share of this name."""
        return self._releaser.has(share)

    def epsilon(self, share: str) -> float:
        """Return the epsilon of a named share."""
        return self._releaser.share(share).epsilon

    def delta(self, share: str) -> float:
        """Return the delta of a named share."""
        return self._releaser.share(share).delta

    def varying(self) -> list[int]:
        """Return which encoded columns are not the same for every record, by what they mean."""
        values = self._source.held("this step needs all rows at once").values
        return [j for j in range(self.width) if not values or values[j] != 1]

    def is_public(self, what: str) -> bool:
        """True when "treatment" or "covariates" is public in this call."""
        return what in self._public

    def _require_public(self, what: str) -> None:
        if what not in self._public:
            raise PrivacyError(f"{what} is private in this call: ask for a release of it")

    @cached_property
    def _order(self) -> IntArray:
        return self._releaser.permutation(self.n)

    @cached_property
    def _rows(self) -> Rows:
        """The rows in memory, for what needs them all at once, in the secret order."""
        return self._source.held("this step needs all rows at once").reordered(self._order)

    def _gather(self, function: ByRecord, *parts: str) -> Records:
        """A few values of each record, in the secret order."""
        return tuple(values[self._order] for values in self._source.gather(function, *parts))

    def _covariates(self) -> FloatArray:
        return self._rows.covariates()
