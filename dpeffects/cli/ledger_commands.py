"""``dpeffects ledger`` and its commands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from dpeffects import file_output
from dpeffects.cli.arguments import in_a_shell
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


def ledger() -> None:
    """Keep a privacy budget that outlives the process, in a file or on a server.

    In a shell::

        dpeffects ledger create study.db --dataset nsw --epsilon 3 --delta 1e-5
        dpeffects ledger list study.db
        dpeffects ledger show study.db --dataset nsw
        dpeffects ledger allot study.db secondary 0.3
        dpeffects ledger verify study.db
    """


def list_datasets(address: str) -> str:
    """List the datasets, and what is left of each."""
    from tabulate import tabulate

    rows = []
    for name in ledger_datasets(address):
        ledger = open_ledger(address, name)
        state, budget = ledger.state, ledger.agreement.budget
        left = ledger.agreement.remaining(state)
        allowed = (f"{budget.epsilon:.6g}", f"{budget.delta:.3g}")
        rows.append([name, *allowed, f"{left[0]:.6g}", f"{left[1]:.3g}", state.charges])
    columns = ("dataset", "epsilon", "delta", "epsilon left", "delta left", "charges")
    return tabulate(rows, columns, tablefmt="simple", disable_numparse=True)


def show(address: str, *, dataset: str | None = None) -> str:
    """Show totals, open calls and charges."""
    names = (dataset,) if dataset else ledger_datasets(address)
    return "\n\n".join(str(open_ledger(address, name).summary()) for name in names)


def allot(address: str, name: str, share: float, *, dataset: str | None = None) -> Any:
    """Keep a share for later calls with --allotment.

    Parameters
    ----------
    name
        Of the allotment.
    share
        Part of the total epsilon and of the total delta, such as 0.3.
    """
    return open_ledger(address, dataset).allot(name, share)


def release(address: str, name: str, *, dataset: str | None = None) -> Any:
    """Give back what an allotment has not spent.

    Parameters
    ----------
    name
        Of the allotment.
    """
    ledger = open_ledger(address, dataset)
    ledger.release(name)
    return ledger


def export(address: str, file: str, *, dataset: str | None = None, force: bool = False) -> str:
    """Write charges to .csv, or everything to .json.

    Parameters
    ----------
    file
        A .csv or .json file.
    force
        Overwrite the file.
    """
    file_output.check(file, overwrite=force, inputs=(address,), force="--force")
    open_ledger(address, dataset).export(file, overwrite=force)
    return f"wrote {file}"


def settle(
    address: str,
    *,
    dataset: str | None = None,
    call: Sequence[int] | None = None,
    all: bool = False,
) -> Any:
    """End dead calls, of which those that charged are spent.

    Parameters
    ----------
    call
        Number of a call.
    all
        All open calls.
    """
    ledger = open_ledger(address, dataset)
    if bool(call) == all:
        raise OptionError("which calls should be settled? Write --call NUMBER, or --all")
    if call or ledger.open_calls():
        ledger.settle(*(call or ()))
    return ledger


def anchor(address: str, place: str) -> str:
    """Note the newest entry at a second place, from here on.

    Parameters
    ----------
    place
        A second place, as for a ledger, that notes its newest entry.
    """
    anchor_ledger(address, place)
    return verify_ledger(address)


def _created(args: Any, made: Any) -> None:
    print(f'{made}\nledger_id = "{made.id}"  # for the policy of a site, where it is one')


_SAID = in_a_shell("ledger")
_SAID["changes"]["call"] = {"action": "append", "type": int}
_of_ledger: Callable[..., Command] = partial(
    Command, output=None, show=lambda args, made: print(made), **_SAID
)
_NEW = _SAID["changes"] | in_a_shell("create", composition=COMPOSITIONS)["changes"]
COMMANDS = (
    Command(
        "ledger",
        ledger,
        commands=(
            _of_ledger("create", create_ledger, show=_created, changes=_NEW),
            _of_ledger("list", list_datasets),
            _of_ledger("show", show),
            _of_ledger("allot", allot),
            _of_ledger("release", release),
            _of_ledger("verify", verify_ledger),
            _of_ledger("export", export),
            _of_ledger("settle", settle),
            _of_ledger("anchor", anchor),
        ),
    ),
)
