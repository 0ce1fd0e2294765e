"""The Flower ClientApp of a site: a question comes in, the site's reply goes out."""

from __future__ import annotations

import json

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from dpeffects.services.gate.answers import answer_text


def query(message: Message, context: Context) -> Message:
    """Answer a query message."""
    try:
        text = message.content["question"]["json"]
    except (KeyError, TypeError):
        text = None
    reply = answer_text(text, str(context.node_config.get("policy", "")))
    record = ConfigRecord({"json": json.dumps(reply, allow_nan=False)})
    return Message(RecordDict({"reply": record}), reply_to=message)


app = ClientApp()
app.query()(query)
