"""The fields of a site release, each with its check; docs/site_release.md describes them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from dpeffects.documents import checksum, kind, quoted
from dpeffects.errors import ReleaseError
from dpeffects.estimands import AVERAGES
from dpeffects.guarantee import Guarantee, column_of
from dpeffects.inference.estimate import (
    BASES,
    Estimate,
    Means,
    MeansPart,
    MeansVariance,
    Part,
    SamplingVariance,
    Unavailable,
)
from dpeffects.privacy.charges import Spend
from dpeffects.sites import document
from dpeffects.sites.document import (
    MOST,
    flag,
    if_there,
    many,
    number,
    one_of,
    record,
    shared,
    text,
    whole,
)

FORMAT, VERSION = "dpeffects site release", 1

KINDS_SENT = ("exact", "asymptotic")
"""Kinds of guarantees that a release may have."""

Fields = dict[str, document.Check]

_LONGEST_UNIT = 100
_MOST_SAID = 20
_texts = partial(many, check=text)


@dataclass(frozen=True)
class Signature:
    """Who signed a release: the algorithm, the fingerprint of the key, the signature in base64."""

    algorithm: str
    key: str
    value: str


def check_site(site: Any, name: str = "site") -> str:
    """Return a name that can stand in a table and be the name of a key file."""
    text(site, name)
    if site != site.strip() or len(site) > 100:
        raise ReleaseError("site must have at most 100 characters and no spaces around them")
    return str(site)


def bound_triple(name: str, range: str, source: str) -> tuple[str, str, str]:
    """Name, range in words and source of a bound."""
    return name, range, source


def _not_negative(value: Any, name: str) -> float:
    if type(value) is float and 0.0 <= value <= MOST:  # as most are
        return value
    return number(value, name, least=0.0)


def _positive(value: Any, name: str) -> float:
    if _not_negative(value, name) == 0:
        raise ReleaseError(f"{name} must be positive")
    return value


def _sampling(value: Any, name: str) -> SamplingVariance | Unavailable:
    if _is_object(value) and "unavailable" in value:
        return _unavailable(value, name)
    sampling = _released(value, name)
    if sampling.noise_scale == 0.0:  # only noise can take a released variance below zero
        _not_negative(sampling.value, f"{name}.released")
    return sampling


def _is_object(value: Any) -> bool:
    return type(value) is dict or isinstance(value, Mapping)


def _unit(value: Any, name: str) -> str:
    """Records, outcomes, or all rows of one value of a column, as `rows_of` writes it."""
    if isinstance(value, str) and column_of(value) and len(value) <= _LONGEST_UNIT:
        return text(value, name)
    return one_of(value, name, allowed=("record", "outcome"))


def _largest(value: Any, name: str) -> float:
    return math.inf if value is None else _not_negative(value, name)


_unavailable = partial(
    record, fields={"unavailable": text}, make=lambda unavailable: Unavailable(unavailable)
)
_VARIANCE_RELEASED: Fields = {
    "released": number,
    "noise_scale": _not_negative,
    "largest": _largest,
}
_released = partial(
    record,
    fields=_VARIANCE_RELEASED,
    make=lambda released, **rest: SamplingVariance(released, **rest),
)
GUARANTEE: Fields = {
    "epsilon": _positive,
    "delta": partial(number, least=0.0, most=1.0),
    "unit": _unit,
    "neighbours": text,
    "public": _texts,
    "kind": partial(one_of, allowed=KINDS_SENT),
    "void": _texts,
}
SPEND: Fields = {
    "label": text,
    "share": text,
    "epsilon": _not_negative,
    "delta": _not_negative,
    "mechanism": text,
    "sensitivity": partial(many, check=_not_negative),
    "scale": partial(many, check=_not_negative),
    "claim": whole,
    "alone": flag,
}
BOUND: Fields = {"name": text, "range": text, "source": text}
guarantee_field = partial(shared, check=partial(record, fields=GUARANTEE, make=Guarantee), known={})
spend_field = partial(shared, check=partial(record, fields=SPEND, make=Spend), known={})
bound_field = partial(shared, check=partial(record, fields=BOUND, make=bound_triple), known={})
_NOISE: Fields = {"laplace": partial(many, check=_not_negative), "gaussian": _not_negative}
_PART: Fields = {"name": text, "variance": _not_negative, "noise": flag}
_VARIANCE: Fields = {
    "noise": partial(record, fields=_NOISE, make=dict),
    "sampling": _sampling,
    "parts": partial(many, check=partial(record, fields=_PART, make=Part)),
}
SIGNATURE: Fields = {"algorithm": text, "key": text, "value": text}
signature_field = partial(record, fields=SIGNATURE, make=Signature)


def _possible(value: Any, name: str) -> tuple[float, float] | None:
    if value is None:
        return None
    ends = many(value, name, check=number)
    if len(ends) != 2 or ends[0] > ends[1]:
        raise ReleaseError(f"{name} must be a lower and an upper end, or null")
    return ends[0], ends[1]


def sample_words(value: Any, name: str) -> dict[str, str]:
    """Who counts, in words, by argument."""
    if not isinstance(value, Mapping) or len(value) > _MOST_SAID:
        raise ReleaseError(f"{name} must be an object of at most {_MOST_SAID} texts")
    return {text(key, name): text(said, f"{name}.{key}") for key, said in value.items()}


def _numbers(value: Any, name: str, *, count: int) -> tuple[float, ...]:
    found = many(value, name, check=number)
    if len(found) != count:
        raise ReleaseError(f"{name} must be {count} numbers")
    return found


def _means_variances(value: Any, name: str) -> tuple[MeansVariance, ...] | Unavailable:
    if _is_object(value):
        return _unavailable(value, name)
    return many(value, name, check=_means_variance)


def _means_variance_of(
    released: float, noise_scale: float, largest: float, **form: float
) -> MeansVariance:
    return MeansVariance(SamplingVariance(released, noise_scale, largest), **form)


_pair = partial(_numbers, count=2)
_FORM: Fields = {"treated": number, "control": number, "both": number}
_means_variance = partial(
    record,
    fields=_VARIANCE_RELEASED | _FORM,
    make=_means_variance_of,
)
_MEANS_PART: Fields = {"name": text, "treated": number, "control": number, "noise": flag}
_MEANS: Fields = {
    "treated": number,
    "control": number,
    "sampling": _means_variances,
    "laplace": partial(many, check=_pair),
    "gaussian": partial(many, check=_pair),
    "parts": partial(many, check=partial(record, fields=_MEANS_PART, make=MeansPart)),
    "possible": _possible,
    "design": partial(if_there, check=partial(_numbers, count=3)),
}
RELEASE: Fields = {
    "format": text,
    "version": whole,
    "site": check_site,
    "request": partial(text, empty=True),
    "estimand": partial(one_of, allowed=AVERAGES),
    "formula": text,
    "outcome": text,
    "treatment": text,
    "method": text,
    "level": partial(one_of, allowed=("sample", "label")),
    "n": partial(whole, least=1),
    "estimate": number,
    "variance": partial(record, fields=_VARIANCE, make=dict),
    "possible": _possible,
    "basis": partial(one_of, allowed=("", *BASES)),
    "sample": sample_words,
    "means": partial(if_there, check=partial(record, fields=_MEANS, make=Means)),
    "guarantee": guarantee_field,
    "spends": partial(many, check=spend_field),
    "bounds": partial(many, check=bound_field),
    "caution": partial(text, empty=True),
    "notes": _texts,
    "checksum": text,
}


def sampling_document(sampling: SamplingVariance | Unavailable) -> dict[str, Any]:
    """A sampling variance as it is sent."""
    if isinstance(sampling, Unavailable):
        return {"unavailable": " ".join(sampling.reason.split())}
    return {
        "released": sampling.value,
        "noise_scale": sampling.noise_scale,
        "largest": None if sampling.largest == math.inf else sampling.largest,
    }


def means_document(means: Means | None) -> dict[str, Any] | None:
    """Mean outcomes as they are sent, where there are any."""
    if means is None:
        return None
    sampling: Any = means.sampling
    if isinstance(sampling, Unavailable):
        sampling = sampling_document(sampling)
    else:
        sampling = [
            sampling_document(part.variance) | {name: getattr(part, name) for name in _FORM}
            for part in sampling
        ]
    return {
        "treated": means.treated,
        "control": means.control,
        "sampling": sampling,
        "laplace": [list(pair) for pair in means.laplace],
        "gaussian": [list(pair) for pair in means.gaussian],
        "parts": [{name: getattr(part, name) for name in _MEANS_PART} for part in means.parts],
        "possible": None if means.possible is None else list(means.possible),
        "design": None if means.design is None else list(means.design),
    }


def _check_difference(means: Means | None, estimate: float) -> None:
    """Means whose difference is not the estimate are those of something else."""
    if means is None:
        return
    sizes = abs(means.treated) + abs(means.control) + abs(estimate)
    if abs(means.treated - means.control - estimate) > 1e-6 * sizes:
        raise ReleaseError("means: their difference is not the estimate")


def fields_of(values: Any, known: Fields = RELEASE, what: str = "site") -> Fields:
    """The fields that a document has, each with its check."""
    if not _is_object(values):
        raise ReleaseError(f"a {what} release is an object, not {kind(values)}")
    written, version = values.get("format"), values.get("version")
    form = f"dpeffects {what} release"
    if not isinstance(written, str) or written != form:
        raise ReleaseError(f"this is not a {what} release: format is not {form!r}")
    if type(version) is not int or version != VERSION:
        raise ReleaseError(
            f"version {quoted(version)} of the format is not known; this dpeffects reads {VERSION}"
        )
    return known | ({"signature": signature_field} if "signature" in values else {})


def read_fields(values: Any) -> dict[str, Any]:
    """Check a document; return the arguments of the SiteRelease that it holds."""
    return arguments(checked(values, fields_of(values)))


def checked(values: Any, known: Fields) -> dict[str, Any]:
    """The fields of a document that passed their checks, and the checksum of all."""
    fields: dict[str, Any] = record(values, "", fields=known, make=dict)
    _check_sum(values)
    return fields


def arguments(fields: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a SiteRelease, of fields that passed their checks."""
    for name in ("format", "version", "checksum"):
        del fields[name]
    variance = fields.pop("variance")
    released = Estimate(
        value=fields.pop("estimate"),
        sampling=variance["sampling"],
        **variance["noise"],
        parts=variance["parts"],
        **{name: fields.pop(name) for name in ("possible", "basis", "notes", "caution", "means")},
    )
    _check_difference(released.means, released.value)
    return fields | {"released": released}


def _check_sum(values: Mapping[str, Any]) -> None:
    """Refuse a document that does not have the checksum of what it holds."""
    try:
        fits = checksum(values) == values["checksum"]
    except TypeError:
        raise ReleaseError("the release holds objects that JSON does not know") from None
    if not fits:
        raise ReleaseError("the checksum does not fit: the document was changed after it was made")
