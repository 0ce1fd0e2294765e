"""Results of conditional effects: a function, effects at points, effects by group."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike
from statistics import NormalDist
from typing import Any, Self

import numpy as np

from dpeffects import documents
from dpeffects.arrays import FloatArray
from dpeffects.design import table_reader as design
from dpeffects.design.bounds import Bounds
from dpeffects.design.points import point_columns, point_labels
from dpeffects.errors import OptionError, quoted
from dpeffects.formula import Formula, parse
from dpeffects.inference import intervals as inference
from dpeffects.inference.estimate import Effects, Unavailable, with_another
from dpeffects.lazy import pd
from dpeffects.results import wording
from dpeffects.results.effect_function import EffectFunction
from dpeffects.results.export import TIDY, frame_of, require
from dpeffects.results.number_format import number, with_ends
from dpeffects.results.several import Labels, SeveralEffects, SeveralRows
from dpeffects.summary import Block, Pairs, Summary, Table, draw, show

_COVERS = ("noise", "effect")
_SAID = wording.said("conditional")
_THERE = 0
"""Any value, for a covariate of which only is_na(x) is read."""
_TITLE = "Conditional average treatment effects (CATE), {0._private}"
_COVARIATES = 6
"""Covariates in a summary."""
Points = int | Mapping[str, Sequence[Any]]
"""Values of covariates to show, or how many."""


@dataclass(frozen=True, repr=False, kw_only=True)
class CateFunction(
    SeveralRows, documents.FileDocument, picture="report.plots.interval_plots.curve"
):
    """A released effect function: query it as often as you like, save it, plot it.

    Parameters
    ----------
    function
        The released numbers.
    space
        Declared ranges and levels of the covariates; queries are clipped to them.
    """

    FORMAT = "dpeffects effect function"
    _titled = _TITLE
    function: EffectFunction
    space: Bounds

    @classmethod
    def _made(cls, released: EffectFunction, estimation: Any, about: dict[str, Any]) -> Self:
        """The result of an estimation, with what all results say about themselves."""
        design, details = estimation.design, released.details
        space = design.bounds.only(design.formula.covariate_columns)
        return cls(function=released, space=space, details=details, **about)

    @cached_property
    def _formula(self) -> Formula:
        return replace(parse(self.formula), intercept=True)

    @property
    def covariates(self) -> tuple[str, ...]:
        """Columns that the effect is a function of."""
        return self._formula.covariate_columns

    def _encoded(self, newdata: Any) -> FloatArray:
        matrix, clipped = design.queries(newdata, self._formula, self.space)
        for name, count in clipped.items():
            values = f"{count} value{'s' if count > 1 else ''}"
            warnings.warn(
                f"{values} of {name!r} outside the declared range {self.space.describe(name)} "
                "clipped to it: the function is not known beyond",
                stacklevel=3,
            )
        return matrix

    def effect(self, newdata: Any) -> FloatArray:
        """Return the effect at each row of a frame (or mapping of columns) with the covariates.

        The same query gets the same answer, alone or in a batch. Values outside the declared
        ranges are clipped to them, with a warning.
        """
        return self.function(self._encoded(newdata))

    def bands(self, newdata: Any, conf_level: float = 0.95, covers: str = "effect") -> pd.DataFrame:
        """Return effects with pointwise bands.

        ``covers="noise"``: where the function would be if the same computation, with the same
        penalties and thresholds, had drawn no noise. ``covers="effect"``: noise, sampling error,
        shrinkage, and confounding that shrunk models of treatment and outcome may leave; like the
        bands of a smoothing spline it holds on average over points, for effects that vary no more
        than the penalty is planned for.

        No band allows for steps and turns that are sharper than the kernel's `bandwidths`: near a
        step of the effect bands miss it. Single points are worst at the ends of the declared ranges
        and where records are few (`quantiles`).
        """
        from scipy.special import ndtri

        if not isinstance(covers, str) or covers not in _COVERS:
            raise OptionError(f'covers must be "noise" or "effect", got {covers!r}')
        if covers == "effect" and self.function.variation is None:
            raise OptionError('variance=False was asked for: only covers="noise" is available')
        inference.check_conf_level(conf_level)
        rows = self._encoded(newdata)
        effect, sd = self.function(rows), self.function.sd(rows, covers)
        half = float(ndtri(0.5 + conf_level / 2.0)) * sd
        columns = {"effect": effect, "std_dev": sd, "conf_low": effect - half}
        return frame_of(columns | {"conf_high": effect + half, "covers": covers})

    @cached_property
    def bandwidths(self) -> dict[str, float]:
        """Bandwidth of the kernel along each covariate, in its units; empty for a linear function.

        Effects that change within less than this are smoothed out. Covariates that enter by a
        transformation or by levels have none.
        """
        along = self.function.bandwidths
        ends = {name: self.space.interval(name) for name in (self._plain if along.size else ())}
        return {name: along[self._plain[name]] * (high - low) for name, (low, high) in ends.items()}

    @cached_property
    def _plain(self) -> dict[str, int]:
        """Covariates that are a term of their own, and where: the released histogram is theirs."""
        terms = design.names(self._formula, self.space)[1:]
        numeric = [name for name in self.covariates if not self.space.is_levels(name)]
        return {name: terms.index(name) for name in numeric if name in terms}

    def quantiles(self, column: str, shares: Sequence[float] | FloatArray) -> FloatArray:
        """Values of a covariate that these shares of the records lie below.

        They are read off the released histogram of the covariate, so they cost nothing. A covariate
        that enters by a transformation, or a release without ``variance``, has no histogram: then
        they spread evenly over the declared range.
        """
        low, high = self.space.interval(column)
        where = np.asarray(shares, dtype=np.float64)
        if column in self._plain:
            where = self.function.quantiles(self._plain[column], where)
        return np.asarray(low + (high - low) * where)

    def records(self, column: str) -> pd.DataFrame | Unavailable:
        """Shares of records by bin of a covariate (``low``, ``high``), or by its levels.

        They are read off released numbers, so they cost nothing. A covariate that enters by a
        transformation, or a release without ``variance``, has none.
        """
        none = Unavailable("no histogram of this covariate was released")
        if self.function.variation is None:
            return none
        if column in self._plain:
            shares = self.function.margins[self._plain[column]]
            edges = np.linspace(*self.space.interval(column), len(shares) + 1)
            return frame_of({"low": edges[:-1], "high": edges[1:], "share": shares})
        shares = self._level_shares(column)
        return frame_of({"level": self.space[column], "share": shares}) if shares else none

    def _level_shares(self, column: str) -> list[float]:
        """Shares of records by level; empty where levels are no terms of their own."""
        if column not in self.space or not self.space.is_levels(column):
            return []
        terms = design.names(self._formula, self.space)[1:]
        own = [f"{column}[T.{level}]" for level in self.space[column][1:]]
        if not set(own) <= set(terms):
            return []
        shares = [float(self.function.margins[terms.index(term), -1]) for term in own]
        return [max(1.0 - sum(shares), 0.0), *shares]

    def curve(
        self,
        column: str,
        points: int | Sequence[float] = 101,
        at: Mapping[str, Any] | None = None,
        conf_level: float = 0.95,
        covers: str | None = None,
    ) -> pd.DataFrame:
        """Return effects and bands along one covariate.

        ``points`` are its values, or how many there are, evenly over the declared range. The others
        are at the values in ``at``, else at their median or most frequent level, as released.
        """
        covers = covers or self._widest
        grid = self._grid(column, points, at)
        bands = self.bands(grid, conf_level, covers)
        bands.insert(0, column, grid[column])
        return bands

    @property
    def _widest(self) -> str:
        """What bands can cover."""
        return "effect" if self.function.variation is not None else "noise"

    def _grid(
        self, column: str, points: int | Sequence[float], at: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        few = isinstance(points, int) and (isinstance(points, bool) or points < 2)
        if few or isinstance(points, str) or not (isinstance(points, int) or np.size(points)):
            raise OptionError(f"points must be values, or a number from 2 on, got {quoted(points)}")
        if at is not None and not isinstance(at, Mapping):
            raise OptionError(f"at maps covariates to one value each, got {quoted(at)}")
        names, at = self.covariates, dict(at or {})
        for name in (column, *at):
            if name not in names:
                raise OptionError(f"{name!r} is not a covariate; there are {', '.join(names)}")
        for name, value in at.items():
            if np.ndim(value) != 0:
                raise OptionError(f"at[{name!r}] must be one value, got {quoted(value)}")
        if not isinstance(points, int):
            values: list[Any] = list(points)
        elif self.space.is_levels(column):
            values = list(self.space[column])
        elif column not in self.space:
            values = [_THERE, None]
        else:
            values = np.linspace(*self.space.interval(column), points).tolist()
        fixed = {name: self._middle(name) for name in names} | at
        return {n: values if n == column else [fixed[n]] * len(values) for n in names}

    def _middle(self, name: str) -> Any:
        """The median or the most frequent level, as released."""
        if name not in self.space:
            return _THERE
        if not self.space.is_levels(name):
            return float(self.quantiles(name, [0.5])[0])
        return self.space[name][int(np.argmax(self._level_shares(name) or [1.0]))]

    def plot(
        self,
        column: str | None = None,
        *,
        at: Mapping[str, Any] | None = None,
        conf_level: float = 0.95,
        covers: str | None = None,
        ax: Any = None,
    ) -> Any:
        """Draw the effect along a covariate (by default the first); return the axes."""
        return draw(self, column, at=at, conf_level=conf_level, covers=covers, ax=ax)

    def summary(
        self,
        form: str = "full",
        *,
        conf_level: float = 0.95,
        points: Points = 3,
        at: Mapping[str, Any] | None = None,
    ) -> Summary:
        """All results as titled tables; the main ones with ``form="short"``.

        ``points`` and ``at`` are as in `tidy`.
        """
        return show(self, form, conf_level=conf_level, points=points, at=at)

    def tidy(
        self, conf_level: float = 0.95, points: Points = 3, at: Mapping[str, Any] | None = None
    ) -> pd.DataFrame:
        """Effects along each covariate; one row a point.

        ``points`` maps covariates to the values to show, or says how many: then they are where
        records are, from the 10 % to the 90 % quantile of each covariate as released, and all
        levels. The other covariates are at ``at``, as in `curve`.

        ``covers`` says what the band is for; ``std_error`` is NaN where it is for noise only.
        """
        shown = self.values(points)
        where = [(name, value) for name, values in shown.items() for value in values]
        grids = [self._grid(name, values, at) for name, values in shown.items()]
        grid = {name: [x for each in grids for x in each[name]] for name in self.covariates}
        bands = self.bands(grid, conf_level, self._widest)
        noise_sd = self.bands(grid, conf_level, "noise")["std_dev"]
        rows = []
        for (name, value), point, sd in zip(where, bands.to_dict("records"), noise_sd, strict=True):
            known = point["covers"] == "effect"
            row = {"term": f"{name} {number(value)}", "estimate": point["effect"]}
            row["std_error"] = point["std_dev"] if known else math.nan
            row |= {x: point[x] for x in ("conf_low", "conf_high")} | {"noise_sd": sd}
            rows.append(row | {"covers": point["covers"], "covariate": name, "value": value})
        return self._frame(rows)

    def values(self, points: Points = 3) -> dict[str, Sequence[Any]]:
        """Values of each covariate that `tidy` shows."""
        if isinstance(points, Mapping):
            return {
                name: np.atleast_1d(np.asarray(values, dtype=object)).tolist()
                for name, values in points.items()
            }
        if isinstance(points, bool) or not isinstance(points, int) or points < 1:
            got = quoted(points)
            raise OptionError(f"points maps covariates to values, or is a number, got {got}")
        shares = np.linspace(0.1, 0.9, points) if points > 1 else np.array([0.5])
        return {
            name: list(self.space[name])
            if self.space.is_levels(name)
            else self._rounded(name, self.quantiles(name, shares))
            for name in self.covariates
            if name in self.space
        }

    def _rounded(self, name: str, values: FloatArray) -> list[float]:
        """Values for a table: to about a thousandth of the declared range."""
        low, high = self.space.interval(name)
        return np.round(values, 2 - math.floor(math.log10(high - low))).tolist()

    @property
    def estimate_warnings(self) -> str:
        """Warnings about the estimates; empty where there are none."""
        return self.function.warnings

    def to_dict(self, conf_level: float = 0.95) -> dict[str, Any]:
        """Plain values for JSON: released and public numbers only."""
        return documents.sealed(self.FORMAT, super().to_dict())

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> Self:
        """Read what `to_dict` gave; ValueError where its parts do not fit together."""
        documents.require_seal(cls.FORMAT, document)
        documents.require_unchanged(document)
        fit = super().from_dict(document)
        there = fit.space.keys() | fit._formula.flags
        require(all(name in there for name in fit.covariates), "space")
        names = design.names(fit._formula, fit.space)
        require(len(names) == len(fit.function.margins) + 1, "space")
        return fit

    # --- in words ---------------------------------------------------------------------------------

    def _average(self, conf_level: float, covers: str) -> tuple[str, ...]:
        """Average of the function over the records, and its interval."""
        value, sd = self.function.over_records(covers)
        half = NormalDist().inv_cdf(0.5 + conf_level / 2.0) * sd
        return with_ends(value, value - half, value + half)

    def _blocks(
        self, conf_level: float, points: Points = 3, at: Mapping[str, Any] | None = None
    ) -> Sequence[Block]:
        values = self.values(points)
        names = list(values)[:_COVARIATES]
        found = self.tidy(conf_level, {name: values[name] for name in names}, at)
        shown = [_with_noise(point) for point in found.to_dict("records")]
        rows: list[tuple[str, ...]] = []
        last = ""
        for point, cells in zip(shown, wording.cells_of_rows(shown), strict=True):
            name = "" if point["covariate"] == last else point["covariate"]
            rows.append((name, number(point["value"], 4), *cells))
            last = point["covariate"]
        others = "others as chosen" if at else "others at their medians"
        title = f"{wording.capital(wording.relation(self))} along each covariate, {others}"
        heads = ("covariate", "at", "effect", "std. dev.", *wording.limits(conf_level))
        value, low, high = self._average(conf_level, self._widest)
        name, whose = ("Average effect", "the function over the records")
        if self.function.variation is None:
            name, whose = ("Average of the function", "evenly over the declared ranges")
        average = Pairs(((name, f"{value}, from {low} to {high} ({whose})"),))
        return average, Table(title, heads, tuple(rows), "llrrrr")

    def _noted(
        self, conf_level: float, points: Points = 3, at: Mapping[str, Any] | None = None
    ) -> Sequence[str]:
        notes = self._bands
        if (hidden := len(self.values(points)) - _COVARIATES) > 0:
            notes.append(f"{hidden} more covariates are not shown; see curve() and plot().")
        return [*notes, *self.notes]

    @property
    def _bands(self) -> list[str]:
        """Say what bands cover, what a function cannot follow, and where it is known least."""
        covered = f"Bands cover {_SAID['covered'][self._widest]}."
        if self.options.get("second_stage") == "linear":
            first = "A linear function: bands are for the best one, not for effects that bend."
        else:
            widths = list(self.bandwidths.items())[:_COVARIATES]
            sharp = ", ".join(f"{number(width, 2)} of {name}" for name, width in widths)
            first = _SAID["sharp"].format(f": here about {sharp}" if sharp else "")
        worst = _SAID["worst"]
        if self.function.variation is None or not self.bandwidths:
            return [covered, first, f"{worst}."]
        ranges = []
        for name in list(self.bandwidths)[:_COVARIATES]:
            low, high = (number(x, 3) for x in self.quantiles(name, [0.05, 0.95]))
            ranges.append(f"{name} from {low} to {high}")
        return [covered, first, f"{worst}; nine in ten have {', '.join(ranges)}."]

    def _headline(self, conf_level: float = 0.95, **asked: Any) -> wording.Lines:
        rows = self.tidy(conf_level, **asked).to_dict("records")
        value, low, high = self._average(conf_level, self._widest)
        what = f"{wording.relation(self)} as a function of covariates"
        first, *others = wording.estimates(rows, what, conf_level)
        return [first, ("Average", f"{value} ({low} to {high})"), *others]

    def _findings(self, conf_level: float) -> Sequence[str]:
        rows = self.tidy(conf_level).to_dict("records")
        value, low, high = self._average(conf_level, self._widest)
        whose = "the records" if self.function.variation is not None else "the declared ranges"
        return [
            _SAID["released"].format(whose, value, low, high),
            _SAID["along"].format(wording.percent(conf_level), wording.listed(rows)),
            f"{' '.join(self._bands)} {wording.noise_sentence(rows)}",
        ]

    def _lacks(self, conf_level: float) -> str:
        return "" if self._widest == "effect" else _SAID["noise_only"]

    def __repr__(self) -> str:
        return self._head(f"function, average {number(self.function.over_records('noise')[0], 3)}")


def load_cate(path: str | PathLike[str]) -> CateFunction:
    """Read an effect function that `CateFunction.save` wrote.

    A checksum shows whether the file was changed by accident; it is no signature.
    """
    return CateFunction.load(path)


@dataclass(frozen=True, repr=False, kw_only=True)
class CateEffects(SeveralEffects):
    """Effects at points or by group: one `Estimate` for each label.

    ``kind`` is "points" or "groups"; ``points`` holds the query rows as they were given.
    ``overlap_weighted`` is true for effects by group in which records count by p (1 - p).
    """

    _titled = _TITLE
    kind: str
    points: Mapping[str, Sequence[Any]]
    overlap_weighted: bool = False

    @classmethod
    def _made(cls, released: Effects, estimation: Any, about: dict[str, Any]) -> Self:
        """The result of an estimation, with what all results say about themselves."""
        request, made, columns = estimation.request, {}, {}
        if request.by is None:
            columns = point_columns(request.at, estimation.design.formula.covariate_columns)
            labels = point_labels(columns)
        else:
            strata = estimation.groups.design.strata()
            labels, made = strata.labels(), {"groups": strata.words}
        return cls(
            kind=request.release,
            labels=labels,
            effects=tuple(map(estimation.completed, released.estimates)),
            points=columns,
            overlap_weighted=released.overlap_weighted,
            details=made | dict(released.details),
            **about | {"notes": (*about["notes"], *released.notes)},
        )

    @property
    def estimate_warnings(self) -> str:
        """Warnings about the estimates; empty where there are none."""
        return with_another(_SAID["overlap"] * self.overlap_weighted, super().estimate_warnings)

    @property
    def _estimand(self) -> str:
        return f"overlap-weighted {self.estimand}" if self.overlap_weighted else self.estimand

    @property
    def _noise_only(self) -> bool:
        return self.kind != "groups"

    def _at(self, i: int) -> dict[str, Any]:
        return {name: values[i] for name, values in self.points.items() if name not in TIDY}

    def __repr__(self) -> str:
        return self._head(f"{len(self.labels)} {self.kind}")

    @property
    def _named(self) -> Labels:
        each = self.kind.rstrip("s")
        return Labels(each, "by group" if each == "group" else "at points", "", "", "")

    def _blocks(self, conf_level: float, simultaneous: bool | None = None) -> Sequence[Block]:
        found = wording.rows_of(self, conf_level, simultaneous=simultaneous)[: wording.EFFECTS]
        rows = [row if math.isnan(row["conf_low"]) else _with_noise(row) for row in found]
        what = "Overlap-weighted effect" if self.overlap_weighted else "Effect"
        title = f"{what} of {self.treatment} on {self.outcome} {self._named.by}"
        heads = (self._named.each, "effect", "noise sd" if self._noise_only else "std. error")
        return [wording.effects_table(title, rows, conf_level, *heads, tested=False)]

    def _noted(self, conf_level: float, simultaneous: bool | None = None) -> Sequence[str]:
        known = bool(np.isfinite(self.conf_int(conf_level)[:, 0]).any())
        level = wording.percent(conf_level, "g")
        at_once = f"The confidence intervals are simultaneous at {level} (Bonferroni)."
        return [
            _SAID["intervals"][self.kind] if known else _SAID["no_intervals"],
            at_once if self._at_once(simultaneous) else "",
            wording.left_out(len(self.labels)),
            "" if self._noise_only else wording.narrower(None, "dp_cate"),
            *self.notes,
        ]

    def _findings(self, conf_level: float) -> Sequence[str]:
        rows = self.tidy(conf_level).to_dict("records")
        where = "at the points asked for" if self._noise_only else "by group"
        what = f"{'Overlap-weighted effects' if self.overlap_weighted else 'Effects'} {where}"
        if all(math.isnan(row["conf_low"]) for row in rows):
            return [f"{what} are {wording.listed(rows)}."]
        return [
            f"{what}, with {wording.percent(conf_level)} intervals, are {wording.listed(rows)}.",
            _SAID["intervals"][self.kind],
            "" if self._noise_only else "They are not adjusted for multiplicity.",
            wording.noise_sentence(rows),
        ]

    def _lacks(self, conf_level: float) -> str:
        count = int(np.isnan(self.conf_int(conf_level)[:, 0]).sum())
        if count:
            return f"an interval for {count} of {len(self.labels)} {self.kind} (not available)"
        return _SAID["noise_only"] if self._noise_only else ""


def _with_noise(row: dict[Any, Any]) -> dict[Any, Any]:
    """A row of `tidy`, with its privacy noise in the place of a standard error it has not."""
    return row | {"std_error": row["noise_sd"]} if math.isnan(row["std_error"]) else row
