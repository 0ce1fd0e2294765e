"""A site's node: ``python -m dpeffects.services.federation.node --policy site.toml ...``

Flower sends the app's code from the centre to the sites and runs it there. Code that the centre
chooses could read everything, so a site must not run it. The SuperNode is therefore started with
process isolation, and this module is the process that takes its tasks: every task goes to the
ClientApp that the site has installed, and the code that came with it is never unpacked.
"""

from __future__ import annotations

import argparse
import json
import logging
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
from flwr.app import Context, Error, Message
from flwr.common.constant import ErrorCode, SubStatus
from flwr.proto.runtime_pb2 import AcquireTaskRequest, SendTaskHeartbeatRequest
from flwr.supercore.constant import TaskType
from flwr.supercore.heartbeat import HeartbeatSender
from flwr.supercore.interceptors import (
    RuntimeTokenHttpInterceptor,
    RuntimeVersionHttpInterceptor,
    SuperExecAuthHttpInterceptor,
)
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message, push_task_output

from dpeffects.errors import DPEffectsError
from dpeffects.services.federation import flower
from dpeffects.services.federation.client_app import app
from dpeffects.services.gate.policy import Policy

_log = logging.getLogger(__name__)
_PAUSE = 0.5
_PORTS = 3
"""How many ports are tried: one that is free may be taken before the SuperNode listens at it."""
_ACQUIRE = frozenset({"/flwr.proto.Runtime/AcquireTask"})


def main(arguments: Sequence[str] | None = None) -> int:
    """Check the site's policy and data, start its SuperNode, and answer until stopped."""
    parser = argparse.ArgumentParser(prog=__spec__.name, description=main.__doc__)
    parser.add_argument("--policy", type=Path, required=True, help="the site's policy file")
    parser.add_argument("--superlink", required=True, help="host:port of the centre")
    parser.add_argument("--root-certificates", type=Path, required=True, help="the centre's CA")
    parser.add_argument("--key", type=Path, required=True, help="the site's private key")
    args = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    flower.stop_on_signal()
    try:
        policy = Policy.read(args.policy)
        policy.check()
        policy.store()
    except DPEffectsError as error:
        print(f"{args.policy}: {error}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="dpeffects-node-") as folder:
        return _run(args, Path(folder))


def _run(args: argparse.Namespace, home: Path) -> int:
    secret = flower.write_secret(home / "secret")
    command = [flower.program("flower-supernode"), "--isolation", "process"]
    command += ["--superlink", args.superlink]
    command += ["--root-certificates", str(args.root_certificates)]
    command += ["--auth-supernode-private-key", str(args.key)]
    command += ["--node-config", f"policy={json.dumps(str(args.policy.resolve()))}"]
    command += ["--superexec-auth-secret-file", str(secret), "--host", "127.0.0.1", "--port"]
    for _ in range(_PORTS):
        (port,) = flower.free_ports(1)
        with flower.running([*command, str(port)], flower.environment_in(home)) as supernode:
            if serve(supernode, f"127.0.0.1:{port}", secret.read_bytes()):
                break
    return supernode.returncode


def serve(supernode: subprocess.Popen[bytes], address: str, secret: bytes) -> bool:
    """Take tasks from the SuperNode, one at a time, for as long as it runs.

    Returns whether it has ever answered: not if another program took its port before it did.
    """
    answered = False
    signed = SuperExecAuthHttpInterceptor(master_secret=secret, protected_methods=_ACQUIRE)
    client = _client(address, "SuperExec", signed)
    request = AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP])
    while supernode.poll() is None:
        time.sleep(_PAUSE)
        try:
            task = client.AcquireTask(request)
            answered = True
            if task.token:
                run_task(address, task.token)
        except httpx.TransportError:
            continue  # the SuperNode is starting or stopping
        except Exception:
            _log.exception("a task was not finished")
    client.close()
    return answered


def run_task(address: str, token: str) -> None:
    """Give one message to the site's own ClientApp and send its reply."""
    client = _client(address, "flwr-clientapp", RuntimeTokenHttpInterceptor(token))
    heartbeat = HeartbeatSender(lambda: _beat(client))
    heartbeat.start()
    try:
        message, context, _, _ = pull_task_input(client)  # the last is the code: not used
        push_message(client, _reply(message, context), context)
        push_task_output(client, context, SubStatus.COMPLETED, "")
    finally:
        heartbeat.stop()
        client.close()


def _reply(message: Message, context: Context) -> Message:
    try:
        return app(message, context)
    except Exception:
        _log.exception("the app did not take a message of type %s", message.metadata.message_type)
        error = Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, "the site's app failed")
        return Message(error, reply_to=message)


def _beat(client: Any) -> bool:
    """Keep a task alive. That its run is over is no reason to stop: the answer is kept."""
    with suppress(httpx.HTTPError):
        client.SendTaskHeartbeat(SendTaskHeartbeatRequest())
    return True


def _client(address: str, component: str, interceptor: Any) -> Any:
    version = RuntimeVersionHttpInterceptor(component_name=component)
    return RuntimeHttpClient.from_server_address(
        address, insecure=True, root_certificates=None, interceptors=[version, interceptor]
    )


if __name__ == "__main__":
    sys.exit(main())
