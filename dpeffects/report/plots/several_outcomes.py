"""Effects on several outcomes, on all records and by subgroup, one row each (forest plot)."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpeffects.abilities.study import StudyEffects
from dpeffects.errors import OptionError
from dpeffects.lazy import pd
from dpeffects.report.plots import style as look
from dpeffects.report.plots.diagnostics import love
from dpeffects.report.plots.interval_plots import ROWS, labelled
from dpeffects.results.numbers import to_error
from dpeffects.results.words import percent, relation
from dpeffects.summary import printed


def outcomes(
    fit: StudyEffects,
    *,
    conf_level: float = 0.95,
    simultaneous: bool = True,
    by: str | None = None,
    standardised: bool | None = None,
    ax: Any = None,
) -> Any:
    """Draw the effects on all outcomes with their intervals; return the axes.

    The numbers at the right are in units of the outcome. Filled squares are effects on all records,
    hollow circles those in subgroups.

    Parameters
    ----------
    fit
        What `dp_study` returned.
    conf_level
        Level of the intervals.
    simultaneous
        Whether intervals hold for all outcomes at once, and those in subgroups for all of these.
    by
        A factor of subgroups: effects at its levels below those on all records.
    standardised
        Whether effects are drawn over the standard deviation of their outcome within arms, as
        released; by default where outcomes have different ranges.
    ax
        Axes to draw on; by default those of a new figure.

    Examples
    --------
    >>> import matplotlib; matplotlib.use("Agg")
    >>> import dpeffects as dpe
    >>> nsw = dpe.load_data("lalonde")
    >>> fit = dpe.dp_study(
    ...     "earnings_1978 + I(earnings_1978 > 0) ~ treatment", nsw, epsilon=2, design="randomised"
    ... )
    >>> outcomes(fit).get_xlabel()
    'effect of treatment, in standard deviations of the outcome'
    """
    columns = fit.sums.outcomes
    if standardised is None:
        standardised = len({(column.low, column.high) for column in columns}) > 1
    units = [fit.sums.spread(j) if standardised else 1.0 for j in range(len(columns))]
    rows = _rows(fit, conf_level, simultaneous, by)
    left, rows = len(rows[ROWS:]), rows[:ROWS]
    unit = [units[place // len(fit.sums.contrasts)] for place in rows["place"]]
    drawn = rows[["estimate", "conf_low", "conf_high"]].div(unit, axis=0).to_numpy(dtype=float)
    head = f"estimate [{percent(conf_level, 'g')} interval]"
    with labelled(
        ax,
        rows["label"].tolist(),
        drawn[:, 1:],
        below=_axis(fit, standardised),
        title=_caption(conf_level, simultaneous and len(rows) > 1, by, left),
        beside=[(head,), *((_text(row),) for row in rows.to_dict("records"))],
        alarms=look.alarms(fit),
        width=7.0,
        marker="",
    ) as axes:
        _marks(axes, drawn[:, 0], rows["whole"].to_numpy(), rows["noise_ratio"].to_numpy())
        if by is not None:
            _set_apart(axes, rows["whole"].tolist())
    return axes


def _rows(fit: StudyEffects, conf_level: float, simultaneous: bool, by: str | None) -> Any:
    """Effects on all records, each with those at the levels of a factor below it."""
    whole = fit.tidy(conf_level, simultaneous=simultaneous)
    frames = [whole.assign(label=whole["term"].astype(str), whole=True, place=range(len(whole)))]
    if by is not None:
        found = fit.by(by)
        parts = found.tidy(conf_level, simultaneous=simultaneous)
        places = [k % len(whole) for k in range(len(parts))]
        frames.append(parts.assign(label=found.subsets, whole=False, place=places))
    return pd.concat(frames, ignore_index=True).sort_values("place", kind="stable")


def _text(row: Any) -> str:
    """Estimate and interval in units of the outcome."""
    numbers = (row["estimate"], row["conf_low"], row["conf_high"])
    value, low, high = to_error(numbers, row["std_error"])
    return f"{printed(value, row['noise_ratio'])} [{low}, {high}]"


def _marks(ax: Any, values: Any, whole: Any, noise_ratio: Any) -> None:
    """Mark estimates that are not mostly noise: on all records full squares, in subgroups not."""
    ours: dict[str, Any] = {"linestyle": "", "color": look.INK, "gid": "estimate", "zorder": 3}
    places = np.arange(len(values))
    for own, shape in (
        (whole, {"marker": "s", "ms": 6.0}),
        (~whole, {"marker": "o", "mfc": "white"}),
    ):
        shown = own & (noise_ratio <= 1.0)
        ax.plot(values[shown], places[shown], **ours, **shape)
    for place in places[~np.isfinite(values) & ~(noise_ratio > 1.0)]:
        ax.text(0.0, place, "n/a", ha="center", va="center", fontsize=look.SMALL, color=look.SOFT)


def _set_apart(ax: Any, whole: list[bool]) -> None:
    """A line above each outcome, whose name is bold."""
    for place, (first, label) in enumerate(zip(whole, ax.get_yticklabels(), strict=True)):
        if first:
            label.set_fontweight("bold")
            if place:
                ax.axhline(place - 0.5, color=look.PALE, linewidth=0.6, zorder=0.3)


def _axis(fit: StudyEffects, standardised: bool) -> str:
    more = ", in standard deviations of the outcome" if standardised else ""
    if len(fit.outcomes) == 1:
        return f"{relation(fit)}{more}"
    what = "association with" if fit.associated else "effect of"
    return f"{what} {fit.treatment}{more}"


def _caption(conf_level: float, simultaneous: bool, by: str | None, left: int) -> str:
    text = f"{percent(conf_level, 'g')} intervals"
    if simultaneous:
        text += " that hold for all outcomes at once"
        text += f"; those by {by} for all subgroups at once" if by else ""
    return f"{text}. {left} more rows are in tidy()" if left else text


def of_study(
    fit: StudyEffects, *, kind: str = "forest", most: int | None = None, **asked: Any
) -> Any:
    """Draw the effects of a study, or the differences of its Table 1."""
    if kind not in ("forest", "love"):
        raise OptionError(f'kind must be "forest" or "love", got {kind!r}')
    if kind == "love":
        return love(fit, most=most, ax=asked.get("ax"))
    return outcomes(fit, **asked)
