"""The summary of a result, and the blocks that summaries have in common."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Protocol

from dpeffects.inference import intervals as inference
from dpeffects.inference.estimate import SamplingVariance, Unavailable
from dpeffects.privacy.guarantee import KINDS
from dpeffects.render import Block, Notes, Pairs, Prose, Summary, Table
from dpeffects.render.blocks import NO_BREAK
from dpeffects.results.numbers import joined, number, numbers, text_of

if TYPE_CHECKING:
    from dpeffects.privacy.guarantee import Spend
    from dpeffects.results.record import Record
    from dpeffects.results.result import Result

__all__ = [
    "ESTIMANDS",
    "LEVELS",
    "SOURCES",
    "Block",
    "Effect",
    "Notes",
    "Pairs",
    "Prose",
    "Summary",
    "Table",
    "alert",
    "bounds_text",
    "budget",
    "effect_table",
    "header",
    "summarise",
]

ESTIMANDS = {
    "ATE": "average treatment effect",
    "ATT": "average treatment effect on the treated",
    "ATC": "average treatment effect on the controls",
    "CATE": "conditional average treatment effect",
}
_PRICE = re.compile(r"\([^ ,()]+, [^ ,()]+\)-")
"""(epsilon, delta), which stays on one line."""
LEVELS = {
    "sample": "sample level (records are private)",
    "label": "label level (only outcomes are private)",
    "none": "no level of privacy (nothing is protected)",
}
SOURCES = {
    "declared": "declared",
    "dtype": "from the column's type",
    "public": "public",
    "private": "found privately",
    "data": "READ FROM THE DATA (not private)",
}


class Effect(Protocol):
    """What a line about an effect needs."""

    @property
    def estimand(self) -> str:
        """ATE, ATT or ATC."""

    @property
    def outcome(self) -> str:
        """Name of the outcome."""

    @property
    def treatment(self) -> str:
        """Name of the treatment."""

    @property
    def estimate(self) -> float:
        """The effect."""

    @property
    def std_error(self) -> float | Unavailable:
        """Its standard error."""

    @property
    def p_value(self) -> float | Unavailable:
        """Its p-value."""

    def conf_int(self, level: float = 0.95) -> inference.Interval | Unavailable:
        """Return its confidence interval."""


def summarise(result: Result, conf_level: float = 0.95) -> Summary:
    """Build the summary of a result."""
    blocks: list[Block] = [
        header(result),
        effect_table(result, conf_level),
        _error_parts(result),
    ]
    if result.spends:
        blocks.append(budget(result))
    if result.details:
        rows = tuple((str(name), text_of(value)) for name, value in result.details.items())
        blocks.append(Pairs(rows, "Details"))
    notes = tuple(filter(None, (*_inference_notes(result, conf_level), *result.notes)))
    if notes:
        blocks.append(Notes(notes))
    if result.citation:
        blocks.append(Pairs((("Cite", result.citation),)))
    what = ESTIMANDS.get(result.estimand, result.estimand)
    private = f"Private {what}" if result.level != "none" else f"Not private: {what}"
    title = f"{private}: {result.method_title} ({result.method})"
    return Summary(title, alert(result), tuple(blocks))


def alert(result: Record) -> str:
    """What must not be overlooked: a guarantee that does not hold, and cautions."""
    guarantee, alerts = result.guarantee, []
    if guarantee.void:
        alerts.append(f"*** NOT PRIVATE: {', '.join(guarantee.void)} ***")
    if guarantee.kind != "exact":
        alerts.append(f"*** {KINDS[guarantee.kind].words.upper()} ***")
    if result.caution:
        alerts.append(f"*** {result.caution} ***")
    return "\n".join(alerts)


def header(result: Record) -> Pairs:
    """What was estimated, how, from what, and under which promise."""
    what = ESTIMANDS.get(result.estimand, "effect")
    rows = [
        ("Formula", result.formula),
        ("Estimand", f"{result.estimand}, {what}"),
        ("Method", f"{result.method} at {LEVELS.get(result.level, result.level)}"),
        ("Options", _options(result)),
        ("Records", f"n = {result.n}"),
        ("Guarantee", _PRICE.sub(_whole, result.guarantee.sentence())),
        ("Noise", result.noise_source),
        ("Bounds", bounds_text(result)),
    ]
    return Pairs(tuple((name, text) for name, text in rows if text))


def bounds_text(result: Record) -> str:
    """Outcome and treatment first, covariates counted by source, risky or found ones named."""
    found = [(name, _unbroken(text), source) for name, text, source in result.bounds]
    roles = dict.fromkeys(result.outcome.split(", "), "outcome") | {result.treatment: "treatment"}
    first = [
        f"{roles[name]} {text} {SOURCES.get(source, source)}"
        for role in roles
        for name, text, source in found
        if name == role
    ]
    rest = [bound for bound in found if bound[0] not in roles]
    parts = []
    for source in dict.fromkeys(source for _, _, source in rest):
        group = [(name, text) for name, text, where in rest if where == source]
        count = f"{len(group)} covariate{'s' if len(group) > 1 else ''}"
        line = f"{count} {SOURCES.get(source, source)}"
        if source in ("private", "data"):
            line += ": " + ", ".join(_unbroken(f"{name} {text}") for name, text in group)
        parts.append(line)
    return "; ".join(first + parts)


def _unbroken(text: str) -> str:
    """Keep a range on one line; long lists of levels may break."""
    return text.replace(" ", NO_BREAK) if len(text) <= 40 else text


def _whole(match: re.Match[str]) -> str:
    return _unbroken(match[0])


def effect_table(result: Effect, conf_level: float) -> Table:
    """Return the line that everybody reads first: the effect, its error, interval and p-value."""
    title = f"Effect of {result.treatment} on {result.outcome}"
    low, high = (f"{50 * (1 + side * conf_level):.4g} %" for side in (-1, 1))
    columns = ("", "estimate", "std. error", low, high, "p-value")
    interval, error, p = result.conf_int(conf_level), result.std_error, result.p_value
    if isinstance(interval, Unavailable) or isinstance(error, Unavailable):
        cells: tuple[str, ...] = (number(result.estimate), "n/a", "n/a", "n/a")
    else:
        cells = numbers((result.estimate, error, *interval))
    last = "n/a" if isinstance(p, Unavailable) else "<0.0001" if p < 1e-4 else f"{p:.4f}"
    return Table(title, columns, ((result.estimand, *cells, last),), "lrrrrr")


def _error_parts(result: Result) -> Table:
    title, columns = "Standard error", ("part", "std. deviation", "share of variance")
    sampling, noise = result.sampling_variance, result.noise_variance
    if isinstance(sampling, Unavailable) or not math.isfinite(sampling + noise):
        sd = "n/a" if math.isnan(noise) else number(math.sqrt(noise))
        known = ("privacy noise", sd, "n/a")
        return Table(title, columns, (("sampling error", "n/a", "n/a"), known), "lrr")
    total = sampling + noise
    share = noise / total if total > 0.0 else 0.0
    sds = numbers([math.sqrt(variance) for variance in (sampling, noise, total)])
    shares = (f"{100 * (1 - share):.1f} %", f"{100 * share:.1f} %", "100.0 %")
    parts = ("sampling error", "privacy noise", "both")
    return Table(title, columns, tuple(zip(parts, sds, shares, strict=True)), "lrr", total=True)


def budget(result: Record) -> Table:
    """One row a release with its charge, and their sum; what other charges cover says so."""
    spends, asked = result.spends, result.epsilon_asked
    columns = ["release", "mechanism", "sensitivity", "scale", "epsilon", "delta", "claim"]
    epsilons = numbers([*(s.epsilon for s in spends), sum(s.epsilon for s in spends)])
    deltas = numbers([*(s.delta for s in spends), sum(s.delta for s in spends)])
    rows = []
    for spend, epsilon, delta in zip(spends, epsilons[:-1], deltas[:-1], strict=True):
        if spend.covered:
            epsilon, delta = "covered", "covered"
        sizes = (joined(spend.sensitivity), joined(spend.scale))
        rows.append([_label(spend), spend.mechanism, *sizes, epsilon, delta, str(spend.claim)])
    against = "" if asked is None else f"of {number(asked)} asked"
    rows.append(["total", against, "", "", epsilons[-1], deltas[-1], ""])
    if not any(spend.delta for spend in spends):
        for row in (columns, *rows):
            del row[5]
    align = "ll" + "r" * (len(columns) - 2)
    return Table(
        "Privacy budget (claims: dpeffects/privacy/PROOFS.md)",
        tuple(columns),
        tuple(map(tuple, rows)),
        align,
        total=True,
    )


def _label(spend: Spend) -> str:
    return spend.label if spend.share in spend.label else f"{spend.share}: {spend.label}"


def _inference_notes(result: Result, conf_level: float) -> tuple[str, ...]:
    sampling, interval = result.released.sampling, result.conf_int(conf_level)
    if isinstance(interval, Unavailable):
        return (
            f"Standard error, interval and p-value are {interval}.",
            *_noise_only(result, conf_level),
        )
    law = (
        "Interval and p-value come from a normal sampling error plus the privacy noise, averaged "
        "over the uncertainty of the released variance, so p is not that of estimate / std. error."
    )
    if isinstance(sampling, SamplingVariance) and sampling.value < sampling.noise_scale:
        return (
            law,
            f"The sampling variance was released as {number(sampling.value)} with noise of scale "
            f"{number(sampling.noise_scale)}: it is hardly known. Standard error, interval and "
            "p-value average over what it may be, and are cautious.",
        )
    return (law,)


def _options(result: Record) -> str:
    """Options that are set; None stands for a choice that the method makes."""
    given = {name: x for name, x in result.options.items() if x is not None}
    return ", ".join(_unbroken(f"{name} = {text_of(x)}") for name, x in given.items())


def _noise_only(result: Result, conf_level: float) -> tuple[str, ...]:
    noise = inference.noise_interval(result.released, conf_level)
    if isinstance(noise, Unavailable):
        return ()
    low, high = numbers(tuple(noise))
    return (
        f"Without its privacy noise the estimate would lie in [{low}, {high}] with probability "
        f"{100 * conf_level:.4g} %. This is not an interval for the effect: it leaves out the "
        "sampling error.",
    )
