"""A dataset of an office in the place of a frame, against a stand-in of the office's interface."""

from __future__ import annotations

import contextlib
import gzip
import json
import logging
import os
import re
import shutil
import socket
import subprocess
import sys
import time

import httpx
import numpy as np
import pytest

import dpeffects as dpe
from dpeffects.cli.program import main
from dpeffects.errors import (
    BudgetError,
    DataError,
    EstimationError,
    FormulaError,
    OfficeError,
    OptionError,
    PendingError,
    RefusalError,
)
from dpeffects.services import connect as connecting
from dpeffects.services.connect import _Link
from tests.cases import each
from tests.office.offices import sign_in
from tests.office.standin import BOUNDS, FAILS, REFUSED, SEED, TOKEN, WAITS, N, StandIn, data
from tests.test_r import install, run

URL = "https://office.example"


def through(monkeypatch, handle):
    """All that is sent goes to a function of this process."""

    def streamed(request):
        found = handle(request)
        headers = {k: x for k, x in found.headers.items() if k != "content-length"}
        stream = httpx.ByteStream(found._content)
        return httpx.Response(found.status_code, headers=headers, stream=stream)

    def client(self, wait):
        return httpx.Client(transport=httpx.MockTransport(streamed))

    client.handle = handle
    monkeypatch.setattr(_Link, "_client", client)
    monkeypatch.setattr(connecting, "_PAUSES", (0.0, 0.0))
    monkeypatch.setattr(connecting, "_LEAST", 0.0)


@pytest.fixture
def office(monkeypatch):
    """A stand-in, and what hands requests to it."""
    office = StandIn()

    def handle(request):
        target = request.url.raw_path.decode()
        found = office.answer(request.method, target, request.headers, request.content)
        return httpx.Response(found[0], json=found[1])

    through(monkeypatch, handle)
    monkeypatch.setenv("DPEFFECTS_TOKEN", TOKEN)
    return office


@pytest.fixture
def registry(office):
    return dpe.connect(URL)["registry"]


CALLS = [
    ("dp_ate", "y ~ t | x + region", {"epsilon": 1}),
    ("dp_ate", "y ~ t | x", {"epsilon": 1, "by": ["region == 'N'", "region == 'S'"]}),
    ("dp_att", "y ~ t | x", {"epsilon": 1, "method": "private_ipw"}),
    ("dp_atc", "y ~ t | x", {"epsilon": 1, "method": "private_ipw", "clip": 0.1}),
    ("dp_cate", "y ~ t | region", {"epsilon": 2, "release": "groups", "by": "region"}),
    ("dp_cate", "y ~ t | x", {"epsilon": 2, "delta": 1e-5}),
    ("dp_survival", "Surv(time, event) ~ t | x", {"epsilon": 1, "horizon": 60}),
    ("dp_qte", "y ~ t", {"epsilon": 1, "quantiles": (0.25, 0.5), "design": "randomised"}),
    ("dp_rate", "event ~ t", {"epsilon": 1, "offset": "time", "design": "randomised"}),
    ("dp_late", "y ~ event", {"epsilon": 1, "instrument": "t", "design": "randomised"}),
    ("dp_did", "y ~ t", {"epsilon": 1, "before": "event"}),
    ("dp_moments", "y ~ t | x", {"epsilon": 1}),
    ("dp_study", "y + time ~ t | x", {"epsilon": 1, "subgroups": ["region"]}),
    ("dp_balance", "y ~ t | x", {"epsilon": 1}),
    ("dp_ordinal", "region ~ t", {"epsilon": 1, "design": "randomised"}),
]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("name", "formula", "given"), CALLS)
def test_a_call_gives_what_it_gives_on_the_rows(office, registry, name, formula, given):
    call = getattr(dpe, name)
    found, wanted = call(formula, registry, **given), call(formula, data(), **given, seed=SEED)
    assert type(found) is type(wanted)
    assert json.loads(found.to_json()) == json.loads(wanted.to_json())
    assert str(found.summary()) == str(wanted.summary())
    assert office.drawn == 1


def test_a_result_has_all_that_results_have(registry):
    fit = dpe.dp_ate("y ~ t | x", registry, epsilon=2, design="randomised")
    assert fit.conf_int(0.9).lower > fit.conf_int(0.95).lower
    assert fit.test().p_value <= 1
    assert "epsilon" in str(fit.report())
    assert fit.tidy().shape[0] == 1
    assert fit.table()
    fit.plot()


def test_the_same_call_is_one_request(office, registry):
    first = dpe.dp_ate("y ~ t", registry, epsilon=1)
    again = dpe.dp_ate(
        "y ~ t", data=dpe.connect(URL)["registry"], epsilon=1.0, delta=0, means=False
    )
    assert first == again
    assert office.drawn == len(office.states) == 1
    dpe.dp_ate("y ~ t", registry, epsilon=1, means=True)
    assert office.drawn == 2


def test_a_dot_stands_for_the_columns_of_the_codebook(office, registry):
    dpe.dp_ate("y ~ t | .", registry, epsilon=1)
    (state,) = office.states.values()
    assert state["formula"] == "y ~ t | x + region + time + event"


def test_what_waits_is_fetched_later(office, registry):
    def ask():
        return dpe.dp_ate("y ~ t", registry, epsilon=WAITS)

    with pytest.raises(PendingError, match="approval of the office's steward, and nothing is paid"):
        ask()
    (name,) = office.states
    with pytest.raises(PendingError, match=rf"dataset.request\('{name}'\)"):
        registry.request(name)
    asked = registry.requests()
    assert asked[["id", "status", "epsilon"]].to_numpy().tolist() == [[name, "waiting", WAITS]]
    office.approve(name)
    fit = ask()
    assert isinstance(fit, dpe.Result)
    assert registry.request(name) == fit
    assert office.drawn == 1
    assert list(registry.requests()["status"]) == ["answered"]


def test_a_refusal_has_its_reason_and_says_that_nothing_was_paid(registry):
    with pytest.raises(RefusalError, match=r"refuses: epsilon 9 is more .* Nothing was paid$"):
        dpe.dp_ate("y ~ t", registry, epsilon=REFUSED)


def test_a_failure_says_that_the_budget_is_spent(registry):
    with pytest.raises(
        EstimationError, match=r"^the office has paid, and has no estimate: the val"
    ):
        dpe.dp_ate("y ~ t", registry, epsilon=FAILS)


def test_a_call_does_not_wait_for_ever(office, monkeypatch):
    monkeypatch.setattr(StandIn, "draw", lambda self, state: None)
    registry = dpe.connect(URL, timeout=0.1)["registry"]
    with pytest.raises(PendingError, match="not answered yet; the same call gets the answer"):
        dpe.dp_ate("y ~ t", registry, epsilon=1)


def test_a_long_wait_shows_a_bar(registry, monkeypatch):
    shown = []
    monkeypatch.setattr(connecting, "bar", lambda x, about: shown.append(about) or x)
    dpe.dp_ate("y ~ t", registry, epsilon=1)
    assert shown == ["waiting for registry"]


# --- what the office does not take ----------------------------------------------------------------

NOT_TAKEN = {
    "ledger": dpe.Ledger(1.0),
    "dataset": "nsw",
    "seed": 1,
    "bounds": {"y": (0, 1)},
    "budget_split": {"counts": 0.5},
}


@pytest.mark.parametrize("name", NOT_TAKEN)
def test_what_is_the_offices_own_is_refused(office, registry, name):
    with pytest.raises(OptionError, match=f"^{name} cannot be given for a dataset of an office"):
        dpe.dp_ate("y ~ t", registry, epsilon=1, **{name: NOT_TAKEN[name]})
    assert not office.states


@each(
    ("call", "error", "words"),
    [
        (lambda r: dpe.dp_ate("y ~ t", r), OptionError, "needs epsilon"),
        (lambda r: dpe.dp_att("y ~ t", r), BudgetError, "epsilon must be a number"),
        (lambda r: dpe.dp_ate("y ~ t", r, epsilon="much"), BudgetError, "epsilon must be a number"),
        (lambda r: dpe.dp_ate("y ~ t", r, epsilon=-1), BudgetError, "positive"),
        (lambda r: dpe.dp_ate("y ~", r, epsilon=1), FormulaError, "treatment"),
        (lambda r: dpe.dp_ate("y ~ tt", r, epsilon=1), DataError, "did you mean 't'"),
        (lambda r: dpe.dp_rate("event ~ t", r, epsilon=1), OptionError, "needs offset"),
        (lambda r: dpe.dp_ate(r, "y ~ t", epsilon=1), OptionError, "place of the data, after"),
        (lambda r: dpe.dp_ate("y ~ t", data(), epsilon=1, bounds=r), OptionError, "place of the"),
        (lambda r: dpe.dp_ate("y ~ t", r, epsilon=1, clip=np.nan), OptionError, "clip is of type"),
        (lambda r: dpe.dp_ate("y ~ t", r, epsilon=1, method=len), OptionError, "method is of type"),
        (lambda r: dpe.dp_ate("y ~ t", r, epsilon=1, by={"a": data()}), OptionError, "DeclaredFr"),
        (lambda r: dpe.dp_cate("y ~ t", r, epsilon=1, at=data().frame), OptionError, "DataFrame"),
        (lambda r: dpe.reference("y ~ t", r), OptionError, "an office does not answer reference"),
        (lambda r: dpe.site_release("y ~ t", r, site="a", epsilon=1), OptionError, "site_release"),
        (lambda r: dpe.dp_multisite("y ~ t", r, site="region"), OptionError, "does not answer"),
        (lambda r: dpe.dp_randomisation_test("y ~ t", r, epsilon=1), OptionError, "not answer"),
        (lambda r: dpe.plan("y ~ t", r, epsilon=1, n=5), OptionError, "^n cannot be given"),
        (lambda r: r.plan("y ~ t", epsilon=1, bounds={}), OptionError, "^bounds cannot be given"),
        (lambda r: dpe.plan("y ~ tt", r, epsilon=1), DataError, "did you mean 't'"),
        (lambda r: r.plan("y ~ t | heigth", epsilon=1), DataError, "'heigth'"),
        (
            lambda r: dpe.dp_ate("y ~ t", dpe.connect(URL), epsilon=1),
            OptionError,
            "has registry",
        ),
        (lambda r: dpe.Protocol("y ~ t", 1.0).run(r), OptionError, "does not answer run; it"),
        (lambda r: r[r["x"] > 4], OptionError, "no rows here: codebook"),
        (lambda r: list(r), OptionError, "no rows here"),
        (lambda r: np.asarray(r), OptionError, "no rows here"),
        (lambda r: r.head(), AttributeError, "^'head': .* no rows here"),
        (lambda r: r.made_up(2), OptionError, "n must be a whole number"),
        (lambda r: r.request("nothing"), OfficeError, "no such page"),
    ],
)
def test_a_mistake_is_a_sentence_and_costs_nothing(office, registry, call, error, words):
    with pytest.raises(error, match=words) as told:
        call(registry)
    assert "\n" not in str(told.value)
    assert not office.states


def test_numbers_of_numpy_and_ranges_are_plain_values(office, registry):
    dpe.dp_qte(
        "y ~ t",
        registry,
        epsilon=np.float64(1),
        quantiles=np.array([0.25, 0.5]).tolist(),
        design=np.str_("randomised"),
        bins=np.int64(16),
    )
    (state,) = office.states.values()
    assert state["options"]["quantiles"] == [0.25, 0.5]


# --- what is free ---------------------------------------------------------------------------------


def test_the_codebook_and_the_budget_are_frames(office, registry):
    book = registry.codebook()
    assert list(book) == ["column", "values", "label", "unit", "roles"]
    assert list(book["column"]) == registry.columns == list(BOUNDS)
    assert list(book["values"])[:4] == ["[0, 1]", "[0, 1]", "[0, 10]", "N, S"]
    assert (
        dict(zip(book["column"], book["roles"], strict=True))["region"] == "covariates, subgroups"
    )
    assert registry.bounds == dpe.declare(data().frame, BOUNDS).bounds
    assert registry.n == len(registry) == N
    amounts = registry.budget()
    assert list(amounts["budget"].unique()) == ["dataset", "person"]
    assert amounts[amounts["of"] == "epsilon"][["total", "spent", "left"]].iloc[0].tolist() == [
        5,
        1,
        4,
    ]
    assert not office.states


def test_made_up_records_are_of_the_codebook_alone(registry):
    made = registry.made_up(500)
    assert isinstance(made, dpe.DeclaredFrame)
    assert made.shape == (500, len(registry.columns))
    assert "nobody's records" in repr(made)
    assert made.frame.equals(registry.made_up(500).frame)
    assert made.bounds == registry.bounds
    assert set(made["region"]) == {"N", "S"}
    assert set(made["x"]) == set(range(11))
    assert abs(np.corrcoef(made["x"], made["y"])[0, 1]) < 0.1
    assert abs(np.corrcoef(made["t"].astype(float), made["y"])[0, 1]) < 0.1
    for name, formula, given in CALLS[::5]:  # a script runs on them as it stands
        getattr(dpe, name)(formula, made, **given, seed=1)


def test_a_plan_has_n_and_bounds_of_the_dataset(office, registry):
    asked = {"epsilon": 1, "method": "diff_in_means", "repeats": 1}
    wanted = dpe.plan("y ~ t | x", n=N, bounds=BOUNDS, **asked)
    for found in (
        registry.plan("y ~ t | x", **asked),
        dpe.plan("y ~ t | x", n=registry, **asked),
        dpe.plan("y ~ t | x", registry, **asked),
        dpe.plan("y ~ t | x", data=registry, bounds=None, **asked),
    ):
        assert found.tidy().equals(wanted.tidy())
    study = dpe.plan_study("y + time ~ t | x", registry, epsilon=1)
    assert isinstance(study, dpe.StudyPlan)
    assert not office.states


def test_an_office_is_a_mapping(office):
    found = dpe.connect(URL + "/")
    assert isinstance(found, dpe.Office)
    assert list(found) == ["registry"]
    assert "registry" in found
    assert found.get("other") is None
    assert repr(found) == f"<office at {URL}: registry>"
    assert repr(found["registry"]) == f"<dataset 'registry' of the office at {URL}: 400 records>"
    with pytest.raises(OptionError, match=r"no dataset 'regis'\. Did you mean 'registry'"):
        found["regis"]


# --- the way there --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "http://office.example",
        "http://localhost.evil.example",
        "http://127.0.0.1@evil.example",
        "http://127.0.0.1.evil.example/",
        "https://user:word@office.example",
        "https://office.example?x=1",
        "https://office.example/#x",
        "ftp://office.example",
        "office.example",
        "https://",
        "https://office.example/a b",
        "",
        None,
        3,
    ],
)
def test_an_address_has_tls_or_is_this_machine(url):
    with pytest.raises(OptionError, match="begins with https://"):
        dpe.connect(url, token=TOKEN)


@pytest.mark.parametrize("url", ["http://localhost:8800", "http://127.0.0.1", "http://[::1]:80/a"])
def test_this_machine_needs_no_tls_and_no_proxy(url):
    link = _Link(url, TOKEN, None)
    with link._client(0.0) as client:
        assert client.trust_env is False
        assert client.follow_redirects is False


@pytest.mark.parametrize("token", ["", "two words", "line\nbreak", "é", b"bytes", 3])
def test_a_token_is_one_word(token):
    with pytest.raises(OptionError, match="DPEFFECTS_TOKEN") as told:
        dpe.connect(URL, token=token)
    assert not token or str(token) not in str(told.value)


def test_a_token_comes_from_the_environment(monkeypatch):
    monkeypatch.delenv("DPEFFECTS_TOKEN", raising=False)
    with pytest.raises(OptionError, match="DPEFFECTS_TOKEN"):
        dpe.connect(URL)


@pytest.mark.parametrize("given", ["nowhere.pem", __file__, 3])
def test_a_certificate_is_a_pem_file(given):
    with pytest.raises(OptionError, match="PEM"):
        dpe.connect(URL, token=TOKEN, certificate=given)


@pytest.mark.parametrize("timeout", [0, -1, "long", True, float("nan")])
def test_a_timeout_is_some_seconds(timeout):
    with pytest.raises(OptionError, match="timeout must be between"):
        dpe.connect(URL, token=TOKEN, timeout=timeout)


def test_without_httpx_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "httpx", None)
    with pytest.raises(dpe.errors.MissingExtraError, match=r'pip install "dpeffects\[office\]"'):
        dpe.connect(URL, token=TOKEN)


def test_what_was_lost_is_sent_again(office, monkeypatch):
    lost = iter([httpx.ConnectError("x"), 503, None, httpx.ReadTimeout("x"), 429, *[None] * 99])
    real = _Link._client.handle

    def handle(request):
        found = real(request)  # it may have arrived
        case = next(lost)
        if isinstance(case, Exception):
            raise case
        return found if case is None else httpx.Response(case, json={"error": "busy"})

    through(monkeypatch, handle)
    dpe.dp_ate("y ~ t", dpe.connect(URL)["registry"], epsilon=1)
    assert office.drawn == len(office.states) == 1


@each(
    ("case", "words"),
    [
        (httpx.ConnectError("refused"), "cannot be reached$"),
        (httpx.ConnectError("CERTIFICATE_VERIFY_FAILED"), "certificate is not trusted"),
        (httpx.Response(503, text="<html>"), r"does not answer as an office does \(HTTP 503\)"),
        (httpx.Response(429, json={"error": "slowly"}), "the office answers: slowly"),
    ],
)
def test_an_office_that_is_away_is_a_sentence(monkeypatch, case, words):
    tried = []

    def handle(request):
        tried.append(request)
        if isinstance(case, Exception):
            raise case
        return case

    through(monkeypatch, handle)
    with pytest.raises(OfficeError, match=words):
        dpe.connect(URL, token=TOKEN)
    assert len(tried) == (1 if "certificate" in words else 3)


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_does_not_carry_the_token(monkeypatch, status):
    asked = []

    def handle(request):
        asked.append(request.url.host)
        return httpx.Response(status, headers={"location": "https://evil.example/api/datasets"})

    through(monkeypatch, handle)
    with pytest.raises(OfficeError, match="sends to another address"):
        dpe.connect(URL, token=TOKEN)
    assert asked == ["office.example"]


# --- hostile answers ------------------------------------------------------------------------------

LONG = {"datasets": [{"name": "x" * 100}] * 300_000}
HOSTILE = {
    "html": (200, b"<html>sign in</html>"),
    "nothing": (200, b""),
    "a list": (200, b"[]"),
    "a number": (200, b"1"),
    "nested": (200, b"[" * 200_000),
    "nested object": (200, b'{"datasets":' * 100_000),
    "twice": (200, b'{"datasets": [], "datasets": []}'),
    "nan": (200, b'{"datasets": NaN}'),
    "endless": (200, json.dumps(LONG).encode()),
    "no names": (200, b'{"datasets": [{}]}'),
    "numbers": (200, b'{"datasets": [{"name": 3}]}'),
    "control characters": (200, b'{"datasets": [{"name": "a\\u001b[2J"}]}'),
    "an object": (200, b'{"datasets": {"name": "a"}}'),
    "not UTF-8": (200, b'{"datasets": "\xff"}'),
    "a big number": (200, b'{"datasets": ' + b"9" * 10_000 + b"}"),
    "an error": (500, b'{"error": "at\\n\\u001b[2J' + b"x" * 100_000 + b'"}'),
    "an error that is none": (500, b'{"error": {"a": [1]}}'),
    "what is not understood": (418, b"{}"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_answer_is_a_sentence(monkeypatch, name):
    status, text = HOSTILE[name]
    through(monkeypatch, lambda request: httpx.Response(status, content=text))
    began = time.monotonic()
    with pytest.raises(OfficeError) as told:
        dpe.connect(URL, token=TOKEN)
    assert len(str(told.value)) < 1200
    assert str(told.value).isprintable()
    assert time.monotonic() - began < 5


def test_what_is_packed_is_not_unpacked(monkeypatch):
    packed = gzip.compress(b'{"datasets": []}' + b" " * 10_000_000)

    def handle(request):
        found = httpx.Response(200, content=packed)
        found.headers["content-encoding"] = "gzip"
        return found

    through(monkeypatch, handle)
    with pytest.raises(OfficeError):
        dpe.connect(URL, token=TOKEN)


WRONG_STATES = {
    "no class": {"kind": "nothing"},
    "a function": {"kind": "load_data"},
    "a module": {"kind": "plots"},
    "inside": {"kind": "__builtins__"},
    "another class": {"kind": "CombinedEffect"},
    "no kind": {"kind": None},
    "no result": {"result": []},
    "an empty result": {"result": {"estimate": 1}},
    "a text": {"result": "print(1)"},
    "another status": {"status": "fine"},
    "another call": {"call": "load_data"},
    "no id": {"id": 3},
    "a far epsilon": {"epsilon": "much"},
    "markup": {"status": "refused", "reason": "\x1b[2J\n<b>no</b>"},
    "a long reason": {"status": "refused", "reason": "no" * 10_000},
    "no reason": {"status": "refused", "reason": {"a": 1}},
}


@pytest.mark.parametrize("name", WRONG_STATES)
def test_a_wrong_state_is_a_sentence(office, registry, monkeypatch, name):
    state = StandIn.state

    def wrong(self, *given):
        return state(self, *given) | WRONG_STATES[name]

    monkeypatch.setattr(StandIn, "state", wrong)
    monkeypatch.setattr(StandIn, "shown", lambda self, x: self.states[x] | {"status": "queued"})
    registry._timeout = 0.1
    with pytest.raises((OfficeError, RefusalError, PendingError)) as told:
        dpe.dp_ate("y ~ t", registry, epsilon=1)
    assert len(str(told.value)) < 1200
    assert str(told.value).isprintable()


@each(
    "column",
    [
        {"range": [1, 0]},
        {"range": [0]},
        {"range": "all"},
        {"range": [0, 1e400]},
        {"levels": []},
        {"levels": [{"a": 1}, 2]},
        {"levels": None},
    ],
)
def test_a_wrong_codebook_is_a_sentence(office, monkeypatch, column):
    monkeypatch.setattr("tests.office.standin.COLUMNS", {"y": column})
    handle = _Link._client.handle

    def wrong(request):
        if request.url.path.endswith("registry"):
            text = {"n": 5, "columns": {"y": column}, "roles": {}}
            return httpx.Response(200, content=json.dumps(text).encode())
        return handle(request)

    through(monkeypatch, wrong)
    with pytest.raises(OfficeError):
        dpe.connect(URL)


# --- the token ------------------------------------------------------------------------------------


def test_the_token_is_in_no_text(office, registry, caplog, capsys):
    caplog.set_level(logging.DEBUG)
    told = [repr(registry), str(dpe.connect(URL)), repr(vars(registry._link)), repr(registry._link)]
    for epsilon in (1, REFUSED, WAITS, FAILS):
        try:
            told.append(str(dpe.dp_ate("y ~ t", registry, epsilon=epsilon).report()))
        except dpe.DPEffectsError as error:
            told += [str(error), repr(error), repr(error.__context__), repr(error.__cause__)]
    with pytest.raises(OfficeError, match="token is not known") as wrong:
        dpe.connect(URL, token="another-secret")
    told += [str(wrong.value), caplog.text, *capsys.readouterr()]
    assert not [text for text in told if TOKEN in text or "another-secret" in text]
    sent = [headers["authorization"] for _, _, headers, _ in office.seen]
    assert set(sent) == {f"Bearer {TOKEN}", "Bearer another-secret"}
    assert not [x for x in office.seen if TOKEN in x[1] or TOKEN.encode() in x[3]]


# --- over a socket, and from a shell --------------------------------------------------------------


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """The address of a stand-in in a process of its own."""
    port = tmp_path_factory.mktemp("office") / "port"
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.office.standin", str(port), str(os.getpid())]
    )
    try:
        until = time.monotonic() + 60
        while not port.exists() and time.monotonic() < until:
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port.read_text()}"
    finally:
        process.kill()
        process.wait()


SHELL = [
    (["ate", "y ~ t | x"], "dp_ate", "y ~ t | x", {}),
    (
        ["att", "y ~ t | x", "--method", "private_ipw"],
        "dp_att",
        "y ~ t | x",
        {"method": "private_ipw"},
    ),
    (
        ["survival", "Surv(time, event) ~ t", "--horizon", "60"],
        "dp_survival",
        "Surv(time, event) ~ t",
        {"horizon": 60},
    ),
    (
        ["cate", "y ~ t | region", "--release", "groups", "--by", "region"],
        "dp_cate",
        "y ~ t | region",
        {"release": "groups", "by": ["region"]},
    ),
    (
        ["study", "y ~ t | x", "--subgroups", "region"],
        "dp_study",
        "y ~ t | x",
        {"subgroups": ["region"]},
    ),
]


@pytest.mark.long
def test_a_shell_gives_the_same_from_the_same_requests(served, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("DPEFFECTS_TOKEN", TOKEN)
    registry = dpe.connect(served)["registry"]
    for k, (typed, name, formula, given) in enumerate(SHELL):
        file = tmp_path / f"{k}.json"
        typed = [*typed[:2], f"{served}/registry", *typed[2:], "--epsilon", "2"]
        assert main([*typed, "--out", str(file)]) == 0, capsys.readouterr()
        found = json.loads(file.read_text())
        wanted = json.loads(getattr(dpe, name)(formula, registry, epsilon=2, **given).to_json())
        assert {x: found[x] for x in found if x in wanted} == wanted
    assert len(registry.requests()) == len(SHELL)


def test_a_shell_says_what_is_wrong_in_a_line(served, monkeypatch, capsys):
    monkeypatch.setenv("DPEFFECTS_TOKEN", TOKEN)
    typed = ["ate", "y ~ t", f"{served}/registry", "--epsilon"]
    for more, words in [
        ([str(WAITS)], "steward"),
        ([str(REFUSED)], "Nothing was paid"),
        (["1", "--seed", "1"], "seed cannot be given"),
        (["1", "--ledger", "x.db"], "ledger cannot be given"),
    ]:
        assert main([*typed, *more]) == 2
        assert words in (told := capsys.readouterr().err)
        assert told.count("\n") == 1
    assert main(["ate", "y ~ t", f"{served}/other", "--epsilon", "1"]) == 2
    assert "no dataset 'other'" in capsys.readouterr().err
    monkeypatch.delenv("DPEFFECTS_TOKEN")
    assert main([*typed, "1"]) == 2
    assert "DPEFFECTS_TOKEN" in capsys.readouterr().err


# --- the server itself ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """The server in a process of its own: its office, and its address."""
    from tests.office.offices import Running, until

    folder = tmp_path_factory.mktemp("real")
    running = Running(folder, approval="above", approve_above=1.0, epsilon=30.0, delta=1e-4)
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{made.getsockname()[1]}"
    command = [sys.executable, "-m", "dpeffects", "office", "serve", str(running.folder.path)]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([*command, "--listen", address], stdout=log, stderr=log)

    def up():
        assert process.poll() is None, (folder / "log").read_text()
        with contextlib.suppress(httpx.TransportError):
            return httpx.get(f"http://{address}/healthz").status_code == 200

    try:
        until(up, 120.0)
        yield running, f"http://{address}"
    finally:
        process.terminate()
        process.wait(60)
        running.database.close()


@pytest.fixture
def mine(real, monkeypatch):
    """The dataset of the server, for a researcher with a token in the environment."""
    running, url = real
    monkeypatch.setenv("DPEFFECTS_TOKEN", running.accounts.token("test", "anna", "ageing"))
    return dpe.connect(url)["registry"]


REAL = [
    ("dp_ate", "y ~ t | x + region", {}, dpe.Result),
    ("dp_ate", "y ~ t | x", {"by": ["region == 'N'", "region == 'S'"]}, dpe.SubsetEffects),
    ("dp_att", "y ~ t | x", {"method": "private_ipw"}, dpe.Result),
    ("dp_cate", "y ~ t | region", {"release": "groups", "by": "region"}, dpe.CateEffects),
    ("dp_cate", "y ~ t | x", {"delta": 1e-6}, dpe.CateFunction),
    ("dp_survival", "Surv(x, I(y > 0.4)) ~ t", {"horizon": 8}, dpe.SurvivalEffects),
    ("dp_qte", "y ~ t", {"quantiles": (0.25, 0.5), "design": "randomised"}, dpe.QuantileEffects),
    ("dp_rate", "y ~ t", {"offset": "x", "design": "randomised"}, dpe.RateEffects),
    ("dp_did", "y ~ t", {"before": "x"}, dpe.DidEffect),
    ("dp_moments", "y ~ t | x", {}, dpe.Moments),
    ("dp_study", "y ~ t | x", {"subgroups": ["region"]}, dpe.StudyEffects),
    ("dp_balance", "y ~ t | x", {}, dpe.Balance),
]


@pytest.mark.long
def test_the_server_answers_every_call_once(mine):
    for name, formula, given, kind in REAL:
        fit = getattr(dpe, name)(formula, mine, epsilon=0.5, **given)
        assert type(fit) is kind
        assert getattr(dpe, name)(formula, mine, epsilon=0.5, **given).to_json() == fit.to_json()
        assert "NOT PRIVATE" not in str(fit.summary())
    assert list(mine.requests()["status"]) == ["answered"] * len(REAL)
    left = mine.budget().set_index(["budget", "of"])
    assert left.loc[("dataset", "epsilon"), "spent"] == pytest.approx(0.5 * len(REAL))


@pytest.mark.long
def test_the_server_says_what_is_free_and_what_it_refuses(mine):
    assert mine.n == 400
    assert mine.codebook().set_index("column")["label"]["y"] == "Recovered <b>fully</b>"
    assert mine.made_up(100).shape == (100, 4)
    assert mine.plan("y ~ t | x", epsilon=1, method="auto", repeats=1).rows[0].half_width > 0
    with pytest.raises(RefusalError, match="Nothing was paid"):
        dpe.dp_ate("y ~ t", mine, epsilon=100)
    with pytest.raises(OptionError, match="the office answers: "):
        dpe.dp_ate("y ~ t", mine, epsilon=0.1, unit="x")


def with_reticulate():
    """Whether R is here, with what its package needs."""
    if shutil.which("Rscript") is None:
        return False
    check = ["Rscript", "--vanilla", "-e", "cat(requireNamespace('reticulate', quietly = TRUE))"]
    return subprocess.run(check, capture_output=True, text=True).stdout == "TRUE"


@pytest.mark.long
def test_the_same_numbers_from_python_r_the_shell_and_a_page(real, mine, tmp_path):
    running, url = real
    with pytest.raises(PendingError, match="steward"):
        dpe.dp_ate("y ~ t | x", mine, epsilon=2)
    request = mine.requests()["id"][0]
    running.desk.approve(running.person("sue"), request)
    fit = dpe.dp_ate("y ~ t | x", mine, epsilon=2)
    typed = ["ate", "y ~ t | x", f"{url}/registry", "--epsilon", "2", "--out"]
    assert main([*typed, str(tmp_path / "fit.json")]) == 0
    shell = json.loads((tmp_path / "fit.json").read_text())
    assert (shell["estimate"], shell["std_error"]) == (fit.estimate, fit.std_error)
    with httpx.Client(base_url=url, follow_redirects=True) as page:
        sign_in(page, "anna")
        shown = page.get(f"/requests/{request}").text
    (line,) = re.findall("<tr>.*>association<.*</tr>", fit.summary().as_html())
    assert line in shown
    if with_reticulate():
        code = f"""
            library(dpeffects)
            fit <- dp_ate(y ~ t | x, dp_connect("{url}")$registry, epsilon = 2)
            cat(format(c(coef(fit), tidy(fit)$std.error), digits = 17))
        """
        install(tmp_path)
        assert list(map(float, run(code, tmp_path).split())) == [fit.estimate, fit.std_error]
    assert list(mine.requests()["id"]).count(request) == 1
