"""Nothing that an office shows depends on a record but through what was released.

`make evidence TABLE=replay_office RUNS=4` asks every kind of request of every pair.
"""

import pytest

from dpeffects.services.office import answering_process
from tests.office import replayed
from tests.office.replayed import kinds

SOME = ("missing values", "no declared levels", "the last treated leaves")


def test_there_are_thirty_kinds_of_request():
    assert kinds() >= 30


@pytest.mark.long
@pytest.mark.parametrize("name", SOME)
def test_an_office_shows_the_same_of_neighbours(name):
    found, shown = replayed.replayed(name, some=4)
    assert shown > 100
    assert found.violations == ()
    assert 0.0 < found.largest <= 1.0


@pytest.mark.long
def test_a_reason_that_tells_of_a_record_is_found(monkeypatch):
    """A gate that refuses where a value cannot be read."""
    real = answering_process.result_of

    def told(question, policy, **how):
        if any(policy._records()[1].values()):
            return {"status": "refused", "reason": "values are missing"}
        return real(question, policy, **how)

    monkeypatch.setattr(answering_process, "result_of", told)
    assert replayed.replayed("missing values", some=20)[0].violations
