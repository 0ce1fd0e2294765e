"""The same seed gives the same numbers, bit for bit, wherever the rows are and in any order."""

from __future__ import annotations

import os
import shutil
import sys
import tracemalloc

import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd
import pytest

import dpeffects as dpe
from dpeffects import flow
from dpeffects.design import engines, frames, table
from dpeffects.design import table_reader as design
from dpeffects.design.arms import ARMS, TREATED, Outcome, ScaledSquare
from dpeffects.design.clipped import AnyOutOfRange
from dpeffects.errors import DataError
from dpeffects.formula import parse
from dpeffects.formula.expression import Column, Survival, evaluate
from dpeffects.privacy import rows as private_rows
from dpeffects.privacy.curator import GroupedSum, GroupedSums
from dpeffects.privacy.domains import COUNT, Box, Cube

N = 3001
# bounds that are no round numbers in binary, and clip some values
BOUNDS = {
    "y": (-0.7, 1.3),
    "x": (-2.1, 2.3),
    "z": (0.1, 0.7),
    "g": ["a", "b", "c"],
}
ADJUST = "y ~ t | x + log(z) + g"
CALLS = {
    "means": ("diff_in_means", "y ~ t", {}),
    "means of a square": ("diff_in_means", "I(y**2) ~ t", {}),
    "public arms": ("diff_in_means", "y ~ t", {"arms": "public"}),
    "private bounds": ("diff_in_means", "u ~ t", {"epsilon": 8}),
    "ipw": ("private_ipw", ADJUST, {}),
    "ipw, public covariates": ("private_ipw", ADJUST, {"level": "label"}),
    "auto": ("auto", ADJUST, {"epsilon": 4}),
    "auto, trial": ("auto", ADJUST, {"design": "randomised"}),
    "one step": ("one_step", ADJUST, {}),
    "one step, Gaussian": ("one_step", ADJUST, {"delta": 1e-6, "pool": "all"}),
    "contrast": ("clipped_contrast", "y ~ t", {}),
    "contrast, public arms": ("clipped_contrast", "y ~ t", {"level": "label"}),
    "strata": ("smooth_matching", "y ~ t | g + cut(x, [-3, 0, 0.5, 3])", {"delta": 1e-6}),
    "strata, global": ("global_matching", "y ~ t | g", {}),
}


def frame(n=N, seed=0):
    rng = np.random.default_rng(seed)
    x, z = rng.normal(size=n), rng.random(n)
    t = rng.random(n) < 1 / (1 + np.exp(-x))
    y = 0.3 * x + 0.2 * t + 0.3 * rng.normal(size=n)
    g = np.array(["a", "b", "c"])[rng.integers(0, 3, n)]
    return pd.DataFrame({"y": y, "x": x, "z": z, "t": t.astype(int), "g": g, "u": 50 * z, "d": 1})


def answer(data, call, **more):
    method, formula, options = CALLS[call]
    known = {k: v for k, v in BOUNDS.items() if k in formula or k in "ty"}
    given = {"epsilon": 1, "bounds": known, "seed": 1, **options, **more}
    return dpe.dp_ate(formula, data, method, **given).to_dict()


def polars_lazy(data, folder):
    polars = pytest.importorskip("polars")
    return polars.from_pandas(data).lazy()


def polars_file(data, folder):
    polars = pytest.importorskip("polars")
    polars.from_pandas(data).write_parquet(folder / "rows.parquet", row_group_size=500)
    return polars.scan_parquet(folder / "rows.parquet")


def duckdb_relation(data, folder):
    duckdb = pytest.importorskip("duckdb")
    return duckdb.from_df(data)


def parquet(data, folder):
    pytest.importorskip("duckdb")
    data.to_parquet(folder / "rows.parquet")
    return str(folder / "rows.parquet")


def csv(data, folder):
    pytest.importorskip("duckdb")
    data.to_csv(folder / "rows.csv", index=False)
    return folder / "rows.csv"


def polars_eager(data, folder):
    return pytest.importorskip("polars").from_pandas(data)


def arrow(data, folder):
    return pytest.importorskip("pyarrow").Table.from_pandas(data)


HOLDERS = [polars_eager, arrow, polars_lazy, polars_file, duckdb_relation, parquet, csv]


@pytest.mark.parametrize("name", ["*", "^x$", "^$"])
def test_names_that_an_engine_takes_as_patterns_are_refused(name):
    polars, plain = pytest.importorskip("polars"), pd.DataFrame({name: [1.0], "^y": [2.0]})
    with pytest.raises(DataError, match="pattern"):
        frames.unpack(polars.DataFrame(plain.to_dict("list")), None, [name])
    assert frames.unpack(plain, None, [name, "^y"])[0].columns == [name, "^y"]
    assert frames.unpack(polars.DataFrame({"^y": [2.0]}), None, ["^y"])[0].columns == ["^y"]


@pytest.mark.sampled(7)
@pytest.mark.parametrize("call", CALLS)
def test_every_engine_gives_the_same_numbers(call, tmp_path, monkeypatch):
    data = frame()
    expected = answer(data, call)
    shuffled = data.sample(frac=1, random_state=3)
    assert answer(shuffled, call) == expected
    for holder in HOLDERS:
        assert answer(holder(shuffled, tmp_path), call) == expected, holder.__name__
    monkeypatch.setattr(private_rows, "ROWS", 100)
    monkeypatch.setattr(table, "ROWS", 70)
    monkeypatch.setattr(engines, "_BATCH", 300)
    assert answer(data, call) == expected
    for holder in (polars_lazy, parquet):
        assert answer(holder(data, tmp_path), call) == expected, holder.__name__


def test_a_machine_that_does_not_say_its_memory_is_taken_to_have_16_gib(monkeypatch):
    monkeypatch.delattr(os, "sysconf")
    assert engines.memory() == 16 * 1024**3


def test_threads_give_the_same_numbers(monkeypatch):
    data = frame()
    expected = answer(data, "ipw")
    monkeypatch.setattr(private_rows, "ROWS", 64)  # more than four blocks: by several threads
    assert answer(data, "ipw") == expected


def test_site_releases_and_declared_bounds(tmp_path):
    data = frame()
    one, two = (
        dpe.site_release(
            "y ~ t",
            dpe.declare(held, BOUNDS),
            site="A",
            method="diff_in_means",
            epsilon=1,
            seed=1,
        )
        for held in (data, duckdb_relation(data, tmp_path))
    )
    assert one.estimate == two.estimate


def test_small_floats_are_read_as_they_are(tmp_path):
    data = frame().astype({"y": "float32", "x": "float32", "z": "float32"})
    expected = answer(data, "ipw")
    for holder in (arrow, polars_lazy, duckdb_relation, parquet):
        assert answer(holder(data, tmp_path), "ipw") == expected, holder.__name__


@pytest.mark.parametrize("kind", ["bool", "levels", "float"])
def test_kinds_of_treatment(kind, tmp_path):
    data = frame()
    made = {
        "bool": data["t"].astype(bool),
        "levels": np.where(data["t"] == 1, "drug", "none"),
        "float": data["t"].astype(float),
    }
    data["t"] = made[kind]
    more = {"bounds": {**BOUNDS, "t": ["none", "drug"]}} if kind == "levels" else {}
    expected = answer(data, "means", **more)
    for holder in (polars_lazy, duckdb_relation):
        assert answer(holder(data, tmp_path), "means", **more) == expected


@pytest.mark.parametrize("interval", [(0.1, 0.7), (1.0, 1.0 + 2**-52), (-1e9, 1e-3), (0.0, 1e-40)])
def test_sums_that_come_with_the_checks_are_those_of_the_rows(interval, monkeypatch):
    """Ends, halves between steps, values beyond: what is known is not read again, and nothing else
    is taken for it: not on another grid, nor of columns as they are."""
    duckdb = pytest.importorskip("duckdb")
    rng, (lower, upper) = np.random.default_rng(5), interval
    halves = lower + (rng.integers(0, 2**20, 300) + 0.5) * 2**-21 * (upper - lower)
    y = np.concatenate([rng.uniform(lower, upper, 300), halves, [lower, upper, -1e300, 1e300]])
    data = pd.DataFrame({"y": y, "t": rng.integers(0, 2, y.size)})
    read = design.read(duckdb.from_df(data), parse("y ~ t"), {"y": interval}, ())
    rows, looks = read.encode(), []
    look = table.PrivateTable.look
    monkeypatch.setattr(table.PrivateTable, "look", lambda *asked: looks.append(1) or look(*asked))
    inside, treated, n = np.clip(y, lower, upper), data["t"].to_numpy() == 1, y.size
    z = (inside * 2.0 - lower - upper) / (upper - lower)
    box, unit = Box(*interval), Box(0.0, 1.0)
    cases = [(Outcome(), box, inside), (ScaledSquare(*interval), unit, z * z)]
    cases += [(None, COUNT, np.ones(n))]
    for phi, within, values in cases:
        for cells in (ARMS, TREATED)[: 1 if phi else 2]:
            grid = within.on(n, 1.0)
            steps = grid.project(values[:, None].copy())[:, 0].astype(np.int64)
            wanted = [[steps[treated].sum()], [steps[~treated].sum()]][: cells.size]
            (found,) = rows.fold(GroupedSums([GroupedSum(phi, 1, cells, grid)]), "outcome")
            assert found.tolist() == wanted
    outside = AnyOutOfRange((lower,), (upper,))
    for rate in (1.0, 1e-9):
        ask = GroupedSums([GroupedSum(outside, 1, None, Cube(0.0, 1.0).on(n, rate))])
        (found,) = read.column("y").fold(ask, "covariates")
        assert found[0, 0] * ask[0].grid.unit + n / 2 == 2
        assert len(looks) == (rate < 1.0)
    rows.fold(GroupedSums([GroupedSum(Outcome(), 1, ARMS, box.with_bits(8))]), "outcome")
    read.column("y").fold(GroupedSums([GroupedSum(Outcome(), 1, ARMS, box.on(n, 1.0))]), "outcome")
    assert len(looks) == 3


@pytest.mark.parametrize(("call", "most"), [("means", 1), ("contrast", 3), ("one step", 6)])
def test_rows_on_an_engine_are_read_as_few_times_as_releases_allow(call, most, monkeypatch):
    duckdb = pytest.importorskip("duckdb")
    data, looks, run = frame(), [], engines.run
    expected = answer(data, call, epsilon=4)
    monkeypatch.setattr(table, "run", lambda *asked: looks.append(asked[1]) or run(*asked))
    assert answer(duckdb.from_df(data), call, epsilon=4) == expected
    assert len(looks) == most


def test_a_life_table_comes_from_the_look_of_the_checks(monkeypatch):
    """Times at the ends of intervals and beyond; cells of brute force, and of one look."""
    duckdb = pytest.importorskip("duckdb")
    rng, ends, looks, run = np.random.default_rng(6), np.linspace(0.0, 1.0, 7), [], engines.run
    time = np.concatenate([rng.exponential(size=600), np.repeat(ends, 20), [2.0, 1e300]])
    data = pd.DataFrame({"time": time, "event": np.arange(time.size) % 2, "t": 0})
    data["t"] = rng.integers(0, 2, time.size)
    before = (time[:, None] > ends[1:]).sum(axis=1)
    there = (time > 1.0) | ((time == 1.0) & (data["event"] == 0))
    cell = np.where(there, 12, 2 * np.minimum(before, 5) + data["event"])
    outcome = Survival(Column("time"), Column("event"), tuple(ends.tolist()))
    found = evaluate(outcome, {k: data[k].to_numpy(float) for k in ("time", "event")})
    assert found.tolist() == cell.tolist()
    asked = {"horizon": 1.0, "bins": 6, "epsilon": 1, "design": "randomised", "seed": 1}
    expected = dpe.dp_survival("Surv(time, event) ~ t", data, **asked).to_dict()
    monkeypatch.setattr(table, "run", lambda *given: looks.append(given[1]) or run(*given))
    held = duckdb.from_df(data)
    assert dpe.dp_survival("Surv(time, event) ~ t", held, **asked).to_dict() == expected
    assert len(looks) == 1


# --- what is refused, before anything is charged ------------------------------------------------

BAD = {
    "missing values in y": lambda d: d.assign(y=d["y"].where(d.index != 7)),
    "missing values in g": lambda d: d.assign(g=d["g"].where(d.index != 7, None)),
    "missing values in t": lambda d: d.assign(t=d["t"].where(d.index != 7)),
    "'x' contains infinite values": lambda d: d.assign(x=d["x"].where(d.index != 7, np.inf)),
    "that are not among its declared levels": lambda d: d.assign(
        g=d["g"].where(d.index != 7, "secret")
    ),
    "must be 0/1": lambda d: d.assign(t=d["t"].where(d.index != 7, 2)),
    "arms is empty": lambda d: d.assign(t=1),
}


@pytest.mark.parametrize("message", BAD)
@pytest.mark.parametrize("holder", [polars_lazy, duckdb_relation, parquet])
def test_what_cannot_be_used_is_refused_for_free(message, holder, tmp_path):
    ledger = dpe.Ledger(epsilon=1)
    with pytest.raises(dpe.DPEffectsError, match=message) as error:
        answer(holder(BAD[message](frame(200)), tmp_path), "ipw", ledger=ledger, seed=None)
    assert "secret" not in str(error.value)
    assert error.value.__cause__ is None
    assert not ledger.charges


ORDERED = {
    "split": ("private_ipw", {"split": True}),
    "rows of their blocks": ("sample_aggregate", {}),
    "round_robin": ("global_matching", {"matching": "round_robin"}),
}


@pytest.mark.parametrize("reason", ORDERED)
def test_what_goes_by_the_order_of_rows_needs_them_in_memory(reason, tmp_path):
    method, options = ORDERED[reason]
    ledger = dpe.Ledger(epsilon=1)
    with pytest.raises(dpe.DPEffectsError, match=reason):
        dpe.dp_ate(
            "y ~ t | g",
            polars_lazy(frame(200), tmp_path),
            method,
            epsilon=1,
            bounds=BOUNDS,
            ledger=ledger,
            **options,
        )
    assert not ledger.charges


@pytest.mark.parametrize("level", ["sample", "label"])
def test_matching_collects_what_it_sorts(level, tmp_path, monkeypatch):
    data, given = frame(1000), {"epsilon": 4, "bounds": BOUNDS, "seed": 1, "level": level}
    given["as_printed"] = True
    expected = dpe.dp_ate("y ~ t | x + g", data, "private_psm", **given).to_dict()
    monkeypatch.setattr(engines, "_BATCH", 300)
    for holder in (polars_lazy, duckdb_relation, parquet):
        found = dpe.dp_ate("y ~ t | x + g", holder(data, tmp_path), "private_psm", **given)
        assert "Collected from the engine" in found.summary().as_text()
        found = found.to_dict()
        assert found.pop("notes")[:-1] == expected["notes"]
        assert found == {k: x for k, x in expected.items() if k != "notes"}
    monkeypatch.setattr(flow, "memory", lambda: 100_000)
    ledger = dpe.Ledger(epsilon=4)
    given |= {"ledger": ledger, "seed": None}
    with pytest.raises(dpe.DPEffectsError, match=r"take about .* GiB for 1000 records"):
        dpe.dp_ate("y ~ t | x + g", holder(data, tmp_path), "private_psm", **given)
    assert not ledger.charges


def test_other_calls_need_rows_in_memory_too(tmp_path):
    data, ledger = polars_lazy(frame(200), tmp_path), dpe.Ledger(epsilon=1)
    given = {"epsilon": 1, "bounds": BOUNDS, "ledger": ledger}
    with pytest.raises(dpe.DPEffectsError, match="Collect the frame first"):
        dpe.dp_cate("y ~ t | x", data, "sample_aggregate", release="points", at=frame(3), **given)
    with pytest.raises(dpe.DPEffectsError, match="Collect the frame first"):
        dpe.reference("y ~ t | x", data, "sample_aggregate", bounds=BOUNDS)
    assert not ledger.charges


def test_files_that_are_not_there_or_not_known(tmp_path):
    with pytest.raises(dpe.DPEffectsError, match="no file"):
        answer(tmp_path / "none.parquet", "means")
    with pytest.raises(dpe.DPEffectsError, match=r"\.csv\.gz or \.parquet"):
        answer("study.xlsx", "means")
    (tmp_path / "bad.parquet").write_text("no parquet")
    with pytest.raises(dpe.DPEffectsError, match="cannot be read"):
        answer(tmp_path / "bad.parquet", "means")


def test_bounds_are_not_read_from_rows_elsewhere(tmp_path):
    data = polars_lazy(frame(200), tmp_path)
    with pytest.raises(dpe.DPEffectsError, match="from_data"):
        answer(data, "means", bounds="from_data")
    known = {k: v for k, v in BOUNDS.items() if k != "x"}
    with pytest.raises(dpe.DPEffectsError, match="declare the bounds of x"):
        answer(data, "ipw, public covariates", bounds=known)


# --- memory, processes, machines ----------------------------------------------------------------


def test_batches_are_worked_off_a_few_at_a_time():
    """A reader that counts the batches that are alive."""
    alive, most = set(), 0

    class Batch:
        def __init__(self, k):
            self.k = k
            alive.add(k)

    def batches():
        nonlocal most
        for k in range(200):
            most = max(most, len(alive))
            yield Batch(k)

    def work(batch):
        alive.discard(batch.k)
        return (np.ones(1, dtype=np.int64),)

    assert sum(int(total[0][0]) for total in engines._streamed(batches(), work)) == 200
    assert most <= 2 * engines._THREADS + 2


@pytest.mark.parametrize("holder", [polars_lazy, duckdb_relation, parquet])
def test_batches_of_many_columns_have_fewer_rows(holder, tmp_path):
    data = pd.DataFrame(np.zeros((40_000, 64)), columns=[f"x{k}" for k in range(64)])
    (found,) = engines.run(
        nw.from_native(engines.open_if_path(holder(data, tmp_path))).lazy(),
        data.columns,
        lambda batch: (np.array([len(batch)]),),
        private_rows.joined,
    )
    assert found.sum() == len(data)
    assert found.max() * 64 <= 2**20


def test_memory_does_not_grow_with_the_file(tmp_path):
    duckdb = pytest.importorskip("duckdb")
    peaks, formula = [], parse("y ~ t | x")
    for n in (150_000, 1_500_000):
        path = tmp_path / f"{n}.parquet"
        made = "SELECT random() AS y, random() AS x, (random() < 0.5)::INT AS t"
        duckdb.sql(f"COPY ({made} FROM range({n})) TO '{path}' (FORMAT parquet)")
        table = design.read(path, formula, {"y": (0, 1), "x": (0, 1)}, ())
        source = table.encode()
        tracemalloc.start()
        source.fold(lambda block: (np.array([block.covariates.size]),), "covariates", "outcome")
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 2 * peaks[0] + 8e6


def groups(data):
    asked = {"release": "groups", "by": "g + cut(x, [-3, 0, 3])", "epsilon": 1, "delta": 1e-6}
    fit = dpe.dp_cate("y ~ t | x + z", data, "one_step", bounds=BOUNDS, seed=1, **asked)
    return fit.to_dict()


def survival(data):
    asked = {"horizon": 1, "bins": 4, "epsilon": 1, "design": "randomised", "seed": 1}
    return dpe.dp_survival("Surv(z, d) ~ t", data, **asked).to_dict()


def study(data):
    asked = {"bounds": BOUNDS, "epsilon": 4, "design": "randomised", "seed": 1}
    return dpe.dp_study("y + x + z ~ t", data, **asked).to_dict()


CLUSTER = {
    "means": lambda data: answer(data, "means"),
    "groups": groups,
    "survival": survival,
    "study": study,
}
"""One look at the rows; functions of blocks: a propensity model, a function, sums by group; cells
of a table; joint sums."""


@pytest.fixture(scope="module")
def cluster():
    """A process of its own for Dask, with two threads."""
    pytest.importorskip("distributed", reason="Dask is not installed")
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=1, threads_per_worker=2, processes=True, dashboard_address=None
        ) as made,
        Client(made) as client,
    ):
        yield client


def in_partitions(data):
    import dask.dataframe as dd

    return dd.from_pandas(data.sample(frac=1, random_state=1), npartitions=4)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("call", CLUSTER)
def test_a_dask_cluster(call, cluster):
    """Four partitions in another process: functions go there, sums come back."""
    data = frame(400)
    assert CLUSTER[call](in_partitions(data)) == CLUSTER[call](data)


def test_what_a_dask_cluster_refuses(cluster):
    data = frame(400)
    with pytest.raises(dpe.DPEffectsError, match="infinite"):
        answer(in_partitions(data.assign(y=data["y"].where(data.index != 7, np.inf))), "means")


SPARK_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "localhost",
    # a few hundred rows are not worth plans that adapt, nor code that is compiled for them
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


@pytest.fixture(scope="module")
def spark():
    """A local session."""
    pytest.importorskip("pyspark", reason="Spark is not installed")
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    session = SparkSession.builder.master("local[2]").config(map=SPARK_SETTINGS).getOrCreate()
    yield session
    session.stop()


@pytest.mark.long
@pytest.mark.parametrize("call", CLUSTER)
def test_a_local_spark_session(call, spark, tmp_path):
    """Two files, so two partitions."""
    data = frame(200)
    data[:50].to_parquet(tmp_path / "one.parquet")
    data[50:].to_parquet(tmp_path / "two.parquet")
    assert CLUSTER[call](spark.read.parquet(str(tmp_path))) == CLUSTER[call](data)
