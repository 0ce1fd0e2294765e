"""Plans: half-widths by epsilon and method."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpeffects.errors import OptionError, quoted
from dpeffects.report.plots import style as look

EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)


def half_width(
    plan: Any, epsilons: Sequence[float] | None = None, *, what: str = "half_width", ax: Any = None
) -> Any:
    """Draw the planned half-width against epsilon for each method; return the axes.

    Parameters
    ----------
    plan
        A `Plan`.
    epsilons
        Epsilons to simulate; by default from 0.1 to 10.
    what
        "half_width" of the interval, or "noise_sd", the standard deviation of the noise.
    ax
        Axes to draw on; by default those of a new figure.

    Examples
    --------
    >>> import matplotlib; matplotlib.use("Agg")
    >>> import dpeffects as dpe
    >>> study = dpe.plan("y ~ t", n=500, epsilon=1, bounds={"y": (0, 1)}, repeats=2,
    ...                  method="diff_in_means")
    >>> half_width(study, [0.5, 2.0]).get_ylabel()
    'Half-width of the 95% CI, in units of y\\n(logarithmic scale)'
    """
    if what not in ("half_width", "noise_sd"):
        raise OptionError(f'what must be "half_width" or "noise_sd", got {quoted(what)}')
    epsilons = EPSILONS if epsilons is None else epsilons
    planned = plan.across(epsilons)
    label = "Standard deviation of the privacy noise"
    if what == "half_width":
        label = f"Half-width of the {look.ci(plan.setting.conf_level)}"
    with look.canvas(ax) as axes:
        for k, (method, part) in enumerate(planned.groupby("method", sort=False)):
            series_line(axes, k, part["epsilon"], part[what], str(method))
        label += f", in units of {plan.outcome} (logarithmic scale)"
        against_epsilon(axes, list(epsilons), "Epsilon", label)
        axes.set_title(f"n = {plan.setting.n}, planned without data")
    return axes


def series_line(ax: Any, k: int, x: Any, y: Any, label: str) -> Any:
    """Draw the line number ``k``."""
    style = look.series(k)
    line = {"color": style.color, "linestyle": style.linestyle, "marker": style.marker}
    return ax.plot(x, y, label=look.short(label), **line)[0]


def against_epsilon(ax: Any, epsilons: list[float], x: str, y: str) -> None:
    """Label logarithmic axes, with the epsilons at theirs as plain numbers, and add a legend."""
    from matplotlib.ticker import NullLocator

    ax.set_xscale("log")
    ax.set_yscale("log")
    values = sorted(set(epsilons))
    ax.set_xticks(values, [f"{value:g}" for value in values])
    ax.xaxis.set_minor_locator(NullLocator())
    plain_ticks(ax.yaxis)
    ax.set(xlabel=x, ylabel=y)
    legend_beside(ax)


def legend_beside(ax: Any) -> None:
    """Put the legend beside the picture, where it covers nothing."""
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0)


def plain_ticks(axis: Any) -> None:
    """Label a logarithmic axis by plain numbers, also at 2 and 5 where there are few decades."""
    from matplotlib.ticker import LogLocator, NullLocator

    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < 200.0 * low else (1.0,)))
    axis.set_minor_locator(NullLocator())
    look.plain_numbers(axis)
