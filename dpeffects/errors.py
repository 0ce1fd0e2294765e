"""One small tree of errors. Every error a user can cause is one of these."""

import difflib
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def shorten(text: str, most: int = 120) -> str:
    """Cut a quotation to a readable length, for a message.

    Examples
    --------
    >>> shorten("cut(x, [0, 1, 2, 3])", 12)
    'cut(x, [0...'
    """
    return text if len(text) <= most else f"{text[: most - 3]}..."


def listed(values: Iterable[object], most: int = 5) -> str:
    """Write the first few of some values, for a message.

    Examples
    --------
    >>> listed(range(7)), listed("ab")
    ('0, 1, 2, 3, 4, ...', 'a, b')
    """
    names = [str(value) for value in values]
    return ", ".join([*names[:most], *(["..."] if len(names) > most else [])])


def quoted(given: object) -> str:
    """Write what a user gave; of a table or a list, which may hold data, only what it is.

    Examples
    --------
    >>> quoted("drop"), quoted([1, 2])
    ("'drop'", 'list')
    """
    plain = given is None or isinstance(given, str | int | float)
    return shorten(repr(given), 60) if plain else type(given).__name__


def closest(name: object, known: Iterable[object], alike: float = 0.6) -> str | None:
    """Return the nearest of some names: but for capitals and signs, by letters, or as a part.

    ``alike`` is how many letters two names share at least, from 0 to 1.

    Examples
    --------
    >>> closest("Age", ["age", "sex"]), closest("psm", ["private_psm"]), closest("z", ["age"])
    ('age', 'private_psm', None)
    """
    names = {_letters(other): str(other) for other in reversed(list(known))}
    asked = _letters(name)
    if asked in names:
        return names[asked]
    if near := difflib.get_close_matches(asked, list(names), 1, alike):
        return names[near[0]]
    parts = [other for other in names if min(len(asked), len(other)) > 2 and asked in other]
    return names[min(parts, key=len)] if parts else None


def spelled(name: object, known: Iterable[str]) -> str:
    """Return the one of some names that a name differs from in spaces alone, or the name.

    Examples
    --------
    >>> spelled("cut(age,[1,2])", ["sex", "cut(age, [1, 2])"])
    'cut(age, [1, 2])'
    """
    names = {"".join(other.split()): other for other in known}
    return str(name) if name in names.values() else names.get("".join(str(name).split()), str(name))


def _letters(name: object) -> str:
    return "".join(x for x in str(name)[:200].casefold() if x.isalnum()) or str(name)[:200]


def did_you_mean(name: object, known: Iterable[object]) -> str:
    """Return a hint at the nearest of some names, for a message; empty where none is near.

    Examples
    --------
    >>> did_you_mean("lalond", ["lalonde", "star"])
    " Did you mean 'lalonde'?"
    """
    near = closest(name, known)
    return f" Did you mean {near!r}?" if near else ""


def nearest(name: object, known: Iterable[object]) -> str:
    """The same hint for the end of a sentence.

    Examples
    --------
    >>> nearest("agee", ["age", "sex"])
    "; did you mean 'age'?"
    """
    near = closest(name, known)
    return f"; did you mean {near!r}?" if near else ""


def not_among(what: str, given: object, known: Iterable[str]) -> str:
    """Say that an argument takes one of a few words, and which one was perhaps meant.

    Examples
    --------
    >>> not_among("level", "lable", ("sample", "label"))
    "level must be one of sample, label, got 'lable'; did you mean 'label'?"
    """
    names = list(known)
    ours = advised("words").get(given.casefold()) if isinstance(given, str) else None
    near = nearest(ours if ours in names else given, names) if isinstance(given, str) else ""
    return f"{what} must be one of {', '.join(names)}, got {quoted(given)}{near}"


@functools.cache
def texts(package: str, name: str) -> dict[str, Any]:
    """Return what a .toml file beside the modules of a package says.

    Examples
    --------
    >>> texts("dpeffects", "advice.toml")["arguments"]["eps privacy_budget budget"]
    'Write epsilon=, such as epsilon=1.'
    """
    import tomllib
    from importlib.resources import files  # also in a wheel that is not unpacked

    return tomllib.loads(files(package).joinpath(name).read_text(encoding="utf-8"))


@functools.cache
def advised(kind: str) -> dict[str, str]:
    """What to write for words of one kind, by word: a table of ``advice.toml``.

    Examples
    --------
    >>> advised("arguments")["eps"]
    'Write epsilon=, such as epsilon=1.'
    """
    told = texts("dpeffects", "advice.toml")[kind]
    return {name: words for names, words in told.items() for name in names.split()}


def refusal(of: str, /, **facts: object) -> str:
    """Return the words of a refusal, with what is the matter in its places.

    Examples
    --------
    >>> refusal("holds_dates", name="day")[:21]
    "column 'day' contains"
    """
    return advised("refusals")[of].format(**facts)


def instead_of(name: str, known: Iterable[str]) -> str:
    """Return what to write for an argument that a call does not have; empty where nobody knows.

    Examples
    --------
    >>> instead_of("desing", ["design", "penalty"]), instead_of("horizon", ["design"])
    (" Did you mean 'design'?", ' It is for dp_survival.')
    """
    word, others = name.casefold().replace(".", "_"), [x for x in known if x != name]
    ours = advised("synonyms").get(word, "")
    words = f"Write {ours}." if ours.partition("=")[0] in others else advised("arguments").get(word)
    return f" {words}" if words else did_you_mean(name, others)


def unknown_option(name: str, method: str, known: Iterable[str], others: Iterable[str]) -> str:
    """Say that a method has no such option, what to write instead, and which options it has.

    Examples
    --------
    >>> print(unknown_option("rct", "auto", ["design"], []))
    auto has no option 'rct'. Write design="randomised". Its options are design.
    """
    names, hint = list(known), instead_of(name, (*known, *others))
    has = f"Its options are {', '.join(names)}." if names else "It has no options."
    return f"{method} has no option {name!r}.{hint} {has}"


def absent(name: str, known: Iterable[str]) -> str:
    """Return what to call in the place of a function that there is not.

    Examples
    --------
    >>> absent("dp_coxph", []), absent("ate", ["dp_ate"])
    (': call dp_survival', "; did you mean 'dp_ate'?")
    """
    words = advised("functions").get(name.casefold().removeprefix("dp_"))
    return f": call {words}" if words else nearest(name, known)


def checked_call(function: Callable[P, R]) -> Callable[P, R]:
    """Answer a call that lacks an argument, or has one too many, in a line that says what to do."""

    @functools.wraps(function)
    def call(*given: P.args, **named: P.kwargs) -> R:
        for data in (*given, *named.values()):
            if answer := getattr(type(data), "answer_call", None):  # an office has the rows
                return answer(data, function, given, named)
        try:
            inspect.signature(function).bind(*given, **named)
        except TypeError:
            raise OptionError(_wrong_call(function, given, named)) from None
        _check_formula(function, given, named)
        return function(*given, **named)

    return call


def _wrong_call(
    function: Callable[..., Any], given: Sequence[object], named: Mapping[str, object]
) -> str:
    """Say what is wrong with the arguments of a call."""
    name = function.__qualname__.removesuffix(".__init__").rpartition(".")[2]
    parameters = inspect.signature(function).parameters
    ordered = [x.name for x in parameters.values() if x.kind is x.POSITIONAL_OR_KEYWORD]
    by_name = [f", as {x.name}=..." for x in parameters.values() if x.kind is x.KEYWORD_ONLY]
    if len(given) > len(ordered):
        first = ", ".join(x for x in ordered if x != "self")
        if len(ordered) == len(parameters):
            return f"{name} takes {first}, and no more"
        return f"{name} takes {first} in this order, and all others by name{''.join(by_name[:1])}"
    wrong = [x for x in named if x not in parameters]
    if wrong and not any(x.kind is x.VAR_KEYWORD for x in parameters.values()):
        hint = instead_of(wrong[0], parameters) or " Leave it out."
        return f"{name} has no argument {wrong[0]!r}.{hint}"
    _check_formula(function, given, named)
    required = [x for x in parameters.values() if x.default is x.empty and "*" not in str(x)]
    lacking = [x.name for x in required if x.name not in {*ordered[: len(given)], *named}]
    for x in wrong:  # those of other packages; where nothing lacks it may be an option of a method
        if advised("synonyms").get(x.casefold(), "").partition("=")[0] in lacking:
            return f"{name} has no argument {x!r}.{instead_of(x, parameters)}"
    if lacking:
        return f"{name} needs {' and '.join(lacking)}: write {lacking[0]}=..."
    return f"{name} got {min(set(ordered[: len(given)]) & set(named))!r} twice: write it once"


def _check_formula(
    function: Callable[..., Any], given: Sequence[object], named: Mapping[str, object]
) -> None:
    """Refuse data in the place of the formula."""
    known = inspect.signature(function).parameters
    first = given[0] if given else named.get("formula", "")
    only_text = [*known][:1] == ["formula"] and known["formula"].annotation in ("str", str)
    if only_text and not isinstance(first, str | None):
        raise FormulaError(refusal("no_formula", kind=type(first).__name__))


class DPEffectsError(Exception):
    """Base of all errors raised on purpose by dpeffects."""


class FormulaError(DPEffectsError, ValueError):
    """The formula cannot be read, or a term is not allowed."""


class DataError(DPEffectsError, ValueError):
    """The data does not fit the formula or the declared bounds."""


class BoundsError(DPEffectsError, ValueError):
    """Bounds or levels are missing, reversed or unusable."""


class OptionError(DPEffectsError, ValueError):
    """An argument or option of a method is unknown or out of range."""


class QuestionError(DPEffectsError, ValueError):
    """A question to the sites of a federation cannot be read."""


class PolicyError(DPEffectsError, ValueError):
    """A site's policy file, or the data behind it, cannot be used."""


class RefusalError(DPEffectsError, RuntimeError):
    """A site will not answer. The message is for the centre and holds nothing of the data."""


class OfficeError(DPEffectsError, RuntimeError):
    """An office cannot be reached, does not accept the token, or sends what cannot be read."""


class PendingError(DPEffectsError, RuntimeError):
    """An office has not answered yet. Asked the same again, it gives its one answer."""


class BudgetError(DPEffectsError, ValueError):
    """The privacy budget is invalid, or what is left does not cover a charge."""


class LedgerError(DPEffectsError, RuntimeError):
    """A ledger's file or server cannot be used as it is. What was refused was not drawn."""


class PrivacyError(DPEffectsError, RuntimeError):
    """Something private was asked for as if it were public."""


class EstimationError(DPEffectsError, RuntimeError):
    """The released values do not allow an estimate. The budget is spent."""


class MissingExtraError(DPEffectsError, ImportError):
    """An optional package is needed; the message names the extra to install."""


class ReleaseError(DPEffectsError, ValueError):
    """A site release cannot be read, trusted or combined with the others."""
