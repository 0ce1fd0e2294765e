"""Documents that many sites send alike: what is the same as before is read and checked once."""

from __future__ import annotations

from json import decoder
from typing import Any

from dpeffects import documents
from dpeffects.type_checks import Check

_MOST_ALIKE, _MOST_NAMES = 100_000, 100
"""Characters and entries that are kept of the text before."""
_name: Any = vars(decoder)["scanstring"]
_last: dict[str, tuple[str, tuple[str, Any]]] = {}
"""The entry after each name, with its text; the first is after no name."""


def parse_alike(text: Any) -> Any:
    """Read JSON strictly; entries that are written as in the text before are the same objects.

    Many sites send the same guarantee, charges and formula. A text with spaces is read as any.
    """
    found: dict[str, Any] = {}
    before = ""
    try:
        at = 0
        while text[at] in ("{" if not at else ","):
            said, (name, value) = _last.get(before, ("", ("", None)))
            end = at + 1 + len(said)
            if not said or not text.startswith(said, at + 1) or text[end] not in ",}":
                name, end = _name(text, text.index('"', at, at + 2) + 1)
                if text[end] != ":":
                    break
                value, end = documents.STRICT.raw_decode(text, end + 1)
                if len(_last) >= _MOST_NAMES:
                    _last.clear()  # perhaps while another thread reads
                if len(before) + end - at < _MOST_ALIKE:
                    _last[before] = text[at + 1 : end], (name, value)
            if name in found:
                break
            found[name], at, before = value, end, name
        if at and text[at:].strip(" \t\n\r") == "}":
            return found
    except (LookupError, TypeError, ValueError, RecursionError):
        pass
    return documents.parse_json(text)


def remembered(check: Check) -> Check:
    """The same check, made once for an object that comes again and again; nobody may change it."""
    last: tuple[Any, Any] = (object(), None)

    def checked(value: Any, name: str) -> Any:
        nonlocal last
        known = last  # another thread may read too
        if value is not known[0]:
            known = last = value, check(value, name)
        return known[1]

    return checked
