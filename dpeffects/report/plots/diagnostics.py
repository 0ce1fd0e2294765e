"""Balance of covariates (love plot), overlap of propensity scores, and where the budget went.

An effect and its interval against the bias that confounding may have added.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpeffects.abilities.balance import Balance
from dpeffects.abilities.study import StudyEffects
from dpeffects.errors import OptionError
from dpeffects.inference.estimate import Unavailable
from dpeffects.inference.table_one import WITHIN, variable_name
from dpeffects.report.plots import style as look
from dpeffects.results.number_format import number
from dpeffects.results.result_base import ResultBase
from dpeffects.results.sensitivity import SensitivityAnalysis
from dpeffects.results.table_results import ARMS
from dpeffects.summary import NOISE

_CUSTOMARY = 0.1
"""Differences beyond this are usually called unbalanced."""


_MOST = 30
"""Differences of a love plot."""
_CONTOURS = """ (treated \N{MINUS SIGN} control)
Contours: estimate minus this difference times the effect of the confounder"""
_WIDE, _FAR = 0.6, 5.0
"""Prevalence differences are drawn up to this, effects of a confounder up to so many estimates."""


def love(fit: Balance | StudyEffects, *, most: int | None = _MOST, ax: Any = None) -> Any:
    """Draw standardised mean differences, the largest on top; return the axes.

    One row a covariate. Whiskers hold 95 % of the noise. A filled mark is a difference beyond its
    noise, a hollow one may be nothing but noise. Circles are before, squares after weighting; rows
    are sorted by the size before.

    Parameters
    ----------
    fit
        What `dp_balance` or `dp_study` returned.
    most
        How many covariates are drawn; below the picture is said what the others have. None draws
        all.
    ax
        Axes to draw on; by default those of a new figure.

    Examples
    --------
    >>> import matplotlib; matplotlib.use("Agg")
    >>> import dpeffects as dpe
    >>> data = dpe.simulate("confounded", n=5000, seed=1)
    >>> found = dpe.dp_balance("outcome ~ treatment | x1 + x2", data, epsilon=2)
    >>> sorted(t.get_text() for t in love(found).get_yticklabels())
    ['x1', 'x2']
    """
    if most is not None and (not isinstance(most, int) or most < 1):
        raise OptionError(f"most must be a number from 1 on, or None, got {most!r}")
    found = fit.tidy() if isinstance(fit, Balance) else _of_table1(fit)
    noisy = found["noise_ratio"] > 1.0
    found.loc[noisy, "smd"] = np.nan
    found.loc[found["noise_ratio_adjusted"] > 1.0, "smd_adjusted"] = np.nan
    found["lacks"] = np.where(noisy, NOISE, "n/a")
    order = found["smd"].abs().sort_values(ascending=False, na_position="last", kind="stable")
    found = found.loc[order.index].reset_index(drop=True)
    differences, left = found[:most], found[len(found) if most is None else most :]
    weighted = bool(differences["smd_adjusted"].notna().any())
    arms = fit.sums.arms if isinstance(fit, StudyEffects) else ARMS
    between = "{} \N{MINUS SIGN} {}".format(*arms) if len(arms) == 2 else "largest of any two arms"
    with look.canvas(ax, (look.WIDTH, 1.2 + 0.26 * len(differences)), look.warnings(fit)) as axes:
        axes.axvspan(-_CUSTOMARY, _CUSTOMARY, color="#efefef", linewidth=0, zorder=0)
        look.zero(axes, vertical=True)
        rows, shift = np.arange(len(differences)), 0.16 if weighted else 0.0
        _marks(axes, rows - shift, differences, "", "o", look.INK)
        if weighted:
            _marks(axes, rows + shift, differences, "_adjusted", "s", look.RED)
        for row in rows[differences["smd"].isna().to_numpy()]:
            look.lacking(axes, row, differences["lacks"][row])
        look.rows(axes, differences["term"].tolist())
        low, high = axes.get_xlim()
        axes.set_xlim(min(low, -1.5 * _CUSTOMARY), max(high, 1.5 * _CUSTOMARY))
        about = f"({between})\nWhiskers: 95% of the privacy noise{_rest(left, weighted)}"
        axes.set_xlabel(f"Standardised mean difference {about}")
        _legend(axes, weighted)
    return axes


def _rest(left: Any, weighted: bool) -> str:
    """Number and largest difference of the covariates that are not drawn."""
    if not len(left):
        return ""
    sizes = {"smd": "before", "smd_adjusted": "after"} if weighted else {"smd": ""}
    parts = [f"{left[x].abs().max():.2g} {when}".strip() for x, when in sizes.items()]
    known = [part for part in parts if not part.startswith("nan")]
    most = f", up to {' and '.join(known)}{' weighting' * weighted}" if known else ""
    without = int(left["smd"].isna().sum())
    unknown = f"; {without} not available" if without else ""
    return f"\n{len(left)} more covariates not drawn{most}{unknown}"


def _of_table1(fit: StudyEffects) -> Any:
    """Differences of Table 1 as `Balance.tidy` has them."""
    found = fit.table1()
    if not len(found):
        raise OptionError("this study has no baseline variables: name them after `|`")
    found["term"] = list(map(variable_name, found["variable"], found["level"]))
    names = {
        f"{old}{what}": f"{what[1:] or 'smd'}{new}"
        for old, new in (("smd", ""), ("smd_weighted", "_adjusted"))
        for what in ("", "_noise_sd", "_within_noise", "_noise_ratio")
    }
    return found.rename(columns=names).reindex(columns=["term", *names.values()])


def _marks(ax: Any, rows: Any, differences: Any, which: str, marker: str, color: str) -> None:
    value, sd = (differences[f"{name}{which}"].to_numpy() for name in ("smd", "noise_sd"))
    ax.hlines(rows, value - WITHIN * sd, value + WITHIN * sd, color=color, linewidth=1.0)
    within = np.array([bool(x) for x in differences[f"within_noise{which}"]])
    for part, fill in ((within, "white"), (~within, color)):
        ax.plot(
            value[part],
            rows[part],
            marker,
            color=color,
            mfc=fill,
            gid=f"{'within' if fill == 'white' else 'beyond'}{which}",
        )


def _legend(ax: Any, weighted: bool) -> None:
    from matplotlib.lines import Line2D

    plain: dict[str, Any] = {"linestyle": "", "color": look.INK}
    after = Line2D([], [], label="After weighting", **plain | {"marker": "s", "color": look.RED})
    before = "Before weighting" if weighted else "Unweighted"
    handles = [Line2D([], [], marker="o", label=before, **plain), *[after] * weighted]
    within = "Hollow: within privacy noise"
    handles.append(Line2D([], [], marker="o", mfc="white", label=within, **plain))
    look.legend_above(ax, handles, 3, handlelength=1.0)


def overlap(balance: Balance, *, ax: Any = None) -> Any:
    """Draw the histogram of the propensity score, treated up and controls down; return the axes.

    Bars are shares of an arm's records: of numbers that are possible, not negative, and the closest
    to the released ones. Whiskers hold 95 % of the noise.

    Parameters
    ----------
    balance
        What `dp_balance` returned.
    ax
        Axes to draw on; by default those of a new figure.

    Examples
    --------
    >>> import matplotlib; matplotlib.use("Agg")
    >>> import dpeffects as dpe
    >>> data = dpe.simulate("confounded", n=5000, seed=1)
    >>> found = dpe.dp_balance("outcome ~ treatment | x1 + x2", data, epsilon=2, bins=10)
    >>> len(overlap(found).patches)
    20
    """
    from matplotlib.ticker import FuncFormatter

    if not balance.edges:
        raise OptionError("there is nothing to draw: no histogram of scores was released")
    edges = np.array(balance.edges)
    middle, width = (edges[:-1] + edges[1:]) / 2.0, np.diff(edges)
    treated = balance.treated[0]
    sizes = (max(treated, 1.0), max(balance.n - treated, 1.0))
    fills = ((look.FILL, ""), (look.PALE, "////"))
    with look.canvas(ax, warnings=look.warnings(balance)) as axes:
        arms = zip(("Treated", "Control"), balance.counts, sizes, (1.0, -1.0), fills, strict=True)
        for name, counts, size, side, (color, hatch) in arms:
            share = np.maximum(counts, 0.0) / size
            noise = WITHIN * balance.count_sd / size
            axes.bar(
                middle,
                side * share,
                width,
                color=color,
                hatch=hatch,
                edgecolor="#555555",
                linewidth=0.5,
                label=name,
            )
            ends = side * np.maximum(share - noise, 0.0), side * np.maximum(share + noise, 0.0)
            axes.vlines(middle, *ends, color=look.INK, linewidth=1.1, zorder=3)
        axes.axhline(0.0, color=look.INK, linewidth=0.8)
        axes.set_xlim(0.0, 1.0)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: look.percent(abs(y), "g")))
        axes.set(xlabel="Propensity score", ylabel="Percentage of the records of the arm")
        axes.set_title("Noisy counts, negative ones set to 0. Whiskers: 95% of the privacy noise")
        axes.legend(loc="best")
    return axes


def budget(fit: ResultBase, *, ax: Any = None) -> Any:
    """Draw epsilon by release, with its part of the total and its delta; return the axes.

    Parameters
    ----------
    fit
        Any result with charges.
    ax
        Axes to draw on; by default those of a new figure.

    Examples
    --------
    >>> import matplotlib; matplotlib.use("Agg")
    >>> import dpeffects as dpe
    >>> nsw = dpe.load_data("lalonde")
    >>> fit = dpe.dp_ate("earnings_1978 ~ treatment", nsw, "diff_in_means", epsilon=1)
    >>> [round(float(bar.get_width()), 2) for bar in budget(fit).patches]
    [0.25, 0.55, 0.2]
    """
    parts = _parts(fit)
    if not parts:
        raise OptionError("there is nothing to draw: the result has no charges")
    total = sum(epsilon for epsilon, _ in parts.values())
    warnings = [look.status_warning(fit.guarantee.status)]
    with look.canvas(ax, (look.WIDTH, 1.0 + 0.28 * len(parts)), warnings) as axes:
        for row, (epsilon, delta) in enumerate(parts.values()):
            axes.barh(row, epsilon, 0.6, color=look.FILL, edgecolor=look.INK, linewidth=0.6)
            text = f"{epsilon:.3g} ({look.percent(epsilon / total, '.1f')})"
            if delta:
                text += f", delta {delta:.2g}"
            look.beside(axes, row, text)
        look.rows(axes, list(parts), 48)
        axes.set_xlim(0.0, 1.02 * max(epsilon for epsilon, _ in parts.values()))
        axes.set(xlabel="Epsilon", title=_caption(fit, total))
    return axes


def _parts(fit: ResultBase) -> dict[str, tuple[float, float]]:
    """Epsilon and delta by charge, in order; the steps of one mechanism are one."""
    parts: dict[str, tuple[float, float]] = {}
    for charge in (charge for charge in fit.charges if not charge.covered):
        label = charge.label.split(":")[0]
        name = label if charge.share in label else f"{charge.share}: {label}"
        epsilon, delta = parts.get(name, (0.0, 0.0))
        parts[name] = (epsilon + charge.epsilon, delta + charge.delta)
    return parts


def _caption(fit: ResultBase, total: float) -> str:
    given = fit.epsilon_requested
    asked = "" if given is None else f" of {number(given)} requested"
    delta = sum(charge.delta for charge in fit.charges)
    spent = f"epsilon {number(float(f'{total:.4g}'))}{asked}"
    return f"Privacy budget of {fit.method}: {spent}, delta {delta:.3g}"


def of_balance(
    balance: Balance, kind: str = "love", *, most: int | None = _MOST, ax: Any = None
) -> Any:
    """Draw the differences of a balance, or its scores."""
    if kind not in ("love", "overlap"):
        raise OptionError(f'kind must be "love" or "overlap", got {kind!r}')
    return love(balance, most=most, ax=ax) if kind == "love" else overlap(balance, ax=ax)


def sensitivity(found: SensitivityAnalysis, *, ax: Any = None) -> Any:
    """Draw contours of the estimate, adjusted for a confounder of any strength; return the axes.

    The axes are the strength of a confounder of two values: how much more frequent it is in one arm
    than in the other, and what it adds to the outcome. Their product is its bias. A grey line joins
    the strengths that leave the same adjusted estimate. On the black line that is 0; beyond the red
    one the interval includes 0. A stated confounder is a triangle, a stated bias a blue line.

    Parameters
    ----------
    found
        What ``fit.sensitivity()`` returned.
    ax
        Axes to draw on; by default those of a new figure.

    Examples
    --------
    >>> import matplotlib; matplotlib.use("Agg")
    >>> import dpeffects as dpe
    >>> nsw = dpe.load_data("lalonde")
    >>> fit = dpe.dp_ate("earnings_1978 ~ treatment", nsw, "diff_in_means", epsilon=1)
    >>> sensitivity(fit.sensitivity()).get_ylabel()
    'Effect of the confounder on earnings_1978'
    """
    x, y, stated = _strengths(found)
    adjusted = found.estimate - np.outer(y, x)
    ci = look.ci(found.conf_level)
    lines = {"Adjusted estimate is 0": (0.0, look.INK, "-", "zero")}
    if found.limit == 0.0:
        lines[f"{ci} includes 0 without a confounder"] = (0.0, look.INK, "", "")
    elif not isinstance(found.limit, Unavailable):
        line = found.estimate - found.limit, look.RED, "--", "limit"
        lines[f"{ci} includes 0 beyond this line"] = line
    if found.bias is not None:
        line = found.estimate - found.bias, look.BLUE, ":", "stated"
        lines[f"Stated bias: {_under_bias(found)}"] = line
    with look.canvas(ax, (look.WIDTH, 4.4), look.warnings(found)) as axes:
        ticks = axes.yaxis.get_major_locator().tick_values(adjusted.min(), adjusted.max())
        about = {"colors": look.SOFT, "linewidths": 0.7, "linestyles": "-"}
        grey = axes.contour(x, y, adjusted, ticks[ticks != 0.0], **about)
        axes.clabel(grey, fmt=look.plain_number, fontsize=look.SMALL)
        for label, (level, color, dashes, gid) in lines.items():
            if dashes and adjusted.min() <= level <= adjusted.max():
                drawn = axes.contour(x, y, adjusted, [level], colors=color, linestyles=dashes)
                drawn.set(gid=gid, linewidths=1.6)
            axes.plot([], [], color=color, linestyle=dashes, label=label)
        if stated is not None:
            mark: dict[str, Any] = {"linestyle": "", "color": look.BLUE, "gid": "stated"}
            label = f"Stated confounder: {_under_bias(found)}"
            axes.plot(*stated, marker="^", markersize=7.0, label=label, **mark)
        axes.set(
            xlabel=f"Difference in prevalence of the confounder{_CONTOURS}",
            ylabel=f"Effect of the confounder on {found.outcome}",
        )
        look.legend_above(axes, axes.get_legend_handles_labels()[0])
    return axes


def _strengths(found: SensitivityAnalysis) -> tuple[Any, Any, tuple[float, float] | None]:
    """Prevalence differences and effects of confounders, and those of a stated one, if any.

    They explain the estimate away, and more; none adds more to the outcome than its range.
    """
    size = max(abs(found.estimate), abs(found.stated or 0.0)) or 1.0
    low, high = found.outcome_range or (-math.inf, math.inf)
    most = min(_FAR * size, high - low)
    ends, far, stated = [0.0, math.copysign(most, found.estimate)], _WIDE, None
    if found.prevalence_difference is not None and found.confounder_effect is not None:
        prevalence, effect = abs(found.prevalence_difference), found.confounder_effect
        stated = prevalence, math.copysign(effect, found.stated or 0.0)
        ends, far = [*ends, 1.1 * stated[1]], max(far, min(1.1 * prevalence, 1.0))
    elif found.bias:
        ends.append(math.copysign(most, found.bias))
    far = far if far * most > size else 1.0
    return np.linspace(0.0, far, 201), np.linspace(min(ends), max(ends), 201), stated


def _under_bias(found: SensitivityAnalysis) -> str:
    """Estimate and interval with the stated bias taken off."""
    _, _, value, ends = found.readings()[1]
    if isinstance(ends, Unavailable):
        return f"estimate {found._cells((value,), ())[0]}"
    shown, low, high = found._cells((value,), tuple(ends))
    return look.minus(f"estimate {shown} ({look.ci(found.conf_level)} {low} to {high})")
