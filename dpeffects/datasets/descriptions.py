"""What is known about a data set before it is loaded, read from ``catalogue.toml``."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from dpeffects.design.bounds import Bounds, DeclaredFrame, declare
from dpeffects.errors import DataError, did_you_mean, refusal, texts
from dpeffects.lazy import pd

_MOST_SHOWN = 100
_PACKAGE = Path(__file__).resolve().parents[1]

INDICATOR = range(2)
"""The whole numbers of every 0/1 column."""


@dataclass(frozen=True)
class DataInfo:
    """The facts about one data set or simulator; ``print`` shows them as a card.

    Attributes
    ----------
    name, title
        The name to load it by, and what it is.
    kind
        ``"bundled"``, ``"optional"`` (needs ``dpeffects[data]``) or ``"simulator"``.
    rows
        Number of rows; for a simulator the default ``n``.
    outcome, treatment, covariates
        Column names. A frame may have more columns; the description says what they are.
    event
        The column that says whether a time, the outcome, ended in the event; empty if none is.
    description, source, licence, citation
        What to know before using it, where it came from, and what to cite.

    Examples
    --------
    >>> from dpeffects.datasets import data_info
    >>> data_info("ist").formula
    'stroke_14_days ~ treatment'
    """

    name: str
    title: str
    kind: str
    rows: int
    outcome: str
    treatment: str
    covariates: tuple[str, ...]
    description: str
    source: str
    licence: str
    citation: str
    event: str = ""

    @property
    def formula(self) -> str:
        """The formula with every covariate, ready to use: ``"y ~ t | x1 + x2"``."""
        outcome = f"Surv({self.outcome}, {self.event})" if self.event else self.outcome
        effect = f"{outcome} ~ {self.treatment}"
        return f"{effect} | {' + '.join(self.covariates)}" if self.covariates else effect

    def __str__(self) -> str:
        facts = {
            "kind": self.kind,
            "rows": f"{self.rows:,}",
            "outcome": self.outcome,
            "treatment": self.treatment,
            "covariates": _few(self.covariates, ", ") or "none",
            "formula": self.formula.partition(" | ")[0],
            "source": self.source,
            "licence": self.licence,
            "cite": self.citation,
        }
        known = Bounds.declared(catalogue()[self.name].bounds if self.name in catalogue() else {})
        if len(known) > 1:  # those of most simulators are made with their columns
            facts["bounds"] = _few(tuple(f"{x} {known.describe(x)}" for x in known), "; ")
        if self.covariates:
            facts["formula"] += f" | {_few(self.covariates, ' + ')}"
        lines = [f"{self.name}: {self.title}"]
        lines += [_wrapped(f"  {label:<12}", value) for label, value in facts.items()]
        return "\n".join([*lines, "", _wrapped("  ", self.description)])


def _few(names: tuple[str, ...], between: str) -> str:
    """Names in a row; of very many the first and the last."""
    return between.join(names if len(names) <= _MOST_SHOWN else (*names[:2], "...", names[-1]))


def _wrapped(lead: str, text: str) -> str:
    """Wrap ``text`` behind ``lead``, later lines indented to match."""
    return textwrap.fill(
        text, 88, initial_indent=lead, subsequent_indent=" " * len(lead), break_on_hyphens=False
    )


@dataclass(frozen=True)
class CatalogueEntry:
    """One entry of the catalogue: its facts, the bounds of its columns, and its file, if any."""

    info: DataInfo
    bounds: Mapping[str, Any]
    file: str = ""


@cache
def catalogue() -> dict[str, CatalogueEntry]:
    """Return all entries by name."""
    entries: dict[str, dict[str, Any]] = {}
    for name, own in texts("dpeffects.datasets", "catalogue.toml").items():
        like = entries.get(own.pop("like", ""), {"outcome": "outcome", "treatment": "treatment"})
        entries[name] = {**like, **own, "name": name, "bounds": _bounds(like, own)}
    made = {}
    for name, facts in entries.items():
        facts.pop("indicators", None)
        bounds, file, covariates = facts.pop("bounds"), facts.pop("file", ""), facts["covariates"]
        facts["covariates"] = _all_names(covariates)
        made[name] = CatalogueEntry(DataInfo(**facts), bounds, file)
    return made


def _bounds(like: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Ranges are tuples, levels are lists, as :func:`declare` takes them."""
    bounds = {"treatment": INDICATOR, **like.get("bounds", {})}
    bounds |= dict.fromkeys(own.get("indicators", ()), INDICATOR)
    for column, ends in own.get("bounds", {}).items():
        bounds[column] = ends if isinstance(ends[0], str) else tuple(ends)
    return bounds


def _all_names(names: list[str]) -> tuple[str, ...]:
    """Names, with those that "..." stands for: "x1", "...", "x30" are thirty.

    Examples
    --------
    >>> _all_names(["x1", "...", "x4"])
    ('x1', 'x2', 'x3', 'x4')
    """
    if "..." not in names:
        return tuple(names)
    first, _, last = names
    stem = last.rstrip("0123456789")
    numbers = range(int(first.removeprefix(stem)), int(last.removeprefix(stem)) + 1)
    return tuple(f"{stem}{number}" for number in numbers)


def declared(name: str, frame: pd.DataFrame) -> DeclaredFrame:
    """Attach the bounds of an entry to a frame with some of its columns."""
    bounds = catalogue()[name].bounds
    return declare(frame, {column: bounds[column] for column in frame.columns})


def read_bundled(file: str) -> pd.DataFrame:
    """Read one of the csv files that come with the package."""
    return pd.read_csv(data_path(file))


def data_path(file: str, package: Path = _PACKAGE) -> Path:
    """Return the path of a bundled file: inside a wheel, or beside the package in a checkout."""
    for folder in (package / "_data", package.parent / "data"):
        if (folder / file).is_file():
            return folder / file
    raise DataError(f"the data file {file} is missing from this installation of dpeffects")


def data_info(name: str) -> DataInfo:
    """Return the facts about a data set or simulator: size, formula, provenance, licence.

    Parameters
    ----------
    name
        One of the names that :func:`list_data` shows.

    Returns
    -------
    DataInfo
        Print it to read it.

    Examples
    --------
    >>> from dpeffects.datasets import data_info
    >>> info = data_info("birthweight")
    >>> info.rows, info.licence
    (4642, 'BSD-3-Clause')
    >>> info.formula
    'outcome ~ treatment | prenatal_first_trimester + married + mage + first_baby + medu'
    """
    require_known(name, list(catalogue()))
    return catalogue()[name].info


def list_data() -> pd.DataFrame:
    """Return one row per data set and simulator.

    Returns
    -------
    pandas.DataFrame
        Columns name, kind, rows and title; :func:`data_info` says the rest of each.

    Examples
    --------
    >>> from dpeffects.datasets import list_data
    >>> list_data().query("kind == 'bundled'")["name"].tolist()
    ['lalonde', 'lalonde_cps', 'birthweight', 'ist', 'ihdp', 'ihdp_trial']
    """
    columns = ["name", "kind", "rows", "title"]
    return pd.DataFrame([vars(x.info) for x in catalogue().values()], columns=columns)


def named(simulated: bool) -> list[str]:
    """Names of the data sets that are simulated, or of the others."""
    kinds = {name: record.info.kind for name, record in catalogue().items()}
    return [name for name, kind in kinds.items() if (kind == "simulator") == simulated]


def require_known(name: Any, names: list[str]) -> None:
    """Refuse a name that is none of these."""
    if name not in names:
        hint = did_you_mean(name, names)
        if Path(str(name)).suffix:
            hint = " A file of your own is read by pandas.read_csv(...)."
        raise DataError(refusal("there_no_data", name=name, hint=hint, names=", ".join(names)))
