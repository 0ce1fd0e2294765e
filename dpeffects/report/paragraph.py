"""The sentences that a statistician would write about a release."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cache
from importlib import metadata

from dpeffects.guarantee import KINDS, Guarantee, column_of, protected, replaced
from dpeffects.inference.intervals import Interval
from dpeffects.report.blocks import analysed, bounds_text, formula_text, level_words, size_words
from dpeffects.results.number_format import number, to_error
from dpeffects.results.result_base import ResultBase
from dpeffects.results.wording import capital, effect_words, said

_SAID = said("paragraph")


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
    record: ResultBase,
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
        definition(record.guarantee),
        f"Warnings: {record.warnings}." if record.warnings else "",
        f"The method was {record.method_title} ({record.method}) at "
        f"{level_words(record)}, applied to n = {size_words(record, always=True)}"
        f"{',' if column_of(record.guarantee.unit) else ''} with the "
        f"formula {formula_text(record.formula)}.",
        _bounds(record),
        f"Analysis sample: {sample}." if (sample := analysed(record)) else "",
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
        return f"{kind.warning()}: {what} was {verb}{lack} {kind.under} {promise}."
    return f"{capital(what)} was {verb}{lack} {kind.under} {promise}."


def definition(guarantee: Guarantee) -> str:
    """Say in one sentence what differential privacy is."""
    delta = ", apart from a probability of at most delta" if guarantee.delta else ""
    private = guarantee.kind != "none"
    return str(_SAID["definition"]).format(replaced(guarantee.unit), delta) if private else ""


def software() -> str:
    """Name what computed the numbers."""
    known = versions()
    return f"Computed with dpeffects {known['dpeffects']} and OpenDP {known['OpenDP']}."


def reading(interval: Interval, if_random: str, what: str = "effect") -> str:
    """Say what the interval of an effect, or of an association, does and does not show."""
    if interval.lower <= 0.0 <= interval.upper:
        low, high = to_error((), math.nan, ends=tuple(interval))
        return str(_SAID["zero"].format(what, low, high))
    return str(_SAID[what].format(if_random))


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


def _bounds(record: ResultBase) -> str:
    text = bounds_text(record).replace("\u00a0", " ")
    return f"Values were clipped to bounds: {text}." if text else ""


def _budget(record: ResultBase) -> str:
    charges = [charge for charge in record.charges if not charge.covered]
    if not charges:
        return ""
    asked = record.epsilon_requested
    whole = number(record.guarantee.epsilon if asked is None else asked)
    shared = ""
    if len(charges) < len(record.charges):
        whose = "all subsets" if charges[0].claim == 31 else "the other half of the records"
        shared = f" It was shared with {whose}."
    drawn = [x.mechanism for x in record.charges if not x.mechanism.startswith(("no draw", "none"))]
    how = f" (mechanism: {', '.join(dict.fromkeys(drawn))})" if drawn else ""
    noise = f" Noise: {record.noise_source}." if record.noise_source else ""
    size = "1 release" if len(charges) == 1 else f"{len(charges)} releases"
    return f"The privacy budget of epsilon = {whole} was spent on {size}{how}.{shared}{noise}"
