"""``dpeffects ate``, ``att`` and ``atc``: a private average effect from a file."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial

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
from dpeffects.effects import dp_atc, dp_ate, dp_att
from dpeffects.results import Result


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    data_arguments(parser)
    budget_arguments(parser)
    method_arguments(parser)
    record_argument(output_arguments(parser))


def run(estimate: Callable[..., Result], given: argparse.Namespace) -> None:
    """Check everything that can fail before the budget is spent; then estimate and show."""
    check_files(given, given.out, *record_files(given.record))
    wanted = call_arguments(given, dp_ate)
    data = data_for(given.method, wanted, given.data)
    fit = estimate(given.formula, data, **wanted)
    level = given.conf_level
    put(given, render(given, lambda: fit.summary(level), lambda: fit.to_dict(level)), repr(fit))
    put_record(given, fit)


_EXAMPLES = """\
  dpeffects {0} "y ~ t | age + sex" data.csv --epsilon 1 --bounds bounds.toml
  dpeffects {0} "y ~ t | age" data.parquet --epsilon 1 --bounds bounds.toml \\
      --method private_ipw --option clip=0.05 --conf-level 0.9
  dpeffects {0} "y ~ t | age" data.csv --epsilon 1 --bounds bounds.toml \\
      --ledger study.db --dataset nsw --out effect.json --record record.html
"""
_ABOUT = {
    "ate": ("estimate an average treatment effect with differential privacy", dp_ate),
    "att": ("estimate the average effect on the treated", dp_att),
    "atc": ("estimate the average effect on the controls", dp_atc),
}
COMMANDS = tuple(
    Command(name, about, arguments, partial(run, function), _EXAMPLES.format(name))
    for name, (about, function) in _ABOUT.items()
)
