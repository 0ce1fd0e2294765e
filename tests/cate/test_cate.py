"""Conditional effects through the public door: privacy, budget, queries, files, bad input."""

from __future__ import annotations

import contextlib
import copy
import json
import math
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import dpeffects as dpe
from dpeffects.documents import checksum
from dpeffects.errors import (
    BoundsError,
    BudgetError,
    DataError,
    DPEffectsError,
    FormulaError,
    OptionError,
)
from tests.calls import AT
from tests.cases import each
from tests.cate.cases import BOUNDS, FORMULA, LEARNERS, run
from tests.neighbours import frame
from tests.refused import refusals


@pytest.fixture(scope="module")
def fit():
    return run(data=frame(400))


# --- choices of the paper ---------------------------------------------------------------------


def test_the_papers_choices_can_be_written_as_they_are():
    """lambda = 1, 50 features, a Lipschitz constant in units of the outcome (Theorem 2)."""
    fit = run(
        "dr_learner",
        noise="kernel",
        penalty=1.0,
        n_features=50,
        kernel="gaussian",
        lipschitz=0.4,
        data=frame(400),
    )
    function = fit.function
    assert function.features.size == 1 + 50
    assert function.strength == 400 * 1.0
    assert function.unit == 0.4
    (charge,) = [s for s in fit.charges if s.share == "effect"]
    moves = 2 * 1.0 / (1.0 * 400)  # 2 L / (lambda n) for the penalty lambda / 2, in units of L
    assert charge.sensitivity[-1] == pytest.approx(moves, rel=1e-4)
    additive = run(n_features=4).function.features
    assert (additive.line.size, additive.size) == (2, 1 + 4 * 4)


def test_a_small_penalty_is_for_noise_on_the_result():
    assert run(noise="kernel", penalty=1e-3).function.strength == pytest.approx(60e-3)
    at_points = run("r_learner", "points", penalty=1e-3)
    assert "objective perturbation" not in "".join(
        s.label for s in at_points.charges if s.share == "effect"
    )


# --- what is released -------------------------------------------------------------------------


@pytest.mark.parametrize(("delta", "most"), [(0.0, 0.55), (1e-5, 0.4)])
def test_a_function_on_simulated_data(delta, most):
    """The paper's first data set; measured 0.42 and 0.25 over 8 seeds."""
    errors = []
    for seed in range(3):
        data = dpe.simulate("cate_1", n=2700, seed=seed)
        fit = dpe.dp_cate("outcome ~ treatment | x1 + x2", data, epsilon=5, delta=delta, seed=seed)
        errors.append(dpe.pehe(fit.effect(data), data["mu1"] - data["mu0"]))
    assert np.mean(errors) < most


def test_intervals_of_groups_cover():
    """Measured 93 to 97 % over 60 seeds, for both learners and epsilon 0.5 to 10."""
    hits, widths = [], []
    for seed in range(24):
        data = dpe.simulate("cate_1", n=1500, seed=seed)
        fit = dpe.dp_cate(
            "outcome ~ treatment | x1 + x2",
            data,
            LEARNERS[seed % 2],
            release="groups",
            by="cut(x1, [0, 0.3, 0.6, 1])",
            epsilon=2,
            seed=seed,
        )
        effect = pd.Series(data["mu1"] - data["mu0"])
        true = effect.groupby(np.searchsorted([0.3, 0.6], data["x1"])).mean().to_numpy()
        low, high = fit.conf_int().T
        hits.append((low <= true) & (true <= high))
        widths.append(high - low)
    assert np.mean(hits) > 0.85
    assert np.median(widths) < 4.0  # effects run from 1 to 5.5


def test_bands_cover_the_effect_on_average_over_points():
    """Measured 93 to 98 % over 12 seeds, for both learners and epsilon 1 to 100."""
    points = pd.DataFrame(np.random.default_rng(5).random((150, 2)), columns=["x1", "x2"])
    hits, noise = [], []
    for seed in range(6):
        data = dpe.simulate("cate_1", n=2700, seed=seed)
        fit = dpe.dp_cate("outcome ~ treatment | x1 + x2", data, epsilon=2, delta=1e-5, seed=seed)
        # the effect of this data set depends on x1 only: read it off the nearest record
        order = np.argsort(data["x1"].to_numpy())
        true = np.interp(
            points["x1"],
            data["x1"].to_numpy()[order],
            (data["mu1"] - data["mu0"]).to_numpy()[order],
        )
        bands, inner = fit.bands(points), fit.bands(points, covers="noise")
        hits.append((bands["conf_low"] <= true) & (true <= bands["conf_high"]))
        noise.append((inner["std_dev"] < bands["std_dev"]).all())
    assert np.mean(hits) > 0.8
    assert all(noise)


def binary(seed, n=20_000, base=0.1, effect=0.1):
    rng = np.random.default_rng(seed)
    t = rng.random(n) < 0.5
    y = (rng.random(n) < base + effect * t).astype(float)
    x = {"x1": rng.random(n), "x2": rng.uniform(-1, 1, n), "g": "a"}
    return pd.DataFrame({"y": y, "t": t, **x})


@pytest.mark.parametrize(
    ("method", "base"), [("r_learner", 0.1), ("dr_learner", 0.1), ("dr_learner", 0.4)]
)
def test_functions_of_binary_outcomes(method, base):
    """An effect of 0.1 on everybody, at an epsilon where noise does not matter."""
    fit = run(method, data=binary(1, base=base), formula="y ~ t | x1 + x2", epsilon=20.0)
    grid = {"x1": np.linspace(0, 1, 50), "x2": np.linspace(-1, 1, 50)}
    assert fit.effect(grid).mean() == pytest.approx(0.1, abs=0.03)


@pytest.mark.parametrize("method", LEARNERS)
def test_groups_of_binary_outcomes(method):
    fit = run(
        method,
        data=binary(1),
        formula="y ~ t | x1 + x2",
        epsilon=20.0,
        release="groups",
        by="cut(x1, [0, 0.5, 1])",
    )
    assert fit.estimates == pytest.approx(np.full(2, 0.1), abs=0.02)


def test_effects_by_group_without_noise_are_least_squares():
    """At a huge epsilon, in a randomised study, against ordinary least squares in each group."""
    rng = np.random.default_rng(33)
    n = 4000
    data = frame(n, 3)
    data["t"] = rng.random(n) < 0.5
    lift = data["g"].map({"a": 0.1, "b": 0.2, "c": 0.3}) + 0.05 * (data["x1"] > 0.5)
    data["y"] = np.clip(0.3 + lift * data["t"] + 0.05 * rng.normal(size=n), 0, 1)
    for method in LEARNERS:
        fit = run(method, "groups", data, epsilon=1e6, delta=0.0)
        cut = pd.cut(data["x1"], [-1, 0.5, 1])
        means = data.groupby(["g", cut, "t"], observed=True)["y"].mean().unstack()
        direct = (means[True] - means[False]).to_numpy()
        assert fit.estimates == pytest.approx(direct, abs=0.004)
        assert fit.labels[:3] == ("g a, x1 [0, 0.5]", "g a, x1 (0.5, 1]", "g b, x1 [0, 0.5]")
        errors = fit.tidy()["std_error"]
        assert errors.to_numpy() == pytest.approx(np.full(6, 0.1 / math.sqrt(n / 6)), rel=0.3)


def test_groups_without_records_are_released_too():
    data = frame(300)
    fit = run(path="groups", data=data, bounds={**BOUNDS, "g": list("abcd")}, by="g", epsilon=4.0)
    assert fit.labels == ("g a", "g b", "g c", "g d")
    assert np.isfinite(fit.estimates).all()
    assert np.isnan(fit.conf_int()[3]).all()
    assert json.loads(fit.to_json())["effects"][3]["sampling"]["unavailable"]


def test_groups_are_made_of_clipped_columns():
    """A value below the declared range belongs with the lowest, also under a logarithm."""
    data = frame(300).assign(z=np.linspace(1, 10, 300))
    low = data.assign(z=data["z"].where(data["z"] > 3, -5.0))
    edge = data.assign(z=data["z"].where(data["z"] > 3, 1.0))
    more = {"by": "cut(log(z), [0, 1, 2.4])", "bounds": {**BOUNDS, "z": (1, 10)}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one, two = (run(path="groups", data=d, **more).estimates for d in (low, edge))
    assert one == pytest.approx(two)


def test_points_agree_with_the_function():
    """Without noise to speak of, effects at points are those of a function with kernel noise."""
    data = frame(1500, 7)
    more = {"epsilon": 1e5, "delta": 0.0}
    points = run(path="points", data=data, **more).estimates
    function = run(path="kernel noise", data=data, **more).effect(AT)
    assert points == pytest.approx(function, abs=0.01)


# --- queries ----------------------------------------------------------------------------------


def queries(n=300, seed=2):
    return frame(n, seed)[["x1", "x2", "g"]]


def test_the_same_query_gets_the_same_answer(fit):
    asked = queries()
    whole = fit.effect(asked)
    assert whole.shape == (300,)
    order = np.random.default_rng(3).permutation(300)
    assert (fit.effect(asked.iloc[order]) == whole[order]).all()
    interleaved = pd.concat([asked.iloc[[i, (7 * i) % 300]] for i in range(300)])
    assert (fit.effect(interleaved)[::2] == whole).all()
    for size in (2, 3, 64, 299):
        assert (fit.effect(asked.iloc[:size]) == whole[:size]).all()
    again = fit.bands(asked)
    assert again.equals(fit.bands(asked))
    assert (again["effect"].to_numpy() == whole).all()


def test_a_query_alone_gets_the_answer_of_the_batch(fit):
    asked = queries()
    alone = np.concatenate([fit.effect(asked.iloc[[i]]) for i in range(300)])
    assert (alone == fit.effect(asked)).all()


def test_a_query_alone_is_as_good_as_the_same(fit):
    asked = queries()
    alone = np.concatenate([fit.effect(asked.iloc[[i]]) for i in range(300)])
    assert alone == pytest.approx(fit.effect(asked), abs=1e-13)


def test_many_queries_go_through_blocks(fit):
    asked = queries(45_000)
    whole = fit.effect(asked)
    assert (whole[19_990:20_010] == fit.effect(asked.iloc[19_990:20_010])).all()


@pytest.mark.parametrize("kind", ["polars", "pyarrow", "mapping", "arrays", "declared", "wider"])
def test_all_kinds_of_frames(fit, kind):
    asked = queries(50)
    if kind == "polars":
        other = pytest.importorskip("polars").from_pandas(asked)
    elif kind == "pyarrow":
        other = pytest.importorskip("pyarrow").Table.from_pandas(asked)
    elif kind == "mapping":
        other = {name: asked[name].tolist() for name in asked}
    elif kind == "arrays":
        other = {name: asked[name].to_numpy() for name in asked}
    elif kind == "declared":
        other = dpe.declare(asked, x1=(0, 1))
    else:
        other = asked.assign(more="text")[["more", "g", "x2", "x1"]]
    assert (fit.effect(other) == fit.effect(asked)).all()


def test_queries_outside_the_bounds_are_clipped_and_it_is_said(fit):
    wild = {"x1": [-3.0, 0.5, 7.0], "x2": [0.0, 0.0, 2.0], "g": ["a", "b", "c"]}
    tame = {"x1": [0.0, 0.5, 1.0], "x2": [0.0, 0.0, 1.0], "g": ["a", "b", "c"]}
    with pytest.warns(UserWarning, match="clipped") as caught:
        answer = fit.effect(wild)
    said = [str(w.message) for w in caught]
    assert len(said) == 2
    assert "2 values of 'x1'" in said[0]
    assert "1 value of 'x2'" in said[1]
    assert Path(caught[0].filename).name == Path(__file__).name
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (fit.effect(tame) == answer).all()
    at = {"release": "points", "at": wild}
    points = run(**at)
    assert (points.estimates == run(release="points", at=tame).estimates).all()
    notes = " ".join(points.notes)
    assert "2 values of x1" in notes
    assert "1 value of x2" in notes
    assert "2 values of x1" in " ".join(str(points.summary()).split())


ONE = {"x1": [0.5], "x2": [0.0], "g": ["a"]}
BAD_QUERIES = {
    "missing column": ({"x1": [0.5], "g": ["a"]}, "'x2'"),
    "unknown level": ({**ONE, "g": ["z"]}, "declared levels"),
    "NaN": ({**ONE, "x1": [math.nan]}, "missing values in x1"),
    "None": ({**ONE, "g": [None]}, "missing values in g"),
    "infinite": ({**ONE, "x1": [math.inf]}, "'x1' contains infinite"),
    "text": ({**ONE, "x1": ["a"]}, "'x1' must be numeric"),
    "a number for a level": ({**ONE, "g": [1.0]}, "declared levels"),
    "complex": ({**ONE, "x1": [1j]}, "'x1' must be numeric"),
    "nothing": (None, "frame"),
    "a list": ([0.5, 0.0, "a"], "frame"),
    "an array": (np.zeros((1, 3)), "frame"),
    "a series": (pd.Series([0.5]), "frame"),
}


@pytest.mark.parametrize(("asked", "says"), BAD_QUERIES.values(), ids=BAD_QUERIES.keys())
def test_bad_queries(fit, asked, says):
    for ask in (fit.effect, fit.bands):
        with pytest.raises(DataError) as caught:
            ask(asked)
        assert says in str(caught.value)


@pytest.mark.parametrize(
    "asked",
    [
        {**ONE, "x1": [0.1, 0.2]},
        {**ONE, "x1": np.zeros((1, 1))},
        {0: [0.5], 1: [0.0], 2: ["a"]},
    ],
    ids=["lengths", "two dimensions", "numbers for names"],
)
def test_bad_mappings(fit, asked):
    with pytest.raises(DPEffectsError):
        fit.effect(asked)


def test_no_rows_no_answers(fit):
    assert fit.effect(queries().iloc[:0]).shape == (0,)
    assert len(fit.bands(queries().iloc[:0])) == 0


# --- files ------------------------------------------------------------------------------------

FORMULAS = {
    "numbers and levels": (FORMULA, {}),
    "linear": (FORMULA, {"second_stage": "linear"}),
    "kernel noise": (FORMULA, {"noise": "kernel"}),
    "dr": (FORMULA, {"method": "dr_learner"}),
    "no variance": (FORMULA, {"variance": False}),
    "interaction": ("y ~ t | x1 * g", {}),
    "no intercept": ("y ~ t | x1 - 1", {}),
    "levels, no intercept": ("y ~ t | g - 1", {}),
    "transformed": ("log(1 + y) ~ t | I(x1 ** 2) + cut(x2, [-1, 0, 1])", {}),
    "private bounds": ("y ~ t | x1", {"bounds": {"y": (0, 1)}, "epsilon": 5.0, "rows": 2000}),
}


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("formula", "more"), FORMULAS.values(), ids=FORMULAS.keys())
def test_saved_and_loaded_functions_agree_bit_for_bit(formula, more, tmp_path):
    more = dict(more)
    made = run(formula=formula, data=frame(more.pop("rows", 150)), **more)
    path = made.save(tmp_path / "effect.json")
    loaded = dpe.load_cate(path)
    asked = queries(100)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert (made.effect(asked) == loaded.effect(asked)).all()
        for covers in ("noise", "effect")[: 1 if more.get("variance") is False else 2]:
            bands = made.bands(asked, 0.9, covers)
            assert bands.equals(loaded.bands(asked, 0.9, covers))
            assert np.isfinite(bands.drop(columns="covers").to_numpy()).all()
    for column in made._formula.covariate_columns:
        assert made.curve(column).equals(loaded.curve(column))
    assert str(made) == str(loaded)
    assert repr(made) == repr(loaded)
    assert made.tidy().equals(loaded.tidy())
    assert made.glance().equals(loaded.glance())
    assert made.charges_frame().equals(loaded.charges_frame())
    assert made.to_json() == loaded.to_json()
    assert loaded.save(tmp_path / "again.json").read_bytes() == path.read_bytes()
    json.loads(path.read_text(), parse_constant=pytest.fail)


@pytest.mark.parametrize("levels", [[1, 2, 3], [True, False], ["a b", "ä", ""]])
def test_levels_survive_a_file(levels, tmp_path):
    rng = np.random.default_rng(4)
    data = frame(120).assign(h=rng.choice(np.array(levels, dtype=object), 120))
    made = run(formula="y ~ t | h", data=data, bounds={"y": (0, 1), "h": levels})
    loaded = dpe.load_cate(made.save(tmp_path / "f.json"))
    assert (made.effect({"h": levels}) == loaded.effect({"h": levels})).all()
    assert loaded.space["h"] == tuple(levels)


def test_levels_of_numpy_numbers_survive_a_file(tmp_path):
    data = frame(120).assign(k=np.arange(120) % 3)
    made = run(formula="y ~ t | k", data=data, bounds={"y": (0, 1), "k": np.arange(3)})
    made.save(tmp_path / "f.json")


def document(**more):
    return json.loads(run(data=frame(80), **more).to_json())


def load(doc, folder):
    """Load a document; what is damaged has a checksum that fits, so that other checks are tried."""
    path = Path(folder) / "f.json"
    if not isinstance(doc, str):
        with contextlib.suppress(ValueError):
            doc = doc | {"checksum": checksum(doc)}
        doc = json.dumps(doc)
    path.write_text(doc, encoding="utf-8")
    return dpe.load_cate(path)


def test_files_that_are_not_functions(tmp_path):
    text = json.dumps(document())
    cases = ["", "null", "[]", "3", '"text"', "{}", "\x00", "{" * 20, text[: len(text) // 2]]
    cases += ['{"format": "another program"}', text.replace('"version": 1', '"version": 3')]
    cases += [json.dumps(run(path="groups").to_dict())]
    for case in cases:
        with pytest.raises(DataError):
            load(case, tmp_path)
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe\x00{}")
    for path in (tmp_path / "bytes.json", tmp_path, tmp_path / "nothing.json"):
        with pytest.raises(DataError):
            dpe.load_cate(path)
    with pytest.raises(DataError, match="version 3"):
        load(text.replace('"version": 1', '"version": 3'), tmp_path)


def change(doc, path, value):
    doc = copy.deepcopy(doc)
    *steps, last = path
    inner = doc
    for step in steps:
        inner = inner[step]
    inner[last] = value
    return doc


DAMAGED = {
    "weights cut off": lambda d: d["function"]["weights"].pop(),
    "a weight of text": lambda d: d["function"]["weights"].__setitem__(0, "x"),
    "no weight": lambda d: d["function"]["weights"].__setitem__(0, None),
    "an infinite weight": lambda d: d["function"]["weights"].__setitem__(0, math.inf),
    "no space": lambda d: d.pop("space"),
    "no guarantee": lambda d: d.pop("guarantee"),
    "another formula": lambda d: d.update(formula="y ~ t | x1"),
    "no formula": lambda d: d.update(formula="nothing"),
    "code for a formula": lambda d: d.update(formula="y ~ t | {__import__('os')}"),
    "fewer levels": lambda d: d["space"]["g"].update(levels=["a", "b"]),
    "ragged": lambda d: d["function"]["margins"][0].pop(),
    "fewer margins": lambda d: d["function"]["margins"].pop(),
    "spends of another kind": lambda d: d["charges"].append({"price": 3}),
    "half a range": lambda d: d["space"]["x1"].update(range=[0.0]),
}
ACCEPTED = {
    "a column without a range": lambda d: d["space"].pop("x1"),
    "a constant above 1": lambda d: d["function"]["features"].update(constant=2.0),
    "a constant of NaN": lambda d: d["function"]["features"].update(constant=math.nan),
    "features of fewer columns": lambda d: d["function"]["features"].update(covariates=2),
    "frequencies as a table": lambda d: d["function"]["features"].update(line=[[1.0, 2.0, 3.0]]),
    "no frequencies": lambda d: d["function"]["features"].update(line=[]),
    "an average of NaN": lambda d: d["function"].update(average=math.nan),
    "an infinite unit": lambda d: d["function"].update(unit=math.inf),
    "a number beyond floats": lambda d: d["function"].update(average=10**400),
    "an infinite n": lambda d: d["function"].update(n=math.inf),
    "an infinite range": lambda d: d["space"]["x1"].update(range=[0.0, math.inf]),
    "a reversed range": lambda d: d["space"]["x1"].update(range=[1.0, 0.0]),
}


def test_a_file_with_all_frequencies_written_out_is_read():
    """As earlier versions wrote it: a row of frequencies for each pair of features."""
    fit = run()
    document = json.loads(fit.to_json())
    features = document["function"]["features"]
    rows = np.kron(np.eye(features.pop("covariates")), np.array(features.pop("line"))[:, None])
    features.update(kind="fourier", frequencies=rows.tolist())
    document["checksum"] = checksum({k: v for k, v in document.items() if k != "checksum"})
    again = dpe.CateFunction.from_dict(document)
    assert (again.effect(AT) == fit.effect(AT)).all()


@each("damage", [*DAMAGED.values(), *ACCEPTED.values()])
def test_damaged_files(damage, tmp_path):
    doc = document()
    damage(doc)
    with pytest.raises(DPEffectsError):
        load(doc, tmp_path)


def test_a_file_of_brackets(tmp_path):
    with pytest.raises(DataError):
        load("[" * 200_000, tmp_path)


def places(value, path=()):
    """Paths of all values in a document, of long lists the first two."""
    entries = value.items() if isinstance(value, dict) else enumerate(value[:2])
    for name, inner in entries:
        yield (*path, name)
        if isinstance(inner, dict | list):
            yield from places(inner, (*path, name))


DOCUMENTS = [document(), document(second_stage="linear", noise="kernel")]
PLACES = [(doc, path) for doc in (0, 1) for path in places(DOCUMENTS[doc])]
NUMBERS = [place for place in PLACES if place[1][0] in ("function", "space", "formula")]
JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.floats(allow_nan=True, allow_infinity=True),
    st.sampled_from([10**400, "y ~ t", "y ~ t | x1 + x2 + g + h", ["a", "a", "b"], [[1.0]]]),
    st.text(max_size=5),
    st.lists(st.integers(0, 2), max_size=2),
    st.dictionaries(st.text(max_size=2), st.integers(0, 1), max_size=2),
)


@pytest.mark.long
@settings(max_examples=250, deadline=None, derandomize=True, database=None)
@given(place=st.one_of(st.sampled_from(PLACES), st.sampled_from(NUMBERS)), junk=JUNK)
@example(place=(0, ("function", "features", "constant")), junk=-1)
@example(place=(0, ("function", "n")), junk=math.inf)
def test_any_change_of_a_file_gives_our_error_or_an_answer(tmp_path_factory, place, junk):
    doc = change(DOCUMENTS[place[0]], place[1], junk)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            answer = load(doc, tmp_path_factory.getbasetemp()).effect(AT)
    except DPEffectsError:
        return
    assert answer.shape == (3,)


# --- bad arguments ----------------------------------------------------------------------------

test_one_clear_error_and_nothing_charged = refusals(
    run,
    ({"method": "t_learner"}, "k_anonymous, one_step, r_learner"),
    ({"release": "curve"}, "function, points, groups"),
    ({"trees": 5}, "'trees'"),
    ({"level": "label"}, "level must be"),
    ({"release": "points"}, "needs at"),
    ({"release": "groups"}, "needs by"),
    ({"at": AT}, 'at needs release="points"'),
    ({"by": "g"}, 'by needs release="groups"'),
    ({"release": "groups", "by": "x1"}, "terms with a few values", FormulaError),
    ({"release": "groups", "by": "y"}, "outcome", FormulaError),
    ({"release": "groups", "by": "t"}, "treatment", FormulaError),
    ({"release": "groups", "by": ""}, "must be terms"),
    ({"release": "groups", "by": "1"}, "names no column"),
    ({"release": "groups", "by": "zz"}, "'zz'", DataError),
    ({"release": "groups", "by": 3}, "must be terms"),
    ({"release": "groups", "by": f"g + cut(x1, {[i / 400 for i in range(401)]})"}, "1200 groups"),
    ({"release": "points", "at": {"x1": [0], "x2": [0]}}, "'g'", DataError),
    ({"release": "points", "at": {**AT, "x1": [math.nan] * 3}}, "missing", DataError),
    ({"release": "points", "at": {**AT, "g": ["a", "b", "z"]}}, "levels", DataError),
    ({"release": "points", "at": {**AT, "x1": list("abc")}}, "numeric", DataError),
    ({"release": "points", "at": {"x1": [], "x2": [], "g": []}}, "at has 0 rows"),
    ({"release": "points", "at": 3}, "frame", DataError),
    (
        {"release": "points", "at": AT, "bounds": {k: BOUNDS[k] for k in ("y", "x2", "g")}},
        "declared bounds for x1",
    ),
    ({"formula": "y ~ t"}, "needs covariates"),
    ({"formula": "y ~ t | 1"}, "needs covariates"),
    ({"epsilon": 0}, "positive", BudgetError),
    ({"epsilon": -1.0}, "positive", BudgetError),
    ({"epsilon": "one"}, "number", BudgetError),
    ({"delta": 1.0}, "delta", BudgetError),
    ({"kernel": "laplace"}, "kernel"),
    ({"noise": "laplace"}, "noise"),
    ({"second_stage": "forest"}, "second_stage"),
    ({"bandwidth": 0.0}, "bandwidth"),
    ({"bandwidth": "wide"}, "bandwidth"),
    ({"bandwidth": math.nan}, "bandwidth"),
    ({"clip": 0.5}, "clip"),
    ({"threshold": True}, "threshold"),
    ({"penalty": 0.0}, "penalty"),
    ({"penalty": 1e-3}, "at least"),
    (
        {"penalty": 1e-4, "data": frame(2000), "bounds": {k: BOUNDS[k] for k in ("y", "x2", "g")}},
        "at least",
    ),
    ({"n_features": 7}, "even"),
    ({"n_features": "many"}, "n_features"),
    ({"lipschitz": -1.0}, "lipschitz"),
    ({"lipschitz": 1.0, "threshold": 0.5}, "cannot be given together"),
    ({"budget_split": {"estimate": 1.0}}, "has no share"),
    ({"seed": -1}, "seed"),
    ({"variance": "no"}, "variance"),
    ({"data": 3}, "frame", DataError),
    ({"data": frame().assign(x1=math.nan)}, "missing values in x1", DataError),
    ({"bounds": {k: BOUNDS[k] for k in ("y", "x1", "x2")}}, '"g"', BoundsError),
    ({"data": frame().assign(g="z")}, "levels", DataError),
    ({"bounds": {**BOUNDS, "zz": (0, 1)}}, "'zz'", BoundsError),
)


def test_a_tiny_delta_is_refused_before_anything_is_charged():
    ledger = dpe.Ledger(10.0, 1e-3)
    try:
        run(delta=1e-200, ledger=ledger)
    except DPEffectsError:
        assert ledger.charges == ()


def test_too_many_points_are_refused_before_anything_is_charged():
    ledger = dpe.Ledger(10.0, 1e-3)
    at = {"x1": np.linspace(0, 1, 100_001)}
    try:
        run(formula="y ~ t | x1", release="points", at=at, ledger=ledger)
    except DPEffectsError:
        assert ledger.charges == ()


@pytest.mark.parametrize(
    "ask",
    [
        lambda f: f.bands(ONE, 0.0),
        lambda f: f.bands(ONE, 1.0),
        lambda f: f.bands(ONE, covers="both"),
        lambda f: f.curve("zz"),
        lambda f: f.curve("x1", at={"zz": 1}),
        lambda f: f.curve("x1", at={"g": "z"}),
        lambda f: f.curve("x1", at={"x2": "text"}),
        lambda f: f.plot("zz"),
        lambda f: f.bands(ONE, "0.9"),
        lambda f: f.curve("x1", points=-1),
        lambda f: f.curve("x1", at={"x2": [0.0, 0.1]}),
    ],
)
def test_bad_questions_to_a_function(fit, ask):
    with pytest.raises(DPEffectsError):
        ask(fit)


@pytest.mark.parametrize("path", ["function", "kernel noise", "points", "groups"])
@pytest.mark.parametrize("method", LEARNERS)
def test_pure_epsilon_is_enough(method, path):
    fit = run(method, path, delta=0.0)
    assert fit.guarantee.delta == 0.0
    assert {s.mechanism for s in fit.charges} <= {"discrete Laplace", "none (Jacobian)"}


def test_an_intercept_is_always_there():
    """Without an intercept in the formula the function would lose its constant."""
    one, two = run(formula="y ~ t | x1"), run(formula="y ~ t | x1 - 1")
    assert (one.effect({"x1": [0.0, 0.4]}) == two.effect({"x1": [0.0, 0.4]})).all()
    assert run(formula="y ~ t | g - 1").effect({"g": list("abc")}).shape == (3,)


# --- results ----------------------------------------------------------------------------------


def test_summaries_of_long_names_stay_in_80_columns():
    rng = np.random.default_rng(8)
    names = [f"a_covariate_whose_name_goes_on_and_on_{i}" for i in range(8)]
    levels = [f"a level with a rather long name, number {i}" for i in range(4)]
    data = frame(80).assign(**{name: rng.random(80) for name in names}, h=rng.choice(levels, 80))
    bounds = {**BOUNDS, **dict.fromkeys(names, (0, 1)), "h": levels}
    more = {"formula": "y ~ t | h + " + " + ".join(names), "data": data, "bounds": bounds}
    for path, extra in (
        ("function", {}),
        ("points", {"at": data.iloc[:50].to_dict("list")}),
        ("groups", {"by": "h + g + cut(x1, [0, 0.2, 0.4, 0.6, 0.8, 1])"}),
    ):
        fit = run(path=path, **more, **extra)
        assert all(len(row) <= 80 for row in str(fit.summary()).splitlines())
    assert "The first 40 of 60" in str(fit.summary())


def test_variance_false_leaves_bands_for_noise_only():
    fit = run(variance=False)
    assert not {"variance", "spread"} & {s.share for s in fit.charges}
    assert fit.curve("x1")["covers"].unique().tolist() == ["noise"]
    with pytest.raises(OptionError, match="variance=False"):
        fit.bands(ONE)
    groups = run(path="groups", variance=False)
    assert np.isnan(groups.conf_int()).all()


def test_curves_and_plots(fit):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    curve = fit.curve("x2", points=5, at={"g": "b", "x1": 0.25})
    assert curve["x2"].tolist() == [-1.0, -0.5, 0.0, 0.5, 1.0]
    by_hand = {"x1": [0.25] * 5, "x2": curve["x2"], "g": ["b"] * 5}
    assert (curve["effect"].to_numpy() == fit.effect(by_hand)).all()
    assert fit.curve("g")["g"].tolist() == ["a", "b", "c"]
    for column in ("x1", "g"):
        axes = fit.plot(column)
        assert column in (axes.get_xlabel(), axes.get_ylabel())
        assert any("NOT PRIVATE: a seed was set" in text.get_text() for text in axes.texts)
        assert axes.lines
    line = fit.plot("x1").lines[0].get_ydata()
    assert (np.asarray(line) == fit.curve("x1")["effect"].to_numpy()).all()
    given = plt.figure().add_subplot()
    assert fit.plot("x1", ax=given, covers="noise") is given
    plt.close("all")


def test_functions_can_be_compared():
    """Arrays inside must not make `==` fail: two functions are equal if they are the same one."""
    fit, other = run("r_learner", seed=1), run("r_learner", seed=1)
    assert fit == fit
    assert fit != other
