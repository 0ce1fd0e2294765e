"""The commands audit and bench."""

from __future__ import annotations

import argparse

import dpeffects as dpe
from dpeffects.cli.arguments import Values, in_a_shell
from dpeffects.cli.commands import Command
from dpeffects.cli.output import put_result
from dpeffects.errors import OptionError
from dpeffects.estimands import ESTIMANDS
from dpeffects.evidence.leaderboard.board import listed
from dpeffects.results.export import plain


def _show_audit(args: argparse.Namespace, audit: dpe.AuditResult) -> int:
    """Show an audit, and return 1 where the promise is broken."""
    put_result(args, audit)
    return 1 if audit.violated else 0


def _listed(*, list: bool = False, plot_epsilon: float = 1.0) -> None:
    """What is shown.

    Parameters
    ----------
    list
        Show entries and data; run nothing.
    plot_epsilon
        Of the plot.
    """


def _check_epsilon(args: argparse.Namespace, values: Values) -> Values:
    if args.plot is not None and args.plot_epsilon not in values["epsilon"]:
        raise OptionError(f"--plot-epsilon {args.plot_epsilon:g} is not among those of --epsilon")
    return values


def _show_board(args: argparse.Namespace, board: dpe.Leaderboard | None) -> None:
    if board is None:
        return print(listed())
    return put_result(
        args,
        board,
        "leaderboard",
        to_dict=lambda: plain(board.tidy().to_dict("records")),
        plot=lambda: board.plot(args.plot_epsilon),
    )


COMMANDS = (
    Command("audit", dpe.audit, show=_show_audit, **in_a_shell("audit", estimand=ESTIMANDS)),
    Command(
        "bench",
        dpe.bench,
        more=_listed,
        prepare=_check_epsilon,
        call=lambda args, values: None if args.list else dpe.bench(**values),
        show=_show_board,
        **in_a_shell("bench"),
    ),
)
