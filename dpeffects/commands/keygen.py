"""``dpeffects keygen``: a key pair for a site."""

from __future__ import annotations

import argparse

from dpeffects.commands.shared import Command


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("site", help="name of the site")
    parser.add_argument("--folder", default=".", help="where to write the two files")


def run(given: argparse.Namespace) -> None:
    """Make the keys and say what to do with them."""
    from dpeffects.sites.signing import make_keys

    private, public = make_keys(given.site, given.folder)
    print(f"{private}: keep it here, it signs releases (dpeffects release --sign)")
    print(f"{public}: send it to the centre (dpeffects combine --trust)")


COMMAND = Command(
    "keygen",
    "make a key pair with which a site signs its releases",
    arguments,
    run,
    "  dpeffects keygen North --folder keys\n",
)
