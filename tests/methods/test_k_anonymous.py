"""k-anonymisation: its groups, its estimate, and that it is private in no way."""

from __future__ import annotations

import numpy as np
import pytest

import dpeffects as dpe
from dpeffects.errors import OptionError, PrivacyError
from dpeffects.replication.k_anonymous import anonymised, microaggregate
from dpeffects.replication.unproved.unproved_releases import unprotected
from tests.methods.test_model_folds import BOUNDS, FORMULA, frame
from tests.plain import plain
from tests.privacy.bare import curator


def run(data=None, **given):
    data = frame() if data is None else data
    call = {"epsilon": 1.0, "bounds": BOUNDS, "accept_none": True, **given}
    return dpe.dp_ate(FORMULA, data, "k_anonymous", **call)


@pytest.mark.parametrize("k", [2, 3, 7])
def test_groups_have_k_to_2k_minus_1_rows(k):
    rng = np.random.default_rng(k)
    for n in range(k, 6 * k + 2):
        sizes = np.bincount(microaggregate(rng.random((n, 2)), k))
        assert sizes.sum() == n
        assert sizes.min() >= k
        assert sizes.max() < 2 * k


def test_every_row_is_shared_by_k_records_and_means_are_kept():
    rows = np.random.default_rng(1).random((101, 3))
    found = anonymised(rows, 5)
    assert np.unique(found, axis=0, return_counts=True)[1].min() >= 5
    np.testing.assert_allclose(found.mean(axis=0), rows.mean(axis=0))


def test_groups_are_near():
    """Within groups of MDAV rows are much nearer than in groups at random."""
    rng = np.random.default_rng(2)
    rows = rng.random((300, 2))
    error = ((rows - anonymised(rows, 5)) ** 2).sum()
    assert error < 0.05 * ((rows - rows.mean(axis=0)) ** 2).sum()


def test_larger_groups_adjust_less():
    raw = plain("y ~ t", frame(4000), "diff_in_means").estimate
    full = plain(FORMULA, frame(4000), "sample_aggregate").estimate
    found = [run(frame(4000), k=k).estimate for k in (5, 1500)]
    assert abs(found[0] - full) < 0.01
    assert abs(found[0] - full) < abs(found[1] - full) < abs(raw - full) + 0.01


def test_it_has_no_noise_and_charges_nothing():
    one, two = run(), run(epsilon=100.0)
    assert one.estimate == two.estimate
    assert one.noise_variance == 0.0
    assert one.charges == ()
    assert one.level == one.guarantee.status == "none"
    low, high = one.conf_int()
    assert low < one.estimate < high
    assert "Protects nothing" in " ".join(str(one.summary()).split())


def test_whoever_knows_the_others_reads_a_record():
    """Neighbours in one outcome give different answers, every time: no epsilon is large enough."""
    data = frame()
    other = data.copy()
    other.loc[7, "y"] = 1.0 - other.loc[7, "y"]
    assert run(data).estimate != run(other).estimate


AT = {"x1": [0.1, 0.5, 0.9], "x2": [0.5, 0.5, 0.5]}


def at_points(data=None, **given):
    data = frame() if data is None else data
    call = {"epsilon": 1.0, "bounds": BOUNDS, "release": "points", "at": AT, "accept_none": True}
    return dpe.dp_cate(FORMULA, data, "k_anonymous", **{**call, **given})


@pytest.mark.parametrize("learner", ["dr_learner", "r_learner"])
def test_effects_at_points_are_those_of_the_anonymised_table(learner):
    """The same learner, called on a table that was anonymised here."""
    data = frame()
    rows = data[["x1", "x2"]].to_numpy()
    shared = data.assign(**dict(zip(("x1", "x2"), anonymised(rows, 7).T, strict=True)))
    fit, same = at_points(k=7, learner=learner), at_points(shared, k=2, learner=learner)
    from dpeffects.replication.block_learner import BlockLearner, RidgeLogistic, RidgeRegression
    from dpeffects.replication.unproved.sklearn_models import ModelTemplate

    models = ModelTemplate(RidgeRegression()), ModelTemplate(RidgeLogistic())
    points = np.column_stack([np.ones(3), AT["x1"], AT["x2"]])
    direct = BlockLearner(*models, estimator=learner, queries=points)
    encoded = np.column_stack([np.ones(len(shared)), shared[["x1", "x2"]]])
    expected = direct(encoded, data["t"].to_numpy(), data["y"].to_numpy())
    assert fit.estimates == pytest.approx(expected, abs=1e-9)
    assert same.estimates == pytest.approx(expected, abs=0.05)


def test_effects_at_points_are_marked_and_charge_nothing():
    one, two = at_points(), at_points(epsilon=100.0)
    assert (one.estimates == two.estimates).all()
    assert one.charges == ()
    assert one.guarantee.status == "none"
    assert set(one.tidy()["guarantee"]) == {"none"}
    assert np.isnan(one.conf_int()).all()
    for text in (str(one), one.to_json(), str(one.report())):
        assert "no differential privacy" in text.lower()
    assert "Protects nothing" in " ".join(str(one.summary()).split())


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"accept_none": False}, "accept_none=True"),
        ({"release": "function", "at": None}, 'release="points"'),
        ({"learner": "t_learner"}, "learner must be"),
        ({"k": 401}, "smaller k"),
        ({"ledger": dpe.Ledger(1.0)}, "leave ledger out"),
    ],
)
def test_refusals_at_points(given, words):
    with pytest.raises(OptionError, match=words):
        at_points(**given)


def test_rows_are_handed_out_only_where_all_of_them_are_public():
    y, t = np.zeros(4), np.arange(4) % 2 == 0
    for public in ((), ("covariates",), ("covariates", "treatment")):
        with pytest.raises(PrivacyError, match="private in this call"):
            unprotected(curator(y, t, public=public)[0], lambda x, t, y: y)
    open_ = curator(y, t, public=("covariates", "treatment", "outcome"))[0]
    assert len(unprotected(open_, lambda x, t, y: y)) == 4


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"accept_none": False}, "no differential privacy"),
        ({"k": 1}, "k must be"),
        ({"k": 401}, "smaller k"),
        ({"estimator": "ols"}, "estimator"),
        ({"level": "sample"}, "level must be one of"),
        ({"ledger": dpe.Ledger(1.0)}, "leave ledger out"),
    ],
)
def test_refusals(given, words):
    with pytest.raises(OptionError, match=words):
        run(**given)
