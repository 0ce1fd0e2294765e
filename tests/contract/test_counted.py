"""Every method that adds up rows, replayed where rows do not count alike (`tests/counted.py`).

All rows of one person are replaced, by others and by more or fewer; or one record, which changes
its weight, its village, its place in a subset, or is missing a value.
"""

from __future__ import annotations

import numpy as np
import pytest

from dpeffects.design import sample as design_sample
from dpeffects.estimators import conditional_methods, proved
from dpeffects.flow import _adds_up
from tests.calls import ENGINES
from tests.counted import METHODS, SAMPLES, asked, counted_pair
from tests.replay import replay

PAIRS = {sample: list(pairs) for sample, (_, pairs) in SAMPLES.items()}
CASES = [(m, s) for m, call in METHODS.items() for s in SAMPLES if asked(m, s).given != call.given]


def replayed(method, sample, name, engine="", seed=0):
    call = asked(method, sample)
    pair = counted_pair(sample, name, call.n, seed)
    tables = (ENGINES[engine](table) for table in (pair.one, pair.other))
    return replay(lambda data, noise: call.run(data, noise, pair), *tables, seed=seed)


def test_every_method_that_adds_up_rows_is_here():
    specs = [*proved().values(), *conditional_methods().values()]
    exact = [s for s in specs if s.guarantee == "exact" and not s.needs_strata]
    names = {s.name for s in exact if _adds_up(s.options())}
    assert names <= {call.method for call in METHODS.values()}


@pytest.mark.sampled(23)
@pytest.mark.parametrize(("method", "sample"), CASES)
def test_neighbours_move_no_release_by_more_than_declared(method, sample):
    """Two pairs each, which turn with the method, in memory and on an engine."""
    turn = list(METHODS).index(method)
    for k, engine in enumerate(("", "duckdb" if turn % 2 else "polars")):
        name = PAIRS[sample][(3 * turn + 5 * k) % len(PAIRS[sample])]
        found = replayed(method, sample, name, engine, seed=turn + k)
        assert not found.violations, (name, engine)
        assert not found.refused, (name, engine)
        assert "BudgetError" not in found.failed
        assert found.largest <= 1.0


@pytest.mark.sampled(7)
@pytest.mark.parametrize("sample", SAMPLES)
def test_all_pairs_on_one_method(sample):
    found = [replayed("diff_in_means", sample, name) for name in PAIRS[sample]]
    assert not any(each.violations or each.refused for each in found)
    assert 0.9 < max(each.largest for each in found) <= 1.0


@pytest.mark.parametrize("sample", ["unit", "unit, max_rows"])
def test_rows_that_all_count_are_found(monkeypatch, sample):
    """A planted bug: the weights of a person's rows add up to more than 1."""
    monkeypatch.setattr(design_sample, "row_weights", lambda own, *rest: np.ones(len(own)))
    assert replayed("diff_in_means", sample, "many rows, all extreme").violations
