"""Who may do what: accounts with passwords, roles and projects; tokens that end and can be revoked.

Passwords are kept as argon2 writes them, tokens and sessions as SHA-256 of what their owner has. An
unknown name takes as long as a wrong password.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import threading
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import sqlalchemy as sql
from argon2 import PasswordHasher
from argon2.exceptions import Argon2Error, InvalidHashError
from sqlalchemy.engine import Connection

from dpeffects.errors import DPEffectsError
from dpeffects.privacy.budget import Budget
from dpeffects.services.office import database as db
from dpeffects.services.office.database import ACCOUNTS, MEMBERSHIPS, PROJECTS, TOKENS, note, now

ROLES = ("researcher", "steward", "administrator")
"""Each may do what those before may."""
SHORTEST, LONGEST = 12, 200
"""Characters of a password."""
_NAME = r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}"
_HASHER = PasswordHasher()
_NOBODY = _HASHER.hash(secrets.token_urlsafe())
_AT_ONCE = threading.Semaphore(2)
"""Passwords that are checked at the same time: each takes 64 megabytes."""


class DeskError(DPEffectsError):
    """The office does not do what was asked; ``status`` is the code of HTTP that says so."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Person:
    """Somebody who signed in or sent a token, and for which project."""

    id: int
    name: str
    role: str
    token: int = 0
    project: str = ""
    changes_password: bool = False

    def may(self, role: str) -> bool:
        """Whether this is somebody of a role, or of one that may do more."""
        return ROLES.index(self.role) >= ROLES.index(role)

    def require(self, role: str) -> None:
        """Refuse people who are not of a role."""
        if not self.may(role):
            raise DeskError(f"only a {role} may do this", 403)


class Accounts:
    """Accounts, projects and tokens in a database."""

    def __init__(self, database: db.Database) -> None:
        self._database = database

    # --- passwords and tokens

    def check_password(self, name: str, password: str) -> dict[str, Any]:
        """Return an account, or refuse the name or the password without saying which."""
        query = sql.select(ACCOUNTS).where(ACCOUNTS.c.name == name, ACCOUNTS.c.active)
        known = next(iter(self._database.rows(query)), None)
        with _AT_ONCE:
            right = _fits(known["password"] if known else _NOBODY, password[: LONGEST + 1])
        if known is None or not right:
            who = known["name"] if known else "?"  # people type passwords into fields of names
            with self._database.write() as connection:
                note(connection, who, "was not signed in")
            raise DeskError("the name or the password is wrong", 401)
        return known

    def sign_in(self, name: str, password: str, hours: float) -> str:
        """Check a password and return a new session; its text is kept nowhere else."""
        known = self.check_password(name, password)
        with self._database.write() as connection:
            note(connection, name, "signed in")
            return _add_token(connection, timedelta(hours=hours), "session", known["id"])

    def token(self, by: str, name: str, project: str, label: str = "", days: float = 90.0) -> str:
        """Make a token for somebody's scripts in a project; its text is kept nowhere else."""
        if not 0 < days <= 3660:
            raise DeskError("a token lasts from 1 to 3660 days")
        with self._database.write() as connection:
            pair = _pair(connection, name, project)
            if db.one(connection, sql.select(MEMBERSHIPS).where(_is(MEMBERSHIPS, pair))) is None:
                raise DeskError(f"{name} is no member of the project {project}", 403)
            note(connection, by, "made a token", f"{name}, {project}")
            ids = pair["account_id"], pair["project_id"]
            told = label.lstrip("=+-@\t\r ")[:80]  # in a spreadsheet it is no formula
            return _add_token(connection, timedelta(days=days), "token", *ids, told)

    def who(self, text: str, kind: str) -> Person:
        """Return whose token or session it is; refuse it where it has ended or was revoked."""
        columns = (ACCOUNTS.c[name] for name in ("id", "name", "role", "changes_password"))
        query = sql.select(*columns, TOKENS.c.id.label("token"), PROJECTS.c.name.label("project"))
        query = query.join_from(TOKENS, ACCOUNTS).outerjoin(PROJECTS, _OF_TOKEN)
        query = query.where(TOKENS.c.digest == _digest(text), TOKENS.c.kind == kind)
        lasts = (ACCOUNTS.c.active, TOKENS.c.revoked.is_(None), TOKENS.c.expires > now())
        if not (rows := self._database.rows(query.where(*lasts))):
            raise DeskError(f"this {kind} is not valid, has ended or was revoked", 401)
        return Person(**rows[0] | {"project": rows[0]["project"] or ""})

    def tokens(self, name: str | None = None) -> list[dict[str, Any]]:
        """Return tokens, of one person or of all, without what would let anybody in."""
        shown = [TOKENS.c[x] for x in ("id", "label", "created", "expires", "revoked")]
        names = (ACCOUNTS.c.name.label("account"), PROJECTS.c.name.label("project"))
        query = sql.select(*shown, *names).join_from(TOKENS, ACCOUNTS).join(PROJECTS, _OF_TOKEN)
        query = query.where(TOKENS.c.kind == "token").order_by(TOKENS.c.id.desc())
        return self._database.rows(query if name is None else query.where(ACCOUNTS.c.name == name))

    def revoke(self, by: Person, token: int) -> None:
        """End a token or a session: one's own, or as a steward any."""
        with self._database.write() as connection:
            found = db.one(connection, sql.select(TOKENS).where(TOKENS.c.id == token))
            if found is None or not (found["account_id"] == by.id or by.may("steward")):
                raise DeskError("there is no such token", 404)
            _revoke(connection, TOKENS.c.id == token)
            ended = "signed out" if found["kind"] == "session" else "revoked a token"
            note(connection, by.name, ended, found["label"])

    # --- accounts and projects

    def add(self, by: str, name: str, role: str, password: str | None = None) -> str:
        """Make an account, and return its password; one that was made here serves once."""
        _check_role(role)
        given = password or new_secret(12)
        values = {"role": role, "password": _hashed(given), "active": True}
        with self._database.write() as connection:
            _add(connection, ACCOUNTS, name, **values, changes_password=password is None)
            note(connection, by, f"made an account of a {role}", name)
        return given

    def set_password(self, by: str, name: str, password: str | None = None) -> str:
        """Give somebody a new password, and end all sessions; without one it serves once."""
        given = password or new_secret(12)
        values = {"password": _hashed(given), "changes_password": password is None}
        with self._database.write() as connection:
            account = _named(connection, ACCOUNTS, name)["id"]
            db.change(connection, ACCOUNTS, account, **values)
            _revoke(connection, (TOKENS.c.account_id == account) & (TOKENS.c.kind == "session"))
            note(connection, by, "set a password", name)
        return given

    def set_account(self, by: str, name: str, role: str, active: bool) -> None:
        """Give somebody another role, or end the account; tokens and sessions end with either."""
        _check_role(role)
        with self._database.write() as connection:
            account = _named(connection, ACCOUNTS, name)
            db.change(connection, ACCOUNTS, account["id"], role=role, active=active)
            if not active or role != account["role"]:
                _revoke(connection, TOKENS.c.account_id == account["id"])
            note(connection, by, f"made {role}{'' if active else ', ended'}", name)

    def add_project(self, by: str, name: str) -> None:
        """Make a project."""
        with self._database.write() as connection:
            _add(connection, PROJECTS, name)
            note(connection, by, "made a project", name)

    def set_member(self, by: str, name: str, project: str, member: bool = True) -> None:
        """Let somebody ask for a project, or no more."""
        with self._database.write() as connection:
            pair = _pair(connection, name, project)
            connection.execute(MEMBERSHIPS.delete().where(_is(MEMBERSHIPS, pair)))
            if member:
                connection.execute(MEMBERSHIPS.insert().values(**pair))
            else:
                _revoke(connection, _is(TOKENS, pair))
            done = "added a member" if member else "removed a member"
            note(connection, by, done, f"{name}, {project}")

    def set_budget(
        self, by: str, what: str, name: str, epsilon: float | None, delta: float | None
    ) -> None:
        """Say what a project or a person may spend; None is all that the dataset has."""
        Budget(1.0 if epsilon is None else epsilon, delta or 0.0)
        table = PROJECTS if what == "project" else ACCOUNTS
        with self._database.write() as connection:
            found = _named(connection, table, name)["id"]
            db.change(connection, table, found, epsilon=epsilon, delta=delta)
            note(connection, by, f"set the budget of a {what}: {epsilon}, {delta}", name)

    def projects(self, name: str | None = None) -> list[dict[str, Any]]:
        """Return the projects, all or those of somebody."""
        query = sql.select(PROJECTS).order_by(PROJECTS.c.name)
        if name is not None:
            members = sql.select(MEMBERSHIPS.c.project_id).join_from(MEMBERSHIPS, ACCOUNTS)
            query = query.where(PROJECTS.c.id.in_(members.where(ACCOUNTS.c.name == name)))
        return self._database.rows(query)

    def people(self) -> list[dict[str, Any]]:
        """Return the accounts, without passwords, with the projects of each."""
        shown = [column for column in ACCOUNTS.c if column.name != "password"]
        found = self._database.rows(sql.select(*shown).order_by(ACCOUNTS.c.name))
        return [x | {"projects": [p["name"] for p in self.projects(x["name"])]} for x in found]


def new_secret(letters: int = 32) -> str:
    """A text that nobody can guess: for tokens, sessions and passwords, and never for noise."""
    return secrets.token_urlsafe(letters)


_OF_TOKEN = TOKENS.c.project_id == PROJECTS.c.id


def _fits(kept: str, password: str) -> bool:
    try:
        return _HASHER.verify(kept, password)
    except (Argon2Error, InvalidHashError):
        return False


def _hashed(password: str) -> str:
    if not SHORTEST <= len(password) <= LONGEST:
        raise DeskError(f"a password has from {SHORTEST} to {LONGEST} characters")
    with _AT_ONCE:
        return _HASHER.hash(password)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _check_role(role: str) -> None:
    if role not in ROLES:
        raise DeskError(f"a role is one of {', '.join(ROLES)}")


def _add_token(
    connection: Connection,
    lasts: timedelta,
    kind: str,
    account: int,
    project: Any = None,
    label: str = "",
) -> str:
    text = new_secret()
    values = {"digest": _digest(text), "kind": kind, "account_id": account, "project_id": project}
    values |= {"label": label, "created": now(), "expires": now(lasts)}
    connection.execute(TOKENS.insert().values(**values))
    return text


def _revoke(connection: Connection, which: Any) -> None:
    ended = TOKENS.update().where(which, TOKENS.c.revoked.is_(None))
    connection.execute(ended.values(revoked=now()))


def _named(connection: Connection, table: Any, name: str) -> dict[str, Any]:
    if (found := db.one(connection, sql.select(table).where(table.c.name == name))) is None:
        raise DeskError(f"there is no {table.name.removesuffix('s')} of this name", 404)
    return found


def _add(connection: Connection, table: Any, name: str, **values: Any) -> None:
    """Add what has a name; names that differ in their capitals only would be taken for one."""
    if not re.fullmatch(_NAME, name):
        raise DeskError("a name has up to 64 letters, digits and . _ @ -")
    if db.one(connection, sql.select(table).where(sql.func.lower(table.c.name) == name.lower())):
        raise DeskError("this name is taken", 409)
    connection.execute(table.insert().values(name=name, created=now(), **values))


def _pair(connection: Connection, name: str, project: str) -> dict[str, int]:
    account = _named(connection, ACCOUNTS, name)["id"]
    return {"account_id": account, "project_id": _named(connection, PROJECTS, project)["id"]}


def _is(table: Any, values: dict[str, int]) -> Any:
    return sql.and_(*(table.c[name] == value for name, value in values.items()))
