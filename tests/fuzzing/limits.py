"""Cases with an end: of processor time, and of memory."""

from __future__ import annotations

import contextlib
import resource
import signal
from collections.abc import Iterator
from functools import partial
from typing import Any

from tests.fuzzing.cases import FORMULAS, FRAMES, REQUESTS, Outcome, run

SECONDS, MEMORY = 60.0, 8 * 2**30
"""Of the processor, and bytes: `auto` takes up to 21 s to choose, on a loaded machine (case 25)."""
CALLS, OF_OFFICE = FORMULAS + FRAMES, 250
"""Where requests begin, and how many of them one office gets."""


class Hang(BaseException):
    """A case worked for too long."""


@contextlib.contextmanager
def limited() -> Iterator[None]:
    """Limit what is done by processor time and memory."""

    def hang(*_: object) -> None:
        raise Hang

    before, most = signal.signal(signal.SIGPROF, hang), resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, most[1]))
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)
        resource.setrlimit(resource.RLIMIT_DATA, most)


def judged(number: int, case: Any = run) -> Outcome:
    """Make a case within limits, and say what came of it."""
    try:
        with limited():
            return case(number)
    except Hang:
        return Outcome(number, "", "a hang", good=False)
    except BaseException as error:
        return Outcome(number, "", "a case that cannot be made", repr(error), good=False)


def outcomes(numbers: range) -> list[Outcome]:
    """What came of some cases; one office gets those that are requests.

    In a quarter of offices there are workers, and what is accepted is followed to its answer.
    """
    if numbers.start < CALLS:
        return [judged(number) for number in numbers]
    from tests.fuzzing.office import opened, outcome, overspent

    answered = (numbers.start - CALLS) // OF_OFFICE % 4 == 0 and numbers.start < CALLS + REQUESTS
    with opened(workers=answered) as here:
        found = [judged(number, partial(outcome, here)) for number in numbers]
        if wrong := overspent(here):
            found.append(Outcome(numbers[-1], "", "budgets and ledger differ", wrong, good=False))
    return found
