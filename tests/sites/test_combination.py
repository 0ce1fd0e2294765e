"""Combining: estimates, intervals, who is left out and why, and what is refused."""

import json
import math
import pickle
import re
import time
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import dpeffects as dpe
from dpeffects.errors import EstimationError, OptionError, ReleaseError
from dpeffects.guarantee import Guarantee
from dpeffects.inference.estimate import ArmMeans, Estimate, SamplingVariance, Unavailable
from dpeffects.inference.intervals import interval, p_value
from dpeffects.inference.weighted import combined_means
from dpeffects.services.sites import combine
from tests.cases import each
from tests.sites.examples import estimate, release, releases

RULES = ["ivw", "mvagg", "all", "largest", "random"]
BLIND = Estimate(0.9, Unavailable("variance=False was asked for"), laplace=(0.1,))
ALMOST_NONE = {"laplace": (1e-9,)}
MUCH = Guarantee(1e9)
"""An epsilon that allows for almost no noise."""
THREE = releases([0.2, 0.35, 0.1], [0.01, 0.02, 0.05], [4000, 2000, 500])


def flat(text):
    return " ".join(str(text).split())


# --- what is not adjusted ------------------------------------------------------------------------


CRUDE = {"identification": "unadjusted"}
ADJUSTED = {"identification": "adjusted"}


def mixed(count, seed=0):
    """Adjusted sites about 0.3, and as many that are not: of a tenth of the variance, about 0.7."""
    rng = np.random.default_rng(seed)
    sites, truth = [], []
    for j in range(2 * count):
        variance = float(rng.uniform(4e-4, 2e-3)) * (1.0 if j < count else 0.1)
        value = float(rng.normal(0.3 if j < count else 0.7, variance**0.5))
        own = estimate(value, variance, 0.0, 1.0, **ALMOST_NONE)
        own = replace(own, **(ADJUSTED if j < count else CRUDE))
        sites.append(release(f"S{j}", n=1000 + j, released=own, guarantee=MUCH))
        truth.append((value, variance))
    return sites, np.array(truth)


@pytest.mark.parametrize("seed", range(3))
def test_sites_that_are_not_adjusted_are_left_out_where_others_are(seed):
    """One of five had 74 % of the weight, and made of the effect an association."""
    sites, truth = mixed(4, seed)
    fit = combine(sites)
    value, variance = truth[:4].T
    weights = (1 / variance) / (1 / variance).sum()
    assert fit.estimate == pytest.approx(weights @ value, rel=1e-6)
    assert fit.weights == pytest.approx([*weights, *[0.0] * 4], rel=1e-6)
    assert fit.std_error == pytest.approx((1 / variance).sum() ** -0.5, rel=1e-3)
    assert fit.identification == "adjusted"
    assert set(fit.left_out) == {f"S{j}" for j in range(4, 8)}
    assert all("not adjusted" in why and "variance" not in why for why in fit.left_out.values())
    assert "S4 it is not adjusted" in flat(fit.summary())
    assert type(fit).from_json(fit.to_json()).left_out == fit.left_out
    for rule in ("mvagg", "random", "robust"):
        assert set(combine(sites, rule).left_out) >= set(fit.left_out)


def test_sites_that_are_not_adjusted_are_used_by_rules_that_take_every_site_or_alone():
    sites, truth = mixed(3)
    n = np.array([site.n for site in sites])
    every = combine(sites, "all")
    assert every.estimate == pytest.approx(n @ truth[:, 0] / n.sum())
    assert (every.identification, every.left_out) == ("unadjusted", {})
    alone = combine(sites[3:])
    assert (alone.identification, alone.left_out) == ("unadjusted", {})
    assert combine(sites[2:5]).identification == "adjusted"


@pytest.mark.parametrize("known", [CRUDE, ADJUSTED])
def test_a_release_says_whether_it_is_adjusted(known):
    made = release(released=replace(estimate(), **known))
    crude = known is CRUDE
    for text in (repr(made), flat(made.summary())):
        assert ("association, not adjusted" in text) == crude
    assert ("ASSOCIATION" in flat(made.summary())) == crude
    low, high = interval(made.released, 0.95)
    shown = re.search(r"95% CI (\S+) to (\S+)", flat(made))
    assert [float(x) for x in shown.groups()] == pytest.approx([low, high], abs=0.006)


@pytest.mark.parametrize(
    ("identification", "assumed"),
    [
        ("adjusted", "no confounder is missing from the formula; outcomes are linear in its terms"),
        ("randomised", "treatment was randomised (declared"),
        ("unadjusted", ""),
    ],
)
def test_a_combination_says_what_has_to_be_true(identification, assumed):
    own = replace(estimate(), identification=identification)
    sites = [release(x, released=own, method="auto") for x in ("North", "South")]
    fit = combine(sites)
    for said in (fit.summary("short"), fit.summary(), fit.explain()):
        assert assumed in flat(said)
        assert bool(assumed) == ("Assumes" in flat(said) or "valid only if" in flat(said))


# --- numbers -------------------------------------------------------------------------------------


def test_means_of_sites_are_combined_where_all_have_them():
    with_means = replace(estimate(), means=ArmMeans(2.0, 1.0, Unavailable("none")))
    assert combined_means([with_means, with_means], [0.3, 0.7], None).treated == pytest.approx(2.0)
    assert combined_means([with_means, estimate()], [0.3, 0.7], None) is None
    assert combined_means([with_means, estimate()], [1.0, 0.0], None) is not None


def test_weights_and_estimate():
    fit = combine(THREE, "all")
    assert fit.weights == pytest.approx((4000 / 6500, 2000 / 6500, 500 / 6500))
    assert fit.estimate == pytest.approx((0.2 * 4000 + 0.35 * 2000 + 0.1 * 500) / 6500)
    variances = np.array([r.variance for r in THREE])
    assert fit.std_error == pytest.approx(math.sqrt(np.square(fit.weights) @ variances))
    assert combine(THREE, "largest").estimate == 0.2
    inverse = combine(THREE, "ivw")
    assert inverse.weights == pytest.approx(1 / variances / (1 / variances).sum())


@pytest.mark.parametrize("rule", RULES)
def test_one_site_keeps_its_own_interval(rule):
    site = release(released=estimate(0.3, 0.01, 0.004))
    fit = combine([site], rule)
    assert fit.weights == (1.0,)
    assert tuple(fit.conf_int()) == pytest.approx(tuple(interval(site.released)), rel=1e-9)
    assert fit.p_value == pytest.approx(p_value(site.released), rel=1e-7)
    assert fit.std_error == pytest.approx(site.std_error)
    assert "fewer than two sites" in str(fit.heterogeneity)


def test_interval_is_that_of_normal_errors_where_there_is_nothing_else():
    sites = [
        release(
            f"S{j}",
            released=Estimate(0.1 * j, SamplingVariance(0.02, 0.0, 1.0), **ALMOST_NONE),
            guarantee=MUCH,
        )
        for j in range(4)
    ]
    fit = combine(sites, "all", conf_level=0.9)
    half = stats.norm.isf(0.05) * math.sqrt(0.02 / 4)
    assert tuple(fit.conf_int()) == pytest.approx((0.15 - half, 0.15 + half))
    assert fit.conf_int().conf_level == 0.9
    assert fit.conf_int(0.99).upper > fit.conf_int(0.9).upper
    low, _ = fit.conf_int(1 - fit.p_value)
    assert low == pytest.approx(0.0, abs=1e-9)


def test_order_of_the_sites_does_not_matter():
    for rule in RULES:
        one, other = combine(THREE, rule), combine(THREE[::-1], rule)
        assert one.estimate == pytest.approx(other.estimate)
        assert tuple(one.conf_int()) == pytest.approx(tuple(other.conf_int()))
        assert one.weights == pytest.approx(other.weights[::-1])


def test_the_default_weighs_by_inverse_variance():
    fit, variances = combine(THREE), np.array([r.variance for r in THREE])
    assert fit.rule == "ivw"
    assert fit.weights == pytest.approx(1 / variances / np.sum(1 / variances))


def test_mvagg_leaves_out_a_noisy_site():
    noisy = release("West", 0.9, n=100, released=estimate(0.9, 0.01, laplace=(5.0,)))
    fit = combine([*THREE, noisy], "mvagg")
    assert fit.weights[-1] == 0.0
    assert "raise the variance" in fit.left_out["West"]
    assert fit.n == sum(r.n for r in fit.used)
    assert "not that in the excluded sites" in flat(fit.summary())


# --- left out ------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["mvagg", "ivw", "random"])
def test_sites_without_a_variance_are_left_out_with_the_reason(rule):
    fit = combine([*THREE, release("West", released=BLIND)], rule)
    assert fit.weights[-1] == 0.0
    assert fit.left_out["West"] == "no usable variance: variance=False was asked for"
    alone = combine(THREE, rule)
    assert fit.estimate == pytest.approx(alone.estimate)
    assert tuple(fit.conf_int()) == pytest.approx(tuple(alone.conf_int()))


def test_rules_without_variances_use_them_but_have_no_interval():
    sites = [*THREE, release("West", released=BLIND, n=9000)]
    fit = combine(sites, "all")
    assert fit.weights[-1] == pytest.approx(9000 / 15500)
    for missing in (fit.std_error, fit.conf_int(), fit.p_value):
        assert "'West' has no usable variance" in str(missing)
    assert "'West' has no usable variance" in flat(fit.summary())
    assert combine(sites, "largest").estimate == 0.9
    assert isinstance(combine(sites, "largest").conf_int(), Unavailable)
    small = combine([*THREE, release("West", released=BLIND, n=9)], "largest")
    assert not isinstance(small.conf_int(), Unavailable)
    assert json.loads(fit.to_json())["conf_int"]["unavailable"]
    assert math.isnan(fit.tidy()["conf_low"][0])


def test_no_usable_variance_at_all():
    sites = [release("A", released=BLIND), release("B", released=replace(BLIND, value=0.7))]
    with pytest.raises(EstimationError, match="no site has a usable variance"):
        combine(sites)
    assert combine(sites, "all").estimate == pytest.approx(0.8)


def test_no_noise_is_not_plausible():
    sure = release("Sure", released=Estimate(5.0, SamplingVariance(0.0, 0.0, 1.0)))
    with pytest.raises(ReleaseError, match="'Sure' is not plausible: it claims less noise"):
        combine([*THREE, sure])


def test_sites_that_did_not_answer_are_shown():
    fit = combine(THREE, left_out={"West": "no answer\nin 60 s"})
    assert fit.left_out["West"] == "no answer in 60 s"
    assert fit.sites.set_index("site").loc["West", "left_out"] == "no answer in 60 s"
    assert "West no answer in 60 s" in flat(fit.summary())
    assert json.loads(fit.to_json())["left_out"]["West"] == "no answer in 60 s"
    for wrong in ({"S0": "x"}, {"West": ""}, {"West": 3}, ["West"], "West"):
        with pytest.raises(OptionError):
            combine(THREE, left_out=wrong)


# --- guarantees ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("guarantee", "status", "starred_warnings"),
    [
        (Guarantee(2.0), "exact", None),
        (
            Guarantee(2.0, kind="asymptotic"),
            "asymptotic",
            "ASYMPTOTIC CLAIM, NOT A PROVEN GUARANTEE",
        ),
        (Guarantee(2.0, void=("seeded",)), "void: seeded", "NOT PRIVATE: a seed was set"),
    ],
)
def test_guarantee_is_the_worst_of_the_sites_used(guarantee, status, starred_warnings):
    fit = combine([*THREE, release("West", guarantee=guarantee)], "all")
    assert fit.status == status
    text = str(fit.summary())
    assert starred_warnings is None or starred_warnings in text
    assert "the privacy losses" in flat(text)
    row = fit.sites.set_index("site").loc["West"]
    assert (row["epsilon"], row["guarantee"]) == (2.0, status)
    unused = combine([*THREE, release("West", n=100, guarantee=guarantee)], "largest")
    assert unused.status == "exact"


def test_cautions_of_the_sites_are_shown():
    careful = Estimate(0.2, SamplingVariance(0.01, 0.001, 1.0), (0.02,), warnings="NOT ADJUSTED")
    fit = combine([*THREE, release("West", released=careful, n=4000)], "all")
    assert "*** West: NOT ADJUSTED ***" in str(fit.summary())


# --- refused -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"formula": "y ~ t | z"}, "formula: 'y ~ t | x' and 'y ~ t | z'"),
        ({"estimand": "ATT"}, "estimand: 'ATE' and 'ATT'"),
        ({"outcome": "z"}, "outcome: 'y' and 'z'"),
        ({"treatment": "u"}, "treatment: 't' and 'u'"),
        ({"level": "label"}, "level: 'sample' and 'label'"),
        ({"guarantee": Guarantee(1.0, unit="outcome")}, "'record' and 'outcome'"),
    ],
)
def test_different_effects_are_not_combined(change, words):
    with pytest.raises(ReleaseError) as error:
        combine([release("North"), release("South", **change)])
    assert words in str(error.value)
    assert "'North' and 'South'" in str(error.value)


def test_spaces_in_a_formula_do_not_matter():
    combine([release("North"), release("South", formula="y~t |x")])


def test_what_differs_but_may_is_noted():
    other = release(
        "South",
        method="auto",
        bounds=(("y", "[0, 2]", "declared"),),
        guarantee=Guarantee(1.0, public=("n", "treatment")),
    )
    text = flat(combine([release("North"), other]).summary())
    assert "different methods: diff_in_means, auto" in text
    assert "declared different ranges for the outcome: [0, 1], [0, 2]" in text
    assert "public differs between sites: n; n, treatment" in text


def test_effects_that_differ_are_noted():
    fit = combine(releases([0.1, 0.9, 0.5], [1e-4] * 3), "all")
    assert fit.heterogeneity.p_value < 1e-3
    assert "Evidence of heterogeneity between sites" in flat(fit.summary())


def test_effects_on_a_part_are_weighted_by_all_records():
    sites = releases([0.1, 0.2], estimand="ATT")
    assert "not of their treated records" in flat(combine(sites, "mvagg").summary())
    assert "not of their treated records" not in flat(combine(sites, "ivw").summary())


@each(
    ("given", "asked", "words"),
    [
        *((x, {}, "") for x in ([], None, 3, "north.json", THREE[0], THREE[0].to_dict(), [3])),
        ([THREE[0], THREE[1], THREE[0].to_dict()], {}, "two releases are from the site 'S0'"),
        *((THREE, {"rule": x}, ", ".join(RULES)) for x in ("best", None, 3, ["mvagg"])),
        *((THREE, {"conf_level": x}, "conf_level") for x in (0, 1, 95, "0.95", True, None)),
        (THREE, {"conf_level": math.nan}, "conf_level"),
    ],
)
def test_what_cannot_be_combined(given, asked, words):
    with pytest.raises(OptionError if asked else ReleaseError, match=words):
        combine(given, **asked)


def test_sources_may_be_mixed(tmp_path):
    THREE[0].save(tmp_path / "a.json")
    fit = combine([tmp_path / "a.json", THREE[1].to_dict(), THREE[2]])
    assert fit.estimate == combine(THREE).estimate


# --- what comes out ------------------------------------------------------------------------------

LONG = "Saint_Elsewhere_" * 6


def sized(site, value, variance):
    """A release whose outcome has a range to which the effect belongs."""
    bounds = (("y", f"[0, {abs(value):g}]", "declared"),)
    return release(site, released=estimate(value, variance, laplace=(abs(value),)), bounds=bounds)


SUMMARIES = {
    "three": THREE,
    "one": THREE[:1],
    "no variance": [*THREE, release("West", released=BLIND)],
    "long names": [
        release(LONG + "A", outcome=LONG, treatment=LONG, method=LONG, formula=LONG),
        release(LONG + "B", outcome=LONG, treatment=LONG, method=LONG, formula=LONG),
    ],
    "many": releases([0.1] * 300, sizes=range(1000, 1300)),
    "sizes differ": [sized("A", 1e9, 1e18), sized("B", 1e-9, 1e-18), sized("C", -1e40, 1e50)],
    "void": [release("A", guarantee=Guarantee(1 / 3, 1e-7, void=("seeded", "n" * 90)))],
    "wide letters": [release("ÅÄÖ"), release("Москва")],
}


@each("rule", RULES)
@each("case", SUMMARIES)
def test_every_summary_fits_eighty_columns(case, rule):
    fit = combine(SUMMARIES[case], rule, left_out={"Nowhere": "did not answer " * 20})
    text = str(fit.summary())
    assert max(map(len, text.splitlines())) <= 80
    assert "nan" not in text.lower().replace("nancy", "").replace("dominant", "")
    assert json.loads(fit.to_json())["rule"] == rule
    assert len(fit.tidy()) == len(fit.glance()) == 1
    assert repr(fit).startswith("<dpeffects ATE")


def test_many_sites_are_shortened():
    text = str(combine(SUMMARIES["many"]).summary())
    assert "and 275 more" in text
    assert len(text.splitlines()) < 120


def test_tables():
    fit = combine(THREE, "ivw")
    tidy = fit.tidy()
    assert tidy["estimate"][0] == fit.estimate
    assert (tidy["conf_low"][0], tidy["conf_high"][0]) == tuple(fit.conf_int())
    assert tidy["method"][0] == "ivw"
    glance = fit.glance()
    assert (glance["sites"][0], glance["n"][0]) == (3, 6500)
    assert fit.sites["weight"].sum() == pytest.approx(1.0)
    pd.concat([tidy, combine(THREE).tidy()])


def test_json_holds_the_sites():
    made = json.loads(combine(THREE, "ivw", left_out={"West": "late"}).to_json())
    assert [row["site"] for row in made["sites"]] == ["S0", "S1", "S2", "West"]
    assert made["sites"][-1]["n"] is None
    assert made["heterogeneity"]["df"] == 2
    assert made["guarantee"] == "exact"


def test_combination_is_frozen_and_pickles():
    fit = combine(THREE)
    with pytest.raises(AttributeError):
        fit.rule = "all"
    again = pickle.loads(pickle.dumps(fit))
    assert again == fit
    assert tuple(again.conf_int()) == tuple(fit.conf_int())


def test_numbers_of_any_size_combine():
    narrow = (("y", "[0, 1e-60]", "declared"),)
    sites = [
        release("A", released=estimate(1e60, 1e60, 1e60, 1e60, (1e60,))),
        release("B", released=estimate(1e-60, 1e-60, 1e-60, 1e-60, (1e-60,)), bounds=narrow),
        release("C", n=2**53, released=estimate(-1e-59, 0.0, 0.0, 0.0, (1e-59,)), bounds=narrow),
    ]
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        for rule in RULES:
            fit = combine(sites, rule)
            assert all(map(math.isfinite, (*fit.conf_int(), fit.p_value, fit.std_error)))
            assert sum(fit.weights) == pytest.approx(1.0)


def test_many_sites_are_fast():
    """Twenty thousand sites; benchmarks/sites.py has a hundred thousand."""
    rng = np.random.default_rng(0)
    sizes = rng.integers(100, 10_000, 20_000)
    sites = releases(rng.normal(0.1, 0.1, 20_000), 1 / sizes, sizes.tolist())
    combine(sites[:10]).conf_int()
    start = time.process_time()
    fit = combine(sites)
    assert math.isfinite(fit.conf_int().lower)
    assert time.process_time() - start < 2.0


def test_huge_and_tiny_sites_together():
    sites = [release("A", n=2**53), release("B", n=1, released=estimate(laplace=(2.0,)))]
    with np.errstate(all="raise", under="ignore"):
        assert math.isfinite(combine(sites).conf_int().lower)


# --- a combination is a result --------------------------------------------------------------------


def test_a_combination_has_what_a_result_has():
    fit = combine(releases([0.1, 0.5, 0.9], [0.01, 0.02, 0.5]), conf_level=0.9)
    assert isinstance(fit, dpe.Result)
    assert fit.conf_int() == fit.conf_int(0.9) == fit.effect_conf_int(0.9)
    assert fit.sampling_variance + fit.noise_variance == pytest.approx(fit.std_error**2)
    assert fit.noise_share == pytest.approx(fit.noise_variance / fit.std_error**2)
    with pytest.raises(
        OptionError, match="call it on each site's result"
    ):  # it would lose their warnings
        fit.sensitivity(0.1)
    with pytest.raises(ReleaseError, match="made from a Result, not CombinedEffect"):
        dpe.SiteRelease.from_result(fit, "All")


def test_an_association_of_sites_has_no_interval_for_the_effect():
    """What a site would allow for confounding is no part of its release."""
    found = replace(estimate(), identification="unadjusted")
    sent = [release(site, released=found) for site in ("North", "South")]
    fit = combine([*sent[:1], replace(sent[1], released=replace(found, value=0.4))])
    assert fit.associated
    assert "do not send" in str(fit.effect_conf_int())
    assert fit.conf_int().lower < fit.estimate < fit.conf_int().upper
