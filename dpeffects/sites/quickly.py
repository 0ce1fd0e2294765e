"""Releases read by the hundred thousand: what many have in common is checked and written once.

What is read here is what `read_fields` reads of the same text. Whatever is wrong with a document,
or only unusual, is left to it, so that there is one place that refuses, and one set of messages.
"""

from __future__ import annotations

import json
import marshal
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from dpeffects import documents
from dpeffects.errors import ReleaseError
from dpeffects.sites import document
from dpeffects.sites.release_fields import (
    RELEASE,
    SIGNATURE,
    Fields,
    arguments,
    fields_of,
    read_fields,
)

_ASIDE = ("checksum", "signature")
_OWN = ("site", "n", "estimate", "variance", "sample", "means", "notes", *_ASIDE)
"""Fields that each site has its own of."""
_COMMON = tuple(name for name in RELEASE if name not in _OWN)
_MOST_KNOWN = 1000


def read_text(text: str | bytes) -> dict[str, Any]:
    """Check a document; return the arguments of the SiteRelease that it holds."""
    found = _read_plain(text) if isinstance(text, str) and "\\" not in text else None
    return read_fields(document.parse(text)) if found is None else found


def _read_plain(text: str) -> dict[str, Any] | None:
    """The same of a text without escapes; None where anything is not as it should be."""
    try:
        values = json.loads(text)
        if type(values) is not dict:
            return None
        about = [values.get(name) for name in _COMMON]
        about.append("signature" in values)
        common = _common(marshal.dumps(about, 2), values)
        if values.keys() != common.names:
            return None
        own = {name: values[name] for name in common.own}
        fields: dict[str, Any] = document.record(own, "", fields=common.own, make=dict)
        written = common.frame % tuple([_written(values[name]) for name in common.places])
        # without escapes each quote begins or ends a text: a name that stands twice has more
        quotes = written.count('"') + common.quotes_aside
        total = "sha256:" + sha256(written.encode("ascii")).hexdigest()
        if text.count('"') != quotes or total != values["checksum"]:
            return None
        return arguments(common.fields | fields)
    except (ReleaseError, ValueError, TypeError, RecursionError):
        return None


@dataclass(frozen=True)
class _Common:
    """What releases have in common: fields that passed their checks, and the rest of their text."""

    names: frozenset[str]
    fields: dict[str, Any]
    own: Fields
    """Checks of the fields that each site has its own of."""
    frame: str
    """The canonical text, with places for those fields,"""
    places: tuple[str, ...]
    """and which stand there."""
    quotes_aside: int
    """Quotes of the fields that the checksum is not of."""


_known: dict[bytes, _Common] = {}


def _common(key: bytes, values: Mapping[str, Any]) -> _Common:
    """What is kept under a key that tells apart all that checks do (1, 1.0 and true)."""
    found = _known.get(key)
    if found is None:
        if len(_known) >= _MOST_KNOWN:
            _known.clear()  # perhaps while another thread reads
        found = _known[key] = _checked(values)
    return found


def _checked(values: Mapping[str, Any]) -> _Common:
    checks = fields_of(values)
    if values.keys() != checks.keys():
        raise ReleaseError("its fields are not those of a release")
    shared = {name: values[name] for name in checks if name not in _OWN}
    fields = {name: check for name, check in checks.items() if name in shared}
    summed = sorted(checks.keys() - set(_ASIDE))
    texts = [
        f'"{name}":' + (_written(shared[name]).replace("%", "%%") if name in shared else "%s")
        for name in summed
    ]
    return _Common(
        names=frozenset(checks),
        fields=document.record(shared, "", fields=fields, make=dict),
        own={name: check for name, check in checks.items() if name not in shared},
        frame="{" + ",".join(texts) + "}",
        places=tuple(name for name in summed if name not in shared),
        quotes_aside=4 + (2 + 4 * len(SIGNATURE) if "signature" in checks else 0),
    )


def _written(value: Any) -> str:
    """The canonical text of a value that was read from JSON."""
    return repr(value) if type(value) in (int, float) else documents.written(value)
