"""Summary and paragraph about a combination of sites."""

from __future__ import annotations

from dpeffects import summary
from dpeffects.estimators import find
from dpeffects.guarantee import KINDS, column_of, counted, status_warning
from dpeffects.inference import Interval, Unavailable
from dpeffects.report.blocks import RANDOMISED, adjusted_for
from dpeffects.report.paragraph import reading, software
from dpeffects.report.release_summary import short
from dpeffects.results.export import or_nan
from dpeffects.results.number_format import number, numbers, to_error
from dpeffects.results.wording import (
    asked_for,
    called,
    capital,
    effect_sentence,
    effect_table,
    effect_words,
    means_block,
    missing_words,
    p_words,
    percent,
    split,
)
from dpeffects.services.sites.combination import CombinedEffect
from dpeffects.services.sites.notes import listed
from dpeffects.services.sites.rules import RULES
from dpeffects.services.sites.site_documents import SiteRelease

_CITATION = (
    "Koga, Chaudhuri and Page, Differentially private multi-site treatment effect estimation"
)
_REST = "Sampling error, including the choice of weights and the variance between sites,"
_PROMISES, _SHOWN = 5, 25
"""Guarantees said in words; sites shown one by one, of more those with the largest weights."""


def whole(fit: CombinedEffect, conf_level: float | None = None) -> summary.Summary:
    """Build the summary of a combination."""
    conf_level = fit.conf_level if conf_level is None else conf_level
    count = f"{len(fit.releases)} site{'' if len(fit.releases) == 1 else 's'}"
    blocks = (
        _header(fit),
        effect_table(fit, conf_level),
        fit._error_parts(),
        *means_block(fit, conf_level),
        _sites(fit),
        _guarantees(fit),
        _heterogeneity(fit),
        _left_out(fit),
        summary.noted((*fit.notes, f"Guarantees in full: {_promises(fit)}.")),
    )
    return summary.Summary(
        capital(f"{called(fit)} of {count} combined, differentially private"),
        summary.starred((status_warning(fit.status), *fit.warning_lines)),
        tuple(block for block in blocks if block),
    )


def described(fit: CombinedEffect, conf_level: float) -> str:
    """Write the paragraph on methods and results for a paper."""
    interval = fit.conf_int(conf_level)
    sentences = [
        _opening(fit, interval),
        f"Warnings: {fit.warnings}." if fit.warnings else "",
        f"The sites used {listed(dict.fromkeys(r.method for r in fit.used))} for the formula "
        f"{fit.formula}. Estimates were combined by {RULES[fit.rule].words} (rule {fit.rule}).",
        _prices(fit),
        *_estimate(fit, interval),
        _differences(fit),
        software(),
        f"Method: {_CITATION}.",
    ]
    return " ".join(filter(None, sentences))


def brief(fit: CombinedEffect, conf_level: float | None = None) -> summary.Summary:
    """Build the short summary of a combination."""
    level = fit.conf_level if conf_level is None else conf_level
    return short(fit, _in_a_line(fit), conf_level=level)


def _in_a_line(fit: CombinedEffect) -> str:
    """The guarantees of all sites, and where there is none."""
    words = {release.guarantee.short() for release in fit.releases}
    if len(words) == 1:
        return f"{words.pop()}, at each site"
    epsilons = [float(release.guarantee.epsilon) for release in fit.releases]
    low, high = (number(x, 3) for x in (min(epsilons), max(epsilons)))
    lost = [release.site for release in fit.releases if not release.guarantee.holds]
    spent = low if low == high else f"{low} to {high}"
    return f"differential privacy at each site, epsilon {spent}" + (
        f"; NOT at {listed(lost)}" if lost else ""
    )


def _header(fit: CombinedEffect) -> summary.Pairs:
    left = f"; {len(fit.left_out)} excluded" if fit.left_out else ""
    rows = (
        ("Formula", fit.formula),
        ("Estimand", asked_for(fit)),
        ("Adjusted for", adjusted_for(fit)),
        ("Assumes", _assumed(fit)),
        ("Combined by", f"{RULES[fit.rule].words} (rule {fit.rule})"),
        ("Sites", f"{len(fit.used)} used{left}"),
        ("Records", f"{fit.n:,} in the sites used"),
        ("Guarantee", _promises(fit, in_full=False)),
    )
    return summary.Pairs(tuple(row for row in rows if row[1]))


def _assumed(fit: CombinedEffect) -> str:
    """What has to be true at every site for the interval to hold, by the methods used there."""
    if fit.identification == "randomised":
        return RANDOMISED
    specs = [] if fit.associated else [find(release.method) for release in fit.used]
    return "; ".join(dict.fromkeys(spec.assumes for spec in specs if spec and spec.assumes))


def _promises(fit: CombinedEffect, in_full: bool = True) -> str:
    """The guarantees in words, each with its sites."""
    parts: dict[str, list[str]] = {}
    for release in fit.releases:
        own = release.guarantee
        parts.setdefault(own.sentence() if in_full else own.short(), []).append(release.site)
    said = [f"{listed(sites)}: {words}" for words, sites in parts.items()]
    more = [f"and {len(said) - _PROMISES} more"] if len(said) > _PROMISES else []
    return ". ".join(said[:_PROMISES] + more)


def _largest(fit: CombinedEffect) -> list[tuple[SiteRelease, float]]:
    pairs = list(zip(fit.releases, fit.weights, strict=True))
    if len(pairs) <= _SHOWN:
        return pairs
    return sorted(pairs, key=lambda pair: -pair[1])[:_SHOWN]


def _more(fit: CombinedEffect, width: int) -> list[tuple[str, ...]]:
    rest = len(fit.releases) - _SHOWN
    return [(f"and {rest} more", *[""] * (width - 1))] if rest > 0 else []


def _sites(fit: CombinedEffect) -> summary.Table:
    sites = _largest(fit)
    rows = []
    for release, weight in sites:
        error = or_nan(release.std_error)
        cells = to_error((release.estimate, error), error)
        share = percent(weight, ".1f") if weight else "-"
        rows.append((release.site, release.method, f"{release.n:,}", *cells, share))
    columns = ("site", "method", "records", "estimate", "std. error", "weight")
    more = _more(fit, len(columns))
    title = "Sites with the largest weights" if more else "Sites"
    return summary.Table(title, columns, (*rows, *more), "llrrrr")


def _guarantees(fit: CombinedEffect) -> summary.Table:
    sites = _largest(fit)
    epsilons = numbers([float(release.guarantee.epsilon) for release, _ in sites])
    deltas = numbers([float(release.guarantee.delta) for release, _ in sites])
    rows = [
        (release.site, epsilon, delta, _protects(release), release.guarantee.status)
        for (release, _), epsilon, delta in zip(sites, epsilons, deltas, strict=True)
    ]
    columns = ("site", "epsilon", "delta", "protects", "guarantee")
    title = "Guarantees of the sites, each for the people in its own data"
    return summary.Table(title, columns, (*rows, *_more(fit, 5)), "lrrll")


def _protects(release: SiteRelease) -> str:
    unit = release.guarantee.unit
    return unit if column_of(unit) else f"one {unit}"


def _heterogeneity(fit: CombinedEffect) -> summary.Pairs:
    test, title = fit.heterogeneity, "Heterogeneity of effects between sites"
    if isinstance(test, Unavailable):
        return summary.Pairs((("Test", str(test)),), title)
    q = f"{number(test.q, 3)} on {_freedom(test.df)}, p {p_words(test.p_value)}"
    rows = (
        ("Cochran's Q", q),
        ("tau", f"{number(test.tau2**0.5, 2)}, SD of effects between sites (DerSimonian-Laird)"),
        ("I^2", f"{percent(test.i2, '.1f')} of the variation of the estimates is heterogeneity"),
    )
    return summary.Pairs(rows, title)


def _freedom(df: int) -> str:
    return f"{df} degree{'' if df == 1 else 's'} of freedom"


def _left_out(fit: CombinedEffect) -> summary.Pairs | None:
    rows = tuple(fit.left_out.items())
    if not rows:
        return None
    if len(rows) > _SHOWN:
        rows = (*rows[:_SHOWN], ("...", f"and {len(rows) - _SHOWN} more"))
    return summary.Pairs(rows, "Sites excluded")


def _opening(fit: CombinedEffect, interval: Interval | Unavailable) -> str:
    missing = missing_words(interval)
    lack = f", without {missing}" if missing else ""
    whose = counted(fit.releases[0].guarantee.unit)
    text = (
        f"{effect_words(fit)} was combined from "
        f"{len(fit.used)} of {len({*fit.left_out, *(r.site for r in fit.releases)})} sites with "
        f"{fit.n} {whose}{lack}"
    )
    if fit.status.startswith("void"):
        return f"NOT PRIVATE ({fit.status.removeprefix('void: ')}): {text}; the guarantee is void."
    if fit.status != "exact":
        return f"{KINDS[fit.status].warning()}: {text}."
    return f"T{text[1:]}, each of which released under differential privacy for its own {whose}."


def _prices(fit: CombinedEffect) -> str:
    ranges = dict.fromkeys(r.bounds[0][1:] for r in fit.releases if r.bounds)
    bounds = listed([f"{text} ({source})" for text, source in ranges])
    outcome = f" The outcome was clipped to {bounds}." if ranges else ""
    return f"Guarantees: {_promises(fit)}.{outcome}"


def _estimate(fit: CombinedEffect, interval: Interval | Unavailable) -> list[str]:
    error, noise, bias = fit.std_error, fit.noise_variance, fit.bias_variance
    what = "association" if fit.associated else "effect"
    if isinstance(interval, Unavailable) or isinstance(error, Unavailable):
        return [
            f"The estimate is {to_error((fit.estimate,), noise**0.5)[0]}; its privacy noise has a "
            f"standard deviation of {number(noise**0.5, 2)}, and it supports no statement on "
            f"whether there is an {what}."
        ]
    allowed = f"The interval includes an allowance for bias with an SD of {number(bias**0.5, 2)}."
    assumption = "treatment was as good as random given the covariates at every site"
    return [
        effect_sentence(fit.estimate, error, interval, fit.p_value),
        split(max(error**2 - noise - bias, 0.0), noise, rest=_REST, bias=bias),
        allowed * (bias > 0.0),
        reading(interval, assumption, what),
    ]


def _differences(fit: CombinedEffect) -> str:
    test = fit.heterogeneity
    if isinstance(test, Unavailable):
        return f"The heterogeneity of effects between sites is {test}."
    return (
        f"Heterogeneity between sites: Cochran's Q = {number(test.q, 3)} on {_freedom(test.df)} "
        f"(p {p_words(test.p_value)}), I squared {percent(test.i2, '.1f')}."
    )
