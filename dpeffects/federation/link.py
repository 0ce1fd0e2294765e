"""The centre's link: ``python -m dpeffects.federation.link --port 9443 --certificates folder ...``

A SuperLink serves three interfaces on one port: for sites, for its operator (register a key, start
a run) and for its own processes. Only the first asks for a registered key. So the SuperLink listens
on loopback, and what the sites reach is a gate that passes their calls on and nothing else.
"""

from __future__ import annotations

import argparse
import ssl
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from dpeffects.federation import engine

CALLS = (
    "activate-node",
    "deactivate-node",
    "send-node-heartbeat",
    "pull-messages",
    "push-messages",
    "get-run",
    "get-fab",
    "push-object",
    "pull-object",
    "confirm-message-received",
)
"""What a registered SuperNode calls. Keys are registered by the operator, so that is not here."""

MAX_BODY = 16_000_000
_NOT_PASSED = {"connection", "content-encoding", "content-length", "host", "transfer-encoding"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Start a SuperLink on loopback and the gate that the sites reach."""
    given = _parser().parse_args(arguments)
    engine.stop_on_signal()
    given.state.mkdir(parents=True, exist_ok=True)
    folder = given.certificates
    command = [engine.program("flower-superlink"), "--host", "127.0.0.1"]
    command += ["--port", str(given.superlink_port), "--database", str(given.state / "state.db")]
    command += ["--ssl-ca-certfile", str(folder / "ca.crt")]
    command += ["--ssl-certfile", str(folder / "server.crt")]
    command += ["--ssl-keyfile", str(folder / "server.key")]
    command += ["--enable-supernode-auth", "--disable-runtime-dependency-installation"]
    with engine.running(command, given.state):
        inner = f"https://127.0.0.1:{given.superlink_port}"
        uvicorn.run(
            gate(inner, folder / "ca.crt"),
            host=given.host,
            port=given.port,
            ssl_certfile=folder / "server.crt",
            ssl_keyfile=folder / "server.key",
            log_level="warning",
            server_header=False,
        )
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="dpeffects.federation.link", description=main.__doc__)
    parser.add_argument("--host", default="0.0.0.0", help="where the sites reach the gate")
    parser.add_argument("--port", type=int, default=9443)
    parser.add_argument("--superlink-port", type=int, default=8000, help="on loopback")
    parser.add_argument(
        "--certificates", type=Path, required=True, help="has ca.crt, server.crt and server.key"
    )
    parser.add_argument("--state", type=Path, required=True, help="folder for Flower's state")
    return parser


def gate(inner: str, authority: Path) -> Starlette:
    """Return an application that passes the calls of SuperNodes on, and refuses all others."""
    client = httpx.AsyncClient(
        base_url=inner, verify=ssl.create_default_context(cafile=str(authority)), timeout=60
    )

    async def forward(request: Request) -> Response:
        call = request.path_params["call"]
        if call not in CALLS:
            return PlainTextResponse("not found", 404)
        body = await _body(request)
        if body is None:
            return PlainTextResponse("too large", 413)
        answer = await client.post(f"/v1/fleet/{call}", content=body, headers=_kept(request))
        return Response(answer.content, answer.status_code, _kept(answer))

    return Starlette(routes=[Route("/v1/fleet/{call}", forward, methods=["POST"])])


async def _body(request: Request) -> bytes | None:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY:
            return None
    return bytes(body)


def _kept(message: Any) -> dict[str, str]:
    return {k: v for k, v in message.headers.items() if k.lower() not in _NOT_PASSED}


if __name__ == "__main__":
    sys.exit(main())
