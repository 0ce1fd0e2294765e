"""The command line: ``dpeffects COMMAND`` and ``python -m dpeffects COMMAND``."""

from dpeffects.cli.entry import main

__all__ = ["main"]
