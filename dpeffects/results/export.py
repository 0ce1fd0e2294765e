"""Values on their way out, and back: frames, JSON, and records read field by field from JSON."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache, singledispatch
from typing import Any, ClassVar, Self, TypeVar, get_args, get_origin

import numpy as np

from dpeffects import dates, documents, errors, summary, type_checks
from dpeffects.arrays import FloatArray
from dpeffects.design.bounds import SOURCES, Bound, Bounds
from dpeffects.guarantee import Guarantee
from dpeffects.inference import Interval, Unavailable, check_conf_level
from dpeffects.lazy import pd

T = TypeVar("T")

TIDY = (
    *("term", "estimate", "std_error", "statistic", "p_value"),
    *("outcome", "estimand", "method", "guarantee"),
    *("conf_low", "conf_high"),
)
"""Columns that the frames of all effects have: numbers at both ends, since a terminal too narrow
for them makes pandas leave out the middle."""
DAMAGE = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)
"""What goes wrong when a document is read that does not hold what it should."""
_NOT_FINITE = re.compile(r"not a finite number \((nan|inf|-inf)\)")


def or_nan(value: float | Unavailable) -> float:
    """Return the number, or NaN where it is not available."""
    return math.nan if isinstance(value, Unavailable) else float(value)


def frame_of(rows: list[Any] | dict[str, Any], columns: list[str] | None = None) -> pd.DataFrame:
    """Return rows, or columns by name, as a pandas frame.

    The ends of intervals come last where no order of the columns is given.
    """
    frame = pd.DataFrame(rows, columns=columns)
    if columns is not None:
        return frame
    last = [name for name in ("conf_low", "conf_high") if name in frame]
    return frame[[*(name for name in frame if name not in last), *last]]


def effect_row(
    estimate: float,
    std_error: float | Unavailable,
    p_value: float | Unavailable,
    interval: Interval | Unavailable,
    **about: Any,
) -> dict[str, Any]:
    """Return an effect as a row of `tidy`; what is not available is NaN."""
    error = or_nan(std_error)
    low, high = (math.nan, math.nan) if isinstance(interval, Unavailable) else interval
    row = about | {
        "estimate": float(estimate),
        "std_error": error,
        "statistic": estimate / error if error > 0.0 else math.nan,
        "p_value": or_nan(p_value),
        "conf_low": low,
        "conf_high": high,
    }
    return {name: row[name] for name in TIDY if name in row} | row


class JsonDocument(documents.Document):
    """A frozen dataclass that is written to JSON and read from it, field by field.

    ``_computed`` names what is written beside its fields: it is not read.
    """

    _computed: ClassVar[tuple[str, ...]] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON.

        What is not available is ``{"unavailable": reason}``; a number that is not finite is that
        with ``"value": None`` beside it.
        """
        return {name: plain(getattr(self, name)) for name in self._computed} | fields_of(self)

    def to_json(self, indent: int | None = 2) -> str:
        """Return `to_dict` as JSON text, without NaN or infinity."""
        return super().to_json(indent)

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> Self:
        """Read what `to_dict` gave; entries that follow from others are computed again."""
        return record(cls, document)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read what `to_json` wrote; what cannot be shown and written again was changed since."""
        name = f"the JSON of {cls.__name__}"
        try:
            result = cls.from_dict(documents.parse_json(text))
            shown = result.summary() if isinstance(result, summary.SummaryMixin) else result
            (str(shown) + result.to_json()).encode()
            return result
        except DAMAGE as error:
            raise errors.DataError(f"this is not {name}: {error!r}") from None


class IntervalResult(JsonDocument):
    """Numbers with an ``interval`` at one ``conf_level``, and ``recompute`` at any other."""

    interval: Interval | Unavailable
    conf_level: float
    recompute: Callable[..., Any] | None

    def conf_int(self, conf_level: float | None = None) -> Interval | Unavailable:
        """The interval, by default at the level that was asked for."""
        return self.at(conf_level).interval

    def at(self, conf_level: float | None = None) -> Self:
        """The same at another level of confidence."""
        if conf_level is None or conf_level == self.conf_level:
            return self
        if self.recompute is None:
            raise errors.OptionError(errors.refusal("level_of_json", level=self.conf_level))
        found: Self = self.recompute(conf_level=check_conf_level(conf_level))
        return found

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; the interval is ``conf_int``."""
        found = super().to_dict()
        return {"conf_int" if name == "interval" else name: x for name, x in found.items()}

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> Self:
        """Read what `to_dict` gave."""
        return super().from_dict({**document, "interval": document["conf_int"]})


def fields_of(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass as plain values; what is not compared is not written."""
    names = [f.name for f in dataclasses.fields(value) if f.compare]
    return {name: plain(getattr(value, name)) for name in names}


@singledispatch
def plain(value: Any) -> Any:
    """Reduce a value to what JSON can hold."""
    if isinstance(value, np.ndarray) and value.dtype == float and np.isfinite(value).all():
        return value.tolist()  # most numbers by far
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return plain(value.to_dict()) if hasattr(value, "to_dict") else fields_of(value)
    if hasattr(value, "to_dict") and hasattr(value, "columns"):  # a frame
        return plain(value.to_dict("records"))
    if isinstance(value, Mapping):
        return {str(name): plain(entry) for name, entry in value.items()}
    if hasattr(value, "tolist"):  # numpy scalars and arrays
        return plain(value.tolist())
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {"value": None, "unavailable": f"not a finite number ({value})"}
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


@plain.register
def _(value: Unavailable) -> dict[str, str]:
    return {"unavailable": value.reason}


@plain.register
def _(value: Guarantee) -> dict[str, Any]:
    return {name: plain(x) for name, x in value.to_dict().items()} | {"sentence": value.sentence()}


@plain.register
def _(value: Bounds) -> dict[str, Any]:
    return {
        name: {
            "levels" if value.is_levels(name) else "range": plain(value[name]),
            "source": value.source(name),
            **({"since": value.dates[name]} if name in value.dates else {}),
            **({"whole": True} if name in value.whole else {}),
        }
        for name in value
    }


READERS: dict[Any, Callable[[Any], Any]] = {}
"""How values are read whose type alone does not say it, by type."""


def record(kind: type[T], document: Any) -> T:
    """Read a dataclass from its plain values; fields with a default may be missing."""
    whole: Any = kind
    found: T = _record_of(whole)(document, kind.__name__)
    return found


@cache
def _record_of(kind: type) -> type_checks.Check:
    return _PLAIN.record(kind)


def read(hint: Any, value: Any) -> Any:
    """Return the value that `plain` reduced, which has this type; ValueError if it cannot be."""
    return _PLAIN.of(hint)(value, getattr(hint, "__name__", "it"))


class WithReasons(type_checks.Types):
    """Checks of values that may not be available, which say why."""

    def either(self, kinds: tuple[Any, ...]) -> type_checks.Check:
        """Make the reader of what may not be available."""
        known = super().either(tuple(kind for kind in kinds if kind is not Unavailable))

        def check(value: Any, name: str) -> Any:
            if isinstance(value, dict) and len(value) == 1 and "unavailable" in value:
                return Unavailable(self.of(str)(value["unavailable"], f"{name}.unavailable"))
            return known(value, name)

        return check if Unavailable in kinds else known


class _Plain(WithReasons):
    """Readers of what `plain` made; entries that follow from others are not read."""

    def make(self, hint: Any) -> type_checks.Check:
        """Make the reader of a type, which may have its own."""
        if hasattr(hint, "from_records"):  # a frame
            return lambda value, _: hint.from_records(_read_any(value))
        if own := READERS.get(hint) or getattr(hint, "from_dict", None):
            return lambda value, _: own(value)
        if get_origin(hint) is Callable:
            return _not_written
        if get_origin(hint) is Sequence:
            entries = type_checks.many(self.of(get_args(hint)[0]), math.inf)
            return lambda value, name: list(entries(value, name))
        return super().make(hint)


def require(ok: bool, what: str) -> None:
    """Raise ValueError where a document does not hold what it should."""
    if not ok:
        raise ValueError(what)


def finite(value: Any) -> float:
    """Return a finite number, or raise ValueError."""
    return float(type_checks.PLAIN[float](value, "a number"))


def _not_written(value: Any, name: str) -> None:
    require(value is None, f"{name} is never written")


def _array(value: Any, name: str) -> FloatArray:
    array = np.array(value, dtype=np.float64)
    require(bool(array.size) and bool(np.isfinite(array).all()), f"{name} is no array of numbers")
    return array


_PLAIN = _Plain(type_checks.PLAIN | {np.ndarray: _array}, exact=False, longest=math.inf)


def _read_float(value: Any) -> float:
    if isinstance(value, dict):
        match = _NOT_FINITE.fullmatch(read(str, value["unavailable"]))
        require(match is not None, "a number")
        return float(match[1]) if match else math.nan
    return finite(value)


def _read_any(value: Any) -> Any:
    if isinstance(value, list):
        return [_read_any(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    if set(value) == {"value", "unavailable"}:
        return _read_float(value)
    return {name: _read_any(entry) for name, entry in value.items()}


def _read_guarantee(value: Any) -> Guarantee:
    if value["kind"] == "none" and value["epsilon"] is None:
        value = value | {"epsilon": plain(math.inf)}
    return record(Guarantee, value)


def _read_bounds(value: Any) -> Bounds:
    bounds = Bounds()
    for name, entry in value.items():
        source = entry["source"]
        require(source in SOURCES, "source")
        if "levels" in entry:
            levels = entry["levels"]
            require(isinstance(levels, list) and len(levels) >= 2, "levels")
            require(all(isinstance(x, str | int | float) for x in levels), "levels")
            bounds = bounds.with_levels(name, levels, source=source)
        else:
            low, high = map(finite, entry["range"])
            require(low < high, "range")
            whole = entry.get("whole", False) is True
            since = entry.get("since", "")
            dated = isinstance(since, str) and dates.as_date(since) is not None
            require(dated or "since" not in entry, "since")
            bounds = bounds.with_entry(name, Bound((low, high), source, whole=whole, since=since))
    return bounds


READERS |= {float: _read_float, Any: _read_any, Guarantee: _read_guarantee, Bounds: _read_bounds}
