"""The summary of a combination, in the blocks of the other summaries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpeffects.inference.estimate import Unavailable
from dpeffects.privacy.guarantee import alarm
from dpeffects.results.numbers import number, numbers
from dpeffects.results.summary import (
    ESTIMANDS,
    Block,
    Notes,
    Pairs,
    Summary,
    Table,
    effect_table,
)
from dpeffects.sites.notes import listed
from dpeffects.sites.rules import RULES

if TYPE_CHECKING:
    from dpeffects.sites.combination import Combined
    from dpeffects.sites.release import SiteRelease

_PROMISES, _SHOWN = 5, 25
"""Guarantees said in words; sites shown one by one, of more those with the largest weights."""


def summarise(fit: Combined, conf_level: float) -> Summary:
    """Build the summary of a combination."""
    blocks: list[Block] = [_header(fit), effect_table(fit, conf_level), _sites(fit)]
    blocks += [_guarantees(fit), _heterogeneity(fit)]
    if fit.left_out:
        blocks.append(_left_out(fit))
    if fit.notes:
        blocks.append(Notes(fit.notes))
    what = ESTIMANDS.get(fit.estimand, fit.estimand)
    title = f"Private {what} of {_count(fit.releases)} ({fit.rule})"
    return Summary(title, _alert(fit), tuple(blocks))


def _count(things: tuple[object, ...], what: str = "site") -> str:
    return f"{len(things)} {what}{'' if len(things) == 1 else 's'}"


def _alert(fit: Combined) -> str:
    alerts = (alarm(fit.status), *fit.cautions)
    return "\n".join(f"*** {words} ***" for words in alerts if words)


def _header(fit: Combined) -> Pairs:
    left = f"; {len(fit.left_out)} left out" if fit.left_out else ""
    what = ESTIMANDS.get(fit.estimand, "effect")
    rows = (
        ("Formula", fit.formula),
        ("Estimand", f"{fit.estimand}, {what}"),
        ("Rule", f"{fit.rule}: {RULES[fit.rule].words}"),
        ("Sites", f"{len(fit.used)} used{left}"),
        ("Records", f"n = {fit.n} in the sites used"),
        ("Guarantee", promises(fit)),
    )
    return Pairs(rows)


def promises(fit: Combined) -> str:
    """The guarantees in words, each with its sites."""
    parts: dict[str, list[str]] = {}
    for release in fit.releases:
        parts.setdefault(release.guarantee.sentence(), []).append(release.site)
    said = [f"{listed(sites)}: {words}" for words, sites in parts.items()]
    more = [f"and {len(said) - _PROMISES} more"] if len(said) > _PROMISES else []
    return ". ".join(said[:_PROMISES] + more)


def _shown(fit: Combined) -> list[tuple[SiteRelease, float]]:
    pairs = list(zip(fit.releases, fit.weights, strict=True))
    if len(pairs) <= _SHOWN:
        return pairs
    return sorted(pairs, key=lambda pair: -pair[1])[:_SHOWN]


def _more(fit: Combined, width: int) -> list[tuple[str, ...]]:
    rest = len(fit.releases) - _SHOWN
    return [(f"and {rest} more", *[""] * (width - 1))] if rest > 0 else []


def _sites(fit: Combined) -> Table:
    shown = _shown(fit)
    estimates = numbers([release.estimate for release, _ in shown])
    known = [release.std_error for release, _ in shown]
    errors = iter(numbers([e for e in known if not isinstance(e, Unavailable)]))
    rows = [
        (
            release.site,
            release.method,
            str(release.n),
            estimate,
            "n/a" if isinstance(error, Unavailable) else next(errors),
            f"{100 * weight:.1f} %" if weight else "-",
        )
        for (release, weight), estimate, error in zip(shown, estimates, known, strict=True)
    ]
    columns = ("site", "method", "n", "estimate", "std. error", "weight")
    more = _more(fit, len(columns))
    title = "Sites with the largest weights" if more else "Sites"
    return Table(title, columns, (*rows, *more), "llrrrr")


def _guarantees(fit: Combined) -> Table:
    shown = _shown(fit)
    epsilons = numbers([float(release.guarantee.epsilon) for release, _ in shown])
    deltas = numbers([float(release.guarantee.delta) for release, _ in shown])
    rows = [
        (release.site, epsilon, delta, f"one {release.guarantee.unit}", release.guarantee.status)
        for (release, _), epsilon, delta in zip(shown, epsilons, deltas, strict=True)
    ]
    columns = ("site", "epsilon", "delta", "protects", "guarantee")
    title = "Guarantees: of each site to the people in its own data"
    return Table(title, columns, (*rows, *_more(fit, 5)), "lrrll")


def _heterogeneity(fit: Combined) -> Pairs:
    found, title = fit.heterogeneity, "Do the sites' effects differ?"
    if isinstance(found, Unavailable):
        return Pairs((("Test", str(found)),), title)
    p = "<0.0001" if found.p_value < 1e-4 else f"{found.p_value:.4f}"
    rows = (
        ("Cochran's Q", f"{number(found.q)} on {found.df} degrees of freedom, p = {p}"),
        ("tau", f"{number(found.tau2**0.5)}, standard deviation between the sites' effects"),
        ("I^2", f"{100 * found.i2:.1f} % of the variation of the estimates"),
    )
    return Pairs(rows, title)


def _left_out(fit: Combined) -> Pairs:
    rows = tuple(fit.left_out.items())
    if len(rows) > _SHOWN:
        rows = (*rows[:_SHOWN], ("...", f"and {len(rows) - _SHOWN} more"))
    return Pairs(rows, "Left out")
