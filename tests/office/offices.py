"""A small office for the tests: 400 records, two researchers in two projects, a steward."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import threading
import time

import httpx
from starlette.testclient import TestClient

from dpeffects.services.office.accounts import Person
from dpeffects.services.office.office_folder import OfficeFolder, make_folder
from dpeffects.services.office.web import make_app
from tests.federation.sites import N, frame

CODEBOOK = """
y = {range = [0, 1], label = "Recovered <b>fully</b>"}
t = {levels = [0, 1]}
x = {range = [0, 10], unit = "years"}
region = {levels = ["N", "S"]}
"""
PASSWORD = "correct horse battery"
FORM = re.compile(r'name="form" value="([^"]+)"')


def make(
    folder,
    *,
    epsilon=2.0,
    delta=0.0,
    anchor=None,
    ledger="",
    data=None,
    codebook=CODEBOOK,
    **settings,
) -> OfficeFolder:
    folder.mkdir(parents=True, exist_ok=True)
    (frame() if data is None else data).to_csv(folder / "data.csv", index=False)
    (folder / "codebook.toml").write_text(codebook)
    settings = {"name": "registry", "title": "The registry", **settings}
    files = folder / "data.csv", folder / "codebook.toml"
    where = {"anchor": anchor, "ledger": ledger}
    return make_folder(folder / "office", *files, epsilon, delta, settings=settings, **where)


class Running:
    """An office without workers: what is asked stays in the queue."""

    def __init__(self, folder, **settings):
        self.folder = make(folder, **settings)
        self.app = make_app(self.folder, 0)
        self.office = self.app.office
        self.office.desk.n = N
        self.accounts, self.desk = self.office.accounts, self.office.desk
        self.database = self.office.database
        for name, role in (("anna", "researcher"), ("bert", "researcher"), ("sue", "steward")):
            self.accounts.add("test", name, role, PASSWORD)
        for name, project in (("anna", "ageing"), ("bert", "births")):
            self.accounts.add_project("test", project)
            self.accounts.set_member("test", name, project)

    def person(self, name) -> Person:
        row = next(one for one in self.accounts.people() if one["name"] == name)
        return Person(row["id"], name, row["role"])

    def ask(self, name="anna", project="ageing", **changes):
        return self.desk.submit(self.person(name), project, asked(**changes))

    def browser(self, name=None, password=PASSWORD, **how) -> httpx.Client:
        client = TestClient(self.app, **{"follow_redirects": True} | how)
        if name is not None:
            sign_in(client, name, password)
        return client

    def script(self, name="anna", project="ageing") -> httpx.Client:
        client = TestClient(self.app, raise_server_exceptions=False)
        token = self.accounts.token("test", name, project)
        client.headers["authorization"] = f"Bearer {token}"
        return client


class Server:
    """A server of an office in a process of its own."""

    def __init__(self, running):
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            address = "{}:{}".format(*unused.getsockname())
        self.address = f"http://{address}"
        command = [sys.executable, "-m", "dpeffects", "office", "serve", str(running.folder.path)]
        self.log = (running.folder.path / "log").open("ab")
        self.process = subprocess.Popen(
            [*command, "--listen", address], stderr=self.log, stdout=self.log
        )

    def ready(self):
        def up():
            try:
                return httpx.get(f"{self.address}/healthz").status_code == 200
            except httpx.TransportError:
                assert self.process.poll() is None, "the server has ended"
                return False

        until(up, 120.0)
        return self

    def end(self, how):
        self.process.send_signal(how)
        code = self.process.wait(60)
        self.log.close()
        return code


def asked(call="dp_ate", formula="y ~ t", epsilon=0.2, delta=0.0, **options):
    options = {"method": "diff_in_means", **options} if call == "dp_ate" else options
    return {
        "call": call,
        "formula": formula,
        "epsilon": epsilon,
        "delta": delta,
        "options": options,
    }


def sign_in(client, name, password=PASSWORD):
    return client.post(
        "/sign-in", data={"name": name, "password": password, "form": form_of(client, "/sign-in")}
    )


def form_of(client, page="/"):
    """What a form of a page holds, so that it can be sent."""
    return FORM.search(client.get(page).text)[1]


def until(done, seconds=60.0):
    """Wait for something, and return it."""
    last = time.monotonic() + seconds
    while not (found := done()):
        assert time.monotonic() < last, "it did not happen"
        time.sleep(0.05)
    return found


def asked_at_once(running: Running, many: int = 8) -> list[str]:
    """What becomes of requests that so many threads send at the same moment."""
    states, barrier = [], threading.Barrier(many)

    def ask(k: int) -> None:
        barrier.wait()
        states.append(running.ask(epsilon=0.1 + k * 1e-9)["status"])

    threads = [threading.Thread(target=ask, args=(k,)) for k in range(many)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(states)
