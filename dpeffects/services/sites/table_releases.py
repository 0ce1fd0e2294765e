"""One result for the records of all sites: sums of their tables or moments, and joint studies.

Within each site both arms count for all of its records. The centre sees files only.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from dpeffects import documents
from dpeffects.abilities.moments import Moments, added
from dpeffects.abilities.ordinal import OrdinalEffects
from dpeffects.abilities.quantile import QuantileEffects
from dpeffects.abilities.rate import RateEffects
from dpeffects.abilities.study import StudyEffects
from dpeffects.abilities.survival import SurvivalEffects
from dpeffects.errors import DataError, OptionError, ReleaseError
from dpeffects.guarantee import weakest
from dpeffects.inference import joint
from dpeffects.inference.estimate import Estimate
from dpeffects.inference.tables import ArmTable
from dpeffects.results import ArmEffects
from dpeffects.results.table_results import TableEffects
from dpeffects.services.protocols import Protocol, read_protocol
from dpeffects.services.sites import pooled_tables
from dpeffects.services.sites.checks import (
    check_all,
    check_levels,
    check_plausible,
    identification_of,
    received,
    same_fields,
)
from dpeffects.services.sites.consistency import (
    moments_inconsistency,
    study_inconsistency,
    table_inconsistency,
)
from dpeffects.services.sites.document import check_site
from dpeffects.services.sites.notes import by_records, numbers
from dpeffects.services.sites.site_documents import StudyRelease

T = TypeVar("T", bound=TableEffects)
_KINDS: tuple[type[TableEffects], ...] = (
    SurvivalEffects,
    QuantileEffects,
    OrdinalEffects,
    RateEffects,
)
_SAME = ("method", "formula", "outcome", "treatment", "estimand", "level", "identification")
_ENDS = "the ends of bins (give the same everywhere, bins=[...])"
_SAME_STUDY: dict[str, Callable[[StudyRelease], Any]] = {
    **same_fields("protocol", "estimand", "formula", "treatment"),
    "the arms": lambda release: ", ".join(release.sums.arms),
    "the contrasts": lambda release: str(release.sums.contrasts),
    "the subgroups": lambda release: "; ".join(
        f"{margin.factor}: {', '.join(margin.levels)}" for margin in release.sums.groups
    ),
    "what they protect": attrgetter("guarantee.unit"),
    "who counts": lambda release: "; ".join(
        words for name, words in release.sample.items() if name != "size"
    ),
    "a column or its bounds": lambda release: tuple(
        map(_described, (*release.sums.outcomes, *release.sums.baseline_columns))
    ),
}


def combine_studies(
    releases: Iterable[StudyRelease | Mapping[str, Any] | str | os.PathLike[str]],
    *,
    protocol: Protocol | str | os.PathLike[str] | None = None,
    public_keys: str | os.PathLike[str] | None = None,
    request: str | None = None,
    left_out: Mapping[str, str] | None = None,
) -> StudyEffects:
    r"""Combine the studies of several sites to one: all outcomes, subgroups and Table 1.

    Parameters
    ----------
    releases
        `StudyRelease` objects, their dicts, or paths of their files.
    protocol
        What the sites were asked to run, or its file. Releases of another protocol, of sites that
        it does not name, or of fewer records than it asks for are refused, and sites that it names
        and that sent nothing are shown.
    public_keys, request, left_out
        As in :func:`combine`.

    Returns
    -------
    StudyEffects
        Effects by ``fit.by("site")`` too.

    Notes
    -----
    The effect on all records is the mean of the sites' effects, each for its own records: sites
    may differ in outcomes and in how many are treated. So it is in subgroups. Baseline variables
    are those of all records. For other rules take one effect at a time,
    ``combine([release.effect_on("pain") for release in releases], "random")``.

    The records of the sites are disjoint, so each site's guarantee is that of its own records, and
    combining is post-processing.

    Examples
    --------
    >>> import dpeffects as dpe
    >>> protocol = dpe.Protocol(
    ...     "earnings_1978 + black ~ treatment", epsilon=1, design="randomised",
    ...     bounds={"earnings_1978": (0, 60_000), "black": (0, 1)},
    ... )
    >>> trial = dpe.load_data("lalonde")
    >>> sent = [
    ...     dpe.study_release(protocol, trial.iloc[first::2], site=site)
    ...     for first, site in enumerate(["North", "South"])
    ... ]
    >>> dpe.combine_studies(sent, protocol=protocol).n
    445

    In a shell::

        dpeffects combine-studies north.json south.json
        dpeffects combine-studies *.json --protocol plan.toml --public-keys keys/ \
            --out results.html --plot forest.png
    """
    who = {"public_keys": public_keys, "request": request, "left_out": left_out}
    sent, absent = received(releases, StudyRelease.read, "combine_studies", **who)
    if protocol is not None:
        made = protocol if isinstance(protocol, Protocol) else read_protocol(protocol)
        _check_protocol(sent.values(), made)
        silent = [site for site in made.sites if site not in sent]
        absent = dict.fromkeys(silent, "sent nothing") | absent
    check_all(sent, _SAME_STUDY, lambda x: x.sums.whole.sums.ravel(), study_inconsistency)
    studies = {site: release.study for site, release in sent.items()}
    first, *_ = sent.values()
    identification = identification_of({study.identification for study in studies.values()})
    with np.errstate(all="ignore"):
        sums = pooled_tables.studies({site: x.sums for site, x in sent.items()}, first.estimand)
        effects = tuple(replace(effect, identification=identification) for effect in sums.effects())
    protocol_run = {"protocol": first.protocol} if first.protocol else {}
    left = {f"site {site}": f"left out: {reason}" for site, reason in absent.items()}
    said = (
        f"Studies of {len(sent)} sites were combined, each for its own records, which its own "
        "budget protects. For somebody whose data is in several sites, their budgets add up."
    )
    counted = {
        site: (float(x.sums.plain.records.sum()), x.n, x.effects) for site, x in studies.items()
    }
    own = {"sums": sums, "effects": effects, "identification": identification}
    return _of_all(studies, by_records(counted), said, protocol_run, left, **own)


def _check_protocol(sent: Iterable[StudyRelease], protocol: Protocol) -> None:
    """Refuse what was not made by a protocol."""
    for release in sent:
        site = f"the site {release.site!r}"
        if release.protocol != protocol.fingerprint:
            ran = release.protocol or "none"
            raise ReleaseError(f"{site} used another protocol: {ran}, not {protocol.fingerprint}")
        if protocol.sites and release.site not in protocol.sites:
            raise ReleaseError(f"{site} is not named in the protocol")
        if release.n < protocol.minimum_n:
            least = protocol.minimum_n
            raise ReleaseError(f"{site} has {release.n} records; the protocol needs {least}")


def _described(column: joint.StudyColumn) -> str:
    """A column; that it has two values is seen in the types of some files, not of others."""
    level = f", {column.level} beside {column.first}" if column.first else ""
    missing = f", missing by column {column.missing}" if column.missing >= 0 else ""
    return f"{column.name} [{column.low:.15g}, {column.high:.15g}]{level}{missing}"


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
    told = "a result with a table (dpeffects survival ... --out north.json)"
    read = {str(name): _read(given, _KINDS, told) for name, given in results.items()}
    for name, result in read.items():
        check_site(name)
        if not isinstance(result, TableEffects) or not isinstance(result.arm_table, ArmTable):
            told = "its result has no table of counts to add, as that of dp_survival has"
            raise OptionError(f"site {name!r}: {told}")
    check_levels({name: result.notes for name, result in read.items()})
    everyone = list(read.values())
    check_all(read, _same(everyone[0]), lambda x: x.arm_table.counts.ravel(), table_inconsistency)
    counted = {
        name: (float(x.arm_table.sizes.sum()), x.n, _differences(x)) for name, x in read.items()
    }
    said = (
        f"Tables of {len(everyone)} sites were added; each protects its own records by its own "
        "budget."
    )
    table = pooled_tables.tables([x.arm_table for x in everyone])
    return _of_all(read, by_records(counted), said, arm_table=table)


def _same(result: TableEffects) -> dict[str, Callable[[TableEffects], Any]]:
    """What must be the same for tables to be added: what they count, and in which cells."""
    inherited = {f.name for f in fields(TableEffects)}
    cells = [f.name for f in fields(result) if f.name not in inherited]
    return {
        "the kind of result": lambda x: type(x).__name__,
        **{_ENDS if name == "ends" else name: attrgetter(name) for name in (*_SAME, *cells)},
        "the size of their tables": attrgetter("arm_table.counts.shape"),
        "what they protect": attrgetter("guarantee.unit"),
    }


def _of_all(
    results: Mapping[str, Any],
    estimate_warnings: Iterable[str],
    said: str,
    before: Mapping[str, str] | None = None,
    after: Mapping[str, str] | None = None,
    **own: Any,
) -> Any:
    """A result for the records of all sites, with its ``own`` numbers; ``said`` is how."""
    everyone = list(results.values())
    warnings = dict.fromkeys(
        filter(None, (*estimate_warnings, *(x.method_warnings for x in everyone)))
    )
    facts = {f"site {site}": _facts(x) for site, x in results.items()}
    return replace(
        everyone[0],
        n=sum(x.n for x in everyone),
        guarantee=weakest([x.guarantee for x in everyone]),
        charges=(),
        epsilon_requested=None,
        method_warnings="; ".join(warnings),
        notes=(*dict.fromkeys(note for x in everyone for note in x.notes), said),
        details={**(before or {}), **facts, **(after or {})},
        **own,
    )


def _facts(result: Any) -> str:
    guarantee = result.guarantee
    delta = f", delta = {guarantee.delta:g}" if guarantee.delta else ""
    return f"n = {result.n}, epsilon = {guarantee.epsilon:g}{delta}"


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
        raise OptionError("combine_moments needs the moments of at least one site")
    read = {site: _read(x, (Moments,), "moments") for site, x in given.items()}
    if not all(isinstance(x, Moments) for x in read.values()):
        raise OptionError("combine_moments takes the results of dp_moments, one for each site")
    everyone = list(read.values())
    made = added(everyone)
    check_plausible(read, moments_inconsistency)
    if len(everyone) < 2 or not made.outcomes:
        return made
    whole, _ = numbers([_effects(made)])
    rest, error = numbers([_effects(added([x for x in everyone if x is not y])) for y in everyone])
    far = (np.abs(whole - rest) / np.sqrt(error)).max(axis=1)  # sums are more than effects
    counted = {site: (x.matrix.n, x.n, _effects(x)) for site, x in read.items()}
    estimate_warnings = by_records(counted, far)
    return replace(
        made, method_warnings="; ".join(filter(None, (*estimate_warnings, made.method_warnings)))
    )


def _effects(moments: Moments) -> Sequence[Estimate]:
    found = moments.effect()
    return found.effects if isinstance(found, ArmEffects) else (found.released,)


def _differences(result: TableEffects) -> list[Estimate]:
    """Differences between arms in the parts of records up to each cell."""
    dist = result.arm_table.statistics(lambda shares: np.cumsum(np.subtract(*shares))[:-1])
    return [dist.estimate(i) for i in range(dist.values.size)]


def _read(given: Any, kinds: Sequence[Any], told: str) -> Any:
    """A result as it is, or of a file with its JSON, which is of one of some kinds."""
    if not isinstance(given, str | os.PathLike):
        return given
    text = documents.read(given)
    for kind in kinds:
        with suppress(DataError):
            return kind.from_json(text)
    raise DataError(f"{Path(given)} is not the JSON of {told}")
