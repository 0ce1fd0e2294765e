"""Speed and memory: calls on files of ten million rows, on engines, in memory, in fresh processes.

On files every call has a process of its own, in which a small one before it pays for imports; ours
and its peer take turns. Ours may have less memory than the data take (`RLIMIT_DATA`: heap, stacks
and private mappings); another library that loads the same columns is stopped by that.
"""

from __future__ import annotations

import compileall
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from harness import Bar, Part, Row, Table, apart, first, grid, median
from report import ROOT

import dpeffects as dpe
from dpeffects.estimators import proved

LIMIT, PEAK = 800, 600
"""MB that a process may have, and that it may use."""
LOADS = "pandas, which loads the columns"
X, OUTCOMES, MANY = ([f"x{k}" for k in range(width)] for width in (10, 20, 200))
GROUPS = "cut({}, [0, 0.25, 0.5, 0.75, 1])"
FOLDER, Act = Path(tempfile.gettempdir()) / "dpeffects-scale", Callable[..., Any]


def file(n: int, width: int) -> Path:
    """Made once, by DuckDB: x uniform, t by a logit, y linear, 30 % of the times censored."""
    import duckdb

    if (path := FOLDER / f"{n}x{width}.parquet").exists():
        return path
    FOLDER.mkdir(exist_ok=True)
    columns = ", ".join(f"random() AS x{k}" for k in range(width))
    duckdb.sql("SELECT setseed(0.5)")
    duckdb.sql(
        f"""COPY (
            SELECT *, least(greatest(0.3 * x0 + 0.2 * t + 0.4 * random(), 0), 1) AS y,
                least(-ln(random()), 1) AS time, (random() < 0.7)::INT AS event FROM (
                SELECT *, (random() < 1 / (1 + exp(1.5 - x0 - x1 - x2)))::TINYINT AS t
                FROM (SELECT {columns} FROM range({n}))))
        TO '{path}.part' (FORMAT parquet)"""
    )
    return Path(f"{path}.part").rename(path)


# Calls, and what people run without privacy


def effect(method: str, covariates: list[str] = X, **options: Any) -> Act:
    return asking("dp_ate", "y", covariates, method=method, **options)


def asking(call: str, outcome: str, covariates: list[str] | None = None, **options: Any) -> Act:
    formula = f"{outcome} ~ t" + (f" | {' + '.join(covariates)}" if covariates else "")
    bounds = dict.fromkeys(re.findall(r"\bx\d+|\by\b", formula), (0, 1))
    asked = {"epsilon": 1, "bounds": bounds, **options}
    return lambda rows, **more: getattr(dpe, call)(formula, rows, **asked, **more)


def query(what: str, by: str = "t") -> Act:
    def ask(path: Any) -> Any:
        import duckdb

        return duckdb.sql(f"SELECT {by}, count(*), {what} FROM '{path}' GROUP BY ALL").fetchall()

    return ask


def columns(rows: Any, *names: str) -> list[np.ndarray]:
    """The covariates as a matrix, and columns of these names."""
    frame = rows if isinstance(rows, pd.DataFrame) else pd.read_parquet(rows, columns=[*X, *names])
    return [frame[X].to_numpy(), *(frame[name].to_numpy() for name in names)]


def weighting(rows: Any) -> None:
    from sklearn.linear_model import LogisticRegression

    x, t, y = columns(rows, "t", "y")
    e = np.clip(LogisticRegression().fit(x, t).predict_proba(x)[:, 1], 0.01, 0.99)
    np.average(y, weights=t / e) - np.average(y, weights=(1 - t) / (1 - e))


def two_models(rows: Any) -> None:
    from sklearn.linear_model import LinearRegression, LogisticRegression

    x, t, y = columns(rows, "t", "y")
    LogisticRegression().fit(x, t)
    LinearRegression().fit(np.column_stack([x, t]), y)


def neighbours(rows: Any) -> None:
    """Five nearest, both ways, of known scores: no model is fitted."""
    from sklearn.neighbors import NearestNeighbors

    x, t = columns(rows, "t")
    score = (1 / (1 + np.exp(1.5 - x[:, :3].sum(axis=1))))[:, None]
    for arm in (0, 1):
        NearestNeighbors(n_neighbors=5).fit(score[t == arm]).kneighbors(score[t != arm])


class Call(NamedTuple):
    """``most``: times the processor time of the peer, where that is promised."""

    ours: Act
    said: str = ""
    peer: Act | None = None
    most: float = np.nan


SURVIVAL = {"horizon": 1, "bins": 10, "design": "randomised"}
BY_GROUP = {"release": "groups", "by": GROUPS.format("x0"), "delta": 1e-7}
CELLS = "t, CASE WHEN time >= 1 AND event = 0 THEN 20 ELSE 2 * floor(time * 10) + event END"
MOMENTS = ", ".join(f"avg({x}), var_samp({x})" for x in OUTCOMES)
MEANS = effect("diff_in_means", [])
CALLS = {
    "diff_in_means": Call(MEANS, "DuckDB, a group by", query("avg(y), var_samp(y)"), 2.5),
    "survival": Call(
        asking("dp_survival", "Surv(time, event)", **SURVIVAL),
        *("DuckDB, a group by cells", query("1", CELLS), 4.0),
    ),
    "study, 20 outcomes": Call(
        asking("dp_study", " + ".join(OUTCOMES), design="randomised"),
        *("DuckDB, a group by", query(MOMENTS), 3.0),
    ),
    "auto": Call(effect("auto"), "scikit-learn, two models", two_models, 1.25),
    "private_ipw": Call(effect("private_ipw"), "scikit-learn, weights", weighting, 1.5),
    "effects by group": Call(asking("dp_cate", "y", X, **BY_GROUP)),
    "private_psm, label": Call(
        effect("private_psm", level="label", as_printed=True),
        *("scikit-learn, 5 nearest", neighbours, 1.0),
    ),
    "auto, 200 columns": Call(effect("auto", MANY)),
    LOADS: Call(lambda rows: columns(rows, "t", "y")),
}
STREAMED = [*CALLS][:6]


def measured(call: str, side: str, place: str, n: int, width: int) -> Row:
    """Processor and other time, and the peak of memory, in a fresh process."""
    if side == "ours" and place == "file" and call != "private_psm, label":
        resource.setrlimit(resource.RLIMIT_DATA, (LIMIT * 10**6,) * 2)
    opened: Act = pd.read_parquet if place == "memory" else str
    act, rows = getattr(CALLS[call], side), opened(file(n, width))
    act(opened(file(10_000, width)))
    start, busy = time.perf_counter(), time.process_time()
    act(rows)
    seconds, cpu = time.perf_counter() - start, time.process_time() - busy
    peak = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
    return {"seconds": seconds, "cpu": cpu, "peak": int(peak[1]) * 1024 / 1e6}


def run(people: int, noise: int, method: str, records: int, width: int = 20, place: str = "file"):
    """The call, then its peer."""
    file(10_000, width), file(records, width)
    call, none = CALLS[method], dict.fromkeys(("seconds", "cpu", "peak"), np.nan)
    try:
        ours, stopped = apart(measured, method, "ours", place, records, width), ""
    except Exception as error:
        ours, stopped = none, type(error).__name__
    peer = apart(measured, method, "peer", place, records, width) if call.peer else none
    said = {"peer": call.said, "stopped": stopped, "ratio": ours["cpu"] / peer["cpu"]}
    return said | ours | {f"peer {name}": x for name, x in peer.items()}


MEASURED = {
    **{"peer": first("peer"), "stopped": first("stopped"), "seconds": median("seconds")},
    **{"CPU s": median("cpu"), "peak MB": lambda runs: round(runs["peak"].max(), 0)},
    **{"peer, CPU s": median("peer cpu"), "peer, peak MB": median("peer peak")},
    "ratio of CPU s": median("ratio"),
}


# The same calls on other engines, in fresh processes, and in memory


def spark(path: Path) -> Any:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    quiet = {"spark.ui.enabled": "false", "spark.log.level": "ERROR"}
    session = SparkSession.builder.master("local[2]").config(map=quiet).getOrCreate()
    return session.read.parquet(str(path))


ENGINES: dict[str, Act] = {
    "pandas": pd.read_parquet,
    "DuckDB": str,
    "polars": lambda path: import_module("polars").scan_parquet(path),
    "Dask": lambda path: import_module("dask.dataframe").read_parquet(path, split_row_groups=True),
    "Spark": spark,
}


def engines(people: int, noise: int, method: str, records: int):
    """Seconds of a call on each engine, if the result is that of the first one."""
    made, results, path = {}, [], file(records, 20)
    for engine, opened in ENGINES.items():
        try:
            rows, start = opened(path), time.perf_counter()
        except ImportError:
            made[engine] = "not installed"
            continue
        results.append(CALLS[method].ours(rows, seed=noise).to_dict())
        taken = f"{time.perf_counter() - start:.1f}"
        made[engine] = taken if results[-1] == results[0] else "differs"
    return made


FIRST = """
import numpy as np, pandas as pd, dpeffects as dpe
rng = np.random.default_rng(1)
columns = {{"y": rng.random(2000), "t": rng.integers(0, 2, 2000), "x": rng.random(2000)}}
data, bounds = pd.DataFrame(columns), {{"y": (0, 1), "x": (0, 1)}}
print(dpe.{}("y ~ t | x", data, epsilon=1, bounds=bounds, {}).summary())
"""
PROGRAMS = {
    "import pandas": "import pandas",
    "import dpeffects": "import dpeffects",
    "dp_ate, default": FIRST.format("dp_ate", ""),
    "dp_ate, default, in a trial": FIRST.format("dp_ate", "design='randomised'"),
    "dp_ate, private_ipw": FIRST.format("dp_ate", "method='private_ipw'"),
    "dp_cate by group": FIRST.format("dp_cate", "release='groups', by='cut(x, [0, 0.5, 1])'"),
    "dp_study": FIRST.format("dp_study", ""),
    "dpeffects --version": "import sys; from dpeffects.cli import main; main(['--version'])",
}


def fresh(people: int, noise: int, program: str):
    """Processor time of a process, with its start and end."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    compileall.compile_dir(ROOT / "dpeffects", quiet=1)  # as an installed package is
    _ = dpe.dp_ate, dpe.dp_cate, dpe.dp_study  # what the figures depend on
    before, command = os.times(), [sys.executable, "-c", PROGRAMS[program]]
    subprocess.run(command, check=True, capture_output=True, env=environment)
    after = os.times()
    return {"s": after.children_user + after.children_system - sum(before[2:4])}


def in_memory(people: int, noise: int, method: str, n: int):
    """One call on the confounded simulation, after one that loads the libraries."""
    learner, formula = method.endswith("_learner"), dpe.data_info("confounded").formula
    some = "{}".format if learner else GROUPS.format
    if learner or method.endswith("_matching"):
        formula = f"outcome ~ treatment | {some('x1')} + {some('x2')}"
    act = dpe.dp_cate if learner else dpe.dp_ate
    for size in (2_000, n):
        data, start = dpe.simulate("confounded", n=size, seed=1), time.perf_counter()
        act(formula, data, method=method, epsilon=1, delta=1e-6)
    return {"seconds": time.perf_counter() - start}


def bars(calls: pd.DataFrame, engine: pd.DataFrame) -> list[Bar]:
    made = []
    for name, own in calls.groupby("method", sort=False):
        if (most := CALLS[name].most) > 0:
            said = f"{name}: at most {most:g} times the processor time of {CALLS[name].said}"
            ratio = own["ratio of CPU s"].iloc[-1]
            made.append(Bar(said, f"{ratio:g}", [] if ratio <= most else [name]))
    ours = calls[~calls["method"].isin([LOADS, "private_psm, label"])]
    over = ours[~(ours["peak MB"] <= PEAK)]
    said = f"memory under {PEAK} MB, where a process may have {LIMIT}"
    made.append(Bar(said, f"at most {ours['peak MB'].max():g} MB", [*over["method"]]))
    other = engine[(engine == "differs").any(axis=1)]
    return [*made, Bar("the same bits on every engine", f"{len(engine)} calls", [*other["method"]])]


def of_first_calls(programs: pd.DataFrame, calls: pd.DataFrame) -> list[Bar]:
    own, made = programs.set_index("program")["processor seconds"], []
    for said, most, which in (("import", 0.3, "import dpeffects"), ("first call", 1.0, "^dp_")):
        some = own[own.index.str.contains(which)]
        over = [*some.index[some > most]]
        made.append(Bar(f"{said}: at most {most:g} s of the processor", f"{some.max():g} s", over))
    return made


def into_guide(tables: dict[str, pd.DataFrame], *rows: pd.DataFrame) -> None:
    """Put processor times beside those of peers between their marks in the guide."""
    path, files = ROOT / "docs" / "guide" / "engines.md", tables["Files"]
    kept = files[(files["records"] == 10**7) & (files["peer"] != "")]
    made = kept[["method", "CPU s", "peer", "peer, CPU s"]].to_markdown(index=False)
    before, rest = path.read_text().split("<!-- scale -->\n")
    path.write_text(f"{before}<!-- scale -->\n{made}\n<!-- end -->{rest.split('<!-- end -->')[1]}")


RUNS = {"diff_in_means": 5, "survival": 5, "effects by group": 1, "private_psm, label": 1}
ON_FILES = [
    *({"method": x, "records": 10**6, "runs": 1} for x in [*CALLS][:7]),
    {"method": "auto, 200 columns", "records": 10**6, "width": 200, "runs": 1},
    *({"method": x, "records": 10**7, "runs": RUNS.get(x, 3)} for x in [*CALLS][:7]),
    {"method": LOADS, "records": 10**7, "runs": 1},
]
SMALL = grid(method=["diff_in_means", LOADS], records=[10**5])
SIZES = (250_000, 10**6, 5 * 10**6)
MATCHING = grid(method=["private_psm, label"], records=SIZES, place=["memory"])
IN_MEMORY = grid(method=(*proved(), "r_learner", "dr_learner"), n=[10**5])
LEAST = {"processor seconds": lambda runs: round(runs["s"].min(), 2)}
SECONDS = {"seconds": lambda runs: round(runs["seconds"].min(), 3)}
TABLES = {
    "scale": Table(
        "Ten million records on one machine",
        (
            Part("Files", ON_FILES, run, MEASURED, chunk=1, csv="scale", small=SMALL),
            Part("Seconds by engine", grid(method=STREAMED, records=[10**6]), engines),
        ),
        "Parquet files of uniform numbers, which do not compress: 0.9 GB for the 12 columns of "
        "ten million records. DuckDB reads them; label matching collects three columns, and has "
        "no limit. Medians of the runs, in turns with the peer; the ratio is the median of those "
        "of neighbours, peak memory the largest. CPU is that of all cores.",
        alone=True,
        minutes=12,
        bars=bars,
        after=into_guide,
    ),
    "speed_private_psm": Table(
        "Private matching in memory, beside plain nearest neighbours",
        (Part("", MATCHING, run, MEASURED, small=[{**MATCHING[0], "records": 20_000}]),),
        "Without privacy scores are known, and no model is fitted. Peak memory is that of the "
        "process, data of 20 columns included.",
        alone=True,
        minutes=2,
    ),
    "first_call": Table(
        "Fresh processes, and calls in memory",
        (
            Part("A fresh process", grid(program=PROGRAMS), fresh, LEAST, runs=5),
            Part("One call", IN_MEMORY, in_memory, SECONDS, 2, csv="seconds"),
        ),
        "The least of the runs. pandas, which the data are in, takes more than a third of a first "
        "call. Calls in memory: the confounded simulation, matching on strata by two covariates "
        "cut in four, `dp_cate` of two covariates; epsilon 1, delta 1e-6.",
        alone=True,
        minutes=2,
        bars=of_first_calls,
    ),
}
