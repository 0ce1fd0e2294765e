"""Calls that nobody would write, made from numbers: case 1234 is the same call on every machine.

Cases below `FORMULAS` are formulas of a grammar over well-formed data, the next ones frames with
options; then come `REQUESTS` to an office, and `ENTRANCES`: tries to get into one (`office`).
`make evidence` runs most of them, `tests/test_fuzz.py` and `tests/office/test_fuzz.py` some.
"""

from tests.fuzzing.cases import ENTRANCES, FORMULAS, FRAMES, REQUESTS, Outcome, run

__all__ = ["ENTRANCES", "FORMULAS", "FRAMES", "REQUESTS", "Outcome", "run"]
