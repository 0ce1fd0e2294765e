"""Balance of covariates (love plot), overlap of propensity scores, and where the budget went.

An effect and its interval against the bias that confounding may have added.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dpeffects.abilities.balance import Balance
from dpeffects.abilities.study import StudyEffects
from dpeffects.errors import OptionError
from dpeffects.inference.estimate import Unavailable
from dpeffects.inference.table_one import WITHIN, variable_name
from dpeffects.report.plots import style as look
from dpeffects.results.numbers import number
from dpeffects.results.record import Record
from dpeffects.results.sensitivity import SensitivityAnalysis
from dpeffects.results.words import percent, relation
from dpeffects.summary import NOISE

_CUSTOMARY = 0.1
"""Differences beyond this are usually called unbalanced."""


_MOST = 30
"""Differences of a love plot."""


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
    between = "treated less control"
    if isinstance(fit, StudyEffects):
        arms = fit.sums.arms
        between = f"{arms[0]} less {arms[1]}" if len(arms) == 2 else "largest between two arms"
    with look.canvas(ax, (look.WIDTH, 1.2 + 0.26 * len(differences)), look.alarms(fit)) as axes:
        axes.axvspan(-_CUSTOMARY, _CUSTOMARY, color="#efefef", linewidth=0, zorder=0)
        look.zero(axes, vertical=True)
        rows, shift = np.arange(len(differences)), 0.16 if weighted else 0.0
        _marks(axes, rows - shift, differences, "", "o", look.INK)
        if weighted:
            _marks(axes, rows + shift, differences, "_adjusted", "s", look.RED)
        for row in rows[differences["smd"].isna().to_numpy()]:
            place: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": look.SMALL}
            axes.text(0.0, row, differences["lacks"][row], color=look.SOFT, **place)
        look.rows(axes, differences["term"].tolist())
        low, high = axes.get_xlim()
        axes.set_xlim(min(low, -1.5 * _CUSTOMARY), max(high, 1.5 * _CUSTOMARY))
        axes.set_xlabel(f"standardised mean difference, {between}{_rest(left, weighted)}")
        _legend(axes, weighted)
    return axes


def _rest(left: Any, weighted: bool) -> str:
    """What is to be said of rows that are not drawn."""
    if not len(left):
        return ""
    sizes = {"smd": "before", "smd_adjusted": "after"} if weighted else {"smd": ""}
    parts = [f"{left[x].abs().max():.2g} {when}".strip() for x, when in sizes.items()]
    known = [part for part in parts if not part.startswith("nan")]
    most = f", up to {' and '.join(known)}{' weighting' * weighted}" if known else ""
    without = int(left["smd"].isna().sum())
    return f"\nand {len(left)} more{most}{f'; {without} not available' if without else ''}"


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
    handles = [Line2D([], [], marker="o", label="before weighting", **plain)]
    if weighted:
        handles.append(
            Line2D([], [], marker="s", linestyle="", color=look.RED, label="after weighting")
        )
    handles.append(Line2D([], [], marker="o", mfc="white", label="within its noise", **plain))
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
    with look.canvas(ax, alarms=look.alarms(balance)) as axes:
        arms = zip(("treated", "control"), balance.counts, sizes, (1.0, -1.0), fills, strict=True)
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
        axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{100 * abs(y):g} %"))
        axes.set(xlabel="propensity score (private model)", ylabel="share of the arm's records")
        axes.set_title("noisy counts, made not negative; whiskers hold 95 % of the noise")
        handles, _ = axes.get_legend_handles_labels()
        axes.legend(handles=handles, loc="best")
    return axes


def budget(fit: Record, *, ax: Any = None) -> Any:
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
    size, alarms = (look.WIDTH, 1.0 + 0.28 * len(parts)), [look.alarm(fit.guarantee.status)]
    with look.canvas(ax, size, alarms) as axes:
        for row, (epsilon, delta) in enumerate(parts.values()):
            axes.barh(row, epsilon, 0.6, color=look.FILL, edgecolor=look.INK, linewidth=0.6)
            text = f"{epsilon:.3g} ({100 * epsilon / total:.1f} %)"
            if delta:
                text += f", delta {delta:.2g}"
            look.beside(axes, row, text)
        look.rows(axes, list(parts), 48)
        axes.set_xlim(0.0, 1.02 * max(epsilon for epsilon, _ in parts.values()))
        axes.set(xlabel="epsilon", title=_caption(fit, total))
    return axes


def _parts(fit: Record) -> dict[str, tuple[float, float]]:
    """Epsilon and delta by charge, in order; the steps of one mechanism are one."""
    parts: dict[str, tuple[float, float]] = {}
    for spend in (spend for spend in fit.spends if not spend.covered):
        label = spend.label.split(":")[0]
        name = label if spend.share in label else f"{spend.share}: {label}"
        epsilon, delta = parts.get(name, (0.0, 0.0))
        parts[name] = (epsilon + spend.epsilon, delta + spend.delta)
    return parts


def _caption(fit: Record, total: float) -> str:
    asked = "" if fit.epsilon_asked is None else f" of {number(fit.epsilon_asked)} asked"
    delta = sum(spend.delta for spend in fit.spends)
    spent = f"epsilon {number(float(f'{total:.4g}'))}{asked}"
    return f"Budget of {fit.method}: {spent}, delta {delta:.3g}"


def of_balance(
    balance: Balance, kind: str = "love", *, most: int | None = _MOST, ax: Any = None
) -> Any:
    """Draw the differences of a balance, or its scores."""
    if kind not in ("love", "overlap"):
        raise OptionError(f'kind must be "love" or "overlap", got {kind!r}')
    return love(balance, most=most, ax=ax) if kind == "love" else overlap(balance, ax=ax)


def sensitivity(found: SensitivityAnalysis, *, ax: Any = None) -> Any:
    """Draw estimate and interval against the bias of confounding; return the axes.

    Dotted lines are the tipping points: biases that move the interval (dense dots), and the
    estimate, to zero. A stated bias is a triangle on the line of the estimate.

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
    >>> sensitivity(fit.sensitivity()).get_xlabel()
    'bias by confounding'
    """
    stated, limit = found.stated, found.limit
    far = 1.5 * max(abs(found.estimate), abs(stated or 0.0)) or 1.0
    sign = np.sign(found.estimate) or 1.0
    ends = sorted([0.0, sign * far, stated or 0.0])
    biases = np.linspace(ends[0], ends[-1], 61)
    intervals = [found.interval(float(bias)) for bias in biases]
    band = [tuple(x) for x in intervals if not isinstance(x, Unavailable)]
    with look.canvas(ax, alarms=look.alarms(found)) as axes:
        if band:
            low, high = zip(*band, strict=True)
            words = f"its {percent(found.conf_level, 'g')} interval"
            fill = {"color": look.PALE, "linewidth": 0, "label": words, "gid": "interval"}
            axes.fill_between(biases, low, high, **fill)
        words = "estimate with this bias taken off"
        axes.plot(biases, found.estimate - biases, color=look.INK, label=words, gid="estimate")
        look.zero(axes, vertical=False)
        tips = {"estimate at zero": (found.estimate, (0, (1, 3)))}
        if not isinstance(limit, Unavailable):
            tips["interval reaches zero"] = limit, (0, (1, 1))
        for words, (tip, dots) in tips.items():
            axes.axvline(tip, color=look.SOFT, linestyle=dots, label=words, gid="tipping")
        if stated is not None:
            at = [stated], [found.estimate - stated]
            axes.plot(*at, "^", color=look.RED, label="stated bias", gid="stated")
        axes.margins(x=0.0)
        axes.set(xlabel="bias by confounding", ylabel=relation(found))
        look.legend_above(axes, axes.get_legend_handles_labels()[0], 3)
    return axes
