"""k-anonymisation: its groups, its estimate, and that it is private in no way."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import dpeffects as dpe
from dpeffects.errors import OptionError, PrivacyError
from dpeffects.estimators.k_anonymous import anonymised, microaggregate
from dpeffects.unproved.claimed import unprotected
from tests.privacy.bare import curator

BOUNDS = {"y": (0, 1), "x1": (0, 1), "x2": (0, 1)}
FORMULA = "y ~ t | x1 + x2"


def frame(n=400, seed=0):
    rng = np.random.default_rng(seed)
    x1, x2 = rng.random((2, n))
    t = rng.random(n) < 0.2 + 0.6 * x1
    y = 0.1 + 0.5 * x1 + 0.15 * t + 0.2 * (rng.random(n) - 0.5)
    return pd.DataFrame({"y": y, "t": t, "x1": x1, "x2": x2})


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
    raw = dpe.reference("y ~ t", frame(4000), "diff_in_means").estimate
    full = dpe.reference(FORMULA, frame(4000), "sample_aggregate").estimate
    found = [run(frame(4000), k=k).estimate for k in (5, 1500)]
    assert abs(found[0] - full) < 0.01
    assert abs(found[0] - full) < abs(found[1] - full) < abs(raw - full) + 0.01


def test_it_has_no_noise_and_charges_nothing():
    one, two = run(), run(epsilon=100.0)
    assert one.estimate == two.estimate
    assert one.noise_variance == 0.0
    assert one.spends == ()
    assert one.level == one.guarantee.status == "none"
    low, high = one.conf_int()
    assert low < one.estimate < high
    assert "nothing is protected" in str(one)


def test_whoever_knows_the_others_reads_a_record():
    """Neighbours in one outcome give different answers, every time: no epsilon is large enough."""
    data = frame()
    other = data.copy()
    other.loc[7, "y"] = 1.0 - other.loc[7, "y"]
    assert run(data).estimate != run(other).estimate


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
        ({"ledger": dpe.Ledger(1.0)}, "no ledger"),
    ],
)
def test_refusals(given, words):
    with pytest.raises(OptionError, match=words):
        run(**given)
