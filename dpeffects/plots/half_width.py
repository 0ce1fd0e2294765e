"""What an epsilon buys: the half-width of the interval for each method, before any data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpeffects.errors import OptionError
from dpeffects.plots import look

EPSILONS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


def half_width(
    plan: Any,
    epsilons: Sequence[float] | None = None,
    *,
    what: str = "half_width",
    ax: Any = None,
) -> Any:
    """Draw the planned half-width against epsilon for each method; return the axes.

    Parameters
    ----------
    plan
        A `Plan`.
    epsilons
        Where to rehearse; by default from 0.1 to 10.
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
    'half-width of the 95 % interval, in units of y'
    """
    if what not in ("half_width", "noise_sd"):
        raise OptionError(f'what must be "half_width" or "noise_sd", got {what!r}')
    epsilons = EPSILONS if epsilons is None else epsilons
    found = plan.against(epsilons)
    level = f"{100 * plan.setting.conf_level:g} %"
    label = f"half-width of the {level} interval" if what == "half_width" else "noise sd"
    with look.canvas(ax) as axes:
        for k, (method, part) in enumerate(found.groupby("method", sort=False)):
            style = look.series(k)
            axes.plot(
                part["epsilon"],
                part[what],
                color=style.color,
                linestyle=style.linestyle,
                marker=style.marker,
                label=str(method),
            )
        axes.set_xscale("log")
        axes.set_yscale("log")
        plain_ticks(axes, list(epsilons))
        axes.set_xlabel("epsilon")
        axes.set_ylabel(f"{label}, in units of {plan.outcome}")
        axes.set_title(f"n = {plan.setting.n}, planned without data")
        beside(axes)
    return axes


def plain_ticks(ax: Any, values: list[float]) -> None:
    """Write the given epsilons at the axis, as numbers."""
    from matplotlib.ticker import NullLocator

    shown = sorted(set(values))
    ax.set_xticks(shown, [f"{value:g}" for value in shown])
    ax.xaxis.set_minor_locator(NullLocator())


def beside(ax: Any) -> None:
    """Put the legend beside the picture, where it covers nothing."""
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0)
