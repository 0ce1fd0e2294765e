"""Which rows count, and for how much: units, clusters, weights, a subset, complete records."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from numbers import Integral
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np

from dpeffects.arrays import FloatArray, IntArray
from dpeffects.dates import is_date
from dpeffects.design.bounds import Bounds
from dpeffects.design.columns import missing_in
from dpeffects.errors import (
    DataError,
    OptionError,
    advised,
    did_you_mean,
    listed,
    not_among,
    quoted,
    refusal,
    shorten,
)
from dpeffects.formula import Formula
from dpeffects.formula.condition import holds, read_condition, values_in
from dpeffects.formula.expression import Condition, columns, number_columns, render, show_name
from dpeffects.guarantee import counted, escaped, printed, rows_of
from dpeffects.lazy import pd
from dpeffects.privacy.units import UnitSizes, row_weights

MISSING = ("error", "indicator", "complete", "weight", "available")
"""What can be done about missing values of a column."""


def _can_be_one(name: str, known: Bounds) -> bool:
    """Whether 1 is among what a column could be, as far as it is declared."""
    if name not in known:
        return True
    if known.is_levels(name):
        return 1 in known[name]
    low, high = known.interval(name)
    return low <= 1.0 <= high


@dataclass(frozen=True)
class AnalysisSample:
    """Which rows count, and for how much.

    ``complete`` are columns without which a row is left out, ``observed`` those of an outcome
    whose absence is modelled, ``upper`` is the declared upper bound of the weights.
    """

    unit: str | None = None
    max_rows: int | None = None
    cluster: str | None = None
    weights: str | None = None
    upper: float = 1.0
    subset: Condition | None = None
    complete: tuple[str, ...] = ()
    observed: tuple[str, ...] = ()
    policies: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def asked(
        cls,
        formula: Formula,
        read: Collection[str] | None = None,
        *,
        unit: str | None = None,
        max_rows: int | None = None,
        cluster: str | None = None,
        missing: str | Mapping[str, str] = "error",
        weights: str | None = None,
        subset: str | None = None,
    ) -> AnalysisSample:
        """Check what a call asks for; ``read`` are the columns that the method reads."""
        for name, column in (("unit", unit), ("cluster", cluster), ("weights", weights)):
            if not (column is None or (isinstance(column, str) and column)):
                raise OptionError(f"{name} must be the name of a column, got {quoted(column)}")
            if column in formula.outcome_columns:
                raise OptionError(f"{name}={column!r} is the outcome; name another column")
        whole = isinstance(max_rows, Integral) and not isinstance(max_rows, bool)
        if not (max_rows is None or (whole and 1 <= max_rows <= 2**15)):
            raise OptionError("max_rows must be a whole number from 1 to 32768")
        if max_rows is not None and unit is None:
            raise OptionError("max_rows needs unit=: name the column that says whose row it is")
        if not (subset is None or isinstance(subset, str)):
            raise OptionError(refusal("subset_condition_text", got=quoted(subset)))
        policies = missing_by_column(missing, formula)
        policies = {k: x for k, x in policies.items() if read is None or k in read}
        of = {w: tuple(k for k, x in policies.items() if x == w) for w in MISSING}
        return cls(
            unit=unit,
            max_rows=max_rows,
            cluster=cluster,
            weights=weights,
            subset=None if subset is None else read_condition(subset),
            complete=of["complete"],
            observed=of["weight"],
            policies=policies,
        )

    @property
    def columns(self) -> dict[str, str]:
        """The columns that it reads beside the formula's, and what asks for each."""
        own = {self.unit: "unit", self.cluster: "cluster", self.weights: "weights"}
        subset = dict.fromkeys(columns(self.subset) if self.subset else (), "subset")
        return {**subset, **{name: what for name, what in own.items() if name is not None}}

    @property
    def read_columns(self) -> tuple[str, ...]:
        """All columns that weights are made of."""
        return tuple(dict.fromkeys([*self.columns, *self.complete, *self.observed]))

    @property
    def weighted(self) -> bool:
        """Whether rows do not all count 1."""
        return bool(self.unit or self.weights or self.subset or self.complete or self.observed)

    @property
    def size_is_public(self) -> bool:
        """Whether weights add up to n, whoever is in the data."""
        some = self.max_rows or self.weights or self.subset or self.complete or self.observed
        return not some

    @property
    def grouped(self) -> bool:
        """Whether a variance goes by squares of sums: of clusters, of units, of weighted rows."""
        return bool(self.unit or self.cluster or self.weights or self.observed)

    @property
    def unequal(self) -> bool:
        """Whether some that count may count less than others."""
        return bool(self.weights or self.max_rows or self.observed)

    def described(
        self, size: float | None = None, effective: float | None = None, clusters: str = ""
    ) -> dict[str, str]:
        """Say who counts, and for how much, by what asks for it.

        ``size`` is the released sum of the weights, ``effective`` Kish's effective size,
        ``clusters`` how many clusters there are.
        """
        said: dict[str, str] = {}
        who = "records" if self.unit is None else counted(rows_of(self.unit))
        if self.unit is not None:
            unit = printed(self.unit)
            once = f"each {unit} has the same weight, however many rows it has"
            many = f"each row has the same weight, up to {self.max_rows} rows of one {unit}"
            said["unit"] = once if self.max_rows is None else many
        if self.subset is not None:
            said["subset"] = f"subset {shorten(escaped(render(self.subset)[0]))}"
        if self.weights is not None:
            weights = f"survey or analysis weights {printed(self.weights)}"
            said["weights"] = (
                f"{weights}, from 0 to {self.upper:g}: the effect in the weighted population, its "
                "standard error by squares of weighted sums"
            )
        for word, what in advised("policies").items():
            if names := [name for name, policy in self.policies.items() if policy == word]:
                said[f"missing, {word}"] = what.format(listed(map(printed, names)))
        if size is not None:
            said["size"] = f"about {size:,.0f} {who} analysed (noisy)"
        if effective is not None:
            said["size"] = f"effective sample size about {effective:,.0f} {who} (Kish, noisy)"
        if self.cluster is not None and clusters:
            said["cluster"] = f"standard error by {printed(self.cluster)} (clusters: {clusters})"
        return said

    def check_types(self, schema: Mapping[str, Any], known: Bounds) -> None:
        """Refuse comparisons that no value of a column could meet, by its type or declaration."""
        for name, values in (values_in(self.subset) if self.subset else {}).items():
            texts = [isinstance(value, str) for value in values]
            if is_date(schema[name]):
                raise DataError(refusal("holds_dates", name=name))
            if schema[name] == nw.String and not any(texts):
                raise DataError(refusal("holds_text", name=name, shown=show_name(name)))
            if any(value is True for value in values) and not _can_be_one(name, known):
                raise DataError(refusal("never_one", name=name, shown=show_name(name)))
            if schema[name] == nw.Boolean and any(texts):
                raise DataError(f"column {name!r} is true or false: compare it with True or False")

    def own(self, frame: nw.DataFrame[Any]) -> FloatArray:
        """What each row counts by itself, from 0 to 1."""
        own = np.ones(len(frame))
        for name in self.complete:
            own[missing_in(frame[name])] = 0.0
        if self.weights is not None:
            column = frame[self.weights]
            if not (column.dtype.is_numeric() or column.dtype == nw.Boolean):
                raise DataError(f"weights {self.weights!r} must be a column of numbers")
            values = floats(column)
            if self.weights not in self.complete and np.isnan(values).any():
                raise DataError(refusal("missing_weights", name=self.weights))
            own *= np.clip(np.nan_to_num(values), 0.0, self.upper) / self.upper
        if self.subset is not None:
            names, numeric = columns(self.subset), number_columns(self.subset)
            arrays = {name: _compared(frame[name], name in numeric) for name in names}
            own[~holds(self.subset, arrays)] = 0.0
        return own

    def parts(self, frame: nw.DataFrame[Any], sizes: UnitSizes | None) -> dict[str, Any]:
        """The parts of a block that are made here: what each row counts, and whose it is."""
        found: dict[str, Any] = {}
        if self.unit is not None:
            found["unit"] = identifiers(frame[self.unit])
        if self.weighted:
            rows = None if sizes is None else sizes.of_rows(found["unit"])
            found["weight"] = row_weights(self.own(frame), rows, self.max_rows)
        if self.cluster is not None:
            found["cluster"] = identifiers(frame[self.cluster])
        if self.observed:
            found["observed"] = ~np.any([missing_in(frame[x]) for x in self.observed], axis=0)
        return found


def missing_by_column(
    missing: str | Mapping[str, str], formula: Formula, several: bool = False
) -> dict[str, str]:
    """What is done about missing values, by column of the formula.

    One word is for all columns that it has a meaning for: "indicator" for covariates, "weight" for
    the outcome, "available" where there are ``several``, "complete" for all.
    """
    outcome, treatment = set(formula.outcome_columns), formula.treatment_columns
    covariates = set(formula.covariate_columns)
    known = dict.fromkeys(formula.columns, "error")
    if isinstance(missing, str):
        _check_word("missing", missing, several)
        able = {"indicator": covariates, "weight": outcome, "error": set(), "available": outcome}
        return known | dict.fromkeys(able.get(missing, set(known)), missing)
    if not isinstance(missing, Mapping):
        raise OptionError(refusal("missing_type", kind=type(missing).__name__))
    for name, word in missing.items():
        _check_word(f"missing[{name!r}]", word, several)
        if name not in known:
            hint = did_you_mean(name, known) or f" It has {listed(known)}."
            raise OptionError(refusal("missing_not_in", name=name, hint=hint))
        if word == "indicator" and name not in covariates:
            what = "treatment" if name in treatment else "outcome"
            raise OptionError(refusal("missing_indicator_covariates", name=name, what=what))
        if word in ("weight", "available") and name not in outcome:
            raise OptionError(f'missing[{name!r}]: "{word}" is for the outcome only')
    return known | {str(name): word for name, word in missing.items()}


def _check_word(what: str, word: Any, several: bool) -> None:
    """Refuse a word that a call has no meaning for."""
    known = [name for name in MISSING if name != ("weight" if several else "available")]
    if not (isinstance(word, str) and word in known):
        raise OptionError(not_among(what, word, known) + advised("missing").get(str(word), ""))


def floats(column: nw.Series[Any]) -> FloatArray:
    """Numbers, NaN where they are missing."""
    values = column.cast(nw.Float64).to_numpy()
    return np.asarray(values, np.float64)


def _compared(column: nw.Series[Any], number: bool) -> Any:
    """A column as conditions compare it."""
    if number or column.dtype.is_numeric():
        if not (column.dtype.is_numeric() or column.dtype == nw.Boolean):
            raise DataError(refusal("compared_as_number", name=column.name))
        return floats(column)
    values = np.empty(len(column), object)
    missing = missing_in(column)
    values[:] = [None if gone else x for x, gone in zip(column.to_list(), missing, strict=True)]
    return values


def identifiers(column: nw.Series[Any]) -> IntArray:
    """A whole number for each value, the same for equal values: names of units or clusters."""
    if missing_in(column).any():
        raise DataError(refusal("missing_identifiers", name=column.name))
    whole = column.dtype.is_integer() and column.dtype not in (nw.Int128, nw.UInt128, nw.UInt64)
    if whole or column.dtype in (nw.Datetime, nw.Duration):
        return column.cast(nw.Int64).to_numpy().astype(np.int64)
    if column.dtype.is_float():
        if (abs(values := floats(column) + 0.0) >= 2.0**53).any():  # -0 is 0
            raise DataError(refusal("column_numbers_too", name=column.name))
        return values.view(np.int64)
    values = np.empty(len(column), object)
    found = column.to_list()
    values[:] = found if column.dtype == nw.String else [_text(value) for value in found]
    return pd.util.hash_array(values, categorize=False).view(np.int64)


def _text(value: Any) -> str:
    """A text for each value, whatever is beside it; the same for numbers that are equal."""
    if isinstance(value, int | float | Decimal) and math.isfinite(value) and value == int(value):
        return str(int(value))
    return str(value)
