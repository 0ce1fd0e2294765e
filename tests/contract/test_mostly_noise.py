"""What is mostly noise is not printed as a number: in any table or picture, of any kind of result.

The rule is written down here once more, by itself: where the standard deviation of the noise in a
number is above a third of the number, or a twentieth of the range that it could have, tables say
"suppressed". What is printed is possible, and near to what the data have.
"""

from __future__ import annotations

import itertools
import math
import re
from importlib import import_module
from pkgutil import iter_modules

import numpy as np
import pandas as pd
import pytest

import dpeffects as dpe
from dpeffects.inference.table_one import arm_sizes
from dpeffects.report import journal_table as report_table
from dpeffects.results.result_base import ResultBase
from dpeffects.summary import Table
from tests.cases import each
from tests.kinds_of_summaries import WIDE, people
from tests.once import once

NOISE, HIDDEN = "\N{EN DASH}", "suppressed"
SETTINGS = {
    "tiny": (200, 0.1),
    "small": (2000, 1.0),
    "usual": (20_000, 1.0),
    "large": (50_000, 1e4),
}
"""Records and epsilon."""


def call(n, epsilon, seed=1, **more):
    return {"data": people(n), "epsilon": epsilon, "bounds": WIDE, "seed": seed} | more


def trial(n, epsilon, seed=1, **more):
    return call(n, epsilon, seed, design="randomised", **more)


BY = {"release": "groups", "by": "g"}
STUDY = "y + event ~ t | x + g + level"
LIFE = "Surv(time, event) ~ t"
BEFORE = ["earlier", "before"]
KINDS = {
    "study": lambda *a: dpe.dp_study(STUDY, subgroups="g", **trial(*a)),
    "adjusted study": lambda *a: dpe.dp_study(STUDY, **call(*a)),
    "study of arms": lambda *a: dpe.dp_study("y + event ~ arm | x + g", **trial(*a)),
    "balance": lambda *a: dpe.dp_balance("y ~ t | x + g", overlap=True, **call(*a)),
    "survival": lambda *a: dpe.dp_survival(LIFE, horizon=50, **trial(*a)),
    "adjusted survival": lambda *a: dpe.dp_survival(f"{LIFE} | x", horizon=50, **call(*a)),
    "quantiles": lambda *a: dpe.dp_qte("y ~ t", **trial(*a)),
    "levels": lambda *a: dpe.dp_ordinal("level ~ t", **trial(*a)),
    "rates": lambda *a: dpe.dp_rate("event ~ t", offset="time", per=100, **trial(*a)),
    "average": lambda *a: dpe.dp_ate("y ~ t | x", **call(*a)),
    "risk": lambda *a: dpe.dp_ate("event ~ t", method="diff_in_means", **trial(*a)),
    "arms": lambda *a: dpe.dp_ate("y ~ arm | x", **call(*a)),
    "subsets": lambda *a: dpe.dp_ate("y ~ t | x", by="g", **call(*a)),
    "groups": lambda *a: dpe.dp_cate("y ~ t | x", method="dr_learner", **BY, **call(*a)),
    "compliers": lambda *a: dpe.dp_late("y ~ d | x", instrument="z", **call(*a)),
    "did": lambda *a: dpe.dp_did("y ~ t", before="before", **call(*a)),
    "event study": lambda *a: dpe.dp_did("y ~ t", before=BEFORE, **call(*a)),
    "moments": lambda *a: dpe.dp_moments("y ~ t | x + g", **call(*a)),
}
APART = {
    "CombinedEffect": "one effect, as a result has it, and the sites' own beside their errors",
    "CateFunction": "a function: bands, and no table of released numbers",
    "Regression": "coefficients have no range, and stand beside their errors",
    "RandomisationTest": "a p-value",
    "SensitivityAnalysis": "what would have to be true, and no release",
}
"""Results whose tables have no numbers that the rule is about, and why."""


REFUSED = {"balance": (1500, 2.0), "subsets": (400, 0.5)}
"""What is refused with a tiny epsilon, or has no estimate, and a little more of both."""


@once
def made(kind, setting):
    tiny = setting == "tiny" and kind in REFUSED
    return KINDS[kind](*(REFUSED[kind] if tiny else SETTINGS[setting]))


SHOWN = {}


def summary_of(fit):
    """Its summary, made once: those of quantiles take long."""
    if id(fit) not in SHOWN:
        SHOWN[id(fit)] = (fit, fit.summary())
    return SHOWN[id(fit)][1]


def tables_of(fit):
    found = [x for x in summary_of(fit).blocks if isinstance(x, Table)]
    return [x for x in found if not x.title.startswith(("Privacy", "Standard error", "Parts of"))]


def cells(table, column):
    """A column of a table; of several with one name, each."""
    places = [k for k, name in enumerate(table.columns) if name == column]
    return [[row[k] for row in table.rows] for k in places]


def hidden(text):
    return text == NOISE or text.endswith(f"({NOISE})")


def count_hidden(fit):
    return sum(hidden(cell) for table in tables_of(fit) for row in table.rows for cell in row)


def is_noise(sd, width=math.inf, value=math.inf, signed=False):
    """The rule, for one number."""
    by_range, own = sd > width / 20.0 * (1 + 1e-9), sd > abs(value) / 3.0 * (1 + 1e-9)
    return (by_range and own) if signed else (by_range or own)


def test_every_kind_of_result_is_here():
    for module in iter_modules(dpe.report.__path__, "dpeffects.report."):
        import_module(module.name)
    types = {type(made(kind, "small")).__name__ for kind in KINDS} | set(APART)
    known = {x.__name__ for x in subclasses(ResultBase) if x._blocks is not ResultBase._blocks}
    assert known - {"SimultaneousEffects", "TableEffects"} <= types


def subclasses(kind):
    return [y for x in kind.__subclasses__() for y in (x, *subclasses(x))]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("setting", ["tiny", "small", "large"])
@pytest.mark.parametrize("kind", KINDS)
def test_no_impossible_value_is_printed(kind, setting):
    fit = made(kind, setting)
    for table in tables_of(fit):
        for row in table.rows:
            for cell in row[1:]:
                assert not re.search(r"\(0\.?0*\)$", cell), (table.title, row)  # sd of zero
                assert not re.match(r"0 \(0\.?0*%\)", cell) or setting == "large", row
                assert "nan" not in cell
        if "SMD" in table.columns or "each level of" in table.title or "by outcome" in table.title:
            shares = re.findall(
                r"(-?[\d.]+) ?%", " ".join(" ".join(row[1:3]) for row in table.rows)
            )
            assert all(0.0 <= float(x) <= 100.0 for x in shares)
        for column in cells(table, "at risk"):
            numbers = [int(x) for x in column if x != NOISE]
            assert numbers == sorted(numbers, reverse=True)
            assert all(0 <= x <= fit.n for x in numbers)
        if "at risk" in table.columns:
            first = [column[0] for column in cells(table, "at risk")]
            assert NOISE in first or abs(sum(map(int, first)) - fit.n) <= 1
        for column in ("events", "time", "treated", "control"):
            if "person-time" in table.title or "propensity score" in table.title:
                for values in cells(table, column):
                    assert all(float(x) >= 0.0 for x in values if x != NOISE)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kind", KINDS)
def test_with_a_large_epsilon_everything_is_printed(kind):
    assert count_hidden(made(kind, "large")) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_hidden_has_no_p_value_in_a_table_for_a_manuscript(kind):
    """It had one beside it, although the summary had none."""
    for table in (x for x in made(kind, "tiny").table().blocks if isinstance(x, Table)):
        for row in table.rows:
            found = dict(zip(table.columns, row, strict=True))
            if hidden(found.get("difference", found.get("estimate", ""))):
                assert not found.get("P")


@pytest.mark.sampled(5)
@pytest.mark.parametrize("kind", KINDS)
def test_with_a_tiny_one_something_is_hidden_and_the_note_says_what_that_means(kind):
    fit = made(kind, "tiny")
    assert count_hidden(fit)
    text = " ".join(str(summary_of(fit)).split())
    assert f"{NOISE} in a table: suppressed, not shown because it is too imprecise" in text
    assert "times the epsilon" in text or "need many more records than there are" in text
    if hasattr(fit, "table1"):
        assert all(
            f"{NOISE} in a table: suppressed" in " ".join(str(x).split())
            for x in dict(report_table.tables_of(fit)).values()
            if NOISE in str(x.blocks[0])
        )


@each("form", ["as_text", "as_html", "as_latex", "as_markdown"])
@each("kind", KINDS)
def test_hidden_in_every_format(kind, form):
    summary = summary_of(made(kind, "tiny"))
    words = getattr(summary, form)().replace(" -- ", f" {NOISE} ")
    assert words.count(NOISE) >= count_hidden(made(kind, "tiny"))


def test_hidden_in_a_word_file(tmp_path):
    docx = pytest.importorskip("docx")
    fit = made("study", "tiny")
    path = fit.summary().as_docx(tmp_path / "a.docx")
    words = [c.text for t in docx.Document(str(path)).tables for r in t.rows for c in r.cells]
    assert sum(hidden(word) for word in words) >= count_hidden(fit)


# --- the rule, against released distributions ----------------------------------------------------


@pytest.mark.parametrize("setting", ["tiny", "small", "large"])
@pytest.mark.parametrize("kind", ["arms", "subsets", "groups", "event study"])
def test_effects_are_printed_by_the_rule(kind, setting):
    fit = made(kind, setting)
    table = next(
        x
        for x in tables_of(fit)
        if {"estimate", "effect"} & set(x.columns) and len(x.rows) == len(fit.labels)
    )
    for row, effect in zip(table.rows, fit.effects, strict=True):
        if math.isnan(effect.value):  # too few records
            continue
        low, high = effect.possible
        sd = math.sqrt(effect.noise_variance)
        assert (row[1] == NOISE) == is_noise(sd, high - low, effect.point, signed=True)


@pytest.mark.parametrize("setting", ["tiny", "small", "large"])
@pytest.mark.parametrize("kind", ["study", "adjusted study", "study of arms"])
def test_table_1_is_printed_by_the_rule(kind, setting):
    fit = made(kind, setting)
    (table,) = (x for x in fit.table("table1").blocks if isinstance(x, Table))
    sizes, sd = arm_sizes(fit.sums)
    assert [x == NOISE for x in table.rows[0][1 : len(sizes) + 1]] == [
        is_noise(sd, value=max(size, 1.5)) for size in sizes
    ]
    ranges = {"x": 1.0}
    for cells, row in zip(table.rows[1:], fit.table1().to_dict("records"), strict=True):
        for k, arm in enumerate((*fit.sums.arms, "overall"), 1):
            width = 1.0 if row["share"] else ranges[row["variable"]]
            noisy = is_noise(row[f"{arm}_noise_sd"], width)
            assert not noisy or cells[k] == NOISE
            if row["share"] and not noisy:
                count, own = row[f"{arm}_n"], float(row[f"{arm}_noise_sd"])
                if own > 0.4 * row[f"{arm}_mean"] and own * fit.n > 2.0:
                    assert cells[k] == NOISE, (row, count)
        smd, own = row["smd"], row["smd_noise_sd"]
        place = table.columns.index("SMD")
        assert (cells[place] == NOISE) == (math.isnan(smd) or is_noise(own, 2.0, smd, True))


@pytest.mark.parametrize("setting", ["tiny", "small", "large"])
def test_quantiles_and_levels_are_printed_by_the_rule(setting):
    levels, quantiles = made("levels", setting), made("quantiles", setting)
    dist = levels.arm_table.statistics(np.ravel)
    (shares,) = (x for x in tables_of(levels) if x.title.startswith("Proportions at each level"))
    texts = [row[1] for row in shares.rows] + [row[3] for row in shares.rows]
    for text, share, variance in zip(texts, dist.values, np.diag(dist.noise), strict=True):
        value = max(min(max(share, 0.0), 1.0), 0.003)
        assert (text == NOISE) == is_noise(math.sqrt(variance), 1.0, value)
    frame = quantiles.quantiles()
    (table,) = (x for x in tables_of(quantiles) if x.title.startswith("Quantiles"))
    for row, found in zip(table.rows, frame.to_dict("records"), strict=True):
        for arm, text in zip(("treated", "control"), (row[1], row[3]), strict=True):
            assert (text == NOISE) == (found[f"{arm}_noise_ratio"] > 1.0)


# --- what is printed is near to what the data have ------------------------------------------------


def test_what_table_1_prints_is_near_to_the_data():
    """Of all cells, over settings and seeds, few are off by more than the rule lets them be."""
    off, shown = 0, 0
    for n, epsilon in ((200, 2.0), (1000, 1.0), (1000, 5.0), (5000, 1.0), (20_000, 0.5)):
        data = people(n)
        for seed in (1, 2):
            fit = dpe.dp_study(STUDY, **trial(n, epsilon, seed))
            frame = fit.table1()
            for row in frame.to_dict("records"):
                for arm, t in (("treated", 1), ("control", 0)):
                    own = data[data["t"] == t]
                    if row["treated_noise_ratio"] > 1.0 or row["control_noise_ratio"] > 1.0:
                        continue
                    if row["share"]:
                        values = (own[row["variable"]] == (row["level"] or 1)).astype(float)
                        far = abs(row[f"{arm}_mean"] - values.mean()) > 0.5 * values.mean()
                    else:
                        far = abs(row[f"{arm}_mean"] - own[row["variable"]].mean()) > 0.1
                        assert abs(
                            row[f"{arm}_sd"] / own[row["variable"]].std() - 1.0
                        ) < 0.7 or math.isnan(row[f"{arm}_sd"])
                    off, shown = off + far, shown + 1
    assert shown > 60
    assert off <= 0.025 * shown


def test_rare_levels_and_small_spreads_are_not_printed_where_noise_is_as_large():
    """Noise is small against the range of a share, or a mean, and large against what is there."""
    n, rare = 4000, np.array(["no", "yes"])
    data = pd.DataFrame({"y": np.arange(n) % 2, "t": np.arange(n) // 2 % 2})
    data["rare"] = rare[(np.arange(n) % 400 == 7).astype(int)]
    data["tight"] = 60.0 + 0.2 * (np.arange(n) % 8 < 4)
    bounds = {"y": (0, 1), "rare": ["no", "yes"], "tight": (0, 100)}
    asked = {"bounds": bounds, "seed": 1, "design": "randomised"}
    for epsilon, known in ((2.0, False), (500.0, True)):
        fit = dpe.dp_study("y ~ t | rare + tight", data, epsilon=epsilon, **asked)
        (table,) = (x for x in fit.table("table1").blocks if isinstance(x, Table))
        cells = {row[0]: row[1:3] for row in table.rows}
        assert NOISE not in cells["rare no"]
        assert (cells["rare yes"] == (NOISE, NOISE)) != known
        assert all(re.match(rf"(5[0-9]|6[0-9])[.\d]* \({NOISE}\)", x) for x in cells["tight"])


# --- plans ----------------------------------------------------------------------------------------


def registry(n, seed=1):
    """Records as a plan takes them to be by default."""
    rng = np.random.default_rng(seed)
    t = rng.random(n) < 0.5
    return pd.DataFrame(
        {
            "t": t.astype(int),
            "age": rng.normal(50.0, 12.5, n).clip(0, 100),
            "weight": rng.normal(100.0, 25.0, n).clip(0, 200),
            "sex": rng.choice(["f", "m"], n),
            "stage": rng.choice(["I", "II", "III", "IV"], n),
            "died": (rng.random(n) < 0.5).astype(int),
            "days": rng.normal(30.0, 10.0, n).clip(0, 60),
        }
    )


REGISTRY = {
    "age": (0, 100),
    "weight": (0, 200),
    "sex": ["f", "m"],
    "stage": ["I", "II", "III", "IV"],
    "died": (0, 1),
    "days": (0, 60),
}


def all_cells(fit):
    return sum(
        len(row) - 1
        for summary in dict(report_table.tables_of(fit)).values()
        for table in summary.blocks
        if isinstance(table, Table) and not summary.title.startswith("Privacy")
        for row in table.rows
    )


def named(fit):
    """Cells of the tables of a study that say suppressed, as a plan names them."""
    return {
        f"{name}, {' '.join(row[: x.align.count('l')]).strip()}: {column}"
        for name, summary in report_table.tables_of(fit)
        for x in summary.blocks
        if isinstance(x, Table)
        for row in x.rows
        for column, cell in zip(x.columns, row, strict=True)
        if hidden(cell)
    }


@pytest.mark.sampled(7)
@pytest.mark.parametrize(("n", "epsilon"), [(500, 1.0), (2000, 1.0), (5735, 3.0), (20_000, 1.0)])
@pytest.mark.parametrize("design", ["randomised", "observational"])
def test_plans_say_which_cells_will_be_noise(n, epsilon, design):
    asked = {"epsilon": epsilon, "bounds": REGISTRY, "subgroups": "sex", "design": design}
    formula = "died + days ~ t | age + weight + sex + stage"
    plan = dpe.plan_study(formula, n=n, **asked)
    fit = dpe.dp_study(formula, registry(n), seed=1, **asked)
    wrong = set(plan.noise) ^ named(fit)
    assert len(wrong) <= 0.12 * all_cells(fit), sorted(wrong)
    assert not plan.noise or plan.noise[0] in " ".join(str(plan).split())
    assert dpe.StudyPlan.from_json(plan.to_json()).to_json() == plan.to_json()


def test_a_plan_of_methods_says_whose_estimate_will_be_noise():
    asked = {"formula": "y ~ t | x", "bounds": {"y": (0, 1), "x": (0, 1)}, "epsilon": 0.5}
    found = dpe.plan(n=60, method="diff_in_means", repeats=3, design="randomised", **asked)
    assert "not be printed" in str(found)
    found = dpe.plan(n=5000, method="diff_in_means", repeats=3, design="randomised", **asked)
    assert "not be printed" not in str(found)


# --- numbers at risk, pictures --------------------------------------------------------------------


@pytest.mark.parametrize("setting", ["tiny", "small", "large"])
@pytest.mark.parametrize("kind", ["survival", "adjusted survival"])
def test_numbers_at_risk_never_rise(kind, setting):
    fit = made(kind, setting)
    counts = [own["at_risk"] for _, own in fit.curves().groupby("arm")]
    assert all((own.diff().dropna() <= 1e-9).all() for own in counts)
    assert sum(own.iloc[0] for own in counts) == pytest.approx(fit.n)


def test_adjusted_numbers_at_risk_are_records():
    fit, data = made("adjusted survival", "usual"), people(20_000)
    curves = fit.curves()
    for arm, t in (("treated", 1), ("control", 0)):
        own = curves[curves["arm"] == arm]
        for time, count in zip(own["time"][:-1], own["at_risk"][:-1], strict=True):
            there = ((data["t"] == t) & (data["time"] > time)).sum()
            assert abs(count - there) < 0.1 * (data["t"] == t).sum()
    assert not curves["weighted"].any()
    label = dpe.dp_survival(f"{LIFE} | x", horizon=50, level="label", **call(20_000, 1.0))
    assert label.curves()["weighted"].all()
    assert "weighted numbers at risk" in str(label.summary())


def texts(ax):
    return [x.get_text() for x in ax.figure.findobj(lambda x: hasattr(x, "get_text"))]


def test_pictures_leave_out_what_is_mostly_noise():
    plt = pytest.importorskip("matplotlib.pyplot")
    import dpeffects.report.plots as draw

    curves = made("survival", "tiny").curves()
    ax = draw.survival(made("survival", "tiny"))
    assert texts(ax).count(HIDDEN) >= 4
    (line,) = (x for x in ax.lines if x.get_gid() == "treated")
    known = (curves["noise_ratio"] <= 1) & (curves["arm"] == "treated")
    assert np.isfinite(line.get_ydata()).sum() == known.sum()
    study = made("study", "tiny")
    ax = draw.love(study)
    assert texts(ax).count(HIDDEN) == (study.table1()["smd_noise_ratio"] > 1.0).sum()
    assert np.nanmax(np.abs([*ax.get_xlim()])) < 2.0
    ax = study.plot(by="g")
    assert any(x.startswith(HIDDEN) for x in texts(ax))
    plt.close("all")


# --- what an interval leaves out ------------------------------------------------------------------


@pytest.mark.long
def test_generous_bounds_are_no_reason_to_trust_a_model():
    """A model that learns little, because bounds are wide, says so; else its interval holds."""
    calls = {"study": dpe.dp_study, "average": dpe.dp_ate}
    rng, n = np.random.default_rng(1), 20_000
    x = rng.normal(0.0, 1.0, n)
    t = (rng.random(n) < 1.0 / (1.0 + np.exp(-x))).astype(int)
    data = pd.DataFrame({"t": t, "x": x, "y": 0.5 * x + rng.normal(0.0, 1.0, n)})
    held = []
    for wide, name, seed in itertools.product((4.0, 100.0, 1000.0, 1e5), calls, (1, 2, 3)):
        bounds = {"y": (-6, 6), "x": (-wide, wide)}
        fit = calls[name]("y ~ t | x", data, epsilon=1, bounds=bounds, seed=seed)
        low, high = np.ravel(fit.conf_int())[:2]
        held += [low <= 0.0 <= high] if wide <= 100.0 else []
        # at 100 a standard deviation is a two-hundredth of the range: noise decides
        assert wide == 100.0 or ("Ranges too wide" in fit.estimate_warnings) == (wide > 100.0)
    assert sum(held) >= 9  # of 12
