"""Neighbouring datasets on which mechanisms that are not private give themselves away.

Every pair differs in one record, or in all rows of one unit. They are small, so that one record
matters, and extreme, so that sensitivities are attained: a method whose noise is exactly enough
loses nearly all of epsilon on some of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np

from dpeffects.errors import OptionError
from dpeffects.formula import parse
from dpeffects.lazy import pd

BOUNDS: dict[str, Any] = {"y": (0.0, 1.0), "x": (0.0, 1.0), "g": ["a", "b"]}
"""Bounds of the library: outcome y, treatment t, covariates x (a number) and g (two levels)."""
_ROLES = {"y": "outcome", "t": "treatment", "x": "covariates", "g": "covariates"}
_LARGE = 1e16


@dataclass(frozen=True)
class Neighbours:
    """Two frames that differ in one record, or in the rows of one unit, and how to read them."""

    name: str
    about: str
    one: Any
    other: Any
    bounds: Mapping[str, Any] | str | None
    formula: str | None = None

    @cached_property
    def changes(self) -> frozenset[str]:
        """Columns in which the two differ."""
        return frozenset(
            str(name) for name in self.one.columns if not self.one[name].equals(self.other[name])
        )


def neighbours(
    public: Iterable[str], sample: Mapping[str, Any] = MappingProxyType({})
) -> list[Neighbours]:
    """Return the pairs that differ only in what is private: neither of "treatment", "covariates".

    ``sample`` names the columns of units, clusters and weights, and what else decides which rows
    count: then there are pairs for that too.

    Examples
    --------
    >>> [pair.name for pair in neighbours({"treatment", "covariates"})][:2]
    ['outcome', 'outcome, middle to end']
    """
    known = set(public)
    found = [p for p in _all() if p.changes and not {_ROLES[c] for c in p.changes} & known]
    return [*(_counted(p, sample) for p in found), *_own_counts(sample)] if sample else found


def _all() -> list[Neighbours]:
    even, crowd, many = _frame(12, 6), _frame(26, 5), _frame(240, 120)
    ties = even.assign(x=0.5)
    lone, mixed = _frame(26, 1), even.assign(g=["a"] * 11 + ["b"])
    return [
        _pair("outcome", "an outcome goes from one end to the other", even, {"y": (0, 1)}),
        _pair("outcome, middle to end", "and from the middle to an end", even, {"y": (0.5, 1)}),
        _pair("few treated", "the outcome of one of 5 treated among 26", crowd, {"y": (0, 1)}),
        _pair("one treated", "the outcome of the only treated of 26", lone, {"y": (0, 1)}),
        _pair("ties", "an outcome; all covariates are equal", ties, {"y": (0, 1)}),
        _pair("beyond the bounds", "outcomes of -1e9 and 1e9", even, {"y": (-1e9, 1e9)}),
        _large_offset(many),
        _pair("arm", "a record with an extreme outcome changes arm", even, _arm(y=(1, 1))),
        _pair("arm and outcome", "and its outcome too", even, _arm(y=(0, 1))),
        _pair("arm, few treated", "one of 5 treated leaves them", crowd, _arm(y=(1, 1))),
        _pair("covariate", "a covariate goes from one end to the other", even, {"x": (0, 1)}),
        _pair("outlier", "a covariate of -1e9 or 1e9", even, {"x": (-1e9, 1e9)}),
        _pair("arm and covariate", "both at an extreme outcome", even, _arm(y=(1, 1), x=(0, 1))),
        _pair("arm, at one end", "a record at x = 1 changes arm", even, _arm(y=(1, 1), x=(1, 1))),
        _pair("everything", "all columns of a record", even, _arm(y=(1, 0), x=(0, 1))),
        _pair("second record", "the same of another record", even, _arm(y=(0, 0)), row=1),
        _pair("many records", "arm and covariate of one of 240", many, _arm(y=(1, 1), x=(0, 1))),
        _pair("stratum of one", "a record joins a lone one", mixed, {"y": (1, 1), "g": ("a", "b")}),
        _between_strata(),
    ]


_HEAVIEST = 4.0
_PEOPLE = 240
"""Enough for an estimate where the number of records that count is released first."""


def _counted(pair: Neighbours, sample: Mapping[str, Any]) -> Neighbours:
    """A pair of the library with the columns of a sample; each record is a unit of its own."""
    one, other = (_with_columns(frame, sample) for frame in (pair.one, pair.other))
    return replace(pair, one=one, other=other, bounds=_with_weights(pair.bounds, sample))


def _with_weights(bounds: Any, sample: Mapping[str, Any]) -> Any:
    weights = sample.get("weights")
    return {**bounds, weights: (0.0, _HEAVIEST)} if weights else bounds


def _with_columns(frame: Any, sample: Mapping[str, Any]) -> Any:
    index = np.arange(1, len(frame) + 1)
    made = {"unit": index, "cluster": index // 4, "weights": 1.0 + index % 3}
    return frame.assign(**{sample[k]: v for k, v in made.items() if sample.get(k)})


def _own_counts(sample: Mapping[str, Any]) -> list[Neighbours]:
    """Pairs that change who counts, for how much, and with whom.

    In these, rows of one unit, or one record, are replaced by others; where the frame has no unit
    the record is one row.
    """
    low = {"y": 0.0, "t": False, "x": 0.0, "g": "a"}
    high = {"y": 1.0, "t": True, "x": 1.0, "g": "b"}
    pairs: list[tuple[str, str, list[Any], list[Any]]] = []
    if sample.get("unit"):
        spread = [{**low, "t": t, "y": y, "g": g} for t, y, g in _CORNERS]
        pairs += [
            ("unit", "all rows of a unit, from one end to the other", [low] * 3, [high] * 3),
            ("unit, one row or many", "one row against seven at the other end", [low], [high] * 7),
            ("unit, far more rows", "one row against 60", [high], [low] * 60),
            ("unit, spread", "rows of one arm against rows of all arms", [high], spread),
            ("unit, arm", "a unit changes its arm", [high] * 3, [{**high, "t": False}] * 3),
        ]
    if cluster := sample.get("cluster"):
        there, alone = {**high, cluster: 1}, {**high, cluster: -1}
        pairs += [
            ("cluster", "a record goes to another cluster", [{**high, cluster: 2}], [there]),
            ("cluster of one", "and to one that nobody else is in", [there], [alone]),
        ]
    if weights := sample.get("weights"):
        light, heavy = {**high, weights: 0.0}, {**high, weights: _HEAVIEST}
        least, most = {**high, weights: -1e9}, {**low, weights: 1e9}
        pairs += [
            ("weight", "a record that did not count has the largest weight", [light], [heavy]),
            ("weight beyond its bound", "weights of -1e9 and 1e9", [least], [most]),
        ]
    if sample.get("subset"):
        other = {**high, "x": 0.0, "g": "a"}
        pairs.append(("subset", "a record enters the subset, or leaves it", [high], [other]))
    if sample.get("missing"):
        gone, no_x = {**high, "y": np.nan}, {**high, "x": np.nan}
        pairs += [
            ("missing outcome", "the outcome of a record is missing", [high], [gone]),
            ("missing covariate", "a covariate of a record is missing", [high], [no_x]),
        ]
    base = _with_columns(_frame(_PEOPLE, _PEOPLE // 2), sample)
    return [_replaced(name, about, base, rows, sample) for name, about, *rows in pairs]


_CORNERS = [(t, y, g) for t in (False, True) for y in (0.0, 1.0) for g in ("a", "b")]


def _replaced(
    name: str, about: str, base: Any, rows: list[Any], sample: Mapping[str, Any]
) -> Neighbours:
    """Two frames with other rows of one unit, after all the others."""
    place = {"cluster": 2, "weights": 1.0, "unit": 0}
    own = {sample[k]: v for k, v in place.items() if sample.get(k)}
    one, other = (
        pd.concat([base, pd.DataFrame([{**own, **row} for row in some])], ignore_index=True)
        for some in rows
    )
    return Neighbours(name, about, one, other, _with_weights(BOUNDS, sample))


def _frame(n: int, treated: int) -> Any:
    """Records with alternating extreme outcomes; the first record is treated."""
    index = np.arange(n)
    return pd.DataFrame(
        {
            "y": index % 2.0,
            "t": index < treated,
            "x": (index * 7 % n) / max(n - 1, 1),
            "g": np.where(index % 4 < 2, "a", "b"),
        }
    )


def _arm(**values: Any) -> dict[str, Any]:
    return {"t": (True, False), **values}


def _pair(name: str, about: str, base: Any, record: Mapping[str, Any], row: int = 0) -> Neighbours:
    """One record takes the first values in one frame, the second values in the other."""
    one, other = base.copy(), base.copy()
    for column, (first, second) in record.items():
        one.loc[row, column], other.loc[row, column] = first, second
    return Neighbours(name, about, one, other, BOUNDS)


def _large_offset(base: Any) -> Neighbours:
    """Outcomes near 1e16 within a range of 8: where float sums over an arm jump by far more."""
    treated = base["t"].to_numpy()
    for high in range(len(base)):
        one = _LARGE + 8.0 * ((np.arange(len(base)) > 0) & (np.arange(len(base)) <= high))
        other = np.where(np.arange(len(base)) == 0, _LARGE + 8.0, one)
        if abs(other[treated].sum() - one[treated].sum()) > 64.0:
            break
    bounds = {**BOUNDS, "y": (_LARGE, _LARGE + 8.0)}
    about = "outcomes near 1e16 within a range of 8"
    return Neighbours("large offset", about, base.assign(y=one), base.assign(y=other), bounds)


def _between_strata() -> Neighbours:
    """The worst case of exact matching: a pair loses its treated record to a crowd of controls."""
    n = 20
    base = pd.DataFrame(
        {
            "y": [1.0, 0.0] + [1.0] * (n - 2),
            "t": [True] + [False] * (n - 1),
            "x": 0.5,
            "g": ["a", "a"] + ["b"] * (n - 2),
        }
    )
    about = "a matched record leaves for a crowd"
    return _pair("between strata", about, base, {"y": (1, 0), "g": ("a", "b")})


def own_pairs(
    given: Any, formula: str | None, bounds: Any, public: Iterable[str], unit: str | None = None
) -> list[Neighbours]:
    """Check pairs of frames given by a user: neighbours that differ in private columns only."""
    listed = isinstance(given, list | tuple)
    if not listed or not all(isinstance(p, list | tuple) and len(p) == 2 for p in given):
        raise OptionError("pairs must be a list of pairs of frames: [(data, neighbour), ...]")
    checked = []
    for k, frames in enumerate(given):
        one, other = (_as_pandas(frame) for frame in frames)
        if unit is None:
            _require_neighbours(one, other, f"pairs[{k}]")
        else:
            _require_one_unit(one, other, unit, f"pairs[{k}]")
        pair = Neighbours(f"own pair {k}", "given", one, other, bounds, formula)
        _require_private(pair, formula, frozenset(public), f"pairs[{k}]")
        checked.append(pair)
    return checked


def _require_private(
    pair: Neighbours, formula: str | None, public: frozenset[str], who: str
) -> None:
    if formula is None:
        return
    read = parse(formula)
    known = {"treatment": set(read.treatment_columns), "covariates": set(read.covariate_columns)}
    for what in sorted(public & known.keys()):
        if both := sorted(pair.changes & known[what]):
            raise OptionError(f"{who}: the {what} ({', '.join(both)}) is public in this audit")


def _as_pandas(frame: Any) -> Any:
    import narwhals.stable.v2 as nw

    from dpeffects.design.bounds import DeclaredFrame

    frame = frame.frame if isinstance(frame, DeclaredFrame) else frame
    try:
        return nw.from_native(frame, eager_only=True).to_pandas().reset_index(drop=True)
    except TypeError:
        raise OptionError(f"pairs must hold frames, not {type(frame).__name__}") from None


def _require_neighbours(one: Any, other: Any, who: str) -> None:
    if list(one.columns) != list(other.columns) or len(one) != len(other):
        raise OptionError(f"{who}: neighbours have the same columns and the same number of rows")
    differs = np.zeros(len(one), dtype=np.bool_)
    for name in one.columns:
        a, b = one[name], other[name]
        differs |= ~((a == b) | (a.isna() & b.isna())).to_numpy(dtype=np.bool_)
    if differs.sum() != 1:
        raise OptionError(
            f"{who}: neighbours in the same order differ in one record, not in {int(differs.sum())}"
        )


def _require_one_unit(one: Any, other: Any, unit: str, who: str) -> None:
    """Neighbours have as many units, and all but one of these have the same rows."""
    if list(one.columns) != list(other.columns) or unit not in one.columns:
        raise OptionError(f"{who}: neighbours have the same columns, {unit!r} among them")
    first, second = (
        {name: Counter(map(repr, rows.itertuples(index=False))) for name, rows in f.groupby(unit)}
        for f in (one, other)
    )
    differ = [
        sum(a.get(name) != b.get(name) for name in a) for a, b in ((first, second), (second, first))
    ]
    if len(first) != len(second) or differ != [1, 1]:
        raise OptionError(
            f"{who}: neighbours have as many values of {unit!r}, and differ in the rows of one"
        )
