"""What every registered method promises, whatever it estimates."""

from __future__ import annotations

import json
import operator
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import dpeffects as dpe
from dpeffects import flow
from dpeffects.errors import BudgetError, DPEffectsError
from dpeffects.estimators import proved, table_methods
from dpeffects.privacy.budget import as_written
from dpeffects.privacy.noise import SecureNoise
from dpeffects.seeded import SeededNoise
from tests.neighbours import frame
from tests.plain import plain

SPECS = proved()
EXTRA = {
    "diff_in_means": [{"arms": "public"}],
    "auto": [{"design": "randomised"}],
    "one_step": [{"design": "randomised"}],
}
CASES = [
    (name, level, options)
    for name, spec in SPECS.items()
    for level in spec.levels
    for options in ({}, *EXTRA.get(name, []))
]
PLAIN = [case for case in CASES if not SPECS[case[0]].smooth]
PLAIN_IDS = [
    f"{name}-{level}{'-' + str(options) if options else ''}" for name, level, options in PLAIN
]
IDS = [f"{name}-{level}{'-' + str(options) if options else ''}" for name, level, options in CASES]
BOUNDS = {"y": (0, 1), "x1": (0, 1), "x2": (-1, 1), "g": ["a", "b", "c"]}
FORMULA = "y ~ t | x1 + x2 + g"
STRATA = "y ~ t | g + cut(x1, [0, 0.5, 1])"


def formula(name):
    return STRATA if SPECS[name].needs_strata else FORMULA


def run(name, level, options, data=None, **more):
    delta = 1e-5 if SPECS[name].needs_delta else 0.0
    more = {"epsilon": 1.0, "delta": delta, "bounds": BOUNDS, "seed": 1, **more}
    data = frame() if data is None else data
    return dpe.dp_ate(formula(name), data, name, level=level, **options, **more)


@pytest.mark.sampled(7)
@pytest.mark.parametrize(("name", "level", "options"), CASES, ids=IDS)
def test_result_is_complete(name, level, options):
    fit = run(name, level, options, seed=None)
    assert fit.guarantee.status == SPECS[name].guarantee
    assert fit.guarantee.unit == ("outcome" if level == "label" else "record")
    assert np.isfinite(fit.estimate)
    low, high = fit.conf_int()
    narrow, wide = fit.conf_int(0.5), fit.conf_int(0.99)
    inside = operator.le if fit.released.possible else operator.lt  # cut to the possible range
    assert all(map(inside, (low, fit.estimate), (fit.estimate, high)))
    assert narrow.lower < narrow.upper
    assert all(map(inside, (wide.lower, narrow.upper), (narrow.lower, wide.upper)))
    assert fit.std_error**2 >= fit.noise_variance * (1 - 1e-12)
    text = str(fit.summary())
    assert fit.guarantee.sentence().split(";")[0] in " ".join(text.split())
    assert all(len(line) <= 80 for line in text.splitlines())
    assert json.loads(fit.to_json()) == json.loads(json.dumps(fit.to_dict()))
    assert len(fit.tidy()) == len(fit.glance()) == 1


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("name", "level", "options"), CASES, ids=IDS)
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 7.7])
def test_the_budget_is_spent_and_never_exceeded(name, level, options, epsilon):
    ledger = dpe.Ledger(epsilon, 1e-5 if SPECS[name].needs_delta else 0.0)
    fit = run(name, level, options, epsilon=epsilon, ledger=ledger)
    total = sum(Fraction(s.epsilon) for s in fit.charges)
    assert total <= as_written(epsilon)
    assert float(total) == pytest.approx(epsilon, rel=1e-9)
    assert tuple(s for s in ledger.charges if s.share != "rest") == fit.charges
    assert ledger.spent[0] == as_written(epsilon)
    assert fit.guarantee.epsilon == pytest.approx(float(total))
    claims = Path(flow.__file__).with_name("privacy").joinpath("PROOFS.md").read_text()
    for charge in fit.charges:
        assert f"## Claim {charge.claim}." in claims
    with pytest.raises(BudgetError):
        run(name, level, options, epsilon=epsilon, ledger=ledger)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("name", "level", "options"), CASES, ids=IDS)
def test_variance_false_gives_its_share_to_the_estimate(name, level, options):
    with_variance, without = run(name, level, options), run(name, level, options, variance=False)
    assert "variance" not in {s.share for s in without.charges}
    if SPECS[name].smooth:  # the scale of its noise is private, and not released either
        assert {s.share for s in without.charges} == {"estimate"}
        assert np.isnan(without.noise_variance)
    elif "variance" in {s.share for s in with_variance.charges}:
        assert without.noise_variance < with_variance.noise_variance
    else:  # it costs nothing
        assert without.noise_variance == with_variance.noise_variance
    assert "not available" in str(without.conf_int())
    assert "variance=False" in str(without.std_error)


@pytest.mark.sampled(8)
@pytest.mark.parametrize(("name", "level", "options"), PLAIN, ids=PLAIN_IDS)
def test_noise_has_the_scale_that_the_spend_says(name, level, options, monkeypatch):
    """Each draw of the secure source is recorded; its spread must match the scale in the Spend."""

    class Recording(SeededNoise):
        void = ()

        def laplace(self, values, scale, sensitivity, epsilon):
            noisy = super().laplace(values, scale, sensitivity, epsilon)
            self.draws.append(((noisy - values) / scale, sensitivity, epsilon))
            return noisy

    charges = None
    pooled: list[list[np.ndarray]] = []
    for seed in range(60):
        noise = Recording(seed)
        noise.draws = []
        monkeypatch.setattr(flow, "noise_source", lambda _, noise=noise: noise)
        fit = run(name, level, options)
        charges = [s for s in fit.charges if s.mechanism == "discrete Laplace"]
        pooled = pooled or [[] for _ in noise.draws]
        for slot, (unit_noise, sensitivity, epsilon) in zip(pooled, noise.draws, strict=True):
            slot.append(unit_noise)
            assert sensitivity >= 1
            assert epsilon in {s.epsilon for s in charges}
    for slot, charge in zip(pooled, charges, strict=True):
        assert charge.sensitivity[0] / charge.scale[0] == pytest.approx(charge.epsilon)
        spread = np.abs(np.concatenate(slot)).mean()  # mean |Laplace(1)| is 1
        assert spread == pytest.approx(1.0, abs=4.5 / np.sqrt(sum(map(len, slot))))


LARGE = {"model_folds": {"folds": 4}}
"""Models of parts of the records come near those of all only where the parts are large."""


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("name", "level", "options"), CASES, ids=IDS)
def test_estimates_approach_the_reference_as_epsilon_grows(name, level, options):
    data = frame(3000, 5)
    if options.get("design") == "randomised":
        data["t"] = np.random.default_rng(5).permutation(data["t"])
    target = plain(formula(name), data, name, bounds=BOUNDS)
    fit = run(name, level, {**options, **LARGE.get(name, {})}, data, epsilon=1e7)
    assert fit.estimate == pytest.approx(target.estimate, abs=0.3 * target.std_error)
    error = np.sqrt(fit.std_error**2 - fit.released.bias_variance)
    wider = level == "label" and "imbalance" in str(fit.released.parts)  # effects may differ
    assert error == pytest.approx(target.std_error, rel=0.2 if wider else 0.1)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("name", "level", "options"), CASES, ids=IDS)
def test_a_seed_repeats_and_no_seed_does_not(name, level, options):
    one, two = run(name, level, options, seed=3), run(name, level, options, seed=3)
    assert one.to_dict() == two.to_dict()
    assert one.guarantee.status == "void: seeded"
    assert "NOT PRIVATE" in str(one)
    fresh = run(name, level, options, seed=None).estimate  # at an end of its range, now and then
    assert any(run(name, level, options, seed=None).estimate != fresh for _ in range(40))


def test_every_method_is_listed():
    listed = dpe.methods()
    average = listed.query("guarantee == 'exact' and estimands != 'CATE'")
    assert list(average["method"]) == [*SPECS, *table_methods()]
    assert isinstance(flow.noise_source(None), SecureNoise)
    with pytest.raises(DPEffectsError, match="private_psm"):
        dpe.dp_ate("y ~ t | x1", frame(), "privat_psm", epsilon=1)
    for name in SPECS:
        assert SPECS[name].citation in dpe.methods(name)


@pytest.mark.parametrize(
    ("name", "level", "words"),
    [
        ("private_psm", "label", "the propensity logit is linear in its terms"),
        ("private_psm", "sample", "Weak adjustment"),
        ("private_ipw", "label", "the propensity logit is linear in its terms"),
        ("smooth_matching", "sample", "as good as random within each stratum"),
        ("diff_in_means", "sample", "ASSOCIATION, NOT AN EFFECT"),
    ],
)
def test_what_is_taken_for_granted_stands_before_the_estimate(name, level, words):
    text = " ".join(str(run(name, level, {}).summary()).split())
    assert text.index(words) < text.index("std. error")
