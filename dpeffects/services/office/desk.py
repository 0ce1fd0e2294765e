"""What may be asked, who decides, and what became of it.

A request is named by a digest of dataset, project and question: sent twice, it is the same. From
the time it is queued it counts as spent by its project and its person, in one transaction with the
check; that is given back only where the gate refuses it before it has paid.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

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
from dpeffects.services.office.accounts import DeskError, Person
from dpeffects.services.office.database import (
    ACCOUNTS,
    EVENTS,
    MEMBERSHIPS,
    PROJECTS,
    REQUESTS,
    Database,
    note,
    now,
    one,
)
from dpeffects.services.office.office_folder import OfficeFolder

WAITING, QUEUED, RUNNING = "waiting", "queued", "running"
ANSWERED, REFUSED, FAILED = "answered", "refused", "failed"
FINAL = (ANSWERED, REFUSED, FAILED)
SPENT = (QUEUED, RUNNING, ANSWERED, FAILED)
"""What counts against the budgets of projects and people."""
_LISTED = 500
_SAYS = ("status", "reason", "kind", "asked")
_PAID = (NO_ESTIMATE, NOT_ANSWERED)
"""Reasons of the gate after it has paid."""


@dataclass(frozen=True)
class Asked:
    """A request that is being answered."""

    id: str
    question: str


class Desk:
    """The requests of an office."""

    def __init__(self, folder: OfficeFolder, database: Database) -> None:
        self.folder, self.database = folder, database
        self.n = 0
        """Number of records, once a worker has read the data."""

    @property
    def dataset(self) -> str:
        """The name of the dataset."""
        return self.folder.settings.name

    # --- what is public

    def about(self) -> dict[str, Any]:
        """Describe the dataset: its codebook, and what may be asked."""
        policy = self.folder.policy()
        shown = ("methods", "max_epsilon", "max_delta", "level", "minimum_n", "estimands")
        allowed = [name for name in (*CALLS, "dp_att", "dp_atc") if _allows(policy, name)]
        return {
            **{"name": self.dataset, "title": self.folder.settings.title, "n": self.n},
            **{"columns": self.folder.columns, "roles": dict(policy.columns)},
            **{name: getattr(policy, name) for name in shown},
            "calls": sorted(allowed),
        }

    # --- requests

    def question(self, project: str, asked: Any) -> Question:
        """Read a question, and name it."""
        known = {"call", "formula", "epsilon", "delta", "options"}
        if not isinstance(asked, dict) or not isinstance(asked.get("options", {}), dict):
            raise QuestionError("a request is an object, and so are its options")
        if extra := sorted(map(str, asked.keys() - known)):
            raise QuestionError(f"a request has no {extra[0]!r}: it has {', '.join(sorted(known))}")
        call, options = asked.get("call"), asked.get("options", {})
        given = {name: asked[name] for name in ("formula", "epsilon", "delta") if name in asked}
        if not isinstance(call, str) or options.keys() & (known | {"request"}):
            raise QuestionError("a request names its call, and its options are other names")
        question = Question.of_call("new", call, {**options, **given})
        what = {"dataset": self.dataset, "project": project, "question": question.digest}
        return replace(question, request=documents.checksum(what).removeprefix("sha256:"))

    def submit(self, person: Person, project: str, asked: Any) -> dict[str, Any]:
        """Ask; return the state of the request, which may be known already."""
        question = self.question(project, asked)
        reason = refusal_of(question, self.folder.policy())
        with self.database.write() as connection:
            owner = self._owner(connection, person, project)
            known = self._lock(connection, question.request)
            if known is not None and (known["status"] != REFUSED or known["decided_by"]):
                return self._state(known)
            reason = reason or self._over(connection, owner, question)
            status = REFUSED if reason else self._first_status(question)
            values = {"status": status, "reason": reason, "changed": now()}
            if known is None:
                new = {**values, **owner, "id": question.request, "asked": now(), "kind": ""}
                new |= {"epsilon": question.epsilon, "delta": question.delta, "decided_by": ""}
                connection.execute(REQUESTS.insert().values(question=question.to_json(), **new))
            else:
                self._set(connection, question.request, **values)
            note(connection, person.name, f"asked: {status}", question.request)
            return self._state(self._lock(connection, question.request) or {})

    def _first_status(self, question: Question) -> str:
        return WAITING if self.folder.settings.needs_approval(question.epsilon) else QUEUED

    def approve(self, by: Person, request: str) -> None:
        """Let a request be answered; a person does not approve an own one."""
        by.require("steward")
        with self.database.write() as connection:
            known = self._decided(connection, by, request)
            owner = {name: known[name] for name in ("account_id", "project_id")}
            self._lock_owner(connection, owner)
            if reason := self._over(connection, owner, Question.from_json(known["question"])):
                raise DeskError(reason, 409)
            self._set(connection, request, status=QUEUED, decided_by=by.name)
            note(connection, by.name, "approved", request)

    def refuse(self, by: Person, request: str, reason: str) -> None:
        """Refuse a request, with a reason that its people read."""
        by.require("steward")
        said = " ".join(reason.split())[:1000]
        if not said:
            raise DeskError("say why the request is refused")
        with self.database.write() as connection:
            self._decided(connection, by, request)
            self._set(connection, request, status=REFUSED, reason=said, decided_by=by.name)
            note(connection, by.name, "refused", request)

    def _decided(self, connection: Connection, by: Person, request: str) -> dict[str, Any]:
        known = self._lock(connection, request)
        if known is None:
            raise DeskError("there is no such request", 404)
        if known["account_id"] == by.id:
            raise DeskError("somebody else decides about your own request", 403)
        if known["status"] != WAITING:
            raise DeskError(f"this request is {known['status']} already", 409)
        return known

    def state(self, person: Person, request: str) -> dict[str, Any]:
        """Return a request with its result, for people of its project and for stewards."""
        seen = REQUESTS.c.id == request
        if not person.may("steward"):
            seen &= REQUESTS.c.project_id.in_(_projects_of(person))
        rows = self.database.rows(_with_names().where(seen))
        if not rows:
            raise DeskError("there is no such request", 404)
        return self._state(rows[0], result=True)

    def states(
        self,
        person: Person | None = None,
        statuses: Sequence[str] = (),
        most: int | None = _LISTED,
    ) -> list[dict[str, Any]]:
        """Return requests without results, newest first: somebody's own, or all."""
        query = _with_names().order_by(REQUESTS.c.asked.desc()).limit(most)
        if person is not None:
            query = query.where(REQUESTS.c.account_id == person.id)
        if statuses:
            query = query.where(REQUESTS.c.status.in_(statuses))
        return [self._state(row) for row in self.database.rows(query)]

    def _state(self, row: Mapping[str, Any], result: bool = False) -> dict[str, Any]:
        asked = json.loads(row["question"])
        call, more = _call_of(asked)
        options = {**asked.get("options", {}), **more}
        state = {"id": row["id"], "dataset": self.dataset, "call": call}
        state |= {name: asked[name] for name in ("formula", "epsilon")}
        state |= {"delta": asked.get("delta", 0.0), "options": options}
        state |= {name: row[name] for name in _SAYS}
        state |= {name: row[name] for name in ("person", "project", "decided_by") if name in row}
        state["result"] = json.loads(row["result"]) if result and row["result"] else None
        return state

    # --- budgets

    def ledger(self) -> DurableLedger:
        """Open the ledger of the dataset."""
        policy = self.folder.policy()
        return open_ledger(policy.ledger, policy.dataset, anchor=policy.anchor)

    def budget(self, project: str = "", name: str = "") -> dict[str, Any]:
        """Say what there is and what is left for the dataset, a project and a person."""
        ledger = self.ledger()
        total, left = ledger.agreement.budget, ledger.agreement.remaining(ledger.state)
        sizes = zip(("epsilon", "delta"), (total.epsilon, total.delta), left, strict=True)
        found: dict[str, Any] = {
            "dataset": {
                which: {"total": size, "spent": max(size - rest, 0.0), "left": rest}
                for which, size, rest in sizes
            }
        }
        with self.database.read() as connection:
            for what, table, key in (
                ("project", PROJECTS, project),
                ("person", ACCOUNTS, name),
            ):
                owner = one(connection, sql.select(table).where(table.c.name == key))
                found[what] = None if owner is None else _capped(connection, table, owner)
        return found

    def _over(self, connection: Connection, owner: Mapping[str, int], asked: Question) -> str:
        """Why a budget does not cover a question, or an empty text."""
        for what, table, key in _OWNERS:
            row = one(connection, sql.select(table).where(table.c.id == owner[key])) or {}
            spent = _spent(connection, key, owner[key])
            for which, before in zip(("epsilon", "delta"), spent, strict=True):
                cap = row[which]
                if cap is not None and before + as_written(getattr(asked, which)) > as_written(cap):
                    return f"what is left of the {which} of this {what} does not cover the request"
        return ""

    def _owner(self, connection: Connection, person: Person, project: str) -> dict[str, int]:
        same = (PROJECTS.c.name == project) & PROJECTS.c.id.in_(_projects_of(person))
        found = one(connection, sql.select(PROJECTS).where(same))
        if found is None:
            raise DeskError("you are no member of this project", 403)
        owner = {"account_id": person.id, "project_id": found["id"]}
        self._lock_owner(connection, owner)
        return owner

    def _lock_owner(self, connection: Connection, owner: Mapping[str, int]) -> None:
        """Requests of one project and one person take turns, always in this order."""
        for _, table, key in _OWNERS:
            query = sql.select(table.c.id).where(table.c.id == owner[key])
            connection.execute(query.with_for_update()).all()

    def _lock(self, connection: Connection, request: str) -> dict[str, Any] | None:
        query = sql.select(REQUESTS).where(REQUESTS.c.id == request)
        return one(connection, query.with_for_update())

    def _set(self, connection: Connection, request: str, **values: Any) -> None:
        query = REQUESTS.update().where(REQUESTS.c.id == request)
        connection.execute(query.values(**{"changed": now()} | values))

    # --- for the workers

    def claim(self) -> Asked | None:
        """Take the oldest request of the queue, if there is one."""
        with self.database.write() as connection:
            query = sql.select(REQUESTS).where(REQUESTS.c.status == QUEUED)
            query = query.order_by(REQUESTS.c.changed).limit(1)
            row = one(connection, query.with_for_update(skip_locked=True))
            if row is None:
                return None
            self._set(connection, row["id"], status=RUNNING)
            return Asked(row["id"], row["question"])

    def requeue(self) -> int:
        """Queue again what was being answered when an earlier server ended."""
        with self.database.write() as connection:
            query = REQUESTS.update().where(REQUESTS.c.status == RUNNING)
            return int(connection.execute(query.values(status=QUEUED)).rowcount)

    def finish(self, request: str, reply: Mapping[str, Any]) -> None:
        """Keep what the gate replied."""
        values: dict[str, Any] = {"reason": reply.get("reason", ""), "status": ANSWERED}
        if reply["status"] == "ok":
            text = json.dumps(reply["result"], allow_nan=False)
            values |= {"kind": reply["kind"], "result": text}
        else:
            paid = reply.get("paid", values["reason"] in _PAID)
            values["status"] = FAILED if paid else REFUSED
        with self.database.write() as connection:
            self._set(connection, request, **values)
            note(connection, "office", str(values["status"]), request)

    def later(self, request: str) -> None:
        """Queue a request again that could not be answered now."""
        with self.database.write() as connection:
            self._set(connection, request, status=QUEUED)

    def counts(self) -> dict[str, int]:
        """Number of requests by status."""
        query = sql.select(REQUESTS.c.status, sql.func.count().label("n"))
        rows = self.database.rows(query.group_by(REQUESTS.c.status))
        return {row["status"]: row["n"] for row in rows}

    def events(self, most: int | None = _LISTED) -> list[dict[str, Any]]:
        """Return what happened, newest first."""
        return self.database.rows(sql.select(EVENTS).order_by(EVENTS.c.id.desc()).limit(most))


_OWNERS = (("project", PROJECTS, "project_id"), ("person", ACCOUNTS, "account_id"))


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


def _call_of(asked: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The call as it was written, and what a question has as fields of its own beside options."""
    call, estimand = asked.get("call", "dp_ate"), asked.get("estimand", "ATE")
    more = {"method": asked["method"]} if asked.get("method", "auto") != "auto" else {}
    if call == "dp_ate":
        return f"dp_{estimand.lower()}", more
    return call, more | ({} if estimand == "ATE" or call == "dp_did" else {"estimand": estimand})


def _spent(connection: Connection, key: str, value: int) -> tuple[Fraction, Fraction]:
    query = sql.select(REQUESTS.c.epsilon, REQUESTS.c.delta)
    query = query.where(REQUESTS.c[key] == value, REQUESTS.c.status.in_(SPENT))
    rows = connection.execute(query).all()
    epsilon, delta = (sum((as_written(row[k]) for row in rows), Fraction(0)) for k in (0, 1))
    return epsilon, delta


def _capped(connection: Connection, table: Any, owner: Mapping[str, Any]) -> dict[str, Any]:
    key = "project_id" if table is PROJECTS else "account_id"
    spent = _spent(connection, key, owner["id"])
    found: dict[str, Any] = {}
    for which, used in zip(("epsilon", "delta"), spent, strict=True):
        cap = owner[which]
        left = None if cap is None else float(max(as_written(cap) - used, Fraction(0)))
        found[which] = {"total": cap, "spent": float(used), "left": left}
    return found


def plain_reason(error: Exception) -> str:
    """What an error says, on one line of bounded length."""
    return " ".join(str(error).split())[:2000]
