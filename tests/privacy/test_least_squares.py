"""Least squares by arm, the draw along its ladder, bounded least squares (claims 34 to 36)."""

from __future__ import annotations

import decimal
import math
import random
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import chisquare

from dpeffects.errors import OptionError
from dpeffects.evidence.auditing import recording
from dpeffects.evidence.auditing.recording import RecordedNoise, log_chance
from dpeffects.inference import ladder_noise
from dpeffects.inference.ladder_noise import along_ladder, half_width
from dpeffects.privacy import ladder as ladders
from dpeffects.privacy import least_squares
from dpeffects.privacy.budget import Budget, Share
from dpeffects.privacy.ladder import Ladder, LadderPace
from dpeffects.privacy.least_squares import LeastSquares, RowProducts, StepBounds
from dpeffects.privacy.ledger import CallLedger
from dpeffects.privacy.noise import SecureNoise
from dpeffects.privacy.release import Releaser, Split
from dpeffects.seeded import SeededNoise
from tests.privacy.planted import plant_line
from tests.privacy.substitutions import (
    BOUNDED,
    BalancingProblem,
    Keeps,
    fitted,
    released,
    substitutions,
)

ODD = 1e-6


# --- what one record can do -----------------------------------------------------------------------


@pytest.mark.parametrize("count", [400, pytest.param(5000, marks=pytest.mark.long)])
def test_no_substitution_moves_a_release_by_more_than_its_ladder(count):
    found = substitutions(count, seed=1)
    assert not found.violations
    assert found.open > 100
    assert found.closest["contrast"] > 0.3
    assert min(found.closest[label] for label in BOUNDED) > 0.7


def test_chances_on_neighbours_differ_by_no_more_than_the_price():
    found = substitutions(60, seed=2, by_density=True)
    assert not found.violations
    assert found.closest["log ratio of chances"] > 0.4


PLANTED = {
    "one of two moves": (StepBounds, "contrast", "(2.0 - 1.0 / (self.room - k))", "0.5"),
    "nothing grows": (
        StepBounds,
        "_grown",
        "(self.room / (self.room - k)) ** 2",
        "1.0 + 0.0 * k",
    ),
    "the mean does not move": (StepBounds, "_mean_moves", "2.0 * self.reach", "0.0"),
    "ladders do not end": (
        StepBounds,
        "contrast",
        "self.room >= k + 2",
        "self.room > k + 1",
    ),
    "nobody in the mean": (StepBounds, "contrast", "self.size > k + 1", "self.size > 0"),
    "squares of psi": (LeastSquares, "squares", "(self._rows.clip + longest)", "self._rows.clip"),
    "the lesser weight": (LeastSquares, "squares", "max(weights)", "min(weights)"),
    "squares of heavy rows": (LeastSquares, "squares", "step**2 / self._units", "step**2"),
    "leverage of a fixed mean": (LeastSquares, "leverage", "8.0 *", "0.0 *"),
    "leverage of one arm's mean": (LeastSquares, "leverage", "8.0 *", "4.0 *"),
    "leverage of fixed rows": (LeastSquares, "leverage", "longest**2 +", "0.0 +"),
    "b of any length": (LeastSquares, "_largest_value", "> longest**2", "> 99.0 * longest**2"),
    "constants beside the bound": (
        LeastSquares,
        "_largest_value",
        "scale[0] = math.sqrt(_FIRST)",
        "scale[0] = 1.0",
    ),
    "residuals are psi": (LeastSquares, "_leeway", "bits + max(", "bits + 0.0 * max("),
    "rows are shorter": (LeastSquares, "_find_room", "one**2 + self", "one**2 + 0 * self"),
    "psi is not clipped": (
        RowProducts,
        "__call__",
        "enumerate(self.grids)",
        "enumerate(self.grids[:2])",
    ),
    "weights do not count": (RowProducts, "__call__", "weigh(z.copy(), weight)", "z * MOST_ROWS"),
    "values beyond the ends": (
        Ladder,
        "of",
        "min(max(Fraction(value), low), high)",
        "Fraction(value)",
    ),
    "no smoothing": (Ladder, "of", "max(rungs[k], -(-above * bottom // top))", "rungs[k]"),
    "a price beside the price": (LadderPace, "of", "price - beta", "price"),
    "chances fall too fast": (LadderPace, "of", "math.exp(-rest)", "math.exp(-1.5 * rest)"),
}


SEEDS = {"one of two moves": 5, "the mean does not move": 5, "nobody in the mean": 5}
SEEDS |= {"residuals are psi": 6}
"""Chains that find a rare one early."""


@pytest.mark.parametrize("bug", PLANTED)
def test_planted_bugs_are_found(monkeypatch, bug):
    plant_line(monkeypatch, *PLANTED[bug])
    by_density = PLANTED[bug][0] in (Ladder, LadderPace)
    with np.errstate(all="ignore"):
        found = substitutions(4000, SEEDS.get(bug, 3), most_violations=1, by_density=by_density)
    assert found.violations


def table_of(rng, p, sizes):
    """Rows of a linear model with errors, their arms, weights and units."""
    arm = np.repeat(np.arange(len(sizes)), sizes)
    x = rng.normal(size=(arm.size, p)) * 0.7
    psi = 0.3 + 0.2 * arm + x @ rng.normal(size=p) * 0.2 + rng.normal(size=arm.size) * 0.2
    numbers = np.column_stack([np.ones(arm.size), x, psi, x + 0.3])
    return numbers, arm, np.round(rng.random(arm.size) * 2**16) / 2**16, np.arange(arm.size)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("target", [None, 0, 1])
def test_without_noise_releases_are_least_squares(target, weighted):
    rng, p = np.random.default_rng(5), 3
    table = table_of(rng, p, (300, 200, 90))
    numbers, arm, weight, _ = table
    omega = weight if weighted else np.ones(arm.size)
    group = omega if target is None else omega * (arm == target)
    size = float(group.sum())
    problem = BalancingProblem(
        p, 3.0, 2.0, target, 3, weighted, arm.size, (2, 1), size, longest=2.0
    )
    found = released(problem, table)
    w, psi, q = (
        numbers[:, : p + 1].copy(),
        numbers[:, p + 1].clip(-1, 1),
        numbers[:, p + 2 :].copy(),
    )
    for x, most in ((w[:, 1:], 3.0), (q, 6.0)):
        x /= np.maximum(np.linalg.norm(x, axis=1) / most, 1.0)[:, None]
    c = np.append(1.0, np.average(q, axis=0, weights=group))
    contrast, leverage, squares = 0.0, 0.0, 0.0
    for a, sign, kappa in ((2, 1.0, 1.0), (1, -1.0, 0.3)):
        root = np.sqrt(omega[arm == a])
        own, y = w[arm == a] * root[:, None], psi[arm == a] * root
        b, rest, *_ = np.linalg.lstsq(own, y, rcond=None)
        contrast, squares = contrast + sign * c @ b, squares + kappa * rest[0]
        leverage += c @ np.linalg.solve(own.T @ own, c)
    close = 1e-3 if weighted else 1e-4
    assert float(found["contrast"][0]) == pytest.approx(contrast, rel=close)
    assert shown(found["leverage"]) == pytest.approx(
        leverage, rel=close, abs=2 * found["leverage"][2]
    )
    assert shown(found["squares"]) == pytest.approx(squares, rel=close, abs=2 * found["squares"][2])


def shown(kept):
    """A number that would be released without noise."""
    value, _, unit = kept
    return value * unit


@pytest.mark.sampled(2)
@pytest.mark.parametrize("longest", [0.02, 0.2, 0.6, 4.0])
@pytest.mark.parametrize("kind", ["any", "collinear", "few", "one arm"])
def test_bounded_least_squares_are_those_of_an_optimiser(kind, longest):
    p, radius = 2, 2.0
    sizes = {"few": (40, 1), "one arm": (40, 0)}.get(kind, (40, 30))
    table = table_of(np.random.default_rng(11), p, sizes)
    numbers, arm, _, _ = table
    if kind == "collinear":
        numbers[:, 2] = numbers[:, 1]
    problem = BalancingProblem(p, radius, 2.0, None, 2, False, arm.size, size=50.0, longest=longest)
    found = released(problem, table)
    w, psi, q = (x.copy() for x in np.split(numbers, [p + 1, p + 2], axis=1))
    for x, most in ((w[:, 1:], radius), (q, 2.0 * radius)):
        x /= np.maximum(np.linalg.norm(x, axis=1) / most, 1.0)[:, None]
    psi, c = psi[:, 0].clip(-1, 1), np.append(arm.size, q.sum(axis=0)) / 50.0
    within = {"type": "ineq", "fun": lambda b: 1.0 - ellipse(b) / longest**2}

    def ellipse(b):
        return b[0] ** 2 / least_squares._FIRST + radius**2 * b[1:] @ b[1:] / (
            1 - least_squares._FIRST
        )

    def least(function):
        solved = minimize(function, np.zeros(p + 1), constraints=within, tol=1e-12)
        return solved.fun

    own = {a: (w[arm == a], psi[arm == a]) for a in (1, 0)}
    squares = sum(
        kappa * least(lambda b, x=x, y=y: np.sum((y - x @ b) ** 2))
        for kappa, (x, y) in zip((1.0, 0.3), own.values(), strict=True)
    )
    leverage = -sum(
        least(lambda b, x=x: np.sum((x @ b) ** 2) - 2.0 * c @ b) for x, _ in own.values()
    )
    assert shown(found["squares"]) == pytest.approx(squares, rel=1e-4, abs=1e-4)
    assert shown(found["leverage"]) == pytest.approx(leverage, rel=1e-4)


def test_solutions_are_exact():
    rng = np.random.default_rng(6)
    rows = rng.integers(-(2**18), 2**18, (40, 4)).astype(object)
    matrix, right = rows.T @ rows, rng.integers(-(2**50), 2**50, 4).astype(object)
    known = [
        [Fraction(x) for x in row] + [Fraction(y)] for row, y in zip(matrix, right, strict=True)
    ]
    for i in range(4):
        known[i] = [x / known[i][i] for x in known[i]]
        for j in set(range(4)) - {i}:
            known[j] = [x - known[j][i] * y for x, y in zip(known[j], known[i], strict=True)]
    for x, row in zip(least_squares.solution(matrix, right), known, strict=True):
        assert abs(x - row[-1] * 2**least_squares._DIGITS) < 4


@pytest.mark.parametrize(
    "kind", ["empty", "zeros", "not numbers", "infinite", "one arm", "collinear"]
)
def test_nothing_fails_because_of_rows(kind):
    numbers, arm, weight, unit = table_of(np.random.default_rng(7), 2, (20, 20))
    if kind in ("one arm", "empty"):
        arm = np.full(40, kind == "empty", dtype=np.int64)
    numbers = {
        "zeros": numbers * 0,
        "not numbers": numbers * np.nan,
        "infinite": numbers * np.inf,
        "collinear": numbers[:, [0, 1, 1, 3, 4, 5]],
    }.get(kind, numbers)
    table = numbers, arm, weight, unit
    for longest in (1e-100, 1.0, 1e100):
        problem = BalancingProblem(2, 2.0, 1.0, 1, 2, False, 40, longest=longest)
        found = released(problem, table, most=3.0)
        assert found["room"][0] < 2**20
        assert found["contrast"][0] == 0.0
        assert (found["contrast"][1] == 6.0).all()
        for label in BOUNDED:
            value, moves, unit = found[label]
            assert -2 <= value <= 2**20 * 40
            assert unit * moves < 1e210


def test_public_numbers_are_checked():
    table = table_of(np.random.default_rng(8), 2, (20, 20))
    for problem in (
        BalancingProblem(2, 0.5, 1.0, None, 2, False, 40),
        BalancingProblem(2, 2.0, 0.5, None, 2, False, 40),
    ):
        with pytest.raises(OptionError, match="from 1 to 64"):
            fitted(problem, table, Keeps())
    fit = fitted(BalancingProblem(2, 2.0, 1.0, None, 2, False, 40), table, Keeps())
    for wrong in (-1.0, 0.0, math.nan, math.inf):
        for given in ((wrong, 1.0), (1.0, wrong)):
            with pytest.raises(OptionError, match="must be positive"):
                fit.leverage((1, 0), *given, share="a")
            with pytest.raises(OptionError, match="must be positive"):
                fit.squares((1, 0), given, 1.0, share="a")
        with pytest.raises(OptionError, match="must be positive"):
            fit.squares((1, 0), (1.0, 1.0), wrong, share="a")


def test_there_is_room_for_a_million_million_products_and_five_hundred_columns():
    def made(columns, n):
        return RowProducts(None, columns, 1.0, 1.0, 1.0, None, n, False, 2)

    assert made(255, 2**24).bits == 17
    assert made(500, 2**20).bits == 18
    for columns, n in ((255, 2**24 + 1), (501, 2**20)):
        with pytest.raises(OptionError, match="too many records or columns"):
            made(columns, n)


def test_an_audit_knows_the_loss_of_every_release():
    rng = np.random.default_rng(9)
    numbers, arm, weight, unit = table_of(rng, 2, (60, 40))
    noise, losses = RecordedNoise(SeededNoise(1)), []
    for _ in range(30):
        other = numbers.copy()
        other[0] = [1.0, 2.0, 0.0, rng.choice([-1.0, 1.0]), 2.0, 0.0]
        found = []
        for start, rows in ((noise.record, numbers), (noise.replay, other)):
            start()
            split, ledger = Split({"a": Share(1.0), "b": Share(1.0)}), CallLedger(Budget(9.0))
            problem = BalancingProblem(2, 2.0, 1.0, None, 2, False, 100)
            fit = fitted(problem, (rows, arm, weight, unit), Releaser(split, ledger, noise))
            worth = [fit.room((1, 0), share="b", part=0.5)]
            worth.append(fit.leverage((1, 0), 100.0, 0.1, share="b", part=0.25))
            worth.append(fit.squares((1, 0), (1.0, 0.5), 1.0, share="b", part=0.25))
            drawn = fit.contrast("effect", (1, 0), 2.0, share="a", smoothing=0.1)
            seen = [*map(float, worth), float(drawn)]
            found.append((noise.log_likelihood, seen, ledger.spent))
            assert math.isnan(drawn.sd)
            assert ledger.charges[-1].sensitivity == ledger.charges[-1].scale == ()
        noise.finish()
        assert found[0][1:] == found[1][1:]
        assert found[0][2] == (2, 0)
        losses.append(abs(found[0][0] - found[1][0]))
    assert 0.1 < max(losses) <= 2.0


# --- the draw -------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [2.0**-20, 0.01, 0.5, 1.0, 7.0, 300.0])
@pytest.mark.parametrize("smoothing", [0.01, 0.1, 0.4])
def test_a_pace_costs_its_price(epsilon, smoothing):
    falls, widens, first = LadderPace.of(epsilon, smoothing)
    with decimal.localcontext(decimal.Context(60)):
        logs = [(decimal.Decimal(x.numerator) / x.denominator).ln() for x in (falls, widens)]
        assert logs[1] - logs[0] <= decimal.Decimal(epsilon)
    assert 1 <= first <= ladders.PARTS // 2
    share = 1.0 / (1.0 + math.exp((1.0 - smoothing) * epsilon / 2.0))
    assert first == pytest.approx(max(ladders.PARTS * share, 1.0), abs=0.5)
    for wrong in (0.0, 0.5):
        with pytest.raises(OptionError, match="smoothing"):
            LadderPace.of(epsilon, wrong)


SMALL = Ladder(3, [1, 2, 2, 3], LadderPace(Fraction(2, 5), Fraction(2), 5), (0.0, 1.0))


@pytest.fixture
def small(monkeypatch):
    """Ladders that end at 4 units, so that all steps can be counted."""
    for module in (ladders, ladder_noise, recording):
        monkeypatch.setattr(module, "TOP", 4)


def test_chances_are_those_of_a_step_along_the_ladder(small):
    """By the definition: falls^floor(lambda + 1 - first / PARTS), lambda by the rungs."""
    known, rungs = {}, [*SMALL.rungs, *[4] * 20]
    units = [(j, x, rung) for j, rung in enumerate(rungs) for x in range(16 * rung)]
    for i, (j, x, rung) in enumerate(units):
        level = math.floor(j + Fraction(x, 16 * rung) + Fraction(11, 16))
        known[SMALL.place + 1 + i] = known[SMALL.place - i] = 0.4**level
    total = sum(known.values())
    for step, chance in known.items():
        assert log_chance(SMALL, step) == pytest.approx(math.log(chance / total), abs=1e-5)


def fit_of_draws(below, count=12_000):
    """How well draws fit their chances: a p-value."""
    steps = [SMALL.place + d for d in range(-150, 151)]
    drawn = Counter(SMALL.draw(below) for _ in range(count))
    chances = np.exp([log_chance(SMALL, step) for step in steps])
    counts = np.array([drawn[step] for step in steps], float)
    rest = count - counts.sum()
    expected = np.append(chances, 1.0 - chances.sum()) * count
    return chisquare(np.append(counts, rest), expected).pvalue


def test_draws_have_their_chances(small):
    assert fit_of_draws(random.Random(1).randrange) > 1e-3


WRONG = {
    "no rejection": ("down * self.width(j + 1) else 0", "up * self.width(j) else 0"),
    "stairs begin with rungs": (
        "first * d + (PARTS - first) * q",
        "first * d + (PARTS - first) * d",
    ),
    "a gap on one side": ("self.place - i", "self.place - i - 1"),
    "too few steps": ("below(d * down) < q * up", "below(d * down) < q * up - 1"),
}


@pytest.mark.parametrize("bug", WRONG)
def test_planted_bugs_of_the_draw_are_found(monkeypatch, small, bug):
    plant_line(monkeypatch, Ladder, "draw", *WRONG[bug])
    assert fit_of_draws(random.Random(1).randrange) < ODD


def test_secure_noise_draws_along_a_ladder():
    ladder = Ladder.of(0.25, np.full(3000, 1e-6), (0.0, 1.0), LadderPace.of(1.0, 0.05))
    drawn = np.array([ladder.at(SecureNoise().along(ladder)) for _ in range(300)])
    dist = along_ladder(np.full(3000, 1e-6), 1.0, 1.0, 0.05)
    assert 0.02 < np.mean(np.abs(drawn - 0.25) < half_width(*dist, 0.1)) < 0.2
    assert np.mean(np.abs(drawn - 0.25) < half_width(*dist, 0.999)) > 0.97


def test_the_law_of_the_noise_is_that_of_draws():
    levels = 1e-4 * 1.02 ** np.arange(400.0)
    ladder = Ladder.of(0.5, levels, (0.0, 1.0), LadderPace.of(1.0, 0.1))
    below, (ends, chances) = SeededNoise(4).below, along_ladder(levels, 1.0, 1.0, 0.1)
    low = np.append(0.0, ends[:-1])
    sd = np.sqrt(chances @ (low**2 + low * ends + ends**2) / 3.0)
    drawn = np.abs([ladder.at(ladder.draw(below)) - 0.5 for _ in range(8000)])
    assert np.sqrt(np.mean(drawn**2)) == pytest.approx(sd, rel=0.05)
    for level in (0.5, 0.95):
        assert np.mean(drawn < half_width(ends, chances, level)) == pytest.approx(level, abs=0.02)
