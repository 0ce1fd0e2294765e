"""Arguments of a command, derived from the signature and docstring of the function that it calls.

A parameter that a public function gains is an argument of its command at once. Only what differs in
a shell, such as the path of a file in place of an object, is written by hand.
"""

from __future__ import annotations

import argparse
import inspect
import re
import tomllib
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import dpeffects as dpe
from dpeffects.errors import OptionError, texts
from dpeffects.estimands import AVERAGES

Function = Callable[..., Any]
Values = dict[str, Any]


class NamedValues(argparse.Action):
    """Collect NAME=VALUE arguments in a dict; ``const`` is the function that reads a value."""

    def __call__(self, parser: Any, namespace: Any, pair: Any, option_string: Any = None) -> None:
        """Add a pair."""
        name, _, text = (part.strip() for part in pair.partition("="))
        if not name or not text:
            raise argparse.ArgumentError(self, f"it takes {self.metavar}, got {pair!r}")
        pairs = getattr(namespace, self.dest) or {}
        if name in pairs:
            raise argparse.ArgumentError(self, f"{name} is given twice")
        setattr(namespace, self.dest, pairs | {name: self.const(text)})


class WordsOrNamedValues(NamedValues):
    """NAME=VALUE arguments as `NamedValues`; or words: one as it is, several as a list."""

    def __call__(self, parser: Any, namespace: Any, pair: Any, option_string: Any = None) -> None:
        """Add a pair or a word."""
        named, given = _NAMED.match(pair), getattr(namespace, self.dest)
        if given is not None and bool(named) != isinstance(given, dict):
            raise argparse.ArgumentError(self, f"it takes {self.metavar} for all, or for none")
        if named:
            super().__call__(parser, namespace, pair, option_string)
        else:
            several = [given] if isinstance(given, str) else given
            setattr(namespace, self.dest, pair if several is None else [*several, pair])


_NAMED = re.compile(r"[^=<>!~&|()]+=(?!=)")


def toml_value(text: str) -> Any:
    """Read a value as TOML writes it; anything else is a plain word.

    Examples
    --------
    >>> toml_value("3"), toml_value("[1, 2]"), toml_value("round_robin")
    (3, [1, 2], 'round_robin')
    """
    try:
        document = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    return document["value"] if len(document) == 1 else text


_PAIRS: dict[str, Any] = {"action": NamedValues, "const": toml_value, "metavar": "NAME=VALUE"}
IN_A_SHELL: dict[str, dict[str, Any]] = texts("dpeffects.cli", "shell.toml")
_COMMANDS: dict[str, dict[str, Any]] = IN_A_SHELL.pop("commands")
IN_A_SHELL["bounds"]["type"] = str
IN_A_SHELL["budget_split"] |= _PAIRS
IN_A_SHELL["estimand"] = {"choices": list(AVERAGES)}
"""What differs from Python for parameters that several functions share."""


def in_a_shell(command: str, **choices: Iterable[str]) -> dict[str, Any]:
    """Return what differs for a command: its ``skip``, ``changes`` and ``output`` of shell.toml.

    ``choices`` are those of arguments, which Python knows.
    """
    said = _COMMANDS.get(command, {})
    changes = {name: dict(settings) for name, settings in said.get("changes", {}).items()}
    for name, known in choices.items():
        changes.setdefault(name, {})["choices"] = list(known)
    return said | {"changes": changes}


def add_parameters(
    parser: Any, *functions: Function, skip: Iterable[str] = (), **changes: dict[str, Any]
) -> None:
    """Add an argument for each parameter of functions that a command calls.

    Type, default and help are those of the signature and the docstring. What the user does not give
    is None, so that the default of the function applies. ``**options`` of a function is --option.

    Parameters
    ----------
    parser
        Where the arguments are added: a parser, or a group of it.
    *functions
        What the command calls; of a parameter that several have, the first is taken.
    skip
        Parameters that a shell cannot give, or that are added elsewhere.
    **changes
        By parameter, what differs in a shell: arguments of ``add_argument``, and ``flag``.
    """
    texts = {n: text for function in functions[::-1] for n, text in descriptions(function).items()}
    for name, parameter in _parameters(functions).items():
        if name in skip:
            continue
        settings = {"help": texts.get(name, "")} | IN_A_SHELL.get(name, {}) | changes.get(name, {})
        flag = settings.pop("flag", None)
        if "action" not in settings:
            settings = _kind(parameter) | settings
        required = parameter.default is parameter.empty
        placed = required and parameter.kind is not parameter.KEYWORD_ONLY
        if flag is None and (placed or settings.get("nargs") == "?"):
            parser.add_argument(name, **settings)
            continue
        prefix = "--no-" if parameter.default is True else "--"
        if isinstance(parameter.default, str | int | float | tuple) and prefix == "--":
            default = parameter.default
            written = " ".join(map(str, default)) if isinstance(default, tuple) else str(default)
            settings["help"] += f" (default {written})" if written not in ("", "False") else ""
        flag = flag or prefix + name.replace("_", "-")
        parser.add_argument(flag, **{"dest": name, "required": required} | settings)
    signatures = map(inspect.signature, functions)
    if any(x.kind is x.VAR_KEYWORD for each in signatures for x in each.parameters.values()):
        parser.add_argument("--option", **_PAIRS, help="an option of the method")


def values_for(args: argparse.Namespace, *functions: Function) -> dict[str, Any]:
    """Return the arguments of functions: what the user gave, or the defaults, and --option."""
    parameters = _parameters(functions)
    values: dict[str, Any] = dict(getattr(args, "option", None) or {})
    for name in values:
        if name in parameters:
            raise OptionError(f"--option {name}: this is an argument of its own; see --help")
    for name, parameter in parameters.items():
        value = getattr(args, name, None)
        if value is not None or parameter.default is not parameter.empty:
            values[name] = parameter.default if value is None else value
    return values


def _parameters(functions: Iterable[Function]) -> dict[str, inspect.Parameter]:
    named: dict[str, inspect.Parameter] = {}
    for function in functions:
        for name, parameter in inspect.signature(function).parameters.items():
            if parameter.kind is not parameter.VAR_KEYWORD:
                named.setdefault(name, parameter)
    return named


@cache
def descriptions(function: Function) -> dict[str, str]:
    """Return what the docstring of a function says about each parameter: the first sentence.

    Where that is "As in" another function, what the docstring of that one says.

    Examples
    --------
    >>> descriptions(add_parameters)["parser"]
    'Where the arguments are added: a parser, or a group of it'
    """
    document = inspect.getdoc(function) or ""
    _, _, section = document.partition("Parameters\n----------\n")
    entries = re.findall(r"^(\w.*)\n((?: +.*\n?)+)", section.partition("\n\n")[0], re.MULTILINE)
    found = {name: _sentence(text) for names, text in entries for name in names.split(", ")}
    for name, text in found.items():
        other = re.match(r"As in (\w+)", text)
        if other is not None and hasattr(dpe, other[1]):
            found[name] = descriptions(getattr(dpe, other[1])).get(name, text)
    return found


def _sentence(text: str) -> str:
    """The first sentence, without the marks of reStructuredText; argparse doubles percent signs."""
    plain = re.sub(r":\w+:|`", "", " ".join(text.split()))
    return re.split(r"\.(?: |$)", plain)[0].replace("%", "%%")


def _kind(parameter: inspect.Parameter) -> dict[str, Any]:
    """What `argparse` needs to know about a parameter, from its annotation."""
    annotation = str(parameter.annotation)
    if "bool" in annotation:
        if parameter.default is None:
            return {"action": argparse.BooleanOptionalAction}
        return {"action": "store_const", "const": not parameter.default}
    if annotation.startswith("Mapping[str, str]"):
        return _PAIRS | {"const": str}
    if annotation.startswith("Mapping[str, "):
        return dict(_PAIRS)
    if "Mapping[str, str]" in annotation:
        return _PAIRS | {"const": str, "action": WordsOrNamedValues}
    kind = next((kind for kind in (float, int) if kind.__name__ in annotation), str)
    many = "Sequence" in annotation or "Iterable" in annotation
    return {"type": kind, "nargs": "+"} if many else {"type": kind}
