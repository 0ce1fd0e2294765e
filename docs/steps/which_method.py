"""The page "Which method": what each method can do, and what the benchmarks measured of it.

Capabilities are read from the methods themselves, figures from benchmarks/results, both when the
site is built. Only the advice is written here.
"""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import numpy as np
import pandas as pd

from dpeffects.estimators import registry, table_methods
from dpeffects.evidence.leaderboard import entries, tasks
from dpeffects.evidence.leaderboard.board import places
from dpeffects.replication import papers
from steps import bends
from steps.pages import on_age

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results"
EPSILON = 1.0
_RULES = {"MVAgg": "mvagg", "IVW": "ivw", "AggAll": "all", "AggLargest": "largest"}
ADVICE = {
    "auto": "always, unless you know better: the default chooses one of the next three",
    "regression": "observational data with tens of thousands of records",
    "one_step": "observational data with thousands of records, and trials with good covariates",
    "clipped_contrast": "a trial, or too little data to adjust; sharper than `diff_in_means`",
    "diff_in_means": "to compare with papers 002 and 003",
    "private_ipw": "to compare with paper 004",
    "private_psm": "matching is asked for, by groups where everything is private; with "
    "`as_printed=True` to compare with paper 000",
    "sample_aggregate": "models of your own, and n large enough to be cut in blocks",
    "model_folds": "models of your own, like `sample_aggregate`; to compare with Lebeda et al.",
    "smooth_matching": "a few discrete covariates, both arms well filled in every stratum",
    "global_matching": "to compare with papers 002 and 003",
    "dpci": "to compare with Schroeder et al. (2025); one record can break its guarantee",
    "synthetic": "to compare with synthetic data; the guarantee is the library's",
    "dp_ebm": "to compare with DP-EBM; the guarantee is the library's, and has a gap",
    "k_anonymous": "to see what k-anonymisation gives; it protects nobody",
    "study": "several outcomes, subgroups and a Table 1 out of one budget: `dp_study`",
    "life_table": "times to an event, some censored: `dp_survival`",
    "quantile_table": "quantiles of skewed outcomes: `dp_qte`",
    "ordinal_table": "outcomes of ordered levels: `dp_ordinal`",
    "late": "an instrument, and treatment that is not as good as random: `dp_late`",
    "rate": "counts of events in unequal times: `dp_rate`",
    "moments": "regression tables and many analyses of large data from one release: `dp_moments`",
    "randomisation_test": "a trial with an outcome of 0 and 1, and an exact p-value: "
    "`dp_randomisation_test`",
}
_MEASURED = {  # rows of the table, with their names in leaderboard.csv and seconds.csv
    "`diff_in_means`": ("diff_in_means", "diff_in_means"),
    "`clipped_contrast`": ("clipped_contrast", "clipped_contrast"),
    "`auto`": ("auto", "auto"),
    "`regression`": ("regression", "regression"),
    "`one_step`": ("one_step", "one_step"),
    "`private_ipw`": ("private_ipw", "private_ipw"),
    "`private_psm`, label level": ("private_psm_label", ""),
    "`private_psm`, sample level": ("private_psm", "private_psm"),
    "`private_psm` with `as_printed=True`": ("private_psm_printed", ""),
    "the same with `debias=False`": ("private_psm_paper", ""),
    "`smooth_matching`": ("smooth_matching", "smooth_matching"),
    "`global_matching`": ("global_matching", "global_matching"),
    "`sample_aggregate`": ("sample_aggregate", "sample_aggregate"),
    "`model_folds`": ("model_folds", "model_folds"),
}
_DESIGNS = {  # columns of the table, with their names in coverage.csv
    "trials": "trial",
    "models right": "confounded, models right",
    "models wrong": "confounded, models wrong",
}
_CATE = {
    "R-learner, function": ("r_learner", "function", "exact"),
    "DR-learner, function": ("dr_learner", "function", "exact"),
    "R-learner, linear function": ("r_learner", "function, linear", "exact"),
    "DR-learner, linear function": ("dr_learner", "function, linear", "exact"),
    "R-learner, 300 points": ("r_learner", "300 points", "exact"),
    "DR-learner, 300 points": ("dr_learner", "300 points", "exact"),
    "sample and aggregate, forest, 300 points": ("sample_aggregate", "300 points", "exact"),
}
_TYPICAL = ("three confounders", "four strata", "trial")
_ABSENT = "-"
_PRIVATE = {"sample": "whole records", "label": "outcomes only"}
_TREATMENTS = ("randomised", "observational")
_SIZES = ("up to 2,000", "2,000 to 10,000", "10,000 and more")
_BUDGETS = {"epsilon up to 0.5": (0.0, 0.5), "epsilon 1 to 4": (1.0, 4.0)}


def read_tables(name: str) -> dict[str, pd.DataFrame]:
    """Return the tables of a Markdown file of results, by their headings."""
    tables: dict[str, list[list[str]]] = {}
    heading = ""
    for line in (RESULTS / f"{name}.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            heading = line.lstrip("# ")
        elif line.startswith("|"):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            tables.setdefault(heading, []).append(cells)
    return {
        heading: pd.DataFrame(rows[2:], columns=rows[0]).apply(_numbers)
        for heading, rows in tables.items()
    }


def _numbers(column: pd.Series) -> pd.Series:
    try:
        return pd.to_numeric(column)
    except ValueError:
        return column


def table(name: str, fragment: str) -> pd.DataFrame:
    """Return the table of a results file whose heading contains a text."""
    found = [frame for title, frame in read_tables(name).items() if fragment in title]
    if len(found) != 1:
        raise LookupError(f"{name}.md has {len(found)} tables with {fragment!r} in the heading")
    return found[0]


def capabilities() -> pd.DataFrame:
    """One row a method: what it says about itself, and when to use it."""
    specs = [*registry().values(), *table_methods().values()]
    rows = [
        {
            "method": f"`{spec.name}`",
            "use it when": ADVICE[spec.name],
            "estimands": ", ".join(spec.estimands),
            "levels": ", ".join(spec.levels),
            "guarantee": spec.guarantee,
            "needs": _needs(spec),
        }
        for spec in sorted(specs, key=lambda s: list(ADVICE).index(s.name))
    ]
    return pd.DataFrame(rows)


def _needs(spec) -> str:
    covariates = "discrete covariates" if spec.needs_strata else "covariates"
    if not spec.needs_covariates:
        covariates = "covariates to adjust for"
    wants = [covariates if spec.uses_covariates else "no covariates"]
    return ", ".join([*wants, *(["delta"] if spec.needs_delta else [])])


def errors() -> pd.DataFrame:
    """Median errors of average effects at epsilon 1, relative to the effect, by data."""
    path = RESULTS / "leaderboard.csv"
    if not path.exists():
        return pd.DataFrame({"leaderboard": ["no results are on file"]})
    cells = pd.read_csv(path).query("epsilon == @EPSILON").sort_values("n", kind="stable")
    cells["place"] = [f"{x.data}, n = {x.n:,}" for x in cells.itertuples()]
    found = {(x.fit, x.place): f"{x.error:.3f}" for x in cells.itertuples() if np.isfinite(x.error)}
    places = cells["place"].unique()
    rows = [
        {"method": name, **{place: found.get((entry, place), _ABSENT) for place in places}}
        for name, (entry, _) in _MEASURED.items()
        if entry in set(cells["fit"])
    ]
    return pd.DataFrame(rows)


def intervals() -> pd.DataFrame:
    """Coverage of 95 % intervals by design, a half-width at epsilon 1, and seconds of a call."""
    cells = pd.read_csv(RESULTS / "coverage.csv")
    cells = cells[(cells["part"] == "grid") | (cells["level"] == "label")]
    seconds = pd.read_csv(RESULTS / "seconds.csv").query("n == 100_000").set_index("method")
    rows = []
    for name, (_, timed) in _MEASURED.items():
        level = "label" if "label" in name else "sample"
        found = cells[(cells["method"] == name.split("`")[1]) & (cells["level"] == level)]
        if "debias" in name:
            continue
        row = {"method": name}
        for column, design in _DESIGNS.items():
            row[f"{column}, %"] = _percent(found[found["design"] == design])
        suited = found[found["design"].isin(_DESIGNS.values())].set_index("population")
        half = suited.query("n == 2000 and epsilon == @EPSILON")["half_width"]
        places = [half[name] for name in _TYPICAL if name in half]
        row["half-width, n = 2,000"] = _short(places[0] if places else float("nan"))
        row["seconds, n = 100,000"] = _short(seconds["seconds"].get(timed, float("nan")))
        rows.append(row)
    return pd.DataFrame(rows)


def _percent(cells: pd.DataFrame) -> str:
    """Return how often intervals hold, of all runs of some cells that have one."""
    kept = cells.dropna(subset="cover95")
    runs = kept["runs"] * (1 - kept["refused"]) * (1 - kept["absent"])
    return f"{100 * (kept['cover95'] * runs).sum() / runs.sum():.1f}" if len(kept) else _ABSENT


def _short(value: float) -> str:
    return _ABSENT if pd.isna(value) else f"{value:.2g}"


def _range(values: pd.Series) -> str:
    values = values.dropna()
    if values.empty:
        return _ABSENT
    return f"{values.min():.1f} to {values.max():.1f}"


# --- the leaderboard --------------------------------------------------------------------------


def board() -> pd.DataFrame | None:
    """Return the cells of the leaderboard that decide between our methods, if it was run."""
    path = RESULTS / "leaderboard.csv"
    if not path.exists():
        return None
    cells = pd.read_csv(path, keep_default_na=False, na_values=["", "nan"])
    drawn = tasks()
    cells = cells[(cells["by"] == "dpeffects") & cells["data"].isin(drawn)].copy()
    cells["treatment"] = [
        "randomised" if drawn[name].randomised else "observational" for name in cells["data"]
    ]
    cells["size"] = pd.cut(cells["n"], [0, 2000, 10_000, 1e9], labels=_SIZES).astype(str)
    return cells


def decision() -> pd.DataFrame:
    """What to use when: for each situation the method that is nearest to the best there."""
    cells = board()
    if cells is None:
        return pd.DataFrame({"leaderboard": ["no results are on file"]})
    rows = []
    for level, treatment, size in itertools.product(_PRIVATE, _TREATMENTS, _SIZES):
        here = (cells["level"] == level) & (cells["treatment"] == treatment)
        part = cells[here & (cells["size"] == size)]
        if len(part):
            row = {"private": _PRIVATE[level], "treatment": treatment, "n": size}
            row["measured on"] = ", ".join(part["data"].unique())
            for name, (low, high) in _BUDGETS.items():
                row[name] = _nearest(part[part["epsilon"].between(low, high)])
            rows.append(row)
    return pd.DataFrame(rows)


def _nearest(cells: pd.DataFrame) -> str:
    """Name the methods whose errors are least on (geometric) average, with that error."""
    errors = cells.pivot_table("error", ["data", "epsilon"], "fit").dropna(axis=1)
    if errors.empty:
        return _ABSENT
    mean = np.exp(np.log(errors).mean()).sort_values()
    near = mean[mean <= 1.1 * mean.iloc[0]]
    return ", ".join(f"{called(name)} ({error:.2g})" for name, error in near.items())


def called(name: str) -> str:
    """Write an entry of the leaderboard as what a user calls: the method, and what it was told."""
    run = entries()[name].run if name in entries() else {"method": name}
    method = run["method"]
    levels = registry()[method].levels if method in registry() else ()
    told = {option: value for option, value in run.items() if option != "method"}
    if levels and told.get("level") == levels[0]:  # as it is without the option
        del told["level"]
    written = ", ".join(f"`{option}={_written(value)}`" for option, value in told.items())
    return f"`{method}`" + (f" with {written}" if written else "")


def _written(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else f"{value}".replace("e-0", "e-")


def bar() -> str:
    """Return a sentence: how often one of ours is best, or near it, and what it was run on."""
    path = RESULTS / "leaderboard.csv"
    if not path.exists():
        return "The leaderboard has not been run."
    cells = pd.read_csv(path)
    found = places(cells)
    alone = found.merge(cells[cells["fit"] == "auto"], on=["data", "epsilon"])
    near = int((alone["error_y"] <= 1.1 * alone["error_x"]).sum())
    return (
        f"In {int(found['near'].sum())} of {len(found)} places (a data set and an epsilon) one of "
        f"our methods is best or within 10 % of the best; the default `auto` by itself in "
        f"{near} of {len(alone)}. {cells['runs'].min()} to {cells['runs'].max()} samples a cell."
    )


def conditional() -> pd.DataFrame:
    """PEHE and coverage of the bands of conditional effects, on the paper's first data set."""
    cells = pd.read_csv(RESULTS / "cate.csv").query("data == 'data set 1'")
    rows = []
    for case, (method, release, guarantee) in _CATE.items():
        found = cells[cells["case"] == case].set_index("epsilon")
        row = {"method": f"`{method}`", "release": release, "guarantee": guarantee}
        row |= {f"error, epsilon {e:g}": f"{found['pehe'][e]:.2f}" for e in (0.5, 1.0, 5.0)}
        covered = found["covered"].get(EPSILON)
        row["bands cover, epsilon 1, %"] = (
            _ABSENT if covered is None or pd.isna(covered) else f"{covered:.1f}"
        )
        rows.append(row)
    return pd.DataFrame(rows)


def _best_rules() -> pd.DataFrame:
    """Per cent of the settings of paper 003 in which a rule is best or within 5 % of it."""
    figures = (papers.table(f"003_figure_{k}") for k in (3, 4, 5, 8, 9, 10, 11))
    found = pd.concat(figures).query("algorithm == 'package'").replace({"rule": _RULES})
    settings = ["data", "method", "sites", "alpha"]
    wide = found.pivot(index=settings, columns="rule", values="error")
    good = wide.le(1.05 * wide.min(axis=1), axis=0)
    alpha = good.index.get_level_values("alpha")
    sides = {"alpha < 1": alpha < 1, "alpha = 1": alpha == 1, "alpha > 1": alpha > 1}
    shares = {side: 100 * good[where].mean() for side, where in sides.items()}
    return pd.DataFrame(shares).T.map("{:.0f} %".format)


def rules() -> pd.DataFrame:
    """How often each rule that combines sites is best, with the coverage of its intervals."""
    best = _best_rules()
    coverage = pd.read_csv(RESULTS / "sites_coverage.csv")
    same = coverage[~coverage["design"].str.contains("effects differ")]
    differ = coverage[coverage["design"].str.contains("effects differ")]
    rows = []
    for rule in coverage["rule"].unique():
        row = {"rule": f"`{rule}`"}
        row |= {f"best, {b}": best[rule][b] if rule in best else _ABSENT for b in best.index}
        row["coverage, %"] = _range(same[same["rule"] == rule]["covered"])
        apart = differ[differ["rule"] == rule]["covered"]
        row["coverage where effects differ, %"] = _range(apart)
        rows.append(row)
    return pd.DataFrame(rows)


def text() -> str:
    """Return the page in Markdown."""
    template = (Path(__file__).parent / "which_method.md").read_text(encoding="utf-8")
    parts = {
        "ages": ages(),
        "decision": _markdown(decision()),
        "bar": bar(),
        "capabilities": _markdown(capabilities()),
        "errors": _markdown(errors()),
        "intervals": _markdown(intervals()),
        "bends": _markdown(bends.table()),
        "conditional": _markdown(conditional()),
        "rules": _markdown(rules()),
        "constant": _found("cate", r"best constant: ([\d.]+) \(data set 1\)"),
        "designs": str(pd.read_csv(RESULTS / "sites_coverage.csv")["design"].nunique()),
    }
    for name, part in parts.items():
        template = template.replace("{{" + name + "}}", part)
    return template


def ages() -> str:
    """Name the results that were measured on earlier code, if there are any."""
    read = ("cate", "coverage", "leaderboard", "first_call", "sites_coverage")
    pages = {name: RESULTS / f"{name}.md" for name in read}
    old = [name for name, page in pages.items() if on_age(page.read_text(encoding="utf-8"))]
    links = ", ".join(f"[{name.replace('_', ' ')}](benchmarks/{name}.md)" for name in old)
    return f"Measured on earlier code: {links}." if old else ""


def _found(name: str, pattern: str) -> str:
    found = re.search(pattern, (RESULTS / f"{name}.md").read_text(encoding="utf-8"))
    if found is None:
        raise LookupError(f"{name}.md does not say {pattern}")
    return found[1]


def _markdown(frame: pd.DataFrame) -> str:
    right = frame.map(lambda cell: cell[0].isdigit() or cell == _ABSENT).all()
    head = [list(frame.columns), ["---:" if number else "---" for number in right]]
    lines = [*head, *frame.astype(str).to_numpy().tolist()]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
