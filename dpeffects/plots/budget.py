"""Where the budget went: epsilon by release."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dpeffects.errors import OptionError
from dpeffects.plots import look
from dpeffects.results.numbers import number

if TYPE_CHECKING:
    from dpeffects.results.record import Record


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
    with look.canvas(ax, (5.6, 1.1 + 0.34 * len(parts))) as axes:
        for row, (epsilon, delta) in enumerate(parts.values()):
            axes.barh(row, epsilon, 0.6, color=look.FILL, edgecolor=look.INK, linewidth=0.6)
            text = f" {epsilon:.3g}  ({100 * epsilon / total:.1f} %)"
            if delta:
                text += f", delta {delta:.2g}"
            axes.text(epsilon, row, text, va="center", fontsize=look.SMALL)
        look.rows(axes, list(parts))
        axes.set_xlim(0.0, 1.45 * max(epsilon for epsilon, _ in parts.values()))
        axes.set_xlabel("epsilon")
        axes.set_title(_caption(fit, total))
        look.mark(axes, [look.alarm(fit.guarantee.status)])
    return axes


def _parts(fit: Record) -> dict[str, tuple[float, float]]:
    """Epsilon and delta by charge, in order; the steps of one mechanism are one."""
    found: dict[str, tuple[float, float]] = {}
    for spend in (spend for spend in fit.spends if not spend.covered):
        label = spend.label.split(":")[0]
        name = label if spend.share in label else f"{spend.share}: {label}"
        epsilon, delta = found.get(name, (0.0, 0.0))
        found[name] = (epsilon + spend.epsilon, delta + spend.delta)
    return found


def _caption(fit: Record, total: float) -> str:
    asked = "" if fit.epsilon_asked is None else f" of {number(fit.epsilon_asked)} asked"
    delta = sum(spend.delta for spend in fit.spends)
    spent = f"epsilon {number(float(f'{total:.4g}'))}{asked}"
    return f"Budget of {fit.method}: {spent}, delta {delta:.3g}"
