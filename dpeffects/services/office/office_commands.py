"""``dpeffects office`` and its commands."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from dpeffects.cli.arguments import Function, Values
from dpeffects.cli.commands import Command
from dpeffects.design.codebook import read_bounds
from dpeffects.errors import MissingExtraError, OptionError

_NO_ANCHOR = "No anchor: a copy of the ledger that is put back has its budget back, unnoticed.\n"
_UNUSED = "Left out of the codebook, as no columns of the data or without range and levels: {}\n"
_IN_THE_OPEN = (
    "passwords and tokens would be sent in the open: give --certificate and --key, or "
    "--behind-proxy ADDRESS for a proxy that has TLS"
)


def office() -> None:
    """Answer questions of researchers who may not see the data, over HTTP.

    In a shell::

        dpeffects office init registry --data rows.csv --codebook book.toml --budget 5
        dpeffects office serve registry
        dpeffects office account registry anna --project ageing
        dpeffects office token registry anna --project ageing
        dpeffects office backup registry /other/disk/registry.zip
    """


def init(
    folder: str,
    *,
    data: str,
    codebook: str,
    budget: float,
    delta: float = 0.0,
    name: str = "",
    title: str = "",
    store: str = "",
    anchor: str | None = None,
    approval: str = "always",
    approve_above: float = 0.5,
    administrator: str = "administrator",
) -> str:
    """Make an office for a data file.

    Parameters
    ----------
    folder
        A new folder.
    data
        A .csv or .parquet file with one row for each person; it stays where it is.
    codebook
        What columns may hold, and perhaps labels and units; columns that it does not name are not
        used.
    budget, delta
        The total epsilon, and the total delta, over all requests, for good.
    name, title
        Of the dataset, in scripts and on pages; default: of the folder.
    store
        Database of accounts, requests and ledger: postgresql://user@host/database; default: files
        in the folder.
    anchor
        A second file or URL that records the newest entry of the ledger, on another disk.
    approval
        Which requests a steward approves: always, above, never.
    approve_above
        With "above", requests that cost more epsilon than this.
    administrator
        Name of the first account.
    """
    from dpeffects.services.office.office_folder import make_folder

    path = Path(folder)
    called = name or path.resolve().name
    settings: dict[str, Any] = {"name": called, "title": title or called, "approval": approval}
    settings |= {"approve_above": approve_above} | ({"store": store} if store else {})
    what = Path(data), Path(codebook), budget, delta
    made = make_folder(path, *what, settings=settings, ledger=store, anchor=anchor)
    unused = ", ".join(x for x in read_bounds(codebook) if x not in made.columns)
    with _opened(folder) as accounts:
        password = accounts.add("office init", administrator, "administrator")
    return (
        f"{path}: an office for {called}, with epsilon {budget:g} and delta {delta:g}\n"
        f"{'' if anchor else _NO_ANCHOR}"
        f"{_UNUSED.format(unused) if unused else ''}"
        f"Sign in as {administrator} with {password}, which serves once\n"
        f"Start it: dpeffects office serve {path}"
    )


def serve(
    folder: str,
    *,
    listen: str = "",
    certificate: str = "",
    key: str = "",
    behind_proxy: str = "",
    store: str = "",
) -> None:
    """Start the server of an office.

    Parameters
    ----------
    listen
        Address and port; default as in office.toml, 127.0.0.1:8800.
    certificate, key
        Files of TLS, in PEM.
    behind_proxy
        Addresses of the proxy in front, which has TLS, and whose headers are trusted.
    store
        Another place of the database than office.toml has.
    """
    import uvicorn

    from dpeffects.services.office.office_folder import OfficeFolder
    from dpeffects.services.office.structured_logs import log_as_json
    from dpeffects.services.office.web import make_app

    asked: dict[str, Any] = {"listen": listen, "certificate": certificate, "key": key}
    asked |= {"store": store, "behind_proxy": behind_proxy}
    asked = {name: x for name, x in asked.items() if x}
    made = OfficeFolder(folder)
    made.settings = given = replace(made.settings, **asked)
    host, _, port = given.listen.rpartition(":")
    if not port.isdigit():
        raise OptionError("--listen is an address and a port, such as 127.0.0.1:8800")
    if bool(given.certificate) != bool(given.key):
        raise OptionError("--certificate and --key go together")
    local = host in ("127.0.0.1", "localhost", "[::1]")
    if not (local or given.certificate or given.behind_proxy):
        raise OptionError(_IN_THE_OPEN)
    lock = made.lock()
    log_as_json(sys.stderr)
    tls = {"ssl_certfile": given.certificate or None, "ssl_keyfile": given.key or None}
    proxy = {"proxy_headers": bool(given.behind_proxy), "forwarded_allow_ips": given.behind_proxy}
    quiet: dict[str, Any] = {"log_config": None, "access_log": False, "server_header": False}
    quiet["timeout_graceful_shutdown"] = int(given.grace_seconds)
    app = make_app(made, lock)
    uvicorn.run(app, host=host.strip("[]"), port=int(port), **tls, **proxy, **quiet)


def account(
    folder: str,
    name: str,
    *,
    role: str = "",
    project: str = "",
    new_password: bool = False,
    end: bool = False,
) -> str:
    """Make an account, or change one.

    Parameters
    ----------
    name
        Of the person.
    role
        What the account may do: researcher (for a new one), steward or administrator.
    project
        A project that the person asks for; made where there is none.
    new_password
        A new password, which serves once.
    end
        Close the account, with its tokens and sessions.
    """
    with _opened(folder) as accounts:
        by, said = "office account", []
        known = {person["name"]: person["role"] for person in accounts.people()}
        if name not in known or new_password:
            made = accounts.set_password if name in known else accounts.add
            password = made(by, name, *([] if name in known else [role or "researcher"]))
            said.append(f"{name} signs in with {password}, which serves once")
        if name in known and (role or end):
            accounts.set_account(by, name, role or known[name], not end)
        if project:
            if project not in [x["name"] for x in accounts.projects()]:
                accounts.add_project(by, project)
            accounts.set_member(by, name, project)
            said.append(f"{name} asks for {project}")
        return "\n".join(said) or f"{name} is changed"


def token(folder: str, name: str, *, project: str, days: float = 90.0, label: str = "") -> str:
    """Make a token for the scripts of a person.

    Parameters
    ----------
    name
        Of the person.
    project
        What the scripts ask for.
    days
        How long it lasts.
    label
        What it is for.
    """
    with _opened(folder) as accounts:
        return accounts.token("office token", name, project, label, days)


def backup(folder: str, file: str) -> str:
    """Copy an office to a file, while it runs too; the data is not in it.

    Parameters
    ----------
    file
        A new .zip file, on another disk.
    """
    from dpeffects.services.office.backups import write_backup
    from dpeffects.services.office.office_folder import OfficeFolder

    return write_backup(OfficeFolder(folder), Path(file))


def restore(file: str, folder: str, *, head: str | None = None) -> str:
    """Put an office back from a backup; refused where its ledger is older than the anchor says.

    Parameters
    ----------
    file
        A backup.
    folder
        A new folder, or that of an office whose ledger is kept.
    head
        For a ledger without an anchor: the head that dpeffects ledger verify printed last.
    """
    from dpeffects.services.office.backups import restore_backup

    return restore_backup(Path(file), Path(folder), head)


def upgrade(folder: str) -> str:
    """Bring the database of an office to this version; a server does that when it starts, too."""
    with _opened(folder):
        return f"the database of {folder} is up to date"


@contextlib.contextmanager
def _opened(folder: str) -> Iterator[Any]:
    """The accounts of an office, whose database is up to date."""
    from dpeffects.services.office.accounts import Accounts
    from dpeffects.services.office.database import Database
    from dpeffects.services.office.office_folder import OfficeFolder

    with contextlib.closing(Database(OfficeFolder(folder).store)) as database:
        database.upgrade()
        yield Accounts(database)


_CHANGES: dict[str, dict[str, Any]] = {
    "folder": {"metavar": "FOLDER", "help": "the folder of the office"},
    "data": {"flag": "--data", "metavar": "FILE"},
    "approval": {"choices": ["always", "above", "never"]},
    "role": {"choices": ["researcher", "steward", "administrator"]},
}


def _of_office(function: Function) -> Command:
    def call(_: Any, values: Values) -> Any:
        try:
            return function(**values)
        except ModuleNotFoundError as error:
            missing = f'an office needs {error.name}: pip install "dpeffects[office]"'
            raise MissingExtraError(missing) from None

    return Command(function.__name__, function, call=call, changes=_CHANGES, output=None)


_ALL: tuple[Function, ...] = (init, serve, account, token, backup, restore, upgrade)
COMMANDS = (
    Command(
        "office",
        office,
        commands=tuple(_of_office(x) for x in _ALL),
    ),
)
