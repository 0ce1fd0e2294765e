"""The door: sessions, forms, limits, headers, and words that hold nothing of the data."""

import asyncio
import json
import logging
import re
from types import SimpleNamespace

import pytest
from starlette.requests import Request

from dpeffects.services.office import reception
from dpeffects.services.office.accounts import DeskError
from dpeffects.services.office.reception import MOST_BYTES, read_body
from dpeffects.services.office.structured_logs import JsonLines
from tests.office.offices import PASSWORD, Running, asked, form_of, sign_in
from tests.privacy.conftest import server  # noqa: F401  a PostgreSQL server of the tests' own

DATASET = "/api/datasets/registry"


# --- scripts


def test_a_script_asks_and_sees_the_state(running):
    script = running.script()
    assert script.get("/api/datasets").json() == {
        "datasets": [{"name": "registry", "title": "The registry", "n": 400}]
    }
    about = script.get(DATASET).json()
    assert about["columns"]["x"] == {"range": [0, 10], "unit": "years"}
    assert about["columns"]["t"] == {"range": [0, 1], "whole": True}
    assert about["roles"]["treatment"] == ["t", "region"]
    assert {"dp_ate", "dp_att", "dp_survival", "dp_study"} <= set(about["calls"])
    state = script.post(f"{DATASET}/requests", json=asked()).json()
    assert state["status"] == "waiting"
    assert script.get(f"/api/requests/{state['id']}?wait=0").json()["formula"] == "y ~ t"
    assert [one["id"] for one in script.get("/api/requests").json()["requests"]] == [state["id"]]
    budget = script.get(f"{DATASET}/budget").json()
    assert budget["dataset"]["epsilon"] == {"total": 2.0, "spent": 0.0, "left": 2.0}
    assert running.script("bert", "births").get(f"/api/requests/{state['id']}").status_code == 404


def test_every_page_of_the_api_needs_a_token(running):
    browser = running.browser("anna")  # a session is no token
    for path in ("datasets", "datasets/registry", "datasets/registry/budget", "requests"):
        for given in ("", "Bearer ", "Bearer x", "Basic YTpi"):
            reply = browser.get(f"/api/{path}", headers={"authorization": given} if given else {})
            assert reply.status_code in (401, 429)
            assert set(reply.json()) == {"error"}


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (b"{", 400, "not valid JSON"),
        (b"\xff", 400, "not valid JSON"),
        (b'{"call": "dp_ate", "call": "dp_qte"}', 400, "given twice"),
        (b'{"epsilon": NaN}', 400, "finite"),
        (b"[" * 10_000, 400, "nested"),
        (b'{"call": "dp_ate", "formula": "\\ud800", "epsilon": 1}', 400, "cannot be written"),
        (b'{"call": "dp_ate", "options": {"by": "\\u0000"}}', 400, "cannot be written"),
        (b" " * (MOST_BYTES + 1), 413, "at most"),
        (json.dumps(asked(formula="y ~ ")).encode(), 400, ""),
    ],
)
def test_what_is_no_request_is_one_sentence(running, body, status, said):
    reply = running.script().post(f"{DATASET}/requests", content=body)
    assert reply.status_code == status
    assert said in reply.json()["error"]


def test_a_body_without_end_is_not_read_to_its_end(running):
    sent = 0

    def parts():
        nonlocal sent
        for _ in range(1000):
            sent += 1000
            yield b" " * 1000

    reply = running.script().post(f"{DATASET}/requests", content=parts())
    assert reply.status_code == 413


def test_a_body_that_ends_before_its_end_is_one_sentence():
    async def receive():
        return {"type": "http.disconnect"}

    with pytest.raises(DeskError, match="not sent to its end"):
        asyncio.run(read_body(Request({"type": "http"}, receive)))


def test_tokens_have_a_rate(tmp_path):
    running = Running(tmp_path, requests_per_minute=5)
    script, other = running.script(), running.script("bert", "births")
    assert [script.get("/api/requests").status_code for _ in range(7)] == [200] * 5 + [429] * 2
    assert other.get("/api/requests").status_code == 200


def test_guesses_of_tokens_have_a_rate(tmp_path):
    running = Running(tmp_path, sign_ins_per_minute=3)
    browser = running.browser()
    guess = {"authorization": "Bearer guess"}
    codes = [browser.get("/api/requests", headers=guess).status_code for _ in range(5)]
    assert codes == [401] * 3 + [429] * 2


def test_metrics_are_for_stewards_and_health_for_all(running):
    running.ask()
    assert running.browser().get("/healthz").json() == {"status": "ok"}
    assert running.browser().get("/metrics").status_code == 401
    assert running.script().get("/metrics").status_code == 403
    running.accounts.set_member("test", "sue", "ageing")
    told = running.script("sue").get("/metrics").text
    assert 'office_requests{status="waiting"} 1.0' in told
    assert 'office_responses_total{status="200"}' in told


# --- signing in


def test_signing_in_gives_a_new_session(running):
    browser = running.browser()
    browser.get("/sign-in")
    before = browser.cookies["office"]
    reply = sign_in(browser, "anna")
    assert reply.url.path == "/"
    after = browser.cookies["office"]
    assert after != before  # what somebody else planted is no session
    planted = running.browser()
    planted.cookies.set("office", before)
    assert planted.get("/").url.path == "/sign-in"


def test_the_cookie_cannot_be_read_or_sent_from_elsewhere(running):
    browser = running.browser(base_url="https://office.example")
    given = browser.get("/sign-in").headers["set-cookie"]
    for word in ("__Host-office=", "HttpOnly", "Secure", "SameSite=strict", "Path=/"):
        assert word.lower() in given.lower()
    assert "domain" not in given.lower()
    assert "secure" not in running.browser().get("/sign-in").headers["set-cookie"].lower()


def test_signing_out_ends_the_session_on_the_server(running):
    browser = running.browser("anna")
    session = browser.cookies["office"]
    browser.post("/sign-out", data={"form": form_of(browser)})
    stolen = running.browser()
    stolen.cookies.set("office", session)
    assert stolen.get("/").url.path == "/sign-in"


@pytest.mark.parametrize("page", ["/ask", "/tokens", "/sign-out", "/password"])
def test_a_form_is_of_its_session(running, page):
    browser, other = running.browser("anna"), running.browser("bert")
    for form in (None, "", "x", form_of(other)):
        data = {"do": "make", "project": "ageing"} | ({"form": form} if form is not None else {})
        reply = browser.post(page, data=data)
        assert reply.status_code == 403
        assert "this form has ended" in reply.text
    assert running.accounts.tokens("anna") == []
    assert browser.get("/").url.path == "/"


def test_a_form_to_sign_in_is_of_its_visitor(running):
    browser, other = running.browser(), running.browser()
    form = form_of(other, "/sign-in")
    browser.get("/sign-in")
    data = {"name": "anna", "password": PASSWORD, "form": form}
    assert browser.post("/sign-in", data=data).status_code == 403
    assert running.browser().post("/sign-in", data=data).status_code == 403


def test_a_second_page_to_sign_in_does_not_end_the_first(running):
    browser = running.browser()
    data = {"name": "anna", "password": PASSWORD, "form": form_of(browser, "/sign-in")}
    assert form_of(browser, "/sign-in")
    assert browser.post("/sign-in", data=data).url.path == "/"
    assert form_of(browser, "/sign-in")  # looked at once more: the session goes on
    assert browser.get("/").url.path == "/"


def test_signing_in_has_a_rate_by_address_and_by_name(tmp_path):
    running = Running(tmp_path, sign_ins_per_minute=3)
    codes = [sign_in(running.browser(), "anna", "wrong").status_code for _ in range(5)]
    assert codes == [401] * 3 + [429] * 2
    assert sign_in(running.browser(), "bert", PASSWORD).status_code == 429  # of one address
    elsewhere = running.browser(client=("10.0.0.9", 1))
    assert sign_in(elsewhere, "anna", PASSWORD).status_code == 429  # of one name
    assert sign_in(elsewhere, "bert", PASSWORD).status_code == 200


def test_plans_of_one_person_do_not_keep_all_others_waiting(running, monkeypatch):
    monkeypatch.setattr(running.office.pool, "plan", lambda question: {"error": "planned"})
    researcher = running.browser("anna")
    data = {"form": form_of(researcher), "project": "ageing", "call": "dp_ate", "formula": "y ~ t"}
    data |= {"epsilon": "0.2", "delta": "", "options": "", "do": "plan"}
    codes = [researcher.post("/ask", data=data).status_code for _ in range(12)]
    assert codes == [200] * 10 + [400] * 2
    assert "too many requests" in researcher.post("/ask", data=data).text


def test_nothing_sends_elsewhere(running):
    browser = running.browser("anna", follow_redirects=False)
    for path in ("/", "/tokens/", "//evil.example/", "/sign-in/?next=//evil.example"):
        reply = browser.get(path, headers={"host": "evil.example"})
        assert "evil" not in reply.headers.get("location", "")


def test_what_is_no_number_is_a_sentence(running):
    steward = running.browser("sue")
    form = form_of(steward)
    budget = {"form": form, "do": "budget", "of": "person", "name": "anna", "delta": ""}
    for number in ("nan", "inf", "-1e999", "one", "1e99999999999"):
        reply = steward.post("/people", data={**budget, "epsilon": number})
        assert (reply.status_code, "a number, such as" in reply.text) == (400, True)


def test_behind_a_proxy_that_says_nothing_cookies_are_secure(tmp_path):
    running = Running(tmp_path, behind_proxy="10.0.0.2")
    headers = running.browser().get("/sign-in").headers
    assert "__Host-office=" in headers["set-cookie"]
    assert "Secure" in headers["set-cookie"]
    assert "max-age=31536000" in headers["strict-transport-security"]


def test_a_password_that_serves_once_is_changed_first(running):
    password = running.accounts.add("test", "new", "researcher")
    browser = running.browser("new", password)
    for page in ("/", "/ask", "/tokens"):
        assert browser.get(page).url.path == "/password"
    form, own = form_of(browser, "/password"), "a password of my own"
    for new, again, said in (
        (own, "another one of mine", "not the same"),
        ("short", "short", "12"),
        (password, password, "the old one"),
    ):
        data = {"form": form, "password": password, "new": new, "again": again}
        assert said in browser.post("/password", data=data).text
    data = {"form": form, "password": password, "new": own, "again": own}
    assert browser.post("/password", data=data).url.path == "/sign-in"
    assert running.browser("new", own).get("/").url.path == "/"


# --- what people may see


PAGES = ("/queue", "/people", "/ledger", "/events", "/export")


def test_pages_are_for_their_roles(running):
    for page in ("/", "/ask", "/dataset", "/tokens", *PAGES):
        assert running.browser().get(page).url.path == "/sign-in"
        assert running.browser("anna").get(page).status_code == (403 if page in PAGES else 200)
    steward = running.browser("sue")
    assert [steward.get(page).status_code for page in PAGES] == [200] * len(PAGES)


def test_a_steward_makes_researchers_and_no_stewards(running):
    steward = running.browser("sue")
    form = form_of(steward)
    assert "administrator" not in steward.get("/people").text
    for do, name, role in (
        ("account", "eve", "steward"),
        ("account", "eve", "administrator"),
        ("change", "sue", "administrator"),
        ("change", "anna", "steward"),
    ):
        data = {"form": form, "do": do, "name": name, "role": role, "active": "yes"}
        assert steward.post("/people", data=data).status_code == 403
    running.accounts.add("test", "root", "administrator", PASSWORD)
    assert "<option>administrator" in running.browser("root").get("/people").text
    reply = steward.post("/people", data={"form": form, "do": "password", "name": "root"})
    assert reply.status_code == 403
    reply = steward.post(
        "/people", data={"form": form, "do": "account", "name": "eve", "role": "researcher"}
    )
    assert "New password of eve, which serves once" in reply.text
    assert {one["name"]: one["role"] for one in running.accounts.people()}["eve"] == "researcher"


def test_a_steward_decides_on_a_page(running, monkeypatch):
    plan = {"html": "<div><style>p {}</style>narrow</div>"}
    monkeypatch.setattr(running.office.pool, "plan", lambda question: plan)
    request = running.ask()["id"]
    steward, researcher = running.browser("sue"), running.browser("anna")
    assert "1 request waits for approval" in steward.get("/").text
    page = steward.get(f"/requests/{request}")
    assert "Approve" in page.text
    assert "narrow" in page.text
    assert "'sha256-" in page.headers["content-security-policy"]
    own = researcher.get(f"/requests/{request}")
    assert "Approve" not in own.text
    reply = researcher.post(
        f"/requests/{request}", data={"form": form_of(researcher), "do": "approve"}
    )
    assert reply.status_code == 403
    form = form_of(steward)
    data = {"form": form, "do": "refuse", "reason": "<script>alert(1)</script>"}
    assert steward.post(f"/requests/{request}", data=data).url.path == "/queue"
    said = researcher.get(f"/requests/{request}").text
    assert "&lt;script&gt;" in said
    assert "<script" not in said


def test_what_people_write_is_shown_and_never_run(running):
    researcher = running.browser("anna")
    evil = '"><img src=x onerror=alert(1)>'
    data = {"form": form_of(researcher), "project": evil, "call": evil, "formula": evil}
    reply = researcher.post("/ask", data=data | {"epsilon": evil, "options": evil, "do": "send"})
    assert reply.status_code == 400
    assert "<img" not in reply.text
    assert "<b>fully" not in researcher.get("/dataset").text  # a label of the codebook
    assert "&lt;b&gt;fully" in researcher.get("/dataset").text


@pytest.mark.long
def test_postgresql_has_no_zeros_in_texts(tmp_path, server):  # noqa: F811
    running = Running(tmp_path, store=server.url(server.schema()))
    assert sign_in(running.browser(), "anna\0").status_code == 400
    assert running.script().get("/api/requests/%00").status_code == 404
    assert running.browser("anna").get("/requests/%00/x").status_code == 404
    body = asked(method="\0")
    assert running.script().post(f"{DATASET}/requests", json=body).status_code == 400
    running.database.close()


@pytest.mark.parametrize("token", ["nan", "inf", "-1", "1e300", "9" * 30, "x", ""])
@pytest.mark.parametrize(("page", "name"), [("/tokens", "anna"), ("/people", "sue")])
def test_what_is_no_number_of_a_token_is_no_token(running, page, name, token):
    browser = running.browser(name)
    data = {"form": form_of(browser), "do": "revoke", "token": token}
    reply = browser.post(page, data=data)
    assert reply.status_code == 404
    assert "there is no such token" in reply.text


def test_the_form_asks_what_a_script_asks(running):
    researcher = running.browser("anna")
    data = {"form": form_of(researcher), "project": "ageing", "call": "dp_ate", "formula": "y ~ t"}
    data |= {"epsilon": "0.2", "delta": "", "options": '{"method": "diff_in_means"}', "do": "send"}
    page = researcher.post("/ask", data=data)
    request = page.url.path.removeprefix("/requests/")
    assert running.script().post(f"{DATASET}/requests", json=asked()).json()["id"] == request
    assert "Waits for approval" in page.text


def test_a_page_waits_for_its_answer_and_for_no_steward(tmp_path, monkeypatch):
    running = Running(tmp_path, approval="above", approve_above=0.5)
    researcher = running.browser("anna", follow_redirects=False)
    data = {"form": form_of(researcher), "project": "ageing", "call": "dp_ate", "formula": "y ~ t"}

    async def answered(_):
        reply = {"status": "refused", "reason": "no estimate", "paid": True}
        running.desk.finish(running.desk.claim().id, reply)

    monkeypatch.setattr(reception, "asyncio", SimpleNamespace(sleep=answered))
    pages = [
        researcher.post("/ask", data=data | {"do": "send", "epsilon": epsilon}).headers["location"]
        for epsilon in ("0.4", "0.6")
    ]
    assert [page.partition("?")[2] for page in pages] == ["wait=10", ""]
    assert "Waits for approval" in researcher.get(pages[1]).text
    now = researcher.get(pages[0].partition("?")[0]).text
    assert "Wait for the answer" in now
    assert "No estimate; the budget is spent" in researcher.get(pages[0]).text


def test_budgets_have_a_delta_where_there_is_one(running, tmp_path):
    for office, there in ((running, False), (Running(tmp_path / "delta", delta=1e-6), True)):
        for person, page in (("anna", "/dataset"), ("sue", "/queue")):
            text = office.browser(person).get(page).text
            assert "ε left" in text
            assert ("δ left" in text) == there
    office.accounts.set_budget("test", "project", "births", 1.0, 1e-7)
    assert "1e-07 of 1e-07" in office.browser("sue").get("/people").text


def test_every_answer_has_its_headers(running):
    browser = running.browser("anna")
    for page in ("/", "/nothing", "/style.css", "/healthz", "/api/requests", "/queue"):
        headers = browser.get(page).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["cache-control"] == "no-store"
        assert headers["referrer-policy"] == "no-referrer"
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert "strict-transport-security" not in headers
    tls = running.browser(base_url="https://office.example").get("/sign-in").headers
    assert "max-age=31536000" in tls["strict-transport-security"]


def test_what_was_not_foreseen_is_a_number(running, monkeypatch, caplog):
    secret = "the value 37.5 of patient 12"

    def fails(*_):
        raise RuntimeError(secret)

    monkeypatch.setattr(running.desk, "states", fails)
    reply = running.script().get("/api/requests")
    assert reply.status_code == 503
    assert secret not in reply.text
    assert reply.headers["x-request-id"] in reply.json()["error"]
    lines = [json.loads(JsonLines().format(record)) for record in caplog.records]
    assert [line["error"] for line in lines if "error" in line] == ["RuntimeError"]
    assert secret not in json.dumps(lines)


def test_logs_have_no_values(running, caplog):
    caplog.set_level(logging.INFO)
    script = running.script()
    state = script.post(
        f"{DATASET}/requests", json=asked(formula="y ~ t | x", epsilon=0.123)
    ).json()
    script.get(f"/api/requests/{state['id']}?wait=0")
    browser = running.browser("anna")
    sign_in(running.browser(), "anna", "a wrong password")
    browser.get("/dataset")
    own = [record for record in caplog.records if record.name.startswith("dpeffects")]
    told = "\n".join(JsonLines().format(record) for record in own)
    assert '"call": "datasets/{name}/requests"' in told
    for word in ("y ~ t", "0.123", "anna", "wrong", script.headers["authorization"], "fully"):
        assert word not in told
    seconds = {json.loads(line)["seconds"] for line in told.splitlines()}
    assert seconds <= {0.25 * 2**k for k in range(8)}  # classes


def test_pages_can_be_read_by_programs_that_read_aloud(running):
    html5lib = pytest.importorskip("html5lib")
    steward = running.browser("sue")
    running.ask()
    running.accounts.token("test", "anna", "ageing")
    for page in ("/", "/ask", "/dataset", "/tokens", "/queue", "/people", "/ledger", "/events"):
        text = steward.get(page).text
        tree = html5lib.HTMLParser(strict=True, namespaceHTMLElements=False).parse(text)
        assert tree.get("lang") == "en"
        assert len(tree.findall(".//h1")) == 1
        assert tree.find(".//a[@class='skip']").get("href") == "#main"
        labelled = {label.get("for") for label in tree.iter("label")}
        inside = {field for label in tree.iter("label") for field in label.iter()}
        for field in [*tree.iter("input"), *tree.iter("select"), *tree.iter("textarea")]:
            named = field.get("id") in labelled or field in inside
            assert named or field.get("type") == "hidden", (page, field.attrib)
        for table in tree.iter("table"):
            heads = [cell for cell in table.iter("th") if cell.get("scope")]
            assert heads, page
        names = [re.sub(r"\s+", " ", "".join(b.itertext())) for b in tree.iter("button")]
        assert all(names)
        assert not list(tree.iter("script"))
