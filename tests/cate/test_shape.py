"""Second moments of features by covariate, against matrices over all features at once."""

from __future__ import annotations

import numpy as np
import pytest

from dpeffects.design.features import AdditiveWaves, Fourier, Linear
from dpeffects.results.feature_moments import (
    BINS,
    JointFeatureMoments,
    effects_by_bin,
    shape_of,
    spectrum,
)

FEATURES = {"additive": AdditiveWaves.gaussian(2, 0.35), "linear": Linear(3)}


def dense(features, margins, information, strength):
    """All pairs of values on a fine grid, weighted by the margins of both covariates."""
    line = (np.arange(160) + 0.5) / 160
    x, y = (each.ravel() for each in np.meshgrid(line, line, indexing="ij"))
    shares = np.repeat(margins, 20, axis=1) / 20
    weight = np.outer(*shares).ravel()
    at = features(np.column_stack([np.ones(x.size), x, y]))
    gram = at.T @ (weight[:, None] * at)
    inverse = np.linalg.inv(information * gram + strength * np.eye(features.size))
    mean = weight @ at
    return JointFeatureMoments(gram, mean, inverse, information * inverse @ mean)


@pytest.mark.parametrize("kind", list(FEATURES))
def test_moments_by_covariate_are_those_of_the_whole_matrix(kind):
    features, rng = FEATURES[kind], np.random.default_rng(1)
    margins = rng.dirichlet(np.ones(BINS), 2)
    one, other = (make(features, margins, 700.0, 12.0) for make in (shape_of, dense))
    rows = features(np.column_stack([np.ones(20), rng.random((20, 2))]))
    assert one.mean == pytest.approx(other.mean, abs=1e-4)
    assert one.response == pytest.approx(other.response, rel=1e-3, abs=1e-4)
    assert one.solved(rows) == pytest.approx(other.solved(rows), abs=1e-4 / 12)
    assert one.squares(rows) == pytest.approx(other.squares(rows), rel=1e-3)


@pytest.mark.parametrize("kind", list(FEATURES))
def test_the_spectrum_is_that_of_the_whole_matrix(kind):
    features = FEATURES[kind]
    whole = np.linalg.eigvalsh(dense(features, np.full((2, BINS), 1 / BINS), 1.0, 1.0).gram)
    assert np.sort(spectrum(features)) == pytest.approx(whole, abs=2e-5)


def test_effects_by_bin_are_means_over_the_other_covariates():
    """But for a number of each covariate's own, which the caller takes out."""
    additive, rng = FEATURES["additive"], np.random.default_rng(2)
    weights, margins = rng.normal(size=additive.size), np.full((2, BINS), 1 / BINS)
    both = Fourier(np.kron(np.eye(2), additive.line[:, None]))
    found = [effects_by_bin(features, margins, weights) for features in (additive, both)]
    one, other = (by_bin - by_bin.mean(axis=1, keepdims=True) for by_bin in found)
    assert one == pytest.approx(other, abs=1e-3)
