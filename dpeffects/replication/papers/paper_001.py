"""Verdicts on DP-CATE (paper 001)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpeffects.lazy import pd
from dpeffects.replication.papers.claim_checks import ClaimCheck
from dpeffects.replication.papers.stored_tables import table

_INFINITE = 1e6
_BUDGETS = (0.5, 1.0, 5.0, 10.0)


def _one(name: str, **where: Any) -> pd.Series[Any]:
    """The row of a table with these values."""
    frame = table(name)
    for column, value in where.items():
        frame = frame[frame[column] == value]
    if len(frame) != 1:
        raise LookupError(f"{name}: {len(frame)} rows with {where}")
    return frame.iloc[0]


def _number(value: float, se: float) -> str:
    return f"{value:.3g} (se {se:.2g})"


def _each(rows: pd.DataFrame, said: str, between: str = ", ") -> str:
    """What is said of each row of a table, with its values by the names of their columns."""
    return between.join(said.format(**row) for _, row in rows.reset_index().iterrows())


def _falls(values: list[float], errors: list[float]) -> bool:
    """Whether each value is below the one before, by more than two standard errors."""
    steps = zip(values, values[1:], errors, errors[1:], strict=False)
    return all(after < before - 2 * math.hypot(s, t) for before, after, s, t in steps)


def _constant(data: str) -> float:
    """Standard deviation of the effect, which is the PEHE of the best constant."""
    u = (np.arange(10_000) + 0.5) / 10_000
    first, second = np.exp(2 * u), 3 * np.sin(4 * u)
    return float(
        np.std(first + second)
        if data == "data set 1"
        else math.hypot(*map(np.std, (first, second)))
    )


def _fit(data: str, learner: str, stage: str) -> pd.Series[Any]:
    return _one("001_finite", data=data, learner=learner, stage=stage)


def _finite(data: str, learner: str, stage: str, epsilon: float) -> float:
    """PEHE of the finite release: independent noise adds its variance."""
    row = _fit(data, learner, stage)
    return math.hypot(row["plain"], row["noise sd"] / epsilon)


def _function(data: str, learner: str, epsilon: float, noise: str = "objective") -> pd.Series[Any]:
    return _one("001_functions", data=data, learner=learner, epsilon=epsilon, noise=noise)


# --- algorithms, theorems and lemmas ------------------------------------------------------------


def _same_law() -> ClaimCheck:
    rows = table("001_algorithm_2")
    gap = float((rows["sd"] / rows["batch sd"] - 1).abs().max())
    return ClaimCheck(
        f"conditioned on the noise, deviations differ from the batch's by at most {gap:.1%} over "
        f"{rows['runs'].iloc[0]:,} draws",
        gap < 0.03,
    )


def _lipschitz() -> ClaimCheck:
    r, dr = (
        _one("001_theorem_2", case=f"{learner}, lambda 1")
        for learner in ("R-learner", "DR-learner")
    )
    return ClaimCheck(
        f"claimed epsilon 1: R-learner {_number(r['epsilon'], r['se'])}, DR-learner "
        f"{_number(dr['epsilon'], dr['se'])}",
        max(r["epsilon"] - 2 * r["se"], dr["epsilon"] - 2 * dr["se"]) <= 1,
    )


def _exact_delta(item: str) -> ClaimCheck:
    rows = table("001_gaussian").query("item == @item and epsilon <= 10")
    low, high = (rows[rows["epsilon"] == epsilon].iloc[0] for epsilon in (5.0, 10.0))
    return ClaimCheck(
        f"claimed delta {low['printed']:g}: exact {low['ours']:.2g} at epsilon 5, "
        f"{high['ours']:.2g} at 10",
        rows["ours"] <= rows["printed"],
    )


def _orthogonal() -> ClaimCheck:
    part = "derivative of the mean score"
    ours = [_one("001_lemma_1", part=part, case=case) for case in ("R-learner", "DR-learner")]
    plug_in = _one("001_lemma_1", part=part, case="plug-in")
    both = max(row["mean"] for row in ours)
    return ClaimCheck(
        f"mean size of its derivative along {plug_in['runs']} random directions: at most "
        f"{both:.1g}; plug-in learner {_number(plug_in['mean'], plug_in['se'])}",
        both < 1e-6,
    )


def _formula_row(item: str, learner: str) -> ClaimCheck:
    row = _one("001_lemma_2", item=item, learner=learner)
    return ClaimCheck(
        f"package against the formulas written out: {row['mismatches']} of {row['cases']} answers "
        f"differ; noise from {row['least ratio']:.3f} to {row['largest ratio']:.3f} of ours",
        row["mismatches"] == 0 and row["least ratio"] > 0.98,
    )


def _kernel_bound() -> ClaimCheck:
    rows = table("001_lemma_3")
    worst = rows.sort_values("over printed").iloc[-1]
    return ClaimCheck(
        f"moved by up to {worst['over printed']:.3g} times that (h = {worst['h']:g}, "
        f"{worst['dimension']:.0f} dimensions); by at most {rows['over root'].max():.3f} times "
        "L / (lambda n) sqrt(K(x, x))",
        rows["over printed"].max() <= 1,
    )


def _consistent() -> ClaimCheck:
    rows = table("001_consistency").sort_values("n")
    first, last = rows.iloc[0], rows.iloc[-1]
    return ClaimCheck(
        f"function, epsilon 1: PEHE {_number(first['pehe'], first['se'])} at n = "
        f"{first['n']:,.0f}, {_number(last['pehe'], last['se'])} at {last['n']:,.0f}",
        last["pehe"] + 2 * last["se"] < first["pehe"] / 3,
    )


# --- figures --------------------------------------------------------------------------------------


def _settles() -> ClaimCheck:
    rows = table("001_finite").query("data == 'data set 1' and learner == 'R-learner'")
    said = "; ".join(
        f"{r['stage']} {r['noise sd'] / 0.5:.2g}, {r['noise sd']:.2g}, {r['noise sd'] / 10:.2g}"
        for _, r in rows.iterrows()
    )
    return ClaimCheck(f"noise sd at epsilon 0.5, 1 and 10: {said}", True)


def _identical() -> ClaimCheck:
    forest, network = (_fit("data set 1", "R-learner", stage) for stage in ("forest", "network"))
    return ClaimCheck(
        f"before noise they differ by {_number(forest['from network'], forest['from network se'])} "
        f"(root mean square), and their PEHE is {_number(forest['plain'], forest['se'])} and "
        f"{_number(network['plain'], network['se'])}; noise sd at epsilon 1 "
        f"{forest['noise sd']:.2f} and {network['noise sd']:.2f}",
        forest["from network"] < 1.5 * network["plain"],
    )


def _functions_settle(learner: str) -> ClaimCheck:
    rows = [_function("data set 1", learner, epsilon) for epsilon in _BUDGETS]
    away = [float(row["distance"]) for row in rows]
    said = ", ".join(_number(row["distance"], row["distance se"]) for row in rows)
    return ClaimCheck(
        f"distance from the function without noise at epsilon 0.5, 1, 5, 10: {said}",
        _falls(away, [float(row["distance se"]) for row in rows]),
    )


def _data_set_2() -> ClaimCheck:
    said = []
    for stage in ("forest", "network"):
        values = ", ".join(f"{_finite('data set 2', 'R-learner', stage, e):.2f}" for e in _BUDGETS)
        plain = _one("001_finite", data="data set 2", learner="R-learner", stage=stage)["plain"]
        said.append(f"{stage} {values} ({plain:.2f} without noise)")
    rows = [_function("data set 2", "R-learner", e) for e in (*_BUDGETS, _INFINITE)]
    values = ", ".join(f"{row['pehe']:.2f}" for row in rows[:-1])
    said.append(f"function {values} ({rows[-1]['pehe']:.2f})")
    return ClaimCheck(
        f"epsilon 0.5, 1, 5, 10: {'; '.join(said)}; largest se {max(r['se'] for r in rows):.2f}",
        _falls([float(r["pehe"]) for r in rows], [float(r["se"]) for r in rows]),
    )


def _useful() -> ClaimCheck:
    constant = _constant("data set 2")
    network = _finite("data set 2", "R-learner", "network", 1.0)
    row = _function("data set 2", "R-learner", 1.0)
    return ClaimCheck(
        f"epsilon 1: network {network:.2f} (claimed), function {_number(row['pehe'], row['se'])}; "
        f"a constant scores {constant:.2f}",
        max(network, row["pehe"] + 2 * row["se"]) < constant,
    )


def _variation() -> ClaimCheck:
    rows = table("001_figure_6")
    said = _each(rows, "{noise sd:.3g} (se {noise sd se:.2g}) at {epsilon:g}")
    falls = _falls(rows["pehe"].tolist(), rows["se"].tolist())
    return ClaimCheck(f"stand-in: noise sd {said}", falls)


def _constant_effect() -> ClaimCheck:
    said, settles = [], True
    for genes, rows in table("001_figure_7").groupby("genes"):
        values = ", ".join(f"{value:.2g}" for value in rows["pehe"])
        said.append(f"{genes:,} genes {values} ({rows['plain'].iloc[0]:.2g} without noise)")
        settles &= bool((rows["pehe"].diff().dropna() < 0).all())
    return ClaimCheck(
        f"stand-in, effect 1: PEHE at epsilon 0.5, 1, 5, 10: {'; '.join(said)}", settles
    )


def _mechanisms() -> ClaimCheck:
    said, better = [], []
    for learner in ("R-learner", "DR-learner"):
        inside, outside = (
            _function("data set 1", learner, 1.0, n) for n in ("objective", "kernel")
        )
        said.append(
            f"{learner} {_number(outside['pehe'], outside['se'])} with noise on the output, "
            f"{_number(inside['pehe'], inside['se'])} with noise in the objective"
        )
        better.append(
            inside["pehe"] + 2 * math.hypot(inside["se"], outside["se"]) < outside["pehe"]
        )
    return ClaimCheck(f"PEHE of functions at epsilon 1: {'; '.join(said)}", not any(better))


def _enlarged() -> ClaimCheck:
    ratios = {
        stage: _fit("data set 1", "DR-learner", stage)["noise sd"]
        / _fit("data set 1", "R-learner", stage)["noise sd"]
        for stage in ("network", "forest", "linear")
    }
    said = ", ".join(f"{stage} {ratio:.2f}" for stage, ratio in ratios.items())
    return ClaimCheck(f"times the noise of the R-learner: {said}", min(ratios.values()) > 3)


def _rapidly() -> ClaimCheck:
    finite = _fit("data set 1", "DR-learner", "network")["noise sd"]
    low, high = (_function("data set 1", "DR-learner", epsilon) for epsilon in (0.5, 5.0))
    left = high["distance"] / low["distance"]
    return ClaimCheck(
        f"noise at epsilon 0.5 and 5: finite {finite / 0.5:.2f} and {finite / 5:.2f}, function "
        f"{_number(low['distance'], low['distance se'])} and "
        f"{_number(high['distance'], high['distance se'])}",
        left < 0.1,
    )


def _boosting() -> ClaimCheck:
    network = _one("001_finite", data="data set 1", learner="R-learner", stage="network")
    said, worse = [], {}
    for learner in ("dr", "t"):
        rows = [_one("001_figure_11", learner=learner, epsilon=e) for e in _BUDGETS]
        ratios = [row["distance"] * row["epsilon"] / network["noise sd"] for row in rows]
        worse[learner] = min(ratios)
        values = ", ".join(_number(row["distance"], row["distance se"]) for row in rows)
        said.append(f"DP-EBM {learner} {values}")
    own = ", ".join(f"{network['noise sd'] / e:.2f}" for e in _BUDGETS)
    return ClaimCheck(
        f"epsilon 0.5, 1, 5, 10: {'; '.join(said)}; finite release {own}",
        worse["dr"] > 3,
        f"At least {worse['dr']:.1f} times as large in two stages (dr), {worse['t']:.1f} times "
        "with a model for each arm (t). But DP-EBM has a guarantee for all stages, and the finite "
        "release has none (Theorem 1).",
    )


def _not_reliable() -> ClaimCheck:
    rows = table("001_figure_11").query("epsilon == 0.5")
    said = _each(rows, "{learner} {pehe:.3g} (se {se:.2g})")
    constant = _constant("data set 1")
    return ClaimCheck(
        f"PEHE at epsilon 0.5: {said}; a constant scores {constant:.2f}",
        rows["pehe"] - 2 * rows["se"] > constant,
    )


def _superior() -> ClaimCheck:
    best = table("001_figure_11").groupby("epsilon")["pehe"].min()
    ours = {e: _function("data set 1", "DR-learner", e) for e in _BUDGETS}
    said = ", ".join(f"{_number(row['pehe'], row['se'])}" for row in ours.values())
    finite = ", ".join(f"{_finite('data set 1', 'R-learner', 'network', e):.2f}" for e in _BUDGETS)
    others = ", ".join(f"{best[e]:.2f}" for e in _BUDGETS)
    return ClaimCheck(
        f"PEHE at epsilon 0.5, 1, 5, 10: function {said}; finite {finite} (claimed); best DP-EBM "
        f"{others}",
        all(row["pehe"] + 2 * row["se"] < best[e] for e, row in ours.items()),
    )


def _anonymous() -> ClaimCheck:
    rows = table("001_figure_13")
    said = _each(rows, "{pehe:.3g} (se {se:.2g}) for k = {k:.0f}")
    finite = [_finite("data set 1", "R-learner", "network", e) for e in _BUDGETS]
    shown = ", ".join(f"{value:.2f}" for value in finite)
    wins = sum(value < rows["pehe"].median() for value in finite)
    return ClaimCheck(f"PEHE {said}; finite release {shown} at epsilon 0.5, 1, 5, 10", wins >= 3)


def _data_set_1() -> ClaimCheck:
    said = []
    for stage in ("forest", "network", "linear"):
        row = _one("001_finite", data="data set 1", learner="R-learner", stage=stage)
        values = ", ".join(f"{_finite('data set 1', 'R-learner', stage, e):.2f}" for e in _BUDGETS)
        said.append(f"{stage} {values} ({_number(row['plain'], row['se'])} without noise)")
    return ClaimCheck(f"epsilon 0.5, 1, 5, 10: {'; '.join(said)}", True)


def _percent() -> ClaimCheck:
    said = []
    for stage in ("forest", "network", "linear"):
        plain = _one("001_finite", data="data set 1", learner="R-learner", stage=stage)["plain"]
        values = [_finite("data set 1", "R-learner", stage, e) / plain for e in (0.1, 0.2)]
        said.append(f"{stage} {values[0]:.0%} to {values[1]:.0%}")
    return ClaimCheck("; ".join(said), None)


def _tenth() -> ClaimCheck:
    return ClaimCheck(f"a tenth of 14,719 is {14_719 // 10 + 1:,}", False)


def _lambda() -> ClaimCheck:
    one, small, wrong = (
        _one("001_theorem_2", case=f"DR-learner, lambda {case}")
        for case in ("1", "1/n", "1/n, noise for lambda 1")
    )
    return ClaimCheck(
        f"DR-learner without noise: PEHE {one['pehe']:.2f} with lambda 1 in equation 15, "
        f"{small['pehe']:.2f} with 1/n; a constant scores {_constant('data set 1'):.2f}",
        one["pehe"] < _constant("data set 1"),
        "With lambda 1 the function is nearly 0, so figure 4 cannot come from it. A software's "
        "lambda of 1 is 1/n here; with noise for lambda 1 the exact epsilon would be "
        f"{wrong['epsilon']:,.0f} where 1 is claimed.",
    )
