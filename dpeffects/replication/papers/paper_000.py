"""Verdicts on PrivATE (paper 000); the tables are made by vignettes/private_matching.py.

Tables named after a figure are of the algorithm as printed; those that end in ``_ours`` are of
`private_psm`. Verdicts are on the former.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dpeffects.lazy import pd
from dpeffects.replication.papers.claim_checks import ClaimCheck
from dpeffects.replication.papers.stored_tables import table as on_file

LABEL, SAMPLE = "PrivATE, label", "PrivATE, sample"
OURS = ["private_psm, label", "private_psm, sample"]
RIVALS = ("IPW-PP", "SmoothDPM", "DPCI", "AIM")
CLEAR = 2.0
"""Standard errors from which on a difference counts."""


def table(name: str) -> Any:
    """A table on file."""
    return on_file(name)


def between(values: Any) -> str:
    """The smallest and the largest."""
    return f"{values.min():.2g} to {values.max():.2g}"


def by_data(values: Any) -> str:
    """Values with the names of their data sets."""
    return ", ".join(f"{data} {value:.2g}" for data, value in values.items())


def _figure_2() -> Any:
    ends = ("", "_rivals", "_aim", "_ours")
    return pd.concat([table(f"000_figure_2{end}") for end in ends], ignore_index=True)


def _cells(frame: Any, setting: str, epsilon: float) -> Any:
    return frame.query("setting == @setting and epsilon == @epsilon").set_index("data")


def _said(cells: Any) -> str:
    return ", ".join(f"{c.Index} {c.error:.2g} (se {c.se:.1g})" for c in cells.itertuples())


def _gap(a: Any, b: Any) -> Any:
    """Errors of a less those of b, in standard errors, matched by index."""
    both = a.add_suffix("_a").join(b.add_suffix("_b"), how="inner")
    se = np.hypot(both["se_a"], both["se_b"]).clip(lower=1e-12)
    return (both["error_a"] - both["error_b"]) / se


def _against(a: str, b: str) -> Any:
    rows = _figure_2().set_index(["data", "epsilon"])[["setting", "error", "se"]]
    return _gap(*(rows[rows["setting"] == name][["error", "se"]] for name in (a, b)))


def _beats(a: str, others: tuple[str, ...]) -> tuple[str, int, int, int]:
    """Cells in which a has clearly the smaller and clearly the larger error; their number."""
    said, wins, losses, total = [], 0, 0, 0
    for other in others:
        gap = _against(a, other)
        won, lost = int((gap < -CLEAR).sum()), int((gap > CLEAR).sum())
        said.append(f"{other} {won} to {lost} of {len(gap)}")
        wins, losses, total = wins + won, losses + lost, total + len(gap)
    return "; ".join(said), wins, losses, total


def _falling() -> ClaimCheck:
    fallen, rest, risen = 0, [], 0
    for (data, setting), part in _figure_2().groupby(["data", "setting"]):
        if setting in (LABEL, SAMPLE, *RIVALS) and len(part) > 1:
            ends = part.sort_values("epsilon").iloc[[0, -1]]
            gap = ends["error"].diff().iloc[-1] / max(np.hypot(*ends["se"]), 1e-12)
            fallen, risen = fallen + int(gap < -CLEAR), risen + int(gap > CLEAR)
            rest += [f"{setting} on {data}"] if gap >= -CLEAR else []
    return ClaimCheck(
        f"clearly smaller at epsilon 4 than at 0.5 in {fallen} of {fallen + len(rest)} lines, "
        f"clearly larger in {risen}; the others are {', '.join(rest)}",
        risen == 0 and fallen > 0.6 * (fallen + len(rest)),
    )


def _label_beats() -> ClaimCheck:
    said, wins, losses, total = _beats(LABEL, RIVALS)
    return ClaimCheck(
        f"clearly smaller to clearly larger: {said}", losses == 0 and wins > 0.5 * total
    )


def _sample_beats() -> ClaimCheck:
    said, wins, losses, total = _beats(SAMPLE, RIVALS)
    ours = _against(SAMPLE, "default")
    return ClaimCheck(
        f"clearly smaller to clearly larger: {said}. This package's default has a clearly smaller "
        f"error in {int((ours > CLEAR).sum())} of {len(ours)} cells",
        losses == 0 and wins > 0.5 * total,
    )


def _label_before_sample() -> ClaimCheck:
    said, _, losses, _ = _beats(LABEL, (SAMPLE,))
    return ClaimCheck(f"clearly smaller to clearly larger: {said}", losses == 0)


def _lalonde_at_3() -> ClaimCheck:
    rows = _figure_2().query("data == 'Lalonde' and epsilon == 3").set_index("setting")
    own, rest = rows.loc[[LABEL, SAMPLE]], rows.loc[rows.index.intersection(list(RIVALS))]
    return ClaimCheck(
        f"{_said(own)}; {_said(rest)}",
        (own["error"] < 0.2).all() and (rest["error"] > 1).mean() > 0.5,
    )


def _similar_at_4() -> ClaimCheck:
    label, sample = (_cells(_figure_2(), name, 4.0) for name in (LABEL, SAMPLE))
    return ClaimCheck(
        f"label {_said(label)}; sample {_said(sample)}",
        (sample["error"] - label["error"]).abs().max() < 0.1,
    )


def _ipw_is_poorest() -> ClaimCheck:
    rows = _figure_2()
    rows = rows[rows["setting"].isin((LABEL, SAMPLE, *RIVALS)) & (rows["epsilon"] == 0.5)]
    worst = rows.loc[rows.groupby("data")["error"].idxmax()].set_index("data")["setting"]
    return ClaimCheck(
        "worst at epsilon 0.5: " + ", ".join(f"{d} {s}" for d, s in worst.items()),
        (worst == "IPW-PP").mean() > 0.5,
    )


def _near_or_above_1() -> ClaimCheck:
    rows = _figure_2().query("epsilon <= 1.5")
    parts = {name: rows[rows["setting"] == name] for name in ("SmoothDPM", "DPCI")}
    share = {name: float((part["error"] > 0.8).mean()) for name, part in parts.items()}
    said = (f"{name} {between(part['error'])}" for name, part in parts.items())
    shares = ", ".join(f"{name} {value:.0%}" for name, value in share.items())
    return ClaimCheck(
        f"{'; '.join(said)}; above 0.8: {shares} of the cells", min(share.values()) > 0.5
    )


def _below_one() -> ClaimCheck:
    rows = table("000_figure_2").query("epsilon == 1")
    worst = rows.loc[rows["error"].idxmax()]
    ours = table("000_figure_2_ours").query("epsilon == 1 and setting == 'private_psm, sample'")
    own = ours.loc[ours["error"].idxmax()]
    close = abs(worst["error"] - 1) < CLEAR * worst["se"]
    return ClaimCheck(
        f"largest {worst['error']:.2f} (se {worst['se']:.2f}, {worst['runs']:.0f} runs): "
        f"{worst['setting']}, {worst['data']}; private_psm at sample level {own['error']:.2f} (se "
        f"{own['se']:.2f}) on {own['data']}",
        None if close else bool(worst["error"] < 1),
    )


def _aim_is_worse() -> ClaimCheck:
    said, wins, losses, _ = _beats(SAMPLE, ("AIM",))
    label, more, fewer, _ = _beats(LABEL, ("AIM",))
    return ClaimCheck(
        f"clearly smaller to clearly larger: sample level and {said}; label level and {label}",
        losses == fewer == 0 and wins + more > 0,
    )


def _label_at_a_half() -> ClaimCheck:
    cells = _cells(_figure_2(), LABEL, 0.5)
    return ClaimCheck(_said(cells), (cells["error"] + cells["se"] < 0.2).sum() >= 2)


def _with_adaptive(figure: str, level: str) -> Any:
    """Fixed limits, and the limit that follows from epsilon."""
    fixed = table(figure)
    base = "000_figure_7" if fixed["neighbours"].nunique() > 1 else "000_figure_2"
    other = table(base)
    own = other[other["setting"] == f"PrivATE, {level}"].assign(setting="adaptive")
    return pd.concat([fixed, own], ignore_index=True)


def _near_best(rows: Any, chosen: str, by: str) -> tuple[str, float]:
    """How often a choice is within two standard errors of the best, and the worst ratio."""
    near, ratios = [], []
    for _, part in rows.groupby(["data", "epsilon", "neighbours"]):
        best = part.loc[part["error"].idxmin()]
        own = part[part[by].astype(str) == chosen].iloc[0]
        gap = own["error"] - best["error"]
        near.append(gap <= CLEAR * np.hypot(own["se"], best["se"]))
        ratios.append(own["error"] / best["error"])
    said = (
        f"not clearly worse than the best in {sum(near)} of {len(near)} cells (median "
        f"{np.median(ratios):.2g} times the best, at most {max(ratios):.2g})"
    )
    return said, float(np.mean(near))


def _worse(rows: Any) -> dict[str, float]:
    """Share of the cells in which each fixed limit is clearly worse than the best."""
    return {k: 1.0 - _near_best(rows, k, "setting")[1] for k in ("k = 1", "k = 10", "k = 50")}


def _adaptive_at_sample_level(figure: str) -> ClaimCheck:
    said, share = _near_best(_with_adaptive(figure, "sample"), "adaptive", "setting")
    return ClaimCheck(said, share > 0.8)


def _k_ratio(rows: Any, epsilon: float) -> tuple[Any, Any]:
    """Ratio of errors at k = 50 to k = 1, and their distance in standard errors."""
    large, small = (_cells(rows, k, epsilon)[["error", "se"]] for k in ("k = 50", "k = 1"))
    return large["error"] / small["error"], _gap(large, small)


def _agreed(one: bool, other: bool) -> bool | None:
    """What both readings of records that find nobody say; None where they disagree."""
    return bool(one) if bool(one) == bool(other) else None


def _counted_as_zero(figure: str = "000_figure_3") -> Any:
    """A figure with a counterfactual of 0 for records that find nobody, which k = 1 leaves."""
    rows, zero = _with_adaptive(figure, "label"), table("000_figures_3_8_alone")
    zero = zero[zero["neighbours"].isin(rows["neighbours"])]
    rest = rows[(rows["setting"] != "k = 1") & rows["epsilon"].isin(zero["epsilon"])]
    return pd.concat([rest, zero], ignore_index=True)


def _no_fixed(figure: str) -> ClaimCheck:
    out, zero = _worse(_with_adaptive(figure, "label")), _worse(_counted_as_zero(figure))
    said = (", ".join(f"{k} {share:.0%}" for k, share in worse.items()) for worse in (out, zero))
    return ClaimCheck(
        "cells in which a limit is clearly worse than the best: {}; with a counterfactual of 0 for "
        "records that find nobody: {}".format(*said),
        _agreed(min(out.values()) > 0.1, min(zero.values()) > 0.1),
    )


def _adaptive_at_label_level(figure: str, enough: float) -> ClaimCheck:
    out, share = _near_best(_with_adaptive(figure, "label"), "adaptive", "setting")
    zero, other = _near_best(_counted_as_zero(figure), "adaptive", "setting")
    return ClaimCheck(
        f"{out}; with a counterfactual of 0 for records that find nobody: {zero}",
        _agreed(share > enough, other > enough),
    )


def _small_first() -> ClaimCheck:
    ratio, gap = _k_ratio(table("000_figure_3"), 0.5)
    ours, _ = _k_ratio(table("000_figure_3_ours"), 0.5)
    return ClaimCheck(
        f"error at k = 50 over k = 1, epsilon 0.5: {by_data(ratio)} (private_psm: {by_data(ours)})",
        (gap > CLEAR).mean() > 0.5,
    )


def _large_last() -> ClaimCheck:
    out, gap = _k_ratio(table("000_figure_3"), 4.0)
    zero, zero_gap = _k_ratio(_counted_as_zero(), 4.0)
    return ClaimCheck(
        f"error at k = 50 over k = 1, epsilon 4: {by_data(out)}; with a counterfactual of 0 for "
        f"records that find nobody: {by_data(zero)}",
        _agreed((gap < -CLEAR).mean() >= 0.5, (zero_gap < -CLEAR).mean() >= 0.5),
    )


def _small_is_flat() -> ClaimCheck:
    def ratio(rows: Any) -> Any:
        first, last = (_cells(rows, "k = 1", epsilon) for epsilon in (0.5, 4.0))
        return last["error"] / first["error"]

    out, zero = ratio(table("000_figure_3")), ratio(_counted_as_zero())
    return ClaimCheck(
        f"k = 1, error at 4 over that at 0.5: {by_data(out)}; with a counterfactual of 0 for "
        f"records that find nobody: {by_data(zero)}",
        _agreed((out > 0.5).mean() > 0.5, (zero > 0.5).mean() > 0.5),
    )


def _coefficient(figure: str, name: str, chosen: str) -> ClaimCheck:
    said, share = _near_best(table(figure), chosen, name)
    return ClaimCheck(f"{name} = {chosen}: {said}", share > 0.8)


def _c_matters() -> ClaimCheck:
    rows = table("000_figure_4").set_index(["data", "epsilon"])
    small, middle, large = (rows[rows["c"] == c][["error", "se"]] for c in (1e-4, 1e-2, 1.0))
    low, high = _gap(small, middle), _gap(large, middle)
    return ClaimCheck(
        f"c = 1 is clearly worse than 0.01 in {int((high > CLEAR).sum())} of {len(high)} cells, "
        f"c = 0.0001 in {int((low > CLEAR).sum())}",
        (high > CLEAR).any() and (low > CLEAR).any(),
    )


def _large_worse(figure: str, keys: list[str]) -> ClaimCheck:
    def gap_and_ratio(name: str) -> tuple[Any, Any]:
        rows = table(name).set_index(keys)
        large, small = (rows[rows["setting"] == k][["error", "se"]] for k in ("k = 50", "k = 1"))
        return _gap(large, small), large["error"] / small["error"]

    gap, ratio = gap_and_ratio(figure)
    said = (
        f"k = 50 against k = 1: clearly worse in {int((gap > CLEAR).sum())} of {len(gap)} cells, "
        f"clearly better in {int((gap < -CLEAR).sum())}; ratio {between(ratio)}"
    )
    if figure == "000_figure_5":
        ours, own = gap_and_ratio(f"{figure}_ours")
        said += f" (private_psm: clearly worse in {int((ours > CLEAR).sum())}, {between(own)})"
    return ClaimCheck(said, (gap > CLEAR).mean() > 0.5)


def _smallest_not_best() -> ClaimCheck:
    rows = _with_adaptive("000_figure_5", "sample").query("epsilon >= 3")
    said, share = _near_best(rows, "k = 1", "setting")
    return ClaimCheck(f"k = 1 at epsilon 3 and more: {said}", share < 0.9)


def _h_matters() -> ClaimCheck:
    rows = table("000_figure_6").set_index(["data", "epsilon"])
    large, small = (rows[rows["h"] == h][["error", "se"]] for h in (1.0, 1e-4))
    gap = _gap(large, small)
    return ClaimCheck(
        f"h = 1 is clearly worse than 0.0001 in {int((gap > CLEAR).sum())} of {len(gap)} cells, "
        f"clearly better in {int((gap < -CLEAR).sum())}; ratio "
        f"{between(large['error'] / small['error'])}",
        (gap > CLEAR).mean() > 0.5,
    )


def _neighbours() -> ClaimCheck:
    rows = pd.concat([table("000_figure_7"), table("000_figure_2")], ignore_index=True)
    rows = rows[rows["setting"].isin((LABEL, SAMPLE)) & rows["epsilon"].isin((0.5, 1, 2, 4))]
    clear, ratios = 0, []
    for _, part in rows.groupby(["data", "setting", "epsilon"]):
        low, high = part.loc[part["error"].idxmin()], part.loc[part["error"].idxmax()]
        clear += high["error"] - low["error"] > CLEAR * np.hypot(high["se"], low["se"])
        ratios.append(high["error"] / low["error"])
    return ClaimCheck(
        f"largest over smallest error of the four N: median {np.median(ratios):.2g}, at most "
        f"{max(ratios):.2g}; clearly different in {int(clear)} of {len(ratios)} cells",
        clear <= 0.3 * len(ratios),
    )


def _few_for_treatments() -> ClaimCheck:
    rows = table("000_figure_12")
    few = rows[rows["second"] == 0.1].groupby(["data", "epsilon"])["error"].mean()
    many = rows[rows["second"] >= 0.5].groupby(["data", "epsilon"])["error"].mean()
    ratio = few / many
    said = ", ".join(f"{d} at {e:g}: {r:.2g}" for (d, e), r in ratio.items())
    return ClaimCheck(
        f"mean error with a share of 0.1 over that with 0.5 or more: {said}", ratio > 1
    )


def _no_best_division() -> ClaimCheck:
    rows = table("000_figure_12")
    best = rows.loc[rows.groupby(["data", "epsilon"])["error"].idxmin()]
    said = ", ".join(
        f"{r.data} at {r.epsilon:g}: {r.first:g}, {r.second:g}" for r in best.itertuples()
    )
    return ClaimCheck(
        f"best shares of phases 1 and 2: {said}",
        len(set(zip(best["first"], best["second"], strict=True))) > 1,
    )


def _chosen_division() -> ClaimCheck:
    rows = table("000_figure_12").assign(neighbours=5)
    rows["split"] = rows["first"].map("{:g}".format) + " : " + rows["second"].map("{:g}".format)
    said, share = _near_best(rows, "0.1 : 0.7", "split")
    return ClaimCheck(said, share > 0.8)


def _several_treatments_flipped() -> ClaimCheck:
    rows = table("000_section_v").query("level == 'sample' and epsilon == 1")
    near = (rows["estimate"] - rows["difference in means"]).abs()
    off = (rows["estimate"] - rows["truth"]).abs()
    expected = 2 / (2 + np.exp(0.7))
    said = ", ".join(f"{r.contrast} {r.estimate:.3f} (se {r.se:.3f})" for r in rows.itertuples())
    return ClaimCheck(
        f"an arm is replaced with probability {rows['replaced'].iloc[0]:.4f}, by the formula "
        f"{expected:.4f}; corrected for it, {said}: nearer to the differences in means than to the "
        f"truth in {int((near < off).sum())} of {len(rows)}",
        abs(rows["replaced"].iloc[0] - expected) < 1e-4,
    )


# Algorithms and equations: literal versions against the package ----------------------------------


def _literal(item: str) -> ClaimCheck:
    rows = table("000_algorithms").query("item == @item")
    said = "; ".join(
        f"{row.what}: {row.mismatches} of {row.cases} differ" for row in rows.itertuples()
    )
    return ClaimCheck(said, rows["mismatches"].sum() == 0)


def _algorithm_4() -> ClaimCheck:
    rows = table("000_algorithms").query("item == 'Algorithm 4'")
    largest = rows["largest difference"].max()
    found = _literal("Algorithm 4")
    return ClaimCheck(f"{found.measured} by more than 0.01; at most {largest:.1g}", found.holds)


def _value(item: str, words: str) -> Any:
    rows = table("000_equations")
    return rows[(rows["item"] == item) & rows["what"].str.contains(words, regex=False)]


def _equation_5() -> ClaimCheck:
    printed, coded = _value("Equation 5", ", 0 and 1"), _value("Equation 5", "-1 and 1")
    return ClaimCheck(
        "pairs in which the treated record has the higher score: "
        f"{between(printed['value'])} with 0 and 1, {between(coded['value'])} with -1 and 1",
        printed["value"].to_numpy() >= coded["value"].to_numpy(),
    )


def _equation_8() -> ClaimCheck:
    rows = _value("Equation 8", "variance")
    said = ", ".join(f"{row.what.split(': ')[1]}: {row.value:.2f}" for row in rows.itertuples())
    return ClaimCheck(f"true over printed, {said}", rows["value"] < 1.1)


def _equation_9() -> ClaimCheck:
    ratio, worse = (
        _value("Equation 9", "minimiser").iloc[0],
        _value("Equation 9", "minimum").iloc[0],
    )
    return ClaimCheck(
        f"the minimiser is {ratio.value:.3f} times that, in all of {ratio.runs} cases; at the "
        f"printed k equation 8 is {100 * (worse.value - 1):.1f} % above its minimum",
        abs(ratio.value - 1) < 0.01,
    )


# Privacy ----------------------------------------------------------------------------------------


def _theorem(level: str) -> ClaimCheck:
    rows = table("000_theorems_1_2")
    rows = rows[rows["level"].str.startswith(level)]
    worst = rows.loc[rows["largest ratio"].idxmax()]
    broken = int((rows["largest ratio"] > 1 + 1e-9).sum())
    return ClaimCheck(
        f"the true epsilon of the sums is above the claimed one in {broken} of {len(rows)} "
        f"settings, up to {worst['largest ratio']:.2f} times ({worst['data']}, {worst['level']}, "
        f"epsilon {worst['epsilon']:g})",
        broken == 0,
    )


def _theorem_3() -> ClaimCheck:
    rows = table("000_theorem_3")
    worst = rows.loc[((rows["ratio"] - 1) / rows["se"]).idxmax()]
    return ClaimCheck(
        f"squared error {between(rows['ratio'])} times the bound in {len(rows)} cases (largest se "
        f"{rows['se'].max():.2f})",
        worst["ratio"] - 1 < 3 * worst["se"],
    )


# Tables -----------------------------------------------------------------------------------------


def _table_ii() -> ClaimCheck:
    rows = table("000_table_ii").set_index("data")
    printed = {"IHDP": (139, 608), "Lalonde": (185, 260), "ACIC": (858, 3944)}
    same = all(tuple(rows.loc[k, ["treated", "control"]]) == v for k, v in printed.items())
    ours = ", ".join(f"{k} {int(r.treated)} + {int(r.control)}" for k, r in rows.iterrows())
    return ClaimCheck(ours, same)


def _table_iii() -> ClaimCheck:
    rows = table("000_table_iii")
    growth = {
        name: np.polyfit(np.log(part["n"]), np.log(part["s"]), 1)[0]
        for name, part in rows.groupby("matching")
    }
    return ClaimCheck(
        f"time grows as n^{growth['all pairs']:.1f} by Algorithm 2 as printed, as "
        f"n^{growth['on the line']:.1f} with one sort",
        growth["all pairs"] < 1.5,
    )


def _costs(column: str) -> Any:
    return table("000_tables_iv_v").pivot(index="method", columns="data", values=column)


def _table_iv_fast() -> ClaimCheck:
    cost = _costs("s").loc[OURS]
    return ClaimCheck(f"at most {cost.to_numpy().max():.2f} s", cost.to_numpy().max() < 1)


def _table_iv_levels() -> ClaimCheck:
    rows = table("000_tables_iv_v").set_index(["method", "data"])
    label, sample = (rows.loc[name] for name in OURS)
    gap = (sample["s"] - label["s"]) / np.hypot(sample["se"], label["se"])
    ratio = sample["s"] / label["s"]
    return ClaimCheck(
        f"sample over label: {by_data(ratio)}", (gap > -CLEAR).all() and (gap > CLEAR).any()
    )


def _aim_over_others(column: str, which: str, far: float) -> ClaimCheck:
    cost = _costs(column)
    ratio = cost.loc["AIM"] / cost.drop(index="AIM").max()
    return ClaimCheck(f"AIM over the {which}: {by_data(ratio)}", ratio > far)


def _table_v_least() -> ClaimCheck:
    cost = _costs("MB")
    own, least = cost.loc[OURS].max(), cost.drop(index=OURS).min()
    said = ", ".join(f"{data} {own[data]:.0f} and {least[data]:.0f}" for data in own.index)
    return ClaimCheck(
        f"megabytes of the sample level and of the least of the others: {said}", own <= least
    )
