"""Slopes from noisy moments, against sampling from the same prior, and limits that are known."""

import numpy as np
import pytest

from dpeffects.estimators.default import posterior as posterior
from dpeffects.estimators.default.posterior import NoisyMoments, fit_slopes, unadjusted_variance


def moments(noise, outcome, treatment, variances=None, entry_noise=0.0, **more):
    k = len(outcome)
    return NoisyMoments(
        variances=np.ones(k) if variances is None else variances,
        outcome=np.asarray(outcome, float),
        treatment=np.asarray(treatment, float),
        outcome_noise=noise,
        treatment_noise=2.0 * noise,
        outcome_sampling=np.full(k, 0.1 * noise),
        treatment_sampling=np.full(k, 0.3 * noise),
        entry_noise=entry_noise,
        outcome_variance=0.2,
        scale=1.0,
        **more,
    )


def drawn(seen, draws, rng):
    """Slopes from the prior, with the likelihood of what was seen as weights."""
    grid = (posterior._EXPLAINED, posterior._SELECTION, posterior._ALIGNED, posterior._BENDS)
    explained, selection, aligned, bends = (
        rng.choice(points, draws, p=weights / weights.sum())[:, None]
        for points, weights in zip(grid, posterior._TYPICAL, strict=True)
    )
    v, k = seen.variances, seen.variances.size
    part = np.where(np.broadcast_to(seen.lines, k) == 1.0, 1.0, bends)
    part = part / part.sum(axis=1, keepdims=True) / seen.scale
    sd_b, sd_a = np.sqrt(explained * seen.outcome_variance * part), np.sqrt(selection * part)
    one, other = rng.standard_normal((2, draws, k))
    b, a = sd_b * one, sd_a * (aligned * one + np.sqrt(1.0 - aligned**2) * other)
    var_s = seen.outcome_noise + seen.outcome_sampling
    var_d = seen.treatment_noise + seen.treatment_sampling
    logs = -0.5 * ((seen.outcome - v * b) ** 2 / var_s + (seen.treatment - v * a) ** 2 / var_d)
    weights = np.exp(logs.sum(axis=1) - logs.sum(axis=1).max())
    return b, a, weights / weights.sum()


@pytest.mark.sampled(7)
@pytest.mark.parametrize("lines", [1.0, np.array([1.0, 0.0])], ids=["lines", "a square"])
@pytest.mark.parametrize("noise", [0.02, 0.1, 0.5])
def test_slopes_and_what_they_leave_are_means_over_the_prior(noise, lines):
    variances = np.array([1.3, 0.6])
    seen = moments(noise, [0.25, -0.1], [0.5, 0.3], variances=variances, lines=lines)
    fitted = fit_slopes(seen)
    b, a, weights = drawn(seen, 1_000_000, np.random.default_rng(1))
    left = (seen.variances * (b - fitted.outcome) * (a - fitted.treatment)).sum(axis=1)
    size = 0.03 * np.sqrt(weights @ b**2)
    assert fitted.outcome == pytest.approx(weights @ b, abs=size.max())
    assert fitted.treatment == pytest.approx(weights @ a, abs=0.03 * np.sqrt(weights @ a**2).max())
    assert fitted.left == pytest.approx(weights @ left, abs=0.03 * np.sqrt(weights @ left**2))


def test_without_noise_slopes_are_solved_for_and_nothing_is_left():
    seen = moments(1e-9, [0.2, 0.1, -0.3], [0.4, -0.2, 0.1], np.array([2.0, 1.0, 0.5]))
    fitted = fit_slopes(seen)
    assert fitted.outcome == pytest.approx(seen.outcome / seen.variances, rel=1e-3)
    assert fitted.treatment == pytest.approx(seen.treatment / seen.variances, rel=1e-3)
    assert fitted.left_variance < 1e-6
    assert min(fitted.known) > 0.99


@pytest.mark.parametrize("columns", [1, 4, 10])
def test_with_nothing_but_noise_the_guess_of_an_unadjusted_difference_is_left(columns):
    fitted = fit_slopes(moments(1e9, np.zeros(columns), np.zeros(columns)))
    guess = 0.2 * unadjusted_variance(columns)
    assert fitted.left_variance == pytest.approx(guess, rel=0.1)
    assert max(np.abs(fitted.known)) < 0.01
    rng = np.random.default_rng(2)
    grid = (posterior._EXPLAINED, posterior._SELECTION, posterior._ALIGNED)
    explained, selection, aligned = (
        rng.choice(points, 400_000, p=weights / weights.sum())
        for points, weights in zip(grid, posterior._CAUTIOUS, strict=False)
    )
    one, other = rng.standard_normal((2, 400_000, columns))
    both = aligned[:, None] * one + np.sqrt(1.0 - aligned[:, None] ** 2) * other
    confounding = np.sqrt(explained * selection) * (one * both).mean(axis=1)
    assert unadjusted_variance(columns) == pytest.approx(np.mean(confounding**2), rel=0.05)


def test_directions_that_are_alike_count_as_often_as_they_are():
    three = [0.1, -0.2, 0.1, -0.2, 0.1, -0.2], [0.3, 0.1, 0.3, 0.1, 0.3, 0.1]
    all_of_them = fit_slopes(moments(0.02, *three, entry_noise=1e-4))
    short = fit_slopes(moments(0.02, three[0][:2], three[1][:2], entry_noise=1e-4, alike=3.0))
    assert short.left == pytest.approx(all_of_them.left, rel=1e-9)
    assert short.left_variance == pytest.approx(all_of_them.left_variance, rel=1e-9)
    assert short.noise_variance == pytest.approx(all_of_them.noise_variance, rel=1e-9)


def test_the_part_of_noise_is_what_noise_moves():
    """Fixed slopes, seen many times with other noise: how far what is left moves."""
    rng, k, noise = np.random.default_rng(3), 8, 0.002
    b, a = 0.15 * rng.standard_normal(k), 0.25 * rng.standard_normal(k)
    moved, told = [], []
    for _ in range(300):
        s = b + np.sqrt(noise) * rng.standard_normal(k)
        d = a + np.sqrt(2.0 * noise) * rng.standard_normal(k)
        fitted = fit_slopes(moments(noise, s, d))
        moved.append(((b - fitted.outcome) * (a - fitted.treatment)).sum() - fitted.left)
        told.append(fitted.noise_variance)
    assert 0.6 < np.var(moved) / np.mean(told) < 1.7
