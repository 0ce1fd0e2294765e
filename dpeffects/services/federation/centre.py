"""The centre's side of a round: read what the sites sent, say who is left out, combine the rest.

No network here. A reply is foreign text until every check has passed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dpeffects as dpe
from dpeffects import documents
from dpeffects.errors import DPEffectsError, ReleaseError
from dpeffects.formula import parse
from dpeffects.services.document_checks import refused
from dpeffects.services.gate.question import Question
from dpeffects.services.sites import SiteRelease, StudyRelease
from dpeffects.services.sites.consistency import release_inconsistency, study_inconsistency

MAX_REPLY = 5_000_000
_ADDED: Mapping[str, Callable[[Any], Any]] = {
    "dp_moments": dpe.combine_moments,
    **dict.fromkeys(("dp_ordinal", "dp_qte", "dp_survival"), dpe.combine_tables),
}
"""How results are combined that are tables or moments, by the call that was asked for."""
_SENT = {
    "dp_balance": "Balance",
    "dp_cate": "CateEffects",
    "dp_late": "LateEffect",
    "dp_moments": "Moments",
    "dp_ordinal": "OrdinalEffects",
    "dp_qte": "QuantileEffects",
    "dp_rate": "RateEffects",
    "dp_study": "StudyEffects",
    "dp_survival": "SurvivalEffects",
}
"""What sites send that answer by a result as a whole."""
_LONGEST = 300


@dataclass(frozen=True)
class NoReply:
    """What stands in for a reply that the network could not deliver."""

    reason: str


@dataclass(frozen=True)
class Collected:
    """The outcome of a round: releases that passed every check, and why the others did not."""

    question: Question
    releases: Mapping[str, Any]
    left_out: Mapping[str, str]

    def combine(self, conf_level: float = 0.95) -> Any:
        """Combine the releases by the question's rule; only average effects have several.

        Tables and moments are added up. Other results are not combined: each site's stands alone.
        """
        if not self.releases:
            raise ReleaseError(f"no site gave a release:\n{self.table()}")
        asked, sent = self.question, tuple(self.releases.values())
        if asked.call in _ADDED:
            return _ADDED[asked.call](self.releases)
        if not isinstance(sent[0], SiteRelease | StudyRelease):
            raise ReleaseError(f"results of {asked.call} are not combined; each site has its own")
        who: dict[str, Any] = {"request": asked.request, "left_out": dict(self.left_out)}
        if asked.study is not None:
            return dpe.combine_studies(sent, protocol=asked.study, **who)
        return dpe.combine(sent, asked.rule, conf_level=conf_level, **who)

    def table(self) -> str:
        """One line a site: whether it answered, or why it is left out."""
        rows = dict.fromkeys(self.releases, "answered") | dict(self.left_out)
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
            "releases": {site: release.to_dict() for site, release in self.releases.items()},
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
    releases = {}
    for site, sent in by_site.items():
        if not sent:
            left_out.setdefault(site, f"late: no answer within {question.deadline:g} s")
            continue
        try:
            first, *others = (_read(site, reply, question) for reply in sent)
            if any(other.to_dict() != first.to_dict() for other in others):
                raise ReleaseError("answered twice, with different releases")
            releases[site] = first
            left_out.pop(site, None)
        except ReleaseError as error:
            left_out[site] = _clean(str(error))
    return Collected(question, releases, left_out)


def _read(site: str, reply: Any, question: Question) -> Any:
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
    sent = body.get("release", {})
    with refused(ReleaseError, "malformed: ", DPEffectsError):
        if question.call in _SENT:
            release = getattr(dpe, _SENT[question.call]).from_json(json.dumps(sent, default=str))
        else:
            release = (SiteRelease if question.study is None else StudyRelease).from_dict(sent)
    _check_promise(release, question)
    if isinstance(release, SiteRelease | StudyRelease):
        _check(site, release, question)
    return release


def _check_promise(sent: Any, question: Question) -> None:
    """Refuse what promises less than what was asked."""
    spent = sent.guarantee
    if spent.epsilon > question.epsilon or spent.delta > question.delta:
        raise ReleaseError("spent more than was asked for")
    if spent.void:
        raise ReleaseError("the release is not private")


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
    if isinstance(release, SiteRelease):
        what, same = "method", release.method == question.method
        reason = release_inconsistency(release)
    else:
        asked = question.study and question.study.fingerprint
        what, same = "protocol", release.protocol == asked
        reason = study_inconsistency(release)
    wrong = {
        f"wrong site name: calls itself {_clean(release.site)}": release.site != site,
        "answers another request": release.request != question.request,
        f"answers for another {what}": not same,
        "answers for another estimand": release.estimand != question.estimand,
        "answers for another formula": question.call == "dp_ate"
        and not _same_formula(release.formula, question.formula),
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
