"""What a site sends instead of its data, as a small JSON document: of an effect, or of a study.

It holds released numbers only: the estimate and the parts of its variance, or the sums by arm and
level that give all effects of a study, with the guarantee and the charges behind them.
docs/site_release.md describes every field.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Annotated, Any

import numpy as np

from dpeffects import type_checks
from dpeffects.abilities.study import StudyEffects, together
from dpeffects.errors import BoundsError, OptionError, ReleaseError, checked_call, refusal
from dpeffects.estimands import AVERAGES
from dpeffects.estimators import registry, table_methods
from dpeffects.flow import Estimation, Request
from dpeffects.guarantee import KINDS, status_warning
from dpeffects.inference import intervals as inference
from dpeffects.inference.estimate import ArmMeans, Estimate, SamplingVariance, Unavailable
from dpeffects.inference.joint import JointSums, Margin
from dpeffects.ledgers import Address
from dpeffects.privacy.ledger import Account
from dpeffects.results import Result
from dpeffects.results.export import or_nan
from dpeffects.results.number_format import with_ends, with_error
from dpeffects.services import document_checks
from dpeffects.services.protocols import Protocol, read_protocol
from dpeffects.services.sites import document
from dpeffects.summary import Notes, Pairs, Summary, SummaryMixin, starred
from dpeffects.type_checks import FieldError

_NO_SCALE = (
    "a site does not send this: the scale of its noise is private, so no centre could weigh it. "
    "Leave out variance=False"
)


@dataclass(frozen=True, repr=False, kw_only=True, slots=True)
class SiteRelease(SummaryMixin, document.SiteDocument):
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
    guarantee, charges
        What is promised to the people in the site's data, and the charges that paid for it.
    bounds
        Triples of name, range in words and source.
    sample
        Who counts, and for how much, in words (`Result`); the same in all sites but for numbers.
    request
        Identifier of the request that the site answers; may be empty.
    signature
        See `dpeffects.services.sites.signing`.

    Examples
    --------
    >>> import dpeffects as dpe
    >>> nsw = dpe.load_data("lalonde")
    >>> fit = dpe.dp_ate("earnings_1978 ~ treatment", nsw, "diff_in_means", epsilon=1, seed=1)
    >>> release = SiteRelease.from_result(fit, "North")
    >>> SiteRelease.from_json(release.to_json()) == release
    True
    """

    FORMAT, MOST_BYTES = "dpeffects site release", 10_000_000

    released: Estimate
    outcome: str
    method: str
    level: Annotated[str, document_checks.one_of("sample", "label")]

    @classmethod
    def from_result(cls, result: Result, site: str, *, request: str = "") -> SiteRelease:
        """Keep of a result what a centre needs."""
        if not isinstance(result, Result) or isinstance(
            result.released, inference.EstimateWithDistribution
        ):
            raise ReleaseError(f"a release is made from a Result, not {type(result).__name__}")
        _check_kind(result.guarantee.kind)
        if math.isnan(result.noise_variance):
            raise ReleaseError(_NO_SCALE)
        return cls.of(result, site=site, request=request, released=_sendable(result))

    def check(self) -> None:
        """Refuse a negative variance without noise, and means of something else."""
        own, means, value = self.released.sampling, self.released.means, self.released.value
        if isinstance(own, SamplingVariance) and own.noise_scale == 0.0:  # noise alone can do that
            type_checks.not_negative(own.value, "released.sampling.value")
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

    @property
    def _what(self) -> str:
        return "association, not adjusted," if self.released.associated else self.estimand

    def _summary(self) -> Summary:
        released, guarantee = self.released, self.guarantee
        error, interval = self.std_error, inference.interval(released, 0.95)
        ends = (math.nan, math.nan) if isinstance(interval, Unavailable) else tuple(interval)
        value, low, high = with_ends(released.value, ends[0], ends[1], or_nan(error))
        known = "not available" if math.isnan(ends[0]) else f"{low} to {high}"
        rows = {
            "Formula": self.formula,
            "Estimate": f"{self._what} {value}",
            "95% CI": known,
            "Records": f"{self.n:,}",
            "Guarantee": guarantee.line(self.n),
        }
        warnings = (status_warning(guarantee.status), *released.warning_lines)
        blocks = (Pairs(tuple(rows.items())), Notes(released.notes))
        return Summary(f"Release of the site {self.site!r}", starred(warnings), blocks)

    def __repr__(self) -> str:
        return (
            f"<dpeffects site release {self.site!r}: {self._what} "
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
    document.check_site(site, request)
    ready = begin_release(formula, data, site=site, estimand=estimand, **arguments)
    return SiteRelease.from_result(ready.result(), site, request=request)


def begin_release(
    formula: str, data: Any, *, site: str, estimand: str = "ATE", **arguments: Any
) -> Estimation:
    """Check all that can be checked before the first charge of a site's release."""
    document.check_site(site)
    if not isinstance(estimand, str) or estimand not in AVERAGES:
        raise OptionError(f"estimand must be {', '.join(AVERAGES)}, got {estimand!r}")
    method = arguments.get("method")
    if isinstance(method, str) and method in registry():
        spec = registry()[method]
        _check_kind(spec.guarantee)
        if spec.smooth and arguments.get("variance") is False:
            raise OptionError(_NO_SCALE)
    if arguments.pop("by", None) is not None:
        raise OptionError("a site sends one effect: leave by out, and use subset=...")
    one = {**arguments, "contrasts": None}
    return Estimation(Request.of_effect(estimand, formula, data, **one))


def _check_kind(kind: str) -> None:
    """A centre takes each site's word for its guarantee: one that the documents can state."""
    if kind not in document.KINDS_SENT:
        raise ReleaseError(refusal("site_cannot_send", words=KINDS[kind].words))


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
            document.SENT.of(ArmMeans)(document.one_line(document.written(means)), "means")
        except FieldError:
            means = None
    notes = tuple(filter(None, result.notes))
    ends = _with_ends(released.possible)
    return replace(released, sampling=sampling, possible=ends, notes=notes, means=means)


def _with_ends(possible: tuple[float, float] | None) -> tuple[float, float] | None:
    """The range; one without ends says nothing."""
    return possible if possible is not None and all(map(math.isfinite, possible)) else None


# --- studies ---------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False, kw_only=True)
class StudyRelease(document.SiteDocument):
    """One site's private study, ready to be sent; made by `study_release` or `from_result`.

    Parameters
    ----------
    site, request, signature, ...
        As in `SiteRelease`.
    protocol
        Fingerprint of the protocol that was run; empty where there was none.
    sums
        The released numbers; all else follows from them.
    identification, method_warnings, notes
        As in `StudyEffects`.
    """

    FORMAT, MOST_BYTES = "dpeffects study release", 50_000_000

    sums: JointSums
    protocol: Annotated[str, document_checks.text_or_none] = ""
    identification: Annotated[str, document.IDENTIFICATION] = ""
    method_warnings: Annotated[str, document_checks.text_or_none] = ""
    notes: tuple[str, ...] = ()

    @classmethod
    def from_result(cls, result: StudyEffects, site: str, *, request: str = "") -> StudyRelease:
        """Keep of a study what a centre needs."""
        if not isinstance(result, StudyEffects):
            raise ReleaseError(refusal("release_study_made", kind=type(result).__name__))
        if result.sums.sites:
            raise ReleaseError(refusal("result_several_sites"))
        own = {"site": site, "request": request, "protocol": result.details.get("protocol", "")}
        return cls.of(result, **own, notes=tuple(filter(None, result.notes)))

    def check(self) -> None:
        """Refuse numbers that do not fit together."""
        sums = self.sums
        arms, outcomes, baseline = map(len, (sums.arms, sums.outcomes, sums.baseline_columns))
        pairs = [arm for pair in sums.contrasts for arm in pair]
        columns = (*sums.outcomes, *sums.baseline_columns)
        there = [sums.whole, *sums.groups, *filter(None, (sums.unadjusted,))]
        of_baseline = [*filter(None, (sums.baseline, sums.weighted_baseline))]
        width = sums.whole.sums.shape[-1]  # outcomes, and columns that say where they are missing
        fits = (
            len(set(sums.arms)) == arms >= 2
            and outcomes > 0
            and bool(pairs)
            and all(0 <= arm < arms for arm in pairs)
            and all(column.low < column.high for column in columns)
            and all(column.missing < width for column in columns)
            and len(sums.unequal) in (0, arms)
            and len(sums.missed) in (0, outcomes)
            and all(0.0 <= missed <= 1.0 for missed in sums.missed)
            and width >= outcomes
            and all(_has_shape(margin, arms, width) for margin in there)
            and all(_has_shape(margin, arms, baseline) for margin in of_baseline)
            and bool(of_baseline) == bool(baseline)
            and len(sums.whole.levels) == 1
        )
        if not fits:
            raise FieldError("sums: arms, columns and levels do not fit together")

    @cached_property
    def study(self) -> StudyEffects:
        """The study that the document tells of; effects follow from its sums."""
        spec, sums = table_methods()["study"], self.sums
        with np.errstate(all="ignore"):
            effects = tuple(
                replace(effect, identification=self.identification) for effect in sums.effects()
            )
        own = {f.name for f in fields(StudyEffects)} & {f.name for f in fields(self)}
        return StudyEffects(
            **{name: getattr(self, name) for name in own},
            method=spec.name,
            method_title=spec.title,
            outcome=together(sums.outcomes),
            labels=sums.labels,
            effects=effects,
            subgroups=tuple(margin.factor for margin in sums.groups),
            details={"protocol": self.protocol} if self.protocol else {},
        )

    def effect_on(self, label: str) -> SiteRelease:
        """One of the effects as a release for `combine`, which has other rules."""
        return SiteRelease.from_result(self.study.effect_on(label), self.site, request=self.request)

    def __repr__(self) -> str:
        return (
            f"<dpeffects study release {self.site!r}: {len(self.sums.outcomes)} outcomes, "
            f"n = {self.n}, {self.guarantee.line(self.n)}>"
        )


@checked_call
def study_release(
    protocol: Protocol | str | os.PathLike[str],
    data: Any,
    *,
    site: str,
    request: str = "",
    ledger: Account | Address | None = None,
    dataset: str | None = None,
    seed: int | None = None,
) -> StudyRelease:
    """Run a study's protocol at one site, and keep what can be sent to a centre.

    Parameters
    ----------
    protocol
        A `Protocol`, or the path of its TOML file. It declares bounds of all columns that need
        them: bounds that each site finds for itself would not be the same.
    site
        Name of the site, unique among those that are combined.
    request
        Identifier of the request that this answers.
    data, ledger, dataset, seed
        As in :func:`dp_ate`.

    Returns
    -------
    StudyRelease

    Examples
    --------
    >>> import dpeffects as dpe
    >>> protocol = dpe.Protocol(
    ...     "earnings_1978 + black ~ treatment", epsilon=1, design="randomised",
    ...     bounds={"earnings_1978": (0, 60_000), "black": (0, 1)},
    ... )
    >>> sent = dpe.study_release(protocol, dpe.load_data("lalonde"), site="North")
    >>> sent.site, sent.study.n, sent.protocol == protocol.fingerprint
    ('North', 445, True)
    """
    made = protocol if isinstance(protocol, Protocol) else read_protocol(protocol)
    document.check_site(site, request)
    if made.sites and site not in made.sites:
        raise OptionError(f"the protocol is for {', '.join(made.sites)}, not for {site!r}")
    who = {"ledger": ledger, "dataset": dataset, "seed": seed}
    study = made.result_of(begin_study(made, data, **who))
    return StudyRelease.from_result(study, site, request=request)


def begin_study(protocol: Protocol, data: Any, **more: Any) -> Estimation:
    """Check all that can be checked before the first charge of a site's study."""
    ready = protocol.begin(data, **more)
    if missing := list(ready.design.missing):
        ready.close()
        raise BoundsError(refusal("protocol_bounds", names=", ".join(missing)))
    bounds = ready.design.bounds
    levels = [x for name in bounds if bounds.is_levels(name) for x in bounds[name]]
    words = [protocol.formula, *protocol.subgroups, *bounds, *levels]
    if not all(str(word).isprintable() for word in words):
        ready.close()
        raise OptionError("a name or a level has characters that cannot be printed; rename it")
    return ready


def _has_shape(margin: Margin, arms: int, columns: int) -> bool:
    levels = len(margin.levels)
    return (
        margin.sizes.shape == (arms, levels)
        and margin.sums.shape == margin.squares.shape == (arms, levels, columns)
        and len(set(margin.levels)) == levels > 0
        and margin.noise.shape == (3, arms)
        and bool((margin.noise >= 0.0).all())
        and margin.opposite >= 0.0
    )
