"""``dpeffects office`` and its commands."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from dpeffects.cli.commands import Command
from dpeffects.errors import MissingExtraError, OptionError

_NO_ANCHOR = (
    "It has no anchor: a copy of its ledger that is put back has its budget back, unnoticed."
)


def office() -> None:
    """Answer questions of researchers who may not see the data, over HTTP.

    In a shell::

        dpeffects office init registry --data patients.parquet --codebook codebook.toml --budget 5
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
    with _extra():
        from dpeffects.services.office.accounts import Accounts
        from dpeffects.services.office.office_folder import make_folder
    path = Path(folder)
    called = name or path.resolve().name
    settings: dict[str, Any] = {"name": called, "title": title or called, "approval": approval}
    settings |= {"approve_above": approve_above} | ({"store": store} if store else {})
    files = Path(data), Path(codebook)
    total = budget, delta
    made = make_folder(path, *files, *total, settings=settings, ledger=store, anchor=anchor)
    with contextlib.closing(_database(made)) as database:
        database.upgrade()
        password = Accounts(database).add("office init", administrator, "administrator")
    noted = "" if anchor else f"{_NO_ANCHOR}\n"
    return (
        f"{path}: an office for {called}, with epsilon {budget:g} and delta {delta:g}\n{noted}"
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
    with _extra():
        import uvicorn

        from dpeffects.services.office.structured_logs import log_as_json
        from dpeffects.services.office.web import make_app
    import sys

    given = {"listen": listen, "certificate": certificate, "key": key, "store": store}
    given = {n: x for n, x in (given | {"behind_proxy": behind_proxy}).items() if x}
    made = _folder(folder)
    made.settings = settings = replace(made.settings, **given)
    host, _, port = settings.listen.rpartition(":")
    if not port.isdigit():
        raise OptionError(
            f"--listen is an address and a port, 127.0.0.1:8800, not {settings.listen}"
        )
    if bool(settings.certificate) != bool(settings.key):
        raise OptionError("--certificate and --key go together")
    encrypted = settings.certificate or settings.behind_proxy
    if not encrypted and host not in ("127.0.0.1", "localhost", "[::1]"):
        raise OptionError(
            "passwords and tokens would be sent in the open: give --certificate and --key, or "
            "--behind-proxy ADDRESS for a proxy that has TLS"
        )
    lock = made.lock()
    log_as_json(sys.stderr)
    uvicorn.run(
        make_app(made, lock),
        host=host.strip("[]"),
        port=int(port),
        ssl_certfile=settings.certificate or None,
        ssl_keyfile=settings.key or None,
        proxy_headers=bool(settings.behind_proxy),
        forwarded_allow_ips=settings.behind_proxy or None,
        timeout_graceful_shutdown=int(settings.grace_seconds),
        log_config=None,
        access_log=False,
        server_header=False,
    )


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
    with _accounts(folder) as accounts:
        known = next((person for person in accounts.people() if person["name"] == name), None)
        lines = []
        if known is None:
            password = accounts.add("office account", name, role or "researcher")
            lines.append(f"{name} signs in with {password}, which serves once")
        elif new_password:
            password = accounts.set_password("office account", name)
            lines.append(f"{name} signs in with {password}, which serves once")
        if known is not None and (role or end):
            accounts.set_account("office account", name, role or known["role"], not end)
        if project:
            if project not in [x["name"] for x in accounts.projects()]:
                accounts.add_project("office account", project)
            accounts.set_member("office account", name, project)
            lines.append(f"{name} asks for {project}")
        return "\n".join(lines) or f"{name} is changed"


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
    with _accounts(folder) as accounts:
        return accounts.token("office token", name, project, label, days)


def backup(folder: str, file: str) -> str:
    """Copy an office to a file, while it runs too; the data is not in it.

    Parameters
    ----------
    file
        A new .zip file, on another disk.
    """
    with _extra():
        from dpeffects.services.office.backups import write_backup
    return write_backup(_folder(folder), Path(file))


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
    with _extra():
        from dpeffects.services.office.backups import restore_backup
    return restore_backup(Path(file), Path(folder), head)


def upgrade(folder: str) -> str:
    """Bring the database of an office to this version; a server does that when it starts, too."""
    with contextlib.closing(_database(_folder(folder))) as database:
        database.upgrade()
        return f"{database.name} is up to date"


# --- what they share


@contextlib.contextmanager
def _extra() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        missing = f'an office needs {error.name}: pip install "dpeffects[office]"'
        raise MissingExtraError(missing) from None


def _folder(path: str) -> Any:
    with _extra():
        from dpeffects.services.office.office_folder import OfficeFolder
    return OfficeFolder(path)


def _database(folder: Any) -> Any:
    with _extra():
        from dpeffects.services.office.database import Database
    return Database(folder.store)


@contextlib.contextmanager
def _accounts(folder: str) -> Iterator[Any]:
    with _extra():
        from dpeffects.services.office.accounts import Accounts
    with contextlib.closing(_database(_folder(folder))) as database:
        database.upgrade()
        yield Accounts(database)


_CHANGES: dict[str, dict[str, Any]] = {
    "folder": {"metavar": "FOLDER", "help": "the folder of the office"},
    "data": {"flag": "--data", "metavar": "FILE"},
    "approval": {"choices": ["always", "above", "never"]},
    "role": {"choices": ["researcher", "steward", "administrator"]},
}


def _of_office(function: Any) -> Command:
    return Command(function.__name__, function, changes=_CHANGES, output=None)


COMMANDS = (
    Command(
        "office",
        office,
        commands=tuple(map(_of_office, (init, serve, account, token, backup, restore, upgrade))),
    ),
)
