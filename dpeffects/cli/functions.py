"""Commands that call one public function and show the result that it returns."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import dpeffects as dpe
from dpeffects.cli.arguments import add_parameters, values_for
from dpeffects.cli.output import add_output_arguments, check_files, put_result
from dpeffects.cli.parser import Command
from dpeffects.files import read_bounds


def read_bounds_file(values: dict[str, Any]) -> dict[str, Any]:
    """Read the file of bounds that the arguments of a function name, where there is one."""
    path = values.get("bounds")
    return values if path is None else values | {"bounds": read_bounds(path)}


def function_command(
    name: str,
    function: str,
    examples: str,
    *,
    like: str = "",
    skip: Iterable[str] = (),
    changes: Mapping[str, dict[str, Any]] | None = None,
    more: Callable[[argparse.ArgumentParser], None] = lambda parser: None,
    prepare: Callable[[argparse.Namespace, dict[str, Any]], dict[str, Any]] | None = None,
    show: Callable[..., int | None] = put_result,
    **output: Any,
) -> Command:
    """Return the command of a public function.

    Parameters
    ----------
    name, function, examples
        Of the command; of the function in `dpeffects`, whose first line says what it does.
    like
        The function whose signature this one has, where it is written there.
    skip, changes, more
        What differs in a shell, as in `add_parameters`; a function that adds other arguments.
    prepare
        Checks the arguments of the call and reads the files that they name.
    show
        Prints or writes the result; what it returns is the exit code.
    **output
        As in `add_output_arguments`.
    """

    def add_arguments(parser: argparse.ArgumentParser) -> None:
        add_parameters(parser, getattr(dpe, like or function), skip=skip, **(changes or {}))
        more(parser)
        add_output_arguments(parser, **output)

    def run(args: argparse.Namespace) -> int | None:
        """Check everything that can fail before a budget is spent; then call, and show."""
        check_files(args)
        values = read_bounds_file(values_for(getattr(dpe, like or function), args))
        if prepare is not None:
            values = prepare(args, values)
        return show(args, getattr(dpe, function)(**values))

    first, *_ = re.split(r"[.;]", getattr(dpe, function).__doc__ or name)
    return Command(name, first[0].lower() + first[1:], add_arguments, run, examples)
