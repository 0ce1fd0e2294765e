"""What ``dpeffects`` runs: one line on stderr for what can go wrong, and an exit code."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import sys
import traceback
import warnings
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from dpeffects.cli.commands import make_parser, one_line
from dpeffects.errors import BoundsError, DPEffectsError

_PLACES = (
    *("cli.estimates", "cli.free_commands", "cli.ledger_commands"),
    *("services.service_commands", "evidence.evidence_commands", "replication.vignette_commands"),
)
"""Where commands are; one of a wing takes the place of that of the core with its name."""
_MODULES = [import_module(f"dpeffects.{place}") for place in _PLACES]
COMMANDS = tuple({command.name: command for x in _MODULES for command in x.COMMANDS}.values())
ERROR, INTERRUPTED = 2, 130
_ACCEPT = re.compile(r"write (accept_\w+)=True")
"""How Python accepts a guarantee that is not exact; here it is an option."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    if sys.stdout is None:  # closed by the shell: a result would be paid for and lost
        return _fail("standard output is closed")
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a letter that cannot be shown must not cost a result
            stream.reconfigure(errors="replace")
    try:
        args = make_parser(COMMANDS).parse_args(argv)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else ERROR
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("default", UserWarning)
        warnings.showwarning = _warn
        return _run(args)


def _run(args: argparse.Namespace) -> int:
    try:
        code = args.run(args) or 0
        sys.stdout.flush()
    except BoundsError as error:
        return _fail(_with_template(_typed(str(error))))
    except DPEffectsError as error:
        return _fail(_typed(str(error)))
    except BrokenPipeError:  # the reader of a pipe left early, as head does
        _leave_stdout()
        return 0
    except KeyboardInterrupt:
        _fail("interrupted")
        return INTERRUPTED
    except MemoryError:
        return _fail("there is not enough memory")
    except OSError as error:
        _leave_stdout()
        return _fail(f"{error.filename or 'standard output'}: {error.strerror}")
    except Exception as error:  # its message may quote data
        return _fail(f"unexpected {type(error).__name__} at {_place(error)}; please report it")
    return int(code)


def _typed(message: str) -> str:
    """What a message says in Python, as it is typed in a shell."""
    message = _ACCEPT.sub(r"add --option \1=true", message)
    message = message.replace("a range is a tuple: (18, 90)", "a range is {range = [18, 90]}")
    message = _LEVELS.sub(r'"\1" = \2 in the file of --bounds', message)
    for python in _MISSING.findall(message):
        each = (f'--missing "{name}={word}"' for name, word in _WORDS.findall(python))
        message = message.replace(python, " ".join(each))
    return message


_LEVELS = re.compile(r"bounds=\{'([^']+)': (\[[^]]*\])\}")
_MISSING = re.compile(r"missing=\{[^}]*\}")
_WORDS = re.compile(r'"([^"]+)": "(\w+)"')
_SKELETON = re.compile(r'\s+bounds=\{\s*"[^"]*": (?:\(LOWER|\["LEVEL")')


def _with_template(message: str) -> str:
    """Errors about bounds end with Python to paste; here it is a file to fill in."""
    python = _SKELETON.search(message)
    text = message[: python.start()] if python else message
    entries = "entries to the file of --bounds (dpeffects bounds-template DATA starts one)"
    return f"{text.removesuffix('Add').rstrip(' .:')}. Add {entries}" if python else message


def _place(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    inside = [frame for frame in frames if str(Path(__file__).parents[1]) in frame.filename]
    return f"{Path(inside[-1].filename).name}:{inside[-1].lineno}" if inside else "start"


def _warn(message: Warning | str, *_: Any, **__: Any) -> None:
    print(f"dpeffects: warning: {one_line(str(message))}", file=sys.stderr)


def _leave_stdout() -> None:
    """Stop writing to what cannot be written, so that the end of the process is quiet."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(message: str) -> int:
    print(f"dpeffects: {one_line(message)}", file=sys.stderr)
    return ERROR
