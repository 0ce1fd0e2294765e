"""Requests: one answer each, budgets that hold under threads, stewards who decide."""

import pytest

from dpeffects.errors import DPEffectsError, QuestionError
from dpeffects.services.gate.answers import NO_ESTIMATE, result_of
from dpeffects.services.gate.question import Question
from dpeffects.services.office.accounts import DeskError
from tests.office.offices import Running, asked, asked_at_once


def test_a_request_that_is_sent_twice_is_one(running):
    first, second = running.ask(), running.ask()
    assert first == second
    assert len(running.desk.states()) == 1
    assert running.ask(epsilon=0.2000001)["id"] != first["id"]
    other = running.ask("bert", "births")
    assert other["id"] != first["id"]  # of another project


def test_the_state_has_what_was_asked(running):
    for call, options in (
        ("dp_att", {"method": "diff_in_means"}),
        ("dp_qte", {"quantiles": [0.25, 0.5]}),
        ("dp_did", {"before": "x"}),
    ):
        state = running.desk.submit(
            running.person("anna"), "ageing", asked(call) | {"options": options}
        )
        assert (state["call"], state["options"]) == (call, options)
        sent = {name: state[name] for name in ("call", "formula", "epsilon", "delta", "options")}
        assert running.desk.submit(running.person("anna"), "ageing", sent)["id"] == state["id"]


@pytest.mark.parametrize(
    ("approval", "epsilon", "status"),
    [
        ("always", 0.1, "waiting"),
        ("above", 0.5, "queued"),
        ("above", 0.51, "waiting"),
        ("never", 1.9, "queued"),
    ],
)
def test_the_settings_say_who_decides(tmp_path, approval, epsilon, status):
    running = Running(tmp_path, approval=approval)
    assert running.ask(epsilon=epsilon)["status"] == status


def test_a_steward_approves_or_refuses_with_a_reason(running):
    one, two = running.ask()["id"], running.ask(epsilon=0.3)["id"]
    sue, anna = running.person("sue"), running.person("anna")
    for who in (anna, running.person("bert")):
        with pytest.raises(DeskError, match="only a steward"):
            running.desk.approve(who, one)
    running.desk.approve(sue, one)
    running.desk.refuse(sue, two, "  ask the\nregistry first ")
    with pytest.raises(DeskError, match="say why"):
        running.desk.refuse(sue, one, " ")
    assert running.desk.state(anna, one)["status"] == "queued"
    refused = running.desk.state(anna, two)
    assert (refused["status"], refused["reason"]) == ("refused", "ask the registry first")
    assert running.ask(epsilon=0.3)["status"] == "refused"  # a steward's no stays
    with pytest.raises(DeskError, match="refused already"):
        running.desk.approve(sue, two)
    actions = [(event["account"], event["action"]) for event in running.desk.events(3)]
    assert ("sue", "approved") in actions
    assert ("sue", "refused") in actions


def test_nobody_approves_an_own_request(running):
    running.accounts.set_member("test", "sue", "ageing")
    own = running.ask("sue")["id"]
    with pytest.raises(DeskError, match="somebody else"):
        running.desk.approve(running.person("sue"), own)


def test_people_see_requests_of_their_projects_only(running):
    request = running.ask()["id"]
    with pytest.raises(DeskError, match="no such request"):
        running.desk.state(running.person("bert"), request)
    with pytest.raises(DeskError, match="no member"):
        running.ask("bert", "ageing")
    running.accounts.set_member("test", "bert", "ageing")
    assert running.desk.state(running.person("bert"), request)["person"] == "anna"
    assert running.desk.states(running.person("bert")) == []


def test_budgets_are_exact(tmp_path):
    running = Running(tmp_path, approval="never")
    running.accounts.set_budget("test", "person", "anna", 0.3, None)
    options = [{"estimand": "ATE"}, {"design": "randomised"}, {"level": "sample"}]
    states = [running.ask(epsilon=0.1, **more)["status"] for more in options]
    assert states == ["queued"] * 3  # 0.1 three times is 0.3
    refused = running.ask(epsilon=1e-6)
    assert refused["status"] == "refused"
    assert "of this person does not cover" in refused["reason"]
    assert running.desk.budget("ageing", "anna")["person"]["epsilon"]["left"] == 0.0
    running.accounts.set_budget("test", "person", "anna", 0.5, None)
    assert running.ask(epsilon=1e-6)["status"] == "queued"  # it is asked anew


def test_a_budget_holds_when_many_ask_at_once(tmp_path):
    running = Running(tmp_path, approval="never")
    running.accounts.set_budget("test", "project", "ageing", 0.5, None)
    assert asked_at_once(running) == ["queued"] * 4 + ["refused"] * 4


def test_a_budget_holds_when_many_are_approved(running):
    running.accounts.set_budget("test", "project", "ageing", 0.5, None)
    ids = [running.ask(epsilon=0.3 + k * 1e-9)["id"] for k in range(3)]
    sue = running.person("sue")
    running.desk.approve(sue, ids[0])
    for other in ids[1:]:
        with pytest.raises(DeskError, match="does not cover"):
            running.desk.approve(sue, other)
    assert running.desk.counts() == {"queued": 1, "waiting": 2}


def test_a_budget_comes_back_only_if_nothing_was_paid(tmp_path):
    running = Running(tmp_path, approval="never")
    one, two = running.ask(epsilon=0.2)["id"], running.ask(epsilon=0.3)["id"]
    assert running.desk.claim().id == one
    running.desk.finish(one, {"status": "refused", "reason": "no such column"})
    assert running.desk.claim().id == two
    running.desk.finish(two, {"status": "refused", "reason": NO_ESTIMATE})
    anna = running.person("anna")
    assert running.desk.state(anna, one)["status"] == "refused"
    assert running.desk.state(anna, two)["status"] == "failed"
    assert running.desk.budget("ageing")["project"]["epsilon"]["spent"] == 0.3


def test_what_was_approved_and_the_gate_refused_can_be_asked_again(running):
    request = running.ask()["id"]
    running.desk.approve(running.person("sue"), request)
    running.desk.finish(request, {"status": "refused", "reason": "more time than there is"})
    assert running.desk.state(running.person("anna"), request)["status"] == "refused"
    assert running.ask()["status"] == "waiting"


def test_what_the_policy_refuses_costs_nothing_and_says_why(running):
    for changes in ({"formula": "nothing ~ t"}, {"epsilon": 3.0}, {"delta": 0.1}):
        state = running.ask(**changes)
        assert state["status"] == "refused"
        assert state["reason"]
    assert running.desk.counts() == {"refused": 3}


@pytest.mark.parametrize(
    "asked",
    [
        None,
        [],
        {"call": "dp_ate"},
        asked() | {"options": []},
        asked() | {"seed": 1},
        asked(seed=1),
        asked(request="x"),
        asked(epsilon=-1.0),
        asked(epsilon=True),
        asked(epsilon="1"),
        asked(call="reference"),
        asked(call="__import__"),
        asked() | {"call": 3},
        asked(formula="y ~ t | __import__('os').system('true')"),
        asked(formula="y ~ t" * 1000),
    ],
)
def test_what_is_no_question_is_refused_before_it_is_kept(running, asked):
    with pytest.raises(DPEffectsError):
        running.desk.submit(running.person("anna"), "ageing", asked)
    assert running.desk.states() == []


def test_options_do_not_stand_for_fields(running):
    with pytest.raises(QuestionError, match="other names"):
        running.ask(formula="y ~ t", **{"call2": 1} | {"request": "x"})


def test_the_queue_is_in_order_and_what_nobody_holds_is_taken_again(tmp_path):
    running = Running(tmp_path, approval="never")
    ids = [running.ask(epsilon=e)["id"] for e in (0.1, 0.2)]
    assert running.desk.claim().id == ids[0]
    assert running.desk.claim(held=ids[:1]).id == ids[1]
    assert running.desk.claim(held=ids) is None
    assert running.desk.claim(held=ids[1:]).id == ids[0]


def test_people_take_turns(tmp_path):
    running = Running(tmp_path, approval="never")
    many = [running.ask(epsilon=0.01 + k / 1000)["id"] for k in range(4)]
    one = running.ask("bert", "births", epsilon=0.1)["id"]
    two = running.ask("bert", "births", epsilon=0.2)["id"]
    taken = []
    for _ in range(6):
        taken.append(running.desk.claim(taken).id)
    assert taken == [many[0], one, many[1], two, *many[2:]]


def test_nobody_asks_without_end(tmp_path):
    running = Running(tmp_path, approval="never", requests_per_day=3)
    for k in range(3):
        running.ask(formula="nothing ~ t", epsilon=0.1 + k / 100)  # refused, and kept
    with pytest.raises(DeskError, match="of a day") as told:
        running.ask()
    assert told.value.status == 429
    assert running.ask(formula="nothing ~ t", epsilon=0.1)["status"] == "refused"  # known
    assert running.ask("bert", "births")["status"] == "queued"


def test_an_answer_is_that_of_the_gate(tmp_path):
    running = Running(tmp_path, approval="never")
    request = running.ask(call="dp_qte", quantiles=[0.5])["id"]
    task = running.desk.claim()
    reply = result_of(Question.from_json(task.question), running.folder.policy(), again=True)
    running.desk.finish(request, reply)
    state = running.desk.state(running.person("anna"), request)
    assert (state["status"], state["kind"]) == ("answered", "QuantileEffects")
    again = result_of(Question.from_json(task.question), running.folder.policy(), again=True)
    assert again["result"] == state["result"]
    assert running.desk.budget()["dataset"]["epsilon"]["spent"] == pytest.approx(0.2)
