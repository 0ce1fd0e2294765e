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

from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

import dpeffects as dpe
from dpeffects.documents import parse_json
from dpeffects.errors import DPEffectsError
from dpeffects.formula import parse
from dpeffects.lazy import pd
from dpeffects.report.word import render_word
from dpeffects.services.office.accounts import ROLES, DeskError, Person, new_secret
from dpeffects.services.office.desk import FINAL, WAITING, plain_reason
from dpeffects.services.office.reception import (
    RunningOffice,
    Visit,
    check_form,
    cookie_name,
    in_thread,
    read_body,
    read_form,
    session_of,
    sign_form,
)
from dpeffects.type_checks import FieldError

Page = Callable[[RunningOffice, Visit], Response]
_NOBODY = Person(0, "", ROLES[0])
_STYLE = Path(__file__).parent / "templates" / "style.css"
_CALLS = (
    *("dp_ate", "dp_att", "dp_atc", "dp_cate", "dp_survival", "dp_qte", "dp_rate", "dp_ordinal"),
    *("dp_late", "dp_did", "dp_balance", "dp_moments", "dp_study"),
)
"""In the order in which a form has them."""


def routes_of_pages(office: RunningOffice) -> list[Route]:
    """Return the routes of all pages."""

    def route(path: str, show: Page | None, do: Page | None = None, role: str = ROLES[0]) -> Route:
        async def endpoint(request: Request) -> Response:
            work = do if request.method == "POST" else show
            assert work is not None
            request.state.call = work.__name__
            try:
                person = await in_thread(office.of_session, request)
            except DeskError as error:
                if error.status != 401:
                    raise
                return RedirectResponse("/sign-in", 303)
            if person.changes_password and path not in ("/password", "/sign-out"):
                return RedirectResponse("/password", 303)
            person.require(role)
            visit = Visit(request, person, session_of(request))
            if request.method == "POST":
                visit.form = read_form(await read_body(request))
                check_form(visit.session, visit.field("form"), office.settings.session_hours)
            return await in_thread(work, office, visit)

        methods = [*(["GET"] if show else []), *(["POST"] if do else [])]
        return Route(path, endpoint, methods=methods)

    async def sign_in(request: Request) -> Response:
        request.state.call = "sign_in"
        if request.method == "POST":
            form = read_form(await read_body(request))
            return await in_thread(_signed_in, office, request, form)
        return _sign_in_page(office, request)

    async def style(_: Request) -> Response:
        return FileResponse(_STYLE, media_type="text/css")

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


def error_page(office: RunningOffice, request: Request, status: int, words: str) -> Response:
    """What went wrong, on a page."""
    visit = Visit(request, _NOBODY, session_of(request))
    return _page(office, visit, "error", status, words=words)


def _page(
    office: RunningOffice, visit: Visit, template: str, status: int = 200, /, **shown: Any
) -> Response:
    always = {"person": visit.person, "office": office.settings, "path": visit.request.url.path}
    always["form"] = sign_form(visit.session) if visit.session else ""
    made = office.templates.get_template(f"{template}.html").render(**always, **shown)
    return HTMLResponse(made, status)


# --- signing in and out


def _sign_in_page(
    office: RunningOffice, request: Request, words: str = "", status: int = 200
) -> Response:
    """A form that holds a cookie of its own: signing in gives another."""
    visitor = new_secret()
    visit = Visit(request, _NOBODY, visitor)
    page = _page(office, visit, "sign_in", status, words=words)
    return _with_cookie(request, page, visitor, None)


def _signed_in(office: RunningOffice, request: Request, form: dict[str, str]) -> Response:
    address = request.client.host if request.client else ""
    hours = office.settings.session_hours
    check_form(session_of(request), form.get("form", ""), 1.0)
    office.limit("sign in", office.settings.sign_ins_per_minute, address)
    name, password = form.get("name", "").strip(), form.get("password", "")
    office.limit("name", office.settings.sign_ins_per_minute, name[:100])
    try:
        session = office.accounts.sign_in(name, password, hours)
    except DeskError as error:
        return _sign_in_page(office, request, str(error), error.status)
    return _with_cookie(request, RedirectResponse("/", 303), session, int(3600 * hours))


def _with_cookie(request: Request, page: Response, value: str, seconds: int | None) -> Response:
    secure = request.url.scheme == "https"
    how: dict[str, Any] = {"httponly": True, "samesite": "strict", "secure": secure}
    page.set_cookie(cookie_name(request), value, max_age=seconds, path="/", **how)
    return page


def _sign_out(office: RunningOffice, visit: Visit) -> Response:
    office.accounts.revoke(visit.person, visit.person.token)
    page = RedirectResponse("/sign-in", 303)
    page.delete_cookie(cookie_name(visit.request), path="/")
    return page


def _password(office: RunningOffice, visit: Visit) -> Response:
    return _page(office, visit, "password", words="")


def _set_password(office: RunningOffice, visit: Visit) -> Response:
    name, new = visit.person.name, visit.form.get("new", "")
    try:
        office.limit("name", office.settings.sign_ins_per_minute, name)
        if new != visit.form.get("again", ""):
            raise DeskError("the two new passwords are not the same")
        office.accounts.check_password(name, visit.form.get("password", ""))
        if new == visit.form.get("password"):
            raise DeskError("the new password is the old one")
        office.accounts.set_password(name, name, new)
    except DeskError as error:
        return _page(office, visit, "password", error.status, words=str(error))
    return RedirectResponse("/sign-in", 303)


# --- for researchers


def _home(office: RunningOffice, visit: Visit) -> Response:
    return _page(
        office,
        visit,
        "home",
        requests=office.desk.states(visit.person),
        waiting=office.desk.counts().get(WAITING, 0),
        projects=office.accounts.projects(visit.person.name),
        about=office.desk.about(),
    )


def _dataset(office: RunningOffice, visit: Visit) -> Response:
    projects = [project["name"] for project in office.accounts.projects(visit.person.name)]
    budgets = {name: office.desk.budget(name, visit.person.name) for name in projects or [""]}
    return _page(office, visit, "dataset", about=office.desk.about(), budgets=budgets)


def _ask(
    office: RunningOffice, visit: Visit, words: str = "", plan: Any = None, status: int = 200
) -> Response:
    projects = [project["name"] for project in office.accounts.projects(visit.person.name)]
    about = office.desk.about()
    calls = {name: _first_line(name) for name in _CALLS if name in about["calls"]}
    shown = {"about": about, "calls": calls, "projects": projects, "given": visit.form}
    return _page(office, visit, "ask", status, words=words, plan=plan, **shown)


def _asked(office: RunningOffice, visit: Visit) -> Response:
    try:
        asked: dict[str, Any] = {name: visit.field(name) for name in ("call", "formula")}
        asked |= {name: _number(visit, name) or 0.0 for name in ("epsilon", "delta")}
        options = visit.field("options")
        asked["options"] = parse_json(options) if options else {}
        project = visit.field("project")
        if visit.field("do") == "plan":
            question = office.desk.question(project, asked)
            return _ask(office, visit, plan=_shown_plan(office, visit, question.to_json()))
        state = office.desk.submit(visit.person, project, asked)
    except (DPEffectsError, FieldError) as error:
        return _ask(office, visit, plain_reason(error), status=400)
    office.pool.wake()
    return RedirectResponse(f"/requests/{state['id']}", 303)


def _number(visit: Visit, name: str) -> float | None:
    text = visit.field(name)
    if not text:
        return None
    try:
        return float(text)
    except ValueError:
        raise DeskError(f"{name} is a number, such as 0.5") from None


def _request(office: RunningOffice, visit: Visit) -> Response:
    state = office.desk.state(visit.person, visit["id"])
    decides = visit.person.may("steward") and state["status"] == WAITING
    plan = None
    if decides or "plan" in visit.request.query_params:
        question = office.desk.question(state["project"], _as_asked(state)).to_json()
        plan = _shown_plan(office, visit, question)
    summary = None
    if state["result"] is not None:
        summary = _embedded(visit, _result(state).summary().as_html())
    shown = {"state": state, "summary": summary, "plan": plan, "parts": _parts(office, state)}
    own = state["person"] == visit.person.name
    about = {"what": _first_line(state["call"]), "final": state["status"] in FINAL}
    return _page(office, visit, "request", decides=decides, own=own, **about, **shown)


def _as_asked(state: Mapping[str, Any]) -> dict[str, Any]:
    return {name: state[name] for name in ("call", "formula", "epsilon", "delta", "options")}


def _shown_plan(office: RunningOffice, visit: Visit, question: str) -> dict[str, Any]:
    plan = office.pool.plan(question)
    return plan | {"html": _embedded(visit, plan["html"])} if "html" in plan else plan


def _embedded(visit: Visit, html: str) -> str:
    """A summary's own style is let in by its hash."""
    hashes = [
        base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
        for style in re.findall(r"<style>(.*?)</style>", html, re.DOTALL)
    ]
    visit.request.state.styles = " ".join(f"'sha256-{digest}'" for digest in hashes)
    return html


def _parts(office: RunningOffice, state: Mapping[str, Any]) -> dict[str, list[str]]:
    """Columns of a formula by their roles, as the codebook calls them."""
    formula = parse(state["formula"])
    names = ("outcome_columns", "treatment_columns", "covariate_columns")
    titles = ("Outcome", "Treatment", "Covariates")
    columns = office.folder.columns
    return {
        title: [columns.get(name, {}).get("label", name) for name in found]
        for title, role in zip(titles, names, strict=True)
        if (found := getattr(formula, role))
    }


def _first_line(call: str) -> str:
    return (inspect.getdoc(getattr(dpe, call)) or "").split("\n")[0].rstrip(".")


def _result(state: Mapping[str, Any]) -> Any:
    """The result of an answer, from our own ledger."""
    return getattr(dpe, state["kind"]).from_dict(state["result"])


def _file(office: RunningOffice, visit: Visit) -> Response:
    """A result as a file to download."""
    state = office.desk.state(visit.person, visit["id"])
    makers: dict[str, tuple[str, Callable[[Any], str | bytes]]] = {
        "table.docx": ("application/octet-stream", lambda fit: render_word(fit.summary())),
        "result.json": ("application/json", lambda fit: fit.to_json()),
        "estimates.csv": ("text/csv", lambda fit: fit.tidy().to_csv(index=False)),
        "record.html": ("application/octet-stream", _record),
    }
    if state["result"] is None or visit["file"] not in makers:
        raise DeskError("there is no such file", 404)
    kind, make = makers[visit["file"]]
    name = f"{state['dataset']}-{state['id'][:8]}-{visit['file']}"
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return Response(make(_result(state)), media_type=kind, headers=headers)


def _record(fit: Any) -> str:
    """The release record, as a review board reads it."""
    with tempfile.TemporaryDirectory() as folder:
        fit.report(f"{folder}/record.html")
        return Path(folder, "record.html").read_text(encoding="utf-8")


def _tokens(office: RunningOffice, visit: Visit, made: str = "") -> Response:
    projects = [project["name"] for project in office.accounts.projects(visit.person.name)]
    shown = {"tokens": office.accounts.tokens(visit.person.name), "projects": projects}
    return _page(office, visit, "tokens", made=made, **shown)


def _change_tokens(office: RunningOffice, visit: Visit) -> Response:
    if visit.field("do") == "revoke":
        office.accounts.revoke(visit.person, int(_number(visit, "token") or 0))
        return RedirectResponse("/tokens", 303)
    name, days = visit.person.name, _number(visit, "days") or office.settings.token_days
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
    budget = office.desk.budget()["dataset"]
    shown = {"waiting": waiting, "budget": budget, "requests": office.desk.states()}
    return _page(office, visit, "queue", **shown)


def _people(office: RunningOffice, visit: Visit, made: str = "") -> Response:
    people, projects = office.accounts.people(), office.accounts.projects()
    for person in people:
        person["budget"] = office.desk.budget(name=person["name"])["person"]
    for project in projects:
        project["budget"] = office.desk.budget(project["name"])["project"]
    shown = {"people": people, "projects": projects, "tokens": office.accounts.tokens()}
    return _page(office, visit, "people", made=made, roles=ROLES, **shown)


def _change_people(office: RunningOffice, visit: Visit) -> Response:
    by, do, accounts = visit.person, visit.field("do"), office.accounts
    name, project, role = (visit.field(x) for x in ("name", "project", "role"))
    known = {person["name"]: person["role"] for person in accounts.people()}
    changed = {role, known.get(name)} if do in ("account", "change", "password") else set()
    if changed - {ROLES[0], "", None}:
        by.require("administrator")
    made = ""
    if do == "account":
        made = f"{name} signs in with {accounts.add(by.name, name, role)}, which serves once"
    elif do == "change":
        accounts.set_account(by.name, name, role, visit.field("active") == "yes")
    elif do == "password":
        made = f"{name} signs in with {accounts.set_password(by.name, name)}, which serves once"
    elif do == "project":
        accounts.add_project(by.name, project)
    elif do in ("member", "no member"):
        accounts.set_member(by.name, name, project, do == "member")
    elif do == "budget":
        caps = _number(visit, "epsilon"), _number(visit, "delta")
        accounts.set_budget(by.name, visit.field("of"), name, *caps)
    elif do == "revoke":
        accounts.revoke(by, int(_number(visit, "token") or 0))
    return _people(office, visit, made) if made else RedirectResponse("/people", 303)


def _ledger(office: RunningOffice, visit: Visit) -> Response:
    ledger = office.desk.ledger()
    try:
        proof, sound = ledger.verify(), True
    except DPEffectsError as error:
        proof, sound = str(error), False
    statement = _embedded(visit, ledger.summary().as_html())
    return _page(office, visit, "ledger", proof=proof, sound=sound, statement=statement)


def _events(office: RunningOffice, visit: Visit) -> Response:
    return _page(office, visit, "events", events=office.desk.events())


def _export(office: RunningOffice, visit: Visit) -> Response:
    """Everything but what would let anybody in, and the data."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("office.toml", "policy.toml", "codebook.toml"):
            archive.write(office.folder.path / name, name)
        states = office.desk.states(most=None)
        tables = {"requests": states, "events": office.desk.events(None)}
        tables |= {"accounts": office.accounts.people(), "projects": office.accounts.projects()}
        for name, rows in (tables | {"tokens": office.accounts.tokens()}).items():
            archive.writestr(f"{name}.json", json.dumps(rows, indent=1))
            archive.writestr(f"{name}.csv", pd.DataFrame(rows).to_csv(index=False))
        for state in states:
            if state["kind"]:
                full = office.desk.state(visit.person, state["id"])
                archive.writestr(f"answers/{state['id']}.json", json.dumps(full["result"]))
                archive.writestr(f"answers/{state['id']}.html", _record(_result(full)))
        with tempfile.TemporaryDirectory() as folder:
            office.desk.ledger().export(f"{folder}/ledger.json")
            archive.write(f"{folder}/ledger.json", "ledger.json")
    headers = {"content-disposition": f'attachment; filename="{office.settings.name}.zip"'}
    return Response(content.getvalue(), media_type="application/zip", headers=headers)
