"""tests/second_reading.py, written from the papers' texts alone, against the package.

The two share no code. Where the package keeps a paper's formula, the two agree; and the readings on
file reach the page of verdicts as they should.
"""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest

import dpeffects as dpe
from dpeffects.privacy.exact_matching import Sizes, StratumCounts
from dpeffects.replication import nearest
from dpeffects.replication.nearest import match
from dpeffects.replication.papers import ClaimCheck, paper_004, table, verdicts
from dpeffects.replication.papers import verdict as register
from dpeffects.services.sites.rules import RULES
from tests import second_reading as text

PAPERS = ("000", "001", "003", "004")


def arms(rng, neighbours):
    t = (rng.random(40) < rng.uniform(0.3, 0.7)).astype(int)
    t[:neighbours], t[neighbours : 2 * neighbours] = 1, 0
    return rng.normal(size=40), t


@pytest.mark.parametrize("seed", range(10))
def test_matching_and_its_limits(seed):
    rng, neighbours = np.random.default_rng(seed), 1 + seed % 5
    scores, t = arms(rng, neighbours)
    near, (n_t, n_c) = text.by_distance(scores, t), (int(t.sum()), int((1 - t).sum()))
    free = match(scores, t == 1, neighbours)
    chosen = text.taken(near, t, neighbours)
    np.testing.assert_allclose(text.weights(chosen, 40), free.weight)
    most, sides = int(free.used.max()), ((n_t, n_c), (n_c, n_t))
    for capped in (True, False):
        own = text.limit(n_t, n_c, most, neighbours, 2.0, 0.01, capped)
        raised = tuple(nearest.feasible(k, *side) for k, side in zip(own, sides, strict=True))
        more = (neighbours, most, 2.0, 0.01, capped)
        assert raised == tuple(nearest.match_limit(*side, *more) for side in sides)
        pair = (neighbours * raised[0], neighbours * raised[1])
        limited = match(scores, t == 1, neighbours, pair)
        ours = text.weights(text.taken(near, t, neighbours, raised), 40)
        np.testing.assert_allclose(ours, limited.weight)


def test_label_level_on_lalonde():
    """Its estimate with next to no noise is that of the package."""
    study, info = dpe.load_data("lalonde"), dpe.data_info("lalonde")
    parts = study.frame[list(info.covariates)], study["treatment"], study[info.outcome]
    own = text.Matching(*(np.asarray(part, dtype=float) for part in parts))
    bounds = {name: (study[name].min(), study[name].max()) for name in study.bounds}
    given = {"method": "private_psm", "level": "label", "bounds": bounds}
    found = dpe.reference(info.formula, study.frame, **given).estimate
    assert own.free() == pytest.approx(found, abs=0.01 * own.width)
    errors = own.label(1e9, np.random.default_rng(1), fixed=40, capped=False, runs=5)
    assert errors.max() < 1e-6


def test_exact_matching_and_its_smooth_bound():
    rng = np.random.default_rng(2)
    for _ in range(20):
        x, w, y = rng.integers(0, 3, 30), rng.integers(0, 2, 30), rng.integers(0, 2, 30)
        sizes = Sizes(np.bincount(2 * x + w, minlength=6))
        value = text.exact_matching(x, w, y)[0] * 30
        assert round(value) == sizes.dealt_contrast(2 * x + w, y)
        t, c = (np.bincount(x[w == arm], minlength=3) + 20 for arm in (1, 0))
        counts = StratumCounts(t, c, empty=False)
        n, beta = int((t + c).sum()), float(rng.choice([0.05, 0.2]))
        ours = n * text.smooth_bound(t, c, beta)
        assert ours <= counts.estimate_sensitivity(beta, paper=True) * (1 + 1e-9)
        assert ours == pytest.approx(counts.estimate_sensitivity(beta, paper=True), rel=0.02)


def test_the_least_variance_over_sets_of_sites():
    rng = np.random.default_rng(3)
    for _ in range(50):
        n, variance = rng.integers(20, 5000, 5).astype(float), rng.lognormal(0, 2, 5)
        np.testing.assert_allclose(
            text.fewest(n, variance), RULES["mvagg"].weights(n, variance), atol=1e-12
        )


def test_exact_deltas_and_epsilons():
    rows = table("001_gaussian")
    for (_, row), top in itertools.product(rows.iterrows(), (2.0, 1.25)):
        if row["item"] == ("Corollary 9" if top == 2.0 else "Definition 2"):
            shift = row["epsilon"] / np.sqrt(2 * np.log(top / row["printed"]))
            exact = text.exact_delta(shift, row["epsilon"])
            assert exact == pytest.approx(row["ours"], rel=1e-3)
    assert text.exact_delta(0.7, text.largest_epsilon(0.7, 1e-5)) == pytest.approx(1e-5, rel=1e-6)
    assert text.largest_epsilon(1e-7, 1e-5) == 0


def test_the_algorithm_of_weighting():
    rng = np.random.default_rng(4)
    x = text.over_norm(rng.normal(size=(900, 4)))
    t = (rng.random(900) < 1 / (1 + np.exp(-2 * x[:, 0]))).astype(int)
    y = 1 + x[:, 0] + t
    w = text.logit(x[:500], t[:500], 0.1)
    gradient = x[:500].T @ (1 / (1 + np.exp(-x[:500] @ w)) - t[:500]) / 500 + 0.1 * w
    assert np.abs(gradient).max() < 1e-8
    sd = text.CLASSICAL * 2 / (500 * 0.1) / text.EPSILONS
    ours = [dpe.ipw_noise_sd(epsilon, 500, 0.1, 1e-6) for epsilon in text.EPSILONS]
    np.testing.assert_allclose(sd, ours)
    runs = np.array(
        [text.pp_ipw(x, t, y, 500, np.random.default_rng(run), 3.0) for run in range(1500)]
    )
    case = {"outcome": y[500:], "treated": t[500:], "rows": x[500:], "weights": w}
    bias = dpe.ipw_bias(0.99, 500, 0.1, 1e-6, **case)
    moved = runs[:, 5] - runs[:, 0]
    assert abs(moved.mean() - bias) < 4 * moved.std() / np.sqrt(1500)


@pytest.mark.parametrize("paper", PAPERS)
def test_every_reading_belongs_to_a_statement(paper):
    names = {
        (name, claim.item)
        for key in ("000", "001", "002", "003", "004")
        for claim in register.claims(key)
        for name in claim.names
    }
    rows = table(f"{paper}_readings")
    for row in rows.itertuples():
        assert any(row.claim == n and (row.item in (i, "") or pd.isna(row.item)) for n, i in names)


@pytest.mark.long
def test_what_does_not_come_back_was_read_again():
    """Thirty and more by the second implementation; where none was tried the page says so."""
    rows = [
        row for row in verdicts().rows if row.verdict == "does not" or "Read again" in row.measured
    ]
    measured = {
        (row.paper, row.item, row.printed)
        for row in rows
        if "Read again" in row.measured or row.tried
    }
    assert len(measured) >= 80
    assert [row.item for row in rows if row.reasons.endswith("Read once.")] == [
        row.item for row in rows if not row.tried and row.verdict == "does not"
    ]
    assert sum(len(table(f"{paper}_readings")["claim"].unique()) for paper in PAPERS) >= 30


def test_only_a_plain_reading_brings_a_statement_back(tmp_path, monkeypatch):
    monkeypatch.setattr("dpeffects.replication.papers.stored_tables._folder", lambda: tmp_path)
    judged = ClaimCheck("0.5", False, "because")
    monkeypatch.setattr(paper_004, "_below", lambda: judged, raising=False)
    said = register.Claim("004", "Figure 1", "anything", "below")
    monkeypatch.setattr(register, "claims", lambda key: [said])
    for plain, verdict in ((False, "does not"), (True, "comes back")):
        row = {"claim": "below", "item": "", "reading": "as printed", "found": "0.1"}
        rows = [row | {"plain": plain, "holds": True, "cases": 1}]
        rows.append(row | {"reading": "elsewhere", "plain": True, "holds": False, "cases": 1})
        pd.DataFrame(rows).to_csv(tmp_path / "004_readings.csv", index=False)
        (found,) = verdicts("004").rows
        assert found.verdict == verdict
        assert ("Read again, as printed: 0.1" in found.measured) == plain
        assert "elsewhere: 0.1" in found.reasons
        assert ("as printed" in found.reasons) != plain
