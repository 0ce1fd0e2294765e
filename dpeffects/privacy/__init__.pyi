"""What methods hand to a curator and get back: row functions, sets, prices, noisy sums."""

from dpeffects.privacy.budget import Budget, Share
from dpeffects.privacy.charges import Charge, NoisyValue
from dpeffects.privacy.curator import Curator, SumQuery
from dpeffects.privacy.domains import COUNT, Box, Cube, entries
from dpeffects.privacy.release import Split
from dpeffects.privacy.rows import Block, GroupIndex, RowFunction, reads
from dpeffects.privacy.tight_domains import BoxWithSquares

__all__ = [
    "COUNT",
    "Block",
    "Box",
    "BoxWithSquares",
    "Budget",
    "Charge",
    "Cube",
    "Curator",
    "GroupIndex",
    "NoisyValue",
    "RowFunction",
    "Share",
    "Split",
    "SumQuery",
    "entries",
    "reads",
]
