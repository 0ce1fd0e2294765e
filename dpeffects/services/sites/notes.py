"""Sentences for the reader of a combination.

A centre can say of a site that it cannot refute that it carries the result, or disagrees. How far a
site is from the others is measured by its own error, that of their mean, and how far their effects
differ between themselves (DerSimonian and Laird's variance without the site): one site cannot
excuse itself, and sites whose effects differ are seldom accused.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from dpeffects.errors import texts
from dpeffects.inference.estimate import IDENTIFICATIONS, Estimate, Unavailable
from dpeffects.inference.intervals import total_variance
from dpeffects.results.export import or_nan
from dpeffects.services.sites.error_distribution import Floats
from dpeffects.services.sites.random_effects import NormalMixtureDistribution
from dpeffects.services.sites.rules import Heterogeneity, Rule
from dpeffects.services.sites.site_documents import SiteRelease

_SAID = texts("dpeffects.services.sites", "notes.toml")
FEW_SITES = {int(sites): words for sites, words in _SAID["few_sites"].items()}
"""What the rule "random" cannot know, by the number of sites."""
_PARTS = {"ATT": "treated", "ATC": "control"}
_DIFFER = 0.1
"""Below this p-value of Q the reader is told that the effects differ."""
_MOST = 0.8
"""A site with a larger part of the weight is named in the warnings; a convention, as those below:
an honest site with a larger epsilon is named too, so that the words are numbers and no blame."""
_CHANCE = 0.05
"""At most so many combinations of honest sites name one that disagrees, its errors being Laplace;
benchmarks/results/sites_liars.md has how many do."""


def notes(
    releases: Sequence[SiteRelease], weights: Floats, rule: Rule, dist: object, test: Heterogeneity
) -> tuple[str, ...]:
    """Return what a reader should know about this combination."""
    estimand = releases[0].estimand
    used = [r for r, w in zip(releases, weights.tolist(), strict=True) if w > 0.0]
    of = {
        identification: [r.site for r in used if r.released.identification == identification]
        for identification in IDENTIFICATIONS
    }
    kinds = dict.fromkeys(
        (r.method, r.bounds[0][1] if r.bounds else "", ", ".join(r.guarantee.public))
        for r in releases
    )
    methods, ranges, publics = (dict.fromkeys(each) for each in zip(*kinds, strict=True))
    holds = {
        "association": 0 < len(of["unadjusted"]) < len(used),
        "adjusted": of["adjusted"],
        "randomised": of["randomised"],
        "biases": any(r.released.bias_variance > 0.0 for r in used),
        "left_out": rule.leaves_out and (weights == 0.0).any(),
        "by_arm": rule.by_records and estimand in _PARTS,
        "by_all": rule.by_records and any("size" in release.sample for release in releases),
        "differ": test.p_value < _DIFFER and not (rule.random_effects or rule.median),
        "methods": len(methods) > 1,
        "ranges": len(ranges) > 1,
        "publics": len(publics) > 1,
        "several": True,
    }
    words = {name: listed(sites) for name, sites in of.items()}
    words |= {
        "methods": listed(methods),
        "ranges": listed(ranges),
        "publics": listed(publics, "; "),
    }
    words |= {"arm": _PARTS.get(estimand, ""), "p": f"{test.p_value:.2g}"}
    said = (_SAID[name].format(**words) for name, so in holds.items() if so)
    return _interval(rule, dist), *said


def _interval(rule: Rule, dist: object) -> str:
    if isinstance(dist, Unavailable):
        return f"Standard error, interval and p-value are {dist}."
    if isinstance(dist, NormalMixtureDistribution):
        return str(_SAID["random"])
    if rule.median:
        return str(_SAID["median"])
    chosen = ", and account for the choice of weights by these" if rule.inflation else ""
    return f"{_SAID['distribution']}{chosen}."


def listed(values: Iterable[str], between: str = ", ") -> str:
    """Return a few words side by side; of many, the first five."""
    words = [value or "(none)" for value in values]
    more = f"{between}and {len(words) - 5} more" if len(words) > 5 else ""
    return between.join(words[:5]) + more


# --- sites that the warnings name --------------------------------------------------------------


def named(
    sites: Sequence[str],
    weights: Floats,
    n: Floats,
    variance: Floats,
    far: Floats,
    *,
    looks: int = 1,
) -> tuple[str, ...]:
    """Warnings that name sites; one of ``looks`` effects is ``far`` away."""
    if len(sites) < 2:
        return ()
    records, error = n / n.sum(), weights**2 * variance
    error = error / max(float(error.sum()), 1e-300)
    several = np.count_nonzero(weights) > 1
    whom = "the other sites" if len(sites) > 2 else "the other site"
    cases = (
        (
            far > math.log(len(sites) * looks / _CHANCE) / math.sqrt(2.0),
            f"outlying: differs from {whom} by {far.max():.1f} standard errors",
        ),
        (
            weights > np.maximum(0.5, 2.0 * records),
            f"dominant: has {weights.max():.0%} of the weight, with "
            f"{records[weights.argmax()]:.0%} of the records",
        ),
        (weights > _MOST, f"dominant: has {weights.max():.0%} of the weight"),
        (
            several & (error > np.maximum(0.9, 2.0 * weights)),
            f"imprecise: contributes {error.max():.0%} of the variance",
        ),
    )
    return tuple(f"{listed(np.array(sites)[who])}: {words}" for who, words in cases if who.any())


Counted = Mapping[str, tuple[float, float, Sequence[Estimate]]]
"""Sites weighted by records: records analysed, records of the site, and its estimates."""


def by_records(sent: Counted, far: Floats | None = None) -> tuple[str, ...]:
    """The same of sites that are weighted by their numbers of records."""
    size, n, estimates = zip(*sent.values(), strict=True)
    value, variance = numbers(estimates)
    far = away(value, variance) if far is None else far
    about = list(sent), np.array(size) / np.sum(size), np.array(n), variance[:, 0]
    return named(*about, far, looks=value.shape[1])


def numbers(sent: Sequence[Sequence[Estimate]]) -> tuple[Floats, Floats]:
    """Estimates and their variances, one row a site; what has none is as uncertain as can be."""
    value = np.array([[x.value for x in own] for own in sent])
    variance = np.array([[or_nan(total_variance(x)) for x in own] for own in sent])
    return value, np.nan_to_num(variance, nan=1e100)


def away(value: Floats, variance: Floats) -> Floats:
    """How many standard errors each site is from all others, in the effect where that is most."""
    unit = np.maximum(variance.min(axis=0), 1e-300)
    w, y = unit / np.maximum(variance, unit), (value - np.median(value, axis=0)) / np.sqrt(unit)
    none = np.zeros((1, value.shape[1]))

    def of_others(x: Floats) -> Floats:  # without loss of digits
        before, after = (np.vstack([none, np.cumsum(part, axis=0)[:-1]]) for part in (x, x[::-1]))
        return np.asarray(before + after[::-1])

    if len(value) < 2:
        return np.zeros(len(value))
    total, square, first, second = map(of_others, (w, w * w, w * y, w * y * y))
    mean, spread = first / total, square / total
    over = np.maximum(second - first * mean - (len(value) - 2), 0.0)
    tau2 = over / np.maximum(total - spread, 1e-300) if len(value) > 2 else 0.0
    found = np.abs(y - mean) / np.sqrt(1.0 / w + 1.0 / total + tau2 * (1.0 + spread / total))
    return np.asarray(found.max(axis=1))
