"""``dpeffects bench``: the leaderboard."""

from __future__ import annotations

import argparse

from dpeffects.commands.shared import (
    Command,
    check_files,
    output_arguments,
    plot_files,
    put,
    put_plot,
    render,
)
from dpeffects.errors import OptionError
from dpeffects.leaderboard import bench, entries, tasks
from dpeffects.leaderboard.benchmark import EPSILONS
from dpeffects.results.export import plain


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add = parser.add_argument
    add("--list", action="store_true", help="show entries and data; run nothing")
    add("--methods", nargs="+", metavar="NAME", help="entries; default all")
    add("--data", nargs="+", metavar="NAME", help="data sets; default all")
    shown = " ".join(f"{value:g}" for value in EPSILONS)
    add("--epsilon", nargs="+", type=float, default=EPSILONS, help=f"default {shown}")
    add("--repeats", type=int, default=50, help="samples of each data set; default 50")
    add("--workers", type=int, default=1, help="processes; default 1")
    add("--path", metavar="FILE.csv", help="keep every run there, and go on from there")
    add("--seed", type=int, default=0, help="of data and noise; default 0")
    add = output_arguments(parser, level=False)
    add("--plot", metavar="FILE.png", help="draw how far each entry is from the best")
    add("--plot-epsilon", type=float, default=1.0, metavar="EPSILON", help="default 1")


def run(given: argparse.Namespace) -> None:
    """List, or run and show."""
    if given.list:
        print(_listed())
        return
    check_files(given, given.out, *plot_files(given.plot))
    if given.plot is not None and given.plot_epsilon not in given.epsilon:
        raise OptionError(f"--plot-epsilon {given.plot_epsilon:g} is not among those of --epsilon")
    names = ["epsilon", "repeats", "workers", "path", "seed"]
    board = bench(given.methods, given.data, **{name: getattr(given, name) for name in names})
    text = render(given, board.summary, lambda: plain(board.tidy().to_dict("records")))
    put(given, text, "leaderboard")
    put_plot(given, lambda: board.plot(given.plot_epsilon))


def _listed() -> str:
    from tabulate import tabulate

    made = [(e.name, e.by, e.guarantee, e.level) for e in entries().values()]
    drawn = [
        (t.name, f"{t.n:,}", "randomised" if t.randomised else "observational")
        for t in tasks().values()
    ]
    head, kinds = ("entry", "by", "guarantee", "level"), ("data", "n", "treatment")
    align = ("left", "right", "left")
    return f"{tabulate(made, head)}\n\n{tabulate(drawn, kinds, colalign=align)}"


COMMAND = Command(
    "bench",
    "run the leaderboard: methods x data x epsilon, against known effects",
    arguments,
    run,
    """\
  dpeffects bench --list
  dpeffects bench --methods private_aipw diff_in_means --data lalonde \\
      --repeats 10
  dpeffects bench --workers 2 --path runs.csv     # everything; it resumes
""",
)
