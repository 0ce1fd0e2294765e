"""A federation on this machine: one SuperLink, three SuperNodes, one question.

``python -m dpeffects.services.federation.demo`` splits a bundled trial over three sites with
policies of their own, starts everything with TLS and registered keys, asks, and prints the combined
summary.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpeffects.datasets import load_data
from dpeffects.errors import MissingExtraError
from dpeffects.ledgers import create_ledger
from dpeffects.services.document_checks import toml_document
from dpeffects.services.federation import flower, operate
from dpeffects.services.gate.policy import Policy

Program = subprocess.Popen[bytes]

DATA = "ist"
FORMULA = "stroke_14_days ~ treatment"
METHOD = "diff_in_means"
QUESTION = {"request": "demo-1", "formula": FORMULA, "method": METHOD, "epsilon": 1.0}
PARTS = {"north": range(0, 5), "south": range(5, 8), "west": range(8, 10)}
"""Each site gets the rows whose index ends in one of these digits."""
POLICIES: dict[str, dict[str, Any]] = {
    "north": {"max_epsilon": 2.0, "total_epsilon": 10.0},
    "south": {"max_epsilon": 1.0, "total_epsilon": 4.0},
    "west": {"max_epsilon": 0.5, "total_epsilon": 2.0, "above_maximum": "lower"},
}
_START = 300.0
_MARGIN = 300.0
"""Seconds for a program to start, and beyond the deadlines for a round to end."""
_OURS = "dpeffects-federation-demo"
"""A file in the folder of a demo, which may be used again."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo."""
    parser = argparse.ArgumentParser(prog=__spec__.name, description=main.__doc__)
    parser.add_argument("--kill", choices=PARTS, help="kill a site's node in mid-round")
    parser.add_argument("--refuse", choices=PARTS, help="a site whose policy refuses")
    parser.add_argument("--again", action="store_true", help="ask twice with the same request id")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--deadline", type=float, default=30.0, help="seconds for the answers")
    parser.add_argument("--folder", type=Path, help="keep all files here")
    args = parser.parse_args(arguments)
    flower.stop_on_signal()
    with ExitStack() as stack:
        folder = args.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        try:
            _require_ours(folder)
            flower.program("flower-superlink")
            return _run(args, folder.resolve())
        except (RuntimeError, MissingExtraError) as error:
            print(f"The demo failed: {error}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            return 130


def _require_ours(folder: Path) -> None:
    """Make the folder; one that holds something is used only if an earlier demo made it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()) and not (folder / _OURS).exists():
            raise RuntimeError(f"{folder} is not empty: its data and keys would be overwritten")
        (folder / _OURS).touch()
    except OSError as error:
        raise RuntimeError(f"{folder} cannot be used: {error.strerror}") from None


def _run(args: argparse.Namespace, folder: Path) -> int:
    with federation(folder, refuse=args.refuse) as running:
        for number in range(1, 2 + args.again):
            _say("asking" if number == 1 else "asking again with the same request id")
            output = folder / "centre" / f"round-{number}"
            with running.killing(args.kill):
                running.ask(output, epsilon=args.epsilon, deadline=args.deadline)
            print("\n" + (output / "summary.txt").read_text(), flush=True)
    print("Ledgers of the sites (epsilon spent, and left):")
    for site in PARTS:
        store = Policy.read(folder / site / "policy.toml").store()
        print(f"  {site:<6} {float(store.spent[0]):g}, {store.left[0]:g}")
    return 0


@dataclass(frozen=True)
class Federation:
    """A federation that runs: where its files are, the port of its gate, its nodes by site."""

    folder: Path
    port: int
    nodes: Mapping[str, Program]

    def ask(self, output: Path, *, app: Path = operate.APP, **changes: Any) -> None:
        """Submit a question and wait until the round has ended."""
        deadline = changes.setdefault("deadline", 30.0)
        start = changes.setdefault("start-deadline", _START)
        question = {**QUESTION, **changes, "sites": ",".join(self.nodes), "output": str(output)}
        path = self.folder / "centre" / "question.toml"
        path.write_text(toml_document(question), encoding="utf-8")
        log = operate.ask(self.folder / "centre" / "state", path, start + deadline + _MARGIN, app)
        if not (output / "round.json").exists():
            raise RuntimeError(f"the round did not end well:\n{log}")

    @contextmanager
    def killing(self, site: str | None) -> Iterator[None]:
        """Kill a site's node as soon as it has received a question in the block."""
        if site is None:
            yield
            return
        log, group = self.folder / site / "node.log", self.nodes[site].pid
        seen, over = log.stat().st_size, threading.Event()

        def kill() -> None:
            while not over.wait(0.02):
                if b"Receiving: query" in log.read_bytes()[seen:]:
                    with suppress(ProcessLookupError):
                        os.killpg(group, signal.SIGKILL)
                    return

        thread = threading.Thread(target=kill, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


@contextmanager
def federation(folder: Path, refuse: str | None = None) -> Iterator[Federation]:
    """Run a federation of three sites while the block lasts; all its files are in the folder."""
    from dpeffects.services.federation.keys import make_certificates, make_site_key

    outer, inner = flower.free_ports(2)
    _say("making certificates, keys, data and policies")
    write_sites(folder, refuse)
    make_certificates(folder / "centre")
    for site in PARTS:
        make_site_key(folder / site, site)
    _say("starting the centre's link")
    centre = folder / "centre"
    command = [sys.executable, "-m", "dpeffects.services.federation.link", "--host", "127.0.0.1"]
    command += ["--port", str(outer), "--superlink-port", str(inner)]
    command += ["--certificate", str(centre / "server.crt"), "--key", str(centre / "server.key")]
    command += ["--state", str(centre / "state")]
    with ExitStack() as stack:
        link = stack.enter_context(_program(command, centre / "link.log"))
        _wait_for(link, (inner, outer))
        _say("registering the sites' keys")
        for site in PARTS:
            operate.register(centre / "state", folder / site / f"{site}.pub", site)
        _say("starting three nodes")
        nodes = {site: stack.enter_context(_node(folder, site, outer)) for site in PARTS}
        yield Federation(folder, outer, nodes)


def write_sites(folder: Path, refuse: str | None = None) -> None:
    """Write each site's data and policy."""
    data = load_data(DATA)
    for site, digits in PARTS.items():
        home = folder / site
        home.mkdir(parents=True, exist_ok=True)
        rows = data.frame[[i % 10 in digits for i in range(len(data.frame))]]
        rows.to_csv(home / "data.csv", index=False)
        method = "private_psm" if site == refuse else METHOD
        outcome, treatment = FORMULA.split(" ~ ")
        entries = {
            "site": site,
            "data": "data.csv",
            "ledger": "ledger.sqlite",
            **POLICIES[site],
            "methods": [method],
            "minimum_n": 1000,
            "columns": {"outcome": [outcome], "treatment": [treatment]},
            "bounds": {outcome: {"range": list(data.bounds[outcome])}},
        }
        path = home / "ledger.sqlite"
        if not path.exists():  # once: a ledger that is there stays
            create_ledger(path, site, epsilon=POLICIES[site]["total_epsilon"])
        (home / "policy.toml").write_text(toml_document(entries), encoding="utf-8")


def _node(folder: Path, site: str, port: int) -> AbstractContextManager[Program]:
    """Run a site's node while the block lasts."""
    home = folder / site
    command = [sys.executable, "-m", "dpeffects.services.federation.node"]
    command += ["--policy", str(home / "policy.toml"), "--superlink", f"127.0.0.1:{port}"]
    command += ["--root-certificates", str(folder / "centre" / "ca.crt")]
    command += ["--key", str(home / f"{site}.key")]
    return _program(command, home / "node.log")


def _program(command: Sequence[str], log: Path) -> AbstractContextManager[Program]:
    return flower.running(command, {**os.environ, "TMPDIR": str(log.parent)}, log)


def _wait_for(process: Program, ports: Sequence[int]) -> None:
    end = time.monotonic() + _START
    while not all(_listens(port) for port in ports):
        if process.poll() is not None or time.monotonic() > end:
            raise RuntimeError("the link did not start; see its log (--folder keeps it)")
        time.sleep(0.2)


def _listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def _say(text: str) -> None:
    print(f"- {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
