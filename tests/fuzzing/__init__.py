"""Calls that nobody would write, made from numbers: case 1234 is the same call on every machine.

Cases below `FORMULAS` are formulas of a grammar over well-formed data, the others are frames with
options. `benchmarks/fuzz.py` runs all of them, `tests/test_fuzz.py` some.
"""

from tests.fuzzing.cases import FORMULAS, FRAMES, Outcome, run

__all__ = ["FORMULAS", "FRAMES", "Outcome", "run"]
