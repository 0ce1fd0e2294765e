"""Plans of studies: against formulas, against the studies themselves, and the other way round."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pandas as pd
import pytest

import dpeffects as dpe
from dpeffects.errors import BoundsError, OptionError
from dpeffects.inference.intervals import p_value
from dpeffects.services.planning.synthetic_records import SyntheticRecords

BOUNDS = {"pain": (0, 100), "walk": (0, 10), "died": [0, 1], "age": (18, 90), "sex": ["f", "m"]}
FORMULA = "pain + walk + died ~ t"
ASKED = {"bounds": BOUNDS, "design": "randomised"}
KNOWN = {"outcome_sd": {"pain": 12, "walk": 1.5}, "outcome_mean": {"died": 0.1, "pain": 40}}


def planned(formula: str = FORMULA, **changes) -> dpe.StudyPlan:
    return dpe.plan_study(formula, **{"n": 5000, "epsilon": 1, **ASKED, **changes})


def test_without_noise_widths_are_those_of_the_textbook():
    frame = planned(n=4000, epsilon=1e5, treated_share=0.3, **KNOWN).tidy().set_index("term")
    spread = {"pain": 12.0, "walk": 1.5, "died": math.sqrt(0.1 * 0.9)}
    root = math.sqrt(1 / 1200 + 1 / 2800)
    for name, sd in spread.items():
        error = sd * root
        row = frame.loc[name]
        assert row["std_error"] == pytest.approx(error, rel=2e-3)
        for column, level in (("unadjusted", 0.05), ("half_width", 0.05 / 3)):
            z = NormalDist().inv_cdf(1 - level / 2)
            assert row[column] == pytest.approx(z * error, rel=2e-3)
        z += NormalDist().inv_cdf(0.8)
        assert row["mde"] == pytest.approx(z * error, rel=5e-3)


def test_noise_is_that_of_a_cube():
    """(p + 1)(p + 2) / 3 times the square of the width over epsilon, in the sums of either arm."""
    plan = planned("pain + walk + died + age ~ t", n=2000, **KNOWN)
    prices = plan.budget_frame().set_index("release")["epsilon"]
    assert prices.sum() == pytest.approx(1.0)
    sd = math.sqrt(6 * 7 / 3) / prices["outcomes by arm"]
    frame = plan.tidy().set_index("term")
    assert frame.loc["walk", "noise_sd"] == pytest.approx(10 * sd * math.sqrt(2) / 1000, rel=1e-3)
    far = math.sqrt(1 + 4 * 0.4**2)  # errors of the sizes count by how far a mean is off the middle
    assert frame.loc["died", "noise_sd"] == pytest.approx(sd * far * math.sqrt(2) / 1000, rel=1e-3)
    assert set(plan.budget_frame()["noise"]) == {"K-norm, l-infinity ball"}
    many = {f"y{j}": (0, 1) for j in range(60)}
    gaussian = planned(f"{' + '.join(many)} ~ t", delta=1e-6, bounds=many)
    assert set(gaussian.budget_frame()["noise"]) == {"discrete Gaussian"}


def people(n: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng([seed, 3])
    t = (rng.random(n) < 0.3).astype(int)
    return pd.DataFrame(
        {
            "t": t,
            "sex": np.where(rng.random(n) < 0.4, "f", "m"),
            "pain": np.clip(rng.normal(40, 12, n), 0, 100),
            "walk": np.clip(rng.normal(5, 1.5, n) + 0.3 * t, 0, 10),
            "died": (rng.random(n) < 0.1).astype(int),
        }
    )


def test_studies_come_out_as_planned_and_cover():
    shares = {"treated_share": 0.3, "subgroup_shares": {"sex": {"f": 0.4}}}
    asked = {"epsilon": 1, "subgroups": "sex", **ASKED}
    asked["bounds"] = {name: x for name, x in BOUNDS.items() if name != "age"}
    plan = planned(**asked, **shares, **KNOWN, n=3000).tidy()
    widths, hits = [], []
    for seed in range(20):
        fit = dpe.dp_study(FORMULA, people(3000, seed), **asked, seed=5000 + seed)
        if seed < 8:
            both = [fit, fit.by("sex")]
            widths.append(np.concatenate([np.ptp(x.conf_int(), axis=1) / 2 for x in both]))
        truth = zip(fit.effects, (0.0, 0.3, 0.0), strict=True)
        hits.append(all(p_value(effect, x) > 0.05 / 3 for effect, x in truth))
    ratio = np.median(widths, axis=0) / plan["half_width"].to_numpy()
    assert np.abs(ratio - 1.0).max() < 0.1
    assert np.mean(hits) >= 0.85  # one in 20 is not covered on average


def test_more_epsilon_and_more_records_are_never_worse():
    names = {f"y{j}": (0, 1) for j in range(30)}
    formula, asked = f"{' + '.join(names)} ~ t", {"bounds": names, "outcome_sd": {"y0": 0.1}}
    for delta in (0.0, 1e-6):
        epsilons = (0.05, 0.5, 1, 2, 20)
        widths = [planned(formula, epsilon=e, delta=delta, **asked) for e in epsilons]
        first = [plan.effects[0].half_width for plan in widths]
        assert first == sorted(first, reverse=True)
    sizes = [planned(formula, n=n, **asked).effects[0].half_width for n in (500, 5000, 50_000)]
    assert sizes == sorted(sizes, reverse=True)


def test_what_is_needed_for_a_half_width_gives_it():
    plan = planned(**KNOWN)
    found = plan.required({"pain": 1.8, "died": 0.03}).set_index("term")["epsilon"]
    for name, width in (("pain", 1.8), ("died", 0.03)):
        there = planned(epsilon=float(found[name]), **KNOWN).tidy().set_index("term")
        assert there.loc[name, "half_width"] == pytest.approx(width, rel=0.02)
    records = plan.required({"walk": 0.1}, of="n")["n"][0]
    there = planned(n=int(records), **KNOWN).tidy().set_index("term")
    assert there.loc["walk", "half_width"] == pytest.approx(0.1, rel=0.02)
    out = plan.required({"pain": 0.01})
    assert math.isnan(out["epsilon"][0])
    assert "sampling error" in out["note"][0]


def test_a_study_plan_and_its_inverse_have_the_same_numbers():
    """Above 200,000 records a root of n was taken, although noise falls faster: 0.3 % to 16 %."""
    for changes in ({}, {"formula": f"{FORMULA} | age", "design": "observational"}):
        plan = planned(**KNOWN, **changes)
        for term, width in plan.tidy().set_index("term")["half_width"].items():
            for of, own in (("epsilon", 1.0), ("n", 5000.0)):
                assert plan.required({term: width}, of=of)[of].item() == own
    plan = planned(epsilon=0.02, n=100_000, **KNOWN)
    (row,) = plan.required({"pain": 0.25}, of="n").to_dict("records")
    there = planned(epsilon=0.02, n=int(row["n"]), **KNOWN).effects[0]
    assert row["n"] > 200_000
    assert there.half_width == pytest.approx(0.25, rel=0.003)


def test_what_a_study_plan_was_not_told_is_marked_as_assumed():
    """Defaults of outcomes and levels were not even shown."""
    plan = planned(f"{FORMULA} | age + sex", design="observational", subgroups="sex", **KNOWN)
    rows = dict(plan.summary().blocks[0].rows)
    assert rows["Stated"] == "mean of pain 40; risk of died 0.1; SD of pain 12; SD of walk 1.5"
    assumed = rows["Assumed, not stated"]
    for said in (
        "arms of the same size; mean of walk 5; levels of sex equally frequent",
        "covariates explain 20 %, of a risk 5 % of the outcome variance (r2)",
        "propensity score 0.7 (confounding)",
        "their range 0.17 (covariate_sd)",
    ):
        assert said in assumed
    names = "treated_share, outcome_mean, subgroup_shares, r2, confounding, covariate_sd"
    assert plan.required({"pain": 3.0})["assumed"].tolist() == [names]
    assert plan.setting.outcome_mean == {"pain": 40, "walk": 5, "died": 0.1}
    least = dict(planned("pain + died ~ t").summary().blocks[0].rows)
    assert "Stated" not in least
    assert "mean of pain 50; risk of died 0.5; SD of pain 16.6667" in least["Assumed, not stated"]
    told = {"treated_share": 0.3, "subgroup_shares": {"sex": {"f": 0.4, "m": 0.6}}}
    rows = dict(planned(subgroups="sex", **told).summary().blocks[0].rows)
    assert rows["Stated"] == "30 % treated; 40 % sex f; 60 % sex m"


def test_subgroups_arms_and_observational_studies():
    plan = planned(f"{FORMULA} | age + sex", subgroups=["sex", "cut(age, [18, 50, 90])"], **KNOWN)
    frame = plan.tidy()
    assert frame.groupby("subgroup").size().to_dict() == {
        "": 3,
        "sex": 6,
        "cut(age, [18, 50, 90])": 6,
    }
    assert list(plan.baseline_frame()["variable"]) == ["age", "sex", "sex"]
    assert "sex" in str(plan)
    three = {"pain": (0, 100), "t": ["a", "b", "c"]}
    arms = planned("pain ~ t", bounds=three, contrasts="pairwise")
    assert list(arms.tidy()["term"]) == ["pain: b - a", "pain: c - a", "pain: c - b"]
    smaller = planned("pain ~ t", bounds=three, treated_share={"a": 0.9})
    assert smaller.effects[0].half_width > arms.effects[0].half_width
    open_ = planned(FORMULA, design="observational")
    assert open_.identification == "unadjusted"
    assert open_.tidy()["mde"].isna().all()
    assert "ASSOCIATION" in str(open_)
    adjusted = planned(f"{FORMULA} | age + sex", design="observational", epsilon=2, n=10_000)
    assert adjusted.identification == "adjusted"
    trial = planned(f"{FORMULA} | age + sex", epsilon=2, n=10_000)
    wide, short = (x.tidy()["half_width"] for x in (adjusted, trial))
    assert (wide > short).all()


@pytest.mark.parametrize("design", ["randomised", "observational"])
def test_three_arms_are_planned_with_covariates_too(design):
    """Made-up records had two arms wherever there were covariates, and the study was refused."""
    bounds = {"pain": (0, 100), "age": (18, 90), "t": ["a", "b", "c"]}
    asked = {"bounds": bounds, "design": design, "treated_share": {"a": 0.5}}
    plan = planned("pain ~ t | age", n=6000, epsilon=4, **asked)
    assert list(plan.tidy()["term"]) == ["pain: b - a", "pain: c - a"]
    assert (plan.tidy()["half_width"] > 0).all()
    made = SyntheticRecords(plan.setting, columns=True).people(6000, 0).columns
    shares = pd.Series(np.asarray(made["t"])).value_counts(normalize=True)
    assert shares.to_dict() == pytest.approx({"a": 0.5, "b": 0.25, "c": 0.25}, abs=0.001)
    ages = pd.Series(made["age"]).groupby(np.asarray(made["t"])).mean()
    far = 4 * pd.Series(made["age"]).std() * math.sqrt(1 / 1500 + 1 / 3000)
    assert (abs(ages["c"] - ages["a"]) > far) == (design == "observational")


def test_a_plan_is_saved_and_read():
    plan = planned(f"{FORMULA} | age", subgroups="sex", treated_share=0.2, **KNOWN)
    again = dpe.StudyPlan.from_json(plan.to_json())
    assert again.to_json() == plan.to_json()
    assert again.required({"pain": 3.0}).equals(plan.required({"pain": 3.0}))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"outcome_sd": {"pian": 3}}, "outcome_sd has an entry for 'pian'; it can have pain"),
        ({"outcome_sd": {"died": 0.2}}, "outcome_mean is its risk"),
        ({"outcome_mean": {"died": 1.5}}, "between 0 and 1"),
        ({"outcome_sd": 3}, "must map names to values"),
        ({"treated_share": 1.0}, "treated_share must be between"),
        ({"treated_share": {"treated": 0.6, "control": 0.6}}, "sum to 1"),
        (
            {"subgroups": "sex", "subgroup_shares": {"sex": {"x": 0.5}}},
            "has an entry for 'x'; it can have f, m",
        ),
        ({"subgroup_shares": {"sex": {"f": 0.5}}}, "has an entry for 'sex'; it can have no entry"),
        ({"unit": "id"}, "leave out unit"),
        ({"n": 2}, "n must be"),
        ({"budget_split": {"model": 0.5}}, "has no share"),
        ({"nonsense": 1}, "nonsense"),
    ],
)
def test_refusals(changes, said):
    with pytest.raises(OptionError, match=said):
        planned(**changes)


def test_every_column_needs_bounds():
    with pytest.raises(BoundsError, match="pain"):
        dpe.plan_study("pain ~ t", n=100, epsilon=1)
    with pytest.raises(BoundsError, match="sex"):
        planned("pain ~ t", bounds={"pain": (0, 100)}, subgroups="sex")
    with pytest.raises(OptionError, match="plan_study"):
        dpe.plan(FORMULA, n=100, epsilon=1, bounds=BOUNDS)
    with pytest.raises(OptionError, match="positive"):
        planned().required(-1.0)


def test_a_protocol_is_planned_as_it_will_run(tmp_path):
    asked = {"subgroups": ("sex",), "delta": 1e-6, "budget_split": {"subgroups": 0.5}, **ASKED}
    protocol = dpe.Protocol(FORMULA, epsilon=2, unit="id", **asked)
    plan = dpe.plan_study(protocol, n=3000, **KNOWN)
    assert plan.tidy().equals(planned(n=3000, epsilon=2, **asked, **KNOWN).tidy())
    with pytest.raises(OptionError, match="epsilon is given by the protocol"):
        dpe.plan_study(protocol, n=3000, epsilon=1)
    with pytest.raises(OptionError, match="epsilon is missing"):
        dpe.plan_study(FORMULA, n=3000)
