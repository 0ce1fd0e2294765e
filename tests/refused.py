"""Calls that are refused: in one line, and before anything is charged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import dpeffects as dpe
from dpeffects.errors import DPEffectsError, OptionError
from tests.cases import each


def refused(
    words: str,
    call: Callable[..., Any],
    *given: Any,
    error: type[Exception] = OptionError,
    **asked: Any,
) -> str:
    """The line with which a call is refused, which has these words; a ledger is not touched."""
    ledger = dpe.Ledger(1e6, 0.5)
    with pytest.raises(error, match=words or None) as caught:
        call(*given, **{"ledger": ledger} | asked)
    assert isinstance(caught.value, DPEffectsError)
    assert "\n" not in str(caught.value)
    assert ledger.charges == ()
    assert ledger.spent == (0, 0)
    return str(caught.value)


def refusals(
    call: Callable[..., Any], *cases: tuple[Any, ...], error: type[Exception] = OptionError
) -> Callable[..., None]:
    """A test of all cases: what is changed about a call, the words, and the error if another.

    A case may begin with a formula.
    """

    @each("case", cases)
    def test(case: tuple[Any, ...]) -> None:
        formula = {"formula": case[0]} if isinstance(case[0], str) else {}
        change, *rest = case[len(formula) :]
        words = next((x for x in rest if isinstance(x, str)), "")
        other = next((x for x in rest if not isinstance(x, str)), error)
        refused(words, call, error=other, **formula | change)

    return test
