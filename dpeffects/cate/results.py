"""Results of conditional effects: a function, effects at points, effects by group."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dpeffects import documents, writing
from dpeffects.design import read as design
from dpeffects.design.bounds import SOURCES, Bounds
from dpeffects.errors import DataError, OptionError
from dpeffects.estimators.conditional_effects import EffectFunction, finite
from dpeffects.formula import Formula, parse
from dpeffects.inference import intervals as inference
from dpeffects.inference.estimate import Estimate, Unavailable
from dpeffects.privacy.guarantee import Guarantee, Spend
from dpeffects.results.export import frame_of, or_nan, plain
from dpeffects.results.numbers import number, numbers, text_of
from dpeffects.results.record import Record
from dpeffects.results.release_record import Page
from dpeffects.results.summary import Block, Notes, Pairs, Summary, Table, alert, budget, header

if TYPE_CHECKING:
    import pandas as pd

FloatArray = npt.NDArray[np.float64]

COVERS = {
    "noise": "privacy noise only: where the function would be without it",
    "effect": "noise, sampling and shrinkage: the effect, on average over points",
}
_TIDY = (
    "term",
    "outcome",
    "estimand",
    "estimate",
    "std_error",
    "statistic",
    "p_value",
    "conf_low",
    "conf_high",
    "method",
    "guarantee",
)
_KIND, _VERSION, _UNCHECKED = "dpeffects effect function", 2, 1
"""What a saved file says of itself; files of version 1 have no checksum."""
_SHOWN = 6
_TEXTS = ("estimand", "method", "method_title", "formula", "outcome", "treatment", "level")
_MORE_TEXTS = ("noise_source", "citation")


@dataclass(frozen=True, repr=False, kw_only=True)
class CateResult(Record):
    """What the three kinds of results have in common."""

    def _summary(self, title: str, tables: Sequence[Block], notes: Sequence[str]) -> Summary:
        blocks: list[Block] = [header(self), *tables]
        if self.spends:
            blocks.append(budget(self))
        if self.details:
            rows = tuple((str(name), text_of(value)) for name, value in self.details.items())
            blocks.append(Pairs(rows, "Details"))
        blocks.append(Notes((*notes, *self.notes)))
        if self.citation:
            blocks.append(Pairs((("Cite", self.citation),)))
        return Summary(f"{title}: {self.method_title} ({self.method})", alert(self), tuple(blocks))

    def summary(self, conf_level: float = 0.95) -> Summary:
        """Everything worth printing, as titled blocks."""
        raise NotImplementedError

    def _page(self, conf_level: float) -> Page:
        return replace(super()._page(conf_level), summary=self.summary(conf_level))

    def _about(self) -> dict[str, Any]:
        """Plain values of the fields of `Record`."""
        out = {name: getattr(self, name) for name in Record.__dataclass_fields__}
        out["guarantee"] = self.guarantee.to_dict() | {"sentence": self.guarantee.sentence()}
        out["spends"] = [spend.to_dict() for spend in self.spends]
        return {name: plain(value) for name, value in out.items()}

    def _rows(self, rows: Sequence[dict[str, Any]]) -> pd.DataFrame:
        """Effects as a frame whose first columns are those of `Result.tidy`."""
        about = {"outcome": self.outcome, "estimand": self.estimand, "method": self.method}
        about["guarantee"] = self.guarantee.status
        made: list[dict[str, Any]] = [dict.fromkeys(_TIDY, math.nan) | r | about for r in rows]
        more = [name for name in (made[0] if made else {}) if name not in _TIDY]
        return frame_of(made, [*_TIDY, *more])

    def glance(self) -> pd.DataFrame:
        """One row for the release: its size, guarantee and method."""
        row = {
            "n": self.n,
            "method": self.method,
            "level": self.level,
            "epsilon": float(self.guarantee.epsilon),
            "delta": float(self.guarantee.delta),
            "guarantee": self.guarantee.status,
            "caution": self.caution,
            "unit": self.guarantee.unit,
        }
        return frame_of([row])

    def _head(self, what: str) -> str:
        return (
            f"<dpeffects CATE {what}, {self.method}, "
            f"epsilon={number(self.guarantee.epsilon)}, {self.guarantee.tag}>"
        )


@dataclass(frozen=True, repr=False, kw_only=True)
class CateFunction(CateResult):
    """A released effect function: query it as often as you like, save it, plot it.

    Parameters
    ----------
    function
        The released numbers.
    space
        Declared ranges and levels of the covariates; queries are clipped to them.
    """

    function: EffectFunction
    space: Bounds

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

        ``covers="noise"``: where the function would be without privacy noise. ``covers="effect"``:
        noise, sampling error and shrinkage; like the bands of a smoothing spline it holds on
        average over points, for effects that vary no more than the penalty is planned for.
        """
        from scipy.special import ndtri

        if not isinstance(covers, str) or covers not in COVERS:
            raise OptionError(f'covers must be "noise" or "effect", got {covers!r}')
        if covers == "effect" and self.function.variation is None:
            raise OptionError('variance=False was asked for: only covers="noise" is available')
        _check_level(conf_level)
        rows = self._encoded(newdata)
        effect, sd = self.function(rows), self.function.sd(rows, covers)
        half = float(ndtri(0.5 + conf_level / 2.0)) * sd
        return frame_of(
            [
                {"effect": e, "std_dev": s, "conf_low": e - h, "conf_high": e + h, "covers": covers}
                for e, s, h in zip(effect.tolist(), sd.tolist(), half.tolist(), strict=True)
            ]
        )

    def curve(
        self,
        column: str,
        points: int = 101,
        at: Mapping[str, Any] | None = None,
        conf_level: float = 0.95,
        covers: str | None = None,
    ) -> pd.DataFrame:
        """Return effects and bands along one covariate.

        The others are at the values in ``at``, else at the middle of their ranges or at their first
        level.
        """
        covers = covers or ("effect" if self.function.variation is not None else "noise")
        if isinstance(points, bool) or not isinstance(points, int) or points < 2:
            raise OptionError(f"points must be a whole number from 2 on, got {points!r}")
        if at is not None and not isinstance(at, Mapping):
            raise OptionError(f"at maps covariates to one value each, got {at!r}")
        grid = self._grid(column, points, dict(at or {}))
        bands = self.bands(grid, conf_level, covers)
        bands.insert(0, column, grid[column])
        return bands

    def _grid(self, column: str, points: int, at: dict[str, Any]) -> dict[str, Any]:
        names = self._formula.covariate_columns
        for name in (column, *at):
            if name not in names:
                raise OptionError(f"{name!r} is not a covariate; there are {', '.join(names)}")
        for name, value in at.items():
            if np.ndim(value) != 0:
                raise OptionError(f"at[{name!r}] must be one value, got {value!r}")
        middle: dict[str, Any] = {}
        for name in names:
            if self.space.is_levels(name):
                middle[name] = self.space[name][0]
            else:
                middle[name] = sum(self.space.interval(name)) / 2.0
        if self.space.is_levels(column):
            values: list[Any] = list(self.space[column])
        else:
            values = np.linspace(*self.space.interval(column), points).tolist()
        fixed = {**middle, **at}
        return {n: values if n == column else [fixed[n]] * len(values) for n in names}

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
        from dpeffects import plots

        return plots.curve(self, column, at=at, conf_level=conf_level, covers=covers, ax=ax)

    def summary(self, conf_level: float = 0.95) -> Summary:
        """Everything worth printing: the function along each covariate, and what it cost."""
        covers = "effect" if self.function.variation is not None else "noise"
        curves = {n: self.curve(n, 3, None, conf_level, covers) for n in self._columns()}
        rows = [
            (name if i == 0 else "", _shown(row[name]), row["effect"], row)
            for name, curve in curves.items()
            for i, row in enumerate(curve.to_dict("records"))
        ]
        cells = [
            numbers([r["effect"], r["std_dev"], r["conf_low"], r["conf_high"]]) for *_, r in rows
        ]
        low, high = (f"{50 * (1 + side * conf_level):.4g} %" for side in (-1, 1))
        table = Table(
            f"Effect of {self.treatment} on {self.outcome} along each covariate, others midway",
            ("covariate", "at", "effect", "std. dev.", low, high),
            tuple((a, b, *c) for (a, b, *_), c in zip(rows, cells, strict=True)),
            "llrrrr",
        )
        average = Pairs((("Average effect", f"{number(self.function.average)} (released first)"),))
        notes = [f"Bands cover {COVERS[covers]}."]
        if self.options.get("second_stage") == "linear":
            notes.append(
                "A linear function: bands are for the best one, not for effects that bend."
            )
        hidden = len(self._formula.covariate_columns) - len(curves)
        if hidden > 0:
            notes.append(f"{hidden} more covariates are not shown; see curve() and plot().")
        return self._summary("Private conditional effects", [average, table], notes)

    def _columns(self) -> tuple[str, ...]:
        return tuple(self._formula.covariate_columns[:_SHOWN])

    def tidy(self, conf_level: float = 0.95, points: int = 3) -> pd.DataFrame:
        """Effects along each covariate, the others midway; one row a point.

        ``covers`` says what the band is for; ``std_error`` is NaN where it is for noise only.
        """
        rows = []
        for name in self._formula.covariate_columns:
            noise = self.curve(name, points, None, conf_level, "noise")["std_dev"]
            curve = self.curve(name, points, None, conf_level).to_dict("records")
            for found, sd in zip(curve, noise.tolist(), strict=True):
                covers = found["covers"]
                rows.append(
                    {
                        "term": f"{name} {_shown(found[name])}",
                        "estimate": found["effect"],
                        "std_error": found["std_dev"] if covers == "effect" else math.nan,
                        "conf_low": found["conf_low"],
                        "conf_high": found["conf_high"],
                        "noise_sd": sd,
                        "covers": covers,
                        "covariate": name,
                        "value": found[name],
                    }
                )
        return self._rows(rows)

    def _paragraph(self, conf_level: float) -> str:
        from dpeffects.cate.report import about_function

        return about_function(self, conf_level)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON: released and public numbers only."""
        space = {
            name: {
                "levels" if self.space.is_levels(name) else "range": plain(self.space[name]),
                "source": self.space.source(name),
            }
            for name in self.space
        }
        made = {
            "kind": _KIND,
            "version": _VERSION,
            "function": self.function.to_dict(),
            "space": space,
            **self._about(),
        }
        return made | {"checksum": documents.checksum(made)}

    def save(self, path: str | PathLike[str], *, overwrite: bool = False) -> Path:
        """Write the function to a JSON file; `load_cate` reads it, and needs no data.

        A function that was saved there before is replaced, another file only with
        ``overwrite=True``, and a ledger never.
        """
        ours = overwrite is True or documents.holds(path, "kind", _KIND)
        writing.write(path, self.to_json() + "\n", overwrite=ours)
        return Path(path)

    def __repr__(self) -> str:
        return self._head(f"function, average {number(self.function.average)}")


def load_cate(path: str | PathLike[str], *, unchecked: bool = False) -> CateFunction:
    """Read an effect function that `CateFunction.save` wrote.

    A checksum shows whether the file was changed by accident; it is no signature. Files of the
    first version have none and are read with ``unchecked=True`` only.
    """
    found = documents.parse(documents.read(path), path)
    if not isinstance(found, dict) or found.get("kind") != _KIND:
        raise DataError(f"{str(path)!r} does not hold an effect function of dpeffects")
    _check_version(found, path, unchecked)
    try:
        made = _from_dict(found)
        _ = str(made)  # what is missing or of another kind shows here
        return made
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise DataError(f"{str(path)!r} is damaged: {error!r}") from None


def _check_version(found: dict[str, Any], path: str | PathLike[str], unchecked: bool) -> None:
    version = found.get("version")
    if type(version) is not int or version not in (_VERSION, _UNCHECKED):
        raise DataError(f"{str(path)!r} has version {version!r}; this dpeffects reads {_VERSION}")
    if version == _UNCHECKED and unchecked is not True:
        raise DataError(
            f"{str(path)!r} has no checksum (an older dpeffects wrote it): where you know that "
            "nobody changed it, load_cate(path, unchecked=True) reads it and save() adds one"
        )
    if version == _VERSION and not documents.fits(found):
        raise DataError(
            f"{str(path)!r} is damaged: its checksum does not fit, so it was changed after it was "
            "written"
        )


def _from_dict(found: dict[str, Any]) -> CateFunction:
    about: dict[str, Any] = {name: found[name] for name in Record.__dataclass_fields__}
    for name in (*_TEXTS, *_MORE_TEXTS):
        _require(isinstance(about[name], str), name)
    for name in ("details", "options"):
        _require(isinstance(about[name], dict), name)
    _require(isinstance(about["n"], int) and not isinstance(about["n"], bool), "n")
    if about["epsilon_asked"] is not None:
        about["epsilon_asked"] = finite(about["epsilon_asked"])
    about["guarantee"] = _guarantee(found["guarantee"])
    about["spends"] = tuple(_spend(spend) for spend in found["spends"])
    about["bounds"] = tuple(_texts(bound, 3) for bound in found["bounds"])
    about["notes"] = _texts(found["notes"])
    space = _space(found["space"])
    made = CateFunction(function=EffectFunction.from_dict(found["function"]), space=space, **about)
    columns = made._formula.covariate_columns
    _require(all(name in space for name in columns), "space")
    names = design.names(made._formula, space)
    _require(len(names) == len(made.function.margins) + 1, "space")
    return made


def _space(found: dict[str, Any]) -> Bounds:
    space = Bounds()
    for name, entry in found.items():
        source = entry["source"]
        _require(source in SOURCES, "source")
        if "levels" in entry:
            levels = entry["levels"]
            _require(isinstance(levels, list) and len(levels) >= 2, "levels")
            _require(all(isinstance(x, str | int | float) for x in levels), "levels")
            space = space.with_levels(name, levels, source=source)
        else:
            low, high = map(finite, entry["range"])
            _require(low < high, "range")
            space = space.with_interval(name, low, high, source=source)
    return space


def _guarantee(found: dict[str, Any]) -> Guarantee:
    return Guarantee(
        epsilon=finite(found["epsilon"]),
        delta=finite(found["delta"]),
        unit=_texts([found["unit"]])[0],
        public=_texts(found["public"]),
        neighbours=_texts([found["neighbours"]])[0],
        kind=_texts([found["kind"]])[0],
        void=_texts(found["void"]),
    )


def _spend(found: dict[str, Any]) -> Spend:
    label, share, mechanism = _texts([found["label"], found["share"], found["mechanism"]])
    return Spend(
        label=label,
        share=share,
        epsilon=finite(found["epsilon"]),
        delta=finite(found["delta"]),
        mechanism=mechanism,
        sensitivity=tuple(map(finite, found["sensitivity"])),
        scale=tuple(map(finite, found["scale"])),
        claim=int(finite(found["claim"])),
        alone=found["alone"] is True,
    )


def _texts(found: Any, size: int | None = None) -> tuple[str, ...]:
    _require(isinstance(found, list) and all(isinstance(x, str) for x in found), "text")
    _require(size is None or len(found) == size, "text")
    return tuple(found)


def _require(ok: bool, what: str) -> None:
    if not ok:
        raise ValueError(what)


@dataclass(frozen=True, repr=False, kw_only=True)
class CateEffects(CateResult):
    """Effects at points or by group: one `Estimate` for each label.

    ``kind`` is "points" or "groups"; ``points`` holds the query rows as they were given.
    """

    kind: str
    labels: tuple[str, ...]
    effects: tuple[Estimate, ...]
    points: Mapping[str, Sequence[Any]]

    @property
    def estimates(self) -> FloatArray:
        """The released effects."""
        return np.array([effect.value for effect in self.effects])

    def conf_int(self, conf_level: float = 0.95, *, simultaneous: bool = False) -> FloatArray:
        """Intervals, one row each; ``simultaneous`` makes them hold for all at once (Bonferroni).

        By group they are for the effect. At points they are for what the effect would be without
        privacy noise, because no sampling variance is released there.
        """
        _check_level(conf_level)
        level = 1.0 - (1.0 - conf_level) / (len(self.effects) if simultaneous else 1)
        of = inference.interval if self.kind == "groups" else inference.noise_interval
        around: dict[Any, tuple[float, float]] = {}  # points share one law
        out = np.empty((len(self.effects), 2))
        for i, effect in enumerate(self.effects):
            law = (effect.laplace, effect.gaussian, effect.sampling)
            if law not in around:
                found = of(replace(effect, value=0.0), level)
                missing = (math.nan, math.nan)
                around[law] = (
                    missing if isinstance(found, Unavailable) else (found.lower, found.upper)
                )
            out[i] = np.add(around[law], effect.value)
        return out

    def tidy(self, conf_level: float = 0.95, *, simultaneous: bool = False) -> pd.DataFrame:
        """One row for each effect; what is not available is NaN.

        ``covers`` says what the interval is for: the effect, or privacy noise only.
        """
        intervals = self.conf_int(conf_level, simultaneous=simultaneous)
        covers = "effect" if self.kind == "groups" else "noise"
        rows = []
        for i, (label, effect) in enumerate(zip(self.labels, self.effects, strict=True)):
            error = or_nan(inference.std_error(effect))
            found = {
                "term": label,
                "estimate": effect.value,
                "std_error": error,
                "statistic": effect.value / error if error > 0.0 else math.nan,
                "p_value": or_nan(inference.p_value(effect)),
                "conf_low": intervals[i, 0],
                "conf_high": intervals[i, 1],
                "noise_sd": math.sqrt(effect.noise_variance),
                "covers": covers,
            }
            at = {name: values[i] for name, values in self.points.items() if name not in _TIDY}
            rows.append(at | found)
        return self._rows(rows)

    def _paragraph(self, conf_level: float) -> str:
        from dpeffects.cate.report import about_effects

        return about_effects(self, conf_level)

    def plot(self, conf_level: float = 0.95, *, simultaneous: bool = False, ax: Any = None) -> Any:
        """Draw the effects with their intervals; return the axes (matplotlib)."""
        from dpeffects import plots

        return plots.curve(self, conf_level=conf_level, simultaneous=simultaneous, ax=ax)

    def summary(self, conf_level: float = 0.95, *, simultaneous: bool = False) -> Summary:
        """Everything worth printing, as titled blocks."""
        low, high = (f"{50 * (1 + side * conf_level):.4g} %" for side in (-1, 1))
        intervals = self.conf_int(conf_level, simultaneous=simultaneous)
        shown = slice(0, 40)
        cells = []
        for effect, interval in zip(self.effects[shown], intervals[shown], strict=True):
            error = inference.std_error(effect)
            sd = math.sqrt(effect.noise_variance) if isinstance(error, Unavailable) else error
            usable = math.isfinite(interval[0])
            cells.append(
                numbers([effect.value, sd, *interval])
                if usable
                else (number(effect.value), "n/a", "n/a", "n/a")
            )
        error_name = "std. error" if self.kind == "groups" else "noise sd"
        table = Table(
            f"Effect of {self.treatment} on {self.outcome} "
            + ("by group" if self.kind == "groups" else "at points"),
            ("group" if self.kind == "groups" else "point", "effect", error_name, low, high),
            tuple((a, *b) for a, b in zip(self.labels[shown], cells, strict=True)),
            "lrrrr",
        )
        notes = [_INTERVALS[self.kind]]
        if simultaneous:
            notes.append(f"All intervals hold at once with {100 * conf_level:g} % (Bonferroni).")
        if len(self.labels) > shown.stop:
            notes.append(f"The first {shown.stop} of {len(self.labels)}; tidy() has them all.")
        return self._summary("Private conditional effects", [table], notes)

    def to_dict(self, conf_level: float = 0.95) -> dict[str, Any]:
        """Plain values for JSON."""
        intervals = self.conf_int(conf_level)
        effects = [
            {"label": label, "estimate": effect.value, "noise_variance": effect.noise_variance}
            | {"laplace": effect.laplace, "gaussian": effect.gaussian}
            | {"conf_int": [low, high], "sampling": effect.sampling}
            for label, effect, (low, high) in zip(self.labels, self.effects, intervals, strict=True)
        ]
        return {"kind": self.kind, "effects": plain(effects), **self._about()}

    def __repr__(self) -> str:
        return self._head(f"{len(self.labels)} {self.kind}")


_INTERVALS = {
    "groups": "Intervals are for the effect in each group: sampling error and privacy noise.",
    "points": (
        "Intervals cover privacy noise only: where the fitted effect would be without it. They "
        "leave out sampling error and shrinkage."
    ),
}


def _check_level(level: Any) -> None:
    number = isinstance(level, int | float) and not isinstance(level, bool)
    if not number or not 0.0 < level < 1.0:
        raise OptionError(f"conf_level must be between 0 and 1, got {level!r}")


def _shown(value: Any) -> str:
    return number(value) if isinstance(value, int | float) else str(value)
