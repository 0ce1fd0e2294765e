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
    with pytest.raises(error, match=words) as caught:
        call(*given, **{"ledger": ledger} | asked)
    assert isinstance(caught.value, DPEffectsError)
    assert "\n" not in str(caught.value)
    assert ledger.spends == ()
    assert ledger.spent == (0, 0)
    return str(caught.value)


def refusals(call: Callable[..., Any], *cases: tuple[Any, ...]) -> Callable[..., None]:
    """A test of all cases: what is changed about a call, the words, and the error if another."""

    @each(("change", "words", "error"), [(*case, OptionError)[:3] for case in cases])
    def test(change: dict[str, Any], words: str, error: type[Exception]) -> None:
        refused(words, call, error=error, **change)

    return test
