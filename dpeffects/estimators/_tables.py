"""The release of a table by arm: counts, or weights by a released propensity score.

Where treatment was not randomised and the formula has covariates, a propensity model is released
first, as that of `private_ipw`, and a record counts by its weight over the largest that one of its
arm can have. It is in one cell either way, so that the table costs what one count does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from dpeffects.arrays import FloatArray, IntArray
from dpeffects.design.arms import ArmByCell
from dpeffects.design.features import unit_rows
from dpeffects.errors import OptionError
from dpeffects.estimands import ESTIMANDS
from dpeffects.estimators._checks import check_choice, check_flag
from dpeffects.estimators._propensity import (
    PropensityModel,
    Setting,
    private_model,
    public_model,
)
from dpeffects.estimators.spec import Facts, Options
from dpeffects.estimators.weighting import Propensity, relative_weights
from dpeffects.inference.tables import ArmTable
from dpeffects.privacy.curator import Curator
from dpeffects.privacy.rows import Block, Cells
from dpeffects.privacy.sets import COUNT, Box, entries

_MODEL = {"counts": 0.05, "spread": 0.05, "model": 0.35}
"""Proportions for the propensity model, where there is one; the table has the rest."""
_HARDLY, _NOTHING = 0.5, 0.1
"""Where the model keeps less of its slopes, the result says that it hardly adjusts, and that it is
an association."""


@dataclass(frozen=True)
class TableOptions(Options):
    """``design``: "observational", or "randomised" where treatment was assigned by chance.

    ``adjust``: whether covariates are adjusted for, None where there are any and treatment was not
    randomised.
    """

    design: str = "observational"
    adjust: bool | None = None

    def __post_init__(self) -> None:
        check_choice("design", self.design, ("observational", "randomised"))
        check_flag("adjust", self.adjust, optional=True)

    @property
    def randomised(self) -> bool:
        """True where treatment was assigned by chance."""
        return self.design == "randomised"

    def resolve(self, facts: Facts) -> Options:
        """Decide whether to adjust; refuse more than two arms."""
        if facts.arms > 2:
            raise OptionError(
                "this call compares two arms: name the two levels in bounds, and use their rows"
            )
        able = facts.columns > 0
        if self.adjust and not able:
            raise OptionError("adjust=True needs covariates: write y ~ t | x1 + x2")
        wanted = not self.randomised if self.adjust is None else self.adjust
        return replace(self, adjust=able and wanted)


def table_shares(level: str, options: TableOptions) -> dict[str, float]:
    """Split of the budget: the table has all of it where no model is released."""
    if not options.adjust or level == "label":
        return {"table": 1.0}
    return _MODEL | {"table": 1.0 - sum(_MODEL.values())}


def table_delta(options: Any, facts: Facts) -> dict[str, float | None]:
    """Shares that can use a delta: a record moves two counts."""
    return {"model": None, "table": entries(COUNT, cells=2)}


@dataclass(frozen=True)
class OutcomeCell:
    """The outcome, where it is the number of a cell."""

    reads: ClassVar[tuple[str, ...]] = ("outcome",)

    def __call__(self, rows: Block) -> IntArray:
        """Cells of some rows."""
        return rows.outcome.astype(np.int64)


@dataclass(frozen=True, eq=False)
class ByArm:
    """Cells of a table by arm and bin."""

    bins: Any
    count: int

    @property
    def reads(self) -> tuple[str, ...]:
        """Arm, and what the bins need."""
        return ("treated", *self.bins.reads)

    def __call__(self, rows: Block) -> IntArray:
        """Cells of some rows."""
        inside = self.bins(rows)
        fine = (inside >= 0) & (inside < self.count)
        return np.where(fine, np.where(rows.treated, 0, self.count) + inside, -1)


@dataclass(frozen=True, eq=False)
class TableWeight:
    """The weight of a record over the largest that one of its arm can have."""

    model: Propensity
    estimand: str
    reads: ClassVar[tuple[str, ...]] = ("treated", "covariates")

    def __call__(self, rows: Block) -> FloatArray:
        """Weights of some rows, within [0, 1]."""
        return relative_weights(self.model, self.estimand, rows.treated, unit_rows(rows.covariates))

    @property
    def largest(self) -> FloatArray:
        """Largest weights of treated and of control records."""
        ends = np.array([self.model.low, self.model.high])
        return np.array([float(w.max()) for w in ESTIMANDS[self.estimand].weights(ends)])


@dataclass(frozen=True, eq=False)
class Adjustment:
    """A released propensity model, and its scores within the limits of the weights."""

    model: PropensityModel
    score: Propensity
    estimand: str

    @classmethod
    def released(cls, curator: Curator, estimand: str) -> Adjustment:
        """Release a model; free where covariates and treatment are public."""
        if curator.is_public("covariates"):
            model = public_model(curator, None)
        else:
            setting = Setting((curator.n, curator.n), curator.width, 0.0, None, "objective")
            model, _ = private_model(curator, setting, curator.epsilon("table"))
        limits = model.limits(estimand, curator.noise_sd("table") / curator.n)
        return cls(model, model.within(limits), estimand)

    @property
    def weight(self) -> TableWeight:
        """What a record counts for."""
        return TableWeight(self.score, self.estimand)

    @property
    def unequal(self) -> tuple[float, float]:
        """Mean squares of weights over their means, by arm, as the model has them."""
        e = self.model.scores
        kept = np.clip(e, self.score.low, self.score.high)
        pairs = zip(ESTIMANDS[self.estimand].weights(kept), (e, 1.0 - e), strict=True)
        one, other = (float((share * w**2).sum() / (share * w).sum()) for w, share in pairs)
        return one, other

    @property
    def left(self) -> float:
        """What noise and shrinkage of the model leave of confounding."""
        return 0.0


def release_table(
    curator: Curator, bins: Any, count: int, adjustment: Adjustment | None = None
) -> ArmTable:
    """Release counts by arm and bin, out of the share "table".

    ``bins`` is a row function to 0..count - 1.
    """
    function = ArmByCell(count) if isinstance(bins, OutcomeCell) else ByArm(bins, count)
    cells, label = Cells(function, 2 * count), "records by arm and cell"
    if adjustment is None:
        found = curator.sums(label, None, COUNT, cells, share="table")
        counts, variance = found.value.reshape(2, count), (found.variance, found.variance)
        return ArmTable(counts, variance, gaussian=found.gaussian)
    weight, within = adjustment.weight, Box(0.0, 1.0, centre=0.0)
    found = curator.sums(f"weights of {label}", weight, within, cells, share="table")
    top = weight.largest
    counts = found.value.reshape(2, count) * top[:, None]
    one, other = (found.variance * top**2).tolist()
    return ArmTable(counts, (one, other), adjustment.unequal, found.gaussian, adjustment.left)


def basis_of(options: TableOptions, adjustment: Adjustment | None) -> tuple[str, str]:
    """What entitles the differences to be called effects, and a caution."""
    if options.randomised:
        return "randomised", ""
    if adjustment is None or adjustment.model.kept < _NOTHING:
        return "association", "NOT ADJUSTED for covariates"
    if adjustment.model.kept < _HARDLY:
        return "adjusted", "HARDLY ADJUSTED: the model of treatment is mostly shrunk away"
    return "adjusted", ""
