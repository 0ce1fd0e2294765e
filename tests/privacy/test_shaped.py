"""Noise for matrices and cubes against its distributions, and planted faults that must be found."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from functools import partial

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from dpeffects.errors import PrivacyError
from dpeffects.evidence.auditing import audit
from dpeffects.ledgers.composition import COMPOSITIONS
from dpeffects.privacy import exact_samplers
from dpeffects.privacy.budget import Budget, Share
from dpeffects.privacy.domains import Box, Cube, IntTotals, Matrices, Sensitivity, entries
from dpeffects.privacy.noise import LEAST_SIGMA, SecureNoise, laplace_scale, matrix_scale
from dpeffects.privacy.release import Split
from dpeffects.privacy.rows import GroupIndex
from dpeffects.privacy.tight_domains import Gram, cube_noise_sd, matrix_noise_sd
from dpeffects.seeded import SeededNoise
from tests.privacy import problems
from tests.privacy.hostile import curator
from tests.privacy.planted import plant_line

ODD = 1e-4
"""Draws have fixed seeds: a test that passes once passes always."""


class Generated:
    """Randomness for the exact samplers that repeats itself."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def integers(self, count, scale):
        """Discrete Gaussian numbers, by their chances where the grid is coarse."""
        if scale > 1e6:
            return np.rint(self.rng.normal(0.0, scale, count)).astype(int).tolist()
        z = np.arange(-40 * scale, 40 * scale + 1)
        chance = np.exp(-(z**2) / (2 * scale**2))
        return self.rng.choice(z, count, p=chance / chance.sum()).astype(int).tolist()

    def bits(self, count, size):
        return self.rng.integers(0, 2**size, count, dtype=np.uint64).tolist()

    def below(self, n):
        return int(self.rng.integers(n))

    def laplace(self, count, scale, top=2**63 - 1):
        up, down = self.rng.geometric(-math.expm1(-1 / scale), (2, count))
        return np.clip(up - down, -top - 1, top).tolist()


def matrices(cells, d, scale, seed):
    """Noise of the exact sampler as full matrices over their scale."""
    source = Generated(seed)
    normals = partial(exact_samplers.Normals, integers=source.integers, bits=source.bits)
    return full(exact_samplers.wishart_difference(cells, d, Fraction(scale), normals), d) / scale


def full(triangles, d):
    matrix = np.zeros((len(triangles), d, d))
    matrix[:, *np.triu_indices(d)] = triangles.astype(float)
    return matrix + np.triu(matrix, 1).swapaxes(1, 2)


def normality(fine, step):
    """P-values of coarse normal numbers, and of how many proposals were rejected."""
    source = Generated(fine)
    numbers = exact_samplers.Normals(3000, source.integers, source.bits, fine, step)
    middles, q = numbers.to(48)
    share = 1 - math.exp(-1 / (8 * (2 * fine + 1))) * fine / (fine + 1)
    rejected = stats.binomtest(numbers.rejected, 3000 + numbers.rejected, share)
    dist = stats.kstest([float(Fraction(b, q)) for b in middles], "norm")
    return min(dist.pvalue, rejected.pvalue)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("fine", "step"), [(1, 3), (2, 1), (7, 8)])
def test_normal_numbers_are_normal_on_any_grid(fine, step):
    """Grids this coarse take every branch: rejections, and more bits of y and v."""
    assert normality(fine, step) > ODD


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "fault",
    [
        ("_propose", "if not accepted:", "if False:"),
        ("_propose", "v >= sure or", "False and"),
        ("_accept", "- Fraction(z * z, (fine + 1) ** 2)", ""),
    ],
)
def test_faults_of_normal_numbers_are_found(fault, monkeypatch):
    plant_line(monkeypatch, exact_samplers.Normals, *fault)
    assert normality(1, 3) < 1e-12


def test_bounds_of_exp_are_on_either_side():
    """By its series in rationals."""
    rng = np.random.default_rng(11)
    for x in (Fraction(int(n), 10**6) for n in 10 ** rng.uniform(0, 7, 20)):
        exact = 1 / sum(x**k / math.factorial(k) for k in range(120))
        below, above = exact_samplers.exp_bounds(x, x, 30)
        assert below < exact < above
        assert above - below < exact / 10**28


def test_more_bits_stay_within_what_was_known():
    source = Generated(1)
    numbers = exact_samplers.Normals(200, source.integers, source.bits, 3, 2)
    b, q = numbers.to(4)
    exact, fine = numbers.to(200)
    assert all(
        abs(Fraction(y, fine) - Fraction(x, q)) <= Fraction(1, q)
        for x, y in zip(b, exact, strict=True)
    )


def rounding(source):
    """Three matrices, drawn a bit at a time at a large scale, and by many more bits."""
    kept, scale = [], Fraction(2**90, 3)

    def normals(count):
        kept.append(exact_samplers.Normals(count, source.integers, source.bits, 5, 1))
        return kept[-1]

    drawn = exact_samplers.wishart_difference(3, 2, scale, normals)
    flat, q = kept[0].to(400)
    g = np.array(flat, object).reshape(3, 2, 2, 3)
    exact = [(one @ one.T - two @ two.T)[np.triu_indices(2)] for one, two in g]
    return drawn.tolist(), [[round(scale * Fraction(x, q * q)) for x in row] for row in exact]


def test_rounding_agrees_with_many_more_bits(monkeypatch):
    drawn, exact = rounding(Generated(2))
    assert drawn == exact
    plant_line(
        monkeypatch,
        exact_samplers,
        "wishart_difference",
        "for e in (-error, error)",
        "for e in (0, 0)",
    )
    drawn, exact = rounding(Generated(2))
    assert drawn != exact


def test_what_bits_leave_open_is_drawn_on():
    """Numbers below 1 in size, known to 1, have products of two that are known to 2 each."""

    class Numbers:
        step, asked = 1, 0

        def to(self, least):
            self.asked += 1
            return [0, 0, 0, 0], 1 if self.asked == 1 else 1000

    numbers = Numbers()
    # by what is known at first a difference may be 4 / 5, which is 1 when it is rounded
    assert exact_samplers.wishart_difference(
        1, 1, Fraction(1, 5), lambda count: numbers
    ).tolist() == [[0]]
    assert numbers.asked == 2


def of_one_column(noise):
    """Chi-square of matrices of one column against Laplace noise of scale 2, rounded."""
    ends = np.arange(-9.5, 10)
    chance = np.diff(stats.laplace.cdf([-np.inf, *ends, np.inf], scale=2))
    observed = np.histogram(noise[:, 0, 0], [-np.inf, *ends, np.inf])[0]
    return stats.chisquare(observed, chance * len(noise)).pvalue


def of_two_columns(noise):
    """All eigenvalues are positive with chance 2^-3; the trace is then Gamma(3)."""
    positive = noise[np.linalg.eigvalsh(noise)[:, 0] > 0]
    share = stats.binomtest(len(positive), len(noise), 1 / 8).pvalue
    trace = positive[:, 0, 0] + positive[:, 1, 1]
    return min(share, stats.kstest(trace, stats.gamma(3, scale=2).cdf).pvalue)


FAULTS = {
    "d degrees of freedom": ("columns = d + 1", "columns = d"),
    "half the scale": ("2 * scale.numerator, scale", "scale.numerator, scale"),
    "one Wishart": ("g @ g.T - h @ h.T", "g @ g.T"),
}


def looks_right(seed=3):
    return min(
        of_one_column(matrices(4000, 1, 2**30, seed)),
        of_two_columns(matrices(3000, 2, 2**30, seed)),
    )


def test_noise_for_small_matrices_has_its_law():
    assert looks_right() > ODD


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_of_matrices_are_found(fault, monkeypatch):
    plant_line(monkeypatch, exact_samplers, "wishart_difference", *FAULTS[fault])
    assert looks_right() < 1e-12


def test_noise_for_matrices_has_its_variances():
    for source, cells in ((SeededNoise(4), 4000), (None, 60)):
        zeros = np.zeros((cells, 78), np.int64)
        drawn = source.matrices(zeros, 2.0**30, 2**60) if source else None
        noise = full(drawn, 12) / 2**30 if source else matrices(cells, 12, 2**30, 4)
        off, on = noise[:, *np.triu_indices(12, 1)], noise[:, range(12), range(12)]
        assert abs(noise.mean()) < 4 * math.sqrt(26 / noise.size)
        assert off.var() == pytest.approx(2 * 13, rel=0.02 if source else 0.1)
        assert on.var() == pytest.approx(4 * 13, rel=0.03 if source else 0.2)


def largest_excess(draw, times=8):
    """How far log-ratios of cells M and M + e1e1' - e2e2' exceed 1, over their standard error."""
    counts = np.zeros((41, 41, 41))
    for _ in range(times):
        z = draw() + 20
        z = z[((z >= 0) & (z < 41)).all(axis=1)]
        np.add.at(counts, tuple(z.T), 1)
    one, other = counts[1:, :, :-1], counts[:-1, :, 1:]
    often = np.maximum(one, other) >= 300
    one, other = np.maximum(one[often], 0.5), np.maximum(other[often], 0.5)
    return ((np.abs(np.log(one / other)) - 1) / np.sqrt(1 / one + 1 / other)).max()


def rounded_differences(seed, degrees=3, scale=1.0, second=1.0, size=250_000):
    """Draws of noise for two columns in floats, right or wrong."""
    rng = np.random.default_rng(seed)

    def draw():
        g = rng.normal(size=(size, 2, 2, degrees))
        w = np.matmul(g, g.swapaxes(2, 3))[..., *np.triu_indices(2)]
        return np.rint(scale * (w[:, 0] - second * w[:, 1])).astype(int)

    return draw


WRONG = {"d degrees of freedom": {"degrees": 2}, "half the scale": {"scale": 0.5}}
WRONG["one Wishart"] = {"second": 0.0}


def test_no_cell_is_more_likely_than_the_price_allows():
    """Two columns, squared radius and epsilon 1: one record moves by e1e1' - e2e2'."""
    noise, zeros = SeededNoise(5), np.zeros((250_000, 3), np.int64)
    assert largest_excess(lambda: noise.matrices(zeros, 1.0, 2**60)) < 4
    assert all(largest_excess(rounded_differences(5, **how)) > 8 for how in WRONG.values())


# --- cubes ----------------------------------------------------------------------------------------


def cubes(count, p, scale, seed, top=2**63 - 1):
    source = Generated(seed)
    laplace = partial(source.laplace, scale=scale, top=top)
    return exact_samplers.cube_noise(count, p, laplace, source.below).astype(int)


def as_cube(drawn, scale, far=3):
    """Chi-square against the chances of all vectors of entries up to ``far``; the rest is one."""
    p = drawn.shape[1]
    r = np.arange(200)
    q = np.exp(-r / scale)
    whole = (((2 * r + 1.0) ** p - np.maximum(2 * r - 1.0, 0.0) ** p) * q).sum()
    vectors = list(itertools.product(range(-far, far + 1), repeat=p))
    chance = np.array([math.exp(-max(map(abs, v)) / scale) for v in vectors]) / whole
    place = {v: k for k, v in enumerate(vectors)}
    index = [place.get(tuple(v), len(vectors)) for v in drawn.tolist()]
    expected = np.append(chance, 1 - chance.sum()) * len(drawn)
    observed = np.bincount(index, minlength=len(expected))
    return stats.chisquare(observed, expected).pvalue


@pytest.mark.sampled(3)
@pytest.mark.parametrize("p", [1, 2, 3])
def test_noise_of_a_cube_has_its_law(p):
    assert as_cube(cubes(8000, p, 1.3, p), 1.3) > ODD


def test_what_the_library_cuts_is_drawn_on(monkeypatch):
    monkeypatch.setattr(exact_samplers, "_TOP", 2)
    assert as_cube(cubes(8000, 2, 1.3, 6, top=2), 1.3) > ODD
    monkeypatch.undo()
    assert as_cube(cubes(8000, 2, 1.3, 6, top=2), 1.3) < 1e-12


CUBE_FAULTS = {
    "p variables": ("geometric(p + 1)", "geometric(p)"),
    "no rejection": ("<= 2 * r for", ">= 0 for"),
    "a face is missing": ("below(2 * r + 1) - r", "below(2 * r or 1) - r"),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("fault", CUBE_FAULTS)
def test_faults_of_cubes_are_found(fault, monkeypatch):
    plant_line(monkeypatch, exact_samplers, "cube_noise", *CUBE_FAULTS[fault])
    assert as_cube(cubes(8000, 2, 1.3, 7), 1.3) < 1e-12


def test_half_the_scale_of_a_cube_is_found():
    assert as_cube(cubes(8000, 2, 0.65, 8), 1.3) < 1e-12


@pytest.mark.parametrize("p", [2, 12])
def test_noise_of_a_cube_on_a_fine_grid_is_continuous(p):
    """max |v| is Gamma(p), and one entry has the stated variance."""
    seeded = SeededNoise(9).cubes(np.zeros((40_000, p), np.int64), 2.0**30, 1, 1.0)
    for drawn in (cubes(1500, p, 2.0**30, 9), seeded):
        assert stats.kstest(np.abs(drawn).max(axis=1) / 2**30, stats.gamma(p).cdf).pvalue > ODD
    assert (seeded / 2**30).std() == pytest.approx(cube_noise_sd(p, 1.0, 1.0), rel=0.02)


# --- through the kernel ---------------------------------------------------------------------------


@pytest.mark.real_noise
def test_secure_noise_has_its_law():
    """Drawn anew in every run: the chance of a failure without a fault is below 1e-7."""
    source = SecureNoise()
    drawn = source.matrices(np.full((3000, 1), 7, np.int64), 2.0**30, 2**60)
    assert stats.kstest((drawn[:, 0] - 7) / 2**30, stats.laplace(scale=2).cdf).pvalue > 1e-8
    scale = laplace_scale(2**20, 0.5)
    drawn = source.cubes(np.full((1500, 3), -4, np.int64), scale, 2**20, 0.5)
    assert stats.kstest(np.abs(drawn + 4).max(axis=1) / scale, stats.gamma(3).cdf).pvalue > 1e-8
    assert not np.array_equal(drawn[:700], drawn[700:1400])
    with pytest.raises(PrivacyError):
        source.cubes(np.zeros((1, 3), np.int64), 0.9 * scale, 2**20, 0.5)


def held(d=3, **given):
    rng = np.random.default_rng(10)
    table = rng.normal(size=(4096, d))

    def phi(rows):
        return table[rows.strata]

    def half(rows):
        return rows.strata % 2

    phi.reads = half.reads = ("strata",)
    keys = rng.integers(0, 4096, 500)
    return curator(keys, **given), phi, GroupIndex(half, 2), table[keys], keys % 2


def ball(d=3, radius=2.0):
    return Gram(Box(np.full(d, -4.0), np.full(d, 4.0), radius=radius))


def test_matrices_are_sums_of_products_of_rows_in_the_ball():
    c, phi, cells, z, cell = held(epsilon=1e6)
    z = z * np.minimum(1.0, 2.0 / np.linalg.norm(z, axis=1))[:, None]
    noisy = c.sums("m", phi, ball(), cells, share="a")
    expected = [(z[cell == k].T @ z[cell == k])[np.triu_indices(3)] for k in (0, 1)]
    assert noisy.value == pytest.approx(np.array(expected), abs=0.02)
    assert noisy.sd == pytest.approx(matrix_noise_sd(3, 4.0, 1e6))


def test_no_gaussian_noise_is_drawn_on_too_coarse_a_grid():
    """Where that off the diagonal would be, the whole release has a finer one."""
    rows = problems.held(np.zeros((1, 1)), np.array([True]))
    held, shape = problems.curator(rows), Matrices(3, 1, 1)
    steps = IntTotals(np.arange(6), Sensitivity(1, 1.0), 1.0, shape)
    release, price = held._releaser.gaussian, Share(1.0, 1e-6)
    noisy = release("m", steps, 1.2 * LEAST_SIGMA, price, share="a", claim=26)
    assert noisy.value.tolist() == list(range(6))
    scales = [scale for _, scale in held._releaser._noise.drawn]
    assert scales == pytest.approx([2.4 * LEAST_SIGMA, 2.4 * LEAST_SIGMA * math.sqrt(0.5)])


@pytest.mark.sampled(5)
@pytest.mark.parametrize("within", [ball(), Cube(np.full(3, -4.0), np.full(3, 4.0))], ids=str)
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_noise_is_as_large_as_it_says(within, delta):
    values, charge = [], None
    for seed in range(300):
        c, phi, cells, *_ = held(delta=delta, uses={"a": math.inf})
        c._releaser._noise = SeededNoise(seed)
        noisy = c.sums("m", phi, within, cells, share="a")
        values.append(noisy.value)
        charge = noisy.charge
    sd = np.std(values, axis=0).reshape(2, -1)
    if isinstance(within, Gram):
        sd[:, np.equal(*np.triu_indices(3))] /= math.sqrt(2.0)
    assert sd == pytest.approx(np.full(sd.shape, noisy.sd), rel=0.2)
    assert sd.mean() == pytest.approx(noisy.sd, rel=0.05)
    assert noisy.gaussian == (delta > 0)
    if not delta:
        assert charge.delta == 0
        assert charge.sensitivity[0] / charge.scale[0] == pytest.approx(charge.epsilon)
    elif isinstance(within, Gram):
        assert charge.sensitivity[0] == pytest.approx(math.sqrt(2.0) * 4.0, rel=1e-4)


def test_the_pool_is_chosen_where_it_has_less_noise():
    """By the standard deviations of an entry that both noises would have."""
    for d, epsilon, delta in itertools.product((1, 5, 12, 30), (0.2, 1.0, 4.0), (1e-6, 1e-9)):
        budget = Budget(epsilon, delta)
        cube = Cube(np.zeros(d), np.ones(d))
        for within, pure, gaussian in (
            (ball(d, 1.0), matrix_noise_sd(d, 1.0, epsilon), 1.0),
            (cube, cube_noise_sd(d, 1.0, epsilon), math.sqrt(d)),
        ):
            mu = Split.of(budget, {"a": 1.0}, {"a": math.inf}).mu["a"]
            chosen = bool(Split.of(budget, {"a": 1.0}, {"a": entries(within, 2)}).mu)
            assert chosen == (gaussian / mu < pure)
    assert not Split.of(Budget(1.0), {"a": 1.0}, {"a": math.inf}).mu


def test_noise_for_matrices_is_planned_from_public_numbers():
    scale, top = matrix_scale(2, 12, 2**36, 10_000, 0.5)
    assert Fraction(scale) * Fraction(0.5) >= 2**36
    assert top == 10_000 * 2**36 + 2**20 * math.ceil(scale)
    assert matrix_scale(2, 12, 2**36, 10_000, 1e9) == matrix_scale(2, 12, 2**36, 10_000, 1e8)
    assert matrix_scale(1, 1, 2**57, 1, 2.0**20)[0] >= 2**37
    assert matrix_scale(1000, 2, 2**36, 10, 1.0)[0] >= 2**36
    with pytest.raises(PrivacyError):
        matrix_scale(1, 1, 2**57 + 1, 1, 2.0**20)
    for bad in (
        (2, 501, 2**36, 10),
        (1001, 2, 2**36, 10),
        (2, 12, 2**36, 2**22),
        (1000, 500, 1, 1),
    ):
        with pytest.raises(PrivacyError):
            matrix_scale(*bad, 1.0)
    with pytest.raises(PrivacyError):
        matrix_scale(2, 12, 2**41, 10, 0.5)


def test_every_grid_has_room_for_its_noise():
    for n, epsilon, d in itertools.product((1, 10**4, 10**9), (2.0**-24, 0.3, 1e9), (1, 60)):
        grid = ball(d).on(n, epsilon)
        scale, top = matrix_scale(2, *grid.shape(n), epsilon)
        assert 1 <= scale <= 2**41
        assert top < 2**62


def test_a_cube_has_the_same_noise_for_records_and_units():
    cube = Cube(np.full(3, -4.0), np.full(3, 4.0))
    scales = []
    for given in ({}, {"unit": np.arange(500) // 2}, {"unit": np.arange(500) // 5, "max_rows": 9}):
        c, phi, *_ = held(**given)
        scales.append(c.sums("m", phi, cube, share="a").scale)
    assert scales == pytest.approx([scales[0]] * 3, rel=1e-3)


def key(rows):
    return rows.strata


def sign(rows):
    return 2.0 * rows.strata - 1.0


key.reads = sign.reads = ("strata",)


@pytest.mark.long
@pytest.mark.parametrize("within", [ball(1, 1.0), Cube(-1.0, 1.0)], ids=["matrix", "cube"])
def test_an_audit_attacks_both_noises(within, monkeypatch):
    """A record that leaves one cell for another attains the price, which half a scale exceeds."""

    def run(data, noise):
        c = curator(data["key"])
        c._releaser._noise = noise
        return c.sums("m", sign, within, GroupIndex(key, 2), share="a").value

    one, other = (pd.DataFrame({"key": [0, 1, last]}) for last in (0, 1))
    given = {"epsilon": 1, "pairs": [(one, other)], "runs": 2000, "seed": 1}
    assert 0.4 < audit(run, **given).lower <= 1.0
    for name in ("matrices", "cubes"):
        right = getattr(SeededNoise, name)
        monkeypatch.setattr(
            SeededNoise, name, lambda self, v, s, *rest, f=right: f(self, v, s / 2, *rest)
        )
    assert audit(run, **given).violated


def test_ledgers_count_pure_noise_by_its_price_and_matrices_of_a_pool_by_mu():
    for delta in (0.0, 1e-6):
        c, phi, cells, *_ = held(delta=delta, uses={"a": math.inf})
        charge = c.sums("m", phi, ball(), cells, share="a").charge
        mu = c._releaser.split.mu.get("a", c.epsilon("a"))
        rho = COMPOSITIONS["zcdp"].of_charge(charge, Fraction(0))[0]
        assert float(rho) == pytest.approx(mu**2 / 2, rel=1e-6)
