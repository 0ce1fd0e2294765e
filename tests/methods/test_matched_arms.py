"""Matching with three arms against brute force, statsmodels' scores and the truth."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm

import dpeffects as dpe
from dpeffects.errors import BoundsError, DataError, OptionError
from dpeffects.replication.nearest import match_into
from dpeffects.replication.private_psm import (
    PrivatePSMOptions,
    mixing,
    mixture_of,
    share_variance,
)
from tests.refused import refusals

FORMULA = "outcome ~ treatment | x1 + x2 + x3"
LEVELS = ["none", "low", "high"]
RANGES = {"outcome": (0, 1), **dict.fromkeys(("x1", "x2", "x3"), (0, 1))}
BOUNDS = {**RANGES, "treatment": LEVELS}
TRUTH = {"low - none": 0.1, "high - none": 0.2, "high - low": 0.1}


def data(n=1500, seed=0):
    return dpe.simulate("three_arms", n=n, seed=seed)


def fit(frame, **more):
    given = {"level": "label", "epsilon": 1.0, "method": "private_psm", **more}
    given |= {"as_printed": True} if given["level"] == "sample" else {}
    return dpe.dp_ate(FORMULA, frame, **given)


@pytest.mark.parametrize("limit", [None, 1, 2, 5])
def test_matches_in_one_arm_by_brute_force(limit):
    rng = np.random.default_rng(1)
    for _ in range(60):
        n = int(rng.integers(4, 25))
        members = rng.permutation(np.arange(n) < rng.integers(1, n))
        scores = rng.permutation(np.arange(n)) ** 1.5  # no two at the same distance
        found = match_into(scores, members, 3, limit)
        used = np.zeros(n)
        for i in range(n):
            near = sorted(np.flatnonzero(members), key=lambda j: abs(scores[i] - scores[j]))
            own = [i] if members[i] else [j for j in near if used[j] < (limit or n)][:3]
            used[own] += 0 if members[i] else 1
            assert sorted(j for j in found.neighbours[i] if j >= 0) == sorted(own)
        assert (found.used == used + members).all()


def by_hand(declared, neighbours=5):
    """Means by arm, contrasts and Abadie-Imbens variances from statsmodels' scores, no limits."""
    frame = declared.frame
    x = sm.add_constant(frame[["x1", "x2", "x3"]].to_numpy())
    y, n = frame["outcome"].to_numpy(), len(frame)
    imputed, weight, squares, sigma = np.empty((n, 3)), np.zeros(n), np.zeros(n), np.zeros(n)
    arm = np.array([LEVELS.index(t) for t in frame["treatment"]])
    for a in range(3):
        inside = np.flatnonzero(arm == a)
        scores = sm.Logit((arm == a).astype(float), x).fit(disp=0).predict()
        for i in range(n):
            own = [i]
            if arm[i] != a:
                own = inside[np.argsort(np.abs(scores[inside] - scores[i]))[:neighbours]]
            imputed[i, a] = y[own].mean()
            weight[own] += 1 / len(own)
            squares[own] += 1 / len(own) ** 2
        line = inside[np.argsort(scores[inside])]
        for j, k in zip(line[::2], line[1::2], strict=False):
            sigma[[j, k]] = (y[j] - y[k]) ** 2 / 2
    effects, variances = [], []
    for a, b in ((1, 0), (2, 0), (2, 1)):
        gaps, extra = imputed[:, a] - imputed[:, b], (weight**2 - squares) * sigma
        effects.append(gaps.mean())
        own = extra[(arm == a) | (arm == b)].sum()
        variances.append((((gaps - gaps.mean()) ** 2).sum() + own) / n**2)
    return np.array(effects), np.array(variances), weight


def test_label_level_is_matching_with_little_noise_on_it():
    frame = data(700)
    effects, variances, weight = by_hand(frame)
    given = {"epsilon": 1e5, "penalty": 1e-9, "check_bounds": False, "seed": 1}
    found = fit(frame, contrasts="pairwise", match_limit=700, **given)
    assert list(found.labels) == list(TRUTH)
    assert found.estimates == pytest.approx(effects, abs=2e-4)
    errors = found.tidy()["std_error"].to_numpy()
    assert errors == pytest.approx(np.sqrt(variances), rel=0.05)
    # the range is 1: the noise of a mean is that of the largest weight in its arm
    arm = np.array([LEVELS.index(t) for t in frame.frame["treatment"]])
    scales = [weight[arm == a].max() / (1e5 * 0.8 * 700) for a in range(3)]
    for effect, (a, b) in zip(found.effects, ((0, 1), (0, 2), (1, 2)), strict=True):
        assert effect.laplace == pytest.approx((scales[a], scales[b]), rel=1e-3)
    assert found.details["largest weight of a record"] == pytest.approx(weight.max(), rel=1e-3)


def test_confounding_is_removed_and_contrasts_add_up():
    frame = data(8000)
    means = frame.frame.groupby("treatment")["outcome"].mean()
    assert means["high"] - means["none"] > 0.28
    found = fit(frame, contrasts="pairwise", epsilon=5, seed=1)
    for (_, row), truth in zip(found.tidy().iterrows(), TRUTH.values(), strict=True):
        assert row["estimate"] == pytest.approx(truth, abs=4 * row["std_error"])
        assert row["std_error"] < 0.02
    low, high, between = found.estimates
    assert high - low == pytest.approx(between, abs=1e-12)


def test_all_contrasts_cost_one_budget_and_have_the_noise_of_one_release():
    frame = data(1000)
    ledger = dpe.Ledger(1.0)
    pairs = fit(frame, contrasts="pairwise", ledger=ledger)
    assert sum(s.epsilon for s in pairs.charges) == pytest.approx(1.0)
    assert ledger.remaining == pytest.approx((0.0, 0.0), abs=1e-9)
    assert [s.share for s in pairs.charges] == ["estimate", "variance"]
    assert pairs.charges[0].sensitivity == pytest.approx((1.0,), rel=1e-4)
    for one, both in zip(fit(frame).effects, pairs.effects[:2], strict=True):
        assert one.laplace == pytest.approx(both.laplace)


def test_an_infeasible_limit_is_raised():
    frame = data(600)
    frame = frame.frame[(frame.frame["treatment"] != "low") | (frame.frame["x3"] < 0.2)]
    found = fit(frame, match_limit=1, bounds=BOUNDS)
    assert "raised" in found.details["match limit k by arm"]
    counts = frame["treatment"].value_counts()
    low = int(found.details["match limit k by arm"].split(", ")[1].split(" ")[0])
    assert low == -(-(len(frame) - counts["low"]) // counts["low"])


# --- sample level --------------------------------------------------------------------------------


def test_unmixing_returns_the_means_of_true_arms():
    rng = np.random.default_rng(2)
    for arms in (2, 3, 5):
        chance = 0.4
        true, means = rng.dirichlet(np.full(arms, 5.0)), rng.random(arms)
        mixed = mixing(arms, chance)
        assert mixed.sum(axis=0) == pytest.approx(1.0)
        assert np.diag(mixed) == pytest.approx(1 - chance)
        shares = mixed @ true
        released = (mixed * true) @ means / shares
        assert mixture_of(shares, mixed) @ means == pytest.approx(released)


def test_unmixing_two_arms_is_dividing_by_the_attenuation():
    """With p = 1 - flip, true share q and released share r it is (2p - 1) q (1 - q) / (r (1 - r)).

    Shares of less than a twentieth are taken as that.
    """
    for q, r in ((0.375, 0.45), (0.05, 0.301)):
        true = q * 0.7 + (1 - q) * 0.3
        factor = 0.4 * q * (1 - q) / (true * (1 - true))
        inverse = np.linalg.inv(mixture_of(np.array([r, 1 - r]), mixing(2, 0.3)))
        assert np.array([1.0, -1.0]) @ inverse == pytest.approx([1 / factor, -1 / factor])


def test_what_the_released_shares_do_to_effects_is_in_the_variance():
    """Over draws of the arms, with means that are known: about as far as the slopes say."""
    rng, chance, n = np.random.default_rng(7), 0.4, 20_000
    true, means = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.5, 0.9])
    mixed = mixing(3, chance)
    shares, asked = mixed @ true, np.array([[-1.0, 1.0, 0.0], [-1.0, 0.0, 1.0]])
    released = mixture_of(shares, mixed) @ means
    drawn = rng.multinomial(n, shares, size=2000) / n
    effects = [asked @ np.linalg.solve(mixture_of(x, mixed), released) for x in drawn]
    rows = asked @ np.linalg.inv(mixture_of(shares, mixed))
    assert share_variance(rows, means, shares, mixed, n) == pytest.approx(
        np.var(effects, axis=0), rel=0.15
    )


def test_sample_level_with_a_huge_epsilon_recovers_the_effects():
    found = fit(data(6000), level="sample", contrasts="pairwise", epsilon=1e5, seed=3)
    assert not found.estimate_warnings
    for (_, row), truth in zip(found.tidy().iterrows(), TRUTH.values(), strict=True):
        assert row["estimate"] == pytest.approx(truth, abs=4 * row["std_error"])


@pytest.mark.long
def test_debiasing_undoes_the_mixing_where_there_is_nothing_to_adjust():
    """Over draws of a randomised treatment: centred at the truth, and shrunk without it."""
    rng = np.random.default_rng(5)
    effects: dict[bool, list[float]] = {True: [], False: []}
    hits = []
    for seed, debias in itertools.product(range(40), effects):
        t = rng.choice(3, size=1500, p=[0.5, 0.3, 0.2])
        frame = pd.DataFrame({"t": t, "x": rng.random(1500)})
        frame["y"] = 0.2 * t + 0.4 * rng.random(1500)
        bounds = {"y": (0, 1), "x": (0, 1), "t": [0, 1, 2]}
        given = {"bounds": bounds, "epsilon": 3.0, "seed": seed, "debias": debias}
        given["as_printed"] = True
        found = dpe.dp_ate("y ~ t | x", frame, "private_psm", **given)
        assert found.labels == ("1 - 0", "2 - 0")
        effects[debias].append(float(found.estimates[1]))
        if debias:
            low, high = found.conf_int(0.9, simultaneous=False)[1]
            hits.append(low <= 0.4 <= high)
    mean, error = np.mean(effects[True]), np.std(effects[True]) / 40**0.5
    assert mean == pytest.approx(0.4, abs=4 * error + 0.01)
    assert np.mean(effects[False]) < 0.35
    assert np.mean(hits) > 0.8


def test_noisy_scores_are_cautioned_and_a_bias_has_no_interval():
    frame = data(1500)
    for epsilon, words in ((1.0, "Weak adjustment"), (1500.0, "Partial adjustment")):
        assert words in fit(frame, level="sample", epsilon=epsilon, seed=1).warnings
    literal = fit(frame, level="sample", debias=False, seed=1)
    assert np.isnan(literal.conf_int()).all()
    assert "shrink this estimate towards zero" in str(literal.summary())
    assert "n/a" in str(literal.summary())
    assert "that no interval accounts for" in " ".join(str(literal.report()).split())


# --- what comes back, and what is refused --------------------------------------------------------


def test_intervals_hold_at_once_unless_told_otherwise():
    found = fit(data(), contrasts="pairwise", seed=1)
    single = found.conf_int(1 - 0.05 / 3, simultaneous=False)
    assert found.conf_int() == pytest.approx(single)
    narrow = found.conf_int(simultaneous=False)
    assert (narrow[:, 0] > found.conf_int()[:, 0]).all()
    raw = found.p_values(simultaneous=False)
    assert found.p_values() == pytest.approx(np.minimum(1, 3 * raw))
    assert found.tidy()["p_value"].to_numpy() == pytest.approx(found.p_values())
    excludes = (found.conf_int()[:, 0] > 0) | (found.conf_int()[:, 1] < 0)
    assert (excludes == (found.p_values() < 0.05)).all()


def test_a_result_is_written_read_and_shown(tmp_path):
    found = fit(data(), seed=1)
    assert dpe.ArmEffects.from_json(found.to_json()) == found
    assert list(found.tidy()["term"]) == ["low - none", "high - none"]
    assert list(found.tidy().columns[:3]) == ["term", "estimate", "std_error"]
    text = str(found.summary())
    for words in (
        "between 3 arms",
        "none (reference), low, high",
        "Simultaneous 95 % confidence intervals",
    ):
        assert words in text
    assert "high -{} none" in found.summary().as_latex()  # no ligature
    told = " ".join(str(found.report()).split())
    assert "The arms are none, low, high. Effects between arms" in told
    assert found.report(tmp_path / "record.html").exists()
    assert "2 contrasts of 3 arms" in repr(found)
    both = dpe.compare(found, fit(data(), contrasts="pairwise", seed=1))
    assert "high - low" in str(both)


def test_one_contrast_is_a_result_of_its_own():
    found = fit(data(), contrasts="pairwise", seed=1)
    one = found.contrast("high - low")
    assert one.estimate == found.estimates[2]
    assert tuple(one.conf_int()) == pytest.approx(found.conf_int(simultaneous=False)[2])
    assert "effect of treatment (high - low) on outcome" in str(one).lower()
    assert one.sensitivity(bias=0.05).stated == pytest.approx(0.05)
    assert dpe.Result.from_json(one.to_json()) == one
    with pytest.raises(OptionError, match="one of low - none, high - none"):
        found.contrast("none - low")


def test_a_summary_of_many_contrasts_is_cut():
    rng = np.random.default_rng(6)
    frame = pd.DataFrame({"y": rng.random(300), "t": np.arange(300) % 10, "x": rng.random(300)})
    bounds = {"y": (0, 1), "x": (0, 1), "t": list(range(10))}
    given = {"bounds": bounds, "level": "label", "contrasts": "pairwise", "variance": False}
    found = dpe.dp_ate("y ~ t | x", frame, "private_psm", epsilon=1, **given)
    assert len(found.tidy()) == 45
    text = " ".join(str(found.summary()).split())
    assert "The first 40 of 45" in text
    assert "Standard errors and intervals are not available: variance=False" in text


def test_plots():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    axes = fit(data(), contrasts="pairwise", seed=1).plot()
    assert [t.get_text() for t in axes.get_yticklabels()] == list(TRUTH)
    assert "Simultaneous" in axes.get_title("left")


def test_two_levels_are_the_same_as_before():
    frame = data(800).frame
    frame = frame[frame["treatment"] != "low"].reset_index(drop=True)
    named = {**RANGES, "treatment": ["none", "high"]}
    numbers = frame.assign(treatment=(frame["treatment"] == "high").astype(int))
    for level in ("label", "sample"):
        one = fit(frame, level=level, bounds=named, seed=1, contrasts="pairwise")
        other = fit(numbers, level=level, bounds=RANGES, seed=1)
        assert isinstance(one, dpe.Result)
        made, said = one.to_dict(), "Treated records have treatment = high, control records"
        assert said in " ".join(made["notes"])
        plain = other.to_dict()
        assert (made.pop("arms"), plain.pop("arms")) == (["none", "high"], [])
        made["notes"] = [note for note in made["notes"] if said not in note]
        assert made == plain


@pytest.mark.sampled(2)
@pytest.mark.parametrize("engine", ["polars", "duckdb"])
@pytest.mark.parametrize("level", ["label", "sample"])
def test_lazy_frames_are_read_by_arm(engine, level):
    """Their rows come in another order, which ties and limits see: the sums stay close."""
    pytest.importorskip(engine)
    from tests.calls import ENGINES

    declared = data(900)
    lazy = ENGINES[engine](declared.frame)
    given = {"epsilon": 1e4, "seed": 1, "level": level, "match_limit": 900}
    here, there = fit(declared, **given), fit(lazy, bounds=BOUNDS, **given)
    assert there.estimates == pytest.approx(here.estimates, abs=0.02)
    few = ENGINES[engine](declared.frame[declared.frame["treatment"] != "low"])
    with pytest.raises(DataError, match="three arms is empty"):
        fit(few, bounds=BOUNDS)


REFUSED = {
    "another method": ({"method": "model_folds"}, "model_folds compares two arms"),
    "what to write": (
        {"method": "sample_aggregate"},
        '"auto", or declare two of the levels',
    ),
    "an unknown word": ({"contrasts": "all"}, "contrasts must be one of reference, pairwise"),
    "a list": ({"contrasts": ["high"]}, "contrasts must be one of"),
    "two limits": ({"match_limit": (1, 2)}, "one whole number where there are 3 arms"),
    "many neighbours": ({"neighbors": 400}, "needs 1200 rows"),
    "more than the smallest arm": ({"neighbors": 330}, "an arm has"),
}


test_refusals_come_before_the_charge = refusals(
    lambda **given: fit(data(1000), **({"level": None} if "method" in given else {}), **given),
    *REFUSED.values(),
)


def test_one_effect_is_wanted_elsewhere():
    frame, ledger = data(500), dpe.Ledger(5.0)
    given = {"epsilon": 1, "ledger": ledger, "method": "private_psm"}
    with pytest.raises(OptionError, match="compares two arms"):
        dpe.site_release(FORMULA, frame, site="A", contrasts="pairwise", **given)
    with pytest.raises(OptionError, match="compares two arms"):
        dpe.dp_att(FORMULA, frame, epsilon=1, ledger=ledger)
    with pytest.raises(OptionError, match="compares two arms"):
        dpe.dp_balance(FORMULA, frame, epsilon=1, ledger=ledger)
    with pytest.raises(OptionError, match=r"learner compares .* use dp_ate with method=.auto"):
        dpe.dp_cate(FORMULA, frame, epsilon=1, ledger=ledger)
    with pytest.raises(OptionError, match="plan compares two arms"):
        dpe.plan(FORMULA, n=1000, epsilon=1, bounds=BOUNDS, method="private_psm")
    empty = frame.frame.assign(treatment="none")
    with pytest.raises(DataError, match="three arms is empty"):
        fit(empty, bounds=BOUNDS, ledger=ledger)
    assert ledger.charges == ()


def test_levels_in_the_formula_are_arms_too():
    frame = data(600)
    text = "outcome ~ C(treatment, levels=['high', 'none', 'low']) | x1 + x2"
    found = dpe.dp_ate(text, frame, "private_psm", level="label", epsilon=1, seed=1)
    assert found.labels == ("none - high", "low - high")


def test_as_many_arms_as_there_are_levels():
    """NumPy chooses among 64 arrays at most, and failed after the budget was spent."""
    rng, n, levels = np.random.default_rng(4), 700, list(range(70))
    frame = pd.DataFrame({"y": rng.random(n), "t": np.arange(n) % 70, "x": rng.random(n)})
    given = {"bounds": {"y": (0, 1), "x": (0, 1), "t": levels}, "epsilon": 1e6, "seed": 1}
    found = dpe.dp_ate("y ~ t | x", frame, "private_psm", level="label", neighbors=1, **given)
    assert len(found.effects) == 69
    assert np.abs(found.estimates).max() < 1.0


def test_an_arm_of_one_record_has_the_widest_interval():
    """No pair tells how its outcomes spread, which counted as no spread at all."""
    rng, n, levels = np.random.default_rng(5), 200, ["a", "b", "c"]
    t = np.array(levels)[np.arange(n) % (len(levels) - 1)]
    t[7] = levels[-1]
    frame = pd.DataFrame({"y": rng.random(n), "t": t, "x": rng.random(n)})
    given = {"bounds": {"y": (0, 1), "x": (0, 1), "t": levels}, "epsilon": 1e6, "seed": 1}
    found = dpe.dp_ate("y ~ t | x", frame, "private_psm", level="label", neighbors=1, **given)
    error = found.tidy()["std_error"].iloc[-1]
    assert 0.45 < error < 0.6  # that of an outcome in [0, 1] is at most 1/2


def test_what_is_said_of_other_calls_can_be_followed():
    frame = data(500)
    for call in (dpe.dp_att, dpe.dp_balance, dpe.dp_cate):
        with pytest.raises(OptionError, match='use dp_ate with method="auto"'):
            call(FORMULA, frame, epsilon=1)
    with pytest.raises(OptionError, match="plan compares two arms"):
        dpe.plan(FORMULA, n=1000, epsilon=1, bounds=BOUNDS)


def test_levels_that_print_alike_are_refused():
    frame = pd.DataFrame({"y": 0.5, "t": pd.Series([0, 1, "1"] * 20, dtype=object), "x": 0.5})
    bounds = {"y": (0, 1), "x": (0, 1), "t": [0, 1, "1"]}
    with pytest.raises(BoundsError, match="look the same when printed"):
        dpe.dp_ate("y ~ t | x", frame, "private_psm", level="label", epsilon=1, bounds=bounds)


def test_associations_are_called_so_and_nothing_is_said_of_what_is_missing():
    found = fit(data(600), level="sample", seed=1)
    assert found.associated
    assert repr(found).startswith("<dpeffects association 2 contrasts")
    assert "Simultaneous 95 % confidence intervals (Bonferroni, 2 contrasts)" in str(
        found.summary()
    )
    assert "p-values are adjusted" not in f"{found.summary()} {found.report()}"
    assert "Simultaneous" not in str(fit(data(600), variance=False, seed=1).summary())


def test_memory_grows_with_arms_and_contrasts():
    two, ten = (PrivatePSMOptions().memory_per_row(*x, "label") for x in ((2, 1), (10, 45)))
    assert ten[0] > 5 * two[0]
