"""Row functions of the arms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpeffects.arrays import BoolArray, FloatArray, IntArray
from dpeffects.privacy.rows import Block, GroupIndex, reads


@dataclass(frozen=True)
class Outcome:
    """The outcome."""

    reads: ClassVar[tuple[str, ...]] = ("outcome",)

    def __call__(self, rows: Block) -> FloatArray:
        """Values of some rows."""
        return rows.outcome


@dataclass(frozen=True)
class ScaledSquare(Outcome):
    """z^2 for z the outcome scaled from [low, high] to [-1, 1]."""

    low: float
    high: float

    def __call__(self, rows: Block) -> FloatArray:
        """Values of some rows."""
        z = (rows.outcome * 2.0 - self.low - self.high) / (self.high - self.low)
        return z * z


@reads("treated")
def control(rows: Block) -> BoolArray:
    """0 for treated and 1 for control records."""
    return ~rows.treated


ARMS = GroupIndex(control, 2)
"""Treated, then control records."""
TREATED = GroupIndex(control, 1)
"""Treated records; the others are dropped."""


@reads("arm")
def arm_number(rows: Block) -> IntArray:
    """The number of a record's arm, where there are more than two."""
    return rows.arm


def arm_cells(arms: int) -> GroupIndex:
    """Treated and control records, or one cell for each of more arms."""
    return ARMS if arms == 2 else GroupIndex(arm_number, arms)


@dataclass(frozen=True)
class ArmByCell:
    """Cells of a table by arm, treated records first, where outcomes are numbers of cells."""

    count: int
    reads: ClassVar[tuple[str, ...]] = ("treated", "outcome")

    def __call__(self, rows: Block) -> IntArray:
        """Cells of some rows."""
        return rows.outcome.astype(np.int64) + self.count * ~rows.treated
