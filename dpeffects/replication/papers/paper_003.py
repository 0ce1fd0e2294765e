"""Verdicts on many sites (papers 002 and 003).

Both versions are judged by the same tables. Rules are compared run by run: each table has the mean
difference from the error of MVAgg with its standard error, and a difference below two of these
counts as none. "In general" and "mostly" are taken as three settings in four.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from dpeffects.replication.papers import stored_tables
from dpeffects.replication.papers.claim_checks import ClaimCheck

_RULES = {"002": ("AggAll", "AggLargest"), "003": ("AggAll", "AggLargest", "IVW")}
"""What MVAgg is compared with: the first version has no inverse-variance weights."""
_MOSTLY = 0.75
table: Callable[[str], Any] = stored_tables.table


# --- algorithms, theorem, lemma ------------------------------------------------------------------


def _check(item: str, words: str) -> Any:
    found = table("003_checks")
    return found[(found["item"] == item) & found["check"].str.contains(words)].iloc[0]


def _smooth_laplace_is_private() -> ClaimCheck:
    rows = table("003_definition_1")
    worst = rows.loc[rows["smooth_laplace"].idxmax()]
    used = rows[rows["epsilon_of_site"] <= 40.0]["smooth_laplace"].max()
    text = (
        f"needs {used:.2g} of its delta at most up to a share of 40 / 3, the paper's largest, and "
        f"{worst['smooth_laplace']:.2g} at {worst['share']:.3g}"
    )
    return ClaimCheck(text, used <= 1.0)


def _local_bound_holds() -> ClaimCheck:
    printed, ours = _check("Theorem 1", "printed"), _check("Theorem 1", "above ours")
    text = (
        f"exceeded by {printed['mismatches']} of {printed['cases']:,} pairs of neighbours; at most "
        f"{printed['ratio']:.2g} of it is reached"
    )
    why = f"Centred outcomes halve it: ours is exceeded by {ours['mismatches']}, and is attained."
    return ClaimCheck(text, printed["mismatches"] == 0, why)


def _released_mean() -> ClaimCheck:
    rows = table("003_lemma_1")
    one = rows[rows["released"] == "S"].iloc[-1]
    text = f"mean {one['mean']:.4f} (se {one['se']:.4f}) for S = 1"
    return ClaimCheck(text, abs(one["mean"] - 1.0) < 3.0 * one["se"])


def _released_square() -> ClaimCheck:
    rows = table("003_lemma_1")
    two = rows[rows["released"] == "S^2"].iloc[-1]
    ours = table("003_lemma_1_package").query("noise == 'gaussian'").iloc[0]
    text = (
        f"mean of S_DP^2 is {two['mean']:.3f} S^2 (se {two['se']:.4f}); in the package "
        f"{ours['mean']:.3f} (se {ours['se']:.3f})"
    )
    why = f"Too large by exp(sigma^2) = {math.exp(two['sigma'] ** 2):.3f}; the package corrects it."
    return ClaimCheck(text, abs(two["mean"] - 1.0) < 3.0 * two["se"], why)


def _gaussian_noise_is_private() -> ClaimCheck:
    rows = table("003_definition_1")
    used = rows[rows["epsilon_of_site"] <= 40.0]
    worst = used.loc[used["gaussian"].idxmax()]
    text = f"needs {worst['gaussian']:.2g} times its delta at a share of {worst['share']:.3g}"
    return ClaimCheck(text, worst["gaussian"] <= 1.0)


def _global_sensitivity() -> ClaimCheck:
    example, most = _check("Proposition 1", "example"), _check("Proposition 1", "above")
    text = (
        f"the printed pairs differ by {example['ratio']:.3g} B; over all data sets of 2 to 4 "
        f"records the largest change is {most['ratio']:.3g} of (1 + 1/N) B"
    )
    return ClaimCheck(text, example["mismatches"] == 0)


def _printed_variance() -> ClaimCheck:
    rows = table("003_appendix_c").set_index("variance")
    printed, ours = rows.loc["printed"], rows.loc["variance within arms of strata"]
    text = (
        f"{printed['mean']:.0f} times the true variance on Synth (se {printed['se']:.2f}); within "
        f"arms of strata {ours['mean']:.3f} (se {ours['se']:.3f})"
    )
    return ClaimCheck(text, abs(printed["mean"] - 1.0) < 0.1)


def _sizes(study: str, why: str) -> ClaimCheck:
    rows = table("003_data").query("data == @study").set_index("count")
    here = rows["ours"].astype(int)
    text = f"{here['n']:,}: {here['treated']:,} treated and {here['control']:,} controls"
    same = here["n"] == int(rows["printed"]["n"])
    return ClaimCheck(text, same, why.format(here.get("without a stroke", 0)))


def _what_leaves_a_site() -> ClaimCheck:
    from dataclasses import fields

    from dpeffects.services.sites import SiteRelease

    text = f"a release has {len(fields(SiteRelease)) + 2} fields, none of them of single records"
    return ClaimCheck(text, True)


# --- figures 6 and 7 -----------------------------------------------------------------------------


def _falls_with_records() -> ClaimCheck:
    rows = table("003_figure_6").query("bound == 'printed'")
    times = rows["records"] * rows["mean"]
    shown = zip(times, rows["records"], strict=True)
    text = "N S is " + ", ".join(f"{value:.0f} at {n:,}" for value, n in shown) + " records"
    settled = abs(times.iloc[-1] / times.iloc[-2] - 1.0) < 0.05
    return ClaimCheck(text, settled and times.iloc[-1] < times.iloc[0])


def _grows_with_imbalance() -> ClaimCheck:
    rows = table("003_figure_7").query("bound == 'printed'")
    mean, se = rows["mean"].to_numpy(), rows["se"].to_numpy()
    apart = np.diff(mean) / np.hypot(se[1:], se[:-1])
    text = f"{rows['mean'].iloc[0]:.3f} at a = 0, {rows['mean'].iloc[-1]:.3f} at a = 4"
    return ClaimCheck(text, apart > 2.0)


def _below_global() -> ClaimCheck:
    rows = table("003_figure_7").query("bound == 'printed'")
    worst = rows.loc[rows["mean"].idxmax()]
    return ClaimCheck(f"at most {worst['mean']:.3f} (se {worst['se']:.4f})", worst["mean"] < 1.0)


# --- errors of the rules -------------------------------------------------------------------------


def _errors(figure: str, algorithm: str = "paper") -> Any:
    """One row a setting, with the columns of each rule."""
    found = table(f"003_figure_{figure}").query("algorithm == @algorithm")
    keys = ["data", "method", "sites", "alpha"]
    values = ["error", "se", "sd", "above_mvagg", "above_se"]
    return found.pivot(index=keys, columns="rule", values=values)


def _beaten(frame: Any, by: tuple[str, ...]) -> Any:
    """Whether MVAgg has a larger error than one of some rules, beyond two standard errors."""
    better = [frame["above_mvagg", r] < -2.0 * frame["above_se", r] for r in by]
    return np.logical_or.reduce(better) if better else None


def _beats(frame: Any, rule: str) -> Any:
    """Whether a rule has a larger error than MVAgg, beyond two standard errors."""
    return frame["above_mvagg", rule] > 2.0 * frame["above_se", rule]


def _alpha(frame: Any, low: float = 0.0, high: float = math.inf) -> Any:
    alpha = frame.index.get_level_values("alpha")
    return frame[(alpha >= low) & (alpha <= high)]


def _generally_best(figure: str, paper: str) -> ClaimCheck:
    frame = _errors(figure)
    beaten = _beaten(frame, _RULES[paper])
    text = f"another rule is better beyond two standard errors in {beaten.sum()} of {len(frame)}"
    who = {r: int(_beaten(frame, (r,)).sum()) for r in _RULES[paper]}
    why = (
        "By " + ", ".join(f"{r} in {k}" for r, k in who.items() if k) + "."
        if any(who.values())
        else ""
    )
    return ClaimCheck(text, beaten.mean() <= 1.0 - _MOSTLY, why)


def _least_spread(figure: str, paper: str) -> ClaimCheck:
    frame = _errors(figure)["sd"]
    others = frame[list(_RULES[paper])].min(axis=1)
    share = (frame["MVAgg"] <= 1.1 * others).mean()
    text = f"within 10 % of the smallest in {100 * share:.0f} % of {len(frame)} settings"
    return ClaimCheck(text, share >= _MOSTLY)


def _falls_with_alpha() -> ClaimCheck:
    frame = _errors("3")
    rises = {}
    for rule in ("MVAgg", "AggAll", "AggLargest", "IVW"):
        error, se = frame["error", rule].to_numpy(), frame["se", rule].to_numpy()
        rises[rule] = int((np.diff(error) > 2.0 * np.hypot(se[1:], se[:-1])).sum())
    text = "steps up beyond two standard errors: "
    text += ", ".join(f"{rule} {count}" for rule, count in rises.items())
    return ClaimCheck(text, not any(rises.values()))


def _all_sites_is_worst() -> ClaimCheck:
    cell = _alpha(_errors("3"), high=1 / 8).iloc[0]
    worst = max(("MVAgg", "AggLargest", "IVW"), key=lambda rule: cell["error", rule])
    text = (
        f"at alpha 1/8 AggAll has {cell['error', 'AggAll'] / cell['error', worst]:.1f} times the "
    )
    text += "next largest error"
    apart = cell["above_mvagg", "AggAll"] > 2.0 * cell["above_se", "AggAll"]
    return ClaimCheck(text, apart and cell["error", "AggAll"] > cell["error", worst])


def _largest_gets_worse() -> ClaimCheck:
    frame = _errors("3")["error"]
    ratio = frame["AggLargest"] / frame["MVAgg"]
    text = f"{ratio.iloc[0]:.1f} times the error of MVAgg at alpha 1/8, {ratio.iloc[-1]:.1f} at 8"
    return ClaimCheck(text, ratio.iloc[-1] > 1.5 * ratio.iloc[0])


def _inverse_variance_at_small_alpha() -> ClaimCheck:
    cell = _alpha(_errors("3"), high=1 / 8).iloc[0]
    more, se = cell["above_mvagg", "IVW"], cell["above_se", "IVW"]
    text = f"at alpha 1/8 IVW has {1.0 + more / cell['error', 'MVAgg']:.2f} times the error of "
    text += f"MVAgg ({more / se:+.1f} standard errors from 1)"
    return ClaimCheck(text, more > 2.0 * se)


def _ratios(alpha: float, rule: str) -> dict[str, float]:
    frame = _alpha(_errors("4"), alpha, alpha)["error"].reset_index(level="sites")
    found = frame.set_index("sites")
    splits = ("1:1:1", "3:2:1", "9:9:2", "18:1:1")
    return {split: found[rule][split] / found["MVAgg"][split] for split in splits}


def _by_split(ratios: dict[str, float]) -> str:
    return ", ".join(f"{split} {ratio:.1f}x" for split, ratio in ratios.items())


def _better_than_others() -> ClaimCheck:
    frame = _errors("4")
    beaten = _beaten(frame, ("AggAll", "AggLargest"))
    text = f"one of these is better than MVAgg beyond two standard errors in {beaten.sum()} of "
    return ClaimCheck(text + f"{len(frame)}", beaten.mean() <= 1.0 - _MOSTLY)


def _gain_on_largest() -> ClaimCheck:
    ratios = _ratios(8.0, "AggLargest")
    text = f"error of AggLargest by that of MVAgg at alpha 8: {_by_split(ratios)}"
    near = ratios["1:1:1"] >= 0.9 * max(ratios.values())
    return ClaimCheck(text, near)


def _gain_on_all() -> ClaimCheck:
    ratios = _ratios(1 / 8, "AggAll")
    text = f"error of AggAll by that of MVAgg at alpha 1/8: {_by_split(ratios)}"
    return ClaimCheck(text, max(ratios, key=lambda split: ratios[split]) == "18:1:1")


def _inverse_variance_at_three_sites() -> ClaimCheck:
    frame = _errors("4")
    better, worse = _beaten(frame, ("IVW",)).sum(), _beats(frame, "IVW").sum()
    text = f"better beyond two standard errors in {better} of {len(frame)}, worse in {worse}"
    return ClaimCheck(text, better > worse)


def _star_large_alpha() -> ClaimCheck:
    frame = _alpha(_errors("5"), low=4.0)
    beaten = _beaten(frame, _RULES["003"])
    text = f"another rule is better beyond two standard errors at {beaten.sum()} of {len(frame)}"
    return ClaimCheck(text + " (alpha 4, 8)", not beaten.any())


def _star_small_alpha() -> ClaimCheck:
    frame = _alpha(_errors("5"), high=0.5)
    better = _beaten(frame, ("IVW",))
    ratio = (frame["error", "MVAgg"] / frame["error", "IVW"]).max()
    text = f"beyond two standard errors at {better.sum()} of {len(frame)}, up to {ratio:.1f} times"
    return ClaimCheck(text, better.sum() >= 2)


# --- observational studies: figures 8 to 11 say the same of each ---------------------------------


def _by_method(figure: str, method: str) -> Any:
    return _errors(figure).xs(method, level="method")


def _outperforms(figure: str) -> ClaimCheck:
    frame = _errors(figure)
    beaten = _beaten(frame, ("AggAll", "AggLargest"))
    counts = {rule: int(_beats(frame, rule).sum()) for rule in ("AggAll", "AggLargest")}
    text = f"MVAgg better than AggAll in {counts['AggAll']} and than AggLargest in "
    text += f"{counts['AggLargest']} of {len(frame)} settings, worse than one in {beaten.sum()}"
    return ClaimCheck(text, beaten.mean() <= 1.0 - _MOSTLY and min(counts.values()) > 0)


def _against_inverse_variance(figure: str, low: float, high: float, best: str) -> ClaimCheck:
    """Compare MVAgg with IVW over a range of alpha."""
    frame = _alpha(_errors(figure), low, high)
    count = {"IVW": int(_beaten(frame, ("IVW",)).sum()), "MVAgg": int(_beats(frame, "IVW").sum())}
    text = f"beyond two standard errors IVW is better in {count['IVW']} and MVAgg in "
    text += f"{count['MVAgg']} of {len(frame)} settings"
    if sum(count.values()) <= 0.1 * len(frame):
        return ClaimCheck(text, None, "So few repeats do not tell the two apart.")
    other = "IVW" if best == "MVAgg" else "MVAgg"
    return ClaimCheck(text, count[best] > count[other])


def _spread_of_all(figure: str) -> ClaimCheck:
    frame = _alpha(_errors(figure), low=4.0)["sd"]
    ratio = frame[["AggAll", "AggLargest"]].min(axis=1) / frame["MVAgg"]
    text = f"alpha 4, 8: AggAll and AggLargest have {ratio.median():.1f} times its standard "
    text += f"deviation in the median setting, {ratio.min():.1f} times at least"
    return ClaimCheck(text, (ratio > 1.0).mean() >= _MOSTLY)


def _smooth_below_global(figure: str) -> ClaimCheck:
    smooth, wide = (_by_method(figure, m)["error"] for m in ("smooth_matching", "global_matching"))
    ratio = wide["MVAgg"] / smooth["MVAgg"]
    text = f"MVAgg has a smaller error by smooth sensitivity in {(ratio > 1.0).sum()} of "
    text += f"{len(ratio)} settings; the errors differ by {ratio.min():.1f} to {ratio.max():.0f} "
    text += f"times, in the median by {ratio.median():.1f} ('much' is taken as 2)"
    much = (ratio > 1.0).mean() >= _MOSTLY and ratio.median() >= 2.0
    return ClaimCheck(text, much)


def _global_is_large(figure: str) -> ClaimCheck:
    rows = _by_method(figure, "global_matching")["error"]
    text = f"up to {rows.max().max():.2f} of the outcome's range; MVAgg up to "
    text += f"{rows['MVAgg'].max():.2f}"
    return ClaimCheck(text, rows.max().max() >= 0.9)


def _smooth_is_small(figure: str, of: tuple[str, ...]) -> ClaimCheck:
    rows = _by_method(figure, "smooth_matching")["error"][list(of)]
    at_most, large = rows.max().max(), _alpha(rows, low=8.0).max().max()
    own = _errors(figure, "package").xs("smooth_matching", level="method")["error"]["MVAgg"]
    ours = f"{own.max():.2f} and {_alpha(own, low=8.0).max():.3f}"
    text = f"at most {at_most:.2f}, and {large:.3f} at alpha 8; the package's own choices {ours}"
    return ClaimCheck(text, at_most < 1.0 and large <= 0.1)
