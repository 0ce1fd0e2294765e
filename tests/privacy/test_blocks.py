"""Sensitivities of counts, sums and moments by arm and block, attacked without noise."""

from __future__ import annotations

import numpy as np
import pytest

from tests.privacy.test_sensitivity import change, curator, replaced

CUTS = np.array([0.3, 0.5, 0.8])
CALLS = {
    "counts": lambda c, w, m: c.block_counts("counts", w, CUTS, "a"),
    "sums": lambda c, w, m: c.block_sums(w, CUTS, m, "a"),
    "squares": lambda c, w, m: c.residual_squares(m, "a"),
    "moments": lambda c, w, m: c.arm_moments("a"),
    "spread": lambda c, w, m: c.covariate_spread("a"),
}


@pytest.mark.parametrize("name", CALLS)
def test_random_and_extreme_neighbours(name):
    rng = np.random.default_rng(1)
    worst = 0.0
    for _ in range(400):
        n, d = int(rng.integers(4, 8)), int(rng.integers(1, 5))
        x = rng.choice([0.0, 0.5, 1.0], (n, d)) if rng.random() < 0.5 else rng.random((n, d))
        x[:, 0] = 1.0
        y, t = rng.choice([0.0, 1.0, 0.4], n), rng.random(n) < 0.5
        w, models = rng.normal(0, 3, d + 1), rng.normal(0, 1, (2, d + 1)) * rng.integers(0, 2)
        y2, t2, x2 = replaced(rng, y, t, x, int(rng.integers(n)))
        x2[:, 0] = 1.0
        call = lambda c, w=w, m=models: CALLS[name](c, w, m)  # noqa: E731
        worst = max(worst, change(curator(y, t, x), curator(y2, t2, x2), call))
    assert worst <= 1.0
    assert worst > 0.5


def test_moments_have_the_l2_sensitivity_that_gaussian_noise_uses():
    """The largest L2 change over corner rows, by brute force, against 2 sqrt(2)."""
    rng = np.random.default_rng(2)
    unit, largest = 2.0**-36, 0.0
    for _ in range(300):
        d = 3
        x = rng.choice([0.0, 1.0], (4, d))
        x[:, 0] = 1.0
        y, t = rng.choice([0.0, 1.0], 4), np.array([True, False, True, False])
        y2, t2, x2 = replaced(rng, y, t, x, 0)
        x2[:, 0] = 1.0
        moved = []
        for c, noise in (curator(y, t, x), curator(y2, t2, x2)):
            c.arm_moments("a")
            moved.append(noise.values[-1].astype(float) * unit)
        largest = max(largest, float(np.linalg.norm(moved[0] - moved[1])))
    assert 1.5 < largest <= 2 * np.sqrt(2) * (1 + 1e-5)


def test_moments_are_the_moments():
    rng = np.random.default_rng(3)
    x = np.column_stack([np.ones(50), rng.random((50, 2))])
    y, t = rng.random(50), rng.random(50) < 0.5
    c, _ = curator(y, t, x)
    got = c.arm_moments("a").value
    z = np.column_stack([x[:, 0], 2 * x[:, 1:] - 1]) / np.sqrt(3)
    r = 2 * y - 1
    for arm, rows in enumerate((t, ~t)):
        gram = z[rows].T @ z[rows]
        assert got[arm, :6] == pytest.approx(gram[np.triu_indices(3)], abs=1e-4)
        assert got[arm, 6:] == pytest.approx(z[rows].T @ r[rows], abs=1e-4)


def test_cells_add_up_to_the_arms():
    rng = np.random.default_rng(4)
    x = np.column_stack([np.ones(300), rng.random((300, 2))])
    y, t = rng.random(300), rng.random(300) < 0.5
    c, _ = curator(y, t, x)
    w = np.array([0.0, 0.0, 2.0, -2.0])
    counts = c.block_counts("counts", w, CUTS, "a").value
    score = 1 / (1 + np.exp(-(x @ w[1:])))
    inside = np.digitize(score, CUTS)
    assert counts[0].tolist() == [int((t & (inside == k)).sum()) for k in range(4)]
    sums = c.block_sums(w, CUTS, np.zeros((2, 4)), "a").value
    assert sums.sum(axis=1) == pytest.approx([(y[t] - 0.5).sum(), (y[~t] - 0.5).sum()], abs=1e-3)
