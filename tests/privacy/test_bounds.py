import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dpeffects as dpe
from dpeffects.design.bounds import (
    BINS,
    SEARCHES,
    Bounds,
    bins_for,
    declare,
    interval_from_counts,
    skeleton,
    threshold,
)
from dpeffects.errors import BoundsError
from tests.privacy.bare import magnitude_counts
from tests.replay import replay

BAD = {
    "reversed": (1, 0),
    "zero width": (1, 1),
    "infinite": (0, float("inf")),
    "nan": (float("nan"), 1),
    "text": "0-1",
    "number": 3,
    "one level": ["a"],
    "twice": ["a", "b", "a"],
    "a set": {"a", "b"},
    "three numbers": (0, 1, 2),
    "numbers as text": ("0", "1"),
    "unhashable": [["a"], ["b"], ["c"]],
}


@pytest.mark.parametrize("given_bounds", BAD.values(), ids=BAD.keys())
def test_bad_declarations(given_bounds):
    with pytest.raises(BoundsError, match="y"):
        Bounds.declared({"y": given_bounds})


def test_a_tuple_is_a_range_and_a_list_is_levels():
    bounds = Bounds.declared({"a": (0, 2), "b": [0, 2], "c": [0, 1, 2], "d": ["x", "y"]})
    assert bounds["a"] == (0.0, 2.0)
    assert [bounds.is_levels(name) for name in "abcd"] == [False, True, True, True]


def test_a_misspelt_declaration_is_refused():
    import pandas as pd

    with pytest.raises(BoundsError, match="did you mean 'age'"):
        declare(pd.DataFrame({"age": [1, 2]}), agee=(0, 90))


def test_parts_of_declared_rows_keep_their_bounds():
    import pandas as pd

    declared = declare(pd.DataFrame({"age": range(10)}), age=(0, 90))
    for part in (declared.head(3), declared[declared["age"] > 4], declared.query("age < 2")):
        assert part.bounds == declared.bounds
    assert "age" in declared
    assert list(declared) == ["age"]


def test_later_declarations_win_and_the_frame_stays_itself():
    import pandas as pd

    frame = pd.DataFrame({"y": [1, 2], "x": [3, 4]})
    declared = declare(declare(frame, y=(0, 5), x=(0, 9)), {"y": [1, 2]})
    assert declared.frame is frame
    assert declared.bounds["x"] == (0.0, 9.0)
    assert declared.bounds.is_levels("y")
    assert declared["x"].sum() == 7
    assert declared.shape == (2, 2)
    assert len(declared) == 2


@given(st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=50))
def test_every_finite_value_falls_in_exactly_one_bin(values):
    counts = magnitude_counts(np.array(values))
    assert counts.size == BINS
    assert counts.sum() == len(values)


@given(st.floats(2.0**-15, 2.0**39), st.sampled_from([-1, 1]))
def test_a_value_lies_within_the_bounds_read_off_its_bin(size, sign):
    value = sign * size
    counts = magnitude_counts(np.array([value])) * 1e6
    lower, upper = interval_from_counts(counts, 1.0)
    assert lower <= value <= upper
    assert upper - lower <= size * 1.0000001  # the bin is no wider than the value is large


def test_empty_bins_rarely_pass_the_threshold():
    rng = np.random.default_rng(1)
    scale = 20.0
    noise = rng.laplace(0, scale, (4000, BINS))
    share = (noise > threshold(scale)).any(axis=1).mean()
    assert share < 0.004


def test_bins_next_to_the_range_join_it_more_easily():
    counts = np.zeros(BINS)
    middle = BINS // 2
    counts[middle + 20] = 1000.0
    counts[middle + 21], counts[middle + 30] = 5.0, 5.0
    lower, upper = interval_from_counts(counts, 1.0)
    assert upper / lower == 4.0  # two bins of one power of two each, not the far one


def test_nothing_is_found_where_nothing_stands_out():
    assert interval_from_counts(np.zeros(BINS), 1.0) is None
    only_zero = magnitude_counts(np.zeros(1000)).astype(float)
    assert interval_from_counts(only_zero, 1.0) is None


def test_skeleton_has_names_only():
    text = skeleton(["y"], ["region"])
    assert eval(text.removeprefix(" bounds="), {"LOWER": 0, "UPPER": 1}) == {
        "y": (0, 1),
        "region": ["LEVEL", "LEVEL"],
    }


def test_bounds_of_another_frame_can_be_passed_on():
    """Levels are kept as a tuple, which looks like a range: two numbers would become one."""
    first = Bounds.declared({"y": (0, 1), "t": ["a", "b", "c"], "k": [0, 1]})
    again = Bounds.declared(first)
    assert dict(again) == dict(first)
    assert [again.is_levels(name) for name in again] == [False, True, True]
    read = first.with_interval("y", 0, 2, source="data")
    assert Bounds.declared(read).source("y") == "data"


# --- coarse searches, for fewer records -----------------------------------------------------------

STEPS = {1: 58, 2: 30, 3: 20}
COARSE = {step: (bins, times) for step, (bins, times) in enumerate(SEARCHES) if step}


def by_hand(value, step):
    """The bin of a size: near zero, then up to 2^(step - 17), and each as many powers further."""
    ends = [2.0**-17, *(2.0 ** (step * k - 17) for k in range(1, STEPS[step] - 1))]
    return sum(abs(value) > end for end in ends)


@given(st.lists(st.floats(allow_nan=False), min_size=1, max_size=50), st.sampled_from([1, 2, 3]))
def test_sizes_are_counted_by_steps(values, step):
    counts = magnitude_counts(np.array(values), COARSE[step][0])
    by_bin = np.bincount([by_hand(x, step) for x in values], minlength=STEPS[step])
    assert counts.tolist() == by_bin.tolist()


@pytest.mark.parametrize("step", STEPS)
def test_a_coarse_range_is_that_of_all_bins_tried_one_by_one(step):
    """A bin is in the range if it passes by itself, or next to one that is, with less."""
    rng, bins = np.random.default_rng(3), STEPS[step]
    for _ in range(300):
        counts = np.where(rng.random(bins) < 0.2, 25.0 * rng.random(bins), 0.0)
        counts += rng.laplace(size=bins)
        inside = {k for k in range(bins) if counts[k] > np.log(bins / 0.002)}
        while more := {k + 1 for k in inside if k < bins - 1 and counts[k + 1] > 3.0} - inside:
            inside |= more
        reach = 2.0 ** (step * max(inside) - 17) if inside - {0} else None
        assert interval_from_counts(counts, 1.0) == (reach and (-reach, reach))


SHAPES = {
    "bell": lambda rng, n: rng.normal(size=n),
    "around 3": lambda rng, n: rng.normal(3, 2, n),
    "far from 0": lambda rng, n: rng.normal(-100, 20, n),
    "flat": lambda rng, n: rng.random(n),
    "long tail": lambda rng, n: np.exp(rng.normal(size=n)),
    "both tails": lambda rng, n: rng.standard_t(3, n),
    "counts": lambda rng, n: rng.poisson(3, n),
    "equal": lambda rng, n: np.full(n, -7.0),
}


@pytest.mark.sampled(7)
@pytest.mark.parametrize("unit", [1e-4, 1.0, 1e6])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("step", STEPS)
def test_coarse_ranges_hold_nearly_all_records(step, shape, unit):
    """At the fewest records that are taken. Units differ: steps fall anywhere."""
    rng, scale, (bins, times) = np.random.default_rng(5), 18.5, COARSE[step]
    held, wide, n = [], [], int(times * threshold(scale, bins.size)) + 1
    for _ in range(200):
        values = SHAPES[shape](rng, n) * unit * 8.0 ** rng.random()
        counts = magnitude_counts(values, bins) + rng.laplace(0, scale, bins.size)
        if (found := interval_from_counts(counts, scale)) is None:
            held.append(0.0)
            continue
        held.append(np.mean((values >= found[0]) & (values <= found[1])))
        wide.append(found[1] / np.quantile(np.abs(values), 0.99))
    assert np.mean(np.array(held) < 0.8) < 0.05  # 0.02 at most in 1,000 searches
    assert np.mean(held) > 0.95
    assert np.mean(np.array(wide) > 2.0**step) < 0.08  # a bin beside the range joins in 1 of 40


@pytest.mark.parametrize("bins", STEPS.values())
def test_empty_coarse_bins_rarely_pass(bins):
    noise = np.random.default_rng(2).laplace(0, 20.0, (20_000, bins))
    assert 0.0005 < (noise > threshold(20.0, bins)).any(axis=1).mean() < 0.0015


def test_what_is_searched_for_goes_by_public_numbers():
    names = ["y", "x1", "x2"]
    asked = [(1_700, 1 / 3), (1_500, 1 / 3), (800, 1 / 3), (500, 1 / 3), (500, 4.0)]
    found = [bins_for(n, epsilon, names).size for n, epsilon in asked]
    assert found == [BINS, *STEPS.values(), BINS]
    with pytest.raises(
        BoundsError, match=r"about 415 records; there are 250\. Declare the range of possible"
    ):
        bins_for(250, 1 / 3, names)


def plain(n):
    import pandas as pd

    rng = np.random.default_rng(1)
    x = rng.normal(size=(2, n))
    t = (rng.random(n) < 1 / (1 + np.exp(-x[0]))).astype(int)
    return pd.DataFrame({"y": 10 + 2 * t + 3 * x[0] + x[1], "t": t, "x1": x[0], "x2": x[1]})


@pytest.mark.parametrize("method", ["auto", "private_psm"])
def test_a_plain_frame_is_answered_from_500_records_on(method):
    fit = dpe.dp_ate("y ~ t | x1 + x2", plain(500), method=method, epsilon=1, seed=1)
    assert re.search(
        r"Coarse ranges of y, x1, x2: .* at a cost of epsilon = 0.3\d+; declare them", fit.warnings
    )
    assert "Coarse ranges" in " ".join(str(fit).splitlines()[:8])
    assert [source for _, _, source in fit.bounds] == ["private"] * 3
    paid = [charge.epsilon for charge in fit.charges if charge.label.startswith("bounds of")]
    assert sum(paid) == pytest.approx(1 / 3, abs=0.02)
    ledger = dpe.Ledger(1.0)
    with pytest.raises(BoundsError, match=r'bounds=\{"y": \(LOWER, UPPER\), "x1"'):
        dpe.dp_ate("y ~ t | x1 + x2", plain(250), method=method, epsilon=1, ledger=ledger)
    assert not ledger.charges


def test_one_record_moves_a_coarse_search_within_its_sensitivity():
    one, other = plain(500), plain(500)
    other.loc[7, ["y", "x1", "x2"]] = 1e300, np.inf, 0.0

    def call(data, noise):
        given = {"epsilon": 1, "ledger": noise.ledger(), "seed": noise}
        return dpe.dp_ate("y ~ t | x1 + x2", data, "diff_in_means", **given).to_json()

    assert not replay(call, one, other).violations
