"""The federation with real processes on loopback: faults, keys, TLS, and code from the centre."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import sys
import threading
from argparse import Namespace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from dpeffects.services.federation import flower
from dpeffects.services.sites import SiteRelease

pytest.importorskip("flwr", reason='needs pip install "dpeffects[federation]"')
httpx = pytest.importorskip("httpx")

from dpeffects.services.federation import demo, keys, node, operate  # noqa: E402
from dpeffects.services.gate.policy import Policy  # noqa: E402

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not hasattr(os, "killpg"), reason="needs process groups"),
]


def read_round(folder, number=1):
    return json.loads((folder / "centre" / f"round-{number}" / "round.json").read_text())


def spent(folder, site):
    return float(Policy.read(folder / site / "policy.toml").store().spent[0])


def processes_of(folder):
    """Command lines, of processes that still run, that name the folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(folder) in text and int(path.parts[2]) != os.getpid():
            found.append(text)
    return found


def test_a_killed_node_and_a_site_that_refuses(tmp_path):
    """The round ends with a table that says so, and the third site's answer."""
    command = [
        sys.executable,
        "-m",
        "dpeffects.services.federation.demo",
        "--folder",
        str(tmp_path),
    ]
    command += ["--kill", "west", "--refuse", "south", "--deadline", "60"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stdout + done.stderr
    ended = read_round(tmp_path)
    assert [SiteRelease.from_dict(r).site for r in ended["releases"].values()] == ["north"]
    assert ended["left_out"]["south"].startswith("refused: this site does not allow the method")
    assert ended["left_out"]["west"].startswith(("late", "down"))
    assert "Average treatment effect (ATE) of 1 site" in done.stdout
    assert "Receiving: query" in (tmp_path / "west" / "node.log").read_text()  # killed in mid-round
    assert (spent(tmp_path, "north"), spent(tmp_path, "south")) == (1.0, 0.0)
    assert processes_of(tmp_path) == []


SUPERNODE = """#!{python}
import http.server, sys
class Answer(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.send_response(200)
        self.send_header("content-type", "application/protobuf")
        self.send_header("content-length", "0")
        self.end_headers()
port = int(sys.argv[sys.argv.index("--port") + 1])
with http.server.HTTPServer(("127.0.0.1", port), Answer) as server:
    server.handle_request()
sys.exit(7)
"""


def test_a_port_that_another_program_takes(tmp_path, monkeypatch):
    """A port that was free when it was chosen is taken when the SuperNode starts: a next one is."""
    script = tmp_path / "supernode"
    script.write_text(SUPERNODE.format(python=sys.executable))
    script.chmod(0o700)
    given = dict.fromkeys(("root_certificates", "key", "policy"), tmp_path)
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        ports = iter([[other.server_port], flower.free_ports(1)])
        monkeypatch.setattr(flower, "free_ports", lambda count: next(ports))
        monkeypatch.setattr(flower, "program", lambda name: str(script))
        assert node._run(Namespace(superlink="127.0.0.1:1", **given), tmp_path) == 7
        other.shutdown()
    assert next(ports, None) is None


def test_keys_transport_code_and_asking_again(tmp_path):
    with demo.federation(tmp_path) as running:
        running.ask(tmp_path / "centre" / "round-1", deadline=600.0)
        check_the_gate(running)
        check_an_unregistered_key(running)
        app = foreign_app(tmp_path)
        running.ask(tmp_path / "centre" / "round-2", deadline=600.0, app=app)
    first, second = read_round(tmp_path, 1), read_round(tmp_path, 2)
    assert first["left_out"] == {}
    assert second["releases"] == first["releases"]  # the same request id: nothing new was drawn
    assert [spent(tmp_path, site) for site in demo.PARTS] == [1.0, 1.0, 0.5]
    assert not (tmp_path / "run-by-a-site").exists()


def check_the_gate(running):
    """Only TLS, only the calls of SuperNodes, only with a registered key."""
    trusted = ssl.create_default_context(cafile=running.folder / "centre" / "ca.crt")
    address = f"127.0.0.1:{running.port}"
    with pytest.raises(httpx.TransportError):
        httpx.post(f"http://{address}/v1/fleet/pull-messages")
    with pytest.raises(httpx.ConnectError, match="certificate"):
        httpx.post(f"https://{address}/v1/fleet/pull-messages")
    heads = {"content-type": "application/protobuf"}
    for path, status in {
        "control/list-runs": 404,
        "control/register-node": 404,
        "runtime/acquire-task": 404,
        "fleet/register-node": 404,
        "fleet/..%2fcontrol%2flist-runs": 404,
        "fleet/pull-messages": 401,
    }.items():
        answer = httpx.post(f"https://{address}/v1/{path}", verify=trusted, headers=heads)
        assert answer.status_code == status, path


def check_an_unregistered_key(running):
    private, _ = keys.make_site_key(running.folder / "stranger", "stranger")
    command = [flower.program("flower-supernode"), "--superlink", f"127.0.0.1:{running.port}"]
    command += ["--root-certificates", str(running.folder / "centre" / "ca.crt")]
    command += ["--auth-supernode-private-key", str(private), "--isolation", "process"]
    command += ["--port", str(flower.free_ports(1)[0]), "--max-retries", "1"]
    home = running.folder / "stranger" / "home"
    done = subprocess.run(
        command, env=flower.environment_in(home), capture_output=True, text=True, timeout=6000
    )
    assert done.returncode != 0
    assert "SuperNode ID" not in done.stdout + done.stderr
    assert "Failed to initialize the connection" in done.stdout + done.stderr


def foreign_app(folder):
    """The app with code for the sites in it: a centre that wants to look at the data."""
    app = folder / "foreign"
    app.mkdir()
    text = (operate.APP / "pyproject.toml").read_text()
    own = "dpeffects.services.federation.client_app:app"
    assert own in text
    (app / "pyproject.toml").write_text(text.replace(own, "spy:app"))
    mark = str(folder / "run-by-a-site")
    (app / "spy.py").write_text(
        "from pathlib import Path\nfrom flwr.clientapp import ClientApp\n"
        f"Path({mark!r}).write_text('seen')\napp = ClientApp()\n"
    )
    return app


def test_telemetry_and_update_checks_are_off(tmp_path):
    code = (
        "import urllib.request, requests\n"
        "def stop(*a, **k): raise SystemExit('a call to the outside')\n"
        "urllib.request.urlopen = requests.post = stop\n"
        "from flwr.supercore.telemetry import EventType, create_event\n"
        "from flwr.supercore.update_check import warn_if_flwr_update_available\n"
        "warn_if_flwr_update_available('flower-superlink')\n"
        "print(create_event(EventType.PING, None))"
    )
    command = [sys.executable, "-c", code]
    quiet = flower.environment_in(tmp_path)
    done = subprocess.run(command, env=quiet, capture_output=True, text=True, timeout=600)
    assert (done.stdout.strip(), done.returncode) == ("disabled", 0)
    loud = {k: v for k, v in quiet.items() if k not in flower.QUIET}
    done = subprocess.run(command, env=loud, capture_output=True, text=True, timeout=600)
    assert "a call to the outside" in done.stderr  # the test can fail
