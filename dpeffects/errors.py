"""One small tree of errors. Every error a user can cause is one of these."""

import difflib
from collections.abc import Iterable


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


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Return a hint at the nearest of some names, for a message; empty where none is near.

    Examples
    --------
    >>> did_you_mean("lalond", ["lalonde", "star"])
    " Did you mean 'lalonde'?"
    """
    near = difflib.get_close_matches(str(name), list(known), 1)
    return f" Did you mean {near[0]!r}?" if near else ""


def nearest(name: object, known: Iterable[object]) -> str:
    """The same hint for the end of a sentence.

    Examples
    --------
    >>> nearest("agee", ["age", "sex"])
    "; did you mean 'age'?"
    """
    near = difflib.get_close_matches(str(name), [str(other) for other in known], 1)
    return f"; did you mean {near[0]!r}?" if near else ""


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
