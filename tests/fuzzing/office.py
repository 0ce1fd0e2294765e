"""Requests that nobody would send to an office, over a real socket, and what came of them.

The values of the data begin with digits that nothing else begins with, and its texts are no levels:
what is sent back, or written to a log, is searched for them.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import logging
import random
import re
import select
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any
from unittest import mock
from urllib.parse import quote, urlencode

import pandas as pd
import sqlalchemy as sql
import uvicorn
from argon2 import PasswordHasher

from dpeffects.services import limited_process
from dpeffects.services.gate.question import CALLS
from dpeffects.services.office import accounts, answering
from dpeffects.services.office import database as db
from dpeffects.services.office.answering import DIED, TOO_LONG
from dpeffects.services.office.structured_logs import JsonLines
from tests.fuzzing.cases import FORMULAS, FRAMES, REQUESTS, Outcome
from tests.fuzzing.formulas import BOUNDS, Grammar
from tests.office.offices import FORM, PASSWORD, Running

N, DIGITS, WORD = 120, ("4231321413", "2413142132"), "Quuxwold"
"""Records; what the digits of their numbers begin with, however they are rounded; their texts."""
_COLUMNS = {**BOUNDS, "t": [0, 1], "arm": ["no", "yes"], "treat|ed": [False, True]}
_NOISE = re.compile(r"[0-9a-f]{64}|\d{4}-\d\d-\d\d[T ][\d:.+]+|[\w-]{30,}")
"""Identifiers, times and secrets, in which any digits may stand."""
_DATASET = "/api/datasets/registry"


# --- an office that is searched -----------------------------------------------------------------


def _planted(low: float, high: float, k: int) -> float:
    """A value within a range whose digits are known."""
    for power in range(320, -321, -1):
        with contextlib.suppress(OverflowError):
            if low <= (value := float(f"{DIGITS[k % 2]}{k:04d}e{power}")) <= high:
                return value
    return float(f"{low:g}{DIGITS[k % 2]}{k:04d}")  # 1.42...


def planted_records() -> pd.DataFrame:
    """Records with such values."""
    made = {
        name: [_planted(*b, k) if isinstance(b, tuple) else b[k % len(b)] for k in range(N)]
        for name, b in _COLUMNS.items()
    }
    return pd.DataFrame(made | {"note": [WORD] * N})


def _spoil(path: Path) -> None:
    """Later records have values that are missing, no numbers or no levels."""
    data = pd.read_csv(path, dtype=object)
    for name, bound in _COLUMNS.items():
        odd = [WORD] * 8
        if isinstance(bound, tuple):
            odd = [None, "", WORD, "inf", "-inf", f"{DIGITS[0]}e290", f"-{DIGITS[1]}", "nan"]
        data.loc[3:10, name] = odd
    data.to_csv(path, index=False)


@dataclass
class Reply:
    """What was sent back."""

    status: int
    head: str = ""
    body: str = ""

    @property
    def whole(self) -> str:
        """All of it."""
        return f"{self.head}\n{self.body}"


class FuzzedOffice:
    """A server on a port of this machine, with what it and its workers write to logs."""

    def __init__(self, folder: Path, *, workers: bool = True, store: str = "sqlite:///office.db"):
        codebook = "".join(
            f"{json.dumps(x, ensure_ascii=False)} = "
            f"{{{'levels' if isinstance(b, list) else 'range'} = {json.dumps([*b])}}}\n"
            for x, b in _COLUMNS.items()
        )
        often = dict.fromkeys(("requests_per_minute", "sign_ins_per_minute"), 10**6)
        self.running = Running(
            folder,
            data=planted_records(),
            codebook=codebook,
            **{"epsilon": 1e6, "delta": 0.01, "approval": "above", "approve_above": 3.0},
            **{"store": store, **often},
        )
        _spoil(folder / "data.csv")
        self._lines: list[str] = []
        self._signed: dict[str, tuple[str, str]] = {}
        handler = logging.Handler()
        handler.setFormatter(JsonLines())
        handler.emit = lambda record: self._lines.append(handler.format(record))  # type: ignore
        logging.getLogger().addHandler(handler)
        self._log = (folder / "workers.log").open("w+")
        self.workers, pool = workers, self.running.office.pool
        if not workers:
            pool.plan = lambda _: {"error": "there are no workers"}  # type: ignore[method-assign]
        own = {"Popen": partial(subprocess.Popen, stderr=self._log), "PIPE": subprocess.PIPE}
        self._patches = contextlib.ExitStack()
        logged = mock.patch.object(limited_process, "subprocess", SimpleNamespace(**own))
        at_once = mock.patch.object(answering, "time_class", return_value=0.0)
        self._patches.enter_context(logged)
        self._patches.enter_context(at_once)
        self._patches.callback(logging.getLogger().removeHandler, handler)
        for logger in map(logging.getLogger, ("dpeffects", "uvicorn")):
            self._patches.callback(logger.setLevel, logger.level)
            logger.setLevel(logging.INFO)
        listening = socket.create_server(("127.0.0.1", 0))
        self.port = listening.getsockname()[1]
        quiet: Any = {"log_config": None, "access_log": False, "server_header": False}
        lifespan = "on" if workers else "off"
        config = uvicorn.Config(self.running.app, lifespan=lifespan, **quiet)  # type: ignore
        self._server = uvicorn.Server(config)
        work = partial(self._server.run, sockets=[listening])
        self._thread = threading.Thread(target=work, daemon=True)
        self._thread.start()
        while not self._server.started:
            assert self._thread.is_alive(), "the server did not start"
            time.sleep(0.01)
        people = self.running.accounts
        people.add("test", "victim", "researcher", PASSWORD)
        people.add("test", "gone", "steward", PASSWORD)
        people.set_account("test", "gone", "steward", False)
        people.set_member("test", "sue", "ageing")
        people.set_member("test", "victim", "ageing")
        self.token = people.token("test", "anna", "ageing")
        self.revoked = people.token("test", "victim", "ageing")
        people.revoke(self.running.person("victim"), people.tokens("victim")[0]["id"])
        self.session = self._session("anna")
        self.own = self.running.ask(formula="y ~ t")["id"]
        """A request that waits or is answered."""

    def _session(self, name: str) -> str:
        by, people = "test", self.running.accounts
        if name == "victim":  # whatever was done to it
            people.set_account(by, name, "researcher", True)
            people.set_password(by, name, PASSWORD)
        return people.sign_in(name, PASSWORD, 12.0)

    def signed(self, name: str) -> tuple[str, str]:
        """A session, and what its forms hold; the victim's is always a new one."""
        if name == "victim" or name not in self._signed:
            self._signed[name] = self._sign_in(name)
        return self._signed[name]

    def _sign_in(self, name: str) -> tuple[str, str]:
        session = self._session(name)
        page = self.send("GET", "/tokens", [f"Cookie: office={session}"])
        return session, FORM.search(page.body)[1]  # type: ignore[index]

    def send(self, method: str, target: str, heads: list[str] | None = None, body: Any = b""):
        """Send a request, well-formed as far as its parts are."""
        heads = ["Host: 127.0.0.1", *(heads or ())]
        heads += [f"Content-Length: {len(body)}"] if body or method == "POST" else []
        lines = [f"{method} {target} HTTP/1.1", *heads, "Connection: close", "", ""]
        return self.exchange("\r\n".join(lines).encode("utf-8", "surrogatepass") + body)

    def exchange(self, sent: bytes, patience: float = 60.0) -> Reply:
        """Send bytes, and go away when there is no answer; status 0 is none."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=120) as link:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                link.sendall(sent)
                if not select.select([link], [], [], patience)[0]:
                    link.shutdown(socket.SHUT_WR)
            answer = http.client.HTTPResponse(link, method=sent.split(b" ", 1)[0].decode("latin1"))
            try:
                answer.begin()
                body = answer.read()
            except (http.client.HTTPException, ConnectionResetError):
                return Reply(0)
            return Reply(answer.status, str(answer.headers), body.decode("utf-8", "replace"))

    def logged(self) -> str:
        """Lines of logs since the last time."""
        lines, self._lines[:] = [*self._lines], []
        return "\n".join([*lines, self._log.read()])

    def sessions(self) -> int:
        """Number of tokens and sessions."""
        return len(self.running.database.rows(sql.select(db.TOKENS.c.id)))

    def close(self) -> None:
        """Stop, and end the workers."""
        self._server.should_exit = True
        self._thread.join(60)
        self._patches.close()


@contextlib.contextmanager
def opened(**how: Any) -> Iterator[FuzzedOffice]:
    """An office with its workers, while it is needed."""
    quick = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
    with (
        TemporaryDirectory() as folder,
        mock.patch.multiple(accounts, _HASHER=quick, _NOBODY=quick.hash("nobody")),
        mock.patch.object(limited_process, "_START", 600.0),
    ):
        made = FuzzedOffice(Path(folder), **how)
        try:
            yield made
        finally:
            made.close()


# --- what is sent -------------------------------------------------------------------------------

ODD: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 7, 10**400, -(2**63) - 1, 2**53 + 1, 1e308, -0.0, 5e-324, 0.3),
    *("", " ", "x", "note", "nan", "inf", "-1e999", "1_0", "0x1", "\x00", "é\x00\n", "\ud800"),
    *(
        "\U0001d550",
        "\u202e",
        "A\u0301",
        "x" * 5000,
        "9" * 5000,
        [],
        {},
        [[]],
        [1, "a", None],
        {"a": {}},
    ),
    *("' OR 1=1 --", "'; DROP TABLE accounts; --", '" UNION SELECT password FROM accounts --'),
    *(
        "{{7411*7}}",
        "{% raw %}",
        "${7411*7}",
        "<script>alert(1)</script>",
        '"><img src=x onerror=a>',
    ),
    *("$(touch /tmp/x)", "`id`", "; cat /etc/passwd", "../../etc/passwd", "%s%n", "\\u0000"),
    *("__import__('os').system('id')", "lambda: 0", "().__class__", "y ~ t | x", "a" * 201),
    *(list(range(300)), {"a": 1, "b": "x > 1"}, {str(k): k for k in range(250)}, [1e400]),
)
_PAGES = (
    *("/", "/ask", "/dataset", "/tokens", "/queue", "/people", "/ledger", "/events", "/export"),
    *("/password", "/sign-in", "/sign-out", "/style.css", "/healthz", "/metrics", "/requests/{id}"),
    *("/api/datasets", _DATASET, f"{_DATASET}/budget", f"{_DATASET}/requests", "/api/requests"),
    *("/api/requests/{id}", "/api/requests/{id}?wait=0", "/requests/{id}/table.docx", "/nothing"),
    *("/requests/{id}/result.json", "/requests/{id}?plan=yes", "/api/nothing", "/api/datasets/x"),
)
_METHODS = ("GET", "POST", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "FOO")
_HEADS = (
    *("Host: [", "Host: a b", "Host: ", "Host: evil.example:99999", "Host: \x7f", "Host: é[::1"),
    *("Cookie: office=", "Cookie: office=é; office=b; =; ;;", "Cookie: " + "a=b;" * 500),
    *("Authorization: Bearer", "Authorization: Basic YTpi", "Authorization: Bearer é \ud800"),
    *("Content-Type: text/plain; charset=utf-16", "Content-Type: multipart/form-data", "Accept: x"),
    *("Content-Encoding: gzip", "Content-Length: -1", "Content-Length: 99999999999999999999"),
    *("Content-Length: 5", "Transfer-Encoding: chunked", "Transfer-Encoding: gzip, chunked", "X"),
    *("X-Forwarded-For: 127.0.0.1", "X-Forwarded-Proto: https", "Forwarded: for=127.0.0.1"),
    *("X-HTTP-Method-Override: DELETE", "Range: bytes=0-5", "Expect: 100-continue", "a: \x00"),
    *("Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: x", "If-None-Match: *"),
    *("Origin: https://evil.example", "X-Long: " + "x" * 20_000, "Accept-Encoding: gzip;q=nan"),
)


def _asked(chance: random.Random) -> dict[str, Any]:
    """A question that may well be answered."""
    grammar, call = Grammar(chance), chance.choice(["dp_att", "dp_atc", *CALLS, *["dp_ate"] * 5])
    formula, options = grammar.formula(), {}
    if chance.random() < 0.9:
        right = chance.choice(["", " | x", " | x + g", " | z + cut(x, [0, 1, 2]) + flag"])
        formula = f"{chance.choice(['y', '`y|2`', 'I(y > 0.5)'])} ~ {chance.choice(['t', 'arm'])}"
        formula += right
    if call == "dp_ate":
        named = ("auto", "diff_in_means", "private_ipw", "private_psm", "one_step")
        options["method"] = chance.choice(named)
    if chance.random() < 0.3:
        options |= chance.choice(
            [{"by": "g"}, {"subset": "x > 1"}, {"design": "randomised"}, {"by": {"a": "z < 2"}}]
        )
    options |= {
        "dp_did": {"before": "`y|2`" if chance.random() < 0.5 else "y|2"},
        "dp_late": {"instrument": "treat|ed"},
        "dp_rate": {"offset": "x"},
        "dp_survival": {"horizon": 3.0},
        "dp_cate": {"release": "groups", "by": "g"},
    }.get(call, {})
    if call == "dp_survival":
        formula = "Surv(x, flag) ~ t | z"
    if call == "dp_ordinal":
        formula = "g ~ t | x"
    epsilon = round(chance.choice([0.01, 0.5, 1, 2, 2.9, 3.5]) * (1 + chance.random() / 1e3), 9)
    delta = chance.choice([0, 0, 1e-9, 1e-12])
    return {"call": call, "formula": formula, "epsilon": epsilon, "delta": delta} | {
        "options": options
    }


def _spoilt(chance: random.Random, asked: dict[str, Any]) -> dict[str, Any]:
    """A question with some faults."""
    for _ in range(chance.choice([1, 1, 2, 3])):
        kind, odd = chance.randrange(7), chance.choice(ODD)
        if kind == 0:
            asked[chance.choice([*asked, "seed", "request", "extra", ""])] = odd
        elif kind == 1 and asked:
            del asked[chance.choice([*asked])]
        elif kind in (2, 3):
            names = ["method", "by", "subset", "bins", "quantiles", "horizon", "seed", "data"]
            names += ["level", "arms", "design", "clip", "folds", "at", "contrasts", "interactive"]
            names += ["instrument", "before", "offset", "subgroups", "path", "ledger", "Ω", ""]
            options = asked.get("options")
            if isinstance(options, dict):
                options[chance.choice(names)] = odd
        elif isinstance(text := asked.get("formula"), str):
            at = chance.randrange(len(text) + 1)
            tokens = ["~", "|", "(", ")", "`", "*", "**9", ":", "note", "C(", "bs(x, df=9)", "\x00"]
            tokens += [
                "🙂",
                " + I(x**",
                "1e999",
                "levels=[",
                "\n",
                "lambda x: x",
                "__class__",
                "''",
            ]
            put = chance.choice([*tokens, str(odd)[:300]])
            asked["formula"] = text[:at] + put + text[at + chance.choice([0, 1, 4]) :]
    return asked


def _junk(chance: random.Random) -> bytes:
    """A body that is no question."""
    right = json.dumps(_asked(chance))
    at = chance.randrange(len(right))
    return chance.choice(
        [
            chance.randbytes(chance.choice([1, 40, 3000])),
            right[:at].encode(),
            right.encode("utf-16"),
            b"\xef\xbb\xbf" + right.encode(),
            (right[:at] + chance.choice('{}[]",:\\\x00é') + right[at:]).encode(),
            b"[" * chance.choice([10, 900, 30_000]),
            b'{"a":' * 5000 + b"1" + b"}" * 5000,
            b'{"epsilon": ' + b"9" * chance.choice([400, 5000, 60_000]) + b"}",
            b'{"epsilon": 1e999, "call": "dp_ate", "formula": "y ~ t"}',
            b'{"epsilon": NaN, "formula": -Infinity}',
            right.replace('"call"', '"epsilon": 1, "call"', 1).encode(),
            json.dumps(chance.choice(ODD)).encode(),
            b"call=dp_ate&formula=y",
            b"x" * chance.choice([65_537, 200_000]),
            b"\x1f\x8b\x08\x00" + chance.randbytes(60),
            b"",
        ]
    )


def _question(chance: random.Random, here: FuzzedOffice) -> bytes:
    kind, asked = chance.random(), _asked(chance)
    body = json.dumps(asked if kind < 0.12 else _spoilt(chance, asked)).encode()
    body = _junk(chance) if kind > 0.75 else body
    heads = [f"Authorization: Bearer {here.token}", "Content-Type: application/json"]
    return _written("POST", f"{_DATASET}/requests", heads, body)


def _form(chance: random.Random, here: FuzzedOffice) -> bytes:
    """A form of a page, whose session is right, with fields that are not."""
    page = chance.choice(["/ask", "/ask", "/tokens", "/people", "/people", "/requests/{id}"])
    page = chance.choice([page, page, page, "/password", "/sign-out", "/queue"])
    who = "sue" if page in ("/people", "/requests/{id}", "/queue") else "anna"
    session, form = here.signed("victim" if page in ("/sign-out", "/password") else who)
    if chance.random() < 0.1:
        form = chance.choice(["", "x", here.signed("bert")[1], form[:-1], "é"])
    asked = _spoilt(chance, _asked(chance)) if chance.random() < 0.7 else _asked(chance)
    fields = {name: x for name, x in asked.items() if name != "options"}
    fields |= {"options": json.dumps(asked.get("options")), "project": "ageing"}
    fields |= {"do": chance.choice(["send", "send", "plan"])}
    if page != "/ask":
        known = ["account", "change", "password", "project", "member", "no member", "budget"]
        fields = {"do": chance.choice([*known, "revoke", "make", "approve", "refuse", "x"])}
        fields |= {"name": "victim", "project": "births", "role": "researcher", "active": "yes"}
        fields |= {"of": "person", "token": "999", "epsilon": "1", "delta": "0", "days": "1"}
        fields |= {"reason": "no", "label": "l", "password": "p", "new": "p" * 12, "again": "p"}
    for _ in range(chance.choice([0, 1, 2, 4])):
        name = chance.choice([*fields])
        if name not in ("name", "do") or page == "/ask":
            odd = chance.choice(ODD)
            fields[name] = odd if isinstance(odd, str) else json.dumps(odd)
    pairs = {k: str(x).encode("utf-8", "replace") for k, x in fields.items()}
    body = urlencode({"form": form, **pairs}).encode()
    if chance.random() < 0.1:
        body = chance.choice([b"%zz&=&&" + body, chance.randbytes(50), b"a&" * 60, b"=" * 70_000])
    target = page.replace("{id}", here.own)
    return _written("POST", target, [f"Cookie: office={session}"], body)


def _odd_target(chance: random.Random, here: FuzzedOffice) -> str:
    known = (
        here.own
        if chance.random() < 0.6
        else quote(str(chance.choice(ODD))[:300], errors="surrogatepass")
    )
    target = chance.choice(_PAGES).replace("{id}", known)
    if chance.random() < 0.5:
        at = chance.randrange(len(target) + 1)
        odd = ["%00", "..", "//", "%2e%2e/", "%ff", "é", "%c0%af", "?", "#", ";", "*", "%", "\\"]
        odd += [
            "?wait=nan",
            "?wait=-inf",
            "?wait=x",
            "?wait=1e-9",
            "%20",
            "/",
            "x" * 9000,
            "%0d%0a",
        ]
        target = target[:at] + chance.choice(
            [*odd, quote(str(chance.choice(ODD))[:200], errors="surrogatepass")]
        )
    return chance.choice([target] * 20 + [f"http://evil.example{target}", "*", f"{target} x", ""])


def _wire(chance: random.Random, here: FuzzedOffice) -> bytes:
    """A path, a method, headers, a cookie or an encoding that nobody sends."""
    heads = chance.sample(_HEADS, chance.choice([0, 1, 1, 2, 4]))
    if chance.random() < 0.6:
        heads.append(f"Authorization: Bearer {here.token}")
    if chance.random() < 0.6:
        heads.append(f"Cookie: office={here.signed(chance.choice(['anna', 'sue']))[0]}")
    method = chance.choice(["GET", "GET", "GET", *_METHODS])
    body = _junk(chance) if method not in ("GET", "HEAD") or chance.random() < 0.1 else b""
    made = _written(method, _odd_target(chance, here), heads, body, chance.random() < 0.9)
    kind = chance.random()
    if kind < 0.03:
        return made.replace(b"HTTP/1.1", chance.choice([b"HTTP/9.9", b"HTTP/1.0", b"", b"HTCPCP"]))
    if kind < 0.06:
        at = chance.randrange(len(made))
        return made[:at] + chance.choice([b"\r\n", b"\x00", b"\xff", b"\n\n", b" "]) + made[at:]
    return made[: len(made) // 2] if kind < 0.08 else made


def _written(method: str, target: str, heads: Any, body: bytes, sized: bool = True) -> bytes:
    lines = [f"{method} {target} HTTP/1.1", *heads]
    if not any(head.startswith("Host:") for head in heads):
        lines.insert(1, "Host: 127.0.0.1")
    if sized and (body or method == "POST"):
        lines.append(f"Content-Length: {len(body)}")
    text = "\r\n".join([*lines, "Connection: close", "", ""])
    return text.encode("utf-8", "surrogatepass") + body


def _mistaken(chance: random.Random, text: str) -> str:
    """A text that is like another one, and is another one."""
    at = chance.randrange(max(len(text), 1))
    tries = [text[:at], text[:at] + chance.choice("aB0-_") + text[at + 1 :], text[::-1], text + "a"]
    tries += [
        text.swapcase(),
        text.lower(),
        f"{text}%00",
        f"{text}\u200b",
        f"{text}'--",
        "a" + text,
    ]
    tries += [str(chance.choice(ODD)).replace("\n", " ").replace("\x00", "")[:5000], ""]
    found = chance.choice(tries)
    return found if found.strip() != text else "x"


def _entrance(chance: random.Random, here: FuzzedOffice) -> bytes:
    """A name and a password, a token or a session, of which something is wrong."""
    kind = chance.randrange(4)
    wrong_tokens = [here.revoked, here.session, _mistaken(chance, here.token)]
    if kind == 0:
        schemes = ["Bearer", "bearer", "Basic", "Token", "Bearer  Bearer", "", "Bearer:"]
        given = f"{chance.choice(schemes)} {chance.choice(wrong_tokens)}"
        if chance.random() < 0.1:
            given = f"Basic {here.token}"
        target = chance.choice([x for x in _PAGES if x.startswith("/api/")]).replace(
            "{id}", here.own
        )
        return _written(chance.choice(["GET", "POST"]), target, [f"Authorization: {given}"], b"")
    if kind == 1:
        given = chance.choice([here.token, here.revoked, _mistaken(chance, here.session)])
        name = chance.choice(["office", "office", "__Host-office", "Office", '"office"'])
        name, given = (name, here.session) if name == "Office" else (name, given)
        pages = [
            x
            for x in _PAGES
            if not x.startswith(("/api", "/health", "/style", "/sign-in", "/metrics"))
        ]
        target = chance.choice(pages).replace("{id}", here.own)
        return _written("GET", target, [f"Cookie: {name}={given}"], b"")
    page = here.send("GET", "/sign-in")
    cookie = re.search(r"set-cookie: office=([^;]+)", page.head)[1]  # type: ignore[index]
    form = FORM.search(page.body)[1]  # type: ignore[index]
    name = chance.choice(
        ["anna", "sue", "gone", "victim", "root", "admin", str(chance.choice(ODD))]
    )
    password = _mistaken(chance, PASSWORD)
    if chance.random() < 0.3:
        name = chance.choice(["gone", "ANNA", "anna\x00", "sue'--", "anna\u200b", "\u0430nna", "%"])
        password = PASSWORD
    elif chance.random() < 0.2:
        cookie = _mistaken(chance, cookie)
        name, password = "anna", PASSWORD
    elif chance.random() < 0.2:
        form = chance.choice([form[:-5], form[::-1], f"x{form}", "", here.signed("sue")[1]])
        name, password = "anna", PASSWORD
    fields = {"form": form, "name": name, "password": password}
    pairs = {k: x.encode("utf-8", "replace") for k, x in fields.items()}
    return _written("POST", "/sign-in", [f"Cookie: office={cookie}"], urlencode(pairs).encode())


def request(number: int, here: FuzzedOffice, entrance: bool) -> tuple[bytes, float]:
    """The request of a number, and the patience: the same, but for the secrets of an office."""
    chance = random.Random(number)
    if entrance:
        return _entrance(chance, here), 60.0
    make = chance.choices([_question, _form, _wire], [5, 3, 3])[0]
    return make(chance, here), 0.5 if make is _wire else 60.0


# --- what came of it ----------------------------------------------------------------------------

_FOR_ALL = (b"/healthz", b"/style.css", b"/metrics")
_MARKUP = re.compile(r"<script|<img|onerror=a>(?!&)|51877", re.IGNORECASE)


def outcome(here: FuzzedOffice, number: int) -> Outcome:
    """Send the request of a number, and judge what came of it."""
    entrance = number >= FORMULAS + FRAMES + REQUESTS
    sent, patience = request(number, here, entrance)
    before = here.sessions()
    here.logged()
    replies = [here.exchange(sent, patience)]
    end, wrong = _end(replies[0], sent)
    let_in = replies[0].status == 200 and not sent.split(b" ")[1].startswith(_FOR_ALL)
    if entrance and (let_in or here.sessions() != before):
        end, wrong = "somebody was let in", True
    if not wrong and not entrance and here.workers and '"queued"' in replies[0].body:
        end, wrong = _followed(here, replies)
    log = here.logged()
    told = "\n".join([*(reply.whole[:4000] for reply in replies), log])
    if found := leaked(replies, log):
        end, wrong, told = "a value was sent or logged", True, f"{told}\n{found}"
    for line in log.splitlines():
        about = json.loads(line)
        if about["level"] in ("ERROR", "CRITICAL") or "error" in about or "died" in about["event"]:
            end, wrong, told = "something not foreseen", True, f"{told}\n{line}"
    return Outcome(number, sent[:3000].decode("utf-8", "replace"), end, told, not wrong)


def _end(reply: Reply, sent: bytes) -> tuple[str, bool]:
    """How a request ended, and whether that is wrong."""
    head, body = reply.head.lower(), reply.body
    if "x-request-id" not in head:  # it did not come as far as the office
        return "no request of HTTP", reply.status not in (0, 400)
    if reply.status >= 500:
        return "an error of the server", True
    if "content-security-policy" not in head or "no-store" not in head:
        return "an answer without its headers", True
    if "text/html" in head and _MARKUP.search(body):
        return "markup was let in", True
    if reply.status < 400:
        return "answered", False
    if sent.startswith(b"HEAD"):
        return "refused with a sentence", False
    if "application/json" in head:
        said = json.loads(body)
        right = set(said) == {"error"} and 0 < len(said["error"]) <= 2000
    else:
        right = "<h1>" in body
    return "refused with a sentence", not right or "Traceback" in body


def _followed(here: FuzzedOffice, replies: list[Reply]) -> tuple[str, bool]:
    """What was accepted is answered; its page, its files and what it cost are looked at."""
    state = json.loads(replies[0].body)
    asks = [f"Authorization: Bearer {here.token}"]
    until = time.monotonic() + 300
    while state["status"] in ("queued", "running"):
        if time.monotonic() > until:
            return "never answered", True
        replies.append(here.send("GET", f"/api/requests/{state['id']}?wait=5", asks))
        state = json.loads(replies[-1].body)
    cookie = [f"Cookie: office={here.signed('anna')[0]}"]
    pages = [f"/requests/{state['id']}"]
    if state["status"] == "answered":
        pages += [f"{pages[0]}/{x}" for x in ("record.html", "estimates.csv", "table.docx")]
    replies += [here.send("GET", page, cookie) for page in pages]
    if any(reply.status != 200 for reply in replies):
        return "its page cannot be seen", True
    if state["reason"] in (TOO_LONG, DIED) or "could not answer" in state["reason"]:
        return f"paid, {state['reason']}", True
    return f"accepted, then {state['status']}", False


def leaked(replies: list[Reply], log: str) -> list[str]:
    """Planted values: all their digits in what has results, the first of them in all else."""
    results = [reply for reply in replies if '"answered"' in reply.body or reply is not replies[0]]
    others = "\n".join([*(x.whole for x in replies if x not in results), log])
    everything = others + "".join(reply.whole for reply in results)
    plain, whole = (x.replace(".", "") for x in (_NOISE.sub("", others), everything))
    return [x for x in DIGITS if x[:6] in plain or x in whole] + [WORD] * (WORD in everything)


def overspent(here: FuzzedOffice) -> str:
    """Say where the ledger has not what the accepted requests cost."""
    if not here.workers:
        return ""
    rows = here.running.database.rows(sql.select(db.REQUESTS.c.status, db.REQUESTS.c.epsilon))
    paid = sum(row["epsilon"] for row in rows if row["status"] in ("answered", "failed"))
    spent = here.running.desk.budget()["dataset"]["epsilon"]["spent"]
    return "" if abs(paid - spent) < 1e-6 else f"requests cost {paid}, the ledger has {spent}"
