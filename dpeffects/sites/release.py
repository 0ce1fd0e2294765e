"""SiteRelease: what a site sends instead of its data, as a small JSON document.

It holds released numbers only: the estimate, the parts of its variance, the guarantee and the
charges behind them. docs/site_release.md describes every field.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated, Any

from dpeffects.errors import OptionError, ReleaseError, checked_call
from dpeffects.estimands import AVERAGES
from dpeffects.estimators import registry
from dpeffects.flow import Estimation, Request
from dpeffects.guarantee import KINDS
from dpeffects.inference import intervals as inference
from dpeffects.inference.estimate import Estimate, Means, SamplingVariance, Unavailable
from dpeffects.results import Result
from dpeffects.results.numbers import with_error
from dpeffects.sites.document import KINDS_SENT, SENT, Sent, check_site, one_line, written
from dpeffects.typed import FieldError, not_negative, one_of

_NO_SCALE = (
    "a site does not send this: the scale of its noise is private, so no centre could weigh it. "
    "Leave out variance=False"
)


@dataclass(frozen=True, repr=False, kw_only=True, slots=True)
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

    WHAT, MOST_BYTES = "site", 10_000_000

    released: Estimate
    outcome: str
    method: str
    level: Annotated[str, one_of("sample", "label")]

    @classmethod
    def from_result(cls, result: Result, site: str, *, request: str = "") -> SiteRelease:
        """Keep of a result what a centre needs."""
        if not isinstance(result, Result) or isinstance(result.released, inference.WithLaw):
            raise ReleaseError(f"a release is made of a Result, not {type(result).__name__}")
        _check_kind(result.guarantee.kind)
        if math.isnan(result.noise_variance):
            raise ReleaseError(_NO_SCALE)
        return cls.of(result, site=site, request=request, released=_sendable(result))

    def check(self) -> None:
        """Refuse a negative variance without noise, and means of something else."""
        own, means, value = self.released.sampling, self.released.means, self.released.value
        if isinstance(own, SamplingVariance) and own.noise_scale == 0.0:  # noise alone can do that
            not_negative(own.value, "released.sampling.value")
        if means is not None:
            sizes = abs(means.treated) + abs(means.control) + abs(value)
            if abs(means.treated - means.control - value) > 1e-6 * sizes:
                raise FieldError("means: their difference is not the estimate")

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
    """Estimate an effect at one site and keep what can be sent to a centre.

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


def _sendable(result: Result) -> Estimate:
    """The estimate that a document can hold: what is not finite is not available."""
    released = result.released
    sampling, means = released.sampling, released.means
    if isinstance(sampling, SamplingVariance):
        known = math.isfinite(sampling.value) and math.isfinite(sampling.noise_scale)
        if known and not math.isnan(sampling.largest):
            # a bound below zero leaves nothing but zero
            sampling = replace(sampling, largest=max(sampling.largest, 0.0))
        else:
            sampling = Unavailable("the released variance is not a finite number")
    if means is not None:
        means = replace(means, possible=_with_ends(means.possible))
        try:
            SENT.of(Means)(one_line(written(means)), "means")
        except FieldError:
            means = None
    notes = tuple(filter(None, result.notes))
    ends = _with_ends(released.possible)
    return replace(released, sampling=sampling, possible=ends, notes=notes, means=means)


def _with_ends(possible: tuple[float, float] | None) -> tuple[float, float] | None:
    """The range; one without ends says nothing."""
    return possible if possible is not None and all(map(math.isfinite, possible)) else None
