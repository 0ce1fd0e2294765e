"""The fields of a site release, each with its check; docs/site_release.md describes them.

What the types of dataclasses do not say is given by the name of the field.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dpeffects.estimands import AVERAGES
from dpeffects.guarantee import Guarantee, column_of
from dpeffects.inference.estimate import (
    BASES,
    Estimate,
    Means,
    MeansVariance,
    Part,
    SamplingVariance,
    Unavailable,
)
from dpeffects.privacy.charges import Spend
from dpeffects.results.export import plain
from dpeffects.sites.document import Form, refused
from dpeffects.typed import (
    Check,
    FieldError,
    Types,
    at_least,
    flag,
    if_there,
    many,
    not_negative,
    number,
    number_in,
    one_of,
    positive,
    record,
    text,
    text_or_none,
)

KINDS_SENT = ("exact", "asymptotic")
"""Kinds of guarantees that a release may have."""
_LONGEST_UNIT = 100
_MOST_SAID = 20

SENT = Types({str: text, float: number, int: at_least(0), bool: flag})
_SIZES = Types({str: text, float: not_negative, int: at_least(0), bool: flag})


def check_site(site: Any, request: Any = "") -> str:
    """Return a name that can stand in a table and be the name of a key file.

    The identifier of the request that the site answers is checked with it, and may be empty.
    """
    with refused():
        text_or_none(request, "request")
        return _site(site, "site")


def _site(value: Any, name: str) -> str:
    site = text(value, name)
    if site != site.strip() or len(site) > 100:
        raise FieldError("site must have at most 100 characters and no spaces around them")
    return site


def _unit(value: Any, name: str) -> str:
    """Records, outcomes, or all rows of one value of a column, as `rows_of` writes it."""
    if isinstance(value, str) and column_of(value) and len(value) <= _LONGEST_UNIT:
        return text(value, name)
    return one_of("record", "outcome")(value, name)


def _ends(value: Any, name: str) -> tuple[float, float]:
    ends = many(number)(value, name)
    if len(ends) != 2 or ends[0] > ends[1]:
        raise FieldError(f"{name} must be a lower and an upper end, or null")
    return ends[0], ends[1]


def _sample(value: Any, name: str) -> dict[str, str]:
    """Who counts, in words, by argument."""
    if not isinstance(value, Mapping) or len(value) > _MOST_SAID:
        raise FieldError(f"{name} must be an object of at most {_MOST_SAID} texts")
    return {text(key, name): text(said, f"{name}.{key}") for key, said in value.items()}


# A sampling variance is sent as {"released", "noise_scale", "largest"}, without a largest one as
# null, or as {"unavailable"}; in means it stands beside how it enters theirs.


def _largest(value: Any, name: str) -> float:
    return math.inf if value is None else not_negative(value, name)


_FORM = {"treated": number, "control": number, "both": number}
_VARIANCE = {"released": number, "noise_scale": not_negative, "largest": _largest}
_released = record(
    lambda released, noise_scale, largest: SamplingVariance(released, noise_scale, largest),
    _VARIANCE,
)
_in_means = record(
    lambda released, noise_scale, largest, **form: MeansVariance(
        SamplingVariance(released, noise_scale, largest), **form
    ),
    _VARIANCE | _FORM,
)
_all_in_means = many(_in_means)
_unavailable = record(lambda unavailable: Unavailable(unavailable), {"unavailable": text})


def _sampling(value: Any, name: str) -> SamplingVariance | Unavailable:
    if isinstance(value, Mapping) and "unavailable" in value:
        return _unavailable(value, name)
    sampling = _released(value, name)
    if sampling.noise_scale == 0.0:  # only noise can take a released variance below zero
        not_negative(sampling.value, f"{name}.released")
    return sampling


def _means_sampling(value: Any, name: str) -> tuple[MeansVariance, ...] | Unavailable:
    return (_unavailable if isinstance(value, Mapping) else _all_in_means)(value, name)


def _variance_document(sampling: SamplingVariance | Unavailable) -> dict[str, Any]:
    if isinstance(sampling, Unavailable):
        return {"unavailable": " ".join(sampling.reason.split())}
    return {
        "released": sampling.value,
        "noise_scale": sampling.noise_scale,
        "largest": None if sampling.largest == math.inf else sampling.largest,
    }


_MEANS = record(Means, SENT.fields(Means, sampling=_means_sampling, possible=if_there(_ends)))
_NOISE = {"laplace": many(not_negative), "gaussian": not_negative}
_SPREAD: dict[str, Check] = {
    "noise": record(dict, _NOISE),
    "sampling": _sampling,
    "parts": many(_SIZES.of(Part)),
}
_GUARANTEE = SENT.fields(
    Guarantee,
    epsilon=positive,
    delta=number_in(0.0, 1.0),
    unit=_unit,
    kind=one_of(*KINDS_SENT),
)
_BOUND = {"name": text, "range": text, "source": text}
FIELDS: dict[str, Check] = {
    "site": _site,
    "request": text_or_none,
    "estimand": one_of(*AVERAGES),
    "formula": text,
    "outcome": text,
    "treatment": text,
    "method": text,
    "level": one_of("sample", "label"),
    "n": at_least(1),
    "estimate": number,
    "variance": record(dict, _SPREAD),
    "possible": if_there(_ends),
    "basis": one_of("", *BASES),
    "sample": _sample,
    "means": if_there(_MEANS),
    "guarantee": record(Guarantee, _GUARANTEE),
    "spends": many(_SIZES.of(Spend)),
    "bounds": many(record(lambda **bound: tuple(bound.values()), _BOUND)),
    "caution": text_or_none,
    "notes": many(text),
}
OWN = ("site", "n", "estimate", "variance", "sample", "means", "sums", "spends")
"""Fields that each site has its own of; charges are alike where sites are of one size."""
RELEASE = Form("site", FIELDS, tuple(name for name in FIELDS if name not in OWN), ("spends",))


def one_line(value: Any) -> Any:
    """The same with texts of one line."""
    if isinstance(value, str):
        return " ".join(value.split())
    if isinstance(value, tuple):
        return tuple(map(one_line, value))
    if isinstance(value, Mapping):
        return {name: one_line(entry) for name, entry in value.items()}
    return value


def about_document(sent: Any) -> dict[str, Any]:
    """What is sent beside the numbers: of what they are, and what was paid for them."""
    guarantee, names = sent.guarantee, ("epsilon", "delta", "unit", "neighbours")
    return {
        **{name: plain(getattr(sent, name)) for name in ("estimand", "formula", "treatment", "n")},
        "sample": dict(sent.sample),
        "guarantee": {
            name: plain(getattr(guarantee, name)) for name in (*names, "public", "kind", "void")
        },
        "spends": [plain(spend.to_dict()) for spend in sent.spends],
        "bounds": [dict(zip(_BOUND, bound, strict=True)) for bound in sent.bounds],
    }


def estimate_document(released: Estimate) -> dict[str, Any]:
    """An estimate as it is sent, by the names of its fields."""
    return {
        "estimate": released.value,
        "variance": {
            "noise": {"laplace": list(released.laplace), "gaussian": released.gaussian},
            "sampling": _variance_document(released.sampling),
            "parts": [plain(part) for part in released.parts],
        },
        "possible": released.possible and list(released.possible),
        "basis": released.basis,
        "means": released.means and _means_document(released.means),
        "caution": released.caution,
        "notes": list(released.notes),
    }


def _means_document(means: Means) -> dict[str, Any]:
    own = means.sampling
    sampling: Any = (
        _variance_document(own)
        if isinstance(own, Unavailable)
        else [
            _variance_document(x.variance) | {name: getattr(x, name) for name in _FORM} for x in own
        ]
    )
    return plain(means) | {"sampling": sampling}


def sendable(means: Means | None) -> Means | None:
    """Means that a document can hold, or none."""
    try:
        return means and _MEANS(_means_document(means), "means")
    except FieldError:
        return None


def read_estimate(found: dict[str, Any]) -> Estimate:
    """The estimate that fields which passed their checks are of; they are taken out."""
    variance, means = found.pop("variance"), found.pop("means")
    value: float = found.pop("estimate")
    if means is not None:  # whose difference is not the estimate are those of something else
        sizes = abs(means.treated) + abs(means.control) + abs(value)
        if abs(means.treated - means.control - value) > 1e-6 * sizes:
            raise FieldError("means: their difference is not the estimate")
    own = {name: found.pop(name) for name in ("possible", "basis", "notes", "caution")}
    noise, sampling, parts = variance["noise"], variance["sampling"], variance["parts"]
    return Estimate(value, sampling, **noise, parts=parts, means=means, **own)
