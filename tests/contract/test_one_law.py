"""Intervals and p-values are one: p < alpha exactly where the interval lacks the null."""

from __future__ import annotations

import inspect
import math
from dataclasses import replace

import numpy as np
import pytest

import dpeffects as dpe
from dpeffects import results
from dpeffects.errors import OptionError
from dpeffects.inference.compliers import Wald
from dpeffects.inference.estimate import ArmMeans, Estimate, MeansVariance, SamplingVariance
from dpeffects.inference.scales import odds, ratio
from dpeffects.inference.simultaneous import MaxNormalDistribution, two_sided
from tests.dists import ABOUT, ALPHAS, KINDS, stated, with_means
from tests.kinds_of_summaries import made
from tests.releases import release

SLOW = {"study": 1, "sites": 2, "survival": 2, "rates": 2, "on scales": 3, "arms": 2, "subsets": 2}
"""How many results of a kind are made; 4 of the others."""
HOMES = ("dpeffects.results", "dpeffects.abilities")
CLASSES = [getattr(results, name) for name in results.__all__ if name != "load_cate"]
PUBLIC = (getattr(dpe, name) for name in dpe.__all__)
CLASSES += [cls for cls in PUBLIC if inspect.isclass(cls) and cls.__module__.startswith(HOMES)]
CLASSES = [*dict.fromkeys(CLASSES), dpe.CombinedEffect]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("kind", KINDS)
def test_p_is_below_alpha_exactly_where_the_interval_lacks_the_null(kind):
    rng = np.random.default_rng(7)
    make = KINDS[kind][1]
    for _ in range(SLOW.get(kind, 4)):
        fit = make(rng)
        pairs = [pair for alpha in ALPHAS for pair in stated(fit, alpha)]
        assert pairs
        assert not [pair for pair in pairs if not pair.one_law]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("kind", KINDS)
def test_the_interval_ends_at_the_null_where_its_level_is_that_of_the_p_value(kind):
    """Just above a p-value the interval lacks the null, just below it has it."""
    rng, make = np.random.default_rng(11), KINDS[kind][1]
    checked = set()
    for _ in range(20):
        if checked:
            break
        fit = make(rng)
        for one in stated(fit, 0.05):
            if 0.002 < one.p_value < 0.8 and one.what not in checked and len(checked) < 2:
                checked.add(one.what)
                for alpha in (0.999 * one.p_value, 1.001 * one.p_value):
                    again = [pair for pair in stated(fit, alpha) if pair.what == one.what]
                    assert again
                    assert all(pair.one_law for pair in again)
    assert checked


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ["adjusted", "quantiles", "compliers", "ordered levels", "did"])
def test_one_law_for_what_calls_release(name):
    for alpha in ALPHAS:
        assert all(pair.one_law for pair in stated(made(name), alpha))


def test_every_class_with_intervals_and_p_values_is_among_the_kinds():
    kinds = {cls for cls, _ in KINDS.values()} | {dpe.Test, dpe.ScaledEffect}  # in `stated`
    assert {cls for cls in CLASSES if hasattr(cls, "conf_int")} == kinds


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_results_are_asked_in_the_same_way(cls):
    for name in ("tidy", "summary"):
        assert inspect.isfunction(getattr(cls, name)), name
    if hasattr(cls, "conf_int"):
        assert "conf_level" in inspect.signature(cls.conf_int).parameters
        assert "conf_int" not in getattr(cls, "__dataclass_fields__", {})


@pytest.mark.parametrize("scale", ["difference", "ratio", "odds", "lift", "nnt"])
def test_an_effect_on_a_scale_is_asked_as_all_others_are(scale):
    released = replace(with_means(np.random.default_rng(1)), value=0.1)
    fit = dpe.Result(released=released, **ABOUT)
    found = fit.effect(scale)
    assert found.conf_int(0.8) == fit.effect(scale, 0.8).conf_int() != found.conf_int()
    assert found.tidy(0.8).equals(fit.tidy(0.8, scale=scale))
    assert " ".join(str(found).split()) == " ".join(found.words.split())
    assert found.words.split(":")[0].split()[0] in str(found.summary())
    again = dpe.ScaledEffect.from_json(found.to_json())
    assert again == found
    with pytest.raises(OptionError, match="read from JSON"):
        again.conf_int(0.8)


def test_tests_have_intervals_at_other_levels_too():
    found = made("adjusted").test(margin=0.1)
    assert found.conf_int(0.9) == made("adjusted").test(margin=0.1, conf_level=0.9).conf_int()


def _means(treated, control, noise=1e-3):
    own = tuple(
        MeansVariance(SamplingVariance(1e-6, 0.0, 1.0), 1.0 - arm, float(arm)) for arm in (0, 1)
    )
    pairs = ((noise, 0.0), (0.0, noise))
    return ArmMeans(treated, control, own, pairs, possible=(0.0, 1.0), design=(1e-3, 1e-3, 0.0))


@pytest.mark.parametrize("pair", [(-0.3, -0.2), (1.4, 0.7), (1.5, 1.2), (0.4, -0.3), (0.0, 0.0)])
@pytest.mark.parametrize("compare", [ratio, odds])
def test_means_that_no_hypothesis_fits_have_one_law_too(pair, compare):
    for alpha in (0.001, *ALPHAS, 0.5):
        found = compare(_means(*pair), 1.0 - alpha)
        assert found.interval.lower <= found.interval.upper
        assert (found.p_value < alpha) != (found.interval.lower <= 1.0 <= found.interval.upper)


def test_a_set_of_two_pieces_is_printed_from_its_lowest_to_its_highest_effect():
    known = SamplingVariance(1e-4, 0.0, 1.0)
    weak = Wald(Estimate(0.05, known), Estimate(0.005, known), 0.0, 0.0, 0.0, (-1.0, 1.0))
    fit = replace(made("compliers"), arm_table=weak)
    assert weak.p_value() < 0.01  # the instrument does something to the outcome
    assert fit.shape() == "outside"
    assert fit.p_value > 0.05
    assert fit.conf_int().lower < 0.0 < fit.conf_int().upper


def test_p_values_of_quantiles_are_graded_where_bins_are_coarse():
    fit = KINDS["quantiles of whole numbers"][1](np.random.default_rng(3))
    rows = fit.tidy()
    apart = rows[rows["estimate"] != 0.0]
    assert (apart["p_value"] < 0.999).all()


def test_adjusted_p_values_are_the_inverse_of_critical_values():
    wave = np.subtract.outer(np.arange(6), np.arange(6))
    dist = MaxNormalDistribution.of(np.exp(-0.3 * np.abs(wave)))
    for level in (0.5, 0.8, 0.95, 0.99, 0.9999):
        assert dist.p_value(dist.critical_value(level)) == pytest.approx(1.0 - level, rel=1e-6)
    alone = MaxNormalDistribution.of(np.eye(1))
    assert alone.p_value(1.7) == pytest.approx(two_sided(1.7))
    assert dist.p_value(0.0) == 1.0
    assert dist.p_value(math.inf) == 0.0


def test_combined_sites_have_one_law_at_their_own_level():
    fit = release("sites")
    for alpha in ALPHAS:
        assert all(pair.one_law for pair in stated(fit, alpha))
