"""The centre's link: ``python -m dpeffects.services.federation.link --certificate c.crt ...``

A SuperLink serves three interfaces on one port: for sites, for its operator (register a key, start
a run) and for its own processes. Only the first asks for a registered key. So the SuperLink listens
on loopback, and what the sites reach is a gate that passes their calls on and nothing else.
"""

from __future__ import annotations

import argparse
import json
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

from dpeffects.services.federation import flower
from dpeffects.services.federation.keys import make_certificates

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
_DAYS = 3650
_NOT_PASSED = {"connection", "content-encoding", "content-length", "host", "transfer-encoding"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Start a SuperLink on loopback and the gate that the sites reach."""
    parser = argparse.ArgumentParser(prog=__spec__.name, description=main.__doc__)
    parser.add_argument("--host", default="0.0.0.0", help="where the sites reach the gate")
    parser.add_argument("--port", type=int, default=9443)
    parser.add_argument("--superlink-port", type=int, default=8000, help="on loopback")
    parser.add_argument("--certificate", type=Path, required=True, help="TLS, for the sites")
    parser.add_argument("--key", type=Path, required=True, help="of the certificate")
    parser.add_argument("--state", type=Path, required=True, help="folder for Flower's state")
    args = parser.parse_args(arguments)
    flower.stop_on_signal()
    write_state(args.state, args.superlink_port)
    environment = flower.environment_in(args.state)
    address = f"127.0.0.1:{args.superlink_port}"
    with (
        flower.running(_superlink(args.state, args.superlink_port), environment),
        flower.running(_superexec(args.state, address), environment),
    ):
        app = gate(f"https://{address}", args.state / "loopback" / "ca.crt")
        tls = {"ssl_certfile": args.certificate, "ssl_keyfile": args.key}
        quiet: dict[str, Any] = {"log_level": "warning", "server_header": False}
        uvicorn.run(app, host=args.host, port=args.port, **tls, **quiet)
    return 0


def write_state(state: Path, port: int) -> None:
    """Write what the processes of this machine, and its operator, need to reach the SuperLink."""
    make_certificates(state / "loopback", days=_DAYS)
    flower.write_secret(state / "secret")
    authority = json.dumps(str((state / "loopback" / "ca.crt").resolve()))
    (state / "config.toml").write_text(
        '[superlink]\ndefault = "centre"\n\n[superlink.centre]\n'
        f'address = "127.0.0.1:{port}"\nroot-certificates = {authority}\n',
        encoding="utf-8",
    )


def _superlink(state: Path, port: int) -> list[str]:
    loopback = state / "loopback"
    command = [flower.program("flower-superlink"), "--host", "127.0.0.1", "--port", str(port)]
    command += ["--database", str(state / "state.db")]
    command += ["--ssl-ca-certfile", str(loopback / "ca.crt")]
    command += ["--ssl-certfile", str(loopback / "server.crt")]
    command += ["--ssl-keyfile", str(loopback / "server.key")]
    command += ["--enable-supernode-auth", "--disable-runtime-dependency-installation"]
    command += ["--isolation", "process"]
    return [*command, "--superexec-auth-secret-file", str(state / "secret")]


def _superexec(state: Path, address: str) -> list[str]:
    """The program that starts the ServerApp; it knows the secret, so no other can."""
    command = [flower.program("flower-superexec"), "--runtime-api-address", address]
    command += ["--root-certificates", str(state / "loopback" / "ca.crt")]
    return [*command, "--superexec-auth-secret-file", str(state / "secret")]


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
        try:
            answer = await client.post(f"/v1/fleet/{call}", content=body, headers=_kept(request))
        except httpx.HTTPError:
            return PlainTextResponse("the SuperLink does not answer", 503)
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
