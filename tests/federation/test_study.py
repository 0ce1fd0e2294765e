"""Studies by the federation: a protocol is asked, and answered within each site's policy."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import dpeffects as dpe
from dpeffects.documents import checksum
from dpeffects.errors import QuestionError
from dpeffects.ledgers import create_ledger
from dpeffects.services.federation.centre import collect
from dpeffects.services.gate import Policy, Question
from dpeffects.services.gate.answers import answer

ENTRIES = {
    "data": "data.csv",
    "ledger": "ledger.sqlite",
    "max_epsilon": 2.0,
    "total_epsilon": 3.0,
    "methods": ["study"],
    "columns": {
        "outcome": ["y", "died"],
        "treatment": ["t"],
        "covariates": ["age", "sex"],
        "subgroups": ["sex"],
    },
    "bounds": {
        "y": {"range": [0, 1]},
        "died": {"range": [0, 1]},
        "age": {"range": [18, 90]},
        "sex": {"levels": ["f", "m"]},
    },
}
PROTOCOL = dpe.Protocol(
    "y + died ~ t | age",
    epsilon=1,
    subgroups=["sex"],
    design="randomised",
    bounds={"y": (0, 1), "died": (0, 1), "age": (18, 90), "sex": ["f", "m"]},
)


def policy(folder, site="north", seed=0, n=600, **changes):
    folder = folder / site
    if not folder.exists():
        folder.mkdir()
        rng = np.random.default_rng(seed)
        t = rng.integers(0, 2, n)
        pd.DataFrame(
            {
                "t": t,
                "sex": rng.choice(["f", "m"], n),
                "age": rng.integers(18, 91, n),
                "y": np.clip(0.4 + 0.1 * t + rng.normal(0, 0.1, n), 0, 1),
                "died": rng.integers(0, 2, n),
            }
        ).to_csv(folder / "data.csv", index=False)
        create_ledger(folder / "ledger.sqlite", "hospital", epsilon=3.0)
    return Policy.from_dict({"site": site, **ENTRIES, **changes}, folder)


def ask(request="s1", **changes):
    return Question.of_study(replace(PROTOCOL, **changes), request)


def test_a_question_round_trips():
    question = ask()
    assert Question.from_json(question.to_json()) == question
    assert question.study == PROTOCOL
    assert question.digest != ask(epsilon=0.5).digest
    other = Question("s1", "y ~ t", epsilon=1.0)
    assert "protocol" not in other.to_dict()  # as it always was, and so are digests


def test_sites_answer_and_are_combined_as_by_files(tmp_path):
    question = ask()
    sites = {name: policy(tmp_path, name, seed) for seed, name in enumerate(["north", "south"])}
    replies = [(name, json.dumps(answer(question, site))) for name, site in sites.items()]
    found = collect(replies, ["north", "south", "west"], question)
    assert found.left_out == {"west": "late: no answer within 60 s"}
    fit = found.combine()
    files = [dpe.StudyRelease.from_dict(json.loads(reply)["release"]) for _, reply in replies]
    assert fit == dpe.combine_studies(files, protocol=PROTOCOL, left_out=dict(found.left_out))
    assert fit.n == 1200
    assert fit.guarantee.status == "exact"
    assert fit.by("sex").labels[0] == "y | sex f"
    assert "site west" in found.report()
    assert json.loads(json.dumps(found.to_dict()))["question"]["method"] == "study"


def test_a_request_is_drawn_and_paid_once(tmp_path):
    site = policy(tmp_path)
    first = answer(ask(), site)
    assert first["status"] == "ok"
    assert answer(ask(), site) == first
    assert site.store().left == (2.0, 0.0)
    assert "another question" in answer(ask(epsilon=0.5), site)["reason"]
    assert answer(ask("s2"), site)["release"]["sums"] != first["release"]["sums"]
    assert answer(ask("s3"), site)["status"] == "ok"
    assert answer(ask("s4"), site)["status"] == "refused"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"bounds": {"age": (0, 90)}}, "this site declares other bounds of 'age'"),
        ({"bounds": {"sex": ["m", "f"]}}, "this site declares other bounds of 'sex'"),
        ({"formula": "y ~ t | height"}, "does not allow 'height' as covariates"),
        ({"formula": "y + age ~ t"}, "does not allow 'age' as outcome"),
        ({"subgroups": ("cut(age, [18, 50, 90])",)}, "does not allow 'age' as subgroups"),
        ({"subgroups": ("C(sex, levels=['f', 'x'])",)}, "are not those this site declares"),
        ({"epsilon": 2.5}, "epsilon 2.5 is more than this site's maximum, 2"),
        ({"delta": 1e-6}, "delta 1e-06 is more than this site's maximum, 0"),
        ({"sites": ("south",)}, "this site is not named in the protocol"),
        ({"minimum_n": 601}, "needs 601 records, and the data has 600"),
        ({"estimand": "ATT"}, "does not allow the estimand ATT"),
    ],
)
def test_refusals_cost_nothing(tmp_path, change, told):
    site = policy(tmp_path)
    reply = answer(ask(**change), site)
    assert reply["status"] == "refused"
    assert told in reply["reason"]
    assert site.store().left == (3.0, 0.0)


def test_limits_of_a_policy(tmp_path):
    site = policy(tmp_path, max_epsilon=0.5, above_maximum="lower")
    reply = answer(ask(), site)
    assert reply["release"]["guarantee"]["epsilon"] == 0.5
    assert reply["release"]["protocol"] == PROTOCOL.fingerprint
    assert collect([("north", reply)], ["north"], ask()).combine().guarantee.epsilon == 0.5
    wide = policy(tmp_path, max_columns=2)
    assert "maximum of 2 columns" in answer(ask("s2"), wide)["reason"]
    few = policy(tmp_path, minimum_n=1000)
    assert "needs 1000 records" in answer(ask("s3"), few)["reason"]
    other = policy(tmp_path, methods=["auto"])
    assert "does not allow the method study" in answer(ask("s4"), other)["reason"]
    plain = {**ENTRIES["columns"]}
    del plain["subgroups"]
    assert "'sex' as subgroups" in answer(ask("s5"), policy(tmp_path, columns=plain))["reason"]


def test_a_protocol_without_bounds_has_those_of_the_sites(tmp_path):
    reply = answer(ask(bounds={}), policy(tmp_path))
    assert reply["release"]["sums"]["outcomes"][0]["high"] == 1.0


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"unit": "id"}, "'unit'"),
        ({"subset": "age > 30"}, "'subset'"),
        ({"missing": "complete"}, "'missing'"),
        ({"weights": "w"}, "'weights'"),
        ({"budget_split": {"outcomes": 0.5}}, "'budget_split'"),
        ({"check_bounds": True}, "'check_bounds'"),
        ({"options": {"max_rows": 2}, "unit": None}, "max_rows"),
    ],
)
def test_what_no_site_is_asked(change, told):
    with pytest.raises(QuestionError, match=told):
        ask(**change)


def test_questions_that_contradict_themselves():
    values = ask().to_dict()
    for change, told in (
        ({"epsilon": 0.1}, "epsilon is not that of the protocol"),
        ({"formula": "y ~ t"}, "formula is not that of the protocol"),
        ({"method": "auto"}, "go together"),
        ({"rule": "ivw"}, "rule is all"),
        ({"options": {"adjust": True}}, "in the protocol"),
        ({"protocol": {"formula": "y ~ t"}}, "epsilon must be given"),
        ({"protocol": 3}, "protocol must be"),
        ({"protocol": {**values["protocol"], "colour": "red"}}, "unknown entry 'colour'"),
    ):
        with pytest.raises(QuestionError, match=told):
            Question.from_dict(values | change)
    del values["protocol"]
    with pytest.raises(QuestionError, match="go together"):
        Question.from_dict(values)


def test_a_centre_leaves_out_what_does_not_answer(tmp_path):
    question, site = ask(), policy(tmp_path)
    reply = answer(question, site)

    def told(changed, asked=question, sender="north"):
        release = {**reply["release"], **changed}
        release["checksum"] = checksum(release)
        found = collect([(sender, {**reply, "release": release})], [sender], asked)
        assert not found.releases
        return found.left_out[sender]

    assert "another protocol" in told({"protocol": "sha256:0"})
    assert "another formula" in told({"formula": "y ~ t"})
    assert "another request" in told({"request": "s2"})
    assert "wrong site name" in told({}, sender="south")
    dear = {**reply["release"]["guarantee"], "epsilon": 2.0}
    assert "spent more than was asked for" in told({"guarantee": dear})
    void = {**reply["release"]["guarantee"], "void": ["seeded"]}
    assert "is not private" in told({"guarantee": void})
    assert "not plausible" in told({"charges": []})
    effect = Question("s1", "y ~ t", epsilon=1.0, method="diff_in_means")
    assert "malformed" in told({}, asked=effect)
    twice = [("north", reply), ("north", reply)]
    assert len(collect(twice, ["north"], question).releases) == 1
