"""Verdicts on PrivATE (paper 000); the tables are made by vignettes/private_matching.py."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from dpeffects.papers.paper_000_figures import CLEAR, OURS, between, by_data, table
from dpeffects.papers.verdict import Found, claim

# Algorithms and equations: literal versions against the package ----------------------------------


def _literal(item: str) -> Found:
    rows = table("000_algorithms").query("item == @item")
    said = "; ".join(
        f"{row.what}: {row.mismatches} of {row.cases} differ" for row in rows.itertuples()
    )
    return Found(said, bool(rows["mismatches"].sum() == 0), "A literal version is in the vignette.")


for _item, _printed in {
    "Algorithm 1": "Logistic regression; at sample level noise on weights and scores",
    "Algorithm 2": "Flipped treatments; neighbours by the distance of scores",
    "Algorithm 3": "Each record in turn takes the N nearest that have not served k N times",
    "Equation 4": "A counterfactual is the mean outcome of the matched neighbours",
    "Equation 10": "k is rounded, at least 1 and at most M / N",
    "Equation 12": "At sample level k is rounded, and at least 1",
}.items():
    claim("000", _item, _printed)(partial(_literal, _item))
claim("000", "Equation 11", "At sample level equation 9 is used with e3, h and released values")(
    partial(_literal, "Equation 12")  # the limit of equation 12 is this one, rounded
)


@claim("000", "Algorithm 4", "The three phases one after the other")
def _algorithm_4() -> Found:
    rows = table("000_algorithms").query("item == 'Algorithm 4'")
    largest = rows["largest difference"].max()
    found = _literal("Algorithm 4")
    return Found(f"{found.measured} by more than 0.01; at most {largest:.1g}", found.holds)


def _value(item: str, words: str) -> Any:
    rows = table("000_equations")
    return rows[(rows["item"] == item) & rows["what"].str.contains(words, regex=False)]


@claim(
    "000", "Equation 5", "The loss log(1 + exp(-x'w t)) with T = 0 or 1", "sections III-A, III-D"
)
def _equation_5() -> Found:
    printed, coded = _value("Equation 5", ", 0 and 1"), _value("Equation 5", "-1 and 1")
    return Found(
        "pairs in which the treated record has the higher score: "
        f"{between(printed['value'])} with 0 and 1, {between(coded['value'])} with -1 and 1",
        bool((printed["value"].to_numpy() >= coded["value"].to_numpy()).all()),
        "With t = 0 a record's loss is log 2 whatever w is, so controls drop out. The loss is for "
        "treatments coded -1 and 1, and that is what is fitted here.",
    )


@claim("000", "Equation 6", "Expected squared error is variance plus squared bias")
def _equation_6() -> Found:
    row = _value("Equation 6", "squared").iloc[0]
    same = bool(abs(row.value - 1) < CLEAR * row.se)
    return Found(f"{row.value:.3f} times (se {row.se:.3f})", same, "An identity.")


@claim("000", "Equation 7", "The bias of a sum is about c B n1 M1 / k, with c = 0.01")
def _equation_7() -> Found:
    rows = _value("Equation 7", "bias")
    return Found(
        f"the bias is {between(rows['value'])} times the guess in {len(rows)} cases",
        bool(((rows["value"] > 0.5) & (rows["value"] < 2)).all()),
        "The formula is offered as an intuition. With c = 0.01 it is far too large on these data, "
        "and the ratio differs from one data set and k to the next: no c is right.",
    )


@claim("000", "Equation 8", "The variance of the noise on a sum is about 2 k^2 B^2 / epsilon^2")
def _equation_8() -> Found:
    rows = _value("Equation 8", "variance")
    said = ", ".join(f"{row.what.split(': ')[1]}: {row.value:.2f}" for row in rows.itertuples())
    return Found(
        f"true over printed, {said}",
        bool((rows["value"] < 1.1).all()),
        "The noise of Algorithm 3 is that of k + 1. The approximation is for large k, and the "
        "limits in use are small.",
    )


@claim("000", "Equation 9", "k* = sqrt(epsilon c n1 M1 / 2) minimises equation 8")
def _equation_9() -> Found:
    ratio, worse = (
        _value("Equation 9", "minimiser").iloc[0],
        _value("Equation 9", "minimum").iloc[0],
    )
    return Found(
        f"the minimiser is {ratio.value:.3f} times that, in all of {ratio.runs} cases; at the "
        f"printed k equation 8 is {100 * (worse.value - 1):.1f} % above its minimum",
        bool(abs(ratio.value - 1) < 0.01),
        "The derivative of equation 8 is 0 at k^4 = (epsilon c n1 M1)^2 / 2: the 2 belongs under a "
        "fourth root. Harmless, because c is chosen by hand; the package keeps the printed k.",
    )


# Privacy ----------------------------------------------------------------------------------------


def _theorem(level: str, said: str) -> Found:
    rows = table("000_theorems_1_2")
    rows = rows[rows["level"].str.startswith(level)]
    worst = rows.loc[rows["largest ratio"].idxmax()]
    broken = int((rows["largest ratio"] > 1 + 1e-9).sum())
    return Found(
        f"the true epsilon of the sums is above the claimed one in {broken} of {len(rows)} "
        f"settings, up to {worst['largest ratio']:.2f} times ({worst['data']}, {worst['level']}, "
        f"epsilon {worst['epsilon']:g})",
        broken == 0,
        said,
    )


@claim("000", "Theorem 1", "At label level Algorithm 4 satisfies epsilon-label DP")
def _theorem_1() -> Found:
    return _theorem(
        "label",
        "When the smaller arm has too few places, the last in line get fewer than N neighbours, "
        "and one record weighs more than k + 1. It happens at small epsilon, and with k = 1 in "
        "figure 3. The package raises such limits and computes the noise from the weights that "
        "came out.",
    )


@claim("000", "Theorem 2", "At sample level Algorithm 4 satisfies epsilon-sample DP")
def _theorem_2() -> Found:
    return _theorem(
        "sample",
        "As with Theorem 1; at sample level k is nearly always 1 or 2, so neighbours run out in "
        "every setting. The package's version holds (PROOFS, claims 3, 9 and 20).",
    )


@claim("000", "Definition 6", "Neighbouring tables differ by the presence of one record")
def _definition_6() -> Found:
    return Found(
        "appendix C compares tables of the same size that differ in one record",
        False,
        "The proofs replace a record. Flipped treatments and noisy scores are one for each "
        "record, so their number shows the presence of one. The package's guarantee is for "
        "replacing, with n public.",
    )


@claim("000", "Definition 7", "Label DP: tables that differ in one outcome")
def _definition_7() -> Found:
    rows = table("000_theorems_1_2").query("level == 'label' and epsilon >= 0.5")
    return Found(
        f"the exact sensitivity of the sums is at most {rows['largest ratio'].max():.2f} times "
        f"(k + 1) B in {len(rows)} settings in which everybody has N matches",
        bool(rows["largest ratio"].max() <= 1 + 1e-9),
    )


@claim(
    "000", "Lemma 4", "One record moves the weights by at most 2 d / (n lambda) in L1", "appendix"
)
def _lemma_4() -> Found:
    rows = table("000_lemma_4")
    return Found(
        f"at most {rows['largest ratio'].max():.2f} times that over {rows['runs'].sum()} pairs",
        bool(rows["largest ratio"].max() <= 1),
        "For treatments coded -1 and 1 and a penalty on every weight, the intercept's among them. "
        "Corners in [0, 1]^d reach half of the bound.",
    )


@claim("000", "Theorem 3", "Squared error of a sum at most 2((k + 1) B / epsilon)^2 + (R B / N)^2")
def _theorem_3() -> Found:
    rows = table("000_theorem_3")
    worst = rows.loc[((rows["ratio"] - 1) / rows["se"]).idxmax()]
    return Found(
        f"squared error {between(rows['ratio'])} times the bound in {len(rows)} cases (largest se "
        f"{rows['se'].max():.2f})",
        bool(worst["ratio"] - 1 < 3 * worst["se"]),
        "It holds whenever everybody has a match. Where no neighbour is replaced the bound is the "
        "variance of the noise, which is attained.",
    )


@claim("000", "Theorem 3", "R is the sum of max(0, u - k) over the records", "appendix D")
def _theorem_3_count() -> Found:
    rows = table("000_theorem_3")
    return Found(
        f"the bound is {between(rows['printed'])} times as large as with uses beyond k N",
        False,
        "A record may serve k N times, so replaced neighbours are uses beyond k N. The printed R "
        "gives a bound too, far from sharp with N = 5.",
    )


# Tables -----------------------------------------------------------------------------------------


@claim("000", "Table I", "A list of symbols")
def _table_i() -> Found:
    return Found("-", None, "It has no quantity.")


@claim("000", "Table II", "139 + 608, 185 + 260, 858 + 3944 and 489 + 511 records")
def _table_ii() -> Found:
    rows = table("000_table_ii").set_index("data")
    printed = {"IHDP": (139, 608), "Lalonde": (185, 260), "ACIC": (858, 3944)}
    same = all(tuple(rows.loc[k, ["treated", "control"]]) == v for k, v in printed.items())
    ours = ", ".join(f"{k} {int(r.treated)} + {int(r.control)}" for k, r in rows.iterrows())
    return Found(
        ours,
        same,
        "Synth is another draw of the same kind, because its coefficients are not printed. IHDP's "
        "outcome is our own draw of Hill's surface A.",
    )


@claim("000", "Table III", "The time of PrivATE is n d + n log n + n N")
def _table_iii() -> Found:
    rows = table("000_table_iii")
    growth = {
        name: np.polyfit(np.log(part["n"]), np.log(part["s"]), 1)[0]
        for name, part in rows.groupby("matching")
    }
    return Found(
        f"time grows as n^{growth['all pairs']:.1f} by Algorithm 2 as printed, as "
        f"n^{growth['on the line']:.1f} with one sort",
        bool(growth["all pairs"] < 1.5),
        "Algorithm 2 sorts the distances of every record to the whole other arm. Scores lie on a "
        "line, so the stated time can be had; the package has it.",
    )


def _costs(column: str) -> Any:
    return table("000_tables_iv_v").pivot(index="method", columns="data", values=column)


@claim("000", "Table IV", "PrivATE takes less than a second on every data set")
def _table_iv_fast() -> Found:
    cost = _costs("s").loc[OURS]
    return Found(f"at most {cost.to_numpy().max():.2f} s", bool(cost.to_numpy().max() < 1))


@claim("000", "Table IV", "Sample level takes slightly longer than label level")
def _table_iv_levels() -> Found:
    rows = table("000_tables_iv_v").set_index(["method", "data"])
    label, sample = (rows.loc[name] for name in OURS)
    gap = (sample["s"] - label["s"]) / np.hypot(sample["se"], label["se"])
    ratio = sample["s"] / label["s"]
    return Found(
        f"sample over label: {by_data(ratio)}",
        bool((gap > -CLEAR).all() and (gap > CLEAR).any()),
        "Sample level draws noise for every score and every treatment.",
    )


@claim("000", "Table IV", "AIM takes by far the longest")
def _table_iv_aim() -> Found:
    cost = _costs("s")
    ratio = cost.loc["AIM"] / cost.drop(index="AIM").max()
    return Found(
        f"AIM over the slowest other: {by_data(ratio)}",
        bool((ratio > 2).all()),
        "The fit to AIM's tables is ours, in milliseconds. PrivSyn is not measured.",
    )


@claim("000", "Table V", "PrivATE needs the least memory")
def _table_v_least() -> Found:
    cost = _costs("MB")
    own, least = cost.loc[OURS].max(), cost.drop(index=OURS).min()
    said = ", ".join(f"{data} {own[data]:.0f} and {least[data]:.0f}" for data in own.index)
    return Found(
        f"megabytes of the sample level and of the least of the others: {said}",
        bool((own <= least).all()),
        "Nearly all of it is Python and its libraries, there and here. SmoothDPM needs a little "
        "less, as it does on ACIC in the paper's own table.",
    )


@claim("000", "Table V", "AIM needs far more memory than the others")
def _table_v_most() -> Found:
    cost = _costs("MB")
    ratio = cost.loc["AIM"] / cost.drop(index="AIM").max()
    return Found(
        f"AIM over the most of the others: {by_data(ratio)}",
        bool((ratio > 1.2).all()),
        "Two processes; the fit to its tables is ours, and smaller than the library's.",
    )
