"""The sentences about a combination of sites."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpeffects.inference.estimate import Unavailable
from dpeffects.privacy.guarantee import KINDS
from dpeffects.results.numbers import number
from dpeffects.results.report import effect_sentence, reading, software, split
from dpeffects.results.summary import ESTIMANDS
from dpeffects.sites.notes import listed
from dpeffects.sites.rules import RULES
from dpeffects.sites.summary import promises

if TYPE_CHECKING:
    from dpeffects.inference.intervals import Interval
    from dpeffects.sites.combination import Combined

_CITATION = (
    "Koga, Chaudhuri and Page, Differentially private multi-site treatment effect estimation"
)

_REST = "Sampling error, with what the choice of weights and differences between sites add,"


def about_combined(fit: Combined, conf_level: float) -> str:
    """Write the paragraph for a combination of sites."""
    interval = fit.conf_int(conf_level)
    sentences = [
        _opening(fit, interval),
        f"Caution: {fit.caution}." if fit.caution else "",
        f"The sites used {listed(dict.fromkeys(r.method for r in fit.used))} for the formula "
        f"{fit.formula}, and were combined by the rule {fit.rule} ({RULES[fit.rule].words}).",
        _prices(fit),
        *_estimate(fit, interval),
        _heterogeneity(fit),
        software(),
        f"Method: {_CITATION}.",
    ]
    return " ".join(filter(None, sentences))


def _opening(fit: Combined, interval: Interval | Unavailable) -> str:
    lack = ""
    if isinstance(interval, Unavailable):
        lack = f", without standard error, interval and p-value ({interval})"
    what = ESTIMANDS.get(fit.estimand, "effect")
    text = (
        f"the {what} ({fit.estimand}) of {fit.treatment} on {fit.outcome} was combined from "
        f"{len(fit.used)} of {len({*fit.left_out, *(r.site for r in fit.releases)})} sites with "
        f"{fit.n} records{lack}"
    )
    if fit.status.startswith("void"):
        return f"NOT PRIVATE ({fit.status.removeprefix('void: ')}): {text}; the guarantee is void."
    if fit.status != "exact":
        return f"{KINDS[fit.status].alert()}: {text}."
    return f"T{text[1:]}, each of which released under differential privacy for its own records."


def _prices(fit: Combined) -> str:
    ranges = dict.fromkeys(r.bounds[0][1:] for r in fit.releases if r.bounds)
    bounds = listed([f"{text} ({source})" for text, source in ranges])
    outcome = f" The outcome was clipped to {bounds}." if ranges else ""
    return f"Guarantees: {promises(fit)}.{outcome}"


def _estimate(fit: Combined, interval: Interval | Unavailable) -> list[str]:
    error, noise = fit.std_error, fit.noise_variance
    if isinstance(interval, Unavailable) or isinstance(error, Unavailable):
        return [
            f"The estimate is {number(fit.estimate)}; its privacy noise has a standard deviation "
            f"of {number(noise**0.5)}, and it supports no statement on whether there is an effect."
        ]
    assumption = "in every site treatment was as good as random given what was adjusted for"
    return [
        effect_sentence(fit.estimate, error, interval, fit.p_value),
        split(max(error**2 - noise, 0.0), noise, rest=_REST),
        reading(interval, assumption),
    ]


def _heterogeneity(fit: Combined) -> str:
    found = fit.heterogeneity
    if isinstance(found, Unavailable):
        return f"Whether the sites' effects differ is {found}."
    p = "< 0.0001" if found.p_value < 1e-4 else f"= {found.p_value:.4f}"
    return (
        f"Cochran's Q for differences between the sites' effects is {number(found.q)} on "
        f"{found.df} degrees of freedom (p {p}); "
        f"{100 * found.i2:.1f} % of the variation of the estimates is between sites."
    )
