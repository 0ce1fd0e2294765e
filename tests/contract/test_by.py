"""What makes groups means the same in every call that has groups, found by their signatures.

A name of a column, or a discrete term, makes a group of each of its declared levels; several of
them are crossed by ``by=``, and stand side by side in ``subgroups=``. A condition is a condition.
What has no declared levels is refused before anything is charged, with what to write.
"""

from __future__ import annotations

import inspect
from itertools import product

import numpy as np
import pandas as pd
import pytest

import dpeffects as dpe
from dpeffects.errors import DPEffectsError
from tests.cases import each

N = 1500
BOUNDS = {
    **{"y": (0, 1), "x": (0, 1), "age": (18, 90), "sex": ["f", "m"], "race": ["w", "b", "h"]},
    **{
        "grade": [1, 2, 3],
        "old": range(2),
        "clinic": [f"c{k}" for k in range(1001)],
        "odd name": [0, 1],
    },
}


def frame():
    rng = np.random.default_rng(4)
    data = pd.DataFrame({"t": np.arange(N) % 2, "x": rng.random(N), "age": rng.integers(18, 90, N)})
    data["sex"], data["race"] = rng.choice(["f", "m"], N), rng.choice(["w", "b", "h"], N)
    data["smoker"], data["old"] = rng.random(N) < 0.4, rng.integers(0, 2, N)
    data["grade"], data["odd name"] = rng.integers(1, 4, N), rng.integers(0, 2, N)
    data["clinic"], data["town"] = "c7", rng.choice(["u", "v"], N)
    data["y"] = np.clip(0.3 * data["t"] * (data["sex"] == "f") + rng.random(N) / 2, 0, 1)
    return data


DATA = frame()
MORE = {  # what calls need beside what all of them do
    "dp_ate": {"method": "diff_in_means"},
    "dp_att": {"method": "clipped_contrast", "design": "randomised"},
    "dp_atc": {"method": "clipped_contrast", "design": "randomised"},
    "dp_cate": {"method": "one_step", "release": "groups", "design": "randomised"},
    "reference": {"method": "diff_in_means"},
}


def calls():
    """Public functions of data with groups, and the argument that has them."""
    for name in dpe.__all__:
        if callable(function := getattr(dpe, name)) and not inspect.isclass(function):
            known = inspect.signature(function).parameters
            if {"formula", "data"} <= set(known) and "site" not in known:
                open_ended = any(x.kind is x.VAR_KEYWORD for x in known.values())
                for argument in ("by", "subgroups"):
                    as_in_dp_ate = argument == "by" and open_ended and "method" in known
                    if argument in known or (as_in_dp_ate and "before" not in known):
                        yield name, argument


CALLS = dict(calls())


def run(name, given, bounds=BOUNDS, ledger=None, **more):
    asked = {"epsilon": 1e6, "seed": 1, "bounds": bounds, **MORE.get(name, {}), **more}
    if ledger is not None:
        asked["ledger"] = ledger
    fit = getattr(dpe, name)("y ~ t | x", DATA, **{CALLS[name]: given}, **asked)
    return getattr(fit, "fit", fit)


def groups_of(fit):
    """Names of groups, for each factor by itself where they stand side by side."""
    if isinstance(fit, dpe.StudyEffects):
        return [[x.split(" | ")[1] for x in fit.by(factor).labels] for factor in fit.subgroups]
    if isinstance(fit, dpe.Moments):
        made = {k: [f"{k} {x}" for x in levels] for k, levels in fit.levels.items()}
        return [
            [x.replace(f"{k} 0", f"{k} False").replace(f"{k} 1", f"{k} True") for x in labels]
            if k not in BOUNDS or BOUNDS[k] == (0, 1)
            else labels
            for k, labels in made.items()
        ]
    return [list(fit.labels)]


SEX, RACE = ["sex f", "sex m"], ["race w", "race b", "race h"]
SMOKER, OLD, GRADE = ["smoker False", "smoker True"], ["old False", "old True"], [1, 2, 3]
AGE = ["age [18, 40]", "age (40, 90]"]
MADE = {
    "a name": ("sex", [SEX]),
    "a name in a list": (["sex"], [SEX]),
    "two names": (["sex", "race"], [SEX, RACE]),
    "two names in a tuple": (("race", "sex"), [RACE, SEX]),
    "two names with a plus": ("sex + race", [SEX, RACE]),
    "two columns that are true or false": (["smoker", "old"], [SMOKER, OLD]),
    "one that is true or false": (["smoker"], [SMOKER]),
    "numbers with levels": ("grade", [[f"grade {k}" for k in GRADE]]),
    "a name and a number with levels": (["sex", "grade"], [SEX, [f"grade {k}" for k in GRADE]]),
    "a name and a cut": (["sex", "cut(age, [18, 40, 90])"], [SEX, AGE]),
    "a comparison as a term": (["I(age >= 40)"], [["I(age >= 40) False", "I(age >= 40) True"]]),
    "a name with a blank": ("`odd name`", [["odd name 0", "odd name 1"]]),
}
REFUSED = {  # and what the message says
    "a number with a range": ("age", r"cut\("),
    "a name and a number with a range": (["sex", "age"], r"cut\("),
    "levels that nobody declared": ("town", r"bounds=\{.town.: \["),
    "beside declared ones": (["sex", "town"], r"bounds=\{.town.: \["),
    "a column that is not there": (["sex", "rase"], "race"),
    "a condition as text": ("age >= 40", r"I\("),
    "a name and a condition": (["sex", "age >= 40"], r"I\("),
    "a name and no text": (["sex", 3], "such as"),
    "too many groups": (["clinic"], r"groups, and \d+ is the most|outside"),
    "a constant": ("1", "names no column"),
    "a number": (3, "such as"),
    "nothing": ("  ", "such as"),
}
SETS = {  # subsets by conditions: of average effects alone
    "a list": (["age >= 40", "sex == 'f'"], ["age >= 40", "sex == 'f'"]),
    "a mapping": ({"old": "age >= 40", "women": "sex == 'f'"}, ["old", "women"]),
    "a column alone in a mapping": ({"smokers": "smoker"}, ["smokers"]),
}


def test_the_calls_are_there():
    assert {"dp_ate", "dp_att", "dp_atc", "dp_cate", "dp_study", "dp_moments"} <= set(CALLS)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("form", MADE)
@pytest.mark.parametrize("name", CALLS)
def test_levels_make_groups(name, form):
    given, factors = MADE[form]
    if name == "dp_moments":  # its columns are numbers: levels are as they are declared
        factors = [["old 0", "old 1"] if x == OLD else x for x in factors]
    if name == "dp_moments" and "cut" in str(given):
        factors = [
            factors[0],
            ["cut(age, [18, 40, 90]) [18, 40]", "cut(age, [18, 40, 90]) (40, 90]"],
        ]
    fit = run(name, given)
    crossed = CALLS[name] == "by"
    expected = [[", ".join(x) for x in product(*factors)]] if crossed else factors
    assert groups_of(fit) == expected
    if len(factors) > 1:
        said = " ".join(str(fit.summary()).split())
        assert ("crossed" if crossed else "each factor by itself") in said


@each("form", REFUSED)
@each("name", CALLS)
def test_what_makes_no_groups_is_refused_before_the_charge(name, form):
    given, says = REFUSED[form]
    if (name, form) == ("dp_moments", "too many groups"):
        return  # a factor of moments may have as many levels as noise allows
    ledger = dpe.Ledger(1e7)
    with pytest.raises(DPEffectsError, match=says) as refused:
        run(name, given, ledger=ledger)
    assert not ledger.charges
    assert "\n" not in str(refused.value)
    assert "'u'" not in str(refused.value)  # a level that nobody declared


@pytest.mark.parametrize("form", SETS)
@pytest.mark.parametrize("name", CALLS)
def test_conditions_make_subsets_of_average_effects(name, form):
    given, labels = SETS[form]
    if name in ("dp_ate", "dp_att", "dp_atc", "reference"):
        fit = run(name, given)
        assert isinstance(fit, dpe.SubsetEffects)
        assert groups_of(fit) == [labels]
        return
    ledger = dpe.Ledger(1e7)
    with pytest.raises(DPEffectsError, match="such as"):
        run(name, given, ledger=ledger)
    assert not ledger.charges


@pytest.mark.parametrize("name", [x for x, argument in CALLS.items() if argument == "subgroups"])
@pytest.mark.parametrize("given", ["sex:race", "sex * race", ["sex:race"]])
def test_what_stands_side_by_side_is_not_crossed(name, given):
    with pytest.raises(DPEffectsError, match=r"by one factor at a time.*by="):
        run(name, given)


@pytest.mark.parametrize(
    "given", [{"a": "age"}, {"a": "race"}, {"a": "grade == True & sex == 'f'"}]
)
def test_a_column_that_cannot_be_true_is_no_condition(given):
    ledger = dpe.Ledger(1e7)
    if "grade" in str(given):  # 1 is one of its levels
        assert run("dp_ate", given).labels == ("a",)
        return
    with pytest.raises(DPEffectsError, match="by="):
        run("dp_ate", given, ledger=ledger)
    assert not ledger.charges


def test_crossed_groups_are_those_of_pandas():
    """Nobody is left out: records and differences in means, against `DataFrame.groupby`."""
    fit = run("dp_ate", ["sex", "race"])
    means = DATA.groupby(["sex", "race", "t"])["y"].mean().unstack()
    assert sum(float(x) for k, x in fit.details.items() if "records" in k) == pytest.approx(N)
    for label, effect in zip(fit.labels, fit.effects, strict=True):
        sex, race = (part.split()[1] for part in label.split(", "))
        one, zero = means.loc[sex, race][[1, 0]]
        assert effect.point == pytest.approx(one - zero, abs=1e-4)


def test_the_command_line_crosses_too(tmp_path, capsys):
    from dpeffects.cli.program import main

    path = tmp_path / "data.csv"
    DATA.astype({"smoker": int}).to_csv(path, index=False)
    bounds = {k: {"levels": list(v)} if isinstance(v, list) else list(v) for k, v in BOUNDS.items()}
    del bounds["clinic"]
    lines = [
        f'"{k}" = ' + (f"{{levels = {v['levels']}}}" if isinstance(v, dict) else str(v))
        for k, v in bounds.items()
    ]
    (tmp_path / "bounds.toml").write_text("\n".join(lines).replace("'", '"'))
    more = ["--epsilon", "50", "--bounds", str(tmp_path / "bounds.toml"), "--seed", "1"]
    asked = ["ate", "y ~ t", str(path), "--method", "diff_in_means", *more]
    main([*asked, "--by", "sex", "--by", "race"])
    assert "sex x race, crossed" in capsys.readouterr().out


@pytest.mark.parametrize("given", ["age >= 40", "sex:race", {"a": "sex == 'f'"}], ids=str)
def test_plans_and_protocols_refuse_what_the_calls_refuse(given):
    asked = {"epsilon": 1, "bounds": BOUNDS, "subgroups": given}
    with pytest.raises(DPEffectsError, match="subgroups"):
        dpe.plan_study("y ~ t", n=1000, **asked)
    with pytest.raises(DPEffectsError, match="subgroups"):
        dpe.Protocol("y ~ t", **asked)
