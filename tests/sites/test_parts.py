"""Parts of the error, possible ranges and bases travel with a release, and are used."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from dpeffects.errors import ReleaseError
from dpeffects.inference.estimate import ErrorPart, Estimate, SamplingVariance, Unavailable
from dpeffects.services.sites import SiteRelease, combine, signing, site_release
from dpeffects.services.sites.error_distribution import SiteErrors
from dpeffects.services.sites.rules import inflation_ivw, inflation_mvagg, ivw, mvagg
from tests.sites.examples import CLIP, MODEL, estimate, release, releases, with_parts
from tests.test_results import make

# --- the document --------------------------------------------------------------------------------


def test_everything_travels():
    sent = with_parts()
    document = json.loads(sent.to_json())
    assert SiteRelease.from_dict(document) == sent
    fit = make(
        Estimate(
            np.float64(0.3),
            SamplingVariance(0.01, 0.0, 1.0),
            (0.1,),
            parts=(ErrorPart("two\nlines", np.float64(0.04)),),
            possible=(np.float64(-1.0), math.inf),
            identification="randomised",
        )
    )
    kept = SiteRelease.from_result(fit, "North").released
    assert kept.parts == (ErrorPart("two lines", 0.04),)
    assert kept.possible is None  # a range without an end says nothing
    assert kept.identification == "randomised"


@pytest.mark.parametrize(
    "changes",
    [
        {"parts": (MODEL,), "possible": None, "identification": ""},
        {"parts": (), "possible": (-1.0, 1.0), "identification": ""},
        {"parts": (), "possible": None, "identification": "unadjusted"},
    ],
)
def test_each_of_them_travels_alone(changes):
    sent = with_parts(**changes)
    assert SiteRelease.from_json(sent.to_json()) == sent


def test_signatures_hold_with_parts_and_without(tmp_path):
    private, public = signing.make_keys("North", tmp_path)
    (tmp_path / "keys").mkdir()
    public.rename(tmp_path / "keys" / public.name)
    for sent in (release(), with_parts()):
        signed = SiteRelease.from_json(signing.sign(sent, private).to_json())
        signing.verify_all([signed], tmp_path / "keys")
        broken = replace(signed, released=replace(signed.released, value=0.4))
        with pytest.raises(ReleaseError):
            signing.verify_all([broken], tmp_path / "keys")


# --- combining -----------------------------------------------------------------------------------


def test_noise_parts_are_independent_and_biases_common():
    """All errors are normal here, so the interval has a closed form."""
    sent = [with_parts("A", 0.1, 0.01), with_parts("B", 0.3, 0.05)]
    fit = combine(sent, "all")
    independent = 0.25 * (0.01 + 0.05) + 0.5 * (0.002 + 0.03)
    common = (0.5 * 0.2 + 0.5 * 0.2) ** 2  # standard deviations add up
    assert fit.std_error == pytest.approx(math.sqrt(independent + common))
    assert fit.bias_variance == pytest.approx(0.04)
    half = 1.959963985 * fit.std_error
    assert tuple(fit.conf_int()) == pytest.approx((0.2 - half, 0.2 + half), rel=1e-6)
    row = fit.glance().iloc[0]
    assert row["noise_variance"] == pytest.approx(0.5 * 0.032)
    assert row["bias_variance"] == pytest.approx(0.04)
    assert row["sampling_variance"] == pytest.approx(0.25 * 0.06)
    assert "taken as common to all sites" in str(fit.summary()).replace("\n  ", " ")
    assert "The interval includes an allowance for bias with an SD of 0.2" in fit.report().text


def test_biases_do_not_change_what_choosing_the_weights_hides():
    """A bias is known, like noise: only the sampling variance is optimistic."""
    sent = [estimate(0.1, v, 0.02, laplace=(0.1,)) for v in (0.01, 0.03, 0.2)]
    biased = SiteErrors.of([replace(e, parts=(CLIP,)) for e in sent])
    noisy = SiteErrors.of([replace(e, gaussian=CLIP.variance) for e in sent])
    n = np.array([900.0, 400.0, 100.0])
    for weights, inflation in ((mvagg, inflation_mvagg), (ivw, inflation_ivw)):
        w = weights(n, biased.variance)
        assert inflation(n, biased, w) == pytest.approx(inflation(n, noisy, w))
        assert inflation(n, biased, w).max() > 1.0


def test_more_sites_do_not_average_a_bias_out():
    few, many = (
        combine([with_parts(f"S{j}", 0.1, 1e-6, parts=(CLIP,)) for j in range(k)], "ivw")
        for k in (2, 200)
    )
    assert many.std_error >= math.sqrt(0.04)
    assert many.std_error < few.std_error


@pytest.mark.parametrize("rule", ["mvagg", "ivw", "all", "largest", "random"])
def test_one_site_keeps_its_interval(rule):
    sent = with_parts(value=0.1)
    fit = combine([sent], rule)
    total = 0.01 + 0.002 + 0.03 + 0.04
    half = 1.959963985 * math.sqrt(total)
    assert tuple(fit.conf_int()) == pytest.approx((0.1 - half, 0.1 + half), rel=1e-6)
    assert fit.p_value == pytest.approx(2 * stats.norm.sf(0.1 / math.sqrt(total)), rel=1e-6)


def test_random_effects_keep_the_common_bias():
    """It does not show in how far sites are apart, and more sites do not average it out."""
    sites = [with_parts(f"S{j}", 0.1) for j in range(400)]
    plain = combine([with_parts(f"S{j}", 0.1, parts=(MODEL,)) for j in range(400)], "random")
    assert plain.std_error < 0.02
    assert combine(sites, "random").std_error == pytest.approx(0.2, rel=0.01)


def test_the_interval_is_cut_to_what_is_possible_for_the_mean():
    wide = replace(
        with_parts("B", 0.9, possible=(-2.0, 2.0)), bounds=(("y", "[0, 2]", "declared"),)
    )
    sent = [with_parts("A", 0.9), wide]
    fit = combine(sent, "all")
    assert fit.possible == (-1.5, 1.5)
    assert combine(sent[:1], "all").conf_int().upper == 1.0
    assert combine([with_parts("A", 1.4)], "all").estimate == 1.0
    assert combine([with_parts("A"), with_parts("B", possible=None)], "all").possible is None


def test_an_association_makes_the_combination_one():
    adjusted, loose = with_parts("A"), with_parts("B", identification="unadjusted")
    fit = combine([adjusted, loose], "all")
    assert fit.identification == "unadjusted"
    assert isinstance(fit.p_value, Unavailable)
    assert math.isnan(fit.tidy()["p_value"][0])
    text = " ".join(str(fit.summary()).split())
    assert "*** B: ASSOCIATION, NOT AN EFFECT" in text
    assert "Unadjusted association of 2 sites combined, differentially private" in text
    assert "sent an unadjusted association (B), so the combination is called an association" in text
    assert fit.report().text.startswith("The association of t with y was combined")
    assert type(fit).from_json(fit.to_json()).identification == "unadjusted"
    unused = combine([with_parts("A", variance=1e-4), replace(loose, n=10)], "largest")
    assert unused.identification == "adjusted"
    assert not isinstance(unused.p_value, Unavailable)
    assert "no confounder is missing from the formula" in " ".join(str(unused.summary()).split())
    both = combine([adjusted, with_parts("B", identification="randomised")], "all")
    assert both.identification == ""
    assert "declared to be randomised by these sites: B" in " ".join(str(both.summary()).split())


def test_releases_with_parts_and_without_combine():
    fit = combine([*releases([0.2, 0.3]), with_parts("New")], "ivw")
    assert fit.identification == ""
    assert fit.possible is None
    assert sum(fit.weights) == pytest.approx(1.0)


def test_clipped_outcomes_need_less_noise_and_not_none():
    """A method that clips outcomes adds noise for the clip, not for the whole range."""
    scale = 0.5 / 1000  # of range / (n epsilon)

    def of(factor, **changes):
        sent = with_parts(parts=(), **changes)
        return replace(sent, released=replace(sent.released, gaussian=(factor * scale) ** 2))

    combine([of(0.011)], "all")
    combine([of(1.01, possible=None, identification="")], "all")
    for impossible in (of(0.009), of(0.5, possible=None, identification="")):
        with pytest.raises(ReleaseError, match="less noise"):
            combine([impossible], "all")


def test_the_noise_of_a_method_that_clips_is_plausible():
    """Short residuals in a wide range: noise is least where the clip of a study is short."""
    n, epsilon, rng = 20_000, 30.0, np.random.default_rng(1)
    frame = pd.DataFrame({"y": rng.uniform(0.0, 1e-4, n), "t": rng.integers(0, 2, n)})
    frame["x"] = rng.random(n)
    given = {"method": "one_step", "epsilon": epsilon, "bounds": {"y": (0, 1), "x": (0, 1)}}
    sent = [site_release("y ~ t | x", frame, site="A", seed=seed, **given) for seed in range(12)]
    noise = [math.sqrt(each.released.noise_variance) for each in sent]
    assert min(noise) < 2.0 / (n * epsilon)
    for each in sent:
        combine([each], "all")
