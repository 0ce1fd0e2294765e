"""Results that are made of one released table: it is kept, and whatever it gives costs nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dpeffects.arrays import FloatArray
from dpeffects.inference import intervals as inference
from dpeffects.inference.estimate import Estimate, Unavailable
from dpeffects.inference.intervals import Interval
from dpeffects.inference.noisy import noise_ratio, ratio_of
from dpeffects.inference.tables import ArmTable, Confounding, Functional
from dpeffects.results.export import effect_row, or_nan
from dpeffects.results.several import Based, SeveralRows
from dpeffects.summary import draw

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Term:
    """One number that a table gives: its name, and its estimate on the scale of its error.

    ``scale`` says where its error is about normal: "plain", as it is, or "log", of its logarithm.
    A term whose ``tested`` is False is no effect, such as the mean of one arm: there is nothing to
    test.
    """

    name: str
    released: Estimate
    scale: str = "plain"
    tested: bool = True

    def _shown(self, value: float) -> float:
        """A number on the scale of the error, as it is shown."""
        return math.exp(min(value, 700.0)) if self.scale == "log" else value

    @property
    def estimate(self) -> float:
        """The number."""
        return self._shown(self.released.point)

    @property
    def std_error(self) -> float | Unavailable:
        """Its standard error, by the delta method where the scale is logarithmic."""
        found = inference.std_error(self.released)
        if isinstance(found, Unavailable) or self.scale == "plain":
            return found
        return found * self.estimate

    def conf_int(self, conf_level: float = 0.95) -> Interval | Unavailable:
        """Its confidence interval: sampling error and noise."""
        found = inference.interval(self.released, conf_level)
        if isinstance(found, Unavailable):
            return found
        return Interval(self._shown(found.lower), self._shown(found.upper), conf_level)

    @property
    def p_value(self) -> float | Unavailable:
        """Two-sided p-value of no effect: a difference of 0, or a ratio of 1."""
        if not self.tested:
            return Unavailable("this is no effect")
        return inference.p_value(self.released)

    def row(self, conf_level: float = 0.95) -> dict[str, Any]:
        """The number as a row of `tidy`."""
        interval, p_value = self.conf_int(conf_level), or_nan(self.p_value)
        row = effect_row(self.estimate, self.std_error, p_value, interval, term=self.name)
        of_log = noise_ratio(math.sqrt(self.released.noise_variance), value=1.0)
        return row | {"noise_ratio": of_log if self.scale == "log" else ratio_of(self.released)}


@dataclass(frozen=True)
class Tabled:
    """What a method hands back: the class of the result, its own fields, notes and details."""

    kind: type[TableEffects]
    fields: Mapping[str, Any]
    notes: tuple[str, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)

    def with_weights(self, unequal: float) -> Tabled:
        """The same where records have weights, whose mean square is so many times their mean."""
        table = self.fields["table"].with_weights(unequal)
        return replace(self, fields={**self.fields, "table": table})


@dataclass(frozen=True, repr=False, kw_only=True)
class TableEffects(Based, SeveralRows, words="about_tables", pictures="plots.intervals"):
    """Numbers that are all made of one noisy table of records by arm.

    Parameters
    ----------
    table
        The released counts. What else they give is post-processing: it costs nothing.
    stands_on
        What entitles differences to be called effects: one of `BASES`.
    warning
        What nobody should overlook, of the method's own.
    allowed
        Of associations, what an effect's interval would allow for confounding: a guess, which
        `conf_int_of_effect` has, and no other interval.
    """

    table: ArmTable
    stands_on: str = ""
    warning: str = ""
    allowed: Confounding | None = None

    def __post_init__(self) -> None:
        aside = getattr(self.table, "confounding", None)
        if self.associated and aside is not None:
            object.__setattr__(self, "allowed", aside)
            object.__setattr__(self, "table", replace(self.table, confounding=None))

    def terms(self) -> Sequence[Term]:
        """The numbers that `tidy` and the summary have."""
        raise NotImplementedError

    def term(
        self,
        name: str,
        functional: Functional,
        scale: str = "plain",
        possible: tuple[float, float] | None = None,
        tested: bool = True,
    ) -> Term:
        """A number that the table gives, by a functional of the two distributions over cells."""
        law = self.table.law(functional)
        return Term(name, self._based(law.estimate(possible=possible)), scale, tested)

    def _based(self, estimate: Estimate) -> Estimate:
        return replace(estimate, basis=self.stands_on)

    def conf_int(self, conf_level: float = 0.95) -> FloatArray:
        """Intervals, one row for each term of `tidy`."""
        found = [term.conf_int(conf_level) for term in self.terms()]
        none = (math.nan, math.nan)
        return np.array([none if isinstance(x, Unavailable) else tuple(x) for x in found])

    def conf_int_of_effect(self, conf_level: float = 0.95) -> FloatArray:
        """Intervals for effects, where these are associations: with `allowed` for confounding."""
        if self.allowed is None:
            return self.conf_int(conf_level)
        table = replace(self.table, confounding=self.allowed)
        return replace(self, table=table, stands_on="", allowed=None).conf_int(conf_level)

    def tidy(self, conf_level: float = 0.95) -> pd.DataFrame:
        """One row for each number, its name in ``term``; what is not available is NaN."""
        return self._frame([term.row(conf_level) for term in self.terms()])

    def plot(self, conf_level: float = 0.95, *, ax: Any = None) -> Any:
        """Draw what the table gives; return the axes (matplotlib)."""
        return draw(self, conf_level=conf_level, ax=ax)

    def __repr__(self) -> str:
        return self._head(f"of {self.outcome}")
