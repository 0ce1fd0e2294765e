"""Chains of substitutions that try to move least squares further than its ladders say.

Every table is met by releasers that keep what they would draw from: a value, its ladder and the
public ends, or whole numbers and how far a record may move them. One step replaces a record, or a
unit with all its rows, by the worst of a few.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from dpeffects.evidence.auditing.recording import log_chance
from dpeffects.inference.ladder_noise import stairs
from dpeffects.privacy.curator import Curator
from dpeffects.privacy.ladder import Ladder, LadderPace
from dpeffects.privacy.least_squares import LeastSquares
from dpeffects.privacy.rows import Rows, reads

BOUNDED = ("room", "leverage", "squares")
UNIT = 2.0**-16


class Keeps:
    """What releases would draw from, by label."""

    def __init__(self):
        self.found = {}

    def release(self, label, steps, **price):
        self.found[label] = int(steps.values[0]), steps.moves.l1, steps.unit

    def along(self, label, value, levels, ends, smoothing, **price):
        low, high = ends
        self.found[label] = value, np.minimum(levels, high - low), ends


@reads("covariates")
def as_they_are(block):
    """The numbers of a row are its covariates."""
    return block.covariates


@dataclass(frozen=True)
class BalancingProblem:
    """Public numbers."""

    p: int
    radius: float
    reach: float
    target: int | None
    arms: int
    weighted: bool
    n: int
    pair: tuple = (1, 0)
    size: float = 100.0
    longest: float = 1.0
    weights: tuple = (1.0, 0.3)


def fitted(problem, table, releaser):
    """Least squares of a table: numbers, arms, weights (or None) and units."""
    numbers, arm, weight, unit = table
    more = {"weight": weight, "unit": unit, "units": problem.n} if problem.weighted else {}
    more |= {"arm": arm, "arms": problem.arms} if problem.arms > 2 else {}
    zeros = np.zeros(len(arm))
    rows = Rows(zeros, (0.0, 1.0), arm > 0, lambda: numbers, numbers.shape[1], **more)
    return LeastSquares(
        Curator(rows, releaser, frozenset()),
        as_they_are,
        columns=problem.p,
        radius=problem.radius,
        clip=1.0,
        reach=problem.reach,
        target=problem.target,
    )


def released(problem, table, most=1e5):
    """What four releases would draw from."""
    keeps = Keeps()
    fit, pair = fitted(problem, table, keeps), problem.pair
    fit.room(pair, share="a")
    fit.contrast("contrast", pair, most, share="a", smoothing=0.1)
    fit.leverage(pair, problem.size, problem.longest, share="a")
    fit.squares(pair, problem.weights, problem.longest, share="a")
    return keeps.found


@dataclass
class ClaimCheck:
    """What the substitutions came to; ``closest`` is the largest move over its bound, by kind."""

    pairs: int = 0
    open: int = 0
    violations: list = field(default_factory=list)
    closest: dict = field(default_factory=dict)

    def hold(self, what, moved, bound):
        """Compare arrays of moves with arrays of bounds."""
        with np.errstate(all="ignore"):
            ratio = np.max(np.where(np.asarray(moved) > 0, moved / np.asarray(bound), 0.0))
        self.closest[what] = max(self.closest.get(what, 0.0), float(ratio))
        if not ratio <= 1.0 + 1e-9:
            self.violations.append((what, float(ratio)))

    def compare(self, one, other):
        """Hold two neighbours to each other's ladders."""
        self.pairs += 1
        self.open += one["contrast"][1].size > 2 and other["contrast"][1].size > 2
        for label in BOUNDED:
            (value, moves, _), (value2, _, _) = one[label], other[label]
            self.hold(label, abs(value - value2), moves)
        (value, levels, ends), (value2, levels2, _) = one["contrast"], other["contrast"]
        span = ends[1] - ends[0]
        value, value2 = (float(min(max(x, ends[0]), ends[1])) for x in (value, value2))
        self.hold("contrast", abs(value - value2), min(levels[0], levels2[0]))
        for a, b in ((levels, levels2), (levels2, levels)):
            size = max(a.size, b.size) + 1
            a, b = (np.append(x, np.full(size - x.size, span)) for x in (a, b))
            inside = b[1:] < span
            self.hold("ladder", a[:-1][inside], b[1:][inside]) if inside.any() else 0
            self.hold("ladder at its end", a[:-1], b[1:])


EPSILON = 0.7


def densities(one, other, pace):
    """Largest log ratio of the chances of a step, at and about the ends of stairs."""
    largest, two = 0.0, [Ladder.of(*x["contrast"], pace) for x in (one, other)]
    steps = {ladder.place + d for ladder in two for d in (0, 1)}
    for ladder in two:
        ends = np.cumsum(np.array(stairs(ladder)[:40], dtype=object))
        steps |= {
            ladder.place + d + side * int(e) for e in ends for side in (1, -1) for d in (0, 1)
        }
    for step in steps:
        a, b = (log_chance(ladder, step) for ladder in two)
        largest = max(largest, abs(a - b))
    return largest


def some_rows(rng, problem, count, weak=None):
    """Rows at the ends of what is possible, or beyond; ``weak`` is a direction of little weight."""
    p, radius = problem.p, problem.radius
    v = rng.normal(size=(count, p))
    if weak is not None and rng.random() < 0.5:
        v = np.tile(weak[1:], (count, 1)) + 1e-9
    v *= radius / np.linalg.norm(v, axis=1, keepdims=True) * rng.choice([1.0, 1.0, -1.0, 0.3, 0])
    s = rng.choice([1.0, 1.0, 1.0, 0.0, 0.4], (count, 1))
    psi = rng.choice([1.0, -1.0, 1.0, -1.0, 0.2, np.nan, 1e300], (count, 1))
    q = rng.normal(size=(count, p)) + rng.choice([0.0, 3.0])
    q *= problem.reach * radius / np.linalg.norm(q, axis=1, keepdims=True)
    return np.concatenate([s, v, psi, q], axis=1)


def one_unit(rng, problem, unit, weak=None):
    """Rows of one unit: numbers, arms, weights, name."""
    count = int(rng.integers(1, 4)) if problem.weighted else 1
    parts = rng.dirichlet(np.full(count, 0.5)) * rng.choice([1.0, 1.0, 0.6, 0.0])
    arm = rng.integers(0, problem.arms, count)
    weight = np.floor(parts / UNIT) * UNIT
    return some_rows(rng, problem, count, weak), arm, weight, np.full(count, unit)


KINDS = {"any": 0.5, "lone": 0.2, "few": 0.1, "short": 0.1, "flat": 0.05, "pinned": 0.05}
"""How often tables are of a kind: a few rows, or two for each column, say all about v and nothing
else; all v are short, and predictions long; v is collinear; all rows are one, with one psi."""


def first_table(rng, problem):
    """A table with arms of many records, or of very few."""
    tables, p, radius = [], problem.p, problem.radius
    kind = rng.choice([*KINDS], p=[*KINDS.values()])
    sizes = [int(x) for x in rng.integers(20, 120, 2)]
    if kind in ("few", "short"):
        sizes = [120, 150]
    elif rng.random() < 0.1:
        sizes[rng.integers(2)] = int(rng.integers(0, p + 4))
    sizes += [int(rng.integers(1, 7))] * (problem.arms - 2)
    line, effects = rng.normal(size=p) * 0.3, rng.choice([0.0, 0.5])
    for arm, size in enumerate(sizes):
        rows = some_rows(rng, problem, max(size, 1))[:size]
        v, spread = rows[:, 1 : p + 1], rng.normal(size=(size, p))
        v[:] = spread / np.maximum(np.linalg.norm(spread, axis=1), 1)[:, None] * radius
        if kind == "flat":
            v[:] = v[:, :1]
        if kind in ("lone", "few"):
            rows[:, 0] = rng.permutation(size) >= (2 * p if kind == "few" else size // 3)
            v *= rows[:, :1] == 0
        if kind == "few":
            axes = np.tile(np.eye(p), (2, 1)) * radius
            v[rows[:, 0] == 0] = axes[: int((rows[:, 0] == 0).sum())]
            rows[:, p + 1], rows[:, p + 2 :] = (arm - 0.5) * rows[:, 0], 0.0
        elif kind == "short":
            v *= 0.3
            rows[:, p + 1] = v[:, 0] / (0.3 * radius)
        elif rng.random() < 0.6:
            rows[:, p + 1] = v @ line * rng.choice([1.0, -1.0]) + effects * arm
        if kind == "pinned":
            rows[:] = rows[:1] if size else rows
            rows[:, 0], rows[:, p + 1] = 1.0, min(problem.longest, 1.0)
        tables.append((rows, np.full(size, arm), np.ones(size)))
    numbers, arm, weight = (np.concatenate(parts) for parts in zip(*tables, strict=True))
    return numbers, arm, weight, np.arange(len(arm))


def directions(problem, table):
    """Where an arm has least weight, or most; what pulls hardest at a mean; who does."""
    numbers, arm, weight, unit = table
    numbers = np.nan_to_num(numbers)
    w, q = numbers[:, : problem.p + 1], numbers[:, problem.p + 2 :]
    c = np.append(1.0, q.mean(axis=0))
    found = []
    for a in problem.pair:
        own = w[arm == a] * np.sqrt(weight[arm == a])[:, None]
        values, vectors = np.linalg.eigh(own.T @ own)
        pull = vectors @ (vectors.T @ c / np.maximum(values, 1e-9))
        pull *= np.sign(pull[0] or 1.0)
        found.append((values[0], vectors[:, 0], vectors[:, -1], pull, a))
    _, weak, strong, pull, a = min(found, key=lambda x: x[0])
    most = (np.argmax(np.abs(w @ x) * (arm == a) * weight) for x in (pull, weak))
    return weak, strong, pull, *unit[[*most]]


def substitutions(count, seed, depth=8, most_violations=10, by_density=False):
    """Chains of tables, each a neighbour of the one before; ``by_density`` compares chances too."""
    rng, found, pace = np.random.default_rng(seed), ClaimCheck(), LadderPace.of(EPSILON, 0.15)
    while found.pairs < count and len(found.violations) < most_violations:
        p, arms = int(rng.integers(1, 4)), int(rng.choice([2, 2, 3]))
        radius = float(rng.choice([1.0, math.sqrt(p), 2.0, 8.0]))
        reach = float(rng.choice([1.0, 2.5]))
        target = rng.choice([None, 0, 1, arms - 1, arms - 1])
        problem = BalancingProblem(p, radius, reach, target, arms, bool(rng.random() < 0.5), 1)
        longest = float(rng.choice([0.01, 0.1, 0.7, 1.0, 5.0]))
        weights = tuple(rng.choice([1.0, 0.3], 2).tolist())
        problem = replace(problem, longest=longest, weights=weights)
        table = first_table(rng, problem)
        n = len(table[1])
        problem = replace(problem, n=n, size=n * float(rng.choice([0.2, 1.0, 5.0])))
        most = float(rng.choice([1e5, 0.3]))
        before = released(problem, table, most)
        gone = table[3][0]
        for _ in range(depth):
            unit = table[3]
            *ways, heavy, lone = directions(problem, table)
            gone = rng.choice([heavy, lone, gone, *rng.choice(unit, 3)])
            keep = unit != gone
            new = one_unit(rng, problem, gone, ways[rng.integers(3)])
            table = tuple(
                np.concatenate([old[keep], more]) for old, more in zip(table, new, strict=True)
            )
            after = released(problem, table, most)
            found.compare(before, after)
            if by_density:
                found.hold("log ratio of chances", densities(before, after, pace), EPSILON)
            before = after
    return found
