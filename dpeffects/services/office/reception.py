"""What pages and the API share: who asks, how often, and how much may be sent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from itsdangerous import BadSignature, URLSafeTimedSerializer
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from limits import parse as rate
from limits.storage import MemoryStorage
from limits.strategies import MovingWindowRateLimiter
from prometheus_client import CollectorRegistry, Counter, Gauge
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from dpeffects.services.office.accounts import Accounts, DeskError, Person
from dpeffects.services.office.answering import Pool
from dpeffects.services.office.database import Database
from dpeffects.services.office.desk import Desk
from dpeffects.services.office.office_folder import OfficeFolder

MOST_BYTES = 65_536
"""Of a request, and of a form."""
_FIELDS = 50
_STRANGERS = "a minute of failures"


@dataclass
class Visit:
    """A request over HTTP: who sent it, and what."""

    request: Request
    person: Person
    session: str = ""
    body: bytes = b""
    form: dict[str, str] = field(default_factory=dict)

    def __getitem__(self, name: str) -> str:
        """A part of the path."""
        return str(self.request.path_params[name])

    def field(self, name: str) -> str:
        """A field of a form, without spaces around it."""
        return self.form.get(name, "").strip()


class RunningOffice:
    """A running office."""

    def __init__(self, folder: OfficeFolder, lock: int) -> None:
        self.folder, self.settings = folder, folder.settings
        self.database = Database(folder.store)
        self.database.upgrade()
        self.accounts = Accounts(self.database)
        self.desk = Desk(folder, self.database)
        self.pool = Pool(self.desk, lock, self.settings.workers)
        self._limiter = MovingWindowRateLimiter(MemoryStorage())
        self.metrics = CollectorRegistry()
        self.responses = Counter(
            "office_responses", "Responses by status", ["status"], registry=self.metrics
        )
        self.requests = Gauge(
            "office_requests", "Requests by status", ["status"], registry=self.metrics
        )
        self.templates = Environment(
            loader=FileSystemLoader(Path(__file__).with_name("templates")),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )

    def limit(self, what: str, most: int, who: str) -> None:
        """Refuse what comes too often."""
        if not self._limiter.hit(rate(f"{most}/minute"), what, who):
            raise DeskError("too many requests; wait a minute", 429)

    # --- who it is

    def of_token(self, request: Request) -> Person:
        """Return who sent a token; guesses of one address are limited."""
        scheme, _, text = request.headers.get("authorization", "").partition(" ")
        address = request.client.host if request.client else ""
        slow = rate(f"{self.settings.sign_ins_per_minute}/minute")
        if not self._limiter.test(slow, _STRANGERS, address):
            raise DeskError("too many requests; wait a minute", 429)
        try:
            if scheme.lower() != "bearer" or not text:
                raise DeskError("send a token: Authorization: Bearer ...", 401)
            person = self.accounts.who(text, "token")
        except DeskError:
            self._limiter.hit(slow, _STRANGERS, address)
            raise
        self.limit("token", self.settings.requests_per_minute, str(person.token))
        return person

    def of_session(self, request: Request) -> Person:
        """Return who is signed in."""
        person = self.accounts.who(session_of(request), "session")
        self.limit("session", self.settings.requests_per_minute, str(person.token))
        return person


async def read_body(request: Request) -> bytes:
    """Read what was sent, as far as it may go."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MOST_BYTES:
            raise DeskError(f"a request has at most {MOST_BYTES} bytes", 413)
    return body


def read_form(body: bytes) -> dict[str, str]:
    """Read the fields of a form; of one that is given twice, the last."""
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=_FIELDS))
    except ValueError:
        raise DeskError("this form cannot be read") from None


# --- sessions, and forms that only a page of the same session can send


def cookie_name(request: Request) -> str:
    """The name of the cookie; with TLS no other host can set it."""
    return "__Host-office" if request.url.scheme == "https" else "office"


def session_of(request: Request) -> str:
    """What the cookie holds."""
    return request.cookies.get(cookie_name(request), "")


def sign_form(session: str) -> str:
    """Return what a form of a session holds."""
    return str(URLSafeTimedSerializer(session, salt="form").dumps("form"))


def check_form(session: str, signed: str, hours: float) -> None:
    """Refuse a form that no page of this session has sent."""
    try:
        if not session:
            raise BadSignature("no session")
        URLSafeTimedSerializer(session, salt="form").loads(signed, max_age=int(3600 * hours))
    except BadSignature:
        raise DeskError("this form has ended; go back, load the page again", 403) from None


async def in_thread(work: Callable[..., Any], *given: Any) -> Any:
    """Run what waits for a database or a process."""
    return await run_in_threadpool(work, *given)
