"""The centre's side of a round: read what the sites sent, say who is left out, combine the rest.

No network here. A reply is foreign text until every check has passed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from dpeffects import documents
from dpeffects.abilities.study import StudyEffects
from dpeffects.errors import DPEffectsError, ReleaseError
from dpeffects.formula import parse
from dpeffects.services.document_checks import refused
from dpeffects.services.gate.question import Question
from dpeffects.services.sites import (
    CombinedEffect,
    SiteRelease,
    StudyRelease,
    combine,
    combine_studies,
)
from dpeffects.services.sites.consistency import release_inconsistency, study_inconsistency

MAX_REPLY = 5_000_000
_LONGEST = 300


@dataclass(frozen=True)
class NoReply:
    """What stands in for a reply that the network could not deliver."""

    reason: str


@dataclass(frozen=True)
class Collected:
    """The outcome of a round: releases that passed every check, and why the others did not."""

    question: Question
    releases: tuple[SiteRelease | StudyRelease, ...]
    left_out: Mapping[str, str]

    def combine(self, conf_level: float = 0.95) -> CombinedEffect | StudyEffects:
        """Combine the releases by the question's rule; a study has its level in its methods."""
        if not self.releases:
            raise ReleaseError(f"no site gave a release:\n{self.table()}")
        asked, sent = self.question, cast(Any, self.releases)
        who: dict[str, Any] = {"request": asked.request, "left_out": dict(self.left_out)}
        if asked.study is not None:
            return combine_studies(sent, protocol=asked.study, **who)
        return combine(sent, asked.rule, conf_level=conf_level, **who)

    def table(self) -> str:
        """One line a site: whether it answered, or why it is left out."""
        rows = {release.site: "answered" for release in self.releases} | dict(self.left_out)
        width = max((len(name) for name in rows), default=0)
        return "\n".join(f"  {name:<{width}}  {text}" for name, text in rows.items())

    def report(self) -> str:
        """The combined summary, or why there is none, and the table of sites."""
        head = f"Request {self.question.request}\n{self.table()}"
        if not self.releases:
            return f"{head}\n\nNo site gave a release; there is nothing to combine."
        try:
            return f"{head}\n\n{self.combine().summary()}"
        except DPEffectsError as error:
            return f"{head}\n\nThe releases cannot be combined: {error}"

    def to_dict(self) -> dict[str, Any]:
        """Return the round as plain values: the question, the releases, who is left out."""
        return {
            "question": self.question.to_dict(),
            "releases": [release.to_dict() for release in self.releases],
            "left_out": dict(self.left_out),
        }


def collect(
    replies: Iterable[tuple[str, Any]],
    expected: Sequence[str],
    question: Question,
    absent: Mapping[str, str] | None = None,
) -> Collected:
    """Sort the replies of a round.

    Parameters
    ----------
    replies
        Pairs of the sender, as the network authenticated it, and its reply: JSON text, plain
        values, or a `NoReply`.
    expected
        The sites that were asked.
    question
        What they were asked.
    absent
        Sites known not to answer, and why; another site without a reply is late.
    """
    left_out = dict(absent or {})
    by_site: dict[str, list[Any]] = {site: [] for site in expected}
    for sender, reply in replies:
        if sender in by_site:
            by_site[sender].append(reply)
        else:
            left_out[_clean(sender)] = "was not asked"
    releases = []
    for site, sent in by_site.items():
        if not sent:
            left_out.setdefault(site, f"late: no answer within {question.deadline:g} s")
            continue
        try:
            first, *others = (_read(site, reply, question) for reply in sent)
            if any(other.to_dict() != first.to_dict() for other in others):
                raise ReleaseError("answered twice, with different releases")
            releases.append(first)
            left_out.pop(site, None)
        except ReleaseError as error:
            left_out[site] = _clean(str(error))
    return Collected(question, tuple(releases), left_out)


def _read(site: str, reply: Any, question: Question) -> SiteRelease | StudyRelease:
    if isinstance(reply, NoReply):
        raise ReleaseError(reply.reason)
    body = _plain(reply)
    status = body.get("status")
    if status == "refused":
        raise ReleaseError(f"refused: {_clean(body.get('reason'))}")
    if status != "ok":
        raise ReleaseError("malformed: the reply is neither an answer nor a refusal")
    if body.get("request") != question.request:
        raise ReleaseError("answers another request")
    kind = SiteRelease if question.study is None else StudyRelease
    with refused(ReleaseError, "malformed: ", ReleaseError):
        release = kind.from_dict(body.get("release", {}))
    _check(site, release, question)
    return release


def _plain(reply: Any) -> Mapping[str, Any]:
    if isinstance(reply, str):
        if len(reply) > MAX_REPLY:
            raise ReleaseError("malformed: the reply is too long")
        with refused(ReleaseError, "malformed: "):
            reply = documents.parse_json(reply)
    if not isinstance(reply, Mapping):
        raise ReleaseError("malformed: the reply is not an object")
    return reply


def _check(site: str, release: SiteRelease | StudyRelease, question: Question) -> None:
    """Refuse a release that answers something else than what was asked, or promises less."""
    spent = release.guarantee
    if isinstance(release, SiteRelease):
        what, same, reason = (
            "method",
            release.method == question.method,
            release_inconsistency(release),
        )
    else:
        asked = question.study and question.study.fingerprint
        what, same, reason = "protocol", release.protocol == asked, study_inconsistency(release)
    wrong = {
        f"wrong site name: calls itself {_clean(release.site)}": release.site != site,
        "answers another request": release.request != question.request,
        f"answers for another {what}": not same,
        "answers for another estimand": release.estimand != question.estimand,
        "answers for another formula": not _same_formula(release.formula, question.formula),
        "spent more than was asked for": spent.epsilon > question.epsilon
        or spent.delta > question.delta,
        "the release is not private": spent.void,
        f"not plausible: {reason}": reason,
    }
    for words, found in wrong.items():
        if found:
            raise ReleaseError(words)


def _same_formula(released: str, asked: str) -> bool:
    try:
        return parse(released) == parse(asked)
    except DPEffectsError:
        return False


def _clean(text: Any) -> str:
    """Make foreign text safe to print: one short line without control characters."""
    if not isinstance(text, str):
        return "no reason given"
    printable = "".join(c if c.isprintable() else " " for c in text)
    return " ".join(printable.split())[:_LONGEST] or "no reason given"
