"""The pages of an office: for researchers who ask, and for stewards who decide.

Every page is made on the server, and works without scripts. What a form does is done once its
session has been checked, and then a page is shown anew.
"""

from __future__ import annotations

import base64
import hashlib
import inspect
import io
import json
import re
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from starlette.concurrency import run_in_threadpool as in_thread
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

import dpeffects as dpe
from dpeffects.errors import DPEffectsError
from dpeffects.formula import parse
from dpeffects.lazy import pd
from dpeffects.report.word import render_word
from dpeffects.services.office import reception
from dpeffects.services.office.accounts import ROLES, DeskError, new_secret
from dpeffects.services.office.desk import QUEUED, WAITING
from dpeffects.services.office.reception import RunningOffice, Visit
from dpeffects.type_checks import FieldError

Page = Callable[[RunningOffice, Visit], Response]
_CALLS = (
    *("dp_ate", "dp_att", "dp_atc", "dp_cate", "dp_survival", "dp_qte", "dp_rate", "dp_ordinal"),
    *("dp_late", "dp_did", "dp_balance", "dp_moments", "dp_study"),
)
"""In the order in which a form has them."""
_LOGIN_HOURS, _PLANS = 1.0, 10
"""How long a form to sign in is good for; plans of one person in a minute, which take turns."""


def page(
    office: RunningOffice, visit: Visit, template: str, status: int = 200, /, **shown: Any
) -> Response:
    """A page from a template."""
    always = {"person": visit.person, "office": office.settings, "path": visit.request.url.path}
    made = office.templates.get_template(f"{template}.html")
    return HTMLResponse(made.render(**always, form=visit.signed(), **shown), status)


def routes_of_pages(office: RunningOffice) -> list[Route]:
    """Return the routes of all pages."""

    def route(path: str, show: Page | None, do: Page | None = None, role: str = "") -> Route:
        async def endpoint(request: Request) -> Response:
            work, visit = do if request.method == "POST" else show, Visit(request)
            assert work is not None
            request.state.call = work.__name__
            try:
                await in_thread(office.of_session, visit)
            except DeskError as error:
                if error.status != 401:
                    raise
                return RedirectResponse("/sign-in", 303)
            if visit.person.changes_password and path not in ("/password", "/sign-out"):
                return RedirectResponse("/password", 303)
            visit.person.require(role or ROLES[0])
            if request.method == "POST":
                visit.body = await reception.read_body(request)
                visit.read_form(office.settings.session_hours)
            elif work is _request:
                await reception.wait_for_answer(office, visit)
            return await in_thread(work, office, visit)

        methods = [*(["GET"] if show else []), *(["POST"] if do else [])]
        return Route(path, endpoint, methods=methods)

    async def sign_in(request: Request) -> Response:
        visit = Visit(request, body=await reception.read_body(request))
        return await in_thread(_sign_in, office, visit)

    async def style(_: Request) -> Response:
        return FileResponse(reception.TEMPLATES / "style.css", media_type="text/css")

    return [
        Route("/style.css", style),
        Route("/sign-in", sign_in, methods=["GET", "POST"]),
        route("/sign-out", None, _sign_out),
        route("/password", _password, _set_password),
        route("/", _home),
        route("/dataset", _dataset),
        route("/ask", _ask, _asked),
        route("/requests/{id}", _request, _decide),
        route("/requests/{id}/{file}", _file),
        route("/tokens", _tokens, _change_tokens),
        route("/queue", _queue, role="steward"),
        route("/people", _people, _change_people, role="steward"),
        route("/ledger", _ledger, role="steward"),
        route("/events", _events, role="steward"),
        route("/export", _export, role="steward"),
    ]


# --- signing in and out


def _sign_in(office: RunningOffice, visit: Visit) -> Response:
    """A form that holds a cookie of its own, and a new one for who has signed in."""
    status, words = 200, ""
    if visit.request.method == "POST":
        visit.read_form(_LOGIN_HOURS)
        most, name = office.settings.sign_ins_per_minute, visit.field("name")
        office.limit("sign in", most, visit.address)
        office.limit("name", most, name[:100])
        try:
            hours = office.settings.session_hours
            session = office.accounts.sign_in(name, visit.form.get("password", ""), hours)
            return _with_cookie(visit, RedirectResponse("/", 303), session, int(3600 * hours))
        except DeskError as error:
            status, words = error.status, str(error)
    known = visit.request.cookies.get(visit.cookie)  # another page to sign in, which stays valid
    visit.session = known or new_secret()
    shown = page(office, visit, "sign_in", status, words=words, name=visit.field("name"))
    return shown if known else _with_cookie(visit, shown, visit.session, None)


def _with_cookie(visit: Visit, shown: Response, value: str, seconds: int | None) -> Response:
    secure = visit.request.url.scheme == "https"
    how: dict[str, Any] = {"httponly": True, "samesite": "strict", "secure": secure}
    shown.set_cookie(visit.cookie, value, max_age=seconds, path="/", **how)
    return shown


def _sign_out(office: RunningOffice, visit: Visit) -> Response:
    office.accounts.revoke(visit.person, visit.person.token)
    return RedirectResponse("/sign-in", 303)


def _password(office: RunningOffice, visit: Visit, words: str = "", status: int = 200) -> Response:
    return page(office, visit, "password", status, words=words)


def _set_password(office: RunningOffice, visit: Visit) -> Response:
    name = visit.person.name
    old, new, again = (visit.form.get(x, "") for x in ("password", "new", "again"))
    try:
        office.limit("name", office.settings.sign_ins_per_minute, name)
        if new != again:
            raise DeskError("the two new passwords are not the same")
        office.accounts.check_password(name, old)
        if new == old:
            raise DeskError("the new password is the old one")
        office.accounts.set_password(name, name, new)
    except DeskError as error:
        return _password(office, visit, str(error), error.status)
    return RedirectResponse("/sign-in", 303)


# --- for researchers


def _mine(office: RunningOffice, visit: Visit) -> list[str]:
    return [project["name"] for project in office.accounts.projects(visit.person.name)]


def _home(office: RunningOffice, visit: Visit) -> Response:
    waiting, about = office.desk.counts().get(WAITING, 0), office.desk.about()
    shown = {"waiting": waiting, "projects": _mine(office, visit), "about": about}
    return page(office, visit, "home", requests=office.desk.states(visit.person), **shown)


def _dataset(office: RunningOffice, visit: Visit) -> Response:
    projects = _mine(office, visit) or [""]
    budgets = {name: office.desk.budget(name, visit.person.name) for name in projects}
    return page(office, visit, "dataset", about=office.desk.about(), budgets=budgets)


def _ask(
    office: RunningOffice, visit: Visit, words: str = "", plan: Any = None, status: int = 200
) -> Response:
    about = office.desk.about()
    calls = {name: _first_line(name) for name in _CALLS if name in about["calls"]}
    shown = {"about": about, "calls": calls, "projects": _mine(office, visit), "plan": plan}
    return page(office, visit, "ask", status, words=words, given=visit.form, **shown)


def _asked(office: RunningOffice, visit: Visit) -> Response:
    try:
        asked: dict[str, Any] = {name: visit.field(name) for name in ("call", "formula")}
        asked |= {name: visit.number(name) or 0.0 for name in ("epsilon", "delta")}
        asked["options"] = reception.json_of(visit.field("options") or "{}")
        if visit.field("do") == "plan":
            return _ask(office, visit, plan=_plan(office, visit, visit.field("project"), asked))
        state = office.desk.submit(visit.person, visit.field("project"), asked)
    except (DPEffectsError, FieldError) as error:
        return _ask(office, visit, str(error)[:2000], status=400)
    office.pool.wake()
    wait = "?wait=10" if state["status"] == QUEUED else ""
    return RedirectResponse(f"/requests/{state['id']}{wait}", 303)


def _plan(
    office: RunningOffice, visit: Visit, project: str, state: Mapping[str, Any]
) -> dict[str, Any]:
    asked = {name: state[name] for name in ("call", "formula", "epsilon", "delta", "options")}
    office.limit("plan", _PLANS, visit.person.name)
    plan = office.pool.plan(office.desk.question(project, asked).to_json())
    return plan | {"html": _embedded(visit, plan["html"])} if "html" in plan else plan


def _embedded(visit: Visit, html: str) -> str:
    """A summary, whose own style is let in by its hash."""
    styles = re.findall(r"<style>(.*?)</style>", html, re.DOTALL)
    digests = (base64.b64encode(hashlib.sha256(x.encode()).digest()).decode() for x in styles)
    visit.request.state.styles = " ".join(f"'sha256-{digest}'" for digest in digests)
    return html


def _request(office: RunningOffice, visit: Visit) -> Response:
    state = office.desk.state(visit.person, visit["id"])
    decides, plan = visit.person.may("steward") and state["status"] == WAITING, None
    if decides or "plan" in visit.request.query_params:
        plan = _plan(office, visit, state["project"], state)
    budget = decides and office.desk.budget(state["project"], state["person"])
    shown = {"state": state, "plan": plan, "decides": decides, "budget": budget, "summary": None}
    if state["result"] is not None:
        shown["summary"] = _embedded(visit, _result(state).summary().as_html())
    shown |= {"what": _first_line(state["call"]), "parts": _parts(office, state["formula"])}
    return page(office, visit, "request", own=state["person"] == visit.person.name, **shown)


def _parts(office: RunningOffice, text: str) -> dict[str, list[str]]:
    """Columns of a formula by their roles, as the codebook calls them."""
    formula, columns = parse(text), office.folder.columns
    roles = {"Outcome": formula.outcome_columns, "Treatment": formula.treatment_columns}
    roles["Covariates"] = formula.covariate_columns
    called = {name: column.get("label", name) for name, column in columns.items()}
    return {title: [called.get(x, x) for x in found] for title, found in roles.items() if found}


def _first_line(call: str) -> str:
    return (inspect.getdoc(getattr(dpe, call)) or "").split("\n")[0].rstrip(".")


def _result(state: Mapping[str, Any]) -> Any:
    """The result of an answer, from our own ledger."""
    return getattr(dpe, state["kind"]).from_dict(state["result"])


def _record(fit: Any) -> str:
    """The release record, as a review board reads it."""
    with tempfile.TemporaryDirectory() as folder:
        fit.report(f"{folder}/record.html")
        return Path(folder, "record.html").read_text(encoding="utf-8")


_FILES: Mapping[str, Callable[[Any], str | bytes]] = {
    "table.docx": lambda fit: render_word(fit.summary()),
    "result.json": lambda fit: fit.to_json(),
    "estimates.csv": lambda fit: fit.tidy().to_csv(index=False),
    "record.html": _record,
}


def _file(office: RunningOffice, visit: Visit) -> Response:
    """A result as a file to download."""
    state = office.desk.state(visit.person, visit["id"])
    if state["result"] is None or visit["file"] not in _FILES:
        raise DeskError("there is no such file", 404)
    name = f"{state['dataset']}-{state['id'][:8]}-{visit['file']}"
    return _download(_FILES[visit["file"]](_result(state)), name)


def _download(content: str | bytes, name: str) -> Response:
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return Response(content, media_type="application/octet-stream", headers=headers)


def _tokens(office: RunningOffice, visit: Visit, made: str = "") -> Response:
    tokens = office.accounts.tokens(visit.person.name)
    return page(office, visit, "tokens", made=made, tokens=tokens, projects=_mine(office, visit))


def _change_tokens(office: RunningOffice, visit: Visit) -> Response:
    if visit.field("do") == "revoke":
        office.accounts.revoke(visit.person, visit.row("token"))
        return RedirectResponse("/tokens", 303)
    name, days = visit.person.name, visit.number("days") or office.settings.token_days
    given = visit.field("project"), visit.field("label")
    return _tokens(office, visit, office.accounts.token(name, name, *given, days))


# --- for stewards


def _decide(office: RunningOffice, visit: Visit) -> Response:
    if visit.field("do") == "approve":
        office.desk.approve(visit.person, visit["id"])
        office.pool.wake()
    else:
        office.desk.refuse(visit.person, visit["id"], visit.field("reason"))
    return RedirectResponse("/queue", 303)


def _queue(office: RunningOffice, visit: Visit) -> Response:
    waiting = office.desk.states(statuses=[WAITING])[::-1]
    shown = {"waiting": waiting, "requests": office.desk.states()}
    return page(office, visit, "queue", budget=office.desk.budget()["dataset"], **shown)


def _people(office: RunningOffice, visit: Visit, made: str = "") -> Response:
    people, projects = office.accounts.people(), office.accounts.projects()
    for person in people:
        person["budget"] = office.desk.caps(name=person["name"])["person"]
    for project in projects:
        project["budget"] = office.desk.caps(project["name"])["project"]
    shown: dict[str, Any] = {"people": people, "projects": projects, "made": made}
    shown["roles"] = ROLES if visit.person.may("administrator") else ROLES[:1]
    shown |= {"name": visit.field("name"), "tokens": office.accounts.tokens()}
    return page(office, visit, "people", **shown)


def _change_people(office: RunningOffice, visit: Visit) -> Response:
    person, do, accounts = visit.person, visit.field("do"), office.accounts
    name, project, role = (visit.field(x) for x in ("name", "project", "role"))
    known, by, made = {x["name"]: x["role"] for x in accounts.people()}, person.name, ""
    if do in ("account", "change", "password") and {role, known.get(name, "")} - {"", ROLES[0]}:
        person.require("administrator")
    if do == "account":
        made = accounts.add(by, name, role)
    elif do == "change":
        accounts.set_account(by, name, role, visit.field("active") == "yes")
    elif do == "password":
        made = accounts.set_password(by, name)
    elif do == "project":
        accounts.add_project(by, project)
    elif do in ("member", "no member"):
        accounts.set_member(by, name, project, do == "member")
    elif do == "budget":
        caps = visit.number("epsilon"), visit.number("delta")
        accounts.set_budget(by, visit.field("of"), name, *caps)
    elif do == "revoke":
        accounts.revoke(person, visit.row("token"))
    return _people(office, visit, made) if made else RedirectResponse("/people", 303)


def _ledger(office: RunningOffice, visit: Visit) -> Response:
    ledger, sound = office.desk.ledger(), True
    try:
        proof = ledger.verify()
    except DPEffectsError as error:
        proof, sound = str(error), False
    statement = _embedded(visit, ledger.summary().as_html())
    return page(office, visit, "ledger", proof=proof, sound=sound, statement=statement)


def _events(office: RunningOffice, visit: Visit) -> Response:
    return page(office, visit, "events", events=office.desk.events())


def _export(office: RunningOffice, visit: Visit) -> Response:
    """Everything but what would let anybody in, and the data."""
    content, accounts, states = io.BytesIO(), office.accounts, office.desk.states(most=None)
    tables = {"requests": states, "events": office.desk.events(None), "tokens": accounts.tokens()}
    tables |= {"accounts": accounts.people(), "projects": accounts.projects()}
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("office.toml", "policy.toml", "codebook.toml"):
            archive.write(office.folder.path / name, name)
        for name, rows in tables.items():
            archive.writestr(f"{name}.json", json.dumps(rows, indent=1))
            archive.writestr(f"{name}.csv", pd.DataFrame(rows).to_csv(index=False))
        for request in (state["id"] for state in states if state["kind"]):
            full = office.desk.state(visit.person, request)
            archive.writestr(f"answers/{request}.json", json.dumps(full["result"]))
            archive.writestr(f"answers/{request}.html", _record(_result(full)))
        with tempfile.TemporaryDirectory() as folder:
            office.desk.ledger().export(f"{folder}/ledger.json")
            archive.write(f"{folder}/ledger.json", "ledger.json")
    return _download(content.getvalue(), f"{office.settings.name}.zip")
