"""What somebody asks who may not see the data: plain values, read strictly, never run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from types import MappingProxyType
from typing import Annotated, Any

from dpeffects import documents
from dpeffects.errors import DPEffectsError, QuestionError
from dpeffects.estimands import AVERAGES
from dpeffects.formula import Formula, parse
from dpeffects.privacy.budget import Budget
from dpeffects.results.export import plain
from dpeffects.services.document_checks import SETTINGS, ValidatedDocument, one_of, refused
from dpeffects.services.protocols import Protocol
from dpeffects.services.sites.rules import RULES
from dpeffects.type_checks import FieldError, quoted

Scalar = str | int | float | bool | None
Value = Scalar | tuple[Scalar, ...] | Mapping[str, Scalar]
"""What an option of a question may be: texts and numbers, lists of them, or some by name."""

MAX_LENGTH = 65_536
MAX_FORMULA = 4_000
MAX_VALUES = 200
MAX_OPTIONS = 30
MAX_TEXT = 200
MAX_WHOLE = 2**53
MAX_DEADLINE = 86_400.0
_NAME = r"[A-Za-z0-9][A-Za-z0-9._:-]{0,99}"
_HOLDERS_OWN = {"data", "bounds", "ledger", "dataset", "seed", "budget_split", "variance", "at"}
_HOLDERS_OWN |= {"site", "sites", "request"}
"""Arguments of calls that a question may not set; those it asks for are fields, not options."""
STUDY = "study"
CALLS: Mapping[str, str] = {
    "dp_ate": "",
    "dp_cate": "",
    "dp_did": "",
    "dp_balance": "balance",
    "dp_late": "late",
    "dp_moments": "moments",
    "dp_ordinal": "ordinal_table",
    "dp_qte": "quantile_table",
    "dp_rate": "rate",
    "dp_study": STUDY,
    "dp_survival": "life_table",
}
"""Public functions that a question may call, and the one method of those that have one."""
_AVERAGES = {"dp_att": "ATT", "dp_atc": "ATC", "dp_did": "ATT"}
"""Calls that are written with an estimand of their own."""
_OF_STUDIES = ("estimand", "formula", "epsilon", "delta")
"""What a question for a study says as its protocol does."""
_NOT_ASKED = ("unit", "missing", "weights", "subset", "budget_split", "check_bounds", "contrasts")

_ALIKE = "sites answer for all their records, which count alike"
_COUNTING = {"unit", "max_rows", "cluster", "clusters", "missing", "weights"}


@dataclass(frozen=True)
class Question(ValidatedDocument):
    """One question to a registry, or to all sites of a federation.

    Parameters
    ----------
    request
        Identifies the question. A site answers an identifier once; asked again it sends the same
        release, so that a lost reply costs nothing.
    formula, epsilon, method, estimand, delta
        As in :func:`dpeffects.dp_ate`. A site may answer with a smaller epsilon, or refuse.
    call
        The public function that answers: one of `CALLS`.
    rule
        How the centre combines the releases.
    options
        Further arguments of the call and options of its method: texts and numbers, lists of them,
        or some by name. Bounds and seeds are the data holder's.
    protocol
        Of a study, in plain values; see `of_study`.
    deadline
        Seconds from sending after which an answer is late.

    Examples
    --------
    >>> question = Question("study-1", "y ~ t", epsilon=1, method="diff_in_means")
    >>> Question.from_json(question.to_json()) == question
    True
    """

    ERROR, CALLED = QuestionError, "question: "

    request: str
    formula: str
    epsilon: float
    method: str = "auto"
    estimand: Annotated[str, one_of(*AVERAGES)] = "ATE"
    delta: float = 0.0
    rule: Annotated[str, one_of(*RULES)] = "ivw"
    options: Mapping[str, Value] = field(default_factory=dict)
    deadline: float = 60.0
    protocol: Mapping[str, Any] | None = None
    call: Annotated[str, one_of(*CALLS)] = "dp_ate"

    @classmethod
    def of_call(cls, request: str, call: str, arguments: Mapping[str, Any]) -> Question:
        """Ask what a call asks; ``arguments`` are those of the call, by name, without its data."""
        own = {f.name for f in fields(cls)} - {"request", "call", "options", "protocol", "rule"}
        named = {name: x for name, x in arguments.items() if x is not None}
        if call in _AVERAGES:
            named.setdefault("estimand", _AVERAGES[call])
        asked = {name: x for name, x in named.items() if name in own}
        options = {name: x for name, x in named.items() if name not in own}
        given = {**asked, "request": request, "options": options}
        return cls.from_dict(given | {"call": "dp_ate" if call in ("dp_att", "dp_atc") else call})

    @classmethod
    def of_study(cls, protocol: Protocol, request: str, deadline: float = 60.0) -> Question:
        """Ask the sites to run a study's protocol, each for its own records.

        Bounds of the protocol must be those that the sites declare. Sites answer for all their
        records, which count alike.
        """
        asked: dict[str, Any] = {name: getattr(protocol, name) for name in _OF_STUDIES}
        asked |= {"method": STUDY, "rule": "all", "protocol": protocol.to_dict()}
        return cls(request, **asked, deadline=deadline)

    @property
    def what(self) -> str:
        """What a policy allows or does not: a method of average effects, a study, or a call."""
        if self.call == "dp_ate":
            return self.method
        return STUDY if self.call == "dp_study" else self.call

    @cached_property
    def study(self) -> Protocol | None:
        """The protocol, where a study is asked for."""
        return None if self.protocol is None else Protocol.from_dict(self.protocol)

    def __post_init__(self) -> None:
        with refused(QuestionError, self.CALLED, DPEffectsError):
            self._check()
        for name in ("epsilon", "delta", "deadline"):  # 1 and 1.0 are the same question
            object.__setattr__(self, name, float(getattr(self, name)))
        options = {k: tuple(x) if isinstance(x, list) else x for k, x in self.options.items()}
        object.__setattr__(self, "options", MappingProxyType(options))

    def _check(self) -> None:
        check_name("request", self.request)
        _check_options(self.options)
        SETTINGS.check(self)
        if not 0 < self.deadline <= MAX_DEADLINE:
            raise FieldError(f"deadline must be between 0 and {MAX_DEADLINE:g} seconds")
        if len(self.formula) > MAX_FORMULA:
            raise FieldError(f"the formula has more than {MAX_FORMULA} characters")
        Budget(self.epsilon, self.delta)
        _check_size(parse(self.formula))
        if CALLS[self.call] and self.method != "auto":
            raise FieldError(f"{self.call} takes no method")
        if self.method == STUDY or self.protocol is not None:
            self._check_study()

    def _check_study(self) -> None:
        study = self.study
        if study is None or self.method != STUDY:
            raise FieldError(f"the method {STUDY} and a protocol go together")
        for name in _OF_STUDIES:
            if getattr(study, name) != getattr(self, name):
                raise FieldError(f"{name} is not that of the protocol")
        if self.options or self.rule != "all":
            raise FieldError("a study has its options in the protocol, and the rule is all")
        usual = Protocol(study.formula, study.epsilon)
        for name in _NOT_ASKED:
            if getattr(study, name) != getattr(usual, name):
                raise FieldError(f"the protocol has {name!r}: {_ALIKE}")
        _check_options(study.options)
        if sum(map(len, study.subgroups)) > MAX_FORMULA:
            raise FieldError(f"the subgroups have more than {MAX_FORMULA} characters")
        if (terms := study.subgroup_terms) is not None:
            _check_size(terms)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        values = {f.name: plain(getattr(self, f.name)) for f in fields(self)}
        if self.call == "dp_ate":
            del values["call"]  # what was asked before there were others has the same digest
        return {name: x for name, x in values.items() if x is not None}

    @classmethod
    def _checked(cls, values: Any, text: str = "") -> Question:
        SETTINGS.names(cls, values, "a question")
        return cls(**values)

    @classmethod
    def from_json(cls, text: Any) -> Question:
        """Read JSON text of bounded length; NaN, infinity and repeated entries are errors."""
        if not isinstance(text, str) or len(text) > MAX_LENGTH:
            raise QuestionError(f"question: it is no text of at most {MAX_LENGTH} characters")
        return super().from_json(text)

    @property
    def digest(self) -> str:
        """Hash of what is asked, without the deadline: a second try may have another one."""
        asked = {name: value for name, value in self.to_dict().items() if name != "deadline"}
        return documents.checksum(asked)


def check_name(what: str, value: Any) -> None:
    """Refuse what cannot name a request or a site."""
    if not isinstance(value, str) or not re.fullmatch(_NAME, value):
        got = quoted(value)
        raise FieldError(f"{what} must be up to 100 letters, digits and . _ : -, got {got}")


def _check_options(options: Any) -> None:
    SETTINGS.of(Mapping[Any, Any])(options, "options")
    if len(options) > MAX_OPTIONS:
        raise FieldError(f"more than {MAX_OPTIONS} options")
    for name, value in options.items():
        if not isinstance(name, str) or not re.fullmatch(r"[a-z][a-z0-9_]{0,49}", name):
            raise FieldError(f"{quoted(name)} is not the name of an option")
        if name in _COUNTING:
            raise FieldError(f"{name!r} cannot be an option of a question: {_ALIKE}")
        if name in _HOLDERS_OWN or name in {f.name for f in fields(Question)}:
            raise FieldError(f"{name!r} cannot be an option of a question")
        _check_option(name, value)


def _check_option(name: str, value: Any) -> None:
    """Refuse what is no text or number, nor some of them in a list or by name."""
    many: list[Any] = [value]
    if isinstance(value, list | tuple):
        many = list(value)
    elif isinstance(value, Mapping):
        many = [*value, *value.values()]
    if len(many) > MAX_VALUES:
        raise FieldError(f"option {name!r} has more than {MAX_VALUES} values")
    for one in many:
        SETTINGS.of(Scalar)(one, f"option {name!r}")
        if isinstance(one, int) and abs(one) > MAX_WHOLE:
            raise FieldError(f"option {name!r} is too large")
        if isinstance(one, str) and len(one) > MAX_TEXT:
            raise FieldError(f"option {name!r} has more than {MAX_TEXT} characters")


def _check_size(formula: Formula) -> None:
    """Refuse lists of values that no formula for a few sites needs."""
    factors = (formula.treatment, *(factor for term in formula.terms for factor in term))
    for factor in factors:
        for name in ("levels", "points", "knots"):
            if len(getattr(factor, name, None) or ()) > MAX_VALUES:
                raise FieldError(f"a term of the formula has more than {MAX_VALUES} {name}")
