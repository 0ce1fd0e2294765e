"""Tables by arm: cells, distributions by the delta method, sites, refusals, engines."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd
import pytest

import dpeffects as dpe
from dpeffects.errors import BoundsError, DataError, FormulaError, OptionError, ReleaseError
from dpeffects.formula.expression import Column, Pair, Survival
from dpeffects.inference.tables import ArmTable
from dpeffects.services.sites.pooled_tables import tables as together
from tests.calls import ENGINES
from tests.refused import refusals

TRUE = np.array([[0.1, 0.3, 0.2, 0.4], [0.25, 0.25, 0.3, 0.2]])
ASKED = {"horizon": 1.0, "bins": 4, "epsilon": 1.0, "design": "randomised"}


def numbers(shares: np.ndarray) -> np.ndarray:
    """A difference, a log ratio, and a mean: two of them bend."""
    middle = shares @ np.arange(4.0)
    ratio = np.log(np.maximum(shares[0, 1] / max(shares[1, 1], 1e-9), 1e-9))
    return np.array([shares[0, 0] - shares[1, 0], ratio, middle[0] ** 2])


def drawn(rng: np.random.Generator, sizes: tuple[int, int], sd: float) -> np.ndarray:
    counts = np.stack([rng.multinomial(n, p) for n, p in zip(sizes, TRUE, strict=True)])
    return counts + rng.laplace(scale=sd / np.sqrt(2.0), size=counts.shape)


def covariance(dist):
    """All errors of numbers together."""
    return dist.sampling + dist.noise + dist.left


def test_law_is_that_of_multinomial_counts_with_noise() -> None:
    rng = np.random.default_rng(1)
    noise, sizes = 20.0, (600, 900)
    values = []
    for _ in range(3000):
        counts = drawn(rng, sizes, noise)
        values.append(numbers(counts / counts.sum(axis=1, keepdims=True)))
    seen = np.cov(np.array(values).T)
    expected = np.array(sizes)[:, None] * TRUE
    dist = ArmTable(expected, (noise**2, noise**2)).statistics(numbers)
    assert np.allclose(dist.values, numbers(TRUE))
    assert np.allclose(np.diag(covariance(dist)), np.diag(seen), rtol=0.1)
    scale = np.sqrt(np.outer(np.diag(seen), np.diag(seen)))
    assert np.abs((covariance(dist) - seen) / scale).max() < 0.1
    quiet = ArmTable(expected, (0.0, 0.0)).statistics(numbers)
    assert np.allclose(covariance(quiet), dist.sampling, rtol=1e-3)
    difference = TRUE[:, 0] * (1.0 - TRUE[:, 0]) / np.array(sizes)
    assert covariance(quiet)[0, 0] == pytest.approx(difference.sum(), rel=1e-6)


def test_weighted_counts_have_the_variance_of_their_squares() -> None:
    rng = np.random.default_rng(2)
    cell = rng.choice(4, size=(2000, 500), p=TRUE[0])
    weight = rng.choice([1.0, 4.0], size=cell.shape)
    first = [(w * (c == 0)).sum() / w.sum() for c, w in zip(cell, weight, strict=True)]
    counts = np.stack([TRUE[0] * 500 * 2.5] * 2)
    table = ArmTable(counts, (0.0, 0.0), ((1.0 + 16.0) / 2.0 / 2.5, 1.0))
    dist = table.statistics(lambda shares: shares[0, :1])
    assert covariance(dist)[0, 0] == pytest.approx(np.var(first), rel=0.1)


def test_negative_counts_are_moved_to_the_nearest_that_are_not() -> None:
    table = ArmTable(np.array([[5.0, -3.0, 8.0, 0.0], [-1.0, -2.0, 0.5, 0.0]]), (1.0, 1.0))
    found = table.plausible
    assert found.min() >= 0.0
    assert found[0].sum() == pytest.approx(10.0)
    assert np.array_equal(found[1], np.zeros(4))
    from scipy.optimize import minimize

    nearest = minimize(
        lambda x: ((x - table.counts[0]) ** 2).sum(),
        np.full(4, 2.5),
        bounds=[(0, None)] * 4,
        constraints={"type": "eq", "fun": lambda x: x.sum() - 10.0},
    ).x
    assert np.allclose(found[0], nearest, atol=1e-5)
    assert np.isfinite(covariance(table.statistics(numbers))).all()


def test_sites_that_differ_in_size_and_share_treated_do_not_confound() -> None:
    few, many = np.array([[10.0, 90.0], [90.0, 810.0]]), np.array([[450.0, 450.0], [50.0, 50.0]])
    tables = [ArmTable(counts, (4.0, 9.0)) for counts in (few, many)]
    both = together(tables)
    assert np.allclose(both.shares[0], both.shares[1])  # no effect within any site
    crude = (few + many)[:, 0] / (few + many).sum(axis=1)
    assert abs(crude[0] - crude[1]) > 0.3
    # by hand: each site counts for its records in both arms, and an arm has its 1000 in all
    factors = np.array([[5.0, 500.0 / 900.0], [500.0 / 900.0, 5.0]])
    assert both.sizes == pytest.approx([1000.0, 1000.0])
    assert both.noise_variance == pytest.approx((factors**2 * [[4.0, 9.0]] * 1.0).sum(axis=0))
    p = np.array([0.1, 0.5])
    sizes = np.array([[100.0, 900.0], [900.0, 100.0]])
    by_hand = (0.25 * p * (1 - p) / sizes[:, 0]).sum()
    dist = together([ArmTable(counts, (0.0, 0.0)) for counts in (few, many)]).statistics(
        lambda shares: shares[0, :1]
    )
    assert covariance(dist)[0, 0] >= by_hand  # sites are taken as drawn too


def test_cells_of_a_life_table_by_brute_force() -> None:
    edges = (0.0, 0.5, 1.0, 2.0)
    node = Survival(Column("time"), Column("event"), edges)
    times = np.array([0.0, 0.2, 0.5, 0.50001, 1.0, 1.5, 2.0, 2.0, 7.0, -1.0, np.nan])
    events = np.array([1, 0, 1, 0, 1, 1, 1, 0, 1, 1, 1], float)

    def by_hand(time: float, event: float) -> int:
        if np.isnan(time) or time > 2.0 or (time == 2.0 and not event):
            return 6
        inside = 0
        while time > edges[inside + 1]:
            inside += 1
        return 2 * inside + int(event)

    expected = [by_hand(t, e) for t, e in zip(times, events, strict=True)]
    assert node.cell(times, events).tolist() == expected
    assert node.cells == 7


def test_two_numbers_in_one_come_apart_again() -> None:
    pair = Pair(Column("a"), Column("b"), (10.0, 4.0))
    first, second = np.array([0.0, 3.0, 10.0, 12.0]), np.array([-1.0, 0.5, 3.0, -9.0])
    one, other = Pair.apart(pair.together(first, second))
    assert np.allclose(one * 10.0, [0.0, 3.0, 10.0, 10.0], atol=1e-6)
    assert np.allclose(other * 4.0, [0.0, 0.5, 3.0, 0.0], atol=1e-6)


def made(n: int = 400, seed: int = 1) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    treated, x = rng.integers(0, 2, n), rng.uniform(size=n)
    time, end = rng.exponential(1.0, n), rng.uniform(0.3, 2.0, n)
    frame = {"t": treated, "x": x, "time": np.minimum(time, end), "died": (time <= end) * 1}
    return pd.DataFrame(frame)


@pytest.mark.parametrize("engine", ["", "polars", "duckdb"])
def test_an_event_that_is_not_zero_or_one_is_refused_by_name_only(engine: str) -> None:
    if engine:
        pytest.importorskip(engine)
    data, ledger = made().assign(status=lambda d: d["died"] + 1), dpe.Ledger(2.0)
    with pytest.raises(DataError, match=r"'status' must be 0 or 1.*status == 2"):
        dpe.dp_survival("Surv(time, status) ~ t", ENGINES[engine](data), **ASKED, ledger=ledger)
    fit = dpe.dp_survival("Surv(time, status == 2) ~ t", ENGINES[engine](data), **ASKED, seed=1)
    same = dpe.dp_survival("Surv(time, died) ~ t", data, **ASKED, seed=1)
    assert fit.arm_table == same.arm_table
    assert ledger.spent == (0.0, 0.0)


test_refusals_cost_nothing = refusals(
    partial(dpe.dp_survival, "Surv(time, died) ~ t", made(), **ASKED),
    ({"horizon": -1.0}, "horizon must be a positive"),
    ({"horizon": float("nan")}, "horizon must be a positive"),
    ({"bins": 1}, "bins must be a whole number"),
    ({"bins": [0.5, 0.2]}, "in increasing order"),
    ({"bins": [0.5, 3.0]}, "must increase from 0 to the horizon"),
    ({"design": "trial"}, "design must be"),
    ({"adjust": True}, "needs covariates"),
    ({"cluster": "x"}, "cluster is only for average effects"),
    ({"missing": "weight"}, "average effects"),
)


def test_surv_stands_where_it_belongs() -> None:
    with pytest.raises(OptionError, match="dp_survival"):
        dpe.dp_ate("Surv(time, died) ~ t", made(), epsilon=1)
    with pytest.raises(OptionError, match="needs a survival time"):
        dpe.dp_survival("time ~ t", made(), **ASKED)
    with pytest.raises(FormulaError, match="before the `~`"):
        dpe.dp_survival("x ~ t | Surv(time, died)", made(), **ASKED)
    with pytest.raises(FormulaError, match="event is 0 or 1"):
        dpe.dp_survival("Surv(time, died + 1) ~ t", made(), **ASKED)
    with pytest.raises(FormulaError, match="write Surv"):
        dpe.dp_survival("Surv(time) ~ t", made(), **ASKED)


def test_sites_add_their_tables_or_say_why_not() -> None:
    north, south = (
        dpe.dp_survival("Surv(time, died) ~ t", made(seed=seed), **ASKED, seed=seed)
        for seed in (1, 2)
    )
    both = dpe.combine_tables({"North": north, "South": south})
    assert both.n == 800
    assert both.guarantee.epsilon == 1.0
    assert both.arm_table == together([north.arm_table, south.arm_table])
    assert "Tables of 2 sites" in str(both.summary())
    assert type(both).from_json(both.to_json()) == both
    other = dpe.dp_survival("Surv(time, died) ~ t", made(), **{**ASKED, "bins": 5}, seed=1)
    with pytest.raises(ReleaseError, match="differ in edges"):
        dpe.combine_tables({"North": north, "South": other})
    with pytest.raises(ReleaseError, match="the same release"):
        dpe.combine_tables({"North": north, "South": north})
    with pytest.raises(BoundsError, match="0 or 1"):
        dpe.dp_survival("Surv(time, died) ~ t", made(), **ASKED, bounds={"died": (0.6, 1)})
    with pytest.raises(OptionError, match="no table"):
        dpe.combine_tables({"North": 3})  # type: ignore[dict-item]


def test_a_person_with_many_rows_counts_once() -> None:
    data = made(100)
    once = data.assign(id=range(100))
    thrice = pd.concat([once, once, once], ignore_index=True)
    fits = [
        dpe.dp_survival("Surv(time, died) ~ t", x, **ASKED, unit="id", seed=5)
        for x in (once, thrice)
    ]
    assert np.allclose(fits[0].arm_table.counts, fits[1].arm_table.counts, atol=0.01)
    assert fits[1].n == 100
    assert "id" in fits[1].guarantee.unit


def test_a_rehearsal_is_of_made_up_data_and_has_a_row_a_term() -> None:
    def study(seed: int) -> object:
        return dpe.dp_survival("Surv(time, died) ~ t", made(seed=seed), **ASKED, seed=seed)

    plan = dpe.rehearse(study, runs=4)
    frame, one = plan.tidy(), study(0).tidy()  # type: ignore[attr-defined]
    assert frame["term"].tolist() == one["term"].tolist()
    errors = [study(seed).tidy()["std_error"][0] for seed in range(4)]  # type: ignore[attr-defined]
    assert frame["std_error"][0] == pytest.approx(np.median(errors))
    assert type(plan).from_json(plan.to_json()).tidy().equals(frame)
    with pytest.raises(OptionError, match="rehearse"):
        dpe.plan("Surv(time, died) ~ t", n=100, epsilon=1)
