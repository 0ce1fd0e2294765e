"""Grids: whole numbers within their ends, whatever comes in; the same in every order and engine."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpeffects.errors import DataError, OptionError, PrivacyError
from dpeffects.privacy.domains import COUNT, Box, bits_for
from dpeffects.privacy.matched import whole_weights

NASTY = np.array(
    [np.nan, np.inf, -np.inf, 0.0, -0.0, 5e-324, -5e-324, 1e-310, 2.0**-1022, 1e308, -1e308, 1e300]
)
BOXES = {
    "unit": Box(0, 1),
    "signed": Box(-1, 1),
    "offset": Box(1e16, 1e16 + 8),
    "from 0": Box(0.5, 3.0, centre=0.0),
    "centre outside": Box(2.0, 3.0, centre=5.0),
    "centre below": Box(-7.0, 3.0, centre=-7.0),
    "tiny": Box(0.0, 2.0**-300),
    "huge": Box(-1e99, 1e99),
    "odd": Box(-1 / 3, 0.1),
    "count": COUNT,
}


def values_for(grid, box, j=0):
    """Nasty values, the ends and their neighbours, ties between two steps, and random ones."""
    rng, low, high, centre = np.random.default_rng(1), box.low[j], box.high[j], box.centre[j]
    ends = [low, high, centre, low - (high - low), high + (high - low)]
    near = [np.nextafter(x, way) for x in ends for way in (-np.inf, np.inf)]
    ties = centre + (rng.integers(-8, 8, 20) + 0.5) * grid.unit
    inside = rng.uniform(low, high, 200)
    far = rng.normal(0, 1, 50) * 10.0 ** rng.integers(-300, 300, 50)
    return np.concatenate([NASTY, ends, near, ties, np.nextafter(ties, np.inf), inside, far])


@given(
    st.floats(-1e12, 1e12),
    st.floats(1e-6, 1e9),
    st.lists(st.floats(allow_nan=True), min_size=1),
    st.integers(6, 30),
)
def test_whatever_comes_in_stays_within_the_ends(low, width, values, bits):
    if not low < low + width:
        return
    grid = Box(low, low + width).with_bits(bits)
    steps = grid.project(np.array(values)[:, None])[:, 0]
    (first,), (last,) = grid.ends
    assert (steps == np.rint(steps)).all()
    assert (first <= steps).all()
    assert (steps <= last).all()
    assert grid.reach.same.l1 == last - first <= 2 ** (bits + 1) + 1


@given(st.floats(0, 1), st.integers(8, 30))
def test_steps_are_close_to_the_value(value, bits):
    grid = Box(-3.0, 5.0).with_bits(bits)
    y = -3.0 + 8.0 * value
    back = grid.project(np.array([[y]]))[0, 0] * grid.unit + grid.offset(1)[0]
    assert back == pytest.approx(y, abs=grid.unit)


def test_sums_do_not_depend_on_order_while_float_sums_do():
    rng = np.random.default_rng(0)
    y = rng.lognormal(0, 4, 200_000)
    grid = Box(0.0, 1e6).on(y.size, 1.0)
    orders = [rng.permutation(y.size) for _ in range(8)]
    assert len({int(grid.totals(y[o][:, None], None, 1)[0, 0]) for o in orders}) == 1
    assert len({float(np.add.accumulate(y[o])[-1]) for o in orders}) > 1


@pytest.mark.parametrize("n", [4, 10**3, 10**6, 10**9])
@pytest.mark.parametrize("rate", [1e-3, 1.0, 100.0])
def test_the_largest_possible_sum_fits(n, rate):
    grid = Box(0.0, 1.0).on(n, rate)
    assert n * max(abs(end[0]) for end in grid.ends) <= 2**57
    assert grid.reach.same.l1 / rate <= 2**57


def test_too_small_an_epsilon_is_refused():
    with pytest.raises(DataError):
        Box(0.0, 1.0).on(10, 2.0**-60)
    with pytest.raises(DataError):
        bits_for(2.0**52, 1.0)


def test_noise_of_the_finest_grid_takes_half_of_the_room():
    """That of a sum of records of size ``largest`` is below 2^55 steps, and not below 2^54."""
    for rate, largest in ((2.0**-40, 1.0), (2.0**-30, 8.0), (1e-9, 5.0)):
        steps = 2.0 ** bits_for(1.0, rate, largest, most=60) * largest / rate
        assert 2.0**54 < steps <= 2.0**55


def test_sets_of_no_width_and_of_too_much():
    wide = Box([0.0, 5.0], [1.0, 5.0])  # a column that does not vary beside one that does
    assert wide.half.tolist() == [0.5, 0.0]
    for ends in ((0.0, 0.0), (-1.5e100, 1.5e100), (1.0, 0.0)):
        with pytest.raises(OptionError, match="ends"):
            Box(*ends)
    assert Box(0, 2**31, whole=True).half == 2**30
    with pytest.raises(OptionError, match="whole numbers"):
        Box(0, 2**31 + 2, whole=True)


def test_weights_round_to_sixteen_bits():
    assert whole_weights(np.array([1.0, -0.5, 1 / 3])).tolist() == [65536, -32768, 21845]
    for bad in (np.inf, np.nan, 2.0**30):
        with pytest.raises(PrivacyError):
            whole_weights(np.array([bad]))
