"""``dpeffects ledger`` and its commands, each with a function of its name."""

from __future__ import annotations

import argparse

from dpeffects import writing
from dpeffects.cli.commands import Command
from dpeffects.errors import OptionError
from dpeffects.ledgers import (
    anchor_ledger,
    create_ledger,
    ledger_datasets,
    open_ledger,
    verify_ledger,
)
from dpeffects.ledgers.composition import COMPOSITIONS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the commands of the ledger, each with the function that runs it."""
    commands = parser.add_subparsers(metavar="command", required=True)
    parsers = {}
    for function in (create, list_datasets, show, allot, release, verify, export, settle, anchor):
        name, about = function.__name__.removesuffix("_datasets"), function.__doc__
        parsers[name] = commands.add_parser(name, help=about, description=about)
        parsers[name].add_argument("ledger", help="a path, or postgresql://user@host/database")
        parsers[name].set_defaults(run=function)
    add = parsers["create"].add_argument
    add("--dataset", required=True, help="a name for the data")
    add("--epsilon", type=float, required=True, help="total allowed, for good")
    add("--delta", type=float, default=0.0, help="total allowed, for good")
    add("--composition", choices=list(COMPOSITIONS), default="sum")
    add("--unit", help="the column of persons, say, all of whose rows every call must protect")
    about = "a second place, as for a ledger, that notes its newest entry"
    for name in ("create", "verify"):
        parsers[name].add_argument("--anchor", help=about)
    parsers["anchor"].add_argument("place", help=about)
    parsers["show"].add_argument("--dataset", help="one dataset; all where it is left out")
    parsers["verify"].add_argument("--head", help="the head that an earlier check printed")
    for name in ("allot", "release"):
        parsers[name].add_argument("name", help="of the allotment")
    about = "part of the total epsilon and of the total delta, such as 0.3"
    parsers["allot"].add_argument("share", type=float, help=about)
    for name in ("allot", "release", "export", "settle"):
        parsers[name].add_argument("--dataset", help="needed where the ledger has several")
    parsers["export"].add_argument("file", help="a .csv or .json file")
    parsers["export"].add_argument("--force", action="store_true", help="overwrite the file")
    parsers["settle"].add_argument("--call", type=int, action="append", help="number of a call")
    parsers["settle"].add_argument("--all", action="store_true", help="all open calls")


def create(args: argparse.Namespace) -> None:
    """Create a ledger, or add a dataset to one."""
    budget = {"epsilon": args.epsilon, "delta": args.delta}
    agreed = {"composition": args.composition, "unit": args.unit, "anchor": args.anchor}
    ledger = create_ledger(args.ledger, args.dataset, **budget, **agreed)
    print(f'{ledger}\nledger_id = "{ledger.id}"  # for the policy of a site, where it is one')


def list_datasets(args: argparse.Namespace) -> None:
    """List the datasets, and what is left of each."""
    from tabulate import tabulate

    rows = []
    for name in ledger_datasets(args.ledger):
        ledger = open_ledger(args.ledger, name)
        state, budget = ledger.state, ledger.agreement.budget
        left = ledger.agreement.remaining(state)
        allowed = (f"{budget.epsilon:.6g}", f"{budget.delta:.3g}")
        rows.append([name, *allowed, f"{left[0]:.6g}", f"{left[1]:.3g}", state.charges])
    columns = ("dataset", "epsilon", "delta", "epsilon left", "delta left", "charges")
    print(tabulate(rows, columns, tablefmt="simple", disable_numparse=True))


def show(args: argparse.Namespace) -> None:
    """Show totals, open calls and charges."""
    names = (args.dataset,) if args.dataset else ledger_datasets(args.ledger)
    print("\n\n".join(str(open_ledger(args.ledger, name).summary()) for name in names))


def allot(args: argparse.Namespace) -> None:
    """Keep a share for later calls with --allotment."""
    print(open_ledger(args.ledger, args.dataset).allot(args.name, args.share))


def release(args: argparse.Namespace) -> None:
    """Give back what an allotment has not spent."""
    ledger = open_ledger(args.ledger, args.dataset)
    ledger.release(args.name)
    print(ledger)


def verify(args: argparse.Namespace) -> None:
    """Check that nothing was changed, lost or set back."""
    print(verify_ledger(args.ledger, args.head, anchor=args.anchor))


def export(args: argparse.Namespace) -> None:
    """Write charges to .csv, or everything to .json."""
    writing.check(args.file, overwrite=args.force, inputs=(args.ledger,), force="--force")
    open_ledger(args.ledger, args.dataset).export(args.file, overwrite=args.force)
    print(f"wrote {args.file}")


def settle(args: argparse.Namespace) -> None:
    """End dead calls; those that charged are spent."""
    ledger = open_ledger(args.ledger, args.dataset)
    if bool(args.call) == args.all:
        raise OptionError("say which calls to settle: --call NUMBER, or --all")
    if args.call or ledger.open_calls():
        ledger.settle(*(args.call or ()))
    print(ledger)


def anchor(args: argparse.Namespace) -> None:
    """Note the newest entry at a second place, from here on."""
    anchor_ledger(args.ledger, args.place)
    print(verify_ledger(args.ledger))


COMMANDS = (
    Command(
        "ledger",
        "keep a privacy budget that outlives the process, in a file or on a server",
        add_arguments,
        list_datasets,
        """\
  dpeffects ledger create study.db --dataset nsw --epsilon 3 --delta 1e-5
  dpeffects ledger list study.db
  dpeffects ledger show study.db --dataset nsw
  dpeffects ledger allot study.db secondary 0.3
  dpeffects ledger verify study.db
""",
    ),
)
