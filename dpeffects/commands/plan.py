"""``dpeffects plan``: what each method would give, before any data is touched."""

from __future__ import annotations

import argparse
import inspect
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from dpeffects.commands.inputs import settings
from dpeffects.commands.shared import (
    Command,
    check_files,
    output_arguments,
    plot_files,
    put,
    put_plot,
    render,
)
from dpeffects.files import read_bounds
from dpeffects.planning import Plan, plan
from dpeffects.results.export import plain
from dpeffects.results.numbers import number
from dpeffects.sites.release import ESTIMATORS
from dpeffects.summary import Summary, Table

if TYPE_CHECKING:
    import pandas as pd


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add = parser.add_argument
    add("formula", help='"outcome ~ treatment | covariates"')
    add("--n", required=True, type=int, help="number of records")
    add("--epsilon", required=True, type=float, help="privacy budget of the call")
    add("--delta", type=float, default=0.0, help="default 0")
    add("--bounds", required=True, metavar="FILE", help="TOML; every column needs an entry")
    add("--method", help="one method; default: all that can estimate the estimand")
    add("--option", action="append", default=[], metavar="NAME=VALUE", help="of the method")
    add("--estimand", choices=list(ESTIMATORS), default="ATE", help="default ATE")
    add = parser.add_argument_group("assumed about the data").add_argument
    add("--outcome-mean", type=float, help="default: the middle of its range")
    add("--outcome-sd", type=float, help="within arms; default: a sixth of its range")
    add("--treated", type=float, help="share of treated records; default 0.5")
    add("--selection", type=float, help="sd of the log odds of treatment; 0 in a trial")
    add("--power", type=float, help="for the smallest detectable effect; default 0.8")
    add = parser.add_argument_group("the other way round").add_argument
    add("--half-width", type=float, metavar="W", help="also say what an interval of +-W takes")
    add("--of", choices=["epsilon", "n"], default="epsilon", help="in epsilon (default) or n")
    add = output_arguments(parser)
    add("--plot", metavar="FILE.png", help="draw half-width against epsilon (slow)")


def run(given: argparse.Namespace) -> None:
    """Plan, solve for what is needed where asked, show, and draw."""
    check_files(given, given.out, *plot_files(given.plot))
    names = ["n", "epsilon", "delta", "method", "estimand", "conf_level"]
    names += ["outcome_mean", "outcome_sd", "treated", "selection", "power"]
    wanted = settings(given.option, "option", inspect.signature(plan).parameters)
    wanted |= {n: getattr(given, n) for n in names if getattr(given, n) is not None}
    study = plan(given.formula, bounds=read_bounds(given.bounds), **wanted)
    width = given.half_width
    needed = None if width is None else study.needed(width, of=given.of)
    text = render(given, lambda: _summary(study, needed, width), lambda: _plain(study, needed))
    put(given, text, "plan")
    put_plot(given, study.plot)


def _summary(study: Plan, needed: pd.DataFrame | None, width: float | None) -> Summary:
    made = study.summary()
    if needed is None:
        return made
    rows = ((str(name), _needed(value)) for name, value in needed.itertuples(index=False))
    title = f"Needed for a half-width of {number(width or 0.0)}"
    table = Table(title, tuple(map(str, needed.columns)), tuple(rows), "lr")
    header, first, *rest = made.blocks
    return Summary(made.title, made.alert, (header, first, table, *rest))


def _needed(value: float) -> str:
    return "out of reach" if value != value else number(value)


def _plain(study: Plan, needed: pd.DataFrame | None) -> dict[str, Any]:
    setting = asdict(study.setting) | {"bounds": dict(study.setting.bounds)}
    methods = [asdict(row) | {"shares": dict(row.shares)} for row in study.rows]
    found = {} if needed is None else {"needed": plain(needed.to_dict("records"))}
    return {"setting": plain(setting), "methods": plain(methods), **found}


COMMAND = Command(
    "plan",
    "predict the accuracy of each method, without touching data",
    arguments,
    run,
    """\
  dpeffects plan "y ~ t | age + sex" --n 5000 --epsilon 1 --bounds bounds.toml
  dpeffects plan "y ~ t" --n 5000 --epsilon 1 --bounds bounds.toml \\
      --method diff_in_means --half-width 0.02
  dpeffects plan "y ~ t" --n 5000 --epsilon 1 --bounds bounds.toml \\
      --plot plan.png
""",
)
