"""The parser of all commands, and what a command is."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, NoReturn

import dpeffects

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


class Parser(argparse.ArgumentParser):
    """No abbreviations; errors on one line, without the usage."""

    def __init__(self, **settings: Any) -> None:
        settings["formatter_class"] = argparse.RawDescriptionHelpFormatter
        super().__init__(**settings, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and where to look."""
        self.exit(2, f"{self.prog}: {one_line(message)} (see {self.prog} --help)\n")


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
        subparser.set_defaults(run=command.run)
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
