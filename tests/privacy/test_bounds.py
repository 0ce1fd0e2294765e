import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpeffects.design.bounds import (
    BINS,
    Bounds,
    declare,
    interval_from_counts,
    skeleton,
    threshold,
)
from dpeffects.errors import BoundsError
from tests.privacy.bare import magnitude_counts

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
