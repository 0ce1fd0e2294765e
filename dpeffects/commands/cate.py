"""``dpeffects cate``: private conditional effects, as a function, at points, or by group."""

from __future__ import annotations

import argparse
from typing import Any

from dpeffects.cate.results import CateFunction
from dpeffects.commands.inputs import data_for
from dpeffects.commands.shared import (
    Command,
    budget_arguments,
    call_arguments,
    check_files,
    data_arguments,
    method_arguments,
    output_arguments,
    put,
    put_record,
    record_argument,
    record_files,
    render,
)
from dpeffects.effects import dp_cate
from dpeffects.errors import OptionError
from dpeffects.estimators._kernel_learner import RELEASES
from dpeffects.files import read_data


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    data_arguments(parser)
    add = parser.add_argument_group("what is released").add_argument
    add("--release", choices=RELEASES, default="function", help="default function")
    add("--at", metavar="FILE", help="points: covariates to query, taken as public")
    add("--by", metavar="TERMS", help='groups: discrete terms, such as "cut(age, [18, 65, 90])"')
    budget_arguments(parser)
    method_arguments(parser, "r_learner", level=False)
    parser.add_argument(
        "--accept-asymptotic", action="store_true", help="allow a guarantee that is only a claim"
    )
    add = output_arguments(parser)
    add("--save", metavar="FILE", help="write the function; dpeffects.load_cate reads it")
    record_argument(add)


def run(given: argparse.Namespace) -> None:
    """Check everything that can fail before the budget is spent; then estimate and show."""
    check_files(given, given.out, given.save, *record_files(given.record))
    _check_release(given)
    wanted = call_arguments(given, dp_cate) | _what(given)
    bounds = wanted.get("bounds")
    if given.at is not None:
        wanted["at"] = read_data(given.at, bounds)
    data = data_for(given.method, wanted, given.data, "CATE")
    fit = dp_cate(given.formula, data, **wanted)
    level = given.conf_level
    plain = fit.to_dict if isinstance(fit, CateFunction) else lambda: fit.to_dict(level)
    put(given, render(given, lambda: fit.summary(level), plain), repr(fit))
    if isinstance(fit, CateFunction) and given.save is not None:
        check_files(given, given.save)
        fit.save(given.save, overwrite=given.force)
    put_record(given, fit)


def _check_release(given: argparse.Namespace) -> None:
    for name, value, release in (
        ("--at", given.at, "points"),
        ("--by", given.by, "groups"),
        ("--save", given.save, "function"),
    ):
        if value is not None and given.release != release:
            raise OptionError(f"{name} is for --release {release}")
        if value is None and given.release == release and release != "function":
            raise OptionError(f"--release {release} needs {name}")


def _what(given: argparse.Namespace) -> dict[str, Any]:
    names = ("release", "by", "accept_asymptotic")
    return {name: getattr(given, name) for name in names if getattr(given, name) is not None}


COMMAND = Command(
    "cate",
    "estimate conditional average treatment effects with differential privacy",
    arguments,
    run,
    """\
  dpeffects cate "y ~ t | age + sex" data.csv --epsilon 1 --delta 1e-5 \\
      --bounds bounds.toml --save effects.json
  dpeffects cate "y ~ t | age + sex" data.csv --epsilon 1 --bounds bounds.toml \\
      --release groups --by "sex + cut(age, [18, 65, 90])"
  dpeffects cate "y ~ t | age + sex" data.csv --epsilon 1 --delta 1e-5 \\
      --bounds bounds.toml --release points --at points.csv
""",
)
