"""Requests that nobody would send: one of our sentences each, no value of the data, nobody in.

`benchmarks/fuzz.py --office` sends 7,000, and has those answered that are accepted.
"""

from tests.fuzzing import FORMULAS, FRAMES, REQUESTS
from tests.fuzzing.office import DIGITS, WORD, Reply, leaked, opened, outcome, planted_records

FIRST = FORMULAS + FRAMES


def test_requests_that_nobody_would_send():
    numbers = [*range(FIRST, FIRST + 120), *range(FIRST + REQUESTS, FIRST + REQUESTS + 60)]
    with opened(workers=False) as here:
        wrong = [found for number in numbers if not (found := outcome(here, number)).good]
    assert wrong == []


def test_values_would_be_found():
    row = planted_records().iloc[0]
    for value in (f"{row['y']:g}", f"{row['huge']:.5e}", row["note"]):
        assert leaked([Reply(400, "", f"no {value}")], "")
        assert leaked([Reply(303, f"location: /{value}")], "")
        assert leaked([Reply(200)], f'{{"event": "{value}"}}')
    for value in (repr(row["z"]), WORD, DIGITS[0]):
        assert leaked([Reply(200, "", f'{{"status": "answered", "reason": "{value}"}}')], "")
