"""Rows on an engine come in any order, and in another one each time they are asked for.

Matching needs the score, the treatment and the outcome of a record together. Fetched one after the
other they belonged to different records wherever an engine changed its order in between: the
effect came out near zero, and was called exact.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize
from scipy.spatial import cKDTree

import dpeffects as dpe
from dpeffects.design.table import LazyRows

BOUNDS = {"y": (0, 1), "x": (0, 1)}
NEIGHBOURS = 5
MANY, FEW = 300_000, 20_000
"""DuckDB changes its order only where several threads have something to do."""


def frame(n):
    rng = np.random.default_rng(4)
    x = rng.random(n)
    t = rng.random(n) < 0.2 + 0.6 * x
    y = np.clip(0.5 * x + 0.1 * t + 0.3 * rng.random(n), 0, 1)
    return pd.DataFrame({"id": rng.permutation(n), "y": y, "t": t.astype(int), "x": x})


def brute_force(data):
    """Nearest neighbours of a score without this package: a tree, and a likelihood by scipy."""
    x, t, y = (data[name].to_numpy(dtype=float) for name in "xty")

    def loss(w):
        z = w[0] + w[1] * x
        return np.mean(np.logaddexp(0, z) - t * z)

    w = minimize(loss, np.zeros(2), method="BFGS").x
    score, arm = (1 / (1 + np.exp(-w[0] - w[1] * x)))[:, None], t == 1
    effect = np.empty(len(y))
    for own, other, sign in ((arm, ~arm, 1), (~arm, arm, -1)):
        _, found = cKDTree(score[other]).query(score[own], NEIGHBOURS)
        effect[own] = sign * (y[own] - y[other][found].mean(axis=1))
    return effect.mean()


@pytest.fixture(scope="module")
def many():
    data = frame(MANY)
    return data, brute_force(data)


@pytest.fixture(scope="module")
def few():
    data = frame(FEW)
    return data, brute_force(data)


def matched(data):
    """At label level and without noise to speak of; a limit that never binds, as in the tree."""
    given = {"level": "label", "epsilon": 1e4, "bounds": BOUNDS, "match_limit": 10_000}
    return dpe.dp_ate("y ~ t | x", data, "private_psm", variance=False, **given).estimate


def check(data, truth):
    """Scores by a penalty of 1e-6 move few neighbours, and rows that are mixed up move all."""
    assert matched(data) == pytest.approx(truth, abs=2e-4)


DUCKDB = {
    "group by": "SELECT id, max(x) AS x, max(t) AS t, max(y) AS y FROM rows GROUP BY id",
    "join": "SELECT a.x, a.t, b.y FROM rows a JOIN rows b USING (id)",
    "order by, with ties": "SELECT * FROM rows ORDER BY t, round(x, 1)",
    "distinct": "SELECT DISTINCT x, t, y FROM rows",
    "insertion order off": "SELECT * FROM stored WHERE x >= 0",
}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("query", DUCKDB.values(), ids=DUCKDB)
def test_a_record_stays_together_on_duckdb(query, many):
    """Scores, treatments and outcomes came from three scans in three orders."""
    duckdb = pytest.importorskip("duckdb")
    data, truth = many
    with duckdb.connect() as connection:
        connection.execute("SET preserve_insertion_order=false; SET threads=4")
        connection.register("rows", data)
        connection.execute("CREATE TABLE stored AS SELECT * FROM rows")
        check(connection.sql(query), truth)


@pytest.mark.long
def test_a_record_stays_together_on_dask_after_a_shuffle(few):
    """Partitions by a hash have an order that the table never had."""
    dask = pytest.importorskip("dask.dataframe")
    data, truth = few
    check(dask.from_pandas(data, npartitions=7).shuffle("id", npartitions=5), truth)


def test_a_record_stays_together_on_dask_where_every_look_has_another_order(few):
    """A partition read by a function may come in any order each time."""
    dask = pytest.importorskip("dask.dataframe")
    data, truth = few
    mixed = dask.from_pandas(data, npartitions=3).map_partitions(lambda part: part.sample(frac=1))
    check(mixed, truth)


def polars_grouped(rows):
    return rows.group_by("id").first()


def polars_joined(rows):
    return rows.select("id", "t", "x").join(rows.select("id", "y"), on="id")


def polars_distinct(rows):
    return rows.unique("id", keep="any")


@pytest.mark.parametrize("shape", [polars_grouped, polars_joined, polars_distinct])
def test_a_record_stays_together_on_polars(shape, few):
    """Groups, joins and distinct rows have no order in polars either."""
    polars = pytest.importorskip("polars")
    data, truth = few
    check(shape(polars.from_pandas(data).lazy()), truth)


def test_sample_level_pairs_scores_with_their_own_treatments(few):
    """At sample level the released scores and treatments were of different records."""
    polars = pytest.importorskip("polars")
    data, truth = few
    given = {"level": "sample", "epsilon": 1e6, "bounds": BOUNDS, "seed": 1, "variance": False}
    lazy = polars_grouped(polars.from_pandas(data).lazy())
    fit = dpe.dp_ate("y ~ t | x", lazy, "private_psm", as_printed=True, match_limit=10_000, **given)
    assert fit.estimate == pytest.approx(truth, abs=0.01)


@pytest.mark.parametrize("level", ["sample", "label"])
def test_records_are_looked_at_once(level, few, monkeypatch):
    """A second look could have another order, so it is not taken."""
    polars = pytest.importorskip("polars")
    looks, gather = [], LazyRows.gather

    def counted(rows, *given):
        looks.append(given)
        return gather(rows, *given)

    monkeypatch.setattr(LazyRows, "gather", counted)
    lazy = polars.from_pandas(few[0].head(500)).lazy()
    given = {"level": level, "epsilon": 5, "bounds": BOUNDS, "seed": 1, "as_printed": True}
    dpe.dp_ate("y ~ t | x", lazy, "private_psm", **given)
    assert len(looks) == 1
