"""Questions that call any public function: the same numbers as the call itself, paid for once."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import dpeffects as dpe
from dpeffects.errors import PolicyError, QuestionError, ReleaseError
from dpeffects.ledgers import open_ledger
from dpeffects.services.federation import collect
from dpeffects.services.gate import Question, Store, answer, answers
from dpeffects.services.gate.answers import refusal_of, result_of
from dpeffects.services.gate.question import CALLS
from tests.cases import each
from tests.federation.sites import policy

BOUNDS = {
    "y": {"range": [0, 1]},
    "before": {"range": [0, 1]},
    "x": {"range": [0, 10]},
    "region": {"levels": ["N", "S"]},
    "time": {"range": [0, 50]},
    "event": {"levels": [0, 1]},
    "pain": {"levels": ["none", "mild", "severe"]},
    "arm": {"levels": ["a", "b", "c"]},
}
COLUMNS = {
    "outcome": ["y", "before", "time", "event", "pain"],
    "treatment": ["t", "z", "arm"],
    "covariates": ["x", "region"],
    "subgroups": ["region"],
}
ASKED = {
    "average": ("dp_ate", {"formula": "y ~ t | x + region"}),
    "treated": ("dp_att", {"formula": "y ~ t | x", "method": "private_ipw"}),
    "arms": ("dp_ate", {"formula": "y ~ arm | x"}),
    "subset": ("dp_ate", {"formula": "y ~ t | x", "subset": "x > 5"}),
    "by region": ("dp_ate", {"formula": "y ~ t | x", "by": "region"}),
    "by conditions": ("dp_ate", {"formula": "y ~ t", "by": {"a": "x > 5", "b": "x <= 5"}}),
    "groups": ("dp_cate", {"formula": "y ~ t | x", "release": "groups", "by": "region"}),
    "function": ("dp_cate", {"formula": "y ~ t | x", "delta": 1e-6}),
    "changes": ("dp_did", {"formula": "y ~ t", "before": "before"}),
    "balance": ("dp_balance", {"formula": "y ~ t | x + region"}),
    "compliers": ("dp_late", {"formula": "y ~ t | x", "instrument": "z"}),
    "moments": ("dp_moments", {"formula": "y ~ t | x", "subgroups": ["region"]}),
    "levels": ("dp_ordinal", {"formula": "pain ~ t"}),
    "quantiles": ("dp_qte", {"formula": "y ~ t", "quantiles": [0.25, 0.5]}),
    "rates": ("dp_rate", {"formula": "event ~ t", "offset": "time", "per": 100}),
    "survival": ("dp_survival", {"formula": "Surv(time, event) ~ t | x", "horizon": 40}),
    "study": ("dp_study", {"formula": "y + event ~ t | x", "subgroups": "region"}),
}


def patients(n=2000):
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "y": rng.random(n),
            "before": rng.random(n),
            "t": np.arange(n) % 2,
            "z": rng.integers(0, 2, n),
            "x": rng.random(n) * 10,
            "region": rng.choice(["N", "S"], n),
            "time": rng.random(n) * 50,
            "event": rng.integers(0, 2, n),
            "pain": rng.choice(["none", "mild", "severe"], n),
            "arm": rng.choice(["a", "b", "c"], n),
        }
    )


def registry(folder, **changes):
    totals = {"total_epsilon": 50.0, "total_delta": 1e-4, "max_epsilon": 2.0, "max_delta": 1e-5}
    methods = ["auto", "private_ipw", "study", *({*CALLS} - {"dp_ate", "dp_study"})]
    own = {"columns": COLUMNS, "bounds": BOUNDS, "methods": methods}
    averages = {"estimands": ["ATE", "ATT", "ATC"]}
    return policy(folder, patients(), **totals, **own, **averages, **changes)


@pytest.fixture
def untried(monkeypatch):
    """Nothing is tried before: that is tested elsewhere."""
    monkeypatch.setattr(answers, "rehearse", lambda task: None)


@pytest.fixture
def seeded(monkeypatch, untried):
    """Answers drawn with a seed."""
    real = answers.released
    monkeypatch.setattr(answers, "released", lambda *a, **k: real(*a, seed=5, **k))


def test_every_call_is_asked_here():
    assert {"dp_ate" if call == "dp_att" else call for call, _ in ASKED.values()} == set(CALLS)


@each("case", ASKED)
def test_the_result_is_that_of_the_call(case, tmp_path_factory, seeded):
    """The same numbers as from a script that has the data, and the same object to work with."""
    call, asked = ASKED[case]
    held = registry(tmp_path_factory.mktemp("registry"))
    question = Question.of_call("q1", call, {"epsilon": 1.0, **asked})
    assert Question.from_json(question.to_json()) == question
    assert refusal_of(question, held) == ""
    reply = result_of(question, held)
    assert reply["status"] == "ok", reply
    given = {"epsilon": 1.0, "seed": 5, **asked}
    own = getattr(dpe, call)(given.pop("formula"), held.load(), **given)
    assert reply["kind"] == type(own).__name__
    assert reply["result"] == json.loads(own.to_json())
    read = type(own).from_dict(reply["result"])
    assert str(read.summary()) == str(own.summary())
    assert result_of(question, held) == reply
    ledger = open_ledger(held.ledger, "hospital")
    assert tuple(map(float, ledger.spent)) == (1.0, asked.get("delta", 0.0))


OUTSIDE = {
    "by": ("dp_ate", {"formula": "y ~ t | x", "by": "secret"}),
    "a condition": ("dp_ate", {"formula": "y ~ t", "by": {"a": "secret > 1"}}),
    "subset": ("dp_ate", {"formula": "y ~ t", "subset": "secret > 1"}),
    "instrument": ("dp_late", {"formula": "y ~ t", "instrument": "x"}),
    "person-time": ("dp_rate", {"formula": "event ~ t", "offset": "x"}),
    "before": ("dp_did", {"formula": "y ~ t", "before": ["x"]}),
    "subgroups": ("dp_study", {"formula": "y + event ~ t", "subgroups": ["secret"]}),
    "no guarantee": ("dp_cate", {"formula": "y ~ t | x", "method": "k_anonymous"}),
    "accepted": ("dp_cate", {"formula": "y ~ t | x", "method": "dp_ebm", "accept_library": True}),
    "an option": ("dp_qte", {"formula": "y ~ t", "magic": 3}),
    "no condition": ("dp_ate", {"formula": "y ~ t", "subset": "x >"}),
    "a strange type": ("dp_ate", {"formula": "y ~ t", "by": 7}),
    "level": ("dp_ate", {"formula": "y ~ t | x", "level": "label"}),
    "the holder's word": ("dp_ate", {"formula": "y ~ t", "interactive": True}),
    "public arms": ("dp_qte", {"formula": "y ~ t", "arms": "public"}),
}


@each("case", OUTSIDE)
def test_what_the_policy_has_not_is_refused_for_nothing(case, tmp_path_factory):
    call, asked = OUTSIDE[case]
    held = registry(tmp_path_factory.mktemp("registry"))
    question = Question.of_call("q1", call, {"epsilon": 1.0, **asked})
    reason = refusal_of(question, held)
    assert reason
    reply = result_of(question, held)
    assert (reply["status"], reply["reason"]) == ("refused", reason)
    assert open_ledger(held.ledger, "hospital").spent == (0, 0)


@pytest.mark.parametrize("name", ["seed", "ledger", "bounds", "at", "unit", "weights", "variance"])
def test_what_only_the_holder_may_say_is_no_question(name):
    with pytest.raises(QuestionError, match=name):
        Question.of_call("q1", "dp_ate", {"formula": "y ~ t", "epsilon": 1, name: 1})


# --- a process that dies while it draws ---------------------------------------------------------


class Killed(BaseException):
    """Nothing catches it, as nothing catches a signal."""


def dies(monkeypatch, name):
    def killed(*_, **__):
        raise Killed

    monkeypatch.setattr(Store if name == "finish" else answers, name, killed)


@pytest.mark.parametrize("step", ["released", "finish"])
def test_an_answer_that_died_unseen_is_drawn_again(step, tmp_path, monkeypatch, untried):
    held = registry(tmp_path)
    question = Question.of_call("q1", "dp_qte", {"formula": "y ~ t", "epsilon": 1.0})
    with monkeypatch.context() as patched:
        dies(patched, step)
        with pytest.raises(Killed):
            result_of(question, held)
    ledger = open_ledger(held.ledger, "hospital")
    assert ledger.spent == (1, 0)
    assert "never answered" in result_of(question, held)["reason"]  # who does not know, may not
    again = result_of(question, held, again=True)
    assert again["status"] == "ok"
    assert result_of(question, held, again=True) == again == result_of(question, held)
    assert ledger.spent == (1, 0)
    assert [entry.kind for entry in ledger.entries()] == ["dataset", "request", "reply"]


def test_of_two_that_draw_at_once_one_reply_is_kept(tmp_path):
    held = registry(tmp_path)
    question = Question.of_call("q1", "dp_ate", {"formula": "y ~ t", "epsilon": 1.0})
    store = held.store()
    store.reserve("q1", question.digest, held.grant(question).price)
    other = result_of(question, held, again=True)
    with pytest.raises(Exception, match="not waiting for a reply"):
        store.finish("q1", {"status": "ok"})
    assert store.find("q1", question.digest)["release"] == other["result"]


def test_another_question_under_the_same_name_is_refused_again_too(tmp_path):
    held = registry(tmp_path)
    one, other = (
        Question.of_call("q1", "dp_ate", {"formula": "y ~ t", "epsilon": e}) for e in (0.5, 1.0)
    )
    assert result_of(one, held)["status"] == "ok"
    assert "used for another question" in result_of(other, held, again=True)["reason"]


@each("case", ["average", "changes", "levels", "moments", "quantiles", "survival"])
def test_a_centre_combines_what_its_sites_answer(case, tmp_path_factory, untried):
    """Tables and moments are added up, effects combined; n is that of all sites."""
    call, asked = ASKED[case]
    same = {"bins": [0, 0.25, 0.5, 0.75, 1]} if case == "quantiles" else {}
    question = Question.of_call("q1", call, {"epsilon": 1.0, **asked, **same})
    sites = {name: registry(tmp_path_factory.mktemp(name), site=name) for name in ("a", "b")}
    sent = {name: json.dumps(answer(question, held)) for name, held in sites.items()}
    liar = json.loads(sent["b"])
    liar["release"]["guarantee"]["epsilon"] = 3.0
    found = collect({"a": sent["a"], "b": json.dumps(liar)}.items(), ["a", "b"], question)
    assert set(found.left_out) == {"b"}
    both = collect(sent.items(), ["a", "b"], question)
    assert (both.combine().n, both.left_out) == (4000, {})
    assert "answered" in both.report()


def test_what_cannot_be_combined_is_each_sites_own(tmp_path, untried):
    call, asked = ASKED["compliers"]
    question = Question.of_call("q1", call, {"epsilon": 1.0, **asked})
    found = collect([("a", answer(question, registry(tmp_path)))], ["a"], question)
    with pytest.raises(ReleaseError, match="each site has its own"):
        found.combine()
    assert found.releases["a"].summary()


def test_a_policy_that_allows_nothing_known_is_refused(tmp_path):
    with pytest.raises(PolicyError, match="methods"):
        policy(tmp_path, methods=["dp_magic"])
