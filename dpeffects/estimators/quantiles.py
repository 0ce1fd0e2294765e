"""Quantiles of two arms from one noisy table of records by arm and bin: what `dp_qte` releases.

A small part of the budget first counts records on a grid that has no scale of its own, so that the
bins of the table are where the records are (`inference.bins`). A record is in one bin of each. All
quantiles, and both distributions, follow from the table (`inference.quantiles`). Where treatment
was not randomised and the formula has covariates, records count by weights of a released propensity
model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar, cast

import numpy as np

from dpeffects.arrays import FloatArray, IntArray
from dpeffects.errors import OptionError
from dpeffects.estimators._checks import check_between, is_number
from dpeffects.estimators._tables import (
    Adjustment,
    ByArm,
    TableOptions,
    confounding_left,
    release_table,
    table_delta,
    table_shares,
    table_spec,
    tabled,
)
from dpeffects.estimators.spec import Facts, Options
from dpeffects.inference.bins import MOST, Scale, number_of_bins, place
from dpeffects.inference.tables import ArmTable
from dpeffects.privacy.curator import Curator
from dpeffects.privacy.rows import Block, Cells
from dpeffects.privacy.sets import COUNT, entries
from dpeffects.results.quantiles import QuantileEffects, check_quantiles
from dpeffects.results.tabled import Tabled

_PLACE = 0.2
"""Part of the budget that says where the bins are."""
_CONFOUNDED = 0.05
"""How much further from the quantiles of the arms those after weighting may be."""


@dataclass(frozen=True)
class QuantileOptions(TableOptions):
    """``quantiles``: shares of records, around which most bins are; others can be asked for later.

    ``bins``: how many there are, by default from public and released numbers; or their ends, which
    are then public. ``place_share``: part of the budget that finds out where the bins are, by
    default 0.2, and 0 where that is known: ends that are given, or few whole numbers. ``design``:
    "observational", or "randomised" where treatment was assigned by chance; ``on_unadjusted``:
    "caution", or "error" to refuse, before anything is paid, a result of an observational study
    that is not adjusted; ``adjust``: whether covariates are adjusted for, None where there are any,
    treatment was not randomised, and a propensity model can be learnt; ``model_share``: part of the
    budget for that model, by default from public numbers.
    """

    quantiles: tuple[float, ...] = (0.1, 0.25, 0.5, 0.75, 0.9)
    bins: int | tuple[float, ...] | None = None
    place_share: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "quantiles", check_quantiles(self.quantiles))
        if self.place_share is not None:
            check_between("place_share", self.place_share, 0.0, 1.0)
        if isinstance(self.bins, int | float):
            whole = isinstance(self.bins, int) and not isinstance(self.bins, bool)
            if not whole or not 4 <= self.bins <= 500:
                raise OptionError(f"bins must be a whole number from 4 to 500, got {self.bins!r}")
        elif self.bins is not None:
            self._check_ends()

    def _check_ends(self) -> None:
        ends = self.bins
        if not (isinstance(ends, tuple | list) and len(ends) <= 500 and all(map(is_number, ends))):
            raise OptionError("bins must be how many there are, or their ends in order")
        ordered = tuple(float(x) for x in ends)
        if len(ordered) < 2 or not all(a < b < math.inf for a, b in pairwise(ordered)):
            raise OptionError("bins must be how many there are, or their ends in order")
        object.__setattr__(self, "bins", ordered)

    def resolve(self, facts: Facts) -> Options:
        """Decide whether a first stage is needed, and whether to adjust."""
        found = cast(QuantileOptions, super().resolve(facts))
        known = isinstance(self.bins, tuple) or 0 < facts.values[-1] <= MOST
        share = _PLACE if self.place_share is None else self.place_share
        if not known and not 0.0 < share < 1.0:
            raise OptionError("place_share must be above 0 and below 1 where bins are not given")
        return replace(found, place_share=0.0 if known else share)


def shares(level: str, options: QuantileOptions) -> dict[str, float]:
    """Split of the budget: a part says where the bins are, unless that is known."""
    part = _PLACE if options.place_share is None else options.place_share
    others = {name: (1.0 - part) * x for name, x in table_shares(level, options).items()}
    return {"place": part, **others} if part else others


def uses_delta(options: QuantileOptions, facts: Facts) -> dict[str, float | None]:
    """Shares that can use a delta: a record moves two counts."""
    return {"place": entries(COUNT, cells=2), **table_delta(options, facts)}


@dataclass(frozen=True, eq=False)
class OutcomeBin:
    """The bin of an outcome: the number of ends that are below it."""

    ends: FloatArray
    reads: ClassVar[tuple[str, ...]] = ("outcome",)

    def __call__(self, rows: Block) -> IntArray:
        """Bins of some rows."""
        return np.searchsorted(self.ends, rows.outcome, side="left").astype(np.int64)


def fit(curator: Curator, options: QuantileOptions, estimand: str) -> Tabled:
    """Release where records are, a model of treatment where there is one, and the table."""
    scale = scale_of(curator)
    adjustment = Adjustment.released(curator, estimand) if options.adjust else None
    ends = _ends(curator, options, scale, adjustment)
    table = release_table(curator, OutcomeBin(ends), ends.size + 1, adjustment)
    own: dict[str, Any] = {
        "table": replace(table, confounding=confounding_left(options, adjustment)),
        "ends": tuple(ends.tolist()),
        "lower": scale.lower,
        "upper": scale.upper,
        "whole": scale.whole,
        "asked": options.quantiles,
    }
    return tabled(QuantileEffects, options, adjustment, **own)


def scale_of(curator: Curator) -> Scale:
    """The declared range of the outcome, and whether its type has whole numbers only."""
    lower, upper = map(float, curator.outcome_range)
    return Scale(lower, upper, 0 < curator.values[-1] == int(upper - lower) + 1)


def _ends(
    curator: Curator, options: QuantileOptions, scale: Scale, adjustment: Adjustment | None
) -> FloatArray:
    """Ends of the bins: those given, each whole number, or where a first stage has records."""
    if isinstance(options.bins, tuple):
        return scale.with_fixed(np.array(options.bins))
    if not curator.has("place"):
        return scale.each()
    grid = scale.grid()
    cells = Cells(ByArm(OutcomeBin(grid), grid.size + 1), 2 * grid.size + 2)
    found = curator.sums("where outcomes are, by arm", None, COUNT, cells, share="place")
    seen = ArmTable(found.value.reshape(2, -1), (found.variance, found.variance))
    top = 1.0 if adjustment is None else float(adjustment.weight.largest.max())
    noise = (2.0 * top * curator.noise_sd("table")) ** 2
    bins = options.bins or number_of_bins(float(seen.sizes.min()), noise)
    apart = 0.02 if adjustment is None else 0.02 + _CONFOUNDED
    return place(scale, grid, seen.plausible, options.quantiles, bins, apart)


TABLE = table_spec(
    name="quantile_table",
    title="noisy distributions by arm",
    about=(
        "dp_qte: one table of arm and bin of the outcome; quantiles of both arms and their "
        "differences"
    ),
    options=QuantileOptions,
    shares=shares,
    fit=fit,
    uses_delta=uses_delta,
    citation="dpeffects (software): noisy distributions by arm.",
)
