"""The command line: ``dpeffects COMMAND`` and ``python -m dpeffects COMMAND``."""

import sys
from collections.abc import Sequence

import dpeffects as dpe

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    if sys.stdout and [*(sys.argv[1:] if argv is None else argv)] == ["--version"]:
        print(f"dpeffects {dpe.__version__}")  # as the parser says it, before commands are loaded
        return 0
    from dpeffects.cli.program import main as run  # it loads all commands, those of the wings too

    return run(argv)
