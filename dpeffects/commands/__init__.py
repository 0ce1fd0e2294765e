"""The command line, one file a command: a function that adds its arguments, one that runs it."""

from __future__ import annotations

from dpeffects.commands import combine, keygen, ledger, release
from dpeffects.commands.shared import Parser

COMMANDS = (release.COMMAND, combine.COMMAND, keygen.COMMAND, ledger.COMMAND)


def parser() -> Parser:
    """Return the parser of all commands; what it parses has ``run``, the function to call."""
    made = Parser(prog="dpeffects", description="Differentially private treatment effects.")
    commands = made.add_subparsers(metavar="command", required=True)
    for command in COMMANDS:
        sub = commands.add_parser(command.name, help=command.about, description=command.about)
        command.arguments(sub)
        sub.set_defaults(run=command.run)
    return made
