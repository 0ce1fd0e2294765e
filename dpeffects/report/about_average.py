"""Summary and paragraph about an average effect."""

from __future__ import annotations

import math
from dataclasses import replace

from dpeffects.errors import FormulaError
from dpeffects.estimators import registry
from dpeffects.formula import parse
from dpeffects.inference import intervals as inference
from dpeffects.inference.estimate import SamplingVariance, Unavailable
from dpeffects.report.blocks import (
    alert,
    closing,
    effect_table,
    header,
    percent,
    words_of,
)
from dpeffects.report.paragraph import (
    describe,
    effect_sentence,
    missing_words,
    paragraph,
    reading,
    split,
)
from dpeffects.results.average import Result
from dpeffects.results.numbers import number, numbers
from dpeffects.summary import Summary, Table, summarise


@summarise.register
def _(fit: Result, conf_level: float = 0.95) -> Summary:
    what = words_of(fit.estimand)
    private = f"Private {what}" if fit.level != "none" else f"Not private: {what}"
    notes = (*_inference_notes(fit, conf_level), *fit.notes)
    return Summary(
        f"{private}: {fit.method_title} ({fit.method})",
        alert(fit),
        (header(fit), effect_table(fit, conf_level), _error_parts(fit), *closing(fit, notes)),
    )


@describe.register
def _(fit: Result, conf_level: float) -> str:
    return paragraph(fit, _findings(fit, conf_level), missing_words(fit.conf_int(conf_level)))


def _error_parts(fit: Result) -> Table:
    title, columns = "Standard error", ("part", "std. deviation", "share of variance")
    sampling, noise = fit.sampling_variance, fit.noise_variance
    if isinstance(sampling, Unavailable) or not math.isfinite(sampling + noise):
        sd = "n/a" if math.isnan(noise) else number(math.sqrt(noise))
        known = ("privacy noise", sd, "n/a")
        return Table(title, columns, (("sampling error", "n/a", "n/a"), known), "lrr")
    total = sampling + noise
    share = noise / total if total > 0.0 else 0.0
    sds = numbers([math.sqrt(variance) for variance in (sampling, noise, total)])
    shares = (percent(1 - share, ".1f"), percent(share, ".1f"), "100.0 %")
    parts = ("sampling error", "privacy noise", "both")
    return Table(title, columns, tuple(zip(parts, sds, shares, strict=True)), "lrr", total=True)


def _inference_notes(fit: Result, conf_level: float) -> tuple[str, ...]:
    sampling, interval = fit.released.sampling, fit.conf_int(conf_level)
    if isinstance(interval, Unavailable):
        return (
            f"Standard error, interval and p-value are {interval}.",
            *_noise_only(fit, conf_level),
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


def _noise_only(fit: Result, conf_level: float) -> tuple[str, ...]:
    noise = inference.noise_interval(fit.released, conf_level)
    if isinstance(noise, Unavailable):
        return ()
    low, high = numbers(tuple(noise))
    return (
        f"Without its privacy noise the estimate would lie in [{low}, {high}] with probability "
        f"{percent(conf_level)}. This is not an interval for the effect: it leaves out the "
        "sampling error.",
    )


def _findings(fit: Result, conf_level: float) -> list[str]:
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
    sentences = [effect_sentence(fit.estimate, error, interval, fit.p_value)]
    if not isinstance(sampling, Unavailable):
        sentences.append(split(sampling, fit.noise_variance, _halves(fit, conf_level)))
    released = fit.released.sampling
    if isinstance(released, SamplingVariance) and released.value < released.noise_scale:
        sentences.append(
            "The released sampling variance is smaller than its own privacy noise; standard error "
            "and interval average over what it may be."
        )
    return [*sentences, reading(interval, _if_random(fit))]


def _halves(fit: Result, conf_level: float) -> tuple[float, float] | None:
    """Half-widths of the intervals that either error alone would give."""
    alone = inference.interval(replace(fit.released, laplace=(), gaussian=0.0), conf_level)
    noise = inference.noise_interval(fit.released, conf_level)
    if isinstance(alone, Unavailable) or isinstance(noise, Unavailable):
        return None
    return alone.upper - fit.estimate, noise.upper - fit.estimate


def _if_random(fit: Result) -> str:
    spec = registry().get(fit.method)
    try:
        covariates = parse(fit.formula).has_covariates
    except FormulaError:  # a result that was read from a file says what it likes
        covariates = True
    adjusted = covariates and (spec is None or spec.uses_covariates)
    if adjusted and not fit.caution.startswith(("NOT ADJUSTED", "HARDLY ADJUSTED")):
        return "treatment was as good as random given the covariates"
    return "treatment was randomised, as nothing or hardly anything is adjusted for"
