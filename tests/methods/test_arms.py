"""Effects between more than two arms, by every method that adds up rows."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

import dpeffects as dpe
from dpeffects.design.arms import ARMS, Outcome
from dpeffects.design.bounds import Bounds, DeclaredFrame
from dpeffects.errors import DataError, EstimationError, OptionError, PrivacyError
from dpeffects.estimators import proved
from dpeffects.estimators.arm_sums import arm_counts
from dpeffects.estimators.default.arm_summaries import release_centres
from dpeffects.estimators.default.auto import AutoOptions, choose
from dpeffects.estimators.default.moment_models import release_models
from dpeffects.estimators.default.propensity_score import PropensityScore, harmonic, score_of
from dpeffects.estimators.default.standardisation import ask_means, release_standard
from dpeffects.estimators.spec import PublicInfo
from dpeffects.flow import Estimation, Request, _adds_up
from dpeffects.privacy.budget import Budget, Share
from dpeffects.privacy.curator import Curator
from dpeffects.privacy.domains import Box
from dpeffects.privacy.ledger import CallLedger
from dpeffects.privacy.release import Releaser, Split
from dpeffects.privacy.rows import Block, Rows
from dpeffects.privacy.sample_splits import among_arms
from dpeffects.seeded import SeededNoise

FORMULA = "outcome ~ treatment | x1 + x2 + x3"
LEVELS = ["none", "low", "high"]
BOUNDS = {"treatment": LEVELS, **dict.fromkeys(("outcome", "x1", "x2", "x3"), (0, 1))}
TRUTH = np.array([0.1, 0.2, 0.1])
PAIRS = ((1, 0), (2, 0), (2, 1))
ADDITIVE = ("auto", "clipped_contrast", "diff_in_means", "one_step", "private_ipw")


def data(n=2000, seed=1):
    return dpe.simulate("three_arms", n=n, seed=seed)


def fit(frame, method, **given):
    given = {"epsilon": 1.0, "contrasts": "pairwise", "seed": 1} | given
    return dpe.dp_ate(FORMULA, frame, method, **given)


def by_arm(frame, what):
    groups = frame.frame.groupby("treatment")["outcome"]
    return np.array([getattr(groups, what)()[level] for level in LEVELS])


def contrasts(values):
    return np.array([values[a] - values[b] for a, b in PAIRS])


def curator(y, arm, x=None, arms=3, public=()):
    """Rows of several arms, and hardly any noise."""
    x = np.ones((len(y), 1)) if x is None else x
    kinds = (1, *[0] * x.shape[1])
    rows = Rows(y, (0.0, 1.0), arm > 0, lambda: x, x.shape[1], values=kinds, arm=arm, arms=arms)
    releaser = Releaser(Split({"a": Share(1e6)}), CallLedger(Budget(1e9)), SeededNoise(1))
    return Curator(rows, releaser, frozenset(public))


def test_every_method_that_adds_up_rows_has_more_than_two_arms():
    able = {name for name, spec in proved().items() if spec.fit_arms}
    alike = {
        name
        for name, spec in proved().items()
        if _adds_up(spec.options()) and not spec.needs_strata
    }
    assert able == {*ADDITIVE, "private_psm", "regression"}
    assert alike <= able


# --- unadjusted -----------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["sample", "label"])
@pytest.mark.parametrize("method", ["diff_in_means", "clipped_contrast"])
def test_differences_are_those_of_the_means_of_the_arms(method, level):
    frame = data()
    found = fit(frame, method, epsilon=1e5, level=level, design="randomised")
    assert found.labels == ("low - none", "high - none", "high - low")
    assert found.estimates == pytest.approx(contrasts(by_arm(frame, "mean")), abs=1e-3)
    squared = by_arm(frame, "var") / by_arm(frame, "count")
    welch = [math.sqrt(squared[a] + squared[b]) for a, b in PAIRS]
    assert found.tidy()["std_error"].to_numpy() == pytest.approx(welch, rel=0.02)
    assert found.identification == "randomised"


@pytest.mark.sampled(4)
@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("method", ["diff_in_means", "clipped_contrast"])
def test_noise_is_as_reported(method, binary):
    """Over draws of the noise on one data set, with arms of very different sizes."""
    rng, n = np.random.default_rng(3), 1500
    arm = rng.choice(3, n, p=[0.6, 0.3, 0.1])
    y = rng.random(n) < 0.2 + 0.1 * arm if binary else 0.2 + 0.1 * arm + 0.2 * rng.random(n)
    frame = pd.DataFrame({"y": y, "t": arm})
    bounds = {"t": [0, 1, 2]} | ({} if binary else {"y": (0, 1)})
    runs = [
        dpe.dp_ate(
            "y ~ t",
            frame,
            method,
            bounds=bounds,
            epsilon=2.0,
            seed=seed,
            contrasts="pairwise",
            design="randomised",
        )
        for seed in range(80)
    ]
    sds = np.std([run.estimates for run in runs], axis=0)
    reported = np.sqrt(np.mean([[x.noise_variance for x in run.effects] for run in runs], axis=0))
    assert sds == pytest.approx(reported, rel=0.35)  # clips differ between runs


def test_sizes_of_the_arms_are_paid_once_and_add_up():
    rng = np.random.default_rng(2)
    arm = rng.integers(0, 4, 500)
    c = curator(rng.random(500), arm, arms=4)
    counts = arm_counts(c, "a")
    assert counts.sizes.sum() == pytest.approx(500)
    assert counts.sizes == pytest.approx(np.bincount(arm), abs=0.1)
    assert counts.variance == pytest.approx(0.75 * counts.release.variance)
    found = fit(data(), "diff_in_means")
    assert [s.label for s in found.charges].count("records by arm") == 1
    assert sum(s.epsilon for s in found.charges) == pytest.approx(1.0)
    low, high, between = found.estimates
    assert high - low == pytest.approx(between, abs=1e-12)


# --- adjusted -------------------------------------------------------------------------------------


@pytest.mark.sampled(3)
@pytest.mark.parametrize("level", ["sample", "label"])
@pytest.mark.parametrize("method", ["auto", "one_step", "private_ipw"])
def test_confounding_is_removed(method, level):
    frame = data(8000)
    assert contrasts(by_arm(frame, "mean"))[1] > 0.28
    found = fit(frame, method, epsilon=20.0, level=level)
    errors = found.tidy()["std_error"].to_numpy()
    assert (np.abs(found.estimates - TRUTH) < 3.5 * errors).all()
    assert (errors < 0.012).all()
    assert found.identification == "adjusted"
    assert "over the records of all arms" in " ".join(str(found.summary()).split())


def test_weighted_means_are_those_of_a_regression_for_each_arm():
    """Against statsmodels, with the same centres and clip."""
    sm = pytest.importorskip("statsmodels.api")
    frame = data(3000)
    found = fit(frame, "private_ipw", level="label", epsilon=1e6, clip=0.15)
    x = sm.add_constant(frame.frame[["x1", "x2", "x3"]].to_numpy())
    y, means, variances = frame.frame["outcome"].to_numpy(), [], []
    for level in LEVELS:
        own = (frame.frame["treatment"] == level).to_numpy()
        e = np.maximum(sm.Logit(own.astype(float), x).fit(disp=0).predict(x), 0.15)
        centre = y[own].mean()
        terms = np.where(own, (y - centre) / e, 0.0)
        means.append(centre + terms.mean())
        variances.append(terms[own].var() * own.sum() / len(y) ** 2)
    assert found.estimates == pytest.approx(contrasts(means), abs=1e-3)
    errors = [math.sqrt(variances[a] + variances[b]) for a, b in PAIRS]
    sampling = [math.sqrt(effect.sampling.value) for effect in found.effects]
    assert sampling == pytest.approx(errors, rel=0.1)


def models_of(n=4000, randomised=False):
    frame = data(n).frame
    arm = frame["treatment"].map(LEVELS.index).to_numpy()
    x = np.column_stack([np.ones(n), frame[["x1", "x2", "x3"]]])
    c = curator(frame["outcome"].to_numpy(), arm, x)
    centres = release_centres(c, "a", "a")
    (sums,) = c.several(ask_means(c, "a"))
    standard = release_standard(c, sums, "a")
    return arm, x, standard, _models(c, standard, centres, randomised)


def _models(c, standard, centres, randomised):
    return release_models(c, standard, centres, 0.4, "a", randomised, (centres.most_variance,) * 2)


def test_models_of_the_arms_are_those_of_the_records():
    arm, x, standard, models = models_of()
    z = (x[:, 1:] - standard.means) / standard.sds
    for k in range(3):
        far = z[arm == k].mean(axis=0) - z.mean(axis=0)
        assert models.arms[k] == pytest.approx(far, abs=0.06)
    within = np.mean([np.cov(z[arm == k].T) for k in range(3)], axis=0)
    assert models.covariance == pytest.approx(within, abs=0.12)
    trial = models_of(randomised=True)[-1]
    assert not trial.pair(2, 0).treatment_slopes.any()


def test_chances_are_those_of_a_multinomial_regression():
    sm = pytest.importorskip("statsmodels.api")
    arm, x, _, models = models_of(8000)
    slopes = np.stack([np.zeros(3), *(models.pair(k, 0).treatment_slopes for k in (1, 2))])
    score = score_of(models, slopes, 0, 0.01)
    chances = score.of(Block(covariates=x, arm=arm))
    assert chances.sum(axis=1) == pytest.approx(1.0, abs=1e-9)
    exact = sm.MNLogit(arm, x).fit(disp=0).predict(x)
    assert np.abs(chances - exact).mean() < 0.02
    assert chances.mean(axis=0) == pytest.approx(np.bincount(arm) / 8000, abs=0.02)
    weights = harmonic(chances) / np.take_along_axis(chances, arm[:, None], axis=1)[:, 0]
    assert weights.max() <= 1.0
    assert (weights > score.largest[arm]).mean() < 0.03
    by_arm = [weights[arm == k].sum() / 8000 for k in range(3)]  # the same records for all
    assert by_arm == pytest.approx([score.overlap] * 3, rel=0.1)


def test_overlap_weights_of_two_arms_are_the_usual_ones():
    e = np.linspace(0.05, 0.95, 10)
    chances = np.stack([1.0 - e, e], axis=-1)
    assert harmonic(chances) == pytest.approx(e * (1.0 - e))
    shares = np.array([0.7, 0.3])
    flat = PropensityScore(
        standard=None,
        reference=1,
        constants=np.log(shares),
        slopes=np.zeros((2, 1)),
        least=0.0,
        shares=shares,
        covariance=np.eye(1),
        centres=np.zeros((2, 2)),
        index=np.zeros((2, 4, 2)),
        weights=shares[:, None] * np.full(4, 0.25),
    )
    assert flat.overlap == pytest.approx(0.21)
    assert flat.largest == pytest.approx([0.7, 0.7])  # both are in one sum


def test_records_of_two_public_arms_are_theirs():
    rng, n = np.random.default_rng(4), 90_000
    arm = np.repeat([0, 1, 2], n // 3)  # whole blocks without any of them
    y = rng.random(n)
    c = curator(y, arm, public=("treatment",))
    two = among_arms(c, (2, 0), Fraction(1, 4))
    assert two.n == 2 * n // 3
    sums = two.sums("sums", Outcome(), Box(0.0, 1.0, centre=0.0), ARMS, share="a")
    assert sums.value[:, 0] == pytest.approx([y[arm == 2].sum(), y[arm == 0].sum()], rel=1e-4)
    assert sums.charge.epsilon == pytest.approx(c.epsilon("a") / 4)
    with pytest.raises(PrivacyError, match="treatment is private"):
        among_arms(curator(y, arm), (2, 0), Fraction(1))


# --- everywhere -----------------------------------------------------------------------------------


@pytest.mark.sampled(5)
@pytest.mark.parametrize("method", ADDITIVE)
def test_six_arms_and_one_record(method):
    """All contrasts of six arms, one of which has a single record."""
    rng, n = np.random.default_rng(5), 1200
    arm = np.arange(n) % 5
    arm[7] = 5
    frame = pd.DataFrame({"y": rng.random(n) / 2 + arm / 12, "t": arm, "x": rng.random(n)})
    bounds = {"y": (0, 1), "x": (0, 1), "t": list(range(6))}
    given = {"bounds": bounds, "seed": 1, "contrasts": "pairwise"}
    for level, epsilon in (("label", 1.0), ("sample", 100.0), ("sample", 1.0)):
        found = dpe.dp_ate("y ~ t | x", frame, method, epsilon=epsilon, level=level, **given)
        table = found.tidy()
        assert len(table) == 15
        assert np.isfinite(table[["estimate", "std_error", "conf_low", "conf_high"]]).all().all()
        alone = table["term"].str.contains("5")
        if epsilon == 1.0:
            assert table["std_error"][alone].mean() > table["std_error"][~alone].mean()
    assert "6 arms" in str(found)
    assert dpe.ArmEffects.from_json(found.to_json()) == found


@pytest.mark.parametrize("method", ADDITIVE)
def test_an_empty_arm_is_not_told(method):
    """For those who see the data it is an error; where nobody does, nothing shows."""
    frame = data(1000).frame
    frame = frame[frame["treatment"] != "low"].reset_index(drop=True)
    with pytest.raises(DataError, match="three arms is empty"):
        fit(frame, method, bounds=BOUNDS)
    rows = DeclaredFrame(frame, Bounds.declared(BOUNDS), interactive=False)
    given = {"epsilon": 1.0, "seed": 1}
    request = Request.of_effect("ATE", FORMULA, rows, method, **given)
    assert np.isfinite(Estimation(request).result().estimates).all()
    request = Request.of_effect("ATE", FORMULA, rows, method, level="label", **given)
    if method != "diff_in_means":
        with pytest.raises(EstimationError, match="an arm has no records"):
            Estimation(request).result()


@pytest.mark.sampled(5)
@pytest.mark.parametrize("group", ["unit", "cluster"])
@pytest.mark.parametrize("method", ADDITIVE)
def test_copies_of_rows_tell_nothing_new(method, group):
    """Each record twice, its copies a unit or a cluster: errors are those of the records."""
    frame = data(3000).frame.assign(person=np.arange(3000))
    twice = pd.concat([frame, frame], ignore_index=True)
    given = {"bounds": BOUNDS, "epsilon": 200.0, "contrasts": "reference"}
    given |= {} if method in ("diff_in_means", "private_ipw") else {"design": "randomised"}
    once, naive = (fit(rows, method, **given) for rows in (frame, twice))
    if group == "cluster":
        given["clusters"] = 3000
    found = fit(twice, method, **given, **{group: "person"})

    def errors(result):
        return np.array([math.sqrt(effect.sampling.value) for effect in result.effects])

    rough = 0.2 if method == "private_ipw" else 0.1  # its own takes residuals as alike
    assert errors(found) == pytest.approx(errors(once), rel=rough)
    assert errors(naive) == pytest.approx(errors(once) / math.sqrt(2.0), rel=0.1)
    assert found.estimates == pytest.approx(once.estimates, abs=0.01)


@pytest.mark.parametrize(
    "given", [{"subset": "x3 < 0.6"}, {"weights": "x3"}, {"missing": "complete"}], ids=str
)
def test_rows_that_do_not_count_alike(given):
    """A subset, weights and missing outcomes of three arms, against the means of who counts."""
    frame = data(4000).frame
    counts = np.where(frame["x3"] < 0.6, 1.0, 0.0)
    if "weights" in given:
        counts = frame["x3"].to_numpy()
    if "missing" in given:
        frame = frame.assign(outcome=frame["outcome"].where(counts > 0))
    found = fit(frame, "diff_in_means", bounds=BOUNDS, epsilon=1e4, design="randomised", **given)
    means = []
    for level in LEVELS:
        own = counts * (frame["treatment"] == level)
        means.append(float((own * frame["outcome"].fillna(0.0)).sum() / own.sum()))
    assert found.estimates == pytest.approx(contrasts(means), abs=1e-3)


REFUSED = {
    "the treated": (dpe.dp_att, {}, "the ATT compares two arms"),
    "the controls": (dpe.dp_atc, {"method": "one_step"}, "the ATC compares two arms"),
    "halves": (dpe.dp_ate, {"method": "private_ipw", "split": True}, "split and as_printed"),
    "as printed": (
        dpe.dp_ate,
        {"method": "private_ipw", "as_printed": True, "delta": 1e-6},
        "compare two arms, as the paper does",
    ),
    "no adjusting": (
        dpe.dp_ate,
        {"method": "clipped_contrast", "on_unadjusted": "error"},
        "adjusts for nothing",
    ),
}


@pytest.mark.parametrize(("call", "given", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_refusals_come_before_the_charge(call, given, words):
    ledger = dpe.Ledger(1.0, 1e-5)
    with pytest.raises(OptionError, match=words):
        call(FORMULA, data(500), epsilon=1, ledger=ledger, **given)
    assert ledger.charges == ()


@pytest.mark.long
def test_the_default_is_chosen_by_public_numbers():
    values = (1, 0, 0, 0, 0)
    for n, epsilon, name in ((6000, 1.0, "one_step"), (200, 0.5, "clipped_contrast")):
        facts = PublicInfo(n, 4, Budget(epsilon), "sample", 0, values, 3)
        assert choose(AutoOptions(), facts)[0].name == name
        found = fit(data(n), "auto", epsilon=epsilon)
        assert found.options["chosen"] == name
        assert any(f"{name} was chosen" in note for note in found.notes)
    few = PublicInfo(1500, 4, Budget(1.0), "sample", 0, values, 3)
    many = PublicInfo(1500, 4, Budget(1.0), "sample", 0, values, 12)
    assert choose(AutoOptions(), few)[0].name == "one_step"
    assert choose(AutoOptions(), many)[0].name == "clipped_contrast"


def test_one_contrast_is_a_result_of_its_own():
    for method in ADDITIVE:
        found = fit(data(1500), method)
        one = found.contrast("high - low")
        assert one.estimate == found.estimates[2]
        assert dpe.Result.from_json(one.to_json()) == one
