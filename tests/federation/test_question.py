"""A question is read strictly: whatever comes, it is a Question or one clear error."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpeffects.errors import QuestionError
from dpeffects.services.gate import Question
from tests.cases import each
from tests.federation.sites import question

GOOD = question(options={"arms": "private"}).to_dict()

DEEP: list = []
for _ in range(10**5):
    DEEP = [DEEP]
BAD = {
    "no request": ("request", {"request": ""}),
    "request with a slash": ("request", {"request": "../x"}),
    "long request": ("request", {"request": "a" * 101}),
    "formula of another type": ("formula must be text", {"formula": 3}),
    "formula that calls": ("`__import__`", {"formula": "y ~ t | __import__('os')"}),
    "formula that is not one": ("~", {"formula": "y"}),
    "text epsilon": ("epsilon must be a number", {"epsilon": "1"}),
    "bool epsilon": ("epsilon must be a number", {"epsilon": True}),
    "huge epsilon": ("epsilon must be finite", {"epsilon": 10**400}),
    "no epsilon": ("epsilon must be positive", {"epsilon": 0}),
    "delta of one": ("delta", {"delta": 1.0}),
    "unknown estimand": ("estimand", {"estimand": "LATE"}),
    "unknown rule": ("rule", {"rule": "best"}),
    "endless": ("deadline", {"deadline": 0}),
    "options as a list": ("options must be an object", {"options": []}),
    "nested option": ("'arms' must be text", {"options": {"arms": [["public"]]}}),
    "unknown entry": ("a question has the unknown field code", {"code": "print()"}),
    "seed": ("'seed' cannot be an option", {"options": {"seed": 1}}),
    "unit": (
        "'unit' cannot be an option of a question: sites answer for all",
        {"options": {"unit": "patient"}},
    ),
    "points": ("'at' cannot be an option", {"options": {"at": {"age": 18}}}),
    "bounds": ("'bounds' cannot be an option", {"options": {"bounds": "from_data"}}),
    "ledger": ("'ledger' cannot be an option", {"options": {"ledger": None}}),
    "epsilon twice": ("'epsilon' cannot be an option", {"options": {"epsilon": 9}}),
    "dunder": ("not the name of an option", {"options": {"__class__": 1}}),
    "many terms": ("", {"formula": "y ~ t | " + " + ".join(["x"] * 3000)}),
    "many points": ("", {"formula": f"y ~ t | cut(x, {[i / 30 for i in range(300)]})"}),
    "many levels": ("", {"formula": f"y ~ t | C(x, levels={list(range(300))})"}),
    "a list of lists": ("", {"formula": [[]] * 10**6}),
    "a request without end": ("", {"request": "a" * 10**7}),
    "many options": ("", {"options": {f"o{i}": 1 for i in range(10**5)}}),
    "a long option": ("", {"options": {"design": "a" * 10**6}}),
    "a huge option": ("", {"options": {"design": 10**400}}),
    "a listed option": ("", {"options": {"design": [1] * 300}}),
    "a call": ("call must be dp_ate or", {"call": "load_data"}),
    "a method of its own": ("takes no method", {"call": "dp_qte", "method": "magic"}),
    "a huge deadline": ("", {"deadline": 10**400}),
    "many entries": ("", {f"more{i}": 1 for i in range(10**5)}),
    "a deep formula": ("", {"formula": DEEP}),
    "a deep option": ("", {"options": {"design": DEEP}}),
    "a deep request": ("", {"request": DEEP}),
}


@each("case", BAD)
def test_bad_questions_are_refused(case):
    """In a line; a question is small, and whatever is not is not worked on, nor quoted."""
    words, change = BAD[case]
    with pytest.raises(QuestionError) as error:
        Question.from_dict({**GOOD, **change})
    assert words in str(error.value)
    assert len(str(error.value)) < 6000


@pytest.mark.parametrize("missing", ["request", "formula", "epsilon"])
def test_missing_entries(missing):
    with pytest.raises(QuestionError, match=f"a question lacks the field {missing}"):
        Question.from_dict({k: v for k, v in GOOD.items() if k != missing})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        "{",
        '{"request": "a", "request": "b"}',
        json.dumps({**GOOD, "epsilon": float("nan")}),
        "[" * 100_000,
        " " * 70_000,
        None,
        b"{}",
    ],
)
def test_text_that_is_no_question(text):
    with pytest.raises(QuestionError):
        Question.from_json(text)


def test_round_trip_and_hash():
    asked = Question.from_dict(GOOD)
    again = Question.from_json(asked.to_json())
    assert again == asked
    assert again.digest == asked.digest
    later = Question.from_dict({**GOOD, "deadline": 5})
    assert later.digest == asked.digest  # a second try may have another deadline
    for change in ({"epsilon": 0.4}, {"formula": "y ~ t | x"}, {"options": {}}, {"rule": "mvagg"}):
        assert Question.from_dict({**GOOD, **change}).digest != asked.digest


def test_options_cannot_be_changed():
    with pytest.raises(TypeError):
        question(options={"a": 1}).options["seed"] = 1


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
values = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8
)


@given(st.sampled_from(sorted(GOOD)), values)
def test_any_value_gives_a_question_or_a_clear_error(name, value):
    try:
        made = Question.from_dict({**GOOD, name: value})
    except QuestionError:
        return
    assert Question.from_json(made.to_json()) == made


@given(values)
def test_any_document_gives_a_clear_error(value):
    with pytest.raises(QuestionError):
        Question.from_dict(value)
