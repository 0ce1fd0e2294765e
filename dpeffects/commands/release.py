"""``dpeffects release``: a site's effect, without its data."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from dpeffects.commands.inputs import data_for
from dpeffects.commands.shared import (
    Command,
    budget_arguments,
    call_arguments,
    check_files,
    data_arguments,
    method_arguments,
    put,
)
from dpeffects.effects import dp_ate
from dpeffects.sites import site_release
from dpeffects.sites.release import ESTIMATORS


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    data_arguments(parser)
    add = parser.add_argument
    add("--site", required=True, help="name of this site")
    add("--estimand", choices=list(ESTIMATORS), default="ATE", help="default ATE")
    add("--request", default="", help="identifier of the request that this answers")
    add("--sign", metavar="KEY", help="private key of this site (PEM); see dpeffects keygen")
    add("--out", metavar="FILE", help="where to write the release; default: print it")
    add("--force", action="store_true", help="overwrite FILE")
    budget_arguments(parser)
    method_arguments(parser)


def run(given: argparse.Namespace) -> None:
    """Check everything that can fail before the budget is spent; then release, sign and save."""
    check_files(given, given.out)
    sign = _signer(given.sign)
    wanted = call_arguments(given, dp_ate, site_release)
    wanted |= {name: getattr(given, name) for name in ("site", "estimand", "request")}
    data = data_for(given.method, wanted, given.data)
    release = sign(site_release(given.formula, data, **wanted))
    put(given, release.to_json(), repr(release))


def _signer(key: str | None) -> Callable[[Any], Any]:
    """Return what signs a release; a key that cannot be read is an error now."""
    if key is None:
        return lambda release: release
    from dpeffects.sites.signing import read_private, sign

    private = read_private(key)
    return lambda release: sign(release, private)


COMMAND = Command(
    "release",
    "release a site's effect, without its data, as a JSON file for a centre",
    arguments,
    run,
    """\
  dpeffects release "y ~ t | sex" patients.csv --site North --epsilon 1 \\
      --bounds bounds.toml --sign North.private.pem --out north.json
""",
)
