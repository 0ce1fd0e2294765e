"""Frames with columns of every type, in every container, and bounds that fit them or do not."""

from __future__ import annotations

import datetime
import decimal
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

SECRET = "SECRET7"
DAY = datetime.datetime(2042, 4, 24)
FLOATS = (float("nan"), float("inf"), -float("inf"), 1e308, -1e308, 5e-324, -0.0, 1e16, 10.0**300)
ODD: tuple[Any, ...] = (
    *FLOATS,
    *(0, 1, -1, 2, 5, 10**6, 10**400, -(10**30), True, False, None, "", "x", "private", "0.5"),
    *(b"x", (), [], {}, (1, 2), [1, 2], {"a": 1}, {1, 2}, range(3), 1j, ..., print),
    *(np.float64(0.5), np.float32(0.1), np.int64(3), np.bool_(True), np.array([0.0, 1.0])),
    *(decimal.Decimal("0.1"), decimal.Decimal("NaN"), DAY, pd.NA, pd.NaT, pd.Series([0.0, 1.0])),
    *("é\x00\n", "x" * 3000, [float("nan"), 1], (1, 0), (0, 10**400), ("a", "b"), [["a"]]),
)
Column = Callable[[random.Random, int], Any]


def several(*values: Any) -> Column:
    """A column of some values, again and again."""
    return lambda chance, n: [chance.choice(values) for _ in range(n)]


def unit(chance: random.Random, n: int) -> list[float]:
    return [chance.random() for _ in range(n)]


def typed(make: Column, dtype: str) -> Column:
    return lambda chance, n: pd.array(make(chance, n), dtype=dtype)


def objects(make: Column) -> Column:
    return lambda chance, n: pd.Series(make(chance, n), dtype=object)


def one_odd(make: Column, *odd: Any) -> Column:
    """A column with one record that does not fit."""

    def made(chance: random.Random, n: int) -> Any:
        values = list(make(chance, n))
        if n:
            values[chance.randrange(n)] = chance.choice(odd)
        return pd.Series(values)

    return made


bits, letters = several(0, 1), several("a", "b")
COLUMNS: dict[str, Column] = {
    "unit": unit,
    "bits": bits,
    "letters": letters,
    "bools": several(True, False),
    "with odd floats": lambda chance, n: [
        chance.choice([*FLOATS, chance.random()]) for _ in range(n)
    ],
    "one odd float": one_odd(unit, *FLOATS),
    "one huge whole number": one_odd(bits, 10**30, 2**63, -(2**63), 2**53 + 1),
    "one unknown level": one_odd(letters, SECRET),
    "one text among numbers": one_odd(unit, SECRET),
    "one missing": objects(one_odd(unit, None, float("nan"))),
    "one missing text": objects(one_odd(letters, None)),
    "mixed objects": objects(several("a", "b", None, 1, 2.5, float("nan"), True)),
    "bool objects": objects(several(True, False)),
    "bool objects with none": objects(several(True, False, None)),
    "numbers as text": lambda chance, n: [f"{chance.random():.9f}" for _ in range(n)],
    "nullable": typed(several(0, 1, None), "Int64"),
    "nullable whole": typed(bits, "Int64"),
    "nullable bools": typed(several(True, False), "boolean"),
    "nullable floats": typed(unit, "Float64"),
    "arrow floats": typed(unit, "double[pyarrow]"),
    "arrow text": typed(letters, "string[pyarrow]"),
    "python text": typed(letters, "string[python]"),
    "categorical": lambda chance, n: pd.Categorical(letters(chance, n)),
    "ordered": lambda chance, n: pd.Categorical(letters(chance, n), ["b", "a", SECRET], True),
    "categorical numbers": lambda chance, n: pd.Categorical(bits(chance, n)),
    "intervals": lambda chance, n: pd.cut(pd.Series(unit(chance, n)), [-1, 0.2, 2]),
    "days": lambda chance, n: [DAY + datetime.timedelta(chance.randrange(99)) for _ in range(n)],
    "days with a zone": lambda chance, n: pd.date_range(DAY, periods=n, tz="Asia/Tokyo"),
    "dates": objects(several(DAY.date(), datetime.date(1, 1, 1))),
    "spans": lambda chance, n: pd.to_timedelta(bits(chance, n), unit="D"),
    "periods": lambda chance, n: pd.period_range("2042-04", periods=n, freq="M"),
    "decimals": objects(several(decimal.Decimal("0.5"), decimal.Decimal("0.25"))),
    "odd decimals": objects(several(decimal.Decimal("0.5"), decimal.Decimal("NaN"))),
    "complex": several(1j, 2 + 0j),
    "lists": objects(several([1], [])),
    "bytes": objects(several(b"a", b"b")),
    "things": objects(several(object(), print, ...)),
    "half precision": lambda chance, n: np.array(unit(chance, n), dtype=np.float16),
    "single precision": lambda chance, n: np.array(unit(chance, n), dtype=np.float32),
    "long double": lambda chance, n: np.array(unit(chance, n), dtype=np.longdouble),
    "bytes of numbers": lambda chance, n: np.array(bits(chance, n), dtype=np.uint8),
    "unsigned": lambda chance, n: np.array(bits(chance, n), dtype=np.uint64) + np.uint64(2**63),
    "sparse": lambda chance, n: pd.arrays.SparseArray(bits(chance, n)),
    "constant": several(0.5),
    "all missing": several(None),
    "all nan": several(float("nan")),
}
USUAL = {"y": unit, "t": bits, "x": unit, "g": letters, "s": several("N", "S")}
BOUNDS: dict[str, Any] = {"y": (0, 1), "x": (0, 1), "g": ["a", "b"]}


def pandas_frame(chance: random.Random, odd: int = 0) -> pd.DataFrame:
    """A frame with some odd columns, and then sometimes hardly a row."""
    n = chance.choice([0, 1, 3, 4, 5, 8, 24, 60] if odd > 2 else [12, 24, 24, 60])
    changed = set(chance.sample(list(USUAL), odd))
    names = list(COLUMNS)
    made = {
        name: (COLUMNS[chance.choice(names)] if name in changed else usual)(chance, n)
        for name, usual in USUAL.items()
    }
    return pd.DataFrame({name: pd.Series(column) for name, column in made.items()})


def mislabelled(chance: random.Random, frame: pd.DataFrame) -> Any:
    """The frame with odd labels, or what is no frame."""
    if chance.random() < 0.8:
        return _or_as_it_is(chance.choice(LABELS), frame)
    return chance.choice([None, 5, "no.csv", {"y": [1]}, [[1, 2]], print])


def in_library(chance: random.Random, frame: pd.DataFrame) -> Any:
    """The frame in the container of another library."""
    import duckdb
    import polars as pl
    import pyarrow as pa

    makers = {
        pa.Table.from_pandas: 25,
        pl.from_pandas: 30,
        lambda given: pl.from_pandas(given).lazy(): 35,
        lambda given: duckdb.from_arrow(pa.Table.from_pandas(given)): 10,
    }
    make = chance.choices(list(makers), list(makers.values()))[0]
    return _or_as_it_is(make, frame)


def _or_as_it_is(make: Callable[[pd.DataFrame], Any], frame: pd.DataFrame) -> Any:
    try:
        return make(frame)
    except Exception:  # libraries do not take every column
        return frame


LABELS: tuple[Callable[[pd.DataFrame], Any], ...] = (
    lambda frame: frame.set_axis([7] * len(frame)),
    lambda frame: frame.set_index("s"),
    lambda frame: frame.set_index(["g", "s"]),
    lambda frame: frame.rename(columns={"x": 7}),
    lambda frame: frame.rename(columns={"x": "y"}),
    lambda frame: frame.rename(columns={"x": ("x", 1)}),
    lambda frame: pd.concat([frame, frame[["y"]]], axis=1),
    lambda frame: frame.set_axis(pd.MultiIndex.from_product([["a"], list(frame)]), axis=1),
    lambda frame: frame.set_axis(pd.CategoricalIndex(list(frame)), axis=1),
    lambda frame: frame.iloc[::-1],
    lambda frame: frame[[]],
    lambda frame: frame["y"],
    lambda frame: frame.to_numpy(),
    lambda frame: frame.to_dict("list"),
)
"""Indexes and column names that a frame should not have, and what is no frame."""


def bounds(chance: random.Random) -> Any:
    """Bounds of the usual columns with an entry changed, or something else."""
    kind = chance.random()
    if kind < 0.15:
        return "from_data"
    if kind < 0.3:
        return chance.choice([None, {}, {"y": (0, 1)}, "from data", 3, [("y", (0, 1))]])
    numbers = (0, 1, -1, 0.5, *FLOATS, 10**400, 2**53, -1e-300)
    entries = [*ODD, ["a", "a"], ["b", "a", "c"]]
    entries += [(chance.choice(numbers), chance.choice(numbers)) for _ in range(len(ODD))]
    changed = {**BOUNDS, chance.choice(["y", "x", "g", "t", "z", 7]): chance.choice(entries)}
    if chance.random() < 0.3:
        changed.pop(chance.choice(["y", "x", "g"]), None)
    return changed
