"""The curator holds the rows and answers with released values. Methods hold no rows.

Each primitive clips, charges, then draws, in that order, and names the claim in PROOFS.md that
proves its sensitivity. What is public (declared so by the level) is handed out as it is. The
primitives are grouped by what they release: `arms`, `matched`, `blocks`, `strata`, `weighting`,
`kernel`, `balance`, `aggregate`, `folds`, `claimed`, `synthetic`, `boosting`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dpeffects.errors import BoundsError
from dpeffects.privacy import bounds as ranges
from dpeffects.privacy.aggregate import AggregateReleases
from dpeffects.privacy.arms import ArmReleases
from dpeffects.privacy.balance import BalanceReleases
from dpeffects.privacy.blocks import BlockReleases
from dpeffects.privacy.boosting import BoostedReleases
from dpeffects.privacy.bounds import Bounds
from dpeffects.privacy.claimed import ClaimedReleases
from dpeffects.privacy.folds import FoldReleases
from dpeffects.privacy.kernel import KernelReleases
from dpeffects.privacy.matched import MatchedReleases
from dpeffects.privacy.release import FloatArray, IntArray, Releaser, Rows
from dpeffects.privacy.strata import StrataReleases
from dpeffects.privacy.synthetic import SyntheticReleases
from dpeffects.privacy.weighting import WeightingReleases

__all__ = ["Curator", "Releaser", "Rows", "find_bounds"]


class Curator(
    ArmReleases,
    MatchedReleases,
    BlockReleases,
    StrataReleases,
    WeightingReleases,
    KernelReleases,
    BalanceReleases,
    ClaimedReleases,
    AggregateReleases,
    FoldReleases,
    SyntheticReleases,
    BoostedReleases,
):
    """Holds rows, ledger and noise; offers the primitives that methods are made of."""


def find_bounds(
    columns: Mapping[str, FloatArray | Callable[[], IntArray]], releaser: Releaser
) -> Bounds:
    """Find ranges of numeric columns by noisy histograms of magnitudes (claim 5).

    A column is given by its values, or by a function that counts them (`bounds.magnitude_counts`).
    """
    found, failed = Bounds(), []
    for name, values in columns.items():
        counts = values() if callable(values) else ranges.magnitude_counts(values)
        noisy = releaser.release(
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
