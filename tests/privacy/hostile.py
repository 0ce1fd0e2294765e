"""Row functions, cells, sets and neighbours that try to move a sum by more than its set allows."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from dpeffects.privacy import units as weights_of_units
from dpeffects.privacy.budget import Budget
from dpeffects.privacy.curator import Curator
from dpeffects.privacy.domains import COUNT, Box, Cube, Matrices
from dpeffects.privacy.ledger import CallLedger
from dpeffects.privacy.release import Releaser, Split
from dpeffects.privacy.rows import GroupIndex, Rows
from dpeffects.privacy.tight_domains import (
    BoxWithAbsoluteValues,
    BoxWithSquares,
    Gram,
    Histogram,
)
from dpeffects.seeded import SeededNoise

NASTY = np.array(
    [0.0, -0.0, 1.0, -1.0, 0.5, 1e-310, -5e-324, 1e308, -1e308, 1e16, 3.0, np.nan, np.inf, -np.inf]
)
KINDS = ("plain", "raise", "shape", "object", "strings", "float32", "ints", "tuple", "huge", "exit")
ERRORS = (ValueError, KeyError, ZeroDivisionError, MemoryError, RecursionError)
KEYS = 4096


def curator(
    keys,
    unit=None,
    max_rows=None,
    own=None,
    public=(),
    shares=("a",),
    epsilon=1.0,
    delta=0.0,
    uses=None,
):
    """A curator whose records are keys, which row functions look answers up by (as strata).

    ``own`` are weights of rows before they are divided among the rows of a unit.
    """
    keys, weighted = np.asarray(keys, np.int64), {}
    if unit is not None or own is not None:
        own = np.ones(len(keys)) if own is None else np.asarray(own, np.float64)
        rows = None
        if unit is not None:
            sizes = weights_of_units.UnitSizes.of(unit := np.asarray(unit), own > 0)
            rows, weighted = sizes.of_rows(unit), {"unit": unit, "units": sizes.names.size}
        weighted["weight"] = weights_of_units.row_weights(own, rows, max_rows)
    zeros = np.zeros(len(keys))
    rows = Rows(
        zeros,
        (0.0, 1.0),
        zeros > 0,
        lambda: zeros[:, None],
        1,
        strata=lambda: (keys, KEYS),
        **weighted,
    )
    split = Split.of(Budget(epsilon, delta), dict.fromkeys(shares, 1.0), uses)
    releaser = Releaser(split, CallLedger(Budget(epsilon, delta)), SeededNoise(0))
    return Curator(rows, releaser, frozenset(public))


def hostile(rng, k, kind):
    """A row function of k columns with a fixed random table of answers by the record's key."""
    wild = rng.normal(0, 10.0 ** rng.integers(-3, 4), (64, k))
    table = np.where(rng.random((64, k)) < 0.5, wild, rng.choice(NASTY, (64, k)))
    raising = set(rng.integers(1, 64, 5).tolist())
    special = int(rng.integers(1, 64))

    def phi(rows):
        key = rows.strata % 64
        answers = table[key]
        bad = [int(x) for x in key if int(x) in raising]
        if kind == "raise" and bad:
            raise ERRORS[bad[0] % 5]("a value")
        if kind == "exit" and bad:
            raise SystemExit(bad[0])
        if kind == "shape" and (key == special).any():
            return answers[:-1]
        if kind == "object":
            return [
                [float(v) if v == v else None for v in row] if j in raising else list(row)
                for j, row in zip(key.tolist(), answers, strict=True)
            ]
        if kind == "strings" and (key == special).any():
            return answers.astype(str)
        if kind == "float32":
            with np.errstate(all="ignore"):
                return answers.astype(np.float32)
        if kind == "ints":
            types = [np.int8, np.uint64, np.bool_, np.int64]
            return (key[:, None] * np.arange(1, k + 1)).astype(types[special % 4])
        if kind == "tuple":
            return tuple(answers.T)
        if kind == "huge":
            return [
                [10**400 if j in raising else v for v in row]
                for j, row in zip(key.tolist(), answers, strict=True)
            ]
        return answers

    phi.reads = ("strata",)
    return phi


def hostile_cells(rng, size):
    """Cells that are out of range, no numbers, or fail."""
    odd = [-1, size, 10**6, np.nan, np.inf, -np.inf, 0.7, 1e300]
    table = rng.choice([*range(size), *odd], 64)
    whole = np.where(np.isfinite(table) & (np.abs(table) < 1e9), table, -3).astype(np.int64)
    raising, kind = int(rng.integers(1, 64)), rng.integers(0, 4)

    def cell(rows):
        key = rows.strata // 64 % 64
        if kind == 0 and (key == raising).any():
            raise ValueError("cell")
        return whole[key] if kind == 1 else whole[key].astype(np.int16) if kind == 2 else table[key]

    cell.reads = ("strata",)
    return GroupIndex(cell, size)


def random_set(rng):
    """One of the sets, of any size and place."""
    k, scale = int(rng.integers(1, 5)), 10.0 ** rng.integers(-4, 5)
    low, high = np.sort(rng.normal(0, scale, (2, k)), axis=0)
    high += rng.choice([0.0, scale, 1e-12 * scale], k) + 1e-9 * scale
    kind = rng.integers(0, 9)
    if kind == 0:
        return Box(low, high)
    if kind == 1:
        return Box(low, high, centre=0.0)
    if kind == 2:
        centre = None if rng.random() < 0.5 else rng.uniform(low, high)
        return Box(low, high, radius=float(scale * rng.uniform(0.1, 3)), centre=centre)
    if kind == 3:
        return Cube(low, low + scale)
    if kind == 4:
        half, radius = np.abs(high), float(scale * rng.uniform(0.1, 3))
        return Gram(Box(-half, half, centre=0.0, radius=radius))
    if kind == 5:
        return BoxWithSquares(k, float(rng.choice([0.0, 0.5, 2.0])))
    if kind == 6:
        return Histogram(k, int(rng.integers(1, 9)))
    if kind == 7:
        return BoxWithAbsoluteValues(Box(low, high, centre=0.0))
    return COUNT


def moved(one, other):
    """L1 and L2 size of a change, exactly and as a float."""
    change = (one - other).reshape(-1).astype(object)
    return sum(abs(x) for x in change), math.sqrt(sum(x * x for x in change))


def in_its_shape(shape, one, other):
    """Size of a change in the norm of the noise with its shape, over what is declared, or 0."""
    if shape is None:
        return 0.0
    change = (one - other).reshape(-1, one.shape[-1]).astype(float)
    if not isinstance(shape, Matrices):
        return np.abs(change).max(axis=1).sum() / shape.width
    matrix = np.zeros((len(change), shape.columns, shape.columns))
    matrix[:, *np.triu_indices(shape.columns)] = change
    return np.abs(np.linalg.eigvalsh(matrix, "U")).sum() / (2 * shape.squared_radius)


@dataclass
class Outcome:
    """What many pairs came to."""

    pairs: int = 0
    refused: int = 0
    violations: list = field(default_factory=list)
    closest: float = 0.0

    def compare(self, case, one, other):
        """Hold one pair of totals to the derived sensitivity."""
        (grid, totals, moves), (_, others, _) = one, other
        l1, l2 = moved(totals, others)
        shape = grid.shape(1)
        if isinstance(shape, Matrices):  # entries off the diagonal have half the variance
            off = ~np.equal(*np.triu_indices(shape.columns))
            l2 = math.hypot(l2, moved(totals[..., off], others[..., off])[1])
        own = in_its_shape(shape, totals, others)
        self.pairs += 1
        self.closest = max(self.closest, l1 / max(moves.l1, 1), own)
        if l1 > moves.l1 or l2 > moves.l2 * (1 + 1e-15) or own > 1 + 1e-9:
            self.violations.append((case, l1, moves.l1, l2, moves.l2))


def pairs_of_records(cases, seed, most_violations=10):
    """Neighbours that replace one record and may change the order of the others."""
    rng, found = np.random.default_rng(seed), Outcome()
    for case in range(cases):
        if len(found.violations) >= most_violations:
            break
        within, kind = random_set(rng), KINDS[case % len(KINDS)]
        cells = None if rng.random() < 0.3 else hostile_cells(rng, int(rng.integers(1, 12)))
        phi = None if within is COUNT and cells else hostile(rng, within.columns, kind)
        n = int(rng.integers(1, 12))
        key = rng.integers(0, KEYS, n)
        other = key.copy()
        other[rng.integers(0, n)] = rng.integers(0, KEYS)
        compare(
            found,
            (case, type(within).__name__, kind),
            phi,
            within,
            cells,
            key,
            rng.permutation(other),
        )
    return found


def pairs_of_units(cases, seed, most_violations=10):
    """Neighbours that replace all rows of one unit, by more or fewer rows."""
    rng, found = np.random.default_rng(seed), Outcome()
    for case in range(cases):
        if len(found.violations) >= most_violations:
            break
        within, units = random_set(rng), int(rng.integers(1, 5))
        most = None if rng.random() < 0.5 else int(rng.integers(1, 9))
        cells = None if rng.random() < 0.4 else hostile_cells(rng, int(rng.integers(1, 5)))
        phi = None
        if not (within is COUNT and cells):
            phi = hostile(rng, within.columns, KINDS[case % len(KINDS)])
        unit = np.concatenate([np.arange(units), rng.integers(0, units, rng.integers(0, 12))])
        key, gone, more = (
            rng.integers(0, KEYS, len(unit)),
            rng.integers(0, units),
            rng.integers(1, 9),
        )
        keep = unit != gone
        unit2 = np.concatenate([unit[keep], np.full(more, gone)])
        key2 = np.concatenate([key[keep], rng.integers(0, KEYS, more)])
        own = (None, None)
        if rng.random() < 0.5:
            kept, new = rng.choice(OWN, len(unit)), rng.choice(OWN, more)
            own = (kept, np.concatenate([kept[keep], new]))
        if rng.random() < 0.2:  # weights of records that have a row each
            key2, unit2, own = key.copy(), None, (rng.choice(OWN, len(key)),)
            key2[0], own = rng.integers(0, KEYS), (*own, own[0].copy())
            own[1][0], unit, most = rng.choice(OWN), None, None
        name = (case, type(within).__name__, most)
        compare(found, name, phi, within, cells, key, key2, (unit, unit2), most, own)
    return found


OWN = np.array([0.0, 1.0, 0.5, 0.3, 1e-9, 7.0, -1.0, np.nan, np.inf])
"""Weights of rows, as they may come."""


def compare(
    found, case, phi, within, cells, key, other, units=(None, None), most=None, own=(None, None)
):
    """Totals on two neighbours; what fails on rows of zeros is refused in public."""
    try:
        curator([0], None if units[0] is None else [0], most).exact_sums(
            phi, within, cells, rate=1.0
        )
    except (ValueError, TypeError, OverflowError):
        found.refused += 1
        return
    both = [
        curator(keys, unit, most, weights).exact_sums(phi, within, cells, rate=1.0)
        for keys, unit, weights in zip((key, other), units, own, strict=True)
    ]
    found.compare(case, *both)
