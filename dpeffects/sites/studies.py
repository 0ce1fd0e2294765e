"""combine_studies: the same protocol at several sites, as one study. The centre sees files only."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dpeffects.documents import refuse_twins
from dpeffects.errors import ReleaseError
from dpeffects.inference.joint import StudyColumn, together
from dpeffects.protocols import Protocol, read_protocol
from dpeffects.results import StudyEffects
from dpeffects.sites.checks import check_plausible, check_same, received
from dpeffects.sites.doubts import by_records
from dpeffects.sites.study_document import StudyRelease, why_not
from dpeffects.sites.tables import of_all_records

_SAME: dict[str, Callable[[StudyRelease], str]] = {
    "the protocol": lambda release: release.protocol,
    "the estimand": lambda release: release.study.estimand,
    "the formula": lambda release: release.study.formula,
    "the treatment": lambda release: release.study.treatment,
    "the arms": lambda release: ", ".join(release.study.sums.arms),
    "the contrasts": lambda release: str(release.study.sums.contrasts),
    "the subgroups": lambda release: "; ".join(
        f"{margin.factor}: {', '.join(margin.levels)}" for margin in release.study.sums.groups
    ),
    "what they protect": lambda release: release.study.guarantee.unit,
    "who counts": lambda release: "; ".join(
        words for name, words in release.study.sample.items() if name != "size"
    ),
}


def combine_studies(
    releases: Iterable[StudyRelease | Mapping[str, Any] | str | os.PathLike[str]],
    *,
    protocol: Protocol | str | os.PathLike[str] | None = None,
    trust: str | os.PathLike[str] | None = None,
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
    trust, request, left_out
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
    ``combine([release.one("pain") for release in releases], "random")``.

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
        dpeffects combine-studies *.json --protocol protocol.toml --trust keys/ \
            --out results.html --plot forest.png
    """
    who = {"trust": trust, "request": request, "left_out": left_out}
    sent, absent = received(releases, StudyRelease.read, "combine_studies", **who)
    if protocol is not None:
        made = protocol if isinstance(protocol, Protocol) else read_protocol(protocol)
        _check_protocol(sent, made)
        answered = {release.site for release in sent}
        silent = [site for site in made.sites if site not in answered]
        absent = dict.fromkeys(silent, "sent nothing") | absent
    check_same(sent, _SAME)
    for other in sent[1:]:
        _check_columns(sent[0], other)
    refuse_twins({x.site: x.study.sums.whole.sums.ravel() for x in sent})
    check_plausible({x.site: x for x in sent}, why_not)
    return _combined(sent, absent)


def _check_protocol(sent: Sequence[StudyRelease], protocol: Protocol) -> None:
    """Refuse what was not made by a protocol."""
    for release in sent:
        site = f"the site {release.site!r}"
        if release.protocol != protocol.fingerprint:
            ran = release.protocol or "none"
            raise ReleaseError(f"{site} ran another protocol: {ran}, not {protocol.fingerprint}")
        if protocol.sites and release.site not in protocol.sites:
            raise ReleaseError(f"{site} is not named in the protocol")
        if release.study.n < protocol.minimum_n:
            least = protocol.minimum_n
            raise ReleaseError(f"{site} has {release.study.n} records; the protocol needs {least}")


def _check_columns(one: StudyRelease, other: StudyRelease) -> None:
    """Refuse columns that are not the same, naming the first."""
    columns = [_columns(x) for x in (one, other)]
    for first, second in zip(*columns, strict=False):
        if first != second:
            told = f"{_described(first)} and {_described(second)}"
            raise _differ(one, other, f"a column or its bounds: {told}; declare the same")
    if len(columns[0]) != len(columns[1]):
        raise _differ(one, other, f"columns: {len(columns[0])} and {len(columns[1])}")


def _columns(release: StudyRelease) -> list[StudyColumn]:
    """All columns; that one has two values is seen in the types of some files, not of others."""
    sums = release.study.sums
    return [replace(x, two_valued=False) for x in (*sums.outcomes, *sums.baseline_columns)]


def _described(column: StudyColumn) -> str:
    return f"{column.name} [{column.low:g}, {column.high:g}]"


def _differ(one: StudyRelease, other: StudyRelease, what: str) -> ReleaseError:
    return ReleaseError(f"the sites {one.site!r} and {other.site!r} differ in {what}")


def _combined(sent: Sequence[StudyRelease], absent: Mapping[str, str]) -> StudyEffects:
    studies = [release.study for release in sent]
    bases = {study.stands_on for study in studies}
    basis = bases.pop() if len(bases) == 1 else "association" if "association" in bases else ""
    with np.errstate(all="ignore"):
        sums = together({x.site: x.study.sums for x in sent}, studies[0].estimand)
        effects = tuple(replace(effect, basis=basis) for effect in sums.effects())
    own = {f"site {x.site}": _facts(x.study) for x in sent}
    own |= {f"site {site}": f"left out: {reason}" for site, reason in absent.items()}
    protocol = {"protocol": sent[0].protocol} if sent[0].protocol else {}
    plain = [float(study.sums.plain.records.sum()) for study in studies]
    counted = zip(sent, plain, studies, strict=True)
    doubts = by_records({x.site: (size, own.n, own.effects) for x, size, own in counted})
    said = (
        f"Studies of {len(sent)} sites were combined, each for its own records, which its own "
        "budget protects. For somebody whose data is in several sites, their budgets add up."
    )
    details = protocol | own
    made = {"sums": sums, "effects": effects, "stands_on": basis, "details": details}
    return of_all_records(studies, doubts, said, **made)


def _facts(study: StudyEffects) -> str:
    guarantee = study.guarantee
    delta = f", delta = {guarantee.delta:g}" if guarantee.delta else ""
    return f"n = {study.n}, epsilon = {guarantee.epsilon:g}{delta}"
