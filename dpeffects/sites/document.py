"""What a site sends: JSON with a checksum, and a signature where there is one, read strictly."""

from __future__ import annotations

import json
import marshal
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any, ClassVar, Self

from dpeffects import documents, writing
from dpeffects.errors import OptionError, ReleaseError
from dpeffects.typed import WHOLE, Check, FieldError, check_names, kind, quoted, record, text

VERSION = 1
_ABOUT = ("format", "version", "checksum")
Kept = tuple[dict[str, Any], dict[str, str]]
"""Fields that passed their checks, and the canonical text of each."""


@dataclass(frozen=True)
class Signature:
    """Who signed a release: the algorithm, the fingerprint of the key, the signature in base64."""

    algorithm: str
    key: str
    value: str


_signature = record(Signature, {"algorithm": text, "key": text, "value": text})


@contextmanager
def refused() -> Iterator[None]:
    """Whatever is wrong with a document of a site is a ReleaseError."""
    try:
        yield
    except FieldError as error:
        raise ReleaseError(str(error)) from None


def parse(text: str | bytes) -> Any:
    """Read JSON strictly: no key twice, no NaN or infinity."""
    if isinstance(text, str) and text.startswith("\ufeff"):
        raise ReleaseError("this is not JSON: a byte order mark stands before it")
    with refused():
        return documents.parse_json(text)


class Form:
    """The fields of a kind of document, each with its check.

    ``alike`` are groups of fields that many sites send alike: they are checked and written once,
    and kept by bytes that tell apart all that checks do (1, 1.0 and true).
    """

    def __init__(
        self, what: str, checks: Mapping[str, Check], *alike: tuple[str, ...], most: int = 1000
    ) -> None:
        self.what, self.format = what, f"dpeffects {what} release"
        self.checks, self.alike, self._most = dict(checks), alike, most
        self.known: tuple[dict[bytes, Kept], ...] = tuple({} for _ in alike)
        self._own = tuple(name for name in checks if not any(name in names for names in alike))
        self._header = {"format": documents.written(self.format), "version": str(VERSION)}
        self._names = {*_ABOUT, *checks}
        # all but checksum and signature, with a place for the text of each
        named = [f'"{name}":%({name})s' for name in sorted([*checks, *self._header])]
        self._canonical = "{" + ",".join(named) + "}"

    def read(self, values: Any) -> dict[str, Any]:
        """The fields of a document that pass their checks, if they have its checksum."""
        self._check_form(values)
        found, texts = self._checked(self._own, values)
        texts |= self._header
        for names, known in zip(self.alike, self.known, strict=True):
            kept = self._kept(names, known, values)
            found |= kept[0]
            texts |= kept[1]
        if "signature" in values:
            found["signature"] = _signature(values["signature"], "signature")
        content = (self._canonical % texts).encode("ascii")
        if "sha256:" + sha256(content).hexdigest() != text(values["checksum"], "checksum"):
            told = "the document was changed after it was made"
            raise FieldError(f"the checksum does not fit: {told}")
        return found

    def _kept(
        self, names: tuple[str, ...], known: dict[bytes, Kept], values: Mapping[str, Any]
    ) -> Kept:
        """What was read of a group of fields before, or is read now."""
        try:
            key = marshal.dumps([values[name] for name in names], 2)
        except ValueError:  # it was not read from JSON
            return self._checked(names, values)
        found = known.get(key)
        if found is None:
            if len(known) >= self._most:
                known.clear()  # perhaps while another thread reads
            found = known[key] = self._checked(names, values)
        return found

    def _checked(self, names: tuple[str, ...], values: Mapping[str, Any]) -> Kept:
        """Fields that pass their checks, and the canonical text of each."""
        found = {name: self.checks[name](values[name], name) for name in names}
        try:
            return found, {name: documents.written(values[name]) for name in names}
        except TypeError:
            raise FieldError("the release holds objects that JSON does not know") from None

    def _check_form(self, values: Any) -> None:
        if not isinstance(values, Mapping):
            raise FieldError(f"a {self.what} release is an object, not {kind(values)}")
        written, version = values.get("format"), values.get("version")
        if not isinstance(written, str) or written != self.format:
            raise FieldError(f"this is not a {self.what} release: format is not {self.format!r}")
        if type(version) is not int or version != VERSION:
            told = f"version {quoted(version)} of the format is not known"
            raise FieldError(f"{told}; this dpeffects reads {VERSION}")
        if values.keys() - {"signature"} != self._names:
            needed = [*_ABOUT, *self.checks]
            check_names(values, needed, (*needed, "signature"), WHOLE)

    def finished(self, values: dict[str, Any], signature: Signature | None) -> dict[str, Any]:
        """A document with its checksum, and its signature where there is one."""
        whole = {"format": self.format, "version": VERSION}
        whole |= {name: values[name] for name in self.checks}
        try:
            whole["checksum"] = documents.checksum(whole)
        except (TypeError, ValueError) as error:
            raise ReleaseError(f"this cannot be written as JSON: {error}") from None
        return whole if signature is None else whole | {"signature": asdict(signature)}


class Sent:
    """A document of a site: written with a checksum, and read with every check."""

    __slots__ = ()
    FORMAT: ClassVar[str]
    MOST_BYTES: ClassVar[int]
    site: str
    request: str
    signature: Signature | None

    def to_dict(self) -> dict[str, Any]:
        """Return the document as plain values."""
        raise NotImplementedError

    @classmethod
    def from_dict(cls, values: Any) -> Self:
        """Check a document and read it; anything wrong with it is a ReleaseError."""
        raise NotImplementedError

    def to_json(self, indent: int | None = None) -> str:
        """Return the document as JSON text."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False, ensure_ascii=False)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the document to a file; a release that is there is replaced, nothing else is."""
        ours = documents.holds(path, "format", self.FORMAT)
        try:
            writing.write(path, self.to_json() + "\n", overwrite=ours)
        except OptionError as error:
            raise ReleaseError(str(error)) from None

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read JSON text."""
        return cls.from_dict(parse(text))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a file; errors name it."""
        content = documents.read(path, cls.MOST_BYTES, ReleaseError)
        try:
            return cls.from_json(content.decode("utf-8"))
        except UnicodeDecodeError:
            raise ReleaseError(f"{path}: it cannot be read as text") from None
        except ReleaseError as error:
            raise ReleaseError(f"{path}: {error}") from None

    @classmethod
    def read(cls, source: Any) -> Self:
        """Read a release from whatever holds it: the object itself, a dict, or a path."""
        if isinstance(source, cls):
            return source
        if isinstance(source, Mapping):
            return cls.from_dict(source)
        if isinstance(source, str | os.PathLike):
            return cls.load(source)
        kinds = f"a {cls.__name__}, a dict or a path"
        raise ReleaseError(f"a release is {kinds}, not {type(source).__name__}")


def printable(value: str) -> str:
    """One line of text that any terminal can show.

    Examples
    --------
    >>> printable("no\\nanswer\\x1b[31m")
    'no answer?[31m'
    """
    return "".join(c if c.isprintable() else "?" for c in " ".join(value.split()))
