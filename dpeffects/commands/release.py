"""``dpeffects release``: a site's effect, without its data."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from dpeffects.commands.shared import Command, check_out, read_bounds, read_data, settings
from dpeffects.sites import site_release
from dpeffects.sites.release import ESTIMATORS


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add = parser.add_argument
    add("formula", help='"outcome ~ treatment | covariates"')
    add("data", help="a CSV or Parquet file; it is read here and goes nowhere")
    add("--site", required=True, help="name of this site")
    add("--epsilon", required=True, type=float, help="privacy budget of this release")
    add("--delta", type=float, default=0.0)
    add("--method", help="one of dpeffects.methods(); default private_aipw")
    add("--estimand", choices=list(ESTIMATORS), default="ATE")
    add("--level", choices=["sample", "label"], help="what is private; default the method's")
    add("--bounds", metavar="FILE", help="TOML: [bounds], y = {range = [0, 1]}, g = {levels = []}")
    add("--option", action="append", default=[], metavar="NAME=VALUE", help="of the method")
    add("--share", action="append", default=[], metavar="NAME=VALUE", help="of the budget")
    add("--no-variance", action="store_true", help="spend nothing on the variance")
    add("--seed", type=int, help="reproducible noise; the release is not private then")
    add("--request", default="", help="identifier of the request that this answers")
    add("--sign", metavar="KEY", help="private key of this site (PEM)")
    add("--out", metavar="FILE", help="where to write the release; default: print it")
    add("--force", action="store_true", help="overwrite FILE")


def run(given: argparse.Namespace) -> None:
    """Check everything that can fail before the budget is spent; then release, sign and save."""
    sign = _signer(given.sign)
    check_out(given.out, given.force)
    wanted = settings(given.option, "option")
    for name, value in (("method", given.method), ("level", given.level), ("seed", given.seed)):
        if value is not None:
            wanted[name] = value
    if given.share:
        wanted["shares"] = settings(given.share, "share")
    if given.no_variance:
        wanted["variance"] = False
    release = sign(
        site_release(
            given.formula,
            read_data(given.data),
            site=given.site,
            estimand=given.estimand,
            request=given.request,
            epsilon=given.epsilon,
            delta=given.delta,
            bounds=None if given.bounds is None else read_bounds(given.bounds),
            **wanted,
        )
    )
    if given.out is None:
        print(release.to_json())
    else:
        release.save(given.out)
        print(f"{release!r} written to {given.out}")


def _signer(key: str | None) -> Callable[[Any], Any]:
    """Return what signs a release; a key that cannot be read is an error now."""
    if key is None:
        return lambda release: release
    from dpeffects.sites.signing import read_private, sign

    private = read_private(key)
    return lambda release: sign(release, private)


COMMAND = Command("release", "release a site's effect, without its data", arguments, run)
