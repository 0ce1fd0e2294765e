"""The look that all pictures share: ink and paper first, colours that also differ in grey.

The colours are black and Tol's high-contrast set, whose luminances are far apart; series differ by
marker and line too. A picture is drawn inside `canvas`, so the user's rcParams stay as they are; it
ends by `finish`: text is shown as it is written, and wrapped to the room that there is.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import as_file, files
from textwrap import fill, wrap
from typing import Any

import numpy as np

from dpeffects.errors import MissingExtraError
from dpeffects.guarantee import status_warning as status_warning
from dpeffects.results.number_format import number
from dpeffects.results.wording import capital, relation

INK, SOFT, PALE = "#000000", "#767676", "#d9d9d9"
BLUE, RED, YELLOW = "#004488", "#bb5566", "#ddaa33"
FILL = "#6699cc"
ALARM = "#a00000"
SMALL = 8.0
WIDTH = 6.4
"""Inches: a picture fits a page of text."""
_OURS = "dpeffects"
_LONGEST, _LONG = 33, 20
"""Letters of a name beside a row, and below a place."""
_PLACES, _ALONG = 20, 60
"""Names below places, and the letters that they have together side by side."""
_LETTER, _CAPITAL = 0.6, 0.8
"""Width of a letter over the size of its font, and that of a bold capital."""
_VOIDING = re.compile(r"(?:^|; )([A-Z][A-Z']*(?:,? [A-Z][A-Z']*)+)\b")
"""Warnings that void a reading begin in capitals; a picture shows these words alone."""
_MINUS = re.compile(r"(?<!\w)-(?=[\d.])")

_STYLE = files("dpeffects.report.plots").joinpath("pictures.mplstyle")


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
def canvas(
    ax: Any, size: tuple[float, float] = (WIDTH, 3.8), warnings: Iterable[str] = ()
) -> Iterator[Any]:
    """Give axes in the common look: the user's, or those of a new figure of ``size`` inches.

    When they are drawn on, text is wrapped to the room that there is, with the warnings on top.
    """
    try:
        import matplotlib as mpl
        import matplotlib.pyplot as plt
    except ImportError:
        raise MissingExtraError('plots need matplotlib: pip install "dpeffects[plot]"') from None
    with as_file(_STYLE) as path:
        style = mpl.rc_params_from_file(path, use_default_template=False)
    figure = None
    if ax is None:
        # before the settings are changed: those that a notebook makes with its first figure stay
        own = {"dpi": style["figure.dpi"], "facecolor": style["figure.facecolor"]}
        figure = plt.figure(figsize=size, layout="constrained", **own)
        figure.set_gid(_OURS)
    with mpl.rc_context(style):
        ax = ax if figure is None else figure.add_subplot()
        ax.spines[["top", "right"]].set_visible(False)
        # ticks are made when they are first drawn, so what they look like is fixed here
        ax.tick_params(labelsize=SMALL, length=3.0, width=0.8, color=INK, labelcolor=INK)
        ax.tick_params(which="minor", length=1.5, width=0.6, color=INK)
        yield ax
        _finish(ax, warnings)


def zero(ax: Any, *, vertical: bool) -> None:
    """Draw the line of no effect."""
    draw = ax.axvline if vertical else ax.axhline
    draw(0.0, color=SOFT, linewidth=0.8, linestyle=(0, (2, 2)), zorder=0.5)


def legend_above(ax: Any, handles: list[Any], columns: int = 2, **options: Any) -> None:
    """Put a legend above the picture, where it covers nothing, from the left of its figure on."""
    from matplotlib.transforms import blended_transform_factory

    over = ax.transAxes
    if _ours(ax):
        over = blended_transform_factory(ax.figure.transFigure, ax.transAxes)
    ax.legend(
        handles=handles,
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        bbox_transform=over,
        ncols=columns,
        borderaxespad=0.2,
        **options,
    )


def short(text: Any, longest: int = _LONGEST) -> str:
    """A name in one line; of a long one the beginning and the end.

    Examples
    --------
    >>> short("first   baby"), short("a level that nobody could read in full", 20)
    ('first baby', 'a level that… n full')
    """
    line = re.sub(r"[ \r\n\t]+", " ", str(text)).strip(" \r\n\t")
    last = longest // 3
    return line if len(line) <= longest else f"{line[: longest - last - 2]}… {line[-last:].strip()}"


def rows(ax: Any, labels: list[str], longest: int = _LONGEST) -> None:
    """Name the rows 0, 1, ... of a picture, the first on top."""
    names = [short(label, longest) for label in labels]
    ax.set_yticks(range(len(labels)), names, parse_math=False)
    ax.set_ylim(len(labels) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0.0)
    ax.spines["left"].set_visible(False)


def places(ax: Any, labels: list[Any]) -> None:
    """Name the places 0, 1, ... along a picture: some of many, turned where they are long."""
    step = -(-len(labels) // _PLACES)
    names = [short(label, _LONG) for label in labels[::step]]
    turn: dict[str, Any] = {"rotation": 30, "ha": "right", "rotation_mode": "anchor"}
    crowded = len(names) * max(map(len, names)) > _ALONG
    at = range(0, len(labels), step)
    ax.set_xticks(at, names, parse_math=False, **(turn if crowded else {}))


def interval(ax: Any, row: float, low: float, high: float, **line: Any) -> None:
    """Draw an interval along a row; an end at infinity is an arrow out of the picture."""
    if math.isnan(low) or math.isnan(high):
        return
    how = {"color": INK, "linewidth": 1.2, "marker": "|", "markersize": 7.0} | line
    finite = [x for x in (low, high) if math.isfinite(x)]
    ax.plot(finite, [row] * len(finite), **how)
    edges = [edge for edge, end in enumerate((low, high)) if math.isinf(end)]
    for edge in edges:
        across = ax.get_yaxis_transform()
        ax.annotate(
            "",
            (edge, row),
            (finite[0] if finite else 0.5, row),
            xycoords=across,
            textcoords="data" if finite else across,
            arrowprops={"arrowstyle": "->", "color": how["color"], "shrinkA": 0, "shrinkB": 0},
            gid="endless",
        )


def beside(ax: Any, row: float, text: str, place: float = 8.0, align: str = "left") -> None:
    """Write a text at the right of a row, so many points from the axes."""
    outside(
        ax, minus(text), (1.0, row), ax.get_yaxis_transform(), (place, 0.0), ha=align, va="center"
    )


def lacking(ax: Any, row: float, text: str) -> None:
    """Write what stands in the place of an estimate that is not there."""
    ax.text(0.0, row, text, color=SOFT, fontsize=SMALL, ha="center", va="center")


def columns(ax: Any, texts: Sequence[tuple[str, ...]]) -> None:
    """Write columns of text beside the rows, their heads first."""
    far = np.cumsum([14.0 + 4.4 * max(map(len, column)) for column in zip(*texts, strict=True)])
    for row, (first, *more) in enumerate(texts, -1):
        beside(ax, row, first)
        for edge, text in zip(far[1:], more, strict=True):
            beside(ax, row, text, edge, "right")


def outside(
    ax: Any, text: str, at: tuple[float, float], where: Any, by: tuple[float, float], **how: Any
) -> None:
    """Write a text, which may be outside of the axes, so many points from a place."""
    away = {"xytext": by, "textcoords": "offset points", "annotation_clip": False}
    ax.annotate(text, at, xycoords=where, fontsize=SMALL, **away, **how)


def thousands(ax: Any) -> None:
    """Label large numbers on linear axes with their thousands apart."""
    for axis in (ax.xaxis, ax.yaxis):
        if axis.get_scale() == "linear" and max(map(abs, axis.get_view_interval())) >= 10_000.0:
            plain_numbers(axis)


def plain_numbers(axis: Any) -> None:
    """Label ticks by plain numbers, thousands apart."""
    from matplotlib.ticker import FuncFormatter

    axis.set_major_formatter(FuncFormatter(plain_number))


def plain_number(value: float, _: int = 0) -> str:
    """A number of an axis.

    Examples
    --------
    >>> plain_number(-12500), plain_number(0.25)
    ('−12,500', '0.25')
    """
    return minus(f"{value:,.10g}" if abs(value) >= 10_000.0 else number(value))


def minus(text: str) -> str:
    """A text whose negative numbers have a minus sign, not a hyphen.

    Examples
    --------
    >>> minus("-1.5 (-3 to 0)"), minus("26-50")
    ('−1.5 (−3 to 0)', '26-50')
    """
    return _MINUS.sub("\N{MINUS SIGN}", text)


def ci(conf_level: float) -> str:
    """Name a confidence interval.

    Examples
    --------
    >>> ci(0.95)
    '95% CI'
    """
    return f"{percent(conf_level, 'g')} CI"


def percent(share: float, form: str = ".3g") -> str:
    """A share in per cent, as pictures have it.

    Examples
    --------
    >>> percent(0.25)
    '25%'
    """
    return f"{100.0 * share:{form}}%"


def effect_axis(result: Any, *more: str) -> str:
    """What an axis of effects shows, with what is said of its numbers in brackets."""
    said = f" ({', '.join(filter(None, more))})" if any(more) else ""
    return f"{capital(relation(result))}{said}"


def warnings(record: Any) -> list[str]:
    """The guarantee where it does not hold, and warnings that void a reading, in few words."""
    return [*filter(None, (status_warning(record.guarantee.status), voiding(record.warnings)))]


def voiding(text: str) -> str:
    """First words of the warnings that void a reading.

    Examples
    --------
    >>> voiding("NOT ADJUSTED: for no covariate; few records; WEAK PRIVACY: delta is large")
    'NOT ADJUSTED; WEAK PRIVACY'
    """
    return "; ".join(dict.fromkeys(_VOIDING.findall(text)))


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


def _finish(ax: Any, warnings: Iterable[str]) -> None:
    """Show text as it is written, wrapped to the room that there is, and warnings on top."""
    title, below, left = ax.get_title(loc="left"), ax.get_xlabel(), ax.get_ylabel()

    def write(titles: float = math.inf, across: float = math.inf, up: float = math.inf) -> None:
        ax.set_title(_wrapped(title, titles), loc="left", parse_math="$" not in title)
        ax.set_xlabel(_wrapped(below, across), parse_math="$" not in below)
        ax.set_ylabel(_wrapped(left, up), parse_math="$" not in left)

    write()
    thousands(ax)
    room = ax.bbox
    if _ours(ax):
        ax.figure.draw_without_rendering()  # makes the layout
        room = ax.figure.bbox
    x, y = (sum(ends) / 2.0 for ends in (ax.bbox.intervalx, ax.bbox.intervaly))
    letter = _LETTER * ax.figure.dpi / 72.0
    write(
        (room.x1 - ax.bbox.x0) / (SMALL * letter),
        2.0 * min(x - room.x0, room.x1 - x) / (9.0 * letter),
        2.0 * min(y - room.y0, room.y1 - y) / (9.0 * letter),
    )
    _mark(ax, warnings)


def _ours(ax: Any) -> bool:
    """Whether the figure was made here, for these axes alone."""
    return bool(ax.figure.get_gid() == _OURS)


def _wrapped(text: str, letters: float) -> str:
    """Break the lines of a text where they have more letters."""
    if math.isinf(letters):
        return text
    return "\n".join(fill(line, max(int(letters), 16)) for line in text.split("\n"))


def _mark(ax: Any, texts: Iterable[str]) -> None:
    """Write texts inside the axes, on room that is made for them: titles do not replace them."""
    width, height = ax.bbox.size / ax.figure.dpi
    letters = max(int(72.0 * width / (9.0 * _CAPITAL)), 16)
    lines = [line for text in dict.fromkeys(texts) for line in wrap(text, letters)]
    if not lines:
        return
    needed = 0.16 * len(lines) + 0.15
    if _ours(ax):
        across, high = ax.figure.get_size_inches()
        ax.figure.set_size_inches(across, high + needed)
        height += needed
    _make_room(ax, min(0.6, needed / max(height, 0.5)))
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
        gid="dpeffects-warnings",
        bbox={"facecolor": "white", "edgecolor": ALARM, "linewidth": 1.0, "pad": 2.5},
    )


def _make_room(ax: Any, part: float) -> None:
    """Move the upper limit so that the top ``part`` of the axes is empty, of ticks too."""
    from matplotlib.ticker import FixedLocator

    to, back = ax.yaxis.get_transform(), ax.yaxis.get_transform().inverted()
    low, high = to.transform(ax.get_ylim())
    if not isinstance(ax.yaxis.get_major_locator(), FixedLocator):
        within = [y for y in ax.get_yticks() if min(ax.get_ylim()) <= y <= max(ax.get_ylim())]
        ax.set_yticks(within)
    ax.set_ylim(top=float(back.transform(low + (high - low) / (1.0 - part))))
