"""One case: a call is made, and what came of it is judged.

A call ends with a result that can be written down, or with one error of the package's own; an error
before the first draw has charged nothing; no error or warning holds a value of the data.
"""

from __future__ import annotations

import contextlib
import json
import math
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

import dpeffects as dpe
from dpeffects.errors import EstimationError
from dpeffects.privacy.noise import SecureNoise
from dpeffects.seeded import SeededNoise
from tests.fuzzing.calls import Call, from_formula, from_frame
from tests.fuzzing.frames import DAY, FLOATS, SECRET

FORMULAS, FRAMES, REQUESTS, ENTRANCES = 20_000, 10_000, 5_000, 2_000


@dataclass(frozen=True)
class Outcome:
    """What came of a case: how it ended, and the message or what was wrong."""

    number: int
    call: str
    end: str
    detail: str = ""
    good: bool = True


def case(number: int) -> Call:
    """The call of a number."""
    return from_formula(number) if number < FORMULAS else from_frame(number)


def run(number: int) -> Outcome:
    """Make a case's call and judge how it ended."""
    call = case(number)
    shown = str(call)
    told: list[str] = []
    results: list[str] = []
    with drawing() as draws, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", ResourceWarning)  # of what earlier tests left behind
        try:
            result = call()
        except dpe.DPEffectsError as error:
            told.append(str(error))
            end, detail, wrong = _refused(call, error, draws)
        except Exception:
            told.append("")
            end, detail, wrong = "an exception", traceback.format_exc(), True
        else:
            end, detail, wrong = _answered(call, result, results)
    told += [str(w.message) for w in caught]
    if not wrong and (part := _partly_paid(call)):
        end, detail, wrong = "a part of the budget is charged", part, True
    if leaked := [v for v in secrets(call, 6) if v in "\n".join(told)]:
        end, detail, wrong = "a value of the data in a message", f"{leaked} in {told}", True
    if leaked := [v for v in secrets(call, 10) if v in "\n".join(results)]:
        end, detail, wrong = "a value of the data in a result", f"{leaked} in {results}", True
    return Outcome(number, shown, end, detail, not wrong)


@contextlib.contextmanager
def drawing() -> Iterator[Counter[str]]:
    """Count the draws of every noise source."""
    counts: Counter[str] = Counter()
    kept = []
    for source in (SeededNoise, SecureNoise):
        for name in ("laplace", "matrices", "cubes", "gaussian", "flip"):
            original = getattr(source, name)
            kept.append((source, name, original))

            def counted(self: Any, *given: Any, original: Any = original, name: str = name) -> Any:
                drawn = original(self, *given)
                counts[name] += 1
                return drawn

            setattr(source, name, counted)
    try:
        yield counts
    finally:
        for source, name, original in kept:
            setattr(source, name, original)


def _refused(call: Call, error: Exception, draws: Counter[str]) -> tuple[str, str, bool]:
    charged = any(ledger.charges for ledger in call.ledgers)
    if not charged:
        return "refused, nothing charged", str(error), False
    kind = type(error).__name__
    if not draws:
        return "charged, then refused before a draw", f"{kind}: {error}", True
    wrong = not isinstance(error, EstimationError)
    return f"refused after a draw: {kind}", str(error), wrong


def _partly_paid(call: Call) -> str:
    """What was charged where it is neither nothing nor all that was asked for."""
    asked = call.arguments.get("epsilon")
    prices = list(asked.values()) if isinstance(asked, dict) else [asked] * len(call.ledgers)
    for ledger, price in zip(call.ledgers, prices, strict=False):
        if ledger.charges and not math.isclose(float(ledger.spent[0]), float(price), rel_tol=1e-9):
            return f"{float(ledger.spent[0])} of {price}"
    return ""


def _answered(call: Call, result: Any, results: list[str]) -> tuple[str, str, bool]:
    """A result can be printed and written down."""
    try:
        text = str(result.summary() if hasattr(result, "summary") else result)
        wide = max(map(len, text.splitlines()), default=0)
        if call.function != "declare" and hasattr(result, "to_json"):
            results += [] if call.shown else [text, result.to_json()]
            json.loads(result.to_json())
        if call.function in ("dp_ate", "dp_att", "dp_atc", "dp_balance", "dp_cate"):
            if wide > 80:
                return "a line is too long", text, True
            asked = call.arguments
            spent = result.guarantee
            if spent.epsilon > asked["epsilon"] or spent.delta > asked["delta"]:
                return "spent more than asked", repr(spent), True
    except Exception:
        return "a result that cannot be shown", traceback.format_exc(), True
    return "answered", "", False


def secrets(call: Call, digits: int) -> list[str]:
    """Values of the data that would be recognised in a text: numbers by their first digits."""
    frame = call.data
    if not isinstance(frame, pd.DataFrame):
        return []
    values = (v for _, column in frame.items() for v in column.tolist())
    numbers = (abs(float(v)) for v in values if isinstance(v, float | np.floating))
    found = {f"{v:.{digits}g}" for v in numbers if math.isfinite(v)}
    known = {f"{abs(v):.{digits}g}" for v in FLOATS}
    return [SECRET, DAY.date().isoformat(), *(v for v in found - known if len(v) > digits)]
