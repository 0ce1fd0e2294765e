"""Holes in what is reported: survival, rates, quantiles, means and tests."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import dpeffects as dpe
from dpeffects.errors import OptionError


def records(n: int = 400, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    columns = {"t": rng.integers(0, 2, n), "time": rng.exponential(10, n), "x": rng.normal(size=n)}
    return pd.DataFrame(columns | {"event": rng.integers(0, 2, n), "years": rng.random(n)})


def survival(data, formula="Surv(time, event) ~ t", **given):
    asked = {"horizon": 12, "epsilon": 1.0, "design": "randomised", "seed": 1}
    return dpe.dp_survival(formula, data, **asked | given)


def rate(data, **given):
    asked = {"offset": "years", "epsilon": 1.0, "design": "randomised", "seed": 1}
    asked["bounds"] = {"event": (0, 1), "years": (0, 1)}
    return dpe.dp_rate("event ~ t", data, **asked | given)


def test_a_caution_about_bounds_is_a_caution_and_no_failure_after_the_charge():
    ledger = dpe.Ledger(100.0)
    given = {"bounds": {"time": (0, 2)}, "check_bounds": True, "epsilon": 50.0, "ledger": ledger}
    fit = survival(records(2000), **given)
    assert "time" in fit.warnings
    assert fit.warnings.split(";")[0] in str(fit.summary())
    bounds = {"event": (0, 1), "years": (0, 0.2)}
    assert "years" in rate(records(2000), bounds=bounds, check_bounds=True, epsilon=50.0).warnings


@pytest.mark.parametrize("bins", [np.int64(4), np.array([3.0, 6.0, 9.0, 12.0]), [3, 6, 9]])
def test_bins_may_come_from_numpy(bins):
    assert survival(records(), bins=bins).edges == (0.0, 3.0, 6.0, 9.0, 12.0)


@pytest.mark.parametrize("bins", [None, 3.0, "abc", {"a": 1}, np.float64(3)])
def test_bins_that_are_none_are_refused(bins):
    with pytest.raises(OptionError, match="bins must be"):
        survival(records(), bins=bins)


def test_events_may_be_floats_on_an_engine():
    polars = pytest.importorskip("polars")
    data = records().astype({"event": float})
    lazy = survival(polars.from_pandas(data).lazy())
    assert np.array_equal(lazy.arm_table.counts, survival(data).arm_table.counts)


def test_quantiles_may_come_from_numpy_and_ends_of_bins_are_finite():
    asked = {"bounds": {"time": (0, 100)}, "epsilon": 1.0, "seed": 1}
    ends = [1.0, 5.0, 20.0]
    fit = dpe.dp_qte("time ~ t", records(), quantiles=np.array([0.25, 0.5]), bins=ends, **asked)
    assert fit.asked == (0.25, 0.5)
    for bad in ([1.0, np.nan], [1.0, np.inf]):
        with pytest.raises(OptionError, match="bins must be"):
            dpe.dp_qte("time ~ t", records(), bins=bad, **asked)
