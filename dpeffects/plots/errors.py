"""Error against epsilon, for simulations and benchmarks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dpeffects.errors import DataError, OptionError
from dpeffects.plots import look
from dpeffects.plots.half_width import beside, plain_ticks

if TYPE_CHECKING:
    import pandas as pd


def errors(
    frame: Any,
    x: str = "epsilon",
    y: str = "error",
    by: str = "method",
    *,
    reference: Any = None,
    reference_name: str = "paper",
    ax: Any = None,
) -> Any:
    """Draw an error against epsilon on logarithmic axes; return the axes.

    Several rows at one epsilon are runs: the line is their median, the whiskers hold the middle
    half of them.

    Parameters
    ----------
    frame
        A frame of any kind with the columns ``x``, ``y`` and ``by``. Where it also has a column
        "guarantee", those that do not hold are named in the picture.
    x, y, by
        Names of the columns; they label the axes.
    reference
        A frame with the columns ``x`` and ``y`` (a paper's figures), or one number.
    reference_name
        Its name in the legend.
    ax
        Axes to draw on; by default those of a new figure.

    Examples
    --------
    >>> import matplotlib; matplotlib.use("Agg")
    >>> import pandas as pd
    >>> runs = pd.DataFrame({"epsilon": [1, 1, 2], "error": [0.2, 0.4, 0.1], "method": "a"})
    >>> errors(runs).lines[0].get_ydata().tolist()
    [0.30000000000000004, 0.1]
    """
    table = _table(frame, [x, y, by], y)
    with look.canvas(ax) as axes:
        for k, (name, part) in enumerate(table.groupby(by, sort=False)):
            _line(axes, k, str(name), part, x, y)
        if reference is not None:
            _reference(axes, reference, reference_name, x, y)
        axes.set_xscale("log")
        axes.set_yscale("log")
        plain_ticks(axes, table[x].tolist())
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        beside(axes)
        if "guarantee" in table.columns:
            found = {str(name): part["guarantee"] for name, part in table.groupby(by, sort=False)}
            look.mark(
                axes, look.with_names(list(found), [_alarms(part) for part in found.values()])
            )
    return axes


def _table(frame: Any, columns: list[str], positive: str) -> pd.DataFrame:
    import narwhals.stable.v2 as nw

    try:
        table: pd.DataFrame = nw.from_native(frame, eager_only=True).to_pandas()
    except TypeError:
        raise DataError(f"a frame is needed, not {type(frame).__name__}") from None
    for name in columns:
        if name not in table.columns:
            raise OptionError(f"the frame has no column {name!r}")
    if not (table[positive] > 0.0).all():
        raise DataError(f"{positive!r} must be positive: the axes are logarithmic")
    return table


def _alarms(statuses: Any) -> list[str]:
    return [text for status in dict.fromkeys(statuses) if (text := look.alarm(str(status)))]


def _line(ax: Any, k: int, name: str, part: pd.DataFrame, x: str, y: str) -> None:
    style, runs = look.series(k), part.groupby(x)[y]
    middle, low, high = runs.median(), runs.quantile(0.25), runs.quantile(0.75)
    color = style.color
    ax.plot(
        middle.index,
        middle.to_numpy(),
        color=color,
        linestyle=style.linestyle,
        marker=style.marker,
        label=name,
    )
    if runs.size().max() > 1:
        ax.vlines(middle.index, low, high, color=color, linewidth=0.9)


def _reference(ax: Any, reference: Any, name: str, x: str, y: str) -> None:
    look_like = {"color": look.SOFT, "linewidth": 1.2, "label": name}
    if isinstance(reference, int | float):
        ax.axhline(float(reference), linestyle=(0, (1, 1)), **look_like)
        return
    table = _table(reference, [x, y], y).sort_values(x)
    ax.plot(table[x], table[y], linestyle=(0, (1, 1)), marker="o", mfc="white", **look_like)
