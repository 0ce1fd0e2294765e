"""``dpeffects synthetic-setup``: the environment of the generators of synthetic data."""

from __future__ import annotations

import argparse

from dpeffects.commands.shared import Command


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add no arguments: the folder is that of DPEFFECTS_GENERATORS, or in the user's cache."""


def run(given: argparse.Namespace) -> None:
    """Make the environment and say where it is."""
    from dpeffects.unproved.generators import environment

    print(
        f"Installing {environment.LIBRARY} in {environment.folder()} (about 500 MB) ...", flush=True
    )
    environment.make()
    print('Ready: dp_ate(..., method="synthetic", accept_library=True)')


COMMAND = Command(
    "synthetic-setup",
    "make the environment that method synthetic needs",
    arguments,
    run,
    "  dpeffects synthetic-setup\n  DPEFFECTS_GENERATORS=/opt/dpmm dpeffects synthetic-setup\n",
)
