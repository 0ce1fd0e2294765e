"""The parser of all commands, and what a command is."""

from __future__ import annotations

import argparse
import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import pairwise
from typing import Any, NoReturn

import dpeffects as dpe
from dpeffects.cli.arguments import Function, Values, add_parameters, values_for
from dpeffects.cli.output import add_output_arguments, check_files, put
from dpeffects.design.codebook import read_bounds
from dpeffects.errors import OptionError, closest, did_you_mean, instead_of
from dpeffects.estimators import conditional_methods, registry, table_methods

_EPILOG = """\
start with
  dpeffects demo                    a whole study, explained
  dpeffects methods                 what there is
  dpeffects COMMAND --help          arguments and examples

exit code: 0, or 2 after an error, or 1 from an audit that found a broken promise
"""


@dataclass(frozen=True)
class Command:
    """A command: it calls a function, whose signature and docstring say its arguments and help.

    Parameters
    ----------
    name, function
        Of the command; what it calls. The docstring begins with what it does, and ends in examples
        of the command.
    like
        The functions whose arguments this one takes, where its own signature does not say so.
    skip, changes
        What differs in a shell, as in `add_parameters`.
    more
        A function of which the signature has further arguments, and the docstring their title.
    prepare
        Checks the arguments of the call and reads the files that they name.
    call
        Calls the function, or what the arguments ask for in its place.
    show
        Prints or writes the result; what it returns is the exit code, and None is 0.
    output
        As in `add_output_arguments`; None where nothing is written.
    commands
        Those of a command that has its own, and calls nothing itself.
    """

    name: str
    function: Function
    like: Sequence[Function] = ()
    skip: Iterable[str] = ()
    changes: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    more: Function | None = None
    prepare: Callable[[argparse.Namespace, Values], Values] = lambda args, values: values
    call: Callable[[argparse.Namespace, Values], Any] | None = None
    show: Callable[[argparse.Namespace, Any], int | None] = put
    output: Mapping[str, Any] | None = field(default_factory=dict)
    commands: Sequence[Command] = ()

    @property
    def signatures(self) -> Sequence[Function]:
        """The functions whose arguments it has."""
        return self.like or [self.function]

    @property
    def about(self) -> str:
        """What it does, up to a full stop or a semicolon."""
        return _first_words(self.function)

    @property
    def examples(self) -> str:
        """Examples, which end the docstring of the function, or of the one that it is like."""
        for function in (self.function, *self.like):
            _, _, text = (inspect.getdoc(function) or "").partition("In a shell::\n\n")
            if text:
                own = text.replace("dpeffects ate", f"dpeffects {self.name}")
                return textwrap.indent(textwrap.dedent(own), "  ")
        return ""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the function, and those of a shell."""
        if self.commands:
            return add_commands(parser, self.commands)
        add_parameters(parser, *self.signatures, skip=self.skip, **self.changes)
        if any("ledger" in inspect.signature(each).parameters for each in self.signatures):
            about = "the part of the ledger to charge; see dpeffects ledger allot --help"
            parser.add_argument("--allotment", metavar="NAME", help=about)
        if self.more is not None:
            group = parser.add_argument_group(_first_words(self.more))
            add_parameters(group, self.more, **self.changes)
            own = inspect.signature(self.more).parameters.values()
            parser.set_defaults(**{parameter.name: parameter.default for parameter in own})
        if self.output is not None:
            add_output_arguments(parser, **self.output)
        return None

    def run(self, args: argparse.Namespace) -> int | None:
        """Check everything that can fail before a budget is spent; then call, and show."""
        if self.output is not None:
            check_files(args)
        values = values_for(args, *self.signatures)
        if values.get("bounds") is not None:
            values["bounds"] = read_bounds(values["bounds"])
        if getattr(args, "allotment", None) is not None:
            values |= {"ledger": _allotment(args), "dataset": None}
        values = self.prepare(args, values)
        made = self.call(args, values) if self.call else self.function(**values)
        return self.show(args, made)


def _allotment(args: argparse.Namespace) -> dpe.Allotment:
    if args.ledger is None:
        raise OptionError("--allotment needs --ledger: it is a part of that ledger")
    return dpe.open_ledger(args.ledger, args.dataset).allotment(args.allotment)


def _first_words(function: Function) -> str:
    text = re.split(r"\.(?:\s|$)|;", " ".join((inspect.getdoc(function) or "").split()))[0]
    return text[:1].lower() + text[1:]


class Parser(argparse.ArgumentParser):
    """No abbreviations; errors on one line, without the usage."""

    def __init__(self, **settings: Any) -> None:
        settings["formatter_class"] = argparse.RawDescriptionHelpFormatter
        super().__init__(**settings, allow_abbrev=False)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Read arguments; those that a command does not have are its error, with what is near."""
        found, unknown = self.parse_known_args(args, namespace)
        if unknown:
            owner: argparse.ArgumentParser = getattr(found, "owner", self)
            wrong = next((x for x in unknown if x.startswith("-")), "")
            after = dict(pairwise(unknown)).get(wrong, "...")
            hint = _near(owner, wrong.strip("-").replace("-", "_"), after) if wrong else ""
            owner.error(f"unrecognized arguments: {' '.join(unknown)}.{hint}")
        return found

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and where to look."""
        if choice := _CHOICE.search(message):
            message += did_you_mean(choice[1], re.findall(r"[\w-]+", choice[2]))
        self.exit(2, f"{self.prog}: {one_line(message)} (see {self.prog} --help)\n")


def _near(parser: argparse.ArgumentParser, name: str, value: str) -> str:
    """A hint at what was perhaps meant: an argument of the command, or an option of a method."""
    typed = {x.strip("-"): x for action in parser._actions for x in action.option_strings}
    if "option" in typed:
        kinds = (registry(), conditional_methods(), table_methods())
        options = [spec.options for specs in kinds for spec in specs.values()]
        names = [f.name for kind in options for f in fields(kind) if f.init]
        if name in names:
            return f" Write --option {name}={value}."
        typed = {x: f"--option {x}=..." for x in names if closest(name, [x], 0.75)} | typed
    near = closest(name, typed)
    hint = instead_of(name, typed)
    if "design=" in hint:
        return f" Write {'--design ' if 'design' in typed else '--option design='}randomised."
    return hint.replace(repr(near), repr(typed[near])) if near else hint


_CHOICE = re.compile(r"invalid choice: '?([^' ]*)'? \(choose from (.*)\)")


def one_line(message: str, most: int = 1000) -> str:
    """Return a message on one line, and not endless."""
    line = " ".join(message.split())
    return line if len(line) <= most else f"{line[:most]} ..."


def add_commands(parser: argparse.ArgumentParser, commands: Iterable[Command]) -> None:
    """Add commands to a parser; the arguments it reads have ``run``, the function to call."""
    subparsers = parser.add_subparsers(metavar="command", required=True)
    for command in commands:
        subparser = subparsers.add_parser(
            command.name,
            help=command.about,
            description=f"{command.about[0].upper()}{command.about[1:]}.",
            epilog=f"examples\n{command.examples}" if command.examples else None,
        )
        subparser.set_defaults(run=command.run, owner=subparser)
        command.add_arguments(subparser)


def make_parser(commands: Iterable[Command]) -> Parser:
    """Return the parser of ``dpeffects``; the arguments it reads have ``parser``, itself."""
    parser = Parser(
        prog="dpeffects", description="Differentially private treatment effects.", epilog=_EPILOG
    )
    parser.add_argument("--version", action="version", version=f"dpeffects {dpe.__version__}")
    parser.set_defaults(parser=parser)
    add_commands(parser, commands)
    return parser
