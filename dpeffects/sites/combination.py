"""combine: many site releases in, one effect out. The centre sees files, never data."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np
import numpy.typing as npt

from dpeffects.documents import refuse_twins
from dpeffects.errors import EstimationError, checked_call
from dpeffects.inference.estimate import Estimate, Unavailable
from dpeffects.inference.hypotheses import Evidence, Hypothesis
from dpeffects.inference.intervals import NO_TEST, Interval, Law, check_conf_level
from dpeffects.inference.weighted import combined_means
from dpeffects.results.export import frame_of, or_nan, plain
from dpeffects.results.hypothesis_test import Test, facts_tested
from dpeffects.results.numbers import with_error
from dpeffects.results.record import Coefficients, Reported
from dpeffects.results.scaled import ScaledEffect, mean_rows, scaled_effect
from dpeffects.sites.checks import (
    SAME,
    check_levels,
    check_plausible,
    check_rule,
    check_same,
    received,
)
from dpeffects.sites.doubts import away, named
from dpeffects.sites.error_distribution import Errors, SumLaw
from dpeffects.sites.notes import FEW_SITES, listed, notes
from dpeffects.sites.plausible import outcome_width, why_not
from dpeffects.sites.random_effects import MixedLaw, random_effects
from dpeffects.sites.release import SiteRelease
from dpeffects.sites.robust import MedianLaw, robust
from dpeffects.sites.rules import RULES, Heterogeneity, Rule, heterogeneity
from dpeffects.sites.weights import Floats, supported
from dpeffects.summary import Summary, draw, show

if TYPE_CHECKING:
    import pandas as pd

_LEAST = 1e-120
"""Variances below this are zero; no private release has them."""
_TOO_FEW = "fewer than two sites have a usable variance"


@dataclass(frozen=True, repr=False)
class Combined(Reported, Coefficients, words="about_sites", pictures="plots.intervals"):
    """One effect from many sites; made by `combine`.

    Parameters
    ----------
    rule
        Name of the rule.
    estimate
        The combined effect.
    std_error
        Its standard error, which allows for weights that were chosen by noisy variances, or why
        there is none. With the rule "random", half the width of the 68.3 % interval.
    releases, weights
        The releases, in the order given, and the weight of each; the weights sum to one.
    left_out
        Sites with weight zero or without a release, and why.
    heterogeneity
        Whether the sites' effects differ by more than their errors.
    notes
        Sentences for the reader.
    named
        Sites that carry the result or disagree with all others; among the cautions.
    """

    rule: str
    estimate: float
    std_error: float | Unavailable
    releases: tuple[SiteRelease, ...]
    weights: tuple[float, ...]
    left_out: Mapping[str, str]
    heterogeneity: Heterogeneity | Unavailable
    notes: tuple[str, ...]
    named: tuple[str, ...] = ()
    conf_level: float = 0.95
    law: Law | MixedLaw | MedianLaw | Unavailable = field(default=Unavailable(""), compare=False)

    @property
    def estimand(self) -> str:
        """ATE, ATT or ATC."""
        return self.releases[0].estimand

    @property
    def formula(self) -> str:
        """The formula, as the first site wrote it."""
        return self.releases[0].formula

    @property
    def outcome(self) -> str:
        """Name of the outcome."""
        return self.releases[0].outcome

    @property
    def treatment(self) -> str:
        """Name of the treatment."""
        return self.releases[0].treatment

    @property
    def used(self) -> tuple[SiteRelease, ...]:
        """Releases with a weight above zero."""
        return tuple(r for r, w in zip(self.releases, self.weights, strict=True) if w > 0.0)

    @property
    def n(self) -> int:
        """Records of the sites that were used."""
        return sum(release.n for release in self.used)

    @property
    def status(self) -> str:
        """ "exact", "asymptotic" or "void: ...": the worst of the sites that were used."""
        void = dict.fromkeys(reason for r in self.used for reason in r.guarantee.void)
        if void:
            return "void: " + ", ".join(void)
        kinds = {release.guarantee.kind for release in self.used}
        return "asymptotic" if "asymptotic" in kinds else "exact"

    @property
    def cautions(self) -> tuple[str, ...]:
        """Cautions of the sites that were used, each with its sites, and what few cannot show."""
        sites_of: dict[str, list[str]] = {}
        for release in self.used:
            weak = release.guarantee.caution(release.n)
            for words in filter(None, (*release.released.cautions, weak)):
                sites_of.setdefault(words, []).append(release.site)
        few = FEW_SITES.get(len(self.used), "") if RULES[self.rule].random_effects else ""
        said = [f"{listed(sites)}: {words}" for words, sites in sites_of.items()]
        return tuple(filter(None, (*self.named, *said, few)))

    @property
    def caution(self) -> str:
        """What nobody should overlook about the sites that were used; empty when all is well."""
        return "; ".join(self.cautions)

    @property
    def noise_variance(self) -> float:
        """Variance of the privacy noise in the combined effect, for the weights used."""
        pairs = zip(self.weights, self.releases, strict=True)
        return sum(w * w * r.released.noise_variance for w, r in pairs)

    @property
    def bias_variance(self) -> float:
        """What is allowed for possible biases, as a variance; they are taken as common to sites."""
        pairs = zip(self.weights, self.releases, strict=True)
        return sum(w * math.sqrt(r.released.bias_variance) for w, r in pairs) ** 2

    @property
    def basis(self) -> str:
        """What entitles this to be called an effect; an association where one site has no more."""
        bases = {release.released.basis for release in self.used}
        if "association" in bases:
            return "association"
        return bases.pop() if len(bases) == 1 else ""

    @property
    def associated(self) -> bool:
        """Whether a site that was used has an association: then this is one too."""
        return self.basis == "association"

    @property
    def possible(self) -> tuple[float, float] | None:
        """The range that the weighted mean of the sites' effects can have, where all say theirs."""
        return _possible(self.releases, self.weights)

    def conf_int(self, conf_level: float | None = None) -> Interval | Unavailable:
        """Confidence interval for the effect; by default at the level given to `combine`."""
        conf_level = check_conf_level(self.conf_level if conf_level is None else conf_level)
        if isinstance(self.law, Unavailable):
            return self.law
        half = self.law.upper_point((1.0 - conf_level) / 2.0)
        low, high = self.possible or (-math.inf, math.inf)
        lower, upper = self.estimate - half, self.estimate + half
        return Interval(max(lower, low), min(upper, high), conf_level)

    @property
    def p_value(self) -> float | Unavailable:
        """Two-sided p-value of the hypothesis that the effect is 0; same law as `conf_int`.

        Returns `Unavailable` for an association, which is no test of an effect.
        """
        if self.associated:
            return Unavailable(NO_TEST)
        if isinstance(self.law, Unavailable):
            return self.law
        return min(1.0, 2.0 * float(self.law.tail(abs(self.estimate))))

    def test(
        self,
        null: float = 0.0,
        alternative: str = "two-sided",
        *,
        equivalence: tuple[float, float] | None = None,
        margin: float | None = None,
        conf_level: float | None = None,
    ) -> Test:
        """Test the combined effect; arguments as in `Result.test`. Nothing is spent."""
        asked = Hypothesis.asked(null, alternative, equivalence, margin)
        law = Unavailable(NO_TEST) if self.associated else self.law
        evidence: Evidence | Unavailable
        if isinstance(law, Unavailable):
            evidence = law
        else:
            interval = cast("Callable[[float], Interval]", self.conf_int)
            evidence = Evidence.around(self.estimate, law, interval, self.possible)
        conf_level = self.conf_level if conf_level is None else conf_level
        about = facts_tested(self, self.rule, self.status)
        return Test.of(evidence, asked, conf_level=conf_level, estimate=self.estimate, **about)

    @property
    def released(self) -> Estimate:
        """The combined effect and its means, for scales other than the difference."""
        variance = None
        if not isinstance(self.std_error, Unavailable):
            variance = self.std_error**2 - self.noise_variance - self.bias_variance
        estimates = [release.released for release in self.releases]
        none = Unavailable("the law of a combination is in conf_int")
        median = RULES[self.rule].median
        means = None if median else combined_means(estimates, self.weights, variance)
        return Estimate(self.estimate, none, possible=self.possible, basis=self.basis, means=means)

    @property
    def means(self) -> pd.DataFrame | Unavailable:
        """Mean outcomes by arm, with intervals, where all sites that were used send theirs."""
        return self.means_at()

    def means_at(self, conf_level: float | None = None) -> pd.DataFrame | Unavailable:
        """Mean outcomes by arm: columns arm, mean, std_error, conf_low and conf_high.

        They are the weighted means of those of the sites, with the weights of their effects.
        """
        level = check_conf_level(self.conf_level if conf_level is None else conf_level)
        means = self.released.means
        if means is None:
            return Unavailable("not all sites that were used send mean outcomes, or it is a median")
        return frame_of(mean_rows(means, level))

    def effect(self, scale: str = "difference", conf_level: float | None = None) -> ScaledEffect:
        """Put the combined effect on a scale, as `Result.effect` does."""
        level = check_conf_level(self.conf_level if conf_level is None else conf_level)
        about = {"term": self.treatment, "outcome": self.outcome, "estimand": self.estimand}
        about |= {"method": self.rule, "guarantee": self.status}
        named: dict[str, Any] = {"difference": (self.conf_int, self.p_value), "about": about}
        named |= {"std_error": self.std_error, "caution": self.caution}
        return scaled_effect(self.released, scale, level, self.treatment, self.outcome, **named)

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

    def summary(self, form: str = "full", *, conf_level: float | None = None) -> Summary:
        """Everything worth printing, as titled blocks; what matters most where ``form="short"``."""
        return show(self, form, conf_level=conf_level)

    def plot(self, conf_level: float | None = None, *, ax: Any = None) -> Any:
        """Draw sites and combined effect as a forest plot; return the axes (matplotlib)."""
        return draw(self, conf_level=conf_level, ax=ax)

    def tidy(self, conf_level: float | None = None, *, scale: str = "difference") -> pd.DataFrame:
        """One row for the effect, with the columns of `Result.tidy`."""
        return self.effect(scale, conf_level).tidy()

    def glance(self) -> pd.DataFrame:
        """One row for the combination, with the columns of `Result.glance` and more on sites.

        ``epsilon`` and ``delta`` are the largest of all sites: nobody's record was paid for more.
        """
        error = or_nan(self.std_error)
        known = min(self.noise_variance + self.bias_variance, error**2)
        test = None if isinstance(self.heterogeneity, Unavailable) else self.heterogeneity
        row = {
            "n": self.n,
            "method": self.rule,
            "level": _same(r.level for r in self.releases),
            "epsilon": max(float(r.guarantee.epsilon) for r in self.releases),
            "delta": max(float(r.guarantee.delta) for r in self.releases),
            "guarantee": self.status,
            "caution": self.caution,
            "unit": _same(r.guarantee.unit for r in self.releases),
            "noise_variance": self.noise_variance,
            "sampling_variance": error**2 - known,
            "noise_share": min(self.noise_variance / error**2, 1.0) if error > 0 else math.nan,
            "bias_variance": self.bias_variance,
            "basis": self.basis,
            "rule": self.rule,
            "sites": len(self.releases),
            "sites_used": len(self.used),
            "sites_left_out": len(self.left_out),
            "q": test.q if test else math.nan,
            "q_df": test.df if test else math.nan,
            "q_p_value": test.p_value if test else math.nan,
            "tau2": test.tau2 if test else math.nan,
            "i2": test.i2 if test else math.nan,
        }
        return frame_of([row])

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; what is not available is ``{"unavailable": reason}``."""
        sites = self.sites.astype(object)
        names = (
            *("rule", "estimand", "formula", "outcome", "treatment", "n", "estimate", "std_error"),
            *("noise_variance", "bias_variance", "basis", "p_value", "heterogeneity", "caution"),
            *("left_out", "notes", "releases", "conf_level"),
        )
        values = {name: getattr(self, name) for name in names} | {
            "conf_int": self.conf_int(),
            "means": self.means,
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
        weak = any(release.guarantee.caution(release.n) for release in self.used)
        return (
            f"<dpeffects {what} {with_error(self.estimate, self.std_error)}, {self.rule} of "
            f"{len(self.used)} sites, {self.status}{', WEAK PRIVACY' if weak else ''}>"
        )


def _same(values: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(values))


@checked_call
def combine(
    releases: Iterable[SiteRelease | Mapping[str, Any] | str | os.PathLike[str]],
    rule: str = "ivw",
    *,
    conf_level: float = 0.95,
    trust: str | os.PathLike[str] | None = None,
    request: str | None = None,
    left_out: Mapping[str, str] | None = None,
) -> Combined:
    r"""Combine the releases of several sites to one effect.

    Parameters
    ----------
    releases
        `SiteRelease` objects, their dicts, or paths of their files.
    rule
        "ivw": by inverse variance. "mvagg": by records, over the subset of sites with the least
        variance (papers 002/003). "all": by records, every site. "largest": the site with most
        records. "random": random effects, for the mean effect of sites like these where effects
        may differ between sites. "robust": the median of three sites or more, which no single site
        moves beyond the others, and whose interval holds if one of them lies.
    conf_level
        Level of the interval in the summary.
    trust
        Folder with one public key for each site, ``NAME.pem``. Releases that are not signed by
        the key of their site are then refused.
    request
        The request that the sites were given; releases that answer another one are refused. By
        default all must answer the same one, or none.
    left_out
        Site -> reason, for sites that did not answer; they are shown in the summary.

    Returns
    -------
    Combined

    Notes
    -----
    The records of the sites are disjoint, so each site's guarantee is that of its own records, and
    combining is post-processing.

    Examples
    --------
    >>> from dpeffects.sites import site_release
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
        dpeffects combine *.json --rule ivw --trust keys/ \
            --left-out "West=did not answer"
    """
    check_rule(rule)
    check_conf_level(conf_level)
    who = {"trust": trust, "request": request, "left_out": left_out}
    sent, absent = received(releases, SiteRelease.read, "combine", **who)
    check_same(sent, SAME)
    check_levels({release.site: release.released.notes for release in sent})
    refuse_twins({release.site: _noisy(release.released) for release in sent})
    check_plausible({release.site: release for release in sent}, why_not)
    return _combined(sent, RULES[rule], conf_level, absent)


def _combined(
    releases: tuple[SiteRelease, ...], rule: Rule, conf_level: float, absent: dict[str, str]
) -> Combined:
    known, errors, unusable = _usable(releases)
    if rule.needs_variance and not known.size:
        raise EstimationError(
            f"no site has a usable variance, which rule={rule.name!r} needs ({releases[0].site!r}: "
            f"{unusable[releases[0].site]}); use rule='all' or 'largest'"
        )
    if rule.median and known.size < 3:
        raise EstimationError("rule='robust' needs three sites: of two, one cannot tell who errs")
    estimates = np.array([release.released.value for release in releases], dtype=float)
    n = np.array([release.n for release in releases], dtype=float)
    most = np.array([(outcome_width(release) or 0.0) ** 2 for release in releases]) / n
    errors = errors.at_least(supported(n[known], errors.mean, most[known]))
    test = heterogeneity(estimates[known], errors.variance, errors.excess)
    weights = np.zeros(len(releases))
    law: Law | MixedLaw | MedianLaw | Unavailable
    if rule.random_effects and known.size > 1:
        weights[known], law = random_effects(estimates[known], errors)
    else:
        index = known if rule.needs_variance else slice(None)
        weights[index] = rule.weights(n[index], errors.variance if rule.needs_variance else n)
        law = _law(releases, weights, rule, (known, errors, unusable))
    point = float(weights @ estimates)
    if rule.median:
        point, law = robust(estimates[known], errors)
    low, high = _possible(releases, weights.tolist()) or (-math.inf, math.inf)
    variance = most + [release.released.noise_variance for release in releases]
    variance[known] = errors.variance
    sites = [release.site for release in releases]
    far = away(estimates[:, None], variance[:, None])
    shares = weights if rule.needs_variance else np.where(weights > 0.0, n / n.sum(), 0.0)
    return Combined(
        rule=rule.name,
        estimate=min(max(point, low), high),
        std_error=law if isinstance(law, Unavailable) else law.unit,
        releases=releases,
        weights=tuple(weights.tolist()),
        left_out={**_reasons(releases, weights, unusable, rule), **absent},
        heterogeneity=test if known.size > 1 else Unavailable(_TOO_FEW),
        notes=notes(releases, weights, rule, law, test),
        named=named(sites, shares, n, variance, far),
        conf_level=conf_level,
        law=law,
    )


def _noisy(released: Estimate) -> list[float]:
    """The numbers of a release that have noise."""
    own, means = released.sampling, released.means
    found = [released.value] + ([] if isinstance(own, Unavailable) else [own.value])
    return found if means is None else [*found, means.treated, means.control]


Usable = tuple[npt.NDArray[np.int64], Errors, dict[str, str]]


def _usable(releases: tuple[SiteRelease, ...]) -> Usable:
    """Sites with a variance above zero, their errors, and why the others have none."""
    estimates = [release.released for release in releases]
    blind = [j for j, e in enumerate(estimates) if isinstance(e.sampling, Unavailable)]
    index = np.delete(np.arange(len(estimates)), blind)
    errors = Errors.of([estimates[j] for j in index] if blind else estimates)
    unusable = {releases[j].site: _reason(estimates[j]) for j in blind}
    positive = errors.variance > _LEAST
    for j in index[~positive]:
        unusable[releases[j].site] = "it is zero, which no private release has"
    if not positive.all():
        errors = errors.part(np.flatnonzero(positive))
    return index[positive], errors, unusable


def _reason(estimate: Estimate) -> str:
    return estimate.sampling.reason if isinstance(estimate.sampling, Unavailable) else ""


def _law(
    releases: tuple[SiteRelease, ...], weights: Floats, rule: Rule, usable: Usable
) -> SumLaw | Unavailable:
    """The law of the weighted sum of the sites' errors, where all that have a weight say theirs."""
    known, errors, unusable = usable
    used = zip(releases, weights.tolist(), strict=True) if unusable else ()
    blind = [release.site for release, w in used if w and release.site in unusable]
    if blind:
        return Unavailable(f"the site {blind[0]!r} has no usable variance: {unusable[blind[0]]}")
    n = np.array([releases[j].n for j in known], dtype=float)
    inflation = rule.inflation and rule.inflation(n, errors, weights[known])
    return SumLaw(errors, weights[known], inflation)


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
    why = {site: f"no usable variance: {reason}" for site, reason in unusable.items()}
    none = why if rule.needs_variance else {}
    return {
        release.site: none.get(release.site, rule.leaves_out)
        for release, weight in zip(releases, weights.tolist(), strict=True)
        if weight == 0.0
    }
