"""A policy file is read strictly, and a refusal never depends on the values of the data."""

from __future__ import annotations

import json

import pytest

from dpeffects.errors import PolicyError, RefusalError
from dpeffects.federation import SitePolicy
from dpeffects.privacy.ledger import Terms
from tests.federation.sites import ENTRIES, frame, policy, question

TEXT = """
site = "north"
data = "data.csv"
ledger = "ledger.sqlite"
max_epsilon = 1
total_epsilon = 2.0
methods = ["diff_in_means"]
[columns]
outcome = ["y"]
treatment = ["t"]
covariates = ["x", "region"]
[bounds]
y = { range = [0, 1] }
x = { range = [0, 10] }
region = { levels = ["N", "S"] }
"""


def test_a_file_is_read_and_its_paths_are_beside_it(tmp_path):
    (tmp_path / "policy.toml").write_text(TEXT)
    read = SitePolicy.read(tmp_path / "policy.toml")
    assert read.data == tmp_path / "data.csv"
    assert read.ledger == tmp_path / "ledger.sqlite"
    assert read.bounds == {"y": (0, 1), "x": (0, 10), "region": ["N", "S"]}
    assert (read.estimands, read.level, read.max_delta) == (("ATE",), "sample", 0.0)


@pytest.mark.parametrize("text", ["site = ", "\xff", 'site = "a"\nsite = "b"'])
def test_a_broken_file_is_named(tmp_path, text):
    path = tmp_path / "policy.toml"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(PolicyError, match=r"policy\.toml"):
        SitePolicy.read(path)
    with pytest.raises(PolicyError, match=r"none\.toml"):
        SitePolicy.read(tmp_path / "none.toml")


BAD = {
    "unknown entry": ("unknown entries seed", {"seed": 1}),
    "name": ("site must be", {"site": "a b"}),
    "epsilon": ("epsilon must be positive", {"max_epsilon": 0}),
    "text epsilon": ("epsilon must be a number", {"total_epsilon": "2"}),
    "method": ("'magic' is not one of", {"methods": ["magic"]}),
    "no methods": ("methods must be a list", {"methods": []}),
    "estimand": ("'LATE' is not one of", {"estimands": ["LATE"]}),
    "level": ("'none' is not one of", {"level": "none"}),
    "above": ("'ask' is not one of", {"above_maximum": "ask"}),
    "columns": ("columns must name", {"columns": {"outcome": ["y"]}}),
    "role": ("'weights' is not one of", {"columns": {**ENTRIES["columns"], "weights": ["w"]}}),
    "bound": ("write y = ", {"bounds": {"y": [0, 1]}}),
    "both": ("write y = ", {"bounds": {"y": {"range": [0, 1], "levels": [0, 1]}}}),
    "reversed": ("lower must be below", {"bounds": {"y": {"range": [1, 0]}}}),
    "bound of nothing": ("'z' is not one of", {"bounds": {"z": {"range": [0, 1]}}}),
    "n": ("minimum_n", {"minimum_n": 1}),
    "flag": ("public_treatment", {"public_treatment": 1}),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_policies_are_refused(tmp_path, case):
    words, change = BAD[case]
    with pytest.raises(PolicyError) as error:
        policy(tmp_path, **change)
    assert words in str(error.value)


REFUSED = {
    "method": ("does not allow the method", {"method": "private_psm"}),
    "unknown method": ("does not allow the method", {"method": "magic"}),
    "estimand": ("does not allow the estimand", {"estimand": "ATT"}),
    "epsilon": ("more than this site's maximum, 1", {"epsilon": 1.5}),
    "delta": ("more than this site's maximum, 0", {"delta": 1e-6}),
    "outcome": ("'x' as outcome", {"formula": "x ~ t"}),
    "treatment": ("'region' as treatment", {"formula": "y ~ region"}),
    "covariate": ("'secret' as covariates", {"formula": "y ~ t | secret"}),
    "foreign levels": (
        "levels of 'region' are not those",
        {"formula": "y ~ t | C(region, levels=['N', 'W'])", "method": "private_aipw"},
    ),
    "levels of the treatment": (
        "levels of 't' are not those",
        {"formula": "y ~ C(t, levels=[0, 2])"},
    ),
    "option": ("unknown option 'magic'", {"options": {"magic": 1}}),
    "level": ("answers at the level sample, not label", {"options": {"level": "label"}}),
    "public arms": ("does not take treatment as public", {"options": {"arms": "public"}}),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_have_a_reason(tmp_path, case):
    words, change = REFUSED[case]
    with pytest.raises(RefusalError) as refusal:
        policy(tmp_path).grant(question(**change))
    assert words in str(refusal.value)


def test_a_site_may_answer_with_less(tmp_path):
    strict, kind = policy(tmp_path), policy(tmp_path, above_maximum="lower")
    with pytest.raises(RefusalError):
        strict.grant(question(epsilon=3))
    assert kind.grant(question(epsilon=3)).price.epsilon == 1.0
    assert kind.grant(question(epsilon=0.2)).price.epsilon == 0.2


def test_public_arms_where_the_site_says_so(tmp_path):
    granted = policy(tmp_path, public_treatment=True).grant(question(options={"arms": "public"}))
    assert granted.price.terms == Terms("record", ("treatment",))


def broken(column, value):
    data = frame()
    data[column] = data[column].astype(object)
    data.loc[3, column] = value
    return data


UNFIT = {
    "missing value": broken("x", None),
    "another level": broken("region", "W"),
    "three treatments": broken("t", 2),
    "text outcome": broken("y", "high"),
    "missing column": frame().drop(columns="x"),
    "one arm": frame().assign(t=1),
}


@pytest.mark.parametrize("case", UNFIT)
def test_data_that_does_not_fit_is_found_before_any_question(tmp_path, case):
    with pytest.raises(PolicyError):
        policy(tmp_path, UNFIT[case]).load()


def test_undeclared_columns_are_found(tmp_path):
    bounds = {k: v for k, v in ENTRIES["bounds"].items() if k != "x"}
    with pytest.raises(PolicyError, match="bounds are missing for x"):
        policy(tmp_path, bounds=bounds).load()


def test_a_small_site_refuses(tmp_path):
    with pytest.raises(RefusalError, match="needs 1000 records and has 400"):
        policy(tmp_path, minimum_n=1000).load()


def test_parquet(tmp_path):
    frame().to_parquet(tmp_path / "data.parquet")
    read = SitePolicy.from_dict({**ENTRIES, "data": "data.parquet"}, tmp_path)
    assert len(read.load()) == 400


def test_codes_that_look_like_numbers_are_texts_where_levels_say_so(tmp_path):
    data = frame()
    data["region"] = data["region"].map({"N": "01", "S": "02"})
    bounds = {**ENTRIES["bounds"], "region": {"levels": ["01", "02"]}}
    assert set(policy(tmp_path, data, bounds=bounds).load().frame["region"]) == {"01", "02"}


def test_a_file_that_cannot_be_read_is_not_quoted(tmp_path):
    (tmp_path / "data.csv").write_text("y,t,x,region\n0,1,2,N\n0,1,2,N,secret,secret\n")
    with pytest.raises(PolicyError, match=r"data\.csv") as error:
        policy(tmp_path).load()
    assert "secret" not in str(error.value)
    with pytest.raises(PolicyError, match=r"none\.csv cannot be read"):
        SitePolicy.from_dict({**ENTRIES, "data": "none.csv"}, tmp_path).load()


def test_made_up_rows_know_only_what_is_public(tmp_path):
    """Two data sets of one size and one schema give the same rehearsal."""
    made = []
    for seed in (1, 2):
        site = policy(tmp_path, frame(seed))
        made.append(site.rehearsal(site.load()).frame.to_json())
    assert made[0] == made[1]
    assert len(json.loads(made[0])["y"]) == 400
