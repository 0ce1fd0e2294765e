"""The command line: ``dpeffects COMMAND`` and ``python -m dpeffects COMMAND``."""

from dpeffects.cli.program import main

__all__ = ["main"]
