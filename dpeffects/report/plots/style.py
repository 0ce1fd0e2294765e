"""The look that all pictures share: ink and paper first, colours that also differ in grey.

The colours are black and Tol's high-contrast set, whose luminances are far apart; series differ by
marker and line too. A picture is drawn inside `canvas`, so the user's rcParams stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from textwrap import wrap
from typing import Any

from dpeffects.errors import MissingExtraError
from dpeffects.guarantee import alarm as alarm

INK, SOFT, PALE = "#000000", "#767676", "#d9d9d9"
BLUE, RED, YELLOW = "#004488", "#bb5566", "#ddaa33"
FILL = "#6699cc"
ALARM = "#a00000"
SMALL = 8.0
_WIDEST = 44
"""Characters in a line of an alarm."""

STYLE: dict[str, Any] = {
    "font.size": 9.0,
    "axes.labelsize": 9.0,
    "axes.titlesize": SMALL,
    "axes.titlelocation": "left",
    "axes.titlepad": 8.0,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": False,
    "axes.axisbelow": True,
    "axes.facecolor": "white",
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "text.color": INK,
    "figure.facecolor": "white",
    "figure.dpi": 110.0,
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "lines.linewidth": 1.4,
    "lines.markersize": 5.0,
    "hatch.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": SMALL,
    "legend.handlelength": 2.6,
    "savefig.bbox": None,
}


@dataclass(frozen=True)
class Series:
    """How one of several lines is drawn."""

    color: str
    linestyle: Any
    marker: str


_COLOURS = (INK, RED, BLUE, YELLOW)
_LINES = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (5, 1.5, 1, 1.5)))
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "*", "p", "h")


def series(index: int) -> Series:
    """Style of the line number ``index``: neighbours differ in colour, line and marker.

    Examples
    --------
    >>> series(0).marker, series(1).marker, series(0).color != series(1).color
    ('o', 's', True)
    """
    line = _LINES[(index + index // len(_COLOURS)) % len(_LINES)]
    return Series(_COLOURS[index % len(_COLOURS)], line, _MARKERS[index % len(_MARKERS)])


@contextmanager
def canvas(ax: Any = None, size: tuple[float, float] = (5.6, 3.6)) -> Iterator[Any]:
    """Give axes in the common look: the user's, or those of a new figure of ``size`` inches."""
    try:
        import matplotlib as mpl
        import matplotlib.pyplot as plt
    except ImportError:
        raise MissingExtraError('plots need matplotlib: pip install "dpeffects[plot]"') from None
    with mpl.rc_context(STYLE):
        if ax is None:
            ax = plt.figure(figsize=size, layout="constrained").add_subplot()
        ax.spines[["top", "right"]].set_visible(False)
        # ticks are made when they are first drawn, so what they look like is fixed here
        ax.tick_params(labelsize=SMALL, length=3.0, width=0.8, color=INK, labelcolor=INK)
        ax.tick_params(which="minor", length=1.5, width=0.6, color=INK)
        yield ax


def zero(ax: Any, *, vertical: bool) -> None:
    """Draw the line of no effect."""
    draw = ax.axvline if vertical else ax.axhline
    draw(0.0, color=SOFT, linewidth=0.8, linestyle=(0, (2, 2)), zorder=0.5)


def legend_above(ax: Any, handles: list[Any], columns: int = 2, **options: Any) -> None:
    """Put a legend above the picture, where it covers nothing."""
    ax.legend(
        handles=handles,
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        ncols=columns,
        borderaxespad=0.2,
        **options,
    )


def rows(ax: Any, labels: list[str]) -> None:
    """Name the rows 0, 1, ... of a picture, the first on top."""
    ax.set_yticks(range(len(labels)), labels)
    ax.set_ylim(len(labels) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0.0)
    ax.spines["left"].set_visible(False)


def alarms(record: Any) -> list[str]:
    """Guarantee and cautions of a record that must stand out."""
    return [text for text in (alarm(record.guarantee.status), record.caution) if text]


def with_names(names: list[str], texts: list[list[str]]) -> list[str]:
    """Texts of several results: once where all have the same, else with their names.

    Examples
    --------
    >>> with_names(["a", "b"], [["late"], ["late"]]), with_names(["a", "b"], [["late"], []])
    (['late'], ['a: late'])
    """
    if all(own == texts[0] for own in texts):
        return texts[0] if texts else []
    return [f"{name}: {text}" for name, own in zip(names, texts, strict=True) for text in own]


def mark(ax: Any, texts: Iterable[str]) -> None:
    """Write texts inside the axes, on room that is made for them: titles do not replace them."""
    lines = [line for text in dict.fromkeys(texts) for line in wrap(text, _WIDEST)]
    if not lines:
        return
    height = ax.get_position().height * ax.figure.get_size_inches()[1]
    _make_room(ax, min(0.5, (0.16 * len(lines) + 0.2) / max(height, 0.5)))
    ax.text(
        0.5,
        0.99,
        "\n".join(lines),
        transform=ax.transAxes,
        ha="center",
        va="top",
        fontsize=9.0,
        fontweight="bold",
        color=ALARM,
        zorder=10,
        gid="dpeffects-alarm",
        bbox={"facecolor": "white", "edgecolor": ALARM, "linewidth": 1.0, "pad": 2.5},
    )


def _make_room(ax: Any, part: float) -> None:
    """Move the upper limit so that the top ``part`` of the axes is empty."""
    to, back = ax.yaxis.get_transform(), ax.yaxis.get_transform().inverted()
    low, high = to.transform(ax.get_ylim())
    ax.set_ylim(top=float(back.transform(low + (high - low) / (1.0 - part))))
