"""Protocols: a study's arguments in a TOML file, checked where they are written."""

import inspect
from dataclasses import fields, replace

import numpy as np
import pandas as pd
import pytest

import dpeffects as dpe
from dpeffects.errors import DataError, OptionError
from tests.cases import each

WHERE_IT_IS_RUN = {"data", "ledger", "dataset", "seed"}
BASE = 'formula = "a + b ~ t | age"\nepsilon = 1\n'
RNG = np.random.default_rng(3)
N = 300
DATA = pd.DataFrame(
    {
        "a": RNG.random(N),
        "b": RNG.integers(0, 2, N),
        "t": np.arange(N) % 2,
        "age": RNG.uniform(18, 90, N),
        "sex": RNG.choice(["f", "m"], N),
    }
)
BOUNDS = {"a": (0, 1), "b": (0, 1), "age": (18, 90), "sex": ["f", "m"]}


def protocol(**changes):
    usual = {"epsilon": 1.0, "bounds": BOUNDS, "design": "randomised", "subgroups": ["sex"]}
    return dpe.Protocol("a + b ~ t | age", **usual | changes)


def test_a_protocol_has_the_arguments_of_a_study():
    own = {f.name: f for f in fields(dpe.Protocol)}
    asked = inspect.signature(dpe.dp_study).parameters
    assert own.keys() - {"sites", "minimum_n"} == asked.keys() - WHERE_IT_IS_RUN
    for name in own.keys() - {"sites", "minimum_n", "bounds", "budget_split", "options", "formula"}:
        default = asked[name].default
        assert name == "epsilon" or own[name].default == default


def test_it_is_written_and_read_again(tmp_path):
    whole = protocol(
        delta=1e-6, unit="id", weights="w", subset="age >= 20", missing={"age": "complete"},
        contrasts="pairwise", check_bounds=True, budget_split={"outcomes": 0.5}, estimand="ATT",
        options={"adjust": False}, sites=["North", "South"], minimum_n=100,
        bounds=BOUNDS | {"w": (0, 8), "my day": ("2020-01-01", "2021-01-01"), "*_hx": [0, 1]},
    )  # fmt: skip
    assert dpe.Protocol.from_toml(whole.to_toml()) == whole
    assert dpe.Protocol.from_dict(whole.to_dict()) == whole
    path = tmp_path / "protocol.toml"
    path.write_text(whole.to_toml())
    assert dpe.read_protocol(path).fingerprint == whole.fingerprint


def test_bounds_may_stand_in_a_file_beside_it(tmp_path):
    (tmp_path / "book.csv").write_text("column,min,max\nage,18,90\na,0,1\nb,0,1\n")
    (tmp_path / "protocol.toml").write_text(BASE + 'bounds = "book.csv"')
    read = dpe.read_protocol(tmp_path / "protocol.toml")
    assert read.bounds == {"age": (18, 90), "a": (0, 1), "b": (0, 1)}


def test_the_fingerprint_is_that_of_what_is_asked():
    one = protocol()
    assert replace(one, epsilon=1).fingerprint == one.fingerprint
    assert replace(one, formula="a  +  b ~ t | age\n").fingerprint == one.fingerprint
    order = dict(reversed(BOUNDS.items()))
    assert replace(one, bounds=order).fingerprint == one.fingerprint
    others = [
        {"epsilon": 2}, {"delta": 1e-6}, {"subgroups": ()}, {"formula": "a + b ~ t"},
        {"design": "observational"}, {"bounds": BOUNDS | {"age": (18, 91)}},
        {"bounds": BOUNDS | {"sex": ["m", "f"]}}, {"missing": "complete"}, {"sites": ["North"]},
        {"options": {"adjust": False}},
    ]  # fmt: skip
    prints = {one.fingerprint, *(replace(one, **change).fingerprint for change in others)}
    assert len(prints) == len(others) + 1


@each(
    ("text", "told"),
    [
        ("epsilom = 1", "unknown entry 'epsilom'; did you mean 'epsilon'?"),
        ("adjust = false", "'adjust' is an option of the method: write it under [options]"),
        ("seed = 3", "'seed' cannot be in a protocol: give it where the study is run"),
        ("data = 'x.csv'", "'data' cannot be in a protocol"),
        ("subgroups = [1]", "subgroups must be a list of text"),
        ("subgroups = ['age +']", "cannot be read"),
        ("delta = 'x'", "delta must be a number, got 'x'"),
        ("delta = 2.0", "delta must be at least 0 and below 1"),
        ("design = 'random'", "design must be one of observational, randomised"),
        ("estimand = 'LATE'", "ATE"),
        ("[options]\nadjst = true", "Did you mean 'adjust'?"),
        ("[options]\nseed = 1", "has no option 'seed'"),
        ("missing = 'drop'", "missing must be one of"),
        ("[missing]\nzz = 'complete'", "'zz' that is not in the formula"),
        ("subset = 'age >'", "write a condition such as"),
        ("contrasts = 'all'", "contrasts must be one of reference, pairwise"),
        ("unit = 3", "unit must be text or null, got 3"),
        ("weights = 'a'", "weights='a' is the outcome"),
        ("[bounds]\nage = 3", "age = {range = [0, 1]}"),
        ("bounds = 'none.toml'", "none.toml cannot be read"),
        ("sites = ['A', 'A']", "sites must name each site once"),
        ("minimum_n = 1.5", "minimum_n must be a whole number"),
        ("minimum_n = -1", "minimum_n must be a whole number"),
        ("check_bounds = 1", "check_bounds must be true or false"),
        ("epsilon = 2", "is not valid TOML"),
        ("x", "is not valid TOML"),
    ],
)
def test_a_mistake_is_answered_in_one_line(text, told):
    with pytest.raises(OptionError) as caught:
        dpe.Protocol.from_toml(BASE + text, "p.toml")
    said = str(caught.value)
    assert said.startswith("p.toml")
    assert told in said
    assert "\n" not in said


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "formula and epsilon must be given"),
        ("epsilon = 1", "formula must be given"),
        ("formula = 3\nepsilon = 1", "formula must be text"),
        ("formula = 'a ~ t'\nepsilon = 0", "epsilon must be positive"),
        ("formula = 'a ~ t | .'\nepsilon = 1", "write the columns in place"),
        ("formula = 'a ~ '\nepsilon = 1", "protocol: "),
    ],
)
def test_what_a_protocol_needs(text, told):
    with pytest.raises(OptionError) as caught:
        dpe.Protocol.from_toml(text)
    assert told in str(caught.value)


def test_files_that_are_none(tmp_path):
    for path in (tmp_path / "none.toml", tmp_path):
        with pytest.raises(OptionError, match="cannot be read"):
            dpe.read_protocol(path)
    (tmp_path / "p.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(OptionError, match="not UTF-8"):
        dpe.read_protocol(tmp_path / "p.toml")
    with pytest.raises(OptionError, match="cannot be in a protocol"):
        protocol(bounds="from_data")


def test_running_it_is_the_study():
    asked = protocol(options={"adjust": False})
    ran = asked.run(DATA, seed=1)
    direct = dpe.dp_study(
        "a + b ~ t | age", DATA, subgroups=["sex"], epsilon=1, bounds=BOUNDS, design="randomised",
        adjust=False, seed=1,
    )  # fmt: skip
    assert ran.details == {**direct.details, "protocol": asked.fingerprint}
    assert replace(ran, details=direct.details) == direct
    assert asked.fingerprint in str(ran.summary())


def test_too_few_records_are_refused_before_anything_is_paid():
    ledger = dpe.Ledger(5)
    with pytest.raises(DataError, match="needs 301 records, and the data has 300"):
        protocol(minimum_n=301).run(DATA, ledger=ledger)
    assert ledger.spent == (0, 0)
    assert protocol(minimum_n=300).run(DATA, ledger=ledger).n == N
    assert ledger.spent == (1, 0)


def test_a_protocol_is_read_from_its_own_json():
    made = dpe.Protocol(formula="y ~ t | x", epsilon=1.0, bounds={"y": (0, 1), "x": (0, 1)})
    assert dpe.Protocol.from_json(made.to_json()) == made
    with pytest.raises(OptionError):
        dpe.Protocol.from_json("[1]")
