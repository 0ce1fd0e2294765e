"""How a public call is declared: arguments that calls have in common stand here, once.

    @public_call(OfTables, method="rate")
    def dp_rate(formula, data, *, offset, epsilon, **more: Unpack[OfTables]) -> RateEffects:

Type checkers read `OfTables`. The signature that Python and the shell show has its arguments after
``epsilon``, and the docstring has their words at ``{shared}``. An argument that the call declares
itself has its default from there, and one that its docstring describes its words.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from functools import wraps
from numbers import Integral
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

from dpeffects.errors import OptionError, checked_call
from dpeffects.estimators.spec import MethodSpec
from dpeffects.flow import Estimation
from dpeffects.request import Request

if TYPE_CHECKING:
    from dpeffects.ledgers import Address
    from dpeffects.privacy.ledger import Account

F = TypeVar("F", bound=Callable[..., Any])


class OfLedgers(TypedDict, total=False):
    """Arguments of everything that is paid for; `dp_ate` says what they mean."""

    bounds: Any
    ledger: Account | Address | None
    dataset: str | None
    seed: int | None


class OfSplits(TypedDict, total=False):
    """Where the budget has several parts."""

    budget_split: Mapping[str, float] | None


class OfReleases(OfLedgers, total=False):
    """Arguments of every release of data with rows for records."""

    delta: float
    missing: str | Mapping[str, str]
    weights: str | None
    subset: str | None
    check_bounds: bool | None


class OfUnits(OfReleases, total=False):
    """The same where several rows may be one person's."""

    unit: str | None
    max_rows: int | None


class OfAdjustment(OfSplits, total=False):
    """The same where arms are compared, with covariates or without."""

    design: str
    on_unadjusted: str
    adjust: bool | None
    model_share: float | None


class OfTables(OfUnits, OfAdjustment, total=False):
    """Arguments of calls that compare the tables of two arms, and the options that they share."""

    estimand: str
    level: str | None
    flexible: int | None


_ORDER = (
    *("delta", "estimand", "design", "level", "bounds", "budget_split", "variance", "unit"),
    *("max_rows", "cluster", "clusters", "missing", "weights", "subset", "contrasts"),
    *("check_bounds", "ledger", "dataset", "seed"),
)
"""Arguments in the order of signatures. All others are options of a method."""
_COUNTING = {*_ORDER[_ORDER.index("unit") :]} - {"contrasts", "ledger", "dataset", "seed"}
"""Those that say which rows count."""
_DEFAULTS = {"delta": 0.0, "estimand": "ATE", "design": "observational", "missing": "error"}
_DEFAULTS |= {"variance": True, "contrasts": "reference"}
_WORDS = {
    "estimand": '"ATE", "ATT" or "ATC": who is compared, where covariates are adjusted for.',
    "design": '"randomised" where treatment was assigned by chance, "observational" where not.',
}
"""What is said of arguments that :func:`dp_ate` does not have."""
_AS_IN = "As in :func:`dp_ate`."
_OPTIONS = 'Options of the method; ``print(dpe.methods("{}"))`` describes them.'


def public_call(
    arguments: type, *, method: str = "", options: bool = True, after: str = "epsilon", **shell: Any
) -> Callable[[F], F]:
    """Declare a public call that has some ``arguments`` in common with others.

    ``method`` is the one whose ``options`` it takes, where there is one only. Shared arguments
    stand ``after`` one of its own in the signature. ``shell`` is what differs in its command:
    ``plot`` and ``conf_level``, as in `cli.output.add_output_arguments`, and settings of arguments
    by their names. Examples of it stand at the end of the docstring.
    """

    def declare(function: F) -> F:
        own = inspect.signature(function).parameters
        types = arguments.__annotations__
        shared = {
            name: inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=_DEFAULTS.get(name),
                annotation=types[name].__forward_arg__,
            )
            for name in _ORDER
            if name in types and name not in own
        }

        @wraps(function)
        def call(*given: Any, **named: Any) -> Any:
            return function(*given, **{name: x.default for name, x in shared.items()} | named)

        made: Any = call
        made.__signature__ = _signature(function, shared, after, options)
        words = _OPTIONS.format(method) if method else _AS_IN
        entries = {"**options": words} if options else {}
        made.__doc__ = _documented(inspect.cleandoc(function.__doc__ or ""), shared, entries)
        output = {name: shell.pop(name) for name in ("plot", "conf_level") if name in shell}
        made.shell = {"changes": shell, "output": output}
        return checked_call(made)  # type: ignore[return-value]

    return declare


def _signature(
    function: Callable[..., Any], shared: Mapping[str, inspect.Parameter], after: str, options: bool
) -> inspect.Signature:
    """The signature with shared arguments after one of its own, and with options."""
    signature = inspect.signature(function)
    own = dict(signature.parameters)
    own.pop("more")
    first = list(own)[: list(own).index(after) + 1]
    names = [name for name in _ORDER if name in shared or (name in own and name not in first)]
    last = [name for name in own if name not in (*first, *names)]
    found = [own.get(name) or shared[name] for name in (*first, *names, *last)]
    if options:
        found.append(inspect.Parameter("options", inspect.Parameter.VAR_KEYWORD, annotation=Any))
    return signature.replace(parameters=found)


def _documented(text: str, shared: Iterable[str], last: Mapping[str, str]) -> str:
    """A docstring with the words of shared arguments, but for those that it describes itself."""
    described = re.findall(r"^(\w.*)\n ", text, re.MULTILINE)
    told = {name for names in described for name in names.split(", ")}
    names = [name for name in ("data", "epsilon", *shared) if name not in told]
    as_in = [name for name in names if name not in _WORDS]
    entries = {name: _WORDS[name] for name in names if name in _WORDS}
    for counting in (False, True):
        group = [name for name in as_in if (name in _COUNTING) is counting]
        entries[", ".join(group)] = _AS_IN
    lines = [f"{name}\n    {words}" for name, words in {**entries, **last}.items() if name]
    return text.replace("{shared}", "\n".join(lines))


def released(spec: MethodSpec, given: Mapping[str, Any], estimand: str = "ATE") -> Any:
    """The result of a call with these arguments, by the one method that it has."""
    arguments = {**given, **given["more"]}
    del arguments["more"]
    if "method" in arguments:
        raise OptionError("method cannot be set here: leave it out")
    for option in fields(spec.options):
        if "tuple" in str(option.type) and option.name in arguments:
            arguments[option.name] = _plain(arguments[option.name])
    estimand = arguments.pop("estimand", estimand)
    return Estimation(Request.of_effect(estimand, method=spec, **arguments)).result()


def _plain(given: Any) -> Any:
    """A whole number, or a tuple of numbers, whatever sequence has them."""
    if isinstance(given, Integral) and not isinstance(given, bool):
        return int(given)
    return tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else given
