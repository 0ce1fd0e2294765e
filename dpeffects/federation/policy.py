"""A site's own rules, from a TOML file that the site keeps.

Every decision here reads the question, the policy and n, never the values of the data, so a
refusal tells the centre nothing that is not public.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dpeffects import design
from dpeffects.errors import BoundsError, DataError, DPEffectsError, PolicyError, RefusalError
from dpeffects.federation.question import ESTIMANDS, Question, check_name
from dpeffects.federation.store import Price, Store
from dpeffects.files import bound, read_data
from dpeffects.formula import Formula, parse
from dpeffects.methods import proved
from dpeffects.methods.spec import LEVELS
from dpeffects.privacy.bounds import Bounds, Declared
from dpeffects.privacy.budget import Budget
from dpeffects.privacy.ledger import Terms

if TYPE_CHECKING:
    import pandas as pd

_ROLES = ("outcome", "treatment", "covariates")


class Grant(NamedTuple):
    """What a site is willing to do: the price, and the arguments of `dp_ate` beside the data."""

    price: Price
    arguments: Mapping[str, Any]


@dataclass(frozen=True)
class SitePolicy:
    """What a site answers, and from what.

    Parameters
    ----------
    site
        The name under which the site's key is registered at the centre.
    data, ledger
        A CSV or Parquet file, and the file of its ledger, which ``dpeffects ledger create`` makes
        once; scripts that use the same data use the same ledger.
    max_epsilon, max_delta
        Largest price of one question. ``above_maximum="lower"`` answers a question that asks for
        more epsilon with the maximum; "refuse" does not.
    total_epsilon, total_delta
        Over all questions and scripts, ever; the same as in the ledger.
    dataset, ledger_id
        Which dataset of the ledger, where it has several; which ledger, as printed when it was
        made, so that no other is taken for it.
    methods, columns, bounds
        Methods allowed, columns by role, and what the site declares about their values. Every
        column but the treatment needs a bound, unless it is bool.
    estimands, level, public_treatment, minimum_n
        Estimands allowed; what is protected; whether the treatment may be taken as public; the
        smallest data set that answers at all.
    """

    site: str
    data: Path
    ledger: Path
    max_epsilon: float
    total_epsilon: float
    methods: tuple[str, ...]
    columns: Mapping[str, tuple[str, ...]]
    bounds: Mapping[str, Any] = field(default_factory=dict)
    max_delta: float = 0.0
    total_delta: float = 0.0
    above_maximum: str = "refuse"
    estimands: tuple[str, ...] = ("ATE",)
    level: str = "sample"
    public_treatment: bool = False
    minimum_n: int = 100
    dataset: str | None = None
    ledger_id: str | None = None

    @classmethod
    def read(cls, path: str | Path) -> SitePolicy:
        """Read a policy file; paths in it are relative to the file."""
        path = Path(path)
        try:
            values = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise PolicyError(f"{path}: {error}") from None
        try:
            return cls.from_dict(values, path.parent)
        except PolicyError as error:
            raise PolicyError(f"{path}: {error}") from None

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], folder: Path = Path()) -> SitePolicy:
        """Check the entries of a policy file."""
        known = {f.name for f in fields(cls)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise PolicyError(f"unknown entries {', '.join(unknown)}")
        needed = [f.name for f in fields(cls)][:7]
        missing = [name for name in needed if name not in values]
        if missing:
            raise PolicyError(f"{', '.join(missing)} is missing")
        given = dict(values)
        for name in ("data", "ledger"):
            given[name] = folder / _text(name, values[name])
        given["columns"] = _columns(values["columns"])
        given["bounds"] = _bounds(values.get("bounds", {}))
        for name in ("methods", "estimands"):
            given[name] = _names(name, values.get(name, list(cls.estimands)))
        return cls(**given)

    def __post_init__(self) -> None:
        try:
            check_name("site", self.site)
            Budget(self.max_epsilon, self.max_delta)
            Budget(self.total_epsilon, self.total_delta)
            Bounds.declared(self.bounds)
        except DPEffectsError as error:
            raise PolicyError(str(error).removeprefix("question: ")) from None
        _among("methods", self.methods, proved())
        _among("estimands", self.estimands, ESTIMANDS)
        _among("level", (self.level,), LEVELS)
        _among("above_maximum", (self.above_maximum,), ("refuse", "lower"))
        _among("bounds", self.bounds, {n for names in self.columns.values() for n in names})
        if type(self.minimum_n) is not int or self.minimum_n < 4:
            raise PolicyError("minimum_n must be a whole number of at least 4")
        for name in ("dataset", "ledger_id"):
            if getattr(self, name) is not None:
                _text(name, getattr(self, name))
        if type(self.public_treatment) is not bool:
            raise PolicyError("public_treatment must be true or false")

    def store(self) -> Store:
        """Open the site's ledger."""
        return Store(
            self.ledger,
            self.total_epsilon,
            self.total_delta,
            dataset=self.dataset,
            ledger_id=self.ledger_id,
        )

    def grant(self, question: Question) -> Grant:
        """Return what the site will do for a question; raise RefusalError with the reason."""
        if question.method not in self.methods:
            raise RefusalError(f"this site does not allow the method {question.method}")
        if question.estimand not in self.estimands:
            raise RefusalError(f"this site does not allow the estimand {question.estimand}")
        self._check_formula(parse(question.formula))
        epsilon = self._epsilon(question)
        level, public = self._level(question)
        unit = "outcome" if level == "label" else "record"
        terms = Terms(unit, tuple(sorted(public)))
        arguments = {
            **question.options,
            "method": question.method,
            "level": level,
            "epsilon": epsilon,
            "delta": question.delta,
            "estimand": question.estimand,
        }
        return Grant(Price(epsilon, question.delta, terms), arguments)

    def _epsilon(self, question: Question) -> float:
        if question.delta > self.max_delta:
            raise RefusalError(
                f"delta {question.delta:g} is more than this site's maximum, {self.max_delta:g}"
            )
        if question.epsilon > self.max_epsilon and self.above_maximum == "refuse":
            raise RefusalError(
                f"epsilon {question.epsilon:g} is more than this site's maximum, "
                f"{self.max_epsilon:g}"
            )
        return float(min(question.epsilon, self.max_epsilon))

    def _level(self, question: Question) -> tuple[str, frozenset[str]]:
        spec = proved()[question.method]
        options = dict(question.options)
        given = options.pop("level", None)
        try:
            spec.check_estimand(question.estimand)
            level = spec.check_level(str(given) if given is not None else None)
            public = spec.make_options(options).public(level)
        except (DPEffectsError, TypeError) as error:
            raise RefusalError(str(error)) from None
        if level != self.level:
            raise RefusalError(f"this site answers at the level {self.level}, not {level}")
        if level == "sample" and public and not (self.public_treatment and public <= {"treatment"}):
            raise RefusalError(f"this site does not take {', '.join(sorted(public))} as public")
        return level, public

    def _check_formula(self, formula: Formula) -> None:
        used = (formula.outcome_columns, (formula.treatment_column,), formula.covariate_columns)
        for role, names in zip(_ROLES, used, strict=True):
            for name in names:
                if name not in self.columns[role]:
                    raise RefusalError(f"this site does not allow {name!r} as {role}")
        for name, levels in formula.levels.items():
            declared = self.bounds.get(name)
            if not isinstance(declared, list) or set(declared) != set(levels):
                raise RefusalError(f"the levels of {name!r} are not those this site declares")

    def load(self) -> Declared:
        """Read the data and check it against the policy; the same for every question."""
        try:
            frame = read_data(str(self.data), self.bounds)
        except DataError as error:
            raise PolicyError(str(error)) from None
        if len(frame) < self.minimum_n:
            raise RefusalError(f"this site needs {self.minimum_n} records and has {len(frame)}")
        data = Declared(frame, Bounds.declared(self.bounds))
        for outcome in self.columns["outcome"]:
            for treatment in self.columns["treatment"]:
                rest = [n for n in self.columns["covariates"] if n not in (outcome, treatment)]
                self._check_fit(data, outcome, treatment, rest)
        return data

    def _check_fit(self, data: Declared, outcome: str, treatment: str, rest: list[str]) -> None:
        text = f"`{outcome}` ~ `{treatment}`" + " | " * bool(rest)
        formula = parse(text + " + ".join(f"`{name}`" for name in rest))
        try:
            table = design.read(data, formula, None, ())
        except DPEffectsError as error:
            raise PolicyError(str(error)) from None
        if table.missing:
            raise PolicyError(f"bounds are missing for {', '.join(table.missing)}")

    def rehearsal(self, data: Declared) -> Declared:
        """Make rows up from what is public: the bounds, the names and types of columns, and n."""
        names = dict.fromkeys(name for role in _ROLES for name in self.columns[role])
        n = len(data.frame)
        made = {name: _made_up(self.bounds.get(name), data.frame[name], n) for name in names}
        return Declared(type(data.frame)(made), data.bounds)


def _made_up(bound: Any, column: pd.Series[Any], n: int) -> Any:
    import numpy as np

    if isinstance(bound, tuple):
        return np.linspace(bound[0], bound[1], n)
    levels = bound or ([False, True] if column.dtype == bool else [0, 1])
    return [levels[i % len(levels)] for i in range(n)]


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise PolicyError(f"{name} must be text")
    return value


def _names(name: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(v, str) for v in value) or not value:
        raise PolicyError(f"{name} must be a list of names")
    return tuple(value)


def _among(name: str, given: Any, known: Any) -> None:
    for value in given:
        if value not in known:
            raise PolicyError(f"{name}: {value!r} is not one of {', '.join(sorted(known))}")


def _columns(value: Any) -> dict[str, tuple[str, ...]]:
    if not isinstance(value, Mapping) or not {"outcome", "treatment"} <= set(value):
        raise PolicyError("columns must name the outcome, the treatment and the covariates")
    _among("columns", value, _ROLES)
    return {"covariates": (), **{role: _names(role, value[role]) for role in value}}


def _bounds(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise PolicyError("bounds must be a table")
    try:
        return {name: bound(name, entry) for name, entry in value.items()}
    except BoundsError as error:
        raise PolicyError(str(error)) from None
