"""Effects: estimates with their intervals, and conditional effects.

Differences in differences by period: what was before treatment, and what came after.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from dpeffects.abilities.did import EventStudy
from dpeffects.errors import OptionError
from dpeffects.inference import intervals as inference
from dpeffects.inference.estimate import SHARE, Unavailable
from dpeffects.inference.noisy import ratio_of
from dpeffects.report.plots import style as look
from dpeffects.results.average import Result
from dpeffects.results.conditional import CateEffects, CateFunction
from dpeffects.results.number_format import number
from dpeffects.results.several import SeveralEffects, SubsetEffects
from dpeffects.results.table_results import TableEffects
from dpeffects.results.wording import capital

_THICK: dict[str, Any] = {"color": look.YELLOW, "linewidth": 6.0, "solid_capstyle": "butt"}
_MIDDLE: dict[str, Any] = {"color": look.FILL, "linewidth": 3.5, "solid_capstyle": "butt"}
_COVERED = {"noise": "privacy noise only", "effect": "sampling error, privacy noise and shrinkage"}
ROWS = 60
"""Rows of a picture."""
_NOWHERE = "the distribution of records was not released"
_STRIP = 0.12
"""Part of the height in which bars show where records are."""


@contextmanager
def labelled(
    ax: Any,
    labels: Sequence[str],
    ends: Iterable[Any],
    *,
    below: str,
    title: str = "",
    left: str = "",
    beside: Sequence[tuple[str, ...]] = (),
    warnings: Iterable[str] = (),
    width: float = look.WIDTH,
    **line: Any,
) -> Iterator[Any]:
    """Give axes with a row for each label and its interval; what marks estimates is drawn inside.

    ``beside`` are the texts at the right of the rows, that of their head first.
    """
    with look.canvas(ax, (width, 1.3 + 0.28 * (len(labels) + 1)), warnings) as axes:
        look.rows(axes, list(labels))
        for row, pair in enumerate(ends):
            if not isinstance(pair, Unavailable):
                look.interval(axes, row, *pair, gid="interval", **line)
        yield axes
        look.zero(axes, vertical=True)
        axes.margins(x=0.08)
        if beside:
            axes.set_ylim(top=-1.3)  # room for their head
            look.columns(axes, beside)
        if width > look.WIDTH:  # for numbers beside the rows, which leave less to the axis
            axes.locator_params(axis="x", nbins=6)
        axes.set(xlabel=below, ylabel=left, title=title)


def estimate(
    *fits: Result, conf_level: float = 0.95, ax: Any = None, names: Sequence[str] | None = None
) -> Any:
    """Draw estimates with their confidence intervals; return the axes.

    The thick bar is the interval that sampling error alone would give, the thin line with ends the
    whole interval: what sticks out is the price of privacy. Where the interval allows for possible
    biases too, a bar of middle thickness is what it would be without them. Where no sampling
    variance was released, a dotted line shows how far noise alone can have moved the estimate.

    Parameters
    ----------
    *fits
        Results of `dp_ate`, `dp_att` or `dp_atc`.
    conf_level
        Level of the intervals.
    ax
        Axes to draw on; by default those of a new figure.
    names
        A label for each fit; by default its method and epsilon.

    Examples
    --------
    >>> import matplotlib; matplotlib.use("Agg")
    >>> import dpeffects as dpe
    >>> nsw = dpe.load_data("lalonde")
    >>> fit = dpe.dp_ate("earnings_1978 ~ treatment", nsw, "diff_in_means", epsilon=1)
    >>> estimate(fit, names=["trial"]).get_xlabel()
    'Effect of treatment on earnings_1978 (difference in means, 95% CI)'
    """
    labels = _labels(fits, names)
    about = "difference in means", look.ci(conf_level)
    below = "; ".join(dict.fromkeys(look.effect_axis(fit, *about) for fit in fits))
    warnings = look.with_names(labels, [look.warnings(fit) for fit in fits])
    with labelled(ax, labels, (), below=below, warnings=warnings) as axes:
        kinds = [_interval(axes, row, fit, conf_level) for row, fit in enumerate(fits)]
        _legend(axes, set().union(*kinds), conf_level)
    return axes


def _interval(ax: Any, row: int, fit: Result, conf_level: float) -> set[str]:
    """Draw one estimate; return what a legend has to explain."""
    released = fit.released
    whole = fit.conf_int(conf_level)
    if isinstance(whole, Unavailable):
        noise = inference.noise_interval(released, conf_level)
        kinds = set()
        if not isinstance(noise, Unavailable):
            ax.plot(list(noise), [row, row], color=look.SOFT, linestyle=":", gid="noise")
            kinds = {"noise"}
    else:
        without = replace(released, laplace=(), gaussian=0.0, parts=())
        alone = inference.interval(without, conf_level)
        look.interval(ax, row, *whole, markersize=9.0, markeredgewidth=1.2, gid="whole")
        kinds = {"whole", "sampling"}
        if released.bias_variance > 0.0:
            parts = tuple(part for part in released.parts if part.noise)
            unbiased = inference.interval(replace(released, parts=parts), conf_level)
            ax.plot(list(unbiased), [row, row], gid="with noise", **_MIDDLE)
            kinds = {"whole", "sampling", "with noise"}
        ax.plot(list(alone), [row, row], gid="sampling", **_THICK)
    value = np.nan if ratio_of(released) > 1.0 else fit.estimate
    ax.plot([value], [row], "o", color=look.INK, markersize=5.5, zorder=3, gid="estimate")
    return kinds


def _labels(fits: Sequence[Result], names: Sequence[str] | None) -> list[str]:
    if not fits:
        raise OptionError("there is nothing to draw: give at least one fit")
    if names is None:
        same = len({fit.estimand for fit in fits}) == 1
        return [
            ("" if same else f"{fit.estimand}, ")
            + f"{fit.method}, epsilon {number(float(fit.guarantee.epsilon))}"
            for fit in fits
        ]
    if isinstance(names, str) or len(names) != len(fits):
        raise OptionError(f"names must be a list of {len(fits)} labels, got {names!r}")
    return [str(name) for name in names]


def _legend(ax: Any, kinds: set[str], conf_level: float) -> None:
    from matplotlib.lines import Line2D

    more = ", privacy noise and possible bias" if "with noise" in kinds else " and privacy noise"
    whole = f"{look.ci(conf_level)}: sampling error{more}"
    ends: dict[str, Any] = {"linewidth": 1.2, "marker": "|", "markersize": 9.0}
    entries = {
        "sampling": Line2D([], [], label="Sampling error alone", **_THICK),
        "with noise": Line2D([], [], label="Sampling error and privacy noise", **_MIDDLE),
        "whole": Line2D([], [], color=look.INK, label=whole, **ends),
        "noise": Line2D(
            [], [], color=look.SOFT, linestyle=":", label="Privacy noise alone (no CI)"
        ),
    }
    handles = [entry for kind, entry in entries.items() if kind in kinds]
    if handles:
        look.legend_above(ax, handles)


def curve(
    fit: CateFunction | CateEffects,
    along: str | None = None,
    *,
    at: Mapping[str, Any] | None = None,
    conf_level: float = 0.95,
    covers: str | None = None,
    simultaneous: bool = False,
    ax: Any = None,
) -> Any:
    """Draw conditional effects; return the axes.

    Bars below a function are shares of records, as released. Nine in ten lie between the dotted
    lines; beyond them, where it is pale, the function is known least. It does not follow steps of
    the effect, nor turns sharper than the kernel's bandwidth. Beside effects by group or level are
    the released shares of records. Where none were released the caption says so.

    Parameters
    ----------
    fit
        A `CateFunction`, drawn along one covariate, or `CateEffects`, one interval each.
    along
        Covariate on the axis; by default the first of the formula. For a function only.
    at
        Values of the other covariates; by default their medians or most frequent levels.
    conf_level
        Of the band or of the intervals.
    covers
        "noise" or "effect": what the band covers.
    simultaneous
        Intervals at points or by group that hold for all at once.
    ax
        Axes to draw on; by default those of a new figure.

    Examples
    --------
    >>> import matplotlib; matplotlib.use("Agg")
    >>> import dpeffects as dpe
    >>> data = dpe.simulate("cate_1", n=500, seed=1)
    >>> fit = dpe.dp_cate("outcome ~ treatment | x1 + x2", data, epsilon=1, delta=1e-5)
    >>> curve(fit, "x1").get_xlabel()
    'x1'
    """
    if not isinstance(fit, CateFunction):
        if along is not None or at is not None or covers is not None:
            told = "along, at and covers are for effect functions; these are single effects"
            raise OptionError(told)
        return contrasts(fit, conf_level=conf_level, simultaneous=simultaneous, ax=ax)
    along = along or fit.covariates[0]
    points = fit.curve(along, at=at, conf_level=conf_level, covers=covers)
    found = fit.records(along)
    caption = f"{look.ci(conf_level)}: {_COVERED[points['covers'].iloc[0]]}"
    if at:
        caption += "; at " + ", ".join(f"{name} = {value}" for name, value in at.items())
    if fit.space.is_levels(along):
        shares = None if isinstance(found, Unavailable) else found["share"]
        points = points.rename(columns={"effect": "estimate", along: "term"})
        return _rows(fit, points.assign(share=shares), along, caption, ax)
    with look.canvas(ax, warnings=look.warnings(fit)) as axes:
        x, low, high = points[along], points["conf_low"], points["conf_high"]
        axes.plot(x, points["effect"], color=look.INK, zorder=2)
        axes.fill_between(x, low, high, color=look.PALE, linewidth=0, zorder=1)
        for edge in (low, high):
            axes.plot(x, edge, color=look.SOFT, linewidth=0.6, zorder=1)
        axes.margins(x=0.0)
        look.zero(axes, vertical=False)
        if isinstance(found, Unavailable):
            caption += f"; {_NOWHERE}"
        else:
            caption += ". Bars: distribution of records, 90% of them between the dotted lines"
            _strip(axes, found, fit.quantiles(along, [0.05, 0.95]))
        axes.set(xlabel=along, ylabel=look.effect_axis(fit), title=caption)
    return axes


def _strip(ax: Any, found: Any, most: Any) -> None:
    """Draw where records are: bars below the curve, which is pale where there are few."""
    low, high = ax.get_ylim()
    ax.set_yticks([y for y in ax.get_yticks() if low <= y <= high])
    ax.set_ylim(low - 1.4 * _STRIP * (high - low), high)
    first, last = ax.get_xlim()
    across = ax.get_xaxis_transform()
    for start, end in ((first, most[0]), (most[1], last)):
        ax.axvspan(start, end, color="white", alpha=0.6, linewidth=0, zorder=2.5, gid="few")
    for x in most:
        ax.axvline(x, color=look.SOFT, linestyle=":", linewidth=0.8, zorder=3, gid="records")
    ax.bar(
        found["low"],
        _STRIP * found["share"] / found["share"].max(),
        found["high"] - found["low"],
        align="edge",
        color=look.FILL,
        edgecolor="white",
        linewidth=0.5,
        transform=across,
        zorder=3,
        gid="share",
    )
    ax.set_xlim(first, last)


def contrasts(
    fit: SeveralEffects, *, conf_level: float = 0.95, simultaneous: bool = True, ax: Any = None
) -> Any:
    """Draw effects between more than two arms or in subsets, one interval each; return the axes.

    Parameters
    ----------
    fit
        Result of `dp_ate` where the treatment has more than two levels, or with ``by``.
    conf_level
        Of the intervals.
    simultaneous
        Whether the intervals hold for all contrasts at once.
    ax
        Axes to draw on; by default those of a new figure.

    Examples
    --------
    >>> import matplotlib; matplotlib.use("Agg")
    >>> import dpeffects as dpe
    >>> data = dpe.simulate("three_arms", n=1000, seed=1)
    >>> formula = "outcome ~ treatment | x1"
    >>> contrasts(dpe.dp_ate(formula, data, "private_psm", level="label", epsilon=1)).get_ylabel()
    'Contrast'
    """
    if len({effect.possible for effect in fit.effects} - {None}) > 1:
        told = "these outcomes have different units: draw them by plot(by=...) of the whole study"
        raise OptionError(told)
    points = _told(fit.tidy(conf_level, simultaneous=simultaneous)).assign(share=_shares(fit))
    kind = "privacy noise only" if fit._noise_only else "sampling error and privacy noise"
    caption = f"{_at_once(simultaneous)}{look.ci(conf_level)}: {kind}"
    return _rows(fit, points, capital(fit._named.each), capital(caption), ax)


def _at_once(simultaneous: bool) -> str:
    return "simultaneous " if simultaneous else ""


def _told(table: Any) -> Any:
    """Rows of `tidy` without estimates that are mostly noise: their interval is drawn alone."""
    return table.assign(estimate=table["estimate"].mask(table["noise_ratio"] > 1.0))


def _shares(fit: SeveralEffects) -> list[float] | None:
    """Released shares of records, or what is known of them from released counts."""
    if isinstance(fit, SubsetEffects):
        counts = [fit.details.get(f"records in {label} (noisy)") for label in fit.labels]
        return None if None in counts else [float(str(count)) / fit.n for count in counts]
    found = [effect.details.get(SHARE) for effect in fit.effects]
    return None if None in found else [float(str(share)) for share in found]


def _rows(fit: Any, points: Any, what: str, caption: str, ax: Any, below: str = "") -> Any:
    """Effects with intervals, a row each, and their shares of records where all are known."""
    left, points = len(points[ROWS:]), points[:ROWS]
    middle, low, high = points[["estimate", "conf_low", "conf_high"]].to_numpy(dtype=float).T
    known, places = ~np.isnan(low), np.arange(len(points))
    beside: list[tuple[str, ...]] = []
    if "share" in points and points["share"].notna().all():
        head = "Weight" if getattr(fit, "overlap_weighted", False) else "Records"
        beside = [(text,) for text in (head, *(look.percent(x, ".2g") for x in points["share"]))]
    elif isinstance(fit, CateEffects | CateFunction):
        caption += f"; {_NOWHERE}"
    caption = f"{caption}. The other {left} rows are in tidy()" if left else caption
    about: dict[str, Any] = {"title": caption, "left": what, "beside": beside}
    about |= {"below": below or look.effect_axis(fit), "warnings": look.warnings(fit)}
    labels, ends = points["term"].astype(str).tolist(), zip(low, high, strict=True)
    with labelled(ax, labels, ends, **about) as axes:
        axes.plot(middle[known], places[known], "o", color=look.INK, gid="known")
        axes.plot(middle[~known], places[~known], "o", color=look.INK, mfc="white", gid="unknown")
    return axes


def terms(fit: TableEffects, *, conf_level: float = 0.95, ax: Any = None) -> Any:
    """Draw the numbers of a result that has several, each in a row with its interval.

    Ratios, of which 1 is no effect and not 0, are left out.

    Parameters
    ----------
    fit
        Result of `dp_late` or `dp_rate`.
    conf_level
        Of the intervals.
    ax
        Axes to draw on; by default those of a new figure.
    """
    table = _told(fit.tidy(conf_level)).loc[lambda x: ~x["term"].str.contains("ratio")]
    named = table.assign(term=[fit._in_words(name) for name in table["term"]])
    below = f"Estimate ({look.ci(conf_level)})"
    return _rows(fit, named, "", "", ax, below)


def event_study(
    fit: EventStudy, *, conf_level: float = 0.95, simultaneous: bool = True, ax: Any = None
) -> Any:
    """Draw the difference of each period against the last one before treatment; return the axes.

    That period is a hollow point at zero. Periods before it show whether trends were parallel
    there, and the dashed line is where treatment begins.

    Parameters
    ----------
    fit
        What `dp_did` returned for more than two periods.
    conf_level
        Level of the intervals.
    simultaneous
        Whether they hold for all periods at once.
    ax
        Axes to draw on; by default those of a new figure.

    Examples
    --------
    >>> import matplotlib; matplotlib.use("Agg")
    >>> import dpeffects as dpe
    >>> nsw = dpe.load_data("lalonde")
    >>> before = ["earnings_1974", "earnings_1975"]
    >>> fit = dpe.dp_did("earnings_1978 ~ treatment", nsw, before=before, epsilon=2, seed=1)
    >>> event_study(fit).get_xlabel()
    'Period'
    """
    places = np.delete(np.arange(len(fit.periods)), fit.leads)
    ends = fit.conf_int(conf_level, simultaneous=simultaneous)
    with look.canvas(ax, warnings=look.warnings(fit)) as axes:
        for place, (low, high) in zip(places, ends, strict=True):
            axes.plot(
                [place, place], [low, high], color=look.INK, linewidth=1.2, marker="_", gid="whole"
            )
        axes.plot(places, fit.estimates, "o", color=look.INK, markersize=5.5, gid="estimate")
        hollow = {"markerfacecolor": "white", "markersize": 5.5, "zorder": 3}
        axes.plot([fit.leads], [0.0], "o", color=look.INK, gid="reference", **hollow)
        axes.axvline(fit.leads + 0.5, color=look.SOFT, linestyle="--", linewidth=1.0, gid="start")
        look.zero(axes, vertical=False)
        look.places(axes, list(fit.periods))
        axes.margins(x=0.1)
        at_once = f"{_at_once(simultaneous)}{look.ci(conf_level)}"
        axes.set(xlabel="Period", ylabel=f"Difference in the {fit.outcome} ({at_once})")
    return axes
