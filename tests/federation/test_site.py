"""A site's answer: paid first, drawn once, and nothing of the data in a refusal."""

from __future__ import annotations

import threading
from fractions import Fraction

import numpy as np
import pytest

from dpeffects.errors import EstimationError
from dpeffects.services.gate import answer
from dpeffects.services.gate import answers as site
from dpeffects.services.sites import SiteRelease
from tests.federation.sites import frame, policy, question
from tests.federation.test_policy import REFUSED, UNFIT

HALF = Fraction(1, 2)


@pytest.fixture
def draws(monkeypatch):
    """Count what is drawn from data; rehearsals are in a process of their own."""
    found, real = [], site.released

    def counted(*args, request="", **kwargs):
        found.append(request)
        return real(*args, request=request, **kwargs)

    monkeypatch.setattr(site, "released", counted)
    return found


def test_an_answer(tmp_path):
    north = policy(tmp_path)
    reply = answer(question(), north)
    assert (reply["status"], reply["site"], reply["request"]) == ("ok", "north", "q1")
    release = SiteRelease.from_dict(reply["release"])
    assert (release.site, release.request, release.n) == ("north", "q1", 400)
    assert release.guarantee.holds
    assert release.guarantee.epsilon == 0.5
    assert release.bounds[0] == ("y", "[0, 1]", "declared")
    assert north.store().spent == (HALF, 0)


def test_asked_again_the_site_sends_the_same(tmp_path, draws):
    first = answer(question(), policy(tmp_path))
    for deadline in (60.0, 5.0):
        assert answer(question(deadline=deadline), policy(tmp_path)) == first
    other = answer(question(epsilon=0.4), policy(tmp_path))
    assert other["reason"] == "this request id was used for another question"
    assert draws == ["q1"]
    assert policy(tmp_path).store().spent == (HALF, 0)


def test_an_answer_stays_when_the_policy_gets_stricter(tmp_path):
    first = answer(question(), policy(tmp_path))
    stricter = policy(tmp_path, max_epsilon=0.1)
    assert answer(question(), stricter) == first
    assert answer(question("q2"), stricter)["status"] == "refused"


def test_the_total_holds(tmp_path, draws):
    north = policy(tmp_path)
    replies = [answer(question(f"q{i}"), north) for i in range(5)]
    assert [r["status"] for r in replies] == ["ok"] * 4 + ["refused"]
    assert replies[4]["reason"] == "the total epsilon of this site does not cover the question"
    assert len(draws) == 4


def test_a_lowered_epsilon_is_what_is_paid(tmp_path):
    north = policy(tmp_path, above_maximum="lower", max_epsilon=0.25)
    reply = answer(question(epsilon=1), north)
    assert reply["release"]["guarantee"]["epsilon"] == 0.25
    assert north.store().spent == (Fraction(1, 4), 0)


def test_it_is_paid_for_before_anything_is_drawn(tmp_path, monkeypatch):
    north, real, seen = policy(tmp_path), site.released, []

    def looks(*args, **kwargs):
        seen.append((kwargs.get("request"), north.store().spent[0]))
        return real(*args, **kwargs)

    monkeypatch.setattr(site, "released", looks)
    answer(question(), north)
    assert seen == [("q1", HALF)]


QUESTIONS = {
    **{case: change for case, (_, change) in REFUSED.items()},
    "categorical as number": {"formula": "y ~ t | log(region)", "method": "auto"},
    "outside the domain": {"formula": "y ~ t | log(x)", "method": "auto"},
    "needs a delta": {"formula": "y ~ t | region", "method": "smooth_matching"},
    "not discrete": {"formula": "y ~ t | x", "method": "smooth_matching"},
    "option out of range": {"options": {"arms": "some"}},
    "option of another type": {"method": "auto", "options": {"design": 3.5}},
}


@pytest.mark.parametrize("case", QUESTIONS)
def test_a_refusal_costs_nothing_and_does_not_depend_on_the_data(tmp_path, draws, case):
    extreme = frame().assign(y=np.arange(400) % 2, x=0.0, region="S")
    extreme["t"] = (np.arange(400) < 1).astype(int)
    replies = []
    for data in (frame(1), extreme):
        north = policy(tmp_path, data)
        replies.append(answer(question(**QUESTIONS[case]), north))
        assert north.store().spent == (0, 0)
    assert replies[0] == replies[1]
    assert replies[0]["status"] == "refused"
    assert draws == []


@pytest.mark.parametrize("case", sorted(set(UNFIT) - {"missing column"}))
def test_bad_data_is_answered_like_any_other(tmp_path, case):
    assert answer(question(), policy(tmp_path, UNFIT[case]))["status"] == "ok"


def test_a_missing_column_gives_one_answer_to_all_questions(tmp_path):
    north = policy(tmp_path, UNFIT["missing column"])
    for case in ("y ~ t", "y ~ t | region"):
        assert answer(question(formula=case), north)["reason"] == site.NOT_READY
    assert north.store().spent == (0, 0)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("value 4711 in row 3"), site.NOT_ANSWERED),
        (EstimationError("4711"), site.NO_ESTIMATE),
    ],
)
def test_a_failure_after_payment_is_an_answer(tmp_path, monkeypatch, error, reason):
    north, real = policy(tmp_path), site.released

    def fails(*args, **kwargs):
        raise error

    monkeypatch.setattr(site, "released", fails)
    reply = answer(question(), north)
    assert reply["reason"] == reason
    assert "4711" not in str(reply)
    monkeypatch.setattr(site, "released", real)
    assert answer(question(), north) == reply
    assert north.store().spent == (HALF, 0)


def test_two_at_once_draw_once(tmp_path, draws):
    replies, gate = [], threading.Barrier(4)

    def work():
        gate.wait()
        replies.append(answer(question(), policy(tmp_path)))

    policy(tmp_path).store()
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert draws == ["q1"]
    assert sum(r["status"] == "ok" for r in replies) >= 1
    assert policy(tmp_path).store().spent == (HALF, 0)


def test_a_ledger_that_cannot_be_opened(tmp_path):
    north = policy(tmp_path, ledger="no/such/folder/ledger.sqlite")
    assert answer(question(), north)["reason"] == site.NOT_READY
