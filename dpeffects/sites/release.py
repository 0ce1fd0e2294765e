"""SiteRelease: what a site sends instead of its data, as a small JSON document.

It holds released numbers only: the estimate, the parts of its variance, the guarantee and the
charges behind them. docs/site_release.md describes every field.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from numbers import Real
from typing import Any, Self

import numpy as np

from dpeffects.errors import OptionError, ReleaseError, checked_call
from dpeffects.estimands import AVERAGES
from dpeffects.estimators import registry
from dpeffects.flow import Estimation, Request
from dpeffects.guarantee import KINDS, Guarantee
from dpeffects.inference import intervals as inference
from dpeffects.inference.estimate import Estimate, Unavailable
from dpeffects.privacy.charges import Spend
from dpeffects.results import Result
from dpeffects.results.export import plain
from dpeffects.results.numbers import with_error
from dpeffects.results.record import Bound
from dpeffects.sites.document import Sent, Signature, refused
from dpeffects.sites.release_fields import (
    KINDS_SENT,
    RELEASE,
    about_document,
    check_site,
    estimate_document,
    one_line,
    read_estimate,
    sendable,
)

_ESTIMATED = ("estimand", "formula", "outcome", "treatment", "method", "level", "n")
_NO_SCALE = (
    "a site does not send this: the scale of its noise is private, so no centre could weigh it. "
    "Leave out variance=False"
)


@dataclass(frozen=True, repr=False, slots=True)
class SiteRelease(Sent):
    """One site's private effect, ready to be sent; made by `site_release` or `from_result`.

    Parameters
    ----------
    site
        Name of the site.
    released
        Estimate, sampling variance and noise, as the method released them.
    estimand, formula, outcome, treatment
        What was estimated; the same in all sites that are combined.
    method, level, n
        How, what is private, and the number of records (public).
    guarantee, spends
        What is promised to the people in the site's data, and the charges that paid for it.
    bounds
        Triples of name, range in words and source.
    sample
        Who counts, and for how much, in words (`Result`); the same in all sites but for numbers.
    request
        Identifier of the request that the site answers; may be empty.
    signature
        See `dpeffects.sites.signing`.

    Examples
    --------
    >>> import dpeffects as dpe
    >>> nsw = dpe.load_data("lalonde")
    >>> fit = dpe.dp_ate("earnings_1978 ~ treatment", nsw, "diff_in_means", epsilon=1, seed=1)
    >>> release = SiteRelease.from_result(fit, "North")
    >>> SiteRelease.from_json(release.to_json()) == release
    True
    """

    FORMAT, MOST_BYTES = RELEASE.format, 10_000_000

    site: str
    released: Estimate
    estimand: str
    formula: str
    outcome: str
    treatment: str
    method: str
    level: str
    n: int
    guarantee: Guarantee
    spends: tuple[Spend, ...] = ()
    bounds: tuple[Bound, ...] = ()
    sample: Mapping[str, str] = field(default_factory=dict)
    request: str = ""
    signature: Signature | None = None

    @classmethod
    def from_result(cls, result: Result, site: str, *, request: str = "") -> SiteRelease:
        """Keep of a result what a centre needs."""
        if not isinstance(result, Result):
            raise ReleaseError(f"a release is made of a Result, not {type(result).__name__}")
        _check_kind(result.guarantee.kind)
        if math.isnan(result.noise_variance):
            raise ReleaseError(_NO_SCALE)
        release = cls(
            site=site,
            released=_plain_estimate(result),
            guarantee=result.guarantee,
            spends=result.spends,
            bounds=one_line(result.bounds),
            sample=one_line(result.sample),
            request=request,
            **{name: one_line(plain(getattr(result, name))) for name in _ESTIMATED},
        )
        return cls.from_dict(release.to_dict())  # a release that cannot be read is not sent

    @property
    def estimate(self) -> float:
        """The released effect."""
        return self.released.value

    @property
    def variance(self) -> float | Unavailable:
        """Total private variance: plausible sampling variance plus noise variance."""
        return inference.total_variance(self.released)

    @property
    def std_error(self) -> float | Unavailable:
        """Square root of the total private variance."""
        return inference.std_error(self.released)

    def to_dict(self) -> dict[str, Any]:
        """Return the document as plain values."""
        values = about_document(self) | estimate_document(self.released)
        values |= {name: getattr(self, name) for name in ("site", "request", *_ESTIMATED)}
        return RELEASE.finished(values, self.signature)

    def to_json(self, indent: int | None = 2) -> str:
        """Return the document as JSON text."""
        return super(SiteRelease, self).to_json(indent)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Check a document and read it; anything wrong with it is a ReleaseError."""
        with refused():
            found = RELEASE.read(values)
            return cls(released=read_estimate(found), **found)

    def __repr__(self) -> str:
        return (
            f"<dpeffects site release {self.site!r}: {self.estimand} "
            f"{with_error(self.estimate, self.std_error)}, n = {self.n}, {self.method}, "
            f"{self.guarantee.line(self.n)}>"
        )


@checked_call
def site_release(
    formula: str,
    data: Any,
    *,
    site: str,
    estimand: str = "ATE",
    request: str = "",
    **arguments: Any,
) -> SiteRelease:
    r"""Estimate an effect at one site and keep what can be sent to a centre.

    Parameters
    ----------
    formula, data, **arguments
        As in :func:`dp_ate`.
    site
        Name of the site, unique among those that are combined.
    estimand
        "ATE", "ATT" or "ATC".
    request
        Identifier of the request that this answers.

    Returns
    -------
    SiteRelease

    Examples
    --------
    >>> import dpeffects as dpe
    >>> nsw = dpe.load_data("lalonde")
    >>> sent = site_release(
    ...     "earnings_1978 ~ treatment", nsw, site="North", method="diff_in_means", epsilon=1
    ... )
    >>> sent.site, sent.n, sent.guarantee.status
    ('North', 445, 'exact')

    In a shell::

        dpeffects release "y ~ t | sex" patients.csv --site North --epsilon 1 \
            --bounds bounds.toml --sign North.private.pem --out north.json
    """
    check_site(site, request)
    ready = begin_release(formula, data, site=site, estimand=estimand, **arguments)
    return SiteRelease.from_result(ready.result(), site, request=request)


def begin_release(
    formula: str, data: Any, *, site: str, estimand: str = "ATE", **arguments: Any
) -> Estimation:
    """Check all that can be checked before the first charge of a site's release."""
    check_site(site)
    if not isinstance(estimand, str) or estimand not in AVERAGES:
        raise OptionError(f"estimand must be {', '.join(AVERAGES)}, got {estimand!r}")
    method = arguments.get("method")
    if isinstance(method, str) and method in registry():
        spec = registry()[method]
        _check_kind(spec.guarantee)
        if spec.smooth and arguments.get("variance") is False:
            raise OptionError(_NO_SCALE)
    if arguments.pop("by", None) is not None:
        raise OptionError("a site sends one effect: leave out by, and release with subset=...")
    one = {**arguments, "contrasts": None}
    return Estimation(Request.of_effect(estimand, formula, data, **one))


def _check_kind(kind: str) -> None:
    """A centre takes each site's word for its guarantee: one that the documents can state."""
    if kind not in KINDS_SENT:
        raise ReleaseError(
            f"a site does not send this: {KINDS[kind].words}. Use a method with an exact guarantee"
        )


def _plain_estimate(result: Result) -> Estimate:
    """Return the estimate in plain floats; a variance that is not finite is not available."""
    released, sampling, means = result.released, result.released.sampling, result.released.means
    if not isinstance(sampling, Unavailable):
        value, scale, largest = sampling.value, sampling.noise_scale, sampling.largest
        if math.isfinite(value) and math.isfinite(scale) and not math.isnan(largest):
            # a bound below zero leaves nothing but zero
            sampling = replace(sampling, largest=max(largest, 0.0))
        else:
            sampling = Unavailable("the released variance is not a finite number")
    found: Estimate = _in_floats(
        replace(
            released,
            sampling=sampling,
            possible=_with_ends(released.possible),
            notes=tuple(note for note in result.notes if note),
            details={},
            influence=None,
            means=means and replace(means, possible=_with_ends(means.possible)),
        )
    )
    return replace(found, means=sendable(found.means))


def _in_floats(value: Any) -> Any:
    """The same with plain floats for all numbers, and texts of one line."""
    if isinstance(value, tuple):
        return tuple(map(_in_floats, value))
    if is_dataclass(value) and not isinstance(value, type):
        own = {f.name: _in_floats(getattr(value, f.name)) for f in fields(value)}
        return replace(value, **own)
    if isinstance(value, bool | np.bool_):
        return bool(value)
    return float(value) if isinstance(value, Real) else one_line(value)


def _with_ends(possible: tuple[float, float] | None) -> tuple[float, float] | None:
    """The range; one without ends says nothing."""
    return possible if possible is not None and all(map(math.isfinite, possible)) else None
