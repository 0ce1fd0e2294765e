"""Commands that call one public function and show the result that it returns."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import dpeffects as dpe
from dpeffects.cli.arguments import add_parameters, values_for
from dpeffects.cli.commands import Command, first_words, shell_examples
from dpeffects.cli.output import add_output_arguments, check_files, put_result
from dpeffects.design.codebook import read_bounds
from dpeffects.errors import OptionError


def _allotment(args: argparse.Namespace) -> dpe.Allotment:
    if args.ledger is None:
        raise OptionError("--allotment is a part of a ledger: say which one with --ledger")
    return dpe.open_ledger(args.ledger, args.dataset).allotment(args.allotment)


def function_command(
    name: str,
    function: str | Callable[..., Any],
    examples: str = "",
    *,
    like: Sequence[str] = (),
    skip: Iterable[str] = (),
    changes: Mapping[str, dict[str, Any]] | None = None,
    more: Callable[[argparse.ArgumentParser], None] = lambda parser: None,
    prepare: Callable[[argparse.Namespace, dict[str, Any]], dict[str, Any]] | None = None,
    call: Callable[[argparse.Namespace, dict[str, Any]], Any] | None = None,
    show: Callable[..., int | None] = put_result,
    **output: Any,
) -> Command:
    """Return the command of a public function.

    Parameters
    ----------
    name, function, examples
        Of the command; the function, or its name in `dpeffects`, whose first line says what it
        does, and whose docstring ends in examples of the command, if there are none here.
    like
        The functions whose arguments this one takes, where its own signature does not say so.
    skip, changes, more
        What differs in a shell, as in `add_parameters`; a function that adds other arguments.
    prepare
        Checks the arguments of the call and reads the files that they name.
    call
        Calls the function, or what the arguments ask for in its place.
    show
        Prints or writes the result; what it returns is the exit code.
    **output
        As in `add_output_arguments`.
    """

    def called() -> Callable[..., Any]:
        return getattr(dpe, function) if isinstance(function, str) else function

    def signatures() -> list[Callable[..., Any]]:
        return [getattr(dpe, each) for each in like] or [called()]

    def add_arguments(parser: argparse.ArgumentParser) -> None:
        add_parameters(parser, *signatures(), skip=skip, **(changes or {}))
        if any("ledger" in inspect.signature(each).parameters for each in signatures()):
            about = "the part of the ledger to charge; see dpeffects ledger allot --help"
            parser.add_argument("--allotment", metavar="NAME", help=about)
        more(parser)
        add_output_arguments(parser, **output)

    def run(args: argparse.Namespace) -> int | None:
        """Check everything that can fail before a budget is spent; then call, and show."""
        check_files(args)
        values = values_for(args, *signatures())
        if values.get("bounds") is not None:
            values["bounds"] = read_bounds(values["bounds"])
        if getattr(args, "allotment", None) is not None:
            values |= {"ledger": _allotment(args), "dataset": None}
        if prepare is not None:
            values = prepare(args, values)
        if call is not None:
            return show(args, call(args, values))
        return show(args, called()(**values))

    own = examples or shell_examples(signatures()[0]).replace("dpeffects ate", f"dpeffects {name}")
    return Command(name, first_words(called()), add_arguments, run, own)
