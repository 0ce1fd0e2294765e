"""A small stand-in of an office's HTTP interface, which draws with a seed.

``python -m tests.office.standin PORT_FILE PID`` serves it on this machine, and writes its port to
the file; it ends with the process of that number.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

import dpeffects as dpe
from dpeffects import documents
from dpeffects.errors import EstimationError
from tests.federation.sites import frame

TOKEN = "a-very-secret-token"
SEED = 7
N = 400
COLUMNS = {
    "y": {"range": [0, 1], "label": "Recovered", "unit": "part"},
    "t": {"range": [0, 1], "whole": True, "label": "New drug"},
    "x": {"range": [0, 10], "whole": True, "unit": "years"},
    "region": {"levels": ["N", "S"], "label": "Region"},
    "time": {"range": [0, 100]},
    "event": {"range": [0, 1], "whole": True},
}
ROLES = {
    "outcome": ["y", "time", "event"],
    "treatment": ["t"],
    "covariates": ["x", "region"],
    "subgroups": ["region"],
}
BOUNDS = {"y": (0, 1), "t": range(2), "x": range(11), "region": ["N", "S"], "time": (0, 100)}
BOUNDS |= {"event": range(2)}
REFUSED, WAITS, FAILS = 9.0, 1.5, 1.25
"""Epsilons that are refused, that a steward approves first, and that give no estimate."""


def data():
    """The rows of the office."""
    made = frame(n=N)
    made["time"] = (made["x"] * 9 + made["y"] * 10).round(3)
    made["event"] = (made["y"] > 0.4).astype(int)
    made["x"] = made["x"].round()
    return dpe.declare(made, BOUNDS)


class StandIn:
    """An office in memory."""

    def __init__(self):
        self.states, self.seen, self.drawn = {}, [], 0
        self.rows = data()

    def answer(self, method, target, headers, body=b""):
        """Return a status and plain values for a request."""
        self.seen.append((method, target, dict(headers), body))
        parts = urlsplit(target)
        path = [unquote(part) for part in parts.path.split("/")[1:]]
        if headers.get("authorization") != f"Bearer {TOKEN}":
            return 401, {"error": "the token is not known, or has expired"}
        if path == ["api", "datasets"]:
            return 200, {"datasets": [{"name": "registry", "title": "A registry", "n": N}]}
        if path == ["api", "datasets", "registry"]:
            about = {"name": "registry", "title": "A registry", "n": N, "columns": COLUMNS}
            return 200, about | {"roles": ROLES, "methods": ["auto"], "level": "sample"}
        if path == ["api", "datasets", "registry", "budget"]:
            amount = {"total": 5.0, "spent": 1.0, "left": 4.0}
            nothing = {"total": 0.0, "spent": 0.0, "left": 0.0}
            whole = {"epsilon": amount, "delta": nothing}
            return 200, {"dataset": whole, "project": None, "person": whole}
        if path == ["api", "datasets", "registry", "requests"] and method == "POST":
            return self.asked(documents.parse_json(body))
        if path == ["api", "requests"]:
            return 200, {"requests": [self.shown(x) for x in reversed(self.states)]}
        if path[:2] == ["api", "requests"] and path[2] in self.states:
            return 200, self.state(path[2], parse_qs(parts.query))
        return 404, {"error": "there is no such page"}

    def asked(self, asked):
        """A request is named by what is asked."""
        name = documents.checksum(asked).removeprefix("sha256:")
        if name not in self.states:
            status = {REFUSED: "refused", WAITS: "waiting"}.get(asked["epsilon"], "queued")
            reason = "epsilon 9 is more than this site's maximum" if status == "refused" else ""
            found = {"id": name, "dataset": "registry", "status": status, "reason": reason}
            found |= {"kind": "", "result": None, "asked": "2026-01-01T00:00:00+00:00"}
            self.states[name] = {**asked, **found}
        return 200, self.shown(name)

    def shown(self, name):
        return self.states[name] | {"result": None}

    def state(self, name, query):
        state = self.states[name]
        if state["status"] == "running":
            self.draw(state)
        if state["status"] == "queued":
            state["status"] = "running"
        return state

    def approve(self, name):
        self.states[name]["status"] = "queued"

    def draw(self, state):
        """Answer a request, once."""
        self.drawn += 1
        call, given = getattr(dpe, state["call"]), dict(state["options"])
        try:
            if state["epsilon"] == FAILS:
                raise EstimationError("no estimate")
            sizes = {name: state[name] for name in ("epsilon", "delta")}
            fit = call(state["formula"], self.rows, **sizes, **given, seed=SEED)
        except EstimationError:
            state |= {"status": "failed", "reason": "the values do not allow an estimate"}
        except dpe.DPEffectsError as error:
            state |= {"status": "refused", "reason": str(error)}
        else:
            state |= {"status": "answered", "kind": type(fit).__name__}
            state["result"] = json.loads(fit.to_json())


def serve(port_file, pid):
    """Serve a stand-in until a process ends."""
    office = StandIn()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            size = int(self.headers.get("content-length") or 0)
            headers = {name.lower(): x for name, x in self.headers.items()}
            found = office.answer(self.command, self.path, headers, self.rfile.read(size))
            text = json.dumps(found[1]).encode()
            self.send_response(found[0])
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_POST = do_GET

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    part = Path(f"{port_file}.part")
    part.write_text(str(server.server_port))
    part.rename(port_file)
    with contextlib.suppress(ProcessLookupError):
        while not os.kill(pid, 0):
            time.sleep(0.2)


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
