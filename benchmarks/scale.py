"""Time and memory from Parquet files, against what people run without privacy, in the same run.

Every call runs in a process of its own, so that its peak memory is its own; a small call before it
pays for imports. Ours and its peer take turns, and medians are kept, so that other work on the
machine hits both. Times include reading the file.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import pandas as pd
from harness import Part, Row, Table, apart, grid

COVARIATES = 10
NAMES = [f"x{i}" for i in range(COVARIATES)]
FORMULA = "y ~ t | " + " + ".join(NAMES)
STRATA = "y ~ t | cut(x0, [0, 0.25, 0.5, 0.75, 1]) + cut(x1, [0, 0.5, 1]) + cut(x2, [0, 0.5, 1])"
BOUNDS = dict.fromkeys([*NAMES, "y"], (0, 1))
FOLDER = Path(tempfile.gettempdir()) / "dpeffects-scale"


PEERS = {
    "auto": "scikit-learn, two models",
    "diff_in_means": "duckdb group by",
    "private_ipw": "scikit-learn",
    "smooth_matching": "duckdb group by strata",
    "effects by group": "duckdb, the same sums",
    "private_psm, label": None,
    "private_psm, sample": None,
}


def file(n: int) -> Path:
    """Made once, by DuckDB: x uniform, t by a logit of three columns, y linear with noise."""
    import duckdb

    path = FOLDER / f"{n}.parquet"
    if path.exists():
        return path
    FOLDER.mkdir(exist_ok=True)
    columns = ", ".join(f"random() AS {name}" for name in NAMES)
    duckdb.sql("SELECT setseed(0.5)")
    duckdb.sql(
        f"""COPY (
            SELECT *, least(greatest(0.3 * x0 + 0.2 * t + 0.4 * random(), 0), 1) AS y FROM (
                SELECT *, (random() < 1 / (1 + exp(1.5 - x0 - x1 - x2)))::TINYINT AS t
                FROM (SELECT {columns} FROM range({n}))))
        TO '{path}.part' (FORMAT parquet)"""
    )
    Path(f"{path}.part").rename(path)
    return path


def ours(task: str, path: str) -> None:
    import dpeffects as dpe

    method, _, level = task.partition(", ")
    if method == "effects by group":
        by = "cut(x0, [0, 0.25, 0.5, 0.75, 1])"
        dpe.dp_cate(FORMULA, path, release="groups", by=by, epsilon=1, delta=1e-7, bounds=BOUNDS)
        return
    delta = 1e-7 if method == "smooth_matching" else 0.0
    formula = STRATA if method == "smooth_matching" else FORMULA
    more = {"as_printed": True} if level == "sample" else {}
    given = {"epsilon": 1, "delta": delta, "level": level or None, "bounds": BOUNDS, **more}
    dpe.dp_ate(formula, path, method, **given)


def group_by(path: str) -> None:
    import duckdb

    query = f"SELECT t, count(*), avg(y), var_samp(y) FROM '{path}' GROUP BY t"
    duckdb.sql(query).fetchall()


def group_by_strata(path: str) -> None:
    import duckdb

    strata = "least(floor(x0 * 4), 3), x1 > 0.5, x2 > 0.5"
    query = f"SELECT t, {strata}, count(*), avg(y), var_samp(y) FROM '{path}' GROUP BY ALL"
    duckdb.sql(query).fetchall()


def same_sums(path: str) -> None:
    """What effects by group add up, as plain queries without privacy, each after the one before.

    Counts and sums by arm; means and variances of the covariates; how long residuals are; moments,
    which give slopes of outcome and treatment; a gradient for the score, and lengths once more;
    sums by group and arm, and whether the score bends.
    """
    import duckdb
    import numpy as np

    def ask(columns: list[str], source: str, by: str = "") -> list[tuple]:
        return duckdb.sql(f"SELECT {', '.join(columns)} FROM {source} {by}").fetchall()

    rows, x = f"'{path}'", np.array(NAMES)
    arms = ask(["t", "count(*)", "sum(y)", "sum(y * y)"], rows, "GROUP BY t ORDER BY t")
    n, (zero, one) = arms[0][1] + arms[1][1], (arm[2] / arm[1] for arm in arms)
    both = [f"{sum_of}({name})" for sum_of in ("avg", "var_pop") for name in NAMES]
    mean, sd = np.array(ask(both, rows)[0]).reshape(2, -1)
    sd, share = np.sqrt(sd), arms[1][1] / n
    own = f"y - CASE WHEN t = 1 THEN {one} ELSE {zero} END"
    length = "least(floor(-2 * log2(abs({}) + 1e-9)), 14)"
    ask([length.format(own), "count(*)"], rows, "GROUP BY ALL")
    z = [f"({name} - {m}) / {s}" for name, m, s in zip(x, mean, sd, strict=True)]
    z = ", ".join(f"{c} AS z{k}" for k, c in enumerate([*z, own, f"t - {share}", "0.25"]))
    pairs = list(zip(*np.triu_indices(COVARIATES + 3), strict=True))
    moments = ask([f"sum(z{i} * z{j})" for i, j in pairs], f"(SELECT {z} FROM {rows})")[0]
    matrix = np.zeros((COVARIATES + 3, COVARIATES + 3))
    matrix[tuple(zip(*pairs, strict=True))] = np.array(moments) / n
    inside = (matrix + np.triu(matrix, 1).T)[:COVARIATES]
    outcome = slice(COVARIATES, COVARIATES + 2)
    slopes = np.linalg.solve(inside[:, :COVARIATES], inside[:, outcome]) / sd[:, None]
    model, index = (
        " + ".join(f"{b} * ({name} - {m})" for b, name, m in zip(bs, x, mean, strict=True))
        for bs in (slopes / [1.0, share * (1.0 - share)]).T
    )
    score = f"1 / (1 + exp(-({index} + {np.log(share / (1.0 - share))})))"
    kept = f"{', '.join(NAMES)}, t, {own} - ({model}) AS r, {index} AS u, {score} AS e"
    made = f"(SELECT {kept} FROM {rows})"
    ask([length.format("r"), "count(*)", "sum((t - e) * u)", "sum(t - e)"], made, "GROUP BY 1")
    powers = [p for name in NAMES for p in (f"{name} * {name}", f"{name} * {name} * {name}")]
    bent = [f"sum(o * {power})" for power in powers]
    weights = "CASE WHEN t = 1 THEN 1 / e ELSE 1 / (1 - e) END AS w, t - e AS o"
    group = "least(floor(x0 * 4), 3)"
    sums = [group, "t", "sum(w)", "sum(w * r)", "sum(w * w * r * r)", *bent]
    ask(sums, f"(SELECT *, {weights} FROM {made})", "GROUP BY 1, 2")


def two_scans(path: str) -> None:
    """The least that such effects take without privacy: moments, then sums by group and arm."""
    import duckdb

    z = [*NAMES, "y", "t"]
    products = [f"sum({a} * {b})" for k, a in enumerate(z) for b in z[k:]]
    moments = ", ".join(["count(*)", *(f"sum({a})" for a in z), *products])
    duckdb.sql(f"SELECT {moments} FROM '{path}'").fetchall()
    line = " + ".join(f"0.1 * ({name} - 0.5)" for name in NAMES)
    duckdb.sql(
        f"""SELECT g, t, sum(w), sum(w * r), sum(w * w * r * r) FROM (
            SELECT g, t, r, CASE WHEN t = 1 THEN 1 / e ELSE 1 / (1 - e) END AS w FROM (
                SELECT least(floor(x0 * 4), 3) AS g, t, y - ({line}) AS r,
                    1 / (1 + exp(-({line}))) AS e FROM '{path}')) GROUP BY g, t"""
    ).fetchall()


def scikit_learn(path: str) -> None:
    import numpy as np
    from sklearn.linear_model import LogisticRegression

    frame = pd.read_parquet(path)
    x, t, y = frame[NAMES].to_numpy(), frame["t"].to_numpy(), frame["y"].to_numpy()
    e = np.clip(LogisticRegression().fit(x, t).predict_proba(x)[:, 1], 0.01, 0.99)
    np.average(y, weights=t / e) - np.average(y, weights=(1 - t) / (1 - e))


def two_models(path: str) -> None:
    """A logistic regression of the treatment and least squares of the outcome."""
    from sklearn.linear_model import LinearRegression, LogisticRegression

    frame = pd.read_parquet(path)
    x, t, y = frame[NAMES].to_numpy(), frame["t"].to_numpy(), frame["y"].to_numpy()
    LogisticRegression().fit(x, t)
    LinearRegression().fit(frame[[*NAMES, "t"]].to_numpy(), y)


RUNS = {
    "duckdb group by": group_by,
    "duckdb group by strata": group_by_strata,
    "duckdb, the same sums": same_sums,
    "duckdb, two scans": two_scans,
    "scikit-learn": scikit_learn,
    "scikit-learn, two models": two_models,
}


def child(task: str, n: int) -> dict[str, float]:
    """One measurement: a small call for the imports, then the call."""
    import resource

    passes = counted()
    run = RUNS.get(task) or (lambda path: ours(task, path))
    run(str(file(10_000)))
    passes.update(dict.fromkeys(passes, 0))
    noise = timed_noise()
    start, busy = time.perf_counter(), time.process_time()
    run(str(file(n)))
    seconds, cpu = time.perf_counter() - start, time.process_time() - busy
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {"seconds": seconds, "cpu": cpu, "peak": peak, "noise": noise[0], **passes}


def counted() -> dict[str, int]:
    """How often the rows are read, and how many columns in all."""
    from dpeffects.design import engines, table

    found = {"passes": 0, "columns": 0}
    run = engines.run

    def count_run(frame, names, function, *more):
        found["passes"] += 1
        found["columns"] += len(set(names))
        return run(frame, names, function, *more)

    engines.run = table.run = count_run
    return found


def timed_noise() -> list[float]:
    from dpeffects.privacy.noise import SecureNoise

    spent = [0.0]

    def timed(draw):
        def wrapped(*args):
            start = time.perf_counter()
            out = draw(*args)
            spent[0] += time.perf_counter() - start
            return out

        return wrapped

    SecureNoise.laplace, SecureNoise.flip = timed(SecureNoise.laplace), timed(SecureNoise.flip)
    return spent


def run(people: int, noise: int, method: str, records: int):
    """The call, then its peer."""
    file(10_000), file(records)
    found = apart(child, method, records)
    if peer := PEERS[method]:
        found |= {f"peer {name}": x for name, x in apart(child, peer, records).items()}
    return found


def summary(runs: pd.DataFrame) -> Row:
    """Medians; the ratio is the median of those of neighbours."""
    made = {
        "runs": len(runs),
        "seconds": round(runs["seconds"].median(), 2),
        "CPU s": round(runs["cpu"].median(), 2),
        "of it noise": round(runs["noise"].median(), 2),
        "peak GiB": round(runs["peak"].max(), 2),
        "passes": int(runs["passes"].iloc[0]),
        "columns read": int(runs["columns"].iloc[0]),
    }
    if "peer seconds" in runs:
        made["peer, seconds"] = round(runs["peer seconds"].median(), 2)
        made["peer, CPU s"] = round(runs["peer cpu"].median(), 2)
        made["peer, peak GiB"] = round(runs["peer peak"].max(), 2)
        made["ratio"] = round((runs["seconds"] / runs["peer seconds"]).median(), 2)
        made["ratio of CPU s"] = round((runs["cpu"] / runs["peer cpu"]).median(), 2)
    return made


MATCHING = [method for method in PEERS if "psm" in method]
OTHERS = [method for method in PEERS if "psm" not in method]
TABLE = Table(
    "Ten million records on one machine",
    (
        Part(
            "",
            [
                *(x | {"runs": 5} for x in grid(method=OTHERS, records=(1_000_000, 10_000_000))),
                *(x | {"runs": 2} for x in grid(method=MATCHING, records=(1_000_000, 5_000_000))),
            ],
            run,
            summary,
            runs=5,
            chunk=1,
            csv="scale",
            small=grid(method=["diff_in_means", "private_psm, label"], records=[100_000]),
        ),
    ),
    "Aggregate methods read the file through DuckDB, and "
    "passes stream rows in batches. Matching collects three columns. Medians of "
    "the runs shown, in turns with the peer; the ratio is the median of those of neighbours; "
    "peak memory is the largest. CPU is that of the whole process, all cores: where other work "
    "runs beside, compare CPU seconds.",
    page=lambda rows: {"": rows.assign(peer=rows["method"].map(PEERS)).fillna("")},
    alone=True,
    minutes=6,
)
