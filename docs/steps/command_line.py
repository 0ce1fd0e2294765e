"""The page of the command line: what ``--help`` prints, for every command."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from unittest import mock

from dpeffects.cli import main

_HEAD = """# Command line

`dpeffects COMMAND --help` prints what is below. What goes wrong is one line on the
error stream, and exit code 2.
"""


def text() -> str:
    """Return the page in Markdown."""
    return _HEAD + "\n".join(_sections(()))


def _sections(command: tuple[str, ...]) -> Iterator[str]:
    shown = _help(command)
    level = "#" * min(2 + max(len(command) - 1, 0), 3)
    yield f"\n{level} `{' '.join(('dpeffects', *command))}`\n\n```text\n{shown.rstrip()}\n```\n"
    for name in _commands(shown):
        yield from _sections((*command, name))


def _help(command: tuple[str, ...]) -> str:
    printed = io.StringIO()
    with mock.patch.dict(os.environ, {"COLUMNS": "80", "NO_COLOR": "1"}), redirect_stdout(printed):
        main([*command, "--help"])
    return printed.getvalue()


def _commands(shown: str) -> list[str]:
    """Names below the placeholder "command", one a line, indented by four."""
    found = re.search(r"^  command\n((?:    .*\n)+)", shown, re.MULTILINE)
    return re.findall(r"^    (\S+)", found[1], re.MULTILINE) if found else []
