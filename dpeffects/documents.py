"""Documents as files and texts: bounded, strict JSON, with a checksum of one canonical text.

A `Document` is a dataclass whose fields are written as JSON, and read by their types (`typed`).
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, Self

from dpeffects import file_output
from dpeffects.errors import DataError, DPEffectsError, OptionError, ReleaseError, refusal
from dpeffects.type_checks import FieldError, kind, quoted

MOST_BYTES = 100_000_000
VERSION = 1
"""Of all formats: none was published before."""


def canonical(document: Mapping[str, Any]) -> bytes:
    """Return the one text of a document: keys sorted, no spaces, ASCII.

    Examples
    --------
    >>> canonical({"b": [1.0, "é"], "a": None})
    b'{"a":null,"b":[1.0,"\\\\u00e9"]}'
    """
    return written(document).encode("ascii")


written = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), allow_nan=False, check_circular=False
).encode
"""The one text of a value: keys sorted, no spaces, ASCII."""


_ASIDE = ("checksum", "signature")
"""Fields that are no part of what a checksum is of."""


def checksum(document: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a document without its checksum and signature."""
    return _digest(canonical({k: v for k, v in document.items() if k not in _ASIDE}))


def _digest(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


def fits(document: Mapping[str, Any], text: str = "") -> bool:
    """True if a document that was read has the checksum of what it holds.

    It may be that of the ``text`` itself that was read, which is canonical as it was written.
    """
    told = document.get("checksum")
    try:
        for name in _ASIDE:
            if name in document:
                text = text.replace(f'"{name}":{written(document[name])},', "", 1)
        return told == _digest(text.strip().encode()) or told == checksum(document)
    except (TypeError, ValueError, RecursionError):  # such as 1e999, which no document holds
        return False


def refuse_twins(sent: Mapping[str, Iterable[float]]) -> None:
    """Refuse one release that came from two sites, by its noisy numbers, whoever signed it.

    Noise does not come out the same twice. Only a few counts may: fewer than four whole numbers
    are not compared.
    """
    first: dict[tuple[float, ...], str] = {}
    for site, numbers in sent.items():
        own = tuple(map(float, numbers))
        if len(own) < 4 and all(map(float.is_integer, own)):
            continue
        if first.setdefault(own, site) != site:
            raise ReleaseError(f"the sites {first[own]!r} and {site!r} sent the same release")


def read(
    path: str | os.PathLike[str], most: int = MOST_BYTES, error: type[Exception] = DataError
) -> bytes:
    """Read a regular file of at most ``most`` bytes: a device or a pipe might never end.

    Whatever is wrong with it is one sentence, for the person who named it.
    """
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        file = os.open(path, flags)
        try:
            about = os.fstat(file)
            if not stat.S_ISREG(about.st_mode):
                raise ValueError("it is not a regular file")
            text = os.read(file, min(about.st_size, most) + 1)
            while len(text) <= most and (more := os.read(file, 2**16)):
                text += more
        finally:
            os.close(file)
        if len(text) > most:
            raise ValueError(f"it is larger than {most} bytes")
    except (OSError, TypeError, ValueError) as reason:
        why = getattr(reason, "strerror", "") or str(reason)
        raise error(f"{path} cannot be read: {why}") from None
    return text


def holds(path: str | os.PathLike[str], form: str) -> bool:
    """True if a file is a document of this format: an earlier one of the same kind."""
    with suppress(DataError, FieldError):
        document = parse_json(read(path))
        return isinstance(document, dict) and document.get("format") == form
    return False


def parse_json(text: str | bytes) -> Any:
    """Read JSON strictly: no name twice, no NaN or infinity."""
    if isinstance(text, str) and text.startswith("\ufeff"):
        raise FieldError("this is not valid JSON: it begins with a byte order mark")
    try:
        return STRICT.decode(text) if isinstance(text, str) else json.loads(text, **_HOOKS)
    except FieldError:
        raise
    except RecursionError:
        raise FieldError("this is not valid JSON: it is nested too deeply") from None
    except (ValueError, TypeError) as error:
        raise FieldError(f"this is not valid JSON: {str(error).splitlines()[0]}") from None


def _no_name_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        name, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise FieldError(f"the field {quoted(name)} is given twice")
    return found


def _no_constant(name: str) -> Any:
    raise FieldError(f"{name} is not a finite number")


_HOOKS: dict[str, Any] = {"object_pairs_hook": _no_name_twice, "parse_constant": _no_constant}
STRICT = json.JSONDecoder(**_HOOKS)
"""It refuses names that stand twice, NaN and infinity."""


# --- what all documents share -----------------------------------------------------------------


class Document:
    """A dataclass that is written as JSON and read from it.

    What is wrong is an ``ERROR``, whose words begin with what it is ``CALLED``.
    """

    __slots__ = ()
    ERROR: ClassVar[type[DPEffectsError]] = DataError
    CALLED: ClassVar[str] = ""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        raise NotImplementedError

    def to_json(self, indent: int | None = None) -> str:
        """Return `to_dict` as JSON text: the canonical one, if it is not indented."""
        if indent is None:
            return written(self.to_dict())
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read JSON text strictly: no name twice, no NaN or infinity."""
        raise NotImplementedError


class FileDocument(Document):
    """A document in a file, `sealed` under the name of its format: changes since are noticed."""

    __slots__ = ()
    FORMAT: ClassVar[str]
    MOST_BYTES: ClassVar[int] = MOST_BYTES

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Write a file, and return its path; an earlier one of this kind is replaced.

        Another file is replaced with ``overwrite=True`` only, and a ledger never.
        """
        try:
            ours = overwrite is True or holds(path, self.FORMAT)
            file_output.write(path, self.to_json() + "\n", overwrite=ours)
        except OptionError as error:
            raise self.ERROR(str(error)) from None
        return Path(path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a file; errors name it."""
        content = read(path, cls.MOST_BYTES, cls.ERROR)
        try:
            return cls.from_json(content.decode("utf-8"))
        except UnicodeDecodeError:
            raise cls.ERROR(f"{path} is not a text file") from None
        except cls.ERROR as error:
            raise cls.ERROR(f"{path}: {error}") from None


def sealed(form: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Plain values with their format, its version and a checksum."""
    whole = {"format": form, "version": VERSION, **values}
    return whole | {"checksum": checksum(whole)}


def require_seal(form: str, values: Any) -> None:
    """Refuse what is of another format or version."""
    what = form.removeprefix("dpeffects ")
    if not isinstance(values, Mapping):
        raise FieldError(f"a {what} must be a JSON object, not {kind(values)}")
    told, version = values.get("format"), values.get("version")
    if not isinstance(told, str) or told != form:
        raise FieldError(f"this is not a {what}: format is not {form!r}")
    if type(version) is not int or version != VERSION:
        raise FieldError(refusal("format_version_dpeffects", got=quoted(version), version=VERSION))


def require_unchanged(values: Mapping[str, Any], text: str = "") -> None:
    """Refuse what has not the checksum of what it holds."""
    if not fits(values, text):
        raise FieldError("the checksum does not match: the document was changed after it was made")
