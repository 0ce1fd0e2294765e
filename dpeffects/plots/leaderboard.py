"""How far each entry of the leaderboard is from the best."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dpeffects.errors import DataError, OptionError
from dpeffects.plots import look
from dpeffects.plots.half_width import beside

if TYPE_CHECKING:
    import pandas as pd

_NEEDED = ("data", "fit", "epsilon", "guarantee", "level", "error")
_NEAR = 1.1


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
    cells = _at(frame, epsilon)
    names = list(np.exp(np.log(cells["far"]).groupby(cells["label"]).mean()).sort_values().index)
    with look.canvas(ax, (6.4, 0.8 + 0.26 * len(names))) as axes:
        axes.axvspan(1.0, _NEAR, color=look.PALE, linewidth=0.0, zorder=0.2)
        for k, (data, part) in enumerate(cells.groupby("data", sort=False)):
            _marks(axes, k, str(data), part, names)
        axes.set_xscale("log")
        _ticks(axes)
        look.rows(axes, names)
        for row in range(len(names)):
            axes.axhline(row, color=look.PALE, linewidth=0.5, zorder=0.1)
        axes.set_xlabel("median error, over that of the best")
        axes.set_title(f"epsilon = {epsilon:g}")
        beside(axes)
    return axes


def _at(frame: Any, epsilon: float) -> pd.DataFrame:
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


def _ticks(ax: Any) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    low, high = ax.get_xlim()
    ax.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < 200.0 * low else (1.0,)))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.xaxis.set_minor_locator(NullLocator())


def _marks(ax: Any, k: int, data: str, part: pd.DataFrame, names: list[str]) -> None:
    style, rows = look.series(k), [names.index(label) for label in part["label"]]
    full = part["ranked"].to_numpy()
    face = [style.color if ranked else "white" for ranked in full]
    ax.scatter(
        part["far"], rows, marker=style.marker, c=face, edgecolors=style.color, s=26, zorder=3
    )
    look_like = {"color": style.color, "marker": style.marker, "linestyle": "none"}
    ax.plot([], [], label=data, **look_like)
