"""The one place where noise meets a value: charge the ledger, then draw."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from dpeffects.arrays import FloatArray, IntArray, Interval
from dpeffects.errors import PrivacyError
from dpeffects.privacy.budget import LEAST, Budget, Share, as_written, round_down, written_below
from dpeffects.privacy.charges import Charge, NoisyValue
from dpeffects.privacy.domains import IntTotals, Matrices
from dpeffects.privacy.ladder import Ladder, LadderPace
from dpeffects.privacy.ledger import CallLedger
from dpeffects.privacy.noise import (
    LEAST_DELTA,
    LEAST_SIGMA,
    MOST_ENTRIES,
    NoiseSource,
    Objective,
    SmoothValue,
    flip_chance,
    gaussian_scale,
    laplace_scale,
    matrix_scale,
)


@dataclass(frozen=True)
class Split:
    """A budget by named shares; ``mu`` has those that get Gaussian noise (claim 4).

    The Gaussian shares of a call pool their epsilon and delta to one Gaussian mechanism, and
    divide its mu^2 among themselves; the others are pure, or have a delta of their own.
    """

    shares: Mapping[str, Share]
    mu: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        budget: Budget,
        proportions: Mapping[str, float],
        uses_delta: Mapping[str, float | None] | None = None,
    ) -> Split:
        """Divide a budget; which shares are Gaussian follows from public numbers.

        ``uses_delta`` has the shares that can use a delta: the number of entries in which a record
        moves their release (`entries`), or None for a mechanism with a delta of its own. A share is
        Gaussian where the pool gives it less noise than a pure price; infinity: wherever it can be.
        """
        pure = budget.shares(proportions)
        able = {k: v for k, v in (uses_delta or {}).items() if k in pure}
        own = {name for name, entries in able.items() if entries is None}
        pool = {name: entries for name, entries in able.items() if entries is not None}
        while True:
            users = {name: Fraction(pure[name].epsilon) for name in (*own, *pool)}
            whole = as_written(budget.delta) / max(sum(users.values()), LEAST)
            delta = {name: round_down(whole * epsilon) for name, epsilon in users.items()}
            mu = _pooled({name: pure[name].epsilon for name in pool}, sum(delta[x] for x in pool))
            better = {
                name: entries
                for name, entries in pool.items()
                if mu and 1.0 / mu[name] < math.sqrt(2.0 * entries) / pure[name].epsilon
            }
            if len(better) == len(pool):
                shares = {k: Share(s.epsilon, delta.get(k, 0.0)) for k, s in pure.items()}
                return cls(shares, mu)
            pool = better


def _pooled(epsilon: Mapping[str, float], delta: float) -> dict[str, float]:
    """mu of each share: squares add up to that of one mechanism with the whole price."""
    total = sum(epsilon.values())
    if not (epsilon and delta > LEAST_DELTA and total > 1e-4):
        return {}
    mu = 1.0 / gaussian_scale(1.0, total * (1.0 - 1e-12), delta * (1.0 - 1e-12), MOST_ENTRIES)
    return {k: mu * math.sqrt(e / total) * (1.0 - 1e-12) for k, e in epsilon.items()}


class Releaser:
    """Charges the ledger, then draws.

    ``alone`` is False where the charges also cover draws of other rows, which ``covering`` then
    names without a price (claim 11).
    """

    def __init__(
        self,
        split: Split,
        ledger: CallLedger,
        noise: NoiseSource,
        alone: bool = True,
        covering: CallLedger | None = None,
    ) -> None:
        self.split, self._ledger, self._noise = split, ledger, noise
        self._alone, self._covering = alone, covering
        self._entries, self._pool = MOST_ENTRIES, math.hypot(*split.mu.values()) ** 2
        pool = [split.shares[name] for name in split.mu]
        self._unpaid = [sum(map(Fraction, x), Fraction()) for x in zip(*pool, strict=True)]
        self._parts = [self]
        self._name = ""

    def share(self, name: str) -> Share:
        """Return the epsilon and delta of a named share."""
        return self.split.shares[name]

    def rate(self, share: str, part: float | Fraction = 1.0) -> float:
        """What a part of a share divides the sensitivity by: epsilon, or mu."""
        if share in self.split.mu:
            return self.split.mu[share] * math.sqrt(part)
        return self.share(share).epsilon * float(part)

    def release(
        self, label: str, steps: IntTotals, *, share: str, claim: int, part: float | Fraction = 1.0
    ) -> NoisyValue:
        """Release whole numbers as multiples of their unit, at ``part`` of the price of a share."""
        price = self.share(share).times(part)
        if share not in self.split.mu:
            return self.laplace(label, steps, price, share=share, claim=claim)
        mu, self._entries = self.rate(share, part), self._entries - steps.values.size
        if self._entries < 0:
            raise PrivacyError("too many numbers for one call with Gaussian noise; nothing drawn")
        self._pool -= mu**2 * (1.0 - 1e-12)
        if self._pool < 0.0:
            raise PrivacyError("more Gaussian noise than its shares pay for; nothing drawn")
        self._unpaid = [x - Fraction(paid) for x, paid in zip(self._unpaid, price, strict=True)]
        sigma = max(steps.moves.l2, 1.0) / mu * (1.0 + 1e-12)
        return self.gaussian(label, steps, sigma, price, share=share, claim=claim)

    def laplace(
        self, label: str, steps: IntTotals, price: Share, share: str, claim: int, alone: bool = True
    ) -> NoisyValue:
        """Release whole numbers with pure noise; only the epsilon is paid.

        It is discrete Laplace noise, or has the shape of a move, by cell (claims 26 to 28).
        """
        self._require_own_price(share)
        (values, moves, unit, shape), epsilon, noise = steps, price.epsilon, self._noise
        by_cell = values.reshape(-1, values.shape[-1])
        if shape is None:
            name, size = "discrete Laplace", max(moves.l1, 1)
            scale = laplace_scale(size, epsilon)
            draw = partial(noise.laplace, values.reshape(-1), scale, size, epsilon)
        elif isinstance(shape, Matrices):
            name, size = "Wishart difference", shape.squared_radius
            scale, top = matrix_scale(len(by_cell), *shape, epsilon)
            draw = partial(noise.matrices, by_cell, scale, top)
        else:
            name, size = "K-norm, l-infinity ball", shape.width
            scale = laplace_scale(size, epsilon)
            draw = partial(noise.cubes, by_cell, scale, size, epsilon)
        sizes = (size * unit,), (scale * unit,)
        charge = Charge(label, share, epsilon, 0.0, name, *sizes, claim, alone)
        self.charge(charge)
        value = (draw().reshape(values.shape) * unit).astype(np.float64)
        variance = shape.variance if shape else None
        return NoisyValue(value, scale * unit, charge, unit_variance=variance)

    def gaussian(
        self,
        label: str,
        steps: IntTotals,
        sigma: float,
        price: Share,
        *,
        share: str,
        claim: int,
        alone: bool = True,
    ) -> NoisyValue:
        """Release whole numbers with Gaussian noise of a scale that the price was turned into.

        Where no sensitivity is proved, it is infinite, and the charge says so.
        """
        (values, (_, l2), unit, shape), known = steps, math.isfinite(steps.moves.l2)
        parts: list[tuple[Any, float]] = [(slice(None), 1.0)]
        if isinstance(shape, Matrices):  # half the variance off the diagonal, where that is
            diagonal = np.resize(np.equal(*np.triu_indices(shape.columns)), values.size)
            parts = [(diagonal, 1.0), (~diagonal, math.sqrt(0.5))][: shape.columns]
        finer = 2 ** max(0, math.ceil(math.log2(LEAST_SIGMA / (sigma * parts[-1][1]))))
        values = np.clip(values, -(2**60 // finer), 2**60 // finer)  # nothing fails by a value
        name = f"discrete Gaussian{'' if known else ', claimed'}"
        moves = (l2 * unit,) if known else ()
        charge = Charge(label, share, *price, name, moves, (sigma * unit,), claim, alone)
        self.charge(charge)
        drawn = values.reshape(-1) * finer
        for part, factor in parts:
            drawn[part] = self._noise.gaussian(drawn[part], sigma * factor * finer)
        value = (drawn.reshape(values.shape) * (unit / finer)).astype(np.float64)
        off_diagonal = 0.5 if isinstance(shape, Matrices) else None
        return NoisyValue(value, sigma * unit, charge, gaussian=True, unit_variance=off_diagonal)

    def respond(self, label: str, codes: Any, levels: int, *, share: str, claim: int) -> Any:
        """Release levels by randomised response, bits where there are two; a record owns one."""
        self._require_own_price(share)
        epsilon, name = self.share(share).epsilon, "randomised response"
        chance = (flip_chance(epsilon, levels),)
        self.charge(Charge(label, share, epsilon, 0.0, name, (1.0,), chance, claim, alone=True))
        if levels == 2:
            return self._noise.flip(codes, epsilon)
        return self._noise.respond(codes, levels, epsilon)

    def smooth_laplace(
        self, label: str, private: SmoothValue, shown: float | None, *, share: str, claim: int
    ) -> NoisyValue:
        """Release a value with noise of a private scale (claims 15, 16).

        ``shown``, a released value, stands for the private sensitivity wherever it is shown. With
        None there is no such value: the charge has no sizes, and the scale is not a number.
        """
        self._require_own_price(share)
        price = self.share(share)
        if not private.affordable(price):
            raise PrivacyError("the smooth sensitivity needs more than its share; nothing drawn")
        spread = math.nan if shown is None else shown / private.rate
        moves, scale = ((), ()) if shown is None else ((shown,), (spread,))
        charge = Charge(label, share, *price, "Laplace, smooth sensitivity", moves, scale, claim)
        self.charge(charge)
        drawn = self._noise.smooth_laplace(private, price.epsilon)
        return NoisyValue(np.array([drawn]), spread, charge)

    def along(
        self,
        label: str,
        value: Fraction | float,
        levels: FloatArray,
        ends: Interval,
        smoothing: float,
        *,
        share: str,
        claim: int,
        part: float | Fraction = 1.0,
    ) -> NoisyValue:
        """Release a value within public ends by one draw along its private ladder (claim 34).

        Neither the charge nor the result has a scale: that of the noise is private.
        """
        self._require_own_price(share)
        epsilon = self.share(share).times(part).epsilon
        ladder = Ladder.of(value, levels, ends, LadderPace.of(epsilon, smoothing))
        charge = Charge(label, share, epsilon, 0.0, "ladder mechanism", (), (), claim)
        self.charge(charge)
        return NoisyValue(np.array([ladder.at(self._noise.along(ladder))]), math.nan, charge)

    def _require_own_price(self, share: str) -> None:
        """Gaussian shares have a price together, not each (claim 4)."""
        if share in self.split.mu:
            raise PrivacyError(f"the share {share!r} is part of a Gaussian pool; nothing drawn")

    def give_up_pool(self, shares: Iterable[str]) -> None:
        """Spend the price of these shares in another way: all of a Gaussian pool, or none of it."""
        if pooled := set(shares) & set(self.split.mu):
            if pooled < set(self.split.mu) or self._entries < MOST_ENTRIES:
                raise PrivacyError("a part of a Gaussian pool has no price; nothing drawn")
            self._pool = 0.0

    def minimise_perturbed(self, problem: Objective, hidden: NoisyValue) -> FloatArray:
        """Minimise with hidden noise in the objective: what comes out is private still."""
        return self._noise.minimise(problem, hidden)

    def permutation(self, n: int) -> IntArray:
        """Draw a secret order of n records; it is no release, and costs nothing."""
        return self._noise.permutation(n)

    def charge(self, charge: Charge) -> None:
        """Charge the ledger; also for what a library is going to draw."""
        charge = replace(charge, label=self._name + charge.label) if self._name else charge
        self._ledger.charge(charge if self._alone else replace(charge, alone=False))
        if self._covering is not None:
            self._covering.cover(charge)

    def paid(self) -> tuple[Fraction, Fraction]:
        """Exact totals of epsilon and delta charged so far."""
        return self._ledger.spent

    def promised(self) -> tuple[Fraction, Fraction]:
        """What all draws so far cost: what was paid, and the rest of a Gaussian pool drawn from."""
        rests = [x._unpaid for x in self._parts if x._entries < MOST_ENTRIES]
        epsilon, delta = (sum(x, Fraction()) for x in zip(self.paid(), *rests, strict=True))
        return epsilon, delta

    def left(self, budget: Budget, shares: Collection[str]) -> Budget:
        """What is left of a call's budget for these shares: not charged, nor for others to come."""
        done = {charge.share for charge in self._ledger.charges}.union(shares)
        later = [x for name, x in self.split.shares.items() if name not in done]
        (epsilon, delta), (paid, paid_delta) = budget.exact, self.promised()
        epsilon -= paid + sum(Fraction(x.epsilon) for x in later)
        delta -= paid_delta + sum(Fraction(x.delta) for x in later)
        return Budget(written_below(epsilon), written_below(max(delta, Fraction(0))))

    def for_part(self, split: Split, name: str) -> Releaser:
        """Return a releaser for a part of the budget that is divided by itself, on the same ledger.

        Its Gaussian shares are a pool of their own (claim 4). Its charges have its name.
        """
        part = type(self)(split, self._ledger, self._noise, self._alone, self._covering)
        part._name = f"{name}: " if name else ""
        return self._with(part)

    def for_subset(self, split: Split, ledger: CallLedger | None = None) -> Releaser:
        """Return a releaser for a part of the rows, by default on the same ledger (claim 11).

        On a ledger of its own it is covered by the charges made here, and named beside them.
        """
        covering = None if ledger is None else self._ledger
        part = type(self)(split, ledger or self._ledger, self._noise, False, covering)
        return self._with(part) if ledger is None else part

    def _with(self, part: Releaser) -> Releaser:
        """Parts of one ledger know of each other, whoever made them."""
        part._parts = self._parts
        self._parts.append(part)
        return part
