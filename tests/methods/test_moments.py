"""`dp_moments`: regressions by statsmodels, noise distribution, sites, files, refusals, engines."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf

import dpeffects as dpe
from dpeffects.abilities.moments import z_of_record
from dpeffects.errors import DataError, DPEffectsError, OptionError, ReleaseError
from dpeffects.estimators.arm_sums import ArmLookup
from dpeffects.estimators.row_functions import RowPartial
from dpeffects.inference.moment_regression import MomentMatrix, regress
from dpeffects.privacy.rows import Block

FORMULA = "cost + died ~ t | age + sex + region"
BOUNDS = {
    "cost": (0, 60),
    "died": [0, 1],
    "age": (20, 90),
    "sex": range(2),
    "region": ["N", "S", "W", "E"],
}
EXACT = 1e8
ASKED = {"bounds": BOUNDS, "subgroups": "sex + region"}


def people(n: int = 3000, seed: int = 1) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    age = rng.normal(50, 12, n).clip(20, 90)
    sex = (rng.random(n) < 0.4).astype(int)
    region = rng.choice(["N", "S", "W", "E"], n, p=[0.4, 0.3, 0.2, 0.1])
    t = (rng.random(n) < 0.3 + 0.2 * sex + 0.002 * (age - 50)).astype(int)
    shift = pd.Series(region).map({"N": 0.0, "S": 2.0, "W": -1.0, "E": 3.0}).to_numpy()
    cost = 10 + 0.2 * age + 3 * t * (1 + sex) + shift + rng.normal(0, 5, n)
    died = (rng.random(n) < 0.1 + 0.05 * t + 0.003 * (age - 20)).astype(int)
    frame = {"t": t, "age": age, "sex": sex, "region": region, "died": died}
    return pd.DataFrame(frame | {"cost": cost.clip(0, 60)})


@pytest.fixture(scope="module")
def data() -> pd.DataFrame:
    return people()


@pytest.fixture(scope="module")
def exact(data: pd.DataFrame) -> dpe.Moments:
    return dpe.dp_moments(FORMULA, data, **ASKED, epsilon=EXACT, seed=1)


LEVELS = "C(region, levels=['N', 'S', 'W', 'E'])"


@pytest.mark.parametrize(
    "formula",
    [
        "cost ~ t",
        "cost ~ t + age + sex + region",
        "died ~ t + age + cost",
        "age ~ cost + region",
        "t ~ age + sex",
        "cost ~ t*sex + age",
        "cost ~ t*region",
    ],
)
def test_without_noise_a_regression_is_that_of_statsmodels(
    formula: str, data: pd.DataFrame, exact: dpe.Moments
) -> None:
    table = exact.regression(formula)
    found = table.tidy().set_index("term")
    expected = smf.ols(formula.replace("region", LEVELS), data).fit()
    names = {name.replace(LEVELS, "region"): name for name in expected.params.index}
    names = {name.replace("Intercept", "(Intercept)"): k for name, k in names.items()}
    assert set(found.index) == set(names)
    robust = smf.ols(formula.replace("region", LEVELS), data).fit(cov_type="HC1")
    for name, row in found.iterrows():
        indicator = formula.startswith(("died", "t "))
        size = (robust if indicator else expected).bse[names[str(name)]]
        value = expected.params[names[str(name)]]
        assert row["estimate"] == pytest.approx(value, abs=2e-3 * size)
        assert row["std_error"] == pytest.approx(size, rel=0.06 if indicator else 2e-3)
        assert row["noise_sd"] < 1e-3 * size
    assert table.residual_sd == pytest.approx(math.sqrt(expected.scale), rel=1e-4)
    assert table.r_squared == pytest.approx(expected.rsquared_adj, abs=1e-4)


def test_squares_of_an_outcome_make_standard_errors_robust(data: pd.DataFrame) -> None:
    """Costs of a small arm that vary much more than the others: classical errors are too small."""
    rng = np.random.default_rng(5)
    t = (rng.random(20_000) < 0.1).astype(int)
    x = rng.normal(size=t.size).clip(-4, 4)
    frame = pd.DataFrame({"t": t, "x": x, "y": 20 + x + (1 + 4 * t) * rng.normal(size=t.size)})
    asked = {"bounds": {"y": (0, 45), "x": (-4, 4)}, "epsilon": EXACT, "seed": 1}
    kept = dpe.dp_moments("y + I(y**2) ~ t | x", frame, **asked)
    plain = dpe.dp_moments("y ~ t | x", frame, **asked)
    for formula in ("y ~ t", "y ~ t + x"):
        robust = smf.ols(formula, frame).fit(cov_type="HC1").bse["t"]
        found, classical = (m.regression(formula).tidy()["std_error"][1] for m in (kept, plain))
        assert found == pytest.approx(robust, rel=0.03)
        assert classical < 0.6 * robust


def test_effects_are_coefficients_and_say_what_they_stand_on(
    data: pd.DataFrame, exact: dpe.Moments
) -> None:
    fit = exact.effect("cost ~ t | age + region")
    row = exact.regression("cost ~ t + age + region").coefficient("t")
    assert fit.estimate == row.value
    assert (fit.identification, fit.outcome, fit.treatment) == ("adjusted", "cost", "t")
    assert exact.effect("cost ~ t").associated
    assert exact.effect().formula.startswith(FORMULA)
    trial = dpe.dp_moments(FORMULA, data, **ASKED, epsilon=1.0, design="randomised", seed=1)
    assert trial.effect("died ~ t").identification == "randomised"
    low, high = trial.effect("died ~ t").conf_int()
    assert -1.0 <= low < high <= 1.0


@pytest.mark.parametrize("factor", ["sex", "region"])
def test_effects_by_level_are_those_of_a_saturated_regression(
    factor: str, data: pd.DataFrame, exact: dpe.Moments
) -> None:
    fit = exact.effects_by(factor, "cost ~ t")
    values = BOUNDS[factor] if factor == "region" else [0, 1]
    for label, effect, value in zip(fit.labels, fit.effects, values, strict=True):
        own = data[data[factor] == value]
        means = own.groupby("t")["cost"].mean()
        assert label == f"{factor} = {value}"
        assert effect.value == pytest.approx(means[1] - means[0], abs=1e-3)
    assert exact.effects_by(factor).summary().as_text()


def test_balance_is_means_by_arm_over_the_spread_within_arms(
    data: pd.DataFrame, exact: dpe.Moments
) -> None:
    found = exact.balance().set_index("term")
    assert set(found.index) == {"age", "sex", "region[T.S]", "region[T.W]", "region[T.E]"}
    columns = data.assign(**{"region[T.S]": data["region"] == "S"})
    for name in ("age", "sex", "region[T.S]"):
        groups = columns[name].astype(float).groupby(columns["t"])
        within = (groups.var(ddof=0) * groups.size()).sum() / (len(data) - 2)
        zero, one = groups.mean()
        row = found.loc[name]
        assert (row["mean_reference"], row["mean"]) == pytest.approx((zero, one), rel=1e-4)
        assert row["smd"] == pytest.approx((one - zero) / math.sqrt(within), abs=1e-4)


def columns_of(kept: dpe.Moments, data: pd.DataFrame) -> tuple[RowPartial, Block]:
    """What a record adds, by the layout of a release, and the rows."""
    spec = dpe.estimators.table_methods()["moments"]
    request = dpe.flow.Request.of_effect(
        "ATE", FORMULA, data, spec, epsilon=1.0, bounds=BOUNDS, factors="sex + region"
    )
    plan = dpe.flow.Estimation(request).options.plan
    assert plan.columns == tuple(replace(x, low=0.0, high=1.0) for x in kept.matrix.columns)
    inside = [(data["cost"] - 0) / 60, data["died"], (data["age"] - 20) / 70, data["sex"]]
    inside += [data["region"] == level for level in BOUNDS["region"][1:]]
    covariates = np.column_stack([np.ones(len(data)), *inside]).astype(float)
    return z_of_record(plan, ArmLookup(np.array([1, 0]))), Block(
        data["t"].to_numpy() == 1, covariates=covariates
    )


def test_no_row_is_shortened_and_known_products_are_right(
    data: pd.DataFrame, exact: dpe.Moments
) -> None:
    row, block = columns_of(exact, data)
    z = np.column_stack(row(block))
    assert 0.5 < (z**2).sum(axis=1).max() < 1.0
    corners = np.array(np.meshgrid(*[[0.0, 1.0]] * 4)).reshape(4, -1).T  # numbers and indicators
    for level in np.vstack([np.zeros(3), np.eye(3)]):
        for treated in (False, True):
            x = np.column_stack([np.ones(16), corners, np.tile(level, (16, 1))])
            longest = np.column_stack(row(Block(np.full(16, treated), covariates=x)))
            assert (longest**2).sum(axis=1).max() < 1.0
    assert exact.matrix.released == pytest.approx(z.T @ z, abs=0.05)
    # a matrix whose known products are spoilt is completed all the same
    spoilt = replace(exact.matrix, entries=tuple(_spoilt(exact.matrix, z.T @ z)))
    assert spoilt.released == pytest.approx(z.T @ z, abs=1e-6)


def _spoilt(matrix: MomentMatrix, products: np.ndarray) -> np.ndarray:
    wrong = products.copy()
    for place, _ in matrix.blocks:
        rest = [j for j in place if j]
        wrong[np.ix_(rest, rest)] += 7.0
    wrong[0, 0] = -1.0
    return wrong[np.triu_indices(len(wrong))]


def wishart(rng: np.random.Generator, d: int) -> np.ndarray:
    one, other = rng.normal(size=(2, d, d + 1))
    return one @ one.T - other @ other.T


@pytest.mark.long
def test_noise_in_coefficients_is_what_their_law_says(data: pd.DataFrame) -> None:
    """Wishart noise on one and the same people: spread, bias and correlation of coefficients."""
    kept = dpe.dp_moments(FORMULA, data, **ASKED, epsilon=EXACT, seed=1)
    row, block = columns_of(kept, data)
    z, rng, scale = np.column_stack(row(block)), np.random.default_rng(7), 0.05
    d, names = z.shape[1], ["t", "cost", "age", "region[T.S]", "t:sex"]
    place = [[c.name for c in kept.matrix.columns].index(x) + 1 for x in names]
    variance = 2.0 * (d + 1) * scale**2
    fits, squares = [], []
    for _ in range(600):
        entries = (z.T @ z + scale * wishart(rng, d))[np.triu_indices(d)]
        matrix = replace(kept.matrix, entries=tuple(entries), variance=variance)
        fit = regress(matrix, place[1], [place[0], *place[2:], place[4] - 1])
        fits.append(fit.estimates)
        squares.append(fit.residual_variance)
    plain = regress(
        replace(kept.matrix, variance=0.0), place[1], [place[0], *place[2:], place[4] - 1]
    )
    found, stated = np.cov(np.array(fits).T), np.array(fit.noise)
    # 600 draws give a standard deviation to 3 %; 15 % are five of these
    assert np.sqrt(np.diag(found)) == pytest.approx(np.sqrt(np.diag(stated)), rel=0.15)
    sd = np.sqrt(np.diag(stated))
    assert found / np.outer(sd, sd) == pytest.approx(stated / np.outer(sd, sd), abs=0.2)
    bias = (np.mean(fits, axis=0) - plain.estimates) / sd
    assert np.abs(bias).max() < 0.2
    assert np.std(squares) == pytest.approx(fit.residual_noise, rel=0.15)


def test_records_that_count_twice_with_twice_the_noise_change_nothing(data: pd.DataFrame) -> None:
    """All that a regression says is about means: sums, their noise and n grow together."""
    one = dpe.dp_moments(FORMULA, data, **ASKED, epsilon=2.0, seed=1).matrix
    grown = {"n": 8.0 * one.n, "unequal": 8.0 * one.unequal, "variance": 64.0 * one.variance}
    two = replace(one, entries=tuple(8.0 * x for x in one.entries), **grown)
    outcome, of = ([c.name for c in one.columns].index(x) + 1 for x in ("cost", "age"))
    for fit in (small := regress(one, outcome, [1, of]), regress(two, outcome, [1, of])):
        for name in ("estimates", "sampling", "noise", "residual_variance", "residual_noise"):
            assert np.array(getattr(fit, name)) == pytest.approx(np.array(getattr(small, name)))
    assert not small.cut
    assert regress(replace(one, variance=one.n**2), outcome, [1, of]).cut  # nothing but noise
    assert math.isnan(replace(small, total_variance=0.0).explained)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_releases_have_the_noise_that_they_state(data: pd.DataFrame, delta: float) -> None:
    """Noise of the sampler itself, in entries on and off the diagonal."""
    asked = {"bounds": BOUNDS, "epsilon": 1.0, "delta": delta}
    kept = [
        dpe.dp_moments("cost ~ t | age", data.head(200), **asked, seed=seed) for seed in range(100)
    ]
    entries, variance = np.array([x.matrix.entries for x in kept]), kept[0].matrix.variance
    d = kept[0].matrix.width
    diagonal = np.equal(*np.triu_indices(d))
    expected = np.sqrt(np.where(diagonal, 2.0 * variance, variance))
    assert entries.std(axis=0) == pytest.approx(expected, rel=0.4)


@pytest.mark.long
def test_intervals_cover_at_moderate_noise() -> None:
    """40 draws of people and noise, 7 coefficients; benchmarks/abilities.py has more draws."""
    truth = smf.ols("cost ~ t + age + sex + " + LEVELS, people(400_000, 99)).fit().params
    hits = []
    for seed in range(40):
        asked = {"bounds": BOUNDS, "epsilon": 4.0, "seed": 1000 + seed}
        kept = dpe.dp_moments(FORMULA, people(10_000, seed), **asked)
        low, high = kept.regression("cost ~ t + age + sex + region").conf_int().T
        order = truth[["Intercept", "t", "age", "sex", *truth.index[1:4]]]
        hits.append((low <= order.to_numpy()) & (order.to_numpy() <= high))
    assert 0.90 <= np.mean(hits) <= 0.99


def test_sites_add_up(data: pd.DataFrame, tmp_path) -> None:
    parts = [data.iloc[:1000], data.iloc[1000:]]
    north, south = (
        dpe.dp_moments(FORMULA, x, **ASKED, epsilon=e, seed=3 + k)
        for k, (x, e) in enumerate(zip(parts, (EXACT, EXACT / 2), strict=True))
    )
    both = north + south
    assert both.n == len(data)
    assert both.matrix.variance == north.matrix.variance + south.matrix.variance
    noisy = (replace(x.matrix, size_variance=2.0 + k) for k, x in enumerate((north, south)))
    assert next(noisy).plus(next(noisy)).size_variance == 5.0
    whole = dpe.dp_moments(FORMULA, data, **ASKED, epsilon=EXACT, seed=1)
    asked = "cost ~ t + age + region"
    assert both.regression(asked).fit.estimates == pytest.approx(
        whole.regression(asked).fit.estimates, rel=1e-4
    )
    path = tmp_path / "south.json"
    path.write_text(south.to_json())
    assert dpe.combine_moments({"North": north, "South": path}) == both
    assert dpe.combine_moments([north, south]).guarantee.epsilon == EXACT
    with pytest.raises(ReleaseError, match="sent the same release"):
        dpe.combine_moments([north, north])
    other = dpe.dp_moments(FORMULA, parts[1], bounds={**BOUNDS, "age": (0, 99)}, epsilon=1, seed=1)
    with pytest.raises(ReleaseError, match="differ"):
        north + other
    with pytest.raises(DataError, match="cannot be read"):
        dpe.combine_moments([north, tmp_path / "none.json"])
    with pytest.raises(TypeError):
        north + 3  # type: ignore[operator]


def test_files_and_formats(data: pd.DataFrame, tmp_path) -> None:
    kept = dpe.dp_moments(FORMULA, data, **ASKED, epsilon=1.0, delta=1e-6, seed=1)
    table = kept.regression("cost ~ t + region")
    assert dpe.Moments.from_json(kept.to_json()) == kept
    assert dpe.Regression.from_json(table.to_json()) == table
    for shown in (kept, table):
        summary = shown.summary()
        for text in (summary.as_text(), summary.as_latex(), summary.as_html()):
            assert "region" in text
        assert max(map(len, summary.as_text().split("\n"))) <= 80
        assert shown.report().text
        assert shown.report(tmp_path / f"{type(shown).__name__}.html").exists()
    text = kept.to_json().replace('"constant"', '"konstant"')
    with pytest.raises(DataError):
        dpe.Moments.from_json(text)
    document = kept.to_dict()
    document["matrix"]["entries"].pop()
    with pytest.raises(ValueError, match="entry"):
        dpe.Moments.from_dict(document)


@pytest.mark.sampled(7)
@pytest.mark.parametrize("n", [30, 300, 1000])
@pytest.mark.parametrize("epsilon", [0.01, 0.3])
def test_mostly_noise_is_said_and_nothing_fails(n: int, epsilon: float) -> None:
    for seed in range(4):
        kept = dpe.dp_moments(FORMULA, people(n, seed), **ASKED, epsilon=epsilon, seed=seed)
        assert "Mostly noise" in kept.summary().as_text()
        for formula in ("cost ~ t", "died ~ t*region + age + cost", "age ~ died + sex"):
            table = kept.regression(formula)
            assert table.summary().as_text()
            assert dpe.Regression.from_json(table.to_json()) == table
            assert np.isfinite(table.fit.estimates).all()
        fit = kept.effect()
        assert fit.summary().as_text()
        assert kept.effects_by("region").tidy().shape[0] == 4
        assert kept.balance().shape[0] == 5


def test_worth_halves_the_noise_at_the_size_that_it_names(data: pd.DataFrame) -> None:
    one, four = (
        dpe.dp_moments(FORMULA, data, **ASKED, check_bounds=False, epsilon=e, seed=1).precision
        for e in (1.0, 4.0)
    )
    ratio = one["noise_to_sampling"] / four["noise_to_sampling"]
    assert ratio.to_numpy() == pytest.approx(4.0)
    assert list(one["column"]) == ["treatment", "number", "indicator"]
    needed = int(four["n_for_half"][0])
    more = dpe.dp_moments(FORMULA, people(needed), **ASKED, epsilon=4.0, seed=1)
    assert more.precision["noise_to_sampling"][0] == pytest.approx(0.5, rel=0.01)
    # in a regression on the treatment alone it is about that
    fit = more.effect("cost ~ t").released
    sampling = math.sqrt(fit.sampling.value)
    assert math.sqrt(fit.gaussian) / sampling == pytest.approx(0.5, rel=0.5)


def test_three_arms(data: pd.DataFrame) -> None:
    arms = np.array(["none", "low", "high"])[np.arange(len(data)) % 3]
    frame = data.assign(t=arms)
    bounds = {**BOUNDS, "t": ["none", "low", "high"]}
    asked = {
        "bounds": bounds,
        "subgroups": "sex",
        "design": "randomised",
        "epsilon": EXACT,
        "seed": 1,
    }
    kept = dpe.dp_moments(FORMULA, frame, **asked)
    fit = kept.effect("cost ~ t")
    means = frame.groupby("t")["cost"].mean()
    assert fit.labels == ("low - none", "high - none")
    assert fit.estimates == pytest.approx(
        [means[x] - means["none"] for x in ("low", "high")], abs=1e-3
    )
    assert len(kept.effects_by("sex").labels) == 4
    assert "arm" in kept.balance()
    assert kept.summary().as_text()


def test_rows_that_count_differently(data: pd.DataFrame) -> None:
    asked = {**ASKED, "epsilon": EXACT, "seed": 4}
    heavy = data.assign(w=np.where(data["sex"] == 1, 1.0, 0.25))
    weighted = {**asked, "bounds": {**BOUNDS, "w": (0, 1)}, "weights": "w"}
    fit = dpe.dp_moments(FORMULA, heavy, **weighted).regression("cost ~ t + age")
    expected = smf.wls("cost ~ t + age", heavy, weights=heavy["w"]).fit()
    assert fit.fit.estimates == pytest.approx(expected.params, rel=1e-3)
    holes = data.assign(age=data["age"].where(data.index >= 100))
    with pytest.raises(DataError, match="missing values"):
        dpe.dp_moments(FORMULA, holes, **asked)
    rest = smf.ols("cost ~ t + age", data.iloc[100:]).fit()
    for frame, given in (
        (holes, {"missing": {"age": "complete"}}),
        (data.assign(i=data.index), {"subset": "i >= 100"}),
    ):
        fit = dpe.dp_moments(FORMULA, frame, **asked, **given).regression("cost ~ t + age")
        assert fit.fit.estimates == pytest.approx(rest.params, rel=1e-3)
        assert fit.tidy()["std_error"].to_numpy() == pytest.approx(rest.bse, rel=0.01)
    twice = pd.concat([data.assign(id=data.index)] * 2)
    once = dpe.dp_moments(FORMULA, data, **asked).regression("cost ~ t + age")
    fit = dpe.dp_moments(FORMULA, twice, **asked, unit="id").regression("cost ~ t + age")
    assert fit.fit.estimates == pytest.approx(once.fit.estimates, rel=1e-3)
    assert fit.tidy()["std_error"].to_numpy() == pytest.approx(once.tidy()["std_error"], rel=0.01)


@pytest.mark.parametrize(
    ("formula", "given", "told"),
    [
        (FORMULA, {"subgroups": "age"}, "not a factor"),
        (FORMULA, {"subgroups": "sex:region"}, "one factor at a time"),
        (FORMULA, {"subgroups": 3}, "subgroups must be terms"),
        (FORMULA, {"missing": "available"}, "for dp_study"),
        (FORMULA, {"design": "natural"}, "design must be"),
        (FORMULA, {"unit": "id", "cluster": "region"}, "has no argument"),
        ("cost ~ t | age + agee", {}, "does not have"),
        ("Surv(cost, died) ~ t", {}, "dp_survival"),
    ],
)
def test_refusals_come_before_any_charge(
    data: pd.DataFrame, formula: str, given: dict, told: str
) -> None:
    ledger = dpe.Ledger(1.0)
    with pytest.raises((DPEffectsError, TypeError), match=told):
        dpe.dp_moments(formula, data, **{"bounds": BOUNDS, "epsilon": 1.0} | given, ledger=ledger)
    assert ledger.charges == ()


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda m: m.regression("cost ~ t + agee"), "Did you mean 'age'"),
        (lambda m: m.regression("cost ~ t | age"), "is written without `|`"),
        (lambda m: m.regression("cost ~ age:sex"), "have to be declared"),
        (lambda m: m.regression("cost ~ t - 1"), "must have an intercept"),
        (lambda m: m.regression("region ~ t"), "3 columns"),
        (lambda m: m.effect("cost ~ sex | age"), "the treatment of these moments is t"),
        (lambda m: m.effect("cost + died ~ t"), "one outcome"),
        (lambda m: m.effects_by("age"), "effects by sex, region"),
        (lambda m: m.regression("cost ~ t").coefficient("age"), "no term 'age'"),
    ],
)
def test_what_moments_do_not_have(exact: dpe.Moments, call, told: str) -> None:
    with pytest.raises(OptionError, match=told):
        call(exact)


def test_columns_of_every_kind(data: pd.DataFrame) -> None:
    frame = data.assign(old=data["age"] > 60, gone=data["age"].where(data.index % 5 > 0))
    formula = "cost + log(cost + 1) + I(cost > 20) ~ t | old + cut(age, [20, 40, 60, 90]) + sex:age"
    kept = dpe.dp_moments(
        f"{formula} + gone + I(age**2)",
        frame,
        bounds={**BOUNDS, "gone": (20, 90)},
        subgroups="cut(age, [20, 40, 60, 90]) + old",
        missing={"gone": "indicator"},
        epsilon=EXACT,
        seed=1,
    )
    assert kept.outcomes == ("cost", "log(cost + 1)", "I(cost > 20)")
    fit = kept.regression("I(cost > 20) ~ t + old + sex:age")
    expected = smf.ols("I((cost > 20) * 1.0) ~ t + I(old * 1.0) + sex:age", frame).fit()
    assert fit.fit.estimates == pytest.approx(expected.params, rel=2e-3)
    labels = kept.effects_by("cut(age, [20, 40, 60, 90])", "cost ~ t").labels
    assert len(labels) == 3
    assert kept.effects_by("old", "log(cost + 1) ~ t").labels == ("old = 0", "old = 1")


def test_two_values_and_a_filled_one_are_no_indicator(data: pd.DataFrame) -> None:
    """Missing values stand in the middle, and products of 1 and 2 with levels have three values."""
    frame = data.assign(
        sex=data["sex"].where(data.index % 3 > 0).astype("Int64"), grade=data["sex"] + 1
    )
    kept = dpe.dp_moments(
        "cost ~ t | sex + grade:region",
        frame,
        bounds={**BOUNDS, "grade": (1, 2)},
        missing={"sex": "indicator"},
        epsilon=EXACT,
        seed=1,
    )
    filled = frame.assign(
        sex=frame["sex"].astype(float).fillna(0.5), hole=frame["sex"].isna() * 1.0
    )
    expected = smf.ols("cost ~ t + sex + hole", filled).fit().params
    found = kept.regression("cost ~ t + sex + is_na(sex)").fit.estimates
    assert found == pytest.approx(expected, rel=1e-3)
    own = smf.ols("cost ~ t + grade:" + LEVELS, filled).fit().params
    found = kept.regression("cost ~ t + grade:region").fit.estimates
    assert found == pytest.approx(own, rel=1e-2)


def test_collinear_and_constant_columns(data: pd.DataFrame) -> None:
    frame = data.assign(again=data["age"], flat=1, cost=7.0)
    bounds = {**BOUNDS, "again": (20, 90), "flat": (1, 2)}
    kept = dpe.dp_moments(
        "cost ~ t | age + again + flat", frame, bounds=bounds, epsilon=5.0, seed=1
    )
    table = kept.regression("cost ~ t + age + again + flat")
    assert table.summary().as_text()
    rows = table.tidy().set_index("term")
    assert rows.loc[["age", "again"], "std_error"].isna().all()
    assert rows.loc["t", "std_error"] < 60.0
    assert "is mostly noise" in table.summary().as_text().replace("\n  ", " ")
