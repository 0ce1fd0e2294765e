"""The web application of an office: JSON for scripts, pages for people (`pages`).

Whatever goes wrong is a sentence that holds nothing of the data. What was not foreseen is said by a
number, under which the log has its type and place.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from prometheus_client import generate_latest
from secure import (
    CacheControl,
    ContentSecurityPolicy,
    CrossOriginOpenerPolicy,
    CrossOriginResourcePolicy,
    PermissionsPolicy,
    ReferrerPolicy,
    Secure,
    StrictTransportSecurity,
    XContentTypeOptions,
    XFrameOptions,
)
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from dpeffects.documents import parse_json
from dpeffects.errors import DPEffectsError, LedgerError, PolicyError
from dpeffects.services.office.accounts import DeskError, new_secret
from dpeffects.services.office.answering import CLASS, time_class
from dpeffects.services.office.desk import FINAL, plain_reason
from dpeffects.services.office.office_folder import OfficeFolder
from dpeffects.services.office.pages import error_page, routes_of_pages
from dpeffects.services.office.reception import RunningOffice, Visit, in_thread, read_body
from dpeffects.type_checks import FieldError

Work = Callable[[RunningOffice, Visit], Any]
Send = Callable[[Any], Awaitable[None]]
_LONGEST_WAIT = 20.0
_log = logging.getLogger(__name__)


def make_app(folder: OfficeFolder, lock: int) -> Any:
    """Return the application; it answers requests while it runs."""
    office = RunningOffice(folder, lock)

    @asynccontextmanager
    async def running(_: Starlette) -> AsyncIterator[None]:
        await in_thread(office.pool.start)
        try:
            yield
        finally:
            await in_thread(office.pool.stop, office.settings.grace_seconds)
            office.database.close()

    async def said(request: Request, error: Exception) -> Response:
        return await in_thread(_said, office, request, error)

    def api(path: str, work: Work, method: str = "GET") -> Route:
        async def endpoint(request: Request) -> Response:
            request.state.call = work.__name__
            visit = Visit(request, await in_thread(office.of_token, request))
            visit.body = await read_body(request)
            return JSONResponse(await in_thread(work, office, visit))

        return Route(f"/api/{path}", endpoint, methods=[method])

    async def one_request(request: Request) -> Response:
        request.state.call = "one_request"
        visit = Visit(request, await in_thread(office.of_token, request))
        return JSONResponse(await _when_final(office, visit))

    async def metrics(request: Request) -> Response:
        local = request.client is not None and request.client.host in ("127.0.0.1", "::1")
        if not local or office.settings.behind_proxy:
            (await in_thread(office.of_token, request)).require("steward")
        for status, count in (await in_thread(office.desk.counts)).items():
            office.requests.labels(status).set(count)
        return PlainTextResponse(generate_latest(office.metrics).decode())

    routes = [
        api("datasets", _datasets),
        api("datasets/{name}", _dataset),
        api("datasets/{name}/budget", _budget),
        api("datasets/{name}/requests", _submit, "POST"),
        api("requests", _requests),
        Route("/api/requests/{id}", one_request),
        Route("/healthz", _health),
        Route("/metrics", metrics),
        *routes_of_pages(office),
    ]
    handlers: Any = dict.fromkeys((DPEffectsError, FieldError, HTTPException, Exception), said)
    return Guard(Starlette(routes=routes, lifespan=running, exception_handlers=handlers), office)


# --- the calls of the API


def _datasets(office: RunningOffice, visit: Visit) -> Any:
    about = office.desk.about()
    return {"datasets": [{name: about[name] for name in ("name", "title", "n")}]}


def _dataset(office: RunningOffice, visit: Visit) -> Any:
    _known(office, visit)
    return office.desk.about()


def _budget(office: RunningOffice, visit: Visit) -> Any:
    _known(office, visit)
    return office.desk.budget(visit.person.project, visit.person.name)


def _submit(office: RunningOffice, visit: Visit) -> Any:
    _known(office, visit)
    state = office.desk.submit(visit.person, visit.person.project, parse_json(visit.body))
    office.pool.wake()
    return state


def _requests(office: RunningOffice, visit: Visit) -> Any:
    return {"requests": office.desk.states(visit.person)}


def _known(office: RunningOffice, visit: Visit) -> None:
    if visit["name"] != office.desk.dataset:
        raise DeskError("there is no such dataset", 404)


async def _when_final(office: RunningOffice, visit: Visit) -> Any:
    """The state of a request, once it is final or some seconds are over."""
    try:
        wait = min(float(visit.request.query_params.get("wait", 0.0)), _LONGEST_WAIT)
    except ValueError:
        raise DeskError("wait is a number of seconds") from None
    last = time.monotonic() + wait
    while True:
        state = await in_thread(office.desk.state, visit.person, visit["id"])
        if state["status"] in FINAL or not time.monotonic() < last:
            return state
        await asyncio.sleep(CLASS)


async def _health(_: Request) -> Response:
    return JSONResponse({"status": "ok"})


# --- errors and headers


def _said(office: RunningOffice, request: Request, error: Exception) -> Response:
    """What went wrong, as a sentence, for a script or on a page."""
    status, words = 503, f"this cannot be done now; the log has it under {request.state.trace}"
    if isinstance(error, HTTPException):
        status = error.status_code
        words = {404: "there is no such page", 405: "this cannot be done here"}.get(
            status, "this request cannot be used"
        )
    elif isinstance(error, DeskError):
        status, words = error.status, str(error)
    elif isinstance(error, DPEffectsError | FieldError):
        if isinstance(error, LedgerError | PolicyError):  # they are for operators
            _log.error("%s", error, extra={"trace": request.state.trace})
        else:
            status, words = 400, plain_reason(error)
    if request.url.path.startswith("/api/"):
        return JSONResponse({"error": words}, status)
    return error_page(office, request, status, words)


class Guard:
    """Around the application: a number, a line of the log and safe headers for each request."""

    def __init__(self, app: Any, office: RunningOffice) -> None:
        self._app, self.office = app, office

    async def __call__(
        self, scope: Any, receive: Any, send: Callable[[Any], Awaitable[None]]
    ) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, trace, sent = time.monotonic(), new_secret(8), [0]
        scope.setdefault("state", {})["trace"] = trace

        async def with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                sent[0] = message["status"]
                own = {name for name, _ in message["headers"]}
                added = _headers(scope["scheme"] == "https", scope["state"].get("styles", ""))
                message["headers"] += [x for x in added if x[0] not in own]
                message["headers"].append((b"x-request-id", trace.encode()))
            await send(message)

        try:
            await self._app(scope, receive, with_headers)
        except Exception as error:  # it was answered with a sentence
            _log.error("not foreseen", exc_info=error, extra={"trace": trace})
        taken, call = time_class(time.monotonic() - began), scope["state"].get("call", "")
        self.office.responses.labels(str(sent[0])).inc()
        about = {"call": call, "status": sent[0], "seconds": taken}
        _log.info("request", extra={"trace": trace} | about)


def _headers(tls: bool, styles: str) -> list[tuple[bytes, bytes]]:
    """Headers that keep other pages out; ``styles`` is the hash of a style that is in a page."""
    policy = (
        ContentSecurityPolicy().default_src("'none'").style_src("'self'", *filter(None, [styles]))
    )
    policy = policy.img_src("'self'").form_action("'self'").base_uri("'none'")
    made = Secure(
        csp=policy.frame_ancestors("'none'"),
        cache=CacheControl().no_store(),
        coop=CrossOriginOpenerPolicy().same_origin(),
        corp=CrossOriginResourcePolicy().same_origin(),
        permissions=PermissionsPolicy().geolocation().microphone().camera(),
        referrer=ReferrerPolicy().no_referrer(),
        xcto=XContentTypeOptions().nosniff(),
        xfo=XFrameOptions().deny(),
        hsts=StrictTransportSecurity().max_age(31_536_000) if tls else None,
    )
    return [(name.lower().encode(), value.encode()) for name, value in made.header_items()]
