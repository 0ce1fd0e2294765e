"""All that an office shows, on two tables that differ in one record, with its releases frozen.

An office answers every kind of request in one process, in which noise can be repeated
(`tests/replay.py`); everything is fetched over HTTP, as people see it.
"""

from __future__ import annotations

import io
import json
import logging
import re
import threading
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd

from dpeffects.services import limited_process
from dpeffects.services.gate.policy import Policy
from dpeffects.services.gate.question import Question
from dpeffects.services.office import answering, answering_process
from dpeffects.services.office.structured_logs import JsonLines
from tests.neighbours import Pair, frame, pair, places, undefined
from tests.office.offices import Running, form_of
from tests.replay import Frozen, Replayed, replay

N = 150
_GONE: tuple[Any, ...] = (None, None, None, None, None)
UNUSABLE: Mapping[str, tuple[tuple[Any, ...], tuple[Any, ...]]] = {
    "missing values": ((0.2, 1, 0.5, 0.5, "a"), _GONE),
    "infinite numbers": (("inf", 1, "-inf", 0.0, "b"), ("-inf", 0, "inf", "nan", "a")),
    "no declared levels": ((0.9, 0, 0.1, -1.0, "c"), (0.9, 7, 0.1, -1.0, "Quuxwold")),
    "texts for numbers": ((1.0, 1, 1.0, 1.0, "a"), ("#N/A", "yes", "1,5", '"', "a;b")),
    "numbers that overflow": ((1e308, 1, -1e308, 5e-324, "a"), ("1e999", 2**80, "9" * 400, 0, 1)),
    "extreme outcomes": ((1e300, 1, 0.0, -1.0, "a"), (-1e300, 0, 1.0, 1.0, "c")),
}
"""Values of y, t, x1, x2 and g in the file of one table, and of the other."""
PAIRS = (
    *UNUSABLE,
    *("far outside the bounds", "outcome from end to end", "not a number in a covariate"),
    *("the last treated leaves", "the last control leaves", "a gap in integers"),
)

PLAIN, DELTA = "y ~ t | x1 + x2 + g", {"delta": 1e-6}
ANSWERED: Mapping[str, tuple[str, str, Mapping[str, Any]]] = {
    "average": ("dp_ate", PLAIN, {}),
    "trial": ("dp_ate", "y ~ t", {"method": "diff_in_means"}),
    "treated": ("dp_att", PLAIN, {"method": "private_ipw"}),
    "controls": ("dp_atc", PLAIN, {"method": "private_ipw"}),
    "matching": ("dp_ate", PLAIN, {"method": "private_psm"}),
    "three arms": ("dp_ate", "y ~ g | x1", {"contrasts": "pairwise"}),
    "subset": ("dp_ate", "y ~ t | x1", {"subset": "x2 > -0.5"}),
    "by level": ("dp_ate", "y ~ t", {"by": "g"}),
    "by conditions": ("dp_ate", "y ~ t", {"by": {"a": "x1 > 0.5", "b": "x1 <= 0.5"}}),
    "Gaussian": ("dp_ate", PLAIN, {"method": "private_ipw", **DELTA}),
    "effects of groups": ("dp_cate", "y ~ t | x1", {"release": "groups", "by": "g"}),
    "effects as a function": ("dp_cate", "y ~ t | x1 + g", DELTA),
    "changes": ("dp_did", "y ~ t", {"before": "x1"}),
    "balance": ("dp_balance", PLAIN, {}),
    "compliers": ("dp_late", "y ~ I(z > 0.2) | x1", {"instrument": "t"}),
    "moments": ("dp_moments", "y ~ t | x1 + g", {}),
    "moments by level": ("dp_moments", "y ~ t | x1", {"subgroups": "g", **DELTA}),
    "ordered levels": ("dp_ordinal", "g ~ t | x1", {}),
    "quantiles": ("dp_qte", "y ~ t", {"quantiles": [0.25, 0.5]}),
    "rates": ("dp_rate", "y ~ t | x2", {"offset": "x1"}),
    "survival": ("dp_survival", "Surv(x1, I(z > 0.4)) ~ t | x2", {"horizon": 1.0}),
    "study": ("dp_study", "y + z ~ t | x1", {}),
    "study by level": ("dp_study", "y + z ~ t", {"subgroups": "g", "design": "randomised"}),
    "next to nothing": ("dp_late", "y ~ I(z > 0.2)", {"instrument": "t", "epsilon": 1e-7}),
}
REFUSED: Mapping[str, tuple[str, str, Mapping[str, Any]]] = {
    "a column of the file": ("dp_ate", "y ~ t | site", {}),
    "no column": ("dp_ate", "y ~ t | nothing", {}),
    "no formula": ("dp_ate", "y ~ ", {}),
    "no levels": ("dp_ate", "y ~ C(g, levels=['a', 'z'])", {}),
    "numbers as arms": ("dp_ate", "y ~ x1", {}),
    "another level": ("dp_ate", PLAIN, {"level": "label"}),
    "public arms": ("dp_ate", "y ~ t", {"method": "diff_in_means", "arms": "public"}),
    "too much epsilon": ("dp_ate", "y ~ t", {"epsilon": 1e6}),
    "too much delta": ("dp_ate", "y ~ t", {"delta": 0.5}),
    "a seed": ("dp_ate", "y ~ t", {"seed": 1}),
    "no method": ("dp_ate", "y ~ t", {"method": "magic"}),
    "no option": ("dp_qte", "y ~ t", {"magic": 3}),
    "no value of an option": ("dp_qte", "y ~ t", {"quantiles": [2.0]}),
    "no condition": ("dp_ate", "y ~ t", {"subset": "x1 >"}),
    "too many columns": ("dp_ate", f"y ~ t | cut(x1, {[k / 250 for k in range(240)]})", {}),
    "no call": ("dp_magic", "y ~ t", {}),
    "an arm that nobody declared": ("dp_ate", "y ~ t", {"by": "x1"}),
}
BODIES = {"no JSON": b"{", "a list": b"[1]", "NaN": b'{"epsilon": NaN}', "too long": b" " * 70_000}
PAGES = {
    "anna": ("/", "/ask", "/dataset", "/tokens", "/queue", "/nothing"),
    "sue": ("/", "/queue", "/people", "/ledger", "/events", "/export", "/dataset"),
}
_API = "/api/datasets/registry"
_TIMES = ("time", "trace", "seconds")
_VARIES = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\.\d+)?(\+00:00| UTC)?"  # times
    r'|name="form" value="[^"]+"|(?<=_created )[\d.e+]+|ledger-[\w-]+'
    r"|[0-9a-f]{16,}|/tmp/\w+|office_responses_created\S* \S+"
)


def kinds() -> int:
    """Number of kinds of requests."""
    return len(ANSWERED) + len(REFUSED) + len(BODIES) + 6  # of `_others`


def tables(name: str) -> Pair:
    """Two tables that differ in one record, and what a codebook declares of them."""
    if name not in UNUSABLE:
        return pair(name, N, seed=PAIRS.index(name))
    made = pair("outcome from end to end", N, seed=PAIRS.index(name))
    for table, values in zip(made.ordered(), UNUSABLE[name], strict=True):
        table[table.columns] = table.astype(object)
        for column, value in zip(("y", "t", "x1", "x2", "g"), values, strict=True):
            table[column] = table[column].astype(object)
            table.at[made.record, column] = value
    return made


def replayed(name: str, some: int = 1, first: int = 0) -> tuple[Replayed, int]:
    """Replay an office on a pair, asking every kind of request, or one of ``some``.

    Records are in another order in every second pair. Returned is also how much was compared.
    """
    nasty, k = tables(name), PAIRS.index(name)
    one, other = nasty.unordered() if k % 2 else nasty.ordered()
    sizes, kinds = [], slice(first % some, None, some)

    def shown(data: pd.DataFrame, _: Frozen) -> dict[str, Any]:
        found = dict(_shown(data, nasty, kinds))
        sizes.append(len(found))
        return found

    with undefined():
        both = (table.reset_index(drop=True) for table in (one, other))
        found = replay(shown, *both, seed=k, orders=[places(one, other)], never_refuses=True)
    return found, min(sizes, default=0)


class InProcess:
    """Answers and plans as a worker does, where noise can be repeated."""

    def __init__(self, policy: Path) -> None:
        self._policy, self.n = policy, len(Policy.read(policy).load())

    def ask(self, task: Any, _: float) -> Any:
        policy = Policy.read(self._policy)
        if isinstance(task, dict):
            question = Question.from_json(task["question"])
            return answering_process.plan_one(question, policy, task["n"])
        reply = answering_process.answer_one(Question.from_json(task), policy, self.n)
        return json.loads(json.dumps(reply | {"seconds": 0.0}))

    def end(self) -> None:
        pass


def _codebook(nasty: Pair) -> str:
    bounds = {**nasty.bounds, "t": [0, 1]}
    return "".join(
        f"{name} = {{{'levels' if isinstance(b, list) else 'range'} = {json.dumps(list(b))}}}\n"
        for name, b in bounds.items()
    )


def _shown(data: pd.DataFrame, nasty: Pair, kinds: slice) -> Iterator[tuple[str, Any]]:
    """All that an office shows of these records."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.setFormatter(JsonLines())
    others = {*threading.enumerate()} - {threading.current_thread()}  # of earlier tests

    def keep(record: logging.LogRecord) -> None:
        if threading.current_thread() not in others:
            lines.append(handler.format(record))

    handler.emit = keep  # type: ignore[method-assign]
    with TemporaryDirectory() as folder, ExitStack() as stack:
        for logger in (logging.getLogger(), logging.getLogger("dpeffects")):
            stack.callback(logger.setLevel, logger.level)
            logger.setLevel(logging.INFO)
        logging.getLogger().addHandler(handler)
        stack.callback(logging.getLogger().removeHandler, handler)
        stack.enter_context(mock.patch.object(answering, "time_class", return_value=0.0))
        stack.enter_context(
            mock.patch.object(limited_process, "_START", 600.0)
        )  # on a busy machine
        how = {"epsilon": 99.0, "delta": 1e-3, "approval": "above", "approve_above": 3.0}
        clean = frame(N).assign(t=np.arange(N) % 2)
        running = Running(Path(folder), data=clean, codebook=_codebook(nasty), **how)
        treated = [int(x) if isinstance(x, bool | np.bool_) else x for x in data["t"]]
        data.assign(t=treated).to_csv(Path(folder, "data.csv"), index=False)
        policy = running.folder.policy_file
        policy.write_text(f"max_seconds = 600\n{policy.read_text()}")
        worker = InProcess(policy)
        running.desk.n, pool = worker.n, running.office.pool
        stack.enter_context(mock.patch.object(pool, "_of", return_value=worker))
        stack.callback(running.database.close)
        for name, found in _everything(running, nasty, kinds):
            yield name, _masked(found)
        for k, line in enumerate(lines):
            said = {x: v for x, v in json.loads(line).items() if x not in _TIMES}
            yield f"line {k} of the log", json.dumps(said)


def _everything(running: Running, nasty: Pair, kinds: slice) -> Iterator[tuple[str, Any]]:
    running.accounts.set_member("test", "sue", "ageing")
    script, people = running.script(), {name: running.browser(name) for name in PAGES}
    asked = {**ANSWERED, **REFUSED}
    for name in [*asked][kinds]:
        question = _question(nasty, *asked[name])
        sent = script.post(f"{_API}/requests", json=question)
        yield f"{name}: sent", sent
        _work(running)
        if sent.status_code == 200:
            yield f"{name}: sent again", script.post(f"{_API}/requests", json=question)
            request = sent.json()["id"]
            yield f"{name}: state", script.get(f"/api/requests/{request}?wait=0")
            yield f"{name}: page", people["anna"].get(f"/requests/{request}")
    files = ("table.docx", "result.json", "estimates.csv", "record.html", "x")
    yield from (
        (f"file {x}", people["anna"].get(f"/requests/{_first(running)}/{x}")) for x in files
    )
    for name, body in BODIES.items():
        yield name, script.post(f"{_API}/requests", content=body)
    yield from _others(running, script, people, nasty)
    for path in (_API, f"{_API}/budget", "/api/datasets", "/api/requests", "/healthz"):
        yield path, script.get(path)
    yield "metrics", running.script("sue").get("/metrics")
    for name, pages in PAGES.items():
        for path in pages:
            yield f"{path}, {name}", people[name].get(path)


def _others(running: Running, script: Any, people: Any, nasty: Pair) -> Iterator[tuple[str, Any]]:
    """Plans, what waits, is approved or refused by a steward, and budgets that are spent."""
    for call, options in (("dp_ate", '{"method": "diff_in_means"}'), ("dp_qte", "")):
        form = {"form": form_of(people["anna"], "/ask"), "project": "ageing", "do": "plan"}
        form |= {"call": call, "formula": _question(nasty, call, "y ~ t", {})["formula"]}
        page = people["anna"].post("/ask", data=form | {"epsilon": "1", "options": options})
        yield f"plan of {call}", page
    for epsilon, do in ((4.0, "approve"), (5.0, "refuse"), (98.0, "approve")):
        question = _question(nasty, "dp_ate", "y ~ t", {"epsilon": epsilon})
        request = script.post(f"{_API}/requests", json=question).json()["id"]
        yield f"{epsilon}: waits", people["sue"].get(f"/requests/{request}")
        form = {"form": form_of(people["sue"]), "do": do, "reason": "not now"}
        yield f"{epsilon}: {do}", people["sue"].post(f"/requests/{request}", data=form)
        _work(running)
        yield f"{epsilon}: state", script.get(f"/api/requests/{request}?wait=0")
    running.accounts.set_budget("test", "person", "bert", 0.1, 0.0)
    over = running.script("bert", "births")
    yield "over", over.post(f"{_API}/requests", json=_question(nasty, "dp_ate", "y ~ t", {}))


def _question(nasty: Pair, call: str, formula: str, more: Mapping[str, Any]) -> dict[str, Any]:
    """What a script sends, with the outcome and the term that a pair needs."""
    sizes = {"epsilon": 1.0, "delta": 0.0} | {k: more[k] for k in ("epsilon", "delta") if k in more}
    if nasty.outcome and formula.startswith("y ~ t"):
        formula = nasty.outcome + formula[1:]
    if nasty.term and formula.startswith("y ~ t |"):
        formula += f" + {nasty.term}"
    options = {k: x for k, x in more.items() if k not in sizes}
    return {"call": call, "formula": formula, "options": options, **sizes}


def _work(running: Running) -> None:
    """Answer what is in the queue."""
    while (asked := running.desk.claim()) is not None:
        running.office.pool._answer("answering 0", asked)


def _first(running: Running) -> str:
    states = running.desk.states(running.person("anna"), ["answered"])
    return str(states[-1]["id"]) if states else "none"


def _masked(found: Any) -> dict[str, Any]:
    """An answer without times, random texts and what is made of them."""
    heads = {k: v for k, v in found.headers.items() if k not in ("x-request-id", "set-cookie")}
    parts = {"": found.content}
    if found.content.startswith(b"PK"):
        heads.pop("content-length", None)
        with zipfile.ZipFile(io.BytesIO(found.content)) as archive:
            parts = {name: archive.read(name) for name in archive.namelist()}
    if str(found.url).endswith("/metrics"):
        heads.pop("content-length", None)
    texts = {k: _VARIES.sub("*", x.decode("utf-8", "replace")) for k, x in parts.items()}
    return {"status": found.status_code, "heads": heads, **texts}
