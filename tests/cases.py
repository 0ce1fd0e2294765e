"""Many cases in one test."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from tests.once import put, seeded

Test = Callable[..., None]


def each(names: str | tuple[str, ...], cases: Iterable[Any]) -> Callable[[Test], Test]:
    """Like `pytest.mark.parametrize`, as one test that goes through all cases.

    Thousands of tests take long to be found and sent around. Here all cases that fail are told at
    the end, each with its error. Every case has the noise that a test of its own would have, but
    fixtures are made once. The decorators may be put upon each other.
    """
    given, cases = (names,) if isinstance(names, str) else names, list(cases)
    assert cases, "there are no cases"

    def loop(test: Test) -> Test:
        asked = inspect.signature(test).parameters.values()
        own = [parameter for parameter in asked if parameter.name not in (*given, "request")]

        @functools.wraps(test)
        def looped(request: pytest.FixtureRequest, **fixtures: Any) -> None:
            more = {"request": request} if hasattr(test, "looped") else {}
            wrong: list[BaseException] = []
            skipped: list[BaseException] = []
            for case in cases:
                values = dict(zip(given, (case,) if len(given) == 1 else case, strict=True))
                if not request.node.get_closest_marker("real_noise"):
                    put(seeded(request.node.nodeid.partition("::")[0]))
                try:
                    test(**more, **fixtures, **values)
                except (Exception, BaseExceptionGroup, pytest.fail.Exception) as error:
                    error.add_note(f"with {values!r}"[:1000])
                    wrong.append(error)
                except pytest.skip.Exception as error:
                    skipped.append(error)
            if wrong:
                raise BaseExceptionGroup(f"{len(wrong)} of {len(cases)} cases", wrong)
            if skipped:
                raise skipped[0]

        request = inspect.Parameter("request", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        looped.__signature__ = inspect.Signature([request, *own])  # type: ignore[attr-defined]
        looped.looped = True  # type: ignore[attr-defined]
        return looped

    return loop
