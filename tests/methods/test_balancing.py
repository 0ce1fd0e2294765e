"""Balancing weights at label level: the solver, what is released with them, and intervals."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize

import dpeffects as dpe
from dpeffects.errors import DPEffectsError, EstimationError
from dpeffects.estimators.default import balancing
from dpeffects.estimators.default.balancing import (
    BalancingProblem,
    BasisMoments,
    choose_basis,
    designs,
    fit_pair,
    label_shares,
    lengths_part,
)
from dpeffects.estimators.spec import MethodSpec, Options, PublicInfo
from dpeffects.privacy.budget import Budget, Share
from dpeffects.privacy.curator import Curator
from dpeffects.privacy.ledger import CallLedger
from dpeffects.privacy.release import Releaser, Split
from dpeffects.privacy.rows import Block, Rows
from tests.privacy.bare import Bare, change


@dataclass(frozen=True)
class LabelOptions(Options):
    """The design, and the shares that follow from public numbers."""

    design: str = "observational"
    flexible: int | None = None
    split: dict = field(default_factory=dict)

    def resolve(self, facts):
        return LabelOptions(self.design, self.flexible, label_shares(self, facts))


SPEC = MethodSpec(
    name="balancing",
    title="balancing weights",
    about="",
    estimands=("ATE", "ATT", "ATC"),
    levels=("label",),
    options=LabelOptions,
    budget_split=lambda level, options: options.split,
    fit=fit_pair,
    citation="",
)
CALLS = {"ATE": dpe.dp_ate, "ATT": dpe.dp_att, "ATC": dpe.dp_atc}
BOUNDS = {"y": (0, 1), **{f"x{j}": (0, 1) for j in range(60)}}


def formula(columns):
    return "y ~ t | " + " + ".join(f"x{j}" for j in range(columns))


def run(data, estimand="ATE", columns=None, **more):
    columns = sum(name.startswith("x") for name in data) if columns is None else columns
    bounds = {name: BOUNDS[name] for name in ["y", *(f"x{j}" for j in range(columns))]}
    given = {"epsilon": 1.0, "bounds": bounds, "seed": 1, **more}
    return CALLS[estimand](formula(columns), data, SPEC, **given)


def records(n=1000, columns=4, seed=0, confounding=2.0, effect=0.1, spread=0.1):
    rng = np.random.default_rng(seed)
    x = rng.random((n, columns))
    t = rng.random(n) < 1 / (1 + np.exp(-confounding * (x[:, 0] - 0.5 - (x[:, -1] - 0.5) / 2)))
    t[:2] = True, False
    y = 0.3 + 0.3 * x[:, 0] - 0.1 * x[:, -1] + effect * t + spread * rng.standard_normal(n)
    names = {f"x{j}": x[:, j] for j in range(columns)}
    return pd.DataFrame({**names, "t": t.astype(int), "y": np.clip(y, 0, 1)})


def curator(data, columns, epsilon=1.0):
    """A curator without noise, in whose call covariates and treatment are public."""
    x = data[[f"x{j}" for j in range(columns)]].to_numpy()
    y, t = data["y"].to_numpy(), data["t"].to_numpy() == 1
    rows = Rows(y, (0.0, 1.0), t, lambda: x, columns, values=(0,) * (columns + 1))
    facts = PublicInfo(len(y), columns, Budget(epsilon), "label")
    split = Split({k: Share(epsilon * v) for k, v in label_shares(None, facts).items()})
    noise = Bare()
    releaser = Releaser(split, CallLedger(Budget(1e9)), noise)
    return Curator(rows, releaser, frozenset({"covariates", "treatment"})), noise


def sizes(data):
    return np.array([(data["t"] == 1).sum(), (data["t"] == 0).sum()], float)


def row_weights(design, data, columns):
    """Weights of the records, those of an arm adding up to 1."""
    block = Block(
        treated=data["t"].to_numpy() == 1,
        covariates=data[[f"x{j}" for j in range(columns)]].to_numpy(),
    )
    w = design.weights
    return np.where(block.treated, *(w.caps / design.totals)) * w(block)


# --- the weights ----------------------------------------------------------------------------------


@pytest.mark.sampled(2)
@pytest.mark.parametrize("estimand", ["ATE", "ATT", "ATC"])
@pytest.mark.parametrize("top", [2.5, 40.0])
def test_weights_are_those_of_an_independent_solver(estimand, top, monkeypatch):
    """The primal problem by scipy: least entropy and imbalance over the records' own r."""
    monkeypatch.setattr(balancing.hand, "STOP", 1e-7)
    monkeypatch.setattr(balancing.hand, "LOOKS", 60)
    data = records(120, 3, seed=4)
    c, _ = curator(data, 3)
    basis, moments = choose_basis(c, sizes(data), 1)
    problem = BalancingProblem.of(basis, moments, estimand)
    t = data["t"].to_numpy() == 1
    tops = np.where({"ATE": (0, 0), "ATT": (1, 0), "ATC": (0, 1)}[estimand], 1.0, top)
    start = problem.look(c, np.zeros_like(problem.goal), tops)
    x = data[["x0", "x1", "x2"]].to_numpy()
    weights = problem.weights(problem.solve(c, start, tops).at, tops)
    found = weights(Block(treated=t, covariates=x)) * np.where(t, *weights.caps)
    values = np.column_stack(basis(Block(covariates=x)))
    inside = {"ATE": t | ~t, "ATT": t, "ATC": ~t}[estimand]
    z = (values - values[inside].mean(axis=0)) / values.std(axis=0)
    for own in (t, ~t):
        n, others = own.sum(), inside & ~own
        if not others.any():
            assert found[own] == pytest.approx(np.ones(n))
            continue
        goal, ridge = z[others].mean(axis=0), 3.0 * basis.penalties / n

        def loss(r, z=z[own], goal=goal, ridge=ridge):
            return (r * np.log(r)).mean() + ((r @ z / len(r) - goal) ** 2 / ridge).sum() / 2.0

        def slope(r, z=z[own], goal=goal, ridge=ridge):
            return (np.log(r) + 1.0 + z @ ((r @ z / len(r) - goal) / ridge)) / len(r)

        mean = {
            "type": "eq",
            "fun": lambda r: r.mean() - 1.0,
            "jac": lambda r: np.ones(r.size) / r.size,
        }
        best = minimize(
            loss,
            np.ones(n),
            jac=slope,
            bounds=[(1e-6, top)] * n,
            constraints=[mean],
            method="SLSQP",
            options={"maxiter": 500, "ftol": 1e-12},
        ).x
        base = (inside & own).sum() / inside.sum()
        assert found[own] == pytest.approx(base + (1.0 - base) * best, abs=0.01)


def test_loose_weights_reproduce_the_moments_of_the_basis():
    """Lines, squares, products and steps of either arm have the means of all records."""
    data = records(6000, 3, seed=5)
    c, _ = curator(data, 3)
    basis, moments = choose_basis(c, sizes(data))
    assert basis.squares
    assert basis.pairs
    assert basis.steps
    loosest = next(designs(c, BalancingProblem.of(basis, moments, "ATE"), trial=False))
    t, v = data["t"].to_numpy() == 1, row_weights(loosest, data, 3)
    x = data[["x0", "x1", "x2"]].to_numpy()
    values = np.column_stack(basis(Block(covariates=x)))
    for own in (t, ~t):
        before = np.abs(values[own].mean(axis=0) - values.mean(axis=0)) / values.std(axis=0)
        after = np.abs(v[own] @ values[own] - values.mean(axis=0)) / values.std(axis=0)
        assert before.max() > 0.15
        assert after.max() < 0.01


def test_designs_go_from_loose_to_tight_and_say_what_they_leave():
    data = records(1500, 4, seed=1)
    c, noise = curator(data, 4)
    basis, moments = choose_basis(c, sizes(data))
    made = list(designs(c, BalancingProblem.of(basis, moments, "ATE"), trial=False))
    assert not noise.values  # nothing was released
    largest = [d.largest for d in made]
    assert largest == sorted(largest, reverse=True)
    assert np.abs(made[0].imbalance).max() < 0.03
    lefts = [d.left for d in made]
    assert lefts[-1] > lefts[0]
    x = data[[f"x{j}" for j in range(4)]].to_numpy()
    values = np.column_stack(basis(Block(covariates=x)))
    t = data["t"].to_numpy() == 1
    z = (values - values.mean(axis=0)) / values.std(axis=0)
    for design in made:
        v = row_weights(design, data, 4)
        assert v.min() >= 0
        assert v.max() <= design.largest * (1 + 1e-9)
        assert [v[t].sum(), v[~t].sum()] == pytest.approx([1, 1], abs=1e-6)
        assert [(v[t] ** 2).sum(), (v[~t] ** 2).sum()] == pytest.approx(design.squares, rel=1e-4)
        assert v[t] @ z[t] == pytest.approx(design.imbalance[0], abs=1e-4)
        assert v[~t] @ z[~t] == pytest.approx(design.imbalance[1], abs=1e-4)


def test_the_first_weights_of_a_trial_are_even():
    data = records(400, 2, seed=2, confounding=0.0)
    c, _ = curator(data, 2)
    basis, moments = choose_basis(c, sizes(data))
    first = next(designs(c, BalancingProblem.of(basis, moments, "ATE"), trial=True))
    assert first.largest == pytest.approx(1 / sizes(data).min())
    assert first.squares == pytest.approx(1 / sizes(data))


def test_curves_come_with_records():
    counts, limited = [], []
    for n in (60, 300, 3000, 30_000):
        data = records(n, 4)
        c, _ = curator(data, 4)
        counts.append(choose_basis(c, sizes(data))[0].size)
        limited.append([choose_basis(c, sizes(data), k)[0].size for k in range(3)])
    assert limited == [[4, 4, 4], [4, 8, 8], [4, 8, 14], [4, 8, 14]]
    assert counts[0] == 4
    assert counts == sorted(counts)
    assert 30 < counts[2] < counts[3] <= 100


def test_steps_are_placed_where_the_share_treated_jumps():
    data = records(4000, 2)
    rng = np.random.default_rng(1)
    data["t"] = (rng.random(4000) < np.where(data["x0"] > 0.637, 0.7, 0.3)).astype(int)
    c, _ = curator(data, 2)
    basis, _ = choose_basis(c, sizes(data))
    assert min(abs(x + 0.5 - 0.637) for j, x in basis.steps if j == 0) < 0.01


def test_moments_are_the_moments():
    data = records(500, 3)
    c, _ = curator(data, 3)
    basis, _ = choose_basis(c, sizes(data))
    found = BasisMoments.of(c, basis, sizes(data))
    values = np.column_stack(basis(Block(covariates=data[["x0", "x1", "x2"]].to_numpy())))
    t = data["t"].to_numpy() == 1
    assert found.means[0] == pytest.approx(np.append(1.0, values[t].mean(axis=0)), abs=1e-6)
    assert found.means[1] == pytest.approx(np.append(1.0, values[~t].mean(axis=0)), abs=1e-6)
    assert found.spread == pytest.approx(values.std(axis=0), abs=1e-6)


# --- what is released -----------------------------------------------------------------------------


@pytest.mark.parametrize("estimand", ["ATE", "ATT", "ATC"])
@pytest.mark.parametrize("epsilon", [0.1, 50.0])
def test_the_estimate_is_the_weighted_difference(estimand, epsilon, monkeypatch):
    """Without noise and without a clip it is sum v y, whatever the released means are."""
    data = records(800, 3, seed=3)
    c, _ = curator(data, 3, epsilon)
    chosen = []
    monkeypatch.setattr(balancing, "lengths_part", lambda records: 0.0)
    original = balancing.weighted_sum
    monkeypatch.setattr(balancing, "weighted_sum", lambda *a: chosen.append(a[1]) or original(*a))
    made = fit_pair(c, LabelOptions(), estimand)
    v = row_weights(chosen[0].design, data, 3) * np.where(data["t"] == 1, 1.0, -1.0)
    assert made.value == pytest.approx(float(v @ data["y"]), abs=1e-5)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_one_outcome_moves_no_release_by_more_than_is_said(epsilon):
    rng = np.random.default_rng(5)
    for seed in range(6):
        data = records(1200, 3, seed)
        other = data.copy()
        other.loc[rng.integers(1200), "y"] = rng.choice([0.0, 1.0])
        pair = (curator(d, 3, epsilon) for d in (data, other))
        moved = change(*pair, lambda c: _first_releases(c, rng.integers(3)))
        assert moved <= 1.0


def _first_releases(c, estimand):
    """The releases whose sets do not follow from releases before them."""
    balancing.release_centres(c, means="means")


def test_weighted_sum_keeps_to_its_set():
    """For the same released numbers, one outcome moves sum and squares by at most their set."""
    data = records(600, 3, seed=7)
    c, _ = curator(data, 3)
    basis, moments = choose_basis(c, sizes(data))
    problem = BalancingProblem.of(basis, moments, "ATE")
    known = balancing.release_first(c, sizes(data))
    design = next(designs(c, problem, trial=False))
    choice = balancing.ClippedDesign.of(c, design, known, trial=False)
    far = []
    for place in range(0, 600, 40):
        other = data.copy()
        other.loc[place, "y"] = 1.0 - round(other.loc[place, "y"])
        pair = [curator(d, 3) for d in (data, other)]
        far.append(change(*pair, lambda c: balancing.weighted_sum(c, choice, known)))
    assert 0.1 < max(far) <= 1.0


def test_the_budget_is_spent_exactly():
    for epsilon in (0.05, 0.3, 1.0, 7.7):
        made = run(records(600, 3), epsilon=epsilon)
        total = sum(Fraction(s.epsilon) for s in made.charges)
        assert total <= Fraction(str(epsilon))
        assert float(total) == pytest.approx(epsilon, rel=1e-9)
        assert {s.share for s in made.charges} == {"means", "variance", "estimate"}


def test_more_epsilon_is_never_less_for_the_estimate():
    grid = np.geomspace(1, 1e6, 400)
    left = []
    for records_times_epsilon in grid:
        facts = PublicInfo(1000, 8, Budget(records_times_epsilon / 1000), "label")
        estimate = label_shares(None, facts)["estimate"]
        rest = 1.0 - lengths_part(records_times_epsilon * estimate)
        left.append(records_times_epsilon * estimate * rest)
    assert (np.diff(left) > -0.02 * np.array(left[1:])).all()


def test_an_estimate_says_what_its_error_is_made_of():
    data = records(3000, 4, spread=0.03)
    made = fit_pair(curator(data, 4)[0], LabelOptions(), "ATE")
    assert [part.name for part in made.parts] == [
        "winsorisation bias",
        "remaining imbalance of the covariates",
        "the arm means",
    ]
    assert made.identification == "adjusted"
    assert made.possible == (-1.0, 1.0)
    assert made.details["functions of the covariates that are balanced"] > 14
    lines = fit_pair(curator(data, 4)[0], LabelOptions(flexible=0), "ATE")
    assert lines.details["functions of the covariates that are balanced"] == 4
    assert made.warnings == ""
    trial = fit_pair(curator(data, 4)[0], LabelOptions("randomised"), "ATE")
    assert trial.identification == "randomised"
    assert "remaining imbalance of the covariates" not in [part.name for part in trial.parts]


# --- what intervals do ----------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize(
    ("epsilon", "estimand"), [(0.1, "ATE"), (1.0, "ATE"), (1.0, "ATT"), (4.0, "ATC")]
)
def test_intervals_cover_and_confounding_is_removed(epsilon, estimand):
    fits = [run(records(1500, 4, s), estimand, epsilon=epsilon, seed=s) for s in range(40)]
    inside = [low <= 0.1 <= high for low, high in (made.conf_int() for made in fits)]
    assert sum(inside) >= 36
    errors = np.array([made.estimate - 0.1 for made in fits])
    assert abs(np.median(errors)) < {0.1: 0.02}.get(epsilon, 0.004)  # a difference is off by 0.04


@pytest.mark.sampled(4)
@pytest.mark.parametrize("flexible", [0, None])
@pytest.mark.parametrize("wrong", ["outcome", "score", "neither"])
def test_right_where_either_model_is(wrong, flexible):
    """The score or the outcome steps, the other one is a line: the effect is that of everybody.

    A regression in lines and a weighting by a score in lines are each off in one of them.
    """
    errors, raw = [], []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        x = rng.random((6000, 2))
        step = (x > 0.6).astype(float)
        index = step if wrong == "score" else 2.0 * x
        t = rng.random(6000) < 1 / (
            1 + np.exp(-1.5 * (index.sum(axis=1) - index.sum(axis=1).mean()))
        )
        shape = step if wrong == "outcome" else x
        y = 0.25 + 0.2 * shape.sum(axis=1) + 0.1 * t + 0.03 * rng.standard_normal(6000)
        data = pd.DataFrame(
            {"x0": x[:, 0], "x1": x[:, 1], "t": t.astype(int), "y": np.clip(y, 0, 1)}
        )
        c, _ = curator(data, 2, 50.0)
        errors.append(fit_pair(c, LabelOptions(flexible=flexible), "ATE").value - 0.1)
        raw.append(y[t].mean() - y[~t].mean() - 0.1)
    assert np.mean(raw) > 0.05
    assert abs(np.mean(errors)) < 0.003


@pytest.mark.long
@pytest.mark.parametrize("shape", ["step", "hinge", "product", "u"])
def test_what_bends_in_score_and_outcome_is_covered(shape):
    inside = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        x = rng.random((4000, 2))
        z = {
            "step": (x > 0.55).sum(axis=1) / 2.0,
            "hinge": np.maximum(x - 0.6, 0.0).sum(axis=1) * 2.0,
            "product": 4.0 * (x[:, 0] - 0.5) * (x[:, 1] - 0.5),
            "u": 4.0 * (x[:, 0] - 0.5) ** 2,
        }[shape]
        t = rng.random(4000) < 1 / (1 + np.exp(-2.0 * (z - z.mean())))
        y = 0.3 + 0.3 * z + 0.1 * t + 0.08 * rng.standard_normal(4000)
        data = pd.DataFrame(
            {"x0": x[:, 0], "x1": x[:, 1], "t": t.astype(int), "y": np.clip(y, 0, 1)}
        )
        low, high = run(data, seed=seed).conf_int()
        inside += low <= 0.1 <= high
    assert inside >= 18


@pytest.mark.sampled(5)
@pytest.mark.parametrize("kind", ["ordinary", "binary", "few treated"])
@pytest.mark.parametrize("epsilon", [0.1, 0.5, 2.0])
def test_a_trial_is_no_wider_than_a_difference_in_means(kind, epsilon):
    widths = []
    for seed in range(8):
        data = records(2000, 4, seed, confounding=0.0)
        rng = np.random.default_rng(seed)
        if kind == "binary":
            data["y"] = (rng.random(2000) < 0.1 + 0.2 * data["x0"]).astype(int)
        if kind == "few treated":
            data["t"] = (rng.random(2000) < 0.1).astype(int)
        ours = run(data, epsilon=epsilon, seed=seed, design="randomised").conf_int()
        given = {"epsilon": epsilon, "bounds": {"y": (0, 1)}, "seed": seed, "level": "label"}
        theirs = dpe.dp_ate("y ~ t", data, "diff_in_means", **given).conf_int()
        widths.append([ours.upper - ours.lower, theirs.upper - theirs.lower])
    ours, theirs = np.mean(widths, axis=0)
    assert ours <= 1.02 * theirs


def test_in_a_large_trial_covariates_sharpen():
    data = records(20_000, 4, 1, confounding=0.0)
    given = {"epsilon": 1.0, "seed": 1, "check_bounds": False}  # 1 % of epsilon in either
    ours = run(data, design="randomised", **given)
    given |= {"bounds": {"y": (0, 1)}, "level": "label"}
    assert ours.std_error < 0.85 * dpe.dp_ate("y ~ t", data, "diff_in_means", **given).std_error


# --- what nobody named ----------------------------------------------------------------------------


def test_an_empty_arm_is_refused_before_a_charge():
    data = records(50, 2)
    data["t"] = 1
    c, noise = curator(data, 2)
    with pytest.raises(EstimationError, match="no records"):
        fit_pair(c, LabelOptions(), "ATE")
    assert not noise.values
    with pytest.raises(DPEffectsError):
        run(data)


def odd_cases():
    rng = np.random.default_rng(8)
    few = records(60, 2)
    few["t"] = 0
    few.loc[3, "t"] = 1
    constant = records(80, 3).assign(x1=0.25)
    alone = records(80, 1).assign(x0=0.5)
    twins = records(200, 3)
    twins["x1"] = 1.0 - twins["x0"]
    wide = records(200, 50)
    apart = records(300, 2)
    apart["x0"] = np.where(apart["t"] == 1, 0.9, 0.1) + 0.1 * rng.random(300) * (apart["t"] == 1)
    tiny = records(4, 2)
    flat = records(100, 2).assign(y=0.5)
    return {
        "one treated record": few,
        "a constant column": constant,
        "nothing but a constant": alone,
        "a column twice": twins,
        "50 columns, 200 records": wide,
        "no overlap": apart,
        "four records": tiny,
        "one outcome": flat,
    }


@pytest.mark.sampled(5)
@pytest.mark.parametrize("case", odd_cases())
@pytest.mark.parametrize("design", ["observational", "randomised"])
def test_odd_data_give_an_answer(case, design):
    data = odd_cases()[case]
    for estimand in CALLS:
        for epsilon in (0.01, 100.0):
            made = run(data, estimand, design=design, epsilon=epsilon)
            low, high = made.conf_int()
            assert -1 <= low <= made.estimate <= high <= 1
            assert made.std_error > 0


def test_what_cannot_be_balanced_is_said():
    made = run(odd_cases()["no overlap"])
    assert "Weak adjustment" in made.warnings
    assert any("overlap" in note for note in made.notes)
    low, high = made.conf_int()
    assert high - low > 0.3  # the interval allows for what may be left
    assert run(odd_cases()["no overlap"], design="randomised").estimate_warnings == ""


# --- wherever the rows are ------------------------------------------------------------------------
