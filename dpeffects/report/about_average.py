"""Summary and paragraph about an average effect."""

from __future__ import annotations

import math
from dataclasses import replace

from dpeffects.errors import FormulaError
from dpeffects.estimators import find
from dpeffects.formula import parse
from dpeffects.inference import intervals as inference
from dpeffects.inference.estimate import SamplingVariance, Unavailable
from dpeffects.inference.intervals import sampling_alone
from dpeffects.report.blocks import assumed, effect_table, means_block, of_record
from dpeffects.report.paragraph import (
    describe,
    effect_sentence,
    means_sentence,
    missing_words,
    paragraph,
    reading,
    risk_words,
    split,
)
from dpeffects.results.average import Result
from dpeffects.results.numbers import number, numbers, to_error, with_ends
from dpeffects.results.words import called, percent
from dpeffects.summary import Summary, Table, summarise

BASIS = {
    "": "",
    "adjusted": "The estimate assumes that no confounder is missing from the formula, and models "
    "that are linear in the terms of the formula.",
    "randomised": "Treatment is taken as randomised because the call said so: the interval allows "
    "for no confounding.",
    "association": "",
}
"""A sentence on what the estimate rests on; what an association lacks is in its caution."""


@summarise.register
def _(fit: Result, conf_level: float = 0.95) -> Summary:
    what = called(fit)
    private = f"Private {what}" if fit.level != "none" else f"Not private: {what}"
    tables = (effect_table(fit, conf_level), *means_block(fit, conf_level), _error_parts(fit))
    notes = (*_inference_notes(fit, conf_level), *risk_words(fit))
    return of_record(fit, f"{private}: {fit.method_title} ({fit.method})", tables, notes)


@describe.register
def _(fit: Result, conf_level: float) -> str:
    return paragraph(fit, _findings(fit, conf_level), missing_words(fit.conf_int(conf_level)))


def _error_parts(fit: Result) -> Table:
    """One line for each part of the error, in words that tell noise from possible bias."""
    title, columns = "Standard error", ("part", "std. deviation", "share of variance")
    released, sampling = fit.released, fit.sampling_variance
    own = "privacy noise, final sum" if any(p.noise for p in released.parts) else "privacy noise"
    known = {own: released.final_noise_variance}
    for part in released.parts:
        name = f"{part.name} ({'privacy noise' if part.noise else 'possible bias'})"
        known[name] = known.get(name, 0.0) + part.variance
    if isinstance(sampling, Unavailable) or not math.isfinite(sampling + sum(known.values())):
        rows = ((name, _sd(variance), "n/a") for name, variance in known.items())
        return Table(title, columns, (("sampling error", "n/a", "n/a"), *rows), "lrr")
    variances = {"sampling error": sampling, **known}
    total = sum(variances.values())
    variances["all" if released.parts else "both"] = total
    sds = to_error([math.sqrt(variance) for variance in variances.values()], math.sqrt(total))
    shares = [percent(x / total if total > 0.0 else 0.0, ".1f") for x in variances.values()]
    shares[-1] = "100.0 %"
    return Table(title, columns, tuple(zip(variances, sds, shares, strict=True)), "lrr", total=True)


def _sd(variance: float) -> str:
    return "n/a" if math.isnan(variance) else number(math.sqrt(variance), 2)


def _inference_notes(fit: Result, conf_level: float) -> tuple[str, ...]:
    sampling, interval = fit.released.sampling, fit.conf_int(conf_level)
    if isinstance(interval, Unavailable):
        return (
            f"Standard error, interval and p-value are {interval}.",
            *_noise_only(fit, conf_level),
        )
    return (*_law_notes(fit, sampling), *_cut_notes(fit, conf_level))


def _law_notes(fit: Result, sampling: SamplingVariance | Unavailable) -> tuple[str, ...]:
    """Say where the interval comes from."""
    what, so = "Interval and p-value come", ", so p is not that of estimate / std. error."
    if fit.associated:
        what, so = "The interval comes", ". There is no p-value: an association is no test."
    bias = ", plus what is allowed for possible biases" if fit.bias_variance > 0.0 else ""
    law = (
        f"{what} from a normal sampling error plus the privacy noise{bias}, averaged over the "
        f"uncertainty of the released variance{so}"
    )
    if isinstance(sampling, SamplingVariance) and sampling.value < sampling.noise_scale:
        return (
            law,
            f"The sampling variance was released as {number(sampling.value, 2)} with noise of "
            f"scale {number(sampling.noise_scale, 2)}: it is hardly known. Standard error, "
            "interval and p-value average over what it may be, and are cautious.",
        )
    return (law,)


def _cut_notes(fit: Result, conf_level: float) -> tuple[str, ...]:
    """Say what was cut to the range that an effect can have."""
    released = fit.released
    if released.possible is None:
        return ()
    low, high = numbers(released.possible)
    notes = []
    if fit.conf_int(conf_level) != inference.interval(
        replace(released, value=released.point, possible=None), conf_level
    ):
        notes.append(
            f"The interval was cut to [{low}, {high}]: by the declared bounds no effect lies "
            "outside."
        )
    if released.point != released.value:
        notes.append(
            f"The released estimate, {number(released.value, 4)}, was moved to the end of that "
            "range."
        )
    return tuple(notes)


def _noise_only(fit: Result, conf_level: float) -> tuple[str, ...]:
    noise = inference.noise_interval(fit.released, conf_level)
    if isinstance(noise, Unavailable):
        return _cut_notes(fit, conf_level)
    _, low, high = with_ends(fit.estimate, *noise)
    return (
        f"Without its privacy noise the estimate would lie in [{low}, {high}] with probability "
        f"{percent(conf_level)}. This is not an interval for the effect: it leaves out the "
        "sampling error.",
        *_cut_notes(fit, conf_level),
    )


def _findings(fit: Result, conf_level: float) -> list[str]:
    interval, error = fit.conf_int(conf_level), fit.std_error
    sampling, what = fit.sampling_variance, "association" if fit.associated else "effect"
    if isinstance(interval, Unavailable) or isinstance(error, Unavailable):
        sd = number(math.sqrt(fit.noise_variance), 2)
        (value,) = to_error((fit.estimate,), math.sqrt(fit.noise_variance))
        known = f"its privacy noise has a standard deviation of {sd}, and its sampling error is"
        if math.isnan(fit.noise_variance):
            known = "its privacy noise and its sampling error are"
        return [
            f"The estimate is {value}; {known} not known, so it supports no "
            f"statement on whether there is an {what}."
        ]
    sentences = [effect_sentence(fit.estimate, error, interval, fit.p_value)]
    if not isinstance(sampling, Unavailable):
        halves, bias = _halves(fit, conf_level), fit.bias_variance
        sentences.append(split(sampling, fit.noise_variance, halves, bias=bias))
        sentences.append(_biases(fit))
    released = fit.released.sampling
    if isinstance(released, SamplingVariance) and released.value < released.noise_scale:
        sentences.append(
            "The released sampling variance is smaller than its own privacy noise; standard error "
            "and interval average over what it may be."
        )
    rests_on = BASIS[fit.released.basis]
    if fit.assumes and not fit.associated:
        rests_on = f"The estimate assumes {assumed(fit)}."
    means = [means_sentence(fit, conf_level)]
    return [*sentences, *means, reading(interval, _if_random(fit), what), rests_on]


def _biases(fit: Result) -> str:
    """Say what is allowed for possible biases."""
    names = dict.fromkeys(p.name for p in fit.released.parts if not p.noise and p.variance > 0.0)
    if not names:
        return ""
    return (
        f"For possible biases ({', '.join(names)}) a standard deviation of "
        f"{number(math.sqrt(fit.bias_variance), 2)} is allowed."
    )


def _halves(fit: Result, conf_level: float) -> tuple[float, float] | None:
    """Half-widths of the intervals that either error alone would give."""
    uncut = replace(fit.released, possible=None)
    alone = inference.interval(sampling_alone(uncut), conf_level)
    noise = inference.noise_interval(uncut, conf_level)
    if isinstance(alone, Unavailable) or isinstance(noise, Unavailable):
        return None
    return alone.upper - uncut.value, noise.upper - uncut.value


def _if_random(fit: Result) -> str:
    if fit.released.basis == "randomised":
        return "treatment was randomised"
    if fit.assumes:
        return "trends were parallel"
    spec = find(fit.method)
    try:
        covariates = parse(fit.formula).has_covariates
    except FormulaError:  # a result that was read from a file says what it likes
        covariates = True
    adjusted = covariates and (spec is None or spec.uses_covariates)
    if adjusted and not fit.released.caution.startswith(("NOT ADJUSTED", "HARDLY ADJUSTED")):
        return "treatment was as good as random given the covariates"
    return "treatment was randomised, as nothing or hardly anything is adjusted for"
