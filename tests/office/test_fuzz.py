"""Requests that nobody would send: one of our sentences each, no value of the data, nobody in.

`make evidence TABLE=fuzz_office` sends 7,000, and has those answered that are accepted.
"""

import pytest

from tests.fuzzing import FORMULAS, FRAMES, REQUESTS
from tests.fuzzing.office import DIGITS, WORD, Reply, leaked, opened, outcome, planted_records

FIRST = FORMULAS + FRAMES


@pytest.mark.parametrize("many", [25, pytest.param(300, marks=pytest.mark.long)])
def test_requests_that_nobody_would_send(many):
    numbers = [k for first in (FIRST, FIRST + REQUESTS) for k in range(first, first + many)]
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
