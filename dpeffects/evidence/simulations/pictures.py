"""Simulation studies and the leaderboard: errors by epsilon and method."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpeffects.errors import DataError, OptionError
from dpeffects.lazy import pd
from dpeffects.report.plots import style as look
from dpeffects.services.planning.planned_plot import (
    against_epsilon,
    legend_beside,
    plain_ticks,
    series_line,
)

_NEEDED = ("data", "fit", "epsilon", "guarantee", "level", "error")
_NEAR = 1.1


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
    warnings: dict[str, list[str]] = {}
    if "guarantee" in table.columns:
        groups = table.groupby(by, sort=False)["guarantee"]
        warnings = {str(name): _warnings(statuses) for name, statuses in groups}
    marks = look.with_names(list(warnings), list(warnings.values()))
    with look.canvas(ax, warnings=marks) as axes:
        for k, (name, part) in enumerate(table.groupby(by, sort=False)):
            _line(axes, k, str(name), part, x, y)
        if reference is not None:
            _reference(axes, reference, reference_name, x, y)
        against_epsilon(axes, table[x].tolist(), x, y)
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


def _warnings(statuses: Any) -> list[str]:
    return [
        text for status in dict.fromkeys(statuses) if (text := look.status_warning(str(status)))
    ]


def _line(ax: Any, k: int, name: str, part: pd.DataFrame, x: str, y: str) -> None:
    runs = part.groupby(x)[y]
    middle, low, high = runs.median(), runs.quantile(0.25), runs.quantile(0.75)
    line = series_line(ax, k, middle.index, middle.to_numpy(), name)
    if runs.size().max() > 1:
        ax.vlines(middle.index, low, high, color=line.get_color(), linewidth=0.9)


def _reference(ax: Any, reference: Any, name: str, x: str, y: str) -> None:
    grey = {"color": look.SOFT, "linewidth": 1.2, "linestyle": (0, (1, 1))}
    grey["label"] = look.short(name)
    if isinstance(reference, int | float):
        ax.axhline(float(reference), **grey)
        return
    table = _table(reference, [x, y], y).sort_values(x)
    ax.plot(table[x], table[y], marker="o", mfc="white", **grey)


def leaderboard(frame: Any, epsilon: float = 1.0, *, ax: Any = None) -> Any:
    """Draw the error of each entry over that of the best on the same data; return the axes.

    One row an entry, one mark a data set, on a logarithmic axis. Full marks are ranked: records are
    protected with a proved guarantee. Hollow ones are not, and their names say why. The grey band
    is within 10 % of the best.

    Parameters
    ----------
    frame
        What ``tidy()`` of a leaderboard gives.
    epsilon
        Which one; what does not depend on epsilon is always drawn.
    ax
        Axes to draw on; by default those of a new figure.

    Examples
    --------
    >>> import matplotlib; matplotlib.use("Agg")
    >>> import pandas as pd
    >>> cells = pd.DataFrame({"fit": ["a", "b"], "error": [0.1, 0.3]}).assign(
    ...     data="lalonde", epsilon=1.0, guarantee="exact", level="sample")
    >>> [text.get_text() for text in leaderboard(cells).get_yticklabels()]
    ['a', 'b']
    """
    cells = _at_epsilon(frame, epsilon)
    names = list(np.exp(np.log(cells["far"]).groupby(cells["label"]).mean()).sort_values().index)
    with look.canvas(ax, (look.WIDTH, 0.8 + 0.26 * len(names))) as axes:
        axes.axvspan(1.0, _NEAR, color=look.PALE, linewidth=0.0, zorder=0.2)
        for k, (data, part) in enumerate(cells.groupby("data", sort=False)):
            _marks(axes, k, str(data), part, names)
        axes.set_xscale("log")
        plain_ticks(axes.xaxis)
        look.rows(axes, names)
        for row in range(len(names)):
            axes.axhline(row, color=look.PALE, linewidth=0.5, zorder=0.1)
        axes.set(xlabel="Median error relative to the best method", title=f"Epsilon {epsilon:g}")
        legend_beside(axes)
    return axes


def _at_epsilon(frame: Any, epsilon: float) -> pd.DataFrame:
    """Return the cells of one epsilon with their distance from the best on the same data."""
    missing = [name for name in _NEEDED if name not in getattr(frame, "columns", ())]
    if missing:
        raise DataError(f"a leaderboard's tidy() is needed: there is no column {missing[0]!r}")
    cells: pd.DataFrame = frame[(frame["epsilon"] == epsilon) | np.isinf(frame["epsilon"])].copy()
    cells["ranked"] = (cells["guarantee"] == "exact") & (cells["level"] == "sample")
    if not cells["ranked"].any():
        raise OptionError(f"nothing ranked was run at epsilon {epsilon:g}")
    best = cells[cells["ranked"]].groupby("data")["error"].min()
    cells["far"] = cells["error"] / cells["data"].map(best)
    cells["label"] = [_label(cell) for cell in cells.itertuples()]
    cells = cells[np.isfinite(cells["far"]) & (cells["far"] > 0.0)]
    if cells.empty:
        raise OptionError(f"nothing ranked was run at epsilon {epsilon:g}")
    return cells


def _label(cell: Any) -> str:
    if cell.ranked:
        return str(cell.fit)
    why = {"none": "not private", "exact": f"{cell.level} level"}
    return f"{cell.fit} ({why.get(cell.guarantee, cell.guarantee)})"


def _marks(ax: Any, k: int, data: str, part: pd.DataFrame, names: list[str]) -> None:
    style, rows = look.series(k), [names.index(label) for label in part["label"]]
    full = part["ranked"].to_numpy()
    face = [style.color if ranked else "white" for ranked in full]
    ax.scatter(
        part["far"], rows, marker=style.marker, c=face, edgecolors=style.color, s=26, zorder=3
    )
    ax.plot([], [], label=data, color=style.color, marker=style.marker, linestyle="none")
