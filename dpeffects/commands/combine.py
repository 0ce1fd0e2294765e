"""``dpeffects combine``: the releases of several sites, one effect."""

from __future__ import annotations

import argparse
from pathlib import Path

from dpeffects.commands.shared import Command
from dpeffects.errors import ReleaseError
from dpeffects.sites import combine
from dpeffects.sites.rules import RULES


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add = parser.add_argument
    add("releases", nargs="+", metavar="FILE", help="site releases")
    add("--rule", choices=list(RULES), default="mvagg")
    add("--conf-level", type=float, default=0.95)
    add("--trust", metavar="FOLDER", help="public keys, SITE.pem: refuse what they did not sign")
    add("--left-out", action="append", default=[], metavar="SITE=REASON", help="did not answer")
    add("--json", action="store_true", help="print JSON instead of the summary")
    add("--out", metavar="FILE", help="also write there: JSON if it ends in .json, else text")


def run(given: argparse.Namespace) -> None:
    """Combine, print, and write where asked."""
    absent = dict(pair.partition("=")[::2] for pair in given.left_out)
    fit = combine(
        given.releases,
        given.rule,
        conf_level=given.conf_level,
        trust=given.trust,
        left_out=absent,
    )
    if given.out is not None:
        text = fit.to_json() if given.out.lower().endswith(".json") else str(fit.summary())
        try:
            Path(given.out).write_text(text + "\n", encoding="utf-8")
        except OSError as error:
            raise ReleaseError(f"{given.out} cannot be written: {error.strerror}") from None
    print(fit.to_json() if given.json else fit.summary())


COMMAND = Command("combine", "combine the releases of several sites", arguments, run)
