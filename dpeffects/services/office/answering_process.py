"""The process that answers or plans, with the data or without: it loads no part of the server."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from dpeffects.errors import DPEffectsError
from dpeffects.services.gate import trial_runs
from dpeffects.services.gate.answers import result_of
from dpeffects.services.gate.policy import Policy
from dpeffects.services.gate.question import Question
from dpeffects.services.office.structured_logs import log_as_json

USUALLY, KNOWN = (1.0, 3.0), 200
"""Usual are a second and three times what a question took on made-up records; questions of which
that is remembered."""
_log = logging.getLogger(__name__)


def main() -> None:
    """Answer or plan one request after another, until the server ends."""
    work, path = sys.argv[1], Path(sys.argv[2])
    out, log, nowhere = os.fdopen(os.dup(1), "w"), os.fdopen(os.dup(2), "w"), os.devnull
    for stream in (1, 2):  # what a library prints is no answer, and is not read in a log
        os.dup2(os.open(nowhere, os.O_WRONLY), stream)
    log_as_json(log, logging.WARNING)  # when exactly there was an answer is nobody's business
    n = _begin(work, Policy.read(path))
    print(n, file=out, flush=True)
    if work != "plan":  # nobody waits for it yet
        with suppress(DPEffectsError):
            trial_runs.start()
    for line in sys.stdin:
        task = json.loads(line)
        if work == "plan":
            reply = plan_one(Question.from_json(task["question"]), Policy.read(path), task["n"])
        else:
            reply = answer_one(Question.from_json(task), Policy.read(path), n)
        print(json.dumps(reply), file=out, flush=True)


def _begin(work: str, policy: Policy) -> int:
    """Load what is needed, then set limits; return the number of records."""
    import resource

    import dpeffects.services.gate.releases
    import dpeffects.services.planning.plans  # noqa: F401

    n = 0
    try:
        n = 0 if work == "plan" else len(policy.load())
    except DPEffectsError as error:
        _log.error("the data cannot be used: %s", error)
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = now + policy.max_memory * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (most if hard < 0 else min(most, hard), hard))
    return n


_tried: dict[str, float] = {}


def answer_one(question: Question, policy: Policy, n: int) -> dict[str, Any]:
    """Answer, and say how long that should have taken, from made-up records of the same number."""
    began, task = time.monotonic(), ""
    with suppress(DPEffectsError):  # the gate says what is wrong
        made_up = policy.task(question.formula, policy.grant(question), n)
        task = repr(made_up)
        trial_runs.start()  # which is no part of what a question takes
        began = time.monotonic()
        trial_runs.rehearse(made_up)
    if len(_tried) >= KNOWN:
        _tried.clear()
    usual = _tried.setdefault(task, time.monotonic() - began)
    reply = result_of(question, policy, again=True)
    return reply | {"seconds": USUALLY[0] + USUALLY[1] * usual}


def plan_one(question: Question, policy: Policy, n: int) -> dict[str, Any]:
    """Plan an average effect; of another call, say what it gives on made-up records.

    Both are made from the number of records and the codebook; no row is read.
    """
    import dpeffects as dpe
    from dpeffects.design.bounds import Bounds, DeclaredFrame
    from dpeffects.services.gate.releases import released

    try:
        granted = policy.grant(question).arguments
        if question.call == "dp_ate":
            asked = {x: getattr(question, x) for x in ("method", "estimand", "epsilon", "delta")}
            asked |= question.options
            made: Any = dpe.plan(question.formula, n=n, bounds=policy.bounds, **asked)
        else:
            frame, bounds = policy.layout.made_up(n), Bounds.declared(policy.bounds)
            data = DeclaredFrame(frame, bounds, interactive=False)
            study = partial(released, question.formula, data, **granted)
            made = dpe.rehearse(lambda seed: study(seed=seed), runs=3)
        return {"html": made.summary().as_html()}
    except DPEffectsError as error:
        return {"error": str(error)}
    except Exception:
        return {"error": "this cannot be planned"}
