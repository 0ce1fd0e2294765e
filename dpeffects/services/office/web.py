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
from functools import partial
from typing import Any

import prometheus_client as prometheus
import secure
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool as in_thread
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from dpeffects.errors import DPEffectsError, LedgerError, PolicyError
from dpeffects.services.office.accounts import DeskError, new_secret
from dpeffects.services.office.answering import time_class
from dpeffects.services.office.office_folder import OfficeFolder
from dpeffects.services.office.pages import page, routes_of_pages
from dpeffects.services.office.reception import (
    RunningOffice,
    Visit,
    json_of,
    read_body,
    wait_for_answer,
)
from dpeffects.type_checks import FieldError

_HTTP = {404: "there is no such page", 405: "this cannot be done here"}
_log = logging.getLogger(__name__)


def make_app(folder: OfficeFolder, lock: int) -> Guard:
    """Return the application; requests are answered while it runs."""
    office = RunningOffice(folder, lock)

    @asynccontextmanager
    async def running(_: Starlette) -> AsyncIterator[None]:
        await in_thread(office.pool.start)
        yield
        await in_thread(office.pool.stop, office.settings.grace_seconds)
        office.database.close()

    async def said(request: Request, error: Exception) -> Response:
        return await in_thread(_said, office, request, error)

    routes = [*_routes_of_scripts(office), *routes_of_pages(office)]
    handlers: Any = dict.fromkeys((DPEffectsError, FieldError, HTTPException, Exception), said)
    app = Starlette(routes=routes, lifespan=running, exception_handlers=handlers)
    app.router.redirect_slashes = False  # to the host that the visitor names
    return Guard(app, office)


def _routes_of_scripts(office: RunningOffice) -> list[Route]:
    desk = office.desk

    def api(path: str, work: Callable[[Visit], Any], method: str = "GET") -> Route:
        async def endpoint(request: Request) -> Response:
            request.state.call = path
            visit = Visit(request)
            await in_thread(office.of_token, visit)
            if request.path_params.get("name", desk.dataset) != desk.dataset:
                raise DeskError("there is no such dataset", 404)
            visit.body = await read_body(request)
            found = work(visit)
            return JSONResponse(await found if asyncio.iscoroutine(found) else found)

        return Route(f"/api/{path}", endpoint, methods=[method])

    async def datasets(visit: Visit) -> Any:
        about = await in_thread(desk.about)
        return {"datasets": [{name: about[name] for name in ("name", "title", "n")}]}

    async def submit(visit: Visit) -> Any:
        asked = json_of(visit.body)
        state = await in_thread(desk.submit, visit.person, visit.person.project, asked)
        office.pool.wake()
        return state

    async def requests(visit: Visit) -> Any:
        return {"requests": await in_thread(desk.states, visit.person)}

    async def health(_: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def metrics(request: Request) -> Response:
        visit = Visit(request)
        if visit.address not in ("127.0.0.1", "::1") or office.settings.behind_proxy:
            await in_thread(office.of_token, visit)
            visit.person.require("steward")
        for status, count in (await in_thread(desk.counts)).items():
            office.requests.labels(status).set(count)
        return PlainTextResponse(prometheus.generate_latest(office.metrics).decode())

    return [
        api("datasets", datasets),
        api("datasets/{name}", lambda _: in_thread(desk.about)),
        api(
            "datasets/{name}/budget",
            lambda visit: in_thread(desk.budget, visit.person.project, visit.person.name),
        ),
        api("datasets/{name}/requests", submit, "POST"),
        api("requests", requests),
        api("requests/{id}", partial(wait_for_answer, office)),
        Route("/healthz", health),
        Route("/metrics", metrics),
    ]


def _said(office: RunningOffice, request: Request, error: Exception) -> Response:
    """What went wrong, as a sentence, for a script or on a page."""
    status, words = 503, f"this cannot be done now; the log has it under {request.state.trace}"
    if isinstance(error, HTTPException):
        status = error.status_code
        words = _HTTP.get(status, "this request cannot be used")
    elif isinstance(error, LedgerError | PolicyError):  # for operators
        _log.error("%s", error, extra={"trace": request.state.trace})
    elif isinstance(error, DPEffectsError | FieldError):
        status, words = getattr(error, "status", 400), " ".join(str(error).split())[:2000]
    if request.url.path.startswith("/api/"):
        return JSONResponse({"error": words}, status)
    return page(office, Visit(request), "error", status, words=words)


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
        began, status = time.monotonic(), 0
        if self.office.settings.behind_proxy:  # which has TLS, whether it says so or not
            scope["scheme"] = "https"
        state = scope.setdefault("state", {})
        state["trace"] = trace = new_secret(8)

        async def with_headers(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                added = _headers(scope["scheme"] == "https", state.get("styles", ""))
                message["headers"] += [*added, (b"x-request-id", trace.encode())]
            await send(message)

        try:
            await self._app(scope, receive, with_headers)
        except Exception as error:  # it was answered with a sentence
            _log.error("not foreseen", exc_info=error, extra={"trace": trace})
        self.office.responses.labels(str(status)).inc()
        seconds = time_class(time.monotonic() - began)
        about = {"trace": trace, "call": state.get("call", ""), "status": status}
        _log.info("request", extra={**about, "seconds": seconds})


def _headers(tls: bool, styles: str) -> list[tuple[bytes, bytes]]:
    """Headers that keep other pages out; ``styles`` is the hash of a style that is in a page."""
    shown = filter(None, ["'self'", styles])
    policy = secure.ContentSecurityPolicy().default_src("'none'").style_src(*shown)
    policy = policy.form_action("'self'").base_uri("'none'").frame_ancestors("'none'")
    made = secure.Secure(
        csp=policy,
        cache=secure.CacheControl().no_store(),
        coop=secure.CrossOriginOpenerPolicy().same_origin(),
        corp=secure.CrossOriginResourcePolicy().same_origin(),
        permissions=secure.PermissionsPolicy().geolocation().microphone().camera(),
        referrer=secure.ReferrerPolicy().no_referrer(),
        xcto=secure.XContentTypeOptions().nosniff(),
        xfo=secure.XFrameOptions().deny(),
        hsts=secure.StrictTransportSecurity().max_age(31_536_000) if tls else None,
    )
    return [(name.lower().encode(), value.encode()) for name, value in made.header_items()]
