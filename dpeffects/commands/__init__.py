"""The command line, one file a command: a function that adds its arguments, one that runs it."""

from __future__ import annotations

import dpeffects
from dpeffects.commands import (
    audit,
    balance,
    bench,
    bounds_template,
    cate,
    combine,
    demo,
    effect,
    keygen,
    ledger,
    methods,
    plan,
    release,
    synthetic_setup,
)
from dpeffects.commands.shared import Command, Parser

COMMANDS: tuple[Command, ...] = (
    *effect.COMMANDS,
    cate.COMMAND,
    balance.COMMAND,
    methods.COMMAND,
    bounds_template.COMMAND,
    plan.COMMAND,
    ledger.COMMAND,
    audit.COMMAND,
    bench.COMMAND,
    release.COMMAND,
    combine.COMMAND,
    keygen.COMMAND,
    synthetic_setup.COMMAND,
    demo.COMMAND,
)
_EPILOG = """\
start with
  dpeffects demo                    a whole study, explained
  dpeffects methods                 what there is
  dpeffects COMMAND --help          arguments and examples

exit code: 0, or 2 after an error, or 1 from an audit that found a broken promise
"""


def parser() -> Parser:
    """Return the parser of all commands; what it parses has ``run``, the function to call."""
    about = "Differentially private treatment effects."
    made = Parser(prog="dpeffects", description=about, epilog=_EPILOG)
    made.add_argument("--version", action="version", version=f"dpeffects {dpeffects.__version__}")
    commands = made.add_subparsers(metavar="command", required=True)
    for command in COMMANDS:
        described = f"{command.about[0].upper()}{command.about[1:]}."
        examples = f"examples\n{command.examples}" if command.examples else None
        sub = commands.add_parser(
            command.name, help=command.about, description=described, epilog=examples
        )
        command.arguments(sub)
        sub.set_defaults(run=command.run)
    return made
