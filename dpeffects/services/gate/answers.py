"""A site's answer to a question. No network here: values in, a reply out."""

from __future__ import annotations

import logging
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
    that cannot be used is replaced by one that the policy gives (`federation.records`).

    Returns
    -------
    dict
        ``{"status": "ok", "release": {...}}`` or ``{"status": "refused", "reason": ...}``, with
        the site's name and the request's id. A reason holds nothing of the data.
    """
    try:
        reply = _answer(question, policy)
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


def _answer(question: Question, policy: Policy) -> dict[str, Any]:
    store = policy.store()
    earlier_reply = store.find(question.request, question.digest)
    if earlier_reply is not None:
        return earlier_reply
    grant = policy.grant(question)
    data = policy.load()
    rehearse(policy.task(question.formula, grant, len(data)))
    store.reserve(question.request, question.digest, grant.price)
    reply = _draw(question, policy, grant, data)
    store.finish(question.request, reply)
    return reply


def _draw(question: Question, policy: Policy, grant: Grant, data: DeclaredFrame) -> dict[str, Any]:
    """Compute the release. It is paid for, so any failure becomes a reply that is kept."""
    sender: dict[str, Any] = {"site": policy.site, "request": question.request}
    try:
        release = released(question.formula, data, **sender, **grant.arguments)
    except EstimationError:
        return _refused(question, policy, NO_ESTIMATE)
    except Exception:
        _log.exception("request %s failed after it was paid for", question.request)
        return _refused(question, policy, NOT_ANSWERED)
    return {"status": "ok", **sender, "release": release.to_dict()}


def _refused(question: Question, policy: Policy, reason: str) -> dict[str, Any]:
    sender = {"site": policy.site, "request": question.request}
    return {"status": "refused", **sender, "reason": reason}
