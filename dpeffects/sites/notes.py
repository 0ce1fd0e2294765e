"""Sentences for the reader of a combination."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dpeffects.inference.estimate import BASES, Unavailable
from dpeffects.sites.random_effects import MixedLaw
from dpeffects.sites.release import SiteRelease
from dpeffects.sites.rules import Heterogeneity, Rule
from dpeffects.sites.weights import Floats

_LAW = (
    "Interval and p-value come from the sites' normal sampling errors plus their privacy noise, "
    "averaged over the uncertainty of the released variances"
)
_RANDOM = (
    "Interval and p-value are for the mean effect of sites like these. They average over how far "
    "effects may differ between sites, with a prior by which half of the standard deviations "
    "between sites are below three times the typical standard error of a site."
)
_MEDIAN = (
    "The estimate is the median of the sites' estimates, and the interval that of their intervals: "
    "each site has one vote. It holds if one of them lies, and is wider than it had to be if none "
    "does."
)
FEW_SITES = {
    1: "ONE SITE CANNOT SHOW HOW FAR EFFECTS DIFFER: this is the interval for its own effect",
    2: (
        "TWO SITES HARDLY SHOW HOW FAR EFFECTS DIFFER: a 95 % interval covers 92 % or more while "
        "the effects' standard deviation is below six of the sites' standard errors, else 88 %"
    ),
    3: (
        "THREE SITES HARDLY SHOW HOW FAR EFFECTS DIFFER: a 95 % interval covers about 92 % where "
        "the effects' standard deviation is above three of the sites' standard errors"
    ),
}
"""What the rule "random" cannot know, by the number of sites."""
_SEVERAL = (
    "Each site's guarantee covers the people in its own data; combining adds nothing to it. For "
    "somebody whose data is in several sites, the budgets of these sites add up."
)
_PARTS = {"ATT": "treated", "ATC": "control"}
_DIFFER = 0.1
"""Below this p-value of Q the reader is told that the effects differ."""


def notes(
    releases: Sequence[SiteRelease],
    weights: Floats,
    rule: Rule,
    law: object,
    test: Heterogeneity,
) -> tuple[str, ...]:
    """Return what a reader should know about this combination."""
    sentences = [_interval(rule, law), *_bases(releases, weights)]
    if rule.leaves_out and (weights == 0.0).any():
        sentences.append("The effect is that in the sites used, not that in those left out.")
    if rule.by_records and releases[0].estimand in _PARTS:
        sentences.append(
            f"Sites count by all their records, not by their {_PARTS[releases[0].estimand]} ones, "
            "whose numbers are private."
        )
    if rule.by_records and any("size" in release.sample for release in releases):
        sentences.append("Sites count by all their records, not by those that count in an effect.")
    if test.p_value < _DIFFER and not (rule.random_effects or rule.median):
        sentences.append(
            f"The sites' effects seem to differ (p = {test.p_value:.2g}). The interval is for the "
            'weighted mean of the effects in these sites; rule="random" is for sites like these.'
        )
    return (*sentences, *_differences(releases), _SEVERAL)


def _bases(releases: Sequence[SiteRelease], weights: Floats) -> list[str]:
    """What the sites' estimates rest on, and what is said of their biases."""
    used = [r for r, w in zip(releases, weights.tolist(), strict=True) if w > 0.0]
    of = {basis: [r.site for r in used if r.released.basis == basis] for basis in BASES}
    sentences = []
    if of["association"] and len(of["association"]) < len(used):
        sentences.append(
            f"Effects are combined with an association ({listed(of['association'])}): what comes "
            "of it is an association, and is called one. Leave these sites out for an effect."
        )
    if of["adjusted"]:
        sentences.append(
            "The estimates of sites that adjusted assume that no confounder is missing from the "
            "formula, and models that are linear in the terms of the formula."
        )
    if of["randomised"]:
        sites = listed(of["randomised"])
        sentences.append(f"Treatment is taken as randomised because the sites said so: {sites}.")
    if any(r.released.bias_variance > 0.0 for r in used):
        sentences.append(
            "Possible biases are taken as common to all sites, which is cautious: combining more "
            "sites does not average them out."
        )
    return sentences


def _interval(rule: Rule, law: object) -> str:
    if isinstance(law, Unavailable):
        return f"Standard error, interval and p-value are {law}."
    if isinstance(law, MixedLaw):
        return _RANDOM
    if rule.median:
        return _MEDIAN
    chosen = ", and allow for weights that were chosen by them" if rule.inflation else ""
    return f"{_LAW}{chosen}."


def _differences(releases: Sequence[SiteRelease]) -> list[str]:
    """What the sites did not do alike, although their effects can be combined."""
    kinds = dict.fromkeys(
        (r.method, r.bounds[0][1] if r.bounds else "", r.guarantee.public) for r in releases
    )
    methods, ranges, publics = (dict.fromkeys(each) for each in zip(*kinds, strict=True))
    sentences = []
    if len(methods) > 1:
        sentences.append(f"The sites used different methods: {listed(methods)}.")
    if len(ranges) > 1:
        sentences.append(
            f"The sites bounded the outcome differently: {listed(ranges)}. Outcomes beyond a "
            "range are clipped to it, so the effects are on different outcomes if many are."
        )
    if len(publics) > 1:
        words = listed([", ".join(public) for public in publics], "; ")
        sentences.append(f"What is public differs between sites: {words}.")
    return sentences


def listed(values: Iterable[str], between: str = ", ") -> str:
    """Return a few words side by side; of many, the first five."""
    words = [value or "(none)" for value in values]
    more = f"{between}and {len(words) - 5} more" if len(words) > 5 else ""
    return between.join(words[:5]) + more
