"""Public maps from covariates to features of norm at most 1."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpeffects.design.features import AdditiveWaves, Fourier, Linear, spread_points, unit_rows

KINDS = {"gaussian": Fourier.gaussian, "additive": AdditiveWaves.gaussian}


@pytest.mark.parametrize("kind", ["gaussian", "additive"])
@pytest.mark.parametrize("d", [1, 2, 3, 12])
def test_features_have_norm_one(kind, d):
    rng = np.random.default_rng(14)
    rows = np.vstack(
        [
            rng.random((200, d + 1)),
            rng.choice([0.0, 1.0], (50, d + 1)),
            rng.choice([-1e308, 1e308, -1e9, 5e-324, np.inf, -np.inf], (50, d + 1)),
        ]
    )
    for bandwidth in (0.05, 0.35, 10.0):
        features = KINDS[kind](d, bandwidth)
        values = features(rows)
        norms = np.linalg.norm(values, axis=1)
        assert values.shape == (300, features.size)
        assert norms.max() <= 1.0
        assert norms.min() >= 1.0 - 5e-5
        assert (values * 2.0**18 == np.rint(values * 2.0**18)).all()
        assert np.abs(values).sum(axis=1).max() <= math.sqrt(features.size)
        again = KINDS[kind](d, bandwidth)
        assert (again(rows) == values).all()


@pytest.mark.parametrize("kind", ["gaussian", "additive", "linear"])
def test_features_are_those_of_their_row_and_what_they_say(kind):
    """Alone, in any company and order; cosines and sines as numpy has them."""
    rng = np.random.default_rng(14)
    x = np.column_stack([np.ones(1001), rng.random((1001, 3))])
    features = Linear(4) if kind == "linear" else KINDS[kind](3, 0.1)
    values, order = features(x), rng.permutation(1001)
    assert (features(np.asfortranarray(x[order]))[np.argsort(order)] == values).all()
    assert (features(x[5:8]) == values[5:8]).all()
    if kind == "linear":
        direct = unit_rows(x)
    else:
        each = np.kron(np.eye(3), features.line[:, None]) if kind == "additive" else None
        angle = (x[:, 1:] - 0.5) @ (features.frequencies if each is None else each).T
        waves = np.column_stack([np.cos(angle), np.sin(angle)])
        direct = np.column_stack([np.full(1001, 0.15**0.5), waves * (0.85 / angle.shape[1]) ** 0.5])
    assert np.abs(values - direct).max() < 2e-5


@pytest.mark.parametrize(
    ("kind", "d", "bandwidth", "most", "root"),
    [
        ("gaussian", 1, 0.35, 0.03, 0.01),
        ("gaussian", 2, 0.35, 0.09, 0.03),
        ("gaussian", 3, 0.35, 0.18, 0.07),
        ("gaussian", 1, 1.0, 0.01, 0.002),
        ("additive", 1, 0.35, 0.11, 0.045),
        ("additive", 2, 0.35, 0.11, 0.035),
        ("additive", 3, 0.35, 0.11, 0.03),
        ("additive", 1, 1.0, 0.05, 0.02),
    ],
)
def test_the_kernel_is_close_to_its_closed_form(kind, d, bandwidth, most, root):
    """A constant of 0.15, and 0.85 times the Gaussian kernel or the mean of one for each column.

    ``most`` bounds the error at any pair of points, ``root`` its root mean square.
    """
    rng = np.random.default_rng(15)
    features = KINDS[kind](d, bandwidth)
    x = np.column_stack([np.ones(250), rng.random((250, d))])
    squares = (x[:, None, 1:] - x[None, :, 1:]) ** 2
    if kind == "gaussian":
        exact = np.exp(-squares.sum(axis=2) / (bandwidth**2 * d))
    else:
        exact = np.exp(-squares / (2.0 * bandwidth**2)).mean(axis=2)
    error = features.kernel(x, x) - (0.15 + 0.85 * exact)
    assert np.abs(error).max() <= most
    assert np.sqrt((error**2).mean()) <= root


def test_spread_points_fill_the_cube():
    for d in (1, 2, 5):
        points = spread_points(2048, d)
        assert points.min() >= 0.0
        assert points.max() < 1.0
        assert points.mean(axis=0) == pytest.approx(np.full(d, 0.5), abs=0.01)
        assert points.var(axis=0) == pytest.approx(np.full(d, 1 / 12), abs=0.003)
        correlation = np.corrcoef(points.T) if d > 1 else np.eye(1)
        assert np.abs(correlation - np.eye(d)).max() < 0.08
