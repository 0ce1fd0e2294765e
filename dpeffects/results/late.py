"""LateEffect: the effect among those who are treated because of an instrument."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from dpeffects.inference import scales
from dpeffects.inference.estimate import Unavailable
from dpeffects.inference.intervals import NO_TEST, Interval
from dpeffects.inference.late import Wald
from dpeffects.results.tabled import TableEffects, Term

WEAK = "WEAK INSTRUMENT: it may have little or no effect on treatment; read the interval alone"
"""Said where the first stage is not clearly there."""


@dataclass(frozen=True)
class LateTerm(Term):
    """The effect among compliers: its interval is what a test of it does not reject."""

    wald: Wald = field(kw_only=True)

    @property
    def estimate(self) -> float:
        """The effect, within what it can be."""
        return self.wald.value

    @property
    def std_error(self) -> float | Unavailable:
        """Its standard error, by the delta method."""
        return self.wald.std_error

    @property
    def p_value(self) -> float | Unavailable:
        """P-value of no effect among compliers, by the interval."""
        return Unavailable(NO_TEST) if self.released.associated else self.wald.no_effect

    def conf_int(self, conf_level: float = 0.95) -> Interval:
        """From the lowest to the highest effect that is not rejected."""
        pieces = self.wald.region(conf_level)
        return Interval(pieces[0].lower, pieces[-1].upper, conf_level)


@dataclass(frozen=True, repr=False, kw_only=True)
class LateEffect(TableEffects, words="about_late"):
    """The effect among compliers, from two released effects of an instrument.

    Parameters
    ----------
    table
        The effect of the instrument on the outcome less a multiple of treatment, that on treatment,
        and what is known of their errors.
    instrument
        The column of the instrument.

    Examples
    --------
    >>> import dpeffects as dpe
    >>> import numpy as np, pandas as pd
    >>> z = np.arange(4000) % 2
    >>> d = z * (np.arange(4000) % 5 < 3)
    >>> data = pd.DataFrame({"z": z, "d": d, "y": 0.2 + 0.5 * d})
    >>> fit = dpe.dp_late("y ~ d", data, instrument="z", bounds={"y": (0, 1)}, epsilon=4, seed=1)
    >>> fit.tidy()["term"].tolist()
    ['late', 'first_stage', 'reduced_form', 'always_takers', 'never_takers']
    """

    table: Wald  # type: ignore[assignment]
    instrument: str = ""

    @property
    def estimate(self) -> float:
        """The effect among compliers."""
        return self.table.value

    @property
    def std_error(self) -> float | Unavailable:
        """Its standard error, by the delta method; the interval does not rest on it."""
        return self.table.std_error

    @cached_property
    def p_value(self) -> float | Unavailable:
        """P-value of no effect among compliers, by `conf_int`: that of the row ``late``."""
        return self.terms()[0].p_value

    def region(self, conf_level: float = 0.95) -> tuple[Interval, ...]:
        """Effects among compliers that a test does not reject, in one piece or two (Fieller)."""
        return self.table.region(conf_level)

    def shape(self, conf_level: float = 0.95) -> str:
        """What that is: "interval", "half" (no limit to one side), "outside" or "everything".

        "outside" has two pieces: all but some effects in the middle. A limit is one that the data
        give; those of the declared range of the outcome hold in any case.
        """
        pieces, (low, high) = self.region(conf_level), self.table.possible
        open_ends = (pieces[0].lower <= low) + (pieces[-1].upper >= high)
        if len(pieces) > 1:
            return "outside"
        return ("interval", "half", "everything")[open_ends]

    def conf_int(self, conf_level: float = 0.95) -> Interval:  # type: ignore[override]
        """From the lowest to the highest effect that is not rejected; see `region`."""
        return self.terms()[0].conf_int(conf_level)  # type: ignore[return-value]

    def terms(self) -> Sequence[Term]:
        """The effect among compliers, both effects of the instrument, and who takes treatment."""
        table, based = self.table, self._based
        reduced = based(table.at(0.0))
        found = [
            LateTerm("late", reduced, wald=table),
            Term("first_stage", based(table.first)),
            Term("reduced_form", reduced),
        ]
        if (means := table.first.means) is not None:
            always = scales.of_mean(means, treated=False)
            never = replace(means.combined(-1.0, 0.0), possible=(0.0, 1.0))
            never = replace(never, value=1.0 + never.value)
            found += [
                Term("always_takers", based(always), tested=False),
                Term("never_takers", based(never), tested=False),
            ]
        return found

    @property
    def doubts(self) -> str:
        """What nobody should overlook about the estimates; empty when all is well."""
        return "; ".join(filter(None, (super().doubts, WEAK if self.table.weak else "")))

    def __repr__(self) -> str:
        return self._head(f"of {self.treatment} on {self.outcome}, by {self.instrument}")
