"""The Flower ServerApp of the centre: wait for the sites, ask, wait for answers, combine."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp

from dpeffects import file_output
from dpeffects.errors import QuestionError
from dpeffects.services.federation.centre import Collected, NoReply, collect
from dpeffects.services.gate.question import Question
from dpeffects.services.protocols import read_protocol

_PAUSE = 0.5


def main(grid: Grid, context: Context) -> None:
    """Run one round; it ends by its deadlines, whatever the sites do."""
    config = context.run_config
    question = read_question(config, context.run_id)
    expected = [name.strip() for name in str(config["sites"]).split(",")]
    if not all(expected) or len(set(expected)) < len(expected):
        raise QuestionError("sites must name each site once, with commas between them")
    nodes = wait_for(grid, expected, float(config["start-deadline"]))
    replies = list(ask(grid, question, nodes))
    absent = {site: "down: not connected" for site in expected if site not in nodes}
    collected = collect(replies, expected, question, absent)
    report(collected, str(config["output"]))


def read_question(config: Mapping[str, Any], run_id: int) -> Question:
    """Read the question from a run's configuration."""
    try:
        options = json.loads(str(config["options"]))
    except ValueError:
        raise QuestionError("question: options must be JSON, for example '{}'") from None
    request = str(config["request"]) or f"run-{run_id}"
    if protocol := str(config.get("protocol", "")):
        return Question.of_study(read_protocol(protocol), request, float(config["deadline"]))
    asked = [field.name for field in fields(Question) if field.name != "protocol"]
    values = {name: config[name] for name in asked}
    return Question.from_dict({**values, "request": request, "options": options})


def wait_for(grid: Grid, expected: Sequence[str], seconds: float) -> dict[str, int]:
    """Wait until all sites are online or time is up; return the nodes of those that are.

    A node's name belongs to its registered key, so a site cannot pass for another.
    """
    end = time.monotonic() + seconds
    while True:
        online = [(node.name, node.node_id) for node in grid.get_nodes()]
        names = [name for name, _ in online]
        nodes = {name: i for name, i in online if name in expected and names.count(name) == 1}
        if len(nodes) == len(expected) or time.monotonic() >= end:
            return nodes
        time.sleep(_PAUSE)


def ask(grid: Grid, question: Question, nodes: Mapping[str, int]) -> Iterator[tuple[str, Any]]:
    """Send the question and yield (site, reply) until all have answered or time is up."""
    if not nodes:
        return
    record = ConfigRecord({"json": question.to_json()})
    messages = [
        Message(RecordDict({"question": record}), node, "query", ttl=question.deadline)
        for node in nodes.values()
    ]
    end = time.monotonic() + question.deadline
    sent = zip(list(grid.push_messages(messages)), nodes, strict=True)
    waiting = {message_id: site for message_id, site in sent if message_id}
    while waiting and time.monotonic() < end:
        for message in grid.pull_messages(list(waiting)):
            site = waiting.pop(message.metadata.reply_to_message_id, None)
            if site is not None:
                yield site, _body(message)
        time.sleep(_PAUSE)


def _body(message: Message) -> Any:
    if message.has_error():
        return NoReply("down: the site's node did not deliver an answer")
    try:
        return message.content["reply"]["json"]
    except (KeyError, TypeError):
        return None


def report(collected: Collected, output: str) -> None:
    """Print what came out, and write it to a folder when one is named."""
    text = collected.report()
    print(text)
    if output:
        folder = Path(output)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "summary.txt").write_text(text + "\n", encoding="utf-8")
        ended = json.dumps(collected.to_dict(), indent=2)
        file_output.replace_file(folder / "round.json", ended.encode("utf-8"))


app = ServerApp()
app.main()(main)
