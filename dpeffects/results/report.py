"""report(): the sentences that a statistician would write about a release."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from importlib import metadata
from typing import TYPE_CHECKING

from dpeffects.inference import intervals as inference
from dpeffects.inference.estimate import SamplingVariance, Unavailable
from dpeffects.privacy.guarantee import KINDS
from dpeffects.results.numbers import number, numbers
from dpeffects.results.summary import ESTIMANDS, LEVELS, bounds_text

if TYPE_CHECKING:
    from dpeffects.privacy.guarantee import Guarantee
    from dpeffects.results.record import Record
    from dpeffects.results.result import Result


@dataclass(frozen=True, repr=False)
class Report:
    """A paragraph on methods and results: ``text`` is one line, printing wraps it.

    Examples
    --------
    >>> Report("We found 5 % more.").as_latex()
    'We found 5 \\\\% more.'
    """

    text: str

    def as_text(self, width: int = 80) -> str:
        """Return the paragraph in lines of at most ``width``."""
        return textwrap.fill(self.text, width, break_on_hyphens=False)

    def as_html(self) -> str:
        """Return the paragraph as an HTML element."""
        from dpeffects.render.html import escaped

        return f"<p>{escaped(self.text)}</p>"

    def as_latex(self) -> str:
        """Return the paragraph for LaTeX."""
        from dpeffects.render.latex import escaped

        return escaped(self.text)

    def as_markdown(self) -> str:
        """Return the paragraph for Markdown."""
        from dpeffects.render.markdown import escaped

        return escaped(self.text)

    def _repr_html_(self) -> str:
        return self.as_html()

    def __str__(self) -> str:
        return self.as_text()

    __repr__ = __str__


@cache
def versions() -> dict[str, str]:
    """Return what computed a result: dpeffects, OpenDP and Python."""
    import platform

    found = {}
    for name, package in (("dpeffects", "dpeffects"), ("OpenDP", "opendp")):
        try:
            found[name] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[name] = "(version unknown)"
    return {**found, "Python": platform.python_version()}


def about_effect(fit: Result, conf_level: float) -> str:
    """Write the paragraph for one average effect."""
    return paragraph(fit, _estimate(fit, conf_level), _missing(fit.conf_int(conf_level)))


def paragraph(record: Record, findings: Iterable[str], missing: str = "", subject: str = "") -> str:
    """Write the paragraph of a record around its findings.

    ``subject`` is what was estimated, by default an effect, and ``missing`` what is not there of
    it; both are in the first sentence.
    """
    sentences = [
        opening(subject or _effect_words(record), "estimated", record.guarantee, missing),
        f"Caution: {record.caution}." if record.caution else "",
        f"The method was {record.method_title} ({record.method}) at "
        f"{LEVELS.get(record.level, record.level)}, applied to n = {record.n} records with the "
        f"formula {record.formula}.",
        _bounds(record),
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
    return f"{what[0].upper()}{what[1:]} was {verb}{lack} {kind.under} {promise}."


def software() -> str:
    """Name what computed the numbers."""
    found = versions()
    return f"Computed with dpeffects {found['dpeffects']} and OpenDP {found['OpenDP']}."


def effect_sentence(
    estimate: float, error: float, interval: inference.Interval, p: float | Unavailable
) -> str:
    """Estimate, standard error, interval and p-value."""
    value, se, low, high = numbers((estimate, error, *interval))
    shown = "" if isinstance(p, Unavailable) else f"; p {'< 0.0001' if p < 1e-4 else f'= {p:.4f}'}"
    return (
        f"The estimate is {value} (standard error {se}; {100 * interval.level:.4g} % confidence "
        f"interval from {low} to {high}{shown})."
    )


def reading(interval: inference.Interval, if_random: str) -> str:
    """Say what the interval does and does not show."""
    if interval.lower <= 0.0 <= interval.upper:
        low, high = numbers(tuple(interval))
        return (
            f"The interval includes zero: at this level there is no evidence of an effect, and "
            f"effects from {low} to {high} are all compatible with the release."
        )
    return f"The interval excludes zero, which is evidence of an effect if {if_random}."


def split(
    sampling: float,
    noise: float,
    halves: tuple[float, float] | None = None,
    rest: str = "Sampling error",
) -> str:
    """Say how the error divides into sampling (or what the ``rest`` is called) and privacy."""
    total = sampling + noise
    share = 100 * noise / total if total > 0.0 else 0.0
    sds = numbers((math.sqrt(sampling), math.sqrt(noise)))
    text = (
        f"{rest} has a standard deviation of {sds[0]} and privacy noise one of {sds[1]}, "
        f"which is {share:.1f} % of the variance"
    )
    if halves is None:
        return f"{text}."
    alone = numbers(halves)
    return f"{text}; alone they would give half-widths of {alone[0]} and {alone[1]}."


def _effect_words(record: Record) -> str:
    what = ESTIMANDS.get(record.estimand, "effect")
    return f"the {what} ({record.estimand}) of {record.treatment} on {record.outcome}"


def _promise(guarantee: Guarantee) -> str:
    if guarantee.kind == "none":
        return "privacy"
    epsilon, delta = number(guarantee.epsilon), number(guarantee.delta)
    price = f"({epsilon}, {delta})" if guarantee.delta else epsilon
    whom = "everything in one record" if guarantee.unit == "record" else "the outcome of one record"
    if guarantee.unit == "record" and "treatment" in guarantee.public:
        whom += " but its treatment"
    known = ", ".join(guarantee.public) or "nothing"
    return (
        f"{price}-differential privacy for {whom} (neighbouring data sets replace one record; "
        f"taken as public: {known})"
    )


def _missing(interval: inference.Interval | Unavailable) -> str:
    if not isinstance(interval, Unavailable):
        return ""
    return f"standard error, interval and p-value ({interval})"


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
        f"Of epsilon = {number(asked)}, "
        + ", ".join(f"{epsilon:.3g} went to {name}" for name, epsilon in shares.items())
        + f", in {len(charges)} charge{'s' if len(charges) > 1 else ''}."
        + _covered(record)
        + noise
    )


def _covered(record: Record) -> str:
    shares = dict.fromkeys(spend.share for spend in record.spends if spend.covered)
    if not shares:
        return ""
    return f" They also pay for what the other half of the records released: {', '.join(shares)}."


def _estimate(fit: Result, conf_level: float) -> list[str]:
    interval, error = fit.conf_int(conf_level), fit.std_error
    sampling = fit.sampling_variance
    if isinstance(interval, Unavailable) or isinstance(error, Unavailable):
        sd = number(math.sqrt(fit.noise_variance))
        known = f"its privacy noise has a standard deviation of {sd}, and its sampling error is"
        if math.isnan(fit.noise_variance):
            known = "its privacy noise and its sampling error are"
        return [
            f"The estimate is {number(fit.estimate)}; {known} not known, so it supports no "
            "statement on whether there is an effect."
        ]
    found = [effect_sentence(fit.estimate, error, interval, fit.p_value)]
    if not isinstance(sampling, Unavailable):
        found.append(split(sampling, fit.noise_variance, _halves(fit, conf_level)))
    released = fit.released.sampling
    if isinstance(released, SamplingVariance) and released.value < released.noise_scale:
        found.append(
            "The released sampling variance is smaller than its own privacy noise; standard error "
            "and interval average over what it may be."
        )
    return [*found, reading(interval, _if_random(fit))]


def _halves(fit: Result, conf_level: float) -> tuple[float, float] | None:
    """Half-widths of the intervals that either error alone would give."""
    alone = inference.interval(replace(fit.released, laplace=(), gaussian=0.0), conf_level)
    noise = inference.noise_interval(fit.released, conf_level)
    if isinstance(alone, Unavailable) or isinstance(noise, Unavailable):
        return None
    return alone.upper - fit.estimate, noise.upper - fit.estimate


def _if_random(fit: Result) -> str:
    from dpeffects.errors import FormulaError
    from dpeffects.estimators import registry
    from dpeffects.formula import parse

    spec = registry().get(fit.method)
    try:
        covariates = parse(fit.formula).has_covariates
    except FormulaError:  # a result that was read from a file says what it likes
        covariates = True
    adjusted = covariates and (spec is None or spec.uses_covariates)
    if adjusted and not fit.caution.startswith(("NOT ADJUSTED", "HARDLY ADJUSTED")):
        return "treatment was as good as random given the covariates"
    return "treatment was randomised, as nothing or hardly anything is adjusted for"
