"""Thousands of calls that nobody would write: what they end with.

    python benchmarks/fuzz.py                  # 20,000 formulas and 10,000 frames with options
    python benchmarks/fuzz.py --office         # 5,000 requests to an office, 2,000 to get into one
    python benchmarks/fuzz.py --workers 2 --first 0 --last 2000
    python benchmarks/fuzz.py --case 1234      # one of them, with what it was and how it ended

Each case is made from its number alone (`tests/fuzzing`). A case that works for more than 20
seconds is a hang; memory is limited. Requests go to a server, which in a quarter of them has
workers: those that it accepts are followed until they are answered.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import resource
import signal
import sys
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from multiprocessing import get_context
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "POLARS_MAX_THREADS"):
    os.environ.setdefault(variable, "1")

import pandas as pd  # noqa: E402
from report import save  # noqa: E402

from tests.fuzzing import ENTRANCES, FORMULAS, FRAMES, REQUESTS, Outcome, run  # noqa: E402

SECONDS, MEMORY, CHUNK, OF_OFFICE = 20.0, 8 * 2**30, 50, 250
PARENT, CALLS = 0, FORMULAS + FRAMES
LAST = CALLS + REQUESTS + ENTRANCES


class Hang(BaseException):
    """A case worked for too long."""


def hang(*_: object) -> None:
    raise Hang


def limited(parent: int = 0) -> None:
    """Processor time and memory have an end, and so has a worker whose parent is gone."""
    global PARENT
    PARENT = parent
    signal.signal(signal.SIGPROF, hang)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))


def judged(number: int, run: Callable[[int], Outcome]) -> Outcome:
    if PARENT and os.getppid() != PARENT:
        os._exit(1)
    faulthandler.dump_traceback_later(30 * SECONDS, exit=True)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        return run(number)
    except Hang:
        return Outcome(number, "", "a hang", good=False)
    except BaseException as error:
        return Outcome(number, "", "a case that cannot be made", repr(error), good=False)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        faulthandler.cancel_dump_traceback_later()


def part(numbers: range) -> list[Outcome]:
    if numbers.start < CALLS:
        return [judged(number, run) for number in numbers]
    from tests.fuzzing.office import opened, outcome, overspent

    answered = (numbers.start - CALLS) // OF_OFFICE % 4 == 0 and numbers.start < CALLS + REQUESTS
    with opened(workers=answered) as here:
        found = [judged(number, partial(outcome, here)) for number in numbers]
        if wrong := overspent(here):
            found.append(Outcome(numbers[-1], "", "budgets and ledger differ", wrong, good=False))
    return found


def kind(number: int) -> str:
    if number < CALLS:
        return "formulas" if number < FORMULAS else "frames with options"
    return "requests" if number < CALLS + REQUESTS else "sign-ins, sessions and tokens"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", type=int)
    parser.add_argument("--office", action="store_true")
    parser.add_argument("--first", type=int)
    parser.add_argument("--last", type=int)
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    limited()
    if given.case is not None:
        (found, *_) = part(range(given.case, given.case + 1))
        print(f"{found.call}\n\n{found.end}\n{found.detail}")
        sys.exit(not found.good)
    whole = (CALLS, LAST) if given.office else (0, CALLS)
    first = whole[0] if given.first is None else given.first
    last = whole[1] if given.last is None else given.last
    ends: dict[str, Counter[str]] = {}
    wrong, step = 0, OF_OFFICE if given.office else CHUNK
    todo = [range(i, min(i + step, last)) for i in range(first, last, step)]
    how = {"mp_context": get_context("spawn"), "initializer": limited, "initargs": (os.getpid(),)}
    with ProcessPoolExecutor(given.workers, **how) as pool:
        for done in as_completed([pool.submit(part, numbers) for numbers in todo]):
            for found in done.result():
                ends.setdefault(kind(found.number), Counter())[found.end] += 1
                wrong += not found.good
                if not found.good:
                    last_line = found.detail.strip().splitlines()[-1:] or [""]
                    print(f"--case {found.number}: {found.end}: {last_line[0][:300]}", flush=True)
    table = pd.DataFrame(ends).fillna(0).astype(int).sort_index()
    if (first, last) == whole:
        name, who = ("fuzz_office", "Requests") if given.office else ("fuzz", "Calls")
        title = f"{who} that nobody would write"
        save(name, title, {"": table.rename_axis("end").reset_index()})
    else:
        print(table.to_markdown())
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
