"""What a paper's reader sees of a study: Table 1, results, subgroups, pictures, records."""

from __future__ import annotations

import json
import math
import re
from itertools import combinations

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

import dpeffects as dpe
from dpeffects.errors import OptionError
from dpeffects.inference.joint import JointSums, Margin, StudyColumn, agreeing
from dpeffects.inference.table_one import arm_sizes, table_one, unlike
from dpeffects.report.journal_table import tables_of
from dpeffects.results.wording import p_text
from dpeffects.summary import Table

mpl.use("Agg")
EXACT = 1e7
"""An epsilon that leaves nothing of the noise."""
BOUNDS = {
    "pain": (0.0, 10.0),
    "died": [0, 1],
    "age": (18.0, 90.0),
    "grade": range(1, 3),
    "smokes": [0, 1],
    "region": ["n", "s", "w"],
}
FORMULA = "pain + died ~ t | age + region + smokes"


def made(n=1500, seed=3, arms=2):
    rng = np.random.default_rng(seed)
    t = rng.integers(0, arms, n)
    smokes = (rng.random(n) < 0.2 + 0.1 * t).astype(int)
    return pd.DataFrame(
        {
            "t": t if arms == 2 else np.array(["none", "low", "high"])[t],
            "pain": np.clip(rng.normal(5.0 - t * (1 + smokes), 2.0), 0.0, 10.0),
            "died": (rng.random(n) < 0.1 + 0.1 * t).astype(int),
            "age": np.clip(rng.normal(50.0 + 3.0 * t, 12.0), 18.0, 90.0),
            "smokes": smokes,
            "grade": rng.integers(1, 3, n),
            "region": rng.choice(["n", "s", "w"], n, p=[0.5, 0.3, 0.2]),
        }
    )


def study(data, formula=FORMULA, epsilon=EXACT, **more):
    call = {"design": "randomised", "bounds": BOUNDS, "seed": 1, **more}
    return dpe.dp_study(formula, data, epsilon=epsilon, **call)


def by_hand(x, t, one, other):
    """Standardised difference of a column, by its formula."""
    a, b = x[t == one], x[t == other]
    return (a.mean() - b.mean()) / math.sqrt((a.var() + b.var()) / 2)


# --- Table 1 --------------------------------------------------------------------------------------


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_without_noise_table_1_is_that_of_pandas(delta):
    data = made()
    found = study(data, delta=delta).table1().set_index(["variable", "level"])
    assert list(found.index) == [
        ("age", ""),
        ("region", "n"),
        ("region", "s"),
        ("region", "w"),
        ("smokes", ""),
    ]
    arms = {"treated": data[data["t"] == 1], "control": data[data["t"] == 0], "overall": data}
    for name, rows in arms.items():
        age = found.loc["age", ""]
        assert age[f"{name}_n"] == pytest.approx(len(rows), abs=0.1)
        assert age[f"{name}_mean"] == pytest.approx(rows["age"].mean(), rel=1e-4)
        assert age[f"{name}_sd"] == pytest.approx(rows["age"].std(), rel=1e-3)
        for level in "nsw":
            own = found.loc["region", level]
            assert own[f"{name}_n"] == pytest.approx((rows["region"] == level).sum(), abs=0.1)
            assert own[f"{name}_mean"] == pytest.approx((rows["region"] == level).mean(), abs=1e-4)
        assert found.loc["smokes", ""][f"{name}_n"] == pytest.approx(rows["smokes"].sum(), abs=0.1)
    t = data["t"]
    for key, x in [
        (("age", ""), data["age"]),
        (("smokes", ""), data["smokes"]),
        *((("region", level), (data["region"] == level).astype(float)) for level in "nsw"),
    ]:
        assert found.loc[key, "smd"] == pytest.approx(by_hand(x, t, 1, 0), abs=1e-3)


def test_of_three_arms_the_difference_is_the_largest_between_two():
    data = made(arms=3)
    bounds = BOUNDS | {"t": ["none", "low", "high"]}
    found = study(data, bounds=bounds).table1().set_index(["variable", "level"])
    pairs = list(combinations(["none", "low", "high"], 2))
    for key, x in ((("age", ""), data["age"]), (("smokes", ""), data["smokes"])):
        expected = max(abs(by_hand(x, data["t"], a, b)) for a, b in pairs)
        assert found.loc[key, "smd"] == pytest.approx(expected, abs=1e-3)


def test_missing_values_have_rows_of_their_own_and_are_not_in_means():
    data = made()
    data.loc[::5, "age"] = np.nan
    data.loc[::7, "region"] = None
    missing = {"age": "indicator", "region": "indicator"}
    found = study(data, missing=missing).table1().set_index(["variable", "level"])
    age = found.loc["age", ""]
    for arm, t in (("treated", 1), ("control", 0)):
        rows = data[data["t"] == t]
        assert age[f"{arm}_mean"] == pytest.approx(rows["age"].mean(), rel=1e-3)
        assert age[f"{arm}_sd"] == pytest.approx(rows["age"].std(), rel=2e-3)
        for name in ("age", "region"):
            share = found.loc[name, "missing"][f"{arm}_mean"]
            assert share == pytest.approx(rows[name].isna().mean(), abs=1e-3)
    assert "age: missing" in str(study(data, missing=missing).summary())


def test_two_values_that_are_not_0_and_1_are_named():
    found = study(made(), "pain ~ t | grade").table1()
    data = made()
    assert found["level"].tolist() == ["2"]
    assert found["overall_mean"][0] == pytest.approx((data["grade"] == 2).mean(), abs=1e-4)


def test_declared_levels_0_and_1_are_one_row():
    found = study(made(), "pain ~ t | smokes", bounds=BOUNDS | {"smokes": [0, 1]}).table1()
    assert found[["variable", "level"]].to_numpy().tolist() == [["smokes", ""]]
    assert found["overall_mean"][0] == pytest.approx(made()["smokes"].mean(), abs=1e-4)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("epsilon", [1e-4, 0.01, 1.0])
@pytest.mark.parametrize("n", [4, 40, 1500])
def test_numbers_are_possible_whatever_the_noise(epsilon, n):
    data = made(n)
    data["t"] = np.arange(n) % 2
    for seed in range(2):
        fit = study(data, epsilon=epsilon, subgroups="region", seed=seed)
        found = fit.table1()
        shares = found[found["share"]]
        names = ("treated", "control", "overall")
        for name in names:
            assert shares[f"{name}_mean"].between(-1e-9, 1.0 + 1e-9).all()
            assert (found[f"{name}_n"] >= -1e-9).all()
            levels = found[found["variable"] == "region"]
            assert levels[f"{name}_mean"].sum() == pytest.approx(1.0)
            assert found[found["variable"] == "age"][f"{name}_mean"].between(18.0, 90.0).all()
            spread = found.loc[~found["share"], f"{name}_sd"]  # NaN where it is mostly noise
            assert (spread.isna() | (spread > 0.0)).all()
        sums = shares["treated_n"] + shares["control_n"]
        assert np.allclose(sums, shares["overall_n"])
        assert sum(fit.sizes.values()) == pytest.approx(n)
        assert min(fit.sizes.values()) >= 0.0
        assert fit.summary().as_text()
        assert fit.report().text
        assert fit.table("table1").as_latex()


def draws(runs=1500, seed=0):
    """Released sums of a known table with fresh noise, and what they are without noise."""
    rng = np.random.default_rng(seed)
    sizes = np.array([[600.0], [400.0]])
    means = np.array([[0.1, 0.2 - 0.5, 0.3 - 0.5], [0.05, 0.25 - 0.5, 0.3 - 0.5]])
    squares = np.array([[0.06, 0.25, 0.25], [0.05, 0.25, 0.25]])
    columns = (
        StudyColumn("age", 18.0, 90.0),
        StudyColumn("r[b]", 0.0, 1.0, True, "r", "b", "a"),
        StudyColumn("r[c]", 0.0, 1.0, True, "r", "c", "a"),
    )
    noise = (30.0, 40.0, 10.0)
    outcomes = (StudyColumn("y"),)

    def one(scale):
        e = scale * rng.normal(size=(2, 1))
        own = sizes + math.sqrt(noise[0]) * e
        sums = (means * sizes)[:, None, :] + scale * math.sqrt(noise[1]) * rng.normal(
            size=(2, 1, 3)
        )
        squared = (squares * sizes)[:, None, :] + (own - sizes)[..., None] / 8.0
        squared = squared + scale * math.sqrt(noise[2]) * rng.normal(size=(2, 1, 3))
        whole = Margin(own, np.zeros((2, 1, 1)), np.ones((2, 1, 1)), noise)
        baseline = Margin(own, sums, squared, (0.0, *noise[1:]))
        joint = JointSums(
            ("treated", "control"),
            ((0, 1),),
            outcomes,
            whole,
            baseline_columns=columns,
            baseline=baseline,
        )
        return list(table_one(joint))

    return one(0.0), [one(1.0) for _ in range(runs)]


ARMS = ("treated", "control", "overall")


def test_the_noise_that_is_shown_is_the_noise_that_is_there():
    exact, drawn = draws()
    for k, row in enumerate(exact):
        noise = np.array([row[f"{arm}_noise_sd"] for arm in ARMS])
        means = np.array([[run[k][f"{arm}_mean"] for arm in ARMS] for run in drawn])
        smd = np.array([run[k]["smd"] for run in drawn])
        assert means.std(axis=0) == pytest.approx(noise, rel=0.1)
        assert smd.std() == pytest.approx(row["smd_noise_sd"], rel=0.1)
        exact_means = [row[f"{arm}_mean"] for arm in ARMS]
        assert means.mean(axis=0) == pytest.approx(exact_means, abs=4 * noise.max() / 38)


def test_differences_after_weighting_stand_beside_those_before():
    rng = np.random.default_rng(1)
    x, n = rng.random(4000), 4000
    t = (rng.random(n) < 0.25 + 0.5 * x).astype(int)
    data = pd.DataFrame({"x": x, "t": t, "y": np.clip(0.5 * x + 0.3 * rng.random(n), 0, 1)})
    bounds = {"x": (0.0, 1.0), "y": (0.0, 1.0)}
    fit = dpe.dp_study("y ~ t | x", data, epsilon=200.0, bounds=bounds, seed=1)
    row = fit.table1().iloc[0]
    assert row["smd"] == pytest.approx(by_hand(data["x"], data["t"], 1, 0), abs=0.01)
    assert abs(row["smd_weighted"]) < 0.1 * row["smd"]
    assert row["treated_n"] == pytest.approx(t.sum(), abs=5)
    said = " ".join(fit.report().text.split())
    assert float(re.search(r"After weighting, the largest is (\d\.\d+)\.", said)[1]) < 0.05
    assert "weighted" in str(fit.table("table1"))
    ax = fit.plot(kind="love")
    assert len(drawn(ax, "beyond_adjusted")) + len(drawn(ax, "within_adjusted")) == 2


def test_an_arm_that_may_be_empty_has_no_difference():
    data = made(200).assign(t=[1] + [0] * 199)
    fit = study(data, epsilon=1.0)
    assert (fit.table1()["smd_noise_ratio"] > 1.0).all()
    lines = str(fit.table("table1")).splitlines()
    assert "\N{EN DASH}" in next(x for x in lines if x.startswith("smokes "))
    sizes, noise = arm_sizes(fit.sums)
    assert sizes.min() >= 0.0
    assert noise > 0.0


def test_without_baseline_variables_table_1_is_empty():
    fit = study(made(), "pain ~ t")
    assert len(fit.table1()) == 0
    with pytest.raises(OptionError, match="results, budget"):
        fit.table("table1")
    with pytest.raises(OptionError, match="no baseline variables"):
        fit.plot(kind="love")


# --- results --------------------------------------------------------------------------------------


def test_the_results_table_says_what_tidy_says():
    fit = study(made(), epsilon=1.0)
    table = next(b for b in fit.table("results").blocks if isinstance(b, Table))
    assert table.columns[:4] == ("outcome", "treated", "control", "difference")
    for row, tidy in zip(table.rows, fit.tidy().to_dict("records"), strict=True):
        factor = 100.0 if row[0].endswith(", %") else 1.0
        values = [tidy["estimate"], tidy["conf_low"], tidy["conf_high"]]
        for text, value in zip([row[3], *row[4].split(" to ")], values, strict=True):
            assert float(text) == pytest.approx(
                factor * value, abs=0.1 * factor * tidy["std_error"]
            )
        assert float(row[1]) - float(row[2]) == pytest.approx(float(row[3]), abs=0.2 * factor)
    assert table.rows[1][0] == "died, %"


def test_adjusted_p_values_agree_with_simultaneous_intervals():
    for seed in range(8):
        fit = study(made(300, seed), epsilon=2.0, seed=seed)
        for row in fit.tidy(0.9).to_dict("records"):
            covers = row["conf_low"] <= 0.0 <= row["conf_high"]
            assert covers == (row["p_value"] >= 0.1)


def test_ratios_are_for_outcomes_that_have_them():
    data = made()
    fit = study(data, "pain + died ~ t", bounds=BOUNDS | {"pain": (-1.0, 10.0)})
    found = fit.tidy(scale="ratio").set_index("term")
    risk = data.groupby("t")["died"].mean()
    assert found.loc["died", "estimate"] == pytest.approx(risk[1] / risk[0], rel=1e-3)
    assert math.isnan(found.loc["pain", "estimate"])
    assert math.isnan(found.loc["pain", "p_value"])
    assert fit.effect_on("died").effect("ratio").estimate == found.loc["died", "estimate"]
    with pytest.raises(OptionError, match="negative"):
        study(data, "pain ~ t", bounds=BOUNDS | {"pain": (-1.0, 10.0)}).tidy(scale="ratio")


def test_each_effect_has_its_own_outcome_and_arms():
    bounds = BOUNDS | {"t": ["none", "low", "high"]}
    fit = study(made(arms=3), "pain + died ~ t", bounds=bounds, contrasts="pairwise")
    assert fit.tidy()["outcome"].tolist() == ["pain"] * 3 + ["died"] * 3
    one = fit.effect_on("died: high - low")
    assert (one.outcome, one.treatment) == ("died", "t (high - low)")
    means = fit.means_at()
    assert list(zip(means["term"], means["arm"], strict=True)) == [
        (outcome, arm) for outcome in ("pain", "died") for arm in ("none", "low", "high")
    ]
    expected = made(arms=3).groupby("t")["died"].mean()
    found = means[means["term"] == "died"].set_index("arm")["mean"]
    assert found.to_dict() == pytest.approx(expected.to_dict(), rel=1e-3)
    with pytest.raises(OptionError, match="outcome must be one of"):
        fit.effect_on("weight")


# --- subgroups ------------------------------------------------------------------------------------


def test_without_noise_the_interaction_is_a_z_test():
    data = made(800)
    fit = study(data, "pain ~ t | age", subgroups="smokes", bounds=BOUNDS | {"smokes": [0, 1]})
    row = fit.interactions().iloc[0]
    parts = data.groupby(["smokes", "t"])["pain"].agg(["mean", "var", "size"])
    difference = sum(
        sign * parts.loc[key, "mean"]
        for key, sign in zip([(0, 1), (0, 0), (1, 1), (1, 0)], [1, -1, -1, 1], strict=True)
    )
    error = math.sqrt((parts["var"] / parts["size"]).sum())
    assert row["difference"] == pytest.approx(difference, rel=1e-3)
    assert row["p_value"] == pytest.approx(2 * norm.sf(abs(difference) / error), rel=0.05)
    assert row["conf_high"] - row["difference"] == pytest.approx(1.96 * error, rel=0.01)


def test_noise_of_levels_that_agree_with_the_whole_is_not_taken_as_independent():
    """The difference of two levels has the noise of both as they were released."""
    rng = np.random.default_rng(0)
    sizes, noise = np.array([[500.0], [400.0]]), (20.0, 30.0, 10.0)

    def margin(levels):
        own = np.repeat(sizes / levels, levels, axis=1)
        size, total, square = (math.sqrt(v) * rng.normal(size=(2, levels, 1)) for v in noise)
        sums, squares = 0.1 * own[..., None] + total, 0.05 * own[..., None] + square
        names = tuple(f"g {k}" for k in range(levels))
        return Margin(own + size[..., 0], sums, squares, noise, "g", names)

    found, said, alone = [], [], []
    for _ in range(600):
        whole, parts = agreeing(margin(1), [margin(2)], 900.0)
        sums = JointSums(("a", "b"), ((0, 1),), (StudyColumn("y"),), whole, (parts,))
        (_, (one,)), (_, (other,)) = sums.effects_by_level(0, apart=True)
        found.append(one.point - other.point)
        said.append(one.less(other).noise_variance)
        alone.append(sum(e.noise_variance for _, (e,) in sums.effects_by_level(0)))
    assert np.var(found) == pytest.approx(np.mean(said), rel=0.2)
    assert np.mean(alone) < 0.75 * np.var(found)


def test_of_more_levels_the_clearest_pair_is_adjusted_for_their_number():
    data = made(900)
    fit = study(data, "pain + died ~ t", epsilon=5.0, subgroups="region")
    alone = fit.interactions(simultaneous=False)
    both = fit.interactions()
    assert alone["one"].tolist() == both["one"].tolist()
    assert both["p_value"].tolist() == pytest.approx(np.minimum(1.0, 2 * alone["p_value"]).tolist())
    parts = {level: [e.point for e in found] for level, found in fit.sums.effects_by_level(0)}
    for i, row in enumerate(both.to_dict("records")):
        expected = parts[row["one"]][i] - parts[row["other"]][i]
        assert row["difference"] == pytest.approx(expected)


def test_subgroups_have_summaries_and_no_simple_difference():
    fit = study(made(), subgroups="region", epsilon=2.0)
    by = fit.by("region")
    assert by.summary().as_text()
    with pytest.raises(OptionError, match="share records"):
        by.difference(by.labels[0], by.labels[1])
    with pytest.raises(OptionError, match="this study has no subgroups by 'sex'; it has region"):
        fit.plot(by="sex")


# --- what is written ------------------------------------------------------------------------------


def test_long_studies_are_cut_in_the_summary_and_whole_in_the_tables():
    rng = np.random.default_rng(0)
    names = [f"y{k}" for k in range(40)]
    data = pd.DataFrame(rng.random((200, 40)), columns=names).assign(t=np.arange(200) % 2)
    bounds = dict.fromkeys(names, (0.0, 1.0))
    fit = study(data, f"{' + '.join(names)} ~ t", epsilon=1.0, bounds=bounds)
    text = str(fit.summary())
    assert "The first 25 of 40 effects" in text
    table = next(b for b in fit.table("results").blocks if isinstance(b, Table))
    assert [row[0] for row in table.rows] == names
    assert fit.plot() is not None


def test_the_record_is_written_in_word_too(tmp_path):
    docx = pytest.importorskip("docx")
    fit = study(made(), subgroups="region", epsilon=1.0)
    path = fit.report(tmp_path / "study.docx")
    twin = json.loads((tmp_path / "study.json").read_text())
    assert dpe.StudyEffects.from_dict(twin["result"]) == fit
    tables = [
        [[cell.text.replace("\u2212", "-") for cell in row.cells] for row in table.rows]
        for table in docx.Document(str(path)).tables
    ]
    for name, own in tables_of(fit):
        block = next(b for b in own.blocks if isinstance(b, Table))
        assert [list(row) for row in (block.columns, *block.rows)] in tables, name
    before = (tmp_path / "study.json").read_bytes()
    for ending in ("html", "md", "tex", "txt"):  # formats of one record share its twin
        text = fit.report(tmp_path / f"study.{ending}").read_text()
        assert "Baseline variables by arm" in text
    assert (tmp_path / "study.json").read_bytes() == before
    with pytest.raises(OptionError, match=r"\.html, \.tex, \.md, \.txt, \.docx .*table\(\)"):
        fit.report(tmp_path / "study.pdf")


def test_the_paragraph_names_what_is_largest():
    fit = study(made(), subgroups="region", epsilon=5.0)
    text = fit.report().text
    found = fit.table1()
    largest = found.loc[found["smd"].abs().idxmax()]
    assert f"{largest['smd']:.2f} ({largest['variable']}" in text
    assert "2 tests for interaction" in text


# --- pictures -------------------------------------------------------------------------------------


def drawn(ax, gid):
    return [line.get_xydata() for line in ax.get_lines() if line.get_gid() == gid]


def test_the_forest_has_a_panel_for_each_unit():
    fit = study(made())
    ax = fit.plot()
    assert not drawn(ax, "interval")
    panels = ax.child_axes
    assert [panel.get_xlabel() for panel in panels] == [
        "Difference in means of pain",
        "Difference, percentage points",
    ]
    for panel, ends, factor in zip(panels, fit.conf_int(), (1.0, 100.0), strict=True):
        (line,) = drawn(panel, "interval")
        assert line[:, 0] == pytest.approx(factor * ends)
    ax.figure.draw_without_rendering()
    above, below = (panel.get_window_extent() for panel in panels)
    assert above.y0 > below.y1
    for panel, place in zip(panels, ax.get_yticks()[[0, 3]], strict=True):
        inner = panel.transData.transform((0.0, place))[1]
        assert inner == pytest.approx(ax.transData.transform((0.0, place))[1], abs=0.5)
    with pytest.raises(OptionError, match="kind must be"):
        fit.plot(kind="funnel")


def test_the_forest_by_subgroup_has_the_whole_above_its_levels():
    data = made()
    fit = study(data, subgroups="region", epsilon=5.0)
    ax = fit.plot("region")
    labels = [label.get_text().strip() for label in ax.get_yticklabels()]
    assert [x for x in labels if x] == [*["pain", "region", *"nsw"], *["died", "region", *"nsw"]]
    texts = [text.get_text() for text in ax.texts]
    assert texts[:3] == ["Effect (95% CI)", "n", "P for interaction"]
    for level, size in data["region"].value_counts().items():
        shown = float(texts[3 * labels.index(level) + 4].replace(",", ""))
        assert shown == pytest.approx(size, abs=0.02 * len(data))
    p_values = fit.interactions()["p_value"]
    shown = [texts[3 * k + 5] for k, label in enumerate(labels) if label == "region"]
    assert shown == list(map(p_text, p_values))
    listed = fit.plot(["region"])
    assert [label.get_text().strip() for label in listed.get_yticklabels()] == labels
    with pytest.raises(OptionError, match="'sex'"):
        fit.plot("sex")
    with pytest.raises(OptionError, match="different units"):
        fit.by("region").plot()


def test_the_love_plot_is_sorted():
    fit = study(made())
    labels = [label.get_text() for label in fit.plot(kind="love").get_yticklabels()]
    found = fit.table1()
    order = found["smd"].abs().sort_values(ascending=False).index
    named = (found["variable"] + " " + found["level"]).str.strip()
    assert labels == named[order].tolist()


def test_factors_and_outcomes_are_found_however_their_spaces_are_written():
    data, cut = made(600), "cut(age, [18, 50, 90])"
    bounds = BOUNDS | {"smokes": [0, 1]}
    fit = study(data, "I(pain > 4) + died ~ t", subgroups="cut(age,[18,50,90])", bounds=bounds)
    assert fit.subgroups == (cut,)
    for spelling in (cut, "cut(age,[18,50,90])", "cut( age, [18,50, 90] )"):
        assert fit.by(spelling).labels == fit.by(cut).labels
        assert str(fit.table(f"by {spelling}")) == str(fit.table(f"by {cut}"))
        fit.plot(by=spelling)
    assert fit.effect_on("I(pain>4)").estimate == fit.effect_on("I(pain > 4)").estimate
    with pytest.raises(OptionError, match="no subgroups by"):
        fit.by("cut(age, [18, 5090])")


def test_arms_of_a_trial_that_chance_does_not_make_so_different_are_a_warning():
    """Of STAR, which randomised within schools, an SMD of -0.27 was said without a word."""
    rng, n = np.random.default_rng(5), 4000
    site = rng.integers(0, 2, n)
    plain, within = ((rng.random(n) < p).astype(int) for p in (0.4, np.where(site, 0.55, 0.3)))
    data = pd.DataFrame({"site": site, "x": rng.random(n), "y": rng.random(n)})
    about = {"bounds": {"site": [0, 1], "x": (0, 1), "y": (0, 1)}, "epsilon": 2, "seed": 1}
    for t, design, warned in (
        (within, "randomised", True),
        (plain, "randomised", False),
        (within, "observational", False),
    ):
        fit = dpe.dp_study("y ~ t | site + x", data.assign(t=t), design=design, **about)
        (row,) = fit.table1().query("variable == 'site'").to_dict("records")
        told = f"the SMD of site is {row['smd']:.2f}, which chance"
        assert ("Imbalance" in fit.warnings, told in fit.warnings) == (warned, warned)
    tiny = dpe.dp_study(
        "y ~ t | site + x", data.assign(t=within), design="randomised", **about | {"epsilon": 0.02}
    )
    assert "Imbalance" not in tiny.warnings  # mostly noise


def test_chance_and_noise_alone_are_hardly_ever_called_an_imbalance():
    rng, sizes = np.random.default_rng(6), {"treated": 300.0, "control": 700.0}
    sampling, noise = math.sqrt(1 / 300 + 1 / 700), 0.1
    smds = rng.normal(0.0, sampling, 20_000) + rng.laplace(0.0, noise / math.sqrt(2.0), 20_000)
    row = {"share": True, "smd_noise_sd": noise}
    found = [unlike([row | {"smd": smd}] * 20, sizes) is not None for smd in smds]
    assert np.mean(found) < 1e-3
    assert unlike([row | {"smd": 0.9}, row | {"smd": -1.1}], sizes)["smd"] == -1.1
