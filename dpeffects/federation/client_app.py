"""The Flower ClientApp of a site: a question comes in, the site's reply goes out."""

from __future__ import annotations

import json
import logging
from typing import Any

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from dpeffects.errors import DPEffectsError
from dpeffects.federation.policy import SitePolicy
from dpeffects.federation.question import Question
from dpeffects.federation.site import NOT_READY, answer

_log = logging.getLogger(__name__)


def query(message: Message, context: Context) -> Message:
    """Answer a query message. Nothing of an exception is sent: it could hold values of the data."""
    try:
        reply = _reply(message, context)
    except DPEffectsError as error:
        _log.error("%s", error)
        reply = {"status": "refused", "reason": NOT_READY}
    except Exception:
        _log.exception("the question could not be answered")
        reply = {"status": "refused", "reason": NOT_READY}
    record = ConfigRecord({"json": json.dumps(reply, allow_nan=False)})
    return Message(RecordDict({"reply": record}), reply_to=message)


def _reply(message: Message, context: Context) -> dict[str, Any]:
    policy = SitePolicy.read(str(context.node_config["policy"]))
    try:
        question = Question.from_json(message.content["question"]["json"])
    except (DPEffectsError, KeyError, TypeError):
        return {"status": "refused", "site": policy.site, "reason": "the question cannot be read"}
    return answer(question, policy)


app = ClientApp()
app.query()(query)
