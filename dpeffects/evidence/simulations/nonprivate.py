"""The same estimate without noise, for the curator's eyes only."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

from dpeffects import abilities, effects
from dpeffects.arrays import BoolArray, IntArray
from dpeffects.errors import OptionError, checked_call, not_among
from dpeffects.estimands import AVERAGES
from dpeffects.estimators import default_learner, get
from dpeffects.guarantee import KINDS
from dpeffects.inference.estimate import ArmMeans, Estimate, Unavailable
from dpeffects.privacy.ladder import Ladder
from dpeffects.results.number_format import to_error
from dpeffects.seeded import SeededNoise

_CALLS = abilities.calls() | {
    name: call for name, call in vars(effects).items() if name.startswith("dp_")
}
_UNLIMITED = 1e9
"""The largest epsilon there is: a method makes every choice as if it could afford anything."""


class NoNoise(SeededNoise):
    """What is released is what is there; only the order of the records is drawn, from a seed."""

    void = ("no noise was added",)

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.description = f"none (records in an order of seed {seed})"

    def laplace(self, values: IntArray, *scale: float) -> IntArray:
        """The values themselves, for all kinds of noise."""
        return values.copy()

    gaussian = matrices = cubes = respond = laplace  # type: ignore[assignment]

    def along(self, ladder: Ladder) -> int:
        """The value itself, on its grid."""
        return ladder.place

    def flip(self, bits: BoolArray, epsilon: float) -> BoolArray:
        """The bits themselves."""
        return bits.copy()


@dataclass(frozen=True)
class Reference:
    """An estimate without noise. Publishing it, or choosing by it, breaks every guarantee.

    ``std_error`` is that of sampling alone. ``fit`` is what the private call returns, made without
    noise: what it has, such as ``conf_int()``, ``effect("ratio")`` or curves, the reference has
    too, and says that its guarantee is void.
    """

    estimand: str
    estimate: float | Unavailable
    std_error: float | Unavailable
    method: str
    formula: str
    n: int
    fit: Any = field(compare=False)

    def __getattr__(self, name: str) -> Any:
        if name == "fit" or name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.fit, name)

    def __str__(self) -> str:
        told = f"{self.estimand} by non-private {self.method}: "
        if isinstance(self.estimate, Unavailable) or isinstance(self.std_error, Unavailable):
            table = self.tidy()
            kept = [x for x in table if x not in ("outcome", "estimand", "method", "guarantee")]
            told += f"\n{table[kept].to_string(index=False)}"
        else:
            value, error = to_error((self.estimate, self.std_error), self.std_error, 3)
            told += f"{value} (std. error {error})"
        return (
            "*** NOT PRIVATE: for the curator's eyes only, do not publish ***\n"
            f"{told}\n{self.formula}, n = {self.n}"
        )

    __repr__ = __str__


@checked_call
def reference(
    formula: str,
    data: Any,
    method: str | None = None,
    *,
    call: str = "dp_ate",
    estimand: str | None = None,
    seed: int = 0,
    **arguments: Any,
) -> Reference:
    """Compute what a call would give without noise, and with all the budget in the world.

    It is the same call on the same rows: values are clipped to the bounds, records count by
    weights, units, subsets and missing values as they do there.

    Parameters
    ----------
    formula, data, method
        As in :func:`dp_ate`, or in the function that ``call`` names.
    call
        The function whose estimate is wanted: "dp_qte", "dp_survival", "dp_study" and so on.
    estimand
        "ATE", "ATT" or "ATC", if the method has it.
    seed
        For methods that put the records in a secret order: which order.
    **arguments
        All other arguments of the function. A budget, shares of it and a ledger may stand among
        them, so that one call can be swapped for the other: nothing is spent.

    Returns
    -------
    Reference

    Examples
    --------
    >>> import dpeffects as dpe
    >>> nsw = dpe.load_data("lalonde")
    >>> formula, wide = "earnings_1978 ~ treatment", {"earnings_1978": (0, 100_000)}
    >>> round(dpe.reference(formula, nsw, "diff_in_means").estimate, 2)  # 40,000 at most, declared
    1684.57
    >>> round(dpe.reference(formula, nsw, "diff_in_means", bounds=wide).estimate, 2)
    1794.34
    >>> median = dpe.reference(formula, nsw, call="dp_qte", quantiles=0.5)
    >>> median.tidy()["term"].tolist()
    ['quantile 0.5']
    """
    if estimand is not None and call == "dp_ate":
        if estimand not in AVERAGES:
            raise OptionError(not_among("estimand", estimand, AVERAGES))
        call = f"dp_{estimand.lower()}"
    elif estimand is not None:
        arguments["estimand"] = estimand
    if call not in _CALLS:
        raise OptionError(not_among("call", call, sorted(_CALLS)))
    arguments |= _of_method(call, method, arguments)
    arguments = {
        k: x for k, x in arguments.items() if k not in ("ledger", "dataset", "budget_split")
    }
    arguments |= {"epsilon": _UNLIMITED, "seed": NoNoise(seed)}
    fit = _sampled(_CALLS[call](formula, data, **arguments))
    several = Unavailable("there are several: tidy() has them")
    value, error = (getattr(fit, name, several) for name in ("estimate", "std_error"))
    return Reference(fit.estimand, value, error, fit.method, fit.formula, fit.n, fit)


def _of_method(call: str, method: str | None, given: dict[str, Any]) -> dict[str, Any]:
    """What a method needs to run at all; nothing is spent or published, so all is accepted."""
    default = default_learner(given.get("release", "")) if call == "dp_cate" else "auto"
    if "method" not in inspect.signature(_CALLS[call]).parameters:
        return {} if method is None else {"method": method}
    spec = get(method or default, "CATE" if call == "dp_cate" else "ATE")
    if spec.guarantee == "library":
        raise OptionError(f"{spec.name}: a library draws its noise, and cannot leave it out")
    accept = KINDS[spec.guarantee].accept
    needed = {"delta": given.get("delta") or 1e-6} if spec.needs_delta else {}
    return {"method": method or default, **needed, **({accept: True} if accept else {})}


def _sampled(found: Any) -> Any:
    """A result whose intervals allow for nothing but the error of sampling."""
    if isinstance(found, tuple):
        return tuple(map(_sampled, found)) if type(found) is tuple else found
    if not is_dataclass(found) or isinstance(found, type):
        return found
    own = {f.name: getattr(found, f.name) for f in fields(found) if f.init}
    made = {name: _sampled(x) for name, x in own.items()}
    if isinstance(found, Estimate | ArmMeans):
        made["parts"] = ()
    if "confounding" in own:
        made["confounding"] = 0.0 if isinstance(own["confounding"], float) else None
    changed = {name: x for name, x in made.items() if x is not own[name]}
    return replace(found, **changed) if changed else found
