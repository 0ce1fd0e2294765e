"""Calls that nobody would write, and files that nobody wrote.

Whatever comes in, a call ends with a result or with one error of ours, and an error before the
first draw charges nothing. `make evidence TABLE=fuzz` runs more.
"""

from __future__ import annotations

import contextlib
import copy
import json
import random
import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dpeffects as dpe
from dpeffects.documents import checksum
from tests.fuzzing import FORMULAS, FRAMES, frames, run
from tests.fuzzing import formulas as written

bounded = settings(max_examples=120, suppress_health_check=list(HealthCheck))


@pytest.mark.sampled(11)
@pytest.mark.parametrize("first", range(0, FORMULAS + FRAMES, 1500))
def test_calls(first):
    """Cases of the benchmark: formulas, then frames with options."""
    wrong = [found for number in range(first, first + 20) if not (found := run(number)).good]
    assert wrong == []


@pytest.mark.parametrize("number", [20245])
def test_cases_that_once_failed(number):
    """Bounds of a plan had a name that is no text."""
    assert run(number).good


def test_cases_are_the_same_everywhere():
    """A number is a case: nothing of this process, of today or of hashes goes into it."""
    from tests.fuzzing.cases import case

    assert str(case(1234)) == str(case(1234))
    assert case(1234).arguments["formula"].endswith("cut(t, [0, 0.5, 1])|g + 1")


def test_the_grammar_is_that_of_formulas():
    """Most formulas of the grammar can be read, or their refusals would hide what comes after."""
    from dpeffects.formula import parse

    read = 0
    for number in range(300):
        with contextlib.suppress(dpe.DPEffectsError):
            read += bool(parse(written.Grammar(random.Random(number)).formula()))
    assert read > 200


# --- formulas of no grammar ---------------------------------------------------------------------

TOKENS = [
    *("y", "t", "x", "g", "z", "1", "0", "-1", "2.5", "1e400", "nan", "`x`", "`a b`", "'a'", ""),
    *("~", "|", "+", "-", "*", ":", "/", "**", "^", "%in%", "(", ")", ",", "[", "]", "{", "}", "="),
    *("log", "sqrt", "exp", "I", "C", "cut", "bs", "levels", "knots", "poly", "scale", "abs", "if"),
    *("cut(x, [0, 0.5, 1])", "C(g, levels=['a', 'b'])", "I(x**2)", "log(x + 1)", "y ~ t | ", " "),
    *("lambda", "__import__('os')", ".", "..", "\\", "\n", "#", "é", "\x00", "x" * 50, "1/0"),
]
formulas = st.one_of(
    st.lists(st.sampled_from(TOKENS), max_size=12).map("".join),
    st.lists(st.sampled_from(TOKENS), max_size=8).map(
        lambda parts: "y ~ t | x + " + " ".join(parts)
    ),
    st.text(max_size=20).map(lambda text: f"y ~ t | {text}"),
    st.text(max_size=30),
    st.one_of(st.none(), st.integers(), st.binary(max_size=5), st.lists(st.text(), max_size=2)),
)


@bounded
@given(formulas)
def test_formulas_of_no_grammar(formula):
    ledger = dpe.Ledger(1)
    data = frames.pandas_frame(random.Random(1))
    with contextlib.suppress(dpe.DPEffectsError), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        call = {"epsilon": 1, "bounds": frames.BOUNDS, "ledger": ledger, "seed": 1}
        str(dpe.dp_ate(formula, data, "diff_in_means", **call))
        return
    assert ledger.charges == ()


# --- files --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A released function as plain values, and where to write what was made of it."""
    data = frames.pandas_frame(random.Random(1))
    fit = dpe.dp_cate("y ~ t | x + g", data, epsilon=5, bounds=frames.BOUNDS, seed=1)
    folder = tmp_path_factory.mktemp("fuzz")
    fit.save(folder / "right.json")
    return json.loads((folder / "right.json").read_text()), folder / "wrong.json"


def places(value, here=()):
    """Paths to every entry of nested values."""
    if isinstance(value, dict):
        entries_ = value.items()
    elif isinstance(value, list):
        entries_ = list(enumerate(value))[:3]
    else:
        return [here]
    found = [here] if here else []
    for key, entry in entries_:
        found += places(entry, (*here, key))
    return found


junk = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**20), 10**20),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=5),
    st.just([]),
    st.just({}),
    st.just([1, [2, "x"]]),
)


@bounded
@given(st.data())
def test_files_of_functions(saved, data):
    right, path = saved
    wrong = copy.deepcopy(right)
    for _ in range(data.draw(st.integers(1, 2))):
        *way, last = data.draw(st.sampled_from(places(right)))
        inside = wrong
        try:
            for key in way:
                inside = inside[key]
            if data.draw(st.booleans()):
                inside[last] = data.draw(junk)
            else:
                del inside[last]
        except (KeyError, IndexError, TypeError):
            continue  # an earlier change took it away
    if data.draw(st.booleans()):
        wrong["checksum"] = checksum(wrong)
    path.write_text(json.dumps(wrong))
    with contextlib.suppress(dpe.DPEffectsError):
        fit = dpe.load_cate(path)
        assert json.loads(fit.to_json())
        assert np.isfinite(fit.effect({"x": [0.2, 0.8], "g": ["a", "b"]})).all()


@bounded
@given(st.one_of(st.text(max_size=30), st.sampled_from(["{}", "[]", "null", "{", "1e999", "NaN"])))
def test_files_that_are_something_else(saved, text):
    _, path = saved
    path.write_text(text, encoding="utf-8", errors="replace")
    with pytest.raises(dpe.DPEffectsError):
        dpe.load_cate(path)


def test_queries(saved):
    right, path = saved
    path.write_text(json.dumps(right))
    fit = dpe.load_cate(path)
    for number in range(120):
        query = frames.pandas_frame(random.Random(number), odd=number % 4)
        with warnings.catch_warnings(), contextlib.suppress(dpe.DPEffectsError):
            warnings.simplefilter("ignore")
            assert np.isfinite(fit.effect(query if number % 2 else query[["x"]])).all()
