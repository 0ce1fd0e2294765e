"""A site's own rules, from a TOML file that the site keeps.

Every decision here reads the question, the policy and n, never the values of the data, so a
refusal tells the centre nothing that is not public.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from inspect import signature
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import dpeffects as dpe
from dpeffects import documents
from dpeffects.abilities.balance import BALANCE
from dpeffects.design.bounds import Bounds, DeclaredFrame
from dpeffects.design.codebook import EmptyDeclaration, RangeOrLevels, matched
from dpeffects.errors import BoundsError, DPEffectsError, FormulaError, PolicyError, RefusalError
from dpeffects.estimands import AVERAGES
from dpeffects.estimators import default_learner, get, proved, table_methods
from dpeffects.estimators.spec import ARGUMENTS, LEVELS, MethodSpec
from dpeffects.files import read_toml, toml_key
from dpeffects.formula import Formula, parse
from dpeffects.formula.condition import read_condition
from dpeffects.formula.encoding import width_of
from dpeffects.formula.expression import columns
from dpeffects.lazy import pd
from dpeffects.privacy.budget import Budget
from dpeffects.privacy.ledger import Terms
from dpeffects.services.document_checks import SETTINGS, at_least, refused
from dpeffects.services.gate.question import CALLS, STUDY, Question, check_name
from dpeffects.services.gate.records import SiteColumns, read_columns
from dpeffects.services.gate.store import Price, Store
from dpeffects.services.gate.trial_runs import Rehearsal
from dpeffects.services.protocols import Protocol

_MOST_BYTES = 10_000_000
_ROLES = ("outcome", "treatment", "covariates", "subgroups")
_COLUMNS_OF = {
    "instrument": ("treatment",),
    **dict.fromkeys(("before", "offset"), ("outcome",)),
    **dict.fromkeys(("by", "subset", "subgroups"), ("subgroups", "covariates")),
}
"""Options that name columns, and the roles of which these must have one."""


class Grant(NamedTuple):
    """What a site is willing to do: the price, and the arguments of `dp_ate` beside the data."""

    price: Price
    arguments: Mapping[str, Any]


@dataclass(frozen=True)
class Policy:
    """What a site answers, and from what.

    Parameters
    ----------
    site
        The name under which the site's key is registered at the centre.
    data, ledger
        A CSV or Parquet file, and its ledger, a file or ``postgresql://user@host/database``, which
        ``dpeffects ledger create`` makes once; scripts that use the same data use the same ledger.
    max_epsilon, max_delta
        Largest price of one question. ``above_maximum="lower"`` answers a question that asks for
        more epsilon with the maximum; "refuse" does not.
    total_epsilon, total_delta
        Over all questions and scripts, ever; the same as in the ledger.
    dataset, ledger_id
        Which dataset of the ledger, where it has several; which ledger, as printed when it was
        made, so that no other is taken for it.
    anchor
        Where the ledger's anchor is, if not where the ledger says (`dpeffects.create_ledger`).
    methods, columns, bounds
        Methods allowed ("study" for studies), columns by role (outcome, treatment, covariates, and
        subgroups of studies), and what the site declares about their values. Every
        column but the treatment needs a bound; a treatment without one is 0/1.
    estimands, level, public_treatment, minimum_n
        Estimands allowed; what is protected, of one row: a person with k rows has k times epsilon,
        so a site's file has one row for each; whether the treatment may be taken as public; the
        smallest data set that answers at all.
    max_columns, max_seconds, max_memory
        What one question may take: columns that its covariates make, and time and megabytes when it
        is tried on made-up records. A question beyond that is refused and costs nothing.
    """

    site: str
    data: Path
    ledger: Path | str
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
    minimum_n: Annotated[int, at_least(4)] = 100
    max_columns: Annotated[int, at_least(1)] = 200
    max_seconds: Annotated[int, at_least(1)] = 60
    max_memory: Annotated[int, at_least(1)] = 2000
    dataset: str | None = None
    ledger_id: str | None = None
    anchor: Path | str | None = None

    @classmethod
    def read(cls, path: str | Path) -> Policy:
        """Read a policy file; paths in it are relative to the file."""
        path = Path(path)
        values = read_toml(documents.read(path, _MOST_BYTES, PolicyError), path, PolicyError)
        with refused(PolicyError, f"{path}: ", PolicyError):
            return cls.from_dict(values, path.parent)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], folder: Path = Path()) -> Policy:
        """Check the entries of a policy file."""
        entries = dict(values)
        with refused(PolicyError, "", BoundsError):
            SETTINGS.names(cls, values, "a policy")
            for name in ("data", "ledger", *({"anchor"} & set(values))):
                SETTINGS.of(str)(values[name], name)
                if name == "data" or "://" not in values[name]:
                    entries[name] = folder / values[name]
            for name in ("columns", "bounds"):
                SETTINGS.of(Mapping[Any, Any])(values.get(name, {}), name)
            bounds = values.get("bounds", {})
            entries["bounds"] = {name: _bound(name, entry) for name, entry in bounds.items()}
        return cls(
            **entries | {"columns": {"covariates": (), "subgroups": (), **values["columns"]}}
        )

    def __post_init__(self) -> None:
        with refused(PolicyError, "", DPEffectsError):
            SETTINGS.check(self)
            check_name("site", self.site)
            Budget(self.max_epsilon, self.max_delta)
            Budget(self.total_epsilon, self.total_delta)
            if dated := list(Bounds.declared(self.bounds).dates):
                raise PolicyError(f"{dated[0]!r}: a policy has no dates, give days as numbers")
        if not (self.columns.get("outcome") and self.columns.get("treatment")):
            raise PolicyError("columns must name the outcome, the treatment and the covariates")
        _among("columns", self.columns, _ROLES)
        others = {*CALLS} - {"dp_ate", "dp_study"}
        _among("methods", self.methods, (*proved(), STUDY, *others))
        _among("estimands", self.estimands, AVERAGES)
        _among("level", (self.level,), LEVELS)
        _among("above_maximum", (self.above_maximum,), ("refuse", "lower"))
        columns = [name for role in _ROLES for name in self.columns.get(role, ())]
        if self.bounds:
            _among("bounds", self.bounds, columns)
        known = {*self.bounds, *self.columns["treatment"]}
        if missing := [name for name in dict.fromkeys(columns) if name not in known]:
            # their values could be anything: their types would be those of the rows
            raise PolicyError(f"bounds are missing for {', '.join(missing)}")

    def store(self) -> Store:
        """Open the site's ledger."""
        which = {name: getattr(self, name) for name in ("dataset", "ledger_id", "anchor")}
        return Store(self.ledger, self.total_epsilon, self.total_delta, **which)

    def grant(self, question: Question) -> Grant:
        """Return what the site will do for a question; raise RefusalError with the reason."""
        if question.what not in self.methods:
            raise RefusalError(f"this site does not allow the method {question.what}")
        if question.estimand not in self.estimands:
            raise RefusalError(f"this site does not allow the estimand {question.estimand}")
        self._check_formula(question)
        epsilon = self._epsilon(question)
        level, public = self._level(question)
        unit = "outcome" if level == "label" else "record"
        price = Price(epsilon, question.delta, Terms(unit, tuple(sorted(public))))
        if question.study is not None:
            # bounds are the site's own; its name was checked
            own = replace(question.study, epsilon=epsilon, bounds={}, sites=())
            return Grant(price, {"study": own, "asked": question.study})
        takes = {*signature(getattr(dpe, question.call)).parameters}
        if question.call == "dp_ate":
            takes.add("estimand")
        elif question.call == "dp_cate" and question.method == "auto":
            takes.remove("method")
        asked = {"estimand": question.estimand, "method": question.method, "level": level}
        arguments = {name: x for name, x in asked.items() if name in takes}
        budget = {"epsilon": epsilon, "delta": question.delta}
        return Grant(price, {**arguments, **question.options, "call": question.call, **budget})

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
        options: dict[str, Any] = dict(question.options)
        if question.study is not None:
            options = {**question.study.options, "design": question.study.design}
        asked = options.pop("level", None)
        try:
            spec, options = _method_of(question, options)
            level = spec.check_level(None if asked is None else str(asked))
            spec, own = spec.with_options(options)
            if spec.guarantee != "exact":
                raise RefusalError(f"{spec.name} has no guarantee that is proved here")
            public = own.public(level)
        except DPEffectsError as error:
            raise RefusalError(str(error)) from None
        except Exception:
            raise RefusalError("the options of the question cannot be used") from None
        if level != self.level:
            raise RefusalError(f"this site answers at the level {self.level}, not {level}")
        if level == "sample" and public and not (self.public_treatment and public <= {"treatment"}):
            raise RefusalError(f"this site does not take {', '.join(sorted(public))} as public")
        return level, public

    def _check_formula(self, question: Question) -> None:
        formula, study = parse(question.formula), question.study
        used = [formula.outcome_columns, formula.treatment_columns, formula.covariate_columns, ()]
        read = [formula.with_outcomes_as_columns() if question.what == STUDY else formula]
        if study is not None:
            if study.sites and self.site not in study.sites:
                raise RefusalError("this site is not named in the protocol")
            if (terms := study.subgroup_terms) is not None:
                read.append(terms)
                used[3] = terms.covariate_columns
        self._check_named(question)
        for each in read:
            self._check_columns(each, used)
        if study is not None:
            self._check_same_bounds(study, [name for names in used for name in names])

    def _check_named(self, question: Question) -> None:
        """Refuse columns that options name and the policy has not, or not for that."""
        options = question.options
        self._check_arms(str(options.get("instrument")))
        for option, roles in _COLUMNS_OF.items():
            allowed = [name for role in roles for name in self.columns.get(role, ())]
            for text in _texts(options.get(option)):
                for name in _columns_in(option, text):
                    if name not in allowed:
                        raise RefusalError(f"this site does not allow {name!r} as {option}")

    def _check_same_bounds(self, study: Protocol, used: Sequence[str]) -> None:
        """Refuse a protocol that declares other bounds than the site does."""
        with refused(RefusalError, "", BoundsError):
            asked = matched(study.bounds, used)
        for name, declared in asked.items():
            own = self.bounds.get(name)
            either = isinstance(declared, RangeOrLevels) and list(declared) == list(own or ())
            if not (either or declared == own or isinstance(declared, EmptyDeclaration)):
                raise RefusalError(f"this site declares other bounds of {name!r}")

    def _check_columns(self, formula: Formula, used: Sequence[Sequence[str]]) -> None:
        for role, names in zip(_ROLES, used, strict=True):
            for name in names:
                if name not in self.columns.get(role, ()):
                    raise RefusalError(f"this site does not allow {name!r} as {role}")
        for name, levels in formula.levels.items():
            declared = self.bounds.get(name)
            if not isinstance(declared, list) or set(declared) != set(levels):
                raise RefusalError(f"the levels of {name!r} are not those this site declares")
        self._check_arms(formula.treatment_name)
        known = {name: tuple(b) for name, b in self.bounds.items() if isinstance(b, list)}
        try:  # covariates that make too many columns are refused before any is made
            width_of(formula, {**known, **formula.levels}, self.max_columns)
        except FormulaError:
            raise RefusalError(
                f"the formula makes more than this site's maximum of {self.max_columns} columns"
            ) from None
        except BoundsError as error:  # levels
            raise RefusalError(str(error)) from None

    def _check_arms(self, name: str) -> None:
        """Refuse a column of numbers that are not 0 and 1 as a treatment or an instrument."""
        if isinstance(bound := self.bounds.get(name), tuple) and bound != (0, 1):
            raise RefusalError(f"{name!r} has a range: compare it, as in I({name} > {bound[0]:g})")

    @property
    def layout(self) -> SiteColumns:
        """What the policy says about the columns of the data."""
        return SiteColumns(self.bounds, frozenset(self.columns["treatment"]))

    def load(self) -> DeclaredFrame:
        """Read the data, the same for every question; values that do not fit are replaced.

        Only that the file cannot be read, lacks a column or has too few records is an error.
        """
        return self.layout.declared(self._records()[0])

    def task(self, formula: str, grant: Grant, n: int, site: str = "") -> Rehearsal:
        """Return what is tried on made-up records before the site pays for a question."""
        limits = (self.max_seconds, self.max_memory)
        return Rehearsal(formula, {**grant.arguments, "site": site}, self.layout, n, *limits)

    def check(self) -> None:
        """Check the data against the policy, for the site's operator.

        The messages are for the operator: unlike what a site answers, they depend on records. No
        message holds a value.
        """
        frame, replaced = self._records()
        bad = [f"{name} ({count})" for name, count in replaced.items() if count]
        if bad:
            raise PolicyError(
                f"{self.data} holds values that are missing, no numbers or no declared levels: "
                f"{', '.join(bad)}. Correct the data, declare a level for what is missing, or "
                "leave columns out; a value that cannot be used would count as the middle of its "
                "range, its first level or control"
            )
        for name in self.columns["treatment"]:
            if frame[name].nunique() < 2:
                raise PolicyError(f"treatment {name!r}: one of the two arms is empty")

    def _records(self) -> tuple[pd.DataFrame, dict[str, int]]:
        layout = self.layout
        columns = read_columns(self.data, layout.names)
        n = len(columns[layout.names[0]])
        if n < self.minimum_n:
            raise RefusalError(f"this site needs {self.minimum_n} records and has {n}")
        return layout.frame(columns)


def _method_of(question: Question, options: Mapping[str, Any]) -> tuple[MethodSpec, dict[str, Any]]:
    """The method that answers a question, and those of its options that are the method's own."""
    call, name = question.call, CALLS[question.call]
    if question.study is not None:
        call, name = "dp_study", STUDY
    if call == "dp_balance":
        spec = BALANCE
    elif call == "dp_cate":
        learner = default_learner(str(options.get("release", "function")))
        spec = get(learner if question.method == "auto" else question.method, "CATE")
    else:
        spec = table_methods()[name] if name else get(question.method)
    if call != "dp_cate":
        spec.check_estimand(question.estimand if spec.name != "late" else "LATE")
    known = {f.name for f in fields(spec.options)}
    others = {*signature(getattr(dpe, call)).parameters, *ARGUMENTS} - known
    return spec, {name: x for name, x in options.items() if name not in others}


def _texts(value: Any) -> tuple[str, ...]:
    """The texts of an option: one, several, or some by name."""
    if isinstance(value, Mapping):
        value = tuple(value.values())
    several = value if isinstance(value, tuple | list) else (value,) * bool(value)
    return tuple(map(str, several))


def _columns_in(option: str, text: str) -> tuple[str, ...]:
    """The columns that a condition or terms of a formula name."""
    with refused(RefusalError, f"{option} cannot be read: ", DPEffectsError):
        if option == "subset":
            return columns(read_condition(text))
        try:
            return parse(f"`no outcome` ~ `no treatment` | {text}").covariate_columns
        except FormulaError:
            return columns(read_condition(text))


def _among(name: str, values: Collection[str], known: Collection[str]) -> None:
    if not values:
        raise PolicyError(f"{name} must be a list of at least one name")
    for value in values:
        if value not in known:
            raise PolicyError(f"{name}: {value!r} is not one of {', '.join(sorted(known))}")


def _bound(name: str, entry: Any) -> Any:
    """Turn ``{range = [0, 1]}`` to a tuple and ``{levels = [...]}`` to a list."""
    if entry in ({}, {"range": []}, {"levels": []}):
        raise BoundsError(f"{name!r} is not filled in; write what it could be, or delete the line")
    kinds = {"range": tuple, "levels": list}
    if isinstance(entry, dict) and len(entry) == 1:
        kind, values = next(iter(entry.items()))
        if kind in kinds and isinstance(values, list):
            return kinds[kind](values)
    key = toml_key(name)
    raise BoundsError(
        f'bounds of {name!r}: write {key} = {{range = [0, 1]}} or {key} = {{levels = ["a", "b"]}}'
    )
