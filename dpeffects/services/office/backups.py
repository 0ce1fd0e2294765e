"""Backup and restore of an office, which cannot give budget back.

A backup has settings, accounts, requests and the ledger as they were; the data is not in it. When
it is put back, a ledger that is there stays: a ledger is only added to, so the newest is right.
Where there is none, that of the backup is taken only if its anchor, or a head that somebody kept,
does not know a later entry. Sessions and tokens are not put back: some may have been revoked.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import tempfile
import zipfile
from pathlib import Path

import sqlalchemy as sql

from dpeffects.errors import LedgerError, OptionError
from dpeffects.ledgers import open_ledger
from dpeffects.services.gate.policy import Policy
from dpeffects.services.office.database import REQUESTS, TOKENS, Database, note, now
from dpeffects.services.office.office_folder import OfficeFolder

_SETTINGS = ("office.toml", "policy.toml", "codebook.toml")
_DATABASES = ("office.db", "ledger.db")
"""In this order: a ledger that knows more than the database loses nothing."""
_UNKNOWN = (
    "this ledger has no anchor, so nobody can tell whether it is the newest: give --head with what "
    "dpeffects ledger verify printed last, or put the newest ledger into the folder"
)


def write_backup(folder: OfficeFolder, file: Path) -> str:
    """Copy an office to a zip file, while it may be running."""
    if file.exists():
        raise OptionError(f"{file} exists already; give a new file")
    names = [name for name in _DATABASES if (folder.path / name).exists()]
    with tempfile.TemporaryDirectory() as place, zipfile.ZipFile(file, "x") as archive:
        file.chmod(0o600)
        for name in names:
            source = sqlite3.connect(f"{(folder.path / name).as_uri()}?mode=ro", uri=True)
            target = sqlite3.connect(f"{place}/{name}")
            with contextlib.closing(source), contextlib.closing(target):
                source.backup(target)  # as it is at one moment
            archive.write(f"{place}/{name}", name)
        for name in _SETTINGS:
            archive.write(folder.path / name, name)
    missing = [name for name in _DATABASES if name not in names]
    elsewhere = f"; {' and '.join(missing)}: on its server, back it up there" if missing else ""
    return f"{file}: {', '.join((*_SETTINGS, *names))}{elsewhere}. The data is not in it"


def restore_backup(file: Path, folder: Path, head: str | None = None) -> str:
    """Put an office back; refuse a ledger that may be older than another that was used."""
    with contextlib.ExitStack() as stack:
        if (folder / "office.toml").exists():  # nobody restores under a running server
            stack.callback(os.close, OfficeFolder(folder).lock(wait=0.0))
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=folder.resolve().parent)))
        with contextlib.suppress(zipfile.BadZipFile), zipfile.ZipFile(file) as archive:
            for name in {*_SETTINGS, *_DATABASES} & set(archive.namelist()):
                archive.extract(name, place)
        if not all((place / name).is_file() for name in _SETTINGS):
            raise OptionError(f"{file} is no backup of an office")
        kept = [path.name for path in folder.glob("ledger.db*")]
        for name in kept:
            shutil.copy2(folder / name, place / name)
        said = _checked(place, head, bool(kept))
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in folder.glob("office.db-*"):  # of the database that is replaced
            path.unlink()
        for path in place.iterdir():
            if path.name not in kept:
                shutil.move(path, folder / path.name)
    return f"{folder}: restored, with {'its own' if kept else 'the'} ledger. {said}"


def _checked(place: Path, head: str | None, kept: bool) -> str:
    """Verify the ledger; end all tokens; say what the database does not know."""
    policy = Policy.read(place / "policy.toml")
    ledger = open_ledger(policy.ledger, policy.dataset, anchor=policy.anchor)
    proof = ledger.verify(head)
    if "no anchor" in proof and head is None and not kept:
        raise LedgerError(_UNKNOWN)
    with contextlib.closing(Database(OfficeFolder(place).store)) as database:
        database.upgrade()
        known = {row["id"] for row in database.rows(sql.select(REQUESTS.c.id))}
        with database.write() as connection:
            connection.execute(TOKENS.update().values(revoked=now()))
            note(connection, "office restore", "restored, and revoked all tokens")
    paid = {x.body["request"] for x in ledger.entries() if x.kind == "request"}
    lost = len(paid - known)
    return f"{proof}. Paid requests that the backup does not know: {lost}. All tokens are revoked"
