"""Checks of what is combined: each release once, all of the same effect."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import zip_longest
from operator import attrgetter
from typing import Any, TypeVar

from dpeffects import documents
from dpeffects.errors import OptionError, ReleaseError, not_among
from dpeffects.flow import LEVEL_OF_1, TREATED
from dpeffects.lazy import no_collection
from dpeffects.services.sites.document import SiteDocument, check_site, printable
from dpeffects.services.sites.rules import RULES
from dpeffects.services.sites.site_documents import SiteRelease


def same_fields(*fields: str) -> dict[str, Callable[[Any], Any]]:
    """Fields that must be the same, by what a sentence calls them."""
    return {f"the {name}": attrgetter(name) for name in fields}


def identification_of(bases: set[str]) -> str:
    """How a combination is identified: an association where any of it is one."""
    return next(iter(bases)) if len(bases) == 1 else "unadjusted" if "unadjusted" in bases else ""


SAME: dict[str, Callable[[SiteRelease], str]] = {
    **same_fields("estimand", "outcome", "treatment", "formula", "level"),
    "what they protect": attrgetter("guarantee.unit"),
    "their analysis sample (missing, weights, subset)": lambda release: "; ".join(
        text for name, text in release.sample.items() if name not in ("size", "cluster")
    ),
}
"""What must be the same; sizes and numbers of clusters are each site's own."""


_TURNED = re.compile(r"(?:is|=) (?:0|0\.0|false), ", re.IGNORECASE)
"""In the words of a site that has 0 as treated, or as the event."""

S = TypeVar("S", bound=SiteDocument)
T = TypeVar("T")


def read_all(releases: Any, read: Callable[[Any], S], function: str) -> dict[str, S]:
    """Read every release that a function was given; no site stands twice."""
    if isinstance(releases, str | bytes | os.PathLike | Mapping) or hasattr(releases, "site"):
        raise ReleaseError(f"{function} takes a list of releases, such as [north, south], not one")
    try:
        entries = list(releases)
    except TypeError:
        raise ReleaseError(f"{function} takes a list, not {type(releases).__name__}") from None
    if not entries:
        raise ReleaseError("there is no release to combine")
    with no_collection():  # releases have no cycles
        sent = tuple(map(read, entries))
    found = {release.site: release for release in sent}
    if len(found) < len(sent):
        twice, _ = Counter(release.site for release in sent).most_common(1)[0]
        raise ReleaseError(f"two releases are from the site {twice!r}")
    return found


def check_left_out(left_out: Any, answered: Collection[str]) -> dict[str, str]:
    """Return the sites without a release and why, in words that can be printed."""
    if left_out is None:
        return {}
    if not isinstance(left_out, Mapping):
        raise OptionError("left_out must map sites to reasons")
    for site, reason in left_out.items():
        check_site(site)
        if not isinstance(reason, str) or not reason.strip():
            raise OptionError(f"left_out[{site!r}] must be a reason, as text")
        if site in answered:
            raise OptionError(f"the site {site!r} is in left_out, but it has a release")
    return {site: printable(reason) for site, reason in left_out.items()}


def check_all(
    sent: Mapping[str, T],
    same: Mapping[str, Callable[[T], Any]],
    noisy: Callable[[T], Iterable[float]],
    release_inconsistency: Callable[[T], str],
) -> None:
    """Refuse what is not the same at all sites, was sent twice, or cannot be what it says."""
    (first, one), *others = sent.items()
    for what, value_of in same.items():
        expected = value_of(one)
        for site, other in others:
            value = value_of(other)
            if value != expected and _squeezed(value) != _squeezed(expected):
                raise ReleaseError(
                    f"the sites {first!r} and {site!r} differ in {what}: "
                    f"{_apart(expected, value)}; every site has to make the same call"
                )
    documents.refuse_twins({site: noisy(x) for site, x in sent.items()})
    check_plausible(sent, release_inconsistency)


def _squeezed(value: Any) -> Any:
    return "".join(value.split()) if isinstance(value, str) else value


def _apart(one: Any, other: Any) -> str:
    """Two values that differ, or the first of their entries that do."""
    if isinstance(one, tuple):
        one, other = next(pair for pair in zip_longest(one, other) if pair[0] != pair[1])
    return f"{one!r} and {other!r}"


def arms_said(notes: Sequence[str], treatment: str) -> tuple[str, ...]:
    """Control and treated level by the notes of a site; empty where these do not say them."""
    said = re.escape(TREATED + treatment) + " = (.*), control records " + re.escape(treatment)
    found = [match for note in notes if (match := re.fullmatch(said + r" = (.*)\.", note))]
    return (found[0][2], found[0][1]) if found else ()


def check_levels(notes: Mapping[str, Sequence[str]]) -> None:
    """Refuse sites that have another level as treated, or as the event, by their notes.

    Sites that do not say which have 0 and 1, or false and true, in this order.
    """
    for mark in (LEVEL_OF_1, TREATED):
        said = {site: note for site, own in notes.items() for note in own if mark in note}
        silent = [site for site in notes if site not in said]
        for site, note in said.items():
            first, words = next(iter(said.items()))
            if silent and _TURNED.search(note):
                first, words = silent[0], "0 and 1 as they are;"
            elif note == words:
                continue
            raise ReleaseError(
                f"the sites {first!r} and {site!r} differ in levels: {words} {note} "
                "Every site has to declare them in the same order"
            )


def check_request(releases: Sequence[SiteDocument], request: Any) -> None:
    """Refuse a release that answers another request than the one asked, or than the others."""
    if request is not None and (not isinstance(request, str) or not request):
        raise OptionError("request must be the identifier that was sent to the sites")
    expected = releases[0].request if request is None else request
    for release in releases:
        if release.request == expected:
            continue
        if request is not None:
            raise ReleaseError(
                f"the site {release.site!r} answers {_named(release.request)}, not {request!r}"
            )
        raise ReleaseError(
            f"the sites {releases[0].site!r} and {release.site!r} answer different requests: "
            f"{_named(expected)} and {_named(release.request)}"
        )


def _named(request: str) -> str:
    return f"the request {request!r}" if request else "no request"


def check_plausible(sent: Mapping[str, T], release_inconsistency: Callable[[T], str]) -> None:
    """Refuse what cannot be what it says."""
    for site, release in sent.items():
        if reason := release_inconsistency(release):
            raise ReleaseError(
                f"the release of the site {site!r} is not plausible: {reason}; combine the "
                "others, and name it in left_out"
            )


def received(
    releases: Any,
    read: Callable[[Any], S],
    function: str,
    *,
    public_keys: Any,
    request: Any,
    left_out: Any,
) -> tuple[dict[str, S], dict[str, str]]:
    """What the sites sent, signed where that is asked for, and sites without a release."""
    sent = read_all(releases, read, function)
    absent = check_left_out(left_out, sent)
    if public_keys is not None:
        from dpeffects.services.sites.signing import verify_all

        verify_all(sent.values(), public_keys)
    check_request(list(sent.values()), request)
    return sent, absent


def check_rule(rule: Any) -> str:
    """Return the name of a known rule."""
    if not isinstance(rule, str) or rule not in RULES:
        raise OptionError(not_among("rule", rule, RULES))
    return rule
