"""Which rows count, and for how much: every method that adds up rows, wherever the rows are.

Methods come from the registry, so that a new one is held to the same: it has units, weights,
subsets and clusters, or it refuses them before anything is charged.
"""

from __future__ import annotations

import json
import math
import re
import uuid

import numpy as np
import pandas as pd
import pytest

import dpeffects as dpe
from dpeffects.errors import BoundsError, DataError, EstimationError, OptionError
from dpeffects.estimators import conditional_methods, registry
from dpeffects.guarantee import KINDS
from tests.cases import each
from tests.test_engines import HOLDERS

FORMULA = "y ~ t | x1 + x2 + g"
BOUNDS = {"y": (0, 1), "x1": (0, 1), "x2": (-1, 1), "g": ["a", "b", "c"], "w": (0, 4)}
INSIDE = "x1 >= 0.3 & g != 'c'"
COUNTING = {
    "unit": {"unit": "person"},
    "max_rows": {"unit": "person", "max_rows": 3},
    "weights": {"weights": "w"},
    "subset": {"subset": INSIDE},
    "cluster": {"cluster": "village"},
    "cluster, declared": {"cluster": "village", "clusters": 60},
    "unit and cluster": {"unit": "person", "cluster": "village"},
    "weights and subset": {"weights": "w", "subset": INSIDE},
    "missing, indicator": {"missing": {"x2": "indicator", "g": "indicator"}},
    "missing, complete": {"missing": "complete"},
    "missing, weight": {"missing": {"y": "weight", "x2": "indicator", "g": "complete"}},
    "all": {
        "unit": "person",
        "max_rows": 3,
        "weights": "w",
        "subset": INSIDE,
        "cluster": "village",
    },
}
ADDS_UP = ("auto", "clipped_contrast", "diff_in_means", "one_step", "private_ipw", "regression")
LEARN = ("dr_learner", "r_learner")
HUGE = 1e6


def additive(specs):
    """Methods with an exact guarantee that only ever add up blocks of rows."""
    exact = [s for s in specs.values() if s.guarantee == "exact" and not s.needs_strata]
    plain = [s for s in exact if not s.options().needs_memory()]
    return [s.name for s in plain if not s.options().memory_per_row(2, 1, "sample")[0]]


AVERAGES = additive(registry())
LEARNERS = additive(conditional_methods())
CALLS = [
    *(("dp_ate", name) for name in AVERAGES),
    *(("groups", name) for name in LEARNERS),
    *(("function", name) for name in LEARNERS if name != "one_step"),
    ("dp_balance", ""),
]
IDS = [" ".join(call).strip() for call in CALLS]
each_call = pytest.mark.parametrize("call", CALLS, ids=IDS)


def frame(n=3000, people=1200, seed=0):
    """Rows of people who live in 60 villages, and have up to some ten rows each."""
    rng = np.random.default_rng(seed)
    person = rng.permutation(np.concatenate([np.arange(people), rng.integers(0, people, n)])[:n])
    x1, x2 = rng.random(n), rng.uniform(-1, 1, n)
    t = rng.random(n) < 0.3 + 0.4 * x1
    village = person % 60
    y = 0.3 + 0.2 * t + 0.2 * x1 + 0.1 * x2 + 0.05 * np.sin(village) + rng.normal(0, 0.1, n)
    return pd.DataFrame(
        {
            "y": np.clip(y, 0, 1),
            "t": t.astype(int),
            "x1": x1,
            "x2": x2,
            "g": rng.choice(["a", "b", "c"], n),
            "person": person,
            "village": [f"village {k}" for k in village],
            "w": rng.uniform(0, 4.4, n),  # some are above the declared 4
        }
    )


def with_holes(data, given):
    """The same table with values missing where something is said about them."""
    if "missing" not in given:
        return data
    rng, data, asked = np.random.default_rng(4), data.copy(), given["missing"]
    for name in ("y", "x2", "g") if isinstance(asked, str) else asked:
        data.loc[rng.random(len(data)) < 0.15, name] = None
    return data


def run(call, data, **given):
    """One of the public functions, with a seed."""
    function, method = call
    given = {"epsilon": 2, "bounds": BOUNDS, "seed": 1, **given}
    if function == "dp_ate":
        return dpe.dp_ate(FORMULA, data, method, **given)
    given = {k: x for k, x in given.items() if k not in ("cluster", "clusters")}
    if function == "dp_balance":
        if isinstance(given.get("missing"), dict):  # it does not read the outcome
            given["missing"] = {k: x for k, x in given["missing"].items() if k != "y"}
        return dpe.dp_balance(FORMULA, data, **given)
    groups = {"by": "g"} if function == "groups" else {}
    return dpe.dp_cate(FORMULA, data, method, release=function, **groups, **given)


def numbers(call, fit):
    """The estimates of a result."""
    if call[0] == "dp_ate":
        return np.array([fit.estimate])
    if call[0] == "dp_balance":
        return fit.tidy()["smd"].to_numpy()
    if call[0] == "groups":
        return fit.tidy()["estimate"].to_numpy()
    return fit.effect({"x1": [0.2, 0.8], "x2": [0.0, 0.5], "g": ["a", "b"]})


def same(call, one, other, within=0.01):
    """Assert that two results say the same, but for tiny noise."""
    assert numbers(call, one) == pytest.approx(numbers(call, other), abs=within)


def test_these_methods_add_up_rows():
    assert set(AVERAGES) >= set(ADDS_UP)
    assert set(LEARNERS) >= set(LEARN)


# --- who has them, and who refuses ------------------------------------------------------------


@pytest.mark.sampled(11)
@each_call
@pytest.mark.parametrize("asked", COUNTING)
def test_every_method_that_adds_up_rows_has_all_of_them(call, asked):
    """In any order of the rows, to the same bits; and one budget pays."""
    data, ledger = with_holes(frame(), COUNTING[asked]), dpe.Ledger(2)
    fit = run(call, data, ledger=ledger, **COUNTING[asked])
    assert np.isfinite(numbers(call, fit)).any()
    assert math.fsum(charge.epsilon for charge in ledger.charges) <= 2 * (1 + 1e-12)
    assert fit.n == (1200 if "unit" in COUNTING[asked] else 3000)
    other = data.sample(frac=1, random_state=3)
    assert run(call, other, **COUNTING[asked]).to_dict() == fit.to_dict()


@each("asked", [x for x in COUNTING if x != "missing, indicator"])
@each("conditional", [False, True])
def test_every_other_method_refuses_before_anything_is_charged(conditional, asked):
    data, specs = frame(200, 100), conditional_methods() if conditional else registry()
    wanted = {k: x for k, x in COUNTING[asked].items() if not conditional or "cluster" not in k}
    able = additive(specs)
    for spec in specs.values():
        if spec.name in able or not wanted:
            continue
        accept = KINDS[spec.guarantee].accept
        ledger = dpe.Ledger(2, 1e-3)
        given = {"epsilon": 1, "bounds": BOUNDS, **wanted, **({accept: True} if accept else {})}
        if spec.guarantee != "none":
            given |= {"ledger": ledger, "delta": 1e-6 if spec.needs_delta else 0.0}
        if conditional:
            given |= {"release": "points", "at": {"x1": [0.1], "x2": [0.5], "g": ["a"]}}
        call = dpe.dp_cate if conditional else dpe.dp_ate
        formula = "y ~ t | g + cut(x2, [-1, 0, 1])" if spec.needs_strata else FORMULA
        with pytest.raises(OptionError) as refused:
            call(formula, data, spec.name, **given)
        message = str(refused.value)
        assert all(part in message for part in (spec.name, able[-1], next(iter(wanted))))
        assert "\n" not in message
        assert (ledger.charges, ledger.remaining) == ((), (2, 1e-3))


@each("name", AVERAGES)
@each("asked", ["unit", "weights", "subset", "cluster"])
def test_label_level_is_refused(name, asked):
    if "label" not in registry()[name].levels:
        return
    ledger = dpe.Ledger(2)
    given = {"level": "label", "ledger": ledger, **COUNTING[asked]}
    with pytest.raises(OptionError, match=asked):
        dpe.dp_ate(FORMULA, frame(200), name, epsilon=1, bounds=BOUNDS, **given)
    assert not ledger.charges


def test_clusters_of_conditional_effects_are_refused():
    for call in (dpe.dp_cate, dpe.dp_balance):
        with pytest.raises((OptionError, TypeError), match="cluster"):
            call(FORMULA, frame(200), epsilon=1, bounds=BOUNDS, cluster="village")


# --- wherever the rows are --------------------------------------------------------------------


def dask_frame(data, folder):
    return pytest.importorskip("dask.dataframe").from_pandas(data, npartitions=5)


EVERYWHERE = [(call, "all") for call in CALLS]
EVERYWHERE += [(("dp_ate", "clipped_contrast"), asked) for asked in COUNTING if asked != "all"]


@pytest.mark.sampled(9)
@pytest.mark.parametrize(("call", "asked"), EVERYWHERE, ids=lambda x: "".join(x))
def test_every_engine_gives_the_same_bits(call, asked, tmp_path):
    data = with_holes(frame(1500, 600), COUNTING[asked])
    expected = run(call, data, **COUNTING[asked]).to_dict()
    shuffled = data.sample(frac=1, random_state=3).reset_index(drop=True)
    for holder in (*HOLDERS, dask_frame):
        held = holder(shuffled, tmp_path)
        assert run(call, held, **COUNTING[asked]).to_dict() == expected, holder.__name__


NAMES = {
    "whole numbers": lambda k: k.astype(np.int64),
    "small whole numbers": lambda k: k.astype(np.int16),
    "unsigned": lambda k: k.astype(np.uint64) + np.uint64(2**63),
    "fractions": lambda k: k / 7.0,
    "single precision": lambda k: (k / 8.0).astype(np.float32),
    "texts": lambda k: np.array([f"Zoë {v}" for v in k], dtype=object),
    "categories": lambda k: pd.Categorical([f"p{v}" for v in k]),
    "long texts": lambda k: [str(uuid.UUID(int=int(v) << 90)) for v in k],
    "dates": lambda k: pd.Timestamp("2020-01-01") + pd.to_timedelta(k, unit="h"),
    "nullable": lambda k: pd.array(k, dtype="Int64"),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("names", NAMES)
def test_units_have_names_of_any_kind(names, tmp_path):
    data = frame(1000, 400)
    plain = dpe.dp_ate("y ~ t", data, "diff_in_means", **_given(max_rows=2)).to_dict()
    named = data.assign(person=NAMES[names](data["person"].to_numpy()))
    assert dpe.dp_ate("y ~ t", named, "diff_in_means", **_given(max_rows=2)).to_dict() == plain
    for holder in HOLDERS:
        held = holder(named, tmp_path)
        found = dpe.dp_ate("y ~ t", held, "diff_in_means", **_given(max_rows=2))
        assert found.to_dict() == plain, holder.__name__


def _given(**more):
    return {"epsilon": 1, "bounds": BOUNDS, "seed": 1, "unit": "person", **more}


def test_names_that_are_uuids():
    duckdb = pytest.importorskip("duckdb")
    data = frame(1000, 400)
    plain = dpe.dp_ate("y ~ t", data, "diff_in_means", **_given()).to_dict()
    made = [uuid.UUID(int=int(v) << 90) for v in data["person"]]
    objects = data.assign(person=made)
    assert dpe.dp_ate("y ~ t", objects, "diff_in_means", **_given()).to_dict() == plain
    texts = data.assign(person=[str(v) for v in made])
    typed = duckdb.from_df(texts).select("* replace (person::uuid as person)")
    assert dpe.dp_ate("y ~ t", typed, "diff_in_means", **_given()).to_dict() == plain


def test_zero_is_one_name():
    data = frame(400, 100)
    data["person"] = np.where(data["person"] == 0, [0.0, -0.0] * 200, data["person"])
    assert dpe.dp_ate("y ~ t", data, "diff_in_means", **_given()).n == 100


def test_a_missing_name_is_refused_by_its_column():
    for column in ("person", "village"):
        data = frame(200, 100)
        data[column] = data[column].astype(object)
        data.loc[3, column] = None
        asked = {"unit": "person"} if column == "person" else {"cluster": "village"}
        with pytest.raises(DataError, match=f"{column}.*missing") as refused:
            dpe.dp_ate("y ~ t", data, "diff_in_means", epsilon=1, bounds=BOUNDS, **asked)
        assert "village 1" not in str(refused.value)


def test_weights_are_kept_within_their_bound(tmp_path):
    data = frame(1000, 400)
    wild = data.assign(w=np.where(data["w"] > 4, np.inf, np.where(data["w"] < 1, -3, data["w"])))
    tame = data.assign(w=np.where(data["w"] > 4, 4, np.where(data["w"] < 1, 0, data["w"])))
    given = {"epsilon": 1, "bounds": BOUNDS, "seed": 1, "weights": "w"}
    expected = dpe.dp_ate("y ~ t", tame, "diff_in_means", **given).to_dict()
    for holder in (lambda data, folder: data, *HOLDERS[:-1]):
        held = holder(wild, tmp_path)
        assert dpe.dp_ate("y ~ t", held, "diff_in_means", **given).to_dict() == expected
    wild.loc[3, "w"] = np.nan
    with pytest.raises(DataError, match="'w' has missing values"):
        dpe.dp_ate("y ~ t", wild, "diff_in_means", **given)
    for bad in ({}, {"w": (-1, 4)}):
        more = {**given, "bounds": {"y": (0, 1), **bad}}
        with pytest.raises(BoundsError, match="declared"):
            dpe.dp_ate("y ~ t", data, "diff_in_means", **more)


def test_a_unit_with_more_rows_than_weights_have_steps(tmp_path):
    """With 70,000 rows it counts as nothing at all, and the others as they did."""
    few = frame(3000, 1200)
    many = pd.concat([few, frame(70_000, 1).assign(person=5000, y=1.0)], ignore_index=True)
    given = _given(epsilon=HUGE)
    alone = dpe.dp_ate("y ~ t", few, "diff_in_means", **given)
    together = dpe.dp_ate("y ~ t", many, "diff_in_means", **given)
    assert together.n == alone.n + 1
    assert together.estimate == pytest.approx(alone.estimate, abs=2e-3)
    held = HOLDERS[4](many, tmp_path)
    assert dpe.dp_ate("y ~ t", held, "diff_in_means", **given).to_dict() == together.to_dict()


# --- what they mean, at an epsilon that hides nothing ------------------------------------------


@pytest.mark.sampled(5)
@each_call
def test_units_of_one_row_are_records(call):
    data = frame().assign(person=np.arange(3000))
    same(call, run(call, data, unit="person", epsilon=HUGE), run(call, data, epsilon=HUGE))


@pytest.mark.sampled(5)
@each_call
def test_copies_of_a_row_count_once(call):
    data = frame().assign(person=np.arange(3000))
    copies = data.loc[np.repeat(np.arange(3000), 4)]
    plain = run(call, data, epsilon=HUGE)
    same(call, run(call, copies, unit="person", epsilon=HUGE), plain)
    same(call, run(call, copies, unit="person", max_rows=4, epsilon=HUGE), plain)


@pytest.mark.sampled(3)
@each_call
def test_weights_at_their_bound_are_none(call):
    data = frame().assign(w=4.0)
    same(call, run(call, data, weights="w", epsilon=HUGE), run(call, data, epsilon=HUGE))


@pytest.mark.sampled(3)
@each_call
def test_whole_weights_are_copies(call):
    data = frame()
    data["w"] = np.random.default_rng(5).integers(0, 4, len(data)).astype(float)
    copies = data.loc[np.repeat(np.arange(len(data)), data["w"].astype(int))]
    same(call, run(call, data, weights="w", epsilon=HUGE), run(call, copies, epsilon=HUGE))


@pytest.mark.sampled(5)
@each_call
def test_a_subset_is_the_filtered_frame(call):
    data, inside = frame(), "x1 >= 0.3 & x2 < 0.8"
    filtered = data.query(inside)
    same(call, run(call, data, subset=inside, epsilon=HUGE), run(call, filtered, epsilon=HUGE))


@pytest.mark.parametrize("asked", ["unit", "max_rows", "weights", "subset", "all"])
def test_weighted_means_and_their_errors_are_those_of_statsmodels(asked):
    import statsmodels.api as sm

    data, given = frame(6000, 2500), {k: x for k, x in COUNTING[asked].items() if k != "cluster"}
    weight = _weights(data, given)
    group = data["person"] if "unit" in given else pd.Series(np.arange(len(data)))
    used = weight > 0
    peer = sm.WLS(data["y"][used], sm.add_constant(data["t"][used]), weights=weight[used]).fit(
        cov_type="cluster", cov_kwds={"groups": group[used].to_numpy()}
    )
    ours = dpe.dp_ate("y ~ t", data, "diff_in_means", epsilon=HUGE, bounds=BOUNDS, **given)
    assert ours.estimate == pytest.approx(peer.params["t"], abs=0.01 * peer.bse["t"])
    assert ours.std_error == pytest.approx(peer.bse["t"], rel=0.02)


def test_errors_by_cluster_are_those_of_statsmodels():
    import statsmodels.api as sm

    data = frame(6000, 2500)
    data["t"] = data["village"].isin([f"village {k}" for k in range(25)]).astype(int)
    data["y"] = np.clip(data["y"] + 0.1 * data["t"], 0, 1)
    peer = sm.OLS(data["y"], sm.add_constant(data["t"])).fit(
        cov_type="cluster", cov_kwds={"groups": data["village"].to_numpy()}
    )
    given = {"epsilon": HUGE, "bounds": BOUNDS, "cluster": "village"}
    for clusters in (None, 60):
        ours = dpe.dp_ate("y ~ t", data, "diff_in_means", clusters=clusters, **given)
        few = np.sqrt(50 / 47 * 59 / 60)  # 25 clusters in the smaller arm: see _clusters
        assert ours.std_error == pytest.approx(few * peer.bse["t"], rel=0.05)
        assert (
            ours.std_error
            > 2 * dpe.dp_ate("y ~ t", data, "diff_in_means", epsilon=HUGE, bounds=BOUNDS).std_error
        )


@pytest.mark.parametrize("asked", ["unit", "max_rows", "weights", "subset", "all"])
def test_weighted_propensities_are_those_of_statsmodels(asked):
    import statsmodels.api as sm

    data, given = frame(6000, 2500), {k: x for k, x in COUNTING[asked].items() if k != "cluster"}
    weight, t, y = _weights(data, given), data["t"].to_numpy(), data["y"].to_numpy()
    x = sm.add_constant(data[["x1", "x2"]].to_numpy())
    score = sm.GLM(t, x, sm.families.Binomial(), freq_weights=weight).fit().fittedvalues
    arms = [
        np.average(y[t == k], weights=(weight / np.where(t, score, 1 - score))[t == k])
        for k in (0, 1)
    ]
    for name in ("private_ipw", "one_step"):
        ours = dpe.dp_ate("y ~ t | x1 + x2", data, name, epsilon=HUGE, bounds=BOUNDS, **given)
        assert ours.estimate == pytest.approx(arms[1] - arms[0], abs=0.2 * ours.std_error)


def _weights(data, given):
    """What rows count, row by row, as the documentation has it."""
    own = np.ones(len(data))
    if "weights" in given:
        own *= data["w"].clip(0, 4) / 4
    if "subset" in given:
        own *= (data["x1"] >= 0.3) & (data["g"] != "c")
    if "unit" in given:
        rows = pd.Series(own > 0).groupby(data["person"].to_numpy()).transform("sum")
        own = own / np.maximum(rows, given.get("max_rows", 1))
    return np.asarray(own)


# --- nothing counts ---------------------------------------------------------------------------


@pytest.mark.parametrize("holder", [None, *HOLDERS], ids=lambda f: getattr(f, "__name__", ""))
def test_hardly_anybody_counts(holder, tmp_path):
    """Whether enough records are inside is found by a release, so that the budget is spent."""
    data, ledger = frame(), dpe.Ledger(2)
    held = holder(data, tmp_path) if holder else data
    given = {"epsilon": 1, "bounds": BOUNDS, "ledger": ledger, "subset": "x1 > 2"}
    with pytest.raises(EstimationError, match=r"analysis sample .*too few .*budget is spent"):
        dpe.dp_ate("y ~ t", held, "diff_in_means", **given)
    assert ledger.charges


# --- what results say -------------------------------------------------------------------------

SAID = {
    "unit": "each person has the same weight, however many rows it has",
    "max_rows": "each row has the same weight, up to 3 rows of one person",
    "weights": "survey or analysis weights w, from 0 to 4: .*"
    r"effective sample size about [0-9,]+ records \(Kish, noisy\)",
    "subset": "about [0-9,]+ records analysed .noisy..*subset x1 >= 0.3 & g != 'c'",
    "cluster": "standard error by village .clusters: [0-9]+, noisy and from below",
    "cluster, declared": "standard error by village .clusters: 60",
}


@pytest.mark.sampled(7)
@pytest.mark.parametrize("asked", SAID)
def test_results_say_who_counts(asked, tmp_path):
    fit = run(("dp_ate", "one_step"), frame(), epsilon=20, **COUNTING[asked])
    for text in (str(fit.summary()), str(fit.report())):
        assert re.search(SAID[asked], " ".join(text.split())), text
    for form in ("as_html", "as_latex", "as_markdown"):
        assert "Analysis sample" in getattr(fit.summary(), form)()
    read = dpe.Result.from_json(fit.to_json())
    assert (read, read.sample) == (fit, fit.sample)
    assert json.loads(fit.report(tmp_path / "record.html").with_suffix(".json").read_text())[
        "result"
    ]["sample"]


def test_results_of_before_are_read():
    document = json.loads(run(("dp_ate", "one_step"), frame()).to_json())
    assert document.pop("sample") == {}
    old = dpe.Result.from_json(json.dumps(document))
    assert not old.sample
    assert "Analysis sample" not in str(old.summary())


def test_without_a_variance_there_is_no_word_of_clusters():
    fit = run(("dp_ate", "one_step"), frame(), variance=False, **COUNTING["all"])
    assert "cluster" not in fit.sample


def test_the_paragraph_says_how_many_records_were_analysed_of_those_in_the_table():
    """It said that the method was applied to all of them."""
    data = pd.DataFrame({"y": [0.2, 0.4, np.nan, 0.6] * 300, "t": [0, 1, 1, 1, 0, 0] * 200})
    asked = {"epsilon": 5, "missing": "complete", "bounds": {"y": (0, 1)}, "seed": 1}
    fit = dpe.dp_ate("y ~ t", data, design="randomised", **asked)
    for text in (str(fit.report()), str(fit.summary())):
        found = re.search(
            r"1,200 records in the table \(public\), about (\d+) records analysed",
            " ".join(text.split()),
        )
        assert abs(int(found[1]) - 900) < 60
