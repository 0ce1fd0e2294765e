"""Row functions of the methods: bit by bit a row's own, and sums that are what they say.

One record moves a sum by no more than its set, whatever a row function does (claim 5); that the
function is the one of the paper is tested here. A function whose value for a row changed with the
rows beside it would let one record move the values of all others.
"""

from __future__ import annotations

import importlib
import itertools
import math
import pkgutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import dpeffects.abilities
import dpeffects.design
import dpeffects.estimators
import dpeffects.replication
from dpeffects.abilities import balance, late, moments, quantile, randomisation, rate
from dpeffects.design.arms import ARMS, ArmByCell, Outcome, ScaledSquare, arm_number, control
from dpeffects.design.bounds import SEARCHES, magnitude
from dpeffects.design.clipped import AnyOutOfRange, OutOfRange
from dpeffects.design.features import AdditiveWaves, Fourier, Linear, unit_rows
from dpeffects.estimands import ESTIMANDS
from dpeffects.estimators import arm_tables, clusters
from dpeffects.estimators import margins as _margins
from dpeffects.estimators import outcome_slopes as _fitted
from dpeffects.estimators.arm_sums import ArmLookup, arm_squares, arm_sums, treated_count
from dpeffects.estimators.default import arm_summaries as _centres
from dpeffects.estimators.default import (
    arm_terms,
    balancing,
    effect_variation,
    moment_models,
    one_step,
    one_step_cate,
    regression,
    standardisation,
)
from dpeffects.estimators.default import propensity_score as _score
from dpeffects.estimators.default import score_curvature as _curves
from dpeffects.estimators.default import tails as _tails
from dpeffects.estimators.default.arm_summaries import ArmStats, residual
from dpeffects.estimators.learners import first_stage
from dpeffects.estimators.learners.first_stage import Learner, Nuisance
from dpeffects.estimators.learners.r_learner import BINS
from dpeffects.estimators.weighting import missing_outcomes
from dpeffects.estimators.weighting import propensity as _propensity
from dpeffects.estimators.weighting.inverse_weights import PropensityFunction
from dpeffects.inference.moment_regression import ARM, NUMBER, PRODUCT, MomentColumn
from dpeffects.privacy.domains import COUNT, Box
from dpeffects.privacy.rows import Block, GroupIndex, fill
from dpeffects.privacy.tight_domains import BoxWithSquares, Histogram, norm_of_sum
from dpeffects.privacy.units import seen_as
from dpeffects.replication import private_ipw
from dpeffects.replication import sample_aggregate as aggregate
from dpeffects.replication.matched_groups import PropensityScoreGroups, matched_cell
from dpeffects.replication.private_psm import propensity_scores
from tests.cases import each
from tests.privacy.bare import curator

D = 5
RNG = np.random.default_rng(1)
WEIGHTS = RNG.normal(size=D) * 3
MODEL = PropensityFunction.within(WEIGHTS, 0.3, (0.1, 0.9))
CUTS = np.array([0.3, 0.5, 0.8])
SMOOTH = Fourier.gaussian(D - 1, 0.35)


def nuisance(by_arm, features=SMOOTH, rng=RNG):
    """Released first stages with random models."""
    size = features.size * (2 if by_arm else 1)
    weights = rng.normal(size=features.size)
    return Nuisance(
        propensity=MODEL,
        means=(0.6, 0.4),
        outcome_range=(0.0, 1.0),
        features=features,
        outcome=np.resize(weights, size),
        by_arm=by_arm,
        threshold=0.2,
    )


def learner(weighted):
    return Learner(nuisance(not weighted), 0.15)


BASIS = balancing.Basis(
    np.array([1, 2, 4]),
    np.array([0.0, -0.1, 0.2]),
    np.array([0.3, 0.2, 0.1]),
    squares=(0, 2),
    pairs=((0, 1),),
    steps=((0, 0.1), (2, -0.2)),
)
LINES = balancing.Basis(BASIS.columns, BASIS.centre, BASIS.spread)
BALANCE = balancing.BalancingWeights(
    BASIS,
    RNG.normal(size=(2, BASIS.size + 1)),
    np.array([3.0, 1.7]),
    np.array([0.4, 0.0]),
)
FROM_MEANS = residual(np.array([0.6, 0.4]))
STANDARD = standardisation.Standardiser(
    np.arange(1, D), np.full(D - 1, 0.4), np.linspace(0.1, 0.5, D - 1)
)
BENT = replace(
    STANDARD, skewness=np.linspace(-0.5, 0.5, D - 1), bends=((1, 1), (2, 2), (1, 2), (3, 4))
)
RESIDUAL = residual(np.array([0.6, 0.4]))
BY_ARM = residual(np.array([0.6, 0.4, 0.3]))
SIGNS = ArmLookup(np.array([2.5, -1.0 / 0.6]))
CONTRAST = _centres.clipped_term(RESIDUAL, SIGNS, 0.15)
LESS_TAKEN = late.OutcomeMinusTreatment((-1.0, 3.0), 0.7)
PILOT = late.WeightedOutcome(LESS_TAKEN, CONTRAST, 0.4)
MODELS = SimpleNamespace(standard=STANDARD, clip=0.3, outcome_slopes=0.1 * WEIGHTS[1:])
"""What row functions read of released models."""
ODDS, CHANCES = (
    _score.PropensityScore(
        standard=STANDARD,
        reference=reference,
        constants=np.array(constants),
        slopes=slopes,
        least=0.03,
        shares=np.array(shares),
        covariance=np.eye(D - 1),
        centres=np.zeros((len(shares), len(shares))),
        index=RNG.normal(size=(len(shares), 8, len(shares))),
        weights=np.array(shares)[:, None] * np.full(8, 0.125),
    )
    for reference, constants, shares, slopes in (
        (1, (0.2, 0.0), (0.4, 0.6), 0.3 * np.stack([WEIGHTS[1:], 0.0 * WEIGHTS[1:]])),
        (
            0,
            (0.0, 0.3, -0.2),
            (0.5, 0.3, 0.2),
            np.stack([0.0 * WEIGHTS[1:], 0.2 * WEIGHTS[1:], -0.1 * WEIGHTS[:0:-1]]),
        ),
    )
)
GROUPS = [
    PropensityScoreGroups(
        **vars(x),
        limits=np.tile([0.2, 0.35, 0.6], (k, 1)),
        found=np.tile([0.1, 0.3, 0.5, 0.7], (k, 1)),
    )
    for x, k in ((ODDS, 1), (CHANCES, 3))
]
TILTS = ("overlap", "ATE", "ATT", "ATC")
FROM_MODEL, FROM_ARMS = (
    one_step.from_model(STANDARD, 0.03 * WEIGHTS[1:], ArmLookup(np.array(levels)))
    for levels in ((0.55, 0.35), (0.5, 0.4, 0.3))
)
ARM_TERM = _centres.clipped_term(FROM_ARMS, CHANCES.weight(), 0.2)
SUM_OF_ARM, THREE_WIDTHS = ArmLookup(np.arange(3.0)), ArmLookup(np.array([0.8, 0.5, 0.6]))
THREE = tuple(PropensityFunction.within(w * WEIGHTS, 0.3 * w, (0.1, 1.0)) for w in (1.0, 0.5, -1.0))
FROM_MEAN = clusters._from_mean(CONTRAST, 0.1)
TABLE_WEIGHT = arm_tables.TableWeight(MODEL, "ATE")
LEFT = _margins.Residuals(
    _fitted.OutcomePredictions(
        BENT, 0.1 * np.random.default_rng(5).normal(size=(2, BENT.size)), CUTS
    ),
    2,
    np.array([False, True]),
)
CASES = {
    "ArmByCell": [ArmByCell(3)],
    "outcome_bin": [quantile.outcome_bin(np.array([0.0, 0.25, 0.4, 1.0, 1e200]))],
    "arm_and_bin": [arm_tables.arm_and_bin(quantile.outcome_bin(np.array([0.2, 0.5])), 3)],
    "TableWeight": [arm_tables.TableWeight(MODEL, e) for e in ESTIMANDS if e != "CATE"],
    "_from_mean": [FROM_MEAN],
    "_one": [clusters._one()],
    "has_outcome": [missing_outcomes.has_outcome],
    "with_treatment": [missing_outcomes.with_treatment(arm) for arm in (SIGNS, SUM_OF_ARM)],
    "represented": [
        missing_outcomes.represented(
            PropensityFunction.within(RNG.normal(size=D + 4), 0.3, (0.1, 0.9)),
            missing_outcomes.with_treatment(arm),
            BENT,
        )
        for arm in (SIGNS, SUM_OF_ARM)
    ],
    "Outcome": [Outcome()],
    "ScaledSquare": [ScaledSquare(0.1, 0.7)],
    "control": [control],
    "arm_number": [arm_number],
    "magnitude": [magnitude],
    "RoughSize": [bins.function for bins, _ in SEARCHES[1:]],
    "AnyOutOfRange": [AnyOutOfRange((0.2,) * D, (0.7,) * D)],
    "OutOfRange": [OutOfRange((0.2,) * D, (0.7,) * D)],
    "propensity_scores": [
        propensity_scores(WEIGHTS[None]),
        propensity_scores(np.stack([WEIGHTS, -0.3 * WEIGHTS, WEIGHTS[::-1]])),
    ],
    "score_bin": [
        balance.score_bin(np.append(0.2, WEIGHTS), CUTS),
        balance.score_bin(np.append(0.2, WEIGHTS), CUTS[:0]),
    ],
    "ArmLookup": [SIGNS, THREE_WIDTHS],
    "from_level": [RESIDUAL, BY_ARM],
    "clipped_term": [CONTRAST, ARM_TERM],
    "length_class": [
        _tails.length_class(RESIDUAL, 0.6 * 2.0 ** -np.arange(5.0), ArmLookup(np.ones(2)))
    ],
    "scaled": [arm_terms.scaled(ARM_TERM, THREE_WIDTHS, THREE_WIDTHS)],
    "beside_squares": [arm_terms.beside_squares(ARM_TERM, 0.4)],
    "of_pair": [arm_terms.of_pair(ARM_TERM, ArmLookup(np.array([1.0, 0.0, -1.0])))],
    "Standardiser": [STANDARD, BENT],
    "unit_columns": [standardisation.unit_columns(x) for x in (STANDARD, BENT)],
    "some_columns": [standardisation.some_columns(STANDARD.columns)],
    "distance_classes": [standardisation.distance_classes(STANDARD.columns, STANDARD.means)],
    "log_distances": [standardisation.log_distances(STANDARD.columns, STANDARD.means)],
    "regression_row": [regression.regression_row(x, RESIDUAL, 1.5) for x in (STANDARD, BENT)],
    "moment_row": [
        moment_models.moment_row(STANDARD, own, 0.3, points, (0.7, 0.7, 0.25))
        for own, points in (
            (RESIDUAL, ()),
            (RESIDUAL, (ArmLookup(np.array([0.6, -0.4])),)),
            (BY_ARM, (THREE_WIDTHS, SUM_OF_ARM)),
        )
    ],
    "newton_term": [
        _score.newton_term(ODDS, SIGNS, 1.5),
        _score.newton_term(CHANCES, SUM_OF_ARM, 1.5),
    ],
    "tilted_weight": [
        replace(own, tilt=tilt).weight()
        for own, tilt in (
            *((x, tilt) for x in (ODDS, GROUPS[0]) for tilt in TILTS),
            *((x, tilt) for x in (CHANCES, GROUPS[1]) for tilt in ("overlap", "ATE")),
        )
    ],
    "matched_cell": [
        matched_cell(ODDS, GROUPS[0].limits[0], 0, ArmLookup(ODDS.shares)),
        matched_cell(CHANCES, GROUPS[1].limits[2], 2, ArmLookup(CHANCES.shares)),
    ],
    "along_score": [
        effect_variation.along_score(
            CONTRAST, STANDARD, ODDS.slopes[:1], np.ones(1), ArmLookup(np.zeros(2))
        ),
        effect_variation.along_score(ARM_TERM, STANDARD, CHANCES.slopes, np.ones(3), SUM_OF_ARM),
    ],
    "end_of_term": [
        effect_variation.end_of_term(CONTRAST, ArmLookup(np.full(2, 0.2))),
        effect_variation.end_of_term(ARM_TERM, ArmLookup(np.full(3, 0.2))),
    ],
    "arm_weight": [
        *(private_ipw.arm_weight((MODEL,), e, SIGNS) for e in ESTIMANDS if e != "CATE"),
        private_ipw.arm_weight(THREE, "ATE", SUM_OF_ARM),
    ],
    "own_beyond_clip": [private_ipw.own_beyond_clip(THREE, SUM_OF_ARM)],
    "Basis": [BASIS],
    "values_and_squares": [balancing.values_and_squares(BASIS)],
    "BalancingWeights": [BALANCE],
    "rooted": [balancing.rooted(BALANCE)],
    "arm_and_class": [
        balancing.arm_and_class(value, np.array([0.2, 0.5, 0.8]))
        for value in (BALANCE, standardisation.some_columns(np.array([2])))
    ],
    "weight_sums": [balancing.weight_sums(BALANCE)],
    "outcome_slopes": [
        balancing.outcome_slopes(
            LINES, FROM_MEANS, 0.3, RNG.normal(size=(2, 3)), RNG.normal(size=(3, 2))
        )
    ],
    "contribution": [
        balancing.contribution(
            BALANCE, FROM_MEANS, np.array([[-0.3, 0.3], [-0.2, 0.3]]), np.array([0.01, -0.02])
        )
    ],
    "bent": [_curves.bent(np.array([[0, 0], [2, -1], [0, 2]]), MODELS, ODDS)],
    "from_model": [FROM_MODEL, FROM_ARMS],
    "group_residuals": [
        one_step_cate.group_residuals(
            SimpleNamespace(residual=FROM_MODEL, score=ODDS, clip=0.2), 3.0, signed
        )
        for signed in (False, True)
    ],
    "group_and_arm": [one_step_cate.group_and_arm],
    "squared": [_centres.squared(x) for x in (RESIDUAL, BY_ARM, FROM_MEAN)],
    "within_clip": [_propensity.within_clip(MODEL)],
    "log_odds": [_propensity.log_odds(MODEL, 0.1, 3.0)],
    "outcome_moment": [
        private_ipw.outcome_moment(x, np.arange(1.0, D + 1)) for x in (RESIDUAL, BY_ARM)
    ],
    "without_answer": [aggregate.without_answer],
    "scaled_answer": [aggregate.scaled_answer((-0.4, 0.7))],
    "centred_answers": [aggregate.centred_answers(1, 0.3, 0.7)],
    "outcome_terms": [first_stage.outcome_terms(nuisance(by_arm)) for by_arm in (False, True)],
    "effect_terms": [
        first_stage.effect_terms(learner(weighted), features)
        for weighted in (False, True)
        for features in (SMOOTH, Linear(D), AdditiveWaves.gaussian(D - 1, 0.1))
    ],
    "effect_squares": [
        first_stage.effect_squares(first_stage.effect_terms(learner(True), Linear(D)), WEIGHTS)
    ],
    "group_terms": [first_stage.group_terms(learner(weighted)) for weighted in (False, True)],
    "group_squares": [first_stage.group_squares(learner(True), np.array([0.5, -3.0, 0.1]))],
    "failure": [randomisation.failure()],
    "assignment_score": [randomisation.assignment_score((3, -2, -3, 2))],
    "group": [first_stage.group],
    "covariate_bins": [first_stage.covariate_bins],
    "OutcomeMinusTreatment": [LESS_TAKEN],
    "TAKEN": [late.TAKEN],
    "WeightedOutcome": [PILOT],
    "product": [late.product(PILOT, late.WeightedOutcome(late.TAKEN, CONTRAST, 2.0, 0.3))],
    "z_of_record": [
        moments.z_of_record(
            moments.Layout(
                tuple(
                    MomentColumn(str(k), (), kind, 0.3, 0.3, parts=(1, 3))
                    for k, kind in enumerate((ARM,) * (arms - 1) + (NUMBER,) * 3 + (PRODUCT,))
                ),
                (1, 3, 4),
                0.2,
                arms,
            ),
            ArmLookup(np.arange(arms)),
        )
        for arms in (2, 3)
    ],
    "events_and_time": [rate.events_and_time(weight) for weight in (None, TABLE_WEIGHT)],
    "lacking": [
        rate.lacking(weight, rates := np.array([0.3, 1.7]), rate.most_lacking(rates))
        for weight in (None, TABLE_WEIGHT)
    ],
    "centred_columns": [
        _margins.centred_columns(*(np.array(x) for x in columns), counted)
        for columns in (([1, 2], [1, 2]), ([1, 2, 3, 4], [4, 2, 4, 4]))
        for counted in (False, True)
    ],
    "centred_squares": [
        _margins.centred_squares(np.array([1, 2]), np.array([3, 2]), left) for left in (None, LEFT)
    ],
    "slopes_row": [
        _fitted.slopes_row(
            BENT,
            np.array([1, 2]),
            np.array([4, 2]),
            RNG.normal(size=(2, 2)),
            np.array([0.4, 0.7]),
            0.5,
        )
    ],
    "ArmByLevel": [_margins.ArmByLevel(2, 3, 1), _margins.ArmByLevel(3, 2, 2)],
}


def row_functions():
    """Names of everything in the folders of methods and designs that says what it reads."""
    for package in (
        dpeffects.estimators,
        dpeffects.abilities,
        dpeffects.design,
        dpeffects.replication,
    ):
        for info in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            if ".unproved." in info.name:  # they hold rows, and hand none to the curator
                continue
            for name, value in vars(importlib.import_module(info.name)).items():
                own = getattr(value, "__module__", "") == info.name
                says = getattr(value, "reads", None)
                if own and isinstance(says, tuple | property):
                    yield name


def block(n, rng):
    """Random rows with some at corners and beyond."""
    x = rng.random((n, D))
    x[:, 0] = 1.0
    x[::7, 1:] = rng.choice([0.0, 1.0, 0.5, -3.0, 7.0], (len(x[::7]), D - 1))
    y = rng.choice([0.0, 1.0, 0.4, 5e-324, 1e300], n)
    y[::2] = rng.random(len(y[::2]))
    answers = np.where(rng.random((n, 1)) < 0.1, np.nan, rng.normal(size=(n, 1)))
    strata, arm = rng.integers(0, 3, (2, n))
    observed = rng.random(n) < 0.7
    return Block(rng.random(n) < 0.5, y, x, strata, answers, arm=arm, observed=observed)


def values(function, rows):
    with np.errstate(all="ignore"):
        found = function(rows.only(function.reads))
    parts = found if isinstance(found, tuple) else (found,)
    columns = sum(np.atleast_2d(np.asarray(part).T).shape[0] for part in parts)
    out = np.empty((rows.size, columns))
    fill(out, found)
    return out


def assert_rowwise(function, rng, n=5000):
    """The same bits in one block, in another order and layout, in pieces, and alone."""
    rows = block(n, rng)
    whole = values(function, rows).view(np.int64).copy()
    order = rng.permutation(n)
    moved = rows.some(order)
    moved = replace(moved, covariates=np.asfortranarray(moved.covariates))
    assert (values(function, moved).view(np.int64) == whole[order]).all()
    cuts = np.unique(rng.integers(1, n, 12))
    for start, stop in itertools.pairwise([0, *cuts, n]):
        part = slice(start, stop)
        assert (values(function, rows.some(part)).view(np.int64) == whole[part]).all()
    for i in rng.integers(0, n, 20):
        one = slice(i, i + 1)
        assert (values(function, rows.some(one)).view(np.int64) == whole[one]).all()


@each("name", CASES)
def test_a_row_has_its_own_value(name):
    for k, function in enumerate(CASES[name]):
        assert_rowwise(function, np.random.default_rng(k))


def test_every_row_function_is_tried():
    assert set(row_functions()) == set(CASES)


def test_a_function_of_its_company_is_found():
    def product(rows):
        return np.tile(rows.covariates, 9) @ np.tile(WEIGHTS, 9)  # bits by where a row stands

    def mean(rows):
        return rows.outcome - rows.outcome.mean()

    product.reads, mean.reads = ("covariates",), ("outcome",)
    for function in (product, mean):
        with pytest.raises(AssertionError):
            assert_rowwise(function, np.random.default_rng(3))


# --- what they say --------------------------------------------------------------------------------


def records(n=400, d=3, seed=2):
    rng = np.random.default_rng(seed)
    x = np.column_stack([np.ones(n), rng.random((n, d - 1))])
    return rng.random(n), rng.random(n) < 0.4, x


def test_counts_sums_and_squares_by_arm():
    y, t, x = records()
    c, _ = curator(3 * y, t, x, limits=(0.0, 3.0))
    frame = pd.DataFrame({"t": ~t, "y": 3 * y - 1.5, "s": (2 * y - 1) ** 2 - 0.5})
    by_arm = frame.groupby("t").sum()
    assert float(treated_count(c, "a")) == t.sum()
    assert arm_sums(c, "a").value == pytest.approx(by_arm["y"].to_numpy(), abs=1e-4)
    assert arm_squares(c, "a").value == pytest.approx(by_arm["s"].to_numpy(), abs=1e-4)


def test_bins_are_those_of_the_score():
    y, t, x = records()
    c, _ = curator(y, t, x)
    w = np.array([0.0, 0.0, 2.0, -2.0])
    bins = GroupIndex(balance.score_bin(w, CUTS), 8)
    counts = c.sums("counts", None, COUNT, bins, share="a").value[:, 0]
    inside = np.digitize(1 / (1 + np.exp(-(x @ w[1:]))), CUTS)
    own = [int((arm & (inside == k)).sum()) for arm in (t, ~t) for k in range(4)]
    assert counts.tolist() == own


def test_terms_of_a_contrast_are_clipped_residuals_over_the_share_of_their_arm():
    rows = block(500, np.random.default_rng(2))
    off = rows.outcome - np.where(rows.treated, 0.6, 0.4)
    own = np.clip(off, -0.15, 0.15) * np.where(rows.treated, 1 / 0.4, -1 / 0.6)
    assert CONTRAST(rows) == pytest.approx(own)
    limits = 0.6 * 2.0 ** -np.arange(5.0)
    longer = (np.abs(off)[:, None] > limits).sum(axis=1)
    cells = 6 * (2 * (1 - rows.treated) + (off <= 0.0)) + 5 - longer
    assert CASES["length_class"][0](rows).tolist() == cells.tolist()


def test_weighted_terms_are_those_of_overlap_weights():
    rows = block(500, np.random.default_rng(3))
    x = (rows.covariates[:, 1:] - STANDARD.means) / STANDARD.sds
    assert STANDARD(rows) == pytest.approx(x)
    level = np.where(rows.treated, 0.55, 0.35)
    residual = rows.outcome - level - x @ (0.3 * MODELS.outcome_slopes)
    assert FROM_MODEL(rows) == pytest.approx(residual)
    with np.errstate(over="ignore"):
        e = np.clip(1 / (1 + np.exp(-(0.2 + x @ ODDS.slopes[0]))), 0.03, 0.97)
    weight = np.where(rows.treated, 1 - e, -e)
    largest = float(ODDS.largest[0])
    weight = np.clip(weight, -largest, largest) / ODDS.overlap
    with np.errstate(all="ignore"):
        found = _centres.clipped_term(FROM_MODEL, ODDS.weight(), 0.2)(rows)
    assert found == pytest.approx(weight * np.clip(residual, -0.2, 0.2))


def weighted_term(model, estimand, means):
    weight = private_ipw.arm_weight((model,), estimand, SIGNS)
    return _centres.clipped_term(residual(np.array(means)), weight, math.inf)


@pytest.mark.parametrize("estimand", ["ATE", "ATT", "ATC"])
def test_scores_stay_in_their_interval_and_reach_its_ends(estimand):
    rng = np.random.default_rng(9)
    y, t = np.array([0.0, 1.0, 0.0, 1.0]), np.array([True, True, False, False])
    corners = np.array(list(itertools.product([1.0], [0.0, 1.0], [0.0, 1.0])))
    nearest = 1.0
    for _ in range(200):
        limits = ESTIMANDS[estimand].clip_limits(0.15)
        model = PropensityFunction.within(rng.normal(size=3) * 4, float(rng.normal()), limits)
        centres = rng.uniform(-0.3, 1.3, 2)
        term = weighted_term(model, estimand, centres)
        found = np.concatenate([term(Block(t, y, np.tile(corner, (4, 1)))) for corner in corners])
        ends = private_ipw.weighted_ends((model,), estimand, centres, (0.0, 1.0))
        low, high = ends[0].min(), ends[1].max()
        assert found.min() >= low - 1e-9
        assert found.max() <= high + 1e-9
        nearest = min(nearest, max(found.min() - low, high - found.max()) / (high - low))
    assert nearest < 1e-6


@pytest.mark.parametrize("estimand", ["ATE", "ATT", "ATC"])
def test_weighted_sums_are_what_they_say(estimand):
    y, t, x = records()
    c, _ = curator(y, t, x)
    model = PropensityFunction.within(
        np.array([0.2, 2.0, -1.0]), 0.3, ESTIMANDS[estimand].clip_limits(0.1)
    )
    norm = np.sqrt(1.5) * (1 + 1e-9)
    e = 1 / (1 + np.exp(-(0.3 + (0.2 + 2 * (x[:, 1] - 0.5) - (x[:, 2] - 0.5)) / norm)))
    e = np.clip(e, model.low, model.high)
    a, b = {"ATE": (1 / e, 1 / (1 - e)), "ATT": (1 + 0 * e, e / (1 - e))}.get(
        estimand, ((1 - e) / e, 1 + 0 * e)
    )
    terms = np.where(t, a * (y - 0.6), -b * (y - 0.4))
    centres = np.array([0.6, 0.4])
    low, high = private_ipw.weighted_ends((model,), estimand, centres, (0.0, 1.0))
    term = weighted_term(model, estimand, centres)
    total = c.sums("sum", term, Box(low.min(), high.max()), share="a")
    assert float(total) == pytest.approx(terms.sum(), abs=1e-4)
    squares = c.sums("squares", private_ipw.squared(residual(centres)), Box(0, 0.36), share="a")
    direct = np.sum((y - np.where(t, 0.6, 0.4)) ** 2)
    assert float(squares) == pytest.approx(direct, abs=1e-4)
    scale = np.array([0.5, 1.0, 2.0])
    row = private_ipw.outcome_moment(residual(centres), scale)
    moment = norm_of_sum(c, "norm", row, private_ipw.moment_box(0.6, scale), share="a")
    direct = (y - np.where(t, 0.6, 0.4)) @ (unit_rows(x) * scale)
    assert float(moment) == pytest.approx(np.linalg.norm(direct), abs=1e-3)


@pytest.mark.parametrize("estimand", ["ATE", "ATT", "ATC"])
@pytest.mark.parametrize("public", [False, True])
def test_weighted_sums_and_squares_are_those_of_the_records(estimand, public):
    """The sum, and the mean square of what a record adds about the estimate."""
    y, t, x = records()
    x[:, 1] = np.clip(x[:, 1] - 0.2 * t, 0, 1)
    y = np.clip(y + 0.3 * (x[:, 1] - 0.5), 0, 1)
    limits = ESTIMANDS[estimand].clip_limits(0.1)
    model = _propensity.PropensityEstimate(
        WEIGHTS[:3],
        -0.4,
        np.array([0.3, 0.6]),
        *np.zeros((2, 3)),
        np.ones(2),
        0.0,
        *np.ones((2, 2)),
        {},
    )
    means, (share, none) = np.array([y[t].mean(), y[~t].mean()]), (float(t.mean()), np.zeros(2))
    centres = ArmStats(400, np.array([share, 1.0 - share]), 0.0, means, none, (0.0, 1.0), False)
    wide, narrow = (
        private_ipw.Weighting(estimand, (model,), (limits,), centres, known)
        for known in (False, True)
    )
    weighting = narrow if public else wide
    asked = weighting.terms(0.0)
    c, _ = curator(y, t, x, public=("treatment",) if public else ())
    noisy = c.sums("sum", asked.row, BoxWithSquares(1), share="a")
    found = asked.read(noisy)
    terms = asked.term(Block(t, y, x))
    part = ESTIMANDS[estimand].population(1.0 * t, 1.0 - t)
    extra = terms.sum() / part.sum()
    assert found.means[0] * 400 / weighting.size == pytest.approx(extra, abs=1e-4)
    direct = np.sum((terms - extra * part) ** 2) / part.sum() ** 2
    exact = replace(found, release=replace(noisy, scale=1e-9))
    (value,), _ = private_ipw._about_estimate(weighting, exact)
    assert value == pytest.approx(direct, rel=0.01 if public else 1e-3)
    assert narrow.terms(0.0).widths[0] <= wide.terms(0.0).widths[0]


def test_records_beyond_a_clip_are_counted():
    y, t, x = records()
    model = PropensityFunction.within(np.array([0.2, 4.0, -3.0]), 0.3, (0.3, 0.8))
    e = 1 / (1 + np.exp(-(unit_rows(x) @ model.weights + 0.3)))
    outside = int(np.sum((e < 0.3) | (e > 0.8)))
    c, _ = curator(y, t, x)
    count = c.sums("count", None, COUNT, GroupIndex(_propensity.within_clip(model), 1), share="a")
    assert 0 < outside < 400
    assert float(count) == pytest.approx(outside)
    flat = PropensityFunction.within(np.array([0.7, 0.0, 0.0]), 0.3, (0.3, 0.8))
    assert not float(
        c.sums("count", None, COUNT, GroupIndex(_propensity.within_clip(flat), 1), share="a")
    )


def test_a_released_model_bounds_its_own_weights():
    flat = PropensityFunction.within(np.zeros(4), 0.2, (0.1, 0.9))
    assert flat.low == flat.high == pytest.approx(1 / (1 + math.exp(-0.2)))
    steep = PropensityFunction.within(np.array([0.0, 1e6]), 0.0, (0.1, 0.9))
    assert (steep.low, steep.high) == (0.1, 0.9)
    far = PropensityFunction.within(np.zeros(2), 50.0, (0.1, 0.9))
    assert (far.low, far.high) == (0.9, 0.9)


def test_covariates_by_arm_are_the_sums():
    y, t, x = records()
    c, _ = curator(y, t, x)
    z, model = (
        x[:, 1:] - 0.5,
        PropensityFunction.within(np.array([0.2, 2.0, -1.0]), 0.3, (0.1, 0.9)),
    )
    seen = seen_as(c, arm_tables.TableWeight(model, "ATE"))
    plain, weighted = (
        _margins.margins([_margins.MarginQuery(own, "margin", np.array([1, 2]), ARMS, (2, 1), "a")])
        for own in (c, seen)
    )
    e = model.scores(unit_rows(x))
    for arm, rows, w in ((0, t, 1 / e), (1, ~t, 1 / (1 - e))):
        assert plain[0].sizes[arm, 0] == pytest.approx(rows.sum(), abs=1e-3)
        assert plain[0].sums[arm, 0] == pytest.approx(z[rows].sum(axis=0), abs=1e-3)
        assert plain[0].squares[arm, 0] == pytest.approx((z[rows] ** 2).sum(axis=0), abs=1e-3)
        mean = (w[rows, None] * z[rows]).sum(axis=0) / w[rows].sum()
        assert weighted[0].means()[arm, 0] == pytest.approx(mean, abs=1e-3)


# --- learners of effects --------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [True, False], ids=["r_learner", "dr_learner"])
def test_sums_by_group_are_those_of_a_group_by(weighted):
    rng = np.random.default_rng(18)
    y, t, x = records(400, D)
    y[:100] = rng.choice([0.0, 1.0], 100)
    g = rng.integers(0, 4, 400)  # of 5 groups, one is empty
    made = Learner(nuisance(not weighted), 0.7)
    c, _ = curator(y, t, x, strata=(g, 5))
    terms, cells, top = (
        first_stage.group_terms(made),
        GroupIndex(first_stage.group, 5),
        made.steepest,
    )
    box = Box([-1.0, 0.0], [1.0, 1.0], centre=0.0)
    both = c.sums("sums", terms, box, cells, share="a").value * [top, top**2]
    score = made.nuisance.scores(x)
    one, zero = made.nuisance.outcomes(x, made.nuisance.features(x))
    assert min(one.min(), zero.min()) >= 0.0  # means stay within the range of the outcome
    assert max(one.max(), zero.max()) <= 1.0
    if weighted:
        s = t - score
        target = y - score * one - (1 - score) * zero - s * made.nuisance.difference
    else:
        s = np.ones(400)
        weight = np.where(t, 1 / score, -1 / (1 - score))
        target = one - zero + weight * (y - np.where(t, one, zero)) - made.nuisance.difference
    clipped = np.clip(target / 0.7, -1, 1)
    effects = np.array([0.3, -0.2, 1.0, -1.0, 0.0])
    residual = np.clip(clipped - s * effects[g], -1, 1)
    frame = pd.DataFrame({"g": g, "top": s * clipped, "w": s**2, "r": (s * residual) ** 2})
    direct = frame.groupby("g").sum().reindex(range(5), fill_value=0.0)
    assert both == pytest.approx(direct[["top", "w"]].to_numpy(), abs=1e-5)
    row = first_stage.group_squares(made, effects)
    squares = c.sums("squares", row, Box(0.0, top**2, centre=0.0), cells, share="a").value[:, 0]
    assert squares == pytest.approx(direct["r"].to_numpy(), abs=1e-5)
    for k in range(4):  # their ratio is a regression of residuals on residuals
        here = g == k
        slope = np.linalg.lstsq(s[here][:, None], clipped[here], rcond=None)[0][0]
        assert both[k, 0] / both[k, 1] == pytest.approx(slope, abs=1e-5)


def test_squares_of_gradients_are_what_they_say():
    y, t, x = records(300, D)
    flat = Nuisance(
        PropensityFunction.within(np.zeros(D), 0.0, (0.05, 0.95)),
        (0.5, 0.5),
        (0.0, 1.0),
        SMOOTH,
        np.zeros(0),
        False,
        0.2,
    )
    made = Learner(flat, 0.15)
    w = np.random.default_rng(20).normal(size=SMOOTH.size)
    row = first_stage.effect_squares(first_stage.effect_terms(made, SMOOTH), w)
    c, _ = curator(y, t, x)
    found = c.sums("squares", row, Box(np.zeros(2), np.full(2, 0.25)), share="a").value
    s = t - 0.5
    r = (y - 0.5) / 0.15 - s * (SMOOTH(x) @ w)
    assert found[0] == pytest.approx((s**2 * np.minimum(np.abs(r), 1) ** 2).sum(), abs=1e-4)
    assert found[1] == pytest.approx((s**2 * (np.abs(r) <= 1)).sum(), abs=1e-4)


def test_histograms_of_covariates():
    y, t, x = records(500, 4)
    x[:6, 1] = [0.0, 1.0, 0.125, 0.5, 0.25, 0.875]
    c, noise = curator(y, t, x)
    counts = c.sums("bins", first_stage.covariate_bins, Histogram(3, BINS), share="a").value
    for j, own in enumerate(counts.reshape(3, BINS)):
        assert (own == np.histogram(x[:, j + 1], BINS, (0.0, 1.0))[0]).all()
    assert noise.sensitivity == [6]
