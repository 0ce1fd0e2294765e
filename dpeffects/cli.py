"""The door of the command line: one line on stderr for what can go wrong, and an exit code."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from dpeffects.commands import parser
from dpeffects.errors import DPEffectsError


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    try:
        given = parser().parse_args(argv)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 2
    return _guarded(given)


def _guarded(given: argparse.Namespace) -> int:
    try:
        given.run(given)
        sys.stdout.flush()
    except DPEffectsError as error:
        return _fail(str(error))
    except BrokenPipeError:  # the reader of a pipe left early, as head does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return _fail("interrupted") or 130
    except Exception as error:
        return _fail(f"unexpected {type(error).__name__}: {error}")
    return 0


def _fail(message: str) -> int:
    print(f"dpeffects: {' '.join(message.split())}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
