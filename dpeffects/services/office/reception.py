"""What pages and the API share: who asks, how often, and how much may be sent."""

from __future__ import annotations

import asyncio
import json
import math
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import jinja2
import prometheus_client as prometheus
from itsdangerous import BadSignature, URLSafeTimedSerializer
from limits import parse as rate
from limits.storage import MemoryStorage
from limits.strategies import MovingWindowRateLimiter
from starlette.concurrency import run_in_threadpool as in_thread
from starlette.requests import ClientDisconnect, Request

from dpeffects.documents import parse_json
from dpeffects.services.office.accounts import Accounts, DeskError, Person
from dpeffects.services.office.answering import CLASS, Pool
from dpeffects.services.office.database import Database
from dpeffects.services.office.desk import FINAL, Desk
from dpeffects.services.office.office_folder import OfficeFolder

MOST_BYTES, _FIELDS = 65_536, 50
"""Of a request or a form, and how many fields a form has."""
_LONGEST_WAIT = 20.0
TEMPLATES = Path(__file__).with_name("templates")
NOBODY = Person(0, "", "researcher")


@dataclass
class Visit:
    """A request over HTTP: who sent it, and what."""

    request: Request
    person: Person = NOBODY
    body: bytes = b""
    form: dict[str, str] = field(default_factory=dict)
    session: str = ""

    def __getitem__(self, name: str) -> str:
        """A part of the path."""
        part = str(self.request.path_params[name])
        if "\0" in part:  # PostgreSQL has no text with it
            raise DeskError("there is no such page", 404)
        return part

    def field(self, name: str) -> str:
        """A field of a form, without spaces around it."""
        return self.form.get(name, "").strip()

    def number(self, name: str) -> float | None:
        """A field that is a number, or None where it is empty."""
        with suppress(ValueError):
            if not (text := self.field(name)) or math.isfinite(float(text)):
                return float(text) if text else None
        raise DeskError(f"{name} is a number, such as 0.5")

    def row(self, name: str) -> int:
        """A field that is the number of a row; 0, which no row has, where it is none."""
        text = self.field(name)
        return int(text) if text.isdecimal() and len(text) < 10 else 0

    @property
    def address(self) -> str:
        """Where it comes from."""
        return self.request.client.host if self.request.client else ""

    @property
    def cookie(self) -> str:
        """The name of the cookie; with TLS no other host can set it."""
        return "__Host-office" if self.request.url.scheme == "https" else "office"

    def read_form(self, hours: float) -> None:
        """Read the fields of a form that a page of the same session has sent, of nobody else."""
        self.session = self.request.cookies.get(self.cookie, "")
        try:
            given = parse_qsl(self.body.decode(), keep_blank_values=True, max_num_fields=_FIELDS)
            self.form = dict(given)
            if "\0" in "".join(self.form.values()):
                raise ValueError
            signer = URLSafeTimedSerializer(self.session or "nobody", salt="form")
            if not self.session:
                raise BadSignature("no session")
            signer.loads(self.field("form"), max_age=int(3600 * hours))
        except BadSignature:
            raise DeskError("this form has ended; go back, load the page again", 403) from None
        except ValueError:
            raise DeskError("this form cannot be read") from None

    def signed(self) -> str:
        """What the forms of a page hold, so that only its session can send them."""
        signer = URLSafeTimedSerializer(self.session, salt="form")
        return str(signer.dumps("form")) if self.session else ""


class RunningOffice:
    """A running office."""

    def __init__(self, folder: OfficeFolder, lock: int) -> None:
        self.folder, self.settings = folder, folder.settings
        self.database = Database(folder.store)
        self.database.upgrade()
        self.accounts, self.desk = Accounts(self.database), Desk(folder, self.database)
        self.pool = Pool(self.desk, lock, self.settings.workers)
        self._limiter = MovingWindowRateLimiter(MemoryStorage())
        self.metrics = prometheus.CollectorRegistry()
        labels: Any = (["status"],)
        self.responses = prometheus.Counter(
            "office_responses", "Responses by status", *labels, registry=self.metrics
        )
        self.requests = prometheus.Gauge(
            "office_requests", "Requests by status", *labels, registry=self.metrics
        )
        self.templates = jinja2.Environment(
            loader=jinja2.FileSystemLoader(TEMPLATES),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
        )

    def limit(self, what: str, most: int, who: str, *, counts: bool = True) -> None:
        """Refuse what comes too often; where it does not count, only look."""
        if not (self._limiter.hit if counts else self._limiter.test)(
            rate(f"{most}/minute"), what, who
        ):
            raise DeskError("too many requests; wait a minute", 429)

    def of_token(self, visit: Visit) -> None:
        """See who sent a token; guesses from one address are limited."""
        guesses = ("a guess", self.settings.sign_ins_per_minute, visit.address)
        self.limit(*guesses, counts=False)
        scheme, _, text = visit.request.headers.get("authorization", "").partition(" ")
        try:
            visit.person = self.accounts.who(text if scheme.lower() == "bearer" else "", "token")
        except DeskError:
            self.limit(*guesses)
            raise
        self.limit("token", self.settings.requests_per_minute, str(visit.person.token))

    def of_session(self, visit: Visit) -> None:
        """See who is signed in."""
        visit.session = visit.request.cookies.get(visit.cookie, "")
        visit.person = self.accounts.who(visit.session, "session")
        self.limit("session", self.settings.requests_per_minute, str(visit.person.token))


def json_of(text: str | bytes) -> Any:
    """Read JSON whose texts can be kept and sent back."""
    values = parse_json(text)
    try:
        if b"\\u0000" in json.dumps(values, ensure_ascii=False).encode():
            raise ValueError
    except ValueError:
        raise DeskError("this JSON has a character that cannot be written") from None
    return values


async def wait_for_answer(office: RunningOffice, visit: Visit) -> dict[str, Any]:
    """Return a request's state, once it is final or the seconds that were asked for are over."""
    visit.form = dict(visit.request.query_params)
    last = time.monotonic() + min(visit.number("wait") or 0.0, _LONGEST_WAIT)
    while True:
        state = await in_thread(office.desk.state, visit.person, visit["id"])
        if state["status"] in FINAL or not time.monotonic() < last:
            return state
        await asyncio.sleep(CLASS)


async def read_body(request: Request) -> bytes:
    """Read what was sent, as far as it may go."""
    body = b""
    try:
        async for part in request.stream():
            body += part
            if len(body) > MOST_BYTES:
                raise DeskError(f"a request has at most {MOST_BYTES} bytes", 413)
    except ClientDisconnect:
        raise DeskError("this request was not sent to its end") from None
    return body
