"""combine: many site releases in, one effect out. The centre sees files, never data."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from functools import cached_property
from typing import Any, Self, cast

import numpy as np
import numpy.typing as npt

from dpeffects.errors import EstimationError, OptionError, checked_call, refusal
from dpeffects.guarantee import Guarantee
from dpeffects.inference import intervals as inference
from dpeffects.inference.estimate import Estimate, Unavailable
from dpeffects.inference.weighted import combined_means
from dpeffects.lazy import pd
from dpeffects.results.average import Result
from dpeffects.results.export import frame_of, plain
from dpeffects.results.number_format import with_error
from dpeffects.results.result_base import Payment
from dpeffects.services.sites.checks import (
    SAME,
    arms_said,
    check_all,
    check_levels,
    check_rule,
    identification_of,
    received,
)
from dpeffects.services.sites.consistency import outcome_width, release_inconsistency
from dpeffects.services.sites.error_distribution import Floats, SiteErrors, WeightedSumDistribution
from dpeffects.services.sites.notes import FEW_SITES, away, listed, named, notes
from dpeffects.services.sites.random_effects import random_effects
from dpeffects.services.sites.robust import robust
from dpeffects.services.sites.rules import RULES, Heterogeneity, Rule, heterogeneity, supported
from dpeffects.services.sites.site_documents import SiteRelease
from dpeffects.summary import each_warning

_SHARED = ("estimand", "formula", "outcome", "treatment", "level")
_LEAST = 1e-120
"""Variances below this are zero; no private release has them."""
_NOT_SENT = Unavailable("sites do not send what they would allow for confounding")
NOT_ADJUSTED = "it is not adjusted for covariates, and other sites' estimates are"
_TOO_FEW = "fewer than two sites have a usable variance"


@dataclass(frozen=True, repr=False, kw_only=True)
class CombinedEffect(
    Result, words="services.sites.combination_summary", picture="services.sites.forest_plot.forest"
):
    """One effect from many sites; made by `combine`.

    It has what a `Result` has; its guarantee is the weakest of the sites'. With the rule "random"
    the standard error is half the width of the 68.3 % interval; with others it allows for weights
    that were chosen by noisy variances.

    Parameters
    ----------
    method
        Name of the rule.
    releases, weights
        The releases, in the order given, and the weight of each; the weights sum to one.
    left_out
        Sites with weight zero or without a release, and why.
    heterogeneity
        Whether the sites' effects differ by more than their errors.
    named
        Sites that carry the result or disagree with all others; among the warnings.
    conf_level
        Level of the interval, where no other is asked for.
    """

    releases: tuple[SiteRelease, ...]
    weights: tuple[float, ...]
    left_out: Mapping[str, str]
    heterogeneity: Heterogeneity | Unavailable
    named: tuple[str, ...] = ()
    conf_level: float = 0.95

    _no_means = Unavailable("not all sites that were used send mean outcomes, or it is a median")

    @property
    def rule(self) -> str:
        """Name of the rule."""
        return self.method

    @property
    def status(self) -> str:
        """ "exact", "asymptotic" or "void: ...": the worst of the sites that were used."""
        return self.guarantee.status

    @property
    def used(self) -> tuple[SiteRelease, ...]:
        """Releases with a weight above zero."""
        return tuple(r for r, w in zip(self.releases, self.weights, strict=True) if w > 0.0)

    @property
    def warning_lines(self) -> tuple[str, ...]:
        """Warnings of the sites that were used, each with its sites, and of too few sites."""
        sites_of: dict[str, list[str]] = {}
        for release in self.used:
            weak = release.guarantee.warnings(release.n)
            for words in each_warning(*release.released.warning_lines, weak):
                sites_of.setdefault(words, []).append(release.site)
        few = FEW_SITES.get(len(self.used), "") if RULES[self.rule].random_effects else ""
        said = [f"{listed(sites)}: {words}" for words, sites in sites_of.items()]
        return tuple(filter(None, (*self.named, *said, few)))

    @property
    def _paid(self) -> tuple[Payment, ...]:
        return tuple(
            Payment(
                r.n, r.guarantee, r.charges, r.bounds, "; ".join(r.released.warning_lines), r.site
            )
            for r in self.releases
        )

    @property
    def warnings(self) -> str:
        """Warnings about the sites that were used; empty where there are none."""
        return "; ".join(self.warning_lines)

    @property
    def noise_variance(self) -> float:
        """Variance of the privacy noise in the combined effect, for the weights used."""
        pairs = zip(self.weights, self.releases, strict=True)
        return sum(w * w * r.released.noise_variance for w, r in pairs)

    @property
    def bias_variance(self) -> float:
        """The allowance for possible biases, as a variance; they are taken as common to sites."""
        pairs = zip(self.weights, self.releases, strict=True)
        return sum(w * math.sqrt(r.released.bias_variance) for w, r in pairs) ** 2

    @property
    def error_distribution(self) -> inference.ErrorDistribution | Unavailable:
        """The distribution of its error, or why there is none."""
        return inference.distribution_of(self.released)

    @property
    def possible(self) -> tuple[float, float] | None:
        """The range that the weighted mean of the sites' effects can have, where all say theirs."""
        return self.released.possible

    @property
    def sampling_variance(self) -> float | Unavailable:
        """What is left of the variance beside noise and possible biases."""
        total = inference.total_variance(self.released)
        known = self.noise_variance + self.bias_variance
        return total if isinstance(total, Unavailable) else max(total - known, 0.0)

    def _sources(self) -> dict[str, float]:
        """The variance of each part of the error; possible biases are common to all sites."""
        own = self.sampling_variance
        return {
            "sampling error": math.nan if isinstance(own, Unavailable) else own,
            "privacy noise": self.noise_variance,
            "allowance for possible bias": self.bias_variance,
        }

    @cached_property
    def _compared(self) -> Estimate:
        """The same with the weighted means of the sites' outcomes by arm."""
        own, sent = self.sampling_variance, [release.released for release in self.releases]
        variance = None if isinstance(own, Unavailable) else own
        median = RULES[self.rule].median
        means = None if median else combined_means(sent, self.weights, variance)
        return replace(self.released, means=means)

    def sensitivity(self, *given: Any, **named: Any) -> Any:
        """Refused: sites do not send what it needs; each can answer for its own effect."""
        raise OptionError(refusal("sensitivity_effect_one"))

    def effect_conf_int(self, conf_level: float = 0.95) -> inference.Interval | Unavailable:
        """Interval for the effect; there is none where this is an association."""
        return _NOT_SENT if self.associated else self.conf_int(conf_level)

    @property
    def sites(self) -> pd.DataFrame:
        """One row a site: its estimate, weight and guarantee, or why it was left out."""
        known, errors, _ = _usable(self.releases)
        std_errors = np.full(len(self.releases), math.nan)
        std_errors[known] = np.sqrt(errors.variance)
        rows = [
            {
                "site": r.site,
                "n": r.n,
                "method": r.method,
                "estimate": float(r.estimate),
                "std_error": error,
                "weight": w,
                "left_out": self.left_out.get(r.site, ""),
                "epsilon": float(r.guarantee.epsilon),
                "delta": float(r.guarantee.delta),
                "unit": r.guarantee.unit,
                "guarantee": r.guarantee.status,
            }
            for r, w, error in zip(self.releases, self.weights, std_errors.tolist(), strict=True)
        ]
        answered = {release.site for release in self.releases}
        rows += [
            {"site": site, "n": None, "weight": 0.0, "left_out": reason}
            for site, reason in self.left_out.items()
            if site not in answered
        ]
        return frame_of(rows)

    def _glance(self) -> dict[str, Any]:
        """As of a result, and more on sites.

        ``epsilon`` and ``delta`` are the largest of all sites: nobody's record was paid for more.
        """
        test, names = self.heterogeneity, ("q", "q_df", "q_p_value", "tau2", "i2")
        values = [math.nan] * 5 if isinstance(test, Unavailable) else astuple(test)
        return super()._glance() | {
            "rule": self.rule,
            "sites": len(self.releases),
            "sites_used": len(self.used),
            "sites_left_out": len(self.left_out),
            **dict(zip(names, values, strict=True)),
        }

    def to_dict(self, conf_level: float | None = None) -> dict[str, Any]:
        """Plain values for JSON; what is not available is ``{"unavailable": reason}``."""
        sites = self.sites.astype(object)
        names = (
            *("rule", "estimand", "formula", "outcome", "treatment", "n", "estimate", "std_error"),
            *("noise_variance", "bias_variance", "identification", "p_value", "heterogeneity"),
            *("warnings", "left_out", "notes", "releases", "conf_level"),
        )
        values = {name: getattr(self, name) for name in names} | {
            "conf_int": self.conf_int(conf_level),
            "means": self.means_at(conf_level),
            "guarantee": self.status,
            "sites": sites.where(sites.notna(), None).to_dict("records"),
        }
        return {name: plain(value) for name, value in values.items()}

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> Self:
        """Read what `to_dict` gave: its releases are checked and combined again."""
        sent = {release["site"] for release in document["releases"]}
        silent = {site: why for site, why in document["left_out"].items() if site not in sent}
        rule, conf_level = document["rule"], document.get("conf_level", 0.95)
        combined = combine(document["releases"], rule, conf_level=conf_level, left_out=silent)
        return cast(Self, combined)

    def __repr__(self) -> str:
        what = "association" if self.associated else self.estimand
        weak = any(release.guarantee.warnings(release.n) for release in self.used)
        return (
            f"<dpeffects {what} {with_error(self.estimate, self.std_error)}, {self.rule} of "
            f"{len(self.used)} sites, {self.status}{', weak privacy' if weak else ''}>"
        )


@checked_call
def combine(
    releases: Iterable[SiteRelease | Mapping[str, Any] | str | os.PathLike[str]],
    rule: str = "ivw",
    *,
    conf_level: float = 0.95,
    public_keys: str | os.PathLike[str] | None = None,
    request: str | None = None,
    left_out: Mapping[str, str] | None = None,
) -> CombinedEffect:
    r"""Combine the releases of several sites into one effect (meta-analysis).

    Parameters
    ----------
    releases
        `SiteRelease` objects, their dicts, or paths of their files.
    rule
        How sites are weighted. Fixed effect: "ivw" (inverse variance), "all" (numbers of records),
        "mvagg" (numbers of records, in the subset of sites that minimises the variance), "largest"
        (only the site with the most records). "random": random effects, for the mean effect in a
        population of such sites; the variance between sites (tau squared) has a prior, as a few
        sites hardly show it. "robust": the median of three or more sites, whose interval is valid
        if one of them reports a false result. Choose the rule before you see the results: Cochran's
        Q has little power with few sites. Unadjusted estimates are left out where other sites
        adjusted, except by "all" and "largest", which use every site and call the result an
        association.
    conf_level
        Level of the interval in the summary.
    public_keys
        Folder with one public key for each site, ``NAME.pem``. Releases that are not signed by
        the key of their site are then refused.
    request
        The request that the sites received; releases that answer another one are refused. By
        default all must answer the same one, or none.
    left_out
        Site -> reason, for sites without a release; they are shown in the summary.

    Returns
    -------
    Combined

    Notes
    -----
    The records of the sites are disjoint, so each site's guarantee is that of its own records, and
    combining is post-processing.

    Examples
    --------
    >>> from dpeffects.services.sites import site_release
    >>> import dpeffects as dpe
    >>> sent = [
    ...     site_release(
    ...         "outcome ~ treatment", dpe.simulate("multisite", n=2000, seed=seed),
    ...         site=site, method="diff_in_means", epsilon=1, seed=seed,
    ...     )
    ...     for seed, site in enumerate(["North", "South"])
    ... ]
    >>> combine(sent, "all").weights
    (0.5, 0.5)

    In a shell::

        dpeffects combine north.json south.json east.json
        dpeffects combine *.json --rule ivw --public-keys keys/ \
            --left-out "West=did not answer"
    """
    check_rule(rule)
    inference.check_conf_level(conf_level)
    who = {"public_keys": public_keys, "request": request, "left_out": left_out}
    sent, absent = received(releases, SiteRelease.read, "combine", **who)
    check_levels({site: release.released.notes for site, release in sent.items()})
    check_all(sent, SAME, _noisy, release_inconsistency)
    return _combined(tuple(sent.values()), RULES[rule], conf_level, absent)


def _combined(
    releases: tuple[SiteRelease, ...], rule: Rule, conf_level: float, absent: dict[str, str]
) -> CombinedEffect:
    known, errors, unusable = _usable(releases, rule)
    if rule.needs_variance and not known.size:
        raise EstimationError(
            f"no site has a usable variance, which rule={rule.name!r} needs ({releases[0].site!r}: "
            f"{unusable[releases[0].site]}); use rule='all' or 'largest'"
        )
    if rule.median and known.size < 3:
        raise EstimationError("rule='robust' needs at least three sites")
    estimates = np.array([release.released.value for release in releases], dtype=float)
    n = np.array([release.n for release in releases], dtype=float)
    most = np.array([(outcome_width(release) or 0.0) ** 2 for release in releases]) / n
    errors = errors.at_least(supported(n[known], errors.mean, most[known]))
    test = heterogeneity(estimates[known], errors.variance, errors.excess)
    weights = np.zeros(len(releases))
    dist: inference.ErrorDistribution | Unavailable
    if rule.random_effects and known.size > 1:
        weights[known], dist = random_effects(estimates[known], errors)
    else:
        index = known if rule.needs_variance else slice(None)
        weights[index] = rule.weights(n[index], errors.variance if rule.needs_variance else n)
        dist = _dist(releases, weights, rule, (known, errors, unusable))
    point = float(weights @ estimates)
    if rule.median:
        point, dist = robust(estimates[known], errors)
    variance = most + [release.released.noise_variance for release in releases]
    variance[known] = errors.variance
    sites = [release.site for release in releases]
    far = away(estimates[:, None], variance[:, None])
    shares = weights if rule.needs_variance else np.where(weights > 0.0, n / n.sum(), 0.0)
    used = [release for release, weight in zip(releases, weights, strict=True) if weight > 0.0]
    identification = identification_of({release.released.identification for release in used})
    possible = _possible(releases, weights.tolist())
    none = Unavailable("the distribution of a combination is in conf_int")
    return CombinedEffect(
        **{name: getattr(releases[0], name) for name in _SHARED},
        arms=arms_said(releases[0].released.notes, releases[0].treatment),
        method=rule.name,
        method_title=rule.words,
        n=sum(release.n for release in used),
        guarantee=_weakest(releases, used),
        notes=notes(releases, weights, rule, dist, test),
        released=inference.EstimateWithDistribution(
            point, none, possible=possible, identification=identification, dist=dist
        ),
        releases=releases,
        weights=tuple(weights.tolist()),
        left_out={**_reasons(releases, weights, unusable, rule), **absent},
        heterogeneity=test if known.size > 1 else Unavailable(_TOO_FEW),
        named=named(sites, shares, n, variance, far),
        conf_level=conf_level,
    )


def _weakest(releases: Sequence[SiteRelease], used: Sequence[SiteRelease]) -> Guarantee:
    """What was paid at most at any site, and what is promised at those that were used."""
    paid = [release.guarantee for release in releases]
    worst = max((release.guarantee for release in used), key=lambda x: x.kind == "asymptotic")
    return replace(
        worst,
        epsilon=max(x.epsilon for x in paid),
        delta=max(x.delta for x in paid),
        void=tuple(dict.fromkeys(reason for x in used for reason in x.guarantee.void)),
    )


def _noisy(release: SiteRelease) -> list[float]:
    """The numbers of a release that have noise."""
    released = release.released
    own, means = released.sampling, released.means
    found = [released.value] + ([] if isinstance(own, Unavailable) else [own.value])
    return found if means is None else [*found, means.treated, means.control]


Usable = tuple[npt.NDArray[np.int64], SiteErrors, dict[str, str]]


def _usable(releases: tuple[SiteRelease, ...], rule: Rule | None = None) -> Usable:
    """Sites with a variance above zero, their errors, and why the others are not used.

    Beside adjusted sites, one that is not is left out by rules that weigh by variance: it has the
    least of it, for want of an adjustment, and would carry the result.
    """
    estimates = [release.released for release in releases]
    sampling = dict(enumerate(estimate.sampling for estimate in estimates))
    blind = {j: own.reason for j, own in sampling.items() if isinstance(own, Unavailable)}
    crude = [j for j, own in enumerate(estimates) if own.identification == "unadjusted"]
    if rule and rule.needs_variance and len(crude) < len(estimates):
        blind |= dict.fromkeys(crude, NOT_ADJUSTED)
    index = np.delete(np.arange(len(estimates)), list(blind))
    errors = SiteErrors.of([estimates[j] for j in index] if blind else estimates)
    unusable = {releases[j].site: reason for j, reason in blind.items()}
    positive = errors.variance > _LEAST
    for j in index[~positive]:
        unusable[releases[j].site] = "it is zero, which no private release has"
    if not positive.all():
        errors = errors.part(np.flatnonzero(positive))
    return index[positive], errors, unusable


def _dist(
    releases: tuple[SiteRelease, ...], weights: Floats, rule: Rule, usable: Usable
) -> WeightedSumDistribution | Unavailable:
    """The distribution of the weighted sum of errors, where all sites with a weight say theirs."""
    known, errors, unusable = usable
    used = zip(releases, weights.tolist(), strict=True) if unusable else ()
    blind = [release.site for release, w in used if w and release.site in unusable]
    if blind:
        return Unavailable(f"the site {blind[0]!r} has no usable variance: {unusable[blind[0]]}")
    n = np.array([releases[j].n for j in known], dtype=float)
    inflation = rule.inflation and rule.inflation(n, errors, weights[known])
    return WeightedSumDistribution(errors, weights[known], inflation)


def _possible(
    releases: tuple[SiteRelease, ...], weights: Sequence[float]
) -> tuple[float, float] | None:
    """The range of the weighted mean of the sites' effects, where every site used says its own."""
    used = [(r.released.possible, w) for r, w in zip(releases, weights, strict=True) if w > 0.0]
    known = [(possible, w) for possible, w in used if possible is not None]
    if len(known) < len(used):
        return None
    return sum(w * low for (low, _), w in known), sum(w * high for (_, high), w in known)


def _reasons(
    releases: tuple[SiteRelease, ...], weights: Floats, unusable: Mapping[str, str], rule: Rule
) -> dict[str, str]:
    """Why each site without weight has none."""
    why = {
        site: reason if reason == NOT_ADJUSTED else f"no usable variance: {reason}"
        for site, reason in unusable.items()
    }
    none = why if rule.needs_variance else {}
    return {
        release.site: none.get(release.site, rule.leaves_out)
        for release, weight in zip(releases, weights.tolist(), strict=True)
        if weight == 0.0
    }
