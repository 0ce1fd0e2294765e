"""The sentences that a statistician would write about a release."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cache
from importlib import metadata

from dpeffects.guarantee import KINDS, Guarantee, column_of, protected
from dpeffects.inference.intervals import Interval
from dpeffects.report.blocks import bounds_text, formula_text, level_words, size_words
from dpeffects.results.numbers import number, to_error
from dpeffects.results.record import Record
from dpeffects.results.words import capital, effect_words, percent

_LARGEST = 3
"""Shares of the budget that a sentence names."""


@cache
def versions() -> dict[str, str]:
    """Return what computed a result: dpeffects, OpenDP and Python."""
    import platform

    known = {}
    for name, package in (("dpeffects", "dpeffects"), ("OpenDP", "opendp")):
        try:
            known[name] = metadata.version(package)
        except metadata.PackageNotFoundError:
            known[name] = "(version unknown)"
    return {**known, "Python": platform.python_version()}


def paragraph(
    record: Record,
    findings: Iterable[str],
    missing: str = "",
    subject: str = "",
    verb: str = "estimated",
) -> str:
    """Write the paragraph of a record around its findings.

    ``subject`` is what was estimated (or what the ``verb`` says), by default an effect, and
    ``missing`` what is not there of it; both are in the first sentence.
    """
    sentences = [
        opening(subject or effect_words(record), verb, record.guarantee, missing),
        f"Caution: {record.caution}." if record.caution else "",
        f"The method was {record.method_title} ({record.method}) at "
        f"{level_words(record)}, applied to n = {size_words(record, always=True)}"
        f"{',' if column_of(record.guarantee.unit) else ''} with the "
        f"formula {formula_text(record.formula)}.",
        _bounds(record),
        f"Who counts: {'; '.join(record.sample.values())}." if record.sample else "",
        _budget(record),
        *findings,
        software(),
        f"Method: {record.citation.rstrip('.')}." if record.citation else "",
    ]
    return " ".join(filter(None, sentences))


def opening(what: str, verb: str, guarantee: Guarantee, missing: str = "") -> str:
    """First sentence: what was estimated under which promise, and what is wrong with it."""
    promise = _promise(guarantee)
    lack = f", without {missing}," if missing else ""
    kind = KINDS[guarantee.kind]
    if guarantee.void:
        return (
            f"NOT PRIVATE ({', '.join(guarantee.void)}): {what} was {verb}{lack} with the noise "
            f"of {promise}, which is void{kind.void}."
        )
    if kind.words:
        return f"{kind.alert()}: {what} was {verb}{lack} {kind.under} {promise}."
    return f"{capital(what)} was {verb}{lack} {kind.under} {promise}."


def software() -> str:
    """Name what computed the numbers."""
    known = versions()
    return f"Computed with dpeffects {known['dpeffects']} and OpenDP {known['OpenDP']}."


def reading(interval: Interval, if_random: str, what: str = "effect") -> str:
    """Say what the interval of an effect, or of an association, does and does not show."""
    if interval.lower <= 0.0 <= interval.upper:
        low, high = to_error((), math.nan, ends=tuple(interval))
        return (
            f"The interval includes zero: at this level there is no evidence of an {what}, and "
            f"{what}s from {low} to {high} are all compatible with the release."
        )
    if what == "association":
        return (
            "The interval excludes zero, which is evidence of an association. It says nothing of "
            "an effect: those who were treated may have differed before."
        )
    return f"The interval excludes zero, which is evidence of an effect if {if_random}."


def _promise(guarantee: Guarantee) -> str:
    if guarantee.kind == "none":
        return "privacy"
    epsilon, delta = number(guarantee.epsilon), number(guarantee.delta, 3)
    price = f"({epsilon}, {delta})" if guarantee.delta else epsilon
    unit = guarantee.unit
    whom = "the outcome of one record" if unit == "outcome" else protected(unit)
    if unit == "record" and "treatment" in guarantee.public:
        whom += " but its treatment"
    known = ", ".join(guarantee.public) or "nothing"
    return (
        f"{price}-differential privacy for {whom} (neighbouring data sets replace "
        f"{unit if column_of(unit) else 'one record'}; taken as public: {known})"
    )


def _bounds(record: Record) -> str:
    text = bounds_text(record).replace("\u00a0", " ")
    return f"Values were clipped to bounds: {text}." if text else ""


def _budget(record: Record) -> str:
    shares: dict[str, float] = {}
    charges = [spend for spend in record.spends if not spend.covered]
    for spend in charges:
        shares[spend.share] = shares.get(spend.share, 0.0) + spend.epsilon
    if not shares:
        return ""
    asked = record.guarantee.epsilon if record.epsilon_asked is None else record.epsilon_asked
    noise = f" Noise: {record.noise_source}." if record.noise_source else ""
    return (
        f"Epsilon = {number(asked)} paid for {len(charges)} release"
        f"{'s' if len(charges) > 1 else ''}{_most(shares)}.{_covered(record)}{noise}"
    )


def _most(shares: dict[str, float]) -> str:
    """What most of epsilon went to, where it went to more than one share."""
    if len(shares) < 2:
        return ""
    total, largest = sum(shares.values()), sorted(shares, key=shares.__getitem__)[-_LARGEST:]
    parts = [f"{percent(shares[name] / total, '.0f')} to {name}" for name in reversed(largest)]
    return f", of it {', '.join(parts[:-1])} and {parts[-1]}"


def _covered(record: Record) -> str:
    shares = dict.fromkeys(spend.share for spend in record.spends if spend.covered)
    if not shares:
        return ""
    whose = "all subsets" if record.spends[0].claim == 31 else "the other half of the records"
    return f" They also pay for what {whose} released: {', '.join(shares)}."
