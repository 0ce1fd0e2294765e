"""``dpeffects combine``: the releases of several sites, one effect."""

from __future__ import annotations

import argparse

from dpeffects.commands.shared import (
    Command,
    check_files,
    output_arguments,
    put,
    put_record,
    record_argument,
    record_files,
    render,
)
from dpeffects.errors import OptionError
from dpeffects.sites import combine
from dpeffects.sites.rules import RULES


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add = parser.add_argument
    add("releases", nargs="+", metavar="FILE", help="site releases (dpeffects release)")
    add("--rule", choices=list(RULES), default="mvagg", help="default mvagg: minimum variance")
    add("--trust", metavar="FOLDER", help="public keys, SITE.pem: refuse what they did not sign")
    add("--request", metavar="ID", help="refuse releases that answer another request")
    add("--left-out", action="append", default=[], metavar="SITE=REASON", help="did not answer")
    record_argument(output_arguments(parser))


def run(given: argparse.Namespace) -> None:
    """Combine and show."""
    check_files(given, given.out, *record_files(given.record))
    fit = combine(
        given.releases,
        given.rule,
        conf_level=given.conf_level,
        trust=given.trust,
        request=given.request,
        left_out=dict(map(_absent, given.left_out)),
    )
    put(given, render(given, fit.summary, fit.to_dict), repr(fit))
    put_record(given, fit)


def _absent(pair: str) -> tuple[str, str]:
    site, equals, reason = pair.partition("=")
    if not equals or not site or not reason:
        raise OptionError(f"--left-out takes SITE=REASON, got {pair!r}")
    return site, reason


COMMAND = Command(
    "combine",
    "combine the releases of several sites to one effect",
    arguments,
    run,
    """\
  dpeffects combine north.json south.json east.json
  dpeffects combine *.json --rule ivw --trust keys/ \\
      --left-out "West=did not answer"
""",
)
