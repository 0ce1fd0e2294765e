"""``dpeffects methods``: what there is, and one method in detail."""

from __future__ import annotations

import argparse
import textwrap
from dataclasses import fields
from typing import Any

from dpeffects.commands.shared import Command, check_files, output_arguments, put
from dpeffects.effects import methods
from dpeffects.estimators import conditional_methods, registry
from dpeffects.estimators.spec import MethodSpec
from dpeffects.results.export import plain


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("method", nargs="?", help="describe this one: options, defaults, shares")
    output_arguments(parser, ("text", "json"), level=False)


def run(given: argparse.Namespace) -> None:
    """List the methods, or describe one."""
    import json

    check_files(given, given.out)
    described = methods(given.method)  # refuses a name that is not there
    if given.format == "json" or (given.out or "").lower().endswith(".json"):
        specs = [*registry().values(), *conditional_methods().values()]
        found = [_facts(spec) for spec in specs if given.method in (None, spec.name)]
        text = json.dumps(found[0] if len(found) == 1 else found, indent=2)
    else:
        text = _table() if given.method is None else _wrapped_all(str(described))
    put(given, text, "methods")


def _table() -> str:
    from tabulate import tabulate

    frame = methods()
    table = tabulate(frame, headers="keys", showindex=False)  # type: ignore[arg-type]
    return f"{table}\n\nThe first level is the default. dpeffects methods NAME describes one."


def _wrapped_all(text: str) -> str:
    return "\n\n\n".join(_wrapped(one) for one in text.split("\n\n\n"))


def _wrapped(text: str) -> str:
    """Title, facts and options keep their lines; the paragraphs after them are filled."""
    title, facts, options, *paragraphs = text.split("\n\n")
    blocks = [_wrapped_lines(title, 0), _wrapped_lines(facts, 11), options]
    return "\n\n".join([*blocks, *(textwrap.fill(" ".join(p.split()), 80) for p in paragraphs)])


def _wrapped_lines(block: str, indent: int) -> str:
    lines = (textwrap.wrap(line, 80, subsequent_indent=" " * indent) for line in block.splitlines())
    return "\n".join(piece for pieces in lines for piece in pieces)


def _facts(spec: MethodSpec) -> dict[str, Any]:
    made = spec.options()
    return {
        "method": spec.name,
        "title": spec.title,
        "about": spec.about,
        "estimands": list(spec.estimands),
        "levels": list(spec.levels),
        "guarantee": spec.guarantee,
        "covariates": spec.uses_covariates,
        "needs_delta": spec.needs_delta,
        "shares": {level: plain(spec.shares(level, made)) for level in spec.levels},
        "options": {f.name: plain(getattr(made, f.name)) for f in fields(made) if f.init},
        "citation": spec.citation,
    }


COMMAND = Command(
    "methods",
    "list the methods, or describe one with its options and defaults",
    arguments,
    run,
    "  dpeffects methods\n  dpeffects methods private_psm\n  dpeffects methods --format json\n",
)
