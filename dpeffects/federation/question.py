"""What the centre asks: plain values, read strictly, never run."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any, NoReturn

from dpeffects.errors import BudgetError, FormulaError, QuestionError, ReleaseError
from dpeffects.estimands import AVERAGES
from dpeffects.formula import Formula, parse
from dpeffects.privacy.budget import Budget
from dpeffects.sites import document
from dpeffects.sites.rules import RULES

Scalar = str | int | float | bool | None

ESTIMANDS = AVERAGES
MAX_LENGTH = 65_536
MAX_FORMULA = 4_000
MAX_VALUES = 200
MAX_OPTIONS = 30
MAX_TEXT = 200
MAX_WHOLE = 2**53
MAX_DEADLINE = 86_400.0
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,99}")
_OPTION = re.compile(r"[a-z][a-z0-9_]{0,49}")
_SITES_OWN = frozenset(
    {"seed", "bounds", "ledger", "shares", "data", "site", "request", "variance"}
)
"""Arguments of `dp_ate` that a question may not set; those it asks for are fields, not options."""


@dataclass(frozen=True)
class Question:
    """One question to all sites.

    Parameters
    ----------
    request
        Identifies the question. A site answers an identifier once; asked again it sends the same
        release, so that a lost reply costs nothing.
    formula, epsilon, method, estimand, delta
        As in :func:`dpeffects.dp_ate`. A site may answer with a smaller epsilon, or refuse.
    rule
        How the centre combines the releases.
    options
        Options of the method, and "level"; JSON scalars only. Bounds and seeds are the site's.
    deadline
        Seconds from sending after which an answer is late.

    Examples
    --------
    >>> question = Question("study-1", "y ~ t", epsilon=1, method="diff_in_means")
    >>> Question.from_json(question.to_json()) == question
    True
    """

    request: str
    formula: str
    epsilon: float
    method: str = "private_aipw"
    estimand: str = "ATE"
    delta: float = 0.0
    rule: str = "mvagg"
    options: Mapping[str, Scalar] = field(default_factory=dict)
    deadline: float = 60.0

    def __post_init__(self) -> None:
        check_name("request", self.request)
        for name in ("formula", "method", "estimand", "rule"):
            if not isinstance(getattr(self, name), str):
                _refuse(f"{name} must be text, not {document.kind(getattr(self, name))}")
        for name, known in (("estimand", ESTIMANDS), ("rule", RULES)):
            if getattr(self, name) not in known:
                _refuse(f"{name} must be one of {', '.join(known)}")
        _set(self, "epsilon", _number("epsilon", self.epsilon))
        _set(self, "delta", _number("delta", self.delta))
        _set(self, "deadline", _number("deadline", self.deadline))
        if not 0 < self.deadline <= MAX_DEADLINE:
            _refuse(f"deadline must be between 0 and {MAX_DEADLINE:g} seconds")
        _set(self, "options", _options(self.options))
        if len(self.formula) > MAX_FORMULA:
            _refuse(f"the formula has more than {MAX_FORMULA} characters")
        try:
            Budget(self.epsilon, self.delta)
            _check_size(parse(self.formula))
        except (BudgetError, FormulaError) as error:
            _refuse(str(error))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return values | {"options": dict(self.options)}

    def to_json(self) -> str:
        """Return one line of JSON, the same for equal questions."""
        return json.dumps(self.to_dict(), sort_keys=True, allow_nan=False)

    @classmethod
    def from_dict(cls, values: Any) -> Question:
        """Read plain values; anything missing, unknown or of another type is an error."""
        if not isinstance(values, Mapping):
            _refuse(f"a question is an object, not {type(values).__name__}")
        known = [f.name for f in fields(cls)]
        unknown = next((name for name in values if name not in known), None)
        if unknown is not None:
            named = document.shown(unknown)
            _refuse(f"unknown entry {named}; a question has {', '.join(known)}")
        missing = [name for name in ("request", "formula", "epsilon") if name not in values]
        if missing:
            _refuse(f"{', '.join(missing)} is missing")
        return cls(**values)

    @classmethod
    def from_json(cls, text: Any) -> Question:
        """Read JSON text of bounded length; NaN, infinity and repeated entries are errors."""
        if not isinstance(text, str):
            _refuse(f"JSON text is needed, not {type(text).__name__}")
        if len(text) > MAX_LENGTH:
            _refuse(f"more than {MAX_LENGTH} characters")
        try:
            values = document.parse(text)
        except ReleaseError as error:
            _refuse(str(error))
        return cls.from_dict(values)

    @property
    def digest(self) -> str:
        """Hash of what is asked, without the deadline: a second try may have another one."""
        asked = {name: value for name, value in self.to_dict().items() if name != "deadline"}
        return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()


def check_name(what: str, value: Any) -> None:
    """Refuse what cannot name a request or a site."""
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        got = document.shown(value)
        _refuse(f"{what} must be up to 100 letters, digits and . _ : -, got {got}")


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        _refuse(f"{name} must be a number, not {document.kind(value)}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        _refuse(f"{name} must be finite")
    return number


def _options(given: Any) -> Mapping[str, Scalar]:
    if not isinstance(given, Mapping):
        _refuse(f"options must map names to values, got {type(given).__name__}")
    if len(given) > MAX_OPTIONS:
        _refuse(f"more than {MAX_OPTIONS} options")
    for name, value in given.items():
        if not isinstance(name, str) or not _OPTION.fullmatch(name):
            _refuse(f"{document.shown(name)} is not the name of an option")
        if name in _SITES_OWN or name in {f.name for f in fields(Question)}:
            _refuse(f"{name!r} cannot be an option of a question")
        if not isinstance(value, str | int | float | bool | None):
            _refuse(f"option {name!r} must be text, a number, true, false or null")
        if isinstance(value, float) and not math.isfinite(value):
            _refuse(f"option {name!r} must be finite")
        if isinstance(value, int) and abs(value) > MAX_WHOLE:
            _refuse(f"option {name!r} is too large")
        if isinstance(value, str) and len(value) > MAX_TEXT:
            _refuse(f"option {name!r} has more than {MAX_TEXT} characters")
    return MappingProxyType(dict(given))


def _check_size(formula: Formula) -> None:
    """Refuse lists of values that no formula for a few sites needs."""
    factors = (formula.treatment, *(factor for term in formula.terms for factor in term))
    for factor in factors:
        for name in ("levels", "points", "knots"):
            if len(getattr(factor, name, None) or ()) > MAX_VALUES:
                _refuse(f"a term of the formula has more than {MAX_VALUES} {name}")


def _set(question: Question, name: str, value: Any) -> None:
    object.__setattr__(question, name, value)


def _refuse(why: str) -> NoReturn:
    raise QuestionError(f"question: {why}")
