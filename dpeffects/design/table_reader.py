"""Frame + Formula + Bounds -> columns that are checked where they are.

``read`` refuses what cannot be used, completes the bounds from types and public columns
(`dpeffects.design.design_builder`), and then looks at every row once. A `PrivateTable` clips and
encodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np

from dpeffects import dates
from dpeffects.arrays import FloatArray
from dpeffects.design import engines
from dpeffects.design.bounds import Bounds, DeclaredFrame
from dpeffects.design.columns import Columns, intervals_of, levels_of, refuse_missing
from dpeffects.design.design_builder import completed, kinds_of, uses
from dpeffects.design.engines import AnyFrame
from dpeffects.design.frames import as_frame, require_columns, require_numbers, unpack
from dpeffects.design.sample import AnalysisSample
from dpeffects.design.table import PrivateTable
from dpeffects.errors import BoundsError, DataError, refusal
from dpeffects.files import by_declaration, is_text, kind_of
from dpeffects.formula import Formula
from dpeffects.formula.condition import values_in
from dpeffects.formula.discrete import Strata
from dpeffects.formula.encoding import MISSING_LEVEL, Encoding
from dpeffects.formula.expression import Column, Missing, Ordered, columns, number_columns
from dpeffects.formula.ranges import clip


def read(
    data: Any,
    formula: Formula,
    bounds: Mapping[str, Any] | str | None,
    public: Iterable[str],
    *,
    sample: AnalysisSample | None = None,
    arguments: Mapping[str, Any] | None = None,
) -> PrivateTable:
    """Validate the columns that a formula needs and complete their bounds.

    ``public`` says whether "covariates" (or even the "outcome") are public, in which case their
    ranges and levels may be taken from the data at no cost. An empty arm is an error for the
    person who holds the data; a call for others works with it (`DeclaredFrame.interactive`).

    ``sample`` says which rows count, and by column what becomes of missing values: they are an
    "error" unless it says otherwise or the formula has ``is_na(x)``. With "indicator" a covariate
    gets a term ``is_na(x)`` or a further level; with "complete" and "weight" missing values come
    through, in rows of weight 0: numbers as NaN, treatments and levels as the first.

    ``arguments`` are those of the call that may name columns of the formula beside its text.
    """
    sample = sample or AnalysisSample()
    missing = {k: how for k, how in sample.policies.items() if k in formula.columns}
    read_here = (*formula.columns, *sample.columns)
    frame, known, from_data = unpack(data, bounds, read_here)
    schema = frame.collect_schema()
    for name in formula.columns:
        naming = (key for key, given in (arguments or {}).items() if name in str(given))
        who = "the formula" if name in formula.source else next(naming, "an argument")
        require_columns([name], list(schema), who)
    lenient = formula.flags | {name for name, how in missing.items() if how != "error"}
    for name, what in sample.columns.items():
        require_columns([name], list(schema), what)
    text = is_text(data.frame if isinstance(data, DeclaredFrame) else data)
    numbers_only = {} if sample.weights is None else {sample.weights: "number"}
    given, known = known, known.as_used(uses(formula, {} if text else schema) | numbers_only)
    match formula.outcome:
        case Column(name) if known.is_levels(name) and len(known[name]) == 2:
            formula = replace(formula, outcome=Ordered(name))  # 0 and 1; the second is the event
    if sample.weights is not None:
        sample = replace(sample, upper=_upper_weight(sample.weights, frame, known))
    kinds: dict[str, str] = {}
    if text:
        kinds = {**sample_kinds(sample, known), **kinds_of(formula, formula.columns, known)}
    kinds |= known.date_kinds(read_here)
    frame = _typed(frame, kinds, known, formula)
    sample.check_types(frame.collect_schema(), given)
    rows = engines.rows_in(frame)
    sizes = None if sample.unit is None else engines.unit_sizes(frame, sample)
    n = rows if sizes is None else sizes.names.size
    if n < 4:
        what = "rows" if sizes is None else f"values of {sample.unit!r}"
        raise DataError(f"the data has {n} {what}; at least 4 are needed")
    if isinstance(frame, nw.LazyFrame) and from_data:
        raise BoundsError(refusal("bounds_from_data"))
    free = "data" if from_data else None
    design = completed(
        frame,
        known,
        formula,
        n,
        lenient=lenient,
        indicated=[name for name, how in missing.items() if how == "indicator"],
        outcome=free or ("public" if "outcome" in public else None),
        covariates=free or ("public" if "covariates" in public else None),
    )
    table = PrivateTable.checked(frame, design, rows, (sample, sizes), kinds)
    if getattr(data, "interactive", True) is not False and not all(table.arm_counts):
        raise design.columns.empty_arm()
    return table


def strata_of(data: Any, formula: Formula, bounds: Any) -> Strata:
    """The groups that the covariates of a formula make, by declared levels; no row is read."""
    frame, known, _ = unpack(data, bounds, formula.columns)
    schema = frame.collect_schema()
    require_columns(formula.columns, list(schema), "by")
    text = is_text(data.frame if isinstance(data, DeclaredFrame) else data)
    known = known.as_used(uses(formula, {} if text else schema))
    if text:
        frame = by_declaration(frame, kinds_of(formula, formula.columns, known))
    return completed(frame, known, formula, 1, lenient=formula.flags).strata()


def _upper_weight(name: str, frame: AnyFrame, known: Bounds) -> float:
    """The declared upper bound of weights."""
    if name in known and not known.is_levels(name):
        lower, upper = known.interval(name)
        if lower >= 0.0 and upper > 0.0:
            return upper
    elif frame.collect_schema()[name] == nw.Boolean:
        return 1.0
    raise BoundsError(refusal("weights_bound", name=name))


def sample_kinds(sample: AnalysisSample, known: Bounds) -> dict[str, str]:
    """What the columns of a CSV file that say who counts are read as."""
    kinds = {} if sample.weights is None else {sample.weights: "number"}
    if sample.subset is not None:
        values, numeric = values_in(sample.subset), number_columns(sample.subset)
        for name in columns(sample.subset):
            levels = list(known[name]) if known.is_levels(name) else None
            levels = levels or list(values.get(name, ()))
            kinds.setdefault(name, "number" if name in numeric else kind_of(levels))
    names = {name: "text" for name in (sample.unit, sample.cluster) if name is not None}
    return names | kinds


def _typed(frame: Any, kinds: Mapping[str, str], known: Bounds, formula: Formula) -> Any:
    """Read text and dates as they are declared; refuse columns of other types."""
    dated, schema = known.date_kinds(kinds), frame.collect_schema()
    if isinstance(frame, nw.DataFrame):
        frame = dates.from_objects(frame, dated)
    for name in dated:
        dates.refuse_zone(name, schema[name])
        if not (dates.is_date(schema[name]) or schema[name] in (nw.String, nw.Object)):
            kind = type(schema[name]).__name__
            raise DataError(f"column {name!r} is declared with dates in bounds=, but it is {kind}")
    try:
        return engines.typed(frame, kinds) if kinds else frame
    except DataError:  # text in a column that a codebook names and does not declare
        known.refuse_blank(formula.columns)
        raise


def queries(
    data: Any, formula: Formula, bounds: Bounds, encoding: Encoding | None = None
) -> tuple[FloatArray, dict[str, int]]:
    """Encode the covariates of rows that are not private, such as points to predict at.

    Returns the encoded matrix, and how many values of each column lay outside its bounds and were
    clipped to them. Values may be missing where the formula or the levels have a place for them.
    """
    names, levels = formula.covariate_columns, levels_of(formula, bounds)
    further = {name for name, found in levels.items() if found[-1:] == (MISSING_LEVEL,)}
    lenient = (formula.flags | further) & set(names)
    frame, _, _ = unpack(as_frame(data, further), None, names)
    frame = frame.collect() if isinstance(frame, nw.LazyFrame) else frame
    if lacking := [name for name in names if name not in frame.columns]:
        raise DataError(f"the points (at=) have no column {lacking[0]!r}, which the formula uses")
    kinds = kinds_of(formula, names, bounds) if is_text(data) else {}
    kinds |= bounds.date_kinds(names)
    frame = engines.typed(dates.from_objects(frame, kinds), kinds)
    refuse_missing(frame, [name for name in names if name not in lenient])
    intervals = intervals_of(bounds.only(names))
    require_numbers(frame.schema, intervals)
    flags = tuple(map(Missing, formula.flags & lenient))
    reader = Columns("", None, tuple(intervals), levels, lenient, flags)
    numeric, coded = reader.read(frame, names)
    values = {name: numeric[name].astype(np.float64) for name in intervals}
    inside = {name: clip(values[name], ends) for name, ends in intervals.items()}
    clipped = {n: (x != inside[n]) & ~np.isnan(x) for n, x in values.items()}
    encoding = encoding or Encoding.build(formula, levels)
    matrix = encoding.matrix({**numeric, **inside}, coded, intervals)
    return matrix, {name: int(where.sum()) for name, where in clipped.items() if where.any()}


def names(formula: Formula, bounds: Bounds) -> tuple[str, ...]:
    """Return the names of the encoded columns."""
    return Encoding.build(formula, levels_of(formula, bounds)).names
