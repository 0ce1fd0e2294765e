"""What a site sends: JSON with a checksum, and a signature where there is one, read strictly.

A document has the fields of its dataclass, checked by their types, and what these hold by theirs;
docs/site_release.md describes them. What types do not say is in `LIMITS`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Set
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from functools import cache
from typing import Annotated, Any, Self, get_type_hints

import numpy as np

from dpeffects import documents, type_checks
from dpeffects.errors import ReleaseError, refusal
from dpeffects.estimands import AVERAGES
from dpeffects.guarantee import Guarantee, column_of
from dpeffects.inference.estimate import (
    IDENTIFICATIONS,
    ArmMeans,
    ErrorPart,
    Estimate,
    SamplingVariance,
    Unavailable,
)
from dpeffects.inference.joint import JointSums, Margin, StudyColumn
from dpeffects.privacy.charges import Charge
from dpeffects.results.export import WithReasons
from dpeffects.results.result_base import Bound
from dpeffects.services import document_checks
from dpeffects.services.sites.document_cache import parse_alike, remembered
from dpeffects.type_checks import Check, FieldError

KINDS_SENT = ("exact", "asymptotic")
"""Kinds of guarantees that a release may have."""
IDENTIFICATION = document_checks.one_of("", *IDENTIFICATIONS)
_LONGEST_UNIT = 100
_MOST_SAID = 20


def check_site(site: Any, request: Any = "") -> str:
    """Return a name that can stand in a table and be the name of a key file.

    The identifier of the request that the site answers is checked with it, and may be empty.
    """
    with document_checks.refused(ReleaseError):
        document_checks.text_or_none(request, "request")
        return _site(site, "site")


def _site(value: Any, name: str) -> str:
    site = document_checks.text(value, name)
    if site != site.strip() or len(site) > 100:
        raise FieldError("site must have at most 100 characters and no spaces around them")
    return site


def _unit(value: Any, name: str) -> str:
    """Records, outcomes, or all rows of one value of a column, as `rows_of` writes it."""
    if isinstance(value, str) and column_of(value) and len(value) <= _LONGEST_UNIT:
        return document_checks.text(value, name)
    return document_checks.one_of("record", "outcome")(value, name)


def _ends(value: Any, name: str) -> tuple[float, float]:
    ends = type_checks.many(type_checks.number)(value, name)
    if len(ends) != 2 or ends[0] > ends[1]:
        raise FieldError(f"{name} must be a lower and an upper end, or null")
    return ends[0], ends[1]


def _sample(value: Any, name: str) -> dict[str, str]:
    """Who counts, in words, by argument."""
    if not isinstance(value, Mapping) or len(value) > _MOST_SAID:
        raise FieldError(f"{name} must be an object of at most {_MOST_SAID} texts")
    return {
        document_checks.text(key, name): document_checks.text(said, f"{name}.{key}")
        for key, said in value.items()
    }


def _largest(value: Any, name: str) -> float:
    """A bound on a variance; null where there is none."""
    return math.inf if value is None else type_checks.not_negative(value, name)


_sizes = type_checks.many(type_checks.not_negative)
LIMITS: dict[type, dict[str, Check | None]] = {
    SamplingVariance: {"noise_scale": type_checks.not_negative, "largest": _largest},
    ErrorPart: {"variance": type_checks.not_negative},
    ArmMeans: {"possible": type_checks.if_there(_ends)},
    Estimate: {
        "laplace": _sizes,
        "gaussian": type_checks.not_negative,
        "possible": type_checks.if_there(_ends),
        "identification": IDENTIFICATION,
        "warnings": document_checks.text_or_none,
        **dict.fromkeys(("details", "influence", "allowed")),
    },
    Guarantee: {
        "epsilon": type_checks.positive,
        "delta": type_checks.number_in(0.0, 1.0),
        "unit": _unit,
        "kind": document_checks.one_of(*KINDS_SENT),
    },
    Charge: {
        "epsilon": type_checks.not_negative,
        "delta": type_checks.not_negative,
        "sensitivity": _sizes,
        "scale": _sizes,
    },
    StudyColumn: {
        **dict.fromkeys(("variable", "level", "first"), document_checks.text_or_none),
        "missing": document_checks.at_least(-1),
    },
    Margin: {
        "factor": document_checks.text_or_none,
        "levels": type_checks.many(document_checks.text_or_none),
    },
    JointSums: dict.fromkeys(("sites", "site_names", "target")),
}
"""What fields of dataclasses hold, where their types do not say it; those with None are not sent:
they are a centre's, or the site's own."""


_PLAIN = {
    str: document_checks.text,
    float: type_checks.number,
    int: document_checks.at_least(0),
    bool: document_checks.flag,
}


class _Sent(WithReasons):
    """Checks of what a site sends."""

    def fields(self, record: Any) -> dict[str, Check]:
        """The checks of the fields of a dataclass: by its limits, others by their types."""
        hints, limits = get_type_hints(record, include_extras=True), LIMITS.get(record, {})
        names = [f.name for f in fields(record)]
        found = {name: limits[name] if name in limits else self.of(hints[name]) for name in names}
        return {name: check for name, check in found.items() if check}


SENT = _Sent(_PLAIN | {np.ndarray: document_checks.array})


def written(value: Any) -> Any:
    """What is sent of a value, as JSON can hold it."""
    if isinstance(value, Unavailable):
        return {"unavailable": value.reason}
    if is_dataclass(value):
        limits = LIMITS.get(type(value), {})
        names = [f.name for f in fields(value) if limits.get(f.name, type_checks.number)]
        return {name: written(getattr(value, name)) for name in names}
    if isinstance(value, tuple | list):
        return [written(entry) for entry in value]
    if isinstance(value, Mapping):
        return {name: written(entry) for name, entry in value.items()}
    if hasattr(value, "tolist"):  # of numpy
        return value.tolist()
    return None if value == math.inf else value


def one_line(value: Any) -> Any:
    """The same JSON with texts of one line."""
    if isinstance(value, str):
        return " ".join(value.split())
    if isinstance(value, list):
        return [one_line(entry) for entry in value]
    if isinstance(value, dict):
        return {name: one_line(entry) for name, entry in value.items()}
    return value


@dataclass(frozen=True)
class Signature:
    """Who signed a release: the algorithm, the fingerprint of the key, the signature in base64."""

    algorithm: str
    key: str
    value: str


@dataclass(frozen=True, repr=False, kw_only=True, slots=True)
class SiteDocument(documents.FileDocument):
    """A document of a site: written with a checksum, and read with every check."""

    ERROR = ReleaseError

    site: Annotated[str, _site]
    estimand: Annotated[str, document_checks.one_of(*AVERAGES)]
    formula: str
    treatment: str
    n: Annotated[int, document_checks.at_least(1)]
    guarantee: Guarantee
    charges: tuple[Charge, ...] = ()
    bounds: tuple[Bound, ...] = ()
    sample: Annotated[Mapping[str, str], _sample] = field(default_factory=dict)
    request: Annotated[str, document_checks.text_or_none] = ""
    signature: Signature | None = None

    @classmethod
    def of(cls, result: Any, **own: Any) -> Self:
        """Keep what has to be sent of a result, and what is not its own."""
        check_site(own["site"], own["request"])
        names = [f.name for f in fields(cls) if f.name not in own and hasattr(result, f.name)]
        release = cls(**{name: getattr(result, name) for name in names}, **own)
        # a release that cannot be read is not sent
        return cls.from_dict(release._finished(one_line(release._values())))

    def check(self) -> None:
        """Refuse what does not fit together."""

    def _values(self) -> dict[str, Any]:
        named = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "signature"}
        return {name: written(value) for name, value in named.items()}

    def _finished(self, values: dict[str, Any]) -> dict[str, Any]:
        try:
            whole = documents.sealed(self.FORMAT, values)
        except (TypeError, ValueError) as error:
            raise ReleaseError(f"this cannot be written as JSON: {error}") from None
        return whole if self.signature is None else whole | {"signature": asdict(self.signature)}

    def to_dict(self) -> dict[str, Any]:
        """Return the document as plain values."""
        return self._finished(self._values())

    @classmethod
    def from_dict(cls, values: Any) -> Self:
        """Check a document and read it; anything wrong with it is a ReleaseError."""
        try:
            text = documents.written(values)
        except (TypeError, ValueError, RecursionError) as error:
            raise ReleaseError(f"this cannot be written as JSON: {error}") from None
        return cls.from_json(text)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read JSON text strictly; what many sites send alike is read and checked once."""
        try:
            return cls._checked(parse_alike(text), text if isinstance(text, str) else "")
        except FieldError as error:
            raise ReleaseError(str(error)) from None

    @classmethod
    def _checked(cls, values: Any, text: str = "") -> Self:
        documents.require_seal(cls.FORMAT, values)
        document: Any = cls
        checks, needed = _checks(document)
        if len(values) - ("signature" in values) != len(needed) or not values.keys() >= needed:
            type_checks.check_names(
                values, sorted(needed), {*needed, "signature"}, type_checks.WHOLE
            )
        found = {name: check(values[name], name) for name, check in checks.items()}
        if "signature" in values:
            found["signature"] = SENT.of(Signature)(values["signature"], "signature")
        document_checks.text(values["checksum"], "checksum")
        documents.require_unchanged(values, text)
        made = cls(**found)
        made.check()
        return made

    @classmethod
    def read(cls, source: Any) -> Self:
        """Read a release from whatever holds it: the object itself, a dict, or a path."""
        if isinstance(source, cls):
            return source
        if isinstance(source, Mapping):
            return cls.from_dict(source)
        if isinstance(source, str | os.PathLike):
            return cls.load(source)
        raise ReleaseError(refusal("no_release", own=cls.__name__, kind=type(source).__name__))


@cache
def _checks(document: Any) -> tuple[dict[str, Check], Set[str]]:
    """The checks of the fields of a document, and the names that it must have."""
    checks = SENT.fields(document)
    del checks["signature"]  # which need not be there
    alike = ("guarantee", "charges", "bounds")  # nobody can change what is read of these
    checks |= {name: remembered(checks[name]) for name in alike if name in checks}
    return checks, checks.keys() | {"format", "version", "checksum"}


def printable(value: str) -> str:
    """One line of text that any terminal can show.

    Examples
    --------
    >>> printable("no\\nanswer\\x1b[31m")
    'no answer?[31m'
    """
    return "".join(c if c.isprintable() else "?" for c in " ".join(value.split()))
