"""Balance: released overlap and standardised mean differences, each with the noise in it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dpeffects.inference.noisy import STANDARDISED, noise_ratio
from dpeffects.results.export import frame_of
from dpeffects.results.numbers import number
from dpeffects.results.record import Record
from dpeffects.summary import draw

if TYPE_CHECKING:
    import pandas as pd

ARMS = ("treated", "control")
WITHIN = 1.96
"""A difference below this many standard deviations of its noise may be nothing but noise."""
LOW, HIGH = 0.1, 0.9
NO_SPREAD = "the covariate does not vary by more than the noise"
ONE_VALUE = "the covariate has one value by its declaration"
FEW = "an arm has no more records than noise could make"


@dataclass(frozen=True, repr=False, kw_only=True)
class Balance(Record, words="about_balance", pictures="plots.diagnostics"):
    """Overlap and balance of two arms; made by `dp_balance`.

    Parameters
    ----------
    terms
        Names of the encoded covariates.
    smd, noise_sd
        Standardised mean differences (treated less control) and the standard deviation of the
        noise in each; NaN for a covariate that does not vary by more than the noise.
    reasons
        Why a difference is missing; empty texts where it is not.
    treated
        Number of treated records, and the standard deviation of its noise.
    smd_adjusted, noise_sd_adjusted
        The same after weighting by inverse propensities, with the noise of the propensity model;
        empty where it was not released.
    edges, counts, count_sd
        Histogram of the released propensity score: edges of its bins, noisy counts of treated and
        of control records, standard deviation of the noise in each count. Counts are the closest to
        the released ones that are not negative and add up to n. Empty where none was released.
    scores_outside
        Share of records with a score below 0.1 or above 0.9, and the noise in it.
    model_noise
        Expected share of noise in the log odds of the propensity model.
    clipped
        A caution where many values lay outside their declared ranges (``check_bounds=True``).
    estimand, method, ...
        The fields of `Record`.
    """

    _computed = ("caution",)
    _of_effects = False
    terms: tuple[str, ...]
    smd: tuple[float, ...]
    noise_sd: tuple[float, ...]
    reasons: tuple[str, ...]
    treated: tuple[float, float]
    smd_adjusted: tuple[float, ...] = ()
    noise_sd_adjusted: tuple[float, ...] = ()
    edges: tuple[float, ...] = ()
    counts: tuple[tuple[float, ...], ...] = ((), ())
    count_sd: float = math.nan
    scores_outside: tuple[float, float] = (math.nan, math.nan)
    model_noise: float = math.nan
    clipped: str = ""

    def tidy(self) -> pd.DataFrame:
        """One row a covariate: differences before and after weighting, and the noise in them.

        ``within_noise`` says that a difference may be nothing but noise, a ``noise_ratio`` above 1
        that it is mostly noise; what was not released, or is not usable, is NaN.
        """
        missing = (math.nan,) * len(self.terms)
        adjusted = self.smd_adjusted or missing, self.noise_sd_adjusted or missing
        columns = {
            "term": self.terms,
            "smd": self.smd,
            "noise_sd": self.noise_sd,
            "within_noise": list(map(within_noise, self.smd, self.noise_sd)),
            "noise_ratio": list(map(hidden, self.smd, self.noise_sd)),
            "smd_adjusted": adjusted[0],
            "noise_sd_adjusted": adjusted[1],
            "within_noise_adjusted": list(map(within_noise, *adjusted)),
            "noise_ratio_adjusted": list(map(hidden, *adjusted)),
            "reason": self.reasons,
        }
        return frame_of(columns | {"guarantee": self.guarantee.status})

    def overlap(self) -> pd.DataFrame:
        """One row for each arm and bin of the propensity score."""
        bins = list(zip(self.edges[:-1], self.edges[1:], strict=True))
        return frame_of(
            [
                {"arm": arm, "low": low, "high": high, "count": count, "noise_sd": self.count_sd}
                for arm, counts in zip(ARMS, self.counts, strict=True)
                for (low, high), count in zip(bins, counts, strict=True)
            ]
        )

    def glance(self) -> pd.DataFrame:
        """One row for the release: its size, guarantee and largest differences."""
        outside, sd = self.scores_outside
        row = {
            "n": self.n,
            "treated": self.treated[0],
            "treated_noise_sd": self.treated[1],
            "covariates": len(self.terms),
            "largest_smd": _largest(self.smd),
            "largest_smd_adjusted": _largest(self.smd_adjusted),
            "scores_outside": outside,
            "scores_outside_noise_sd": sd,
            "model_noise": self.model_noise,
            "epsilon": float(self.guarantee.epsilon),
            "delta": float(self.guarantee.delta),
            "guarantee": self.guarantee.status,
        }
        return frame_of([row])

    @property
    def doubts(self) -> str:
        """What nobody should overlook about the estimates; empty when all is well."""
        noisy = "the propensity model is mostly noise: overlap and weighted balance say little"
        noisy = noisy if self.model_noise >= 0.5 else ""  # NaN where there is no model
        return "; ".join(filter(None, (noisy, self.clipped)))

    def plot(self, kind: str = "love", *, most: int | None = 30, ax: Any = None) -> Any:
        """Draw the differences ("love") or the histogram of scores ("overlap"); return the axes.

        ``most`` is how many differences are drawn, the largest first; None draws all.
        """
        return draw(self, kind, most=most, ax=ax)

    def __repr__(self) -> str:
        return (
            f"<dpeffects balance of {len(self.terms)} covariates, largest "
            f"{number(_largest(self.smd), 3)}, {self.guarantee.line(self.n)}>"
        )


def within_noise(value: float, sd: float) -> bool | None:
    """Tell whether a difference may be nothing but noise; None where there is none."""
    return None if math.isnan(value) else abs(value) <= WITHIN * sd


def hidden(value: float, sd: float) -> float:
    """Return the noise of a difference over the most that a printed one has."""
    return float(noise_ratio(sd, STANDARDISED, value, signed=True))


def _largest(values: tuple[float, ...]) -> float:
    return max((abs(x) for x in values if not math.isnan(x)), default=math.nan)
