"""Row functions, declared as functions.

    @row("treated", "outcome")
    def residual(rows, means):
        return rows.outcome - np.where(rows.treated, means[0], means[1])

    curator.sums("residuals", residual(means), box, share="estimate")

The function gets rows and known numbers; called with the numbers alone, it is what a curator takes:
a function of rows that says what it reads, and that may travel to other processes.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Concatenate, ParamSpec

Numbers = ParamSpec("Numbers")


class RowPartial:
    """A row function: what it reads, and the public or released numbers that it is ``given``."""

    def __init__(
        self,
        make: Callable[..., RowPartial],
        function: Callable[..., Any],
        reads: tuple[str, ...],
        given: Mapping[str, Any],
    ) -> None:
        self.make, self.function, self.given = make, function, given
        more = (name for x in given.values() for name in getattr(x, "reads", ()))
        self.reads = tuple(dict.fromkeys((*reads, *more)))

    def __call__(self, rows: Any, /) -> Any:
        """Values of some rows."""
        return self.function(rows, **self.given)

    def __reduce__(self) -> Any:
        return _again, (self.make, self.given)


def _again(make: Callable[..., RowPartial], given: Mapping[str, Any]) -> RowPartial:
    return make(**given)


def row(
    *reads: str,
) -> Callable[[Callable[Concatenate[Any, Numbers], Any]], Callable[Numbers, RowPartial]]:
    """Declare a row function: ``f(rows, a, b)`` becomes ``f(a, b)``, which takes rows.

    What row functions among its numbers read is read too.
    """

    def declare(
        function: Callable[Concatenate[Any, Numbers], Any],
    ) -> Callable[Numbers, RowPartial]:
        signature = inspect.signature(function)
        own = signature.replace(parameters=list(signature.parameters.values())[1:])

        @functools.wraps(function)
        def make(*given: Numbers.args, **named: Numbers.kwargs) -> RowPartial:
            bound = own.bind(*given, **named)
            bound.apply_defaults()
            return RowPartial(make, function, reads, dict(bound.arguments))

        make.__signature__, make.reads = own, reads  # type: ignore[attr-defined]
        return make

    return declare
