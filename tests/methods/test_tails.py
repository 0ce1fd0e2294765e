"""Lengths of residuals and curves of the score are read by the distribution of their noise."""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import integrate, stats

from dpeffects.estimators.arm_sums import ArmLookup
from dpeffects.estimators.constants import LEVELS
from dpeffects.estimators.default.arm_summaries import ArmStats
from dpeffects.estimators.default.score_curvature import bent_terms, density, spike_and_slab
from dpeffects.estimators.default.tails import (
    ResidualLengths,
    TailFamily,
    length_class,
    limits,
    log_density,
)
from dpeffects.privacy.charges import NoisyValue


def histogram(residuals, scale, rng, gaussian=False, arm=None):
    """Noisy counts of residuals up to 1 by arm, sign and length, from long to short."""
    edges = np.concatenate([[np.inf], limits(1.0), [-1.0]])
    arm, exact = np.zeros(residuals.size, int) if arm is None else arm, []
    for own, sign in itertools.product(range(arm.max() + 1), (1.0, -1.0)):
        some = np.abs(residuals[(arm == own) & ((residuals > 0) == (sign > 0))])
        exact += [((lo < some) & (some <= hi)).sum() for hi, lo in itertools.pairwise(edges)]
    exact = np.array(exact)
    noise = rng.normal(0, scale, exact.size) if gaussian else rng.laplace(0, scale, exact.size)
    return NoisyValue((exact + noise)[:, None], scale, None, gaussian)


def read(residuals, scale, rng, gaussian=False, arm=None, before=None):
    sizes = np.bincount(np.zeros(residuals.size, int) if arm is None else arm).astype(float)
    return ResidualLengths.read(sizes, 1.0, histogram(residuals, scale, rng, gaussian, arm), before)


def signed(lengths, rng):
    return lengths * rng.choice([-1.0, 1.0], lengths.size)


def by_side(lengths, clip, kind):
    """Tails or what is beyond a clip, by arm and sign, of all records of the arm."""
    family = lengths.families[0]
    found = family.moments(lengths.found, *getattr(family, kind))[0]
    at = [[np.interp(clip / lengths.longest, family.lengths, x) for x in arm] for arm in found]
    return np.array(at) * lengths.parts


def beyond_clip(lengths, clip):
    """Share of residuals that are longer."""
    return float(lengths.shares @ by_side(lengths, clip, "tails").sum(axis=1))


def excess(lengths, clip):
    """Mean length beyond a clip."""
    return lengths.longest * float(lengths.shares @ by_side(lengths, clip, "excess").sum(axis=1))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("gaussian", [False, True])
@pytest.mark.parametrize(("off", "sd"), [(0.0, 3.0), (25.0, 3.0), (-60.0, 0.5), (8.0, 200.0)])
def test_the_law_of_a_count_is_noise_and_chance_together(off, sd, gaussian):
    counts = NoisyValue(np.zeros(1), 10.0, None, gaussian)
    noise = stats.norm(0, 10) if gaussian else stats.laplace(0, 10)
    product = lambda x: noise.pdf(x) * stats.norm(off, sd).pdf(x)  # noqa: E731
    points = sorted({0.0, off, off - 5 * sd, off + 5 * sd})
    expected, _ = integrate.quad(product, -2500, 2500, points=points, limit=800)
    found = float(log_density(np.array([off]), np.array([sd**2]), counts)[0])
    assert found == pytest.approx(math.log(expected), abs=1e-6)


def test_members_of_the_family_are_laws_and_their_moments_are_theirs():
    family = TailFamily.of_all()
    own, further = (x[:, None] if k else x for k, x in enumerate(family.tails[:2]))
    few = family.few[:, None, None]
    tails = (own + few * (further - own)).reshape(-1, family.lengths.size)
    assert (np.diff(tails, axis=1) <= 1e-12).all()
    assert family.classes.sum(axis=1) == pytest.approx(np.ones(len(tails)))
    for member in (0, 60, 147, 1000, 2367):
        weights = np.append(np.eye(len(tails))[member], np.zeros(2 * LEVELS + 2))
        found, parts, one = np.tile(weights, (1, 2, 1)), np.array([[0.3, 0.7]]), np.ones(1)
        seen = np.tile(family.classes[member], (1, 2, 1))
        lengths = ResidualLengths(2.0, one, found, seen, parts, (family,), one)
        tail = lambda x: np.interp(x / 2.0, family.lengths, tails[member])  # noqa: E731, B023
        grid = np.linspace(0.0, 2.0, 200_001)
        beyond = integrate.trapezoid(np.where(grid > 0.3, tail(grid), 0.0), grid)
        assert excess(lengths, 0.3) == pytest.approx(beyond, rel=0.02, abs=1e-5)
        assert beyond_clip(lengths, 0.3) == pytest.approx(float(tail(0.3)), abs=1e-9)
        square = integrate.trapezoid(2 * grid * np.where(grid < 0.3, tail(grid), 0.0), grid)
        assert lengths.mean_square(0.3)[0] == pytest.approx(square, rel=0.02)


@pytest.mark.parametrize("gaussian", [False, True])
@pytest.mark.parametrize("scale", [0.02, 0.1])
def test_what_is_read_of_residuals_holds_the_truth(scale, gaussian):
    rng, held = np.random.default_rng(4), []
    for _ in range(30):
        residuals = np.clip(rng.normal(0, scale, 4000), -1.0, 1.0)
        lengths = read(residuals, 30.0, rng, gaussian)
        mean, sd = lengths.mean_square(3 * scale)
        truth = float((np.minimum(np.abs(residuals), 3 * scale) ** 2).mean())
        held.append(abs(mean - truth) < 3 * sd + 0.05 * truth)
        cut = lengths.clip(0.02)
        assert 1.2 * scale < cut.length < 25 * scale
        lost = residuals.mean() - np.clip(residuals, -cut.length, cut.length).mean()
        assert abs(cut.lost[0] - lost) < 3 * cut.unknown[0]
        assert cut.beyond[0] == pytest.approx(beyond_clip(lengths, cut.length))
    assert np.mean(held) > 0.85


def test_a_range_six_times_too_wide_hardly_moves_a_clip():
    rng = np.random.default_rng(1)
    residuals = np.clip(rng.normal(0, 0.12, 40_000), -1.0, 1.0)
    one = read(residuals, 40.0, rng).clip(0.001).length
    other = 6.0 * read(residuals / 6.0, 40.0, rng).clip(0.006).length
    assert 0.7 < other / one < 1.5


@pytest.mark.parametrize("few", [0.1, 0.2])
@pytest.mark.parametrize("n", [4_000, 40_000])
def test_what_a_clip_takes_off_few_records_of_one_arm_is_known(few, n):
    """Residuals of an effect on few, all of them on one side of one arm, by the records."""
    rng, held = np.random.default_rng(8), []
    for _ in range(20):
        arm = rng.integers(0, 2, n)
        outcome = 0.05 * rng.normal(size=n) + 0.5 * ((rng.random(n) < few) & (arm == 0))
        means = np.array([outcome[arm == k].mean() for k in (0, 1)])
        residuals = np.clip(outcome - means[arm], -1.0, 1.0)
        cut = read(residuals, 40.0, rng, arm=arm).clip(0.05)  # which would like a short clip
        off = residuals - np.clip(residuals, -cut.length, cut.length)
        lost = np.array([off[arm == k].mean() for k in (0, 1)])
        held.append(np.abs(cut.lost - lost) < 2 * cut.unknown + 1e-4)
        assert cut.unknown.max() < 0.03
    assert np.mean(held) > 0.8


def test_records_far_out_are_remembered():
    rng = np.random.default_rng(3)
    far = signed(np.concatenate([np.abs(rng.normal(0, 0.02, 3920)), rng.random(80)]), rng)
    seen, state = read(far, 5.0, rng), rng.bit_generator.state
    alone = read(far, 60.0, rng)
    rng.bit_generator.state = state
    after = read(far, 60.0, rng, before=seen)
    truth = float(np.maximum(np.abs(far) - 0.1, 0).mean())
    assert abs(excess(after, 0.1) - truth) < abs(excess(alone, 0.1) - truth) + 0.1 * truth
    assert excess(after, 0.1) == pytest.approx(truth, rel=0.5)


@pytest.mark.parametrize("risk", [0.05, 0.1, 0.2])
def test_a_rare_outcome_is_not_clipped_away(risk):
    """Its residuals have two lengths, one of them the longest: no bulk of the family is like it."""
    rng = np.random.default_rng(6)
    for _ in range(20):
        residuals = np.where(rng.random(6000) < risk, 1.0, -risk / (1.0 - risk))
        lengths = read(residuals, 45.0, rng)
        assert lengths.clip(0.004).length > 0.6
        assert 0.2 * risk < beyond_clip(lengths, 0.5) < 3.0 * risk


def test_a_residual_is_told_by_arm_sign_and_length():
    """Records at the end of the range are among those up to it, as the family has them."""
    values = np.array([1.0, 0.8, 2.0**-0.5, -0.6, 0.0, -2.0])
    rows = SimpleNamespace(treated=np.array([1, 1, 0, 0, 1, 0]))
    lookup = ArmLookup(np.ones(2))
    found = length_class(lambda rows: values, limits(1.0), lookup)(rows)
    arm, side, length = np.unravel_index(found, (2, 2, LEVELS + 1))
    assert arm.tolist() == [0, 0, 1, 1, 0, 1]
    assert side.tolist() == [0, 0, 0, 1, 1, 1]
    assert length.tolist() == [1, 1, 2, 2, LEVELS, 0]


def cube(values, scale):
    k = len(values)
    return NoisyValue(np.asarray(values, float), scale, None, False, (k + 1) * (k + 2) / 3)


@pytest.mark.parametrize("columns", [3, 12, 60])
def test_the_law_of_a_sum_in_a_cube(columns):
    """The share of draws beyond a point, against the integral of the density."""
    rng, noise = np.random.default_rng(0), cube(np.zeros(columns), 1.0)
    drawn = rng.gamma(columns + 1.0, size=200_000) * rng.uniform(-1, 1, 200_000)
    drawn += rng.normal(0, 0.3 * columns, 200_000)
    grid = np.linspace(-9 * noise.sd, 9 * noise.sd, 20_001)
    found = density(grid, np.full(grid.shape, 0.3 * columns), noise)
    for point in (0.5, 1.5, 2.0):
        beyond = integrate.trapezoid(np.where(grid > point * noise.sd, found, 0.0), grid)
        assert beyond == pytest.approx(float((drawn > point * noise.sd).mean()), abs=0.004)


def test_counts_by_arm_have_noise_of_their_own():
    """Laplace noise of each, whose standard deviation is the root of 2 times its scale."""
    grid, noise = np.linspace(-200.0, 200.0, 100_001), NoisyValue(np.zeros(3), 5.0)
    found = density(grid, np.full(grid.shape, 0.1), noise)
    assert integrate.trapezoid(found * grid**2, grid) == pytest.approx(2 * 5.0**2 + 0.01, rel=0.01)


def test_spike_and_slab_is_bayes_rule_where_noise_is_normal():
    sums, sd, slab = np.array([0.0, 1.0, -6.0, 30.0]), np.full(4, 0.5), np.full(4, 4.0)
    found, means, squares = spike_and_slab(NoisyValue(sums, 1.2, None, True), sd, slab, 0.05)
    one, other = 0.5**2 + 1.2**2, 0.5**2 + 1.2**2 + 16.0
    odds = 0.05 / 0.95 * stats.norm(0, other**0.5).pdf(sums) / stats.norm(0, one**0.5).pdf(sums)
    kept = 16.0 / other
    assert found == pytest.approx(odds / (1 + odds), rel=1e-4)
    assert means == pytest.approx(kept * sums, rel=1e-3, abs=1e-9)
    assert squares[:3] == pytest.approx(((kept * sums) ** 2 + kept * one)[:3], rel=1e-3)


def test_terms_of_the_check_are_bounded_and_public():
    values, columns = np.array([0, 0, 2, 0, 0, 0]), np.arange(5)
    terms = bent_terms(values, columns)
    assert len(terms) == 4 + 4 + 3
    less = {tuple(x) for x in bent_terms(values, columns, {(0, 0), (1, 0)}).tolist()}
    assert {tuple(x) for x in terms.tolist()} - less == {(0, 0), (0, 1)}
    assert all(len(bent_terms(np.zeros(d + 1), np.arange(d))) <= 3 * d for d in range(1, 60))
    assert not len(bent_terms(np.full(4, 2), np.arange(3)))


@pytest.mark.parametrize("off", [0.0, 0.05])
def test_lengths_of_weighted_residuals_are_those_of_simulated_ones(off):
    """What a cut leaves out, and the weight that is cut, by a million records."""
    rng, n = np.random.default_rng(4), 1_000_000
    weights, chances = np.array([1.0, 0.5, 0.2]), np.array([0.1, 0.3, 0.6])
    family = TailFamily.of_all()
    member = int(np.argmin(np.abs(family.tails[0][:37] @ np.gradient(family.lengths) - 0.1)))
    scale = 2.0 ** np.linspace(-7.5, -0.3, 37)[member]
    lengths = np.abs(rng.normal(0.0, scale, 2 * n))
    lengths = lengths[lengths < 1.0][:n]
    u = rng.choice(weights, n, p=chances)
    terms = family.of_terms(off, 1.0, weights, chances)
    for cut in (0.05, 0.1, 0.2):
        excess, tail = (
            np.interp(cut, family.lengths, x[0][member]) for x in (terms.excess, terms.tails)
        )
        assert excess == pytest.approx(np.maximum(u * lengths - cut, 0.0).mean(), abs=3e-4)
        beyond = (u * (u * (lengths + off) > cut)).sum() / u.sum()
        assert tail == pytest.approx(beyond, abs=0.02)


def test_even_weights_leave_lengths_as_they_are():
    family = TailFamily.of_all()
    same = family.of_terms(0.0, 1.0, np.ones(1), np.ones(1))
    for one, other in zip(
        (*same.tails, *same.excess), (*family.tails, *family.excess), strict=True
    ):
        assert one[:, :-1] == pytest.approx(other[:, :-1], abs=1e-12)


def test_residuals_that_were_clipped_before_are_among_what_terms_lose():
    """A million weighted residuals, which are clipped, and whose terms are cut."""
    rng, n = np.random.default_rng(4), 1_000_000
    weights, chances, clip = np.array([1.0, 0.5, 0.2]), np.array([0.1, 0.3, 0.6]), 0.2
    family = TailFamily.of_all()
    member = int(np.argmin(np.abs(family.tails[0][:37] @ np.gradient(family.lengths) - 0.1)))
    lengths = np.abs(rng.normal(0.0, 2.0 ** np.linspace(-7.5, -0.3, 37)[member], 2 * n))
    lengths, u = lengths[lengths < 1.0][:n], rng.choice(weights, n, p=chances)
    terms = family.of_terms(0.0, clip, weights, chances)
    for cut in (0.05, 0.1, 0.19, 0.3):
        found = np.interp(cut, family.lengths, terms.excess[0][member])
        kept = np.minimum(u * np.minimum(lengths, clip), cut)
        assert found == pytest.approx((u * lengths - kept).mean(), abs=3e-4)


def test_means_miss_what_residuals_beyond_a_clip_do_not_correct():
    shares, unknown = np.array([0.1, 0.9]), np.array([0.4, 0.2])
    centres = ArmStats(300, shares, 0.0, np.zeros(2), unknown, (-1.0, 1.0), False)
    assert centres.missed(np.array([0.5, 0.1])) == pytest.approx([0.2, 0.02])
