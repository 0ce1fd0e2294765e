"""What the centre's operator does, on the machine of the link: register a site, ask a question.

``python -m dpeffects.services.federation.operate --state folder register north.pub north`` and
``python -m dpeffects.services.federation.operate --state folder ask question.toml``.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from dpeffects import documents
from dpeffects.services.federation import flower

APP = Path(__file__).parent / "app"
_SECONDS = 60.0
_MOST_BYTES = 100_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Register a site's public key, or ask a question and print what came out."""
    parser = argparse.ArgumentParser(prog=__spec__.name, description=main.__doc__)
    parser.add_argument("--state", type=Path, required=True, help="the link's folder")
    tasks = parser.add_subparsers(dest="task", required=True)
    new = tasks.add_parser("register", help="let a site in under a name")
    new.add_argument("key", type=Path, help="the site's public key")
    new.add_argument("site")
    tasks.add_parser("ask", help="run one round").add_argument("question", type=Path)
    args = parser.parse_args(arguments)
    try:
        if args.task == "register":
            print(register(args.state, args.key, args.site), end="")
        else:
            print(ask(args.state, args.question), end="")
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def register(state: Path, key: Path, site: str) -> str:
    """Register a public key under a site's name."""
    documents.read(key, _MOST_BYTES, RuntimeError)  # Flower would wait, or read for ever
    return _flwr(state, ["supernode", "register", str(key), "centre", "--name", site], _SECONDS)


def ask(state: Path, question: Path, seconds: float | None = None, app: Path = APP) -> str:
    """Start a round and return its log when it has ended."""
    documents.read(question, _MOST_BYTES, RuntimeError)
    command = ["run", str(app), "centre", "--run-config", str(question), "--stream"]
    return _flwr(state, command, seconds)


def _flwr(state: Path, arguments: Sequence[str], seconds: float | None) -> str:
    try:
        done = subprocess.run(
            [flower.program("flwr"), *arguments],
            env=flower.environment_in(state),
            timeout=seconds,
            capture_output=True,
            text=True,
        )
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"flwr {arguments[0]} took more than {seconds:g} s") from error
    if done.returncode:
        raise RuntimeError(f"flwr {arguments[0]}:\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


if __name__ == "__main__":
    sys.exit(main())
