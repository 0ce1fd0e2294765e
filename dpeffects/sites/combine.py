"""combine: many site releases in, one effect out. The centre sees files, never data."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from dpeffects.errors import EstimationError, OptionError, ReleaseError
from dpeffects.estimate import Unavailable
from dpeffects.inference import Interval, Law
from dpeffects.results import Summary
from dpeffects.results.export import frame_of, or_nan, plain
from dpeffects.results.numbers import number
from dpeffects.sites.law import Errors, StudentLaw, SumLaw
from dpeffects.sites.release import SiteRelease, check_site, read_release
from dpeffects.sites.rules import RULES, Floats, Heterogeneity, heterogeneity, ivw

if TYPE_CHECKING:
    import pandas as pd

_SAME = {
    "estimand": "estimand",
    "outcome": "outcome",
    "treatment": "treatment",
    "formula": "formula",
    "level": "level",
}
_WORSE = "using it would raise the variance of the combination"
_SMALLER = "it is not the site with most records"


@dataclass(frozen=True, repr=False)
class Combined:
    """One effect from many sites; made by `combine`.

    Parameters
    ----------
    rule
        Name of the rule.
    estimate
        The combined effect.
    std_error
        Its standard error, or why there is none.
    releases, weights
        The releases, in the order given, and the weight of each; the weights sum to one.
    left_out
        Sites with weight zero or without a release, and why.
    heterogeneity
        Whether the sites' effects differ by more than their errors.
    notes
        Sentences for the reader.
    """

    rule: str
    estimate: float
    std_error: float | Unavailable
    releases: tuple[SiteRelease, ...]
    weights: tuple[float, ...]
    left_out: Mapping[str, str]
    heterogeneity: Heterogeneity | Unavailable
    notes: tuple[str, ...]
    conf_level: float = 0.95
    law: Law | StudentLaw | Unavailable = field(default=Unavailable(""), compare=False)

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

    def conf_int(self, level: float | None = None) -> Interval | Unavailable:
        """Confidence interval for the effect; by default at the level given to `combine`."""
        level = _check_level(self.conf_level if level is None else level)
        if isinstance(self.law, Unavailable):
            return self.law
        half = self.law.upper_point((1.0 - level) / 2.0)
        return Interval(self.estimate - half, self.estimate + half, level)

    @property
    def p_value(self) -> float | Unavailable:
        """Two-sided p-value of the hypothesis that the effect is 0; same law as `conf_int`."""
        if isinstance(self.law, Unavailable):
            return self.law
        return min(1.0, 2.0 * float(self.law.tail(abs(self.estimate))))

    @property
    def sites(self) -> pd.DataFrame:
        """One row a site: its estimate, weight and guarantee, or why it was left out."""
        rows = [
            {
                "site": r.site,
                "n": r.n,
                "method": r.method,
                "estimate": float(r.estimate),
                "std_error": or_nan(r.std_error),
                "weight": w,
                "left_out": self.left_out.get(r.site, ""),
                "epsilon": float(r.guarantee.epsilon),
                "delta": float(r.guarantee.delta),
                "unit": r.guarantee.unit,
                "guarantee": r.guarantee.status,
            }
            for r, w in zip(self.releases, self.weights, strict=True)
        ]
        here = {release.site for release in self.releases}
        rows += [
            {"site": site, "n": None, "weight": 0.0, "left_out": reason}
            for site, reason in self.left_out.items()
            if site not in here
        ]
        return frame_of(rows)

    def summary(self, conf_level: float | None = None) -> Summary:
        """Everything worth printing, as titled blocks."""
        from dpeffects.sites.summary import summarise

        return summarise(self, _check_level(self.conf_level if conf_level is None else conf_level))

    def tidy(self, conf_level: float | None = None) -> pd.DataFrame:
        """One row for the effect, with the columns of `Result.tidy`."""
        interval = self.conf_int(conf_level)
        low, high = (math.nan, math.nan) if isinstance(interval, Unavailable) else interval
        error = or_nan(self.std_error)
        row = {
            "term": self.treatment,
            "outcome": self.outcome,
            "estimand": self.estimand,
            "estimate": self.estimate,
            "std_error": error,
            "statistic": self.estimate / error if error > 0.0 else math.nan,
            "p_value": or_nan(self.p_value),
            "conf_low": low,
            "conf_high": high,
            "method": self.rule,
            "guarantee": self.status,
        }
        return frame_of([row])

    def glance(self) -> pd.DataFrame:
        """One row for the combination: sites, records, heterogeneity, guarantee."""
        found = self.heterogeneity
        test = None if isinstance(found, Unavailable) else found
        row = {
            "rule": self.rule,
            "sites": len(self.releases),
            "sites_used": len(self.used),
            "sites_left_out": len(self.left_out),
            "n": self.n,
            "q": test.q if test else math.nan,
            "q_df": test.df if test else math.nan,
            "q_p_value": test.p_value if test else math.nan,
            "tau2": test.tau2 if test else math.nan,
            "i2": test.i2 if test else math.nan,
            "guarantee": self.status,
        }
        return frame_of([row])

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; what is not available is ``{"unavailable": reason}``."""
        names = ("rule", "estimand", "formula", "outcome", "treatment", "n", "estimate")
        out: dict[str, Any] = {name: getattr(self, name) for name in names}
        out |= {
            "std_error": self.std_error,
            "conf_int": self.conf_int(),
            "p_value": self.p_value,
            "heterogeneity": self.heterogeneity,
            "guarantee": self.status,
            "sites": self.sites.astype(object).where(self.sites.notna(), None).to_dict("records"),
            "left_out": self.left_out,
            "notes": self.notes,
        }
        return {name: plain(value) for name, value in out.items()}

    def to_json(self, indent: int | None = 2) -> str:
        """Return `to_dict` as JSON text."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False, ensure_ascii=False)

    def __str__(self) -> str:
        return str(self.summary())

    def __repr__(self) -> str:
        error = self.std_error
        shown = "not available" if isinstance(error, Unavailable) else number(error)
        return (
            f"<dpeffects {self.estimand} {number(self.estimate)} (se {shown}), {self.rule} of "
            f"{len(self.used)} sites, {self.status}>"
        )


def combine(
    releases: Iterable[SiteRelease | Mapping[str, Any] | str | os.PathLike[str]],
    rule: str = "mvagg",
    *,
    conf_level: float = 0.95,
    trust: str | os.PathLike[str] | None = None,
    left_out: Mapping[str, str] | None = None,
) -> Combined:
    """Combine the releases of several sites to one effect.

    Parameters
    ----------
    releases
        `SiteRelease` objects, their dicts, or paths of their files.
    rule
        "mvagg": by records, over the subset of sites with the least variance (papers 002/003).
        "ivw": by inverse variance. "all": by records, every site. "largest": the site with most
        records. "random": DerSimonian and Laird's random effects, for sites whose effects differ.
    conf_level
        Level of the interval in the summary.
    trust
        Folder with one public key for each site, ``NAME.pem``. Releases that are not signed by
        the key of their site are then refused.
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
    """
    if rule not in RULES:
        raise OptionError(f"rule must be {', '.join(RULES)}, got {rule!r}")
    _check_level(conf_level)
    found = _read_all(releases)
    absent = _check_left_out(left_out, found)
    if trust is not None:
        from dpeffects.sites.signing import verify_all

        verify_all(found, trust)
    _check_same(found)
    return _combined(found, rule, conf_level, absent)


def _read_all(releases: Any) -> tuple[SiteRelease, ...]:
    if isinstance(releases, str | bytes | os.PathLike | Mapping | SiteRelease):
        raise ReleaseError("combine takes a list of releases, not one")
    try:
        entries = list(releases)
    except TypeError:
        raise ReleaseError(f"combine takes a list, not {type(releases).__name__}") from None
    if not entries:
        raise ReleaseError("there is no release to combine")
    found = tuple(read_release(entry) for entry in entries)
    seen: set[str] = set()
    for release in found:
        if release.site in seen:
            raise ReleaseError(f"the site {release.site!r} stands twice among the releases")
        seen.add(release.site)
    return found


def _check_left_out(
    left_out: Mapping[str, str] | None, releases: tuple[SiteRelease, ...]
) -> dict[str, str]:
    if left_out is None:
        return {}
    if not isinstance(left_out, Mapping):
        raise OptionError("left_out must map sites to reasons")
    here = {release.site for release in releases}
    for site, reason in left_out.items():
        check_site(site)
        if not isinstance(reason, str) or not reason:
            raise OptionError(f"left_out[{site!r}] must be a reason in words")
        if site in here:
            raise OptionError(f"the site {site!r} is left out but has a release")
    return {site: " ".join(reason.split()) for site, reason in left_out.items()}


def _check_same(releases: tuple[SiteRelease, ...]) -> None:
    """Refuse sites that did not estimate the same thing, naming two of them."""
    first = releases[0]
    for name, words in _SAME.items():
        wanted = _squeezed(getattr(first, name))
        for release in releases:
            value = getattr(release, name)
            if value != getattr(first, name) and _squeezed(value) != wanted:
                raise ReleaseError(
                    f"the sites {first.site!r} and {release.site!r} differ in the {words}: "
                    f"{getattr(first, name)!r} and {value!r}"
                )
    for release in releases:
        if release.guarantee.unit != first.guarantee.unit:
            raise ReleaseError(
                f"the sites {first.site!r} and {release.site!r} differ in what they protect: one "
                f"{first.guarantee.unit} and one {release.guarantee.unit}"
            )


def _squeezed(text: str) -> str:
    return "".join(text.split())


def _combined(
    releases: tuple[SiteRelease, ...], rule: str, conf_level: float, absent: dict[str, str]
) -> Combined:
    known, errors, unusable = _usable(releases)
    needs = RULES[rule].needs_variance
    if needs and not known.size:
        raise EstimationError(
            f"no site has a usable variance, which rule={rule!r} needs: "
            f"{next(iter(unusable.values()))}. Use rule='all' or 'largest'"
        )
    estimates = np.array([r.estimate for r in releases], dtype=float)
    n = np.array([r.n for r in releases], dtype=float)
    variance = errors.variance
    test: Heterogeneity | Unavailable = Unavailable("fewer than two sites have a usable variance")
    if known.size > 1:
        test = heterogeneity(estimates[known], variance, errors.excess)
    weights = np.zeros(len(releases))
    if needs:
        between = test.tau2 if rule == "random" and isinstance(test, Heterogeneity) else 0.0
        weights[known] = RULES[rule].weights(n[known], variance + between)
    else:
        weights = RULES[rule].weights(n, n)
    estimate = float(weights @ estimates)
    unknown = [r.site for r, w in zip(releases, weights, strict=True) if w and r.site in unusable]
    law: Law | StudentLaw | Unavailable
    if unknown:
        law = Unavailable(f"the site {unknown[0]!r} has no usable variance: {unusable[unknown[0]]}")
        error: float | Unavailable = law
    elif rule == "random" and isinstance(test, Heterogeneity):
        law = _hartung_knapp(estimates[known], variance + test.tau2)
        error = law.scale
    else:
        law = SumLaw(errors, weights[known])
        error = law.unit
    reasons = _reasons(releases, weights, unusable if needs else {}, rule)
    return Combined(
        rule=rule,
        estimate=estimate,
        std_error=error,
        releases=releases,
        weights=tuple(weights.tolist()),
        left_out={**reasons, **absent},
        heterogeneity=test,
        notes=(),
        conf_level=conf_level,
        law=law,
    )


def _usable(releases: tuple[SiteRelease, ...]) -> tuple[Any, Errors, dict[str, str]]:
    """Sites with a variance above zero, their errors, and why the others have none."""
    unusable, known = {}, []
    for j, release in enumerate(releases):
        sampling = release.released.sampling
        if isinstance(sampling, Unavailable):
            unusable[release.site] = sampling.reason
        else:
            known.append(j)
    index = np.array(known, dtype=np.int64)
    errors = Errors.of([releases[j].released for j in known])
    positive = errors.variance > 0.0
    for j in index[~positive]:
        unusable[releases[j].site] = "its variance is zero, which no private release has"
    if not positive.all():
        errors = errors.part(np.flatnonzero(positive))
    return index[positive], errors, unusable


def _hartung_knapp(estimate: Floats, variance: Floats) -> StudentLaw:
    """Student's t around the random-effects mean; never narrower than its own standard error."""
    w = ivw(estimate, variance)
    own = 1.0 / float(np.sum(1.0 / variance))
    df = estimate.size - 1
    found = float(w @ (estimate - w @ estimate) ** 2) / df
    return StudentLaw(math.sqrt(max(own, found)), df)


def _reasons(
    releases: tuple[SiteRelease, ...], weights: Floats, unusable: Mapping[str, str], rule: str
) -> dict[str, str]:
    """Why each site without weight has none."""
    default = _SMALLER if rule == "largest" else _WORSE
    return {
        release.site: f"no usable variance: {unusable[release.site]}"
        if release.site in unusable
        else default
        for release, weight in zip(releases, weights.tolist(), strict=True)
        if weight == 0.0
    }


def _check_level(level: Any) -> float:
    if isinstance(level, bool) or not isinstance(level, int | float) or not 0.0 < level < 1.0:
        raise OptionError(f"the confidence level is a probability such as 0.95, got {level!r}")
    return float(level)
