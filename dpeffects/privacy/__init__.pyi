"""What methods hand to a curator and get back: row functions, sets, prices, noisy sums."""

from dpeffects.privacy.budget import Budget, Share
from dpeffects.privacy.charges import Noisy, Spend
from dpeffects.privacy.curator import Asked, Curator
from dpeffects.privacy.release import Split
from dpeffects.privacy.rows import Block, Cells, RowFunction, reads
from dpeffects.privacy.sets import COUNT, Box, Cube, entries
from dpeffects.privacy.tight_sets import WithSquares

__all__ = [
    "COUNT",
    "Asked",
    "Block",
    "Box",
    "Budget",
    "Cells",
    "Cube",
    "Curator",
    "Noisy",
    "RowFunction",
    "Share",
    "Spend",
    "Split",
    "WithSquares",
    "entries",
    "reads",
]
