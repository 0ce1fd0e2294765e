"""`check_bounds`: how many values were clipped is what a count of them says, up to known noise."""

import json

import numpy as np
import pandas as pd
import pytest

import dpeffects as dpe
from dpeffects.design.clipped import Clipped
from dpeffects.errors import OptionError
from dpeffects.flow import Estimation, Request
from tests.commands.shell import run

N = 4000
BOUNDS = {"y": (0, 1), "age": (18, 90), "x": (-5, 5), "g": ["a", "b"]}
FORMULA = "y ~ t | age + x + g"


def table():
    rng = np.random.default_rng(2)
    g = np.array(["a", "b"])[rng.integers(0, 2, N)]
    columns = {"y": rng.random(N), "t": rng.integers(0, 2, N), "age": rng.uniform(10, 90, N)}
    return pd.DataFrame({**columns, "x": rng.normal(size=N), "g": g})


def call(data=None, **more):
    given = {"epsilon": 1, "bounds": BOUNDS, "seed": 1, "check_bounds": True, "method": "one_step"}
    return dpe.dp_ate(FORMULA, table() if data is None else data, **given | more)


def found(data=None, **more):
    """Shares and noise, as the flow has them."""
    given = {"bounds": BOUNDS, "seed": 1, "check_bounds": True, "method": "one_step", "epsilon": 1}
    request = Request.of_effect("ATE", FORMULA, table() if data is None else data, **(given | more))
    estimation = Estimation(request)
    estimation.fit()
    estimation.close()
    return estimation.clipped


def test_with_much_budget_the_shares_are_those_of_the_data():
    data = table()
    clipped = found(epsilon=1e6)
    assert clipped.shares == pytest.approx(
        {"y": 0.0, "age": np.mean(data.age < 18), "x": np.mean(data.x.abs() > 5)}, abs=1e-3
    )
    inside = data[data.age >= 14]
    clipped = found(epsilon=1e6, subset="age >= 14")
    assert clipped.shares["age"] == pytest.approx(np.mean(inside.age < 18), abs=1e-3)
    people = data.assign(id=np.arange(N) // 2)
    clipped = found(people, epsilon=1e6, unit="id")
    assert clipped.shares["age"] == pytest.approx(np.mean(data.age < 18), abs=1e-3)


def test_missing_values_are_not_outside():
    data = table()
    data.loc[data.age < 14, "age"] = np.nan
    clipped = found(data, epsilon=1e6, missing={"age": "indicator"})
    assert clipped.shares["age"] == pytest.approx(np.mean(data.age < 18), abs=1e-3)


def test_what_is_public_costs_nothing():
    clipped = found(level="label")
    assert clipped.sds["age"] == 0.0
    assert clipped.shares["age"] == np.mean(table().age < 18)
    assert clipped.sds["y"] > 0.0


def test_notes_caution_and_charge():
    fit = call()
    assert "Many values clipped to the declared range: age 1" in fit.warnings
    assert "Many values clipped" in str(fit.summary()).split("Formula")[0]
    assert [note.split(":")[0] for note in fit.notes if "outside the declared" in note] == [
        *("y", "age", "x")
    ]
    assert sum(charge.label.endswith("outside declared ranges") for charge in fit.charges) == 1
    assert float(sum(charge.epsilon for charge in fit.charges)) <= 1.0
    assert "clipped" not in call(bounds=BOUNDS | {"age": (10, 90)}).warnings
    assert "clipped" not in str(call(check_bounds=False))
    more = call(budget_split={"check_bounds": 0.5}).charges
    assert max(s.epsilon for s in more if "outside" in s.label) > 0.2


def test_other_functions_have_it(tmp_path):
    given = {"bounds": BOUNDS, "seed": 1, "check_bounds": True, "epsilon": 2}
    data = table()
    balance = dpe.dp_balance(FORMULA, data, **given)
    assert "Many values clipped" in balance.warnings
    assert not any(note.startswith("y:") for note in balance.notes)
    assert dpe.dp_att(FORMULA, data, "one_step", **given).warnings
    function = dpe.dp_cate(FORMULA, data, delta=1e-6, **given)
    function.save(tmp_path / "fit.json")
    assert "Many values clipped" in dpe.load_cate(tmp_path / "fit.json").warnings
    groups = dpe.dp_cate(FORMULA, data, delta=1e-6, release="groups", by="g", **given)
    assert groups.warnings.count("Many values clipped") == 1
    means = dpe.dp_ate(FORMULA, data, "diff_in_means", **given | {"bounds": {"y": (0, 0.8)}})
    assert "Many values clipped to the declared range: y" in means.warnings


def test_a_check_that_says_nothing_is_refused_before_anything_is_charged():
    ledger = dpe.Ledger(9)
    with pytest.raises(OptionError, match="check_bounds would be mostly noise"):
        call(table().head(200), ledger=ledger)
    assert not ledger.charges
    with pytest.raises(OptionError, match="check_bounds must be True or False"):
        call(check_bounds="yes")
    with pytest.raises(OptionError, match="leave check_bounds out"):
        call(method="k_anonymous", accept_none=True)


def test_many_columns_have_one_sentence():
    clipped = Clipped(
        {f"x{k}": 0.3 * (k == 3) for k in range(50)}, {f"x{k}": 0.01 for k in range(50)}
    )
    assert len(clipped.notes) == 2
    assert clipped.notes[0].startswith("x3: about 30 %")
    assert "49 other columns" in clipped.notes[1]


def test_the_command_line_has_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    table().to_parquet("data.parquet")
    (tmp_path / "book.toml").write_text("y = [0, 1]\nage = [18, 90]\nx = [-5, 5]\ng = ['a', 'b']\n")
    given = ["data.parquet", "--bounds", "book.toml", "--epsilon", 1, "--seed", 1]
    given += ["--method", "one_step", "--check-bounds", "--out", "fit.json"]
    assert run(capsys, "ate", FORMULA, *given)[0] == 0
    assert json.loads((tmp_path / "fit.json").read_text())["estimate"] == call().estimate


@pytest.mark.parametrize(("n", "made"), [(300, False), (6000, True)])
def test_the_summary_says_where_no_values_outside_the_ranges_were_counted(n, made):
    rng = np.random.default_rng(1)
    data = pd.DataFrame({"y": rng.random(n), "t": rng.integers(0, 2, n)})
    fit = dpe.dp_ate("y ~ t", data, epsilon=1, bounds={"y": (0, 1)}, seed=1)
    counted = any("outside declared ranges" in charge.label for charge in fit.charges)
    assert (counted, "Range check" in str(fit.summary())) == (made, not made)
