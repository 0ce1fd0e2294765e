"""The parser of all commands, and what a command is."""

from __future__ import annotations

import argparse
import inspect
import re
import textwrap
from collections.abc import Callable, Iterable
from dataclasses import fields
from itertools import pairwise
from typing import Any, NamedTuple, NoReturn

import dpeffects
from dpeffects.errors import closest, did_you_mean, instead_of
from dpeffects.estimators import conditional_methods, registry, table_methods

_EPILOG = """\
start with
  dpeffects demo                    a whole study, explained
  dpeffects methods                 what there is
  dpeffects COMMAND --help          arguments and examples

exit code: 0, or 2 after an error, or 1 from an audit that found a broken promise
"""


class Command(NamedTuple):
    """A command: its name, what it does, its arguments, the function that runs it, and examples.

    What ``run`` returns is the exit code; None is 0.
    """

    name: str
    about: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int | None]
    examples: str = ""

    @classmethod
    def of(
        cls,
        name: str,
        run: Callable[[argparse.Namespace], int | None],
        add_arguments: Callable[[argparse.ArgumentParser], None] = lambda parser: None,
    ) -> Command:
        """Return the command that a function runs, whose docstring says all the rest."""
        first, *_ = (inspect.getdoc(run) or name).split("\n\n")
        about = " ".join(first.removesuffix(".").split())
        return cls(name, _uncapped(about), add_arguments, run, shell_examples(run))


def first_words(function: Callable[..., Any]) -> str:
    """Return the beginning of a docstring, up to a full stop or a semicolon."""
    return _uncapped(re.split(r"[.;]", inspect.getdoc(function) or "")[0])


def _uncapped(text: str) -> str:
    return text[:1].lower() + text[1:]


def shell_examples(function: Callable[..., Any]) -> str:
    """Return the examples of a command, which end a docstring."""
    _, _, text = (inspect.getdoc(function) or "").partition("In a shell::\n\n")
    return textwrap.indent(textwrap.dedent(text), "  ")


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
    parser.add_argument("--version", action="version", version=f"dpeffects {dpeffects.__version__}")
    parser.set_defaults(parser=parser)
    add_commands(parser, commands)
    return parser
