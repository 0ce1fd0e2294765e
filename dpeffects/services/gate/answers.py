"""The answer to a question. No network here: values in, a reply out."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dpeffects.design.bounds import DeclaredFrame
from dpeffects.errors import DPEffectsError, EstimationError, QuestionError, RefusalError
from dpeffects.services.gate.policy import Grant, Policy
from dpeffects.services.gate.question import Question
from dpeffects.services.gate.releases import released
from dpeffects.services.gate.trial_runs import rehearse

_log = logging.getLogger(__name__)

NOT_READY = "this site is not ready to answer; its operators have the details"
NOT_ANSWERED = "this site could not answer; the budget is spent, its operators have the details"
NO_ESTIMATE = "the released values do not allow an estimate; the budget is spent"


def answer(question: Question, policy: Policy) -> dict[str, Any]:
    """Answer a question under the site's policy; this never raises an exception.

    The order is what keeps the promise: an answer already given is sent again; what is public is
    checked; the question is tried on made-up records; the request is paid for; then noise is drawn,
    once; the reply is kept, then returned. Whether and how a site refuses depends on the question,
    the policy, n and what earlier questions cost: no record can make it refuse, because a value
    that cannot be used is replaced by one that the policy gives (`gate.records`).

    Returns
    -------
    dict
        ``{"status": "ok", "release": {...}}`` or ``{"status": "refused", "reason": ...}``, with
        the site's name and the request's id. A reason holds nothing of the data.
    """
    return _reply(question, policy, policy.site)


def result_of(question: Question, policy: Policy, *, again: bool = False) -> dict[str, Any]:
    """Answer with the whole result of the call, for somebody who may have it; as `answer` does.

    ``again`` says that the process which drew the answer, if one did, has died before it was kept:
    nobody has seen anything of it, so it is drawn anew, and not paid for twice. The ledger keeps
    one reply to a request, whoever draws.

    Returns
    -------
    dict
        ``{"status": "ok", "kind": "SurvivalEffects", "result": {...}}``, or as `answer` refuses.
    """
    return with_result(_reply(question, policy, "", again))


def with_result(kept: Mapping[str, Any]) -> dict[str, Any]:
    """The reply that the ledger keeps, with what it released as the whole result of the call."""
    reply = dict(kept)
    return reply | {"result": reply.pop("release")} if reply["status"] == "ok" else reply


def refusal_of(question: Question, policy: Policy) -> str:
    """Why the policy refuses a question, or an empty text; no row is read, and nothing is paid."""
    try:
        policy.grant(question)
    except RefusalError as refusal:
        return str(refusal)
    return ""


def _reply(question: Question, policy: Policy, site: str, again: bool = False) -> dict[str, Any]:
    try:
        reply = _answer(question, policy, site, again)
    except RefusalError as refusal:
        reply = _refused(question, policy, str(refusal))
    except DPEffectsError as error:
        _log.error("the policy, the data or the ledger of this site cannot be used: %s", error)
        reply = _refused(question, policy, NOT_READY)
    except Exception:
        _log.exception("request %s failed", question.request)
        reply = _refused(question, policy, NOT_READY)
    _log.info("request %s: %s", question.request, reply.get("reason", "answered"))
    return reply


def answer_text(text: Any, policy: str | Path) -> dict[str, Any]:
    """Answer JSON text under the policy of a file; nothing of an exception is sent."""
    try:
        read = Policy.read(policy)
    except Exception:  # its message could hold values of the data
        _log.exception("the policy of this site cannot be read")
        return {"status": "refused", "reason": NOT_READY}
    try:
        question = Question.from_json(text)
    except QuestionError:
        return {"status": "refused", "site": read.site, "reason": "the question cannot be read"}
    return answer(question, read)


def _answer(question: Question, policy: Policy, site: str, again: bool) -> dict[str, Any]:
    store = policy.store()
    earlier_reply = store.find(question.request, question.digest, again)
    if earlier_reply is not None:
        return earlier_reply
    grant = policy.grant(question)
    data = policy.load()
    rehearse(policy.task(question.formula, grant, len(data), site))
    store.reserve(question.request, question.digest, grant.price, again)
    reply = _draw(question, policy, grant, data, site)
    store.finish(question.request, reply)
    return reply


def _draw(
    question: Question, policy: Policy, grant: Grant, data: DeclaredFrame, site: str
) -> dict[str, Any]:
    """Compute the release. It is paid for, so any failure becomes a reply that is kept."""
    sender: dict[str, Any] = {"site": policy.site, "request": question.request}
    try:
        asked: dict[str, Any] = {"site": site, "request": question.request} if site else {}
        release = released(question.formula, data, **asked, **grant.arguments)
        sent = release.to_dict()
        json.dumps(sent, allow_nan=False)
    except EstimationError:
        return _refused(question, policy, NO_ESTIMATE)
    except Exception:
        _log.exception("request %s failed after it was paid for", question.request)
        return _refused(question, policy, NOT_ANSWERED)
    return {"status": "ok", **sender, "kind": type(release).__name__, "release": sent}


def _refused(question: Question, policy: Policy, reason: str) -> dict[str, Any]:
    sender = {"site": policy.site, "request": question.request}
    return {"status": "refused", **sender, "reason": reason}
