"""The curator holds the rows and answers with released values. Methods hold no rows.

Each primitive clips, charges, then draws, in that order, and names the claim in PROOFS.md that
proves its sensitivity. What is public (declared so by the level) is handed out as it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from dpeffects.errors import BoundsError, PrivacyError
from dpeffects.privacy import bounds as ranges
from dpeffects.privacy.bounds import Bounds, Interval
from dpeffects.privacy.budget import round_down
from dpeffects.privacy.erm import fit_logistic, logistic_sensitivity, sigmoid
from dpeffects.privacy.guarantee import Noisy, Spend
from dpeffects.privacy.ledger import Ledger
from dpeffects.privacy.noise import NoiseSource, flip_chance, laplace_scale
from dpeffects.privacy.sums import WEIGHT_BITS, Grid, weights_to_grid

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
IndexArray = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Rows:
    """Private rows, clipped to their bounds. Only the curator looks inside.

    ``covariates`` makes the encoded matrix in [0, 1]^d when it is first needed.
    """

    outcome: FloatArray
    outcome_range: Interval
    treated: BoolArray
    covariates: Callable[[], FloatArray]
    width: int


class Releaser:
    """Charges the ledger, then draws: the one place where noise meets a value."""

    def __init__(self, shares: Mapping[str, float], ledger: Ledger, noise: NoiseSource) -> None:
        self._shares, self._ledger, self._noise = dict(shares), ledger, noise

    def has(self, share: str) -> bool:
        """True when the budget has a share of this name."""
        return share in self._shares

    def epsilon(self, share: str) -> float:
        """Return the epsilon of a named share."""
        return self._shares[share]

    def laplace(
        self,
        label: str,
        values: IntArray,
        sensitivity: int,
        unit: float,
        *,
        share: str,
        claim: int,
        parts: int = 1,
    ) -> Noisy:
        """Release integers with L1 sensitivity ``sensitivity``, as multiples of ``unit``.

        ``parts`` divides the share evenly among that many calls.
        """
        epsilon = round_down(Fraction(self._shares[share]) / parts)
        scale = laplace_scale(sensitivity, epsilon)
        spend = Spend(
            label, share, epsilon, 0.0, "Laplace", (sensitivity * unit,), (scale * unit,), claim
        )
        self._ledger.charge(spend)
        drawn = self._noise.laplace(values.reshape(-1), scale, sensitivity, epsilon)
        return Noisy((drawn.reshape(values.shape) * unit).astype(np.float64), scale * unit, spend)

    def flip(self, label: str, bits: BoolArray, *, share: str, claim: int) -> BoolArray:
        """Release bits by randomised response; a record owns one bit."""
        epsilon = self._shares[share]
        spend = Spend(
            label,
            share,
            epsilon,
            0.0,
            "randomised response",
            (1.0,),
            (flip_chance(epsilon),),
            claim,
        )
        self._ledger.charge(spend)
        return self._noise.flip(bits, epsilon)


def find_bounds(columns: Mapping[str, FloatArray], releaser: Releaser) -> Bounds:
    """Find ranges of numeric columns by noisy histograms of magnitudes (claim 5)."""
    found, failed = Bounds(), []
    for name, values in columns.items():
        counts = ranges.magnitude_counts(values)
        noisy = releaser.laplace(
            f"bounds of {name}", counts, 2, 1.0, share="bounds", claim=5, parts=len(columns)
        )
        interval = ranges.interval_from_counts(noisy.value, noisy.scale)
        if interval is None:
            failed.append(name)
        else:
            found = found.with_interval(name, *interval, source="private")
    if failed:
        raise BoundsError(
            "the private search found no range for "
            + ", ".join(failed)
            + " (its share of the budget is spent). Declare what the variables mean:\n"
            + ranges.skeleton(failed, [])
        )
    return found


class Curator:
    """Holds rows, ledger and noise; offers the primitives that methods are made of."""

    def __init__(self, rows: Rows, releaser: Releaser, public: frozenset[str]) -> None:
        self._rows, self._releaser, self._public = rows, releaser, public
        self._matrix: FloatArray | None = None
        self.n = int(rows.treated.size)
        self.width = rows.width
        self.outcome_range = rows.outcome_range

    def has(self, share: str) -> bool:
        """True when the budget has a share of this name."""
        return self._releaser.has(share)

    def epsilon(self, share: str) -> float:
        """Return the epsilon of a named share."""
        return self._releaser.epsilon(share)

    def is_public(self, what: str) -> bool:
        """True when "treatment" or "covariates" is public in this call."""
        return what in self._public

    # --- public values, as they are ---------------------------------------------------------

    def treatment(self) -> BoolArray:
        """Hand out the treatment column where it is declared public."""
        self._require_public("treatment")
        return self._rows.treated

    def public_scores(self, penalty: float) -> FloatArray:
        """Propensity scores where covariates and treatment are declared public: no charge."""
        self._require_public("treatment")
        self._require_public("covariates")
        matrix = self._covariates()
        return sigmoid(matrix @ fit_logistic(matrix, self._rows.treated, penalty))

    def _require_public(self, what: str) -> None:
        if what not in self._public:
            raise PrivacyError(f"{what} is private in this call: ask for a release of it")

    def _covariates(self) -> FloatArray:
        if self._matrix is None:
            self._matrix = self._rows.covariates()
        return self._matrix

    # --- counts and sums by arm -------------------------------------------------------------

    def treated_count(self, share: str) -> Noisy:
        """Release the number of treated records; free where treatment is public (claim 6)."""
        count = np.array([np.count_nonzero(self._rows.treated)], dtype=np.int64)
        if self.is_public("treatment"):
            return Noisy(count.astype(np.float64), 0.0)
        return self._releaser.laplace("treated count", count, 1, 1.0, share=share, claim=6)

    def arm_sums(self, share: str) -> Noisy:
        """Release the sums of y - middle over (treated, control) (claim 7)."""
        grid = Grid.for_sum(self.outcome_range, self.n, self.epsilon(share))
        sums = self._by_arm(grid.encode(self._rows.outcome))
        return self._releaser.laplace(
            "outcome sums by arm", sums, grid.span, grid.unit, share=share, claim=7
        )

    def arm_squares(self, share: str) -> Noisy:
        """Release the sums of z^2 - 1/2 over (treated, control) (claim 7).

        z is the outcome scaled to [-1, 1]; centring the square halves what one record can do when
        it moves from one arm to the other.
        """
        lower, upper = self.outcome_range
        z = (2.0 * self._rows.outcome - lower - upper) / (upper - lower)
        grid = Grid.for_sum((0.0, 1.0), self.n, self.epsilon(share))
        sums = self._by_arm(grid.encode(z * z))
        return self._releaser.laplace(
            "outcome squares by arm", sums, grid.span, grid.unit, share=share, claim=7
        )

    def _by_arm(self, values: IntArray) -> IntArray:
        treated = self._rows.treated
        return np.array([values[treated].sum(), values[~treated].sum()], dtype=np.int64)

    # --- weighted contrasts -----------------------------------------------------------------

    def contrast(self, label: str, weights: FloatArray, share: str) -> Noisy:
        """Release sum_j weights_j (y_j - middle) for public or released weights (claim 8)."""
        steps = weights_to_grid(weights)
        size = np.abs(steps)
        grid = Grid.for_sum(self.outcome_range, float(size.sum()), self.epsilon(share))
        total = np.array([steps @ grid.encode(self._rows.outcome)], dtype=np.int64)
        sensitivity = int(size.max()) * grid.span
        unit = grid.unit / 2.0**WEIGHT_BITS
        return self._releaser.laplace(label, total, sensitivity, unit, share=share, claim=8)

    def matched_squares(
        self,
        neighbours: IndexArray,
        found: IndexArray,
        partner: IndexArray,
        pair_weight: FloatArray,
        share: str,
    ) -> Noisy:
        """Release sum_i d_i^2 + sum over pairs of pair_weight (y_a - y_b)^2 / 2 (claim 10).

        d_i is record i's outcome minus the mean outcome of its matches. Matches, pairs and weights
        are public or released; the weight of a pair is the one given at its first member.
        """
        used = np.bincount(neighbours[neighbours >= 0], minlength=self.n)
        load = np.zeros(self.n)
        for k in range(neighbours.shape[1]):
            ok = neighbours[:, k] >= 0
            load += np.bincount(neighbours[ok, k], weights=1.0 / found[ok], minlength=self.n)
        first = np.flatnonzero(partner > np.arange(self.n))
        steps = np.zeros(self.n, dtype=np.int64)
        steps[first] = steps[partner[first]] = weights_to_grid(pair_weight[first], bits=8)
        grid = _square_grid(self, float(256 * self.n + steps.sum()), share)
        z = grid.encode(self._rows.outcome)
        own = _squared_gaps(z, neighbours, found)
        gaps = z[first] - z[partner[first]]
        # pair terms count (y_a - y_b)^2 / 2, so the whole release is in half units
        total = np.array([512 * own.sum() + steps[first] @ (gaps * gaps)], dtype=np.int64)
        span = grid.span
        each = 512 * (np.ceil(2.0 * span * span * (1.0 + load) * (1 + 1e-12)) + 1 + used)
        sensitivity = int((each + steps * (span * span)).max())
        return self._releaser.laplace(
            "matching variance", total, sensitivity, grid.unit**2 / 512.0, share=share, claim=10
        )

    # --- propensity scores and treatments at sample level -----------------------------------

    def propensity_weights(self, penalty: float, share: str) -> Noisy:
        """Release the weights of the penalised logistic regression (claim 9)."""
        d = self.width
        bound = logistic_sensitivity(self.n, d, penalty)
        unit = 2.0 ** (math.floor(math.log2(bound)) - 20)
        weights = fit_logistic(self._covariates(), self._rows.treated, penalty)
        steps = np.rint(weights / unit).astype(np.int64)
        sensitivity = math.ceil(bound / unit) + 1 + d
        return self._releaser.laplace(
            "propensity model", steps, sensitivity, unit, share=share, claim=9
        )

    def noisy_scores(self, weights: FloatArray, share: str) -> Noisy:
        """Release every record's propensity score under released weights (claim 11)."""
        grid = Grid.for_sum((0.0, 1.0), 1.0, self.epsilon(share))
        steps = grid.encode(sigmoid(self._covariates() @ weights))
        noisy = self._releaser.laplace(
            "propensity scores", steps, grid.span, grid.unit, share=share, claim=11
        )
        return Noisy(noisy.value + grid.middle, noisy.scale, noisy.spend)

    def flipped_treatment(self, share: str) -> BoolArray:
        """Release every record's treatment by randomised response (claim 3)."""
        return self._releaser.flip("treatment", self._rows.treated, share=share, claim=3)


def _square_grid(curator: Curator, total_weight: float, share: str) -> Grid:
    """Grid for squared differences: twice the bits must fit where a sum has them once."""
    fine = Grid.for_sum(curator.outcome_range, total_weight, curator.epsilon(share))
    return Grid(fine.lower, fine.upper, max(2, (fine.bits - 4) // 2))


def _squared_gaps(z: IntArray, neighbours: IndexArray, found: IndexArray) -> IntArray:
    """d_i^2 in squared grid units, rounded record by record."""
    total = np.zeros(z.size, dtype=np.int64)
    for k in range(neighbours.shape[1]):
        index = neighbours[:, k]
        total += np.where(index >= 0, z[index], 0)
    gap = found * z - total
    return np.rint((gap * gap) / (found * found)).astype(np.int64)
