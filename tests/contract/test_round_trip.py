"""What is written is what is read: protocols and questions come back equal, or were never made."""

from __future__ import annotations

import datetime
import json
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dpeffects as dpe
from dpeffects.design.codebook import EmptyDeclaration, RangeOrLevels
from dpeffects.errors import DPEffectsError
from dpeffects.services.gate import Question
from tests.cases import each

DAYS = datetime.date(2020, 1, 1), datetime.date(2021, 6, 30)
BOOK = pd.DataFrame({"column": ["age", "sex"], "min": [18, None], "max": [90, None]})
BOUNDS: dict[str, Any] = {
    "none": None,
    "empty": {},
    "an empty range": {"age": ()},
    "an empty list": {"age": []},
    "an empty line that is not needed": {"spare": [], "age": (0, 9)},
    "not filled in": {"age": EmptyDeclaration("write it")},
    "not filled in and not needed": {"spare": EmptyDeclaration("write it")},
    "a codebook": BOOK,
    "whole numbers": {"age": (0, 9), "a": (-3, 3)},
    "floats": {"age": (0.0, 9.0), "a": (1e-300, 1e300)},
    "a large whole number": {"age": (0, 10**30)},
    "of numpy": {"age": (np.float64(0.5), np.int64(9)), "a": (np.float32(0.5), 1)},
    "an array": {"age": np.array([0, 9])},
    "a range or levels": {"age": RangeOrLevels((0, 1))},
    "as in TOML": {"age": {"range": [0, 9]}, "sex": {"levels": ["f", "m"]}},
    "a number": {"age": 9},
    "a word": {"age": "old"},
    "levels": {"sex": ["f", "m"], "b": [True, False], "a": [1, 2.5, "x"]},
    "nested levels": {"sex": [["f", "m"]]},
    "none among levels": {"sex": ["f", None]},
    "dates": {"age": DAYS},
    "times": {"age": tuple(datetime.datetime(y, 1, 1, 3, 4) for y in (2020, 2021))},
    "days in words": {"age": ("2020-01-01", "2021-06-30")},
    "days of pandas": {"age": tuple(map(pd.Timestamp, DAYS))},
    "unicode": {"ålder år": (0, 9), 'ω "q"': ["é", "\\n", "🙂", "a\x7fb", "c\td", "\n"]},
    "patterns": {"*_hx": [0, 1], "x?": (0, 1)},
    "infinite": {"age": (0, float("inf"))},
    "not a number": {"age": (0, float("nan"))},
}
FIELDS: dict[str, Any] = {
    **{f"bounds: {name}": {"bounds": bounds} for name, bounds in BOUNDS.items()},
    "defaults": {},
    "numbers": {"epsilon": 2, "delta": 0, "minimum_n": 5},
    "of numpy": {"epsilon": np.float64(0.1)},
    "empty": {"subgroups": [], "sites": (), "missing": {}, "budget_split": {}, "options": {}},
    "none": {"unit": None, "weights": None, "subset": None, "options": {"adjust": None}},
    "nested": {"missing": {"age": "complete"}, "budget_split": {"outcomes": 1}},
    "options": {"options": {"adjust": False}},
    "nested options": {"options": {"adjust": {"x": [1, None]}}},
    "one subgroup": {"subgroups": "age"},
    "words": {"unit": "id", "weights": "w", "subset": "age >= 20"},
    "unicode": {"subset": "age == 'é\"x'", "sites": ["Nørre", "Москва"], "unit": "ä b"},
    "spaces": {"formula": "a + b  ~ t \n | age"},
    "unicode formula": {"formula": "`å b` ~ t | `ω q`"},
}
WAYS = {
    "TOML": lambda made: dpe.Protocol.from_toml(made.to_toml()),
    "plain values": lambda made: dpe.Protocol.from_dict(made.to_dict()),
    "JSON": lambda made: dpe.Protocol.from_dict(json.loads(json.dumps(made.to_dict()))),
    "itself": lambda made: dpe.Protocol(**{f: getattr(made, f) for f in made.__dataclass_fields__}),
}


def made(**changes: Any) -> dpe.Protocol | None:
    """A protocol; None where it is refused, in words."""
    try:
        return dpe.Protocol(**{"formula": "a + b ~ t | age", "epsilon": 1} | changes)
    except DPEffectsError:
        return None


@each("way", WAYS)
@each("case", FIELDS)
def test_a_protocol_comes_back(case: str, way: str) -> None:
    protocol = made(**FIELDS[case])
    if protocol is not None:
        again = WAYS[way](protocol)
        assert again == protocol
        assert again.fingerprint == protocol.fingerprint
        assert again.to_toml() == protocol.to_toml()


def test_most_of_them_can_be_made() -> None:
    refused = [case for case, changes in FIELDS.items() if made(**changes) is None]
    assert len(refused) < len(FIELDS) / 3
    assert {"bounds: infinite", "bounds: a number", "bounds: not filled in"} <= set(refused)
    assert made(bounds={}) == made() == made(bounds=None)


QUESTIONS: dict[str, Any] = {
    "defaults": {},
    "numbers": {"epsilon": 2, "delta": 1e-300, "deadline": 3},
    "options": {"method": "auto", "options": {"a": None, "b": 1, "c": 1.5, "d": True, "e": "é"}},
    "empty options": {"options": {}},
    "unicode": {"formula": '`å b` ~ t | `ω "q`'},
    **{f"rule {rule}": {"rule": rule} for rule in ("ivw", "all", "robust")},
    "a study": {"bounds": {"a": (0, 1), "b": [0, 1], "age": DAYS}},
    "a study without bounds": {"bounds": {}, "options": {"adjust": False}},
    "a study with names": {"sites": ["Nørre", "South"], "minimum_n": 5, "subgroups": ["age"]},
}


@pytest.mark.parametrize("case", QUESTIONS)
def test_a_question_comes_back(case: str) -> None:
    changes = dict(QUESTIONS[case])
    if case.startswith("a study"):
        protocol = dpe.Protocol("a + b ~ t | age", 1, **changes)
        changes = {"formula": protocol.formula, "epsilon": 1.0, "method": "study", "rule": "all"}
        changes |= {"protocol": protocol.to_dict()}
    asked = Question("q1", **{"formula": "y ~ t", "epsilon": 0.5, "method": "auto"} | changes)
    for again in (Question.from_json(asked.to_json()), Question.from_dict(asked.to_dict())):
        assert again == asked
        assert (again.digest, again.to_json()) == (asked.digest, asked.to_json())
        assert again.study == asked.study
    if asked.study is not None:
        assert asked.study == protocol
