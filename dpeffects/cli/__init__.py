"""The command line: ``dpeffects COMMAND`` and ``python -m dpeffects COMMAND``."""

from collections.abc import Sequence

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    from dpeffects.cli.program import main as run  # it loads all commands, those of the wings too

    return run(argv)
