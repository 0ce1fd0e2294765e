import numpy as np
import pytest
from dpeffects.privacy.sums import Grid, weights_to_grid
from hypothesis import given
from hypothesis import strategies as st

from dpeffects.errors import DataError

finite = st.floats(-1e12, 1e12, allow_nan=False)
anything = st.lists(st.floats(-1e300, 1e300), min_size=1)


@given(finite, st.floats(1e-6, 1e9), anything, st.integers(6, 30))
def test_encoded_values_stay_on_the_grid_whatever_comes_in(lower, width, values, bits):
    grid = Grid(lower, lower + width, bits)
    if grid.lower >= grid.upper:
        return
    encoded = grid.encode(np.array(values))
    assert np.abs(encoded).max() <= 2**bits
    assert grid.span == 2 ** (bits + 1)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("ends", [(0.0, 1.0), (-1e308, 1e308), (-1e-310, 1e-310), (1e16, 1e16 + 2)])
def test_nan_and_infinities_cannot_leave_the_grid(bad, ends):
    """NaN would become the smallest integer on some machines and zero on others."""
    with np.errstate(all="ignore"):
        encoded = Grid(*ends, 10).encode(np.array([bad, 0.0, *ends, sum(ends) / 2]))
    assert np.abs(encoded).max() <= 2**10


@given(st.floats(0, 1), st.integers(8, 30))
def test_decoding_is_close(value, bits):
    grid = Grid(-3.0, 5.0, bits)
    y = -3.0 + 8.0 * value
    back = grid.encode(np.array([y]))[0] * grid.unit + grid.middle
    assert back == pytest.approx(y, abs=grid.unit)


def test_sums_do_not_depend_on_order_while_float_sums_do():
    rng = np.random.default_rng(0)
    y = rng.lognormal(0, 4, 200_000)
    grid = Grid.for_sum((0.0, 1e6), y.size, 1.0)
    orders = [rng.permutation(y.size) for _ in range(8)]
    assert len({int(grid.encode(y)[o].sum()) for o in orders}) == 1
    assert len({float(np.add.accumulate(y[o])[-1]) for o in orders}) > 1


@pytest.mark.parametrize("n", [4, 10**3, 10**6, 10**9])
def test_the_largest_possible_sum_fits(n):
    grid = Grid.for_sum((0.0, 1.0), n, 1.0)
    assert n * 2**grid.bits <= 2**57


def test_too_small_an_epsilon_is_refused():
    with pytest.raises(DataError):
        Grid.for_sum((0.0, 1.0), 10, 2.0**-60)


def test_weights_round_to_sixteen_bits():
    assert weights_to_grid(np.array([1.0, -0.5, 1 / 3])).tolist() == [65536, -32768, 21845]
    with pytest.raises(DataError):
        weights_to_grid(np.array([np.inf]))
