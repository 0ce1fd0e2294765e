"""An office under load, and one whose processes are killed: what is lost, drawn twice, overspent.

Offices of 2,000 made-up records are started by their command, and people ask over HTTP, five in a
project. Half of the questions are those that a colleague has just sent. A digest of every result
that anybody sees is kept, and compared with the ledger in the end. Killed are, at random moments,
the server; the processes that answer, plan and rehearse; whichever has just written to its file;
connections to PostgreSQL, and PostgreSQL. People then ask again until there is an answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any
from unittest import mock

import httpx
import numpy as np
import pandas as pd
import sqlalchemy as sql
from argon2 import PasswordHasher

from dpeffects.errors import DPEffectsError
from dpeffects.services.gate.trial_runs import TOO_LARGE
from dpeffects.services.office import accounts
from dpeffects.services.office.answering import DIED
from dpeffects.services.office.database import ACCOUNTS, PROJECTS, REQUESTS, Database
from dpeffects.services.office.desk import Desk
from dpeffects.services.office.office_folder import OfficeSettings, make_folder
from tests.privacy.conftest import Server, binaries

ROOT = Path(__file__).resolve().parents[2]
CODEBOOK = "y = {range = [0, 1]}\nt = {levels = [0, 1]}\nx = {range = [0, 10]}\n"
PASSWORD, FORM = "a password of the benchmark", re.compile(r'name="form" value="([^"]+)"')
DATASET = "/api/datasets/registry"
CHEAP = {"codebook": DATASET, "budget": f"{DATASET}/budget", "requests": "/api/requests"}
CHEAP |= {"state": "", "question sent again": "", "question": ""}
PAGES = ("/queue", "/people", "/ledger", "/events", "/requests/{}", "/requests/{}?plan=yes")
EACH, DEAR = Fraction("0.01"), Fraction("0.05")
"""Epsilon of a question, and of one that a steward approves."""
PATIENCE = 300.0
"""Seconds until what has no answer in the end counts as lost."""
WHOSE = (("project", "project_id", PROJECTS), ("person", "account_id", ACCOUNTS))


class Office:
    """An office, its server, and everything that its people saw."""

    def __init__(self, place: Path, server: Any, people: int, workers: int, **most: float) -> None:
        place.mkdir()
        rng, n = np.random.default_rng(1), 2000
        frame = {"y": rng.random(n), "t": np.arange(n) % 2, "x": 10 * rng.random(n)}
        pd.DataFrame(frame).to_csv(place / "data.csv", index=False)
        (place / "codebook.toml").write_text(CODEBOOK)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            listen = f"127.0.0.1:{free.getsockname()[1]}"
        self.server, url = server, server.url(server.schema()) if server else ""
        often = [x for x in OfficeSettings.__dataclass_fields__ if "_per_" in x]
        settings = {"name": "registry", "listen": listen, "workers": workers}
        settings |= {"approval": "above", "approve_above": float(DEAR / 2)}
        settings |= dict.fromkeys(often, 1_000_000) | ({"store": url} if url else {})
        files, how = (place / "data.csv", place / "codebook.toml"), {"settings": settings}
        self.folder = make_folder(place / "office", *files, most["total"], 0.0, **how, ledger=url)
        self.database, self.address = Database(self.folder.store), f"http://{listen}"
        self.database.upgrade()
        self.desk, self.process, self.starts = Desk(self.folder, self.database), None, []
        quick = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
        with mock.patch.object(accounts, "_HASHER", quick):
            self.tokens = list(self._tokens(people, most["cap"]))
        self.asked, self.shown, self.times = defaultdict(list), defaultdict(set), defaultdict(list)
        self.accepted, self.codes, self.up = {}, Counter(), False

    def _tokens(self, people: int, cap: float) -> Iterator[tuple[str, str]]:
        """Every other project has a cap, and one person in each."""
        known = accounts.Accounts(self.database)
        known.add("", "steward", "steward", PASSWORD)
        for k in range(people):
            name, project = f"researcher{k}", f"project{k // 5}"
            known.add("", name, "researcher", PASSWORD)
            if k % 5 == 0:
                known.add_project("", project)
                known.set_budget("", "person", name, cap / 4, None)
                known.set_budget("", "project", project, cap if k % 10 else None, None)
            known.set_member("", name, project)
            yield project, known.token("", name, project)

    async def keep(self) -> None:
        """Start the server, again whenever it has ended, and note when it answers."""
        command = [sys.executable, "-m", "dpeffects", "office", "serve", str(self.folder.path)]
        async with httpx.AsyncClient() as client:
            while True:
                if self.process is None or self.process.poll() is not None:
                    began, self.up = time.monotonic(), False
                    with (self.folder.path / "log").open("ab") as log:
                        self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd=ROOT)
                with contextlib.suppress(httpx.TransportError):
                    if not self.up and (await client.get(f"{self.address}/healthz")).is_success:
                        self.up = True
                        self.starts.append(time.monotonic() - began)
                await asyncio.sleep(0.1)

    def processes(self, what: str) -> list[int]:
        """Processes of the server that do this work."""
        if what == "server":
            return [self.process.pid]
        if what == "rehearses":
            return [x for parent in self.processes("answers") for x in children(parent)]
        own = {"answers": "\0answering\0", "plans": "\0plan\0"}[what]
        return [x for x in children(self.process.pid) if own in read(f"/proc/{x}/cmdline")]

    def requests(self, *statuses: str) -> list[str]:
        """Requests of these statuses."""
        with contextlib.suppress(sql.exc.OperationalError):  # PostgreSQL may be away
            query = sql.select(REQUESTS.c.id).where(REQUESTS.c.status.in_(statuses))
            return [row["id"] for row in self.database.rows(query)]
        return []

    def over(self, row: Any) -> bool:
        """Say whether the budget of a request's project or person does not cover it any more."""
        tables = {key: table for _, key, table in WHOSE}
        names = [
            self.database.rows(sql.select(tables[key]).where(tables[key].c.id == row[key]))[0]
            for key in ("project_id", "account_id")
        ]
        told = self.desk.budget(*(x["name"] for x in names))
        left = [told[who]["epsilon"]["left"] for who in ("project", "person")]
        return any(x is not None and x < row["epsilon"] for x in left)

    def found(self) -> dict[str, Any]:
        """Compare what people saw with the database, and both with the ledger."""
        rows = {row["id"]: row for row in self.database.rows(sql.select(REQUESTS))}
        ledger, total, n, spent = self.desk.ledger(), Fraction(0), Counter(), Counter()
        book: Any = defaultdict(lambda: {"request": [], "reply": []})
        for entry in ledger.entries():
            if entry.kind in ("request", "reply"):
                book[entry.body["request"]][entry.kind].append(entry.body)
        for x in {*rows, *book, *self.accepted, *self.shown}:
            paid, seen = book[x]["request"], self.shown.get(x, set())
            kept = [y["reply"]["release"] for y in book[x]["reply"] if "release" in y["reply"]]
            right, row = {digest(y) for y in kept}, rows.get(x, {"status": "", "reason": ""})
            total += sum(Fraction(repr(y["epsilon"])) for y in paid)
            twice = max(map(len, (paid, book[x]["reply"], seen))) > 1
            n["drawn twice"] += twice or not seen <= right
            n["seen and not paid"] += bool(seen and not paid)
            refused = row["status"] == "refused" and "does not cover" in row["reason"]
            had = row["status"] == "answered"
            had = had and {digest(json.loads(row["result"]))} == right == seen
            ended = row["status"] == "failed" and not kept
            waits = row["status"] == "waiting" and self.over(row)
            n["lost"] += x in self.accepted and not (had or ended or refused or waits)
            n["waiting, for a budget"] += waits
            n["answered"] += had
            n["given up: their processes died three times"] += row["reason"] == DIED
            n["refused, for a budget"] += refused
            for _, key, _ in WHOSE if x in rows and (paid or row["status"] == "failed") else ():
                spent[key, row[key]] += Fraction(repr(row["epsilon"]))
        for who, key, table in WHOSE:
            for owner in self.database.rows(sql.select(table)):
                own, cap = spent[key, owner["id"]], Fraction(repr(owner["epsilon"] or 1e9))
                told = self.desk.budget(**{{"person": "name"}.get(who, who): owner["name"]})[who]
                n["told other than spent"] += told["epsilon"]["spent"] != float(own)
                n["budgets overspent"] += own > cap
                n["budgets that were reached"] += own + EACH + EACH / 10 > cap
        try:
            sound = re.findall(r"\bsound\b", ledger.verify())[0]
        except DPEffectsError as error:
            sound = str(error)
        given = Fraction(repr(ledger.agreement.budget.epsilon))
        return {
            "requests accepted": len(self.accepted),
            **n,
            "epsilon beyond the total": float(max(total - given, Fraction(0))),
            "lost in the ledger's total": float(abs(total - ledger.state.spent.first)),
            "total reached": total + EACH + EACH / 10 > given,
            "ledger": sound,
        }


def digest(result: Any) -> str:
    return hashlib.sha256(json.dumps(result, sort_keys=True).encode()).hexdigest()


def read(path: str | Path) -> str:
    with contextlib.suppress(OSError):
        return Path(path).read_text()
    return ""


def children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(x) for task in tasks for x in read(task).split()]


# --- people


class Client:
    """Somebody who asks, and asks again until the office has answered."""

    def __init__(self, office: Office, token: str = "") -> None:
        head = {"authorization": f"Bearer {token}"} if token else {}
        how: dict[str, Any] = {"timeout": 90.0, "follow_redirects": True}
        self.http = httpx.AsyncClient(base_url=office.address, headers=head, **how)
        self.office = office

    async def ask(self, kind: str, path: str, **sent: Any) -> httpx.Response:
        for pause in itertools.repeat(0.5):
            began, code = time.monotonic(), 0
            with contextlib.suppress(httpx.TransportError):
                reply = await self.http.request("POST" if sent else "GET", path, **sent)
                code = reply.status_code
            self.office.times[kind].append(time.monotonic() - began)
            self.office.codes[code] += 1
            if 0 < code < 500:
                return reply
            await asyncio.sleep(pause)
        raise AssertionError

    async def state(self, kind: str, path: str, **sent: Any) -> dict:
        state = (await self.ask(kind, path, **sent)).json()
        if state["status"] in ("waiting", "queued", "running", "answered"):
            self.office.accepted[state["id"]] = state["project"]
        if state["result"] is not None:
            self.office.shown[state["id"]].add(digest(state["result"]))
        return state


async def research(office: Office, who: int, asks: float, pause: float, done: Any) -> None:
    """Ask for this and that, and now and then a question that is drawn, or a colleague's."""
    project, token = office.tokens[who]
    client, chance, sent = Client(office, token), random.Random(who), office.asked[project]
    weights = [1.0, 1.0, 1.0, 3.0, 2.0, asks]
    while not done.is_set():
        await asyncio.sleep(chance.expovariate(1.0 / pause))
        known = [x for x, of in office.accepted.items() if of == project]
        kind = chance.choices(list(CHEAP), weights)[0]
        if CHEAP[kind]:
            await client.ask(kind, CHEAP[kind])
        elif kind == "state" and known:
            await client.state(kind, f"/api/requests/{chance.choice(known)}")
        elif kind == "question sent again" and sent:
            await client.state(kind, f"{DATASET}/requests", json=chance.choice(sent))
        elif kind == "question":
            if not sent or chance.random() < 0.5:
                cost = (DEAR if chance.random() < 0.1 else EACH) + Fraction(len(sent), 10**6)
                asked = {"call": "dp_ate", "formula": "y ~ t", "epsilon": float(cost)}
                sent.append(asked | {"delta": 0.0, "options": {"method": "diff_in_means"}})
            asked, began, state = chance.choice(sent[-3:]), time.monotonic(), {"reason": TOO_LARGE}
            while state["reason"] == TOO_LARGE:  # its rehearsal was killed
                state = await client.state(kind, f"{DATASET}/requests", json=asked)
                while state["status"] in ("queued", "running"):
                    state = await client.state("wait", f"/api/requests/{state['id']}?wait=5")
            if state["status"] == "answered":
                office.times["question, until its answer"].append(time.monotonic() - began)


async def decide(office: Office, pause: float, done: Any) -> None:
    """Look at a steward's pages and at plans, and approve what waits."""
    client, chance = Client(office), random.Random(0)

    async def post(path: str, **fields: str) -> None:
        form = FORM.search((await client.ask("page", "/people")).text)
        await client.ask("form", path, data={**fields, "form": form[1] if form else ""})

    await post("/sign-in", name="steward", password=PASSWORD)
    while not done.is_set():
        await asyncio.sleep(chance.expovariate(1.0 / pause))
        page = chance.choice(PAGES).format(chance.choice([*office.accepted, "none"]))
        await client.ask("plan" if "plan" in page else "page", page)
        for request in office.requests("waiting"):
            await post(f"/requests/{request}", do="approve")


# --- what is killed


async def kill(office: Office, many: int, pace: float, killed: Counter[str]) -> None:
    """Kill this and that at random moments, until it was so many times."""
    chance, path = random.Random(), office.folder.path
    files = {"server that writes": path / "office.db-wal", "answers, writes": path / "ledger.db"}
    sessions = {"connections": "", "connections at work": " AND state <> 'idle'"}
    kinds = ["server", "server", "answers", "answers", "plans", "rehearses"]
    kinds += [*sessions, "PostgreSQL"] if office.server else [*files, "server that writes"]
    while sum(killed.values()) < many:
        if chance.random() < 0.8:  # others may hit a server that starts
            await happens(lambda: office.up, 120.0)
        await asyncio.sleep(chance.uniform(0.0, 2.0 * pace))
        kind, found = chance.choice(kinds), []
        if kind == "PostgreSQL":
            await asyncio.to_thread(office.server.crash)
            await asyncio.to_thread(office.server.start)
            killed[kind] += 1
        elif kind in sessions:
            killed[kind] += await happens(lambda k=kind: ended(office.server, sessions[k]))
        else:
            if kind in files:
                before = changed(files[kind])
                await happens(lambda k=kind, b=before: changed(files[k]) != b)
                await asyncio.sleep(chance.uniform(0.0, 0.01))
            found = office.processes(re.split(r"\W", kind)[0])
        with contextlib.suppress(ProcessLookupError, IndexError):
            os.kill(pid := chance.choice(found), signal.SIGKILL)
            office.up = office.up and pid != office.process.pid
            killed[kind] += 1


async def happens(what: Callable[[], Any], seconds: float = 5.0) -> bool:
    last = time.monotonic() + seconds
    while not (found := what()) and time.monotonic() < last:
        await asyncio.sleep(0.005)
    return bool(found)


def changed(file: Path) -> Any:
    with contextlib.suppress(OSError):
        return file.stat().st_mtime_ns
    return None


def ended(server: Any, which: str) -> list[Any]:
    """End connections of clients, all or those that are at work."""
    import psycopg

    end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
    end += f"AND backend_type = 'client backend'{which}"
    where, full = f"host={server.folder} user=tester dbname=postgres", psycopg.OperationalError
    with contextlib.suppress(full), psycopg.connect(where, autocommit=True) as connection:
        return connection.execute(end).fetchall()
    return []


# --- a run


async def run(office: Office, seconds: float, kills: int, pace: float) -> dict[str, Any]:
    """Let people ask for some seconds, or until so much was killed; say what has become of all."""
    done, decided, killed = asyncio.Event(), asyncio.Event(), Counter()
    keeper = asyncio.create_task(office.keep())
    while not office.starts and not keeper.done():
        await asyncio.sleep(0.1)
    how = (5.0, 0.5, done) if kills else (0.25, 1.0, done)
    people = [asyncio.create_task(research(office, k, *how)) for k in range(len(office.tokens))]
    steward = asyncio.create_task(decide(office, 2.0, decided))
    await (kill(office, kills, pace, killed) if kills else asyncio.sleep(seconds))
    done.set()
    _, stuck = await asyncio.wait(people, timeout=PATIENCE)
    last = time.monotonic() + PATIENCE
    while office.requests("waiting", "queued", "running") and time.monotonic() < last:
        await asyncio.sleep(0.5)
    decided.set()
    await asyncio.wait([steward], timeout=60.0)
    errors = [x.exception() for x in (*people, steward) if x.done() and x.exception()]
    clients = {project: Client(office, token) for project, token in office.tokens}
    for request, project in office.accepted.items():  # what was seen is seen again
        with contextlib.suppress(KeyError):  # it is lost, as will be found
            await clients[project].state("seen again", f"/api/requests/{request}")
    keeper.cancel()
    office.process.send_signal(signal.SIGTERM)
    office.process.wait(120)
    lost = {"people without an answer": len(stuck) + len(errors)}
    lost |= {"errors": "; ".join(map(repr, errors))} if errors else {}
    return {**office.found(), **lost, "killed": sum(killed.values()), **killed}


@contextlib.contextmanager
def opened(store: str, people: int, workers: int, **most: float) -> Iterator[Office]:
    """An office, on PostgreSQL with a cluster of its own."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as last:
        server = Server(binaries()) if store == "PostgreSQL" else None
        last.callback(server.remove if server else int)
        office = Office(Path(folder) / "here", server, people, workers, **most)
        last.callback(office.database.close)
        try:
            yield office
        finally:
            if office.process is not None and office.process.poll() is None:
                office.process.kill()


def under_load(store: str, people: int, seconds: float) -> tuple[Office, dict[str, Any]]:
    """Let people ask for some seconds."""
    with opened(store, people, 3, total=1000.0, cap=float(EACH) * seconds / 10) as office:
        return office, asyncio.run(run(office, seconds, 0, 0.0))


def with_kills(store: str, kills: int) -> tuple[Office, dict[str, Any]]:
    """Let ten people ask until so much was killed."""
    most = {"total": float(EACH) * kills, "cap": float(EACH) * kills / 2.5}
    with opened(store, 10, 1, **most) as office:
        return office, asyncio.run(run(office, 0.0, kills, 2.0))
