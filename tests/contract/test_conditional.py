"""What every registered method for conditional effects promises."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import dpeffects as dpe
from dpeffects import flow
from dpeffects.errors import BudgetError, DPEffectsError, OptionError
from dpeffects.estimators import conditional_methods
from dpeffects.guarantee import KINDS
from dpeffects.privacy.budget import as_written
from dpeffects.results import CateEffects, CateFunction
from tests.cate.cases import FORMULA, LEARNERS, PATHS, run
from tests.neighbours import frame

SPECS = {name: s for name, s in conditional_methods().items() if s.guarantee == "exact"}
ONE_PATH = {name: "groups" if name == "one_step" else "points" for name in SPECS}
CASES = [(name, p) for name in SPECS for p in (PATHS if name in LEARNERS else [ONE_PATH[name]])]
IDS = [f"{method}-{path}" for method, path in CASES]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("delta", [0.0, 1e-5])
@pytest.mark.parametrize(("method", "path"), CASES, ids=IDS)
def test_the_budget_is_spent_and_never_exceeded(method, path, delta):
    proofs = Path(flow.__file__).with_name("privacy").joinpath("PROOFS.md").read_text()
    for epsilon in (0.3, 7.7):
        ledger = dpe.Ledger(epsilon, delta)
        fit = run(method, path, epsilon=epsilon, delta=delta, ledger=ledger)
        total = [sum(Fraction(getattr(s, k)) for s in fit.charges) for k in ("epsilon", "delta")]
        assert total[0] <= as_written(epsilon)
        assert total[1] <= as_written(delta)
        assert float(total[0]) == pytest.approx(epsilon, rel=1e-9)
        drawn = tuple(s for s in ledger.charges if s.share != "rest")  # of delta, mostly
        assert drawn == fit.charges
        assert ledger.spent == (as_written(epsilon), as_written(delta))
        assert fit.guarantee.epsilon == pytest.approx(float(total[0]))
        assert fit.guarantee.delta == pytest.approx(float(total[1]))
        for charge in fit.charges:
            assert f"## Claim {charge.claim}." in proofs
        with pytest.raises(BudgetError):
            run(method, path, epsilon=epsilon, delta=delta, ledger=ledger)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("method", "path"), CASES, ids=IDS)
def test_secure_noise_gives_an_exact_guarantee(method, path):
    fit = run(method, path, seed=None)
    assert fit.guarantee.status == "exact"
    assert fit.guarantee.unit == "record"
    assert fit.to_json() != run(method, path, seed=None).to_json()


@pytest.mark.parametrize("method", SPECS)
def test_a_seed_repeats(method):
    one, two = (run(method, ONE_PATH[method]) for _ in range(2))
    assert one.to_dict() == two.to_dict()
    assert "NOT PRIVATE" in str(one)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("method", "path"), CASES, ids=IDS)
def test_result_is_complete(method, path):
    fit = run(method, path)
    assert isinstance(fit, CateFunction if "release" not in PATHS[path] else CateEffects)
    assert all(len(row) <= 80 for row in str(fit.summary()).splitlines())
    assert fit.guarantee.sentence().split(";")[0][:40] in " ".join(str(fit.summary()).split())
    parsed = json.loads(fit.to_json(), parse_constant=pytest.fail)
    assert parsed["method"] == method
    assert parsed["estimand"] == "CATE"
    assert len(fit.glance()) == 1
    assert method in repr(fit)
    tidy = fit.tidy()
    if isinstance(fit, CateFunction):
        assert len(tidy) == 9  # three points for each number, three levels
        assert {"covariate", "value", "covers"} <= set(tidy)
    else:
        assert len(tidy) == len(fit.labels) == (3 if path.startswith("points") else 6)
        assert np.isfinite(tidy["estimate"]).all()
        low, high = fit.conf_int().T
        wide = fit.conf_int(simultaneous=True).T
        usable = np.isfinite(low)
        inside = usable & (low > -1.0)  # those at the end of what is possible are cut there
        assert (low <= fit.estimates)[usable].all()
        assert (fit.estimates <= high)[usable].all()
        assert (wide[0] < low)[inside].all()
        assert (wide[0] <= low)[usable].all()
        assert tidy["term"].tolist() == list(fit.labels)


@pytest.mark.parametrize("method", conditional_methods())
def test_options_and_shares_are_checked_before_anything_is_charged(method):
    ledger, spec = dpe.Ledger(9.0, 1e-3), conditional_methods()[method]
    accept = {KINDS[spec.guarantee].accept: True} if method not in SPECS else {}
    for given in (
        {"clipp": 0.1},
        {"clip": -1},
        {"budget_split": {"nothing": 1.0}},
        {"level": "label"},
    ):
        with pytest.raises(DPEffectsError):
            run(method, ONE_PATH.get(method, "points"), ledger=ledger, **accept, **given)
    assert ledger.charges == ()
    assert spec.citation in dpe.methods(method)
    assert spec.budget_split("sample", spec.options())


def test_they_are_listed_and_estimate_no_average():
    listed = dpe.methods().query("estimands == 'CATE'")
    assert set(listed["method"]) == set(conditional_methods())
    with pytest.raises(OptionError, match="r_learner estimates CATE, not ATT"):
        dpe.dp_att(FORMULA, frame(), "r_learner", epsilon=1)
    with pytest.raises(OptionError, match="diff_in_means estimates ATE, not CATE"):
        dpe.dp_cate(FORMULA, frame(), "diff_in_means", epsilon=1)
