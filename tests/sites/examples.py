"""Releases to test with."""

from dataclasses import replace
from zlib import crc32

from dpeffects.guarantee import Guarantee
from dpeffects.inference.estimate import ErrorPart, Estimate, SamplingVariance
from dpeffects.privacy.charges import Charge
from dpeffects.services.sites import SiteRelease

SPEND = Charge("sums by arm", "estimate", 1.0, 0.0, "discrete Laplace", (1.0,), (1.25, 2.0), 7)


def estimate(value=0.3, variance=0.01, scale=0.001, largest=1.0, laplace=(0.02,), gaussian=0.0):
    return Estimate(value, SamplingVariance(variance, scale, largest), laplace, gaussian)


def release(site="North", value=0.3, n=1000, **changes):
    guarantee = changes.get("guarantee", Guarantee(1.0))
    made = SiteRelease(
        site=site,
        released=estimate(value),
        estimand="ATE",
        formula="y ~ t | x",
        outcome="y",
        treatment="t",
        method="diff_in_means",
        level="sample",
        n=n,
        guarantee=guarantee,
        charges=(replace(SPEND, epsilon=guarantee.epsilon, delta=guarantee.delta),),
        bounds=(("y", "[0, 1]", "declared"),),
    )
    made = replace(made, **changes)
    own = made.released.sampling
    if not isinstance(own, SamplingVariance):
        return made
    # noise comes out differently at every site
    drawn = replace(own, value=own.value * (1.0 + 2e-16 * crc32(site.encode())))
    return replace(made, released=replace(made.released, sampling=drawn))


def releases(values, variances=None, sizes=None, **changes):
    variances = [0.01] * len(values) if variances is None else variances
    sizes = [1000] * len(values) if sizes is None else sizes
    return [
        release(f"S{j}", n=n, released=estimate(x, v), **changes)
        for j, (x, v, n) in enumerate(zip(values, variances, sizes, strict=True))
    ]


CLIP, MODEL = ErrorPart("clip", 0.04), ErrorPart("noise in the models", 0.03, noise=True)


def with_parts(site="North", value=0.3, variance=0.01, **changes):
    """A release with parts, known exactly but for noise that hardly matters."""
    given = {
        "parts": (CLIP, MODEL),
        "possible": (-1.0, 1.0),
        "identification": "adjusted",
    } | changes
    own = replace(estimate(value, variance, 0.0), laplace=(), gaussian=0.002, **given)
    return release(site, released=own)
