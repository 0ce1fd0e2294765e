"""What may be asked, who decides, and what became of it.

A request is named by a digest of dataset, project and question: sent twice, it is the same. From
the time it is queued it counts as spent by its project and its person, in one transaction with the
check; that is given back only where the gate refuses it before it has paid.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from fractions import Fraction
from typing import Any, NamedTuple

import sqlalchemy as sql
from sqlalchemy.engine import Connection

from dpeffects import documents
from dpeffects.errors import QuestionError
from dpeffects.ledgers import open_ledger
from dpeffects.ledgers.durable import DurableLedger
from dpeffects.privacy.budget import as_written
from dpeffects.services.gate.answers import NO_ESTIMATE, NOT_ANSWERED, refusal_of
from dpeffects.services.gate.policy import Policy
from dpeffects.services.gate.question import CALLS, Question
from dpeffects.services.office import database as db
from dpeffects.services.office.accounts import DeskError, Person
from dpeffects.services.office.database import ACCOUNTS, MEMBERSHIPS, PROJECTS, REQUESTS, note, now
from dpeffects.services.office.office_folder import OfficeFolder

WAITING, QUEUED, RUNNING = "waiting", "queued", "running"
ANSWERED, REFUSED, FAILED = "answered", "refused", "failed"
FINAL, SPENT = (ANSWERED, REFUSED, FAILED), (QUEUED, RUNNING, ANSWERED, FAILED)
"""What changes no more, and what counts against the budgets of projects and people."""
_LISTED = 500
_PAID = (NO_ESTIMATE, NOT_ANSWERED)
"""Reasons of the gate after it has paid."""
_SAYS = ("status", "reason", "kind", "asked", "decided_by", "person", "project")
_ASKED = ("call", "formula", "epsilon", "delta", "options")
_SIZES = ("epsilon", "delta")
_OWNERS = (("project", PROJECTS, "project_id"), ("person", ACCOUNTS, "account_id"))


class Asked(NamedTuple):
    """A request that is being answered."""

    id: str
    question: str


class Desk:
    """The requests of an office."""

    def __init__(self, folder: OfficeFolder, database: db.Database) -> None:
        self.folder, self.database = folder, database
        self.dataset = folder.settings.name
        self.n = 0
        """Number of records, once a worker has read the data."""
        self._served = 0

    def about(self) -> dict[str, Any]:
        """Describe the dataset: its codebook, and what may be asked."""
        policy = self.folder.policy()
        shown = ("methods", "max_epsilon", "max_delta", "level", "minimum_n", "estimands")
        return {
            **{"name": self.dataset, "title": self.folder.settings.title, "n": self.n},
            **{"columns": self.folder.columns, "roles": dict(policy.columns)},
            **{name: getattr(policy, name) for name in shown},
            "calls": sorted(x for x in (*CALLS, "dp_att", "dp_atc") if _allows(policy, x)),
        }

    # --- requests

    def question(self, project: str, asked: Any) -> Question:
        """Read a question, and name it."""
        if not isinstance(asked, dict) or not isinstance(asked.get("options", {}), dict):
            raise QuestionError("a request is an object, and so are its options")
        if extra := sorted(asked.keys() - set(_ASKED)):
            raise QuestionError(f"a request has no {extra[0]!r}: it has {', '.join(_ASKED)}")
        call, options = asked.get("call"), asked.get("options", {})
        if not isinstance(call, str) or options.keys() & {*_ASKED, "request"}:
            raise QuestionError("a request names its call, and its options are other names")
        given = {name: asked[name] for name in ("formula", *_SIZES) if name in asked}
        question = Question.of_call("new", call, options | given)
        what = {"dataset": self.dataset, "project": project, "question": question.digest}
        return replace(question, request=documents.checksum(what).removeprefix("sha256:"))

    def submit(self, person: Person, project: str, asked: Any) -> dict[str, Any]:
        """Ask; return the state of the request, which may be known already."""
        question = self.question(project, asked)
        reason = refusal_of(question, self.folder.policy())
        with self.database.write() as connection:
            mine = PROJECTS.c.id.in_(_projects_of(person))
            found = sql.select(PROJECTS).where(PROJECTS.c.name == project, mine)
            if (row := db.one(connection, found)) is None:
                raise DeskError("you are no member of this project", 403)
            owner = {"account_id": person.id, "project_id": row["id"]}
            _lock_owner(connection, owner)
            known = _locked(connection, question.request)
            if known is None or (known["status"] == REFUSED and not known["decided_by"]):
                reason = reason or _over(connection, owner, question)
                waits = self.folder.settings.needs_approval(question.epsilon)
                status = REFUSED if reason else WAITING if waits else QUEUED
                new = {**owner, "status": status, "reason": reason, "changed": now()}
                new |= {name: getattr(question, name) for name in _SIZES} | {"asked": now()}
                new |= {"question": question.to_json(), "kind": "", "decided_by": ""}
                if known is None:
                    self._limit(connection, person)
                    connection.execute(REQUESTS.insert().values(id=question.request, **new))
                else:
                    db.change(connection, REQUESTS, question.request, **new)
                note(connection, person.name, f"asked: {status}", question.request)
        return self.state(person, question.request)

    def _limit(self, connection: Connection, person: Person) -> None:
        """Refuse more new requests than somebody may have in a day: each is kept."""
        today = sql.select(sql.func.count()).where(REQUESTS.c.account_id == person.id)
        today = today.where(REQUESTS.c.asked > now(-timedelta(days=1)))
        if connection.scalar(today) >= (most := self.folder.settings.requests_per_day):
            raise DeskError(f"these are more than the {most} new requests of a day", 429)

    def approve(self, by: Person, request: str) -> None:
        """Let a request be answered; a person does not approve an own one."""
        with self.database.write() as connection:
            known = _undecided(connection, by, request)
            _lock_owner(connection, known)
            if reason := _over(connection, known, Question.from_json(known["question"])):
                raise DeskError(reason, 409)
            values = {"status": QUEUED, "decided_by": by.name, "changed": now()}
            db.change(connection, REQUESTS, request, **values)
            note(connection, by.name, "approved", request)

    def refuse(self, by: Person, request: str, reason: str) -> None:
        """Refuse a request, with a reason that its people read."""
        if not (said := " ".join(reason.split())[:1000]):
            raise DeskError("say why the request is refused")
        with self.database.write() as connection:
            _undecided(connection, by, request)
            values = {"status": REFUSED, "reason": said, "decided_by": by.name}
            db.change(connection, REQUESTS, request, **values)
            note(connection, by.name, "refused", request)

    def state(self, person: Person, request: str) -> dict[str, Any]:
        """Return a request with its result, for people of its project and for stewards."""
        query = _with_names().where(REQUESTS.c.id == request)
        if not person.may("steward"):
            query = query.where(REQUESTS.c.project_id.in_(_projects_of(person)))
        if not (rows := self.database.rows(query)):
            raise DeskError("there is no such request", 404)
        result = rows[0]["result"]
        return self._state(rows[0]) | {"result": json.loads(result) if result else None}

    def states(
        self, person: Person | None = None, statuses: Sequence[str] = (), most: int | None = _LISTED
    ) -> list[dict[str, Any]]:
        """Return requests without results, newest first: somebody's own, or all."""
        query = _with_names().order_by(REQUESTS.c.asked.desc()).limit(most)
        if person is not None:
            query = query.where(REQUESTS.c.account_id == person.id)
        if statuses:
            query = query.where(REQUESTS.c.status.in_(statuses))
        return [self._state(row) for row in self.database.rows(query)]

    def _state(self, row: Mapping[str, Any]) -> dict[str, Any]:
        asked = {"call": "dp_ate", "delta": 0.0, **json.loads(row["question"])}
        estimand, call = asked.get("estimand", "ATE"), asked["call"]
        options = dict(asked.get("options", {}))
        if asked.get("method", "auto") != "auto":
            options["method"] = asked["method"]
        if call == "dp_ate":
            asked["call"] = f"dp_{estimand.lower()}"
        elif estimand != "ATE" and call != "dp_did":
            options["estimand"] = estimand
        state = {"id": row["id"], "dataset": self.dataset, "options": options, "result": None}
        state |= {name: asked[name] for name in _ASKED if name != "options"}
        return state | {name: row[name] for name in _SAYS}

    # --- budgets

    def ledger(self) -> DurableLedger:
        """Open the ledger of the dataset."""
        policy = self.folder.policy()
        return open_ledger(policy.ledger, policy.dataset, anchor=policy.anchor)

    def budget(self, project: str = "", name: str = "") -> dict[str, Any]:
        """Say what there is and what is left for the dataset, a project and a person."""
        ledger, whole = self.ledger(), {}
        for which, left in zip(_SIZES, ledger.agreement.remaining(ledger.state), strict=True):
            total = getattr(ledger.agreement.budget, which)
            whole[which] = {"total": total, "spent": max(total - left, 0.0), "left": left}
        return {"dataset": whole, **self.caps(project, name)}

    def caps(self, project: str = "", name: str = "") -> dict[str, Any]:
        """Say what is left for a project and a person; the ledger is not read for it."""
        found: dict[str, Any] = {}
        with self.database.read() as connection:
            for (what, table, key), given in zip(_OWNERS, (project, name), strict=True):
                row = db.one(connection, sql.select(table).where(table.c.name == given))
                found[what] = row and _capped(connection, key, row)
        return found

    # --- for the workers

    def claim(self, held: Collection[str] = ()) -> Asked | None:
        """Take the oldest request of the queue, or one that was taken and that nobody holds."""
        dropped = (REQUESTS.c.status == RUNNING) & REQUESTS.c.id.not_in(held)
        query = sql.select(REQUESTS).where((REQUESTS.c.status == QUEUED) | dropped)
        turns = REQUESTS.c.account_id <= self._served, REQUESTS.c.account_id  # of people
        query = query.order_by(*turns, REQUESTS.c.changed).limit(1)
        query = query.with_for_update(skip_locked=True)
        with self.database.write() as connection:
            if (row := db.one(connection, query)) is None:
                return None
            db.change(connection, REQUESTS, row["id"], status=RUNNING, changed=now())
            self._served = row["account_id"]
            return Asked(row["id"], row["question"])

    def requeue(self, request: str) -> None:
        """Queue again what could not be answered."""
        with self.database.write() as connection:
            db.change(connection, REQUESTS, request, status=QUEUED, changed=now())

    def finish(self, request: str, reply: Mapping[str, Any]) -> None:
        """Keep what the gate replied."""
        values = {"status": ANSWERED, "reason": reply.get("reason", ""), "changed": now()}
        if reply["status"] == "ok":
            result = json.dumps(reply["result"], allow_nan=False)
            values |= {"kind": reply["kind"], "result": result}
        else:
            paid = reply.get("paid", values["reason"] in _PAID)
            values |= {"status": FAILED} if paid else {"status": REFUSED, "decided_by": ""}
        with self.database.write() as connection:
            db.change(connection, REQUESTS, request, **values)
            note(connection, "office", values["status"], request)

    def counts(self) -> dict[str, int]:
        """Number of requests by status."""
        query = sql.select(REQUESTS.c.status, sql.func.count().label("n"))
        rows = self.database.rows(query.group_by(REQUESTS.c.status))
        return {row["status"]: row["n"] for row in rows}

    def events(self, most: int | None = _LISTED) -> list[dict[str, Any]]:
        """Return what happened, newest first."""
        return self.database.rows(sql.select(db.EVENTS).order_by(db.EVENTS.c.id.desc()).limit(most))


def _allows(policy: Policy, call: str) -> bool:
    """Whether a policy allows any question of a call."""
    if call in ("dp_att", "dp_atc"):
        return call.removeprefix("dp_").upper() in policy.estimands
    return call == "dp_ate" or bool({call, CALLS[call]} & set(policy.methods))


def _projects_of(person: Person) -> Any:
    return sql.select(MEMBERSHIPS.c.project_id).where(MEMBERSHIPS.c.account_id == person.id)


def _with_names() -> Any:
    names = (ACCOUNTS.c.name.label("person"), PROJECTS.c.name.label("project"))
    query = sql.select(REQUESTS, *names).join_from(REQUESTS, ACCOUNTS)
    return query.join(PROJECTS, REQUESTS.c.project_id == PROJECTS.c.id)


def _locked(connection: Connection, request: str) -> dict[str, Any] | None:
    query = sql.select(REQUESTS).where(REQUESTS.c.id == request)
    return db.one(connection, query.with_for_update())


def _undecided(connection: Connection, by: Person, request: str) -> dict[str, Any]:
    """A request that waits, for a steward who did not ask it."""
    by.require("steward")
    if (known := _locked(connection, request)) is None:
        raise DeskError("there is no such request", 404)
    if known["account_id"] == by.id:
        raise DeskError("somebody else decides about your own request", 403)
    if known["status"] != WAITING:
        raise DeskError(f"this request is {known['status']} already", 409)
    return known


def _lock_owner(connection: Connection, owner: Mapping[str, Any]) -> None:
    """Requests of one project and one person take turns, always in this order."""
    for _, table, key in _OWNERS:
        query = sql.select(table.c.id).where(table.c.id == owner[key])
        connection.execute(query.with_for_update()).all()


def _over(connection: Connection, owner: Mapping[str, Any], asked: Question) -> str:
    """Why a budget does not cover a question, or an empty text."""
    for what, table, key in _OWNERS:
        row = db.one(connection, sql.select(table).where(table.c.id == owner[key])) or {}
        for which, spent in zip(_SIZES, _spent(connection, key, owner[key]), strict=True):
            after, cap = spent + as_written(getattr(asked, which)), row[which]
            if cap is not None and after > as_written(cap):
                return f"what is left of the {which} of this {what} does not cover the request"
    return ""


def _spent(connection: Connection, key: str, value: int) -> tuple[Fraction, Fraction]:
    query = sql.select(REQUESTS.c.epsilon, REQUESTS.c.delta)
    query = query.where(REQUESTS.c[key] == value, REQUESTS.c.status.in_(SPENT))
    rows = connection.execute(query).all()
    epsilon, delta = (sum((as_written(row[k]) for row in rows), Fraction(0)) for k in (0, 1))
    return epsilon, delta


def _capped(connection: Connection, key: str, row: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for which, spent in zip(_SIZES, _spent(connection, key, row["id"]), strict=True):
        cap = row[which]
        left = None if cap is None else float(max(as_written(cap) - spent, Fraction(0)))
        found[which] = {"total": cap, "spent": float(spent), "left": left}
    return found
