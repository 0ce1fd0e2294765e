"""``dpeffects balance``: do the arms overlap, and are their covariates balanced?"""

from __future__ import annotations

import argparse

from dpeffects.commands.inputs import path_or_rows
from dpeffects.commands.shared import (
    Command,
    budget_arguments,
    budgeted,
    check_files,
    data_arguments,
    output_arguments,
    plot_files,
    put,
    put_plot,
    put_record,
    record_argument,
    record_files,
    render,
)
from dpeffects.effects import dp_balance
from dpeffects.sites.release import ESTIMATORS


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    data_arguments(parser)
    budget_arguments(parser)
    add = parser.add_argument_group("what is released").add_argument
    add("--estimand", choices=list(ESTIMATORS), default="ATE", help="of the weights; default ATE")
    add(
        "--adjusted",
        action=argparse.BooleanOptionalAction,
        help="balance after weighting; default: where n and epsilon carry it",
    )
    add("--clip", type=float, help="propensities stay within [clip, 1 - clip]; default 0.1")
    add("--bins", type=int, help="of the histogram of scores; default 20")
    add = output_arguments(parser, level=False)
    record_argument(add)
    add("--plot", metavar="FILE.png", help="draw the differences (love plot)")


def run(given: argparse.Namespace) -> None:
    """Check everything that can fail before the budget is spent; then release and show."""
    check_files(given, given.out, *record_files(given.record), *plot_files(given.plot))
    wanted = budgeted(given)
    for name in ("estimand", "adjusted", "clip", "bins"):
        if getattr(given, name) is not None:
            wanted[name] = getattr(given, name)
    data = path_or_rows(given.data, wanted.get("bounds"), batches=True)
    found = dp_balance(given.formula, data, **wanted)
    put(given, render(given, found.summary, found.to_dict), repr(found))
    put_record(given, found)
    put_plot(given, found.plot)


COMMAND = Command(
    "balance",
    "release overlap and balance of the covariates, without a look at outcomes",
    arguments,
    run,
    """\
  dpeffects balance "y ~ t | age + sex" data.csv --epsilon 1 \\
      --bounds bounds.toml
  dpeffects balance "y ~ t | age + sex" data.csv --epsilon 1 \\
      --bounds bounds.toml --ledger study.db --dataset nsw --plot love.png
""",
)
