"""``dpeffects ledger`` and its commands, each with a function of its name."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from dpeffects import writing
from dpeffects.commands.shared import Command
from dpeffects.errors import OptionError
from dpeffects.ledgers import (
    create_ledger,
    ledger_datasets,
    open_ledger,
    upgrade_ledger,
    verify_ledger,
)
from dpeffects.ledgers.composition import COMPOSITIONS

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[Any]


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the commands of the ledger; each sets ``act`` to the function to call."""
    commands = parser.add_subparsers(metavar="command", required=True)
    made = _command(commands, "create", create, "Create a ledger, or add a dataset to one.")
    made.add_argument("--dataset", required=True, help="a name for the data")
    made.add_argument("--epsilon", type=float, required=True, help="total allowed, for good")
    made.add_argument("--delta", type=float, default=0.0, help="total allowed, for good")
    made.add_argument("--composition", choices=list(COMPOSITIONS), default="sum")
    _command(commands, "list", list_datasets, "List the datasets, and what is left of each.")
    shown = _command(commands, "show", show, "Show totals, open calls and charges.")
    shown.add_argument("--dataset", help="one dataset; all where it is left out")
    checked = _command(commands, "verify", verify, "Check that nothing was changed or lost.")
    checked.add_argument("--head", help="the head that an earlier check printed")
    written = _command(commands, "export", export, "Write charges to .csv, or everything to .json.")
    written.add_argument("file", help="a .csv or .json file")
    written.add_argument("--force", action="store_true", help="overwrite the file")
    written.add_argument("--dataset", help="needed where the ledger has several")
    settled = _command(commands, "settle", settle, "End dead calls; those that charged are spent.")
    settled.add_argument("--dataset", help="needed where the ledger has several")
    settled.add_argument("--call", type=int, action="append", default=[], help="number of a call")
    settled.add_argument("--all", action="store_true", help="all open calls")
    _command(commands, "upgrade", upgrade, "Bring a ledger of an earlier version up to date.")


def run(given: argparse.Namespace) -> None:
    """Run one of the commands."""
    given.act(given)


def create(args: argparse.Namespace) -> None:
    """Create a ledger, or add a dataset to one."""
    budget = {"epsilon": args.epsilon, "delta": args.delta}
    made = create_ledger(args.ledger, args.dataset, **budget, composition=args.composition)
    print(f'{made}\nledger_id = "{made.id}"  # for the policy of a site, where it is one')


def list_datasets(args: argparse.Namespace) -> None:
    """Print a line for each dataset."""
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
    """Print totals, open calls and charges."""
    names = (args.dataset,) if args.dataset else ledger_datasets(args.ledger)
    print("\n\n".join(str(open_ledger(args.ledger, name).summary()) for name in names))


def verify(args: argparse.Namespace) -> None:
    """Check the whole ledger and print a line."""
    print(verify_ledger(args.ledger, args.head))


def export(args: argparse.Namespace) -> None:
    """Write charges or everything to a file."""
    writing.check(args.file, overwrite=args.force, inputs=(args.ledger,), force="--force")
    open_ledger(args.ledger, args.dataset).export(args.file, overwrite=args.force)
    print(f"wrote {args.file}")


def settle(args: argparse.Namespace) -> None:
    """End calls that are dead, and print what is left."""
    ledger = open_ledger(args.ledger, args.dataset)
    if bool(args.call) == args.all:
        raise OptionError("say which calls to settle: --call NUMBER, or --all")
    if args.call or ledger.open_calls():
        ledger.settle(*args.call)
    print(ledger)


def upgrade(args: argparse.Namespace) -> None:
    """Bring a ledger of an earlier version up to date, and print a line."""
    print(upgrade_ledger(args.ledger))


def _command(commands: Commands, name: str, act: object, about: str) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=about, description=about)
    parser.add_argument("ledger", help="a path, or postgresql://user@host/database")
    parser.set_defaults(act=act)
    return parser


COMMAND = Command(
    "ledger",
    "keep a privacy budget that outlives the process, in a file or on a server",
    arguments,
    run,
    """\
  dpeffects ledger create study.db --dataset nsw --epsilon 3 --delta 1e-5
  dpeffects ledger list study.db
  dpeffects ledger show study.db --dataset nsw
  dpeffects ledger verify study.db
""",
)
