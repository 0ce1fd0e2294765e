"""Sites add their tables: one result from those of several sites."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

from dpeffects import documents
from dpeffects.abilities.moments import Moments, added
from dpeffects.abilities.ordinal import OrdinalEffects
from dpeffects.abilities.quantile import QuantileEffects
from dpeffects.abilities.rate import RateEffects
from dpeffects.abilities.survival import SurvivalEffects
from dpeffects.errors import DataError, OptionError, ReleaseError
from dpeffects.guarantee import weakest
from dpeffects.inference.estimate import Estimate
from dpeffects.inference.tables import ArmTable, together
from dpeffects.results import ArmEffects
from dpeffects.results.record import Record
from dpeffects.results.tabled import TableEffects
from dpeffects.sites.checks import check_levels, check_plausible
from dpeffects.sites.doubts import by_records, numbers
from dpeffects.sites.plausible import why_not_moments, why_not_table
from dpeffects.sites.release_fields import check_site

T = TypeVar("T", bound=TableEffects)
_KINDS: tuple[type[TableEffects], ...] = (
    SurvivalEffects,
    QuantileEffects,
    OrdinalEffects,
    RateEffects,
)
_SAME = ("method", "formula", "outcome", "treatment", "estimand", "level", "stands_on")


def combine_tables(results: Mapping[str, T | str | os.PathLike[str]]) -> T:
    """Add the tables of several sites: one result for all of their records.

    Each site releases its own table, by the same call, and sends the result (``to_json``). Records
    of the sites are disjoint, so that each site's guarantee is that of its own records, and adding
    up is post-processing. Within each site both arms count for all of its records: sites may differ
    in outcomes and in how many are treated.

    Parameters
    ----------
    results
        Names of the sites, and what :func:`dp_survival` or another function that releases a table
        gave there, with the same formula and the same cells: results, or files of their JSON.

    Examples
    --------
    >>> import dpeffects as dpe
    >>> import pandas as pd
    >>> data = pd.DataFrame({"t": [0, 1] * 200, "time": range(400), "died": [1, 1, 0, 1] * 100})
    >>> asked = {"horizon": 365, "epsilon": 1, "design": "randomised"}
    >>> sites = {
    ...     name: dpe.dp_survival("Surv(time, died) ~ t", data, **asked, seed=seed)
    ...     for seed, name in enumerate(["North", "South"])
    ... }
    >>> dpe.combine_tables(sites).n
    800
    """
    if not isinstance(results, Mapping) or not results:
        raise OptionError('name the sites: combine_tables({"North": fit, "South": other})')
    read = {name: _result(given) for name, given in results.items()}
    for name, result in read.items():
        check_site(str(name))
        if not isinstance(result, TableEffects) or not isinstance(result.table, ArmTable):
            told = "its result has no table of counts to add, as that of dp_survival has"
            raise OptionError(f"site {name!r}: {told}")
    (first_name, first), *others = read.items()
    for name, other in others:
        _check_same(first, other, first_name, name)
    check_levels({name: result.notes for name, result in read.items()})
    check_plausible(read, why_not_table)
    documents.refuse_twins({name: x.table.counts.ravel() for name, x in read.items()})
    own = {
        f"site {name}": f"n = {x.n}, epsilon = {x.guarantee.epsilon:g}" for name, x in read.items()
    }
    everyone = tuple(read.values())
    doubts = by_records(
        {name: (float(x.table.sizes.sum()), x.n, _differences(x)) for name, x in read.items()}
    )
    tables = f"Tables of {len(everyone)} sites were added"
    said = f"{tables}; each protects its own records by its own budget."
    table = together([x.table for x in everyone])
    return of_all_records(everyone, doubts, said, table=table, details=own)


def of_all_records(results: Sequence[Any], doubts: Iterable[str], said: str, **own: Any) -> Any:
    """A result for the records of all sites, with its ``own`` numbers; ``said`` is how."""
    warnings = dict.fromkeys(filter(None, (*doubts, *(x.warning for x in results))))
    return replace(
        results[0],
        n=sum(x.n for x in results),
        guarantee=weakest([x.guarantee for x in results]),
        spends=(),
        epsilon_asked=None,
        warning="; ".join(warnings),
        notes=(*dict.fromkeys(note for x in results for note in x.notes), said),
        **own,
    )


def combine_moments(
    results: Mapping[str, Moments | str | os.PathLike[str]]
    | Sequence[Moments | str | os.PathLike[str]],
) -> Moments:
    """Add the moments of several sites: those of all of their records.

    Each site makes the same call of :func:`dp_moments`, with the same bounds, and sends the result
    (``to_json``). Adding up is post-processing: each site's guarantee is that of its own records.

    Parameters
    ----------
    results
        What :func:`dp_moments` gave at each site, or files of its JSON: a list, or by the name of
        the site.

    Examples
    --------
    >>> import dpeffects as dpe
    >>> asked = {"formula": "outcome ~ treatment | x1", "epsilon": 4}
    >>> sites = [
    ...     dpe.dp_moments(data=dpe.simulate("cate_1", n=5000, seed=seed), seed=seed, **asked)
    ...     for seed in (1, 2)
    ... ]
    >>> dpe.combine_moments(sites).n
    10000
    """
    numbered = {str(i): x for i, x in enumerate(results, 1)}
    given = results if isinstance(results, Mapping) else numbered
    if not given:
        raise OptionError("combine_moments needs the moments of one site or more")
    read = {site: _moments(x) for site, x in given.items()}
    if not all(isinstance(x, Moments) for x in read.values()):
        raise OptionError("combine_moments adds what dp_moments gave at each site")
    everyone = list(read.values())
    made = added(everyone)
    check_plausible(read, why_not_moments)
    if len(everyone) < 2 or not made.outcomes:
        return made
    whole, _ = numbers([_effects(made)])
    rest, error = numbers([_effects(added([x for x in everyone if x is not y])) for y in everyone])
    far = (np.abs(whole - rest) / np.sqrt(error)).max(axis=1)  # sums are more than effects
    counted = {site: (x.matrix.n, x.n, _effects(x)) for site, x in read.items()}
    doubts = by_records(counted, far)
    return replace(made, warning="; ".join(filter(None, (*doubts, made.warning))))


def _effects(moments: Moments) -> Sequence[Estimate]:
    found = moments.effect()
    return found.effects if isinstance(found, ArmEffects) else (found.released,)


def _differences(result: TableEffects) -> list[Estimate]:
    """Differences between arms in the parts of records up to each cell."""
    law = result.table.law(lambda shares: np.cumsum(np.subtract(*shares))[:-1])
    return [law.estimate(i) for i in range(law.values.size)]


def _moments(given: Moments | str | os.PathLike[str]) -> Moments:
    """Moments as they are, or of a file with their JSON."""
    if not isinstance(given, str | os.PathLike):
        return given
    try:
        return Moments.from_json(documents.content(given, documents.MOST_BYTES))
    except (documents.UnreadableError, DataError) as reason:
        raise DataError(f"{Path(given)} cannot be read as moments: {reason}") from None


def _result(given: T | str | os.PathLike[str]) -> T:
    """A result as it is, or of a file with its JSON; its fields say of which kind it is."""
    if not isinstance(given, str | os.PathLike):
        return given
    text = documents.read(given)
    try:
        document = documents.parse(text, str(given))
        common = {f.name for f in fields(TableEffects)}
        own = {kind: {f.name for f in fields(kind)} - common for kind in _KINDS}
        (kind,) = (kind for kind in _KINDS if own[kind] <= document.keys())
        return cast(T, kind.from_json(text))
    except (DataError, ValueError, AttributeError):
        told = "is not the JSON of a result with a table (dpeffects survival ... --out north.json)"
        raise DataError(f"{Path(given)} {told}") from None


def _check_same(one: TableEffects, other: TableEffects, name: str, another: str) -> None:
    """Refuse tables that do not count the same things."""
    if type(one) is not type(other):
        raise ReleaseError(f"{name} and {another} sent results of different kinds")
    inherited = {f.name for f in fields(TableEffects)} | {f.name for f in fields(Record)}
    cells = [f.name for f in fields(one) if f.name not in inherited]
    for field in (*_SAME, *cells):
        if getattr(one, field) != getattr(other, field):
            same = "; give the same ends of bins everywhere, bins=[...]" if field == "ends" else ""
            told = f"{name} and {another} differ in {field}: tables cannot be added{same}"
            raise ReleaseError(told)
    if one.table.counts.shape != other.table.counts.shape:
        raise ReleaseError(f"{name} and {another} have tables of different sizes")
    if one.guarantee.unit != other.guarantee.unit:
        raise ReleaseError(f"{name} and {another} protect different units")
