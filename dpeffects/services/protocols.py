"""A study's protocol: everything that it asks, in one TOML file, before anybody looks at data."""

from __future__ import annotations

import datetime
import os
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any

from dpeffects import documents
from dpeffects.abilities.study import StudyEffects, study_request
from dpeffects.design import codebook
from dpeffects.design.sample import AnalysisSample
from dpeffects.errors import (
    DataError,
    DPEffectsError,
    OptionError,
    checked_call,
    nearest,
    refusal,
)
from dpeffects.estimators import table_methods
from dpeffects.files import read_toml
from dpeffects.flow import Estimation
from dpeffects.formula import Formula, parse
from dpeffects.ledgers import Address
from dpeffects.privacy.ledger import Account
from dpeffects.request import Request, checked
from dpeffects.services.document_checks import (
    SETTINGS,
    ValidatedDocument,
    at_least,
    refused,
    toml_document,
)
from dpeffects.type_checks import FieldError, kind, quoted

_MOST_BYTES = 1_000_000
_WHERE_IT_IS_RUN = ("data", "ledger", "dataset", "seed")
_OF_SITES = ("sites", "minimum_n")


@dataclass(frozen=True)
class Protocol(ValidatedDocument):
    """What a study asks: the arguments of :func:`dp_study`, but for the data and who pays.

    Parameters
    ----------
    formula, subgroups, estimand, epsilon, delta, design, bounds, budget_split, contrasts
        As in :func:`dp_study`.
    unit, missing, weights, subset, check_bounds
        As in :func:`dp_study`.
    options
        Options of the method; in a file they stand under ``[options]``.
    sites, minimum_n
        Names of the sites that take part, and the least number of records that one of them has;
        fewer are refused before anything is paid. They mean nothing for a study at one place.

    Examples
    --------
    >>> protocol = Protocol(
    ...     "pain + died ~ treatment | age", epsilon=1, design="randomised",
    ...     bounds={"pain": (0, 10), "died": [0, 1], "age": (18, 100)},
    ... )
    >>> print(protocol.to_toml())
    formula = "pain + died ~ treatment | age"
    epsilon = 1.0
    design = "randomised"
    <BLANKLINE>
    [bounds]
    pain = {range = [0, 10]}
    died = {levels = [0, 1]}
    age = {range = [18, 100]}
    >>> Protocol.from_toml(protocol.to_toml()) == protocol
    True
    """

    formula: str
    epsilon: float
    subgroups: tuple[str, ...] = ()
    estimand: str = "ATE"
    delta: float = 0.0
    design: str = "observational"
    contrasts: str = "reference"
    unit: str | None = None
    weights: str | None = None
    subset: str | None = None
    check_bounds: bool | None = None
    sites: tuple[str, ...] = ()
    minimum_n: Annotated[int, at_least(0)] = 0
    bounds: Mapping[str, Any] = field(default_factory=dict)
    missing: str | Mapping[str, str] = "error"
    budget_split: Mapping[str, float] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    ERROR = OptionError

    def __post_init__(self) -> None:
        own: dict[str, Any] = {"bounds": _declared(self.bounds)}
        if isinstance(self.subgroups, str):
            own["subgroups"] = (self.subgroups,)
        if isinstance(self.options, Mapping):  # None is what an option is by default
            own["options"] = {k: x for k, x in self.options.items() if x is not None}
        for name, value in own.items():
            object.__setattr__(self, name, value)
        with refused(OptionError):
            SETTINGS.check(self)
        for name in ("epsilon", "delta"):  # 1 and 1.0 are the same protocol
            object.__setattr__(self, name, float(getattr(self, name)))
        object.__setattr__(self, "formula", " ".join(self.formula.split()))
        self._check()

    def _check(self) -> None:
        """Whatever can be refused without data is refused where the protocol is made."""
        for name in self.options:
            if name in {f.name for f in fields(self)} | set(_WHERE_IT_IS_RUN):
                raise OptionError(f"the method has no option {name!r}")
        if len(set(self.sites)) < len(self.sites) or not all(self.sites):
            raise OptionError("sites must name each site once")
        if "." in self.formula.partition("|")[2].replace("+", " ").split():
            raise OptionError(refusal("write_columns_place"))
        request = self.request(None)
        _, _, formula = checked(request)
        asked = {name: getattr(self, name) for name in ("unit", "missing", "weights", "subset")}
        AnalysisSample.asked(parse(self.formula), formula.columns, **asked)
        needed = {*formula.columns} - {getattr(formula.treatment, "name", "")}  # 0 and 1 need none
        for name, bound in self.bounds.items():
            if isinstance(bound, codebook.EmptyDeclaration) and name in needed:
                raise OptionError(bound.why)
        known = {
            name: x
            for name, x in self.bounds.items()
            if not isinstance(x, codebook.EmptyDeclaration)
        }
        object.__setattr__(self, "bounds", codebook.Codebook(known))
        try:
            documents.canonical(self.to_dict())
            tomllib.loads(self.to_toml())
        except (TypeError, ValueError):
            raise OptionError("bounds and options must be text or finite numbers") from None

    def request(self, data: Any, **more: Any) -> Request:
        """The study on some data; ``more`` says who pays."""
        left_out = {*_OF_SITES, "options"}
        asked = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in left_out}
        asked |= {
            "budget_split": dict(self.budget_split) or None,
            "bounds": self.bounds or None,
            "data": data,
        }
        return study_request(**asked, **self.options, **more)

    @property
    def subgroup_terms(self) -> Formula | None:
        """The terms that make subgroups, as covariates of a formula."""
        terms = " + ".join(self.subgroups)
        return parse(f"`no outcome` ~ `no treatment` | {terms}") if terms else None

    @checked_call
    def run(
        self,
        data: Any,
        *,
        ledger: Account | Address | None = None,
        dataset: str | None = None,
        seed: int | None = None,
    ) -> StudyEffects:
        """Run the study: :func:`dp_study` with the arguments of the protocol.

        The result says the protocol's fingerprint among its details.
        """
        return self.result_of(self.begin(data, ledger=ledger, dataset=dataset, seed=seed))

    def begin(self, data: Any, **more: Any) -> Estimation:
        """Check all that can be checked before the first charge; ``more`` says who pays."""
        ready = Estimation(self.request(data, **more))
        if ready.design.n < self.minimum_n:
            ready.close()
            raise DataError(refusal("few_records", least=self.minimum_n, n=ready.design.n))
        return ready

    def result_of(self, ready: Estimation) -> StudyEffects:
        """The result of the study that is ready to run, with the protocol's fingerprint."""
        return self.named(ready.result())

    def named(self, study: StudyEffects) -> StudyEffects:
        """A study that says that this is its protocol."""
        return replace(study, details={**study.details, "protocol": self.fingerprint})

    @property
    def fingerprint(self) -> str:
        """A short name of what is asked: two sites with the same ran the same protocol."""
        return documents.checksum(self.to_dict())[: len("sha256:") + 32]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON; bounds as in a TOML file."""
        values = {f.name: _plain(getattr(self, f.name)) for f in fields(self)}
        return values | {"bounds": {name: _entry(x) for name, x in self.bounds.items()}}

    @classmethod
    def _checked(cls, values: Any, text: str = "") -> Protocol:
        return cls.from_dict(values)

    @classmethod
    def from_dict(cls, values: Any, where: str = "protocol", folder: Path = Path()) -> Protocol:
        """Read plain values; what is missing, unknown or of another kind is an error."""
        if not isinstance(values, Mapping):
            raise OptionError(f"{where} must be a table, not {kind(values)}")
        with refused(OptionError, f"{where}: ", DPEffectsError):
            _check_names(values)
            given = {name: x for name, x in values.items() if x is not None}
            bounds = given.get("bounds", {})
            if isinstance(bounds, str):
                given["bounds"] = codebook.read_bounds(folder / bounds)
            else:
                SETTINGS.of(Mapping[Any, Any])(bounds, "bounds")
                given["bounds"] = codebook.declarations(bounds, "bounds")
            return cls(**given)

    def to_toml(self) -> str:
        """The protocol as a TOML file has it; what is left at its default is left out."""
        values = self.to_dict()
        for f in fields(self):
            if getattr(self, f.name) == (f.default if f.default_factory is MISSING else {}):
                del values[f.name]
        return toml_document(values).rstrip("\n")

    @classmethod
    def from_toml(
        cls, text: str | bytes, where: str = "protocol", folder: Path = Path()
    ) -> Protocol:
        """Read the text of a TOML file; ``where`` is its name, for messages."""
        return cls.from_dict(read_toml(text, where, OptionError), where, folder)


def read_protocol(path: str | os.PathLike[str]) -> Protocol:
    """Read the protocol of a study from a TOML file.

    Parameters
    ----------
    path
        The file. Its entries are the arguments of :func:`dp_study`; bounds stand under ``[bounds]``
        as in a codebook, or are the name of one beside the file; options of the method stand under
        ``[options]``.

    Examples
    --------
    >>> import dpeffects as dpe, tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "protocol.toml"
    >>> _ = path.write_text('''
    ... formula = "earnings_1978 + I(earnings_1978 > 0) ~ treatment | age"
    ... subgroups = ["I(married == 1)"]
    ... epsilon = 2
    ... design = "randomised"
    ... ''')
    >>> protocol = dpe.read_protocol(path)
    >>> protocol.run(dpe.load_data("lalonde"), seed=1).details["protocol"] == protocol.fingerprint
    True
    """
    text = documents.read(path, _MOST_BYTES, OptionError)
    return Protocol.from_toml(text, str(path), Path(path).parent)


def _check_names(values: Mapping[str, Any]) -> None:
    """Refuse entries that a protocol does not have, and say where they belong."""
    known = [f.name for f in fields(Protocol)]
    options = [f.name for f in fields(table_methods()["study"].options) if f.init]
    for name in values:
        if name in _WHERE_IT_IS_RUN:
            raise FieldError(f"{name!r} cannot be in a protocol: give it where the study is run")
        if name in options and name not in known:
            raise FieldError(f"{name!r} is an option of the method: write it under [options]")
        if name not in known:
            raise FieldError(f"unknown entry {quoted(name)}{nearest(name, known)}")
    missing = [name for name in ("formula", "epsilon") if name not in values]
    if missing:
        raise FieldError(f"{' and '.join(missing)} must be given")


def _declared(bounds: Any) -> Any:
    """Bounds as a TOML file declares them, which may describe columns that one site lacks."""
    if isinstance(bounds, str) and bounds == "from_data":
        raise OptionError('bounds="from_data" cannot be in a protocol: declare the bounds')
    found = codebook.opened(bounds) or {}
    blank = {name: x for name, x in found.items() if isinstance(x, codebook.EmptyDeclaration)}
    plain = {name: _plain(_entry(x)) for name, x in found.items() if name not in blank}
    return codebook.Codebook(codebook.declarations(plain, "bounds") | blank)


def _entry(bound: Any) -> Any:
    """A declaration as TOML writes it; two numbers without a word are a range or levels."""
    if isinstance(bound, codebook.RangeOrLevels):
        return list(bound)
    if isinstance(bound, range):
        return {"range": [bound[0], bound[-1]], "whole": True}
    if isinstance(bound, list | tuple):
        return {"levels" if isinstance(bound, list) else "range": list(bound)}
    return bound


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, datetime.date):
        return value.isoformat()
    return value.tolist() if hasattr(value, "tolist") else value
