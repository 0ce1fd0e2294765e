"""A policy file is read strictly, and a refusal never depends on the values of the data."""

from __future__ import annotations

import pytest

from dpeffects.errors import PolicyError, RefusalError
from dpeffects.privacy.ledger import Terms
from dpeffects.services.gate import Policy
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
    read = Policy.read(tmp_path / "policy.toml")
    assert read.data == tmp_path / "data.csv"
    assert read.ledger == tmp_path / "ledger.sqlite"
    assert read.bounds == {"y": (0, 1), "x": (0, 10), "region": ["N", "S"]}
    assert (read.estimands, read.level, read.max_delta) == (("ATE",), "sample", 0.0)


@pytest.mark.parametrize("text", ["site = ", "\xff", 'site = "a"\nsite = "b"'])
def test_a_broken_file_is_named(tmp_path, text):
    path = tmp_path / "policy.toml"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(PolicyError, match=r"policy\.toml"):
        Policy.read(path)
    with pytest.raises(PolicyError, match=r"none\.toml"):
        Policy.read(tmp_path / "none.toml")


BAD = {
    "unknown entry": ("a policy has the unknown field seed", {"seed": 1}),
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
    "reversed": ("the lower end must be below", {"bounds": {"y": {"range": [1, 0]}}}),
    "bound of nothing": ("'z' is not one of", {"bounds": {"z": {"range": [0, 1]}}}),
    "n": ("minimum_n", {"minimum_n": 1}),
    "flag": ("public_treatment", {"public_treatment": 1}),
    "columns of a question": ("max_columns", {"max_columns": 0}),
    "seconds": ("max_seconds", {"max_seconds": "60"}),
    "memory": ("max_memory", {"max_memory": 0.5}),
    "one arm": ("at least two", {"bounds": {**ENTRIES["bounds"], "t": {"levels": ["no"]}}}),
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
        {"formula": "y ~ t | C(region, levels=['N', 'W'])", "method": "auto"},
    ),
    "levels of the treatment": (
        "levels of 't' are not those",
        {"formula": "y ~ C(t, levels=[0, 2])"},
    ),
    "option": ("has no option 'magic'", {"options": {"magic": 1}}),
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
def test_data_that_does_not_fit_is_found_by_the_operator(tmp_path, case):
    """The check of a site's start-up names the column, and no value."""
    with pytest.raises(PolicyError) as error:
        policy(tmp_path, UNFIT[case]).check()
    for value in ("W", "high"):
        assert value not in str(error.value).replace("data.csv", "").split()


def test_data_that_fits_passes_the_check(tmp_path):
    policy(tmp_path).check()


def test_values_that_cannot_be_used_are_replaced_by_what_the_policy_gives(tmp_path):
    data = frame().astype(object)
    data.loc[0] = [None, 2, "many", "W"]
    data.loc[1] = ["inf", "yes", -3, ""]
    data.loc[2] = [7, "true", " 4.5 ", " S "]
    read = policy(tmp_path, data).load().frame
    assert read.loc[0].tolist() == [0.5, 5.0, "N", False]
    assert read.loc[1].tolist() == [0.5, 0.0, "N", False]
    assert read.loc[2].tolist() == [1.0, 4.5, "S", True]
    assert (read.dtypes.astype(str) == policy(tmp_path, frame()).load().frame.dtypes).all()


def test_undeclared_columns_are_found(tmp_path):
    bounds = {k: v for k, v in ENTRIES["bounds"].items() if k != "x"}
    with pytest.raises(PolicyError, match="bounds are missing for x"):
        policy(tmp_path, bounds=bounds).load()


def test_a_small_site_refuses(tmp_path):
    with pytest.raises(RefusalError, match="needs 1000 records and has 400"):
        policy(tmp_path, minimum_n=1000).load()


def test_parquet(tmp_path):
    frame().to_parquet(tmp_path / "data.parquet")
    read = Policy.from_dict({**ENTRIES, "data": "data.parquet"}, tmp_path)
    assert len(read.load()) == 400


def test_codes_that_look_like_numbers_are_texts_where_levels_say_so(tmp_path):
    data = frame()
    data["region"] = data["region"].map({"N": "01", "S": "02"})
    bounds = {**ENTRIES["bounds"], "region": {"levels": ["01", "02"]}}
    assert set(policy(tmp_path, data, bounds=bounds).load().frame["region"]) == {"01", "02"}


def test_a_row_with_other_fields_than_the_header(tmp_path):
    """One record with a comma too many made the whole file unreadable, for every question."""
    rows = frame().to_csv(index=False).splitlines()
    rows[3], rows[4], rows[5] = f"{rows[3]},more,more", "0.5", "\xe9,1,2,N"
    (tmp_path / "data.csv").write_bytes("\n".join(rows).encode("latin-1"))
    read = policy(tmp_path).load().frame
    assert len(read) == 400
    assert read.loc[3].tolist() == [0.5, 5.0, "N", False]


def test_a_file_that_cannot_be_read_is_not_quoted(tmp_path):
    (tmp_path / "data.csv").write_text("")
    with pytest.raises(PolicyError, match=r"data\.csv cannot be read: it is empty"):
        policy(tmp_path).load()
    (tmp_path / "data.parquet").write_text("secret")
    for name in ("none.csv", "data.parquet", "data.txt", "."):
        with pytest.raises(PolicyError) as error:
            Policy.from_dict({**ENTRIES, "data": name}, tmp_path).load()
        assert "secret" not in str(error.value)


def test_made_up_rows_know_only_what_is_public(tmp_path):
    """They are made of the policy and n, so even the types of the data's columns do not show."""
    made = policy(tmp_path, frame().astype(str)).layout.made_up(400)
    assert len(made) == 400
    assert set(made["region"]) == {"N", "S"}
    assert (made["y"].min(), made["y"].max(), made["x"].max()) == (0.0, 1.0, 10.0)
    assert made["t"].sum() == 200
