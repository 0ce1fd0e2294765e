"""The non-private estimate, for the curator's eyes only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dpeffects.design import read as design
from dpeffects.errors import OptionError, checked_call
from dpeffects.estimators import get
from dpeffects.formula import parse
from dpeffects.guarantee import KINDS
from dpeffects.results.numbers import to_error


@dataclass(frozen=True)
class Reference:
    """A non-private estimate. Publishing it, or choosing by it, breaks every guarantee."""

    estimand: str
    estimate: float
    std_error: float
    method: str
    formula: str
    n: int

    def __str__(self) -> str:
        value, error = to_error((self.estimate, self.std_error), self.std_error, 3)
        return (
            "*** NOT PRIVATE: for the curator's eyes only, do not publish ***\n"
            f"{self.estimand} by non-private {self.method}: {value} (std. error {error})\n"
            f"{self.formula}, n = {self.n}"
        )

    __repr__ = __str__


@checked_call
def reference(
    formula: str,
    data: Any,
    method: str = "auto",
    *,
    estimand: str = "ATE",
    bounds: Any = None,
    **options: Any,
) -> Reference:
    """Compute what a method would give without privacy: no clipping, no limits, no noise.

    Parameters
    ----------
    formula, data, method
        As in :func:`dp_ate`.
    estimand
        "ATE", "ATT" or "ATC", if the method has it.
    bounds
        Only the levels in it are used.
    **options
        Options of the method; arguments of :func:`dp_ate` without meaning here are ignored, so
        that one call can be swapped for the other.

    Returns
    -------
    Reference

    Examples
    --------
    >>> import dpeffects as dpe
    >>> nsw = dpe.load_data("lalonde")
    >>> round(dpe.reference("earnings_1978 ~ treatment", nsw, "diff_in_means").estimate, 2)
    1794.34
    """
    spec = get(method)
    spec.check_estimand(estimand)
    ignored = {"epsilon", "delta", "level", "shares", "variance", "ledger", "dataset", "seed"}
    ignored |= {KINDS[spec.guarantee].accept, "check_bounds", "means"}
    checked = spec.make_options({k: v for k, v in options.items() if k not in ignored})
    parsed = parse(design.written_out(formula, data, bounds))
    if design.is_lazy(data):
        raise OptionError("the reference needs all rows in memory: collect the lazy frame first")
    table = design.read(data, parsed, bounds, public=("outcome", "covariates", "treatment"))
    assert isinstance(table, design.LoadedTable)
    if (arms := len(table.arm_counts)) > 2:
        raise OptionError(
            f"the reference compares two arms, and {arms} levels of the treatment are declared: "
            "compare two of them, with their rows and names"
        )
    outcome, rows = table.raw()
    estimate, std_error = spec.reference(
        outcome, table.treated, rows, estimand=estimand, **vars(checked)
    )
    return Reference(estimand, estimate, std_error, spec.name, parsed.source, table.design.n)
